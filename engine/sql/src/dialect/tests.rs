use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use quiver_query::tables::TableEntry;

use super::*;
use crate::parse::{Params, ReadStatement, parse};

mod catalog_lookups;
mod joins;
mod rewrites;
mod rows;
mod values;

fn catalog() -> Catalog {
    let columns = Arc::new(Schema::new(vec![Field::new("time", DataType::Int64, false)]));
    let entry = |schema, name: &str| TableEntry { schema, name: name.to_owned(), columns: Arc::clone(&columns) };
    let entries = vec![entry("quiver", "logs"), entry("public", "hosts"), entry("quiver", "hosts")];
    Catalog::new(entries, &Session::default())
}

fn translated(text: &str) -> Result<String> {
    let ReadStatement::Query(mut query) = parse(text, &Params::default())?.statement else {
        panic!("no query: {text}")
    };
    let aggregates = |name: &str| ["count", "max", "array_agg", "string_agg", "bool_or", "bool_and"].contains(&name);
    translate(&mut query, &catalog(), &Session::of("ann"), &aggregates)?;
    Ok(query.to_string())
}

fn check(text: &str, expected: &str) {
    assert_eq!(translated(text).unwrap_or_else(|e| panic!("{text}: {e}")), expected, "{text}");
}

#[test]
fn functions_are_numbers() {
    let attr = crate::catalog::schemas::number(&["function", "attr"]);
    check(
        "select bool_or(a) over (order by b rows between 1 preceding and current row), bool_and(a) over (), bool_or(a)",
        "SELECT max(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), min(a) OVER (), bool_or(a)",
    );
    check(
        "select string_agg(a, ',') filter (where c) over (rows 2 preceding), string_agg(a, ',') over (order by b)",
        "SELECT CASE WHEN count(a) FILTER (WHERE c) OVER (ROWS 2 PRECEDING) > 0 THEN \
         array_to_string(array_agg(a) FILTER (WHERE c) OVER (ROWS 2 PRECEDING), ',') END, \
         string_agg(a, ',') OVER (ORDER BY b)",
    );
    // Where each row has a separator of its own, the list holds both.
    check(
        "select string_agg(a, null) over (rows 2 preceding), string_agg(a, b) over (rows 2 preceding)",
        "SELECT CASE WHEN count(a) OVER (ROWS 2 PRECEDING) > 0 THEN \
         array_to_string(array_agg(a) OVER (ROWS 2 PRECEDING), '') END, \
         array_to_string(array_slice(flatten(array_agg(make_array(b, a)) FILTER (WHERE (a) IS NOT NULL) \
         OVER (ROWS 2 PRECEDING)), 2, 2147483647), '')",
    );
    check(
        "select string_agg(distinct a, ',') over (rows 2 preceding)",
        "SELECT string_agg(DISTINCT a, ',') OVER (ROWS 2 PRECEDING)",
    );
    let nested = (0..12).fold("a".to_owned(), |inner, _| format!("string_agg({inner}, ',') over (rows 1 preceding)"));
    let error = translated(&format!("select {nested} from t")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
    assert!(translated("select corr(distinct a, b) from t").unwrap_err().message.contains("`corr(DISTINCT …)`"));
    check(
        "select count(distinct a order by b), array_agg(a order by b)",
        "SELECT count(DISTINCT a), array_agg(a ORDER BY b)",
    );
    check("select '2024-02-03 +00'::date", "SELECT '2024-02-03'::DATE");
    check("select pg_relation_size(1), pg_advisory_unlock_all()", "SELECT CAST(NULL AS BIGINT), CAST(NULL AS TEXT)");
    check("select 'pg_catalog.array_in'::regproc", "SELECT 'array_in'");
    check("select 'attr'::pg_catalog.regproc::pg_catalog.oid", &format!("SELECT {attr}"));
    check("select '5'::oid", "SELECT CAST('5' AS BIGINT)");
    assert!(translated("select 'nothing'::regproc::oid").unwrap_err().message.contains("`nothing`"));
    assert!(translated("select pg_get_functiondef(5)").unwrap().contains("quiver.attr(map, key)"));
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
        "select a::timestamp(0), a::timestamptz(7) from t",
        "SELECT date_bin(INTERVAL '1 seconds', CAST(a AS TIMESTAMP) + INTERVAL '0.5 seconds'), CAST(a AS TIMESTAMPTZ) FROM t",
    );
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
        "SELECT date_part('century', t), date_part('decade', t), EXTRACT(YEAR FROM t) FROM t",
    );
    check("select date_trunc('century', t) from t", "SELECT date_trunc('century', t) FROM t");
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
        "select array_remove(a, 1), array_remove(a, null::int), array_replace(a, 1, 2) from t",
        "SELECT array_remove_all(a, 1), array_compact(a), array_replace_all(a, 1, 2) FROM t",
    );
    check(
        "select '{1,\"a b\",NULL}'::text[], '{}'::int[], '{{1}}'::int[] from t",
        "SELECT make_array('1', 'a b', NULL)::TEXT[], make_array()::INT[], make_array(make_array('1'))::INT[][] FROM t",
    );
    check(
        "select null::text::float[], (null)::int[] from t",
        "SELECT as_list(NULL::TEXT)::DOUBLE PRECISION[], (NULL)::INT[] FROM t",
    );
    check(
        "select substring(a from 'o(.)b'), substring(a, 'b'), substring(a from 2 for 3) from t",
        "SELECT array_element(regexp_match(a, '(?s)o(.)b'), 1), array_element(regexp_match(a, 'b'), 1), \
         substr(a, 2, 3) FROM t",
    );
    check("select a at time zone 'Asia/Tokyo' from t", "SELECT at_time_zone(a, 'Asia/Tokyo') FROM t");
    check("select a::float, a::float(24), a::float4 from t", "SELECT a::DOUBLE PRECISION, a::REAL, a::FLOAT4 FROM t");
    check("select a similar to 'b%' from t", "SELECT ((a) ~ '(?s)^(?:b.*)$') FROM t");
    check("select a not similar to 'b' from t", "SELECT ((a) !~ '(?s)^(?:b)$') FROM t");
    let id = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    check(
        &format!("select uuid '{}', b::uuid, '{{}}'::jsonb, jsonb '[]', '1'::json from t", id.to_uppercase()),
        &format!(
            "SELECT TEXT '{id}', b::TEXT, json_known(json_normal('{{}}')::TEXT), \
             json_normal('[]'), json_known('1'::TEXT) FROM t"
        ),
    );
    for wrong in ["select 'x'::uuid", "select '{a'::json", "select jsonb '{\"a\":}'", "select ''::pg_catalog.json"] {
        assert!(translated(wrong).unwrap_err().message.starts_with("invalid input syntax for type "), "{wrong}");
    }
    check(
        "select a::int, 1.5::int, (-5 / 2.0)::int, (7 / 2)::int, (a / 2.0)::int, 2::int, '3'::int from t",
        "SELECT to_whole(a)::INT, round(1.5)::INT, round((((-5 / 2.0)) + 0.0))::INT, to_whole((7 / 2))::INT, \
         to_whole((a / 2.0))::INT, 2::INT, '3'::INT FROM t",
    );
    check("select to_char(a, 'YYYY-MM') from t", "SELECT time_to_char(a, 'YYYY-MM') FROM t");
    check(
        "select extract(second from a), date_part('MSECS', a), extract(us from a), extract(minute from a) from t",
        "SELECT (date_part('microsecond', a) / 1000000.0), (date_part('microsecond', a) / 1000.0), \
         date_part('microsecond', a), EXTRACT(MINUTE FROM a) FROM t",
    );
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
        "SELECT 1 FROM t WHERE a > 0 AND EXISTS (SELECT 1 FROM (SELECT c, 1 AS \"?column?\" FROM u) AS \"among rows\" \
         (\"of row 1\", \"of row 2\") WHERE \"among rows\".\"of row 1\" = (\"t\".a) AND \"among rows\".\"of row 2\" = (\"t\".b))",
    );
    for wrong in [
        "select (a, b) not in (select c, d from u) from t group by a, b",
        "select * from t except all select b from u",
        "select * from t with ordinality",
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
        "SELECT CASE WHEN (quantile(a, 0.5)) IS NOT NULL THEN make_array(quantile(a, 0.5), quantile(a, 0.9)) END \
         FROM t",
    );
    check(
        "select percentile_cont(0.9) within group (order by a desc) filter (where b > 1) from t",
        "SELECT (-quantile(-1.0 * (a), 0.9) FILTER (WHERE b > 1)) FROM t",
    );
    check("select mode() within group (order by a) from t", "SELECT mode(a) FROM t");
    for name in ["percentile_disc", "percentile_cont"] {
        let beyond = translated(&format!("select {name}(1.5) within group (order by a) from t")).unwrap_err();
        assert!(beyond.message.contains("from 0 to 1"), "{beyond}");
    }
}

