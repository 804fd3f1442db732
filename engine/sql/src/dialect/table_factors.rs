//! Tables in a `FROM`. A function there may be any function, and its alias also names its column.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Select, TableAlias, TableAliasColumnDef, TableFactor, Visitor, VisitorMut,
};

use super::columns::ColumnSources;
use super::expressions::{bare, query};
use super::{joined_calls, keywords, nested_lists, operators, rows_from, set_returning_functions};
use crate::names::normal;
use crate::table_functions::CALLS;

/// The names of columns that a statement uses, with a leading `.` where they are qualified by a table.
#[derive(Default)]
pub(super) struct Names {
    pub(super) columns: HashSet<String>,
    /// How many expressions were visited, those that are no names included.
    pub(super) expressions: usize,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.expressions += 1;
        match expr {
            Expr::Identifier(ident) => _ = self.columns.insert(normal(ident)),
            Expr::CompoundIdentifier(name) => {
                self.columns.extend(name.last().map(|column| format!(".{}", normal(column))));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Puts together what the parser took apart otherwise than PostgreSQL does (`IS DISTINCT FROM … AND …`), and rewrites
/// `pg_catalog.unnest(…)` as `unnest(…)`, `ROWS FROM (…)` as lists and some joins as subqueries, before anything looks at
/// conditions, lists and tables.
pub(super) struct ParserRepairs;

impl VisitorMut for ParserRepairs {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        joined_calls::translate(select);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        joined_calls::merged(factor);
        rows_from::translate(factor);
        set_returning_functions::unqualified(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        operators::distinct(place);
        ControlFlow::Continue(())
    }
}

/// Table functions of DataFusion.
const SERIES: [&str; 2] = ["generate_series", "range"];

/// Translates `f(…) AS name`. A function that returns rows has a column `name` if the statement refers to one; any
/// other function is one row. Without an alias, the name is that of the function.
pub(super) fn translate(factor: &mut TableFactor, names: &HashSet<String>) {
    set_returning_functions::lateral(factor);
    set_returning_functions::series(factor);
    if let TableFactor::UNNEST { alias, array_exprs, .. } = factor {
        set_returning_functions::undo_unnesting(array_exprs);
        for list in array_exprs.iter_mut() {
            if let Some(values) = nested_lists::flattened(list) {
                *list = values;
            }
        }
        set_returning_functions::arrays_as_calls(array_exprs);
        // Several lists have a column each.
        if array_exprs.len() == 1 {
            name_items(alias, names);
        }
        return set_returning_functions::numbered(factor);
    }
    if set_returning_functions::members(factor) || set_returning_functions::table(factor, names) {
        return set_returning_functions::numbered(factor);
    }
    let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return };
    let Some(function) = bare(name) else { return };
    let is_named = |alias: &TableAlias| names.contains(&normal(&alias.name));
    if SERIES.contains(&function.as_str()) {
        set_returning_functions::step_in(&mut args.args);
        // The planner calls the column `value`; that name stays if the statement uses it.
        let speaks_of_value = names.contains("value") || names.contains(".value");
        if alias.is_none() && (names.contains(&function) || !speaks_of_value) {
            let name = Ident::with_quote('"', function.clone());
            *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        }
        *name = ObjectName::from(vec![Ident::new(function)]);
        if let Some(alias) =
            alias.as_mut().filter(|alias| alias.columns.is_empty() && (is_named(alias) || !speaks_of_value))
        {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
        }
        return;
    }
    if CALLS.iter().any(|(known, _)| *known == function) {
        return;
    }
    let about = match function.as_str() {
        "pg_get_keywords" if args.args.is_empty() => Some(keywords::query()),
        "pg_show_all_settings" if args.args.is_empty() => Some("SELECT * FROM pg_catalog.pg_settings".to_owned()),
        // No table has partitions of its own.
        "pg_partition_tree" => Some(
            "SELECT CAST(NULL AS BIGINT) AS relid, CAST(NULL AS BIGINT) AS parentrelid, CAST(NULL AS BOOLEAN) AS isleaf, \
             CAST(NULL AS INT) AS level WHERE false"
                .to_owned(),
        ),
        _ => None,
    };
    if let Some(sql) = about {
        let Some(subquery) = query(&sql) else { return };
        let named = || TableAlias { explicit: true, name: Ident::new(function), columns: Vec::new(), at: None };
        let alias = Some(alias.take().unwrap_or_else(named));
        *factor = TableFactor::Derived { lateral: false, subquery: Box::new(subquery), alias, sample: None };
        return;
    }
    let column = alias.as_ref().map_or_else(|| Ident::with_quote('"', function.clone()), |alias| alias.name.clone());
    // It may read tables before it, as any function.
    let lateral = joined_calls::reads_columns(&args.args);
    let args: Vec<String> = args.args.iter().map(ToString::to_string).collect();
    let sql = format!("SELECT {function}({}) AS {column}", args.join(", "));
    let Some(subquery) = query(&sql) else { return };
    let alias =
        alias.take().or_else(|| Some(TableAlias { explicit: true, name: column, columns: Vec::new(), at: None }));
    *factor = TableFactor::Derived { lateral, subquery: Box::new(subquery), alias, sample: None };
}

/// Names the other columns of a table whose alias names the first ones: the planner wants names of all or of none.
pub(super) fn all_named(factor: &mut TableFactor, known: ColumnSources<'_>) {
    let given = match factor {
        TableFactor::Table { args: None, .. } | TableFactor::Derived { .. } => known.of_factor(factor),
        _ => None,
    };
    if let TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } = factor {
        complete(alias, given);
    }
}

/// As [`all_named`], with the columns that there are, if they are known.
pub(super) fn complete(alias: &mut TableAlias, given: Option<Vec<String>>) {
    if alias.columns.is_empty() {
        return;
    }
    let others = given.into_iter().flatten().skip(alias.columns.len());
    let column = |name: String| TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None };
    alias.columns.extend(others.map(column).collect::<Vec<_>>());
}

/// Names the column of a list's items after its alias, or after the function if the statement refers to that.
fn name_items(alias: &mut Option<TableAlias>, names: &HashSet<String>) {
    if alias.is_none() && names.contains("unnest") {
        let name = Ident::with_quote('"', "unnest");
        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    }
    if let Some(alias) = alias.as_mut().filter(|alias| alias.columns.is_empty()) {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}
