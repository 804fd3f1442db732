use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::physical_plan::displayable;
use futures::TryStreamExt as _;
use quiver_types::Access;

use crate::name_resolution::Names;
use crate::node_encoding::tests::passed;
use crate::relational::tests::engine;
use crate::{Limits, QueryContext, Rules};

async fn explained(statement: &str) -> String {
    let engine = engine();
    let plan = Names::new(engine.relational()).plan(statement).unwrap();
    let (_, physical) = engine.plan_relational(&plan).await.unwrap();
    displayable(physical.as_ref()).indent(false).to_string()
}

/// The first column of a statement's rows, and the most bytes that a batch of them has.
async fn numbers(statement: &'static str) -> (Vec<i64>, usize) {
    let engine = engine();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner) = (Arc::clone(&engine), ctx.clone());
    let work = async move {
        let plan = Names::new(own.relational()).plan(statement)?;
        let rows = own.execute(&plan, &inner, Rules::Relational).await?;
        rows.try_collect::<Vec<RecordBatch>>().await.map_err(crate::error::from_datafusion)
    };
    let batches = engine.run(&ctx, work).await.unwrap();
    let most = batches.iter().map(RecordBatch::get_array_memory_size).max().unwrap_or(0);
    let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    (batches.iter().flat_map(column).collect(), most)
}

#[tokio::test]
async fn texts_that_are_handed_on_go_through_joins_as_views() {
    for (statement, views) in [
        ("select a.x from (select * from (values ('x', 1), ('z', 2)) t(x, n)) a, generate_series(1, 3) g", 2),
        ("select a.x, g.value from (values ('x', 1)) a(x, n) join generate_series(1, 3) g on a.n = g.value", 2),
        ("select a.x from (values ('x', 1), ('y', 2)) a(x, n) join generate_series(1, 3) g on a.n < g.value", 2),
        // Texts that a join looks at keep their type, and rows of a half join come once.
        ("select a.n from (values ('x', 1), ('y', 2)) a(x, n) join (values ('x'), ('y')) b(x) on a.x = b.x", 0),
        (
            "select a.x from (values ('x', 1), ('y', 2)) a(x, n) where a.n in (select value from generate_series(1, 3))",
            0,
        ),
        ("select a.n from (values (1), (2)) a(n) join generate_series(1, 3) g on a.n = g.value", 0),
        ("select a.x from (values (array[1, 2], 1), (array[3], 2)) a(x, n), generate_series(1, 3) g", 2),
        (
            "select a.x from (values (array['x'], 1), (array['y', 'z'], 2)) a(x, n) \
             join generate_series(1, 3) g on a.n < g.value",
            2,
        ),
        ("select unnest(range(0, n)), x from (values ('x', 1), ('z', 2)) t(x, n)", 2),
        ("select unnest(range(0, n)) from (values ('x', 1), ('z', 2)) t(x, n)", 0),
    ] {
        let plan = explained(statement).await;
        assert_eq!(plan.matches("TextViewsExec").count(), views, "{statement}\n{plan}");
    }
}

#[tokio::test]
async fn long_values_are_repeated_few_at_once() {
    let statement =
        "select length(x)::bigint, x from (select repeat('x', 1000000) x, 1 one) a, generate_series(1, 100)";
    let (lengths, most) = numbers(statement).await;
    assert_eq!(lengths, [1_000_000; 100]);
    assert!((1_000_000..40 << 20).contains(&most), "{most} bytes");
}

#[tokio::test]
async fn long_lists_are_repeated_few_at_once() {
    for statement in [
        "select cardinality(l)::bigint, l from (select array_agg(repeat('x', 1000)) l from generate_series(1, 1000) h) a, \
         generate_series(1, 100) g",
        "select cardinality(l)::bigint, l from (select array_agg(repeat('x', 1000)) l, count(*) n from \
         generate_series(1, 1000) h) a join generate_series(1, 100) g on a.n >= g.value",
    ] {
        let (lengths, most) = numbers(statement).await;
        assert_eq!(lengths, [1000; 100], "{statement}");
        assert!((1_000_000..40 << 20).contains(&most), "{most} bytes: {statement}");
    }
}

#[tokio::test]
async fn rows_without_a_partner_have_no_texts() {
    let statement = "select g.value, coalesce(length(a.x), -1) from generate_series(1, 4) g \
                     left join (values ('xy', 2), ('z', 3), ('zz', 3)) a(x, n) on a.n = g.value order by 1";
    assert_eq!(numbers(statement).await.0, [1, 2, 3, 3, 4]);
}

#[tokio::test]
async fn nodes_come_back_from_what_is_written() {
    let engine = engine();
    let statement = "select a.x from (values ('x', 1), ('z', 2)) a(x, n), generate_series(1, 3) g";
    let plan = Names::new(engine.relational()).plan(statement).unwrap();
    let (_, physical) = engine.plan_relational(&plan).await.unwrap();
    let (_, names) = passed(physical);
    assert!(names.contains("TextViewsExec"), "{names:?}");
}
