//! Data-extraction rules (`config-api` 3.7).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::extraction::ExtractionRule;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::{pattern_service, push_errors, text};
use crate::access::must_have;
use crate::entity::{DraftContent, all_of};
use crate::family::{ChangeContext, Family, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Result};

/// Most rules in total.
const ALL_MAX: i64 = 200;

const METHODS: &[&str] =
    &["regex", "jsonPath", "json", "logfmt", "delimited", "pattern", "urlPart", "constant", "template"];
const TYPES: &[&str] = &["string", "int", "double", "bool", "durationMs", "timestamp"];
const TRANSFORMS: &[&str] = &["none", "trim", "lower", "upper", "urlDecode", "hash", "redact"];

const TARGET: &[Field] = &[
    Field::required("field", FieldKind::Text { min: 1, max: 128 }),
    Field::open("from", FieldKind::Text { min: 1, max: 500 }, "null"),
    Field::open("type", FieldKind::Word(TYPES), "\"string\""),
    Field::open("transform", FieldKind::Word(TRANSFORMS), "\"none\""),
    Field::open("onError", FieldKind::Word(&["skip", "null", "default"]), "\"skip\""),
    Field::open("default", FieldKind::Json, "null"),
    Field::open("overwrite", FieldKind::Bool, "false"),
];

/// Rules that derive fields of incoming telemetry from other fields.
pub const EXTRACTION_RULES: Family = Family {
    name: "data-extraction-rules",
    path: "/platform-api/data-extraction-rules",
    domain: Domain::Extraction,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        Field::required("signal", FieldKind::Word(&["logs", "spans", "rum", "alerts"])),
        Field::open("service", FieldKind::Text { min: 1, max: 200 }, "\"*\""),
        Field::open("condition", FieldKind::Condition, "null"),
        Field::open("priority", FieldKind::Int { min: 0, max: 10_000 }, "100"),
        Field::open("stop", FieldKind::Bool, "false"),
        Field::open("source", FieldKind::Text { min: 1, max: 256 }, "null"),
        Field::open("expression", FieldKind::Prose { max: 1024 }, "null"),
        Field::open("options", FieldKind::Map { max: 10 }, "{}"),
        Field::required("method", FieldKind::Word(METHODS)),
        Field::required("targets", FieldKind::List { of: TARGET, max: 20 }),
        Field::open("allowReserved", FieldKind::Bool, "false"),
        Field::read_only("position", FieldKind::Int { min: 0, max: 10_000 }, "null"),
        Field::read_only("health", FieldKind::Word(&["ok", "suspended"]), "\"ok\""),
    ],
    rules,
    patterns_bytes: Some(|body| ExtractionRule::of_json("", body).map_or(0, |rule| rule.held_bytes())),
    service: |body| pattern_service(body, "service"),
    rows: Rows::Service,
    entities_max: ALL_MAX,
    natural: &[("priority", true), ("position", false)],
    prepare: Some(prepare),
    ..Family::BASE
};

fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    if let Err(found) = ExtractionRule::of_json("", body) {
        push_errors(found, errors);
    }
}

/// A new rule is placed after those of its priority; the default source for logs is the message.
fn prepare<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let body = &mut draft.body;
        // A change of a suspended rule gives it another try.
        if making.caller.kind != "system" {
            body.insert("health".to_owned(), json!("ok"));
        }
        if body.get("allowReserved") == Some(&json!(true)) {
            must_have(making.caller, Right::Admin, Domain::Extraction, &pattern_service(body, "service"))?;
        }
        let reads = !matches!(text(body, "method"), "constant" | "template");
        if reads && text(body, "signal") == "logs" && body.get("source").is_none_or(Value::is_null) {
            body.insert("source".to_owned(), json!("_msg"));
        }
        if body.get("position").is_none_or(Value::is_null) {
            let all = all_of(db, EXTRACTION_RULES.name).await?;
            // The number of rules that the caller cannot see is not revealed.
            let seen = all.iter().filter(|e| EXTRACTION_RULES.is_visible(making.caller, e));
            let last = seen.filter_map(|e| e.body.get("position").and_then(Value::as_i64)).max();
            body.insert("position".to_owned(), json!(last.map_or(0, |n| n + 1)));
        }
        Ok(())
    })
}
