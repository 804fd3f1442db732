//! Samples that a query looks at, counted per step where nodes evaluate: the `stats` of a query. Nothing is counted,
//! and nothing costs, unless a query asks.
//!
//! Semantics: Prometheus 3.14 `util/stats/query_stats.go`. What is evaluated once for all steps counts as looked at in
//! each of them and as read in the first; a subquery counts on its own steps, and its parent sees what it read at the
//! step that uses it. A histogram counts as many samples as it takes room of 16 bytes.

use parking_lot::Mutex;
use quiver_types::{Histogram, Millis};

use crate::functions::RangeCall;
use crate::kernel::{Grid, SeriesOut, SeriesSamples};
use crate::window::{Cursor, first_after};

/// Samples by step of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleStats {
    /// Time of the first step, Unix milliseconds.
    pub start_ms: Millis,
    /// Distance of steps in milliseconds.
    pub step_ms: i64,
    /// Samples that each step looked at, as if it were a query of its own.
    pub total_per_step: Vec<u64>,
    /// Samples that each step read and none before it.
    pub read_per_step: Vec<u64>,
    /// Most samples at once that the limit of samples was held against.
    pub peak: u64,
}

impl SampleStats {
    /// All samples that were looked at.
    pub fn total(&self) -> u64 {
        self.total_per_step.iter().sum()
    }

    /// All samples that were read.
    pub fn read(&self) -> u64 {
        self.read_per_step.iter().sum()
    }
}

/// Names the counts that an expression goes into; 0 are those of the query.
pub(crate) type TallyId = usize;

/// How the counts of an inner evaluation go into those around it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Merge {
    /// Evaluated once for all steps.
    Once,
    /// A subquery under a range function, which counts itself what it looks at.
    Argument {
        /// Offset of the subquery.
        offset_ms: i64,
        /// Length of its window in milliseconds.
        range_ms: i64,
    },
    /// A subquery that is the answer.
    Whole,
}

#[derive(Debug)]
struct Tally {
    grid: Grid,
    parent: Option<(TallyId, Merge)>,
    total: Vec<u64>,
    read: Vec<u64>,
}

/// All counts of one query.
#[derive(Debug)]
pub(crate) struct Tallies(Mutex<Vec<Tally>>);

impl Tallies {
    /// Starts with the steps of the query.
    pub(crate) fn new(grid: Grid) -> Self {
        Self(Mutex::new(vec![Tally::new(grid, None)]))
    }

    /// Gives counts for another run of the same plan: the same steps and parents, all counts 0.
    pub(crate) fn for_another_run(&self) -> Self {
        let anew = |tally: &Tally| Tally::new(tally.grid, tally.parent);
        Self(Mutex::new(self.0.lock().iter().map(anew).collect()))
    }

    /// Adds an inner evaluation on steps of its own.
    pub(crate) fn child(&self, parent: TallyId, grid: Grid, merge: Merge) -> TallyId {
        let mut tallies = self.0.lock();
        tallies.push(Tally::new(grid, Some((parent, merge))));
        tallies.len() - 1
    }

    /// Adds counts to one expression, step by step.
    pub(crate) fn add(&self, id: TallyId, counts: &Counts) {
        let tally = &mut self.0.lock()[id];
        for (all, more) in [(&mut tally.total, &counts.total), (&mut tally.read, &counts.read)] {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        }
    }

    /// Brings all counts together on the steps of the query.
    pub(crate) fn finish(&self, peak: u64) -> SampleStats {
        let mut tallies = self.0.lock();
        // Inner ones were added after those around them.
        while tallies.len() > 1 {
            let Some(child) = tallies.pop() else { break };
            if let Some((parent, merge)) = child.parent {
                tallies[parent].take(&child, merge);
            }
        }
        let Tally { grid, total, read, .. } = &tallies[0];
        let (total_per_step, read_per_step) = (total.clone(), read.clone());
        SampleStats { start_ms: grid.start, step_ms: grid.step_ms, total_per_step, read_per_step, peak }
    }
}

impl Tally {
    fn new(grid: Grid, parent: Option<(TallyId, Merge)>) -> Self {
        Self { grid, parent, total: vec![0; grid.steps], read: vec![0; grid.steps] }
    }

    fn take(&mut self, child: &Self, merge: Merge) {
        let sum = |counts: &[u64]| counts.iter().sum::<u64>();
        match merge {
            Merge::Once => {
                let total = sum(&child.total);
                self.total.iter_mut().for_each(|t| *t += total);
                self.read[0] += sum(&child.read);
            }
            Merge::Argument { offset_ms, range_ms } => self.take_read(child, offset_ms, range_ms),
            Merge::Whole => {
                if let Some(last) = self.total.last_mut() {
                    *last += sum(&child.total);
                }
                self.take_read(child, 0, 0);
            }
        }
    }

