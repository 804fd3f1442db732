//! Warnings and infos of a query: texts with the place that they are about.
//!
//! Texts as in Prometheus 3.14 `util/annotations`; the answer shows `PromQL warning: TEXT (line:column)`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::ast::PosRange;

/// How grave an annotation is, as Prometheus tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// `PromQL warning`: the answer may be wrong.
    Warning,
    /// `PromQL info`: the answer may surprise.
    Info,
}

/// What an annotation is about, and what is evaluated just before it is made: both are one, but for parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    shown: PosRange,
    evaluated: PosRange,
}

/// Annotations of a query. A text is kept once, with the place that is evaluated last, as in Prometheus: the same
/// complaint about many parts of a query is one complaint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    items: BTreeMap<(Level, String), Place>,
    /// Files that could not be read.
    left_out: Vec<String>,
}

impl Annotations {
    /// Adds a warning about the expression at `pos`; `text` has neither prefix nor position.
    pub fn warn(&mut self, pos: PosRange, text: impl Into<String>) {
        self.add((Level::Warning, text.into()), Place { shown: pos, evaluated: pos });
    }

    /// Adds a warning about the parameter at `pos` of something that works on the vector at `operand`, which is evaluated
    /// before the parameter is looked at.
    pub fn warn_of_param(&mut self, pos: PosRange, operand: PosRange, text: impl Into<String>) {
        self.add((Level::Warning, text.into()), Place { shown: pos, evaluated: operand });
    }

    /// Adds an info about the expression at `pos`, as [`Self::warn`] adds a warning.
    pub fn info(&mut self, pos: PosRange, text: impl Into<String>) {
        self.add((Level::Info, text.into()), Place { shown: pos, evaluated: pos });
    }

    /// Adds warnings about files that could not be read, each as it is.
    pub fn leave_out(&mut self, files: impl IntoIterator<Item = String>) {
        self.left_out.extend(files);
        self.left_out.sort_unstable();
        self.left_out.dedup();
    }

    /// Gives the warnings about files.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Takes over all of another.
    pub fn merge(&mut self, other: Self) {
        self.leave_out(other.left_out);
        for (text, place) in other.items {
            self.add(text, place);
        }
    }

    fn add(&mut self, text: (Level, String), place: Place) {
        // What ends later is evaluated later, and what encloses another after that other.
        let order = |place: Place| (place.evaluated.end, Reverse(place.evaluated.start));
        let last = self.items.entry(text).or_insert(place);
        if order(place) > order(*last) {
            *last = place;
        }
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.left_out.is_empty()
    }

    /// Gives the texts of a level as clients see them.
    pub fn texts(&self, level: Level, query: &str) -> Vec<String> {
        let prefix = match level {
            Level::Warning => "PromQL warning: ",
            Level::Info => "PromQL info: ",
        };
        let of_level = self.items.iter().filter(|((l, _), _)| *l == level);
        let files = if level == Level::Warning { &self.left_out[..] } else { &[] };
        // Texts are many where each metric has one, and then they are about one place.
        let mut places: HashMap<u32, (usize, usize)> = HashMap::new();
        let shown = of_level.map(|((_, text), Place { shown: pos, .. })| {
            let (line, column) = *places.entry(pos.start).or_insert_with(|| line_column(query, pos.start as usize));
            format!("{prefix}{text} ({line}:{column})")
        });
        files.iter().cloned().chain(shown).collect()
    }
}

/// Gives line and column of a byte, both from 1; columns count bytes.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.split(|&b| b == b'\n').count();
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

    #[test]
    fn each_text_once() {
        let mut a = Annotations::default();
        for start in [7, 3] {
            a.info(PosRange { start, end: start + 2 }, "x");
            a.warn(PosRange { start, end: 9 }, format!("y{start}"));
        }
        assert_eq!(a.texts(Level::Info, "0123456789"), ["PromQL info: x (1:8)"]);
        let warnings = a.texts(Level::Warning, "0123456789");
        assert_eq!(warnings, ["PromQL warning: y3 (1:4)", "PromQL warning: y7 (1:8)"]);
    }

    /// `f(g(h))` evaluates `h` before `g(h)`, whichever of them is told first.
    #[test]
    fn what_encloses_others_comes_after_them() {
        let (inner, outer) = (PosRange { start: 4, end: 5 }, PosRange { start: 2, end: 6 });
        let same_end = PosRange { start: 3, end: 6 };
        for order in [[inner, outer, same_end], [outer, same_end, inner], [same_end, inner, outer]] {
            let mut a = Annotations::default();
            for pos in order {
                let mut b = Annotations::default();
                b.info(pos, "x");
                a.warn(pos, "x");
                a.merge(b);
            }
            assert_eq!(a.texts(Level::Warning, "f(g(h))"), ["PromQL warning: x (1:3)"], "{order:?}");
            assert_eq!(a.texts(Level::Info, "f(g(h))"), ["PromQL info: x (1:3)"], "{order:?}");
        }
    }

    /// `quantile(2, quantile(2, x))`: the outer parameter is looked at last, though it stands first.
    #[test]
    fn parameters_come_after_what_they_are_applied_to() {
        let text = "quantile(2, quantile(2, x))";
        let outer = (PosRange { start: 9, end: 10 }, PosRange { start: 12, end: 26 });
        let inner = (PosRange { start: 21, end: 22 }, PosRange { start: 24, end: 25 });
        for order in [[inner, outer], [outer, inner]] {
            let mut a = Annotations::default();
            for (pos, operand) in order {
                a.warn_of_param(pos, operand, "x");
            }
            assert_eq!(a.texts(Level::Warning, text), ["PromQL warning: x (1:10)"], "{order:?}");
        }
    }

    #[test]
    fn places_at_the_ends_of_texts() {
        for (text, offset, place) in [
            ("", 0, (1, 1)),
            ("", 9, (1, 1)),
            ("ab", 2, (1, 3)),
            ("ab", 99, (1, 3)),
            ("\n", 0, (1, 1)),
            ("\n", 1, (2, 1)),
            ("a\n\nb", 3, (3, 1)),
            ("a\r\nb", 3, (2, 1)),
            ("ü+", 2, (1, 3)),
        ] {
            assert_eq!(line_column(text, offset), place, "{text:?} at {offset}");
        }
    }

    #[test]
    fn files_come_first_and_each_once() {
        let (mut a, mut b) = (Annotations::default(), Annotations::default());
        assert!(a.is_empty());
        a.leave_out(["f2".to_owned(), "f1".to_owned()]);
        assert!(!a.is_empty());
        b.leave_out(["f1".to_owned(), "f0".to_owned()]);
        b.warn(PosRange { start: 5, end: 6 }, "x");
        b.info(PosRange { start: 1, end: 6 }, "x");
        a.warn(PosRange { start: 2, end: 3 }, "x");
        a.merge(b);
        assert_eq!(a.left_out(), ["f0", "f1", "f2"]);
        assert_eq!(a.texts(Level::Warning, "0123456789"), ["f0", "f1", "f2", "PromQL warning: x (1:6)"]);
        assert_eq!(a.texts(Level::Info, "0123456789"), ["PromQL info: x (1:2)"]);
    }
}
