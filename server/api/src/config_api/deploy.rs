//! `/rulesapi/deploy` (`config-api` 2.3): rule files applied unchanged, compared with what is stored, and exported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use http::Method;
use quiver_alerting::rules::{Language, RuleFile, documents, read_own};
use quiver_config::families::{RULE_GROUPS, RULES};
use quiver_config::json::text;
use quiver_config::{
    Area, Caller, ChangeMode, ChangeOutcome, Condition, Entity, Family, FieldError, Op, Place, Problem, ProblemKind,
    Release, Result,
};
use quiver_yaml::problem::{Code, PROBLEMS_MAX, Problems};
use quiver_yaml::{self as yaml, Node, NodeKind as Shape};
use serde_json::{Map, Value, json};

use super::operation::{IMPORT_BYTES_MAX, special_of};
use super::request::{Ask, apart, of_body};
use super::response::Answer;
use super::rule_export;
use super::rule_groups::{SettingsEntity, plan, visible_groups};
use crate::alerting::stored_rules::{GroupKey, StoredGroup, file_rule};
use crate::expression_checks::Languages;
use crate::parsed_bodies;
use crate::state::AppState;

/// Longest owner mark, in characters.
const SOURCE_CHARS_MAX: usize = 100;

pub(super) fn routes() -> Router<Arc<AppState>> {
    let methods = MethodFilter::GET.or(MethodFilter::POST);
    Router::new().route("/rulesapi/deploy", special_of(&RULES, methods, IMPORT_BYTES_MAX, deploy))
}

fn deploy<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["action", "namespace", "source", "prune", "format"])?;
        let action = match (ask.parameter("action")?, &ask.method) {
            (None | Some("export"), &Method::GET | &Method::HEAD) => "export",
            (Some(_), &Method::GET | &Method::HEAD) => {
                return Err(Problem::parameter("GET exports; send POST for another `action`"));
            }
            (None, _) => "apply",
            (Some(word @ ("apply" | "validate" | "diff" | "export")), _) => word,
            (Some(_), _) => return Err(Problem::parameter("`action` must be apply, validate, diff or export")),
        };
        if action == "export" { rule_export::export(ask).await } else { apply(ask, action).await }
    })
}

/// A file of the body: its text, and the namespace for documents that name none.
struct Text {
    namespace: String,
    content: String,
}

