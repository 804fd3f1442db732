//! Discord.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "discord",
    field: "discord_configs",
    sends_resolved: true,
    is_delivered: true,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit: inherit_http,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("webhook_url", Shape::SecretUrl),
        field("webhook_url_file", Shape::Text),
        field("content", Shape::Text),
        text("title", r#"{{ template "discord.default.title" . }}"#),
        text("message", r#"{{ template "discord.default.message" . }}"#),
        field("username", Shape::Text),
        field("avatar_url", Shape::Text),
    ],
    check: |o| o.exactly_one(&["webhook_url", "webhook_url_file"]),
};
