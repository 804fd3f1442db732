//! Cardinality: how many series there are, and which names and labels make most of them.
//!
//! Source: Prometheus 3.14 `web/api/v1/api.go` (`serveTSDBStatus`), `tsdb/index/postings.go` (`Stats`). Prometheus tells
//! of its head; here all series count that the index of live data and parts knows.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use quiver_query::Pace;
use quiver_store::snapshot::Visible;
use quiver_types::label::METRIC_NAME;
use quiver_types::tables::metrics;
use quiver_types::{Error, MatchOp, Matcher, MillisRange, Result, SeriesSelector, SeriesTable};
use serde_json::{Value, json};

use crate::encode::prometheus::{Envelope, error_response, success};
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::state::AppState;

const ROUTE: &str = "/api/v1/status/tsdb";
/// Entries of a list unless asked otherwise.
const LIMIT: usize = 10;
/// What a value that is counted takes.
const COUNT_BYTES: usize = 96;
/// Most entries of a list.
const LIMIT_MAX: usize = 10_000;

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(status))
}

async fn status(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let counted = async {
        let params = Params::of(&state, request).await?;
        let limit = limit(&params)?;
        let ctx = state.context(Language::Series);
        let (snapshot, inner) = (state.source.snapshot(), ctx.clone());
        // Parts are not told apart by service: who does not see all of them learns nothing of their number and times.
        let head = if ctx.access.is_full() { Head::of(&state.store.visible()) } else { Head::nothing() };
        let work = async move {
            let matchers = vec![Matcher::new(METRIC_NAME, MatchOp::NotEqual, "")?];
            let selector = SeriesSelector { matchers, range: MillisRange::ALL, labels: None };
            let selected = snapshot.select(&inner.access, &selector, &inner.stats).await?;
            inner.check("series look-up")?;
            // Counts of the values of one label at a time, and the largest of all labels.
            let table = &selected.table;
            let distinct = table.columns().map(|(_, column)| column.values.len()).max().unwrap_or_default();
            inner.stats.take(distinct * COUNT_BYTES + table.names().len() * limit * COUNT_BYTES)?;
            to_json(table, &head, limit, &Pace::new(&inner, "series look-up"))
        };
        state.engine.run(&ctx, work).await
    };
    match counted.await {
        Ok(data) => success(&Envelope::default(), data.to_string().as_bytes()),
        Err(e) => error_response(&e, ROUTE),
    }
}

fn limit(params: &Params) -> Result<usize> {
    match params.get("limit").map(str::parse::<i64>) {
        None => Ok(LIMIT),
        Some(Ok(n)) if n > LIMIT_MAX as i64 => Err(Error::invalid(format!("limit must not exceed {LIMIT_MAX}"))),
        Some(Ok(n)) if n > 0 => Ok(n as usize),
        Some(_) => Err(Error::invalid("limit must be a positive number")),
    }
}

/// What stands beside the series.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    /// Runs of samples of one series: one for each part and live generation that has it.
    chunks: u64,
    min_ms: i64,
    max_ms: i64,
}

impl Head {
    /// The bounds of nothing are turned around, as in Prometheus.
    fn nothing() -> Self {
        Self { chunks: 0, min_ms: i64::MAX, max_ms: i64::MIN }
    }

    fn of(visible: &Visible) -> Self {
        let mut head = Self::nothing();
        for part in visible.table(metrics::TABLE.name) {
            head.add(part.meta.series, Some(part.meta.range()));
        }
        for generation in &visible.generations {
            head.add(generation.series() as u64, generation.range());
        }
        head
    }

    fn add(&mut self, series: u64, range: Option<MillisRange>) {
        self.chunks += series;
        if let Some(range) = range {
            self.min_ms = self.min_ms.min(range.min);
            self.max_ms = self.max_ms.max(range.max);
        }
    }
}

