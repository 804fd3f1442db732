//! Analytics over HTTP: built-in models over telemetry, rights, formats, and models and tables that change at run time.

mod configuration_models;
mod deployments;
mod derived_models;
mod drill_down;
mod kubernetes;
pub(crate) mod members;
mod model_folder;
mod oracle;
pub(crate) mod spans;
mod sql;
mod sql_text_rights;
mod synthetic;

use std::time::{Duration, Instant};

use quiver_tests::server::{Answer, Options, Server};
use quiver_tests::time_limits::until;
use serde_json::{Value, json};

const LOAD: &str = "/olap-api/v1/load";
/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

async fn load(server: &Server, query: Value, headers: &[(&str, &str)]) -> Answer {
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    server.ask_with(LOAD, &headers, json!({"query": query}).to_string().into_bytes()).await
}

async fn data(server: &Server, query: Value) -> Value {
    let answer = load(server, query.clone(), &[]).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["data"].take()
}

/// Spans of two services, one each minute; records of logs beside them.
async fn fill(server: &Server) {
    for (service, count) in [("cart", 6), ("pay", 3)] {
        let span = |n: i64| {
            let start = (START_S + n * 60) * 1_000_000_000;
            json!({
                "traceId": format!("{:032x}", n + 1), "spanId": format!("{:015x}{count}", n + 1), "name": "op", "kind": 2,
                "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + (n + 1) * 1_000_000).to_string(),
                "status": {"code": if n == 0 { 2 } else { 0 }},
                "events": [{"name": "exception", "timeUnixNano": start.to_string()}],
            })
        };
        let spans: Vec<Value> = (0..count).map(span).collect();
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let line = json!({"_time": START_S, "_msg": "hello", "service.name": "cart"}).to_string();
    let answer = server.post("/insert/jsonline?_stream_fields=service.name", &[], line.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_models_over_telemetry() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let query = json!({
            "measures": ["Spans.count", "Spans.errorCount", "Spans.durationMax", "SpanEvents.count"],
            "dimensions": ["Spans.service"], "order": {"Spans.service": "asc"},
            "timeDimensions": [{"dimension": "Spans.startTime", "dateRange": ["2025-03-10", "2025-03-10"]}],
        });
        let rows = data(&server, query).await;
        let row = |service: &str, count: &str, longest: i64| json!({"Spans.service": service, "Spans.count": count, "Spans.errorCount": "1", "Spans.durationMax": longest, "SpanEvents.count": count});
        assert_eq!(rows, json!([row("cart", "6", 6), row("pay", "3", 3)]), "flushed: {flushed}");
        assert_eq!(data(&server, json!({"measures": ["Logs.count"]})).await, json!([{"Logs.count": "1"}]));
    }
    let csv = load(&server, json!({"measures": ["Spans.count"]}), &[("accept", "text/csv")]).await;
    assert_eq!(csv.text(), "Spans.count\r\n9\r\n");
    let answer = load(&server, json!({"measures": ["Spans.cuont"]}), &[]).await;
    let body = answer.json();
    assert_eq!(
        (answer.status, &body["reason"], &body["pointer"]),
        (400, &json!("UNKNOWN_MEMBER"), &json!("/measures/0"))
    );
    assert!(body["error"].as_str().is_some_and(|e| e.contains("did you mean `Spans.count`?")), "{body}");
    let meta = server.get("/olap-api/v1/meta").await;
    let tag = meta.headers["etag"].to_str().expect("text").to_owned();
    assert_eq!(server.get_as("/olap-api/v1/meta", &[("if-none-match", &tag)]).await.status, 304);
}

/// Rows in other forms than JSON come as they are found; what is wrong before the first of them is a problem document.
#[tokio::test(flavor = "multi_thread")]
async fn rows_in_other_forms_are_sent_as_they_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    let range = json!({"dimension": "Spans.startTime", "dateRange": ["2025-03-10", "2025-03-10"]});
    let query = json!({
        "dimensions": ["Spans.service"], "measures": ["Spans.count", "Spans.durationMax"],
        "order": {"Spans.service": "asc"}, "timeDimensions": [range], "total": true, "exemplars": 1, "limit": 60_000,
    });
    let form = async |query: &Value, accept: &str| load(&server, query.clone(), &[("accept", accept)]).await;
    let lines = form(&query, "application/x-ndjson").await;
    let rows: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let row = |service: &str, count: &str, longest: i64| json!({"Spans.service": service, "Spans.count": count, "Spans.durationMax": longest});
    assert_eq!(rows, [row("cart", "6", 6), row("pay", "3", 3)], "neither total nor exemplars stand in rows");
    assert!(!lines.headers.contains_key("content-length"), "its length is not known when it begins");
    let csv = form(&query, "text/csv").await;
    assert_eq!(csv.text(), "Spans.service,Spans.count,Spans.durationMax\r\ncart,6,6\r\npay,3,3\r\n");
    let arrow = form(&query, "application/vnd.apache.arrow.stream").await;
    assert!(arrow.body.starts_with(&[0xff; 4]) && arrow.body.ends_with(b"\xff\xff\xff\xff\0\0\0\0"), "whole");
    let parquet = form(&query, "application/vnd.apache.parquet").await;
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"), "whole");
    let none = json!({"dimensions": ["Spans.service"], "limit": 0});
    assert_eq!(form(&none, "text/csv").await.text(), "Spans.service\r\n");
    let wrong = form(&json!({"measures": ["Spans.cuont"]}), "text/csv").await;
    assert_eq!((wrong.status, &wrong.json()["reason"]), (400, &json!("UNKNOWN_MEMBER")));
}

