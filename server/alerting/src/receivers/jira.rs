//! Jira.

use super::kind::IntegrationKind;
use crate::options::http::HTTP;
use crate::options::{FieldDef, Options, Schema, Shape, field, sound, text};

pub(super) static KIND: IntegrationKind = IntegrationKind {
    name: "jira",
    field: "jira_configs",
    sends_resolved: true,
    is_delivered: false,
    may_be_empty: false,
    schema: &SCHEMA,
    inherit,
};

static SUMMARY: Schema = Schema {
    fields: &[text("template", r#"{{ template "jira.default.summary" . }}"#), field("enable_update", Shape::Truth)],
    check: sound,
};

static DESCRIPTION: Schema = Schema {
    fields: &[text("template", r#"{{ template "jira.default.description" . }}"#), field("enable_update", Shape::Truth)],
    check: sound,
};

static SCHEMA: Schema = Schema {
    fields: &[
        field("send_resolved", Shape::Truth),
        field("http_config", Shape::Object(&HTTP)),
        field("api_url", Shape::Url),
        FieldDef { name: "api_type", shape: Shape::Word(&["auto", "cloud", "datacenter"]), default: "auto" },
        field("project", Shape::Text),
        field("summary", Shape::TextOr("template", &SUMMARY)),
        field("description", Shape::TextOr("template", &DESCRIPTION)),
        field("labels", Shape::Texts),
        text("priority", r#"{{ template "jira.default.priority" . }}"#),
        field("issue_type", Shape::Text),
        field("reopen_transition", Shape::Text),
        field("resolve_transition", Shape::Text),
        field("wont_fix_resolution", Shape::Text),
        field("reopen_duration", Shape::Duration),
        field("fields", Shape::Any),
    ],
    check: |o| {
        for name in ["project", "issue_type"] {
            if !o.has(name) {
                return Err(format!("missing {name} in jira_config"));
            }
        }
        Ok(())
    },
};

fn inherit(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    options.inherit("api_url", global, "jira_api_url");
    if !options.has("api_url") {
        return Err("no global Jira Cloud URL set".to_owned());
    }
    Ok(())
}
