//! Receivers: the kinds of integrations, their options, and constraints between these.
//!
//! One file per kind: its fields with their defaults, its checks, what it inherits from the globals.

#![expect(clippy::unnecessary_wraps, reason = "kinds share the signature of what they inherit, which some refuse")]

mod discord;
pub mod email;
mod incidentio;
mod jira;
mod kind;
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
use quiver_yaml::problem::Problems;

use crate::options::http::{HTTP, TLS};
use crate::options::{FieldDef, OptionValue, Options, Schema, Shape, field};

pub use kind::{Integration, IntegrationKind};

/// All kinds; integrations of a receiver come in this order.
pub static KINDS: &[&IntegrationKind] = &[
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

const fn with_default(name: &'static str, shape: Shape, default: &'static str) -> FieldDef {
    FieldDef { name, shape, default }
}

/// Fields of `global`, which entries of receivers inherit.
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
pub fn kind(name: &str) -> Option<&'static IntegrationKind> {
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

    /// What is said of one integration of a kind, with some globals; nothing: it is accepted.
    fn told(global: &str, kind: &str, entry: &str) -> String {
        let text = format!(
            "global: {{{global}}}\nroute: {{receiver: a}}\nreceivers: [{{name: a, {kind}_configs: [{entry}]}}]\n"
        );
        match crate::config::Config::load(&text) {
            Ok(_) => String::new(),
            Err(problems) => problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("; "),
        }
    }

    /// Each entry without globals, with the words of its refusal.
    fn check(kind: &str, cases: &[(&str, &str)]) {
        for (entry, expected) in cases {
            let told = told("", kind, entry);
            assert_eq!(told.is_empty(), expected.is_empty(), "{kind} {entry}: {told}");
            assert!(told.contains(expected), "{kind} {entry}: {told}");
        }
    }

    #[test]
    fn chats() {
        check(
            "slack",
            &[
                ("{api_url: 'http://h'}", ""),
                ("{app_token: t}", ""),
                ("{}", "no Slack API URL nor App token set either inline or in a file"),
                ("~", "no Slack API URL nor App token set"),
                ("{api_url: 'http://h', api_url_file: f}", "at most one of api_url & api_url_file"),
                ("{app_token: t, app_token_file: f}", "at most one of app_token & app_token_file"),
                (
                    "{api_url: 'http://h', app_token: t}",
                    "at most one of api_url/api_url_file & app_token/app_token_file",
                ),
                ("{app_token: t, http_config: {authorization: {credentials: c}}}", "http authorization can't be set"),
                ("{api_url: 'http://h', update_message: true}", "update_message can only be used with bot tokens"),
                ("{api_url: 'http://h', fields: [{title: t, value: v, short: true}]}", ""),
                ("{api_url: 'http://h', fields: [{title: t}]}", "missing value in Slack field configuration"),
                ("{api_url: 'http://h', fields: [{value: v}]}", "missing title in Slack field configuration"),
                ("{api_url: 'http://h', actions: [{text: t, url: u}]}", "missing type in Slack action configuration"),
                ("{api_url: 'http://h', actions: [{type: t, url: u}]}", "missing text in Slack action configuration"),
                ("{api_url: 'http://h', actions: [{type: t, text: u}]}", "missing name or url in Slack action"),
                ("{api_url: 'http://h', actions: [{type: t, text: u, name: n}]}", ""),
                (
                    "{api_url: 'http://h', actions: [{type: t, text: u, name: n, confirm: {}}]}",
                    "missing text in Slack conf",
                ),
                ("{api_url: nonsense}", "unsupported scheme \"\" for URL"),
            ],
        );
        check(
            "discord",
            &[
                ("{webhook_url: 'http://h'}", ""),
                ("{webhook_url_file: f}", ""),
                ("{}", "one of webhook_url or webhook_url_file must be configured"),
                ("~", "missing discord config"),
                ("{webhook_url: 'http://h', webhook_url_file: f}", "at most one of webhook_url & webhook_url_file"),
                ("{webhook_url: 'gopher://h'}", "unsupported scheme"),
            ],
        );
        for kind in ["msteams", "msteamsv2"] {
            check(
                kind,
                &[
                    ("{webhook_url: 'https://h/x'}", ""),
                    ("{title: t}", "one of webhook_url or webhook_url_file must be configured"),
                    ("{webhook_url: 'http://h', text: [a]}", "wanted a text, got a list"),
                ],
            );
        }
        check(
            "telegram",
            &[
                ("{bot_token: t, chat_id: -5}", ""),
                ("{bot_token: t, chat_id_file: f}", ""),
                ("{bot_token: t}", "missing chat_id or chat_id_file on telegram_config"),
                ("{bot_token: t, chat_id: 0}", "missing chat_id or chat_id_file"),
                ("{bot_token: t, chat_id: 1, chat_id_file: f}", "at most one of chat_id & chat_id_file"),
                ("{bot_token: t, bot_token_file: f, chat_id: 1}", "at most one of bot_token & bot_token_file"),
                ("{chat_id: 1}", "missing bot_token or bot_token_file on telegram_config"),
                ("{bot_token: t, chat_id: one}", "wanted a whole number, got `one`"),
                ("{bot_token: t, chat_id: 1, parse_mode: ''}", ""),
                ("{bot_token: t, chat_id: 1, parse_mode: MarkdownV2}", ""),
                ("{bot_token: t, chat_id: 1, parse_mode: markdown}", "unknown parse_mode on telegram_config"),
            ],
        );
        check(
            "webex",
            &[
                ("{room_id: r, http_config: {authorization: {credentials: c}}}", ""),
                ("{room_id: r}", "missing webex_configs.http_config.authorization"),
                ("{http_config: {authorization: {credentials: c}}}", "missing room_id on webex_config"),
            ],
        );
    }

    #[test]
    fn pagers() {
        check(
            "pagerduty",
            &[
                ("{routing_key: k}", ""),
                ("{service_key_file: f}", ""),
                ("{}", "missing service or routing key in PagerDuty config"),
                ("{routing_key: k, routing_key_file: f}", "at most one of routing_key & routing_key_file"),
                ("{service_key: k, service_key_file: f}", "at most one of service_key & service_key_file"),
                ("{routing_key: k, service_key: k}", ""),
                ("{routing_key: k, url: 'ftp://h'}", "unsupported scheme"),
                ("{routing_key: k, images: [{src: s, link: l}]}", "unknown field `link`"),
                ("{routing_key: k, details: {a: {b: [1]}}}", ""),
            ],
        );
        check(
            "opsgenie",
            &[
                ("{api_key: k}", ""),
                ("{}", "no global OpsGenie API Key set either inline or in a file"),
                ("{api_key: k, api_key_file: f}", "at most one of api_key & api_key_file"),
                ("{api_key: k, responders: [{name: n, type: Team}]}", ""),
                ("{api_key: k, responders: [{name: n, type: '{{ .Status }}'}]}", ""),
                ("{api_key: k, responders: [{type: team}]}", "has to have at least one of id, username or name"),
                ("{api_key: k, responders: [{id: i, type: robot}]}", "responder type `robot` is none of team, teams"),
                ("{api_key: k, responders: [{id: i}]}", "responder type `` is none of"),
                ("{api_key: k, responders: [{id: i, type: '{{ .Status'}]}", "invalid template syntax"),
            ],
        );
        check(
            "victorops",
            &[
                ("{api_key: k, routing_key: r}", ""),
                ("{api_key: k}", "missing Routing key in VictorOps config"),
                ("{routing_key: r}", "no global VictorOps API Key set"),
                (
                    "{api_key: k, routing_key: r, custom_fields: {entity_state: x}}",
                    "custom field entity_state which cannot",
                ),
                ("{api_key: k, routing_key: r, custom_fields: {other: x}}", ""),
            ],
        );
        check(
            "pushover",
            &[
                ("{user_key: u, token: t}", ""),
                ("{token: t}", "one of user_key or user_key_file must be configured"),
                ("{user_key: u}", "one of token or token_file must be configured"),
                ("{user_key: u, user_key_file: f, token: t}", "at most one of user_key & user_key_file"),
                ("{user_key: u, token: t, html: true, monospace: true}", "at most one of monospace & html"),
                ("{user_key: u, token: t, retry: 90}", ""),
                ("{user_key: u, token: t, expire: 1d}", "unknown unit"),
            ],
        );
        check(
            "sns",
            &[
                ("{topic_arn: x}", ""),
                ("{phone_number: x}", ""),
                ("{}", "must provide either a Target ARN, Topic ARN, or Phone Number for SNS config"),
                ("{topic_arn: x, target_arn: x}", "must provide either a Target ARN"),
                ("{topic_arn: x, sigv4: {access_key: a}}", "must provide a AWS SigV4 Access key and Secret Key"),
                ("{topic_arn: x, sigv4: {access_key: a, secret_key: s}}", ""),
            ],
        );
        check(
            "incidentio",
            &[
                ("{url: 'http://h', alert_source_token: t}", ""),
                ("{alert_source_token: t}", "one of url or url_file must be configured"),
                (
                    "{url: 'http://h', alert_source_token: t, alert_source_token_file: f}",
                    "at most one of alert_source_token",
                ),
            ],
        );
        check(
            "jira",
            &[
                ("{api_url: 'http://h', project: p, issue_type: t, summary: s}", ""),
                ("{api_url: 'http://h', project: p, issue_type: t, summary: {template: s, enable_update: no}}", ""),
                ("{api_url: 'http://h', issue_type: t}", "missing project in jira_config"),
                ("{api_url: 'http://h', project: p}", "missing issue_type in jira_config"),
                ("{project: p, issue_type: t}", "no global Jira Cloud URL set"),
                ("{api_url: 'http://h', project: p, issue_type: t, api_type: server}", "server"),
            ],
        );
    }

    #[test]
    fn webhooks_and_mail() {
        check(
            "webhook",
            &[
                ("{url: 'http://h'}", ""),
                ("{url: 'http://h/{{ .Status }}'}", ""),
                ("{url_file: f, max_alerts: 0, timeout: 1m30s}", ""),
                ("{}", "one of url or url_file must be configured"),
                ("{url: 'http://h', url_file: f}", "at most one of url & url_file must be configured"),
                ("{url: 'http://h', max_alerts: -1}", "wanted a whole number from 0, got `-1`"),
                ("{url: 'http://h', max_alerts: 1.5x}", "wanted a whole number from 0"),
                ("{url: 'http://h', timeout: 5}", ""),
                ("{url: 'http://h', timeout: 5x}", "unknown unit"),
                ("{url: 'http://h', send_resolved: maybe}", "wanted true or false, got `maybe`"),
                ("{url: 'http://h', send_resolved: 'true'}", "wanted true or false"),
                ("{url: 'http://h', Url: x}", "unknown field `Url`"),
                ("{url: [x]}", "wanted a text, got a list"),
            ],
        );
        let mail = "to: t, from: f, smarthost: 'h:25'";
        let cases = [
            ("", ""),
            ("smarthost: h", "h"),
            ("headers: {Subject: s, X-A: b}", ""),
            ("headers: {subject: s, SUBJECT: t}", "duplicate header \"Subject\" in email config"),
            ("threading: {enabled: true, thread_by_date: daily}", ""),
            ("threading: {enabled: true}", "thread_by_date must be either 'none' or 'daily'"),
            ("threading: {enabled: false, thread_by_date: x}", ""),
            (
                "threading: {enabled: true, thread_by_date: none}, headers: {in-reply-to: x}",
                "custom In-Reply-To header",
            ),
            ("tls_config: {min_version: TLS12, max_version: TLS11}", "max_version must be greater than or equal"),
        ];
        for (more, expected) in cases {
            let entry = format!("{{{}, {more}}}", if more.starts_with("smarthost") { "to: t, from: f" } else { mail });
            check("email", &[(entry.as_str(), expected)]);
        }
        check(
            "email",
            &[
                ("{from: f, smarthost: 'h:25'}", "missing to address in email config"),
                ("{to: t, smarthost: 'h:25'}", "no global SMTP from set"),
                ("{to: t, from: f}", "no global SMTP smarthost set"),
                ("~", "missing email config"),
            ],
        );
        for (name, expected) in [
            ("subject", "Subject"),
            ("IN-REPLY-TO", "In-Reply-To"),
            ("x--a-", "X--A-"),
            ("", ""),
            ("with space", "with space"),
            ("é-a", "é-a"),
        ] {
            assert_eq!(email::canonical(name), expected, "{name}");
        }
    }

    #[test]
    fn what_receivers_inherit() {
        for (global, kind, entry, expected) in [
            ("slack_api_url: 'http://h'", "slack", "~", ""),
            ("slack_api_url_file: f", "slack", "{channel: c}", ""),
            ("slack_app_token: t", "slack", "{}", ""),
            ("opsgenie_api_key: k", "opsgenie", "~", ""),
            ("victorops_api_key_file: f", "victorops", "{routing_key: r}", ""),
            ("telegram_bot_token: t", "telegram", "{chat_id: 1}", ""),
            ("jira_api_url: 'http://h'", "jira", "{project: p, issue_type: t}", ""),
            ("wechat_api_secret: s, wechat_api_corp_id: c", "wechat", "~", ""),
            ("wechat_api_secret: s", "wechat", "~", "no global Wechat CorpID set"),
            ("wechat_api_corp_id: c", "wechat", "~", "no global Wechat Api Secret set"),
            ("smtp_from: f, smtp_smarthost: 'h:25'", "email", "{to: t}", ""),
            ("smtp_from: f", "email", "{to: t}", "no global SMTP smarthost set"),
            ("http_config: {authorization: {credentials: c}}, slack_app_token: t", "slack", "{}", "http authorization"),
            (
                "slack_api_url: 'http://h', slack_api_url_file: f",
                "webhook",
                "{url: 'http://h'}",
                "at most one of slack_api_url",
            ),
            (
                "slack_app_token: t, slack_api_url: 'http://h'",
                "webhook",
                "{url: 'http://h'}",
                "at most one of slack_app_token/",
            ),
            (
                "opsgenie_api_key: k, opsgenie_api_key_file: f",
                "webhook",
                "{url: 'http://h'}",
                "at most one of opsgenie_api_key",
            ),
            (
                "smtp_auth_password: p, smtp_auth_password_file: f",
                "webhook",
                "{url: 'http://h'}",
                "at most one of smtp_auth_pass",
            ),
            ("resolve_timeout: 5", "webhook", "{url: 'http://h'}", "not a valid duration string"),
            ("pagerduty_url: nowhere", "webhook", "{url: 'http://h'}", "unsupported scheme"),
        ] {
            let told = told(global, kind, entry);
            assert_eq!(told.is_empty(), expected.is_empty(), "{global} {kind} {entry}: {told}");
            assert!(told.contains(expected), "{global} {kind} {entry}: {told}");
        }
    }
}
