//! Trace ids in every form, at every endpoint that takes one (promise H10); errors, windows and services in the platform
//! API.

use std::collections::BTreeSet;

use quiver_tests::chunks::fields;
use quiver_tests::server::{Answer, Options, Server};
use serde_json::{Value, json};

/// 2026-03-01 12:00 UTC.
const NOON: i64 = 1_772_366_400_000_000_000;
const FORMATS: [&str; 3] = ["otlp", "spanarray", "traceobject"];
const ID: &str = "0000000000000000abcdef0123456789";

async fn start() -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (service, span, at) in [("front", "a", 0), ("back", "b", 1_000)] {
        let answer = send(&server, ID, service, span, NOON + at).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    }
    (server, dir)
}

async fn send(server: &Server, id: &str, service: &str, span: &str, at: i64) -> Answer {
    let resource = json!({"attributes": [{"key": "service.name", "value": {"stringValue": service}}]});
    let span = json!({"traceId": id, "spanId": format!("{span:0>16}"), "name": "op", "kind": 2,
        "startTimeUnixNano": at.to_string(), "endTimeUnixNano": (at + 500).to_string()});
    let body = json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]});
    server.post("/v1/traces", &[("content-type", "application/json")], body.to_string().into_bytes()).await
}

fn problem(answer: &Answer, status: u16, code: &str, at: &str) {
    assert_eq!(answer.status, status, "{at}: {}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{at}");
    let body = answer.json();
    assert_eq!((&body["code"], &body["status"]), (&json!(code), &json!(status)), "{at}: {body}");
    assert!(body["title"].is_string() && body["detail"].is_string() && body["type"].is_string(), "{at}: {body}");
    let id = answer.headers["x-request-id"].to_str().expect("plain");
    assert_eq!((&body["requestId"], &body["instance"]), (&json!(id), &json!(format!("/requests/{id}"))), "{at}");
}

