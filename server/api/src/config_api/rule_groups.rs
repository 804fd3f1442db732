//! Groups of rules (`config-api` 2.2). A group exists as soon as a rule names it; its settings become an entity once
//! they differ from the defaults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use http::{Method, header};
use quiver_alerting::options::SECRET;
use quiver_alerting::rules::Language;
use quiver_config::families::{RULE_GROUPS, RULES};
use quiver_config::json::text;
use quiver_config::{Area, ChangeOutcome, Condition, Entity, KEPT, ListQuery, Op, Place, Problem, ProblemKind, Result};
use quiver_types::{Domain, Right, Triple};
use serde_json::{Map, Value, json};

use super::body_members::only_members;
use super::bulk::all_ids_in;
use super::joint_changes::{entities_after, moved_to_places};
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use crate::alerting::rules::group_times;
use crate::alerting::stored_rules::{GROUP_FIELDS, GroupKey, StoredGroup, by_group, is_default};
use crate::state::AppState;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let one = MethodFilter::GET.or(MethodFilter::PUT).or(MethodFilter::PATCH).or(MethodFilter::DELETE);
    Router::new()
        .route("/rulesapi/groups", special_at(&RULE_GROUPS, MethodFilter::GET, list))
        .route("/rulesapi/groups/{namespace}/{name}", special_at(&RULE_GROUPS, one, group))
        .route("/rulesapi/groups/{namespace}/{name}/order", special_at(&RULE_GROUPS, MethodFilter::PUT, order))
}

/// All groups of which the caller may see something, with the rules that it may see.
pub(super) async fn visible_groups(ask: &Ask) -> Result<Vec<(GroupKey, StoredGroup)>> {
    let all = by_group(ask.config.all(&RULE_GROUPS).await?, ask.config.all(&RULES).await?);
    let edits = ask.caller.rights.covers(&Triple::everywhere(Right::Edit, Domain::Alerting));
    let narrowed = all.into_iter().filter_map(|(key, mut stored)| {
        let had_rules = !stored.rules.is_empty();
        stored.rules.retain(|rule| RULES.is_visible(&ask.caller, rule));
        // Only callers who see the headers may write settings, so that no placeholder is ever stored.
        if !edits {
            hide_headers(&mut stored);
        }
        (!stored.rules.is_empty() || !had_rules).then_some((key, stored))
    });
    Ok(narrowed.collect())
}

/// Hides the values of a group's headers, which may be credentials.
fn hide_headers(stored: &mut StoredGroup) {
    let Some(settings) = &mut stored.settings else { return };
    for field in ["headers", "notifier_headers"] {
        let Some(Value::Array(headers)) = settings.body.get_mut(field) else { continue };
        for header in headers {
            let name = header.as_str().and_then(|text| text.split_once(':')).map(|(name, _)| name);
            *header = json!(name.map_or_else(|| SECRET.to_owned(), |name| format!("{name}: {SECRET}")));
        }
    }
}

/// The ETag of a group: from its settings and each visible rule.
fn etag(stored: &StoredGroup) -> String {
    let parts =
        stored.settings.iter().chain(&stored.rules).map(|e| format!("{}.{}", &e.id[e.id.len().min(24)..], e.version));
    format!("\"{:016x}\"", xxhash_rust::xxh3::xxh3_64(parts.collect::<Vec<_>>().join(",").as_bytes()))
}

