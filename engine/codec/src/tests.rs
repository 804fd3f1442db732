use std::iter::repeat_n;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use datafusion::logical_expr::{AggregateUDF, ColumnarValue, ScalarUDF, Volatility, WindowUDF, create_udf};
use datafusion::physical_expr::expressions::{Column, NegativeExpr};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::prelude::SessionContext;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{PhysicalExtensionNode, PhysicalPlanNode};
use futures::StreamExt as _;
use prost::Message as _;
use quiver_query::{EngineSettings, Forms as _, Limits, Names, PlanForms, QueryContext, Rules};
use quiver_types::Access;

use super::*;
use crate::extension_messages::{Body, Mode, SortKey, of_bytes, to_bytes};
use crate::nesting_limits::Levels;

/// Their first terms are never NULL, but may be, which DataFusion's message of a cast forgets: they are cast once more when
/// they are read.
const CAST_ONCE_MORE: &[&str] = &[
    "with recursive r(n, t) as (select 1, 'a' union all select n + 1, t || 'b' from r where n < 5) select n, t from r order by n",
    "with recursive r(n, t) as (select 1, 'a' union all select n + 1, 'b' from r where n < 5) select t from r order by t",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r order by n",
];

/// Statements over rows that they make themselves; each has an order.
const STATEMENTS: &[&str] = &[
    "select 1, 'a', null, 1.5, date '2020-02-29', interval '1 month 2 days'",
    "select value, value + 1, -value, value * 2 - 3 from generate_series(1, 5) order by 1",
    "select count(*) from generate_series(1, 1000)",
    "select count(*) from generate_series(5, 1)",
    "select count(*) from generate_series(timestamp '2020-01-01', timestamp '2020-01-03', interval '1 hour')",
    "select value from generate_series(timestamp '2020-01-01', timestamp '2020-01-03', interval '12 hours') order by 1",
    "select repeat('x', value), upper('y' || value), lpad('a', value), case when value > 1 then 'a' || value else 'b' end \
     from generate_series(1, 3) order by 1",
    "select value::text, (value * interval '1 day')::text, 1.25::decimal(10, 2) / value, (timestamp '2020-01-01')::text \
     from generate_series(1, 3) order by 1",
    "select value % 3 k, sum(value), avg(value), min(value), max(value), count(*) filter (where value > 5) \
     from generate_series(1, 20) group by k order by k",
    "select value % 3 k, count(distinct value % 5), sum(distinct value % 4), string_agg(value::text, ',' order by value desc) \
     from generate_series(1, 20) group by k order by k",
    "select quantile(value, 0.25), variance(1), mode(value / 15), every(value > 0), count_distinct_approx(value) \
     from generate_series(1, 20)",
    "select x, y, count(*) from (values (1, 2), (1, 3), (2, 2)) t(x, y) group by rollup (x, y) order by x, y",
    "select value, sum(value) over (order by value), sum(value) over (partition by value % 3), row_number() over (order by \
     value desc) from generate_series(1, 20) order by value",
    "select value, lag(value, 2, -1) over (order by value), lead(value) over (order by value), ntile(3) over (order by value), \
     rank() over (order by value % 2) from generate_series(1, 20) order by value",
    "select value, avg(value) over (order by value rows between 2 preceding and 1 following), first_value(value) over (order \
     by value desc), last_value(value) over (partition by value % 2 order by value rows between unbounded preceding and \
     unbounded following) from generate_series(1, 20) order by value",
    "select value, first_value(nullif(value % 4, 1)) ignore nulls over (order by value desc), nth_value(value, 2) over \
     (order by value) from generate_series(1, 20) order by value",
    "select value, string_agg('x' || value, ',') over (order by value), max('y' || value) over () \
     from generate_series(1, 20) order by value",
    "select value, lag('a' || value) over (order by value), first_value('b' || value) over (partition by value % 2 order by \
     value desc) from generate_series(1, 20) order by value",
    "select value, sum(value) filter (where value % 3 > 0) over (order by value rows between 2 preceding and current row), \
     count(*) filter (where value > 5) over (partition by value % 2), string_agg('x' || value, ',') filter (where value < 4) \
     over (order by value) from generate_series(1, 9) order by value",
    "select value, sum(value) over (partition by exclude_current_row() order by value rows between 2 preceding and 1 following), \
     max(value) over (partition by value % 2, exclude_group() order by value / 3 range between 1 preceding and 1 following), \
     first_value(nullif(value % 4, 1)) ignore nulls over (partition by exclude_ties() order by value), count(*) filter (where \
     value % 3 > 0) over (partition by exclude_ties() order by value / 4 groups 1 preceding), array_agg('x' || value) over \
     (partition by exclude_current_row() order by value), avg(value) over (partition by exclude_current_row() order by value \
     rows between 2 preceding and 1 following) from generate_series(1, 9) order by value",
    "select a.value, b.value from generate_series(1, 9) a join generate_series(5, 12) b on a.value = b.value order by 1",
    "select a.value, b.value from generate_series(1, 9) a left join generate_series(5, 12) b on a.value = b.value and \
     b.value > 6 order by 1",
    "select a.value, b.value from generate_series(1, 4) a join generate_series(1, 4) b on a.value < b.value order by 1, 2",
    "select count(*) from generate_series(1, 4) a cross join generate_series(1, 4) b",
    "select value from generate_series(1, 9) where value in (select value * 2 from generate_series(1, 3)) order by 1",
    "select value from generate_series(1, 9) a where not exists (select 1 from generate_series(3, 5) b where b.value = a.value) \
     order by 1",
    "select value, (select max(b.value) + 1 from generate_series(1, 3) b) from generate_series(1, 2) order by 1",
    "select value from generate_series(1, 3) union all select value * 10 from generate_series(1, 3) order by 1",
    "select value from generate_series(1, 30) intersect select value * 10 from generate_series(1, 3) order by 1",
    "select unnest(range(0, value)) x, value from generate_series(0, 4) order by 2, 1",
    "select count(x) from (select unnest(make_array(make_array(1, 2), make_array(3))) x) t",
    "select value from generate_series(1, 30) order by value % 7, value desc limit 5 offset 3",
    "select x from (values (2), (null), (1)) t(x) order by x desc nulls last",
    "select x from (values (2), (null), (1)) t(x) order by x nulls first limit 2",
    "select distinct value % 3 k from generate_series(1, 9) order by k",
    "select value from generate_series(1, 9) except select value * 2 from generate_series(1, 4) order by 1",
    "select a.value, b.value from generate_series(1, 4) a full join generate_series(3, 6) b on a.value = b.value order by 1, 2",
    "select * from (values (1, 'a', 1.5), (2, null, 'NaN'::double precision), (3, 'c', '-0'::double precision)) t(x, y, z) \
     order by x",
    "select x, y from (values (1, 'a'), (2, null), (3, 'abc')) t(x, y) where y like 'a%' or y is null or x in (7, 8, 9) order by x",
    "select named_struct('a', value, 'b', make_array(value)), map(make_array('k'), make_array(value)) \
     from generate_series(1, 2) order by value",
    "select json_get_text('{\"a\": 7}', 'a'), format('%s of %I', value, 'a b'), regexp_replace('abc', 'b', 'x'), md5('a') \
     from generate_series(1, 2) order by value",
    "select date_part('epoch', value * interval '1 month'), date_part('microsecond', value * interval '1 second') \
     from generate_series(1, 2) order by value",
    "select sum(value) from generate_series(1, 20) having sum(value) > 5",
    "select array_agg(distinct x order by x), array_agg(x order by x), first_value(x order by x) from (values (2), (1), (2)) t(x)",
    "select x, 1 y from (values (1), (null)) t(x) union all select 2, null union all select value, 3 from generate_series(4, 5) \
     order by x, y",
];

