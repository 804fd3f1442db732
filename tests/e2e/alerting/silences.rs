//! Silences as a family of the configuration: the common contract, and the same silences in Alertmanager's API.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::alerting::until;
use crate::identity::{permitted, signed_in, with_password};
use crate::json_calls;

const PATH: &str = "/rulesapi/silences";

async fn call(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    server.send(method, path, &[&json, headers].concat(), body).await
}

fn silence(n: usize) -> Value {
    json!({"matchers": [format!("alertname=A{n}")], "endsAt": "2100-01-01T00:00:00Z", "comment": format!("n{n}"),
        "labels": {"team": if n.is_multiple_of(2) { "even" } else { "odd" }}})
}

fn path_of(silence: &Value) -> String {
    format!("{PATH}/{}", silence["id"].as_str().expect("an id"))
}

#[tokio::test(flavor = "multi_thread")]
async fn silences_obey_the_contract() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let first = call(&server, "POST", PATH, &[("idempotency-key", "one")], &silence(1)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let one = first.json();
    assert_eq!(
        (&first.headers["etag"], first.headers["location"].to_str().ok()),
        (&"\"1\"".parse().expect("a tag"), Some(path_of(&one).as_str()))
    );
    assert_eq!((&one["state"], &one["version"], &one["managedBy"]), (&json!("active"), &json!(1), &json!("api")));
    let again = call(&server, "POST", PATH, &[("idempotency-key", "one")], &silence(1)).await;
    assert_eq!((again.json(), again.headers["idempotency-replayed"].as_bytes()), (one.clone(), &b"true"[..]));
    assert_eq!(server.get(PATH).await.json()["items"].as_array().map(Vec::len), Some(1));

    // Changed in place, refused when stale, and never changed by a dry run.
    let own = path_of(&one);
    assert_eq!(call(&server, "GET", &own, &[("if-none-match", "\"1\"")], &Value::Null).await.status, 304);
    let cut = server.get(&format!("{own}?fields=state")).await;
    assert_eq!(cut.json(), json!({"id": one["id"], "state": "active"}), "{}", cut.text());
    let patch = json!({"comment": "longer", "description": "changed", "createdBy": "ann"});
    let dry = call(&server, "PATCH", &format!("{own}?dryRun=true"), &[], &patch).await;
    assert_eq!(
        (dry.status, &dry.json()["version"], dry.headers["x-dry-run"].as_bytes()),
        (200, &json!(2), &b"true"[..])
    );
    let patched = call(&server, "PATCH", &own, &[("if-match", "\"1\"")], &patch).await;
    assert_eq!((patched.status, patched.headers["etag"].as_bytes()), (200, &b"\"2\""[..]), "{}", patched.text());
    assert_eq!((&patched.json()["id"], &patched.json()["createdBy"]), (&one["id"], &json!("ann")));
    let stale = call(&server, "PATCH", &own, &[("if-match", "\"1\"")], &patch).await;
    assert_eq!((stale.status, stale.json()["current"]["version"].clone()), (412, json!(2)), "{}", stale.text());
    for (method, body) in [("PATCH", &patch), ("DELETE", &Value::Null)] {
        let known = call(&server, method, &own, &[("if-none-match", "W/\"2\"")], body).await;
        assert_eq!((known.status, known.json()["code"].clone()), (412, json!("VERSION_CONFLICT")), "{method}");
    }
    let same = call(&server, "PUT", &own, &[], &server.get(&own).await.json()).await;
    assert_eq!((same.status, &same.json()["version"]), (200, &json!(2)), "{}", same.text());
    let wrong = call(&server, "PUT", &own, &[], &json!({"nmae": 1, "version": 99, "endsAt": "soon"})).await;
    let codes: Vec<Value> =
        wrong.json()["errors"].as_array().expect("a list").iter().map(|e| e["code"].clone()).collect();
    for code in ["UNKNOWN_FIELD", "READ_ONLY_FIELD", "REQUIRED", "INVALID_VALUE"] {
        assert!(wrong.status == 422 && codes.contains(&json!(code)), "{code}: {}", wrong.text());
    }
    // What Alertmanager's API does shows here, too, and keeps what it cannot say.
    let theirs = json!({"id": one["id"], "matchers": [{"name": "alertname", "value": "A1", "isRegex": false}],
        "startsAt": one["startsAt"], "endsAt": "2101-01-01T00:00:00Z", "createdBy": "bob", "comment": "theirs"});
    let set = call(&server, "POST", "/api/v2/silences", &[], &theirs).await;
    assert_eq!(set.json()["silenceID"], one["id"], "{}", set.text());
    let now = server.get(&own).await.json();
    assert_eq!(
        (&now["version"], &now["description"], &now["comment"]),
        (&json!(3), &json!("changed"), &json!("theirs"))
    );
    let history = server.get(&format!("{own}/history")).await.json()["items"].clone();
    assert_eq!(history.as_array().map(Vec::len), Some(3), "{history}");
    assert_eq!(history[0]["diff"]["comment"], json!({"from": "longer", "to": "theirs"}));
    let back = call(&server, "POST", &format!("{own}/restore"), &[], &json!({"version": 2})).await;
    assert_eq!((back.status, &back.json()["comment"]), (200, &json!("longer")), "{}", back.text());
    // Other matchers: that is another silence.
    let other = call(&server, "PATCH", &own, &[], &json!({"matchers": ["alertname=B"]})).await;
    assert!(other.status == 200 && other.json()["id"] != one["id"], "{}", other.text());
    assert_eq!(other.headers["location"].to_str().ok(), Some(path_of(&other.json()).as_str()));
    assert_eq!(server.get(&own).await.json()["state"], json!("expired"));
    // Ended by DELETE, and there until it is forgotten.
    let path = path_of(&other.json());
    assert_eq!(call(&server, "DELETE", &path, &[("if-match", "\"7\"")], &Value::Null).await.status, 412);
    assert_eq!(call(&server, "DELETE", &path, &[], &Value::Null).await.status, 204);
    assert_eq!(server.get(&path).await.json()["state"], json!("expired"));
    assert_eq!(call(&server, "PUT", PATH, &[], &json!({"id": "none"})).await.status, 404);
    let odd = call(&server, "PUT", &format!("{PATH}/export"), &[], &Value::Null).await;
    assert_eq!((odd.status, odd.json()["code"].clone()), (405, json!("METHOD_NOT_ALLOWED")));

    // A restart keeps them, with their versions.
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &Options::default()).await;
    let kept = server.get(&own).await.json();
    assert_eq!((&kept["version"], &kept["labels"]["team"]), (&json!(5), &json!("odd")), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_silences() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let id = "01900000-0000-7000-8000-000000000001";
    let chosen = call(&server, "PUT", &format!("{PATH}/{id}"), &[("if-none-match", "*")], &silence(0)).await;
    assert_eq!((chosen.status, &chosen.json()["id"]), (201, &json!(id)), "{}", chosen.text());
    let twice = call(&server, "PUT", &format!("{PATH}/{id}"), &[("if-none-match", "*")], &silence(0)).await;
    assert_eq!(twice.status, 412, "{}", twice.text());
    let items: Vec<Value> = (1..7).map(silence).collect();
    let bad = call(&server, "PUT", PATH, &[], &json!({"items": [silence(9), {"matchers": []}]})).await;
    assert_eq!((bad.status, &bad.json()["errors"][0]["field"]), (422, &json!("/items/1/endsAt")), "{}", bad.text());
    let put = call(&server, "PUT", PATH, &[], &json!({"items": items})).await;
    assert_eq!((&put.json()["created"], &put.json()["unchanged"]), (&json!(6), &json!(0)), "{}", put.text());
    // Pages by any order, filters, fields.
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("{PATH}?limit=3&sort=-comment&fields=comment&count=true{cursor}")).await.json();
        assert_eq!(page["total"], json!(7));
        seen.extend(page["items"].as_array().expect("a list").iter().map(|i| i["comment"].clone()));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["n6", "n5", "n4", "n3", "n2", "n1", "n0"]);
    let odd =
        server.get(&format!("{PATH}?filter=labels.team%20eq%20%22odd%22%20and%20state%20eq%20%22active%22&q=n3")).await;
    assert_eq!(odd.json()["items"].as_array().map(Vec::len), Some(1), "{}", odd.text());
    assert_eq!(server.get(&format!("{PATH}?cursor=x")).await.json()["code"], json!("CURSOR_MISMATCH"));
    // An export comes in unchanged, in both forms.
    for (format, kind) in [("json", "application/json"), ("yaml", "application/yaml")] {
        let exported = server.get(&format!("{PATH}/export?format={format}")).await.body;
        let taken = server.post(&format!("{PATH}/import"), &[("content-type", kind)], exported).await;
        let summary = json!({"created": 0, "updated": 0, "deleted": 0, "unchanged": 7});
        assert_eq!(taken.json()["summary"], summary, "{format}: {}", taken.text());
    }
    let body = json!({"filter": "labels.team eq \"odd\"", "patch": {"description": "x"}});
    let updated = call(&server, "POST", &format!("{PATH}/bulk-update"), &[], &body).await.json();
    assert_eq!(updated["updated"].as_array().map(Vec::len), Some(3), "{updated}");
    let gone = call(&server, "POST", &format!("{PATH}/bulk-delete"), &[], &json!({"ids": [id, "no"]})).await.json();
    assert_eq!((gone["deleted"].clone(), gone["failed"][0]["code"].clone()), (json!([id]), json!("NOT_FOUND")));
    assert_eq!(call(&server, "DELETE", PATH, &[], &Value::Null).await.status, 400);
    let misspelt = json!({"ids": [id], "fliter": "x"});
    let misspelt = call(&server, "POST", &format!("{PATH}/bulk-delete"), &[], &misspelt).await;
    assert_eq!((misspelt.status, &misspelt.json()["errors"][0]["field"]), (422, &json!("/fliter")));
    let empty = call(&server, "POST", &format!("{PATH}/bulk-delete"), &[], &json!({"ids": []})).await;
    assert_eq!(empty.status, 422, "{}", empty.text());
    // What a body lacks ends, among those that a filter names.
    let one = server.get(&format!("{PATH}?q=n1")).await.json()["items"][0].clone();
    let import = format!("{PATH}/import?mode=replace&filter=labels.team%20eq%20%22odd%22");
    let taken = call(&server, "POST", &import, &[], &json!({"items": [one]})).await.json();
    assert_eq!((&taken["summary"]["deleted"], &taken["summary"]["unchanged"]), (&json!(2), &json!(1)), "{taken}");
    assert_eq!(server.get(&format!("{PATH}?state=active&count=true")).await.json()["total"], json!(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn silences_of_other_services_are_not_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        json_calls::call(&server, token, method, path, &body).await
    };
    let ann = permitted(&server, &admin, "ann", &["{operate, alerts, cart}"]).await;
    let of = |service: &str| json!({"matchers": [format!("service_name={service}")], "endsAt": "2100-01-01T00:00:00Z"});
    let pay = ask(&admin, "POST", PATH, of("pay")).await.json();
    let cart = ask(&ann, "POST", PATH, of("cart")).await;
    assert_eq!((cart.status, &cart.json()["createdBy"]), (201, &json!("ann")), "{}", cart.text());
    let refused = ask(&ann, "POST", PATH, of("pay")).await;
    assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("FORBIDDEN")), "{}", refused.text());
    assert_eq!(
        ask(&ann, "POST", PATH, json!({"matchers": ["a=b"], "endsAt": "2100-01-01T00:00:00Z"})).await.status,
        403
    );
    let listed = ask(&ann, "GET", &format!("{PATH}?count=true"), Value::Null).await.json();
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&json!(1), &cart.json()["id"]), "{listed}");
    for (method, path) in
        [("GET", path_of(&pay)), ("DELETE", path_of(&pay)), ("GET", format!("{}/history", path_of(&pay)))]
    {
        assert_eq!(ask(&ann, method, &path, Value::Null).await.status, 404, "{method} {path}");
    }
    let many = ask(&ann, "POST", &format!("{PATH}/bulk-delete"), json!({"filter": "state eq \"active\""})).await.json();
    assert_eq!((&many["deleted"], &many["failed"]), (&json!([cart.json()["id"]]), &json!([])), "{many}");
    assert_eq!(ask(&admin, "GET", &path_of(&pay), Value::Null).await.json()["state"], json!("active"));
    // Who did what.
    let rows =
        ask(&admin, "GET", "/platform-api/rbac/audit?family=silences", Value::Null).await.json()["items"].clone();
    let said: Vec<String> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|r| {
            format!(
                "{} {} {}",
                r["actor"].as_str().unwrap_or(""),
                r["action"].as_str().unwrap_or(""),
                r["outcome"].as_str().unwrap_or("")
            )
        })
        .collect();
    for row in ["admin CREATE ok", "ann CREATE ok", "ann CREATE refused", "ann DELETE ok", "ann DELETE refused"] {
        assert!(said.iter().any(|said| said == row), "{row}: {said:?}");
    }
}