    /// What each step of a subquery read goes to the first step that uses it; between windows nobody does.
    fn take_read(&mut self, child: &Self, offset_ms: i64, range_ms: i64) {
        for (step, &n) in child.read.iter().enumerate().filter(|(_, n)| **n > 0) {
            let at = child.grid.at(step) + offset_ms;
            let behind = (at - self.grid.start).max(0);
            let user = ((behind + self.grid.step_ms - 1) / self.grid.step_ms) as usize;
            let user = user.min(self.grid.steps - 1);
            let between = self.grid.steps > 1 && range_ms > 0 && at <= self.grid.at(user) - range_ms;
            if !between {
                self.read[user] += n;
            }
        }
    }
}

/// Counts of one worker, which go into those of the query at its end.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    total: Vec<u64>,
    read: Vec<u64>,
    sizes: Sizes,
}

impl Counts {
    /// Starts with nothing.
    pub(crate) fn new(steps: usize) -> Self {
        Self { total: vec![0; steps], read: vec![0; steps], sizes: Sizes::default() }
    }

    /// Counts samples at a step that are looked at and read.
    pub(crate) fn both(&mut self, step: usize, samples: u64) {
        self.total[step] += samples;
        self.read[step] += samples;
    }

    /// Counts what an instant selector gave from a step on.
    pub(crate) fn instant(&mut self, out: &SeriesOut<'_>, first: usize) {
        for (step, _) in out.present.iter().enumerate().filter(|(_, p)| **p) {
            self.both(first + step, 1);
        }
        for (step, h) in &out.hists {
            self.both(first + *step as usize, histogram_samples(h));
        }
    }

    /// Counts the windows of a range function, widened as `anchored` and `smoothed` do. What is the matrix of a
    /// subquery was read by that (`from_scan` false). The steps of the call are those from `first` on; no window before
    /// them holds a sample.
    pub(crate) fn range(&mut self, samples: &SeriesSamples<'_>, call: &RangeCall<'_>, first: usize, from_scan: bool) {
        let window = &call.window;
        let (before, after) = window.ends.reach_ms(window.lookback_ms);
        self.sizes.fill(samples);
        let (mut floats, mut hists) = (Cursor::default(), Cursor::default());
        for step in 0..call.grid.steps {
            let (start, end) = call.bounds(step);
            let (start, end) = (start - before, end + after);
            floats.advance(samples.ts, start, end);
            hists.advance(samples.hist_ts, start, end);
            self.total[first + step] += self.sizes.of(floats, hists);
            if !from_scan || (call.at.is_some() && step > 0) {
                continue;
            }
            let (mut new_floats, mut new_hists) = (floats, hists);
            if step > 0 {
                let seen = end - call.grid.step_ms;
                new_floats.lo = first_after(&samples.ts[..floats.hi], floats.lo, seen);
                new_hists.lo = first_after(&samples.hist_ts[..hists.hi], hists.lo, seen);
            }
            self.read[first + step] += self.sizes.of(new_floats, new_hists);
        }
    }
}

/// Running totals of the sizes of a series' histograms.
#[derive(Debug, Clone, Default)]
struct Sizes(Vec<u64>);

impl Sizes {
    fn fill(&mut self, samples: &SeriesSamples<'_>) {
        self.0.clear();
        self.0.push(0);
        let mut sum = 0;
        for h in samples.hists {
            sum += histogram_samples(h);
            self.0.push(sum);
        }
    }

    fn of(&self, floats: Cursor, hists: Cursor) -> u64 {
        floats.len() as u64 + self.0[hists.hi] - self.0[hists.lo]
    }
}

/// How many float samples a histogram counts for: a sample is 16 bytes, and a histogram with its time as many as in
/// Prometheus (`HPoint.size`).
pub(crate) fn histogram_samples(h: &Histogram) -> u64 {
    let spans = h.positive_spans.len() + h.negative_spans.len();
    let numbers = h.positive.len() + h.negative.len() + h.custom_bounds.len();
    ((168 + 8 * (spans + numbers) + 8) / 16) as u64
}

#[cfg(test)]
mod tests {
    use quiver_types::histogram::Span;

    use super::*;
    use crate::kernel::Window;
    use crate::range_ends::RangeEnds;

    fn grid(start: i64, step_ms: i64, steps: usize) -> Grid {
        Grid { start, step_ms, steps }
    }

    #[test]
    fn windows_count_in_each_step_and_are_read_once() {
        let ts: Vec<i64> = (0..20).map(|i| i * 10).collect();
        let values = vec![0.0; 20];
        let samples = SeriesSamples { ts: &ts, values: &values, ..SeriesSamples::default() };
        let window = Window { range_ms: 60, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 300 };
        let check = |grid: Grid, at: Option<i64>, total: &[u64], read: &[u64]| {
            let mut counts = Counts::new(grid.steps);
            counts.range(&samples, &RangeCall { grid, window, at, params: &[], windows: None, pace: None }, 0, true);
            assert_eq!((&counts.total[..], &counts.read[..]), (total, read), "{grid:?} {at:?}");
        };
        check(grid(101, 5, 4), None, &[6, 6, 6, 6], &[6, 0, 1, 0]);
        check(grid(101, 100, 2), None, &[6, 5], &[6, 5]);
        check(grid(101, 5, 3), Some(30), &[4, 4, 4], &[4, 0, 0]);
    }

