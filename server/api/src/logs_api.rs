//! LogsQL over HTTP, below `/logs-api/select/logsql` and, as clients of VictoriaLogs ask, `/select/logsql`.
//!
//! Source: `logs-api` section 8. What a caller may see is applied by the scans.

mod counts;
mod csv;
mod prometheus;
mod response;
mod rows;
mod time_range;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use http::HeaderValue;
use quiver_logsql::ast::{Filter, Query};
use quiver_logsql::request_params::{
    duration_param, extra_filter, extra_stream_filter, last_moment, time_param, without_pipes,
};
use quiver_logsql::{QueryScope, Regexps, parse_among};
use quiver_query::{QueryContext, QueryReservation};
use quiver_types::{Error, Result};

use crate::admin;
use crate::encode::json::{json_answer, json_body};
use crate::explain_plans;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::partial_responses::query_context;
use crate::segments::{self, SegmentFilter};
use crate::state::AppState;

/// Memory that each byte of a query's text takes when it is read, bound and planned, at most.
const TEXT_FACTOR: usize = 64;

/// Below what the endpoints stand: our own path, and that of the service whose clients they are made for.
const BASES: [&str; 2] = ["/logs-api", ""];

/// The version of VictoriaLogs whose interface this is: Grafana's data source refuses older ones.
const VICTORIALOGS_VERSION: &str = "v1.54.0";

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    BASES.iter().fold(Router::new(), |router, base| {
        router
            .nest(&format!("{base}/select/logsql"), queries())
            .route(&format!("{base}/health"), get(boxed(admin::ready)))
            .route(&format!("{base}/select/tenant_ids"), get(boxed(tenants)))
            .route(&format!("{base}/select/buildinfo"), get(boxed(build)))
    })
}

