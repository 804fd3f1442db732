//! LogsQL over HTTP: newest rows, limits, time ranges, formats, time limits, interrupted responses, plans.

use std::io::{Read, Write};
use std::time::Duration;

use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

pub(crate) const API: &str = "/logs-api/select/logsql";
/// An endpoint, a query, and more parameters.
pub(crate) type Asked = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// All endpoints with a query, and parameters, that they take.
pub(crate) const ENDPOINTS: [Asked; 12] = [
    ("query", "*", &[]),
    ("tail", "*", &[]),
    ("hits", "*", &[]),
    ("field_names", "*", &[]),
    ("field_values", "*", &[("field", "a")]),
    ("streams", "*", &[]),
    ("stream_ids", "*", &[]),
    ("stream_field_names", "*", &[]),
    ("stream_field_values", "*", &[("field", "a")]),
    ("facets", "*", &[]),
    ("stats_query", "* | stats count() n", &[]),
    ("stats_query_range", "* | stats count() n", &[]),
];
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// 2025-03-10T00:00:00Z.
const START_S: i64 = 1_741_564_800;

/// Row `n`: a second after the one before, in one of three streams.
fn line(n: i64) -> String {
    let level = if n % 10 == 0 { "error" } else { "info" };
    format!(
        "{{\"_time\":{},\"_msg\":\"request {n} served\",\"app\":\"app{}\",\"n\":{n},\"level\":\"{level}\"}}\n",
        START_S + n,
        n % 3
    )
}

/// Posts lines; must be taken.
pub(crate) async fn send(server: &Server, stream_fields: &str, lines: String) {
    let path = format!("/insert/jsonline?_stream_fields={stream_fields}");
    let answer = server.post(&path, &[], lines.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Starts a server with rows 0..count: a third in parts that were merged, a third in a part, a third live.
async fn start(count: i64) -> (Server, tempfile::TempDir) {
    start_with(count, &Options::default()).await
}

async fn start_with(count: i64, options: &Options) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), options).await;
    for third in 0..3 {
        // Not in the order of time.
        let rows = (0..count).filter(|n| n % 3 == third).map(line).collect();
        send(&server, "app", rows).await;
        match third {
            0 => server.compact().await,
            1 => server.flush().await,
            _ => {}
        }
    }
    (server, dir)
}

pub(crate) async fn ask(server: &Server, endpoint: &str, params: &[(&str, &str)]) -> Answer {
    server.ask(&format!("{API}/{endpoint}"), params).await
}

