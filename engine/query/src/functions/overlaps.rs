//! `max_overlap(from, to)`: the largest number of intervals of a group that are open at the same time. Bounds are
//! numbers (ns). An interval without an end never closes; one that ends where it begins is open for that instant; one
//! that begins where another ends does not overlap it. Rows without a beginning are ignored.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct MaxOverlap {
    signature: Signature,
}

pub(super) fn function() -> Arc<AggregateUDF> {
    let signature = Signature::exact(vec![DataType::Int64; 2], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(MaxOverlap { signature }))
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Int64, true))
}

impl AggregateUDFImpl for MaxOverlap {
    fn name(&self) -> &'static str {
        "max_overlap"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name| Arc::new(Field::new(format!("{}[{name}]", args.name), DataType::List(item()), true));
        Ok(["starts", "ends"].map(field).into())
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Intervals::default()))
    }
}

/// Both ends of the intervals of a group. Which end belongs to which start does not matter.
#[derive(Debug, Default)]
struct Intervals {
    starts: Vec<i64>,
    ends: Vec<i64>,
}

impl Intervals {
    /// Most intervals open at one time, which is one at which an interval begins.
    fn most(&mut self) -> i64 {
        self.starts.sort_unstable();
        self.ends.sort_unstable();
        let (mut ended, mut most) = (0_usize, 0_usize);
        for (begun, start) in self.starts.iter().enumerate() {
            // What is open for ever does not end, also where it begins at the last of all times.
            while self.ends.get(ended).is_some_and(|end| end <= start && *end < i64::MAX) {
                ended += 1;
            }
            most = most.max(begun + 1 - ended);
        }
        most as i64
    }
}

fn list(values: Vec<i64>) -> ScalarValue {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    ScalarValue::List(Arc::new(ListArray::new(item(), offsets, Arc::new(Int64Array::from(values)), None)))
}

impl Accumulator for Intervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (Some(starts), Some(ends)) =
            (values[0].as_primitive_opt::<Int64Type>(), values[1].as_primitive_opt::<Int64Type>())
        else {
            return exec_err!("intervals are made of two numbers");
        };
        for (start, end) in starts.iter().zip(ends) {
            if let Some(start) = start {
                self.starts.push(start);
                self.ends.push(end.unwrap_or(i64::MAX).max(start.saturating_add(1)));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.most())))
    }

    fn size(&self) -> usize {
        size_of_val(self) + (self.starts.capacity() + self.ends.capacity()) * size_of::<i64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![list(std::mem::take(&mut self.starts)), list(std::mem::take(&mut self.ends))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for (state, own) in states.iter().zip([&mut self.starts, &mut self.ends]) {
            let Some(lists) = state.as_list_opt::<i32>() else {
                return exec_err!("a state of intervals is of another type");
            };
            for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
                own.extend_from_slice(lists.value(row).as_primitive::<Int64Type>().values());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::draws;
    use super::*;

    fn group(rows: &[(Option<i64>, Option<i64>)]) -> Intervals {
        let mut group = Intervals::default();
        let starts: Int64Array = rows.iter().map(|r| r.0).collect();
        let ends: Int64Array = rows.iter().map(|r| r.1).collect();
        group.update_batch(&[Arc::new(starts), Arc::new(ends)]).unwrap();
        group
    }

    #[test]
    fn intervals_that_are_open_together() {
        let of = |start, end| (Some(start), Some(end));
        let cases: [(&[_], i64); 5] = [
            (&[], 0),
            (&[of(0, 10), of(10, 20)], 1),
            (&[of(5, 5), of(0, 10), (None, Some(7))], 2),
            (&[(Some(0), None), of(100, 200), of(150, 160), of(155, 300)], 4),
            (&[of(0, 10), of(1, 2), of(3, 4), of(5, 6)], 2),
        ];
        for (rows, expected) in cases {
            assert_eq!(group(rows).evaluate().unwrap(), ScalarValue::Int64(Some(expected)), "{rows:?}");
            let (left, right) = rows.split_at(rows.len() / 2);
            let states: Vec<ArrayRef> = group(right).state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
            let mut merged = group(left);
            merged.merge_batch(&states).unwrap();
            assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(Some(expected)), "{rows:?} in parts");
        }
    }

    /// Breaks if intervals end before they begin, as the last of all times has none behind it.
    #[test]
    fn intervals_at_the_ends_of_time_are_open() {
        let (least, most) = (i64::MIN, i64::MAX);
        let cases: [(&[_], i64); 5] = [
            (&[(Some(most), None), (Some(most), None)], 2),
            (&[(Some(most), Some(most)), (Some(most), Some(most)), (Some(most), Some(least))], 3),
            (&[(Some(0), None), (Some(most), None)], 2),
            (&[(Some(least), Some(least)), (Some(least), Some(most))], 2),
            (&[(Some(least), Some(0)), (Some(0), None)], 1),
        ];
        for (rows, expected) in cases {
            assert_eq!(group(rows).evaluate().unwrap(), ScalarValue::Int64(Some(expected)), "{rows:?}");
        }
    }

    #[test]
    fn intervals_are_counted_as_one_by_one() {
        let mut draw = draws(101);
        for _ in 0..500 {
            let mut bound = |most: usize| (draw(8) > 0).then(|| draw(most) as i64);
            let rows: Vec<(Option<i64>, Option<i64>)> =
                (0..bound(12).unwrap_or(0)).map(|_| (bound(20), bound(25))).collect();
            let begun = || rows.iter().filter_map(|(start, end)| start.map(|start| (start, *end)));
            let is_open = |(start, end): (i64, Option<i64>), at: i64| {
                start <= at && end.is_none_or(|end| at < end.max(start + 1))
            };
            let open = |at: i64| begun().filter(|of| is_open(*of, at)).count() as i64;
            let expected = begun().map(|(start, _)| open(start)).max().unwrap_or(0);
            let mut group = group(&rows);
            assert_eq!(group.evaluate().unwrap(), ScalarValue::Int64(Some(expected)), "{rows:?}");
            assert!(group.size() >= 16 * begun().count());
        }
    }
}
