//! Configuration over HTTP with the real binary: the contract and the special operations of families.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

/// The built-in types `service` and `calls`.
const SERVICE: &str = "00000000-0000-7000-8000-000000000101";
const CALLS: &str = "00000000-0000-7000-8000-000000000202";

/// Families with a body that each takes; `#` stands for a number.
pub(crate) fn families() -> Vec<(&'static str, Value)> {
    let leaf = json!({"field": "http.route", "op": "glob", "value": "/cart/*"});
    let steps =
        json!([{"name": "a", "kind": "span", "condition": leaf}, {"name": "b", "kind": "log", "condition": leaf}]);
    let target = json!([{"field": "x", "from": "y"}]);
    vec![
        ("/bt-detection-rules", json!({"name": "n#", "condition": leaf})),
        ("/rum-bt-detection-rules", json!({"name": "n#", "condition": leaf})),
        ("/transactions", json!({"name": "n#", "service": "cart", "transactionName": "t#"})),
        ("/rum-key-business-transactions", json!({"name": "n#", "application": "shop", "transactionName": "t#"})),
        ("/business-processes", json!({"name": "n#", "correlationField": "order.id", "steps": steps})),
        ("/platform-api/segments", json!({"name": "n#", "key": "k#", "conditions": {"logs": leaf}})),
        ("/rulesapi/rules", json!({"alert": "n#", "group": "g", "expr": "up == 0"})),
        ("/rulesapi/rulepolicy/receivers", json!({"name": "n#"})),
        ("/rulesapi/rulepolicy/routes", json!({"receiver": "empty", "matchers": ["a=\"n#\""]})),
        ("/rulesapi/rulepolicy/time-intervals", json!({"name": "n#"})),
        ("/rulesapi/rulepolicy/inhibit-rules", json!({"name": "n#", "source_matchers": ["a=\"b\""]})),
        ("/rulesapi/rulepolicy/templates", json!({"name": "n#", "content": "{{ define \"n#\" }}x{{ end }}"})),
        ("/platform-api/apdex-thresholds", json!({"service": "s#", "thresholdMs": 100})),
        (
            "/platform-api/data-extraction-rules",
            json!({"name": "n#", "signal": "logs", "method": "logfmt", "targets": target}),
        ),
        ("/platform-api/ci-classes", json!({"name": "n#", "key": "k#"})),
        ("/platform-api/resource-types", json!({"name": "n#", "key": "k#"})),
        ("/platform-api/relationship-types", json!({"name": "n#", "key": "k#"})),
        ("/platform-api/resources", json!({"typeId": SERVICE, "attributes": {"service.name": "s#"}})),
    ]
}

pub(crate) fn numbered(body: &Value, n: usize) -> Value {
    serde_json::from_str(&body.to_string().replace('#', &n.to_string())).expect("JSON")
}

pub(crate) async fn call(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, path, &[&json, headers].concat(), body).await
}

async fn made(server: &Server, path: &str, body: &Value) -> Value {
    let answer = call(server, "POST", path, &[], body).await;
    assert_eq!(answer.status, 201, "{path} {body}: {}", answer.text());
    answer.json()
}

/// Families in which the same may stand twice.
const REPEATED: [&str; 3] = ["/rulesapi/rules", "/rulesapi/rulepolicy/routes", "/rulesapi/rulepolicy/inhibit-rules"];
/// Families that require no field.
const BARE: [&str; 2] = ["/rulesapi/rulepolicy/routes", "/rulesapi/rulepolicy/inhibit-rules"];

