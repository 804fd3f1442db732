//! Warnings and infos of a query: texts with the place that they are about.
//!
//! Texts as in Prometheus 3.14 `util/annotations`; the answer shows `PromQL warning: TEXT (line:column)`.

use std::collections::BTreeSet;

use crate::ast::PosRange;

/// Warning or info.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The answer may be wrong.
    Warning,
    /// The answer may surprise.
    Info,
}

/// Annotations of a query, each kept once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    items: BTreeSet<(Level, String, u32)>,
}

impl Annotations {
    /// Adds a warning about the expression at `pos`; `text` has neither prefix nor position.
    pub fn warn(&mut self, pos: PosRange, text: impl Into<String>) {
        self.items.insert((Level::Warning, text.into(), pos.start));
    }

    /// Adds an info, likewise.
    pub fn info(&mut self, pos: PosRange, text: impl Into<String>) {
        self.items.insert((Level::Info, text.into(), pos.start));
    }

    /// Takes over all of another.
    pub fn merge(&mut self, other: Self) {
        self.items.extend(other.items);
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Gives the texts of a level as clients see them.
    pub fn texts(&self, level: Level, query: &str) -> Vec<String> {
        let prefix = match level {
            Level::Warning => "PromQL warning: ",
            Level::Info => "PromQL info: ",
        };
        let shown = |(_, text, start): &(Level, String, u32)| {
            let (line, column) = line_column(query, *start as usize);
            format!("{prefix}{text} ({line}:{column})")
        };
        self.items.iter().filter(|i| i.0 == level).map(shown).collect()
    }
}

/// Gives line and column of a byte, both from 1; columns count bytes.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = before.len() - before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        assert_eq!(line_column("ab\ncd", 0), (1, 1));
        assert_eq!(line_column("ab\ncd", 4), (2, 2));
        let mut a = Annotations::default();
        a.warn(PosRange { start: 3, end: 5 }, "x");
        assert_eq!(a.texts(Level::Warning, "ab\ncd"), ["PromQL warning: x (2:1)"]);
    }
}
