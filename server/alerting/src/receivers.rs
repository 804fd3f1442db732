//! Receivers: which integrations there are, what each is told, and what holds between its options.
//!
//! One file per kind: its fields with their defaults, its checks, what it inherits from the globals.

mod discord;
pub mod email;
mod incidentio;
mod jira;
mod mattermost;
mod msteams;
mod msteamsv2;
mod opsgenie;
mod pagerduty;
mod pushover;
mod rocketchat;
mod slack;
mod sns;
mod telegram;
mod victorops;
mod webex;
mod webhook;
mod wechat;

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use crate::config::fields::{FieldDef, field};
use crate::config::{HTTP, OptionValue, Options, Schema, Shape, TLS};

/// A kind of integration.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The field of a receiver that lists them.
    pub field: &'static str,
    /// Whether it tells of ends unless it is said otherwise.
    pub sends_resolved: bool,
    /// Whether this service delivers it; others are checked and kept.
    pub is_delivered: bool,
    /// Whether an entry may be nothing, and then is all defaults.
    may_be_empty: bool,
    /// Its options.
    pub schema: &'static Schema,
    inherit: fn(&mut Options, &Options) -> Result<(), String>,
}

/// All kinds.
pub static KINDS: &[&Kind] = &[
    &discord::KIND,
    &email::KIND,
    &incidentio::KIND,
    &pagerduty::KIND,
    &slack::KIND,
    &webhook::KIND,
    &opsgenie::KIND,
    &wechat::KIND,
    &pushover::KIND,
    &victorops::KIND,
    &sns::KIND,
    &telegram::KIND,
    &webex::KIND,
    &msteams::KIND,
    &msteamsv2::KIND,
    &jira::KIND,
    &rocketchat::KIND,
    &mattermost::KIND,
];

/// One entry of a receiver.
#[derive(Debug, Clone)]
pub struct Integration {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its place among those of its kind.
    pub idx: usize,
    /// Its options, with what it inherits.
    pub options: Options,
}

impl PartialEq for Integration {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name, self.idx, &self.options) == (other.kind.name, other.idx, &other.options)
    }
}

impl Integration {
    /// Reads an entry and gives it what it inherits.
    pub fn read(
        kind: &'static Kind,
        idx: usize,
        node: &Node,
        path: &str,
        global: &Options,
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        let mut options = if node.is_null() {
            if !kind.may_be_empty {
                problems.push(node.problem(path, Code::Required, format!("missing {} config", kind.name)));
                return None;
            }
            kind.schema.defaults()
        } else {
            kind.schema.read(node, path, problems)
        };
        if problems.len() == before
            && let Err(e) = (kind.inherit)(&mut options, global)
        {
            problems.push(node.problem(path, Code::Required, e));
        }
        Some(Self { kind, idx, options })
    }

    /// Says whether it tells of ends.
    pub fn send_resolved(&self) -> bool {
        match self.options.value("send_resolved") {
            Some(OptionValue::Truth(value)) => *value,
            _ => self.kind.sends_resolved,
        }
    }
}

const fn with_default(name: &'static str, shape: Shape, default: &'static str) -> FieldDef {
    FieldDef { name, shape, default }
}

