//! Selects the parts to drop: days past the retention of their table, and the oldest days of a store that is too large.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quiver_types::Millis;
use quiver_types::time::{DAY_MS, day_name, day_of};

use crate::part::{Part, PartMeta, Place};
use crate::settings::StoreSettings;
use crate::snapshot::Visible;

/// Maximum number of days of a table that one round drops for their age, so that a wrong setting is noticed before
/// everything is gone.
const DAYS_MAX: usize = 7;

/// Whether a part has been uploaded. Others are uploaded first, because their commit object waits for that.
fn stored(part: &PartMeta) -> bool {
    part.place == Place::Store
}

/// The parts whose day is past the retention of its table at `time`; only the oldest such days.
pub(super) fn past(settings: &StoreSettings, now: &Visible, time: Millis) -> Vec<Arc<Part>> {
    let past = |part: &PartMeta| {
        let Some(retention) = settings.retention_of(&part.table) else { return false };
        let keep_from = time.saturating_sub(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX));
        (i64::from(part.day) + 1) * DAY_MS <= keep_from && stored(part)
    };
    let mut days: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    // Parts are sorted by table and day, so the first days are the oldest.
    let chosen = now.parts.iter().filter(|p| past(&p.meta)).filter(|p| {
        let days = days.entry(&p.meta.table).or_default();
        days.contains(&p.meta.day) || (days.len() < DAYS_MAX && days.insert(p.meta.day))
    });
    chosen.map(Arc::clone).collect()
}

/// The parts of the oldest days, over all tables, that must go so that the store has at most `limit` bytes. Keeps the
/// newest day, whatever its size, and also the newest day that is not after `time`: it is being written, even if
/// someone sent rows dated in the future.
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

