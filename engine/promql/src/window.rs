//! Windows over the samples of one series: cursors that move forward once over a whole grid, look-back, and the
//! preparation of samples for range functions.
//!
//! A window is open on the left: `(t - range, t]`. Since steps ascend, both ends of the window only ever move to the
//! right, so finding all windows costs one pass over the samples.

mod extend;
mod instant;
mod shared;
mod sliding;
mod stale;

use quiver_types::Millis;

use crate::functions::RangeCall;
use crate::kernel::SeriesSamples;

pub use extend::extend_floats;
pub(crate) use extend::{interpolate, outer_samples};
pub use instant::{InstantValue, instant, instant_smoothed};
pub(crate) use shared::SharedWindows;
pub(crate) use sliding::Sums;
pub use stale::StaleFree;

/// The indexes of the samples in a window: `lo..hi`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    /// Index of the first sample in the window.
    pub lo: usize,
    /// Index one past the last sample in the window; equal to `lo` when it is empty.
    pub hi: usize,
}

impl Cursor {
    /// Moves on to the window `(start, end]`; windows must not move back.
    #[inline]
    pub fn advance(&mut self, ts: &[Millis], start: Millis, end: Millis) {
        self.lo = first_after(ts, self.lo, start);
        self.hi = first_after(ts, self.hi.max(self.lo), end);
    }

    /// Number of samples in the window.
    pub fn len(&self) -> usize {
        self.hi - self.lo
    }

    /// Says whether the window has no samples.
    pub fn is_empty(&self) -> bool {
        self.lo == self.hi
    }
}

/// Gives the index of the first time after `bound`, searching from `from` on: step by step for near ones, then with
/// doubling strides, so that windows far apart do not cost a look at every sample between.
#[inline]
pub fn first_after(ts: &[Millis], from: usize, bound: Millis) -> usize {
    let mut i = from;
    let near = ts.len().min(from + 8);
    while i < near {
        if ts[i] > bound {
            return i;
        }
        i += 1;
    }
    if i == ts.len() { i } else { gallop(ts, i, bound) }
}

fn gallop(ts: &[Millis], from: usize, bound: Millis) -> usize {
    let mut stride = 8;
    let mut low = from;
    while low + stride < ts.len() && ts[low + stride] <= bound {
        low += stride;
        stride *= 2;
    }
    let high = ts.len().min(low + stride + 1);
    low + ts[low..high].partition_point(|&t| t <= bound)
}

/// Samples in windows that are visited at a stretch.
pub(crate) const WORK_AT_A_STRETCH: usize = 1 << 16;

/// The window of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepWindow {
    pub(crate) step: usize,
    /// End of the window, inclusive.
    pub(crate) end: Millis,
    /// Start of the window, exclusive.
    pub(crate) start: Millis,
    pub(crate) floats: Cursor,
    pub(crate) hists: Cursor,
}

/// Visits the windows of all steps that have samples, widened by `before` and `after` milliseconds (start and end of
/// the visit stay those of the window).
#[inline]
pub(crate) fn each(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    (before, after): (i64, i64),
    mut visit: impl FnMut(StepWindow),
) {
    let windows = if (before, after) == (0, 0) { call.windows } else { None };
    let (mut floats, mut hists) = (Cursor::default(), Cursor::default());
    let mut work = 0;
    // One loop for both ways, so that the visit is inlined.
    for step in 0..call.grid.steps {
        let (start, end) = call.bounds(step);
        if let Some(windows) = windows {
            floats = windows[step];
        } else {
            floats.advance(samples.ts, start - before, end + after);
            hists.advance(samples.hist_ts, start - before, end + after);
        }
        work += 1 + floats.len() + hists.len();
        if work >= WORK_AT_A_STRETCH {
            if call.pace.is_some_and(|pace| pace.did(work).is_err()) {
                // Whoever called the function finds the same error and says it.
                return;
            }
            work = 0;
        }
        if !(floats.is_empty() && hists.is_empty()) {
            visit(StepWindow { step, end, start, floats, hists });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cursor_finds_what_a_filter_finds(
            gaps in prop::collection::vec(1_i64..50, 0..200),
            range in 1_i64..500, step in 1_i64..300, offset in -100_i64..100,
        ) {
            let ts: Vec<i64> = gaps.iter().scan(0, |t, g| { *t += g; Some(*t) }).collect();
            let mut cursor = Cursor::default();
            for i in 0..40 {
                let end = i * step + offset;
                cursor.advance(&ts, end - range, end);
                let expected: Vec<i64> = ts.iter().copied().filter(|&t| t > end - range && t <= end).collect();
                prop_assert_eq!(&ts[cursor.lo..cursor.hi], &expected[..]);
            }
        }
    }

    #[test]
    fn far_windows_are_found_by_strides() {
        for count in [0, 1, 7, 8, 9, 100, 1000] {
            let ts: Vec<i64> = (0..count).map(|i| i * 10).collect();
            for bound in (-25..count * 10 + 25).step_by(if count > 100 { 333 } else { 5 }) {
                let expected = ts.iter().filter(|t| **t <= bound).count();
                for from in [0, expected / 2, expected] {
                    assert_eq!(first_after(&ts, from, bound), expected, "{count} from {from} to {bound}");
                }
            }
            assert_eq!(first_after(&ts, 0, i64::MAX), count as usize);
            assert_eq!(first_after(&ts, 0, i64::MIN), 0);
        }
    }

    #[test]
    fn windows_are_visited_where_they_hold_something() {
        use crate::kernel::{Grid, Window};
        use quiver_types::Histogram;

        let hists = [Histogram::default()];
        let samples = SeriesSamples {
            ts: &[100, 130],
            values: &[1.0, 2.0],
            hist_ts: &[220],
            hists: &hists,
            ..SeriesSamples::default()
        };
        let grid = Grid { start: 100, step_ms: 50, steps: 5 };
        let window = Window { range_ms: 40, offset_ms: 0, anchored: false, smoothed: false, lookback_ms: 0 };
        let call = RangeCall { grid, window, at: None, params: &[], windows: None, pace: None };
        let visited = |widen| {
            let mut all = Vec::new();
            each(&samples, &call, widen, |w| all.push((w.step, w.start, w.end, w.floats.len(), w.hists.len())));
            all
        };
        assert_eq!(visited((0, 0)), [(0, 60, 100, 1, 0), (1, 110, 150, 1, 0), (3, 210, 250, 0, 1)]);
        // Wider windows see more and tell of the same ends.
        let wide = visited((50, 30));
        assert_eq!(wide[..2], [(0, 60, 100, 2, 0), (1, 110, 150, 2, 0)]);
        assert_eq!(wide[2..], [(2, 160, 200, 1, 1), (3, 210, 250, 0, 1), (4, 260, 300, 0, 1)]);
    }
}
