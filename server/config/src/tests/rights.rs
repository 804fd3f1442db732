//! Rules of users, roles, bindings, groups and keys.

use super::*;
use crate::families::RULES;

#[tokio::test]
async fn an_administrator_stays() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let binding = fx.list(&BINDINGS, &[]).await.unwrap().items[0]["id"].as_str().unwrap().to_owned();
    let check = async |op: Op, family| assert_eq!(fx.op(family, op).await.unwrap_err().code, "LAST_ADMIN");
    check(delete(&admin.id), &USERS).await;
    check(patch(&admin.id, json!({"enabled": false})), &USERS).await;
    check(delete(&binding), &BINDINGS).await;
    check(patch(&binding, json!({"services": ["cart"]})), &BINDINGS).await;
    check(patch(&binding, json!({"expiresAt": "2020-01-01T00:00:00Z"})), &BINDINGS).await;
    check(patch(&binding, json!({"expiresAt": "2099-01-01T00:00:00Z"})), &BINDINGS).await;
    // A second one through a group lets the first go; then the group's is the last.
    let other = fx.create(&USERS, json!({"username": "other"})).await.unwrap();
    let group = fx.create(&GROUPS, json!({"name": "ops", "members": [other.id]})).await.unwrap();
    let subject = json!({"type": "group", "id": group.id});
    fx.create(&BINDINGS, json!({"subject": subject, "roleId": ADMIN_ROLE_ID})).await.unwrap();
    fx.op(&USERS, delete(&admin.id)).await.unwrap();
    assert_eq!(fx.list(&BINDINGS, &[]).await.unwrap().items.len(), 1, "its binding went along");
    check(delete(&other.id), &USERS).await;
    check(patch(&group.id, json!({"members": []})), &GROUPS).await;
    check(delete(&group.id), &GROUPS).await;
}

#[tokio::test]
async fn nobody_gives_what_they_lack() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let some = caller(&["{admin, rbac, *}", "{view, logs, *}"]);
    let change = async |family: &'static Family, op| {
        fx.config.change(&Place::of(family), &some, op, System::default(), ChangeMode::Apply).await
    };
    let create = async |family, body| change(family, Op::Create { id: None, body: map(body) }).await;
    let check = async |family, body: Value, required: &str| {
        let problem = create(family, body).await.unwrap_err();
        assert_eq!((problem.code, problem.more["required"].as_str()), ("FORBIDDEN", Some(required)));
    };
    check(&ROLES, json!({"name": "r", "permissions": ["{edit, logs, *}"]}), "{edit, logs, *}").await;
    let user = create(&USERS, json!({"username": "ann"})).await.unwrap().after.unwrap();
    let subject = json!({"type": "user", "id": user.id});
    check(&BINDINGS, json!({"subject": subject, "roleId": ADMIN_ROLE_ID}), "{admin, *, *}").await;
    let role =
        create(&ROLES, json!({"name": "r", "permissions": ["{view, logs, cart}"]})).await.unwrap().after.unwrap();
    create(&BINDINGS, json!({"subject": subject, "roleId": role.id})).await.unwrap();
    // Setting the password of somebody with more rights would be a way to get these.
    let problem = change(&USERS, patch(&admin.id, json!({"password": "stolen one"}))).await.unwrap_err();
    assert_eq!((problem.code, problem.more["required"].as_str()), ("FORBIDDEN", Some("{admin, *, *}")));
    // So is membership of a group that holds more.
    let group = fx.create(&GROUPS, json!({"name": "ops"})).await.unwrap();
    let of_group = json!({"type": "group", "id": group.id});
    fx.create(&BINDINGS, json!({"subject": of_group, "roleId": ADMIN_ROLE_ID})).await.unwrap();
    let problem = change(&GROUPS, patch(&group.id, json!({"members": [user.id]}))).await.unwrap_err();
    assert_eq!(problem.code, "FORBIDDEN");
    // And a key of one's better.
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", admin.id) };
    let op = Op::Create { id: None, body: map(json!({"name": "k"})) };
    assert_eq!(
        fx.config.change(&keys, &some, op, System::default(), ChangeMode::Apply).await.unwrap_err().code,
        "FORBIDDEN"
    );
}