#[test]
fn what_is_cast_has_a_name_of_its_own() {
    check(
        "select max(x), max(x::text), max(x::date), count(*) from t where y::text = '' order by max(x::text)",
        "SELECT max(x), max(coalesce(x::TEXT)), max(coalesce(coalesce(x::DATE))), count(*) FROM t \
         WHERE y::TEXT = '' ORDER BY max(coalesce(x::TEXT))",
    );
    check(
        "select x, x::text, count(*) from t group by x, x::text",
        "SELECT x, coalesce(x::TEXT), count(*) FROM t GROUP BY x, coalesce(x::TEXT)",
    );
    check("select max(x::text), abs(x::date), abs(x) from t", "SELECT max(x::TEXT), abs(x::DATE), abs(x) FROM t");
}

#[test]
fn signs_units_and_lengths() {
    check("select - interval '1 day 1 hour' from t", "SELECT (INTERVAL '1 day 1 hour' * -1) FROM t");
    check(
        "select date_trunc('Hours', a), date_trunc('hour', a) from t",
        "SELECT date_trunc('hour', a), date_trunc('hour', a) FROM t",
    );
    check(
        "select lpad(a, b), rpad(a, 5, 'x') from t",
        "SELECT lpad(a, CASE WHEN (b) < 0 THEN 0 ELSE (b) END), rpad(a, 5, 'x') FROM t",
    );
}

