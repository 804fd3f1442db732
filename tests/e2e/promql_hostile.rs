//! Hostile PromQL over a server with little memory: each query gets a result or a clear error, memory stays within its
//! limit, alone and four at once, work ends when the client disconnects, and the server keeps running.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_tests::bodies::{Series, remote_write};
use quiver_tests::server::{Options, Server};
use quiver_tests::time_limits::{at_most, within};

const LIMIT_BYTES: u64 = 512 << 20;
/// What the process may have at most: its limit and 15 %.
const RSS_MAX: u64 = LIMIT_BYTES * 115 / 100;
/// Processor time after which a query must be refused, if it is: 1 s is the promise, and the build for tests, which is
/// hardly optimised, takes twice as long.
const CPU_REFUSED: Duration = Duration::from_secs(2);
/// Processor time that may be spent after a client went on what takes longer than that.
const CPU_AFTER: Duration = Duration::from_millis(200);
/// How often a query is asked again that finds the memory held by those before it, a second apart.
const TRIES: usize = 30;
/// When the client goes.
const GOES_AFTER: Duration = Duration::from_millis(150);
const T0_MS: i64 = 1_700_000_000_000;
const SERIES: usize = 1000;

/// When a query is asked.
#[derive(Debug, Clone, Copy)]
enum At {
    /// Once.
    Instant,
    /// At 11,000 steps of a second.
    Steps,
}

/// What becomes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is answered.
    Answered,
    /// Its text is refused.
    Malformed,
    /// It is refused, and soon.
    Refused,
    /// It is answered or refused, as memory and time allow.
    Either,
}

struct Case {
    name: &'static str,
    at: At,
    fate: Fate,
    query: String,
}

fn case(name: &'static str, at: At, fate: Fate, query: impl Into<String>) -> Case {
    Case { name, at, fate, query: query.into() }
}

fn nested(times: usize, first: &str, around: impl Fn(String) -> String) -> String {
    (0..times).fold(first.to_owned(), |inner, _| around(inner))
}

fn many(count: usize, separator: &str, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(separator)
}

/// What grows by labels.
fn labels() -> Vec<Case> {
    use At::{Instant, Steps};
    use Fate::{Either, Malformed, Refused};
    let twice = |inner| format!("label_replace({inner}, \"series\", \"$1$1\", \"series\", \"(.*)\")");
    let joined = |inner| format!("label_join({inner}, \"series\", \"\", \"series\", \"series\")");
    let wide = "$1".repeat(300_000);
    let rows = nested(12, "m", |inner| {
        format!(
            "(label_replace({inner}, \"x\", \"$1a\", \"x\", \"(.*)\") or label_replace({inner}, \"x\", \"$1b\", \"x\", \"(.*)\"))"
        )
    });
    let columns =
        nested(150, "m", |inner| format!("label_replace({inner}, \"{}\", \"$1\", \"series\", \"(.*)\")", inner.len()));
    let quantiles = many(20_000, ",", |i| format!("0.{i}"));
    vec![
        case("values that double", Instant, Refused, nested(40, "m", twice)),
        case("values that double over steps", Steps, Refused, nested(40, "m", twice)),
        case("values that double by joining", Instant, Refused, nested(40, "m", joined)),
        case("one wide template", Instant, Refused, twice("m".into()).replacen("$1$1", &wide, 1)),
        case("rows that double", Instant, Either, rows.clone()),
        case("rows that double, sorted", Instant, Either, format!("sort_by_label({rows}, \"x\", \"series\")")),
        case("a hundred columns", Instant, Either, columns),
        case("a cross join", Instant, Refused, "m * on () group_left (series) m"),
        case(
            "a cross join of many",
            Instant,
            Either,
            format!(
                "{0} * on () group_left (series) {0}",
                nested(5, "m", |inner| {
                    format!("(label_replace({inner}, \"x\", \"$1a\", \"x\", \"(.*)\") or {inner})")
                })
            ),
        ),
        case("a cross join that is filled", Instant, Either, "m * on () group_left (series) fill (0) m"),
        case("five hundred joins", Instant, Either, many(500, " * ", |_| "m".into())),
        case("too many joins", Instant, Refused, many(3000, " + ", |_| "m".into())),
        case("a union of many", Instant, Refused, many(3000, " or ", |i| format!("m{{x!=\"{i}\"}}"))),
        case("values of all steps", Steps, Either, "count_values(\"v\", m + time())"),
        case("values by everything", Steps, Either, "count_values by (series) (\"v\", m * time())"),
        case("very many quantiles", Instant, Malformed, format!("histogram_quantiles(m, \"q\", {quantiles})")),
        case("very many quantiles over steps", Steps, Malformed, format!("histogram_quantiles(m, \"q\", {quantiles})")),
        case("info about everything", Steps, Either, "info(m, {__name__=~\"m|long\"})"),
        case(
            "by very many labels",
            Instant,
            Fate::Answered,
            format!("sum by ({}) (m)", many(50_000, ",", |i| format!("l{i}"))),
        ),
        case(
            "on very many labels",
            Instant,
            Refused,
            format!("m * on ({}) m2", many(50_000, ",", |i| format!("l{i}"))),
        ),
        case(
            "on very many labels and group by as many",
            Instant,
            Refused,
            format!(
                "m * on ({}) group_left ({}) m2",
                many(50_000, ",", |i| format!("l{i}")),
                many(50_000, ",", |i| format!("k{i}"))
            ),
        ),
    ]
}

