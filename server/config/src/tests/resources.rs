//! Keys of resources follow from what makes identity.

use quiver_database::statement;

use super::*;
use crate::families::{
    CI_CLASSES, CI_SUBCLASSES, RELATIONSHIP_TYPES, RELATIONSHIPS, RESOURCE_TYPES, RESOURCES, SERVICE_TYPE_ID,
};

async fn keys(fx: &Fixture) -> Vec<String> {
    let page = fx.list(&RESOURCES, &[("sort", "id")]).await.unwrap();
    page.items.iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect()
}

/// Of servers over one database each knew its own alerts alone, and noted as `ok` what another noted as `critical`.
#[tokio::test]
async fn alerts_of_all_servers_count() {
    let fx = fixture().await;
    let alerts =
        |all: &[(&str, bool)]| all.iter().map(|(name, bad)| ((*name).to_owned(), *bad)).collect::<ServiceAlerts>();
    let share = async |server: &str, own: &[(&str, bool)], since_ms: i64| {
        fx.config.share_alerts(server, alerts(own), since_ms).await.unwrap()
    };
    let (a, b) = ([("cart", false), ("pay", true)], [("cart", true), ("web", false)]);
    let expect =
        |of_all: &[(&str, bool)], own: &[(&str, bool)]| alerts(if fx.config.is_shared() { of_all } else { own });
    assert_eq!(share("a", &a, NOW).await, alerts(&a));
    let of_both = [("cart", true), ("pay", true), ("web", false)];
    assert_eq!(share("b", &b, NOW).await, expect(&of_both, &b));
    assert_eq!(share("a", &[], NOW).await, expect(&b, &[]), "what ended here fires there");
    let many: Vec<String> = (0..250).map(|n| format!("s{n}")).collect();
    let many: Vec<(&str, bool)> = many.iter().map(|name| (name.as_str(), false)).collect();
    fx.clock.0.fetch_add(10, SeqCst);
    assert_eq!(share("a", &many, NOW + 1).await, alerts(&many), "the other one says nothing any more");
}

/// What is noted of resources is no change, after which everybody reads all configuration anew.
#[tokio::test]
async fn what_is_seen_changes_nothing() {
    let fx = fixture().await;
    let body = json!({"typeId": SERVICE_TYPE_ID, "attributes": {"service.name": "cart"}});
    let resource = fx.create(&RESOURCES, body).await.unwrap();
    let (changes, revision, state) = (fx.config.watch(), fx.config.revision(), fx.config.state());
    let seen = ResourceSighting { id: resource.id.clone(), last_ms: Some(NOW), health: "warning" };
    fx.config.seen(&[seen]).await.unwrap();
    assert_eq!((changes.has_changed().unwrap(), fx.config.revision()), (false, revision));
    assert_ne!(fx.config.state(), state, "who keeps resources reads them anew");
    let read = fx.config.get(&Place::of(&RESOURCES), &resource.id, &Caller::system()).await.unwrap();
    assert_eq!((read.version, &read.body["health"]), (1, &json!("warning")));
}

