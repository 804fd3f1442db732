use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use quiver_query::tables::TableEntry;

use super::*;
use crate::parse::{Params, Parsed, parse};

fn catalog() -> Catalog {
    let columns = Arc::new(Schema::new(vec![Field::new("time", DataType::Int64, false)]));
    let entry = |schema, name: &str| TableEntry { schema, name: name.to_owned(), columns: Arc::clone(&columns) };
    let entries = vec![entry("quiver", "logs"), entry("public", "hosts"), entry("quiver", "hosts")];
    Catalog::new(entries, &Session::default())
}

fn translated(text: &str) -> Result<String> {
    let Parsed::Query(mut query) = parse(text, &Params::default())?.statement else { panic!("no query: {text}") };
    let aggregates = |name: &str| ["count", "max", "array_agg", "string_agg"].contains(&name);
    translate(&mut query, &catalog(), &Session::of("ann"), &aggregates)?;
    Ok(query.to_string())
}

fn check(text: &str, expected: &str) {
    assert_eq!(translated(text).unwrap_or_else(|e| panic!("{text}: {e}")), expected, "{text}");
}

#[test]
fn what_is_asked_about_the_session() {
    check("select current_user, current_database()", "SELECT 'ann', 'quiver'");
    check("select current_schema, pg_catalog.current_schema()", "SELECT 'public', 'public'");
    check("select current_setting('server_version_num')::int / 100", "SELECT '150000'::INT / 100");
    check("select current_setting('nothing', true)", "SELECT NULL");
    let refused = translated("select set_config('jit', 'off', false)").unwrap_err();
    assert!(refused.message.contains("`set_config`"), "{refused}");
    assert!(translated("select word from pg_catalog.pg_get_keywords()").unwrap().contains("abort:U:true"));
    assert!(translated("select current_setting('nothing')").unwrap_err().message.contains("`nothing`"));
}

#[test]
fn names_with_their_schema() {
    check("select pg_catalog.upper(a::pg_catalog.text) from t", "SELECT upper(a::TEXT) FROM t");
    check(
        "select 1 from t where a OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default",
        "SELECT 1 FROM t WHERE a ~ '^(x)$'",
    );
    check("select a::pg_catalog.int4[] from t", "SELECT a::INTEGER[] FROM t");
}

#[test]
fn relations_are_numbers() {
    let logs = crate::catalog::postgres::number(&["quiver", "logs"]);
    check("select 'logs'::regclass", &format!("SELECT {logs}"));
    check("select 'quiver.logs'::pg_catalog.regclass::oid", &format!("SELECT CAST('{logs}' AS BIGINT)"));
    assert!(translated("select 'lgos'::regclass").unwrap_err().message.contains("did you mean `logs`"));
    assert!(translated("select oid::regclass from pg_class").unwrap().contains(&format!("WHEN {logs} THEN 'logs'")));
    check("select 'int4'::regtype", "SELECT 23");
}

#[test]
fn functions_are_numbers() {
    let attr = crate::catalog::postgres::number(&["function", "attr"]);
    check("select 'attr'::pg_catalog.regproc::pg_catalog.oid", &format!("SELECT {attr}"));
    check("select '5'::oid", "SELECT CAST('5' AS BIGINT)");
    assert!(translated("select 'nothing'::regproc::oid").unwrap_err().message.contains("`nothing`"));
    assert!(translated("select pg_get_functiondef(5)").unwrap().contains("quiver.attr(map, key)"));
}

#[test]
fn what_there_is_none_of() {
    check(
        "select conname, pg_get_constraintdef(oid) as def from pg_constraint where conrelid = 5 order by 1",
        "SELECT NULL AS conname, NULL AS def FROM pg_constraint WHERE false",
    );
    check(
        "select exists (select 1 from pg_index where indrelid = c.oid) from pg_class c",
        "SELECT false FROM pg_class c",
    );
    check(
        "select (select d.x from pg_catalog.pg_attrdef d, pg_type t where d.adrelid = c.oid) from pg_class c",
        "SELECT NULL FROM pg_class c",
    );
    check("select count(*) from pg_index", "SELECT count(*) FROM pg_index");
    // Rows of the left side stay.
    check(
        "select c.oid from pg_class c left join pg_am a on c.relam = a.oid",
        "SELECT c.oid FROM pg_class c LEFT JOIN pg_am a ON c.relam = a.oid",
    );
}

