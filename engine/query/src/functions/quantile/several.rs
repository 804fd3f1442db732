//! `quantiles(x, q, …)`: several quantiles of the same numbers as a list, of values that are kept once. Plans have it in the
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

use super::{Grouped, Values, constant};

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
        Ok(Box::new(OfGroups { parts: parts(&args)?, grouped: Grouped { q: 0.0, groups: Vec::new(), held: 0 } }))
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
    grouped: Grouped,
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
