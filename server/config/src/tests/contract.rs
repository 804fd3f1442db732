//! The contract, family by family.

use super::*;
use quiver_database::statement;

/// A body that a family takes, and another one: the n-th of its kind.
fn sample(family: &Family, n: usize) -> Option<Value> {
    Some(match family.name {
        "rbac/roles" => json!({"name": format!("role {n:04}"), "permissions": ["{view, logs, cart}"]}),
        "rbac/users" => json!({"username": format!("user-{n:04}")}),
        "rbac/service-accounts" => json!({"clientId": format!("client-{n:04}")}),
        "rbac/groups" => json!({"name": format!("group {n:04}")}),
        "bt-detection-rules" | "rum-bt-detection-rules" => json!({"name": format!("rule {n:04}"), "condition": leaf()}),
        "transactions" => {
            json!({"name": format!("key {n:04}"), "service": format!("s{}", n / 50), "transactionName": format!("t{n}")})
        }
        "rum-key-business-transactions" => {
            json!({"name": format!("key {n:04}"), "application": format!("a{}", n / 50), "transactionName": format!("t{n}")})
        }
        "business-processes" => json!({"name": format!("process {n:04}"), "correlationField": "attributes.order.id",
            "steps": [{"name": "a", "kind": "span", "condition": leaf()}, {"name": "b", "kind": "log", "condition": leaf()}]}),
        "segments" => json!({"key": format!("segment-{n:04}"), "name": format!("segment {n:04}"),
            "conditions": {"logs": leaf()}}),
        "apdex-thresholds" => json!({"service": format!("service-{n:04}"), "thresholdMs": 100}),
        "data-extraction-rules" => json!({"name": format!("rule {n:04}"), "signal": "logs", "method": "logfmt",
            "targets": [{"field": "x", "from": "y"}]}),
        "ci-classes" | "resource-types" | "relationship-types" => {
            json!({"key": format!("key-{n:04}"), "name": format!("name {n:04}")})
        }
        "resources" => json!({"typeId": SERVICE_TYPE, "displayName": format!("resource {n:04}"),
            "attributes": {"service.name": format!("s{n:04}")}}),
        // These name others: they have tests of their own.
        _ => return None,
    })
}

/// The built-in type `service`.
const SERVICE_TYPE: &str = "00000000-0000-7000-8000-000000000101";

fn leaf() -> Value {
    json!({"field": "http.route", "op": "glob", "value": "/cart/*"})
}

fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(|f| sample(f, 0).is_some())
}

