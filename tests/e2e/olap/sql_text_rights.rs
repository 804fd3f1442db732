//! Printed SQL (`/olap-api/v1/sql`) for callers who may see some services only: run by them, it reads the same rows as
//! `load`, also where rights depend on, or rows come from, tables that only models show. The SQL of rolling windows stays
//! short.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, ingest_key, login, made, user, with_password};
use crate::olap::members::differs;

/// A table of the operator that only its model shows.
const SALES: &str = "cubes:
  - name: Sales
    sql_table: public.sales
    row_right: {service: shop, domain: traces}
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: false}
      - {name: shop, type: string, sql: shop}
    measures: [{name: count, type: count}, {name: total, type: sum, sql: price}]
";
/// A table of the operator with sums over windows.
const VISITS: &str = "cubes:
  - name: Visits
    sql_table: public.visits
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: true}
      - {name: at, type: time, sql: at}
    measures:
      - {name: week, type: sum, sql: n, rolling_window: {trailing: 7 day}}
      - {name: ahead, type: sum, sql: n, rolling_window: {trailing: 1 month, leading: 2 hour, offset: start}}
      - {name: today, type: sum, sql: n, rolling_window: {type: to_date, granularity: day}}
      - {name: ever, type: running_total, sql: n}
";
/// Models that are made of rows which callers do not see, each with dimensions, a measure and its time.
const MADE_OF_ALL: [(&str, &str, &str, &str); 10] = [
    ("ServiceDependencies", "callerService calleeService calleeType", "durationSum", "bucket"),
    ("ServiceDependencies", "connectionType bucket", "fanOut", "bucket"),
    ("Calls", "callerService calleeService isMatched", "networkGapAvg", "startTime"),
    ("Calls", "callerOperation statusCode", "callsPerRequest", "startTime"),
    ("BusinessTransactions", "btName service", "count", "startTime"),
    ("SessionTransitions", "application fromPage", "count", "time"),
    ("RumApplications", "application", "sessions", "lastSeen"),
    ("RumRequests", "application backendService", "count", "startTime"),
    ("Services", "service", "count", "lastSeen"),
    ("Sales", "shop", "total", ""),
];

