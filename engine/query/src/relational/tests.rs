use std::time::Duration;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::physical_plan::displayable;
use futures::StreamExt as _;
use quiver_types::{Access, ErrorKind};

use super::*;
use crate::name_resolution::Names;
use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules};

pub(super) fn engine() -> Arc<QueryEngine> {
    let settings = EngineSettings { concurrent_max: 2, ..EngineSettings::small(64 << 20) };
    QueryEngine::new(&settings).unwrap()
}

/// How many rows a statement gives.
pub(super) async fn count(engine: &Arc<QueryEngine>, statement: &'static str, timeout_ms: u64) -> Result<usize> {
    let limits = Limits { timeout: Duration::from_millis(timeout_ms), ..Limits::default() };
    let ctx = QueryContext::new(Access::full(), limits);
    let (own, inner) = (Arc::clone(engine), ctx.clone());
    let work = async move {
        let plan = Names::new(own.relational()).plan(statement)?;
        let mut rows = own.execute(&plan, &inner, Rules::Relational).await?;
        let mut count = 0;
        while let Some(batch) = rows.next().await {
            count += batch.map_err(from_datafusion)?.num_rows();
        }
        Ok(count)
    };
    engine.run(&ctx, work).await
}

#[tokio::test]
async fn a_plan_has_a_moment() {
    let engine = engine();
    for statement in ["select now()", "select current_date", "select 1 where now() > timestamp '2020-01-01'"] {
        assert_eq!(count(&engine, statement, 10_000).await.unwrap(), 1, "{statement}");
    }
}

#[tokio::test]
async fn moments_have_their_zone() {
    let engine = engine();
    let names = Names::new(engine.relational());
    for (expr, zone) in [
        ("now()", Some("UTC")),
        ("current_timestamp", Some("UTC")),
        ("to_timestamp(0)", Some("UTC")),
        ("timestamptz '2025-03-10 00:00:00+01'", Some("UTC")),
        ("cast('2025-03-10' as timestamp with time zone)", Some("UTC")),
        ("timestamp '2025-03-10 00:00:00'", None),
    ] {
        let plan = names.plan(&format!("select {expr} as t")).unwrap();
        let expected = DataType::Timestamp(TimeUnit::Nanosecond, zone.map(Into::into));
        assert_eq!(*plan.schema().field(0).data_type(), expected, "{expr}");
        engine.plan_relational(&plan).await.unwrap();
    }
}

#[tokio::test]
async fn constants_that_are_none_are_the_statements_fault() {
    let engine = engine();
    let names = Names::new(engine.relational());
    for statement in [
        "select cast('abc' as int)",
        "select date '2025-13-01'",
        "select 'a' ~ '('",
        "select ntile(0) over () from generate_series(1, 3)",
    ] {
        let plan = names.plan(statement).unwrap();
        let refused = engine.plan_relational(&plan).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
    }
}

/// Breaks if an error in the constants of an aggregate, found when it begins to run, is reported as an internal one.
#[tokio::test]
async fn constants_of_aggregates_are_the_statements_fault() {
    let engine = engine();
    for statement in [
        "select percentile_cont(-1) within group (order by 1)",
        "select percentile_cont(null) within group (order by 1)",
        "select quantile(-1, 1.5)",
        "select nth_value(1, 0)",
        "select nth_value(value, -9223372036854775807 - 1 order by value) from generate_series(1, 3)",
    ] {
        let refused = count(&engine, statement, 10_000).await.expect_err(statement);
        assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
    }
}

/// Breaks if calls that DataFusion plans, but cannot run, are reported as internal errors.
#[tokio::test]
async fn calls_of_what_they_do_not_take_are_the_statements_fault() {
    let engine = engine();
    for statement in [
        "select first_value() over () from generate_series(1, 3)",
        "select last_value() over () from generate_series(1, 3)",
        "select array_sum([[1, 2], [3]])",
        "select array_scale([[1, 2], [3]], 2)",
        "select array_add([[1]], [[2]])",
        "select list_product([[value]]) from generate_series(1, 3)",
    ] {
        let refused = count(&engine, statement, 10_000).await.expect_err(statement);
        assert_eq!(refused.kind, ErrorKind::Invalid, "{statement}: {refused:?}");
    }
    assert_eq!(count(&engine, "select array_sum([1, 2]), array_add([1], [2])", 10_000).await.unwrap(), 1);
}

