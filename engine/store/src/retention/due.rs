//! Which parts go: days past the retention of their table, and the oldest days of a store that is too large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quiver_types::Millis;
use quiver_types::time::{DAY_MS, day_name, day_of};

use crate::part::{Part, PartMeta, Place};
use crate::settings::StoreSettings;
use crate::snapshot::Visible;

/// Most days of a table that one round drops for their age: a mistake is seen before it is complete.
const DAYS_MAX: usize = 7;

/// What the store does not have yet goes there first: its commit object waits for it.
fn stored(part: &PartMeta) -> bool {
    part.place == Place::Store
}

/// Gives the parts whose day is past the retention of its table at `time`, of the oldest days that are.
pub(super) fn past(settings: &StoreSettings, now: &Visible, time: Millis) -> Vec<Arc<Part>> {
    let past = |part: &PartMeta| {
        let Some(retention) = settings.retention_of(&part.table) else { return false };
        let keep_from = time.saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        (i64::from(part.day) + 1) * DAY_MS <= keep_from && stored(part)
    };
    let mut days: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    // Sorted by table and day: the first days that come are the oldest.
    let chosen = now.parts.iter().filter(|p| past(&p.meta)).filter(|p| {
        let days = days.entry(&p.meta.table).or_default();
        days.contains(&p.meta.day) || (days.len() < DAYS_MAX && days.insert(p.meta.day))
    });
    chosen.map(Arc::clone).collect()
}

/// Gives the parts of the oldest days, of all tables, without which the store has at most `limit` bytes. The newest day
/// stays, whatever its size, and so does the newest that is not after `time`: that one is being written, though somebody
/// may have sent rows of days to come.
pub(super) fn over(limit: u64, now: &Visible, time: Millis) -> Vec<Arc<Part>> {
    let mut bytes: u64 = now.parts.iter().map(|p| p.meta.bytes).sum();
    let newest = |last: i32| now.parts.iter().map(|p| p.meta.day).filter(|&day| day <= last).max();
    let kept = [newest(i32::MAX), newest(day_of(time))];
    let mut days: BTreeMap<i32, Vec<&Arc<Part>>> = BTreeMap::new();
    for part in now.parts.iter().filter(|p| stored(&p.meta) && !kept.contains(&Some(p.meta.day))) {
        days.entry(part.meta.day).or_default().push(part);
    }
    let mut chosen = Vec::new();
    for parts in days.into_values() {
        if bytes <= limit {
            break;
        }
        bytes -= parts.iter().map(|p| p.meta.bytes).sum::<u64>();
        chosen.extend(parts.into_iter().map(Arc::clone));
    }
    chosen
}

/// Gives the first and the last day of parts, for the log.
pub(super) fn days(parts: &[Arc<Part>]) -> (String, String) {
    let name = |day: Option<i32>| day.map_or_else(String::new, day_name);
    let days = || parts.iter().map(|p| p.meta.day);
    (name(days().min()), name(days().max()))
}
