//! Microsoft Teams, by its older connector.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "msteams",
    field: "msteams_configs",
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
        field("webhook_url", Shape::SecretUrl),
        field("webhook_url_file", Shape::Text),
        text("title", r#"{{ template "msteams.default.title" . }}"#),
        text("summary", r#"{{ template "msteams.default.summary" . }}"#),
        text("text", r#"{{ template "msteams.default.text" . }}"#),
    ],
    check: |o| o.exactly_one(&["webhook_url", "webhook_url_file"]),
};
