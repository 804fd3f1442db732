//! Assembles one trace from its stored spans: merges repeated reports of a span, gives new ids to different spans that
//! share one, sorts (`traces-api` section 1).

mod call_sides;
mod times;

use std::cmp::{Ordering, Reverse};
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::spans::{NEGATIVE_DURATION, SHARED, STATUS_ERROR, Side, Span, SpanContext, SpanId, TraceId};

use self::call_sides::Half;
use self::times::Times;

/// A trace: its spans in order of start, then span id; no two with one id, but where reports are asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// The trace id, all 16 bytes; a shorter one of a sender has zeros in front.
    pub id: TraceId,
    /// Sorted by start, then span id; each span id once, unless they are [`as_received`]. Empty when nothing was found.
    pub spans: Vec<Span>,
    /// Files that could not be read: spans may be missing.
    pub left_out: Vec<String>,
}

impl Trace {
    /// Earliest start of a span in Unix nanoseconds; 0 without spans.
    pub fn start(&self) -> i64 {
        self.spans.first().map_or(0, |s| s.start)
    }

    /// Latest end of a span in Unix nanoseconds; 0 without spans.
    pub fn end(&self) -> i64 {
        self.spans.iter().map(|s| s.end).max().unwrap_or(0)
    }
}

/// Assembles reports of one trace. The outcome does not depend on their order.
pub fn assemble(id: TraceId, reports: Vec<Span>) -> Trace {
    // As in nearly all traces: each report is a span.
    let mut spans = if ids_differ(&reports) { reports } else { united(reports) };
    spans.sort_by_key(|s| (s.start, s.span_id));
    Trace { id, spans, left_out: Vec::new() }
}

/// Leaves reports of one trace as they are: repeats, and spans that share an id. The outcome does not depend on their order.
pub fn as_received(id: TraceId, mut reports: Vec<Span>) -> Trace {
    reports.sort_by(|a, b| (a.start, a.span_id).cmp(&(b.start, b.span_id)).then_with(|| order(a, b)));
    Trace { id, spans: reports, left_out: Vec::new() }
}

/// In what order reports are united: what was received last wins, and of what came at once the greater, by all that they
/// tell, so that their own order does not matter.
fn order(a: &Span, b: &Span) -> Ordering {
    (a.received, a.span_id, a.start, a.end)
        .cmp(&(b.received, b.span_id, b.start, b.end))
        .then_with(|| (&a.name, &a.attributes, &a.context).cmp(&(&b.name, &b.attributes, &b.context)))
        .then_with(|| (a.parent, a.kind, a.status, a.flags).cmp(&(b.parent, b.kind, b.status, b.flags)))
        .then_with(|| (a.dropped, a.marks, &a.events, &a.links).cmp(&(b.dropped, b.marks, &b.events, &b.links)))
        .then_with(|| (&a.status_message, &a.trace_state).cmp(&(&b.status_message, &b.trace_state)))
}

/// Makes spans of reports of which some share an id, each with an id of its own.
fn united(mut reports: Vec<Span>) -> Vec<Span> {
    reports.sort_by(order);
    let mut spans = merge(reports);
    unique_ids(&mut spans);
    spans
}

/// Groups reports into traces, and assembles each; in order of trace id.
pub fn assemble_all(reports: Vec<Span>) -> Vec<Trace> {
    let mut traces: Vec<Trace> = by_trace(reports).into_iter().map(|(id, reports)| assemble(id, reports)).collect();
    traces.sort_by_key(|t| t.id);
    traces
}

/// Like [`as_received`], for several traces; in the order of these ids, which are those of the reports.
pub(crate) fn all_as_received(ids: &[TraceId], reports: Vec<Span>) -> Vec<Trace> {
    let mut reports = by_trace(reports);
    ids.iter().filter_map(|id| Some(as_received(*id, reports.remove(id)?))).collect()
}

fn by_trace(reports: Vec<Span>) -> HashMap<TraceId, Vec<Span>, FixedState> {
    let mut by_trace: HashMap<TraceId, Vec<Span>, FixedState> = HashMap::default();
    for report in reports {
        by_trace.entry(report.trace_id).or_default().push(report);
    }
    by_trace
}

