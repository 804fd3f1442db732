//! The minimum rate of a request body: a sender that stays below it for longer than the grace period gets a 408,
//! whatever reads the body. Only the time in which a reader waits counts, so that no client is blamed for a slow
//! server.

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

/// How long a sender may still be waited for. It grows with each byte that arrives, up to the grace period.
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

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// Accounts for bytes that arrived after a wait.
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

    /// Runs steps of bytes and milliseconds waited, with a grace period of ten seconds; returns the milliseconds
    /// left.
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
        // A fast sender cannot save up more than the grace period.
        assert_eq!(left(100, &[(1_000_000, 1), (0, 9_000)]), 1_000);
        assert_eq!(left(100, &[(usize::MAX, 0)]), 10_000);
        // A sender that keeps the rate is never cut off; one at half the rate runs out of time at last.
        assert_eq!(left(100, &[(100, 1_000); 1_000]), 10_000);
        assert_eq!(left(100, &[(50, 1_000); 19]), 500);
        // A wait longer than what is left leaves nothing; bytes that arrive afterwards still count.
        assert_eq!(left(100, &[(0, 60_000)]), 0);
        assert_eq!(left(100, &[(200, 60_000)]), 2_000);
    }

    /// Without a minimum rate only silence counts.
    #[test]
    fn any_byte_is_enough_without_a_rate() {
        assert_eq!(left(0, &[(0, 4_000), (0, 4_000)]), 2_000);
        assert_eq!(left(0, &[(0, 9_000), (1, 900)]), 10_000);
        assert_eq!(left(0, &[(1, 60_000)]), 10_000);
    }
}
