//! Sets, documents, lists and subqueries that are written as what the planner knows.

use super::*;

#[test]
fn columns_are_documents_in_their_normal_form() {
    check("select a::jsonb, (a)::jsonb from t", "SELECT json_normal(a::TEXT), json_normal((a)::TEXT) FROM t");
    check(
        "select a::jsonb -> 'b', a::json -> 'b' from t",
        "SELECT json_normal(json_get(a::TEXT, 'b')), json_get(a::TEXT, 'b') FROM t",
    );
    check(
        "select a::jsonb -> 'b' ->> 'c', a::jsonb #>> '{b,c}' from t",
        "SELECT json_get_path_text(json_normal(json_get(json_get(a::TEXT, 'b'), 'c')), '{}'), \
         json_get_path_text(json_normal(json_get_path(a::TEXT, '{b,c}')), '{}') FROM t",
    );
}

#[test]
fn outputs_of_recursive_terms_are_marked() {
    check(
        "with recursive t(n, p, w) as (select 1, null, 'a' union all select n + 1, p, 'b' from t) select n from t",
        "WITH RECURSIVE t (n, p, w) AS (SELECT 1, CAST(NULL AS TEXT) AS \"?column?\", 'a' UNION ALL \
         SELECT recursive_value(n + 1), recursive_value(p), 'b' FROM t) SELECT n FROM t",
    );
    check(
        "with recursive t as (select 1 as a union all (select a from t)) select a from t",
        "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL (SELECT recursive_value(a) FROM t)) SELECT a FROM t",
    );
}

#[test]
fn documents_are_changed() {
    check("select '{}'::jsonb || '[]'::jsonb", "SELECT jsonb_concat(json_normal('{}')::TEXT, json_normal('[]')::TEXT)");
    check(
        "select jsonb_set(a, '{b}', '1') || '{}' from t",
        "SELECT jsonb_concat(jsonb_set(a, '{b}', '1'), '{}') FROM t",
    );
    check(
        "select (a::jsonb -> 'b') - 'c' - 0 from t",
        "SELECT jsonb_less(jsonb_less((json_get(a::TEXT, 'b')), 'c'), 0) FROM t",
    );
    check("select a::jsonb #- '{b}' from t", "SELECT jsonb_less_path(a::TEXT, '{b}') FROM t");
    // Of other types they are what they are.
    check("select a || b, a - b, a::json || b from t", "SELECT a || b, a - b, a::TEXT || b FROM t");
    check("select a || b::jsonb::text from t", "SELECT a || json_normal(b::TEXT)::TEXT FROM t");
    check(
        "select a::jsonb = b, a::jsonb <> '{}', a = b::json from t",
        "SELECT json_alike(a::TEXT) = json_alike(b), json_alike(a::TEXT) <> json_alike('{}'), a = b::TEXT FROM t",
    );
    check(
        "select a::jsonb is distinct from '1' from t",
        "SELECT json_alike(a::TEXT) IS DISTINCT FROM json_alike('1') FROM t",
    );
}

#[test]
fn values_are_compared_with_sets() {
    check("select a = any (select b from u) from t", "SELECT a IN (SELECT b FROM u) FROM t");
    check("select 1 from t where a <> all (select b from u)", "SELECT 1 FROM t WHERE a NOT IN (SELECT b FROM u)");
    check("select 1 from t where a = any ('{1,2}')", "SELECT 1 FROM t WHERE a IN ('1', '2')");
    check("select 1 from t where a > all ('{1,2}')", "SELECT 1 FROM t WHERE (a > '1' AND a > '2')");
    check("select 1 from t where a = any ('{}')", "SELECT 1 FROM t WHERE false");
    let least = translated("select 2 > any (select b from u)").unwrap();
    assert!(least.contains("min(\"of set\")") && !least.contains("ANY"), "{least}");
    let long = format!("select a > any ('{{{}1}}') from t", "1,".repeat(300));
    assert!(translated(&long).unwrap_err().message.contains("301 items"));
    check("select a between symmetric 2 and 1 from t", "SELECT (a BETWEEN 2 AND 1 OR a BETWEEN 1 AND 2) FROM t");
    check(
        "select a not between symmetric b + 1 and 1 from t",
        "SELECT (a NOT BETWEEN b + 1 AND 1 AND a NOT BETWEEN 1 AND b + 1) FROM t",
    );
}