/// What an account holds counts whichever way it comes: by several bindings, of its own and of its groups, while they last.
#[tokio::test]
async fn rights_come_in_several_ways() {
    let fx = fixture().await;
    fx.admin().await;
    let user = fx.create(&USERS, json!({"username": "ann"})).await.unwrap();
    let bob = fx.create(&USERS, json!({"username": "bob"})).await.unwrap();
    let (of_user, of_bob) = (json!({"type": "user", "id": user.id}), json!({"type": "user", "id": bob.id}));
    let mut groups = Vec::new();
    for (name, members) in [("a", json!([user.id])), ("b", json!([user.id])), ("c", json!([]))] {
        let group = fx.create(&GROUPS, json!({"name": name, "members": members})).await.unwrap();
        groups.push(json!({"type": "group", "id": group.id}));
    }
    let over = json!("2020-01-01T00:00:00Z");
    for (n, (subject, end)) in [
        (&of_user, Value::Null),
        (&of_user, over.clone()),
        (&of_bob, Value::Null),
        (&groups[0], Value::Null),
        (&groups[1], over),
        (&groups[2], Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"name": format!("r{n}"), "permissions": [format!("{{view, logs, s{n}}}")]});
        let role = fx.create(&ROLES, body).await.unwrap();
        fx.create(&BINDINGS, json!({"subject": subject, "roleId": role.id, "expiresAt": end})).await.unwrap();
    }
    // Whoever changes the account must hold as much.
    let change = async |triples: &[&str], text: &str| {
        let op = patch(&user.id, json!({"description": text}));
        fx.config.change(&Place::of(&USERS), &caller(triples), op, System::default(), ChangeMode::Apply).await
    };
    let rbac = "{admin, rbac, *}";
    change(&[rbac, "{view, logs, s0}", "{view, logs, s3}"], "enough").await.unwrap();
    for (held, lacks) in [("{view, logs, s0}", "{view, logs, s3}"), ("{view, logs, s3}", "{view, logs, s0}")] {
        let problem = change(&[rbac, held], "too little").await.unwrap_err();
        assert_eq!(problem.more["required"], lacks);
    }
}

/// An administrator by a role of one's own, or by a group, is one, too.
#[tokio::test]
async fn administrators_by_other_roles_stay() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let role = fx.create(&ROLES, json!({"name": "all", "permissions": ["{admin, *, *}"]})).await.unwrap();
    let other = fx.create(&SERVICE_ACCOUNTS, json!({"clientId": "other"})).await.unwrap();
    let subject = json!({"type": "serviceAccount", "id": other.id});
    let binding = fx.create(&BINDINGS, json!({"subject": subject, "roleId": role.id})).await.unwrap();
    fx.op(&USERS, patch(&admin.id, json!({"enabled": false}))).await.unwrap();
    for (family, op) in [
        (&SERVICE_ACCOUNTS, delete(&other.id)),
        (&SERVICE_ACCOUNTS, patch(&other.id, json!({"enabled": false}))),
        (&BINDINGS, delete(&binding.id)),
        (&ROLES, patch(&role.id, json!({"permissions": ["{edit, *, *}"]}))),
    ] {
        assert_eq!(fx.op(family, op).await.unwrap_err().code, "LAST_ADMIN", "{}", family.name);
    }
}

/// Whoever found a key that may do little does no harm to those of its owner that may do more.
#[tokio::test]
async fn keys_leave_better_ones_alone() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", admin.id) };
    let mut own = caller(&["{admin, *, *}"]);
    own.subject = format!("user:{}", admin.id);
    let make = async |name: &str, permissions: Value| {
        let op = Op::Create { id: None, body: map(json!({"name": name, "permissions": permissions})) };
        fx.config.change(&keys, &own, op, System::default(), ChangeMode::Apply).await.unwrap().after.unwrap().id
    };
    let (all, logs) = (make("all", Value::Null).await, make("logs", json!(["{ingest, logs, *}"])).await);
    let cart = make("cart", json!(["{ingest, logs, cart}"])).await;
    // One that may send logs has called.
    let mut found = caller(&["{ingest, logs, *}"]);
    (found.subject, found.key) = (own.subject.clone(), Some(KeyBounds { expires_ms: None, networks: Vec::new() }));
    let change = async |who: &Caller, op| fx.config.change(&keys, who, op, System::default(), ChangeMode::Apply).await;
    let less = json!({"permissions": ["{ingest, logs, cart}"]});
    for op in [delete(&all), patch(&all, json!({"allowedCidrs": ["192.0.2.0/24"]})), patch(&all, less)] {
        let problem = change(&found, op).await.unwrap_err();
        assert_eq!((problem.code, &problem.more["required"]), ("FORBIDDEN", &json!("{admin, *, *}")));
    }
    change(&found, delete(&cart)).await.unwrap();
    change(&found, delete(&logs)).await.unwrap();
    // A token of the owner ends any of them.
    change(&Caller { rights: Rights::default(), ..own.clone() }, delete(&all)).await.unwrap();
}

