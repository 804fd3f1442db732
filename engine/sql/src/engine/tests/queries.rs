//! Joins, subqueries, sets, groups and windows over rows that a statement has of its own, as PostgreSQL has them.

use super::{answers_are, asked, is_refused, shown};

#[test]
fn joins_of_all_kinds() {
    answers_are(&[
        (
            "select a.x, b.y from (values (1), (2)) a (x) cross join (values ('p'), ('q')) b (y) order by 1, 2",
            &["1|p", "1|q", "2|p", "2|q"],
        ),
        (
            "select x, y, z from (values (1, 'a'), (2, 'b')) l (x, y) full join (values (2, 'c'), (3, 'd')) r \
         (x, z) using (x) order by x",
            &["1|a|-", "2|b|c", "3|-|d"],
        ),
        (
            "select x, y, z from (values (1, 'a'), (2, 'b')) l (x, y) right join (values (2, 'c'), (3, 'd')) r \
         (x, z) using (x) order by x",
            &["2|b|c", "3|-|d"],
        ),
        (
            "select x, l.x from (values (1), (2)) l (x) left join (values (2)) r (x) using (x) order by 1",
            &["1|1", "2|2"],
        ),
        (
            "select x, l.x, r.x from (values (1), (2)) l (x) full join (values (2), (3)) r (x) using (x) order by 1",
            &["1|1|-", "2|2|2", "3|-|3"],
        ),
        ("select * from (values (1, 'a')) l (x, y) natural join (values (1, 'c'), (2, 'd')) r (x, z)", &["1|a|c"]),
        (
            "select * from (values (1, 'a'), (2, 'b')) l (x, y) natural left join (values (1, 'c')) r (x, z) \
         order by x",
            &["1|a|c", "2|b|-"],
        ),
        (
            "select l.x, r.x from (values (1), (null)) l (x) left join (values (1), (null)) r (x) on l.x = r.x \
         order by 1",
            &["1|1", "-|-"],
        ),
        (
            "select l.x, r.x from (values (1), (null)) l (x) join (values (1), (null)) r (x) on l.x is not \
         distinct from r.x order by 1",
            &["1|1", "-|-"],
        ),
        (
            "select a.x, b.x from (values (1), (2), (3)) a (x) join (values (1), (2), (3)) b (x) on a.x < b.x \
         order by 1, 2",
            &["1|2", "1|3", "2|3"],
        ),
        (
            "select a.x, s.n from (values (1), (3)) a (x), lateral (select count(*) as n from (values (1), \
         (2), (3)) b (y) where b.y <= a.x) s order by 1",
            &["1|1", "3|3"],
        ),
        ("select l.x from (values (1), (2)) a (x), lateral (select a.x) l order by 1", &["1", "2"]),
        (
            "with r (k, v) as (values (1, 5), (1, 7)) select a.x, l.v, l.x, l.y from (values (1), (2)) a (x) \
             left join lateral (select r.v, a.x, r.v + a.x as y from r where r.k = a.x) l on true order by 1, 2",
            &["1|5|1|6", "1|7|1|8", "2|-|-|-"],
        ),
        (
            "select a.x, g.y from (values (1), (2)) a (x), lateral generate_series(1, a.x) as g (y) order by \
         1, 2",
            &["1|1", "2|1", "2|2"],
        ),
        (
            "select a.x, u.y from (values (1, array['p', 'q']), (2, array['r'])) a (x, l), unnest(a.l) as u \
         (y) order by 1, 2",
            &["1|p", "1|q", "2|r"],
        ),
        (
            r#"select a.x, t.k, t.v from (values (1, '{"p":"1","q":"2"}')) a (x, j), json_each_text(a.j::json) as t (k, v) order by 2"#,
            &["1|p|1", "1|q|2"],
        ),
        (
            "select x, n from unnest(array['a', 'b', 'c']) with ordinality as u (x, n) order by n desc",
            &["c|3", "b|2", "a|1"],
        ),
    ]);
}