#[test]
fn documents_in_lists_stay_documents() {
    check(
        "select array_to_json(array_agg(row_to_json(h) order by h.time)), array_to_json(array_agg(a)) from hosts h",
        "SELECT json_dense(array_agg(json_row('time', \"h\".\"time\") ORDER BY h.time)), to_json(array_agg(a)) FROM hosts h",
    );
}

#[test]
fn rows_are_counted_where_there_are_some() {
    check("select count(h), count(h.*) from hosts h", "SELECT count(*), count(*) FROM hosts h");
    check(
        "select count(h.time), count(distinct h) from hosts h",
        "SELECT count(h.time), count(DISTINCT h) FROM hosts h",
    );
    check(
        "select count(h) from logs l left join hosts h on true",
        "SELECT count(nullif(\"h\".\"time\" IS NOT NULL, false)) FROM logs l LEFT JOIN hosts h ON true",
    );
}

#[test]
fn parameters_have_types() {
    check("select percentile_cont('0.9'::float8) within group (order by a) from t", "SELECT quantile(a, 0.9) FROM t");
    check("select date_part('month'::text, a) from t", "SELECT date_part('month', a) FROM t");
    check("select substr(a, 2::smallint) from t", "SELECT substr(a, 2::BIGINT) FROM t");
}

#[test]
fn ranks_are_what_their_types_make_of_them() {
    for (q, number) in [("0.95::int", "1"), ("0.3::bigint", "0"), ("0.25::real", "0.25"), ("0.95::numeric", "0.95")] {
        check(
            &format!("select percentile_cont({q}) within group (order by a) from t"),
            &format!("SELECT quantile(a, {number}) FROM t"),
        );
    }
}

#[test]
fn means_of_whole_numbers_are_rounded_away_from_zero() {
    check(
        "select avg(a)::int, (avg(a))::bigint, avg(b::float8)::int from t",
        "SELECT round(avg(a))::INT, round((avg(a)))::BIGINT, to_whole(avg(b::FLOAT8))::INT FROM t",
    );
}

#[test]
fn intervals_are_cut_off() {
    check("select date_trunc('sec', max(a) - min(a)) from t", "SELECT date_trunc('second', max(a) - min(a)) FROM t");
    check(
        "select date_trunc('hour', interval '90 minutes'), date_trunc('minute', avg(a - b)) from t",
        "SELECT date_trunc('hour', INTERVAL '90 minutes'), date_trunc('minute', avg(a - b)) FROM t",
    );
    for text in ["SELECT date_trunc('hour', a - INTERVAL '1 day') FROM t", "SELECT date_trunc('hour', a - 1) FROM t"] {
        check(text, text);
    }
}

#[test]
fn small_functions() {
    check(
        "select num_nulls(a, 1) from t",
        "SELECT CAST(CASE WHEN (a) IS NULL THEN 1 ELSE 0 END + CASE WHEN (1) IS NULL THEN 1 ELSE 0 END AS INTEGER) FROM t",
    );
    check("select array_fill(7, array[2, 3])", "SELECT array_repeat(array_repeat(7, 3), 2)");
    check("select array_fill(7, '{2}')", "SELECT array_repeat(7, 2)");
    check("select '1e3'::numeric(10, 2)", "SELECT '1000'::NUMERIC(10,2)");
    check(
        "select date_trunc('month', a::date) from t",
        "SELECT date_trunc('month', CAST(a::DATE AS TIMESTAMP WITH TIME ZONE)) FROM t",
    );
}

#[test]
fn what_is_distinct_ends_before_other_conditions() {
    check("select a is distinct from b and c from t", "SELECT (a IS DISTINCT FROM b) AND c FROM t");
    let joined = |text: &str| {
        let ReadStatement::Query(mut query) = parse(text, &Params::default()).unwrap().statement else {
            panic!("no query: {text}")
        };
        let aggregates = |_: &str| false;
        translate(&mut query, &catalog(), &Session::default(), &aggregates).unwrap();
        let SetExpr::Select(select) = *query.body else { panic!("no select: {text}") };
        match select.selection {
            Some(Expr::BinaryOp { left, op, right }) => format!("({left}) {op} ({right})"),
            other => panic!("{text}: {other:?}"),
        }
    };
    for (condition, expected) in [
        ("a is distinct from b and c", "((a IS DISTINCT FROM b)) AND (c)"),
        ("a is not distinct from b or c and d", "((a IS NOT DISTINCT FROM b)) OR (c AND d)"),
        ("x and a is distinct from b or c", "(x AND (a IS DISTINCT FROM b)) OR (c)"),
        ("not a is distinct from b and c", "(NOT (a IS DISTINCT FROM b)) AND (c)"),
        (
            "a is distinct from b and c is distinct from d or e",
            "((a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d)) OR (e)",
        ),
    ] {
        assert_eq!(joined(&format!("select 1 from t where {condition}")), expected, "{condition}");
    }
}

