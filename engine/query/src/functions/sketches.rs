//! Mergeable counts of different values: `distinct_sketch(x)` returns the sketch behind `count_distinct_approx(x)`, and
//! `distinct_of_sketches(s)` merges sketches and returns the count that all values together would give.
//!
//! Both use DataFusion's grouped aggregate; a sketch is its intermediate state.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, BinaryArray, BooleanArray};
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, internal_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use parking_lot::Mutex;

use super::approximate::hashed;

/// Bytes of a sketch of many values, each of which says how many bits a hash has up to its first one.
const REGISTERS: usize = 16 << 10;
/// A hash has so many bits beside those that choose a register, and one more where none is set.
const REGISTER_MAX: u8 = 51;
/// Longest sketch of few values, which is their hashes.
const HASHES_BYTES_MAX: usize = 256 * size_of::<u64>();

/// What becomes of sketches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// Values are gathered in one.
    Made,
    /// Several are counted together.
    Counted,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sketch {
    role: Role,
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

/// Gives both functions.
pub(super) fn functions() -> [Arc<AggregateUDF>; 2] {
    [Role::Made, Role::Counted].map(|role| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Sketch { role, inner: approx_distinct_udaf(), signature }))
    })
}

impl AggregateUDFImpl for Sketch {
    fn name(&self) -> &'static str {
        match self.role {
            Role::Made => "distinct_sketch",
            Role::Counted => "distinct_of_sketches",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        use DataType::{Binary, Dictionary, Int32, Null};
        let [kind] = types else { return plan_err!("`{}` takes one value, not {}", self.name(), types.len()) };
        Ok(vec![match (self.role, kind) {
            (Role::Counted, Binary) => Binary,
            (Role::Counted, kind) => return plan_err!("`{}` takes sketches, not values of type {kind}", self.name()),
            // DataFusion counts nothing without a sketch.
            (Role::Made, Null) => Int32,
            (Role::Made, Dictionary(_, kind)) => hashed(kind),
            (Role::Made, kind) => hashed(kind),
        }])
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.role {
            Role::Made => DataType::Binary,
            Role::Counted => DataType::UInt64,
        })
    }

    fn default_value(&self, _kind: &DataType) -> Result<ScalarValue> {
        Ok(self.role.of_nothing())
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[sketch]", args.name), DataType::Binary, false))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let groups = OfGroups { role: self.role, inner: self.inner.create_groups_accumulator(args)? };
        Ok(Box::new(OfAll(Mutex::new(groups))))
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(OfGroups { role: self.role, inner: self.inner.create_groups_accumulator(args)? }))
    }
}

impl Role {
    fn of_nothing(self) -> ScalarValue {
        match self {
            Self::Made => ScalarValue::Binary(Some(Vec::new())),
            Self::Counted => ScalarValue::UInt64(Some(0)),
        }
    }
}

struct OfGroups {
    role: Role,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        kept: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        match (self.role, kept) {
            (Role::Made, kept) => self.inner.update_batch(values, groups, kept, total),
            (Role::Counted, None) => {
                sketches(values)?;
                self.inner.merge_batch(values, groups, total)
            }
            (Role::Counted, Some(kept)) => {
                let values = values.iter().map(|v| Ok(filter(&**v, kept)?)).collect::<Result<Vec<_>>>()?;
                let there = groups.iter().zip(kept).filter(|(_, kept)| *kept == Some(true));
                let groups: Vec<usize> = there.map(|(group, _)| *group).collect();
                sketches(&values)?;
                self.inner.merge_batch(&values, &groups, total)
            }
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.inner.merge_batch(states, groups, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        match self.role {
            Role::Made => sketch(self.inner.state(emit)?),
            Role::Counted => self.inner.evaluate(emit),
        }
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit)
    }

    fn convert_to_state(&self, values: &[ArrayRef], kept: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        if self.role == Role::Made {
            return self.inner.convert_to_state(values, kept);
        }
        let sketches = sketches(values)?;
        let counts =
            |row: usize| sketches.is_valid(row) && kept.is_none_or(|kept| kept.is_valid(row) && kept.value(row));
        // A state is never NULL: what does not count is a sketch of nothing.
        let states = (0..sketches.len()).map(|row| if counts(row) { sketches.value(row) } else { &[] });
        Ok(vec![Arc::new(BinaryArray::from_iter_values(states))])
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
    }
}

/// The sketches that are to be counted. Bytes that are none are refused: DataFusion looks at them as if it had made them.
fn sketches(values: &[ArrayRef]) -> Result<&BinaryArray> {
    let is_sketch = |bytes: &[u8]| match bytes.len() {
        REGISTERS => bytes.iter().all(|register| *register <= REGISTER_MAX),
        len => len <= HASHES_BYTES_MAX && len.is_multiple_of(size_of::<u64>()),
    };
    match values.first().and_then(|values| values.as_binary_opt::<i32>()) {
        Some(found) if found.iter().flatten().all(is_sketch) => Ok(found),
        _ => exec_err!("`distinct_of_sketches` counts what `distinct_sketch` made, and no other bytes"),
    }
}

