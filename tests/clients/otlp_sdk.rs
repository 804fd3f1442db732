//! OpenTelemetry's Python SDK sends every kind of metric over HTTP and gRPC, cumulative and delta; PromQL queries return
//! them.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use crate::tools::python;

#[tokio::test(flavor = "multi_thread")]
async fn sdk_metrics_come_back_by_promql() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    python("otlp_send.py", &[&server.otlp_http, &server.otlp_grpc]);
    check(&server, "live").await;
    server.flush().await;
    check(&server, "flushed").await;
    server.compact().await;
    check(&server, "compacted").await;
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(dir.path(), &Options::default()).await;
    check(&server, "restarted").await;
}

async fn check(server: &Server, state: &str) {
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    for transport in ["http", "gzip", "grpc"] {
        for temporality in ["cumulative", "delta"] {
            let job = format!("test/shop-{transport}-{temporality}");
            let place = format!("{state}, {job}");
            let expected: [(&str, f64); 17] = [
                ("orders_total{$,region=\"eu\",shop_id=\"7\"}", 12.0),
                ("orders_total{$,region=\"us\",shop_id=\"8\"}", 6.0),
                ("sum(orders_total{$})", 18.0),
                // Added up, so that there is no reset between deltas.
                ("sum(resets(orders_total{$}[5m]))", 0.0),
                ("sum(changes(orders_total{$}[5m]))", 4.0),
                ("sent_bytes_total{$}", 3001.5),
                ("queue_size{$}", 6.0),
                ("temperature_celsius{$,room=\"hall\"}", 19.75),
                ("fill_level_percent{$,tank=\"a\"}", 31.5),
                ("latency_seconds_bucket{$,le=\"0.1\",path=\"/\"}", 3.0),
                ("latency_seconds_bucket{$,le=\"0.5\"}", 9.0),
                ("latency_seconds_bucket{$,le=\"5\"}", 12.0),
                ("latency_seconds_bucket{$,le=\"+Inf\"}", 15.0),
                ("latency_seconds_count{$}", 15.0),
                ("latency_seconds_sum{$}", 25.05),
                ("histogram_quantile(0.5, latency_seconds_bucket{$})", 0.4),
                ("target_info{$,service_version=\"1.2.3\"}", 1.0),
            ];
            for (query, value) in expected {
                let query = query.replace('$', &format!("job=\"{job}\",instance=\"i-1\""));
                let data = server.query(&query, now).await;
                let found: Vec<f64> = data["result"].as_array().into_iter().flatten().filter_map(number).collect();
                let close = |v: &f64| (v - value).abs() < 1e-9;
                assert!(found.len() == 1 && found.iter().all(close), "{place}: {query}: {data} instead of {value}");
            }
            let data = server.query(&format!("size_bytes{{job=\"{job}\"}}"), now).await;
            native(&data["result"], &place);
        }
    }
    hosts(server, state, now).await;
    let answer = server.get_with("/metrics-api/api/v1/metadata", &[("metric", "latency_seconds")]).await.json();
    let expected = json!([{"type": "histogram", "help": "Time of a request.", "unit": "s"}]);
    let found = &answer["data"]["latency_seconds"];
    assert_eq!(found[0]["type"], expected[0]["type"], "{state}: {answer}");
    assert_eq!(found[0]["help"], expected[0]["help"], "{state}: {answer}");
}

/// Hosts that name no service have series of their own, sums of deltas included, and a `target_info` each.
async fn hosts(server: &Server, state: &str, now: f64) {
    for temporality in ["cumulative", "delta"] {
        for (n, host) in [(1.0, "a"), (2.0, "b"), (3.0, "c")] {
            let own = format!("host_name=\"{host}-{temporality}\"");
            let expected = [
                (format!("system_memory_usage_bytes{{{own},state=\"used\",os_type=\"linux\",job=\"\"}}"), 300.0 * n),
                (format!("system_network_io_bytes_total{{{own},host_id=\"id-{n}\",direction=\"transmit\"}}"), 30.0 * n),
                (format!("target_info{{{own},host_cpu_cores=\"{n}\",job=\"\",instance=\"\"}}"), 1.0),
                (format!("count(system_network_io_bytes_total{{host_cpu_cores=\"{n}\"}}) or vector(0)"), 0.0),
            ];
            for (query, value) in expected {
                let data = server.query(&query, now).await;
                let found: Vec<f64> = data["result"].as_array().into_iter().flatten().filter_map(number).collect();
                assert_eq!(found, [value], "{state}, {temporality}: {query}: {data}");
            }
        }
    }
    let services = server.query("group by (service_name) (orders_total)", now).await;
    let names: Vec<&str> = services["result"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|s| s["metric"]["service_name"].as_str())
        .collect();
    assert!(names.len() == 6 && names.contains(&"shop-grpc-delta"), "{state}: {services}");
}

fn number(series: &Value) -> Option<f64> {
    series["value"][1].as_str()?.parse().ok()
}

/// Checks the exponential histogram: 12 sizes, of which three are zero.
fn native(result: &Value, place: &str) {
    let histogram = &result[0]["histogram"][1];
    assert_eq!(histogram["count"], "12", "{place}: {result}");
    assert_eq!(histogram["sum"], "1110303", "{place}: {result}");
    let (mut zeros, mut all) = (0.0, 0.0);
    for bucket in histogram["buckets"].as_array().expect("buckets") {
        let part = |i: usize| bucket[i].as_str().and_then(|v| v.parse::<f64>().ok()).expect("a number");
        let (lower, upper, count) = (part(1), part(2), part(3));
        all += count;
        if lower <= 0.0 && upper >= 0.0 {
            zeros += count;
        } else {
            let inside = [1.0, 100.0, 1e4, 1e5, 1e6].iter().any(|v| lower < *v && *v <= upper);
            assert!(inside, "{place}: nothing was between {lower} and {upper}: {result}");
        }
    }
    assert_eq!((zeros, all), (3.0, 12.0), "{place}: {result}");
}