#[test]
fn laterals_are_joins() {
    check(
        "select t.a, l.b from t left join lateral (select u.b from u where u.k = t.k and u.n < t.n order by u.n desc limit 1) l \
         on true where t.a > 1 and l.b > 2",
        "SELECT t.a, l.b FROM t LEFT OUTER JOIN (SELECT \"b\", \"key 1\", \"key 2\" FROM (SELECT u.b AS b, \
         \"of rows\".\"key 1\", \"of rows\".\"key 2\", row_number() OVER (PARTITION BY \"of rows\".\"key 1\", \
         \"of rows\".\"key 2\" ORDER BY u.n DESC) AS \"nth row\" FROM (SELECT DISTINCT t.k AS \"key 1\", \
         t.n AS \"key 2\" FROM t WHERE (t.a > 1)) AS \"of rows\", u WHERE u.k = \"of rows\".\"key 1\" AND \
         u.n < \"of rows\".\"key 2\") AS \"numbered\" WHERE \"nth row\" <= 1) AS l (\"b\", \"key 1\", \"key 2\") \
         ON (l.\"key 1\" IS NOT DISTINCT FROM t.k) AND (l.\"key 2\" IS NOT DISTINCT FROM t.n) AND (true) \
         WHERE t.a > 1 AND l.b > 2",
    );
    let starred = translated("select * from t, lateral (select b from u where u.n < t.n limit 2) l").unwrap();
    assert!(starred.starts_with("SELECT \"t\".*, l.\"b\" FROM t INNER JOIN ("), "{starred}");
    let counted =
        translated("select l.c from t cross join lateral (select count(*) c from u where u.n < t.n) l").unwrap();
    assert!(counted.contains("SELECT coalesce(\"grouped\".\"gathered 1\", 0) AS c, "), "{counted}");
    let looked_up =
        translated("select a, (select b from u where u.n < t.n order by u.n desc limit 1) as x from t").unwrap();
    assert!(looked_up.starts_with("SELECT a, \"value 1\".\"value 1\" AS x FROM t LEFT OUTER JOIN ("), "{looked_up}");
    let starred =
        translated("select *, (select max(b) from u where u.n < t.n) as x from t where t.a = (select b from u where u.n > t.n limit 1)")
            .unwrap();
    assert!(starred.starts_with("SELECT \"t\".*, \"value 1\".\"value 1\" AS x FROM t LEFT OUTER JOIN ("), "{starred}");
    assert!(starred.ends_with("WHERE t.a = \"value 2\".\"value 2\""), "{starred}");
    for other in [
        "select l.x from t cross join lateral (select max(c.a) x from pg_catalog.pg_constraint c where c.n < t.n) l",
        "select l.x from t cross join lateral (select unnest(u.l) x from u where u.n < t.n limit 1) l",
        "select l.x from t cross join lateral (select count(*) x from u where u.n < t.n group by grouping sets ((), ())) l",
        "select l.x from t cross join lateral (select count(*) x from u where u.n < t.n group by rollup (t.n)) l",
        "select l.x from t cross join lateral (select max(u.b) + (select 1) x from u where u.n < t.n) l",
        "select l.x from t cross join lateral (select distinct u.b x from u where u.n < t.n order by u.c limit 1) l",
    ] {
        assert!(!translated(other).unwrap().contains("of rows"), "{other}");
    }
    let windowed =
        "select l.x from t cross join lateral (select lag(u.b) over (order by u.n) x from u where u.n < t.n limit 1) l";
    let windowed = translated(windowed).unwrap();
    assert!(windowed.contains("(PARTITION BY \"of rows\".\"key 1\" ORDER BY u.n)"), "{windowed}");
    let beside = translated("select l.x from t cross join lateral (select u.b, t.x from u where u.k = t.k) l").unwrap();
    assert!(beside.contains("\"of rows\".\"key 1\" AS x") && beside.ends_with("IS NOT DISTINCT FROM t.k)"), "{beside}");
    check(
        "select l.x from t cross join lateral (select t.x) l",
        "SELECT l.x FROM t CROSS JOIN LATERAL (SELECT t.x AS x) l",
    );
    // The planner takes these.
    for plain in [
        "select 1 from t cross join lateral (select u.b from u where u.k = t.k) l",
        "select 1 from t cross join lateral (select distinct u.b from u where u.k = t.k) l",
        "select 1 from t cross join lateral (select max(u.b) from u where u.k = t.k limit 1) l",
    ] {
        let found = translated(plain).unwrap();
        assert!(found.contains("LATERAL") && !found.contains("LIMIT"), "{found}");
    }
}

