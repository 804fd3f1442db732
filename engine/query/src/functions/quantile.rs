//! `quantile(x, q)`: the exact q-quantile. DataFusion's `percentile_cont` rounds the position between two values to a
//! millionth, which changes the seventh digit, and it copies the values without charging them to the query.

use std::collections::BTreeSet;
use std::mem::{size_of_val, take};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray, BooleanArray, Float64Array, ListArray, RecordBatch};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, IntervalUnit, Schema};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;

use self::lengths::Intervals;

mod lengths;
pub(super) mod quantile_list;

/// Values of a chunk. A full chunk is never copied to grow, so that what [`Accumulator::size`] says is all there is.
const CHUNK: usize = 8192;
/// Memory that a value in a [`BTreeSet`] takes, with its share of nodes that are half full.
const KEY_BYTES: usize = 24;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantile {
    signature: Signature,
}

/// Gives the function: numbers or intervals `x`, a constant `q` from 0 to 1; a double or an interval, NULL of no values.
/// NULL is left out.
pub fn quantile() -> Arc<AggregateUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(AggregateUDF::from(Quantile { signature }))
}

impl AggregateUDFImpl for Quantile {
    fn name(&self) -> &'static str {
        "quantile"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [x, _] = types else { return plan_err!("`quantile` is called as `quantile(x, q)`") };
        let x = match x {
            DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            DataType::Duration(_) => x.clone(),
            // NULL alone has no type, and is a number then.
            kind if kind.is_numeric() || kind.is_null() => DataType::Float64,
            other => return plan_err!("`quantile` takes numbers and intervals, not `{other}`"),
        };
        Ok(vec![x, DataType::Float64])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match types.first() {
            // What lies between two times is an interval of days and time.
            Some(kind) if is_interval(kind) || matches!(kind, DataType::Duration(_)) => {
                DataType::Interval(IntervalUnit::MonthDayNano)
            }
            _ => DataType::Float64,
        })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let [_, q] = args.exprs else { return plan_err!("`quantile` is called as `quantile(x, q)`") };
        let q = constant(q)?;
        if is_interval(args.return_field.data_type()) {
            return Ok(Box::new(Intervals::new(q, args.is_distinct)));
        }
        Ok(if args.is_distinct {
            Box::new(Distinct { q, keys: BTreeSet::new() })
        } else {
            Box::new(Values { q, chunks: Vec::new() })
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct && !is_interval(args.return_field.data_type())
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let [_, q] = args.exprs else { return plan_err!("`quantile` is called as `quantile(x, q)`") };
        Ok(Box::new(QuantileGroups { q: constant(q)?, groups: Vec::new(), held: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        // Values have the type of the quantile.
        let list = DataType::List(Arc::new(Field::new_list_field(args.return_type().clone(), true)));
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), list, true))])
    }
}

fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(IntervalUnit::MonthDayNano))
}

/// Gives the number that `q` is: a constant from 0 to 1.
fn constant(q: &Arc<dyn PhysicalExpr>) -> Result<f64> {
    let value = q.evaluate(&RecordBatch::new_empty(Arc::new(Schema::empty())));
    match value {
        Ok(ColumnarValue::Scalar(ScalarValue::Float64(Some(q)))) if (0.0..=1.0).contains(&q) => Ok(q),
        Ok(ColumnarValue::Scalar(value)) => plan_err!("`quantile`: q is a number from 0 to 1, not {value}"),
        _ => plan_err!("`quantile`: q is a constant, not `{q}`"),
    }
}

/// The values of a group.
#[derive(Debug)]
struct Values {
    q: f64,
    chunks: Vec<Vec<f64>>,
}

impl Values {
    fn add(&mut self, array: &Float64Array) {
        if array.null_count() == 0 {
            self.extend(array.values());
        } else {
            array.iter().flatten().for_each(|value| _ = self.push(value));
        }
    }

