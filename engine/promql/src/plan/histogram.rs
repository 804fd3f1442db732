//! Plans `histogram_quantile` and related functions: determines which rows form a histogram.

use std::collections::HashMap;
use std::sync::Arc;

use quiver_types::go_format::float_text;
use quiver_types::{Result, SeriesTable};

use super::call::{argument, texts, with_label};
use super::invariant::unparen;
use super::labels::{concat, group};
use super::memory::Room;
use super::{Planner, Scope, VectorPlan, failed};
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
        let label = if kind == SpecialKind::HistogramQuantiles { texts(&args[1..2])?.pop() } else { None };
        if label.is_some_and(|label| label.shown().is_empty()) {
            return Err(failed("invalid label name \"\" in histogram_quantiles()"));
        }
        let vector_expr = unparen(argument(args, vector_arg)?);
        let vector = self.vector(vector_expr, scope).await?;
        let room = &self.room;
        let (mut params, mut inputs, mut positions) = (vec![], vec![], vec![]);
        let mut labels = QuantileLabels::default();
        for arg in &args[scalar_args] {
            let scalar = self.scalar(arg, scope).await?;
            if kind == SpecialKind::HistogramQuantiles {
                // The values become labels, so they must be known before rows are numbered.
                labels.add(&self.evaluate_scalar(&scalar).await?, room)?;
            }
            positions.push(unparen(arg).pos);
            params.push(Self::param(scalar, &mut inputs, 1));
        }
        let table = Arc::clone(&vector.table);
        let QuantileLabels { names, places } = labels;
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
        let node = StepHistogram { function, params, places, grid: scope.grid, groups, bad, table, pos, merges };
        let plan = self.node(node, [vec![self.finish(vector, scope)?], inputs].concat())?;
        let drop_name = Arc::new(vec![true; out.len()]);
        Ok(VectorPlan::of_floats(plan, out, drop_name))
    }
}

/// The labels that quantiles become. A quantile that changes between steps has several.
#[derive(Default)]
struct QuantileLabels {
    /// The labels of each quantile, one quantile after the other.
    names: Vec<String>,
    /// For each quantile, the place of its label in `names`: of all steps, or of each.
    places: Vec<Vec<u32>>,
}

impl QuantileLabels {
    /// Adds a quantile: its value of all steps, or of each.
    fn add(&mut self, values: &[f64], room: &Room) -> Result<()> {
        room.did(values.len())?;
        room.take_codes(values.len())?;
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut places = Vec::with_capacity(values.len());
        for value in values {
            let place = known.entry(value.to_bits()).or_insert_with(|| {
                self.names.push(open_metrics_float(*value));
                self.names.len() as u32 - 1
            });
            places.push(*place);
        }
        self.places.push(places);
        Ok(())
    }
}

/// Groups rows; returns the groups, the rows whose `le` is not a number, and the labels of the groups.
fn groups(room: &Room, table: &SeriesTable) -> Result<(Vec<HistogramGroup>, Vec<u32>, SeriesTable)> {
    // A native histogram belongs to the classic buckets whose labels without `le` equal its labels.
    let both = concat(room, [&table.keep(|n| n != "le"), table])?;
    let classes = group(room, &both, |_| true)?;
    // Buckets are in lists that have grown by doubling.
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

/// Parses an upper bound like Go's `ParseFloat`, for what occurs in labels: out-of-range numbers are rejected, and NaN
/// has no sign.
fn parse_bound(text: &str) -> Option<f64> {
    let bound: f64 = text.parse().ok()?;
    let has_digits = text.bytes().any(|b| b.is_ascii_digit());
    let is_read = bound.is_finite() || (!has_digits && (bound.is_infinite() || !text.starts_with(['+', '-'])));
    is_read.then_some(bound)
}

/// Formats a quantile as a label; integers get `.0` (`labels.FormatOpenMetricsFloat`).
fn open_metrics_float(v: f64) -> String {
    if v.is_nan() {
        return "NaN".to_owned();
    }
    if v.is_infinite() {
        return if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Adding 0 removes the sign of -0.
    let text = float_text(v + 0.0);
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

    #[test]
    fn bounds_as_go_reads_them() {
        let read = |text: &str| parse_bound(text).map(f64::to_bits);
        for (text, bound) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("+2", 2.0),
            ("-2.5e-3", -0.0025),
            ("1E3", 1000.0),
            ("1e-400", 0.0),
            ("1.7976931348623157e308", f64::MAX),
            ("Inf", f64::INFINITY),
            ("+inf", f64::INFINITY),
            ("Infinity", f64::INFINITY),
            ("-INF", f64::NEG_INFINITY),
        ] {
            assert_eq!(read(text), Some(bound.to_bits()), "{text}");
        }
        assert!(parse_bound("nan").is_some_and(f64::is_nan) && parse_bound("NaN").is_some_and(f64::is_nan));
        for text in ["", " ", "1 ", " 1", "1,5", "one", "1s", "e3", ".", "-", "++1", "1e400", "-1e400", "-nan", "+NaN"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn quantiles_as_labels() {
        for (q, label) in [
            (0.0, "0.0"),
            (-0.0, "0.0"),
            (1.0, "1.0"),
            (-2.0, "-2.0"),
            (0.99, "0.99"),
            (1e-9, "1e-09"),
            (1e21, "1e+21"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(open_metrics_float(q), label);
        }
    }

    #[test]
    fn a_quantile_that_changes_has_several_labels() {
        let mut labels = QuantileLabels::default();
        labels.add(&[0.5], &Room::unbounded()).unwrap();
        labels.add(&[0.9, 0.5, 0.9, 1.0], &Room::unbounded()).unwrap();
        assert_eq!(labels.names, ["0.5", "0.9", "0.5", "1.0"]);
        assert_eq!(labels.places, [vec![0], vec![1, 2, 1, 3]]);
    }

    #[test]
    fn a_series_of_its_own_bounds_is_no_other() {
        let mut b = SeriesTableBuilder::default();
        // Bounds that are equal as numbers are two buckets; those of another metric are another histogram.
        b.push([("__name__", "m_bucket"), ("le", "1")]);
        b.push([("__name__", "m_bucket"), ("le", "1.0")]);
        b.push([("__name__", "n_bucket"), ("le", "1")]);
        b.push([("__name__", "m_bucket"), ("le", "-Inf")]);
        let (groups, bad, out) = groups(&Room::unbounded(), &b.finish()).unwrap();
        assert_eq!(bad, Vec::<u32>::new());
        assert_eq!(groups[0].classic, [(3, f64::NEG_INFINITY), (0, 1.0), (1, 1.0)]);
        assert_eq!(groups[1].classic, [(2, 1.0)]);
        assert_eq!((out.metric(0), out.metric(1)), ("m_bucket", "n_bucket"));
        // A row with `le` is a native histogram with that label, too, whatever it means.
        assert_eq!(groups.iter().filter_map(|g| g.native).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
}