/// Says whether each span has an id of its own.
fn ids_differ(spans: &[Span]) -> bool {
    let mut seen: HashSet<SpanId, FixedState> = HashSet::with_capacity_and_hasher(spans.len(), FixedState::default());
    spans.iter().all(|span| seen.insert(span.span_id))
}

fn merge(reports: Vec<Span>) -> Vec<Span> {
    let mut by_id: HashMap<SpanId, Vec<usize>, FixedState> = HashMap::default();
    for (i, report) in reports.iter().enumerate() {
        by_id.entry(report.span_id).or_default().push(i);
    }
    // Which half of which id each report belongs to; a report that is alone is its own.
    let mut halves: Vec<Option<Half>> = vec![None; reports.len()];
    for of in by_id.values().filter(|of| of.len() > 1) {
        let list: Vec<&Span> = of.iter().map(|&i| &reports[i]).collect();
        of.iter().zip(call_sides::of(&list)).for_each(|(&i, half)| halves[i] = Some(half));
    }
    let mut into: HashMap<(SpanId, Half), usize, FixedState> = HashMap::default();
    let mut spans: Vec<MergedSpan> = Vec::with_capacity(by_id.len());
    for (report, half) in reports.into_iter().zip(halves) {
        let known = half.map(|half| *into.entry((report.span_id, half)).or_insert(spans.len()));
        match known.and_then(|at| spans.get_mut(at)) {
            Some(united) => united.add(report),
            None => spans.push(MergedSpan::of(report)),
        }
    }
    spans.into_iter().map(MergedSpan::finished).collect()
}

/// A span, and what its reports leave open until the last of them is there.
struct MergedSpan {
    /// With the events and links of all reports behind each other.
    span: Span,
    times: Times,
    /// How many of the events and of the links the first report tells.
    first: (usize, usize),
}

impl MergedSpan {
    fn of(report: Span) -> Self {
        Self { times: Times::of(&report), first: (report.events.len(), report.links.len()), span: report }
    }

    fn add(&mut self, report: Span) {
        self.times.add(&report);
        unite(&mut self.span, report);
    }

    fn finished(mut self) -> Span {
        let (events, links) = self.first;
        if self.span.events.len() > events {
            keep_new(&mut self.span.events, events);
            self.span.events.sort_by_key(|e| e.time);
        }
        keep_new(&mut self.span.links, links);
        self.times.applied_to(self.span)
    }
}

/// Adds a later report to a span; what [`MergedSpan`] does at the end is another matter.
fn unite(span: &mut Span, later: Span) {
    span.attributes = span.attributes.united(&later.attributes);
    let failed = later.is_error();
    span.events.extend(later.events);
    span.links.extend(later.links);
    if span.is_error() || failed {
        span.status = STATUS_ERROR;
    } else if span.status == 0 {
        span.status = later.status;
    }
    if span.kind == 0 {
        span.kind = later.kind;
    }
    span.parent = span.parent.or(later.parent);
    for (text, other) in [
        (&mut span.name, later.name),
        (&mut span.status_message, later.status_message),
        (&mut span.trace_state, later.trace_state),
    ] {
        if text.is_empty() {
            *text = other;
        }
    }
    if span.flags == 0 {
        span.flags = later.flags;
    }
    for (dropped, other) in span.dropped.iter_mut().zip(later.dropped) {
        *dropped = (*dropped).max(other);
    }
    span.received = span.received.max(later.received);
    span.marks |= later.marks & (SHARED | NEGATIVE_DURATION);
    unite_contexts(&mut span.context, later.context);
}

/// Unites what reports tell of their sender and of its library: each is that of the first report that tells of it.
fn unite_contexts(own: &mut Arc<SpanContext>, later: Arc<SpanContext>) {
    let nameless = own.service.is_empty() && !later.service.is_empty();
    let bare = own.resource.is_empty() && !later.resource.is_empty();
    let takes_sender = nameless || bare && own.service == later.service;
    let takes_library = !names_library(own) && names_library(&later);
    if takes_sender && !names_library(own) {
        *own = later;
    } else if takes_sender || takes_library {
        let (sender, library) = if takes_sender { (&later, &*own) } else { (&*own, &later) };
        *own = Arc::new(SpanContext {
            service: sender.service.clone(),
            resource: sender.resource.clone(),
            scope_name: library.scope_name.clone(),
            scope_version: library.scope_version.clone(),
            scope_attributes: library.scope_attributes.clone(),
        });
    }
}

