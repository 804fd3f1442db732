//! `sum` of integers that fails on overflow. PostgreSQL and DuckDB continue in a wider type, DataFusion wraps around.
//! The rule [`crate::relational::overflow`] replaces DataFusion's `sum` by this one.

use std::collections::HashSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

/// Whether a sum of values of a type is this one.
pub(crate) fn is_summed(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::UInt64)
}

/// Gives the function, of one argument of a type that [`is_summed`].
pub(crate) fn function() -> Arc<AggregateUDF> {
    let signature = Signature::uniform(1, vec![DataType::Int64, DataType::UInt64], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(Sum { signature }))
}

/// The function. It has the name of DataFusion's, by which rules of the optimizer know what may be done with it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    signature: Signature,
}

/// A type of whole numbers.
trait Whole: ArrowPrimitiveType + Debug + Send + Sync {
    fn wide(value: Self::Native) -> i128;
    fn narrow(value: i128) -> Option<Self::Native>;
    fn plus(a: Self::Native, b: Self::Native) -> Option<Self::Native>;
}

impl Whole for Int64Type {
    fn wide(value: i64) -> i128 {
        i128::from(value)
    }

    fn narrow(value: i128) -> Option<i64> {
        i64::try_from(value).ok()
    }

    fn plus(a: i64, b: i64) -> Option<i64> {
        a.checked_add(b)
    }
}

impl Whole for UInt64Type {
    fn wide(value: u64) -> i128 {
        i128::from(value)
    }

    fn narrow(value: i128) -> Option<u64> {
        u64::try_from(value).ok()
    }

    fn plus(a: u64, b: u64) -> Option<u64> {
        a.checked_add(b)
    }
}

fn beyond<T>() -> Result<T> {
    exec_err!("a sum of whole numbers is beyond what a `bigint` holds: sum them as `numeric` or `double precision`")
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [kind] if is_summed(kind) => Ok(kind.clone()),
            _ => plan_err!("`sum` of whole numbers takes one of them"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format_state_name(args.name, "sum");
        let kind = args.return_type().clone();
        let kind = if args.is_distinct { DataType::List(Arc::new(Field::new_list_field(kind, true))) } else { kind };
        Ok(vec![Arc::new(Field::new(name, kind, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(match (args.return_field.data_type(), args.is_distinct) {
            (DataType::UInt64, false) => Box::new(SumAccumulator::<UInt64Type>::default()),
            (_, false) => Box::new(SumAccumulator::<Int64Type>::default()),
            (DataType::UInt64, true) => Box::new(DistinctSum::<UInt64Type>::default()),
            (_, true) => Box::new(DistinctSum::<Int64Type>::default()),
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(match args.return_field.data_type() {
            DataType::UInt64 => Box::new(GroupedSums::<UInt64Type>::default()),
            _ => Box::new(GroupedSums::<Int64Type>::default()),
        })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// All rows, or those of a frame, as one group. What it holds in between may be beyond what it gives.
#[derive(Debug)]
struct SumAccumulator<T> {
    sum: i128,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Default for SumAccumulator<T> {
    fn default() -> Self {
        Self { sum: 0, count: 0, kind: PhantomData }
    }
}

impl<T: Whole> SumAccumulator<T> {
    fn of(values: &ArrayRef) -> (i128, usize) {
        let values = values.as_primitive::<T>();
        let count = values.len() - values.null_count();
        let sum: i128 = match values.null_count() {
            0 => values.values().iter().map(|value| T::wide(*value)).sum(),
            _ => values.iter().flatten().map(T::wide).sum(),
        };
        (sum, count)
    }
}

impl<T: Whole> Accumulator for SumAccumulator<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = Self::of(&values[0]);
        self.sum += sum;
        self.count += count;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(sum) = T::narrow(self.sum) else { return beyond() };
        ScalarValue::new_primitive::<T>((self.count > 0).then_some(sum), &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = Self::of(&values[0]);
        self.sum -= sum;
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The different values of a group, for `sum(DISTINCT x)`.
#[derive(Debug)]
struct DistinctSum<T> {
    values: HashSet<i128>,
    kind: PhantomData<T>,
}

impl<T> Default for DistinctSum<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), kind: PhantomData }
    }
}

impl<T: Whole> Accumulator for DistinctSum<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<T>().iter().flatten().map(T::wide));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("a state of `sum` is of another type");
        };
        lists.iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(sum) = T::narrow(self.values.iter().sum()) else { return beyond() };
        ScalarValue::new_primitive::<T>((!self.values.is_empty()).then_some(sum), &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let value = |value: &i128| ScalarValue::new_primitive::<T>(T::narrow(*value), &T::DATA_TYPE);
        let values = self.values.iter().map(value).collect::<Result<Vec<_>>>()?;
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&values, &T::DATA_TYPE))])
    }

    fn size(&self) -> usize {
        // A table has a byte beside each place.
        size_of_val(self) + self.values.capacity() * (size_of::<i128>() + 1)
    }
}

