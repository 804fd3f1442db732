//! Operators that keep some rows of each group: `topk`, `bottomk`, `limitk`, and the test of `limit_ratio`.

use quiver_types::Histogram;

use crate::annotation::Annotations;
use crate::ast::{AggregateOp, PosRange};
use crate::functions::ScalarSteps;
use crate::functions::annotations;

/// Collects the best rows per group and step.
///
/// Call [`RowSelector::fold`] for every row, in ascending order if possible: among equal values the earlier row is
/// kept. Memory: at most k entries per group and step.
#[derive(Debug)]
pub struct RowSelector {
    op: AggregateOp,
    steps: usize,
    /// k for each step, limited to the number of rows.
    k: Vec<usize>,
    /// One heap per group and step; the root is the entry to be replaced first.
    heaps: Vec<Vec<Entry>>,
    ignored_histograms: bool,
    pos: PosRange,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    value: f64,
    row: u32,
}

/// Which rows are kept, and at which steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Kept rows, ascending.
    pub rows: Vec<u32>,
    /// `rows.len() × steps`: whether the row is kept at the step.
    pub keep: Vec<bool>,
    /// The rows kept at the first step, by group, best first: the order of an instant query's result.
    pub order: Vec<u32>,
}

impl RowSelector {
    /// Creates a selector for `topk`, `bottomk` or `limitk`. `rows` is the number of input rows (a larger k makes no
    /// difference), `pos` the position of the whole aggregation.
    pub fn new(op: AggregateOp, groups: usize, steps: usize, k: &ScalarSteps<'_>, rows: usize, pos: PosRange) -> Self {
        let k = (0..steps).map(|s| (k.at(s).max(0.0) as usize).min(rows)).collect();
        Self { op, steps, k, heaps: vec![Vec::new(); groups * steps], ignored_histograms: false, pos }
    }

    /// Offers a row. `hists` are its histograms by step, which only `limitk` keeps.
    pub fn fold(&mut self, row: u32, group: u32, values: &[f64], present: &[bool], hists: &[(u32, Histogram)]) {
        let base = group as usize * self.steps;
        let heaps = &mut self.heaps[base..base + self.steps];
        for (step, ((&value, _), heap)) in
            values.iter().zip(present).zip(heaps).enumerate().filter(|(_, ((_, present), _))| **present)
        {
            offer(self.op, heap, self.k[step], Entry { value, row });
        }
        if self.op == AggregateOp::Limitk {
            for (step, _) in hists {
                let step = *step as usize;
                offer(self.op, &mut self.heaps[base + step], self.k[step], Entry { value: 0.0, row });
            }
        } else {
            self.ignored_histograms |= hists.iter().any(|(step, _)| self.k[*step as usize] > 0);
        }
    }

    /// Merges in the state of a selector with the same operator for other rows.
    pub fn merge(&mut self, other: Self) {
        self.ignored_histograms |= other.ignored_histograms;
        for (i, mut entries) in other.heaps.into_iter().enumerate() {
            entries.sort_by_key(|e| e.row);
            for entry in entries {
                offer(self.op, &mut self.heaps[i], self.k[i % self.steps], entry);
            }
        }
    }

