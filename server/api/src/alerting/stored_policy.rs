//! The stored policy (`config-api` 2.5 and 2.6): its entities are combined into an Alertmanager configuration, which
//! is checked and run.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use quiver_alertd::Alertd;
use quiver_alertd::policy::Policy;
use quiver_alerting::config::{Config as Read, global_secrets, receiver_secrets};
use quiver_alerting::template::default_templates;
use quiver_config::families::{
    EMPTY_RECEIVER, FAMILIES, INHIBIT_RULES, POLICY_GLOBAL, RECEIVERS, ROOT_ROUTE_ID, ROUTES, TEMPLATES, TIME_INTERVALS,
};
use quiver_config::json::text;
use quiver_config::{ComponentEntity, Config, Entity, Family, FieldError, Problem};
use quiver_types::Millis;
use quiver_yaml as yaml;
use quiver_yaml::problem::Problems;
use serde_json::{Map, Value, json};

/// Returns names and texts of the template files that match a pattern.
pub type TemplateFiles = dyn Fn(&str) -> Result<Vec<(String, String)>, String> + Send + Sync;

/// Fields of routes that are copied unchanged.
const ROUTE_FIELDS: [&str; 10] = [
    "receiver",
    "matchers",
    "group_by",
    "group_wait",
    "group_interval",
    "repeat_interval",
    "continue",
    "mute_time_intervals",
    "active_time_intervals",
    "labels",
];
/// The member of the globals entity that holds the options.
pub(crate) const OPTIONS: &str = "options";

/// A policy combined from its entities.
#[derive(Debug, Default)]
pub(crate) struct ComposedPolicy {
    /// The policy in the form of Alertmanager's configuration file, as JSON.
    pub(crate) value: Value,
    /// The place of each entity in it: pointer, family, id.
    places: Vec<(String, &'static str, String)>,
    /// Ids of routes, children before their parents.
    route_ids: Vec<String>,
    /// Names and texts of stored templates.
    templates: Vec<(String, String)>,
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The members of a body that are set.
fn said<'b>(body: &'b Map<String, Value>, names: impl IntoIterator<Item = &'b str>) -> Map<String, Value> {
    let pair = |name: &'b str| Some((name.to_owned(), body.get(name).filter(|v| !says_nothing(v))?.clone()));
    names.into_iter().filter_map(pair).collect()
}

/// Converts a matcher in object form into its text.
fn matcher_text(item: &Value) -> Value {
    let Some(map) = item.as_object() else { return item.clone() };
    let is = |key: &str, default: bool| map.get(key).and_then(Value::as_bool).unwrap_or(default);
    let op = match (is("isEqual", true), is("isRegex", false)) {
        (true, false) => "=",
        (false, false) => "!=",
        (true, true) => "=~",
        (false, true) => "!~",
    };
    json!(format!("{}{op}{}", json!(text(map, "name")), json!(text(map, "value"))))
}

fn with_matchers(mut body: Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    for name in names {
        if let Some(Value::Array(items)) = body.get_mut(*name) {
            for item in items.iter_mut() {
                *item = matcher_text(item);
            }
        }
    }
    body
}

/// Routes by parent, siblings in order.
type RoutesByParent<'p> = BTreeMap<&'p str, Vec<&'p ComponentEntity>>;

/// Groups routes by their parents.
pub(crate) fn children(parts: &[ComponentEntity]) -> RoutesByParent<'_> {
    let mut all = RoutesByParent::new();
    for part in parts.iter().filter(|p| p.family == ROUTES.name && p.id != ROOT_ROUTE_ID) {
        all.entry(text(&part.body, "parentId")).or_default().push(part);
    }
    for siblings in all.values_mut() {
        siblings.sort_by_key(|p| (p.body.get("position").and_then(Value::as_i64), p.id.as_str()));
    }
    all
}

