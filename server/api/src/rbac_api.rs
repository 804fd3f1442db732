//! Access control beyond the contract of configuration: the caller himself, his password, checks of rights, the audit
//! log, signing keys (`config-api` section 5).

mod passwords;

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, post, put};
use futures::future::BoxFuture;
use http::header;
use quiver_auth::{AccountKind, OldTokens, OsRandom, Subject, api_key, external_id, sha256_hex};
use quiver_config::families::{SERVICE_ACCOUNTS, USERS};
use quiver_config::{AuditEvent, AuditQuery, Condition, Family, Op, Place, Problem, Result, System};
use quiver_types::{Domain, Right, Rights, Services, Triple};
use serde_json::{Map, Value, json};

use crate::config_api::body_members::only_members;
use crate::config_api::operation::{OperationHandler, Routes, special_of};
use crate::config_api::path_ids::{Ids, no_parameters};
use crate::config_api::request::Ask;
use crate::config_api::response::Answer;
use crate::handlers::boxed;
use crate::state::AppState;
use passwords::{BODY_BYTES_MAX, end_sessions, own_password, reset_password};

/// Most triples of a check.
const TRIPLES_MAX: usize = 1000;
/// Rows of the audit log that are read at once for an export.
const EXPORT_PAGE: &str = "1000";

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let at = |path: &str| format!("/platform-api/rbac/{path}");
    Router::new()
        .route(&at("me"), get(boxed(me)))
        .route(&at("me/password"), put(boxed(own_password)))
        .route(&at("permissions"), get(boxed(permissions)))
        .route(&at("permissions/check"), post(boxed(check)))
        .route(&at("users/{id}/effective-permissions"), get(boxed(effective)))
        .route(&at("users/{id}/reset-password"), change(&USERS, reset_password))
        .route(&at("users/{id}/logout"), change(&USERS, end_sessions))
        .route(&at("service-accounts/{id}/effective-permissions"), get(boxed(effective_service)))
        .route(&at("service-accounts/{id}/rotate-secret"), change(&SERVICE_ACCOUNTS, rotate_secret))
        .route(&at("audit"), get(boxed(audit)))
        .route(&at("audit/export"), get(boxed(audit_export)))
        .route(&at("audit/verify"), get(boxed(audit_verify)))
        .route(&at("keys/rotate"), change(&USERS, rotate_keys))
}

/// A route of what changes something: it knows dry runs, and requests that name themselves.
fn change(family: &'static Family, run: OperationHandler) -> Routes {
    special_of(family, MethodFilter::POST, BODY_BYTES_MAX, run)
}

fn triples_of(rights: &Rights) -> Value {
    rights.triples().iter().map(Triple::to_json).collect()
}

async fn me(State(state): State<Arc<AppState>>, RawQuery(query): RawQuery) -> Response {
    Answer::respond(no_parameters(query.as_deref()).map(|()| whoever_asks(&state)))
}

/// Who asks, and what they may do.
fn whoever_asks(state: &AppState) -> Answer {
    let identity = state.identity();
    let (kind, id) = match &identity.subject {
        Subject::Account(kind, id) => (kind.word(), id.clone()),
        Subject::External(issuer, subject) => ("user", external_id(issuer, subject)),
        Subject::Anyone => ("anonymous", String::new()),
    };
    let roles = state.identities.as_ref().map(|i| i.auth.roles_of(&identity)).unwrap_or_default();
    let mut services: Vec<String> = Vec::new();
    for (domain, ..) in Domain::ALL {
        services.extend(identity.access(domain).patterns());
    }
    services.sort_unstable();
    services.dedup();
    Answer::ok(json!({
        "subject": {"type": kind, "id": id, "name": identity.name},
        "roles": roles, "triples": triples_of(&identity.rights), "services": services,
        "rbac": if state.is_enforced() { "on" } else { "off" },
    }))
}

async fn permissions(RawQuery(query): RawQuery) -> Response {
    Answer::respond(no_parameters(query.as_deref()).map(|()| all_permissions()))
}

fn all_permissions() -> Answer {
    let rights = Right::ALL.map(|(right, name, doc)| {
        let contains =
            Right::ALL.iter().filter(|(other, ..)| *other != right && right.contains(*other)).map(|(_, name, _)| *name);
        json!({"name": name, "description": doc, "contains": contains.collect::<Vec<_>>()})
    });
    let domains = Domain::ALL.map(|(_, name, doc)| json!({"name": name, "description": doc}));
    Answer::ok(json!({"rights": rights, "domains": domains}))
}

