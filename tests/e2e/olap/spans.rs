//! Built-in models over spans and traces: results over a small shop, live and flushed, for different callers.

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, ingest_key, login, user, with_password};
use crate::olap::derived_models::is_near;

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;
const MS: i64 = 1_000_000;

fn attributes(pairs: &Value) -> Value {
    let value = |v: &Value| match v {
        Value::Number(n) => json!({"intValue": n.to_string()}),
        Value::Bool(b) => json!({"boolValue": b}),
        other => json!({"stringValue": other}),
    };
    pairs.as_object().into_iter().flatten().map(|(k, v)| json!({"key": k, "value": value(v)})).collect()
}

/// A span: id, parent, name, kind, start and length in ms, attributes.
fn span(id: u64, parent: u64, name: &str, kind: u8, (start, length): (i64, i64), pairs: &Value) -> Value {
    let at = START_S * 1000 * MS + start * MS;
    let parent = if parent == 0 { String::new() } else { format!("{parent:016x}") };
    json!({
        "traceId": "a".repeat(32), "spanId": format!("{id:016x}"), "parentSpanId": parent, "name": name, "kind": kind,
        "startTimeUnixNano": at.to_string(), "endTimeUnixNano": (at + length * MS).to_string(),
        "attributes": attributes(pairs),
    })
}

fn with(mut span: Value, key: &str, value: Value) -> Value {
    span[key] = value;
    span
}

