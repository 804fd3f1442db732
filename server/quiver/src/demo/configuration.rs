//! The configuration of the demo's shop: transactions, key transactions, pages, thresholds, a process, segments, and
//! extraction rules. Created at the first start only: what a user changes or deletes stays so.

use quiver_api::AppState;
use quiver_config::families::{
    APDEX_THRESHOLDS, DETECTION_RULES, EXTRACTION_RULES, PROCESSES, RUM_DETECTION_RULES, RUM_TRANSACTIONS, SEGMENTS,
    TRANSACTIONS,
};
use quiver_config::{Caller, ChangeMode, Family, Place, Result};
use serde_json::{Value, json};

/// Entities by family, ordered so that each one exists before another refers to it.
fn entities() -> Vec<(&'static Family, Vec<Value>)> {
    let of_service = |service: &str| {
        json!({"name": format!("Requests of {service}"), "service": service, "nameTemplate": "{http.request.method} {http.route}",
            "condition": {"field": "http.route", "op": "exists"}})
    };
    let mut detection: Vec<Value> = ["gateway", "checkout", "payment", "cart"].map(of_service).into();
    detection.push(
        json!({"name": "Work on orders", "service": "orders", "nameTemplate": "{messaging.destination.name} work",
        "condition": {"field": "messaging.destination.name", "op": "eq", "value": "orders"}}),
    );
    vec![
        (&DETECTION_RULES, detection),
        (
            &TRANSACTIONS,
            vec![
                json!({"name": "Place an order", "service": "checkout", "transactionName": "POST /checkout", "tier": "critical",
                    "owner": "orders", "apdexThresholdMs": 150, "latencySloMs": 400, "errorRateSloPct": 5, "tags": ["money"]}),
                json!({"name": "Charge a card", "service": "payment", "transactionName": "POST /charges", "tier": "critical",
                    "owner": "payments", "apdexThresholdMs": 80, "latencySloMs": 250, "errorRateSloPct": 3}),
                json!({"name": "Home page", "service": "gateway", "transactionName": "GET /", "tier": "high",
                    "owner": "storefront", "latencySloMs": 300}),
            ],
        ),
        (
            &RUM_DETECTION_RULES,
            vec![json!({"name": "Calls of pages", "application": "web", "kind": "xhr",
                "nameTemplate": "{http.request.method} {http.route}", "condition": {"field": "http.route", "op": "exists"}})],
        ),
        (
            &RUM_TRANSACTIONS,
            vec![json!({"name": "Send an order", "application": "web", "transactionName": "POST /checkout",
                "owner": "storefront", "apdexThresholdMs": 400})],
        ),
        (
            &APDEX_THRESHOLDS,
            vec![
                json!({"service": "*", "thresholdMs": 300}),
                json!({"service": "search", "thresholdMs": 60}),
                json!({"service": "catalog", "operation": "GET **", "thresholdMs": 40}),
            ],
        ),
        (&PROCESSES, vec![process()]),
        (&SEGMENTS, segments()),
        (
            &EXTRACTION_RULES,
            vec![
                json!({"name": "Customer of an order", "signal": "logs", "service": "checkout", "method": "pattern",
                    "expression": "order of customer <customer>", "targets": [{"field": "customer.id", "from": "customer"}]}),
                json!({"name": "Slow database", "signal": "logs", "method": "regex",
                    "condition": {"field": "_msg", "op": "startsWith", "value": "slow query"},
                    "expression": "^slow query on (?P<database>[a-z-]+): (?P<operation>.+)$", "targets": [
                        {"field": "database", "from": "database"},
                        {"field": "operation", "from": "operation", "transform": "lower"}]}),
            ],
        ),
    ]
}

/// Segments for parts of the shop.
fn segments() -> Vec<Value> {
    let everywhere = |condition: Value| json!({"metrics": condition, "logs": condition, "spans": condition});
    let service = |op: &str, value: Value| everywhere(json!({"field": "service.name", "op": op, "value": value}));
    let severe = json!({"field": "severity", "op": "in", "value": ["error", "warn"]});
    let failed = json!({"field": "span.status", "op": "eq", "value": "error"});
    let browser = json!({"field": "resource.telemetry.sdk.language", "op": "eq", "value": "webjs"});
    vec![
        json!({"key": "orders", "name": "The way of an order", "description": "The services that an order passes.",
            "visibility": "shared",
            "conditions": service("in", json!(["checkout", "payment", "orders", "notification"]))}),
        json!({"key": "service", "name": "One service", "visibility": "shared",
            "description": "That of the variable: segment=service&segment.service=cart.",
            "variables": [{"name": "service", "default": "checkout"}], "conditions": service("eq", json!("$service"))}),
        json!({"key": "failures", "name": "What fails", "description": "Spans that failed, warnings and errors.",
            "visibility": "shared", "conditions": {"logs": severe, "spans": failed}}),
        json!({"key": "customers", "name": "What customers see", "description": "What browsers tell, and nothing else.",
            "visibility": "shared", "strict": true, "conditions": {"spans": browser}}),
    ]
}

/// From the order to its confirmation: one trace is one order.
fn process() -> Value {
    let server = |name: &str, more: Value| json!({"all": [{"field": "span.kind", "op": "eq", "value": "server"}, {"field": "span.name", "op": "eq", "value": name}, more]});
    let failed = |yes: bool| json!({"field": "span.status", "op": if yes { "eq" } else { "ne" }, "value": "error"});
    let any = json!({"field": "span.name", "op": "exists"});
    json!({"name": "Order to confirmation", "owner": "orders", "correlationField": "trace_id", "timeout": "5m", "slaMs": 400,
    "steps": [
        {"name": "Order placed", "kind": "span", "service": "checkout", "condition": server("POST /checkout", any)},
        {"name": "Card charged", "kind": "span", "service": "payment", "optional": true,
            "condition": server("POST /charges", failed(false))},
        {"name": "Card refused", "kind": "span", "service": "payment", "optional": true, "outcome": "failure",
            "condition": server("POST /charges", failed(true))},
        {"name": "Order taken", "kind": "span", "service": "orders",
            "condition": {"field": "span.kind", "op": "eq", "value": "consumer"}},
        {"name": "Confirmation sent", "kind": "log", "service": "notification",
            "condition": {"field": "_msg", "op": "startsWith", "value": "confirmation sent"}},
    ]})
}

/// Creates what is missing, family by family; it applies to all telemetry from then on.
pub(super) async fn make(app: &AppState) -> Result<()> {
    for (family, items) in entities() {
        if app.config.all(family).await?.is_empty() {
            app.config.put_many(&Place::of(family), &Caller::system(), items, ChangeMode::Apply).await?;
        }
    }
    app.effects.refresh(&app.config).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entity that is not valid would stop the demo.
    #[test]
    fn entities_obey_their_families() {
        for (family, items) in entities() {
            assert!(!items.is_empty(), "{}", family.name);
            for item in items {
                let body = item.as_object().expect("an object");
                let mut errors = Vec::new();
                (family.rules)(body, &mut errors);
                assert!(errors.is_empty(), "{item}: {errors:?}");
                let known = |key: &String| family.all_fields().any(|field| field.name == *key);
                let unknown: Vec<&String> = body.keys().filter(|key| !known(key)).collect();
                assert!(unknown.is_empty(), "{item}: {unknown:?}");
            }
        }
    }
}