impl ComposedPolicy {
    /// Combines entities.
    pub(crate) fn of(parts: &[ComponentEntity]) -> Self {
        let mut out = Self::default();
        let of = |family: &'static Family| parts.iter().filter(move |p| p.family == family.name);
        let mut whole = Map::new();
        if let Some(global) = of(&POLICY_GLOBAL).next() {
            out.places.push(("/global".to_owned(), POLICY_GLOBAL.name, global.id.clone()));
            whole.extend(said(&global.body, [OPTIONS]).remove(OPTIONS).map(|own| ("global".to_owned(), own)));
            whole.extend(
                said(&global.body, ["template_files"]).remove("template_files").map(|p| ("templates".to_owned(), p)),
            );
        }
        let root = of(&ROUTES).find(|p| p.id == ROOT_ROUTE_ID);
        if let Some(root) = root {
            let route = out.route(root, "/route", &children(parts));
            whole.insert("route".to_owned(), route);
        }
        let mut list =
            |out: &mut Self, key: &str, family: &'static Family, make: &dyn Fn(&ComponentEntity) -> Value| {
                let items: Vec<Value> = of(family)
                    .enumerate()
                    .map(|(n, part)| {
                        out.places.push((format!("/{key}/{n}"), family.name, part.id.clone()));
                        make(part)
                    })
                    .collect();
                if !items.is_empty() {
                    whole.insert(key.to_owned(), Value::Array(items));
                }
            };
        list(&mut out, "receivers", &RECEIVERS, &|part| {
            let kinds = RECEIVERS.fields.iter().map(|f| f.name);
            Value::Object(said(&part.body, ["name", "labels"].into_iter().chain(kinds)))
        });
        list(&mut out, "inhibit_rules", &INHIBIT_RULES, &|part| {
            let names = ["source_matchers", "target_matchers"];
            let own = said(&part.body, ["name", names[0], names[1], "equal"]);
            Value::Object(with_matchers(own, &names))
        });
        list(&mut out, "time_intervals", &TIME_INTERVALS, &|part| {
            Value::Object(said(&part.body, ["name", "time_intervals"]))
        });
        out.templates =
            of(&TEMPLATES).map(|p| (text(&p.body, "name").to_owned(), text(&p.body, "content").to_owned())).collect();
        out.places.extend(of(&TEMPLATES).map(|p| (String::new(), TEMPLATES.name, p.id.clone())));
        out.value = Value::Object(whole);
        out
    }

    fn route(&mut self, part: &ComponentEntity, at: &str, below: &RoutesByParent<'_>) -> Value {
        self.places.push((at.to_owned(), ROUTES.name, part.id.clone()));
        let mut own = with_matchers(said(&part.body, ROUTE_FIELDS), &["matchers"]);
        // An explicit empty list overrides what is inherited.
        if part.body.get("group_by").is_some_and(|v| v.as_array().is_some_and(Vec::is_empty)) {
            own.insert("group_by".to_owned(), json!([]));
        }
        let siblings = below.get(part.id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let routes: Vec<Value> = siblings
            .iter()
            .enumerate()
            .map(|(n, child)| self.route(child, &format!("{at}/routes/{n}"), below))
            .collect();
        if !routes.is_empty() {
            own.insert("routes".to_owned(), Value::Array(routes));
        }
        self.route_ids.push(part.id.clone());
        Value::Object(own)
    }

    /// The configuration as text.
    pub(crate) fn yaml(&self) -> String {
        yaml::write(&self.value)
    }

    /// Converts problems into errors at the fields of changed entities; other entities are named in the text.
    pub(crate) fn errors(&self, problems: &Problems, changed: &[String]) -> Vec<FieldError> {
        let error = |problem: &quiver_yaml::problem::Problem| {
            let holds = |at: &str| {
                let rest = problem.path.strip_prefix(at)?;
                (!at.is_empty() && (rest.is_empty() || rest.starts_with('/'))).then_some(rest)
            };
            let found = self.places.iter().filter_map(|(at, family, id)| Some((at.len(), holds(at)?, family, id)));
            let code = problem.code.as_str();
            match found.max_by_key(|(length, ..)| *length) {
                Some((_, rest, _, id)) if changed.contains(id) => FieldError::new(rest, code, problem.message.clone()),
                Some((_, rest, family, id)) => {
                    FieldError::new("", code, format!("{family} {id}: {rest}: {}", problem.message))
                }
                None => FieldError::new(problem.path.clone(), code, problem.message.clone()),
            }
        };
        problems.iter().map(error).collect()
    }
}

