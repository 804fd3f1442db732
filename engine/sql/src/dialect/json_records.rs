//! `json_to_record(object) AS t(a int, b text)` and `json_to_recordset(list)`: members of JSON objects as columns of
//! the types in the alias.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, FunctionArg, FunctionArgExpr, Query, Select, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Visitor,
};
use quiver_query::quoting::text as quoted;
use quiver_types::Result;

use super::expressions::{bare, copied};
use super::{set_returning_functions, table_factors};
use crate::names::normal;
use crate::statement_walk::walk;

/// Rewrites such calls in a `FROM` as queries of the members.
///
/// # Errors
///
/// Limit exceeded: the statement would contain too many copies of the document.
pub(super) fn translate(select: &mut Select) -> Result<()> {
    select.from.iter_mut().try_for_each(all_of)
}

fn all_of(from: &mut TableWithJoins) -> Result<()> {
    apart(&mut from.relation)?;
    from.joins.iter_mut().try_for_each(|join| apart(&mut join.relation))
}

fn apart(factor: &mut TableFactor) -> Result<()> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return all_of(table_with_joins);
    }
    let (name, alias, args) = match factor {
        TableFactor::Table { name, alias: Some(alias), args: Some(args), .. } => (&*name, &*alias, &args.args),
        TableFactor::Function { name, alias: Some(alias), args, .. } => (&*name, &*alias, &*args),
        _ => return Ok(()),
    };
    let is_list = match bare(name).as_deref() {
        Some("json_to_record" | "jsonb_to_record") => false,
        Some("json_to_recordset" | "jsonb_to_recordset") => true,
        _ => return Ok(()),
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(document))] = args.as_slice() else {
        return Ok(());
    };
    let named = |items: &str| ("\"item\"".to_owned(), format!(" FROM {items} AS \"items\"(\"item\")"));
    let (item, from) = if is_list {
        named(&format!("json_array_elements({document})"))
    } else if has_query(document) {
        // A document with a subquery is evaluated once: nested calls of this kind would otherwise grow with the
        // columns of all calls around them.
        named(&format!("(SELECT {document})"))
    } else {
        copied(document, alias.columns.len())?;
        (document.to_string(), String::new())
    };
    let column = |column: &TableAliasColumnDef| {
        let data_type = column.data_type.as_ref()?;
        let is_json = |data_type: &DataType| matches!(data_type, DataType::JSON | DataType::JSONB);
        let (key, name) = (quoted(&normal(&column.name)), &column.name);
        let member = match data_type {
            DataType::Array(ArrayElemTypeDef::SquareBracket(of, _)) => {
                let items = if is_json(of) { "json_items" } else { "json_items_text" };
                format!("{items}(json_get({item}, {key}))")
            }
            json if is_json(json) => format!("json_get({item}, {key})"),
            _ => format!("json_get_text({item}, {key})"),
        };
        Some(format!("CAST({member} AS {data_type}) AS {name}"))
    };
    let columns = alias.columns.iter().map(column).collect::<Option<Vec<_>>>().unwrap_or_default();
    // Without a column list such a call means nothing, and the planner refuses the function.
    if columns.is_empty() {
        return Ok(());
    }
    let Some(subquery) = table_factors::query(&format!("SELECT {}{from}", columns.join(", "))) else { return Ok(()) };
    let alias = Some(TableAlias { columns: Vec::new(), ..alias.clone() });
    let lateral = set_returning_functions::reads_columns(document);
    *factor = TableFactor::Derived { lateral, subquery: Box::new(subquery), alias, sample: None };
    Ok(())
}

/// Whether an expression contains a subquery.
fn has_query(value: &Expr) -> bool {
    struct Queries;

    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    walk(value, &mut Queries).is_break()
}
