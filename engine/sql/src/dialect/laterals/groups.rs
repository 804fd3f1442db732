//! Selects with groups whose subqueries read a group otherwise than by `=`, or an aggregate of it: `HAVING (SELECT max(r.w)
//! FROM r WHERE r.w < max(t.v)) > 5`. The groups become a table, and what the subqueries read its columns.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, TableWithJoins, Value, Visitor, VisitorMut,
};
use quiver_types::{Error, Result};

use super::super::columns::{called, factors};
use super::super::empty_queries::{self, IsAggregate};
use super::super::expressions::{bare, expr, is_bare_function};
use super::super::naming;
use super::empty_groups::is_same;
use super::outer_references::{reads_beside_columns, reads_deeper, reads_keys, reads_within};
use super::scalar_subqueries::is_key;
use super::{LateralContext, keys_of};
use crate::names::normal;
use crate::statement_walk::{counts_depth, walk, walk_mut};

/// The name of the table of groups.
const GROUPS: &str = "groups of rows";

/// Makes the groups of such a select a table.
pub(in super::super) fn translate(query: &mut Query, making: LateralContext<'_>) -> Result<()> {
    let Query { body, order_by, .. } = query;
    let SetExpr::Select(select) = &mut **body else { return Ok(()) };
    let tables: HashSet<String> = select.from.iter().flat_map(factors).filter_map(called).collect();
    if !asks(select, &tables, making) {
        return Ok(());
    }
    let Some(keys) = keys_of_groups(select) else { return Ok(()) };
    let mut groups = Groups { tables, keys, is_aggregate: making.is_aggregate, columns: Vec::new(), depth: 0 };
    // What cannot be a column of the groups is left to the planner, which says so.
    let Some((projection, having, order)) = groups.read(select, order_by.as_ref()) else { return Ok(()) };
    let Expr::Subquery(mut below) = expr("(SELECT 1)")? else { return Err(Error::internal("no subquery of ours")) };
    let mut gathered = select.clone();
    gathered.projection = groups.outputs();
    (gathered.having, gathered.distinct) = (None, None);
    if !groups.keys.is_empty() {
        gathered.group_by = GroupByExpr::Expressions(groups.keys, Vec::new());
    }
    *below.body = SetExpr::Select(gathered);
    let name = Ident::with_quote('"', GROUPS);
    let alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    let relation = TableFactor::Derived { lateral: false, subquery: below, alias, sample: None };
    select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    (select.projection, select.selection, select.having) = (projection, having, None);
    *order_by = order;
    Ok(())
}

/// Whether an output that is no grouping key, or the `HAVING`, has such a subquery outside of aggregates.
fn asks(select: &Select, tables: &HashSet<String>, making: LateralContext<'_>) -> bool {
    struct Asks<'a> {
        tables: &'a HashSet<String>,
        is_aggregate: IsAggregate<'a>,
        /// How many enclosing calls are aggregates.
        aggregates: usize,
        depth: usize,
    }
    impl Visitor for Asks<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            self.depth += 1;
            let is_one = self.depth == 1 && self.aggregates == 0;
            if is_one && is_read(query, self.tables, self.is_aggregate) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
            self.aggregates += usize::from(self.depth == 0 && is_gathered(part, self.is_aggregate));
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
            self.aggregates -= usize::from(self.depth == 0 && is_gathered(part, self.is_aggregate));
            ControlFlow::Continue(())
        }
    }
    let is_aggregate = making.is_aggregate;
    if empty_queries::is_ungrouped(select)
        && select.having.is_none()
        && !empty_queries::aggregates(select, is_aggregate)
    {
        return false;
    }
    let mut asks = Asks { tables, is_aggregate, aggregates: 0, depth: 0 };
    let outputs = (1..).zip(&select.projection).filter(|(at, item)| !is_key(*at, item, &select.group_by));
    let mut outputs = outputs.map(|(_, item)| item);
    outputs.any(|item| walk(item, &mut asks).is_break()) || walk(&select.having, &mut asks).is_break()
}

/// Whether a subquery reads a group in a way that the planner does not join by.
fn is_read(query: &Query, tables: &HashSet<String>, is_aggregate: IsAggregate<'_>) -> bool {
    let mut seen = query.clone();
    if keys_of(&mut seen, tables).is_none_or(|keys| keys.is_empty()) {
        return false;
    }
    let SetExpr::Select(select) = &*seen.body else { return true };
    reads_beside_columns(select.selection.as_ref())
        || empty_queries::has_aggregate(&select.selection, is_aggregate)
        || reads_keys(&select.projection)
        || reads_keys(&select.having)
        || reads_within(select)
        || reads_deeper(select)
}

fn is_gathered(part: &Expr, is_aggregate: IsAggregate<'_>) -> bool {
    let is_one = |call: &Function| {
        call.over.is_none()
            && (!call.within_group.is_empty() || bare(&call.name).is_some_and(|name| is_aggregate(&name)))
    };
    matches!(part, Expr::Function(call) if is_one(call))
}

