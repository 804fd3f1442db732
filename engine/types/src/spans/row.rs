//! A span as conditions and detection rules see it, whether it is being ingested or is stored.

use std::borrow::Cow;

use super::{Attributes, Value, kind_name};
use crate::condition::{FieldName, Fields};

/// Kinds of spans that take a call in: server, consumer.
const TAKES: [u8; 2] = [2, 5];
/// OTLP's flags of a span: the sender says whether the parent is remote, and it is.
const REMOTE_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;
/// Words of a status, by number.
const STATUS: [&str; 3] = ["unset", "ok", "error"];

/// A span, as conditions see it.
#[derive(Debug, Clone, Copy)]
pub struct SpanRow<'a> {
    /// Its service; empty: none.
    pub service: &'a str,
    /// Name of the operation.
    pub name: &'a str,
    /// 0 to 5, see [`super::KIND_NAMES`].
    pub kind: u8,
    /// 0 unset, 1 ok, 2 error.
    pub status: u8,
    /// Its duration in nanoseconds.
    pub duration_ns: i64,
    /// Bytes of its attributes.
    pub attributes: &'a [u8],
    /// Bytes of the attributes of its resource.
    pub resource: &'a [u8],
}

/// Finds an attribute as text.
pub fn find_text<'a>(bytes: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    Attributes::raw(bytes).find(|a| a.key == key.as_bytes())?.value().map(Value::text)
}

impl Fields for SpanRow<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let text = |text: &'static str| (!text.is_empty()).then_some(Cow::Borrowed(text));
        match name {
            FieldName::Intrinsic("span.name") => Some(Cow::Borrowed(self.name)),
            FieldName::Intrinsic("span.kind") => text(kind_name(self.kind)),
            FieldName::Intrinsic("span.status") => text(STATUS.get(usize::from(self.status)).copied().unwrap_or("")),
            FieldName::Intrinsic("span.durationMs") => Some(Cow::Owned((self.duration_ns as f64 / 1e6).to_string())),
            FieldName::Intrinsic("service.name") => (!self.service.is_empty()).then_some(Cow::Borrowed(self.service)),
            FieldName::Intrinsic(other) => find_text(self.attributes, other),
            FieldName::Resource(key) if key == "service.name" => self.get(&FieldName::Intrinsic("service.name")),
            FieldName::Resource(key) => find_text(self.resource, key),
            FieldName::Attribute(key) => find_text(self.attributes, key),
            FieldName::Bare(key) => find_text(self.attributes, key).or_else(|| find_text(self.resource, key)),
        }
    }
}

/// Says whether a span is the entry to its service: a root, or a server's or consumer's span whose parent is not known to
/// be of the same process.
pub fn is_entry(has_parent: bool, kind: u8, flags: u32) -> bool {
    let remote = flags & REMOTE_KNOWN == 0 || flags & REMOTE != 0;
    !has_parent || TAKES.contains(&kind) && remote
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries() {
        for (has_parent, kind, flags, expected) in [
            (false, 3, 0, true),
            (true, 3, 0, false),
            (true, 2, 0, true),
            (true, 5, REMOTE_KNOWN | REMOTE, true),
            (true, 2, REMOTE_KNOWN, false),
        ] {
            assert_eq!(is_entry(has_parent, kind, flags), expected, "{has_parent} {kind} {flags}");
        }
    }

    #[test]
    fn fields_of_spans() {
        let attributes = Attributes::of([("http.route", Value::Text("/a")), ("n", Value::Int(7))]);
        let resource = Attributes::of([("pod", Value::Text("p"))]);
        let row = SpanRow {
            service: "cart",
            name: "GET",
            kind: 2,
            status: 2,
            duration_ns: 1_500_000,
            attributes: attributes.bytes(),
            resource: resource.bytes(),
        };
        for (name, expected) in [
            ("span.name", Some("GET")),
            ("span.kind", Some("server")),
            ("span.status", Some("error")),
            ("span.durationMs", Some("1.5")),
            ("service.name", Some("cart")),
            ("resource.service.name", Some("cart")),
            ("http.route", Some("/a")),
            ("attributes.n", Some("7")),
            ("resource.pod", Some("p")),
            ("pod", Some("p")),
            ("attributes.pod", None),
            ("_msg", None),
        ] {
            assert_eq!(row.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        }
    }
}