fn sketch(state: Vec<ArrayRef>) -> Result<ArrayRef> {
    state.into_iter().next().ok_or_else(|| internal_datafusion_err!("a sketch has no state"))
}

/// All rows as one group: what DataFusion has for that keeps states of another form. The lock makes it `Sync`; nobody waits
/// for it.
struct OfAll(Mutex<OfGroups>);

impl fmt::Debug for OfAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfAll").finish_non_exhaustive()
    }
}

/// What the one group has; without rows there is none.
fn first(of: &ArrayRef, role: Role) -> Result<ScalarValue> {
    if of.is_empty() { Ok(role.of_nothing()) } else { ScalarValue::try_from_array(of, 0) }
}

impl Accumulator for OfAll {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; values.first().map_or(0, Array::len)];
        self.0.get_mut().update_batch(values, &groups, None, 1)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states.first().map_or(0, Array::len)];
        self.0.get_mut().merge_batch(states, &groups, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let inner = self.0.get_mut();
        first(&inner.evaluate(EmitTo::All)?, inner.role)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = sketch(self.0.get_mut().state(EmitTo::All)?)?;
        Ok(vec![first(&all, Role::Made)?])
    }

    fn size(&self) -> usize {
        self.0.lock().size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Schema;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::Column;

    use super::*;

    fn groups(role: Role, kind: DataType) -> Box<dyn GroupsAccumulator> {
        let [made, counted] = functions();
        let function = if role == Role::Made { made } else { counted };
        let schema = Arc::new(Schema::new(vec![Field::new("s", kind, true)]));
        let call = AggregateExprBuilder::new(function, vec![Arc::new(Column::new("s", 0))]);
        call.schema(schema).alias("a").build().unwrap().create_groups_accumulator().unwrap()
    }

    fn sketch_of(values: std::ops::Range<i64>) -> Vec<u8> {
        let mut made = groups(Role::Made, DataType::Int64);
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        made.update_batch(&[Arc::clone(&values)], &vec![0; values.len()], None, 1).unwrap();
        made.evaluate(EmitTo::All).unwrap().as_binary::<i32>().value(0).to_vec()
    }

    /// Breaks if a query of many groups, which DataFusion no longer puts together before it divides rows, has a state
    /// that is NULL, or none for a row that does not count.
    #[test]
    fn rows_that_are_groups_of_their_own_have_states() {
        let (few, many) = (sketch_of(0..3), sketch_of(0..3000));
        assert_eq!((few.len(), many.len()), (3 * size_of::<u64>(), REGISTERS));
        let rows = vec![Some(&few[..]), None, Some(&many[..]), Some(&many[..]), Some(&few[..])];
        let values: [ArrayRef; 1] = [Arc::new(BinaryArray::from(rows))];
        let kept = BooleanArray::from(vec![Some(true), Some(true), Some(true), Some(false), None]);
        for (kept, expected) in [(Some(&kept), [3, 0, 3000, 0, 0]), (None, [3, 0, 3000, 3000, 3])] {
            let mut counted = groups(Role::Counted, DataType::Binary);
            let states = counted.convert_to_state(&values, kept).unwrap();
            assert_eq!(states[0].null_count(), 0);
            let each: Vec<usize> = (0..5).collect();
            counted.merge_batch(&states, &each, 5).unwrap();
            let found = counted.evaluate(EmitTo::All).unwrap();
            let found = found.as_primitive::<arrow::datatypes::UInt64Type>().values().to_vec();
            for (found, expected) in found.into_iter().zip(expected) {
                assert!(found.abs_diff(expected) <= expected / 20, "{found} of {expected}");
            }
        }
    }

    /// Breaks if bytes that are not a sketch crash the process.
    #[test]
    fn other_bytes_are_refused() {
        for bytes in [vec![1], vec![0; 8 * 257], vec![REGISTER_MAX + 1; REGISTERS]] {
            let values: [ArrayRef; 1] = [Arc::new(BinaryArray::from_iter_values([&bytes]))];
            let mut counted = groups(Role::Counted, DataType::Binary);
            assert!(counted.update_batch(&values, &[0], None, 1).is_err());
            assert!(counted.update_batch(&values, &[0], Some(&BooleanArray::from(vec![true])), 1).is_err());
            assert!(counted.convert_to_state(&values, None).is_err());
            assert!(counted.update_batch(&values, &[0], Some(&BooleanArray::from(vec![false])), 1).is_ok());
        }
    }
}
