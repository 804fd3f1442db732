//! What is made of the values of a row.

use crate::pipes::testing::gives;

#[test]
fn expressions_are_worked_out() {
    gives("math a + b * 2 as c", &["a=1 b=3"], &["a=1 b=3 c=7"]);
    gives("math (a + b) * 2 as c", &["a=1 b=3"], &["a=1 b=3 c=8"]);
    gives("math a / 0 as c", &["a=1"], &["a=1 c=+Inf"]);
    gives("math a % 3 as c, -a as d, a ^ 2 as e", &["a=7"], &["a=7 c=1 d=-7 e=49"]);
    gives("math x + 1 as c", &["a=1"], &["a=1 c=NaN"]);
    gives("math x default 5 as c", &["a=1"], &["a=1 c=5"]);
    gives(
        "math round(a) as c, round(a, 0.5) as d, floor(a) as e, ceil(a) as f, abs(0 - a) as g",
        &["a=2.7"],
        &["a=2.7 c=3 d=2.5 e=2 f=3 g=2.7"],
    );
    gives("math max(a, b) as c, min(a, b, 0) as d", &["a=1 b=3"], &["a=1 b=3 c=3 d=0"]);
    gives("math ln(a) as c, exp(0) as d", &["a=1"], &["a=1 c=0 d=1"]);
    gives("math a & 6 as c, a or 8 as d, a xor 1 as e", &["a=5"], &["a=5 c=4 d=13 e=4"]);
    gives("math a + 1m as c", &["a=1s"], &["a=1s c=61000000000"]);
    gives("math a * 2 as c", &["a=1KiB"], &["a=1KiB c=2048"]);
    gives("math a + 0x10 as c", &["a=1e1"], &["a=1e1 c=26"]);
    gives("math 2 ^ 3 ^ 2 as c", &["a=1"], &["a=1 c=64"]);
    gives("math a - b - 1 as c", &["a=5 b=2"], &["a=5 b=2 c=2"]);
    gives("len(a) as n", &["a=größe", "b=1"], &["a=größe n=7", "b=1 n=0"]);
    gives("format '<a>-<b>' as c", &["a=1 b=x", "a=2"], &["a=1 b=x c=1-x", "a=2 c=2-"]);
    gives("format '<uc:a> <lc:a> <q:b>' as c", &["a=Ab b=x"], &[r#"a=Ab b=x c="AB ab \"x\"""#]);
    gives(
        "format '<urlencode:a> <urldecode:b>' as c",
        &[r#"a="x y/z" b=%41+b"#],
        &[r#"a="x y/z" b=%41+b c="x+y%2Fz A b""#],
    );
    gives("format '<hexencode:a> <hexdecode:b>' as c", &["a=AZ b=4142"], &[r#"a=AZ b=4142 c="415A AB""#]);
    gives("format '<base64encode:a> <base64decode:b>' as c", &["a=foo b=Zm9v"], &[r#"a=foo b=Zm9v c="Zm9v foo""#]);
    gives(
        "format '<duration:a> <duration_seconds:b>' as c",
        &["a=61000000000 b=1m30s"],
        &[r#"a=61000000000 b=1m30s c="1m1s 90""#],
    );
    gives("format '<time:a>' as c", &["a=1704067200000000000"], &["a=1704067200000000000 c=2024-01-01T00:00:00Z"]);
    gives("format '<ipv4:a>' as c", &["a=167772161"], &["a=167772161 c=10.0.0.1"]);
    gives("format if (a:1) 'x' as c", &["a=1 c=old", "a=2 c=old"], &["a=1 c=x", "a=2 c=old"]);
    gives("format '<a>' as c keep_original_fields", &["a=1 c=old", "a=2"], &["a=1 c=old", "a=2 c=2"]);
    gives("format '<a>' as c skip_empty_results", &["c=old", "a=2 c=old"], &["c=old", "a=2 c=2"]);
}

#[test]
fn texts_are_taken_apart() {
    gives("extract '<x>=<y>' from a", &[r#"a="k=v w""#], &[r#"a="k=v w" x=k y="v w""#]);
    gives(
        "extract 'ip=<ip> <_>code=<code>' from a",
        &[r#"a="ip=1.2.3.4 z code=200""#],
        &[r#"a="ip=1.2.3.4 z code=200" ip=1.2.3.4 code=200"#],
    );
    gives(r#"extract '"x":<x>,' from a"#, &[r#"a="{\"x\":\"a\\\"b\",}""#], &[r#"a="{\"x\":\"a\\\"b\",}" x="a\"b""#]);
    gives("extract '<x>-<y>' from a", &["a=nothing x=old"], &["a=nothing"]);
    gives("extract '<x>-<y>' from a keep_original_fields", &["a=1-2 x=old"], &["a=1-2 x=old y=2"]);
    gives("extract_regexp '(?P<n>[0-9]+)x' from a", &["a=ab12x", "a=b"], &["a=ab12x n=12", "a=b"]);
    gives("replace ('a', 'b') at c", &["c=banana"], &["c=bbnbnb"]);
    gives("replace ('a', 'b') at c limit 1", &["c=banana"], &["c=bbnana"]);
    gives("replace ('', 'b') at c", &["c=x"], &["c=x"]);
    gives("replace_regexp ('([0-9])x', '<$1>') at c", &[r#"c="1x 2x""#], &[r#"c="<1> <2>""#]);
    gives("replace_regexp ('a+', '') at c limit 1", &["c=aabaa"], &["c=baa"]);
    gives("split ',' from a as b", &["a=x,y"], &[r#"a=x,y b="[\"x\",\"y\"]""#]);
    gives(
        "unpack_json from a | delete a",
        &[r#"a="{\"x\":1,\"y\":{\"z\":\"q\"},\"n\":null,\"l\":[1,2]}""#],
        &["x=1 y.z=q l=[1,2]"],
    );
    gives("unpack_logfmt from a", &[r#"a="x=1 y=\"q r\" z""#], &[r#"a="x=1 y=\"q r\" z" x=1 y="q r""#]);
    gives("unpack_logfmt from a result_prefix p_", &[r#"a="x=1""#], &[r#"a="x=1" p_x=1"#]);
    gives("unpack_logfmt from a fields (x)", &[r#"a="x=1 y=2""#], &[r#"a="x=1 y=2" x=1"#]);
    gives("unpack_words from a as w", &[r#"a="x y-x""#], &[r#"a="x y-x" w="[\"x\",\"y\",\"x\"]""#]);
    gives("unpack_words from a as w drop_duplicates", &[r#"a="x y-x""#], &[r#"a="x y-x" w="[\"x\",\"y\"]""#]);
    gives(
        "pack_json fields (a, b) as c | fields c",
        &[r#"a=1 b="x \"y\"""#],
        &[r#"c="{\"a\":\"1\",\"b\":\"x \\\"y\\\"\"}""#],
    );
    gives("pack_logfmt fields (a, b) as c | fields c", &[r#"a=1 b="x y""#], &[r#"c="a=1 b=\"x y\"""#]);
    gives("json_array_len(a) as n", &[r#"a="[1,[2],3]""#, "a=x"], &[r#"a="[1,[2],3]" n=3"#, "a=x n=0"]);
    gives("json_array_concat ',' from a as b", &[r#"a="[1,\"x\"]""#], &[r#"a="[1,\"x\"]" b=1,x"#]);
    gives("collapse_nums at a", &[r#"a="took 12ms from 10.0.0.1""#], &[r#"a="took <N>ms from <N>.<N>.<N>.<N>""#]);
    gives(
        "collapse_nums at a prettify",
        &[r#"a="from 10.0.0.1 at 2024-01-02T03:04:05Z""#],
        &[r#"a="from <IP4> at <DATETIME>""#],
    );
    gives("time_add 1h at t", &["t=2024-01-01T00:00:00Z"], &["t=2024-01-01T01:00:00Z"]);
}
