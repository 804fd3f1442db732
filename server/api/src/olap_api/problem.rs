//! Errors of analytics as problem documents. They always have a text `error`, which client libraries show.

use axum::response::Response;
use http::StatusCode;
use quiver_olap::OlapError;
use quiver_types::ErrorKind;

use crate::encode::problem::{problem_object, problem_response};
use crate::error::{log, public_text, status_of, with_retry_after};
use crate::request_context::RequestInfo;

/// Makes the response for an error.
pub(super) fn problem(error: &OlapError, route: &str) -> Response {
    let (status, code, detail) = match error {
        OlapError::Query(e) => (StatusCode::BAD_REQUEST, "INVALID_QUERY", e.message.clone()),
        OlapError::Engine(e) => {
            log(e, route);
            let code = match e.kind {
                ErrorKind::Invalid => "INVALID_QUERY",
                ErrorKind::Forbidden => "FORBIDDEN",
                ErrorKind::TooLarge => "BODY_TOO_LARGE",
                ErrorKind::LimitExceeded => "LIMIT_EXCEEDED",
                ErrorKind::Timeout => "QUERY_TIMEOUT",
                ErrorKind::Unavailable => "OVERLOADED",
                ErrorKind::Cancelled => "QUERY_CANCELLED",
                ErrorKind::Execution => "CANNOT_EXECUTE",
                ErrorKind::Unsupported => "UNSUPPORTED",
                ErrorKind::SenderTimeout => "TIMEOUT",
                _ => "INTERNAL",
            };
            (status_of(e.kind), code, public_text(e).to_owned())
        }
    };
    let mut body = problem_object(status, code, &detail);
    if let OlapError::Query(e) = error {
        body["type"] = "UserError".into();
        body["reason"] = e.reason.as_str().into();
        body["pointer"] = e.pointer.as_str().into();
    }
    if let Some(request) = RequestInfo::current() {
        body["requestId"] = request.id().into();
    }
    with_retry_after(problem_response(status, body.to_string()))
}

#[cfg(test)]
mod tests {
    use http::header;
    use http_body_util::BodyExt as _;
    use quiver_olap::{QueryError, Reason};
    use quiver_types::Error;
    use serde_json::Value;

    use super::*;

    async fn read(error: &OlapError) -> (u16, Value) {
        let response = problem(error, "/olap-api/v1/load");
        let status = response.status().as_u16();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers().contains_key(header::RETRY_AFTER), status == 503);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((body["status"].as_u64(), &body["detail"]), (Some(status.into()), &body["error"]));
        (status, body)
    }

    #[tokio::test]
    async fn a_wrong_query_is_told_where() {
        let error = QueryError::new(Reason::BadJson, "/measures/0", "it is no text");
        let (status, body) = read(&OlapError::Query(error)).await;
        assert_eq!((status, body["code"].as_str()), (400, Some("INVALID_QUERY")));
        // Clients of analytics check the value of `type`.
        assert_eq!((body["type"].as_str(), body["reason"].as_str()), (Some("UserError"), Some("BAD_JSON")));
        assert_eq!((body["pointer"].as_str(), body["detail"].as_str()), (Some("/measures/0"), Some("it is no text")));
    }

    #[tokio::test]
    async fn errors_of_the_engine() {
        for (kind, status, code) in [
            (ErrorKind::Invalid, 400, "INVALID_QUERY"),
            (ErrorKind::Forbidden, 403, "FORBIDDEN"),
            (ErrorKind::TooLarge, 413, "BODY_TOO_LARGE"),
            (ErrorKind::LimitExceeded, 422, "LIMIT_EXCEEDED"),
            (ErrorKind::Execution, 422, "CANNOT_EXECUTE"),
            (ErrorKind::Unsupported, 415, "UNSUPPORTED"),
            (ErrorKind::SenderTimeout, 408, "TIMEOUT"),
            (ErrorKind::Cancelled, 422, "QUERY_CANCELLED"),
            (ErrorKind::Timeout, 503, "QUERY_TIMEOUT"),
            (ErrorKind::Unavailable, 503, "OVERLOADED"),
            (ErrorKind::Damaged, 500, "INTERNAL"),
            (ErrorKind::Internal, 500, "INTERNAL"),
        ] {
            let error = Error::new(kind, "what is said").with_source(std::io::Error::other("a secret"));
            let (found, body) = read(&OlapError::Engine(error)).await;
            assert_eq!((found, body["code"].as_str()), (status, Some(code)), "{kind:?}");
            let slug = code.to_lowercase().replace('_', "-");
            assert_eq!(body["type"], format!("urn:quiver:problem:{slug}"));
            assert!(!body.to_string().contains("secret"), "{body}");
        }
    }
}