/// The id of a group. Also for a group without an entity, so that the id stays the same when settings are stored.
fn group_id(key: &GroupKey) -> String {
    let hash = xxhash_rust::xxh3::xxh3_128(format!("{}\u{0}{}", key.0, key.1).as_bytes());
    // A UUID of version 8 (custom).
    let hash = (hash & !((0xf << 76) | (0x3 << 62))) | (0x8 << 76) | (0x2 << 62);
    let text = format!("{hash:032x}");
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// The running groups, if edits wait for a deploy.
type RunningGroups = Option<BTreeMap<GroupKey, StoredGroup>>;

async fn running(ask: &Ask) -> Result<RunningGroups> {
    if !ask.config.is_staged(Area::Rules).await? {
        return Ok(None);
    }
    let mut rules = ask.config.running(&RULES).await?;
    rules.retain(|rule| RULES.is_visible(&ask.caller, rule));
    Ok(Some(by_group(ask.config.running(&RULE_GROUPS).await?, rules)))
}

/// What is waiting for a deploy in a group: the ids of rules, and whether anything is, including deletions.
fn waiting(running: &BTreeMap<GroupKey, StoredGroup>, key: &GroupKey, stored: &StoredGroup) -> (HashSet<String>, bool) {
    let versions = |stored: Option<&StoredGroup>| -> HashMap<String, i64> {
        let all = stored.into_iter().flat_map(|s| s.settings.iter().chain(&s.rules));
        all.map(|e| (e.id.clone(), e.version)).collect()
    };
    let (before, now) = (versions(running.get(key)), versions(Some(stored)));
    let waits = now.iter().filter(|(id, version)| before.get(*id) != Some(version)).map(|(id, _)| id.clone());
    let waits: HashSet<String> = waits.collect();
    let is_gone = before.keys().any(|id| !now.contains_key(id));
    let any = !waits.is_empty() || is_gone;
    (waits, any)
}

fn shown(ask: &Ask, key: &GroupKey, stored: &StoredGroup, running: &RunningGroups) -> Map<String, Value> {
    let mut out = Map::new();
    for field in RULE_GROUPS.all_fields() {
        let default = serde_json::from_str(field.default).unwrap_or(Value::Null);
        out.insert(field.name.to_owned(), default);
    }
    if let Some(settings) = &stored.settings {
        out.extend(settings.shown());
    }
    for (field, default) in [("interval", ask.config.group_interval()), ("query_offset", "0s".to_owned())] {
        if out.get(field).is_none_or(Value::is_null) {
            out.insert(field.to_owned(), json!(default));
        }
    }
    out.entry("id").or_insert_with(|| json!(group_id(key)));
    out.insert("namespace".to_owned(), json!(key.0));
    out.insert("name".to_owned(), json!(key.1));
    let waits = running.as_ref().map(|running| waiting(running, key, stored));
    let rule = |e: &Entity| {
        let mut rule = e.shown();
        rule.extend(["interval", "limit"].map(|field| (field.to_owned(), out[field].clone())));
        rule.extend(waits.as_ref().map(|(ids, _)| ("staged".to_owned(), json!(ids.contains(&e.id)))));
        Value::Object(rule)
    };
    let rules: Value = stored.rules.iter().map(rule).collect();
    out.insert("rules".to_owned(), rules);
    out.extend(waits.as_ref().map(|(_, any)| ("staged".to_owned(), json!(any))));
    out.insert("ruleCount".to_owned(), json!(stored.rules.len()));
    out.extend(group_times(&ask.state, &key.0, &key.1));
    out
}

fn list<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        let query = ListQuery::parse(&RULE_GROUPS, &ask.parameters, &[])?;
        let (rows, running) = (visible_groups(ask).await?, running(ask).await?);
        let row = |(key, stored): &(GroupKey, StoredGroup)| {
            (format!("{}/{}", key.0, key.1), shown(ask, key, stored, &running))
        };
        let rows = rows.iter().map(row);
        let page = query.page(&RULE_GROUPS, rows.collect());
        let mut body = json!({"items": page.items, "nextCursor": page.next_cursor});
        if let Some(total) = page.total {
            body["total"] = json!(total);
        }
        Ok(Answer::ok(body))
    })
}

/// Whether a group without an entity of its settings gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsEntity {
    /// Where they differ from the defaults.
    IfNeeded,
    /// In any case. That can succeed only once, where nobody else may create the group concurrently.
    Always,
}