async fn texts(ask: &Ask) -> Result<Vec<Text>> {
    let utf8 = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| Problem::new(ProblemKind::Malformed, "MALFORMED_YAML", "the body is not UTF-8"))
    };
    match ask.media_type().as_str() {
        _ if ask.body.is_empty() => Ok(Vec::new()),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "text/plain" => {
            let mut named = ask.parameters.iter().filter(|(key, _)| key == "namespace").map(|(_, value)| value.clone());
            let namespace = named.next().unwrap_or_else(|| "default".to_owned());
            if named.next().is_some() {
                return Err(Problem::parameter("`namespace` is given more than once"));
            }
            Ok(vec![Text { namespace, content: utf8(&ask.body)? }])
        }
        "application/json" => {
            let body = ask.large_object().await?;
            super::body_members::only_members(&body, &["files"])?;
            let files = body.get("files").and_then(Value::as_array);
            let files = files.ok_or_else(|| Problem::field("/files", "REQUIRED", "must be a list of files"))?;
            let file = |(n, file): (usize, &Value)| {
                let at = format!("/files/{n}");
                let map = file.as_object();
                let map = map.ok_or_else(|| Problem::field(at.as_str(), "INVALID_TYPE", "must be an object"))?;
                super::body_members::only_members(map, &["namespace", "content"]).map_err(|p| p.below(&at))?;
                let content = map.get("content").and_then(Value::as_str);
                let content = content.ok_or_else(|| {
                    Problem::field(format!("{at}/content"), "REQUIRED", "must be a text: rules as YAML")
                })?;
                let namespace = Some(text(map, "namespace")).filter(|n| !n.is_empty()).unwrap_or("default");
                Ok(Text { namespace: namespace.to_owned(), content: content.to_owned() })
            };
            files.iter().enumerate().map(file).collect()
        }
        other => {
            let text = format!("`{other}` is not read here; send `application/yaml` or `application/json`");
            Err(Problem::new(ProblemKind::UnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", text))
        }
    }
}

/// Reports what is wrong with a text, each error with its place, group and rule.
pub(crate) fn refused(problems: &Problems, documents: &[Node]) -> Problem {
    if problems.iter().any(|p| p.code == Code::Malformed) {
        let why = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let place = problems.iter().next().map(|p| p.place).unwrap_or_default();
        return Problem::new(ProblemKind::Malformed, "MALFORMED_YAML", why)
            .with("line", json!(place.line))
            .with("column", json!(place.column));
    }
    let error = |p: &quiver_yaml::problem::Problem| {
        let mut error = json!({
            "field": p.path, "code": p.code.as_str(), "message": p.message, "line": p.place.line, "column": p.place.column,
        });
        let (group, rule) = names_at(documents, &p.path);
        for (key, name) in [("group", group), ("rule", rule)] {
            if let Some(name) = name {
                error[key] = json!(name);
            }
        }
        error
    };
    not_valid("the text has", problems.iter().map(error).collect())
}

/// A problem with these errors, of which `subject` has so many.
fn not_valid(subject: &str, errors: Vec<Value>) -> Problem {
    let text = if errors.len() == 1 { "1 error".to_owned() } else { format!("{} errors", errors.len()) };
    Problem::new(ProblemKind::Invalid, "VALIDATION_FAILED", format!("{subject} {text}")).with("errors", json!(errors))
}

/// The names of the group and rule that a JSON pointer leads into.
fn names_at(documents: &[Node], pointer: &str) -> (Option<String>, Option<String>) {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    let (document, rest) = match parts.first().and_then(|p| p.parse::<usize>().ok()) {
        Some(n) => (documents.get(n), &parts[1..]),
        None => (documents.first(), &parts[..]),
    };
    let group = document.and_then(|d| item_at(d, "groups", rest.get(1)));
    let rule = group.and_then(|g| item_at(g, "rules", rest.get(3)));
    let name = |node: &Node, keys: &[&str]| {
        keys.iter().find_map(|k| node.get(k)).and_then(Node::text).map(str::to_owned).filter(|t| !t.is_empty())
    };
    (group.and_then(|g| name(g, &["name"])), rule.and_then(|r| name(r, &["alert", "record"])))
}

/// The item of a list that a segment of a pointer names.
fn item_at<'n>(node: &'n Node, list: &str, at: Option<&&str>) -> Option<&'n Node> {
    items(node, list).get(at?.parse::<usize>().ok()?)
}

/// Groups of files, converted for storing: settings and rules.
type DesiredGroups = BTreeMap<GroupKey, (Map<String, Value>, Vec<Map<String, Value>>)>;

/// Reads the groups of all texts.
///
/// # Errors
/// All errors of all texts; if there are several texts, `file` in each error says in which one.
fn wanted(texts: &[Text], warnings: &mut Vec<String>) -> Result<DesiredGroups> {
    let mut all = DesiredGroups::new();
    if let [given] = texts {
        add_groups(given, &mut all, warnings)?;
        return Ok(all);
    }
    let mut errors = Vec::new();
    for (n, given) in texts.iter().enumerate() {
        let Err(mut problem) = add_groups(given, &mut all, warnings) else { continue };
        let Some(Value::Array(found)) = problem.more.remove("errors") else {
            return Err(problem.with("file", json!(n)));
        };
        errors.extend(found.into_iter().map(|mut error| {
            error["file"] = json!(n);
            error
        }));
    }
    errors.truncate(PROBLEMS_MAX);
    if errors.is_empty() { Ok(all) } else { Err(not_valid("the files have", errors)) }
}

