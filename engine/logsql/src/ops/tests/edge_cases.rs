//! Steps over what is easily taken wrong: missing and empty values, borders of ranges, numbers at the ends of what fits,
//! texts of several bytes per character, names that meet.

use crate::pipes::testing::gives;

#[test]
fn rows_without_a_field_count_as_empty_in_windows() {
    gives("running_stats first(a) f, last(a) l", &["a=1", "b=x", "a=3"], &["a=1 f=1 l=1", "b=x f=1", "a=3 f=1 l=3"]);
    gives("running_stats first(a) f", &["b=x", "a=3"], &["b=x", "a=3"]);
    gives("running_stats first(a) offset 1 f", &["a=1", "a=2", "a=3"], &["a=1", "a=2 f=2", "a=3 f=2"]);
    gives(
        "running_stats last(a) offset 2 l",
        &["a=1", "a=2", "a=3", "b=y", "a=5"],
        &["a=1", "a=2", "a=3 l=1", "b=y l=2", "a=5 l=3"],
    );
    gives("running_stats last(a) offset 1 l", &["a=1", "b=y", "a=3"], &["a=1", "b=y l=1", "a=3"]);
    gives("total_stats last(a) offset 5 l, first(a) offset 5 f", &["a=1", "a=2"], &["a=1", "a=2"]);
    gives("running_stats max(a) g", &["a=10", "a=9", "a=b", "c=1"], &["a=10 g=10", "a=9 g=10", "a=b g=b", "c=1 g=b"]);
    gives("running_stats min(a) l", &["a=10", "a=9", "a=b"], &["a=10 l=10", "a=9 l=9", "a=b l=9"]);
    gives(
        "running_stats sum(a) s",
        &["a=x", "a=1", "b=1", "a=-2.5"],
        &["a=x s=NaN", "a=1 s=1", "b=1 s=1", "a=-2.5 s=-1.5"],
    );
    gives("total_stats by (g) count() n", &["g=x", "a=1", "g=y", "b=2"], &["g=x n=1", "a=1 n=2", "g=y n=1", "b=2 n=2"]);
    gives("total_stats sum(a*) s", &["a1=1 a2=2", "b=5 a1=4"], &["a1=1 a2=2 s=7", "b=5 a1=4 s=7"]);
    gives(
        "running_stats count(a*) n, count(b) m",
        &["a1=1", "b=1", "a2=x"],
        &["a1=1 n=1 m=0", "b=1 n=1 m=1", "a2=x n=2 m=1"],
    );
    // A result may take the place of a field that it is made of.
    gives("running_stats sum(a) a", &["a=1", "a=2", "a=3"], &["a=1", "a=3", "a=6"]);
    gives("running_stats by (g) count() g", &["g=x", "g=y", "g=x"], &["g=1", "g=1", "g=2"]);
}

#[test]
fn expressions_at_their_ends() {
    gives(
        "math a / b as c",
        &["a=1 b=3", "a=0 b=0", "a=-1 b=0"],
        &["a=1 b=3 c=0.3333333333333333", "a=0 b=0 c=NaN", "a=-1 b=0 c=-Inf"],
    );
    gives(
        "math a % b as c",
        &["a=-7 b=3", "a=7 b=0", "a=7.5 b=2", "a=6 b=-3"],
        &["a=-7 b=3 c=-1", "a=7 b=0 c=NaN", "a=7.5 b=2 c=1.5", "a=6 b=-3 c=0"],
    );
    gives(
        "math max(a, b) as c, min(a, b) as d",
        &["b=3", "a=x b=2", "e=1"],
        &["b=3 c=3 d=3", "a=x b=2 c=2 d=2", "e=1 c=NaN d=NaN"],
    );
    gives("math a default b default 7 as c", &["a=1 b=2", "b=2", "d=x"], &["a=1 b=2 c=1", "b=2 c=2", "d=x c=7"]);
    gives("math (a / 0) default 5 as c", &["a=0", "a=1"], &["a=0 c=5", "a=1 c=+Inf"]);
    gives(
        "math round(a, 10) as c",
        &["a=14", "a=15", "a=-15", "a=-14", "a=0"],
        &["a=14 c=10", "a=15 c=20", "a=-15 c=-20", "a=-14 c=-10", "a=0 c=0"],
    );
    gives(
        "math round(a) as c",
        &["a=2.5", "a=-2.5", "a=0.49", "a=x"],
        &["a=2.5 c=3", "a=-2.5 c=-3", "a=0.49 c=0", "a=x c=NaN"],
    );
    gives("math floor(a) as c, ceil(a) as d", &["a=-1.5", "a=7"], &["a=-1.5 c=-2 d=-1", "a=7 c=7 d=7"]);
    gives(
        "math a & b as c",
        &["a=7.9 b=4", "a=x b=1", "a=18446744073709551615 b=255"],
        &["a=7.9 b=4 c=4", "a=x b=1 c=NaN", "a=18446744073709551615 b=255 c=0"],
    );
    gives("math ln(a) as c, exp(a) as d", &["a=0"], &["a=0 c=-Inf d=1"]);
    gives("math a - 1 as a", &["a=5", "a=x"], &["a=4", "a=NaN"]);
    gives("math a * 2 as b, b + 1 as c", &["a=2 b=100"], &["a=2 b=4 c=5"]);
    gives(
        "math a + 1 as c",
        &["a=9007199254740992", "a=1KB", "a=1ms", "a=-0.5"],
        &["a=9007199254740992 c=9007199254740992", "a=1KB c=1001", "a=1ms c=1000001", "a=-0.5 c=0.5"],
    );
    gives(
        "math a as c",
        &["a=2024-01-01T00:00:00Z", "a=1.2.3.4", "a=inf", "a=0b11", "a=''"],
        &[
            "a=2024-01-01T00:00:00Z c=1704067200000000000",
            "a=1.2.3.4 c=16909060",
            "a=inf c=+Inf",
            "a=0b11 c=3",
            "a='' c=NaN",
        ],
    );
}