#[test]
fn look_ups_for_the_row_at_hand_aggregate() {
    check(
        "select (select b.n from b where b.k = a.k) from a",
        "SELECT sole((SELECT array_agg(b.n) FROM b WHERE b.k = a.k)) FROM a",
    );
    check(
        "select 1 from a where (select n + 1 as m from b where b.k = a.k order by b.t desc, n limit 1) > 2",
        "SELECT 1 FROM a WHERE (SELECT first_value(n + 1 ORDER BY b.t DESC, n) AS m FROM b WHERE b.k = a.k) > 2",
    );
    check("select (select b.n from b limit 1) from a", "SELECT (SELECT optional(b.n) FROM b LIMIT 1) FROM a");
    check(
        "select (select count(*) as m from b group by b.k) from a",
        "SELECT (SELECT optional(count(*)) AS m FROM b GROUP BY b.k) FROM a",
    );
    for same in [
        "SELECT (SELECT DISTINCT b.n FROM b) FROM a",
        "SELECT (SELECT count(*) FROM b), (SELECT 1) FROM a",
        "SELECT (SELECT count(*) FROM b WHERE b.k = a.k) FROM a",
        "SELECT (SELECT b.n AS m FROM b WHERE b.k = a.k ORDER BY m LIMIT 1) FROM a",
        "SELECT (SELECT b.n FROM b WHERE b.k = a.k ORDER BY 1 LIMIT 1) FROM a",
        "SELECT (SELECT b.n FROM b WHERE b.k = a.k LIMIT 2) FROM a",
        "SELECT (SELECT count(*) OVER () FROM b WHERE b.k = a.k) FROM a",
        "SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.n = a.n)",
    ] {
        check(same, same);
    }
}

