//! Federation: the newest sample of each selected series, for another Prometheus to scrape.
//!
//! Source: Prometheus 3.14 `web/federate.go` (`metrics-api` section 4). Errors are plain text.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use datafusion::execution::memory_pool::MemoryReservation;
use http::{HeaderMap, StatusCode, header};
use quiver_promql::RawReader;
use quiver_query::{QueryContext, QueryEngine, from_datafusion};
use quiver_types::{Error, ErrorKind, LabelSet, Matcher, MillisRange, Result};

use crate::encode::escaping::EscapingScheme;
use crate::encode::federation::{Newest, Value, text};
use crate::encode::federation_proto::delimited;
use crate::error::{log, plain, public_text, status_of};
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::metrics_api::labels::read_all;
use crate::params::Params;
use crate::state::AppState;
use crate::streamed_responses::in_pieces;

const ROUTE: &str = "/federate";

/// Routes of this family, below `/metrics-api`.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(boxed(federate)))
}

/// Bytes that a sample takes besides its labels, including its part of the response.
const SAMPLE_BYTES: usize = 256;

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Text, with its version.
    Text(&'static str),
    Protobuf,
}

/// The format that a scraper accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    form: Form,
    escaping: EscapingScheme,
}

/// One entry of `Accept`.
struct AcceptEntry {
    quality: f64,
    /// `None`: not one of ours.
    form: Option<Form>,
    escaping: Option<EscapingScheme>,
}

impl AcceptEntry {
    fn of(range: &str) -> Self {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut escaping, mut version, mut message) = (1.0, None, String::new(), true);
        for (name, value) in parts.filter_map(|p| p.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.parse().unwrap_or(0.0),
                "escaping" => escaping = EscapingScheme::of(value),
                "proto" => message &= value == "io.prometheus.client.MetricFamily",
                "encoding" => message &= value == "delimited",
                "version" => value.clone_into(&mut version),
                _ => {}
            }
        }
        let form = match (media.as_str(), version.as_str()) {
            ("application/vnd.google.protobuf", _) if message => Some(Form::Protobuf),
            ("text/plain", "" | TEXT) => Some(Form::Text(TEXT)),
            ("text/plain", TEXT_1) => Some(Form::Text(TEXT_1)),
            _ => None,
        };
        Self { quality, form, escaping }
    }
}

/// The older version of the text format. It has no quoted names, but they are written if the scraper asks for them.
const TEXT: &str = "0.0.4";
const TEXT_1: &str = "1.0.0";

impl Format {
    /// Picks an entry of `Accept`; text if none is supported.
    fn negotiate(headers: &HeaderMap) -> Self {
        let lists = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
        let ranges = lists.flat_map(|list| list.split(',')).map(AcceptEntry::of);
        let mut ranges: Vec<AcceptEntry> = ranges.filter(|range| range.quality > 0.0).collect();
        // The sort is stable: entries of the same quality keep their order.
        ranges.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut escaping = EscapingScheme::default();
        for range in ranges {
            // As in Prometheus, the `escaping` of an unsupported entry applies to those after it.
            escaping = range.escaping.unwrap_or(escaping);
            if let Some(form) = range.form {
                return Self { form, escaping };
            }
        }
        Self { form: Form::Text(TEXT), escaping }
    }

    /// Writes samples from an index on. Returns the index of the next sample to write.
    fn write(self, samples: &[Newest], from: usize, out: &mut Vec<u8>) -> usize {
        match self.form {
            Form::Protobuf => delimited(samples, from, self.escaping, out),
            Form::Text(_) => text(samples, from, self.escaping, out),
        }
    }

    fn content_type(self) -> String {
        let escaping = self.escaping.as_str();
        match self.form {
            Form::Protobuf => {
                let message = "proto=io.prometheus.client.MetricFamily; encoding=delimited";
                format!("application/vnd.google.protobuf; {message}; escaping={escaping}")
            }
            Form::Text(version) => format!("text/plain; version={version}; charset=utf-8; escaping={escaping}"),
        }
    }
}

