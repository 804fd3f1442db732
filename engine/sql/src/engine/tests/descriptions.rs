//! What drivers are told of a statement before it has values: types of its parameters, names of its columns.

use quiver_query::tables::DomainAccess;
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, ErrorKind, Result};

use super::{asked, language};
use crate::catalog::types::PG_TYPES;

/// Names of the types of the parameters, and of the columns.
fn described(text: &str, declared: &[u32]) -> Result<(Vec<String>, Vec<String>)> {
    let (runtime, sql) = language();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let found =
        runtime.block_on(async { Box::pin(sql.describe(asked(text), declared, &DomainAccess::full(), &ctx)).await })?;
    let name = |oid: &u32| {
        let plain = PG_TYPES.iter().find(|known| known.oid == *oid).map(|known| known.name.to_owned());
        let array = PG_TYPES.iter().find(|known| known.array == *oid).map(|known| format!("_{}", known.name));
        plain.or(array).unwrap_or_else(|| oid.to_string())
    };
    let columns = found.columns.fields().iter().map(|field| field.name().clone()).collect();
    Ok((found.params.iter().map(name).collect(), columns))
}

fn check(text: &str, declared: &[u32], params: &[&str], columns: &[&str]) {
    let found = described(text, declared).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(found.0, params, "{text}");
    assert_eq!(found.1, columns, "{text}");
}

#[test]
fn parameters_have_the_types_of_their_places() {
    check("select $1", &[], &["text"], &["?column?"]);
    check(
        "select $1::int, $2::text, $3::timestamptz",
        &[],
        &["int4", "text", "timestamptz"],
        &["int4", "text", "timestamptz"],
    );
    check("select $1 + 1 as a", &[], &["int8"], &["a"]);
    check("select x from (values (1)) v (x) where x = $1", &[], &["int8"], &["x"]);
    check("select x from (values (1)) v (x) where x = $1 and $1 > 2", &[], &["int8"], &["x"]);
    check("select x from (values ('a')) v (x) where x like $1", &[], &["text"], &["x"]);
    check("select x from (values (1.5)) v (x) where x between $1 and $2", &[], &["float8", "float8"], &["x"]);
    check("select t from (values (timestamp '2024-01-01')) v (t) where t >= $1", &[], &["timestamp"], &["t"]);
    check("select name from hosts where name = $1 and cpu > $2", &[], &["text", "float8"], &["name"]);
    check("select name from hosts where name = any($1)", &[], &["_text"], &["name"]);
    check("select name from hosts where name in ($1, $2)", &[], &["text", "text"], &["name"]);
    check("select x from generate_series(1, 5) as g (x) limit $1 offset $2", &[], &["int8", "int8"], &["x"]);
    check("select upper($1), length($2)", &[], &["text", "text"], &["upper", "length"]);
    check("select date_trunc('day', $1::timestamp)", &[], &["timestamp"], &["date_trunc"]);
    check("select $1::int[]", &[], &["_int4"], &["int4"]);
    check("select $1::jsonb ->> 'a' as a", &[], &["jsonb"], &["a"]);
    check("select $2::int", &[], &["text", "int4"], &["int4"]);
    check("with a as (select $1::date as d) select d from a where d < $2", &[], &["date", "date"], &["d"]);
    check("select coalesce(x, $1) as a from (values (date '2024-01-01')) v (x)", &[], &["date"], &["a"]);
    check("select case when cpu > 1 then cpu else $1 end as a from hosts", &[], &["float8"], &["a"]);
    check("select 1 as a union all select $1", &[], &["int8"], &["a"]);
    check("select left(name, $1) as a from hosts", &[], &["int8"], &["a"]);
    check("select x from generate_series($1, $2) as g (x)", &[23, 23], &["int4", "int4"], &["x"]);
    check("select x from (values (1)) v (x) where x = $1 or $1 is null", &[], &["int8"], &["x"]);
}

