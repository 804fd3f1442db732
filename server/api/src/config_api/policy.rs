//! Operations of the policy beyond the contract (`config-api` 2.6): globals, the tree of routes, and whole
//! configurations.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use http::Method;
use quiver_alertd::policy::undelivered;
use quiver_alerting::config::{Config as Read, config_json};
use quiver_alerting::inhibition::InhibitRule;
use quiver_alerting::matchers::{Matchers, show};
use quiver_alerting::routes::RouteConfig;
use quiver_config::families::{
    EMPTY_RECEIVER, GLOBAL_ID, INHIBIT_RULES, POLICY_GLOBAL, RECEIVERS, ROOT_ROUTE_ID, ROUTES, TIME_INTERVALS,
};
use quiver_config::json::text;
use quiver_config::{
    Area, AuditEvent, Caller, ChangeMode, ComponentEntity, Condition, Config, Entity, Family, FieldError, Op, Place,
    Problem, ProblemKind, Release, Result, System,
};
use quiver_types::time::duration;
use quiver_types::{Domain, Right, Triple};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::bulk::all_ids_in;
use super::deploy::{ChangeReporter, EntityOutcome, flag, manager, outcome, refused, with_lines};
use super::joint_changes::{entities_after, moved_to_places};
use super::operation::{IMPORT_BYTES_MAX, special_at, special_of};
use super::request::Ask;
use super::response::Answer;
use crate::alerting::policy::receiver_results;
use crate::alerting::stored_policy::{OPTIONS, PolicyVersion, Secrets, children, composed, export, parts};
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let own = |path: &str| format!("/rulesapi/rulepolicy/{path}");
    let one = MethodFilter::GET.or(MethodFilter::PUT).or(MethodFilter::PATCH);
    let (get, post, put) = (MethodFilter::GET, MethodFilter::POST, MethodFilter::PUT);
    Router::new()
        .route(&own("global"), special_at(&POLICY_GLOBAL, one, global))
        .route(&own("routes/tree"), special_at(&ROUTES, get, tree))
        .route(&own("routes/order"), special_at(&ROUTES, put, order))
        .route(&own("routes/{id}/move"), special_at(&ROUTES, post, move_route))
        .route(&own("receivers/{id}/test"), special_at(&RECEIVERS, post, test))
        .route(&own("deploy"), special_of(&ROUTES, get.or(post), IMPORT_BYTES_MAX, deploy))
}

/// The revision number of the live policy.
pub(super) fn live(ask: &Ask) -> u64 {
    ask.state.alertd.revisions.all().first().map_or(0, |newest| newest.number)
}

/// Globals as they are shown: the configured ones next to fields of the service.
fn shown_global(entity: &Entity) -> Value {
    let mut map = entity.shown();
    if let Some(Value::Object(options)) = map.remove(OPTIONS) {
        map.extend(options);
    }
    map.entry("resolve_timeout").or_insert_with(|| json!("5m"));
    Value::Object(map)
}

fn global<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        if matches!(ask.method, Method::GET | Method::HEAD) {
            let entity = ask.config.get(&ask.place, GLOBAL_ID, &ask.caller).await?;
            return Ok(Answer { etag: Some(entity.etag()), ..Answer::ok(shown_global(&entity)) });
        }
        let present = ask.config.get(&ask.place, GLOBAL_ID, &ask.caller).await?;
        let (mut body, mut options) = (Map::new(), Map::new());
        for (key, value) in ask.object()? {
            let is_own = POLICY_GLOBAL.all_fields().any(|f| f.name == key && key != OPTIONS);
            if is_own || quiver_config::KEPT.contains(&key.as_str()) {
                body.insert(key, value);
            } else {
                options.insert(key, value);
            }
        }
        body.insert(OPTIONS.to_owned(), Value::Object(options));
        let (id, condition) = (GLOBAL_ID.to_owned(), ask.condition());
        let op = if ask.method == Method::PATCH {
            Op::Patch { id, patch: body, condition }
        } else {
            // Fields that only a deployed configuration sets are kept.
            body.entry("template_files").or_insert_with(|| present.body["template_files"].clone());
            Op::Replace { id, body, condition }
        };
        let done = ask.change(op, System::default()).await?;
        let entity = done.after.as_ref().ok_or_else(|| Problem::internal("globals are gone"))?;
        Ok(Answer { etag: Some(entity.etag()), ..Answer::ok(shown_global(entity)) })
    })
}

