//! Rows in statements that are put in other words: compared, in lists, of sets, and with ties.

use super::*;

#[test]
fn rows_are_compared_part_by_part() {
    check("select 1 from t where (a, b) = (5, c + 1)", "SELECT 1 FROM t WHERE (a = 5 AND b = (c + 1))");
    check(
        "select (a, b, c) >= (1, 2, 3), (a, b) <> (1, 2) from t",
        "SELECT (a > 1 OR (a = 1 AND (b > 2 OR (b = 2 AND (c >= 3))))), (a <> 1 OR b <> 2) FROM t",
    );
    check(
        "select 1 from t where (a, b) in ((1, -2), (3, 4)) and (a, b) in ((1, 2))",
        "SELECT 1 FROM t WHERE ((a = 1 AND b = (-2)) OR (a = 3 AND b = 4)) AND (a = 1 AND b = 2)",
    );
    check("select (a, b) not in ((1, -2)) from t", "SELECT (a <> 1 OR b <> (-2)) FROM t");
    check(
        "select row(a, null) = row(1, b), (a, b) < row(1, 2), row(a, b) in ((1, 2)) from t",
        "SELECT (a = 1 AND NULL = b), (a < 1 OR (a = 1 AND (b < 2))), (a = 1 AND b = 2) FROM t",
    );
    for wrong in
        ["(1, 2) < (1, 2, 3)", "(1, 2) = (select 1)", "(1, 2) in (select 1, 2, 3)", "(1, 2) in ((1, 2), (1, 2, 3))"]
    {
        let error = translated(&format!("select {wrong}")).unwrap_err();
        assert!(error.message.contains("parts cannot be compared"), "{wrong}: {error}");
    }
}

