//! Sketches of different values, so that those of parts give that of all: `distinct_sketch(x)` keeps what
//! `count_distinct_approx(x)` counts by, `distinct_of_sketches(s)` counts what several of these hold together, to the same
//! number as over all values at once.
//!
//! Both are DataFusion's aggregate of groups: a sketch is the state that it gives on.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::{filter, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, internal_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use parking_lot::Mutex;

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
        use DataType::{Binary, Boolean, Dictionary, Int8, Int16, Int32, Null, UInt8, UInt16, Utf8View};
        let [kind] = types else { return plan_err!("`{}` takes one value, not {}", self.name(), types.len()) };
        Ok(vec![match (self.role, kind) {
            (Role::Counted, Binary) => Binary,
            (Role::Counted, kind) => return plan_err!("`{}` takes sketches, not values of type {kind}", self.name()),
            // As `count_distinct_approx` takes them.
            (Role::Made, kind) if kind.is_floating() => Utf8View,
            // DataFusion counts these without a sketch.
            (Role::Made, Boolean | Int8 | Int16 | UInt8 | UInt16 | Null) => Int32,
            (Role::Made, Dictionary(_, kind)) => (**kind).clone(),
            (Role::Made, kind) => kind.clone(),
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
            (Role::Counted, None) => self.inner.merge_batch(values, groups, total),
            (Role::Counted, Some(kept)) => {
                let values = values.iter().map(|v| Ok(filter(&**v, kept)?)).collect::<Result<Vec<_>>>()?;
                let there = groups.iter().zip(kept).filter(|(_, kept)| *kept == Some(true));
                let groups: Vec<usize> = there.map(|(group, _)| *group).collect();
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
        match (self.role, kept) {
            (Role::Made, kept) => self.inner.convert_to_state(values, kept),
            (Role::Counted, None) => Ok(values.to_vec()),
            (Role::Counted, Some(kept)) => {
                let dropped: BooleanArray = kept.iter().map(|kept| Some(kept != Some(true))).collect();
                values.iter().map(|v| Ok(nullif(&**v, &dropped)?)).collect()
            }
        }
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
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
