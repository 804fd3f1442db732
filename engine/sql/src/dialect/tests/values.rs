//! Values: what is gathered, divided, compared part by part, and forms that they are written in.

use super::*;
use crate::error::TOO_DEEP;

#[test]
fn different_values_are_gathered_in_order() {
    check(
        "select array_agg(distinct a), array_agg(distinct a order by a desc), array_agg(a) from t",
        "SELECT array_sort(array_agg(DISTINCT a), 'ASC', 'NULLS LAST'), \
         array_sort(array_agg(DISTINCT a), 'DESC', 'NULLS FIRST'), array_agg(a) FROM t",
    );
    check(
        "select string_agg(distinct a, ',') filter (where b or c) from t",
        "SELECT array_to_string(array_sort(array_agg(DISTINCT a) FILTER (WHERE (b OR c) AND (a) IS NOT NULL), \
         'ASC', 'NULLS LAST'), ',') FROM t",
    );
    check(
        "select array_remove(array_agg(a), null), array_remove(array_agg(distinct a), null), array_remove(a, 1) from t",
        "SELECT or_empty(array_agg(a) FILTER (WHERE (a) IS NOT NULL)), \
         or_empty(array_sort(array_agg(DISTINCT a) FILTER (WHERE (a) IS NOT NULL), 'ASC', 'NULLS LAST')), \
         array_remove_all(a, 1) FROM t",
    );
    check(
        "select string_agg(distinct a, null) from t",
        "SELECT array_to_string(array_sort(array_agg(DISTINCT a) FILTER (WHERE (a) IS NOT NULL), \
         'ASC', 'NULLS LAST'), '') FROM t",
    );
    // One order is the planner's, of several each has a list.
    let one = "SELECT string_agg(a, ',' ORDER BY b), string_agg(c, ';' ORDER BY b) FROM t";
    check(one, one);
    // The separator may differ from row to row.
    check(
        "select string_agg(a, b order by c) filter (where c) from t",
        "SELECT array_to_string(array_slice(flatten(array_agg(make_array(b, a) ORDER BY c) \
         FILTER (WHERE (c) AND (a) IS NOT NULL)), 2, 2147483647), '') FROM t",
    );
    assert_eq!(translated("select string_agg(distinct a, b) from t").unwrap_err().kind, ErrorKind::Unsupported);
    check(
        "select string_agg(a, ',' order by b), string_agg(c, ';' order by c desc) from t",
        "SELECT array_to_string(array_agg(a ORDER BY b) FILTER (WHERE (a) IS NOT NULL), ','), \
         array_to_string(array_agg(c ORDER BY c DESC) FILTER (WHERE (c) IS NOT NULL), ';') FROM t",
    );
}

#[test]
fn divisors_of_outputs_are_looked_at() {
    check(
        "select a / b, a / 2, a % 0, a / nullif(b, 0), (a / (b + c)) / d from t where a / b > 1",
        "SELECT a / divisor(b), a / 2, a % divisor(0), a / nullif(b, 0), (a / divisor((b + c))) / divisor(d) FROM t \
         WHERE a / b > 1",
    );
    // What others guard may be zero, and what rows are grouped by stands twice.
    for same in [
        "SELECT b <> 0 AND a / b > 1 FROM t",
        "SELECT max(a / b) FILTER (WHERE b <> 0) FROM t",
        "SELECT a / b, count(*) FROM t GROUP BY a / b",
        "SELECT 1.0 * MEASURE(a) / MEASURE(b) FROM t",
    ] {
        check(same, same);
    }
}

#[test]
fn one_of_several_patterns_is_looked_for() {
    check(
        "select 1 from t where a ~ any (array['x.', '^b']) and a !~* all (array[c, 'd'])",
        "SELECT 1 FROM t WHERE (a ~ '(?s)x.' OR a ~ '^b') AND (a !~* c AND a !~* 'd')",
    );
    check("select a ~ any ('{b,c}') from t", "SELECT (a ~ 'b' OR a ~ 'c') FROM t");
    check("select a ~ $$b.c$$, a like $x$it's$x$ from t", "SELECT a ~ '(?s)b.c', a LIKE 'it''s' FROM t");
    let long = format!("select a ~ any (array[{}]) from t", vec!["'x'"; 201].join(", "));
    assert_eq!(translated(&long).unwrap_err().kind, ErrorKind::LimitExceeded);
}

