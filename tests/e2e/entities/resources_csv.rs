//! Resources as CSV over HTTP: the same report, dry run and limits as with JSON, matching by type and key, errors with
//! line numbers.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

const IMPORT: &str = "/platform-api/resources/import";

async fn send(server: &Server, query: &str, csv: &str) -> Answer {
    let headers = [("content-type", "text/csv; charset=utf-8")];
    server.post(&format!("{IMPORT}{query}"), &headers, csv.as_bytes().to_vec()).await
}

async fn summary(server: &Server, query: &str, csv: &str) -> Value {
    let answer = send(server, query, csv).await;
    assert_eq!(answer.status, 200, "{csv}: {}", answer.text());
    answer.json()["summary"].clone()
}

fn counted(created: u64, updated: u64, deleted: u64, unchanged: u64) -> Value {
    json!({"created": created, "updated": updated, "deleted": deleted, "unchanged": unchanged})
}

async fn made(server: &Server, path: &str, body: &Value) -> Value {
    let json = [("content-type", "application/json")];
    let answer = server.post(path, &json, body.to_string().into_bytes()).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    answer.json()
}

async fn named(server: &Server, name: &str) -> Value {
    server.get_with("/platform-api/resources", &[("displayName", name)]).await.json()["items"][0].clone()
}

