//! Evaluates frames with an exclusion, one row after another.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray as _, BooleanArray};
use arrow::compute::{and, filter, is_not_null, partition};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::PartitionEvaluator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use serde::{Deserialize, Serialize};

use super::blocks::Blocks;

/// The rows that a frame excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Exclusion {
    /// The current row.
    CurrentRow,
    /// The current row and its peers.
    Group,
    /// The peers of the current row, but not itself.
    Ties,
}

impl Exclusion {
    /// The remaining ranges of a frame, in order.
    fn left(self, frame: &Range<usize>, group: &Range<usize>, row: usize) -> [Range<usize>; 3] {
        let within = |from: usize, to: usize| {
            let (from, to) = (from.max(frame.start), to.min(frame.end));
            if from < to { from..to } else { 0..0 }
        };
        match self {
            Self::CurrentRow => [within(0, row), 0..0, within(row + 1, usize::MAX)],
            Self::Group => [within(0, group.start), 0..0, within(group.end, usize::MAX)],
            Self::Ties => [within(0, group.start), within(row, row + 1), within(group.end, usize::MAX)],
        }
    }
}

/// The rows of a partition.
#[derive(Debug)]
struct Partition {
    blocks: Blocks,
    /// For each row how many rows before it satisfy the filter, and the total at the end; `None` if there is no
    /// filter.
    before: Option<Vec<usize>>,
    /// Groups of peers, from that of the current row on.
    groups: Vec<Range<usize>>,
    group: usize,
}

impl Partition {
    /// The peers of a row. Rows must be asked for in order.
    fn group_of(&mut self, row: usize) -> Range<usize> {
        while self.groups.get(self.group).is_some_and(|group| group.end <= row) {
            self.group += 1;
        }
        self.groups.get(self.group).cloned().unwrap_or(row..row + 1)
    }

    /// The range of those rows that satisfy the filter.
    fn counting(&self, rows: Range<usize>) -> Range<usize> {
        match &self.before {
            Some(before) => before[rows.start]..before[rows.end],
            None => rows,
        }
    }
}

/// An aggregate over the remaining rows of frames.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) aggregate: AggregateFunctionExpr,
    pub(super) exclusion: Exclusion,
    /// The number of arguments; sort keys follow them.
    pub(super) args: usize,
    /// Whether the first argument is the filter.
    pub(super) is_filtered: bool,
    /// Whether rows with a NULL value are ignored.
    pub(super) ignores_nulls: bool,
    pub(super) state: State,
}

/// The progress within a partition.
#[derive(Debug, Default)]
pub(super) struct State {
    rows: Option<Partition>,
    /// The current row.
    at: usize,
    /// The last frame and its result: peers often have the same one.
    last: Option<([Range<usize>; 3], ScalarValue)>,
}

impl Frames {
    fn rows(&self, values: &[ArrayRef]) -> Result<Partition> {
        let Some((args, keys)) = values.split_at_checked(self.args) else {
            return internal_err!("a window lacks arguments");
        };
        // Without an order all rows are peers.
        let all = args.first().map_or(0, Array::len);
        let groups = if keys.is_empty() { std::iter::once(0..all).collect() } else { partition(keys)?.ranges() };
        let (condition, args) = args.split_at(usize::from(self.is_filtered));
        let mut kept = match condition.first() {
            Some(condition) => match condition.as_boolean_opt() {
                Some(condition) => Some(condition.clone()),
                None => return internal_err!("a condition holds or not"),
            },
            None => None,
        };
        if let (true, Some(value)) = (self.ignores_nulls, args.first()) {
            let is_there = is_not_null(value)?;
            kept = Some(match kept {
                Some(kept) => and(&kept, &is_there)?,
                None => is_there,
            });
        }
        let rows = match &kept {
            Some(kept) => args.iter().map(|column| filter(column, kept)).collect::<Result<Vec<_>, _>>()?,
            None => args.to_vec(),
        };
        let blocks = Blocks::new(&self.aggregate, rows)?;
        Ok(Partition { blocks, before: kept.as_ref().map(before), groups, group: 0 })
    }
}

/// For each row how many rows before it satisfy a condition, and the total at the end.
fn before(condition: &BooleanArray) -> Vec<usize> {
    let mut count = 0;
    let behind = condition.iter().map(|holds| {
        count += usize::from(holds == Some(true));
        count
    });
    std::iter::once(0).chain(behind).collect()
}

impl PartitionEvaluator for Frames {
    /// Called for the rows of a partition in order.
    fn evaluate(&mut self, values: &[ArrayRef], frame: &Range<usize>) -> Result<ScalarValue> {
        if self.state.rows.is_none() {
            self.state.rows = Some(self.rows(values)?);
        }
        let row = self.state.at;
        self.state.at += 1;
        let Some(rows) = &mut self.state.rows else { return internal_err!("a window lacks rows") };
        let group = rows.group_of(row);
        let left = self.exclusion.left(frame, &group, row).map(|part| rows.counting(part));
        if let Some((last, value)) = &self.state.last
            && *last == left
        {
            return Ok(value.clone());
        }
        let mut accumulator = self.aggregate.create_accumulator()?;
        for part in &left {
            rows.blocks.add(part.clone(), &mut *accumulator)?;
        }
        let value = accumulator.evaluate()?;
        self.state.last = Some((left, value.clone()));
        Ok(value)
    }

    fn uses_window_frame(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_rows_out() {
        let left = |exclusion: Exclusion, frame: Range<usize>| {
            let parts = exclusion.left(&frame, &(3..6), 4);
            parts.into_iter().filter(|part| !part.is_empty()).flatten().collect::<Vec<_>>()
        };
        for (exclusion, frame, expected) in [
            (Exclusion::CurrentRow, 2..8, vec![2, 3, 5, 6, 7]),
            (Exclusion::CurrentRow, 4..5, vec![]),
            (Exclusion::CurrentRow, 0..2, vec![0, 1]),
            (Exclusion::Group, 2..8, vec![2, 6, 7]),
            (Exclusion::Group, 0..4, vec![0, 1, 2]),
            (Exclusion::Group, 5..7, vec![6]),
            (Exclusion::Group, 7..9, vec![7, 8]),
            (Exclusion::Group, 3..6, vec![]),
            (Exclusion::Ties, 2..8, vec![2, 4, 6, 7]),
            // The current row is not in its frame.
            (Exclusion::Ties, 1..4, vec![1, 2]),
            (Exclusion::Ties, 5..8, vec![6, 7]),
            (Exclusion::Ties, 4..5, vec![4]),
            (Exclusion::Ties, 0..0, vec![]),
        ] {
            assert_eq!(left(exclusion, frame.clone()), expected, "{exclusion:?} {frame:?}");
        }
    }

    #[test]
    fn rows_are_counted_where_a_condition_holds() {
        assert_eq!(before(&BooleanArray::from(vec![Some(true), None, Some(false), Some(true)])), [0, 1, 1, 1, 2]);
        assert_eq!(before(&BooleanArray::from(Vec::<bool>::new())), [0]);
    }
}
