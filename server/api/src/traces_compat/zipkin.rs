//! Zipkin's query API, version 2.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use quiver_traces::export::spanarray;
use quiver_traces::export::{ExportOptions, FlatForm};
use quiver_traces::lists::services::ServiceName;
use quiver_traces::lists::tags::KeyOf;
use quiver_traces::{Edge, ListOptions, ParamError, Search, Selection, Trace, TraceError};
use quiver_types::spans::{AttributeTest, Place, SpanFilter, TextTest, TraceId, hex};
use serde_json::{Value, json};

use super::jaeger::{self, ALWAYS, condition, found, id_of, operations_of};
use super::{spans_of, status_and_text};
use crate::encode::json::json_answer;
use crate::error::plain;
use crate::handlers::boxed;
use crate::state::AppState;
use crate::traces_api::Call;
use crate::traces_ingest::{zipkin as take_spans, zipkin_paths};

/// Most parts of an `annotationQuery`.
const ANNOTATIONS_MAX: usize = 100;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for path in zipkin_paths() {
        router = router.route(path, get(boxed(span_names)).post(boxed(take_spans)));
    }
    for at in ["/api/v2", "/zipkin/api/v2"] {
        router = router
            .route(&format!("{at}/services"), get(boxed(services)))
            .route(&format!("{at}/remoteServices"), get(boxed(remote_services)))
            .route(&format!("{at}/traces"), get(boxed(traces)))
            .route(&format!("{at}/trace/{{id}}"), get(boxed(trace)))
            .route(&format!("{at}/traceMany"), get(boxed(trace_many)))
            .route(&format!("{at}/dependencies"), get(boxed(dependencies)))
            .route(&format!("{at}/autocompleteKeys"), get(boxed(autocomplete_keys)))
            .route(&format!("{at}/autocompleteValues"), get(boxed(autocomplete_values)));
    }
    router
}

/// The form of traces: that of our own export, with the names and other sides that Zipkin would have.
fn options() -> ExportOptions {
    ExportOptions { flat: FlatForm::Zipkin, ..ExportOptions::default() }
}

fn failed(error: &TraceError) -> Response {
    let (status, text) = status_and_text(error);
    plain(status, text)
}

fn required<'c>(call: &'c Call, name: &str) -> Result<&'c str, TraceError> {
    Ok(call.params.one(name)?.ok_or_else(|| ParamError::new(name, "is required"))?)
}

fn names(call: &Call, list: impl IntoIterator<Item = String>) -> Result<Response, TraceError> {
    call.json(&Value::Array(list.into_iter().map(Value::from).collect()))
}

/// Zipkin has names of services and spans in lower case (`Span.Builder.name`, `Endpoint.Builder.serviceName`), in order.
fn lowered(list: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    list.into_iter().map(|name| name.to_lowercase()).collect()
}