/// Whoever makes accounts may choose their ids: that of an administrator would give an account of the other kind his rights.
#[tokio::test]
async fn no_account_takes_the_id_of_another() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let some = caller(&["{admin, rbac, *}"]);
    let change = async |family: &'static Family, op| {
        fx.config.change(&Place::of(family), &some, op, System::default(), ChangeMode::Apply).await
    };
    let under = |id: &str, body| Op::Create { id: Some(id.to_owned()), body: map(body) };
    let twin = change(&SERVICE_ACCOUNTS, under(&admin.id, json!({"clientId": "twin"}))).await.unwrap_err();
    assert_eq!((twin.kind, twin.code), (ProblemKind::Precondition, "VERSION_CONFLICT"));
    let agent = fx.create(&SERVICE_ACCOUNTS, json!({"clientId": "agent"})).await.unwrap();
    let twin = change(&USERS, under(&agent.id, json!({"username": "twin"}))).await.unwrap_err();
    assert_eq!(twin.code, "VERSION_CONFLICT");
    // Nor is one brought back to an id that another one has by now.
    fx.op(&SERVICE_ACCOUNTS, delete(&agent.id)).await.unwrap();
    change(&USERS, under(&agent.id, json!({"username": "twin"}))).await.unwrap();
    let back = change(&SERVICE_ACCOUNTS, Op::Restore { id: agent.id, version: 1 }).await.unwrap_err();
    assert_eq!(back.code, "VERSION_CONFLICT");
}

/// What needs no right is bounded: else anybody who is let in could leave no room for others.
#[tokio::test]
async fn nobody_fills_a_family_with_what_is_his_own() {
    let fx = fixture().await;
    fx.admin().await;
    let user = fx.create(&USERS, json!({"username": "ann"})).await.unwrap();
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", user.id) };
    let mut ann = caller(&[]);
    ann.subject = format!("user:{}", user.id);
    for (place, item) in [
        (keys, json!({})),
        (Place::of(&SEGMENTS), json!({"conditions": {"logs": {"field": "a", "op": "eq", "value": "x"}}})),
        (Place::of(&SAVED_VIEWS), json!({"path": "/logs", "query": "*"})),
    ] {
        let items = |from: usize, to: usize| -> Vec<Value> {
            let named = |n: usize| {
                let mut item = item.clone();
                for (name, text) in [("name", format!("n {n}")), ("key", format!("n-{n}"))] {
                    if place.family.all_fields().any(|field| field.name == name) {
                        item[name] = json!(text);
                    }
                }
                item
            };
            (from..to).map(named).collect()
        };
        let put = async |who: &Caller, items| fx.config.put_many(&place, who, items, ChangeMode::Apply).await;
        let name = place.family.name;
        put(&ann, items(0, 999)).await.unwrap();
        let one = put(&ann, items(999, 1000)).await.unwrap().items[0]["id"].as_str().unwrap().to_owned();
        let full = put(&ann, items(1000, 1001)).await.unwrap_err();
        assert_eq!(full.errors[0].code, "LIMIT_EXCEEDED", "{name}");
        // What is there may be changed, and what goes makes room.
        let op = patch(&one, json!({"description": "x"}));
        fx.config.change(&place, &ann, op, System::default(), ChangeMode::Apply).await.unwrap();
        fx.config.change(&place, &ann, delete(&one), System::default(), ChangeMode::Apply).await.unwrap();
        put(&ann, items(1000, 1001)).await.unwrap();
        // Others have room, and so has whoever has the right.
        put(&caller(&["{admin, *, *}"]), items(2000, 2001)).await.unwrap();
    }
    // Nor is any of it very large.
    let long = |name: &str| json!({"name": name, "default": "x".repeat(60_000)});
    let large = json!({"name": "large", "key": "large", "variables": [long("a"), long("b")]});
    for (who, fits) in [(caller(&[]), false), (caller(&["{edit, segments, *}"]), true)] {
        let op = Op::Create { id: None, body: map(large.clone()) };
        let made = fx.config.change(&Place::of(&SEGMENTS), &who, op, System::default(), ChangeMode::Apply).await;
        assert_eq!(made.map_err(|problem| problem.errors[0].code).err(), (!fits).then_some("LIMIT_EXCEEDED"));
    }
    let mut other = caller(&[]);
    other.subject = "user:other".to_owned();
    let one = Op::Create { id: None, body: map(json!({"path": "/logs", "query": "*"})) };
    fx.config.change(&Place::of(&SAVED_VIEWS), &other, one, System::default(), ChangeMode::Apply).await.unwrap();
}

