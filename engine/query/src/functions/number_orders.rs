//! Functions of numbers whose order follows from that of their argument where its range is known. DataFusion's fail where it
//! is not, as behind other functions, and then take rows that are sorted by them for unsorted: `row_number() OVER (ORDER BY
//! abs(a - b))` was refused. Here there is no order then.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

const NAMES: [&str; 16] = [
    "abs", "acos", "acosh", "asin", "atan", "atanh", "cos", "cosh", "exp", "ln", "log10", "log2", "radians", "sin",
    "sqrt", "tanh",
];

/// Puts them in the place of DataFusion's.
///
/// # Errors
/// Those of the registry.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for name in NAMES {
        let inner = state.scalar_functions().get(name).map(Arc::clone);
        let Some(inner) = inner else { return internal_err!("there is no function `{name}`") };
        state.register_udf(Arc::new(ScalarUDF::from(OrderedFunction(inner))))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedFunction(Arc<ScalarUDF>);

impl ScalarUDFImpl for OrderedFunction {
    delegated_head!(0);

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        Ok(self.0.output_ordering(input).unwrap_or(SortProperties::Unordered))
    }

    fn evaluate_bounds(&self, input: &[&Interval]) -> Result<Interval> {
        self.0.evaluate_bounds(input).or_else(|_| Interval::make_unbounded(&DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use crate::testing::answered;

    #[tokio::test]
    async fn windows_are_ordered_by_functions_of_functions() {
        for name in NAMES {
            let value = format!("{name}(cast(character_length(s) as double) / 10)");
            let statement = format!(
                "select k, row_number() over (partition by g order by {value}, k) as n \
                 from (values (1, 'x', 'abc'), (2, 'x', 'ab'), (3, 'y', 'a')) as t(k, g, s) order by k"
            );
            let found = answered(&statement).await.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(found.len(), 3, "{name}");
        }
        let nearest = "select a, row_number() over (order by abs(a - 4), a) as n from (values (1), (3), (5), (9)) as t(a) \
                       order by a";
        assert_eq!(answered(nearest).await.unwrap(), ["1|3", "3|1", "5|2", "9|4"]);
        assert_eq!(answered("select abs(-2), sqrt(9.0), ln(1.0)").await.unwrap(), ["2|3.0|0.0"]);
    }
}
