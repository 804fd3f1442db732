//! Pipes beside each other: which is meant, what they say of themselves, and what several of them make of rows.

use std::collections::HashSet;

use quiver_types::logs::TIME;

use super::testing::{gives, reads, refuses};
use super::*;
use crate::query_text::parse;

#[test]
fn names_are_unique_and_documented() {
    let mut seen = HashSet::new();
    for def in PIPES.defs() {
        assert!(def.names.iter().all(|name| seen.insert(*name)), "{:?} twice", def.names);
        assert!(def.doc.ends_with('.') && def.doc.len() > 20, "{:?}: {}", def.names, def.doc);
    }
    assert!(seen.len() > 50);
}

#[test]
fn what_is_no_pipe_by_name_is_a_filter_or_stats() {
    reads(&[
        ("len:5", "filter \"len\":5"),
        ("format-x", "filter \"format-x\""),
        ("count() x", "stats count(*) as x"),
        ("(host) count() rows", "stats by (host) count(*) as rows"),
        ("foo", "filter foo"),
        ("limit*", "filter \"limit\"*"),
        ("sort/x", "filter \"sort/x\""),
        ("'limit' 5", "filter \"limit\" 5"),
        ("LIMIT 5", "limit 5"),
        ("(a or b) c", "filter (a or b) c"),
        ("!a", "filter !a"),
        ("{a=b}", "filter {a=\"b\"}"),
        ("_time:5m", "filter _time:5m"),
        ("by (a) MAX(b) m", "stats by (a) max(b) as m"),
        ("count:5", "filter \"count\":5"),
    ]);
    refuses(&[
        ("", "a pipe expected"),
        ("sotr(x)", "did you mean `sort`?"),
        ("maxx(a) b", "did you mean `max`?"),
        ("a:(b", "`)` expected"),
        ("count x", "`(` expected"),
        ("limit 5 6", "`|` or the end of the pipe expected"),
        ("fields a,,b", "a field name expected"),
        ("sort by (a b)", "`,` or `)` expected"),
    ]);
}

fn pipe(text: &str) -> Pipe {
    let mut query = parse(&format!("* | query_stats | {text}")).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    query.pipes.remove(1)
}

/// Pipes that work on rows one by one follow a tail; those that change times are not asked for the newest.
#[test]
fn what_pipes_say_of_themselves() {
    // Whether rows stay rows, it says something of rows as they come, times stay, rows become others.
    for (text, rows, follows, time, barrier) in [
        ("fields _time, a", true, true, true, false),
        ("fields a", false, true, false, false),
        ("fields *", true, true, true, false),
        ("delete a", true, true, true, false),
        ("delete _time", false, true, false, false),
        ("copy a as b", true, true, false, false),
        ("copy a as _time", false, true, false, false),
        ("rename _time as a", false, true, false, false),
        ("rename a* as _ti*", false, true, false, false),
        ("filter a:b", true, true, true, false),
        ("format '<a>' as b", true, true, true, false),
        ("format '<a>' as _time", false, true, false, false),
        ("math 1 as a, 2 as _time", false, true, false, false),
        ("time_add 1h", false, true, false, false),
        ("time_add 1h at t", true, true, true, false),
        ("coalesce(a) as b", true, true, true, false),
        ("coalesce(a) as _time", false, true, false, false),
        ("pack_json as a", true, true, true, false),
        ("pack_json as _time", false, true, false, false),
        ("unpack_json a fields (b)", true, true, false, false),
        ("unpack_json a fields (_time)", false, true, false, false),
        ("unpack_json a fields (b) result_prefix _", true, true, false, false),
        ("unpack_json a fields (time) result_prefix _", false, true, false, false),
        ("drop_empty_fields", true, true, true, false),
        ("set_stream_fields a", true, true, false, false),
        ("unroll a", false, true, true, false),
        ("unroll _time", false, true, false, false),
        ("sample 5", false, true, false, false),
        ("join by (a) (b)", false, true, false, false),
        ("limit 5", false, false, false, false),
        ("offset 5", false, false, false, false),
        ("sort by (a)", false, false, false, false),
        ("union (a)", false, false, false, false),
        ("deduplicate", false, false, false, false),
        ("running_stats count() n", false, false, false, false),
        ("count() n", false, false, false, true),
        ("uniq by (a)", false, false, false, true),
        ("top by (a)", false, false, false, true),
        ("facets", false, false, false, true),
        ("field_names", false, false, false, true),
        ("field_values a", false, false, false, true),
        ("generate_sequence 5", false, false, false, true),
        ("block_stats", false, false, false, true),
    ] {
        let pipe = pipe(text);
        let kind = pipe.kind();
        let found = (kind.keeps_rows(), kind.follows(), kind.keeps_time(), kind.is_barrier());
        assert_eq!(found, (rows, follows, time, barrier), "{text}");
    }
}