fn to_json(table: &SeriesTable, head: &Head, limit: usize, pace: &Pace) -> Result<Value> {
    let (mut names, mut values, mut memory, mut pairs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut pairs_count = 0;
    for (label, column) in table.columns() {
        pace.did(2 * table.len() + column.values.len())?;
        let mut counts: HashMap<&str, u64> = HashMap::new();
        (0..table.len()).map(|row| &**column.value(row)).filter(|v| !v.is_empty()).for_each(|value| {
            *counts.entry(value).or_default() += 1;
        });
        if counts.is_empty() {
            continue;
        }
        pairs_count += counts.len();
        values.push((label.to_string(), counts.len() as u64));
        memory.push((label.to_string(), counts.iter().map(|(value, n)| value.len() as u64 * n).sum()));
        if &**label == METRIC_NAME {
            names.extend(counts.iter().map(|(name, n)| ((*name).to_owned(), *n)));
        }
        pairs.extend(top(counts, limit).into_iter().map(|(value, n)| (format!("{label}={value}"), n)));
    }
    Ok(json!({
        "headStats": {
            "numSeries": table.len(),
            "numLabelPairs": pairs_count,
            "chunkCount": head.chunks,
            "minTime": head.min_ms,
            "maxTime": head.max_ms,
        },
        "seriesCountByMetricName": list(names, limit),
        "labelValueCountByLabelName": list(values, limit),
        "memoryInBytesByLabelName": list(memory, limit),
        "seriesCountByLabelValuePair": list(pairs, limit),
    }))
}

/// Gives the largest, those of one size by name.
fn top<N: AsRef<str> + Ord>(counts: impl IntoIterator<Item = (N, u64)>, limit: usize) -> Vec<(N, u64)> {
    let mut all: Vec<(N, u64)> = counts.into_iter().collect();
    all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(limit);
    all
}

fn list(counts: Vec<(String, u64)>, limit: usize) -> Value {
    top(counts, limit).into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

#[cfg(test)]
mod tests {
    use quiver_types::series::SeriesTableBuilder;

    use super::*;

    #[test]
    fn counts() {
        let mut table = SeriesTableBuilder::default();
        for (name, job) in [("a", "x"), ("a", "long"), ("b", "x"), ("c", "")] {
            table.push([("__name__", name), ("job", job)].into_iter().filter(|(_, v)| !v.is_empty()));
        }
        let head = Head { chunks: 5, min_ms: 1, max_ms: 9 };
        let ctx = quiver_query::QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        let shown = to_json(&table.finish(), &head, 2, &Pace::new(&ctx, "a test")).unwrap();
        let stats = json!({"numSeries": 4, "numLabelPairs": 5, "chunkCount": 5, "minTime": 1, "maxTime": 9});
        assert_eq!(shown["headStats"], stats);
        let entry = |name: &str, value: u64| json!({"name": name, "value": value});
        assert_eq!(shown["seriesCountByMetricName"], json!([entry("a", 2), entry("b", 1)]));
        assert_eq!(shown["labelValueCountByLabelName"], json!([entry("__name__", 3), entry("job", 2)]));
        assert_eq!(shown["memoryInBytesByLabelName"], json!([entry("job", 6), entry("__name__", 4)]));
        assert_eq!(shown["seriesCountByLabelValuePair"], json!([entry("__name__=a", 2), entry("job=x", 2)]));
    }

    #[test]
    fn limits() {
        let read =
            |query: &str| limit(&Params::read(&http::Method::GET, &http::HeaderMap::new(), Some(query), b"").unwrap());
        assert_eq!((read("").unwrap(), read("limit=10000").unwrap()), (10, 10_000));
        let refused = |query: &str| read(query).unwrap_err().message;
        assert_eq!(refused("limit=0"), "limit must be a positive number");
        assert_eq!(refused("limit=x"), "limit must be a positive number");
        assert_eq!(refused("limit=10001"), "limit must not exceed 10000");
    }
}