/// Adds the groups of a text to those of others.
fn add_groups(given: &Text, all: &mut DesiredGroups, warnings: &mut Vec<String>) -> Result<()> {
    let documents = documents(&given.content).map_err(|problem| {
        let mut problems = Problems::default();
        problems.push(problem);
        refused(&problems, &[])
    })?;
    let file: RuleFile = read_own(&given.content, &Languages).map_err(|problems| refused(&problems, &documents))?;
    warnings.extend(file.warnings);
    for group in &file.groups {
        let mut seen = BTreeSet::new();
        let twice = group.rules.iter().filter(|rule| !seen.insert((&rule.name, &rule.expr, &rule.labels)));
        warnings.extend(twice.map(|rule| format!("group `{}`: `{}` is given more than once", group.name, rule.name)));
    }
    for document in &documents {
        let own = document.get("namespace").and_then(Node::text).filter(|n| !n.is_empty());
        let namespace = own.unwrap_or(&given.namespace);
        for node in items(document, "groups").iter().filter(|node| !node.is_null()) {
            let name = node.get("name").and_then(Node::text).unwrap_or_default().to_owned();
            let kind = node.get("type").and_then(Node::text).unwrap_or("prometheus");
            let rules = items(node, "rules").iter().filter(|rule| !rule.is_null());
            let rules = rules.map(|rule| rule_of(rule, kind)).collect();
            let key = (namespace.to_owned(), name.clone());
            if all.insert(key, (settings_of(node), rules)).is_some() {
                let message = format!("groupname: \"{name}\" is repeated in namespace \"{namespace}\"");
                let mut problems = Problems::default();
                problems.push(node.problem("/groups", Code::Duplicate, message));
                return Err(refused(&problems, &documents));
            }
        }
    }
    Ok(())
}

/// Reads texts. Gives them back, with warnings and groups.
async fn read_apart(texts: Vec<Text>) -> Result<(Vec<Text>, Vec<String>, DesiredGroups)> {
    let bytes = texts.iter().map(|text| text.content.len()).sum();
    let read = move || {
        let mut warnings = Vec::new();
        let groups = wanted(&texts, &mut warnings)?;
        Ok((texts, warnings, groups))
    };
    apart(bytes, read).await
}

fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|n| &n.kind) {
        Some(Shape::List(items)) => items,
        _ => &[],
    }
}

/// Converts a map of strings.
fn texts_of(node: &Node) -> Value {
    match &node.kind {
        Shape::Map(pairs) => {
            let each = pairs.iter().map(|(key, value)| (key.text.clone(), json!(value.text().unwrap_or_default())));
            Value::Object(each.collect())
        }
        Shape::List(items) => items.iter().map(|item| json!(item.text().unwrap_or_default())).collect(),
        _ => json!(node.text().unwrap_or_default()),
    }
}

/// The namespaces of all texts, including those of documents that have no group left.
fn namespaces_of(texts: &[Text]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for given in texts {
        for document in yaml::read(&given.content).into_iter().flatten().filter(|document| !document.is_null()) {
            let own = document.get("namespace").and_then(Node::text).filter(|n| !n.is_empty());
            out.insert(own.unwrap_or(&given.namespace).to_owned());
        }
    }
    out
}

/// The parameters of a group: lists of strings by name.
fn params_of(node: &Node) -> Value {
    let Shape::Map(pairs) = &node.kind else { return Value::Null };
    let list = |value: &Node| match texts_of(value) {
        list @ Value::Array(_) => list,
        one => json!([one]),
    };
    Value::Object(pairs.iter().map(|(key, value)| (key.text.clone(), list(value))).collect())
}

fn settings_of(node: &Node) -> Map<String, Value> {
    let Shape::Map(pairs) = &node.kind else { return Map::new() };
    let mut out = Map::new();
    for (key, value) in pairs.iter().filter(|(_, value)| !value.is_null()) {
        let (name, value) = match key.text.as_str() {
            "name" | "rules" | "namespace" => continue,
            "params" => ("params", params_of(value)),
            "eval_delay" => ("query_offset", texts_of(value)),
            "limit" | "concurrency" => (key.text.as_str(), json!(value.whole().unwrap_or(0).max(0))),
            "debug" | "eval_alignment" => (key.text.as_str(), json!(value.truth())),
            "type" => {
                let kind = value.text().and_then(Language::parse).unwrap_or_default();
                ("type", json!(kind.group_type()))
            }
            other => (other, texts_of(value)),
        };
        // An earlier spelling takes precedence.
        out.entry(name).or_insert(value);
    }
    if out.get("concurrency") == Some(&json!(0)) {
        out.remove("concurrency");
    }
    out
}

