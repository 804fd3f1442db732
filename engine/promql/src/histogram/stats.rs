//! Histograms reduced to count and sum, for queries that ask for nothing else.
//!
//! Without buckets later steps cannot see resets, so the hints are worked out here, from neighbour to neighbour.
//! Source: Prometheus 3.14 `promql/histogram_stats_iterator.go`.

use quiver_types::{Histogram, ResetHint};

use super::detect_reset;

/// Drops the buckets of the histograms of one series and sets the hints; stale markers stay.
pub fn stats_only(hists: &[Histogram]) -> Vec<Histogram> {
    let mut last: Option<&Histogram> = None;
    let mut out = Vec::with_capacity(hists.len());
    for h in hists {
        let mut reset_hint = h.reset_hint;
        if !h.is_stale() {
            if let (ResetHint::Unknown, Some(last)) = (h.reset_hint, last) {
                reset_hint = if detect_reset(h, last) { ResetHint::Reset } else { ResetHint::NotReset };
            }
            last = Some(h);
        }
        let (schema, count, sum, float) = (h.schema, h.count, h.sum, h.float);
        out.push(Histogram { schema, count, sum, float, reset_hint, ..Histogram::default() });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::exponential;
    use super::*;

    #[test]
    fn hints_from_neighbours() {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};
        let gauge = Histogram { reset_hint: Gauge, ..exponential(0, 0, &[0.0]) };
        let list = [
            exponential(0, 0, &[1.0, 1.0]),
            exponential(0, 0, &[1.0, 2.0]),
            Histogram::stale(),
            exponential(0, 0, &[2.0, 1.0]),
            gauge,
        ];
        let got = stats_only(&list);
        let hints: Vec<_> = got.iter().map(|h| h.reset_hint).collect();
        assert_eq!(hints, [Unknown, NotReset, Unknown, Reset, Gauge]);
        assert!(got[2].is_stale());
        assert!(got.iter().all(|h| h.positive.is_empty()));
        assert_eq!((got[1].count, got[1].sum), (3.0, 6.0));
    }
}