#[tokio::test]
async fn references() {
    let fx = fixture().await;
    fx.admin().await;
    let user = fx.create(&USERS, json!({"username": "ann"})).await.unwrap();
    let role = fx.create(&ROLES, json!({"name": "r", "permissions": ["{view, logs, *}"]})).await.unwrap();
    let group = fx.create(&GROUPS, json!({"name": "g", "members": [user.id]})).await.unwrap();
    let subject = json!({"type": "user", "id": user.id});
    let binding =
        fx.create(&BINDINGS, json!({"subject": subject, "roleId": role.id, "description": "b"})).await.unwrap();
    let again = fx.create(&BINDINGS, json!({"subject": subject, "roleId": role.id})).await.unwrap_err();
    assert_eq!(again.code, "DUPLICATE");
    let problem = fx.op(&ROLES, delete(&role.id)).await.unwrap_err();
    let named = json!([{"family": "rbac/bindings", "id": binding.id, "name": "b"}]);
    assert_eq!((problem.code, &problem.more["references"]), ("REFERENCED", &named));
    let nobody = json!({"type": "user", "id": "00000000-0000-7000-8000-00000000dead"});
    let problem = fx.create(&BINDINGS, json!({"subject": nobody, "roleId": role.id})).await.unwrap_err();
    assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/subject/id", "UNKNOWN_REFERENCE"));
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", user.id) };
    let op = Op::Create { id: None, body: map(json!({"name": "k", "permissions": ["{view, logs, cart}"]})) };
    let key = fx
        .config
        .change(&keys, &Caller::system(), op, System::default(), ChangeMode::Apply)
        .await
        .unwrap()
        .after
        .unwrap();
    let elsewhere = Place { family: &KEYS, owner: format!("rbac/users/{}", role.id) };
    let found = fx.config.get(&elsewhere, &key.id, &Caller::system()).await;
    assert_eq!(found.unwrap_err().code, "NOT_FOUND", "a key is found below its owner only");
    fx.op(&USERS, delete(&user.id)).await.unwrap();
    for (family, id) in [(&KEYS, &key.id), (&BINDINGS, &binding.id)] {
        assert!(fx.config.find(family, id).await.unwrap().is_none(), "{}", family.name);
    }
    let group = fx.config.find(&GROUPS, &group.id).await.unwrap().unwrap();
    assert_eq!((&group.body["members"], group.version), (&json!([]), 2));
    fx.op(&ROLES, delete(&role.id)).await.unwrap();
}

