//! Webex.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "webex",
    field: "webex_configs",
    sends_resolved: true,
    is_delivered: false,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_url", Shape::Url),
        text("message", r#"{{ template "webex.default.message" . }}"#),
        field("room_id", Shape::Text),
    ],
    check: |o| {
        if !o.has("room_id") {
            return Err("missing room_id on webex_config".to_owned());
        }
        match o.object("http_config").and_then(|http| http.object("authorization")) {
            Some(_) => Ok(()),
            None => Err("missing webex_configs.http_config.authorization".to_owned()),
        }
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("api_url", global, "webex_api_url");
    if !options.has("api_url") {
        return Err("no global Webex URL set".to_owned());
    }
    Ok(())
}