fn engine() -> Arc<QueryEngine> {
    let settings =
        EngineSettings { spill_bytes: 16 << 20, threads: 3, concurrent_max: 4, ..EngineSettings::small(256 << 20) };
    QueryEngine::with_functions(&settings, quiver_olap::session_functions()).expect("an engine")
}

fn codec() -> PlanCodec {
    let engine = engine();
    let forms: Arc<dyn NodeCodec> = Arc::new(PlanForms::new(&engine));
    PlanCodec::new(engine, vec![forms])
}

async fn planned(engine: &QueryEngine, statement: &str) -> Arc<dyn ExecutionPlan> {
    let plan = Names::new(engine.relational()).plan(statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
    engine.plan_relational(&plan).await.unwrap_or_else(|e| panic!("{statement}: {e}")).1
}

async fn answered(engine: &Arc<QueryEngine>, statement: &str) -> RecordBatch {
    let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
    let ctx = QueryContext::new(Access::full(), limits);
    let (own, inner, asked) = (Arc::clone(engine), ctx.clone(), statement.to_owned());
    let work = async move {
        let plan = Names::new(own.relational()).plan(&asked)?;
        let mut rows = own.execute(&plan, &inner, Rules::Relational).await?;
        let (schema, mut batches) = (rows.schema(), Vec::new());
        while let Some(batch) = rows.next().await {
            batches.push(batch.map_err(from_datafusion)?);
        }
        concat_batches(&schema, &batches).map_err(|e| quiver_types::Error::internal(e.to_string()))
    };
    engine.run(&ctx, work).await.unwrap_or_else(|e| panic!("{statement}: {e}"))
}

/// Names of all nodes, each with how many children it has.
fn names(plan: &Arc<dyn ExecutionPlan>, into: &mut Vec<(String, usize)>) {
    into.push((plan.name().to_owned(), plan.children().len()));
    plan.children().into_iter().for_each(|child| names(child, into));
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_come_back() {
    let (engine, codec) = (engine(), codec());
    let config = engine.relational().config().clone();
    for statement in STATEMENTS {
        let plan = planned(&engine, statement).await;
        let bytes = codec.write(&plan).unwrap_or_else(|e| panic!("{statement}: {e}"));
        let read = codec.read(&bytes, &config).unwrap_or_else(|e| panic!("{statement}: {e}"));
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).indent(true).to_string();
        assert_eq!(shown(&read), shown(&plan), "{statement}");
        assert_eq!(read.schema(), plan.schema(), "{statement}");
        let [mut before, mut after] = [const { Vec::new() }; 2];
        names(&plan, &mut before);
        names(&read, &mut after);
        assert_eq!(after, before, "{statement}");
        // Once more out of what was read.
        let again = codec.write(&read).unwrap_or_else(|e| panic!("{statement}: {e}"));
        assert_eq!(shown(&codec.read(&again, &config).unwrap()), shown(&plan), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_answers_the_same() {
    let (plain, passing) = (engine(), engine());
    passing.send_through(Arc::new(codec())).unwrap();
    assert!(passing.send_through(Arc::new(codec())).is_err(), "they go through one");
    for statement in STATEMENTS.iter().chain(CAST_ONCE_MORE) {
        let (expected, found) = (answered(&plain, statement).await, answered(&passing, statement).await);
        assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{statement}");
    }
}

/// Sorts that often, by a number with so many signs before it.
fn deep(levels: usize) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let mut number: Arc<dyn PhysicalExpr> = Arc::new(Column::new("n", 0));
    for _ in 0..levels {
        number = Arc::new(NegativeExpr::new(number));
    }
    let mut plan: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(schema));
    for _ in 0..levels {
        let order = [PhysicalSortExpr::new_default(Arc::clone(&number))];
        plan = Arc::new(SortExec::new(order.into(), plan));
    }
    plan
}

#[test]
fn deep_plans_are_written() {
    // Threads of an engine have such stacks, those of tests do not.
    let work = || {
        let (codec, config) = (codec(), SessionConfig::new());
        let plan = deep(150);
        let read = codec.read(&codec.write(&plan).unwrap(), &config).unwrap();
        assert_eq!(displayable(&*read).indent(true).to_string(), displayable(&*plan).indent(true).to_string());
        let refused = codec.write(&deep(300)).unwrap_err().to_string();
        assert!(refused.contains("256 levels"), "{refused}");
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(work).expect("a thread");
    thread.join().expect("it ends");
}

#[test]
fn limits_of_many_rows_come_back() {
    let (codec, config) = (codec(), SessionConfig::new());
    let many = (1 << 32) + 7;
    let rows = || {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Boolean, false)]));
        Arc::new(EmptyExec::new(schema)) as Arc<dyn ExecutionPlan>
    };
    let condition = || Arc::new(Column::new("n", 0)) as Arc<dyn PhysicalExpr>;
    let filter = FilterExecBuilder::new(condition(), rows()).with_fetch(Some(many)).build().unwrap();
    let mut global = GlobalLimitExec::new(Arc::new(filter), many, Some(many));
    global.set_required_ordering(LexOrdering::new([PhysicalSortExpr::new_default(condition())]));
    let plans: [Arc<dyn ExecutionPlan>; 4] = [
        Arc::new(LocalLimitExec::new(rows(), many)),
        Arc::new(CoalescePartitionsExec::new(rows()).with_fetch(Some(many))),
        Arc::new(GlobalLimitExec::new(rows(), 3, Some(many))),
        Arc::new(global),
    ];
    for plan in plans {
        let read = codec.read(&codec.write(&plan).unwrap(), &config).unwrap();
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(&**plan).indent(true).to_string();
        assert_eq!(shown(&read), shown(&plan));
        assert!(shown(&read).contains("4294967303"), "{}", shown(&read));
        let order = |plan: &Arc<dyn ExecutionPlan>| {
            plan.downcast_ref::<GlobalLimitExec>().and_then(|limit| limit.required_ordering().clone())
        };
        assert_eq!(order(&read), order(&plan));
    }
}