fn names_library(context: &SpanContext) -> bool {
    !(context.scope_name.is_empty() && context.scope_version.is_empty() && context.scope_attributes.is_empty())
}

/// Leaves out what of later reports was told before; keeps the order of reports, and all that the first of them tells.
fn keep_new<T: Eq + Hash>(all: &mut Vec<T>, first: usize) {
    if all.len() == first {
        return;
    }
    let is_new: Vec<bool> = {
        let mut seen: HashSet<&T, FixedState> = HashSet::with_capacity_and_hasher(all.len(), FixedState::default());
        all.iter().map(|one| seen.insert(one)).collect()
    };
    let mut kept = is_new.into_iter().enumerate().map(|(at, is_new)| at < first || is_new);
    all.retain(|_| kept.next().unwrap_or(true));
}

fn unique_ids(spans: &mut [Span]) {
    if ids_differ(spans) {
        return;
    }
    let mut by_id: HashMap<SpanId, Vec<usize>, FixedState> = HashMap::default();
    for (i, span) in spans.iter().enumerate() {
        by_id.entry(span.span_id).or_default().push(i);
    }
    let mut taken: HashSet<SpanId, FixedState> = by_id.keys().copied().collect();
    let mut doubles: Vec<(SpanId, Vec<usize>)> = by_id.into_iter().filter(|(_, of)| of.len() > 1).collect();
    doubles.sort();
    let mut moved: HashMap<(SpanId, String), SpanId, FixedState> = HashMap::default();
    let mut renamed: HashSet<usize, FixedState> = HashSet::default();
    for (id, mut of) in doubles {
        of.sort_by_key(|&i| {
            let s = &spans[i];
            (s.is_shared(), Reverse(s.side() == Side::Caller), s.start, s.context.service.clone(), s.name.clone())
        });
        let (mut bit, mut beyond): (u32, u64) = (63, u64::from_be_bytes(id));
        for &i in &of[1..] {
            let mut next = u64::from_be_bytes(id) ^ (1 << bit);
            while bit > 0 && (next == 0 || taken.contains(&next.to_be_bytes())) {
                bit -= 1;
                next = u64::from_be_bytes(id) ^ (1 << bit);
            }
            // There are as many ids that differ in a bit as bits; after these they count up.
            while next == 0 || taken.contains(&next.to_be_bytes()) {
                beyond = beyond.wrapping_add(1);
                next = beyond;
            }
            bit = bit.saturating_sub(1);
            let next = next.to_be_bytes();
            taken.insert(next);
            renamed.insert(i);
            let span = &mut spans[i];
            span.span_id = next;
            span.parent = Some(id);
            let below = (id, span.context.service.clone());
            // Callers come first: what a service does under a call that it serves itself is done by the half that serves.
            if span.side() == Side::Callee {
                moved.insert(below, next);
            } else {
                moved.entry(below).or_insert(next);
            }
        }
    }
    for (i, span) in spans.iter_mut().enumerate() {
        if renamed.contains(&i) {
            continue;
        }
        if let Some(parent) = span.parent
            && let Some(&below) = moved.get(&(parent, span.context.service.clone()))
        {
            span.parent = Some(below);
        }
    }
}

/// Keeps the spans that a test takes.
pub(crate) fn retain(trace: &mut Trace, keep: impl Fn(&Span) -> bool) {
    trace.spans.retain(keep);
}

/// Gives the contexts of a trace, each once, in order of first use.
pub(crate) fn contexts(trace: &Trace) -> Vec<Arc<SpanContext>> {
    let mut seen = HashSet::<_, FixedState>::default();
    trace.spans.iter().filter(|s| seen.insert(Arc::clone(&s.context))).map(|s| Arc::clone(&s.context)).collect()
}

#[cfg(test)]
pub(crate) mod tests;