fn rotate_secret<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = if ask.body.is_empty() { Map::new() } else { ask.object()? };
        only_members(&body, &["graceSeconds"])?;
        let grace_s = match body.get("graceSeconds") {
            None | Some(Value::Null) => 0,
            Some(value) => {
                let wrong = || Problem::field("/graceSeconds", "OUT_OF_RANGE", "must be a number from 0 to 2592000");
                value.as_i64().filter(|n| (0..=2_592_000).contains(n)).ok_or_else(wrong)?
            }
        };
        let id = ids[0].clone();
        let account = ask.config.get(&ask.place, &id, &ask.caller).await?;
        let secret = api_key::make_secret(&OsRandom);
        let mut system = System::default();
        system.sealed.insert("secret".to_owned(), json!(sha256_hex(secret.as_bytes())));
        let until = ask.state.clock.now_ms() + grace_s * 1000;
        system.sealed.insert("oldSecret".to_owned(), account.sealed.get("secret").cloned().unwrap_or(Value::Null));
        system.sealed.insert("oldSecretUntil".to_owned(), json!(until));
        let op = Op::Patch { id, patch: Map::new(), condition: Condition::Versions(vec![account.version]) };
        let done = ask.change(op, system).await?;
        let mut shown = done.after.map(|e| e.shown()).unwrap_or_default();
        shown.insert("secret".to_owned(), json!(secret));
        Ok(Answer::ok(Value::Object(shown)))
    })
}

/// Reads whom a check is about; none: the caller.
fn subject_of(body: &Map<String, Value>) -> Result<Option<(AccountKind, String)>> {
    let Some(subject) = body.get("subject").filter(|s| !s.is_null()) else { return Ok(None) };
    if let Value::Object(members) = subject {
        only_members(members, &["type", "id"]).map_err(|problem| problem.below("/subject"))?;
    }
    let part = |key: &str| subject.get(key).and_then(Value::as_str);
    let kind = match part("type") {
        Some("user") => AccountKind::User,
        Some("serviceAccount") => AccountKind::Service,
        _ => return Err(Problem::field("/subject/type", "INVALID_VALUE", "must be user or serviceAccount")),
    };
    let id = part("id").ok_or_else(|| Problem::field("/subject/id", "REQUIRED", "is required"))?;
    Ok(Some((kind, id.to_owned())))
}

async fn check(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let ask = Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await?;
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["subject", "triples"])?;
        let Some(Value::Array(asked)) = body.get("triples") else {
            return Err(Problem::field("/triples", "REQUIRED", "must be a list of permissions"));
        };
        if asked.len() > TRIPLES_MAX {
            return Err(Problem::field(
                "/triples",
                "LIMIT_EXCEEDED",
                format!("must have at most {TRIPLES_MAX} entries"),
            ));
        }
        let (now_ms, directory) = (state.clock.now_ms(), ask.identities()?.auth.directory());
        let held: Vec<(Triple, Option<String>)> = match subject_of(&body)? {
            None => {
                let by = match &state.identity().subject {
                    Subject::Account(kind, id) => directory.triples_by_role(*kind, id, now_ms),
                    _ => Vec::new(),
                };
                // A key may hold less than its owner; roles only say by what the rest is held.
                let role = |t: &Triple| by.iter().find(|(held, _)| held.covers(t)).map(|(_, role)| role.clone());
                ask.caller.rights.triples().iter().map(|t| (t.clone(), role(t))).collect()
            }
            Some((kind, id)) => {
                let needed = Triple::new(Right::View, Some(Domain::Rbac), Services::all());
                if !ask.caller.rights.covers(&needed) {
                    return Err(Problem::forbidden(&needed.to_string()));
                }
                directory.account(kind, &id).ok_or_else(|| Problem::not_found(&id))?;
                directory.triples_by_role(kind, &id, now_ms).into_iter().map(|(t, role)| (t, Some(role))).collect()
            }
        };
        let mut results = Vec::with_capacity(asked.len());
        for (n, value) in asked.iter().enumerate() {
            let wrong = |why: String| Problem::field(format!("/triples/{n}"), "INVALID_VALUE", why);
            let triple = Triple::of_json(value).map_err(wrong)?;
            let by = held.iter().find(|(t, _)| t.covers(&triple));
            results.push(json!({"triple": triple.to_json(), "allowed": by.is_some(), "by": by.and_then(|(_, role)| role.clone())}));
        }
        Ok(Answer::ok(json!({"results": results})))
    };
    Answer::respond(run.await)
}

