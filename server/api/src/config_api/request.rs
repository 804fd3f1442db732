//! A parsed request: caller, place, parameters and body.

use std::sync::Arc;

use axum::extract::Request;
use http::{HeaderMap, Method, header};
use parking_lot::Mutex;
use quiver_config::{Caller, ChangeMode, Config, ImportMode, Place, Problem, ProblemKind, Result};
use quiver_ingest::DecodeRoom;
use quiver_types::matcher::Patterns;
use serde_json::{Map, Value};

use super::body_members::only_members;
use crate::body_memory::read_unpacked;
use crate::identity::{Identities, RequestOrigin, caller};
use crate::parsed_bodies;
use crate::state::AppState;

/// Parameters for paging and for the shape of lists, which exports do not have.
pub(super) const NOT_OF_EXPORTS: [&str; 3] = ["limit", "cursor", "count"];
pub(super) const NOT_OF_IMPORTS: [&str; 5] = ["limit", "cursor", "count", "sort", "fields"];

/// Most that the patterns of a request take, compiled, in bytes: as much as all silences may.
const PATTERNS_BYTES_MAX: usize = 64 << 20;

/// Bodies of so many bytes are read at once.
const NEAR_BYTES_MAX: usize = 64 << 10;

/// A parsed request.
pub(crate) struct Ask {
    pub(crate) state: Arc<AppState>,
    pub(crate) config: Config,
    pub(crate) caller: Caller,
    pub(crate) place: Place,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) body: axum::body::Bytes,
    pub(crate) mode: ChangeMode,
    /// The patterns of all silences that the request is about, which stay compiled until it is answered.
    pub(super) patterns: Mutex<Patterns>,
    /// Memory of the parsed body.
    _tree: Option<Arc<dyn DecodeRoom>>,
}

impl Ask {
    /// Parses a request, and checks that its caller may access this place.
    pub(crate) async fn read(state: &Arc<AppState>, place: Place, request: Request, largest: usize) -> Result<Self> {
        if state.identities.is_none() && place.family.domain == quiver_types::Domain::Rbac {
            return Err(no_accounts());
        }
        let (head, body) = request.into_parts();
        let mut caller = caller(&state.identity(), RequestOrigin::current());
        caller.override_managed = head.headers.get("x-override-managed").is_some_and(|v| v.as_bytes() == b"true");
        may_come(&place, &caller, &head.method)?;
        let reads = matches!(head.method, Method::GET | Method::HEAD) || head.uri.path().ends_with("/test");
        if place.family.composes && !reads && state.alertd.router.is_policy_of_file() {
            let text = "the file that `alerting.policy` names gives the policy";
            return Err(Problem::new(ProblemKind::Conflict, "MANAGED_ENTITY", text));
        }
        let query = head.uri.query().unwrap_or_default();
        let mut parameters: Vec<(String, String)> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let given: Vec<&str> =
            parameters.iter().filter(|(key, _)| key == "dryRun").map(|(_, value)| value.as_str()).collect();
        let mode = match given.as_slice() {
            [] | ["false"] => ChangeMode::Apply,
            ["true"] => ChangeMode::DryRun,
            [_] => return Err(Problem::parameter("`dryRun` must be true or false")),
            _ => return Err(Problem::parameter("`dryRun` is given more than once")),
        };
        parameters.retain(|(key, _)| key != "dryRun");
        let body = read_unpacked(&state.capacity.bodies, &head.headers, body, largest).await.map_err(of_body)?;
        let tree = match media_type(&head.headers) {
            kind if kind.ends_with("json") => Some(parsed_bodies::hold(&state.capacity.bodies, &body)),
            kind if kind.ends_with("yaml") => Some(parsed_bodies::hold_yaml(&state.capacity.bodies, &body)),
            _ => None,
        };
        let tree = tree.transpose().map_err(of_body)?;
        let (method, path) = (head.method, head.uri.path().to_owned());
        let (config, state) = (state.config.clone(), Arc::clone(state));
        let headers = head.headers;
        let patterns = Mutex::new(Patterns::within("a request", PATTERNS_BYTES_MAX));
        Ok(Self { state, config, caller, place, method, path, headers, parameters, body, mode, patterns, _tree: tree })
    }

    /// The accounts. An error while access control is off, as there are none.
    pub(crate) fn identities(&self) -> Result<&Arc<Identities>> {
        self.state.identities.as_ref().ok_or_else(no_accounts)
    }

