//! Small calls that shippers make before they send.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

/// Makes a JSON answer.
pub(super) fn json(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

pub(super) async fn ready() -> Response {
    json(StatusCode::OK, "{\"status\":\"ok\"}")
}

pub(super) async fn aggregator_ready() -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "ready").into_response()
}

pub(super) async fn validate() -> Response {
    json(StatusCode::OK, "{}")
}
