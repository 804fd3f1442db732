//! SQL over HTTP, below `/sql-api/v1`: `query` and `tables`.
//!
//! Answers are streamed in the form that `format=` or `Accept` asks for. Errors are problem documents. What a caller may
//! see is applied by the scans of each table, with his rights in that table's domain.

pub mod forms;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderValue, Method, StatusCode, header};
use quiver_query::tables::DomainAccess;
use quiver_query::tables::models::is_measure;
use quiver_sql::{Answer, Explain, Params as SqlParams, Request as SqlRequest, Session, type_name};
use quiver_types::{Domain, Error, ErrorKind, Result};
use serde_json::{Value, json};

use crate::bodies::read_unpacked;
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::metrics::phases::Language;
use crate::params::{Params, invalid};
use crate::partial::query_context;
use crate::refused;
use crate::request::RequestInfo;
use crate::segments;
use crate::sending::Sending;
use crate::state::AppState;
use forms::{Form, Writer};

/// What segments narrow in a statement.
const SIGNALS: [Domain; 3] = [Domain::Metrics, Domain::Logs, Domain::Traces];
const ROUTE: &str = "/sql-api/v1/query";
/// What a request may say, beside segments.
const PARAMETERS: [&str; 6] = ["query", "params", "time_zone", "limit", "explain", "format"];

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(ROUTE, get(query).post(query)).route("/sql-api/v1/tables", get(tables))
}

/// The caller's rights, table by table.
fn access(state: &AppState) -> DomainAccess {
    DomainAccess::of(|domain| state.access(domain))
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Tables with columns and types, as the caller may name them.
async fn tables(State(state): State<Arc<AppState>>) -> Response {
    let tables = state.sql.tables(&access(&state));
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

/// An error as a problem document.
fn problem(error: &Error) -> Response {
    if error.kind == ErrorKind::Forbidden {
        return refused::problem(error);
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
    let body = refused::body(status, code, public_text(error), request.as_ref().map_or("", RequestInfo::id));
    let head = [(header::CONTENT_TYPE, "application/problem+json")];
    with_retry_after((status, head, body).into_response())
}

/// Parameters of a request: those of the query string, of a form, of a JSON object, or a statement alone.
struct Asked {
    request: SqlRequest,
    form: Form,
}

impl Asked {
    async fn read(state: &AppState, request: Request) -> Result<Self> {
        let (head, body) = request.into_parts();
        let body = read_unpacked(&state.bodies, &head.headers, body, state.settings.form_bytes_max).await?;
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_post = head.method == Method::POST;
        let (bare, form_body): (&str, &[u8]) = match kind.as_str() {
            "application/sql" | "application/json" if is_post => {
                let text = std::str::from_utf8(&body).map_err(|_| Error::invalid("the body is no UTF-8 text"))?;
                (text, &[])
            }
            _ => ("", &body),
        };
        let params = Params::read(&head.method, &head.headers, head.uri.query(), form_body)?;
        let mut given = json!({});
        let mut statement = params.get("query").map(str::to_owned);
        match kind.as_str() {
            "application/sql" if is_post => statement = Some(bare.to_owned()),
            "application/json" if is_post => {
                given = serde_json::from_str(bare)
                    .map_err(|e| Error::invalid(format!("the body is no JSON object: {e}")))?;
                if let Some(text) = given.get("query").and_then(Value::as_str) {
                    statement = Some(text.to_owned());
                }
            }
            _ => {}
        }
        only_known(params.pairs().map(|(name, _)| name), "parameter")?;
        only_known(given.as_object().into_iter().flatten().map(|(name, _)| name.as_str()), "member")?;
        segments::begin(state, segments_of(&params, &given)?.pairs(), &SIGNALS)?;
        let text = statement.ok_or_else(|| Error::invalid("missing parameter `query`"))?;
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
            explain: explain(word("explain").as_deref())?,
            session: Session::of(&state.identity().name),
        };
        Ok(Self { request, form: Form::of(word("format").as_deref(), &head.headers)? })
    }
}

/// Refuses what nothing here heeds: a slip in a name would change what is answered.
fn only_known<'a>(mut names: impl Iterator<Item = &'a str>, what: &str) -> Result<()> {
    match names.find(|name| !PARAMETERS.contains(name) && !segments::is_segment(name)) {
        Some(name) => {
            let known = PARAMETERS.join(", ");
            Err(Error::invalid(format!("unknown {what} `{name}`; known are {known}, segment")))
        }
        None => Ok(()),
    }
}

/// The segments of the URL, of a form, and of a JSON object: `{"segment": "key" | ["key"], "segment.<variable>": value}`.
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

fn explain(text: Option<&str>) -> Result<Option<Explain>> {
    match text {
        None | Some("false" | "0") => Ok(None),
        Some("true" | "1") => Ok(Some(Explain::Plan)),
        Some("analyze") => Ok(Some(Explain::Analyze)),
        Some(other) => Err(invalid("explain", &format!("`{other}` is not one of true, analyze, false"))),
    }
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
    let Asked { request, form } = Asked::read(state, request).await?;
    let ctx = query_context(state, state.asked(Language::Sql, &request.text), state.limits());
    let rows = match state.sql.query(request, &access(state), &ctx).await? {
        Answer::Plan(plan) => return Ok(json_answer(&plan)),
        Answer::Rows(rows) => rows,
    };
    let writer = Box::new(Writer::new(form, &rows.schema())?);
    let content_type = HeaderValue::from_static(form.content_type());
    let mut response = Response::new(Sending::new(rows, writer, ctx, began, ROUTE).body());
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}