#[tokio::test]
async fn what_has_no_form_is_named() {
    let codec = codec();
    let schema = Arc::new(Schema::empty());
    let rows = StreamingTableExec::try_new(Arc::clone(&schema), vec![], None, None, false, None).unwrap();
    let refused = codec.write(&(Arc::new(rows) as Arc<dyn ExecutionPlan>)).unwrap_err().to_string();
    assert!(refused.contains("node `StreamingTableExec` has no written form"), "{refused}");
    let statement = "select sum(value) filter (where value > 2) over (order by value) from generate_series(1, 3)";
    let plan = SessionContext::new().sql(statement).await.unwrap().create_physical_plan().await.unwrap();
    let refused = codec.write(&plan).unwrap_err().to_string();
    assert!(refused.contains("condition (FILTER)"), "{refused}");
    let function = create_udf(
        "strange",
        vec![],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(7_i64.into()))),
    );
    let refused = functions::write(&Pass::new(&codec.shared, &SessionConfig::new()), &function).unwrap_err();
    assert!(refused.to_string().contains("function `strange` has no written form"), "{refused}");
}

#[tokio::test]
async fn damaged_plans_are_errors() {
    let (engine, codec) = (engine(), codec());
    let config = engine.relational().config().clone();
    let statement = "select 'ab' || value, sum(value) over (order by value) from generate_series(1, 5) where value > 1";
    let bytes = codec.write(&planned(&engine, statement).await).unwrap();
    for length in 0..bytes.len() {
        assert!(codec.read(&bytes[..length], &config).is_err(), "{length} bytes");
    }
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        assert!(codec.read(&bytes, &config).is_err(), "byte {at}");
    }
    let schema = Arc::new(Schema::empty());
    let plans: [Arc<dyn ExecutionPlan>; 2] =
        [Arc::new(EmptyExec::new(Arc::clone(&schema))), Arc::new(PlaceholderRowExec::new(schema))];
    for plan in plans {
        assert_eq!(codec.read(&codec.write(&plan).unwrap(), &config).unwrap().name(), plan.name());
    }
}

