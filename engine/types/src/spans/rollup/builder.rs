//! Spans into roll-ups: counts per minute, and each child to its parent.
//!
//! A call to something that sends no span counts from the moment that the caller is seen, and is taken out again when a
//! span turns up that answers it; so what is there is right at any time. In the same way the call of a span is taken out
//! when an earlier report of it turns up (see [`crate::spans::FirstReport`]).

mod counted;
mod names;
mod repeated;

use std::collections::VecDeque;

use arrow::array::{AsArray, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray, UInt8Array};
use arrow::datatypes::{Int64Type, UInt8Type};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use self::counted::Counted;
use self::names::Names;
use super::{Counts, EdgeKind, HOUR_MINUTES, OPEN_SHARED, RollupKind, RollupRow, bucket, instance_name, remote_of};
use crate::spans::{
    APART_MINUTES, Attributes, FirstReport, SHARED, STATUS_ERROR, SpanColumn, SpanId, TraceId, are_one_span,
    first_received,
};
use crate::tables::spans::minute_of;
use crate::{Error, Result};

/// Spans that come in order of minutes wait so long for their relatives, and other reports of them.
const SETTLED_MINUTES: i64 = APART_MINUTES;
/// Spans of which relatives are looked for, at most; the oldest go first.
const PENDING_MAX: usize = 1_000_000;
/// Operations or instances of all hours; more are not counted, and whoever asks reads the spans.
pub(super) const LISTED_MAX: usize = 50_000;
/// Edges of all minutes; what else is called that sends no spans has one name then.
const EDGES_MAX: usize = 100_000;
/// That name.
const OTHER: &str = "other";
/// Resource attributes that name an instance, the best first.
const INSTANCE_KEYS: [&str; 3] = ["service.instance.id", "k8s.pod.name", "host.name"];

/// Gives the columns that [`RollupBuilder::push`] reads; the last two may be left out, then there are no operations and
/// instances.
pub fn rollup_columns() -> Vec<SpanColumn> {
    let ids = ["trace_id", "span_id", "parent_span_id"];
    let own = ["kind", "start", "end", "received", "status", "marks", "attributes"];
    let columns = ids.into_iter().chain(own).map(SpanColumn::Own).chain([SpanColumn::Context("service")]);
    columns.chain([SpanColumn::Own("name"), SpanColumn::Context("resource")]).collect()
}

impl Counts {
    fn add(&mut self, one: &Weight) {
        self.count(one);
        self.durations.add(one.bucket, 1);
    }

    /// Adds all but the duration.
    fn count(&mut self, one: &Weight) {
        self.spans += 1;
        self.errors += u64::from(one.error);
        self.seen = (self.seen.0.min(one.start), self.seen.1.max(one.start));
        self.speaks(one.protocol);
    }

    fn take_out(&mut self, one: &Weight) {
        self.spans = self.spans.saturating_sub(1);
        self.errors = self.errors.saturating_sub(u64::from(one.error));
        self.durations.remove(one.bucket, 1);
    }
}

/// What one span adds to counts.
#[derive(Debug, Clone, Copy)]
struct Weight {
    start: i64,
    error: bool,
    bucket: u16,
    protocol: u8,
}

impl Weight {
    fn report(&self, received: i64) -> FirstReport {
        (received, self.start, self.bucket, self.error)
    }
}

