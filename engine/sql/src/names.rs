//! Names as written in a statement, before anything is resolved: of tables, columns, outputs.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, SelectItem, Visit, WildcardAdditionalOptions,
};

use crate::statement_walk::look_outside_subqueries;

/// A name as tables and columns have it.
pub(crate) fn normal(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The parts of a name, unquoted ones in lower case.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normal).collect()
}

/// The name of a function without its schema; `None` if the schema is not one that Quiver has.
pub(crate) fn bare(name: &ObjectName) -> Option<String> {
    let mut parts = parts(name);
    let last = parts.pop()?;
    let known = |schema: &String| matches!(schema.as_str(), "pg_catalog" | "quiver" | "public" | "information_schema");
    parts.iter().all(known).then_some(last)
}

/// A table as a statement names it: schema, where one is written, and name.
pub(crate) type TableName = (Option<String>, String);

/// Fixed columns by name of a table; none: there is no such table.
pub(crate) type FixedColumnLookup<'f> = &'f dyn Fn(&TableName) -> Option<Vec<String>>;

/// A table as its name says it.
pub(crate) fn named(name: &ObjectName) -> Option<TableName> {
    match parts(name).as_slice() {
        [table] => Some((None, table.clone())),
        [.., schema, table] => Some((Some(schema.clone()), table.clone())),
        [] => None,
    }
}

/// The table whose attributes or labels a name speaks of.
pub(crate) fn table_of_prefix(column: &str) -> Option<&'static str> {
    let known = [("attributes.", "spans"), ("resource.", "spans"), ("labels.", "metric_samples")];
    known.into_iter().find(|(prefix, _)| column.starts_with(prefix)).map(|(_, table)| table)
}

/// The name of an output that is given one.
pub(crate) fn alias_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        _ => None,
    }
}

/// Columns that `*` leaves out: those of both sides of a join stand before it, and what is read through it was not there.
pub(crate) fn left_out(options: &WildcardAdditionalOptions) -> Vec<String> {
    match &options.opt_exclude {
        Some(ExcludeSelectItem::Multiple(names)) => names.iter().filter_map(|name| parts(name).pop()).collect(),
        Some(ExcludeSelectItem::Single(name)) => parts(name).pop().into_iter().collect(),
        None => Vec::new(),
    }
}

/// Names of columns in parts of a statement, but for those in subqueries.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) found: BTreeSet<Vec<String>>,
}

impl Names {
    /// Reads one part more.
    pub(crate) fn read(&mut self, part: &impl Visit) {
        look_outside_subqueries(part, |expr| match expr {
            Expr::Identifier(ident) => _ = self.found.insert(vec![normal(ident)]),
            Expr::CompoundIdentifier(idents) => _ = self.found.insert(idents.iter().map(normal).collect()),
            _ => {}
        });
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::{SetExpr, TableFactor};

    use super::*;
    use crate::testing::query;

    #[test]
    fn names_of_columns_are_read_outside_of_subqueries() {
        let mut names = Names::default();
        names.read(&query("select \"A\", b.C, f(D) from t where e = (select g from u)").body);
        let expected = [vec!["A"], vec!["b", "c"], vec!["d"], vec!["e"]];
        assert_eq!(names.found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn tables_are_named_with_the_schema_that_is_written() {
        for (text, expected) in
            [("T", (None, "t")), ("\"T\"", (None, "T")), ("S.\"T\"", (Some("s"), "T")), ("d.s.t", (Some("s"), "t"))]
        {
            let SetExpr::Select(select) = *query(&format!("select 1 from {text}")).body else { panic!("{text}") };
            let TableFactor::Table { name, .. } = &select.from[0].relation else { panic!("{text}") };
            let (schema, table) = named(name).expect(text);
            assert_eq!((schema.as_deref(), table.as_str()), expected, "{text}");
        }
    }

    #[test]
    fn prefixes_of_columns_tell_their_table() {
        for (column, expected) in [
            ("attributes.http.route", Some("spans")),
            ("resource.host.name", Some("spans")),
            ("labels.job", Some("metric_samples")),
            ("labels", None),
            ("span.attributes.a", None),
        ] {
            assert_eq!(table_of_prefix(column), expected, "{column}");
        }
    }
}
