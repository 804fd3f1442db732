//! Who may write what: records of services that a sender may not write are refused one by one, in every format, and the
//! others are stored (`identity-and-access` 4.2).

use quiver_tests::bodies::{compress, field, remote_write, varint};
use quiver_tests::server::{Answer, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, made, with_password};

/// The time of all data, in Unix milliseconds.
fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64
}

/// A service account that may write some services, and its key.
async fn sender(server: &Server, admin: &str, name: &str, services: Value) -> String {
    let agent = made(server, admin, "service-accounts", json!({"clientId": name})).await;
    crate::identity::bind(server, admin, "serviceAccount", &agent["id"], "ingest", services).await;
    let keys = format!("service-accounts/{}/keys", agent["id"].as_str().expect("an id"));
    let key = made(server, admin, &keys, json!({"name": "k"})).await;
    format!("Bearer {}", key["key"].as_str().expect("shown this once"))
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn resource(service: &str) -> Value {
    let attributes = if service.is_empty() { json!([]) } else { json!([attribute("service.name", service)]) };
    json!({"attributes": attributes})
}

/// A way of writing telemetry: name, path, content type, body for some services (the empty one: none is named).
struct Way {
    name: &'static str,
    path: &'static str,
    kind: &'static str,
    body: fn(&[&str]) -> Vec<u8>,
    /// Where the format's own answer counts what was refused.
    partial: &'static str,
    query: &'static str,
}

fn otlp_metrics(services: &[&str]) -> Vec<u8> {
    let point = json!({"timeUnixNano": (now_ms() * 1_000_000).to_string(), "asDouble": 1.0,
        "startTimeUnixNano": ((now_ms() - 1000) * 1_000_000).to_string()});
    let metrics = json!([{"name": "otlp_it", "sum":
        {"aggregationTemporality": 1, "isMonotonic": true, "dataPoints": [point]}}]);
    let all: Vec<Value> =
        services.iter().map(|s| json!({"resource": resource(s), "scopeMetrics": [{"metrics": metrics}]})).collect();
    json!({"resourceMetrics": all}).to_string().into_bytes()
}

fn otlp_logs(services: &[&str]) -> Vec<u8> {
    let time = (now_ms() * 1_000_000).to_string();
    let records = json!([{"timeUnixNano": time, "body": {"stringValue": "by otlp"}}]);
    let all: Vec<Value> =
        services.iter().map(|s| json!({"resource": resource(s), "scopeLogs": [{"logRecords": records}]})).collect();
    json!({"resourceLogs": all}).to_string().into_bytes()
}

fn otlp_traces(services: &[&str]) -> Vec<u8> {
    let all: Vec<Value> = services
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let start = now_ms() * 1_000_000;
            let span = json!({"traceId": format!("{:032x}", i + 1), "spanId": format!("{:016x}", i + 1), "name": "x",
                "kind": 2, "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + 1000).to_string()});
            json!({"resource": resource(s), "scopeSpans": [{"spans": [span]}]})
        })
        .collect();
    json!({"resourceSpans": all}).to_string().into_bytes()
}

fn zipkin(services: &[&str]) -> Vec<u8> {
    let all: Vec<Value> = services
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let mut span = json!({"traceId": format!("{:032x}", i + 101), "id": format!("{:016x}", i + 101), "name": "z",
                "timestamp": now_ms() * 1000, "duration": 10});
            if !s.is_empty() {
                span["localEndpoint"] = json!({"serviceName": s});
            }
            span
        })
        .collect();
    json!(all).to_string().into_bytes()
}

fn write_1(services: &[&str]) -> Vec<u8> {
    let labels: Vec<Vec<(&str, &str)>> = services
        .iter()
        .map(|s| {
            let mut labels = vec![("__name__", "rw1"), ("pod", "p")];
            labels.extend((!s.is_empty()).then_some(("service_name", *s)));
            labels
        })
        .collect();
    let samples = [(now_ms(), 1.0)];
    let series: Vec<_> = labels.into_iter().map(|l| (l, samples.to_vec())).collect();
    remote_write(&series)
}