#[test]
fn rows_of_laterals_that_stand_for_several_are_of_one_row_at_hand() {
    let rows = |subquery: &str| {
        let found = translated(&format!("select 1 from t cross join lateral ({subquery}) l")).unwrap();
        let (_, rows) = found.split_once(" AS \"nth row\" FROM (").expect("numbered rows");
        rows.split_once(") AS \"windowed\") AS \"numbered\"").expect("numbered rows").0.to_owned()
    };
    let tables = "FROM (SELECT DISTINCT t.n AS \"key 1\" FROM t) AS \"of rows\", u WHERE u.n < \"of rows\".\"key 1\"";
    assert_eq!(
        rows("select distinct u.b, u.c from u where u.n < t.n order by c desc limit 2"),
        format!("SELECT DISTINCT u.b AS b, u.c AS c, \"of rows\".\"key 1\", (u.c) AS \"order 1\" {tables}")
    );
    assert_eq!(
        rows(
            "select u.b, count(*) n from u where u.n < t.n group by u.b, t.n having count(*) > t.n order by n limit 1"
        ),
        format!(
            "SELECT u.b AS b, count(*) AS n, \"of rows\".\"key 1\", (count(*)) AS \"order 1\" {tables} \
             GROUP BY \"of rows\".\"key 1\", u.b HAVING count(*) > \"of rows\".\"key 1\""
        )
    );
    let looked_up = "select (select distinct b from u where u.n < t.n order by b limit 1) from t";
    assert!(translated(looked_up).unwrap().contains("SELECT DISTINCT b AS \"value 1\""));
    // Several groups are several values.
    let several = "select (select count(*) from u where u.n < t.n group by u.b) from t";
    assert!(!translated(several).unwrap().contains("of rows"));
}

#[test]
fn laterals_of_no_rows_give_what_is_made_of_none() {
    let of = |subquery: &str| {
        let found = translated(&format!("select 1 from t cross join lateral ({subquery}) l")).unwrap();
        let (_, rows) = found.split_once("INNER JOIN (").expect("a join");
        rows.split_once(") AS l (").expect("a join").0.to_owned()
    };
    let values = "(SELECT DISTINCT t.n AS \"key 1\" FROM t) AS \"of rows\"";
    let same = "(\"grouped\".\"key 1\" IS NOT DISTINCT FROM \"of rows\".\"key 1\")";
    let tables = format!("{values}, u WHERE u.n < \"of rows\".\"key 1\" GROUP BY \"of rows\".\"key 1\"");
    assert_eq!(
        of("select count(*) + 1 as c, 'k' as k, max(u.b) as m from u where u.n < t.n having count(*) < 3"),
        format!(
            "SELECT CASE WHEN \"grouped\".\"gathered 1\" IS NULL THEN coalesce(\"grouped\".\"gathered 1\", 0) + 1 \
             ELSE \"grouped\".\"gathered 2\" END AS c, 'k' AS k, \"grouped\".\"gathered 3\" AS m, \
             \"of rows\".\"key 1\" FROM {values} LEFT JOIN (SELECT count(*) AS \"gathered 1\", count(*) + 1 AS \
             \"gathered 2\", max(u.b) AS \"gathered 3\", count(*) < 3 AS \"gathered 4\", \"of rows\".\"key 1\" \
             FROM {tables}) AS \"grouped\" ON {same} WHERE CASE WHEN \"grouped\".\"gathered 1\" IS NULL THEN \
             coalesce(\"grouped\".\"gathered 1\", 0) < 3 ELSE \"grouped\".\"gathered 4\" END"
        )
    );
    let rolled = "select u.b as g, count(*), grouping(u.b) as r from u where u.n < t.n group by rollup (g)";
    assert_eq!(
        of(rolled),
        format!(
            "SELECT \"grouped\".\"gathered 1\" AS g, coalesce(\"grouped\".\"gathered 2\", 0) AS \"count\", \
             coalesce(\"grouped\".\"gathered 3\", 1) AS r, \"of rows\".\"key 1\" FROM {values} LEFT JOIN \
             (SELECT u.b AS \"gathered 1\", count(*) AS \"gathered 2\", grouping(u.b) AS \"gathered 3\", \
             \"of rows\".\"key 1\" FROM {tables}, ROLLUP (u.b)) AS \"grouped\" ON {same}"
        )
    );
    // The planner would have NULL in the place of what is no aggregate.
    for constant in
        ["select 'k' as k, count(*) from u where u.k = t.k", "select 1 as k from u where u.k = t.k group by ()"]
    {
        assert!(of(constant).contains("\"of rows\""), "{constant}");
    }
    let misread = "select (select 'k' from u where u.k = t.k having count(*) = 0) from t";
    assert!(translated(misread).unwrap().contains("\"of rows\""));
    check(
        "select 1 from t where 0 not in (select count(*) from u where u.k = t.k)",
        "SELECT 1 FROM t WHERE ((0) <> (SELECT count(*) FROM u WHERE u.k = t.k))",
    );
}