/// The changes that turn a group into the wanted one. Unchanged rules keep their ids, whatever their order.
pub(super) fn plan(
    key: &GroupKey,
    stored: Option<&StoredGroup>,
    entity: SettingsEntity,
    mut settings: Map<String, Value>,
    rules: Vec<Map<String, Value>>,
) -> Vec<(Place, Op)> {
    let mut ops = Vec::new();
    let language = language_of(&settings);
    settings.insert("namespace".to_owned(), json!(key.0));
    settings.insert("name".to_owned(), json!(key.1));
    let (place, condition) = (|| Place::of(&RULE_GROUPS), Condition::None);
    match stored.and_then(|s| s.settings.as_ref()) {
        Some(known) => ops.push((place(), Op::Replace { id: known.id.clone(), body: settings, condition })),
        None if entity == SettingsEntity::Always || has_own(&settings) => {
            ops.push((place(), Op::Create { id: Some(group_id(key)), body: settings }));
        }
        None => {}
    }
    ops.extend(rule_ops(key, stored, language, rules));
    ops
}

/// The language of rules without one, from the type of their group; `None`: PromQL.
fn language_of(settings: &Map<String, Value>) -> Option<&'static str> {
    Language::parse(text(settings, "type")).filter(|l| *l != Language::Promql).map(Language::as_str)
}

/// The changes that turn the rules of a group into the wanted ones.
fn rule_ops(
    key: &GroupKey,
    stored: Option<&StoredGroup>,
    language: Option<&str>,
    rules: Vec<Map<String, Value>>,
) -> Vec<(Place, Op)> {
    let mut left: Vec<&Entity> = stored.map(|s| s.rules.iter().collect()).unwrap_or_default();
    let mut wanted: Vec<(Option<String>, Map<String, Value>)> = Vec::with_capacity(rules.len());
    for (n, mut rule) in rules.into_iter().enumerate() {
        rule.insert("namespace".to_owned(), json!(key.0));
        rule.insert("group".to_owned(), json!(key.1));
        rule.insert("position".to_owned(), json!(n));
        if let (None | Some(Value::Null), Some(language)) = (rule.get("language"), language) {
            rule.insert("language".to_owned(), json!(language));
        }
        let id = rule.remove("id").and_then(|id| id.as_str().map(str::to_owned));
        let by_id = id.as_ref().and_then(|id| left.iter().position(|e| e.id == *id));
        let known = by_id.or_else(|| same_rule(&left, &rule)).map(|at| left.remove(at).id.clone());
        wanted.push((known, rule));
    }
    let gone = left.into_iter().map(|e| Op::Delete { id: e.id.clone(), condition: Condition::None });
    let put = wanted.into_iter().map(|(known, body)| match known {
        Some(id) => Op::Replace { id, body, condition: Condition::None },
        None => Op::Create { id: None, body },
    });
    gone.chain(put).map(|op| (Place::of(&RULES), op)).collect()
}

/// Whether the settings of a group differ from the defaults. What is no setting counts as a difference, so that the
/// check of the entity refuses it.
fn has_own(settings: &Map<String, Value>) -> bool {
    settings.iter().any(|(field, value)| match field.as_str() {
        // From the path, or maintained by the server.
        "namespace" | "name" => false,
        field if KEPT.contains(&field) => false,
        "concurrency" => !is_default(value) && value.as_i64() != Some(1),
        "description" => !value.is_null() && value != "",
        "type" => !value.is_null() && value != "" && value != "prometheus",
        field => !is_default(value) || !GROUP_FIELDS.contains(&field),
    })
}

/// Finds the stored rule that a rule replaces: one with the same name, expression, language and labels, or else with
/// the same name.
fn same_rule(left: &[&Entity], rule: &Map<String, Value>) -> Option<usize> {
    let same = |e: &Entity, key: &str, default: &Value| {
        rule.get(key).filter(|v| !v.is_null()).unwrap_or(default) == e.body.get(key).unwrap_or(default)
    };
    let named = |e: &Entity| same(e, "alert", &Value::Null) && same(e, "record", &Value::Null);
    let whole = |e: &Entity| {
        named(e)
            && same(e, "expr", &Value::Null)
            && same(e, "language", &json!("promql"))
            && same(e, "labels", &json!({}))
    };
    left.iter().position(|e| whole(e)).or_else(|| left.iter().position(|e| named(e)))
}

fn key_of(ids: &[String]) -> GroupKey {
    (ids[0].clone(), ids[1].clone())
}

