//! The regression line through values at times, from compensated sums.

use quiver_types::Millis;

use crate::kahan;

/// Slope (per second) and the value at the origin.
pub(super) type Line = (f64, f64);

/// Times of a window relative to an origin. Regularly scraped windows have the same ones again and again, and so the
/// same sums.
#[derive(Debug, Default)]
pub(super) struct Times {
    offsets: Vec<Millis>,
    seconds: Vec<f64>,
    /// Compensated sums of the times, and of their squares.
    sums: [f64; 2],
}

impl Times {
    /// Tells whether these are the times of a window.
    pub(super) fn are(&self, ts: &[Millis], origin: Millis) -> bool {
        self.offsets.len() == ts.len()
            && self.offsets.iter().zip(ts).fold(0, |odd, (own, t)| odd | ((t - origin) ^ own)) == 0
    }

    pub(super) fn become_those(&mut self, ts: &[Millis], origin: Millis) {
        self.offsets.clear();
        self.offsets.extend(ts.iter().map(|t| t - origin));
        self.seconds.clear();
        self.seconds.extend(self.offsets.iter().map(|&t| t as f64 / 1e3));
        self.sums = sums(self.seconds.iter().map(|&x| [x, x * x]));
    }

    /// The line through the values at these times.
    pub(super) fn line(&self, values: &[f64]) -> Line {
        constant(values).unwrap_or_else(|| {
            let [y, xy] = sums(self.seconds.iter().zip(values).map(|(x, y)| [*y, x * y]));
            self.line_of(y, xy)
        })
    }

    /// The lines of two windows with these times; faster than one after the other.
    pub(super) fn two_lines(&self, a: &[f64], b: &[f64]) -> [Line; 2] {
        if constant(a).is_some() || constant(b).is_some() {
            return [self.line(a), self.line(b)];
        }
        let both = self.seconds.iter().zip(a.iter().zip(b));
        let [y, xy, v, xv] = sums(both.map(|(x, (y, v))| [*y, x * y, *v, x * v]));
        [self.line_of(y, xy), self.line_of(v, xv)]
    }

    fn line_of(&self, y: f64, xy: f64) -> Line {
        line_of(self.seconds.len(), self.sums, [y, xy])
    }
}

/// The line for sums over this number of samples: of times and their squares, of values and values times times.
pub(super) fn line_of(samples: usize, [x, xx]: [f64; 2], [y, xy]: [f64; 2]) -> Line {
    let n = samples as f64;
    let covariance = xy - x * y / n;
    let variance = xx - x * x / n;
    let slope = covariance / variance;
    (slope, y / n - slope * x / n)
}

/// The line through values that are all equal; `None` if they are not.
pub(super) fn constant(values: &[f64]) -> Option<Line> {
    let first = values[0];
    let line = if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    values[1..].iter().all(|&v| v == first).then_some(line)
}

/// Several compensated sums at once.
fn sums<const N: usize>(values: impl Iterator<Item = [f64; N]> + Clone) -> [f64; N] {
    let (mut sums, mut lost) = ([0.0; N], [0.0; N]);
    values.clone().for_each(|values| kahan::inc_all_finite(values, &mut sums, &mut lost));
    // A sum that becomes infinite or NaN stays so, so one check at the end suffices.
    if !sums.iter().all(|sum| sum.is_finite()) {
        (sums, lost) = ([0.0; N], [0.0; N]);
        values.for_each(|values| kahan::inc_all(values, &mut sums, &mut lost));
    }
    std::array::from_fn(|i| sums[i] + lost[i])
}
