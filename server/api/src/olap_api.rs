//! Analytics over HTTP, below `/olap-api/v1`, in the wire format of Cube (`olap-api.md`).
//!
//! Requests are read here, checked and planned by `quiver_olap`, and shared with equal ones by `shared_executions`. `forms` are
//! response formats other than JSON, `drill_down` gives the rows behind a measure and values of a dimension, `statements`
//! SQL texts over models, `cubesql` their rows, `response` removes from responses what would reveal hidden rows. The
//! caller's rights in the domain of each model are applied by its scan.

mod cubesql;
mod drill_down;
mod forms;
mod problem;
pub(crate) mod query_body;
mod response;
pub mod shared_executions;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use quiver_ingest::DecodeRoom;
use quiver_olap::metadata::ModelListOptions;
use quiver_olap::model::catalog::Catalog;
use quiver_olap::query::CacheMode;
use quiver_olap::query::request::Request as Asked;
use quiver_olap::response::{Frame, dry_run};
use quiver_olap::{Basis, OlapError, QueryError, Reason, engine};
use quiver_query::tables::DomainAccess;
use quiver_query::{Explain, QueryContext};
use quiver_types::{Domain, Error, ErrorKind, Result, Right, Services, Triple};
use serde_json::{Value, json};

use crate::body_memory::read_unpacked;
use crate::handlers::boxed;
use crate::metrics::phases::Language;
use crate::params::Params;
use crate::request_context::RequestInfo;
use crate::segments;
use crate::sql_api::forms::Form;
use crate::state::{AppState, AskedQuery};
use crate::{parsed_bodies, revoked_rights};
use problem::problem;
use response::CallerResponse;
use shared_executions::{Outcome, Ready, Work};

/// The signals whose rows a segment narrows in a query.
const SIGNALS: [Domain; 3] = [Domain::Metrics, Domain::Logs, Domain::Traces];
/// Largest body of a request.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How long a query may take, unless `X-Timeout` says otherwise.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Longest that `X-Timeout` may ask for.
const TIMEOUT_MAX_S: u64 = 300;
/// How long a request waits for its query before the client is told to ask again.
const WAIT: Duration = Duration::from_secs(5);

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let v1 = Router::new()
        .route("/load", get(boxed(load)).post(boxed(load)))
        .route("/subscribe", get(boxed(load)).post(boxed(load)))
        .route("/meta", get(boxed(list)))
        .route("/dry-run", get(boxed(dry)).post(boxed(dry)))
        .route("/explain", post(boxed(explain)))
        .route("/sql", get(boxed(sql)).post(boxed(sql)))
        .route("/cubesql", post(boxed(cubesql::run)))
        .route("/drill", post(boxed(drill_down::drill)))
        .route("/meta/values", get(boxed(drill_down::values)));
    Router::new().nest("/olap-api/v1", v1)
}

/// A request that can run: its queries, the models that they name, the rights and limits that they run with.
struct CheckedRequest {
    catalog: Arc<Catalog>,
    asked: Asked,
    access: DomainAccess,
    ctx: QueryContext,
}

/// A request that was read.
struct ParsedRequest {
    headers: HeaderMap,
    params: Params,
    body: Value,
    /// Memory of the parsed body, and of a query that it has as text.
    _trees: Vec<Arc<dyn DecodeRoom>>,
}

impl ParsedRequest {
    async fn read(state: &AppState, request: Request) -> Result<Self, OlapError> {
        let (head, body) = request.into_parts();
        let bytes = read_unpacked(&state.capacity.bodies, &head.headers, body, BODY_BYTES_MAX).await?;
        let params = Params::read(&head.method, &head.headers, head.uri.query(), &[])?;
        let mut trees = vec![parsed_bodies::hold(&state.capacity.bodies, &bytes)?];
        let bad = |e: serde_json::Error| QueryError::new(Reason::BadJson, "", format!("the body is no JSON: {e}"));
        let mut body = if bytes.is_empty() { Value::Null } else { query_body::read(&bytes).map_err(bad)? };
        // A query may be a text, as in the URL. What is no JSON is refused where a query is needed: it may be SQL.
        if let Some(text) = body.get("query").and_then(Value::as_str) {
            trees.push(parsed_bodies::hold(&state.capacity.bodies, text.as_bytes())?);
            if let Ok(query) = query_body::read(text.as_bytes()) {
                body["query"] = query;
            }
        }
        let mut asked = params.clone();
        let mut query = body.get("query").cloned().filter(|query| !query.is_null());
        if let (None, Some(text)) = (&query, parameter(&params, "query")?) {
            query = query_body::read(text.as_bytes()).ok();
        }
        let mut places = Vec::new();
        if let Some(mut query) = query {
            places = platform_segments(&mut query, &mut asked)?;
            if !places.is_empty() {
                if !body.is_object() {
                    body = json!({});
                }
                body["query"] = query;
            }
        }
        segments::begin(state, asked.pairs(), &SIGNALS).map_err(|error| bad_segment(error, &places))?;
        Ok(Self { headers: head.headers, params, body, _trees: trees })
    }