/// What grows by its text.
fn texts() -> Vec<Case> {
    use At::{Instant, Steps};
    use Fate::{Answered, Either, Malformed, Refused};
    let folded = format!("(?i){}", "[ -\u{10ffff}]".repeat(3000));
    vec![
        case("a thousand parentheses", Instant, Malformed, format!("{}1{}", "(".repeat(1000), ")".repeat(1000))),
        case("a hundred thousand terms", Instant, Malformed, format!("1{}", "+1".repeat(100_000))),
        case("a chain of scalars", Instant, Answered, format!("time(){}", "+1".repeat(49_000))),
        case("a chain of scalars of steps", Steps, Either, format!("time(){}", "+time()".repeat(20_000))),
        case("a chain of vectors and scalars", Instant, Answered, format!("sum(m){}", "+1".repeat(49_000))),
        case("a chain of calls", Instant, Either, format!("1{}", "+scalar(m)".repeat(10_000))),
        case("unary signs", Instant, Answered, nested(90, "m", |inner| format!("-({inner})"))),
        case("functions in functions", Steps, Answered, nested(190, "sum(m)", |inner| format!("abs({inner})"))),
        case(
            "ten thousand alternatives",
            Instant,
            Answered,
            format!("m{{series=~\"{}\"}}", many(10_000, "|", |i| format!("s{i}"))),
        ),
        case(
            "ten thousand matchers",
            Instant,
            Answered,
            format!("m{{{}}}", many(10_000, ",", |i| format!("series!=\"x{i}\""))),
        ),
        case(
            "thousands of patterns",
            Instant,
            Either,
            format!("m{{{}}}", many(5_000, ",", |i| format!("series!~\"x{i}.+\""))),
        ),
        case(
            "one pattern at thousands of labels",
            Instant,
            Refused,
            format!("m{{{}}}", many(30_000, ",", |i| format!("l{i}!~\"x.+\""))),
        ),
        case("a pattern that backtracks elsewhere", Instant, Answered, "m{series=~\"(a*)*$\"}"),
        case("a heavy pattern", Instant, Malformed, "m{series=~\"(.{1000}){1000}\"}"),
        case(
            "a heavy pattern of label_replace",
            Instant,
            Refused,
            "label_replace(m, \"a\", \"\", \"series\", \"(.{1000}){1000}\")",
        ),
        case("a pattern of a megabyte", Instant, Refused, format!("m{{series=~\"{}\"}}", "a".repeat(1_000_000))),
        case("a list that is none", Instant, Refused, format!("m{{series=~\"{}\"}}", "[a-b]|".repeat(100_000))),
        case(
            "a list of long texts",
            Instant,
            Refused,
            format!("m{{series=~\"({}){}\"}}", many(10_000, "|", |i| i.to_string()), "x".repeat(500_000)),
        ),
        case("classes in any case", Instant, Refused, format!("m{{series=~\"{folded}\"}}")),
        case(
            "classes in any case of label_replace",
            Instant,
            Refused,
            format!("label_replace(m, \"a\", \"\", \"series\", \"{folded}\")"),
        ),
        case(
            "patterns that are too large together",
            Instant,
            Refused,
            format!("m{{{}}}", many(2000, ",", |i| format!("series!~\"x{i}\\\\w{{10}}\""))),
        ),
    ]
}

