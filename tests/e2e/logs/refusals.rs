//! LogsQL over HTTP: errors with their status and text; limits of memory and rows; extra filters of requests, which no
//! query can bypass.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};
use std::fmt::Write as _;

use crate::logs::query::{API, ENDPOINTS, ask, rows, send, values};

async fn start(options: &Options) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    (Server::start(dir.path(), options).await, dir)
}

async fn refused(server: &Server, endpoint: &str, params: &[(&str, &str)], status: u16, words: &str) {
    let answer = ask(server, endpoint, params).await;
    assert_eq!(answer.status, status, "{endpoint} {params:?}: {}", answer.text());
    assert!(answer.text().contains(words), "{endpoint} {params:?}: no `{words}` in {}", answer.text());
    let form = if status == 422 { "application/json" } else { "text/plain; charset=utf-8" };
    assert_eq!(answer.headers["content-type"], form, "{endpoint} {params:?}");
    if status == 422 {
        // All that Grafana's data source shows of it.
        let body = answer.json();
        assert_eq!((&body["status"], &body["errorType"]), (&json!("error"), &json!("execution")), "{body}");
        assert!(body["error"].as_str().is_some_and(|text| text.contains(words)), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parameters() {
    let (server, _dir) = start(&Options::default()).await;
    for (endpoint, query, more) in ENDPOINTS {
        refused(&server, endpoint, more, 400, "`query`").await;
        let broken: Vec<_> = [("query", "foo | stats cuont(x)")].iter().chain(more).copied().collect();
        refused(&server, endpoint, &broken, 400, "count").await;
        let subquery: Vec<_> = [("query", "foo a:in(* | stats cuont(x))")].iter().chain(more).copied().collect();
        refused(&server, endpoint, &subquery, 400, "count").await;
        let common = [
            ("start", "yesterday"),
            ("end", "2025-13-01"),
            ("time", "x"),
            ("extra_filters", "(a"),
            ("extra_filters", "{\"a\":[1]}"),
            ("extra_stream_filters", "{a="),
            ("extra_stream_filters", "{\"a\":1}"),
            ("hidden_fields_filters", "pass*"),
        ];
        for (name, value) in common {
            let params: Vec<_> = [("query", query), (name, value)].iter().chain(more).copied().collect();
            refused(&server, endpoint, &params, 400, "").await;
        }
        let path = format!("{API}/{endpoint}");
        let client = reqwest::Client::new();
        let put = client.put(server.url(&path)).send().await.expect("an answer");
        assert_eq!(put.status(), 405, "{endpoint}");
    }
    let own: [(&str, &[(&str, &str)]); 11] = [
        (
            "query",
            &[
                ("limit", "x"),
                ("limit", "1.5"),
                ("limit", "99999999999999999999"),
                ("offset", "5"),
                ("sort_direction", "up"),
            ],
        ),
        ("hits", &[("step", "0"), ("step", "-1h"), ("step", "x"), ("offset", "x"), ("fields_limit", "x")]),
        ("field_names", &[("limit", "x")]),
        ("field_values", &[("limit", "x")]),
        ("streams", &[("limit", "x")]),
        ("stream_ids", &[("limit", "x")]),
        ("stream_field_names", &[("limit", "x")]),
        ("stream_field_values", &[("limit", "x")]),
        (
            "facets",
            &[("limit", "x"), ("max_values_per_field", "x"), ("max_value_len", "x"), ("keep_const_fields", "perhaps")],
        ),
        ("stats_query_range", &[("step", "0"), ("step", "x")]),
        ("stats_query", &[("time", "x")]),
    ];
    for (endpoint, wrong) in own {
        let (_, query, more) = ENDPOINTS.into_iter().find(|e| e.0 == endpoint).expect("known");
        for (name, value) in wrong {
            let params: Vec<_> = [("query", query), (*name, *value)].iter().chain(more).copied().collect();
            refused(&server, endpoint, &params, 400, name).await;
            // Also where no row is asked for.
            let params: Vec<_> = params.into_iter().chain([("explain", "true")]).collect();
            refused(&server, endpoint, &params, 400, name).await;
        }
    }
    refused(&server, "field_values", &[("query", "*")], 400, "field").await;
    refused(&server, "stream_field_values", &[("query", "*")], 400, "field").await;
    assert_eq!(ask(&server, "no_such_endpoint", &[("query", "*")]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_do_not_fit_the_endpoint() {
    let (server, _dir) = start(&Options::default()).await;
    for query in ["*", "* | top 5 by (a)", "* | stats count() n | unpack_json", "* | by (x) count() n | delete x"] {
        refused(&server, "stats_query", &[("query", query)], 422, "`").await;
        refused(&server, "stats_query_range", &[("query", query)], 422, "`").await;
    }
    for query in ["* | stats count() n | limit 3", "* | stats count() n | offset 3", "* | stats count() n | fields n"] {
        refused(&server, "stats_query_range", &[("query", query)], 422, "`").await;
    }
    let lost = [("query", "* | fields app | stats by (app) count() n")];
    refused(&server, "stats_query_range", &lost, 422, "`fields app` loses `_time`").await;
    assert_eq!(ask(&server, "stats_query", &lost).await.status, 200);
    // A filter that is meant to narrow does not open everything.
    refused(&server, "query", &[("query", "*"), ("extra_filters", "{\"a\":[]}")], 400, "extra filter").await;
    // What a reader of the error can go by: the place, and what may have been meant.
    refused(&server, "query", &[("query", "a | stats cuont(x)")], 400, "count").await;
    refused(&server, "query", &[("query", "a:~\"(\"")], 400, "regular expression").await;
    refused(&server, "query", &[("query", "\"a")], 400, "").await;
    let long = "a ".repeat(1 << 20);
    let body = format!("query={long}").into_bytes();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.post(&format!("{API}/query"), &form, body).await;
    assert!(matches!(answer.status, 400 | 413), "{}", answer.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_have_names() {
    let (server, _dir) = start(&Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    let line = |n: usize| format!("{{\"_msg\":\"{n} {}\",\"n\":{n}}}\n", "0123456789abcdef".repeat(20));
    for part in 0..10 {
        send(&server, "n0", (0..20_000).map(|n| line(part * 20_000 + n)).collect()).await;
    }
    refused(&server, "query", &[("query", "* | stats values(_msg) v")], 422, "memory.limit").await;
    refused(&server, "query", &[("query", "* | join by (x) (*)")], 422, "memory.limit").await;
    // Far more rows than there is memory, in order: through spill, or refused; not a word about faults of ours.
    let answer = ask(&server, "query", &[("query", "* | sort by (_msg) | fields n | stats count() n")]).await;
    assert!(matches!(answer.status, 200 | 422), "{}", answer.text());
    if answer.status == 200 {
        assert_eq!(values(&answer, "n"), ["200000"]);
    }
    let answer = ask(&server, "field_values", &[("query", "*"), ("field", "_msg"), ("limit", "3")]).await;
    assert!(answer.status == 200 || answer.text().contains("memory.limit"), "{}", answer.text());
    assert!(server.held_bytes() < 400 << 20, "{} MiB", server.held_bytes() >> 20);
    assert_eq!(values(&ask(&server, "query", &[("query", "* | stats count() n")]).await, "n"), ["200000"]);
}

/// A list of very many values may be asked for in part.
#[tokio::test(flavor = "multi_thread")]
async fn the_commonest_of_many_values() {
    let (server, _dir) = start(&Options::default().env("QUIVER_QUERY__ROWS_MAX", "1000")).await;
    let line = |n: usize| format!("{{\"_msg\":\"{n}\",\"n\":\"v{}\"}}\n", if n < 6 { n / 3 } else { n });
    send(&server, "n0", (0..3000).map(line).collect()).await;
    let all = [("query", "*"), ("field", "n")];
    refused(&server, "field_values", &all, 422, "1000 rows").await;
    let found = async |more: &[(&str, &str)]| {
        let params: Vec<_> = all.iter().chain(more).copied().collect();
        let answer = ask(&server, "field_values", &params).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    };
    let expected = r#"{"values":[{"value":"v0","hits":3},{"value":"v1","hits":3}]}"#;
    assert_eq!(found(&[("limit", "2")]).await.trim(), expected);
    assert_eq!(found(&[("filter", "1"), ("limit", "1")]).await.trim(), r#"{"values":[{"value":"v1","hits":3}]}"#);
    assert_eq!(found(&[("filter", "v299")]).await.matches("\"hits\":1}").count(), 11);
    for (path, field) in [("streams", "x"), ("stream_ids", "x"), ("field_values", "_time"), ("field_values", "_stream")]
    {
        let params = [("query", "*"), ("field", field), ("filter", "nothing like it")];
        let answer = ask(&server, path, &params).await;
        assert_eq!((answer.status, answer.text().trim()), (200, r#"{"values":[]}"#), "{path} {field}");
    }
}

/// Queries that try to see more than the filters of their request let them.
const ESCAPES: &[&str] = &[
    "*",
    "tenant:b",
    "tenant:=b or *",
    "!tenant:a",
    "tenant:a or tenant:b",
    "*:b",
    "app:in(* | fields app)",
    "options(ignore_global_time_filter=true) *",
    "options(global_filter=(tenant:b)) * | union (*)",
    "* | union (*)",
    "* | union (tenant:b)",
    "* | union (* | union (tenant:b))",
    "* | join by (app) (tenant:b) prefix p",
    "* | join by (n) (tenant:b) inner",
    "* | stream_context before 5 after 5",
    "word | stream_context after 100 time_window 10d",
    "n:in(tenant:b | fields n)",
    "* | stats by (tenant, n) count() if (n:in(tenant:b | fields n)) c",
    "* | format if (n:in(tenant:b | fields n)) 'seen' as p",
    "* | top 100 by (tenant)",
    "* | uniq by (tenant)",
    "* | field_values tenant",
    "* | facets keep_const_fields",
    "* # or tenant:b",
    "_stream_id:in(tenant:b | fields _stream_id)",
    "{app=\"secret\"} or {app=\"x\"}",
    "* | stats row_any(*) r",
    "* | stats by (app) uniq_values(tenant) t",
    "* | sort by (n) limit 100",
    "* | generate_sequence 3",
    "* | set_stream_fields tenant",
    "* | running_stats count() c",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_query_escapes_the_filters_of_its_request() {
    let (server, _dir) = start(&Options::default()).await;
    let mut lines = String::new();
    for n in 0..60 {
        let (tenant, app) = (["a", "b"][n % 2], ["x", "y", "z"][n % 3]);
        let _ = writeln!(
            lines,
            "{{\"_time\":{},\"_msg\":\"word {tenant}{n}\",\"tenant\":\"{tenant}\",\"app\":\"{app}\",\"n\":{n}}}",
            1_741_564_800 + n
        );
    }
    send(&server, "app", lines).await;
    send(&server, "app", "{\"_msg\":\"alone\",\"tenant\":\"b\",\"app\":\"secret\"}\n".into()).await;
    let filters: [(&str, &str); 5] = [
        ("extra_filters", "tenant:=a"),
        ("extra_filters", "{\"tenant\":\"a\"}"),
        ("extra_filters", "{\"tenant\":[\"a\",\"q\"]}"),
        // With a comment that must not reach into the query, and a subquery of its own.
        ("extra_filters", "tenant:=a # or"),
        ("extra_filters", "n:in(tenant:=a | fields n) tenant:=a"),
    ];
    for (name, filter) in filters {
        for query in ESCAPES.iter().copied() {
            let answer = ask(&server, "query", &[("query", query), (name, filter)]).await;
            assert_eq!(answer.status, 200, "{query} {filter}: {}", answer.text());
            let text = answer.text();
            let leak = text.lines().find(|line| {
                let row: Value = serde_json::from_str(line).expect("a row");
                let seen = |value: &Value| {
                    let text = value.as_str().unwrap_or_default();
                    matches!(text, "b" | "seen" | "secret")
                        || text.contains("word b")
                        || text.contains("\"b\"")
                        || text == "alone"
                };
                row.as_object().expect("a row").values().any(seen)
            });
            assert!(leak.is_none(), "{query} with {filter} gives {leak:?}");
        }
        for broken in ["*) or (*", "* | union (*", "* | filter", "*)"] {
            assert_eq!(ask(&server, "query", &[("query", broken), (name, filter)]).await.status, 400, "{broken}");
        }
        for (endpoint, query, _) in ENDPOINTS.into_iter().filter(|e| e.0 != "tail") {
            let params = [("query", query), (name, filter), ("field", "tenant"), ("keep_const_fields", "1")];
            let answer = ask(&server, endpoint, &params).await;
            assert_eq!(answer.status, 200, "{endpoint}: {}", answer.text());
            let text = answer.text();
            assert!(!text.contains("\"b\"") && !text.contains("secret"), "{endpoint} with {filter}: {text}");
        }
    }
    // Several are all valid; streams are chosen by labels.
    let both = [("query", "*"), ("extra_filters", "tenant:=a"), ("extra_filters", "tenant:=b")];
    assert!(rows(&ask(&server, "query", &both).await).is_empty());
    for filter in ["{app=\"x\"}", "{\"app\":\"x\"}", "{\"app\":[\"x\",\"none\"]}"] {
        let params = [("query", "* | union (*) | uniq by (app)"), ("extra_stream_filters", filter)];
        assert_eq!(values(&ask(&server, "query", &params).await, "app"), ["x"], "{filter}");
    }
    // A range of time, with the one way out that there is.
    let range = [("start", "2025-03-10T00:00:10Z"), ("end", "2025-03-10T00:00:11Z")];
    for (query, count) in [
        ("*", 2),
        ("* | union (*)", 4),
        ("* | union (options(ignore_global_time_filter=true) app:x)", 22),
        ("n:in(* | fields n)", 2),
        ("_time:2025 or *", 2),
    ] {
        let params: Vec<_> = [("query", query)].into_iter().chain(range).collect();
        assert_eq!(rows(&ask(&server, "query", &params).await).len(), count, "{query}");
    }
    // Filters with subqueries that hold each other again, and many of them.
    let nested = "options(global_filter=(n:in(tenant:=a | fields n))) * | union (*) | stats count() c";
    assert_eq!(values(&ask(&server, "query", &[("query", nested)]).await, "c"), ["60"]);
    let many = format!("*{}", " | union (*)".repeat(20));
    let answer =
        ask(&server, "query", &[("query", &many), ("extra_filters", "n:in(n:in(* | fields n) | fields n)")]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}
