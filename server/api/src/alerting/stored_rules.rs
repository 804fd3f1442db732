//! Converts stored rules to the form of rule files (`config-api` 2.1), in which they are checked, run and exported.

use std::collections::BTreeMap;

use quiver_alertd::rules::Source;
use quiver_alerting::rules::{Expressions, Language, OWN_FIELDS, RuleGroup, read};
use quiver_config::families::{RULE_GROUPS, RULES, RUN_AS, RUN_BY};
use quiver_config::json::text;
use quiver_config::{Config, Entity, FieldError, KEPT, Problem};
use quiver_types::{Rights, Triple};
use quiver_yaml as yaml;
use quiver_yaml::problem::{Code, Problem as Fault};
use serde_json::{Map, Value, json};

use crate::expression_checks::Languages;

/// Pointer of a rule in the file that is made of it.
const RULE_PATH: &str = "/groups/0/rules/0";
/// Pointer of its group.
const GROUP_PATH: &str = "/groups/0";

/// Fields of a stored rule.
const RULE_FIELDS: [&str; 17] = [
    "namespace",
    "group",
    "position",
    "alert",
    "record",
    "name",
    "expr",
    "language",
    "for",
    "keep_firing_for",
    "labels",
    "annotations",
    "severity",
    "service",
    "runbook_url",
    "enabled",
    "description",
];
/// Fields that are only shown with a rule; accepted, so that a rule that was read can be tested unchanged.
const SHOWN_FIELDS: [&str; 3] = ["interval", "limit", "staged"];
/// Fields that rule files have as well.
const FILE_FIELDS: [&str; 7] = ["alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations"];
/// Fields of a group in rule files.
pub(crate) const GROUP_FIELDS: [&str; 11] = [
    "interval",
    "query_offset",
    "eval_offset",
    "limit",
    "concurrency",
    "labels",
    "params",
    "headers",
    "notifier_headers",
    "debug",
    "eval_alignment",
];

/// Whether a value is the default, and can be left out.
pub(crate) fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text == "0s",
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        _ => false,
    }
}

/// The group type for the language of a rule.
fn language_of(rule: &Map<String, Value>) -> Result<&'static str, Problem> {
    let word = rule.get("language").and_then(Value::as_str).unwrap_or("promql");
    match Language::parse(word) {
        Some(language) => Ok(language.group_type()),
        None => Err(Problem::field("/rule/language", "INVALID_VALUE", format!("unknown language `{word}`"))),
    }
}

/// Converts a rule to the form of files: fields that files do not have become labels and annotations.
///
/// # Errors
/// An unknown field, or a severity that contradicts the label; the field is below `/rule`.
pub(crate) fn file_rule(rule: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let known = |key: &str| RULE_FIELDS.contains(&key) || SHOWN_FIELDS.contains(&key) || KEPT.contains(&key);
    let unknown = rule.keys().filter(|key| !known(key.as_str()));
    let errors: Vec<FieldError> = unknown
        .map(|key| FieldError::new(format!("/rule/{key}"), "UNKNOWN_FIELD", "nobody knows this field"))
        .collect();
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let mut own = Map::new();
    for name in FILE_FIELDS {
        own.extend(rule.get(name).filter(|v| !is_default(v)).map(|v| (name.to_owned(), v.clone())));
    }
    for (field, into, name) in [
        ("severity", "labels", "severity"),
        ("service", "labels", "service"),
        ("runbook_url", "annotations", "runbook_url"),
    ] {
        let Some(text) = rule.get(field).filter(|v| !v.is_null()) else { continue };
        let Some(map) = own.entry(into).or_insert_with(|| json!({})).as_object_mut() else { continue };
        match map.get(name) {
            Some(other) if field == "severity" && other != text => {
                let why = "`labels.severity` says something else";
                return Err(Problem::field("/rule/severity", "INVALID_VALUE", why));
            }
            Some(_) => {}
            None => drop(map.insert(name.to_owned(), text.clone())),
        }
    }
    Ok(own)
}