async fn effective(State(state): State<Arc<AppState>>, ids: Ids, request: Request) -> Response {
    Answer::respond(effective_of(state, AccountKind::User, ids, request).await)
}

async fn effective_service(State(state): State<Arc<AppState>>, ids: Ids, request: Request) -> Response {
    Answer::respond(effective_of(state, AccountKind::Service, ids, request).await)
}

async fn effective_of(state: Arc<AppState>, kind: AccountKind, Ids(ids): Ids, request: Request) -> Result<Answer> {
    let id = ids.into_iter().next().map(|(_, id)| id).unwrap_or_default();
    let ask = Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await?;
    ask.only_parameters(&[])?;
    let family = if kind == AccountKind::User { USERS.name } else { SERVICE_ACCOUNTS.name };
    let own = ask.caller.account() == Some((family, id.as_str()));
    let needed = Triple::new(Right::View, Some(Domain::Rbac), Services::all());
    if !own && !ask.caller.rights.covers(&needed) {
        return Err(Problem::forbidden(&needed.to_string()));
    }
    let directory = ask.identities()?.auth.directory();
    directory.account(kind, &id).ok_or_else(|| Problem::not_found(&id))?;
    let one = |(triple, role): (Triple, String)| {
        let mut shown = triple.to_json();
        shown["by"] = json!(role);
        shown
    };
    let triples = directory.triples_by_role(kind, &id, state.clock.now_ms());
    let triples: Vec<Value> = triples.into_iter().map(one).collect();
    Ok(Answer::ok(json!({"triples": triples})))
}

/// The parameters of the audit log with their times in one form: they are read as those of all operations (`config-api` 1.7).
/// What is no time is left to be refused.
fn audit_parameters(ask: &Ask) -> Vec<(String, String)> {
    let mut parameters = ask.parameters.clone();
    let now_ns = ask.state.clock.now_ms().saturating_mul(1_000_000);
    for (key, value) in &mut parameters {
        if matches!(key.as_str(), "start" | "end")
            && let Some(ns) = crate::traces_params::time(value, now_ns)
        {
            *value = quiver_config::json::time_text(ns.div_euclid(1_000_000));
        }
    }
    parameters
}

async fn audit(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let ask = Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await?;
        let page = ask.config.audit_rows(&AuditQuery::parse(&audit_parameters(&ask))?).await?;
        let mut body = json!({"items": null, "nextCursor": page.next_cursor});
        // Not within the `json!` macro, which would copy each of them.
        body["items"] = page.items.into_iter().map(Value::Object).collect();
        if let Some(total) = page.total {
            body["total"] = json!(total);
        }
        Ok(Answer::ok(body))
    };
    Answer::respond(run.await)
}

