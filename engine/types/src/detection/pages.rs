//! Browser events in the form that page rules see (`config-api` 3.3), from spans sent by OpenTelemetry's browser
//! instrumentations.

use std::borrow::Cow;

use super::Candidate;
use crate::condition::{FieldName, Fields};
use crate::spans::{SpanRow, find_text as find};

/// The SDK language of browser instrumentations.
const WEB: &str = "webjs";
/// The kind of client spans.
const CLIENT: u8 = 3;

/// A span of a browser.
#[derive(Debug, Clone, Copy)]
pub struct PageRow<'a> {
    row: &'a SpanRow<'a>,
    kind: &'static str,
}

impl<'a> PageRow<'a> {
    /// Reads a span; `None` if it is not from a browser, or not of a type that rules are about.
    pub fn of(row: &'a SpanRow<'a>) -> Option<Self> {
        let is_browser = find(row.resource, "telemetry.sdk.language").is_some_and(|language| language == WEB);
        if !is_browser {
            return None;
        }
        let has = |key: &str| find(row.attributes, key).is_some();
        let kind = if row.name == "documentLoad" {
            "pageLoad"
        } else if row.name.starts_with("Navigation") || row.name == "routeChange" {
            "routeChange"
        } else if has("event_type") || has("target_xpath") || has("action.name") {
            "userAction"
        } else if row.kind == CLIENT && (has("http.request.method") || has("http.method")) {
            "xhr"
        } else {
            return None;
        };
        Some(Self { row, kind })
    }

    /// The span in the form that rules see.
    pub fn candidate(&'a self, application: &'a str) -> Candidate<'a> {
        Candidate { service: application, kind: self.kind, is_entry: true, fields: self }
    }

    fn attribute(&self, key: &str) -> Option<Cow<'_, str>> {
        find(self.row.attributes, key).or_else(|| find(self.row.resource, key))
    }
}

/// The path of a URL.
fn path_of(url: &str) -> String {
    let behind = url.split_once("://").map_or(url, |(_, rest)| rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]));
    let path = behind.split(['?', '#']).next().unwrap_or_default();
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

impl Fields for PageRow<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let key = match name {
            FieldName::Attribute(key) | FieldName::Bare(key) => key.as_str(),
            other => return self.row.get(other),
        };
        let own = self.row.get(name);
        if own.is_some() {
            return own;
        }
        let of = BrowserEvent {
            kind: Some(self.kind),
            name: Some(self.row.name),
            application: Some(self.row.service).filter(|name| !name.is_empty()),
        };
        derived_field(key, &of, &|key| self.attribute(key))
    }
}

/// What is known about a browser event.
#[derive(Debug, Clone, Copy)]
pub(super) struct BrowserEvent<'a> {
    pub(super) kind: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    pub(super) application: Option<&'a str>,
}

/// A field that describes pages and is missing under its own name, derived from other attributes; `look` finds an
/// attribute.
pub(super) fn derived_field<'a>(
    key: &str,
    of: &BrowserEvent<'a>,
    look: &dyn Fn(&str) -> Option<Cow<'a, str>>,
) -> Option<Cow<'a, str>> {
    let first = |keys: &[&str]| keys.iter().find_map(|key| look(key));
    let url = || first(&["url.full", "http.url", "location.href"]);
    match key {
        "application" => of.application.map(Cow::Borrowed),
        "kind" => of.kind.map(Cow::Borrowed),
        "url.full" => url(),
        "url.path" => url().map(|url| Cow::Owned(path_of(&url))),
        "page.title" => first(&["document.title", "browser.document.title"]),
        "action.name" => of.name.filter(|_| of.kind == Some("userAction")).map(Cow::Borrowed),
        "action.type" => first(&["event_type"]),
        "browser.name" => first(&["user_agent.name"]),
        "device.type" => first(&["device.model.type"]),
        "geo.country" => first(&["geo.country.iso_code", "client.geo.country_iso_code"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::{Attributes, Value};

    #[test]
    fn kinds_and_fields() {
        let resource = Attributes::of([("telemetry.sdk.language", Value::Text("webjs"))]);
        let check = |name: &str, kind: u8, attributes: &[(&str, &str)], expected: Option<&str>| {
            let attributes = Attributes::of(attributes.iter().map(|(k, v)| (*k, Value::Text(v))));
            let row = SpanRow {
                service: "shop-web",
                name,
                kind,
                status: 0,
                duration_ns: 1,
                attributes: attributes.bytes(),
                resource: resource.bytes(),
            };
            let page = PageRow::of(&row);
            assert_eq!(page.map(|p| p.kind), expected, "{name}");
            page.and_then(|p| p.get(&FieldName::parse("url.path")).map(Cow::into_owned))
        };
        let path = check("documentLoad", 1, &[("http.url", "https://shop.example/cart?a=1")], Some("pageLoad"));
        assert_eq!(path.as_deref(), Some("/cart"));
        check("Navigation: /cart", 1, &[("event_type", "click")], Some("routeChange"));
        check("click", 1, &[("event_type", "click")], Some("userAction"));
        check("HTTP GET", 3, &[("http.method", "GET")], Some("xhr"));
        check("resourceFetch", 1, &[], None);
        let none = Attributes::of([]);
        let (attributes, resource) = (none.bytes(), none.bytes());
        let row =
            SpanRow { service: "", name: "documentLoad", kind: 1, status: 0, duration_ns: 1, attributes, resource };
        assert!(PageRow::of(&row).is_none(), "not of a browser");
    }

    #[test]
    fn paths_of_addresses() {
        for (url, path) in [
            ("https://shop.example/cart?a=1#top", "/cart"),
            ("https://shop.example", "/"),
            ("https://shop.example?a=/b", "/"),
            ("https://shop.example#/b", "/"),
            ("/cart/7#x?y", "/cart/7"),
            ("cart", "cart"),
            ("", "/"),
            ("?a", "/"),
            ("https://h/a/https://other/b", "/a/https://other/b"),
        ] {
            assert_eq!(path_of(url), path, "{url}");
        }
    }

    #[test]
    fn what_is_told_of_a_page() {
        let of = BrowserEvent { kind: Some("userAction"), name: Some("Buy"), application: None };
        let look = |key: &str| match key {
            "http.url" => Some(Cow::Borrowed("https://h/a?b")),
            "location.href" => Some(Cow::Borrowed("https://h/later")),
            "client.geo.country_iso_code" => Some(Cow::Borrowed("DE")),
            _ => None,
        };
        for (key, expected) in [
            ("kind", Some("userAction")),
            ("application", None),
            ("action.name", Some("Buy")),
            ("url.full", Some("https://h/a?b")),
            ("url.path", Some("/a")),
            ("geo.country", Some("DE")),
            ("page.title", None),
            ("no.such", None),
        ] {
            assert_eq!(derived_field(key, &of, &look).as_deref(), expected, "{key}");
        }
        let loaded = BrowserEvent { kind: Some("pageLoad"), ..of };
        assert_eq!(derived_field("action.name", &loaded, &look), None, "nobody acted");
    }
}
