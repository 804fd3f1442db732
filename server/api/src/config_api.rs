//! Configuration over HTTP: one set of handlers for every family (`config-api` section 1). What a family does beyond it
//! stands in a module of its own.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, on, post, put};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, header};
use quiver_config::families::{FAMILIES, ROUTES};
use quiver_config::{
    Caller, Condition, Config, Done, Family, ImportMode, ListQuery, Op, Place, Problem, ProblemKind, Result, System,
};
use serde_json::{Map, Value, json};

use crate::bodies::read_unpacked;
use crate::identity::{Identities, caller};
use crate::state::AppState;

mod answer;
mod apdex;
mod apply;
mod csv;
mod deploy;
mod detection;
mod extraction;
mod ids;
mod many;
mod old_matchers;
mod policy;
mod policy_revisions;
mod processes;
mod refusals;
mod resource_summary;
mod resources;
mod rule_export;
mod rule_groups;
mod rules;
mod segments;
mod settings;
mod silence_form;
pub(crate) mod silences;
mod silences_many;
pub(crate) mod special;
mod steps;
mod telemetry;
mod transactions;
mod warned;
mod window;
mod yaml;

pub(crate) use answer::Answer;
pub(crate) use deploy::refused;
pub(crate) use detection::only_members;
pub(crate) use ids::{Ids, is_dry_run, no_parameters};
pub(crate) use yaml::write as yaml_text;

use refusals::{Write, to_its_end, told};

/// Largest body, and that of an import.
const BODY_BYTES_MAX: usize = 4 << 20;
const IMPORT_BYTES_MAX: usize = 16 << 20;

/// Parameters of lists that make no sense where there are no pages, and those that say how a list looks.
const NOT_OF_EXPORTS: [&str; 3] = ["limit", "cursor", "count"];
const NOT_OF_IMPORTS: [&str; 5] = ["limit", "cursor", "count", "sort", "fields"];

/// Routes of all families.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let mut router = Router::new();
    for family in FAMILIES.iter().copied().filter(|family| !family.own_paths) {
        if family.owners.is_empty() {
            router = router.merge(of_family(family, family.path.to_owned(), None));
        }
        for owner in family.owners {
            // Both kinds of owners have keys; the path says which.
            let path = family.path.replace("{owner}", &format!("{}/{{id}}", owner.trim_start_matches("rbac/")));
            router = router.merge(of_family(family, path, Some(owner)));
        }
    }
    for routes in [
        detection::routes,
        apply::routes,
        transactions::routes,
        processes::routes,
        steps::routes,
        apdex::routes,
        segments::routes,
        extraction::routes,
        resources::routes,
        rules::routes,
        rule_groups::routes,
        deploy::routes,
        policy::routes,
        policy_revisions::routes,
        settings::routes,
        silences::routes,
    ] {
        router = router.merge(routes());
    }
    router
}

/// Something that a family does beyond the contract: it gets the ids of the path, in order.
pub(crate) type Run = for<'a> fn(&'a Ask, &'a [String]) -> BoxFuture<'a, Result<Answer>>;

/// A route of a special operation: by these methods.
fn special_at(family: &'static Family, methods: MethodFilter, run: Run) -> Routes {
    special_of(family, methods, BODY_BYTES_MAX, run)
}

/// The same with a body of so many bytes.
pub(crate) fn special_of(family: &'static Family, methods: MethodFilter, largest: usize, run: Run) -> Routes {
    let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| {
        serve_special(state, family, ids, run, largest, request)
    };
    on(methods, handler).fallback(not_allowed)
}

async fn serve_special(
    state: Arc<AppState>,
    family: &'static Family,
    ids: Vec<(String, String)>,
    run: Run,
    largest: usize,
    request: Request,
) -> Response {
    let id = if let [(_, id)] = &ids[..] { id.as_str() } else { "" };
    let write = refusals::special(family, request.method(), request.uri().path())
        .and_then(|action| Write::of(&state, family, action, id, request.method(), request.uri().query()));
    let ask = match Ask::read(&state, Place::of(family), request, largest).await {
        Ok(ask) => ask,
        Err(problem) => return told(&state.config, write.as_ref(), problem).await.into_response(None),
    };
    let ids: Vec<String> = ids.into_iter().map(|(_, id)| id).collect();
    let dry_run = ask.dry_run;
    let named = ask.is_named();
    let answer = Box::pin(async move { ask.answered(write.as_ref(), run(&ask, &ids)).await });
    let answer = to_its_end(named, answer).await;
    with_dry_run(answer.into_response(state.shown_revision()), dry_run)
}

