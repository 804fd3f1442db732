//! Window functions with long results: each row gets everything in its frame (`string_agg(x, ',') OVER (ORDER BY t)`),
//! or a long string of another row. The result is charged to the query before it is built, since a few thousand rows
//! may need more memory than any machine has.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::{SortOptions, filter};
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::{
    AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, StateFieldsArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, Expr, LimitEffect, PartitionEvaluator, ReversedUDAF,
    ReversedUDWF, SetMonotonicity, Signature, TypeSignature, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition, WindowUDF, WindowUDFImpl, cast,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use quiver_types::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use super::frame_exclusion::exclusion;
use super::result_memory::{BYTES_MAX, Room};
use super::result_size;
use crate::error::to_datafusion;

/// Bytes that are asked for at once.
const STEP: usize = 64 << 10;
/// Rows whose values are there at once where a window gives rows as they come.
const KEPT: usize = 2 * 8192;
/// Functions that go on with each row, if their frame does.
const STREAMING: [&str; 8] =
    ["row_number", "rank", "dense_rank", "lag", "lead", "first_value", "last_value", "nth_value"];

/// Whether a call needs all rows before it gives the first.
pub(super) fn collects(expr: &Expr) -> bool {
    let call = match expr {
        Expr::Alias(alias) => return collects(&alias.expr),
        Expr::WindowFunction(call) => call,
        _ => return false,
    };
    let is_streaming = match &call.fun {
        WindowFunctionDefinition::AggregateUDF(_) => true,
        WindowFunctionDefinition::WindowUDF(function) => STREAMING.contains(&function.name()),
    };
    !is_streaming || call.params.window_frame.end_bound.is_unbounded() || exclusion(&call.params).is_some()
}

/// Whether a call is of an aggregate with a condition (FILTER). It becomes an argument: as such it is a part of the call that
/// whoever has the plan can see.
pub(super) fn is_filtered(call: &WindowFunction) -> bool {
    call.params.filter.is_some() && matches!(&call.fun, WindowFunctionDefinition::AggregateUDF(_))
}

/// The call, with values that count if they may be long.
pub(super) fn counted(call: WindowFunction, collects: bool, is_long: bool, room: &Room) -> WindowFunction {
    let WindowFunction { fun, mut params } = call;
    let of = MemoryPolicy { collects, is_long, room: room.clone() };
    let fun = match fun {
        WindowFunctionDefinition::AggregateUDF(inner) => {
            let name = inner.window_function_schema_name(&params).ok();
            // Who has one value for all rows must see all of them, too.
            let is_constant = is_constant(&params);
            let condition = params.filter.take();
            let mut signature = inner.signature().clone();
            let is_filtered = condition.is_some();
            if let Some(condition) = condition {
                // NULL alone is of no type.
                params.args.insert(0, cast(*condition, DataType::Boolean));
                signature = Signature::any(params.args.len(), signature.volatility);
            }
            let counted = CountedAggregate { inner, of, name, is_constant, is_filtered, signature };
            WindowFunctionDefinition::AggregateUDF(Arc::new(AggregateUDF::new_from_impl(counted)))
        }
        WindowFunctionDefinition::WindowUDF(inner) => WindowFunctionDefinition::WindowUDF(of.function(inner)),
    };
    WindowFunction { fun, params }
}

/// Whether all rows of a partition have the same frame.
fn is_constant(params: &WindowFunctionParams) -> bool {
    let frame = &params.window_frame;
    let is_whole = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range && params.order_by.is_empty(),
        other => other.is_unbounded(),
    };
    frame.start_bound.is_unbounded() && is_whole(&frame.end_bound)
}

/// Bytes of a value; one that is cut out of others does not have theirs.
fn bytes_of(value: &ScalarValue) -> Result<usize> {
    if !value.data_type().is_nested() {
        return Ok(value.size());
    }
    Ok(result_size::bytes_of(value.to_array()?.as_ref())?.max(0) as usize)
}

/// How values of a window count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MemoryPolicy {
    /// Whether all of them are there at the end.
    collects: bool,
    /// Whether they may be long; others do not count.
    is_long: bool,
    room: Room,
}

