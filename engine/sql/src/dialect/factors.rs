//! What stands in a `FROM`: functions there name their column by their alias, and may be any function.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, TableAlias, TableAliasColumnDef, TableFactor, Visit as _, Visitor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::{bare, keywords};
use crate::calls::CALLS;
use crate::parse::normal;

/// Bare names of columns that a statement speaks of.
#[derive(Default)]
pub(super) struct Names(pub(super) HashSet<String>);

impl Visitor for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr {
            self.0.insert(normal(ident));
        }
        ControlFlow::Continue(())
    }
}

/// Table functions of DataFusion.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// `f(…) AS name`: a function of rows has a column `name` where the statement speaks of one; any other function is a row.
/// Without a name it is called as the function.
pub(super) fn translate(factor: &mut TableFactor, names: &HashSet<String>) {
    let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return };
    let Some(function) = bare(name) else { return };
    let is_named = |alias: &TableAlias| names.contains(&normal(&alias.name));
    if SERIES.contains(&function.as_str()) || function == "unnest" {
        if alias.is_none() && names.contains(&function) {
            let name = Ident::with_quote('"', function.clone());
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        *name = ObjectName::from(vec![Ident::new(function)]);
        if let Some(alias) = alias.as_mut().filter(|alias| alias.columns.is_empty() && is_named(alias)) {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        return;
    }
    if CALLS.iter().any(|(known, _)| *known == function) {
        return;
    }
    if function == "pg_get_keywords" && args.args.is_empty() {
        let Some(subquery) = query(&keywords::query()) else { return };
        let named = || TableAlias { explicit: true, name: Ident::new(function), columns: Vec::new(), at: None };
        let alias = Some(alias.take().unwrap_or_else(named));
        *factor = TableFactor::Derived { lateral: false, subquery: Box::new(subquery), alias, sample: None };
        return;
    }
    let column = alias.as_ref().map_or_else(|| Ident::with_quote('"', function.clone()), |alias| alias.name.clone());
    let args: Vec<String> = args.args.iter().map(ToString::to_string).collect();
    let sql = format!("SELECT {function}({}) AS {column}", args.join(", "));
    let Some(subquery) = query(&sql) else { return };
    let alias =
        alias.take().or_else(|| Some(TableAlias { explicit: true, name: column, columns: Vec::new(), at: None }));
    *factor = TableFactor::Derived { lateral: false, subquery: Box::new(subquery), alias, sample: None };
}

fn query(sql: &str) -> Option<Query> {
    let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(sql).ok()?;
    let query = parser.parse_query().ok()?;
    // Nothing else is read into it.
    query.visit(&mut Names::default()).is_continue().then_some(*query)
}