/// Plans within others have no checksum of their own.
#[test]
fn inner_plans_that_end_early_are_errors() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let plan = pass.write_plan(&deep(2)).unwrap();
    for length in 0..plan.len() {
        assert!(pass.read_plan(&plan[..length]).is_err(), "{length} bytes of a plan");
    }
    assert_eq!(pass.read_plan(&plan).unwrap().name(), "SortExec");
}

#[test]
fn sort_keys_come_back() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let fields = ["n", "m"].map(|name| Field::new(name, DataType::Int64, true));
    let schema = Schema::new(fields.to_vec());
    let directions = [(false, false), (false, true), (true, false), (true, true)];
    let key = |name: &str, at: usize, (descending, nulls_first): (bool, bool)| {
        let options = arrow::compute::SortOptions { descending, nulls_first };
        PhysicalSortExpr { expr: Arc::new(Column::new(name, at)), options }
    };
    let keys: Vec<PhysicalSortExpr> = directions.iter().flat_map(|of| [key("n", 0, *of), key("m", 1, *of)]).collect();
    let written = pass.write_keys(&keys).unwrap();
    assert_eq!(pass.read_keys(&written, &schema).unwrap(), keys);
    let damaged = SortKey { expr: vec![0xff], descending: true, nulls_first: true };
    assert!(pass.read_keys(&[damaged], &schema).is_err());
    assert!(pass.read_keys(&[], &schema).unwrap().is_empty());
}

#[test]
fn levels_are_counted_while_they_are_held() {
    let levels = Levels::default();
    let held: Vec<_> = (0..256).map(|_| levels.enter().unwrap()).collect();
    let deep: Vec<usize> = held.iter().enumerate().filter(|(_, level)| level.is_deep()).map(|(at, _)| at).collect();
    assert_eq!(deep, (7..256).step_by(8).collect::<Vec<_>>(), "each eighth comes as bytes");
    // One that is refused counts no longer than one that is held.
    (0..3).for_each(|_| assert!(levels.enter().is_err()));
    drop(held);
    assert!(!levels.enter().unwrap().is_deep());
    assert!((0..3).all(|_| !levels.enter().unwrap().is_deep()));
}

