//! The API of Prometheus, below `/metrics-api`: here instant and range queries, and the small endpoints that clients
//! call first; the others have a file each.
//!
//! Source: `metrics-api` section 2; order of checks and texts as in Prometheus 3.14 `web/api/v1/api.go`.

mod cardinality;
mod exemplars;
mod federation;
pub(crate) mod labels;
mod remote_read;
mod server;
mod targets;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use quiver_promql::ast::Expr;
use quiver_promql::ast_json::to_json;
use quiver_promql::print::pretty;
use quiver_promql::{PromqlError, QueryOptions, QueryOutcome, QueryTimes};
use quiver_query::{Explain, QueryContext};
use quiver_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use self::labels::TRUNCATED;
use crate::encode::json::json_body;
use crate::encode::prometheus::{Envelope, begin_success, close_success, error_response, finish_success, success};
use crate::encode::query_result::Outcome;
use crate::encode::stats;
use crate::error::plain;
use crate::explain_plans;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::partial_responses::query_context;
use crate::prometheus_params::{bad_duration, duration_ms};
use crate::state::AppState;

/// The version of Prometheus whose behaviour this is: clients compare it.
const PROMETHEUS_VERSION: &str = "3.14.0";
/// Most steps of a range query.
const STEPS_MAX: i64 = 11_000;

/// Routes of this family, below `/metrics-api`; those of ingest and rules go beside them.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let listed = labels::routes().merge(exemplars::routes()).merge(cardinality::routes());
    let taken = federation::routes().merge(remote_read::routes());
    queries()
        .merge(listed.layer(middleware::from_fn(explain_plans::enveloped)))
        .merge(taken.layer(middleware::from_fn(explain_plans::beside_text)))
        .merge(server::routes())
        .merge(targets::routes())
}

fn queries() -> Router<Arc<AppState>> {
    Router::new()
        .route("/api/v1/query", get(boxed(query)).post(boxed(query)))
        .route("/api/v1/query_range", get(boxed(query_range)).post(boxed(query_range)))
        .route("/api/v1/format_query", get(boxed(format_query)).post(boxed(format_query)))
        .route("/api/v1/parse_query", get(boxed(parse_query)).post(boxed(parse_query)))
        .route("/api/v1/status/buildinfo", get(boxed(buildinfo)))
        .route("/-/healthy", get(boxed(|| async { plain(StatusCode::OK, "Prometheus Server is Healthy.") })))
        .route("/-/ready", get(boxed(ready)))
}

async fn ready(state: State<Arc<AppState>>) -> Response {
    let answer = crate::admin::ready(state).await;
    if answer.status() == StatusCode::OK { plain(StatusCode::OK, "Prometheus Server is Ready.") } else { answer }
}

async fn buildinfo(State(state): State<Arc<AppState>>) -> Response {
    let data = json!({
        "version": PROMETHEUS_VERSION,
        "revision": format!("quiver-{}", state.settings.version),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    });
    success(&Envelope::default(), data.to_string().as_bytes())
}

/// What instant and range queries share.
#[derive(Debug)]
struct Ask {
    query: String,
    times: QueryTimes,
    limit: usize,
    options: QueryOptions,
    ctx: QueryContext,
    explain: Option<Explain>,
    stats: Option<String>,
}

async fn query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let route = "/api/v1/query";
    let asked = async {
        let params = Params::of(&state, request).await?;
        let limit = params.limit()?;
        let at = params.time("time")?.unwrap_or_else(|| state.clock.now_ms());
        ask(&state, &params, limit, QueryTimes::instant(at))
    };
    answer(&state, asked.await, route).await
}

async fn query_range(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let route = "/api/v1/query_range";
    let asked = async {
        let params = Params::of(&state, request).await?;
        let limit = params.limit()?;
        let (start, end) = (params.required_time("start")?, params.required_time("end")?);
        if end < start {
            return Err(invalid("end", "end timestamp must not be before start time"));
        }
        let bad_step = || invalid("step", "cannot parse \"\" to a valid duration");
        let step_ms = params.duration("step")?.ok_or_else(bad_step)?;
        if step_ms <= 0 {
            let text = "zero or negative query resolution step widths are not accepted. Try a positive integer";
            return Err(invalid("step", text));
        }
        if end.saturating_sub(start) / step_ms > STEPS_MAX {
            let text = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)";
            return Err(Error::invalid(text));
        }
        ask(&state, &params, limit, QueryTimes::range(start, end, step_ms)?)
    };
    answer(&state, asked.await, route).await
}