#[test]
fn subqueries_of_all_kinds() {
    answers_are(&[
        (
            "select x, (select max(y) from (values (1, 10), (1, 20), (2, 30)) b (k, y) where b.k = a.x) from \
         (values (1), (2), (3)) a (x) order by x",
            &["1|20", "2|30", "3|-"],
        ),
        (
            "select x, (select count(*) from (values (1), (1)) b (k) where b.k = a.x) from (values (1), (2)) a \
         (x) order by x",
            &["1|2", "2|0"],
        ),
        (
            "select x, exists (select 1 from (values (1), (1)) b (k) where b.k = a.x) from (values (1), (2)) a \
         (x) order by x",
            &["1|true", "2|false"],
        ),
        (
            "select x, array(select y from (values (1, 'p'), (1, 'q'), (2, 'r')) b (k, y) where b.k = a.x \
         order by y desc)::text from (values (1), (2), (3)) a (x) order by x",
            &["1|{q,p}", "2|{r}", "3|{}"],
        ),
        (
            "select x from (values (1), (2), (3)) a (x) where x > (select avg(y) from (values (1), (2)) b (y)) \
         order by x",
            &["2", "3"],
        ),
        (
            "select x from (values (1), (2), (3)) a (x) where (x, x) in (select y, y from (values (2), (5)) b \
         (y))",
            &["2"],
        ),
        (
            "select x from (values (1), (2), (3)) a (x) where x >= all (select y from (values (1), (2)) b (y)) \
         order by x",
            &["2", "3"],
        ),
        ("select x from (values (1), (2), (3)) a (x) where x < any (select y from (values (1), (2)) b (y))", &["1"]),
        (
            "select x from (values (1), (2), (3)) a (x) where x not in (select y from (values (1)) b (y)) and \
         not exists (select 1 from (values (3)) c (z) where z = x)",
            &["2"],
        ),
        (
            "with a (x) as (values (1), (2)), b as (select x * 10 as y from a) select a.x, b.y from a join b \
         on b.y = a.x * 10 order by 1",
            &["1|10", "2|20"],
        ),
        (
            "with recursive t (n, f) as (select 1, 1 union all select n + 1, f * (n + 1) from t where n < 5) \
         select n, f from t order by n desc limit 2",
            &["5|120", "4|24"],
        ),
        (
            "with a as (select 1 as x union all select 2) select (select sum(x) from a) as s, x from a order \
         by x",
            &["3|1", "3|2"],
        ),
    ]);
}

#[test]
fn rows_at_hand_are_compared_with_others() {
    answers_are(&[
        (
            "select x, exists (select 1 from (values (1), (2)) u (y) where u.y < t.x), \
             case when not exists (select y from (values (1), (2)) u (y) where u.y > t.x) then 'last' end \
             from (values (1), (2), (3)) t (x) order by 1",
            &["1|false|-", "2|true|last", "3|true|last"],
        ),
        (
            "select sum((select count(*) from (values (1), (2)) u (y) where u.y < t.x)), \
             max((select count(*) from (values (1), (2)) u (y) where u.y = t.x)), \
             count(*) filter (where exists (select 1 from (values (2)) u (y) where u.y = t.x)), \
             sum(case when exists (select 1 from (values (2)) u (y) where u.y < t.x) then 5 else 1 end) \
             from (values (1), (2), (3)) t (x)",
            &["3|1|1|7"],
        ),
        (
            "select x % 2 as g, sum((select max(y) from (values (1), (2)) u (y) where u.y < t.x)) \
             from (values (1), (2), (3)) t (x) group by 1 order by 1",
            &["0|1", "1|2"],
        ),
        (
            "select x, sum(x) over (order by x), (select count(*) from (values (1), (2)) u (y) where u.y < t.x) \
             from (values (1), (2), (3)) t (x) order by 1",
            &["1|1|0", "2|3|1", "3|6|2"],
        ),
        (
            "select value, (select count(*) from (values (1), (2)) u (y) where u.y < t.value) \
             from (values (1), (3)) t (value) order by 1",
            &["1|0", "3|2"],
        ),
    ]);
}