#[test]
fn parameters_of_operators_of_several_keys_are_lists() {
    for (asked, params) in [
        ("'{}'::jsonb #>> $1", &["_text"][..]),
        ("'{}'::json #> $1", &["_text"]),
        ("'{}'::jsonb #- $1", &["_text"]),
        ("'{}'::jsonb ?| $1", &["_text"]),
        ("'{}'::jsonb ?& $1 and cpu > $2", &["_text", "float8"]),
        ("array[1, 2] && $1", &["_int8"]),
        ("array[name] && $1", &["_text"]),
        ("$1 && array[cpu]", &["_float8"]),
        ("sum(cpu) over (order by cpu rows between $1 preceding and $2 following)", &["int8", "int8"]),
        ("sum(cpu + $2) over (order by cpu groups between $1 preceding and current row)", &["int8", "float8"]),
    ] {
        check(&format!("select {asked} as a from hosts"), &[], params, &["a"]);
    }
    let text = "select sum(cpu) over w as a from hosts window w as (order by cpu rows $1 preceding)";
    check(text, &[], &["int8"], &["a"]);
}

#[test]
fn parameters_beside_times_and_intervals_have_types_of_their_own() {
    for (calculated, params) in [
        ("now() - $1 * interval '1 hour'", &["float8"][..]),
        ("now() - interval '1 hour' * $1", &["float8"]),
        ("interval '1 hour' / $1", &["float8"]),
        ("interval '1 hour' + $1", &["interval"]),
        ("now() + $1", &["interval"]),
        ("$1 + timestamp '2024-01-01'", &["interval"]),
        ("time '10:00' + $1", &["interval"]),
        ("now() - $1", &["timestamptz"]),
        ("make_interval(hours => $1)", &["float8"]),
    ] {
        check(&format!("select {calculated} as a"), &[], params, &["a"]);
    }
}

#[test]
fn arguments_of_functions_of_several_types_have_that_of_postgresql() {
    check("select to_timestamp($1) as a, round($2, $3) as b", &[], &["float8", "numeric", "int4"], &["a", "b"]);
    check("select x from generate_series(1, $1) as g (x)", &[], &["int8"], &["x"]);
    check("select x from generate_series($1, 10, $2) as g (x)", &[], &["int8", "int8"], &["x"]);
}

#[test]
fn parameters_have_the_types_that_are_declared() {
    check("select $1 as a", &[23], &["int4"], &["a"]);
    check("select $1 as a, $2 as b", &[0, 25], &["text", "text"], &["a", "b"]);
    check("select $1 + $2 as a", &[20], &["int8", "int8"], &["a"]);
    // What says that it does not know is not taken at its word.
    check("select $1 + 1 as a", &[705], &["int8"], &["a"]);
    // Types of parameters that there are none of mean nothing.
    check("select 1 as a", &[23, 25], &[], &["a"]);
}

#[test]
fn columns_have_the_names_of_answers() {
    check("select count(*), 1 as a, now(), 'x'::text", &[], &[], &["count", "a", "now", "text"]);
    check("select * from hosts", &[], &[], &["name", "cpu", "role"]);
    check("explain select $1::int", &[], &["int4"], &["QUERY PLAN"]);
    check("show tables", &[], &[], &["table_schema", "table_name"]);
    check("describe hosts", &[], &[], &["column_name", "data_type", "is_nullable"]);
}

#[test]
fn what_cannot_be_described_says_why() {
    for (text, kind, part) in [
        (
            "select nosuch from hosts where name = $1",
            ErrorKind::Invalid,
            "there is no column `nosuch` at line 1, column 8",
        ),
        ("select * from nosuch", ErrorKind::Invalid, "there is no table `nosuch`"),
        ("select $1001", ErrorKind::LimitExceeded, "at most 1000 parameters"),
        ("select $1; select $2", ErrorKind::Invalid, "one statement at a time"),
        ("delete from hosts where name = $1", ErrorKind::Invalid, "statements only read"),
    ] {
        let error = described(text, &[]).unwrap_err();
        assert_eq!(error.kind, kind, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }
}