    /// Refuses members of the body that this endpoint does not know.
    fn only(&self, known: &[&str]) -> Result<(), QueryError> {
        let extra = self.body.as_object().and_then(|body| body.keys().find(|key| !known.contains(&key.as_str())));
        match extra {
            Some(key) => Err(QueryError::new(Reason::UnknownKey, format!("/{key}"), format!("unknown key `{key}`"))),
            None => Ok(()),
        }
    }

    /// A string member of the body, or the parameter of that name in the URL.
    fn word(&self, name: &str) -> Result<Option<&str>, QueryError> {
        match self.body.get(name) {
            None | Some(Value::Null) => parameter(&self.params, name),
            Some(Value::String(word)) => Ok(Some(word)),
            Some(_) => Err(QueryError::new(Reason::BadType, format!("/{name}"), format!("`{name}` is a text"))),
        }
    }

    fn query(&self) -> Result<Value, OlapError> {
        let text = match self.body.get("query").filter(|query| !query.is_null()) {
            Some(Value::String(text)) => Some(text.as_str()).filter(|text| !text.is_empty()),
            Some(query) => return Ok(query.clone()),
            None => parameter(&self.params, "query")?,
        };
        let text = text.ok_or_else(|| QueryError::new(Reason::QueryRequired, "", "a request needs a `query`"))?;
        let bad = |e: serde_json::Error| QueryError::new(Reason::BadJson, "", format!("`query` is no JSON: {e}"));
        Ok(query_body::read(text.as_bytes()).map_err(bad)?)
    }

    /// Whether several queries may be answered (`queryType=multi`).
    fn is_multi(&self) -> Result<bool, OlapError> {
        match self.word("queryType")? {
            None | Some("regularQuery") => Ok(false),
            Some("multi") => Ok(true),
            Some(other) => {
                let text = format!("`queryType` is `multi` or absent, not `{other}`");
                Err(QueryError::new(Reason::BadValue, "/queryType", text).into())
            }
        }
    }

    fn cache(&self, asked: &Asked) -> Result<CacheMode, OlapError> {
        let own = asked.queries.iter().find_map(|q| q.cache);
        let Some(word) = self.word("cache")? else { return Ok(own.unwrap_or(CacheMode::StaleIfSlow)) };
        CacheMode::parse(word)
            .ok_or_else(|| QueryError::new(Reason::BadValue, "/cache", format!("`{word}` is no cache mode")).into())
    }

    fn seconds(&self, header: &str, max: u64) -> Result<Option<Duration>, OlapError> {
        let Some(value) = self.headers.get(header) else { return Ok(None) };
        let seconds = value.to_str().ok().and_then(|t| t.trim().parse::<u64>().ok()).filter(|s| *s <= max);
        let bad = || Error::invalid(format!("header `{header}` is a number of seconds from 0 to {max}"));
        Ok(Some(Duration::from_secs(seconds.ok_or_else(bad)?)))
    }
}

/// A parameter of the URL.
fn parameter<'a>(params: &'a Params, name: &str) -> Result<Option<&'a str>, QueryError> {
    params.one(name).map_err(|e| QueryError::new(Reason::BadValue, format!("/{name}"), e.message))
}

/// The response to a parameter that a path does not know.
pub(crate) fn unknown_parameter(name: &str, known: &str, path: &str) -> Response {
    let text = format!("unknown parameter `{name}`{known}");
    problem(&QueryError::new(Reason::UnknownKey, format!("/{name}"), text).into(), path)
}

