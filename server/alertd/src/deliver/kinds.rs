//! What each kind of integration sends. One file per kind.

mod discord;
mod email;
mod mattermost;
mod msteamsv2;
mod opsgenie;
mod pagerduty;
mod slack;
mod telegram;
mod webhook;

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json};

use super::{Call, Failure, Files, Message};

pub(super) use email::{Mail, mail};

/// A kind: its name, and what makes its calls, which are made one after the other.
struct Kind {
    name: &'static str,
    calls: fn(&Message, &Integration, &Files) -> Result<Vec<Call>, Failure>,
}

/// All kinds that are told over HTTP.
const KINDS: &[Kind] = &[
    Kind { name: "webhook", calls: webhook::calls },
    Kind { name: "slack", calls: slack::calls },
    Kind { name: "pagerduty", calls: pagerduty::calls },
    Kind { name: "opsgenie", calls: opsgenie::calls },
    Kind { name: "telegram", calls: telegram::calls },
    Kind { name: "discord", calls: discord::calls },
    Kind { name: "msteamsv2", calls: msteamsv2::calls },
    Kind { name: "mattermost", calls: mattermost::calls },
];

/// The kind that is told by mail.
pub(super) const EMAIL: &str = "email";

/// Names of all kinds that are told.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name).chain([EMAIL])
}

/// Makes the calls that tell an integration over HTTP.
///
/// # Errors
/// A template or secret cannot be had.
pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let kind = KINDS.iter().find(|kind| kind.name == integration.kind.name).expect("it is told over HTTP");
    (kind.calls)(message, integration, files)
}

/// Puts a text into an object, unless it is empty.
fn put(map: &mut Map<String, Json>, name: &str, text: String) {
    if !text.is_empty() {
        map.insert(name.to_owned(), text.into());
    }
}

/// The name of a group for others, who know it again by it: SHA-256 of its key in hex.
fn key_hash(message: &Message) -> String {
    text_hash(&message.group_key)
}

fn text_hash(text: &str) -> String {
    quiver_types::hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Labels that all alerts of a message share.
fn common_labels(message: &Message) -> BTreeMap<String, String> {
    let mut alerts = message.alerts.iter();
    let first = alerts.next().map(|a| a.labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect());
    let mut out: BTreeMap<String, String> = first.unwrap_or_default();
    alerts.for_each(|a| out.retain(|name, value| a.labels.get(name) == value));
    out
}