/// A span that may be somebody's parent.
#[derive(Debug, Clone, Copy)]
struct Known {
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

impl Known {
    fn report(&self) -> FirstReport {
        self.weight.report(self.received)
    }
}

/// A span whose parent is not known yet.
#[derive(Debug, Clone, Copy)]
struct Child {
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    service: u32,
    kind: u8,
    shared: bool,
    weight: Weight,
}

impl Child {
    fn is_callee(&self) -> bool {
        self.shared || matches!(self.kind, 2 | 5)
    }
}

type Map<K, V> = HashMap<K, V, FixedState>;
/// Minute, caller, called, sort.
type EdgeKey = (i64, u32, u32, EdgeKind);

/// See the module.
#[derive(Debug, Default)]
pub struct RollupBuilder {
    names: Names,
    instances_of: Map<Vec<u8>, u32>,
    /// Too many operations, too many instances.
    unlisted: [bool; 2],
    nodes: Counted<(i64, u32)>,
    edges: Map<EdgeKey, Counts>,
    operations: Counted<(i64, u32, u32, u8)>,
    instances: Counted<(i64, u32, u32)>,
    known: Map<u64, Known>,
    /// Of shared ids whose two halves are known: when the counted report of the called half was received, and what it adds.
    halves: Map<u64, (i64, Weight)>,
    waiting: Map<u64, Vec<Child>>,
    /// Spans counted as calls of a caller that they do not answer themselves: a called half may yet claim them.
    crossed: Map<u64, Vec<Child>>,
    /// Minute and key of what is in `known`, and of what waits, when spans come in order.
    order: Option<VecDeque<(i64, u64, u64)>>,
    open: Vec<Child>,
}

fn key(trace: &[u8], span: &[u8]) -> u64 {
    let mut bytes = [0u8; 24];
    bytes[..16].copy_from_slice(trace);
    bytes[16..].copy_from_slice(span);
    xxh3_64(&bytes)
}

/// One row of a batch.
struct Row<'b> {
    trace: &'b [u8],
    id: &'b [u8],
    parent: &'b [u8],
    service: u32,
    kind: u8,
    shared: bool,
    attributes: &'b [u8],
    start: i64,
    received: i64,
    error: bool,
    bucket: u16,
}

fn missing(name: &str) -> Error {
    Error::internal(format!("a roll-up of spans lacks `{name}`"))
}