pub(crate) fn with_dry_run(mut response: Response, dry_run: bool) -> Response {
    if dry_run {
        response.headers_mut().insert("x-dry-run", http::HeaderValue::from_static("true"));
    }
    response
}

/// A method that a route does not know; the router adds those that it does.
async fn not_allowed() -> Response {
    let text = "this method is not used here";
    Answer::of_problem(&Problem::new(ProblemKind::Malformed, "METHOD_NOT_ALLOWED", text)).into_response(None)
}

pub(crate) type Routes = MethodRouter<Arc<AppState>>;

fn of_family(family: &'static Family, path: String, owner: Option<&'static str>) -> Router<Arc<AppState>> {
    // Below an owner its id comes first.
    let one = if owner.is_some() { format!("{path}/{{entity}}") } else { format!("{path}/{{id}}") };
    let at = move |what: What| -> Routes {
        let handler = move |State(state): State<Arc<AppState>>, Ids(ids): Ids, request: Request| {
            serve(state, family, owner, ids, what, request)
        };
        let routes = match what {
            What::Export | What::History => get(handler),
            What::Collection => get(handler).post(handler).put(handler).patch(handler).delete(handler),
            What::Entity => get(handler).put(handler).patch(handler).delete(handler),
            What::Order => put(handler),
            _ => post(handler),
        };
        routes.fallback(not_allowed)
    };
    let mut router = Router::new();
    if family.is_one_row() {
        router = router.route(&format!("{path}/order"), at(What::Order));
    }
    router
        .route(&path, at(What::Collection))
        .route(&one, at(What::Entity))
        .route(&format!("{one}/history"), at(What::History))
        .route(&format!("{one}/restore"), at(What::Restore))
        .route(&format!("{path}/bulk-delete"), at(What::BulkDelete))
        .route(&format!("{path}/bulk-update"), at(What::BulkUpdate))
        .route(&format!("{path}/export"), at(What::Export))
        .route(&format!("{path}/import"), at(What::Import))
}

/// What of a family is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Collection,
    Entity,
    History,
    Restore,
    BulkDelete,
    BulkUpdate,
    Export,
    Import,
    Order,
}

/// A request, read.
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
    pub(crate) dry_run: bool,
}

async fn serve(
    state: Arc<AppState>,
    family: &'static Family,
    owner: Option<&'static str>,
    mut ids: Vec<(String, String)>,
    what: What,
    request: Request,
) -> Response {
    let place = match owner {
        None => Place::of(family),
        Some(owner) => Place { family, owner: format!("{owner}/{}", ids.remove(0).1) },
    };
    let id = ids.into_iter().next().map(|(_, id)| id).unwrap_or_default();
    let largest = if what == What::Import { IMPORT_BYTES_MAX } else { BODY_BYTES_MAX };
    let action = refusals::action(what, request.method());
    let write = Write::of(&state, family, action, &id, request.method(), request.uri().query());
    let ask = match Ask::read(&state, place, request, largest).await {
        Ok(ask) => ask,
        Err(problem) => return told(&state.config, write.as_ref(), problem).await.into_response(None),
    };
    let dry_run = ask.dry_run;
    let named = ask.is_named();
    let answer = Box::pin(async move { ask.answered(write.as_ref(), Box::pin(ask.run(what, &id))).await });
    let answer = to_its_end(named, answer).await;
    with_dry_run(answer.into_response(state.shown_revision()), dry_run)
}

