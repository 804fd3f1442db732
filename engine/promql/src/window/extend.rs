//! Raw range vectors of `anchored` and `smoothed` selectors: samples with synthesized values at both ends of the
//! window.
//!
//! Source: Prometheus 3.14 `promql/engine.go: extendFloats`.

use quiver_types::Millis;

/// Interpolates linearly at `t` between two samples.
pub(crate) fn interpolate(first: (Millis, f64), second: (Millis, f64), t: Millis) -> f64 {
    first.1 + (second.1 - first.1) * (t - first.0) as f64 / (second.0 - first.0) as f64
}

/// Interpolates between two samples of a counter. If it was reset between them, starts from zero.
pub(crate) fn interpolate_counter(first: (Millis, f64), second: (Millis, f64), t: Millis) -> f64 {
    let from = if second.1 < first.1 { 0.0 } else { first.1 };
    interpolate((first.0, from), second, t)
}

/// Indexes of the first and last sample to use for a window `(start, end]`: the one at or before the start, and for
/// `smoothed` the one at or after the end. `ts` must not be empty, and must be limited to the window and its lookback.
pub(crate) fn outer_samples(ts: &[Millis], start: Millis, end: Millis, smoothed: bool) -> (usize, usize) {
    let last = ts.len() - 1;
    let first = ts[..last].partition_point(|&t| t <= start).saturating_sub(1);
    let last = if smoothed { ts[..last].partition_point(|&t| t < end) } else { last };
    (first, last)
}

/// Times and values of a raw window `(start, end]` of an `anchored` or `smoothed` selector; the input is the window
/// with its lookback. Empty if no sample lies after the start.
pub fn extend_floats(
    ts: &[Millis],
    values: &[f64],
    start: Millis,
    end: Millis,
    smoothed: bool,
) -> (Vec<Millis>, Vec<f64>) {
    if ts.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let (mut first, last) = outer_samples(ts, start, end, smoothed);
    if ts[last] <= start {
        return (Vec::new(), Vec::new());
    }
    let at = |i: usize| (ts[i], values[i]);
    let left = if smoothed && ts[first] < start { interpolate(at(first), at(first + 1), start) } else { values[first] };
    let right =
        if smoothed && last > 0 && ts[last] > end { interpolate(at(last - 1), at(last), end) } else { values[last] };
    if ts[first] <= start {
        first += 1;
    }
    let stop = if ts[last] >= end { last } else { last + 1 };
    let inside = first..stop.max(first);
    let mut out = (vec![start], vec![left]);
    out.0.extend(&ts[inside.clone()]);
    out.1.extend(&values[inside]);
    out.0.push(end);
    out.1.push(right);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchored_takes_over_smoothed_interpolates() {
        let (ts, values) = ([0, 10, 20, 30], [0.0, 1.0, 2.0, 3.0]);
        let anchored = extend_floats(&ts[..3], &values[..3], 5, 25, false);
        assert_eq!(anchored, (vec![5, 10, 20, 25], vec![0.0, 1.0, 2.0, 2.0]));
        let smoothed = extend_floats(&ts, &values, 5, 25, true);
        assert_eq!(smoothed, (vec![5, 10, 20, 25], vec![0.5, 1.0, 2.0, 2.5]));
        assert_eq!(extend_floats(&ts[..1], &values[..1], 5, 25, false), (vec![], vec![]));
    }

    #[test]
    fn a_counter_restarts_at_zero() {
        assert_eq!(interpolate_counter((0, 10.0), (10, 4.0), 5), 2.0);
        assert_eq!(interpolate((0, 10.0), (10, 4.0), 5), 7.0);
    }

    /// The values of a raw window by what is said of them: a value at each end, and the samples strictly between.
    #[test]
    fn ends_and_what_is_between() {
        let (ts, values) = ([0, 10, 20, 30], [0.0, 1.0, 2.0, 30.0]);
        let check = |count: usize, start: i64, end: i64, smoothed: bool, expected: &[(i64, f64)]| {
            let (ts, values) = extend_floats(&ts[..count], &values[..count], start, end, smoothed);
            let got: Vec<(i64, f64)> = ts.into_iter().zip(values).collect();
            assert_eq!(got, expected, "{count} samples within {start} to {end}, smoothed: {smoothed}");
        };
        for smoothed in [false, true] {
            check(0, 0, 10, smoothed, &[]);
            check(1, 5, 9, smoothed, &[]);
            check(3, 20, 25, smoothed, &[]);
            // Samples at the ends are the ends.
            check(3, 0, 20, smoothed, &[(0, 0.0), (10, 1.0), (20, 2.0)]);
            check(3, 10, 20, smoothed, &[(10, 1.0), (20, 2.0)]);
            // Before the first sample nothing is known but that.
            check(2, -50, 10, smoothed, &[(-50, 0.0), (0, 0.0), (10, 1.0)]);
            // Behind the last one neither.
            check(3, 10, 99, smoothed, &[(10, 1.0), (20, 2.0), (99, 2.0)]);
        }
        check(2, 14, 16, false, &[]);
        check(3, 14, 22, false, &[(14, 1.0), (20, 2.0), (22, 2.0)]);
        check(3, 14, 16, true, &[(14, 1.4), (16, 1.6)]);
        check(4, 25, 29, true, &[(25, 16.0), (29, 27.2)]);
    }

    #[test]
    fn samples_around_a_window() {
        let ts = [0, 10, 20, 30];
        for (start, end, anchored, smoothed) in [
            (-5, 5, (0, 3), (0, 1)),
            (0, 10, (0, 3), (0, 1)),
            (5, 15, (0, 3), (0, 2)),
            (10, 20, (1, 3), (1, 2)),
            (15, 20, (1, 3), (1, 2)),
            (20, 99, (2, 3), (2, 3)),
            (35, 40, (2, 3), (2, 3)),
        ] {
            assert_eq!(outer_samples(&ts, start, end, false), anchored, "{start} to {end}");
            assert_eq!(outer_samples(&ts, start, end, true), smoothed, "{start} to {end}");
        }
        assert_eq!((outer_samples(&ts[..1], 5, 9, false), outer_samples(&ts[..1], 5, 9, true)), ((0, 0), (0, 0)));
    }
}