/// Checks the conditions of the request (`If-Match`, `If-None-Match`) on the state of the group.
fn holds(ask: &Ask, stored: Option<&StoredGroup>) -> Result<()> {
    let present = stored.map(etag);
    // Foreign and unreadable tags match nothing.
    let fits = match &present {
        _ if !ask.headers.contains_key(header::IF_MATCH) => true,
        Some(present) => ask.tags(header::IF_MATCH).any(|tag| tag == "*" || tag == present),
        None => false,
    };
    // `If-None-Match`: only if the group does not exist, or has changed.
    let is_known = present.as_ref().is_some_and(|tag| ask.knows(tag));
    if fits && !is_known {
        return Ok(());
    }
    let why = if is_known { "there is this group already" } else { "the group has changed meanwhile" };
    let problem = Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", why);
    Err(match present {
        Some(tag) => problem.with("etag", json!(tag)),
        None => problem,
    })
}

/// Makes changes conditional on the versions that `If-Match` was compared with.
fn tied(ask: &Ask, stored: Option<&StoredGroup>, ops: Vec<(Place, Op)>) -> Vec<(Place, Op)> {
    if !ask.headers.contains_key(header::IF_MATCH) {
        return ops;
    }
    let known: Vec<&Entity> = stored.into_iter().flat_map(|s| s.settings.iter().chain(&s.rules)).collect();
    let version = |id: &str| known.iter().find(|e| e.id == id).map(|e| Condition::Versions(vec![e.version]));
    let tie = |op: Op| match op {
        Op::Replace { id, body, condition } => Op::Replace { condition: version(&id).unwrap_or(condition), id, body },
        Op::Patch { id, patch, condition } => Op::Patch { condition: version(&id).unwrap_or(condition), id, patch },
        Op::Delete { id, condition } => Op::Delete { condition: version(&id).unwrap_or(condition), id },
        other => other,
    };
    ops.into_iter().map(|(place, op)| (place, tie(op))).collect()
}

/// Refuses to replace or delete a group with rules that the caller cannot see, as they would be lost.
fn nothing_hidden(all: Option<&StoredGroup>, seen: Option<&StoredGroup>) -> Result<()> {
    let count = |s: Option<&StoredGroup>| s.map_or(0, |s| s.rules.len());
    if count(all) == count(seen) {
        return Ok(());
    }
    Err(Problem::forbidden("{edit, alerting, *}"))
}

fn missing(key: &GroupKey) -> Problem {
    Problem::not_found(&format!("{}/{}", key.0, key.1))
}

async fn read(ask: &Ask, key: &GroupKey, found: Option<StoredGroup>) -> Result<Answer> {
    let stored = found.ok_or_else(|| missing(key))?;
    let etag = etag(&stored);
    if ask.knows(&etag) {
        return Ok(Answer { status: 304, etag: Some(etag), ..Answer::ok(Value::Null) });
    }
    let shown = shown(ask, key, &stored, &running(ask).await?);
    Ok(Answer { etag: Some(etag), ..Answer::ok(Value::Object(shown)) })
}

/// What a request changes, and the status of its answer. `whole` is the group with the rules that the caller does not see.
fn operations(
    ask: &Ask,
    key: &GroupKey,
    whole: Option<&StoredGroup>,
    found: Option<&StoredGroup>,
) -> Result<(u16, Vec<(Place, Op)>)> {
    let mut status = 200;
    let ops = match ask.method {
        Method::DELETE => {
            let stored = found.ok_or_else(|| missing(key))?;
            nothing_hidden(whole, found)?;
            status = 204;
            let gone = |e: &Entity| Op::Delete { id: e.id.clone(), condition: Condition::None };
            let rules = stored.rules.iter().map(|e| (Place::of(&RULES), gone(e)));
            rules.chain(stored.settings.iter().map(|e| (Place::of(&RULE_GROUPS), gone(e)))).collect()
        }
        Method::PATCH => {
            let stored = found.ok_or_else(|| missing(key))?;
            let mut body = ask.object()?;
            let rules = rules_in(&mut body)?;
            if rules.is_some() {
                nothing_hidden(whole, found)?;
            }
            patched(key, stored, settings(body, key)?, rules)
        }
        _ => {
            nothing_hidden(whole, found)?;
            if found.is_none() {
                status = 201;
            }
            let mut body = ask.object()?;
            let rules = rules_in(&mut body)?.unwrap_or_default();
            let mut wanted = settings(body, key)?;
            let own = found.and_then(|s| s.settings.as_ref()).and_then(|e| e.body.get("interval"));
            // A group without an interval is shown with the default one, and may be put back as shown.
            if own.is_none_or(Value::is_null) && wanted.get("interval") == Some(&json!(ask.config.group_interval())) {
                wanted.remove("interval");
            }
            // A group without rules is there by its settings alone.
            let is_alone = rules.is_empty() || ask.none_match().any(|tag| tag == "*");
            let entity = if is_alone { SettingsEntity::Always } else { SettingsEntity::IfNeeded };
            plan(key, found, entity, wanted, rules)
        }
    };
    Ok((status, ops))
}