/// Options that a route inherits from its parent.
const INHERITED: [&str; 5] = ["receiver", "group_by", "group_wait", "group_interval", "repeat_interval"];

fn branch(
    part: &ComponentEntity,
    above: &Map<String, Value>,
    below: &BTreeMap<&str, Vec<&ComponentEntity>>,
    shown: &BTreeMap<String, Map<String, Value>>,
) -> Value {
    let mut effective = above.clone();
    for name in INHERITED {
        effective.extend(part.body.get(name).filter(|v| !v.is_null()).map(|v| (name.to_owned(), v.clone())));
    }
    let mut labels = effective.remove("labels").unwrap_or_else(|| json!({}));
    if let (Some(all), Some(own)) = (labels.as_object_mut(), part.body.get("labels").and_then(Value::as_object)) {
        all.extend(own.clone());
    }
    effective.insert("labels".to_owned(), labels);
    let mut out = shown.get(&part.id).cloned().unwrap_or_default();
    let siblings = below.get(part.id.as_str()).map(Vec::as_slice).unwrap_or_default();
    let routes: Vec<Value> = siblings.iter().map(|child| branch(child, &effective, below, shown)).collect();
    out.insert("effective".to_owned(), Value::Object(effective));
    out.insert("routes".to_owned(), Value::Array(routes));
    Value::Object(out)
}

fn tree_of(config: &Config, all: &[Entity]) -> Result<Value> {
    let shown: BTreeMap<String, Map<String, Value>> = all.iter().map(|e| (e.id.clone(), e.shown())).collect();
    let parts: Vec<ComponentEntity> = all.iter().map(|entity| config.part(&ROUTES, entity)).collect();
    let root = parts.iter().find(|p| p.id == ROOT_ROUTE_ID).ok_or_else(|| Problem::internal("the root is gone"))?;
    let defaults = json!({"group_by": [], "group_wait": "30s", "group_interval": "5m", "repeat_interval": "4h"});
    let Value::Object(defaults) = defaults else { return Ok(Value::Null) };
    Ok(branch(root, &defaults, &children(&parts), &shown))
}

fn tree<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        Ok(Answer::ok(tree_of(&ask.config, &ask.config.all(&ROUTES).await?)?))
    })
}

/// Changes that put siblings in this order below a parent.
fn placed(parent: &str, ids: &[String]) -> Vec<(Place, Op)> {
    let op = |(n, id): (usize, &String)| {
        let patch = [("parentId".to_owned(), json!(parent)), ("position".to_owned(), json!(n))];
        Op::Patch { id: id.clone(), patch: patch.into_iter().collect(), condition: Condition::None }
    };
    ids.iter().enumerate().map(|one| (Place::of(&ROUTES), op(one))).collect()
}

async fn siblings(config: &Config, parent: &str) -> Result<Vec<String>> {
    let parts: Vec<ComponentEntity> =
        config.all(&ROUTES).await?.iter().map(|entity| config.part(&ROUTES, entity)).collect();
    if !parts.iter().any(|p| p.id == parent) {
        return Err(Problem::field("/parentId", "UNKNOWN_REFERENCE", format!("there is no route `{parent}`")));
    }
    Ok(children(&parts).remove(parent).unwrap_or_default().iter().map(|p| p.id.clone()).collect())
}

async fn change_all(ask: &Ask, ops: Vec<(Place, Op)>) -> Result<Answer> {
    let done = ask.config.change_all(&ask.caller, ops, ask.mode).await?;
    let mut all = ask.config.all(&ROUTES).await?;
    if ask.mode.is_dry_run() {
        all = entities_after(all, done);
    } else {
        ask.acts().await;
    }
    Ok(Answer::ok(tree_of(&ask.config, &all)?))
}

