//! How many new series one service may bring (promise L8): a cardinality bomb is cut, and hurts nobody else.
//!
//! A series is new when no live generation holds it; what is there already goes on. Two bounds: a number per hour, which
//! is a setting, and a share of the registry's room: once half of it is taken, a service that brought more than half
//! of what is live gets no more, so that there is always room for the others.

use hashbrown::HashMap;
use quiver_types::Millis;
use tracing::warn;

use crate::registry::Fill;

const HOUR_MS: i64 = 3_600_000;

/// Counts what services brought in the hour at hand.
#[derive(Debug, Default)]
pub(crate) struct SeriesQuota {
    hour: i64,
    brought: HashMap<String, Brought>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Brought {
    series: u64,
    /// Whether the log has it already.
    told: bool,
}

impl SeriesQuota {
    /// Turns to the hour of a time; counts begin anew with each.
    pub(crate) fn at(&mut self, now: Millis) -> &mut Self {
        let hour = now.div_euclid(HOUR_MS);
        if hour != self.hour {
            self.hour = hour;
            self.brought.clear();
        }
        self
    }

    /// Says whether one more new series of a service is let in, and counts it. `per_hour` 0 is no bound.
    pub(crate) fn admit(&mut self, service: &str, per_hour: u64, fill: Fill) -> bool {
        let brought = self.brought.entry_ref(service).or_default();
        let over_number = per_hour > 0 && brought.series >= per_hour;
        let crowded = fill.bytes > fill.bytes_max / 2;
        let over_share = crowded && brought.series > fill.series as u64 / 2;
        if !over_number && !over_share {
            brought.series += 1;
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

    const ROOM: Fill = Fill { bytes: 0, bytes_max: 1000, series: 0 };

    #[test]
    fn a_number_per_hour_and_service() {
        let mut quota = SeriesQuota::default();
        let mut taken = |now, service, n| (0..n).filter(|_| quota.at(now).admit(service, 10, ROOM)).count();
        assert_eq!(taken(0, "a", 30), 10);
        assert_eq!(taken(1, "b", 4), 4);
        assert_eq!(taken(2, "b", 30), 6);
        assert_eq!(taken(HOUR_MS - 1, "a", 1), 0);
        assert_eq!(taken(HOUR_MS, "a", 30), 10, "a new hour");
        assert!((0..100).all(|_| SeriesQuota::default().admit("a", 0, ROOM)), "0 is no bound");
    }

    #[test]
    fn a_share_of_a_crowded_registry() {
        let mut quota = SeriesQuota::default();
        let fill = |bytes, series| Fill { bytes, bytes_max: 1000, series };
        for n in 0..60 {
            assert!(quota.admit("bomb", 0, fill(n * 8, n)));
        }
        assert!(!quota.admit("bomb", 0, fill(501, 60)));
        assert!(quota.admit("other", 0, fill(501, 60)), "nobody else is hurt");
        assert!(quota.admit("bomb", 0, fill(499, 60)), "there is room again");
    }
}
