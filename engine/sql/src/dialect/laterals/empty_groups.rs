//! Aggregates over all rows of a correlated subquery: they give a row even where an outer row matches none. The rows
//! are aggregated below, and outer rows without matches get the aggregates' values of no rows above.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, GroupByExpr, Ident, Query, Select, SelectItem, VisitorMut};

use super::super::empty_queries::{self, IsAggregate};
use super::super::expressions::{arguments, bare, call, expr, is_bare_function, number};
use super::KEYS;
use crate::names::{Names, normal};
use crate::statement_walk::walk_mut;

/// The name of the table of aggregated rows.
pub(super) const GROUPED: &str = "grouped";
/// The aggregate that tells whether there were rows.
const THERE: &str = "count(*)";

/// How many rows (groups) a select returns if it reads none.
pub(super) fn groups_of_nothing(select: &Select, is_aggregate: IsAggregate<'_>) -> usize {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return 0 };
    if keys.is_empty() {
        return usize::from(select.having.is_some() || empty_queries::aggregates(select, is_aggregate));
    }
    let of_key = |key: &Expr| match key {
        Expr::Rollup(_) | Expr::Cube(_) => 1,
        Expr::GroupingSets(sets) => sets.iter().filter(|set| set.is_empty()).count(),
        key => usize::from(is_nothing(key)),
    };
    keys.iter().map(of_key).product()
}

/// Whether all rows of a select are one group.
pub(super) fn is_one_group(select: &Select, is_aggregate: IsAggregate<'_>) -> bool {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return false };
    keys.iter().all(is_nothing) && groups_of_nothing(select, is_aggregate) == 1
}

/// Whether a grouping key is the empty set `()`.
pub(super) fn is_nothing(key: &Expr) -> bool {
    matches!(key, Expr::Tuple(parts) if parts.is_empty())
}

/// A select that is split into aggregation and outputs.
pub(super) struct Parts {
    /// The columns of the aggregated rows.
    pub(super) gathered: Vec<String>,
    /// Their grouping keys.
    pub(super) groups: Vec<String>,
    /// The outputs computed from them, and the condition of `HAVING`.
    pub(super) outputs: Vec<SelectItem>,
    pub(super) having: Option<Expr>,
}

impl Parts {
    /// Splits a select that has `more` outputs; `None` if one of them reads something that is not aggregated.
    pub(super) fn of(select: &Select, more: &[SelectItem], is_aggregate: IsAggregate<'_>) -> Option<Self> {
        let (groups, keys) = groups_of(select)?;
        let mut above = Above { is_aggregate, keys, gathered: Vec::new(), replaced: 0 };
        let mut outputs = select.projection.iter().chain(more).cloned().collect::<Vec<_>>();
        for output in &mut outputs {
            match output {
                SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
                    *value = above.put(value)?;
                }
                _ => return None,
            }
        }
        let having = match &select.having {
            Some(condition) => Some(above.put(condition)?),
            None => None,
        };
        let column = |(value, at): (&String, usize)| format!("{value} AS \"{}\"", gathered(at));
        let gathered = above.gathered.iter().zip(1..).map(column).collect();
        Some(Self { gathered, groups, outputs, having })
    }
}

/// The grouping keys of a select as written and as expressions: names of outputs are replaced by the outputs.
fn groups_of(select: &Select) -> Option<(Vec<String>, Vec<Expr>)> {
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return None };
    let mut groups: Vec<Expr> = groups.iter().filter(|key| !is_nothing(key)).cloned().collect();
    let mut keys = Vec::new();
    for group in &mut groups {
        let parts: Vec<&mut Expr> = match group {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => sets.iter_mut().flatten().collect(),
            key => vec![key],
        };
        for part in parts {
            if let Some(value) = output_of(part, &select.projection) {
                *part = value.clone();
            }
            keys.push(part.clone());
        }
    }
    Some((groups.iter().map(ToString::to_string).collect(), keys))
}

/// The output that a key names; `None` if it is no name, or names a column, which takes precedence.
fn output_of<'s>(key: &Expr, outputs: &'s [SelectItem]) -> Option<&'s Expr> {
    let Expr::Identifier(name) = key else { return None };
    let name = normal(name);
    outputs.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if normal(alias) == name => {
            let mut read = Names::default();
            read.read(expr);
            let is_column = read.found.iter().any(|column| column.last() == Some(&name));
            (!is_column).then_some(expr)
        }
        _ => None,
    })
}

