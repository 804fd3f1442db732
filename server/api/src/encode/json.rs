//! Plain JSON responses, without an envelope.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::Value;

/// A body of JSON.
pub(crate) fn json_body(body: Body) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Answers with short JSON.
pub(crate) fn json_answer(value: &Value) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
