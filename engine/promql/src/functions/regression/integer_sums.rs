//! Sums for regression lines through integers at whole seconds, such as counts and bytes, which are most of what is
//! extrapolated.
//!
//! As long as no product exceeds the range in which all integers are doubles, a compensated sum of such numbers equals
//! the exact sum, rounded once at the end: the rounding error of an addition is an integer and is kept exactly. An
//! exact sum does not depend on the order of its parts, so a window can reuse what it shares with the previous one, and
//! the lines are equal to the last bit.

use quiver_types::Millis;
use quiver_types::text::EXACT_INTEGERS_MAX;

use super::line::{Line, constant, line_of};
use crate::window::Cursor;

/// Below this, all integers are exact as doubles.
const EXACT: f64 = EXACT_INTEGERS_MAX as f64;
/// Maximum distance from the first sample in milliseconds, so that sums fit into 128 bits.
const FAR_MS: u64 = 1 << 50;
/// Maximum samples of a window: the lost parts of this many additions add up to less than [`EXACT`].
const MANY: usize = 1 << 26;

/// Sums over a window that moves forward.
#[derive(Debug)]
pub(super) struct WholeSums<'a> {
    ts: &'a [Millis],
    values: &'a [f64],
    window: Cursor,
    /// Samples of the window that are not integers at whole seconds.
    odd: i64,
    /// The largest absolute value so far.
    largest: f64,
    /// Sums of seconds since the very first sample, and of their squares.
    seconds: [i128; 2],
    /// Sums of values, and of values times seconds.
    sums: [i128; 2],
}

impl<'a> WholeSums<'a> {
    pub(super) fn new(ts: &'a [Millis], values: &'a [f64]) -> Self {
        let window = Cursor::default();
        Self { ts, values, window, odd: 0, largest: 0.0, seconds: [0; 2], sums: [0; 2] }
    }

    /// The line through the values of a window, with times relative to an origin; `None` if its sums may not be exact.
    pub(super) fn line(&mut self, w: Cursor, origin: Millis) -> Option<Line> {
        self.move_to(w);
        if self.odd > 0 || w.len() >= MANY {
            return None;
        }
        let from = i128::from(whole_seconds(origin, self.ts[0])?);
        let ends = [self.ts[w.lo], self.ts[w.hi - 1]].map(|t| t.abs_diff(origin) / 1000);
        let reach = ends[0].max(ends[1]) as f64;
        let is_exact = reach * reach < EXACT && reach * self.largest < EXACT;
        is_exact.then(|| {
            constant(&self.values[w.lo..w.hi]).unwrap_or_else(|| {
                let (n, [d, dd], [y, dy]) = (w.len() as i128, self.seconds, self.sums);
                let times = [d - n * from, dd - 2 * from * d + n * from * from];
                let sums = [y, dy - from * y];
                line_of(w.len(), times.map(|sum| sum as f64), sums.map(|sum| sum as f64))
            })
        })
    }

    fn move_to(&mut self, w: Cursor) {
        if w.lo >= self.window.hi {
            let largest = self.largest;
            *self = Self { window: Cursor { lo: w.lo, hi: w.lo }, largest, ..Self::new(self.ts, self.values) };
        }
        for at in self.window.lo..w.lo {
            self.count(at, -1);
        }
        for at in self.window.hi..w.hi {
            self.count(at, 1);
        }
        self.window = w;
    }

    /// Adds a sample to the sums or removes it.
    fn count(&mut self, at: usize, sign: i64) {
        let value = self.values[at];
        let size = value.abs();
        let whole = value as i64;
        let (Some(seconds), true) = (whole_seconds(self.ts[at], self.ts[0]), size < EXACT && whole as f64 == value)
        else {
            self.odd += sign;
            return;
        };
        self.largest = self.largest.max(size);
        let signed = i128::from(sign * seconds);
        self.seconds[0] += signed;
        self.seconds[1] += signed * i128::from(seconds);
        self.sums[0] += i128::from(sign * whole);
        self.sums[1] += signed * i128::from(whole);
    }
}

