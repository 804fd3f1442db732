//! Removes stale markers, which range functions must not see. If there are none, it costs only a check.

use quiver_types::{Histogram, Millis, is_stale};

use crate::kernel::SeriesSamples;

/// Buffers for a series without its stale markers; reuse one object for all series.
#[derive(Debug, Default)]
pub struct StaleFree {
    ts: Vec<Millis>,
    values: Vec<f64>,
    start_ts: Vec<Millis>,
    hist_ts: Vec<Millis>,
    hists: Vec<Histogram>,
    hist_start_ts: Vec<Millis>,
}

impl StaleFree {
    /// The samples without stale markers: the input itself if it has none.
    pub fn clean<'a>(&'a mut self, samples: SeriesSamples<'a>) -> SeriesSamples<'a> {
        let mut clean = samples;
        if is_any_stale(samples.values) {
            let keep = |i: &usize| !is_stale(samples.values[*i]);
            refill(&mut self.ts, samples.ts, keep);
            refill(&mut self.start_ts, samples.start_ts, keep);
            refill(&mut self.values, samples.values, keep);
            clean = SeriesSamples { ts: &self.ts, values: &self.values, start_ts: &self.start_ts, ..clean };
        }
        if samples.hists.iter().any(Histogram::is_stale) {
            let keep = |i: &usize| !samples.hists[*i].is_stale();
            refill(&mut self.hist_ts, samples.hist_ts, keep);
            refill(&mut self.hist_start_ts, samples.hist_start_ts, keep);
            refill(&mut self.hists, samples.hists, keep);
            clean = SeriesSamples {
                hist_ts: &self.hist_ts,
                hists: &self.hists,
                hist_start_ts: &self.hist_start_ts,
                ..clean
            };
        }
        clean
    }
}

/// Checks many samples at once: stopping at each would take longer than checking all.
fn is_any_stale(values: &[f64]) -> bool {
    const TOGETHER: usize = 64;
    values.chunks(TOGETHER).any(|values| {
        let mut any = false;
        for value in values {
            any |= is_stale(*value);
        }
        any
    })
}

fn refill<T: Clone>(buffer: &mut Vec<T>, from: &[T], keep: impl Fn(&usize) -> bool) {
    buffer.clear();
    buffer.extend((0..from.len()).filter(keep).map(|i| from[i].clone()));
}

#[cfg(test)]
mod tests {
    use quiver_types::stale_nan;

    use super::*;

    #[test]
    fn removes_markers_only() {
        let values = [1.0, stale_nan(), f64::NAN];
        let hists = [Histogram::stale(), Histogram { count: 1.0, ..Histogram::default() }];
        let samples = SeriesSamples {
            ts: &[1, 2, 3],
            values: &values,
            start_ts: &[10, 20, 30],
            hist_ts: &[4, 5],
            hists: &hists,
            hist_start_ts: &[],
        };
        let mut buffers = StaleFree::default();
        let clean = buffers.clean(samples);
        assert_eq!((clean.ts, clean.start_ts), (&[1, 3][..], &[10, 30][..]));
        assert_eq!(clean.values[0], 1.0);
        assert_eq!((clean.hist_ts, clean.hists.len(), clean.hist_start_ts.len()), (&[5][..], 1, 0));
    }

    #[test]
    fn a_marker_is_found_wherever_it_stands() {
        for at in 0..200 {
            let mut values = vec![f64::NAN; 200];
            assert!(!is_any_stale(&values));
            values[at] = stale_nan();
            assert!(is_any_stale(&values), "{at}");
        }
        assert!(!is_any_stale(&[]));
    }

    #[test]
    fn clean_input_is_not_copied() {
        let samples = SeriesSamples { ts: &[1], values: &[2.0], ..SeriesSamples::default() };
        let mut buffers = StaleFree::default();
        assert!(std::ptr::eq(buffers.clean(samples).values, samples.values));
    }
}
