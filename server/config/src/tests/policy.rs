//! The tree of routes, and who rules run as.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::families::{
    ALERTING_SETTINGS, EMPTY_RECEIVER_ID, GLOBAL_ID, POLICY_GLOBAL, RECEIVERS, ROOT_ROUTE_ID, ROUTES, RULES,
    SETTINGS_ID,
};

async fn route(fx: &Fixture, parent: &str) -> Entity {
    fx.create(&ROUTES, json!({"receiver": "empty", "parentId": parent})).await.unwrap()
}

#[tokio::test]
async fn the_root_stays() {
    let fx = fixture().await;
    let one = route(&fx, ROOT_ROUTE_ID).await;
    for op in [delete(ROOT_ROUTE_ID), patch(ROOT_ROUTE_ID, json!({"parentId": one.id}))] {
        assert_eq!(fx.op(&ROUTES, op).await.unwrap_err().code, "MANAGED_ENTITY");
    }
    let refused = fx.op(&RECEIVERS, delete(EMPTY_RECEIVER_ID)).await.unwrap_err();
    assert_eq!(refused.code, "MANAGED_ENTITY");
    // What it says of alerts may change; its place may not.
    let after = fx.op(&ROUTES, patch(ROOT_ROUTE_ID, json!({"position": 7, "group_wait": "1m"}))).await.unwrap().after;
    let after = after.unwrap().body;
    assert_eq!((&after["position"], &after["group_wait"], &after["parentId"]), (&json!(0), &json!("1m"), &Value::Null));
    let refused = fx.op(&ROUTES, delete(ROOT_ROUTE_ID)).await.unwrap_err();
    assert_eq!(refused.code, "MANAGED_ENTITY", "also of who changed it");
    let after = fx.create(&ROUTES, json!({"receiver": "empty"})).await.unwrap().body;
    assert_eq!(
        (&after["parentId"], &after["position"]),
        (&json!(ROOT_ROUTE_ID), &json!(1)),
        "nowhere is below the root"
    );
}

#[tokio::test]
async fn routes_make_a_tree() {
    let fx = fixture().await;
    let top = route(&fx, ROOT_ROUTE_ID).await;
    let middle = route(&fx, &top.id).await;
    let last = route(&fx, &middle.id).await;
    for below in [&top, &middle, &last] {
        let refused = fx.op(&ROUTES, patch(&top.id, json!({"parentId": below.id}))).await.unwrap_err();
        assert_eq!((refused.kind, refused.code), (ProblemKind::Conflict, "CYCLE"));
    }
    let nowhere = json!({"receiver": "empty", "parentId": "00000000-0000-7000-8000-00000000ffff"});
    let refused = fx.create(&ROUTES, nowhere).await.unwrap_err();
    assert_eq!((refused.errors[0].field.as_str(), refused.errors[0].code), ("/parentId", "UNKNOWN_REFERENCE"));
    // A branch moves as a whole, and goes as a whole.
    fx.op(&ROUTES, patch(&middle.id, json!({"parentId": ROOT_ROUTE_ID, "position": null}))).await.unwrap();
    fx.op(&ROUTES, patch(&top.id, json!({"parentId": last.id}))).await.unwrap();
    fx.op(&ROUTES, delete(&middle.id)).await.unwrap();
    let left = fx.list(&ROUTES, &[]).await.unwrap().items;
    assert_eq!(left.iter().filter_map(|route| route["id"].as_str()).collect::<Vec<_>>(), [ROOT_ROUTE_ID]);
}

