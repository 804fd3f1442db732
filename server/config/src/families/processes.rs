//! Business processes: ordered steps that are correlated by one value (`config-api` 3.4). Steps are members of their
//! process, so that both change together; the API also edits them one by one.

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::{conditions_bytes, text};
use crate::access::SERVICES;
use crate::entity::{DraftContent, find};
use crate::family::{ChangeContext, Family, Link, OnDelete, Rows};
use crate::fields::{Field, FieldKind, duration_ms};
use crate::problem::{FieldError, Problem, ProblemKind, Result};

/// Most and fewest steps of an enabled process.
const STEPS_MAX: usize = 30;
const STEPS_MIN: usize = 2;

const NAME: FieldKind = FieldKind::Text { min: 1, max: 200 };

/// Fields of a step.
const STEP: &[Field] = &[
    Field::open("id", FieldKind::Id, "null"),
    Field::open("position", FieldKind::Int { min: 0, max: 1000 }, "null"),
    Field::required("name", NAME),
    Field::open("description", FieldKind::Prose { max: 4000 }, "\"\""),
    Field::required("kind", FieldKind::Word(&["transaction", "span", "log", "event", "rum"])),
    Field::open("transactionId", FieldKind::Id, "null"),
    Field::open("condition", FieldKind::Condition, "null"),
    Field::open("service", NAME, "null"),
    Field::open("correlationField", NAME, "null"),
    Field::open("optional", FieldKind::Bool, "false"),
    Field::open("outcome", FieldKind::Word(&["none", "success", "failure"]), "\"none\""),
    Field::open("maxGapMs", FieldKind::Int { min: 1, max: 31_536_000_000 }, "null"),
];

/// Business processes: steps are spans or log records.
pub const PROCESSES: Family = Family {
    name: "business-processes",
    path: "/business-processes",
    domain: Domain::Processes,
    write: Right::Edit,
    has_enabled: true,
    fields: &[
        Field::open("owner", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::required("correlationField", NAME),
        Field::open("timeout", FieldKind::Duration, "\"24h\""),
        Field::open("steps", FieldKind::List { of: STEP, max: STEPS_MAX }, "[]"),
        Field::open("slaMs", FieldKind::Number { min: 0.001, max: 31_536_000_000.0 }, "null"),
    ],
    links,
    rules,
    patterns_bytes: Some(|body| conditions_bytes(body, "steps")),
    rows: Rows::Service,
    prepare: Some(prepare),
    ..Family::BASE
};

/// The steps of a process.
pub fn steps(body: &Map<String, Value>) -> &[Value] {
    body.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn transaction_families(kind: &str) -> &'static [&'static str] {
    if kind == "rum" { &["rum-key-business-transactions"] } else { &["transactions"] }
}

fn links(body: &Map<String, Value>) -> Vec<Link> {
    let each = steps(body).iter().enumerate().filter_map(|(n, step)| {
        let step = step.as_object()?;
        let id = step.get("transactionId")?.as_str()?;
        Some(Link {
            pointer: format!("/steps/{n}/transactionId"),
            families: transaction_families(text(step, "kind")),
            id: id.to_owned(),
            on_delete: OnDelete::Refuse,
        })
    });
    each.collect()
}

fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let all = steps(body);
    let runs = body.get("enabled") == Some(&json!(true));
    if runs && all.len() < STEPS_MIN {
        let why = format!("a process that is enabled has {STEPS_MIN} to {STEPS_MAX} steps");
        errors.push(FieldError::new("/steps", if all.is_empty() { "REQUIRED" } else { "OUT_OF_RANGE" }, why));
    }
    // With no time an instance would be abandoned as soon as it begins.
    if duration_ms(text(body, "timeout")).is_some_and(|ms| ms == 0 || i64::try_from(ms).is_err()) {
        errors.push(FieldError::new("/timeout", "OUT_OF_RANGE", "must be longer than 0s, and a time that can be told"));
    }
    for (n, step) in all.iter().filter_map(Value::as_object).enumerate() {
        let mut put = |key: &str, code, why: &str| errors.push(FieldError::new(format!("/steps/{n}/{key}"), code, why));
        let given = |key: &str| step.get(key).is_some_and(|v| !v.is_null());
        match (given("transactionId"), given("condition")) {
            (false, false) => put("condition", "REQUIRED", "a step has a `transactionId` or a `condition`"),
            (true, true) => {
                put("condition", "INVALID_VALUE", "a step has a `transactionId` or a `condition`, not both");
            }
            _ => {}
        }
        if given("transactionId") && !matches!(text(step, "kind"), "transaction" | "rum") {
            put("transactionId", "INVALID_VALUE", "goes with steps of kind transaction and rum");
        }
        if n == 0 && step.get("optional") == Some(&json!(true)) {
            put("optional", "INVALID_VALUE", "the first step cannot be optional");
        }
        if text(step, "service").contains('*') {
            put("service", "PATTERN", "must be a name, not a pattern");
        }
    }
}

