//! Key business transactions (`config-api` 3.2 and 3.3).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::condition::{Case, Glob};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value};

use super::body::{id_link, pattern_service, text};
use crate::entity::{Entity, all_of};
use crate::family::{Family, OnDelete, Rows};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Problem, Result};

/// Most key transactions in total, and per service.
const ALL_MAX: i64 = 500;
const SERVICE_MAX: usize = 100;

const NAME: FieldKind = FieldKind::Text { min: 1, max: 200 };
const TRANSACTION: Field = Field::required("transactionName", NAME);
const RULE: Field = Field::open("detectionRuleId", FieldKind::Id, "null");
const OWNER: Field = Field::open("owner", FieldKind::Text { min: 0, max: 200 }, "\"\"");
const TIER: Field = Field::open("tier", FieldKind::Word(&["critical", "high", "normal"]), "\"normal\"");
const APDEX: Field = Field::open("apdexThresholdMs", FieldKind::Int { min: 1, max: 600_000 }, "null");
const LATENCY: Field = Field::open("latencySloMs", FieldKind::Number { min: 0.001, max: 86_400_000.0 }, "null");
const PERCENTILE: Field = Field::open("latencyPercentile", FieldKind::Number { min: 1.0, max: 99.999 }, "95");
const ERRORS: Field = Field::open("errorRateSloPct", FieldKind::Number { min: 0.0, max: 100.0 }, "null");
const TAGS: Field = Field::open("tags", FieldKind::Texts { max: 64 }, "[]");

const VITALS: &[Field] = &[
    Field::open("lcpMs", FieldKind::Number { min: 0.0, max: 600_000.0 }, "null"),
    Field::open("inpMs", FieldKind::Number { min: 0.0, max: 600_000.0 }, "null"),
    Field::open("cls", FieldKind::Number { min: 0.0, max: 100.0 }, "null"),
];

/// Key transactions of services.
pub const TRANSACTIONS: Family = Family {
    name: "transactions",
    path: "/transactions",
    domain: Domain::Transactions,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        Field::required("service", NAME),
        TRANSACTION,
        RULE,
        OWNER,
        TIER,
        APDEX,
        LATENCY,
        PERCENTILE,
        ERRORS,
        TAGS,
    ],
    unique: &[&["name"], &["service", "transactionName"]],
    links: |body| id_link(body, "detectionRuleId", &["bt-detection-rules"], OnDelete::Refuse),
    rules: |body, errors| rules(body, "service", errors),
    hook: Some(|change| limit(change.db, "transactions", "service", change.after)),
    service: |body| pattern_service(body, "service"),
    rows: Rows::Service,
    entities_max: ALL_MAX,
    ..Family::BASE
};

/// Key transactions of pages.
pub const RUM_TRANSACTIONS: Family = Family {
    name: "rum-key-business-transactions",
    path: "/rum-key-business-transactions",
    domain: Domain::Transactions,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        Field::required("application", NAME),
        TRANSACTION,
        RULE,
        OWNER,
        TIER,
        Field::open("apdexThresholdMs", FieldKind::Int { min: 1, max: 600_000 }, "3000"),
        LATENCY,
        PERCENTILE,
        ERRORS,
        TAGS,
        Field::open("vitals", FieldKind::Object(VITALS), "{\"lcpMs\":null,\"inpMs\":null,\"cls\":null}"),
    ],
    unique: &[&["name"], &["application", "transactionName"]],
    links: |body| id_link(body, "detectionRuleId", &["rum-bt-detection-rules"], OnDelete::Refuse),
    rules: |body, errors| rules(body, "application", errors),
    hook: Some(|change| limit(change.db, "rum-key-business-transactions", "application", change.after)),
    service: |body| pattern_service(body, "application"),
    rows: Rows::Service,
    entities_max: ALL_MAX,
    ..Family::BASE
};

fn rules(body: &Map<String, Value>, owner: &str, errors: &mut Vec<FieldError>) {
    if text(body, owner).contains('*') {
        errors.push(FieldError::new(format!("/{owner}"), "PATTERN", "must be a name, not a pattern"));
    }
    // A name assigned by detection rules may contain unbalanced braces, which a pattern must not.
    let name = text(body, "transactionName");
    if let Some(why) = name.contains('*').then(|| Glob::parse(name, Case::Sensitive).err()).flatten() {
        errors.push(FieldError::new("/transactionName", "PATTERN", why));
    }
}

fn limit<'a>(
    db: &'a mut Connection,
    family: &'static str,
    owner: &'static str,
    after: Option<&'a Entity>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let Some(after) = after else { return Ok(()) };
        let service = text(&after.body, owner);
        let same = all_of(db, family).await?.iter().filter(|e| text(&e.body, owner) == service).count();
        if same > SERVICE_MAX {
            let why = format!("`{service}` has {SERVICE_MAX} key transactions already");
            return Err(Problem::field(format!("/{owner}"), "LIMIT_EXCEEDED", why));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_are_names_and_transactions_may_be_patterns() {
        let wrong = |family: &Family, body: Value| -> Vec<String> {
            let mut errors = Vec::new();
            (family.rules)(body.as_object().expect("an object"), &mut errors);
            errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect()
        };
        for (family, owner) in [(&TRANSACTIONS, "service"), (&RUM_TRANSACTIONS, "application")] {
            let check = |service: &str, name: &str, expected: &[&str]| {
                assert_eq!(
                    wrong(family, json!({owner: service, "transactionName": name})),
                    expected,
                    "{service} {name}"
                );
            };
            let pattern = format!("/{owner} PATTERN");
            check("cart", "/cart", &[]);
            check("cart", "/cart/*", &[]);
            check("cart", "/{id}/**", &[]);
            check("*", "/cart", &[&pattern]);
            check("ca*", "/cart", &[&pattern]);
            // Names assigned by detection rules may contain unbalanced braces; patterns must not.
            check("cart", "{", &[]);
            check("cart", "a}b{", &[]);
            check("cart", "{*", &["/transactionName PATTERN"]);
            check("cart", "{a}/{a}/*", &["/transactionName PATTERN"]);
            check("*", "{*", &[&pattern, "/transactionName PATTERN"]);
            assert_eq!((family.service)(json!({owner: "cart"}).as_object().expect("an object")), "cart");
        }
    }
}
