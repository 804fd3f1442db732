//! `bit_and` and `bit_or` over moving frames: DataFusion's cannot remove values, so this counts for each bit how many
//! values have it. Elsewhere both are DataFusion's.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, UInt64Type};
use datafusion::common::{ScalarValue, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bits {
    inner: Arc<AggregateUDF>,
    /// Whether it is `bit_and`.
    is_and: bool,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<AggregateUDF>> {
    let functions = [(bit_and_udaf(), true), (bit_or_udaf(), false)];
    functions.into_iter().map(|(inner, is_and)| Arc::new(AggregateUDF::new_from_impl(Bits { inner, is_and })))
}

impl AggregateUDFImpl for Bits {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let kind = args.return_field.data_type();
        if !kind.is_integer() {
            return self.inner.create_sliding_accumulator(args);
        }
        Ok(Box::new(Counts { is_and: self.is_and, kind: kind.clone(), values: 0, bits: [0; 64] }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// How many values a frame has, and how many of them have each bit.
#[derive(Debug)]
struct Counts {
    is_and: bool,
    kind: DataType,
    values: usize,
    bits: [usize; 64],
}

impl Counts {
    fn each(&mut self, values: &[ArrayRef], by: fn(usize) -> usize) -> Result<()> {
        let [values] = values else { return internal_err!("bits are those of one value") };
        for word in words(values)? {
            self.values = by(self.values);
            for (at, count) in self.bits.iter_mut().enumerate() {
                if (word >> at) & 1 == 1 {
                    *count = by(*count);
                }
            }
        }
        Ok(())
    }
}

/// The bits of the values that are not NULL; signed ones are sign-extended.
fn words(values: &ArrayRef) -> Result<Vec<u64>> {
    if let Some(values) = values.as_primitive_opt::<UInt64Type>() {
        return Ok(values.iter().flatten().collect());
    }
    let values = cast(values, &DataType::Int64)?;
    let Some(values) = values.as_primitive_opt::<Int64Type>() else {
        return exec_err!("bits are those of whole numbers");
    };
    Ok(values.iter().flatten().map(|value| value as u64).collect())
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |count| count + 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(values, |count| count.saturating_sub(1))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let needed = if self.is_and { self.values } else { 1 };
        let bit = |(at, count): (usize, &usize)| if *count >= needed { 1_u64 << at } else { 0 };
        let word = self.bits.iter().enumerate().map(bit).sum::<u64>();
        let word = (self.values > 0).then_some(word);
        if self.kind == DataType::UInt64 {
            return Ok(ScalarValue::UInt64(word));
        }
        ScalarValue::Int64(word.map(|word| word as i64)).cast_to(&self.kind)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int16Array, UInt32Array, UInt64Array};

    use super::*;
    use crate::testing::answered;

    fn counts(is_and: bool, kind: DataType) -> Counts {
        Counts { is_and, kind, values: 0, bits: [0; 64] }
    }

    #[test]
    fn values_are_left_out_again() {
        let of = |values: Vec<Option<i16>>| -> [ArrayRef; 1] { [Arc::new(Int16Array::from(values))] };
        for (is_and, all, rest) in [(true, 2, -6), (false, -1, -1)] {
            let mut counts = counts(is_and, DataType::Int16);
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(None));
            counts.update_batch(&of(vec![Some(7), None, Some(-6), Some(-1)])).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(Some(all)));
            counts.retract_batch(&of(vec![Some(7), None])).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(Some(rest)));
            counts.retract_batch(&of(vec![Some(-6), Some(-1)])).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(None));
        }
    }

    #[test]
    fn numbers_without_a_sign_have_all_their_bits() {
        let mut long = counts(true, DataType::UInt64);
        long.update_batch(&[Arc::new(UInt64Array::from(vec![u64::MAX, u64::MAX - 1]))]).unwrap();
        assert_eq!(long.evaluate().unwrap(), ScalarValue::UInt64(Some(u64::MAX - 1)));
        let mut short = counts(false, DataType::UInt32);
        short.update_batch(&[Arc::new(UInt32Array::from(vec![u32::MAX, 0]))]).unwrap();
        assert_eq!(short.evaluate().unwrap(), ScalarValue::UInt32(Some(u32::MAX)));
    }

    #[tokio::test]
    async fn frames_move() {
        let of = |aggregate: &str| {
            format!(
                "select x, {aggregate} over (order by x rows between 1 preceding and current row) \
                 from (values (7), (3), (12), (null)) as t(x) order by x"
            )
        };
        assert_eq!(answered(&of("bit_and(x)")).await.unwrap(), ["3|3", "7|3", "12|4", "NULL|12"]);
        assert_eq!(answered(&of("bit_or(x)")).await.unwrap(), ["3|3", "7|7", "12|15", "NULL|12"]);
        let filtered = "bit_or(x) filter (where x > 3)";
        assert_eq!(answered(&of(filtered)).await.unwrap(), ["3|NULL", "7|7", "12|15", "NULL|12"]);
        let whole = "select bit_and(x), bit_or(x), bit_or(distinct x) from (values (7), (3), (12)) as t(x)";
        assert_eq!(answered(whole).await.unwrap(), ["0|15|15"]);
    }
}
