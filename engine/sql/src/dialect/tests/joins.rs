//! Joins by columns of the same name, which have one column for both sides.

use super::*;

#[test]
fn joins_that_keep_the_right_side_have_its_columns() {
    check(
        "select x, count(*) from a full join b using (x) where x > 1 and y in (select x from c) group by x order by x, y",
        "SELECT coalesce(\"a\".\"x\", \"b\".\"x\") AS x, count(*) FROM a FULL JOIN b USING(x) \
         WHERE coalesce(\"a\".\"x\", \"b\".\"x\") > 1 AND y IN (SELECT x FROM c) \
         GROUP BY coalesce(\"a\".\"x\", \"b\".\"x\") ORDER BY x, y",
    );
    check(
        "select x from s.a right join (select 1 as x) as b using (x) order by x",
        "SELECT b.\"x\" AS x FROM s.a RIGHT JOIN (SELECT 1 AS x) AS b USING(x) ORDER BY x",
    );
    check(
        "select * from a right join b using (x) order by x",
        "SELECT \"b\".\"x\" AS \"x\", \"a\".* EXCLUDE (\"x\"), \"b\".* EXCLUDE (\"x\") FROM a RIGHT JOIN b USING(x) \
         ORDER BY x",
    );
    check(
        "select n.*, * from s.a as n join b using (y, x)",
        "SELECT n.*, n.\"y\", n.\"x\", n.* EXCLUDE (\"y\", \"x\"), \"b\".* EXCLUDE (\"y\", \"x\") \
         FROM s.a AS n JOIN b USING(y, x)",
    );
    check("select * from s.a join b using (x)", "SELECT * FROM s.a JOIN b USING(x)");
    check("select * from a join b using (x) join c using (y)", "SELECT * FROM a JOIN b USING(x) JOIN c USING(y)");
    check(
        "select max(y) from a right join b using (x) group by x order by x",
        "SELECT max(y) FROM a RIGHT JOIN b USING(x) GROUP BY \"b\".\"x\" ORDER BY \"b\".\"x\"",
    );
    check("select x from a left join b using (x)", "SELECT x FROM a LEFT JOIN b USING(x)");
    // In conditions the planner takes it for two columns.
    check(
        "select x from a left join b as d using (x) where x > 1 or x in (select x from c) order by x",
        "SELECT x FROM a LEFT JOIN b AS d USING(x) WHERE \"a\".\"x\" > 1 OR \"a\".\"x\" IN (SELECT x FROM c) ORDER BY x",
    );
    check(
        "select x from a join b using (x) join c on c.y = x",
        "SELECT x FROM a JOIN b USING(x) JOIN c ON c.y = \"a\".\"x\"",
    );
    for wrong in [
        "select y from a natural right join b",
        "select x from a join b using (y) full join c using (x)",
        "select x from a full join b using (x) join c using (y, x)",
        "select x from a full join (select 1 as x) using (x)",
        "select x from a join (b full join c using (x)) on true",
    ] {
        assert_eq!(translated(wrong).unwrap_err().kind, ErrorKind::Unsupported, "{wrong}");
    }
}

#[test]
fn natural_joins_are_by_the_columns_of_both_sides() {
    check(
        "select * from (select 1 x, 2 y) a natural join (values (2, 3)) b(y, z)",
        "SELECT a.\"y\", a.* EXCLUDE (\"y\"), b.* EXCLUDE (\"y\") FROM (SELECT 1 AS x, 2 AS y) a \
         JOIN (VALUES (2, 3)) b (y, z) USING(\"y\")",
    );
    let known = "with a as (select time, 1 k from logs) select k from a natural right join public.hosts";
    assert!(translated(known).unwrap().contains("RIGHT JOIN public.hosts USING(\"time\")"));
    assert_eq!(translated("select k from f(1) natural right join b").unwrap_err().kind, ErrorKind::Unsupported);
}

/// Breaks if a left join with a table of the catalog keeps a subquery about the other side, which the planner refuses.
#[test]
fn values_of_the_left_side_are_columns_beside_the_catalog() {
    check(
        "select c.relname, d.attnum from pg_class c left join pg_attribute d on d.attname = c.relname \
         and d.attrelid = (select max(n.oid) from pg_namespace n where n.oid = c.relnamespace)",
        "SELECT c.relname, d.attnum FROM (SELECT *, (SELECT max(n.oid) FROM pg_namespace n WHERE n.oid = c.relnamespace) \
         AS \"asked 1\" FROM pg_class c) AS \"c\" LEFT JOIN pg_attribute d ON d.attname = c.relname \
         AND d.attrelid = \"c\".\"asked 1\"",
    );
    // Those of the right side are conditions of it.
    let right = "SELECT c.relname, d.attnum FROM pg_class c LEFT JOIN pg_attribute d ON d.attname = c.relname \
                 AND d.attrelid = (SELECT max(n.oid) FROM pg_namespace n WHERE n.oid = d.atttypid)";
    check(right, right);
}

#[test]
fn joins_in_parentheses_merge_columns() {
    check("select j.* from (s.a join b using (x)) as j", "SELECT j.* FROM (SELECT * FROM s.a JOIN b USING(x)) AS j");
    check("select j.* from (s.a join b on true) as j", "SELECT j.* FROM (s.a JOIN b ON true) AS j");
}

#[test]
fn functions_read_tables_before_them() {
    check(
        "select x from t cross join lateral lower(t.a) as x",
        "SELECT x FROM t CROSS JOIN LATERAL (SELECT lower(t.a) AS x) AS x",
    );
    // No condition about rows of the function may drop rows of the left side.
    let kept = translated("select b from t left join lateral unnest(t.l) as b on b.b > t.a").unwrap();
    assert!(!kept.contains("LEFT JOIN UNNEST"), "{kept}");
    // A function that reads no other table is joined like any table.
    let plain = translated("select n from t left join generate_series(1, 3) as n on n = t.a").unwrap();
    assert!(plain.contains("LEFT JOIN generate_series(1, 3) AS n"), "{plain}");
}
