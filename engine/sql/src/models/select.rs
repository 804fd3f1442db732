//! A SELECT from models alone, cut in two: what the compiler of models gives, and what is computed of that.
//!
//! With measures, rows are grouped: `GROUP BY` goes to the compiler, expressions of the SELECT speak of its columns, and
//! `HAVING` is a condition on these. Without, rows come one by one, and grouping stays where it is. Conditions on rows go to
//! the compiler either way, where ranges of time reach what models read.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr as Ast, GroupByExpr, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind,
    Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, Value, VisitorMut, WildcardAdditionalOptions,
};
use quiver_query::tables::TableEntry;
use quiver_query::tables::models::{ModelMember, OLAP_SCHEMA};
use quiver_types::{Error, ErrorKind, Result};

use super::columns::{Columns, Marker, Relation, is_all_of, listed};
use super::joined_models::{alias, factors};
use super::members::{DIMENSION_MARK, dimension_of, marked, measure_of, quoted, written};
use super::{ModelTableSpec, Walk};
use crate::dialect::{make_unique, output_name};
use crate::error::NO_TABLE;
use crate::names::{alias_of, normal, parts};
use crate::statement_walk::{counts_depth, walk_mut};

impl<'w> Walk<'w> {
    /// The model that a table of a `FROM` names.
    pub(super) fn model(&self, factor: &TableFactor) -> Option<&'w TableEntry> {
        let TableFactor::Table { name, args: None, .. } = factor else { return None };
        let named = crate::names::named(name)?;
        if named.0.is_none() && self.ctes.contains(&named.1) {
            return None;
        }
        self.finder.catalog.find(&named).filter(|entry| entry.schema == OLAP_SCHEMA)
    }

    /// Replaces the models of a SELECT by tables.
    pub(super) fn select(&mut self, select: &mut Select, order: Option<&mut OrderBy>) -> Result<()> {
        let (mut models, mut others) = (0, 0);
        factors(&select.from, &mut |factor| match self.model(factor) {
            Some(_) => models += 1,
            None => others += 1,
        });
        if models == 0 {
            return Ok(());
        }
        let crossed = |join: &JoinOperator| matches!(join, JoinOperator::CrossJoin(JoinConstraint::None));
        let is_plain = select.from.iter().all(|from| {
            let nested = std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation));
            from.joins.iter().all(|join| crossed(&join.join_operator))
                && nested.into_iter().all(|factor| !matches!(factor, TableFactor::NestedJoin { .. }))
        });
        if others > 0 || !is_plain {
            return self.replace_models_in_joins(select);
        }
        let mut relations: Vec<Relation<'w>> = Vec::new();
        let mut wrong = None;
        factors(&select.from, &mut |factor| {
            let Some(entry) = self.model(factor) else { return };
            if let Err(error) = bare(factor) {
                wrong = Some(error);
            }
            if relations.iter().any(|other| other.entry.name == entry.name) {
                let text = format!("model `{}` stands in a `FROM` once: nothing says how it joins itself", entry.name);
                wrong = Some(Error::invalid(text));
            }
            relations.push(Relation { alias: alias(factor), entry });
        });
        match wrong {
            Some(error) => Err(error),
            None => self.cut(select, order, relations),
        }
    }

    fn cut(
        &mut self,
        select: &mut Select,
        mut order: Option<&mut OrderBy>,
        relations: Vec<Relation<'w>>,
    ) -> Result<()> {
        let models: Vec<String> = relations.iter().map(|relation| relation.entry.name.clone()).collect();
        let columns = Columns { relations, models: self.finder.models };
        let (mut from, selection) = (std::mem::take(&mut select.from), select.selection.take());
        let group_by = std::mem::replace(&mut select.group_by, GroupByExpr::Expressions(Vec::new(), Vec::new()));
        let has_wildcard = name_outputs(select, &columns)?;
        let outputs: Vec<String> = select.projection.iter().filter_map(alias_of).collect();
        let mut marker = Marker::new(&columns);
        broken(walk_mut(select, &mut marker))?;
        for key in keys(order.as_deref_mut()) {
            // A bare name refers to an output first, then to a column.
            if !matches!(key, Ast::Identifier(ident) if outputs.contains(&normal(ident))) {
                broken(walk_mut(key, &mut marker))?;
            }
        }
        let is_grouped = marker.has_measures;
        if is_grouped && has_wildcard {
            return Err(Error::invalid("`*` stands beside `MEASURE`: write the dimensions that rows are grouped by"));
        }
        let mut reads = Reads { asked: ModelTableSpec { table: self.next(), models, ..ModelTableSpec::default() } };
        let mut kept = Vec::new();
        for condition in selection.into_iter().flat_map(conjuncts) {
            let (condition, goes) = self.condition(condition, &columns, is_grouped)?;
            if goes { reads.asked.filters.push(condition) } else { kept.push(condition) }
        }
        let mut groups = None;
        if is_grouped {
            let mut found = Vec::new();
            for group in self.groups(group_by, select, &columns)? {
                let place = reads.group(&group);
                found.push((group, place));
            }
            groups = Some(found);
            with_outputs(select)?;
            kept.extend(select.having.take());
        } else {
            select.group_by = group_by;
            broken(walk_mut(&mut select.group_by, &mut Marker::new(&columns)))?;
        }
        select.selection = kept.into_iter().reduce(and);
        let mut placer = Placer { reads: &mut reads, groups, aggregates: self.finder.aggregates, depth: 0 };
        broken(walk_mut(select, &mut placer))?;
        for key in keys(order.as_deref_mut()) {
            broken(walk_mut(key, &mut placer))?;
        }
        orders_by_outputs(select, order);
        from.truncate(1);
        if let Some(first) = from.first_mut() {
            first.joins.clear();
            if let TableFactor::Table { name, alias, .. } = &mut first.relation {
                (*name, *alias) = (ObjectName::from(vec![quoted(OLAP_SCHEMA), quoted(&reads.asked.table)]), None);
            }
        }
        select.from = from;
        self.found.push(reads.asked);
        Ok(())
    }

    /// Resolves a condition of the `WHERE`; returns whether the compiler of models can apply it.
    fn condition(&self, mut condition: Ast, columns: &Columns<'_>, is_grouped: bool) -> Result<(Ast, bool)> {
        let mut marker = Marker::new(columns);
        broken(walk_mut(&mut condition, &mut marker))?;
        if marker.has_measures {
            return Err(Error::invalid("`MEASURE` is a value of a group: its condition stands in `HAVING`"));
        }
        broken(walk_mut(&mut condition, &mut NoCalls { aggregates: self.finder.aggregates, depth: 0 }))?;
        match (marker.unknown.first(), marker.has_subqueries, is_grouped) {
            (None, false, _) => Ok((condition, true)),
            (_, true, true) => {
                let text = "a subquery in the `WHERE` of a SELECT with `MEASURE` is not supported: join rows of the \
                            model with it, or list its values";
                Err(Error::new(ErrorKind::Unsupported, text))
            }
            (Some(name), _, true) => Err(columns.unknown(name)),
            _ => Ok((condition, false)),
        }
    }

    /// The grouping keys.
    fn groups(&self, group_by: GroupByExpr, select: &Select, columns: &Columns<'_>) -> Result<Vec<Ast>> {
        let value = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr) => Some(expr.clone()),
            _ => None,
        };
        let (given, modifiers) = match group_by {
            GroupByExpr::Expressions(given, modifiers) => (given, modifiers),
            GroupByExpr::All(modifiers) => {
                let mut all: Vec<Ast> = select.projection.iter().filter_map(value).collect();
                all.retain_mut(|expr| !has_measure(expr));
                (all, modifiers)
            }
        };
        let unsupported = |what: &str| {
            let text = format!("`{what}` beside `MEASURE` is not supported: a measure of a total is none of its parts");
            Err(Error::new(ErrorKind::Unsupported, text))
        };
        if let Some(modifier) = modifiers.first() {
            return unsupported(&modifier.to_string());
        }
        let mut groups: Vec<Ast> = Vec::new();
        for group in given {
            let mut group = unnested(group);
            if let Ast::GroupingSets(_) | Ast::Cube(_) | Ast::Rollup(_) | Ast::Tuple(_) = &group {
                return unsupported(&group.to_string());
            }
            if let Some(at) = ordinal(&group) {
                let item = at.checked_sub(1).and_then(|at| select.projection.get(at)).and_then(value);
                let missing = || Error::invalid(format!("`GROUP BY {at}`: the SELECT has no column of that number"));
                group = unnested(item.ok_or_else(missing)?);
            }
            let mut marker = Marker::new(columns);
            broken(walk_mut(&mut group, &mut marker))?;
            if let (Ast::Identifier(name), Some(unknown)) = (&group, marker.unknown.first()) {
                let named = select.projection.iter().find(|item| alias_of(item).as_deref() == Some(&*normal(name)));
                let item = named.and_then(value).ok_or_else(|| columns.unknown(unknown))?;
                group = unnested(item);
            } else if let Some(unknown) = marker.unknown.first() {
                return Err(columns.unknown(unknown));
            }
            if marker.has_subqueries {
                return unsupported("GROUP BY (SELECT …)");
            }
            if has_measure(&mut group) {
                return Err(Error::invalid("rows are grouped by dimensions, not by measures"));
            }
            broken(walk_mut(&mut group, &mut NoCalls { aggregates: self.finder.aggregates, depth: 0 }))?;
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        Ok(groups)
    }
}