    /// A parameter that may occur only once.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<&str>> {
        let mut found = self.parameters.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = found.next();
        if found.next().is_some() {
            return Err(Problem::parameter(format!("`{name}` is given more than once")));
        }
        Ok(first)
    }

    /// Refuses parameters that an operation does not know.
    pub(crate) fn only_parameters(&self, known: &[&str]) -> Result<()> {
        match self.parameters.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            Some((key, _)) => Err(Problem::parameter(format!("unknown parameter `{key}`"))),
            None => Ok(()),
        }
    }

    /// Refuses parameters of lists that an operation does not know.
    pub(super) fn no_parameters(&self, unknown: &[&str]) -> Result<()> {
        match self.parameters.iter().find(|(key, _)| unknown.contains(&key.as_str())) {
            Some((key, _)) => Err(Problem::parameter(format!("unknown parameter `{key}`"))),
            None => Ok(()),
        }
    }

    /// The body as an object.
    pub(crate) fn object(&self) -> Result<Map<String, Value>> {
        self.only_json()?;
        quiver_config::json::object(&self.body)
    }

    /// Like [`Self::object`], for bodies of many megabytes.
    pub(super) async fn large_object(&self) -> Result<Map<String, Value>> {
        self.only_json()?;
        let body = self.body.clone();
        apart(self.body.len(), move || quiver_config::json::object(&body)).await
    }

    fn only_json(&self) -> Result<()> {
        let kind = self.media_type();
        let patch = self.method == Method::PATCH && kind == "application/merge-patch+json";
        if kind != "application/json" && !patch {
            let text = "send `application/json`";
            return Err(Problem::new(ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", text));
        }
        Ok(())
    }

    pub(super) fn media_type(&self) -> String {
        media_type(&self.headers)
    }

    /// The version to restore.
    pub(super) fn version(&self) -> Result<i64> {
        let body = self.object()?;
        only_members(&body, &["version"])?;
        match body.get("version") {
            None | Some(Value::Null) => Err(Problem::field("/version", "REQUIRED", "is required")),
            Some(value) => value
                .as_i64()
                .ok_or_else(|| Problem::field("/version", "INVALID_TYPE", "must be the number of a version")),
        }
    }

    pub(super) fn import_mode(&self) -> Result<ImportMode> {
        let mode = match self.parameter("mode")?.unwrap_or("upsert") {
            "upsert" => ImportMode::Upsert,
            "create" => ImportMode::Create,
            "replace" => return Ok(ImportMode::Replace),
            _ => return Err(Problem::parameter("`mode` must be upsert, create or replace")),
        };
        match self.parameters.iter().find(|(key, _)| key != "mode") {
            Some((key, _)) => {
                Err(Problem::parameter(format!("`{key}` goes with `mode=replace`: it says what may be deleted")))
            }
            None => Ok(mode),
        }
    }
}

/// Reads texts of so many bytes, away from the threads that serve sockets if they are many: megabytes take a second.
///
/// # Errors
/// Those of reading.
pub(super) async fn apart<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if bytes <= NEAR_BYTES_MAX {
        return read();
    }
    tokio::task::spawn_blocking(read).await.map_err(Problem::internal)?
}

fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn no_accounts() -> Problem {
    Problem::new(ProblemKind::NotFound, "NOT_FOUND", "access control is off, so there are no accounts")
}

/// Converts an error from reading the body.
pub(crate) fn of_body(error: quiver_types::Error) -> Problem {
    let (kind, code) = match error.kind {
        quiver_types::ErrorKind::TooLarge => (ProblemKind::TooLarge, "BODY_TOO_LARGE"),
        quiver_types::ErrorKind::Unavailable => (ProblemKind::Busy, "STORE_BUSY"),
        quiver_types::ErrorKind::Unsupported => (ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE"),
        quiver_types::ErrorKind::SenderTimeout => (ProblemKind::SenderTimeout, "TIMEOUT"),
        _ => (ProblemKind::Malformed, "MALFORMED_JSON"),
    };
    Problem::new(kind, code, error.message)
}

/// Accounts may read and write their own keys without a right. Everything else was checked by the table of rights.
fn may_come(place: &Place, caller: &Caller, method: &Method) -> Result<()> {
    let Some(owner) = place.owner.rsplit_once('/') else { return Ok(()) };
    if caller.account() == Some(owner) {
        return Ok(());
    }
    let right = if method.is_safe() { quiver_types::Right::View } else { place.family.write };
    let needed = quiver_types::Triple::everywhere(right, place.family.domain);
    if caller.rights.covers(&needed) { Ok(()) } else { Err(Problem::forbidden(&needed.to_string())) }
}

#[cfg(test)]
mod tests {
    use quiver_config::families::{KEYS, ROLES, RULES, SILENCES, USERS};
    use quiver_types::{Error, ErrorKind, Triple};
    use serde_json::json;

    use super::super::response::Answer;
    use super::*;

    #[test]
    fn bodies_that_cannot_be_read() {
        for (kind, status, code) in [
            (ErrorKind::TooLarge, 413, "BODY_TOO_LARGE"),
            (ErrorKind::Unavailable, 503, "STORE_BUSY"),
            (ErrorKind::Unsupported, 415, "UNSUPPORTED_MEDIA_TYPE"),
            (ErrorKind::Invalid, 400, "MALFORMED_JSON"),
            (ErrorKind::SenderTimeout, 408, "TIMEOUT"),
        ] {
            let answer = Answer::of_problem(&of_body(Error::new(kind, "what is said")));
            assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{kind:?}");
            assert_eq!(answer.body["detail"], "what is said", "{kind:?}");
        }
    }

    #[tokio::test]
    async fn large_bodies_keep_no_socket_waiting() {
        let here = std::thread::current().id();
        let at = || Ok(std::thread::current().id());
        assert_eq!(apart(NEAR_BYTES_MAX, at).await.unwrap(), here);
        assert_ne!(apart(NEAR_BYTES_MAX + 1, at).await.unwrap(), here);
        let refused = apart(NEAR_BYTES_MAX + 1, || quiver_config::json::object(b"[]")).await.unwrap_err();
        assert_eq!(refused.errors[0].code, "INVALID_TYPE");
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
        // An id belongs to one kind of accounts only.
        check("rbac/service-accounts/me", &me, Method::GET, Some(sees));
        let program = caller_with("serviceAccount:me", &[]);
        check("rbac/service-accounts/me", &program, Method::POST, None);
        check("rbac/users/me", &program, Method::POST, Some(writes));
        // Rights in other domains, or for single services, do not suffice.
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
}
