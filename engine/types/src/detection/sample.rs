//! Examples of spans as callers write them: JSON with name, kind, service and attributes.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::condition::{FieldName, Fields};

/// Words of kinds.
const KINDS: [&str; 5] = ["internal", "server", "client", "producer", "consumer"];

/// An example of a span; it counts as a root span.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    name: Option<String>,
    kind: Option<String>,
    /// Its service; none: any that a rule asks for.
    pub service: Option<String>,
    attributes: Map<String, Value>,
}

impl Sample {
    /// Reads an example. `owner` is `service` or `application`; `more` are members that the caller reads.
    ///
    /// # Errors
    /// The member that is wrong, the stable word, and why.
    pub fn parse(value: &Value, owner: &str, more: &[&str]) -> Result<Self, (String, &'static str, String)> {
        let wrong = |at: &str, code, why: &str| Err((at.to_owned(), code, why.to_owned()));
        let Value::Object(map) = value else { return wrong("", "INVALID_TYPE", "must be an object") };
        let known = |key: &str| ["name", "kind", "attributes", owner].contains(&key) || more.contains(&key);
        if let Some(key) = map.keys().find(|key| !known(key)) {
            return wrong(&format!("/{}", key.replace('~', "~0").replace('/', "~1")), "UNKNOWN_FIELD", "is not known");
        }
        let mut texts = Vec::with_capacity(3);
        for key in ["name", "kind", owner] {
            texts.push(match map.get(key) {
                None | Some(Value::Null) => None,
                Some(Value::String(text)) => Some(text.clone()),
                Some(_) => return wrong(&format!("/{key}"), "INVALID_TYPE", "must be a text"),
            });
        }
        let attributes = match map.get("attributes") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(map)) => map.clone(),
            Some(_) => return wrong("/attributes", "INVALID_TYPE", "must be an object"),
        };
        let mut texts = texts.into_iter();
        let mut next = || texts.next().flatten();
        let (name, kind, service) = (next(), next().map(|kind| kind.to_ascii_lowercase()), next());
        if kind.as_ref().is_some_and(|kind| owner == "service" && !KINDS.contains(&kind.as_str())) {
            return wrong("/kind", "INVALID_VALUE", "must be internal, server, client, producer or consumer");
        }
        Ok(Self { name, kind, service, attributes })
    }

    /// Says whether it is of a kind; one without a kind is of any.
    pub(super) fn is_of_kind(&self, kind: &str) -> bool {
        self.kind.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(kind))
    }

    fn attribute(&self, key: &str) -> Option<Cow<'_, str>> {
        match self.attributes.get(key)? {
            Value::Null => None,
            Value::String(text) => Some(Cow::Borrowed(text)),
            other => Some(Cow::Owned(other.to_string())),
        }
    }
}

impl Fields for Sample {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let own = |text: &Option<String>| text.clone().map(Cow::Owned);
        match name {
            FieldName::Intrinsic("span.name") => own(&self.name).or_else(|| self.attribute("span.name")),
            FieldName::Intrinsic("span.kind") => own(&self.kind).or_else(|| self.attribute("span.kind")),
            FieldName::Intrinsic("service.name") => own(&self.service).or_else(|| self.attribute("service.name")),
            FieldName::Intrinsic(other) => self.attribute(other),
            FieldName::Resource(key) => self.attribute(&format!("resource.{key}")),
            FieldName::Attribute(key) => self.attribute(key),
            FieldName::Bare(key) => self.attribute(key).or_else(|| self.attribute(&format!("resource.{key}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields() {
        let value =
            json!({"name": "GET", "kind": "SERVER", "attributes": {"http.route": "/a", "resource.pod": "p", "n": 7}});
        let sample = Sample::parse(&value, "service", &[]).unwrap();
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(sample.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        };
        check("span.name", Some("GET"));
        check("span.kind", Some("server"));
        check("attributes.http.route", Some("/a"));
        check("http.route", Some("/a"));
        check("resource.pod", Some("p"));
        check("pod", Some("p"));
        check("n", Some("7"));
        check("service.name", None);
        for wrong in
            [json!(7), json!({"kind": "x"}), json!({"nmae": "x"}), json!({"attributes": 1}), json!({"name": 1})]
        {
            assert!(Sample::parse(&wrong, "service", &[]).is_err(), "{wrong}");
        }
    }
}
