//! `avg` also of intervals, which DataFusion can sum but not average. For other types it is DataFusion's.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Int64Type, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::{ScalarValue, exec_err, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Coercion, Documentation, GroupsAccumulator, ReversedUDAF, Signature,
    TypeSignature, TypeSignatureClass,
};

use super::intervals::mean;

/// The digits of a sum of times.
const DIGITS: u8 = 38;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

pub(super) fn function() -> Arc<AggregateUDF> {
    let inner = avg_udaf();
    let intervals = TypeSignature::Coercible(vec![Coercion::new_exact(TypeSignatureClass::Interval)]);
    let forms = vec![inner.signature().type_signature.clone(), intervals];
    let signature = Signature::one_of(forms, inner.signature().volatility);
    Arc::new(AggregateUDF::new_from_impl(Average { inner, signature }))
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(IntervalUnit::MonthDayNano))
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [kind] if is_interval(kind) => Ok(kind.clone()),
            types => self.inner.return_type(types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if !is_interval(args.return_field.data_type()) {
            return self.inner.accumulator(args);
        }
        if args.is_distinct {
            return not_impl_err!("`avg(DISTINCT …)` of intervals");
        }
        Ok(Box::new(Mean::default()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if !is_interval(args.return_type()) {
            return self.inner.state_fields(args);
        }
        let name = args.name;
        let field = |part, kind| Arc::new(Field::new(format!("{name}[{part}]"), kind, true));
        Ok(vec![
            field("count", DataType::Int64),
            field("months", DataType::Int64),
            field("days", DataType::Int64),
            field("time", DataType::Decimal128(DIGITS, 0)),
        ])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !is_interval(args.return_field.data_type()) && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_interval(args.return_field.data_type()) {
            return self.accumulator(args);
        }
        self.inner.create_sliding_accumulator(args)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The sums of the parts of intervals.
#[derive(Debug, Default)]
struct Mean {
    count: i64,
    months: i64,
    days: i64,
    nanoseconds: i128,
}

impl Mean {
    fn add(&mut self, values: &[ArrayRef], sign: i64) -> Result<()> {
        let intervals = values.first().and_then(|values| values.as_primitive_opt::<IntervalMonthDayNanoType>());
        let Some(intervals) = intervals else { return exec_err!("`avg` reads intervals here") };
        for interval in intervals.iter().flatten() {
            self.count += sign;
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
        }
        Ok(())
    }
}

impl Accumulator for Mean {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        }
        if let Some(mean) = mean(self.months, self.days, self.nanoseconds, self.count) {
            Ok(ScalarValue::IntervalMonthDayNano(Some(mean)))
        } else {
            exec_err!("an interval is too long")
        }
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let whole = |number| ScalarValue::Int64(Some(number));
        let time = ScalarValue::Decimal128(Some(self.nanoseconds), DIGITS, 0);
        Ok(vec![whole(self.count), whole(self.months), whole(self.days), time])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, months, days, times] = states else { return exec_err!("a state of `avg` has other parts") };
        let sum = |numbers: &ArrayRef| -> i64 {
            let numbers: Option<&Int64Array> = numbers.as_primitive_opt::<Int64Type>();
            numbers.map_or(0, |numbers| numbers.iter().flatten().sum())
        };
        self.count += sum(counts);
        self.months += sum(months);
        self.days += sum(days);
        let times: Option<&Decimal128Array> = times.as_primitive_opt::<Decimal128Type>();
        self.nanoseconds += times.map_or(0, |times| times.iter().flatten().sum::<i128>());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::IntervalMonthDayNanoArray;
    use arrow::datatypes::IntervalMonthDayNano;

    use super::*;

    #[test]
    fn intervals_have_a_mean() {
        const HOUR: i64 = 3_600_000_000_000;
        let of = |intervals: Vec<Option<(i32, i64)>>| -> ArrayRef {
            let intervals = intervals.into_iter().map(|i| i.map(|(days, ns)| IntervalMonthDayNano::new(0, days, ns)));
            Arc::new(intervals.collect::<IntervalMonthDayNanoArray>())
        };
        let check = |mean: &mut Mean, expected: Option<(i32, i64)>| {
            let expected = expected.map(|(days, ns)| IntervalMonthDayNano::new(0, days, ns));
            assert_eq!(mean.evaluate().unwrap(), ScalarValue::IntervalMonthDayNano(expected));
        };
        let mut mean = Mean::default();
        check(&mut mean, None);
        mean.update_batch(&[of(vec![Some((1, 0)), None, Some((0, 2 * HOUR))])]).unwrap();
        check(&mut mean, Some((0, 13 * HOUR)));
        let states: Vec<ArrayRef> = mean.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        let mut merged = Mean::default();
        merged.update_batch(&[of(vec![Some((1, 2 * HOUR))])]).unwrap();
        merged.merge_batch(&states).unwrap();
        check(&mut merged, Some((0, 17 * HOUR + HOUR / 3)));
        merged.retract_batch(&[of(vec![Some((1, 2 * HOUR))])]).unwrap();
        check(&mut merged, Some((0, 13 * HOUR)));
    }
}