#[test]
fn forms_of_postgresql_are_known() {
    check("select a[:2], a[2:], a[1] from t", "SELECT a[1:2], a[2:2147483647], a[1] FROM t");
    check(
        "select a[1:2][3], t.a[:][2:3], (a).b[2][1:1], (a[1:2])[1] from t",
        "SELECT level_slices(a, 1, 2, 1, 3), level_slices(t.a, 1, 2147483647, 2, 3), \
         level_slices(get_field((a), 'b'), 1, 2, 1, 1), (a[1:2])[1] FROM t",
    );
    check("select a[-2:3], a[-2:-1], a[b[1]:] from t", "SELECT a[1:3], a[1:0], a[b[1]:2147483647] FROM t");
    check("select a[b:2] from t", "SELECT a[CASE WHEN b < 1 THEN 1 ELSE b END:2] FROM t");
    check(
        "select t.a[1], (t.a[1]).b[2], (a).b, (a[1]).\"C\".d, (row(1, x)).f2, (row(1, (a).b)).f2, (row(1)).f2 from t",
        "SELECT t.a[1], get_field((t.a[1]), 'b')[2], get_field((a), 'b'), get_field(get_field((a[1]), 'C'), 'd'), (x), \
         (get_field((a), 'b')), get_field((row(1)), 'f2') FROM t",
    );
    check("select 1 from t where a not in (values (1), (b))", "SELECT 1 FROM t WHERE a NOT IN (1, b)");
    check(
        "select x from (values (timestamp '2024-01-01 00:00:00', 'a'), ('2024-01-02 05:00', 'b')) v(x, y)",
        "SELECT x FROM (VALUES (TIMESTAMP '2024-01-01 00:00:00', 'a'), (CAST('2024-01-02 05:00:00' AS TIMESTAMP), 'b')) v (x, y)",
    );
    check(
        "select a::jsonb ?| array['x', 'y'], a ?& '{x}' from t",
        "SELECT (json_has(a::TEXT, 'x') OR json_has(a::TEXT, 'y')), (json_has(a, 'x')) FROM t",
    );
    check("select to_char(a, b), to_char(a, null) from t", "SELECT row_to_char(a, b), row_to_char(a, NULL) FROM t");
    check(
        "select date 'today', 'now'::timestamptz, 'tomorrow'::timestamp from t",
        "SELECT CAST(date_trunc('day', now()) AS DATE), CAST(now() AS TIMESTAMP WITH TIME ZONE), \
         CAST((date_trunc('day', now()) + INTERVAL '1 day') AS TIMESTAMP) FROM t",
    );
    check(
        "select a ~ '\\mx\\y', regexp_replace(a, '\\mb', '<\\&>'), quote_nullable(a) from t",
        "SELECT a ~ '\\b{start}x\\b', regexp_replace(a, '\\b{start}b', '<\\&>'), \
         coalesce(quote_literal(a), 'NULL') FROM t",
    );
    check(
        "select jsonb_extract_path_text(a, 'b', 'c d') from t",
        "SELECT json_get_path_text(a, '{\"b\",\"c d\"}') FROM t",
    );
}

#[test]
fn sums_are_divided_with_a_fraction() {
    check(
        "select 100 * count(*) / sum(count(*)) over (), sum(a) / 2, sum(case when a then 1 else 0 end) / count(*), \
         sum(a::int) / 2, (1 + sum(coalesce(a, 0))) / b, avg(a) / 2 from t",
        "SELECT 100 * count(*) / divisor(fractional(sum(count(*)) OVER ())), fractional(sum(a)) / 2, \
         sum(CASE WHEN a THEN 1 ELSE 0 END) / divisor(count(*)), sum(to_whole(a)::INT) / 2, \
         fractional((1 + sum(coalesce(a, 0)))) / divisor(b), avg(a) / 2 FROM t",
    );
}

#[test]
fn intervals_are_made_of_values() {
    check(
        "select make_interval(secs => a, days => 2), make_interval(hours => 1), date(a) from t",
        "SELECT (INTERVAL '1 seconds' * (a) + INTERVAL '2 days'), INTERVAL '1 hours', CAST(a AS DATE) FROM t",
    );
}

#[test]
fn texts_beside_lists_are_lists() {
    check(
        "select coalesce(array_agg(a), '{}'), coalesce(array(select a from t), '{}'), coalesce(a, '{}') from t",
        "SELECT coalesce(array_agg(a), make_array()), \
         coalesce(or_empty((SELECT array_agg(a) FROM t)), make_array()), coalesce(a, '{}') FROM t",
    );
}