async fn send(server: &Server, headers: &[(&str, &str)], service: &str, spans: &[Value]) {
    let resource = attributes(&json!({
        "service.name": service, "service.version": format!("{service}-1"), "service.namespace": "shop",
        "deployment.environment": "prod", "service.instance.id": format!("{service}-a"), "host.name": "h1",
        "process.pid": 7, "telemetry.sdk.language": "go", "faas.name": "mailer",
    }));
    let body = json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": spans}]}]});
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A visit of a shop: `front` calls `cart`, which fails after twelve statements, and a bank; a worker takes a message.
pub(crate) async fn fill(server: &Server, headers: &[(&str, &str)]) {
    let root = json!({"http.method": "GET", "http.status_code": 200, "http.route": "/cart", "http.target": "/cart?x=1",
        "user.id": "u1", "session.id": "s1", "http.user_agent": "curl"});
    let call = json!({"http.request.method": "GET", "server.address": "cart", "server.port": 8080});
    let bank = json!({"http.request.method": "POST", "server.address": "api.bank.example.com",
        "url.full": "https://api.bank.example.com/charges/17", "http.request.resend_count": 2, "error.type": "timeout"});
    let function = json!({"code.function": "render", "code.namespace": "shop", "thread.name": "t1"});
    let spans = [
        with(span(1, 0, "GET /cart", 2, (0, 1000), &root), "traceState", json!("ot=th:8")),
        span(2, 1, "GET", 3, (10, 600), &call),
        span(3, 1, "POST", 3, (700, 100), &bank),
        span(4, 1, "render", 1, (850, 50), &function),
    ];
    send(server, headers, "front", &spans).await;
    let served = json!({"http.request.method": "GET", "http.response.status_code": 500, "http.route": "/items",
        "bt.id": "b1", "bt.name": "checkout", "client.address": "10.0.0.9", "user.id": "u1"});
    let exception = attributes(&json!({"exception.type": "shop.Empty", "exception.message": "no item 17",
        "exception.stacktrace": "shop.Empty\n\tat java.util.List.get(List.java:1)\n\tat shop.Cart.add(Cart.java:12)"}));
    let at = ((START_S * 1000 + 300) * MS).to_string();
    let events = json!([{"name": "exception", "timeUnixNano": at, "attributes": exception}]);
    let mut spans = vec![with(span(10, 2, "GET /items", 2, (20, 500), &served), "events", events)];
    for n in 0..12 {
        let statement = format!("SELECT * FROM items WHERE id = {n}");
        let pairs = json!({"db.system": "postgresql", "db.statement": statement, "db.operation": "SELECT",
            "net.peer.name": "db1", "net.peer.port": 5432, "db.response.returned_rows": 1});
        spans.push(span(20 + n, 10, "SELECT items", 3, (30 + 10 * n as i64, 10), &pairs));
    }
    let redis = json!({"db.system.name": "redis", "db.operation.name": "GET", "db.response.returned_rows": 0});
    spans.push(span(40, 10, "GET", 3, (200, 5), &redis));
    let sent = json!({"messaging.system": "kafka", "messaging.destination.name": "orders",
        "messaging.operation": "publish", "messaging.message.body.size": 100});
    spans.push(span(41, 10, "orders send", 4, (300, 10), &sent));
    let rpc = json!({"rpc.system": "grpc", "rpc.service": "shop.Stock", "rpc.method": "Take",
        "rpc.grpc.status_code": 14, "server.address": "stock.example.com"});
    spans.push(span(42, 10, "shop.Stock/Take", 3, (320, 10), &rpc));
    send(server, headers, "cart", &spans).await;
    let taken = json!({"messaging.system": "kafka", "messaging.destination.name": "orders",
        "messaging.operation.type": "process", "messaging.kafka.consumer.group": "g", "faas.trigger": "pubsub",
        "faas.coldstart": true});
    let links = json!([{"traceId": "a".repeat(32), "spanId": format!("{:016x}", 41)}]);
    let worker = with(span(60, 0, "orders process", 5, (400, 20), &taken), "links", links);
    send(server, headers, "worker", &[with(worker, "traceId", json!("b".repeat(32)))]).await;
    let line = json!({"_time": START_S, "_msg": "failed", "service.name": "cart", "exception.type": "shop.Empty",
        "severity_text": "err"});
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, headers, line.to_string().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

pub(crate) async fn load(server: &Server, headers: &[(&str, &str)], query: &Value) -> Answer {
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    server.post("/olap-api/v1/load", &headers, json!({"query": query}).to_string().into_bytes()).await
}

/// Values of measures of a model by a dimension that is the whole key of its rows; names without the model.
async fn table(server: &Server, headers: &[(&str, &str)], model: &str, by: &str, measures: &[&str]) -> Value {
    let full = |name: &str| if name.contains('.') { name.to_owned() } else { format!("{model}.{name}") };
    let time = match model {
        "Exceptions" | "SpanEvents" | "SpanLinks" => "time",
        "Services" | "ServiceInstances" => "lastSeen",
        "ServiceVersions" | "Operations" => "bucket",
        _ => "startTime",
    };
    let dimensions: Vec<String> = by.split_whitespace().map(full).collect();
    let order = dimensions.first().map_or(json!({}), |first| json!({first: "asc"}));
    let query = json!({
        "measures": measures.iter().map(|m| full(m)).collect::<Vec<_>>(), "dimensions": dimensions, "order": order,
        "timeDimensions": [{"dimension": full(time), "dateRange": ["2025-03-10", "2025-03-10"]}],
    });
    let answer = load(server, headers, &query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let names: Vec<String> = query["dimensions"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(query["measures"].as_array().into_iter().flatten())
        .filter_map(|n| n.as_str().map(str::to_owned))
        .collect();
    answer.json()["data"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| names.iter().map(|n| row[n].clone()).collect::<Value>())
        .collect()
}

/// Model, dimensions, measures, rows.
type Case = (&'static str, &'static str, &'static [&'static str], Value);

fn cases() -> Vec<Case> {
    [requests(), calls(), spans(), services()].concat()
}

fn requests() -> Vec<Case> {
    vec![
        (
            "ServiceRequests",
            "service callerService btId",
            &["count", "errorCount", "estimatedCount", "apdex"],
            json!([
                ["cart", "front", "b1", "1", "1", 1, 0],
                ["front", null, null, "1", "0", 2, 0.5],
                ["worker", null, null, "1", "0", 1, 1]
            ]),
        ),
        (
            "ServiceRequests",
            "urlPath httpStatus httpStatusClass userAgent",
            &["exemplarTraceId"],
            json!([
                ["/cart", 200, "2xx", "curl", "a".repeat(32)],
                [null, 500, "5xx", null, "a".repeat(32)],
                [null, null, "other", null, "b".repeat(32)]
            ]),
        ),
        ("ServiceRequests", "", &["throughput", "concurrencyAvg"], json!([[3.0 / 86_400.0, 1.52 / 86_400.0]])),
        (
            "Traces",
            "traceId rootService entryType hasRoot status depth services serviceCount environment userId",
            &["count", "durationMax", "spanCountMax", "incompleteCount"],
            json!([
                ["a".repeat(32), "front", "http", true, "error", 4, "cart,front", 2, "prod", "u1", "1", 1000, 20, "0"],
                ["b".repeat(32), "worker", "messaging", true, "ok", 1, "worker", 1, "prod", null, "1", 20, 1, "0"]
            ]),
        ),
        (
            "Calls",
            "callerService calleeService calleeOperation callType isMatched callerOperation",
            &["count", "networkGapAvg"],
            json!([
                ["cart", "db1", null, "db", false, "GET /items", "12", null],
                ["cart", "orders", null, "messaging", false, "GET /items", "1", null],
                ["cart", "stock.example.com", null, "rpc", false, "GET /items", "1", null],
                ["cart", null, null, "db", false, "GET /items", "1", null],
                ["front", "api.bank.example.com", null, "http", false, "GET /cart", "1", null],
                ["front", "cart", "GET /items", "http", true, "GET /cart", "1", 100]
            ]),
        ),
        (
            "Calls",
            "callerService",
            &["timeShareOfCaller", "callsPerRequest"],
            json!([["cart", 0.29, 15], ["front", 0.7, 2]]),
        ),
        (
            "Errors",
            "service entryOperation errorType message isOrigin",
            &["count", "errorRate", "wastedTime"],
            json!([
                ["cart", "GET /items", "shop.Empty", "no item 17", true, "1", 1, 500],
                ["front", "GET /cart", "timeout", null, true, "1", 1, 100]
            ]),
        ),
        ("Errors", "", &["count", "errorRate", "groupCount"], json!([["2", 2.0 / 3.0, "2"]])),
        (
            "HttpEndpoints",
            "httpRoute",
            &["count", "status2xx", "status5xx", "rate5xx", "routeCount", "clientCount"],
            json!([["/cart", "1", "1", "0", 0, "1", "0"], ["/items", "1", "0", "1", 1, "1", "1"]]),
        ),
        ("HttpErrors", "service side", &["count", "count5xx"], json!([["cart", "server", "1", "1"]])),
    ]
}

fn calls() -> Vec<Case> {
    vec![
        (
            "DatabaseCalls",
            "dbSystem dbInstance operation querySummary callerOperation",
            &["count", "rowsReturned", "nPlusOneTraces", "statementCount", "timeShareOfService"],
            json!([
                ["postgresql", "db1:5432", "SELECT", "SELECT items", "GET /items", "12", 12, 1, "1", 0.24],
                ["redis", null, "GET", null, "GET /items", "1", 0, 0, "0", 0.01]
            ]),
        ),
        ("CacheCalls", "command", &["count", "readCount", "missRate"], json!([["GET", "1", "1", 1]])),
        (
            "ExternalCalls",
            "host domain urlTemplate retryCount",
            &["count", "timeoutCount", "availability"],
            json!([
                ["api.bank.example.com", "example.com", "/charges/{}", 2, "1", "1", 0],
                ["stock.example.com", "example.com", null, null, "1", "0", 1]
            ]),
        ),
        (
            "RpcCalls",
            "rpcMethod rpcService rpcStatus side",
            &["count", "unavailableCount"],
            json!([["shop.Stock/Take", "shop.Stock", "UNAVAILABLE", "client", "1", "1"]]),
        ),
        ("MessagingProducers", "destination", &["messageCount", "bodyBytes"], json!([["orders", 1, 100]])),
        (
            "MessagingConsumers",
            "destination consumerGroup producerService",
            &["processCount", "queueTimeAvg", "consumerCount"],
            json!([["orders", "g", "cart", "1", 90, "1"]]),
        ),
        (
            "FunctionInvocations",
            "function trigger coldStart",
            &["count", "coldStartRate", "coldStartP95"],
            json!([["mailer", "pubsub", true, "1", 1, 20], ["mailer", null, null, "2", 0, null]]),
        ),
    ]
}

fn spans() -> Vec<Case> {
    vec![
        (
            "Exceptions",
            "origin exceptionType topFrame service",
            &["count", "groupCount"],
            json!([
                ["log", "shop.Empty", null, "cart", "1", "1"],
                ["span", "shop.Empty", "shop.Cart.add(Cart.java)", "cart", "1", "1"]
            ]),
        ),
        (
            "SpanEvents",
            "name exceptionType spanName offsetMs",
            &["count"],
            json!([["exception", "shop.Empty", "GET /items", 280, "1"]]),
        ),
        (
            "SpanLinks",
            "service linkedService sameTrace",
            &["count", "danglingCount", "lagAvg"],
            json!([["worker", "cart", false, "1", "0", 100]]),
        ),
        ("CodeFunctions", "function", &["count", "selfTimeSum", "selfTimeShare"], json!([["shop.render", "1", 50, 1]])),
        (
            "Spans",
            "service isRoot",
            &["count", "selfTimeSum"],
            json!([
                ["cart", false, "16", 500],
                ["front", false, "3", 250],
                ["front", true, "1", 250],
                ["worker", true, "1", 20]
            ]),
        ),
    ]
}

fn services() -> Vec<Case> {
    vec![
        (
            "Services",
            "service language requestCount errorRate",
            &["count", "activeCount"],
            json!([["cart", "go", 1, 1, "1", "1"], ["front", "go", 1, 0, "1", "1"], ["worker", "go", 1, 0, "1", "1"]]),
        ),
        (
            "ServiceInstances",
            "service instance host pid",
            &["count", "requestCount"],
            json!([
                ["cart", "cart-a", "h1", 7, "1", 1],
                ["front", "front-a", "h1", 7, "1", 1],
                ["worker", "worker-a", "h1", 7, "1", 1]
            ]),
        ),
        (
            "ServiceVersions",
            "service serviceVersion environment isCurrent firstSeen lastSeen",
            &["count", "trafficShare", "versionCount"],
            json!([
                ["cart", "cart-1", "prod", true, "2025-03-10T00:00:00.000", "2025-03-10T00:00:00.000", "1", 1, "1"],
                ["front", "front-1", "prod", true, "2025-03-10T00:00:00.000", "2025-03-10T00:00:00.000", "1", 1, "1"],
                ["worker", "worker-1", "prod", true, "2025-03-10T00:00:00.000", "2025-03-10T00:00:00.000", "1", 1, "1"]
            ]),
        ),
        (
            "Operations",
            "service operation kind",
            &["count", "timeShare", "impact", "operationCount"],
            json!([
                ["cart", "GET /items", "SERVER", "1", 1, 1000, "1"],
                ["front", "GET /cart", "SERVER", "1", 1, 1000, "1"],
                ["worker", "orders process", "CONSUMER", "1", 1, 20, "1"]
            ]),
        ),
        (
            "BusinessTransactions",
            "btName traceDurationMs spanCount isKey tier",
            &["count", "databaseTimeAvg", "externalTimeAvg", "userCount"],
            json!([["checkout", 1000, 20, false, null, "1", 125, 710, "1"]]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn models_over_spans() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server, &[]).await;
    let mut wrong = Vec::new();
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for (model, by, measures, expected) in cases() {
            let rows = table(&server, &[], model, by, measures).await;
            if !is_near(&rows, &expected) {
                wrong.push(format!("flushed {flushed}, {model} by {by}: {rows}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A caller who sees one service: rows that others' spans decide on are not there, names of others are not told.
#[tokio::test(flavor = "multi_thread")]
async fn callers_see_their_services() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let sender = ingest_key(&server, &admin, "agent").await;
    fill(&server, &[("authorization", &sender)]).await;
    for service in ["front", "cart"] {
        user(&server, &admin, service, "viewer", json!([service])).await;
    }
    let front = bearer(&login(&server, "front", PASSWORD).await);
    let cart = bearer(&login(&server, "cart", PASSWORD).await);
    let check = async |who: &str, (model, by, measures, expected): Case| {
        let rows = table(&server, &[("authorization", who)], model, by, measures).await;
        assert!(is_near(&rows, &expected), "{model} by {by}: {rows}, not {expected}");
    };
    let bank = "api.bank.example.com";
    check(&front, ("Spans", "service", &["count"], json!([["front", "4"]]))).await;
    // The call of `cart` is not there, since `cart` is not.
    check(&front, ("Calls", "calleeService", &["count"], json!([[bank, "1"]]))).await;
    // The same call to a host of which the caller sees nothing: whether it is one of ours is not told.
    check(&front, ("ExternalCalls", "host", &["count"], json!([[bank, "1"], ["cart", "1"]]))).await;
    check(&admin, ("ExternalCalls", "host", &["count"], json!([[bank, "1"], ["stock.example.com", "1"]]))).await;
    check(&cart, ("ExternalCalls", "host", &["count"], json!([["stock.example.com", "1"]]))).await;
    check(&front, ("Traces", "services", &["count", "spanCountMax"], json!([["front", "1", 4]]))).await;
    check(&front, ("Services", "service", &["count"], json!([["front", "1"]]))).await;
    check(&front, ("Errors", "service", &["count", "errorRate"], json!([["front", "1", 1]]))).await;
    check(&front, ("Exceptions", "service", &["count"], json!([]))).await;
    check(&front, ("BusinessTransactions", "btName", &["count"], json!([]))).await;
    check(&cart, ("ServiceRequests", "service callerService", &["count"], json!([["cart", null, "1"]]))).await;
    check(&cart, ("Calls", "callerOperation", &["count"], json!([["GET /items", "15"]]))).await;
    // Of a trace that begins elsewhere the part is known that the caller sees.
    let seen = ("BusinessTransactions", "btName traceDurationMs", &["count"][..], json!([["checkout", 500, "1"]]));
    check(&cart, seen).await;
    check(&cart, ("SpanLinks", "service", &["count"], json!([]))).await;
    // Whoever sees all sees all.
    check(&admin, ("Calls", "", &["count"], json!([["17"]]))).await;
}

/// Rates are per second of a bucket cut to the range; measures of other models fall into the same buckets; joins count nothing
/// twice.
/// Breaks if attributes are compared and ordered as texts, or a text is looked for in a column of numbers.
#[tokio::test(flavor = "multi_thread")]
async fn attributes_have_the_types_of_their_columns() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server, &[]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        // A port is a number by the conventions; other attributes are texts, of which some are numbers.
        for (attribute, operator, value, count) in [
            ("server__port", "gt", "6000", "1"),
            ("server__port", "lte", "5432", "12"),
            ("server__port", "contains", "43", "12"),
            ("server__port", "equals", "8080.0", "1"),
            ("server__port", "equals", "any", "0"),
            ("rpc__grpc__status_code", "gt", "9", "1"),
            ("http__route", "gt", "1", "0"),
        ] {
            let member = format!("Spans.attr_{attribute}");
            let filter = json!({"member": member, "operator": operator, "values": [value]});
            let answer = load(&server, &[], &json!({"measures": ["Spans.count"], "filters": [filter]})).await;
            assert_eq!(answer.status, 200, "{filter}: {}", answer.text());
            assert_eq!(answer.json()["data"][0]["Spans.count"], json!(count), "{filter}");
        }
        let ports = "Spans.attr_server__port";
        let query = json!({"dimensions": [ports], "order": {ports: "desc"}});
        let answer = load(&server, &[], &query).await.json();
        assert_eq!(answer["data"], json!([{ports: null}, {ports: "8080"}, {ports: "5432"}]));
        assert_eq!(answer["annotation"]["dimensions"][ports]["type"], json!("number"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_buckets_and_joins() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    fill(&server, &[]).await;
    let rows = async |query: Value| {
        let answer = load(&server, &[], &query).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        answer.json()["data"].take()
    };
    let half_an_hour = ["2025-03-10T01:00:00.000", "2025-03-10T01:29:59.999"];
    let time = |member: &str| json!([{"dimension": member, "granularity": "hour", "dateRange": half_an_hour}]);
    let rate = json!({"measures": ["ServiceRequests.throughput"], "timeDimensions": time("ServiceRequests.startTime"),
        "timezone": "Europe/Berlin"});
    let found = rows(rate).await;
    assert!(is_near(&found[0]["ServiceRequests.throughput"], &json!(3.0 / 1800.0)), "{found}");
    let errors = json!({"measures": ["Errors.count", "Errors.errorRate"], "dimensions": ["Errors.service"],
        "timeDimensions": time("Errors.startTime"), "timezone": "Europe/Berlin",
        "filters": [{"member": "Errors.service", "operator": "equals", "values": ["cart"]}]});
    let found = rows(errors).await;
    assert_eq!((found.as_array().map(Vec::len), &found[0]["Errors.errorRate"]), (Some(1), &json!(1)), "{found}");
    let joined = json!({"measures": ["Traces.count", "Spans.count", "Errors.count"],
        "dimensions": ["Traces.rootService"], "order": {"Traces.rootService": "asc"}});
    let row = |service: &str, traces: &str, spans: &str, errors: &str| json!({"Traces.rootService": service, "Traces.count": traces, "Spans.count": spans, "Errors.count": errors});
    assert_eq!(rows(joined).await, json!([row("front", "1", "20", "2"), row("worker", "1", "1", "0")]));
    // Without a range a rate goes from the first row to now.
    let found = rows(json!({"measures": ["ServiceRequests.throughput"]})).await;
    let rate = found[0]["ServiceRequests.throughput"].as_f64().expect("a number");
    assert!(rate > 0.0 && rate < 1e-6, "{rate}");
}