/// Every member of the built-in models alone, and every measure with every dimension of its model.
#[tokio::test(flavor = "multi_thread")]
async fn built_in_members_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    spans::fill(&server, &[]).await;
    let meta = server.get("/olap-api/v1/meta").await.json();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|m| Some(m["name"].as_str()?.to_owned())).collect()
    };
    for cube in meta["cubes"].as_array().expect("models") {
        let (measures, dimensions) = (names(&cube["measures"]), names(&cube["dimensions"]));
        let alone = dimensions.iter().map(|d| json!({"dimensions": [d]}));
        let alone = alone.chain(measures.iter().map(|m| json!({"measures": [m]})));
        let segments = names(&cube["segments"]);
        let segments = segments.iter().map(|s| json!({"measures": [measures[0]], "segments": [s]}));
        // All measures by a few dimensions at a time: a plan of all of them says too little about which one is wrong.
        let together = dimensions.chunks(8).map(|some| json!({"dimensions": some, "measures": measures}));
        let queries: Vec<Value> = alone.chain(segments).chain(together).collect();
        for query in queries {
            data(&server, query).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_and_tables_change_while_it_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| dir.path().join(name);
    let model = |measure: &str| {
        format!(
            "cubes:\n  - name: Prices\n    sql_table: public.prices\n    measures:\n      - {{name: {measure}, type: sum, sql: price}}\n"
        )
    };
    std::fs::create_dir_all(folder("own")).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder("own").join(name), text).expect("written");
    write("prices.csv", "item,price\napple,2\npear,3\n");
    write("prices.types.json", r#"{"price": "int4"}"#);
    write("prices.yml", &model("total"));
    let own = folder("own").display().to_string();
    let log = folder("log");
    let options = Options::default().args(&["--olap-models", &own, "--olap-tables", &own]).log_to(&log);
    let server = Server::start(&folder("data"), &options).await;
    assert_eq!(data(&server, json!({"measures": ["Prices.total"]})).await, json!([{"Prices.total": "5"}]));
    let wait_for = async |query: Value, expected: Value| {
        let until = Instant::now() + Duration::from_mins(5);
        while Instant::now() < until {
            let answer = load(&server, query.clone(), &[]).await;
            if answer.status == 200 && answer.json()["data"] == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{query} never gives {expected}");
    };
    write("prices.csv", "item,price\napple,20\n");
    write("prices.yml", &model("sum"));
    wait_for(json!({"measures": ["Prices.sum"]}), json!([{"Prices.sum": "20"}])).await;
    // What is refused changes nothing.
    write("prices.yml", "cubes: [{name: Prices}]\n");
    let refused = |log: String| log.contains("changed models or tables are refused");
    until("it is refused", async || std::fs::read_to_string(&log).is_ok_and(refused)).await;
    assert_eq!(data(&server, json!({"measures": ["Prices.sum"]})).await, json!([{"Prices.sum": "20"}]));
    let rows = server.get_with("/sql-api/v1/query", &[("query", "SELECT item FROM public.prices")]).await;
    assert_eq!(rows.status, 200, "SQL sees the operator's tables: {}", rows.text());
}

/// A segment over a measure keeps the keys whose value over the range satisfies it, whatever the query's filters are.
#[tokio::test(flavor = "multi_thread")]
async fn segments_over_measures() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = dir.path().join("own");
    std::fs::create_dir_all(&own).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(own.join(name), text).expect("written");
    write("sales.csv", "id,shop,item,price\n1,a,pear,2\n2,a,fig,9\n3,b,pear,3\n4,b,fig,1\n5,,fig,20\n");
    write("sales.types.json", r#"{"id": "int8", "price": "int8"}"#);
    let model = "cubes:
  - name: Sales
    sql_table: public.sales
    dimensions:
      - {name: id, type: number, sql: id, primary_key: true, public: true}
      - {name: shop, type: string, sql: \"nullif(shop, '')\"}
      - {name: item, type: string, sql: item}
    measures:
      - {name: total, type: sum, sql: price}
    segments:
      - {name: dear, sql: '{total} > 2'}
      - {name: largeShops, sql: '{total} > 5', by: [shop]}
";
    write("sales.yml", model);
    let own = own.display().to_string();
    let options = Options::default().args(&["--olap-models", &own, "--olap-tables", &own]);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let total = async |segments: Value, filters: Value| {
        data(&server, json!({"measures": ["Sales.total"], "segments": segments, "filters": filters})).await[0]
            ["Sales.total"]
            .clone()
    };
    assert_eq!(total(json!(["Sales.dear"]), json!([])).await, "32");
    assert_eq!(total(json!(["Sales.largeShops"]), json!([])).await, "31", "no shop is a key too");
    let pears = json!([{"member": "Sales.item", "operator": "equals", "values": ["pear"]}]);
    assert_eq!(total(json!(["Sales.largeShops"]), pears.clone()).await, "2", "filters do not enter the value");
    assert_eq!(total(json!(["Sales.largeShops", "Sales.dear"]), pears).await, Value::Null);
    // Rows may be ordered by what follows from the groups.
    let by_item = json!({"dimensions": ["Sales.id"], "order": [["Sales.item", "asc"], ["Sales.id", "desc"]]});
    let rows = data(&server, by_item).await;
    let ids: Vec<&Value> = rows.as_array().expect("rows").iter().map(|row| &row["Sales.id"]).collect();
    assert_eq!(ids, ["5", "4", "2", "3", "1"]);
    let asked = json!({"query": {"measures": ["Sales.total"], "dimensions": ["Sales.shop"]}, "analyze": true});
    let headers = [("content-type", "application/json")];
    let shown = server.post("/olap-api/v1/explain", &headers, asked.to_string().into_bytes()).await.json();
    assert!(shown["sql"][0].as_str().is_some_and(|text| text.starts_with("SELECT")), "{shown}");
    assert!(shown["logicalPlan"].is_string() && shown["physicalPlan"].is_string(), "{shown}");
    assert_eq!(shown["rights"], json!({"services": ["*"], "predicate": null}));
    assert!(shown["pruning"].as_object().is_some_and(|pruned| pruned.contains_key("files")), "{shown}");
}

/// Errors say what of the request is wrong, also where a query is made of parameters, and where nothing is executed.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_of_the_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    for (parameters, reason, pointer) in [
        ("member=Spans.nothing", "UNKNOWN_MEMBER", "/member"),
        ("member=Spans.count", "WRONG_KIND", "/member"),
        ("member=Spans.service&dateRange=whenever", "BAD_DATE_RANGE", "/dateRange"),
        ("member=Spans.durationMs&search=1", "BAD_VALUE", "/search"),
        ("member=Spans.service&limit=x", "BAD_LIMIT", "/limit"),
        ("member=Spans.service&timezone=Mars", "UNKNOWN_TIMEZONE", "/timezone"),
    ] {
        let answer = server.get(&format!("/olap-api/v1/meta/values?{parameters}")).await;
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["reason"], &body["pointer"]),
            (400, &json!(reason), &json!(pointer)),
            "{parameters}"
        );
    }
    let by = |granularity: &str| {
        let time = json!({"dimension": "Spans.startTime", "granularity": granularity});
        json!({"measures": ["Spans.count"], "timeDimensions": [time]})
    };
    for (queries, reason) in [
        (json!([by("day"), by("day")]), Value::Null),
        (json!([by("day"), by("hour")]), json!("BLEND_GRANULARITY")),
        (json!([by("day"), {"measures": ["Spans.count"]}]), json!("BLEND_GRANULARITY")),
    ] {
        let body = json!({"query": queries}).to_string().into_bytes();
        let answer = server.post("/olap-api/v1/dry-run", &[("content-type", "application/json")], body).await.json();
        assert_eq!(answer["reason"], reason, "{answer}");
    }
    for (path, word) in [("load", "queryType"), ("load", "cache"), ("sql", "format")] {
        let body = json!({"query": {"measures": ["Spans.count"]}, word: 5}).to_string().into_bytes();
        let path = format!("/olap-api/v1/{path}");
        let answer = server.post(&path, &[("content-type", "application/json")], body).await.json();
        let expected = (json!("BAD_TYPE"), json!(format!("/{word}")));
        assert_eq!((&answer["reason"], &answer["pointer"]), (&expected.0, &expected.1), "{answer}");
    }
}