impl MemoryPolicy {
    fn begin(&self) -> Result<WindowMemory> {
        let memory = self.room.take(0)?;
        let (collects, is_long) = (self.collects, self.is_long);
        Ok(WindowMemory { collects, is_long, memory, owed: 0, recent: VecDeque::new() })
    }

    fn function(&self, inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
        Arc::new(WindowUDF::new_from_impl(CountedFunction { inner, of: self.clone() }))
    }
}

/// What was given, as far as it is still there.
#[derive(Debug)]
struct WindowMemory {
    collects: bool,
    is_long: bool,
    memory: MemoryReservation,
    /// Bytes that are not asked for yet.
    owed: usize,
    /// Bytes of the last values, where those before them are gone.
    recent: VecDeque<usize>,
}

impl WindowMemory {
    fn add(&mut self, bytes: usize) -> Result<()> {
        self.owed += bytes;
        if !self.collects {
            self.recent.push_back(bytes);
            if self.recent.len() > KEPT {
                let gone = self.recent.pop_front().unwrap_or(0);
                let paid = gone.min(self.memory.size());
                self.memory.shrink(paid);
                self.owed = self.owed.saturating_sub(gone - paid);
            }
        }
        if self.owed >= STEP {
            self.memory.try_grow(self.owed)?;
            self.owed = 0;
        }
        Ok(())
    }
}

/// An aggregate over frames.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedAggregate {
    inner: Arc<AggregateUDF>,
    of: MemoryPolicy,
    /// The name of its column, where it can be told.
    name: Option<String>,
    /// Whether one value is for all rows of a partition.
    is_constant: bool,
    /// Whether its first argument is the condition of its rows.
    is_filtered: bool,
    signature: Signature,
}

impl CountedAggregate {
    /// Its own arguments, or what belongs to them.
    fn own<'a, T>(&self, of: &'a [T]) -> &'a [T] {
        if self.is_filtered { of.get(1..).unwrap_or_default() } else { of }
    }

    fn own_args<'a>(&self, mut args: AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        args.exprs = self.own(args.exprs);
        args.expr_fields = self.own(args.expr_fields);
        args
    }

    fn counting(&self, inner: Box<dyn Accumulator>) -> Result<Box<dyn Accumulator>> {
        let (given, rows) = (self.of.begin()?, self.is_constant.then_some(0));
        Ok(Box::new(Frames { inner, given, rows, is_filtered: self.is_filtered }))
    }
}

impl AggregateUDFImpl for CountedAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Columns keep the names that they had.
    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> Result<String> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => self.inner.window_function_schema_name(params),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(self.own(types))
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.inner.return_field(self.own(fields))
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.counting(self.inner.accumulator(self.own_args(args))?)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.counting(self.inner.create_sliding_accumulator(self.own_args(args))?)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(StateFieldsArgs { input_fields: self.own(args.input_fields), ..args })
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Identical => ReversedUDAF::Identical,
            _ => ReversedUDAF::NotSupported,
        }
    }

    fn default_value(&self, kind: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(kind)
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(kind)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// An aggregate over frames, but for the aggregate itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AggregateParts {
    collects: bool,
    is_long: bool,
    name: Option<String>,
    is_constant: bool,
    /// How many arguments there are, where the first one is the condition of its rows.
    filtered: Option<usize>,
}

/// Takes an aggregate over frames apart; `None`: it is none of these.
pub(super) fn aggregate_parts(function: &AggregateUDF) -> Option<(AggregateParts, Arc<AggregateUDF>)> {
    let counted: &CountedAggregate = function.inner().downcast_ref()?;
    let filtered = match counted.signature.type_signature {
        TypeSignature::Any(args) if counted.is_filtered => Some(args),
        _ => None,
    };
    let (collects, is_long) = (counted.of.collects, counted.of.is_long);
    let (name, is_constant) = (counted.name.clone(), counted.is_constant);
    Some((AggregateParts { collects, is_long, name, is_constant, filtered }, Arc::clone(&counted.inner)))
}