#[tokio::test]
async fn whole_numbers_do_not_begin_anew() {
    let engine = engine();
    for statement in [
        "select 9223372036854775807 + 1",
        "select -9223372036854775807 - value from generate_series(1, 3)",
        "select sum(value * 9223372036854775807) from generate_series(1, 3)",
        "select 1 from generate_series(1, 3) where value + 9223372036854775807 > 0",
        "select cast(2147483647 as int) + cast(1 as int)",
        "select 6 / value from generate_series(0, 3)",
        "select value from generate_series(0, 3) where value % 0 = 1",
    ] {
        count(&engine, statement, 10_000).await.expect_err(statement);
    }
    for (statement, rows) in [
        ("select value + 1, value * 2 - 1 as b from generate_series(1, 3) order by value + 1", 3),
        ("select value + 1, count(*) + 1 from generate_series(1, 3) group by value + 1", 3),
        ("select a.value from generate_series(1, 3) a join generate_series(1, 3) b on a.value + 1 = b.value", 2),
        ("with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n from r", 5),
        ("select value, (select max(b.value) + 1 from generate_series(1, 3) b) from generate_series(1, 2)", 2),
        ("select 1 from generate_series(1, 9) limit 2 + 1", 3),
        ("select value from generate_series(1, 9) where '5' + value = 8 and value * '2' = 6", 1),
        ("select value from generate_series(0, 3) where value <> 0 and 6 / value >= 3", 2),
        ("select value from generate_series(0, 3) where value > 0 and 6 % value = 0 and value < 3", 2),
        ("select sum(6 / value) filter (where value > 0) from generate_series(0, 3)", 1),
        ("select value from generate_series(1, 3) where value + 1 in (select 2 * 1 union all select 3 + 1)", 2),
    ] {
        assert_eq!(count(&engine, statement, 10_000).await.unwrap(), rows, "{statement}");
    }
    let plan = Names::new(engine.relational()).plan("select value + 1 from generate_series(1, 3)").unwrap();
    let (optimized, _) = engine.plan_relational(&plan).await.unwrap();
    assert_eq!(optimized.schema().field(0), plan.schema().field(0));
}