/// Converts a rule of a file into a stored one. Its language is its own, or else that of its group.
fn rule_of(node: &Node, kind: &str) -> Map<String, Value> {
    let Shape::Map(pairs) = &node.kind else { return Map::new() };
    let mut out = Map::new();
    for (key, value) in pairs.iter().filter(|(_, value)| !value.is_null()) {
        match key.text.as_str() {
            // The parser has warned about these.
            "debug" | "update_entries_limit" => {}
            "enabled" => drop(out.insert("enabled".to_owned(), json!(value.truth()))),
            name => drop(out.insert(name.to_owned(), texts_of(value))),
        }
    }
    if let Some(language) = Language::parse(kind).filter(|l| *l != Language::Promql) {
        // A rule's own language takes precedence.
        out.entry("language").or_insert_with(|| json!(language.as_str()));
    }
    out
}

/// The owner mark of what is applied.
pub(super) fn manager(ask: &Ask) -> Result<String> {
    match ask.parameter("source")? {
        None | Some("api") => Ok("api".to_owned()),
        Some(source) if source.is_empty() || source.chars().count() > SOURCE_CHARS_MAX => {
            Err(Problem::parameter(format!("`source` must have 1 to {SOURCE_CHARS_MAX} characters")))
        }
        Some(source) => Ok(format!("deploy:{source}")),
    }
}

pub(super) fn flag(ask: &Ask, name: &str) -> Result<bool> {
    match ask.parameter(name)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::parameter(format!("`{name}` must be true or false"))),
    }
}

async fn apply(ask: &Ask, action: &str) -> Result<Answer> {
    if ask.parameter("format")?.is_some() {
        return Err(Problem::parameter("`format` goes with `action=export`"));
    }
    let (manager, prune) = (manager(ask)?, flag(ask, "prune")?);
    let texts = texts(ask).await?;
    // Bodies that say that they are YAML have been counted as such.
    let is_counted = ask.media_type().ends_with("yaml");
    let contents = texts.iter().filter(|_| !is_counted).map(|given| given.content.as_str());
    let _room = parsed_bodies::hold_yaml_texts(&ask.state.capacity.bodies, contents).map_err(of_body)?;
    let (texts, warnings, wanted) = read_apart(texts).await?;
    let present: BTreeMap<GroupKey, StoredGroup> = visible_groups(ask).await?.into_iter().collect();
    let namespaces = if prune { namespaces_of(&texts) } else { BTreeSet::new() };
    let (mut ops, mut origins): (Vec<(Place, Op)>, Vec<ChangeOrigin>) = (Vec::new(), Vec::new());
    let mut named: BTreeSet<GroupKey> = wanted.keys().cloned().collect();
    for (key, stored) in present.iter().filter(|(key, _)| prune && !wanted.contains_key(key)) {
        let all = stored.settings.iter().chain(&stored.rules);
        if namespaces.contains(&key.0) && all.clone().all(|e| e.managed_by == manager) {
            let gone = |id: &str| Op::Delete { id: id.to_owned(), condition: Condition::None };
            ops.extend(stored.rules.iter().map(|e| (Place::of(&RULES), gone(&e.id))));
            ops.extend(stored.settings.iter().map(|e| (Place::of(&RULE_GROUPS), gone(&e.id))));
            origins.resize(ops.len(), (key.clone(), None));
            named.insert(key.clone());
        }
    }
    for (key, (settings, mut rules)) in wanted {
        let stored = present.get(&key);
        for rule in &mut rules {
            keep_own_fields(stored, rule);
        }
        let planned = plan(&key, stored, SettingsEntity::IfNeeded, settings, rules);
        let mut numbers = 0..;
        origins.extend(planned.iter().map(|(place, op)| {
            let is_rule = place.family.name == RULES.name && !matches!(op, Op::Delete { .. });
            (key.clone(), if is_rule { numbers.next() } else { None })
        }));
        ops.extend(planned);
    }
    let mode = if action == "apply" { ask.mode } else { ChangeMode::DryRun };
    let caller = Caller { manager, ..ask.caller.clone() };
    // If edits wait for a deploy, only those in the named groups take effect; without a body all that the caller may
    // see do.
    let covers = |family: &Family, entity: &Entity| {
        let field = if family.name == RULES.name { "group" } else { "name" };
        let key = (text(&entity.body, "namespace").to_owned(), text(&entity.body, field).to_owned());
        (ask.body.is_empty() || named.contains(&key)) && family.is_visible(&ask.caller, entity)
    };
    let release = Release { area: Area::Rules, action: "DEPLOY", covers: &covers };
    let done = ask.config.deploy(&caller, ops, &release, mode).await;
    let done = done.map_err(|problem| located(problem, &origins, &texts))?;
    if !mode.is_dry_run() {
        ask.acts().await;
    }
    Ok(Answer::ok(outcome(ask.state.shown_revision(), mode, &done, &warnings, (is_rule, shown_change))))
}

