//! Adds up roll-ups row by row, by the key of a row. What was added can also be subtracted.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::builder::LISTED_MAX;
use super::{HOUR_MINUTES, RollupKind, RollupRow, UNLISTED};
use crate::spans::{SpanId, TraceId};

/// Rows of roll-ups, one for each thing that they are about, with the counts of all that were added.
#[derive(Debug, Default)]
pub struct RollupSum(HashTable<RollupRow>);

/// Kind, minute, service, peer, sort, ids: what a row is about.
type RollupKey<'r> = (RollupKind, i64, &'r str, &'r str, u8, Option<(TraceId, SpanId, SpanId)>);

fn about(row: &RollupRow) -> RollupKey<'_> {
    (row.kind, row.minute, &row.service, &row.peer, row.sort, row.ids)
}

fn hash(row: &RollupRow) -> u64 {
    FixedState::default().hash_one(about(row))
}

impl RollupSum {
    /// Adds a row.
    pub fn add(&mut self, row: RollupRow) {
        match self.0.entry(hash(&row), |other| about(other) == about(&row), hash) {
            Entry::Occupied(of) => of.into_mut().counts.merge(&row.counts),
            Entry::Vacant(free) => drop(free.insert(row)),
        }
    }

    /// Takes a row out that was added as it is or as part of another ([`super::Counts::remove`]).
    pub fn remove(&mut self, row: &RollupRow) {
        if let Some(of) = self.0.find_mut(hash(row), |other| about(other) == about(row)) {
            of.counts.remove(&row.counts);
        }
    }

    /// Gives the rows, sorted as [`super::RollupBuilder::rows`] sorts them.
    pub fn rows(self) -> Vec<RollupRow> {
        let mut rows: Vec<RollupRow> =
            self.0.into_iter().filter(|row| row.counts.spans > 0 || row.sort == UNLISTED).collect();
        for kind in [RollupKind::Operation, RollupKind::Instance] {
            if rows.iter().filter(|row| row.kind == kind).count() > LISTED_MAX {
                unlist(kind, &mut rows);
            }
        }
        rows.sort_by(|a, b| about(a).cmp(&about(b)));
        rows
    }
}

/// Puts in place of the rows of a kind that there are too many, for each hour of which there are spans.
fn unlist(kind: RollupKind, rows: &mut Vec<RollupRow>) {
    rows.retain(|row| row.kind != kind);
    let nodes = rows.iter().filter(|row| row.kind == RollupKind::NodeHour);
    let mut hours: Vec<i64> = nodes.map(|row| row.minute.div_euclid(HOUR_MINUTES) * HOUR_MINUTES).collect();
    hours.sort_unstable();
    hours.dedup();
    rows.extend(hours.into_iter().map(|hour| RollupRow::unlisted(kind, hour)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::Counts;

    fn row(kind: RollupKind, minute: i64, service: &str, peer: &str, spans: u64) -> RollupRow {
        let counts = Counts { spans, seen: (minute, minute), ..Counts::default() };
        RollupRow { kind, minute, service: service.to_owned(), peer: peer.to_owned(), sort: 0, counts, ids: None }
    }

    fn told(sum: RollupSum) -> Vec<(RollupKind, i64, String, u64)> {
        sum.rows()
            .into_iter()
            .map(|row| (row.kind, row.minute, row.service + "/" + &row.peer, row.counts.spans))
            .collect()
    }

    #[test]
    fn rows_about_one_thing_are_one() {
        use RollupKind::{EdgeHour, NodeHour};
        let mut sum = RollupSum::default();
        for (kind, minute, service, peer, spans) in [
            (NodeHour, 60, "b", "", 1),
            (EdgeHour, 0, "a", "b", 2),
            (NodeHour, 0, "b", "", 3),
            (NodeHour, 60, "b", "", 4),
        ] {
            sum.add(row(kind, minute, service, peer, spans));
        }
        sum.remove(&row(EdgeHour, 0, "a", "b", 1));
        // What was never added takes nothing away.
        sum.remove(&row(EdgeHour, 0, "a", "c", 1));
        sum.remove(&RollupRow { sort: 3, ..row(EdgeHour, 0, "a", "b", 1) });
        let expected = [(NodeHour, 0, "b/", 3), (NodeHour, 60, "b/", 5), (EdgeHour, 0, "a/b", 1)]
            .map(|(kind, minute, name, spans)| (kind, minute, name.to_owned(), spans));
        assert_eq!(told(sum), expected);
    }

    #[test]
    fn rows_of_nothing_are_left_out_unless_they_say_so() {
        let mut sum = RollupSum::default();
        sum.add(row(RollupKind::NodeHour, 0, "a", "", 2));
        sum.remove(&row(RollupKind::NodeHour, 0, "a", "", 2));
        sum.add(RollupRow::unlisted(RollupKind::Operation, 60));
        let rows = sum.rows();
        assert_eq!(rows, [RollupRow::unlisted(RollupKind::Operation, 60)]);
    }

    #[test]
    fn ids_tell_open_rows_apart() {
        let open =
            |span: u8| RollupRow { ids: Some(([1; 16], [span; 8], [9; 8])), ..row(RollupKind::Open, 0, "a", "", 1) };
        let mut sum = RollupSum::default();
        for span in [2, 1, 2] {
            sum.add(open(span));
        }
        let rows = sum.rows();
        let found: Vec<_> = rows.iter().map(|row| (row.ids.map(|ids| ids.1[0]), row.counts.spans)).collect();
        assert_eq!(found, [(Some(1), 1), (Some(2), 2)]);
    }

    #[test]
    fn too_many_operations_are_told_hour_by_hour() {
        let mut sum = RollupSum::default();
        for hour in [0, 60, 180] {
            sum.add(row(RollupKind::NodeHour, hour, "a", "", 1));
        }
        sum.add(row(RollupKind::Instance, 0, "a", "one", 1));
        (0..=LISTED_MAX).for_each(|n| sum.add(row(RollupKind::Operation, 60, "a", &n.to_string(), 1)));
        let rows = sum.rows();
        let operations: Vec<&RollupRow> = rows.iter().filter(|row| row.kind == RollupKind::Operation).collect();
        assert!(operations.iter().all(|row| row.sort == UNLISTED));
        assert_eq!(operations.iter().map(|row| row.minute).collect::<Vec<_>>(), [0, 60, 180], "each that has spans");
        assert_eq!(rows.iter().filter(|row| row.kind == RollupKind::Instance).count(), 1, "of those there are few");
    }
}
