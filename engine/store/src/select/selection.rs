//! Locates the samples of selected series: for each source, its series and their rows.

use std::fmt::Write as _;
use std::sync::Arc;

use quiver_types::Matcher;

use super::pruning::PruningResult;
use crate::memtable::Generation;
use crate::part::{ChosenSeries, Part};

/// The samples of a `SelectedSeries`. It holds the parts and generations that it refers to, so that they stay readable.
///
/// Rows are in series order, and so are the series of a part: reading a source in order of rows reads it from front to
/// back.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Number of series.
    pub(crate) rows: usize,
    /// Parts by time; only those with rows.
    pub(crate) parts: Vec<PartRows>,
    /// Generations, oldest first; only those with rows.
    pub(crate) live: Vec<LiveRows>,
    /// Live data of writes after this number is not read.
    pub(crate) seq: u64,
    /// What pruning by the catalog excluded.
    pub(crate) pruned: PruningResult,
    /// The selector, for `explain`.
    pub(crate) selector: String,
    /// Number of rows that are not wanted after all; no source has them.
    pub(crate) dropped: usize,
    /// Number of series of all sources that were searched, selected or not.
    pub(crate) considered: u64,
}

impl Selection {
    /// Drops the rows that are `false` in `keep`; the others keep their numbers.
    pub(crate) fn kept(&self, keep: &[bool]) -> Self {
        let wanted = |row: &u32| keep.get(*row as usize).copied().unwrap_or(true);
        let filter = |rows: &[u32], others: &[u32]| -> (Vec<u32>, Vec<u32>) {
            rows.iter().zip(others).filter(|(row, _)| wanted(row)).unzip()
        };
        let parts = self.parts.iter().filter_map(|part| {
            let (rows, numbers) = filter(&part.rows, &part.numbers);
            let (rows, numbers) = (Arc::new(rows), Arc::new(numbers));
            let (source, series) = (Arc::clone(&part.part), Arc::clone(&part.series));
            (!rows.is_empty()).then_some(PartRows { part: source, series, rows, numbers })
        });
        let live = self.live.iter().filter_map(|live| {
            let (rows, slots) = filter(&live.rows, &live.slots);
            let generation = Arc::clone(&live.generation);
            let may_have_histograms = live.may_have_histograms;
            (!rows.is_empty()).then_some(LiveRows { generation, rows, slots, may_have_histograms })
        });
        Self {
            rows: self.rows,
            parts: parts.collect(),
            live: live.collect(),
            seq: self.seq,
            pruned: self.pruned,
            selector: self.selector.clone(),
            considered: self.considered,
            dropped: (0..self.rows as u32).filter(|row| !wanted(row)).count(),
        }
    }

    /// Tells whether any series may have native histograms.
    pub(crate) fn has_histograms(&self) -> bool {
        self.live.iter().any(|live| live.may_have_histograms) || self.parts.iter().any(PartRows::has_histograms)
    }
}

/// Series of a part; `rows` and `numbers` have one entry per series, both ascending.
#[derive(Debug)]
pub(crate) struct PartRows {
    pub(crate) part: Arc<Part>,
    pub(crate) series: Arc<ChosenSeries>,
    pub(crate) rows: Arc<Vec<u32>>,
    pub(crate) numbers: Arc<Vec<u32>>,
}

impl PartRows {
    /// Tells whether any of these series has native histograms in the part.
    pub(crate) fn has_histograms(&self) -> bool {
        self.part.meta.has_histograms && self.numbers.iter().any(|&number| self.series.hists(number).rows > 0)
    }
}

/// Series of a generation; `rows` must be ascending.
#[derive(Debug)]
pub(crate) struct LiveRows {
    pub(crate) generation: Arc<Generation>,
    pub(crate) rows: Vec<u32>,
    pub(crate) slots: Vec<u32>,
    /// Whether any of them may have native histograms.
    pub(crate) may_have_histograms: bool,
}

/// Writes selectors in PromQL syntax.
pub(crate) fn selector_text(selectors: &[Vec<Matcher>]) -> String {
    let mut out = String::new();
    for (n, matchers) in selectors.iter().enumerate() {
        out.push_str(if n == 0 { "{" } else { " or {" });
        for (i, m) in matchers.iter().enumerate() {
            let _ = write!(out, "{}{m:?}", if i == 0 { "" } else { "," });
        }
        out.push('}');
    }
    if out.is_empty() { "{}".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use quiver_types::{MatchOp, MillisRange};

    use super::super::testing::{Item, World, labels, wait};
    use super::*;

    #[test]
    fn selectors_are_written_as_they_are_asked() {
        let check = |selectors: &[Vec<Matcher>], expected: &str| assert_eq!(selector_text(selectors), expected);
        let matcher = |op: MatchOp, value: &str| Matcher::new("l", op, value).unwrap();
        check(&[], "{}");
        check(&[vec![]], "{}");
        check(&[vec![Matcher::equal("job", "a\"b")]], r#"{job="a\"b"}"#);
        let all = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex].map(|op| matcher(op, "x"));
        check(&[all.to_vec()], r#"{l="x",l!="x",l=~"x",l!~"x"}"#);
        check(&[vec![matcher(MatchOp::Equal, "")], vec![]], r#"{l=""} or {}"#);
    }

    /// Removes rows that are not wanted from every source; the others keep their numbers.
    #[test]
    fn rows_are_left_out_of_all_sources() {
        let item = |name: &str, ts: i64| (labels(&[("__name__", name)]), ts, Item::Float(1.0, 0));
        let mut world = World::new();
        world.add_part(&[item("a", 1), item("b", 1), item("c", 1)]);
        world.add_part(&[item("b", 5000)]);
        let generation = world.add_generation();
        world.insert(generation, &[item("d", 9000), item("a", 9000)]);
        let selection = wait(world.selection(vec![], MillisRange::ALL));
        let rows = |selection: &Selection| {
            let of_parts: Vec<Vec<u32>> = selection.parts.iter().map(|part| part.rows.to_vec()).collect();
            let of_live: Vec<Vec<u32>> = selection.live.iter().map(|live| live.rows.clone()).collect();
            (of_parts, of_live, selection.rows, selection.dropped)
        };
        assert_eq!(rows(&selection), (vec![vec![0, 1, 2], vec![1]], vec![vec![0, 3]], 4, 0));
        let kept = selection.kept(&[true, false, true, true]);
        assert_eq!(rows(&kept), (vec![vec![0, 2]], vec![vec![0, 3]], 4, 1));
        assert_eq!(kept.parts[0].numbers[..], [0, 2], "numbers stay beside their rows");
        assert_eq!(rows(&selection.kept(&[false, false, true, false])), (vec![vec![2]], vec![], 4, 3));
        // Rows that the list does not reach are wanted.
        assert_eq!(rows(&selection.kept(&[false])), (vec![vec![1, 2], vec![1]], vec![vec![3]], 4, 1));
        assert!(!selection.has_histograms());
    }
}
