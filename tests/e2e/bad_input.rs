//! Bad input gets the exact error, nothing else is lost, and the service keeps running.

use quiver_tests::bodies::{compress, field, remote_write, varint};
use quiver_tests::server::{Options, Server};
use std::fmt::Write as _;

const WRITE: &str = "/metrics-api/api/v1/write";

/// Names and values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

#[tokio::test(flavor = "multi_thread")]
async fn writes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let good = remote_write(&[(vec![("__name__", "m")], vec![(1_700_000_000_000, 1.0)])]);
    let mut bomb = Vec::new();
    varint(&mut bomb, 10 << 30);
    bomb.extend_from_slice(&good[2..]);
    let cases: Vec<(&str, Pairs<'_>, Vec<u8>, u16)> = vec![
        ("truncated", &[], good[..good.len() - 3].to_vec(), 400),
        ("no snappy", &[], b"hello".to_vec(), 400),
        ("no protobuf", &[], compress(&[0xff; 20]), 400),
        ("declared length of 10 GiB", &[], bomb, 400),
        ("other content type", &[("content-type", "application/json")], good.clone(), 415),
        ("other encoding", &[("content-encoding", "br")], good.clone(), 415),
        ("empty", &[], compress(&[]), 204),
    ];
    for (name, headers, body, status) in cases {
        let answer = server.post(WRITE, headers, body).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
    }
    // One series without a name: skipped, the other is stored.
    let series = vec![
        (vec![("job", "nameless")], vec![(1_700_000_000_000, 1.0)]),
        (vec![("__name__", "named")], vec![(1_700_000_000_000, 2.0)]),
    ];
    assert_eq!(server.post(WRITE, &[], remote_write(&series)).await.status, 204);
    let data = server.query("named", 1_700_000_000.0).await;
    assert_eq!(data["result"][0]["value"][1], "2");
    assert_eq!(server.query("{job=\"nameless\"}", 1_700_000_000.0).await["result"], serde_json::json!([]));
    // A label that is no UTF-8.
    let mut label = Vec::new();
    field(&mut label, 1, b"a");
    field(&mut label, 2, &[0xff, 0xfe]);
    let mut one = Vec::new();
    field(&mut one, 1, &label);
    let mut raw = Vec::new();
    field(&mut raw, 1, &one);
    assert_eq!(server.post(WRITE, &[], compress(&raw)).await.status, 204);
    // One beyond a limit of ours is told, and the other is stored.
    let long = "x".repeat((2 << 20) + 1);
    let series = vec![
        (vec![("__name__", "long"), ("a", &*long)], vec![(1_700_000_000_000, 1.0)]),
        (vec![("__name__", "short")], vec![(1_700_000_000_000, 3.0)]),
    ];
    let answer = server.post(WRITE, &[], remote_write(&series)).await;
    assert_eq!((answer.status, answer.text().trim()), (400, "1 rejected: label name or value too long, first `long`"));
    assert_eq!(server.query("short", 1_700_000_000.0).await["result"][0]["value"][1], "3");
    // Told or not, what was left out is counted by its reason.
    let text = "a{b=\"1\"} 1 1700000000000\na b c\n";
    assert_eq!(server.post("/metrics-api/api/v1/import/prometheus", &[], text.into()).await.status, 200);
    let metrics = server.get("/metrics").await.text();
    for (format, reason, count) in [
        ("remote_write", "no_metric_name", 1),
        ("remote_write", "invalid_utf8", 1),
        ("remote_write", "long_label", 1),
        ("remote_write", "repeated_label", 0),
        ("remote_write2", "no_metric_name", 0),
        ("exposition", "bad_line", 1),
    ] {
        let line = format!("quiver_metrics_rejected_total{{format=\"{format}\",reason=\"{reason}\"}} {count}");
        assert!(metrics.lines().any(|l| l == line), "`{line}` is not in\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let deep = format!("{}1{}", "(".repeat(1_000_000), ")".repeat(1_000_000));
    let cases = [
        ("sum(", 400, "bad_data", "invalid parameter \"query\": 1:5: parse error: "),
        ("foo(1)", 400, "bad_data", "unknown function with name \"foo\""),
        ("", 400, "bad_data", "invalid parameter \"query\": "),
        ("rate(m)", 400, "bad_data", "expected type range vector"),
        (deep.as_str(), 400, "bad_data", "invalid parameter \"query\": "),
    ];
    for (query, status, kind, text) in cases {
        let shown = &query[..query.len().min(40)];
        let form = url_form(&[("query", query), ("time", "0")]);
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let answer = server.post("/metrics-api/api/v1/query", &headers, form).await;
        assert_eq!(answer.status, status, "{shown}: {}", answer.text());
        let json = answer.json();
        assert_eq!(json["errorType"], kind, "{shown}: {json}");
        assert!(json["error"].as_str().unwrap_or_default().contains(text), "{shown}: {json}");
    }
    let range = "/metrics-api/api/v1/query_range";
    let cases: [(&[(&str, &str)], &str); 5] = [
        (&[("query", "1"), ("start", "0"), ("end", "10"), ("step", "-1")], "zero or negative query resolution step"),
        (
            &[("query", "1"), ("start", "10"), ("end", "0"), ("step", "1")],
            "end timestamp must not be before start time",
        ),
        (&[("query", "1"), ("start", "0"), ("end", "11001"), ("step", "1")], "exceeded maximum resolution of 11,000"),
        (
            &[("query", "1"), ("start", "x"), ("end", "1"), ("step", "1")],
            "invalid parameter \"start\": cannot parse \"x\"",
        ),
        (&[("query", "\"a\""), ("start", "0"), ("end", "1"), ("step", "1")], "must be Scalar or instant Vector"),
    ];
    for (params, text) in cases {
        let answer = server.get_with(range, params).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.json()["error"].as_str().unwrap_or_default().contains(text), "{}", answer.text());
    }
    let passes = [("query", "1"), ("start", "0"), ("end", "11000"), ("step", "1")];
    assert_eq!(server.get_with(range, &passes).await.status, 200, "11,001 points pass");
    let answer = server.get("/metrics-api/api/v1/series").await;
    assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("no match[] parameter provided")));
}

