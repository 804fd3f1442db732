//! Operators of the query languages as nodes of DataFusion plans.
//!
//! One logical node wraps any [`Operator`], and the operator itself makes its physical nodes. The sessions of the
//! languages have no optimizer rules, so operators merge the partitions of their inputs themselves where they need to,
//! and [`gathered`] does it below nodes of DataFusion.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::logical_expr_common::dyn_eq::{DynEq, DynHash};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

use crate::error::from_datafusion;

/// The description of a plan node: plain data, compared by `Eq` and `Hash`.
pub trait Operator: Any + DynEq + DynHash + fmt::Debug + Send + Sync + 'static {
    /// Name of the node in `explain`.
    fn name(&self) -> &'static str;

    /// What `explain` shows after the name.
    fn detail(&self) -> String {
        String::new()
    }

    /// Schema of the output.
    fn schema(&self) -> SchemaRef;

    /// Makes the physical node over physical inputs; one per input of the logical node, in the same order.
    ///
    /// # Errors
    /// The inputs are not what the operator can work on.
    fn physical(
        self: Arc<Self>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

/// The logical node.
#[derive(Clone)]
struct OperatorNode {
    operator: Arc<dyn Operator>,
    inputs: Vec<LogicalPlan>,
    schema: DFSchemaRef,
}

/// Wraps an operator as a plan.
///
/// # Errors
/// Internal: the names of its columns are not unique.
pub fn operator_plan(operator: impl Operator, inputs: Vec<LogicalPlan>) -> quiver_types::Result<LogicalPlan> {
    let schema = DFSchema::try_from(operator.schema()).map_err(from_datafusion)?;
    let node = OperatorNode { operator: Arc::new(operator), inputs, schema: Arc::new(schema) };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

impl fmt::Debug for OperatorNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorNode")
            .field("operator", &self.operator)
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}

impl PartialEq for OperatorNode {
    fn eq(&self, other: &Self) -> bool {
        self.operator.as_ref().dyn_eq(other.operator.as_ref() as &dyn Any) && self.inputs == other.inputs
    }
}

impl Eq for OperatorNode {}

impl PartialOrd for OperatorNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl Hash for OperatorNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operator.as_ref().dyn_hash(state);
        self.inputs.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for OperatorNode {
    fn name(&self) -> &str {
        self.operator.name()
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_operator(self.operator.name(), &self.operator.detail(), f)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Ok(Self { inputs, ..self.clone() })
    }
}

/// Merges the partitions of a plan into one. Some nodes of DataFusion need a single partition and rely on an optimizer
/// rule to provide it, which the sessions of the languages do not have.
///
/// # Errors
/// Internal: the names of the columns are not unique.
pub fn gathered(plan: LogicalPlan) -> quiver_types::Result<LogicalPlan> {
    let schema = Arc::clone(plan.schema().inner());
    operator_plan(Gather(schema), vec![plan])
}

/// Lacks in DataFusion: a logical node that merges partitions. Its `CoalescePartitionsExec` is only inserted by a
/// physical rule.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Gather(SchemaRef);

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "Gather"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(coalesced(inputs.swap_remove(0)))
    }
}

/// Merges the partitions of a physical plan into one; gives the plan itself if there is only one.
pub fn coalesced(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if input.output_partitioning().partition_count() > 1 { Arc::new(CoalescePartitionsExec::new(input)) } else { input }
}

/// Writes an operator as `explain` shows it.
///
/// # Errors
/// Those of the formatter.
pub fn write_operator(name: &str, detail: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if detail.is_empty() { f.write_str(name) } else { write!(f, "{name}: {detail}") }
}

/// Makes the physical plan. Operators and scans, which are most of what languages plan, are planned here directly; any
/// other node, with all below it, by DataFusion's planner. That one is slower: it sets up tasks and locks for the
/// leaves and walks the plan again for rules that these sessions do not have.
pub(crate) fn planned<'p>(
    plan: &'p LogicalPlan,
    planner: &'p DefaultPhysicalPlanner,
    state: &'p SessionState,
) -> BoxFuture<'p, Result<Arc<dyn ExecutionPlan>>> {
    let made = async move {
        match plan {
            LogicalPlan::Extension(Extension { node }) => {
                if let Some(node) = node.as_any().downcast_ref::<OperatorNode>() {
                    let mut inputs = Vec::with_capacity(node.inputs.len());
                    for input in &node.inputs {
                        inputs.push(planned(input, planner, state).await?);
                    }
                    return Arc::clone(&node.operator).physical(inputs, state);
                }
            }
            LogicalPlan::TableScan(scan) if scan.filters.is_empty() => {
                let table = source_as_provider(&scan.source)?;
                return table.scan(state, scan.projection.as_ref(), &[], scan.fetch).await;
            }
            _ => {}
        }
        planner.create_physical_plan(plan, state).await
    };
    made.boxed()
}

/// Turns the logical node into physical ones.
#[derive(Debug)]
pub(crate) struct OperatorPlanner;

impl ExtensionPlanner for OperatorPlanner {
    // Not written with `async_trait`, for the reason given in `table_provider`.
    fn plan_extension<'life0, 'life1, 'life2, 'life3, 'life4, 'life5, 'life6, 'life7, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn PhysicalPlanner,
        node: &'life2 dyn UserDefinedLogicalNode,
        _: &'life3 [&'life4 LogicalPlan],
        physical_inputs: &'life5 [Arc<dyn ExecutionPlan>],
        session: &'life6 dyn Session,
        _: &'life7 PhysicalPlanningContext,
    ) -> BoxFuture<'async_trait, Result<Option<Arc<dyn ExecutionPlan>>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        'life4: 'async_trait,
        'life5: 'async_trait,
        'life6: 'async_trait,
        'life7: 'async_trait,
        Self: 'async_trait,
    {
        let node = node.as_any().downcast_ref::<OperatorNode>();
        let planned = node.map(|node| Arc::clone(&node.operator).physical(physical_inputs.to_vec(), session));
        Box::pin(ready(planned.transpose()))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::catalog::MemTable;
    use datafusion::datasource::provider_as_source;
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::logical_expr::{LogicalPlanBuilder, ident, lit};
    use datafusion::physical_plan::displayable;

    use super::*;

    #[tokio::test]
    async fn operators_are_planned_as_by_datafusion() {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int64, false));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let table = MemTable::try_new(schema, vec![vec![], vec![]]).unwrap();
        let source = provider_as_source(Arc::new(table));
        let scan = |projection| LogicalPlanBuilder::scan("t", Arc::clone(&source), projection).unwrap();
        let once = gathered(scan(None).build().unwrap()).unwrap();
        let some = gathered(scan(Some(vec![1])).build().unwrap()).unwrap();
        let within = LogicalPlanBuilder::from(once.clone()).filter(ident("a").gt(lit(1_i64))).unwrap();
        let within = gathered(within.sort(vec![ident("a").sort(true, false)]).unwrap().build().unwrap()).unwrap();
        let above = LogicalPlanBuilder::from(some.clone()).limit(1, Some(2)).unwrap().build().unwrap();
        let state = SessionStateBuilder::new().with_physical_optimizer_rules(vec![]).build();
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(OperatorPlanner)]);
        for plan in [scan(None).build().unwrap(), gathered(once.clone()).unwrap(), once, some, within, above] {
            let own = planned(&plan, &planner, &state).await.unwrap();
            let theirs = planner.create_physical_plan(&plan, &state).await.unwrap();
            let [own, theirs] = [own, theirs].map(|plan| displayable(plan.as_ref()).indent(true).to_string());
            assert_eq!(own, theirs);
        }
    }
}