fn ask(state: &AppState, params: &Params, limit: usize, times: QueryTimes) -> Result<Ask> {
    let mut limits = state.limits();
    if let Some(timeout_ms) = params.duration("timeout")? {
        limits.timeout = limits.timeout.min(Duration::from_millis(timeout_ms.max(0) as u64));
    }
    let lookback_ms =
        match params.get("lookback_delta") {
            None => None,
            // Zero and negative values mean the default.
            Some(text) => Some(duration_ms(text).ok_or_else(|| {
                Error::invalid(format!("error parsing lookback delta duration: {}", bad_duration(text)))
            })?)
            .filter(|ms| *ms > 0),
        };
    let no_cache = match params.get("nocache") {
        None | Some("0" | "false") => false,
        Some("1" | "true") => true,
        Some(other) => return Err(invalid("nocache", &format!("{other:?} is not one of 0, 1"))),
    };
    let explain = explain_plans::read(params.get("explain")).map_err(|why| invalid("explain", &why))?;
    let query = params.get("query").unwrap_or_default();
    let mut asked = state.asked(Language::Promql, query);
    asked.info.times = params.given(&["time", "start", "end", "step"]);
    Ok(Ask {
        query: query.to_owned(),
        times,
        limit,
        options: QueryOptions { lookback_ms, stats: params.get("stats").is_some(), no_cache },
        ctx: query_context(state, asked, limits),
        explain,
        stats: params.get("stats").map(str::to_owned),
    })
}

/// Makes the error of a query: where the expression itself is wrong, it names the parameter.
pub(crate) fn query_error(error: PromqlError) -> Error {
    match error {
        PromqlError::Parse(e) => invalid("query", &e.to_string()),
        PromqlError::Evaluation(e) if e.kind == ErrorKind::Invalid => invalid("query", &e.message),
        PromqlError::Evaluation(e) => e,
    }
}

async fn answer(state: &Arc<AppState>, asked: Result<Ask>, route: &str) -> Response {
    let ask = match asked {
        Ok(asked) => asked,
        Err(e) => return error_response(&e, route),
    };
    let response = match ask.explain {
        None => run(state, &ask).await,
        Some(how) => explain(state, &ask, how).await,
    };
    response.unwrap_or_else(|e| error_response(&e, route))
}

async fn explain(state: &AppState, ask: &Ask, how: Explain) -> Result<Response> {
    let shown = state.engines.promql.explain(&ask.query, ask.times, &ask.options, how, &ask.ctx).await;
    let shown = shown.map_err(query_error)?;
    Ok(success(&Envelope::default(), shown.to_string().as_bytes()))
}

async fn run(state: &AppState, ask: &Ask) -> Result<Response> {
    let outcome = state.engines.promql.evaluate(&ask.query, ask.times, &ask.options, &ask.ctx).await;
    let mut outcome: QueryOutcome = outcome.map_err(query_error)?;
    let mut envelope =
        Envelope { warnings: std::mem::take(&mut outcome.warnings), infos: std::mem::take(&mut outcome.infos) };
    let stats = ask.stats.as_deref().map(|word| {
        if !matches!(word, "true" | "all") {
            envelope.warnings.push(format!(
                "value {word:?} for parameter \"stats\" is deprecated and will be rejected in the next major release, \
                 use \"true\" or \"all\""
            ));
        }
        stats::to_json(&outcome, word == "all")
    });
    let outcome = Outcome::new(outcome.value, outcome.memory, ask.limit, stats);
    if outcome.cut() {
        envelope.warnings.push(TRUNCATED.to_owned());
    }
    encode(outcome, &envelope, state.settings.answer_bytes_max).await
}

/// An answer up to this size is made in one piece; a larger one while it is read.
const WHOLE_BYTES_MAX: usize = 4 << 20;
/// Size of the pieces of a large answer.
const PIECE_BYTES: usize = 256 << 10;

async fn encode(mut outcome: Outcome, envelope: &Envelope, bytes_max: usize) -> Result<Response> {
    let mut out = begin_success();
    let mut done = outcome.fill(&mut out, WHOLE_BYTES_MAX);
    let mut size = out.len();
    if done && size <= bytes_max {
        return Ok(finish_success(out, envelope));
    }
    // Whether it is too large must be known before its status is sent.
    let (here, mut piece) = (outcome.cursor(), Vec::with_capacity(2 * PIECE_BYTES));
    while !done && size <= bytes_max {
        piece.clear();
        done = outcome.fill(&mut piece, PIECE_BYTES);
        size += piece.len();
        tokio::task::yield_now().await;
    }
    if size > bytes_max {
        let text = format!("the answer is larger than the limit of {bytes_max} bytes");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    outcome.rewind(here);
    let mut tail = Vec::new();
    close_success(&mut tail, envelope);
    let pieces = stream::unfold(Some((outcome, Some(out), tail)), |state| async move {
        let (mut outcome, first, tail) = state?;
        if let Some(first) = first {
            return Some((Ok::<_, Infallible>(Bytes::from(first)), Some((outcome, None, tail))));
        }
        let mut piece = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
        if outcome.fill(&mut piece, PIECE_BYTES) {
            piece.extend_from_slice(&tail);
            return Some((Ok(Bytes::from(piece)), None));
        }
        Some((Ok(Bytes::from(piece)), Some((outcome, None, tail))))
    });
    Ok(json_body(Body::from_stream(pieces)))
}

/// What a tree takes as JSON, or written anew, for each byte of its text.
const SHOWN_BYTES: usize = 512;

/// Reads the expression and shows it, as work of a query whose memory is taken before.
async fn shown(state: &AppState, request: Request, show: fn(&Expr) -> Result<Value>) -> Result<Response> {
    let params = Params::of(state, request).await?;
    let text = params.get("query").unwrap_or_default().to_owned();
    let ctx = state.context(Language::Promql);
    let _memory = state.engines.promql.reserve_text(&text, SHOWN_BYTES, &ctx)?;
    let (promql, inner) = (Arc::clone(&state.engines.promql), ctx.clone());
    let work = async move { show(&promql.parse(&text, &inner).map_err(query_error)?) };
    let value = state.engines.query.run(&ctx, work).await?;
    Ok(success(&Envelope::default(), value.to_string().as_bytes()))
}

async fn format_query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let show = |expr: &Expr| Ok(Value::String(pretty(expr)));
    shown(&state, request, show).await.unwrap_or_else(|e| error_response(&e, "/api/v1/format_query"))
}

