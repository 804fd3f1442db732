//! Windows that several series share because they were sampled at the same times: computed once and reused.
//!
//! Series with equal times refer to the same memory (decoded blocks store equal times once), so it suffices to compare
//! addresses. They are compared only within a batch, which keeps that memory alive.

use quiver_types::Millis;

use super::cursor::Cursor;
use crate::functions::call::RangeCall;

/// The windows for the times of the previous series.
#[derive(Debug, Default)]
pub(crate) struct SharedWindows {
    times: Option<(usize, usize)>,
    known: bool,
    windows: Vec<Cursor>,
}

impl SharedWindows {
    /// Forgets the previous series, because a batch starts or ends.
    pub(crate) fn reset(&mut self) {
        self.times = None;
        self.known = false;
    }

    /// The windows for these times if they are those of the previous series, else `None`.
    pub(crate) fn get(&mut self, ts: &[Millis], call: &RangeCall<'_>) -> Option<&[Cursor]> {
        let times = Some((ts.as_ptr() as usize, ts.len()));
        if self.times != times {
            self.times = times;
            self.known = false;
            return None;
        }
        if !self.known {
            self.windows.clear();
            let mut window = Cursor::default();
            self.windows.extend((0..call.grid.steps).map(|step| {
                let (start, end) = call.bounds(step);
                window.advance(ts, start, end);
                window
            }));
            self.known = true;
        }
        Some(&self.windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Grid, Window};
    use crate::range_ends::RangeEnds;

    #[test]
    fn found_from_the_second_series_on() {
        let grid = Grid { start: 10, step_ms: 10, steps: 3 };
        let window = Window { range_ms: 15, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 15 };
        let call = RangeCall { grid, window, at: None, params: &[], windows: None, pace: None };
        let (a, b) = (vec![1, 9, 20, 29], vec![1, 9, 20, 29]);
        let mut shared = SharedWindows::default();
        assert!(shared.get(&a, &call).is_none() && shared.get(&b, &call).is_none());
        let found: Vec<_> = shared.get(&b, &call).expect("the same times").iter().map(|c| (c.lo, c.hi)).collect();
        assert_eq!(found, [(0, 2), (1, 3), (2, 4)]);
        assert!(shared.get(&b, &call).is_some());
        shared.reset();
        assert!(shared.get(&b, &call).is_none());
    }
}
