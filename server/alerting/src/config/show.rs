//! A configuration as it may be shown: secrets are hidden, everything else is as it was written.

use serde_json::Value;

use super::fields::{SECRET, Schema, Shape, any};
use crate::problem::Problem;
use crate::receivers::{GLOBAL, KINDS};
use crate::yaml;

/// Gives a configuration that was read before, with its secrets hidden.
///
/// # Errors
/// It is no YAML.
pub fn shown(text: &str) -> Result<Value, Problem> {
    let mut out = yaml::read(text)?.first().map_or(Value::Null, any);
    if let Some(global) = out.get_mut("global") {
        hide(global, &GLOBAL);
    }
    let receivers = out.get_mut("receivers").and_then(Value::as_array_mut);
    for receiver in receivers.into_iter().flatten() {
        for kind in KINDS {
            let entries = receiver.get_mut(kind.field).and_then(Value::as_array_mut);
            entries.into_iter().flatten().for_each(|entry| hide(entry, kind.schema));
        }
    }
    Ok(out)
}

fn hide(value: &mut Value, schema: &Schema) {
    for field in schema.fields {
        let Some(inner) = value.get_mut(field.name) else { continue };
        match field.shape {
            Shape::Secret | Shape::SecretUrl | Shape::TemplateUrl if inner.as_str() == Some("") || inner.is_null() => {}
            Shape::Secret | Shape::SecretUrl | Shape::TemplateUrl => *inner = SECRET.into(),
            Shape::ProxyUrl => hide_user(inner),
            Shape::Object(schema) | Shape::TextOr(_, schema) => hide(inner, schema),
            Shape::Objects(schema) => {
                inner.as_array_mut().into_iter().flatten().for_each(|item| hide(item, schema));
            }
            Shape::ObjectMap(schema) => {
                inner.as_object_mut().into_iter().flatten().for_each(|(_, item)| hide(item, schema));
            }
            // The one list of secrets there is: values of headers.
            Shape::Texts if field.name == "secrets" => {
                inner.as_array_mut().into_iter().flatten().for_each(|item| *item = SECRET.into());
            }
            _ => {}
        }
    }
}

/// Hides a password within an address.
fn hide_user(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    let Some((scheme, rest)) = text.split_once("://") else { return };
    if let Some((user, host)) = rest.split_once('@') {
        let user = user.split(':').next().unwrap_or_default();
        *value = format!("{scheme}://{user}:xxxxx@{host}").into();
    }
}

/// Reads a text as YAML reads it; none where it is none, or is a text itself.
pub fn json_of(text: &str) -> Option<Value> {
    let documents = yaml::read(text).ok()?;
    let value = any(documents.first()?);
    (documents.len() == 1 && !value.is_string()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden() {
        let text = "global: {smtp_auth_password: p4ss, slack_api_url: 'http://h/p4ss', smtp_from: me}\n\
            route: {receiver: a, group_wait: 1m}\n\
            receivers:\n- name: a\n  webhook_configs:\n  - url: 'http://h/p4ss'\n    max_alerts: 3\n    \
            http_config: {basic_auth: {username: u, password: p4ss}, proxy_url: 'http://u:p4ss@h', \
            http_headers: {X: {secrets: [p4ss], values: [v]}}}\n  slack_configs: [{channel: c}]\n";
        crate::config::Config::load(text).expect("valid");
        let shown = shown(text).expect("valid");
        let written = yaml::write(&shown);
        assert!(!written.contains("p4ss"), "{written}");
        assert_eq!(written.matches("<secret>").count(), 5, "{written}");
        // What is shown is a configuration itself.
        crate::config::Config::load(&written).unwrap_or_else(|e| panic!("{e}: {written}"));
        assert_eq!(json_of("{a: [1, true]}"), Some(serde_json::json!({"a": [1, true]})));
        assert_eq!(json_of("plain"), None);
        assert_eq!(json_of("{"), None);
    }
}