#[tokio::test]
async fn keys_hold_what_their_owner_holds() {
    let fx = fixture().await;
    fx.admin().await;
    let account = fx.create(&SERVICE_ACCOUNTS, json!({"clientId": "agent"})).await.unwrap();
    let role = fx.create(&ROLES, json!({"name": "r", "permissions": ["{ingest, logs, *}"]})).await.unwrap();
    let subject = json!({"type": "serviceAccount", "id": account.id});
    fx.create(&BINDINGS, json!({"subject": subject, "roleId": role.id, "services": ["cart*"]})).await.unwrap();
    let keys = Place { family: &KEYS, owner: format!("rbac/service-accounts/{}", account.id) };
    let mut own = caller(&["{ingest, logs, cart*}"]);
    own.subject = format!("serviceAccount:{}", account.id);
    let make = async |who: &Caller, body| {
        fx.config
            .change(&keys, who, Op::Create { id: None, body: map(body) }, System::default(), ChangeMode::Apply)
            .await
    };
    make(&own, json!({"name": "a", "permissions": ["{ingest, logs, cart-db}"]})).await.unwrap();
    let more = json!({"name": "b", "permissions": ["{ingest, logs, *}"]});
    assert_eq!(make(&own, more.clone()).await.unwrap_err().code, "FORBIDDEN", "nobody grants what he lacks");
    let problem = make(&caller(&["{admin, *, *}"]), more).await.unwrap_err();
    assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/permissions/0", "INVALID_VALUE"));
    for at in ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let problem = make(&own, json!({"name": "c", "expiresAt": at})).await.unwrap_err();
        assert_eq!(problem.errors[0].code, "OUT_OF_RANGE", "{at}");
    }
    assert_eq!(make(&caller(&[]), json!({"name": "d"})).await.unwrap_err().code, "FORBIDDEN");
}

/// A key is no way to more than it holds: neither to another key nor to its owner's password.
#[tokio::test]
async fn keys_are_no_ladder() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let by_key = Caller { subject: format!("user:{}", admin.id), ..caller(&["{admin, rbac, *}"]) };
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", admin.id) };
    let make = async |body| {
        let op = Op::Create { id: None, body: map(body) };
        fx.config.change(&keys, &by_key, op, System::default(), ChangeMode::Apply).await
    };
    make(json!({"name": "a", "permissions": ["{view, rbac, *}"]})).await.unwrap();
    assert_eq!(make(json!({"name": "b", "permissions": ["{view, logs, *}"]})).await.unwrap_err().code, "FORBIDDEN");
    assert_eq!(make(json!({"name": "c"})).await.unwrap_err().code, "FORBIDDEN");
    let op = patch(&admin.id, json!({"password": "another one"}));
    let change = fx.config.change(&Place::of(&USERS), &by_key, op, System::default(), ChangeMode::Apply).await;
    assert_eq!(change.unwrap_err().code, "FORBIDDEN");
}

/// A key does not outlive itself, nor leave its networks.
#[tokio::test]
async fn keys_make_no_wider_ones() {
    let fx = fixture().await;
    let admin = fx.admin().await;
    let end = "2028-01-02T00:00:00Z";
    let networks = ["10.0.0.0/8", "192.0.2.1"].map(str::to_owned).to_vec();
    let bounds = KeyBounds { expires_ms: json::time_of(end), networks };
    let person = Caller { subject: format!("user:{}", admin.id), ..caller(&["{admin, *, *}"]) };
    let by_key = Caller { key: Some(bounds), ..person.clone() };
    let keys = Place { family: &KEYS, owner: format!("rbac/users/{}", admin.id) };
    let change = async |who: &Caller, op| fx.config.change(&keys, who, op, System::default(), ChangeMode::Apply).await;
    let create = |body: Value| Op::Create { id: None, body: map(body) };
    let good = json!({"name": "a", "expiresAt": end, "allowedCidrs": ["10.0.0.0/8"]});
    change(&by_key, create(good.clone())).await.unwrap();
    for (name, bad, field) in [
        ("expiresAt", Value::Null, "/expiresAt"),
        ("expiresAt", json!("2028-01-02T00:00:01Z"), "/expiresAt"),
        ("allowedCidrs", json!([]), "/allowedCidrs"),
        ("allowedCidrs", json!(["192.0.2.1", "0.0.0.0/0"]), "/allowedCidrs"),
    ] {
        let mut body = good.clone();
        body["name"] = json!("b");
        body[name] = bad;
        let problem = change(&by_key, create(body.clone())).await.unwrap_err();
        assert_eq!(problem.errors[0].field, field, "{body}");
        // Who did not come by a key is not bound by one.
        let free = change(&person, create(body)).await.unwrap();
        let id = free.after.expect("one was made").id;
        let wider = change(&by_key, patch(&id, json!({"description": "mine now"}))).await.unwrap_err();
        assert_eq!(wider.errors[0].field, field);
        change(&by_key, delete(&id)).await.unwrap();
    }
}

