//! Shows a configuration with its secrets hidden, and everything else as it was written.

use quiver_yaml::problem::Problem;
use quiver_yaml::{self as yaml, Node, NodeKind, pointer};
use serde_json::Value;

use crate::options::{SECRET, Schema, Shape, texts};
use crate::receivers::{GLOBAL, KINDS};

/// Returns a valid configuration as JSON with its secrets hidden.
///
/// # Errors
/// It is not valid YAML.
pub fn shown(text: &str) -> Result<Value, Problem> {
    let mut out = yaml::read(text)?.first().map_or(Value::Null, whole);
    let hide = &mut |_: &str, value: &mut Value, shape: Shape| match shape {
        Shape::ProxyUrl => hide_user(value),
        Shape::TemplateUrl => hide_address(value),
        _ => *value = SECRET.into(),
    };
    if let Some(global) = out.get_mut("global") {
        visit(global, &GLOBAL, "", hide);
    }
    let receivers = out.get_mut("receivers").and_then(Value::as_array_mut);
    receivers.into_iter().flatten().for_each(|receiver| of_receiver(receiver, hide));
    Ok(out)
}

/// JSON pointers to the secrets of a receiver.
pub fn receiver_secrets(receiver: &Value) -> Vec<String> {
    let mut places = Vec::new();
    of_receiver(&mut receiver.clone(), &mut |place, value, shape| note(&mut places, place, value, shape));
    places
}

/// JSON pointers to the secrets of `global`.
pub fn global_secrets(global: &Value) -> Vec<String> {
    let mut places = Vec::new();
    visit(&mut global.clone(), &GLOBAL, "", &mut |place, value, shape| note(&mut places, place, value, shape));
    places
}

fn note(places: &mut Vec<String>, place: &str, value: &Value, shape: Shape) {
    let is_secret = match (value.as_str(), shape) {
        // The URL of a proxy is secret if it contains a password.
        (Some(text), Shape::ProxyUrl) => text == SECRET || text.contains('@'),
        // The URL of a webhook is secret if it contains credentials or a query.
        (Some(text), Shape::TemplateUrl) => text == SECRET || has_user(text) || text.contains('?'),
        // In JSON a password may be a number, which stands for its text.
        _ => !value.is_object() && !value.is_array() && !value.is_null(),
    };
    if is_secret {
        places.push(place.to_owned());
    }
}

type Visit<'v> = &'v mut dyn FnMut(&str, &mut Value, Shape);

fn of_receiver(receiver: &mut Value, seen: Visit<'_>) {
    for kind in KINDS {
        let entries = receiver.get_mut(kind.field).and_then(Value::as_array_mut);
        for (n, entry) in entries.into_iter().flatten().enumerate() {
            visit(entry, kind.schema, &format!("/{}/{n}", kind.field), seen);
        }
    }
}

/// Visits the secrets of options with their pointers; empty ones are not secret.
fn visit(value: &mut Value, schema: &Schema, path: &str, seen: Visit<'_>) {
    for field in schema.fields {
        let Some(inner) = value.get_mut(field.name) else { continue };
        let at = pointer(path, field.name);
        match field.shape {
            Shape::Secret | Shape::SecretUrl | Shape::TemplateUrl | Shape::ProxyUrl
                if inner.as_str() == Some("") || inner.is_null() => {}
            Shape::Secret | Shape::SecretUrl | Shape::TemplateUrl | Shape::ProxyUrl => seen(&at, inner, field.shape),
            Shape::Object(schema) | Shape::TextOr(_, schema) => visit(inner, schema, &at, seen),
            Shape::Objects(schema) => {
                for (n, item) in inner.as_array_mut().into_iter().flatten().enumerate() {
                    visit(item, schema, &pointer(&at, n), seen);
                }
            }
            Shape::ObjectMap(schema) => {
                for (name, item) in inner.as_object_mut().into_iter().flatten() {
                    visit(item, schema, &pointer(&at, name), seen);
                }
            }
            // The values of headers.
            Shape::Texts if field.name == "secrets" => {
                for (n, item) in inner.as_array_mut().into_iter().flatten().enumerate() {
                    seen(&pointer(&at, n), item, Shape::Secret);
                }
            }
            Shape::SecretLists => {
                for (name, items) in inner.as_object_mut().into_iter().flatten() {
                    let at = pointer(&at, name);
                    for (n, item) in items.as_array_mut().into_iter().flatten().enumerate() {
                        seen(&pointer(&at, n), item, Shape::Secret);
                    }
                }
            }
            _ => {}
        }
    }
}

fn has_user(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains('@'))
}