impl Ask {
    /// Reads a request, and says whether its caller may come to this place.
    pub(crate) async fn read(state: &Arc<AppState>, place: Place, request: Request, largest: usize) -> Result<Self> {
        if state.identities.is_none() && place.family.domain == quiver_types::Domain::Rbac {
            return Err(no_accounts());
        }
        let (head, body) = request.into_parts();
        let mut caller = caller(&state.identity(), refusals::origin());
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
        let dry_run = match given.as_slice() {
            [] | ["false"] => false,
            ["true"] => true,
            [_] => return Err(Problem::parameter("`dryRun` must be true or false")),
            _ => return Err(Problem::parameter("`dryRun` stands twice")),
        };
        parameters.retain(|(key, _)| key != "dryRun");
        let body = read_unpacked(&state.bodies, &head.headers, body, largest).await.map_err(of_body)?;
        let (method, path) = (head.method, head.uri.path().to_owned());
        let (config, state) = (state.config.clone(), Arc::clone(state));
        Ok(Self { state, config, caller, place, method, path, headers: head.headers, parameters, body, dry_run })
    }

    /// Accounts; there are none while access control is off.
    pub(crate) fn identities(&self) -> Result<&Arc<Identities>> {
        self.state.identities.as_ref().ok_or_else(no_accounts)
    }

    /// What changes something takes no parameter that it does not know: a misspelt `dryRun` must not act.
    fn no_unknown_parameters(&self, what: What) -> Result<()> {
        match what {
            What::Collection if self.method.is_safe() => Ok(()),
            What::Entity if self.method.is_safe() => self.only_parameters(&["fields"]),
            What::Collection if self.method == Method::DELETE => self.only_parameters(&["ids"]),
            What::Entity if self.method == Method::DELETE && self.place.family.name == ROUTES.name => {
                self.only_parameters(&["children"])
            }
            What::Export => self.no_parameters(&NOT_OF_EXPORTS),
            What::Import => self.no_parameters(&NOT_OF_IMPORTS),
            _ => self.only_parameters(&[]),
        }
    }

    /// Refuses parameters of lists that an operation does not know.
    fn no_parameters(&self, unknown: &[&str]) -> Result<()> {
        match self.parameters.iter().find(|(key, _)| unknown.contains(&key.as_str())) {
            Some((key, _)) => Err(Problem::parameter(format!("unknown parameter `{key}`"))),
            None => Ok(()),
        }
    }

    async fn run(&self, what: What, id: &str) -> Result<Answer> {
        self.no_unknown_parameters(what)?;
        if self.method.is_safe() {
            self.config.owner_exists(&self.place).await?;
        }
        match (what, self.method.as_str()) {
            (What::Collection, "GET" | "HEAD") => self.list().await,
            (What::Collection, "POST") => self.create().await,
            (What::Collection, "DELETE") => self.delete_by_ids().await,
            (What::Collection, _) => self.put_collection().await,
            (What::Entity, "GET" | "HEAD") => self.entity(id).await,
            (What::Entity, "DELETE") if self.place.family.name == ROUTES.name => policy::delete_route(self, id).await,
            (What::Entity, "DELETE") => self.delete(id).await,
            (What::Entity, "PATCH") => self.patch(id, self.object()?).await,
            (What::Entity, _) => self.replace(id, self.object()?).await,
            (What::History, _) => {
                let history = self.config.history(&self.place, id, &self.caller).await?;
                Ok(Answer::ok(history))
            }
            (What::Restore, _) => self.restore(id).await,
            (What::BulkDelete, _) => self.bulk_delete().await,
            (What::BulkUpdate, _) => self.bulk_update().await,
            (What::Export, _) => self.export().await,
            (What::Import, _) => self.import().await,
            (What::Order, _) => self.order().await,
        }
    }

    /// The body as an object.
    pub(crate) fn object(&self) -> Result<Map<String, Value>> {
        let kind = self.media_type();
        let patch = self.method == Method::PATCH && kind == "application/merge-patch+json";
        if kind != "application/json" && !patch {
            let text = "send `application/json`";
            return Err(Problem::new(ProblemKind::Malformed, "UNSUPPORTED_MEDIA_TYPE", text));
        }
        quiver_config::json::object(&self.body)
    }