/// The one tenant.
async fn tenants() -> Response {
    json_body(r#"[{"account_id":0,"project_id":0}]"#.into())
}

async fn build(State(state): State<Arc<AppState>>) -> Response {
    let revision = format!("quiver-{}", state.settings.version);
    let data = serde_json::json!({ "version": VICTORIALOGS_VERSION, "revision": revision });
    json_answer(&serde_json::json!({ "status": "success", "data": data }))
}

fn queries() -> Router<Arc<AppState>> {
    Router::new()
        .route("/query", get(boxed(rows::query)).post(boxed(rows::query)))
        .route("/tail", get(boxed(rows::tail)).post(boxed(rows::tail)))
        .route("/hits", get(boxed(counts::hits)).post(boxed(counts::hits)))
        .route("/field_names", get(boxed(counts::field_names)).post(boxed(counts::field_names)))
        .route("/field_values", get(boxed(counts::field_values)).post(boxed(counts::field_values)))
        .route("/streams", get(boxed(counts::streams)).post(boxed(counts::streams)))
        .route("/stream_ids", get(boxed(counts::stream_ids)).post(boxed(counts::stream_ids)))
        .route("/stream_field_names", get(boxed(counts::stream_field_names)).post(boxed(counts::stream_field_names)))
        .route("/stream_field_values", get(boxed(counts::stream_field_values)).post(boxed(counts::stream_field_values)))
        .route("/facets", get(boxed(counts::facets)).post(boxed(counts::facets)))
        .route("/query_time_range", get(boxed(time_range::query_time_range)).post(boxed(time_range::query_time_range)))
        .route("/stats_query", get(boxed(prometheus::stats_query)).post(boxed(prometheus::stats_query)))
        .route(
            "/stats_query_range",
            get(boxed(prometheus::stats_query_range)).post(boxed(prometheus::stats_query_range)),
        )
        .route_layer(from_fn(timed))
}

/// The header with the seconds until a response began; clients of `VictoriaLogs` show it.
const DURATION: &str = "vl-request-duration-seconds";

async fn timed(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let mut response = next.run(request).await;
    let seconds = format!("{:.3}", began.elapsed().as_secs_f64());
    let seconds = HeaderValue::try_from(seconds).expect("digits and a point");
    response.headers_mut().insert(DURATION, seconds);
    response
}

/// The texts of a query and of the filters that are added to it: all that a query keeps which is run again and again,
/// since what is made of them takes many times as much.
#[derive(Debug)]
struct Texts {
    query: String,
    filters: Vec<(ExtraFilterKind, String)>,
    /// Whether the query's filter alone counts.
    ignore_pipes: bool,
}

/// How a filter is written that is added to a query.
#[derive(Debug, Clone, Copy)]
enum ExtraFilterKind {
    /// As `extra_filters`.
    Rows,
    /// As `extra_stream_filters`.
    Streams,
}

impl Texts {
    /// Takes them from the parameters of a request.
    ///
    /// # Errors
    /// Invalid: there is no query; those of segments.
    fn of(state: &AppState, params: &Params) -> Result<Self> {
        let query = params.get("query").ok_or_else(|| Error::invalid("missing parameter `query`"))?.to_owned();
        let given = |name, added| params.all(name).map(move |text| (added, text.to_owned()));
        let mut filters: Vec<_> = given("extra_filters", ExtraFilterKind::Rows).collect();
        filters.extend(given("extra_stream_filters", ExtraFilterKind::Streams));
        for segment in segments::of_request(state, params.pairs(), "logs")? {
            let text = match &segment {
                SegmentFilter::To(condition) => segments::text_of(condition),
                SegmentFilter::ToNothing => "!*".to_owned(),
            };
            filters.push((ExtraFilterKind::Rows, text));
        }
        let ignore_pipes = params.get("ignore_pipes").map_or(Ok(false), |text| switch_of("ignore_pipes", text))?;
        Ok(Self { query, filters, ignore_pipes })
    }

    fn bytes(&self) -> usize {
        self.query.len() + self.filters.iter().map(|(_, text)| text.len()).sum::<usize>()
    }

    /// Reads them: the query, and the filters that are added.
    ///
    /// # Errors
    /// Invalid.
    fn read(&self) -> Result<(Query, Vec<Filter>)> {
        let mut regexps = Regexps::default();
        let mut query = parse_among(&self.query, &mut regexps)?;
        if self.ignore_pipes {
            query = without_pipes(query);
        }
        let mut extra = Vec::new();
        for (added, text) in &self.filters {
            extra.extend(match added {
                ExtraFilterKind::Rows => extra_filter(text, &mut regexps)?,
                ExtraFilterKind::Streams => extra_stream_filter(text, &mut regexps)?,
            });
        }
        Ok((query, extra))
    }
}

/// Times of a request, as its caller gave them.
#[derive(Debug, Clone, Copy)]
struct GivenTimes {
    /// `start` and `end`.
    range_ns: (Option<i64>, Option<i64>),
    /// `time`, or else the clock.
    now_ns: i64,
}

/// What all endpoints read of a request.
#[derive(Debug)]
struct Ask {
    params: Params,
    texts: Texts,
    query: Query,
    scope: QueryScope,
    ctx: QueryContext,
    times: GivenTimes,
    /// The moment of the evaluation, as the caller gave it.
    time_ns: i64,
    /// Memory of the query, read.
    _memory: QueryReservation,
}

impl Ask {
    async fn of(state: &AppState, request: Request) -> Result<Self> {
        Self::read(state, request, false).await
    }

    /// Reads a request; `is_standing`: of a query that goes on until its reader leaves.
    async fn read(state: &AppState, request: Request, is_standing: bool) -> Result<Self> {
        let params = Params::with_segments(state, request).await?;
        let texts = Texts::of(state, &params)?;
        if params.get("hidden_fields_filters").is_some() {
            // Who passes requests on hides fields with it: without it they would be shown.
            return Err(invalid("hidden_fields_filters", "is not supported"));
        }
        let mut limits = state.limits();
        limits.timeout = limits.timeout.min(state.live.load().logs_timeout);
        // What cannot be read is no time limit of the caller's.
        if let Some(ns) = params.get("timeout").and_then(duration_param).filter(|ns| *ns > 0) {
            limits.timeout = limits.timeout.min(Duration::from_nanos(ns as u64));
        }
        let mut asked = state.asked(Language::Logsql, &texts.query);
        asked.info.times = params.given(&["start", "end", "time"]);
        asked.info.standing = is_standing;
        if is_standing {
            // It sees by itself what was taken away, and goes on with the rest.
            asked.info.permit = None;
        }
        let ctx = query_context(state, asked, limits);
        let memory = state.engines.logsql.collected("query text", &ctx);
        memory.add(TEXT_FACTOR * texts.bytes())?;
        let (query, extra) = texts.read()?;
        let clock_ns = state.clock.now_ms() * 1_000_000;
        let time = |name: &str| {
            let read =
                |text: &str| time_param(text, clock_ns).ok_or_else(|| invalid(name, &format!("`{text}` is no time")));
            params.get(name).map(read).transpose()
        };
        let (start_ns, end_ns, at_ns) = (time("start")?, time("end")?, time("time")?);
        let times = GivenTimes { range_ns: (start_ns, end_ns), now_ns: at_ns.unwrap_or(clock_ns) };
        let time_ns = at_ns.or(end_ns).unwrap_or(clock_ns);
        let end_ns = end_ns.map(last_moment);
        let scope = QueryScope { now_ns: time_ns.saturating_sub(1), start_ns, end_ns, extra };
        Ok(Self { params, texts, query, scope, ctx, times, time_ns, _memory: memory })
    }

    /// A count that must be a number; 0 when absent.
    fn number(&self, name: &str) -> Result<u64> {
        self.params.get(name).map_or(Ok(0), |text| count_of(name, text))
    }

    /// Whether something is asked for; no when absent.
    fn switch(&self, name: &str) -> Result<bool> {
        self.params.get(name).map_or(Ok(false), |text| switch_of(name, text))
    }

    /// A duration with its text.
    fn duration(&self, name: &str, default: &str) -> Result<(i64, String)> {
        let text = self.params.get(name).unwrap_or(default);
        let ns = duration_param(text).ok_or_else(|| invalid(name, &format!("`{text}` is no duration")))?;
        Ok((ns, text.to_owned()))
    }

    /// The zone of time buckets; nothing when they begin as in UTC.
    fn offset(&self) -> Result<Option<(i64, String)>> {
        self.duration("offset", "0s").map(|offset| Some(offset).filter(|(ns, _)| *ns != 0))
    }

    /// A step, which must be greater than 0.
    fn step(&self) -> Result<(i64, String)> {
        let (ns, _) = self.duration("step", "1d")?;
        if ns <= 0 {
            return Err(invalid("step", "must be greater than 0"));
        }
        Ok((ns, format!("{ns}ns")))
    }

    /// Answers with the plans instead of rows, if the caller asks for them.
    async fn explained(&self, state: &AppState, query: &Query) -> Result<Option<Response>> {
        let explain = explain_plans::read(self.params.get("explain")).map_err(|why| invalid("explain", &why))?;
        let Some(explain) = explain else { return Ok(None) };
        let plans = state.engines.logsql.explain(query, &self.scope, &self.ctx, explain).await?;
        Ok(Some(json_body(plans.to_string().into())))
    }
}

/// Reads a count. As in VictoriaLogs, one below zero sets no limit.
fn count_of(name: &str, text: &str) -> Result<u64> {
    match text.parse::<i64>() {
        Ok(below) if below < 0 => Ok(0),
        _ => text.parse::<u64>().map_err(|_| invalid(name, &format!("`{text}` is no number"))),
    }
}

/// Reads a yes or no in the words of VictoriaLogs.
fn switch_of(name: &str, text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "" | "0" | "f" | "false" | "no" => Ok(false),
        "1" | "t" | "true" | "yes" => Ok(true),
        _ => Err(invalid(name, &format!("`{text}` is not one of true, false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of one text alone may be too many, and so may those of all.
    #[test]
    fn regular_expressions_of_all_texts_count_together() {
        let large = [r#"a:~"(?i)[\\p{L}]{1,20}""#; 8].join(" or ");
        let read = |filters: usize| {
            let filters = vec![(ExtraFilterKind::Rows, large.clone()); filters];
            Texts { query: "*".to_owned(), filters, ignore_pipes: false }.read().map_err(|e| e.message)
        };
        assert!(read(1).is_ok());
        let fault = read(100).expect_err("too much");
        assert!(fault.contains("regular expressions"), "{fault}");
    }

    #[test]
    fn counts_and_switches() {
        for (text, expected) in [("0", 0), ("7", 7), ("-1", 0), ("18446744073709551615", u64::MAX)] {
            assert_eq!(count_of("limit", text).ok(), Some(expected), "{text}");
        }
        for wrong in ["x", "1.5", "1K", " 5", "-", "-x"] {
            assert!(count_of("limit", wrong).is_err(), "{wrong}");
        }
        for (text, expected) in [("1", true), ("TRUE", true), ("yes", true), ("0", false), ("No", false), ("", false)] {
            assert_eq!(switch_of("keep_const_fields", text).ok(), Some(expected), "{text}");
        }
        assert!(switch_of("keep_const_fields", "x").is_err());
    }
}
