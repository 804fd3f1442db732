//! Search: spans that match give traces, traces give summaries, summaries are sorted and cut (`traces-api` 3.1).

mod cursor;

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, UInt8Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_query::QueryContext;
use quiver_types::Error;
use quiver_types::spans::{
    AttributeTest, Place, STATUS_ERROR, SpanColumn, SpanFilter, SpanId, SpanRequest, TextTest, TraceId, all_columns,
    parse_hex,
};

use crate::assemble::{Trace, assemble_all};
use crate::condition;
use crate::engine::{Reader, TraceError, TracesEngine, summary_columns};
use crate::params::{ParamError, Params, any_text, kind, tag};
use crate::summary::{Matched, Summary, summarize};
use crate::traceql::Query;

/// Traces whose spans are read at once for their summaries.
const CHUNK: usize = 500;
/// Most traces that a search looks at.
const CANDIDATES_MAX: usize = 1_000_000;
/// What a span that was seen takes, and a trace that was found, about.
const SEEN_BYTES: usize = 24;
const FOUND_BYTES: usize = 256;
/// Spans that a row names.
const FIRST_MAX: usize = 3;
/// How far a search looks back first, in nanoseconds.
const SLICE: i64 = 120_000_000_000;
/// The default window, in nanoseconds.
pub(crate) const HOUR: i64 = 3_600_000_000_000;

/// Order of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// By start.
    Start,
    /// By length.
    Duration,
    /// By number of spans.
    Spans,
    /// By number of errors.
    Errors,
}

/// A search.
#[derive(Debug, Clone)]
pub struct Search {
    /// Unix nanoseconds, both included: matching spans start within.
    pub range: (i64, i64),
    /// Conditions on spans beside the time.
    pub conditions: Vec<SpanFilter>,
    /// Whether each condition may hold on another span of the trace.
    pub any_span: bool,
    /// Traces asked for by name.
    pub ids: Vec<TraceId>,
    /// Length of the trace, both included.
    pub duration: (i64, i64),
    /// Whether the trace must have failed, or must not have.
    pub error: Option<bool>,
    /// Number of spans, both included.
    pub spans: (u64, u64),
    /// Least number of services.
    pub services_min: u64,
    /// Order.
    pub sort: Sort,
    /// Greatest first.
    pub descending: bool,
    /// Rows of a page.
    pub limit: usize,
    /// What whole traces must pass beside; only searches that read whole traces ask.
    pub(crate) accepts: Option<Accepts>,
    /// Where the page before ended.
    pub(crate) after: Option<cursor::Cursor>,
}

/// A condition on a whole trace.
#[derive(Clone)]
pub(crate) struct Accepts(pub(crate) Arc<dyn Fn(&Trace) -> bool + Send + Sync>);

impl std::fmt::Debug for Accepts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accepts")
    }
}

/// One page of a search.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Rows.
    pub rows: Vec<Summary>,
    /// Where the next page begins; none after the last.
    pub cursor: Option<String>,
}

/// An instance of a service: its id, else its pod, else its host.
pub(crate) const INSTANCE_KEYS: [&str; 3] = ["service.instance.id", "k8s.pod.name", "host.name"];
/// Resource attributes that name the environment.
const ENV_KEYS: [&str; 2] = ["deployment.environment.name", "deployment.environment"];

fn resource(key: &str, test: AttributeTest) -> SpanFilter {
    SpanFilter::Attribute { place: Some(Place::Resource), key: key.to_owned(), test }
}

/// The first of some resource attributes that is there matches.
pub(crate) fn first_of(keys: &[&str], test: &TextTest) -> SpanFilter {
    let mut missing: Vec<SpanFilter> = Vec::new();
    let mut any = Vec::new();
    for key in keys {
        let mut all = missing.clone();
        all.push(resource(key, AttributeTest::Text(test.clone())));
        any.push(if all.len() == 1 { all.swap_remove(0) } else { SpanFilter::And(all) });
        missing.push(SpanFilter::Not(Box::new(resource(key, AttributeTest::Exists))));
    }
    SpanFilter::Or(any)
}