/// The grouping keys of a select, with outputs that they name or count written out; `None` if they are others than
/// expressions.
fn keys_of_groups(select: &Select) -> Option<Vec<Expr>> {
    let GroupByExpr::Expressions(keys, sets) = &select.group_by else { return None };
    let is_plain = sets.is_empty() && select.named_window.is_empty() && select.qualify.is_none();
    if !is_plain || !matches!(select.distinct, None | Some(Distinct::All | Distinct::Distinct)) {
        return None;
    }
    let output = |at: &str| match select.projection.get(at.parse::<usize>().ok()?.checked_sub(1)?)? {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => Some(value.clone()),
        _ => None,
    };
    let named = |name: &Ident| {
        select.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if normal(alias) == normal(name) => Some(expr.clone()),
            _ => None,
        })
    };
    let written = |key: &Expr| match key {
        Expr::Value(value) => match &value.value {
            Value::Number(at, _) => output(at).filter(|key| !matches!(key, Expr::Value(_))),
            _ => None,
        },
        Expr::Tuple(_) | Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_) => None,
        // A column of that name would take precedence.
        Expr::Identifier(name) => match named(name) {
            Some(Expr::Identifier(own)) if normal(&own) == normal(name) => Some(key.clone()),
            Some(Expr::CompoundIdentifier(own)) if own.last().is_some_and(|own| normal(own) == normal(name)) => {
                Some(Expr::CompoundIdentifier(own))
            }
            Some(_) => None,
            None => Some(key.clone()),
        },
        other => Some(other.clone()),
    };
    keys.iter().map(written).collect()
}

/// What a select with groups becomes: its outputs, its `HAVING` and its order.
type Read = (Vec<SelectItem>, Option<Expr>, Option<OrderBy>);

/// Replaces grouping keys and aggregates by columns of the groups, within subqueries, too.
struct Groups<'g> {
    /// The names of the tables whose rows are grouped.
    tables: HashSet<String>,
    keys: Vec<Expr>,
    is_aggregate: IsAggregate<'g>,
    /// The keys and aggregates that are read.
    columns: Vec<Expr>,
    /// How many queries enclose the visited place.
    depth: usize,
}

impl Groups<'_> {
    /// The parts of a select as they read the groups; `None` if one of them reads something else.
    fn read(&mut self, select: &Select, order: Option<&OrderBy>) -> Option<Read> {
        let mut outputs = Vec::new();
        for item in &select.projection {
            let (mut value, alias) = match item {
                SelectItem::UnnamedExpr(value) => (value.clone(), naming::name(value)),
                SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), alias.clone()),
                _ => return None,
            };
            walk_mut(&mut value, &mut *self).is_continue().then_some(())?;
            outputs.push(SelectItem::ExprWithAlias { expr: value, alias });
        }
        naming::number(&mut outputs, naming::AGAIN, naming::OutputUse::Result);
        let mut having = select.having.clone();
        walk_mut(&mut having, &mut *self).is_continue().then_some(())?;
        let mut order = order.cloned();
        if let Some(order) = &mut order {
            let OrderByKind::Expressions(keys) = &mut order.kind else { return None };
            let is_output = |key: &Expr| match key {
                Expr::Value(_) => true,
                Expr::Identifier(name) => outputs.iter().any(|item| match item {
                    SelectItem::ExprWithAlias { alias, .. } => normal(alias) == normal(name),
                    _ => false,
                }),
                _ => false,
            };
            for key in keys.iter_mut().filter(|key| !is_output(&key.expr)) {
                walk_mut(&mut key.expr, &mut *self).is_continue().then_some(())?;
            }
        }
        (!self.columns.is_empty()).then_some((outputs, having, order))
    }

    /// The outputs of the query of the groups.
    fn outputs(&self) -> Vec<SelectItem> {
        let output = |(at, value): (usize, &Expr)| SelectItem::ExprWithAlias { expr: value.clone(), alias: column(at) };
        self.columns.iter().enumerate().map(output).collect()
    }

    /// Whether a part reads columns of the grouped tables, all of them qualified, and nothing else.
    fn is_of_tables(&self, part: &Expr) -> bool {
        struct OwnColumnsCheck<'o> {
            tables: &'o HashSet<String>,
            reads: bool,
        }
        impl Visitor for OwnColumnsCheck<'_> {
            type Break = ();

            fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
                ControlFlow::Break(())
            }

            fn pre_visit_expr(&mut self, part: &Expr) -> ControlFlow<()> {
                let is_own = match part {
                    Expr::CompoundIdentifier(names) => {
                        self.reads = true;
                        matches!(names.as_slice(), [.., table, _] if self.tables.contains(&normal(table)))
                    }
                    Expr::Identifier(_) => false,
                    _ => true,
                };
                if is_own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            }
        }
        let mut own = OwnColumnsCheck { tables: &self.tables, reads: false };
        walk(part, &mut own).is_continue() && own.reads
    }
}

/// The name of a column of the groups.
fn column(at: usize) -> Ident {
    Ident::with_quote('"', format!("group {}", at + 1))
}

impl VisitorMut for Groups<'_> {
    type Break = ();

    counts_depth!();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        // A table of a subquery hides the grouped one of that name.
        if called(factor).is_some_and(|name| self.tables.contains(&name)) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        let is_column = self.keys.iter().any(|key| is_same(key, place)) || is_gathered(place, self.is_aggregate);
        if is_column && (self.depth == 0 || self.is_of_tables(place)) {
            let at = self.columns.iter().position(|known| is_same(known, place)).unwrap_or(self.columns.len());
            let value =
                std::mem::replace(place, Expr::CompoundIdentifier(vec![Ident::with_quote('"', GROUPS), column(at)]));
            if at == self.columns.len() {
                self.columns.push(value);
            }
            return ControlFlow::Continue(());
        }
        let is_other = match &*place {
            Expr::Identifier(name) => self.depth == 0 && !is_bare_function(name),
            Expr::CompoundIdentifier(names) => {
                let is_of_group = names.first().is_some_and(|table| table.value == GROUPS);
                let is_own = matches!(names.as_slice(), [.., table, _] if self.tables.contains(&normal(table)));
                !is_of_group && (self.depth == 0 || is_own)
            }
            Expr::Function(call) => bare(&call.name).as_deref() == Some("grouping"),
            _ => false,
        };
        if is_other { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
