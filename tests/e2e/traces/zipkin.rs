//! Searches in Zipkin's API: conditions may hold on different spans, but of the same service; and formats of ids.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use super::{NOON, send, span};

/// Numbers of the traces that a search finds.
async fn found(server: &Server, params: &[(&str, &str)]) -> Vec<String> {
    let end = (NOON / 1_000_000 + 1000).to_string();
    let params = [params, &[("endTs", end.as_str()), ("lookback", "60000")]].concat();
    let answer = server.get_with("/api/v2/traces", &params).await;
    assert_eq!(answer.status, 200, "{params:?}: {}", answer.text());
    let id = |trace: &Value| trace[0]["traceId"].as_str().expect("an id").trim_start_matches('0').to_owned();
    let mut ids: Vec<String> = answer.json().as_array().expect("traces").iter().map(id).collect();
    ids.sort();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_hold_on_some_spans_of_the_service() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let spans = vec![
        span((1, 1, 0), "front", 2, NOON, &[("a", "1")]),
        span((1, 2, 1), "front", 3, NOON, &[("b", "2"), ("server.address", "db1"), ("db.name", "shop")]),
        span((2, 1, 0), "front", 2, NOON, &[("a", "1"), ("b", "2"), ("peer.service", "caller")]),
        span((3, 1, 0), "front", 2, NOON, &[("a", "1")]),
        span((3, 2, 1), "back", 2, NOON, &[("b", "2"), ("error", "refused")]),
    ];
    send(&server, spans).await;
    let exported = format!("/platform-api/traces/{:032x}/spanarray", 3);
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let (front, back) = (("serviceName", "front"), ("serviceName", "back"));
        let each: Vec<String> = (0..50).map(|n| format!("a=1 and n{n}")).collect();
        assert_eq!(found(&server, &[("annotationQuery", each.join(" and ").as_str())]).await, [""; 0]);
        let both = ("annotationQuery", "a=1 and b=2");
        assert_eq!(found(&server, &[front]).await, ["1", "2", "3"]);
        assert_eq!(found(&server, &[front, both]).await, ["1", "2"]);
        assert_eq!(found(&server, &[both]).await, ["1", "2", "3"]);
        assert_eq!(found(&server, &[back, both]).await, [""; 0]);
        let more = [("spanName", "op 1"), ("annotationQuery", "b=2"), ("minDuration", "1000")];
        assert_eq!(found(&server, &[&[front], &more[..]].concat()).await, ["1", "2"]);
        assert_eq!(found(&server, &[front, ("annotationQuery", "b=2"), ("minDuration", "1001")]).await, [""; 0]);
        // Names of the other side are those that the list has, and that traces show.
        let names = server.get("/api/v2/remoteServices?serviceName=front").await.json();
        assert_eq!(names, json!(["caller", "db1"]));
        let called = server.get("/api/v2/trace/2").await.json();
        assert_eq!(called[0]["remoteEndpoint"], json!({"serviceName": "caller"}));
        assert_eq!(found(&server, &[front, ("remoteServiceName", "db1"), ("annotationQuery", "a")]).await, ["1"]);
        assert_eq!(found(&server, &[("remoteServiceName", "caller")]).await, ["2"]);
        // What a tag `error` said is kept as the message.
        assert_eq!(found(&server, &[("annotationQuery", "error")]).await, ["3"]);
        assert_eq!(found(&server, &[("annotationQuery", "error=refused")]).await, ["3"]);
        assert_eq!(found(&server, &[("annotationQuery", "error=other")]).await, [""; 0]);
        let failed = server.get("/api/v2/trace/3").await.json();
        assert_eq!(failed[1]["tags"]["error"], "refused");
        assert_eq!(server.get(&exported).await.json()[1]["tags"]["error"], "true");
        assert_eq!(found(&server, &[("remoteServiceName", "shop")]).await, [""; 0]);
        assert_eq!(found(&server, &[back, ("remoteServiceName", "db1")]).await, [""; 0]);
    }
}

