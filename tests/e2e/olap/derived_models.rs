//! Built-in models over data derived from spans, records and events: dependencies, health, error groups and patterns,
//! browsers, mobile applications, their sessions and users. Checked live and flushed, and for different callers.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, ingest_key, login, user, with_password};
use crate::olap::spans::load;

/// Two browsers, a mobile application and what serves them, from 2025-03-10T00:00:00Z on.
const SPANS: &str = include_str!("derived_models.json");
const RECORDS: &str = include_str!("derived_models.jsonl");

pub(super) async fn fill(server: &Server, headers: &[(&str, &str)]) {
    let with: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let answer = server.post("/insert/opentelemetry/v1/traces", &with, SPANS.as_bytes().to_vec()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let path = "/insert/jsonline?_stream_fields=service.name";
    let answer = server.post(path, headers, RECORDS.as_bytes().to_vec()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A model, dimensions, measures, rows in order of the dimensions.
pub(super) type Case = (&'static str, &'static str, &'static [&'static str], Value);

pub(super) async fn table(server: &Server, headers: &[(&str, &str)], (model, by, measures, _): &Case) -> Value {
    let full = |name: &str| format!("{model}.{name}");
    let dimensions: Vec<String> = by.split_whitespace().map(full).collect();
    let measures: Vec<String> = measures.iter().map(|m| full(m)).collect();
    let order: Value = dimensions.iter().map(|d| json!([d, "asc"])).collect();
    let query = json!({"measures": measures, "dimensions": dimensions, "order": order});
    let answer = load(server, headers, &query).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let names: Vec<String> = dimensions.into_iter().chain(measures).collect();
    let rows = answer.json()["data"].take();
    rows.as_array().expect("rows").iter().map(|row| names.iter().map(|n| row[n].clone()).collect::<Value>()).collect()
}

/// Whether two answers are the same but for the last digits of numbers; whole numbers are texts in answers.
pub(super) fn is_near(a: &Value, b: &Value) -> bool {
    let number = |v: &Value| v.as_f64().or_else(|| v.as_str()?.parse().ok());
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b)),
        (a, b) => match (number(a), number(b)) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
            _ => a == b,
        },
    }
}

fn of_services() -> Vec<Case> {
    vec![
        (
            "ServiceDependencies",
            "callerService calleeService calleeType connectionType",
            &["count", "errorCount", "durationSum", "networkGapAvg"],
            json!([
                ["cart", "db1", "database", "db", "1", "0", 30, null],
                ["front", "bank.example.com", "external", "http", "1", "1", 100, null],
                ["front", "cart", "service", "http", "1", "0", 600, 100],
                ["front", "mailer", "service", "messaging", "1", "0", 5, -35],
                ["shop-ui", "front", "service", "http", "1", "0", 300, 200]
            ]),
        ),
        (
            "MessagingDestinations",
            "destination consumerGroup",
            &[
                "publishedCount",
                "consumedCount",
                "queueTimeP95",
                "processingP95",
                "producerServices",
                "consumerServices",
            ],
            json!([["orders", "g1", 0, 2, 1055, 59, "0", "1"], ["orders", null, 3, 0, null, null, "1", "0"]]),
        ),
        (
            "ErrorGroups",
            "exceptionType service title firstVersion",
            &["count", "occurrences", "affectedUsers", "affectedTraces"],
            json!([
                ["TypeError", "shop-ui", "TypeError: x is undefined", "1", "1", "1", "1", "0"],
                ["ValueError", "cart", "ValueError: bad id ?", "1", "1", "2", "2", "1"],
                ["java.lang.NPE", "droid", "java.lang.NPE: null", "1", "1", "1", "0", "0"],
                ["unknown", "front", "unknown", "1", "1", "1", "0", "1"],
                ["unknown", "front", "unknown: boom ?", "1", "1", "1", "0", "1"]
            ]),
        ),
        (
            "ServiceHealth",
            "service bucket health cause",
            &["count", "requestCount", "apdex", "errorRate", "latencyP95", "healthScore"],
            json!([
                ["cart", "2025-03-10T00:00:00.000", "critical", "errors", "1", "1", 0, 1, 500, 0],
                ["front", "2025-03-10T00:00:00.000", "warning", "latency", "1", "2", 0.75, 0, 955, 0.5],
                ["front", "2025-03-10T00:01:00.000", "critical", "errors", "1", "1", 0, 1, 100, 0],
                ["mailer", "2025-03-10T00:00:00.000", "ok", null, "1", "2", 1, 0, 59, 1],
                ["old-ui", "2025-03-10T00:00:00.000", "ok", null, "1", "1", 1, 0, 800, 1]
            ]),
        ),
        (
            "LogPatterns",
            "pattern service severity",
            &["count", "occurrences", "share"],
            json!([
                ["E", "cart", "error", "1", "1", 0.25],
                ["cannot reach <*> after <*> tries", "cart", "error", "1", "1", 0.25],
                ["user <*> logged in from <*>", "cart", "info", "1", "2", 0.5]
            ]),
        ),
        (
            "CriticalPath",
            "service category",
            &["count", "traceCount", "criticalTimeSum", "criticalShare"],
            json!([
                ["cart", "code", "1", "1", 470, 0.47],
                ["cart", "database", "1", "1", 30, 0.03],
                ["front", "code", "3", "3", 495, 495.0 / 1400.0],
                ["front", "messaging", "1", "1", 5, 0.005],
                ["front", "remote call", "2", "1", 200, 0.1],
                ["mailer", "messaging", "1", "1", 60, 1],
                ["old-ui", "code", "3", "1", 800, 1.0 / 3.0],
                ["shop-ui", "remote call", "1", "1", 200, 2.0 / 3.0]
            ]),
        ),
        (
            "LogStreams",
            "service",
            &["count", "records", "bytesSum"],
            json!([["cart", "1", "4", "271"], ["droid", "1", "3", "241"], ["shop-ui", "1", "15", "3491"]]),
        ),
        ("Logs", "severity", &["count", "patternCount"], json!([["error", "2", "2"], ["info", "2", "1"]])),
    ]
}