#[tokio::test]
async fn little_does_not_become_much_at_once() {
    let engine = engine();
    for statement in [
        "select repeat('x', 1000000000)",
        "select lpad('a', 100000000)",
        "select length(rpad('a', value)) from generate_series(1000000, 1000200) t",
        "select array_repeat('xy', 100000000)",
        "select range(1, 1000000000000)",
        "select replace(repeat('a', 1000000), 'a', repeat('b', 1000))",
        "select length(replace(repeat('a', value), '', repeat('b', 1000))) from generate_series(1000000, 1000002)",
        "select regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000), 'g')",
        "select regexp_replace(repeat('a', 1000000), '(a+)', repeat('\\1', 1000))",
        "select generate_series(9000000000, 1, -1)",
        "select length(a || a || a || a) from (select repeat('x', 20000000) a from generate_series(1, 1))",
        "select length(concat(a, a, a, a)) from (select repeat('x', 20000000) a from generate_series(1, 1))",
        "select length(concat_ws(',', a, a, a, a)) from (select repeat('x', 20000000) a from generate_series(1, 1))",
        "select length(encode(encode(repeat('x', 30000000)::bytea, 'hex')::bytea, 'hex'))",
        "select array_to_string(array_repeat('x', 100000), repeat('y', 1000000))",
        "select array_repeat(array_repeat(repeat('x', 6000), 1000), 100)",
        "select array_resize(make_array('x'), 1000, repeat('y', 1000000))",
        "select array_replace_all(array_repeat('x', 1000), 'x', repeat('y', 1000000))",
        "select generate_series(timestamp '1970-01-01', timestamp '2262-01-01', interval '1 second')",
        "select range(date '0001-01-01', date '9999-01-01', interval '1 minute')",
        "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
        "select to_char(to_timestamp(value), repeat('%Y', 20000000)) from generate_series(1, 8000)",
        "select regexp_match(repeat('a', 1000000), repeat('(', 100) || 'a*' || repeat(')', 100))",
        // Many that are each small enough.
        "select repeat('a', 9000000), repeat('b', 9000000), repeat('c', 9000000), repeat('d', 9000000), \
         repeat('e', 9000000), repeat('f', 9000000), repeat('g', 9000000)",
    ] {
        let error = count(&engine, statement, 10_000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{statement}: {error:?}");
    }
    for statement in [
        "select repeat('x', 1000000), range(3)",
        // A few rows at a time.
        "select max(a) from (select repeat('x', 1000000) || value::text a from generate_series(1, 800)) t",
        "select range(5, 1, -2), lpad('a', 3, 'b')",
        "select length(replace(repeat('ab', 10000000), 'a', 'c'))",
        "select regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000))",
        "select regexp_replace(repeat('ab ', 100000), '^a', repeat('x', 300), 'g')",
        "select replace(repeat('a', 1000000), 'b', repeat('c', 1000)), replace('a', NULL, 'b')",
        "select 'a' || NULL, concat('a', NULL), 'a' || 1, string_to_array(repeat('a,b', 100000), ',')",
        "select length(repeat('a', 5000000) || repeat('b', 5000000)), array_to_string(make_array(1, 2), '-')",
        "select generate_series(date '2020-01-01', date '2020-12-31', interval '1 month'), range(3, 0, -1)",
        "select max(upper(repeat('a', 1000) || value)) from generate_series(1, 20000)",
    ] {
        assert_eq!(count(&engine, statement, 10_000).await.unwrap(), 1, "{statement}");
    }
}

#[tokio::test]
async fn copies_of_long_values_count() {
    let engine = engine();
    let over = |outputs: fn(usize) -> String, count: usize| -> &'static str {
        let outputs: Vec<String> = (2..count + 2).map(outputs).collect();
        // No constants, of which batches have fewer rows.
        let rows = "select repeat('x', 1000 + value % 2) || value a, repeat('y', 1000 + value % 2) || value b, \
                    range(value, value + 150) l, value from generate_series(1, 8000)";
        format!("select {} from ({rows}) t", outputs.join(", ")).leak()
    };
    let copies: [fn(usize) -> String; 6] = [
        |n| format!("case when value % {n} = 0 then a else b end"),
        |n| format!("coalesce(nullif(a, 'x{n}'), b)"),
        |n| format!("greatest(a, 'b{n}')"),
        |n| format!("array_slice(l, 1, {}::bigint)::text", 100 + n),
        |n| format!("quote_literal(a || '{n}')"),
        |n| format!("named_struct('a', quote_literal(a || '{n}'))"),
    ];
    for copy in copies {
        let (few, many) = (over(copy, 1), over(copy, 12));
        assert_eq!(count(&engine, few, 10_000).await.unwrap(), 8000, "{few}");
        let error = count(&engine, many, 10_000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{many}: {error:?}");
    }
    // What is cut out of a text points at it.
    let cut: fn(usize) -> String = |n| format!("substr(arrow_cast(a, 'Utf8View'), {n})");
    assert_eq!(count(&engine, over(cut, 12), 10_000).await.unwrap(), 8000);
    // Names and types stay.
    let statement = "select case when value > 1 then 'a' else 'b' end, value::text, upper('x') || value::text as u \
                     from generate_series(1, 3) order by case when value > 1 then 'a' else 'b' end";
    let plan = Names::new(engine.relational()).plan(statement).unwrap();
    let (_, physical) = engine.plan_relational(&plan).await.unwrap();
    let (fields, asked) = (physical.schema(), plan.schema());
    assert_eq!(fields.fields().len(), asked.fields().len());
    for (field, asked) in fields.fields().iter().zip(asked.fields()) {
        assert_eq!((field.name(), field.data_type()), (asked.name(), asked.data_type()));
    }
}

#[tokio::test]
async fn windows_take_memory_before_they_give() {
    let engine = engine();
    let rows = "(select case when value = 1 then repeat('x', 300000) else 'y' || value end a, value \
                from generate_series(1, 8000))";
    let words = "(select repeat('x', 100) || value a, value from generate_series(1, 8000))";
    for statement in [
        format!("select string_agg(a, ',') over (order by value) from {words}"),
        format!("select string_agg(a, ',') over () from {words}"),
        format!("select array_agg(a) over (order by value) from {words}"),
        format!("select array_agg(a) over (partition by value % 2) from {words}"),
        format!("select min(a) over () from {rows}"),
        format!("select max(a) filter (where value = 1 or a = 'y') over () from {rows}"),
        format!("select min(a) over (order by value rows between 1000 preceding and current row) from {rows}"),
        format!("select first_value(a) over (order by value) from {rows}"),
        format!("select nth_value(a, 1) over () from {rows}"),
        format!(
            "select last_value(a) over (order by value desc rows between 1 preceding and unbounded following) \
                 from {rows}"
        ),
        format!("select lag('y' || value, 8000, '{}') over (order by value) from {words}", "x".repeat(30_000)),
        "select sum(value) over (), avg(value) over () from generate_series(1, 5000000)".to_owned(),
    ] {
        let statement: &'static str = statement.leak();
        let error = count(&engine, statement, 60_000).await.expect_err(statement);
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{statement}: {error:?}");
    }
    for statement in [
        format!("select string_agg(a, ',') over (partition by value / 4 order by value) from {words}"),
        format!("select string_agg(a, ',') over (partition by value / 4), count(*) over () from {words}"),
        format!("select array_agg(a) filter (where value > 3) over (partition by value / 4) from {words}"),
        format!("select max(a) over (), lag(a) over (), lead(a, 2, '-') over (), ntile(4) over () from {words}"),
        format!("select last_value(a) over (order by value), min(a) over (order by value) from {words}"),
        format!("select sum(value) over (partition by value % 3), rank() over (order by value) from {words}"),
    ] {
        let statement: &'static str = statement.leak();
        assert_eq!(count(&engine, statement, 60_000).await.unwrap(), 8000, "{statement}");
    }
    assert_eq!(count(&engine, "select sum(1) over () from generate_series(1, 0)", 10_000).await.unwrap(), 0);
}

#[tokio::test]
async fn long_lists_become_rows_piece_by_piece() {
    let engine = engine();
    let long = "(select repeat('x', 10000) || value a, range(0, 100000) l from generate_series(1, 1))";
    for (statement, rows) in [
        (format!("select unnest(l) x, a from {long}"), 100_000),
        (format!("select unnest(l) x, unnest(range(0, 3)) y, a from {long}"), 100_000),
        (format!("select unnest(unnest(make_array(l))) x, a from {long}"), 100_000),
        ("select unnest(range(0, value)) from generate_series(0, 3)".to_owned(), 6),
        ("select unnest(unnest(array_repeat(range(0, value), 2))) from generate_series(0, 3)".to_owned(), 12),
    ] {
        let statement: &'static str = statement.leak();
        assert_eq!(count(&engine, statement, 20_000).await.unwrap(), rows, "{statement}");
    }
}

#[tokio::test]
async fn long_constants_are_put_into_few_rows_at_once() {
    let engine = engine();
    let long = "x".repeat(20_000);
    let keys = |count: usize| (1..=count).map(|n| format!("value + {n}")).collect::<Vec<_>>().join(", ");
    let sums = |name: &str, count: usize| {
        (1..=count).map(|n| format!("{name}(value + {n}) as a{n}")).collect::<Vec<_>>().join(", ")
    };
    for (statement, is_sliced, rows) in [
        (format!("select '{long}' as a, value from generate_series(1, 3000)"), true, 3000),
        (format!("select value % 3, max('{long}') from generate_series(1, 3000) group by value % 3"), true, 3),
        (format!("select value from generate_series(1, 3000) where '{long}' <> value::text"), false, 3000),
        ("select 'short', value from generate_series(1, 3000)".to_owned(), false, 3000),
        ("select repeat('x', 100000) as a, value from generate_series(1, 300)".to_owned(), true, 300),
        ("select string_agg(left(repeat('x', 100000), -99999), '') from generate_series(1, 300)".to_owned(), true, 1),
        ("select repeat('x', value::int), random() from generate_series(1, 300)".to_owned(), false, 300),
        // Each row is put into all sets of groups at once.
        (format!("select value from generate_series(1, 10) group by cube(value, {})", keys(7)), true, 255 * 10 + 1),
        (format!("select value from generate_series(1, 10) group by rollup(value, {})", keys(1)), false, 21),
        // And into all aggregates, of which those that keep texts or lists take more.
        (format!("select {} from generate_series(1, 10)", sums("sum", 100)), true, 1),
        (format!("select {} from generate_series(1, 10)", sums("sum", 20)), false, 1),
        (format!("select {} from generate_series(1, 10)", sums("array_agg", 20)), true, 1),
        (format!("select {} from generate_series(1, 10) group by value % 3", sums("array_agg", 20)), true, 3),
        (format!("select {} from generate_series(1, 10)", sums("array_agg", 3)), false, 1),
        (format!("select {} from generate_series(1, 10)", sums("count", 20)), false, 1),
    ] {
        let statement: &'static str = statement.leak();
        let plan = Names::new(engine.relational()).plan(statement).unwrap();
        let (_, physical) = engine.plan_relational(&plan).await.unwrap();
        let shown = displayable(&*physical).indent(false).to_string();
        assert_eq!(shown.contains("SliceExec"), is_sliced, "{shown}");
        assert_eq!(count(&engine, statement, 10_000).await.unwrap(), rows, "{shown}");
    }
}

/// Breaks if batches that nothing can refuse are so large that some clients fill a small server with them.
#[tokio::test]
async fn rows_of_long_constants_take_some_megabytes_at_once() {
    let most = most_of_a_batch(256 << 20).await;
    assert!((2 << 20..12 << 20).contains(&most), "{most} bytes");
    // In a fourth of the memory it is a fourth.
    let few = most_of_a_batch(64 << 20).await;
    assert!((1 << 18..3 << 20).contains(&few), "{few} bytes");
}

/// Bytes of the longest batch of a long constant in an engine of so much memory.
async fn most_of_a_batch(memory_bytes: usize) -> usize {
    let engine = QueryEngine::new(&EngineSettings::small(memory_bytes)).unwrap();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner) = (Arc::clone(&engine), ctx.clone());
    let work = async move {
        let plan = Names::new(own.relational()).plan("select repeat('x', 60000) from generate_series(1, 1000)")?;
        let mut rows = own.execute(&plan, &inner, Rules::Relational).await?;
        let mut most = 0;
        while let Some(batch) = rows.next().await {
            most = most.max(batch.map_err(from_datafusion)?.get_array_memory_size());
        }
        Ok(most)
    };
    engine.run(&ctx, work).await.unwrap()
}