fn group<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let key = key_of(ids);
        let mut all = by_group(ask.config.all(&RULE_GROUPS).await?, ask.config.all(&RULES).await?);
        let whole = all.remove(&key);
        let found = visible_groups(ask).await?.into_iter().find(|(k, _)| *k == key).map(|(_, stored)| stored);
        if matches!(ask.method, Method::GET | Method::HEAD) {
            return read(ask, &key, found).await;
        }
        if let Err(problem) = holds(ask, found.as_ref()) {
            let Some(stored) = &found else { return Err(problem) };
            let current = shown(ask, &key, stored, &running(ask).await?);
            return Err(problem.with("current", Value::Object(current)));
        }
        let (status, ops) = operations(ask, &key, whole.as_ref(), found.as_ref())?;
        let ops = tied(ask, found.as_ref(), ops);
        let places = places(&ops);
        let families: Vec<&'static str> = ops.iter().map(|(place, _)| place.family.name).collect();
        let done = ask.config.change_all(&ask.caller, ops, ask.mode).await;
        let done = done.map_err(|problem| moved_to_places(problem, &places))?;
        if !ask.mode.is_dry_run() {
            ask.acts().await;
        }
        if status == 204 {
            return Ok(Answer::nothing());
        }
        let now = if ask.mode.is_dry_run() {
            left_by(families.into_iter().zip(done), found.unwrap_or_default(), &key)
        } else {
            visible_groups(ask)
                .await?
                .into_iter()
                .find(|(k, _)| *k == key)
                .map(|(_, stored)| stored)
                .unwrap_or_default()
        };
        let etag = Some(etag(&now));
        let shown = shown(ask, &key, &now, &running(ask).await?);
        Ok(Answer { status, etag, ..Answer::ok(Value::Object(shown)) })
    })
}

