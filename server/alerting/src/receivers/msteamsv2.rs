//! Microsoft Teams, by workflows.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{OptionValue, Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "msteamsv2",
    field: "msteamsv2_configs",
    sends_resolved: true,
    is_delivered: true,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("webhook_url", Shape::SecretUrl),
        field("webhook_url_file", Shape::Text),
        text("title", r#"{{ template "msteamsv2.default.title" . }}"#),
        text("text", r#"{{ template "msteamsv2.default.text" . }}"#),
    ],
    check: |o| o.exactly_one(&["webhook_url", "webhook_url_file"]),
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    // A receiver with its own HTTP configuration inherits only the proxy, if it has none.
    if let (Some(own), Some(common)) = (options.object("http_config"), global.object("http_config"))
        && !own.has("proxy_url")
        && common.has("proxy_url")
    {
        let mut own = own.clone();
        own.inherit("proxy_url", common, "proxy_url");
        options.set("http_config", OptionValue::Object(own));
    }
    Ok(())
}
