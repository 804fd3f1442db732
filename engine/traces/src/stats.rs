//! Statistics of one trace, and the comparison of two.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use foldhash::fast::FixedState;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use quiver_query::{QueryContext, QueryReservation};
use quiver_types::spans::{Place, Span, kind_name};
use quiver_types::{Error, ErrorKind, cancellation};

use crate::assemble::Trace;
use crate::engine::{Selection, TraceError, TracesEngine};
use crate::search::{Search, Sort};
use crate::span_tree::Tree;
use crate::summary::{Summary, summarize};
use crate::traceql::attribute;

/// How far around a trace its like are looked for, in nanoseconds.
const SIMILAR_AROUND: i64 = 24 * 3_600_000_000_000;

/// What a row of an answer takes without its texts, at most: it stands in maps while it is counted, and in a list behind
/// them.
const ROW_BYTES: usize = 2048;
/// What a text takes beside its bytes: itself, and what the allocator rounds up.
const TEXT_BYTES: usize = 32;
/// How many copies of a row's texts there are at once.
const COPIES: usize = 3;
/// Work on a span, in steps of [`cancellation::goes_on`].
const SPAN_STEPS: usize = 256;

/// Reserves memory before it is taken.
type Room<'r> = &'r dyn Fn(usize) -> Result<(), TraceError>;

/// Checks whether the query goes on, for each span of a trace.
fn goes_on() -> Result<(), TraceError> {
    if cancellation::goes_on(SPAN_STEPS) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Cancelled, "query was canceled in query execution").into())
}

/// What texts take in a row.
fn texts_bytes(texts: &[String]) -> usize {
    texts.iter().map(|text| TEXT_BYTES + text.len()).sum()
}

/// What spans are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// By service (`service`), the default.
    Service,
    /// By name of the span (`operation`).
    Operation,
    /// By span kind (`kind`).
    Kind,
    /// By the value of an attribute (`tag:<key>`), at one place or at any; spans without it have the empty text.
    Tag(Option<Place>, String),
}

impl GroupBy {
    fn value(&self, span: &Span) -> String {
        match self {
            Self::Service => span.service_shown().to_owned(),
            Self::Operation => span.name.clone(),
            Self::Kind => kind_name(span.kind).to_owned(),
            Self::Tag(place, key) => attribute(span, *place, key).map(|v| v.text().into_owned()).unwrap_or_default(),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Service => "service".to_owned(),
            Self::Operation => "operation".to_owned(),
            Self::Kind => "kind".to_owned(),
            Self::Tag(None, key) => format!("tag:{key}"),
            Self::Tag(Some(place), key) => format!("tag:{}.{key}", place.name()),
        }
    }
}

/// Figures of the spans of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFigures {
    /// What the spans are grouped by, as it is written in requests, each with its value.
    pub group: Vec<(String, String)>,
    /// Number of spans.
    pub count: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
    /// Sum of their durations in nanoseconds.
    pub total: i64,
    /// Time in them that is in none of their children, in nanoseconds.
    pub own: i64,
    /// The shortest of them in nanoseconds.
    pub min: i64,
    /// Their mean duration in nanoseconds.
    pub mean: f64,
    /// The longest of them in nanoseconds.
    pub max: i64,
    /// Their own time by the length of the trace.
    pub share: f64,
    /// Their part of the critical path, from 0 to 1.
    pub critical_share: f64,
}

#[derive(Default)]
struct Group {
    count: u64,
    errors: u64,
    /// Ends may be anything up to the last moment that there is, so that two durations may be more than 64 bits.
    total: i128,
    own: i64,
    min: Option<i64>,
    max: i64,
    critical: i64,
}

