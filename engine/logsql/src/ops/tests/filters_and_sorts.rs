//! Filters and orders at the borders of what they let through, groups whose keys are missing, and rows that meet.

use crate::pipes::testing::gives;

#[test]
fn ranges_at_their_borders() {
    let numbers = ["a=1", "a=1.0", "a=2", "a=3", "a=x", "b=2"];
    gives("filter a:range[1, 2]", &numbers, &["a=1", "a=1.0", "a=2"]);
    gives("filter a:range(1, 2]", &numbers, &["a=2"]);
    gives("filter a:range[1, 2)", &numbers, &["a=1", "a=1.0"]);
    gives("filter a:range(1, 2)", &numbers, &[]);
    gives("filter a:range[3, 1]", &numbers, &[]);
    gives("filter a:>=2", &numbers, &["a=2", "a=3"]);
    gives("filter !a:>=2", &numbers, &["a=1", "a=1.0", "a=x", "b=2"]);
    gives("filter a:>-1", &["a=-1", "a=-0.5", "a=0", "a=-inf", "a=inf"], &["a=-0.5", "a=0", "a=inf"]);
    gives("filter a:<0", &["a=-0", "a=-1e-9", "a=-inf"], &["a=-1e-9", "a=-inf"]);
    gives("filter a:>1KB", &["a=1000", "a=1001", "a=1KiB", "a=2B", "a=1ms"], &["a=1001", "a=1KiB", "a=1ms"]);
    gives("filter a:<1s", &["a=999ms", "a=1s", "a=1500000", "a=2m"], &["a=999ms", "a=1500000"]);
    gives("filter a:>9223372036854775806", &["a=9223372036854775806", "a=9223372036854775807", "a=1e19"], &["a=1e19"]);
    gives(
        "filter a:range[10.0.0.1, 10.0.0.3]",
        &["a=10.0.0.1", "a=10.0.0.4", "a=167772162"],
        &["a=10.0.0.1", "a=167772162"],
    );
    gives(
        "filter a:ipv4_range(10.0.0.1, 10.0.0.3)",
        &["a=10.0.0.1", "a=10.0.0.3", "a=10.0.0.4", "a=167772162"],
        &["a=10.0.0.1", "a=10.0.0.3"],
    );
    gives(
        "filter a:ipv4_range(0.0.0.0/0)",
        &["a=255.255.255.255", "a=0.0.0.0", "a=256.0.0.1"],
        &["a=255.255.255.255", "a=0.0.0.0"],
    );
    gives("filter a:len_range(0, 0)", &["a=x", "b=1"], &["b=1"]);
    gives("filter a:len_range(2, inf)", &["a=x", "a=äö", "a=xyz"], &["a=äö", "a=xyz"]);
    gives("filter a:string_range('', b)", &["a=a", "a=b", "a=Z", "b=1"], &["a=a", "a=Z", "b=1"]);
    gives("filter a:>abc", &["a=abc", "a=abd", "a=ab", "a=5"], &["a=abd"]);
}

