//! Resolves names in a SELECT from models: to a dimension, a measure, or neither.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr as Ast, Query, SelectItem, SelectItemQualifiedWildcardKind, VisitorMut};
use quiver_query::tables::TableEntry;
use quiver_query::tables::models::{ModelMember, Models, is_measure};
use quiver_types::suggestions::nearest;
use quiver_types::{Error, Result};

use super::members::{
    DIMENSION_MARK, MEASURE_MARK, bare_measure, dimension_of, is_measure_call, marked, measure_name, measure_of,
};
use crate::error::NO_COLUMN;
use crate::names::{normal, parts};

/// A model in a `FROM`.
pub(super) struct Relation<'c> {
    /// The name by which its columns are qualified.
    pub(super) alias: String,
    pub(super) entry: &'c TableEntry,
}

/// The columns that `*` stands for: listed dimensions. Measures, and dimensions from attributes, must be named.
pub(super) fn listed(entry: &TableEntry) -> impl Iterator<Item = &String> {
    entry.columns.fields().iter().filter(|field| !is_measure(field)).map(|field| field.name())
}

/// Whether an output is `*` or `alias.*`.
pub(super) fn is_all_of(item: &SelectItem, alias: &str) -> bool {
    match item {
        SelectItem::Wildcard(_) => true,
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            parts(name).pop().is_some_and(|last| last == alias)
        }
        _ => false,
    }
}

/// What a name refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemberReference {
    Dimension(ModelMember),
    Measure(ModelMember),
}

/// The models of a `FROM`.
pub(super) struct Columns<'c> {
    pub(super) relations: Vec<Relation<'c>>,
    pub(super) models: &'c dyn Models,
}

impl Columns<'_> {
    /// What a name refers to in one of the models.
    pub(super) fn of(&self, relation: &Relation<'_>, name: &str) -> Option<MemberReference> {
        let member = ModelMember { model: relation.entry.name.clone(), member: name.to_owned() };
        match relation.entry.columns.column_with_name(name) {
            Some((_, field)) if is_measure(field) => Some(MemberReference::Measure(member)),
            Some(_) => Some(MemberReference::Dimension(member)),
            None => self.models.finds(&relation.entry.name, name).then_some(MemberReference::Dimension(member)),
        }
    }

    /// What an expression refers to; `None` if it is no name, or refers to nothing here.
    ///
    /// # Errors
    ///
    /// Invalid: it is ambiguous, or names a member that its model does not have.
    pub(super) fn find(&self, expr: &Ast) -> Result<Option<MemberReference>> {
        match expr {
            Ast::Identifier(ident) => {
                let name = normal(ident);
                let mut found = self.relations.iter().filter_map(|r| Some((r, self.of(r, &name)?)));
                match (found.next(), found.next()) {
                    (Some((one, _)), Some((other, _))) => Err(Error::invalid(format!(
                        "`{name}` is a column of `{}` and of `{}`: write which one is meant",
                        one.alias, other.alias
                    ))),
                    (one, _) => Ok(one.map(|(_, meaning)| meaning)),
                }
            }
            Ast::CompoundIdentifier(idents) => {
                let [.., alias, column] = idents.as_slice() else { return Ok(None) };
                let (alias, column) = (normal(alias), normal(column));
                let Some(relation) = self.relations.iter().find(|r| r.alias == alias) else { return Ok(None) };
                match self.of(relation, &column) {
                    Some(meaning) => Ok(Some(meaning)),
                    None => Err(self.unknown(&format!("{alias}.{column}"))),
                }
            }
            _ => Ok(None),
        }
    }

    /// The error for an unknown column, with suggestions.
    pub(super) fn unknown(&self, name: &str) -> Error {
        let bare = name.rsplit('.').next().unwrap_or(name);
        let known = self.relations.iter().flat_map(|r| r.entry.columns.fields().iter().map(|f| f.name().as_str()));
        let meant = nearest(bare, known).map_or_else(String::new, |name| format!("; did you mean `\"{name}\"`?"));
        Error::invalid(format!("{NO_COLUMN} `{name}`{meant}"))
    }
}

/// Replaces names of members by marks, outside of subqueries.
pub(super) struct Marker<'m> {
    pub(super) columns: &'m Columns<'m>,
    depth: usize,
    /// Whether a measure was found.
    pub(super) has_measures: bool,
    /// Whether a subquery was found.
    pub(super) has_subqueries: bool,
    /// Names that refer to nothing here.
    pub(super) unknown: Vec<String>,
}

impl<'m> Marker<'m> {
    pub(super) fn new(columns: &'m Columns<'m>) -> Self {
        Self { columns, depth: 0, has_measures: false, has_subqueries: false, unknown: Vec::new() }
    }

    fn put(&mut self, expr: &mut Ast) -> Result<()> {
        if dimension_of(expr).is_some() || measure_of(expr).is_some() {
            return Ok(());
        }
        if is_measure_call(expr)
            && let Ast::Function(call) = &*expr
        {
            let name = measure_name(call)?;
            match self.columns.find(name)? {
                Some(MemberReference::Measure(member)) => *expr = marked(MEASURE_MARK, &member),
                Some(MemberReference::Dimension(member)) => {
                    let text = format!("`{}` is a dimension of `{}`, no measure", member.member, member.model);
                    return Err(Error::invalid(text));
                }
                None => return Err(self.columns.unknown(&name_of(name).unwrap_or_default())),
            }
            self.has_measures = true;
            return Ok(());
        }
        match self.columns.find(expr)? {
            Some(MemberReference::Dimension(member)) => *expr = marked(DIMENSION_MARK, &member),
            Some(MemberReference::Measure(member)) => return Err(bare_measure(&member)),
            None => self.unknown.extend(name_of(expr)),
        }
        Ok(())
    }
}

/// The normalized name, if the expression is a name.
fn name_of(expr: &Ast) -> Option<String> {
    match expr {
        Ast::Identifier(ident) => Some(normal(ident)),
        Ast::CompoundIdentifier(idents) => Some(idents.iter().map(normal).collect::<Vec<_>>().join(".")),
        _ => None,
    }
}

impl VisitorMut for Marker<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth += 1;
        self.has_subqueries = true;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        self.put(expr).map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
    }
}