/// Converts a rule to the form of our own files, which has all fields; `of_group` is the language of its group.
pub(crate) fn own_rule(rule: &Map<String, Value>, of_group: Language) -> Map<String, Value> {
    let mut own = Map::new();
    for name in FILE_FIELDS.into_iter().chain(OWN_FIELDS) {
        let says = rule.get(name).filter(|v| !is_default(v) && **v != json!("") && **v != json!(true));
        own.extend(says.map(|v| (name.to_owned(), v.clone())));
    }
    let language = Language::parse(text(rule, "language")).unwrap_or_default();
    own.remove("language");
    if language != of_group {
        own.insert("language".to_owned(), json!(language.as_str()));
    }
    own
}

/// Converts a group with these rules to the form of files.
pub(crate) fn file_group(name: &str, kind: &str, settings: &Map<String, Value>, rules: Vec<Value>) -> Value {
    let mut group = Map::new();
    group.insert("name".to_owned(), json!(name));
    if kind != "prometheus" {
        group.insert("type".to_owned(), json!(kind));
    }
    for field in GROUP_FIELDS {
        let value = settings.get(field).filter(|v| !is_default(v));
        // Rules are evaluated one at a time by default.
        let value = value.filter(|v| field != "concurrency" || v.as_i64() != Some(1));
        group.extend(value.map(|v| (field.to_owned(), v.clone())));
    }
    group.insert("rules".to_owned(), Value::Array(rules));
    Value::Object(group)
}

fn errors_below<'p>(faults: impl Iterator<Item = &'p Fault>, from: &str, to: &str) -> Vec<FieldError> {
    let error = |fault: &Fault| {
        let rest = fault.path.strip_prefix(from).unwrap_or_default();
        FieldError::new(format!("{to}{rest}"), fault.code.as_str(), fault.message.clone())
    };
    faults.map(error).collect()
}

/// Adds where in the rule's expression an error is: the file that was read is not what was sent.
fn placed(error: FieldError, rule: &Map<String, Value>) -> FieldError {
    if error.code != Code::InvalidExpr.as_str() {
        return error;
    }
    let language = Language::parse(text(rule, "language")).unwrap_or_default();
    match Languages.parse(language, text(rule, "expr")) {
        Ok(_) => error,
        Err((place, _)) => error.at(place.line, place.column),
    }
}

/// Parses the group of a single stored rule, and returns warnings, too.
///
/// # Errors
/// Everything that is wrong, below `/rule`.
pub(crate) fn group_of(rule: &Map<String, Value>) -> Result<(RuleGroup, Vec<String>), Problem> {
    let own = file_rule(rule)?;
    let name = rule.get("group").and_then(Value::as_str).unwrap_or("test");
    let group = file_group(name, language_of(rule)?, &Map::new(), vec![Value::Object(own)]);
    let written = yaml::write(&json!({"groups": [group]}));
    let mut file = read(&written, &Languages).map_err(|faults| {
        let errors = errors_below(faults.iter(), RULE_PATH, "/rule");
        Problem::invalid(errors.into_iter().map(|error| placed(error, rule)).collect())
    })?;
    let mut group = file.groups.remove(0);
    let is_own = rule.get("labels").and_then(|labels| labels.get("service")).is_some();
    group.rules.iter_mut().for_each(|one| one.service_yields = !is_own && !text(rule, "service").is_empty());
    Ok((group, file.warnings))
}

/// Parses stored settings of a group, without rules.
pub(super) fn settings_of(name: &str, settings: &Map<String, Value>) -> Result<RuleGroup, Problem> {
    let written = yaml::write(&json!({"groups": [file_group(name, "prometheus", settings, Vec::new())]}));
    let mut file =
        read(&written, &Languages).map_err(|faults| Problem::invalid(errors_below(faults.iter(), GROUP_PATH, "")))?;
    Ok(file.groups.remove(0))
}

/// Namespace and name of a group.
pub(crate) type GroupKey = (String, String);

/// A stored group: its settings entity, if it has one, and its rules in order.
#[derive(Debug, Default)]
pub(crate) struct StoredGroup {
    pub(crate) settings: Option<Entity>,
    pub(crate) rules: Vec<Entity>,
}