#[tokio::test]
async fn resources_follow_the_identity_of_their_type() {
    let fx = fixture().await;
    let attributes = json!([{"key": "serial", "required": true}, {"key": "slot"}]);
    let body = json!({"key": "disk", "name": "Disk", "attributes": attributes, "identityKeys": ["serial"]});
    let of = fx.create(&RESOURCE_TYPES, body).await.unwrap();
    let disk = |serial: &str, slot: Option<&str>| {
        let mut attributes = json!({"serial": serial});
        if let Some(slot) = slot {
            attributes["slot"] = json!(slot);
        }
        json!({"typeId": of.id, "attributes": attributes})
    };
    let first = fx.create(&RESOURCES, disk("a", Some("b"))).await.unwrap();
    let second = fx.create(&RESOURCES, disk("b", Some("a"))).await.unwrap();
    let third = fx.create(&RESOURCES, disk("c", None)).await.unwrap();
    let by = |keys: Value| patch(&of.id, json!({"identityKeys": keys}));
    // What makes identity must be there, and of one only.
    let check = async |code: &str| {
        let problem = fx.op(&RESOURCE_TYPES, by(json!(["slot"]))).await.unwrap_err();
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/identityKeys", code));
        assert_eq!(keys(&fx).await, ["a", "b", "c"]);
    };
    check("INVALID_VALUE").await;
    fx.op(&RESOURCES, patch(&third.id, json!({"attributes": {"slot": "a"}}))).await.unwrap();
    check("DUPLICATE").await;
    fx.op(&RESOURCES, patch(&third.id, json!({"attributes": {"slot": "c"}}))).await.unwrap();
    // Two change places, one stays.
    fx.op(&RESOURCE_TYPES, by(json!(["slot"]))).await.unwrap();
    assert_eq!(keys(&fx).await, ["b", "a", "c"]);
    let read = async |id: &str| fx.config.get(&Place::of(&RESOURCES), id, &Caller::system()).await.unwrap();
    assert_eq!((read(&first.id).await.version, read(&second.id).await.version), (2, 2));
    assert_eq!(read(&third.id).await.version, 3);
    fx.op(&RESOURCES, patch(&first.id, json!({"tags": ["x"]}))).await.unwrap();
    assert_eq!(fx.create(&RESOURCES, disk("d", Some("b"))).await.unwrap_err().code, "DUPLICATE");
    // Without identity the keys are those that are there.
    fx.op(&RESOURCE_TYPES, by(json!([]))).await.unwrap();
    fx.op(&RESOURCES, patch(&first.id, json!({"key": "own"}))).await.unwrap();
    assert_eq!(keys(&fx).await, ["own", "a", "c"]);
}

/// What was comes back under the identity that its type has now.
#[tokio::test]
async fn restored_resources_follow_the_identity_of_today() {
    let fx = fixture().await;
    let attributes = json!([{"key": "serial"}, {"key": "slot"}]);
    let body = json!({"key": "disk", "name": "Disk", "attributes": attributes, "identityKeys": ["serial"]});
    let of = fx.create(&RESOURCE_TYPES, body).await.unwrap();
    let body = json!({"typeId": of.id, "attributes": {"serial": "a", "slot": "b"}});
    let disk = fx.create(&RESOURCES, body).await.unwrap();
    fx.op(&RESOURCES, patch(&disk.id, json!({"tags": ["x"]}))).await.unwrap();
    fx.op(&RESOURCE_TYPES, patch(&of.id, json!({"identityKeys": ["slot"]}))).await.unwrap();
    let restore = async || fx.op(&RESOURCES, Op::Restore { id: disk.id.clone(), version: 1 }).await;
    let after = restore().await.unwrap().after.unwrap();
    assert_eq!((&after.body["key"], &after.body["tags"]), (&json!("b"), &json!([])));
    fx.op(&RESOURCES, delete(&disk.id)).await.unwrap();
    assert_eq!(restore().await.unwrap().after.unwrap().body["key"], "b");
    // Keys that follow from nothing come back.
    fx.op(&RESOURCE_TYPES, patch(&of.id, json!({"identityKeys": []}))).await.unwrap();
    assert_eq!(restore().await.unwrap().after.unwrap().body["key"], "a");
}

