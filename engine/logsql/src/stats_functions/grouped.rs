//! States that are one value per group and travel as bytes.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray};
use arrow::buffer::OffsetBuffer;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::logical_expr::EmitTo;

use super::args::Args;
use super::state::{Results, Rows, StatsState};
use super::state_bytes::Reader;

/// What a function keeps for one group.
pub(super) trait GroupState: Debug + Default + Send + Sync + 'static {
    /// What the function was called with.
    type Config: Debug + Send + Sync + 'static;
    /// How often the bytes of states are there at most: as they grow, written out, and as the text of the result.
    const COPIES: usize = 3;
    /// Adds a row. Gives the bytes by which the state has grown.
    fn add(&mut self, config: &Self::Config, args: &Args<'_>, row: usize, buffer: &mut String) -> usize;
    /// Adds rows that follow each other; gives the bytes like [`Self::add`].
    fn add_run(&mut self, config: &Self::Config, args: &Args<'_>, rows: Range<usize>, buffer: &mut String) -> usize {
        rows.map(|row| self.add(config, args, row, buffer)).sum()
    }
    /// Appends the state as bytes, for [`Self::merge`] in another accumulator.
    fn encode(&self, out: &mut Vec<u8>);
    /// Adds a state that was written. Gives the bytes by which the own one has grown.
    fn merge(&mut self, config: &Self::Config, from: &mut Reader<'_>) -> Result<usize>;
    /// Appends the text of the result; an empty text is a missing value.
    fn finish(self, config: &Self::Config, out: &mut String);
}

/// Bytes of a state that go as well as come. They count as far as they are more than ever before: what grows and shrinks
/// by turns takes no more than it took at most.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    now: usize,
    most: usize,
}

impl Bytes {
    /// How many there are.
    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// Says how many there are from now on. Gives by how many they are more than ever before.
    pub(super) fn set(&mut self, now: usize) -> usize {
        let grown = now.saturating_sub(self.most);
        self.now = now;
        self.most += grown;
        grown
    }
}

/// All groups of a function.
#[derive(Debug)]
pub(super) struct GroupedStates<G: GroupState> {
    config: G::Config,
    groups: Vec<G>,
    /// Bytes beyond the states themselves.
    heap: usize,
    buffer: String,
}

impl<G: GroupState> GroupedStates<G> {
    pub(super) fn new(config: G::Config) -> Self {
        Self { config, groups: Vec::new(), heap: 0, buffer: String::new() }
    }

    /// Takes groups out, and a fair part of their bytes.
    fn take(&mut self, emit: EmitTo) -> Vec<G> {
        let before = self.groups.len().max(1);
        let taken = emit.take_needed(&mut self.groups);
        self.heap -= (self.heap / before) * taken.len();
        if self.groups.is_empty() {
            self.heap = 0;
        }
        taken
    }
}

impl<G: GroupState> StatsState for GroupedStates<G> {
    fn resize(&mut self, groups: usize) {
        if groups > self.groups.len() {
            self.groups.resize_with(groups, G::default);
        }
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let Self { config, groups, heap, buffer } = self;
        match rows.runs() {
            Some(runs) => {
                for (group, rows) in runs {
                    *heap += groups[*group].add_run(config, args, rows.clone(), buffer);
                }
            }
            None => rows.each(|row, group| *heap += groups[group].add(config, args, row, buffer)),
        }
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let states = states
            .first()
            .and_then(|s| s.as_binary_opt::<i64>())
            .ok_or_else(|| exec_datafusion_err!("a state of `stats` is of another type"))?;
        for (row, &group) in groups.iter().enumerate() {
            if states.is_valid(row) {
                self.heap += self.groups[group].merge(&self.config, &mut Reader(states.value(row)))?;
            }
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        let groups = self.take(emit);
        // All below each other: a set of some megabytes is written once, and not copied.
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(groups.len() + 1));
        ends.push(0i64);
        for group in groups {
            group.encode(&mut bytes);
            ends.push(bytes.len() as i64);
        }
        vec![Arc::new(LargeBinaryArray::new(OffsetBuffer::new(ends.into()), bytes.into(), None))]
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        for group in self.take(emit) {
            out.push(|text| group.finish(&self.config, text));
        }
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<G>() + G::COPIES * self.heap
    }
}