    #[test]
    fn a_run_beside_counts_for_itself() {
        let tallies = Tallies::new(grid(100, 50, 2));
        let inner = tallies.child(0, grid(100, 50, 1), Merge::Once);
        let mut counts = Counts::new(1);
        counts.both(0, 7);
        tallies.add(inner, &counts);
        let other = tallies.for_another_run();
        other.add(inner, &counts);
        assert_eq!((tallies.finish(0).read(), other.finish(0).read()), (7, 7));
    }

    #[test]
    fn inner_counts_go_to_the_steps_that_use_them() {
        let tallies = Tallies::new(grid(100, 50, 3));
        let once = tallies.child(0, grid(100, 50, 1), Merge::Once);
        let mut counts = Counts::new(1);
        counts.both(0, 7);
        tallies.add(once, &counts);
        let argument = Merge::Argument { offset_ms: 10, range_ms: 20 };
        let inner = tallies.child(0, grid(80, 10, 12), argument);
        let mut counts = Counts::new(12);
        (0..12).for_each(|step| counts.both(step, 1));
        tallies.add(inner, &counts);
        let stats = tallies.finish(9);
        // Seen at 90 to 200; the windows are (80, 100], (130, 150], (180, 200].
        assert_eq!(stats.read_per_step, [7 + 2, 2, 2]);
        assert_eq!(stats.total_per_step, [7, 7, 7]);
        assert_eq!((stats.total(), stats.read(), stats.peak), (21, 13, 9));
    }

    #[test]
    fn sizes_of_histograms() {
        let h = Histogram {
            positive: vec![1.0; 4],
            positive_spans: vec![Span { offset: 0, length: 4 }],
            ..Histogram::default()
        };
        assert_eq!(histogram_samples(&h), 13);
        assert_eq!(histogram_samples(&Histogram::default()), 11);
    }

    #[test]
    fn histograms_and_wider_windows_count() {
        let hists = [Histogram::default(), Histogram::default()];
        let samples = SeriesSamples {
            ts: &[100, 150],
            values: &[1.0, 2.0],
            hist_ts: &[120, 180],
            hists: &hists,
            ..SeriesSamples::default()
        };
        let plain = Window { range_ms: 50, offset_ms: 0, ends: RangeEnds::Samples, lookback_ms: 30 };
        let check = |window: Window, first: usize, from_scan: bool, total: &[u64], read: &[u64]| {
            let mut counts = Counts::new(4);
            let call = RangeCall { grid: grid(100, 50, 3), window, at: None, params: &[], windows: None, pace: None };
            counts.range(&samples, &call, first, from_scan);
            assert_eq!((&counts.total[..], &counts.read[..]), (total, read), "{window:?} from {first}");
        };
        // A histogram counts for eleven. Windows: (50, 100], (100, 150], (150, 200].
        check(plain, 0, true, &[1, 12, 11, 0], &[1, 12, 11, 0]);
        check(plain, 1, true, &[0, 1, 12, 11], &[0, 1, 12, 11]);
        check(plain, 0, false, &[1, 12, 11, 0], &[0, 0, 0, 0]);
        // Windows begin 30 earlier, or reach 30 further, too; what was read by the step before is not read again.
        check(Window { ends: RangeEnds::Anchored, ..plain }, 0, true, &[1, 13, 12, 0], &[1, 12, 11, 0]);
        check(Window { ends: RangeEnds::Smoothed, ..plain }, 0, true, &[12, 24, 12, 0], &[12, 12, 0, 0]);
    }

    #[test]
    fn an_instant_selector_counts_what_it_gave() {
        let (mut values, mut present) = (vec![0.0; 3], vec![true, false, true]);
        let hists = vec![(1, Histogram::default())];
        let out = SeriesOut { values: &mut values, present: &mut present, hists };
        let mut counts = Counts::new(5);
        counts.instant(&out, 2);
        counts.instant(&out, 1);
        assert_eq!((&counts.total[..], &counts.read[..]), (&[0, 1, 12, 12, 1][..], &[0, 1, 12, 12, 1][..]));
    }

    #[test]
    fn a_subquery_that_is_the_answer() {
        let tallies = Tallies::new(grid(1000, 1, 1));
        let inner = tallies.child(0, grid(700, 100, 4), Merge::Whole);
        let deeper = tallies.child(inner, grid(700, 100, 1), Merge::Once);
        let mut counts = Counts::new(4);
        (0..4).for_each(|step| counts.both(step, 2));
        tallies.add(inner, &counts);
        let mut counts = Counts::new(1);
        counts.both(0, 5);
        tallies.add(deeper, &counts);
        let stats = tallies.finish(3);
        // What is evaluated once counts as looked at in each of four steps.
        assert_eq!((stats.total(), stats.read(), stats.peak), (8 + 4 * 5, 8 + 5, 3));
        assert_eq!((stats.start_ms, stats.step_ms, stats.total_per_step.len()), (1000, 1, 1));
    }
}
