//! Makes one trace of what was reported: merges reports of one span, gives shared ids their own, orders
//! (`traces-api` section 1).

use std::cmp::Reverse;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::spans::{STATUS_ERROR, Side, Span, SpanId, TraceId};

/// A trace: its spans in order of start, then span id; no two with one id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Identifier.
    pub id: TraceId,
    /// Spans.
    pub spans: Vec<Span>,
    /// Files that could not be read: spans may be missing.
    pub left_out: Vec<String>,
}

impl Trace {
    /// Earliest start; 0 without spans.
    pub fn start(&self) -> i64 {
        self.spans.first().map_or(0, |s| s.start)
    }

    /// Latest end.
    pub fn end(&self) -> i64 {
        self.spans.iter().map(|s| s.end).max().unwrap_or(0)
    }
}

/// Assembles reports of one trace. The outcome does not depend on their order.
pub fn assemble(id: TraceId, mut reports: Vec<Span>) -> Trace {
    // What was received last wins, and of what came at once the greater, so that order does not matter.
    reports.sort_by(|a, b| {
        (a.received, a.span_id, a.start, a.end, &a.name, &a.attributes, &a.context).cmp(&(
            b.received,
            b.span_id,
            b.start,
            b.end,
            &b.name,
            &b.attributes,
            &b.context,
        ))
    });
    let mut spans = merge(reports);
    unique_ids(&mut spans);
    spans.sort_by_key(|s| (s.start, s.span_id));
    Trace { id, spans, left_out: Vec::new() }
}

/// Groups reports into traces, and assembles each; in order of trace id.
pub fn assemble_all(reports: Vec<Span>) -> Vec<Trace> {
    let mut by_trace: HashMap<TraceId, Vec<Span>, FixedState> = HashMap::default();
    for report in reports {
        by_trace.entry(report.trace_id).or_default().push(report);
    }
    let mut traces: Vec<Trace> = by_trace.into_iter().map(|(id, reports)| assemble(id, reports)).collect();
    traces.sort_by_key(|t| t.id);
    traces
}

fn merge(reports: Vec<Span>) -> Vec<Span> {
    let mut groups: HashMap<(SpanId, String), Vec<usize>, FixedState> = HashMap::default();
    for (i, report) in reports.iter().enumerate() {
        groups.entry((report.span_id, report.context.service.clone())).or_default().push(i);
    }
    if groups.len() == reports.len() {
        return reports;
    }
    let mut sides: HashMap<usize, Side, FixedState> = HashMap::default();
    let mut into: HashMap<(SpanId, String, Side), usize, FixedState> = HashMap::default();
    for group in groups.values() {
        let has = |side| group.iter().any(|&i| reports[i].side() == side);
        // A report without a side joins the half that its service has.
        let of_none = [Side::Caller, Side::Callee].into_iter().find(|&side| has(side)).unwrap_or(Side::None);
        for &i in group {
            let side = reports[i].side();
            sides.insert(i, if side == Side::None { of_none } else { side });
        }
    }
    let mut spans: Vec<Span> = Vec::with_capacity(groups.len());
    for (i, report) in reports.into_iter().enumerate() {
        let side = sides.get(&i).copied().unwrap_or(Side::None);
        let key = (report.span_id, report.context.service.clone(), side);
        match into.get(&key) {
            Some(&at) => unite(&mut spans[at], report),
            None => {
                into.insert(key, spans.len());
                spans.push(report);
            }
        }
    }
    spans
}

/// Adds a later report to a span.
fn unite(span: &mut Span, later: Span) {
    span.start = match (span.start, later.start) {
        (0, start) | (start, 0) => start,
        (a, b) => a.min(b),
    };
    span.end = span.end.max(later.end);
    span.attributes = span.attributes.united(&later.attributes);
    let failed = later.is_error();
    add_new(&mut span.events, later.events);
    add_new(&mut span.links, later.links);
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
    span.marks |= later.marks;
    if span.context.resource.is_empty() && !later.context.resource.is_empty() {
        span.context = later.context;
    }
}

/// Adds what is not there yet; keeps the order of reports.
fn add_new<T: PartialEq>(known: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !known.contains(&one) {
            known.push(one);
        }
    }
}