fn query((model, by, measure, time): (&str, &str, &str, &str)) -> Value {
    let full = |name: &str| format!("{model}.{name}");
    let times = if time.is_empty() {
        json!([])
    } else {
        json!([{"dimension": full(time), "dateRange": ["2025-03-09", "2025-03-11"]}])
    };
    let dimensions: Vec<String> = by.split_whitespace().map(full).collect();
    json!({"measures": [full(measure)], "dimensions": dimensions, "timeDimensions": times})
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_give_callers_their_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).expect("written");
    write("sales.csv", "id,shop,price,bought_for\n1,front,2,1\n2,cart,5,4\n3,front,8,7\n");
    write("sales.types.json", r#"{"id": "int8", "price": "int8", "bought_for": "int8"}"#);
    write("sales.yml", SALES);
    let folder = own.display().to_string();
    let options = with_password().args(&["--retention", "none", "--olap-models", &folder, "--olap-tables", &folder]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let sender = ingest_key(&server, &admin, "agent").await;
    crate::olap::derived_models::fill(&server, &[("authorization", &sender)]).await;
    crate::olap::spans::fill(&server, &[("authorization", &sender)]).await;
    let mut with_rows = Vec::new();
    for services in [json!(["front"]), json!(["cart"]), json!(["shop-ui", "front"]), json!(["mailer"])] {
        let name = services[0].as_str().expect("a name").to_owned();
        user(&server, &admin, &name, "viewer", services).await;
        let token = bearer(&login(&server, &name, PASSWORD).await);
        let who = [("authorization", token.as_str())];
        for asked in MADE_OF_ALL {
            let (difference, has_rows) = differs(&server, &who, &query(asked)).await;
            assert_eq!(difference, None, "{name}");
            with_rows.extend(has_rows.then_some(asked.0));
        }
    }
    for model in MADE_OF_ALL.map(|(model, ..)| model) {
        assert!(with_rows.contains(&model), "nobody has rows of {model}: {with_rows:?}");
    }
    // Models read tables of domains in which this caller sees nothing: logs, metrics, alerts, resources.
    let role = json!({"name": "traces-only", "permissions": ["{view, traces, front}", "{view, traces, cart}"]});
    made(&server, &admin, "roles", role).await;
    user(&server, &admin, "tracer", "traces-only", Value::Null).await;
    let tracer = bearer(&login(&server, "tracer", PASSWORD).await);
    for asked in [
        ("Services", "service displayName language", "count", "lastSeen"),
        ("ServiceHealth", "service health", "openAlerts", "bucket"),
        ("Calls", "callerService calleeService", "count", "startTime"),
    ] {
        assert_eq!(
            differs(&server, &[("authorization", tracer.as_str())], &query(asked)).await,
            (None, true),
            "{}",
            asked.0
        );
    }
    let front = bearer(&login(&server, "front", PASSWORD).await);
    let ask = async |statement: &str| {
        let headers = [("authorization", front.as_str()), ("content-type", "application/sql")];
        server.post("/sql-api/v1/query", &headers, statement.as_bytes().to_vec()).await
    };
    for (statement, rows) in [
        ("SELECT sum(price) AS s FROM model_rows('Sales', NULL, NULL, 'price')", json!([[10]])),
        ("SELECT count(*) AS n FROM model_rows('Sales', NULL, NULL)", json!([[2]])),
    ] {
        let answer = ask(statement).await;
        assert_eq!(answer.json()["rows"], rows, "{statement}: {}", answer.text());
    }
    // The table itself is not his, nor is what no member is made of, nor are rows of models that he may not know of.
    for (statement, says) in [
        ("SELECT * FROM public.sales", ""),
        ("SELECT * FROM model_rows('Sales', NULL, NULL, 'bought_for')", "there is no column `Sales.bought_for`"),
        ("SELECT * FROM model_rows('StorageUsage', NULL, NULL, 'bytes')", "StorageUsage"),
        ("SELECT * FROM model_rows('Spans', NULL, NULL, 'service')", "there is no column `Spans.service`"),
        ("SELECT * FROM model_rows('Nothing', NULL, NULL, 'x')", "there is no model `Nothing`"),
        ("SELECT * FROM model_rows('Sales', NULL, '2025-03-10T00:00:00Z', 'price')", "model_rows('model', from, to"),
    ] {
        let answer = ask(statement).await;
        let text = answer.text();
        assert!(matches!(answer.status, 400 | 403) && text.contains(says), "{statement}: {} {text}", answer.status);
    }
}

/// The night of 30 March has an hour less in Berlin.
#[tokio::test(flavor = "multi_thread")]
async fn texts_of_windows_do_not_grow_with_their_buckets() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).expect("written");
    let rows = "id,at,n\n1,2025-03-20T10:00:00Z,1\n2,2025-03-28T23:30:00Z,2\n3,2025-03-30T00:59:59.5Z,4\n\
                4,2025-03-30T01:00:00Z,8\n5,2025-03-31T22:30:00Z,16\n6,2024-02-29T12:00:00Z,32\n";
    write("visits.csv", rows);
    write("visits.types.json", r#"{"id": "int8", "n": "int8", "at": "timestamptz"}"#);
    write("visits.yml", VISITS);
    let folder = own.display().to_string();
    let options = Options::default().args(&["--olap-models", &folder, "--olap-tables", &folder]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let mut lengths = Vec::new();
    for (grain, from, to, buckets) in [
        ("minute", "2025-03-30", "2025-03-30", 24 * 60),
        ("minute", "2025-03-28", "2025-03-31", 4 * 24 * 60),
        ("month", "2024-01-15", "2025-06-01", 18),
    ] {
        let query = json!({
            "measures": ["Visits.week", "Visits.ahead", "Visits.today", "Visits.ever"],
            "dimensions": [format!("Visits.at.{grain}")],
            "timeDimensions": [{"dimension": "Visits.at", "dateRange": [from, to]}],
            "timezone": "Europe/Berlin",
            "limit": 50_000,
        });
        assert_eq!(differs(&server, &[], &query).await, (None, true));
        let ask = async |path: &str| {
            let headers = [("content-type", "application/json"), ("x-wait", "60")];
            server.post(path, &headers, json!({"query": query}).to_string().into_bytes()).await.json()
        };
        assert_eq!(ask("/olap-api/v1/load").await["data"].as_array().map(Vec::len), Some(buckets), "{query}");
        let text = ask("/olap-api/v1/sql").await["sql"]["sql"][0].as_str().map(str::len).expect("a text");
        assert!(text < 16 << 10, "{text} bytes: {query}");
        lengths.push(text);
    }
    // Texts of numbers and times may be some digits longer.
    assert!(lengths[1].abs_diff(lengths[0]) < 100, "{lengths:?}");
}
