//! Generates LogsQL queries: filters and pipes over the fields of `logsql_rows`. Their results do not depend on the order
//! of rows, so results over the same rows can be compared.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::fmt::Write as _;

/// Fields of rows, and one that no row has.
pub(crate) const FIELDS: [&str; 10] = ["_msg", "a", "a.b", "app", "n", "dur", "ip", "list", "obj", "no_such"];
/// Values, of every kind that the language knows.
pub(crate) const VALUES: [&str; 36] = [
    "error",
    "Error",
    "ERROR",
    "connection refused",
    "GET /api/v1/users?id=42",
    "took 15ms",
    "3",
    "-7",
    "250",
    "1.25",
    "10.0.0.1",
    "10.0.3.77",
    "192.168.1.1",
    "5s",
    "1h30m",
    "700us",
    "12KiB",
    "3MB",
    "2025-03-10T08:00:00Z",
    "2025-03-11T09:30:00.5Z",
    "true",
    "x",
    "xy",
    "xyz",
    "",
    "b\u{444}",
    "grün",
    "a=1 b=\"two words\" c",
    "{\"k\":\"v\",\"n\":5}",
    "[\"x\",\"y\",3]",
    "[]",
    "1,2,3",
    "user-17",
    "user-18",
    "\"quoted\"",
    "tab\tand\nline",
];
const WORDS: [&str; 14] =
    ["error", "refused", "GET", "api", "users", "x", "xy", "user", "17", "took", "grün", "b", "id", "v1"];
const REGEXPS: [&str; 10] = ["err", "(?i)error", "^x", "z$", "[0-9]+", "user-\\\\d+", "^$", ".*", ".+", "a|b"];

fn pick<'a>(list: &[&'a str], random: &mut StdRng) -> &'a str {
    list.choose(random).expect("there are some")
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

