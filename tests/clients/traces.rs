//! OpenTelemetry's Python SDK sends traces over HTTP and gRPC. Every read API must return them, exports that are imported
//! again must be the same trace, Python's protobuf must parse the OTLP export, and Google's gRPC client must read Tempo's streams.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::tools::python;

#[tokio::test(flavor = "multi_thread")]
async fn sdk_traces_come_back_and_go_round() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let sent = python("otlp_traces.py", &[&server.otlp_http, &server.otlp_grpc]);
    let sent: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    for state in ["live", "flushed", "compacted"] {
        match state {
            "flushed" => server.flush().await,
            "compacted" => server.compact().await,
            _ => {}
        }
        for trace in &sent {
            check(&server, state, trace).await;
        }
    }
    let id = sent[0][1].as_str().expect("an id").to_owned();
    round_trips(&server, &id).await;
    // The main port takes gRPC too.
    let again = python("otlp_traces.py", &[&server.otlp_http, &server.http]);
    for line in again.lines() {
        let trace: Value = serde_json::from_str(line).expect("JSON");
        let id = trace[1].as_str().expect("an id");
        assert_eq!(server.get(&format!("/traces/{id}")).await.status, 200, "{line}");
    }
    for address in [&server.http, &server.otlp_grpc] {
        streams(&server, address, &sent[0]).await;
    }
    let export = dir.path().join("export.json");
    std::fs::write(&export, server.get(&format!("/platform-api/traces/{id}/otlp")).await.body).expect("writable");
    let names = python("otlp_traces_read.py", &[&export.display().to_string()]);
    assert_eq!(names.lines().collect::<Vec<_>>(), ["GET /cart", "SELECT", "render"]);
}

async fn check(server: &Server, state: &str, trace: &Value) {
    let transport = trace[0].as_str().expect("a transport");
    let id = trace[1].as_str().expect("an id");
    let service = format!("shop-{transport}");
    let answer = server.get(&format!("/traces/{id}")).await;
    assert_eq!(answer.status, 200, "{state} {transport}: {}", answer.text());
    let data = answer.json()["data"].clone();
    let spans = data["spans"].as_array().expect("spans");
    let ids: Vec<&Value> = spans.iter().map(|s| &s["spanId"]).collect();
    assert_eq!(json!(ids), trace[2], "{state} {transport}");
    assert_eq!(spans[0]["service"], service, "{state}");
    assert_eq!(spans[0]["tags"]["words"], "[\"a\",\"b\"]", "{state}: {}", spans[0]);
    assert_eq!(spans[0]["types"]["vip"], "bool", "{state}");
    assert_eq!(spans[0]["metrics"]["http.response.status_code"], 200, "{state}");
    assert_eq!(spans[1]["links"][0]["traceId"], format!("{:032x}", 0x1234), "{state}");
    assert_eq!(spans[1]["events"][0]["metrics"]["attempt"], 2, "{state}");
    assert_eq!((&spans[2]["error"], &spans[2]["statusMessage"]), (&json!(true), &json!("no template")), "{state}");
    let found = server.get_with("/traces", &[("service", &service), ("tag", "peer.service:db")]).await.json();
    assert_eq!(found["data"][0]["traceId"], id, "{state}: {found}");
    assert_eq!(found["data"][0]["matched"]["spans"], 1, "{state}: {found}");
    let v3 = server.get(&format!("/api/v3/traces/{id}")).await.json();
    assert_eq!(v3["result"]["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map(Vec::len), Some(3));
    let old = server.get(&format!("/api/traces/{id}")).await.json();
    assert_eq!(old["data"][0]["spans"].as_array().map(Vec::len), Some(3), "{state}");
    let zipkin = server.get(&format!("/api/v2/trace/{id}")).await.json();
    assert_eq!(zipkin.as_array().map(Vec::len), Some(3), "{state}");
    let names = server.get("/api/services").await.json();
    assert!(names["data"].as_array().expect("names").contains(&json!(service)), "{state}: {names}");
}

/// Streams what was sent, over the port that Grafana would call and over that of gRPC.
async fn streams(server: &Server, address: &str, trace: &Value) {
    let id = trace[1].as_str().expect("an id");
    let service = format!("shop-{}", trace[0].as_str().expect("a transport"));
    let data = server.get(&format!("/traces/{id}")).await.json();
    let begun = data["data"]["spans"][0]["start"].as_str().and_then(|at| at.parse::<i64>().ok()).expect("a time");
    let (start, end) = (begun / 1_000_000_000 - 60, begun / 1_000_000_000 + 60);
    let told = python("tempo_stream.py", &[address, &service, &start.to_string(), &end.to_string()]);
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(told[0][1], json!(true), "{told:?}");
    let found = told[0][0].as_array().expect("traces");
    assert!(found.contains(&json!([id, service])), "{told:?}");
    assert!(told[1].as_array().expect("names").contains(&json!(service)), "{told:?}");
    assert_eq!(told[2][0], "INVALID_ARGUMENT", "{told:?}");
    assert!(told[2][1].as_str().is_some_and(|text| text.contains("invalid TraceQL query")), "{told:?}");
}

/// Sends exports in under another id: read again they are the same but for the id.
async fn round_trips(server: &Server, id: &str) {
    let ways = [
        ("platform-api", "otlp", "/v1/traces", "1111111111111111111111111111111a"),
        ("platform-api", "spanarray", "/api/v2/spans", "1111111111111111111111111111111b"),
        ("platform-api", "otlp?types=native", "/v1/traces", "1111111111111111111111111111111c"),
    ];
    for (prefix, format, to, other) in ways {
        let path = |id: &str| match format.split_once('?') {
            Some((format, query)) => format!("/{prefix}/traces/{id}/{format}?{query}"),
            None => format!("/{prefix}/traces/{id}/{format}"),
        };
        let first = server.get(&path(id)).await.text();
        let renamed = first.replace(id, other);
        let answer = server.post(to, &[("content-type", "application/json")], renamed.clone().into_bytes()).await;
        assert!(answer.status == 200 || answer.status == 202, "{format}: {}", answer.text());
        assert_eq!(server.get(&path(other)).await.text(), renamed, "{format}");
    }
    let other = "1111111111111111111111111111111d";
    let first = server.get(&format!("/traces/{id}?download=1")).await.text();
    let renamed = first.replace(id, other);
    let answer =
        server.post("/v1/traces?format=trace/1", &[("content-type", "application/json")], renamed.clone().into()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(server.get(&format!("/traces/{other}?download=1")).await.text(), renamed);
}
