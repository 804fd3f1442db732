//! What the patterns of stored rules may take together.

use quiver_database::statement;

use super::*;
use crate::families::{DETECTION_RULES, RESOURCE_TYPES};

/// Rules stay compiled, so what their patterns take is bounded for all of them together.
#[tokio::test]
async fn patterns_of_rules_are_weighed() {
    let fx = fixture().await;
    fx.admin().await;
    let rule = |name: &str, pattern: &str| json!({"name": name, "condition": {"field": "http.route", "op": "regex", "value": pattern}});
    let weight = async || -> Option<i64> {
        let sql = "SELECT number FROM pattern_bytes WHERE family = ?";
        let row = statement(sql).bind(DETECTION_RULES.name).fetch_optional(&fx.config.pool).await.unwrap();
        row.map(|row| row.try_get(0).unwrap())
    };
    assert_eq!(weight().await, None);
    let small = fx.create(&DETECTION_RULES, rule("one", "a+b")).await.unwrap();
    let alone = weight().await.unwrap();
    assert!((1..100_000).contains(&alone), "{alone}");
    let large = fx.create(&DETECTION_RULES, rule("two", r"\w{15}")).await.unwrap();
    let both = weight().await.unwrap();
    assert!(both > alone + 300_000, "{both}");
    assert_eq!(fx.create(&DETECTION_RULES, rule("two", r"\w{20}")).await.unwrap_err().code, "DUPLICATE");
    assert_eq!(weight().await, Some(both), "what is not kept weighs nothing");
    fx.op(&DETECTION_RULES, patch(&large.id, json!({"priority": 7}))).await.unwrap();
    assert_eq!(weight().await, Some(both));
    fx.op(&DETECTION_RULES, delete(&large.id)).await.unwrap();
    assert_eq!(weight().await, Some(alone));
    // Those of earlier builds were not noted.
    statement("DELETE FROM pattern_bytes").execute(&fx.config.pool).await.unwrap();
    fx.op(&DETECTION_RULES, patch(&small.id, json!({"priority": 8}))).await.unwrap();
    assert_eq!(weight().await, Some(alone));
    let sql = "UPDATE pattern_bytes SET number = ? WHERE family = ?";
    statement(sql).bind(128_i64 << 20).bind(DETECTION_RULES.name).execute(&fx.config.pool).await.unwrap();
    let full = fx.create(&DETECTION_RULES, rule("three", "a+c")).await.unwrap_err();
    assert_eq!(full.errors[0].code, "LIMIT_EXCEEDED");
    assert!(full.errors[0].message.contains("134217728 bytes of memory"), "{}", full.errors[0].message);
    fx.op(&DETECTION_RULES, patch(&small.id, json!({"priority": 9}))).await.expect("it takes no more");
    fx.op(&DETECTION_RULES, delete(&small.id)).await.unwrap();
}

/// Conditions within lists count, whichever family they are of.
#[test]
fn conditions_in_lists_are_weighed() {
    let leaf = |pattern: &str| json!({"field": "http.route", "op": "regex", "value": pattern});
    let step = |name: &str, pattern: &str| json!({"name": name, "kind": "span", "condition": leaf(pattern)});
    let process = |pattern: &str| json!({"steps": [step("a", "a+b"), step("b", pattern)]});
    let bytes = |family: &Family, body: Value| (family.patterns_bytes.expect("it has patterns"))(&map(body));
    let small = bytes(&PROCESSES, process("a+c"));
    assert!((1..100_000).contains(&small), "{small}");
    assert!(bytes(&PROCESSES, process(r"\w{15}")) > small + 300_000);
    let discovery = json!([{"signal": "logs", "condition": leaf("a+b")}, {"signal": "logs", "condition": null}]);
    assert!(bytes(&RESOURCE_TYPES, json!({"discovery": discovery})) > 0);
    assert_eq!(bytes(&RESOURCE_TYPES, json!({})), 0);
}
