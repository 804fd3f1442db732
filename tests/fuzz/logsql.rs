//! The LogsQL parser: accepts everything that the grammar generates, reports positions of errors, and reads back what it
//! prints. Stack and memory stay bounded. Hostile texts get their error at once.

use quiver_logsql::{parse, parse_filter};
use quiver_types::ErrorKind;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::{Target, allocated_by};
use crate::expression::mutate;
use crate::logsql_query::query;

/// What the grammar of rows does not make.
const MORE: [&str; 24] = [
    "options(concurrency=2, ignore_global_time_filter=true) *",
    "options(global_filter=(a:b), time_offset=1h) x:in(y | keep x)",
    "_time:5m error | stats by (_time:1m offset 30s, ip:/24) count() if (a:b or !c) as x, quantile(0.5, d)",
    "{app in (\"a\",'b') or host!~`x.+`} not foo",
    "* | math (a + b) * -c ^ 2 / round(d, 0.1) default 5 as r, max(a, b, 1e-5) m",
    "* | top 5 by (a, b) hits as h rank as r",
    "* | facets 5 max_values_per_field 10 max_value_len 20 keep_const_fields",
    "* | stream_context before 5 after 10 time_window 1h",
    "* | first 3 by (a desc, b) partition by (c) rank as x",
    "* | json_array_concat \",\" from a as b | split \" \" | time_add -1h at t",
    "* | running_stats by (a) count() c, sum(d) s | total_stats max(e) m",
    "* | stats row_max(a, b, c) x, json_values(d, e) sort by (f desc) limit 5 y, uniq_values(g) limit 3",
    "a:ipv6_range(\"::1\", \"2001:db8::5\") b:value_type(dict) c:string_range(a, \"b c\")",
    "_stream_id:in(0123456789abcdef0123456789abcdef) _time:[2025-01-01, now-5m] offset 1d",
    "_time:day_range(08:00, 18:30:15] offset -2h or _time:week_range[Sun, fri)",
    "* | extract if (a:b) '<x>\\'<plain:y>' from z keep_original_fields | unpack_syslog offset 5h30m",
    "* | set_stream_fields if (a:b) c, d* | pack_logfmt fields (e*, f) as g | sample 10",
    "* | generate_sequence 10 | block_stats | blocks_count as x | query_stats",
    "\"a\\x41\\u0416\\n\" 'b' `c\\` d:\"*\" e:* f:i(\"g\"*) # comment",
    "!(a and -b) | where c:>=1_000KiB or d:<'2025-01-01T00:00:00Z' or e:!>5",
    "* | join by (a) (b | join by (c) (d)) inner prefix p | union (e | union (f))",
    "* | unroll if (x:y) (a, b) | decolorize | deduplicate by (a) | len(a) | hash(b) as h | json_array_len(c)",
    "* | replace_regexp if (a:b) ('(x)(?P<n>y)', '$1${n}') at c limit 5 | collapse_nums prettify",
    "* | field_names as f filter abc | field_values g limit 5 | uniq by (h) with hits limit 7",
];

/// A text, and whether the grammar made it.
#[derive(Debug)]
struct Case {
    text: String,
    valid: bool,
}

fn make(random: &mut StdRng) -> Case {
    let valid = random.random_bool(0.4);
    let text = if random.random_bool(0.3) { (*MORE.choose(random).expect("some")).to_owned() } else { query(random) };
    let mut text = if valid { text } else { mutate(&text, random) };
    if random.random_bool(0.01) {
        text = text.repeat(random.random_range(2..200));
        return Case { text, valid: false };
    }
    Case { text, valid }
}

fn check(case: &Case) {
    match parse(&case.text) {
        Ok(query) => {
            let line = query.to_string();
            let again = parse(&line).unwrap_or_else(|e| panic!("written back as {line:?}, which is refused: {e}"));
            assert_eq!(again.to_string(), line, "written back, read, and written again");
            // As text: NaN is not equal to itself.
            assert_eq!(format!("{again:?}"), format!("{query:?}"), "written back as {line:?}");
        }
        Err(e) => {
            assert!(!case.valid, "{e}");
            assert_eq!(e.kind, ErrorKind::Invalid, "{e}");
            assert!(e.message.len() <= 4 * case.text.len() + 500, "{} bytes of error", e.message.len());
        }
    }
    let _ = parse_filter(&case.text);
}

