//! Runs a query: the scan finds candidates, whole traces decide.

use std::sync::Arc;

use quiver_query::QueryContext;
use quiver_types::spans::SpanFilter;
use serde_json::Value;

use super::Query;
use super::eval::Looked;
use super::memory::LABEL_BYTES;
use super::stages::FoundSet;
use crate::assemble::Trace;
use crate::engine::{TraceError, TracesEngine};
use crate::search::{Accepts, Search};
use crate::summary::{Summary, summarize};

/// A search for traces.
#[derive(Debug, Clone)]
pub struct TraceqlSearch {
    /// What is wanted.
    pub query: Arc<Query>,
    /// Unix nanoseconds, both included: a wanted span starts within.
    pub range: (i64, i64),
    /// Conditions on spans beside the query.
    pub conditions: Vec<SpanFilter>,
    /// Most traces.
    pub limit: usize,
    /// Most spans of each.
    pub spans: usize,
}

/// A trace that was found.
#[derive(Debug, Clone)]
pub struct TraceqlHit {
    /// The trace.
    pub summary: Summary,
    /// Spans that the query wants, in the sets that it makes of them.
    pub sets: Vec<HitSet>,
}

/// Spans that go together.
#[derive(Debug, Clone)]
pub struct HitSet {
    /// How many there are.
    pub matched: usize,
    /// The first of them.
    pub spans: Vec<HitSpan>,
    /// What they have in common, and numbers that were compared; values in OTLP/JSON.
    pub attributes: Vec<(Arc<str>, Value)>,
}

/// A span that was found.
#[derive(Debug, Clone)]
pub struct HitSpan {
    /// Identifier.
    pub id: [u8; 8],
    /// Name, if the query asks for it.
    pub name: Option<String>,
    /// Unix nanoseconds.
    pub start: i64,
    /// Nanoseconds.
    pub duration: i64,
    /// Fields that the query names, values in OTLP/JSON.
    pub attributes: Vec<(String, Value)>,
}

impl TraceqlHit {
    fn of(query: &Query, trace: &Trace, spans_max: usize) -> Option<Self> {
        let looked = Looked::at(trace);
        let (summary, found) = (summarize(trace)?, query.find_in(&looked)?);
        let span = |&i: &usize| {
            let span = &trace.spans[i];
            HitSpan {
                id: span.span_id,
                name: query.shows_name().then(|| span.name.clone()),
                start: span.start,
                duration: span.duration(),
                attributes: query.shown(&looked, i),
            }
        };
        let set = |set: FoundSet| HitSet {
            matched: set.spans.len(),
            spans: set.spans.iter().take(spans_max).map(span).collect(),
            attributes: set.attributes,
        };
        Some(Self { summary, sets: found.sets.into_iter().map(set).collect() })
    }
}

impl HitSet {
    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let text = |value: &Value| value.as_object().and_then(|o| o.values().next()?.as_str()).map_or(0, str::len);
        let own = self.attributes.iter().map(|(key, value)| LABEL_BYTES + key.len() + text(value));
        let spans = self.spans.iter().map(|span| {
            let shown = span.attributes.iter().map(|(key, value)| LABEL_BYTES + key.len() + text(value));
            size_of::<HitSpan>() + span.name.as_ref().map_or(0, String::len) + shown.sum::<usize>()
        });
        size_of::<Self>() + own.sum::<usize>() + spans.sum::<usize>()
    }
}

impl TracesEngine {
    /// Gives the newest traces that a query wants.
    ///
    /// # Errors
    /// Those of a search.
    pub async fn traceql(
        self: &Arc<Self>,
        ctx: &QueryContext,
        wanted: &TraceqlSearch,
        now: i64,
    ) -> Result<Vec<TraceqlHit>, TraceError> {
        let query = Arc::clone(&wanted.query);
        let accepts = Accepts(Arc::new(move |trace| query.find(trace).is_some()));
        let mut conditions = wanted.conditions.clone();
        conditions.push(wanted.query.filter());
        let search = Search { conditions, limit: wanted.limit, accepts: Some(accepts), ..Search::new(wanted.range) };
        let traces = self.search_whole(ctx, search, now).await?;
        let memory = self.collected("hits", ctx);
        let mut hits = Vec::new();
        for trace in &traces {
            let Some(hit) = TraceqlHit::of(&wanted.query, trace, wanted.spans) else { continue };
            memory.add(size_of::<TraceqlHit>() + hit.sets.iter().map(HitSet::bytes).sum::<usize>())?;
            hits.push(hit);
        }
        ctx.keep(memory);
        Ok(hits)
    }
}
