//! What is answered before the store is open: liveness, the progress of the start, and own metrics.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, header};

use crate::error::plain;
use crate::metrics::{write_metric, write_store};
use crate::request_context::{ID_HEADER, RequestIds};

/// Answers while the store is being opened.
#[derive(Debug)]
pub struct StartupResponder {
    /// Makes ids of requests that bring none.
    pub ids: RequestIds,
    /// Version of the product.
    pub version: &'static str,
    /// Own figures of the process, in the exposition format.
    pub process_metrics: fn(&mut String),
}

impl StartupResponder {
    /// Whether a request is about what there is after the start: those about the process are answered at any time.
    pub fn can_wait(request: &Request<Body>) -> bool {
        !matches!(request.uri().path(), "/health/live" | "/metrics")
    }

    /// Responds to a request while the store is not open yet.
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answered(path: &str) -> (u16, String) {
        let process_metrics: fn(&mut String) = |out| out.push_str("own_metric 1\n");
        let starting = StartupResponder { ids: RequestIds::default(), version: "1.2", process_metrics };
        let request = Request::get(path).header(ID_HEADER, "abc").body(Body::empty()).unwrap();
        let response = starting.answer(&request);
        assert_eq!(response.headers()[ID_HEADER], "abc");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn what_asks_for_the_process_does_not_wait() {
        for (path, waits) in [("/health/live", false), ("/metrics", false), ("/health/ready", true), ("/", true)] {
            assert_eq!(StartupResponder::can_wait(&Request::get(path).body(Body::empty()).unwrap()), waits, "{path}");
        }
    }

    #[tokio::test]
    async fn it_lives_and_is_not_ready() {
        assert_eq!(answered("/health/live").await, (200, "live\n".to_owned()));
        for path in ["/health/ready", "/health", "/", "/metrics/", "/metrics-api/api/v1/query"] {
            let (status, text) = answered(path).await;
            assert_eq!(status, 503, "{path}");
            assert!(text.starts_with("starting: "), "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn its_own_metrics_are_there() {
        let (status, text) = answered("/metrics").await;
        assert_eq!(status, 200);
        for line in ["quiver_build_info{version=\"1.2\"} 1", "own_metric 1"] {
            assert!(text.lines().any(|l| l == line), "`{line}` is not in\n{text}");
        }
        assert!(text.contains("# TYPE quiver_wal_") || text.contains("# TYPE quiver_store_"), "{text}");
    }
}
