//! Records which times were written to and when, so that a result cache can tell whether its data has changed.
//!
//! Flush and compaction move rows without changing them, so only writes and dropped days count; spans that are
//! rewritten with other attributes count as dropped. A write leaves its sequence number at the minutes of its rows (at
//! the days, if it touches many minutes). A result made from a snapshot is still valid for a range if no number there
//! is above that of the snapshot. Metrics, logs and spans each have a log, so that writes of one do not invalidate
//! results over another.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use quiver_types::time::{DAY_MS, day_of};
use quiver_types::{Millis, MillisRange};

const MINUTE_MS: Millis = 60_000;
/// A write that touches more minutes than this is recorded by days.
const MINUTES_MAX: i64 = 180;
/// Most minutes and days in the log. Beyond that the oldest writes are forgotten, and results of older snapshots count
/// as changed.
const ENTRIES_MAX: usize = 1 << 16;

/// The log of changes to one kind of data.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    minutes: BTreeMap<i64, u64>,
    days: BTreeMap<i64, u64>,
    /// Writes up to this number may be missing here.
    forgotten: u64,
}

impl ChangeLog {
    /// Records the times of a write. Must be called before the write becomes visible.
    pub(crate) fn note(&self, seq: u64, times: impl Iterator<Item = Millis>) {
        let Some((min, max)) = times.fold(None, |bounds: Option<(Millis, Millis)>, t| {
            Some(bounds.map_or((t, t), |(min, max)| (min.min(t), max.max(t))))
        }) else {
            return;
        };
        let mut log = self.0.lock();
        let (first, last) = (min.div_euclid(MINUTE_MS), max.div_euclid(MINUTE_MS));
        if last - first <= MINUTES_MAX {
            (first..=last).for_each(|minute| _ = log.minutes.insert(minute, seq));
        } else {
            (i64::from(day_of(min))..=i64::from(day_of(max))).for_each(|day| _ = log.days.insert(day, seq));
        }
        if log.minutes.len() + log.days.len() > ENTRIES_MAX {
            log.forgotten = seq;
            log.minutes.clear();
            log.days.clear();
        }
    }

    /// Gives the earliest time of a range at which something may have been written after a sequence number.
    pub(crate) fn first_after(&self, seq: u64, range: MillisRange) -> Option<Millis> {
        let log = self.0.lock();
        if range.min > range.max {
            return None;
        }
        if seq < log.forgotten {
            return Some(range.min);
        }
        let first = |map: &BTreeMap<i64, u64>, unit: Millis| {
            let mut entries = map.range(range.min.div_euclid(unit)..=range.max.div_euclid(unit));
            entries.find(|&(_, &at)| at > seq).map(|(&n, _)| (n * unit).max(range.min))
        };
        [first(&log.minutes, MINUTE_MS), first(&log.days, DAY_MS)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_found_by_their_times() {
        let log = ChangeLog::default();
        let minute = |n: i64| n * MINUTE_MS;
        let after = |seq, min, max| log.first_after(seq, MillisRange::new(min, max));
        log.note(1, [minute(10), minute(12) + 5].into_iter());
        log.note(2, [minute(20)].into_iter());
        log.note(3, std::iter::empty());
        assert_eq!(after(0, 0, minute(100)), Some(minute(10)));
        assert_eq!(after(1, 0, minute(100)), Some(minute(20)));
        assert_eq!(after(2, 0, minute(100)), None);
        assert_eq!(after(0, minute(11) + 7, minute(11) + 9), Some(minute(11) + 7), "within a minute");
        assert_eq!(after(0, minute(13), minute(19)), None);
        log.note(4, [0, 3 * DAY_MS].into_iter());
        assert_eq!(after(3, DAY_MS + 5, 9 * DAY_MS), Some(DAY_MS + 5));
        assert_eq!(after(3, 4 * DAY_MS, 9 * DAY_MS), None);
        assert_eq!(after(3, 9, 8), None, "nothing is in an empty range");
        (0..=ENTRIES_MAX as i64).for_each(|n| log.note(5, [minute(n)].into_iter()));
        assert_eq!(after(4, DAY_MS * 900, DAY_MS * 901), Some(DAY_MS * 900), "what is forgotten counts as changed");
        assert_eq!(after(5, DAY_MS * 900, DAY_MS * 901), None);
    }
}
