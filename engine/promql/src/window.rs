//! Windows over the samples of one series: cursors that move forward once over a whole grid, look-back, and the
//! preparation of samples for range functions.
//!
//! A window is open on the left: `(t - range, t]`. Since steps ascend, both ends of the window only ever move to the
//! right, so finding all windows costs one pass over the samples.

pub(crate) mod cursor;
mod extend;
mod instant;
mod shared_windows;
mod sliding;
mod stale_markers;

use quiver_types::Millis;

use crate::functions::call::RangeCall;
use crate::kernel::SeriesSamples;

pub use cursor::{Cursor, first_after};
pub use extend::extend_floats;
pub(crate) use extend::{interpolate, interpolate_counter, outer_samples};
pub use instant::{InstantValue, instant, instant_smoothed};
pub(crate) use shared_windows::SharedWindows;
pub(crate) use sliding::Sums;
pub use stale_markers::StaleFree;

/// Samples in windows that are visited at a stretch.
pub(crate) const WORK_AT_A_STRETCH: usize = 1 << 16;

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
                // The caller checks the same limit next, and reports the error.
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
    use super::*;

    #[test]
    fn windows_are_visited_where_they_hold_something() {
        use crate::kernel::{Grid, Window};
        use crate::range_ends::RangeEnds;
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
        let window = Window { range_ms: 40, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 0 };
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
