//! Puts roll-ups together row by row: what is about the same thing is added up, and can be taken out again.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::builder::LISTED_MAX;
use super::{HOUR_MINUTES, RollupKind, RollupRow, UNLISTED};
use crate::spans::{SpanId, TraceId};

/// See the module.
#[derive(Debug, Default)]
pub struct RollupSum(HashTable<RollupRow>);

/// Kind, minute, service, peer, sort, ids: what a row is about.
type About<'r> = (RollupKind, i64, &'r str, &'r str, u8, Option<(TraceId, SpanId, SpanId)>);

fn about(row: &RollupRow) -> About<'_> {
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