#[test]
fn rows_of_the_catalog_are_looked_up() {
    check(
        "select (select nspname from pg_namespace n where n.oid = c.relnamespace) from pg_class c",
        "SELECT (SELECT max(nspname) FROM pg_namespace n WHERE n.oid = c.relnamespace) FROM pg_class c",
    );
}

#[test]
fn functions_in_from() {
    check("select i from generate_series(1, 3) as i", "SELECT i FROM generate_series(1, 3) AS i (i)");
    check("select g.value from generate_series(1, 3) g", "SELECT g.value FROM generate_series(1, 3) g");
    check(
        "select s[1] from string_to_array('a,b', ',') s",
        "SELECT s[1] FROM (SELECT string_to_array('a,b', ',') AS s) s",
    );
}

#[test]
fn the_catalog_is_asked_so_often() {
    let many = vec!["oid::regclass"; 300].join(", ");
    assert_eq!(translated(&format!("select {many} from pg_class")).unwrap_err().kind, ErrorKind::LimitExceeded);
}

#[test]
fn rates_read_their_series() {
    check(
        "select rate(value, time), rate(m.value, m.time) filter (where true) from metric_samples m",
        "SELECT rate(value, time, series_id), rate(m.value, m.time, m.series_id) FILTER (WHERE true) \
         FROM metric_samples m",
    );
    check("select rate(a, b, c) from t", "SELECT rate(a, b, c) FROM t");
}

#[test]
fn maps_are_read_as_json() {
    check(
        "select a ->> 'b' from t where (t.a ->> 'c') = 'x'",
        "SELECT attr(a, 'b') FROM t WHERE (attr(t.a, 'c')) = 'x'",
    );
    check(
        "select a::json ->> 'b', (a -> 'b') ->> 0 from t",
        "SELECT json_get_text(a::TEXT, 'b'), json_get_text((json_get(a, 'b')), 0) FROM t",
    );
    check("select a #> '{b,0}' ->> 'c' from t", "SELECT json_get_text(json_get_path(a, '{b,0}'), 'c') FROM t");
    check("select '{}' #>> '{b}' from t", "SELECT json_get_path_text('{}', '{b}') FROM t");
}

#[test]
fn times_as_postgresql_has_them() {
    check(
        "select timestamp '2024-01-01 05:00', '2024-01-01 05:00'::timestamptz",
        "SELECT TIMESTAMP '2024-01-01 05:00:00', '2024-01-01 05:00:00'::TIMESTAMPTZ",
    );
    check("select localtimestamp", "SELECT CAST(now() AS TIMESTAMP)");
    check(
        "select make_interval(days => 3, secs => -1.5), make_interval(0, 2)",
        "SELECT INTERVAL '3 days -1.5 seconds', INTERVAL '0 years 2 months'",
    );
    check(
        "select interval '1 day -01:30', '02:03:04.5'::interval, interval '90' minute",
        "SELECT INTERVAL '1 day -01 hours -30 minutes -0 seconds', \
         '02 hours 03 minutes 04.5 seconds'::INTERVAL, INTERVAL '90' MINUTE",
    );
    check(
        "select extract(century from t), date_part('decade', t), extract(year from t) from t",
        "SELECT ((date_part('year', t) + 99) / 100), ((date_part('year', t) + 0) / 10), EXTRACT(YEAR FROM t) FROM t",
    );
    check(
        "select date_trunc('century', t) from t",
        "SELECT (date_trunc('year', (t)) - INTERVAL '1 year' * ((date_part('year', (t)) + 99) % 100)) FROM t",
    );
    check(
        "select date_trunc('day', t, 'Europe/Berlin') from t",
        "SELECT date_trunc('day', CAST(t AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'UTC' \
         FROM t",
    );
}