/// What grows by time.
fn times() -> Vec<Case> {
    use At::{Instant, Steps};
    use Fate::{Answered, Either, Refused};
    let numbers = many(200, " + ", |i| format!("time() * {i}"));
    vec![
        case("year-long windows", Steps, Either, "quantile_over_time(0.9, long[1y])"),
        case("year-long windows of sums", Steps, Answered, "sum(sum_over_time(long[1y]))"),
        case("deviations of year-long windows", Steps, Either, "stddev_over_time(long[1y]) + mad_over_time(long[1y])"),
        case("trends of year-long windows", Steps, Either, "predict_linear(long[1y], 3600)"),
        case("a subquery at a millisecond", Steps, Either, "quantile_over_time(0.9, long[1h:1ms])"),
        case(
            "subqueries at a millisecond",
            Instant,
            Refused,
            "max_over_time(max_over_time(max_over_time(m[1h:1ms])[1h:1ms])[1h:1ms])",
        ),
        case("a subquery without data", Instant, Either, format!("sum_over_time((vector(0) + {numbers})[9000s:1ms])")),
        case("a subquery of ten years", Instant, Refused, "sum_over_time(vector(1)[10y:1ms])"),
        case("ten years", Instant, Answered, "count(rate(m[10y]))"),
        case("far away", Instant, Answered, "m offset 100y or m @ 9000000000000 or m offset -100y"),
        case("the same at all steps", Steps, Either, "m @ 1700000000"),
        case("everything of everything", Steps, Either, "topk(1e18, m) or limitk(700, m) or bottomk(600, m)"),
        case("everything many times", Steps, Either, many(40, " or ", |i| format!("m + {i}"))),
    ]
}

async fn start(timeout: &str) -> (Arc<Server>, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default()
        .env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES)
        .env("QUIVER_LOG__FILTER", "error")
        .env("QUIVER_QUERY__TIMEOUT", timeout);
    let server = Server::start(dir.path(), &options).await;
    let names: Vec<String> = (0..SERIES).map(|i| format!("s{i}")).collect();
    let labels = |metric, name| vec![("__name__", metric), ("series", name), ("job", "j"), ("instance", name)];
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .flat_map(|(i, name)| {
            let samples = |n: i64| (0..n).map(|k| (T0_MS + k * 15_000, (k * (i as i64 + 1)) as f64)).collect();
            [(labels("m", name.as_str()), samples(20)), (labels("m2", name.as_str()), samples(2))]
        })
        .collect();
    server.write(remote_write(&series)).await;
    let long = (0..100_000).map(|k| (T0_MS + k * 1000, (k % 977) as f64 + 0.5)).collect();
    server.write(remote_write(&[(vec![("__name__", "long"), ("job", "j"), ("instance", "s1")], long)])).await;
    server.flush().await;
    (Arc::new(server), dir)
}

fn form(case: &Case, unlike: usize) -> (&'static str, Vec<(&'static str, String)>) {
    let (path, mut params) = match case.at {
        At::Instant => ("/metrics-api/api/v1/query", vec![("time", (T0_MS / 1000 + 100).to_string())]),
        At::Steps => {
            let (start, end) = (T0_MS / 1000, T0_MS / 1000 + 10_999);
            let range = [("start", start.to_string()), ("end", end.to_string()), ("step", "1".to_owned())];
            ("/metrics-api/api/v1/query_range", range.to_vec())
        }
    };
    // Equal queries share their evaluation, and so would not be four.
    params.push(("query", case.query.clone() + &" ".repeat(unlike)));
    (path, params)
}

/// Asks with a client of its own; gives status and body.
async fn ask(server: &Server, case: &Case, unlike: usize) -> (u16, String) {
    let (path, params) = form(case, unlike);
    let answer = reqwest::Client::new().post(server.url(path)).form(&params).send().await.expect("it lives");
    (answer.status().as_u16(), answer.text().await.expect("a whole answer"))
}