/// Breaks if a condition on a column that an outer join may lack becomes one on that of the same name beside it.
#[tokio::test]
async fn conditions_stay_with_their_side_of_a_join() {
    let engine = engine();
    let (one, other) = ("(values (1, 'y'), (2, null)) a(k, b)", "(values (3, 'x'), (4, 'longer'), (5, 'y')) o(k, b)");
    for (condition, rows) in [
        ("length(a.b) > 2", 0),
        ("a.b like 'l%'", 0),
        ("coalesce(a.b, 'y') = 'y'", 3),
        ("lower(a.b) = 'y'", 1),
        ("a.b is null", 2),
    ] {
        for join in [format!("{one} right join {other}"), format!("{other} left join {one}")] {
            let statement: &'static str = format!("select a.b, o.k from {join} on a.b = o.b where {condition}").leak();
            assert_eq!(count(&engine, statement, 10_000).await.unwrap(), rows, "{statement}");
        }
    }
}

/// Breaks if a condition, which is moved below the projection, unpacks the spans of thousands of traces at once.
#[tokio::test]
async fn conditions_unpack_spans_of_few_traces_at_once() {
    let engine = engine();
    let statement = "select k from (select value % 7 k, span_tree('a', 'b', 'c', 'd', 'e', value, value, false, 'x') t \
                     from generate_series(1, 100) group by value % 7) q where cardinality(t) > 0";
    let plan = Names::new(engine.relational()).plan(statement).unwrap();
    let (_, physical) = engine.plan_relational(&plan).await.unwrap();
    let shown = displayable(&*physical).indent(false).to_string();
    assert!(shown.contains("SliceExec: rows=256"), "{shown}");
    assert_eq!(count(&engine, statement, 10_000).await.unwrap(), 7, "{shown}");
}