/// What follows from other entities: a private entity that is gone is brought back by its owner only, and the history of
/// what is about several services is told to a caller who sees it now.
#[tokio::test]
async fn what_was_is_seen_by_whom() {
    let fx = fixture().await;
    let ann = Caller { subject: "user:ann".to_owned(), ..caller(&["{edit, segments, *}", "{edit, processes, cart}"]) };
    let bob = Caller { subject: "user:bob".to_owned(), ..ann.clone() };
    let change = async |family: &'static Family, who: &Caller, op| {
        fx.config.change(&Place::of(family), who, op, System::default(), ChangeMode::Apply).await
    };
    let body = map(json!({"key": "k", "name": "n"}));
    let own = change(&SEGMENTS, &ann, Op::Create { id: None, body }).await.unwrap().after.unwrap();
    assert_eq!(change(&SEGMENTS, &bob, delete(&own.id)).await.unwrap_err().code, "NOT_FOUND");
    change(&SEGMENTS, &ann, delete(&own.id)).await.unwrap();
    let restore = || Op::Restore { id: own.id.clone(), version: 1 };
    assert_eq!(change(&SEGMENTS, &bob, restore()).await.unwrap_err().code, "NOT_FOUND");
    assert_eq!(change(&SEGMENTS, &ann, restore()).await.unwrap().after.unwrap().body["owner"], "user:ann");
    let leaf = json!({"field": "a", "op": "exists"});
    let step = |name: &str, service: &str| json!({"name": name, "kind": "log", "condition": leaf, "service": service});
    let process = |service: &str| {
        map(json!({"name": service, "correlationField": "id",
        "steps": [step("a", "cart"), step("b", service)]}))
    };
    let seen = change(&PROCESSES, &ann, Op::Create { id: None, body: process("cart") }).await.unwrap().after.unwrap();
    assert!(fx.config.history(&Place::of(&PROCESSES), &seen.id, &ann).await.is_ok());
    let wide = change(&PROCESSES, &ann, Op::Create { id: None, body: process("pay") }).await.unwrap_err();
    assert_eq!(wide.more["required"], "{edit, processes, pay}");
    let hidden = fx.create(&PROCESSES, Value::Object(process("pay"))).await.unwrap();
    assert_eq!(fx.config.history(&Place::of(&PROCESSES), &hidden.id, &ann).await.unwrap_err().code, "NOT_FOUND");
    // Before the rule belonged to the caller's service, it had no service, or another one.
    let carl = caller(&["{edit, alerting, cart}"]);
    for service in [json!({}), json!({"service": "pay"})] {
        let mut body = map(json!({"group": "g", "alert": "A", "expr": "secret > 1"}));
        body.extend(map(service));
        let rule = fx.create(&RULES, Value::Object(body)).await.unwrap();
        fx.op(&RULES, patch(&rule.id, json!({"service": "cart", "expr": "up"}))).await.unwrap();
        assert_eq!(fx.config.history(&Place::of(&RULES), &rule.id, &carl).await.unwrap_err().code, "NOT_FOUND");
        let restore = |version| Op::Restore { id: rule.id.clone(), version };
        let refused = change(&RULES, &carl, restore(1)).await.unwrap_err();
        assert_eq!((refused.code, refused.more.get("required")), ("NOT_FOUND", None), "{}", refused.detail);
        change(&RULES, &carl, restore(2)).await.unwrap();
    }
}

