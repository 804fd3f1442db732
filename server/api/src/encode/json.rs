//! Plain JSON responses, without an envelope.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;

/// A response of JSON with a status.
pub(crate) fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// A body of JSON.
pub(crate) fn json_body(body: Body) -> Response {
    json_response(StatusCode::OK, body)
}

/// Answers with short JSON.
pub(crate) fn json_answer(value: &Value) -> Response {
    json_response(StatusCode::OK, value.to_string())
}