#[test]
fn rows_in_long_lists_are_null_where_they_are_not_known() {
    let long = |item: &str, more: usize| format!("(a, b) in ({item}{})", ", (1, 2)".repeat(more));
    let of = |condition: &str| translated(&format!("select 1 from t where {condition}")).unwrap();
    // The planner looks rows up in long ones, where what is not known is as good as false.
    for condition in
        [long("(3, 4)", 300), format!("c = 1 or (c = 2 and {})", long("(3, 4)", 300)), long("(3, 4)", 2000)]
    {
        let found = of(&condition);
        assert!(found.contains("struct(a, b) IN ((3, 4), (1, 2)"), "{found}");
    }
    let cased = translated(&format!("select case when {} then 1 end from t", long("(3, 4)", 300))).unwrap();
    assert!(cased.contains("struct(a, b) IN ((3, 4), (1, 2)"), "{cased}");
    // Elsewhere each row is compared: what is not known stays so.
    for condition in [
        long("(3, null)", 300),
        long("(3, c + 1)", 300),
        format!("not {}", long("(3, 4)", 300)),
        format!("not (c = 1 and {})", long("(3, 4)", 300)),
        format!("({}) is null", long("(3, 4)", 300)),
        long("(3, 4)", 199),
    ] {
        let found = of(&condition);
        assert!(found.contains("(a = 3 AND b = ") && !found.contains("struct("), "{condition}: {found}");
    }
    let twice = of(&format!("not not {}", long("(3, 4)", 300)));
    assert!(twice.contains("struct(a, b) IN"), "{twice}");
    let output = translated(&format!("select {} from t", long("(3, 4)", 300))).unwrap();
    assert!(output.contains("(a = 3 AND b = 4)"), "{output}");
    for refused in [format!("not {}", long("(3, 4)", 1000)), format!("({}) is null", long("(3, 4)", 1000))] {
        let error = translated(&format!("select 1 from t where {refused}")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
        assert!(error.message.starts_with("a list of 1001 rows is too long"), "{error}");
    }
}

#[test]
fn sets_of_different_rows_have_a_name() {
    for set in ["SELECT 1 UNION SELECT b FROM u", "SELECT DISTINCT b FROM u", "SELECT b FROM u EXCEPT SELECT 2"] {
        check(
            &format!("SELECT 1 FROM t WHERE a IN ({set}) OR a = 7"),
            &format!("SELECT 1 FROM t WHERE a IN (SELECT \"of set\" FROM ({set}) AS \"set\" (\"of set\")) OR a = 7"),
        );
    }
    for same in [
        "SELECT 1 FROM t WHERE a IN (SELECT b FROM u UNION ALL SELECT 2)",
        "SELECT 1 FROM t WHERE a IN (SELECT b FROM u)",
        "SELECT 1 FROM t WHERE a IN (SELECT DISTINCT * FROM u)",
        "SELECT 1 FROM t WHERE a IN (SELECT DISTINCT b FROM u WHERE u.c = t.c)",
    ] {
        check(same, same);
    }
    // Its texts are not printed and read again.
    let escaped = translated(r"select 1 from t where a in (select distinct b from u where c = 'it\''s')").unwrap();
    assert!(escaped.contains("\"of set\""), "{escaped}");
}

#[test]
fn rows_beside_texts_are_texts() {
    check("select (a, b) || 'x' from t", "SELECT CAST(struct(a, b) AS TEXT) || 'x' FROM t");
    check(
        "select concat('x', (a, 1), b), concat_ws(',', (a, 1)) from t",
        "SELECT concat('x', CAST(struct(a, 1) AS TEXT), b), concat_ws(',', CAST(struct(a, 1) AS TEXT)) FROM t",
    );
}

#[test]
fn rows_in_values_are_lists() {
    check(
        "select (a, b) in (values (1, 2), (3, c)), (a, b) not in (values (1, 2)) from t",
        "SELECT ((a = 1 AND b = 2) OR (a = 3 AND b = c)), (a <> 1 OR b <> 2) FROM t",
    );
    assert!(translated("select (a, b) in (values (1, 2, 3)) from t").is_err());
    let limited = translated("select (a, b) in (values (1, 2) limit 1) from t").unwrap();
    assert!(limited.contains("LIMIT 1"), "these are no list: {limited}");
}

#[test]
fn rows_of_lists_are_in_any_order() {
    check(
        "with c as (select 1) select a as x, unnest(b) as y from t order by c desc, x limit 2",
        "WITH c AS (SELECT 1) SELECT x, y FROM (SELECT a AS x, unnest(b) AS y, c AS \"order 1\" FROM t) AS \"rows of it\" \
         ORDER BY \"order 1\" DESC, x LIMIT 2",
    );
    for same in [
        "SELECT a AS x, unnest(b) AS y FROM t ORDER BY x, 2",
        "SELECT a AS x FROM t ORDER BY b",
        "SELECT *, unnest(b) AS y FROM t ORDER BY c",
    ] {
        assert!(!translated(same).unwrap().contains("rows of it"), "{same}");
    }
    check("select log(a), log(2, b) from t", "SELECT log10(a), log(2, b) FROM t");
}

#[test]
fn rows_of_sets_are_counted() {
    let side = |of: &str, name: &str| {
        format!(
            "SELECT \"of set 1\", row_number() OVER (PARTITION BY \"of set 1\") AS \"of set\" FROM \
             (SELECT {name} FROM {of}) AS side (\"of set 1\")"
        )
    };
    for op in ["EXCEPT", "INTERSECT"] {
        check(
            &format!("select a from t {op} all select b from u order by a"),
            &format!("SELECT \"of set 1\" AS a FROM ({} {op} {}) AS sides ORDER BY a", side("t", "a"), side("u", "b")),
        );
    }
    let once = "SELECT a FROM t EXCEPT SELECT b FROM u";
    check(once, once);
}

#[test]
fn rows_with_subqueries_are_selects() {
    check("values (1), (2)", "VALUES (1), (2)");
    check(
        "values (1, 'a'), (2, 'b'), ((select 5), 'c'), (4, 'd') limit 3",
        "SELECT \"column1\", \"column2\" FROM (VALUES (1, 'a', 0), (2, 'b', 1) UNION ALL \
         SELECT (SELECT 5) AS \"column1\", 'c' AS \"column2\", 2 AS \"of row\" UNION ALL \
         VALUES (4, 'd', 3)) AS \"values\" (\"column1\", \"column2\", \"of row\") ORDER BY \"of row\" LIMIT 3",
    );
    // An order of its own stays, and so does the fault of rows of different lengths.
    check(
        "values ((select 1)) order by 1 desc",
        "SELECT \"column1\" FROM (SELECT (SELECT 1) AS \"column1\", 0 AS \"of row\") AS \"values\" \
         (\"column1\", \"of row\") ORDER BY 1 DESC",
    );
    check("values ((select 1)), (2, 3)", "VALUES ((SELECT 1)), (2, 3)");
    check("select 1 where 2 in (values ((select 2)))", "SELECT 1 WHERE 2 IN ((SELECT 2))");
}

#[test]
fn rows_of_constants_are_values() {
    check(
        "select 1 as a, date '2024-01-01' as b union all select -2, null union all (values (3, null))",
        "SELECT \"column1\" AS a, \"column2\" AS b FROM (VALUES (1, DATE '2024-01-01'), (-2, NULL)) \
         AS \"values\" (\"column1\", \"column2\") UNION ALL (VALUES (3, NULL))",
    );
    check(
        "select x from (select 'a' as x union all select 'b' union all select 'c') as v",
        "SELECT x FROM (SELECT \"column1\" AS x FROM (VALUES ('a'), ('b'), ('c')) AS \"values\" (\"column1\")) AS v",
    );
    for same in [
        "SELECT 1 AS a UNION ALL SELECT DATE '2024-01-01'",
        "SELECT 1 AS a UNION SELECT 2",
        "SELECT 1 AS a UNION ALL SELECT b FROM t",
        "SELECT 1 AS a UNION ALL SELECT 2, 3",
        "SELECT 1 AS a UNION ALL SELECT DISTINCT 2",
    ] {
        check(same, same);
    }
}

#[test]
fn ranks_of_values_are_counts() {
    check(
        "select rank(a) within group (order by b) filter (where c) from t",
        "SELECT (count(*) FILTER (WHERE (c) AND ((b) < (a) OR ((a) IS NULL AND (b) IS NOT NULL))) + 1) FROM t",
    );
    check(
        "select dense_rank(1) within group (order by b desc) from t",
        "SELECT (count(DISTINCT struct(b)) FILTER (WHERE ((b) > (1) OR ((b) IS NULL AND (1) IS NOT NULL))) + 1) FROM t",
    );
    let wrong = translated("select cume_dist(1, 2) within group (order by b) from t").unwrap_err();
    assert!(wrong.message.contains("a value for each of the 1 that it orders by, not 2"), "{wrong}");
    check("select rank() over (order by a) from t", "SELECT rank() OVER (ORDER BY a) FROM t");
}

#[test]
fn rows_with_ties_are_ranked() {
    let keys = "ORDER BY (a + 1) DESC, (b)";
    check(
        "select a + 1 as x, b from t order by x desc, b offset 1 fetch first 2 rows with ties",
        &format!(
            "SELECT * EXCLUDE (\"rank of\", \"row of\") FROM (SELECT a + 1 AS x, b, rank() OVER ({keys}) AS \"rank of\", \
             row_number() OVER ({keys}) AS \"row of\" FROM t) AS \"tied\" \
             WHERE \"rank of\" <= (1) + (2) AND \"row of\" > (1) AND (2) > 0 ORDER BY \"row of\""
        ),
    );
    assert!(
        translated("select a from t order by 1 fetch first row with ties").unwrap().contains("OVER (ORDER BY (a))")
    );
    for (text, said) in [
        ("select a from t fetch first row with ties", "needs an `ORDER BY`"),
        ("select distinct a from t order by a fetch first row with ties", "without `DISTINCT`"),
        ("select a from t union select 1 order by 1 fetch first row with ties", "one select"),
        ("select *, a from t order by 2 fetch first row with ties", "write that of the output"),
        ("select a from t order by 5 fetch first row with ties", "write that of the output"),
        ("select a from t order by a fetch first 5 percent rows only", "`PERCENT`"),
    ] {
        let error = translated(text).expect_err(text);
        assert!(error.message.contains(said), "{text}: {error}");
    }
}

#[test]
fn tables_are_rows_of_their_columns() {
    check(
        "select l, l is null from logs l order by l desc, l.time",
        "SELECT json_row('time', \"l\".\"time\") AS l, (\"l\".\"time\" IS NULL) FROM logs l \
         ORDER BY \"l\".\"time\" DESC, l.time",
    );
    check(
        "select l as r, row_to_json(h) from logs l left join hosts h on true where h is not null order by r",
        "SELECT json_outer_row('time', \"l\".\"time\") AS r, json_outer_row('time', \"h\".\"time\") FROM logs l \
         LEFT JOIN hosts h ON true WHERE (\"h\".\"time\" IS NOT NULL) ORDER BY \"l\".\"time\"",
    );
    // Columns, outputs and tables of unknown columns are what they were.
    for same in [
        "SELECT x FROM (SELECT 1 AS x) x ORDER BY x",
        "SELECT time AS l FROM logs l ORDER BY l",
        "SELECT t, t IS NULL FROM t ORDER BY t",
    ] {
        check(same, same);
    }
}

#[test]
fn columns_that_several_joins_merge_have_one_value() {
    check(
        "select x, max(y) from a left join b using (x) join c using (x) where x > 1 group by x order by x",
        "SELECT \"a\".\"x\" AS x, max(y) FROM a LEFT JOIN b USING(x) JOIN c USING(x) WHERE \"a\".\"x\" > 1 \
         GROUP BY \"a\".\"x\" ORDER BY x",
    );
    let both = "coalesce(\"a\".\"x\", \"b\".\"x\")";
    check(
        "select x from a full join b using (x) left join c using (x)",
        &format!("SELECT {both} AS x FROM a FULL JOIN b USING(x) LEFT JOIN c ON {both} = \"c\".\"x\""),
    );
    check(
        "select * from a full join b using (x) full join c using (x)",
        &format!(
            "SELECT coalesce({both}, \"c\".\"x\") AS \"x\", \"a\".* EXCLUDE (\"x\"), \"b\".* EXCLUDE (\"x\"), \
             \"c\".* EXCLUDE (\"x\") FROM a FULL JOIN b USING(x) FULL JOIN c ON {both} = \"c\".\"x\""
        ),
    );
    check(
        "select x from a join b using (x) right join c using (x)",
        "SELECT \"c\".\"x\" AS x FROM a JOIN b USING(x) RIGHT JOIN c USING(x)",
    );
    check("select * from a join b using (x) join c using (x), d", "SELECT * FROM a JOIN b USING(x) JOIN c USING(x), d");
    let hidden = translated("select * from a full join b using (x) join c using (x) join d on true").unwrap_err();
    assert_eq!(hidden.kind, ErrorKind::Unsupported, "{hidden}");
    // The data may have a field of that name.
    let natural = translated("select 1 from logs natural join (values ('x')) v(level)").unwrap_err();
    assert_eq!(natural.kind, ErrorKind::Unsupported, "{natural}");
}

#[test]
fn groups_that_subqueries_read_are_a_table() {
    check(
        "select k, count(*) as n from t group by 1 having (select max(w) from r where r.k = max(t.v)) > 5 \
         order by count(*), k",
        "SELECT \"groups of rows\".\"group 1\" AS k, \"groups of rows\".\"group 2\" AS n FROM (SELECT k AS \"group 1\", \
         count(*) AS \"group 2\", max(t.v) AS \"group 3\" FROM t GROUP BY k) AS \"groups of rows\" WHERE (SELECT max(w) \
         FROM r WHERE r.k = \"groups of rows\".\"group 3\") > 5 ORDER BY \"groups of rows\".\"group 2\", k",
    );
    for text in [
        "select t.k, (select max(w) from r where r.w < max(t.v)) from t group by t.k",
        "select t.k from t group by t.k having (select max(w) from r where r.w < t.k) > 5",
        "select max(t.v), t.k not in (select r.k from r where r.w > count(t.v)) from t group by t.k",
    ] {
        let found = translated(text).unwrap();
        assert!(found.contains("GROUP BY t.k) AS \"groups of rows\"") && found.contains("\"of rows\""), "{found}");
    }
    // The planner joins by the groups themselves, and says what is no part of them.
    let same = "SELECT k FROM t GROUP BY k HAVING (SELECT max(w) FROM r WHERE r.k = t.k) > 5";
    check(same, same);
    let other = translated("select v from t group by k having (select max(w) from r where r.w < t.k) > 5").unwrap();
    assert!(!other.contains("groups of rows"), "{other}");
}

#[test]
fn rows_of_grouping_keys_are_keys() {
    check("select a, b from t group by (a, b), c", "SELECT a, b FROM t GROUP BY a, b, c");
    check("select 1 from t group by ((a, b), (c, (d, e)))", "SELECT 1 FROM t GROUP BY a, b, c, d, e");
    check("select 1 from t group by row(a, b)", "SELECT 1 FROM t GROUP BY row(a, b)");
}

#[test]
fn different_values_in_documents_are_sorted() {
    check(
        "select jsonb_agg(distinct a), json_agg(distinct a order by a desc) filter (where b) from t",
        "SELECT json_normal(to_json(array_sort(array_agg(DISTINCT a), 'ASC', 'NULLS LAST'))), \
         json_normal(to_json(array_sort(array_agg(DISTINCT a) FILTER (WHERE b), 'DESC', 'NULLS FIRST'))) FROM t",
    );
}