/// Checks the entities of a policy together.
pub(crate) fn check(parts: &[ComponentEntity], changed: &[String]) -> Result<(), Problem> {
    let composed = ComposedPolicy::of(parts);
    let mut errors = match Read::load(&composed.yaml()) {
        Ok(_) => Vec::new(),
        Err(problems) => composed.errors(&problems, changed),
    };
    let mut templates = default_templates();
    for part in parts.iter().filter(|p| p.family == TEMPLATES.name) {
        if let Err(e) = templates.add(text(&part.body, "name"), text(&part.body, "content")) {
            let own = changed.contains(&part.id);
            let error = FieldError::new(if own { "/content" } else { "" }, "INVALID_TEMPLATE", e.to_string());
            errors.push(if own { error.at(e.line, e.column) } else { error });
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

/// The pointers of secrets in an entity of a policy.
pub(crate) fn secrets(family: &Family, body: &Map<String, Value>) -> Vec<String> {
    match family.name {
        name if name == RECEIVERS.name => receiver_secrets(&Value::Object(body.clone())),
        name if name == POLICY_GLOBAL.name => {
            let places = global_secrets(body.get(OPTIONS).unwrap_or(&Value::Null));
            places.into_iter().map(|at| format!("/{OPTIONS}{at}")).collect()
        }
        _ => Vec::new(),
    }
}

/// A version of the policy, for areas whose edits wait for a deploy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyVersion {
    /// Including all edits.
    Saved,
    /// As last deployed.
    Running,
}

/// Reads the policy's entities of one family.
async fn entities(config: &Config, family: &Family, which: PolicyVersion) -> quiver_config::Result<Vec<Entity>> {
    match which {
        PolicyVersion::Saved => config.all(family).await,
        PolicyVersion::Running => config.running(family).await,
    }
}

/// Reads all entities of the policy, including their secrets.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn parts(config: &Config, which: PolicyVersion) -> quiver_config::Result<Vec<ComponentEntity>> {
    let mut parts = Vec::new();
    for family in FAMILIES.iter().filter(|family| family.composes) {
        parts.extend(entities(config, family, which).await?.iter().map(|entity| config.part(family, entity)));
    }
    Ok(parts)
}

/// The configuration that entities combine to, as YAML.
pub(crate) fn composed(parts: &[ComponentEntity]) -> String {
    ComposedPolicy::of(parts).yaml()
}

/// The context in which revisions are encrypted.
pub(crate) const REVISION_SEAL: &str = "policy-revision";

/// Stores the policy as a revision, unless it equals the newest one.
///
/// # Errors
/// When a database is unreachable.
pub(crate) async fn note_revision(config: &Config, alertd: &Alertd, now: Millis) -> quiver_config::Result<()> {
    let composed = ComposedPolicy::of(&parts(config, PolicyVersion::Running).await?);
    let templates: Map<String, Value> = composed.templates.iter().map(|(n, text)| (n.clone(), json!(text))).collect();
    let whole = json!({"config": composed.yaml(), "templates": templates}).to_string();
    let shown = export(config, PolicyVersion::Running, Secrets::Masked).await?;
    let sealed = || config.seal_text(REVISION_SEAL, &whole);
    alertd.revisions.note(now, &shown, &whole, sealed).await.map_err(Problem::internal)
}

/// The running policy, without edits that wait for a deploy.
///
/// # Errors
/// When the database is unreachable; when the policy is invalid, although it was valid when it was saved.
pub fn policy<'a>(config: &'a Config, files: &'a TemplateFiles) -> BoxFuture<'a, quiver_config::Result<Policy>> {
    Box::pin(async move {
        let composed = ComposedPolicy::of(&parts(config, PolicyVersion::Running).await?);
        let written = composed.yaml();
        let wrong = |errors: Vec<String>| Problem::internal(format!("the stored policy: {}", errors.join("; ")));
        let read = Read::load(&written).map_err(|p| wrong(p.iter().map(ToString::to_string).collect()))?;
        // An unreadable file must not keep the rest from running.
        let read_files = |pattern: &str| match files(pattern) {
            Ok(found) => Ok(found),
            Err(error) => {
                tracing::error!("{error}");
                Ok(Vec::new())
            }
        };
        let mut policy = Policy::with(&written, read, &read_files).map_err(wrong)?;
        for (name, content) in &composed.templates {
            policy.add_template(name, content).map_err(|e| wrong(vec![e]))?;
        }
        policy.route_ids = composed.route_ids;
        Ok(policy)
    })
}

/// Whether an export shows secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrets {
    Masked,
    Shown,
}

/// The policy as users see it: the `empty` receiver only if a route names it.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn export(config: &Config, which: PolicyVersion, secrets: Secrets) -> quiver_config::Result<String> {
    let mut all = Vec::new();
    for family in FAMILIES.iter().filter(|family| family.composes) {
        let show = |e: &Entity| match secrets {
            Secrets::Masked => ComponentEntity { family: family.name, id: e.id.clone(), body: e.body.clone() },
            Secrets::Shown => config.part(family, e),
        };
        all.extend(entities(config, family, which).await?.iter().map(show));
    }
    let is_named = all.iter().any(|p| p.family == ROUTES.name && text(&p.body, "receiver") == EMPTY_RECEIVER);
    all.retain(|p| is_named || p.family != RECEIVERS.name || text(&p.body, "name") != EMPTY_RECEIVER);
    Ok(ComposedPolicy::of(&all).yaml())
}