#[test]
fn the_field_that_subqueries_give() {
    for (text, expected) in [
        ("* | fields a", Some("a")),
        ("* | uniq by (a)", Some("a")),
        ("* | fields a | sort by (b) | limit 5 | offset 1", Some("a")),
        ("* | fields a | filter b:c | sample 3 | deduplicate", Some("a")),
        ("* | fields b | uniq by (a)", Some("a")),
        ("*", None),
        ("* | limit 5", None),
        ("* | fields a, b", None),
        ("* | fields a*", None),
        ("* | uniq by (a, b)", None),
        ("* | uniq by (a) with hits", None),
        ("* | fields a | format 'x' as b", None),
        ("* | fields a | sort by (a) rank as r", None),
        ("* | count() n", None),
    ] {
        assert_eq!(parse(text).expect("a query").output_field(), expected, "{text}");
    }
    for (text, expected) in [
        ("*", false),
        ("a b", false),
        ("_time:5m", true),
        ("a or !(b _time:day_range[08:00, 09:00])", true),
        ("a:in(_time:5m | fields b)", false),
        ("options(global_filter=(_time:5m)) a", true),
        ("* | limit 1 | filter _time:5m", false),
        ("* | filter _time:5m", true),
    ] {
        assert_eq!(parse(text).expect("a query").has_time_filter(), expected, "{text}");
    }
}

#[test]
fn fields_change_their_names_pair_after_pair() {
    gives("rename a as t, b as a, t as b", &["a=1 b=2", "a=3"], &["a=2 b=1", "b=3"]);
    gives("rename a as b, c as b", &["a=1 c=2"], &["b=2"]);
    gives("copy a as b, c as a", &["a=1 c=2"], &["a=2 b=1 c=2"]);
    gives("copy a as a | rename b as b", &["a=1 b=2"], &["a=1 b=2"]);
    gives("delete a | copy b as a", &["a=1 b=2"], &["a=2 b=2"]);
    gives("fields b, a, b, a* | rename * as x.*", &["a=1 ab=2 b=3 c=4"], &["x.a=1 x.ab=2 x.b=3"]);
}

#[test]
fn expressions_see_the_results_before_them() {
    gives("math 5 as a, a + 1 as a, a + 1 as b", &["a=9"], &["a=6 b=7"]);
    gives("math 2 ^ 3 ^ 2 as a, 2 + 3 * 4 ^ 2 as b, 7 - 2 - 1 as c, 100 / 5 / 2 as d", &[""], &["a=64 b=50 c=4 d=10"]);
    gives("math 1 / 0 as a, -1 / 0 as b, 0 / 0 as c, 5 % 0 as d", &[""], &["a=+Inf b=-Inf c=NaN d=NaN"]);
    gives(
        "math a default b default 3 as x | fields x",
        &["a=1", "b=2", "c=1", "a=x b=y"],
        &["x=1", "x=2", "x=3", "x=3"],
    );
    gives(
        "math max(a, b, 2) as x, min(a, b) as y | fields x, y",
        &["a=1 b=5", "b=7", "a=z"],
        &["x=5 y=1", "x=7 y=7", "x=2 y=NaN"],
    );
    gives(
        "math a + 1 as x | fields x",
        &["a=1KB", "a=1h", "a=1.5", "a=''"],
        &["x=1001", "x=3600000000001", "x=2.5", "x=NaN"],
    );
}

