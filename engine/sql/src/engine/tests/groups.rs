//! Aggregates, windows, sets and subqueries over rows that a statement has of its own.

use super::gives;

#[test]
fn aggregates_over_values() {
    gives(&[
        ("(select sum(x) from (values (1), (2), (null)) v (x))", "3"),
        ("(select avg(x) from (values (1), (2), (null)) v (x))", "1.5"),
        ("(select count(*) from (values (1), (null)) v (x))", "2"),
        ("(select count(x) from (values (1), (null)) v (x))", "1"),
        ("(select count(distinct x) from (values (1), (1), (2)) v (x))", "2"),
        ("(select sum(x) from (values (1)) v (x) where x > 1)", "NULL"),
        ("(select count(*) from (values (1)) v (x) where x > 1)", "0"),
        ("(select min(x) from (values ('b'), ('a')) v (x))", "a"),
        ("(select max(x) from (values ('b'), ('a')) v (x))", "b"),
        ("(select sum(x) filter (where x > 1) from (values (1), (2), (3)) v (x))", "5"),
        ("(select bool_and(x) from (values (true), (null), (false)) v (x))", "false"),
        ("(select bool_or(x) from (values (true), (null)) v (x))", "true"),
        ("(select every(x) from (values (true), (true)) v (x))", "true"),
        ("(select bit_and(x) from (values (6), (3)) v (x))", "2"),
        ("(select bit_or(x) from (values (6), (3)) v (x))", "7"),
        ("(select string_agg(x, ',' order by x desc) from (values ('a'), ('b')) v (x))", "b,a"),
        ("(select string_agg(distinct x, ',') from (values ('b'), ('a'), ('b')) v (x))", "a,b"),
        (
            "(select string_agg(x, s order by x) from (values ('a', ','), ('b', ';'), (null, '-'), ('c', null)) v (x, s))",
            "a;bc",
        ),
        ("(select string_agg(x, s || ' ' order by x desc) from (values ('a', ','), ('b', ';')) v (x, s))", "b, a"),
        ("(select string_agg(x, s) from (values ('a', ',')) v (x, s) where x > 'b')", "NULL"),
        (
            "(select string_agg(t, ' ' order by x) from (select x, string_agg(x, s) over (order by x) as t \
             from (values ('a', ','), ('b', ';'), ('c', '-')) v (x, s)) w)",
            "a a;b a;b-c",
        ),
        ("(select array_agg(x order by x) from (values (2), (1), (null)) v (x))", "{1,2,NULL}"),
        ("(select array_agg(distinct x) from (values (2), (1), (2)) v (x))", "{1,2}"),
        ("(select array_agg(x) from (values (1)) v (x) where x > 1)", "NULL"),
        ("(select stddev(x) from (values (2), (4)) v (x))", "1.4142135623730951"),
        ("(select stddev_pop(x) from (values (2), (4)) v (x))", "1"),
        ("(select variance(x) from (values (2)) v (x))", "NULL"),
        ("(select var_pop(x) from (values (2)) v (x))", "0"),
        ("(select corr(y, x) from (values (1, 2), (2, 4), (3, 6)) v (x, y))", "1"),
        ("(select regr_slope(y, x) from (values (1, 2), (2, 4), (3, 6)) v (x, y))", "2"),
        ("(select regr_intercept(y, x) from (values (1, 3), (2, 5)) v (x, y))", "1"),
        ("(select regr_count(y, x) from (values (1, 3), (2, null)) v (x, y))", "1"),
        ("(select percentile_cont(0.5) within group (order by x) from (values (1), (2), (10), (20)) v (x))", "6"),
        (
            "(select percentile_cont(0.25) within group (order by x desc) from (values (1), (2), (3), (4), (5)) v (x))",
            "4",
        ),
        ("(select percentile_disc(0.5) within group (order by x) from (values (1), (2), (10), (20)) v (x))", "2"),
        ("(select percentile_cont(null) within group (order by x) from (values (1), (2)) v (x))", "NULL"),
        ("(select percentile_disc(0) within group (order by x) from (values ('b'), ('a')) v (x))", "a"),
        ("(select percentile_cont(array[0, 1]) within group (order by x) from (values (1)) v (x) where x > 1)", "NULL"),
        ("(select percentile_disc(array[0, 1]) within group (order by x) from (values (1)) v (x) where x > 1)", "NULL"),
        (
            "(select percentile_cont(array[0, 0.5, 1]) within group (order by x) from (values (1), (2), (3)) v (x))",
            "{1,2,3}",
        ),
        ("(select mode() within group (order by x) from (values (1), (2), (2)) v (x))", "2"),
        ("(select rank(2) within group (order by x) from (values (1), (2), (2), (3)) v (x))", "2"),
        ("(select dense_rank(3) within group (order by x) from (values (1), (2), (2), (3)) v (x))", "3"),
        ("(select percent_rank(2) within group (order by x) from (values (1), (2), (3), (4)) v (x))", "0.25"),
        ("(select cume_dist(2) within group (order by x) from (values (1), (2), (3)) v (x))", "0.75"),
        ("(select json_agg(x order by x) from (values (1), (2)) v (x))", "[1, 2]"),
        ("(select jsonb_agg(x order by x) from (values (1), (null)) v (x))", "[1, null]"),
        ("(select jsonb_object_agg(k, x) from (values ('a', 1), ('b', 2)) v (k, x))", r#"{"a": 1, "b": 2}"#),
        ("(select quantile(x, 0.5) from (values (1.0), (2.0), (4.0)) v (x))", "2"),
        (
            "(select count(*) from (select distinct on (k) k, x from (values ('a', 1), ('a', 2), ('b', 3)) v (k, x) order by k, x desc))",
            "2",
        ),
        (
            "(select x from (select distinct on (k) k, x from (values ('a', 1), ('a', 2)) v (k, x) order by k, x desc))",
            "2",
        ),
    ]);
}

#[test]
fn windows_over_values() {
    gives(&[
        (
            "(select string_agg(r::text, ',' order by x) from (select x, row_number() over (order by x desc) as r from (values (1), (2), (3)) v (x)))",
            "3,2,1",
        ),
        (
            "(select string_agg(r::text, ',' order by x, r) from (select x, rank() over (order by x) as r from (values (1), (1), (3)) v (x)))",
            "1,1,3",
        ),
        (
            "(select string_agg(r::text, ',' order by x, r) from (select x, dense_rank() over (order by x) as r from (values (1), (1), (3)) v (x)))",
            "1,1,2",
        ),
        (
            "(select string_agg(coalesce(r::text, '-'), ',' order by x) from (select x, lag(x) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "-,1,2",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, lead(x, 1, 0) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "2,3,0",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, sum(x) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "1,3,6",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, sum(x) over (order by x rows between 1 preceding and current row) as r from (values (1), (2), (3)) v (x)))",
            "1,3,5",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, sum(x) over () as r from (values (1), (2), (3)) v (x)))",
            "6,6,6",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, first_value(x) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "1,1,1",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, last_value(x) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "1,2,3",
        ),
        (
            "(select string_agg(coalesce(r::text, '-'), ',' order by x) from (select x, nth_value(x, 2) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "-,2,2",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, ntile(2) over (order by x) as r from (values (1), (2), (3)) v (x)))",
            "1,1,2",
        ),
        (
            "(select string_agg(r::text, ',' order by x) from (select x, bool_or(x > 1) over (order by x rows between 1 preceding and current row) as r from (values (1), (2), (3)) v (x)))",
            "false,true,true",
        ),
        (
            "(select string_agg(r, ' ' order by x) from (select x, string_agg(x::text, '+') over (order by x rows 1 preceding) as r from (values (1), (2), (3)) v (x)))",
            "1 1+2 2+3",
        ),
    ]);
}

