//! Quantiles of intervals. Intervals are ordered by their length; between two of them, months, days and time are
//! interpolated separately.

use std::mem::{size_of_val, take};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, IntervalMonthDayNanoArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use crate::functions::intervals::{between, length_of, spread_out};

/// The intervals of a group.
#[derive(Debug)]
pub(super) struct Intervals {
    q: f64,
    /// Whether those of one length count once.
    is_distinct: bool,
    values: Vec<IntervalMonthDayNano>,
}

impl Intervals {
    pub(super) fn new(q: f64, is_distinct: bool) -> Self {
        Self { q, is_distinct, values: Vec::new() }
    }

    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        if matches!(values.data_type(), DataType::Duration(_)) {
            return self.add(&spread_out(values)?);
        }
        let Some(values) = values.as_primitive_opt::<IntervalMonthDayNanoType>() else {
            return exec_err!("`quantile` reads intervals here");
        };
        self.values.extend(values.iter().flatten());
        Ok(())
    }
}

impl Accumulator for Intervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states[0].as_list_opt::<i32>() else {
            return exec_err!("a state of `quantile` is of another type");
        };
        lists.iter().flatten().try_for_each(|list| self.add(&list))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.values.sort_by_key(|interval| length_of(*interval));
        if self.is_distinct {
            self.values.dedup_by_key(|interval| length_of(*interval));
        }
        let Some(last) = self.values.len().checked_sub(1) else {
            return Ok(ScalarValue::IntervalMonthDayNano(None));
        };
        let place = self.q * last as f64;
        let low = self.values[(place.floor() as usize).min(last)];
        let high = self.values[(place.ceil() as usize).min(last)];
        if let Some(value) = between(low, high, place.fract()) {
            Ok(ScalarValue::IntervalMonthDayNano(Some(value)))
        } else {
            exec_err!("an interval is too long")
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<IntervalMonthDayNano>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(take(&mut self.values)));
        if i32::try_from(values.len()).is_err() {
            return exec_err!("`quantile`: a group has more than {} values", i32::MAX);
        }
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([values.len()]);
        Ok(vec![ScalarValue::List(Arc::new(ListArray::try_new(field, offsets, values, None)?))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_the_order_of_their_lengths() {
        const HOUR: i64 = 3_600_000_000_000;
        let hours = |days: i32, hours: i64| IntervalMonthDayNano::new(0, days, hours * HOUR);
        let of = |values: &[IntervalMonthDayNano]| -> ArrayRef {
            Arc::new(values.iter().copied().map(Some).chain([None]).collect::<IntervalMonthDayNanoArray>())
        };
        let check = |intervals: &mut Intervals, expected: Option<IntervalMonthDayNano>| {
            assert_eq!(intervals.evaluate().unwrap(), ScalarValue::IntervalMonthDayNano(expected));
        };
        let mut half = Intervals::new(0.5, false);
        check(&mut half, None);
        half.update_batch(&[of(&[hours(0, 30), hours(0, 2)])]).unwrap();
        let states: Vec<ArrayRef> = half.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        let mut merged = Intervals::new(0.5, false);
        merged.update_batch(&[of(&[hours(1, 0)])]).unwrap();
        merged.merge_batch(&states).unwrap();
        check(&mut merged, Some(hours(1, 0)));
        let mut two = Intervals::new(0.5, true);
        two.update_batch(&[of(&[hours(1, 0), hours(0, 2), hours(0, 24)])]).unwrap();
        check(&mut two, Some(hours(0, 13)));
    }
}