#[test]
fn operators_and_types_of_postgresql() {
    check("select a && b, mod(a, 2) from t", "SELECT array_has_any(a, b), ((a) % (2)) FROM t");
    check(
        "select array_remove(a, 1), array_replace(a, 1, 2) from t",
        "SELECT array_remove_all(a, 1), array_replace_all(a, 1, 2) FROM t",
    );
    check(
        "select '{1,\"a b\",NULL}'::text[], '{}'::int[], '{{1}}'::int[] from t",
        "SELECT make_array('1', 'a b', NULL)::TEXT[], make_array()::INT[], '{{1}}'::INT[] FROM t",
    );
    check(
        "select substring(a from 'o(.)b'), substring(a, 'b'), substring(a from 2 for 3) from t",
        "SELECT array_element(regexp_match(a, 'o(.)b'), 1), array_element(regexp_match(a, 'b'), 1), \
         SUBSTRING(a FROM 2 FOR 3) FROM t",
    );
    check("select a at time zone 'Asia/Tokyo' from t", "SELECT at_time_zone(a, 'Asia/Tokyo') FROM t");
    check("select a similar to 'b%' from t", "SELECT ((a) ~ '(?s)^(?:b.*)$') FROM t");
    check("select a not similar to 'b' from t", "SELECT ((a) !~ '(?s)^(?:b)$') FROM t");
    check("select uuid 'a', b::uuid, '{}'::jsonb from t", "SELECT TEXT 'a', b::TEXT, '{}'::TEXT FROM t");
    check(
        "select a::int, 1.5::int, 2::int, '3'::int from t",
        "SELECT to_whole(a)::INT, to_whole(1.5)::INT, 2::INT, '3'::INT FROM t",
    );
    check("select to_char(a, 'YYYY-MM') from t", "SELECT to_char(a, '%Y-%m') FROM t");
}

#[test]
fn clauses_that_the_planner_reads_otherwise() {
    check("select a from t fetch first 2 rows only", "SELECT a FROM t LIMIT 2");
    check("select a from t offset 1 fetch next row only", "SELECT a FROM t LIMIT 1 OFFSET 1");
    check(
        "select generate_series from generate_series(1, 2)",
        "SELECT generate_series FROM generate_series(1, 2) AS \"generate_series\" (\"generate_series\")",
    );
    check("select count(*) from t group by ()", "SELECT count(*) FROM t");
    check("select 1 from t group by ()", "SELECT 1 FROM t HAVING count(*) >= 0");
    check(
        "select 1 from t where a > 0 and (a, b) in (select c, 1 from u)",
        "SELECT 1 FROM t WHERE a > 0 AND EXISTS (SELECT 1 FROM (SELECT c, 1 AS \"?column?\" FROM u) AS \"rows\" \
         (\"of row 1\", \"of row 2\") WHERE \"rows\".\"of row 1\" = (a) AND \"rows\".\"of row 2\" = (b))",
    );
    for wrong in [
        "select 1 from t where (a, b) not in (select c, d from u)",
        "select 1 from t where a = 1 or (a, b) in (select c, d from u)",
        "select a from t fetch first 2 rows with ties",
        "select a from t except all select b from u",
        "select * from (select a from t intersect all select b from u) s",
        "select * from generate_series(1, 2) with ordinality",
        "select * from t tablesample bernoulli (10)",
    ] {
        assert_eq!(translated(wrong).unwrap_err().kind, ErrorKind::Unsupported, "{wrong}");
    }
}

#[test]
fn percentiles_of_values_that_are_there() {
    check(
        "select percentile_disc(0.5) within group (order by a desc) from t",
        "SELECT array_element(array_agg(a ORDER BY a DESC) FILTER (WHERE a IS NOT NULL), \
         CAST(greatest(CEIL(0.5 * count(a) FILTER (WHERE a IS NOT NULL)), 1) AS BIGINT)) FROM t",
    );
    check(
        "select percentile_cont(array[0.5, 0.9]) within group (order by a) from t",
        "SELECT make_array(percentile_cont(0.5) WITHIN GROUP (ORDER BY a), \
         percentile_cont(0.9) WITHIN GROUP (ORDER BY a)) FROM t",
    );
    let beyond = translated("select percentile_disc(1.5) within group (order by a) from t").unwrap_err();
    assert!(beyond.message.contains("from 0 to 1"), "{beyond}");
}