/// The rows of an answer of `query`.
pub(crate) fn rows(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The values of a field, in order.
pub(crate) fn values(answer: &Answer, field: &str) -> Vec<String> {
    rows(answer).iter().map(|row| row[field].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_ranges() {
    let (server, _dir) = start(300).await;
    let numbers = async |params: &[(&str, &str)]| values(&ask(&server, "query", params).await, "n");
    let newest: Vec<String> = (0..7).map(|i| (299 - i).to_string()).collect();
    let answer = ask(&server, "query", &[("query", "*"), ("limit", "7")]).await;
    assert_eq!(answer.headers["content-type"], "application/stream+json");
    assert_eq!(values(&answer, "n"), newest);
    let first = &rows(&answer)[0];
    assert_eq!(first["_time"], "2025-03-10T00:04:59Z");
    assert_eq!(first["_stream"], "{app=\"app2\"}");
    assert!(first.as_object().expect("a row").values().all(Value::is_string), "{first}");
    // Pipes that keep rows and their time keep the order too; without the time any rows will do.
    assert_eq!(numbers(&[("query", "* | format 'x<n>' as x | delete _msg"), ("limit", "7")]).await, newest);
    assert_eq!(numbers(&[("query", "level:error"), ("limit", "2")]).await, ["290", "280"]);
    assert_eq!(numbers(&[("query", "* | fields n"), ("limit", "5")]).await.len(), 5);
    assert_eq!(numbers(&[("query", "* | sort by (n)"), ("limit", "3")]).await, ["0", "1", "2"]);
    assert_eq!(numbers(&[("query", "* | sort by (n) desc limit 9"), ("limit", "1000")]).await.len(), 9);
    let oldest = [("query", "*"), ("sort_direction", "asc")];
    assert_eq!(numbers(&[&oldest[..], &[("limit", "3")]].concat()).await, ["0", "1", "2"]);
    assert_eq!(numbers(&[&oldest[..], &[("limit", "2"), ("offset", "3")]].concat()).await, ["3", "4"]);
    let all: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    assert_eq!(numbers(&oldest).await, all, "in order without a limit, too");
    assert_eq!(numbers(&[("query", "*"), ("sort_direction", "DESC"), ("limit", "7")]).await, newest);
    for none in [&[("query", "*")][..], &[("query", "*"), ("limit", "0")]] {
        assert_eq!(numbers(none).await.len(), 300);
    }
    // Both ends belong to the range; all ways to write a time.
    let ranges = [
        ("2025-03-10T00:00:10Z", "2025-03-10T00:00:12Z"),
        ("1741564810", "1741564812.5"),
        ("1741564810000", "1741564812000"),
        ("1741564810000000000", "1741564812000000000"),
    ];
    for (from, to) in ranges {
        let mut found = numbers(&[("query", "*"), ("start", from), ("end", to)]).await;
        found.sort();
        assert_eq!(found, ["10", "11", "12"], "{from} {to}");
    }
    // A whole second at the end belongs to it altogether, for what is counted by the second too.
    let range = [("query", "* | stats count() n, rate() r"), ("start", "1741564800"), ("end", "1741564899")];
    assert_eq!(rows(&ask(&server, "query", &range).await)[0], serde_json::json!({"n": "100", "r": "1"}));
    // `end` is what "now" means, and rows at that very moment are outside of `_time:d`.
    let mut found = numbers(&[("query", "_time:2s"), ("end", "2025-03-10T00:00:12Z")]).await;
    found.sort();
    assert_eq!(found, ["10", "11"]);
    let found = numbers(&[("query", "_time:2s"), ("time", "2025-03-10T00:00:12Z"), ("end", "2025-03-11")]).await;
    assert_eq!(found.len(), 2);
    assert_eq!(numbers(&[("query", "*"), ("start", "2025-03-11")]).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_without_values() {
    let (server, _dir) = start(30).await;
    let query = [("query", "* | stats by (app) min(none) m, count() n"), ("time", "2025-03-11"), ("step", "1d")];
    for (endpoint, value) in [("stats_query", "value"), ("stats_query_range", "values")] {
        let answer = ask(&server, endpoint, &query).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let found: Value = serde_json::from_str(&answer.text()).expect("JSON");
        let series = found["data"]["result"].as_array().expect("series");
        assert_eq!(series.len(), 6, "{found}");
        for one in series {
            let point = if value == "value" { &one[value] } else { &one[value][0] };
            let text = if one["metric"]["__name__"] == "m" { "" } else { "10" };
            assert_eq!(point[1], text, "{one}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms() {
    let (server, _dir) = start(30).await;
    let path = format!("{API}/query");
    let post = async |path: &str, body: &str| server.post(path, &[FORM], body.as_bytes().to_vec()).await;
    assert_eq!(values(&post(&path, "query=level%3Aerror+%7C+sort+by+%28n%29").await, "n"), ["0", "10", "20"]);
    // In the body, in the URL, in both: the body counts.
    assert_eq!(values(&post(&format!("{path}?limit=1"), "query=*").await, "n"), ["29"]);
    assert_eq!(rows(&post(&format!("{path}?limit=1"), "query=*&limit=2").await).len(), 2);
    assert_eq!(values(&post(&format!("{path}?limit=1&offset=3"), "query=*").await, "n"), ["26"]);
    let bare = server.post(&format!("{path}?query=*&limit=3"), &[], vec![]).await;
    assert_eq!(rows(&bare).len(), 3);
    let multipart = [("content-type", "multipart/form-data; boundary=x")];
    let answer = server.post(&path, &multipart, b"--x\r\n".to_vec()).await;
    assert_eq!((answer.status, answer.text().contains("x-www-form-urlencoded")), (400, true), "{}", answer.text());
    for endpoint in ["hits", "field_names", "facets", "streams", "stats_query"] {
        let answer = post(&format!("{API}/{endpoint}"), "query=*+%7C+stats+count%28%29+n").await;
        assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
    }
    // Answers may be compressed, and are the same then.
    let client = reqwest::Client::new();
    let url = server.url(&format!("{path}?query=*+%7C+sort+by+%28n%29"));
    let plain = client.get(&url).send().await.expect("an answer");
    assert!(!plain.headers().contains_key("content-encoding"));
    let plain = plain.bytes().await.expect("a whole answer");
    for encoding in ["gzip", "zstd"] {
        let packed = client.get(&url).header("accept-encoding", encoding).send().await.expect("an answer");
        assert_eq!(
            (packed.status().as_u16(), &packed.headers()["content-encoding"]),
            (200, &encoding.parse().expect("a value"))
        );
        let packed = packed.bytes().await.expect("a whole answer");
        assert!(packed.len() < plain.len(), "{encoding}: {} of {} bytes", packed.len(), plain.len());
        let unpacked = if encoding == "gzip" {
            let mut out = Vec::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut out).expect("gzip");
            out
        } else {
            // What an encoder holds is its window, mostly: 2^19 bytes (RFC 8878, 3.1.1.1.2).
            assert_eq!((packed[4] & 0x20, packed[5]), (0, 9 << 3), "{:x?}", &packed[..6]);
            zstd::decode_all(&packed[..]).expect("zstd")
        };
        assert!(unpacked == plain, "{encoding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_limited() {
    let hour = Options::default().env("QUIVER_QUERY__LOGS_TIMEOUT", "1h").env("QUIVER_QUERY__TIMEOUT", "1h");
    let (server, _dir) = start_with(30, &hour).await;
    // A sequence without end is made and counted.
    let endless = "* | generate_sequence 1000000000000 | stats count() n";
    for (endpoint, timeout) in [("query", "300ms"), ("query", "0.3"), ("stats_query", "300ms")] {
        let answer = ask(&server, endpoint, &[("query", endless), ("timeout", timeout)]).await;
        assert_eq!(answer.status, 503, "{endpoint}: {}", answer.text());
        // By its own limit: nobody waits for that of the server.
        assert!(answer.text().contains("timed out"), "{}", answer.text());
        assert!(answer.headers.contains_key("retry-after"));
    }
    // What cannot be read is no limit.
    assert_eq!(rows(&ask(&server, "query", &[("query", "*"), ("timeout", "soon")]).await).len(), 30);
    let running = async || {
        let text = server.get("/metrics").await.text();
        text.lines().find_map(|l| l.strip_prefix("quiver_queries_running ")).map(str::to_owned)
    };
    let began = std::time::Instant::now();
    while running().await.as_deref() != Some("0") {
        assert!(began.elapsed() < Duration::from_mins(5), "a query goes on behind its time limit");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends a request on a connection of its own.
pub(crate) fn open(server: &Server, target: &str) -> std::net::TcpStream {
    let mut socket = std::net::TcpStream::connect(&server.http).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_mins(5))).expect("a socket");
    let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).expect("sent");
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_behind_the_first_byte_breaks_the_answer_off() {
    let dir = tempfile::tempdir().expect("a folder");
    let hour = Options::default().env("QUIVER_QUERY__LOGS_TIMEOUT", "1h").env("QUIVER_HTTP__SEND_TIMEOUT", "1h");
    let server = Server::start(dir.path(), &hour).await;
    // More than all buffers between hold: the reader waits until the time of the query is over. Where that is over before
    // the first byte, there is an answer of another kind; then the query gets more time.
    let whole = tokio::task::spawn_blocking(move || {
        let mut last = (String::new(), Vec::new());
        for seconds in [2, 20, 60] {
            let timeout = Duration::from_secs(seconds);
            let query = "*%20%7C%20generate_sequence%20100000000";
            let mut socket = open(&server, &format!("{API}/query?query={query}&timeout={seconds}s"));
            let mut begin = [0; 4096];
            let n = socket.read(&mut begin).expect("the head");
            let begin = String::from_utf8_lossy(&begin[..n]).into_owned();
            if begin.starts_with("HTTP/1.1 200 OK") {
                std::thread::sleep(timeout + Duration::from_secs(1));
            }
            let mut rest = Vec::new();
            // A reset is an end like any other.
            let _ = socket.read_to_end(&mut rest);
            last = (begin, rest);
            if last.0.starts_with("HTTP/1.1 200 OK") {
                break;
            }
        }
        (last.0, last.1, server)
    });
    let (begin, rest, server) = whole.await.expect("no panic");
    assert!(begin.starts_with("HTTP/1.1 200 OK"), "{begin}");
    assert!(begin.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{begin}");
    assert!(!rest.is_empty());
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the answer looks whole");
    // The server goes on.
    assert_eq!(ask(&server, "query", &[("query", "*")]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_of_every_endpoint() {
    let (server, _dir) = start(30).await;
    let others: [Asked; 6] = [
        ("query", "level:error | stats by (app) count() n", &[]),
        ("tail", "level:error", &[]),
        ("hits", "*", &[("field", "app")]),
        ("field_values", "*", &[("field", "level")]),
        ("stream_field_values", "*", &[("field", "app")]),
        ("stats_query_range", "* | stats count() n", &[("step", "1h")]),
    ];
    for (endpoint, query, more) in ENDPOINTS.into_iter().chain(others) {
        for explain in ["true", "1", "analyze"] {
            let params: Vec<_> = [("query", query), ("explain", explain)].iter().chain(more).copied().collect();
            let answer = ask(&server, endpoint, &params).await;
            assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
            let plans = answer.json();
            assert!(plans["logical"].as_str().is_some_and(|text| text.contains("logs")), "{endpoint}: {plans}");
            assert!(plans["physical"].is_string(), "{endpoint}: {plans}");
            assert!(plans["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()), "{endpoint}: {plans}");
            assert_eq!(plans["totals"].is_object(), explain == "analyze", "{endpoint}: {plans}");
        }
        if endpoint != "tail" {
            let params: Vec<_> = [("query", query), ("explain", "false")].iter().chain(more).copied().collect();
            assert!(!ask(&server, endpoint, &params).await.text().contains("\"physical\""), "{endpoint}");
        }
        let params: Vec<_> = [("query", query), ("explain", "maybe")].iter().chain(more).copied().collect();
        let answer = ask(&server, endpoint, &params).await;
        assert_eq!(answer.status, 400, "{endpoint}: {}", answer.text());
        assert!(answer.text().contains("explain") && answer.text().contains("analyze"), "{}", answer.text());
    }
}

/// What its web interface asks of VictoriaLogs before it shows a query.
#[tokio::test(flavor = "multi_thread")]
async fn the_times_that_a_query_asks_for() {
    let (server, _dir) = start(30).await;
    let check = async |query: &str, given: (&str, &str), expected: Value| {
        let params = [("query", query), ("start", given.0), ("end", given.1)];
        for base in [API, "/select/logsql"] {
            let answer = server.ask(&format!("{base}/query_time_range"), &params).await;
            assert_eq!((answer.status, answer.json()), (200, expected.clone()), "{query}: {}", answer.text());
        }
        let (start, end) = (expected["start"].as_str().expect("a time"), expected["end"].as_str().expect("a time"));
        let within = ask(&server, "query", &[("query", query), ("start", start), ("end", end)]).await;
        rows(&within).len()
    };
    let given = ("1741564803", "1741564808");
    let open = json!({"start": "2025-03-10T00:00:03Z", "end": "2025-03-10T00:00:08Z", "hasTimeFilter": false});
    assert_eq!(check("*", given, open).await, 6);
    let own = json!({"start": "2025-03-10T00:00:05Z", "end": "2025-03-10T00:00:14.999999999Z", "hasTimeFilter": true});
    assert_eq!(check("_time:[2025-03-10T00:00:05Z, 2025-03-10T00:00:14Z] level:info", given, own).await, 9);
    let from = json!({"start": "2025-03-10T00:00:05Z", "end": "2025-03-10T00:00:08Z", "hasTimeFilter": true});
    assert_eq!(check("_time:>=2025-03-10T00:00:05Z | fields n", given, from).await, 4);
    for (name, wrong) in [("start", "yesterday"), ("end", "x"), ("time", "x"), ("extra_filters", "(a")] {
        let answer = ask(&server, "query_time_range", &[("query", "*"), (name, wrong)]).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
    }
    let answer = ask(&server, "query_time_range", &[]).await;
    assert_eq!((answer.status, answer.text().contains("`query`")), (400, true), "{}", answer.text());
}

/// Breaks if `vlogscli` has nothing to show.
#[tokio::test(flavor = "multi_thread")]
async fn answers_say_how_long_they_took() {
    let (server, _dir) = start(3).await;
    let answer = ask(&server, "hits", &[("query", "*")]).await;
    let took = answer.headers["vl-request-duration-seconds"].to_str().expect("text");
    assert!(took.parse::<f64>().is_ok(), "{took}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_order_what_answers_list() {
    let (server, _dir) = start(30).await;
    // Each value once: the order is that of texts, whatever the limit.
    let mut texts: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    texts.sort_unstable();
    for limit in ["0", "7", "30", "31"] {
        let params = [("query", "*"), ("field", "n"), ("limit", limit)];
        let answer = ask(&server, "field_values", &params).await.json();
        let values: Vec<&str> =
            answer["values"].as_array().expect("a list").iter().filter_map(|v| v["value"].as_str()).collect();
        assert_eq!(values, texts[..if limit == "7" { 7 } else { 30 }], "limit {limit}");
    }
    let series = [("query", "* | by (n, app) count() x, max(n) y"), ("step", "1d")];
    let answer = ask(&server, "stats_query_range", &series).await.json();
    let result = answer["data"]["result"].as_array().expect("series");
    let shown: Vec<String> =
        result.iter().map(|s| format!("{} {}", s["metric"]["__name__"], s["metric"]["n"])).collect();
    let expected = |name: &'static str| texts.iter().map(move |n| format!("\"{name}\" \"{n}\""));
    assert_eq!(shown, expected("x").chain(expected("y")).collect::<Vec<_>>());
    for (endpoint, params, order) in [
        ("field_values", [("query", "*"), ("field", "n")], "LogsSort: by=[__q_hits desc, n]"),
        ("stats_query_range", series, "LogsSort: by=[n, app, _time]"),
    ] {
        let params: Vec<_> = params.into_iter().chain([("explain", "true")]).collect();
        let plans = ask(&server, endpoint, &params).await.json();
        assert!(plans["logical"].as_str().is_some_and(|text| text.starts_with(order)), "{endpoint}: {plans}");
    }
}

/// Breaks if a histogram is told as one text, of which nothing can be drawn.
#[tokio::test(flavor = "multi_thread")]
async fn histograms_are_series_of_buckets() {
    let (server, _dir) = start(30).await;
    let result = async |endpoint: &str, params: &[(&str, &str)]| {
        let answer = ask(&server, endpoint, params).await;
        assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
        answer.json()["data"]["result"].as_array().cloned().unwrap_or_default()
    };
    let [one, two, three] = ["8.799e-01...1.000e+00", "1.896e+00...2.154e+00", "2.783e+00...3.162e+00"];
    let bucket = |range: &str| json!({"__name__": "h_bucket", "vmrange": range});
    let query = "n:in(1, 2, 3) | stats histogram(n) as h, uniq_values(n) as u, histogram(nothing) as e";
    let found: Vec<(Value, Value)> = result("stats_query", &[("query", query)])
        .await
        .iter()
        .map(|series| (series["metric"].clone(), series["value"][1].clone()))
        .collect();
    let hit = |range: &str| (bucket(range), json!("1"));
    let list = (json!({"__name__": "u"}), json!("[\"1\",\"2\",\"3\"]"));
    // Series are in the order of their labels.
    assert_eq!(found, [hit(two), hit(three), hit(one), list]);
    let query = [("query", "n:in(1, 2, 3) | stats histogram(n) as h"), ("step", "1s")];
    let found: Vec<(Value, Value)> = result("stats_query_range", &query)
        .await
        .iter()
        .map(|series| (series["metric"].clone(), series["values"].clone()))
        .collect();
    let at = |range: &str, n: i64| (bucket(range), json!([[START_S + n, "1"]]));
    assert_eq!(found, [at(two, 2), at(three, 3), at(one, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_as_csv() {
    let (server, _dir) = start(3).await;
    for (query, expected) in [
        ("* | fields n, level, app | sort by (n)", "n,level,app\n0,error,app0\n1,info,app1\n2,info,app2\n"),
        ("* | stats by (app) count() c | sort by (app)", "app,c\napp0,1\napp1,1\napp2,1\n"),
        ("n:=9 | fields n, app", "n,app\n"),
        // What the rows have, by name.
        (
            "n:=1 | delete _time, _stream, _stream_id | format \"<n>, \\\"<app>\\\"\" as q",
            "_msg,app,level,n,q\nrequest 1 served,app1,info,1,\"1, \"\"app1\"\"\"\n",
        ),
    ] {
        let answer = ask(&server, "query", &[("query", query), ("format", "csv")]).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{query}");
        assert_eq!(answer.headers["content-type"], "text/csv", "{query}");
    }
    // A query of few rows runs once: another run may find rows with other fields.
    let plans = async || -> u64 {
        let figures = server.get("/metrics").await.text();
        let name = "quiver_query_plans_total{language=\"logsql\"} ";
        figures.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).expect("a number")
    };
    let before = plans().await;
    let few = ask(&server, "query", &[("query", "* | limit 2"), ("format", "csv")]).await;
    assert_eq!((few.text().lines().count(), plans().await - before), (3, 1), "{}", few.text());
    let refused = ask(&server, "query", &[("query", "*"), ("format", "xml")]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("format"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_are_ignored_if_asked() {
    let (server, _dir) = start(3).await;
    let query = ("query", "n:in(0, 2) | stats count() c");
    assert_eq!(values(&ask(&server, "query", &[query]).await, "c"), ["2"]);
    let ignoring = ask(&server, "query", &[query, ("ignore_pipes", "1"), ("limit", "9")]).await;
    assert_eq!(values(&ignoring, "n"), ["2", "0"]);
    assert_eq!(values(&ask(&server, "query", &[query, ("ignore_pipes", "false")]).await, "c"), ["2"]);
    assert_eq!(ask(&server, "query", &[query, ("ignore_pipes", "x")]).await.status, 400);
}

/// What alerts show of the rows that they count: `row_any` and its kin are labels beside numbers.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_stand_for_others_are_labels() {
    let (server, _dir) = start(30).await;
    let metrics = async |endpoint: &str, pipes: &str| -> Vec<Value> {
        let query = format!("n:in(1, 4, 2) | stats by (app) count() c, row_max(n, _msg) r | sort by (app){pipes}");
        let answer = ask(&server, endpoint, &[("query", &query)]).await;
        assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
        let result = answer.json()["data"]["result"].as_array().cloned().unwrap_or_default();
        result.iter().map(|series| series["metric"].clone()).collect()
    };
    let row = |n: i64| json!({"_msg": format!("request {n} served")}).to_string();
    for endpoint in ["stats_query", "stats_query_range"] {
        let series = |app: &str, n: i64| json!({"__name__": "c", "app": app, "r": row(n)});
        assert_eq!(metrics(endpoint, "").await, [series("app1", 4), series("app2", 2)], "{endpoint}");
        let series = |app: &str, n: i64| json!({"__name__": "c", "app": app, "_msg": format!("request {n} served")});
        let unpacked = metrics(endpoint, " | unpack_json from r fields (_msg) | delete r").await;
        assert_eq!(unpacked, [series("app1", 4), series("app2", 2)], "{endpoint}");
    }
}