#[test]
fn places_are_counted_in_the_order_and_in_each_partition() {
    let rows = ["a=3 b=x", "a=1 b=x", "a=2 b=x", "a=5 b=y", "a=4 b=y"];
    gives("sort by (a) offset 1 limit 1 partition by (b)", &rows, &["a=2 b=x", "a=5 b=y"]);
    gives("sort by (a) offset 2 limit 9 partition by (b) rank as r", &rows, &["a=3 b=x r=3"]);
    gives("sort by (a desc) rank as r | filter r:>3 | fields a, r", &rows, &["a=2 r=4", "a=1 r=5"]);
    gives("sort by (a desc) offset 3 rank as a | fields a", &rows, &["a=4", "a=5"]);
    gives("sort by (b, a desc) limit 2", &["a=1 b=x", "a=2", "a=3 b=x"], &["a=2", "a=3 b=x"]);
}

/// A field that is missing and one that is empty are the same.
#[test]
fn values_that_are_missing_are_one_value() {
    gives("uniq by (a) | sort by (a)", &["a=Ж", "a=''", "b=1", "a=Ж"], &["", "a=Ж"]);
    gives("top by (a) hits as n", &["a=x", "b=1", "a=x", "b=2", "a=''"], &["n=3", "a=x n=2"]);
    gives("by (a) count() n, count(b) m | sort by (n)", &["a=x b=1", "b=2", "a=''"], &["a=x n=1 m=1", "n=2 m=1"]);
    gives("filter a:eq_field(b)", &["a=1 b=1", "a=1 b=2", "c=1"], &["a=1 b=1", "c=1"]);
    gives("coalesce(a, b) as a", &["a='' b=2", "a=1 b=2", "c=1"], &["a=2 b=2", "a=1 b=2", "c=1"]);
}

#[test]
fn old_values_stay_where_a_pipe_says_so() {
    gives(
        "format if (a:*) '<a>!' as b keep_original_fields",
        &["a=1", "a=2 b=x", "b=y"],
        &["a=1 b=1!", "a=2 b=x", "b=y"],
    );
    gives("replace if (!b:x) (1, 2) at a", &["a=11 b=x", "a=11"], &["a=11 b=x", "a=22"]);
    gives("extract 'k=<k>;' from a skip_empty_results", &["a='k=1;' k=0", "a=z k=0"], &["a='k=1;' k=1", "a=z k=0"]);
    gives("extract 'k=<k>;' from a", &["a=z k=0"], &["a=z"]);
    gives("unpack_json a skip_empty_results | fields k", &["a='{\"k\":\"\"}' k=0"], &["k=0"]);
    gives("unpack_json a | fields k", &["a='{\"k\":\"\"}' k=0", "a=no k=0"], &["", "k=0"]);
}

#[test]
fn lists_are_made_and_taken_apart() {
    gives("split ',' from a as b | unroll b | fields b", &["a='x,,y'"], &["b=x", "", "b=y"]);
    gives(
        "split '' from a as b | json_array_len(b) as n | json_array_concat '-' from b as c | fields n, c",
        &["a=äb"],
        &["n=2 c=ä-b"],
    );
    gives(
        "unpack_words a as w | unroll w | uniq by (w) with hits | sort by (w)",
        &["a='x y x'", "a=z"],
        &["hits=2 w=x", "hits=1 w=y", "hits=1 w=z"],
    );
    gives(
        "pack_json fields (a, b) as j | delete a, b | unpack_json j | fields a, b",
        &["a='x\"y' b='<'"],
        &["a='x\"y' b='<'"],
    );
    gives(
        "pack_logfmt fields (a, b) as j | delete a, b | unpack_logfmt j | fields a, b",
        &["a='x y' b=1"],
        &["a='x y' b=1"],
    );
}

#[test]
fn times_are_moved_within_the_calendar() {
    gives(
        "time_add 1d at t",
        &["t=2024-02-28T12:00:00Z", "t=2023-02-28T12:00:00Z"],
        &["t=2024-02-29T12:00:00Z", "t=2023-03-01T12:00:00Z"],
    );
    gives(
        "time_add 1ns at t",
        &["t=2025-01-01T00:00:00Z", "t=x", "a=1"],
        &["t=2025-01-01T00:00:00.000000001Z", "t=x", "a=1"],
    );
    // Beyond the last moment it stays as it is.
    gives("time_add 292y at t", &["t=2200-01-01T00:00:00Z"], &["t=2200-01-01T00:00:00Z"]);
    let rows = ["_time=2025-01-01T05:00:00Z a=1", "_time=2025-01-02T00:00:00Z a=2", "a=3"];
    gives("filter _time:[2025-01-01, 2025-01-02) | fields a", &rows, &["a=1"]);
    gives("filter !_time:[2025-01-01, 2025-01-02) | fields a", &rows, &["a=2", "a=3"]);
    gives("filter _time:day_range[04:00, 06:00] | fields a", &rows, &["a=1"]);
}