/// Hides the secrets of a URL. The result is still a URL, since older clients of Alertmanager accept nothing else.
fn hide_address(value: &mut Value) {
    if value.as_str().is_some_and(has_user) {
        hide_user(value);
    }
    let open = value.as_str().and_then(|text| text.split_once('?')).map(|(address, _)| address.to_owned());
    if let Some(address) = open {
        *value = format!("{address}?{SECRET}").into();
    }
}

/// Hides a password within a URL; the whole URL, if the password cannot be told from the host.
fn hide_user(value: &mut Value) {
    let Some(text) = value.as_str().filter(|text| text.contains('@')) else { return };
    let Some((scheme, rest)) = text.split_once("://") else {
        *value = SECRET.into();
        return;
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A password may contain `@`, `/` or `?`. After the host these are no part of a password that a client would
    // send.
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, format!("{host}{path}")),
        None => match rest.rsplit_once('@') {
            Some((user, host)) => (user, host.to_owned()),
            None => return,
        },
    };
    let user = user.split(':').next().unwrap_or_default();
    *value = format!("{scheme}://{user}:xxxxx@{host}").into();
}

/// Converts a configuration to JSON as it is written. Where a string is expected `012` and `yes` stay strings.
pub fn config_json(text: &str) -> Option<Value> {
    yaml::read(text).ok()?.first().map(whole)
}

/// Converts the integrations in a field of a receiver to JSON; `None` if the field belongs to no kind of integration.
pub fn integrations_json(field: &str, node: &Node) -> Option<Value> {
    let kind = KINDS.iter().find(|kind| kind.field == field)?;
    Some(match &node.kind {
        NodeKind::List(items) => items.iter().map(|item| kind.schema.json(item)).collect(),
        _ => node.to_json(),
    })
}

fn whole(node: &Node) -> Value {
    members(node, |name, value| match (name, &value.kind) {
        ("global", _) => GLOBAL.json(value),
        ("route", _) => route(value),
        ("receivers", NodeKind::List(items)) => items.iter().map(receiver).collect(),
        ("tracing" | "event_recorder", _) => value.to_json(),
        _ => texts(value),
    })
}

fn route(node: &Node) -> Value {
    members(node, |name, value| match (name, &value.kind) {
        ("continue", _) => value.to_json(),
        ("routes", NodeKind::List(items)) => items.iter().map(route).collect(),
        _ => texts(value),
    })
}

fn receiver(node: &Node) -> Value {
    members(node, |name, value| integrations_json(name, value).unwrap_or_else(|| texts(value)))
}

/// Converts a mapping, each value depending on its name.
fn members(node: &Node, of: impl Fn(&str, &Node) -> Value) -> Value {
    let NodeKind::Map(pairs) = &node.kind else { return node.to_json() };
    Value::Object(pairs.iter().map(|(key, value)| (key.text.clone(), of(&key.text, value))).collect())
}

/// The value that Go reads from a text as YAML; an empty text is null. `None` if it is not YAML, or is a string
/// itself.
pub fn json_of(text: &str) -> Option<Value> {
    let Some(node) = yaml::read_first(text).ok()? else {
        // A text with only document markers is not a document.
        let is_empty = text.lines().map(|line| line.trim_matches(' ')).all(|l| l.is_empty() || l.starts_with('#'));
        return is_empty.then_some(Value::Null);
    };
    Some(decoded(&node)).filter(|value| !value.is_string())
}

