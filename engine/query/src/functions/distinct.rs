//! `count_distinct(x)`: the number of different values, without NULL. It replaces `count(DISTINCT x)` in relational
//! plans. DataFusion keeps a set of owned values per group, which is too much memory for a hundred thousand groups.
//! Here all groups share one store of values, each kept once, and one set of pairs of group and value.
//!
//! Rows and lists are counted by their bytes. For these DataFusion keeps each value as a slice of its whole batch, and
//! copies the list of buffers behind all strings of the batch for each of them.

use std::hash::BuildHasher as _;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Int32DictionaryArray, Int64Array, ListArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{ScalarValue, exec_err, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::interner::{Texts, make_room};

/// The name of the function in plans.
pub(crate) const COUNT_DISTINCT: &str = "count_distinct";

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountDistinct {
    signature: Signature,
}

pub(crate) fn function() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(CountDistinct { signature: Signature::any(1, Volatility::Immutable) }))
}

/// Whether values of a type are supported.
pub(crate) fn counts(kind: &DataType) -> bool {
    use DataType::{Binary, BinaryView, Boolean, FixedSizeBinary, LargeUtf8, Utf8, Utf8View};
    // Intervals are compared by length.
    kind.is_integer()
        || (kind.is_nested() && RowConverter::supports_fields(&[SortField::new(kind.clone())]))
        || (kind.is_temporal() && !matches!(kind, DataType::Interval(_)))
        || matches!(kind, Utf8 | LargeUtf8 | Utf8View | Binary | BinaryView | FixedSizeBinary(_) | Boolean)
}

fn list_type() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Binary, false)))
}

impl AggregateUDFImpl for CountDistinct {
    fn name(&self) -> &'static str {
        COUNT_DISTINCT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _kind: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(DistinctAccumulator(DistinctPairs::default())))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), list_type(), false))])
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(DistinctPairs::default()))
    }
}

/// Pairs of group and value.
#[derive(Debug, Default)]
struct DistinctPairs {
    values: Texts,
    /// Pairs in order of first occurrence.
    pairs: Vec<(u32, u32)>,
    /// For each value the first group that had it: most sessions have one user, and most of their rows are in one
    /// hour.
    first: Vec<u32>,
    /// Pairs of values with further groups, stored directly, so that a lookup needs no second memory access.
    known: HashTable<u64>,
    hasher: DefaultHashBuilder,
    counts: Vec<i64>,
    /// Bytes of the values of all pairs: the emitted state repeats a value for each group.
    listed: usize,
}

/// A pair of group and value as one number.
fn whole((group, value): (u32, u32)) -> u64 {
    u64::from(group) << 32 | u64::from(value)
}

/// Calls a function with the bytes of each row's value. Equal values have equal bytes in any array type.
fn each(array: &ArrayRef, rows: usize, mut f: impl FnMut(usize, Option<&[u8]>) -> Result<()>) -> Result<()> {
    macro_rules! bytes {
        ($values:expr) => {{
            let values = $values;
            for row in 0..rows {
                f(row, values.is_valid(row).then(|| AsRef::<[u8]>::as_ref(values.value(row))))?;
            }
        }};
    }
    match array.data_type() {
        DataType::Utf8View => bytes!(array.as_string_view()),
        DataType::Utf8 => bytes!(array.as_string::<i32>()),
        DataType::LargeUtf8 => bytes!(array.as_string::<i64>()),
        DataType::Binary => bytes!(array.as_binary::<i32>()),
        DataType::BinaryView => bytes!(array.as_binary_view()),
        DataType::FixedSizeBinary(_) => bytes!(array.as_fixed_size_binary()),
        DataType::Boolean => {
            let values = array.as_boolean();
            for row in 0..rows {
                let byte = values.is_valid(row).then(|| [u8::from(values.value(row))]);
                f(row, byte.as_ref().map(|byte| &byte[..]))?;
            }
        }
        kind if kind.is_nested() => {
            let converter = RowConverter::new(vec![SortField::new(kind.clone())])?;
            let encoded = converter.convert_columns(std::slice::from_ref(array))?;
            for row in 0..rows {
                f(row, array.is_valid(row).then(|| encoded.row(row).data()))?;
            }
        }
        kind => match kind.primitive_width() {
            None => return not_impl_err!("`{COUNT_DISTINCT}` of {kind}"),
            Some(width) => {
                let data = array.to_data();
                let (bytes, from) = (data.buffers()[0].as_slice(), data.offset());
                for row in 0..rows {
                    let at = (from + row) * width;
                    f(row, array.is_valid(row).then(|| &bytes[at..at + width]))?;
                }
            }
        },
    }
    Ok(())
}