#[test]
fn bodies_are_all_of_their_bytes() {
    let modes = [Mode::Whole, Mode::Sorted, Mode::PartiallySorted(vec![0, 300]), Mode::Linear];
    for mode in modes {
        let mut bytes = to_bytes(&mode).unwrap();
        assert_eq!(of_bytes::<Mode>(&bytes).unwrap(), mode);
        for length in 0..bytes.len() {
            assert!(of_bytes::<Mode>(&bytes[..length]).is_err(), "{length} bytes of {mode:?}");
        }
        bytes.push(0);
        let refused = of_bytes::<Mode>(&bytes).unwrap_err().to_string();
        assert!(refused.contains("something stands behind it"), "{refused}");
    }
    assert!(of_bytes::<Mode>(&[9]).is_err(), "there is no such mode");
    let key = SortKey { expr: vec![0, 255], descending: true, nulls_first: false };
    assert_eq!(of_bytes::<SortKey>(&to_bytes(&key).unwrap()).unwrap(), key);
}

fn empty() -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))))
}

#[test]
fn bodies_of_nodes_know_their_inputs() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let plan = pass.write_plan(&empty()).unwrap();
    let schema = pass.write_schema(&empty().schema()).unwrap();
    let recursive = || Body::Recursive { name: "r".to_owned(), schema: schema.clone(), is_distinct: false };
    let table = || Body::WorkTable { name: "r".to_owned(), schema: schema.clone(), projection: vec![0] };
    let series = || Body::Series { bytes: plan.clone(), is_counted: false, orders: Vec::new() };
    let union = |is_interleaved| Body::Union { is_interleaved };
    let rows = || Body::Rows { bytes: plan.clone(), rows: 7 };
    let windows = || Body::Windows { calls: Vec::new(), mode: Mode::Sorted, is_divided: false };
    let inputs = "a node has other inputs";
    for (body, count, why) in [
        (recursive(), 0, inputs),
        (recursive(), 1, inputs),
        (recursive(), 3, inputs),
        (table(), 1, inputs),
        (series(), 1, inputs),
        (series(), 0, "this is no series"),
        (union(false), 0, inputs),
        (union(true), 1, inputs),
        (rows(), 1, inputs),
        (rows(), 0, "`EmptyExec` counts no rows"),
        (Body::Rows { bytes: Vec::new(), rows: 7 }, 0, "a written plan has no bytes"),
        (windows(), 0, inputs),
        (windows(), 2, inputs),
        (windows(), 1, "windows without a call"),
    ] {
        let shown = format!("{body:?} of {count}");
        let refused = nodes::read(&pass, body, &repeat_n(empty(), count).collect::<Vec<_>>()).unwrap_err().to_string();
        assert!(refused.contains(why), "{shown}: {refused}");
    }
    let read = nodes::read(&pass, union(false), &[empty(), empty()]).unwrap();
    assert_eq!((read.name(), read.children().len()), ("UnionExec", 2));
    let read = nodes::read(&pass, table(), &[]).unwrap();
    assert_eq!((read.name(), read.schema()), ("WorkTableExec", empty().schema()));
}

/// A plan that is a node of others with such a body.
fn around(body: &Body) -> Vec<u8> {
    let node = PhysicalExtensionNode { node: to_bytes(body).unwrap(), inputs: Vec::new() };
    PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::Extension(node)) }.encode_to_vec()
}

#[test]
fn bytes_of_nobody_and_without_end_are_refused() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let own = pass.write_plan(&empty()).unwrap();
    assert_eq!(pass.read_plan(&around(&Body::Plan(own.clone()))).unwrap().name(), "EmptyExec");
    let refused = pass.read_plan(&around(&Body::Of { of: "nobody".to_owned(), bytes: own })).unwrap_err().to_string();
    assert!(refused.contains("nobody reads nodes of `nobody`"), "{refused}");
    let schema = empty().schema();
    for bytes in [&[0xff][..], &[0x0a, 0x7f]] {
        assert!(pass.read_plan(bytes).is_err() && pass.read_schema(bytes).is_err(), "{bytes:?}");
        assert!(pass.read_expr(bytes, &schema).is_err() && pass.read_window(bytes, &schema).is_err(), "{bytes:?}");
        assert!(pass.read_aggregate(bytes, &schema).is_err(), "{bytes:?}");
    }
    let work = || {
        let codec = self::codec();
        let pass = Pass::new(&codec.shared, &SessionConfig::new());
        let own = pass.write_plan(&empty()).unwrap();
        let within = (0..300).fold(own, |inner, _| around(&Body::Plan(inner)));
        pass.read_plan(&within).map(|plan| plan.name().to_owned()).unwrap_err().to_string()
    };
    let refused = std::thread::Builder::new().stack_size(64 << 20).spawn(work).expect("a thread").join().unwrap();
    assert!(refused.contains("256 levels"), "{refused}");
}