/// A change of what makes identity changes the key; one that is given has to be right.
#[tokio::test]
async fn keys_follow_attributes() {
    let fx = fixture().await;
    let body = json!({"key": "disk", "name": "Disk", "attributes": [{"key": "serial"}], "identityKeys": ["serial"]});
    let of = fx.create(&RESOURCE_TYPES, body).await.unwrap();
    let disk = fx.create(&RESOURCES, json!({"typeId": of.id, "attributes": {"serial": "a"}})).await.unwrap();
    let change = async |body: Value| fx.op(&RESOURCES, patch(&disk.id, body)).await;
    let after = change(json!({"attributes": {"serial": "b"}})).await.unwrap().after.unwrap();
    assert_eq!(after.body["key"], "b");
    assert_eq!(change(json!({"key": "x"})).await.unwrap_err().errors[0].code, "INVALID_VALUE");
    let wrong = change(json!({"key": "x", "attributes": {"serial": "c"}})).await.unwrap_err();
    assert_eq!(wrong.errors[0].field, "/key");
    change(json!({"key": "c", "attributes": {"serial": "c"}})).await.unwrap();
    assert_eq!(keys(&fx).await, ["c"]);
}

/// What a class says is said of what stands below it, too.
#[tokio::test]
async fn classes_contradict_nothing_below() {
    let fx = fixture().await;
    let class = async |key: &str, more: Value| {
        let mut body = map(json!({"key": key, "name": key}));
        body.extend(map(more));
        fx.create(&CI_CLASSES, Value::Object(body)).await
    };
    let top = class("top", json!({"attributes": [{"key": "os"}]})).await.unwrap();
    let below = class("below", json!({"parentId": top.id})).await.unwrap();
    let body = json!({"classId": below.id, "key": "sub", "name": "sub", "attributes": [{"key": "rack"}]});
    let sub = fx.create(&CI_SUBCLASSES, body).await.unwrap();
    let body = json!({"key": "kind", "name": "kind", "ciSubclassId": sub.id, "identityKeys": ["os"],
        "attributes": [{"key": "own"}]});
    let kind = fx.create(&RESOURCE_TYPES, body).await.unwrap();
    let check = async |family: &'static Family, id: &str, change: Value, field: &str| {
        let problem = fx.op(family, patch(id, change)).await.unwrap_err();
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), (field, "INVALID_VALUE"));
    };
    let attributes = |key: &str, of: &str| json!({"attributes": [{"key": "os"}, {"key": key, "type": of}]});
    check(&CI_CLASSES, &top.id, attributes("rack", "int"), "/attributes").await;
    check(&CI_CLASSES, &below.id, attributes("own", "bool"), "/attributes").await;
    // The type is known by it.
    check(&CI_CLASSES, &top.id, json!({"attributes": []}), "/attributes").await;
    check(&CI_CLASSES, &below.id, json!({"parentId": null}), "/parentId").await;
    let other = class("other", json!({"attributes": [{"key": "os"}, {"key": "own", "type": "int"}]})).await.unwrap();
    check(&CI_SUBCLASSES, &sub.id, json!({"classId": other.id}), "/classId").await;
    // Those below a class count as deep as it is.
    let mut deep = class("1", json!({})).await.unwrap();
    for n in 2..8 {
        deep = class(&n.to_string(), json!({"parentId": deep.id})).await.unwrap();
    }
    check(&CI_CLASSES, &top.id, json!({"parentId": deep.id}), "/parentId").await;
    // What contradicts nothing is taken, and nothing is stuck.
    fx.op(&CI_CLASSES, patch(&top.id, attributes("rack", "string"))).await.unwrap();
    fx.op(&RESOURCE_TYPES, patch(&kind.id, json!({"icon": "x"}))).await.unwrap();
    let none = json!({"attributes": [{"key": "a", "enum": ["x"], "default": "y"}]});
    let problem = class("wrong", none).await.unwrap_err();
    assert_eq!(problem.errors[0].field, "/attributes/0/default");
}