/// Converts a node to JSON, leaving out keys that are not strings; of duplicate keys the last one counts.
fn decoded(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Null | NodeKind::Scalar { .. } => node.to_json(),
        NodeKind::List(items) => items.iter().map(decoded).collect(),
        NodeKind::Map(pairs) => {
            let texts = pairs.iter().filter(|(key, _)| key.is_text());
            texts.map(|(key, value)| (key.text.clone(), decoded(value))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden() {
        let text = "global: {smtp_auth_password: p4ss, slack_api_url: 'http://h/p4ss', smtp_from: me}\n\
            route: {receiver: a, group_wait: 1m}\n\
            receivers:\n- name: a\n  webhook_configs:\n  - url: 'http://h/a@b?p4ss'\n    max_alerts: 3\n    \
            http_config: {basic_auth: {username: u, password: p4ss}, proxy_url: 'http://u:p4ss@h', \
            proxy_connect_header: {P/Q: [p4ss]}, \
            http_headers: {X: {secrets: [p4ss], values: [v]}}}\n  slack_configs: [{channel: c}]\n";
        crate::config::Config::load(text).expect("valid");
        let shown = shown(text).expect("valid");
        let written = yaml::write(&shown);
        assert!(!written.contains("p4ss"), "{written}");
        assert_eq!(written.matches("<secret>").count(), 6, "{written}");
        // The result is itself a valid configuration.
        crate::config::Config::load(&written).unwrap_or_else(|e| panic!("{e}: {written}"));
        assert_eq!(json_of("{a: [1, true]}"), Some(serde_json::json!({"a": [1, true]})));
        let check = |text: &str, expected: Option<Value>| assert_eq!(json_of(text), expected, "{text}");
        check("a: 1\na: 2", Some(serde_json::json!({"a": 2})));
        check("a: b\n---\nc", Some(serde_json::json!({"a": "b"})));
        check("12: x\nyes: y\n'5': z", Some(serde_json::json!({"5": "z"})));
        check("# c\n  # d", Some(Value::Null));
        check("...", None);
        assert_eq!([json_of(""), json_of("null"), json_of("a # b")], [Some(Value::Null), Some(Value::Null), None]);
        let receiver = &yaml::read(text).expect("valid")[0].to_json()["receivers"][0];
        let places = receiver_secrets(receiver);
        let within = "/webhook_configs/0/http_config";
        let expected =
            ["/basic_auth/password", "/proxy_url", "/proxy_connect_header/P~1Q/0", "/http_headers/X/secrets/0"];
        let expected = expected.map(|at| format!("{within}{at}"));
        let mut found = places.clone();
        found.sort_unstable();
        let mut wanted: Vec<String> = expected.into_iter().chain(["/webhook_configs/0/url".to_owned()]).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        assert!(
            places
                .iter()
                .all(|at| receiver.pointer(at).is_some_and(|v| v.as_str().is_some_and(|t| t.contains("p4ss"))))
        );
        assert!(written.contains("http://h/a@b?<secret>"), "{written}");
        let open = serde_json::json!({"webhook_configs": [{"url": "http://h/a@b"}, {"url": "http://u@h"}]});
        assert_eq!(receiver_secrets(&open), ["/webhook_configs/1/url"]);
        assert_eq!(global_secrets(&serde_json::json!({"slack_api_url": "http://h"})), ["/slack_api_url"]);
        assert_eq!(json_of("plain"), None);
        assert_eq!(json_of("{"), None);
    }

    #[test]
    fn texts_stay_texts() {
        let text = "global: {smtp_auth_password: 0123, smtp_require_tls: no}\n\
            route: {receiver: 010, routes: [{continue: yes, match: {a: yes}}]}\n\
            receivers:\n- name: 010\n  slack_configs:\n  - {channel: on, short_fields: yes, \
            fields: [{title: y, value: 1.50, short: no}]}\n  \
            pagerduty_configs: [{routing_key: 8e12, details: {a: 1}}]\n";
        let expected = serde_json::json!({
            "global": {"smtp_auth_password": "0123", "smtp_require_tls": false},
            "route": {"receiver": "010", "routes": [{"continue": true, "match": {"a": "yes"}}]},
            "receivers": [{
                "name": "010",
                "slack_configs": [{
                    "channel": "on", "short_fields": true, "fields": [{"title": "y", "value": "1.50", "short": false}],
                }],
                "pagerduty_configs": [{"routing_key": "8e12", "details": {"a": 1}}],
            }],
        });
        let found = config_json(text).expect("valid");
        assert_eq!(found, expected);
        assert_eq!(global_secrets(&found["global"]), ["/smtp_auth_password"]);
        // A number is as secret as a string.
        assert_eq!(global_secrets(&serde_json::json!({"smtp_auth_password": 12})), ["/smtp_auth_password"]);
    }

    /// No part of a password is shown, whatever it contains.
    #[test]
    fn passwords_of_addresses() {
        let proxy = |text: &str| {
            let mut value = Value::from(text);
            hide_user(&mut value);
            value.as_str().unwrap_or_default().to_owned()
        };
        for (text, expected) in [
            ("http://h:1", "http://h:1"),
            ("h:1", "h:1"),
            ("", ""),
            ("http://u:p@h:1/x", "http://u:xxxxx@h:1/x"),
            ("http://u@h", "http://u:xxxxx@h"),
            ("http://u:p@ss@h", "http://u:xxxxx@h"),
            ("http://:p@h", "http://:xxxxx@h"),
            ("http://u:p@h/a@b", "http://u:xxxxx@h/a@b"),
            ("http://u:p/w@h", "http://u:xxxxx@h"),
            ("u:p@h:1", SECRET),
            (SECRET, SECRET),
        ] {
            assert_eq!(proxy(text), expected, "{text}");
        }
        let hook = |text: &str| {
            let mut value = Value::from(text);
            hide_address(&mut value);
            value.as_str().unwrap_or_default().to_owned()
        };
        for (text, expected) in [
            ("http://h/a@b", "http://h/a@b"),
            ("http://h/a?k=1&l=2", "http://h/a?<secret>"),
            ("http://u:p@ss@h/a?k", "http://u:xxxxx@h/a?<secret>"),
            ("u:p@h/a", SECRET),
        ] {
            assert_eq!(hook(text), expected, "{text}");
        }
    }
}
