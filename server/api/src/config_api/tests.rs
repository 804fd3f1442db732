//! Tags, places, bodies that cannot be read.

use std::collections::BTreeSet;

use quiver_config::families::{KEYS, ROLES, RULES, SILENCES, USERS};
use quiver_types::{Error, ErrorKind, Triple};

use super::*;

#[test]
fn versions_of_tags() {
    for (tag, expected) in [
        ("\"5\"", Some(5)),
        ("\"0\"", Some(0)),
        ("\"-1\"", Some(-1)),
        ("\"9223372036854775807\"", Some(i64::MAX)),
        ("\"9223372036854775808\"", None),
        // Only the form that was given: others are tags of somebody else.
        ("\"05\"", None),
        ("\"+5\"", None),
        ("\"-0\"", None),
        ("\" 5\"", None),
        ("\"5 \"", None),
        ("\"5.0\"", None),
        ("\"5\"\"", None),
        ("\"\"", None),
        ("\"", None),
        ("", None),
        ("5", None),
        ("\"5", None),
        ("5\"", None),
        ("'5'", None),
        ("*", None),
        ("W/\"5\"", None),
        ("\"abc\"", None),
    ] {
        assert_eq!(version_of(tag), expected, "{tag}");
    }
}

#[test]
fn bodies_that_cannot_be_read() {
    for (kind, status, code) in [
        (ErrorKind::TooLarge, 413, "BODY_TOO_LARGE"),
        (ErrorKind::Unavailable, 503, "STORE_BUSY"),
        (ErrorKind::Unsupported, 415, "UNSUPPORTED_MEDIA_TYPE"),
        (ErrorKind::Invalid, 400, "MALFORMED_JSON"),
        (ErrorKind::SenderTimeout, 400, "MALFORMED_JSON"),
    ] {
        let answer = Answer::of_problem(&of_body(Error::new(kind, "what is said")));
        assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{kind:?}");
        assert_eq!(answer.body["detail"], "what is said", "{kind:?}");
    }
}

#[test]
fn there_are_no_accounts_without_access_control() {
    let answer = Answer::of_problem(&no_accounts());
    assert_eq!((answer.status, &answer.body["code"]), (404, &json!("NOT_FOUND")));
}

fn caller_with(subject: &str, triples: &[&str]) -> Caller {
    let rights = triples.iter().map(|text| Triple::of_json(&json!(text)).expect(text)).collect();
    Caller { rights, subject: subject.to_owned(), ..Caller::system() }
}

#[test]
fn keys_are_read_and_written_by_their_account() {
    let check = |owner: &str, caller: &Caller, method: Method, expected: Option<&str>| {
        let place = Place { family: &KEYS, owner: owner.to_owned() };
        let told = may_come(&place, caller, &method).err();
        let required = told.as_ref().map(|problem| problem.more["required"].as_str().unwrap_or_default());
        assert_eq!(required, expected, "{} {method} {owner}", caller.subject);
        assert!(told.is_none_or(|problem| problem.kind == ProblemKind::Forbidden));
    };
    let me = caller_with("user:me", &[]);
    for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        check("rbac/users/me", &me, method, None);
    }
    let (sees, writes) = ("{view, rbac, *}", "{admin, rbac, *}");
    check("rbac/users/you", &me, Method::GET, Some(sees));
    check("rbac/users/you", &me, Method::HEAD, Some(sees));
    check("rbac/users/you", &me, Method::POST, Some(writes));
    check("rbac/users/you", &me, Method::DELETE, Some(writes));
    // An id is that of one kind of accounts only.
    check("rbac/service-accounts/me", &me, Method::GET, Some(sees));
    let program = caller_with("serviceAccount:me", &[]);
    check("rbac/service-accounts/me", &program, Method::POST, None);
    check("rbac/users/me", &program, Method::POST, Some(writes));
    // Rights of other domains, and of some services, do not help.
    check("rbac/users/you", &caller_with("user:me", &["{admin, logs, *}"]), Method::GET, Some(sees));
    check("rbac/users/you", &caller_with("user:me", &["{view, rbac, cart}"]), Method::GET, Some(sees));
    let auditor = caller_with("user:me", &["{view, rbac, *}"]);
    check("rbac/users/you", &auditor, Method::GET, None);
    check("rbac/users/you", &auditor, Method::PUT, Some(writes));
    check("rbac/users/you", &caller_with("user:me", &["{admin, rbac, *}"]), Method::PUT, None);
}

#[test]
fn somebody_of_another_issuer_is_the_user_that_is_here() {
    let place = Place { family: &KEYS, owner: "rbac/users/here".to_owned() };
    let external = |id: Option<&str>| Caller {
        external_id: id.map(str::to_owned),
        ..caller_with("oidc:https://issuer:here", &[])
    };
    assert!(may_come(&place, &external(Some("here")), &Method::POST).is_ok());
    assert!(may_come(&place, &external(Some("there")), &Method::POST).is_err());
    assert!(may_come(&place, &external(None), &Method::POST).is_err());
}

#[test]
fn families_without_owners_are_left_to_the_table_of_rights() {
    let nobody = caller_with("anonymous", &[]);
    for family in [&RULES, &SILENCES, &USERS, &ROLES] {
        assert!(may_come(&Place::of(family), &nobody, &Method::DELETE).is_ok(), "{}", family.name);
    }
}

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
    let marked = |dry_run: bool| {
        let response = Answer::ok(json!({"a": 1})).into_response(None);
        with_dry_run(response, dry_run).headers().get(name).map(|value| value.as_bytes().to_vec())
    };
    assert_eq!((marked(true), marked(false)), (Some(b"true".to_vec()), None));
}

#[tokio::test]
async fn methods_that_are_not_used() {
    let response = not_allowed().await;
    assert_eq!(response.status(), http::StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
}