/// Breaks if a join or an exchange puts as many rows with a long constant into a batch as of any others.
#[tokio::test]
async fn batches_of_long_constants_are_short() {
    let engine = engine();
    let long = "x".repeat(16 << 10);
    for (statement, is_short) in [
        (format!("select distinct '{long}' as a, value from generate_series(1, 3)"), true),
        (format!("select a, value from generate_series(1, 3), (values ('{long}'), ('b')) t(a)"), true),
        (format!("select value from generate_series(1, 3) where '{long}' <> value::text"), false),
    ] {
        let plan = Names::new(engine.relational()).plan(&statement).unwrap();
        let (optimized, physical) = engine.plan_relational(&plan).await.unwrap();
        let rows = long_constants::batch_rows(&optimized, &physical, 4 << 20).unwrap();
        assert_eq!(rows < 8192, is_short, "{rows} {}", displayable(&*physical).indent(false));
        assert!(rows <= 1024 || !is_short, "{rows}");
    }
}

/// Breaks if a constant is put beside all rows of a partition before anything counts it.
#[tokio::test]
async fn long_constants_of_windows_count() {
    let engine = engine();
    let over = |call: &str, over: &str| -> &'static str {
        format!("select count(w) from (select {call} over ({over}) w from generate_series(1, 8000)) t").leak()
    };
    let long = "x".repeat(20_000);
    for (call, window) in [
        (format!("nth_value('{long}', 9000)"), ""),
        ("nth_value(repeat('x', 100000), 9000)".to_owned(), ""),
        (format!("lag('{long}')"), "order by value"),
    ] {
        let error = count(&engine, over(&call, window), 60_000).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{call}: {error}");
    }
    let many: Vec<_> = (0..100).map(|n| format!("'{n:09}'")).collect();
    let among = format!("sum(case when value::text in ({}) then 0 else 1 end)", many.join(", "));
    let compared = format!("sum(case when value::text = '{long}' or value::text < '{long}' then 0 else 1 end)");
    let short = [
        ("nth_value('x', 9000)", ""),
        ("lag('x')", "order by value"),
        (among.as_str(), "order by value"),
        (compared.as_str(), "order by value"),
    ];
    for (call, window) in short {
        assert_eq!(count(&engine, over(call, window), 60_000).await.unwrap(), 1, "{call}");
    }
}

