//! Tempo's API: parts of a trace, and which spans a time range includes.

use quiver_tests::server::{Options, Server};
use serde_json::{Value, json};

use super::{NOON, send, span};

const SECOND: i64 = 1_000_000_000;
/// Names and values.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Ids of the spans of an answer, in order, and what is said beside them.
fn part(answer: &Value) -> (Vec<Value>, Value) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let blocks = list(&answer["trace"]["resourceSpans"]);
    let scopes = blocks.iter().flat_map(|block| list(&block["scopeSpans"]));
    let mut ids: Vec<Value> = scopes.flat_map(|scope| list(&scope["spans"])).map(|s| s["spanId"].clone()).collect();
    ids.sort_by_key(Value::to_string);
    (ids, answer["status"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_gives_a_part_of_a_trace() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let of = |id: u64, parent: u64| span((1, id, parent), "shop", 2, NOON, &[("n", id.to_string().as_str())]);
    send(&server, vec![of(1, 0), of(2, 1), of(3, 2), of(4, 1)]).await;
    let id = |n: u8| {
        let ids = ["AAAAAAAAAAE=", "AAAAAAAAAAI=", "AAAAAAAAAAM=", "AAAAAAAAAAQ="];
        Value::from(ids[usize::from(n) - 1])
    };
    let partial = json!("PARTIAL");
    let second = ("q", "{ span.n = 2 }");
    let cases: [(Pairs<'_>, &[u8], &Value); 7] = [
        (&[], &[1, 2, 3, 4], &Value::Null),
        (&[("q", "{}")], &[1, 2, 3, 4], &Value::Null),
        (&[second], &[2], &partial),
        (&[second, ("match_depth", "1")], &[2, 3], &partial),
        (&[second, ("keep_hierarchy", "true")], &[1, 2], &partial),
        (&[second, ("keep_hierarchy", "true"), ("ancestor_depth", "0")], &[2], &partial),
        (&[("q", "{ span.n = 9 }")], &[], &partial),
    ];
    for (asked, ids, status) in cases {
        let answer = server.get_with("/tempo/api/v2/traces/1", asked).await;
        assert_eq!(answer.status, 200, "{asked:?}: {}", answer.text());
        let expected: (Vec<Value>, Value) = (ids.iter().copied().map(id).collect(), status.clone());
        assert_eq!(part(&answer.json()), expected, "{asked:?}");
    }
    // The older path has no such parameter.
    let whole = server.get_with("/tempo/api/traces/1", &[second]).await.json();
    assert_eq!(whole["batches"][0]["scopeSpans"][0]["spans"].as_array().map(Vec::len), Some(4), "{whole}");
    for (asked, text) in [
        (("q", "{} >> {}"), "invalid TraceQL filter: only a single TraceQL filter is supported"),
        (("match_depth", "x"), "invalid value for match_depth: strconv.Atoi: parsing \"x\": invalid syntax"),
        (("match_depth", "-2"), "invalid value for match_depth: must be >= -1"),
        (("keep_hierarchy", "y"), "invalid value for keep_hierarchy: strconv.ParseBool: parsing \"y\": invalid syntax"),
    ] {
        let params = if asked.0 == "q" { vec![asked] } else { vec![second, asked] };
        let answer = server.get_with("/tempo/api/v2/traces/1", &params).await;
        assert_eq!((answer.status, answer.text().trim_end()), (400, text), "{asked:?}");
    }
}

/// A trace is found that overlaps the range, though what is wanted of it started before.
#[tokio::test(flavor = "multi_thread")]
async fn traces_that_reach_into_the_range_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    // The first lasts for 90 seconds by its last span, the second is over when the range begins.
    let late = span((1, 2, 1), "back", 2, NOON + 90 * SECOND, &[]);
    send(&server, vec![span((1, 1, 0), "front", 2, NOON, &[]), late, span((2, 1, 0), "front", 2, NOON, &[])]).await;
    let (start, end) = ((NOON / SECOND + 60).to_string(), (NOON / SECOND + 300).to_string());
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        for (query, expected) in [
            (r#"{ resource.service.name = "front" }"#, &["1"][..]),
            (r#"{ resource.service.name = "back" }"#, &["1"]),
            ("{}", &["1"]),
        ] {
            let params = [("q", query), ("start", &start), ("end", &end)];
            let answer = server.get_with("/tempo/api/search", &params).await.json();
            let traces = answer["traces"].as_array().cloned().unwrap_or_default();
            let ids: Vec<&str> = traces.iter().filter_map(|t| t["traceID"].as_str()).collect();
            let ids: Vec<&str> = ids.into_iter().map(|id| id.trim_start_matches('0')).collect();
            assert_eq!(ids, expected, "{state}: {query}");
        }
    }
}

/// Breaks where `instant` is passed over, rates are divided by the step then, or the sample stands at one of its multiples.
#[tokio::test(flavor = "multi_thread")]
async fn an_instant_is_one_sample_of_the_range() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    let of = |trace: u64, service: &str, at: i64| span((trace, 1, 0), service, 2, NOON + at * SECOND, &[]);
    send(&server, vec![of(1, "a", 0), of(2, "a", 70), of(3, "b", 80)]).await;
    let (start, end) = ((NOON / SECOND - 10).to_string(), (NOON / SECOND + 90).to_string());
    let at_end = ((NOON / SECOND + 90) * 1000).to_string();
    let sample = |value: f64| json!([{"timestampMs": at_end, "value": value}]);
    for (query, expected) in [
        ("{} | rate() by (resource.service.name)", vec![sample(0.02), sample(0.01)]),
        ("{} | rate() by (resource.service.name) > 0.015", vec![sample(0.02)]),
        ("{} | count_over_time()", vec![sample(3.0)]),
        ("{} | max_over_time(duration)", vec![sample(0.001)]),
        ("({} | rate()) * 100", vec![sample(3.0)]),
    ] {
        let params = [("q", query), ("start", &start), ("end", &end), ("step", "60"), ("exemplars", "5")];
        let asked = [&params[..], &[("instant", "true")]].concat();
        let answer = server.get_with("/tempo/api/metrics/query_range", &asked).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text());
        let series = answer.json()["series"].as_array().cloned().unwrap_or_default();
        assert_eq!(series.iter().map(|one| one["samples"].clone()).collect::<Vec<_>>(), expected, "{query}");
        assert!(series.iter().all(|one| one["exemplars"].is_null()), "{query}");
        let asked = [&params[..], &[("instant", "no")]].concat();
        let steps = server.get_with("/tempo/api/metrics/query_range", &asked).await.json();
        assert_ne!(steps["series"][0]["samples"], expected[0], "{query}");
    }
}

