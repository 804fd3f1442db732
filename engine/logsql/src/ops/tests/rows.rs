//! Steps that select, order and join rows, and choose their fields.

use crate::pipes::testing::gives;

#[test]
fn rows_are_put_in_order() {
    gives("sort by (a)", &["a=10", "a=9", "a=b", "b=1"], &["b=1", "a=9", "a=10", "a=b"]);
    gives("sort by (a desc)", &["a=10", "a=9", "a=b"], &["a=b", "a=10", "a=9"]);
    gives("sort by (a, b desc)", &["a=1 b=1", "a=0 b=1", "a=1 b=2"], &["a=0 b=1", "a=1 b=2", "a=1 b=1"]);
    gives("sort by (a) limit 1", &["a=3", "a=1", "a=2"], &["a=1"]);
    gives("sort by (a) offset 1 limit 1", &["a=3", "a=1", "a=2"], &["a=2"]);
    gives("sort by (a) offset 5", &["a=3", "a=1"], &[]);
    gives("sort by (a) rank as r", &["a=3", "a=1"], &["r=1 a=1", "r=2 a=3"]);
    gives(
        "sort by (b) limit 1 partition by (a) | sort by (a)",
        &["a=x b=2", "a=x b=1", "a=y b=5"],
        &["a=x b=1", "a=y b=5"],
    );
    gives("sort by (a)", &["a=1.5", "a=1.25", "a=-3"], &["a=-3", "a=1.25", "a=1.5"]);
    gives("sort by (a)", &["a=1m", "a=59s", "a=2m"], &["a=1m", "a=2m", "a=59s"]);
    gives("sort by (a)", &["a=1KiB", "a=1KB", "a=2B"], &["a=1KB", "a=1KiB", "a=2B"]);
    gives("sort by (a)", &["a=10.0.0.10", "a=10.0.0.9"], &["a=10.0.0.9", "a=10.0.0.10"]);
    gives("first 2 by (a)", &["a=3", "a=1", "a=2"], &["a=1", "a=2"]);
    gives("last 2 by (a)", &["a=3", "a=1", "a=2"], &["a=3", "a=2"]);
    gives("top 1 by (a)", &["a=x", "a=y", "a=x"], &["a=x hits=2"]);
    gives("top 2 by (a) hits as n rank", &["a=x", "a=y", "a=x"], &["a=x n=2 rank=1", "a=y n=1 rank=2"]);
    gives("uniq by (a) | sort by (a)", &["a=x b=1", "a=y", "a=x b=2"], &["a=x", "a=y"]);
    gives("uniq by (a) with hits | sort by (a)", &["a=x", "a=y", "a=x"], &["a=x hits=2", "a=y hits=1"]);
    gives("uniq by (a, b) | sort by (a, b)", &["a=x b=1", "a=x b=1", "a=x b=2"], &["a=x b=1", "a=x b=2"]);
    gives("field_values a | sort by (a)", &["a=x", "a=y", "a=x"], &["a=x hits=2", "a=y hits=1"]);
    gives("field_names | sort by (name)", &["a=x b=1", "a=y"], &["name=a hits=2", "name=b hits=1"]);
}

