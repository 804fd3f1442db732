//! Casts of numbers to integers round, as in PostgreSQL and DuckDB; arrow's truncate. Halves of a `double precision` go
//! to the even neighbour, those of a `numeric` away from zero.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    signature: Signature,
}

/// Gives the function, of one argument of any type: what is no number with a fraction stays as it is.
pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Whole { signature: Signature::any(1, Volatility::Immutable) }))
}

/// The type of numbers of a type that were rounded.
fn rounded(kind: &DataType) -> Option<DataType> {
    Some(match kind {
        DataType::Float32 | DataType::Float64 => kind.clone(),
        DataType::Decimal128(precision, scale) if *scale > 0 => DataType::Decimal128(*precision, 0),
        DataType::Decimal256(precision, scale) if *scale > 0 => DataType::Decimal256(*precision, 0),
        _ => return None,
    })
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &'static str {
        "to_whole"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return plan_err!("`to_whole` takes a number") };
        Ok(rounded(kind).unwrap_or_else(|| kind.clone()))
    }

    /// It is not there for columns of whole numbers, so that conditions on these reach the tables.
    fn simplify(&self, mut args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_fraction = match args.as_slice() {
            [arg] => rounded(&info.get_data_type(arg)?).is_some(),
            _ => true,
        };
        match args.pop() {
            Some(arg) if !is_fraction => Ok(ExprSimplifyResult::Simplified(arg)),
            arg => Ok(ExprSimplifyResult::Original(arg.into_iter().collect())),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return exec_err!("`to_whole` takes a number") };
        let Some(kind) = rounded(&value.data_type()) else { return Ok(value.clone()) };
        let values = value.to_array(args.number_rows)?;
        let rounded: ArrayRef = match kind {
            DataType::Float32 => {
                let values = values.as_primitive::<Float32Type>();
                Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even))
            }
            DataType::Float64 => {
                let values = values.as_primitive::<Float64Type>();
                Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even))
            }
            decimal => cast(&values, &decimal)?,
        };
        Ok(ColumnarValue::Array(rounded))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Float32Array, Float64Array, Int64Array};
    use arrow::datatypes::Decimal128Type;

    use super::super::testing::{call, column, shown};
    use super::*;

    #[test]
    fn halves_go_where_postgresql_puts_them() {
        let of = |values: ColumnarValue, rows: usize| {
            shown(&call(&function(), &[values], rows).unwrap())
                .into_iter()
                .map(Option::unwrap_or_default)
                .collect::<Vec<_>>()
        };
        let halves = vec![0.5, 1.5, -0.5, -1.5, 2.499, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0];
        let found = of(column(Float64Array::from(halves)), 8);
        assert_eq!(found[..6], ["0.0", "2.0", "-0.0", "-2.0", "2.0", "NaN"]);
        assert_eq!((&*found[6], found[7].parse::<f64>().unwrap()), ("inf", 9_007_199_254_740_992.0));
        assert_eq!(of(column(Float32Array::from(vec![Some(2.5), None])), 2), ["2.0", ""]);
        let decimals = |values: Vec<i128>| Decimal128Array::from(values).with_precision_and_scale(10, 1).unwrap();
        assert_eq!(of(column(decimals(vec![5, 15, -5, -15, 24, 0])), 6), ["1", "2", "-1", "-2", "2", "0"]);
        // What has no fraction stays as it is.
        assert_eq!(of(column(Int64Array::from(vec![i64::MAX])), 1), [i64::MAX.to_string()]);
        let hundreds = Decimal128Array::from(vec![5]).with_precision_and_scale(10, -2).unwrap();
        assert_eq!(rounded(&DataType::Decimal128(10, -2)), None);
        assert_eq!(
            call(&function(), &[column(hundreds.clone())], 1).unwrap().as_primitive::<Decimal128Type>(),
            &hundreds
        );
    }
}