/// Whoever has the id of a saved view reads it; lists do not give ids away, and its owner alone changes it.
#[tokio::test]
async fn saved_views_are_read_by_id() {
    let fx = fixture().await;
    fx.admin().await;
    let ann = Caller { subject: "user:ann".to_owned(), ..caller(&["{view, logs, cart}"]) };
    let bob = Caller { subject: "user:bob".to_owned(), ..ann.clone() };
    let place = Place::of(&SAVED_VIEWS);
    let change = async |who: &Caller, op| fx.config.change(&place, who, op, System::default(), ChangeMode::Apply).await;
    let make = async |body: Value| change(&ann, Op::Create { id: None, body: map(body) }).await;
    let view = make(json!({"path": "/ui/logs", "query": "q=error&from=now-1h"})).await.unwrap().after.unwrap();
    assert_eq!(view.body["owner"], "user:ann");
    for (path, code) in [("", "REQUIRED"), ("ui", "PATTERN"), ("//other.example", "PATTERN"), ("/a?b", "PATTERN")] {
        let problem = make(json!({"path": path, "query": "x"})).await.unwrap_err();
        assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/path", code), "{path}");
    }
    assert_eq!(fx.config.get(&place, &view.id, &bob).await.unwrap().body["query"], "q=error&from=now-1h");
    let listed = async |who: &Caller, parameters: &[(&str, &str)]| {
        let parameters: Vec<(String, String)> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let query = ListQuery::parse(&SAVED_VIEWS, &parameters, &[]).unwrap();
        let page = fx.config.list(&place, &query, who).await.unwrap();
        let exported = fx.exported(&place, &query, who).await;
        assert_eq!(exported.len(), page.items.len(), "{parameters:?}");
        page.items.len()
    };
    let by_id = [("id", view.id.as_str())];
    let lists: [&[(&str, &str)]; 4] = [&[], &[("sort", "path")], &[("sort", "id"), ("filter", "path pr")], &by_id];
    for parameters in lists {
        assert_eq!((listed(&ann, parameters).await, listed(&bob, parameters).await), (1, 0), "{parameters:?}");
    }
    assert_eq!(listed(&caller(&["{edit, system, *}"]), &[]).await, 1);
    let problem = change(&bob, patch(&view.id, json!({"query": "x"}))).await.unwrap_err();
    assert_eq!((problem.code, problem.more["required"].as_str()), ("FORBIDDEN", Some("{edit, system, *}")));
    assert_eq!(change(&bob, delete(&view.id)).await.unwrap_err().code, "FORBIDDEN");
    change(&ann, patch(&view.id, json!({"query": "x"}))).await.unwrap();
    change(&ann, delete(&view.id)).await.unwrap();
}

#[tokio::test]
async fn who_manages_what() {
    let fx = fixture().await;
    fx.admin().await;
    assert_eq!(fx.op(&ROLES, delete(ADMIN_ROLE_ID)).await.unwrap_err().code, "MANAGED_ENTITY");
    let overriding = Caller { override_managed: true, ..Caller::system() };
    let place = Place::of(&ROLES);
    let change =
        fx.config.change(&place, &overriding, delete(ADMIN_ROLE_ID), System::default(), ChangeMode::Apply).await;
    assert_eq!(change.unwrap_err().code, "MANAGED_ENTITY", "what is built in stays as it is");
    let group = fx.create(&GROUPS, json!({"name": "g"})).await.unwrap();
    let file = Caller { manager: "file".to_owned(), ..Caller::system() };
    let change = async |who: &Caller| {
        let op = patch(&group.id, json!({"description": "x"}));
        fx.config.change(&Place::of(&GROUPS), who, op, System::default(), ChangeMode::Apply).await
    };
    assert_eq!(change(&file).await.unwrap_err().code, "MANAGED_ENTITY");
    change(&Caller { override_managed: true, ..file }).await.unwrap();
}

#[tokio::test]
async fn passwords_are_hashed_and_kept() {
    let fx = fixture().await;
    fx.admin().await;
    let user = fx.create(&USERS, json!({"username": "Ann", "password": "secret"})).await.unwrap();
    assert_eq!((&user.body["username"], &user.sealed["password"]), (&json!("ann"), &json!("hash of 6")));
    assert!(!user.shown().contains_key("password"));
    let id = user.id.clone();
    let body = map(json!({"username": "ann", "description": "put"}));
    let put = fx.op(&USERS, Op::Replace { id: id.clone(), body, condition: Condition::None }).await.unwrap();
    assert_eq!(put.after.unwrap().sealed["password"], "hash of 6");
    let kept = fx.op(&USERS, patch(&id, json!({"password": "<secret>", "description": "y"}))).await.unwrap();
    assert_eq!(kept.after.unwrap().sealed["password"], "hash of 6");
    let gone = fx.op(&USERS, patch(&id, json!({"password": null}))).await.unwrap();
    assert!(gone.after.unwrap().sealed.is_empty());
    let problem = fx.op(&USERS, patch(&id, json!({"password": "<secret>"}))).await.unwrap_err();
    assert_eq!(problem.errors[0].code, "REQUIRED");
    assert_eq!(fx.op(&USERS, patch(&id, json!({"password": "x"}))).await.unwrap_err().errors[0].code, "OUT_OF_RANGE");
    assert_eq!(fx.op(&USERS, patch(&id, json!({"password": 7}))).await.unwrap_err().errors[0].code, "INVALID_TYPE");
    // Whom another issuer knows gets none.
    let (place, system) = (Place::of(&USERS), System { body: map(json!({"source": "oidc"})), ..System::default() });
    let op = Op::Create { id: None, body: map(json!({"username": "zoe"})) };
    let other =
        fx.config.change(&place, &Caller::system(), op, system, ChangeMode::Apply).await.unwrap().after.unwrap();
    let problem = fx.op(&USERS, patch(&other.id, json!({"password": "secret"}))).await.unwrap_err();
    assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/password", "INVALID_VALUE"));
    fx.op(&USERS, patch(&other.id, json!({"enabled": false}))).await.unwrap();
}

