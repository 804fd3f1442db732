//! Sums, differences and products of whole numbers fail where their type does not hold them, as in PostgreSQL. DataFusion's
//! begin anew at the other end, and its planner has no switch for it; a function of ours stands in their place. So does one
//! for the aggregate `sum`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum};
use arrow::compute::kernels::numeric::{add, mul, sub};
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::{AggregateFunction, BinaryExpr};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, ExprSchemable as _, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

use crate::functions::{is_summed, sum};

/// The rule; it comes after those that give types.
#[derive(Debug)]
pub(crate) struct Overflows;

impl AnalyzerRule for Overflows {
    fn name(&self) -> &'static str {
        "overflows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|node| {
            // The counts of limits are constants that the planner wants to see; scans calculate nothing yet.
            if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_)) || !calculates(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            node.map_expressions(|expr| {
                expr.transform_up(|e| checked(e, &schema)?.transform_data(|e| summed(e, &schema)))
            })
        });
        Ok(changed?.data)
    }
}

fn is_checked(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
}

/// Whether there is something to do in a node.
fn calculates(node: &LogicalPlan) -> Result<bool> {
    for expr in node.expressions() {
        let calculates = |e: &Expr| match e {
            Expr::BinaryExpr(binary) => is_checked(binary.op),
            Expr::AggregateFunction(call) => is_sum(&call.func),
            Expr::WindowFunction(call) => {
                matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(function) if is_sum(function))
            }
            _ => false,
        };
        if expr.exists(|e| Ok(calculates(e)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The function in the place of an operation on whole numbers of one type.
fn checked(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else { return Ok(Transformed::no(expr)) };
    if !is_checked(*op) {
        return Ok(Transformed::no(expr));
    }
    let (kind, other) = (left.get_type(schema)?, right.get_type(schema)?);
    if !kind.is_integer() || kind != other {
        return Ok(Transformed::no(expr));
    }
    let function = Checked { op: *op, signature: Signature::any(2, Volatility::Immutable) };
    let call = ScalarUDF::from(function).call(vec![left.as_ref().clone(), right.as_ref().clone()]);
    Ok(Transformed::yes(call))
}

fn is_sum(function: &AggregateUDF) -> bool {
    function.name() == "sum"
}

/// The aggregate in the place of a sum of whole numbers. It has the name of that one, so that columns keep theirs.
fn summed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_whole = |args: &[Expr]| -> Result<bool> {
        let [arg] = args else { return Ok(false) };
        Ok(is_summed(&arg.get_type(schema)?))
    };
    Ok(match expr {
        Expr::AggregateFunction(AggregateFunction { func, params }) if is_sum(&func) && is_whole(&params.args)? => {
            Transformed::yes(Expr::AggregateFunction(AggregateFunction { func: sum(), params }))
        }
        Expr::WindowFunction(mut call) => {
            let is_sum = matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(function) if is_sum(function));
            // Different values of a frame cannot be taken out of it again.
            let is_changed = is_sum && !call.params.distinct && is_whole(&call.params.args)?;
            if is_changed {
                call.fun = WindowFunctionDefinition::AggregateUDF(sum());
            }
            Transformed::new_transformed(Expr::WindowFunction(call), is_changed)
        }
        other => Transformed::no(other),
    })
}

/// An operation that fails.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    op: Operator,
    signature: Signature,
}

impl Checked {
    fn kernel(&self) -> fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self.op {
            Operator::Plus => add,
            Operator::Minus => sub,
            _ => mul,
        }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        match self.op {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_sub",
            _ => "checked_mul",
        }
    }

    /// Columns keep the names that they had.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return internal_err!("an operation has two sides") };
        Ok(format!("{} {} {}", left.schema_name(), self.op, right.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind, _] = types else { return internal_err!("an operation has two sides") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [left, right] = args.arg_fields else { return internal_err!("an operation has two sides") };
        let is_nullable = left.is_nullable() || right.is_nullable();
        Ok(Arc::new(Field::new(self.name(), left.data_type().clone(), is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else { return internal_err!("an operation has two sides") };
        apply(left, right, self.kernel())
    }
}
