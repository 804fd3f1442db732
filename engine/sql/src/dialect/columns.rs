//! Columns of the tables in a `FROM`, as far as the statement and the catalog tell.

use datafusion::sql::sqlparser::ast::{
    Cte, JoinConstraint, JoinOperator, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias,
    TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::expressions::bare;
use super::{empty_queries, naming, set_returning_functions};
use crate::names::{FixedColumnLookup, TableName, left_out, normal, parts};

/// The name of a common table and its columns; `None` if they are not known.
pub(crate) type Common = (String, Option<Vec<String>>);

/// The sources for looking up columns.
#[derive(Clone, Copy)]
pub(crate) struct ColumnSources<'k> {
    /// The columns of catalog tables.
    pub(crate) fixed: FixedColumnLookup<'k>,
    /// Common tables, innermost last.
    pub(crate) common: &'k [Common],
}

impl ColumnSources<'_> {
    /// Columns of a table; `None` if they cannot be told from the statement.
    pub(crate) fn of_factor(&self, factor: &TableFactor) -> Option<Vec<String>> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let named = empty_queries::named(name);
                let columns = match self.common_table(&named) {
                    Some((_, columns)) => columns.clone()?,
                    None => (self.fixed)(&named)?,
                };
                Some(renamed(columns, alias.as_ref()))
            }
            TableFactor::Derived { subquery, alias, .. } => Some(renamed(self.of_query(subquery)?, alias.as_ref())),
            TableFactor::UNNEST { alias: Some(alias), .. } if !alias.columns.is_empty() => {
                Some(renamed(Vec::new(), Some(alias)))
            }
            TableFactor::UNNEST { alias: Some(alias), array_exprs, with_ordinality: false, .. }
                if array_exprs.len() == 1 =>
            {
                Some(of_items(alias))
            }
            TableFactor::Table { name, alias, args: Some(_), with_ordinality: false, .. }
                if bare(name).is_some_and(|name| set_returning_functions::gives_members(&name)) =>
            {
                Some(renamed(set_returning_functions::MEMBER.map(str::to_owned).to_vec(), alias.as_ref()))
            }
            TableFactor::Table { name, alias: Some(alias), args: Some(_), with_ordinality: false, .. }
                if bare(name).is_some_and(|name| set_returning_functions::gives_rows(&name)) =>
            {
                Some(of_items(alias))
            }
            _ => None,
        }
    }

    /// Finds a common table by name.
    pub(crate) fn common_table(&self, named: &TableName) -> Option<&Common> {
        let is_it = |(known, _): &&Common| named.0.is_none() && *known == named.1;
        self.common.iter().rev().find(is_it)
    }

    /// Columns of a common table; `None` if they are not known.
    pub(crate) fn of_common(&self, table: &Cte) -> Option<Vec<String>> {
        Some(renamed(self.of_query(&table.query)?, Some(&table.alias)))
    }

    /// Columns of a query's result; `None` if they are not known.
    pub(super) fn of_query(&self, query: &Query) -> Option<Vec<String>> {
        if query.with.is_some() {
            return None;
        }
        let mut body = &*query.body;
        loop {
            match body {
                SetExpr::Select(select) => return self.of_select(select),
                SetExpr::Query(inner) => return self.of_query(inner),
                // The first query of a set operation names the columns of all.
                SetExpr::SetOperation { left, .. } => body = &**left,
                SetExpr::Values(values) => {
                    return Some((1..=values.rows.first()?.len()).map(|at| format!("column{at}")).collect());
                }
                _ => return None,
            }
        }
    }

    fn of_select(&self, select: &Select) -> Option<Vec<String>> {
        let mut columns = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => columns.push(normal(&naming::name(expr))),
                SelectItem::ExprWithAlias { alias, .. } => columns.push(normal(alias)),
                SelectItem::Wildcard(options) if is_plain(options) => {
                    for from in &select.from {
                        columns.extend(self.of_joins(from)?);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if leaves_out(options) =>
                {
                    let table = parts(name).pop()?;
                    let factors = select.from.iter().flat_map(factors);
                    let mut factors = factors.filter(|factor| called(factor).as_ref() == Some(&table));
                    let left_out = left_out(options);
                    let given = self.of_factor(factors.next()?)?.into_iter();
                    columns.extend(given.filter(|column| !left_out.contains(column)));
                }
                _ => return None,
            }
        }
        Some(columns)
    }

    /// Columns of joined tables, if the join merges none (no `USING`, no `NATURAL`).
    fn of_joins(&self, from: &TableWithJoins) -> Option<Vec<String>> {
        let merges = |operator: &JoinOperator| {
            matches!(constraint(operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
        };
        if from.joins.iter().any(|join| merges(&join.join_operator)) {
            return None;
        }
        factors(from).map(|factor| self.of_factor(factor)).collect::<Option<Vec<_>>>().map(|all| all.concat())
    }
}

macro_rules! constraint_of {
    ($operator:expr) => {
        match $operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => Some(constraint),
            _ => None,
        }
    };
}

