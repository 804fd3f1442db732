//! Search: matching spans give traces, traces give summaries, which are sorted and limited (`traces-api` 3.1).

mod cursor;
mod execution;

use std::sync::Arc;

use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_types::spans::{AttributeTest, Place, SpanFilter, TextTest, TraceId};

use crate::assemble::Trace;
use crate::engine::{TraceError, TracesEngine};
use crate::resource::INSTANCE_KEYS;
use crate::summary::Summary;
use execution::Whole;

pub use cursor::Cursor;

/// Spans that a row names.
const FIRST_MAX: usize = 3;
/// An hour in nanoseconds.
const HOUR: i64 = 3_600_000_000_000;

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
    pub(crate) after: Option<Cursor>,
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
    pub cursor: Option<Cursor>,
}

/// Resource attributes that name the environment.
const ENV_KEYS: [&str; 2] = ["deployment.environment.name", "deployment.environment"];

fn resource(key: &str, test: AttributeTest) -> SpanFilter {
    SpanFilter::Attribute { place: Some(Place::Resource), key: key.to_owned(), test }
}

/// The first of some resource attributes that is there matches.
fn first_of(keys: &[&str], test: &TextTest) -> SpanFilter {
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

/// Gives the filter of spans of an instance, which is named by the first of some resource attributes that is there.
pub fn of_instance(name: &TextTest) -> SpanFilter {
    first_of(&INSTANCE_KEYS, name)
}

/// Gives the filter of spans of a deployment environment.
pub fn of_environment(name: &TextTest) -> SpanFilter {
    first_of(&ENV_KEYS, name)
}

impl Search {
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

    /// Goes on behind a page. The window of a search that names none moves with the clock, so that a cursor keeps that of its
    /// first page; with `is_bounded` that of this search counts.
    ///
    /// # Errors
    /// The cursor is of another search.
    pub fn go_on(&mut self, cursor: Cursor, is_bounded: bool) -> Result<(), TraceError> {
        if cursor.binds != self.binds() {
            return Err(TraceError::CursorMismatch);
        }
        if !is_bounded {
            self.range = cursor.range;
        }
        self.after = Some(cursor);
        Ok(())
    }

    /// Gives the position behind a row; spans that were received later (Unix nanoseconds) are not seen from there.
    pub fn behind(&self, row: &Summary, received: i64) -> Cursor {
        let (key, trace) = self.key(row);
        Cursor { binds: self.binds(), key, trace, received, range: self.range }
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

    /// Says whether its conditions may hold on different spans, so that each is a column of its own.
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
    pub fn search(
        self: &Arc<Self>,
        ctx: &QueryContext,
        search: Search,
        now: i64,
    ) -> BoxFuture<'_, Result<Page, TraceError>> {
        self.look_up(ctx, Arc::new(search), move |reader, search| async move {
            reader.search(&search, now, &mut None).await
        })
    }

    /// Runs a search, and gives the traces of the page as a whole. What is read of them for the order is kept.
    ///
    /// # Errors
    /// As [`TracesEngine::search`].
    pub fn search_whole(
        self: &Arc<Self>,
        ctx: &QueryContext,
        search: Search,
        now: i64,
    ) -> BoxFuture<'_, Result<Vec<Trace>, TraceError>> {
        let search = Arc::new(Search { after: None, ..search });
        self.look_up(ctx, search, move |reader, search| async move {
            let mut whole = Some(Whole::default());
            let page = reader.search(&search, now, &mut whole).await?;
            let mut whole = whole.unwrap_or_default();
            let found = page.rows.iter().filter_map(|row| whole.remove(&row.id)).map(|(trace, memory)| {
                reader.ctx.keep(memory);
                trace
            });
            Ok(found.collect())
        })
    }

    /// Like [`TracesEngine::search_whole`], but gives the reports of the traces as they were received.
    ///
    /// # Errors
    /// As [`TracesEngine::search`].
    pub fn search_as_received(
        self: &Arc<Self>,
        ctx: &QueryContext,
        search: Search,
        now: i64,
    ) -> BoxFuture<'_, Result<Vec<Trace>, TraceError>> {
        let search = Arc::new(Search { after: None, ..search });
        self.look_up(ctx, search, move |reader, search| async move {
            let page = reader.search(&search, now, &mut None).await?;
            let ids: Vec<TraceId> = page.rows.iter().map(|row| row.id).collect();
            reader.traces_as_received(&ids).await
        })
    }
}

#[cfg(test)]
mod tests;