impl DistinctPairs {
    /// Adds a pair; `false` if it was there already.
    fn is_new(&mut self, group: u32, value: u32) -> bool {
        const NONE: u32 = u32::MAX;
        let Self { first, known, hasher, .. } = self;
        let at = value as usize;
        if first.len() <= at {
            first.resize(at + 1, NONE);
        }
        if first[at] == NONE {
            first[at] = group;
            return true;
        }
        if first[at] == group {
            return false;
        }
        let pair = whole((group, value));
        let hash = hasher.hash_one(pair);
        if known.find(hash, |known| *known == pair).is_some() {
            return false;
        }
        make_room(known, |pair| hasher.hash_one(pair));
        known.insert_unique(hash, pair, |pair| hasher.hash_one(pair));
        true
    }

    fn insert(&mut self, group: u32, value: u32) {
        if self.is_new(group, value) {
            self.pairs.push((group, value));
            self.counts[group as usize] += 1;
            self.listed += self.values.value(value).len();
        }
    }

    fn add(&mut self, array: &ArrayRef, group: impl Fn(usize) -> Option<usize>, rows: usize) -> Result<()> {
        if let Some(coded) = array.as_any().downcast_ref::<Int32DictionaryArray>() {
            const OPEN: u32 = u32::MAX;
            let Some(texts) = coded.values().as_string_view_opt() else {
                return self.add(&take(coded.values(), coded.keys(), None)?, group, rows);
            };
            // Each text is numbered once, at the first row that has it.
            let mut of_code = vec![OPEN; texts.len()];
            for row in (0..rows).filter(|row| coded.keys().is_valid(*row)) {
                let (code, Some(group)) = (coded.keys().value(row) as usize, group(row)) else { continue };
                if of_code[code] == OPEN {
                    if texts.is_null(code) {
                        continue;
                    }
                    of_code[code] = self.values.number(texts.value(code).as_bytes()).0;
                }
                self.insert(group as u32, of_code[code]);
            }
            return Ok(());
        }
        let mut last: Option<(u32, u32)> = None;
        each(array, rows, |row, bytes| {
            if let (Some(group), Some(bytes)) = (group(row), bytes) {
                let pair = (group as u32, self.values.number(bytes).0);
                // Rows of a trace are adjacent.
                if last != Some(pair) {
                    self.insert(pair.0, pair.1);
                    last = Some(pair);
                }
            }
            Ok(())
        })
    }

    fn room(&mut self, groups: usize) {
        if self.counts.len() < groups {
            self.counts.resize(groups, 0);
        }
    }

    /// Removes the first groups: returns their pairs in order of the groups, and the number of pairs of each.
    fn take(&mut self, emit: EmitTo) -> (Vec<i64>, Vec<u32>) {
        let counts = emit.take_needed(&mut self.counts);
        let groups = counts.len() as u32;
        let mut next: Vec<usize> = Vec::with_capacity(counts.len());
        let mut end = 0;
        for count in &counts {
            next.push(end);
            end += *count as usize;
        }
        let mut values = vec![0; end];
        let rest: Vec<(u32, u32)> = std::mem::take(&mut self.pairs)
            .into_iter()
            .filter_map(|(group, value)| match next.get_mut(group as usize) {
                Some(at) => {
                    values[*at] = value;
                    *at += 1;
                    None
                }
                None => Some((group - groups, value)),
            })
            .collect();
        self.first.clear();
        self.known.clear();
        for (group, value) in &rest {
            self.is_new(*group, *value);
        }
        self.pairs = rest;
        self.listed = self.pairs.iter().map(|(_, value)| self.values.value(*value).len()).sum();
        (counts, values)
    }

