//! The index of labels of a part that has none on disk, built in memory.

use std::sync::Arc;

use super::super::directory::Directory;
use super::super::label_pairs::{PairTable, Postings};

/// The index of a part without an index file, or with one in an older format.
#[derive(Debug)]
pub(crate) struct MemoryIndex {
    pub(super) directory: Directory,
    pub(super) table: PairTable,
    /// Pairs sorted by name and value; row numbers are indexes of this list.
    pub(super) order: Vec<u32>,
    pub(super) postings: Postings,
}

impl MemoryIndex {
    /// Builds the index by inverting a table of pairs.
    pub(super) fn new(mut table: PairTable) -> Self {
        let (order, postings) = (table.sorted(), table.postings());
        let (mut names, mut starts): (Vec<Arc<str>>, _) = (Vec::new(), vec![0u64]);
        for (row, &pair) in (1..).zip(&order) {
            if names.last().is_none_or(|name| **name != *table.name(pair)) {
                names.push(Arc::from(table.name(pair)));
                starts.push(row);
            }
            starts[names.len()] = row;
        }
        table.forget_series();
        Self { directory: Directory { names, starts }, table, order, postings }
    }

    /// The value of a row.
    pub(super) fn value(&self, row: u64) -> &str {
        self.table.value(self.order[row as usize])
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = self.table.memory_bytes() + 4 * self.order.len() + self.postings.memory_bytes() + 1024;
        (bytes + self.directory.names.len() * 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_nothing_has_no_rows() {
        let index = MemoryIndex::new(PairTable::default());
        assert_eq!((index.directory.names.len(), &index.directory.starts[..]), (0, &[0][..]));
        let mut table = PairTable::default();
        table.push([("a", "9"), ("b", "2")].into_iter());
        table.push(std::iter::empty());
        table.push([("b", "1")].into_iter());
        table.push([("b", "1")].into_iter());
        let before = table.memory_bytes();
        let index = MemoryIndex::new(table);
        assert_eq!(index.directory.starts, [0, 1, 3]);
        assert_eq!([0, 1, 2].map(|row| index.value(row)), ["9", "1", "2"]);
        assert_eq!(index.postings.of(index.order[1]), [2, 3]);
        assert!(index.table.memory_bytes() < before, "who has which pair stands in the postings alone");
    }
}