/// What is said of a request is short, however long what it is about: each copy of that, escaped, would take memory that
/// nothing counts.
#[tokio::test(flavor = "multi_thread")]
async fn errors_repeat_little() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let long = "z".repeat(200_000);
    let (sql, json, form) = ("application/sql", "application/json", "application/x-www-form-urlencoded");
    let cases = [
        ("/sql-api/v1/query", sql, format!("select '{long}'::int"), 400),
        ("/sql-api/v1/query", sql, "select repeat('z', 20000000)::int".to_owned(), 422),
        ("/sql-api/v1/query", sql, "select now() at time zone repeat('z', 20000000)".to_owned(), 422),
        ("/olap-api/v1/load", json, format!("{{\"query\": {{\"measures\": [\"{long}\"]}}}}"), 400),
        ("/olap-api/v1/load", json, format!("{{\"query\": {{\"{long}\": 1}}}}"), 400),
        ("/metrics-api/api/v1/query", form, format!("query={long}(1)"), 400),
        ("/logs-api/select/logsql/query", form, format!("query=*&start={long}"), 400),
        ("/api/v2/alerts", json, format!("[{{\"labels\": {{\"a\": \"b\"}}, \"generatorURL\": \"{long}\"}}]"), 422),
        ("/rulesapi/rules/test", json, format!("{{\"{long}\": 1}}"), 422),
        ("/rulesapi/rulepolicy/templates/test", json, format!("{{\"text\": \"{{{{ {long}\"}}"), 422),
    ];
    for (path, media, body, status) in cases {
        let shown = body[..body.len().min(60)].to_owned();
        let answer = server.post(path, &[("content-type", media)], body.into_bytes()).await;
        let text = answer.text();
        assert_eq!(answer.status, status, "{path} {shown}: {text:.300}");
        assert!(text.len() < 8_192 && text.contains("zz … zz"), "{path} {shown}: {} bytes: {text:.300}", text.len());
    }
}

