//! Mattermost.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, sound, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "mattermost",
    field: "mattermost_configs",
    sends_resolved: true,
    is_delivered: true,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static FIELD: Schema = Schema {
    fields: &[field("title", Shape::Text), field("value", Shape::Text), field("short", Shape::Truth)],
    check: |o| {
        for name in ["title", "value"] {
            if !o.has(name) {
                return Err(format!("missing {name} in Mattermost field configuration"));
            }
        }
        Ok(())
    },
};

static ATTACHMENT: Schema = Schema {
    fields: &[
        field("fallback", Shape::Text),
        field("color", Shape::Text),
        field("pretext", Shape::Text),
        field("text", Shape::Text),
        field("author_name", Shape::Text),
        field("author_link", Shape::Text),
        field("author_icon", Shape::Text),
        field("title", Shape::Text),
        field("title_link", Shape::Text),
        field("fields", Shape::Objects(&FIELD)),
        field("thumb_url", Shape::Text),
        field("footer", Shape::Text),
        field("footer_icon", Shape::Text),
        field("image_url", Shape::Text),
    ],
    check: sound,
};

static PROPS: Schema = Schema { fields: &[field("card", Shape::Text)], check: sound };

static PRIORITY: Schema = Schema {
    fields: &[
        field("priority", Shape::Text),
        field("requested_ack", Shape::Truth),
        field("persistent_notifications", Shape::Truth),
    ],
    check: sound,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("webhook_url", Shape::SecretUrl),
        field("webhook_url_file", Shape::Text),
        field("channel", Shape::Text),
        text("username", r#"{{ template "mattermost.default.username" . }}"#),
        text("text", r#"{{ template "mattermost.default.text" . }}"#),
        text("fallback", r#"{{ template "mattermost.default.fallback" . }}"#),
        text("color", r#"{{ template "mattermost.default.color" . }}"#),
        field("pretext", Shape::Text),
        field("author_name", Shape::Text),
        field("author_link", Shape::Text),
        field("author_icon", Shape::Text),
        text("title", r#"{{ template "mattermost.default.title" . }}"#),
        text("title_link", r#"{{ template "mattermost.default.titlelink" . }}"#),
        field("fields", Shape::Objects(&FIELD)),
        field("thumb_url", Shape::Text),
        field("footer", Shape::Text),
        field("footer_icon", Shape::Text),
        field("image_url", Shape::Text),
        field("icon_url", Shape::Text),
        field("icon_emoji", Shape::Text),
        field("attachments", Shape::Objects(&ATTACHMENT)),
        field("type", Shape::Text),
        field("props", Shape::Object(&PROPS)),
        field("priority", Shape::Object(&PRIORITY)),
    ],
    check: |o| o.at_most_one(&["webhook_url", "webhook_url_file"]),
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    if !options.has("webhook_url") && !options.has("webhook_url_file") {
        options.inherit("webhook_url", global, "mattermost_webhook_url");
        options.inherit("webhook_url_file", global, "mattermost_webhook_url_file");
    }
    if !options.has("webhook_url") && !options.has("webhook_url_file") {
        return Err("missing webhook_url or webhook_url_file on mattermost_config".to_owned());
    }
    Ok(())
}
