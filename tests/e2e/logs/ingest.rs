//! Log ingestion over HTTP: responses of each endpoint, in all encodings, to valid and invalid requests; counters.

use std::io::Write;

use quiver_tests::bodies::{compress, field, varint};
use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

const LINES: &str = "/insert/jsonline";
const BULK: &str = "/insert/searchengine/_bulk";
const PUSH: &str = "/insert/aggregator/api/v1/push";
const SAAS: &str = "/insert/saas/api/v2/logs";
const OTLP: &str = "/insert/opentelemetry/v1/logs";
const JSON: (&str, &str) = ("content-type", "application/json");
const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

/// Names and values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

async fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    (Server::start(dir.path(), &Options::default()).await, dir)
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(body).expect("memory");
    e.finish().expect("an end")
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(body).expect("memory");
    e.finish().expect("an end")
}

fn otlp_body(message: &str) -> Vec<u8> {
    let wrap = |number, inner: &[u8]| {
        let mut out = Vec::new();
        field(&mut out, number, inner);
        out
    };
    let mut record = vec![0x09];
    record.extend_from_slice(&1_741_600_000_000_000_000u64.to_le_bytes());
    record.extend(wrap(5, &wrap(1, message.as_bytes())));
    wrap(1, &wrap(2, &wrap(2, &record)))
}

fn push_body(message: &str) -> Vec<u8> {
    let mut time = vec![0x08];
    varint(&mut time, 1_741_600_000);
    let mut entry = Vec::new();
    field(&mut entry, 1, &time);
    field(&mut entry, 2, message.as_bytes());
    let mut stream = Vec::new();
    field(&mut stream, 1, b"{app=\"x\"}");
    field(&mut stream, 2, &entry);
    let mut body = Vec::new();
    field(&mut body, 1, &stream);
    body
}

fn push_json(message: &str) -> Vec<u8> {
    json!({"streams": [{"stream": {"app": "x"}, "values": [["1741600000000000000", message]]}]})
        .to_string()
        .into_bytes()
}

/// Reads a counter with labels, `quiver_logs_…`.
async fn counter(server: &Server, name: &str, labels: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("{name}{{{labels}}} ")));
    line.and_then(|v| v.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name}{{{labels}}}")) as u64
}

async fn rows(server: &Server, endpoint: &str) -> u64 {
    counter(server, "quiver_logs_rows_total", &format!("endpoint=\"{endpoint}\"")).await
}