/// A group as changes leave it, each with its family: a dry run stores nothing that could be read again.
fn left_by(
    done: impl Iterator<Item = (&'static str, ChangeOutcome)>,
    stored: StoredGroup,
    key: &GroupKey,
) -> StoredGroup {
    let (rules, settings): (Vec<_>, Vec<_>) = done.partition(|(family, _)| *family == RULES.name);
    let of = |done: Vec<(&'static str, ChangeOutcome)>| done.into_iter().map(|(_, done)| done).collect::<Vec<_>>();
    let settings = entities_after(stored.settings.into_iter().collect(), of(settings));
    by_group(settings, entities_after(stored.rules, of(rules))).remove(key).unwrap_or_default()
}

/// The changes of a patch of a group; without `rules` these stay.
fn patched(
    key: &GroupKey,
    stored: &StoredGroup,
    mut patch: Map<String, Value>,
    rules: Option<Vec<Map<String, Value>>>,
) -> Vec<(Place, Op)> {
    let kept = stored.settings.as_ref().and_then(|settings| language_of(&settings.body));
    let language = if patch.contains_key("type") { language_of(&patch) } else { kept };
    let op = match &stored.settings {
        Some(known) => Some(Op::Patch { id: known.id.clone(), patch, condition: Condition::None }),
        // A patch of the rules alone creates no settings, unless it leaves none.
        None if patch.is_empty() && rules.as_ref().is_some_and(|rules| !rules.is_empty()) => None,
        None => {
            patch.insert("namespace".to_owned(), json!(key.0));
            patch.insert("name".to_owned(), json!(key.1));
            Some(Op::Create { id: Some(group_id(key)), body: patch })
        }
    };
    let settings = op.map(|op| (Place::of(&RULE_GROUPS), op));
    let rules = rules.map(|rules| rule_ops(key, Some(stored), language, rules));
    settings.into_iter().chain(rules.into_iter().flatten()).collect()
}

/// Removes and returns the rules of a body; `None` if it has no such member.
fn rules_in(body: &mut Map<String, Value>) -> Result<Option<Vec<Map<String, Value>>>> {
    let items = match body.remove("rules") {
        None => return Ok(None),
        Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(Problem::field("/rules", "INVALID_TYPE", "must be a list")),
    };
    let object = |(n, rule): (usize, Value)| match rule {
        Value::Object(map) => Ok(map),
        _ => Err(Problem::field(format!("/rules/{n}"), "INVALID_TYPE", "must be an object")),
    };
    items.into_iter().enumerate().map(object).collect::<Result<Vec<_>>>().map(Some)
}

/// The settings in a body, without read-only members; namespace and name are those of the path.
fn settings(mut body: Map<String, Value>, key: &GroupKey) -> Result<Map<String, Value>> {
    for (field, own) in [("namespace", &key.0), ("name", &key.1)] {
        if body.remove(field).is_some_and(|v| v != json!(own)) {
            return Err(Problem::field(format!("/{field}"), "INVALID_VALUE", "the path says something else"));
        }
    }
    if let Some(delay) = body.remove("eval_delay") {
        let offset = body.entry("query_offset").or_insert_with(|| delay.clone());
        if !delay.is_null() && *offset != delay {
            let why = "is another name of `query_offset`, which says something else";
            return Err(Problem::field("/eval_delay", "INVALID_VALUE", why));
        }
    }
    for field in ["staged", "ruleCount", "lastEvaluation", "evaluationTime", "missedIterations"] {
        body.remove(field);
    }
    Ok(body)
}

/// The place of each change in the body of a group: settings at the top, rules below `/rules`.
fn places(ops: &[(Place, Op)]) -> Vec<String> {
    let mut rules = 0;
    let mut out = Vec::with_capacity(ops.len());
    for (place, op) in ops {
        if place.family.name != RULES.name || matches!(op, Op::Delete { .. }) {
            out.push(String::new());
        } else {
            out.push(format!("/rules/{rules}"));
            rules += 1;
        }
    }
    out
}

fn order<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let key = key_of(ids);
        let stored = visible_groups(ask).await?.into_iter().find(|(k, _)| *k == key).map(|(_, stored)| stored);
        let stored = stored.ok_or_else(|| Problem::not_found(&format!("{}/{}", key.0, key.1)))?;
        let body = ask.object()?;
        only_members(&body, &["ids"])?;
        let wanted = all_ids_in(&body, "ids")?;
        let mut present: Vec<&str> = stored.rules.iter().map(|e| e.id.as_str()).collect();
        let mut asked: Vec<&str> = wanted.iter().map(String::as_str).collect();
        present.sort_unstable();
        asked.sort_unstable();
        if present != asked {
            return Err(Problem::field("/ids", "INVALID_VALUE", "must be exactly the rules of the group"));
        }
        let patch = |n: usize| [("position".to_owned(), json!(n))].into_iter().collect::<Map<_, _>>();
        let op = |(n, id): (usize, &String)| Op::Patch { id: id.clone(), patch: patch(n), condition: Condition::None };
        let ops = wanted.iter().enumerate().map(|one| (Place::of(&RULES), op(one))).collect();
        ask.config.change_all(&ask.caller, ops, ask.mode).await?;
        if !ask.mode.is_dry_run() {
            ask.acts().await;
        }
        let items: Vec<Value> = wanted.iter().enumerate().map(|(n, id)| json!({"id": id, "position": n})).collect();
        Ok(Answer::ok(json!({"items": items})))
    })
}

#[cfg(test)]
mod tests;
