//! Limits how many new series one service may create (promise L8), so that a cardinality explosion hurts nobody else.
//!
//! A series counts once an hour, however often it leaves the live generations and returns: clients repeat all series
//! with each scrape, and flushes happen whenever memory requires it, so existing series must go on. There are two
//! limits: a number per hour, which is a setting, and a share of the registry's space. Once half of the space is used,
//! a service with more than half of the live series gets no new ones (above three quarters, not even those it had
//! before), so that there is always space for others.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use quiver_types::{Millis, SeriesId};
use tracing::warn;

use crate::registry::Fill;

const HOUR_MS: i64 = 3_600_000;
/// Estimated memory of a remembered series.
const REMEMBERED_BYTES: usize = 16;
/// One in this many bytes of the registry's space is used to remember series.
const REMEMBERED_SHARE: usize = 16;

/// The series that services created in the current hour.
#[derive(Debug, Default)]
pub(crate) struct SeriesQuota {
    hour: i64,
    brought: HashMap<String, ServiceSeries>,
    /// Number of series in all sets.
    remembered: usize,
}

#[derive(Debug, Default)]
struct ServiceSeries {
    series: u64,
    /// Upper halves of the ids of its series, which are practically unique.
    ids: HashSet<u64, RandomState>,
    /// Whether this was logged.
    told: bool,
}

impl SeriesQuota {
    /// Switches to the hour of a time; counts start over with each hour.
    pub(crate) fn at(&mut self, now: Millis) -> &mut Self {
        let hour = now.div_euclid(HOUR_MS);
        if hour != self.hour {
            *self = Self { hour, ..Self::default() };
        }
        self
    }

    /// Tells whether another series of a service, which no generation contains, is accepted; counts it unless it
    /// existed within the hour. `per_hour` = 0 means no limit.
    pub(crate) fn admit(&mut self, service: &str, id: SeriesId, per_hour: u64, fill: Fill) -> bool {
        let brought = self.brought.entry_ref(service).or_default();
        let short = (id.0 >> 64) as u64;
        let known = brought.ids.contains(&short);
        let over_number = !known && per_hour > 0 && brought.series >= per_hour;
        let room = if known { fill.bytes_max / 4 * 3 } else { fill.bytes_max / 2 };
        let over_share = fill.bytes > room && brought.series > fill.series as u64 / 2;
        if !over_number && !over_share {
            brought.series += u64::from(!known);
            // Without space to remember them, returning series count again.
            if !known && self.remembered < fill.bytes_max / REMEMBERED_SHARE / REMEMBERED_BYTES {
                self.remembered += 1;
                brought.ids.insert(short);
            }
            return true;
        }
        if !std::mem::replace(&mut brought.told, true) {
            let series = brought.series;
            warn!(service, series, over_share, "a service brings too many new series; more of them are refused");
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Fill = Fill { bytes: 0, bytes_max: 1 << 20, series: 0 };

    fn id(n: u64) -> SeriesId {
        SeriesId(u128::from(n) << 64)
    }

    #[test]
    fn a_number_per_hour_and_service() {
        let mut quota = SeriesQuota::default();
        let mut taken = |now, service, ids: std::ops::Range<u64>| {
            ids.filter(|&n| quota.at(now).admit(service, id(n), 10, ROOM)).count()
        };
        assert_eq!(taken(0, "a", 0..30), 10);
        assert_eq!(taken(1, "b", 0..4), 4);
        assert_eq!(taken(2, "b", 4..34), 6);
        assert_eq!(taken(3, "a", 0..30), 10, "what was there comes back");
        assert_eq!(taken(HOUR_MS - 1, "a", 30..31), 0);
        assert_eq!(taken(HOUR_MS, "a", 20..50), 10, "a new hour");
        assert!((0..100).all(|n| SeriesQuota::default().admit("a", id(n), 0, ROOM)), "0 is no bound");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut quota = SeriesQuota::default();
        let fill = Fill { bytes_max: REMEMBERED_SHARE * REMEMBERED_BYTES * 5, ..ROOM };
        let mut taken = |ids: std::ops::Range<u64>| ids.filter(|&n| quota.admit("a", id(n), 10, fill)).count();
        assert_eq!(taken(0..8), 8);
        assert_eq!(taken(0..8), 5 + 2, "three count again, two of them within the number");
        assert_eq!(quota.remembered, 5);
    }

    #[test]
    fn a_share_of_a_crowded_registry() {
        let mut quota = SeriesQuota::default();
        let fill = |bytes, series| Fill { bytes, bytes_max: 100_000, series };
        for n in 0..60 {
            assert!(quota.admit("bomb", id(n), 0, fill(n as usize * 800, n as usize)));
        }
        assert!(!quota.admit("bomb", id(60), 0, fill(50_001, 60)));
        assert!(quota.admit("bomb", id(5), 0, fill(50_001, 60)), "it was there");
        assert!(!quota.admit("bomb", id(5), 0, fill(75_001, 60)));
        assert!(quota.admit("other", id(61), 0, fill(75_001, 60)), "nobody else is hurt");
        assert!(quota.admit("bomb", id(60), 0, fill(49_999, 60)), "there is room again");
    }
}
