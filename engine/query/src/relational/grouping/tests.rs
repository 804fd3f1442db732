//! What the node gives is what DataFusion's own aggregation gives over the same rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringViewArray, TimestampNanosecondArray,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::BoxFuture;

use super::by_codes;
use crate::functions;
use crate::node_encoding::tests::passed;
use crate::relational::distinct_counts::DistinctCounts;
use crate::relational::held_inputs::held;
use crate::table_provider::scan_by_plan;
use crate::tables::cells::hex_ids;
use crate::tables::convert::{Convert, ConvertExec, ConvertedBatches, HEX};

fn coded_texts() -> DataType {
    quiver_types::spans::coded_texts()
}

/// Rows that are stored by codes.
#[derive(Debug)]
struct Fake {
    schema: SchemaRef,
    is_coded: bool,
}

fn fields(is_coded: bool) -> Vec<Field> {
    let text = |name: &str| Field::new(name, if is_coded { coded_texts() } else { DataType::Utf8View }, true);
    let id = if is_coded {
        Field::new("id", DataType::FixedSizeBinary(8), true)
            .with_metadata([(HEX.to_owned(), String::new())].into_iter().collect())
    } else {
        Field::new("id", DataType::Utf8View, true)
    };
    vec![
        text("name"),
        text("kind"),
        id,
        Field::new("t", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
        Field::new("n", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
    ]
}

impl Convert for Fake {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn convert(self: Arc<Self>, batch: RecordBatch) -> ConvertedBatches {
        let columns = self.schema.fields().iter().map(|field| {
            let column = &batch[field.name().as_str()];
            match (self.is_coded, column.as_any_dictionary_opt(), column.as_fixed_size_binary_opt()) {
                (false, Some(coded), _) => take(coded.values(), coded.keys(), None).unwrap(),
                (false, None, Some(ids)) => Arc::new(hex_ids(ids)) as ArrayRef,
                _ => Arc::clone(column),
            }
        });
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let made = RecordBatch::try_new_with_options(self.schema(), columns.collect(), &options).unwrap();
        Box::new(std::iter::once(Ok(made)))
    }

    fn detail(&self) -> String {
        String::new()
    }

    fn coded(&self) -> Option<Arc<dyn Convert>> {
        let all = Schema::new(fields(true));
        let kept = self.schema.fields().iter().map(|f| all.field_with_name(f.name()).unwrap().clone());
        Some(Arc::new(Self { schema: Arc::new(Schema::new(kept.collect::<Vec<_>>())), is_coded: true }))
    }
}

#[derive(Debug)]
struct FakeTable(Vec<RecordBatch>);

impl TableProvider for FakeTable {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(fields(false)))
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    scan_by_plan!();
}

impl FakeTable {
    fn plan<'a>(
        &'a self,
        _: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        _: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let schema = match projection {
                Some(columns) => Arc::new(self.schema().project(columns)?),
                None => self.schema(),
            };
            let rows = MemorySourceConfig::try_new_exec(std::slice::from_ref(&self.0), self.0[0].schema(), None)?;
            Ok(Arc::new(ConvertExec::new("fake", rows, Arc::new(Fake { schema, is_coded: false }), limit))
                as Arc<dyn ExecutionPlan>)
        })
    }
}

fn batches() -> Vec<RecordBatch> {
    let mut seed = 11_u64;
    let mut next = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    // A code may be there twice, and texts that no row has.
    let names =
        [Some("a"), Some("b"), None, Some("a text that is longer than twelve"), Some("b"), Some("7"), Some("x,y")];
    let one = |rows: usize, next: &mut dyn FnMut(u64) -> u64, shift: usize| {
        let texts = |next: &mut dyn FnMut(u64) -> u64, used: u64| -> ArrayRef {
            let values: StringViewArray = (0..names.len()).map(|i| names[(i + shift) % names.len()]).collect();
            let codes: Int32Array = (0..rows).map(|_| (next(9) > 0).then(|| next(used) as i32)).collect();
            Arc::new(DictionaryArray::new(codes, Arc::new(values)))
        };
        let (name, kind) = (texts(next, 7), texts(next, 3));
        let ids: Vec<Option<[u8; 8]>> = (0..rows).map(|_| (next(20) > 0).then(|| next(300).to_be_bytes())).collect();
        let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids.into_iter(), 8).unwrap();
        let hour = 3_600_000_000_000_i64;
        let times: TimestampNanosecondArray = (0..rows).map(|_| Some(next(30) as i64 * hour / 7)).collect();
        let n: Int64Array = (0..rows).map(|_| (next(10) > 0).then(|| next(100) as i64 - 50)).collect();
        let f: Float64Array = (0..rows).map(|_| (next(10) > 0).then(|| next(64) as f64 / 4.0)).collect();
        let columns: Vec<ArrayRef> =
            vec![name, kind, Arc::new(ids), Arc::new(times.with_timezone("UTC")), Arc::new(n), Arc::new(f)];
        RecordBatch::try_new(Arc::new(Schema::new(fields(true))), columns).unwrap()
    };
    [(700, 0), (3, 1), (900, 2), (1, 5)].map(|(rows, shift)| one(rows, &mut next, shift)).into()
}

fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows: Vec<String> = batches
        .iter()
        .flat_map(|batch| {
            let cells: Vec<ArrayFormatter<'_>> =
                batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
            let row = |at: usize| cells.iter().map(|c| c.value(at).to_string()).collect::<Vec<_>>().join("|");
            (0..batch.num_rows()).map(row).collect::<Vec<_>>()
        })
        .collect();
    rows.sort_unstable();
    rows
}

const STATEMENTS: &[&str] = &[
    "select count(*) from t",
    "select name, count(*), sum(n), avg(f), min(n), max(f) from t group by name",
    "select name, kind, n, count(*) from t group by name, kind, n",
    "select id, max(n), count(f) from t group by id",
    "select date_trunc('hour', t) as h, name, count(*), sum(f) from t group by 1, 2",
    "select right(name, 1), count(*), count(name), min(name), max(kind) from t group by 1",
    "select coalesce(name, 'none'), count(*) from t group by 1",
    "select name is null, n > 3, count(*) from t group by 1, 2",
    "select kind, count(*) filter (where name like '%a%'), sum(n) filter (where kind = 'a' or n > 7) from t group by kind",
    "select kind, sum(case when name = 'a' then n end), max(case when name = 'b' then t end) from t group by kind",
    "select name, count(*) from t where kind = 'a' and n > 3 group by name",
    "select count(*), sum(n), max(name) from t where name like 'zzz%'",
    "select name from t where kind = 'nothing' group by name",
    // It holds for all rows, those without a name, too.
    "select kind, count(*) from t where coalesce(name, 'none') <> 'nothing' group by kind",
    "select kind, count(distinct id), count(distinct name), count(distinct n), count(*) from t group by kind",
    "select count(distinct id), count(distinct right(name, 2)), count(distinct t) from t where n is not null",
    "select name, count(distinct id) filter (where n > 0), quantile(f, 0.5), quantile(f, 0.95) from t group by name",
    "select approx_distinct(name), approx_distinct(n), approx_distinct(n > 0) from t",
    "select approx_distinct(name) from t where n > 1000000",
    "select kind, approx_distinct(name), approx_distinct(id) from t group by kind",
    "select name || '-' || kind, id || name, count(*) from t group by 1, 2",
    "select x, count(*) from (select name as x, n + 1 as y from t where f > 2) where y > 0 group by x",
    "select try_cast(name as bigint), count(*) from t group by 1",
];

#[tokio::test]
async fn same_as_by_values() {
    for partitions in [1, 3] {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
        context.register_table("t", Arc::new(FakeTable(batches()))).unwrap();
        context.register_udaf(functions::quantile().as_ref().clone());
        let exact = SessionContext::new_with_state(context.state());
        exact.add_analyzer_rule(Arc::new(DistinctCounts));
        for statement in STATEMENTS {
            let expected = texts(&context.sql(statement).await.unwrap().collect().await.unwrap());
            // A plan of DataFusion's that divides rows runs once.
            let planned = async || exact.sql(statement).await.unwrap().create_physical_plan().await.unwrap();
            let by_values = collect(planned().await, exact.task_ctx()).await.unwrap();
            assert_eq!(texts(&by_values), expected, "{statement}");
            let coded = by_codes(planned().await).unwrap();
            let shown = displayable(&*coded).indent(false).to_string();
            assert!(shown.contains("CodedGroupExec"), "{statement}: {shown}");
            let found = collect(coded, exact.task_ctx()).await.unwrap();
            assert_eq!(texts(&found), expected, "{statement}: {shown}");
            let (read, names) = passed(by_codes(planned().await).unwrap());
            assert!(names.contains("CodedGroupExec"), "{statement}: {names:?} were written");
            let found = collect(read, exact.task_ctx()).await.unwrap();
            assert_eq!(texts(&found), expected, "written: {statement}: {shown}");
        }
    }
}