/// Gives figures per group: the longest in total first.
fn statistics(trace: &Trace, by: &[GroupBy], room: Room<'_>) -> Result<Vec<GroupFigures>, TraceError> {
    let tree = Tree::of(trace);
    let mut critical: HashMap<usize, i64, FixedState> = HashMap::default();
    for segment in tree.critical_path(trace) {
        *critical.entry(segment.span).or_default() += segment.to - segment.from;
    }
    let path: i64 = critical.values().sum();
    let mut groups: BTreeMap<Vec<String>, Group> = BTreeMap::new();
    for (i, span) in trace.spans.iter().enumerate() {
        goes_on()?;
        let group = match groups.entry(by.iter().map(|b| b.value(span)).collect()) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(group) => {
                room(ROW_BYTES + COPIES * texts_bytes(group.key()))?;
                group.insert(Group::default())
            }
        };
        group.count += 1;
        group.errors += u64::from(span.is_error());
        group.total += i128::from(span.duration());
        group.own = group.own.saturating_add(tree.self_time(trace, i));
        group.min = Some(group.min.map_or(span.duration(), |m| m.min(span.duration())));
        group.max = group.max.max(span.duration());
        group.critical += critical.get(&i).copied().unwrap_or(0);
    }
    let length = trace.end().saturating_sub(trace.start());
    let share = |part: i64, of: i64| if of <= 0 { 0.0 } else { part as f64 / of as f64 };
    let mut rows = groups
        .into_iter()
        .map(|(names, g)| {
            goes_on()?;
            let row = GroupFigures {
                group: by.iter().map(GroupBy::name).zip(names).collect(),
                count: g.count,
                errors: g.errors,
                total: i64::try_from(g.total).unwrap_or(i64::MAX),
                own: g.own,
                min: g.min.unwrap_or(0),
                mean: g.total as f64 / g.count.max(1) as f64,
                max: g.max,
                share: share(g.own, length),
                critical_share: share(g.critical, path),
            };
            Ok((g.total, row))
        })
        .collect::<Result<Vec<(i128, GroupFigures)>, TraceError>>()?;
    rows.sort_by_key(|(total, _)| std::cmp::Reverse(*total));
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// The spans of one trace on a path of a comparison.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// Number of spans.
    pub count: u64,
    /// Sum of their durations in nanoseconds.
    pub total: i64,
    /// Time in them that is in none of their children, in nanoseconds.
    pub own: i64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
}

/// How the right one of two traces differs from the left one on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Not by more than a tenth of the time.
    Same,
    /// In time, in number of spans or in errors.
    Changed,
    /// Only the right one has spans there.
    Added,
    /// Only the left one has spans there.
    Removed,
}

/// A path of two traces, with the spans that they have there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedPath {
    /// Steps from the root: service, operation, kind, position among equal siblings.
    pub path: Vec<String>,
    /// The spans of the left trace.
    pub left: Option<Side>,
    /// The spans of the right trace.
    pub right: Option<Side>,
    /// How these differ.
    pub change: Change,
}

/// Traces like another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimilarTraces {
    /// Those that took about as long, the nearest first.
    pub traces: Vec<Summary>,
    /// The one of median length, among all of the same root.
    pub median: Option<Summary>,
}

/// Steps from the root: service, operation, kind, position among equal siblings.
type Path = Vec<String>;

/// Merges two traces by path. Times count as changed from a tenth on.
fn compare(left: &Trace, right: &Trace, room: Room<'_>) -> Result<Vec<ComparedPath>, TraceError> {
    let mut sides: BTreeMap<Path, [Option<Side>; 2]> = BTreeMap::new();
    let mut order: Vec<Path> = Vec::new();
    for (at, trace) in [left, right].into_iter().enumerate() {
        let tree = Tree::of(trace);
        let mut paths: Vec<Path> = vec![Vec::new(); trace.spans.len()];
        let mut stack: Vec<usize> = Vec::new();
        name_siblings(trace, &tree.roots, &Vec::new(), &mut paths, room)?;
        stack.extend(tree.roots.iter().rev());
        while let Some(i) = stack.pop() {
            goes_on()?;
            let path = std::mem::take(&mut paths[i]);
            let side = sides.entry(path.clone()).or_insert_with(|| {
                order.push(path.clone());
                [None, None]
            })[at]
                .get_or_insert_default();
            let span = &trace.spans[i];
            side.count += 1;
            side.total += span.duration();
            side.own += tree.self_time(trace, i);
            side.errors += u64::from(span.is_error());
            // Paths of very deep traces would grow with the square of the depth.
            if path.len() < 200 {
                name_siblings(trace, &tree.children[i], &path, &mut paths, room)?;
                stack.extend(tree.children[i].iter().rev());
            }
        }
    }
    let changed = |a: Side, b: Side| {
        let apart = a.total.abs_diff(b.total) > a.total.max(b.total).unsigned_abs() / 10;
        (a.count, a.errors) != (b.count, b.errors) || apart
    };
    let rows = order.into_iter().map(|path| {
        goes_on()?;
        let [left, right] = sides.get(&path).copied().unwrap_or_default();
        let change = match (left, right) {
            (Some(left), Some(right)) if changed(left, right) => Change::Changed,
            (Some(_), Some(_)) => Change::Same,
            (Some(_), None) => Change::Removed,
            _ => Change::Added,
        };
        Ok(ComparedPath { path, left, right, change })
    });
    rows.collect()
}

