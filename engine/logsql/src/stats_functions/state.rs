//! What a function keeps for all groups.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, StringViewBuilder};
use arrow::buffer::BooleanBuffer;
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;

use super::args::Args;
use crate::kernels::columns::{NumberRule, TextColumn};

/// State of one function over groups that are numbered from 0.
pub(super) trait StatsState: Debug + Send + Sync + 'static {
    /// Makes room for so many groups.
    fn resize(&mut self, groups: usize);
    /// Adds the rows of a batch, each to its group.
    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>);
    /// Adds states of other accumulators: row i belongs to group `groups[i]`.
    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()>;
    /// Takes out the state of the first groups; those that are left are numbered from 0 again.
    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef>;
    /// Takes out the results of the first groups, as texts; those that are left are numbered from 0 again.
    fn finish(&mut self, emit: EmitTo, out: &mut Results);
    /// Bytes that the state takes in memory, about.
    fn size(&self) -> usize;
}

/// Which rows of a batch are added to which group.
pub(super) struct Rows<'a> {
    groups: &'a [usize],
    /// The same as runs of rows of one group; none when they are many.
    runs: &'a [(usize, Range<usize>)],
    filter: Option<&'a BooleanArray>,
    with_units: Option<&'a BooleanBuffer>,
}

impl<'a> Rows<'a> {
    /// The rows of a batch that a filter lets through.
    pub(super) fn of(rows: &GroupRows<'a>, filter: Option<&'a BooleanArray>) -> Self {
        Self { groups: rows.groups, runs: rows.runs, filter, with_units: rows.with_units }
    }

    /// Runs of rows of one group, if they are few and no row is left out.
    pub(super) fn runs(&self) -> Option<&[(usize, Range<usize>)]> {
        (self.filter.is_none() && !self.runs.is_empty()).then_some(self.runs)
    }

    /// The numbers of a column, read by a rule where it holds for the row.
    pub(super) fn numbers(&self, column: &TextColumn, rows: usize, rule: NumberRule) -> Vec<f64> {
        let Some(with_units) = self.with_units.filter(|_| rule == NumberRule::Plain) else {
            return column.numbers(rows, rule);
        };
        match with_units.count_set_bits() {
            0 => column.numbers(rows, rule),
            all if all == rows => column.numbers(rows, NumberRule::Units),
            _ => {
                let (mut numbers, others) = (column.numbers(rows, rule), column.numbers(rows, NumberRule::Units));
                with_units.set_indices().for_each(|row| numbers[row] = others[row]);
                numbers
            }
        }
    }

    /// The rule that holds for a row.
    pub(super) fn rule_of(&self, row: usize, rule: NumberRule) -> NumberRule {
        match self.with_units {
            Some(with_units) if rule == NumberRule::Plain && with_units.value(row) => NumberRule::Units,
            _ => rule,
        }
    }

    /// Calls a function with each row and its group.
    #[inline]
    pub(super) fn each(&self, mut call: impl FnMut(usize, usize)) {
        match self.filter {
            None => self.groups.iter().enumerate().for_each(|(row, &group)| call(row, group)),
            Some(filter) => {
                for (row, &group) in self.groups.iter().enumerate() {
                    if filter.is_valid(row) && filter.value(row) {
                        call(row, group);
                    }
                }
            }
        }
    }
}

/// Which group each row of a batch belongs to.
#[derive(Debug)]
pub struct GroupRows<'a> {
    pub(crate) rows: usize,
    /// Group of each row; may be empty when there are runs and the function looks at nothing else.
    pub(crate) groups: &'a [usize],
    /// The same as runs of rows of one group; empty when they are many.
    pub(crate) runs: &'a [(usize, Range<usize>)],
    /// Rows of which functions that take plain numbers take values with units too.
    pub(crate) with_units: Option<&'a BooleanBuffer>,
}

/// Texts of results; an empty one is a missing value.
pub(super) struct Results {
    builder: StringViewBuilder,
    text: String,
}

impl Results {
    /// No results.
    pub(super) fn new() -> Self {
        Self { builder: StringViewBuilder::new(), text: String::new() }
    }

    /// Appends the text that a function writes.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut String)) {
        self.text.clear();
        write(&mut self.text);
        if self.text.is_empty() {
            self.builder.append_null();
        } else {
            self.builder.append_value(&self.text);
        }
    }

    /// The texts as a column.
    pub(super) fn finish(mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}