    /// Values of groups as lists.
    fn lists(&self, counts: &[i64], values: &[u32]) -> Result<ArrayRef> {
        let mut bytes = Vec::with_capacity(values.iter().map(|value| self.values.value(*value).len()).sum());
        let mut ends = Vec::with_capacity(values.len() + 1);
        ends.push(0_i32);
        for value in values {
            bytes.extend_from_slice(self.values.value(*value));
            let Ok(end) = i32::try_from(bytes.len()) else {
                return exec_err!("`{COUNT_DISTINCT}`: values of groups are longer than 2 GiB");
            };
            ends.push(end);
        }
        let items = BinaryArray::try_new(OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from_vec(bytes), None)?;
        let offsets = OffsetBuffer::from_lengths(counts.iter().map(|count| *count as usize));
        let field = Arc::new(Field::new_list_field(DataType::Binary, false));
        Ok(Arc::new(ListArray::try_new(field, offsets, Arc::new(items), None)?))
    }
}

impl GroupsAccumulator for DistinctPairs {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.room(total);
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        self.add(&values[0], |row| counts(row).then(|| groups[row]), groups.len())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.room(total);
        let lists = states[0].as_list::<i32>();
        let items = lists.values().as_binary::<i32>();
        for (row, group) in groups.iter().enumerate() {
            let (from, to) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
            for at in from..to {
                let value = self.values.number(items.value(at)).0;
                self.insert(*group as u32, value);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        // If all groups are emitted, the values of each are not needed any more.
        if matches!(emit, EmitTo::All) {
            return Ok(Arc::new(Int64Array::from(std::mem::take(self).counts)));
        }
        let (counts, _) = self.take(emit);
        if self.pairs.is_empty() {
            self.values = Texts::default();
        }
        Ok(Arc::new(Int64Array::from(counts)))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (counts, values) = self.take(emit);
        let lists = self.lists(&counts, &values)?;
        if self.pairs.is_empty() {
            self.values = Texts::default();
        }
        Ok(vec![lists])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let mut each_row = Self::default();
        let rows = values[0].len();
        let groups: Vec<usize> = (0..rows).collect();
        each_row.update_batch(values, &groups, filter, rows)?;
        each_row.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        // When memory is short, all pairs are emitted as lists or spilled.
        self.values.size()
            + self.listed
            + 2 * self.pairs.capacity() * size_of::<(u32, u32)>()
            + self.first.capacity() * size_of::<u32>()
            + self.known.capacity() * 9
            + self.counts.capacity() * size_of::<i64>()
    }
}

/// All rows as one group.
#[derive(Debug)]
struct DistinctAccumulator(DistinctPairs);

impl Accumulator for DistinctAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.room(1);
        self.0.add(&values[0], |_| Some(0), values[0].len())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states[0].len()];
        GroupsAccumulator::merge_batch(&mut self.0, states, &groups, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0.counts.first().copied().unwrap_or(0))))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.room(1);
        let lists = GroupsAccumulator::state(&mut self.0, EmitTo::All)?;
        lists.iter().map(|list| ScalarValue::try_from_array(list, 0)).collect()
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::{
        BinaryViewArray, FixedSizeBinaryArray, LargeStringArray, StringArray, StringViewArray, StructArray,
        TimestampNanosecondArray,
    };
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Int64Type, IntervalUnit, TimeUnit};

    use super::*;

    /// Repeated pairs in one and in many groups, as plain texts and as codes, while some groups are emitted and
    /// others stay.
    #[test]
    fn pairs_count_once_whatever_came_between() {
        const GROUPS: usize = 7;
        let mut counted = DistinctPairs::default();
        let mut wanted: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); GROUPS];
        let add = |counted: &mut DistinctPairs, wanted: &mut Vec<BTreeSet<usize>>, round: usize, is_coded: bool| {
            let rows: Vec<(usize, usize)> = (0..200).map(|n| (n * (round + 3) % wanted.len(), n * 5 % 23)).collect();
            let groups: Vec<usize> = rows.iter().map(|(group, _)| *group).collect();
            let texts: StringArray = rows.iter().map(|(_, value)| Some(format!("value {value}"))).collect();
            let values: ArrayRef = if is_coded {
                // Codes in another order than the rows.
                let texts = (0..23).rev().map(|value| Some(format!("value {value}")));
                let texts: ArrayRef = match round {
                    1 => Arc::new(texts.collect::<StringArray>()),
                    _ => Arc::new(texts.collect::<StringViewArray>()),
                };
                let codes = rows.iter().map(|(_, value)| 22 - *value as i32).collect();
                Arc::new(Int32DictionaryArray::new(codes, texts))
            } else {
                Arc::new(texts)
            };
            counted.update_batch(&[values], &groups, None, wanted.len()).unwrap();
            for (group, value) in rows {
                wanted[group].insert(value);
            }
        };
        let counts = |wanted: &[BTreeSet<usize>]| wanted.iter().map(|values| values.len() as i64).collect::<Vec<_>>();
        let numbers = |given: &ArrayRef| given.as_primitive::<Int64Type>().values().to_vec();
        for round in 0..4 {
            add(&mut counted, &mut wanted, round, round % 2 == 1);
        }
        let lists = GroupsAccumulator::state(&mut counted, EmitTo::First(3)).unwrap();
        let listed: Vec<i64> = lists[0].as_list::<i32>().iter().map(|list| list.unwrap().len() as i64).collect();
        assert_eq!(listed, counts(&wanted[..3]));
        wanted.drain(..3);
        add(&mut counted, &mut wanted, 4, true);
        let given = GroupsAccumulator::evaluate(&mut counted, EmitTo::First(1)).unwrap();
        assert_eq!(numbers(&given), counts(&wanted[..1]));
        wanted.drain(..1);
        add(&mut counted, &mut wanted, 5, false);
        let given = GroupsAccumulator::evaluate(&mut counted, EmitTo::All).unwrap();
        assert_eq!(numbers(&given), counts(&wanted));
        // Nothing is left of emitted groups: the same values count anew.
        let mut wanted = vec![BTreeSet::new(); GROUPS];
        add(&mut counted, &mut wanted, 6, true);
        let given = GroupsAccumulator::evaluate(&mut counted, EmitTo::All).unwrap();
        assert_eq!(numbers(&given), counts(&wanted));
    }

    #[test]
    fn a_value_of_many_groups_counts_as_often_as_it_is_given_on() {
        const GROUPS: usize = 1000;
        let text = "x".repeat(10_000);
        let values: ArrayRef = Arc::new(StringArray::from(vec![text.as_str(); GROUPS]));
        let each: Vec<usize> = (0..GROUPS).collect();
        let mut counted = DistinctPairs::default();
        counted.update_batch(&[values], &each, None, GROUPS).unwrap();
        assert!(counted.size() >= GROUPS * text.len(), "{}", counted.size());
        let lists = GroupsAccumulator::state(&mut counted, EmitTo::First(GROUPS - 1)).unwrap();
        assert_eq!(lists[0].len(), GROUPS - 1);
        assert!(counted.size() < GROUPS * text.len(), "{}", counted.size());
        let mut merged = DistinctPairs::default();
        merged.merge_batch(&lists, &each[1..], GROUPS).unwrap();
        let counts = GroupsAccumulator::evaluate(&mut merged, EmitTo::All).unwrap();
        assert_eq!(counts.len(), GROUPS);
    }

    fn count(values: &ArrayRef) -> Result<ScalarValue> {
        let mut one = DistinctAccumulator(DistinctPairs::default());
        Accumulator::update_batch(&mut one, std::slice::from_ref(values))?;
        one.evaluate()
    }

    #[test]
    fn values_of_all_types_are_told_apart() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(2), Some(1 << 40), None]));
        let fixed = FixedSizeBinaryArray::try_from_iter([[1_u8, 2], [1, 3], [1, 2]].into_iter()).unwrap();
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("a"), None, Some("b"), None]));
        let fields = vec![Field::new("a", texts.data_type().clone(), true), Field::new("b", DataType::Int64, true)];
        let lacks = NullBuffer::from(vec![true, true, true, true, true, false]);
        let columns = vec![texts, Arc::clone(&numbers)];
        let of_several: ArrayRef = Arc::new(StructArray::new(fields.into(), columns, Some(lacks)));
        let lists = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(1), None]), Some(vec![Some(1)])];
        let cases: [(ArrayRef, i64); 12] = [
            // A row of NULLs is a value, and no row is none: (a, 1), (NULL, 2), (a, NULL), (NULL, 2), (b, 1 << 40).
            (of_several.slice(0, 6), 4),
            (of_several.slice(3, 3), 2),
            (Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)), 3),
            (numbers.slice(0, 6), 3),
            // A sliced column starts at its offset.
            (numbers.slice(1, 3), 1),
            (numbers.slice(2, 1), 0),
            (numbers.slice(3, 2), 2),
            (Arc::new(BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])), 2),
            (Arc::new(TimestampNanosecondArray::from(vec![0, 1, 0])), 2),
            (Arc::new(BinaryViewArray::from(vec![b"a".as_slice(), b"", b"a"])), 2),
            (Arc::new(fixed), 2),
            (Arc::new(StringArray::from(vec![Some(""), None, Some("\0")])), 2),
        ];
        for (values, expected) in cases {
            assert_eq!(count(&values).unwrap(), ScalarValue::Int64(Some(expected)), "{}", values.data_type());
        }
        let refused = count(&(Arc::new(arrow::array::NullArray::new(1)) as ArrayRef)).unwrap_err().to_string();
        assert!(refused.contains("`count_distinct` of Null"), "{refused}");
    }

    /// A text is the same value in any array type, and in a state.
    #[test]
    fn forms_of_a_text_are_one_value() {
        let mut one = DistinctAccumulator(DistinctPairs::default());
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(0)));
        let coded: Int32DictionaryArray = vec![Some("b"), None, Some("a")].into_iter().collect();
        let forms: [ArrayRef; 4] = [
            Arc::new(StringArray::from(vec!["a", "b"])),
            Arc::new(LargeStringArray::from(vec!["b", "a"])),
            Arc::new(StringViewArray::from(vec!["a", "a"])),
            Arc::new(coded),
        ];
        for form in &forms {
            Accumulator::update_batch(&mut one, std::slice::from_ref(form)).unwrap();
            assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(2)), "{}", form.data_type());
        }
        let states: Vec<ArrayRef> =
            Accumulator::state(&mut one).unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(0)), "what was handed on is gone");
        let other: ArrayRef = Arc::new(StringArray::from(vec!["c", "a"]));
        Accumulator::update_batch(&mut one, &[other]).unwrap();
        Accumulator::merge_batch(&mut one, &states).unwrap();
        Accumulator::merge_batch(&mut one, &states).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::Int64(Some(3)));
    }

    #[test]
    fn states_of_rows_have_what_counts() {
        let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some("c")]));
        let kept = BooleanArray::from(vec![Some(true), Some(true), Some(false), None]);
        let states = DistinctPairs::default().convert_to_state(std::slice::from_ref(&values), Some(&kept)).unwrap();
        let lengths: Vec<i32> = (0..4).map(|row| states[0].as_list::<i32>().value_length(row)).collect();
        assert_eq!((lengths, states[0].null_count()), (vec![1, 0, 0, 0], 0));
        let all = DistinctPairs::default().convert_to_state(&[values], None).unwrap();
        let mut counted = DistinctPairs::default();
        counted.merge_batch(&all, &[1, 1, 0, 1], 3).unwrap();
        let found = GroupsAccumulator::evaluate(&mut counted, EmitTo::All).unwrap();
        assert_eq!(found.as_primitive::<Int64Type>().values(), &[1, 2, 0]);
    }

    #[test]
    fn types_say_whether_their_values_are_counted() {
        for kind in [
            DataType::UInt8,
            DataType::Int64,
            DataType::Boolean,
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Second, Some("UTC".into())),
            DataType::LargeUtf8,
            DataType::BinaryView,
            DataType::FixedSizeBinary(16),
            DataType::new_list(DataType::Float64, true),
            DataType::Struct(vec![Field::new("a", DataType::Utf8View, true)].into()),
        ] {
            assert!(counts(&kind), "{kind}");
        }
        for kind in [
            DataType::Float64,
            DataType::Decimal128(10, 2),
            DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Null,
        ] {
            assert!(!counts(&kind), "{kind}");
        }
    }
}
