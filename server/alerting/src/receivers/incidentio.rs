//! incident.io.

use super::kind::{IntegrationKind, inherit_http};
use crate::options::http::HTTP;
use crate::options::{Schema, Shape, field};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "incidentio",
    field: "incidentio_configs",
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
        field("url", Shape::Url),
        field("url_file", Shape::Text),
        field("alert_source_token", Shape::Secret),
        field("alert_source_token_file", Shape::Text),
        field("max_alerts", Shape::Count),
        field("timeout", Shape::GoDuration),
    ],
    check: |o| {
        o.exactly_one(&["url", "url_file"])?;
        o.at_most_one(&["alert_source_token", "alert_source_token_file"])?;
        let token = o.has("alert_source_token") || o.has("alert_source_token_file");
        match o.object("http_config").map(|http| http.object("authorization").is_some()) {
            Some(true) if token => {
                let tokens = "alert_source_token or alert_source_token_file";
                Err(format!("cannot specify {tokens} when using http_config.authorization"))
            }
            Some(false) if !token => {
                let all = "alert_source_token, alert_source_token_file or http_config.authorization";
                Err(format!("at least one of {all} must be configured"))
            }
            _ => Ok(()),
        }
    },
};