/// Breaks if a query as text is read in URLs only: Cube takes one in a body, too.
#[tokio::test(flavor = "multi_thread")]
async fn queries_may_be_texts() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    let query = json!({
        "measures": ["Spans.count"], "dimensions": ["Spans.service"], "order": {"Spans.service": "desc"},
    });
    let expected = json!([{"Spans.service": "pay", "Spans.count": "3"}, {"Spans.service": "cart", "Spans.count": "6"}]);
    assert_eq!(data(&server, query.clone()).await, expected);
    assert_eq!(data(&server, query.to_string().into()).await, expected);
    for (text, reason) in [("{", "BAD_JSON"), ("", "QUERY_REQUIRED"), ("5", "BAD_TYPE")] {
        let answer = load(&server, text.into(), &[]).await;
        assert_eq!((answer.status, &answer.json()["reason"]), (400, &json!(reason)), "{text}");
    }
}

/// A caller who asks the same gets the answer that is there, until something is written to what it was read from.
#[tokio::test(flavor = "multi_thread")]
async fn answers_serve_until_something_is_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server).await;
    let time =
        json!({"dimension": "Spans.startTime", "dateRange": ["2025-03-10", "2025-03-10"], "granularity": "hour"});
    let query = json!({"measures": ["Spans.count"], "timeDimensions": [time]});
    let ask = async |mode: &str| {
        let mut query = query.clone();
        query["cache"] = mode.into();
        let answer = load(&server, query, &[]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body = answer.json();
        (body["requestId"].clone(), body["data"][0]["Spans.count"].clone(), body["slowQuery"].clone())
    };
    let first = ask("must-revalidate").await;
    assert_eq!((&first.1, &first.2), (&json!("9"), &json!(false)));
    assert_eq!(ask("must-revalidate").await, first, "no other execution");
    assert_ne!(ask("no-cache").await.0, first.0);
    // Logs are no spans.
    let line = json!({"_time": START_S, "_msg": "more", "service.name": "cart"}).to_string();
    let answer = server.post("/insert/jsonline?_stream_fields=service.name", &[], line.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    server.flush().await;
    assert_eq!(ask("must-revalidate").await, first);
    for n in 0..3_i64 {
        let start = (START_S + 7_200 * n) * 1_000_000_000 + n;
        let span = json!({
            "traceId": format!("{:032x}", 100 + n), "spanId": format!("{:016x}", 100 + n), "name": "op", "kind": 2,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1).to_string(),
        });
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let kept = ask("must-revalidate").await;
        let raw = ask("no-cache").await;
        assert_eq!((&kept.1, &kept.1), (&raw.1, &json!("10")), "buckets that were not written to are kept");
    }
    let asked = json!({"query": query});
    let headers = [("content-type", "application/json")];
    let shown = server.post("/olap-api/v1/explain", &headers, asked.to_string().into_bytes()).await.json();
    assert_eq!(shown["buckets"]["unit"], "hour", "{shown}");
    assert!(shown["buckets"]["kept"].as_u64().is_some_and(|kept| kept >= 20), "{}", shown["buckets"]);
}
