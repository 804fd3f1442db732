//! A filter selects the same rows wherever it is evaluated: by the store over parts and live rows, or by the engine over
//! batches, where it follows a pipe that it cannot be moved across.

use quiver_tests::server::{Options, Server};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Value};

use crate::logs::query::{ask, rows, send};

const ROWS: usize = 180;
const FILTERS: usize = 400;

const FIELDS: [&str; 10] = ["app", "n", "lvl", "ip", "when", "hex", "_msg", "a.b", "a.c", "missing"];
const VALUES: [&str; 26] = [
    "",
    "0",
    "1",
    "7",
    "-3",
    "1.5",
    "007",
    "1e3",
    "10",
    "error",
    "Error",
    "ERROR info",
    "x",
    "10.0.0.1",
    "10.0.1.200",
    "2025-03-10T00:00:01Z",
    "2025-03-10T00:00:01.500Z",
    "deadbeef",
    "cafe",
    "a b",
    "a-b",
    "foo bar baz",
    "5ms",
    "2KiB",
    "É x",
    "\"q\"",
];

/// Values of one type, for which parts have columns of their own.
fn typed(field: &str) -> &'static [&'static str] {
    match field {
        "n" => &["0", "1", "7", "-3", "10", "1234"],
        "lvl" => &["error", "info", "Error", "warn"],
        "ip" => &["10.0.0.1", "10.0.1.200", "192.168.0.9"],
        "when" => &["2025-03-10T00:00:01Z", "2025-03-10T00:00:02Z"],
        "hex" => &["deadbeef", "cafe0123"],
        _ => &VALUES,
    }
}

fn one<'a>(random: &mut StdRng, of: &[&'a str]) -> &'a str {
    of.choose(random).copied().unwrap_or_default()
}

/// A line; every third has fields of any type, and some have one that few others have.
fn line(random: &mut StdRng, id: usize) -> String {
    let mut row = Map::new();
    let mut put = |name: &str, value: String| row.insert(name.to_owned(), Value::from(value));
    put("_time", format!("2025-03-10T00:00:{:02}.{:03}Z", id % 60, id % 7));
    put("id", id.to_string());
    put("app", one(random, &["a", "b"]).to_owned());
    for field in &FIELDS[1..9] {
        if random.random_bool(0.7) {
            let values = if id % 3 == 1 { &VALUES[..] } else { typed(field) };
            put(field, one(random, values).to_owned());
        }
    }
    if random.random_bool(0.3) {
        put(&format!("rare{}", random.random_range(0..300)), one(random, &VALUES).to_owned());
    }
    Value::from(row).to_string() + "\n"
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A condition on a field.
fn leaf(random: &mut StdRng) -> String {
    let (field, other) = (quoted(one(random, &FIELDS)), quoted(one(random, &FIELDS)));
    let (value, second) = (quoted(one(random, &VALUES)), quoted(one(random, &VALUES)));
    let (min, max) = (one(random, &["-5", "0", "1", "1.5"]), one(random, &["7", "10", "1000", "2KiB"]));
    match random.random_range(0..22) {
        0 => format!("{field}:={value}"),
        1 => format!("{field}:{value}"),
        2 => format!("{field}:{value}*"),
        3 => format!("{field}:={value}*"),
        4 => format!("{field}:~{value}"),
        5 => format!("{field}:i({value})"),
        6 => format!("{field}:in({value}, {second})"),
        7 => format!("{field}:range({min}, {max}]"),
        8 => format!("{field}:>{value}"),
        9 => format!("{field}:<={value}"),
        10 => format!("{field}:string_range({value}, {second})"),
        11 => format!("{field}:len_range(1, 4)"),
        12 => format!("{field}:ipv4_range(\"10.0.0.0/24\")"),
        13 => format!("{field}:*"),
        14 => format!("{field}:eq_field({other})"),
        15 => format!("{field}:le_field({other})"),
        16 => format!("a.*:{value}"),
        17 => format!("rare*:{value}"),
        18 => format!("*:{value}"),
        19 => "{app=\"a\"}".to_owned(),
        20 => "_time:[2025-03-10T00:00:10Z, 2025-03-10T00:00:40Z)".to_owned(),
        _ => format!("{field}:seq({value}, {second})"),
    }
}

fn filter(random: &mut StdRng, depth: usize) -> String {
    let leaf = |random: &mut StdRng| match leaf(random).as_str() {
        // Whether stored rows have a message is not looked at.
        "\"_msg\":*" | "\"_msg\":\"\"*" => "\"_msg\":!\"\"".to_owned(),
        other => other.to_owned(),
    };
    match random.random_range(0..6) {
        3 if depth > 0 => format!("({} or {})", filter(random, depth - 1), filter(random, depth - 1)),
        4 if depth > 0 => format!("({} {})", filter(random, depth - 1), filter(random, depth - 1)),
        5 if depth > 0 => format!("!({})", filter(random, depth - 1)),
        _ => leaf(random),
    }
}

async fn ids(server: &Server, query: &str) -> Vec<String> {
    let answer = ask(server, "query", &[("query", query)]).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    let mut ids: Vec<String> =
        rows(&answer).iter().map(|row| row["id"].as_str().unwrap_or_default().to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_give_the_same_rows_pushed_down_or_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &Options::default().env("QUIVER_LOG__FILTER", "off")).await;
    let mut random = StdRng::seed_from_u64(19);
    // A third is merged, a third flushed, a third live.
    for third in 0..3 {
        let lines = (0..ROWS).filter(|id| id % 3 == third).map(|id| line(&mut random, id)).collect();
        send(&server, "app", lines).await;
        match third {
            0 => {
                server.flush().await;
                server.compact().await;
            }
            1 => server.flush().await,
            _ => {}
        }
    }
    assert_eq!(ids(&server, "*").await.len(), ROWS);
    let plan = ask(&server, "query", &[("query", "* | limit 1000 | filter n:=1"), ("explain", "true")]).await.text();
    assert!(plan.contains("LogsFilter"), "the engine itself evaluates the filter: {plan}");
    // Where any field may match, times and streams are none.
    for filter in ["*:2025", "*:app", "_ti*:2025", "_str*:a"] {
        let pushed = ids(&server, &format!("{filter} | fields id")).await;
        assert_eq!(ids(&server, &format!("* | limit 1000 | filter {filter} | fields id")).await, pushed, "{filter}");
    }
    // Filters of which some rows match and some do not: the others say little.
    let mut telling = 0;
    for _ in 0..FILTERS {
        let filter = filter(&mut random, 2);
        let pushed = ids(&server, &format!("{filter} | fields id")).await;
        let behind = ids(&server, &format!("* | limit 1000 | filter {filter} | fields id")).await;
        assert_eq!(pushed, behind, "{filter}");
        telling += usize::from(!pushed.is_empty() && pushed.len() < ROWS);
    }
    assert!(telling > FILTERS / 3, "{telling} of {FILTERS}");
}
