//! The metric name in results of PromQL: which operations drop it, which keep it, and that nothing restores it; and labels
//! that follow from samples, which are those of each step.

use quiver_tests::bodies::remote_write;
use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

const T0_MS: i64 = 1_700_000_000_000;
const T0_S: f64 = 1_700_000_000.0;

/// An expression over `m{x="1"}`, which is 2, and `n{x="1"}`, which is 1.
const NAMED: &[&str] = &[
    "m > n",
    "m > 1",
    "m > abs(n)",
    "m > (n + 0)",
    "m > ignoring(y) n",
    "m > on(x) group_left n",
    "n < on(x) group_right m",
    "m and abs(m)",
    "m unless (abs(m) < n)",
    "m or abs(m)",
    "(m > 1) or abs(m)",
    "((m > 1) or abs(m)) > n",
    "last_over_time(m[5m])",
    "topk(1, m > n)",
];

const NAMELESS: &[&str] = &[
    "m + n",
    "m > bool n",
    "m > bool 1",
    "m > on(x) n",
    "(m + 0) > 1",
    "(m + 0) > n",
    "(m * n) > n",
    "(m > bool n) >= n",
    "-n < m",
    "-n < 0",
    "abs(m) > n",
    "abs(m) > abs(n)",
    "(abs(m) > n) > n",
    "max_over_time(m[5m]) > n",
    "abs(m) > on(x) n",
    "abs(m) > ignoring(y) n",
    "abs(m) > on(x) group_left n",
    "n < on(x) group_right abs(m)",
    "m > on(x) group_left(__name__) abs(n)",
    "(abs(m) > n) and m",
    "(abs(m) > n) unless (m < n)",
    "(abs(m) > n) or m",
    "(m > 5) or abs(m)",
    "((m > 5) or abs(m)) > n",
    "(m > 5) or (n > 5) or abs(m)",
    "label_replace((m > 5) or abs(m), \"x\", \"1\", \"\", \"\")",
    "topk(1, abs(m) > n)",
    "sum by (x, __name__) (abs(m) > n)",
    "last_over_time((abs(m) > n)[5m:1m])",
    "sort(abs(m) > n)",
    "label_replace(abs(m) > n, \"x\", \"1\", \"\", \"\")",
];

/// Breaks if a comparison between vectors, `count_values`, or a row of the same labels on the other side of `or` brings
/// back a name that was dropped below it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_name_stays_away() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let row = |name, value| (vec![("__name__", name), ("x", "1")], vec![(T0_MS - 60_000, value), (T0_MS, value)]);
    server.write(remote_write(&[row("m", 2.0), row("n", 1.0)])).await;
    let (named, nameless) = (json!({"__name__": "m", "x": "1"}), json!({"x": "1"}));
    let counted = [
        ("count_values by (x, __name__) (\"v\", m)", json!({"__name__": "m", "v": "2", "x": "1"})),
        ("count_values by (x, __name__) (\"v\", abs(m))", json!({"v": "2", "x": "1"})),
        ("count_values by (x) (\"__name__\", abs(m))", json!({"__name__": "2", "x": "1"})),
        ("count_values without (y) (\"__name__\", m)", json!({"x": "1"})),
    ];
    let cases = NAMED.iter().map(|query| (*query, named.clone()));
    let cases = cases.chain(NAMELESS.iter().map(|query| (*query, nameless.clone()))).chain(counted);
    for (query, expected) in cases {
        let metrics = |data: &Value| {
            let rows = data["result"].as_array().unwrap_or_else(|| panic!("{query}: {data}"));
            rows.iter().map(|row| row["metric"].clone()).collect::<Vec<_>>()
        };
        let expected = vec![expected];
        let at = server.query(query, T0_S).await;
        assert_eq!(metrics(&at), expected, "{query}");
        let over = server.query_range(query, T0_S - 20.0, T0_S, 20.0).await;
        assert_eq!(metrics(&over), expected, "{query} over a range");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_made_of_samples_are_those_of_each_step() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let bucket = |le| (vec![("__name__", "b_bucket"), ("le", le)], vec![(T0_MS - 20_000, 2.0), (T0_MS, 2.0)]);
    let q = (vec![("__name__", "q")], vec![(T0_MS - 20_000, 0.5), (T0_MS, 1.0)]);
    let info =
        |name, host| (vec![("__name__", name), ("host", host), ("instance", "i"), ("job", "j")], vec![(T0_MS, 1.0)]);
    let of =
        |name, instance, ts, value| (vec![("__name__", name), ("instance", instance), ("job", "j")], vec![(ts, value)]);
    let (r, o, late) = (of("r", "i", T0_MS, 9.0), of("o", "other", T0_MS, 1.0), of("late", "i", T0_MS + 600_000, 1.0));
    let infos = [info("target_info", "a"), info("target_info", "b"), info("x_info", "c")];
    let rows: Vec<_> = [bucket("1"), bucket("+Inf"), q, r, o, late].into_iter().chain(infos).collect();
    server.write(remote_write(&rows)).await;
    let labels = [("job", "j"), ("instance", "i")].map(|(key, v)| json!({"key": key, "value": {"stringValue": v}}));
    let histogram = json!({
        "timeUnixNano": "1700000000000000000", "count": "1", "zeroCount": "1", "sum": 0,
        "attributes": labels,
    });
    let metric = json!({
        "name": "e_info", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [histogram]},
    });
    let request = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).to_string();
    let kind = [("content-type", "application/json")];
    let answer = server.post("/metrics-api/api/v1/otlp/v1/metrics", &kind, request.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let query = "histogram_quantiles(b_bucket, \"q\", scalar(q), 0.25)";
    let over = server.query_range(query, T0_S - 20.0, T0_S, 20.0).await;
    let expected = json!([
        {"metric": {"q": "0.25"}, "values": [[1_699_999_980, "0.25"], [1_700_000_000, "0.25"]]},
        {"metric": {"q": "0.5"}, "values": [[1_699_999_980, "0.5"]]},
        {"metric": {"q": "1.0"}, "values": [[1_700_000_000, "1"]]},
    ]);
    assert_eq!(over["result"], expected, "{over}");
    // Two conflicting info series are an error only if there is something to enrich.
    let twice = "found duplicate series for info metric: existing {__name__=\\\"target_info\\\"";
    let no_float = "this should be an info metric, with float samples: {__name__=\\\"e_info\\\", instance=\\\"i\\\"";
    for (query, text) in [
        ("info(r)", twice),
        ("info(r > 9)", "\"result\":[]"),
        ("info({__name__=~\"r|o\"} < 9)", "\"__name__\":\"o\""),
        // These errors are found before labels are merged.
        ("info(r, {__name__=~\"target_info|x_info\"})", twice),
        ("info(r, {__name__=\"e_info\"})", no_float),
    ] {
        let params = [("query", query), ("time", "1700000000")];
        let answer = server.get_with("/metrics-api/api/v1/query", &params).await.text();
        assert!(answer.contains(text), "{query}: {answer}");
    }
    let over = server.query_range("info(late)", T0_S, T0_S + 600.0, 600.0).await;
    assert_eq!(over["result"][0]["values"], json!([[1_700_000_600, "1"]]), "{over}");
}
