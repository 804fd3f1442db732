//! Aggregates of all rows that a row at hand has: they give a row also where there are none. So they are gathered below, and
//! above a row at hand without any has in their place what they are of nothing.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, GroupByExpr, Ident, Query, Select, SelectItem, VisitorMut};

use super::super::empty::{self, IsAggregate};
use super::super::expressions::{arguments, bare, call, expr, is_bare_function, number};
use super::KEYS;
use crate::names::{Names, normal};
use crate::walk::walk_mut;

/// What the gathered rows are called.
pub(super) const GROUPED: &str = "grouped";
/// What of them tells whether there are some.
const THERE: &str = "count(*)";

/// How many groups a select has where it reads no rows.
pub(super) fn groups_of_nothing(select: &Select, is_aggregate: IsAggregate<'_>) -> usize {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return 0 };
    if keys.is_empty() {
        return usize::from(select.having.is_some() || empty::aggregates(select, is_aggregate));
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

/// Whether a key of groups is `()`.
pub(super) fn is_nothing(key: &Expr) -> bool {
    matches!(key, Expr::Tuple(parts) if parts.is_empty())
}

/// A select in two parts.
pub(super) struct Parts {
    /// Columns of the gathered rows.
    pub(super) gathered: Vec<String>,
    /// What these are grouped by.
    pub(super) groups: Vec<String>,
    /// The outputs above them, and the condition of groups.
    pub(super) outputs: Vec<SelectItem>,
    pub(super) having: Option<Expr>,
}

impl Parts {
    /// Takes a select apart that has `more` outputs; none: one of them reads what is not gathered.
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

/// What a select is grouped by, and the keys of that. Names of outputs are what these are.
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

/// The output that a key names; none: it is no name, or that of a column, which goes before.
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

/// What a column of the gathered rows is called.
fn gathered(at: usize) -> String {
    format!("gathered {at}")
}

/// What is gathered of rows, where there are none.
#[derive(Clone, Copy)]
enum OfNothing {
    Null,
    Number(i64),
}

/// Puts columns of the gathered rows in the place of what is gathered.
struct Above<'a> {
    is_aggregate: IsAggregate<'a>,
    /// The keys of groups.
    keys: Vec<Expr>,
    gathered: Vec<String>,
    /// How many were put into the value that is visited.
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

    /// What a part is of nothing; none: it is not gathered.
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

/// What an aggregate is of no rows; none: it is another function.
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

/// Whether a part is a key of groups, of which one may have its table before it.
fn is_same(key: &Expr, part: &Expr) -> bool {
    match (key, part) {
        (Expr::Identifier(name), Expr::CompoundIdentifier(names))
        | (Expr::CompoundIdentifier(names), Expr::Identifier(name)) => {
            names.last().is_some_and(|last| normal(last) == normal(name))
        }
        _ => key == part,
    }
}