fn order<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["parentId", "ids"])?;
        let parent = Some(text(&body, "parentId")).filter(|id| !id.is_empty()).unwrap_or(ROOT_ROUTE_ID);
        let wanted = all_ids_in(&body, "ids")?;
        let (mut present, mut asked) = (siblings(&ask.config, parent).await?, wanted.clone());
        present.sort_unstable();
        asked.sort_unstable();
        if present != asked {
            return Err(Problem::field("/ids", "INVALID_VALUE", "must be exactly the routes below this parent"));
        }
        change_all(ask, placed(parent, &wanted)).await
    })
}

fn move_route<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["parentId", "before", "after", "position"])?;
        let id = &ids[0];
        let route = ask.config.get(&ask.place, id, &ask.caller).await?;
        if *id == ROOT_ROUTE_ID {
            return Err(Problem::new(ProblemKind::Conflict, "MANAGED_ENTITY", "the root stays where it is"));
        }
        let own = text(&route.body, "parentId").to_owned();
        let parent = Some(text(&body, "parentId")).filter(|p| !p.is_empty()).map_or(own, str::to_owned);
        let mut row = siblings(&ask.config, &parent).await?;
        row.retain(|other| other != id);
        let places: Vec<&str> = ["before", "after", "position"].into_iter().filter(|k| body.contains_key(*k)).collect();
        let at = match places.as_slice() {
            [] => row.len(),
            ["position"] => {
                let n = body["position"].as_u64().and_then(|n| usize::try_from(n).ok());
                let n =
                    n.ok_or_else(|| Problem::field("/position", "INVALID_TYPE", "must be a whole number from 0"))?;
                n.min(row.len())
            }
            [beside] => {
                let found = row.iter().position(|other| other == text(&body, beside));
                let why = "there is no such route below this parent";
                let found = found.ok_or_else(|| Problem::field(format!("/{beside}"), "UNKNOWN_REFERENCE", why))?;
                found + usize::from(*beside == "after")
            }
            _ => return Err(Problem::field("", "INVALID_VALUE", "one of `before`, `after`, `position` is enough")),
        };
        row.insert(at, id.clone());
        change_all(ask, placed(&parent, &row)).await
    })
}

/// Deletes a route together with its children, or (`children=lift`) replaces it by them.
pub(super) async fn delete_route(ask: &Ask, id: &str) -> Result<Answer> {
    ask.only_parameters(&["children"])?;
    match ask.parameter("children")? {
        None | Some("delete") => return ask.delete(id).await,
        Some("lift") => {}
        Some(_) => return Err(Problem::parameter("`children` must be delete or lift")),
    }
    let route = ask.config.get(&ask.place, id, &ask.caller).await?;
    let parent = text(&route.body, "parentId");
    if parent.is_empty() {
        return Err(Problem::new(ProblemKind::Conflict, "MANAGED_ENTITY", "the root cannot be deleted"));
    }
    let lifted = siblings(&ask.config, id).await?;
    let row = siblings(&ask.config, parent).await?;
    let row: Vec<String> =
        row.into_iter().flat_map(|other| if other == id { lifted.clone() } else { vec![other] }).collect();
    let mut ops = placed(parent, &row);
    ops.push((Place::of(&ROUTES), Op::Delete { id: id.to_owned(), condition: ask.condition() }));
    change_all(ask, ops).await?;
    Ok(Answer::nothing())
}

fn test<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = if ask.body.is_empty() { Map::new() } else { ask.object()? };
        only_members(&body, &["alerts"])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let part = ask.config.part(&RECEIVERS, &entity);
        let known = |f: &&str| part.body.get(*f).and_then(Value::as_array).is_some_and(|a| !a.is_empty());
        let mut receiver: Map<String, Value> = RECEIVERS
            .fields
            .iter()
            .map(|f| f.name)
            .filter(known)
            .map(|name| (name.to_owned(), part.body[name].clone()))
            .collect();
        receiver.insert("name".to_owned(), part.body["name"].clone());
        let receiver = Value::Object(receiver);
        Ok(Answer::ok(receiver_results(&ask.state, &receiver, body.get("alerts"), ask.mode).await?))
    })
}