    fn media_type(&self) -> String {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
        kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// A parameter that may stand once.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<&str>> {
        let mut found = self.parameters.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = found.next();
        if found.next().is_some() {
            return Err(Problem::parameter(format!("`{name}` stands twice")));
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

    /// What `If-Match` and `If-None-Match` ask for.
    pub(crate) fn condition(&self) -> Condition {
        let wanted = self.wanted();
        if !self.headers.contains_key(header::IF_NONE_MATCH) {
            return wanted;
        }
        if self.none_match().any(|tag| tag == "*") {
            return Condition::Absent;
        }
        let others: Vec<i64> = self.none_match().take(100).filter_map(version_of).collect();
        match wanted {
            Condition::Versions(mut versions) => {
                versions.retain(|version| !others.contains(version));
                Condition::Versions(versions)
            }
            _ => Condition::Others(others),
        }
    }

    /// What `If-Match` asks for, which may name several tags in several lines. Tags that are not ours, and weak ones, match
    /// nothing.
    fn wanted(&self) -> Condition {
        if !self.headers.contains_key(header::IF_MATCH) {
            return Condition::None;
        }
        let mut tags = self.tags(header::IF_MATCH);
        if tags.any(|tag| tag == "*") {
            return Condition::Exists;
        }
        Condition::Versions(self.tags(header::IF_MATCH).filter_map(version_of).collect())
    }

    /// The tags that a header names.
    fn tags(&self, name: header::HeaderName) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|tags| tags.split(',')).map(str::trim)
    }

    /// The tags of `If-None-Match`; weak ones are compared alike, since a proxy may have made them of ours.
    fn none_match(&self) -> impl Iterator<Item = &str> {
        self.tags(header::IF_NONE_MATCH).map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
    }

    /// Whether `If-None-Match` names a tag.
    pub(crate) fn knows(&self, etag: &str) -> bool {
        self.none_match().any(|tag| tag == "*" || tag == etag)
    }

    /// Makes a change, and lets it act before it is answered.
    pub(crate) async fn change(&self, op: Op, system: System) -> Result<Done> {
        let done = match self.config.change(&self.place, &self.caller, op, system, self.dry_run).await {
            Err(problem) if problem.more.contains_key("current") => return Err(self.with_present(problem).await),
            done => done?,
        };
        if !self.dry_run && done.changed {
            self.acts().await;
            special::after(self, &done).await;
        }
        Ok(done)
    }

    /// Puts what is there into a conflict as a read shows it: with what follows from other entities.
    async fn with_present(&self, problem: Problem) -> Problem {
        let id = problem.more["current"]["id"].as_str().unwrap_or_default().to_owned();
        let Ok(present) = self.config.get(&self.place, &id, &self.caller).await else { return problem };
        match self.config.shown(self.place.family, &present).await {
            Ok(shown) => problem.with("current", Value::Object(shown)).with("etag", json!(present.etag())),
            Err(_) => problem,
        }
    }

    /// What changed acts from the next request on.
    pub(crate) async fn acts(&self) {
        if let Some(identities) = &self.state.identities
            && let Err(problem) = identities.refresh().await
        {
            tracing::warn!(cause = problem.cause, "accounts cannot be read after a change; trying again");
        }
        if let Err(problem) = self.state.effects.refresh(&self.config).await {
            tracing::warn!(cause = problem.cause, "rules cannot be read after a change; trying again");
        }
    }

    async fn list(&self) -> Result<Answer> {
        let query = ListQuery::parse(self.place.family, &self.parameters, &[])?;
        let page = self.config.list(&self.place, &query, &self.caller).await?;
        let mut body = json!({"items": null, "nextCursor": page.next_cursor});
        // Not within the macro, which would copy each of them.
        body["items"] = page.items.into_iter().map(Value::Object).collect();
        if let Some(total) = page.total {
            body["total"] = json!(total);
        }
        Ok(Answer::ok(body))
    }

    async fn entity(&self, id: &str) -> Result<Answer> {
        let query = ListQuery::parse(self.place.family, &self.parameters, &[])?;
        let entity = self.config.get(&self.place, id, &self.caller).await?;
        let etag = Some(entity.etag());
        if self.knows(&entity.etag()) {
            return Ok(Answer { status: 304, etag, ..Answer::ok(Value::Null) });
        }
        let shown = self.config.shown(self.place.family, &entity).await?;
        Ok(Answer { etag, ..Answer::ok(Value::Object(query.cut(shown))) })
    }