#[test]
fn groups_of_numbers_and_cases() {
    let rows = ["a=5", "a=12", "a=19", "a=-1", "a=x"];
    gives("by (a:10) count() n | sort by (a)", &rows[..4], &["a=-10 n=1", "a=0 n=1", "a=10 n=2"]);
    gives("by (a:10 offset 5) count() n | sort by (a)", &rows[..4], &["a=-5 n=1", "a=5 n=2", "a=15 n=1"]);
    gives("by (a:10) count() n | filter a:x", &rows, &["a=x n=1"]);
    gives(
        "count() switch(case (a:1) as x, case (b:1) as y, default as z)",
        &["a=1", "b=1", "a=1 b=1", "c=1"],
        &["x=2 y=2 z=1"],
    );
    gives("count() n, sum(a) s, max(a) m", &[], &["n=0 s=NaN"]);
    gives("by (a) count() n", &[], &[]);
}

#[test]
fn what_adds_up_row_by_row() {
    let rows = ["n=2 b=x g=a", "n=1 g=b", "n=3 b=y g=a"];
    gives(
        "sort by (n) | running_stats sum(n) s, min(n) lo, max(n) hi, count(b) c | fields s, lo, hi, c",
        &rows,
        &["s=1 lo=1 hi=1 c=0", "s=3 lo=1 hi=2 c=1", "s=6 lo=1 hi=3 c=2"],
    );
    gives(
        "sort by (n) | total_stats by (g) count() c, first(n) f, last(n) l | fields n, c, f, l",
        &rows,
        &["n=1 c=1 f=1 l=1", "n=2 c=2 f=2 l=3", "n=3 c=2 f=2 l=3"],
    );
    gives("sort by (n) | total_stats first(n) offset 5 f, sum(g) s | fields n, f, s | limit 1", &rows, &["n=1 s=NaN"]);
    gives("sort by (n) | running_stats count() n | fields n", &rows, &["n=1", "n=2", "n=3"]);
}

#[test]
fn rows_of_others_are_joined_and_added() {
    let right = "rows({a:1, b:2, c:3}, {a:1, b:9, c:4})";
    gives(&format!("join by (a, b) {right} | sort by (b)"), &["a=1 b=2", "a=1 b=3"], &["a=1 b=2 c=3", "a=1 b=3"]);
    gives(&format!("join by (a) {right} inner"), &["a=7"], &[]);
    gives(&format!("join by (a) {right} | count() n"), &["a=1", "a=7"], &["n=3"]);
    gives("fields a | union rows({b:1}) | count() n", &["a=1 b=2"], &["n=2"]);
    gives("union rows({a:1}) | union rows({a:2}, {}) | sort by (a)", &["a=3"], &["", "a=1", "a=2", "a=3"]);
}

#[test]
fn streams_are_made_of_fields_once() {
    gives(
        "set_stream_fields a, a, a* | fields _stream",
        &["a=1 ab=2", "b=1"],
        &["_stream='{a=\"1\",ab=\"2\"}'", "_stream='{}'"],
    );
    gives("set_stream_fields a | filter {a=1} | fields a", &["a=1", "a=11", "b=1"], &["a=1"]);
    gives("set_stream_fields a | filter {a!=1} | fields a, b", &["a=1", "a=2", "b=1"], &["a=2", "b=1"]);
}

/// Times that a tail or the newest rows ask for are those of the scan.
#[test]
fn sorts_by_time_are_known() {
    let sort = |text: &str| pipe(text).downcast_ref::<sort::Sort>().unwrap_or_else(|| panic!("{text}")).clone();
    assert_eq!(sort("sort by (_time)"), sort::Sort::oldest_first());
    assert_eq!(sort("sort by (_time desc)"), sort::Sort::newest_first());
    let reversed =
        ["sort by (a)", "sort by (a) desc", "first by (a)", "last by (a)"].map(|text| sort(text).is_reversed());
    assert_eq!(reversed, [false, true, false, true]);
    let needs = pipe("sort by (a)").kind().before(&crate::required_fields::Needs::of([TIME]));
    assert!(needs.has(TIME) && needs.has("a") && !needs.has("b"));
}