/// Gives steps their ids and places, and notes of which services they are.
fn prepare<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let mut services = Vec::new();
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        let Some(Value::Array(all)) = draft.body.get_mut("steps") else { return Ok(()) };
        for (n, step) in all.iter_mut().filter_map(Value::as_object_mut).enumerate() {
            let id = step.get("id").and_then(Value::as_str).map_or_else(|| (making.new_id)(), str::to_owned);
            let name = text(step, "name").to_owned();
            if ids.contains(&id) {
                return Err(Problem::field(format!("/steps/{n}/id"), "INVALID_VALUE", "is given more than once"));
            }
            if names.contains(&name) {
                let why = format!("there are two steps `{name}`");
                let error = FieldError::new(format!("/steps/{n}/name"), "DUPLICATE", why.clone());
                let problem = Problem::new(ProblemKind::Conflict, "DUPLICATE", why);
                return Err(Problem { errors: vec![error], ..problem });
            }
            let own = text(step, "service").to_owned();
            let named = step.get("transactionId").and_then(Value::as_str).map(str::to_owned);
            let service = match named {
                Some(of) if own.is_empty() => {
                    let family = transaction_families(text(step, "kind"))[0];
                    let owner = if family == "transactions" { "service" } else { "application" };
                    find(db, family, &of).await?.map(|e| text(&e.body, owner).to_owned()).unwrap_or_default()
                }
                _ => own,
            };
            services.push(service);
            step.insert("id".to_owned(), json!(id));
            step.insert("position".to_owned(), json!(n));
            ids.push(id);
            names.push(name);
        }
        services.sort_unstable();
        services.dedup();
        if services.is_empty() {
            services.push(String::new());
        }
        draft.sealed.insert(SERVICES.to_owned(), json!(services));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::found_by;
    use super::*;

    fn told(body: Value) -> Vec<String> {
        found_by(rules, body)
    }

    fn step(more: Value) -> Value {
        let mut step = json!({"name": "a", "kind": "span", "condition": {"field": "a", "op": "exists"}});
        let (Value::Object(step), Value::Object(more)) = (&mut step, more) else { panic!("objects") };
        step.extend(more);
        Value::Object(step.clone())
    }

    #[test]
    fn steps_of_what_runs() {
        let two = json!([step(json!({})), step(json!({}))]);
        for (enabled, steps, expected) in [
            (true, two.clone(), &[][..]),
            (true, json!([]), &["/steps REQUIRED"][..]),
            (true, json!([step(json!({}))]), &["/steps OUT_OF_RANGE"][..]),
            // What does not run yet may be begun.
            (false, json!([]), &[][..]),
            (false, json!([step(json!({}))]), &[][..]),
        ] {
            assert_eq!(
                told(json!({"enabled": enabled, "timeout": "1h", "steps": steps})),
                expected,
                "{enabled} {steps}"
            );
        }
        for (timeout, expected) in [
            ("1ms", &[][..]),
            ("292y", &[][..]),
            ("0", &["/timeout OUT_OF_RANGE"][..]),
            ("0s", &["/timeout OUT_OF_RANGE"][..]),
            ("0h0m0s", &["/timeout OUT_OF_RANGE"][..]),
            ("584542046y", &["/timeout OUT_OF_RANGE"][..]),
        ] {
            assert_eq!(told(json!({"enabled": true, "timeout": timeout, "steps": two})), expected, "{timeout}");
        }
    }

    #[test]
    fn what_a_step_is_about() {
        let id = "00000000-0000-7000-8000-000000000001";
        let check = |more: Value, expected: &[&str]| {
            let steps = json!([step(json!({})), step(more.clone())]);
            assert_eq!(told(json!({"enabled": true, "timeout": "1h", "steps": steps})), expected, "{more}");
        };
        check(json!({}), &[]);
        check(json!({"condition": null}), &["/steps/1/condition REQUIRED"]);
        check(json!({"condition": null, "kind": "transaction", "transactionId": id}), &[]);
        check(json!({"condition": null, "kind": "rum", "transactionId": id}), &[]);
        check(json!({"kind": "transaction", "transactionId": id}), &["/steps/1/condition INVALID_VALUE"]);
        check(
            json!({"condition": null, "kind": "log", "transactionId": id}),
            &["/steps/1/transactionId INVALID_VALUE"],
        );
        check(json!({"service": "cart"}), &[]);
        check(json!({"service": "ca*"}), &["/steps/1/service PATTERN"]);
        check(json!({"optional": true}), &[]);
        let first = json!([step(json!({"optional": true})), step(json!({}))]);
        let found = told(json!({"enabled": true, "timeout": "1h", "steps": first}));
        assert_eq!(found, ["/steps/0/optional INVALID_VALUE"]);
    }

    /// A step names a transaction of the family that its kind says, at its place.
    #[test]
    fn what_a_step_names() {
        let body = json!({"steps": [
            {"kind": "transaction", "transactionId": "a"}, {"kind": "span", "transactionId": null}, {"kind": "rum", "transactionId": "b"},
        ]});
        let found = links(body.as_object().expect("an object"));
        let shown: Vec<_> = found.iter().map(|link| (link.pointer.as_str(), link.id.as_str(), link.families)).collect();
        let expected: [(&str, &str, &[&str]); 2] = [
            ("/steps/0/transactionId", "a", &["transactions"]),
            ("/steps/2/transactionId", "b", &["rum-key-business-transactions"]),
        ];
        assert_eq!(shown, expected);
        assert!(found.iter().all(|link| link.on_delete == OnDelete::Refuse));
    }
}
