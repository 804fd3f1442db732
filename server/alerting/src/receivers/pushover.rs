//! Pushover.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{FieldDef, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "pushover",
    field: "pushover_configs",
    sends_resolved: true,
    is_delivered: false,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit: inherit_http,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("user_key", Shape::Secret),
        field("user_key_file", Shape::Text),
        field("token", Shape::Secret),
        field("token_file", Shape::Text),
        text("title", r#"{{ template "pushover.default.title" . }}"#),
        text("message", r#"{{ template "pushover.default.message" . }}"#),
        text("url", r#"{{ template "pushover.default.url" . }}"#),
        field("url_title", Shape::Text),
        field("device", Shape::Text),
        field("sound", Shape::Text),
        text("priority", r#"{{ if eq .Status "firing" }}2{{ else }}0{{ end }}"#),
        FieldDef { name: "retry", shape: Shape::GoDuration, default: "1m" },
        FieldDef { name: "expire", shape: Shape::GoDuration, default: "1h" },
        field("ttl", Shape::GoDuration),
        field("html", Shape::Truth),
        field("monospace", Shape::Truth),
    ],
    check: |o| {
        o.exactly_one(&["user_key", "user_key_file"])?;
        o.exactly_one(&["token", "token_file"])?;
        if o.truth("html") && o.truth("monospace") {
            return Err("at most one of monospace & html must be configured".to_owned());
        }
        Ok(())
    },
};
