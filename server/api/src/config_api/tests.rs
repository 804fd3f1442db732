//! Paths of families, and the responses to dry runs and wrong methods.

use std::collections::BTreeSet;

use http::header;
use quiver_config::ChangeMode;
use serde_json::json;

use super::response::Answer;
use super::response::with_dry_run;
use super::*;

#[test]
fn paths_of_families_are_told_apart() {
    let mut paths = BTreeSet::new();
    for family in FAMILIES.iter().filter(|family| !family.own_paths) {
        assert!(family.path.starts_with('/') && !family.path.ends_with('/'), "{}", family.name);
        assert_eq!(family.path.contains("{owner}"), !family.owners.is_empty(), "{}", family.name);
        assert!(paths.insert(family.path), "{} stands twice", family.path);
    }
}

#[test]
fn dry_runs_are_said_to_be_such() {
    let name = "x-dry-run";
    let marked = |mode: ChangeMode| {
        let response = Answer::ok(json!({"a": 1})).into_response(None);
        with_dry_run(response, mode).headers().get(name).map(|value| value.as_bytes().to_vec())
    };
    assert_eq!((marked(ChangeMode::DryRun), marked(ChangeMode::Apply)), (Some(b"true".to_vec()), None));
}

#[tokio::test]
async fn methods_that_are_not_used() {
    let response = not_allowed().await;
    assert_eq!(response.status(), http::StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
}
