//! Addition, subtraction and multiplication of integers, their signs, and `sum`, fail on overflow, as in PostgreSQL. DataFusion's
//! wrap around, and its planner has no switch for it, so functions of ours replace them.
//!
//! Division of integers fails if the divisor is zero, except within conditions: DataFusion evaluates both parts of `n
//! <> 0 AND 10 / n > 3` for all rows, where PostgreSQL evaluates the second part only for rows of which the first is
//! true. There, and in the argument of an aggregate with a `FILTER`, a division by zero gives NULL, which satisfies no
//! condition. Elsewhere the check also gets the dividend, since NULL divided by zero is NULL and no error.

mod negation;

use std::sync::Arc;

use arrow::array::{ArrayRef, Datum, Scalar};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::kernels::numeric::{add, div, mul, rem, sub};
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{AggregateFunction, BinaryExpr, ScalarFunction};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, ExprSchemable as _, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

use crate::functions::{is_summed, operation, sign, sum, typed_as};
use crate::plan_walk::{any_expression, change_expressions, change_nodes, change_parts, has_part};

/// The rule. It follows type coercion.
#[derive(Debug)]
pub(crate) struct Overflows;

impl AnalyzerRule for Overflows {
    fn name(&self) -> &'static str {
        "overflows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            // The planner needs constants as limits, and scans calculate nothing yet.
            if matches!(node, LogicalPlan::Limit(_) | LogicalPlan::TableScan(_)) || !calculates(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            // In the `FILTER` of an aggregate, the function's name becomes visible in the column name.
            let is_condition = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
            change_expressions(node, &mut |e| {
                let done = with_dividend(e)?.transform_data(|e| checked(e, &schema, is_condition))?;
                done.transform_data(|e| some(e, &schema))?.transform_data(|e| summed(e, &schema))
            })
        })
    }
}

fn is_checked(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) || divides(op)
}

fn divides(op: Operator) -> bool {
    matches!(op, Operator::Divide | Operator::Modulo)
}

/// Adds the dividend to the function that checks a divisor, unless it contains a quotient or a subquery: nested
/// quotients would be copied exponentially.
fn with_dividend(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(mut quotient) if divides(quotient.op) && is_written_once(&quotient.left)? => {
            let args = looked_at(&mut quotient.right).filter(|args| args.len() == 1);
            let is_told = args.is_some();
            if let Some(args) = args {
                args.push(quotient.left.as_ref().clone());
            }
            Ok(Transformed::new_transformed(Expr::BinaryExpr(quotient), is_told))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The arguments of the function that checks a divisor; `None` if it is not checked.
fn looked_at(divisor: &mut Expr) -> Option<&mut Vec<Expr>> {
    match divisor {
        Expr::Cast(cast) => looked_at(&mut cast.expr),
        Expr::ScalarFunction(call) if is_divisor(call) => Some(&mut call.args),
        _ => None,
    }
}

fn is_divisor(call: &ScalarFunction) -> bool {
    call.func.name() == "divisor"
}

fn is_written_once(divided: &Expr) -> Result<bool> {
    let is_again = |e: &Expr| match e {
        Expr::ScalarFunction(call) => is_divisor(call),
        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => true,
        _ => false,
    };
    Ok(!has_part(divided, &is_again)?)
}

/// Rewrites the arguments of an aggregate with a `FILTER`, which are evaluated before rows are filtered, and the
/// filter.
fn some(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::AggregateFunction(mut call) if call.params.filter.is_some() => {
            let mut is_changed = false;
            for arg in &mut call.params.args {
                let found = change_parts(arg.clone(), &mut |e| checked(e, schema, true))?;
                is_changed |= found.transformed;
                *arg = found.data;
            }
            if let Some(condition) = call.params.filter.take() {
                let found = change_parts(*condition, &mut |e| checked(e, schema, true))?;
                is_changed |= found.transformed;
                call.params.filter = Some(Box::new(found.data));
            }
            Ok(Transformed::new_transformed(Expr::AggregateFunction(call), is_changed))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Whether a node has operations to replace.
fn calculates(node: &LogicalPlan) -> Result<bool> {
    let calculates = |e: &Expr| match e {
        Expr::BinaryExpr(binary) => is_checked(binary.op),
        Expr::Negative(_) => true,
        Expr::AggregateFunction(call) => is_sum(&call.func),
        Expr::WindowFunction(call) => {
            matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(function) if is_sum(function))
        }
        _ => false,
    };
    any_expression(node, &calculates)
}

/// Replaces an operation on integers of one type. `may_lack`: division by zero gives NULL.
fn checked(expr: Expr, schema: &DFSchema, may_lack: bool) -> Result<Transformed<Expr>> {
    if let Some(number) = negation::negated(&expr, schema)? {
        return Ok(Transformed::yes(negation::function().call(vec![number.clone()])));
    }
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else { return Ok(Transformed::no(expr)) };
    // A constant divisor is folded, and zero is an error then as anywhere else.
    if !is_checked(*op) || (divides(*op) && (!may_lack || matches!(**right, Expr::Literal(..)))) {
        return Ok(Transformed::no(expr));
    }
    let (kind, other) = (typed_as(left).get_type(schema)?, typed_as(right).get_type(schema)?);
    if !kind.is_integer() || kind != other {
        return Ok(Transformed::no(expr));
    }
    let call = function(*op).call(vec![left.as_ref().clone(), right.as_ref().clone()]);
    Ok(Transformed::yes(call))
}

/// The checked function for an operator.
fn function(op: Operator) -> ScalarUDF {
    ScalarUDF::from(CheckedArithmeticFunction { op, signature: Signature::any(2, Volatility::Immutable) })
}

/// All checked functions.
pub(crate) fn checks() -> [ScalarUDF; 5] {
    [Operator::Plus, Operator::Minus, Operator::Multiply, Operator::Divide, Operator::Modulo].map(function)
}

/// The checked function for the sign before a number.
pub(crate) fn checked_negation() -> ScalarUDF {
    negation::function()
}

fn is_sum(function: &AggregateUDF) -> bool {
    function.name() == "sum"
}

/// Replaces a `sum` of integers. The function has the same name, so that columns keep theirs.
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
            // With `DISTINCT`, the function could not remove values from a moving frame.
            let is_changed = is_sum && !call.params.distinct && is_whole(&call.params.args)?;
            if is_changed {
                call.fun = WindowFunctionDefinition::AggregateUDF(sum());
            }
            Transformed::new_transformed(Expr::WindowFunction(call), is_changed)
        }
        other => Transformed::no(other),
    })
}

