//! Makes joins cancellable that compare many pairs of rows and return none, such as `a JOIN b ON a.x % 2 = b.x % 2 AND
//! a.x + b.x = -3` over a million rows each. DataFusion's joins return nothing before a batch of output is full, so
//! such a query could not be stopped for minutes. Here the join condition first checks whether the query goes on. Semi
//! and anti joins without a condition get one for this purpose, since they look at all pairs with equal keys for each
//! row that they return.
//!
//! No other join with a condition is planned in this session, and joins of other kinds return a row for each pair.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::expressions::BinaryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use quiver_types::{Error, ErrorKind, cancellation};

use crate::error::to_datafusion;
use crate::plan_walk::change_physical;

/// The name of the function that asks. Users cannot call it.
const NAME: &str = "goes_on";
/// Steps that a join takes for a pair of rows and for the pairs of one evaluation, in the unit of
/// [`cancellation::goes_on`].
const PAIR_STEPS: usize = 1 << 6;
const BATCH_STEPS: usize = 1 << 10;

/// Lets the joins of a plan ask whether the query goes on.
///
/// # Errors
/// Those of making the nodes.
pub(crate) fn asking(plan: Arc<dyn ExecutionPlan>, options: &Arc<ConfigOptions>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(condition) = asking_condition(join.filter(), *join.join_type(), options)
        {
            return Ok(Transformed::yes(join.builder().with_filter(Some(condition)).build_exec()?));
        }
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(condition) = asking_condition(join.filter(), *join.join_type(), options)
        {
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(condition)).build()?;
            return Ok(Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>));
        }
        Ok(Transformed::no(node))
    })
}

/// The condition of a join, which asks before it looks at pairs; `None` if the join gives something for each pair.
fn asking_condition(own: Option<&JoinFilter>, join: JoinType, options: &Arc<ConfigOptions>) -> Option<JoinFilter> {
    let asks = || -> Arc<dyn PhysicalExpr> {
        let field = Arc::new(Field::new(NAME, DataType::Boolean, false));
        Arc::new(ScalarFunctionExpr::new(NAME, Arc::new(function()), Vec::new(), field, Arc::clone(options)))
    };
    match own {
        Some(own) => {
            let both = Arc::new(BinaryExpr::new(asks(), Operator::And, Arc::clone(own.expression())));
            Some(JoinFilter::new(both, own.column_indices().to_vec(), Arc::clone(own.schema())))
        }
        None if gives_each_pair(join) => None,
        None => Some(JoinFilter::new(asks(), Vec::new(), Arc::new(Schema::empty()))),
    }
}

fn gives_each_pair(join: JoinType) -> bool {
    matches!(join, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full)
}

/// The function: true for as long as the query goes on, and an error from then on.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(GoesOnFunction { signature: Signature::nullary(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct GoesOnFunction {
    signature: Signature,
}

impl ScalarUDFImpl for GoesOnFunction {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if !cancellation::goes_on(args.number_rows.saturating_mul(PAIR_STEPS).saturating_add(BATCH_STEPS)) {
            return Err(to_datafusion(Error::new(ErrorKind::Cancelled, "query was canceled in a join")));
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}

#[cfg(test)]
mod tests;