#[derive(Debug)]
struct GroupedSums<T: Whole> {
    sums: Vec<T::Native>,
    /// Whether a group has a value.
    seen: Vec<bool>,
}

impl<T: Whole> Default for GroupedSums<T> {
    fn default() -> Self {
        Self { sums: Vec::new(), seen: Vec::new() }
    }
}

impl<T: Whole> GroupedSums<T> {
    fn add(&mut self, group: usize, value: T::Native) -> Result<()> {
        match T::plus(self.sums[group], value) {
            Some(sum) => self.sums[group] = sum,
            None => return beyond(),
        }
        self.seen[group] = true;
        Ok(())
    }
}

impl<T: Whole> GroupsAccumulator for GroupedSums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total.max(self.sums.len()), T::default_value());
        self.seen.resize(total.max(self.seen.len()), false);
        let values = values[0].as_primitive::<T>();
        if filter.is_none() && values.null_count() == 0 {
            return groups.iter().zip(values.values()).try_for_each(|(group, value)| self.add(*group, *value));
        }
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| values.is_valid(*row) && counts(*row)) {
            self.add(*group, values.value(row))?;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = emit.take_needed(&mut self.sums);
        let seen = NullBuffer::from(emit.take_needed(&mut self.seen));
        Ok(Arc::new(PrimitiveArray::<T>::new(sums.into(), Some(seen))))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(filter) = filter else { return Ok(vec![Arc::clone(&values[0])]) };
        let values = values[0].as_primitive::<T>();
        let counts = |row: usize| values.is_valid(row) && filter.is_valid(row) && filter.value(row);
        let kept = (0..values.len()).map(|row| counts(row).then(|| values.value(row)));
        Ok(vec![Arc::new(kept.collect::<PrimitiveArray<T>>())])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<T::Native>() + self.seen.capacity()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn array(values: Vec<Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from(values))
    }

    #[test]
    fn a_frame_may_be_beyond_in_between() {
        let mut one = SumAccumulator::<Int64Type>::default();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(None));
        one.update_batch(&[array(vec![Some(i64::MAX), Some(1), None])]).unwrap();
        assert!(one.evaluate().unwrap_err().to_string().contains("beyond"));
        one.retract_batch(&[array(vec![Some(i64::MAX)])]).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(1)));
    }

    #[test]
    fn each_value_counts_once() {
        let mut once = DistinctSum::<Int64Type>::default();
        assert_eq!(once.evaluate().unwrap(), ScalarValue::Int64(None));
        once.update_batch(&[array(vec![Some(5), None, Some(5), Some(-2)])]).unwrap();
        assert_eq!(once.evaluate().unwrap(), ScalarValue::Int64(Some(3)));
        let states: Vec<ArrayRef> = once.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        let mut merged = DistinctSum::<Int64Type>::default();
        merged.update_batch(&[array(vec![Some(5), Some(1)])]).unwrap();
        merged.merge_batch(&states).unwrap();
        assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(Some(4)));
        merged.update_batch(&[array(vec![Some(i64::MAX)])]).unwrap();
        assert!(merged.evaluate().unwrap_err().to_string().contains("beyond"));
    }

    #[test]
    fn groups_are_summed_each_for_itself() {
        let mut groups = GroupedSums::<Int64Type>::default();
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(false), None]);
        let values = array(vec![Some(5), None, Some(7), Some(9)]);
        groups.update_batch(std::slice::from_ref(&values), &[0, 1, 0, 2], Some(&filter), 3).unwrap();
        groups.merge_batch(&[array(vec![Some(-1), Some(2)])], &[0, 2], 3).unwrap();
        let first = groups.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(first.as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(4)]));
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(rest.as_primitive::<Int64Type>(), &Int64Array::from(vec![None, Some(2)]));
        let each = groups.convert_to_state(&[values], Some(&filter)).unwrap();
        assert_eq!(each[0].as_primitive::<Int64Type>(), &Int64Array::from(vec![Some(5), None, None, None]));
        let most = array(vec![Some(i64::MAX), Some(1)]);
        assert!(groups.update_batch(&[most], &[0, 0], None, 1).unwrap_err().to_string().contains("beyond"));
    }
}