#[test]
fn laterals_take_some_rows_of_each() {
    let join = |table: &str| {
        let found = translated(&format!("select 1 from t cross join {table}")).unwrap();
        found.strip_prefix("SELECT 1 FROM t ").expect("a join").to_owned()
    };
    let first = join("lateral (select distinct on (u.b) u.b, u.c from u where u.n < t.n order by u.b desc, u.c) l");
    assert!(
        first.contains(
            "(SELECT DISTINCT ON (\"of rows\".\"key 1\", u.b) u.b AS b, u.c AS c, \"of rows\".\"key 1\" FROM "
        ) && first.contains(" ORDER BY \"of rows\".\"key 1\", u.b DESC, u.c) AS l ("),
        "{first}"
    );
    let sets = join("lateral (select u.b from u where u.n < t.n except (select t.n limit 1) order by 1 limit 2) l");
    assert!(
        sets.contains("ORDER BY \"b\") AS \"nth row\" FROM ((SELECT u.b AS b, \"of rows\".\"key 1\" FROM "),
        "{sets}"
    );
    let ties = join("lateral (select u.b from u where u.n < t.n order by u.c fetch first 1 row with ties) l");
    assert!(ties.contains("rank() OVER (PARTITION BY \"of rows\".\"key 1\" ORDER BY u.c) AS \"rank of\""), "{ties}");
    let all = join("lateral (select u.b from u where u.n < t.n limit null::int offset 1) l");
    assert!(all.contains(" IS NOT FALSE AND \"nth row\" > 1) AS l ("), "{all}");
    let bounded = join("lateral (select u.b from u order by u.c limit t.n + 1 offset t.m) l");
    for part in ["(\"nth row\" <= CAST(", "\"numbered\".\"key 1\" + 1", " AND \"nth row\" > coalesce(CAST("] {
        assert!(bounded.contains(part), "{bounded}");
    }
    let joined = join("lateral (select u.b from u join v on v.k = t.k where u.n < t.n) l");
    assert!(joined.contains("AS \"of rows\" CROSS JOIN u JOIN v ON v.k = \"of rows\".\"key 1\" WHERE "), "{joined}");
    assert_eq!(
        join("lateral (values ('a', t.a), ('b', t.b)) as l (name)"),
        "CROSS JOIN UNNEST(make_array('a', 'b'), make_array(t.a, t.b)) AS l (name, column2)"
    );
    assert_eq!(join("unnest(array[t.a, 1]) as l (n)"), "CROSS JOIN UNNEST(make_array(t.a, 1)) AS l (n)");
}