fn of_browsers() -> Vec<Case> {
    vec![
        (
            "RumPageViews",
            "application pageGroup isEntry isExit timeOnPageMs",
            &["count", "exitRate", "errorViewRate"],
            json!([
                ["old-ui", "/a/{}", true, true, null, "1", 1, 0],
                ["shop-ui", "/cart", false, true, null, "1", 1, 0],
                ["shop-ui", "/items/{}", true, false, 8900, "1", 0, 1],
                ["shop-ui", "/items/{}", true, true, null, "1", 1, 0]
            ]),
        ),
        (
            "RumPageLoads",
            "application loadMs",
            &["count", "apdex", "domInteractiveP75", "dnsP75", "ttfbP75", "downloadP75"],
            json!([["old-ui", 800, "1", 1, 100, 5, 90, 100], ["shop-ui", 1200.5, "1", 1, 300, null, null, null]]),
        ),
        (
            "RumWebVitals",
            "vital rating value",
            &["count", "goodRate", "passesCoreVitals"],
            json!([["lcp", "needs-improvement", 3000, "1", 0, false]]),
        ),
        (
            "RumResources",
            "resourceGroup isThirdParty",
            &["count", "durationAvg", "compressionRatio"],
            json!([["/a/{}/x.js", true, "1", 55, 0.3], ["/b.css", null, "1", 50, null]]),
        ),
        (
            "RumRequests",
            "requestGroup backendService",
            &["count", "serverTimeAvg", "networkTimeAvg", "responseBytes"],
            json!([["/api/items/{}", "front", "1", 100, 200, 77]]),
        ),
        (
            "RumErrors",
            "errorType source isThirdParty",
            &["count", "errorsPerSession", "errorsPerView"],
            json!([
                ["TypeError", "exception", false, "1", 0.25, 0.25],
                ["java.lang.NPE", "crash", null, "1", 0.25, 0.25]
            ]),
        ),
        (
            "UserActions",
            "actionName",
            &["count", "durationAvg", "requestsPerAction", "rageClickCount", "deadClickCount", "errorCount"],
            json!([
                ["#buy", "1", 400, 1, "0", "0", "0"],
                ["#dead", "3", 0, 0, "1", "1", "0"],
                ["Pay", "1", 0, 0, "0", "1", "1"]
            ]),
        ),
        (
            "RumLongTasks",
            "kind",
            &["count", "blockingSum", "droppedFrames"],
            json!([["jank", "1", null, 9], ["long task", "1", 80, null]]),
        ),
        (
            "BrowserUsage",
            "application",
            &["pageViews", "pageViewShare", "errorRate"],
            json!([["droid", "0", 0, null], ["old-ui", "1", 0.25, 0], ["shop-ui", "3", 0.75, 1.0 / 3.0]]),
        ),
        ("MobileCrashes", "crashId", &["count", "crashFreeSessionRate"], json!([["c1", "1", 0.75]])),
        (
            "RumApplications",
            "application platform latestVersion",
            &["count", "pageViews", "sessions", "errorFreeSessionRate"],
            json!([
                ["droid", "android", "1", "1", "0", "1", 0],
                ["old-ui", "browser", "1", "1", "1", "1", 1],
                ["shop-ui", "browser", "1", "1", "3", "2", 0.5]
            ]),
        ),
    ]
}