/// Who may see the policy learns where alerts go, not which of them there are and what holds them back.
#[tokio::test(flavor = "multi_thread")]
async fn tests_of_routes_tell_of_no_silence_that_is_not_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        json_calls::call(&server, token, method, path, &body).await
    };
    let rule = json!({"source_matchers": ["alertname=\"Down\""], "target_matchers": ["alertname=\"Slow\""]});
    let made = ask(&admin, "POST", "/rulesapi/rulepolicy/inhibit-rules", rule).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let alert = json!([{"labels": {"alertname": "Down", "service_name": "pay"}}]);
    assert_eq!(ask(&admin, "POST", "/api/v2/alerts", alert).await.status, 200);
    let of_pay = json!({"matchers": ["service_name=pay"], "endsAt": "2100-01-01T00:00:00Z"});
    let silence = ask(&admin, "POST", PATH, of_pay).await.json();
    let tried = async |token: &str| -> (Value, Value) {
        let body = json!({"labels": {"alertname": "Slow", "service_name": "pay"}});
        let answer = ask(token, "POST", "/rulesapi/rulepolicy/routes/test", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let found = answer.json()["matches"][0].take();
        (found["inhibitedBy"].clone(), found["silencedBy"].clone())
    };
    until("it is held back", async || tried(&admin).await.0 != json!([])).await;
    let (inhibited, silenced) = tried(&admin).await;
    assert_eq!(silenced, json!([silence["id"]]));
    let ann = permitted(&server, &admin, "ann", &["{view, alerting, *}", "{view, alerts, cart}"]).await;
    assert_eq!(tried(&ann).await, (json!([]), json!([])));
    let bob = permitted(&server, &admin, "bob", &["{view, alerting, *}", "{view, alerts, pay}"]).await;
    assert_eq!(tried(&bob).await, (inhibited, silenced));
}

