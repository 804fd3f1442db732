//! What a query requests of roll-ups, and what of it the caller may see.

use serde::{Deserialize, Serialize};

use super::{EdgeKind, HOUR_MINUTES, RollupKind, RollupRow, UNLISTED};
use crate::Access;

/// Stands for the names of services that a caller may not see.
pub const HIDDEN: &str = "(hidden)";

/// A closed range of minutes of some kinds of rows. Of counts there are hours where the range has whole ones, and
/// minutes for the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RollupRequest {
    /// Nodes, edges and open spans.
    Graph(i64, i64),
    /// Operations of whole hours.
    Operations(i64, i64),
    /// Instances of whole hours.
    Instances(i64, i64),
    /// Operations of any time, of which only the services count: rows may stand for all operations of one.
    Services,
}

/// Gives the whole hours of a closed range of minutes as one, if there are any.
fn whole_hours((from, to): (i64, i64)) -> Option<(i64, i64)> {
    let first = from.saturating_add(HOUR_MINUTES - 1).div_euclid(HOUR_MINUTES).saturating_mul(HOUR_MINUTES);
    let last = to.saturating_add(1).div_euclid(HOUR_MINUTES).saturating_mul(HOUR_MINUTES);
    (first < last).then(|| (first, last - 1))
}

impl RollupRequest {
    /// Gives which kinds of rows are wanted, and of which minutes, both included.
    pub fn ranges(&self) -> Vec<(RollupKind, (i64, i64))> {
        match *self {
            Self::Operations(from, to) => {
                whole_hours((from, to)).map(|r| (RollupKind::Operation, r)).into_iter().collect()
            }
            Self::Services => vec![(RollupKind::Operation, (i64::MIN, i64::MAX))],
            Self::Instances(from, to) => {
                whole_hours((from, to)).map(|r| (RollupKind::Instance, r)).into_iter().collect()
            }
            Self::Graph(from, to) => {
                let mut all = vec![(RollupKind::Open, (from, to))];
                match whole_hours((from, to)) {
                    None => {
                        all.push((RollupKind::NodeMinute, (from, to)));
                        all.push((RollupKind::EdgeMinute, (from, to)));
                    }
                    Some((first, last)) => {
                        all.push((RollupKind::NodeHour, (first, last)));
                        all.push((RollupKind::EdgeHour, (first, last)));
                        for rest in [(from, first - 1), (last + 1, to)] {
                            if rest.0 <= rest.1 {
                                all.push((RollupKind::NodeMinute, rest));
                                all.push((RollupKind::EdgeMinute, rest));
                            }
                        }
                    }
                }
                all
            }
        }
    }

    /// Gives a range that holds all of them.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.ranges().into_iter().map(|r| r.1).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Says whether a row is asked for.
    pub fn wants(&self, kind: RollupKind, minute: i64) -> bool {
        self.ranges().iter().any(|(k, (from, to))| *k == kind && (*from..=*to).contains(&minute))
    }
}

