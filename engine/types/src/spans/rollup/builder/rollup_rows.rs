//! What a builder gives: rows of minutes and hours, in their order.

use super::calls::Child;
use super::{EdgeKey, Map, RollupBuilder, hour_of};
use crate::spans::{Counts, OPEN_SHARED, RollupKind, RollupRow, SpanId, TraceId};
use crate::tables::spans::minute_of;

impl RollupBuilder {
    /// Says how many rows [`Self::rows`] gives at most, but for those that say that there are too many of a kind.
    pub fn rows_max(&self, wanted: impl Fn(RollupKind) -> bool) -> usize {
        let rows = |kind| match kind {
            RollupKind::NodeHour | RollupKind::NodeMinute => self.nodes.len(),
            RollupKind::EdgeHour | RollupKind::EdgeMinute => self.edges.len(),
            RollupKind::Open => self.open.len() + self.waiting.values().map(Vec::len).sum::<usize>(),
            RollupKind::Operation => self.operations.len(),
            RollupKind::Instance => self.instances.len(),
        };
        RollupKind::ALL.into_iter().filter(|kind| wanted(*kind)).map(rows).sum()
    }

    /// Gives rows of some kinds of what was pushed so far, sorted by what they are about, then time.
    pub fn rows(&self, wanted: impl Fn(RollupKind) -> bool) -> Vec<RollupRow> {
        let mut lines = Vec::new();
        self.node_lines(&wanted, &mut lines);
        self.edge_lines(&wanted, &mut lines);
        if wanted(RollupKind::Operation) {
            for &((hour, service, operation, kind), ref of) in self.operations.iter() {
                let line = Line::new(RollupKind::Operation, hour, service, of.clone());
                lines.push(Line { peer: Some(operation), sort: kind, ..line });
            }
        }
        if wanted(RollupKind::Instance) {
            for &((hour, service, instance), ref of) in self.instances.iter() {
                let line = Line::new(RollupKind::Instance, hour, service, of.clone());
                lines.push(Line { peer: Some(instance), ..line });
            }
        }
        if wanted(RollupKind::Open) {
            lines.extend(self.open.iter().chain(self.waiting.values().flatten()).map(Child::line));
        }
        let ranks = self.names.ranks();
        let rank = |name: Option<u32>| name.map_or(0, |number| ranks[number as usize]);
        lines.sort_by_cached_key(|l| (l.kind, l.minute, rank(Some(l.service)), rank(l.peer), l.sort, l.ids));
        let name = |number: u32| self.names.get(number).to_owned();
        let row = |l: Line| RollupRow {
            kind: l.kind,
            minute: l.minute,
            service: name(l.service),
            peer: l.peer.map(name).unwrap_or_default(),
            sort: l.sort,
            counts: l.counts,
            ids: l.ids,
        };
        let mut rows: Vec<RollupRow> = lines.into_iter().map(row).collect();
        let unlisted = [RollupKind::Operation, RollupKind::Instance].into_iter().zip(self.unlisted);
        for (kind, _) in unlisted.filter(|&(kind, unlisted)| unlisted && wanted(kind)) {
            // In each hour, so that whichever is asked for tells it.
            let mut hours: Vec<i64> = self.nodes.iter().map(|((minute, _), _)| hour_of(*minute)).collect();
            hours.sort_unstable();
            hours.dedup();
            let at = rows.partition_point(|row| row.kind < kind);
            rows.splice(at..at, hours.into_iter().map(|hour| RollupRow::unlisted(kind, hour)));
        }
        rows
    }

    fn node_lines(&self, wanted: &impl Fn(RollupKind) -> bool, lines: &mut Vec<Line>) {
        let mut hours: Map<(i64, u32), Counts> = Map::default();
        for &((minute, service), ref of) in self.nodes.iter() {
            if wanted(RollupKind::NodeMinute) {
                lines.push(Line::new(RollupKind::NodeMinute, minute, service, of.clone()));
            }
            if wanted(RollupKind::NodeHour) {
                hours.entry((hour_of(minute), service)).or_default().merge(of);
            }
        }
        for ((hour, service), of) in hours {
            lines.push(Line::new(RollupKind::NodeHour, hour, service, of));
        }
    }

    fn edge_lines(&self, wanted: &impl Fn(RollupKind) -> bool, lines: &mut Vec<Line>) {
        let mut hours: Map<EdgeKey, Counts> = Map::default();
        for (&(minute, source, target, kind), of) in self.edges.iter().filter(|(_, of)| of.spans > 0) {
            if wanted(RollupKind::EdgeMinute) {
                let line = Line::new(RollupKind::EdgeMinute, minute, source, of.clone());
                lines.push(Line { peer: Some(target), sort: kind as u8, ..line });
            }
            if wanted(RollupKind::EdgeHour) {
                hours.entry((hour_of(minute), source, target, kind)).or_default().merge(of);
            }
        }
        for ((hour, source, target, kind), of) in hours {
            let line = Line::new(RollupKind::EdgeHour, hour, source, of);
            lines.push(Line { peer: Some(target), sort: kind as u8, ..line });
        }
    }
}

impl Child {
    /// As a row that is open.
    fn line(&self) -> Line {
        let mut counts = Counts::default();
        counts.add(&self.weight);
        let sort = self.kind | if self.shared { OPEN_SHARED } else { 0 };
        let line = Line::new(RollupKind::Open, minute_of(self.weight.start), self.service, counts);
        Line { sort, ids: Some((self.trace, self.id, self.parent)), ..line }
    }
}

/// A row whose names are numbers.
struct Line {
    kind: RollupKind,
    minute: i64,
    service: u32,
    /// `None`: the empty name.
    peer: Option<u32>,
    sort: u8,
    ids: Option<(TraceId, SpanId, SpanId)>,
    counts: Counts,
}

impl Line {
    /// A row about a service alone.
    fn new(kind: RollupKind, minute: i64, service: u32, counts: Counts) -> Self {
        Self { kind, minute, service, peer: None, sort: 0, ids: None, counts }
    }
}
