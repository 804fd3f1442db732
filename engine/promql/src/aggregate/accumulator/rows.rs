//! Keeps input rows unchanged, for `quantile`, which needs all values of a group at once.

use super::state_columns::Parts;
use crate::quantile::quantile;

/// When a block has this many values, the next row starts a new block.
const BLOCK_VALUES: usize = 128 * 1024;

/// Rows in blocks, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Rows {
    blocks: Vec<RowBlock>,
}

#[derive(Debug, Default)]
struct RowBlock {
    /// Group of each row.
    groups: Vec<u32>,
    /// Values by step, row by row.
    values: Vec<f64>,
    /// Which of the values are present.
    present: Vec<bool>,
}

impl RowBlock {
    fn is_full(&self) -> bool {
        self.values.len() >= BLOCK_VALUES
    }

    fn into_parts(self) -> Parts {
        Parts { groups: self.groups, numbers: vec![self.values], flags: vec![self.present], hists: vec![] }
    }
}

impl Rows {
    /// Restores rows from parts.
    pub(super) fn of_parts(parts: Parts) -> Self {
        let Parts { groups, numbers, flags, .. } = parts;
        let (values, present) = (numbers.into_iter().next(), flags.into_iter().next());
        let (values, present) = (values.unwrap_or_default(), present.unwrap_or_default());
        Self { blocks: vec![RowBlock { groups, values, present }] }
    }

    /// Gives all rows.
    pub(super) fn into_parts(self) -> Vec<Parts> {
        self.blocks.into_iter().map(RowBlock::into_parts).collect()
    }

    /// Removes and returns the full blocks.
    pub(super) fn take_full(&mut self) -> Vec<Parts> {
        let full = self.blocks.iter().take_while(|block| block.is_full()).count();
        self.blocks.drain(..full).map(RowBlock::into_parts).collect()
    }

    /// Adds a row whose values start at step `first`.
    pub(super) fn push(&mut self, group: u32, first: usize, values: &[f64], present: &[bool], steps: usize) {
        if !present.contains(&true) {
            return;
        }
        if self.blocks.last().is_none_or(RowBlock::is_full) {
            self.blocks.push(RowBlock::default());
        }
        let Some(block) = self.blocks.last_mut() else { return };
        let (start, end) = (block.values.len() + first, block.values.len() + steps);
        block.groups.push(group);
        block.values.resize(start, 0.0);
        block.values.extend_from_slice(values);
        block.values.resize(end, 0.0);
        block.present.resize(start, false);
        block.present.extend_from_slice(present);
        block.present.resize(end, false);
    }

    /// Appends later rows.
    pub(super) fn append(&mut self, mut others: Self) {
        self.blocks.append(&mut others.blocks);
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_block = |block: &RowBlock| {
            let (groups, values) =
                (block.groups.capacity() * size_of::<u32>(), block.values.capacity() * size_of::<f64>());
            groups + values + block.present.capacity()
        };
        self.blocks.iter().map(of_block).sum()
    }

    /// The quantiles of each group by step, and whether each is present.
    pub(super) fn quantiles(&self, param: &[f64], groups: usize, steps: usize) -> (Vec<f64>, Vec<bool>) {
        let places = Places::new(&self.blocks, groups);
        let (mut values, mut seen) = (vec![f64::NAN; groups * steps], vec![false; groups * steps]);
        let mut column = Vec::new();
        for (slot, (value, seen)) in values.iter_mut().zip(&mut seen).enumerate() {
            let (group, step) = (slot / steps, slot % steps);
            column.clear();
            column.extend(places.of(group).iter().filter_map(|&(block, row)| {
                let (block, at) = (&self.blocks[block as usize], row as usize * steps + step);
                block.present[at].then(|| block.values[at])
            }));
            *seen = !column.is_empty();
            let q = if param.len() == 1 { param.first() } else { param.get(step) };
            *value = quantile(q.copied().unwrap_or(f64::NAN), &mut column);
        }
        (values, seen)
    }
}

/// Positions of each group's rows, in order of arrival.
struct Places {
    /// Start of each group's positions, followed by the end.
    starts: Vec<usize>,
    /// Block, and row within it.
    places: Vec<(u32, u32)>,
}

impl Places {
    fn new(blocks: &[RowBlock], groups: usize) -> Self {
        let mut starts = vec![0; groups + 1];
        blocks.iter().flat_map(|block| &block.groups).for_each(|&group| starts[group as usize + 1] += 1);
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut places = vec![(0, 0); starts[groups]];
        for (number, block) in blocks.iter().enumerate() {
            for (row, &group) in block.groups.iter().enumerate() {
                let next = &mut next[group as usize];
                places[*next] = (number as u32, row as u32);
                *next += 1;
            }
        }
        Self { starts, places }
    }

    fn of(&self, group: usize) -> &[(u32, u32)] {
        &self.places[self.starts[group]..self.starts[group + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_blocks_leave_and_the_order_stays() {
        let (steps, mut rows, mut left) = (BLOCK_VALUES / 2, Rows::default(), Rows::default());
        for row in 0..5 {
            let first = usize::from(row == 4);
            rows.push(row % 2, first, &[f64::from(row)], &[true], steps);
            rows.take_full().into_iter().for_each(|parts| left.append(Rows::of_parts(parts)));
        }
        rows.push(0, 0, &[7.0], &[false], steps);
        assert_eq!((left.blocks.len(), rows.blocks.len(), rows.blocks[0].groups.len()), (2, 1, 1));
        left.append(rows);
        let places = Places::new(&left.blocks, 3);
        assert_eq!(places.of(0), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!((places.of(1), places.of(2)), (&[(0, 1), (1, 1)][..], &[][..]));
        let (values, seen) = left.quantiles(&[1.0], 3, steps);
        assert_eq!((values[0], values[1], values[steps]), (2.0, 4.0, 3.0));
        assert_eq!((seen[0], seen[1], seen[2], seen[2 * steps]), (true, true, false, false));
    }
}