/// Seconds between two times; `None` if not whole, or too many.
fn whole_seconds(t: Millis, since: Millis) -> Option<i64> {
    let ms = t.checked_sub(since)?;
    (ms % 1000 == 0 && ms.unsigned_abs() < FAR_MS).then_some(ms / 1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::line::Times;
    use super::*;
    use crate::window::first_after;

    fn bits((slope, intercept): Line) -> (u64, u64) {
        (slope.to_bits(), intercept.to_bits())
    }

    fn any_value() -> impl Strategy<Value = f64> {
        let whole = prop_oneof![
            4 => -1000_i64..1000,
            4 => 80_000_000_000_i64..110_000_000_000,
            1 => -(1_i64 << 53)..(1_i64 << 53),
        ];
        whole.prop_map(|v| v as f64)
    }

    fn any_gaps() -> impl Strategy<Value = Vec<i64>> {
        let seconds = prop::collection::vec(1_i64..90, 150);
        let seconds = seconds.prop_map(|gaps| gaps.into_iter().map(|gap| gap * 1000).collect::<Vec<i64>>());
        prop_oneof![Just(vec![15_000_i64; 150]), seconds, prop::collection::vec(1_i64..30_000, 150)]
    }

    proptest! {
        /// Some of the values are too large, not whole, or none; some of the times are not of whole seconds.
        #[test]
        fn lines_are_those_of_compensated_sums(
            mut values in prop::collection::vec(any_value(), 150),
            odd in prop::collection::vec(
                (0_usize..150, prop_oneof![Just(0.5), Just(f64::NAN), Just(-0.0), Just(1e300)]),
                0..3,
            ),
            gaps in any_gaps(),
            (step_s, range_s) in (1_i64..200, 1_i64..1200),
            late_ms in prop_oneof![3 => Just(0_i64), 1 => 0_i64..1000],
        ) {
            for (at, value) in odd {
                values[at] = value;
            }
            let mut ts = vec![1_700_000_000_250_i64];
            ts.extend(gaps[1..].iter().scan(ts[0], |t, gap| {
                *t += gap;
                Some(*t)
            }));
            let mut whole = WholeSums::new(&ts, &values);
            for step in 0..40 {
                let end = ts[0] + step * step_s * 1000 + late_ms;
                let w = Cursor { lo: first_after(&ts, 0, end - range_s * 1000), hi: first_after(&ts, 0, end) };
                if w.len() < 2 {
                    continue;
                }
                for origin in [ts[w.lo], end] {
                    if let Some(line) = whole.line(w, origin) {
                        let mut times = Times::default();
                        times.become_those(&ts[w.lo..w.hi], origin);
                        let compensated = times.line(&values[w.lo..w.hi]);
                        prop_assert_eq!(bits(line), bits(compensated), "{:?} from {}", w, origin);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_whole_is_known_as_such() {
        let ts: Vec<i64> = (0..100).map(|i| 1_700_000_000_250 + 15_000 * i).collect();
        let mut values: Vec<f64> = (0..100).map(|i| f64::from(i * i % 17) * 1e9).collect();
        values[50] = 0.5;
        let mut whole = WholeSums::new(&ts, &values);
        let mut known = |lo: usize, hi: usize, origin: i64| whole.line(Cursor { lo, hi }, origin).is_some();
        assert!(known(0, 20, ts[0]) && known(10, 30, ts[30] + 86_400_000));
        assert!(!known(10, 30, ts[30] + 1), "no whole seconds");
        assert!(!known(10, 30, ts[30] + 1_000_000_000_000), "the products are too large");
        assert!(known(20, 50, ts[20]) && !known(40, 60, ts[40]) && !known(50, 70, ts[50]));
        assert!(known(51, 70, ts[51]) && known(80, 100, ts[0]));
    }
}