#[test]
fn sets_and_subqueries() {
    gives(&[
        ("exists (select 1 from (values (1)) v (x) where x > 1)", "false"),
        ("not exists (select 1 where false)", "true"),
        ("2 in (select x from (values (1), (2)) v (x))", "true"),
        ("3 not in (select x from (values (1), (2)) v (x))", "true"),
        ("1 not in (select x from (values (1), (null)) v (x))", "false"),
        ("3 not in (select x from (values (1), (null)) v (x))", "NULL"),
        ("3 <> all (select x from (values (1), (null)) v (x))", "NULL"),
        ("null not in (select x from (values (1)) v (x))", "NULL"),
        ("null not in (select x from (values (1)) v (x) where x > 1)", "true"),
        ("3 > all (select x from (values (1), (2)) v (x))", "true"),
        ("3 > any (select x from (values (3), (5)) v (x))", "false"),
        ("3 = some (select x from (values (3)) v (x))", "true"),
        ("3 <> all (select x from (values (3), (4)) v (x))", "false"),
        ("3 > all (select x from (values (1), (null)) v (x))", "NULL"),
        ("3 < all (select x from (values (1), (null)) v (x))", "false"),
        ("(select count(*) from (values (1), (2) union select 2))", "2"),
        ("(select count(*) from (select 1 union all select 1))", "2"),
        ("(select count(*) from (select 1 except select 1))", "0"),
        (
            "(select string_agg(x::text, ',' order by x) from (select * from generate_series(1, 3) as g (x) intersect select 2) i (x))",
            "2",
        ),
        ("(select string_agg(x::text, ',' order by x) from generate_series(1, 10, 4) as g (x))", "1,5,9"),
        (
            "(select count(*) from generate_series(timestamp '2024-01-01', timestamp '2024-01-02', interval '6 hours'))",
            "5",
        ),
        ("(with recursive t (n) as (select 1 union all select n + 1 from t where n < 5) select sum(n) from t)", "15"),
        ("(select string_agg(x, ',' order by n) from unnest(array['a', 'b']) with ordinality as u (x, n))", "a,b"),
        ("(select sum(b.y) from (values (1), (2)) a (x) join (values (1, 10), (1, 20)) b (x, y) using (x))", "30"),
        ("(select count(*) from (values (1), (2)) a (x) left join (values (1)) b (x) using (x))", "2"),
        ("(select count(*) from (values (1), (2)) a (x) full join (values (2), (3)) b (x) using (x))", "3"),
        (
            "(select string_agg(l.s, ',' order by l.s) from (values (1), (2)) a (x), lateral (select (a.x * 2)::text as s) l)",
            "2,4",
        ),
        (
            "(select string_agg(k || '=' || coalesce(n::text, '-'), ',' order by k, n) from (select k, sum(x) as n from (values ('a', 1), ('b', 2)) v (k, x) group by rollup (k)) r (k, n))",
            "a=1,b=2",
        ),
        (
            "(select count(*) from (select k, sum(x) from (values ('a', 1), ('b', 2)) v (k, x) group by rollup (k)))",
            "3",
        ),
        (
            "(select count(*) from (select k, sum(x) from (values ('a', 1), ('b', 2)) v (k, x) group by grouping sets ((k), ())))",
            "3",
        ),
    ]);
}