fn deploy<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["action", "source", "allowUnsupported", "secrets"])?;
        match (ask.parameter("action")?, &ask.method) {
            (None | Some("export"), &Method::GET | &Method::HEAD) | (Some("export"), _) => {
                let with_secrets = flag(ask, "secrets")?;
                let admin = Triple::everywhere(Right::Admin, Domain::Alerting);
                if with_secrets && !ask.caller.rights.covers(&admin) {
                    return Err(Problem::forbidden("{admin, alerting, *}"));
                }
                let secrets = if with_secrets { Secrets::Shown } else { Secrets::Masked };
                let yaml = export(&ask.config, PolicyVersion::Saved, secrets).await?;
                if with_secrets && ask.method != Method::HEAD {
                    let event = AuditEvent {
                        action: "EXPORT_SECRETS",
                        family: "query",
                        entity_id: None,
                        entity_name: Some(format!("{} {}", ask.method, ask.path)),
                        outcome: "ok",
                        code: None,
                    };
                    ask.config.audit(&ask.caller, event).await;
                }
                Ok(Answer { yaml: Some(yaml), ..Answer::ok(Value::Null) })
            }
            (Some(_), &Method::GET | &Method::HEAD) => {
                Err(Problem::parameter("GET exports; send POST for another `action`"))
            }
            (None | Some("apply"), _) => apply(ask, ask.mode).await,
            (Some("validate" | "diff"), _) => apply(ask, ChangeMode::DryRun).await,
            (Some(_), _) => Err(Problem::parameter("`action` must be apply, validate, diff or export")),
        }
    })
}

async fn apply(ask: &Ask, mode: ChangeMode) -> Result<Answer> {
    let (manager, allows) = (manager(ask)?, flag(ask, "allowUnsupported")?);
    let given = std::str::from_utf8(&ask.body)
        .map_err(|_| Problem::new(ProblemKind::Malformed, "MALFORMED_YAML", "the body is not UTF-8"))?;
    let how: ChangeReporter = (|_| true, shown_change);
    let is_saved = given.trim().is_empty();
    // An empty body deploys what is saved.
    let saved = if is_saved { composed(&parts(&ask.config, PolicyVersion::Saved).await?) } else { String::new() };
    let given = if is_saved { saved.as_str() } else { given };
    // What is saved is no text of the caller's.
    let in_text = |problem: Problem| if is_saved { problem } else { with_lines(problem, given) };
    let read = Read::load(given).map_err(|problems| refused(&problems, &[]))?;
    let unsupported = undelivered(&read);
    if !unsupported.is_empty() && !allows {
        let error = |text: String| FieldError::new("/receivers", "UNSUPPORTED", text);
        return Err(in_text(Problem::invalid(unsupported.into_iter().map(error).collect())));
    }
    let value = config_json(given).unwrap_or_default();
    let ops = if is_saved {
        Vec::new()
    } else {
        let present = parts(&ask.config, PolicyVersion::Saved).await?;
        plan(&read, &value, &present, &|| ask.config.new_id())?
    };
    let places = places(&ops, &value, &read.route);
    let caller = Caller { manager, override_managed: true, ..ask.caller.clone() };
    let release = Release { area: Area::Policy, action: "DEPLOY", covers: &|_, _| true };
    let done = ask.config.deploy(&caller, ops, &release, mode).await;
    let done = done.map_err(|problem| in_text(moved_to_places(problem, &places)))?;
    if !mode.is_dry_run() {
        ask.acts().await;
    }
    let warnings: Vec<String> = read.warnings.into_iter().chain(unsupported).collect();
    Ok(Answer::ok(outcome(Some(live(ask)), mode, &done, &warnings, how)))
}