#[test]
fn what_has_no_rows_adds_none() {
    check(
        "with recursive c as (select a from t union all select roleid from c join pg_auth_members m on m.member = c.a) \
         select a from c",
        "WITH RECURSIVE c AS (SELECT a FROM t) SELECT a FROM c",
    );
    check(
        "select (select count(1) from u where u.a = t.a order by 1 limit 1) from t",
        "SELECT (SELECT count(1) FROM u WHERE u.a = t.a) FROM t",
    );
    let one = "SELECT (SELECT count(1) FROM u LIMIT 0) FROM t";
    check(one, one);
}

#[test]
fn functions_are_others_written_out() {
    check(
        "select a is distinct from 'no', a is distinct from b from t",
        "SELECT (a = 'no') IS NOT TRUE, a IS DISTINCT FROM b FROM t",
    );
    check(
        "select 1 from t where a is not distinct from 'x' and b is distinct from c",
        "SELECT 1 FROM t WHERE ((a = 'x') IS TRUE) AND b IS DISTINCT FROM c",
    );
    check(
        "select round(a::float8), round(a), round(a::real, 2) from t",
        "SELECT to_whole(a::FLOAT8), round(a), round(a::REAL, 2) FROM t",
    );
    check(
        "select regexp_replace(a, 'x', 'y', 3), regexp_replace(a, 'x', 'y', 1, 0, 'i'), regexp_replace(a, 'x', 'y', 'g') from t",
        "SELECT regexp_replace_from(a, 'x', 'y', 3), regexp_replace_from(a, 'x', 'y', 1, 0, 'i'), \
         regexp_replace(a, 'x', 'y', 'g') FROM t",
    );
    check(
        "select regexp_replace(a, b, 'y', n::int), regexp_replace(a, b, 'y', n, 2), regexp_replace(a, b, 'y', c) from t",
        "SELECT regexp_replace_from(a, b, 'y', to_whole(n)::INT), regexp_replace_from(a, b, 'y', n, 2), \
         regexp_replace(a, b, 'y', c) FROM t",
    );
    check(
        "select generate_subscripts(a, 1) from t",
        "SELECT unnest(generate_series(1, coalesce(CAST(array_length(a, 1) AS BIGINT), 0))) FROM t",
    );
    check(
        "select generate_subscripts(a, 1, true) from t",
        "SELECT unnest(generate_series(coalesce(CAST(array_length(a, 1) AS BIGINT), 0), 1, -1)) FROM t",
    );
    check("select localtime", "SELECT CAST(now() AS TIME)");
    check(
        "select substring(a from E'o(.)b'), substring(a from 'b'::text), substring(a from '2'::int) from t",
        "SELECT array_element(regexp_match(a, '(?s)o(.)b'), 1), array_element(regexp_match(a, 'b'::TEXT), 1), \
         substr(a, '2'::INT) FROM t",
    );
    check(
        "select substring(a from b), substring(a, (t.b)), substr(a, b), substring(a from b + 1), substring(a from b for 2) from t",
        "SELECT substring_from(a, b), substring_from(a, (t.b)), substr(a, b), substr(a, b + 1), substr(a, b, 2) FROM t",
    );
    check(
        "select make_time(a, 15, 23.5) from t",
        "SELECT CAST(CAST(make_date(2000, 1, 1) AS TIMESTAMP) + time_of_day(a, 15, 23.5, true) AS TIME) FROM t",
    );
    check(
        "select make_timestamp(a, 2, 3, 4, 5, b) from t",
        "SELECT (CAST(make_date(a, 2, 3) AS TIMESTAMP) + time_of_day(4, 5, b)) FROM t",
    );
    check("select array_ndims(a) from t", "SELECT CASE WHEN cardinality(a) > 0 THEN array_ndims(a) END FROM t");
    check(
        "select 1 from t where (a, b) not in (select c, d from u)",
        "SELECT 1 FROM t WHERE NOT EXISTS (SELECT 1 FROM (SELECT c, d FROM u) AS \"among rows\" (\"of row 1\", \"of row 2\") \
         WHERE (\"among rows\".\"of row 1\" = (\"t\".a) AND \"among rows\".\"of row 2\" = (\"t\".b)) IS NOT FALSE)",
    );
    check("select extract(timezone from a) from t", "SELECT CASE WHEN (a) IS NOT NULL THEN 0 END FROM t");
    let refused = translated("select '1e400'::float8").unwrap_err();
    assert!(refused.message.contains("is out of range for type"), "{refused}");
    check("select 'Infinity'::float8", "SELECT 'Infinity'::FLOAT8");
}