async fn parse_query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let show = |expr: &Expr| to_json(expr).map_err(|e| invalid("query", &e.to_string()));
    shown(&state, request, show).await.unwrap_or_else(|e| error_response(&e, "/api/v1/parse_query"))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use quiver_promql::{QueryValue, SampleResult, SampleSeries};
    use quiver_types::SeriesTable;

    use super::*;

    /// Series of so many samples each.
    fn outcome(series: usize, samples: usize, limit: usize) -> Outcome {
        let one = |row: usize| SampleSeries {
            row: row as u32,
            ts: (0..samples as i64).collect(),
            values: (0..samples).map(|v| v as f64).collect(),
            ..SampleSeries::default()
        };
        let table = Arc::new(SeriesTable::new(series, vec![]));
        let value = QueryValue::Samples(SampleResult { table, series: (0..series).map(one).collect() });
        Outcome::new(Arc::new(value), Arc::default(), limit, Some("{}".to_owned()))
    }

    async fn read(response: Response) -> (Option<u64>, Vec<u8>) {
        let body = response.into_body();
        let len = hyper::body::Body::size_hint(&body).exact();
        (len, body.collect().await.expect("a body").to_bytes().to_vec())
    }

    /// An answer that is made while it is read is the one that would have been made at once.
    #[tokio::test]
    async fn large_answers_are_whole() {
        let envelope = Envelope { warnings: vec!["w".to_owned()], infos: vec!["i".to_owned()] };
        let mut behind = Vec::new();
        close_success(&mut behind, &envelope);
        for (series, samples, is_large) in [(0, 0, false), (3, 10, false), (3, 90_000, true)] {
            let mut data = begin_success();
            assert!(outcome(series, samples, 0).fill(&mut data, usize::MAX));
            let expected = [&data[..], &behind].concat();
            let response = encode(outcome(series, samples, 0), &envelope, usize::MAX).await.expect("an answer");
            let (len, body) = read(response).await;
            assert!(body == expected, "{series} series of {samples}: {} of {} bytes", body.len(), expected.len());
            assert_eq!(len.is_none(), is_large, "what is made at once has a length");
            // The limit applies to the data, not to the bytes after it.
            let most = if is_large { WHOLE_BYTES_MAX + 1 } else { data.len() - 1 };
            let error = encode(outcome(series, samples, 0), &envelope, most).await.expect_err("too large");
            let text = format!("the answer is larger than the limit of {most} bytes");
            assert_eq!((error.kind, error.message), (ErrorKind::LimitExceeded, text));
            if !is_large {
                assert!(encode(outcome(series, samples, 0), &envelope, data.len()).await.is_ok());
            }
        }
    }

    #[test]
    fn errors_of_queries_name_the_parameter_where_it_is_wrong() {
        let parsed = quiver_promql::parser::parse("up +").expect_err("unfinished");
        let told = query_error(PromqlError::Parse(parsed.clone()));
        assert_eq!((told.kind, told.message), (ErrorKind::Invalid, format!("invalid parameter \"query\": {parsed}")));
        let kinds = "invalid expression type \"string\" for range query, must be Scalar or instant Vector";
        let told = query_error(PromqlError::Evaluation(Error::invalid(kinds)));
        assert_eq!(told.message, format!("invalid parameter \"query\": {kinds}"));
        let told = query_error(PromqlError::Evaluation(Error::invalid("4:10: duration must be greater than 0")));
        assert_eq!(told.message, "invalid parameter \"query\": 4:10: duration must be greater than 0");
        for kind in [ErrorKind::Execution, ErrorKind::Timeout, ErrorKind::Internal] {
            let told = query_error(PromqlError::Evaluation(Error::new(kind, "x")));
            assert_eq!((told.kind, told.message.as_str()), (kind, "x"));
        }
    }
}