#[test]
fn functions_that_are_not_there_are_named() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    // The number of the form, and what stands in it.
    let known = to_bytes(&(0_u8, "no_such")).unwrap();
    let plain = to_bytes(&(1_u8, "no_such")).unwrap();
    let of = |of: &str| to_bytes(&(2_u8, of, "strange", [7_u8].as_slice())).unwrap();
    let in_order = |inner: &[u8]| to_bytes(&(4_u8, inner)).unwrap();
    let missing = "there is no function `no_such`";
    for bytes in [&known, &plain] {
        let scalar = functions::read::<ScalarUDF>(&pass, bytes).unwrap_err().to_string();
        let aggregate = functions::read::<AggregateUDF>(&pass, bytes).unwrap_err().to_string();
        let window = functions::read::<WindowUDF>(&pass, bytes).unwrap_err().to_string();
        assert!(
            [&scalar, &aggregate, &window].iter().all(|told| told.contains(missing)),
            "{scalar} {aggregate} {window}"
        );
    }
    let told = functions::read::<ScalarUDF>(&pass, &of("nobody")).unwrap_err().to_string();
    assert!(told.contains("there is no function `strange`"), "{told}");
    let told = functions::read::<WindowUDF>(&pass, &of("query")).unwrap_err().to_string();
    assert!(told.contains("`query` has no window function `strange`"), "{told}");
    // Scalar functions see one row at a time.
    let upper = to_bytes(&(0_u8, "upper")).unwrap();
    assert_eq!(functions::read::<ScalarUDF>(&pass, &upper).unwrap().name(), "upper");
    let told = functions::read::<ScalarUDF>(&pass, &in_order(&upper)).unwrap_err().to_string();
    assert!(told.contains("`upper` takes rows in any order"), "{told}");
    let endless = (0..300).fold(upper, |inner, _| in_order(&inner));
    let told = functions::read::<ScalarUDF>(&pass, &endless).unwrap_err().to_string();
    assert!(told.contains("256 levels"), "{told}");
}

#[test]
fn columns_come_back() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)];
    let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false);
    let kinds = [
        DataType::Null,
        DataType::UInt8,
        DataType::Float64,
        DataType::Utf8View,
        DataType::BinaryView,
        DataType::FixedSizeBinary(16),
        DataType::Decimal128(38, 10),
        DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View)),
        DataType::List(Arc::new(Field::new("item", DataType::Int64, false))),
        map,
    ];
    let field = |(at, kind): (usize, DataType)| Field::new(format!("c{at}"), kind, at.is_multiple_of(2));
    let mut fields: Vec<Field> = kinds.into_iter().enumerate().map(field).collect();
    fields.push(Field::new("noted", DataType::Utf8, true).with_metadata([("k".to_owned(), "v".to_owned())].into()));
    let schema = Schema::new(fields);
    let read = pass.read_schema(&pass.write_schema(&schema).unwrap()).unwrap();
    assert_eq!(read.fields(), schema.fields());
}

#[test]
fn what_was_refused_first_is_told_once() {
    let codec = codec();
    let pass = Pass::new(&codec.shared, &SessionConfig::new());
    let rows = StreamingTableExec::try_new(Arc::new(Schema::empty()), vec![], None, None, false, None).unwrap();
    let plan = Arc::new(rows) as Arc<dyn ExecutionPlan>;
    assert!(pass.refuse("one".to_owned()).to_string().contains("one has no written form"));
    assert!(pass.refuse("two".to_owned()).to_string().contains("two has no written form"));
    let told = pass.write(&plan).unwrap_err().to_string();
    assert!(told.contains("one has no written form") && !told.contains("two"), "{told}");
    let told = pass.write(&plan).unwrap_err().to_string();
    assert!(told.contains("node `StreamingTableExec` has no written form"), "{told}");
}