#[test]
fn kinds_of_types_that_are_not_there() {
    check(
        "select case when t.typtype = 'd' then (select max(u.typbasetype) from pg_type u where u.oid = t.oid) end, \
         case when t.typtype = 'c' then 1 when t.typtype = 'b' then 2 else 3 end from pg_type t",
        "SELECT NULL, CASE WHEN t.typtype = 'b' THEN 2 ELSE 3 END FROM pg_type t",
    );
    check("select case when typtype = 'd' then 1 end from logs", "SELECT CASE WHEN typtype = 'd' THEN 1 END FROM logs");
}

#[test]
fn outputs_say_whether_there_are_rows() {
    check(
        "select exists(select a from t where b > 1 order by c), not exists (select 1 from u where u.k = t.k) from t",
        "SELECT (SELECT count(*) > 0 FROM (SELECT 1 FROM t WHERE b > 1 LIMIT 1) AS \"rows\"), \
         (NOT (SELECT count(*) > 0 FROM u WHERE u.k = t.k)) FROM t",
    );
    check(
        "select case when exists (select 1 union select 2) then 1 end from t where exists (select 1 from u)",
        "SELECT CASE WHEN (SELECT count(*) > 0 FROM (SELECT 1 UNION SELECT 2) AS \"rows\") THEN 1 END FROM t \
         WHERE EXISTS (SELECT 1 FROM u)",
    );
}

#[test]
fn other_names_and_literals() {
    check("select ceiling(a), a ^@ 'b' from t", "SELECT ceil(a), starts_with(a, 'b') FROM t");
    check("select timezone('UTC', a), clock_timestamp() from t", "SELECT at_time_zone(a, 'UTC'), now() FROM t");
    check("select a + interval '1 month - 1 day' from t", "SELECT a + INTERVAL '1 month -1 day' FROM t");
    check(
        "select a + interval '1 day - 02:00' from t",
        "SELECT a + INTERVAL '1 day -02 hours -00 minutes -0 seconds' FROM t",
    );
}

#[test]
fn operators_of_postgresql() {
    check("select -2 ^ 2, -(2 ^ 2), -a ^ 2 ^ 3", "SELECT (-2) ^ 2, -(2 ^ 2), (-a) ^ 2 ^ 3");
    check("select |/ a, ||/ 8, @ -5", "SELECT sqrt(a), cbrt(8), abs(-5)");
    check("select ~5, ~(a + 1)", "SELECT (-1 - 5), (-1 - (a + 1))");
    check("select a like any (array['x%', b])", "SELECT (a LIKE 'x%' OR a LIKE b)");
    check(
        "select a like any ('{x%,y}'), a ilike any ('x', 'y')",
        "SELECT (a LIKE 'x%' OR a LIKE 'y'), (a ILIKE 'x' OR a ILIKE 'y')",
    );
    check("select a not like all (array['x%', 'y'])", "SELECT (a NOT LIKE 'x%' AND a NOT LIKE 'y')");
    let day = "((c) + (INTERVAL '1 day'))";
    let (first, second) = ("least((a), (b))", format!("least((c), {day})"));
    let to = "CASE WHEN (a) IS NOT NULL AND (b) IS NOT NULL THEN greatest((a), (b)) END";
    let other = format!("CASE WHEN (c) IS NOT NULL AND {day} IS NOT NULL THEN greatest((c), {day}) END");
    check(
        "select (a, b) overlaps (c, interval '1 day')",
        &format!(
            "SELECT (CASE WHEN {first} > {second} THEN {first} < {other} OR {to} < {other} \
             WHEN {first} < {second} THEN {second} < {to} OR {other} < {to} \
             WHEN {first} = {second} THEN {to} = {other} OR {to} <> {other} END)"
        ),
    );
    let patterns = |count: usize| format!("select a like any (array[{}'z'])", "'x', ".repeat(count - 1));
    assert!(translated(&patterns(1_000)).is_ok());
    assert_eq!(translated(&patterns(1_001)).unwrap_err().kind, ErrorKind::LimitExceeded);
    for wrong in ["select a like any (b)", "select a like all (b)", "select a overlaps b"] {
        assert_eq!(translated(wrong).unwrap_err().kind, ErrorKind::Unsupported, "{wrong}");
    }
}

