//! Outputs that a select refers to by position (`GROUP BY 1`) or by name (`ORDER BY round(x, 1), round(x, 2)`). The
//! planner copies the output's expression each time: two thousand times `1` for a sum of six hundred values took a
//! gigabyte, and minutes.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByKind, Select, SelectItem, Value, Visitor,
};

use super::Many;
use crate::names::normal;
use crate::statement_walk::walk;

/// The most bytes of copied outputs. The first use in groups, and in an order, is free.
pub(super) const NAMED_AGAIN_MAX: usize = 64 << 10;
/// Bytes that an output counts in addition to its text.
const OUTPUT_BYTES: usize = 16;

/// The sizes and the names of outputs.
struct Outputs {
    bytes: Vec<usize>,
    names: HashMap<String, usize>,
}

impl Outputs {
    fn of(select: &Select) -> Self {
        let (mut bytes, mut names) = (Vec::with_capacity(select.projection.len()), HashMap::new());
        for (at, item) in select.projection.iter().enumerate() {
            bytes.push(match item {
                SelectItem::UnnamedExpr(expr) => expr.to_string().len() + OUTPUT_BYTES,
                SelectItem::ExprWithAlias { expr, alias } => {
                    names.insert(normal(alias), at);
                    expr.to_string().len() + OUTPUT_BYTES
                }
                _ => OUTPUT_BYTES,
            });
        }
        Self { bytes, names }
    }

    /// The index of the output whose position a key is.
    fn at(&self, key: &Expr) -> Option<usize> {
        let Expr::Value(value) = key else { return None };
        let Value::Number(place, _) = &value.value else { return None };
        let at = place.parse::<usize>().ok()?.checked_sub(1)?;
        (at < self.bytes.len()).then_some(at)
    }
}

/// Counts repeated references.
struct ReferenceCounter<'o> {
    outputs: &'o Outputs,
    met: HashSet<usize>,
    bytes: usize,
}

impl<'o> ReferenceCounter<'o> {
    fn new(outputs: &'o Outputs) -> Self {
        Self { outputs, met: HashSet::new(), bytes: 0 }
    }

    fn note(&mut self, at: usize) -> ControlFlow<Many> {
        if !self.met.insert(at) {
            self.bytes = self.bytes.saturating_add(self.outputs.bytes[at]);
        }
        if self.bytes > NAMED_AGAIN_MAX { ControlFlow::Break(Many::Outputs) } else { ControlFlow::Continue(()) }
    }

    fn key(&mut self, key: &Expr) -> ControlFlow<Many> {
        match self.outputs.at(key) {
            Some(at) => self.note(at),
            None => walk(key, self),
        }
    }
}

impl Visitor for ReferenceCounter<'_> {
    type Break = Many;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Many> {
        match expr {
            Expr::Identifier(name) => match self.outputs.names.get(&normal(name)) {
                Some(&at) => self.note(at),
                None => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses `GROUP BY`, `HAVING` and `DISTINCT ON` with too many references.
pub(super) fn in_groups(select: &Select) -> ControlFlow<Many> {
    let has_keys = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let has_conditions = select.having.is_some() || select.qualify.is_some();
    if !has_keys && !has_conditions && !matches!(select.distinct, Some(Distinct::On(_))) {
        return ControlFlow::Continue(());
    }
    let outputs = Outputs::of(select);
    let mut again = ReferenceCounter::new(&outputs);
    if let Some(Distinct::On(keys)) = &select.distinct {
        keys.iter().try_for_each(|key| again.key(key))?;
    }
    if let GroupByExpr::Expressions(keys, _) = &select.group_by {
        for key in keys {
            match key {
                Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                    sets.iter().flatten().try_for_each(|key| again.key(key))?;
                }
                key => again.key(key)?,
            }
        }
    }
    select.having.iter().chain(&select.qualify).try_for_each(|condition| walk(condition, &mut again))
}

/// Refuses an `ORDER BY` with too many references.
pub(super) fn in_order(select: &Select, order: Option<&OrderBy>) -> ControlFlow<Many> {
    let Some(OrderByKind::Expressions(keys)) = order.map(|order| &order.kind) else {
        return ControlFlow::Continue(());
    };
    let outputs = Outputs::of(select);
    let mut again = ReferenceCounter::new(&outputs);
    keys.iter().try_for_each(|key| again.key(&key.expr))
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::parse::parse_open;

    #[test]
    fn outputs_are_named_again_a_few_times() {
        let sum = vec!["value"; 600].join(" + ");
        let check = |rest: &dyn Fn(&str) -> String, name: &str, times: usize, is_read: bool| {
            let text = rest(&vec![name; times].join(", ")).replace("SUM", &sum);
            let read = parse_open(&text);
            assert_eq!(read.is_ok(), is_read, "{times} times {name}: {text:.200}");
            assert!(read.map_or_else(|e| e.kind == ErrorKind::LimitExceeded, |_| true));
        };
        let grouped = |names: &str| format!("select SUM x, count(*) from t group by {names}");
        let sets = |names: &str| format!("select SUM x, count(*) from t group by grouping sets (({names}), ())");
        let ordered = |names: &str| format!("select SUM x from t order by {names}");
        let distinct = |names: &str| format!("select distinct on ({names}) SUM from t");
        let having = |names: &str| format!("select SUM x from t group by 1 having greatest({names}) > 1");
        let all: [&dyn Fn(&str) -> String; 3] = [&grouped, &sets, &ordered];
        for rest in all {
            for name in ["1", "x", "round(X, 2)"] {
                check(rest, name, 10, true);
                check(rest, name, 50, false);
            }
        }
        check(&distinct, "1", 10, true);
        check(&distinct, "1", 50, false);
        check(&having, "x", 10, true);
        check(&having, "x", 50, false);
        // Short outputs may be repeated often, and long ones may appear once in groups and once in the order.
        check(&ordered, "y", 2000, true);
        let long =
            format!("select case when y in ({}) then 1 end x, count(*) from t", vec!["12345"; 20_000].join(", "));
        assert!(parse_open(&format!("{long} group by 1 order by x")).is_ok());
        assert!(parse_open(&format!("{long} group by 1, x")).is_err());
    }
}
