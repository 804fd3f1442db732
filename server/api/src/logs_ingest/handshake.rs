//! Small calls that shippers make before they send.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use crate::encode::json::json_response;

pub(super) async fn ready() -> Response {
    json_response(StatusCode::OK, "{\"status\":\"ok\"}")
}

pub(super) async fn aggregator_ready() -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "ready").into_response()
}

pub(super) async fn collector_ready() -> Response {
    json_response(StatusCode::OK, "{\"text\":\"HEC is healthy\",\"code\":17}")
}

pub(super) async fn validate() -> Response {
    json_response(StatusCode::OK, "{}")
}