/// Removes the platform's segments (`platform.<key>`) from queries, and adds them to those of the URL. All queries of
/// a request must name the same ones, as a request reads in one segment. Returns the keys with their places in the
/// query.
fn platform_segments(query: &mut Value, asked: &mut Params) -> Result<Vec<(String, String)>, OlapError> {
    let is_list = query.is_array();
    let queries = match query {
        Value::Array(queries) => &mut queries[..],
        one => std::slice::from_mut(one),
    };
    let mut found: Option<Vec<String>> = None;
    let mut places = Vec::new();
    for (n, query) in queries.iter_mut().enumerate() {
        let mut own = Vec::new();
        if let Some(Value::Array(segments)) = query.get_mut("segments") {
            let mut at = 0..;
            segments.retain(|segment| {
                let at = at.next().unwrap_or_default();
                let Some(key) = segment.as_str().and_then(|s| s.strip_prefix("platform.")) else { return true };
                own.push(key.to_owned());
                let place = if is_list { format!("/{n}/segments/{at}") } else { format!("/segments/{at}") };
                places.push((key.to_owned(), place));
                false
            });
        }
        own.sort_unstable();
        own.dedup();
        if is_list && found.as_ref().is_some_and(|before| *before != own) {
            let text = "queries of one request are in the same segments of the platform";
            return Err(QueryError::new(Reason::BadValue, "/segments", text).into());
        }
        found = Some(own);
    }
    let found = found.unwrap_or_default();
    for key in &found {
        asked.push("segment", key);
    }
    Ok(places)
}

/// Reports an error in a segment of the platform at its place in the query; segments of the URL have no place.
fn bad_segment(error: Error, places: &[(String, String)]) -> OlapError {
    if error.kind != ErrorKind::Invalid {
        return error.into();
    }
    let unknown = places.iter().find(|(key, _)| error.message == segments::unknown(key).message);
    if let Some((_, place)) = unknown {
        QueryError::new(Reason::UnknownMember, place.as_str(), error.message).into()
    } else {
        let place = if places.is_empty() { "" } else { "/segments" };
        QueryError::new(Reason::BadValue, place, error.message).into()
    }
}

fn access(state: &AppState) -> DomainAccess {
    DomainAccess::of(|domain| state.access(domain))
}

/// Begins a query with the limits of analytics.
fn begin(state: &AppState, given: &ParsedRequest, text: &Value) -> Result<QueryContext, OlapError> {
    begin_as(state, given, state.asked(Language::Olap, &text.to_string()))
}

fn begin_as(state: &AppState, given: &ParsedRequest, asked: AskedQuery) -> Result<QueryContext, OlapError> {
    let timeout = given.seconds("x-timeout", TIMEOUT_MAX_S)?.unwrap_or(TIMEOUT);
    let mut limits = state.limits();
    limits.timeout = timeout;
    Ok(state.begin(asked, limits))
}

fn json_answer(value: &Value) -> Response {
    json_text(serde_json::to_string(value).expect("names of members are texts"))
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], text).into_response()
}

async fn load(State(state): State<Arc<AppState>>, request: Request) -> Response {
    loaded(&state, request).await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/load"))
}

