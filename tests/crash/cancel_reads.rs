//! A client that disconnects ends its LogsQL query or trace search (promise L5). None of these queries ends by itself
//! soon: generated sequences and conditions are as long as necessary.

use std::time::{Duration, Instant};

use quiver_tests::load::Caller;
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::within;
use serde_json::{Value, json};

use crate::arena::comes_up;
use crate::cancel::until;

const PATIENCE: Duration = Duration::from_mins(5);
/// Processor time that may be spent after the client went, though this is the build for tests.
const CPU_AFTER: Duration = Duration::from_millis(200);
/// Rows without end, for all that a test waits.
const ENDLESS: &str = "* | generate_sequence 1000000000000";

/// A read: its name, and the path and body that it is asked with.
struct Read {
    name: &'static str,
    path: &'static str,
    body: String,
}

fn query(name: &'static str, text: &str) -> Read {
    let url = reqwest::Url::parse_with_params("http://any/", [("query", text)]).expect("an address");
    let body = url.query().expect("a parameter").to_owned();
    Read { name, path: "/logs-api/select/logsql/query", body }
}

fn reads() -> Vec<Read> {
    let words = |count: usize| (0..count).map(|n| format!("word{n}")).collect::<Vec<_>>();
    let pipes = |pipes: &str| format!("{ENDLESS} | {pipes}");
    vec![
        query("a sort", &pipes("sort by (_msg desc) | limit 5")),
        query("numbers", &pipes("math (_msg * 3 + 1) % 7 as x | stats max(x)")),
        query("texts", &pipes("format '<_msg>-<_msg>' as x | replace ('1', 'one') at x | stats sum_len(x)")),
        query("expressions", &pipes("replace_regexp ('([0-9])([0-9])', '$2$1') | stats count_uniq_hash(_msg)")),
        query("packing", &pipes("pack_json as x | unpack_json from x result_prefix y | stats max(y_msg)")),
        query("lists", &pipes("split '' as x | unroll x | stats count()")),
        query("groups", &pipes("math _msg % 1000 as g | stats by (g) quantile(0.5, _msg)")),
        query("alternatives", &pipes(&format!("filter {} | stats count()", words(60_000).join(" or ")))),
        query("prefixes", &pipes(&format!("filter {}* | stats count()", words(20_000).join("* or ")))),
        query("conditions", &pipes(&format!("filter !{} | stats count()", words(50_000).join(" !")))),
        query("a list", &pipes(&format!("filter contains_any(\"{}\") | stats count()", words(40_000).join(" 1\",\"")))),
        query("a subquery", "n:in(* | generate_sequence 1000000000000 | filter _msg:~\"[a-z]x\" | fields _msg)"),
        query("subqueries", &format!("n:in(n:in({ENDLESS} | math _msg % 5 as n | fields n) | fields n)")),
        query("a union", &format!("n:x | union ({ENDLESS} | extract '1<x>2' | stats max(x))")),
        query("a join", &format!("{ENDLESS} | join by (_msg) (n:x) | stats count()")),
    ]
}

/// A search of more conditions than can be planned in a moment.
fn wide_search() -> String {
    let tags: Vec<String> = (0..3000).map(|n| format!("key={n}")).collect();
    json!({"tag": tags, "spans": "any", "from": "0", "to": "2000000000000000000"}).to_string()
}

async fn fill(caller: &Caller) {
    let lines: String = (0..2000).map(|n| format!("{{\"_msg\":\"row {n}\",\"n\":{n}}}\n")).collect();
    assert_eq!(caller.post("/insert/jsonline", lines.into_bytes()).await.map(|a| a.0), Some(200));
    let span = |n: u64| {
        let at = 1_772_366_400_000_000_000 + n * 1_000_000;
        let value: Value = json!([{"key": "key", "value": {"stringValue": n.to_string()}}]);
        json!({"traceId": format!("{n:032x}"), "spanId": format!("{n:016x}"), "name": "op", "kind": 2,
            "startTimeUnixNano": at.to_string(), "endTimeUnixNano": (at + 1000).to_string(), "attributes": value})
    };
    let spans: Vec<Value> = (1..3000).map(span).collect();
    let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string();
    let client = reqwest::Client::new();
    let sent = client.post(caller.url("/v1/traces")).header("content-type", "application/json").body(body).send().await;
    assert_eq!(sent.expect("an answer").status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn a_read_ends_with_its_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_LOG__FILTER", "off");
    let mut server = Server::spawn(dir.path(), &options).expect("the server says where it listens");
    let caller = Caller::new(&server.http);
    assert!(comes_up(&mut server, &caller).await, "the server died");
    fill(&caller).await;
    for Read { name, path, body } in reads() {
        let what = format!("{name}: processor time after the client went");
        let spent = within(&what, CPU_AFTER, async || {
            // A client of its own, whose connection closes with it.
            let request = reqwest::Client::new().post(caller.url(path)).body(body.clone());
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let asking = tokio::spawn(async move { request.send().await?.text().await });
            let began = Instant::now();
            while caller.metric("quiver_queries_running").await.expect("it lives") == 0.0 && !asking.is_finished() {
                assert!(began.elapsed() < PATIENCE, "{name}: the query does not begin");
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            if asking.is_finished() {
                let text = asking.await.expect("asked").map(|text| text.chars().take(300).collect::<String>());
                println!("{name}: answered: {text:?}");
                return Duration::MAX;
            }
            let left = server.cpu();
            asking.abort();
            until(&caller, "quiver_queries_running", 0.0, name).await;
            until(&caller, "quiver_query_memory_bytes", 0.0, name).await;
            // Whatever goes on without being counted would show here.
            tokio::time::sleep(Duration::from_millis(500)).await;
            server.cpu().saturating_sub(left)
        })
        .await;
        println!("{what}: {spent:?}");
    }
    let asked = reqwest::Client::new().post(caller.url("/traces")).header("content-type", "application/json");
    let refused = asked.body(wide_search()).send().await.expect("an answer");
    assert_eq!(refused.status(), 422);
    assert!(refused.text().await.expect("a text").contains("at most 100 conditions"));
    assert_eq!(server.stop(), Some(0));
}