#[test]
fn dates_begin_at_moments() {
    let moment = |date: &str| format!("CAST({date} AS TIMESTAMP WITH TIME ZONE)");
    check(
        "select date_trunc('month', current_date - 7), generate_series(date '2024-01-01', current_date, '1 day')",
        &format!(
            "SELECT date_trunc('month', {}), unnest(generate_series({}, {}, INTERVAL '1 day'))",
            moment("current_date - 7"),
            moment("DATE '2024-01-01'"),
            moment("current_date")
        ),
    );
    check(
        "select generate_series(current_date - interval '7 days', current_date, '1 day')",
        "SELECT unnest(generate_series(current_date - INTERVAL '7 days', CAST(current_date AS TIMESTAMP), INTERVAL '1 day'))",
    );
    let columns = Arc::new(Schema::new(vec![Field::new("day", DataType::Date32, true)]));
    let entries = vec![TableEntry { schema: "public", name: "t".to_owned(), columns }];
    let (session, none) = (Session::default(), |_: &str| false);
    let ReadStatement::Query(mut query) =
        parse("select date_trunc('month', t.day), date_trunc('month', a) from t", &Params::default())
            .unwrap()
            .statement
    else {
        panic!("no query")
    };
    translate(&mut query, &Catalog::new(entries, &session), &session, &none).unwrap();
    let expected =
        format!("SELECT date_trunc('month', {}), date_trunc('month', a) FROM t", moment("CAST(t.day AS DATE)"));
    assert_eq!(query.to_string(), expected);
}

#[test]
fn parts_of_rows_are_asked_for_and_seconds_are_exact() {
    check(
        "select (a, b + 1) is null, row(a, b) is not null, (a) is null from t",
        "SELECT (a IS NULL AND (b + 1) IS NULL), (a IS NOT NULL AND b IS NOT NULL), (a) IS NULL FROM t",
    );
    check(
        "select to_timestamp(a), to_timestamp(1.5), to_timestamp(15), to_timestamp('2024-01-02') from t",
        "SELECT to_timestamp(exact_seconds(a)), to_timestamp(exact_seconds(1.5)), to_timestamp(15), \
         to_timestamp('2024-01-02') FROM t",
    );
}

#[test]
fn paths_lead_into_documents() {
    check(
        "select a @? '$.b', (a @@ '$.b == 1') = true from t",
        "SELECT jsonb_path_exists(a, '$.b', true), (jsonb_path_match(a, '$.b == 1', true)) = true FROM t",
    );
    check("select jsonb_path_query(a, '$[*]') from t", "SELECT unnest(jsonb_path_items(a, '$[*]')) FROM t");
}

#[test]
fn variances_of_frames_that_move_are_not_below_zero() {
    check(
        "select stddev(a) over (rows 2 preceding), var_pop(a) over w from t \
         window w as (order by b rows 1 preceding)",
        "SELECT sqrt(CASE WHEN var_samp(a) OVER (ROWS 2 PRECEDING) < 0 THEN 0.0 \
         ELSE var_samp(a) OVER (ROWS 2 PRECEDING) END), \
         CASE WHEN var_pop(a) OVER (ORDER BY b ROWS 1 PRECEDING) < 0 THEN 0.0 \
         ELSE var_pop(a) OVER (ORDER BY b ROWS 1 PRECEDING) END FROM t",
    );
    check("select stddev(a) over (order by b) from t", "SELECT stddev(a) OVER (ORDER BY b) FROM t");
    // Frames that end before they begin have no rows.
    check(
        "select sum(a) over (order by b rows between 2 following and 1 following), \
         count(*) over (order by b groups between 1 preceding and 2 preceding), \
         rank() over (order by b rows between 2 following and 1 following) from t",
        "SELECT CASE WHEN false THEN sum(a) OVER (ORDER BY b) ELSE NULL END, \
         CASE WHEN false THEN count(*) OVER (ORDER BY b) ELSE 0 END, rank() OVER (ORDER BY b) FROM t",
    );
    check(
        "select sum(a) over (order by b rows between 1 following and 2 following) from t",
        "SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM t",
    );
    // Nothing is taken out again where frames are made anew.
    check(
        "select stddev(a) over (rows 1 preceding exclude ties) from t",
        "SELECT stddev(a) OVER (PARTITION BY exclude_ties() ROWS 1 PRECEDING) FROM t",
    );
}