async fn services(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let list = call.state.engines.traces.service_names(&call.ctx, ALWAYS, call.segments()?).await?;
        names(&call, lowered(list))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn span_names(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let service = ServiceName::Lower(required(&call, "serviceName")?.to_lowercase());
        let list = operations_of(&call, Some(service), None).await?.into_iter().map(|(name, _)| name);
        // Spans without a name cannot be found by it.
        names(&call, lowered(list.filter(|name| !name.is_empty())))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn remote_services(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let filter = SpanFilter::Service(named(required(&call, "serviceName")?));
        names(&call, lowered(call.state.engines.traces.remote_names(&call.ctx, filter).await?))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Restricts a filter to what Zipkin has as tags: attributes of spans and resources. Attributes of events become
/// annotations.
fn of_tags(filter: SpanFilter) -> SpanFilter {
    match filter {
        SpanFilter::Attribute { place: None, key, test } => {
            let at = |place| SpanFilter::Attribute { place: Some(place), key: key.clone(), test: test.clone() };
            SpanFilter::Or(vec![at(Place::Span), at(Place::Resource)])
        }
        SpanFilter::Or(any) => SpanFilter::Or(any.into_iter().map(of_tags).collect()),
        other => other,
    }
}

/// Parses `endTs` and `lookback`, both in milliseconds; 0 counts as absent.
fn window(call: &Call) -> Result<(i64, i64), TraceError> {
    for name in ["endTs", "lookback"] {
        call.params.number(name, 1..=i64::MAX as u64 / 1_000_000)?;
    }
    jaeger::window(call)
}

/// Zipkin's durations are whole microseconds; these bounds are in nanoseconds and cover them.
fn lasting(min: i64, max: Option<i64>) -> SpanFilter {
    SpanFilter::Duration(min, max.map_or(i64::MAX, |max| max.saturating_add(999)))
}

/// Matches a name in whatever case, as Zipkin would have stored it in lower case.
fn named(name: &str) -> TextTest {
    TextTest::Lower(name.to_lowercase())
}

/// Parses `annotationQuery`: words and `key=value`, joined by ` and `. If a key occurs twice the last value counts.
fn annotations(query: &str) -> Result<Vec<SpanFilter>, ParamError> {
    let mut asked: Vec<(&str, &str)> = Vec::new();
    for part in query.split(" and ") {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim(), value.trim());
        match asked.iter_mut().find(|(known, _)| *known == key) {
            Some(known) if part.contains('=') => known.1 = value,
            None if !key.is_empty() => asked.push((key, value)),
            _ => {}
        }
        if asked.len() > ANNOTATIONS_MAX {
            return Err(ParamError::new("annotationQuery", format!("has more than {ANNOTATIONS_MAX} parts")));
        }
    }
    let filter = |(key, value): (&str, &str)| match (key, value) {
        ("error", "") => condition(key.to_owned(), "true"),
        // A word alone is an annotation or the key of a tag; so is a key with an empty value.
        (_, "") => SpanFilter::Or(vec![
            SpanFilter::EventName(TextTest::Is(key.to_owned())),
            of_tags(SpanFilter::Attribute { place: None, key: key.to_owned(), test: AttributeTest::Exists }),
        ]),
        _ => of_tags(condition(key.to_owned(), value)),
    };
    Ok(asked.into_iter().map(filter).collect())
}

/// Combines what all spans are asked with the other conditions. Each of these may hold on another span, as in Zipkin
/// (`QueryRequest.test`), but on one of the same service.
fn on_some_spans(of_all: &SpanFilter, asked: Vec<SpanFilter>) -> Vec<SpanFilter> {
    if asked.is_empty() && !matches!(of_all, SpanFilter::All) {
        return vec![of_all.clone()];
    }
    asked.into_iter().map(|one| of_all.clone().and(one)).collect()
}

fn search(call: &Call) -> Result<Search, TraceError> {
    let mut search = Search::new(window(call)?);
    let service = call.params.one("serviceName")?.map(|name| SpanFilter::Service(named(name)));
    let of_all = call.segments()?.into_iter().chain(service).fold(SpanFilter::All, SpanFilter::and);
    let name = call.params.one("spanName")?.filter(|name| !name.eq_ignore_ascii_case("all"));
    let name = name.map(|name| SpanFilter::Name(named(name)));
    let remote = call.params.one("remoteServiceName")?.map(|name| spanarray::of_remote(&named(name)));
    let mut asked: Vec<SpanFilter> = [name, remote].into_iter().flatten().collect();
    if let Some(query) = call.params.one("annotationQuery")? {
        asked.extend(annotations(query)?);
    }
    let micros = |name: &str| -> Result<Option<i64>, TraceError> {
        Ok(call.params.number(name, 1..=i64::MAX as u64 / 1000)?.map(|us| us as i64 * 1000))
    };
    let (min, max) = (micros("minDuration")?, micros("maxDuration")?);
    if max.is_some() && min.is_none() {
        return Err(ParamError::new("maxDuration", "needs minDuration").into());
    }
    if min.zip(max).is_some_and(|(min, max)| max < min) {
        return Err(ParamError::new("maxDuration", "is below 'minDuration'").into());
    }
    asked.extend(min.map(|min| lasting(min, max)));
    search.conditions = on_some_spans(&of_all, asked);
    search.any_span = true;
    search.limit = call.params.number("limit", 1..=1500)?.unwrap_or(10) as usize;
    Ok(search)
}

fn lists(call: &Call, traces: Vec<Trace>) -> Result<Response, TraceError> {
    call.written(spans_of(&traces), move |w| {
        w.array(|w| traces.iter().for_each(|trace| spanarray::write(trace, options(), w)));
    })
}

async fn traces(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        lists(&call, found(&call, search(&call)?).await?)
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

async fn trace(State(state): State<Arc<AppState>>, Path(id): Path<String>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let trace = call.state.engines.traces.trace(&call.ctx, Selection::all(id_of(&id)?)).await?;
        call.written(trace.spans.len(), move |w| spanarray::write(&trace, options(), w))
    };
    run.await.unwrap_or_else(|e: TraceError| match (e, id_of(&id)) {
        (TraceError::NotFound | TraceError::Forbidden, Ok(id)) => {
            plain(StatusCode::NOT_FOUND, format!("{} not found", shown(&id)))
        }
        (e, _) => failed(&e),
    })
}

/// An id as Zipkin writes it: one of 64 bits has 16 digits.
fn shown(id: &TraceId) -> String {
    let mut digits = hex(id);
    if digits.starts_with("0000000000000000") {
        digits.drain(..16);
    }
    digits
}

async fn trace_many(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let wrong = |text: String| Ok(plain(StatusCode::BAD_REQUEST, text));
        let Some(text) = call.params.one("traceIds")? else { return wrong("traceIds parameter is empty".to_owned()) };
        let mut ids = BTreeSet::new();
        for text in text.split(',') {
            if !ids.insert(id_of(text.trim())?) {
                return wrong(format!("redundant traceId: {text}"));
            }
        }
        if ids.len() == 1 {
            return wrong("Use /api/v2/trace/{traceId} endpoint to retrieve a single trace".to_owned());
        }
        lists(&call, call.state.engines.traces.traces(&call.ctx, ids.into_iter().collect()).await?)
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Calls as Zipkin has them: names in lower case, and errors where there are any.
fn links<'e>(edges: impl Iterator<Item = &'e Edge>) -> Vec<Value> {
    let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for edge in edges {
        let sum = sums.entry((edge.source.to_lowercase(), edge.target.to_lowercase())).or_default();
        *sum = (sum.0 + edge.calls, sum.1 + edge.errors);
    }
    let link = |((parent, child), (calls, errors)): ((String, String), (u64, u64))| {
        let mut link = json!({"parent": parent, "child": child, "callCount": calls});
        if errors > 0 {
            link["errorCount"] = errors.into();
        }
        link
    };
    sums.into_iter().map(link).collect()
}

async fn dependencies(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        required(&call, "endTs")?;
        let (from, to) = window(&call)?;
        let graph = call.state.engines.traces.dependencies(&call.ctx, (from, to), call.segments()?).await?;
        call.json(&Value::Array(links(graph.named_edges())))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

/// Keys for completion must be configured in Zipkin; here there are none.
async fn autocomplete_keys() -> Response {
    json_answer(&json!([]))
}

async fn autocomplete_values(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let call = Call::of(state, request).await?;
        let key = required(&call, "key")?;
        let (from, to) = window(&call)?;
        let key = KeyOf::Attribute(None, key.to_owned());
        let rows = call
            .state
            .engines
            .traces
            .values(&call.ctx, SpanFilter::Starts(from, to), key, ListOptions::default())
            .await?;
        names(&call, rows.into_iter().take(1000).map(|(value, _)| value))
    };
    run.await.unwrap_or_else(|e: TraceError| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would fail if the largest duration overflowed, or a span of some microseconds and a fraction were missed.
    #[test]
    fn bounds_are_whole_microseconds() {
        assert_eq!(lasting(1_000, Some(2_000)).to_string(), "duration in [1000, 2999]");
        assert_eq!(lasting(1_000, None).to_string(), format!("duration in [1000, {}]", i64::MAX));
        let most = i64::MAX / 1000 * 1000;
        assert_eq!(lasting(most, Some(most)).to_string(), format!("duration in [{most}, {}]", i64::MAX));
    }

    /// Would fail if an attribute of an event matched, which Zipkin does not have as a tag.
    #[test]
    fn tags_are_those_of_spans_and_resources() {
        let found = of_tags(condition("x".to_owned(), "a")).to_string();
        assert_eq!(found, r#"(span.x = "a" or resource.x = "a")"#);
        assert_eq!(of_tags(condition("error".to_owned(), "true")).to_string(), "status = 2");
        let said = of_tags(condition("error".to_owned(), "boom")).to_string();
        let attribute = r#"(span.error = "boom" or resource.error = "boom")"#;
        assert_eq!(said, format!(r#"((status = 2 and status message = "boom") or {attribute})"#));
    }

    /// Would fail if a part were parsed differently from Zipkin's `parseAnnotationQuery`.
    #[test]
    fn annotations_are_words_and_pairs() {
        let check = |query: &str, expected: &str| {
            let found: Vec<String> = annotations(query).unwrap().iter().map(ToString::to_string).collect();
            let expected: Vec<String> = annotations(expected).unwrap().iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{query}");
        };
        assert_eq!(annotations("a=b").unwrap()[0].to_string(), r#"(span.a = "b" or resource.a = "b")"#);
        assert_eq!(annotations("error").unwrap()[0].to_string(), "status = 2");
        check("a=", "a");
        check("error=", "error");
        check(" a = b  and  c ", "a=b and c");
        check("a=b=c and a", "a=b=c");
        check("a=b and c and a=d", "a=d and c");
        assert!(annotations(" and  and =x").unwrap().is_empty());
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        assert!(annotations(&many[1..].join(" and ")).is_ok());
        assert!(annotations(&many.join(" and ")).is_err());
    }

    /// Would fail if a condition held on a span of another service, or two had to hold on one span.
    #[test]
    fn conditions_hold_on_spans_of_the_service() {
        let service = SpanFilter::Service(TextTest::Is("a".to_owned()));
        let shown = |of_all: &SpanFilter, asked: &str| -> Vec<String> {
            let asked = if asked.is_empty() { Vec::new() } else { annotations(asked).unwrap() };
            on_some_spans(of_all, asked).iter().map(ToString::to_string).collect()
        };
        assert!(shown(&SpanFilter::All, "").is_empty());
        assert_eq!(shown(&SpanFilter::All, "error"), ["status = 2"]);
        assert_eq!(shown(&service, ""), [service.to_string()]);
        assert_eq!(
            shown(&service, "error and b=c"),
            [format!("({service} and status = 2)"), format!(r#"({service} and (span.b = "c" or resource.b = "c"))"#)]
        );
    }

    #[test]
    fn ids_have_16_digits_or_32() {
        let id = |text: &str| shown(&id_of(text).unwrap());
        assert_eq!(id("1"), format!("{:016x}", 1));
        assert_eq!(id("ABCDEF0123456789"), "abcdef0123456789");
        assert_eq!(id("1abcdef0123456789"), format!("{:032x}", 0x1_abcd_ef01_2345_6789_u128));
    }

    #[test]
    fn names_are_those_in_lower_case() {
        assert_eq!(named("GET /").to_string(), r#"in lower case = "get /""#);
        assert!(named("GET /").matches("get /") && named("get /").matches("Get /"));
        let list = ["b", "A", "a", "B"].map(str::to_owned);
        assert_eq!(lowered(list).into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// Would fail if two services that Zipkin has as one had a link each.
    #[test]
    fn links_go_between_names_in_lower_case() {
        let edge = |source: &str, target: &str, calls, errors| Edge {
            source: source.to_owned(),
            target: target.to_owned(),
            protocol: "",
            calls,
            errors,
            quantiles: [0; 2],
        };
        let edges = [edge("Web", "DB", 2, 0), edge("web", "db", 3, 1), edge("Web", "x", 1, 0)];
        let expected = json!([
            {"parent": "web", "child": "db", "callCount": 5, "errorCount": 1},
            {"parent": "web", "child": "x", "callCount": 1},
        ]);
        assert_eq!(Value::Array(links(edges.iter())), expected);
    }
}
