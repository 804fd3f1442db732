//! VictorOps.

use super::kind::{IntegrationKind, inherit_api};
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "victorops",
    field: "victorops_configs",
    sends_resolved: true,
    is_delivered: false,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

/// Fields that every message has.
const FIXED: [&str; 7] = [
    "routing_key",
    "message_type",
    "state_message",
    "entity_display_name",
    "monitoring_tool",
    "entity_id",
    "entity_state",
];

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_key", Shape::Secret),
        field("api_key_file", Shape::Text),
        field("api_url", Shape::Url),
        field("routing_key", Shape::Text),
        text("message_type", "CRITICAL"),
        text("state_message", r#"{{ template "victorops.default.state_message" . }}"#),
        text("entity_display_name", r#"{{ template "victorops.default.entity_display_name" . }}"#),
        text("monitoring_tool", r#"{{ template "victorops.default.monitoring_tool" . }}"#),
        field("custom_fields", Shape::TextMap),
    ],
    check: |o| {
        if !o.has("routing_key") {
            return Err("missing Routing key in VictorOps config".to_owned());
        }
        o.at_most_one(&["api_key", "api_key_file"])?;
        let given = |name: &&&str| o.text_map("custom_fields").is_some_and(|fields| fields.contains_key(**name));
        match FIXED.iter().find(given) {
            Some(name) => {
                let conflict = "which cannot be used as it conflicts with the fixed/static fields";
                Err(format!("victorOps config contains custom field {name} {conflict}"))
            }
            None => Ok(()),
        }
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    let missing = ["no global VictorOps URL set", "no global VictorOps API Key set"];
    inherit_api(options, global, "victorops", missing)
}