/// Remote write 2.0: symbols, and series that refer to them.
fn write_2(services: &[&str]) -> Vec<u8> {
    let (mut symbols, mut body) = (vec!["", "__name__", "rw2", "service_name"], Vec::new());
    let mut all = Vec::new();
    for service in services {
        let (mut refs, mut sample, mut series) = (Vec::new(), vec![0x09], Vec::new());
        varint(&mut refs, 1);
        varint(&mut refs, 2);
        if !service.is_empty() {
            symbols.push(service);
            varint(&mut refs, 3);
            varint(&mut refs, symbols.len() as u64 - 1);
        }
        sample.extend(1.0_f64.to_le_bytes());
        sample.push(0x10);
        varint(&mut sample, now_ms() as u64);
        field(&mut series, 1, &refs);
        field(&mut series, 2, &sample);
        all.push(series);
    }
    for s in &symbols {
        field(&mut body, 4, s.as_bytes());
    }
    for s in &all {
        field(&mut body, 5, s);
    }
    compress(&body)
}

fn exposition(services: &[&str]) -> Vec<u8> {
    let line = |s: &&str| if s.is_empty() { "imp 1\n".to_owned() } else { format!("imp{{service_name=\"{s}\"}} 1\n") };
    services.iter().map(line).collect::<String>().into_bytes()
}

fn line(service: &str, from: &str) -> String {
    let mut row = json!({"_msg": from});
    if !service.is_empty() {
        row["service.name"] = json!(service);
    }
    format!("{row}\n")
}

fn json_lines(services: &[&str]) -> Vec<u8> {
    services.iter().map(|s| line(s, "by lines")).collect::<String>().into_bytes()
}

fn bulk(services: &[&str]) -> Vec<u8> {
    services.iter().map(|s| format!("{{\"create\":{{}}}}\n{}", line(s, "by bulk"))).collect::<String>().into_bytes()
}

fn push(services: &[&str]) -> Vec<u8> {
    let time = (now_ms() * 1_000_000).to_string();
    let stream = |s: &&str| {
        let labels = if s.is_empty() { json!({"pod": "p"}) } else { json!({"service": s}) };
        json!({"stream": labels, "values": [[time, "by push"]]})
    };
    json!({"streams": services.iter().map(stream).collect::<Vec<_>>()}).to_string().into_bytes()
}

fn saas(services: &[&str]) -> Vec<u8> {
    let record = |s: &&str| {
        if s.is_empty() { json!({"message": "by saas"}) } else { json!({"message": "by saas", "service": s}) }
    };
    json!(services.iter().map(record).collect::<Vec<_>>()).to_string().into_bytes()
}

fn alerts(services: &[&str]) -> Vec<u8> {
    let alert = |s: &&str| {
        let labels = if s.is_empty() { json!({"alertname": "A"}) } else { json!({"alertname": "A", "service": s}) };
        json!({"labels": labels})
    };
    json!(services.iter().map(alert).collect::<Vec<_>>()).to_string().into_bytes()
}

const LOGS: &str = "/logs-api/select/logsql/query?query=";
const METRICS: &str = "/metrics-api/api/v1/query?query=";

