//! Models and tables from folders: multi-stage measures, errors in models, and how models are listed.

use std::fmt::Write as _;

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, user, with_password};

const MODEL: &str = "cubes:
  - name: Sales
    sql_table: public.sales
    refresh_key: {every: 1 hour}
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: true}
      - {name: shop, type: string, sql: shop}
      - {name: at, type: time, sql: sold_at, granularities: [{name: half, interval: 12 hours, origin: '2025-01-01'}]}
      - name: size
        type: switch
        case: {when: [{sql: '{CUBE}.price > 4', label: large}], else: {label: small}}
    measures:
      - {name: total, type: sum, sql: price}
      - {name: dailyMean, type: avg, multi_stage: true, sql: '{total}', add_group_by: [Sales.at.day]}
      - {name: halfMean, type: avg, multi_stage: true, sql: '{total}', add_group_by: ['{CUBE}.at.half']}
      - {name: ofMonth, type: sum, multi_stage: true, sql: '{total}', group_by: ['{CUBE}.at.month']}
      - {name: shareOfMonth, type: number, multi_stage: true, sql: '{total} / {ofMonth}'}
      - {name: shops, type: count_distinct, sql: 'nullif(shop, '''')'}
      - {name: wrong, type: sum, sql: shop}
      - {name: wrongMean, type: avg, sql: shop}
      - {name: wrongOwn, type: number, sql: 'sum({CUBE}.shop)'}
      - {name: wrongTwice, type: number, sql: '{wrong} * 2'}
    segments: [{name: large, sql: '{CUBE}.price > 4'}]
  - name: Shops
    sql: SELECT DISTINCT shop FROM public.sales
    joins: [{name: Sales, relationship: one_to_many, sql: '{CUBE}.shop = {Sales}.shop'}]
    dimensions:
      - {name: shop, type: string, sql: shop, primary_key: true, public: true}
      - {name: sold, type: number, sql: '{Sales.total}', sub_query: true, propagate_filters_to_sub_query: true}
      - {name: soldToo, type: number, sql: '{Sales.total}', sub_query: true, propagate_filters_to_sub_query: true}
      - {name: soldEver, type: number, sql: '{Sales.total}', sub_query: true}
";

async fn load(server: &Server, query: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("x-wait", "60")];
    server.post("/olap-api/v1/load", &headers, json!({"query": query}).to_string().into_bytes()).await
}

async fn data(server: &Server, query: Value) -> Value {
    let answer = load(server, &query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["data"].take()
}

async fn start(dir: &std::path::Path) -> Server {
    let own = dir.join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).expect("written");
    let rows = "id,shop,price,sold_at
1,a,2,2025-03-10T01:00:00Z
2,a,6,2025-03-10T13:00:00Z
3,b,4,2025-03-11T01:00:00Z
4,,9,2025-04-01T01:00:00Z
";
    write("sales.csv", rows);
    write("sales.types.json", r#"{"id": "int8", "price": "float8", "sold_at": "timestamptz"}"#);
    write("sales.yml", MODEL);
    let own = own.display().to_string();
    Server::start(&dir.join("data"), &Options::default().args(&["--olap-models", &own, "--olap-tables", &own])).await
}

/// An object keeps the order in which it is sent, not in which it lies in memory.
#[tokio::test(flavor = "multi_thread")]
async fn orders_go_by_their_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let query = r#"{"dimensions":["Sales.shop","Sales.size"],"order":{"Sales.size":"asc","Sales.shop":"desc"},
        "responseFormat":"compact"}"#;
    let wanted = json!([["a", "large"], ["", "large"], ["b", "small"], ["a", "small"]]);
    let body = format!("{{\"query\": {query}}}");
    let posted = server.post("/olap-api/v1/load", &[("content-type", "application/json")], body.into_bytes()).await;
    assert_eq!(posted.json()["data"]["dataset"], wanted, "{}", posted.text());
    let got = server.get_with("/olap-api/v1/load", &[("query", query)]).await;
    assert_eq!(got.json()["data"]["dataset"], wanted, "{}", got.text());
    // What needs groups is the client's mistake where there are none.
    let ungrouped = json!({"measures": ["Sales.dailyMean"], "dimensions": ["Sales.id"], "ungrouped": true});
    let answer = load(&server, &ungrouped).await;
    assert_eq!((answer.status, &answer.json()["pointer"]), (400, &json!("/ungrouped")), "{}", answer.text());
}

/// An inner query is grouped by buckets beside what the query itself is grouped by.
#[tokio::test(flavor = "multi_thread")]
async fn means_of_daily_sums() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    // Days: 8, 4, 9; halves of days: 2, 6, 4, 9.
    let both = json!({"measures": ["Sales.dailyMean", "Sales.halfMean"]});
    assert_eq!(data(&server, both).await, json!([{"Sales.dailyMean": 7, "Sales.halfMean": 5.25}]));
    let by_shop =
        json!({"measures": ["Sales.dailyMean"], "dimensions": ["Sales.shop"], "order": {"Sales.shop": "asc"}});
    let row = |shop: &str, mean: i64| json!({"Sales.shop": shop, "Sales.dailyMean": mean});
    assert_eq!(data(&server, by_shop).await, json!([row("", 9), row("a", 8), row("b", 4)]));
    let by = async |granularity: &str| {
        let time = json!({"dimension": "Sales.at", "granularity": granularity});
        let rows = data(&server, json!({"measures": ["Sales.dailyMean"], "timeDimensions": [time]})).await;
        rows.as_array().expect("rows").iter().map(|row| row["Sales.dailyMean"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(by("month").await, [6, 9]);
    assert_eq!(by("day").await, [8, 4, 9], "the buckets of the query are those that are added");
}

/// An inner query may keep the time of a query in longer buckets.
#[tokio::test(flavor = "multi_thread")]
async fn days_beside_their_months() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let by = async |granularity: &str, more: &[&str]| {
        let time = json!({"dimension": "Sales.at", "granularity": granularity});
        let query = json!({"measures": ["Sales.total", "Sales.ofMonth", "Sales.shareOfMonth"], "dimensions": more,
            "timeDimensions": [time], "order": {"Sales.at": "asc"}});
        let rows = data(&server, query).await;
        let number = |row: &Value, m: &str| row[format!("Sales.{m}")].as_f64().expect("a number");
        // The share in percent.
        let all = |row| [number(row, "total"), number(row, "ofMonth"), 100.0 * number(row, "shareOfMonth")];
        let rows = rows.as_array().expect("rows").iter();
        rows.map(|row| all(row).map(|number| number.round() as i64)).collect::<Vec<_>>()
    };
    assert_eq!(by("day", &[]).await, [[8, 12, 67], [4, 12, 33], [9, 9, 100]]);
    assert_eq!(by("month", &[]).await, [[12, 12, 100], [9, 9, 100]]);
    // Longer buckets than those that are named stay what they are.
    assert_eq!(by("year", &[]).await, [[21, 21, 100]]);
    // Of the dimensions only those that are listed are kept.
    let halves = [[2, 12, 17], [6, 12, 50], [4, 12, 33], [9, 9, 100]];
    assert_eq!(by("half", &["Sales.shop"]).await, halves);
    let all = json!({"measures": ["Sales.ofMonth"]});
    assert_eq!(data(&server, all).await, json!([{"Sales.ofMonth": 21}]));
}

/// The range of a query is one of its filters, for sub-queries that these enter.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_enter_sub_queries_with_filters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let time = json!({"dimension": "Sales.at", "dateRange": ["2025-03-10T00:00:00", "2025-03-10T12:00:00"]});
    let query = json!({"dimensions": ["Shops.shop", "Shops.sold", "Shops.soldEver"], "timeDimensions": [time]});
    assert_eq!(data(&server, query).await, json!([{"Shops.shop": "a", "Shops.sold": 2, "Shops.soldEver": 8}]));
}

/// Segments enter with the filters; filters on values of sub-queries enter none.
#[tokio::test(flavor = "multi_thread")]
async fn segments_enter_sub_queries_and_their_values_do_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let query = json!({"dimensions": ["Shops.shop", "Shops.sold", "Shops.soldEver"], "segments": ["Sales.large"],
        "order": {"Shops.shop": "asc"}});
    let row =
        |shop: &str, sold: i64, ever: i64| json!({"Shops.shop": shop, "Shops.sold": sold, "Shops.soldEver": ever});
    assert_eq!(data(&server, query).await, json!([row("", 9, 9), row("a", 6, 8)]));
    let above = |member: &str| json!({"member": member, "operator": "gt", "values": ["4"]});
    let query = json!({"dimensions": ["Shops.shop", "Shops.sold", "Shops.soldToo"],
        "filters": [above("Shops.sold"), above("Shops.soldToo")], "order": {"Shops.shop": "asc"}});
    let row = |shop: &str, sold: i64| json!({"Shops.shop": shop, "Shops.sold": sold, "Shops.soldToo": sold});
    assert_eq!(data(&server, query).await, json!([row("", 9), row("a", 8)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_ordered_by_what_is_not_shown() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let ids = async |order: Value| {
        let query = json!({"dimensions": ["Sales.id"], "ungrouped": true, "order": order});
        let rows = data(&server, query).await;
        rows.as_array().expect("rows").iter().map(|row| row["Sales.id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let named = |names: [&str; 4]| names.map(|name| Some(name.to_owned())).to_vec();
    assert_eq!(ids(json!({"Sales.total": "desc"})).await, named(["4", "2", "3", "1"]));
    assert_eq!(ids(json!({"Sales.total": "asc"})).await, named(["1", "3", "2", "4"]));
    // A dimension of a row, then a measure of it.
    assert_eq!(ids(json!([["Sales.size", "asc"], ["Sales.total", "desc"]])).await, named(["4", "2", "3", "1"]));
}

/// Rows that are not grouped count once each, whatever is counted of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_alone_counts_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let query = json!({"measures": ["Sales.shops"], "dimensions": ["Sales.id"], "order": {"Sales.id": "asc"},
        "ungrouped": true});
    let rows = data(&server, query).await;
    let counts: Vec<&Value> = rows.as_array().expect("rows").iter().map(|row| &row["Sales.shops"]).collect();
    assert_eq!(json!(counts), json!(["1", "1", "1", null]), "the last row has no shop");
}

#[tokio::test(flavor = "multi_thread")]
async fn measures_over_texts_are_faults_of_the_model() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    for (measure, named) in
        [("wrong", "wrong"), ("wrongMean", "wrongMean"), ("wrongOwn", "wrongOwn"), ("wrongTwice", "wrong")]
    {
        let answer = load(&server, &json!({"measures": ["Sales.total", format!("Sales.{measure}")]})).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["code"]), (422, &json!("CANNOT_EXECUTE")), "{body}");
        let text = body["error"].as_str().unwrap_or_default();
        assert!(text.contains(&format!("`Sales.{named}`")) && text.contains("takes no texts"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_and_kinds() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(dir.path()).await;
    let with = async |operator: &str| {
        let filter = json!({"member": "Sales.shop", "operator": operator, "values": [null]});
        data(&server, json!({"measures": ["Sales.total"], "filters": [filter]})).await[0]["Sales.total"].clone()
    };
    assert_eq!(with("contains").await, Value::Null, "no shop is NULL, one is an empty text");
    assert_eq!(with("notContains").await, 21);
    let answer = load(&server, &json!({"dimensions": ["Sales.size"]})).await.json();
    assert_eq!(answer["annotation"]["dimensions"]["Sales.size"]["type"], "string", "{answer}");
    let shown = server.get("/olap-api/v1/meta?extended&model=Sales").await.json();
    let sales = &shown["cubes"][0];
    assert_eq!((&sales["sql_table"], &sales["refreshKey"]), (&json!("public.sales"), &json!({"every": "1 hour"})));
}

const OWNED: &str = "cubes:
  - name: Tickets
    sql_table: public.tickets
    row_right: {domain: logs, service: service, own: owner}
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: true}
      - {name: service, type: string, sql: service}
      - {name: owner, type: string, sql: owner}
    measures: [{name: count, type: count}]
    pre_aggregations: [{name: all, type: rollup, measures: [count], dimensions: [id]}]
  - name: Notes
    sql_table: public.tickets
    row_right: {domain: logs, own: owner}
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: true}
      - {name: owner, type: string, sql: owner}
    measures: [{name: count, type: count}]
";

/// Rows that name the caller are his, whosever services they are of; they are nobody else's who has the same rights.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_ones_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let (own, data) = (dir.path().join("own"), dir.path().join("data"));
    let server = Server::start(&data, &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let mut rows = "id,service,owner\n1,cart,cart\n4,pay,cart\n5,pay,\n".to_owned();
    for (n, name) in [(2, "ann"), (3, "bob")] {
        let made = user(&server, &admin, name, "viewer", json!(["cart"])).await;
        let _ = writeln!(rows, "{n},pay,user:{}", made["id"].as_str().expect("an id"));
    }
    assert_eq!(server.stop(), Some(0));
    std::fs::create_dir_all(&own).expect("a folder");
    for (name, text) in
        [("tickets.csv", rows.as_str()), ("tickets.types.json", r#"{"id": "int8"}"#), ("tickets.yml", OWNED)]
    {
        std::fs::write(own.join(name), text).expect("written");
    }
    let own = own.display().to_string();
    let folders = with_password().args(&["--olap-models", &own, "--olap-tables", &own]);
    let server = Server::start(&data, &folders).await;
    let seen = async |who: &str, model: &str| {
        let headers = [("authorization", who), ("content-type", "application/json"), ("x-wait", "60")];
        let query = json!({"query": {"dimensions": [format!("{model}.id")], "measures": [format!("{model}.count")],
            "order": {format!("{model}.id"): "asc"}}});
        let answer = server.post("/olap-api/v1/load", &headers, query.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let rows = answer.json()["data"].as_array().expect("rows").clone();
        rows.iter().map(|row| row[format!("{model}.id")].to_string().replace('"', "")).collect::<Vec<_>>().join(" ")
    };
    for _ in 0..2 {
        for (name, tickets, notes) in [("ann", "1 2", "2"), ("bob", "1 3", "3"), ("admin", "1 2 3 4 5", "1 2 3 4 5")] {
            let who = bearer(&login(&server, name, PASSWORD).await);
            assert_eq!((seen(&who, "Tickets").await.as_str(), seen(&who, "Notes").await.as_str()), (tickets, notes));
        }
    }
}
