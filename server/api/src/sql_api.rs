//! SQL over HTTP, below `/sql-api/v1`: `query` and `tables`.
//!
//! Results are streamed in the form that `format=` or `Accept` asks for; errors are problem documents. The caller's
//! rights in the domain of each table are applied by its scan.

pub mod forms;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, Method, StatusCode, header};
use quiver_query::tables::DomainAccess;
use quiver_query::tables::models::is_measure;
use quiver_sql::{Answer, Params as SqlParams, Request as SqlRequest, Session, type_name};
use quiver_types::{Domain, Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::body_memory::read_unpacked;
use crate::encode::json::json_answer;
use crate::encode::problem::problem_response;
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::explain_plans;
use crate::forbidden_records;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::parsed_bodies;
use crate::partial_responses::query_context;
use crate::request_context::RequestInfo;
use crate::segments;
use crate::state::AppState;
use crate::streamed_responses::StreamedResponse;
use forms::{Form, Writer};

/// The signals whose rows a segment narrows in a statement.
const SIGNALS: [Domain; 3] = [Domain::Metrics, Domain::Logs, Domain::Traces];
const ROUTE: &str = "/sql-api/v1/query";
/// The parameters of a request, besides segments.
const PARAMETERS: [&str; 6] = ["query", "params", "time_zone", "limit", "explain", "format"];
/// Types of bodies.
const BODIES: [&str; 3] = ["application/sql", "application/json", "application/x-www-form-urlencoded"];

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(boxed(query)).post(boxed(query))).route("/sql-api/v1/tables", get(boxed(tables)))
}

/// The caller's rights by domain of the tables.
fn access(state: &AppState) -> DomainAccess {
    DomainAccess::of(|domain| state.access(domain))
}

/// Tables with columns and types, as far as the caller may see them.
async fn tables(State(state): State<Arc<AppState>>) -> Response {
    let tables = state.engines.sql.tables(&access(&state));
    let tables: Vec<Value> = tables
        .iter()
        .map(|entry| {
            let columns = entry.columns.fields().iter().map(|field| {
                let mut column = json!({
                    "name": field.name(), "type": type_name(field.data_type()), "nullable": field.is_nullable(),
                });
                if is_measure(field) {
                    column["measure"] = true.into();
                }
                column
            });
            json!({ "schema": entry.schema, "name": entry.name, "columns": columns.collect::<Vec<_>>() })
        })
        .collect();
    json_answer(&json!({ "tables": tables }))
}

async fn query(State(state): State<Arc<AppState>>, request: Request) -> Response {
    run(&state, request).await.unwrap_or_else(|error| {
        log(&error, ROUTE);
        problem(&error)
    })
}

/// Makes a problem document of an error.
fn problem(error: &Error) -> Response {
    if error.kind == ErrorKind::Forbidden {
        return forbidden_records::problem(error);
    }
    let status = status_of(error.kind);
    let code = match error.kind {
        ErrorKind::Invalid => "INVALID_QUERY",
        ErrorKind::Unsupported => "UNSUPPORTED",
        ErrorKind::TooLarge => "BODY_TOO_LARGE",
        ErrorKind::LimitExceeded => "LIMIT_EXCEEDED",
        ErrorKind::Timeout | ErrorKind::SenderTimeout => "TIMEOUT",
        ErrorKind::Unavailable => "STORE_BUSY",
        ErrorKind::Cancelled => "CANCELLED",
        ErrorKind::Execution => "EXECUTION_FAILED",
        _ => "INTERNAL",
    };
    let request = RequestInfo::current();
    let body = forbidden_records::body(status, code, public_text(error), request.as_ref().map_or("", RequestInfo::id));
    with_retry_after(problem_response(status, body))
}

/// A request: parameters of the query string, of a form or of a JSON object, or a statement as plain text.
struct StatementRequest {
    request: SqlRequest,
    form: Form,
}