#[cfg(test)]
mod tests {
    use quiver_alerting::receivers::KINDS;

    use super::*;

    /// A kind that one list lacks could be in a file of a policy and not be stored, or be stored and never be told.
    #[test]
    fn configuration_has_a_field_for_each_kind_of_receiver() {
        let mut kinds: Vec<&str> = KINDS.iter().map(|kind| kind.field).collect();
        let mut fields: Vec<&str> = RECEIVERS.fields.iter().map(|field| field.name).collect();
        kinds.sort_unstable();
        fields.sort_unstable();
        assert_eq!(fields, kinds);
    }

    fn part(family: &'static Family, id: &str, body: Value) -> ComponentEntity {
        let Value::Object(body) = body else { panic!("an object") };
        ComponentEntity { family: family.name, id: id.to_owned(), body }
    }

    fn policy_parts(webhook: Value) -> Vec<ComponentEntity> {
        vec![
            part(&RECEIVERS, "e", json!({"name": "empty"})),
            part(&RECEIVERS, "r", json!({"name": "ops", "webhook_configs": [webhook]})),
            part(&ROUTES, ROOT_ROUTE_ID, json!({"receiver": "empty", "matchers": [], "group_by": []})),
            part(&ROUTES, "b", json!({"parentId": ROOT_ROUTE_ID, "position": 1, "receiver": "ops"})),
            part(
                &ROUTES,
                "a",
                json!({"parentId": ROOT_ROUTE_ID, "position": 0, "matchers": [
                    {"name": "x y", "value": "1", "isRegex": true}, "z!=2"], "mute_time_intervals": ["night"]}),
            ),
            part(&TIME_INTERVALS, "t", json!({"name": "night", "time_intervals": []})),
            part(&TEMPLATES, "m", json!({"name": "mine", "content": "{{ define \"x\" }}y{{ end }}"})),
        ]
    }

    #[test]
    fn parts_make_a_policy() {
        let parts = policy_parts(json!({"url": "http://h/x"}));
        check(&parts, &[]).unwrap();
        let composed = ComposedPolicy::of(&parts);
        assert_eq!(composed.route_ids, ["a", "b", ROOT_ROUTE_ID]);
        let route = &composed.value["route"];
        assert_eq!(route["routes"][0]["matchers"], json!(["\"x y\"=~\"1\"", "z!=2"]));
        assert_eq!((&route["routes"][1]["receiver"], &route["group_by"]), (&json!("ops"), &json!([])));
    }

    #[test]
    fn errors_lie_at_their_entity() {
        let parts = policy_parts(json!({"url": "ftp://h"}));
        let told = |changed: &[&str]| {
            let changed: Vec<String> = changed.iter().map(|id| (*id).to_owned()).collect();
            check(&parts, &changed).unwrap_err().errors.remove(0)
        };
        assert!(told(&["r"]).field.starts_with("/webhook_configs/0"), "{:?}", told(&["r"]));
        assert!(told(&["a"]).message.starts_with("receivers r: "));
        let mut parts = policy_parts(json!({"url": "http://h"}));
        parts.push(part(&TEMPLATES, "n", json!({"name": "bad", "content": "{{ define"})));
        let told = check(&parts, &["n".to_owned()]).unwrap_err().errors.remove(0);
        assert_eq!((told.field.as_str(), told.code), ("/content", "INVALID_TEMPLATE"));
        assert_eq!(told.place.map(|(line, _)| line), Some(1));
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        for value in [json!(null), json!(false), json!([]), json!({})] {
            assert!(says_nothing(&value), "{value}");
        }
        for value in [json!(true), json!(0), json!(""), json!([null]), json!({"a": null})] {
            assert!(!says_nothing(&value), "{value}");
        }
        let body = json!({"a": 1, "b": null, "c": [], "d": "x"});
        let body = body.as_object().unwrap();
        assert_eq!(Value::Object(said(body, ["d", "a", "b", "c", "none"])), json!({"a": 1, "d": "x"}));
    }

