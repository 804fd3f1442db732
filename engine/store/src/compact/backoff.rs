//! Days that could not be compacted (a damaged part, no disk space) are paused before the next attempt, longer each
//! time: an attempt reads the whole day and would fail at the same place.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_hours(1);

/// The paused days, by table.
#[derive(Debug, Default)]
pub(super) struct PausedDays(HashMap<(String, i32), DayPause>);

#[derive(Debug)]
struct DayPause {
    until: Instant,
    pause: Duration,
}

impl PausedDays {
    /// Tells whether a day is paused now.
    pub(super) fn rests(&self, table: &str, day: i32) -> bool {
        self.0.get(&(table.to_owned(), day)).is_some_and(|rest| Instant::now() < rest.until)
    }

    /// Pauses a day and returns for how long. With `longer`, the attempt was expensive, so the pauses grow.
    pub(super) fn failed(&mut self, table: &str, day: i32, longer: bool) -> Duration {
        let now = Instant::now();
        let rest = self.0.entry((table.to_owned(), day)).or_insert(DayPause { until: now, pause: FIRST / 2 });
        rest.pause = if longer { (rest.pause * 2).min(LONGEST) } else { rest.pause.max(FIRST) };
        rest.until = now + rest.pause;
        rest.pause
    }

    /// Ends the pauses of a day that was compacted.
    pub(super) fn succeeded(&mut self, table: &str, day: i32) {
        self.0.remove(&(table.to_owned(), day));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut resting = PausedDays::default();
        assert!(!resting.rests("logs", 7));
        let pauses: Vec<u64> = (0..9).map(|_| resting.failed("logs", 7, true).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        assert!(resting.rests("logs", 7) && !resting.rests("logs", 8) && !resting.rests("spans", 7));
        resting.succeeded("logs", 7);
        assert!(!resting.rests("logs", 7));
        assert_eq!([false, false, true].map(|longer| resting.failed("logs", 7, longer)), [FIRST, FIRST, FIRST * 2]);
    }
}
