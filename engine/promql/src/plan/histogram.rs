//! `histogram_quantile` and its kin: which rows make a histogram.

use std::sync::Arc;

use quiver_types::go::float_text;
use quiver_types::{Result, SeriesTable};

use super::call::{argument, texts, with_label};
use super::invariant::unparen;
use super::labels::{concat, group};
use super::room::Room;
use super::{Planner, Scope, VectorPlan};
use crate::ast::{Expr, PosRange};
use crate::functions::SpecialKind;
use crate::nodes::histogram::{HistogramFunction, HistogramGroup, StepHistogram};

impl Planner {
    /// Plans one of the functions.
    pub(crate) async fn histogram(&self, kind: SpecialKind, args: &[Expr], scope: Scope) -> Result<VectorPlan> {
        let (vector_arg, scalar_args) = match kind {
            SpecialKind::HistogramQuantile => (1, 0..1),
            SpecialKind::HistogramFraction => (2, 0..2),
            _ => (0, 2..args.len()),
        };
        let vector_expr = unparen(argument(args, vector_arg)?);
        let vector = self.vector(vector_expr, scope).await?;
        let (mut params, mut inputs, mut positions, mut names) = (vec![], vec![], vec![], vec![]);
        for arg in &args[scalar_args] {
            let scalar = self.scalar(arg, scope).await?;
            if kind == SpecialKind::HistogramQuantiles {
                // The value becomes a label, so it has to be known before rows are numbered.
                let values = self.evaluate_scalar(&scalar).await?;
                names.push(open_metrics_float(values[0]));
            }
            positions.push(unparen(arg).pos);
            params.push(Self::param(scalar, &mut inputs, 1));
        }
        let label = if kind == SpecialKind::HistogramQuantiles { texts(&args[1..2])?.pop() } else { None };
        let (table, room) = (Arc::clone(&vector.table), &self.room);
        let (mut groups, bad, out) = groups(room, &table)?;
        let (out, merges) = match label {
            None => {
                groups.iter_mut().enumerate().for_each(|(i, g)| g.out = vec![i as u32]);
                (out, false)
            }
            Some(label) => {
                let each = names.iter().map(|n| with_label(room, &out, label.shown(), n));
                let all = concat(room, &each.collect::<Result<Vec<_>>>()?)?;
                let rows = group(room, &all, |_| true)?;
                room.take_codes(all.len())?;
                for (i, g) in groups.iter_mut().enumerate() {
                    room.did(names.len())?;
                    g.out = (0..names.len()).map(|q| rows.ids[q * out.len() + i]).collect();
                }
                (room.rows_of(&all, &rows.first)?, rows.merges())
            }
        };
        let function = if kind == SpecialKind::HistogramFraction {
            HistogramFunction::Fraction
        } else {
            HistogramFunction::Quantiles(positions)
        };
        let out = Arc::new(out);
        let pos: PosRange = vector_expr.pos;
        let node = StepHistogram { function, params, grid: scope.grid, groups, bad, table, pos, merges };
        let plan = self.node(node, [vec![self.finish(vector, scope)?], inputs].concat())?;
        let drop_name = Arc::new(vec![true; out.len()]);
        Ok(VectorPlan::new(plan, out, drop_name, false))
    }
}

/// Brings rows together; gives the groups, the rows with an `le` that is no number, and the labels of the groups.
fn groups(room: &Room, table: &SeriesTable) -> Result<(Vec<HistogramGroup>, Vec<u32>, SeriesTable)> {
    // A native histogram belongs to the classic buckets whose labels without `le` are just its labels.
    let both = concat(room, [&table.keep(|n| n != "le"), table])?;
    let classes = group(room, &both, |_| true)?;
    // A bucket takes its place in a list that has grown by doubling.
    room.take(classes.len() * size_of::<HistogramGroup>() + table.len() * 2 * size_of::<(u32, f64)>())?;
    let mut groups = vec![HistogramGroup::default(); classes.len()];
    let mut bad = Vec::new();
    let bounds: Vec<Option<f64>> =
        table.column("le").map_or_else(|| vec![None], |column| column.values.iter().map(|v| parse_bound(v)).collect());
    room.did(4 * table.len())?;
    for row in 0..table.len() {
        let code = table.column("le").map_or(0, |c| c.codes[row] as usize);
        match bounds[code] {
            Some(bound) => groups[classes.ids[row] as usize].classic.push((row as u32, bound)),
            None => bad.push(row as u32),
        }
        groups[classes.ids[table.len() + row] as usize].native = Some(row as u32);
    }
    for g in &mut groups {
        g.classic.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    let out = room.rows_of(&both, &classes.first)?;
    Ok((groups, bad, out))
}

/// Reads an upper bound as Go's `ParseFloat` does for what occurs in labels.
fn parse_bound(text: &str) -> Option<f64> {
    if text.is_empty() || text.ends_with(char::is_whitespace) { None } else { text.parse().ok() }
}

/// Writes a quantile as a label: a whole number gets `.0` (`labels.FormatOpenMetricsFloat`).
fn open_metrics_float(v: f64) -> String {
    if v.is_nan() {
        return "NaN".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = float_text(v);
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use quiver_types::series::SeriesTableBuilder;

    use super::*;

    #[test]
    fn classic_and_native_meet() {
        let mut b = SeriesTableBuilder::default();
        b.push([("__name__", "m"), ("le", "+Inf"), ("a", "1")]);
        b.push([("__name__", "m"), ("le", "0.5"), ("a", "1")]);
        b.push([("__name__", "m"), ("a", "1")]);
        b.push([("__name__", "m"), ("a", "2"), ("le", "x")]);
        let (groups, bad, out) = groups(&Room::unbounded(), &b.finish()).unwrap();
        assert_eq!(groups[0].classic, [(1, 0.5), (0, f64::INFINITY)]);
        assert_eq!((groups[0].native, bad), (Some(2), vec![2, 3]));
        assert_eq!(out.value(0, "a"), "1");
        assert_eq!(open_metrics_float(1.0), "1.0");
        assert_eq!(open_metrics_float(0.25), "0.25");
    }
}
