//! Arguments that PostgreSQL treats differently from DataFusion. Booleans that are concatenated with other values
//! become `t` and `f`. The number of digits for `round` becomes a literal of the required type: DataFusion sees a
//! number behind a cast only after types of comparisons are fixed, and the type of the rounded decimal would then
//! change. The `avg` of decimals gets 16 decimals; DataFusion gives four more than the values have.
//!
//! Calls that DataFusion takes and fails on when they run are refused: arithmetic of lists whose items are lists, and
//! `first_value()` of nothing.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{ScalarFunction, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, case, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::plan_walk::{any_expression, change_expressions, change_nodes};

/// Digits behind the point of decimals whose mean is taken, which has four more.
const MEAN_SCALE: i8 = 12;
/// Digits of a decimal at most.
const DIGITS: u8 = 38;
/// Digits before the point that a mean has room for beside its 16 behind it.
const MEAN_WHOLE_MAX: i16 = 22;

/// Functions of lists of numbers.
const OF_NUMBERS: [&str; 9] = [
    "array_add",
    "array_avg",
    "array_normalize",
    "array_product",
    "array_scale",
    "array_subtract",
    "array_sum",
    "cosine_distance",
    "inner_product",
];

/// The rule. It precedes type coercion.
#[derive(Debug)]
pub(crate) struct CallArguments;

impl AnalyzerRule for CallArguments {
    fn name(&self) -> &'static str {
        "call_arguments"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        change_nodes(plan, &mut |node| {
            if !has_calls(&node)? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            change_expressions(node, &mut |e| taken(e, &schema))
        })
    }
}

/// Whether a node has a call that may be changed.
fn has_calls(node: &LogicalPlan) -> Result<bool> {
    let is_one = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => {
            let name = call.func.name();
            matches!(name, "round" | "concat" | "concat_ws" | "format") || OF_NUMBERS.contains(&name)
        }
        Expr::AggregateFunction(call) => call.func.name() == "avg",
        Expr::WindowFunction(call) => is_mean(&call.fun) || is_of_nothing(call),
        _ => false,
    };
    any_expression(node, &is_one)
}

fn is_mean(function: &WindowFunctionDefinition) -> bool {
    matches!(function, WindowFunctionDefinition::AggregateUDF(function) if function.name() == "avg")
}

/// Whether a window function that gives a value of another row has no value to give.
fn is_of_nothing(call: &WindowFunction) -> bool {
    call.params.args.is_empty() && matches!(call.fun.name(), "first_value" | "last_value" | "nth_value")
}

/// Whether a call takes lists of numbers and is given a list of lists.
fn is_of_lists(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let is_one = |value: &Expr| match value.get_type(schema) {
        Ok(DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) => {
            item.data_type().is_nested()
        }
        _ => false,
    };
    OF_NUMBERS.contains(&call.func.name()) && call.args.iter().any(is_one)
}

/// A call with its arguments as they are taken.
fn taken(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut is_changed = false;
    let expr = match expr {
        Expr::ScalarFunction(call) if is_of_lists(&call, schema) => {
            return plan_err!("`{}` takes lists of numbers", call.func.name());
        }
        Expr::WindowFunction(call) if is_of_nothing(&call) => {
            return plan_err!("`{}` takes a value", call.fun.name());
        }
        Expr::ScalarFunction(mut call) => {
            match call.func.name() {
                "round" => {
                    if let [_, digits] = call.args.as_mut_slice()
                        && let Some(number) = small(digits)
                    {
                        (*digits, is_changed) = (lit(number), true);
                    }
                }
                "concat" | "concat_ws" | "format" => {
                    for value in &mut call.args {
                        if value.get_type(schema).is_ok_and(|kind| kind == DataType::Boolean) {
                            (*value, is_changed) = (letter(std::mem::take(value))?, true);
                        }
                    }
                }
                _ => {}
            }
            Expr::ScalarFunction(call)
        }
        Expr::AggregateFunction(mut call) if call.func.name() == "avg" => {
            is_changed = widen(&mut call.params.args, schema);
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) if is_mean(&call.fun) => {
            is_changed = widen(&mut call.params.args, schema);
            Expr::WindowFunction(call)
        }
        other => other,
    };
    Ok(Transformed::new_transformed(expr, is_changed))
}

/// A whole number that is written as a literal of another type.
fn small(digits: &Expr) -> Option<i32> {
    match digits {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => i32::try_from(*number).ok(),
        _ => None,
    }
}

/// A boolean as PostgreSQL writes it.
fn letter(value: Expr) -> Result<Expr> {
    case(value).when(lit(true), lit("t")).when(lit(false), lit("f")).end()
}

/// Gives decimals more digits behind the point. Returns whether there were any. Those that are declared with too many before
/// it stay: their mean would overflow. All digits there are say nothing of how many are used.
fn widen(values: &mut [Expr], schema: &DFSchema) -> bool {
    let [value] = values else { return false };
    let has_room = |digits: u8, scale: i8| digits == DIGITS || i16::from(digits) - i16::from(scale) <= MEAN_WHOLE_MAX;
    let is_short = value.get_type(schema).is_ok_and(
        |kind| matches!(kind, DataType::Decimal128(digits, scale) if scale < MEAN_SCALE && has_room(digits, scale)),
    );
    if is_short {
        *value = cast(std::mem::take(value), DataType::Decimal128(DIGITS, MEAN_SCALE));
    }
    is_short
}

#[cfg(test)]
mod tests {
    use datafusion::functions::expr_fn::{concat, round};
    use datafusion::functions_aggregate::expr_fn::avg;

    use super::*;

    fn of(expr: Expr) -> (bool, String) {
        let found = taken(expr, &DFSchema::empty()).unwrap();
        (found.transformed, found.data.to_string())
    }

    #[test]
    fn arguments_are_taken_as_in_postgresql() {
        let decimal = |scale| lit(ScalarValue::Decimal128(Some(5), 38, scale));
        let (is_changed, shown) = of(concat(vec![lit("a"), lit(true)]));
        assert!(is_changed && shown.contains("THEN Utf8(\"t\")"), "{shown}");
        assert!(!of(concat(vec![lit("a"), lit(1)])).0);
        let (is_changed, shown) = of(round(vec![decimal(2), lit(1_i64)]));
        assert!(is_changed && shown.contains("Int32(1)"), "{shown}");
        assert!(!of(round(vec![decimal(2)])).0);
        assert!(!of(round(vec![decimal(2), lit(1_i32)])).0);
        let (is_changed, shown) = of(avg(decimal(2)));
        assert!(is_changed && shown.contains("Decimal128(38, 12)"), "{shown}");
        assert!(!of(avg(decimal(12))).0 && !of(avg(lit(1.5))).0);
        // A mean of 28 digits before the point and 16 behind it has no room.
        let declared = |digits| lit(ScalarValue::Decimal128(Some(5), digits, 2));
        assert!(of(avg(declared(24))).0 && !of(avg(declared(25))).0 && !of(avg(declared(30))).0);
    }
}
