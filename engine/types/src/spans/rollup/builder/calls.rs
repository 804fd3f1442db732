//! Determines who calls whom, by matching each child with its parent.
//!
//! A call to something that sends no spans is counted as soon as the caller's span is seen, and is removed again when a
//! span arrives that answers it; so the counts are right at any time. In the same way the call of a span is removed when
//! an earlier report of that span arrives (see [`crate::spans::FirstReport`]).

mod repeated;

use xxhash_rust::xxh3::xxh3_64;

use super::columns::Row;
use super::{RollupBuilder, Weight};
use crate::spans::model::SERVER;
use crate::spans::{APART_MINUTES, EdgeKind, FirstReport, Side, SpanId, TraceId, are_one_span, remote_of};
use crate::tables::spans::minute_of;

/// Spans that come in order of minutes wait so long for their relatives, and other reports of them.
const SETTLED_MINUTES: i64 = APART_MINUTES;
/// Spans of which relatives are looked for, at most; the oldest go first.
const PENDING_MAX: usize = 1_000_000;
/// Edges of all minutes. With more, all further callees that send no spans themselves share the name [`OTHER`].
const EDGES_MAX: usize = 100_000;
const OTHER: &str = "other";

/// A span that may be somebody's parent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParentCandidate {
    service: u32,
    kind: u8,
    caller: bool,
    callee: bool,
    answered: bool,
    /// Service of the called half under the same id (Zipkin's shared ids).
    half: Option<u32>,
    remote: Option<(u32, EdgeKind)>,
    /// Whose child it is: its parent, or the caller's half of its own id; 0 for nobody's.
    wait_for: u64,
    id: SpanId,
    received: i64,
    weight: Weight,
}

impl ParentCandidate {
    fn report(&self) -> FirstReport {
        self.weight.report(self.received)
    }
}

/// A span whose parent is not known yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    pub(super) parent: SpanId,
    pub(super) service: u32,
    pub(super) kind: u8,
    pub(super) shared: bool,
    pub(super) weight: Weight,
}

impl Child {
    fn is_callee(&self) -> bool {
        Side::of(self.kind, self.shared) == Side::Callee
    }
}

/// What a span is to the one that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinship {
    /// Its other half, of the same id.
    CalledHalf,
    Child,
}

fn key(trace: &[u8], span: &[u8]) -> u64 {
    let mut bytes = [0u8; 24];
    bytes[..16].copy_from_slice(trace);
    bytes[16..].copy_from_slice(span);
    xxh3_64(&bytes)
}