#[test]
fn look_ups_stand_in_many_places() {
    for (text, begin) in [
        (
            "select (select count(*) from u where u.k = t.k) as c, count(*) from t group by c",
            "SELECT \"value 1\".\"value 1\" AS c, count(*) FROM t LEFT OUTER JOIN (",
        ),
        (
            "select (select b from u where u.n < t.n and u.m > t.n) as x from t",
            "SELECT sole(\"value 1\".\"value 1\") AS x FROM t LEFT OUTER JOIN (",
        ),
        (
            "select array(select b from u where u.n < t.n order by b) as x from t",
            "SELECT or_empty(\"value 1\".\"value 1\") AS x FROM t LEFT OUTER JOIN (",
        ),
        (
            "select a from t, v where (select count(*) from u where u.n < t.n) = v.n",
            "SELECT a FROM t CROSS JOIN v LEFT OUTER JOIN (",
        ),
        (
            "select a from t order by (select count(*) from u where u.n < t.n), a",
            "SELECT a FROM (SELECT a, \"value 1\".\"value 1\" AS \"order 1\" FROM t LEFT OUTER JOIN (",
        ),
        (
            "select (select b from u where u.k = t.k order by b limit 1 offset 1) as x from t",
            "SELECT \"value 1\".\"value 1\" AS x FROM t LEFT OUTER JOIN (",
        ),
        (
            "select (select count(*) from (select b from u where u.k = t.k limit 3) q) as x from t",
            "SELECT \"value 1\".\"value 1\" AS x FROM t LEFT OUTER JOIN (",
        ),
    ] {
        let found = translated(text).unwrap();
        assert!(found.starts_with(begin), "{found}");
    }
    check("select (select t.a in (select b from u)) from t", "SELECT (t.a IN (SELECT b FROM u)) FROM t");
    check("select max((select t.a + 1)) from t", "SELECT max((t.a + 1)) FROM t");
    for stays in ["select (select max(t.a)) from t", "select (select unnest(t.a)) from t"] {
        assert!(translated(stays).is_err() || translated(stays).unwrap().contains("(SELECT"), "{stays}");
    }
    // The order of rows that are joined is lost, so the list is put in order again.
    let ordered = translated("select array(select b from u where u.n < t.n order by b limit 2) from t").unwrap();
    assert!(ordered.contains("array_agg(items.item ORDER BY items.item)"), "{ordered}");
}

#[test]
fn values_are_compared_with_rows_of_the_row_at_hand() {
    for (condition, value) in [
        (
            "t.a not in (select u.b from u where u.k = t.k)",
            "CASE WHEN NOT bool_and((\"of rows\".\"key 1\" <> u.b)) THEN false",
        ),
        ("t.a > all (select u.b from u where u.k = t.k)", "NOT bool_and((\"of rows\".\"key 1\" > u.b)) THEN false"),
        ("t.a < any (select u.b from u where u.k = t.k)", "bool_or((\"of rows\".\"key 1\" < u.b)) THEN true"),
        ("not (t.a in (select u.b from u where u.k = t.k))", "bool_or((\"of rows\".\"key 1\" = u.b)) THEN true"),
        (
            "t.a in (select u.b from u where u.k = t.k limit 1)",
            "bool_or((\"of rows\".\"key 1\" = (\"of set\"))) THEN true",
        ),
    ] {
        let found = translated(&format!("select 1 from t where {condition}")).unwrap();
        let plain = found.replace("(\"of rows\".\"key 1\")", "\"of rows\".\"key 1\"").replace("(u.b)", "u.b");
        assert!(plain.contains(value), "{condition}: {plain}");
    }
    // The planner makes joins of these.
    for joined in [
        "SELECT 1 FROM t WHERE t.a IN (SELECT u.b FROM u WHERE u.k = t.k) OR t.b",
        "SELECT 1 FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n < t.n)",
        "SELECT 1 FROM t WHERE t.a NOT IN (SELECT b FROM u)",
    ] {
        check(joined, joined);
    }
    check("select 1 from t where not exists (select max(b) from u where u.k = t.k)", "SELECT 1 FROM t WHERE false");
    for left in ["exists (select 1 from u where u.k = t.k offset 1)", "t.a not in (select b from u where u.k = t.k)"] {
        assert!(translated(&format!("select 1 from t where {left}")).unwrap().contains("\"value 1\""), "{left}");
        let refused = translated(&format!("select t.k from t group by t.k having {left}")).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unsupported, "{left}");
    }
}