async fn loaded(state: &Arc<AppState>, request: Request) -> Result<Response, OlapError> {
    let given = ParsedRequest::read(state, request).await?;
    let form = Form::accepted(&given.headers);
    let mut query = given.query()?;
    let high_limit = if form == Form::Json { None } else { forms::take_high_limit(&mut query) };
    let catalog = state.engines.olap.catalog().with_open(&query);
    let access = access(state);
    let mut asked = Asked::to_load(&query, &catalog, &access, state.clock.now_ms() * 1_000_000)?;
    let is_multi = given.is_multi()?;
    asked.check(is_multi)?;
    if form != Form::Json && !forms::is_limited(&query) {
        asked.queries.iter_mut().for_each(|q| q.limit = high_limit);
    }
    let (mut mode, some_hidden) = (given.cache(&asked)?, state.is_some_hidden());
    if mode == CacheMode::StaleWhileRevalidate && some_hidden {
        // `stale-while-revalidate` answers at once if the data has changed. That would reveal writes to rows that are
        // hidden from the caller.
        mode = CacheMode::StaleIfSlow;
    }
    if mode == CacheMode::NoCache {
        asked.queries.iter_mut().for_each(|q| q.rollups = false);
    }
    let wait = given.seconds("x-wait", TIMEOUT_MAX_S)?.unwrap_or(WAIT);
    let mut begun = state.asked(Language::Olap, &query.to_string());
    if form == Form::Json {
        // Others may be waiting for the same execution, so it goes on if the rights of one of them are withdrawn;
        // that one gets no result.
        begun.info.permit = None;
    }
    let ctx = begin_as(state, &given, begun)?;
    let asking = Arc::clone(ctx.query());
    let _ = asking.served.models.set(engine::models(&asked));
    let checked = CheckedRequest { catalog, asked, access, ctx };
    if form != Form::Json {
        if checked.asked.queries.len() != 1 {
            let text = "only one query can be answered in this form";
            return Err(QueryError::new(Reason::MultiRequired, "", text).into());
        }
        return forms::send(state, form, checked).await;
    }
    let CheckedRequest { catalog, asked, access, .. } = &checked;
    let own = if state.engines.olap.has_own_rows(catalog, asked, access) { state.caller() } else { String::new() };
    let key = shared_executions::key(asked, is_multi, access, &own, catalog);
    let work = execution(state, checked, is_multi);
    // Whether a cached result is still valid tells whether something was written: by how soon the response comes, and
    // with `X-Wait: 0` by whether it comes at all. So callers to whom rows are hidden get none.
    let holds = |basis: &Basis| !some_hidden && state.engines.olap.holds(basis);
    let outcome = state.olap_waiting.ask(key, work, mode, wait, holds).await?;
    revoked_rights::check(state)?;
    let answer = match outcome {
        Outcome::Done(answer) => answer,
        Outcome::Wait(elapsed) => {
            return Ok(json_answer(&json!({
                "error": "Continue wait", "stage": "Executing query", "timeElapsed": elapsed.as_secs(),
            })));
        }
    };
    // Set already if this request ran the query; otherwise another request's execution answered it.
    let _ = asking.served.kept.set("hit");
    let id = some_hidden.then(request_id);
    let told = CallerResponse { answer: &answer.value, request_id: id.as_deref() };
    Ok(json_text(serde_json::to_string(&told).expect("names of members are texts")))
}

/// The current time, as responses have it.
fn now(state: &AppState) -> String {
    let now = chrono::DateTime::from_timestamp_millis(state.clock.now_ms()).unwrap_or_default();
    now.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

fn request_id() -> String {
    RequestInfo::current().map(|r| r.id().to_owned()).unwrap_or_default()
}

fn frame<'a>(state: &AppState, catalog: &'a Catalog) -> Frame<'a> {
    Frame { catalog, refreshed: now(state), request_id: request_id(), slow: false }
}

/// The execution of a request, independent of who waits for it.
fn execution(state: &Arc<AppState>, checked: CheckedRequest, is_multi: bool) -> Work {
    let CheckedRequest { catalog, asked, access, ctx } = checked;
    let cancel = ctx.cancel.clone();
    let (refreshed, request_id) = (now(state), request_id());
    let (olap, engine) = (Arc::clone(&state.engines.olap), Arc::clone(&state.engines.query));
    let run = async move {
        // Taken before the query runs: data written meanwhile counts as a change.
        let basis = olap.basis(&catalog, &asked, &access).map(Arc::new);
        let sets = olap.load(&catalog, &asked, &access, &ctx).await?;
        engine::note_served(&sets, &ctx);
        let memory = engine.collected("answer of analytics", &ctx);
        let bytes = forms::made_bytes(&sets);
        memory.add(bytes)?;
        let frame = Frame { catalog: &catalog, refreshed, request_id, slow: false };
        let value = Arc::new(frame.packed(&asked, &sets, is_multi)?);
        Ok(Ready { value, bytes, basis, _memory: Some(memory) })
    };
    Work { cancel, run: Box::pin(run) }
}

