//! A generic webhook.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{Schema, Shape, field};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "webhook",
    field: "webhook_configs",
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
        field("url", Shape::TemplateUrl),
        field("url_file", Shape::Text),
        field("max_alerts", Shape::Count),
        field("timeout", Shape::GoDuration),
        field("payload", Shape::Any),
    ],
    check: |o| o.exactly_one(&["url", "url_file"]),
};
