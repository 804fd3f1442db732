//! What is answered before the store is open: that the process lives, what it does, and its own metrics.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, header};

use crate::error::plain;
use crate::metrics::{write_metric, write_store};
use crate::request::{ID_HEADER, RequestIds};

/// Answers while the store is being opened.
#[derive(Debug)]
pub struct Starting {
    /// Names of requests.
    pub ids: RequestIds,
    /// Version of the product.
    pub version: &'static str,
    /// Own figures of the process, in the exposition format.
    pub process_metrics: fn(&mut String),
}

impl Starting {
    /// Answers a request.
    pub fn answer(&self, request: &Request<Body>) -> Response {
        let mut response = match request.uri().path() {
            "/health/live" => plain(StatusCode::OK, "live"),
            "/metrics" => {
                let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
                (content_type, self.metrics()).into_response()
            }
            _ => plain(StatusCode::SERVICE_UNAVAILABLE, progress()),
        };
        response.headers_mut().insert(ID_HEADER, self.ids.of(request.headers()));
        response
    }

    fn metrics(&self) -> String {
        let mut out = String::with_capacity(16 * 1024);
        let version = vec![(format!("{{version=\"{}\"}}", self.version), 1.0)];
        write_metric(&mut out, "quiver_build_info", "gauge", "Version of the product.", &version);
        (self.process_metrics)(&mut out);
        write_store(&mut out);
        out
    }
}

/// Says how far the start is.
fn progress() -> String {
    match quiver_store::metrics::replay_progress() {
        (_, 0) => "starting: opening the store".to_owned(),
        (done, all) => format!("starting: replaying the log, {} of {} KiB", done.min(all) >> 10, all >> 10),
    }
}