#[test]
fn rows_stand_beside_others_and_lists_beside_their_row() {
    check("select generate_series(1, 3), a from t", "SELECT unnest(generate_series(1, 3)), a FROM t");
    check("select array(select generate_series(1, 3))", "SELECT or_empty(generate_series(1, 3))");
    check(
        "select a, e from t left join lateral unnest(b) e on true",
        "SELECT a, e FROM t CROSS JOIN \
         UNNEST(CASE WHEN cardinality(b) > 0 THEN b ELSE make_array(NULL) END) e (e)",
    );
    check(
        "select g from t cross join lateral generate_series(1, a) g",
        "SELECT g FROM t CROSS JOIN UNNEST(generate_series(1, a)) g (g)",
    );
    check(
        "select v from t, lateral jsonb_array_elements_text(a) v",
        "SELECT v FROM t, UNNEST(json_items_text(a)) v (v)",
    );
    check(
        "select g from generate_series(a, b, '1 hour') g",
        "SELECT g FROM UNNEST(generate_series(a, b, INTERVAL '1 hour')) g (g)",
    );
    check(
        "select k.value from t, jsonb_each_text(t.a) k",
        "SELECT k.value FROM t, UNNEST(json_keys(json_normal(json_value(t.a))), \
         json_values_text(json_normal(json_value(t.a)))) k (\"key\", \"value\")",
    );
    check("select array_length(a, 1) from t", "SELECT nullif(CAST(array_length(a, 1) AS BIGINT), 0) FROM t");
}

#[test]
fn texts_of_a_length_are_cut_off() {
    check(
        "select a::varchar(3), cast(b as char(2)), c::character from t",
        "SELECT left(CAST(a AS TEXT), 3), rtrim(left(CAST(b AS TEXT), 2), ' '), rtrim(left(CAST(c AS TEXT), 1), ' ') FROM t",
    );
}

#[test]
fn documents_are_made_of_rows() {
    check(
        "select json_agg(a order by b) filter (where c) from t",
        "SELECT json_list(array_agg(to_json(a) ORDER BY b) FILTER (WHERE c)) FROM t",
    );
    check(
        "select jsonb_object_agg(a, b), to_jsonb(a) from t",
        "SELECT json_normal(json_members(array_agg(json_member(a, b)))), json_normal(to_json(a)) FROM t",
    );
    check(
        "select row_to_json(x) from (select 1 as a, 2 b) x",
        "SELECT json_row('a', \"x\".\"a\", 'b', \"x\".\"b\") FROM (SELECT 1 AS a, 2 AS b) x",
    );
    check(
        "select json_agg(l), json_agg(l.*), json_agg(time) from logs l",
        "SELECT json_rows(array_agg(json_row('time', \"l\".\"time\"))), \
         json_rows(array_agg(json_row('time', \"l\".\"time\"))), json_list(array_agg(to_json(time))) FROM logs l",
    );
    check(
        "select json_build_object('a', b::jsonb, 'r', row(1)) from t",
        "SELECT json_build_object('a', json_normal(json_value(b)), 'r', json_row('f1', 1)) FROM t",
    );
    check(
        "select json_object('{a,1}'), jsonb_object('{a,b}', '{1,NULL}'), json_object(array[a, b]) from t",
        "SELECT json_object(make_array('a', '1')), \
         json_normal(json_object(make_array('a', 'b'), make_array('1', NULL))), json_object(ARRAY[a, b]) FROM t",
    );
}