/// Breaks if windows go over the rows of all rows at hand.
#[test]
fn windows_are_of_one_row_at_hand() {
    let from = "from (values (1), (2)) a (x)";
    let rows = "(values (1), (2), (3)) b (y)";
    let own = |items: &str, rest: &str| {
        format!("select x, s.* {from}, lateral (select {items} from {rows} where b.y {rest}) s order by 1, 2, 3")
    };
    let windows = "y, row_number() over (order by y desc) as n";
    answers_are(&[
        (own(windows, "= a.x").as_str(), &["1|1|1", "2|2|1"]),
        (own(windows, ">= a.x").as_str(), &["1|1|3", "1|2|2", "1|3|1", "2|2|2", "2|3|1"]),
        (own(windows, ">= a.x order by y limit 1").as_str(), &["1|1|3", "2|2|2"]),
        (own(windows, ">= a.x order by row_number() over (order by y desc) limit 1").as_str(), &["1|3|1", "2|3|1"]),
        (own(windows, ">= a.x order by n desc limit 1").as_str(), &["1|1|3", "2|2|2"]),
        (
            own("y, count(*) over w + a.x", ">= a.x window w as () order by y limit 1 offset 1").as_str(),
            &["1|2|4", "2|3|4"],
        ),
        (
            own("y, sum(y) over (partition by y % 2 order by y)", ">= a.x").as_str(),
            &["1|1|1", "1|2|2", "1|3|4", "2|2|2", "2|3|3"],
        ),
        (
            &format!(
                "select x, s.y {from}, lateral (select q.y from (select y, row_number() over (order by y) as n from {rows} \
                 where b.y > a.x) q where q.n = 1) s order by 1"
            ),
            &["1|2", "2|3"],
        ),
        (
            &format!("select x, (select count(*) over () from {rows} where b.y > a.x limit 1) {from} order by 1"),
            &["1|2", "2|1"],
        ),
        (
            &format!(
                "select x, s.y {from}, lateral (select q.y from (select b.y from {rows} where b.y > a.x) q \
                 order by q.y desc limit 1) s order by 1"
            ),
            &["1|3", "2|3"],
        ),
    ]);
    let numbered = format!("select row_number() over () as n, b.y from {rows}");
    is_refused(
        &format!(
            "select x {from} group by rollup (x) having exists (select 1 from ({numbered} where b.y = a.x) q where n = 2)"
        ),
        "a window",
    );
    answers_are(&[
        (
            &format!(
                "select x {from} group by x having exists (select 1 from ({numbered} where b.y <= a.x) q where n = 2)"
            ),
            &["2"],
        ),
        (&format!("select x {from} where 2 in (select n from ({numbered} where b.y <= a.x) q)"), &["2"]),
        (&format!("select x {from} where exists (select 1 from ({numbered} where b.y <= a.x) q where n = 2)"), &["2"]),
    ]);
    answers_are(&[
        (
            &format!("select x {from} where exists (select 1 from ({numbered}) q where q.n = a.x + 1) order by 1"),
            &["1", "2"],
        ),
        (
            &format!(
                "select x, rank() over (order by x) {from} where exists (select 1 from {rows} where b.y = a.x) order by 1"
            ),
            &["1|1", "2|2"],
        ),
    ]);
}

#[test]
fn sets_of_rows() {
    answers_are(&[
        ("select 1 as x union select 1 union select 2 order by x", &["1", "2"]),
        ("select 2 as x, 'b' as y union all select 1, null union all select 3, 'a'", &["2|b", "1|-", "3|a"]),
        (
            "with t as (select 1 as a union all select 2), u as (select a * 2 as b from t) \
             select t.a, u.b from t join u on u.b = t.a * 2 order by 1",
            &["1|2", "2|4"],
        ),
        (
            "select x from (values (1), (1), (2), (3)) a (x) intersect select y from (values (1), (2)) b (y) \
         order by x",
            &["1", "2"],
        ),
        (
            "select x from (values (1), (1), (2), (3)) a (x) except select y from (values (1)) b (y) order by x",
            &["2", "3"],
        ),
        ("(select 1 as x limit 1) union all (select 2 order by 1) order by x desc", &["2", "1"]),
        ("select null as x union all select 1 order by x nulls first", &["-", "1"]),
        ("select 'a' as x union all select null order by x", &["a", "-"]),
        (
            "select distinct x, y from (values (1, 'a'), (1, 'a'), (1, null), (1, null)) v (x, y) order by y",
            &["1|a", "1|-"],
        ),
    ]);
}

