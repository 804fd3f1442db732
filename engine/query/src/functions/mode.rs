//! `mode(x)`: the most frequent value; if several are equally frequent, the smallest, or by `mode_last(x)` the largest. NULL is
//! ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, StringViewArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    /// Of equally frequent values the last one counts.
    is_last: bool,
    signature: Signature,
}

pub(super) fn functions() -> [Arc<AggregateUDF>; 2] {
    [false, true].map(|is_last| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Mode { is_last, signature }))
    })
}

/// The type as which values of a type are counted.
fn counted(kind: &DataType) -> DataType {
    match kind {
        DataType::Dictionary(_, values) => counted(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => DataType::Utf8View,
        other => other.clone(),
    }
}

fn list_of(kind: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(kind.clone(), true)))
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &'static str {
        if self.is_last { "mode_last" } else { "mode" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [kind] = types else { return plan_err!("`mode` takes one value") };
        Ok(vec![counted(kind)])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return plan_err!("`mode` takes one value") };
        Ok(counted(kind))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name, kind| Arc::new(Field::new(format!("{}[{name}]", args.name), list_of(kind), true));
        Ok(vec![field("values", args.return_type()), field("counts", &DataType::Int64)])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts { is_last: self.is_last, ..Counts::new(args.return_field.data_type())? }))
    }
}

/// How often each value is there.
#[derive(Debug)]
struct Counts {
    kind: DataType,
    is_last: bool,
    /// Puts values as bytes that have their order. Texts are such bytes.
    converter: Option<RowConverter>,
    by_value: BTreeMap<Box<[u8]>, i64>,
    bytes: usize,
}

impl Counts {
    fn new(kind: &DataType) -> Result<Self> {
        let converter = match kind {
            DataType::Utf8View => None,
            other => Some(RowConverter::new(vec![SortField::new(other.clone())])?),
        };
        Ok(Self { kind: kind.clone(), is_last: false, converter, by_value: BTreeMap::new(), bytes: 0 })
    }

    fn add(&mut self, value: &[u8], count: i64) {
        if let Some(known) = self.by_value.get_mut(value) {
            *known += count;
        } else {
            self.bytes += value.len() + 2 * size_of::<(Box<[u8]>, i64)>();
            self.by_value.insert(value.into(), count);
        }
    }

