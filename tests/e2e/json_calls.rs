//! Helpers for calls of JSON APIs: with an identity, a body, and the expected result.

use quiver_tests::server::{Answer, Server};
use serde_json::Value;

/// Calls as somebody (an empty text: nobody) with a body (null: none).
pub(crate) async fn call(server: &Server, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("authorization", who)];
    let used = if who.is_empty() { &headers[..1] } else { &headers[..] };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, path, used, body).await
}

/// Gives what a `POST` makes.
pub(crate) async fn made(server: &Server, who: &str, path: &str, body: Value) -> Value {
    let answer = call(server, who, "POST", path, &body).await;
    assert_eq!(answer.status, 201, "{path} {body}: {}", answer.text());
    answer.json()
}

/// Gives an answer that must be 200.
pub(crate) async fn asked(server: &Server, who: &str, method: &str, path: &str, body: &Value) -> Value {
    let answer = call(server, who, method, path, body).await;
    assert_eq!(answer.status, 200, "{method} {path} {body}: {}", answer.text());
    answer.json()
}
