//! Compiles the rules of resource types into few queries: rules that read only services and resource attributes share
//! one.

use std::collections::BTreeSet;

use quiver_config::Entity;
use quiver_config::json::text;
use quiver_query::quoting;
use quiver_types::condition::{Condition, FieldName, NameTemplate};
use serde_json::{Map, Value};

/// The signal that a query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Signal {
    Spans,
    Logs,
    Metrics,
}

/// A discovery rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) type_id: String,
    pub(super) type_key: String,
    /// The identity keys in order, with the fields that they are read from; then other attributes.
    pub(super) identity: Vec<(String, FieldName)>,
    pub(super) keys: usize,
    pub(super) condition: Option<Condition>,
    pub(super) name: NameTemplate,
}

/// A query for the distinct values of some fields.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) signal: Signal,
    pub(super) fields: Vec<FieldName>,
    pub(super) rules: Vec<Rule>,
    /// Whether its rows describe senders of telemetry, and not what they called.
    pub(super) is_sender: bool,
}

fn service() -> FieldName {
    FieldName::parse("service.name")
}

fn of_sender(field: &FieldName) -> bool {
    matches!(field, FieldName::Resource(_)) || *field == service()
}

/// The column of a field; `None` if the signal has no such text field.
pub(super) fn column_of(signal: Signal, field: &FieldName) -> Option<String> {
    let plain = |key: &str| -> String {
        key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
    };
    Some(match (signal, field) {
        (_, FieldName::Intrinsic("service.name")) => "service_name".to_owned(),
        (Signal::Spans, FieldName::Intrinsic("span.name")) => "name".to_owned(),
        (Signal::Spans, FieldName::Intrinsic("span.kind")) => "lower(kind)".to_owned(),
        (Signal::Spans, FieldName::Intrinsic("span.status")) => "lower(status_code)".to_owned(),
        (Signal::Spans, FieldName::Resource(key)) => quoting::name(&format!("resource.{key}")),
        (Signal::Spans, FieldName::Attribute(key)) => quoting::name(&format!("attributes.{key}")),
        (Signal::Spans, FieldName::Bare(key)) => {
            let of = |place: &str| format!("CAST({} AS VARCHAR)", quoting::name(&format!("{place}.{key}")));
            format!("coalesce({}, {})", of("attributes"), of("resource"))
        }
        (Signal::Logs, FieldName::Intrinsic("_msg")) => "message".to_owned(),
        (Signal::Logs, FieldName::Intrinsic("severity")) => {
            format!("coalesce({}, severity_text, {})", quoting::name("severity"), quoting::name("level"))
        }
        (Signal::Logs, FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key)) => {
            quoting::name(key)
        }
        (Signal::Metrics, FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key)) => {
            let (own, other) =
                (quoting::name(&format!("labels.{key}")), quoting::name(&format!("labels.{}", plain(key))));
            if own == other { own } else { format!("coalesce({own}, {other})") }
        }
        (_, FieldName::Intrinsic(_)) => return None,
    })
}

fn rules_of(of: &Entity) -> Vec<(Signal, Rule)> {
    let keys: Vec<&str> = list(&of.body, "identityKeys").iter().filter_map(Value::as_str).collect();
    let mut found = Vec::new();
    for rule in list(&of.body, "discovery").iter().filter_map(Value::as_object) {
        let signal = match text(rule, "signal") {
            "spans" => Signal::Spans,
            "logs" => Signal::Logs,
            "metrics" => Signal::Metrics,
            _ => continue,
        };
        let Some(Value::Object(identity)) = rule.get("identity") else { continue };
        let field = |key: &str| identity.get(key).and_then(Value::as_str).map(FieldName::parse);
        let own: Option<Vec<(String, FieldName)>> = keys.iter().map(|k| Some(((*k).to_owned(), field(k)?))).collect();
        let Some(mut own) = own.filter(|own| !own.is_empty()) else { continue };
        let others = identity.keys().filter(|k| !keys.contains(&k.as_str()));
        own.extend(others.filter_map(|k| Some((k.clone(), field(k)?))));
        let condition = match rule.get("condition").filter(|c| !c.is_null()).map(Condition::parse) {
            None => None,
            Some(Ok(condition)) => Some(condition),
            Some(Err(_)) => continue,
        };
        let Ok(name) = NameTemplate::parse(text(rule, "name")) else { continue };
        let (type_id, type_key) = (of.id.clone(), text(&of.body, "key").to_owned());
        found.push((signal, Rule { type_id, type_key, identity: own, keys: keys.len(), condition, name }));
    }
    found
}

fn list<'a>(body: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    body.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Rule {
    fn fields(&self) -> BTreeSet<FieldName> {
        let identity = self.identity.iter().map(|(_, field)| field);
        let condition = self.condition.iter().flat_map(Condition::fields);
        identity.chain(condition).chain(self.name.fields()).cloned().collect()
    }
}

