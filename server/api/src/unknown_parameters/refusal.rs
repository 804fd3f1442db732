//! The response to an unknown parameter, in the error format of each family of routes.

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use quiver_config::Problem;
use quiver_traces::TraceError;

use super::{error, known, unknown};
use crate::fallback::{answer, is_below};
use crate::{olap_api, traces_api};

/// Whether a path is one of our own of traces.
fn is_of_traces(path: &str) -> bool {
    ["/traces", "/platform-api/traces"].iter().any(|base| is_below(path, base))
}

/// Whether a path stands for UTF-8 text.
pub(crate) fn is_text(path: &str) -> bool {
    percent_decode_str(path).decode_utf8().is_ok()
}

/// Gives the answer of routes of traces to a path that is no text. Extractors would answer it in a form of their own.
pub(crate) fn unreadable(request: &Request) -> Option<Response> {
    let path = request.uri().path();
    (is_of_traces(path) && !is_text(path)).then(|| traces_api::problem(&TraceError::InvalidId, "/traces"))
}

/// Gives the answer to a request whose query has a parameter that its route does not know.
pub(crate) fn refusal(request: &Request) -> Option<Response> {
    let query = request.uri().query()?;
    let route = request.extensions().get::<MatchedPath>()?.as_str();
    let name = unknown(route, url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name))?;
    let path = request.uri().path();
    if is_of_traces(path) {
        return Some(traces_api::problem(&TraceError::Param(error(route, &name)), "/traces"));
    }
    if is_below(path, "/olap-api") {
        return Some(olap_api::unknown_parameter(&name, &known(route), path));
    }
    let problem = Problem::parameter(format!("unknown parameter `{name}`{}", known(route)));
    Some(answer(path, StatusCode::BAD_REQUEST, &problem, &problem.detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_text() {
        for (path, expected) in [
            ("/traces/1", true),
            ("/traces/%41", true),
            ("/traces/%e2%82%ac", true),
            ("/traces/%ff", false),
            ("/traces/%e2%82/x", false),
            ("/traces/\u{20ac}", true),
            // No escapes.
            ("/traces/%", true),
            ("/traces/%f", true),
            ("/traces/%zz", true),
            ("/traces/%+f", true),
            ("/traces/%-1", true),
            ("/traces/%% ff", true),
        ] {
            assert_eq!(is_text(path), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn the_answer_names_it() {
        use http_body_util::BodyExt as _;
        use serde_json::json;

        for (name, path, expected) in [
            ("limt", "/none", "parameter `limt`: unknown on this path"),
            ("segment", "/traces/compare", "parameter `segment`: segments do not act on this path"),
        ] {
            let answer = traces_api::problem(&TraceError::Param(error(path, name)), path);
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!((&body["detail"], &body["parameter"]), (&json!(expected), &json!(name)), "{path}");
        }
    }
}
