//! Decides which metadata of metrics to write: what changed, or was not written today yet.
//!
//! The remembered metadata is limited, and with it what the parts of a day contain, because whoever reads or merges
//! metadata holds it in memory. Beyond the limit, metadata of further metrics is dropped until the end of the day;
//! their samples are not affected.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::Millis;
use quiver_types::metrics::MetricMetadata;
use quiver_types::time::day_of;
use tracing::warn;

use crate::metrics::METRICS;

/// Memory of a metric's metadata besides its texts, wherever it is held.
const ENTRY_BYTES: usize = 160;

/// The last metadata of a metric of a service.
#[derive(Debug)]
struct LastMetadata {
    /// Hash of type, help and unit; `None` if it is uncertain whether it was written.
    hash: Option<u64>,
    ts: Millis,
    bytes: usize,
}

/// Remembers metadata by metric and service.
#[derive(Debug, Default)]
pub(crate) struct MetadataTracker {
    said: HashMap<(String, String), LastMetadata, FixedState>,
    bytes: usize,
    today: i32,
    /// Whether it was logged today that some is dropped.
    told: bool,
}

impl MetadataTracker {
    /// The time for the row to write; `None` if the same was written today, or if there is no space.
    pub(crate) fn admit(
        &mut self,
        metadata: &MetricMetadata,
        service: &str,
        now: Millis,
        bytes_max: usize,
    ) -> Option<Millis> {
        self.turn_to(day_of(now));
        let MetricMetadata { metric, metric_type, help, unit } = metadata;
        let hash = Some(FixedState::default().hash_one((metric_type, help, unit)));
        let key = (metric.clone(), service.to_owned());
        let last = self.said.get(&key);
        if last.is_some_and(|said| said.hash == hash && day_of(said.ts) == self.today) {
            return None;
        }
        let texts = [metric, metric_type, help, unit].map(String::len).iter().sum::<usize>();
        let bytes = ENTRY_BYTES + texts + service.len();
        let of_others = self.bytes - last.map_or(0, |said| said.bytes);
        if of_others + bytes > bytes_max {
            METRICS.refused_metadata.add(1);
            if !std::mem::replace(&mut self.told, true) {
                warn!(metric, bytes_max, "metadata of more metrics than `memory.limit` has room for is left out today");
            }
            return None;
        }
        // The newest row wins, so later metadata within the same millisecond gets a later time.
        let ts = last.map_or(now, |said| now.max(said.ts + 1));
        self.bytes = of_others + bytes;
        self.said.insert(key, LastMetadata { hash, ts, bytes });
        Some(ts)
    }

    /// Some rows may not have been written, but it is not known which: write all again when they arrive next.
    pub(crate) fn doubt(&mut self) {
        for said in self.said.values_mut() {
            said.hash = None;
        }
    }

    /// What was written before a day is written again on it.
    fn turn_to(&mut self, today: i32) {
        if today != self.today {
            self.said.retain(|_, said| day_of(said.ts) >= today);
            self.bytes = self.said.values().map(|said| said.bytes).sum();
            (self.today, self.told) = (today, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::time::DAY_MS;

    use super::*;

    fn metadata(metric: &str, help: &str) -> MetricMetadata {
        let text = str::to_owned;
        MetricMetadata { metric: text(metric), metric_type: text("gauge"), help: text(help), unit: String::new() }
    }

    #[test]
    fn changes_and_days_are_written() {
        let (mut described, now) = (MetadataTracker::default(), 10 * DAY_MS);
        let mut admit = |help: &str, service: &str, ts| described.admit(&metadata("m", help), service, ts, 1 << 20);
        assert_eq!(admit("a", "", now), Some(now));
        assert_eq!(admit("a", "", now + 5), None, "it was said today");
        assert_eq!(admit("a", "s", now + 5), Some(now + 5), "not of this service");
        assert_eq!(admit("b", "", now), Some(now + 1), "later than what it takes the place of");
        assert_eq!(admit("b", "", now + DAY_MS), Some(now + DAY_MS));
        described.doubt();
        let again = described.admit(&metadata("m", "b"), "", now + DAY_MS, 1 << 20);
        assert_eq!(again, Some(now + DAY_MS + 1));
    }

    /// However many metrics are told of, what is kept of them in a day has a bound, also over writes that fail.
    #[test]
    fn more_than_there_is_room_for_is_left_out() {
        const ROOM: usize = 100 * (ENTRY_BYTES + 20);
        let (mut described, now) = (MetadataTracker::default(), 10 * DAY_MS);
        let mut written = 0;
        for n in 0..1000 {
            written += usize::from(described.admit(&metadata(&format!("m{n}"), ""), "", now, ROOM).is_some());
            if n % 10 == 0 {
                described.doubt();
            }
        }
        assert!((80..=100 + 20).contains(&written), "{written} of 1,000");
        assert!(described.bytes <= ROOM);
        assert!(described.admit(&metadata("m0", "other"), "", now, ROOM).is_some(), "what is known may change");
        assert!(described.admit(&metadata("m0", &"x".repeat(ROOM)), "", now, ROOM).is_none(), "within the room");
        assert!(described.admit(&metadata("late", ""), "", now, ROOM).is_none());
        assert!(described.admit(&metadata("late", ""), "", now + DAY_MS, ROOM).is_some(), "the next day is another");
    }
}
