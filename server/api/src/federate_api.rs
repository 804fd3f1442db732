//! Federation: the newest sample of each series of some selectors, for another Prometheus to scrape.
//!
//! Source: Prometheus 3.14 `web/federate.go` (`metrics-api` section 4). Errors are plain text.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use datafusion::execution::memory_pool::MemoryReservation;
use http::{HeaderMap, StatusCode, header};
use quiver_promql::RawReader;
use quiver_query::from_datafusion;
use quiver_types::{Error, ErrorKind, LabelSet, Matcher, MillisRange, Result};

use crate::encode::federation::{Newest, Value, text};
use crate::encode::federation_proto::delimited;
use crate::error::{log, plain, public_text, status_of};
use crate::labels_api::selectors;
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::state::AppState;

const ROUTE: &str = "/federate";

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(federate))
}

/// What a sample takes beside its labels, answer included.
const SAMPLE_BYTES: usize = 256;

/// What the scraper reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    protobuf: bool,
    utf8: bool,
}

impl Format {
    /// Chooses among what `Accept` lists; text when it lists neither form.
    fn negotiate(headers: &HeaderMap) -> Self {
        let lists = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
        let mut best: Option<(f64, Self)> = None;
        for range in lists.flat_map(|l| l.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut utf8, mut fits) = (1.0, false, true);
            for (name, value) in parts.filter_map(|p| p.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.parse().unwrap_or(0.0),
                    "escaping" => utf8 = value == "allow-utf-8",
                    "proto" => fits &= value == "io.prometheus.client.MetricFamily",
                    "encoding" => fits &= value == "delimited",
                    "version" => fits &= value == "0.0.4",
                    _ => {}
                }
            }
            let protobuf = media == "application/vnd.google.protobuf";
            let known = (protobuf || media == "text/plain") && fits && quality > 0.0;
            if known && best.as_ref().is_none_or(|(q, _)| quality > *q) {
                best = Some((quality, Self { protobuf, utf8 }));
            }
        }
        best.map_or(Self { protobuf: false, utf8: false }, |(_, format)| format)
    }

    fn content_type(self) -> String {
        let escaping = if self.utf8 { "allow-utf-8" } else { "underscores" };
        let media = if self.protobuf {
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
        } else {
            "text/plain; version=0.0.4; charset=utf-8"
        };
        format!("{media}; escaping={escaping}")
    }
}

async fn federate(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let format = Format::negotiate(request.headers());
    match answer(&state, request, format).await {
        Ok(body) => ([(header::CONTENT_TYPE, format.content_type())], body).into_response(),
        Err(e) => {
            log(&e, ROUTE);
            // As Prometheus answers what it cannot read.
            let status = if e.kind == ErrorKind::TooLarge { StatusCode::BAD_REQUEST } else { status_of(e.kind) };
            plain(status, public_text(&e))
        }
    }
}

async fn answer(state: &AppState, request: Request, format: Format) -> Result<Vec<u8>> {
    let params = Params::of(state, request).await?;
    if params.all("match[]").next().is_none() {
        return Ok(Vec::new());
    }
    let now = state.clock.now_ms();
    let range = MillisRange::new(now - state.promql.lookback_ms(), now);
    let ctx = state.context(Language::Federation);
    let memory = state.engine.reservation("federation", &ctx);
    let (reader, inner) = (state.promql.raw(&ctx), ctx.clone());
    let work = async move { collect(reader, selectors(&params, &inner)?, range, inner.limits.rows_max, memory).await };
    let (mut samples, _memory) = state.engine.run(&ctx, work).await?;
    if !format.protobuf {
        samples.retain(|s| !s.needs_protobuf());
    }
    let body = if format.protobuf { delimited(&samples, format.utf8) } else { text(&samples, format.utf8) };
    let max = state.settings.answer_bytes_max;
    if body.len() > max {
        let text = format!("the answer is larger than the limit of {max} bytes");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    Ok(body)
}

/// Gives the newest samples, sorted by name, then by the other labels.
async fn collect(
    reader: RawReader,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    rows_max: u64,
    memory: MemoryReservation,
) -> Result<(Vec<Newest>, MemoryReservation)> {
    let mut newest = reader.newest(selectors, range).await?;
    let (table, mut samples) = (Arc::clone(&newest.table), Vec::new());
    newest
        .each(|row, ts, value| {
            if samples.len() as u64 == rows_max {
                let text = format!("the answer has more series than the limit of {rows_max}");
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
            // Labels, and the text of the answer.
            let pairs = table.labels(row as usize);
            let labels: usize = pairs.map(|(name, value)| name.len() + value.len() + 8).sum();
            let hist = if let Value::Histogram(h) = &value { 4 * h.memory_bytes() } else { 0 };
            memory.try_grow(4 * labels + SAMPLE_BYTES + hist).map_err(from_datafusion)?;
            samples.push(Newest { labels: LabelSet::from_pairs(table.labels(row as usize)), ts, value });
            Ok(())
        })
        .await?;
    Ok((samples, memory))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn formats() {
        let check = |accept: &str, protobuf: bool, utf8: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(Format::negotiate(&headers), Format { protobuf, utf8 }, "{accept}");
        };
        let family = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        check("*/*", false, false);
        check("application/json", false, false);
        check(family, true, false);
        check(&format!("{family};q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"), true, false);
        check(&format!("{family};q=0.2, text/plain; version=0.0.4; escaping=allow-utf-8; q=0.3"), false, true);
        check("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", false, false);
        check("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", false, false);
        assert_eq!(Format::negotiate(&HeaderMap::new()), Format { protobuf: false, utf8: false });
    }
}
