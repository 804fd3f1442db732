//! Functions as statements call them: over rows, groups and frames, with NULL among the values.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::StreamExt as _;
use quiver_types::{Access, Result};

use crate::error::from_datafusion;
use crate::name_resolution::Names;
use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules};

/// The spans of a trace: `web` calls `cart`, which fails, and a database.
const SPANS: &str = "with s (id, parent, kind, service, name, st, en, err, mark) as (values \
    ('0000000000000001', '', 'SERVER', 'web', 'GET /', 0, 100, false, null), \
    ('0000000000000002', '0000000000000001', 'CLIENT', 'web', 'call', 10, 40, false, null), \
    ('0000000000000003', '0000000000000002', 'SERVER', 'cart', 'GET /cart', 15, 35, true, null), \
    ('0000000000000004', '0000000000000001', 'CLIENT', 'web', 'db', 50, 90, false, 'database')) ";

fn engine() -> Arc<QueryEngine> {
    let settings = EngineSettings { threads: 2, concurrent_max: 2, ..EngineSettings::small(64 << 20) };
    QueryEngine::new(&settings).unwrap()
}

/// The rows of a statement: values joined by `|`, `-` for NULL.
async fn answers(engine: &Arc<QueryEngine>, statement: String) -> Result<Vec<String>> {
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner) = (Arc::clone(engine), ctx.clone());
    let work = async move {
        let plan = Names::new(own.relational()).plan(&statement)?;
        let mut batches = own.execute(&plan, &inner, Rules::Relational).await?;
        let mut rows = Vec::new();
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(from_datafusion)?;
            let texts = |column: &ArrayRef| cast(column, &DataType::Utf8).expect("a type that has texts");
            let columns: Vec<ArrayRef> = batch.columns().iter().map(texts).collect();
            for row in 0..batch.num_rows() {
                let text = |column: &ArrayRef| {
                    let texts = column.as_string::<i32>();
                    if texts.is_valid(row) { texts.value(row).to_owned() } else { "-".to_owned() }
                };
                rows.push(columns.iter().map(text).collect::<Vec<_>>().join("|"));
            }
        }
        Ok(rows)
    };
    engine.run(&ctx, work).await
}

/// Statements behind a beginning that they share, with their rows.
async fn gives(beginning: &str, cases: &[(&str, &[&str])]) {
    let engine = engine();
    for (statement, expected) in cases {
        let found = answers(&engine, format!("{beginning}{statement}")).await;
        assert_eq!(found.unwrap_or_else(|e| panic!("{statement}: {e}")), *expected, "{statement}");
    }
}

/// What is not told here is in the cause: the languages above find words for it.
#[tokio::test]
async fn what_cannot_be_worked_out_fails() {
    let engine = engine();
    for (statement, part) in [
        ("select 9223372036854775807 + x from (values (1)) v (x)", "Overflow"),
        ("select x * 9223372036854775807 from (values (2)) v (x)", "Overflow"),
        ("select x - 9223372036854775807 from (values (-2)) v (x)", "Overflow"),
        ("select sum(x) from (values (9223372036854775807), (1)) v (x)", "`bigint`"),
        ("select 1 / x from (values (0)) v (x)", "DivideByZero"),
        ("select 1 % x from (values (0)) v (x)", "DivideByZero"),
        ("select array_repeat(repeat('x', 1000000), 1000)", "at most"),
        ("select quantile(x, 2.0) from (values (1.0)) v (x)", "from 0 to 1"),
        ("select quantile(x, y) from (values (1.0, 0.5)) v (x, y)", "a constant"),
        ("select host_of(x, x) from (values ('a')) v (x)", "host_of"),
        ("select host_of(x) from (values (make_array('a'))) v (x)", "host_of"),
        ("select span_tree(1)", "span_tree"),
        ("select to_whole()", "to_whole"),
        ("select max_overlap('a', 'b')", "max_overlap"),
    ] {
        let error = answers(&engine, statement.to_owned()).await.unwrap_err();
        assert!(format!("{error:?}").contains(part), "{statement}: {error:?}");
    }
}

