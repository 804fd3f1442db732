//! What a statement computes is computed of rows that its caller may see, and of no others: an error about a value, such
//! as a cast that fails or a division by zero, would tell what a hidden row holds (`identity-and-access` 4.1).

use quiver_tests::server::{Answer, Server};
use serde_json::{Value, json};

use crate::identity::{signed_in, user, with_password};

/// A table of the operator, of which a model shows callers their rows.
const SALES: &str = "cubes:
  - name: Sales
    sql_table: public.sales
    row_right: {service: shop, domain: traces}
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true}
      - {name: shop, type: string, sql: shop}
      - {name: note, type: string, sql: note}
      - {name: price, type: number, sql: price}
    measures: [{name: count, type: count}, {name: total, type: sum, sql: price}]
";
/// What only a hidden row has, and is no number.
const HIDDEN: &str = "hushhush";

/// A call of a service to an address.
fn call(service: &str, n: u8, address: &str) -> Value {
    let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let id = format!("{n:032x}");
    let span = json!({"traceId": id, "spanId": id[16..], "kind": 3, "name": "call",
        "startTimeUnixNano": "1772402400000000000", "endTimeUnixNano": "1772402401000000000",
        "attributes": [attribute("server.address", address)]});
    json!({"resource": {"attributes": [attribute("service.name", service)]}, "scopeSpans": [{"spans": [span]}]})
}

async fn asked(server: &Server, who: &str, statement: &str) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/sql")];
    server.post("/sql-api/v1/query", &headers, statement.as_bytes().to_vec()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_about_values_are_about_visible_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).expect("written");
    write("sales.csv", &format!("id,shop,price,note\n1,front,2,10\n2,cart,0,{HIDDEN}\n3,front,8,20\n"));
    write("sales.types.json", r#"{"id": "int8", "price": "int8"}"#);
    write("sales.yml", SALES);
    let folder = own.display().to_string();
    let options = with_password().args(&["--olap-models", &folder, "--olap-tables", &folder]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let admin = signed_in(&server, "admin").await;
    let calls = json!({"resourceSpans": [call("front", 1, "10"), call("cart", 2, HIDDEN), call("front", 3, "20")]});
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let sent = server.post("/v1/traces", &headers, calls.to_string().into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    user(&server, &admin, "viewer", "viewer", json!(["front"])).await;
    let viewer = signed_in(&server, "viewer").await;
    for (statement, rows) in [
        (r#"SELECT "note" FROM olap."Sales" WHERE CAST("note" AS INT) > 10"#, json!([["20"]])),
        (r#"SELECT CAST("note" AS INT) AS n FROM olap."Sales" ORDER BY 1"#, json!([[10], [20]])),
        (
            r#"SELECT "shop", MEASURE("total") AS t FROM olap."Sales" WHERE 16 / "price" > 2 GROUP BY 1"#,
            json!([["front", 2]]),
        ),
        (r#"SELECT "note" FROM olap."Sales" WHERE "price" > 2 AND CAST("note" AS INT) > 10"#, json!([["20"]])),
        (
            "SELECT count(*) AS n FROM model_rows('Sales', NULL, NULL, 'note', 'shop') WHERE CAST(note AS INT) > 0",
            json!([[2]]),
        ),
        (
            "SELECT v.x FROM (VALUES (10), (30)) AS v(x) \
             JOIN model_rows('Sales', NULL, NULL, 'note') AS s ON CAST(s.note AS INT) = v.x",
            json!([[10]]),
        ),
        (
            "SELECT count(*) AS n FROM (VALUES (10), (30)) AS v(x) WHERE x IN \
             (SELECT 160 / price FROM model_rows('Sales', NULL, NULL, 'price') WHERE 16 / price < 8)",
            json!([[0]]),
        ),
        (r#"SELECT MEASURE("count") AS n FROM olap."Calls" WHERE CAST("serverAddress" AS INT) > 10"#, json!([[1]])),
        (
            r#"SELECT "callerService", CAST("serverAddress" AS INT) AS a FROM olap."Calls" ORDER BY 2"#,
            json!([["front", 10], ["front", 20]]),
        ),
        (
            r#"SELECT MEASURE("count") AS n FROM olap."ServiceDependencies"
               WHERE CAST("calleeService" AS INT) > 0 AND "calleeType" = 'external'"#,
            json!([[2]]),
        ),
        (r#"SELECT count(*) AS n FROM spans WHERE CAST("@server.address" AS INT) > 10"#, json!([[1]])),
    ] {
        let answer = asked(&server, &viewer, statement).await;
        assert_eq!((answer.status, &answer.json()["rows"]), (200, &rows), "{statement}: {}", answer.text());
        // A caller who sees all rows learns what is wrong with one.
        if statement.contains("CAST") {
            let answer = asked(&server, &admin, statement).await;
            assert!(answer.status == 422 && answer.text().contains(HIDDEN), "{statement}: {}", answer.text());
        }
    }
}

/// Which calls there are is decided by the spans that served them. A range that a caller chooses for the rows of a model must
/// not leave those out and keep the calls.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_rows_do_not_part_calls_from_their_servers() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = signed_in(&server, "admin").await;
    let at_s = 1_772_402_400_i64;
    let span = |service: &str, id: &str, parent: &str, kind: u8| {
        let name = json!({"key": "service.name", "value": {"stringValue": service}});
        let span = json!({"traceId": format!("{:032x}", 7), "spanId": id, "parentSpanId": parent, "kind": kind,
            "name": "call", "startTimeUnixNano": format!("{at_s}000000000"),
            "endTimeUnixNano": format!("{at_s}500000000")});
        json!({"resource": {"attributes": [name]}, "scopeSpans": [{"spans": [span]}]})
    };
    let (served, lonely, serving) = ("00000000000000a1", "00000000000000a2", "00000000000000b1");
    let spans = [span("front", served, "", 3), span("front", lonely, "", 3), span("cart", serving, served, 2)];
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let sent = server.post("/v1/traces", &headers, json!({"resourceSpans": spans}).to_string().into_bytes()).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    user(&server, &admin, "viewer", "viewer", json!(["front"])).await;
    let viewer = signed_in(&server, "viewer").await;
    let instant = |hours: i64| {
        let time = chrono::DateTime::from_timestamp(at_s + hours * 3600, 0).expect("a time");
        format!("'{}'", time.format("%Y-%m-%dT%H:%M:%SZ"))
    };
    let rows = async |who: &str, range: &str| {
        let statement = format!("SELECT span_id FROM model_rows('Calls', {range}, 'span_id') ORDER BY 1");
        let answer = asked(&server, who, &statement).await;
        assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
        answer.json()["rows"].take()
    };
    assert_eq!(rows(&admin, "NULL, NULL").await, json!([[served], [lonely]]));
    assert_eq!(rows(&viewer, "NULL, NULL").await, json!([[lonely]]));
    for hours in [-90, -48, -26, -24, -14, -12, -1, 0, 6, 11, 13, 24, 26, 48, 90] {
        let range = format!("{}, {}", instant(hours), instant(hours + 1));
        let found = rows(&viewer, &range).await;
        assert!(!found.to_string().contains(served), "{range}: {found}");
        if hours == 0 {
            assert_eq!(found, json!([[lonely]]));
        }
    }
}