#[test]
fn groups_and_orders() {
    answers_are(&[
        ("select x % 2 as odd, sum(x) from generate_series(1, 5) as g (x) group by odd order by odd", &["0|6", "1|9"]),
        ("select x % 2, sum(x) from generate_series(1, 5) as g (x) group by 1 order by 2 desc", &["1|9", "0|6"]),
        (
            "select k, sum(x) from (values ('a', 1), ('b', 2), ('a', 3)) v (k, x) group by k having sum(x) > 2 \
         order by k",
            &["a|4"],
        ),
        (
            "select k, l, sum(x) from (values ('a', 'p', 1), ('a', 'q', 2), ('b', 'p', 4)) v (k, l, x) group \
         by rollup (k, l) order by k nulls last, l nulls last",
            &["a|p|1", "a|q|2", "a|-|3", "b|p|4", "b|-|4", "-|-|7"],
        ),
        (
            "select k, l, sum(x) from (values ('a', 'p', 1), ('b', 'p', 4)) v (k, l, x) group by grouping sets \
         ((k), (l)) order by k nulls last, l",
            &["a|-|1", "b|-|4", "-|p|5"],
        ),
        (
            "select k, grouping(k), count(*) from (values ('a'), ('a'), (null)) v (k) group by rollup (k) \
         order by 2, 1 nulls last",
            &["a|0|2", "-|0|1", "-|1|3"],
        ),
        ("select count(*) from (values (1)) v (x) where x > 1 group by ()", &["0"]),
        (
            "select k, count(*) filter (where x > 1), sum(x) filter (where x > 9) from (values ('a', 1), ('a', \
         2)) v (k, x) group by k",
            &["a|1|-"],
        ),
        ("select x from (values (2), (1), (3)) v (x) order by -x limit 2", &["3", "2"]),
        ("select x from (values ('b'), ('A'), ('a'), ('B')) v (x) order by x", &["A", "B", "a", "b"]),
        ("select x from (values ('b'), ('A'), ('a')) v (x) order by lower(x), x desc", &["a", "A", "b"]),
        ("select x as y from (values (1), (2)) v (x) order by y desc", &["2", "1"]),
        (
            "select x from generate_series(1, 9) as g (x) order by x desc offset 2 fetch next 3 rows only",
            &["7", "6", "5"],
        ),
        ("select x from generate_series(1, 3) as g (x) limit all offset 1", &["2", "3"]),
        (
            "select distinct on (k) k, x from (values ('a', 1), ('a', 2), ('b', 3)) v (k, x) order by k, x desc",
            &["a|2", "b|3"],
        ),
        (
            "select distinct on (x, k, x) k, x from (values ('a', 1), ('a', 1), ('b', 3)) v (k, x) order by k, x desc, k",
            &["a|1", "b|3"],
        ),
        (
            "select k, string_agg(x, ',' order by x desc) from (values ('a', 'p'), ('a', 'q'), ('b', null)) v \
         (k, x) group by k order by k",
            &["a|q,p", "b|-"],
        ),
        (
            "select k, array_agg(x order by x)::text, json_agg(x order by x desc)::text from (values ('a', 2), \
         ('a', 1)) v (k, x) group by k",
            &["a|{1,2}|[2, 1]"],
        ),
    ]);
}