/// Reads the conditions on spans that all calls with a search filter share.
pub(crate) fn conditions(params: &Params) -> Result<Vec<SpanFilter>, ParamError> {
    let mut all = Vec::new();
    all.extend(any_text(params.all("service"), SpanFilter::Service));
    all.extend(any_text(params.all("operation"), SpanFilter::Name));
    all.extend(any_text(params.all("instance"), |t| first_of(&INSTANCE_KEYS, &t)));
    all.extend(any_text(params.all("env"), |t| first_of(&ENV_KEYS, &t)));
    let kinds = params.all("kind").map(|k| kind("kind", k)).collect::<Result<Vec<u8>, _>>()?;
    if !kinds.is_empty() {
        all.push(SpanFilter::Kinds(kinds));
    }
    for text in params.all("tag") {
        all.push(tag("tag", text)?);
    }
    if let Some(text) = params.one("filter")? {
        all.push(condition::parse(text)?);
    }
    let of_trace = params.word("durationOf", &["span", "trace"])? == Some("trace");
    if !of_trace && (params.has("minDuration") || params.has("maxDuration")) {
        let (min, max) = durations(params)?;
        all.push(SpanFilter::Duration(min, max));
    }
    if params.word("errorOf", &["span", "trace"])? != Some("trace")
        && let Some(error) = params.switch("error")?
    {
        let failed = SpanFilter::Status(STATUS_ERROR);
        all.push(if error { failed } else { SpanFilter::Not(Box::new(failed)) });
    }
    match params.switch("root")? {
        Some(true) => all.push(SpanFilter::Root),
        Some(false) => all.push(SpanFilter::Not(Box::new(SpanFilter::Root))),
        None => {}
    }
    Ok(all)
}

/// Reads TraceQL, as far as one span alone tells whether it matches.
fn of_traceql(text: &str) -> Result<SpanFilter, ParamError> {
    let query = Query::parse(text).map_err(|e| ParamError::new("q", e.to_string()))?;
    let whole = "structure, aggregates and conditions on the trace are supported by `/tempo/api/search` only";
    let filter = if query.is_metric() { None } else { query.exact_filter() };
    filter.ok_or_else(|| ParamError::new("q", whole))
}

fn durations(params: &Params) -> Result<(i64, i64), ParamError> {
    let (min, max) =
        (params.duration("minDuration")?.unwrap_or(0), params.duration("maxDuration")?.unwrap_or(i64::MAX));
    if min > max { Err(ParamError::new("minDuration", "is above `maxDuration`")) } else { Ok((min, max)) }
}

impl Search {
    /// Reads a search.
    ///
    /// # Errors
    /// A parameter is wrong, or the cursor is of another search.
    pub fn parse(params: &Params, now: i64) -> Result<Self, TraceError> {
        let mut ids = Vec::new();
        for text in params.all("ids").flat_map(|list| list.split(',')).map(str::trim).filter(|t| !t.is_empty()) {
            let id = parse_hex::<16>(text).filter(|id| *id != [0; 16]);
            ids.push(id.ok_or_else(|| ParamError::new("ids", format!("`{text}` is no trace id")))?);
        }
        if ids.len() > 100 {
            return Err(ParamError::new("ids", "more than 100 traces").into());
        }
        let mut search = Self::new(params.range(now, HOUR)?);
        if !ids.is_empty() && !params.has("from") && !params.has("to") {
            search.range = (i64::MIN, i64::MAX);
        }
        search.ids = ids;
        search.conditions = conditions(params)?;
        if let Some(text) = params.one("q")? {
            search.conditions.push(of_traceql(text)?);
        }
        search.any_span = params.word("spans", &["one", "any"])? == Some("any");
        if params.word("durationOf", &["span", "trace"])? == Some("trace") {
            search.duration = durations(params)?;
        }
        if params.word("errorOf", &["span", "trace"])? == Some("trace") {
            search.error = params.switch("error")?;
        }
        const MOST: u64 = 1 << 53;
        search.spans.0 = params.number("minSpans", 0..=MOST)?.unwrap_or(0);
        search.spans.1 = params.number("maxSpans", 0..=MOST)?.unwrap_or(u64::MAX);
        search.services_min = params.number("minServices", 0..=MOST)?.unwrap_or(0);
        let words = ["-start", "start", "-duration", "duration", "-spans", "spans", "-errors", "errors"];
        let sort = params.word("sort", &words)?.unwrap_or("-start");
        search.descending = sort.starts_with('-');
        search.sort = match sort.trim_start_matches('-') {
            "duration" => Sort::Duration,
            "spans" => Sort::Spans,
            "errors" => Sort::Errors,
            _ => Sort::Start,
        };
        search.limit = params.number("limit", 1..=1000)?.unwrap_or(20) as usize;
        if let Some(text) = params.one("cursor")? {
            // The window moves with the clock: a cursor keeps that of its first page.
            let cursor = cursor::Cursor::parse(text).ok_or_else(|| ParamError::new("cursor", "is none of ours"))?;
            if !params.has("from") || !params.has("to") {
                search.range = cursor.range;
            }
            if cursor.binds != search.binds() {
                return Err(TraceError::CursorMismatch);
            }
            search.after = Some(cursor);
        }
        Ok(search)
    }