impl RollupBuilder {
    /// Finds the relatives of a span.
    pub(super) fn relate(&mut self, row: &Row<'_>, minute: i64) {
        self.forget(minute);
        let side = Side::of(row.kind, row.shared);
        let (caller, callee) = (side == Side::Caller, side == Side::Callee);
        let (protocol, remote) = if side == Side::None { (0, None) } else { remote_of(row.attributes, caller) };
        let weight = Weight { start: row.start, error: row.error, bucket: row.bucket, protocol };
        let own_key = key(row.trace, row.id);
        let has_parent = row.parent != [0; 8];
        let parent_key = if has_parent { key(row.trace, row.parent) } else { 0 };
        let wait_for = if row.shared { own_key } else { parent_key };
        let child = Child {
            trace: row.trace.try_into().unwrap_or_default(),
            id: row.id.try_into().unwrap_or_default(),
            parent: row.parent.try_into().unwrap_or_default(),
            service: row.service,
            kind: row.kind,
            shared: row.shared,
            weight,
        };
        let half = self.known.get(&own_key).copied();
        if let Some(caller) = half.filter(|h| callee && h.caller) {
            self.answer(own_key, &caller, &child, row.received);
            return;
        }
        let reported = half.filter(|h| (h.service, h.caller, h.callee) == (row.service, caller, callee));
        let reported = reported.filter(|h| are_one_span(h.weight.start, row.start));
        if let Some(known) = &reported
            && (known.report() <= weight.report(row.received) || !self.take_back(own_key, known))
        {
            // The other report counts.
            return;
        }
        let half = half.filter(|h| caller && h.callee);
        if let Some(half) = &half {
            // The other half came first: this one calls it, not its parent, which may have been counted.
            self.take_back(own_key, half);
        }
        let crowded = self.edges.len() > EDGES_MAX;
        let remote = remote.map(|(name, kind)| {
            let known = !crowded || self.names.of.contains_key(&*name);
            (self.names.number(if known { &name } else { OTHER }), kind)
        });
        let known = ParentCandidate {
            service: row.service,
            kind: row.kind,
            caller,
            callee,
            answered: reported.is_some_and(|k| k.answered),
            half: reported.and_then(|k| k.half),
            remote,
            wait_for,
            id: child.id,
            received: row.received,
            weight,
        };
        if let Some((peer, kind)) = remote.filter(|_| !known.answered) {
            self.edges.entry((minute, row.service, peer, kind)).or_default().add(&weight);
        }
        self.known.insert(own_key, known);
        if let Some(half) = half {
            self.halve(own_key, half.service, (half.received, half.weight));
            let child = Child { service: half.service, weight: half.weight, ..child };
            self.resolve(&child, own_key, Kinship::CalledHalf);
        }
        for waiting in self.waiting.remove(&own_key).unwrap_or_default() {
            let is_half = waiting.shared && waiting.id == child.id;
            self.resolve(&waiting, own_key, if is_half { Kinship::CalledHalf } else { Kinship::Child });
        }
        if row.shared || (has_parent && !self.known.contains_key(&parent_key)) {
            self.waiting.entry(wait_for).or_default().push(child);
        } else if has_parent {
            self.resolve(&child, parent_key, Kinship::Child);
        } else if row.kind == SERVER {
            let user = self.names.number("");
            self.edges.entry((minute, user, row.service, EdgeKind::User)).or_default().add(&weight);
        }
        if let Some(order) = &mut self.order {
            order.push_back((minute, own_key, wait_for));
        }
    }

    /// Notes the called half of a shared id: what its service did below that id was no call of the other half.
    fn halve(&mut self, own_key: u64, service: u32, report: (i64, Weight)) {
        let Some(caller) = self.known.get_mut(&own_key) else { return };
        caller.half = Some(service);
        self.halves.insert(own_key, report);
        let caller = caller.service;
        for child in self.crossed.remove(&own_key).unwrap_or_default() {
            let edge = (minute_of(child.weight.start), caller, child.service, EdgeKind::Service);
            if let Some(total) = self.edges.get_mut(&edge).filter(|_| child.service == service) {
                total.take_out(&child.weight);
            }
        }
    }

    /// Counts the call that a child answers.
    fn resolve(&mut self, child: &Child, parent_key: u64, kinship: Kinship) {
        let is_called_half = kinship == Kinship::CalledHalf;
        let Some(parent) = self.known.get_mut(&parent_key) else { return };
        let minute = minute_of(child.weight.start);
        let below_half = !is_called_half && parent.half == Some(child.service) && !child.is_callee();
        if is_called_half || (child.service != parent.service && !below_half) {
            let edge = (minute, parent.service, child.service, EdgeKind::Service);
            self.edges.entry(edge).or_default().add(&child.weight);
            if !is_called_half && parent.caller && !child.is_callee() {
                self.crossed.entry(parent_key).or_default().push(*child);
            }
        }
        let answers = is_called_half || child.service != parent.service || Side::of(child.kind, false) == Side::Callee;
        if answers && !parent.answered {
            parent.answered = true;
            if let Some((peer, kind)) = parent.remote {
                let edge = (minute_of(parent.weight.start), parent.service, peer, kind);
                if let Some(total) = self.edges.get_mut(&edge) {
                    total.take_out(&parent.weight);
                }
            }
        }
    }

    fn forget(&mut self, minute: i64) {
        let Some(order) = &mut self.order else { return };
        while order.len() > PENDING_MAX || order.front().is_some_and(|o| o.0 < minute - SETTLED_MINUTES) {
            let Some((noted, own_key, wait_for)) = order.pop_front() else { return };
            if let Some(later) = self.known.remove(&own_key).filter(|k| minute_of(k.weight.start) > noted) {
                // An earlier report of it started later, and comes again.
                self.known.insert(own_key, later);
                continue;
            }
            self.halves.remove(&own_key);
            self.crossed.remove(&own_key);
            self.open.extend(self.waiting.remove(&wait_for).unwrap_or_default());
        }
    }
}