#[test]
fn fields_are_chosen() {
    gives("fields a", &["a=1 b=2", "b=3"], &["a=1", ""]);
    gives("fields a*", &["a1=1 a2=2 b=3"], &["a1=1 a2=2"]);
    gives("delete a, b*", &["a=1 b1=2 c=3"], &["c=3"]);
    gives("rename a as b", &["a=1 b=2", "b=3"], &["b=1", ""]);
    gives("rename a* as b*", &["a1=1 a2=2 c=3"], &["b1=1 b2=2 c=3"]);
    gives("rename a as b, b as c", &["a=1 b=2"], &["c=1"]);
    gives("copy a as b", &["a=1 b=2"], &["a=1 b=1"]);
    gives("copy a as b, b as c", &["a=1"], &["a=1 b=1 c=1"]);
    gives("drop_empty_fields", &["a=1 b=", "c=2"], &["a=1", "c=2"]);
    gives("coalesce(a, b) as c", &["a=1 b=2", "b=3", "d=4"], &["a=1 b=2 c=1", "b=3 c=3", "d=4"]);
    gives("coalesce(a, b) default 'none' as c", &["d=4"], &["d=4 c=none"]);
    gives("limit 1", &["a=1", "a=2"], &["a=1"]);
    gives("limit 0", &["a=1"], &[]);
    gives("offset 1", &["a=1", "a=2"], &["a=2"]);
    gives("offset 5", &["a=1"], &[]);
    gives("offset 1 | limit 1", &["a=1", "a=2", "a=3"], &["a=2"]);
    gives("filter a:1", &["a=1", "a=2", r#"a="1 x""#], &["a=1", r#"a="1 x""#]);
    gives("filter a:=1", &["a=1", r#"a="1 x""#], &["a=1"]);
    gives("filter !a:1", &["a=1", "a=2", "b=1"], &["a=2", "b=1"]);
    gives("filter a:>5", &["a=5", "a=6", "a=10", "a=x"], &["a=6", "a=10"]);
    gives("filter a:*", &["a=1", "b=1"], &["a=1"]);
    gives(r#"filter a:"""#, &["a=1", "b=1"], &["b=1"]);
    gives("filter a:in(1, 2)", &["a=1", "a=3", "a=2"], &["a=1", "a=2"]);
    gives("filter a:eq_field(b)", &["a=1 b=1", "a=1 b=2", "c=1"], &["a=1 b=1", "c=1"]);
    gives("filter a:lt_field(b)", &["a=1 b=1", "a=1 b=2", "a=10 b=9"], &["a=1 b=2"]);
    gives("filter a:le_field(b)", &["a=1 b=1", "a=3 b=2"], &["a=1 b=1"]);
    gives("filter a*:x", &["a1=y a2=x", "a1=y b=x"], &["a1=y a2=x"]);
    gives("filter a:range(1, 3]", &["a=1", "a=2", "a=3", "a=4"], &["a=2", "a=3"]);
    gives("filter a:len_range(2, 3)", &["a=x", "a=xy", "a=größe", "a=äöü"], &["a=xy", "a=äöü"]);
    gives("filter a:ipv4_range(10.0.0.0/30)", &["a=10.0.0.3", "a=10.0.0.4", "a=x"], &["a=10.0.0.3"]);
    gives("filter a:string_range(b, d)", &["a=a", "a=b", "a=cz", "a=d"], &["a=b", "a=cz"]);
    gives(r#"filter a:~"^x.z$""#, &["a=xyz", "a=xyyz", r#"a="xyz ""#], &["a=xyz"]);
    gives(r#"filter a:i("FOO")"#, &[r#"a="a foo""#, "a=food"], &[r#"a="a foo""#]);
    gives(r#"filter a:seq("x", "y")"#, &[r#"a="x y""#, r#"a="y x""#], &[r#"a="x y""#]);
    gives(r#"filter a:contains_all("x", "y")"#, &[r#"a="y x""#, "a=x"], &[r#"a="y x""#]);
    gives(r#"filter a:contains_any("x", "y")"#, &[r#"a="y z""#, "a=z"], &[r#"a="y z""#]);
    gives("filter a:*oo*", &["a=foobar", "a=fobar"], &["a=foobar"]);
    gives("filter a:=fo*", &["a=foo", r#"a="a foo""#], &["a=foo"]);
    gives("filter a:1 or b:2", &["a=1", "b=2", "c=3"], &["a=1", "b=2"]);
    gives("filter (a:1 or b:2) c:3", &["a=1", "b=2 c=3"], &["b=2 c=3"]);
    gives("filter a:1 or b:2 c:3", &["a=1", "b=2", "b=2 c=3"], &["a=1", "b=2 c=3"]);
    gives(
        r#"filter a:value_type(uint8) or a:json_array_contains_any("q")"#,
        &[r#"a="[\"q\"]""#, r#"a="[\"r\"]""#],
        &[r#"a="[\"q\"]""#],
    );
    gives("deduplicate by (a)", &["a=1 b=1", "a=2", "a=1 b=2"], &["a=1 b=1", "a=2"]);
}

#[test]
fn rows_are_joined() {
    gives("join by (a) rows({a:1, c:x}, {a:2, c:y})", &["a=1 b=1", "a=3 b=2"], &["a=1 b=1 c=x", "a=3 b=2"]);
    gives("join by (a) rows({a:1, c:x}) inner", &["a=1 b=1", "a=3 b=2"], &["a=1 b=1 c=x"]);
    gives("join by (a) rows({a:1, c:x}) prefix p.", &["a=1 b=1"], &["a=1 b=1 p.c=x"]);
    gives("join by (a) rows({a:1, c:x}, {a:1, c:y}) | sort by (c)", &["a=1"], &["a=1 c=x", "a=1 c=y"]);
    gives("join by (a, b) rows({a:1, b:1, c:x})", &["a=1 b=1", "a=1 b=2"], &["a=1 b=1 c=x", "a=1 b=2"]);
    gives("union rows({a:2}) | sort by (a)", &["a=1"], &["a=1", "a=2"]);
    gives("union (* | limit 0 | union rows({b:2})) | sort by (a)", &["a=1"], &["b=2", "a=1"]);
    gives("running_stats count() n, sum(a) s", &["a=1", "a=2", "a=4"], &["a=1 n=1 s=1", "a=2 n=2 s=3", "a=4 n=3 s=7"]);
    gives(
        "running_stats by (b) sum(a) s",
        &["a=1 b=x", "a=2 b=y", "a=4 b=x"],
        &["a=1 b=x s=1", "a=2 b=y s=2", "a=4 b=x s=5"],
    );
    gives("total_stats sum(a) s, max(a) g", &["a=1", "a=2"], &["a=1 s=3 g=2", "a=2 s=3 g=2"]);
    gives("total_stats by (b) count() n", &["b=x", "b=y", "b=x"], &["b=x n=2", "b=y n=1", "b=x n=2"]);
    gives("unroll by (a)", &[r#"a="[1,\"x\"]" b=1"#], &["a=1 b=1", "a=x b=1"]);
    gives("unroll by (a, b)", &[r#"a="[1,2]" b="[3]""#], &["a=1 b=3", "a=2"]);
    gives(
        "facets",
        &["a=x", "a=x", "a=y"],
        &["field_name=a field_value=x hits=2", "field_name=a field_value=y hits=1"],
    );
}
