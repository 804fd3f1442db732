//! Message fields that several kinds of integrations share.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value as Json};

use super::super::message::Message;

/// Puts a text into an object, unless it is empty.
pub(super) fn put(map: &mut Map<String, Json>, name: &str, text: String) {
    if !text.is_empty() {
        map.insert(name.to_owned(), text.into());
    }
}

/// The name of a group for others, who know it again by it: SHA-256 of its key in hex.
pub(super) fn key_hash(message: &Message) -> String {
    text_hash(&message.group_key)
}

pub(super) fn text_hash(text: &str) -> String {
    quiver_types::hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Labels that all alerts of a message share.
pub(super) fn common_labels(message: &Message) -> BTreeMap<String, String> {
    let mut alerts = message.alerts.iter();
    let first = alerts.next().map(|a| a.labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect());
    let mut out: BTreeMap<String, String> = first.unwrap_or_default();
    alerts.for_each(|a| out.retain(|name, value| a.labels.get(name) == value));
    out
}
