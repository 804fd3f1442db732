//! Percentiles that are exact to the last bit: DataFusion's `percentile_cont` rounds the place between two values to a
//! millionth, which shows in the seventh digit.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility, cast, lit};
use datafusion::physical_expr::expressions::Literal;

/// `percentile_exact(x, q)` over doubles: `PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x)` as PostgreSQL computes it; NULL is
/// left out, `q` is a constant between 0 and 1.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Percentile {
    signature: Signature,
}

impl Percentile {
    /// The function.
    pub(crate) fn udaf() -> Arc<AggregateUDF> {
        let signature = Signature::exact(vec![DataType::Float64; 2], Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Self { signature }))
    }
}

/// Replaces DataFusion's percentile by the exact one.
pub(crate) fn exact(call: AggregateFunction) -> Expr {
    let q = match call.params.args.get(1) {
        Some(Expr::Literal(ScalarValue::Float64(Some(q)), _)) if (0.0..=1.0).contains(q) => *q,
        _ => return Expr::AggregateFunction(call),
    };
    if call.func.name() != "percentile_cont" || call.params.distinct {
        return Expr::AggregateFunction(call);
    }
    let descends = call.params.order_by.first().is_some_and(|s| !s.asc);
    let mut params = call.params;
    params.args.truncate(1);
    params.args = params.args.into_iter().map(|x| cast(x, DataType::Float64)).collect();
    params.args.push(lit(if descends { 1.0 - q } else { q }));
    params.order_by.clear();
    Expr::AggregateFunction(AggregateFunction { func: Percentile::udaf(), params })
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &'static str {
        "percentile_exact"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let q = args.exprs.get(1).and_then(|e| e.downcast_ref::<Literal>()).map(Literal::value);
        match q {
            Some(ScalarValue::Float64(Some(q))) if (0.0..=1.0).contains(q) => {
                Ok(Box::new(Values { q: *q, values: Vec::new() }))
            }
            _ => plan_err!("the second argument of `percentile_exact` is a constant from 0 to 1"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)));
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), list, true))])
    }
}

/// The values of a group.
#[derive(Debug)]
struct Values {
    q: f64,
    values: Vec<f64>,
}

impl Values {
    fn add(&mut self, array: &Float64Array) {
        self.values.extend(array.iter().flatten());
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].as_primitive::<Float64Type>());
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let lists = states[0].as_list::<i32>();
        (0..lists.len())
            .filter(|i| lists.is_valid(*i))
            .for_each(|i| self.add(lists.value(i).as_primitive::<Float64Type>()));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(percentile(&mut self.values, self.q)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: Vec<ScalarValue> = std::mem::take(&mut self.values).into_iter().map(ScalarValue::from).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }
}

/// The value at a part of the way through sorted values, interpolated between its neighbours.
fn percentile(values: &mut [f64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = q * last as f64;
    let (_, low, above) = values.select_nth_unstable_by(place.floor() as usize, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    Some(low + place.fract() * (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let check =
            |values: &[f64], q, expected| assert_eq!(percentile(&mut values.to_vec(), q), expected, "{values:?} {q}");
        check(&[], 0.5, None);
        check(&[7.0], 0.95, Some(7.0));
        check(&[3.0, 1.0, 2.0, 4.0], 0.5, Some(2.5));
        check(&[3.0, 1.0, 2.0, 4.0], 0.0, Some(1.0));
        check(&[3.0, 1.0, 2.0, 4.0], 1.0, Some(4.0));
        check(&[1.0, 2.0, 3.0], 0.25, Some(1.5));
    }
}