/// The columns of a batch that are looked at row by row.
struct Columns<'b> {
    ids: [&'b FixedSizeBinaryArray; 3],
    small: [&'b UInt8Array; 3],
    times: [&'b Int64Array; 3],
    names: Option<&'b StringArray>,
}

impl<'b> Columns<'b> {
    fn of(batch: &'b RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
        let fixed = |name: &str| column(name)?.as_fixed_size_binary_opt().ok_or_else(|| missing(name));
        let times = |name: &str| column(name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| missing(name));
        let small = |name: &str| column(name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| missing(name));
        Ok(Self {
            ids: [fixed("trace_id")?, fixed("span_id")?, fixed("parent_span_id")?],
            small: [small("kind")?, small("status")?, small("marks")?],
            times: [times("start")?, times("end")?, times("received")?],
            names: batch.column_by_name("name").and_then(|c| c.as_string_opt::<i32>()),
        })
    }

    fn row(&self, i: usize, service: u32, attributes: &'b [u8]) -> Row<'b> {
        let [traces, ids, parents] = self.ids;
        let [kinds, statuses, marks] = self.small;
        let [start, end, received] = self.times.map(|times| times.value(i));
        Row {
            trace: traces.value(i),
            id: ids.value(i),
            parent: parents.value(i),
            service,
            kind: kinds.value(i),
            shared: marks.value(i) & SHARED != 0,
            attributes,
            start,
            received: first_received(received, marks.value(i)),
            error: statuses.value(i) == STATUS_ERROR,
            bucket: bucket(end.saturating_sub(start)),
        }
    }

    fn name(&self, i: usize) -> Option<&'b str> {
        self.names.map(|names| names.value(i))
    }
}

impl RollupBuilder {
    /// Makes a builder for spans in order of their minutes: it forgets those whose relatives must have been seen.
    pub fn in_order() -> Self {
        Self { order: Some(VecDeque::new()), ..Self::default() }
    }

    /// Adds the spans of a batch with [`rollup_columns`] (and any others).
    ///
    /// # Errors
    /// Internal: a column is missing or of another type.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = Columns::of(batch)?;
        let attributes = batch.column_by_name("attributes").and_then(|c| c.as_binary_opt::<i32>());
        let attributes = attributes.ok_or_else(|| missing("attributes"))?;
        let services = batch.column_by_name("service").and_then(|c| c.as_string_view_opt());
        let services = services.ok_or_else(|| missing("service"))?;
        let resources = batch.column_by_name("resource").and_then(|c| c.as_binary_view_opt());
        let mut service = (String::new(), self.names.number(""));
        let mut instance: Option<(&[u8], u32)> = None;
        for i in 0..batch.num_rows() {
            if services.value(i) != service.0 {
                service = (services.value(i).to_owned(), self.names.number(services.value(i)));
            }
            if let Some(resources) = resources.filter(|_| !self.unlisted[1]) {
                let bytes = resources.value(i);
                let number = match instance {
                    Some((known, number)) if known == bytes => number,
                    _ => self.instance(bytes),
                };
                instance = Some((bytes, number));
            }
            let row = columns.row(i, service.1, attributes.value(i));
            self.count(&row, columns.name(i), instance.map(|(_, number)| number));
            self.relate(&row, minute_of(row.start));
        }
        Ok(())
    }

    /// Adds spans that refer to contexts, as those of a [`crate::SpansBatch`] do; `of` says to which, and `attributes`
    /// gives those of a row. Without `calls` they only count: of their sides there are earlier reports elsewhere, whose calls
    /// are theirs.
    ///
    /// # Errors
    /// Internal: a column is missing or of another type, or there is no such context.
    pub fn push_spans<'b>(
        &mut self,
        spans: &'b RecordBatch,
        contexts: &RecordBatch,
        of: &[u32],
        attributes: impl Fn(usize) -> &'b [u8],
        calls: bool,
    ) -> Result<()> {
        let columns = Columns::of(spans)?;
        let services = contexts.column_by_name("service").and_then(|c| c.as_string_opt::<i32>());
        let resources = contexts.column_by_name("resource").and_then(|c| c.as_binary_opt::<i32>());
        let services = services.ok_or_else(|| missing("service"))?;
        let resources = resources.ok_or_else(|| missing("resource"))?;
        let mut known: Vec<Option<(u32, u32)>> = vec![None; contexts.num_rows()];
        for (i, &context) in of.iter().enumerate().take(spans.num_rows()) {
            let at = context as usize;
            let (service, instance) = match known.get(at).copied() {
                Some(Some(numbers)) => numbers,
                Some(None) => {
                    let instance = if self.unlisted[1] { 0 } else { self.instance(resources.value(at)) };
                    *known[at].insert((self.names.number(services.value(at)), instance))
                }
                None => return Err(Error::internal("a span refers to no context")),
            };
            let row = columns.row(i, service, attributes(i));
            self.count(&row, columns.name(i), Some(instance));
            if calls {
                self.relate(&row, minute_of(row.start));
            }
        }
        Ok(())
    }

    /// Counts a span without its calls.
    fn count(&mut self, row: &Row<'_>, name: Option<&str>, instance: Option<u32>) {
        let minute = minute_of(row.start);
        let hour = hour_of(minute);
        let weight = Weight { start: row.start, error: row.error, bucket: row.bucket, protocol: 0 };
        self.nodes.of(row.service, (minute, row.service)).add(&weight);
        if let Some(name) = name.filter(|_| !self.unlisted[0]) {
            let name = self.names.number(name);
            self.operations.of(name, (hour, row.service, name, row.kind)).add(&weight);
            if self.operations.len() > LISTED_MAX {
                self.operations = Counted::default();
                self.unlisted[0] = true;
            }
        }
        if let Some(number) = instance.filter(|_| !self.unlisted[1]) {
            self.instances.of(number, (hour, row.service, number)).count(&weight);
            if self.instances.len() > LISTED_MAX || self.instances_of.len() > LISTED_MAX {
                (self.instances, self.instances_of) = (Counted::default(), Map::default());
                self.unlisted[1] = true;
            }
        }
    }

    fn instance(&mut self, resource: &[u8]) -> u32 {
        if let Some(&known) = self.instances_of.get(resource) {
            return known;
        }
        let get = |wanted: &str| {
            let value = Attributes::read(resource).find(|(key, _)| *key == wanted);
            value.map(|(_, v)| v.text().into_owned()).unwrap_or_default()
        };
        let name = INSTANCE_KEYS.iter().map(|key| get(key)).find(|n| !n.is_empty()).unwrap_or_default();
        let (version, host, pod) = (get("service.version"), get("host.name"), get("k8s.pod.name"));
        let number = self.names.number(&instance_name([&name, &version, &host, &pod]));
        self.instances_of.insert(resource.to_vec(), number);
        number
    }

    /// Finds the relatives of a span.
    fn relate(&mut self, row: &Row<'_>, minute: i64) {
        self.forget(minute);
        let caller = matches!(row.kind, 3 | 4) && !row.shared;
        let callee = row.shared || matches!(row.kind, 2 | 5);
        let (protocol, remote) = if caller || callee { remote_of(row.attributes, caller) } else { (0, None) };
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
        let known = Known {
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
            self.resolve(&child, own_key, true);
        }
        for waiting in self.waiting.remove(&own_key).unwrap_or_default() {
            self.resolve(&waiting, own_key, waiting.shared && waiting.id == child.id);
        }
        if row.shared || (has_parent && !self.known.contains_key(&parent_key)) {
            self.waiting.entry(wait_for).or_default().push(child);
        } else if has_parent {
            self.resolve(&child, parent_key, false);
        } else if row.kind == 2 {
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
    fn resolve(&mut self, child: &Child, parent_key: u64, half: bool) {
        let Some(parent) = self.known.get_mut(&parent_key) else { return };
        let minute = minute_of(child.weight.start);
        let below_half = !half && parent.half == Some(child.service) && !child.is_callee();
        if half || (child.service != parent.service && !below_half) {
            let edge = (minute, parent.service, child.service, EdgeKind::Service);
            self.edges.entry(edge).or_default().add(&child.weight);
            if !half && parent.caller && !child.is_callee() {
                self.crossed.entry(parent_key).or_default().push(*child);
            }
        }
        let answers = half || child.service != parent.service || matches!(child.kind, 2 | 5);
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
                lines.push(Line::new(RollupKind::Operation, hour, service, Some(operation), kind, of.clone()));
            }
        }
        if wanted(RollupKind::Instance) {
            for &((hour, service, instance), ref of) in self.instances.iter() {
                lines.push(Line::new(RollupKind::Instance, hour, service, Some(instance), 0, of.clone()));
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
                lines.push(Line::new(RollupKind::NodeMinute, minute, service, None, 0, of.clone()));
            }
            if wanted(RollupKind::NodeHour) {
                hours.entry((hour_of(minute), service)).or_default().merge(of);
            }
        }
        for ((hour, service), of) in hours {
            lines.push(Line::new(RollupKind::NodeHour, hour, service, None, 0, of));
        }
    }

    fn edge_lines(&self, wanted: &impl Fn(RollupKind) -> bool, lines: &mut Vec<Line>) {
        let mut hours: Map<EdgeKey, Counts> = Map::default();
        for (&(minute, source, target, kind), of) in self.edges.iter().filter(|(_, of)| of.spans > 0) {
            if wanted(RollupKind::EdgeMinute) {
                lines.push(Line::new(RollupKind::EdgeMinute, minute, source, Some(target), kind as u8, of.clone()));
            }
            if wanted(RollupKind::EdgeHour) {
                hours.entry((hour_of(minute), source, target, kind)).or_default().merge(of);
            }
        }
        for ((hour, source, target, kind), of) in hours {
            lines.push(Line::new(RollupKind::EdgeHour, hour, source, Some(target), kind as u8, of));
        }
    }
}

impl Child {
    /// As a row that is open.
    fn line(&self) -> Line {
        let mut counts = Counts::default();
        counts.add(&self.weight);
        let sort = self.kind | if self.shared { OPEN_SHARED } else { 0 };
        let line = Line::new(RollupKind::Open, minute_of(self.weight.start), self.service, None, sort, counts);
        Line { ids: Some((self.trace, self.id, self.parent)), ..line }
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
    fn new(kind: RollupKind, minute: i64, service: u32, peer: Option<u32>, sort: u8, counts: Counts) -> Self {
        Self { kind, minute, service, peer, sort, ids: None, counts }
    }
}

fn hour_of(minute: i64) -> i64 {
    minute.div_euclid(HOUR_MINUTES) * HOUR_MINUTES
}

#[cfg(test)]
mod tests;
