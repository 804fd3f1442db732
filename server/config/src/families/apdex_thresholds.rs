//! Apdex thresholds (`config-api` 3.6).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::condition::{Case, Glob};
use quiver_types::query_configuration::{RUM_MS, SERVICE_MS};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::{pattern_service, text};
use crate::entity::DraftContent;
use crate::family::{ChangeContext, Family, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Result};

/// Thresholds that classify response times as satisfied, tolerated or frustrated (Apdex).
pub const APDEX_THRESHOLDS: Family = Family {
    name: "apdex-thresholds",
    path: "/platform-api/apdex-thresholds",
    domain: Domain::Apdex,
    write: Right::Edit,
    title: "service",
    has_name: false,
    fields: &[
        Field::required("service", FieldKind::Text { min: 1, max: 200 }),
        Field::open("operation", FieldKind::Text { min: 1, max: 500 }, "null"),
        Field::open("signal", FieldKind::Word(&["service", "rum"]), "\"service\""),
        Field::open("thresholdMs", FieldKind::Int { min: 1, max: 600_000 }, "null"),
        Field::open("errorsFrustrate", FieldKind::Bool, "true"),
    ],
    unique: &[&["signal", "service", "operation"]],
    rules,
    service: |body| pattern_service(body, "service"),
    rows: Rows::Service,
    prepare: Some(prepare),
    ..Family::BASE
};

fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let service = text(body, "service");
    if service.contains('*') && service != "*" {
        errors.push(FieldError::new("/service", "PATTERN", "must be a name, or `*` for all"));
    }
    let operation = text(body, "operation");
    if let Some(why) = operation.contains(['*', '{']).then(|| Glob::parse(operation, Case::Sensitive).err()).flatten() {
        errors.push(FieldError::new("/operation", "PATTERN", why));
    }
}

/// The default depends on the signal.
fn prepare<'a>(
    _: &'a mut Connection,
    _: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        if draft.body.get("thresholdMs").is_none_or(Value::is_null) {
            let default = if text(&draft.body, "signal") == "rum" { RUM_MS } else { SERVICE_MS };
            draft.body.insert("thresholdMs".to_owned(), json!(default));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_names_or_all() {
        let check = |body: Value, expected: &[&str]| {
            let mut errors = Vec::new();
            rules(body.as_object().expect("an object"), &mut errors);
            let found: Vec<String> = errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect();
            assert_eq!(found, expected, "{body}");
        };
        check(json!({"service": "cart"}), &[]);
        check(json!({"service": "*"}), &[]);
        check(json!({"service": "cart", "operation": null}), &[]);
        check(json!({"service": "cart", "operation": "GET /{id}/*"}), &[]);
        check(json!({"service": "cart", "operation": "a}"}), &[]);
        check(json!({"service": "ca*"}), &["/service PATTERN"]);
        check(json!({"service": "**"}), &["/service PATTERN"]);
        check(json!({"service": "cart", "operation": "GET /{id"}), &["/operation PATTERN"]);
        check(json!({"service": "cart", "operation": "{a b}"}), &["/operation PATTERN"]);
        check(json!({"service": "*x", "operation": "{}"}), &["/service PATTERN", "/operation PATTERN"]);
    }
}