    async fn create(&self) -> Result<Answer> {
        let made = special::made(self);
        let done = self.change(Op::Create { id: None, body: self.object()? }, made.system).await?;
        self.created(&done, made.shown).await
    }

    async fn created(&self, done: &Done, shown: Vec<(&'static str, String)>) -> Result<Answer> {
        let mut answer = self.present(done, 201).await?;
        if let Value::Object(body) = &mut answer.body {
            let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
            let path = self.path.trim_end_matches('/');
            // A path that names the id may write it in capitals.
            let named = path.rsplit_once('/').filter(|(_, last)| last.eq_ignore_ascii_case(id));
            answer.location = Some(format!("{}/{id}", named.map_or(path, |(base, _)| base)));
            body.extend(shown.into_iter().map(|(key, secret)| (key.to_owned(), json!(secret))));
        }
        Ok(answer)
    }

    /// The entity as it is after a change.
    async fn present(&self, done: &Done, status: u16) -> Result<Answer> {
        let Some(after) = &done.after else { return Ok(Answer { status, ..Answer::ok(Value::Null) }) };
        let shown = self.config.shown(self.place.family, after).await?;
        let warning = warned::of(self, &shown).await;
        Ok(Answer { status, etag: Some(after.etag()), warning, ..Answer::ok(Value::Object(shown)) })
    }

    async fn replace(&self, id: &str, body: Map<String, Value>) -> Result<Answer> {
        if self.headers.get(header::IF_NONE_MATCH).is_some_and(|v| v.as_bytes().trim_ascii() == b"*") {
            let (id, made) = (ids::uuid_of(id)?, special::made(self));
            let done = self.change(Op::Create { id: Some(id), body }, made.system).await?;
            return self.created(&done, made.shown).await;
        }
        let op = Op::Replace { id: id.to_owned(), body, condition: self.condition() };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }

    async fn patch(&self, id: &str, patch: Map<String, Value>) -> Result<Answer> {
        let op = Op::Patch { id: id.to_owned(), patch, condition: self.condition() };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }

    async fn delete(&self, id: &str) -> Result<Answer> {
        let op = Op::Delete { id: id.to_owned(), condition: self.condition() };
        self.change(op, System::default()).await?;
        Ok(Answer { status: 204, ..Answer::ok(Value::Null) })
    }

    async fn restore(&self, id: &str) -> Result<Answer> {
        let op = Op::Restore { id: id.to_owned(), version: self.version()? };
        let done = self.change(op, System::default()).await?;
        self.present(&done, 200).await
    }

    /// The version that is to be brought back.
    pub(crate) fn version(&self) -> Result<i64> {
        let body = self.object()?;
        only_members(&body, &["version"])?;
        match body.get("version") {
            None | Some(Value::Null) => Err(Problem::field("/version", "REQUIRED", "is required")),
            Some(value) => value
                .as_i64()
                .ok_or_else(|| Problem::field("/version", "INVALID_TYPE", "must be the number of a version")),
        }
    }

    fn import_mode(&self) -> Result<ImportMode> {
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

/// The version that a tag of ours names.
fn version_of(tag: &str) -> Option<i64> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    digits.parse().ok().filter(|version: &i64| version.to_string() == digits)
}

fn no_accounts() -> Problem {
    Problem::new(ProblemKind::NotFound, "NOT_FOUND", "access control is off, so there are no accounts")
}

/// Why a body could not be read.
pub(crate) fn of_body(error: quiver_types::Error) -> Problem {
    let (kind, code) = match error.kind {
        quiver_types::ErrorKind::TooLarge => (ProblemKind::TooLarge, "BODY_TOO_LARGE"),
        quiver_types::ErrorKind::Unavailable => (ProblemKind::Busy, "STORE_BUSY"),
        quiver_types::ErrorKind::Unsupported => (ProblemKind::Malformed, "UNSUPPORTED_MEDIA_TYPE"),
        _ => (ProblemKind::Malformed, "MALFORMED_JSON"),
    };
    Problem::new(kind, code, error.message)
}

/// Keys of an account are read and written by itself, too; of all others the table of rights has asked already.
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
mod tests;
