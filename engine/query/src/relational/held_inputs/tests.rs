//! What sorts and joins hold is put below the node, and what they only read is not.

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_types::ErrorKind;

use super::*;
use crate::error::from_datafusion;
use crate::node_encoding::tests::passed;

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