/// Puts it together again.
pub(super) fn aggregate_of(parts: AggregateParts, inner: Arc<AggregateUDF>, room: &Room) -> Arc<AggregateUDF> {
    let AggregateParts { collects, is_long, name, is_constant, filtered } = parts;
    let mut signature = inner.signature().clone();
    if let Some(args) = filtered {
        signature = Signature::any(args, signature.volatility);
    }
    let of = MemoryPolicy { collects, is_long, room: room.clone() };
    let is_filtered = filtered.is_some();
    let counted = CountedAggregate { inner, of, name, is_constant, is_filtered, signature };
    Arc::new(AggregateUDF::new_from_impl(counted))
}

/// Takes a function of rows around apart: whether all of its values are there at the end, and the function within.
pub(super) fn function_parts(function: &WindowUDF) -> Option<(bool, Arc<WindowUDF>)> {
    let counted: &CountedFunction = function.inner().downcast_ref()?;
    Some((counted.of.collects, Arc::clone(&counted.inner)))
}

/// Puts it together again.
pub(super) fn function_of(collects: bool, inner: Arc<WindowUDF>, room: &Room) -> Arc<WindowUDF> {
    MemoryPolicy { collects, is_long: true, room: room.clone() }.function(inner)
}

/// The values of frames.
#[derive(Debug)]
struct Frames {
    inner: Box<dyn Accumulator>,
    given: WindowMemory,
    /// Rows that get the one value, where there is one.
    rows: Option<usize>,
    is_filtered: bool,
}

impl Frames {
    /// The values without the condition, where it holds.
    fn own(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let [condition, values @ ..] = values else { return internal_err!("a condition is the first argument") };
        let Some(condition) = condition.as_boolean_opt() else { return internal_err!("a condition holds or not") };
        values.iter().map(|array| -> Result<ArrayRef> { Ok(filter(array, condition)?) }).collect()
    }
}

impl Accumulator for Frames {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let (Some(rows), Some(first)) = (&mut self.rows, values.first()) {
            *rows += first.len();
        }
        if !self.is_filtered {
            return self.inner.update_batch(values);
        }
        let own = Self::own(values)?;
        self.inner.update_batch(&own)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if !self.is_filtered {
            return self.inner.retract_batch(values);
        }
        let own = Self::own(values)?;
        self.inner.retract_batch(&own)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = self.inner.evaluate()?;
        if self.given.is_long {
            self.given.add(bytes_of(&value)?.saturating_mul(self.rows.unwrap_or(1).max(1)))?;
        }
        Ok(value)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }
}

/// A function of rows around.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountedFunction {
    inner: Arc<WindowUDF>,
    of: MemoryPolicy,
}

impl WindowUDFImpl for CountedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, args: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        // What rows at the ends get: it is no value of any row.
        let other = args.input_exprs().get(2).and_then(|expr| expr.downcast_ref::<Literal>());
        let other = other.map_or(0, |literal| literal.value().size().saturating_sub(size_of::<ScalarValue>()));
        let given = self.of.begin()?;
        Ok(Box::new(Rows { inner: self.inner.partition_evaluator_factory(args)?, given, other }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.field(args)
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.reverse_expr() {
            ReversedUDWF::Reversed(inner) => ReversedUDWF::Reversed(self.of.function(inner)),
            other => other,
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

/// The values of rows.
#[derive(Debug)]
struct Rows {
    inner: Box<dyn PartitionEvaluator>,
    given: WindowMemory,
    /// Bytes of a value that is no row's.
    other: usize,
}

impl PartitionEvaluator for Rows {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let most = self.other as i128 * rows as i128;
        if most > BYTES_MAX {
            let text = format!("a window would give {most} bytes at once, at most {BYTES_MAX} are allowed");
            return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
        }
        let array = self.inner.evaluate_all(values, rows)?;
        self.given.add(array.get_buffer_memory_size())?;
        Ok(array)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let value = self.inner.evaluate(values, range)?;
        self.given.add(bytes_of(&value)?)?;
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        self.inner.evaluate_all_with_rank(rows, ranks)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}

#[cfg(test)]
mod tests;
