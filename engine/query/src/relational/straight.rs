//! Plans whose rows go straight from tables to their reader, none of them collected on the way. Who reads slowly holds what
//! stands between the two, so batches are short there, and rows pass no exchange that only spreads them over processors
//! when there is nothing to compute about them.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, Partitioning, ReplaceChildrenOptions};

/// Rows of a batch of such a plan: some MB where rows are long.
pub(crate) const STRAIGHT_ROWS: usize = 1024;
/// Nodes that hand rows on batch by batch.
const HANDING_ON: [&str; 11] = [
    "ConvertExec",
    "CooperativeExec",
    "CoalescePartitionsExec",
    "FilterExec",
    "GlobalLimitExec",
    "InTurnExec",
    "LocalLimitExec",
    "ProjectionExec",
    "RepartitionExec",
    "SliceExec",
    "UnionExec",
];

/// Says whether no node of a plan collects rows.
pub(crate) fn is_straight(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    children.is_empty() || (HANDING_ON.contains(&plan.name()) && children.into_iter().all(is_straight))
}

/// Takes the exchange out that spreads rows over processors on which nothing is done but to give their columns.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn without_exchange(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(exchange) = plan.downcast_ref::<RepartitionExec>() {
        let spreads = matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_));
        return Ok(if spreads { Arc::clone(exchange.input()) } else { plan });
    }
    let [input] = plan.children()[..] else { return Ok(plan) };
    if !passes_on(&plan) {
        return Ok(plan);
    }
    let straight = without_exchange(Arc::clone(input))?;
    if Arc::ptr_eq(&straight, input) {
        return Ok(plan);
    }
    plan.replace_children(vec![straight], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Says whether a node computes next to nothing about its rows.
fn passes_on(node: &Arc<dyn ExecutionPlan>) -> bool {
    match node.downcast_ref::<ProjectionExec>() {
        Some(columns) => columns.expr().iter().all(|e| e.expr.is::<Column>() || e.expr.is::<Literal>()),
        None => matches!(node.name(), "ConvertExec" | "CooperativeExec" | "GlobalLimitExec" | "LocalLimitExec"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{IsNullExpr, NotExpr, lit};
    use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::physical_plan::sorts::sort::SortExec;

    use super::*;

    fn column() -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("a", 0))
    }

    fn spread(partitioning: Partitioning) -> Arc<dyn ExecutionPlan> {
        let table = EmptyExec::new(Arc::new(Schema::new(vec![Field::new("a", DataType::Utf8, true)])));
        Arc::new(RepartitionExec::try_new(Arc::new(table), partitioning).unwrap())
    }

    fn project(expr: Arc<dyn PhysicalExpr>, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(ProjectionExec::try_new([(expr, "b".to_owned())], input).unwrap())
    }

    fn nodes(plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
        let text = displayable(plan.as_ref()).indent(false).to_string();
        text.lines().map(|line| line.trim().split(':').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn rows_that_are_only_given_pass_no_exchange() {
        let spreads = || spread(Partitioning::RoundRobinBatch(4));
        let plan = without_exchange(project(column(), spreads())).unwrap();
        assert_eq!(plan.properties().output_partitioning().partition_count(), 1);
        assert_eq!(nodes(plan), ["ProjectionExec", "EmptyExec"]);
        assert_eq!(nodes(without_exchange(project(lit(1), spreads())).unwrap()).len(), 2, "a constant");
        assert_eq!(nodes(without_exchange(spreads()).unwrap()), ["EmptyExec"]);
        // What is computed about rows is worth all processors.
        let computed = project(Arc::new(NotExpr::new(Arc::new(IsNullExpr::new(column())))), spreads());
        assert_eq!(nodes(without_exchange(computed).unwrap()).len(), 3);
        // What brings rows of equal keys together stays.
        let keyed = project(column(), spread(Partitioning::Hash(vec![column()], 4)));
        assert_eq!(nodes(without_exchange(keyed).unwrap()).len(), 3);
        let condition = Arc::new(IsNullExpr::new(column()));
        let filtered: Arc<dyn ExecutionPlan> = Arc::new(FilterExec::try_new(condition, spreads()).unwrap());
        assert_eq!(nodes(without_exchange(filtered).unwrap()).len(), 3);
    }

    #[test]
    fn a_plan_is_straight_unless_something_collects_rows() {
        let spreads = spread(Partitioning::RoundRobinBatch(4));
        let merged: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(project(column(), spreads)));
        assert!(is_straight(&merged));
        let by = LexOrdering::new([PhysicalSortExpr::new_default(column())]).unwrap();
        let sorted: Arc<dyn ExecutionPlan> = Arc::new(SortExec::new(by, Arc::clone(&merged)));
        assert!(!is_straight(&sorted) && !is_straight(&project(lit(1), sorted)));
    }
}
