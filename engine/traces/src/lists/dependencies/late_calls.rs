//! Calls whose two ends are in different roll-ups, because they arrived at different times or lie in different days.
//!
//! An open entry is a span whose parent was missing. The parent is found among the spans of its trace. If it was
//! counted as a call without an answer, that count is subtracted, unless another span answered it in its own roll-up.

use std::cmp::Reverse;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::Access;
use quiver_types::spans::{
    Counts, Durations, EdgeKind, OPEN_SHARED, RollupKind, RollupRow, SHARED, STATUS_ERROR, Side, SpanFilter, SpanId,
    SpanRequest, TraceId, bucket, first_received, remote_of,
};
use quiver_types::tables::spans::minute_of;

use super::{Sums, graph_columns};
use crate::columns::Columns;
use crate::engine::{Reader, TraceError};

/// Traces that are looked up at once.
const CHUNK: usize = 50_000;

/// Estimated memory of one of their spans.
const RELATIVE_BYTES: usize = 384;

/// A span that may be the parent of an open one, or another child of that parent.
struct Relative {
    id: SpanId,
    parent: SpanId,
    service: String,
    kind: u8,
    shared: bool,
    received: i64,
    /// The call as it was counted while no span of the called service was known.
    remote: Option<RollupRow>,
}

impl Relative {
    fn is_caller(&self) -> bool {
        Side::of(self.kind, self.shared) == Side::Caller
    }

    fn is_callee(&self) -> bool {
        Side::of(self.kind, self.shared) == Side::Callee
    }
}

impl Reader {
    /// Adds calls between roll-ups.
    pub(super) async fn add_late(&self, sums: &mut Sums, range: (i64, i64)) -> Result<(), TraceError> {
        let mut by_trace: HashMap<TraceId, Vec<RollupRow>, FixedState> = HashMap::default();
        for row in std::mem::take(&mut sums.open) {
            if let Some((trace, _, _)) = row.ids {
                by_trace.entry(trace).or_default().push(row);
            }
        }
        let minutes = (minute_of(range.0), minute_of(range.1));
        let mut ids: Vec<TraceId> = by_trace.keys().copied().collect();
        ids.sort_unstable();
        for ids in ids.chunks(CHUNK) {
            for (trace, relatives) in self.relatives(ids).await? {
                let open = by_trace.remove(&trace).unwrap_or_default();
                correct(sums, &open, &relatives, minutes, &self.ctx.access);
            }
        }
        Ok(())
    }

    /// Reads the spans of some traces regardless of access rights; the results are masked afterwards.
    async fn relatives(&self, ids: &[TraceId]) -> Result<HashMap<TraceId, Vec<Relative>, FixedState>, TraceError> {
        let mut all: HashMap<TraceId, Vec<Relative>, FixedState> = HashMap::default();
        let filter = SpanFilter::Traces(Arc::new(ids.to_vec()));
        let request = SpanRequest { filter, columns: graph_columns() };
        let plan = self.plan_as(&Access::full(), &request)?;
        self.run(&plan, |batch| {
            self.collect(batch.num_rows() * RELATIVE_BYTES)?;
            let c = Columns(batch);
            let (traces, spans, parents) = (c.ids("trace_id")?, c.ids("span_id")?, c.ids("parent_span_id")?);
            let (starts, ends, received) = (c.times("start")?, c.times("end")?, c.times("received")?);
            let (kinds, statuses, marks) = (c.small("kind")?, c.small("status")?, c.small("marks")?);
            let (attributes, services) = (c.bytes("attributes")?, c.view("service")?);
            for i in 0..batch.num_rows() {
                let (kind, shared) = (kinds.value(i), marks.value(i) & SHARED != 0);
                let caller = Side::of(kind, shared) == Side::Caller;
                let (protocol, remote) = if caller { remote_of(attributes.value(i), true) } else { (0, None) };
                let remote = remote.map(|(peer, sort)| {
                    let mut durations = Durations::default();
                    durations.add(bucket(ends.value(i).saturating_sub(starts.value(i))), 1);
                    RollupRow {
                        kind: RollupKind::EdgeMinute,
                        minute: minute_of(starts.value(i)),
                        service: services.value(i).to_owned(),
                        peer: peer.into_owned(),
                        sort: sort as u8,
                        counts: Counts {
                            protocol,
                            spans: 1,
                            errors: u64::from(statuses.value(i) == STATUS_ERROR),
                            seen: (starts.value(i), starts.value(i)),
                            durations,
                        },
                        ids: None,
                    }
                });
                let trace: TraceId = traces.value(i).try_into().unwrap_or_default();
                all.entry(trace).or_default().push(Relative {
                    id: spans.value(i).try_into().unwrap_or_default(),
                    parent: parents.value(i).try_into().unwrap_or_default(),
                    service: services.value(i).to_owned(),
                    kind,
                    shared,
                    received: first_received(received.value(i), marks.value(i)),
                    remote,
                });
            }
            Ok(true)
        })
        .await?;
        Ok(all)
    }
}

/// Corrects the sums with the open spans of one trace.
fn correct(sums: &mut Sums, open: &[RollupRow], spans: &[Relative], minutes: (i64, i64), access: &Access) {
    let is_open: HashSet<SpanId> = open.iter().filter_map(|row| Some(row.ids?.1)).collect();
    let mut by_id: HashMap<SpanId, usize> = HashMap::new();
    // Prefer the calling side, if it exists; of several reports the first, which is the one that was counted.
    let rank = |i: usize| (spans[i].is_caller(), Reverse(spans[i].received));
    for (i, span) in spans.iter().enumerate() {
        let known = by_id.entry(span.id).or_insert(i);
        if rank(i) > rank(*known) {
            *known = i;
        }
    }
    let mut settled: HashSet<usize> = HashSet::new();
    for row in open {
        let Some((_, id, parent)) = row.ids else { continue };
        let callee = Side::of(row.sort, row.sort & OPEN_SHARED != 0) == Side::Callee;
        let half = by_id.get(&id).copied().filter(|&i| callee && spans[i].is_caller());
        let Some(at) = half.or_else(|| by_id.get(&parent).copied().filter(|_| parent != [0; 8])) else { continue };
        let caller = &spans[at];
        let edge = RollupRow {
            kind: RollupKind::EdgeMinute,
            service: caller.service.clone(),
            peer: row.service.clone(),
            sort: EdgeKind::Service as u8,
            ids: None,
            ..row.clone()
        };
        // With a shared id, what the called side did is below the id, too.
        let below_half = !callee
            && caller.is_caller()
            && spans.iter().any(|s| s.id == parent && s.is_callee() && s.service == row.service);
        let other = half.is_some() || (caller.service != row.service && !below_half);
        if other && let Some(edge) = edge.seen_by(access) {
            sums.add(edge);
        }
        let Some(remote) = caller.remote.as_ref().filter(|_| other || callee) else { continue };
        let counted = (minutes.0..=minutes.1).contains(&remote.minute) && settled.insert(at);
        // A span that is not open found its parent in its own roll-up, and answered it there.
        let answered = spans.iter().enumerate().any(|(i, s)| {
            let related = s.parent == caller.id || (s.id == caller.id && i != at);
            related && !is_open.contains(&s.id) && (s.is_callee() || s.service != caller.service)
        });
        if counted && !answered && access.allows(&caller.service) {
            sums.remove(remote);
        }
    }
}

#[cfg(test)]
mod tests;