#[test]
fn conditions_of_joins_ask_of_the_row_at_hand() {
    let greatest = "u.n = (select max(v.n) from v where v.k = t.k)";
    let inner = translated(&format!("select 1 from t join u on u.k = t.k and {greatest} where t.a")).unwrap();
    assert!(inner.starts_with("SELECT 1 FROM t JOIN u ON (u.k = t.k) WHERE (u.n = (SELECT "), "{inner}");
    assert!(inner.ends_with(") AND (t.a)"), "{inner}");
    let left = format!("with u as (select 1 as k, 2 as n) select 1 from t left join u on u.k = t.k and {greatest}");
    let left = translated(&left).unwrap();
    assert!(left.contains(" LEFT OUTER JOIN (SELECT \"u\".*, \"of rows\".\"key 1\" FROM "), "{left}");
    // The data may give a table more columns than are known: those that are read.
    let data = translated(&format!("select 1 from t left join hosts u on u.k = t.k and {greatest}")).unwrap();
    let outputs = ["time", "k", "n"].map(|column| format!("\"u\".\"{column}\" AS \"{column}\", ")).concat();
    assert!(data.contains(&format!(" LEFT OUTER JOIN (SELECT {outputs}\"of rows\".\"key 1\" FROM ")), "{data}");
    let shown = translated(&format!("select u.* from t left join hosts u on u.k = t.k and {greatest}")).unwrap();
    assert!(shown.contains("LEFT JOIN hosts u ON u.k = t.k AND "), "{shown}");
    // What is searched in a subquery is of the right side for the planner.
    let left = "with u as (select 1 as k) select 1 from t left join u on u.k = t.k and t.a in (select b from v)";
    let left = translated(left).unwrap();
    assert!(left.contains(" LEFT OUTER JOIN (SELECT \"u\".*, \"of rows\".\"key 1\""), "{left}");
    let right = "SELECT 1 FROM t LEFT JOIN u ON u.k IN (SELECT b FROM v)";
    check(right, right);
}

#[test]
fn functions_of_rows_name_and_number_their_columns() {
    check(
        "select * from generate_series(1, 3)",
        "SELECT * FROM generate_series(1, 3) AS \"generate_series\" (\"generate_series\")",
    );
    check("select * from generate_series(1, 3) g", "SELECT * FROM generate_series(1, 3) g (g)");
    check("select value from generate_series(1, 3)", "SELECT value FROM generate_series(1, 3)");
    check(
        "select * from unnest(array['a']) with ordinality",
        "SELECT * FROM UNNEST(ARRAY['a'], generate_series(1, CAST(array_length(ARRAY['a']) AS BIGINT))) \
         AS \"unnest\" (\"unnest\", \"ordinality\")",
    );
    check(
        "select * from unnest(a, b) with ordinality as t(x, y, n)",
        "SELECT * FROM UNNEST(a, b, generate_series(1, CAST(greatest(array_length(a), array_length(b)) AS BIGINT))) \
         AS t (x, y, n)",
    );
    check("select * from unnest(a, b)", "SELECT * FROM UNNEST(a, b) AS \"unnest\" (\"unnest\", \"unnest_2\")");
    check("select g from t, generate_series(1, t.n) g", "SELECT g FROM t, UNNEST(generate_series(1, t.n)) g (g)");
}