    /// Reads the filter of a search alone, for calls whose `limit` and `sort` are their own.
    ///
    /// # Errors
    /// A parameter is wrong.
    pub fn parse_filter(params: &Params, now: i64) -> Result<Self, TraceError> {
        let mut search = Self::new(params.range(now, HOUR)?);
        search.conditions = conditions(params)?;
        Ok(search)
    }

    /// Makes a search for everything in a window, newest first.
    pub fn new(range: (i64, i64)) -> Self {
        Self {
            range,
            conditions: Vec::new(),
            any_span: false,
            ids: Vec::new(),
            duration: (0, i64::MAX),
            error: None,
            spans: (0, u64::MAX),
            services_min: 0,
            sort: Sort::Start,
            descending: true,
            limit: 20,
            accepts: None,
            after: None,
        }
    }

    /// What a cursor is bound to.
    fn binds(&self) -> u64 {
        let conditions: Vec<String> = self.conditions.iter().map(ToString::to_string).collect();
        let text = format!(
            "{conditions:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}",
            self.any_span,
            self.ids,
            self.duration,
            self.error,
            self.spans,
            self.services_min,
            self.sort,
            self.descending
        );
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    fn base(&self, range: (i64, i64)) -> SpanFilter {
        let mut base = SpanFilter::All;
        if !self.ids.is_empty() {
            let mut ids = self.ids.clone();
            ids.sort_unstable();
            ids.dedup();
            base = base.and(SpanFilter::Traces(Arc::new(ids)));
        }
        if range != (i64::MIN, i64::MAX) {
            base = base.and(SpanFilter::Starts(range.0, range.1));
        }
        match &self.after {
            Some(cursor) => base.and(SpanFilter::Received(cursor.received)),
            None => base,
        }
    }

    /// Gives the filter that all matching spans pass.
    pub fn filter(&self) -> SpanFilter {
        self.filter_in(self.range)
    }

    fn filter_in(&self, range: (i64, i64)) -> SpanFilter {
        self.conditions.iter().cloned().fold(self.base(range), SpanFilter::and)
    }

    /// Gives the request of its first step, for `explain`.
    pub fn request(&self) -> SpanRequest {
        SpanRequest { filter: self.filter(), columns: matched_columns() }
    }

    fn takes(&self, s: &Summary) -> bool {
        (self.duration.0..=self.duration.1).contains(&s.duration())
            && self.error.is_none_or(|error| (s.errors > 0) == error)
            && (self.spans.0..=self.spans.1).contains(&s.spans)
            && s.services.len() as u64 >= self.services_min
    }

    /// The value that rows are sorted by; ascending for either direction.
    fn key(&self, s: &Summary) -> (i64, TraceId) {
        let value = match self.sort {
            Sort::Start => s.start,
            Sort::Duration => s.duration(),
            Sort::Spans => s.spans as i64,
            Sort::Errors => s.errors as i64,
        };
        (if self.descending { !value } else { value }, s.id)
    }
}

fn matched_columns() -> Vec<SpanColumn> {
    let own = ["trace_id", "span_id", "start", "end", "status", "name"];
    own.into_iter().map(SpanColumn::Own).chain([SpanColumn::Context("service")]).collect()
}

/// What a trace's matching spans are.
#[derive(Debug, Default)]
struct Found {
    newest: i64,
    seen: HashSet<SpanId, FixedState>,
    first: Vec<Matched>,
}

impl Found {
    fn add(&mut self, more: Self) {
        self.newest = self.newest.max(more.newest);
        let new: Vec<Matched> = more.first.into_iter().filter(|m| !self.seen.contains(&m.span_id)).collect();
        self.first.extend(new);
        self.first.truncate(FIRST_MAX);
        self.seen.extend(more.seen);
    }
}

/// Notes in rows which of their spans were found.
fn note_matches(found: &FoundTraces, rows: &mut [Summary]) {
    for row in rows {
        if let Some(found) = found.get(&row.id) {
            row.matched = found.seen.len() as u64;
            row.first.clone_from(&found.first);
        }
    }
}

type FoundTraces = HashMap<TraceId, Found, FixedState>;
/// Traces of a page.
type Whole = HashMap<TraceId, Trace, FixedState>;

impl TracesEngine {
    /// Runs a search.
    ///
    /// # Errors
    /// Those of the engine; too many traces match.
    pub async fn search(self: &Arc<Self>, ctx: &QueryContext, search: Search, now: i64) -> Result<Page, TraceError> {
        self.read(ctx, move |reader| async move { reader.search(&search, now, &mut None).await }).await
    }