/// A type of relationships, and the types of resources, contradict no relationship that is there.
#[tokio::test]
async fn relationships_hold_their_types() {
    let fx = fixture().await;
    let kind = async |key: &str| fx.create(&RESOURCE_TYPES, json!({"key": key, "name": key})).await.unwrap().id;
    let (disk, rack) = (kind("disk").await, kind("rack").await);
    let resource = async |of: &str, key: &str| {
        let body = json!({"typeId": of, "key": key});
        fx.create(&RESOURCES, body).await.unwrap().id
    };
    let (a, b, c) = (resource(&disk, "a").await, resource(&disk, "b").await, resource(&rack, "c").await);
    let of = fx.create(&RELATIONSHIP_TYPES, json!({"key": "inside", "name": "inside"})).await.unwrap().id;
    let relate = async |source: &str, target: &str| {
        let body = json!({"typeId": of, "sourceId": source, "targetId": target});
        fx.create(&RELATIONSHIPS, body).await.unwrap().id
    };
    relate(&a, &c).await;
    relate(&b, &c).await;
    let back = relate(&c, &a).await;
    let change = async |body: Value| fx.op(&RELATIONSHIP_TYPES, patch(&of, body)).await;
    let check = async |body: Value, field: &str, code: &str| {
        let problem = change(body.clone()).await.unwrap_err();
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), (field, code), "{body}");
    };
    check(json!({"sourceTypeIds": [disk]}), "/sourceTypeIds", "INVALID_VALUE").await;
    check(json!({"targetTypeIds": [rack]}), "/targetTypeIds", "INVALID_VALUE").await;
    check(json!({"acyclic": true}), "/acyclic", "CYCLE").await;
    check(json!({"cardinality": "1:n"}), "/cardinality", "INVALID_VALUE").await;
    fx.op(&RELATIONSHIPS, delete(&back)).await.unwrap();
    let narrow = json!({"sourceTypeIds": [disk], "targetTypeIds": [rack], "acyclic": true, "cardinality": "n:1"});
    change(narrow).await.unwrap();
    check(json!({"cardinality": "1:1"}), "/cardinality", "INVALID_VALUE").await;
    // Nor does a resource become something that they do not take.
    let problem = fx.op(&RESOURCES, patch(&c, json!({"typeId": disk}))).await.unwrap_err();
    assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/typeId", "INVALID_VALUE"));
    // What is not asked of them can be changed.
    change(json!({"forwardLabel": "stands in"})).await.unwrap();
    change(json!({"sourceTypeIds": [disk, rack], "cardinality": "n:m"})).await.unwrap();
}

/// What a release before said of a built-in type is replaced at the start, as a change with its history.
#[tokio::test]
async fn what_is_built_in_follows_the_release() {
    let fx = fixture().await;
    let service = || async { fx.config.find(&RESOURCE_TYPES, SERVICE_TYPE_ID).await.unwrap().unwrap() };
    let now = service().await;
    let mut before = now.body.clone();
    before.insert("description".to_owned(), json!("of a release before"));
    let sql = "UPDATE entity SET body = ? WHERE family = ? AND id = ?";
    let older = statement(sql).bind(Value::Object(before).to_string()).bind(RESOURCE_TYPES.name).bind(SERVICE_TYPE_ID);
    older.execute(&fx.config.pool).await.unwrap();
    fx.create(&CI_CLASSES, json!({"key": "c", "name": "c"})).await.unwrap();
    for _ in 0..2 {
        let c = &fx.config;
        let (random, vault, sealer) = (Arc::clone(&c.random), Arc::clone(&c.vault), Arc::clone(&c.sealer));
        let opened = Config::open(c.pool.clone(), Arc::clone(&c.clock), random, vault, sealer).await.unwrap();
        // The second start finds nothing that differs, of whichever family.
        assert_eq!(opened.revision(), fx.config.revision() + 1, "servers that run already are told");
        let again = service().await;
        assert_eq!((again.version, &again.managed_by, &again.body), (now.version + 1, &now.managed_by, &now.body));
    }
    // Nobody else changes it.
    let refused = fx.op(&RESOURCE_TYPES, patch(SERVICE_TYPE_ID, json!({"description": "mine"}))).await.unwrap_err();
    assert_eq!(refused.code, "MANAGED_ENTITY");
}
