//! How deep a form nests: readers of protocol buffers follow a hundred messages down and no further, and whoever calls
//! himself for each level needs stack.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use datafusion::common::exec_err;
use datafusion::error::Result;

/// Levels of nodes, or of an expression, that are written as messages within messages; those below come as bytes.
const NESTED: usize = 8;
/// Levels that are followed at all. Plans that queries make are far from it.
const DEEPEST: usize = 256;

/// Counts how deep in a plan or an expression a writer or reader is.
#[derive(Debug, Default)]
pub(crate) struct Levels(AtomicUsize);

/// One level, until it is dropped.
#[derive(Debug)]
pub(crate) struct Level<'l> {
    levels: &'l Levels,
    depth: usize,
}

impl Levels {
    /// Goes one level down.
    pub(crate) fn enter(&self) -> Result<Level<'_>> {
        let depth = self.0.fetch_add(1, Relaxed) + 1;
        let level = Level { levels: self, depth };
        if depth > DEEPEST { exec_err!("a plan of more than {DEEPEST} levels is not written") } else { Ok(level) }
    }
}

impl Level<'_> {
    /// Whether what stands here comes as bytes.
    pub(crate) fn is_deep(&self) -> bool {
        self.depth.is_multiple_of(NESTED)
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.levels.0.fetch_sub(1, Relaxed);
    }
}