    /// Adds values, each once or so often as it was counted.
    fn add_all(&mut self, values: &ArrayRef, counts: Option<&Int64Array>) -> Result<()> {
        let count = |row: usize| counts.map_or(1, |counts| counts.value(row));
        let Some(converter) = &self.converter else {
            let Some(texts) = values.as_string_view_opt() else { return exec_err!("`mode` reads texts here") };
            for (row, text) in texts.iter().enumerate() {
                if let Some(text) = text {
                    self.add(text.as_bytes(), count(row));
                }
            }
            return Ok(());
        };
        let rows = converter.convert_columns(std::slice::from_ref(values))?;
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            self.add(rows.row(row).as_ref(), count(row));
        }
        Ok(())
    }

    fn most(&self) -> Option<&[u8]> {
        // Of equal counts `max_by_key` takes the last one.
        let counted = self.by_value.iter();
        let most = if self.is_last {
            counted.max_by_key(|(_, count)| **count)
        } else {
            counted.rev().max_by_key(|(_, count)| **count)
        };
        most.map(|(value, _)| &**value)
    }

    fn values<'v>(&self, of: impl Iterator<Item = &'v [u8]>) -> Result<ArrayRef> {
        let Some(converter) = &self.converter else {
            return Ok(Arc::new(StringViewArray::from_iter_values(of.map(String::from_utf8_lossy))));
        };
        let parser = converter.parser();
        let of: Vec<&[u8]> = of.collect();
        let mut columns = converter.convert_rows(of.iter().map(|value| parser.parse(value)))?;
        if let Some(values) = columns.pop() { Ok(values) } else { internal_err!("values of `mode` have no column") }
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add_all(&values[0], None)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.most() {
            Some(most) => ScalarValue::try_from_array(&self.values(std::iter::once(most))?, 0),
            None => ScalarValue::try_from(&self.kind),
        }
    }

    fn size(&self) -> usize {
        // What is given on, or written, is a copy.
        size_of_val(self) + 2 * self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.values(self.by_value.keys().map(|value| &**value))?;
        let counts: Int64Array = self.by_value.values().copied().collect();
        let list = |items: ArrayRef| -> Result<ScalarValue> {
            let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths([items.len()]);
            Ok(ScalarValue::List(Arc::new(ListArray::try_new(field, offsets, items, None)?)))
        };
        Ok(vec![list(values)?, list(Arc::new(counts))?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (Some(values), Some(counts)) = (states[0].as_list_opt::<i32>(), states[1].as_list_opt::<i32>()) else {
            return exec_err!("a state of `mode` is of another type");
        };
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let counts = counts.value(row);
            self.add_all(&values.value(row), Some(counts.as_primitive::<Int64Type>()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Date32Array, Float64Array};

    use super::super::testing::draws;
    use super::*;

    fn mode() -> Arc<AggregateUDF> {
        let [first, _] = functions();
        first
    }

    #[test]
    fn the_commonest() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("b"), Some("a"), None, Some("b"), Some("a")]));
        let mut counts = Counts::new(&DataType::Utf8View).unwrap();
        assert_eq!(counts.evaluate().unwrap(), ScalarValue::Utf8View(None));
        counts.update_batch(std::slice::from_ref(&texts)).unwrap();
        let a = ScalarValue::Utf8View(Some("a".to_owned()));
        assert_eq!(counts.evaluate().unwrap(), a, "of equal counts the first in order");
        let states: Vec<ArrayRef> = counts.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        let mut merged = Counts::new(&DataType::Utf8View).unwrap();
        merged.update_batch(&[Arc::new(StringViewArray::from(vec!["b"])) as ArrayRef]).unwrap();
        merged.merge_batch(&states).unwrap();
        assert_eq!(merged.evaluate().unwrap(), ScalarValue::Utf8View(Some("b".to_owned())));
    }

    #[tokio::test]
    async fn of_equal_counts_the_last() {
        let select = "select mode(x), mode_last(x), mode_last(y) \
                      from (values (1, 'b'), (2, 'a'), (2, 'b'), (1, null), (0, 'a')) as t(x, y)";
        assert_eq!(crate::testing::answered(select).await.unwrap(), ["1|2|b"]);
    }

    #[test]
    fn numbers_are_counted_as_numbers() {
        let numbers: ArrayRef = Arc::new(Float64Array::from(vec![Some(10.0), Some(9.0), None, Some(-1.5)]));
        let mut counts = Counts::new(&DataType::Float64).unwrap();
        assert_eq!(counts.evaluate().unwrap(), ScalarValue::Float64(None));
        counts.update_batch(std::slice::from_ref(&numbers)).unwrap();
        assert_eq!(counts.evaluate().unwrap(), ScalarValue::Float64(Some(-1.5)), "the least of equal counts");
        let states: Vec<ArrayRef> = counts.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        let mut merged = Counts::new(&DataType::Float64).unwrap();
        merged.update_batch(&[Arc::new(Float64Array::from(vec![10.0])) as ArrayRef]).unwrap();
        merged.merge_batch(&states).unwrap();
        assert_eq!(merged.evaluate().unwrap(), ScalarValue::Float64(Some(10.0)));
    }

    #[test]
    fn types_are_counted_as_what_they_hold() {
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
        for (kind, expected) in [
            (coded, DataType::Utf8View),
            (DataType::Utf8, DataType::Utf8View),
            (DataType::Null, DataType::Utf8View),
            (DataType::Date32, DataType::Date32),
        ] {
            assert_eq!(mode().coerce_types(std::slice::from_ref(&kind)).unwrap(), [expected], "{kind}");
        }
        assert!(mode().coerce_types(&[]).is_err());
        let most = |values: ArrayRef| {
            let mut counts = Counts::new(values.data_type()).unwrap();
            counts.update_batch(&[values]).unwrap();
            counts.evaluate().unwrap()
        };
        let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(5), Some(-3), None, Some(5)]));
        assert_eq!(most(days), ScalarValue::Date32(Some(5)));
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
        assert_eq!(most(truths), ScalarValue::Boolean(Some(false)), "of equal counts the first in order");
    }

    /// In parts, by states and at once the commonest value is that of a plain count.
    #[test]
    fn parts_have_the_commonest_of_all() {
        let mut draw = draws(191);
        for _ in 0..200 {
            let values: Vec<Option<i64>> = (0..draw(30)).map(|_| (draw(5) > 0).then(|| draw(6) as i64 - 3)).collect();
            let mut plain = BTreeMap::<i64, usize>::new();
            values.iter().flatten().for_each(|value| *plain.entry(*value).or_default() += 1);
            let most = plain.values().max();
            let expected = plain.iter().find(|(_, count)| Some(*count) == most).map(|(value, _)| *value);
            let counts = |values: &[Option<i64>]| {
                let mut counts = Counts::new(&DataType::Int64).unwrap();
                counts.update_batch(&[Arc::new(Int64Array::from(values.to_vec())) as ArrayRef]).unwrap();
                counts
            };
            let (left, right) = values.split_at(draw(values.len() + 1));
            let mut merged = counts(left);
            let states: Vec<ArrayRef> = counts(right).state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
            merged.merge_batch(&states).unwrap();
            assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(expected), "{values:?}");
            assert_eq!(counts(&values).evaluate().unwrap(), ScalarValue::Int64(expected), "{values:?}");
        }
    }
}