/// Refuses clauses that a model in a `FROM` cannot have.
fn bare(factor: &TableFactor) -> Result<()> {
    let TableFactor::Table {
        name,
        alias,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
        ..
    } = factor
    else {
        return Ok(());
    };
    let renames = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
    let is_bare = with_hints.is_empty()
        && version.is_none()
        && !with_ordinality
        && partitions.is_empty()
        && json_path.is_none()
        && sample.is_none()
        && index_hints.is_empty();
    if is_bare && !renames {
        return Ok(());
    }
    Err(Error::invalid(format!("`{factor}`: model `{name}` stands in a `FROM` with an alias at most")))
}

fn broken(flow: ControlFlow<Box<Error>>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The sort keys.
fn keys(order: Option<&mut OrderBy>) -> impl Iterator<Item = &mut Ast> {
    let keys = order.map(|order| match &mut order.kind {
        OrderByKind::Expressions(keys) => keys.as_mut_slice(),
        OrderByKind::All(_) => &mut [],
    });
    keys.into_iter().flatten().map(|key| &mut key.expr)
}

fn and(left: Ast, right: Ast) -> Ast {
    // Parentheses keep each operand together.
    let nested = |expr| Box::new(Ast::Nested(Box::new(expr)));
    Ast::BinaryOp { left: nested(left), op: BinaryOperator::And, right: nested(right) }
}

fn unnested(expr: Ast) -> Ast {
    match expr {
        Ast::Nested(inner) => unnested(*inner),
        other => other,
    }
}

/// Splits a condition at its `AND`s.
fn conjuncts(expr: Ast) -> Vec<Ast> {
    match unnested(expr) {
        Ast::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut all = conjuncts(*left);
            all.extend(conjuncts(*right));
            all
        }
        one => vec![one],
    }
}