/// The place of each change in a configuration; for a deletion, the place of its list.
fn places(ops: &[(Place, Op)], value: &Value, route: &RouteConfig) -> Vec<String> {
    let mut routes = Vec::new();
    route_places(route, "/route".to_owned(), &mut routes);
    let (mut routes, mut rules) = (routes.into_iter(), 0_usize..);
    let named = |key: &str, name: &str| {
        let at = value.get(key).and_then(Value::as_array)?.iter().position(|item| item["name"] == name)?;
        Some(format!("/{key}/{at}"))
    };
    let place = |(place, op): &(Place, Op)| match op {
        Op::Create { body, .. } | Op::Replace { body, .. } => {
            let name = text(body, "name");
            match place.family.name {
                n if n == ROUTES.name => routes.next(),
                n if n == INHIBIT_RULES.name => rules.next().map(|at| format!("/inhibit_rules/{at}")),
                n if n == RECEIVERS.name => named("receivers", name),
                _ => named("time_intervals", name).or_else(|| named("mute_time_intervals", name)),
            }
        }
        Op::Patch { .. } => Some("/global".to_owned()),
        _ => None,
    };
    ops.iter().map(place).map(Option::unwrap_or_default).collect()
}

/// Collects the places of a route and its descendants, in the order in which changes are made.
fn route_places(route: &RouteConfig, at: String, out: &mut Vec<String>) {
    let below: Vec<String> = (0..route.routes.len()).map(|n| format!("{at}/routes/{n}")).collect();
    out.push(at);
    route.routes.iter().zip(below).for_each(|(child, at)| route_places(child, at, out));
}

pub(super) fn shown_change(told: &EntityOutcome<'_>) -> Value {
    let body = &told.entity.body;
    let name = ["name", "receiver"].iter().map(|k| text(body, k)).find(|n| !n.is_empty());
    json!({"op": told.op, "id": told.entity.id, "name": name, "diff": told.diff})
}

/// Changes with their places.
type PlacedOps = Vec<(Place, Op)>;

/// The present entities of a family, and the changes of them.
pub(super) struct Row<'p> {
    family: &'static Family,
    left: Vec<&'p ComponentEntity>,
    ops: Vec<(Place, Op)>,
}

impl<'p> Row<'p> {
    pub(super) fn new(family: &'static Family, present: &'p [ComponentEntity]) -> Self {
        Self { family, left: present.iter().filter(|p| p.family == family.name).collect(), ops: Vec::new() }
    }

    /// Replaces the present entity that `same` finds, or else creates a new one.
    pub(super) fn put(&mut self, mut body: Map<String, Value>, same: impl Fn(&ComponentEntity) -> bool) {
        let place = Place::of(self.family);
        let op = match self.left.iter().position(|p| same(p)) {
            Some(at) => {
                let known = self.left.remove(at);
                // A configuration has no descriptions, so the present one is kept.
                body.extend(known.body.get("description").map(|d| ("description".to_owned(), d.clone())));
                Op::Replace { id: known.id.clone(), body, condition: Condition::None }
            }
            None => Op::Create { id: None, body },
        };
        self.ops.push((place, op));
    }