#[test]
fn sets_of_keys_are_written_out() {
    let grouped = |by: &str, expected: &str| {
        check(
            &format!("select a as x, b from t group by {by}"),
            &format!("SELECT a AS x, b FROM t GROUP BY {expected}"),
        );
    };
    grouped("rollup(a, b)", "ROLLUP (a, b)");
    grouped("rollup(1, b), 2", "ROLLUP (a, b), 2");
    grouped("rollup(a, (b, c))", "GROUPING SETS ((a, b, c), (a), ())");
    grouped("cube((a, b), c)", "GROUPING SETS ((a, b, c), (c), (a, b), ())");
    grouped("grouping sets (2, rollup(a, b), cube((a, c)))", "GROUPING SETS ((b), (a, b), (a), (), (a, c), ())");
    let many = vec!["(a, b)"; 13].join(", ");
    let error = translated(&format!("select 1 from t group by cube({many})")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
    check(
        "select distinct on (1, 2) a as x, b from t order by 1, b",
        "SELECT DISTINCT ON (x, b) a AS x, b FROM t ORDER BY 1, b",
    );
}

#[test]
fn windows_stand_where_their_names_do() {
    check(
        "select sum(a) over w, sum(a) over (w order by c), sum(a) over (v rows 1 preceding) from t \
         window w as (partition by b), v as (w order by c) order by sum(a) over w",
        "SELECT sum(a) OVER (PARTITION BY b), sum(a) OVER (PARTITION BY b ORDER BY c), \
         sum(a) OVER (PARTITION BY b ORDER BY c ROWS 1 PRECEDING) FROM t ORDER BY sum(a) OVER (PARTITION BY b)",
    );
    check(
        "select sum(a) over w, sum(a) over (v rows 1 preceding exclude ties) from t \
         window w as (order by c rows 1 preceding exclude group), v as (partition by b order by c)",
        "SELECT sum(a) OVER (PARTITION BY exclude_group() ORDER BY c ROWS 1 PRECEDING), \
         sum(a) OVER (PARTITION BY b, exclude_ties() ORDER BY c ROWS 1 PRECEDING) FROM t",
    );
    // Numbers of parameters are cast.
    check(
        "select sum(a) over (order by b rows cast(1 as smallint) preceding) from t",
        "SELECT sum(a) OVER (ORDER BY b ROWS 1 PRECEDING) FROM t",
    );
    // Those of a subquery are its own.
    let refused = |text: &str, said: &str| {
        let error = translated(text).expect_err(text);
        assert!(error.message.contains(said), "{text}: {error}");
    };
    refused("select (select sum(a) over w from t) from t window w as (order by a)", "there is no window `w`");
    refused("select sum(a) over (w) from t", "there is no window `w`");
    refused("select 1 from t window w as (v), v as ()", "there is no window `v`");
    refused("select 1 from t window w as (), w as ()", "several windows `w`");
    refused(
        "select sum(a) over (w) from t window w as (order by a rows 1 preceding)",
        "`w`, which another is built on, has a frame",
    );
    refused("select sum(a) over (w partition by a) from t window w as ()", "leave `PARTITION BY` out");
    refused("select sum(a) over (w order by a) from t window w as (order by b)", "leave `ORDER BY` out");
    let wide = "sum(a) over w, ".repeat(1_100);
    let error = translated(&format!(
        "select {wide} 1 from t window w as (order by a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a)"
    ));
    assert_eq!(error.unwrap_err().kind, ErrorKind::LimitExceeded);
}

#[test]
fn lists_are_in_the_order_of_their_query() {
    let list = |inner: &str| format!("SELECT or_empty((SELECT array_agg({inner}) FROM t))");
    check("select array(select a from t)", &list("a"));
    check("select array(select a from t order by b desc)", &list("a ORDER BY b DESC"));
    check("select array(select a + 1 as c from t order by c)", &list("a + 1 ORDER BY a + 1"));
    check("select array(select a from t order by 1 desc)", &list("a ORDER BY a DESC"));
    for inner in [
        "SELECT a FROM t ORDER BY a LIMIT 2",
        "SELECT DISTINCT a FROM t ORDER BY a",
        "SELECT a FROM t GROUP BY a",
        "SELECT count(*) FROM t",
        "SELECT 1 UNION ALL SELECT a FROM t ORDER BY 1",
        "SELECT row_number() OVER () FROM t",
        "SELECT unnest(a) FROM t",
    ] {
        let list = translated(&format!("select array({inner})")).unwrap();
        assert!(list.starts_with("SELECT or_empty((SELECT array_agg(items.item) FROM (SELECT "), "{list}");
    }
    // What reads the row at hand becomes a join, and the order a matter of the aggregate.
    for (inner, keys) in [
        ("select b from u where u.k > t.k order by c desc limit 2", "items.\"order 1\" DESC"),
        ("select distinct b from u where u.k = t.k order by b desc nulls last", "items.item DESC NULLS LAST"),
        ("select b + 1 as n from u where u.k = t.k group by b order by max(c), n", "items.\"order 1\", items.item"),
        ("select u.b from u where u.k = t.k union select 2 order by 1", "items.item"),
    ] {
        let list = translated(&format!("select array({inner}) from t")).unwrap();
        let gathered = format!("array_agg(items.item ORDER BY {keys})");
        assert!(list.contains(&gathered) && list.contains("\"of rows\""), "{list}");
    }
}

#[test]
fn bytes_have_functions_of_their_own() {
    check(
        r"select '\x6162'::bytea, 'ab'::bytea, 'a\\b'::bytea from t",
        r"SELECT decode('6162', 'hex'), 'ab'::BYTEA, bytes_unescaped('a\\b') FROM t",
    );
    check(
        r"select substring('\x00ff'::bytea from 2 for 1), substring(sha256(a) from 3), position('\xff'::bytea in (decode(a, 'hex'))) from t",
        "SELECT substr(decode('00ff', 'hex'), 2, 1), substr(sha256(a), 3), strpos((decode(a, 'hex')), decode('ff', 'hex')) FROM t",
    );
    check("select substring(a from 2), position('x' in a) from t", "SELECT substr(a, 2), strpos(a, 'x') FROM t");
    // Texts without a type beside bytes are bytes, too.
    check(
        r"select position('\xff' in sha256(a)), trim('\x00' from sha256(a)), ltrim(sha256(a), '\x00'), ltrim(a, 'b') from t",
        "SELECT strpos(sha256(a), decode('ff', 'hex')), TRIM(decode('00', 'hex') FROM sha256(a)), \
         ltrim(sha256(a), decode('00', 'hex')), ltrim(a, 'b') FROM t",
    );
    check(
        "select encode(a, 'escape'), decode(a, 'ESCAPE'), encode(a, 'base64') from t",
        "SELECT bytes_escaped(a), bytes_unescaped(a), encode(a, 'base64pad') FROM t",
    );
    check(
        r"select sha256(a) || 'b' || decode(c, 'hex'), sha256(a)::text, a || 'b' from t",
        r"SELECT sha256(a) || CAST('b' AS BYTEA) || decode(c, 'hex'), ('\x' || encode(sha256(a), 'hex')), a || 'b' FROM t",
    );
}

#[test]
fn what_is_copied_ends() {
    // Subqueries that deep take the stack of the threads that read statements.
    let thread = std::thread::Builder::new().stack_size(32 << 20).spawn(copies);
    thread.expect("a thread").join().expect("it ends");
}

fn copies() {
    let once = "(SELECT \"of set\" = (1) AS \"is it\" FROM (SELECT a FROM t) AS \"set\" (\"of set\")) AS \"found\"";
    let set = translated("select 1 not in (select a from t)").unwrap();
    assert!(set.contains(once), "{set}");
    let sets = translated(&format!("select 1 not in (select 1){}", " not in (select true)".repeat(29))).unwrap();
    assert_eq!(sets.matches("bool_or").count(), 30, "{sets}");
    let error = translated(&format!("select 1 < any ('{{1,2}}'){}", " < any ('{t,f}')".repeat(29))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
    // The parser goes so deep, but not with what is written around it.
    let deep = format!("select {}1{} not in (select 1)", "(".repeat(45), ")".repeat(45));
    let error = translated(&deep).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::LimitExceeded, TOO_DEEP));
}