/// Names of the first and the last day of parts, for the log.
pub(super) fn days(parts: &[Arc<Part>]) -> (String, String) {
    let name = |day: Option<i32>| day.map_or_else(String::new, day_name);
    let days = || parts.iter().map(|p| p.meta.day);
    (name(days().min()), name(days().max()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::cache::Caches;
    use crate::io::LocalIo;
    use crate::part::testing::part_meta;

    const DAY: Duration = Duration::from_hours(24);

    /// Of a part: table, day, bytes, where it is.
    type Told = (&'static str, i32, u64, Place);

    fn visible(parts: &[Told]) -> Visible {
        let (io, caches) = (Arc::new(LocalIo::new(Path::new("/no"), Path::new("/no"))), Arc::new(Caches::local(0)));
        let part = |(id, &(table, day, bytes, place)): (u128, &Told)| {
            let at = i64::from(day) * DAY_MS;
            let meta = PartMeta { day, place, min_ts: at, max_ts: at, bytes, ..part_meta(id, table) };
            Arc::new(Part::new(meta, Arc::clone(&io) as _, Arc::clone(&caches)))
        };
        let mut parts: Vec<Arc<Part>> = (0..).zip(parts).map(part).collect();
        Visible::sort_parts(&mut parts);
        Visible { parts: Arc::new(parts), ..Visible::default() }
    }

    fn told(parts: &[Arc<Part>]) -> Vec<(&str, i32)> {
        parts.iter().map(|part| (part.meta.table.as_str(), part.meta.day)).collect()
    }

    #[test]
    fn a_day_is_past_when_all_of_it_is() {
        let now = visible(&[
            ("metrics", 6, 1, Place::Store),
            ("metrics", 7, 1, Place::Store),
            ("metrics", 7, 1, Place::Spool),
            ("metrics", 8, 1, Place::Store),
            ("logs", 0, 1, Place::Store),
            ("spans", 9, 1, Place::Store),
            ("spans", 10, 1, Place::Store),
        ]);
        let mut settings = StoreSettings { retention: Some(2 * DAY), ..StoreSettings::default() };
        settings.table_retention.insert("logs".to_owned(), None);
        settings.table_retention.insert("spans".to_owned(), Some(Duration::ZERO));
        let at = |time: Millis| past(&settings, &now, time);
        assert!(at(9 * DAY_MS - 1).is_empty());
        assert_eq!(told(&at(9 * DAY_MS)), [("metrics", 6)]);
        assert_eq!(told(&at(10 * DAY_MS - 1)), [("metrics", 6)]);
        assert_eq!(told(&at(10 * DAY_MS)), [("metrics", 6), ("metrics", 7), ("spans", 9)]);
        // However long it is kept, and whatever the clock says, nothing overflows.
        assert!(at(i64::MIN).is_empty());
        assert_eq!(at(i64::MAX).len(), 5, "all that is in the store, but those that are kept for ever");
        let for_ever = StoreSettings { retention: Some(Duration::MAX), ..StoreSettings::default() };
        assert!(past(&for_ever, &now, i64::MAX).is_empty());
        assert!(past(&StoreSettings { retention: None, ..for_ever }, &now, i64::MAX).is_empty());
    }

    /// A clock that is wrong drops some days in a round, of each table the oldest.
    #[test]
    fn a_round_drops_some_days_with_all_their_parts() {
        let mut parts: Vec<Told> = Vec::new();
        for day in (0..20).rev() {
            parts.extend([("metrics", day, 1, Place::Store), ("metrics", day, 1, Place::Store)]);
        }
        parts.extend((5..8).map(|day| ("spans", day, 1, Place::Store)));
        let settings = StoreSettings { retention: Some(DAY), ..StoreSettings::default() };
        let now = visible(&parts);
        let chosen = past(&settings, &now, 1000 * DAY_MS);
        let expected = (0..14).map(|n| ("metrics", n / 2)).chain((5..8).map(|day| ("spans", day)));
        assert_eq!(told(&chosen), expected.collect::<Vec<_>>());
        assert_eq!(days(&chosen), ("1970-01-01".to_owned(), "1970-01-08".to_owned()));
        assert_eq!(days(&[]), (String::new(), String::new()));
    }

    #[test]
    fn the_oldest_days_go_until_the_rest_fits() {
        let now = visible(&[
            ("logs", 1, 30, Place::Store),
            ("metrics", 1, 20, Place::Store),
            ("metrics", 2, 10, Place::Store),
            ("metrics", 2, 5, Place::Spool),
            ("metrics", 3, 40, Place::Store),
            ("logs", 4, 100, Place::Store),
        ]);
        let time = 4 * DAY_MS + 7;
        let over = |limit: u64| over(limit, &now, time);
        assert!(over(u64::MAX).is_empty() && over(205).is_empty());
        // A day goes as a whole, of all tables.
        assert_eq!(told(&over(204)), [("logs", 1), ("metrics", 1)]);
        assert_eq!(told(&over(155)), [("logs", 1), ("metrics", 1)]);
        // What waits for its upload counts, and stays.
        assert_eq!(told(&over(154)), [("logs", 1), ("metrics", 1), ("metrics", 2)]);
        assert_eq!(told(&over(144)), [("logs", 1), ("metrics", 1), ("metrics", 2), ("metrics", 3)]);
        // The newest day stays, whatever its size.
        assert_eq!(over(0).len(), 4);
    }

    #[test]
    fn days_to_come_do_not_make_today_an_old_one() {
        let now = visible(&[
            ("logs", 9, 10, Place::Store),
            ("logs", 10, 10, Place::Store),
            ("logs", 5000, 10, Place::Store),
            ("logs", 6000, 10, Place::Store),
        ]);
        let at = |time: Millis| over(0, &now, time).iter().map(|part| part.meta.day).collect::<Vec<_>>();
        assert_eq!(at(10 * DAY_MS), [9, 5000]);
        assert_eq!(at(11 * DAY_MS), [9, 5000], "nothing was written today");
        assert_eq!(at(9 * DAY_MS), [10, 5000]);
        // The clock is behind all of them, or before them.
        assert_eq!(at(9000 * DAY_MS), [9, 10, 5000]);
        assert_eq!(at(0), [9, 10, 5000]);
        assert!(over(0, &visible(&[]), 0).is_empty());
    }
}