impl StatementRequest {
    async fn read(state: &AppState, request: Request) -> Result<Self> {
        let (head, body) = request.into_parts();
        let body = read_unpacked(&state.capacity.bodies, &head.headers, body, state.settings.form_bytes_max).await?;
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_post = head.method == Method::POST;
        if is_post && !body.is_empty() {
            known_body(&kind)?;
        }
        let (bare, form_body): (&str, &[u8]) = match kind.as_str() {
            "application/sql" | "application/json" if is_post => {
                let text = std::str::from_utf8(&body).map_err(|_| Error::invalid("the body is no UTF-8 text"))?;
                (text, &[])
            }
            _ => ("", &body),
        };
        let params = Params::read(&head.method, &head.headers, head.uri.query(), form_body)?;
        let is_object = is_post && kind == "application/json";
        let _tree = is_object.then(|| parsed_bodies::hold(&state.capacity.bodies, &body)).transpose()?;
        let mut given = json!({});
        let mut statement = params.get("query").map(str::to_owned);
        match kind.as_str() {
            "application/sql" if is_post => statement = Some(bare.to_owned()),
            "application/json" if is_post => {
                given = object(bare)?;
                if let Some(text) = statement_of(&given)? {
                    statement = Some(text.to_owned());
                }
            }
            _ => {}
        }
        only_known(params.pairs().map(|(name, _)| name), "parameter")?;
        only_once(&params)?;
        only_known(given.as_object().into_iter().flatten().map(|(name, _)| name.as_str()), "member")?;
        segments::begin(state, segments_of(&params, &given)?.pairs(), &SIGNALS)?;
        let text = statement.ok_or_else(|| {
            let hint = if is_post { "; a body that is a statement needs `Content-Type: application/sql`" } else { "" };
            Error::invalid(format!("missing parameter `query`{hint}"))
        })?;
        let word = |name: &str| -> Option<String> {
            let own = given.get(name).filter(|value| !value.is_null());
            own.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .or_else(|| params.get(name).map(str::to_owned))
        };
        let request = SqlRequest {
            text,
            params: sql_params(&params, given.get("params").filter(|value| !value.is_null()))?,
            limit: word("limit").map(|text| number("limit", &text)).transpose()?,
            time_zone: word("time_zone"),
            explain: explain_plans::read(word("explain").as_deref()).map_err(|why| invalid("explain", &why))?,
            session: Session::of(&state.identity().name),
        };
        Ok(Self { request, form: Form::of(word("format").as_deref(), &head.headers)? })
    }
}

/// Parses a body that must be a JSON object, with no member twice.
fn object(text: &str) -> Result<Value> {
    let given = quiver_config::json::parse(text.as_bytes())
        .map_err(|problem| Error::invalid(format!("the body is no JSON object: {}", problem.detail)))?;
    if given.is_object() { Ok(given) } else { Err(Error::invalid("the body is no JSON object")) }
}

/// The statement of an object; `None` if it has none.
fn statement_of(given: &Value) -> Result<Option<&str>> {
    match given.get("query") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid("query", "a text is expected")),
    }
}

/// Refuses bodies of other types: they would be passed over, and a statement of the URL be run in their place.
fn known_body(kind: &str) -> Result<()> {
    // Who sends a form by hand often names no type.
    if kind.is_empty() || BODIES.contains(&kind) {
        return Ok(());
    }
    let text = format!("unsupported content type `{kind}`; a body is {}", BODIES.join(", "));
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Refuses parameters that are given twice.
fn only_once(params: &Params) -> Result<()> {
    PARAMETERS.iter().try_for_each(|name| params.one(name).map(|_| ()))
}

/// Refuses unknown names: with a misspelt parameter the result would differ from what was asked for.
fn only_known<'a>(mut names: impl Iterator<Item = &'a str>, what: &str) -> Result<()> {
    match names.find(|name| !PARAMETERS.contains(name) && !segments::is_segment(name)) {
        Some(name) => {
            let known = PARAMETERS.join(", ");
            Err(Error::invalid(format!("unknown {what} `{name}`; known are {known}, segment")))
        }
        None => Ok(()),
    }
}

/// The segments of the URL, of a form, and of a JSON object: `{"segment": "key" | ["key"], "segment.<variable>":
/// value}`.
fn segments_of(params: &Params, given: &Value) -> Result<Params> {
    let mut found = params.clone();
    for (name, value) in given.as_object().into_iter().flatten().filter(|(name, _)| segments::is_segment(name)) {
        let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => value.to_string(),
                _ => return Err(invalid(name, "a text is expected, or a list of texts")),
            };
            found.push(name, &text);
        }
    }
    Ok(found)
}

