//! Limits on nesting: readers of protocol buffers accept a hundred nested messages, and recursion needs stack.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use datafusion::common::exec_err;
use datafusion::error::Result;

/// Levels of nodes or of an expression that are nested messages; deeper levels are stored as bytes.
const NESTED: usize = 8;
/// The deepest level that is accepted, far beyond plans of real queries.
const DEEPEST: usize = 256;

/// Counts the depth of a writer or reader within a plan or an expression.
#[derive(Debug, Default)]
pub(crate) struct Levels(AtomicUsize);

/// One level, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Level<'l> {
    levels: &'l Levels,
    depth: usize,
}

impl Levels {
    /// Enters a level; an error if it is too deep.
    pub(crate) fn enter(&self) -> Result<Level<'_>> {
        let depth = self.0.fetch_add(1, Relaxed) + 1;
        let level = Level { levels: self, depth };
        if depth > DEEPEST { exec_err!("a plan of more than {DEEPEST} levels is not written") } else { Ok(level) }
    }
}

impl Level<'_> {
    /// Whether this level is stored as bytes.
    pub(crate) fn is_deep(&self) -> bool {
        self.depth.is_multiple_of(NESTED)
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.levels.0.fetch_sub(1, Relaxed);
    }
}