/// The table of actions tells no more of a silence than the API does.
#[tokio::test(flavor = "multi_thread")]
async fn actions_tell_of_no_silence_that_is_not_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        json_calls::call(&server, token, method, path, &body).await
    };
    let ann = permitted(&server, &admin, "ann", &["{operate, alerts, cart}"]).await;
    let alert = json!([{"labels": {"alertname": "Down", "service_name": "cart"}}]);
    assert_eq!(ask(&admin, "POST", "/api/v2/alerts", alert).await.status, 200);
    for (matcher, comment) in
        [("alertname=Down", "of all"), ("service_name=cart", "of cart"), ("service=cart", "loose")]
    {
        let body = json!({"matchers": [matcher], "endsAt": "2100-01-01T00:00:00Z", "comment": comment});
        assert_eq!(ask(&admin, "POST", PATH, body).await.status, 201, "{matcher}");
    }
    let told = async |token: &str| -> Vec<Value> {
        let query = "SELECT action, actor, subject IS NULL AS hidden, comment FROM alert_actions ORDER BY comment";
        let path = format!("/sql-api/v1/query?format=ndjson&query={}", query.replace(' ', "+"));
        let text = server.get_as(&path, &[("authorization", token)]).await.text();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    until("all are rows", async || told(&admin).await.len() == 3).await;
    let row = |comment: &str| json!({"action": "silence", "actor": "admin", "hidden": false, "comment": comment});
    assert_eq!(told(&admin).await, [row("loose"), row("of all"), row("of cart")]);
    // That the alert is held back is seen; by whom and why, where the silence is seen. One without an alert is of nobody.
    let hidden = json!({"action": "silence", "actor": null, "hidden": true, "comment": null});
    assert_eq!(told(&ann).await, [row("of cart"), hidden]);
    let listed = ask(&ann, "GET", PATH, Value::Null).await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
}