    /// Deletes the entities that were not matched. Returns the other changes and the deletions.
    pub(super) fn gone(self) -> (PlacedOps, PlacedOps) {
        let family = self.family;
        let gone =
            self.left.iter().map(|p| (Place::of(family), Op::Delete { id: p.id.clone(), condition: Condition::None }));
        (self.ops, gone.collect())
    }
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn matchers(found: &Matchers) -> Value {
    found.iter().map(|matcher| json!(show(matcher))).collect()
}

/// The changes that turn the policy into a given configuration; `value` is the same as JSON.
pub(super) fn plan(
    read: &Read,
    value: &Value,
    present: &[ComponentEntity],
    new_id: &dyn Fn() -> String,
) -> Result<Vec<(Place, Op)>> {
    let mut ops = Vec::new();
    let items = |key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let global = json!({OPTIONS: object(value.get("global")), "template_files": read.templates});
    ops.push((
        Place::of(&POLICY_GLOBAL),
        Op::Patch {
            id: GLOBAL_ID.to_owned(),
            patch: replaced(object(Some(&global)), present),
            condition: Condition::None,
        },
    ));
    let mut receivers = Row::new(&RECEIVERS, present);
    receivers.left.retain(|p| text(&p.body, "name") != EMPTY_RECEIVER);
    for receiver in items("receivers") {
        let receiver = object(Some(&receiver));
        let name = text(&receiver, "name").to_owned();
        if name == EMPTY_RECEIVER {
            // It is built in, and notifies nobody.
            if receiver.len() > 1 {
                let why = "the receiver `empty` is built in and tells nobody";
                return Err(Problem::field("/receivers", "MANAGED_ENTITY", why));
            }
            continue;
        }
        receivers.put(receiver, |p| text(&p.body, "name") == name);
    }
    let mut intervals = Row::new(&TIME_INTERVALS, present);
    for interval in items("time_intervals").into_iter().chain(items("mute_time_intervals")) {
        let interval = object(Some(&interval));
        let name = text(&interval, "name").to_owned();
        intervals.put(interval, |p| text(&p.body, "name") == name);
    }
    let mut inhibit = Row::new(&INHIBIT_RULES, present);
    for rule in &read.inhibit_rules {
        // An equal rule is kept, whatever its position.
        let body = inhibiting(rule);
        let same = body.clone();
        inhibit.put(body, |p| same.iter().all(|(key, value)| p.body.get(key) == Some(value)));
    }
    let below = children(present);
    let mut gone = Vec::new();
    for row in [receivers, intervals, inhibit] {
        let (put, lacking) = row.gone();
        ops.extend(put);
        gone.extend(lacking);
    }
    route_ops(&read.route, (ROOT_ROUTE_ID.to_owned(), None, 0, true), (&below, new_id), &mut ops);
    ops.extend(gone);
    Ok(ops)
}

/// A patch that also removes the globals missing in the configuration.
fn replaced(mut patch: Map<String, Value>, present: &[ComponentEntity]) -> Map<String, Value> {
    let known = present.iter().find(|p| p.family == POLICY_GLOBAL.name).and_then(|p| p.body.get(OPTIONS));
    if let (Some(Value::Object(known)), Some(Value::Object(own))) = (known, patch.get_mut(OPTIONS)) {
        for key in known.keys() {
            own.entry(key.as_str()).or_insert(Value::Null);
        }
    }
    patch
}

fn inhibiting(rule: &InhibitRule) -> Map<String, Value> {
    let body = json!({
        "source_matchers": matchers(&rule.source), "target_matchers": matchers(&rule.target), "equal": rule.equal,
        "name": Some(&rule.name).filter(|name| !name.is_empty()),
    });
    object(Some(&body))
}

fn route_body(route: &RouteConfig, parent: Option<&str>, position: usize) -> Map<String, Value> {
    let time = |ms: Option<i64>| ms.map(duration::format);
    let by = if route.group_by_all { Some(vec!["...".to_owned()]) } else { route.group_by.clone() };
    let body = json!({
        "parentId": parent, "position": position, "receiver": route.receiver, "matchers": matchers(&route.matchers),
        "group_by": by, "group_wait": time(route.group_wait_ms), "group_interval": time(route.group_interval_ms),
        "repeat_interval": time(route.repeat_interval_ms), "continue": route.continues,
        "mute_time_intervals": route.mute_time_intervals, "active_time_intervals": route.active_time_intervals,
        "labels": route.labels,
    });
    object(Some(&body))
}

/// Turns a route and its descendants into the wanted ones; each replaces the present route at the same position.
fn route_ops(
    route: &RouteConfig,
    (id, parent, position, known): (String, Option<&str>, usize, bool),
    (below, new_id): (&BTreeMap<&str, Vec<&ComponentEntity>>, &dyn Fn() -> String),
    ops: &mut Vec<(Place, Op)>,
) {
    let body = route_body(route, parent, position);
    let op = if known {
        Op::Replace { id: id.clone(), body, condition: Condition::None }
    } else {
        Op::Create { id: Some(id.clone()), body }
    };
    ops.push((Place::of(&ROUTES), op));
    let there = if known { below.get(id.as_str()).map(Vec::as_slice).unwrap_or_default() } else { &[] };
    for (n, child) in route.routes.iter().enumerate() {
        let (own, is_known) = match there.get(n) {
            Some(part) => (part.id.clone(), true),
            None => (new_id(), false),
        };
        route_ops(child, (own, Some(&id), n, is_known), (below, new_id), ops);
    }
    for part in there.iter().skip(route.routes.len()) {
        ops.push((Place::of(&ROUTES), Op::Delete { id: part.id.clone(), condition: Condition::None }));
    }
}

#[cfg(test)]
mod tests;
