//! Puts roll-ups together row by row: what is about the same thing is added up, and can be taken out again.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::builder::LISTED_MAX;
use super::{HOUR_MINUTES, RollupKind, RollupRow, UNLISTED};
use crate::spans::{SpanId, TraceId};

/// Kind, minute, service, peer, sort, ids.
type Key = (RollupKind, i64, String, String, u8, Option<(TraceId, SpanId, SpanId)>);

/// See the module.
#[derive(Debug, Default)]
pub struct RollupSum(HashMap<Key, RollupRow, FixedState>);

fn key(row: &RollupRow) -> Key {
    (row.kind, row.minute, row.service.clone(), row.peer.clone(), row.sort, row.ids)
}

impl RollupSum {
    /// Adds a row.
    pub fn add(&mut self, row: RollupRow) {
        let Some(of) = self.0.get_mut(&key(&row)) else {
            self.0.insert(key(&row), row);
            return;
        };
        of.spans += row.spans;
        of.errors += row.errors;
        of.seen = (of.seen.0.min(row.seen.0), of.seen.1.max(row.seen.1));
        of.durations.merge(&row.durations);
        if row.protocol != 0 && (of.protocol == 0 || row.protocol < of.protocol) {
            of.protocol = row.protocol;
        }
    }

    /// Takes a row out that was added as it is or as part of another. First and last start stay as they are.
    pub fn remove(&mut self, row: &RollupRow) {
        let Some(of) = self.0.get_mut(&key(row)) else { return };
        of.spans = of.spans.saturating_sub(row.spans);
        of.errors = of.errors.saturating_sub(row.errors);
        row.durations.iter().for_each(|(bucket, count)| of.durations.remove(bucket, count));
    }

    /// Gives the rows, sorted as [`super::RollupBuilder::rows`] sorts them.
    pub fn rows(self) -> Vec<RollupRow> {
        let mut rows: Vec<RollupRow> =
            self.0.into_values().filter(|row| row.spans > 0 || row.sort == UNLISTED).collect();
        for kind in [RollupKind::Operation, RollupKind::Instance] {
            if rows.iter().filter(|row| row.kind == kind).count() > LISTED_MAX {
                unlist(kind, &mut rows);
            }
        }
        rows.sort_by(|a, b| {
            (a.kind, a.minute, &a.service, &a.peer, a.sort, &a.ids)
                .cmp(&(b.kind, b.minute, &b.service, &b.peer, b.sort, &b.ids))
        });
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