#[tokio::test(flavor = "multi_thread")]
async fn every_family_obeys_the_contract() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (path, body) in families() {
        let first = call(&server, "POST", path, &[("idempotency-key", "one")], &numbered(&body, 1)).await;
        assert_eq!(first.status, 201, "{path}: {}", first.text());
        let entity = first.json();
        let id = entity["id"].as_str().expect("an id").to_owned();
        let one = format!("{path}/{id}");
        assert_eq!(first.headers["location"].to_str().ok(), Some(one.as_str()));
        assert_eq!(first.headers["etag"], "\"1\"");
        let again = call(&server, "POST", path, &[("idempotency-key", "one")], &numbered(&body, 1)).await;
        assert_eq!((again.status, again.headers["idempotency-replayed"].as_bytes()), (201, &b"true"[..]), "{path}");
        assert_eq!(again.json(), entity);
        let named = [("idempotency-key", "no word")];
        let wrong = call(&server, "POST", &format!("{path}?dryRun=true"), &named, &numbered(&body, 9)).await;
        assert_eq!((wrong.status, wrong.json()["code"].clone()), (400, json!("INVALID_PARAMETER")), "{path}");
        let named = [("idempotency-key", "one"), ("idempotency-key", "two")];
        let wrong = call(&server, "POST", path, &named, &numbered(&body, 1)).await;
        assert_eq!((wrong.status, wrong.json()["code"].clone()), (400, json!("INVALID_PARAMETER")), "{path}");
        let twice = call(&server, "POST", &format!("{path}?dryRun=true"), &[], &numbered(&body, 1)).await;
        let expected = if REPEATED.contains(&path) { (201, Value::Null) } else { (409, json!("DUPLICATE")) };
        assert_eq!((twice.status, twice.json()["code"].clone()), expected, "{path}");
        // Read, changed, put back, refused when stale.
        let same = call(&server, "GET", &one, &[("if-none-match", "\"1\"")], &Value::Null).await;
        assert_eq!(same.status, 304, "{path}");
        // A proxy that packs answers makes tags weak.
        let weak = call(&server, "GET", &one, &[("if-none-match", "\"7\", W/\"1\"")], &Value::Null).await;
        assert_eq!((weak.status, weak.headers["etag"].as_bytes()), (304, &b"\"1\""[..]), "{path}");
        // What stands twice, or names nothing, must not be read as something else.
        for wrong in ["ids=a&ids=b", "ids=,", "ids=a,", "ids=a&dryRun=true&dryRun=false"] {
            let answer = call(&server, "DELETE", &format!("{path}?{wrong}"), &[], &Value::Null).await;
            assert_eq!(
                (answer.status, answer.json()["code"].clone()),
                (400, json!("INVALID_PARAMETER")),
                "{path}?{wrong}"
            );
        }
        let patch = json!({"description": "changed", "labels": {"team": "shop"}});
        let patched = call(&server, "PATCH", &one, &[("if-match", "\"1\"")], &patch).await;
        assert_eq!((patched.status, patched.headers["etag"].as_bytes()), (200, &b"\"2\""[..]), "{}", patched.text());
        let stale = call(&server, "PATCH", &one, &[("if-match", "\"1\"")], &patch).await;
        assert_eq!((stale.status, stale.json()["current"].clone()), (412, patched.json()), "{path}");
        // One of several tags is enough, in one line or in two; a weak one is not.
        let lines: [(&[&str], u16); 4] =
            [(&["\"7\", \"2\""], 200), (&["\"x\"", "\"2\""], 200), (&["W/\"2\""], 412), (&["\"02\""], 412)];
        for (tags, status) in lines {
            let headers: Vec<(&str, &str)> = tags.iter().map(|tag| ("if-match", *tag)).collect();
            let answer = call(&server, "PATCH", &one, &headers, &patch).await;
            assert_eq!(answer.status, status, "{path} {tags:?}: {}", answer.text());
        }
        // What is known already, or must not be there, is not changed.
        for known in ["\"2\"", "\"7\", W/\"2\"", "*"] {
            for (method, body) in [("PATCH", json!({"description": "x"})), ("DELETE", Value::Null)] {
                let kept = call(&server, method, &one, &[("if-none-match", known)], &body).await;
                let told = (kept.status, kept.json()["code"].clone());
                assert_eq!(told, (412, json!("VERSION_CONFLICT")), "{path} {method} {known}");
            }
        }
        let dry = call(&server, "DELETE", &format!("{one}?dryRun=true"), &[], &Value::Null).await;
        assert_eq!((dry.status, dry.headers["x-dry-run"].as_bytes()), (204, &b"true"[..]));
        // All errors at once.
        let wrong = call(&server, "PUT", &one, &[], &json!({"nmae": 1, "version": 99})).await;
        assert_eq!(wrong.status, 422, "{path}");
        let codes: Vec<Value> =
            wrong.json()["errors"].as_array().expect("a list").iter().map(|e| e["code"].clone()).collect();
        let codes_wanted = ["UNKNOWN_FIELD", "READ_ONLY_FIELD", "REQUIRED"];
        for code in codes_wanted.into_iter().filter(|code| *code != "REQUIRED" || !BARE.contains(&path)) {
            assert!(codes.contains(&json!(code)), "{path} {code}: {}", wrong.text());
        }
        // Lists, exports and imports.
        for n in 2..5 {
            made(&server, path, &numbered(&body, n)).await;
        }
        let list = server.get(&format!("{path}?labels.team=shop&count=true&fields=description")).await.json();
        assert_eq!(
            (list["total"].clone(), list["items"][0].clone()),
            (json!(1), json!({"id": id, "description": "changed"}))
        );
        for (format, kind) in [("json", "application/json"), ("yaml", "application/yaml")] {
            let exported =
                server.get(&format!("{path}/export?format={format}&filter=managedBy%20eq%20%22api%22")).await;
            assert_eq!(exported.headers["content-type"].to_str().ok(), Some(kind));
            let import = format!("{path}/import?mode=upsert");
            let taken = server.post(&import, &[("content-type", kind)], exported.body).await;
            let summary = taken.json()["summary"].clone();
            assert_eq!(summary, json!({"created": 0, "updated": 0, "deleted": 0, "unchanged": 4}), "{path} {format}");
        }
        let gone =
            call(&server, "POST", &format!("{path}/bulk-delete"), &[], &json!({"ids": [id.to_uppercase(), "no", id]}))
                .await;
        let gone = gone.json();
        assert_eq!((gone["deleted"].clone(), gone["failed"][0]["code"].clone()), (json!([id]), json!("NOT_FOUND")));
        assert_eq!(gone["failed"].as_array().map(Vec::len), Some(1), "{path}: {gone}");
        let back = call(&server, "POST", &format!("{one}/restore"), &[], &json!({"version": 2})).await;
        assert_eq!(back.json()["description"], "changed", "{path}: {}", back.text());
        let history = server.get(&format!("{one}/history")).await.json();
        assert_eq!(history["items"].as_array().map(Vec::len), Some(4), "{path}: {history}");
        let odd = call(&server, "DELETE", &format!("{path}/export"), &[], &Value::Null).await;
        assert_eq!((odd.status, odd.json()["code"].clone()), (405, json!("METHOD_NOT_ALLOWED")));
        assert!(odd.headers["allow"].to_str().is_ok_and(|a| a.contains("GET")));
    }
}