    /// Numbers of the kept rows, ascending.
    pub fn rows(&self) -> Vec<u32> {
        let mut rows: Vec<u32> = self.heaps.iter().flatten().map(|e| e.row).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Gives the kept rows.
    pub fn finish(self, annotations: &mut Annotations) -> Selection {
        if self.ignored_histograms {
            annotations.info(self.pos, annotations::histogram_ignored_in_aggregation(self.op.as_str()));
        }
        let mut order = Vec::new();
        for heap in self.heaps.iter().step_by(self.steps.max(1)) {
            let mut best = heap.clone();
            best.sort_by(|a, b| if self.op == AggregateOp::Limitk { a.row.cmp(&b.row) } else { rank(self.op, a, b) });
            order.extend(best.iter().map(|e| e.row));
        }
        let rows = self.rows();
        let mut keep = vec![false; rows.len() * self.steps];
        for (i, heap) in self.heaps.iter().enumerate() {
            for entry in heap {
                let idx = rows.partition_point(|&r| r < entry.row);
                keep[idx * self.steps + i % self.steps] = true;
            }
        }
        Selection { rows, keep, order }
    }
}

/// Tells whether `a` is worse than `b`, and so closer to the root. NaN is worst.
fn is_worse(op: AggregateOp, a: &Entry, b: &Entry) -> bool {
    if a.value.is_nan() {
        return true;
    }
    if op == AggregateOp::Topk { a.value < b.value } else { a.value > b.value }
}

/// Orders from best to worst: NaN last, and earlier rows first among equals.
fn rank(op: AggregateOp, a: &Entry, b: &Entry) -> std::cmp::Ordering {
    let by_value = if op == AggregateOp::Topk { b.value.partial_cmp(&a.value) } else { a.value.partial_cmp(&b.value) };
    by_value.unwrap_or_else(|| a.value.is_nan().cmp(&b.value.is_nan())).then(a.row.cmp(&b.row))
}

fn offer(op: AggregateOp, heap: &mut Vec<Entry>, k: usize, entry: Entry) {
    if op == AggregateOp::Limitk {
        // A list sorted by row; lower rows win. Rows usually arrive in this order, too.
        if heap.len() < k || heap.last().is_some_and(|last| entry.row < last.row) {
            heap.truncate(k.saturating_sub(1));
            heap.insert(heap.partition_point(|e| e.row < entry.row), entry);
        }
        return;
    }
    if heap.len() < k {
        heap.push(entry);
        sift_up(op, heap);
        return;
    }
    let Some(root) = heap.first().copied() else { return };
    let better = if op == AggregateOp::Topk { root.value < entry.value } else { root.value > entry.value };
    if better || (root.value.is_nan() && !entry.value.is_nan()) {
        heap[0] = entry;
        sift_down(op, heap);
    }
}

fn sift_up(op: AggregateOp, heap: &mut [Entry]) {
    let mut i = heap.len() - 1;
    while i > 0 {
        let parent = (i - 1) / 2;
        if !is_worse(op, &heap[i], &heap[parent]) {
            break;
        }
        heap.swap(i, parent);
        i = parent;
    }
}

fn sift_down(op: AggregateOp, heap: &mut [Entry]) {
    let mut i = 0;
    loop {
        let left = 2 * i + 1;
        if left >= heap.len() {
            return;
        }
        let right = left + 1;
        let child = if right < heap.len() && is_worse(op, &heap[right], &heap[left]) { right } else { left };
        if !is_worse(op, &heap[child], &heap[i]) {
            return;
        }
        heap.swap(i, child);
        i = child;
    }
}

/// Tells whether `limit_ratio` keeps a row: if its hash, as a fraction of 1, is below the ratio; for a negative ratio
/// `r`, if it is above `1 + r`, so that `r` and `r - 1` are complementary. Ratios beyond 1 are capped; 0 keeps nothing.
pub fn ratio_keeps(ratio: f64, hash: u64) -> bool {
    let ratio = ratio.clamp(-1.0, 1.0);
    let offset = hash as f64 / u64::MAX as f64;
    if ratio == 0.0 {
        return false;
    }
    if ratio > 0.0 { offset < ratio } else { offset >= 1.0 + ratio }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn select(op: AggregateOp, k: f64, values: &[f64]) -> (Vec<u32>, Vec<u32>) {
        let mut s = RowSelector::new(op, 1, 1, &ScalarSteps::new(&[k]), values.len(), PosRange::default());
        for (row, &v) in values.iter().enumerate() {
            s.fold(row as u32, 0, &[v], &[true], &[]);
        }
        let got = s.finish(&mut Annotations::default());
        (got.rows, got.order)
    }

    #[test]
    fn nan_is_worst() {
        let values = [3.0, f64::NAN, 1.0, 5.0];
        assert_eq!(select(AggregateOp::Topk, 2.0, &values), (vec![0, 3], vec![3, 0]));
        assert_eq!(select(AggregateOp::Bottomk, 2.0, &values), (vec![0, 2], vec![2, 0]));
        assert_eq!(select(AggregateOp::Topk, 99.0, &values).1, [3, 0, 2, 1]);
        assert_eq!(select(AggregateOp::Topk, 0.5, &values).1, Vec::<u32>::new());
        assert_eq!(select(AggregateOp::Limitk, 2.0, &values), (vec![0, 1], vec![0, 1]));
    }

    #[test]
    fn by_step_and_group() {
        let mut s = RowSelector::new(AggregateOp::Topk, 2, 2, &ScalarSteps::new(&[1.0, 2.0]), 3, PosRange::default());
        s.fold(0, 0, &[1.0, 1.0], &[true, true], &[]);
        s.fold(1, 0, &[2.0, 0.0], &[true, true], &[]);
        s.fold(2, 1, &[9.0, 9.0], &[false, true], &[(0, Histogram::default())]);
        let mut annotations = Annotations::default();
        let got = s.finish(&mut annotations);
        assert_eq!(got.rows, [0, 1, 2]);
        assert_eq!(got.keep, [false, true, true, true, false, true]);
        assert_eq!(
            annotations.texts(crate::annotation::Level::Info, ""),
            ["PromQL info: ignored histogram in topk aggregation (1:1)"]
        );
    }

    #[test]
    fn ratios_complement_each_other() {
        for i in 0..1000_u64 {
            let hash = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_ne!(ratio_keeps(0.3, hash), ratio_keeps(-0.7, hash));
            assert!(ratio_keeps(1.1, hash) && ratio_keeps(-1.1, hash) && !ratio_keeps(0.0, hash));
        }
    }

    proptest! {
        #[test]
        fn keeps_what_sorting_keeps(values in prop::collection::vec(-100_i32..100, 1..40), k in 1_usize..50, cut in 0_usize..40) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let mut sorted = values.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted.truncate(k);
            let k = [k as f64];
            let make = || RowSelector::new(AggregateOp::Topk, 1, 1, &ScalarSteps::new(&k), values.len(), PosRange::default());
            let (mut a, mut b) = (make(), make());
            for (row, &v) in values.iter().enumerate() {
                if row < cut { &mut a } else { &mut b }.fold(row as u32, 0, &[v], &[true], &[]);
            }
            a.merge(b);
            let got: Vec<f64> = a.finish(&mut Annotations::default()).order.iter().map(|&r| values[r as usize]).collect();
            prop_assert_eq!(got, sorted);
        }
    }