/// Where a change comes from: its group, and the index of its rule among the non-empty ones.
type ChangeOrigin = (GroupKey, Option<usize>);

/// The namespace of a text, and its documents.
type Documents = (String, Vec<Node>);

/// Finds a group: the number of its text, the pointer to it, and its node.
fn group_at<'n>(all: &'n [Documents], key: &GroupKey) -> Option<(usize, String, &'n Node)> {
    for (file, (namespace, documents)) in all.iter().enumerate() {
        for (i, document) in documents.iter().enumerate() {
            let own = document.get("namespace").and_then(Node::text).filter(|n| !n.is_empty());
            if own.unwrap_or(namespace) != key.0.as_str() {
                continue;
            }
            let is_it = |node: &Node| node.get("name").and_then(Node::text) == Some(key.1.as_str());
            if let Some((k, node)) = items(document, "groups").iter().enumerate().find(|(_, node)| is_it(node)) {
                let base = if documents.len() > 1 { format!("/{i}") } else { String::new() };
                return Some((file, format!("{base}/groups/{k}"), node));
            }
        }
    }
    None
}

/// Moves errors of changes, whose fields begin with `/<n>`, to the place in the texts that is wrong.
fn located(mut problem: Problem, origins: &[ChangeOrigin], texts: &[Text]) -> Problem {
    if problem.errors.is_empty() {
        return problem;
    }
    // Parsed once for all errors: a text may be long, and there may be a hundred of them.
    let read = |given: &Text| Some((given.namespace.clone(), yaml::read(&given.content).ok()?));
    let all: Vec<Documents> = texts.iter().filter_map(read).collect();
    let shown = |error: &FieldError| {
        let mut out = json!({"field": error.field, "code": error.code, "message": error.message});
        let path = error.field.trim_start_matches('/');
        let (n, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
        let origin = n.parse::<usize>().ok().and_then(|n| origins.get(n));
        let Some((key, number)) = origin else { return out };
        let Some((file, mut at, mut node)) = group_at(&all, key) else { return out };
        out["group"] = json!(key.1);
        if texts.len() > 1 {
            out["file"] = json!(file);
        }
        let mut rules = items(node, "rules").iter().enumerate().filter(|(_, rule)| !rule.is_null());
        if let Some((k, rule)) = number.and_then(|number| rules.nth(number)) {
            let _ = write!(at, "/rules/{k}");
            out["rule"] = json!(["alert", "record"].iter().find_map(|key| rule.get(key)).and_then(Node::text));
            node = rule;
        }
        let place = deepest(node, rest).place;
        out["field"] = json!(at + rest);
        (out["line"], out["column"]) = (json!(place.line), json!(place.column));
        out
    };
    let names_place = problem.names_place();
    let errors: Vec<Value> = std::mem::take(&mut problem.errors).iter().map(shown).collect();
    if names_place && let [one] = &errors[..] {
        let part = |key: &str| one[key].as_str().unwrap_or_default();
        problem.detail = format!("{}: {}", part("field"), part("message"));
    }
    problem.with("errors", json!(errors))
}

/// Follows a JSON pointer as far as it leads: to what it names, or to what encloses that.
fn deepest<'n>(mut node: &'n Node, pointer: &str) -> &'n Node {
    for part in pointer.split('/').skip(1) {
        let inner = match &node.kind {
            Shape::List(items) => part.parse::<usize>().ok().and_then(|n| items.get(n)),
            _ => node.get(&part.replace("~1", "/").replace("~0", "~")),
        };
        let Some(inner) = inner else { break };
        node = inner;
    }
    node
}