/// A rule runs with the rights of who edited it last, and not of who wrote it back as it was.
#[tokio::test]
async fn rules_run_as_their_last_editor() {
    use crate::families::{RUN_AS, RUN_BY};
    let fx = fixture().await;
    let by = |subject: &str, triples: &[&str]| Caller { subject: subject.to_owned(), ..caller(triples) };
    let (ann, bob) = (by("user:ann", &["{edit, alerting, *}"]), by("user:bob", &["{edit, alerting, *}"]));
    let cid = by("user:cid", &["{admin, alerting, *}", "{view, logs, *}"]);
    let change = async |who: &Caller, op: Op| {
        let done = fx.config.change(&Place::of(&RULES), who, op, System::default(), ChangeMode::Apply).await.unwrap();
        done.after.unwrap()
    };
    let editor = |rule: &Entity| (rule.sealed[RUN_BY].as_str().unwrap().to_owned(), rule.sealed[RUN_AS].clone());
    let rights = |who: &Caller| Value::Array(who.rights.triples().iter().map(Triple::to_json).collect());
    let body = map(json!({"group": "g", "alert": "A", "expr": "up"}));
    let rule = change(&ann, Op::Create { id: None, body }).await;
    assert_eq!(editor(&rule), ("user:ann".to_owned(), rights(&ann)));
    assert_eq!((&rule.body["name"], &rule.body["position"]), (&json!("A"), &json!(0)));
    let same = patch(&rule.id, json!({"expr": "up"}));
    assert_eq!(editor(&change(&bob, same).await).0, "user:ann", "he has the same rights, and changed nothing");
    let other = patch(&rule.id, json!({"alert": null, "record": "a:b"}));
    let rule = change(&bob, other).await;
    assert_eq!((editor(&rule).0.as_str(), &rule.body["name"]), ("user:bob", &json!("a:b")));
    // With other rights it runs as somebody else, whatever it says.
    let rule = change(&cid, patch(&rule.id, json!({"expr": "up"}))).await;
    assert_eq!(editor(&rule), ("user:cid".to_owned(), rights(&cid)));
}

#[tokio::test]
async fn areas_are_named_one_by_one() {
    let fx = fixture().await;
    let said = async |areas: Value| {
        let op = patch(SETTINGS_ID, json!({"autoDeploy": areas}));
        fx.op(&ALERTING_SETTINGS, op).await.map(|done| done.after.unwrap().body["autoDeploy"].clone())
    };
    assert_eq!(said(json!({"rules": false})).await.unwrap(), json!({"rules": false, "policy": true}));
    assert_eq!(said(json!({"policy": false})).await.unwrap(), json!({"rules": false, "policy": false}));
    assert_eq!(said(json!({"rules": null})).await.unwrap(), json!({"rules": true, "policy": false}));
    let refused = said(json!({"receivers": false})).await.unwrap_err();
    assert_eq!((refused.errors[0].field.as_str(), refused.errors[0].code), ("/autoDeploy/receivers", "UNKNOWN_FIELD"));
}

/// The families of entities with the id of the globals, as they were before a change.
#[derive(Default)]
struct Before(Mutex<BTreeSet<&'static str>>);

impl Checks for Before {
    fn check(&self, _: &Family, _: &Map<String, Value>, _: &mut Vec<FieldError>) {}

    fn kept_secrets(
        &self,
        before: &[ComponentEntity],
        _: &[ComponentEntity],
        _: &[String],
        _: &BTreeSet<String>,
    ) -> Result<()> {
        let with_id = before.iter().filter(|part| part.id == GLOBAL_ID);
        *self.0.lock().unwrap() = with_id.map(|part| part.family).collect();
        Ok(())
    }
}

/// Breaks if an entity stands for one of another family with its id: the secrets of that seem to be sent nowhere, so
/// that no change may keep them.
#[tokio::test]
async fn ids_of_two_families_may_be_equal() {
    let (mut fx, checks) = (fixture().await, Arc::new(Before::default()));
    fx.config = fx.config.with_checks(Arc::clone(&checks) as Arc<dyn Checks>);
    let own = Op::Create { id: Some(GLOBAL_ID.to_owned()), body: map(json!({"name": "own"})) };
    fx.op(&RECEIVERS, own).await.unwrap();
    assert_eq!(*checks.0.lock().unwrap(), [POLICY_GLOBAL.name].into());
    fx.op(&RECEIVERS, patch(GLOBAL_ID, json!({"description": "x"}))).await.unwrap();
    assert_eq!(*checks.0.lock().unwrap(), [POLICY_GLOBAL.name, RECEIVERS.name].into());
}
