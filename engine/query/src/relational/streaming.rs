//! Plans whose rows stream from tables to the client without being collected on the way. What is between the two is
//! held for as long as the client takes to read, so batches are kept short, and no exchange redistributes the rows of
//! the store.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::batch_bytes::may_be_long;
use super::exchanged_rows::ExchangedRowsExec;
use super::long_constants::SliceExec;
use super::node_names::node_names;
use crate::leaf::ScanExec;
use crate::plan_walk::change_physical;
use crate::sequential_union::InTurnExec;
use crate::tables::convert::ConvertExec;

/// The most rows of a batch in such a plan: some MB if rows are long.
pub(crate) const STRAIGHT_ROWS: usize = 1024;
/// Nodes that process rows batch by batch.
const HANDING_ON: [&str; 12] = node_names![
    ConvertExec,
    CooperativeExec,
    CoalescePartitionsExec,
    ExchangedRowsExec,
    FilterExec,
    GlobalLimitExec,
    InTurnExec,
    LocalLimitExec,
    ProjectionExec,
    RepartitionExec,
    SliceExec,
    UnionExec,
];

/// Whether no node of a plan collects rows.
pub(crate) fn is_straight(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    children.is_empty() || (HANDING_ON.contains(&plan.name()) && children.into_iter().all(is_straight))
}

/// Whether an exchange of a plan puts rows together that may be long: it does not count them.
pub(crate) fn spreads_texts(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>() && may_be_long(&plan.schema()) || plan.children().into_iter().any(spreads_texts)
}

/// Removes the exchanges that spread rows of the store's tables over processors: these tables already have as many
/// partitions as their rows are worth. Exchanges within other exchanges are considered as a part of these.
///
/// # Errors
///
/// Those of making the nodes.
pub(crate) fn without_exchange(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if !is_straight(&plan) {
        return Ok(plan);
    }
    change_physical(plan, &mut |node| {
        let Some(exchange) = node.downcast_ref::<RepartitionExec>() else { return Ok(Transformed::no(node)) };
        let spreads = matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_));
        if !spreads || !exchange.input().is::<ScanExec>() {
            return Ok(Transformed::no(node));
        }
        Ok(Transformed::yes(Arc::clone(exchange.input())))
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::physical_expr::expressions::{Column, IsNullExpr, lit};
    use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::sorts::sort::SortExec;
    use quiver_types::Error;
    use quiver_types::scan::{PlannedScan, ScanBatches, ScanOrder, ScanTask, ScanText};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)]))
    }

    /// A scan that is never run.
    #[derive(Debug)]
    struct Texts;

    impl PlannedScan for Texts {
        fn name(&self) -> &'static str {
            "TextsExec"
        }

        fn schema(&self) -> SchemaRef {
            schema()
        }

        fn order(&self) -> Option<ScanOrder> {
            None
        }

        fn partitions(&self) -> usize {
            1
        }

        fn explain(&self, _: ScanText, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "TextsExec")
        }

        fn counters(&self) -> Vec<&'static str> {
            Vec::new()
        }

        fn open(&self, _: usize, _: ScanTask) -> quiver_types::Result<Box<dyn ScanBatches>> {
            Err(Error::internal("nobody runs it"))
        }
    }

    fn column() -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("a", 0))
    }

    fn spread(table: Arc<dyn ExecutionPlan>, partitioning: Partitioning) -> Arc<dyn ExecutionPlan> {
        Arc::new(RepartitionExec::try_new(table, partitioning).unwrap())
    }

    fn scan() -> Arc<dyn ExecutionPlan> {
        Arc::new(ScanExec::new(Arc::new(Texts)))
    }

    fn project(expr: Arc<dyn PhysicalExpr>, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ProjectionExec::try_new([(expr, "a".to_owned())], input).unwrap())
    }

    fn sort(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let by = LexOrdering::new([PhysicalSortExpr::new_default(column())]).unwrap();
        Arc::new(SortExec::new(by, input))
    }

    /// The names of a plan's nodes after exchanges are removed.
    fn nodes(plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
        let plan = without_exchange(plan).unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        text.lines().map(|line| line.trim().split(':').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn rows_of_the_store_go_straight() {
        let spreads = || spread(scan(), Partitioning::RoundRobinBatch(4));
        assert_eq!(nodes(project(column(), spreads())), ["ProjectionExec", "TextsExec"]);
        let filter = FilterExec::try_new(Arc::new(IsNullExpr::new(column())), spreads()).unwrap();
        let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::new(filter)));
        assert_eq!(nodes(Arc::clone(&plan)), ["CoalescePartitionsExec", "FilterExec", "TextsExec"]);
        let partitions =
            without_exchange(plan).unwrap().children()[0].properties().output_partitioning().partition_count();
        assert_eq!(partitions, 1, "the nodes above know of it");
    }

    #[test]
    fn exchanges_of_texts_are_seen_anywhere() {
        let keyed = spread(scan(), Partitioning::Hash(vec![column()], 4));
        assert!(spreads_texts(&keyed) && spreads_texts(&sort(Arc::clone(&keyed))));
        assert!(!spreads_texts(&scan()));
        let numbers = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        assert!(!spreads_texts(&spread(Arc::new(EmptyExec::new(numbers)), Partitioning::RoundRobinBatch(4))));
    }

    #[test]
    fn other_exchanges_stay() {
        // A plan that collects rows uses all processors.
        let sorted = sort(spread(scan(), Partitioning::RoundRobinBatch(4)));
        assert_eq!(nodes(sorted), ["SortExec", "RepartitionExec", "TextsExec"]);
        // An exchange that brings rows of equal keys together is needed.
        let keyed = spread(scan(), Partitioning::Hash(vec![column()], 4));
        assert_eq!(nodes(project(column(), keyed)), ["ProjectionExec", "RepartitionExec", "TextsExec"]);
        // A table outside the store has one partition, so its exchange stays.
        let computed = spread(Arc::new(EmptyExec::new(schema())), Partitioning::RoundRobinBatch(4));
        assert_eq!(nodes(project(lit("x"), computed)), ["ProjectionExec", "RepartitionExec", "EmptyExec"]);
    }

    #[test]
    fn a_plan_is_straight_unless_something_collects_rows() {
        let merged: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(project(column(), scan())));
        assert!(is_straight(&merged));
        let sorted = sort(merged);
        assert!(!is_straight(&sorted) && !is_straight(&project(lit("x"), sorted)));
    }
}