/// Services of the spans of an export as a flat array.
async fn services(server: &Server, more: &str) -> Vec<String> {
    let answer = server.get(&format!("/platform-api/traces/{ID}/spanarray?{more}")).await;
    assert_eq!(answer.status, 200, "{more}: {}", answer.text());
    let spans = answer.json();
    let service = |span: &Value| span["localEndpoint"]["serviceName"].as_str().expect("a service").to_owned();
    let mut found: Vec<String> = spans.as_array().expect("spans").iter().map(service).collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_the_platform_api() {
    let (server, _dir) = start().await;
    let upper = ID.to_uppercase();
    let (short, unknown) = (&ID[16..], "f".repeat(32));
    let bad = [
        "0",
        &"0".repeat(32),
        &"1".repeat(15),
        &"1".repeat(33),
        "g0000000000000000000000000000000",
        "%20",
        "...",
        "%ff",
    ];
    for format in FORMATS {
        let get = async |id: &str| server.get(&format!("/platform-api/traces/{id}/{format}")).await;
        let whole = get(ID).await;
        assert_eq!(whole.status, 200, "{format}: {}", whole.text());
        // Upper case and the short form are the same trace.
        for same in [upper.as_str(), short] {
            assert_eq!(get(same).await.text(), whole.text(), "{format} {same}");
        }
        for id in bad {
            problem(&get(id).await, 400, "INVALID_TRACE_ID", &format!("{format} {id}"));
        }
        problem(&get("").await, 400, "INVALID_TRACE_ID", format);
        problem(&get(&unknown).await, 404, "TRACE_NOT_FOUND", format);
    }
    let answer = server.get(&format!("/platform-api/traces/{ID}/jaeger")).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let told = "there is no format `jaeger`; there are `otlp`, `spanarray`, `traceobject`";
    assert_eq!(answer.json()["detail"], json!(told));
    for call in ["", "/summary", "/statistics", "/critical-path", "/similar", "/logs", "/exemplars"] {
        for id in bad {
            problem(&server.get(&format!("/traces/{id}{call}")).await, 400, "INVALID_TRACE_ID", call);
        }
        assert_eq!(server.get(&format!("/traces/{upper}{call}")).await.status, 200, "{call}");
        problem(&server.get(&format!("/traces/{unknown}{call}")).await, 404, "TRACE_NOT_FOUND", call);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_the_other_apis() {
    let (server, _dir) = start().await;
    // They take ids without their leading zeros.
    for path in ["/api/traces", "/jaeger/api/traces", "/api/v3/traces", "/api/v2/trace", "/zipkin/api/v2/trace"] {
        let get = async |id: &str| server.get(&format!("{path}/{id}")).await.status;
        for same in [ID, &ID.to_uppercase(), &ID[16..], &ID[8..]] {
            assert_eq!(get(same).await, 200, "{path} {same}");
        }
        for id in ["0", "zz", &"0".repeat(32), &"1".repeat(33), "g0000000000000000000000000000000", "%ff"] {
            assert_eq!(get(id).await, 400, "{path} {id}");
        }
        assert_eq!(get(&"1".repeat(15)).await, 404, "{path}");
    }
    // What is no text is told in their forms, too.
    for (path, told) in [
        ("/jaeger/api/services/%ff/operations", r#""errors":[{"code":400,"msg":"the path is no UTF-8 text"}]"#),
        ("/api/v3/traces/%ff", r#"{"error":{"httpCode":400,"message":"the path is no UTF-8 text"}}"#),
        ("/tempo/api/v2/search/tag/%ff/values", "the path is no UTF-8 text\n"),
    ] {
        let answer = server.get(path).await;
        assert!(answer.status == 400 && answer.text().contains(told), "{path}: {}", answer.text());
    }
    for ids in ["", "x", ID, &format!("{ID},{ID}"), &format!("{ID},{}", "1".repeat(33))] {
        let answer = server.get_with("/api/v2/traceMany", &[("traceIds", ids)]).await;
        assert_eq!(answer.status, 400, "{ids}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_spans_that_are_sent() {
    let (server, _dir) = start().await;
    for id in ["", "abc", &"1".repeat(31), &"1".repeat(33), &"0".repeat(32), "g0000000000000000000000000000000"] {
        let answer = send(&server, id, "front", "c", NOON).await;
        let refused = answer.json()["partialSuccess"]["rejectedSpans"] == "1";
        assert!(answer.status == 400 || answer.status == 200 && refused, "{id}: {} {}", answer.status, answer.text());
        let span = json!([{"traceId": id, "id": "0000000000000001", "timestamp": NOON / 1000, "duration": 1}]);
        let answer = server.post("/api/v2/spans", &[], span.to_string().into_bytes()).await;
        // Zipkin's ids may have 16 digits or 32, or fewer.
        let taken = answer.status == 202 && (id == "abc" || id.len() == 31);
        assert!(answer.status == 400 || taken, "{id}: {} {}", answer.status, answer.text());
    }
    let upper = "ABCDEF00000000000000000000000001";
    assert_eq!(send(&server, upper, "front", "c", NOON).await.text(), "{}");
    assert_eq!(server.get(&format!("/traces/{}", upper.to_lowercase())).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_and_services_of_exports() {
    let (server, _dir) = start().await;
    assert_eq!(services(&server, "").await, ["back", "front"]);
    assert_eq!(services(&server, "service=front").await, ["front"]);
    assert_eq!(services(&server, "service=front&service=back").await, ["back", "front"]);
    assert_eq!(services(&server, &format!("start_time={}", NOON + 900)).await, ["back"]);
    assert_eq!(services(&server, &format!("end_time={}", NOON + 100)).await, ["front"]);
    let window = format!("start_time={}&end_time={}", NOON, NOON + 1_000);
    assert_eq!(services(&server, &window).await, ["back", "front"]);
    for format in FORMATS {
        let get = async |more: &str| server.get(&format!("/platform-api/traces/{ID}/{format}?{more}")).await;
        problem(&get("service=nobody").await, 404, "TRACE_NOT_FOUND", format);
        problem(&get(&format!("end_time={}", NOON - 1)).await, 404, "TRACE_NOT_FOUND", format);
        for bad in ["start_time=x", "end_time=-1", "start_time=1.5", "end_time=99999999999999999999"] {
            problem(&get(bad).await, 400, "INVALID_PARAMETER", bad);
        }
        problem(&get("start_time=2&end_time=1").await, 400, "INVALID_PARAMETER", format);
        let answer = get("download=1").await;
        let name = format!("attachment; filename=\"trace-{ID}-{format}.json\"");
        assert_eq!(answer.headers["content-disposition"], name.as_str(), "{format}");
    }
}

/// Would fail if a trace that becomes protobuf in parts lost spans between them, or its length were told wrongly.
#[tokio::test(flavor = "multi_thread")]
async fn long_traces_are_whole_as_protobuf() {
    const SPANS: usize = 700;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let span = |n: usize| {
        json!({"traceId": ID, "spanId": format!("{:016x}", n + 1), "name": format!("op{n}"), "kind": 2,
            "startTimeUnixNano": (NOON + n as i64).to_string(), "endTimeUnixNano": (NOON + 1_000).to_string()})
    };
    let spans: Vec<Value> = (0..SPANS).map(span).collect();
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let parts = |message: &[u8], number: u64| -> Vec<Vec<u8>> {
        fields(message).into_iter().filter(|(n, _)| *n == number).map(|(_, part)| part.bytes().to_vec()).collect()
    };
    for (path, is_wrapped) in [("/tempo/api/traces/", false), ("/tempo/api/v2/traces/", true)] {
        let answer = server.get_as(&format!("{path}{ID}"), &[("accept", "application/protobuf")]).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let trace = if is_wrapped { parts(&answer.body, 1).concat() } else { answer.body.clone() };
        let scopes = parts(&trace, 1).into_iter().flat_map(|block| parts(&block, 2));
        let spans = scopes.flat_map(|scope| parts(&scope, 2));
        let found: BTreeSet<Vec<u8>> = spans.flat_map(|span| parts(&span, 2)).collect();
        assert_eq!(found.len(), SPANS, "{path}");
    }
}

/// Would fail if Jaeger's clients got spans where they ask for what was received, or could not ask in the words of its API.
#[tokio::test(flavor = "multi_thread")]
async fn reports_are_told_as_they_were_received() {
    let (server, _dir) = start().await;
    // Another report of a span that is there.
    assert_eq!(send(&server, ID, "front", "a", NOON + 10).await.text(), "{}");
    for (path, key, names) in [
        ("/api/traces", "spanID", &["raw"][..]),
        ("/jaeger/api/traces", "spanID", &["raw"]),
        ("/api/v3/traces", "spanId", &["rawTraces", "raw_traces"]),
    ] {
        let get = async |more: &str| server.get(&format!("{path}/{ID}?{more}")).await;
        let told = async |more: &str| {
            let answer = get(more).await;
            assert_eq!(answer.status, 200, "{path} {more}: {}", answer.text());
            answer.text().matches(&format!("\"{key}\":\"000000000000000a\"")).count()
        };
        assert_eq!(told("").await, 1, "{path}");
        for name in names {
            assert_eq!(told(&format!("{name}=false")).await, 1, "{path} {name}");
            assert_eq!(told(&format!("{name}=true")).await, 2, "{path} {name}");
            assert_eq!(get(&format!("{name}=maybe")).await.status, 400, "{path} {name}");
        }
        // The id in base64, as the JSON of protobuf has it.
        assert_eq!(server.get(&format!("{path}/q83vASNFZ4k=")).await.status, 200, "{path}");
    }
    let search = async |path: &str, raw: &str| {
        let times = [("query.startTimeMin", "2026-03-01T11:00:00Z"), ("query.startTimeMax", "2026-03-01T13:00:00Z")];
        let params = [&times[..], &[("query.rawTraces", raw)]].concat();
        server.get_with(&format!("/api/v3/{path}"), &params).await
    };
    for (path, raw, status) in
        [("traces", "maybe", 400), ("trace-summaries", "true", 200), ("trace-summaries", "maybe", 400)]
    {
        let answer = search(path, raw).await;
        assert_eq!(answer.status, status, "{path} {raw}: {}", answer.text());
        assert!(status == 200 || answer.text().contains("query.rawTraces"), "{}", answer.text());
    }
    for (raw, reports) in [("false", 1), ("true", 2)] {
        let answer = search("traces", raw).await;
        assert_eq!(answer.status, 200, "{raw}: {}", answer.text());
        assert_eq!(answer.text().matches("\"spanId\":\"000000000000000a\"").count(), reports, "{raw}");
    }
    // Any word but `false` asks for lines.
    for (word, lines) in [("true", true), ("1", true), ("yes", true), ("false", false), ("", false)] {
        let answer = server.get(&format!("/api/traces/{ID}?prettyPrint={word}")).await;
        assert_eq!((answer.status, answer.text().trim_end().contains('\n')), (200, lines), "{word}");
    }
}