#[test]
fn windows_of_all_kinds() {
    answers_are(&[
        (
            "select x, sum(x) over (order by x range between 1 preceding and 1 following) from (values (1), \
         (2), (4)) v (x) order by x",
            &["1|3", "2|3", "4|4"],
        ),
        (
            "select x, count(*) over (order by x rows between unbounded preceding and 1 preceding) from \
         (values (1), (2), (3)) v (x) order by x",
            &["1|0", "2|1", "3|2"],
        ),
        (
            "select x, avg(x) over w, min(x) over w from (values (1), (2), (3)) v (x) window w as (order by x \
         rows between 1 preceding and current row) order by x",
            &["1|1.0|1", "2|1.5|1", "3|2.5|2"],
        ),
        (
            "select k, x, row_number() over (partition by k order by x desc), sum(x) over (partition by k) \
         from (values ('a', 1), ('a', 2), ('b', 5)) v (k, x) order by k, x",
            &["a|1|2|3", "a|2|1|3", "b|5|1|5"],
        ),
        (
            "select x, percent_rank() over (order by x), cume_dist() over (order by x) from (values (1), (2), \
         (2), (3), (4)) v (x) order by x",
            &["1|0.0|0.2", "2|0.25|0.6", "2|0.25|0.6", "3|0.75|0.8", "4|1.0|1.0"],
        ),
        (
            "select x, lag(x, 2) over (order by x), lead(x, 1, -1) over (order by x) from (values (1), (2), \
         (3)) v (x) order by x",
            &["1|-|2", "2|-|3", "3|1|-1"],
        ),
        (
            "select x, stddev_pop(x) over (order by x rows between 1 preceding and current row) from (values \
         (2), (2), (4)) v (x) order by x",
            &["2|0.0", "2|0.0", "4|1.0"],
        ),
        (
            "select k, sum(x) as s, sum(sum(x)) over () as all_of_it, rank() over (order by sum(x) desc) from \
         (values ('a', 1), ('b', 2), ('a', 4)) v (k, x) group by k order by k",
            &["a|5|7|1", "b|2|7|2"],
        ),
        (
            "select x, bool_and(x < 3) over (order by x), bool_or(x > 2) over (order by x) from (values (1), \
         (2), (3)) v (x) order by x",
            &["1|true|false", "2|true|false", "3|false|true"],
        ),
        (
            "select x from (select x, row_number() over (order by x desc) as n from generate_series(1, 5) as g \
         (x)) t where n <= 2 order by x",
            &["4", "5"],
        ),
    ]);
}

#[test]
fn sets_of_different_rows_are_one_of_several_conditions() {
    let rows = "(values (1), (2), (3), (null)) v (x)";
    let cases: [(&str, &[&str]); 6] = [
        ("x in (select 1 union select 4) or x = 2", &["1", "2"]),
        ("x in (select distinct 1) or x = 2", &["1", "2"]),
        ("x in (select 1 intersect select 1) or x = 2", &["1", "2"]),
        ("x in (select y from (values (1), (3)) w (y) except select 3) or x = 2", &["1", "2"]),
        ("x not in (select 1 union select 4) or x = 1", &["1", "2", "3"]),
        ("not (x in (select 1 union select null) or x = 2)", &[]),
    ];
    for (condition, expected) in cases {
        let found = shown(asked(format!("select x from {rows} where {condition} order by x"))).1;
        assert_eq!(found, expected, "{condition}");
    }
}

#[test]
fn arms_of_a_case_stand_beside_each_other() {
    let case = |arms: usize, then: &str| {
        let arms: Vec<String> = (0..arms).map(|n| format!("when x = {n} then {then}")).collect();
        let arms = arms.join(" ");
        format!("select case {arms} else x end from (values (1), (5000)) v (x) order by 1")
    };
    assert_eq!(shown(asked(case(1_500, "-x"))).1, ["-1", "5000"]);
    let truths = case(500, "false").replace("else x", "when x = 7 then true");
    is_refused(&truths, "`CASE`");
    let chain = format!("select 1 where {} true", "true and ".repeat(1_001));
    is_refused(&chain, "1001 operators");
}

/// What the parser takes for a name may be any word, so that no word alone ends what nests.
#[test]
fn chains_of_any_words_are_bounded() {
    for (begin, one, part) in [
        ("select 1 from (values ('a')) v (name) where name", " like name", "20000 operators"),
        ("select 1 from (values (true)) v (a) where a", " xor a", "20000 operators"),
        ("values (1)", " minus values (1)", "12000 operators"),
    ] {
        let times = part.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
        is_refused(&format!("{begin}{}", one.repeat(times)), part);
    }
}