#[test]
fn texts_are_cut_where_the_pattern_says() {
    gives("extract '<a>,<b>' from x", &["x=1,2,3", "x=1", "y=1"], &["x=1,2,3 a=1 b=2,3", "x=1", "y=1"]);
    gives("extract '<a>,<b>,' from x", &["x=1,2,3", "x=1,2"], &["x=1,2,3 a=1 b=2", "x=1,2 a=1"]);
    gives("extract '<_>,<b>' from x", &["x=1,2,3"], &["x=1,2,3 b=2,3"]);
    gives("extract 'é=<v>!' from x", &["x=aé=ü!z", "x=é=ü"], &["x=aé=ü!z v=ü", "x=é=ü"]);
    gives("extract '&lt;<v>&gt;' from x", &[r#"x="<ab>""#], &[r#"x="<ab>" v=ab"#]);
    gives("extract '<a> <b>' from x", &[r#"x="\"q r\" z""#], &[r#"x="\"q r\" z" a="q r" b=z"#]);
    gives("extract '<plain:a> <b>' from x", &[r#"x="\"q r\" z""#], &[r#"x="\"q r\" z" a="\"q" b="r\" z""#]);
    gives("extract if (y:1) '<a>-<b>' from x", &["x=1-2 y=1", "x=3-4 y=2"], &["x=1-2 y=1 a=1 b=2", "x=3-4 y=2"]);
    gives("extract '<x>-<y>' from x", &["x=1-2"], &["x=1 y=2"]);
    gives(
        "extract '<a>-<b>' from x skip_empty_results",
        &["x=- a=old b=old", "x=1- a=old b=old"],
        &["x=- a=old b=old", "x=1- a=1 b=old"],
    );
    gives(
        "extract_regexp '(?P<a>[a-z]+)(?P<b>[0-9]*)' from x",
        &["x=ab12", "x=ab", "x=12"],
        &["x=ab12 a=ab b=12", "x=ab a=ab", "x=12"],
    );
    gives("extract_regexp '(?i)(?P<a>É+)' from x", &["x=aéÉb"], &["x=aéÉb a=éÉ"]);
    gives("split '' from a as b", &["a=äb"], &[r#"a=äb b="[\"ä\",\"b\"]""#]);
    gives("split ',' from a as b", &["a=,x,", "a=x"], &[r#"a=,x, b="[\"\",\"x\",\"\"]""#, r#"a=x b="[\"x\"]""#]);
    gives(
        "split 'ab' from a as b",
        &["a=1abab2", "a=aab"],
        &[r#"a=1abab2 b="[\"1\",\"\",\"2\"]""#, r#"a=aab b="[\"a\",\"\"]""#],
    );
    gives("replace ('aa', 'b') at c", &["c=aaaa", "c=aaa", "d=1"], &["c=bb", "c=ba", "d=1"]);
    gives("replace ('ä', '') at c", &["c=äxä"], &["c=x"]);
    gives("replace ('a', 'aa') at c limit 2", &["c=aaa"], &["c=aaaaa"]);
    gives("replace_regexp ('(.)-(.)', '$2-$1') at c", &["c=a-b", "c=ä-ö", "c=-"], &["c=b-a", "c=ö-ä", "c=-"]);
    gives("replace_regexp ('[0-9]+', 'N') at c limit 2", &["c=1x2x3"], &["c=NxNx3"]);
}

#[test]
fn numbers_in_messages_are_collapsed() {
    gives("collapse_nums at a", &["a=2edfed59-3e98-4073-bbb2-28d321ca71a7"], &["a=<N>-<N>-<N>-<N>-<N>"]);
    gives("collapse_nums at a prettify", &["a=2edfed59-3e98-4073-bbb2-28d321ca71a7"], &["a=<UUID>"]);
    gives("collapse_nums at a prettify", &[r#"a="to 10.20.30.40:8080""#], &[r#"a="to <IP4>:<N>""#]);
    gives("collapse_nums at a prettify", &[r#"a="at 12:34:56.789 on 2024/01/02""#], &[r#"a="at <TIME> on <DATE>""#]);
    gives("collapse_nums at a prettify", &["a=2024-01-02T03:04:05.678+01:00"], &["a=<DATETIME>"]);
    gives("collapse_nums at a", &["a=v1x", "a=x", "a=12", "a=-1.5"], &["a=v1x", "a=x", "a=<N>", "a=-<N>.<N>"]);
}

#[test]
fn arrays_of_any_length() {
    gives("unroll by (a, b)", &[r#"a="[1,2,3]" b="[\"x\"]" c=z"#], &["a=1 b=x c=z", "a=2 c=z", "a=3 c=z"]);
    gives("unroll by (a)", &["a=[] c=z", "a=5 c=y", "c=x"], &["c=z", "c=y", "c=x"]);
    gives(
        "unroll by (a)",
        &[r#"a="[{\"x\":1},[2],null,true,\"ä\"]""#],
        &[r#"a="{\"x\":1}""#, "a=[2]", "a=null", "a=true", "a=ä"],
    );
    gives("unroll if (c:1) by (a)", &["a=[1,2] c=1", "a=[1,2] c=2"], &["a=1 c=1", "a=2 c=1", "a=[1,2] c=2"]);
    gives(
        "json_array_len(a) as n",
        &["a=[]", r#"a="[1,{\"x\":[1,2]}]""#, "a={}", "a=[1", "b=1"],
        &["a=[] n=0", r#"a="[1,{\"x\":[1,2]}]" n=2"#, "a={} n=0", "a=[1 n=0", "b=1 n=0"],
    );
    gives(
        "json_array_concat '' from a as b",
        &["a=[]", r#"a="[1,\"\",\"x\"]""#],
        &["a=[]", r#"a="[1,\"\",\"x\"]" b=1x"#],
    );
    gives(
        "unpack_words from a as w",
        &[r#"a="ä-ö, ü_1""#, "a=!"],
        &[r#"a="ä-ö, ü_1" w="[\"ä\",\"ö\",\"ü_1\"]""#, "a=! w=[]"],
    );
}

#[test]
fn objects_become_fields() {
    gives(
        "unpack_json from a | delete a",
        &[r#"a="{\"x\":\"\",\"y\":true,\"z\":1.50,\"ü\":\"ö\"}""#],
        &["y=true z=1.50 ü=ö"],
    );
    gives("unpack_json from a | delete a", &[r#"a="{\"x\":{\"y\":{\"z\":1}},\"x.y\":2}""#], &["x.y.z=1 x.y=2"]);
    gives("unpack_json from a | delete a", &[r#"a="{\"x\":1,\"x\":2}""#], &["x=2"]);
    gives("unpack_json from a | delete a", &["a={}", "a=[1]", "a=5", "b=1"], &["", "", "", "b=1"]);
    gives("unpack_json from a fields (x, z)", &[r#"a="{\"x\":1,\"y\":2}" z=old"#], &[r#"a="{\"x\":1,\"y\":2}" x=1"#]);
    gives("unpack_json from a result_prefix p_ | delete a", &[r#"a="{\"x\":1}" x=old"#], &["p_x=1 x=old"]);
    gives("unpack_json from a keep_original_fields | delete a", &[r#"a="{\"x\":1,\"y\":2}" x=old"#], &["x=old y=2"]);
    gives("unpack_json from a skip_empty_results | delete a", &[r#"a="{\"x\":\"\",\"y\":2}" x=old"#], &["x=old y=2"]);
    gives(
        "unpack_json if (b:1) from a | delete a",
        &[r#"a="{\"x\":1}" b=1"#, r#"a="{\"x\":1}" b=2"#],
        &["b=1 x=1", "b=2"],
    );
    gives("unpack_logfmt from a | delete a", &[r#"a="x=1 x=2 y=\"a\\\"b\" z= w=ü""#], &[r#"x=2 y="a\"b" w=ü"#]);
}
