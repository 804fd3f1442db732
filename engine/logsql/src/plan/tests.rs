//! What a plan is made of: the fields that each place needs, the columns of the scan, the order that the scan gives.

use super::*;
use crate::query_text::parse;

fn query(text: &str) -> Query {
    parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

/// Names, groups, and names that are left out of groups.
fn shown(needs: &Needs) -> String {
    let groups = needs.prefixes.iter().map(|prefix| format!("{prefix}*"));
    let without = needs.unneeded.iter().map(|name| format!("-{name}"));
    needs.names.iter().cloned().chain(groups).chain(without).collect::<Vec<_>>().join(" ")
}

/// Breaks if a pipe does not ask for a field that it reads, or asks for one that nobody wants.
#[test]
fn what_pipes_need_of_the_rows_before_them() {
    for (pipes, expected) in [
        ("limit 5", "*"),
        ("fields a, b*", "a b*"),
        ("fields a | limit 1 | filter b:x", "a"),
        ("limit 1 | filter x:1 y*:2 | fields a", "a x y*"),
        ("filter x:1 | fields a", "a"),
        ("delete a", "* -a"),
        ("delete a*", "*"),
        ("delete a | fields b", "b"),
        ("delete b* | fields b, bc, c", "c"),
        ("copy a as b", "a * -b"),
        ("copy a as b | fields c", "c"),
        ("copy a* as b* | fields bx", "bx a*"),
        ("copy a as b, b as c | fields c", "a"),
        ("rename a as b", "a * -b"),
        ("rename a as b | fields c", "c"),
        ("rename a as b | fields a", ""),
        ("rename a as a | fields a", "a"),
        ("rename a* as b* | fields c", "c"),
        ("count() n", ""),
        ("stats by (a) sum(b*) s", "_stream a b*"),
        ("stats by (a) sum(b) s, max(c) m | fields a, s", "_stream a b"),
        ("stats by (a) max(c) m | fields a", "a"),
        ("stats count() if (x:1 y:2) n", "x y"),
        ("stats count() if (x:1) n, max(b) m | fields m", "b"),
        ("stats row_min(a, b) r", "a b"),
        ("sort by (a) | count() n", ""),
        ("sort by (a) limit 3 partition by (b) | count() n", "a b"),
        ("sort by (a) | fields b", "a b"),
        ("sort by (a) rank as r | fields r", "a"),
        ("sort | fields b", "b *"),
        ("uniq by (a)", "a"),
        ("uniq by (a) with hits | fields hits", "a"),
        ("top 5 by (a, b)", "a b"),
        ("field_values a | fields hits", "a"),
        ("facets", "*"),
        ("field_names | fields name", "*"),
        ("generate_sequence 5 | fields a", ""),
        ("block_stats", ""),
        ("blocks_count", ""),
        ("query_stats", ""),
        ("sample 3 | fields a", "a"),
        ("deduplicate by (a) | fields b", "a b"),
        ("deduplicate | fields b", "*"),
        ("drop_empty_fields | fields a", "a *"),
        ("stream_context before 1 | fields a", "_stream_id _time a"),
    ] {
        let query = query(&format!("* | {pipes}"));
        assert_eq!(shown(&needs_between(&query, &Needs::all())[0]), expected, "{pipes}");
    }
}

#[test]
fn what_pipes_that_make_fields_need() {
    for (pipes, expected) in [
        ("format '<a>-<b>' as c | fields c", "a b"),
        ("format '<a>' as c | fields d", "d"),
        ("format '<c>' as c | fields c", "c"),
        ("format if (x:1) '<a>' as c | fields c", "a c x"),
        ("format '<a>' as c keep_original_fields | fields c", "a c"),
        ("format '<a>' as c skip_empty_results | fields c", "a c"),
        ("extract '<x>-<y>' from a | fields x", "a"),
        ("extract '<x>-<y>' from a | fields z", "z"),
        ("extract_regexp '(?P<x>b)' from a | fields x, z", "a z"),
        ("unpack_json a | fields x", "a x"),
        ("unpack_json a fields (y) | fields x", "x"),
        ("unpack_json if (c:1) a fields (x) | fields x", "a c x"),
        ("unpack_json a result_prefix p_ | fields x", "x"),
        ("unpack_json a fields (y*) result_prefix p_ | fields p_yz", "a p_yz"),
        ("unpack_logfmt | fields x", "_msg x"),
        ("unpack_syslog a | count() n", ""),
        ("unpack_words a as b | fields b", "a"),
        ("math a + b as c | fields c", "a b"),
        ("math 1 as c | fields c", ""),
        ("math a as b, b as c | fields c", "a b"),
        ("len(a) as b | fields b", "a"),
        ("hash(a) as b | delete b", "* -b"),
        ("replace (x, y) at a | fields a", "a"),
        ("replace_regexp (x, y) at a | fields b", "b"),
        ("time_add 1h | fields _time", "_time"),
        ("coalesce(a, b*) as c | fields c", "a b*"),
        ("coalesce(a) as c | fields d", "d"),
        ("pack_json fields (a, b*) as c | fields c", "a b*"),
        ("pack_json as c | fields c", "*"),
        ("pack_logfmt as c | fields d", "d"),
        ("set_stream_fields a, b* | fields _stream", "a b*"),
        ("set_stream_fields if (x:1) a | fields _stream", "_stream _stream_id a x"),
        ("unroll a | fields b", "a b"),
        ("unroll if (c:1) a | count() n", "a c"),
        ("join by (a) (x | fields a) | fields b", "a b"),
        ("union (x) | fields b", "b"),
        ("running_stats by (a) sum(b) s | fields s", "a b"),
        ("running_stats count() n | fields a", "a"),
        ("total_stats min(*) n | fields a", "a *"),
    ] {
        let query = query(&format!("* | {pipes}"));
        assert_eq!(shown(&needs_between(&query, &Needs::all())[0]), expected, "{pipes}");
    }
}

fn source(text: &str) -> Shape {
    let query = query(text);
    source_shape(&query, &needs_between(&query, &Needs::all())[0])
}

/// Breaks if a name that a pipe makes would be in the map and in a column.
#[test]
fn names_that_a_query_speaks_of_have_columns_beside_a_map() {
    for (text, expected) in [
        ("*", "_stream, _stream_id, _time, *"),
        ("* | fields a, _time", "_time, a"),
        ("* | fields a, b*", "a, *"),
        ("* | copy a as b", "_stream, _stream_id, _time, a, b, *"),
        ("* | format '<a>' as b | delete c", "_stream, _stream_id, _time, a, b, c, *"),
        ("* | delete _stream", "_stream, _stream_id, _time, *"),
        ("* | limit 1 | filter x:1 or y*:2", "_stream, _stream_id, _time, x, *"),
        ("* | sort by (a) rank as r", "_stream, _stream_id, _time, a, r, *"),
        ("* | unpack_json from j fields (k, l*) result_prefix p_", "_stream, _stream_id, _time, j, p_k, *"),
        ("* | running_stats by (g) sum(n) s", "_stream, _stream_id, _time, g, n, s, *"),
        // Rows become others: what is behind asks for nothing more.
        ("* | facets | format '<a>' as b", "_stream, _stream_id, _time, *"),
        ("* | copy a as b | field_names | format '<c>' as d", "_stream, _stream_id, _time, a, b, *"),
        ("* | stats by (a) count() n | format '<x>' as y", "a"),
        ("* | limit 1 | filter c:x | uniq by (d) | format '<e>' as f", "c, d"),
        ("* | count() n", ""),
    ] {
        assert_eq!(source(text).to_string(), expected, "{text}");
    }
}

#[test]
fn fields_that_are_grouped_by_are_as_they_are_stored() {
    let kinds = |text: &str| source(text).columns.into_iter().map(|c| (c.name, c.kind)).collect::<Vec<_>>();
    let named =
        |all: &[(&str, ColumnStorage)]| all.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect::<Vec<_>>();
    let check = |text: &str, expected: &[(&str, ColumnStorage)]| assert_eq!(kinds(text), named(expected), "{text}");
    check("* | uniq by (a)", &[("a", ColumnStorage::Stored)]);
    check("* | top 5 by (a, b)", &[("a", ColumnStorage::Stored), ("b", ColumnStorage::Stored)]);
    check("* | field_values a", &[("a", ColumnStorage::Stored)]);
    let all = [
        ("_stream", ColumnStorage::Stored),
        ("_time", ColumnStorage::Time),
        ("a", ColumnStorage::Stored),
        ("b", ColumnStorage::Stored),
    ];
    check("* | stats by (a, _time:1h) sum(b) s", &all);
    // Behind any other pipe they are texts.
    check("* | fields * | uniq by (a)", &[("a", ColumnStorage::Text)]);
    check("* | limit 5 | uniq by (a)", &[("a", ColumnStorage::Text)]);
    check("* | format '<b>' as a | uniq by (a)", &[("b", ColumnStorage::Text)]);
    check("* | fields a, _time", &[("_time", ColumnStorage::Time), ("a", ColumnStorage::Text)]);
}

#[test]
fn a_scan_gives_an_order_by_time_under_a_limit() {
    let found = |text: &str| newest(&query(text)).map(|n| (n.order, n.sort_at, n.skip, n.fetch));
    let (newest_first, oldest_first) = (LogOrder::NewestFirst, LogOrder::OldestFirst);
    for (text, expected) in [
        ("* | sort by (_time) limit 5", (oldest_first, 0, 0, Some(5))),
        ("* | sort by (_time desc) limit 5 offset 2", (newest_first, 0, 2, Some(5))),
        ("* | sort by (_time) desc limit 5", (newest_first, 0, 0, Some(5))),
        ("* | sort by (_time desc) desc limit 5", (oldest_first, 0, 0, Some(5))),
        ("* | sort by (_time desc) | offset 1 | limit 4", (newest_first, 0, 1, Some(4))),
        ("* | first 3 by (_time)", (oldest_first, 0, 0, Some(3))),
        ("* | last 3 by (_time)", (newest_first, 0, 0, Some(3))),
        ("* | last by (_time desc)", (oldest_first, 0, 0, Some(1))),
        ("* | fields _time, a | sort by (_time) limit 1", (oldest_first, 1, 0, Some(1))),
        ("* | fields * | filter a:b | sort by (_time) limit 1", (oldest_first, 2, 0, Some(1))),
        ("* | format '<a>' as b | delete a | sort by (_time) limit 1", (oldest_first, 2, 0, Some(1))),
        ("* | drop_empty_fields | unroll a | sort by (_time) limit 1", (oldest_first, 2, 0, Some(1))),
    ] {
        assert_eq!(found(text), Some(expected), "{text}");
    }
    for text in [
        "*",
        "* | limit 5",
        "* | sort by (_time)",
        "* | sort by (_time) offset 3",
        "* | sort by (_time, a) limit 1",
        "* | sort by (a) limit 1",
        "* | sort limit 1",
        "* | sort by (_time) limit 5 partition by (a)",
        "* | sort by (_time) limit 5 rank as r",
        "* | fields a | sort by (_time) limit 1",
        "* | delete _time | sort by (_time) limit 1",
        "* | delete _t* | sort by (_time) limit 1",
        "* | format 'x' as _time | sort by (_time) limit 1",
        "* | time_add 1h | sort by (_time) limit 1",
        "* | unroll _time | sort by (_time) limit 1",
        "* | limit 5 | sort by (_time) limit 1",
        "* | offset 5 | sort by (_time) limit 1",
        "* | sample 2 | sort by (_time) limit 1",
        "* | copy a as _time | sort by (_time) limit 1",
        "* | stats by (_time:1h) count() n | sort by (_time) limit 1",
    ] {
        assert_eq!(found(text), None, "{text}");
    }
}

#[test]
fn a_limit_that_comes_first_bounds_what_is_read() {
    for (text, expected) in [
        ("* | limit 5", Some(5)),
        ("a | limit 0", Some(0)),
        ("* | fields a | delete b | limit 5", Some(5)),
        ("* | offset 2 | limit 3", Some(5)),
        ("* | limit 3 | uniq by (a)", Some(3)),
        ("*", None),
        ("* | offset 2", None),
        ("* | fields a | sort by (a) | limit 5", None),
        ("* | format '<a>' as b | limit 5", None),
        ("* | fields a | filter a:b | limit 5", None),
        ("* | uniq by (a) | limit 5", None),
    ] {
        assert_eq!(most_rows(&query(text)), expected, "{text}");
    }
}

#[test]
fn rows_that_are_only_counted_may_stand_for_many() {
    let counted = |text: &str| counts_rows(&query(text), &source(text));
    for text in [
        "* | count() n",
        "* | stats by (a) count() n, rate() r",
        "* | uniq by (a, b)",
        "* | uniq by (a) with hits limit 5",
        "* | top 5 by (a)",
        "* | field_values a limit 3",
        "* | filter a:b | count() n",
    ] {
        assert!(counted(text), "{text}");
    }
    for text in [
        "*",
        "* | limit 5 | count() n",
        "* | stats by (_time:1h) count() n",
        "* | stats by (a) count() n, sum(b) s",
        "* | stats by (a) count(b) n",
        "* | stats count() if (a:b) n",
        "* | uniq by (_time)",
        "* | uniq by (a) filter x",
        "* | field_values a filter x",
        "* | facets",
        "* | fields a | count() n",
    ] {
        assert!(!counted(text), "{text}");
    }
}

/// What `running_stats` adds up depends on the order of rows: that of time, if the query says none.
#[test]
fn rows_are_in_the_order_of_time_where_it_counts() {
    for (pipes, expected) in [
        ("running_stats count() n", "sort by (_time) | running_stats count(*) as n"),
        ("total_stats last(a) n", "sort by (_time) | total_stats last(a) as n"),
        ("total_stats first(a) n | limit 1", "sort by (_time) | total_stats first(a) as n | limit 1"),
        ("total_stats count() n, max(a) m", "total_stats count(*) as n, max(a) as m"),
        ("sort by (a) | running_stats count() n", "sort by (a) | running_stats count(*) as n"),
        ("first 5 by (a) | running_stats count() n", "first 5 by (a) | running_stats count(*) as n"),
        ("sort by (a) | fields a | running_stats count() n", "sort by (a) | fields a | running_stats count(*) as n"),
        ("top by (a) | running_stats count() n", "top by (a) | running_stats count(*) as n"),
        ("generate_sequence 3 | running_stats count() n", "generate_sequence 3 | running_stats count(*) as n"),
        (
            "sort by (a) | uniq by (a) | running_stats count() n",
            "sort by (a) | uniq by (a) | sort by (_time) | running_stats count(*) as n",
        ),
        (
            "sort by (a) | union (x) | running_stats count() n",
            "sort by (a) | union (x) | sort by (_time) | running_stats count(*) as n",
        ),
        (
            "running_stats count() n | running_stats count() m",
            "sort by (_time) | running_stats count(*) as n | running_stats count(*) as m",
        ),
        (
            "running_stats count() n | join by (a) (x | fields a) | running_stats count() m",
            "sort by (_time) | running_stats count(*) as n | join by (a) (x | fields a) | sort by (_time) \
             | running_stats count(*) as m",
        ),
        (
            "stats by (a) count() c | running_stats sum(c) s",
            "stats by (a) count(*) as c | sort by (_time) | running_stats sum(c) as s",
        ),
    ] {
        let query = query(&format!("* | {pipes}"));
        assert_eq!(in_time_order(&query).to_string(), format!("* | {expected}"), "{pipes}");
    }
}
