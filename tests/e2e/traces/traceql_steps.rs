//! TraceQL metrics over the real binary: the steps of a range, the spans in each, and the series.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use super::traceql::{NOON, numbers, text};

/// Breaks if a step holds its beginning instead of its end, or the window is not widened to whole steps.
#[tokio::test(flavor = "multi_thread")]
async fn samples_stand_at_the_ends_of_their_steps() {
    const MINUTE: i64 = 60_000_000_000;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let starts = [NOON - 2 * MINUTE, NOON - 2 * MINUTE + 1, NOON - 1, NOON, NOON + 1, NOON + MINUTE, NOON + MINUTE + 1];
    let span = |(n, start): (usize, &i64)| {
        json!({"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": "x",
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": start.to_string()})
    };
    let spans: Vec<Value> = starts.iter().enumerate().map(span).collect();
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes();
    let answer = server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        // By a plan, and span by span.
        for query in ["{} | count_over_time()", "{} | count_over_time() by (kind)", "{} | rate() by (kind) | topk(1)"] {
            let second = NOON / 1_000_000_000;
            let (start, end) = ((second - 59).to_string(), (second + 7).to_string());
            let params = [("q", query), ("start", &start), ("end", &end), ("step", "60")];
            let answer = server.get_with("/tempo/api/metrics/query_range", &params).await.json();
            let sample = |one: &Value| {
                let at = one["timestampMs"].as_str().and_then(|at| at.parse::<i64>().ok()).unwrap_or_default();
                (at - NOON / 1_000_000, one["value"].as_f64().unwrap_or_default())
            };
            let samples = answer["series"][0]["samples"].as_array().into_iter().flatten().map(sample);
            let by = if query.contains("rate") { 60.0 } else { 1.0 };
            let expected = [(-60_000, 1.0), (0, 2.0), (60_000, 2.0)].map(|(at, count)| (at, count / by));
            assert_eq!(samples.collect::<Vec<_>>(), expected, "{query}: {answer}");
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the server goes by the wall clock")]
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// Breaks if a step is told that has not begun, or the one that goes on is not.
#[tokio::test(flavor = "multi_thread")]
async fn no_step_stands_in_the_future() {
    const STEP_MS: i64 = 600_000;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let ended = |at: i64| at - at % STEP_MS;
    let before = now_ms();
    let (start, end) = ((before / 1000 - 7200).to_string(), (before / 1000 + 7200).to_string());
    let params = [("q", "{} | count_over_time()"), ("start", &start), ("end", &end), ("step", "10m")];
    let answer = server.get_with("/tempo/api/metrics/query_range", &params).await.json();
    let samples = answer["series"][0]["samples"].as_array().into_iter().flatten();
    let times: Vec<i64> = samples.filter_map(|one| one["timestampMs"].as_str()?.parse().ok()).collect();
    assert_eq!(times.first(), Some(&ended(before - before % 1000 - 7_200_000)), "{answer}");
    // A step may begin while it is asked.
    let last = times.last().copied().unwrap_or_default();
    let goes_on_till = |at: i64| ended(at + STEP_MS - 1);
    assert!((goes_on_till(before)..=goes_on_till(now_ms())).contains(&last), "{answer}");
}

/// Breaks if the rarest values are put together, or a series has a label without a value.
#[tokio::test(flavor = "multi_thread")]
async fn each_value_is_a_series() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let span = |n: u64| {
        json!({"traceId": format!("{:032x}", n + 1), "spanId": format!("{:016x}", n + 1), "name": format!("name{n}"),
            "startTimeUnixNano": NOON.to_string(), "endTimeUnixNano": NOON.to_string(),
            "attributes": if n == 0 { json!([text("a", "x")]) } else { json!([]) }})
    };
    let spans: Vec<Value> = (0..150).map(span).collect();
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    let by_name = numbers(&server, "{} | count_over_time() by (name)").await;
    assert_eq!(by_name.len(), 150);
    assert!(by_name.values().all(|count| *count == 1.0), "{by_name:?}");
    let expected = |rows: &[(&str, f64)]| rows.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect();
    let check = async |query: &str, rows: &[(&str, f64)]| {
        let expected: BTreeMap<String, f64> = expected(rows);
        assert_eq!(numbers(&server, query).await, expected, "{query}");
    };
    check(
        "{ name =~ `name[01]` } | count_over_time() by (span.a, name)",
        &[("span.a=x name=name0", 1.0), ("name=name1", 1.0)],
    )
    .await;
    check("{} | count_over_time() by (span.a)", &[("span.a=x", 1.0), ("span.a=nil", 149.0)]).await;
    // Without labels there is a series of no spans, too.
    check("{ name = `none` } | count_over_time()", &[("__name__=count_over_time", 0.0)]).await;
    check("{ name = `none` } | count_over_time() > 0", &[]).await;
    check("{ name = `none` } | count_over_time() by (name)", &[]).await;
    check("{ name = `none` } | max_over_time(duration)", &[]).await;
    let (start, end) = ((NOON / 1_000_000_000 - 1).to_string(), (NOON / 1_000_000_000 + 1).to_string());
    for path in ["/tempo/api/metrics/query_range", "/tempo/api/metrics/query"] {
        for (most, series, status) in
            [("149", 149, json!("PARTIAL")), ("150", 150, json!(null)), ("0", 150, json!(null))]
        {
            let query = "{} | count_over_time() by (name)";
            let params = [("q", query), ("start", &start), ("end", &end), ("step", "60"), ("maxSeries", most)];
            let answer = server.get_with(path, &params).await.json();
            let found = (answer["series"].as_array().map(Vec::len), &answer["status"]);
            assert_eq!(found, (Some(series), &status), "{path} {most}");
        }
    }
    // A series whose values are all filtered out is not returned.
    let noon = (NOON / 1_000_000_000).to_string();
    for (kept, series) in [("< 1", 0), ("< 2", 150)] {
        let query = format!("{{}} | count_over_time() by (name) {kept}");
        let params = [("q", query.as_str()), ("start", &noon), ("end", &noon), ("step", "60")];
        let answer = server.get_with("/tempo/api/metrics/query_range", &params).await.json();
        assert_eq!(answer["series"].as_array().map(Vec::len), Some(series), "{kept}");
    }
    let none = [("q", "{ name = `none` } | rate()"), ("since", "10s")];
    let answer = server.get_with("/tempo/api/metrics/query", &none).await.json();
    assert_eq!(answer["series"][0]["value"], json!(0.0), "{answer}");
}

/// Breaks if a hint that spans stand for others is passed over: of spans, of whole traces or within arithmetic.
#[tokio::test(flavor = "multi_thread")]
async fn sampled_spans_stand_for_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let span = |n: u64, state: &str| {
        json!({"traceId": format!("{n:032x}"), "spanId": format!("{n:016x}"), "name": "x", "traceState": state,
            "startTimeUnixNano": NOON.to_string(), "endTimeUnixNano": (NOON + 1_000_000_000).to_string()})
    };
    let spans = [span(1, "ot=th:8"), span(2, "a=b,ot=th:c"), span(3, "")];
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string().into_bytes();
    server.post("/v1/traces", &[("content-type", "application/json")], body).await;
    for flushed in [false, true] {
        if flushed {
            server.flush().await;
        }
        for (query, number) in [
            ("{} | count_over_time()", 3.0),
            ("{} | count_over_time() with (extrapolate=false)", 3.0),
            ("{} | count_over_time() with (extrapolate=true)", 7.0),
            ("{ rootName = `x` } | count_over_time() with (extrapolate=true)", 7.0),
            ("{} | sum_over_time(duration) with (extrapolate=true)", 7.0),
            ("({} | count_over_time()) * 2 with (extrapolate=true)", 14.0),
        ] {
            let found: Vec<f64> = numbers(&server, query).await.into_values().collect();
            assert_eq!(found, [number], "flushed {flushed}: {query}");
        }
    }
}
