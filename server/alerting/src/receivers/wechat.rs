//! WeChat.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{FieldDef, Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "wechat",
    field: "wechat_configs",
    sends_resolved: false,
    is_delivered: false,
    may_be_empty: true,
    schema: &SCHEMA,
    inherit,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_secret", Shape::Secret),
        field("api_secret_file", Shape::Text),
        field("corp_id", Shape::Text),
        text("message", r#"{{ template "wechat.default.message" . }}"#),
        field("api_url", Shape::Url),
        text("to_user", r#"{{ template "wechat.default.to_user" . }}"#),
        text("to_party", r#"{{ template "wechat.default.to_party" . }}"#),
        text("to_tag", r#"{{ template "wechat.default.to_tag" . }}"#),
        text("agent_id", r#"{{ template "wechat.default.agent_id" . }}"#),
        FieldDef { name: "message_type", shape: Shape::Text, default: "text" },
    ],
    check: |o| {
        if !matches!(o.text("message_type"), "" | "text" | "markdown") {
            let kind = o.text("message_type");
            return Err(format!("weChat message type \"{kind}\" does not match valid options ^(text|markdown)$"));
        }
        o.at_most_one(&["api_secret", "api_secret_file"])
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("api_url", global, "wechat_api_url");
    if !options.has("api_url") {
        return Err("no global Wechat URL set".to_owned());
    }
    if !options.has("api_secret") && !options.has("api_secret_file") {
        options.inherit("api_secret", global, "wechat_api_secret");
        options.inherit("api_secret_file", global, "wechat_api_secret_file");
    }
    if !options.has("api_secret") && !options.has("api_secret_file") {
        return Err("no global Wechat Api Secret set either inline or in a file".to_owned());
    }
    options.inherit("corp_id", global, "wechat_api_corp_id");
    if !options.has("corp_id") {
        return Err("no global Wechat CorpID set".to_owned());
    }
    Ok(())
}