    /// Runs a search, and gives the traces of the page as a whole. What is read of them for the order is kept.
    ///
    /// # Errors
    /// As [`TracesEngine::search`].
    pub async fn search_whole(
        self: &Arc<Self>,
        ctx: &QueryContext,
        search: Search,
        now: i64,
    ) -> Result<Vec<Trace>, TraceError> {
        let search = Search { after: None, ..search };
        self.read(ctx, move |reader| async move {
            let mut whole = Some(Whole::default());
            let page = reader.search(&search, now, &mut whole).await?;
            let mut whole = whole.unwrap_or_default();
            Ok(page.rows.iter().filter_map(|row| whole.remove(&row.id)).collect())
        })
        .await
    }
}

impl Reader {
    /// With `whole` the traces of the page are put there.
    async fn search(&self, search: &Search, now: i64, whole: &mut Option<Whole>) -> Result<Page, TraceError> {
        let received = search.after.as_ref().map(|c| c.received);
        let mut rows: Vec<Summary> = Vec::new();
        let one_by_one = !search.any_span || search.conditions.len() < 2;
        if search.sort == Sort::Start && search.descending && search.ids.is_empty() && one_by_one {
            self.newest(search, now, &mut rows, whole).await?;
        } else {
            let found = self.candidates(search, search.range).await?;
            self.summaries(search, &found, None, &mut rows, whole).await?;
        }
        let more = rows.len() > search.limit;
        rows.truncate(search.limit);
        let cursor = rows.last().filter(|_| more).map(|last| {
            let (key, trace) = search.key(last);
            let received = received.unwrap_or(now);
            cursor::Cursor { binds: search.binds(), key, trace, received, range: search.range }.to_string()
        });
        Ok(Page { rows, cursor })
    }

    /// Looks from the newest spans to the oldest, a little further each time, until a page is full.
    async fn newest(
        &self,
        search: &Search,
        now: i64,
        rows: &mut Vec<Summary>,
        whole: &mut Option<Whole>,
    ) -> Result<(), TraceError> {
        let mut found: FoundTraces = HashMap::default();
        let mut known: HashSet<TraceId, FixedState> = HashSet::default();
        let (mut upper, mut width) = (search.range.1, SLICE);
        // What is said to lie ahead is one slice.
        let ahead = now.saturating_add(HOUR);
        let mut lower = if upper > ahead { ahead.max(search.range.0) } else { upper.saturating_sub(width) };
        loop {
            lower = lower.max(search.range.0);
            for (id, more) in self.candidates(search, (lower, upper)).await? {
                found.entry(id).or_default().add(more);
            }
            let full = self.summaries(search, &found, Some(&mut known), rows, whole).await?;
            // No trace that is found further on begins at or after this slice.
            if full || lower <= search.range.0 || rows.get(search.limit).is_some_and(|row| row.start >= lower) {
                return Ok(());
            }
            upper = lower - 1;
            lower = upper.saturating_sub(width);
            width = width.saturating_mul(4);
        }
    }

