//! `sum` and `avg` of doubles whose last digit does not depend on the order of the rows, for analytics. Partial sums are
//! merged in the order in which partitions finish, and a plain sum rounds at each step, so two runs of one query differ.
//! These hold the part of the sum that a double has no room for in a second one, and round once, at the end.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, BooleanArray, Float64Array, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, UInt64Type};
use datafusion::common::{ScalarValue, not_impl_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

/// Gives the function of that name over doubles, `sum` or `avg`; none: there is no other of that name. It has the name
/// of the function that it replaces, so printed SQL calls the usual one.
pub fn exact_doubles(name: &str) -> Option<Arc<AggregateUDF>> {
    let is_mean = match name {
        "sum" => false,
        "avg" => true,
        _ => return None,
    };
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    Some(Arc::new(AggregateUDF::new_from_impl(ExactDoubles { is_mean, signature })))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactDoubles {
    is_mean: bool,
    signature: Signature,
}

impl AggregateUDFImpl for ExactDoubles {
    fn name(&self) -> &'static str {
        if self.is_mean { "avg" } else { "sum" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if let [DataType::Float64] = types {
            Ok(DataType::Float64)
        } else {
            plan_err!("`{}` of doubles takes one of them", self.name())
        }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = args.name;
        let field = |part, kind| Arc::new(Field::new(format!("{name}[{part}]"), kind, true));
        Ok(vec![field("high", DataType::Float64), field("low", DataType::Float64), field("count", DataType::UInt64)])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return not_impl_err!("`{}(DISTINCT …)` in a fixed order", self.name());
        }
        Ok(Box::new(OneGroup { is_mean: self.is_mean, sum: DoubleSum::default() }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManyGroups { is_mean: self.is_mean, sums: Vec::new() }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The sum of two doubles and what rounding took from it.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// A sum as two doubles that do not overlap: together they hold some 106 bits of it.
#[derive(Debug, Clone, Copy, Default)]
struct DoubleSum {
    high: f64,
    low: f64,
    count: u64,
}

impl DoubleSum {
    fn plus(&mut self, value: f64) {
        let (sum, lost) = two_sum(self.high, value);
        // The rounding error of an infinite sum is NaN, and would make the sum NaN.
        (self.high, self.low) = if sum.is_finite() { two_sum(sum, self.low + lost) } else { (sum, 0.0) };
    }

    fn add(&mut self, value: f64) {
        self.plus(value);
        self.count += 1;
    }

    fn merge(&mut self, high: f64, low: f64, count: u64) {
        self.plus(high);
        self.plus(low);
        self.count += count;
    }

    fn value(&self, is_mean: bool) -> Option<f64> {
        let value = if is_mean { self.high / self.count as f64 } else { self.high };
        (self.count > 0).then_some(value)
    }
}

/// The columns of states: the two parts of sums, and how many values they have.
fn parts(states: &[ArrayRef]) -> Result<(&Float64Array, &Float64Array, &UInt64Array)> {
    let doubles = |at: usize| states.get(at).and_then(|part| part.as_primitive_opt::<Float64Type>());
    let counts = states.get(2).and_then(|part| part.as_primitive_opt::<UInt64Type>());
    let (Some(high), Some(low), Some(counts)) = (doubles(0), doubles(1), counts) else {
        return plan_err!("a state of sums of doubles is of another type");
    };
    Ok((high, low, counts))
}

/// All rows as one group.
#[derive(Debug)]
struct OneGroup {
    is_mean: bool,
    sum: DoubleSum,
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        values[0].as_primitive::<Float64Type>().iter().flatten().for_each(|value| self.sum.add(value));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (high, low, counts) = parts(states)?;
        for row in 0..counts.len() {
            self.sum.merge(high.value(row), low.value(row), counts.value(row));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.sum.value(self.is_mean)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let DoubleSum { high, low, count } = self.sum;
        let double = |value| ScalarValue::Float64(Some(value));
        Ok(vec![double(high), double(low), ScalarValue::UInt64(Some(count))])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// One sum for each group.
#[derive(Debug)]
struct ManyGroups {
    is_mean: bool,
    sums: Vec<DoubleSum>,
}

/// The columns of the states of sums.
fn states_of(sums: &[DoubleSum]) -> Vec<ArrayRef> {
    vec![
        Arc::new(sums.iter().map(|sum| Some(sum.high)).collect::<Float64Array>()),
        Arc::new(sums.iter().map(|sum| Some(sum.low)).collect::<Float64Array>()),
        Arc::new(sums.iter().map(|sum| Some(sum.count)).collect::<UInt64Array>()),
    ]
}

impl GroupsAccumulator for ManyGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sums.resize(total.max(self.sums.len()), DoubleSum::default());
        let values = values[0].as_primitive::<Float64Type>();
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| values.is_valid(*row) && counts(*row)) {
            self.sums[*group].add(values.value(row));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.sums.resize(total.max(self.sums.len()), DoubleSum::default());
        let (high, low, counts) = parts(states)?;
        for (row, group) in groups.iter().enumerate() {
            self.sums[*group].merge(high.value(row), low.value(row), counts.value(row));
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sums = emit.take_needed(&mut self.sums);
        Ok(Arc::new(sums.iter().map(|sum| sum.value(self.is_mean)).collect::<Float64Array>()))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(states_of(&emit.take_needed(&mut self.sums)))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>();
        let counts =
            |row: usize| values.is_valid(row) && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let each = |row: usize| {
            if counts(row) { DoubleSum { high: values.value(row), low: 0.0, count: 1 } } else { DoubleSum::default() }
        };
        Ok(states_of(&(0..values.len()).map(each).collect::<Vec<_>>()))
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<DoubleSum>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: &[Option<f64>]) -> ArrayRef {
        Arc::new(values.iter().copied().collect::<Float64Array>())
    }

    /// Sums values in parts of a size, and merges the parts.
    fn summed(values: &[Option<f64>], size: usize, is_mean: bool) -> Option<f64> {
        let mut merged = OneGroup { is_mean, sum: DoubleSum::default() };
        for part in values.chunks(size) {
            let mut one = OneGroup { is_mean, sum: DoubleSum::default() };
            one.update_batch(&[array(part)]).unwrap();
            let state: Vec<ArrayRef> = one.state().unwrap().iter().map(|part| part.to_array().unwrap()).collect();
            merged.merge_batch(&state).unwrap();
        }
        match merged.evaluate().unwrap() {
            ScalarValue::Float64(value) => value,
            other => panic!("{other}"),
        }
    }

    /// Breaks if the last digit of a sum depends on how rows are spread.
    #[test]
    fn order_and_parts_do_not_matter() {
        let values: Vec<Option<f64>> = (0..10_000_u32).map(|n| Some(f64::from(n * 7919 % 10_007) / 1e6)).collect();
        let backwards: Vec<Option<f64>> = values.iter().rev().copied().collect();
        let exact = summed(&values, 10_000, false);
        assert!(exact.is_some());
        for size in [1, 3, 1000] {
            for of in [&values, &backwards] {
                assert_eq!(summed(of, size, false).map(f64::to_bits), exact.map(f64::to_bits), "{size}");
            }
        }
        assert_eq!(summed(&[Some(0.1); 10], 4, false), Some(1.0), "ten times 0.1 is nearer to 1 than to any other");
        assert_eq!(summed(&[Some(1e300), Some(1.0), Some(-1e300)], 2, false), Some(1.0));
    }

    #[test]
    fn what_is_no_number_stays_so() {
        for (values, sum, mean) in [
            (vec![], None, None),
            (vec![None, None], None, None),
            (vec![Some(1.0), None, Some(4.0)], Some(5.0), Some(2.5)),
            (vec![Some(f64::INFINITY), Some(1.0)], Some(f64::INFINITY), Some(f64::INFINITY)),
            (vec![Some(1.0), Some(f64::NEG_INFINITY)], Some(f64::NEG_INFINITY), Some(f64::NEG_INFINITY)),
        ] {
            assert_eq!(summed(&values, 1, false), sum, "{values:?}");
            assert_eq!(summed(&values, 2, true), mean, "{values:?}");
        }
        assert!(summed(&[Some(f64::INFINITY), Some(f64::NEG_INFINITY)], 1, false).unwrap().is_nan());
        assert!(summed(&[Some(f64::NAN), Some(1.0)], 2, false).unwrap().is_nan());
    }

    #[test]
    fn groups_are_summed_each_for_itself() {
        let mut groups = ManyGroups { is_mean: true, sums: Vec::new() };
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(false), None]);
        let values = array(&[Some(5.0), None, Some(7.0), Some(9.0)]);
        groups.update_batch(std::slice::from_ref(&values), &[0, 1, 0, 2], Some(&filter), 3).unwrap();
        let each = groups.convert_to_state(&[values], Some(&filter)).unwrap();
        groups.merge_batch(&each, &[0, 1, 2, 2], 3).unwrap();
        groups.merge_batch(&states_of(&[DoubleSum { high: 2.0, low: 0.0, count: 3 }]), &[0], 3).unwrap();
        let first = groups.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(first.as_primitive::<Float64Type>(), &Float64Array::from(vec![Some(12.0 / 5.0)]));
        let rest = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(rest.as_primitive::<Float64Type>(), &Float64Array::from(vec![None, None]));
    }

    #[test]
    fn others_are_none_of_these() {
        let names: Vec<bool> = ["sum", "avg", "min"].map(|name| exact_doubles(name).is_some()).to_vec();
        assert_eq!(names, [true, true, false]);
        let sum = exact_doubles("sum").unwrap();
        assert!(sum.inner().return_type(&[DataType::Int64]).is_err());
        assert_ne!(sum, exact_doubles("avg").unwrap());
    }
}