#[test]
fn sets_of_columns_of_one_name_are_told_apart() {
    check(
        "select a from t where n >= any (select u.n from t u where u.k > 1)",
        "SELECT a FROM t WHERE n >= ANY(SELECT \"of set\" FROM (SELECT u.n FROM t u WHERE u.k > 1) AS \"set\" (\"of set\"))",
    );
    check("select a from t where a <> all (select b from u)", "SELECT a FROM t WHERE a NOT IN (SELECT b FROM u)");
}

#[test]
fn functions_of_rows_are_lists_taken_apart() {
    check("select regexp_matches(a, 'x', 'g') from t", "SELECT unnest(regexp_groups(a, 'x', 'g')) FROM t");
    check(
        "select * from string_to_table('a,b', ',') as x",
        "SELECT * FROM UNNEST(string_to_array('a,b', ',')) AS x (x)",
    );
    check(
        "select a from json_to_recordset('[{}]') as t(a text, \"B\" json)",
        "SELECT a FROM (SELECT CAST(json_get_text(\"item\", 'a') AS TEXT) AS a, \
         json_known(CAST(json_get(\"item\", 'B') AS TEXT)) AS \"B\" \
         FROM UNNEST(json_items('[{}]')) AS \"items\" (\"item\")) AS t",
    );
    check(
        "select a from (t join jsonb_to_record('{}') as r(a date) on true)",
        "SELECT a FROM (t JOIN (SELECT CAST(json_get_text('{}', 'a') AS DATE) AS a) AS r ON true)",
    );
    check(
        "select a, b from json_to_record((select '{}')) as t(a text, b text)",
        "SELECT a, b FROM (SELECT CAST(json_get_text(\"item\", 'a') AS TEXT) AS a, \
         CAST(json_get_text(\"item\", 'b') AS TEXT) AS b FROM (SELECT (SELECT '{}')) AS \"items\" (\"item\")) AS t",
    );
    let long = format!("select a from json_to_record('{}') as t(a text, b text)", "x".repeat(40_000));
    assert_eq!(translated(&long).unwrap_err().kind, ErrorKind::LimitExceeded);
    check(
        "select value from json_array_elements('[1]')",
        "SELECT json_known(value) AS value FROM UNNEST(json_items('[1]')) AS \"json_array_elements\" (\"value\")",
    );
    check(
        "select e.value from t, jsonb_array_elements_text(t.a) e",
        "SELECT e.value FROM t, UNNEST(json_items_text(t.a)) e (\"value\")",
    );
    check("select a::jsonb ? 'k', a @> b from t", "SELECT json_has(a::TEXT, 'k'), a @> b FROM t");
    // What is no document is a list.
    check(
        "select a @> '{x,\"y z\"}', '{1}' && a, a @> '{\"k\": 1}', a::jsonb @> '{x}' from t",
        "SELECT a @> make_array('x', 'y z'), array_has_any(make_array('1'), a), a @> '{\"k\": 1}', \
         json_contains(a::TEXT, '{x}') FROM t",
    );
    check(
        "select a::jsonb @> '{}', '{}' <@ a::jsonb from t",
        "SELECT json_contains(a::TEXT, '{}'), json_contains(a::TEXT, '{}') FROM t",
    );
    check(
        "select * from string_to_table('a', ',') with ordinality as t(x, n)",
        "SELECT * FROM UNNEST(string_to_array('a', ','), \
         generate_series(1, CAST(array_length(string_to_array('a', ',')) AS BIGINT))) AS t (x, n)",
    );
}