/// A patch is held once, however many it is for: ten thousand copies of a large one are more than any memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_patch_for_many_is_held_once() {
    const MANY: usize = 2_000;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let ids: Vec<String> = (0..MANY).map(|n| format!("01a22a91-0000-7000-8000-{n:012x}")).collect();
    let body = serde_json::json!({"ids": ids, "patch": {"query": "z".repeat(200_000)}}).to_string();
    server.forget_peak();
    let before = server.held_bytes();
    let path = "/platform-api/saved-views/bulk-update?dryRun=true";
    let answer = server.post(path, &[("content-type", "application/json")], body.into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["failed"].as_array().map(Vec::len), Some(MANY), "none of them is there");
    let grown = server.peak_held_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

fn url_form(pairs: &[(&str, &str)]) -> Vec<u8> {
    let encode = |text: &str| {
        let mut out = String::with_capacity(text.len());
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() {
                out.push(byte as char);
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
        }
        out
    };
    let pairs: Vec<String> = pairs.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
    pairs.join("&").into_bytes()
}

/// Escapes of bytes make texts that are no UTF-8: they name no label, and show as Prometheus shows them.
#[tokio::test(flavor = "multi_thread")]
async fn texts_of_broken_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    server.write(remote_write(&[(vec![("__name__", "m"), ("src", "v")], vec![(1_700_000_000_000, 1.0)])])).await;
    let refused = [
        (
            r#"label_replace(m, "\xff", "", "src", "(.*)")"#,
            422,
            "invalid destination label name in label_replace(): \u{fffd}",
        ),
        // The outer call is looked at first.
        (
            r#"label_replace(label_replace(m, "", "", "src", ""), "x", "", "src", "[")"#,
            422,
            "invalid regular expression in label_replace(): [",
        ),
        (
            r#"label_join(label_join(m, "", "", "src"), "x", "", "")"#,
            422,
            "invalid source label name in label_join(): ",
        ),
        (r#"label_replace(m, "", "", "src", "(.*)")"#, 422, "invalid destination label name in label_replace(): "),
        (r#"label_replace(m, "a", "", "src", "\xff")"#, 422, "invalid regular expression in label_replace(): \u{fffd}"),
        (r#"label_join(m, "a\xff", "-", "src")"#, 422, "invalid destination label name in label_join(): a\u{fffd}"),
        (r#"label_join(m, "a", "-", "src", "\377")"#, 422, "invalid source label name in label_join(): \u{fffd}"),
        (r#"count_values("a\xc5z", m)"#, 422, "invalid label name \"a\\xc5z\""),
        (r#"count_values("", m)"#, 422, "invalid label name \"\""),
        (r#"histogram_quantiles(m, "", 0.5)"#, 422, "invalid label name \"\" in histogram_quantiles()"),
        (r#"sum by ("\xff") (m)"#, 400, "1:9: parse error: invalid label name for grouping: \"\\xff\""),
        (r#"m * on ("\xff") m"#, 400, "1:9: parse error: invalid label name for grouping: \"\\xff\""),
        (r#"m{src=~"\xff"}"#, 400, "1:3: parse error: invalid regular expression \"\\xff\": invalid UTF-8"),
    ];
    for (query, status, error) in refused {
        let answer = server.get_with("/metrics-api/api/v1/query", &[("query", query), ("time", "1700000000")]).await;
        let text = answer.json()["error"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, status, "{query}: {text}");
        assert_eq!(text.trim_start_matches("invalid parameter \"query\": "), error, "{query}");
    }
    // As values they are taken, and shown as JSON can show them.
    let labels = [
        (r#"label_replace(m, "a", "x\xff", "src", "(.*)")"#, "a", "x\u{fffd}"),
        (r#"label_join(m, "a", "\xff", "src", "src")"#, "a", "v\u{fffd}v"),
        (r#"label_replace(m, "a", "b", "\xff", "")"#, "a", "b"),
        (r#"count_values("\u00fc", m)"#, "ü", "1"),
    ];
    for (query, label, value) in labels {
        let data = server.query(query, 1_700_000_000.0).await;
        assert_eq!(data["result"][0]["metric"][label], value, "{query}: {data}");
    }
    let answer =
        server.get_with("/metrics-api/api/v1/format_query", &[("query", r#"count_values("a\xc5z", m)"#)]).await;
    assert_eq!(answer.json()["data"], r#"count_values("a\xc5z", m)"#);
}