fn of_users() -> Vec<Case> {
    vec![
        (
            "Sessions",
            "sessionId userId entryPage exitPage durationMs isActive",
            &["count", "bounceCount", "errorFreeRate", "crashFreeRate"],
            json!([
                ["m1", null, null, null, 1000, false, "1", "0", 0, 0],
                ["o1", null, "/a/{}", "/a/{}", 800, false, "1", "1", 1, 1],
                ["s1", "u1", "/items/{}", "/cart", 20000, false, "1", "0", 0, 1],
                ["s2", "u2", "/items/{}", "/items/{}", 0, false, "1", "1", 1, 1]
            ]),
        ),
        (
            "Sessions",
            "application",
            &["count", "concurrentMax"],
            json!([["droid", "1", 1], ["old-ui", "1", 1], ["shop-ui", "2", 1]]),
        ),
        ("Sessions", "", &["count", "concurrentMax"], json!([["4", 3]])),
        (
            "SessionTransitions",
            "fromPage toPage",
            &["count", "transitionShare", "dropOffRate"],
            json!([
                ["(entry)", "/a/{}", "1", 1.0 / 3.0, 0],
                ["(entry)", "/items/{}", "2", 2.0 / 3.0, 0],
                ["/a/{}", "(exit)", "1", 1, 1],
                ["/cart", "(exit)", "1", 1, 1],
                ["/items/{}", "(exit)", "1", 0.5, 1],
                ["/items/{}", "/cart", "1", 0.5, 0]
            ]),
        ),
        (
            "Users",
            "userId sessionCountOfUser",
            &["count", "usersWithErrors"],
            json!([["u1", "1", "1", "1"], ["u2", "1", "1", "0"]]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn models_over_what_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    let mut wrong = Vec::new();
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for case in of_services().into_iter().chain(of_browsers()).chain(of_users()) {
            let rows = table(&server, &[], &case).await;
            if !is_near(&rows, &case.3) {
                wrong.push(format!("flushed {flushed}, {} by {}: {rows}, not {}", case.0, case.1, case.3));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Breaks if rows of models that hang off the same rows are multiplied with each other: what they are read from was
/// planned once for each pair, which is more than a statement may have.
#[tokio::test(flavor = "multi_thread")]
async fn several_models_hang_off_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    for [root, others @ ..] in [["Sessions", "RumPageViews", "RumErrors"], ["RumPageViews", "RumErrors", "UserActions"]]
    {
        let by = format!("{root}.application");
        let ask = async |models: &[&str]| {
            let measures: Vec<String> = models.iter().map(|model| format!("{model}.count")).collect();
            let query = json!({"measures": measures, "dimensions": [by], "order": [[by, "asc"]]});
            let answer = load(&server, &[], &query).await;
            assert_eq!(answer.status, 200, "{query}: {}", answer.text());
            answer.json()["data"].as_array().expect("rows").clone()
        };
        let together = ask(&[root, others[0], others[1]]).await;
        assert!(!together.is_empty());
        for other in others {
            let count = format!("{other}.count");
            let apart = ask(&[root, other]).await;
            let counts = |rows: &[Value]| rows.iter().map(|row| row[&count].clone()).collect::<Vec<_>>();
            assert_eq!(counts(&together), counts(&apart), "{other} of {root}");
        }
    }
}

/// A range keeps what lived in it, and counts what fell into it.
#[tokio::test(flavor = "multi_thread")]
async fn groups_and_patterns_count_in_the_range() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    let ask = async |model: &str, from: &str, to: &str| {
        let query = json!({
            "measures": [format!("{model}.count"), format!("{model}.occurrences"), format!("{model}.newCount")],
            "timeDimensions": [{"dimension": format!("{model}.lastSeen"), "dateRange": [from, to]}],
        });
        let answer = load(&server, &[], &query).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let row = answer.json()["data"][0].take();
        ["count", "occurrences", "newCount"].map(|name| row[format!("{model}.{name}")].clone())
    };
    // The group of `cart` began before it; its occurrence in a span was before it, too.
    let late = ask("ErrorGroups", "2025-03-10T00:00:02.000", "2025-03-10T00:00:03.000").await;
    assert_eq!(late, ["1", "1", "0"]);
    let late = ask("LogPatterns", "2025-03-10T00:00:00.500", "2025-03-10T00:00:01.500").await;
    assert_eq!(late, ["1", "1", "0"]);
}

/// What came as often in the range as in the one of the same length before has not changed.
#[tokio::test(flavor = "multi_thread")]
async fn patterns_are_compared_with_the_range_before() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    fill(&server, &[]).await;
    let ask = async |dimensions: Value, range: Value| {
        let query = json!({
            "measures": ["LogPatterns.occurrences", "LogPatterns.changeRatio"], "dimensions": dimensions,
            "timeDimensions": range, "order": [["LogPatterns.occurrences", "desc"], ["LogPatterns.changeRatio", "asc"]],
        });
        let answer = load(&server, &[], &query).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let rows = answer.json()["data"].take();
        let pair = |row: &Value| json!([row["LogPatterns.occurrences"], row["LogPatterns.changeRatio"]]);
        rows.as_array().expect("rows").iter().map(pair).collect::<Value>()
    };
    let dates = ["2025-03-10T00:00:01.000", "2025-03-10T00:00:02.999"];
    let range = json!([{"dimension": "LogPatterns.lastSeen", "dateRange": dates}]);
    let whole = ask(json!([]), range.clone()).await;
    assert!(is_near(&whole, &json!([[3, 3]])), "{whole}");
    let rows = ask(json!(["LogPatterns.pattern"]), range).await;
    let ratios: Vec<Option<f64>> = rows.as_array().expect("rows").iter().map(|row| row[1].as_f64()).collect();
    assert_eq!(ratios.iter().flatten().collect::<Vec<_>>(), [&1.0], "{rows}");
    assert_eq!(ratios.len(), 3, "{rows}");
    // All that is kept has nothing before it.
    let whole = ask(json!([]), json!([])).await;
    assert!(is_near(&whole, &json!([[4, null]])), "{whole}");
}

/// Events long before the range are left unread, unless something goes by all of them.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_range_are_made_of_its_events() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    let record = |day: u8, session: &str| {
        let record = json!({"_time": format!("2025-03-{day:02}T10:00:00Z"), "_msg": "", "service.name": "shop-ui",
            "session.id": session, "user.id": "u1", "event_name": "browser.navigation"});
        format!("{record}\n")
    };
    let records = [record(1, "s1"), record(10, "s2")].concat();
    let answer = server.post("/insert/jsonline?_stream_fields=service.name", &[], records.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let query = |measure: &str| {
        let time = json!({"dimension": "Sessions.startTime", "dateRange": ["2025-03-10", "2025-03-10"]});
        json!({"measures": [format!("Sessions.{measure}")], "timeDimensions": [time]})
    };
    // Midnight before the range, to which the model adds a day.
    let bound = "model_rows('Sessions', '2025-03-10T00:00:00.000Z'";
    for (measure, expected, is_bounded) in [("count", "1", true), ("newUserCount", "0", false)] {
        let rows = load(&server, &[], &query(measure)).await.json()["data"].take();
        assert_eq!(rows[0][format!("Sessions.{measure}")], expected, "{measure}: {rows}");
        let body = json!({"query": query(measure)}).to_string().into_bytes();
        let told = server.post("/olap-api/v1/sql", &[("content-type", "application/json")], body).await;
        let told = told.json()["sql"]["sql"][0].take();
        assert_eq!(told.as_str().map(|text| text.contains(bound)), Some(is_bounded), "{measure}: {told}");
    }
}

/// Of the others' services and applications nothing is told, their names neither.
#[tokio::test(flavor = "multi_thread")]
async fn callers_see_what_is_found_of_theirs() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password().args(&["--retention", "none"])).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let sender = ingest_key(&server, &admin, "agent").await;
    fill(&server, &[("authorization", &sender)]).await;
    for service in ["front", "shop-ui", "mailer"] {
        user(&server, &admin, service, "viewer", json!([service])).await;
    }
    let front = bearer(&login(&server, "front", PASSWORD).await);
    let shop = bearer(&login(&server, "shop-ui", PASSWORD).await);
    let mailer = bearer(&login(&server, "mailer", PASSWORD).await);
    let check = async |who: &str, case: Case| {
        let rows = table(&server, &[("authorization", who)], &case).await;
        assert!(is_near(&rows, &case.3), "{} by {}: {rows}, not {}", case.0, case.1, case.3);
    };
    let bank = json!([["front", "bank.example.com", "1"]]);
    check(&front, ("ServiceDependencies", "callerService calleeService", &["count"], bank)).await;
    check(&front, ("ErrorGroups", "service", &["count"], json!([["front", "2"]]))).await;
    check(&front, ("ServiceHealth", "service", &["count"], json!([["front", "2"]]))).await;
    check(&front, ("LogPatterns", "service", &["count"], json!([]))).await;
    // What `cart` did is the caller's own time then; of others' roots nothing is told.
    let path = json!([["front", "code", "2", 395], ["front", "messaging", "1", 5], ["front", "remote call", "2", 700]]);
    check(&front, ("CriticalPath", "service category", &["count", "criticalTimeSum"], path)).await;
    // When a message was sent is the sender's to tell.
    let measures = &["consumedCount", "queueTimeP95", "processingP95", "producerServices"];
    let orders = json!([["orders", "g1", 2, null, 59, "0"]]);
    check(&mailer, ("MessagingDestinations", "destination consumerGroup", measures, orders)).await;
    check(&front, ("Sessions", "application", &["count"], json!([]))).await;
    check(&shop, ("ServiceDependencies", "callerService", &["count"], json!([]))).await;
    check(&shop, ("Sessions", "application", &["count"], json!([["shop-ui", "2"]]))).await;
    check(&shop, ("SessionTransitions", "application", &["count"], json!([["shop-ui", "5"]]))).await;
    check(&shop, ("Users", "application", &["count"], json!([["shop-ui", "2"]]))).await;
    check(&shop, ("RumApplications", "application", &["sessions"], json!([["shop-ui", "2"]]))).await;
    // The service that answered is not told.
    check(&shop, ("RumRequests", "application backendService", &["count"], json!([["shop-ui", null, "1"]]))).await;
    check(&shop, ("MobileCrashes", "application", &["count"], json!([]))).await;
}

