//! Several resources that are one; what families fill in.

use quiver_types::query_configuration::{RUM_MS, SERVICE_MS};

use super::*;
use crate::families::{APDEX_THRESHOLDS, EXTRACTION_RULES, RELATIONSHIPS, RESOURCES, SERVICE_TYPE_ID};

/// The built-in type of calls.
const CALLS: &str = "00000000-0000-7000-8000-000000000202";

async fn service(fx: &Fixture, name: &str, seen: Value) -> Entity {
    let body = map(json!({"typeId": SERVICE_TYPE_ID, "attributes": {"service.name": name}}));
    let system = System { body: map(seen), ..System::default() };
    let op = Op::Create { id: None, body };
    let done =
        fx.config.change(&Place::of(&RESOURCES), &Caller::system(), op, system, ChangeMode::Apply).await.unwrap();
    done.after.unwrap()
}

async fn calls(fx: &Fixture, source: &Entity, target: &Entity) {
    let body = json!({"typeId": CALLS, "sourceId": source.id, "targetId": target.id});
    fx.create(&RELATIONSHIPS, body).await.unwrap();
}

/// Who calls whom, by keys of resources.
async fn edges(fx: &Fixture) -> Vec<String> {
    let keys: Map<String, Value> = fx
        .list(&RESOURCES, &[])
        .await
        .unwrap()
        .items
        .iter()
        .map(|item| (item["id"].as_str().unwrap().to_owned(), item["key"].clone()))
        .collect();
    let key = |id: &Value| keys[id.as_str().unwrap()].as_str().unwrap().to_owned();
    let all = fx.list(&RELATIONSHIPS, &[]).await.unwrap().items;
    let mut edges: Vec<String> =
        all.iter().map(|edge| format!("{}>{}", key(&edge["sourceId"]), key(&edge["targetId"]))).collect();
    edges.sort_unstable();
    edges
}

#[tokio::test]
async fn resources_that_are_one() {
    let fx = fixture().await;
    let day = |day: &str| format!("2026-01-{day}T00:00:00.000Z");
    let seen = |first: &str, last: &str| json!({"firstSeen": day(first), "lastSeen": day(last)});
    let a = service(&fx, "a", seen("02", "03")).await;
    let b = service(&fx, "b", seen("01", "05")).await;
    let c = service(&fx, "c", json!({})).await;
    let (east, west) = (service(&fx, "x", json!({})).await, service(&fx, "y", json!({})).await);
    for (source, target) in [(&b, &east), (&c, &east), (&a, &b), (&west, &b), (&east, &west)] {
        calls(&fx, source, target).await;
    }
    let before = edges(&fx).await;
    let merge = async |from: &[&str], mode: ChangeMode| {
        let from: Vec<String> = from.iter().map(|id| (*id).to_owned()).collect();
        fx.config.merge_resources(&Caller::system(), &a.id, &from, mode).await
    };
    // All or nothing.
    let unknown = "00000000-0000-7000-8000-00000000ffff";
    let refused = merge(&[b.id.as_str(), unknown], ChangeMode::Apply).await.unwrap_err();
    assert_eq!((refused.kind, edges(&fx).await), (ProblemKind::NotFound, before.clone()));
    assert_eq!(merge(&[b.id.as_str(), c.id.as_str()], ChangeMode::DryRun).await.unwrap(), (2, 2));
    assert_eq!(edges(&fx).await, before, "nothing was to change");
    // One would lead to itself, one would stand twice.
    assert_eq!(merge(&[b.id.as_str(), c.id.as_str()], ChangeMode::Apply).await.unwrap(), (2, 2));
    assert_eq!(edges(&fx).await, ["a>x", "x>y", "y>a"]);
    let kept = fx.config.get(&Place::of(&RESOURCES), &a.id, &Caller::system()).await.unwrap().body;
    let expected = seen("01", "05");
    assert_eq!((&kept["firstSeen"], &kept["lastSeen"]), (&expected["firstSeen"], &expected["lastSeen"]));
    for gone in [&b, &c] {
        let refused = fx.config.get(&Place::of(&RESOURCES), &gone.id, &Caller::system()).await.unwrap_err();
        assert_eq!(refused.kind, ProblemKind::NotFound);
    }
}

#[tokio::test]
async fn thresholds_go_by_what_is_measured() {
    let fx = fixture().await;
    let threshold = |entity: Entity| entity.body["thresholdMs"].as_i64();
    let made = fx.create(&APDEX_THRESHOLDS, json!({"service": "a"})).await.unwrap();
    let id = made.id.clone();
    assert_eq!(threshold(made), Some(SERVICE_MS));
    let page = fx.create(&APDEX_THRESHOLDS, json!({"service": "a", "signal": "rum"})).await.unwrap();
    assert_eq!(threshold(page), Some(RUM_MS));
    let own = fx.op(&APDEX_THRESHOLDS, patch(&id, json!({"thresholdMs": 7}))).await.unwrap();
    assert_eq!(threshold(own.after.unwrap()), Some(7));
    let none = fx.op(&APDEX_THRESHOLDS, patch(&id, json!({"thresholdMs": null}))).await.unwrap();
    assert_eq!(threshold(none.after.unwrap()), Some(SERVICE_MS));
    let twice = fx.create(&APDEX_THRESHOLDS, json!({"service": "a", "operation": null})).await.unwrap_err();
    assert_eq!(twice.code, "DUPLICATE", "no operation is all of them");
}

/// Rules that were suspended are tried again when somebody changes them; reserved fields are for administrators.
#[tokio::test]
async fn rules_of_extraction() {
    let fx = fixture().await;
    let rule = |name: &str, more: Value| {
        let mut body =
            map(json!({"name": name, "signal": "logs", "method": "logfmt", "targets": [{"field": "x", "from": "y"}]}));
        body.extend(map(more));
        Op::Create { id: None, body }
    };
    let editor = caller(&["{edit, extraction, *}"]);
    let change = async |who: &Caller, op: Op, system: Value| {
        let system = System { body: map(system), ..System::default() };
        let done = fx.config.change(&Place::of(&EXTRACTION_RULES), who, op, system, ChangeMode::Apply).await;
        done.map(|done| done.after.unwrap())
    };
    let made = change(&editor, rule("a", json!({})), json!({})).await.unwrap();
    assert_eq!((&made.body["source"], &made.body["position"]), (&json!("_msg"), &json!(0)), "logs have a message");
    let other = change(&editor, rule("b", json!({"source": "body"})), json!({})).await.unwrap();
    assert_eq!((&other.body["source"], &other.body["position"]), (&json!("body"), &json!(1)));
    let suspended = json!({"health": "suspended"});
    let system = Caller::system();
    let after = change(&system, patch(&made.id, json!({})), suspended).await.unwrap();
    assert_eq!(after.body["health"], "suspended");
    let after = change(&system, patch(&made.id, json!({"description": "d"})), json!({})).await.unwrap();
    assert_eq!(after.body["health"], "suspended", "the service does not change its mind");
    let after = change(&editor, patch(&made.id, json!({"description": "e"})), json!({})).await.unwrap();
    assert_eq!(after.body["health"], "ok");
    let reserved = rule("c", json!({"allowReserved": true, "service": "cart*"}));
    let refused = change(&editor, reserved.clone(), json!({})).await.unwrap_err();
    assert_eq!((refused.code, &refused.more["required"]), ("FORBIDDEN", &json!("{admin, extraction, cart*}")));
    change(&caller(&["{admin, extraction, cart*}"]), reserved, json!({})).await.unwrap();
}