/// `global`
pub(crate) static GLOBAL: Schema = Schema {
    fields: &[
        with_default("resolve_timeout", Shape::Duration, "5m"),
        field("http_config", Shape::Object(&HTTP)),
        field("jira_api_url", Shape::Url),
        field("smtp_from", Shape::Text),
        with_default("smtp_hello", Shape::Text, "localhost"),
        field("smtp_smarthost", Shape::HostPort),
        field("smtp_auth_username", Shape::Text),
        field("smtp_auth_password", Shape::Secret),
        field("smtp_auth_password_file", Shape::Text),
        field("smtp_auth_secret", Shape::Secret),
        field("smtp_auth_secret_file", Shape::Text),
        field("smtp_auth_identity", Shape::Text),
        with_default("smtp_require_tls", Shape::Truth, "true"),
        field("smtp_tls_config", Shape::Object(&TLS)),
        field("smtp_force_implicit_tls", Shape::Truth),
        field("slack_api_url", Shape::SecretUrl),
        field("slack_api_url_file", Shape::Text),
        field("slack_app_token", Shape::Secret),
        field("slack_app_token_file", Shape::Text),
        with_default("slack_app_url", Shape::Url, "https://slack.com/api/chat.postMessage"),
        with_default("pagerduty_url", Shape::Url, "https://events.pagerduty.com/v2/enqueue"),
        with_default("opsgenie_api_url", Shape::Url, "https://api.opsgenie.com/"),
        field("opsgenie_api_key", Shape::Secret),
        field("opsgenie_api_key_file", Shape::Text),
        with_default("wechat_api_url", Shape::Url, "https://qyapi.weixin.qq.com/cgi-bin/"),
        field("wechat_api_secret", Shape::Secret),
        field("wechat_api_secret_file", Shape::Text),
        field("wechat_api_corp_id", Shape::Text),
        with_default(
            "victorops_api_url",
            Shape::Url,
            "https://alert.victorops.com/integrations/generic/20131114/alert/",
        ),
        field("victorops_api_key", Shape::Secret),
        field("victorops_api_key_file", Shape::Text),
        with_default("telegram_api_url", Shape::Url, "https://api.telegram.org"),
        field("telegram_bot_token", Shape::Secret),
        field("telegram_bot_token_file", Shape::Text),
        with_default("webex_api_url", Shape::Url, "https://webexapis.com/v1/messages"),
        with_default("rocketchat_api_url", Shape::Url, "https://open.rocket.chat/"),
        field("rocketchat_token", Shape::Secret),
        field("rocketchat_token_file", Shape::Text),
        field("rocketchat_token_id", Shape::Secret),
        field("rocketchat_token_id_file", Shape::Text),
        field("mattermost_webhook_url", Shape::SecretUrl),
        field("mattermost_webhook_url_file", Shape::Text),
    ],
    check: check_global,
};

fn check_global(o: &Options) -> Result<(), String> {
    o.at_most_one(&["slack_app_token", "slack_app_token_file"])?;
    o.at_most_one(&["slack_api_url", "slack_api_url_file"])?;
    let either = |a: &str, b: &str| o.has(a) || o.has(b);
    if either("slack_app_token", "slack_app_token_file")
        && either("slack_api_url", "slack_api_url_file")
        && o.text("slack_api_url") != o.text("slack_app_url")
    {
        let (tokens, addresses) = ("slack_app_token/slack_app_token_file", "slack_api_url/slack_api_url_file");
        return Err(format!("at most one of {tokens} & {addresses} must be configured"));
    }
    let pairs = [
        ["opsgenie_api_key", "opsgenie_api_key_file"],
        ["victorops_api_key", "victorops_api_key_file"],
        ["telegram_bot_token", "telegram_bot_token_file"],
        ["smtp_auth_password", "smtp_auth_password_file"],
        ["rocketchat_token", "rocketchat_token_file"],
        ["rocketchat_token_id", "rocketchat_token_id_file"],
        ["smtp_auth_secret", "smtp_auth_secret_file"],
        ["wechat_api_secret", "wechat_api_secret_file"],
        ["mattermost_webhook_url", "mattermost_webhook_url_file"],
    ];
    pairs.iter().try_for_each(|pair| o.at_most_one(pair))
}

/// Reads the globals; absent: the defaults.
pub fn global(node: Option<&Node>, path: &str, problems: &mut Problems) -> Options {
    let mut out = node.map_or_else(|| GLOBAL.defaults(), |node| GLOBAL.read(node, path, problems));
    if out.object("http_config").is_none() {
        out.set("http_config", OptionValue::Object(HTTP.defaults()));
    }
    out
}

/// Finds a kind by its name.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_external_id_is_that_of_a_role() {
        let told = |text: &str| {
            let node = quiver_yaml::read(text).expect(text).remove(0);
            let mut problems = Problems::default();
            sns::KIND.schema.read(&node, "", &mut problems);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert!(told("{topic_arn: x, sigv4: {external_id: y}}").contains("only be used with role_arn"));
        assert_eq!(told("{topic_arn: x, sigv4: {external_id: y, role_arn: z}}"), "");
    }

    #[test]
    fn names_are_their_own_and_defaults_exist() {
        let names: std::collections::BTreeSet<&str> = KINDS.iter().map(|k| k.name).collect();
        assert_eq!(names.len(), KINDS.len());
        let mut templates = crate::template::default_templates();
        for kind in KINDS {
            assert_eq!(kind.field, format!("{}_configs", kind.name));
            for field in kind.schema.fields.iter().filter(|f| f.default.contains("{{")) {
                templates.add("t", field.default).expect(field.name);
                let name = field.default.split('"').nth(1).unwrap_or_default();
                let is_name = field.default.contains("template \"");
                assert!(!is_name || templates.names().any(|n| n == name), "{name}");
            }
        }
        assert_eq!(KINDS.iter().filter(|k| k.is_delivered).count(), 9);
    }
}