#[rustfmt::skip]
const WAYS: &[Way] = &[
    Way { name: "remote write 1", path: "/metrics-api/api/v1/write", kind: "application/x-protobuf", body: write_1, partial: "", query: "rw1" },
    Way { name: "remote write 2", path: "/metrics-api/api/v1/write", kind: "application/x-protobuf;proto=io.prometheus.write.v2.Request", body: write_2, partial: "", query: "rw2" },
    Way { name: "import", path: "/metrics-api/api/v1/import/prometheus", kind: "text/plain", body: exposition, partial: "/data/refusedSamples", query: "imp" },
    Way { name: "OTLP metrics", path: "/v1/metrics", kind: "application/json", body: otlp_metrics, partial: "/partialSuccess/rejectedDataPoints", query: "otlp_it_total" },
    Way { name: "lines", path: "/insert/jsonline", kind: "application/stream+json", body: json_lines, partial: "", query: "lines" },
    Way { name: "bulk", path: "/insert/searchengine/_bulk", kind: "application/json", body: bulk, partial: "", query: "bulk" },
    Way { name: "push", path: "/insert/aggregator/api/v1/push", kind: "application/json", body: push, partial: "", query: "push" },
    Way { name: "SaaS", path: "/insert/saas/api/v2/logs", kind: "application/json", body: saas, partial: "", query: "saas" },
    Way { name: "OTLP logs", path: "/v1/logs", kind: "application/json", body: otlp_logs, partial: "/partialSuccess/rejectedLogRecords", query: "otlp" },
    Way { name: "OTLP traces", path: "/v1/traces", kind: "application/json", body: otlp_traces, partial: "/partialSuccess/rejectedSpans", query: "" },
    Way { name: "Zipkin", path: "/api/v2/spans", kind: "application/json", body: zipkin, partial: "", query: "" },
    Way { name: "alerts", path: "/api/v2/alerts", kind: "application/json", body: alerts, partial: "", query: "" },
];

impl Way {
    async fn send(&self, server: &Server, who: &str, services: &[&str]) -> Answer {
        let headers = [("authorization", who), ("content-type", self.kind)];
        server.post(self.path, &headers, (self.body)(services)).await
    }

