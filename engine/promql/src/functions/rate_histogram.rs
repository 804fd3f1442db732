//! Increase of native histograms in a range.
//!
//! Source: Prometheus 3.14 `promql/functions.go: histogramRate`. Which histograms follow a reset is determined once per
//! series.

use quiver_types::{Histogram, Millis, ResetHint};

use super::annotations::{Note, Notes};
use super::growth::{Edges, Growth, is_start_reset, overlaps_before};
use crate::histogram::{self, detect_reset, uses_custom_buckets};
use crate::kernel::SeriesSamples;
use crate::window::Cursor;

/// The histograms of a series, with the resets among them.
pub(super) struct HistogramRates<'a> {
    hists: &'a [Histogram],
    starts: &'a [Millis],
    is_counter: bool,
    /// Indexes of histograms that follow a reset.
    resets: Vec<u32>,
    overlaps: Vec<u32>,
}

impl<'a> HistogramRates<'a> {
    pub(super) fn new(s: &SeriesSamples<'a>, growth: Growth) -> Self {
        let starts = if growth.is_counter { s.hist_start_ts } else { &[] };
        let (mut resets, mut overlaps) = (Vec::new(), Vec::new());
        if growth.is_counter {
            for i in 1..s.hists.len() {
                let times = (i < starts.len()).then(|| ((starts[i - 1], s.hist_ts[i - 1]), (starts[i], s.hist_ts[i])));
                let by_start = times.is_some_and(|(before, now)| is_start_reset(before, now));
                if by_start || detect_reset(&s.hists[i], &s.hists[i - 1]) {
                    resets.push(i as u32);
                }
                if times.is_some_and(|(before, now)| overlaps_before(before, now.0)) {
                    overlaps.push(i as u32);
                }
            }
        }
        Self { hists: s.hists, starts, is_counter: growth.is_counter, resets, overlaps }
    }

    /// The increase between the samples, and the factor for extrapolation.
    pub(super) fn get(&self, w: Cursor, edges: &Edges, notes: &mut Notes) -> Option<(Histogram, f64)> {
        let first = &self.hists[w.lo];
        let growth = if w.len() > 1 { Some(self.growth(w, notes)?) } else { None };
        let started = self.starts.get(w.lo).copied().filter(|&t| edges.starts_inside(t));
        let growth = match (growth, started) {
            (None, None) => return None,
            (None, Some(_)) => first.clone(),
            (Some(growth), None) => growth,
            (Some(mut growth), Some(_)) => {
                histogram::add_noting(&mut growth, first, notes)?;
                growth
            }
        };
        let may_shorten = self.is_counter && growth.count > 0.0 && first.count >= 0.0;
        let ratio = may_shorten.then(|| first.count / growth.count);
        Some((growth, edges.factor(started, ratio)))
    }

    fn growth(&self, w: Cursor, notes: &mut Notes) -> Option<Histogram> {
        let (first, last) = (&self.hists[w.lo], &self.hists[w.hi - 1]);
        let mut seen = Notes::default();
        let resets = inside(&self.resets, w);
        let is_gauge = |h: &Histogram| h.reset_hint == ResetHint::Gauge;
        // If the second histogram follows a reset, the buckets of the first do not matter, not even whether they are
        // compatible.
        let nothing = (resets.first() == Some(&(w.lo as u32 + 1))).then(|| {
            let second = &self.hists[w.lo + 1];
            Histogram { schema: second.schema, custom_bounds: second.custom_bounds.clone(), ..Histogram::default() }
        });
        let base = nothing.as_ref().unwrap_or(first);
        let custom = uses_custom_buckets(base);
        if self.is_counter && (is_gauge(first) || is_gauge(last)) {
            seen.set(Note::NotCounter);
        }
        if uses_custom_buckets(last) != custom {
            seen.set(Note::MixedExponentialCustom);
            notes.merge(seen);
            return None;
        }
        let mut schema = last.schema.min(base.schema);
        if self.is_counter {
            for h in &self.hists[w.lo + 1..w.hi - 1] {
                if is_gauge(h) {
                    seen.set(Note::NotCounter);
                }
                schema = schema.min(h.schema);
                if uses_custom_buckets(h) != custom {
                    // Only this annotation is reported then.
                    notes.set(Note::MixedExponentialCustom);
                    return None;
                }
            }
        }
        let mut growth = last.clone();
        histogram::reduce_schema(&mut growth, schema);
        histogram::sub_noting(&mut growth, base, &mut seen)?;
        for &i in resets {
            let before = if i as usize == w.lo + 1 { base } else { &self.hists[i as usize - 1] };
            histogram::add_noting(&mut growth, before, &mut seen)?;
        }
        if !inside(&self.overlaps, w).is_empty() {
            seen.set(Note::StartTimeOverlap);
        }
        let are_gauges = is_gauge(first) && is_gauge(last);
        if !self.is_counter && !are_gauges {
            seen.set(Note::NotGauge);
        }
        growth.reset_hint = ResetHint::Gauge;
        histogram::compact(&mut growth);
        notes.merge(seen);
        Some(growth)
    }
}

/// The marks after the first and up to the last sample of a window.
fn inside(marks: &[u32], w: Cursor) -> &[u32] {
    let from = marks.partition_point(|&i| i as usize <= w.lo);
    let to = marks.partition_point(|&i| (i as usize) < w.hi);
    &marks[from..to.max(from)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Outcome, floats, run, with_hists};
    use super::*;
    use crate::histogram::testing::{custom, exponential, populated};

    fn rate_of(text: &str, list: &[(i64, Histogram)]) -> Outcome {
        run(text, &with_hists(floats(&[]), list))
    }

    #[test]
    fn grows_and_is_extended() {
        let list: Vec<_> = (0..6).map(|i| (5 + 10 * i, exponential(0, 1, &[10.0 * i as f64, 5.0]))).collect();
        let got = rate_of("increase(60s)", &list);
        let (_, h) = &got.hists[0];
        assert_eq!(populated(h), [(1, 60.0)]);
        assert_eq!((h.count, h.reset_hint), (60.0, ResetHint::Gauge));
        assert!(got.warnings.is_empty() && got.infos.is_empty());
    }

    #[test]
    fn resets_and_hints() {
        let list = [(25, exponential(0, 1, &[10.0])), (35, exponential(0, 1, &[4.0]))];
        assert_eq!(populated(&rate_of("increase(60s)", &list).hists[0].1), [(1, 8.0)]);
        let got = rate_of("delta(60s)", &list);
        assert_eq!(got.warnings, ["PromQL warning: this native histogram metric is not a gauge: \"m\" (1:1)"]);
        let gauge = |h: Histogram| Histogram { reset_hint: ResetHint::Gauge, ..h };
        let list = list.map(|(t, h)| (t, gauge(h)));
        let got = rate_of("rate(60s)", &list);
        assert_eq!(got.warnings, ["PromQL warning: this native histogram metric is not a counter: \"m\" (1:1)"]);
        assert!(rate_of("delta(60s)", &list).warnings.is_empty());
    }

    #[test]
    fn kinds_do_not_mix() {
        let list =
            [(10, exponential(0, 1, &[10.0])), (20, custom(&[1.0], &[10.0, 1.0])), (30, exponential(0, 1, &[10.0]))];
        let got = rate_of("rate(60s)", &list);
        assert!(got.hists.is_empty());
        assert_eq!(got.warnings.len(), 1);
        // The first one does not matter when a reset follows.
        let got = rate_of("increase(60s)", &list[1..]);
        assert_eq!(got.hists.len(), 1);
    }
}