fn unique_ids(spans: &mut [Span]) {
    let mut by_id: HashMap<SpanId, Vec<usize>, FixedState> = HashMap::default();
    for (i, span) in spans.iter().enumerate() {
        by_id.entry(span.span_id).or_default().push(i);
    }
    if by_id.len() == spans.len() {
        return;
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
        let mut bit: u32 = 63;
        for &i in &of[1..] {
            let mut next = u64::from_be_bytes(id) ^ (1 << bit);
            while bit > 0 && (next == 0 || taken.contains(&next.to_be_bytes())) {
                bit -= 1;
                next = u64::from_be_bytes(id) ^ (1 << bit);
            }
            bit = bit.saturating_sub(1);
            let next = next.to_be_bytes();
            taken.insert(next);
            renamed.insert(i);
            let span = &mut spans[i];
            span.span_id = next;
            span.parent = Some(id);
            moved.entry((id, span.context.service.clone())).or_insert(next);
        }
        // The one that keeps the id keeps the children of its own service too.
        moved.remove(&(id, spans[of[0]].context.service.clone()));
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
pub(crate) fn contexts(trace: &Trace) -> Vec<Arc<quiver_types::spans::SpanContext>> {
    let mut seen = HashSet::<_, FixedState>::default();
    trace.spans.iter().filter(|s| seen.insert(Arc::clone(&s.context))).map(|s| Arc::clone(&s.context)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use quiver_types::spans::{Attributes, SHARED, SpanContext, Value};

    use super::*;

    /// Makes a span of a service for tests.
    pub(crate) fn span(id: u64, parent: u64, service: &str, kind: u8, start: i64, end: i64) -> Span {
        let context = SpanContext { service: service.to_owned(), ..SpanContext::default() };
        Span {
            trace_id: [1; 16],
            span_id: id.to_be_bytes(),
            parent: (parent != 0).then(|| parent.to_be_bytes()),
            context: Arc::new(context),
            name: format!("op{id}"),
            kind,
            start,
            end,
            status: 0,
            status_message: String::new(),
            trace_state: String::new(),
            flags: 0,
            dropped: [0; 3],
            received: 5,
            marks: 0,
            attributes: Attributes::default(),
            events: Vec::new(),
            links: Vec::new(),
        }
    }

    #[test]
    fn repeats_change_nothing_and_reports_unite() {
        let one = span(1, 0, "a", 2, 10, 20);
        let expected = assemble([1; 16], vec![one.clone()]);
        assert_eq!(assemble([1; 16], vec![one.clone(), one.clone(), one.clone()]), expected);
        let mut early = span(1, 0, "a", 0, 8, 12);
        early.received = 1;
        early.attributes = Attributes::of([("k", Value::Text("old")), ("e", Value::Int(1))]);
        let mut late = span(1, 9, "a", 2, 10, 20);
        late.received = 2;
        late.attributes = Attributes::of([("k", Value::Text("new"))]);
        late.status = STATUS_ERROR;
        for order in [vec![early.clone(), late.clone()], vec![late, early]] {
            let united = &assemble([1; 16], order).spans[0];
            assert_eq!((united.start, united.end, united.kind, united.status), (8, 20, 2, STATUS_ERROR));
            assert_eq!(united.attributes.get("k"), Some(Value::Text("new")));
            assert_eq!(united.attributes.get("e"), Some(Value::Int(1)));
            assert_eq!(united.parent, Some(9u64.to_be_bytes()));
        }
    }

    #[test]
    fn shared_ids_get_their_own() {
        let client = span(7, 1, "front", 3, 10, 30);
        let mut server = span(7, 1, "back", 2, 12, 28);
        server.marks = SHARED;
        let child = span(8, 7, "back", 0, 14, 20);
        let sibling = span(9, 7, "front", 0, 15, 16);
        let trace = assemble([1; 16], vec![server.clone(), child, client, sibling]);
        let parents: Vec<_> =
            trace.spans.iter().map(|s| (u64::from_be_bytes(s.span_id), s.parent.map(u64::from_be_bytes))).collect();
        let flipped = 7 | 1 << 63;
        assert_eq!(parents, [(7, Some(1)), (flipped, Some(7)), (8, Some(flipped)), (9, Some(7))]);
        assert_eq!(assemble([1; 16], vec![server.clone()]).spans, [server], "alone it stays as it is");
    }
}