    /// The services of what is stored, as somebody sees it.
    async fn stored(&self, server: &Server, who: &str) -> Vec<String> {
        let headers = [("authorization", who)];
        let mut found: Vec<String> = match self.name {
            "OTLP traces" | "Zipkin" => {
                let services = server.get_as("/api/v2/services", &headers).await.json();
                services.as_array().expect("a list").iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            "alerts" => {
                let list = server.get_as("/api/v2/alerts", &headers).await.json();
                let service = |a: &Value| {
                    let labels = &a["labels"];
                    labels["service_name"].as_str().or(labels["service"].as_str()).unwrap_or_default().to_owned()
                };
                list.as_array().expect("a list").iter().map(service).collect()
            }
            _ if self.path.contains("metric") => {
                let answer = server.get_as(&format!("{METRICS}{}", self.query), &headers).await.json();
                let series = answer["data"]["result"].as_array().cloned().unwrap_or_default();
                series.iter().map(|s| s["metric"]["service_name"].as_str().unwrap_or_default().to_owned()).collect()
            }
            _ => {
                let answer = server.get_as(&format!("{LOGS}{}", self.query), &headers).await.text();
                let rows = answer.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
                let service = |row: Value| {
                    let named = ["service.name", "service"].iter().find_map(|name| row[*name].as_str());
                    named.unwrap_or_default().to_owned()
                };
                rows.map(service).collect()
            }
        };
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn refused(answer: &Answer) -> &str {
    answer.headers.get("x-quiver-refused").and_then(|v| v.to_str().ok()).unwrap_or("0")
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_others_are_refused_one_by_one() {
    // Zipkin's spans and OTLP's are in one list, so that each has a server of its own.
    for zipkin in [false, true] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::start(dir.path(), &with_password()).await;
        let admin = bearer(&login(&server, "admin", PASSWORD).await);
        let pair = sender(&server, &admin, "pair", json!(["aaa", "c*"])).await;
        let one = sender(&server, &admin, "one", json!(["ddd"])).await;
        for way in WAYS.iter().filter(|way| (way.name == "Zipkin") == zipkin) {
            check(&server, way, &admin, &pair, &one).await;
        }
        // The log has one row per sender and route, not one per record.
        let path = "/platform-api/rbac/audit?family=ingest&outcome=refused&limit=1000";
        let rows = server.get_as(path, &[("authorization", &admin)]).await.json();
        let rows = rows["items"].as_array().expect("a list").clone();
        assert!(rows.iter().all(|r| r["action"] == "WRITE" && r["code"] == "FORBIDDEN"), "{rows:?}");
        assert!(!rows.is_empty() && rows.len() <= 6 * WAYS.len(), "{}", rows.len());
    }
}

async fn check(server: &Server, way: &Way, admin: &str, pair: &str, one: &str) {
    let name = way.name;
    // None is the sender's: forbidden, with the right that lacks, and nothing is stored.
    let none = way.send(server, pair, &["bbb", "bbb2"]).await;
    assert_eq!((none.status, refused(&none)), (403, "2"), "{name}: {}", none.text());
    assert!(none.text().contains("FORBIDDEN") && none.text().contains(", bbb}"), "{name}: {}", none.text());
    assert_eq!(way.stored(server, admin).await, [""; 0], "{name}");
    // Some are: they are taken, and the others counted.
    let some = way.send(server, pair, &["aaa", "bbb", "cart", ""]).await;
    assert!(some.status < 300, "{name}: {} {}", some.status, some.text());
    assert_eq!(refused(&some), "2", "{name}: {}", some.text());
    if !way.partial.is_empty() {
        let body = some.json();
        let count = body.pointer(way.partial).unwrap_or_else(|| panic!("{name}: {body}"));
        assert_eq!(count.as_str().map_or_else(|| count.to_string(), str::to_owned), "2", "{name}: {body}");
    }
    if name == "bulk" {
        let body = some.json();
        let items = body["items"].as_array().expect("items").iter();
        let statuses: Vec<i64> = items.filter_map(|i| i["create"]["status"].as_i64()).collect();
        assert_eq!((statuses, &body["errors"]), (vec![201, 403, 201, 403], &json!(true)));
    }
    assert_eq!(way.stored(server, admin).await, ["aaa", "cart"], "{name}");
    // A missing service is set where it can be one only; a wrong one is not.
    let named = way.send(server, one, &["", "bbb"]).await;
    assert!(named.status < 300, "{name}: {} {}", named.status, named.text());
    assert_eq!(refused(&named), "1", "{name}: {}", named.text());
    assert_eq!(way.stored(server, admin).await, ["aaa", "cart", "ddd"], "{name}");
    // Who may write all names what it likes, and nothing.
    let all = way.send(server, admin, &["aaa", "zzz", ""]).await;
    assert!(all.status < 300, "{name}: {}", all.text());
    assert!(!all.headers.contains_key("x-quiver-refused"), "{name}");
    let stored = way.stored(server, admin).await;
    assert!(stored.iter().any(|s| s == "zzz"), "{name}: {stored:?}");
}

/// Sums of deltas are kept by series: who may not write one does not add to it, either.
#[tokio::test(flavor = "multi_thread")]
async fn refused_deltas_add_to_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let (a, b) =
        (sender(&server, &admin, "a", json!(["aaa"])).await, sender(&server, &admin, "b", json!(["bbb"])).await);
    let way = WAYS.iter().find(|w| w.name == "OTLP metrics").expect("one");
    // The same series without a service, from two senders that can mean one each; and one that lies.
    for (who, services, status) in [
        (&a, &["aaa"][..], 200),
        (&b, &["aaa"][..], 403),
        (&a, &["aaa"][..], 200),
        (&a, &[""][..], 200),
        (&b, &[""][..], 200),
    ] {
        let answer = way.send(&server, who, services).await;
        assert_eq!(answer.status, status, "{services:?}: {}", answer.text());
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    let query = format!("{METRICS}{}", way.query);
    let answer = server.get_as(&query, &[("authorization", &admin)]).await.json();
    let result = answer["data"]["result"].as_array().expect("a list").clone();
    let mut sums: Vec<String> = result
        .iter()
        .map(|s| {
            let text = |name: &str| s["metric"][name].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text("service_name"), text("job"), s["value"][1].as_str().unwrap_or_default())
        })
        .collect();
    sums.sort_unstable();
    assert_eq!(sums, ["aaa - 1", "aaa aaa 2", "bbb - 1"], "{answer}");
}