#[test]
fn logsql_queries() {
    // Expressions are compiled when they are read; everything else is a few copies of the text.
    let bytes_max = |len: usize| (64 << 20) + 64 * 1024 * len as u64;
    let target = Target { name: "logsql", make, size: |case: &Case| case.text.len(), bytes_max };
    assert!(target.run(check) > 0);
}

/// Refused, with these words, within a bound of memory.
fn refused(text: &str, words: &str) {
    let shown: String = text.chars().take(40).collect();
    let mut got = String::new();
    let bytes = allocated_by(|| match parse(text) {
        Ok(_) => panic!("{shown} is taken"),
        Err(e) => got = e.to_string(),
    });
    assert!(got.contains(words), "{shown}: {}", got.chars().take(300).collect::<String>());
    assert!(bytes <= (256 << 20) + 1000 * text.len() as u64, "{shown}: {bytes} bytes");
}

#[test]
fn logsql_a_million_deep() {
    let many = 200_000;
    let deep = "levels of nesting";
    refused(&format!("{}a{}", "(".repeat(many), ")".repeat(many)), deep);
    refused(&format!("{}a", "!".repeat(many)), deep);
    refused(&format!("{}a", "not ".repeat(many)), deep);
    refused(&format!("{}a", "-".repeat(many)), deep);
    refused(&format!("a{}b", ":".repeat(many)), deep);
    refused(&"a:(b or ".repeat(many / 2), deep);
    refused(&format!("{}b{}", "a:in(c ".repeat(many / 8), " | fields a)".repeat(many / 8)), "");
    refused(&"a:in(c | filter ".repeat(many / 16), "");
    refused(&format!("* | union {}", "(* | union ".repeat(many / 4)), deep);
    refused(&format!("* | join by (x) {}", "(* | join by (x) ".repeat(many / 8)), deep);
    refused(&format!("* | math {}a as b", "(".repeat(many)), deep);
    refused(&format!("* | math {}a as b", "-".repeat(many)), deep);
    refused(&format!("* | math {}a as b", "abs(".repeat(many)), deep);
    refused(&format!("* | math {}a as b", "2^".repeat(many)), "more than");
    refused(&format!("* | math a{} as b", "+1".repeat(many)), "operators");
    refused(&format!("*{}", " | limit 5".repeat(many / 4)), "pipes");
    refused(&format!("* | count() if ({}", "a:in(* | count() if (".repeat(many / 20)), deep);
    refused(&"a".repeat(2 << 20), "longer than");
    let fields = "more than 1024 fields";
    refused(&format!("* | fields {}z", "y,".repeat(300_000)), fields);
    refused(&format!("* | delete {}", (0..100_000).map(|i| format!("f{i}")).collect::<Vec<_>>().join(",")), fields);
    let counts = (0..20_000).map(|i| format!("count() c{i}")).collect::<Vec<_>>().join(",");
    refused(&format!("* | stats {counts}"), fields);
}

#[test]
fn logsql_a_million_wide() {
    for wide in [
        format!("a:in({}x)", "y,".repeat(300_000)),
        "a or ".repeat(150_000) + "b",
        "a ".repeat(300_000),
        format!("{{{}c=\"d\"}}", "a=\"b\",".repeat(100_000)),
        format!("_time:5m \"{}\"", "x".repeat(900_000)),
    ] {
        let shown: String = wide.chars().take(40).collect();
        let bytes = allocated_by(|| {
            let query = parse(&wide).unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert!(!query.to_string().is_empty());
        });
        // Allocated in all, freed included.
        assert!(bytes <= 512 << 20, "{shown}: {bytes} bytes");
    }
}

/// Patterns are compiled while they are read: each has a bound of its own.
#[test]
fn logsql_heavy_patterns() {
    let check = |filter: &str| {
        let mut taken = false;
        let bytes = allocated_by(|| taken = parse(filter).is_ok());
        assert!(bytes <= 64 << 20, "{filter}: {bytes} bytes");
        taken
    };
    assert!(check("~\"(a*)*$\""));
    assert!(!check("~\"((x{1000}){1000}){1000}\""));
    assert!(!check("~\"(.{1000}){1000}\""));
    assert!(!check("~\"\\\\pL{1000}\""));
    assert!(!check("{a=~\"(.{1000}){1000}\"}"));
    assert!(!check("* | extract_regexp \"(?P<a>(.{1000}){1000})\""));
    assert!(!check("* | replace_regexp (\"(.{1000}){1000}\", \"\")"));
    // Many of them together are bounded too.
    let many = vec!["~\"[a-z]{100}[^x]{50}\""; 20_000].join(" or ");
    refused(&many, "regular expressions");
}
