//! The pace of a body: a sender that falls below the least rate for longer than its grace is told so (408), whatever
//! reads the body. Only the time counts in which a reader waits, so nobody is blamed for a server that is slow.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A body that came too slowly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body came too slowly")
    }
}

impl Error for TooSlow {}

/// How long a sender may still be waited for: grows with what it sends, up to the grace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    rate_min: u64,
    grace: Duration,
    left: Duration,
}

impl Pace {
    pub(crate) fn new(rate_min: u64, grace: Duration) -> Self {
        Self { rate_min, grace, left: grace }
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// So many bytes came, after so long.
    pub(crate) fn got(&mut self, bytes: usize, waited: Duration) {
        let earned = match self.rate_min {
            0 if bytes > 0 => self.grace,
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        };
        self.left = (self.left.saturating_sub(waited) + earned).min(self.grace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of ten seconds at a hundred bytes a second, in milliseconds, after bytes and the waits before them.
    fn left(rate_min: u64, steps: &[(usize, u64)]) -> u128 {
        let mut pace = Pace::new(rate_min, Duration::from_secs(10));
        for (bytes, waited_ms) in steps {
            pace.got(*bytes, Duration::from_millis(*waited_ms));
        }
        pace.left().as_millis()
    }

    #[test]
    fn bytes_earn_the_time_that_they_may_take() {
        assert_eq!(left(100, &[]), 10_000);
        assert_eq!(left(100, &[(0, 4_000)]), 6_000);
        assert_eq!(left(100, &[(100, 4_000), (100, 4_000)]), 4_000);
        // Who is faster saves up nothing beyond the grace.
        assert_eq!(left(100, &[(1_000_000, 1), (0, 9_000)]), 1_000);
        assert_eq!(left(100, &[(usize::MAX, 0)]), 10_000);
        // Who keeps the rate is never cut; who sends half of it has less left at last than its next wait takes.
        assert_eq!(left(100, &[(100, 1_000); 1_000]), 10_000);
        assert_eq!(left(100, &[(50, 1_000); 19]), 500);
        // A wait beyond all that is left leaves none; bytes that come then count still.
        assert_eq!(left(100, &[(0, 60_000)]), 0);
        assert_eq!(left(100, &[(200, 60_000)]), 2_000);
    }

    /// Without a least rate only silence counts.
    #[test]
    fn any_byte_is_enough_without_a_rate() {
        assert_eq!(left(0, &[(0, 4_000), (0, 4_000)]), 2_000);
        assert_eq!(left(0, &[(0, 9_000), (1, 900)]), 10_000);
        assert_eq!(left(0, &[(1, 60_000)]), 10_000);
    }
}
