//! Charges the results of expressions to their query: `CASE`, casts, and functions that return strings, lists or maps
//! copy values without any limit. Each result is charged as long as it exists
//! ([`result_memory`](super::result_memory)), so a statement with many of them over long strings fails instead of
//! exhausting the memory of the process. Window functions are wrapped by [`window_functions`], and those whose frames
//! exclude rows get their final form by [`frame_exclusion`].
//!
//! The wrapping is done on optimized plans, because optimizer rules would not recognize wrapped functions.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable as _, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use super::bounded::{BoundedFunction, is_bounded};
use super::frame_exclusion;
use super::result_memory::{self, Room};
use super::window_functions;
use crate::plan_walk::{any_expression, change_expressions, change_nodes};

/// The name of the function that charges its argument.
const COUNTED: &str = "counted";

/// Charges the results of a plan's expressions to its query.
///
/// # Errors
/// Those of walking through the plan.
pub(crate) fn counted(plan: LogicalPlan, room: &Room) -> Result<LogicalPlan> {
    let counting = CountingRewriter { room: room.clone(), around: function(room) };
    change_nodes(plan, &mut |node| {
        if !makes(&node)? {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        let collects =
            matches!(&node, LogicalPlan::Window(window) if window.window_expr.iter().any(window_functions::collects));
        // Within the condition of an aggregate (FILTER) a function is printed by its own name.
        let changed = change_expressions(node, &mut |e| {
            frame_exclusion::applied(e)?.transform_data(|e| Ok(counting.expr(e, &schema, collects)))
        })?;
        Ok(changed.update_data(named_apart))
    })
}

/// Gives counted keys of a join names of their own. They become columns beside those of the tables, and a cast has the name
/// of its column; the planner knows that of casts alone.
fn named_apart(node: LogicalPlan) -> LogicalPlan {
    let LogicalPlan::Join(mut join) = node else { return node };
    for key in join.on.iter_mut().flat_map(|(left, right)| [left, right]) {
        if matches!(&*key, Expr::ScalarFunction(call) if call.func.name() == COUNTED) {
            let name = key.to_string();
            *key = std::mem::take(key).alias(name);
        }
    }
    LogicalPlan::Join(join)
}

/// A function that returns its argument, and charges it to the query.
pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(CountedResultFunction { room: room.clone(), signature }))
}

/// Whether there may be something to do in a node. Scans calculate nothing, and counts of limits are constants.
fn makes(node: &LogicalPlan) -> Result<bool> {
    let is_one = matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Join(_)
    );
    if !is_one {
        return Ok(false);
    }
    any_expression(node, &makes_values)
}

/// Whether values of a type may be long.
pub(crate) fn is_long(kind: &DataType) -> bool {
    !kind.is_primitive()
        && !matches!(
            kind,
            DataType::Null | DataType::Boolean | DataType::FixedSizeBinary(_) | DataType::Dictionary(_, _)
        )
}

fn is_view(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8View | DataType::BinaryView)
}

fn is_text(kind: &DataType) -> bool {
    is_view(kind) || matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary)
}

/// Whether a cast to a type makes views of a text, which point at it.
fn is_shared(from: &Expr, kind: &DataType, schema: &DFSchema) -> bool {
    is_view(kind) && from.get_type(schema).is_ok_and(|from| is_text(&from))
}

/// What is put around expressions.
struct CountingRewriter {
    room: Room,
    around: Arc<ScalarUDF>,
}

impl CountingRewriter {
    fn expr(&self, expr: Expr, schema: &DFSchema, collects: bool) -> Transformed<Expr> {
        if !makes_values(&expr) {
            return Transformed::no(expr);
        }
        // What has no type here, the planner refuses.
        let Ok(kind) = expr.get_type(schema) else { return Transformed::no(expr) };
        let is_counted = is_long(&kind)
            && match &expr {
                Expr::ScalarFunction(call) => !is_bounded(call.func.name()),
                // Views that are chosen among point at the texts that they had.
                Expr::Case(_) => !is_view(&kind),
                Expr::Cast(cast) => !is_shared(&cast.expr, &kind, schema),
                Expr::TryCast(cast) => !is_shared(&cast.expr, &kind, schema),
                Expr::WindowFunction(_) => true,
                _ => false,
            };
        let is_filtered = matches!(&expr, Expr::WindowFunction(call) if window_functions::is_filtered(call));
        if !is_counted && !is_filtered {
            return Transformed::no(expr);
        }
        Transformed::yes(match expr {
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                let func = Arc::new(ScalarUDF::from(BoundedFunction::alike(func, self.room.clone())));
                Expr::ScalarFunction(ScalarFunction { func, args })
            }
            Expr::WindowFunction(call) => {
                Expr::WindowFunction(Box::new(window_functions::counted(*call, collects, is_long(&kind), &self.room)))
            }
            other => self.around.call(vec![other]),
        })
    }
}

fn makes_values(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(_) | Expr::Case(_) | Expr::Cast(_) | Expr::TryCast(_) | Expr::WindowFunction(_))
}

/// Returns its argument, and charges it to the query.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedResultFunction {
    room: Room,
    signature: Signature,
}

impl ScalarUDFImpl for CountedResultFunction {
    fn name(&self) -> &'static str {
        COUNTED
    }

    /// Columns keep the names that they had.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let [value] = args else { return internal_err!("one value is counted") };
        Ok(value.schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return internal_err!("one value is counted") };
        Ok(kind.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [field] = args.arg_fields else { return internal_err!("one value is counted") };
        Ok(Arc::clone(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(ColumnarValue::Array(array)) => Ok(ColumnarValue::Array(result_memory::counted(array, &self.room)?)),
            Some(constant) => Ok(constant),
            None => internal_err!("one value is counted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    /// The key is a column beside that of the table, whose name a cast has.
    #[tokio::test]
    async fn joins_are_by_casts_to_texts() {
        let tables = "(values (1, 'a'), (2, '2'), (3, '3')) as t(a, b)";
        let other = "(values (1, '1'), (2, '2'), (4, 'c')) as u(a, c)";
        for (statement, expected) in [
            (
                format!("select t.a, u.a from {tables} join {other} on cast(t.a as varchar) = u.c order by t.a"),
                vec!["1|1", "2|2"],
            ),
            (
                format!(
                    "select t.a, u.a from {tables} left join {other} on arrow_cast(u.a, 'Utf8') = t.b order by t.a"
                ),
                vec!["1|NULL", "2|2", "3|NULL"],
            ),
            (
                format!(
                    "select t.a from {tables} join {other} on cast(t.a as varchar) = cast(u.a as varchar) order by t.a"
                ),
                vec!["1", "2"],
            ),
            (
                format!(
                    "select t.a from {tables} where try_cast(t.a as varchar) in (select u.c from {other}) order by t.a"
                ),
                vec!["1", "2"],
            ),
        ] {
            assert_eq!(answered(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