#[tokio::test]
async fn spans_of_a_trace() {
    gives(
        SPANS,
        &[
            (
                "select t.n['span_id'], t.n['self_time'], t.n['parent_service'], t.n['entry_name'], \
             t.n['is_origin'], t.n['repeats'] from (select unnest(span_tree(id, parent, kind, service, name, \
             st, en, err, mark)) as n from s) t order by t.n['span_id']",
                &[
                    "0000000000000001|30|-|GET /|true|-",
                    "0000000000000002|10|web|GET /|false|-",
                    "0000000000000003|20|web|GET /cart|true|-",
                    "0000000000000004|40|web|GET /|true|1",
                ],
            ),
            (
                "select t.n['spans'], t.n['errors'], t.n['depth'], t.n['orphans'], t.n['has_root'], \
             t.n['root_name'], t.n['duration'], t.n['database_time'] from (select trace_shape(id, parent, kind, \
             service, name, st, en, err, mark) as n from s) t",
                &["4|1|3|0|true|GET /|100|40"],
            ),
            (
                "select t.n['span_id'], t.n['critical_time'], t.n['root_duration'] from (select \
             unnest(critical_path(id, parent, kind, service, name, st, en, err, mark)) as n from s) t order by \
             t.n['span_id']",
                &[
                    "0000000000000001|30|100",
                    "0000000000000002|10|100",
                    "0000000000000003|20|100",
                    "0000000000000004|40|100",
                ],
            ),
            (
                "select t.n['spans'], t.n['orphans'], t.n['has_root'], t.n['duration'] from (select \
             trace_shape(id, parent, kind, service, name, st, en, err, mark) as n from s where parent <> '') t",
                &["3|2|false|80"],
            ),
            (
                "select count(*) from (select unnest(critical_path(id, parent, kind, service, name, st, en, err, \
             mark)) as n from s where parent <> '') t",
                &["0"],
            ),
            (
                "select service, trace_shape(id, parent, kind, service, name, st, en, err, mark)['spans'] from s \
             group by service order by service",
                &["cart|1", "web|3"],
            ),
            (
                "select count(*) from (select unnest(span_tree(id, parent, kind, service, name, st, en, err, \
             mark)) as n from (select * from s union all select * from s) twice) t",
                &["4"],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn whole_numbers_are_rounded() {
    gives(
        "",
        &[
            (
                "select to_whole(cast(x as double)) from (values (0.5), (1.5), (2.5), (-0.5), (-2.5), (null)) v (x)",
                &["0.0", "2.0", "2.0", "-0.0", "-2.0", "-"],
            ),
            ("select to_whole(x) from (values (1), (-7), (null)) v (x)", &["1", "-7", "-"]),
            (
                "select to_whole(cast(x as decimal(10, 2))) from (values ('2.50'), ('-2.50'), ('2.49')) v (x)",
                &["3", "-3", "2"],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn sums_and_quotients() {
    gives(
        "",
        &[
            ("select x + 1, x - 1, x * 2 from (values (1), (null), (-5)) v (x)", &["2|0|2", "-|-|-", "-4|-6|-10"]),
            ("select x from (values (0), (1), (2)) v (x) where x <> 0 and 10 / x > 6", &["1"]),
            ("select x from (values (0), (1), (2)) v (x) where x <> 0 and 10 % x = 0 order by x", &["1", "2"]),
            ("select sum(10 / x) filter (where x <> 0) from (values (0), (1), (2)) v (x)", &["15"]),
            (
                "select sum(x), sum(x) filter (where x > 5) from (values (9223372036854775807), (-1)) v (x)",
                &["9223372036854775806|9223372036854775807"],
            ),
            ("select sum(x) over (order by x) from (values (1), (2), (null)) v (x) order by x", &["1", "3", "3"]),
        ],
    )
    .await;
}

#[tokio::test]
async fn values_in_frames() {
    gives(
        "",
        &[
            (
                "select string_agg(x, '-') over (order by n) from (values (1, 'a'), (2, 'b'), (3, 'c')) v (n, x) \
             order by n",
                &["a", "a-b", "a-b-c"],
            ),
            (
                "select array_to_string(array_agg(x) over (order by n rows between 1 preceding and current row), \
             ',', '*') from (values (1, 'a'), (2, null), (3, 'c')) v (n, x) order by n",
                &["a", "a,*", "*,c"],
            ),
            (
                "select lag(x, 1, 'none') over (order by n), lead(x) over (order by n) from (values (1, 'a'), (2, \
             'b')) v (n, x) order by n",
                &["none|b", "a|-"],
            ),
            (
                "select count(*) filter (where x = 'a') over (order by n) from (values (1, 'a'), (2, 'b'), (3, \
             'a')) v (n, x) order by n",
                &["1", "1", "2"],
            ),
            (
                "select first_value(x) over (partition by k order by n), last_value(x) over (partition by k order \
             by n rows between unbounded preceding and unbounded following) from (values (1, 'p', 'a'), (2, \
             'q', 'b'), (3, 'p', 'c')) v (n, k, x) order by n",
                &["a|c", "b|b", "a|c"],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn aggregates_by_group() {
    gives(
        "",
        &[
            (
                "select k, quantile(x, 0.5), quantile(x, 0.0), quantile(x, 1.0) from (values ('a', 1.0), ('a', \
             2.0), ('b', 5.0), ('b', null), ('c', null)) v (k, x) group by k order by k",
                &["a|1.5|1.0|2.0", "b|5.0|5.0|5.0", "c|-|-|-"],
            ),
            (
                "select k, quantile(x, 0.5), quantile(x, 1.0) filter (where x > 1), count(*), quantile(x, 0.25), \
             quantile(x, 0.0) filter (where x > 1) from (values ('a', 1.0), ('a', 2.0), ('a', 4.0), ('b', null)) v (k, x) \
             group by k order by k",
                &["a|2.0|4.0|3|1.5|2.0", "b|-|-|1|-|-"],
            ),
            (
                "select quantile(x, 0.5), max(x), quantile(x, 1.0) from (values (3.0), (1.0), (2.0)) v (x) where x > 0.0",
                &["2.0|3.0|3.0"],
            ),
            (
                "select k from (values ('a', 1.0), ('b', 2.0), ('c', 3.0)) v (k, x) group by k having quantile(x, 0.5) > 1 \
             order by quantile(x, 0.9) desc",
                &["c", "b"],
            ),
            ("select quantile(x, 0.5), quantile(x, 1.0) from (values (3.0)) v (x) where x < 0.0", &["-|-"]),
            (
                "select k, mode(x) from (values ('a', 1), ('a', 2), ('a', 2), ('b', null)) v (k, x) group by k \
             order by k",
                &["a|2", "b|-"],
            ),
            (
                "select k, count_distinct(x) from (values ('a', 1), ('a', 1), ('a', 2), ('b', null)) v (k, x) \
             group by k order by k",
                &["a|2", "b|0"],
            ),
            (
                "select k, count_distinct_approx(x) from (values ('a', 1), ('a', 1), ('a', 2), ('b', null)) v (k, \
             x) group by k order by k",
                &["a|2", "b|0"],
            ),
            (
                "select k, every(x > 1), variance(x) from (values ('a', 2), ('a', 4), ('b', 1), ('c', null)) v (k, \
             x) group by k order by k",
                &["a|true|2.0", "b|false|-", "c|-|-"],
            ),
            ("select max_overlap(f, t) from (values (0, 10), (5, 15), (10, 20), (30, 40)) v (f, t)", &["2"]),
        ],
    )
    .await;
}

#[tokio::test]
async fn sketches_of_parts_give_the_number_of_all() {
    let few = "(values ('a', 1), ('a', 1), ('a', 2), ('b', 2), ('b', null), ('c', null)) v (k, x)";
    // Some parts have few values, others so many that they keep registers.
    let many = "(select case when value < 500 then value % 5 else 9 end k, value % 2 as two, value * 7 % 9001 x from generate_series(1, 30000))";
    let same = |over: &str| {
        format!(
            "select (select distinct_of_sketches(s) from (select k, distinct_sketch({over}) s from {many} group by k)) = \
             (select count_distinct_approx({over}) from {many})"
        )
    };
    let grouped = format!(
        "select count(*) from (select two, distinct_of_sketches(s) n from (select k, two, distinct_sketch(x) s from {many} \
         group by k, two) group by two) p join (select two, count_distinct_approx(x) n from {many} group by two) q \
         on p.two = q.two and p.n = q.n"
    );
    let of_few = format!("select distinct_of_sketches(s) from (select k, distinct_sketch(x) s from {few} group by k)");
    let by_key = format!(
        "select k, distinct_of_sketches(s) from (select k, distinct_sketch(x) s from {few} group by k) group by k \
         order by k"
    );
    let some = format!(
        "select distinct_of_sketches(s) filter (where k <> 'a') from (select k, distinct_sketch(x) s from {few} group by k)"
    );
    let nothing = format!(
        "select distinct_of_sketches(s) from (select k, distinct_sketch(x) s from {few} where false group by k)"
    );
    gives(
        "",
        &[
            (&same("x"), &["true"]),
            (&same("x::text"), &["true"]),
            (&same("x / 4.0::double"), &["true"]),
            (&same("(x % 10)::smallint"), &["true"]),
            (&same("x::smallint"), &["true"]),
            (&same("x % 3 = 1"), &["true"]),
            (&grouped, &["2"]),
            (&of_few, &["2"]),
            (&by_key, &["a|2", "b|1", "c|0"]),
            (&some, &["1"]),
            (&nothing, &["0"]),
        ],
    )
    .await;
}

#[tokio::test]
async fn texts_of_functions() {
    gives(
        "",
        &[
            (
                "select host_of(x), path_of(x) from (values ('https://a.example.org:8080/b/c?d=1#e'), ('/x/y?z'), \
             (''), (null)) v (x)",
                &["a.example.org|/b/c", "-|/x/y", "-|-", "-|-"],
            ),
            (
                "select fold_ids(x) from (values ('/users/42/orders/0a1b2c3d4e5f60718293a4b5c6d7e8f9'), \
             ('/static')) v (x)",
                &["/users/{}/orders/{}", "/static"],
            ),
            (
                "select registered_domain(x) from (values ('www.example.co.uk'), ('localhost'), \
             ('a.b.example.com')) v (x)",
                &["example.co.uk", "-", "example.com"],
            ),
            (
                "select summarise(x) from (values ('select * from orders where id = 1'), ('insert into a.b values \
             (1)')) v (x)",
                &["SELECT orders", "INSERT a.b"],
            ),
            (
                "select query_hash('select 1 from a where b in (1, 2)') = query_hash('SELECT 5 FROM a  WHERE b IN \
             (7)')",
                &["true"],
            ),
            (
                "select severity_bucket(n, t) from (values (9, null), (null, 'WARN'), (17, 'info'), (null, null), \
             (null, 'x')) v (n, t)",
                &["info", "warn", "error", "-", "-"],
            ),
            ("select sample_weight(x) from (values ('ot=th:8'), ('x'), (null)) v (x)", &["2.0", "1.0", "1.0"]),
        ],
    )
    .await;
}
