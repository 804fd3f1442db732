//! The API as OpenAPI 3.1: all routes below `/platform-api`, only alerting below `/rulesapi/swagger`, where a page
//! shows it (`config-api` 1.5).
//!
//! Families of configuration are described from their table, so a new one needs nothing here; other routes are listed
//! in [`rows`]. The rights of each operation come from [`crate::rights`]. A test walks the router and fails for any
//! route or method that is not described, and for descriptions of routes that do not exist.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header;
use serde_json::Value;
use utoipa::openapi::{OpenApi, OpenApiBuilder, Paths};

use crate::handlers::boxed;
use crate::state::AppState;

pub(crate) use rows::parameters;

mod components;
mod families;
mod operation;
mod page;
mod rows;
mod schemas;

#[cfg(test)]
mod tests;

/// What is alerting's.
const ALERTING: [&str; 3] = ["/rulesapi/", "/api/v2/alert", "/api/v2/silence"];

/// A description in all its forms.
struct RenderedSpec {
    json: Bytes,
    yaml: Bytes,
    page: Bytes,
}

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/platform-api/openapi.json", get(boxed(async || json(&described().0))))
        .route("/platform-api/openapi.yaml", get(boxed(async || yaml(&described().0))))
        .route("/rulesapi/swagger/openapi.json", get(boxed(async || json(&described().1))))
        .route("/rulesapi/swagger/openapi.yaml", get(boxed(async || yaml(&described().1))))
        .route("/rulesapi/swagger", get(boxed(async || page(&described().1))))
        .route("/rulesapi/swagger/", get(boxed(async || page(&described().1))))
        // Where generators for other languages put them.
        .route("/rulesapi/swagger/doc.json", get(boxed(async || json(&described().1))))
        .route("/rulesapi/swagger/index.html", get(boxed(async || page(&described().1))))
}

/// All, and alerting; made once, when somebody asks, since they are the same as long as the process runs.
fn described() -> &'static (RenderedSpec, RenderedSpec) {
    static MADE: OnceLock<(RenderedSpec, RenderedSpec)> = OnceLock::new();
    MADE.get_or_init(|| (forms(&document(|_| true)), forms(&document(is_of_alerting))))
}

fn is_of_alerting(path: &str) -> bool {
    ALERTING.iter().any(|prefix| path.starts_with(prefix))
}

/// Describes the paths that are chosen.
fn document(chosen: impl Fn(&str) -> bool) -> OpenApi {
    let mut paths = Paths::new();
    families::describe(&mut paths);
    rows::describe(&mut paths);
    paths.paths.retain(|path, _| chosen(path));
    OpenApiBuilder::new()
        .info(operation::info())
        .paths(paths)
        .components(Some(components::components()))
        .security(Some(operation::security()))
        .build()
}

fn forms(document: &OpenApi) -> RenderedSpec {
    let value = serde_json::to_value(document).expect("a description is JSON: its keys are texts");
    RenderedSpec {
        json: value.to_string().into(),
        yaml: crate::config_api::yaml::write(&value).into(),
        page: page::page(&value).into(),
    }
}

/// The whole description as JSON.
#[cfg(test)]
fn whole() -> Value {
    serde_json::to_value(document(|_| true)).expect("a description is JSON")
}

fn json(of: &RenderedSpec) -> Response {
    sent("application/json", &of.json)
}

fn yaml(of: &RenderedSpec) -> Response {
    sent("application/yaml", &of.yaml)
}

fn page(of: &RenderedSpec) -> Response {
    let mut response = sent("text/html; charset=utf-8", &of.page);
    let policy = http::HeaderValue::from_static(
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    );
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn sent(kind: &'static str, body: &Bytes) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], body.clone()).into_response()
}

/// The members of an object of a description.
fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}
