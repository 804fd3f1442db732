//! `quantiles(x, q, …)`: several quantiles of the same numbers as a list, from one copy of the values. Plans use it in
//! place of several calls of `quantile`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::{QuantileGroups, Values, constant};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantiles {
    signature: Signature,
}

/// Gives the function: numbers `x`, constants from 0 to 1; a list of doubles, each NULL of no values. NULL is left out.
pub(crate) fn quantiles() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Quantiles { signature: Signature::user_defined(Volatility::Immutable) }))
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float64, true))
}

/// The parts that are asked for.
fn parts(args: &AccumulatorArgs<'_>) -> Result<Vec<f64>> {
    if args.is_distinct {
        return plan_err!("`quantiles` takes no DISTINCT");
    }
    args.exprs.iter().skip(1).map(constant).collect()
}

impl AggregateUDFImpl for Quantiles {
    fn name(&self) -> &'static str {
        "quantiles"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [x, _, ..] if x.is_numeric() || x.is_null() => Ok(vec![DataType::Float64; types.len()]),
            _ => plan_err!("`quantiles` is called as `quantiles(x, q, …)`, of numbers"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OfAll { parts: parts(&args)?, values: Values { q: 0.0, chunks: Vec::new() } }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(OfGroups { parts: parts(&args)?, grouped: QuantileGroups { q: 0.0, groups: Vec::new(), held: 0 } }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), DataType::List(item()), true))])
    }
}

/// A list of so many quantiles for each group.
fn lists(found: Float64Array, parts: usize, groups: usize) -> Result<ListArray> {
    if parts.checked_mul(groups).and_then(|all| i32::try_from(all).ok()).is_none() {
        return exec_err!("`quantiles`: {groups} groups have more than {} quantiles", i32::MAX);
    }
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(parts, groups));
    Ok(ListArray::try_new(item(), offsets, Arc::new(found), None)?)
}

/// All rows as one group.
#[derive(Debug)]
struct OfAll {
    parts: Vec<f64>,
    values: Values,
}

impl Accumulator for OfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found: Float64Array = self.parts.iter().map(|q| self.values.part(*q)).collect();
        Ok(ScalarValue::List(Arc::new(lists(found, self.parts.len(), 1)?)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        self.values.size() + self.parts.capacity() * size_of::<f64>()
    }
}

#[derive(Debug)]
struct OfGroups {
    parts: Vec<f64>,
    grouped: QuantileGroups,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grouped.update_batch(values, groups, filter, total)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grouped.merge_batch(states, groups, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let mut taken = self.grouped.take(emit);
        let mut found = Vec::with_capacity(taken.len().saturating_mul(self.parts.len()));
        for values in &mut taken {
            found.extend(self.parts.iter().map(|q| values.part(*q)));
        }
        Ok(Arc::new(lists(Float64Array::from(found), self.parts.len(), taken.len())?))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.grouped.state(emit)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.grouped.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.grouped.size() + self.parts.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{Float64Type, Schema};
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
    use datafusion::physical_expr::expressions::{Column, lit};

    use super::*;

    fn call(parts: Vec<Arc<dyn PhysicalExpr>>, is_distinct: bool) -> AggregateFunctionExpr {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Float64, true)]));
        let mut args: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("a", 0))];
        args.extend(parts);
        let call = AggregateExprBuilder::new(quantiles(), args).schema(schema).alias("q");
        call.with_distinct(is_distinct).build().unwrap()
    }

    fn thirds() -> AggregateFunctionExpr {
        call(vec![lit(0.0), lit(0.5), lit(1.0)], false)
    }

    fn values(values: &[Option<f64>]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    fn found(lists: &ArrayRef, row: usize) -> Vec<Option<f64>> {
        lists.as_list::<i32>().value(row).as_primitive::<Float64Type>().iter().collect()
    }

    #[test]
    fn all_parts_are_of_the_same_values() {
        let mut one = thirds().create_accumulator().unwrap();
        let none = one.evaluate().unwrap().to_array().unwrap();
        assert_eq!(found(&none, 0), [None; 3], "of no values there is none");
        one.update_batch(&[values(&[Some(3.0), None, Some(1.0)])]).unwrap();
        let state: Vec<ArrayRef> = one.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        let mut whole = thirds().create_accumulator().unwrap();
        whole.update_batch(&[values(&[Some(2.0), Some(10.0)])]).unwrap();
        whole.merge_batch(&state).unwrap();
        let all = whole.evaluate().unwrap().to_array().unwrap();
        assert_eq!(found(&all, 0), [Some(1.0), Some(2.5), Some(10.0)]);
        assert_eq!(whole.evaluate().unwrap().to_array().unwrap().as_ref(), all.as_ref(), "it stays");
        assert!(whole.size() >= 4 * size_of::<f64>());
    }

    #[test]
    fn groups_have_lists_of_their_own() {
        let mut groups = thirds().create_groups_accumulator().unwrap();
        let rows = values(&[Some(1.0), Some(5.0), None, Some(3.0), Some(9.0)]);
        let kept = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(true), None]);
        groups.update_batch(std::slice::from_ref(&rows), &[0, 1, 2, 0, 1], Some(&kept), 3).unwrap();
        let first = groups.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!((first.len(), found(&first, 0)), (1, vec![Some(1.0), Some(2.0), Some(3.0)]));
        // What was the second group is the first one now.
        let each = groups.convert_to_state(&[rows], Some(&kept)).unwrap();
        groups.merge_batch(&each, &[1, 0, 1, 1, 0], 2).unwrap();
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(found(&rest, 0), [Some(5.0), Some(5.0), Some(5.0)]);
        assert_eq!(found(&rest, 1), [Some(1.0), Some(2.0), Some(3.0)]);
        assert!(groups.size() < 200, "all is given back: {}", groups.size());
    }

    #[test]
    fn parts_are_constants_from_0_to_1() {
        for (part, said) in [
            (lit(1.5), "q is a number from 0 to 1, not 1.5"),
            (lit(-0.1), "q is a number from 0 to 1, not -0.1"),
            (lit(f64::NAN), "q is a number from 0 to 1"),
            (Arc::new(Column::new("a", 0)) as Arc<dyn PhysicalExpr>, "q is a constant, not `a@0`"),
        ] {
            let refused = call(vec![lit(0.5), part], false).create_accumulator().unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        let refused = call(vec![lit(0.5)], true).create_accumulator().unwrap_err().to_string();
        assert!(refused.contains("`quantiles` takes no DISTINCT"), "{refused}");
        let types = |types: &[DataType]| quantiles().coerce_types(types);
        assert_eq!(types(&[DataType::Int64, DataType::Int64, DataType::Null]).unwrap(), vec![DataType::Float64; 3]);
        assert!(types(&[DataType::Int64]).is_err() && types(&[DataType::Utf8, DataType::Float64]).is_err());
    }
}