async fn federate(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let format = Format::negotiate(request.headers());
    match answer(&state, request, format).await {
        Ok(body) => ([(header::CONTENT_TYPE, format.content_type())], body).into_response(),
        Err(e) => {
            log(&e, ROUTE);
            // As Prometheus, which answers 400 to any request that it cannot read.
            let status = if e.kind == ErrorKind::TooLarge { StatusCode::BAD_REQUEST } else { status_of(e.kind) };
            plain(status, public_text(&e))
        }
    }
}

async fn answer(state: &AppState, request: Request, format: Format) -> Result<Body> {
    let params = Params::of(state, request).await?;
    if params.all("match[]").next().is_none() {
        return Ok(Body::empty());
    }
    let now = state.clock.now_ms();
    let range = MillisRange::new(now - state.engines.promql.lookback_ms(), now);
    let ctx = state.context(Language::Federation);
    let memory = state.engines.query.reservation("federation", &ctx);
    let (reader, inner) = (state.engines.promql.raw(&ctx), ctx.clone());
    let engine = Arc::clone(&state.engines.query);
    let work = async move {
        let selectors = selectors(&params, &engine, &inner)?;
        collect(reader, selectors, range, inner.limits.rows_max, memory).await
    };
    let (mut samples, memory) = state.engines.query.run(&ctx, work).await?;
    if format.form != Form::Protobuf {
        samples.retain(|s| !s.needs_protobuf());
    }
    let max = state.settings.answer_bytes_max;
    // The reservation is larger than the response. Only if it exceeds the limit, which is rare, the response is
    // written once just to measure it.
    if memory.size() > max && !fits(&samples, format, max) {
        let text = format!("the answer is larger than the limit of {max} bytes");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let mut at = 0;
    let pieces = std::iter::from_fn(move || {
        let _held = &memory;
        (at < samples.len()).then(|| {
            let mut piece = Vec::new();
            at = format.write(&samples, at, &mut piece);
            Bytes::from(piece)
        })
    });
    Ok(in_pieces(pieces))
}

fn fits(samples: &[Newest], format: Format, bytes_max: usize) -> bool {
    let (mut at, mut bytes, mut piece) = (0, 0, Vec::new());
    while at < samples.len() && bytes <= bytes_max {
        piece.clear();
        at = format.write(samples, at, &mut piece);
        bytes += piece.len();
    }
    bytes <= bytes_max
}

/// Parses `match[]`. As in Prometheus, a selector that matches everything is allowed here, and `{}` matches nothing.
fn selectors(params: &Params, engine: &QueryEngine, ctx: &QueryContext) -> Result<Vec<Vec<Matcher>>> {
    let mut all = read_all(params, engine, ctx)?;
    all.retain(|matchers| !matchers.is_empty());
    Ok(all)
}

/// Collects the newest samples, sorted by name, then by the other labels.
async fn collect(
    reader: RawReader,
    selectors: Vec<Vec<Matcher>>,
    range: MillisRange,
    rows_max: u64,
    memory: MemoryReservation,
) -> Result<(Vec<Newest>, MemoryReservation)> {
    if selectors.is_empty() {
        return Ok((Vec::new(), memory));
    }
    let mut newest = reader.newest(selectors, range).await?;
    let (table, mut samples) = (Arc::clone(&newest.table), Vec::new());
    newest
        .each(|row, ts, value| {
            if samples.len() as u64 == rows_max {
                let text = format!("the answer has more series than the limit of {rows_max}; narrow `match[]`");
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
            // Once for the labels and once for the text of the response.
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
        let check = |accept: &str, form: Form, escaping: EscapingScheme| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            assert_eq!(Format::negotiate(&headers), Format { form, escaping }, "{accept}");
        };
        let (old, new, escaped) = (Form::Text(TEXT), Form::Text(TEXT_1), EscapingScheme::Underscores);
        let family = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        check("*/*", old, escaped);
        check("application/json", old, escaped);
        check(family, Form::Protobuf, escaped);
        check(&format!("{family};q=0.7,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"), Form::Protobuf, escaped);
        let text = "text/plain; version=0.0.4; escaping=allow-utf-8; q=0.3";
        check(&format!("{family};q=0.2, {text}"), old, EscapingScheme::AllowUtf8);
        check("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", old, escaped);
        check("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", old, escaped);
        // What Prometheus 3 sends to its targets, without and with native histograms.
        let scraped = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        check(scraped, new, EscapingScheme::AllowUtf8);
        check(&format!("{family};escaping=allow-utf-8;q=0.6,{scraped}"), Form::Protobuf, EscapingScheme::AllowUtf8);
        check("text/plain;version=1.0.0;escaping=dots", new, EscapingScheme::Dots);
        check("text/plain;version=1.0.0;escaping=values", new, EscapingScheme::Values);
        check("text/plain;version=1.0.0;escaping=other", new, escaped);
        check("text/plain;version=2.0.0;escaping=values", old, EscapingScheme::Values);
        check("text/plain;version=1.0.0;q=0,text/plain", old, escaped);
        let nothing = Format { form: old, escaping: escaped };
        assert_eq!(Format::negotiate(&HeaderMap::new()), nothing);
    }

    #[test]
    fn what_a_range_of_accept_says() {
        for (range, quality, form, escaping) in [
            ("", 1.0, None, None),
            ("text/plain", 1.0, Some(Form::Text(TEXT)), None),
            (" TEXT/Plain ; Version = \"1.0.0\" ; Q=0.25", 0.25, Some(Form::Text(TEXT_1)), None),
            ("text/plain;q=x", 0.0, Some(Form::Text(TEXT)), None),
            ("text/plain;q=", 0.0, Some(Form::Text(TEXT)), None),
            ("text/plain;q", 1.0, Some(Form::Text(TEXT)), None),
            ("text/plain;escaping=dots;escaping=x", 1.0, Some(Form::Text(TEXT)), None),
            ("text/plain;version=0.0.3", 1.0, None, None),
            ("application/vnd.google.protobuf", 1.0, Some(Form::Protobuf), None),
            ("application/vnd.google.protobuf;proto=other", 1.0, None, None),
            (
                "application/vnd.google.protobuf;version=9;escaping=values",
                1.0,
                Some(Form::Protobuf),
                Some(EscapingScheme::Values),
            ),
            ("application/json;escaping=underscores", 1.0, None, Some(EscapingScheme::Underscores)),
        ] {
            let found = AcceptEntry::of(range);
            assert_eq!((found.quality, found.form, found.escaping), (quality, form, escaping), "{range}");
        }
    }

    /// The content type states what is sent.
    #[test]
    fn content_types_name_form_and_escaping() {
        for (form, escaping, expected) in [
            (
                Form::Text(TEXT),
                EscapingScheme::Underscores,
                "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            ),
            (
                Form::Text(TEXT_1),
                EscapingScheme::AllowUtf8,
                "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            ),
            (
                Form::Protobuf,
                EscapingScheme::Values,
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=values",
            ),
        ] {
            let told = Format { form, escaping }.content_type();
            assert_eq!(told, expected);
            // A request for that content type gets the same one again.
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(&told).unwrap());
            assert_eq!(Format::negotiate(&headers), Format { form, escaping });
        }
    }

    /// Several `Accept` headers form one list; entries that cannot be parsed are skipped.
    #[test]
    fn several_headers_of_accept() {
        let mut headers = HeaderMap::new();
        headers.append(header::ACCEPT, HeaderValue::from_bytes(b"text/\xff").unwrap());
        headers.append(header::ACCEPT, HeaderValue::from_static("text/plain;q=0.5, ,"));
        headers.append(header::ACCEPT, HeaderValue::from_static("application/vnd.google.protobuf;q=0.6"));
        assert_eq!(Format::negotiate(&headers).form, Form::Protobuf);
    }

    #[test]
    fn answers_fit_to_the_byte() {
        let sample = |n: usize| Newest {
            labels: LabelSet::from_pairs([("__name__", "a"), ("n", n.to_string().as_str())]),
            ts: 0,
            value: Value::Float(1.0),
        };
        let samples: Vec<Newest> = (0..4000).map(sample).collect();
        for form in [Form::Text(TEXT), Form::Protobuf] {
            let format = Format { form, escaping: EscapingScheme::Underscores };
            let (mut at, mut bytes) = (0, 0);
            while at < samples.len() {
                let mut piece = Vec::new();
                at = format.write(&samples, at, &mut piece);
                bytes += piece.len();
            }
            assert!(fits(&samples, format, bytes) && !fits(&samples, format, bytes - 1), "{form:?}: {bytes} bytes");
            assert!(fits(&[], format, 0), "{form:?}");
        }
    }
}