type Kernel = fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>;

/// A quotient or remainder that is NULL where the divisor is zero.
fn with_divisor(left: &dyn Datum, right: &dyn Datum, kernel: Kernel) -> Result<ArrayRef, ArrowError> {
    let (divisors, is_scalar) = right.get();
    let zero = ScalarValue::new_zero(divisors.data_type()).and_then(|zero| zero.to_scalar());
    let zero = zero.map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    let divisors = nullif(divisors, &eq(&divisors, &zero)?)?;
    if is_scalar { kernel(left, &Scalar::new(divisors)) } else { kernel(left, &divisors) }
}

/// An operation that fails on overflow; division may give NULL instead.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedArithmeticFunction {
    op: Operator,
    signature: Signature,
}

impl CheckedArithmeticFunction {
    fn kernel(&self) -> Kernel {
        match self.op {
            Operator::Plus => add,
            Operator::Minus => sub,
            Operator::Divide => |left, right| with_divisor(left, right, div),
            Operator::Modulo => |left, right| with_divisor(left, right, rem),
            _ => mul,
        }
    }
}

impl ScalarUDFImpl for CheckedArithmeticFunction {
    fn name(&self) -> &'static str {
        match self.op {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_sub",
            Operator::Divide => "quotient_or_null",
            Operator::Modulo => "remainder_or_null",
            _ => "checked_mul",
        }
    }

    /// Columns keep the names that they had with the operator.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [left, right] = args else { return internal_err!("an operation has two sides") };
        Ok(operation(left, sign(self.name()).unwrap_or_default(), right))
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
        let is_nullable = left.is_nullable() || right.is_nullable() || divides(self.op);
        Ok(Arc::new(Field::new(self.name(), left.data_type().clone(), is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else { return internal_err!("an operation has two sides") };
        apply(left, right, self.kernel())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use quiver_types::Access;

    use crate::Limits;
    use crate::context::QueryContext;
    use crate::name_resolution::Names;
    use crate::relational::tests::engine;

    /// Guards against names that repeat those of inner operations: planning took time in the fourth power of their
    /// number.
    #[tokio::test]
    async fn long_sums_are_planned_in_time() {
        let engine = engine();
        let (ctx, own) = (QueryContext::new(Access::full(), Limits::default()), Arc::clone(&engine));
        let began = Instant::now();
        let work = async move {
            let statement = format!("select {}1 from generate_series(1, 3)", "value + ".repeat(400));
            let plan = Names::new(own.relational()).plan(&statement)?;
            own.plan_relational(&plan).await.map(|_| ())
        };
        engine.run(&ctx, work).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}