fn number(name: &str, text: &str) -> Result<usize> {
    text.parse().map_err(|_| invalid(name, &format!("`{text}` is no number of rows")))
}

fn sql_params(params: &Params, json: Option<&Value>) -> Result<SqlParams> {
    match (json, params.get("params")) {
        (Some(json), _) => SqlParams::of_json(json),
        (None, Some(text)) => {
            let json = serde_json::from_str(text).map_err(|e| invalid("params", &format!("no JSON: {e}")))?;
            SqlParams::of_json(&json)
        }
        (None, None) => Ok(SqlParams::default()),
    }
}

async fn run(state: &AppState, request: Request) -> Result<Response> {
    let began = Instant::now();
    let StatementRequest { request, form } = StatementRequest::read(state, request).await?;
    let ctx = query_context(state, state.asked(Language::Sql, &request.text), state.limits());
    let rows = match state.engines.sql.query(request, &access(state), &ctx).await? {
        Answer::Plan(plan) => return Ok(json_answer(&plan)),
        Answer::Rows(rows) => rows,
    };
    let writer = Box::new(Writer::new(form, &rows.schema())?);
    let content_type = HeaderValue::from_static(form.content_type());
    let memory = state.engines.query.collected("answer", &ctx);
    let mut response = Response::new(StreamedResponse::new(rows, writer, (ctx, memory), began, ROUTE).body());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn params(query: &str) -> Params {
        Params::read(&Method::GET, &http::HeaderMap::new(), Some(query), &[]).unwrap()
    }

    /// Would fail if a body without any known member were ignored in favour of the URL.
    #[test]
    fn bodies_of_json_are_objects_with_a_statement() {
        for (text, expected) in [
            (r#"{"query": "select 1"}"#, Some("select 1")),
            (r#"{"query": ""}"#, Some("")),
            (r#"{"query": null, "limit": 5}"#, None),
            ("{}", None),
        ] {
            assert_eq!(statement_of(&object(text).unwrap()).unwrap(), expected, "{text}");
        }
        for text in ["", "[]", r#"["select 1"]"#, r#""select 1""#, "null", "7", "{", r#"{"query": "a"} x"#, "select 1"]
        {
            let refused = object(text).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid, "{text}");
            assert!(refused.message.starts_with("the body is no JSON object"), "{}", refused.message);
        }
        let twice = object(r#"{"query": "select 1", "limit": 1, "query": "select 2"}"#).unwrap_err();
        assert!(twice.message.contains("`query` is given more than once"), "{}", twice.message);
        for query in [json!(5), json!(true), json!(["select 1"]), json!({"text": "select 1"})] {
            let refused = statement_of(&json!({ "query": query })).unwrap_err();
            assert!(refused.message.contains("query") && refused.message.contains("a text is expected"), "{query}");
        }
    }

    #[test]
    fn what_is_sent_is_read() {
        for kind in ["", "application/sql", "application/json", "application/x-www-form-urlencoded"] {
            assert!(known_body(kind).is_ok(), "{kind}");
        }
        for kind in ["text/plain", "application/xml", "multipart/form-data"] {
            let refused = known_body(kind).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Unsupported, "{kind}");
            assert!(refused.message.contains(kind) && refused.message.contains("application/sql"), "{refused}");
        }
        for query in ["query=a", "query=a&limit=1&segment=a&segment=b", "segment.n=1&segment.n=2&query=a"] {
            assert!(only_once(&params(query)).is_ok(), "{query}");
        }
        for query in ["query=a&query=b", "query=a&limit=1&limit=1", "params=[]&query=a&params=[1]"] {
            let refused = only_once(&params(query)).unwrap_err();
            assert!(refused.kind == ErrorKind::Invalid && refused.message.ends_with("given more than once"), "{query}");
        }
    }

    #[test]
    fn a_slip_in_a_name_is_told() {
        for names in [&[][..], &["query"], &["query", "params", "time_zone", "limit", "explain", "format"]] {
            assert!(only_known(names.iter().copied(), "parameter").is_ok(), "{names:?}");
        }
        for names in [&["segment"][..], &["segment.cluster", "query"]] {
            assert!(only_known(names.iter().copied(), "member").is_ok(), "{names:?}");
        }
        for (name, what) in [("Query", "parameter"), ("timezone", "member"), ("", "member"), ("segments", "parameter")]
        {
            let refused = only_known(["query", name, "other"].into_iter(), what).unwrap_err();
            let known = "known are query, params, time_zone, limit, explain, format, segment";
            assert_eq!(
                (refused.kind, refused.message),
                (ErrorKind::Invalid, format!("unknown {what} `{name}`; {known}"))
            );
        }
    }

    #[test]
    fn segments_stand_in_the_url_and_in_objects() {
        let pairs = |query: &str, given: &Value| -> std::result::Result<Vec<String>, String> {
            let found = segments_of(&params(query), given).map_err(|error| error.message)?;
            Ok(found.pairs().map(|(name, value)| format!("{name}={value}")).collect())
        };
        let all = |list: &[&str]| Ok(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(pairs("segment=a&query=q", &json!({})), all(&["segment=a", "query=q"]));
        assert_eq!(pairs("segment=a", &json!({"segment": "b"})), all(&["segment=a", "segment=b"]));
        assert_eq!(pairs("", &json!({"segment": ["b", "c"]})), all(&["segment=b", "segment=c"]));
        assert_eq!(pairs("", &json!({"segment": []})), all(&[]));
        // Values of variables may be numbers and booleans; other members are ignored.
        let variables = json!({"segment": "a", "segment.n": 5, "segment.on": [true, "x"], "query": ["q"]});
        assert_eq!(pairs("", &variables), all(&["segment=a", "segment.n=5", "segment.on=true", "segment.on=x"]));
        assert_eq!(pairs("", &json!("no object")), all(&[]));
        for wrong in [json!(null), json!({}), json!([["a"]]), json!(["a", null])] {
            let refused = pairs("", &json!({ "segment": wrong })).unwrap_err();
            assert!(refused.contains("segment") && refused.contains("a text is expected"), "{refused}");
        }
    }

    #[test]
    fn words_of_requests() {
        for (text, expected) in [("0", Some(0)), ("50000", Some(50_000)), ("-1", None), ("1.5", None), ("", None)] {
            assert_eq!(number("limit", text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn values_come_in_an_object_or_as_text() {
        let read = |query: &str, json: Option<Value>| sql_params(&params(query), json.as_ref());
        assert!(read("", None).is_ok());
        assert!(read("params=[1,\"a\",null]", None).is_ok());
        assert!(read("params={\"n\":1.5}", None).is_ok());
        // The object takes precedence: the URL's parameter is not read then.
        assert!(read("params=x", Some(json!([1]))).is_ok());
        assert!(read("params=x", None).is_err_and(|error| error.message.contains("no JSON")));
        for wrong in [json!(1), json!("a"), json!([[1]]), json!({"a": {}})] {
            assert!(read("", Some(wrong.clone())).is_err_and(|error| error.kind == ErrorKind::Invalid), "{wrong}");
        }
    }

    #[tokio::test]
    async fn errors_are_problems_with_a_code() {
        for (kind, status, code) in [
            (ErrorKind::Invalid, 400, "INVALID_QUERY"),
            (ErrorKind::Forbidden, 403, "FORBIDDEN"),
            (ErrorKind::TooLarge, 413, "BODY_TOO_LARGE"),
            (ErrorKind::Unsupported, 415, "UNSUPPORTED"),
            (ErrorKind::LimitExceeded, 422, "LIMIT_EXCEEDED"),
            (ErrorKind::Execution, 422, "EXECUTION_FAILED"),
            (ErrorKind::Cancelled, 422, "CANCELLED"),
            (ErrorKind::SenderTimeout, 408, "TIMEOUT"),
            (ErrorKind::Timeout, 503, "TIMEOUT"),
            (ErrorKind::Unavailable, 503, "STORE_BUSY"),
            (ErrorKind::Internal, 500, "INTERNAL"),
            (ErrorKind::Damaged, 500, "INTERNAL"),
        ] {
            let error = Error::new(kind, "what is said").with_source(std::io::Error::other("a secret"));
            let response = problem(&error);
            assert_eq!(response.status().as_u16(), status, "{kind:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{kind:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503, "{kind:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&body["code"], &body["detail"]), (&json!(code), &json!("what is said")), "{kind:?}");
            assert!(!body.to_string().contains("secret"), "{body}");
        }
    }
}
