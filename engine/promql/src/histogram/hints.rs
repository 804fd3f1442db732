//! Counter reset hints of histograms as they are read back from storage.
//!
//! What a sender wrote is trusted only for `gauge`. A histogram that continues the one before says so, which spares
//! later steps the comparison of buckets; one that starts anew says nothing, even where that is known to be a reset.
//! Source: Prometheus 3.14 `tsdb/chunkenc/float_histogram.go`: `appendable`, `histogram_meta.go: counterResetHint`.

use quiver_types::{Histogram, Millis, ResetHint};

use super::detect_reset;

/// Sets the hints of consecutive histograms of one series, stale markers included. `float_ts` are the times of the
/// floats (and stale markers among them) of the same series; both lists of times ascend.
pub fn set_read_hints(hists: &mut [Histogram], hist_ts: &[Millis], float_ts: &[Millis]) {
    let mut floats = 0;
    let mut previous: Option<usize> = None;
    for i in 0..hists.len().min(hist_ts.len()) {
        let before = floats;
        floats += float_ts[floats..].iter().take_while(|&&t| t < hist_ts[i]).count();
        if floats > before {
            previous = None;
        }
        let (done, rest) = hists.split_at_mut(i);
        let h = &mut rest[0];
        if h.is_stale() {
            previous = None;
            continue;
        }
        if h.reset_hint == ResetHint::Gauge {
            previous = None;
            continue;
        }
        let told_of_reset = h.reset_hint == ResetHint::Reset;
        h.reset_hint = ResetHint::Unknown;
        if previous.is_some_and(|p| !told_of_reset && continues(h, &done[p])) {
            h.reset_hint = ResetHint::NotReset;
        }
        previous = Some(i);
    }
}

fn continues(h: &Histogram, previous: &Histogram) -> bool {
    h.schema == previous.schema
        && h.zero_threshold == previous.zero_threshold
        && h.custom_bounds == previous.custom_bounds
        && h.float == previous.float
        && !detect_reset(h, previous)
}

#[cfg(test)]
mod tests {
    use super::super::testing::exponential;
    use super::*;
    use ResetHint::{Gauge, NotReset, Reset, Unknown};

    fn check(list: &[Histogram], float_ts: &[Millis], expected: &[ResetHint]) {
        let mut list = list.to_vec();
        let hist_ts: Vec<Millis> = (0..list.len() as i64).map(|i| i * 10).collect();
        set_read_hints(&mut list, &hist_ts, float_ts);
        let got: Vec<_> = list.iter().map(|h| h.reset_hint).collect();
        assert_eq!(got, expected);
    }

    fn hinted(count: f64, reset_hint: ResetHint) -> Histogram {
        Histogram { reset_hint, ..exponential(0, 1, &[count]) }
    }

    #[test]
    fn continuing_and_starting_anew() {
        let h = |count| hinted(count, Unknown);
        check(&[h(1.0), h(2.0), h(2.0)], &[], &[Unknown, NotReset, NotReset]);
        check(&[h(1.0), h(2.0), h(1.0), h(1.0)], &[], &[Unknown, NotReset, Unknown, NotReset]);
        check(&[h(1.0), h(2.0), h(3.0)], &[15], &[Unknown, NotReset, Unknown]);
        check(&[h(1.0), Histogram::stale(), h(3.0)], &[], &[Unknown, Unknown, Unknown]);
        check(&[h(1.0), exponential(1, 1, &[5.0, 5.0])], &[], &[Unknown, Unknown]);
    }

    #[test]
    fn only_gauge_is_trusted() {
        check(&[hinted(1.0, NotReset), hinted(2.0, Reset), hinted(1.0, NotReset)], &[], &[Unknown, Unknown, Unknown]);
        let list = [hinted(1.0, Gauge), hinted(2.0, Gauge), hinted(3.0, Unknown), hinted(3.0, Unknown)];
        check(&list, &[], &[Gauge, Gauge, Unknown, NotReset]);
    }
}
