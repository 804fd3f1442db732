//! Every endpoint of the metrics API with right and wrong parameters: status, content type, error type and text,
//! methods, CORS, compression.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

const API: &str = "/metrics-api/api/v1/";
const T0_MS: i64 = 1_700_000_000_000;

/// The name of a coding, the header that asks for it, and what unpacks it.
type Packing = (&'static str, &'static str, fn(&[u8]) -> Vec<u8>);

/// Path with query, status, `errorType`, and the error text.
type Wrong = (&'static str, u16, &'static str, &'static str);

#[rustfmt::skip]
const WRONG: &[Wrong] = &[
    ("query?query=1&limit=x", 400, "bad_data", "invalid parameter \"limit\": strconv.Atoi: parsing \"x\": invalid syntax"),
    ("query?query=1&limit=-1", 400, "bad_data", "invalid parameter \"limit\": limit must be non-negative"),
    ("query?query=1&time=x&limit=0", 400, "bad_data", "invalid parameter \"time\": invalid time value for 'time': cannot parse \"x\" to a valid timestamp"),
    ("query?query=1&timeout=x", 400, "bad_data", "invalid parameter \"timeout\": cannot parse \"x\" to a valid duration"),
    ("query?query=1&lookback_delta=x", 400, "bad_data", "error parsing lookback delta duration: cannot parse \"x\" to a valid duration"),
    ("query", 400, "bad_data", "invalid parameter \"query\": unknown position: parse error: no expression found in input"),
    ("query?query=s[step()]&time=1700000000", 400, "bad_data", "invalid parameter \"query\": 2:8: duration must be greater than 0"),
    ("query?query=max_over_time(rate(s[step()])[5m:2h])&time=1700000000", 400, "bad_data", "invalid parameter \"query\": 21:27: duration must be greater than 0"),
    ("query?query=s[-(1m)]&time=1700000000", 400, "bad_data", "invalid parameter \"query\": 2:6: duration must be greater than 0"),
    ("query?query=s[step():]&time=1700000000", 400, "bad_data", "invalid parameter \"query\": 1:10: parse error: unexpected colon before duration in duration expression"),
    ("query?query=1&timeout=Inf", 400, "bad_data", "invalid parameter \"timeout\": cannot parse \"Inf\" to a valid duration. It overflows int64"),
    ("query?query=1&lookback_delta=1e300", 400, "bad_data", "error parsing lookback delta duration: cannot parse \"1e300\" to a valid duration. It overflows int64"),
    ("query?query=sum(", 400, "bad_data", "invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"),
    ("query?query=s%20%2B%20on(a)%20s&time=1700000000", 422, "execution", "found duplicate series for the match group {} on the right hand-side of the operation: "),
    // Checks come in one order: the first that fails speaks.
    ("query?limit=x&time=x&timeout=x&lookback_delta=x", 400, "bad_data", "invalid parameter \"limit\": "),
    ("query?time=x&timeout=x&lookback_delta=x", 400, "bad_data", "invalid parameter \"time\": "),
    ("query?timeout=x&lookback_delta=x", 400, "bad_data", "invalid parameter \"timeout\": "),
    ("query?lookback_delta=x", 400, "bad_data", "error parsing lookback delta"),
    ("query_range?query=1&start=x&end=1&step=1", 400, "bad_data", "invalid parameter \"start\": cannot parse \"x\" to a valid timestamp"),
    ("query_range?query=1&start=0&end=x&step=1", 400, "bad_data", "invalid parameter \"end\": cannot parse \"x\" to a valid timestamp"),
    ("query_range?query=1&end=1&step=1", 400, "bad_data", "invalid parameter \"start\": cannot parse \"\" to a valid timestamp"),
    ("query_range?query=1&start=2&end=1&step=x", 400, "bad_data", "invalid parameter \"end\": end timestamp must not be before start time"),
    ("query_range?query=1&start=0&end=1", 400, "bad_data", "invalid parameter \"step\": cannot parse \"\" to a valid duration"),
    ("query_range?query=1&start=0&end=1&step=0", 400, "bad_data", "invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"),
    ("query_range?query=1&start=0&end=1&step=NaN", 400, "bad_data", "invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"),
    ("query_range?query=1&start=0&end=11001&step=1&timeout=x", 400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"),
    ("query_range?query=s[1m]&start=0&end=1&step=1", 400, "bad_data", "invalid parameter \"query\": invalid expression type \"range vector\" for range query, must be Scalar or instant Vector"),
    ("query_exemplars?query=s&start=2&end=1", 400, "bad_data", "end timestamp must not be before start timestamp"),
    ("query_exemplars?query=sum(", 400, "bad_data", "1:5: parse error: "),
    ("query_exemplars?query=s&start=x", 400, "bad_data", "invalid parameter \"start\": invalid time value for 'start': "),
    ("format_query?query=sum(", 400, "bad_data", "invalid parameter \"query\": 1:5: parse error: "),
    ("parse_query?query=sum(", 400, "bad_data", "invalid parameter \"query\": 1:5: parse error: "),
    ("series", 400, "bad_data", "no match[] parameter provided"),
    ("series?match[]=s&limit=x", 400, "bad_data", "invalid parameter \"limit\": "),
    ("series?match[]=s&start=x", 400, "bad_data", "invalid parameter \"start\": invalid time value for 'start': "),
    ("series?match[]={", 400, "bad_data", "invalid parameter \"match[]\": 1:2: parse error: "),
    ("series?match[]={a=~\".*\"}", 400, "bad_data", "invalid parameter \"match[]\": match[] must contain at least one non-empty matcher"),
    ("series?match[]=", 400, "bad_data", "invalid parameter \"match[]\": unknown position: parse error: unexpected end of input"),
    ("series?match[]=s&match[]=", 400, "bad_data", "invalid parameter \"match[]\": unknown position: parse error: unexpected end of input"),
    ("labels?end=x", 400, "bad_data", "invalid parameter \"end\": invalid time value for 'end': "),
    ("labels?match[]={}", 400, "bad_data", "match[] must contain at least one non-empty matcher"),
    ("labels?match[]=", 400, "bad_data", "unknown position: parse error: unexpected end of input"),
    ("label/job/values?match[]=", 400, "bad_data", "unknown position: parse error: unexpected end of input"),
    ("label/job/values?limit=-2", 400, "bad_data", "invalid parameter \"limit\": limit must be non-negative"),
    ("label/job/values?match[]=1", 400, "bad_data", "1:1: parse error: "),
    ("label//values", 400, "bad_data", "invalid label name: \"\""),
    ("label/%FF/values", 400, "bad_data", "invalid label name: \"\\xff\""),
    ("metadata?limit=x", 400, "bad_data", "limit must be a number"),
    ("metadata?limit_per_metric=x", 400, "bad_data", "limit_per_metric must be a number"),
    ("rules?type=x", 400, "bad_data", "invalid parameter \"type\": not supported value \"x\""),
    ("rules?exclude_alerts=x", 400, "bad_data", "invalid parameter \"exclude_alerts\": error converting exclude_alerts: "),
    ("rules?group_next_token=x", 400, "bad_data", "invalid parameter \"group_next_token\": group_limit needs to be present in order to paginate over the groups"),
    ("rules?group_limit=x", 400, "bad_data", "invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"x\": invalid syntax"),
    ("rules?group_limit=2147483648", 400, "bad_data", "invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"2147483648\": value out of range"),
    ("rules?group_limit=0", 400, "bad_data", "invalid parameter \"group_limit\": group_limit needs to be greater than 0"),
    ("rules?group_limit=x", 400, "bad_data", "invalid parameter \"group_limit\": group_limit needs to be a valid number: strconv.ParseInt: parsing \"x\": invalid syntax"),
    ("rules?group_limit=2147483648", 400, "bad_data", "strconv.ParseInt: parsing \"2147483648\": value out of range"),
    ("rules?type=x&exclude_alerts=x&group_limit=x&match[]={}", 400, "bad_data", "match[] must contain at least one non-empty matcher"),
    ("rules?match[]={}", 400, "bad_data", "match[] must contain at least one non-empty matcher"),
    ("rules?match[]=", 400, "bad_data", "unknown position: parse error: unexpected end of input"),
    ("targets/metadata?limit=x", 400, "bad_data", "limit must be a number"),
    ("targets/metadata?match_target=x{", 400, "bad_data", "invalid parameter \"match_target\": "),
    ("status/tsdb?limit=0", 400, "bad_data", "limit must be a positive number"),
    ("status/tsdb?limit=10001", 400, "bad_data", "limit must not exceed 10000"),
];

async fn with_data(dir: &std::path::Path, options: &Options) -> Server {
    let server = Server::start(dir, options).await;
    let series: Vec<Series<'_>> = vec![
        (vec![("__name__", "s"), ("job", "a"), ("n", "1")], vec![(T0_MS - 400_000, 1.0), (T0_MS, 1.0)]),
        (vec![("__name__", "s"), ("job", "a"), ("n", "2")], vec![(T0_MS, 2.0)]),
        (vec![("__name__", "s"), ("job", "b"), ("n", "3")], vec![(T0_MS, 3.0)]),
        (vec![("__name__", "old"), ("job", "b")], vec![(T0_MS - 400_000, 4.0)]),
    ];
    server.write(remote_write(&series)).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = with_data(dir.path(), &Options::default()).await;
    let mut wrong = Vec::new();
    for (path, status, kind, text) in WRONG {
        let answer = server.get(&format!("{API}{path}")).await;
        let json = answer.json();
        let given = json["error"].as_str().unwrap_or_default();
        let fits = answer.status == *status && json["errorType"] == *kind && json["status"] == "error";
        if !fits || !given.contains(text) || answer.headers["content-type"] != "application/json" {
            wrong.push(format!("{path}: {} {}\n  instead of {status} {kind} {text}", answer.status, answer.text()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), WRONG.len(), wrong.join("\n"));
    // This one does not name the parameter, as it does not in Prometheus.
    let told = server.get(&format!("{API}query_exemplars?query=sum(")).await.json();
    assert_eq!(told["error"], "1:5: parse error: unclosed left parenthesis");
}

#[tokio::test(flavor = "multi_thread")]
async fn right_parameters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = with_data(dir.path(), &Options::default()).await;
    let ask = async |path: &str| {
        let answer = server.get(&format!("{API}{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    };
    let cut = json!(["results truncated due to limit"]);
    let len = |json: &Value| json["data"]["result"].as_array().or(json["data"].as_array()).map(Vec::len);
    for (path, all) in [
        ("query?query=s&time=1700000000", 3),
        ("query?query=s[10m]&time=1700000000", 3),
        ("query_range?query=s&start=1700000000&end=1700000060&step=15", 3),
        ("series?match[]=s&match[]=old", 4),
        ("labels?", 3),
        ("label/n/values?", 3),
    ] {
        let (whole, some) = (ask(path).await, ask(&format!("{path}&limit=1")).await);
        assert_eq!((len(&whole), whole.get("warnings")), (Some(all), None), "{path}: {whole}");
        assert_eq!((len(&some), &some["warnings"]), (Some(1), &cut), "{path}: {some}");
        assert_eq!(ask(&format!("{path}&limit={all}")).await.get("warnings"), None, "{path}");
    }
    // What is outside of the look-back comes back with a longer one; what is not positive is the default.
    for (delta, found) in [("", 0), ("&lookback_delta=10m", 1), ("&lookback_delta=600", 1), ("&lookback_delta=0", 0)] {
        let json = ask(&format!("query?query=old&time=1700000000{delta}")).await;
        assert_eq!(len(&json), Some(found), "{delta}");
    }
    assert_eq!(ask("labels?match[]=old").await["data"], json!(["__name__", "job"]));
    assert_eq!(ask("label/U__n/values?match[]={job=\"a\"}").await["data"], json!(["1", "2"]));
    let recent = ask("label/__name__/values?start=1699999990").await["data"].clone();
    assert!(recent.as_array().is_some_and(|names| names.contains(&json!("s"))), "bounds are to the block: {recent}");
    let build = ask("status/buildinfo").await;
    assert_eq!((&build["data"]["version"], build["data"].get("features")), (&json!("3.14.0"), None));
    let tsdb = ask("status/tsdb?limit=1").await["data"].clone();
    assert_eq!(tsdb["headStats"]["numSeries"], 4);
    assert_eq!(tsdb["headStats"]["numLabelPairs"], 7);
    assert_eq!(tsdb["headStats"]["minTime"], T0_MS - 400_000);
    assert_eq!(tsdb["headStats"]["maxTime"], T0_MS);
    assert_eq!(tsdb["seriesCountByMetricName"], json!([{"name": "s", "value": 3}]));
    assert_eq!(tsdb["labelValueCountByLabelName"], json!([{"name": "n", "value": 3}]));
    assert_eq!(tsdb["seriesCountByLabelValuePair"], json!([{"name": "__name__=s", "value": 3}]));
    let flags = ask("status/flags").await["data"].clone();
    assert_eq!((&flags["query.lookback"], &flags["store.retention"]), (&json!("5m"), &json!("none")));
    let yaml = ask("status/config").await["data"]["yaml"].as_str().expect("a text").to_owned();
    assert!(yaml.starts_with("http:\n  listen: \"127.0.0.1:0\"\n"), "{yaml}");
    let runtime = ask("status/runtimeinfo").await["data"].clone();
    assert_eq!((&runtime["storageRetention"], &runtime["reloadConfigSuccess"]), (&json!("none"), &json!(true)));
    assert_eq!(ask("status/walreplay").await["data"], json!({"min": 0, "max": 0, "current": 0}));
    let features = ask("features").await["data"].clone();
    assert_eq!(
        (&features["promql_functions"]["rate"], &features["promql_operators"][">="]),
        (&json!(true), &json!(true))
    );
    for (kind, name) in [("api", "otlp_write_receiver"), ("rules", "query_offset"), ("tsdb", "exemplar_storage")] {
        assert_eq!(features[kind][name], true, "{name}: {features}");
    }
    server.flush().await;
    assert_eq!(ask("status/tsdb").await["data"]["headStats"]["numSeries"], 4, "flushed");
}

/// What has no partner on the other side of an operator is evaluated all the same: it may complain or fail.
#[tokio::test(flavor = "multi_thread")]
async fn annotations_and_their_places() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = with_data(dir.path(), &Options::default()).await;
    let quantile = "PromQL warning: quantile value should be between 0 and 1, got 2 (1:46)";
    let outer = quantile.replace("1:46", "1:10");
    let over_time = quantile.replace("1:46", "1:20");
    let ratio = "PromQL warning: ratio value should be between -1 and 1, got 2, capping to 1 (1:13)";
    let trim = "PromQL info: incompatible sample types encountered for binary operator \"</\": float </ float (1:26)";
    let counter =
        "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"s\" (1:1)";
    for (query, member, text) in [
        ("(old offset 5m) and on(n) quantile_over_time(2, s[10m])", "warnings", quantile),
        ("(old offset 5m) * on(n) (s </ 5)", "infos", trim),
        // The parameter of the outer aggregation is checked last.
        ("quantile(2, quantile(2, s))", "warnings", outer.as_str()),
        ("limit_ratio(2, limit_ratio(2, s))", "warnings", ratio),
        // What a subquery gave has no place.
        ("rate(s[10m:1m])", "infos", counter),
        // It is evaluated after what stands before it all the same.
        ("rate(s[10m]) + rate(s[10m:1m])", "infos", counter),
        ("quantile_over_time(2, quantile(2, s)[10m:1m])", "warnings", over_time.as_str()),
    ] {
        let params = [("query", query), ("time", "1700000000")];
        let told = server.get_with(&format!("{API}query"), &params).await.json();
        assert_eq!(told[member], json!([text]), "{query}: {told}");
    }
    let query = "(old offset 5m) * on(n) double_exponential_smoothing(s[10m], 2, 0.5)";
    let params = [("query", query), ("time", "1700000000")];
    let answer = server.get_with(&format!("{API}query"), &params).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.json()["error"], "invalid smoothing factor. Expected: 0 < sf < 1, got: 2.000000");
}

async fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
    let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
    let mut request = reqwest::Client::new().request(method, server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn methods() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = with_data(dir.path(), &Options::default()).await;
    let both = ["query", "query_range", "query_exemplars", "format_query", "parse_query", "labels", "series"];
    let get = [
        "label/job/values",
        "metadata",
        "rules",
        "alerts",
        "status/buildinfo",
        "targets",
        "targets/metadata",
        "alertmanagers",
        "status/tsdb",
        "status/config",
        "status/flags",
        "status/runtimeinfo",
        "status/walreplay",
        "features",
    ];
    let post = ["write", "read", "import/prometheus", "otlp/v1/metrics"];
    let all = both
        .iter()
        .map(|p| (p, "GET POST"))
        .chain(get.iter().map(|p| (p, "GET")))
        .chain(post.iter().map(|p| (p, "POST")));
    for (path, allowed) in all {
        let path = format!("{API}{path}");
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let answer = send(&server, method, &path, &[]).await;
            let refused = answer.status() == 405;
            assert_eq!(refused, !allowed.contains(method), "{method} {path}: {}", answer.status());
            if refused {
                assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8", "{method} {path}");
                assert_eq!(answer.text().await.expect("a text"), "Method Not Allowed\n", "{method} {path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_headers() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_HTTP__CORS_ORIGINS", "[\"https://grafana.example\"]");
    let server = with_data(dir.path(), &options).await;
    let send = async |method: &str, path: &str, headers: &[(&str, &str)]| send(&server, method, path, headers).await;
    for path in ["/metrics-api/api/v1/none", "/metrics-api/none", "/none", "/metrics-api/api/v1/label/a"] {
        let answer = send("GET", path, &[]).await;
        let (status, kind) = (answer.status(), answer.headers()["content-type"].clone());
        let text = answer.text().await.expect("a text");
        assert_eq!((status.as_u16(), kind.to_str().ok()), (404, Some("text/plain; charset=utf-8")), "{path}");
        assert_eq!(text, "404 page not found\n", "{path}");
    }
    // A caller who opens the address of a data source learns what it is for.
    let text = send("GET", "/metrics-api", &[]).await.text().await.expect("a text");
    assert!(text.starts_with("404 page not found: ") && text.contains("`/metrics-api/api/v1/query`"), "{text}");
    // `check_prometheus_connection` of Python's prometheus-api-client asks with a slash, and wants a success.
    for method in ["GET", "HEAD"] {
        let answer = send(method, "/metrics-api/", &[]).await;
        assert_eq!(answer.status(), 200, "{method}");
    }
    assert_eq!(send("POST", "/metrics-api/", &[]).await.status(), 405);
    for path in ["/metrics-api/api/v1/query", "/metrics-api/federate", "/anything"] {
        let answer = send("OPTIONS", path, &[("origin", "https://grafana.example")]).await;
        assert_eq!(answer.status(), 204, "{path}");
        assert_eq!(answer.headers()["access-control-allow-origin"], "https://grafana.example");
        let listed = |name: &str| answer.headers()[name].to_str().expect("text").split(", ").map(str::to_owned);
        for method in ["PUT", "PATCH", "DELETE"] {
            assert!(listed("access-control-allow-methods").any(|m| m == method), "{method}");
        }
        for header in ["If-Match", "Idempotency-Key", "X-Wait"] {
            assert!(listed("access-control-allow-headers").any(|h| h == header), "{header}");
        }
        for header in ["ETag", "Idempotency-Replayed", "WWW-Authenticate", "X-Dry-Run"] {
            assert!(listed("access-control-expose-headers").any(|h| h == header), "{header}");
        }
        let other = send("OPTIONS", path, &[("origin", "https://other.example")]).await;
        assert_eq!((other.status().as_u16(), other.headers().get("access-control-allow-origin")), (204, None));
    }
    let path = format!("{API}query?query=s&time=1700000000");
    let allowed = send("GET", &path, &[("origin", "https://grafana.example")]).await;
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://grafana.example");
    let varies: Vec<_> = allowed.headers().get_all("vary").iter().map(|v| v.as_bytes().to_ascii_lowercase()).collect();
    assert!(varies.contains(&b"accept-encoding".to_vec()) && varies.contains(&b"origin".to_vec()), "{varies:?}");
    let plain = send("GET", &path, &[]).await;
    assert_eq!(plain.headers().get("content-encoding"), None);
    let plain = plain.bytes().await.expect("a body");
    let unpacked: [Packing; 4] = [
        ("gzip", "gzip", |packed| read(flate2::read::GzDecoder::new(packed))),
        ("zstd", "zstd", |packed| zstd::decode_all(packed).expect("zstd")),
        ("br", "br", unpack_brotli),
        ("br;q=0.5, gzip;q=0.9, deflate", "gzip", |packed| read(flate2::read::GzDecoder::new(packed))),
    ];
    for (accepted, encoding, unpack) in unpacked {
        let packed = send("GET", &path, &[("accept-encoding", accepted)]).await;
        assert_eq!(packed.headers().get("content-encoding").and_then(|v| v.to_str().ok()), Some(encoding));
        assert_eq!(unpack(&packed.bytes().await.expect("a body")), plain, "{accepted}");
    }
    for (path, text) in [("healthy", "Prometheus Server is Healthy.\n"), ("ready", "Prometheus Server is Ready.\n")] {
        let answer = send("GET", &format!("/metrics-api/-/{path}"), &[]).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.expect("a text"), text);
        // Clients of Alertmanager look for it at the root.
        let answer = send("GET", &format!("/-/{path}"), &[]).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.expect("a text"), "OK\n");
    }
}

fn read(mut packed: impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    packed.read_to_end(&mut all).expect("a whole body");
    all
}

/// As a browser does: with the unpacker of Node.js.
fn unpack_brotli(packed: &[u8]) -> Vec<u8> {
    let script = "process.stdout.write(require('zlib').brotliDecompressSync(require('fs').readFileSync(0)))";
    let mut node = Command::new("node");
    let mut node = node.args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Node.js");
    node.stdin.take().expect("piped").write_all(packed).expect("it reads");
    let done = node.wait_with_output().expect("it ends");
    assert!(done.status.success(), "Node.js cannot unpack it");
    done.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_bind_all_endpoints() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_QUERY__EXPERIMENTAL_FUNCTIONS", "false");
    let server = with_data(dir.path(), &options).await;
    for path in ["query", "format_query", "parse_query", "query_exemplars"] {
        for (query, status) in [("mad_over_time(s[5m])", 400), ("limitk(1, s)", 400), ("rate(s[5m])", 200)] {
            let answer = server.get_with(&format!("{API}{path}"), &[("query", query)]).await;
            assert_eq!(answer.status, status, "{path} {query}: {}", answer.text());
        }
    }
    // Each pattern is below its limit of 1 MiB, all together are above theirs of 10 MiB; equal ones count once.
    let selector = |n: usize| format!("s{{n=~\"\\\\w{{20}}{n}\"}}");
    let query = (0..60).map(selector).collect::<Vec<_>>().join(" or ");
    let answer = server.get_with(&format!("{API}query"), &[("query", &query)]).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert!(answer.text().contains("the regular expressions of a query take more than 10485760 bytes"));
    let one = query.split(" or ").next().expect("the first");
    assert_eq!(server.get_with(&format!("{API}query"), &[("query", one)]).await.status, 200, "{one}");
    let selectors: Vec<String> = (0..60).map(selector).collect();
    let selectors: Vec<_> = selectors.iter().map(|s| ("match[]", s.as_str())).collect();
    assert_eq!(server.get_with(&format!("{API}series"), &selectors).await.status, 422);
}