fn name_siblings(
    trace: &Trace,
    siblings: &[usize],
    above: &Path,
    paths: &mut [Path],
    room: Room<'_>,
) -> Result<(), TraceError> {
    let of_above = texts_bytes(above);
    let mut seen: HashMap<(&str, &str, u8), usize, FixedState> = HashMap::default();
    for &i in siblings {
        goes_on()?;
        let span = &trace.spans[i];
        // A path may have hundreds of steps, and there is one for each span.
        let own = TEXT_BYTES + span.service_shown().len() + span.name.len();
        room(ROW_BYTES + COPIES * (of_above + own))?;
        let position = seen.entry((span.service_shown(), &span.name, span.kind)).or_default();
        let mut path = above.clone();
        path.push(format!("{}: {} [{}] #{position}", span.service_shown(), span.name, kind_name(span.kind)));
        *position += 1;
        paths[i] = path;
    }
    Ok(())
}

/// Takes memory for an answer.
fn taken(memory: &QueryReservation, bytes: usize) -> Result<(), TraceError> {
    Ok(memory.add(bytes)?)
}

impl TracesEngine {
    /// Gives figures of a trace per group: the longest in total first.
    ///
    /// # Errors
    /// LimitExceeded: there are too many groups; those of a run.
    pub fn statistics(
        self: &Arc<Self>,
        ctx: &QueryContext,
        trace: Trace,
        by: Vec<GroupBy>,
    ) -> BoxFuture<'_, Result<Vec<GroupFigures>, TraceError>> {
        let trace = Arc::new(trace);
        self.read(ctx, (trace, by), |reader, (trace, by)| async move {
            let memory = reader.collected("statistics");
            let rows = statistics(&trace, &by, &|bytes| taken(&memory, bytes))?;
            reader.ctx.keep(memory);
            Ok(rows)
        })
    }

    /// Merges two traces by path, and says what differs.
    ///
    /// # Errors
    /// LimitExceeded: there are too many paths; those of a run.
    pub fn compare(
        self: &Arc<Self>,
        ctx: &QueryContext,
        left: Trace,
        right: Trace,
    ) -> BoxFuture<'_, Result<Vec<ComparedPath>, TraceError>> {
        let (left, right) = (Arc::new(left), Arc::new(right));
        self.read(ctx, (left, right), |reader, (left, right)| async move {
            let memory = reader.collected("comparison");
            let rows = compare(&left, &right, &|bytes| taken(&memory, bytes))?;
            reader.ctx.keep(memory);
            Ok(rows)
        })
    }

    /// Gives traces with the same root operation that took about as long, and the median one.
    ///
    /// # Errors
    /// Those of the look-up and of the search.
    pub fn similar<'a>(
        self: &'a Arc<Self>,
        ctx: &'a QueryContext,
        selection: Selection,
        limit: usize,
        now: i64,
    ) -> BoxFuture<'a, Result<SimilarTraces, TraceError>> {
        async move {
            let trace = self.trace(ctx, selection).await?;
            let own = summarize(&trace).ok_or(TraceError::NotFound)?;
            let mut search =
                Search::new((own.start.saturating_sub(SIMILAR_AROUND), own.start.saturating_add(SIMILAR_AROUND)));
            search.conditions = vec![
                quiver_types::spans::SpanFilter::Service(quiver_types::spans::TextTest::Is(own.root_service.clone())),
                quiver_types::spans::SpanFilter::Name(quiver_types::spans::TextTest::Is(own.root_name.clone())),
                quiver_types::spans::SpanFilter::Root,
            ];
            search.limit = 1000;
            search.sort = Sort::Start;
            let mut rows = self.search(ctx, search, now).await?.rows;
            rows.retain(|row| row.root_service == own.root_service && row.root_name == own.root_name);
            rows.sort_by_key(|row| (row.duration(), row.id));
            let median = rows.get(rows.len().saturating_sub(1) / 2).cloned();
            rows.retain(|row| row.id != own.id);
            rows.sort_by_key(|row| ((row.duration() - own.duration()).abs(), row.id));
            rows.truncate(limit);
            Ok(SimilarTraces { traces: rows, median })
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
