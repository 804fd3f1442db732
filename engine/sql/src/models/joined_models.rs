//! Models that are used with other tables in a `FROM`, or joined by conditions of the statement: each becomes a table
//! of its rows, with the dimensions that the statement uses.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr as Ast, Ident, ObjectName, Select, TableFactor, TableWithJoins, VisitorMut,
};
use quiver_query::tables::models::{ModelMember, OLAP_SCHEMA};
use quiver_types::{Error, Result};

use super::columns::{Columns, MemberReference, Relation, is_all_of, listed};
use super::members::{DIMENSION_MARK, bare_measure, is_measure_call, marked, quoted};
use super::{ModelTableSpec, Walk};
use crate::names::normal;
use crate::statement_walk::{counts_depth, walk_mut};

impl Walk<'_> {
    /// Replaces the models of a SELECT by tables of rows.
    pub(super) fn replace_models_in_joins(&mut self, select: &mut Select) -> Result<()> {
        let mut from = std::mem::take(&mut select.from);
        let mut relations = Vec::new();
        factors(&from, &mut |factor| {
            if let Some(entry) = self.model(factor) {
                relations.push(Relation { alias: alias(factor), entry });
            }
        });
        let columns = Columns { relations, models: self.finder.models };
        let mut own = Vec::new();
        factors(&from, &mut |factor| own.extend(self.fixed(factor)));
        let mut check = Check { columns: &columns, others: &own, depth: 0 };
        let checked = walk_mut(select, &mut check);
        let checked = if checked.is_continue() { walk_mut(&mut from, &mut check) } else { checked };
        if let ControlFlow::Break(error) = checked {
            return Err(*error);
        }
        let mut done = Ok(());
        factors_mut(&mut from, &mut |factor| {
            if done.is_ok() {
                let shown = alias(factor);
                done = self.replace_by_rows(factor, select.projection.iter().any(|item| is_all_of(item, &shown)));
            }
        });
        select.from = from;
        done
    }

    /// Replaces a model by a table of rows; with `has_all`, it has all listed dimensions.
    fn replace_by_rows(&mut self, factor: &mut TableFactor, has_all: bool) -> Result<()> {
        let Some(entry) = self.model(factor) else { return Ok(()) };
        let shown = alias(factor);
        let listed = listed(entry).cloned();
        let mut names: Vec<String> = listed.filter(|name| has_all || self.spoken.contains(name)).collect();
        let more = self.spoken.iter().filter(|name| entry.columns.column_with_name(name).is_none());
        names.extend(more.filter(|name| self.finder.models.finds(&entry.name, name)).cloned());
        let model = entry.name.clone();
        let dimension =
            |name: &String| marked(DIMENSION_MARK, &ModelMember { model: model.clone(), member: name.clone() });
        let columns = names.iter().map(|name| (name.clone(), dimension(name))).collect();
        let table = self.next();
        let TableFactor::Table { name, alias, .. } = factor else { return Ok(()) };
        if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
            return Err(Error::invalid(format!("columns of model `{model}` keep their names: give it an alias alone")));
        }
        *name = ObjectName::from(vec![quoted(OLAP_SCHEMA), quoted(&table)]);
        if alias.is_none() {
            *alias = Some(named(quoted(&shown)));
        }
        self.found.push(ModelTableSpec { table, models: vec![model], columns, ..ModelTableSpec::default() });
        Ok(())
    }

    /// Fixed columns of another table of the `FROM`.
    fn fixed(&self, factor: &TableFactor) -> Vec<String> {
        match factor {
            TableFactor::Table { name, args: None, .. } if self.model(factor).is_none() => {
                crate::names::named(name).and_then(|named| self.finder.catalog.fixed(&named)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}

/// An alias of a table.
fn named(name: Ident) -> datafusion::sql::sqlparser::ast::TableAlias {
    datafusion::sql::sqlparser::ast::TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// The name by which columns of a table are qualified.
pub(super) fn alias(factor: &TableFactor) -> String {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } => normal(&alias.name),
        TableFactor::Table { name, .. } => crate::names::parts(name).pop().unwrap_or_default(),
        _ => String::new(),
    }
}

/// Visits the tables of a `FROM`, also those within parentheses.
pub(super) fn factors<'f>(from: &'f [TableWithJoins], each: &mut dyn FnMut(&'f TableFactor)) {
    for TableWithJoins { relation, joins } in from {
        for factor in std::iter::once(relation).chain(joins.iter().map(|join| &join.relation)) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    factors(std::slice::from_ref(&**table_with_joins), each);
                }
                other => each(other),
            }
        }
    }
}

fn factors_mut(from: &mut [TableWithJoins], each: &mut dyn FnMut(&mut TableFactor)) {
    for TableWithJoins { relation, joins } in from {
        for factor in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    factors_mut(std::slice::from_mut(&mut **table_with_joins), each);
                }
                other => each(other),
            }
        }
    }
}

/// Refuses measures, which single rows do not have.
struct Check<'c> {
    columns: &'c Columns<'c>,
    /// Columns of the other tables.
    others: &'c [String],
    depth: usize,
}

impl VisitorMut for Check<'_> {
    type Break = Box<Error>;

    counts_depth!();

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let refused = |error| ControlFlow::Break(Box::new(error));
        if is_measure_call(expr) {
            let text = "`MEASURE` stands in a SELECT from models alone, several of them joined by `CROSS JOIN` as they \
                        say themselves: put it into a subquery, and join that";
            return refused(Error::invalid(text));
        }
        let found = match expr {
            Ast::CompoundIdentifier(_) => self.columns.find(expr),
            // A name of another table's column belongs to that table; the planner reports ambiguous ones.
            Ast::Identifier(ident) if !self.others.contains(&normal(ident)) => {
                Ok(self.columns.find(expr).ok().flatten())
            }
            _ => Ok(None),
        };
        match found {
            Err(error) => refused(error),
            Ok(Some(MemberReference::Measure(member))) => refused(bare_measure(&member)),
            Ok(_) => ControlFlow::Continue(()),
        }
    }
}