/// What an operation does not know it does not pass over.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_and_members_that_nobody_knows() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let path = "/platform-api/ci-classes";
    let class = made(&server, path, &json!({"name": "n", "key": "k"})).await;
    let id = class["id"].as_str().expect("an id");
    let one = format!("{path}/{id}");
    let cut = server.get(&format!("{one}?fields=key,labels")).await;
    assert_eq!((cut.status, cut.json()), (200, json!({"id": id, "key": "k", "labels": {}})));
    for wrong in [
        format!("{one}?bogus=1"),
        format!("{one}?fields=bogus"),
        format!("{one}?filter=key%20pr"),
        format!("{one}/history?limit=1"),
        format!("{path}/export?limit=1"),
        format!("{path}/export?format=json&format=yaml"),
        format!("{path}?filter=createdAt%20gt%20%22bad%22"),
    ] {
        let answer = server.get(&wrong).await;
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_PARAMETER")), "{wrong}");
    }
    let items = json!([{"name": "other", "key": "other"}]);
    let import = |format: &str| json!({"format": format, "items": items});
    for (operation, body, field) in [
        (format!("{path}/import"), import("quiver/2"), "/format"),
        (format!("{path}/import"), json!({"items": "x"}), "/items"),
        (format!("{path}/bulk-update"), json!({"ids": [id], "patch": []}), "/patch"),
        (format!("{path}/bulk-delete"), json!({"ids": [id], "fliter": "x"}), "/fliter"),
        (format!("{path}/bulk-delete"), json!({"filter": 5}), "/filter"),
        (format!("{path}/bulk-update"), json!({"ids": [id], "patch": {}, "dryRun": true}), "/dryRun"),
        (format!("{one}/restore"), json!({"version": 1, "verison": 1}), "/verison"),
    ] {
        let answer = call(&server, "POST", &operation, &[], &body).await;
        assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!(field)), "{operation}");
    }
    // What is missing is no wrong type, and a wrong entry is named.
    let (graph, merge) = ("/platform-api/resources/dependency-graph", "/platform-api/resources/x/merge");
    for (operation, member, wrong, pointer) in [
        (&*format!("{one}/restore"), "version", json!("1"), "/version"),
        (&*format!("{path}/bulk-delete"), "ids", json!([id, 5]), "/ids/1"),
        (graph, "roots", json!([null]), "/roots/0"),
        (merge, "from", json!({}), "/from"),
        (merge, "from", json!([5]), "/from/0"),
    ] {
        for (body, code, field) in [
            (json!({}), "REQUIRED", format!("/{member}")),
            (json!({member: null}), "REQUIRED", format!("/{member}")),
            (json!({member: wrong}), "INVALID_TYPE", pointer.to_owned()),
        ] {
            let error = call(&server, "POST", operation, &[], &body).await.json()["errors"][0].clone();
            assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)), "{operation} {body}: {error}");
        }
    }
    // A filter that finds nothing leaves nothing to do.
    for (operation, done) in [("bulk-delete", "deleted"), ("bulk-update", "updated")] {
        let mut body = json!({"filter": "key eq \"none\""});
        if operation == "bulk-update" {
            body["patch"] = json!({"description": "x"});
        }
        let answer = call(&server, "POST", &format!("{path}/{operation}"), &[], &body).await;
        assert_eq!((answer.status, answer.json()), (200, json!({done: [], "failed": []})), "{operation}");
        body["filter"] = json!("");
        assert_eq!(call(&server, "POST", &format!("{path}/{operation}"), &[], &body).await.status, 422);
    }
    // An id that is no text is that of nothing.
    for odd in [format!("{path}/%ff"), format!("{path}/%ff/history"), "/platform-api/jobs/%ff".to_owned()] {
        let answer = server.get(&odd).await;
        assert_eq!((answer.status, &answer.json()["code"]), (404, &json!("NOT_FOUND")), "{odd}: {}", answer.text());
    }
    let paged = call(&server, "POST", &format!("{path}/import?limit=1"), &[], &import("quiver/1")).await;
    assert_eq!(paged.status, 400, "{}", paged.text());
    // What may be deleted is asked only where something is.
    for (mode, status) in [("upsert", 400), ("create", 400), ("replace", 200)] {
        let filtered = format!("{path}/import?dryRun=true&mode={mode}&filter=key%20eq%20%22none%22");
        let answer = call(&server, "POST", &filtered, &[], &import("quiver/1")).await;
        assert_eq!(answer.status, status, "{mode}: {}", answer.text());
    }
    let kept = call(&server, "POST", &format!("{one}/restore"), &[], &json!({"version": 7})).await;
    assert_eq!((kept.status, &kept.json()["detail"]), (404, &json!("version 7 is not kept")));
    let taken = call(&server, "POST", &format!("{path}/import"), &[], &import("quiver/1")).await;
    assert_eq!(taken.json()["summary"]["created"], 1, "{}", taken.text());
}

