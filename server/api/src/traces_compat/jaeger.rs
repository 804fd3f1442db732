//! Jaeger's query API, version 1, as Grafana and older UIs use it. Mounted twice, since some releases of Grafana
//! replace the path in a data source's URL.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use quiver_ingest::traces::{TraceContext, TraceFormat, decode};
use quiver_ingest::within;
use quiver_query::QueryContext;
use quiver_traces::assemble::assemble_all;
use quiver_traces::export::traceobject::{DAMAGED_CODE, ExportGaps, write_wrapped};
use quiver_traces::export::{ExportOptions, FlatForm};
use quiver_traces::lists::services::ServiceName;
use quiver_traces::{
    JsonWriter, ListOptions, ParamError, ReaderClosed, Search, Selection, Trace, TraceError, spans_bytes,
};
use quiver_types::spans::{
    AttributeTest, Place, STATUS_ERROR, STATUS_OK, STATUS_UNSET, SpanFilter, TextTest, TraceId, parse_hex, read_spans,
};
use quiver_types::text::from_base64;
use quiver_types::{Access, Error};
use serde_json::{Value, json};

use super::{spans_of, status_and_text};
use crate::body_memory::read_unpacked;
use crate::encode::indented::JsonIndenter;
use crate::encode::json::{json_body, json_response};
use crate::error::with_retry_after;
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_ingest::jaeger_thrift;
use crate::traces_params::{TraceParams, kind};

/// The default start of a search, in nanoseconds before now.
const LOOKBACK: i64 = 2 * 86_400_000_000_000;
/// All time, in Unix nanoseconds.
pub(super) const ALWAYS: (i64, i64) = (i64::MIN, i64::MAX);
const OPTIONS: ExportOptions =
    ExportOptions { native: true, link_references: true, extras: true, flat: FlatForm::Documented };

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for at in ["/api", "/jaeger/api"] {
        router = router
            .route(&format!("{at}/services"), get(boxed(services)))
            .route(&format!("{at}/services/{{service}}/operations"), get(boxed(operation_names)))
            .route(&format!("{at}/operations"), get(boxed(operations)))
            .route(&format!("{at}/traces"), get(boxed(traces)).post(boxed(jaeger_thrift)))
            .route(&format!("{at}/traces/{{id}}"), get(boxed(trace)))
            .route(&format!("{at}/dependencies"), get(boxed(dependencies)))
            .route(&format!("{at}/transform"), post(boxed(transform)))
            .route(&format!("{at}/archive/{{id}}"), post(boxed(archive)));
    }
    router
}

pub(super) fn failed(error: &TraceError) -> Response {
    let (status, text) = status_and_text(error);
    refused(status, &text)
}

fn refused(status: StatusCode, text: &str) -> Response {
    let error = json!({"code": status.as_u16(), "msg": text});
    let body = json!({"data": null, "total": 0, "limit": 0, "offset": 0, "errors": [error]});
    with_retry_after(json_response(status, body.to_string()))
}

fn no_service() -> Response {
    refused(StatusCode::BAD_REQUEST, "parameter 'service' is required")
}

fn data(call: &Call, list: Vec<Value>) -> Result<Response, TraceError> {
    let errors = errors_of(&call.ctx);
    call.json(&json!({"total": list.len(), "data": list, "limit": 0, "offset": 0, "errors": errors}))
}

/// Lists the damaged files that a response lacks; null if it is complete.
fn errors_of(ctx: &QueryContext) -> Value {
    let texts = ctx.stats.left_out.texts();
    let error = |text: String| json!({"code": DAMAGED_CODE, "msg": text});
    if texts.is_empty() { Value::Null } else { Value::Array(texts.into_iter().map(error).collect()) }
}

/// Parses an id of 1 to 32 digits.
pub(super) fn id_of(text: &str) -> Result<TraceId, TraceError> {
    parse_hex::<16>(text).filter(|id| *id != [0; 16]).ok_or(TraceError::InvalidId)
}