/// Zipkin has names of services and spans in lower case, whatever was sent, and finds them by any.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_those_in_lower_case() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut call = span((1, 1, 0), "Front", 3, NOON, &[("peer.service", "DB"), ("Key", "V")]);
    call["scopeSpans"][0]["spans"][0]["name"] = "GET /".into();
    let mut called = span((1, 2, 1), "Back", 2, NOON, &[]);
    called["scopeSpans"][0]["spans"][0]["name"] = "Work".into();
    send(&server, vec![call, called, span((2, 1, 0), "FRONT", 2, NOON, &[])]).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let list = async |path: &str| server.get(path).await.json();
        assert_eq!(list("/api/v2/services").await, json!(["back", "front"]));
        for name in ["front", "Front", "fRONT"] {
            assert_eq!(list(&format!("/api/v2/spans?serviceName={name}")).await, json!(["get /", "op 1"]), "{name}");
            assert_eq!(list(&format!("/api/v2/remoteServices?serviceName={name}")).await, json!(["db"]), "{name}");
            assert_eq!(found(&server, &[("serviceName", name)]).await, ["1", "2"], "{name}");
        }
        for asked in [("spanName", "get /"), ("spanName", "Get /"), ("remoteServiceName", "db")] {
            assert_eq!(found(&server, &[("serviceName", "front"), asked]).await, ["1"], "{asked:?}");
        }
        let trace = list("/api/v2/trace/1").await;
        let first = &trace[0];
        assert_eq!((&first["name"], &first["localEndpoint"]["serviceName"]), (&json!("get /"), &json!("front")));
        assert_eq!((&first["remoteEndpoint"]["serviceName"], &first["tags"]["Key"]), (&json!("db"), &json!("V")));
        // Other readers get what was sent.
        assert_eq!(list("/api/services").await["data"], json!(["Back", "FRONT", "Front"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_ids_is_said_as_by_zipkin() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    for (path, status, text) in [
        ("/api/v2/trace/AB", 404, "00000000000000ab not found"),
        ("/api/v2/trace/1000000000000000b", 404, "0000000000000001000000000000000b not found"),
        ("/api/v2/traceMany", 400, "traceIds parameter is empty"),
        ("/api/v2/traceMany?traceIds=1,2,01", 400, "redundant traceId: 01"),
        ("/api/v2/traceMany?traceIds=1", 400, "Use /api/v2/trace/{traceId} endpoint to retrieve a single trace"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.text().trim_end()), (status, text), "{path}");
    }
    assert_eq!(server.get("/api/v2/traceMany?traceIds=1,2").await.text(), "[]");
}

/// Breaks if calls of what sends no spans are left out: Zipkin knows it by the remote endpoint of the client.
#[tokio::test(flavor = "multi_thread")]
async fn links_lead_to_what_sends_no_spans() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let spans = vec![
        span((1, 1, 0), "Front", 2, NOON, &[]),
        span((1, 2, 1), "Front", 3, NOON, &[("peer.service", "Redis")]),
        span((1, 3, 1), "Front", 3, NOON, &[("peer.service", "back")]),
        span((1, 4, 3), "back", 2, NOON, &[]),
    ];
    send(&server, spans).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        let end = NOON / 1_000_000 + 1000;
        let links = server.get(&format!("/api/v2/dependencies?endTs={end}&lookback=10000")).await.json();
        let link = |child: &str| json!({"parent": "front", "child": child, "callCount": 1});
        assert_eq!(links, json!([link("back"), link("redis")]), "flushed: {flushed}");
        // Jaeger's links are between services that send spans.
        let links = server.get(&format!("/api/dependencies?endTs={end}&lookback=10000")).await.json();
        assert_eq!(links["data"], json!([{"parent": "Front", "child": "back", "callCount": 1}]), "flushed: {flushed}");
    }
}
