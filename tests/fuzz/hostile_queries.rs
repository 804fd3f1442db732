//! Hostile LogsQL texts, from a seed: very many terms, depth, lists, expressions, pipes, nested queries. Each is parsed
//! or refused within a second of CPU time, and within memory proportional to its length (H11).

use std::time::Duration;

use quiver_logsql::request_params::{extra_filter, extra_stream_filter};
use quiver_logsql::{QUERY_LEN_MAX, QueryScope, Regexps, parse};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::Target;

/// Processor time that reading and binding a query may take.
const CPU_MAX: Duration = Duration::from_secs(1);
/// Bytes that may be allocated for each byte of text, freed ones included.
const FACTOR: u64 = 600;

/// Processor time of this thread so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number"))
}

fn pick<'a>(list: &[&'a str], random: &mut StdRng) -> &'a str {
    list.choose(random).expect("there are some")
}

const TERMS: [&str; 20] = [
    "w#",
    "a:=#",
    "a#:b",
    "!a:b#",
    "\"p q#\"",
    "n:>#",
    "n:range(#, 9#]",
    "i(W#*)",
    "x*:y#",
    "*s#*",
    "a:in(b#, c)",
    "~\"r#\"",
    "{app=\"b#\"}",
    "{a in (\"b#\")}",
    "_time:#m",
    "eq_field(f#)",
    "len_range(#, inf)",
    "seq(a, b#)",
    "-w#",
    "a:ipv4_range(10.0.0.#)",
];
const PIPES: [&str; 22] = [
    "filter a:b#",
    "format '<a><b#>' as c",
    "sort by (a#) limit #",
    "uniq by (a, b#)",
    "top # by (a)",
    "limit #",
    "stats by (a#) count() c#",
    "math a+# as b",
    "extract '<a> x# <b>'",
    "replace ('a', 'b#')",
    "unroll by (a#)",
    "join by (a) (b#)",
    "union (a#)",
    "rename a* as b#*",
    "fields a#, b*",
    "pack_json fields (a#) as b",
    "offset #",
    "extract_regexp '(?P<x>a#)'",
    "(host#) count() c",
    "unpack_json fields (a#)",
    "generate_sequence #",
    "delete a#",
];
const NESTS: [(&str, &str); 10] = [
    ("(", ")"),
    ("!(", ")"),
    ("a:(", ")"),
    ("a:in(", " | fields a)"),
    ("x | union (", ")"),
    ("x | join by (a) (", ")"),
    ("options(global_filter=(", ")) x"),
    ("x | stats count() if (", ") c"),
    ("x | math (", ") as y"),
    ("-", ""),
];
const WRONG: [&str; 16] =
    ["", "(", ")", "\"", "'", "`", "|", ",", "{", "[", "*", "# ", "\\", "\u{0}", "| nothing", "in(in(in("];

fn numbered(text: &str, n: usize) -> String {
    text.replace('#', &n.to_string())
}

/// Many of something, as long as a query may be and now and then longer.
fn many(random: &mut StdRng, ones: &[&str], betweens: &[&str]) -> String {
    let (one, between) = (pick(ones, random), pick(betweens, random));
    let longest = QUERY_LEN_MAX / random.random_range(1..40) + 100;
    let (mut out, mut n) = (String::new(), 0);
    while out.len() + one.len() + between.len() + 8 < longest {
        out.push_str(if n > 0 { between } else { "" });
        out.push_str(&numbered(one, n));
        n += 1;
    }
    out
}

fn make(random: &mut StdRng) -> String {
    let mut text = match random.random_range(0..9) {
        0 | 1 => many(random, &TERMS, &[" or ", " ", " and ", " !", " or !"]),
        2 => {
            let (open, close) = *NESTS.choose(random).expect("there are some");
            let depth = *[10, 60, 64, 70, 1000, 60_000].choose(random).expect("there are some");
            format!("{}x{}", open.repeat(depth), close.repeat(depth))
        }
        3 => {
            let items = many(random, &["#", "\"a #\"", "w#", "a#*"], &[","]);
            let call =
                pick(&["a:in", "contains_any", "contains_all", "seq", "{a not_in ", "a:equals_common_case"], random);
            format!("{call}({items}){}", if call.starts_with('{') { "}" } else { "" })
        }
        4 => format!("* | {}", many(random, &PIPES, &[" | "])),
        5 => {
            let all: Vec<String> =
                (0..random.random_range(1..300)).map(|n| numbered(pick(&PIPES, random), n)).collect();
            format!("* | {}", all.join(" | "))
        }
        6 => format!("* | stats {}", many(random, &["max(a#) m#", "count(a#, b) if (c:d) n#"], &[","])),
        7 => format!("* | math {} as x", many(random, &["a#"], &["+", "*", " default ", "^", "+-"])),
        _ => format!(
            "~\"{}\"",
            pick(&["(a{1000}){1000}", "((((a*)*)*)*)*b", "[^x]{999}", "\\\\pL{1000}", "(.|.)*"], random)
        ),
    };
    if random.random_bool(0.3) {
        let places: Vec<usize> = text.char_indices().map(|(i, _)| i).collect();
        text.insert_str(places.choose(random).copied().unwrap_or(0), pick(&WRONG, random));
    }
    text
}

#[test]
fn hostile_queries() {
    let target =
        Target { name: "hostile LogsQL", make, size: String::len, bytes_max: |len| FACTOR * len as u64 + (32 << 20) };
    target.run(|text| {
        let began = cpu();
        if let Ok(mut query) = parse(text) {
            let _ = QueryScope { start_ns: Some(0), ..QueryScope::default() }.bind(&mut query);
        }
        let regexps = &mut Regexps::default();
        let _ = (extra_filter(text, regexps), extra_stream_filter(text, regexps));
        let took = cpu().saturating_sub(began);
        assert!(took <= CPU_MAX, "{took:?} of processor time");
    });
}