fn ordinal(expr: &Ast) -> Option<usize> {
    match expr {
        Ast::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Names each output, because its expression is about to be replaced, and expands `*` to the listed dimensions.
/// Returns whether there was a `*`.
fn name_outputs(select: &mut Select, columns: &Columns<'_>) -> Result<bool> {
    let mut items = Vec::new();
    let mut has_wildcard = false;
    for item in std::mem::take(&mut select.projection) {
        let (SelectItem::Wildcard(options)
        | SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), options)) = &item
        else {
            items.push(match item {
                SelectItem::UnnamedExpr(expr) => SelectItem::ExprWithAlias { alias: output_name(&expr), expr },
                other => other,
            });
            continue;
        };
        if *options != WildcardAdditionalOptions::default() {
            let text = format!("`{item}` of a model is not supported: write the columns that are wanted");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = &item
            && !columns.relations.iter().any(|relation| is_all_of(&item, &relation.alias))
        {
            return Err(Error::invalid(format!("{NO_TABLE} `{name}` in this `FROM`")));
        }
        for relation in columns.relations.iter().filter(|relation| is_all_of(&item, &relation.alias)) {
            items.extend(listed(relation.entry).map(|name| {
                let member = ModelMember { model: relation.entry.name.clone(), member: name.clone() };
                SelectItem::ExprWithAlias { expr: marked(DIMENSION_MARK, &member), alias: quoted(name) }
            }));
        }
        has_wildcard = true;
    }
    make_unique(&mut items);
    select.projection = items;
    Ok(has_wildcard)
}

/// Replaces names of outputs in a `HAVING` by the outputs, since it becomes a condition below them.
fn with_outputs(select: &mut Select) -> Result<()> {
    struct Names<'n>(&'n [SelectItem]);
    impl VisitorMut for Names<'_> {
        type Break = Box<Error>;

        fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<Self::Break> {
            if let Ast::Identifier(ident) = &*expr
                && let name = normal(ident)
                && let Some(SelectItem::ExprWithAlias { expr: value, .. }) =
                    self.0.iter().find(|item| alias_of(item).as_ref() == Some(&name))
            {
                *expr = Ast::Nested(Box::new(value.clone()));
            }
            ControlFlow::Continue(())
        }
    }
    match &mut select.having {
        Some(having) => broken(walk_mut(having, &mut Names(&select.projection))),
        None => Ok(()),
    }
}

