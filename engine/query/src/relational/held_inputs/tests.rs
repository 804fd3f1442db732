//! What sorts and joins hold is put below the node, and what they only read is not.

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_types::{Access, ErrorKind};

use super::*;
use crate::error::from_datafusion;
use crate::name_resolution::Names;
use crate::node_encoding::tests::passed;
use crate::tables::convert::{Convert, ConvertedBatches};
use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules};

fn side(name: &str, kind: DataType) -> Arc<dyn ExecutionPlan> {
    Arc::new(EmptyExec::new(Arc::new(Schema::new(vec![Field::new(name, kind, true)]))))
}

#[test]
fn only_what_joins_hold_is_held() {
    let text = || side("t", DataType::Utf8View);
    let number = || side("n", DataType::Int64);
    let join = |left, right| -> Arc<dyn ExecutionPlan> { Arc::new(CrossJoinExec::new(left, right)) };
    for (plan, count) in [
        (join(text(), number()), 1),
        (join(side("b", DataType::BinaryView), text()), 1),
        (join(number(), text()), 0),
        (text(), 0),
    ] {
        let plan = held(plan).unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(shown.matches("HeldRowsExec").count(), count, "{shown}");
        assert_eq!(plan.children().first().is_some_and(|side| side.is::<HeldRowsExec>()), count > 0, "{shown}");
        let (_, names) = passed(plan);
        assert_eq!(names.contains("HeldRowsExec"), count > 0, "{names:?}");
    }
}

/// Rows as they are stored.
#[derive(Debug)]
struct Same(SchemaRef);

impl Convert for Same {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn convert(self: Arc<Self>, batch: RecordBatch) -> ConvertedBatches {
        Box::new(std::iter::once(Ok(batch)))
    }

    fn detail(&self) -> String {
        "same".to_owned()
    }
}

#[test]
fn sorts_hold_copies_of_stored_texts_and_of_few_rows_none() {
    let table = |kind: DataType| -> Arc<dyn ExecutionPlan> {
        let stored = side("t", kind);
        let schema = stored.schema();
        Arc::new(ConvertExec::new("rows", stored, Arc::new(Same(schema)), None))
    };
    let sort = |input: Arc<dyn ExecutionPlan>, fetch: Option<usize>| -> Arc<dyn ExecutionPlan> {
        let by = PhysicalSortExpr::new_default(Arc::new(Column::new("t", 0)));
        Arc::new(SortExec::new(LexOrdering::new([by]).unwrap(), input).with_fetch(fetch))
    };
    let merge = |input: Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
        let by = PhysicalSortExpr::new_default(Arc::new(Column::new("t", 0)));
        Arc::new(SortPreservingMergeExec::new(LexOrdering::new([by]).unwrap(), input))
    };
    let text = || table(DataType::Utf8View);
    for (plan, count) in [
        (sort(text(), None), 1),
        (sort(text(), Some(10)), 0),
        (sort(table(DataType::Int64), None), 0),
        (sort(side("t", DataType::Utf8View), None), 0),
        (sort(sort(text(), Some(10)), None), 0),
        (merge(sort(text(), None)), 2),
        (merge(sort(text(), Some(10))), 0),
        (merge(sort(table(DataType::Int64), None)), 0),
    ] {
        let plan = held(plan).unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(shown.matches("HeldRowsExec").count(), count, "{shown}");
    }
}

/// Breaks if one partition takes the memory that another one needs to merge what it is about to spill.
#[tokio::test]
async fn a_sort_of_more_than_there_is_memory_for_ends() {
    const ROWS: usize = 400_000;
    let small = EngineSettings::small(64 << 20);
    let engine = QueryEngine::new(&EngineSettings { threads: 2, spill_bytes: 1 << 30, ..small }).unwrap();
    let statement = format!(
        "select repeat(lpad((value * 7919 % 400009)::text, 8, '0'), 40) as s \
         from generate_series(1, {ROWS}) order by s"
    );
    let plan = Names::new(engine.relational()).plan(&statement).unwrap();
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner) = (Arc::clone(&engine), ctx.clone());
    let work = async move {
        let mut rows = own.execute(&plan, &inner, Rules::Relational).await?;
        let (mut count, mut last) = (0, String::new());
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            let texts = arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
            for text in texts.as_string::<i32>().iter().flatten() {
                assert!(*last <= *text, "{last} before {text}");
                text.clone_into(&mut last);
            }
            count += batch.num_rows();
        }
        Ok(count)
    };
    assert_eq!(engine.run(&ctx, work).await.unwrap(), ROWS);
}

/// A session with one partition and so many bytes of memory.
fn session(bytes: usize) -> SessionContext {
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    SessionContext::new_with_config_rt(SessionConfig::new().with_target_partitions(1), runtime)
}

const GROUPS: usize = 200_000;

/// So many groups by this key.
fn groups(key: &str) -> String {
    format!("(select {key} as k, count(*) as n from generate_series(1, {GROUPS}) group by {key}) as g")
}

async fn planned(session: &SessionContext, statement: &str) -> Arc<dyn ExecutionPlan> {
    session.sql(statement).await.unwrap().create_physical_plan().await.unwrap()
}

/// A plan is refused its memory as DataFusion makes it, and has so many rows with the node.
async fn fits_with_the_node(session: &SessionContext, theirs: Arc<dyn ExecutionPlan>, rows: usize) {
    let own = held(Arc::clone(&theirs)).unwrap();
    let shown = displayable(own.as_ref()).indent(false).to_string();
    assert_eq!(shown.matches("HeldRowsExec").count(), 1, "{shown}");
    let error = from_datafusion(collect(theirs, session.task_ctx()).await.unwrap_err());
    assert_eq!(error.kind, ErrorKind::LimitExceeded, "{shown}");
    let found = collect(own, session.task_ctx()).await.unwrap();
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{shown}");
    assert_eq!(session.task_ctx().memory_pool().reserved(), 0, "it is given back");
}

/// Groups are slices of one batch, which is counted once for each of them otherwise.
#[tokio::test]
async fn sorted_groups_take_what_they_are() {
    const LIMIT: usize = 3 * GROUPS / 4;
    let session = session(80 << 20);
    for key in ["(value * 7919) % 200003", "concat('key ', (value * 7919) % 200003)"] {
        let statement = format!("select k, n from {} order by k limit {LIMIT}", groups(key));
        fits_with_the_node(&session, planned(&session, &statement).await, LIMIT).await;
    }
}

#[tokio::test]
async fn joined_groups_take_what_they_are() {
    let session = session(80 << 20);
    let statement = format!("select k, n from {}", groups("(value * 7919) % 200003"));
    let left = planned(&session, &statement).await;
    let join = CrossJoinExec::new(left, planned(&session, "select 1 as m").await);
    fits_with_the_node(&session, Arc::new(join), GROUPS).await;
}

#[tokio::test]
async fn sorts_of_other_rows_hold_them_as_they_are() {
    let session = session(1 << 20);
    for statement in [
        "select value from generate_series(1, 10) order by value % 3",
        "select count(*) from generate_series(1, 10) order by 1",
        "select * from (select value % 7 as k from generate_series(1, 100) order by value % 5 limit 9) order by k",
    ] {
        let plan = planned(&session, statement).await;
        let shown = displayable(held(plan).unwrap().as_ref()).indent(false).to_string();
        assert!(!shown.contains("HeldRowsExec"), "{statement}: {shown}");
    }
}