fn assert_answer(name: &str, answer: &Answer, status: u16, body: Option<&str>) {
    assert_eq!(answer.status, status, "{name}: {}", answer.text());
    if let Some(body) = body {
        assert_eq!(answer.text(), body, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encodings_of_all_formats() {
    let (server, _dir) = start().await;
    let bulk = b"{\"create\":{}}\n{\"_msg\":\"m\"}\n".to_vec();
    let formats: [(&str, &str, Vec<u8>, Pairs<'_>, u16); 7] = [
        ("jsonline", LINES, b"{\"_msg\":\"m\"}\n".to_vec(), &[], 200),
        ("searchengine", BULK, bulk, &[], 200),
        ("aggregator", PUSH, push_json("m"), &[JSON], 204),
        ("aggregator", PUSH, push_body("m"), &[PROTOBUF], 204),
        ("saas", SAAS, b"[{\"message\":\"m\"}]".to_vec(), &[JSON], 202),
        ("opentelemetry", OTLP, otlp_body("m"), &[PROTOBUF], 200),
        (
            "opentelemetry",
            "/v1/logs",
            b"{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":{\"stringValue\":\"m\"}}]}]}]}".to_vec(),
            &[JSON],
            200,
        ),
    ];
    for (endpoint, path, body, headers, status) in &formats {
        let encodings = [
            (None, body.clone()),
            (Some("gzip"), gzip(body)),
            (Some("deflate"), zlib(body)),
            (Some("zstd"), zstd::stream::encode_all(&body[..], 1).expect("memory")),
            (Some("snappy"), compress(body)),
        ];
        for (encoding, packed) in encodings {
            // Protobuf is pushed in snappy even where nothing says so.
            let is_push = encoding.is_none() && *path == PUSH && headers[0] == PROTOBUF;
            let packed = if is_push { compress(&packed) } else { packed };
            let mut headers = headers.to_vec();
            headers.extend(encoding.map(|e| ("content-encoding", e)));
            let before = rows(&server, endpoint).await;
            let answer = server.post(path, &headers, packed.clone()).await;
            assert_answer(&format!("{path} {encoding:?}"), &answer, *status, None);
            assert_eq!(rows(&server, endpoint).await, before + 1, "{path} {encoding:?}");
            if encoding.is_some() {
                let answer = server.post(path, &headers, packed[..packed.len() - 2].to_vec()).await;
                assert_answer(&format!("{path} {encoding:?} cut"), &answer, 400, None);
            }
        }
        let mut headers = headers.to_vec();
        headers.push(("content-encoding", "br"));
        let before = rows(&server, endpoint).await;
        assert_answer(path, &server.post(path, &headers, body.clone()).await, 415, None);
        headers.pop();
        headers.push(("ProjectID", "7"));
        assert_answer(path, &server.post(path, &headers, body.clone()).await, 400, None);
        headers.pop();
        headers.push(("AccountID", "0"));
        headers.push(("Logs-Extra-Fields", "a"));
        assert_answer(path, &server.post(path, &headers, body.clone()).await, 400, None);
        assert_eq!(rows(&server, endpoint).await, before, "{path}");
        headers.pop();
        let body = if *path == PUSH && headers[0] == PROTOBUF { compress(body) } else { body.clone() };
        assert_answer(path, &server.post(path, &headers, body).await, *status, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines() {
    let (server, _dir) = start().await;
    let post = async |body: &[u8], kind: &str| server.post(LINES, &[("content-type", kind)], body.to_vec()).await;
    for kind in ["application/stream+json", "application/x-www-form-urlencoded", "text/plain", ""] {
        let before = rows(&server, "jsonline").await;
        assert_answer(kind, &post(b"{\"_msg\":\"a\"}\n\n{\"_msg\":\"b\"}", kind).await, 200, Some(""));
        assert_eq!(rows(&server, "jsonline").await, before + 2, "{kind}");
    }
    assert_answer("empty", &post(b"", "").await, 200, Some(""));
    assert_answer("bad", &post(b"foo\nbar\n", "").await, 400, None);
    assert_answer("bad time", &post(b"{\"_time\":\"x\",\"_msg\":\"m\"}", "").await, 400, None);
    assert_answer("one good", &post(b"foo\n{\"_msg\":\"m\"}\nbar\n", "").await, 200, Some(""));
    // Lines around one that is too long.
    let long = format!("{{\"_msg\":\"1\"}}\n{{\"_msg\":\"{}\"}}\n{{\"_msg\":\"2\"}}\n", "x".repeat(300_000));
    let before = rows(&server, "jsonline").await;
    assert_answer("long", &post(long.as_bytes(), "").await, 200, Some(""));
    assert_eq!(rows(&server, "jsonline").await, before + 2);
    assert_answer("future", &post(b"{\"_time\":\"2090-01-01T00:00:00Z\",\"_msg\":\"m\"}", "").await, 200, Some(""));
    for (reason, count) in [("unreadable", 4), ("bad_time", 1), ("long_line", 1), ("too_new", 1), ("too_old", 0)] {
        let labels = format!("endpoint=\"jsonline\",reason=\"{reason}\"");
        assert_eq!(counter(&server, "quiver_logs_rows_dropped_total", &labels).await, count, "{reason}");
    }
    // More than any buffer, in one body.
    let line = format!("{{\"_msg\":\"{}\",\"n\":1,\"app\":\"a\"}}\n", "word ".repeat(40));
    let many = line.repeat(100_000);
    let before = rows(&server, "jsonline").await;
    let path = format!("{LINES}?_stream_fields=app");
    assert_answer("many", &server.post(&path, &[], many.clone().into_bytes()).await, 200, Some(""));
    let headers = [("content-encoding", "gzip")];
    assert_answer("many", &server.post(&path, &headers, gzip(many.as_bytes())).await, 200, Some(""));
    assert_eq!(rows(&server, "jsonline").await, before + 200_000);
    // A transfer that breaks: the lines before stay, a line without its end does not.
    let before = rows(&server, "jsonline").await;
    let mut socket = std::net::TcpStream::connect(&server.http).expect("a connection");
    let chunk = "{\"_msg\":\"1\"}\n{\"_msg\":\"2\"}\n{\"_msg\":\"3\"}";
    let head = format!(
        "POST {LINES} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n",
        chunk.len()
    );
    socket.write_all(head.as_bytes()).expect("sent");
    drop(socket);
    let began = std::time::Instant::now();
    while rows(&server, "jsonline").await < before + 2 {
        assert!(began.elapsed().as_secs() < 60, "lines of a broken transfer are lost");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(rows(&server, "jsonline").await, before + 2);
    let bomb = zstd::stream::encode_all(&vec![b'\n'; 100 << 20][..], 1).expect("memory");
    assert_answer("bomb", &server.post(LINES, &[("content-encoding", "zstd")], bomb).await, 413, None);
    assert_eq!(server.get(LINES).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk() {
    let (server, _dir) = start().await;
    let post = async |path: &str, body: &str| server.post(path, &[], body.as_bytes().to_vec()).await;
    let body = "{\"create\":{\"_index\":\"i\"}}\n{\"_msg\":\"a\"}\n{\"index\":{}}\n{\"_msg\":\"b\"}\n";
    for path in [BULK, "/insert/searchengine/logs-2025/_bulk"] {
        let answer = post(path, body).await;
        assert_eq!(answer.headers["x-elastic-product"], "Elasticsearch");
        assert_eq!(answer.headers["content-type"], "application/json");
        let mut answer = answer.json();
        assert!(answer["took"].is_u64());
        answer["took"] = json!(0);
        let items = json!([{"create": {"status": 201}}, {"create": {"status": 201}}]);
        assert_eq!(answer, json!({"took": 0, "errors": false, "items": items}));
    }
    let mixed = format!("{{\"delete\":{{\"_id\":\"1\"}}}}\n{{\"create\":{{}}}}\nnonsense\n{body}");
    let answer = post(BULK, &mixed).await.json();
    let statuses: Vec<u64> = answer["items"].as_array().expect("items").iter().map(status_of_item).collect();
    assert_eq!((answer["errors"].as_bool(), statuses), (Some(true), vec![400, 400, 201, 201]));
    assert_eq!(rows(&server, "searchengine").await, 6);
    for broken in [format!("{body}{{\"creat\":{{}}}}\n{{}}\n"), format!("{body}{{\"create\":{{}}}}\n")] {
        let answer = post(BULK, &broken).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["status"], 400);
        assert_eq!(answer.json()["error"]["type"], "illegal_argument_exception");
    }
    // Nothing of a broken request is stored.
    assert_eq!(rows(&server, "searchengine").await, 6);
}

fn status_of_item(item: &Value) -> u64 {
    let item = item.as_object().and_then(|item| item.values().next()).expect("an action");
    assert_eq!(item.get("error").is_some(), item["status"] == 400, "{item}");
    item["status"].as_u64().expect("a status")
}

#[tokio::test(flavor = "multi_thread")]
async fn other_formats() {
    let (server, _dir) = start().await;
    for path in [PUSH, "/insert/aggregator/loki/api/v1/push", "/loki/api/v1/push"] {
        assert_answer(path, &server.post(path, &[JSON], push_json("m")).await, 204, Some(""));
        assert_answer(
            path,
            &server.post(path, &[JSON], b"{\"streams\":[{\"values\":[[1,\"x\"]]}]}".to_vec()).await,
            400,
            None,
        );
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let form = server.post(path, &headers, push_json("m")).await;
        assert!(form.status == 400 && form.text().contains("`Content-Type: application/json`"), "{}", form.text());
    }
    assert_eq!(rows(&server, "aggregator").await, 3);
    for (body, status) in [
        ("[{\"message\":\"a\",\"ddtags\":\"no_colon,e:f\"},{\"message\":\"b\"}]", 202),
        ("{\"message\":\"c\"}", 202),
        ("[]", 202),
        ("[{", 400),
        ("x", 400),
        ("[{\"message\":\"c\",\"timestamp\":\"yesterday\"}]", 400),
    ] {
        let answer = server.post(SAAS, &[JSON], body.as_bytes().to_vec()).await;
        assert_answer(body, &answer, status, (status == 202).then_some("{}"));
    }
    assert_eq!(rows(&server, "saas").await, 3);
    assert_answer("otlp", &server.post(OTLP, &[PROTOBUF], otlp_body("m")).await, 200, Some(""));
    let answer = server.post(OTLP, &[PROTOBUF], b"\xff\xff garbage".to_vec()).await;
    // A `google.rpc.Status`: code 3, then a message.
    assert_eq!((answer.status, &answer.body[..3]), (400, &[0x08, 3, 0x12][..]));
    let future = json!({"timeUnixNano": "3786912000000000000", "body": {"stringValue": "x"}});
    let good = json!({"body": {"stringValue": "x"}, "attributes": [{"key": "n", "value": {"intValue": "5"}}]});
    let body =
        |records: Value| json!({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).to_string().into_bytes();
    let answer = server.post(OTLP, &[JSON], body(json!([good]))).await;
    assert_answer("otlp", &answer, 200, Some("{\"partialSuccess\":{}}"));
    let answer = server.post(OTLP, &[JSON], body(json!([good, future]))).await.json();
    assert_eq!(answer["partialSuccess"]["rejectedLogRecords"], "1", "{answer}");
    assert!(answer["partialSuccess"]["errorMessage"].as_str().is_some_and(|t| t.contains("future")), "{answer}");
    for trace in ["0", "0g", "A".repeat(33).as_str()] {
        let answer = server.post(OTLP, &[JSON], body(json!([{"traceId": trace}]))).await;
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (400, Some(3)), "{trace}");
    }
    let answer = server.post(OTLP, &[("content-type", "text/plain")], vec![]).await;
    let kind = answer.headers["content-type"].to_str().expect("a text");
    assert_eq!((answer.status, kind), (415, "text/plain; charset=utf-8"));
    assert!(answer.text().starts_with("unsupported content type `text/plain`"), "{}", answer.text());
    // The OTLP port takes them too.
    let client = reqwest::Client::new();
    let url = format!("http://{}/v1/logs", server.otlp_http);
    let sent = client.post(url).header(PROTOBUF.0, PROTOBUF.1).body(otlp_body("m")).send().await.expect("an answer");
    assert_eq!(sent.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes() {
    let (server, _dir) = start().await;
    let get = async |path: &str| server.get(path).await;
    assert_answer("ready", &get("/insert/ready").await, 200, Some("{\"status\":\"ok\"}"));
    assert_answer("ready", &get("/insert/aggregator/ready").await, 200, Some("ready"));
    assert_answer("ready at the root", &get("/ready").await, 200, Some("OK\n"));
    assert_answer("validate", &get("/insert/saas/api/v1/validate").await, 200, Some("{}"));
    let engine = "/insert/searchengine";
    for path in ["", "/"] {
        let answer = get(&format!("{engine}{path}")).await;
        assert_answer(path, &answer, 200, Some("{\"version\":{\"number\":\"8.9.0\"}}"));
        assert_eq!(answer.headers["x-elastic-product"], "Elasticsearch");
        let head = reqwest::Client::new().head(server.url(&format!("{engine}{path}"))).send().await.expect("an answer");
        assert_eq!(
            (head.status().as_u16(), head.headers()["x-elastic-product"].as_bytes()),
            (200, &b"Elasticsearch"[..])
        );
    }
    let license = get(&format!("{engine}/_license")).await.json();
    assert_eq!((&license["license"]["type"], &license["license"]["status"]), (&json!("oss"), &json!("active")));
    for path in [
        "_ilm/policy/x",
        "_index_template/x",
        "_template/x",
        "_component_template/x",
        "_ingest/pipeline/x",
        "_nodes/http",
        "_logstash/pipeline",
        "_xpack",
        "_cluster/health",
        "_alias/x",
        "_data_stream/x",
        "_rollup/job/x",
        "logstash",
        "logstash-2025.03.10-000001",
    ] {
        let path = format!("{engine}/{path}");
        assert_answer(&path, &get(&path).await, 200, Some("{}"));
        let put = reqwest::Client::new().put(server.url(&path)).body("{}").send().await.expect("an answer");
        assert_eq!(put.status(), 200, "{path}");
    }
    // Every index seems to exist before it is created, and paths of documents are not taken for indexes.
    let client = reqwest::Client::new();
    for (path, index) in [("app", "app"), ("%3Capp-%7Bnow%2Fd%7D-000001%3E", "<app-{now/d}-000001>")] {
        let url = server.url(&format!("{engine}/{path}"));
        assert_eq!(client.head(&url).send().await.expect("an answer").status(), 200, "{path}");
        let made = client.put(&url).body("{}").send().await.expect("an answer");
        let made: Value = serde_json::from_slice(&made.bytes().await.expect("a body")).expect("JSON");
        assert_eq!(made, json!({"acknowledged": true, "shards_acknowledged": true, "index": index}), "{path}");
        assert_eq!(client.post(&url).body("{}").send().await.expect("an answer").status(), 404, "{path}");
    }
    for (path, told) in [("_search", "`/select/logsql/query`"), ("app/_doc", "`_bulk`")] {
        let unknown = get(&format!("{engine}/{path}")).await;
        assert_eq!((unknown.status, unknown.headers["x-elastic-product"].as_bytes()), (404, &b"Elasticsearch"[..]));
        assert!(unknown.text().contains(told), "{}", unknown.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn journals() {
    let (server, _dir) = start().await;
    let (upload, kind) = ("/insert/journald/upload", [("content-type", "application/vnd.fdo.journal")]);
    let body = b"_HOSTNAME=h\nPRIORITY=3\nMESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n\nMESSAGE=second\n\n";
    let answer = server.post(upload, &kind, body.to_vec()).await;
    assert_answer(upload, &answer, 200, Some(""));
    assert_eq!(answer.headers["accept-encoding"], "zstd");
    assert_eq!(rows(&server, "journald").await, 2);
    let found = server.get("/select/logsql/query?query=level:error").await.json();
    assert_eq!((&found["_msg"], &found["_stream"]), (&json!("a\nb"), &json!("{_HOSTNAME=\"h\"}")), "{found}");
    let answer = server.post(upload, &kind, b"{\"a\":\"b=c\"}\n\n".to_vec()).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().starts_with("no entry could be read: 1 dropped"), "{}", answer.text());
}

/// Formats that have no place for it tell in a header what was not taken.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_is_told() {
    let (server, _dir) = start().await;
    let lines = "{\"_msg\":\"m\"}\nno JSON\n{\"_time\":\"2090-01-01T00:00:00Z\",\"_msg\":\"m\"}\n";
    let push = json!({"streams": [{"stream": {"a": "b"}, "values": [["3786912000000000000", "m"], ["1741600000000000000", "m"]]}]});
    let saas = json!([{"message": "m", "timestamp": 3_786_912_000_000_i64}]);
    for (path, body, status, told) in [
        (LINES, lines.to_owned(), 200, "unreadable=1, too_new=1"),
        (PUSH, push.to_string(), 204, "too_new=1"),
        (SAAS, saas.to_string(), 202, "too_new=1"),
    ] {
        let answer = server.post(path, &[JSON], body.into_bytes()).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.headers["x-quiver-dropped"], told, "{path}");
    }
    let good = server.post(LINES, &[JSON], b"{\"_msg\":\"m\"}".to_vec()).await;
    assert!(!good.headers.contains_key("x-quiver-dropped"), "{:?}", good.headers);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_collector() {
    let (server, _dir) = start().await;
    let collector = "/insert/splunk/services/collector";
    let body = "{\"time\":1741600000.25,\"host\":\"h\",\"event\":\"one\"}{\"time\":1741600001,\"event\":{\"message\":\"two\"}}";
    for path in ["", "/event", "/event/1.0"] {
        let answer = server.post(&format!("{collector}{path}"), &[JSON], body.as_bytes().to_vec()).await;
        assert_answer(path, &answer, 200, Some("{\"text\":\"Success\",\"code\":0}"));
    }
    let found = server.get("/select/logsql/query?query=one&limit=1").await.json();
    let place = (&found["_time"], &found["_stream"], &found["_msg"]);
    assert_eq!(place, (&json!("2025-03-10T09:46:40.25Z"), &json!("{host=\"h\"}"), &json!("one")), "{found}");
    // Senders that are told a host alone look here.
    let bare = server.post("/services/collector/event", &[JSON], b"{\"event\":\"bare\"}".to_vec()).await;
    assert_answer("a host alone", &bare, 200, Some("{\"text\":\"Success\",\"code\":0}"));
    for path in ["/raw", "/raw/1.0"] {
        let at = format!("{collector}{path}?host=raw&sourcetype=t");
        let answer = server.post(&at, &[], b"first line\n{\"second\":2}\n".to_vec()).await;
        assert_answer(path, &answer, 200, Some("{\"text\":\"Success\",\"code\":0}"));
    }
    let found = server.get("/select/logsql/query?query=host:raw+second&limit=1").await.json();
    let place = (&found["_stream"], &found["_msg"]);
    assert_eq!(place, (&json!("{host=\"raw\",sourcetype=\"t\"}"), &json!("{\"second\":2}")), "{found}");
    // Docker's driver asks so first.
    let ask = reqwest::Client::new().request(reqwest::Method::OPTIONS, server.url("/services/collector/event/1.0"));
    assert_eq!(ask.send().await.expect("an answer").status(), 200);
    let refused = server.post(&format!("{collector}/event"), &[JSON], b"no event".to_vec()).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(6)), "{}", refused.text());
    for path in ["/health", "/health/1.0"] {
        assert_eq!(server.get(&format!("{collector}{path}")).await.json()["code"], 17, "{path}");
        assert_eq!(server.get(&format!("/services/collector{path}")).await.json()["code"], 17, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slashes_that_stand_together_are_one() {
    let (server, _dir) = start().await;
    for path in ["//insert/jsonline", "/insert//jsonline", "/logs-api//insert/jsonline"] {
        assert_answer(path, &server.post(path, &[], b"{\"_msg\":\"m\"}".to_vec()).await, 200, Some(""));
    }
    assert_answer("ready", &server.get("/insert/loki//ready").await, 200, Some("ready"));
    let answer = server.get("//select//logsql/query?query=*%7Ccount()%20n").await;
    assert_answer("query", &answer, 200, Some("{\"n\":\"3\"}\n"));
    // Paths of other APIs are taken as they are.
    for path in ["//health/live", "/metrics-api//api/v1/query?query=1", "//admin/queries"] {
        assert_answer(path, &server.get(path).await, 404, None);
    }
}