    #[test]
    fn matchers_are_texts() {
        for (matcher, expected) in [
            (json!("a=b"), "a=b"),
            (json!({"name": "a", "value": "b"}), r#""a"="b""#),
            (json!({"name": "a", "value": "b", "isEqual": false}), r#""a"!="b""#),
            (json!({"name": "a", "value": "b", "isRegex": true}), r#""a"=~"b""#),
            (json!({"name": "a", "value": "b", "isEqual": false, "isRegex": true}), r#""a"!~"b""#),
            (json!({"name": "a b", "value": "say \"c\"\n"}), r#""a b"="say \"c\"\n""#),
            (json!({}), r#"""="""#),
        ] {
            assert_eq!(matcher_text(&matcher), json!(expected), "{matcher}");
            // Parsing the text yields the original matcher.
            if let Some(name) = matcher.get("name").and_then(Value::as_str) {
                let read = quiver_alerting::matchers::read(expected).unwrap().matchers;
                assert_eq!(
                    (read.len(), read[0].name.as_str(), json!(read[0].value)),
                    (1, name, matcher["value"].clone())
                );
            }
        }
        // Other types are left to the parser of the whole policy.
        assert_eq!(matcher_text(&json!(5)), json!(5));
        let body = json!({"m": ["a=b", {"name": "c", "value": "d"}], "n": "x", "o": [{"name": "c", "value": "d"}]});
        let Value::Object(body) = body else { panic!("an object") };
        let expected = json!({"m": ["a=b", "\"c\"=\"d\""], "n": "x", "o": [{"name": "c", "value": "d"}]});
        assert_eq!(Value::Object(with_matchers(body, &["m", "n", "none"])), expected);
    }

    #[test]
    fn routes_stand_below_their_parents() {
        let route = |id: &str, parent: &str, position: Value| {
            part(&ROUTES, id, json!({"parentId": parent, "position": position}))
        };
        let parts = [
            route(ROOT_ROUTE_ID, "", json!(0)),
            route("c", ROOT_ROUTE_ID, json!(5)),
            route("b", ROOT_ROUTE_ID, json!(1)),
            route("a", ROOT_ROUTE_ID, json!(5)),
            route("d", "b", json!(0)),
            route("e", "gone", json!(0)),
            part(&RECEIVERS, "r", json!({"parentId": "b"})),
        ];
        let all = children(&parts);
        let below = |id: &str| -> Vec<&str> { all.get(id).into_iter().flatten().map(|p| p.id.as_str()).collect() };
        assert_eq!((below(ROOT_ROUTE_ID), below("b")), (vec!["b", "a", "c"], vec!["d"]));
        assert!(below("").is_empty() && below("a").is_empty());
        // Routes without a path to the root are left out.
        assert_eq!(ComposedPolicy::of(&parts).route_ids, ["d", "b", "a", "c", ROOT_ROUTE_ID]);
    }

    #[test]
    fn a_policy_has_what_is_said_of_it() {
        let empty = ComposedPolicy::of(&[]);
        assert_eq!(empty.value, json!({}));
        let global = json!({"options": {"resolve_timeout": "5m"}, "template_files": ["*.tmpl"], "other": 1});
        let parts = [
            part(&POLICY_GLOBAL, "g", global),
            part(
                &ROUTES,
                ROOT_ROUTE_ID,
                json!({"receiver": "r", "continue": false, "position": 3, "group_wait": "5s"}),
            ),
            part(&RECEIVERS, "r", json!({"name": "r", "labels": {}, "email_configs": [], "unknown": "x"})),
            part(
                &INHIBIT_RULES,
                "i",
                json!({"name": "n", "equal": ["a"], "source_matchers": [{"name": "s", "value": "1"}], "target_matchers": ["t=1"]}),
            ),
            part(&TIME_INTERVALS, "t", json!({"name": "night", "time_intervals": [{"months": ["1"]}], "note": "x"})),
        ];
        let composed = ComposedPolicy::of(&parts);
        let expected = json!({
            "global": {"resolve_timeout": "5m"}, "templates": ["*.tmpl"],
            "route": {"receiver": "r", "group_wait": "5s"}, "receivers": [{"name": "r"}],
            "inhibit_rules": [
                {"name": "n", "equal": ["a"], "source_matchers": ["\"s\"=\"1\""], "target_matchers": ["t=1"]},
            ],
            "time_intervals": [{"name": "night", "time_intervals": [{"months": ["1"]}]}],
        });
        assert_eq!(composed.value, expected);
    }

    #[test]
    fn secrets_have_their_places() {
        let of = |family: &Family, body: Value| secrets(family, body.as_object().unwrap());
        let slack = json!({"name": "r", "slack_configs": [{"api_url": "https://h/x"}]});
        assert!(of(&RECEIVERS, slack.clone()).contains(&"/slack_configs/0/api_url".to_owned()));
        assert!(of(&ROUTES, slack).is_empty(), "of another family");
        let global = json!({"options": {"slack_api_url": "https://h/x"}, "slack_api_url": "https://h/y"});
        assert_eq!(of(&POLICY_GLOBAL, global), ["/options/slack_api_url"]);
        assert!(of(&POLICY_GLOBAL, json!({})).is_empty());
    }
}