#[tokio::test]
async fn an_import_tells_nothing_of_what_is_hidden() {
    let fx = fixture().await;
    let body = json!({"name": "taken", "service": "pay", "transactionName": "GET /"});
    let hidden = fx.create(&TRANSACTIONS, body).await.unwrap();
    let (some, place) = (caller(&["{edit, transactions, cart}"]), Place::of(&TRANSACTIONS));
    let item = |name: &str| json!({"name": name, "service": "cart", "transactionName": "GET /"});
    let import = async |name: &str, mode| {
        let options = ImportOptions { mode, within: None, change_mode: ChangeMode::Apply };
        fx.config.import_many(&place, &some, vec![item(name)], options).await
    };
    // As who makes one is told, and no more: not its id, nor that it would have been replaced.
    let op = Op::Create { id: None, body: map(item("taken")) };
    let made = fx.config.change(&place, &some, op, System::default(), ChangeMode::Apply).await.unwrap_err();
    for mode in [ImportMode::Create, ImportMode::Upsert, ImportMode::Replace] {
        let problem = import("taken", mode).await.unwrap_err();
        assert_eq!((problem.code, problem.kind), (made.code, made.kind));
        assert!(!format!("{problem:?}").contains(&hidden.id), "{problem:?}");
    }
    // One's own is found by its name.
    assert_eq!(import("own", ImportMode::Upsert).await.unwrap().created, 1);
    assert_eq!(import("own", ImportMode::Upsert).await.unwrap().unchanged, 1);
    assert!(fx.config.find(&TRANSACTIONS, &hidden.id).await.unwrap().is_some());
}

#[tokio::test]
async fn places_do_not_count_what_is_hidden() {
    use crate::families::{EXTRACTION_RULES, RULES};

    let fx = fixture().await;
    let rule = |service: &str, n: usize| json!({"group": "g", "alert": format!("{service} {n}"), "expr": "up", "service": service});
    let extraction = |service: &str, n: usize| {
        let target = json!([{"field": "x", "from": "y"}]);
        json!({"name": format!("{service} {n}"), "signal": "logs", "method": "logfmt", "targets": target, "service": service})
    };
    let some = caller(&["{edit, alerting, cart}", "{edit, extraction, cart}"]);
    let own = async |family: &'static Family, body: Value| {
        let op = Op::Create { id: None, body: map(body) };
        let done = fx.config.change(&Place::of(family), &some, op, System::default(), ChangeMode::Apply).await.unwrap();
        done.after.unwrap().body["position"].as_i64().unwrap()
    };
    for n in 0..3 {
        fx.create(&RULES, rule("pay", n)).await.unwrap();
        fx.create(&EXTRACTION_RULES, extraction("pay", n)).await.unwrap();
    }
    for n in 0..2 {
        assert_eq!(own(&RULES, rule("cart", n)).await, n as i64);
        assert_eq!(own(&EXTRACTION_RULES, extraction("cart", n)).await, n as i64);
    }
    // A caller who sees all comes behind all.
    let last = fx.create(&RULES, rule("pay", 3)).await.unwrap();
    assert_eq!(last.body["position"], 3);
    let last = fx.create(&EXTRACTION_RULES, extraction("pay", 3)).await.unwrap();
    assert_eq!(last.body["position"], 3);
    assert_eq!(own(&RULES, rule("cart", 2)).await, 2);
}
