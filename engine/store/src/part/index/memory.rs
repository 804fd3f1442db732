//! Where the rows of each label are, and the index of a part that has none on disk.

use std::sync::Arc;

use super::super::pairs::{PairTable, Postings};

/// Where the rows of each label are: names ascending, and where each begins, then the number of all rows.
#[derive(Debug)]
pub(in crate::part) struct Directory {
    pub(super) names: Vec<Arc<str>>,
    pub(super) starts: Vec<u64>,
}

impl Directory {
    /// Reads `[["label", first row, rows], …]`.
    pub(in crate::part) fn parse(text: &str, rows: u64) -> Option<Self> {
        let list: Vec<(String, u64, u64)> = serde_json::from_str(text).ok()?;
        let (mut names, mut starts): (Vec<Arc<str>>, _) = (Vec::with_capacity(list.len()), vec![0]);
        for (name, first, len) in list {
            if starts.last() != Some(&first) || names.last().is_some_and(|last| **last >= *name) {
                return None;
            }
            names.push(Arc::from(name));
            starts.push(first.checked_add(len)?);
        }
        (starts.last() == Some(&rows)).then_some(Self { names, starts })
    }
}

/// The index of a part without one on disk, or with an older one.
#[derive(Debug)]
pub(crate) struct MemoryIndex {
    pub(super) directory: Directory,
    pub(super) table: PairTable,
    /// Pairs by name and value.
    pub(super) order: Vec<u32>,
    pub(super) postings: Postings,
}

impl MemoryIndex {
    /// Turns a table of pairs around.
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

    /// Gives the value of a row.
    pub(super) fn value(&self, row: u64) -> &str {
        self.table.value(self.order[row as usize])
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = self.table.memory_bytes() + 4 * self.order.len() + self.postings.memory_bytes() + 1024;
        (bytes + self.directory.names.len() * 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_no_gaps() {
        let check = |text: &str, good: bool| assert_eq!(Directory::parse(text, 5).is_some(), good, "{text}");
        check(r#"[["a",0,2],["b",2,3]]"#, true);
        check(r#"[["a",0,2],["b",2,2]]"#, false);
        check(r#"[["a",0,2],["b",3,2]]"#, false);
        check(r#"[["b",0,2],["a",2,3]]"#, false);
        check("{}", false);
    }
}
