//! Rules that detect which spans (or pages) begin a business transaction (`config-api` 3.1 and 3.3).

use quiver_types::cancellation::in_one_go;
use quiver_types::detection::{DetectionRule, Sample};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::body::{pattern_service, push_errors, text};
use crate::family::{Family, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::FieldError;

const NAME: FieldKind = FieldKind::Text { min: 1, max: 200 };
const CONDITION: Field = Field::required("condition", FieldKind::Condition);
const PRIORITY: Field = Field::open("priority", FieldKind::Int { min: 0, max: 10_000 }, "100");
const ACTION: Field = Field::open("action", FieldKind::Word(&["include", "exclude"]), "\"include\"");
const TEMPLATE: Field = Field::open("nameTemplate", FieldKind::Text { min: 1, max: 200 }, "null");
const NAMES_MAX: Field = Field::open("maxNames", FieldKind::Int { min: 1, max: 100_000 }, "500");
const EXPECT: Field = Field::open("expectName", NAME, "null");
const ATTRIBUTES: Field = Field::required("attributes", FieldKind::Map { max: 200 });
/// The error for patterns whose evaluation takes too long.
pub const TOO_SLOW: &str =
    "the rule looks at these texts for more than half a second: write a simpler pattern, or shorter texts";
/// Most saved examples per rule.
const SAMPLES_MAX: usize = 100;

const SAMPLE: &[Field] = &[
    Field::open("name", FieldKind::Text { min: 0, max: 1000 }, "null"),
    Field::open("kind", FieldKind::Word(&["internal", "server", "client", "producer", "consumer"]), "null"),
    Field::open("service", NAME, "null"),
    ATTRIBUTES,
    EXPECT,
];

const PAGE_KINDS: &[&str] = &["pageLoad", "routeChange", "userAction", "xhr"];

const RUM_SAMPLE: &[Field] = &[
    Field::open("name", FieldKind::Text { min: 0, max: 1000 }, "null"),
    Field::open("kind", FieldKind::Word(PAGE_KINDS), "null"),
    Field::open("application", NAME, "null"),
    ATTRIBUTES,
    EXPECT,
];

/// Detection rules of spans.
pub const DETECTION_RULES: Family = Family {
    name: "bt-detection-rules",
    path: "/bt-detection-rules",
    domain: Domain::Transactions,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        PRIORITY,
        ACTION,
        Field::open("service", NAME, "\"*\""),
        Field::open("scope", FieldKind::Word(&["entry", "any"]), "\"entry\""),
        CONDITION,
        TEMPLATE,
        NAMES_MAX,
        Field::open("samples", FieldKind::List { of: SAMPLE, max: SAMPLES_MAX }, "[]"),
    ],
    rules: |body, errors| rules(body, "service", errors),
    patterns_bytes: Some(|body| DetectionRule::of_json("", body, "service").map_or(0, |rule| rule.held_bytes())),
    service: |body| pattern_service(body, "service"),
    rows: Rows::Service,
    ..Family::BASE
};

/// Detection rules of pages.
pub const RUM_DETECTION_RULES: Family = Family {
    name: "rum-bt-detection-rules",
    path: "/rum-bt-detection-rules",
    domain: Domain::Transactions,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        PRIORITY,
        ACTION,
        Field::open("application", NAME, "\"*\""),
        Field::open("kind", FieldKind::Word(PAGE_KINDS), "null"),
        CONDITION,
        TEMPLATE,
        NAMES_MAX,
        Field::open("samples", FieldKind::List { of: RUM_SAMPLE, max: SAMPLES_MAX }, "[]"),
    ],
    rules: |body, errors| rules(body, "application", errors),
    patterns_bytes: Some(|body| DetectionRule::of_json("", body, "application").map_or(0, |rule| rule.held_bytes())),
    service: |body| pattern_service(body, "application"),
    rows: Rows::Service,
    ..Family::BASE
};

/// Checks that the rule compiles, and that its saved examples get the names that they state.
fn rules(body: &Map<String, Value>, owner: &str, errors: &mut Vec<FieldError>) {
    let rule = match DetectionRule::of_json("", body, owner) {
        Ok(rule) => rule,
        Err(found) => return push_errors(found, errors),
    };
    let samples = body.get("samples").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match in_one_go(|| wrong_samples(&rule, samples, owner)) {
        Some(found) => errors.extend(found),
        None => errors.push(FieldError::new("/samples", "LIMIT_EXCEEDED", TOO_SLOW)),
    }
}