    /// Adds the summaries of found traces, in order, no more than tell that there is a next page; those that are known
    /// already are left out. Says whether the page cannot change any more, whatever else is found among older spans.
    async fn summaries(
        &self,
        search: &Search,
        found: &FoundTraces,
        mut known: Option<&mut HashSet<TraceId, FixedState>>,
        rows: &mut Vec<Summary>,
        whole: &mut Option<Whole>,
    ) -> Result<bool, TraceError> {
        // Newest matching span first: no trace begins after any of its spans, so that reading can stop.
        let is_known = |id: &TraceId| known.as_ref().is_some_and(|known| known.contains(id));
        let mut order: Vec<TraceId> = found.keys().filter(|id| !is_known(id)).copied().collect();
        order.sort_by_key(|id| (Reverse(found[id].newest), *id));
        let after = search.after.as_ref().map(|c| (c.key, c.trace));
        let received = search.after.as_ref().map(|c| c.received);
        let chunk = match (&known, &whole) {
            (None, _) => CHUNK,
            (Some(_), None) => (search.limit * 2).min(CHUNK),
            // Whole traces are dear.
            (Some(_), Some(_)) => (search.limit + search.limit / 2).min(CHUNK),
        };
        for ids in order.chunks(chunk.max(1)) {
            if known.is_some() && rows.get(search.limit).is_some_and(|row| row.start > found[&ids[0]].newest) {
                note_matches(found, rows);
                return Ok(true);
            }
            if let Some(known) = &mut known {
                known.extend(ids);
            }
            let mut filter = SpanFilter::Traces(Arc::new({
                let mut ids = ids.to_vec();
                ids.sort_unstable();
                ids
            }));
            if let Some(received) = received {
                filter = filter.and(SpanFilter::Received(received));
            }
            let columns = if whole.is_some() { all_columns() } else { summary_columns() };
            let (reports, memory) = self.spans(filter, columns).await?;
            if whole.is_some() {
                self.ctx.keep(memory);
            }
            for trace in assemble_all(reports) {
                let Some(row) = summarize(&trace).filter(|row| search.takes(row)) else { continue };
                if search.accepts.as_ref().is_some_and(|accepts| !(accepts.0)(&trace)) {
                    continue;
                }
                if after.is_none_or(|after| search.key(&row) > after) {
                    rows.push(row);
                    if let Some(whole) = whole {
                        whole.insert(trace.id, trace);
                    }
                }
            }
            rows.sort_by_key(|row| search.key(row));
            // One more than the page says whether there is a next one.
            rows.truncate(search.limit + 1);
            if let Some(whole) = whole.as_mut().filter(|whole| whole.len() > rows.len()) {
                let kept: HashSet<TraceId, FixedState> = rows.iter().map(|row| row.id).collect();
                whole.retain(|id, _| kept.contains(id));
            }
        }
        note_matches(found, rows);
        Ok(false)
    }

    /// Finds the traces whose spans match.
    async fn candidates(&self, search: &Search, range: (i64, i64)) -> Result<FoundTraces, TraceError> {
        if !search.any_span || search.conditions.len() < 2 {
            return self.matching(search.filter_in(range)).await;
        }
        let mut all: Option<FoundTraces> = None;
        for condition in &search.conditions {
            let mut found = self.matching(search.base(search.range).and(condition.clone())).await?;
            all = Some(match all {
                None => found,
                Some(mut known) => {
                    known.retain(|id, of| match found.remove(id) {
                        Some(more) => {
                            of.add(more);
                            true
                        }
                        None => false,
                    });
                    known
                }
            });
        }
        Ok(all.unwrap_or_default())
    }

    async fn matching(&self, filter: SpanFilter) -> Result<FoundTraces, TraceError> {
        let mut found: FoundTraces = HashMap::default();
        self.scan(filter, matched_columns(), |batch| {
            // Each row may bring a span that was not seen.
            self.collect(batch.num_rows() * SEEN_BYTES)?;
            let (mut grown, known) = (0, found.len());
            let missing = || Error::internal("a scan of spans lacks a column");
            let column = |name: &str| batch.column_by_name(name).ok_or_else(missing);
            let ids = column("trace_id")?.as_fixed_size_binary();
            let span_ids = column("span_id")?.as_fixed_size_binary();
            let starts = column("start")?.as_primitive::<Int64Type>();
            let ends = column("end")?.as_primitive::<Int64Type>();
            let statuses = column("status")?.as_primitive::<UInt8Type>();
            let names = column("name")?.as_string::<i32>();
            let services = column("service")?.as_string_view();
            for i in 0..batch.num_rows() {
                let id: TraceId = ids.value(i).try_into().unwrap_or_default();
                let span_id: SpanId = span_ids.value(i).try_into().unwrap_or_default();
                let of = found.entry(id).or_default();
                of.newest = of.newest.max(starts.value(i));
                if of.seen.insert(span_id) && of.first.len() < FIRST_MAX {
                    let service = services.value(i);
                    grown += size_of::<Matched>() + service.len() + names.value(i).len();
                    of.first.push(Matched {
                        span_id,
                        service: if service.is_empty() { "unknown_service" } else { service }.to_owned(),
                        name: names.value(i).to_owned(),
                        duration: ends.value(i).saturating_sub(starts.value(i)),
                        error: statuses.value(i) == STATUS_ERROR,
                    });
                }
            }
            self.collect(grown + (found.len() - known) * FOUND_BYTES)?;
            if found.len() > CANDIDATES_MAX {
                let text = format!("more than {CANDIDATES_MAX} traces match; narrow the search");
                return Err(Error::new(quiver_types::ErrorKind::LimitExceeded, text).into());
            }
            Ok(true)
        })
        .await?;
        Ok(found)
    }
}
