//! PagerDuty.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, sound, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "pagerduty",
    field: "pagerduty_configs",
    sends_resolved: true,
    is_delivered: true,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static IMAGE: Schema = Schema {
    fields: &[field("src", Shape::Text), field("alt", Shape::Text), field("href", Shape::Text)],
    check: sound,
};

static LINK: Schema = Schema { fields: &[field("href", Shape::Text), field("text", Shape::Text)], check: sound };

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("service_key", Shape::Secret),
        field("service_key_file", Shape::Text),
        field("routing_key", Shape::Secret),
        field("routing_key_file", Shape::Text),
        field("url", Shape::Url),
        text("client", r#"{{ template "pagerduty.default.client" . }}"#),
        text("client_url", r#"{{ template "pagerduty.default.clientURL" . }}"#),
        text("description", r#"{{ template "pagerduty.default.description" .}}"#),
        field("details", Shape::Any),
        field("images", Shape::Objects(&IMAGE)),
        field("links", Shape::Objects(&LINK)),
        field("source", Shape::Text),
        field("severity", Shape::Text),
        field("class", Shape::Text),
        field("component", Shape::Text),
        field("group", Shape::Text),
        field("timeout", Shape::GoDuration),
    ],
    check: |o| {
        if !["routing_key", "service_key", "routing_key_file", "service_key_file"].iter().any(|name| o.has(name)) {
            return Err("missing service or routing key in PagerDuty config".to_owned());
        }
        o.at_most_one(&["routing_key", "routing_key_file"])?;
        o.at_most_one(&["service_key", "service_key_file"])
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("url", global, "pagerduty_url");
    if !options.has("url") {
        return Err("no global PagerDuty URL set".to_owned());
    }
    Ok(())
}
