//! Texts that look like code are stored as data wherever configuration takes them, or refused (promise H8).

use std::collections::BTreeMap;

use quiver_tests::server::{Options, Server};
use serde_json::json;

use super::JSON;
use crate::configuration::{families, numbered};

/// Texts that something might take for code (H8).
const PAYLOADS: [&str; 30] = [
    "'; DROP TABLE entity; --",
    "\" OR \"1\"=\"1",
    "'||(SELECT 1)||'",
    "1; SELECT pg_sleep(10)",
    "admin'/*",
    "\\'; --",
    "$1",
    "?",
    ":name",
    "%",
    "_",
    "a%' ESCAPE '%",
    "{{7*7}}",
    "{{ .Secret }}",
    "{{ define \"x\" }}",
    "${7*7}",
    "${jndi:ldap://192.0.2.1/a}",
    "#{7*7}",
    "<%= 7*7 %>",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "../../../etc/passwd",
    "..\\..\\windows",
    "%00",
    "%2e%2e%2f",
    "`id`",
    "$(id)",
    "=cmd|' /C calc'!A0",
    "\u{202e}txt.exe",
];

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_look_like_code_are_data() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let json = [("content-type", JSON)];
    for (path, body) in families() {
        let mut refused = 0;
        for (n, payload) in PAYLOADS.iter().enumerate() {
            // Kept as it is.
            let mut entity = numbered(&body, n);
            entity["description"] = json!(payload);
            entity["labels"] = json!({"payload": payload, "other": payload});
            let answer = server.post(path, &json, entity.to_string().into_bytes()).await;
            // Labels of rules and routes are templates, and these are none.
            if path.starts_with("/rulesapi/") && payload.contains("{{") && answer.status == 422 {
                assert_eq!(answer.json()["errors"][0]["code"], "INVALID_TEMPLATE", "{payload:?}: {}", answer.text());
                refused += 1;
                continue;
            }
            assert_eq!(answer.status, 201, "{path} {payload:?}: {}", answer.text());
            let made = answer.json();
            assert_eq!(
                (&made["description"], &made["labels"]["payload"]),
                (&json!(payload), &json!(payload)),
                "{path}"
            );
            // Found by what it is, and nothing else with it.
            let quoted = format!("labels.payload eq {}", json!(payload));
            for by in [("filter", quoted.as_str()), ("labels.payload", payload)] {
                let found = server.get_with(path, &[by, ("count", "true")]).await;
                assert_eq!(found.status, 200, "{path} {by:?}: {}", found.text());
                assert_eq!(found.json()["total"], 1, "{path} {by:?}");
            }
            // Where it is no data it is refused.
            for by in ["filter", "sort", "fields", "cursor", "limit", "count", "nothing"] {
                let refused = server.get_with(path, &[(by, payload)]).await;
                let code = refused.json()["code"].clone();
                let known = [json!("INVALID_PARAMETER"), json!("CURSOR_MISMATCH")].contains(&code);
                assert!(refused.status == 400 && known, "{path} {by}={payload}: {}", refused.text());
            }
            let found = server.get_with(path, &[("q", payload)]).await;
            assert_eq!(found.status, 200, "{path} q={payload}: {}", found.text());
        }
        let all = server.get_with(path, &[("count", "true"), ("filter", "labels.other pr")]).await.json();
        assert_eq!(all["total"], json!(PAYLOADS.len() - refused), "{path}: none too many, none too few");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_takes_payloads_as_data_or_refuses_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let json = [("content-type", JSON)];
    let mut told: BTreeMap<u16, usize> = BTreeMap::new();
    for (path, body) in families() {
        let fields: Vec<String> = body.as_object().expect("an object").keys().cloned().collect();
        for (n, payload) in PAYLOADS.iter().enumerate() {
            for field in &fields {
                let mut entity = numbered(&body, 1000 + n);
                entity[field] = json!(payload);
                let target = format!("{path}?dryRun=true");
                let answer = server.post(&target, &json, entity.to_string().into_bytes()).await;
                *told.entry(answer.status).or_default() += 1;
                match answer.status {
                    201 => assert_eq!(answer.json()[field], json!(payload), "{path} {field}"),
                    400 | 409 | 422 => assert!(answer.json()["code"].is_string(), "{path} {field}: {}", answer.text()),
                    other => panic!("{path} {field}={payload:?}: {other} {}", answer.text()),
                }
            }
        }
    }
    assert!(told[&201] > 100 && told[&422] > 100, "{told:?}");
    // Names of those who log in, and of what belongs to them.
    for payload in PAYLOADS {
        for (path, field) in
            [("users", "username"), ("service-accounts", "clientId"), ("groups", "name"), ("roles", "name")]
        {
            let target = format!("/platform-api/rbac/{path}?dryRun=true");
            let body = json!({field: payload}).to_string().into_bytes();
            let answer = server.post(&target, &json, body).await;
            let fits = match answer.status {
                201 => answer.json()[field] == json!(payload),
                422 => answer.json()["code"] == json!("VALIDATION_FAILED"),
                _ => false,
            };
            assert!(fits, "{path} {payload:?}: {}", answer.text());
        }
    }
}
