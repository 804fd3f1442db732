//! Prints a model's SELECT as a statement of its own. In models `*` means all columns that the query names, in SQL
//! only the fixed ones.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Select, SelectItem, SelectItemQualifiedWildcardKind, Statement as SqlStatement,
    TableFactor, VisitMut, VisitorMut,
};

/// Columns of tables, by schema and name, that `*` does not include in SQL.
pub(super) type HiddenColumns = HashMap<(String, String), Vec<String>>;

struct Spread<'f>(&'f HiddenColumns);

/// Prints a SELECT with the missing columns behind each `*`.
pub(super) fn written(statement: &Statement, found: &HiddenColumns) -> String {
    let Statement::Statement(statement) = statement else { return statement.to_string() };
    let mut statement: SqlStatement = (**statement).clone();
    let _ = VisitMut::visit(&mut statement, &mut Spread(found));
    statement.to_string()
}

/// Schema and name of a table as written.
fn named(name: &ObjectName) -> Option<(String, String)> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    match parts[..] {
        [.., schema, table] => Some((schema.value.clone(), table.value.clone())),
        [table] => Some((String::new(), table.value.clone())),
        [] => None,
    }
}

/// A `*` among outputs.
#[derive(PartialEq)]
enum Star {
    /// `*`, of all tables.
    All,
    /// `e.*`, of one table.
    Of(String),
}

fn star(item: &SelectItem) -> Option<Star> {
    match item {
        SelectItem::Wildcard(_) => Some(Star::All),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            name.0.last()?.as_ident().map(|ident| Star::Of(ident.value.clone()))
        }
        _ => None,
    }
}

impl VisitorMut for Spread<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let stars: Vec<Star> = select.projection.iter().filter_map(star).collect();
        if stars.is_empty() {
            return ControlFlow::Continue(());
        }
        let tables =
            select.from.iter().flat_map(|t| std::iter::once(&t.relation).chain(t.joins.iter().map(|j| &j.relation)));
        let mut more = Vec::new();
        for table in tables {
            let TableFactor::Table { name, alias, .. } = table else { continue };
            let Some(found) = named(name).and_then(|named| self.0.get(&named)) else { continue };
            let relation = match (alias, name.0.last().and_then(|part| part.as_ident())) {
                (Some(alias), _) => alias.name.clone(),
                (None, Some(last)) => last.clone(),
                (None, None) => continue,
            };
            if !stars.contains(&Star::All) && !stars.contains(&Star::Of(relation.value.clone())) {
                continue;
            }
            more.extend(found.iter().map(|column| {
                let parts = vec![relation.clone(), Ident::with_quote('"', column)];
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))
            }));
        }
        select.projection.extend(more);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn stars_give_what_is_spoken_of() {
        let statement = DFParser::parse_sql("SELECT *, a AS b FROM (SELECT * FROM quiver.spans AS s) AS t").unwrap();
        let found = HiddenColumns::from([(("quiver".to_owned(), "spans".to_owned()), vec!["@error.type".to_owned()])]);
        let text = written(&statement[0], &found);
        assert_eq!(text, "SELECT *, a AS b FROM (SELECT *, s.\"@error.type\" FROM quiver.spans AS s) AS t");
        let text = "SELECT s.*, t.a FROM quiver.spans AS s, quiver.spans AS t";
        let text = written(&DFParser::parse_sql(text).unwrap()[0], &found);
        assert_eq!(text, "SELECT s.*, t.a, s.\"@error.type\" FROM quiver.spans AS s, quiver.spans AS t");
    }
}