#[tokio::test]
async fn products_of_tables_are_few() {
    let engine = engine();
    let product = |tables: usize| -> &'static str {
        let tables: Vec<_> = (0..tables).map(|n| format!("generate_series(1, 2) t{n}")).collect();
        format!("select count(*) from {}", tables.join(" cross join ")).leak()
    };
    assert_eq!(count(&engine, product(8), 20_000).await.unwrap(), 1);
    let error = count(&engine, product(40), 20_000).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error:?}");
    let value = |n: usize| format!("(select max(value) + {n} from generate_series(1, 3)) a{n}");
    let values: Vec<_> = (0..30).map(value).collect();
    let statement: &'static str = format!("select {} from generate_series(1, 2)", values.join(", ")).leak();
    assert_eq!(count(&engine, statement, 20_000).await.unwrap(), 2);
}

/// Breaks if more nodes give way, one below the other, than a task may do things at once: they turned round for ever.
#[tokio::test]
async fn chains_of_windows_come_to_their_rows() {
    let engine = engine();
    let windows: Vec<_> = (0..128).map(|n| format!("sum(value) over (partition by value + {n})")).collect();
    let statement: &'static str = format!("select {} from generate_series(1, 2)", windows.join(", ")).leak();
    assert_eq!(count(&engine, statement, 120_000).await.unwrap(), 2);
}

#[tokio::test]
async fn inputs_of_a_union_begin_in_turn() {
    let engine = engine();
    let part = |n| format!("select column1 from (values ({n}), ({n} + 1)) t");
    let statement: &'static str = (0..30).map(part).collect::<Vec<_>>().join(" union all ").leak();
    let plan = Names::new(engine.relational()).plan(statement).unwrap();
    let (_, physical) = engine.plan_relational(&plan).await.unwrap();
    let shown = displayable(&*physical).indent(false).to_string();
    assert!(shown.contains("InTurnExec: partitions=1"), "{shown}");
    assert_eq!(count(&engine, statement, 20_000).await.unwrap(), 60);
}

#[tokio::test]
async fn statements_without_end_give_their_threads_back() {
    let engine = engine();
    for statement in [
        "select count(*) from generate_series(1, 1000000000000)",
        "select count(*) from generate_series(1, 100000) a cross join generate_series(1, 1000000) b",
        "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r",
        "select count(*) from generate_series(1, 100000) a join generate_series(1, 100000) b on a.value < b.value",
    ] {
        assert_eq!(count(&engine, statement, 300).await.unwrap_err().kind, ErrorKind::Timeout, "{statement}");
        // The one thread is free again.
        assert_eq!(count(&engine, "select 1", 10_000).await.unwrap(), 1, "{statement}");
    }
}