    /// Takes values; says by how many bytes it grew.
    fn extend(&mut self, mut values: &[f64]) -> usize {
        let mut grown = 0;
        while let Some((first, rest)) = values.split_first() {
            values = match self.chunks.last_mut() {
                Some(chunk) if chunk.len() < CHUNK => {
                    let (here, later) = values.split_at(values.len().min(CHUNK - chunk.len()));
                    let (before, len) = (chunk.capacity(), chunk.len() + here.len());
                    // Doubled as pushing would double it, and never beyond a chunk.
                    chunk.reserve_exact(len.next_power_of_two().min(CHUNK) - chunk.len());
                    chunk.extend_from_slice(here);
                    grown += (chunk.capacity() - before) * size_of::<f64>();
                    later
                }
                _ => {
                    grown += self.grow(*first);
                    rest
                }
            };
        }
        grown
    }

    /// Takes a value; says by how many bytes it grew.
    #[inline]
    fn push(&mut self, value: f64) -> usize {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < chunk.capacity().min(CHUNK) => {
                chunk.push(value);
                0
            }
            _ => self.grow(value),
        }
    }

    /// The same where the last chunk has no room left.
    fn grow(&mut self, value: f64) -> usize {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => {
                let before = chunk.capacity();
                chunk.push(value);
                (chunk.capacity() - before) * size_of::<f64>()
            }
            _ => {
                let before = self.chunks.capacity();
                self.chunks.push(vec![value]);
                (self.chunks.capacity() - before) * size_of::<Vec<f64>>() + size_of::<f64>()
            }
        }
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    fn keys(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().flatten().copied().map(key)
    }

    fn quantile(&mut self) -> Option<f64> {
        self.part(self.q)
    }

    /// The value at a part of the way through the sorted values.
    fn part(&mut self, q: f64) -> Option<f64> {
        match self.chunks.as_mut_slice() {
            [] => None,
            [one] => between(q, one.len(), |rank| {
                let (_, low, above) = one.select_nth_unstable_by(rank, f64::total_cmp);
                (*low, above.iter().copied().min_by(f64::total_cmp).unwrap_or(*low))
            }),
            _ => between(q, self.len(), |rank| self.at(rank)),
        }
    }

    /// The value of a rank from 0 and the next, without a copy of the values: the key is found byte by byte.
    fn at(&self, mut rank: usize) -> (f64, f64) {
        let (mut found, mut equal) = (0, 0);
        for shift in (0..u64::BITS).step_by(8).rev() {
            let mut counts = [0; 256];
            self.keys()
                .filter(|key| (key ^ found) >> shift >> 8 == 0)
                .for_each(|key| counts[(key >> shift & 0xff) as usize] += 1);
            for (byte, count) in (0_u64..).zip(counts) {
                if rank < count {
                    (found, equal) = (found | byte << shift, count);
                    break;
                }
                rank -= count;
            }
        }
        let next = if rank + 1 < equal { None } else { self.keys().filter(|key| *key > found).min() };
        (of_key(found), of_key(next.unwrap_or(found)))
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].as_primitive::<Float64Type>());
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().for_each(|list| self.add(list.as_primitive::<Float64Type>()));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.quantile()))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut values = Vec::with_capacity(self.len());
        // Each chunk is let go of as it is copied.
        for chunk in take(&mut self.chunks) {
            values.extend(chunk);
        }
        state_of(values)
    }

    fn size(&self) -> usize {
        let held: usize = self.chunks.iter().map(Vec::capacity).sum();
        size_of_val(self) + self.chunks.capacity() * size_of::<Vec<f64>>() + held * size_of::<f64>()
    }
}

/// The values of all groups.
#[derive(Debug)]
struct QuantileGroups {
    q: f64,
    groups: Vec<Values>,
    /// Bytes of the values.
    held: usize,
}

impl QuantileGroups {
    fn room(&mut self, groups: usize) {
        let q = self.q;
        self.groups.resize_with(groups.max(self.groups.len()), || Values { q, chunks: Vec::new() });
    }