/// The name of the column of aggregated rows at an index.
fn gathered(at: usize) -> String {
    format!("gathered {at}")
}

/// The value of an aggregated expression where there are no rows.
#[derive(Clone, Copy)]
enum OfNothing {
    Null,
    Number(i64),
}

/// Replaces aggregated expressions by columns of the aggregated rows.
struct Above<'a> {
    is_aggregate: IsAggregate<'a>,
    /// The grouping keys.
    keys: Vec<Expr>,
    gathered: Vec<String>,
    /// How many replacements were made in the visited value.
    replaced: usize,
}

impl Above<'_> {
    /// A value above. What is made of several parts is made where they are: what a quotient of sums is is read off these.
    fn put(&mut self, value: &Expr) -> Option<Expr> {
        let mut part = value.clone();
        self.replaced = 0;
        if walk_mut(&mut part, &mut *self).is_break() {
            return None;
        }
        if self.replaced == 0 || self.stands_for(value).is_some() {
            return Some(part);
        }
        let (there, whole) = (self.column(THERE.to_owned()), self.column(value.to_string()));
        expr(&format!("CASE WHEN {there} IS NULL THEN {part} ELSE {whole} END")).ok()
    }

    fn column(&mut self, written: String) -> Expr {
        let at = self.gathered.iter().position(|known| *known == written).unwrap_or(self.gathered.len());
        if at == self.gathered.len() {
            self.gathered.push(written);
        }
        Expr::CompoundIdentifier(
            [GROUPED.to_owned(), gathered(at + 1)].map(|word| Ident::with_quote('"', word)).to_vec(),
        )
    }

    /// The value of an expression of no rows; `None` if it is not aggregated.
    fn stands_for(&self, part: &Expr) -> Option<OfNothing> {
        if self.keys.iter().any(|key| is_same(key, part)) {
            return Some(OfNothing::Null);
        }
        match part {
            Expr::Function(call) if call.over.is_none() => of_nothing(call, self.is_aggregate),
            _ => None,
        }
    }
}

impl VisitorMut for Above<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        // It may read the rows.
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if let Some(of_nothing) = self.stands_for(place) {
            let column = self.column(place.to_string());
            self.replaced += 1;
            *place = match of_nothing {
                OfNothing::Null => column,
                OfNothing::Number(value) => call("coalesce", vec![column, number(value)]),
            };
            return ControlFlow::Continue(());
        }
        let is_known = match &*place {
            Expr::Identifier(name) => is_bare_function(name),
            Expr::CompoundIdentifier(names) => {
                names.first().is_some_and(|table| table.value == KEYS || table.value == GROUPED)
            }
            _ => true,
        };
        if is_known { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The value of an aggregate over no rows; `None` if it is another function.
fn of_nothing(call: &Function, is_aggregate: IsAggregate<'_>) -> Option<OfNothing> {
    let name = bare(&call.name)?;
    let is_within = !call.within_group.is_empty();
    match name.as_str() {
        "grouping" => {
            let keys = u32::try_from(arguments(&call.args)?.len()).ok()?;
            Some(OfNothing::Number(1_i64.checked_shl(keys)?.checked_sub(1)?))
        }
        "rank" | "dense_rank" | "cume_dist" if is_within => Some(OfNothing::Number(1)),
        "percent_rank" if is_within => Some(OfNothing::Number(0)),
        name if !is_within && !is_aggregate(name) => None,
        name if name.starts_with("count") || matches!(name, "regr_count" | "approx_distinct") => {
            Some(OfNothing::Number(0))
        }
        _ => Some(OfNothing::Null),
    }
}

/// Whether an expression is a grouping key, where either may be qualified by its table.
pub(super) fn is_same(key: &Expr, part: &Expr) -> bool {
    match (key, part) {
        (Expr::Identifier(name), Expr::CompoundIdentifier(names))
        | (Expr::CompoundIdentifier(names), Expr::Identifier(name)) => {
            names.last().is_some_and(|last| normal(last) == normal(name))
        }
        _ => key == part,
    }
}