/// Says of each error where in a text of one document it stands.
pub(super) fn with_lines(mut problem: Problem, given: &str) -> Problem {
    let Ok(Some(root)) = yaml::read_first(given) else { return problem };
    if problem.errors.is_empty() {
        return problem;
    }
    let shown = |error: &FieldError| {
        let place = deepest(&root, &error.field).place;
        json!({
            "field": error.field, "code": error.code, "message": error.message, "line": place.line,
            "column": place.column,
        })
    };
    let errors: Vec<Value> = std::mem::take(&mut problem.errors).iter().map(shown).collect();
    problem.with("errors", json!(errors))
}

/// Fields of a stored rule may appear as labels and annotations in a file, which has only those. If a rule means the
/// same as the stored one, the stored form is kept.
fn keep_own_fields(stored: Option<&StoredGroup>, rule: &mut Map<String, Value>) {
    if ["severity", "service", "runbook_url"].iter().any(|field| rule.contains_key(*field)) {
        return;
    }
    let Ok(wanted) = file_rule(rule) else { return };
    let mut known = stored.into_iter().flat_map(|stored| &stored.rules);
    if let Some(same) = known.find(|known| file_rule(&known.body).is_ok_and(|file| file == wanted)) {
        for field in ["labels", "annotations", "severity", "service", "runbook_url"] {
            rule.remove(field);
            rule.extend(same.body.get(field).map(|value| (field.to_owned(), value.clone())));
        }
    }
}

/// The outcome for one entity.
pub(super) struct EntityOutcome<'d> {
    pub(super) op: &'static str,
    pub(super) entity: &'d Entity,
    /// `path`, `from` and `to` of each changed field; empty unless the entity was updated.
    pub(super) diff: Value,
}

impl<'d> EntityOutcome<'d> {
    pub(super) fn of(done: &'d ChangeOutcome) -> Option<Self> {
        let entity = done.after.as_ref().or(done.before.as_ref())?;
        let op = match (done.changed, &done.before, &done.after) {
            (false, ..) => "unchanged",
            (_, None, _) => "create",
            (_, Some(_), Some(_)) => "update",
            (_, Some(_), None) => "delete",
        };
        let diff = match (op, done.diff()) {
            ("update", Value::Object(fields)) => {
                let line =
                    |(path, change): (String, Value)| json!({"path": path, "from": change["from"], "to": change["to"]});
                fields.into_iter().map(line).collect()
            }
            _ => json!([]),
        };
        Some(Self { op, entity, diff })
    }
}

/// Which outcomes are counted, and how a change is shown.
pub(super) type ChangeReporter = (fn(&EntityOutcome<'_>) -> bool, fn(&EntityOutcome<'_>) -> Value);

/// The response of a deploy. `revision` is null if the caller must not know it; `counts` and `shows` are explained at
/// [`ChangeReporter`].
pub(super) fn outcome(
    revision: Option<u64>,
    mode: ChangeMode,
    all: &[ChangeOutcome],
    warnings: &[String],
    (counts, shows): ChangeReporter,
) -> Value {
    let all: Vec<EntityOutcome<'_>> = all.iter().filter_map(EntityOutcome::of).collect();
    let count = |op: &str| all.iter().filter(|told| told.op == op && counts(told)).count();
    let changes: Vec<Value> = all.iter().filter(|told| told.op != "unchanged").map(shows).collect();
    json!({
        "revision": revision, "dryRun": mode.is_dry_run(),
        "summary": {
            "created": count("create"), "updated": count("update"), "deleted": count("delete"),
            "unchanged": count("unchanged"),
        },
        "changes": changes, "warnings": warnings,
    })
}

/// Whether it is about a rule and not a group.
fn is_rule(told: &EntityOutcome<'_>) -> bool {
    !text(&told.entity.body, "group").is_empty()
}

fn shown_change(told: &EntityOutcome<'_>) -> Value {
    let (body, rule) = (&told.entity.body, is_rule(told));
    json!({
        "op": told.op, "namespace": text(body, "namespace"), "group": text(body, if rule { "group" } else { "name" }),
        "rule": rule.then(|| text(body, "name")), "diff": told.diff,
    })
}

#[cfg(test)]
mod tests;