/// Saved examples that get another name than they state.
fn wrong_samples(rule: &DetectionRule, samples: &[Value], owner: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (n, sample) in samples.iter().enumerate() {
        let expected = sample.as_object().map(|map| text(map, "expectName")).filter(|name| !name.is_empty());
        let found = match Sample::parse(sample, owner, &["expectName"]) {
            Ok(sample) => rule.name_of_sample(&sample),
            Err((at, code, why)) => {
                errors.push(FieldError::new(format!("/samples/{n}{at}"), code, why));
                continue;
            }
        };
        if found.as_deref() != expected {
            let shown = |name: Option<&str>| name.map_or("no match".to_owned(), |n| format!("`{n}`"));
            let why = format!("gives {}, not {}", shown(found.as_deref()), shown(expected));
            errors.push(FieldError::new(format!("/samples/{n}/expectName"), "INVALID_VALUE", why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The errors of a rule: field, code and text.
    fn wrong(family: &Family, members: Value) -> Vec<(String, &'static str, String)> {
        let mut body = json!({"name": "r", "condition": {"field": "http.route", "op": "startsWith", "value": "/cart"}});
        let body = body.as_object_mut().expect("an object");
        body.extend(members.as_object().expect("an object").clone());
        let mut errors = Vec::new();
        (family.rules)(body, &mut errors);
        errors.into_iter().map(|e| (e.field, e.code, e.message)).collect()
    }

    #[test]
    fn examples_are_named_as_they_say() {
        let check = |sample: Value, expected: Option<(&str, &str, &str)>| {
            let good = json!({"attributes": {"http.route": "/cart/9"}, "expectName": "/cart/9"});
            let samples = json!({"service": "shop", "nameTemplate": "{http.route}", "samples": [good, sample]});
            let found = wrong(&DETECTION_RULES, samples);
            let expected: Vec<_> =
                expected.iter().map(|(at, code, why)| (format!("/samples/1/{at}"), *code, (*why).to_owned())).collect();
            assert_eq!(found, expected, "{sample}");
        };
        let name = |why| Some(("expectName", "INVALID_VALUE", why));
        check(json!({"attributes": {"http.route": "/cart/1"}, "expectName": "/cart/1"}), None);
        check(json!({"attributes": {"http.route": "/health"}}), None);
        check(json!({"attributes": {"http.route": "/health"}, "expectName": ""}), None);
        check(json!({"attributes": {"http.route": "/cart/1"}, "expectName": "/x"}), name("gives `/cart/1`, not `/x`"));
        check(json!({"attributes": {"http.route": "/cart/1"}}), name("gives `/cart/1`, not no match"));
        check(json!({"attributes": {}, "expectName": "/x"}), name("gives no match, not `/x`"));
        // An example of another service does not match the rule.
        check(json!({"attributes": {"http.route": "/cart/1"}, "service": "pay"}), None);
        let unknown = "must be one of internal, server, client, producer, consumer";
        check(json!({"attributes": {}, "kind": "pageLoad"}), Some(("kind", "INVALID_VALUE", unknown)));
        check(json!({"attributes": {}, "application": "a"}), Some(("application", "UNKNOWN_FIELD", "is not known")));
        check(json!({"attributes": []}), Some(("attributes", "INVALID_TYPE", "must be an object")));
    }

    #[test]
    fn rules_compile() {
        assert!(wrong(&DETECTION_RULES, json!({})).is_empty());
        // The name of the rule itself is not a template.
        assert!(wrong(&RUM_DETECTION_RULES, json!({"name": "a { b"})).is_empty());
        let places = |members: Value| -> Vec<(String, &'static str)> {
            wrong(&DETECTION_RULES, members).into_iter().map(|(at, code, _)| (at, code)).collect()
        };
        assert_eq!(places(json!({"nameTemplate": "a {"})), [("/nameTemplate".to_owned(), "INVALID_TEMPLATE")]);
        let both = places(json!({"condition": {"any": []}, "nameTemplate": "}", "samples": [{"kind": 5}]}));
        let expected = [("/condition/any".to_owned(), "REQUIRED"), ("/nameTemplate".to_owned(), "INVALID_TEMPLATE")];
        assert_eq!(both, expected, "examples of what does not compile are not looked at");
    }

    #[test]
    fn examples_of_pages() {
        let sample = |application: &str, kind: &str, name: Value| json!({"application": application, "kind": kind, "attributes": {"http.route": "/cart"}, "expectName": name});
        let samples = json!({"application": "shop*", "kind": "pageLoad", "samples": [
            sample("shop", "pageLoad", json!("r")), sample("shop-eu", "pageLoad", json!("r")),
            sample("blog", "pageLoad", Value::Null), sample("shop", "xhr", Value::Null), sample("shop", "xhr", json!("r")),
        ]});
        let found = wrong(&RUM_DETECTION_RULES, samples);
        let expected = ("/samples/4/expectName".to_owned(), "INVALID_VALUE", "gives no match, not `r`".to_owned());
        assert_eq!(found, [expected]);
    }
}
