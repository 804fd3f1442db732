//! What is shared by growth of floats and of histograms: how far it is extended to the ends of a window, and what start
//! times tell of resets.

use quiver_types::Millis;

/// Which of the three it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) is_counter: bool,
    pub(super) is_rate: bool,
}

/// Times of the samples at the ends of a window, and the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edges {
    pub(super) first: Millis,
    pub(super) last: Millis,
    /// Samples minus one.
    pub(super) gaps: usize,
    pub(super) start: Millis,
    pub(super) end: Millis,
}

impl Edges {
    /// Says whether a counter is known to have started inside of the window, before its first sample; then there was
    /// a zero at that time.
    pub(super) fn starts_inside(&self, start_ts: Millis) -> bool {
        start_ts != 0 && start_ts > self.start && start_ts < self.first
    }

    /// Gives the factor that extends growth between the samples to the window. `ratio`: first value by growth, of a counter
    /// that grew.
    #[inline]
    pub(super) fn factor(&self, started: Option<Millis>, ratio: Option<f64>) -> f64 {
        self.extent(started).factor(ratio)
    }

    /// Says how far growth is extended, whatever the values are.
    ///
    /// A series is taken to go on to the end of the window when the last sample is nearer to it than 1.1 times the
    /// usual distance, else for half a distance; likewise at the start.
    #[inline]
    pub(super) fn extent(&self, started: Option<Millis>) -> WindowExtent {
        let mut sampled = (self.last - self.first) as f64 / 1000.0;
        let mut to_start = (self.first - self.start) as f64 / 1000.0;
        let mut to_end = (self.end - self.last) as f64 / 1000.0;
        let distance = if self.gaps > 0 { sampled / self.gaps as f64 } else { 0.0 };
        let threshold = distance * 1.1;
        if let Some(start_ts) = started {
            to_start = 0.0;
            sampled = (self.last - start_ts) as f64 / 1000.0;
        } else if to_start >= threshold {
            to_start = distance / 2.0;
        }
        if to_end >= threshold {
            to_end = distance / 2.0;
        }
        WindowExtent { sampled, to_start, to_end }
    }

    /// Where the samples stand in the window: what [`Self::extent`] follows from where no start time is known.
    #[inline]
    pub(super) fn place(&self) -> Place {
        (self.first - self.start, self.last - self.first, self.end - self.last, self.gaps)
    }
}

/// What [`Edges::place`] gives: milliseconds to the first sample, between first and last, and behind; number of gaps.
pub(super) type Place = (i64, i64, i64, usize);

/// Seconds between the samples of a window, and those for which their growth is taken to have gone on.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowExtent {
    sampled: f64,
    to_start: f64,
    to_end: f64,
}

impl WindowExtent {
    /// See [`Edges::factor`]. A counter does not go back beyond the time at which it would have been zero.
    #[inline]
    pub(super) fn factor(&self, ratio: Option<f64>) -> f64 {
        let to_zero = ratio.map(|ratio| self.sampled * ratio).filter(|to_zero| *to_zero < self.to_start);
        let to_start = to_zero.unwrap_or(self.to_start);
        if self.sampled == 0.0 { 1.0 } else { (self.sampled + to_start + self.to_end) / self.sampled }
    }

    /// Says that a counter was above zero all the time, without the division that would say when it was zero. What is not
    /// clear beyond the errors of these products is not said.
    #[inline]
    pub(super) fn is_above_zero(&self, first: f64, growth: f64) -> bool {
        first * self.sampled > 2.0 * (growth * self.to_start) + f64::MIN_POSITIVE
    }
}

/// Says whether start times (paired with the times of their samples) tell of a reset between two samples.
pub(super) fn is_start_reset(before: (Millis, Millis), now: (Millis, Millis)) -> bool {
    // Unset, impossible, or the unknown start of OpenTelemetry (equal to the sample's time).
    if now.0 == 0 || now.0 >= now.1 || now.0 < before.1 {
        return false;
    }
    if now.0 > before.1 {
        return true;
    }
    // A start at the time of the sample before: a delta, or a cumulative series whose first sample had an unknown
    // start, which is not a reset; then the start before is unset, its own time, or (impossible) later.
    before.0 != 0 && before.0 < before.1
}

/// Says whether a start time lies before the sample before although it is another one than that sample's.
pub(super) fn overlaps_before(before: (Millis, Millis), start_ts: Millis) -> bool {
    start_ts != 0 && start_ts < before.1 && start_ts != before.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_that_tell_of_resets() {
        let check = |before, now, expected| assert_eq!(is_start_reset(before, now), expected, "{before:?} {now:?}");
        check((0, 60), (60, 120), false);
        check((60, 60), (60, 120), false);
        check((90, 60), (60, 120), false);
        check((30, 60), (60, 120), true);
        check((0, 60), (61, 120), true);
        check((0, 60), (120, 120), false);
        check((0, 60), (59, 120), false);
    }
}
