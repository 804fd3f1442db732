//! Example spans in the form that users enter: JSON with name, kind, service and attributes.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::pages::{BrowserEvent, derived_field};
use crate::condition::{FieldName, Fields};

/// Names of span kinds.
const KINDS: [&str; 5] = ["internal", "server", "client", "producer", "consumer"];
/// Names of browser events.
const PAGE_KINDS: [&str; 4] = ["pageLoad", "routeChange", "userAction", "xhr"];

/// An example of a span or of a browser event; it counts as a root span.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    name: Option<String>,
    kind: Option<String>,
    /// Its service; `None` matches any service of a rule.
    pub service: Option<String>,
    attributes: Map<String, Value>,
    /// Whether it is a browser event.
    pages: bool,
}

impl Sample {
    /// Parses an example. `owner` is `service` or `application`; `more` are members that the caller reads.
    ///
    /// # Errors
    /// The invalid member, its error code, and the reason.
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
        let (name, kind, service) = (next(), next(), next());
        let pages = owner == "application";
        let kinds: &[&str] = if pages { &PAGE_KINDS } else { &KINDS };
        let kind = match kind {
            None => None,
            Some(given) => match kinds.iter().find(|kind| kind.eq_ignore_ascii_case(&given)) {
                Some(kind) => Some((*kind).to_owned()),
                None => return wrong("/kind", "INVALID_VALUE", &format!("must be one of {}", kinds.join(", "))),
            },
        };
        Ok(Self { name, kind, service, attributes, pages })
    }

    /// Tells whether it has a kind; one without a kind matches any.
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

    /// An attribute of the span, or else of its resource.
    fn any_attribute(&self, key: &str) -> Option<Cow<'_, str>> {
        self.attribute(key).or_else(|| self.attribute(&format!("resource.{key}")))
    }
}

impl Fields for Sample {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let own = |text: &Option<String>| text.clone().map(Cow::Owned);
        let found = match name {
            FieldName::Intrinsic("span.name") => own(&self.name).or_else(|| self.attribute("span.name")),
            // Browser events have no span kind.
            FieldName::Intrinsic("span.kind") if self.pages => self.attribute("span.kind"),
            FieldName::Intrinsic("span.kind") => own(&self.kind).or_else(|| self.attribute("span.kind")),
            FieldName::Intrinsic("service.name") => own(&self.service).or_else(|| self.attribute("service.name")),
            FieldName::Intrinsic(other) => self.attribute(other),
            FieldName::Resource(key) => self.attribute(&format!("resource.{key}")),
            FieldName::Attribute(key) => self.attribute(key),
            FieldName::Bare(key) => self.any_attribute(key),
        };
        let key = match name {
            FieldName::Attribute(key) | FieldName::Bare(key) if self.pages => key,
            _ => return found,
        };
        // As for stored spans: what pages are described by, from what senders know.
        let (kind, name, application) = (self.kind.as_deref(), self.name.as_deref(), self.service.as_deref());
        found.or_else(|| derived_field(key, &BrowserEvent { kind, name, application }, &|key| self.any_attribute(key)))
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

    /// An example of a page is read as what browsers send.
    #[test]
    fn pages() {
        let value = json!({"name": "Buy", "kind": "useraction", "application": "shop", "attributes": {
            "http.url": "https://shop.example/cart?a=1", "document.title": "Cart", "resource.user_agent.name": "Firefox"}});
        let sample = Sample::parse(&value, "application", &[]).unwrap();
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(sample.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        };
        check("url.full", Some("https://shop.example/cart?a=1"));
        check("url.path", Some("/cart"));
        check("attributes.page.title", Some("Cart"));
        check("browser.name", Some("Firefox"));
        check("action.name", Some("Buy"));
        check("kind", Some("userAction"));
        check("application", Some("shop"));
        check("span.kind", None);
        check("geo.country", None);
        assert!(Sample::parse(&json!({"kind": "server"}), "application", &[]).is_err());
    }
}