#[tokio::test]
async fn create_read_change_delete() {
    let fx = fixture().await;
    fx.admin().await;
    for family in families() {
        let entity = fx.create(family, sample(family, 1).unwrap()).await.unwrap();
        let place = Place::of(family);
        let read = fx.config.get(&place, &entity.id, &Caller::system()).await.unwrap();
        assert_eq!((read.version, read.etag().as_str()), (1, "\"1\""));
        let shown = read.shown();
        assert_eq!(shown["createdAt"], "2027-01-15T08:00:00.000Z");
        // As it is shown it may be sent back: nothing changes.
        let same = Op::Replace { id: entity.id.clone(), body: shown.clone(), condition: Condition::Versions(vec![1]) };
        assert!(!fx.op(family, same).await.unwrap().changed);
        let done = fx.op(family, patch(&entity.id, json!({"labels": {"a": "1", "b": "2"}}))).await.unwrap();
        assert_eq!(done.after.as_ref().unwrap().version, 2);
        let done = fx.op(family, patch(&entity.id, json!({"labels": {"a": null}, "description": "x"}))).await.unwrap();
        assert_eq!(done.after.as_ref().unwrap().body["labels"], json!({"b": "2"}));
        let done = fx.op(family, patch(&entity.id, json!({"description": null}))).await.unwrap();
        assert_eq!(done.after.as_ref().unwrap().body["description"], "");
        let stale = Op::Patch {
            id: entity.id.clone(),
            patch: map(json!({"description": "y"})),
            condition: Condition::Versions(vec![1]),
        };
        let problem = fx.op(family, stale).await.unwrap_err();
        assert_eq!((problem.code, &problem.more["etag"]), ("VERSION_CONFLICT", &json!("\"4\"")));
        let duplicate = fx.create(family, sample(family, 1).unwrap()).await.unwrap_err();
        assert_eq!((duplicate.code, duplicate.kind), ("DUPLICATE", ProblemKind::Conflict));
        fx.op(family, delete(&entity.id)).await.unwrap();
        assert_eq!(fx.op(family, delete(&entity.id)).await.unwrap_err().code, "NOT_FOUND");
        fx.clock.0.fetch_add(5000, SeqCst);
        let back = fx.op(family, Op::Restore { id: entity.id.clone(), version: 3 }).await.unwrap();
        fx.clock.0.fetch_add(-5000, SeqCst);
        let back = back.after.unwrap();
        let shown = back.shown();
        assert_eq!((&shown["createdAt"], &shown["createdBy"]), (&json!("2027-01-15T08:00:00.000Z"), &json!("system")));
        assert_eq!(shown["updatedAt"], "2027-01-15T08:00:05.000Z");
        assert_eq!((back.id.as_str(), back.version, &back.body["description"]), (entity.id.as_str(), 6, &json!("x")));
        let history = fx.config.history(&place, &entity.id, &Caller::system()).await.unwrap();
        let actions: Vec<&str> =
            history["items"].as_array().unwrap().iter().map(|i| i["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["RESTORE", "DELETE", "UPDATE", "UPDATE", "UPDATE", "CREATE"]);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_body() {
    let fx = fixture().await;
    for family in families() {
        let check = async |change: Value, at: &str, code: &str| {
            let mut body = map(sample(family, 1).unwrap());
            body.extend(map(change.clone()));
            let problem = fx.create(family, Value::Object(body)).await.unwrap_err();
            assert_eq!((problem.code, problem.kind), ("VALIDATION_FAILED", ProblemKind::Invalid), "{change}");
            assert!(problem.errors.iter().any(|e| e.field == at && e.code == code), "{change} {:?}", problem.errors);
        };
        check(json!({"nmae": 1}), "/nmae", "UNKNOWN_FIELD").await;
        check(json!({"a/b~c": 1}), "/a~1b~0c", "UNKNOWN_FIELD").await;
        check(json!({"version": 7}), "/version", "READ_ONLY_FIELD").await;
        check(json!({"id": "x"}), "/id", "READ_ONLY_FIELD").await;
        if family.name != "resources" {
            check(json!({family.title: null}), &format!("/{}", family.title), "REQUIRED").await;
        }
        check(json!({family.title: 5}), &format!("/{}", family.title), "INVALID_TYPE").await;
        check(json!({family.title: "x".repeat(300)}), &format!("/{}", family.title), "TOO_LONG").await;
        check(json!({"description": "x".repeat(4001)}), "/description", "TOO_LONG").await;
        check(json!({"labels": {"a": 1}}), "/labels/a", "INVALID_TYPE").await;
        assert_eq!(fx.list(family, &[("managedBy", "api")]).await.unwrap().items.len(), 0);
    }
    let problem = fx.create(&ROLES, json!({"nmae": 1, "permissions": ["x", "{view, logs, *}"]})).await.unwrap_err();
    let places: Vec<&str> = problem.errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(places, ["/nmae", "/permissions/0", "/name"], "all errors at once");
}

#[tokio::test]
async fn what_is_wrong_with_some_families() {
    let fx = fixture().await;
    for (name, change, at, code) in [
        ("business-processes", json!({"timeout": "0s"}), "/timeout", "OUT_OF_RANGE"),
        ("business-processes", json!({"timeout": "0"}), "/timeout", "OUT_OF_RANGE"),
        ("business-processes", json!({"timeout": "500000000y"}), "/timeout", "OUT_OF_RANGE"),
        ("bt-detection-rules", json!({"samples": [{"expectName": null}]}), "/samples/0/attributes", "REQUIRED"),
        ("rum-bt-detection-rules", json!({"samples": [{"kind": "xhr"}]}), "/samples/0/attributes", "REQUIRED"),
    ] {
        let family = families().find(|family| family.name == name).unwrap();
        let mut body = map(sample(family, 1).unwrap());
        body.extend(map(change.clone()));
        let problem = fx.create(family, Value::Object(body)).await.unwrap_err();
        let found = problem.errors.iter().any(|e| e.field == at && e.code == code);
        assert!(found, "{name} {change} {:?}", problem.errors);
    }
}

#[tokio::test]
async fn pages_lose_and_repeat_nothing() {
    let fx = fixture().await;
    for n in 0..50 {
        fx.create(&GROUPS, sample(&GROUPS, n * 2).unwrap()).await.unwrap();
    }
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    for round in 0.. {
        let mut parameters = vec![("limit", "7"), ("sort", "-name"), ("count", "true")];
        parameters.extend(cursor.as_deref().map(|c| ("cursor", c)));
        let page = fx.list(&GROUPS, &parameters).await.unwrap();
        seen.extend(page.items.iter().map(|i| i["name"].as_str().unwrap().to_owned()));
        // One before and one behind the page come in between.
        fx.create(&GROUPS, json!({"name": format!("group 9{round:03}")})).await.unwrap();
        assert_eq!(page.total, Some(50 + round));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..50).rev().map(|n| format!("group {:04}", n * 2)).collect();
    assert_eq!(seen, expected);
    let page = fx.list(&GROUPS, &[("limit", "2")]).await.unwrap();
    let other = page.next_cursor.unwrap();
    let problem = fx.list(&GROUPS, &[("limit", "2"), ("sort", "-name"), ("cursor", &other)]).await.unwrap_err();
    assert_eq!(problem.code, "CURSOR_MISMATCH");
    for wrong in ["", "x", "bm8", "eyJhIjoxfQ"] {
        assert_eq!(fx.list(&GROUPS, &[("cursor", wrong)]).await.unwrap_err().code, "CURSOR_MISMATCH", "{wrong}");
    }
}

#[tokio::test]
async fn parameters_of_lists() {
    let fx = fixture().await;
    for (name, team) in [("alpha", "x"), ("beta", "y"), ("Gamma", "x")] {
        fx.create(&GROUPS, json!({"name": name, "labels": {"team": team}, "description": format!("the {name}")}))
            .await
            .unwrap();
    }
    assert_eq!(fx.names(&GROUPS, &[]).await, ["Gamma", "alpha", "beta"]);
    assert_eq!(fx.names(&GROUPS, &[("labels.team", "x")]).await, ["Gamma", "alpha"]);
    assert_eq!(fx.names(&GROUPS, &[("name", "beta"), ("name", "alpha")]).await, ["alpha", "beta"]);
    assert_eq!(fx.names(&GROUPS, &[("filter", r#"name sw "a" or labels.team eq "y""#)]).await, ["alpha", "beta"]);
    assert_eq!(fx.names(&GROUPS, &[("q", "GAMMA")]).await, ["Gamma"]);
    assert_eq!(fx.names(&GROUPS, &[("version", "1"), ("sort", "labels.team,-name")]).await, ["alpha", "Gamma", "beta"]);
    let page = fx.list(&GROUPS, &[("fields", "labels.team"), ("limit", "1")]).await.unwrap();
    let first = page.items[0].clone();
    assert_eq!((first.len(), &first["labels"]), (2, &json!({"team": "x"})));
    let check = async |parameters: &[(&str, &str)], part: &str| {
        let problem = fx.list(&GROUPS, parameters).await.unwrap_err();
        assert!(problem.code == "INVALID_PARAMETER" && problem.detail.contains(part), "{parameters:?} {problem}");
    };
    check(&[("limit", "0")], "from 1 to 1000").await;
    check(&[("limit", "1001")], "from 1 to 1000").await;
    check(&[("limit", "x")], "from 1 to 1000").await;
    check(&[("limit", "1"), ("limit", "2")], "is given more than once").await;
    check(&[("sort", "nothing")], "`nothing` in `sort`").await;
    check(&[("fields", "nothing")], "`nothing` in `fields`").await;
    check(&[("filter", "nothing pr")], "`nothing` in `filter`").await;
    check(&[("count", "yes")], "true or false").await;
    // A value that the field cannot have finds nothing by mistake.
    check(&[("filter", r#"createdAt gt "bad""#)], "`createdAt` must be compared with a time").await;
    check(&[("filter", r#"version eq "1""#)], "`version` must be compared with a number").await;
    check(&[("version", "one")], "`version` must be compared with a number").await;
    check(&[("createdAt", "soon")], "`createdAt` must be compared with a time").await;
    fx.create(&GROUPS, json!({"name": "12"})).await.unwrap();
    assert_eq!(fx.names(&GROUPS, &[("name", "12"), ("createdAt", "2027-01-15T09:00:00+01:00")]).await, ["12"]);
    check(&[("nothing", "x")], "unknown parameter `nothing`").await;
    let problem = fx.list(&USERS, &[("filter", "password pr")]).await.unwrap_err();
    assert!(problem.detail.contains("`password`"), "a secret cannot be searched: {problem}");
}

/// What looks like code is text, in every field (H8).
#[tokio::test]
async fn payloads_are_text() {
    let fx = fixture().await;
    fx.admin().await;
    let payloads = [
        "'; DROP TABLE entity; --",
        "\" OR \"1\"=\"1",
        "{{7*7}}",
        "${jndi:ldap://x}",
        "%00",
        "..\\..\\etc",
        "a%",
        "_",
        "<script>alert(1)</script>",
        "\u{202e}txt",
        "'||(SELECT 1)||'",
    ];
    for payload in payloads {
        let made = fx.create(&GROUPS, json!({"name": payload, "labels": {payload: payload}})).await.unwrap();
        let filter = format!("name eq {}", json!(payload));
        assert_eq!(fx.names(&GROUPS, &[("filter", &filter)]).await, [payload]);
        assert_eq!(fx.names(&GROUPS, &[("name", payload)]).await, [payload]);
        let found = fx.config.find(&GROUPS, payload).await.unwrap();
        assert!(found.is_none());
        fx.op(&GROUPS, delete(&made.id)).await.unwrap();
    }
}

#[tokio::test]
async fn dry_runs_leave_no_trace() {
    let fx = fixture().await;
    fx.admin().await;
    let audit = AuditQuery::parse(&[]).unwrap();
    let before = (fx.config.audit_rows(&audit).await.unwrap(), fx.config.revision());
    let place = Place::of(&GROUPS);
    let dry = async |op| fx.config.change(&place, &Caller::system(), op, System::default(), ChangeMode::DryRun).await;
    assert!(dry(Op::Create { id: None, body: map(json!({"name": "x"})) }).await.unwrap().changed);
    assert_eq!(dry(Op::Create { id: None, body: map(json!({})) }).await.unwrap_err().code, "VALIDATION_FAILED");
    assert_eq!(
        fx.config
            .put_many(&place, &Caller::system(), vec![json!({"name": "x"})], ChangeMode::DryRun)
            .await
            .unwrap()
            .created,
        1
    );
    assert!(fx.names(&GROUPS, &[]).await.is_empty());
    assert_eq!((fx.config.audit_rows(&audit).await.unwrap(), fx.config.revision()), before);
}

#[tokio::test]
async fn many_at_once() {
    let fx = fixture().await;
    fx.admin().await;
    for family in families() {
        let place = Place::of(family);
        let items: Vec<Value> = (0..5).map(|n| sample(family, n).unwrap()).collect();
        let done = fx.config.put_many(&place, &Caller::system(), items.clone(), ChangeMode::Apply).await.unwrap();
        assert_eq!((done.created, done.items.len()), (5, 5));
        // One that cannot be: nothing is.
        let mut wrong: Vec<Value> = (10..13).map(|n| sample(family, n).unwrap()).collect();
        wrong[2]["nmae"] = json!(1);
        let problem = fx.config.put_many(&place, &Caller::system(), wrong, ChangeMode::Apply).await.unwrap_err();
        assert_eq!(problem.errors[0].field, "/items/2/nmae");
        // One that is given more than once, by its id.
        let id = done.items[0]["id"].clone();
        let mut twice = vec![items[0].clone(), items[0].clone()];
        for item in &mut twice {
            item["id"] = id.clone();
        }
        let problem = fx.config.put_many(&place, &Caller::system(), twice, ChangeMode::Apply).await.unwrap_err();
        assert_eq!((problem.code, problem.errors[0].field.as_str()), ("DUPLICATE", "/items/1"));
        let query = ListQuery::parse(family, &[("q".to_owned(), "000".to_owned())], &[]).unwrap();
        let ids = fx.config.ids_of(&place, &query, &Caller::system()).await.unwrap();
        assert_eq!(ids.len(), 5);
        let exported = fx.exported(&place, &query, &Caller::system()).await;
        // An import of an export changes nothing; in another installation it makes the same.
        let import = async |items: Vec<Value>, mode, within| {
            let options = ImportOptions { mode, within, change_mode: ChangeMode::Apply };
            fx.config.import_many(&place, &Caller::system(), items, options).await
        };
        assert_eq!(import(exported.clone(), ImportMode::Upsert, None).await.unwrap().unchanged, 5);
        assert_eq!(import(exported.clone(), ImportMode::Create, None).await.unwrap_err().code, "DUPLICATE");
        let (gone, failed) =
            fx.config.delete_many(&place, &Caller::system(), ids.clone(), ChangeMode::Apply).await.unwrap();
        assert_eq!((gone.len(), failed.len()), (5, 0));
        assert_eq!(import(exported.clone(), ImportMode::Create, None).await.unwrap().created, 5);
        let again = fx.exported(&place, &query, &Caller::system()).await;
        let bare = |items: &[Value]| -> Vec<Map<String, Value>> {
            let strip = |i: &Value| {
                map(i.clone()).into_iter().filter(|(k, _)| !matches!(k.as_str(), "version" | "updatedAt")).collect()
            };
            items.iter().map(strip).collect()
        };
        assert_eq!(bare(&again), bare(&exported));
        let replaced = import(exported[..2].to_vec(), ImportMode::Replace, Some(&query)).await.unwrap();
        assert_eq!((replaced.unchanged, replaced.deleted), (2, 3));
        let nobody = "00000000-0000-7000-8000-00000000dead".to_owned();
        let one = ids[0].clone();
        let (done, failed) = fx
            .config
            .update_many(
                &place,
                &Caller::system(),
                vec![one, nobody],
                map(json!({"description": "n"})),
                ChangeMode::Apply,
            )
            .await
            .unwrap();
        assert_eq!((done.len(), failed.len(), failed[0].problem.code), (1, 1, "NOT_FOUND"));
        assert_eq!(
            fx.config.delete_many(&place, &Caller::system(), vec![], ChangeMode::Apply).await.unwrap_err().kind,
            ProblemKind::Invalid
        );
    }
}

/// What names another one of its family may stand before it in an import, and goes together with it.
#[tokio::test]
async fn imports_of_what_names_its_own_kind() {
    let fx = fixture().await;
    fx.admin().await;
    let place = Place::of(&CI_CLASSES);
    let above = fx.create(&CI_CLASSES, json!({"key": "z", "name": "z"})).await.unwrap();
    let below = json!({"key": "a", "name": "a", "parentId": above.id});
    let below = fx.create(&CI_CLASSES, below).await.unwrap();
    let filter = ("filter".to_owned(), "key in (\"a\", \"z\")".to_owned());
    let query = ListQuery::parse(&CI_CLASSES, &[filter], &[]).unwrap();
    let items = fx.exported(&place, &query, &Caller::system()).await;
    let ids = |items: &[Value]| items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&items), [below.id.clone(), above.id.clone()]);
    let import = async |items: Vec<Value>| {
        let mode = ImportMode::Replace;
        let options = ImportOptions { mode, within: Some(&query), change_mode: ChangeMode::Apply };
        fx.config.import_many(&place, &Caller::system(), items, options).await.unwrap()
    };
    let gone = import(Vec::new()).await;
    assert_eq!((gone.deleted, ids(&gone.changes)), (2, vec![below.id.clone(), above.id.clone()]));
    let made = import(items).await;
    assert_eq!((made.created, ids(&made.items)), (2, vec![below.id, above.id]));
}

/// Numbers of families that are kept follow each change, and one that is not kept leaves them.
#[tokio::test]
async fn families_are_counted() {
    let fx = fixture().await;
    fx.admin().await;
    let place = Place::of(&GROUPS);
    let agree = async || {
        let sql = "SELECT count(*) FROM entity_count c WHERE c.number <> \
            (SELECT count(*) FROM entity e WHERE e.family = c.family)";
        let differing: i64 = statement(sql).fetch_one(&fx.config.pool).await.unwrap().try_get(0).unwrap();
        assert_eq!(differing, 0);
    };
    agree().await;
    let group = fx.create(&GROUPS, json!({"name": "one"})).await.unwrap();
    assert_eq!(fx.create(&GROUPS, json!({"name": "one"})).await.unwrap_err().code, "DUPLICATE");
    let items = vec![json!({"name": "two"}), json!({"name": "three"})];
    fx.config.put_many(&place, &Caller::system(), items.clone(), ChangeMode::DryRun).await.unwrap();
    fx.config.put_many(&place, &Caller::system(), items, ChangeMode::Apply).await.unwrap();
    agree().await;
    fx.op(&GROUPS, patch(&group.id, json!({"description": "x"}))).await.unwrap();
    fx.op(&GROUPS, delete(&group.id)).await.unwrap();
    agree().await;
    fx.op(&GROUPS, Op::Restore { id: group.id, version: 1 }).await.unwrap();
    // What goes along with another one counts, too.
    let user = fx.create(&USERS, json!({"username": "una"})).await.unwrap();
    let subject = json!({"type": "user", "id": user.id});
    fx.create(&BINDINGS, json!({"subject": subject, "roleId": ADMIN_ROLE_ID})).await.unwrap();
    fx.op(&USERS, delete(&user.id)).await.unwrap();
    agree().await;
    let sql = "UPDATE entity_count SET number = 100000 WHERE family = ?";
    statement(sql).bind(GROUPS.name).execute(&fx.config.pool).await.unwrap();
    let full = fx.create(&GROUPS, json!({"name": "four"})).await.unwrap_err();
    assert_eq!(full.errors[0].code, "LIMIT_EXCEEDED");
}

#[tokio::test]
async fn audit_is_a_chain() {
    let fx = fixture().await;
    fx.admin().await;
    let weak = caller(&["{view, logs, *}"]);
    let op = Op::Create { id: None, body: map(json!({"name": "x"})) };
    let refused =
        fx.config.change(&Place::of(&GROUPS), &weak, op, System::default(), ChangeMode::Apply).await.unwrap_err();
    assert_eq!(refused.code, "FORBIDDEN");
    let rows = fx.config.audit_rows(&AuditQuery::parse(&[]).unwrap()).await.unwrap().items;
    assert_eq!(
        (&rows[0]["outcome"], &rows[0]["code"], &rows[0]["actor"]),
        (&json!("refused"), &json!("FORBIDDEN"), &json!("tester"))
    );
    assert_eq!((&rows[1]["action"], &rows[1]["family"]), (&json!("CREATE"), &json!("rbac/bindings")));
    assert_eq!(rows[2]["after"]["password"], "<secret>");
    assert!(!Value::Array(rows.iter().cloned().map(Value::Object).collect()).to_string().contains("hash of"));
    let of = |key: &str, value: &str| AuditQuery::parse(&[(key.to_owned(), value.to_owned())]);
    assert_eq!(fx.config.audit_rows(&of("outcome", "refused").unwrap()).await.unwrap().items.len(), 1);
    assert_eq!(of("start", "soon").unwrap_err().code, "INVALID_PARAMETER");
    for (key, value) in [("sort", "actor"), ("fields", "nothing"), ("count", "maybe"), ("nothing", "x")] {
        assert_eq!(of(key, value).unwrap_err().code, "INVALID_PARAMETER", "{key}");
    }
    let read = |parameters: &[(&str, &str)]| {
        let owned: Vec<(String, String)> =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        AuditQuery::parse(&owned)
    };
    let parameters = [("count", "true"), ("limit", "1"), ("sort", "-at"), ("fields", "outcome")];
    let page = fx.config.audit_rows(&read(&parameters).unwrap()).await.unwrap();
    assert_eq!((page.total, page.items.len(), page.next_cursor.is_some()), (Some(rows.len()), 1, true));
    assert_eq!(Value::Object(page.items[0].clone()), json!({"id": rows[0]["id"], "outcome": "refused"}));
    // A cursor goes with its filter and its way, a row is found by all that it holds.
    let cursor = page.next_cursor.clone().unwrap();
    let next = fx.config.audit_rows(&read(&[("limit", "1"), ("cursor", &cursor)]).unwrap()).await.unwrap();
    assert_eq!(next.items[0]["id"], rows[1]["id"]);
    for other in [("sort", "at"), ("outcome", "refused"), ("q", "x"), ("filter", "code pr"), ("cursor", "7")] {
        let asked = [("cursor", cursor.as_str()), other];
        let asked = if other.0 == "cursor" { &asked[1..] } else { &asked[..] };
        assert_eq!(read(asked).unwrap_err().code, "CURSOR_MISMATCH", "{other:?}");
    }
    let hash = rows[1]["hash"].as_str().unwrap();
    for (key, value) in [("hash", hash.to_owned()), ("filter", format!("prevHash eq \"{hash}\""))] {
        assert_eq!(fx.config.audit_rows(&of(key, &value).unwrap()).await.unwrap().items.len(), 1, "{key}");
    }
    let named = fx.config.audit_rows(&of("q", "ADM").unwrap()).await.unwrap().items;
    assert!(!named.is_empty() && named.iter().all(|row| row["entityName"] == "admin"), "{named:?}");
    assert_eq!(fx.config.audit_rows(&of("after.username", "admin").unwrap()).await.unwrap().items.len(), 1);
    for wrong in ["nothing pr", r#"at gt "soon""#, "actor eq 5"] {
        assert_eq!(of("filter", wrong).unwrap_err().code, "INVALID_PARAMETER", "{wrong}");
    }
    for twice in
        [[("limit", "1"), ("limit", "2")], [("start", "2027-01-02T00:00:00Z"), ("end", "2027-01-01T00:00:00Z")]]
    {
        assert_eq!(read(&twice).unwrap_err().code, "INVALID_PARAMETER", "{twice:?}");
    }
    let oldest = fx.config.audit_rows(&of("sort", "at").unwrap()).await.unwrap().items;
    assert_eq!(oldest.iter().rev().collect::<Vec<_>>(), rows.iter().collect::<Vec<_>>());
    let verified = fx.config.audit_verify().await.unwrap();
    assert_eq!((verified.rows, verified.broken_at), (rows.len() as u64, None));
    // A row that goes, or changes, shows.
    statement("DELETE FROM audit WHERE number = 3").execute(&fx.config.pool).await.unwrap();
    assert_eq!(fx.config.audit_verify().await.unwrap().broken_at, Some(4));
    statement("UPDATE audit SET row = replace(row, 'CREATE', 'DELETE') WHERE number = 2")
        .execute(&fx.config.pool)
        .await
        .unwrap();
    assert_eq!(fx.config.audit_verify().await.unwrap().broken_at, Some(2));
}

#[tokio::test]
async fn a_row_taken_from_the_end_shows() {
    let fx = fixture().await;
    let last = "DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)";
    statement(last).execute(&fx.config.pool).await.unwrap();
    assert!(fx.config.audit_verify().await.unwrap().broken_at.is_some());
}

#[tokio::test]
async fn requests_that_name_themselves() {
    let fx = fixture().await;
    let named = |name: &str, body: &str| IdempotentRequest::new("user:x", "/p", name.as_bytes(), body.as_bytes());
    let one = named("k", "body").unwrap();
    assert_eq!(fx.config.begin_named(&one).await.unwrap(), ReplayStatus::Fresh);
    assert_eq!(fx.config.begin_named(&one).await.unwrap_err().code, "IDEMPOTENCY_IN_PROGRESS");
    fx.config.end_named(&one, Some(b"answer")).await.unwrap();
    assert_eq!(fx.config.begin_named(&one).await.unwrap(), ReplayStatus::Answered(b"answer".to_vec()));
    let row = statement("SELECT answer FROM answered").fetch_one(&fx.config.pool).await.unwrap();
    let stored: Vec<u8> = row.try_get(0).unwrap();
    assert_ne!(stored, b"answer", "answers rest encrypted");
    let other = named("k", "other").unwrap();
    assert_eq!(fx.config.begin_named(&other).await.unwrap_err().code, "IDEMPOTENCY_KEY_REUSED");
    // A fault of ours frees the name.
    let two = named("k2", "body").unwrap();
    fx.config.begin_named(&two).await.unwrap();
    fx.config.end_named(&two, None).await.unwrap();
    assert_eq!(fx.config.begin_named(&two).await.unwrap(), ReplayStatus::Fresh);
    // One that was under way at the end of the only server is under way no more.
    let c = &fx.config;
    let (random, vault, sealer) = (Arc::clone(&c.random), Arc::clone(&c.vault), Arc::clone(&c.sealer));
    let again = Config::open(c.pool.clone(), Arc::clone(&c.clock), random, vault, sealer).await.unwrap();
    let begun = again.begin_named(&two).await.map_err(|problem| problem.code);
    assert_eq!(begun, if again.is_shared() { Err("IDEMPOTENCY_IN_PROGRESS") } else { Ok(ReplayStatus::Fresh) });
    fx.clock.0.fetch_add(25 * 3_600_000, SeqCst);
    assert_eq!(fx.config.begin_named(&other).await.unwrap(), ReplayStatus::Fresh);
    assert_eq!(named("", "x").unwrap_err().code, "INVALID_PARAMETER");
    assert_eq!(named("a b", "x").unwrap_err().code, "INVALID_PARAMETER");
    assert_eq!(named(&"x".repeat(256), "x").unwrap_err().code, "INVALID_PARAMETER");
}

/// An answer that was too long was forgotten, and the request acted again.
#[tokio::test]
async fn long_answers_are_kept() {
    let fx = fixture().await;
    let named = IdempotentRequest::new("user:x", "/p", b"k", b"body").unwrap();
    assert_eq!(fx.config.begin_named(&named).await.unwrap(), ReplayStatus::Fresh);
    // What nothing packs.
    let next = |n: &u64| Some(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    let noise: Vec<u8> =
        std::iter::successors(Some(1_u64), next).map(|n| n.to_be_bytes()[0]).take((4 << 20) + 1).collect();
    assert!(!fx.config.end_named(&named, Some(&noise)).await.unwrap());
    assert_eq!(fx.config.begin_named(&named).await.unwrap_err().code, "IDEMPOTENCY_IN_PROGRESS");
    let long = br#"{"name": "checkout"}, "#.repeat(1 << 18);
    assert!(fx.config.end_named(&named, Some(&long)).await.unwrap());
    let ReplayStatus::Answered(again) = fx.config.begin_named(&named).await.unwrap() else { panic!("it was answered") };
    assert!(again == long, "{} bytes", again.len());
}

/// Long answers count by their length: else one caller could fill the disk with 10,000 of them a day.
#[tokio::test]
async fn kept_answers_have_so_many_bytes() {
    let fx = fixture().await;
    let named = |subject: &str, name: &str| IdempotentRequest::new(subject, "/p", name.as_bytes(), b"body").unwrap();
    let long = vec![7_u8; 4 << 20];
    for n in 0..64 {
        assert_eq!(fx.config.begin_named(&named("user:x", &n.to_string())).await.unwrap(), ReplayStatus::Fresh, "{n}");
        let sql = "UPDATE answered SET answer = ? WHERE name = ?";
        statement(sql).bind(long.clone()).bind(n.to_string()).execute(&fx.config.pool).await.unwrap();
    }
    assert_eq!(fx.config.begin_named(&named("user:x", "more")).await.unwrap_err().code, "RATE_LIMITED");
    assert_eq!(fx.config.begin_named(&named("user:y", "more")).await.unwrap(), ReplayStatus::Fresh);
    fx.clock.0.fetch_add(25 * 3_600_000, SeqCst);
    assert_eq!(fx.config.begin_named(&named("user:x", "more")).await.unwrap(), ReplayStatus::Fresh);
}

/// Two changes of one version at once: one wins.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_wins() {
    let fx = Arc::new(fixture().await);
    fx.admin().await;
    let group = fx.create(&GROUPS, json!({"name": "g"})).await.unwrap();
    let each = (0..8).map(|n| {
        let (fx, id) = (Arc::clone(&fx), group.id.clone());
        tokio::spawn(async move {
            let patch = map(json!({"description": format!("by {n}")}));
            fx.op(&GROUPS, Op::Patch { id, patch, condition: Condition::Versions(vec![1]) }).await.is_ok()
        })
    });
    let mut won = 0;
    for one in each.collect::<Vec<_>>() {
        won += usize::from(one.await.unwrap());
    }
    assert_eq!(won, 1);
}

/// Gives less each time.
#[derive(Debug)]
struct Falling(AtomicU64);

impl Random for Falling {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_sub(1, SeqCst).to_be_bytes();
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = n[i % 8]);
    }
}

#[tokio::test]
async fn ids_of_one_moment_go_up() {
    let mut fx = fixture().await;
    fx.config.random = Arc::new(Falling(AtomicU64::new(1 << 40)));
    let mut ids: Vec<String> = (0..1000).map(|_| fx.config.new_id()).collect();
    fx.clock.0.fetch_add(1, SeqCst);
    ids.extend((0..1000).map(|_| fx.config.new_id()));
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids.iter().all(|id| uuid::Uuid::try_parse(id).is_ok_and(|id| id.get_version_num() == 7)));
}