#[test]
fn windows_leave_rows_out() {
    let of = |calls: &str, window: &str| {
        format!("select {calls} from (values (1, 1), (2, 1), (3, 2), (null, 3)) v (x, g) order by g, x")
            .replace("over e", &format!("over (order by g, x {window})"))
    };
    let whole = "rows between unbounded preceding and unbounded following exclude current row";
    let near = "rows between 1 preceding and 1 following exclude current row";
    for (calls, window, expected) in [
        ("sum(x) over e, count(x) over e, count(*) over e", near, ["2|1|1", "4|2|2", "2|1|2", "3|1|1"]),
        ("min(x) over e, max(x) over e, avg(x) over e", whole, ["2|3|2.5", "1|3|2.0", "1|2|1.5", "1|3|2.0"]),
        ("first_value(x) over e, last_value(x) over e", whole, ["2|-", "1|-", "1|-", "1|3"]),
        ("sum(x) over e", "rows unbounded preceding exclude current row", ["-", "1", "3", "6"]),
    ] {
        assert_eq!(shown(asked(of(calls, window))).1, expected, "{calls} {window}");
    }
    let groups = of("count(*) over e", "").replace("order by g, x )", "order by g groups 1 preceding exclude group)");
    assert_eq!(shown(asked(groups)).1, ["0", "0", "2", "1"]);
    let ties = of("count(*) over e, sum(x) over e, avg(x) over e, max(x) over e", "");
    for (frame, expected) in [
        ("groups 1 preceding exclude ties", ["1|1|1.0|1", "1|2|2.0|2", "3|6|2.0|3", "2|3|3.0|3"]),
        ("range unbounded preceding exclude ties", ["1|1|1.0|1", "1|2|2.0|2", "3|6|2.0|3", "4|6|2.0|3"]),
        ("groups between current row and 1 following exclude ties", ["2|4|2.0|3", "2|5|2.5|3", "2|3|3.0|3", "1|-|-|-"]),
        (
            "range between 1 preceding and 1 following exclude ties",
            ["2|4|2.0|3", "2|5|2.5|3", "4|6|2.0|3", "2|3|3.0|3"],
        ),
        (
            "range between 1 preceding and 1 following exclude group",
            ["1|3|3.0|3", "1|3|3.0|3", "3|3|1.5|2", "1|3|3.0|3"],
        ),
    ] {
        let text = ties.replace("order by g, x )", &format!("order by g {frame})"));
        assert_eq!(shown(asked(text)).1, expected, "{frame}");
    }
    assert_eq!(shown(asked(of("var_pop(x) over e", near))).1, ["0.0", "1.0", "0.0", "0.0"]);
    assert_eq!(shown(asked(of("string_agg(x::text, ',') over e", whole))).1, ["2,3", "1,3", "1,2", "1,2,3"]);
    is_refused(&of("first_value(x) filter (where x > 1) over e", near), "no aggregate");
}