/// Assigns rules to groups.
pub(crate) fn by_group(groups: Vec<Entity>, rules: Vec<Entity>) -> BTreeMap<GroupKey, StoredGroup> {
    let key = |e: &Entity, name: &str| (text(&e.body, "namespace").to_owned(), text(&e.body, name).to_owned());
    let mut all: BTreeMap<GroupKey, StoredGroup> = BTreeMap::new();
    for group in groups {
        let key = key(&group, "name");
        all.entry(key).or_default().settings = Some(group);
    }
    for rule in rules {
        let key = key(&rule, "group");
        all.entry(key).or_default().rules.push(rule);
    }
    for stored in all.values_mut() {
        stored.rules.sort_by_key(|e| (e.body.get("position").and_then(Value::as_i64), e.id.clone()));
    }
    all
}

/// The rights that a rule runs with.
fn run_as(rule: &Entity) -> Rights {
    let triples = rule.sealed.get(RUN_AS).and_then(Value::as_array);
    let triples: Vec<Triple> = triples.into_iter().flatten().filter_map(|t| Triple::of_json(t).ok()).collect();
    Rights::narrowed(&triples, None)
}

/// The subject of the rule's last editor; empty if it is unknown.
fn run_by(rule: &Entity) -> String {
    rule.sealed.get(RUN_BY).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// All stored groups as they run, without edits that wait for a deploy; each rule has the rights of its last editor.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn sources(config: &Config) -> quiver_config::Result<Vec<Source>> {
    let all = by_group(config.running(&RULE_GROUPS).await?, config.running(&RULES).await?);
    let mut sources = Vec::with_capacity(all.len());
    for ((namespace, name), stored) in all {
        let none = Map::new();
        let settings = stored.settings.as_ref().map_or(&none, |e| &e.body);
        let mut group = match settings_of(&name, settings) {
            Ok(group) => group,
            Err(problem) => {
                tracing::error!(namespace, group = name, ?problem.errors, "a group that was stored cannot run");
                continue;
            }
        };
        let (mut rights, mut ids) = (Vec::with_capacity(stored.rules.len()), Vec::with_capacity(stored.rules.len()));
        let mut editors = Vec::with_capacity(stored.rules.len());
        for entity in &stored.rules {
            match group_of(&entity.body) {
                Ok((mut of_rule, _)) => {
                    let mut rule = of_rule.rules.remove(0);
                    let mut labels = group.labels.clone();
                    labels.extend(rule.labels);
                    rule.labels = labels;
                    rule.enabled = entity.body.get("enabled") != Some(&json!(false));
                    group.rules.push(rule);
                    rights.push(run_as(entity));
                    editors.push(run_by(entity));
                    ids.push(entity.id.clone());
                }
                Err(problem) => {
                    tracing::error!(id = entity.id, ?problem.errors, "a rule that was stored cannot run");
                }
            }
        }
        group.namespace = Some(namespace.clone());
        sources.push(Source { file: namespace, group, rights, editors, ids });
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn errors_of_expressions_tell_their_place() {
        let place = |expr: &str, language: &str| {
            let rule = object(json!({"alert": "A", "expr": expr, "language": language}));
            group_of(&rule).map(drop).expect_err(expr).errors.remove(0).place
        };
        assert_eq!(place("up ==\n  sum(", "promql"), Some((2, 7)));
        assert_eq!(place("", "promql"), None, "nothing is anywhere in no text");
        assert_eq!(place("* |\n stats cuont() n", "logsql"), Some((2, 8)));
        assert_eq!(place("{\"measures\":\n []}", "olap"), Some((2, 2)));
    }

    #[test]
    fn own_fields_become_labels() {
        let rule = json!({
            "group": "g", "alert": "A", "expr": "up == 0", "for": "0s", "severity": "page", "service": "cart",
            "runbook_url": "https://r", "labels": {"service": "own"}, "annotations": {}, "record": null,
        });
        let file = Value::Object(file_rule(&object(rule)).unwrap());
        let expected = json!({
            "alert": "A", "expr": "up == 0", "labels": {"service": "own", "severity": "page"},
            "annotations": {"runbook_url": "https://r"},
        });
        assert_eq!(file, expected);
        assert!(file_rule(&object(json!({"alert": "A", "severity": "a", "labels": {"severity": "b"}}))).is_err());
    }

    #[test]
    fn what_says_nothing_is_not_written() {
        for value in [json!(null), json!("0s"), json!({}), json!(0)] {
            assert!(is_default(&value), "{value}");
        }
        for value in
            [json!(""), json!("0"), json!("1s"), json!([]), json!({"a": null}), json!(1), json!(0.5), json!(false)]
        {
            assert!(!is_default(&value), "{value}");
        }
    }

    #[test]
    fn rules_of_files_of_our_own() {
        let rule = object(json!({
            "group": "g", "namespace": "n", "position": 3, "alert": "A", "record": null, "expr": "up == 0", "for": "0s",
            "labels": {}, "annotations": {"a": "b"}, "severity": "page", "service": "", "enabled": true,
            "description": "why", "language": "promql", "id": "7", "version": 2,
        }));
        let own = |of_group: Language| Value::Object(own_rule(&rule, of_group));
        let bare = json!({
            "alert": "A", "expr": "up == 0", "annotations": {"a": "b"}, "severity": "page", "description": "why",
        });
        assert_eq!(own(Language::Promql), bare, "where it stands, and what is usual, is not said");
        let mut named = bare;
        named["language"] = json!("promql");
        assert_eq!(own(Language::Logsql), named);
        // Non-default values are kept.
        let odd = object(json!({"record": "r", "expr": "x", "enabled": false, "language": "vlogs"}));
        let expected = json!({"record": "r", "expr": "x", "enabled": false});
        assert_eq!(Value::Object(own_rule(&odd, Language::Logsql)), expected);
        assert_eq!(own_rule(&odd, Language::Olap)["language"], json!("logsql"));
    }

    #[test]
    fn groups_of_files() {
        let settings = object(json!({
            "interval": "1m", "limit": 0, "concurrency": 1, "labels": {}, "params": {"a": ["b"]}, "debug": false,
            "description": "no field of a file", "eval_offset": null,
        }));
        let expected = json!({"name": "g", "interval": "1m", "params": {"a": ["b"]}, "debug": false, "rules": [1]});
        assert_eq!(file_group("g", "prometheus", &settings, vec![json!(1)]), expected);
        let parallel = file_group("g", "vlogs", &object(json!({"concurrency": 2, "limit": 3})), Vec::new());
        assert_eq!(parallel, json!({"name": "g", "type": "vlogs", "concurrency": 2, "limit": 3, "rules": []}));
    }

    #[test]
    fn fields_of_rules_are_known() {
        let fields = |rule: Value| file_rule(&object(rule)).map(Value::Object);
        let told = |rule: Value| -> Vec<(String, &'static str)> {
            fields(rule).unwrap_err().errors.into_iter().map(|error| (error.field, error.code)).collect()
        };
        // Fields that are only shown are accepted.
        assert_eq!(
            fields(json!({"expr": "1", "interval": "1m", "limit": 5, "staged": true})).unwrap(),
            json!({"expr": "1"})
        );
        let unknown = |name: &str| (format!("/rule/{name}"), "UNKNOWN_FIELD");
        assert_eq!(told(json!({"Expr": "1", "alerts": 1})), [unknown("Expr"), unknown("alerts")]);
        let severity = ("/rule/severity".to_owned(), "INVALID_VALUE");
        assert_eq!(told(json!({"severity": "a", "labels": {"severity": "b"}})), [severity]);
        // Equal values are no contradiction; for service and runbook the labels take precedence.
        for (rule, expected) in [
            (json!({"severity": "a", "labels": {"severity": "a"}}), json!({"labels": {"severity": "a"}})),
            (json!({"service": "a", "labels": {"service": "b"}}), json!({"labels": {"service": "b"}})),
            (
                json!({"runbook_url": "u", "annotations": {"runbook_url": "v"}}),
                json!({"annotations": {"runbook_url": "v"}}),
            ),
            (json!({"service": "a", "severity": null}), json!({"labels": {"service": "a"}})),
        ] {
            assert_eq!(fields(rule.clone()).unwrap(), expected, "{rule}");
        }
        // Invalid labels are left to the parser of rules.
        assert_eq!(fields(json!({"service": "a", "labels": "x"})).unwrap(), json!({"labels": "x"}));
    }

    #[test]
    fn rules_stand_in_their_groups_in_order() {
        let entity = |id: &str, body: Value| Entity::for_tests(id, body);
        let rule = |id: &str, group: &str, position: Value| {
            entity(id, json!({"namespace": "n", "group": group, "position": position}))
        };
        let groups = vec![
            entity("g1", json!({"namespace": "n", "name": "a"})),
            entity("g2", json!({"namespace": "m", "name": "a"})),
        ];
        let rules = vec![
            rule("r4", "a", json!(2)),
            rule("r3", "a", json!(1)),
            rule("r2", "a", json!(2)),
            rule("r1", "b", json!(0)),
            rule("r0", "a", json!(null)),
        ];
        let all = by_group(groups, rules);
        let shown: Vec<(&str, &str, Option<&str>, Vec<&str>)> = all
            .iter()
            .map(|((namespace, name), stored)| {
                let ids = stored.rules.iter().map(|rule| rule.id.as_str()).collect();
                (namespace.as_str(), name.as_str(), stored.settings.as_ref().map(|e| e.id.as_str()), ids)
            })
            .collect();
        let expected = [
            ("m", "a", Some("g2"), vec![]),
            // Rules without a position come first; of two with the same position the older one does.
            ("n", "a", Some("g1"), vec!["r0", "r3", "r2", "r4"]),
            ("n", "b", None, vec!["r1"]),
        ];
        assert_eq!(shown, expected);
    }

    /// A rule runs with the rights of its last editor; with none if that is unknown.
    #[test]
    fn rights_of_rules() {
        let triple = Triple::new(quiver_types::Right::View, None, quiver_types::Services::all());
        let mut rule = Entity::for_tests("r", json!({}));
        assert_eq!((run_as(&rule).triples().len(), run_by(&rule)), (0, String::new()));
        rule.sealed.insert(RUN_AS.to_owned(), json!([triple.to_json(), {"right": "none"}, 5]));
        rule.sealed.insert(RUN_BY.to_owned(), json!("ann"));
        assert_eq!((run_as(&rule).triples(), run_by(&rule).as_str()), (&[triple][..], "ann"));
        rule.sealed.insert(RUN_AS.to_owned(), json!("all"));
        rule.sealed.insert(RUN_BY.to_owned(), json!(5));
        assert_eq!((run_as(&rule).triples().len(), run_by(&rule)), (0, String::new()));
    }

    #[test]
    fn a_service_of_ones_own_yields_to_that_of_an_element() {
        for (rule, yields) in [
            (json!({"alert": "A", "expr": "1"}), false),
            (json!({"alert": "A", "expr": "1", "service": "cart"}), true),
            (json!({"alert": "A", "expr": "1", "service": "cart", "labels": {"service": "pay"}}), false),
            (json!({"alert": "A", "expr": "1", "labels": {"service": "pay"}}), false),
        ] {
            let (group, _) = group_of(&object(rule.clone())).unwrap();
            assert_eq!((group.rules.len(), group.rules[0].service_yields), (1, yields), "{rule}");
        }
        let (group, _) =
            group_of(&object(json!({"alert": "A", "expr": "* | stats count() n", "language": "logsql"}))).unwrap();
        assert_eq!((group.language, group.name.as_str()), (Language::Logsql, "test"));
        let unknown =
            group_of(&object(json!({"alert": "A", "expr": "1", "language": "sql"}))).unwrap_err().errors.remove(0);
        assert_eq!((unknown.field.as_str(), unknown.message.as_str()), ("/rule/language", "unknown language `sql`"));
    }
}