/// With `DISTINCT`, sort keys that equal outputs refer to them by name: there are no other columns.
fn orders_by_outputs(select: &Select, order: Option<&mut OrderBy>) {
    if matches!(select.distinct, Some(Distinct::On(_))) {
        return;
    }
    for key in keys(order) {
        let same = select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => (*expr == *key).then(|| alias.clone()),
            _ => None,
        });
        if let Some(alias) = same {
            *key = Ast::Identifier(alias);
        }
    }
}

fn has_measure(expr: &mut Ast) -> bool {
    struct MeasureFinder;
    impl VisitorMut for MeasureFinder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
            if measure_of(expr).is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk_mut(expr, &mut MeasureFinder).is_break()
}

/// Refuses aggregates and window functions where a value of a single row is needed.
struct NoCalls<'n> {
    aggregates: &'n dyn Fn(&str) -> bool,
    depth: usize,
}

impl VisitorMut for NoCalls<'_> {
    type Break = Box<Error>;

    counts_depth!();

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<Self::Break> {
        match expr {
            Ast::Function(call) if self.depth == 0 && (call.over.is_some() || is_aggregate(call, self.aggregates)) => {
                let text = format!("`{call}` is computed over several rows, where a value of one row is wanted");
                ControlFlow::Break(Box::new(Error::invalid(text)))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_aggregate(call: &datafusion::sql::sqlparser::ast::Function, aggregates: &dyn Fn(&str) -> bool) -> bool {
    parts(&call.name).last().is_some_and(|name| aggregates(name))
}

/// The columns that a SELECT reads of its table.
struct Reads {
    asked: ModelTableSpec,
}

impl Reads {
    fn place(&self, name: &str) -> Ast {
        Ast::CompoundIdentifier(vec![quoted(&self.asked.table), quoted(name)])
    }

    /// A unique column name for a member: its own, if that is free.
    fn free(&self, member: &ModelMember) -> String {
        let columns = self.asked.columns.iter().map(|(name, _)| name);
        let mut taken = columns.chain(self.asked.measures.iter().map(|(name, _)| name));
        if taken.any(|name| *name == member.member) {
            return format!("{}.{}", member.model, member.member);
        }
        member.member.clone()
    }

    fn group(&mut self, expr: &Ast) -> Ast {
        if let Some(member) = dimension_of(expr) {
            self.dimension(&member)
        } else {
            let name = format!("__group_{}", self.asked.columns.len());
            self.asked.columns.push((name.clone(), expr.clone()));
            self.place(&name)
        }
    }

    fn dimension(&mut self, member: &ModelMember) -> Ast {
        let mark = marked(DIMENSION_MARK, member);
        if let Some((name, _)) = self.asked.columns.iter().find(|(_, expr)| *expr == mark) {
            return self.place(name);
        }
        let name = self.free(member);
        self.asked.columns.push((name.clone(), mark));
        self.place(&name)
    }

    fn measure(&mut self, member: &ModelMember) -> Ast {
        if let Some((name, _)) = self.asked.measures.iter().find(|(_, known)| known == member) {
            return self.place(name);
        }
        let name = self.free(member);
        self.asked.measures.push((name.clone(), member.clone()));
        self.place(&name)
    }
}

/// Replaces groups, measures and dimensions by columns of the table.
struct Placer<'p> {
    reads: &'p mut Reads,
    /// Groups with their columns; `None` if rows are not grouped.
    groups: Option<Vec<(Ast, Ast)>>,
    aggregates: &'p dyn Fn(&str) -> bool,
    depth: usize,
}

impl Placer<'_> {
    fn put(&mut self, expr: &mut Ast) -> Result<()> {
        if let Some((_, place)) = self.groups.iter().flatten().find(|(group, _)| group == expr) {
            *expr = place.clone();
        } else if let Some(member) = measure_of(expr) {
            *expr = self.reads.measure(&member);
        } else if let Some(member) = dimension_of(expr) {
            if self.groups.is_some() {
                let text = format!("`{}` stands beside `MEASURE` and must be in `GROUP BY`", member.member);
                return Err(Error::invalid(text));
            }
            *expr = self.reads.dimension(&member);
        } else if let Ast::Function(call) = &*expr
            && self.groups.is_some()
            && call.over.is_none()
            && is_aggregate(call, self.aggregates)
        {
            let text = "stands beside `MEASURE`: rows are grouped by the models, and counted by measures alone";
            return Err(Error::invalid(format!("`{}` {text}", written(call))));
        }
        Ok(())
    }
}

impl VisitorMut for Placer<'_> {
    type Break = Box<Error>;

    counts_depth!();

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<Self::Break> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        self.put(expr).map_or_else(|error| ControlFlow::Break(Box::new(error)), ControlFlow::Continue)
    }
}