/// A type whose attributes are of all types: a rack of a class of machines.
async fn rack(server: &Server) -> Value {
    let class = json!({"name": "Machine", "key": "machine", "attributes": [{"key": "height", "type": "double"}]});
    let class = made(server, "/platform-api/ci-classes", &class).await;
    let attributes = json!([{"key": "number", "type": "int"}, {"key": "room"}, {"key": "spare", "type": "bool"}]);
    let body = json!({"name": "Rack", "key": "rack", "ciClassId": class["id"], "attributes": attributes,
        "identityKeys": ["room", "number"]});
    made(server, "/platform-api/resource-types", &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_becomes_resources() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let rack = rack(&server).await;
    let table = "type,displayName,attributes.number,attributes.room,attributes.spare,attributes.height,tags,labels.team\n\
        rack,Left,7,\"Hall, north\",true,1.5,old; big,shop\n\
        rack,Right,8,\"Hall, north\",,,,\n\
        host,,,,,,,\n";
    // A type's attributes that a row does not name are empty cells; the third row lacks what makes its identity.
    let refused = send(&server, "", table).await;
    let told = refused.json();
    assert_eq!((refused.status, &told["code"], &told["line"]), (422, &json!("VALIDATION_FAILED"), &json!(4)));
    let error = &told["errors"][0];
    assert_eq!((&error["field"], &error["line"]), (&json!("/items/2/attributes/host.name"), &json!(4)), "{told}");
    let table = table.replace("host,,,,,,,\n", "");
    assert_eq!(summary(&server, "?dryRun=true", &table).await, counted(2, 0, 0, 0));
    assert_eq!(named(&server, "Left").await, Value::Null, "a dry run keeps nothing");
    assert_eq!(summary(&server, "", &table).await, counted(2, 0, 0, 0));
    let left = named(&server, "Left").await;
    assert_eq!((&left["typeId"], &left["key"]), (&rack["id"], &json!("Hall, north/7")));
    let attributes = json!({"number": 7, "room": "Hall, north", "spare": true, "height": 1.5});
    assert_eq!((&left["attributes"], &left["tags"]), (&attributes, &json!(["old", "big"])));
    assert_eq!((&left["labels"], &left["source"]), (&json!({"team": "shop"}), &json!("import")));
    // By type and key, with or without the key, by the type's id or key.
    assert_eq!(summary(&server, "", &table).await, counted(0, 0, 0, 2));
    let by_id = table.replace("\nrack,", &format!("\n{},", rack["id"].as_str().expect("an id")));
    assert_eq!(summary(&server, "", &by_id.replace("true", "FALSE")).await, counted(0, 1, 0, 1));
    let taken = send(&server, "?mode=create", &table).await;
    let told = taken.json();
    assert_eq!((taken.status, &told["code"], &told["line"]), (409, &json!("DUPLICATE"), &json!(2)), "{told}");
    let one = "type,attributes.number,attributes.room,displayName\nrack,7,\"Hall, north\",Left\n";
    let rest = "?mode=replace&filter=displayName%20eq%20%22Right%22%20or%20displayName%20eq%20%22Left%22";
    assert_eq!(summary(&server, rest, one).await, counted(0, 1, 1, 0));
    // JSON is matched alike.
    let items = json!({"items": [{"typeId": rack["id"], "displayName": "Left",
        "attributes": {"number": 7, "room": "Hall, north"}}]});
    let json = [("content-type", "application/json")];
    let answer = server.post(IMPORT, &json, items.to_string().into_bytes()).await;
    assert_eq!(answer.json()["summary"], counted(0, 0, 0, 1), "{}", answer.text());
    // Each created, changed or deleted one has its audit row.
    let rows = server.get("/platform-api/rbac/audit?family=resources&outcome=ok").await.json();
    let actions: Vec<&str> =
        rows["items"].as_array().expect("rows").iter().filter_map(|row| row["action"].as_str()).collect();
    assert_eq!(actions, ["DELETE", "UPDATE", "UPDATE", "CREATE", "CREATE"]);
    // What was made by hand stays so, whatever table names it.
    let by_hand = json!({"typeId": rack["id"], "displayName": "Hand", "attributes": {"number": 9, "room": "x"}});
    made(&server, "/platform-api/resources", &by_hand).await;
    let table = "type,attributes.number,attributes.room,displayName\nrack,9,x,Hand\n";
    assert_eq!(summary(&server, "", table).await, counted(0, 0, 0, 1));
    assert_eq!(named(&server, "Hand").await["source"], "manual");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_table_of_resources_is_refused_by_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    rack(&server).await;
    let many = format!("type,key\n{}", "rack,k\n".repeat(10_001));
    for (csv, status, code, line) in [
        ("", 400, "MALFORMED_CSV", 1),
        ("type,key\nrack\n", 400, "MALFORMED_CSV", 2),
        ("type,key\nrack,a,b\n", 400, "MALFORMED_CSV", 2),
        ("type,colour\nrack,red\n", 422, "VALIDATION_FAILED", 1),
        ("type,type\nrack,rack\n", 422, "VALIDATION_FAILED", 1),
        ("type,attributes.room,attributes.number\nrack,a,1\nrack,a,many\n", 422, "VALIDATION_FAILED", 3),
        ("type,attributes.colour\nrack,red\n", 422, "VALIDATION_FAILED", 2),
        ("type,displayName\n\"no\nsuch\",x\n", 422, "VALIDATION_FAILED", 2),
        ("displayName\nx\n", 422, "VALIDATION_FAILED", 2),
        ("type,state,attributes.room,attributes.number\nrack,asleep,a,1\n", 422, "VALIDATION_FAILED", 2),
    ] {
        let answer = send(&server, "", csv).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"], &told["line"]),
            (status, &json!(code), &json!(line)),
            "{csv}: {told}"
        );
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    let answer = send(&server, "", &many).await;
    assert_eq!((answer.status, &answer.json()["errors"][0]["code"]), (422, &json!("LIMIT_EXCEEDED")));
    let large = format!("type,key\nrack,{}\n", "x".repeat(17 << 20));
    assert_eq!(send(&server, "", &large).await.status, 413);
    for (path, kind) in [
        ("/platform-api/segments/import", "text/csv"),
        (IMPORT, "text/csv; charset=iso-8859-1"),
        (IMPORT, "text/csv; header=absent"),
        ("/platform-api/resources", "text/csv"),
    ] {
        let answer = server.post(path, &[("content-type", kind)], b"type\nrack\n".to_vec()).await;
        assert_eq!((answer.status, &answer.json()["code"]), (415, &json!("UNSUPPORTED_MEDIA_TYPE")), "{path} {kind}");
    }
    let none = server.get("/platform-api/resources?count=true").await.json();
    assert_eq!(none["total"], 0, "all or nothing");
}