/// The queries that all rules need.
pub(super) fn of_types(types: &[Entity]) -> Vec<Probe> {
    let mut probes: Vec<Probe> = Vec::new();
    for (signal, rule) in types.iter().flat_map(rules_of) {
        let fields = rule.fields();
        if let Some(unknown) = fields.iter().find(|field| column_of(signal, field).is_none()) {
            tracing::debug!(kind = rule.type_key, "a rule of discovery names `{unknown}`, by which nothing is found");
            continue;
        }
        let is_sender = fields.iter().all(of_sender);
        let all: BTreeSet<FieldName> = fields.into_iter().chain([service()]).collect();
        let same = |probe: &&mut Probe| {
            let alike = probe.is_sender || probe.fields.iter().cloned().collect::<BTreeSet<_>>() == all;
            probe.signal == signal && probe.is_sender == is_sender && alike
        };
        match probes.iter_mut().find(same) {
            Some(probe) => {
                let new: Vec<FieldName> = all.into_iter().filter(|field| !probe.fields.contains(field)).collect();
                probe.fields.extend(new);
                probe.rules.push(rule);
            }
            None => probes.push(Probe { signal, fields: all.into_iter().collect(), rules: vec![rule], is_sender }),
        }
    }
    probes
}

/// How to find a resource in spans: the columns of its identity with their values, and whether they describe the
/// sender.
pub(crate) fn identity_of(of: &Entity, resource: &Entity) -> Option<(Vec<(String, String)>, bool)> {
    let (_, rule) = rules_of(of).into_iter().find(|(signal, _)| *signal == Signal::Spans)?;
    let attributes = resource.body.get("attributes")?.as_object()?;
    let mut columns = Vec::new();
    for (key, field) in rule.identity.iter().take(rule.keys) {
        let value = match attributes.get(key)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        columns.push((column_of(Signal::Spans, field)?, value));
    }
    let is_sender = rule.identity.iter().take(rule.keys).all(|(_, field)| of_sender(field));
    Some((columns, is_sender))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns() {
        let check = |signal, field: &str, expected: Option<&str>| {
            assert_eq!(column_of(signal, &FieldName::parse(field)).as_deref(), expected, "{field}");
        };
        check(Signal::Spans, "service.name", Some("service_name"));
        check(Signal::Spans, "resource.a\"b", Some("\"resource.a\"\"b\""));
        check(Signal::Spans, "span.durationMs", None);
        check(Signal::Logs, "resource.host.name", Some("\"host.name\""));
        check(Signal::Metrics, "host.name", Some("coalesce(\"labels.host.name\", \"labels.host_name\")"));
        check(Signal::Metrics, "_msg", None);
    }

    fn kind(id: &str, keys: &Value, rules: &Value) -> Entity {
        Entity::for_tests(id, json!({"key": format!("{id}_key"), "identityKeys": keys, "discovery": rules}))
    }

    fn rule(signal: &str, identity: &Value) -> Value {
        json!({"signal": signal, "identity": identity, "name": "{service.name}"})
    }

    #[test]
    fn rules_that_find_nothing_are_left_out() {
        let identity = json!({"id": "resource.host.id"});
        let good = rule("spans", &identity);
        let with = |name: &str, value: Value| {
            let mut rule = good.clone();
            rule[name] = value;
            rule
        };
        let count = |keys: Value, rules: Value| rules_of(&kind("t", &keys, &rules)).len();
        assert_eq!(count(json!(["id"]), json!([good])), 1);
        for signal in [json!("events"), json!("Spans"), json!(""), json!(5), json!(null)] {
            assert_eq!(count(json!(["id"]), json!([with("signal", signal.clone())])), 0, "{signal}");
        }
        for identity in [json!(null), json!([]), json!("id"), json!({}), json!({"id": 5}), json!({"other": "a"})] {
            assert_eq!(count(json!(["id"]), json!([with("identity", identity.clone())])), 0, "{identity}");
        }
        for keys in [json!([]), json!(null), json!("id"), json!([5]), json!(["id", "none"])] {
            assert_eq!(count(keys.clone(), json!([good])), 0, "{keys}");
        }
        let condition = json!({"field": "a", "op": "eq", "value": "b"});
        assert_eq!(count(json!(["id"]), json!([with("condition", condition)])), 1);
        assert_eq!(count(json!(["id"]), json!([with("condition", json!(null))])), 1);
        assert_eq!(count(json!(["id"]), json!([with("condition", json!({"field": "a"}))])), 0);
        // The other rules of the type are kept.
        assert_eq!(count(json!(["id"]), json!([5, with("signal", json!("x")), good, good])), 2);
        assert_eq!(count(json!(["id"]), json!({"0": good})), 0);
    }

    #[test]
    fn keys_come_first_and_in_their_order() {
        let identity = json!({"a": "resource.a", "b": "resource.b", "c": "resource.c", "d": 5});
        let found = rules_of(&kind("t", &json!(["c", "a"]), &json!([rule("logs", &identity)])));
        let (signal, one) = &found[0];
        assert_eq!((*signal, one.keys, one.type_id.as_str(), one.type_key.as_str()), (Signal::Logs, 2, "t", "t_key"));
        let names: Vec<&str> = one.identity.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"], "what names no field is none of it");
    }

    /// Rules about senders share a query whatever identifies them; rules about callees share it if they read the same
    /// fields.
    #[test]
    fn rules_share_questions() {
        let one =
            |id: &str, signal: &str, field: &str| kind(id, &json!(["k"]), &json!([rule(signal, &json!({"k": field}))]));
        let probes = of_types(&[
            one("a", "spans", "resource.host"),
            one("b", "spans", "resource.pod"),
            one("c", "metrics", "resource.host"),
            one("d", "spans", "attributes.db"),
            one("e", "spans", "attributes.db"),
            one("f", "spans", "attributes.queue"),
            // No query can be made for this one.
            one("g", "metrics", "_msg"),
        ]);
        let shown: Vec<(Signal, bool, Vec<&str>)> = probes
            .iter()
            .map(|probe| {
                (probe.signal, probe.is_sender, probe.rules.iter().map(|rule| rule.type_id.as_str()).collect())
            })
            .collect();
        let expected = [
            (Signal::Spans, true, vec!["a", "b"]),
            (Signal::Metrics, true, vec!["c"]),
            (Signal::Spans, false, vec!["d", "e"]),
            (Signal::Spans, false, vec!["f"]),
        ];
        assert_eq!(shown, expected);
        let fields: BTreeSet<String> = probes[0].fields.iter().map(ToString::to_string).collect();
        let expected = ["resource.host", "resource.pod", "service.name"].map(str::to_owned);
        assert_eq!(fields, BTreeSet::from(expected), "each field is asked once");
        assert_eq!(probes[0].fields.len(), 3);
    }

    #[test]
    fn where_a_resource_shows_in_spans() {
        let identity = json!({"id": "resource.host.id", "zone": "attributes.zone"});
        let rules = json!([rule("logs", &json!({"id": "x", "zone": "y"})), rule("spans", &identity)]);
        let of = |keys: Value, attributes: Value| {
            identity_of(&kind("t", &keys, &rules), &Entity::for_tests("r", json!({"attributes": attributes})))
        };
        let columns = |pairs: &[(&str, &str)], is_sender: bool| {
            let pairs = pairs.iter().map(|(column, value)| ((*column).to_owned(), (*value).to_owned()));
            Some((pairs.collect::<Vec<_>>(), is_sender))
        };
        let host = ("\"resource.host.id\"", "h");
        assert_eq!(of(json!(["id"]), json!({"id": "h", "zone": "z"})), columns(&[host], true));
        assert_eq!(
            of(json!(["zone", "id"]), json!({"id": "h", "zone": 5})),
            columns(&[("\"attributes.zone\"", "5"), host], false)
        );
        assert_eq!(of(json!(["zone"]), json!({"id": "h"})), None, "it lacks a key");
        assert_eq!(of(json!(["id"]), json!(null)), None);
        let of_logs = kind("t", &json!(["id"]), &json!([rule("logs", &identity)]));
        assert!(identity_of(&of_logs, &Entity::for_tests("r", json!({"attributes": {"id": "h"}}))).is_none());
    }

    #[test]
    fn columns_of_every_signal() {
        let check = |signal, field: &str, expected: Option<&str>| {
            assert_eq!(column_of(signal, &FieldName::parse(field)).as_deref(), expected, "{field}");
        };
        check(Signal::Spans, "span.name", Some("name"));
        check(Signal::Spans, "span.kind", Some("lower(kind)"));
        check(Signal::Spans, "span.status", Some("lower(status_code)"));
        check(Signal::Spans, "attributes.a", Some("\"attributes.a\""));
        let either = "coalesce(CAST(\"attributes.a\" AS VARCHAR), CAST(\"resource.a\" AS VARCHAR))";
        check(Signal::Spans, "a", Some(either));
        check(Signal::Spans, "_msg", None);
        check(Signal::Spans, "severity", None);
        check(Signal::Logs, "service.name", Some("service_name"));
        check(Signal::Logs, "_msg", Some("message"));
        check(Signal::Logs, "severity", Some("coalesce(\"severity\", severity_text, \"level\")"));
        check(Signal::Logs, "attributes.a", Some("\"a\""));
        check(Signal::Logs, "span.name", None);
        check(Signal::Metrics, "service.name", Some("service_name"));
        check(Signal::Metrics, "attributes.a", Some("\"labels.a\""));
        check(Signal::Metrics, "severity", None);
    }
}