    #[test]
    fn parts_of_the_rows_come_to_the_whole() {
        let values = [3.0, f64::NAN, 1.0, 5.0, 1.0, f64::NEG_INFINITY, 2.0, f64::INFINITY];
        for op in [AggregateOp::Topk, AggregateOp::Bottomk, AggregateOp::Limitk] {
            for k in 0..10 {
                let k = f64::from(k);
                let whole = select(op, k, &values);
                for cut in 0..=values.len() {
                    let steps = [k];
                    let make =
                        || RowSelector::new(op, 1, 1, &ScalarSteps::new(&steps), values.len(), PosRange::default());
                    let (mut first, mut second) = (make(), make());
                    for (row, &value) in values.iter().enumerate() {
                        if row < cut { &mut first } else { &mut second }.fold(row as u32, 0, &[value], &[true], &[]);
                    }
                    // Merging must work in both directions.
                    if cut % 2 == 0 {
                        std::mem::swap(&mut first, &mut second);
                    }
                    first.merge(second);
                    let got = first.finish(&mut Annotations::default());
                    if op == AggregateOp::Limitk {
                        assert_eq!((&got.rows, &got.order), (&whole.0, &whole.1), "{op:?} {k} {cut}");
                    } else {
                        // Equal values of one part may represent those of the other.
                        let kept =
                            |rows: &[u32]| rows.iter().map(|&r| values[r as usize].to_bits()).collect::<Vec<_>>();
                        assert_eq!(kept(&got.order), kept(&whole.1), "{op:?} {k} {cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn k_that_is_no_count_keeps_nothing() {
        for k in [-3.0, -0.0, 0.99, f64::NAN, f64::NEG_INFINITY] {
            for op in [AggregateOp::Topk, AggregateOp::Bottomk, AggregateOp::Limitk] {
                assert_eq!(select(op, k, &[1.0, 2.0]), (vec![], vec![]), "{op:?} {k}");
            }
        }
        assert_eq!(select(AggregateOp::Limitk, f64::INFINITY, &[1.0, 2.0]).0, [0, 1]);
        assert_eq!(select(AggregateOp::Topk, 1.99, &[1.0, 2.0]).0, [1]);
        assert_eq!(select(AggregateOp::Topk, 3.0, &[]), (vec![], vec![]));
    }

    #[test]
    fn histograms_are_limited_and_not_ranked() {
        let h = || Histogram::default();
        let run = |op| {
            let mut s = RowSelector::new(op, 1, 3, &ScalarSteps::new(&[1.0, 0.0, 1.0]), 2, PosRange::default());
            s.fold(0, 0, &[0.0; 3], &[false; 3], &[(1, h()), (2, h())]);
            s.fold(1, 0, &[5.0, 0.0, 7.0], &[true, false, true], &[(1, h())]);
            let mut annotations = Annotations::default();
            let got = s.finish(&mut annotations);
            (got.rows, got.keep, annotations.is_empty())
        };
        let kept = vec![false, false, true, true, false, false];
        assert_eq!(run(AggregateOp::Limitk), (vec![0, 1], kept, true));
        assert_eq!(run(AggregateOp::Bottomk), (vec![1], vec![true, false, true], false));
    }

    #[test]
    fn ratios_at_their_ends() {
        assert!(ratio_keeps(f64::MIN_POSITIVE, 0) && !ratio_keeps(-f64::MIN_POSITIVE, 0));
        assert!(ratio_keeps(0.5, (1 << 63) - (1 << 20)) && !ratio_keeps(0.5, 1 << 63) && ratio_keeps(-0.5, 1 << 63));
        assert!(ratio_keeps(-1.0, 0) && ratio_keeps(f64::NEG_INFINITY, 0) && ratio_keeps(f64::INFINITY, 0));
        assert!(!ratio_keeps(-0.0, 0) && !ratio_keeps(-0.0, u64::MAX));
    }
}
