//! Models in SQL: the same numbers as `load`, over HTTP and the PostgreSQL port; rights, catalogs, printed plans, errors.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::identity::{PASSWORD, bearer, login, made, permitted, user, with_password};

const SQL: &str = "/sql-api/v1/query";
/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

/// Headers of a caller.
type Who<'a> = &'a [(&'a str, &'a str)];

/// Starts a server with rows; gives it, what `admin` shows, and what somebody shows who sees `pay` alone.
async fn with_reader(dir: &std::path::Path) -> (Server, String, String) {
    let server = Server::start(dir, &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    fill(&server, &[("authorization", admin.as_str())]).await;
    user(&server, &admin, "reader", "viewer", json!(["pay"])).await;
    let reader = bearer(&login(&server, "reader", PASSWORD).await);
    (server, admin, reader)
}

/// Spans of three services over two days, with events, and records of logs.
async fn fill(server: &Server, who: Who<'_>) {
    let headers: Vec<_> = who.iter().copied().chain([("content-type", "application/json")]).collect();
    for (service, count) in [("cart", 40), ("pay", 25), ("mail", 7)] {
        let span = |n: i64| {
            let start = (START_S + n * 4_000) * 1_000_000_000;
            let event = |i: i64| json!({"name": "exception", "timeUnixNano": (start + i).to_string()});
            json!({
                "traceId": format!("{:032x}", n % 9 + 1), "spanId": format!("{:013x}{count:03}", n + 1),
                "name": format!("op{}", n % 4), "kind": 2 + n % 2,
                "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + (n + 1) * 1_500_000).to_string(),
                "status": {"code": if n % 5 == 0 { 2 } else { 0 }},
                "attributes": [{"key": "http.route", "value": {"stringValue": format!("/r{}", n % 3)}}],
                "events": (0..n % 3).map(event).collect::<Vec<_>>(),
            })
        };
        let spans: Vec<Value> = (0..count).map(span).collect();
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = json!({"_time": START_S, "_msg": "hello", "service.name": service}).to_string();
        let answer = server.post("/insert/jsonline?_stream_fields=service.name", who, line.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

async fn ask(server: &Server, who: Who<'_>, statement: &str) -> Answer {
    let headers: Vec<_> = who.iter().copied().chain([("content-type", "application/sql")]).collect();
    server.post(SQL, &headers, statement.as_bytes().to_vec()).await
}

/// Rows of a statement as numbers and texts that compare with those of `load`.
async fn rows(server: &Server, who: Who<'_>, statement: &str) -> Vec<Vec<String>> {
    let answer = ask(server, who, statement).await;
    assert_eq!(answer.status, 200, "{statement}: {}", answer.text());
    let rows = answer.json()["rows"].take();
    rows.as_array()
        .expect("rows")
        .iter()
        .map(|row| row.as_array().expect("a row").iter().map(shown).collect())
        .collect()
}

async fn load(server: &Server, who: Who<'_>, query: &Value) -> Answer {
    let headers: Vec<_> = who.iter().copied().chain([("content-type", "application/json")]).collect();
    server.post("/olap-api/v1/load", &headers, json!({"query": query}).to_string().into_bytes()).await
}

/// Rows of `load`, members in the order that is asked for.
async fn loaded(server: &Server, who: Who<'_>, query: &Value, members: &[&str]) -> Vec<Vec<String>> {
    let answer = load(server, who, query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let data = answer.json()["data"].take();
    let row = |row: &Value| members.iter().map(|member| shown(&row[*member])).collect();
    data.as_array().expect("rows").iter().map(row).collect()
}

/// A value, the same for a number and its text, an instant and its wall time.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(number) = text.parse::<f64>() {
        return format!("{number:.9e}");
    }
    text.strip_suffix('Z').map_or(text.clone(), |wall| wall.trim_end_matches(".000").to_owned()).replace(".000", "")
}

/// Statements with the queries that ask the same.
fn pairs() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let day =
        json!([{"dimension": "Spans.startTime", "granularity": "day", "dateRange": ["2025-03-10", "2025-03-11"]}]);
    vec![
        (
            r#"select "service", MEASURE("count"), MEASURE("errorRate"), MEASURE("durationP95"), MEASURE("traceCount"),
               MEASURE("operationCount") from olap."Spans" group by 1 order by 1"#,
            json!({"dimensions": ["Spans.service"], "order": {"Spans.service": "asc"}, "measures": ["Spans.count",
                "Spans.errorRate", "Spans.durationP95", "Spans.traceCount", "Spans.operationCount"]}),
            vec![
                "Spans.service",
                "Spans.count",
                "Spans.errorRate",
                "Spans.durationP95",
                "Spans.traceCount",
                "Spans.operationCount",
            ],
        ),
        // A join that multiplies: spans by the names of their events.
        (
            r#"select e."name", MEASURE(s."count"), MEASURE(s."durationAvg"), MEASURE(e."count")
               from olap."Spans" s cross join olap."SpanEvents" e group by e."name" order by 2"#,
            json!({"dimensions": ["SpanEvents.name"], "order": {"Spans.count": "asc"},
                "measures": ["Spans.count", "Spans.durationAvg", "SpanEvents.count"]}),
            vec!["SpanEvents.name", "Spans.count", "Spans.durationAvg", "SpanEvents.count"],
        ),
        (
            r#"select date_trunc('day', "startTime") as day, "kind", MEASURE("throughput"), MEASURE("durationAvg")
               from olap."Spans" where "startTime" >= '2025-03-10' and "startTime" < '2025-03-12' and "service" = 'cart'
               group by day, "kind" order by day, "kind""#,
            json!({"dimensions": ["Spans.kind"], "timeDimensions": day,
                "measures": ["Spans.throughput", "Spans.durationAvg"],
                "filters": [{"member": "Spans.service", "operator": "equals", "values": ["cart"]}],
                "order": [["Spans.startTime", "asc"], ["Spans.kind", "asc"]]}),
            vec!["Spans.startTime.day", "Spans.kind", "Spans.throughput", "Spans.durationAvg"],
        ),
        // A condition on groups, an order by what is not shown, and what only a sub-query dimension knows.
        (
            r#"select "name" from olap."Spans" where "eventCount" > 0 group by "name" having MEASURE("count") > 8
               order by MEASURE("durationSum") desc, "name" limit 3"#,
            json!({"dimensions": ["Spans.name"], "limit": 3, "order": [["Spans.durationSum", "desc"], ["Spans.name", "asc"]],
                "filters": [{"member": "Spans.eventCount", "operator": "gt", "values": ["0"]},
                    {"member": "Spans.count", "operator": "gt", "values": ["8"]}]}),
            vec!["Spans.name"],
        ),
        (
            r#"select "attr_http__route", MEASURE("count") from olap."Spans" where "service" in ('cart', 'pay')
               and "name" <> 'op0' group by "attr_http__route" order by 1"#,
            json!({"dimensions": ["Spans.attr_http__route"], "measures": ["Spans.count"],
                "order": {"Spans.attr_http__route": "asc"},
                "filters": [{"member": "Spans.service", "operator": "equals", "values": ["cart", "pay"]},
                    {"member": "Spans.name", "operator": "notEquals", "values": ["op0"]}]}),
            vec!["Spans.attr_http__route", "Spans.count"],
        ),
        (
            r#"select MEASURE("count") from olap."Spans" where "service" = 'nobody'"#,
            json!({"measures": ["Spans.count"],
                "filters": [{"member": "Spans.service", "operator": "equals", "values": ["nobody"]}]}),
            vec!["Spans.count"],
        ),
        (
            r#"select distinct "service", "kind" from olap."Spans" order by "service", "kind""#,
            json!({"dimensions": ["Spans.service", "Spans.kind"],
                "order": [["Spans.service", "asc"], ["Spans.kind", "asc"]]}),
            vec!["Spans.service", "Spans.kind"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_over_models_give_the_numbers_of_load() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for (statement, query, members) in pairs() {
            let expected = loaded(&server, &[], &query, &members).await;
            assert_eq!(rows(&server, &[], statement).await, expected, "flushed: {flushed}: {statement}");
        }
        // What SQL alone can say: expressions of groups, windows over them, joins with other tables.
        for (statement, expected) in [
            (
                r#"select upper("service") u, sum(MEASURE("count")) over () from olap."Spans" group by 1 order by u limit 1"#,
                vec![vec!["CART", "72"]],
            ),
            (
                r#"select count(*), max("durationMs") from olap."Spans" where "service" = 'mail'"#,
                vec![vec!["7", "10.5"]],
            ),
            (
                r#"select l.message, t.n from logs l join (select "service" s, MEASURE("count") n from olap."Spans"
                   group by 1) t on t.s = l.service_name where t.n > 30"#,
                vec![vec!["hello", "40"]],
            ),
            (
                r#"select count(*) from logs l join olap."Spans" s on s."service" = l.service_name where s."kind" = 'SERVER'"#,
                vec![vec!["37"]],
            ),
        ] {
            let found = rows(&server, &[], statement).await;
            let expected: Vec<Vec<String>> =
                expected.into_iter().map(|row| row.into_iter().map(|v| shown(&v.into())).collect()).collect();
            assert_eq!(found, expected, "{statement}");
        }
    }
}

async fn connect(server: &Server, password: &str) -> Client {
    let (host, port) = server.postgres.rsplit_once(':').expect("a port");
    let config = format!("host={host} port={port} user=anyone dbname=quiver password='{password}'");
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

async fn texts(client: &Client, statement: &str) -> Vec<Vec<String>> {
    let answer = client.simple_query(statement).await.unwrap_or_else(|e| panic!("{statement}: {e:?}"));
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect())
        }
        _ => None,
    };
    answer.iter().filter_map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn models_over_the_port_of_postgresql() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().args(&["--retention", "none", "--postgres", "127.0.0.1:0"]);
    let server = Server::start(dir.path(), &options).await;
    fill(&server, &[]).await;
    let client = connect(&server, "").await;
    // Parameters have the types of the members that they are compared with.
    let statement = r#"select "service", MEASURE("count") as n, date_trunc('day', "startTime") as day from olap."Spans"
        where "service" = $1 and "durationMs" > $2 and "startTime" >= $3 and "startTime" < '2025-03-12'
        group by 1, 3 order by 3"#;
    let prepared = client.prepare(statement).await.expect("prepared");
    let types: Vec<&str> = prepared.params().iter().map(tokio_postgres::types::Type::name).collect();
    assert_eq!(types, ["text", "float8", "timestamptz"]);
    let columns: Vec<(&str, &str)> = prepared.columns().iter().map(|c| (c.name(), c.type_().name())).collect();
    assert_eq!(columns, [("service", "text"), ("n", "int8"), ("day", "timestamptz")]);
    let start = std::time::UNIX_EPOCH + std::time::Duration::from_secs(START_S as u64);
    let found = client.query(&prepared, &[&"cart", &1.5_f64, &start]).await.expect("rows");
    let counts: Vec<i64> = found.iter().map(|row| row.get(1)).collect();
    assert_eq!(counts, [21, 18]);
    // Lists of tables and columns.
    let tables = texts(&client, "select table_name from information_schema.tables where table_schema = 'olap'").await;
    assert!(tables.len() > 40 && tables.contains(&vec!["Spans".to_owned()]), "{tables:?}");
    let columns = texts(
        &client,
        "select column_name, data_type from information_schema.columns where table_schema = 'olap' \
         and table_name = 'Spans' and column_name in ('service', 'startTime', 'durationMs', 'count', 'isRoot') order by 1",
    );
    let pair = |name: &str, of: &str| vec![name.to_owned(), of.to_owned()];
    let expected = [
        pair("count", "bigint"),
        pair("durationMs", "double precision"),
        pair("isRoot", "boolean"),
        pair("service", "text"),
        pair("startTime", "timestamp with time zone"),
    ];
    assert_eq!(columns.await, expected);
    let listed = texts(
        &client,
        "select c.relname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where n.nspname OPERATOR(pg_catalog.~) '^(olap)$' and c.relkind in ('r', 'p') and c.relname = 'Spans'",
    );
    assert_eq!(listed.await, [vec!["Spans".to_owned()]]);
    let visible = "select count(*) from pg_catalog.pg_class c where pg_table_is_visible(c.oid) and c.relname = 'Spans'";
    assert_eq!(texts(&client, visible).await, [vec!["0".to_owned()]]);
    let oid = texts(&client, r#"select 'olap."Spans"'::regclass::oid::regclass"#).await;
    assert_eq!(oid, [vec!["olap.\"Spans\"".to_owned()]]);
    for (statement, code, says) in [
        (r#"select "count" from olap."Spans""#, "42601", "MEASURE"),
        ("select 1 from olap.Spans", "42P01", "olap.\"Spans\""),
        (r#"select "servcie" from olap."Spans""#, "42703", "`\"service\"`"),
        (r#"select MEASURE("durationAvgg") from olap."Spans""#, "42703", "`\"durationAvg\"`"),
    ] {
        let error = client.simple_query(statement).await.expect_err(statement);
        let told = error.as_db_error().expect("of the server");
        assert!(told.message().contains(says), "{statement}: {}", told.message());
        assert!(code == "42601" || told.code().code() == code, "{statement}: {:?}", told.code());
    }
    client.batch_execute("set search_path to olap").await.expect("set");
    assert_eq!(texts(&client, r#"select MEASURE("count") from "Spans""#).await, [vec!["72".to_owned()]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_hold_in_statements_over_models() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin, reader) = with_reader(dir.path()).await;
    let (admin_only, reader) = ([("authorization", admin.as_str())], [("authorization", reader.as_str())]);
    let statement = r#"select "service", MEASURE("count") from olap."Spans" group by 1 order by 1"#;
    assert_eq!(rows(&server, &admin_only, statement).await.len(), 3);
    assert_eq!(rows(&server, &reader, statement).await, [[shown(&"pay".into()), shown(&25.into())]]);
    let counted = r#"select count(*) from olap."Spans""#;
    assert_eq!(rows(&server, &reader, counted).await, [[shown(&25.into())]]);
    // Only what he sees is listed.
    let listed = async |who: Who<'_>| {
        let tables = server.get_as("/sql-api/v1/tables", who).await.json()["tables"].take();
        let of =
            |table: &Value| (table["schema"] == "olap").then(|| table["name"].as_str().unwrap_or_default().to_owned());
        tables.as_array().expect("tables").iter().filter_map(of).collect::<Vec<_>>()
    };
    let meta = server.get_as("/olap-api/v1/meta", &reader).await.json();
    let mut known: Vec<&str> =
        meta["cubes"].as_array().expect("cubes").iter().filter_map(|c| c["name"].as_str()).collect();
    known.sort_unstable();
    let mut seen = listed(&reader).await;
    seen.sort_unstable();
    assert_eq!(seen, known);
    assert!(listed(&admin_only).await.len() >= seen.len());
}

/// What callers who see nothing of a model, or nothing at all, hear of it: what they hear of one that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn hidden_models_are_unknown_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let ann = permitted(&server, &admin, "ann", &["{view, logs, cart}"]).await;
    made(&server, &admin, "users", json!({"username": "empty", "password": PASSWORD})).await;
    let empty = bearer(&login(&server, "empty", PASSWORD).await);
    let told = async |who: &str, path: &str, body: Value| {
        let headers = [("authorization", who), ("content-type", "application/json")];
        let answer = server.post(&format!("/olap-api/v1/{path}"), &headers, body.to_string().into_bytes()).await;
        (answer.status, answer.json())
    };
    let query =
        |model: &str| json!({"measures": [format!("{model}.count")], "dimensions": [format!("{model}.service")]});
    let bodies = |path: &str, model: &str| match path {
        "drill" => json!({"query": query(model), "row": {}, "measure": format!("{model}.count")}),
        "sql" => json!({"query": query(model)}),
        _ => json!({"query": query(model), "analyze": false}),
    };
    for who in [&ann, &empty] {
        for path in ["explain", "dry-run", "sql", "drill"] {
            // A name that is nearly that of a hidden model suggests none.
            for (model, other) in [("Spans", "Zzzzz"), ("SpanEvents", "Yyyyyyyyyy"), ("Spanz", "Xxxxx")] {
                let (status, body) = told(who, path, bodies(path, model)).await;
                let (unknown_status, unknown) = told(who, path, bodies(path, other)).await;
                assert_eq!((status, unknown_status), (400, 400), "{path} {model}: {body}");
                assert_eq!(body["reason"], "UNKNOWN_MODEL", "{path} {model}: {body}");
                let as_other = |text: &Value| text.as_str().unwrap_or_default().replace(model, other);
                assert_eq!(as_other(&body["error"]), as_other(&unknown["error"]), "{path} {model}");
            }
        }
        let values = async |member: &str| {
            let path = format!("/olap-api/v1/meta/values?member={member}&dateRange=today");
            let answer = server.get_as(&path, &[("authorization", who)]).await;
            (answer.status, answer.json()["reason"].take(), answer.json()["error"].to_string())
        };
        let (hidden, unknown) = (values("Spans.service").await, values("Zzzzz.service").await);
        assert_eq!((hidden.0, &hidden.1), (400, &json!("UNKNOWN_MODEL")), "{hidden:?}");
        assert_eq!(hidden.2.replace("Spans", "Zzzzz"), unknown.2);
    }
    // A caller who sees another domain hears the same of rows; who sees nothing at all has none, whatever he asks of (12.1).
    let (status, body) = told(&ann, "load", json!({"query": query("Spans")})).await;
    assert_eq!((status, &body["reason"]), (400, &json!("UNKNOWN_MODEL")), "{body}");
    let (status, body) = told(&empty, "load", json!({"query": query("Spans")})).await;
    assert_eq!((status, &body["data"]), (200, &json!([])), "{body}");
    let (status, body) = told(&empty, "load", json!({"query": {"measures": ["Spans.cuont"]}})).await;
    assert_eq!((status, &body["error"]), (400, &json!("there is no model `Spans`")), "{body}");
    assert_eq!(told(&ann, "load", json!({"query": query("Logs")})).await.0, 200);
    // A statement names the right that its model needs; one that is printed does not.
    let hidden = [("authorization", ann.as_str())];
    let refused = ask(&server, &hidden, r#"select MEASURE("count") from olap."Spans""#).await;
    assert_eq!((refused.status, &refused.json()["required"]), (403, &json!("{view, traces, *}")), "{}", refused.text());
    let text = json!({"query": r#"select MEASURE("count") from olap."Spans""#, "format": "sql"});
    let (status, body) = told(&ann, "sql", text).await;
    assert_eq!((status, &body["reason"]), (400, &json!("UNKNOWN_MODEL")), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_over_models_are_printed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin, reader) = with_reader(dir.path()).await;
    let (admin_only, reader) = ([("authorization", admin.as_str())], [("authorization", reader.as_str())]);
    let joined = r#"select a."service", a.n, b."kind" from (select "service", MEASURE("count") n from olap."Spans" group by 1) a
        join olap."Spans" b on a."service" = b."service" where b."durationMs" > 30 order by 1, 3, b."durationMs""#;
    for (statement, ..) in pairs().into_iter().chain([(joined, Value::Null, Vec::new())]) {
        for who in [&admin_only, &reader] {
            let headers: Vec<_> = who.iter().copied().chain([("content-type", "application/json")]).collect();
            let body = json!({"query": statement, "format": "sql"}).to_string().into_bytes();
            let printed = server.post("/olap-api/v1/sql", &headers, body).await;
            assert_eq!(printed.status, 200, "{statement}: {}", printed.text());
            let printed = printed.json()["sql"].take();
            assert_eq!((&printed["status"], &printed["query_type"]), (&json!("ok"), &json!("regular")));
            let text = printed["sql"][0].as_str().expect("a text");
            assert!(!text.contains("'cart'"), "values are parameters: {text}");
            let body = json!({"query": text, "params": printed["sql"][1]}).to_string().into_bytes();
            let again = server.post(SQL, &headers, body).await;
            assert_eq!(again.status, 200, "{text}: {}", again.text());
            let again: Vec<Vec<String>> = again.json()["rows"]
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| row.as_array().expect("a row").iter().map(shown).collect())
                .collect();
            assert_eq!(again, rows(&server, who, statement).await, "{statement}\n{text}");
        }
    }
    let get = async |params: &[(&str, &str)]| {
        let url = reqwest::Url::parse_with_params("http://server/olap-api/v1/sql", params).expect("an address");
        server.get_as(&format!("{}?{}", url.path(), url.query().unwrap_or_default()), &admin_only).await
    };
    let statement = r#"select "service", MEASURE("errorRate") as rate from olap."Spans" group by 1"#;
    let printed = get(&[("format", "sql"), ("query", statement)]).await;
    assert_eq!(printed.status, 200, "{}", printed.text());
    let members = json!({"service": "Spans.service", "rate": "Spans.errorRate"});
    assert_eq!(printed.json()["sql"]["aliasNameToMember"], members);
    for (statement, reason) in [
        ("select count(*) from logs", "BAD_VALUE"),
        (r#"select "count" from olap."Spans""#, "BAD_VALUE"),
        (r#"select MEASURE("cuont") from olap."Spans""#, "UNKNOWN_MEMBER"),
        (r#"select MEASURE("count") from olap."Spnas""#, "UNKNOWN_MODEL"),
        ("select (", "BAD_VALUE"),
        ("explain select 1", "BAD_VALUE"),
    ] {
        let refused = get(&[("format", "sql"), ("query", statement)]).await;
        assert_eq!(
            (refused.status, &refused.json()["reason"]),
            (400, &json!(reason)),
            "{statement}: {}",
            refused.text()
        );
    }
    assert_eq!(get(&[("format", "xml"), ("query", statement)]).await.json()["pointer"], "/format");
}

/// Breaks if statements of Cube's clients get other rows than those of their sender, or if models need their schema.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_cube_send_statements() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin, reader) = with_reader(dir.path()).await;
    let send = async |who: &str, body: &Value| {
        let headers = [("authorization", who), ("content-type", "application/json")];
        server.post("/olap-api/v1/cubesql", &headers, body.to_string().into_bytes()).await
    };
    let beside = r#"SELECT "service", MEASURE("count") AS n, min("startTime") AS first FROM "Spans" GROUP BY 1"#;
    let counted = r#"SELECT "service", MEASURE("count") AS n FROM "Spans" GROUP BY 1 ORDER BY 1"#;
    let all = json!([["cart", "40"], ["mail", "7"], ["pay", "25"]]);
    for (who, rows) in [(&admin, all), (&reader, json!([["pay", "25"]]))] {
        let answer = send(who, &json!({"query": counted, "throwContinueWait": true, "cache": "no-cache"})).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let columns = json!([{"name": "service", "column_type": "String"}, {"name": "n", "column_type": "Int64"}]);
        assert_eq!(lines[0]["schema"], columns, "{text}");
        assert!(lines[0]["lastRefreshTime"].is_string(), "{text}");
        let data: Vec<Value> =
            lines[1..].iter().flat_map(|line| line["data"].as_array().expect("rows").clone()).collect();
        assert_eq!(Value::from(data), rows, "{text}");
    }
    let days = r#"SELECT DISTINCT date_trunc('day', "startTime") FROM "Spans" ORDER BY 1 LIMIT 1"#;
    let day = json!({"query": days, "timezone": "Europe/Berlin"});
    let text = send(&admin, &day).await.text();
    assert!(text.ends_with("{\"data\":[[\"2025-03-10T01:00:00.000\"]]}\n"), "{text}");
    for (body, reason, pointer) in [
        (json!({"query": counted, "limit": 1}), "UNKNOWN_KEY", "/limit"),
        (json!({"query": counted, "timezone": "Mars"}), "UNKNOWN_TIMEZONE", "/timezone"),
        (json!({"query": counted, "cache": "never"}), "BAD_VALUE", "/cache"),
        (json!({"query": beside}), "BAD_VALUE", ""),
        (json!({"query": r#"SELECT MEASURE("count") FROM "Span""#}), "UNKNOWN_MODEL", ""),
        (json!({}), "QUERY_REQUIRED", ""),
    ] {
        let answer = send(&admin, &body).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["reason"], &told["pointer"]),
            (400, &json!(reason), &json!(pointer)),
            "{told}"
        );
        assert!(told["error"].is_string(), "{told}");
    }
}