/// All rows that match, newest first, a line each; read page by page while they are sent.
async fn audit_export(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let ask = match Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await {
        Ok(ask) => ask,
        Err(problem) => return Answer::of_problem(&problem).into_response(None),
    };
    let mut parameters = audit_parameters(&ask);
    // Reads all rows page by page; the total is not reported, so the pages need not count.
    parameters.retain(|(key, _)| !matches!(key.as_str(), "limit" | "cursor" | "count"));
    parameters.push(("limit".to_owned(), EXPORT_PAGE.to_owned()));
    if let Err(problem) = AuditQuery::parse(&parameters) {
        return Answer::of_problem(&problem).into_response(None);
    }
    let config = ask.config.clone();
    let pages = futures::stream::try_unfold(Some(parameters), move |next| {
        let config = config.clone();
        async move {
            let Some(mut parameters) = next else { return Ok(None) };
            let read = async {
                let page = config.audit_rows(&AuditQuery::parse(&parameters)?.in_pieces()).await?;
                let mut lines = String::new();
                for row in page.items {
                    let _ = writeln!(lines, "{}", Value::Object(row));
                }
                Ok::<_, Problem>((lines, page.next_cursor))
            };
            let (lines, cursor) = read.await.map_err(|problem| std::io::Error::other(problem.detail))?;
            parameters.retain(|(key, _)| key != "cursor");
            let next = cursor.map(|cursor| {
                parameters.push(("cursor".to_owned(), cursor));
                parameters
            });
            Ok::<_, std::io::Error>(Some((lines, next)))
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages)).into_response()
}

async fn audit_verify(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let run = async {
        let ask = Ask::read(&state, Place::of(&USERS), request, BODY_BYTES_MAX).await?;
        ask.only_parameters(&[])?;
        let verified = ask.config.audit_verify().await?;
        let sound = verified.broken_at.is_none();
        Ok(Answer::ok(json!({"sound": sound, "rows": verified.rows, "brokenAt": verified.broken_at})))
    };
    Answer::respond(run.await)
}

fn rotate_keys<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["revokeOld"])?;
        let old_tokens = match ask.parameter("revokeOld")? {
            None | Some("false") => OldTokens::Expire,
            Some("true") => OldTokens::EndAtOnce,
            Some(_) => return Err(Problem::parameter("`revokeOld` must be true or false")),
        };
        let auth = &ask.identities()?.auth;
        if ask.mode.is_dry_run() {
            // Who would come after the next one is not known before it is made.
            let keys = auth.signing_keys().await.map_err(Problem::internal)?;
            return Ok(Answer::ok(json!({"kid": keys.next_kid(), "nextKid": null})));
        }
        let rotated = auth.rotate_keys(old_tokens).await.map_err(Problem::internal)?;
        let event = AuditEvent {
            action: "KEYS_ROTATE",
            family: "rbac/keys",
            entity_id: None,
            entity_name: Some(rotated.kid.clone()),
            outcome: "ok",
            code: None,
        };
        ask.config.audit(&ask.caller, event).await;
        Ok(Answer::ok(json!({"kid": rotated.kid, "nextKid": rotated.next_kid})))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_about_the_caller_or_an_account() {
        let subject = |value: Value| {
            let body: Map<String, Value> = [("subject".to_owned(), value)].into_iter().collect();
            subject_of(&body)
        };
        assert_eq!(subject_of(&Map::new()).unwrap(), None);
        assert_eq!(subject(json!(null)).unwrap(), None);
        let user = subject(json!({"type": "user", "id": "u1"})).unwrap();
        assert_eq!(user, Some((AccountKind::User, "u1".to_owned())));
        let service = subject(json!({"id": "", "type": "serviceAccount"})).unwrap();
        assert_eq!(service, Some((AccountKind::Service, String::new())));
        // A check about nobody would be one about the caller: what is wrong is told.
        for (wrong, field, code) in [
            (json!({}), "/subject/type", "INVALID_VALUE"),
            (json!("u1"), "/subject/type", "INVALID_VALUE"),
            (json!([]), "/subject/type", "INVALID_VALUE"),
            (json!({"type": "User", "id": "u1"}), "/subject/type", "INVALID_VALUE"),
            (json!({"type": "user"}), "/subject/id", "REQUIRED"),
            (json!({"type": "user", "id": 7}), "/subject/id", "REQUIRED"),
            (json!({"type": "user", "id": "u1", "name": "x"}), "/subject/name", "UNKNOWN_FIELD"),
        ] {
            let problem = subject(wrong.clone()).unwrap_err();
            assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), (field, code), "{wrong}");
        }
    }

    /// The table of rights of `identity-and-access`, as programs read it.
    #[test]
    fn permissions_say_what_each_right_contains() {
        let answer = all_permissions();
        let rights = answer.body["rights"].as_array().unwrap();
        let contains = |name: &str| -> Vec<&str> {
            let right = rights.iter().find(|right| right["name"] == name).unwrap();
            right["contains"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
        };
        assert_eq!(contains("view"), [""; 0]);
        assert_eq!(contains("operate"), ["view"]);
        assert_eq!(contains("edit"), ["view", "operate"]);
        assert_eq!(contains("ingest"), [""; 0], "nothing can be read with it");
        assert_eq!(contains("admin"), ["view", "operate", "edit", "ingest"]);
        assert_eq!((answer.status, rights.len()), (200, 5));
        let domains = answer.body["domains"].as_array().unwrap();
        for domain in domains {
            let name = domain["name"].as_str().unwrap();
            assert!(Domain::parse(name).is_some() && domain["description"].is_string(), "{domain}");
        }
        assert_eq!(domains.len(), Domain::ALL.len());
    }

    #[test]
    fn rights_are_shown_as_they_are_asked_for() {
        let rights: Rights = ["{view, logs, cart*}", "{admin, *, *}"]
            .iter()
            .map(|text| Triple::of_json(&json!(text)).unwrap())
            .collect();
        for shown in triples_of(&rights).as_array().unwrap() {
            let triple = Triple::of_json(shown).unwrap();
            assert!(rights.triples().contains(&triple), "{shown}");
        }
        assert_eq!(triples_of(&Rights::default()), json!([]));
    }
}