/// The digits of an id are read in any case, and kept in one.
#[tokio::test(flavor = "multi_thread")]
async fn ids_in_capitals() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let (capitals, kept) = ("0191D0A0-7C3E-7ABC-8DEF-0123456789AB", "0191d0a0-7c3e-7abc-8def-0123456789ab");
    for (path, body) in [
        ("/platform-api/ci-classes", json!({"name": "n", "key": "k"})),
        (
            "/rulesapi/silences",
            json!({"matchers": ["a=b"], "endsAt": "2099-01-01T00:00:00Z", "createdBy": "me", "comment": "c"}),
        ),
    ] {
        let named = format!("{path}/{capitals}");
        let made = call(&server, "PUT", &named, &[("if-none-match", "*")], &body).await;
        assert_eq!((made.status, &made.json()["id"]), (201, &json!(kept)), "{path}: {}", made.text());
        let location = made.headers["location"].to_str().ok().map(str::to_owned);
        assert_eq!(location, Some(format!("{path}/{kept}")));
        for one in [named, format!("{path}/{kept}")] {
            let read = server.get(&one).await;
            assert_eq!((read.status, &read.json()["id"]), (200, &json!(kept)), "{one}");
            let again = call(&server, "PUT", &one, &[("if-none-match", "*")], &body).await;
            assert_eq!(again.status, 412, "{one}: {}", again.text());
        }
    }
    // Of many at once, too: the item is the one that is there.
    let items = json!({"items": [{"id": capitals, "name": "other", "key": "k"}]});
    let put = call(&server, "PUT", "/platform-api/ci-classes", &[], &items).await.json();
    assert_eq!((&put["updated"], &put["items"][0]["id"]), (&json!(1), &json!(kept)), "{put}");
}

