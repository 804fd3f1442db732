//! A function at work, as DataFusion drives it.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::args::{Arg, Args};
use super::registry::Function;
use super::state::{GroupRows, Results, Rows, StatsState};

/// A function at work: for groups, and as a plain accumulator for one.
#[derive(Debug)]
pub struct StatsAccumulator {
    function: Function,
    args: Arc<[Arg]>,
    state: Box<dyn StatsState>,
    /// The group of each row for the plain accumulator, which has the one group 0.
    zeros: Vec<usize>,
}

impl StatsAccumulator {
    /// Begins a function over columns that are as `args` says.
    pub fn new(function: Function, args: Arc<[Arg]>) -> Self {
        let state = function.state();
        Self { function, args, state, zeros: Vec::new() }
    }

    /// Makes room for so many groups.
    pub(crate) fn resize(&mut self, groups: usize) {
        self.state.resize(groups);
    }

    /// Adds the rows of a batch that a filter lets through.
    pub(crate) fn add(
        &mut self,
        values: &[ArrayRef],
        rows: &GroupRows<'_>,
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.state.resize(total);
        let mut args = Args::new(&self.args, values)?;
        args.rows = rows.rows;
        self.state.update(&args, &Rows::of(rows, filter));
        Ok(())
    }

    fn results(&mut self, emit: EmitTo) -> ArrayRef {
        let mut out = Results::new();
        self.state.finish(emit, &mut out);
        out.finish()
    }
}

impl GroupsAccumulator for StatsAccumulator {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.add(values, &GroupRows { rows: groups.len(), groups, runs: &[], with_units: None }, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(self.results(emit))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.state.state(emit))
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.state.resize(total);
        self.state.merge(values, groups)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, Array::len);
        let groups: Vec<usize> = (0..rows).collect();
        let mut own = Self::new(self.function.clone(), Arc::clone(&self.args));
        GroupsAccumulator::update_batch(&mut own, values, &groups, filter, rows)?;
        Ok(own.state.state(EmitTo::All))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state.size()
    }
}

impl Accumulator for StatsAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, Array::len);
        let mut zeros = std::mem::take(&mut self.zeros);
        zeros.resize(rows.max(zeros.len()), 0);
        let done = GroupsAccumulator::update_batch(self, values, &zeros[..rows], None, 1);
        self.zeros = zeros;
        done
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.state.resize(1);
        ScalarValue::try_from_array(&self.results(EmitTo::All), 0)
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(self) + self.zeros.capacity() * size_of::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.state.resize(1);
        self.state.state(EmitTo::All).iter().map(|array| ScalarValue::try_from_array(array, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let groups = vec![0; states.first().map_or(0, Array::len)];
        GroupsAccumulator::merge_batch(self, states, &groups, 1)
    }
}