/// Breaks if a sort is charged for the numbers of all groups with each piece of them.
#[tokio::test]
async fn sorted_groups_are_held_by_what_they_take() {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    context.register_table("t", Arc::new(FakeTable(batches()))).unwrap();
    for (statement, is_held) in [
        ("select n, count(*) from t group by n order by 2", true),
        ("select * from (select count(*) as c from t) order by c % 2", false),
    ] {
        let planned = context.sql(statement).await.unwrap().create_physical_plan().await.unwrap();
        let coded = by_codes(planned).unwrap();
        let shown = displayable(&*coded).indent(false).to_string();
        assert!(shown.contains("CodedGroupExec: mode=Single"), "{shown}");
        let expected = texts(&collect(Arc::clone(&coded), context.task_ctx()).await.unwrap());
        let own = held(coded).unwrap();
        let shown = displayable(&*own).indent(false).to_string();
        assert_eq!(shown.contains("HeldRowsExec"), is_held, "{shown}");
        assert_eq!(texts(&collect(own, context.task_ctx()).await.unwrap()), expected, "{shown}");
    }
}

/// Each aggregate, so that its value does not hang on the order of rows.
const AGGREGATES: &[&str] = &[
    "count(*)",
    "count(name)",
    "count(name, n)",
    "count(distinct n)",
    "count(distinct name)",
    "sum(n)",
    "sum(distinct n)",
    "avg(n)",
    "min(name)",
    "max(t)",
    "bit_and(n)",
    "bit_or(n)",
    "bit_xor(n)",
    "bool_and(n > -99)",
    "bool_or(n > 40)",
    "corr(n, f)",
    "covar_pop(n, f)",
    "covar_samp(n, f)",
    "stddev(f)",
    "stddev_pop(n)",
    "var_samp(f)",
    "var_pop(n)",
    "regr_slope(n, f)",
    "regr_count(n, f)",
    "median(n)",
    "median(distinct f)",
    "percentile_cont(f, 0.25)",
    "approx_distinct(n)",
    "approx_median(f) filter (where n = 3)",
    "approx_percentile_cont(f, 0.9) filter (where n = 3)",
    "first_value(name) filter (where name = 'b')",
    "last_value(n) filter (where n = 7)",
    "nth_value(n, 2) filter (where n = 7)",
    "array_agg(n) filter (where n = 7)",
    "string_agg(name, ',') filter (where name = 'x,y')",
    "quantile(f, 0.75)",
    "mode(name) filter (where name = 'a')",
];

/// Sums of parts depend on which came first in their last digits.
fn rounded(batches: &[RecordBatch]) -> Vec<String> {
    let cell = |cell: &str| match cell.parse::<f64>() {
        Ok(number) if cell.contains('.') => format!("{number:.6}"),
        _ => cell.to_owned(),
    };
    texts(batches).iter().map(|row| row.split('|').map(cell).collect::<Vec<_>>().join("|")).collect()
}

#[tokio::test]
async fn each_aggregate_with_and_without_groups() {
    for partitions in [1, 3] {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let mut state = SessionContext::new_with_config(config).state();
        let room = functions::Room::new(Arc::clone(&state.runtime_env().memory_pool));
        functions::register(&mut state, &room).unwrap();
        let context = SessionContext::new_with_state(state);
        context.register_table("t", Arc::new(FakeTable(batches()))).unwrap();
        for aggregate in AGGREGATES {
            for (key, groups) in [("", ""), ("kind, ", " group by kind")] {
                let statement = format!("select {key}{aggregate} from t{groups}");
                let planned = async || context.sql(&statement).await.unwrap().create_physical_plan().await.unwrap();
                let expected = rounded(&collect(planned().await, context.task_ctx()).await.unwrap());
                let coded = by_codes(planned().await).unwrap();
                let shown = displayable(&*coded).indent(false).to_string();
                // What is distinct may become groups of its own, whose column has no codes.
                let is_coded = shown.contains("CodedGroupExec") || aggregate.contains("distinct ");
                assert!(is_coded, "{statement}: {shown}");
                let found = rounded(&collect(coded, context.task_ctx()).await.unwrap());
                assert_eq!(found, expected, "{statement}: {shown}");
            }
        }
    }
}
