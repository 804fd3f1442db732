//! Problem documents (`config-api` 1.5), in which our own interfaces tell errors.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};

/// The media type of a problem.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// What every problem has. `error` repeats the detail for client libraries that show nothing else.
pub(crate) fn problem_object(status: StatusCode, code: &str, detail: &str) -> Value {
    let slug = code.to_ascii_lowercase().replace('_', "-");
    json!({
        "type": format!("urn:quiver:problem:{slug}"), "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(), "code": code, "detail": detail, "error": detail,
    })
}

/// A response with a problem.
pub(crate) fn problem_response(status: StatusCode, problem: String) -> Response {
    (status, [(header::CONTENT_TYPE, PROBLEM)], problem).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_by_its_code() {
        let expected = json!({
            "type": "urn:quiver:problem:no-such-thing", "title": "Not Found", "status": 404, "code": "NO_SUCH_THING",
            "detail": "there is none", "error": "there is none",
        });
        assert_eq!(problem_object(StatusCode::NOT_FOUND, "NO_SUCH_THING", "there is none"), expected);
        let response = problem_response(StatusCode::NOT_FOUND, expected.to_string());
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM);
    }
}
