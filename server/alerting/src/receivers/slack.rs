//! Slack, by webhook or by bot token.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{OptionValue, Options, Schema, Shape, field, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "slack",
    field: "slack_configs",
    sends_resolved: false,
    is_delivered: true,
    may_be_empty: true,
    schema: &SCHEMA,
    inherit,
};

const POST_MESSAGE: &str = "https://slack.com/api/chat.postMessage";

static FIELD: Schema = Schema {
    fields: &[field("title", Shape::Text), field("value", Shape::Text), field("short", Shape::Truth)],
    check: |o| {
        for name in ["title", "value"] {
            if !o.has(name) {
                return Err(format!("missing {name} in Slack field configuration"));
            }
        }
        Ok(())
    },
};

static CONFIRM: Schema = Schema {
    fields: &[
        field("text", Shape::Text),
        field("title", Shape::Text),
        field("ok_text", Shape::Text),
        field("dismiss_text", Shape::Text),
    ],
    check: |o| if o.has("text") { Ok(()) } else { Err("missing text in Slack confirmation configuration".to_owned()) },
};

static ACTION: Schema = Schema {
    fields: &[
        field("type", Shape::Text),
        field("text", Shape::Text),
        field("url", Shape::Text),
        field("style", Shape::Text),
        field("name", Shape::Text),
        field("value", Shape::Text),
        field("confirm", Shape::Object(&CONFIRM)),
    ],
    check: |o| {
        for name in ["type", "text"] {
            if !o.has(name) {
                return Err(format!("missing {name} in Slack action configuration"));
            }
        }
        if !o.has("url") && !o.has("name") {
            return Err("missing name or url in Slack action configuration".to_owned());
        }
        Ok(())
    },
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_url", Shape::SecretUrl),
        field("api_url_file", Shape::Text),
        field("app_token", Shape::Secret),
        field("app_token_file", Shape::Text),
        field("app_url", Shape::Url),
        field("channel", Shape::Text),
        text("username", r#"{{ template "slack.default.username" . }}"#),
        text("color", r#"{{ template "slack.default.color" . }}"#),
        text("title", r#"{{ template "slack.default.title" . }}"#),
        text("title_link", r#"{{ template "slack.default.titlelink" . }}"#),
        text("pretext", r#"{{ template "slack.default.pretext" . }}"#),
        text("text", r#"{{ template "slack.default.text" . }}"#),
        field("message_text", Shape::Text),
        field("fields", Shape::Objects(&FIELD)),
        field("short_fields", Shape::Truth),
        text("footer", r#"{{ template "slack.default.footer" . }}"#),
        text("fallback", r#"{{ template "slack.default.fallback" . }}"#),
        text("callback_id", r#"{{ template "slack.default.callbackid" . }}"#),
        text("icon_emoji", r#"{{ template "slack.default.iconemoji" . }}"#),
        text("icon_url", r#"{{ template "slack.default.iconurl" . }}"#),
        field("image_url", Shape::Text),
        field("thumb_url", Shape::Text),
        field("link_names", Shape::Truth),
        field("mrkdwn_in", Shape::Texts),
        field("actions", Shape::Objects(&ACTION)),
        field("update_message", Shape::Truth),
        field("timeout", Shape::GoDuration),
    ],
    check: |o| {
        o.at_most_one(&["api_url", "api_url_file"])?;
        o.at_most_one(&["app_token", "app_token_file"])?;
        let any = |a: &str, b: &str| o.has(a) || o.has(b);
        if any("api_url", "api_url_file") && any("app_token", "app_token_file") {
            return Err("at most one of api_url/api_url_file & app_token/app_token_file must be configured".to_owned());
        }
        if o.truth("update_message") && o.text("api_url") != POST_MESSAGE {
            return Err(format!(
                "update_message can only be used with bot tokens. api_url must be set to {POST_MESSAGE}"
            ));
        }
        Ok(())
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit("app_url", global, "slack_app_url");
    let authorized = options.object("http_config").is_some_and(|http| http.object("authorization").is_some());
    let token = |o: &Options| o.has("app_token") || o.has("app_token_file");
    let address = |o: &Options| o.has("api_url") || o.has("api_url_file");
    // The token of the globals is only used if the receiver has no credentials and no URL of its own.
    if !token(options) && !authorized && !options.has("api_url") {
        options.inherit("app_token", global, "slack_app_token");
        options.inherit("app_token_file", global, "slack_app_token_file");
    }
    if !address(options) {
        options.inherit("api_url", global, "slack_api_url");
        options.inherit("api_url_file", global, "slack_api_url_file");
    }
    if !address(options) && !token(options) {
        return Err("no Slack API URL nor App token set either inline or in a file".to_owned());
    }
    options.inherit_value("http_config", global, "http_config");
    if token(options) {
        if options.object("http_config").is_some_and(|http| http.object("authorization").is_some()) {
            return Err("http authorization can't be set when using Slack App tokens".to_owned());
        }
        let url = options.text("app_url").to_owned();
        options.set("api_url", OptionValue::Text(url));
    }
    Ok(())
}
