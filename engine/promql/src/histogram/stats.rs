//! Histograms reduced to count and sum, for queries that ask for nothing else.
//!
//! Without buckets later steps cannot see resets, so the hints are worked out here, from neighbour to neighbour.
//! Source: Prometheus 3.14 `promql/histogram_stats_iterator.go`.

use quiver_types::{Histogram, ResetHint};

use super::reset::detect_reset;

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

    #[test]
    fn hints_that_are_given_stay() {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};
        let hinted = |count: f64, reset_hint| Histogram { reset_hint, ..exponential(0, 0, &[count]) };
        let hints = |list: &[Histogram]| stats_only(list).iter().map(|h| h.reset_hint).collect::<Vec<_>>();
        assert!(hints(&[]).is_empty());
        assert_eq!(hints(&[hinted(5.0, Reset), hinted(1.0, NotReset), hinted(9.0, Gauge)]), [Reset, NotReset, Gauge]);
        assert_eq!(hints(&[hinted(5.0, Unknown), hinted(1.0, Unknown)]), [Unknown, Reset]);
        // Markers of the end are passed over: the neighbour before them counts.
        let stale = Histogram::stale;
        assert_eq!(hints(&[stale(), hinted(5.0, Unknown)])[1], Unknown, "nothing is before it");
        let list = [hinted(5.0, Unknown), stale(), stale(), hinted(6.0, Unknown), stale(), hinted(2.0, Unknown)];
        let got = hints(&list);
        assert_eq!([got[0], got[3], got[5]], [Unknown, NotReset, Reset]);
    }

    #[test]
    fn the_kind_of_buckets_is_kept_and_nothing_else() {
        let custom = super::super::testing::custom(&[1.0], &[2.0, 3.0]);
        let got = stats_only(std::slice::from_ref(&custom)).remove(0);
        assert_eq!((got.schema, got.count, got.sum, got.float), (custom.schema, 5.0, 10.0, true));
        assert!(got.custom_bounds.is_empty() && got.positive_spans.is_empty() && got.zero_count == 0.0);
    }
}
