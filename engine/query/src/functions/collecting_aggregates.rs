//! Aggregates of DataFusion that collect values, wrapped so that they report their true size. Plan nodes reserve that much of
//! the query's memory after each batch, and spill or end the query if it is not available.
//!
//! DataFusion only counts what it copied. But lists of values keep whole buffers of their input alive (those behind string
//! views are not counted at all), and the result, or what is spilled, is a copy of everything that was collected.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayData, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{AggregateFunctionParams, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};
use datafusion::physical_expr::expressions::Literal;

/// The function that keeps its input as it came.
const KEEPING: &str = "array_agg";
/// The function that gives the value at a place.
const PLACED: &str = "nth_value";

/// The functions, and how many times their values are there while they give them. Texts and lists grow by doubling, those of
/// one group become a value and then an array.
const GATHERING: [(&str, usize); 7] = [
    (KEEPING, 3),
    ("string_agg", 3),
    ("first_value", 2),
    ("last_value", 2),
    (PLACED, 2),
    ("median", 2),
    ("percentile_cont", 2),
];

/// Bytes per row of a list beside its value: where it lies, to which group it belongs, and where it goes.
const ROW: usize = 32;

/// Puts the functions in the place of DataFusion's.
///
/// # Errors
/// Those of the registry.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    for (name, copies) in GATHERING {
        let inner = state.aggregate_functions().get(name).map(Arc::clone);
        let Some(inner) = inner else { return internal_err!("there is no function `{name}`") };
        state.register_udaf(around(inner, copies))?;
    }
    Ok(())
}

fn around(inner: Arc<AggregateUDF>, copies: usize) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(CollectingAggregate { inner, copies }))
}

/// An aggregate of DataFusion with a truthful size.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CollectingAggregate {
    inner: Arc<AggregateUDF>,
    copies: usize,
}

impl CollectingAggregate {
    /// Refuses a place that no value has; DataFusion takes it for a fault of its own, and turns the smallest number around.
    fn has_place(&self, args: &AccumulatorArgs<'_>) -> Result<()> {
        let place =
            args.exprs.get(1).filter(|_| self.inner.name() == PLACED).and_then(|at| at.downcast_ref::<Literal>());
        if matches!(place.map(Literal::value), Some(ScalarValue::Int64(Some(0 | i64::MIN)))) {
            return plan_err!("`{PLACED}` counts values from 1, or from -1 backwards");
        }
        Ok(())
    }

    /// How the size follows from what the function says.
    fn sizes(&self, args: &AccumulatorArgs<'_>) -> Sizes {
        let keeps = self.inner.name() == KEEPING && !args.is_distinct && args.order_bys.is_empty();
        Sizes { copies: self.copies, kept: keeps.then(HeldBuffers::default) }
    }
}

impl AggregateUDFImpl for CollectingAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.schema_name(params)
    }

    fn human_display(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.human_display(params)
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_schema_name(params)
    }

    fn display_name(&self, params: &AggregateFunctionParams) -> Result<String> {
        self.inner.display_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> Result<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(fields)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.has_place(&args)?;
        let sizes = self.sizes(&args);
        Ok(Box::new(CollectingAccumulator { inner: self.inner.accumulator(args)?, sizes }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        // What windows give is counted by whoever puts them around.
        self.inner.create_sliding_accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let sizes = self.sizes(&args);
        Ok(Box::new(Groups { inner: self.inner.create_groups_accumulator(args)?, sizes }))
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = AggregateUDF::clone(&self.inner).with_beneficial_ordering(is_ordered)?;
        let copies = self.copies;
        let around = |inner| -> Arc<dyn AggregateUDFImpl> { Arc::new(Self { inner: Arc::new(inner), copies }) };
        Ok(inner.map(around))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.inner.simplify()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(around(inner, self.copies)),
            other => other,
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn default_value(&self, kind: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(kind)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(kind)
    }
}

/// What makes the size of all that is held out of the size that a function tells.
#[derive(Debug)]
struct Sizes {
    copies: usize,
    /// Of a function that keeps its input.
    kept: Option<HeldBuffers>,
}

impl Sizes {
    fn see(&mut self, values: &[ArrayRef]) {
        if let (Some(kept), Some(values)) = (&mut self.kept, values.first()) {
            kept.rows += rows_of(values);
            kept.add(&values.to_data());
        }
    }

    fn of(&self, told: usize) -> usize {
        match &self.kept {
            // What it tells is the copy that it gives.
            Some(kept) => told.saturating_add(kept.bytes).saturating_add(kept.rows.saturating_mul(ROW)),
            None => told.saturating_mul(self.copies),
        }
    }

    /// Some groups are gone, or all: the function told the one size before, and tells the other one now.
    fn gave(&mut self, is_all: bool, before: usize, after: usize) {
        let Some(kept) = &mut self.kept else { return };
        if is_all {
            *kept = HeldBuffers::default();
            return;
        }
        let part = |all: usize| (all as u128 * after as u128 / before.max(1) as u128) as usize;
        *kept = HeldBuffers { buffers: HashSet::new(), bytes: part(kept.bytes), rows: part(kept.rows) };
    }
}

/// Rows of an array, or of the lists that it has.
fn rows_of(values: &ArrayRef) -> usize {
    let data = values.to_data();
    data.child_data().first().map_or(0, ArrayData::len).max(data.len())
}

/// Buffers of input, each counted once however many batches are cut out of it.
#[derive(Debug, Default)]
struct HeldBuffers {
    buffers: HashSet<usize>,
    bytes: usize,
    rows: usize,
}

impl HeldBuffers {
    fn add(&mut self, data: &ArrayData) {
        for buffer in data.buffers() {
            if self.buffers.insert(buffer.data_ptr().addr().get()) {
                self.bytes = self.bytes.saturating_add(buffer.capacity());
            }
        }
        for child in data.child_data() {
            self.add(child);
        }
    }
}

/// The values of one group.
#[derive(Debug)]
struct CollectingAccumulator {
    inner: Box<dyn Accumulator>,
    sizes: Sizes,
}

impl Accumulator for CollectingAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sizes.see(values);
        self.inner.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.sizes.see(states);
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.sizes.of(self.inner.size())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }
}

