//! Aggregates over the spans of a trace: `span_tree(…)` says of each span who called it and which entry it belongs to,
//! `trace_shape(…)` what the trace is as a whole, `critical_path(…)` which of them its end waits for, and how long.
//!
//! All take `(span_id, parent_span_id, kind, service_name, name, start, end, is_error, mark)`: times in ns, `mark` a text of
//! which equal ones are counted under one parent (`span_tree`), `database` and `external` (`trace_shape`), or any
//! (`critical_path`, which gives it back). Reports of one
//! span are merged; the halves of a shared id are two. What a group holds are bytes, so that its size is known and its state
//! travels as it is (with offsets of 64 bits: all groups together may be large).
//!
//! What is said of single spans takes several times as much as these. Plans therefore have `packed_spans(…)`, which gives the
//! bytes, in the place of `span_tree` and `critical_path`, and unpack few traces at a time above it (`relational/span_trees`).

mod fields;
mod outcome;
mod path;
mod rows;
mod unpacked;

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, LargeBinaryArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ScalarUDF, Signature, Volatility,
};

use outcome::Outcome;
use rows::Columns;
use unpacked::states;
pub(crate) use unpacked::{UNPACKED_ROWS, is_unpacking, unpacking};

/// One of the functions.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Trees {
    outcome: Outcome,
    signature: Signature,
}

pub(crate) fn functions() -> [Arc<AggregateUDF>; 4] {
    [Outcome::Tree, Outcome::Shape, Outcome::Path, Outcome::Packed].map(function)
}

/// Gives those that unpack what `packed_spans` gives; users cannot call them.
pub(super) fn scalars() -> impl Iterator<Item = Arc<ScalarUDF>> {
    unpacked::functions()
}

/// Gives `packed_spans`, whose arguments are those of the other functions.
pub(crate) fn packed_spans() -> Arc<AggregateUDF> {
    function(Outcome::Packed)
}

fn function(outcome: Outcome) -> Arc<AggregateUDF> {
    let text = DataType::Utf8View;
    let types = [vec![text.clone(); 5], vec![DataType::Int64; 2], vec![DataType::Boolean, text]].concat();
    let signature = Signature::exact(types, Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(Trees { outcome, signature }))
}

impl AggregateUDFImpl for Trees {
    fn name(&self) -> &'static str {
        match self.outcome {
            Outcome::Tree => "span_tree",
            Outcome::Shape => "trace_shape",
            Outcome::Path => "critical_path",
            Outcome::Packed => "packed_spans",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.outcome.data_type())
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[spans]", args.name), DataType::LargeBinary, true))])
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(TreeAccumulator(Groups { outcome: self.outcome, spans: vec![Vec::new()], bytes: 0 })))
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Groups { outcome: self.outcome, spans: Vec::new(), bytes: 0 }))
    }
}

/// A group gets more room by this part of what it has.
const GROWN_PART: usize = 4;

/// The spans of each group, written one behind the other.
#[derive(Debug)]
struct Groups {
    outcome: Outcome,
    spans: Vec<Vec<u8>>,
    /// Room that all of them take.
    bytes: usize,
}

impl Groups {
    /// Adds spans to a group.
    fn append(&mut self, group: usize, written: &[u8]) {
        let spans = &mut self.spans[group];
        let before = spans.capacity();
        if before - spans.len() < written.len() {
            // Twice the room would be mostly unused: groups are many and small, and their states come at once.
            spans.reserve_exact(written.len().max(spans.len() / GROWN_PART));
        }
        spans.extend_from_slice(written);
        self.bytes += spans.capacity() - before;
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Vec<u8>> {
        let taken = emit_to.take_needed(&mut self.spans);
        self.bytes = self.spans.iter().map(Vec::capacity).sum();
        taken
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.spans.resize_with(total_num_groups, Vec::new);
        let columns = Columns::of(values)?;
        let mut written = Vec::new();
        for (row, group) in group_indices.iter().enumerate() {
            if opt_filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                written.clear();
                columns.write(row, &mut written);
                self.append(*group, &written);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let taken = self.take(emit_to);
        self.outcome.of(&taken)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let taken = self.take(emit_to);
        Ok(vec![Arc::new(LargeBinaryArray::from_iter_values(taken))])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.spans.resize_with(total_num_groups, Vec::new);
        let states = states(&values[0])?;
        for (row, group) in group_indices.iter().enumerate().filter(|(row, _)| states.is_valid(*row)) {
            self.append(*group, states.value(row));
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, Array::len);
        let mut each = Self { outcome: self.outcome, spans: Vec::new(), bytes: 0 };
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), opt_filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes + self.spans.capacity() * size_of::<Vec<u8>>()
    }
}

/// A single group.
#[derive(Debug)]
struct TreeAccumulator(Groups);

impl Accumulator for TreeAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, Array::len);
        self.0.update_batch(values, &vec![0; rows], None, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let array = self.0.outcome.of(&self.0.spans)?;
        ScalarValue::try_from_array(&array, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let spans = std::mem::take(&mut self.0.spans[0]);
        self.0.bytes = 0;
        Ok(vec![ScalarValue::LargeBinary(Some(spans))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, Array::len);
        GroupsAccumulator::merge_batch(&mut self.0, states, &vec![0; rows], 1)
    }
}

#[cfg(test)]
mod tests;
