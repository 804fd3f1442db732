//! Telegram.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{FieldDef, Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "telegram",
    field: "telegram_configs",
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
        field("api_url", Shape::Url),
        field("bot_token", Shape::Secret),
        field("bot_token_file", Shape::Text),
        field("chat_id", Shape::Integer),
        field("chat_id_file", Shape::Text),
        field("message_thread_id", Shape::Integer),
        text("message", r#"{{ template "telegram.default.message" . }}"#),
        field("disable_notifications", Shape::Truth),
        FieldDef { name: "parse_mode", shape: Shape::Text, default: "HTML" },
    ],
    check: |o| {
        o.at_most_one(&["bot_token", "bot_token_file"])?;
        match (o.integer("chat_id") != 0, o.has("chat_id_file")) {
            (false, false) => return Err("missing chat_id or chat_id_file on telegram_config".to_owned()),
            (true, true) => return Err("at most one of chat_id & chat_id_file must be configured".to_owned()),
            _ => {}
        }
        if !matches!(o.text("parse_mode"), "" | "Markdown" | "MarkdownV2" | "HTML") {
            let modes = "Markdown, MarkdownV2, HTML or empty string";
            return Err(format!("unknown parse_mode on telegram_config, must be {modes}"));
        }
        Ok(())
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("api_url", global, "telegram_api_url");
    if !options.has("bot_token") && !options.has("bot_token_file") {
        options.inherit("bot_token", global, "telegram_bot_token");
        options.inherit("bot_token_file", global, "telegram_bot_token_file");
    }
    if !options.has("bot_token") && !options.has("bot_token_file") {
        return Err("missing bot_token or bot_token_file on telegram_config".to_owned());
    }
    Ok(())
}