/// The same once, and again where those before still hold the memory.
async fn ask_with_room(server: &Server, case: &Case) -> (u16, String) {
    for _ in 0..TRIES {
        let answer = ask(server, case, 0).await;
        if answer.0 != 503 || !answer.1.contains("ask again later") {
            return answer;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ask(server, case, 0).await
}

fn judge(server: &Server, case: &Case, (status, body): &(u16, String)) {
    let (name, text) = (case.name, body.chars().take(300).collect::<String>());
    let late = *status == 503 && text.contains("timed out");
    let expected = match case.fate {
        Fate::Answered => *status == 200,
        Fate::Malformed => *status == 400,
        Fate::Refused => *status == 422,
        Fate::Either => late || matches!(status, 200 | 422),
    };
    assert!(expected, "{name}: {status} {text}");
    if *status != 200 {
        assert!(!text.contains("fault of ours"), "{name}: {text}");
    }
    let peak = server.peak_held_bytes();
    assert!(peak <= RSS_MAX, "{name}: {} MiB", peak >> 20);
}

/// Waits until nothing runs any more.
async fn idle(server: &Server, name: &str) {
    let began = Instant::now();
    loop {
        let metrics = server.get("/metrics").await.text();
        let zero = |line: &str| metrics.lines().any(|l| l.strip_prefix(line).is_some_and(|v| v.trim() == "0"));
        if zero("quiver_queries_running ") && zero("quiver_query_memory_bytes ") {
            return;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{name}: it does not end");
        // Seldom: each look takes processor time, which is what is measured.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn survives(cases: Vec<Case>, timeout: &str) {
    let (server, _dir) = start(timeout).await;
    for case in cases.into_iter().map(Arc::new) {
        let asked = async || {
            let before = server.cpu();
            let answer = ask_with_room(&server, &case).await;
            let alone = server.cpu().saturating_sub(before);
            println!("{}: {} after {alone:?}, at most {} MiB", case.name, answer.0, server.peak_bytes() >> 20);
            judge(&server, &case, &answer);
            alone
        };
        let alone = match case.fate {
            Fate::Refused | Fate::Malformed => at_most(case.name, CPU_REFUSED, asked).await,
            Fate::Answered | Fate::Either => asked().await,
        };
        // Four at once, each for itself.
        let four: Vec<_> = (1..=4)
            .map(|unlike| {
                let (server, case) = (Arc::clone(&server), Arc::clone(&case));
                tokio::spawn(async move { ask(&server, &case, unlike).await })
            })
            .collect();
        for answer in four {
            let (status, body) = answer.await.expect("asked");
            // Less memory and time are left for each.
            let text: String = body.chars().take(300).collect();
            let late = status == 503 && (text.contains("timed out") || text.contains("ask again later"));
            let whole = matches!(status, 200 | 400) && case.fate != Fate::Refused;
            assert!(late || whole || status == 422, "four of {}: {status} {text}", case.name);
        }
        let peak = server.peak_held_bytes();
        assert!(peak <= RSS_MAX, "four of {}: {} MiB", case.name, peak >> 20);
        // And one whose client goes. What ends soon by itself may do so.
        let allowed = if alone <= CPU_REFUSED { CPU_REFUSED } else { CPU_AFTER };
        let what = format!("{}: processor time after its client went", case.name);
        let spent = within(&what, allowed, async || {
            let asking = {
                let (server, case) = (Arc::clone(&server), Arc::clone(&case));
                tokio::spawn(async move { ask(&server, &case, 5).await })
            };
            tokio::time::sleep(GOES_AFTER).await;
            let left = server.cpu();
            asking.abort();
            idle(&server, case.name).await;
            server.cpu().saturating_sub(left)
        })
        .await;
        println!("{what}: {spent:?}");
    }
    let answer = ask_with_room(&server, &case("a count", At::Instant, Fate::Answered, "count(m)")).await;
    assert!(answer.1.contains(&format!("\"{SERIES}\"")), "{}", answer.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_grow_by_labels() {
    survives(labels(), "25s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_grow_by_their_text() {
    survives(texts(), "25s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_grow_by_time() {
    survives(times(), "4s").await;
}

/// Selectors by the ten thousand, which short texts select.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_many_selectors() {
    const SELECTORS: usize = 50_000;
    let (server, _dir) = start("25s").await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for selector in ["{l#%3D~\"x.*\"}", "{l%3D~\"x.*#\"}", "name#"] {
        let one = |i: usize| format!("match[]={}", selector.replace('#', &i.to_string()));
        let body = many(SELECTORS, "&", one).into_bytes();
        for path in ["api/v1/series", "api/v1/labels"] {
            let path = format!("/metrics-api/{path}");
            server.forget_peak();
            for answer in futures::future::join_all((0..4).map(|_| server.post(&path, &form, body.clone()))).await {
                assert!([200, 422, 503].contains(&answer.status), "{selector} at {path}: {}", answer.text());
            }
            let peak = server.peak_held_bytes();
            assert!(peak <= RSS_MAX, "{selector} at {path}: {} MiB", peak >> 20);
        }
    }
    let few = [("match[]", "m{series=~\"s1.\"}"), ("match[]", "m2{series=~\"s1.\"}")];
    let answer = server.get_with("/metrics-api/api/v1/series", &few).await;
    assert_eq!((answer.status, answer.text().matches("__name__").count()), (200, 20), "{}", answer.text());
}

/// Series that each have a label of their own: a table of them has a code for each of both.
const OWN_LABELS: usize = 30_000;

#[tokio::test(flavor = "multi_thread")]
async fn series_with_labels_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_MEMORY__LIMIT", LIMIT_BYTES).env("QUIVER_LOG__FILTER", "error");
    let server = Server::start(dir.path(), &options).await;
    for from in (0..OWN_LABELS).step_by(10_000) {
        let text: String = (from..from + 10_000).map(|i| format!("own{{l{i}=\"x\"}} 1 {T0_MS}\n")).collect();
        let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], text.into_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let time = (T0_MS / 1000).to_string();
    for state in ["live", "flushed"] {
        if state == "flushed" {
            server.flush().await;
        }
        for path in ["series", "labels", "label/l7/values", "query"] {
            let path = format!("/metrics-api/api/v1/{path}");
            let params = [("match[]", "own"), ("query", "own"), ("time", &time)];
            server.forget_peak();
            for answer in futures::future::join_all((0..4).map(|_| server.get_with(&path, &params))).await {
                assert!([200, 422, 503].contains(&answer.status), "{path} ({state}): {}", answer.text());
            }
            let peak = server.peak_held_bytes();
            assert!(peak <= RSS_MAX, "four of {path} ({state}): {} MiB", peak >> 20);
        }
    }
    // What asks for no label needs no table of them; pages that the allocator keeps may take a moment.
    let began = Instant::now();
    loop {
        let counted = server.get_with("/metrics-api/api/v1/query", &[("query", "count(own)"), ("time", &time)]).await;
        if counted.text().contains(&format!("\"{OWN_LABELS}\"")) {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{}", counted.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.stop(), Some(0));
}

/// Breaks if queries are refused because others hold the memory, as two or three of ten once were.
#[tokio::test(flavor = "multi_thread")]
async fn who_finds_no_room_beside_others_is_answered_after_them() {
    const ALL: usize = 22_000;
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_MEMORY__LIMIT", "256MiB")).await;
    let line =
        |n: usize| format!("m{{i=\"{n:05}\",job=\"j{}\",path=\"/api/v1/some/long/path/{n:05}\"}} {n}\n", n % 100);
    let lines: Vec<String> = (0..ALL).map(line).collect();
    let answer = server.post("/metrics-api/api/v1/import/prometheus", &[], lines.concat().into_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Equal queries would share one answer.
    let ask = |k: usize| {
        let (server, query) = (&server, format!("count(label_replace(m, 'z', '$1-{k}', 'path', '(.*)'))"));
        async move { server.get_with("/metrics-api/api/v1/query", &[("query", query.as_str())]).await }
    };
    for answer in futures::future::join_all((0..10).map(ask)).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["data"]["result"][0]["value"][1], ALL.to_string(), "{}", answer.text());
    }
}
