//! Rocket.Chat.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{Options, Schema, Shape, field, sound, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "rocketchat",
    field: "rocketchat_configs",
    sends_resolved: false,
    is_delivered: false,
    may_be_empty: true,
    schema: &SCHEMA,
    inherit,
};

static FIELD: Schema = Schema {
    fields: &[field("short", Shape::Truth), field("title", Shape::Text), field("value", Shape::Text)],
    check: sound,
};

// The fields have no explicit names in Go, so these are the ones that its YAML library derives.
static ACTION: Schema = Schema {
    fields: &[
        field("type", Shape::Text),
        field("text", Shape::Text),
        field("url", Shape::Text),
        field("imageurl", Shape::Text),
        field("iswebview", Shape::Truth),
        field("webviewheightratio", Shape::Text),
        field("msg", Shape::Text),
        field("msginchatwindow", Shape::Truth),
        field("msgprocessingtype", Shape::Text),
    ],
    check: sound,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_url", Shape::Url),
        field("token_id", Shape::Secret),
        field("token_id_file", Shape::Text),
        field("token", Shape::Secret),
        field("token_file", Shape::Text),
        field("channel", Shape::Text),
        text("color", r#"{{ if eq .Status "firing" }}red{{ else }}green{{ end }}"#),
        text("title", r#"{{ template "rocketchat.default.title" . }}"#),
        text("title_link", r#"{{ template "rocketchat.default.titlelink" . }}"#),
        text("text", r#"{{ template "rocketchat.default.text" . }}"#),
        field("fields", Shape::Objects(&FIELD)),
        field("short_fields", Shape::Truth),
        text("emoji", r#"{{ template "rocketchat.default.emoji" . }}"#),
        text("icon_url", r#"{{ template "rocketchat.default.iconurl" . }}"#),
        field("image_url", Shape::Text),
        field("thumb_url", Shape::Text),
        field("link_names", Shape::Truth),
        field("actions", Shape::Objects(&ACTION)),
    ],
    check: |o| {
        o.at_most_one(&["token", "token_file"])?;
        o.at_most_one(&["token_id", "token_id_file"])
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("api_url", global, "rocketchat_api_url");
    for (name, file, words) in [("token_id", "token_id_file", "TokenID"), ("token", "token_file", "Token")] {
        options.inherit(name, global, if name == "token" { "rocketchat_token" } else { "rocketchat_token_id" });
        options.inherit(
            file,
            global,
            if name == "token" { "rocketchat_token_file" } else { "rocketchat_token_id_file" },
        );
        if !options.is_given(name) && !options.has(file) {
            return Err(format!("no global Rocketchat {words} set either inline or in a file"));
        }
    }
    Ok(())
}