#[test]
fn rows_are_looked_for_in_subqueries() {
    let rows = "(SELECT 1 FROM (SELECT c, d FROM u) AS \"among rows\" (\"of row 1\", \"of row 2\")";
    let equal = "\"among rows\".\"of row 1\" = (\"t\".a) AND \"among rows\".\"of row 2\" = (\"t\".b)";
    check(
        "select 1 from t where a = 1 or (a, b) = any (select c, d from u)",
        &format!("SELECT 1 FROM t WHERE a = 1 OR EXISTS {rows} WHERE {equal})"),
    );
    check(
        "select 1 from t where not (a = 1 or (a, b) in (select c, d from u))",
        &format!("SELECT 1 FROM t WHERE NOT (a = 1 OR EXISTS {rows} WHERE ({equal}) IS NOT FALSE))"),
    );
    check(
        "select 1 from t where a = 1 or not (a, b) not in (select c, d from u)",
        &format!("SELECT 1 FROM t WHERE a = 1 OR NOT NOT EXISTS {rows} WHERE {equal})"),
    );
    let found = translated("select (a, b) not in (select c, d from u) as x from t").unwrap();
    let begin = format!("SELECT CASE WHEN {} WHERE {equal}) THEN false WHEN ", rows.replacen('1', "count(*) > 0", 1));
    assert!(
        found.starts_with(&begin) && found.contains(" THEN CAST(NULL AS BOOLEAN) ELSE true END AS x FROM t"),
        "{found}"
    );
    // What reads the row at hand besides is a join.
    for correlated in ["u.k = t.k", "u.k > t.k"] {
        let text = format!("select 1 from t where (a, b) in (select c, d from u where {correlated})");
        let found = translated(&text).unwrap();
        assert!(found.contains("\"of rows\".\"key 1\"") && !found.contains("EXISTS"), "{found}");
    }
    let rows_of = |from: &str, row: &str| {
        let found = translated(&format!("select 1 from {from} where {row} in (select c, d from u)")).unwrap();
        let (_, equal) = found.split_once("\"of row 2\") WHERE ").expect("a comparison");
        equal.replace("\"among rows\".\"of row ", "\"").trim_end_matches(')').to_owned()
    };
    for (from, row, expected) in [
        // A table may be called as it likes.
        ("rows", "(a, b)", "\"1\" = (\"rows\".a) AND \"2\" = (\"rows\".b"),
        ("(select 1 as x) v, (select 2 as y) w", "(x, y)", "\"1\" = (\"v\".x) AND \"2\" = (\"w\".y"),
        ("logs l, (select 1 as x) v", "(x, level)", "\"1\" = (\"v\".x) AND \"2\" = (\"l\".level"),
        ("logs l join hosts h on true", "(upper(level), h.x)", "\"1\" = (upper(\"l\".level)) AND \"2\" = (h.x"),
        // The planner tells of names that several tables have.
        ("(select 1 as x) v, (select 2 as x) w", "(x, 1)", "\"1\" = (x) AND \"2\" = (1"),
    ] {
        assert_eq!(rows_of(from, row), expected, "{from}: {row}");
    }
    // What reads no row at hand is asked once; a member that is written again is of the same subquery.
    let record = "(SELECT named_struct('f1', \"of row 1\", 'f2', \"of row 2\") FROM (SELECT c, d FROM u) AS \"among rows\" \
                  (\"of row 1\", \"of row 2\"))";
    check(
        "select (a, b) = (select c, d from u) from t",
        &format!("SELECT (a = (get_field({record}, 'f1')) AND b = (get_field({record}, 'f2'))) FROM t"),
    );
    let record = "(SELECT named_struct('f1', c, 'f2', max(d)) FROM u WHERE u.k = t.k GROUP BY c)";
    check(
        "select row(t.a, 1) = (select c, max(d) from u where u.k = t.k group by c) from t",
        &format!("SELECT (t.a = (get_field({record}, 'f1')) AND 1 = (get_field({record}, 'f2'))) FROM t"),
    );
    let limited = translated("select (t.a, 1) = (select c, d from u where u.k = t.k limit 1) from t").unwrap_err();
    assert_eq!(limited.kind, ErrorKind::Unsupported, "{limited}");
}

#[test]
fn limits_of_subqueries_are_numbers_of_rows() {
    let found = translated("with c as (select 2 as n) select a, a from t order by b limit (select n from c)").unwrap();
    let begin = "WITH c AS (SELECT 2 AS n) SELECT * EXCLUDE (\"number of\") FROM (SELECT *, row_number() OVER () AS \
                 \"number of\" FROM (SELECT a, a FROM t ORDER BY b) AS \"bounded\") AS \"numbered\" WHERE ";
    assert!(found.starts_with(begin) && found.ends_with(" ORDER BY \"number of\""), "{found}");
    assert!(found.contains("row_bound(CAST(") && found.contains(" AS BIGINT), 'LIMIT')"), "{found}");
    check("select a from t limit 2 offset 1", "SELECT a FROM t LIMIT 2 OFFSET 1");
    check("select a from t limit (select -2) offset (select 1 as n)", "SELECT a FROM t LIMIT -2 OFFSET 1");
}

#[test]
fn a_having_makes_one_group() {
    check("select 1 from t having true", "SELECT 1 FROM t HAVING true AND count(*) >= 0");
    check("select 1 from t having 1 > 2 or 1 = 1", "SELECT 1 FROM t HAVING (1 > 2 OR 1 = 1) AND count(*) >= 0");
    check("select count(*) from t having true", "SELECT count(*) FROM t HAVING true");
    check("select 1 from t having max(a) > 1", "SELECT 1 FROM t HAVING max(a) > 1");
    check("select a from t group by a having true", "SELECT a FROM t GROUP BY a HAVING true");
}
