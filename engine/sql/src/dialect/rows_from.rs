//! `ROWS FROM (f(…), g(…))`: the rows of several functions side by side, shorter ones filled up with NULLs. The text of the
//! statement has become a list of calls that are unnested, behind a mark; here the calls become the lists that they give.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, TableAlias, TableAliasColumnDef, TableFactor,
};

use super::expressions::{arguments, bare, call, plain_arguments};
use super::naming::AGAIN;
use super::set_returning_functions::{lists_of, table_function, unnest};
use crate::names::normal;

/// What stands before the calls.
const MARK: &str = "rows_from";

/// Replaces such a table by one function, or by lists.
pub(super) fn translate(factor: &mut TableFactor) {
    let (alias, calls, is_numbered) = match factor {
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } if array_exprs.first().is_some_and(is_mark) => {
            (alias.take(), array_exprs.split_off(1), *with_ordinality)
        }
        TableFactor::Function { lateral: true, args, with_ordinality, alias, .. } => {
            let Some(mut calls) = plain_arguments(args) else { return };
            if !calls.first().is_some_and(is_mark) {
                return;
            }
            (alias.take(), calls.split_off(1), *with_ordinality)
        }
        _ => return,
    };
    *factor = match calls.as_slice() {
        [Expr::Function(one)] => {
            let args = arguments(&one.args).unwrap_or_default();
            if bare(&one.name).as_deref() == Some("unnest") {
                unnest(alias, args, is_numbered)
            } else {
                let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
                table_function(one.name.clone(), args, alias, is_numbered)
            }
        }
        _ => side_by_side(&calls, alias, is_numbered),
    };
}

fn is_mark(value: &Expr) -> bool {
    matches!(value, Expr::Function(call) if bare(&call.name).as_deref() == Some(MARK))
}

/// The lists of calls. Their columns have the names of the functions, unless an alias gives others.
fn side_by_side(calls: &[Expr], alias: Option<TableAlias>, is_numbered: bool) -> TableFactor {
    let (mut lists, mut names) = (Vec::new(), Vec::<String>::new());
    for one in calls {
        let given = match one {
            Expr::Function(function) => bare(&function.name).zip(arguments(&function.args)),
            _ => None,
        };
        if let Some((name, args)) = given {
            for (column, list) in lists_of(&name, args) {
                lists.push(list);
                names.push(column.unwrap_or(name.as_str()).to_owned());
            }
        } else {
            // What is no call has one value.
            lists.push(call("make_array", vec![one.clone()]));
            names.push("?column?".to_owned());
        }
    }
    let word = |word: &str| Ident::with_quote('"', word);
    let first = names.first().cloned().unwrap_or_default();
    let named = || TableAlias { explicit: true, name: word(&first), columns: Vec::new(), at: None };
    let mut alias = alias.unwrap_or_else(named);
    for (at, name) in names.iter().enumerate().skip(alias.columns.len()) {
        let is_taken = |column: &TableAliasColumnDef| normal(&column.name) == *name;
        let again = names[..at].iter().filter(|before| *before == name).count();
        let name = if again > 0 || alias.columns.iter().any(is_taken) {
            word(&format!("{name}{AGAIN}{}", again + 1))
        } else {
            word(name)
        };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    unnest(Some(alias), lists, is_numbered)
}