/// Of changes of one version at once one wins, over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_patches_wins() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let class = made(&server, "/platform-api/ci-classes", &json!({"name": "n", "key": "k"})).await;
    let path = format!("/platform-api/ci-classes/{}", class["id"].as_str().expect("an id"));
    let each = (0..10).map(|n| {
        let (server, path) = (&server, &path);
        async move {
            let patch = json!({"description": format!("by {n}")});
            call(server, "PATCH", path, &[("if-match", "\"1\"")], &patch).await.status
        }
    });
    let mut answers = futures::future::join_all(each).await;
    answers.sort_unstable();
    assert_eq!((answers[0], answers[1], answers[9]), (200, 412, 412), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn references_hold() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let id = |value: &Value| value["id"].as_str().expect("an id").to_owned();
    let refused = async |path: String| {
        let answer = call(&server, "DELETE", &path, &[], &Value::Null).await;
        assert_eq!((answer.status, answer.json()["code"].clone()), (409, json!("REFERENCED")), "{path}");
    };
    let leaf = json!({"field": "http.route", "op": "exists"});
    let rule = made(&server, "/bt-detection-rules", &json!({"name": "r", "condition": leaf})).await;
    let key = json!({"name": "k", "service": "cart", "transactionName": "t", "detectionRuleId": rule["id"]});
    let key = made(&server, "/transactions", &key).await;
    refused(format!("/bt-detection-rules/{}", id(&rule))).await;
    let steps = json!([{"name": "a", "kind": "transaction", "transactionId": key["id"]},
        {"name": "b", "kind": "log", "condition": leaf}]);
    made(&server, "/business-processes", &json!({"name": "p", "correlationField": "order.id", "steps": steps})).await;
    refused(format!("/transactions/{}", id(&key))).await;
    let class = made(&server, "/platform-api/ci-classes", &json!({"name": "c", "key": "c"})).await;
    let attributes = json!([{"key": "rack", "type": "int"}]);
    let sub = json!({"name": "s", "key": "s", "classId": class["id"], "attributes": attributes});
    let sub = made(&server, "/platform-api/ci-subclasses", &sub).await;
    refused(format!("/platform-api/ci-classes/{}", id(&class))).await;
    let kind = json!({"name": "t", "key": "t", "ciSubclassId": sub["id"]});
    let kind = made(&server, "/platform-api/resource-types", &kind).await;
    refused(format!("/platform-api/ci-subclasses/{}", id(&sub))).await;
    let wrong = json!({"typeId": kind["id"], "attributes": {"rack": "x", "no": 1}});
    let wrong = call(&server, "POST", "/platform-api/resources", &[], &wrong).await.json();
    let codes: Vec<&str> =
        wrong["errors"].as_array().expect("a list").iter().filter_map(|e| e["code"].as_str()).collect();
    assert_eq!(codes, ["UNKNOWN_FIELD", "INVALID_TYPE", "REQUIRED"], "{wrong}");
    let one = json!({"typeId": kind["id"], "key": "r1", "attributes": {"rack": 7}});
    made(&server, "/platform-api/resources", &one).await;
    refused(format!("/platform-api/resource-types/{}", id(&kind))).await;
    // A class is not above itself.
    let below =
        made(&server, "/platform-api/ci-classes", &json!({"name": "d", "key": "d", "parentId": class["id"]})).await;
    let path = format!("/platform-api/ci-classes/{}", id(&class));
    let circle = call(&server, "PATCH", &path, &[], &json!({"parentId": below["id"]})).await;
    assert_eq!((circle.status, circle.json()["code"].clone()), (409, json!("CYCLE")));
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_processes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let step =
        |name: &str| json!({"name": name, "kind": "log", "condition": {"field": "a", "op": "eq", "value": name}});
    let few = json!({"name": "p", "correlationField": "order.id", "steps": [step("a")]});
    let refused = call(&server, "POST", "/business-processes", &[], &few).await.json();
    assert_eq!(
        (&refused["errors"][0]["field"], &refused["errors"][0]["code"]),
        (&json!("/steps"), &json!("OUT_OF_RANGE"))
    );
    let body = json!({"name": "p", "correlationField": "order.id", "steps": [step("a"), step("b")]});
    let process = made(&server, "/business-processes", &body).await;
    let base = format!("/business-processes/{}/steps", process["id"].as_str().expect("an id"));
    let third = made(&server, &base, &step("c")).await;
    assert_eq!(third["position"], 2);
    let names = async || -> Vec<String> {
        let items = server.get(&base).await.json()["items"].clone();
        items.as_array().expect("a list").iter().map(|s| s["name"].as_str().expect("a name").to_owned()).collect()
    };
    let at = format!("{base}/{}", third["id"].as_str().expect("an id"));
    let first = process["steps"][0]["id"].clone();
    call(&server, "POST", &format!("{at}/move"), &[], &json!({"before": first})).await;
    assert_eq!(names().await, ["c", "a", "b"]);
    let optional = call(&server, "PATCH", &at, &[], &json!({"optional": true})).await;
    assert_eq!((optional.status, optional.json()["errors"][0]["field"].clone()), (422, json!("/optional")));
    let ids: Vec<Value> =
        [&process["steps"][0]["id"], &process["steps"][1]["id"], &third["id"]].map(Clone::clone).to_vec();
    let order = call(&server, "PUT", &format!("{base}/order"), &[], &json!({"ids": ids})).await;
    assert_eq!((order.status, names().await), (200, vec!["a".into(), "b".into(), "c".into()]), "{}", order.text());
    let twice = call(&server, "POST", &base, &[], &step("a")).await;
    assert_eq!((twice.status, twice.json()["code"].clone()), (409, json!("DUPLICATE")));
    assert_eq!(call(&server, "DELETE", &at, &[], &Value::Null).await.status, 204);
    assert_eq!(names().await, ["a", "b"]);
    let whole = server.get(base.trim_end_matches("/steps")).await.json();
    assert_eq!(whole["version"], 5, "each edit is a version of the process: {whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_go_to_the_place_that_they_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let step = |name: &str| json!({"name": name, "kind": "log", "condition": {"field": "a", "op": "exists"}});
    let body = json!({"name": "p", "correlationField": "order.id", "steps": [step("a"), step("b"), step("c")]});
    let process = made(&server, "/business-processes", &body).await;
    let base = format!("/business-processes/{}/steps", process["id"].as_str().expect("an id"));
    let last = format!("{base}/{}", process["steps"][2]["id"].as_str().expect("an id"));
    let placed = |name: &str, position: Value| {
        let mut step = step(name);
        step["position"] = position;
        step
    };
    let names = async || -> String {
        let items = server.get(&base).await.json()["items"].clone();
        items.as_array().expect("a list").iter().map(|s| s["name"].as_str().expect("a name")).collect()
    };
    let moved = call(&server, "PATCH", &last, &[], &json!({"position": 0})).await;
    assert_eq!((moved.status, &moved.json()["position"], names().await), (200, &json!(0), "cab".to_owned()));
    let moved = call(&server, "PUT", &last, &[], &placed("c", json!(1))).await;
    assert_eq!((moved.status, names().await), (200, "acb".to_owned()));
    // As it is read it may be sent back; a place behind the last one is the last.
    let read = server.get(&last).await.json();
    call(&server, "PUT", &last, &[], &read).await;
    assert_eq!(names().await, "acb");
    assert_eq!(made(&server, &base, &placed("d", json!(99))).await["position"], 3);
    for (position, code) in [(json!("x"), "INVALID_TYPE"), (json!(-1), "OUT_OF_RANGE")] {
        for (method, path) in [("POST", &base), ("PUT", &last), ("PATCH", &last)] {
            let refused = call(&server, method, path, &[], &placed("e", position.clone())).await;
            let error = refused.json()["errors"][0].clone();
            assert_eq!((&error["field"], &error["code"]), (&json!("/position"), &json!(code)), "{method} {position}");
        }
    }
    // What is wrong with a step is told of the step alone.
    let wrong = call(&server, "PATCH", &last, &[], &json!({"nope": 1})).await.json();
    let told = (wrong["errors"][0]["field"].clone(), wrong["detail"].clone());
    assert_eq!(told, (json!("/nope"), json!("/nope: there is no such field")));
    let etag = server.get(&last).await.headers["etag"].to_str().expect("a tag").to_owned();
    for path in [&base, &last] {
        let same = call(&server, "GET", path, &[("if-none-match", etag.as_str())], &Value::Null).await;
        assert_eq!(same.status, 304, "{path}");
    }
    let kept = call(&server, "PATCH", &last, &[("if-none-match", etag.as_str())], &json!({"name": "z"})).await;
    assert_eq!((kept.status, names().await), (412, "acbd".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn graphs_of_resources() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let body = json!({"typeId": SERVICE, "attributes": {"service.name": format!("s{n}")}});
        ids.push(made(&server, "/platform-api/resources", &body).await["id"].as_str().expect("an id").to_owned());
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0), (2, 3)] {
        let body = json!({"typeId": CALLS, "sourceId": ids[from], "targetId": ids[to]});
        made(&server, "/platform-api/resource-relationships", &body).await;
    }
    let graph = server.get(&format!("/platform-api/resources/{}/dependency-graph?depth=2", ids[0])).await.json();
    assert_eq!(graph["nodes"].as_array().map(Vec::len), Some(3));
    assert_eq!(graph["cycles"], json!([[ids[0], ids[1], ids[2]]]));
    assert_eq!((&graph["frontier"], &graph["truncated"]), (&json!([ids[2]]), &json!(false)));
    let near = server.get(&format!("/platform-api/resources/{}/neighbours?direction=in", ids[3])).await.json();
    assert_eq!(near["nodes"][1]["id"], json!(ids[2]));
    let body = json!({"roots": [ids[3]], "direction": "upstream", "relationshipTypes": ["calls"], "depth": 1});
    let up = call(&server, "POST", "/platform-api/resources/dependency-graph", &[], &body).await.json();
    assert_eq!((&up["roots"], up["edges"].as_array().map(Vec::len)), (&json!([ids[3]]), Some(1)));
    let wrong = server.get(&format!("/platform-api/resources/{}/neighbours?depth=6", ids[0])).await;
    assert_eq!((wrong.status, wrong.json()["code"].clone()), (400, json!("INVALID_PARAMETER")));
    let path = format!("/platform-api/resources/{}/merge", ids[0]);
    let merged = call(&server, "POST", &path, &[], &json!({"from": [ids[3]]})).await.json();
    assert_eq!((&merged["moved"], &merged["folded"]), (&json!(0), &json!(1)), "{merged}");
    let left = server.get("/platform-api/resources/summary?groupBy=type").await.json();
    assert_eq!(left, json!({"total": 3, "groups": [{"key": {"type": "service"}, "count": 3}]}));
}

/// Killed in the middle of changes: what was answered is there, and each version has its row of history.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = "/platform-api/ci-classes";
    let mut answered: Vec<String> = Vec::new();
    for round in 0..3 {
        let server = Server::start(dir.path(), &Options::default()).await;
        let made = Arc::<AtomicUsize>::default();
        let writers = (0..4).map(|writer| {
            let (url, made) = (server.url(path), Arc::clone(&made));
            tokio::spawn(async move {
                let (client, mut ids) = (reqwest::Client::new(), Vec::new());
                for n in 0.. {
                    let key = format!("r{round}-{writer}-{n}");
                    let sent = client.post(&url).json(&json!({"name": key, "key": key})).send().await;
                    let Ok(answer) = sent else { break };
                    let Ok(body) = answer.json::<Value>().await else { break };
                    let id = body["id"].as_str().expect("an id").to_owned();
                    ids.push(id.clone());
                    made.fetch_add(1, Relaxed);
                    let patch = json!({"description": "changed"});
                    if client.patch(format!("{url}/{id}")).json(&patch).send().await.is_err() {
                        break;
                    }
                }
                ids
            })
        });
        let writers: Vec<_> = writers.collect();
        // It is killed in the middle of changes, so there is one first.
        let began = Instant::now();
        while made.load(Relaxed) == 0 {
            assert!(began.elapsed() < Duration::from_mins(5), "nothing is answered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(server);
        for writer in writers {
            answered.extend(writer.await.expect("a writer ends"));
        }
    }
    let server = Server::start(dir.path(), &Options::default()).await;
    assert!(!answered.is_empty());
    for id in answered {
        let entity = server.get(&format!("{path}/{id}")).await;
        assert_eq!(entity.status, 200, "what was answered is there");
        let history = server.get(&format!("{path}/{id}/history")).await.json();
        let rows = history["items"].as_array().map(Vec::len);
        assert_eq!(rows.map(|n| json!(n)), Some(entity.json()["version"].clone()), "{history}");
    }
}
