//! Whole answers: names, rows, parameters, zones, limits, and what is refused.

use quiver_query::rows::Answer;
use quiver_query::tables::DomainAccess;
use quiver_query::{Explain, Limits, QueryContext};
use quiver_types::Access;
use serde_json::{Value, json};

use super::{asked, check, is_refused, language, refuses, rows, shown};
use crate::engine::Request;
use crate::parse::Params;

fn to_owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn rows_and_names() {
    check("values (1, 'a'), (2, null)", "column1|column2", &["1|a", "2|-"]);
    check("select * from (select 1 as a, 2 as a) s", "a|a_2", &["1|2"]);
    check("with c as (select t.x, u.x from (values (1)) t (x), (values (2)) u (x)) select * from c", "x|x_2", &["1|2"]);
    check("select count(*), max(b) from (select 1 as a, 2 as a, 3 as b) s", "count|max", &["1|3"]);
    check("select row_to_json(s) from (select 1 as a, 2 as a) s", "row_to_json", &[r#"{"a":1,"a":2}"#]);
    check("with a as (select 1 as x) select x from a union all select 2 order by x desc", "x", &["2", "1"]);
    check("select x from (values (1), (2), (3)) v (x) order by x limit 2 offset 1", "x", &["2", "3"]);
    check("select x from (values (1), (2), (null)) v (x) order by x", "x", &["1", "2", "-"]);
    check("select x from (values (1), (2), (null)) v (x) order by x desc", "x", &["-", "2", "1"]);
    check("select x from (values (1), (2), (null)) v (x) order by x desc nulls last", "x", &["2", "1", "-"]);
    check("select \"A\", a.x, a.\"Y\" from (values (1, 2, 3)) a (\"A\", x, \"Y\")", "A|x|Y", &["1|2|3"]);
    check(
        "select max(1), upper('a'), 1::int, cast(1 as text), case when true then 1 end, coalesce(null, 1)",
        "max|upper|int4|text|case|coalesce",
        &["1|A|1|1|1|1"],
    );
    check("select distinct x % 2 as odd from generate_series(1, 5) as g (x) order by odd", "odd", &["0", "1"]);
    check(
        "select x, count(*) as n from (values ('a'), ('b'), ('a')) v (x) group by x having count(*) > 1",
        "x|n",
        &["a|2"],
    );
}

#[test]
fn parameters_are_values() {
    let with = |text: &str, params: Value| Request { params: Params::of_json(&params).unwrap(), ..asked(text) };
    let found = shown(with("select $1::int + 1 as a, $2::text as b", json!([41, "it's"])));
    assert_eq!(found, ("a|b".to_owned(), to_owned(&["42|it's"])));
    let found = shown(with("select $a as a, $b as b, $a as c", json!({"a": 1.5, "b": true})));
    assert_eq!(found, ("a|b|c".to_owned(), to_owned(&["1.5|true|1.5"])));
    // A value is no part of the statement, whatever it looks like.
    let found = shown(with("select $1::text as a", json!(["' || (select 1) || '"])));
    assert_eq!(found.1, ["' || (select 1) || '"]);
    for (text, params, part) in [
        ("select $1", json!([]), "there is no value for parameter `$1`"),
        ("select $1", json!([1, 2]), "`params` has 2 values, and the statement has 1 parameters"),
        ("select $a", json!({"b": 1}), "`$a`"),
    ] {
        let error = rows(with(text, params)).unwrap_err();
        assert!(error.message.contains(part), "{text}: {error}");
    }
    for wrong in [json!([[1]]), json!({"a": {}}), json!("x"), json!(1)] {
        assert!(Params::of_json(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn times_are_shown_in_the_zone_that_is_asked_for() {
    let text = "select timestamptz '2024-07-01 12:00+00' as t, timestamp '2024-07-01 12:00' as u";
    let in_zone = |zone: &str| rows(Request { time_zone: Some(zone.to_owned()), ..asked(text) });
    let berlin = in_zone("Europe/Berlin").unwrap().1.remove(0);
    assert_eq!(berlin[0].as_deref(), Some("2024-07-01T14:00:00+02:00"));
    assert_eq!(berlin[1].as_deref(), Some("2024-07-01T12:00:00"));
    assert_eq!(in_zone("Nowhere/None").unwrap_err().message, "`time_zone`: there is no time zone `Nowhere/None`");
}

#[test]
fn rows_at_most() {
    let limited = |limit: usize| {
        let text = "select x from generate_series(1, 5) as g (x) order by x desc";
        shown(Request { limit: Some(limit), ..asked(text) }).1
    };
    assert_eq!(limited(2), ["5", "4"]);
    assert_eq!(limited(9).len(), 5);
    assert!(limited(0).is_empty());
}

#[test]
fn a_plan_in_place_of_rows() {
    let (runtime, sql) = language();
    let plan = |text: &str, explain: Option<Explain>| {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let request = Request { explain, ..asked(text) };
        let answer = runtime.block_on(async { Box::pin(sql.query(request, &DomainAccess::full(), &ctx)).await });
        match answer {
            Ok(Answer::Plan(plan)) => plan,
            other => panic!("{text}: {other:?}"),
        }
    };
    let text = "select x from generate_series(1, 5) as g (x) where x > 3";
    let would = plan(text, Some(Explain::Plan));
    assert!(would["physical"].as_str().is_some_and(|plan| plan.contains("FilterExec")), "{would}");
    assert_eq!(plan(&format!("explain {text}"), None)["digest"], would["digest"]);
    let ran = plan(text, Some(Explain::Analyze));
    assert_eq!(ran["digest"], would["digest"]);
    let filter = ran["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "FilterExec");
    assert_eq!(filter.map(|node| &node["rows"]), Some(&json!(2)), "{ran}");
}

#[test]
fn statements_only_read() {
    for (text, part) in [
        ("insert into logs values (1)", "`INSERT INTO` is not allowed"),
        ("create table a (b int)", "`CREATE TABLE` is not allowed"),
        ("drop table logs", "`DROP TABLE` is not allowed"),
        ("update logs set a = 1", "`UPDATE LOGS` is not allowed"),
        ("delete from logs", "`DELETE FROM` is not allowed"),
        ("truncate logs", "`TRUNCATE LOGS` is not allowed"),
        ("copy logs to 'x'", "`COPY LOGS` is not allowed"),
        ("set a = 1", "`SET A` is not allowed"),
        ("vacuum", "`VACUUM` is not allowed"),
        ("select 1; select 2", "one statement at a time"),
        ("select", "line 1, column 7"),
        ("select 'a", "Unterminated string literal at line 1, column 8"),
        ("select 1 /* c", "multi-line comment at line 1, column 14"),
        ("select x\nfrom nosuch", "there is no table `nosuch` at line 2, column 6"),
    ] {
        is_refused(text, part);
    }
}

#[test]
fn clauses_take_no_windows_and_aggregates() {
    for (text, part) in [
        ("select x, max(row(x, 1)) from generate_series(1, 3) g (x) group by x", "`max` takes no records"),
        ("select 1 + (min((x, 2)) is null)::int from generate_series(1, 3) g (x)", "`min` takes no records"),
        ("select min(map(['a'], [x])) from generate_series(1, 3) g (x)", "`min` takes no maps"),
        ("select max(map(['a'], [x])) over () from generate_series(1, 3) g (x)", "`max` takes no maps"),
        ("select x from generate_series(1, 3) g (x) where rank() over () = 1", "not allowed in `WHERE`"),
        ("select x from generate_series(1, 3) g (x) group by x having rank() over () = 1", "not allowed in `HAVING`"),
        ("select 1 from generate_series(1, 3) g (x) group by rank() over (order by x)", "not allowed in `GROUP BY`"),
        (
            "select 1 from generate_series(1, 3) g (x) group by count(*)",
            "Aggregate functions are not allowed in `GROUP BY`",
        ),
        (
            "select rank() over () from generate_series(1, 3) g (x) group by 1",
            "window functions are not allowed in `GROUP BY`",
        ),
        ("select rank() over () as r from generate_series(1, 3) g (x) group by r", "not allowed in `GROUP BY`"),
        (
            "select 1 from generate_series(1, 3) g (x) join generate_series(1, 3) h (y) on sum(x) > y",
            "Aggregate functions are not allowed in conditions of joins",
        ),
        (
            "select 1 from generate_series(1, 3) g (x) left join generate_series(1, 3) h (y) on rank() over () = y",
            "window functions are not allowed in conditions of joins",
        ),
        ("select x from generate_series(1, 3) g (x) order by 1.5", "non-integer constant in `ORDER BY`"),
        ("select 1 limit -1", "LIMIT must not be negative"),
        ("select 1 limit '-1'", "LIMIT must not be negative"),
        ("select 1 limit -1.5", "LIMIT must not be negative"),
        ("select 1 offset -1", "OFFSET must not be negative"),
        ("select 1 limit 1e30", "is out of range for type bigint"),
        ("select 1 limit 'x'", "to be an integer or null, but got Utf8"),
    ] {
        is_refused(text, part);
    }
}

#[test]
fn what_is_wrong_is_said() {
    refuses(&[
        ("1 / 0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("'x'::int", "'x'"),
        ("'1.5'::int", "'1.5'"),
        ("9223372036854775807 + 1", "Overflow"),
        ("40000::int2", "40000"),
        ("'2024-13-01'::date", "date/time field value out of range: \"2024-13-01\""),
        ("'2024-02-30'::date", "date/time field value out of range: \"2024-02-30\""),
        ("'25:00'::time", "date/time field value out of range: \"25:00\""),
        ("timestamp '2024-13-01'", "date/time field value out of range: \"2024-13-01\""),
        ("timestamptz '2024-01-01 24:30'", "date/time field value out of range: \"2024-01-01 24:30\""),
        ("now() > '30 Feb 2024'", "date/time field value out of range: \"30 Feb 2024\""),
        ("(select max(x::date) from (values ('2024-02-30')) v (x))", "value out of range: \"2024-02-30\""),
        ("date 'x'", "invalid input syntax for type date: \"x\""),
        ("'x'::time", "invalid input syntax for type time: \"x\""),
        ("make_time(25, 0, 0.5)", "time field value out of range: 25:00:0.5"),
        ("make_time(24, 0, 0)", "time field value out of range: 24:00:00"),
        ("make_time(23, 59, 60)", "time field value out of range: 23:59:60"),
        (
            "(select count(*) from (select generate_series(timestamp '2024-01-01', timestamp '2024-01-02', '0 hours')) t)",
            "step size cannot equal zero",
        ),
        ("extract(week from interval '10 days')", "unit \"week\" not supported for type interval"),
        ("extract(julian from interval '10 days')", "unit \"julian\" not supported for type interval"),
        ("make_timestamp(2024, 1, 1, 23, -1, 0)", "time field value out of range: 23:-1:00"),
        ("make_timestamptz(2024, 1, 1, 24, 0, 1)", "time field value out of range: 24:00:01"),
        ("array['a'] || 'c'", "malformed array literal: \"c\""),
        ("'x'::timestamp", "invalid input syntax for type timestamp: \"x\""),
        ("'x'::boolean", "'x'"),
        ("'x'::interval", "\"x\""),
        ("'x'::uuid", "invalid input syntax for type uuid: \"x\""),
        ("'{'::json", "invalid input syntax for type json: \"{\""),
        ("sqrt(-1)", "square root of a negative number"),
        ("factorial(-1)", "negative"),
        ("factorial(30)", "Overflow"),
        ("'a' ~ '('", "a regular expression cannot be read"),
        ("nosuch(1)", "'nosuch'"),
        ("substring('abc' from 2 for -1)", "negative"),
        ("split_part('a', ',', 0)", "must not be zero"),
        ("lpad('a', 2000000000)", "at most"),
        ("repeat('ab', 2000000000)", "at most"),
        ("to_number('1', 'RN')", "`RN`"),
        ("nth_value(1, 0) over ()", "argument of nth_value must be greater than zero"),
        ("nth_value(1, -1) over ()", "argument of nth_value must be greater than zero"),
        ("to_char(1, '9EEEE9')", "`EEEE` is not the last word"),
        ("to_char(1, 'FM9EEEE')", "`EEEE` stands together"),
        ("to_char(1, '9.9V9')", "`V` stands together"),
        ("timestamp '2024-01-01' at time zone 'Nowhere/None'", "there is no time zone `Nowhere/None`"),
        ("date_trunc('fortnight', timestamp '2024-01-01')", "fortnight"),
        ("date_bin('1 month', timestamp '2024-05-05', timestamp '2024-01-01')", "containing months or years"),
        ("date_bin(interval '1 year', timestamp '2024-05-05')", "containing months or years"),
        ("date_bin('-1 days'::interval, timestamp '2024-05-05', timestamp '2024-01-01')", "greater than zero"),
        ("width_bucket(1, 5, 5, 2)", "two different ends"),
        ("array[1, 'a']", "'a'"),
        ("'{1,x}'::int[]", "'x'"),
        ("(1, 2) = (1, 2, 3)", "rows of 2 and of 3 parts cannot be compared"),
        ("to_number('x', '9')", "`to_number` finds no number in `x`"),
        ("format('%s')", "`format` has no value number 1"),
        ("format('%s %3$s', 'a')", "`format` has no value number 3"),
        ("(select x from (values (1), (2)) v (x))", "more than one row"),
        ("(select x, y from (values (1, 2)) v (x, y))", "only return one column"),
        ("(select nosuch from (values (1)) v (x))", "there is no column `nosuch` at line 1, column 17"),
        ("(select count(*) from generate_series(1, 2, 0))", "zero"),
        ("jsonb_path_exists('{}', '$.')", "at character 3"),
        ("jsonb_set('1', '{a}', '2')", "cannot set path in scalar"),
        ("jsonb_set_lax('{}', '{a}', null, true, 'raise_exception')", "JSON value must not be null"),
        ("jsonb_set_lax('{}', '{a}', null, true, 'nothing')", "null_value_treatment must be"),
        ("regexp_instr('abc', 'b', 1, 1, 2)", "invalid value for parameter \"endoption\": 2"),
        ("'{\"a\":1}'::jsonb - 0", "cannot delete from object using integer index"),
        ("set_config('a', 'b', false)", "`set_config` needs a connection"),
        ("current_setting('nosuch')", "there is no setting `nosuch`"),
    ]);
}
