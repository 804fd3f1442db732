//! Search: matching spans give traces, traces give summaries, which are sorted and limited (`traces-api` 3.1).

mod cursor;
mod execution;

use std::sync::Arc;

use quiver_query::QueryContext;
use quiver_types::spans::{AttributeTest, Place, STATUS_ERROR, SpanFilter, TextTest, TraceId, parse_hex};

use crate::assemble::Trace;
use crate::condition;
use crate::engine::{TraceError, TracesEngine};
use crate::params::{ParamError, Params, any_text, kind, tag};
use crate::resource::INSTANCE_KEYS;
use crate::summary::Summary;
use crate::traceql::ast::Query;
use execution::Whole;

/// Spans that a row names.
const FIRST_MAX: usize = 3;
/// The default window, in nanoseconds.
pub(crate) const HOUR: i64 = 3_600_000_000_000;

/// What rows of a search are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// By earliest start of the trace.
    Start,
    /// By length of the trace: from its earliest start to its latest end.
    Duration,
    /// By number of spans of the trace.
    Spans,
    /// By number of failed spans of the trace.
    Errors,
}

/// A search for traces: what spans and whole traces must be like, and which page of the answer is wanted.
#[derive(Debug, Clone)]
pub struct Search {
    /// Unix nanoseconds, both included: matching spans start within.
    pub range: (i64, i64),
    /// Conditions on spans beside the time.
    pub conditions: Vec<SpanFilter>,
    /// Whether each condition may hold on another span of the trace.
    pub any_span: bool,
    /// Only traces with one of these ids; empty: any trace.
    pub ids: Vec<TraceId>,
    /// Least and greatest length of the trace in nanoseconds, both included.
    pub duration: (i64, i64),
    /// `true`: only traces with failed spans; `false`: only traces without; `None`: both.
    pub error: Option<bool>,
    /// Least and greatest number of spans of the trace, both included.
    pub spans: (u64, u64),
    /// Least number of services that have spans in the trace.
    pub services_min: u64,
    /// What rows are ordered by; the start unless asked otherwise.
    pub sort: Sort,
    /// Whether the greatest comes first; so it is unless asked otherwise.
    pub descending: bool,
    /// Rows of a page at most; 20 unless asked otherwise.
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
    /// At most [`Search::limit`] traces, in the order asked for.
    pub rows: Vec<Summary>,
    /// Where the next page begins; none after the last.
    pub cursor: Option<String>,
}

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
        all.push(condition::parse("filter", text)?);
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
        const MOST: u64 = 1 << 53;
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
        search = search.with_traceql(params)?;
        search.any_span = params.word("spans", &["one", "any"])? == Some("any");
        if params.word("durationOf", &["span", "trace"])? == Some("trace") {
            search.duration = durations(params)?;
        }
        if params.word("errorOf", &["span", "trace"])? == Some("trace") {
            search.error = params.switch("error")?;
        }
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
            let cursor = cursor::Cursor::parse(text)
                .ok_or_else(|| ParamError::new("cursor", "is not the `nextCursor` of an answer"))?;
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

    /// Reads the filter of a search alone, for calls that list and count spans, and whose `limit` and `sort` are their own.
    ///
    /// # Errors
    /// A parameter is wrong, or asks something of whole traces.
    pub fn parse_filter(params: &Params, now: i64) -> Result<Self, TraceError> {
        for name in ["durationOf", "errorOf"] {
            params.word(name, &["span"])?;
        }
        let mut search = Self::new(params.range(now, HOUR)?);
        search.conditions = conditions(params)?;
        Ok(search)
    }

    /// Adds the condition of `q`, for calls where it is none on names.
    ///
    /// # Errors
    /// It is no TraceQL, or asks something of more than single spans.
    pub fn with_traceql(mut self, params: &Params) -> Result<Self, TraceError> {
        if let Some(text) = params.one("q")? {
            self.conditions.push(of_traceql(text)?);
        }
        Ok(self)
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

    /// Says whether its conditions may hold on different spans, so that each has a plan of its own.
    fn is_joined(&self) -> bool {
        self.any_span && self.conditions.len() > 1
    }

    /// Gives the filter of spans that match, of traces that are known to.
    fn matching(&self) -> SpanFilter {
        if self.is_joined() {
            return self.base(self.range).and(SpanFilter::Or(self.conditions.clone()));
        }
        self.filter()
    }

    /// Gives the filter of all spans of some traces, as the first page saw them.
    fn of_traces(&self, ids: impl Iterator<Item = TraceId>) -> SpanFilter {
        let mut ids: Vec<TraceId> = ids.collect();
        ids.sort_unstable();
        let traces = SpanFilter::Traces(Arc::new(ids));
        match &self.after {
            Some(cursor) => traces.and(SpanFilter::Received(cursor.received)),
            None => traces,
        }
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
            let found = page.rows.iter().filter_map(|row| whole.remove(&row.id)).map(|(trace, memory)| {
                reader.ctx.keep(memory);
                trace
            });
            Ok(found.collect())
        })
        .await
    }
}

#[cfg(test)]
mod tests;