    fn take(&mut self, emit: EmitTo) -> Vec<Values> {
        let taken = emit.take_needed(&mut self.groups);
        self.held = self.groups.iter().map(|values| values.size() - size_of::<Values>()).sum();
        taken
    }
}

impl GroupsAccumulator for QuantileGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.room(total);
        let values = values[0].as_primitive::<Float64Type>();
        if filter.is_none() && values.null_count() == 0 {
            for (value, group) in values.values().iter().zip(groups) {
                self.held += self.groups[*group].push(*value);
            }
            return Ok(());
        }
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        for (row, group) in groups.iter().enumerate().filter(|(row, _)| values.is_valid(*row) && counts(*row)) {
            self.held += self.groups[*group].push(values.value(row));
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.room(total);
        for (list, group) in states[0].as_list::<i32>().iter().zip(groups) {
            if let Some(list) = list {
                self.held += self.groups[*group].extend(list.as_primitive::<Float64Type>().values());
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let found: Float64Array = self.take(emit).iter_mut().map(Values::quantile).collect();
        Ok(Arc::new(found))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let taken = self.take(emit);
        let lengths: Vec<usize> = taken.iter().map(Values::len).collect();
        let mut values = Vec::with_capacity(lengths.iter().sum());
        // Each chunk is let go of as it is copied.
        taken.into_iter().flat_map(|group| group.chunks).for_each(|chunk| values.extend(chunk));
        Ok(vec![Arc::new(lists_of(values, lengths)?)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>();
        let counts = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let counts = |row: &usize| values.is_valid(*row) && counts(*row);
        let lengths = (0..values.len()).map(|row| usize::from(counts(&row))).collect();
        let kept = (0..values.len()).filter(counts).map(|row| values.value(row)).collect();
        Ok(vec![Arc::new(lists_of(kept, lengths)?)])
    }

    fn size(&self) -> usize {
        self.held + self.groups.capacity() * size_of::<Values>()
    }
}

/// The different values of a group, by their keys.
#[derive(Debug)]
struct Distinct {
    q: f64,
    keys: BTreeSet<u64>,
}

impl Distinct {
    fn add(&mut self, array: &Float64Array) {
        // 0 makes 0 of -0, which are equal.
        self.keys.extend(array.iter().flatten().map(|value| key(value + 0.0)));
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].as_primitive::<Float64Type>());
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_list::<i32>().iter().flatten().for_each(|list| self.add(list.as_primitive::<Float64Type>()));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(between(self.q, self.keys.len(), |rank| {
            let mut rest = self.keys.iter().skip(rank).copied().map(of_key);
            let low = rest.next().unwrap_or(f64::NAN);
            (low, rest.next().unwrap_or(low))
        })))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        state_of(take(&mut self.keys).into_iter().map(of_key).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.keys.len() * KEY_BYTES
    }
}

/// The value at a part of the way through sorted values; `pair` gives those of a rank and of the next.
fn between(q: f64, count: usize, pair: impl FnOnce(usize) -> (f64, f64)) -> Option<f64> {
    let place = q * count.checked_sub(1)? as f64;
    let (low, high) = pair(place.floor() as usize);
    // Of equal infinities, and beside one that has no weight, there is no difference.
    Some(if place.fract() == 0.0 || low == high { low } else { low + place.fract() * (high - low) })
}

fn state_of(values: Vec<f64>) -> Result<Vec<ScalarValue>> {
    let lengths = vec![values.len()];
    Ok(vec![ScalarValue::List(Arc::new(lists_of(values, lengths)?))])
}

fn lists_of(values: Vec<f64>, lengths: Vec<usize>) -> Result<ListArray> {
    if i32::try_from(values.len()).is_err() {
        return exec_err!("`quantile`: groups have more than {} values", i32::MAX);
    }
    let field = Arc::new(Field::new_list_field(DataType::Float64, true));
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(ListArray::try_new(field, offsets, Arc::new(Float64Array::from(values)), None)?)
}

/// A number that is ordered as `f64::total_cmp` orders values.
fn key(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// The value of a key.
fn of_key(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], q: f64) -> Option<f64> {
        let mut all = Values { q, chunks: Vec::new() };
        all.update_batch(&[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
        let ScalarValue::Float64(found) = all.evaluate().unwrap() else { panic!("no double") };
        found
    }

    #[test]
    fn quantiles() {
        let check = |values: &[f64], q, expected| assert_eq!(of(values, q), expected, "{values:?} {q}");
        check(&[], 0.5, None);
        check(&[7.0], 0.95, Some(7.0));
        check(&[3.0, 1.0, 2.0, 4.0], 0.5, Some(2.5));
        check(&[3.0, 1.0, 2.0, 4.0], 0.0, Some(1.0));
        check(&[3.0, 1.0, 2.0, 4.0], 1.0, Some(4.0));
        check(&[1.0, 2.0, 3.0], 0.25, Some(1.5));
        // To the last bit: a place rounded to a millionth would give 333333.
        check(&[0.0, 1e6], 1.0 / 3.0, Some(1.0 / 3.0 * 1e6));
        check(&[f64::INFINITY, f64::INFINITY, 1.0], 0.75, Some(f64::INFINITY));
        check(&[1.0, f64::INFINITY], 0.0, Some(1.0));
    }

    #[test]
    fn chunks_give_what_one_sort_gives() {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 40) % 9_000) as f64 / 8.0 - 500.0
        };
        let values: Vec<f64> = (0..3 * CHUNK + 5).map(|_| next()).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        for q in [0.0, 0.001, 0.25, 1.0 / 3.0, 0.5, 0.95, 0.999, 1.0] {
            let expected =
                between(q, sorted.len(), |rank| (sorted[rank], *sorted.get(rank + 1).unwrap_or(&sorted[rank])));
            assert_eq!(of(&values, q), expected, "{q}");
        }
    }

    #[test]
    fn values_at_once_are_as_one_by_one() {
        let values: Vec<f64> = (0..3 * CHUNK + 5).map(|at| at as f64).collect();
        for piece in [1, 3, 1000, CHUNK, CHUNK + 1, values.len()] {
            let mut all = Values { q: 0.5, chunks: Vec::new() };
            let before = all.size();
            let grown: usize = values.chunks(piece).map(|piece| all.extend(piece)).sum();
            assert_eq!(all.chunks.concat(), values, "{piece}");
            assert!(all.chunks.iter().all(|chunk| chunk.capacity() <= CHUNK), "{piece}");
            assert_eq!(all.size() - before, grown, "{piece}");
        }
    }

    #[test]
    fn parts_merge_and_size_is_what_is_held() {
        let values: ArrayRef = Arc::new(Float64Array::from_iter_values((0..20_000).map(|i| f64::from(i % 100))));
        let parts: [Box<dyn Fn() -> Box<dyn Accumulator>>; 2] = [
            Box::new(|| Box::new(Values { q: 0.5, chunks: Vec::new() })),
            Box::new(|| Box::new(Distinct { q: 0.5, keys: BTreeSet::new() })),
        ];
        for (part, held) in parts.iter().zip([20_000 * 8, 100 * KEY_BYTES]) {
            let (mut first, mut last) = (part(), part());
            first.update_batch(&[Arc::clone(&values)]).unwrap();
            assert!(first.size() >= held);
            let state = first.state().unwrap().remove(0).to_array().unwrap();
            assert!(first.size() < 200, "what was handed on is no longer held");
            last.merge_batch(&[Arc::clone(&state)]).unwrap();
            last.merge_batch(&[state]).unwrap();
            assert_eq!(last.evaluate().unwrap(), ScalarValue::Float64(Some(49.5)));
        }
    }

    #[test]
    fn keys_are_ordered() {
        let values = [f64::NEG_INFINITY, -2.5, -0.0, 0.0, 1e-300, 2.5, f64::INFINITY, f64::NAN];
        assert!(values.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert!(values.iter().all(|value| of_key(key(*value)).to_bits() == value.to_bits()));
    }
}