#[test]
fn words_and_their_borders() {
    let texts = ["a=error", r#"a="an error.""#, "a=errors", "a=Error", "a=error_1", "a=error-1", "a=äerror", "b=error"];
    gives("filter a:error", &texts, &["a=error", r#"a="an error.""#, "a=error-1"]);
    gives("filter a:error*", &texts, &["a=error", r#"a="an error.""#, "a=errors", "a=error_1", "a=error-1"]);
    gives("filter a:=error", &texts, &["a=error"]);
    gives("filter a:=error*", &texts, &["a=error", "a=errors", "a=error_1", "a=error-1"]);
    gives("filter a:i(ERROR)", &texts, &["a=error", r#"a="an error.""#, "a=Error", "a=error-1"]);
    gives("filter a:i(ERR*)", &["a=Error", "a=berr", "a=ERR"], &["a=Error", "a=ERR"]);
    gives("filter a:i(ÄÖ)", &["a=äö", "a=ÄÖ", "a=äöü"], &["a=äö", "a=ÄÖ"]);
    gives("filter a:~'^err'", &texts, &["a=error", "a=errors", "a=error_1", "a=error-1"]);
    gives("filter a:!~'err'", &["a=err", "a=x", "b=1"], &["a=x", "b=1"]);
    gives("filter a:~''", &["a=x", "b=1"], &["a=x", "b=1"]);
    gives("filter a:~'^$'", &["a=x", "b=1"], &["b=1"]);
    gives("filter a:~'(?i)ä.ö'", &["a=Ä-Ö", "a=äö"], &["a=Ä-Ö"]);
    gives(
        r#"filter a:"x y""#,
        &[r#"a="x y""#, r#"a="x  y""#, r#"a="xx y""#, r#"a="x y!""#],
        &[r#"a="x y""#, r#"a="x y!""#],
    );
    gives(r#"filter a:"x""#, &["a=x.y", "a=x_y", "a=xy"], &["a=x.y"]);
    gives("filter a:!error", &["a=error", "a=x", "b=1"], &["a=x", "b=1"]);
    gives(r#"filter a:!"""#, &["a=x", "b=1"], &["a=x"]);
    gives("filter a:in()", &["a=x", "b=1"], &[]);
    gives("filter a:in('', x)", &["a=x", "a=y", "b=1"], &["a=x", "b=1"]);
    gives("filter a:contains_all()", &["a=x", "b=1"], &["a=x", "b=1"]);
    gives("filter a:contains_any()", &["a=x", "b=1"], &[]);
    gives("filter a:seq(x, x)", &["a=x", r#"a="x x""#], &[r#"a="x x""#]);
    gives(
        "filter a:equals_common_case('Warn')",
        &["a=warn", "a=WARN", "a=Warn", "a=wARN"],
        &["a=warn", "a=WARN", "a=Warn"],
    );
    gives("filter *:x", &["a=x", "b=x", "c=y"], &["a=x", "b=x"]);
}

#[test]
fn filters_are_put_together() {
    let rows = ["a=1 b=1", "a=1 b=2", "a=2 b=1", "a=2 b=2"];
    gives("filter a:1 b:1 or b:2", &rows, &["a=1 b=1", "a=1 b=2", "a=2 b=2"]);
    gives("filter a:1 (b:1 or b:2)", &rows, &["a=1 b=1", "a=1 b=2"]);
    gives("filter !a:1 b:1", &rows, &["a=2 b=1"]);
    gives("filter !(a:1 b:1)", &rows, &["a=1 b=2", "a=2 b=1", "a=2 b=2"]);
    gives("filter -a:1 -b:1", &rows, &["a=2 b=2"]);
    gives("filter not a:1 or not b:1", &rows, &["a=1 b=2", "a=2 b=1", "a=2 b=2"]);
    gives("filter !!a:1", &rows, &["a=1 b=1", "a=1 b=2"]);
    gives("filter (a:1 or a:2) (b:1 or b:3)", &rows, &["a=1 b=1", "a=2 b=1"]);
    gives("filter a:(1 or 2) b:(!1)", &rows, &["a=1 b=2", "a=2 b=2"]);
    gives("filter a:>1 a:<3 b:!=2", &rows, &["a=2 b=1"]);
    gives("filter * !*", &rows, &[]);
}

/// A row without `_stream` is of no stream: it has no labels that could be missing.
#[test]
fn selectors_ask_rows_for_their_stream() {
    let rows = ["a=1 _stream='{a=\"x\"}'", "a=2 _stream='{}'", "a=3", "a=4 _stream=x"];
    for (selector, found) in [
        ("{a=x}", &["a=1"][..]),
        ("{a!=x}", &["a=2"]),
        ("{b=\"\"}", &["a=1", "a=2"]),
        ("{a!~y or a=~\".*\"}", &["a=1", "a=2"]),
        ("!{a!=x}", &["a=1", "a=3", "a=4"]),
        ("{}", &["a=1", "a=2", "a=3", "a=4"]),
    ] {
        gives(&format!("filter {selector} | fields a"), &rows, found);
    }
    gives("fields a | filter {a!=x}", &rows, &[]);
}

#[test]
fn orders_of_what_differs() {
    gives("sort by (a)", &["a=a10", "a=a9", "a=a09", "a=a"], &["a=a", "a=a9", "a=a09", "a=a10"]);
    gives("sort by (a)", &["a=-1", "a=-10", "a=0", "a=-1.5"], &["a=-10", "a=-1.5", "a=-1", "a=0"]);
    gives("sort by (a desc)", &["a=1", "b=1", "a=2"], &["a=2", "a=1", "b=1"]);
    gives("sort by (a) desc", &["a=1", "a=3", "a=2"], &["a=3", "a=2", "a=1"]);
    gives("sort by (a desc) desc", &["a=1", "a=3", "a=2"], &["a=1", "a=2", "a=3"]);
    gives("sort by (a, b)", &["a=1 b=2", "b=1", "a=1", "b=0"], &["b=0", "b=1", "a=1", "a=1 b=2"]);
    gives("sort by (a) offset 1 limit 1 rank as r", &["a=3", "a=1", "a=2"], &["a=2 r=2"]);
    gives("sort by (a) rank as a", &["a=9", "a=8"], &["a=1", "a=2"]);
    // No rows is no limit.
    gives("sort by (a) limit 0", &["a=2", "a=1"], &["a=1", "a=2"]);
    gives("sort by (a) limit 2", &["a=1m", "a=59s", "a=1h"], &["a=59s", "a=1m"]);
    gives(
        "sort by (a) limit 3",
        &["a=10", "a=9.5", "a=9223372036854775807", "a=9223372036854775806"],
        &["a=9.5", "a=10", "a=9223372036854775806"],
    );
    gives(
        "sort by (n desc) offset 1 limit 1 partition by (g)",
        &["g=x n=1", "g=y n=5", "g=x n=3", "g=x n=2", "g=y n=4"],
        &["g=y n=4", "g=x n=2"],
    );
    gives(
        "sort by (a)",
        &["a=2024-01-02T00:00:00Z", "a=2024-01-01T23:59:59.9Z", "a=x"],
        &["a=2024-01-01T23:59:59.9Z", "a=2024-01-02T00:00:00Z", "a=x"],
    );
    gives("first 1 by (a) partition by (g) | sort by (g)", &["g=x a=2", "g=x a=1", "g=y a=7"], &["g=x a=1", "g=y a=7"]);
    gives("last 1 by (a)", &["a=2", "a=10", "b=1"], &["a=10"]);
}

#[test]
fn groups_of_what_is_missing() {
    gives("stats by (g) count() n | sort by (n)", &["g=x", "a=1", "a=2"], &["g=x n=1", "n=2"]);
    gives(
        "stats by (g, h) count() n | sort by (g, h)",
        &["g=x", "h=x", "g=x h=x"],
        &["h=x n=1", "g=x n=1", "g=x h=x n=1"],
    );
    gives(
        "stats by (a:10) count() n | sort by (a)",
        &["a=-1", "a=-10", "a=9.99", "a=x", "b=1"],
        &["n=1", "a=-10 n=2", "a=0 n=1", "a=x n=1"],
    );
    gives(
        "stats sum(a) s, avg(a) m",
        &["a=9223372036854775807", "a=1", "a=-1"],
        &["s=9223372036854776000 m=3074457345618258400"],
    );
    gives("stats min(a) l, max(a) g", &["a=1m", "a=59s"], &["l=59s g=1m"]);
    gives("stats min(a) l, max(a) g", &["a=1KB", "a=1KiB", "a=999"], &["l=999 g=1KiB"]);
    gives("stats min(a) l, max(a) g", &["a=-1", "a=-10"], &["l=-10 g=-1"]);
    // The least of all is the empty text of a row without the field.
    gives("stats min(a) l, max(a) g", &["a=-1", "b=1"], &["g=-1"]);
    gives("stats count_uniq(a) n", &["a=1", "a=1.0", "a=01", "b=1"], &["n=3"]);
    gives("stats uniq_values(a) v", &["b=1"], &["v=[]"]);
    gives("stats uniq_values(a) limit 2 v", &["a=x", "a=x"], &[r#"v="[\"x\"]""#]);
    gives("stats values(a) v", &["a=1", "b=1", "a=ä"], &[r#"v="[\"1\",\"\",\"ä\"]""#]);
    gives("stats quantile(0.5, a) q", &["a=1", "a=2", "a=3", "a=4"], &["q=3"]);
    gives("stats quantile(0.5, a) q", &["b=1"], &[""]);
    gives("stats sum_len(a) s", &["a=ä", "b=1", "a=xy"], &["s=4"]);
    gives(
        "stats by (g) count(a) if (b:1) n | sort by (g)",
        &["g=x a=1 b=1", "g=x a=2", "g=y a=1"],
        &["g=x n=1", "g=y n=0"],
    );
    gives("stats row_max(a, b) r", &["a=1 b=x", "a=3 b=y", "a=2 b=z"], &[r#"r="{\"b\":\"y\"}""#]);
    gives("stats any(a) x", &["b=1", "a=v"], &["x=v"]);
    gives("stats stddev(a) s", &["a=5"], &["s=0"]);
    gives("stats by (g) count() n | filter n:>1", &["g=x", "g=y", "g=x"], &["g=x n=2"]);
    gives("stats count() n | math n + 1 as m", &[], &["n=0 m=1"]);
    gives("stats by (g) count() n", &[], &[]);
}

#[test]
fn rows_meet_by_their_keys() {
    gives("join by (a) rows({c:x})", &["b=1", "a=1"], &["b=1 c=x", "a=1"]);
    gives("join by (a) rows({a:1, c:new})", &["a=1 c=old", "a=1"], &["a=1 c=old", "a=1 c=new"]);
    gives("join by (a) rows({a:1, c:new}) prefix 'r.'", &["a=1 c=old"], &["a=1 c=old r.c=new"]);
    gives("join by (a) rows({a:'1.0', c:x})", &["a=1"], &["a=1"]);
    gives("join by (a) rows({a:'ä ö', c:x})", &[r#"a="ä ö""#], &[r#"a="ä ö" c=x"#]);
    gives("join by (a) rows() inner", &["a=1"], &[]);
    gives("join by (a) rows()", &["a=1"], &["a=1"]);
    gives("join by (a, b) rows({a:x, b:yz}, {a:xy, b:z}) inner", &["a=xy b=z c=1"], &["a=xy b=z c=1"]);
    gives("union rows() | sort by (a)", &["a=1"], &["a=1"]);
    gives(
        "uniq by (a, b) with hits | sort by (a, b)",
        &["a=x", "b=x", "a=x", "c=1"],
        &["hits=1", "b=x hits=1", "a=x hits=2"],
    );
    gives("uniq by (a) filter x | sort by (a)", &["a=xy", "a=yx", "a=y", "b=x"], &["a=xy", "a=yx"]);
    gives("top 1 by (a, b)", &["a=x b=1", "a=x b=2", "a=x b=1"], &["a=x b=1 hits=2"]);
    gives("deduplicate by (a)", &["b=1", "b=2", "a=1", "a=1"], &["b=1", "a=1"]);
    gives(
        "facets",
        &["a=x b=1", "a=y b=1", "a=x b=1"],
        &["field_name=a field_value=x hits=2", "field_name=a field_value=y hits=1"],
    );
    gives(
        "facets keep_const_fields | sort by (field_name, field_value)",
        &["b=1", "b=1"],
        &["field_name=b field_value=1 hits=2"],
    );
    gives("facets max_value_len 2 | sort by (field_value)", &["a=xyz", "a=xy", "a=x"], &[]);
    gives("facets 1", &["a=x", "a=x", "a=y"], &["field_name=a field_value=x hits=2"]);
    gives("field_values a limit 5 | sort by (a)", &["a=x", "b=1", "a=x"], &["hits=1", "a=x hits=2"]);
    gives("coalesce(a, b, c) as b", &["b=2 c=3", "a=1 b=2", "c=3"], &["b=2 c=3", "a=1 b=1", "b=3 c=3"]);
    gives("rename a as b, b as a", &["a=1 b=2"], &["a=1"]);
    gives("copy a as b, a as c | delete a", &["a=1 b=2"], &["b=1 c=1"]);
    gives(
        "time_add -1ns at t",
        &["t=2024-03-01T00:00:00Z", "t=x", "u=1"],
        &["t=2024-02-29T23:59:59.999999999Z", "t=x", "u=1"],
    );
}