/// Parses an id of 1 to 32 hex digits, or its 8 or 16 bytes in base64, as in protobuf's JSON format.
pub(super) fn either_id(text: &str) -> Result<TraceId, TraceError> {
    id_of(text).or_else(|wrong| {
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        let bytes = from_base64(text).filter(|bytes| !is_hex && matches!(bytes.len(), 8 | 16)).ok_or(wrong)?;
        let mut id = TraceId::default();
        id[16 - bytes.len()..].copy_from_slice(&bytes);
        if id == TraceId::default() { Err(TraceError::InvalidId) } else { Ok(id) }
    })
}

async fn services(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let names = call.state.engines.traces.service_names(&call.ctx, ALWAYS, call.segments()?).await?;
        data(&call, names.into_iter().map(Value::from).collect())
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// The operations of a service, optionally of one span kind only.
pub(super) async fn operations_of(
    call: &Call,
    service: Option<ServiceName>,
    span_kind: Option<&str>,
) -> Result<Vec<(String, u8)>, TraceError> {
    let kind = span_kind.map(|text| kind("spanKind", text)).transpose()?;
    let mut conditions = call.segments()?;
    if conditions.is_empty() {
        return call.state.engines.traces.operation_names(&call.ctx, service, kind).await;
    }
    conditions.extend(service.as_ref().map(ServiceName::filter));
    conditions.extend(kind.map(|kind| SpanFilter::Kinds(vec![kind])));
    let rows = call.state.engines.traces.operations(&call.ctx, ALWAYS, conditions, ListOptions::default()).await?;
    let mut found: Vec<(String, u8)> = rows.into_iter().map(|row| (row.name, row.kind)).collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

async fn operation_names(
    State(state): State<Arc<AppState>>,
    Path(service): Path<String>,
    request: Request,
) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let service = Some(ServiceName::Exact(service));
        let mut names: Vec<String> =
            operations_of(&call, service, None).await?.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        data(&call, names.into_iter().map(Value::from).collect())
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Operations as objects with the name of their span kind.
pub(super) fn operation_objects(operations: Vec<(String, u8)>) -> Vec<Value> {
    let object = |(name, kind): (String, u8)| json!({"name": name, "spanKind": quiver_types::spans::kind_name(kind)});
    operations.into_iter().map(object).collect()
}

async fn operations(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let Some(service) = call.params.one("service")? else { return Ok(no_service()) };
        let service = Some(ServiceName::Exact(service.to_owned()));
        let operations = operations_of(&call, service, call.params.one("spanKind")?).await?;
        data(&call, operation_objects(operations))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Parses `tags`, a JSON map, as conditions that may match anywhere on a span.
pub(super) fn tag_map(name: &str, text: &str) -> Result<Vec<SpanFilter>, ParamError> {
    let wrong = || ParamError::new(name, "expected a JSON object of texts");
    let Ok(Value::Object(map)) = serde_json::from_str(text) else { return Err(wrong()) };
    map.into_iter()
        .map(|(key, value)| {
            let text = match value {
                Value::String(text) => text,
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => return Err(wrong()),
            };
            Ok(searched(key, &text))
        })
        .collect()
}

/// Converts a tag to a condition; `error` is the status of the span. Whatever an export shows as a tag can be found
/// by it, even if it is not an attribute.
pub(super) fn condition(key: String, text: &str) -> SpanFilter {
    match (key.as_str(), text) {
        ("error", "true") => SpanFilter::Status(STATUS_ERROR),
        ("error", "false") => SpanFilter::Not(Box::new(SpanFilter::Status(STATUS_ERROR))),
        // What a tag `error` says is kept as the message.
        ("error", said) if !said.is_empty() => failed_with(key, said),
        ("span.kind", name) => kind("tags", name).map_or(SpanFilter::None, |k| SpanFilter::Kinds(vec![k])),
        ("otel.scope.name", name) => SpanFilter::ScopeName(TextTest::Is(name.to_owned())),
        ("otel.scope.version", name) => SpanFilter::ScopeVersion(TextTest::Is(name.to_owned())),
        ("otel.status_description", _) => failed_with(key, text),
        ("otel.status_code", "OK") => SpanFilter::Or(vec![SpanFilter::Status(STATUS_OK), attribute(key, text)]),
        ("otel.status_code", "ERROR") => SpanFilter::Or(vec![SpanFilter::Status(STATUS_ERROR), attribute(key, text)]),
        _ => attribute(key, text),
    }
}

/// Spans that failed with a message, or have it as an attribute.
fn failed_with(key: String, text: &str) -> SpanFilter {
    let message = SpanFilter::Message(TextTest::Is(text.to_owned()));
    SpanFilter::Or(vec![SpanFilter::Status(STATUS_ERROR).and(message), attribute(key, text)])
}

/// Converts a tag of a search. Jaeger has names for what is no tag (`tenant.go`: `validSpan`); an attribute may have such
/// a name, too.
fn searched(key: String, text: &str) -> SpanFilter {
    let or_attribute = |one: SpanFilter| SpanFilter::Or(vec![one, attribute(key.clone(), text)]);
    let is = || TextTest::Is(text.to_owned());
    match key.as_str() {
        "error" => match text {
            "1" | "t" | "T" | "True" | "TRUE" => condition(key, "true"),
            "0" | "f" | "F" | "False" | "FALSE" => condition(key, "false"),
            _ => condition(key, text),
        },
        "span.status" => or_attribute(SpanFilter::Status(match text.to_ascii_uppercase().as_str() {
            "OK" => STATUS_OK,
            "ERROR" => STATUS_ERROR,
            _ => STATUS_UNSET,
        })),
        "scope.name" => or_attribute(SpanFilter::ScopeName(is())),
        "scope.version" => or_attribute(SpanFilter::ScopeVersion(is())),
        // The name of an event is a field of its log.
        "event" => or_attribute(SpanFilter::EventName(is())),
        _ => match key.strip_prefix("resource.") {
            Some(own) => {
                let (place, test) = (Some(Place::Resource), AttributeTest::equals(text));
                or_attribute(SpanFilter::Attribute { place, key: own.to_owned(), test })
            }
            None => condition(key, text),
        },
    }
}

fn attribute(key: String, text: &str) -> SpanFilter {
    SpanFilter::Attribute { place: None, key, test: AttributeTest::equals(text) }
}

fn search(call: &Call) -> Result<Search, TraceError> {
    let params = &call.params;
    let end = params.time("end", call.now)?.unwrap_or(call.now);
    let start = params.time("start", call.now)?.unwrap_or_else(|| end.saturating_sub(LOOKBACK));
    if start > end {
        return Err(ParamError::new("start", "is after 'end'").into());
    }
    let mut search = Search::new((start, end));
    search.conditions = call.segments()?;
    let is = |text: &str| TextTest::Is(text.to_owned());
    search.conditions.extend(params.one("service")?.map(|s| SpanFilter::Service(is(s))));
    search.conditions.extend(params.one("operation")?.map(|s| SpanFilter::Name(is(s))));
    let (min, max) = (params.go_duration("minDuration")?, params.go_duration("maxDuration")?);
    if min.is_some() || max.is_some() {
        let (min, max) = (min.unwrap_or(0), max.unwrap_or(i64::MAX));
        if min > max {
            return Err(ParamError::new("minDuration", "is above 'maxDuration'").into());
        }
        search.conditions.push(SpanFilter::Duration(min, max));
    }
    for text in params.all("tags") {
        search.conditions.extend(tag_map("tags", text)?);
    }
    for text in params.all("tag") {
        let pair = text.split_once(':').filter(|(key, _)| !key.is_empty());
        let (key, value) = pair.ok_or_else(|| ParamError::new("tag", format!("expected key:value, got `{text}`")))?;
        search.conditions.push(searched(key.to_owned(), value));
    }
    search.limit = params.number("limit", 1..=1500)?.unwrap_or(20) as usize;
    Ok(search)
}

/// Whole traces in the order of a search.
pub(super) async fn found(call: &Call, search: Search) -> Result<Vec<Trace>, TraceError> {
    call.state.engines.traces.search_whole(&call.ctx, search, call.now).await
}

/// The ids that none of the traces has.
fn without(mut ids: Vec<TraceId>, traces: &[Trace]) -> Vec<TraceId> {
    let found: HashSet<TraceId> = traces.iter().map(|trace| trace.id).collect();
    ids.retain(|id| !found.contains(id));
    ids
}

async fn traces(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let ids = call.params.all("traceID").map(id_of).collect::<Result<Vec<_>, _>>()?;
        if ids.is_empty() && !call.params.has("service") {
            return Ok(no_service());
        }
        if !ids.is_empty() && !call.segments()?.is_empty() {
            return Err(ParamError::new("segment", "narrows searches, not traces that are named").into());
        }
        let traces = if ids.is_empty() {
            found(&call, search(&call)?).await?
        } else {
            call.state.engines.traces.traces(&call.ctx, ids.clone()).await?
        };
        let missing = without(ids, &traces);
        let (spans, left_out) = (spans_of(&traces), call.ctx.stats.left_out.texts());
        let write = move |w: &mut JsonWriter<'_>| {
            let lacking = ExportGaps { left_out: &left_out, missing: &missing };
            write_wrapped(&traces, traces.len(), lacking, OPTIONS, w);
        };
        call.written(spans, write)
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn trace(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let window = (
            call.params.time("start", call.now)?.unwrap_or(i64::MIN),
            call.params.time("end", call.now)?.unwrap_or(i64::MAX),
        );
        let as_received = call.params.switch("raw")?.unwrap_or(false);
        let selection = Selection { id: either_id(&id)?, window, services: Vec::new(), as_received };
        let trace = call.state.engines.traces.trace(&call.ctx, selection).await?;
        // Any text but this one asks for it, as there.
        let pretty = call.params.one("prettyPrint")?.is_some_and(|text| text != "false");
        let write = move |trace: &Trace, w: &mut JsonWriter<'_>| {
            let lacking = ExportGaps { left_out: &trace.left_out, missing: &[] };
            write_wrapped(std::slice::from_ref(trace), 0, lacking, OPTIONS, w);
        };
        if !pretty {
            return call.written(trace.spans.len(), move |w| write(&trace, w));
        }
        let mut indented = JsonIndenter::new(call.text());
        let mut writer = JsonWriter::pieces(|piece| indented.write_all(&piece).map_err(|_| ReaderClosed));
        write(&trace, &mut writer);
        // The body reports errors.
        let _ = writer.finish();
        Ok(json_body(indented.into_inner().body()?))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Parses `endTs` and `lookback`, both in milliseconds.
pub(super) fn window(call: &Call) -> Result<(i64, i64), TraceError> {
    let number = |name: &str| call.params.number(name, 0..=i64::MAX as u64 / 1_000_000);
    let end = number("endTs")?.map_or(call.now, |ms| ms as i64 * 1_000_000);
    let lookback = number("lookback")?.map_or(86_400_000_000_000, |ms| ms as i64 * 1_000_000);
    Ok((end.saturating_sub(lookback), end))
}

async fn dependencies(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let (from, to) = window(&call)?;
        let mut graph = call.state.engines.traces.dependencies(&call.ctx, (from, to), call.segments()?).await?;
        if let Some(service) = call.params.one("service")? {
            graph.near(&[service.to_owned()], 1);
        }
        let edge = |e: &quiver_traces::Edge| json!({"parent": e.source, "child": e.target, "callCount": e.calls});
        data(&call, graph.service_edges().map(edge).collect())
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Converts an OTLP/JSON file to Jaeger's format; nothing is stored.
async fn transform(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let (head, body) = request.into_parts();
        let call = Call::with(Arc::clone(&state), TraceParams::default());
        let body = read_unpacked(&state.capacity.bodies, &head.headers, body, state.settings.body_bytes_max).await?;
        let limits = state.settings.decode_limits;
        let access = Access::full();
        let ctx = TraceContext {
            body_bytes_max: limits.body_bytes_max,
            batch_bytes_max: limits.batch_bytes_max,
            now_ns: 0,
            earliest_ns: 1,
            latest_ns: i64::MAX,
            access: &access,
        };
        let room = state.capacity.bodies.decoding();
        let run = || decode(TraceFormat::OtlpJson, None, &body, &ctx, &mut |_| true);
        let decoded = within(Arc::clone(&room), run).map_err(Error::from)?;
        let memory = state.engines.query.collected("spans", &call.ctx);
        memory.add(spans_bytes(decoded.batch.len(), decoded.batch.memory_bytes()))?;
        call.ctx.keep(memory);
        drop(room);
        let mut spans = Vec::new();
        read_spans(&decoded.batch.flat(), &mut spans)?;
        let traces = assemble_all(spans);
        call.written(spans_of(&traces), move |w| {
            write_wrapped(&traces, traces.len(), ExportGaps::default(), OPTIONS, w);
        })
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn archive() -> Response {
    refused(StatusCode::NOT_IMPLEMENTED, "there is no archive")
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn ids_are_hex_or_base64() {
        let bytes: TraceId = std::array::from_fn(|i| i as u8 + 1);
        let half = {
            let mut id = TraceId::default();
            id[8..].copy_from_slice(&bytes[..8]);
            id
        };
        for (text, expected) in [
            ("0102030405060708090a0b0c0d0e0f10", Some(bytes)),
            ("AQIDBAUGBwgJCgsMDQ4PEA==", Some(bytes)),
            ("AQIDBAUGBwgJCgsMDQ4PEA", Some(bytes)),
            ("AQIDBAUGBwg=", Some(half)),
            ("102030405060708", Some(half)),
            ("AAAAAAAAAAAAAAAAAAAAAA==", None),
            ("0000000000000000000000", None),
            ("AQID", None),
            ("zz", None),
            ("", None),
        ] {
            assert_eq!(either_id(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn tags_that_exports_show_are_conditions() {
        let check = |key: &str, text: &str, expected: &str| {
            assert_eq!(condition(key.to_owned(), text).to_string(), expected, "{key}={text}");
        };
        check("x", "a", r#"any.x = "a""#);
        check("error", "true", "status = 2");
        check("otel.status_code", "ERROR", r#"(status = 2 or any.otel.status_code = "ERROR")"#);
        check("otel.status_code", "OK", r#"(status = 1 or any.otel.status_code = "OK")"#);
        check("otel.status_code", "x", r#"any.otel.status_code = "x""#);
        let boom = r#"((status = 2 and status message = "boom") or any.otel.status_description = "boom")"#;
        check("otel.status_description", "boom", boom);
    }

    #[test]
    fn tags_are_conditions_of_spans() {
        let check = |key: &str, text: &str, expected: &str| {
            assert_eq!(condition(key.to_owned(), text).to_string(), expected, "{key}={text}");
        };
        check("error", "false", "not status = 2");
        // Other words are messages, or values of an attribute.
        check("error", "boom", r#"((status = 2 and status message = "boom") or any.error = "boom")"#);
        check("error", "", r#"any.error = """#);
        check("Error", "true", r#"any.Error = "true""#);
        check("span.kind", "server", "kind in [2]");
        check("span.kind", "SPAN_KIND_CLIENT", "kind in [3]");
        check("span.kind", "unspecified", "kind in [0]");
        // An unknown span kind matches nothing, instead of everything.
        check("span.kind", "x", "none");
        check("span.kind", "", "none");
        check("otel.scope.name", "lib", r#"scope name = "lib""#);
        check("otel.scope.version", "1.0", r#"scope version = "1.0""#);
        check("otel.status_code", "ok", r#"any.otel.status_code = "ok""#);
        check("http.status_code", "500", r#"any.http.status_code = "500""#);
        check("a", "b:c", r#"any.a = "b:c""#);
    }

    #[test]
    fn maps_of_tags() {
        let read = |text: &str| -> Result<Vec<String>, String> {
            let told = |error: ParamError| format!("{}: {}", error.name, error.reason);
            tag_map("tags", text).map(|all| all.iter().map(SpanFilter::to_string).collect()).map_err(told)
        };
        let check = |text: &str, expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(read(text), Ok(expected), "{text}");
        };
        check("{}", &[]);
        check(r#"{"a":"1"}"#, &[r#"any.a = "1""#]);
        // Numbers and booleans stand for their text.
        check(r#"{"a":1}"#, &[r#"any.a = "1""#]);
        check(r#"{"a":1.50}"#, &[r#"any.a = "1.5""#]);
        check(r#"{"a":true}"#, &[r#"any.a = "true""#]);
        check(r#"{"error":true}"#, &["status = 2"]);
        check(r#"{"error":"true","span.kind":"server"}"#, &["status = 2", "kind in [2]"]);
        check(r#"{"error":"1","span.kind":"CLIENT"}"#, &["status = 2", "kind in [3]"]);
        check(r#"{"error":"F"}"#, &["not status = 2"]);
        check(r#"{"span.status":"ok"}"#, &[r#"(status = 1 or any.span.status = "ok")"#]);
        check(r#"{"span.status":"unset"}"#, &[r#"(status = 0 or any.span.status = "unset")"#]);
        check(r#"{"scope.name":"lib"}"#, &[r#"(scope name = "lib" or any.scope.name = "lib")"#]);
        check(r#"{"scope.version":"1"}"#, &[r#"(scope version = "1" or any.scope.version = "1")"#]);
        check(r#"{"event":"retry"}"#, &[r#"(event name = "retry" or any.event = "retry")"#]);
        check(r#"{"resource.pod":"p"}"#, &[r#"(resource.pod = "p" or any.resource.pod = "p")"#]);
        for wrong in ["", "a", "[]", "null", "5", "{", r#"{"a":null}"#, r#"{"a":["1"]}"#, r#"{"a":{"b":"1"}}"#, "{a:1}"]
        {
            assert_eq!(read(wrong), Err("tags: expected a JSON object of texts".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn ids_of_traces() {
        let with = |tail: &[u8]| {
            let mut id = [0; 16];
            id[16 - tail.len()..].copy_from_slice(tail);
            id
        };
        for (text, expected) in [
            ("1", Some(with(&[1]))),
            ("abc", Some(with(&[0x0a, 0xbc]))),
            ("ABC", Some(with(&[0x0a, 0xbc]))),
            ("000001", Some(with(&[1]))),
            ("00000000000000010000000000000002", Some(with(&[1, 0, 0, 0, 0, 0, 0, 0, 2]))),
            ("ffffffffffffffffffffffffffffffff", Some([0xff; 16])),
            ("000000000000000000000000000000001", None),
            ("", None),
            ("0", None),
            ("00000000000000000000000000000000", None),
            ("0x1", None),
            ("-1", None),
            (" 1", None),
            ("g", None),
            ("é", None),
        ] {
            assert_eq!(id_of(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn pages_of_errors_have_the_form_of_the_tool() {
        for (response, status) in [
            (no_service(), 400),
            (failed(&TraceError::InvalidId), 400),
            (failed(&TraceError::CursorMismatch), 400),
            (failed(&TraceError::NotFound), 404),
            (failed(&TraceError::Forbidden), 404),
            (failed(&TraceError::TooLarge(5)), 413),
            (refused(StatusCode::NOT_IMPLEMENTED, "there is no archive"), 501),
        ] {
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        }
    }

    async fn body_of(response: Response) -> Value {
        use http_body_util::BodyExt as _;

        let body = response.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&body).expect("JSON")
    }

    #[tokio::test]
    async fn errors_stand_in_a_list() {
        let of = |code: u16, text: &str| json!({"data": null, "total": 0, "limit": 0, "offset": 0, "errors": [{"code": code, "msg": text}]});
        assert_eq!(body_of(no_service()).await, of(400, "parameter 'service' is required"));
        assert_eq!(body_of(failed(&TraceError::NotFound)).await, of(404, "trace not found"));
        let wrong = TraceError::Param(ParamError::new("limit", "`x` is no number"));
        assert_eq!(body_of(failed(&wrong)).await, of(400, "parameter 'limit': `x` is no number"));
        let busy = TraceError::Engine(Error::new(quiver_types::ErrorKind::Unavailable, "say \"later\""));
        assert_eq!(body_of(failed(&busy)).await, of(503, "say \"later\""));
        assert_eq!(archive().await.status(), StatusCode::NOT_IMPLEMENTED);
    }

    #[test]
    fn operations_have_the_names_of_their_kinds() {
        let all = (0..6).map(|kind| (format!("o{kind}"), kind)).collect();
        let shown = operation_objects(all);
        let kinds: Vec<&str> = shown.iter().map(|one| one["spanKind"].as_str().expect("a word")).collect();
        assert_eq!(kinds[1..], ["internal", "server", "client", "producer", "consumer"]);
        assert_eq!(shown[2]["name"], "o2");
        for (n, word) in kinds.iter().enumerate().skip(1) {
            assert_eq!(kind("spanKind", word).ok(), Some(n as u8), "{word} is read as it is written");
        }
        assert!(operation_objects(Vec::new()).is_empty());
    }
}
