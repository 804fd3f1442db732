//! Opsgenie.

use super::kind::{IntegrationKind, inherit_api};
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, is_template, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "opsgenie",
    field: "opsgenie_configs",
    sends_resolved: true,
    is_delivered: true,
    may_be_empty: true,
    schema: &SCHEMA,
    inherit,
};

const TYPES: [&str; 5] = ["team", "teams", "user", "escalation", "schedule"];

static RESPONDER: Schema = Schema {
    fields: &[
        field("id", Shape::Text),
        field("name", Shape::Text),
        field("username", Shape::Text),
        field("type", Shape::Text),
    ],
    check: |o| {
        if !["id", "name", "username"].iter().any(|name| o.has(name)) {
            return Err(
                "opsGenieConfig responder has to have at least one of id, username or name specified".to_owned()
            );
        }
        let kind = o.text("type");
        let templated = is_template(kind)
            .map_err(|e| format!("opsGenieConfig responder type contains invalid template syntax: {e}"))?;
        if !templated && !TYPES.contains(&kind.to_lowercase().as_str()) {
            return Err(format!("opsGenieConfig responder type `{kind}` is none of {}", TYPES.join(", ")));
        }
        Ok(())
    },
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_key", Shape::Secret),
        field("api_key_file", Shape::Text),
        field("api_url", Shape::Url),
        text("message", r#"{{ template "opsgenie.default.message" . }}"#),
        text("description", r#"{{ template "opsgenie.default.description" . }}"#),
        text("source", r#"{{ template "opsgenie.default.source" . }}"#),
        field("details", Shape::TextMap),
        field("entity", Shape::Text),
        field("responders", Shape::Objects(&RESPONDER)),
        field("actions", Shape::Text),
        field("tags", Shape::Text),
        field("note", Shape::Text),
        field("priority", Shape::Text),
        field("update_alerts", Shape::Truth),
    ],
    check: |o| o.at_most_one(&["api_key", "api_key_file"]),
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    let missing = ["no global OpsGenie URL set", "no global OpsGenie API Key set either inline or in a file"];
    inherit_api(options, global, "opsgenie", missing)
}