impl RollupRow {
    /// Gives a row as somebody may see it: what is not his to see is called [`HIDDEN`], and calls between such are left
    /// out. Open rows stay, for whoever puts roll-ups together.
    #[must_use]
    pub fn seen_by(mut self, access: &Access) -> Option<Self> {
        if access.is_full() || self.kind == RollupKind::Open {
            return Some(self);
        }
        let edge = matches!(self.kind, RollupKind::EdgeHour | RollupKind::EdgeMinute);
        match EdgeKind::of(self.sort).filter(|_| edge) {
            None => (self.sort == UNLISTED || access.allows(&self.service)).then_some(self),
            Some(EdgeKind::User) => access.allows(&self.peer).then_some(self),
            Some(EdgeKind::Service) => {
                let sees = [access.allows(&self.service), access.allows(&self.peer)];
                if sees == [false, false] {
                    return None;
                }
                if !sees[0] {
                    HIDDEN.clone_into(&mut self.service);
                }
                if !sees[1] {
                    HIDDEN.clone_into(&mut self.peer);
                }
                Some(self)
            }
            Some(EdgeKind::Database | EdgeKind::Queue | EdgeKind::External) => {
                access.allows(&self.service).then_some(self)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_hours_and_the_rest() {
        assert_eq!(whole_hours((0, 59)), Some((0, 59)));
        assert_eq!(whole_hours((1, 118)), None);
        assert_eq!(whole_hours((-61, 70)), Some((-60, 59)));
        let graph = RollupRequest::Graph(50, 190);
        for (kind, minute, wanted) in [
            (RollupKind::NodeMinute, 50, true),
            (RollupKind::NodeMinute, 59, true),
            (RollupKind::NodeMinute, 60, false),
            (RollupKind::EdgeHour, 60, true),
            (RollupKind::EdgeHour, 120, true),
            (RollupKind::EdgeHour, 180, false),
            (RollupKind::EdgeMinute, 190, true),
            (RollupKind::Open, 100, true),
            (RollupKind::Operation, 60, false),
        ] {
            assert_eq!(graph.wants(kind, minute), wanted, "{kind:?} {minute}");
        }
        assert_eq!(graph.bounds(), Some((50, 190)));
        assert_eq!(RollupRequest::Operations(1, 50).bounds(), None);
    }

    #[test]
    fn what_may_not_be_seen_has_no_name() {
        let access = Access::services(["cart"]);
        let edge = |kind: EdgeKind, service: &str, peer: &str| {
            let (service, peer) = (service.to_owned(), peer.to_owned());
            let counts = crate::spans::Counts::default();
            RollupRow { kind: RollupKind::EdgeHour, minute: 0, service, peer, sort: kind as u8, counts, ids: None }
        };
        let seen = |row: RollupRow| row.seen_by(&access).map(|row| format!("{} {}", row.service, row.peer));
        for (kind, service, peer, expected) in [
            (EdgeKind::Service, "cart", "pay", Some("cart (hidden)")),
            (EdgeKind::Service, "front", "cart", Some("(hidden) cart")),
            (EdgeKind::Service, "cart", "cart", Some("cart cart")),
            (EdgeKind::Service, "front", "pay", None),
            (EdgeKind::User, "", "cart", Some(" cart")),
            (EdgeKind::User, "", "pay", None),
            (EdgeKind::Database, "cart", "db", Some("cart db")),
            (EdgeKind::Queue, "pay", "cart", None),
        ] {
            let row = edge(kind, service, peer);
            assert_eq!(seen(row.clone()).as_deref(), expected, "{kind:?} {service} {peer}");
            assert_eq!(row.clone().seen_by(&Access::full()), Some(row), "all of it");
        }
        // Of other rows the sort is no kind of edge, and open ones stay.
        let node = |service: &str| RollupRow { kind: RollupKind::NodeHour, ..edge(EdgeKind::User, service, "") };
        assert!(seen(node("cart")).is_some() && seen(node("pay")).is_none());
        assert!(seen(RollupRow { kind: RollupKind::Open, ..node("pay") }).is_some());
        assert!(RollupRow::unlisted(RollupKind::Operation, 0).seen_by(&access).is_some());
    }

    #[test]
    fn ranges_at_the_ends_of_time() {
        for request in [
            RollupRequest::Graph(i64::MIN, i64::MAX),
            RollupRequest::Operations(i64::MIN, i64::MAX),
            RollupRequest::Instances(i64::MIN, i64::MAX),
        ] {
            assert!(request.bounds().is_some_and(|(from, to)| from < to), "{request:?}");
        }
        assert_eq!(RollupRequest::Services.bounds(), Some((i64::MIN, i64::MAX)));
        assert_eq!(RollupRequest::Graph(5, 4).bounds(), Some((5, 4)), "an empty range stays empty");
        assert_eq!(RollupRequest::Instances(0, 119).ranges(), [(RollupKind::Instance, (0, 119))]);
        // Hours and minutes cover the range, and nothing twice.
        let graph = RollupRequest::Graph(50, 190);
        for minute in 0..250 {
            let hour = graph.wants(RollupKind::NodeHour, minute);
            let single = graph.wants(RollupKind::NodeMinute, minute);
            assert_eq!((hour || single, hour && single), ((50..=190).contains(&minute), false), "{minute}");
        }
    }
}