/// Breaks where a name that TraceQL has is refused as a tag, a quoted one loses signs, or a scope that Tempo has is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn scopes_and_names_of_tags_are_those_of_the_language() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default()).await;
    send(&server, vec![span((1, 1, 0), "shop", 2, NOON, &[("a\"b c", "x")])]).await;
    for (path, member, expected) in [
        ("v2/search/tags?scope=trace", "scopes", json!([])),
        ("search/tags?scope=trace", "tagNames", json!([])),
        ("search/tags?scope=intrinsic&limit=3", "tagNames", json!(["duration", "event:name", "event:timeSinceStart"])),
        ("search/tag/error/values", "tagValues", json!(["true"])),
        ("search/tag/status.code/values", "tagValues", json!(["error", "ok", "unset"])),
        ("v2/search/tag/span:childCount/values", "tagValues", json!([])),
        ("v2/search/tag/nestedSetLeft/values", "tagValues", json!([])),
        ("v2/search/tag/span.%22a%5C%22b%20c%22/values", "tagValues", json!([{"type": "string", "value": "x"}])),
    ] {
        let answer = server.get(&format!("/tempo/api/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.json()[member], expected, "{path}");
    }
    let answer = server.get("/tempo/api/v2/search/tags?scope=bad").await;
    assert_eq!((answer.status, answer.text().trim_end()), (400, "invalid scope: bad"));
    let posted = server.post("/tempo/api/v2/traces/diff", &[], b"{}".to_vec()).await;
    let got = server.get("/tempo/api/v2/traces/diff").await;
    assert!(posted.status == 405 && posted.text().contains("/traces/compare"), "{}", posted.text());
    assert_eq!((got.status, got.text()), (posted.status, posted.text()));
}