/// Values that are equal, so that it does not matter which of them comes first.
#[test]
fn rows_of_a_frame_leave_equal_ones_out() {
    let rows = "(values (1, 1), (2, 2), (2, 2), (8, 3)) v (x, g)";
    let of = |call: &str, frame: &str| {
        shown(asked(format!("select {call} over (order by g {frame}) as z from {rows} order by z"))).1
    };
    let near = "rows between 1 preceding and 1 following exclude";
    for (call, frame, expected) in [
        ("sum(x)", format!("{near} ties"), ["3", "3", "10", "10"]),
        ("sum(x)", format!("{near} group"), ["1", "2", "2", "8"]),
        ("count(*)", format!("{near} ties"), ["2", "2", "2", "2"]),
        ("count(x) filter (where x > 1)", format!("{near} group"), ["0", "1", "1", "1"]),
        ("max(x)", format!("{near} ties"), ["2", "2", "8", "8"]),
        ("min(x)", "rows 1 preceding exclude group".to_owned(), ["1", "2", "-", "-"]),
        ("avg(x)", format!("{near} group"), ["1.0", "2.0", "2.0", "8.0"]),
        ("bool_or(x > 2)", format!("{near} group"), ["false", "false", "false", "true"]),
        ("first_value(x)", format!("{near} ties"), ["1", "1", "2", "2"]),
        ("last_value(x)", format!("{near} group"), ["1", "2", "2", "8"]),
        ("sum(x)", "rows between 3 preceding and 2 following exclude group".to_owned(), ["4", "5", "9", "9"]),
        ("sum(x)", "rows unbounded preceding exclude ties".to_owned(), ["1", "3", "3", "13"]),
        ("sum(x)", "rows between 20 preceding and 1 following exclude ties".to_owned(), ["3", "3", "11", "13"]),
        ("sum(x)", "rows between 20 preceding and 20 following exclude group".to_owned(), ["5", "9", "9", "12"]),
        ("sum(x)", "rows between unbounded preceding and 2 preceding exclude group".to_owned(), ["1", "3", "-", "-"]),
        ("sum(x)", "rows between 2 following and unbounded following exclude ties".to_owned(), ["8", "10", "-", "-"]),
        ("sum(x)", "range between 1 preceding and 1 following exclude current row".to_owned(), ["4", "4", "11", "11"]),
        ("sum(x)", "rows between unbounded preceding and 1 following exclude ties".to_owned(), ["3", "3", "11", "13"]),
        ("sum(x)", "groups between 1 preceding and 1 following exclude current row".to_owned(), ["4", "4", "11", "11"]),
        ("sum(x)", "range unbounded preceding exclude current row".to_owned(), ["3", "3", "5", "-"]),
        ("sum(x)", "rows current row exclude group".to_owned(), ["-", "-", "-", "-"]),
        ("count(*)", "rows current row exclude current row".to_owned(), ["0", "0", "0", "0"]),
        ("row_number()", "rows 99 preceding exclude ties".to_owned(), ["1", "2", "3", "4"]),
    ] {
        assert_eq!(of(call, &frame), expected, "{call} {frame}");
    }
    let named = "select sum(x) over w, count(*) over w from (values (1), (2), (4)) v (x) \
                 window w as (order by x rows between 1 preceding and 1 following exclude current row) order by x";
    assert_eq!(shown(asked(named)).1, ["2|1", "5|2", "2|1"]);
    let built = "select sum(x) over (w rows between 1 preceding and 1 following exclude current row) from (values (1, 1), (2, 1), \
                 (4, 2), (7, 2)) v (x, g) window w as (partition by g order by x) order by x";
    assert_eq!(shown(asked(built)).1, ["2", "1", "7", "4"]);
}

#[test]
fn common_tables_within_hide_those_around() {
    answers_are(&[
        (
            "with a as (select 1 as x), b as (with a as (select 2 as x) select * from a) select a.x, b.x from a, b",
            &["1|2"],
        ),
        (
            "with a (x) as (values (1), (2)) select x from a where x in (with a (x) as (values (2)) select x from a)",
            &["2"],
        ),
        (
            "with a as (select 1 as x) select * from (with a as (select x + 1 as x from a) select * from a) as d, a",
            &["2|1"],
        ),
    ]);
}

#[test]
fn subqueries_among_sort_keys_read_the_row() {
    answers_are(&[
        (
            "select x from (values (1), (2)) t (x) \
             order by (select count(*) from (values (1), (1), (2)) u (y) where y = x) desc",
            &["1", "2"],
        ),
        (
            "select x from (values (1), (2)) t (x) order by (select count(*) from (values (1), (1), (2)) u (y) where y = x)",
            &["2", "1"],
        ),
    ]);
}

#[test]
fn a_having_makes_one_group() {
    answers_are(&[
        ("select 1 having true", &["1"]),
        ("select x, count(*) from (values (1), (1)) v (x) group by all rollup (x) order by 1", &["1|2", "-|2"]),
        ("select 1 having false", &[]),
        ("select 1 from (values (1), (2)) v (x) having 1 < 2", &["1"]),
        ("select 1 from (values (1)) v (x) where x > 1 having true", &["1"]),
    ]);
    is_refused("select x from (values (1)) v (x) having true", "GROUP BY");
}