/// The `ON` or `USING` condition of a join, if it has one.
pub(crate) fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    constraint_of!(operator)
}

/// Like [`constraint`], but mutable.
pub(super) fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    constraint_of!(operator)
}

/// All tables of a join, the first one included.
pub(super) fn factors(from: &TableWithJoins) -> impl Iterator<Item = &TableFactor> {
    std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
}

/// The name by which columns of a table are qualified: its alias, or its own name.
pub(super) fn called(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(normal(&alias.name)),
        TableFactor::Table { name, alias: None, .. } => parts(name).pop(),
        _ => None,
    }
}

/// The column of a function that returns items. It has the name of the alias, or the planner's name where the
/// statement refers to that.
fn of_items(alias: &TableAlias) -> Vec<String> {
    match alias.columns.as_slice() {
        [] if normal(&alias.name) == "value" => vec!["value".to_owned()],
        [] => vec![normal(&alias.name), "value".to_owned()],
        columns => columns.iter().map(|column| normal(&column.name)).collect(),
    }
}

/// Columns after an alias has renamed them.
fn renamed(mut columns: Vec<String>, alias: Option<&TableAlias>) -> Vec<String> {
    for (at, column) in alias.into_iter().flat_map(|alias| &alias.columns).enumerate() {
        let name = normal(&column.name);
        match columns.get_mut(at) {
            Some(known) => *known = name,
            None => columns.push(name),
        }
    }
    columns
}

pub(super) fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none() && leaves_out(options)
}

/// Whether a `*` gives its columns unchanged or leaves some out (`EXCLUDE`), but neither renames nor replaces any.
pub(super) fn leaves_out(options: &WildcardAdditionalOptions) -> bool {
    options.opt_except.is_none() && options.opt_replace.is_none() && options.opt_rename.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::query;

    /// The columns of a query, which may name a table `t` and common tables `c` and, without known columns, `u`.
    fn columns(text: &str) -> Option<Vec<String>> {
        let is_known = |name: &TableName| *name == (None, "t".to_owned());
        let fixed = |name: &TableName| is_known(name).then(|| vec!["a".to_owned(), "b".to_owned()]);
        let common = [("c".to_owned(), Some(vec!["x".to_owned()])), ("u".to_owned(), None)];
        ColumnSources { fixed: &fixed, common: &common }.of_query(&query(text))
    }

    #[test]
    fn columns_are_told_from_statements() {
        for (text, expected) in [
            ("select * from t", ["a", "b"].as_slice()),
            ("select a, 1 as \"B\", B as C from t", &["a", "B", "c"]),
            ("select * from t as r(x)", &["x", "b"]),
            ("select * from t, c", &["a", "b", "x"]),
            ("select r.* from t as r join c on true", &["a", "b"]),
            ("select * from (select b from t) s", &["b"]),
            ("select * from (select a, b from t) s(y)", &["y", "b"]),
            ("values (1, 2), (3, 4)", &["column1", "column2"]),
            ("select a from t union select x from c", &["a"]),
            ("select * from jsonb_each('{}')", &["key", "value"]),
            ("select * from t, json_each_text(a) e(k)", &["a", "b", "k", "value"]),
        ] {
            assert_eq!(columns(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn columns_that_depend_on_more_than_the_statement_are_not_told() {
        for text in [
            "select * from u",
            "select * from nobody",
            "select * from other.t",
            "select * from t join c using (a)",
            "select * from t natural join c",
            "select r.* from t",
            "with d as (select 1) select * from d",
        ] {
            assert_eq!(columns(text), None, "{text}");
        }
    }
}