/// Whether `If-None-Match` contains a tag. Weak tags match too, since a proxy may have turned ours into them.
fn names(value: &HeaderValue, tag: &str) -> bool {
    let text = value.to_str().unwrap_or_default();
    let mut tags = text.split(',').map(|t| t.trim().trim_start_matches("W/"));
    tags.any(|t| t == "*" || t == tag)
}

async fn list(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let read = Params::read(&head.method, &head.headers, head.uri.query(), &[])
        .and_then(|params| Ok((params.one("onlyViews")? == Some("true"), params.one("model")?.map(str::to_owned))));
    let (only_views, model) = match read {
        Ok(read) => read,
        Err(e) => return problem(&e.into(), "/olap-api/v1/meta"),
    };
    let admin = Triple::new(Right::Admin, Some(Domain::System), Services::all());
    let asks = head.uri.query().unwrap_or_default();
    let extended = url::form_urlencoded::parse(asks.as_bytes()).any(|(name, _)| name == "extended");
    let extended = extended && state.identity().rights.covers(&admin);
    let wanted = ModelListOptions { only_views, extended, model };
    let access = access(&state);
    let listed = state.engines.olap.list(&access, &wanted);
    let tag = listed.tag(&access);
    let known = head.headers.get_all(header::IF_NONE_MATCH).iter().any(|value| names(value, &tag));
    let tag = HeaderValue::from_str(&tag).expect("digits and quotes may stand in a header");
    let caching = HeaderValue::from_static("private, no-cache");
    let mut answer = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], listed.body.clone()).into_response()
    };
    answer.headers_mut().insert(header::ETAG, tag);
    answer.headers_mut().insert(header::CACHE_CONTROL, caching);
    answer
}

async fn dry(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let given = ParsedRequest::read(&state, request).await?;
        let query = given.query()?;
        let catalog = state.engines.olap.catalog().with_open(&query);
        let asked = Asked::of_caller(&query, &catalog, &access(&state), state.clock.now_ms() * 1_000_000)?;
        // Clients send several queries without saying so; if they cannot be blended there is no pivot.
        asked.check(true)?;
        Ok::<_, OlapError>(json_answer(&dry_run(&asked)))
    };
    run.await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/dry-run"))
}

/// Prints the plan of a query as SQL text, including the caller's row filter.
async fn sql(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let given = ParsedRequest::read(&state, request).await?;
        match given.word("format")? {
            None | Some("rest") => {}
            Some("sql") => return statements::sql(&state, &given).await,
            Some(form) => {
                let text =
                    format!("`format` is `sql` for SQL text, `rest` or absent for a query in JSON, not `{form}`");
                return Err(QueryError::new(Reason::BadValue, "/format", text).into());
            }
        }
        let query = given.query()?;
        let catalog = state.engines.olap.catalog().with_open(&query);
        let access = access(&state);
        let asked = Asked::of_caller(&query, &catalog, &access, state.clock.now_ms() * 1_000_000)?;
        let ctx = begin(&state, &given, &query)?;
        let mut shown = state.engines.olap.sql(&catalog, &asked, &access, &ctx).await?;
        let is_list = query.is_array() || shown.len() != 1;
        Ok::<_, OlapError>(json_answer(&if is_list { shown.into() } else { shown.remove(0) }))
    };
    run.await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/sql"))
}

async fn explain(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let given = ParsedRequest::read(&state, request).await?;
        given.only(&["query", "analyze"])?;
        let query = given.query()?;
        let catalog = state.engines.olap.catalog().with_open(&query);
        let access = access(&state);
        let asked = Asked::of_caller(&query, &catalog, &access, state.clock.now_ms() * 1_000_000)?;
        asked.check(false)?;
        let explain = match given.body.get("analyze") {
            None | Some(Value::Null | Value::Bool(false)) => Explain::Plan,
            Some(Value::Bool(true)) => Explain::Analyze,
            Some(_) => {
                return Err(QueryError::new(Reason::BadType, "/analyze", "`analyze` is true or false").into());
            }
        };
        let ctx = begin(&state, &given, &query)?;
        let shown = state.engines.olap.explain(&catalog, &asked.queries[0], &access, &ctx, explain).await?;
        Ok::<_, OlapError>(json_answer(&shown))
    };
    run.await.unwrap_or_else(|e| problem(&e, "/olap-api/v1/explain"))
}

#[cfg(test)]
mod tests;
