//! Aggregation of all rows into a single group, by DataFusion's plain (not grouped) accumulator.
//!
//! Without group keys, DataFusion's final aggregation merges the states of plain accumulators, and those of grouped
//! ones may differ: for `approx_distinct` the one holds registers and the other a list of hashes, for `corr` means
//! against sums.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

/// A single accumulator that serves as a [`GroupsAccumulator`] of one group.
pub(super) struct Alone(pub(super) Box<dyn Accumulator>);

impl GroupsAccumulator for Alone {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        _groups: &[usize],
        kept: Option<&BooleanArray>,
        _total: usize,
    ) -> Result<()> {
        let Some(kept) = kept else { return self.0.update_batch(values) };
        if kept.true_count() == 0 {
            return Ok(());
        }
        let values = values.iter().map(|value| Ok(filter(&**value, kept)?)).collect::<Result<Vec<_>>>()?;
        self.0.update_batch(&values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], _groups: &[usize], _total: usize) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn evaluate(&mut self, _emit: EmitTo) -> Result<ArrayRef> {
        self.0.evaluate()?.to_array()
    }

    fn state(&mut self, _emit: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state()?.iter().map(ScalarValue::to_array).collect()
    }

    fn convert_to_state(&self, _values: &[ArrayRef], _kept: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        internal_err!("rows without groups are always aggregated")
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}
