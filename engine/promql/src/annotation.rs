//! Warnings and infos of a query: texts with the place that they are about.
//!
//! Texts as in Prometheus 3.14 `util/annotations`; the answer shows `PromQL warning: TEXT (line:column)`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};

use serde::{Deserialize, Serialize};

use crate::ast::PosRange;
use crate::quantile::ForcedMonotonicity;

/// How grave an annotation is, as Prometheus tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// `PromQL warning`: the answer may be wrong.
    Warning,
    /// `PromQL info`: the answer may surprise.
    Info,
}

/// Where in a query an annotation arises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AnnotationPlace {
    /// The expression that the annotation names.
    pub shown: PosRange,
    /// The expression that is evaluated just before, by which annotations are ordered. It differs from `shown` for
    /// parameters and for results of subqueries.
    pub evaluated: PosRange,
}

impl From<PosRange> for AnnotationPlace {
    fn from(pos: PosRange) -> Self {
        Self { shown: pos, evaluated: pos }
    }
}

impl AnnotationPlace {
    fn order(self) -> impl Ord {
        // What ends later is evaluated later, and what encloses another after that other.
        (self.evaluated.end, Reverse(self.evaluated.start))
    }
}

/// What an annotation adds to its text, summed over all annotations with that text.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Detail {
    Nothing,
    /// How often it happened.
    Occurrences(u64),
    Lifted(ForcedMonotonicity),
}

impl Detail {
    /// Adds the detail of another annotation with the same text. Returns whether the two could be added up.
    fn add(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Occurrences(n), Self::Occurrences(more)) => *n += more,
            (Self::Lifted(fix), Self::Lifted(more)) => fix.merge(more),
            _ => return false,
        }
        true
    }

    fn text(&self) -> String {
        match self {
            Self::Occurrences(n) if *n > 1 => format!(" ({n} occurrences)"),
            Self::Nothing | Self::Occurrences(_) => String::new(),
            Self::Lifted(fix) => format!(", {fix}"),
        }
    }
}

/// Annotations of a query. A text is kept once, with the place that is evaluated last, as in Prometheus: the same
/// complaint about many parts of a query is one complaint. What is added up has the place that is evaluated first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    items: BTreeMap<(Level, String), (AnnotationPlace, Detail)>,
    /// Files that could not be read.
    left_out: Vec<String>,
}

impl Annotations {
    /// Adds a warning; `text` has neither prefix nor position.
    pub fn warn(&mut self, place: impl Into<AnnotationPlace>, text: impl Into<String>) {
        self.add((Level::Warning, text.into()), place.into(), Detail::Nothing);
    }

    /// Adds a warning about what happened `times` times.
    pub fn warn_of_many(&mut self, place: impl Into<AnnotationPlace>, text: impl Into<String>, times: u64) {
        self.add((Level::Warning, text.into()), place.into(), Detail::Occurrences(times));
    }

    /// Adds an info, as [`Self::warn`] adds a warning.
    pub fn info(&mut self, place: impl Into<AnnotationPlace>, text: impl Into<String>) {
        self.add((Level::Info, text.into()), place.into(), Detail::Nothing);
    }

    /// Adds an info about counts of buckets that were lifted.
    pub fn info_of_lifted(
        &mut self,
        place: impl Into<AnnotationPlace>,
        text: impl Into<String>,
        fix: ForcedMonotonicity,
    ) {
        self.add((Level::Info, text.into()), place.into(), Detail::Lifted(fix));
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
        for (text, (place, detail)) in other.items {
            self.add(text, place, detail);
        }
    }

    fn add(&mut self, text: (Level, String), place: AnnotationPlace, detail: Detail) {
        let (known_place, known_detail) = match self.items.entry(text) {
            Entry::Vacant(entry) => {
                entry.insert((place, detail));
                return;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let (order, known_order) = (place.order(), known_place.order());
        let replaces = if known_detail.add(&detail) { order < known_order } else { order > known_order };
        if replaces {
            *known_place = place;
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
        let shown = of_level.map(|((_, text), (AnnotationPlace { shown: pos, .. }, detail))| {
            let (line, column) = *places.entry(pos.start).or_insert_with(|| line_column(query, pos.start as usize));
            format!("{prefix}{text}{} ({line}:{column})", detail.text())
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
            for (shown, evaluated) in order {
                a.warn(AnnotationPlace { shown, evaluated }, "x");
            }
            assert_eq!(a.texts(Level::Warning, text), ["PromQL warning: x (1:10)"], "{order:?}");
        }
    }

    /// `f(a) + f(b)`: what both say is one, about the first of them.
    #[test]
    fn what_is_added_up_has_the_first_place() {
        let fix = |max_bucket: f64, ts: i64| {
            ForcedMonotonicity::new(crate::quantile::Fix { min_bucket: 1.0, max_bucket, max_diff: 2.0 }, ts)
        };
        let parts = [(2, 1, fix(2.0, 1000)), (9, 3, fix(5.0, 0))];
        for order in [parts, [parts[1], parts[0]]] {
            let mut a = Annotations::default();
            for (start, times, fix) in order {
                let mut b = Annotations::default();
                let pos = PosRange { start, end: start + 1 };
                b.warn_of_many(pos, "x", times);
                b.info_of_lifted(pos, "y", fix);
                a.merge(b);
            }
            assert_eq!(a.texts(Level::Warning, "f(a) + f(b)"), ["PromQL warning: x (4 occurrences) (1:3)"]);
            let lifted = "from buckets 1 to 5, with a max diff of 2, over 2 samples from 1970-01-01T00:00:00Z to \
                          1970-01-01T00:00:01Z";
            assert_eq!(a.texts(Level::Info, "f(a) + f(b)"), [format!("PromQL info: y, {lifted} (1:3)")]);
        }
        let mut once = Annotations::default();
        once.warn_of_many(PosRange::default(), "x", 1);
        assert_eq!(once.texts(Level::Warning, ""), ["PromQL warning: x (1:1)"]);
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