/// Several reports of a calling span are one call, from the earliest start on, with the longest duration; one that failed
/// makes it fail.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_reported_again_count_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().args(&["--retention", "none"])).await;
    // 2025-03-10T00:00:00Z; the last report starts in another minute.
    let midnight = 1_741_564_800_000_000_000_i64;
    for (after, lasts, status, address) in
        [(0, 2_000_000, 2, "pay.example.com"), (0, 5_000_000, 0, "pay.example.com"), (90_000_000_000, 3_000_000, 0, "")]
    {
        let start = midnight + after;
        let span = json!({
            "traceId": format!("{:032x}", 1), "spanId": format!("{:016x}", 1), "name": "pay", "kind": 3,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + lasts).to_string(),
            "status": {"code": status},
            "attributes": if address.is_empty() { json!([]) } else {
                json!([{"key": "server.address", "value": {"stringValue": address}}])
            },
        });
        let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]});
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let case: Case = (
        "ServiceDependencies",
        "callerService calleeService",
        &["count", "errorCount", "durationSum"],
        json!([["cart", "pay.example.com", "1", "1", 5]]),
    );
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        let rows = table(&server, &[], &case).await;
        assert!(is_near(&rows, &case.3), "{state}: {rows}");
    }
}

/// Breaks if lists of durations are the values of an aggregate: each of these counts as much memory as its whole batch takes.
#[tokio::test(flavor = "multi_thread")]
async fn health_of_many_minutes_takes_little_memory() {
    const MINUTES: u64 = 1500;
    const EACH: u64 = 20;
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().args(&["--retention", "none"]).env("QUIVER_MEMORY__LIMIT", "256MiB");
    let server = Server::start(dir.path(), &options).await;
    let span = |n: u64| {
        let start = (1_741_564_800 + n / EACH * 60 + n % EACH) * 1_000_000_000;
        json!({
            "traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": "op", "kind": 2,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 5_000_000).to_string(),
        })
    };
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "back"}}]});
    for from in (0..MINUTES * EACH).step_by(5000) {
        let spans: Vec<Value> = (from..from + 5000).map(span).collect();
        let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]});
        let headers = [("content-type", "application/json")];
        let answer = server.post("/insert/opentelemetry/v1/traces", &headers, body.to_string().into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let measures = &["count", "requestCount", "okMinutes", "latencyP95"];
    let case: Case = ("ServiceHealth", "service", measures, json!([["back", "1500", "30000", "1500", 5]]));
    let rows = table(&server, &[], &case).await;
    assert!(is_near(&rows, &case.3), "{rows}");
}
