//! The position of a window in a list of times, which moves forward.

use quiver_types::Millis;

/// The indexes of the samples in a window: `lo..hi`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    /// Index of the first sample in the window.
    pub lo: usize,
    /// Index one past the last sample in the window; equal to `lo` when it is empty.
    pub hi: usize,
}

impl Cursor {
    /// Moves to the window `(start, end]`; windows must not move backwards.
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

/// Index of the first time after `bound`, searching from `from`: step by step at first, then with doubling strides, so
/// that distant windows do not require a look at every sample in between.
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
}