fn name(random: &mut StdRng) -> String {
    let name = pick(&FIELDS, random);
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

fn value(random: &mut StdRng) -> String {
    quoted(pick(&VALUES, random))
}

fn list(random: &mut StdRng, one: fn(&mut StdRng) -> String, least: usize) -> String {
    let count = random.random_range(least..least + 4);
    (0..count).map(|_| one(random)).collect::<Vec<_>>().join(", ")
}

/// A test of one field, without the field.
fn test(random: &mut StdRng, depth: usize) -> String {
    match random.random_range(0..27) {
        0 => pick(&WORDS, random).to_owned(),
        1 => value(random),
        2 => format!("{}*", pick(&WORDS, random)),
        3 => format!("{}*", value(random)),
        4 => format!("*{}*", pick(&WORDS, random)),
        5 => format!("i({})", pick(&WORDS, random)),
        6 => format!("i({}*)", value(random)),
        7 => format!("={}", value(random)),
        8 => format!("!={}", value(random)),
        9 => format!("={}*", value(random)),
        10 => format!("in({})", list(random, value, 0)),
        11 => format!("contains_all({})", list(random, value, 0)),
        12 => format!("contains_any({})", list(random, value, 0)),
        13 => format!("seq({})", list(random, value, 0)),
        14 => format!("~\"{}\"", pick(&REGEXPS, random)),
        15 => format!("!~\"{}\"", pick(&REGEXPS, random)),
        16 => {
            let (open, close) = (pick(&["[", "("], random), pick(&["]", ")"], random));
            format!(
                "range{open}{}, {}{close}",
                pick(&["-10", "0", "2", "1s", "1KB"], random),
                pick(&["3", "250", "2h", "inf"], random)
            )
        }
        17 => format!("{}{}", pick(&[">", ">=", "<", "<="], random), value(random)),
        18 => format!("ipv4_range(10.0.0.0, {})", pick(&["10.0.0.255", "10.255.255.255"], random)),
        19 => format!("string_range({}, {})", value(random), value(random)),
        20 => format!("len_range({}, {})", random.random_range(0..5), pick(&["3", "10", "inf"], random)),
        21 => format!("{}({})", pick(&["eq_field", "le_field", "lt_field"], random), name(random)),
        22 => "*".to_owned(),
        23 => format!("equals_common_case({})", list(random, value, 1)),
        24 => format!("json_array_contains_any({})", list(random, value, 1)),
        25 => format!("pattern_match({})", quoted(pick(&["user-<N>", "<IP4>", "took <N>ms", "x"], random))),
        _ if depth > 0 => format!("in({} | fields {})", filter(random, depth - 1), name(random)),
        _ => "\"\"".to_owned(),
    }
}

fn time(random: &mut StdRng) -> String {
    let time = |random: &mut StdRng| {
        format!("2025-03-10T{:02}:{:02}Z", random.random_range(0..24), random.random_range(0..60))
    };
    match random.random_range(0..6) {
        0 => format!("_time:[{}, {})", time(random), time(random)),
        1 => format!("_time:>={}", time(random)),
        2 => format!("_time:<{} offset 90m", time(random)),
        3 => format!(
            "_time:day_range[0{}:00, 1{}:30) offset {}h",
            random.random_range(0..9),
            random.random_range(0..9),
            random.random_range(0..5)
        ),
        4 => "_time:week_range[Mon, Wed]".to_owned(),
        _ => "_time:2025-03-10".to_owned(),
    }
}

fn one(random: &mut StdRng, depth: usize) -> String {
    match random.random_range(0..14) {
        0 => "*".to_owned(),
        1 => time(random),
        2 => {
            format!("{{app{}{}}}", pick(&["=", "!=", "=~", "!~"], random), quoted(pick(&["x", "y", "x|z", ""], random)))
        }
        3 => test(random, depth),
        4 => format!("a*:{}", test(random, depth)),
        5 => format!("{}:({} or {})", name(random), pick(&WORDS, random), test(random, depth)),
        _ => format!("{}:{}", name(random), test(random, depth)),
    }
}

/// A filter.
pub(crate) fn filter(random: &mut StdRng, depth: usize) -> String {
    if depth == 0 || random.random_bool(0.4) {
        return one(random, depth);
    }
    let (a, b) = (filter(random, depth - 1), filter(random, depth - 1));
    match random.random_range(0..4) {
        0 => format!("({a}) and ({b})"),
        1 => format!("({a}) or ({b})"),
        2 => format!("!({a}) {b}"),
        _ => format!("{a} {b}"),
    }
}

fn call(random: &mut StdRng, i: usize) -> String {
    let field = name(random);
    let call = match random.random_range(0..18) {
        0 => "count()".to_owned(),
        1 => format!("count({field})"),
        2 => format!("count_empty({field})"),
        3 => format!("count_uniq({field}, {})", name(random)),
        4 => format!("count_uniq_hash({field})"),
        5 => "sum(n)".to_owned(),
        6 => format!("min({field})"),
        7 => format!("max({field})"),
        8 => format!("uniq_values({field})"),
        9 => format!("sum_len({field})"),
        10 => "histogram(n)".to_owned(),
        11 => "median(n)".to_owned(),
        12 => "quantile(0.9, n)".to_owned(),
        13 => "avg(n)".to_owned(),
        14 => format!("row_min(n, {field}, app)"),
        15 => format!("field_max(n, {field})"),
        16 => "max(dur)".to_owned(),
        _ => "rate()".to_owned(),
    };
    let condition = if random.random_bool(0.3) { format!(" if ({})", filter(random, 1)) } else { String::new() };
    format!("{call}{condition} as r{i}")
}

fn stats(random: &mut StdRng) -> String {
    let by = match random.random_range(0..6) {
        0 => String::new(),
        1 => format!("by (_time:{}) ", pick(&["1h", "7m", "1d offset 2h", "day"], random)),
        2 => format!("by (n:{}) ", pick(&["10", "100 offset 5", "3"], random)),
        3 => format!("by ({}, {}) ", name(random), name(random)),
        _ => format!("by ({}) ", name(random)),
    };
    let calls: Vec<String> = (0..random.random_range(1..4)).map(|i| call(random, i)).collect();
    format!("stats {by}{}", calls.join(", "))
}

fn row_pipe(random: &mut StdRng) -> String {
    let (from, to) = (name(random), pick(&["t", "u", "a", "_msg"], random));
    let condition = if random.random_bool(0.2) { format!(" if ({})", filter(random, 1)) } else { String::new() };
    match random.random_range(0..24) {
        0 => format!("extract{condition} \"<t>-<u>\" from {from}"),
        1 => format!("extract_regexp{condition} \"(?P<t>[a-z]+)\" from {from}"),
        2 => format!("format{condition} \"<{}>:<uc:_msg>\" as {to}", pick(&FIELDS, random)),
        3 => format!("math n * {} + dur as {to}", random.random_range(1..9)),
        4 => format!("replace{condition} (\"er\", \"<>\") at {from}"),
        5 => format!("replace_regexp{condition} (\"[0-9]+\", \"N\") at {from}"),
        6 => format!("collapse_nums{condition} at {from}{}", pick(&["", " prettify"], random)),
        7 => format!("pack_json fields (n, {from}) as {to}"),
        8 => format!("pack_logfmt fields (n, {from}) as {to}"),
        9 => format!("unpack_json{condition} from {from}"),
        10 => format!("unpack_json from {from} fields (k, n) result_prefix j."),
        11 => format!("unpack_logfmt{condition} from {from} result_prefix l"),
        12 => format!("unpack_words from {from} as {to}"),
        13 => format!("unroll{condition} by (list)"),
        14 => format!("json_array_len({from}) as {to}"),
        15 => format!("len({from}) as {to}"),
        16 => format!("hash({from}) as {to}"),
        17 => format!("decolorize {from}"),
        18 => "drop_empty_fields".to_owned(),
        19 => format!("coalesce({from}, {}) as {to}", name(random)),
        20 => format!("split \",\" from {from} as {to}"),
        21 => format!("unpack_syslog from {from}"),
        22 => "time_add 1h".to_owned(),
        _ => format!("json_array_concat \"-\" from list as {to}"),
    }
}

fn pipe(random: &mut StdRng) -> String {
    match random.random_range(0..14) {
        0 => format!("fields n, {}", list(random, name, 1)),
        1 => format!("delete {}", list(random, name, 1)),
        2 => format!("copy {} as {}", name(random), pick(&["t", "a"], random)),
        3 => format!("rename {} as {}", name(random), pick(&["t", "a"], random)),
        4 => format!("filter {}", filter(random, 1)),
        5 => "rename a* as z*".to_owned(),
        6 => format!("union ({})", filter(random, 1)),
        7 => format!("join by (n) ({} | fields n, {}) prefix j", filter(random, 1), name(random)),
        _ => row_pipe(random),
    }
}

fn last(random: &mut StdRng) -> Option<String> {
    Some(match random.random_range(0..12) {
        0 | 1 => stats(random),
        2 => format!("uniq by ({}) with hits", name(random)),
        3 => format!("uniq by ({}, {})", name(random), name(random)),
        4 => format!("top 3 by ({})", name(random)),
        5 => format!("field_values {}", name(random)),
        6 => "field_names".to_owned(),
        7 => format!("{} | sort by (r0, r1)", stats(random)),
        _ => return None,
    })
}

/// A query whose answer depends on the rows only.
pub(crate) fn query(random: &mut StdRng) -> String {
    let mut text = filter(random, 2);
    // Before anything changes the fields that make the order total.
    match random.random_range(0..6) {
        0 => {
            let _ = write!(
                text,
                " | sort by (_time{}, n) limit {}",
                pick(&["", " desc"], random),
                random.random_range(1..40)
            );
        }
        1 => {
            let _ = write!(text, " | sort by ({} desc, n) offset 2 limit 9", name(random));
        }
        2 => {
            let _ = write!(text, " | last 2 by ({}, n) partition by (app)", name(random));
        }
        _ => {}
    }
    for _ in 0..random.random_range(0..4) {
        text.push_str(" | ");
        text.push_str(&pipe(random));
    }
    if let Some(last) = last(random) {
        text.push_str(" | ");
        text.push_str(&last);
    }
    text
}