/// The values of all groups.
struct Groups {
    inner: Box<dyn GroupsAccumulator>,
    sizes: Sizes,
}

impl Groups {
    fn give<T>(&mut self, emit: EmitTo, give: impl FnOnce(&mut dyn GroupsAccumulator) -> Result<T>) -> Result<T> {
        let is_all = matches!(emit, EmitTo::All);
        let before = if is_all { 0 } else { self.inner.size() };
        let given = give(&mut *self.inner)?;
        let after = if is_all { 0 } else { self.inner.size() };
        self.sizes.gave(is_all, before, after);
        Ok(given)
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.sizes.see(values);
        self.inner.update_batch(values, groups, filter, total)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.sizes.see(states);
        self.inner.merge_batch(states, groups, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        self.give(emit, |inner| inner.evaluate(emit))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.give(emit, |inner| inner.state(emit))
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.sizes.of(self.inner.size())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, StringArray, StringViewArray};
    use arrow::buffer::Buffer;
    use arrow::datatypes::{Field, Schema};
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
    use datafusion::physical_expr::expressions::{Column, lit};

    use super::*;

    const ROWS: usize = 100;
    const TEXT: usize = 10_000;

    fn call(name: &str, kind: DataType) -> AggregateFunctionExpr {
        let mut state = SessionStateBuilder::new().with_default_features().build();
        register(&mut state).unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("a", kind, true)]));
        let mut args: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("a", 0))];
        if name == "string_agg" {
            args.push(lit(","));
        }
        let function = Arc::clone(&state.aggregate_functions()[name]);
        AggregateExprBuilder::new(function, args).schema(schema).alias("a").build().unwrap()
    }

    fn texts() -> Vec<String> {
        (0..ROWS).map(|n| format!("{n:0>TEXT$}")).collect()
    }

    #[test]
    fn texts_behind_views_count_once_and_until_they_are_given() {
        let array: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts()));
        let held: usize = array.to_data().buffers().iter().map(Buffer::capacity).sum();
        assert!(held >= ROWS * TEXT);
        let mut groups = call(KEEPING, DataType::Utf8View).create_groups_accumulator().unwrap();
        let half = |from: usize| [array.slice(from, ROWS / 2)];
        let of_groups: Vec<usize> = (0..ROWS / 2).map(|row| row % 2).collect();
        groups.update_batch(&half(0), &of_groups, None, 2).unwrap();
        let size = groups.size();
        assert!(size >= held, "{size}");
        groups.update_batch(&half(ROWS / 2), &of_groups, None, 2).unwrap();
        assert!(groups.size() < size + TEXT, "{}", groups.size());
        let first = groups.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(first.as_list::<i32>().value(0).len(), ROWS / 2);
        assert!(groups.size() < size, "{}", groups.size());
        groups.evaluate(EmitTo::All).unwrap();
        assert!(groups.size() < TEXT, "{}", groups.size());
        let mut one = call(KEEPING, DataType::Utf8View).create_accumulator().unwrap();
        one.update_batch(&[Arc::clone(&array)]).unwrap();
        assert!(one.size() >= held, "{}", one.size());
    }

    #[test]
    fn what_is_given_counts_before_it_is_made() {
        let array: ArrayRef = Arc::new(StringArray::from(texts()));
        for (name, copies) in [(KEEPING, 2), ("string_agg", 3)] {
            let mut groups = call(name, DataType::Utf8).create_groups_accumulator().unwrap();
            let each: Vec<usize> = (0..ROWS).collect();
            // The separator is an argument, too; the function knows it already.
            let values = vec![Arc::clone(&array); if name == "string_agg" { 2 } else { 1 }];
            groups.update_batch(&values, &each, None, ROWS).unwrap();
            assert!(groups.size() >= copies * ROWS * TEXT, "{name}: {}", groups.size());
            assert_eq!(groups.evaluate(EmitTo::All).unwrap().len(), ROWS, "{name}");
        }
    }
}
