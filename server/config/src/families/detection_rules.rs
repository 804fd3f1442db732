//! Rules that tell which spans (or pages) begin a business transaction (`config-api` 3.1 and 3.3).

use quiver_types::detection::{DetectionRule, Sample};
use quiver_types::watch::in_one_go;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::{pattern_service, push_errors, text};
use crate::family::{Family, Rows};
use crate::fields::{Field, Kind};
use crate::problem::FieldError;

const NAME: Kind = Kind::Text { min: 1, max: 200 };
const CONDITION: Field = Field::required("condition", Kind::Condition);
const PRIORITY: Field = Field::open("priority", Kind::Int { min: 0, max: 10_000 }, "100");
const ACTION: Field = Field::open("action", Kind::Word(&["include", "exclude"]), "\"include\"");
const TEMPLATE: Field = Field::open("nameTemplate", Kind::Text { min: 1, max: 200 }, "null");
const NAMES_MAX: Field = Field::open("maxNames", Kind::Int { min: 1, max: 100_000 }, "500");
const EXPECT: Field = Field::open("expectName", NAME, "null");
const ATTRIBUTES: Field = Field::required("attributes", Kind::Map { max: 200 });
/// What is said of patterns that look at texts for too long.
pub const TOO_SLOW: &str =
    "the rule looks at these texts for more than half a second: write a simpler pattern, or shorter texts";
/// Most saved examples.
const SAMPLES_MAX: usize = 100;

const SAMPLE: &[Field] = &[
    Field::open("name", Kind::Text { min: 0, max: 1000 }, "null"),
    Field::open("kind", Kind::Word(&["internal", "server", "client", "producer", "consumer"]), "null"),
    Field::open("service", NAME, "null"),
    ATTRIBUTES,
    EXPECT,
];

const PAGE_KINDS: &[&str] = &["pageLoad", "routeChange", "userAction", "xhr"];

const RUM_SAMPLE: &[Field] = &[
    Field::open("name", Kind::Text { min: 0, max: 1000 }, "null"),
    Field::open("kind", Kind::Word(PAGE_KINDS), "null"),
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
        Field::open("scope", Kind::Word(&["entry", "any"]), "\"entry\""),
        CONDITION,
        TEMPLATE,
        NAMES_MAX,
        Field::open("samples", Kind::List { of: SAMPLE, max: SAMPLES_MAX }, "[]"),
    ],
    rules: |body, errors| rules(body, "service", errors),
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
        Field::open("kind", Kind::Word(PAGE_KINDS), "null"),
        CONDITION,
        TEMPLATE,
        NAMES_MAX,
        Field::open("samples", Kind::List { of: RUM_SAMPLE, max: SAMPLES_MAX }, "[]"),
    ],
    rules: |body, errors| rules(body, "application", errors),
    service: |body| pattern_service(body, "application"),
    rows: Rows::Service,
    ..Family::BASE
};

/// The rule compiles, and its saved examples are named as they say.
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

/// Saved examples that are not named as they say.
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
