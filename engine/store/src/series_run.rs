//! Runs: the content of one series on its way into a part (flush, compaction) or out of one (scan).
//!
//! The rule for equal keys is implemented only here: what a (series, time) holds when it was sent several times depends
//! only on the values, so merging in any order gives the same result. Scans, flush and compaction all use these
//! functions.

use std::cmp::Ordering;
use std::sync::Arc;

use quiver_types::{Histogram, LabelSet, Millis, MillisRange, ResetHint, SeriesId, is_stale};

/// Float samples of one series. Times ascending and unique once normalized.
#[derive(Debug, Clone, Default)]
pub struct FloatRun {
    /// Times, Unix milliseconds.
    pub ts: Vec<Millis>,
    /// Values, bits kept.
    pub values: Vec<f64>,
    /// Start times, 0 = unset; empty when no sample has one.
    pub start_ts: Vec<Millis>,
}

/// Native histograms of one series. Times ascending and unique once normalized.
#[derive(Debug, Clone, Default)]
pub struct HistRun {
    /// Times, Unix milliseconds.
    pub ts: Vec<Millis>,
    /// Start times, 0 = unset; empty when no histogram has one.
    pub start_ts: Vec<Millis>,
    /// One histogram for each time.
    pub hists: Vec<Histogram>,
}

/// An exemplar of a run.
#[derive(Debug, Clone)]
pub struct RunExemplar {
    /// When it was measured, Unix milliseconds.
    pub ts: Millis,
    /// The value that was measured.
    pub value: f64,
    /// Its own labels.
    pub labels: LabelSet,
}

/// One series and all that a part holds of it.
#[derive(Debug, Clone)]
pub struct SeriesRun {
    /// The label set.
    pub labels: LabelSet,
    /// The hash of its labels.
    pub id: SeriesId,
    /// The service that it belongs to, resolved at ingest; empty = none.
    pub service: Arc<str>,
    /// Float samples, by time.
    pub samples: FloatRun,
    /// Native histograms, by time.
    pub hists: HistRun,
    /// Exemplars, by time.
    pub exemplars: Vec<RunExemplar>,
}

/// Orders two float samples of one (series, ts): the greater one stays. Total order of doubles with the stale marker
/// lowest; equal bits: the greater start time, unset (0) lowest.
pub fn cmp_float(a: (f64, Millis), b: (f64, Millis)) -> Ordering {
    (!is_stale(a.0)).cmp(&!is_stale(b.0)).then_with(|| a.0.total_cmp(&b.0)).then_with(|| cmp_start(a.1, b.1))
}

/// Gives the one of two float samples (value, start time) of one (series, ts) that stays.
pub fn better_float(a: (f64, Millis), b: (f64, Millis)) -> (f64, Millis) {
    if cmp_float(a, b).is_lt() { b } else { a }
}

/// Orders two histograms of one (series, ts): by canonical bytes, then the greater start time, unset lowest.
pub fn cmp_histogram(a: (&Histogram, Millis), b: (&Histogram, Millis)) -> Ordering {
    a.0.canonical_bytes().cmp(&b.0.canonical_bytes()).then_with(|| cmp_start(a.1, b.1))
}

/// Orders two exemplars: by time, then value, then labels. Equal ones are one.
pub fn cmp_exemplar(a: &RunExemplar, b: &RunExemplar) -> Ordering {
    let by_value = || a.value.total_cmp(&b.value);
    a.ts.cmp(&b.ts).then_with(by_value).then_with(|| a.labels.canonical().cmp(b.labels.canonical()))
}

fn cmp_start(a: Millis, b: Millis) -> Ordering {
    (a != 0, a).cmp(&(b != 0, b))
}

fn ascending(ts: &[Millis]) -> bool {
    ts.windows(2).all(|w| w[0] < w[1])
}

/// First and one past the last position inside a range, of ascending times.
fn span(ts: &[Millis], range: MillisRange) -> (usize, usize) {
    let first = ts.partition_point(|&t| t < range.min);
    (first, first + ts[first..].partition_point(|&t| t <= range.max))
}

/// Puts the start times of `other` after those of `own`; one list may be absent ("none given").
fn append_starts(own: &mut Vec<Millis>, own_rows: usize, other: &[Millis], other_rows: usize) {
    if own.is_empty() && other.is_empty() {
        return;
    }
    own.resize(own_rows, 0);
    own.extend_from_slice(other);
    own.resize(own_rows + other_rows, 0);
}

/// Puts a start time behind those of so many rows; a list of rows without any stays empty.
fn push_start(starts: &mut Vec<Millis>, rows: usize, start: Millis) {
    if start != 0 && starts.is_empty() {
        starts.resize(rows, 0);
    }
    if start != 0 || !starts.is_empty() {
        starts.push(start);
    }
}

/// Replaces the last start time, that of row `last`; a list of rows without any stays empty.
fn replace_start(starts: &mut Vec<Millis>, last: usize, start: Millis) {
    if start != 0 && starts.is_empty() {
        starts.resize(last + 1, 0);
    }
    if let Some(own) = starts.get_mut(last) {
        *own = start;
    }
}

/// Frees a list of start times if none is given.
fn drop_unset(starts: &mut Vec<Millis>) {
    if starts.iter().all(|&s| s == 0) {
        *starts = Vec::new();
    }
}

/// Cuts a list of a run to these rows; a list of start times may be empty.
fn keep_between<T>(list: &mut Vec<T>, first: usize, end: usize) {
    list.truncate(end);
    list.drain(..first.min(list.len()));
}

impl FloatRun {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }

    /// Start time of a sample, 0 = unset.
    pub fn start(&self, i: usize) -> Millis {
        self.start_ts.get(i).copied().unwrap_or(0)
    }

    /// Makes room for so many more samples.
    pub fn reserve(&mut self, more: usize) {
        self.ts.reserve(more);
        self.values.reserve(more);
    }

    /// Appends a sample.
    pub fn push(&mut self, ts: Millis, value: f64, start_ts: Millis) {
        push_start(&mut self.start_ts, self.ts.len(), start_ts);
        self.ts.push(ts);
        self.values.push(value);
    }

    /// Sorts by time and keeps one sample per time, by the equal-key rule.
    pub fn normalize(&mut self) {
        if !ascending(&self.ts) {
            let mut order: Vec<u32> = (0..self.ts.len() as u32).collect();
            if !self.ts.is_sorted() {
                order.sort_by_key(|&i| self.ts[i as usize]);
            }
            let mut out = Self::default();
            out.ts.reserve(self.ts.len());
            out.values.reserve(self.ts.len());
            for i in order {
                let i = i as usize;
                out.push_newest(self.ts[i], self.values[i], self.start(i));
            }
            *self = out;
        }
        drop_unset(&mut self.start_ts);
    }

    /// Appends a sample whose time is not before the last one's; of two at one time the better one stays.
    pub fn push_newest(&mut self, ts: Millis, value: f64, start_ts: Millis) {
        let Some(last) = self.ts.len().checked_sub(1).filter(|&last| self.ts[last] == ts) else {
            return self.push(ts, value, start_ts);
        };
        let (value, start_ts) = better_float((self.values[last], self.start(last)), (value, start_ts));
        self.values[last] = value;
        replace_start(&mut self.start_ts, last, start_ts);
    }

    /// Appends all samples of another run as they are.
    pub fn append(&mut self, other: &Self) {
        append_starts(&mut self.start_ts, self.ts.len(), &other.start_ts, other.ts.len());
        self.ts.extend_from_slice(&other.ts);
        self.values.extend_from_slice(&other.values);
    }

    /// Merges two normalized runs of one series; one pass, or a copy when their times do not overlap.
    #[must_use]
    pub fn merged(mut self, mut other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        if other.ts[other.ts.len() - 1] < self.ts[0] {
            std::mem::swap(&mut self, &mut other);
        }
        if self.ts[self.ts.len() - 1] < other.ts[0] {
            self.append(&other);
            return self;
        }
        let mut out = Self::default();
        out.ts.reserve(self.len() + other.len());
        out.values.reserve(self.len() + other.len());
        let (mut i, mut j) = (0, 0);
        while i < self.len() || j < other.len() {
            let own = j == other.len() || (i < self.len() && self.ts[i] <= other.ts[j]);
            let (run, at) = if own { (&self, &mut i) } else { (&other, &mut j) };
            out.push_newest(run.ts[*at], run.values[*at], run.start(*at));
            *at += 1;
        }
        drop_unset(&mut out.start_ts);
        out
    }

    /// Cuts to a range; times must be ascending.
    pub fn cut(&mut self, range: MillisRange) {
        let (first, end) = span(&self.ts, range);
        if (first, end) == (0, self.ts.len()) {
            return;
        }
        keep_between(&mut self.ts, first, end);
        keep_between(&mut self.start_ts, first, end);
        keep_between(&mut self.values, first, end);
    }

    /// Copies the part inside a range; times must be ascending.
    #[must_use]
    pub fn slice(&self, range: MillisRange) -> Self {
        let (first, end) = span(&self.ts, range);
        Self {
            ts: self.ts[first..end].to_vec(),
            values: self.values[first..end].to_vec(),
            start_ts: self.start_ts.get(first..end).map_or_else(Vec::new, <[_]>::to_vec),
        }
    }

    /// Drops the samples at the given ascending times.
    pub fn drop_times(&mut self, times: &[Millis]) {
        if self.is_empty() || times.is_empty() || times[times.len() - 1] < self.ts[0] {
            return;
        }
        let mut at = 0;
        let keep: Vec<bool> = (self.ts.iter())
            .map(|&t| {
                at += times[at..].partition_point(|&x| x < t);
                times.get(at) != Some(&t)
            })
            .collect();
        retain(&mut self.ts, &keep);
        retain(&mut self.values, &keep);
        retain(&mut self.start_ts, &keep);
        drop_unset(&mut self.start_ts);
    }
}

fn retain<T>(list: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    list.retain(|_| keep.next().is_none_or(|&k| k));
}

impl HistRun {
    /// Number of histograms.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }

    /// Start time of a histogram, 0 = unset.
    pub fn start(&self, i: usize) -> Millis {
        self.start_ts.get(i).copied().unwrap_or(0)
    }

    /// Appends a histogram.
    pub fn push(&mut self, ts: Millis, hist: Histogram, start_ts: Millis) {
        push_start(&mut self.start_ts, self.ts.len(), start_ts);
        self.ts.push(ts);
        self.hists.push(hist);
    }

    /// Sorts by time and keeps one histogram per time, by the equal-key rule.
    pub fn normalize(&mut self) {
        if !ascending(&self.ts) {
            let run = std::mem::take(self);
            let starts = run.start_ts.iter().copied().chain(std::iter::repeat(0));
            let mut rows: Vec<_> = run.ts.iter().copied().zip(run.hists).zip(starts).collect();
            rows.sort_by_key(|((ts, _), _)| *ts);
            for ((ts, hist), start) in rows {
                self.push_newest(ts, hist, start);
            }
            self.recheck_hints(1..self.hists.len());
        }
        drop_unset(&mut self.start_ts);
    }

    /// Takes back those hints of histograms that their neighbour does not bear out: samples came out of order, or from
    /// another writer.
    fn recheck_hints(&mut self, which: std::ops::Range<usize>) {
        for i in which {
            let (done, rest) = self.hists.split_at_mut(i);
            if rest[0].reset_hint == ResetHint::NotReset && !rest[0].continues(&done[i - 1]) {
                rest[0].reset_hint = ResetHint::Unknown;
            }
        }
    }

    /// Appends a histogram whose time is not before the last one's; of two at one time the better one stays.
    pub fn push_newest(&mut self, ts: Millis, hist: Histogram, start_ts: Millis) {
        let Some(last) = self.ts.len().checked_sub(1).filter(|&last| self.ts[last] == ts) else {
            return self.push(ts, hist, start_ts);
        };
        if cmp_histogram((&self.hists[last], self.start(last)), (&hist, start_ts)).is_ge() {
            return;
        }
        self.hists[last] = hist;
        replace_start(&mut self.start_ts, last, start_ts);
    }

    /// Merges two normalized runs of one series.
    #[must_use]
    pub fn merged(mut self, mut other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        if other.ts[other.ts.len() - 1] < self.ts[0] {
            std::mem::swap(&mut self, &mut other);
        }
        let overlap = self.ts[self.ts.len() - 1] >= other.ts[0];
        let boundary = self.ts.len();
        append_starts(&mut self.start_ts, boundary, &other.start_ts, other.ts.len());
        self.ts.extend_from_slice(&other.ts);
        self.hists.append(&mut other.hists);
        if overlap {
            self.normalize();
        } else {
            self.recheck_hints(boundary..boundary + 1);
        }
        self
    }

    /// Cuts to a range; times must be ascending.
    pub fn cut(&mut self, range: MillisRange) {
        let (first, end) = span(&self.ts, range);
        keep_between(&mut self.ts, first, end);
        keep_between(&mut self.start_ts, first, end);
        keep_between(&mut self.hists, first, end);
    }
}

impl SeriesRun {
    /// Makes an empty run of a series.
    pub fn new(labels: LabelSet, service: Arc<str>) -> Self {
        let id = labels.id();
        Self { labels, id, service, samples: FloatRun::default(), hists: HistRun::default(), exemplars: Vec::new() }
    }

    /// Sorts what is unsorted and applies the equal-key rule, also between the lists: a histogram at a time drops the
    /// float at that time. Equal exemplars become one.
    pub fn normalize(&mut self) {
        self.samples.normalize();
        self.hists.normalize();
        self.samples.drop_times(&self.hists.ts);
        normalize_exemplars(&mut self.exemplars);
    }

    /// Adds the content of another run of the same series; both normalized, and so is the result.
    pub fn merge(&mut self, other: Self) {
        debug_assert_eq!(self.labels, other.labels, "runs of one series");
        self.samples = std::mem::take(&mut self.samples).merged(other.samples);
        self.hists = std::mem::take(&mut self.hists).merged(other.hists);
        self.samples.drop_times(&self.hists.ts);
        if !other.exemplars.is_empty() {
            self.exemplars.extend(other.exemplars);
            normalize_exemplars(&mut self.exemplars);
        }
        // Two writers may have resolved the service under different settings; the choice must not depend on order.
        if self.service < other.service {
            self.service = other.service;
        }
    }

    /// Says whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.hists.is_empty() && self.exemplars.is_empty()
    }

    /// Number of rows in all lists.
    pub fn rows(&self) -> usize {
        self.samples.len() + self.hists.len() + self.exemplars.len()
    }

    /// First and last time of anything in it; it must be normalized.
    pub fn time_range(&self) -> Option<MillisRange> {
        let exemplar = |e: Option<&RunExemplar>| e.map(|e| e.ts);
        let first =
            [self.samples.ts.first().copied(), self.hists.ts.first().copied(), exemplar(self.exemplars.first())];
        let last = [self.samples.ts.last().copied(), self.hists.ts.last().copied(), exemplar(self.exemplars.last())];
        let min = first.into_iter().flatten().min()?;
        Some(MillisRange::new(min, last.into_iter().flatten().max()?))
    }
}

/// Sorts exemplars and drops equal ones.
pub fn normalize_exemplars(exemplars: &mut Vec<RunExemplar>) {
    if exemplars.windows(2).all(|w| cmp_exemplar(&w[0], &w[1]).is_lt()) {
        return;
    }
    exemplars.sort_by(cmp_exemplar);
    exemplars.dedup_by(|a, b| cmp_exemplar(a, b).is_eq());
}

#[cfg(test)]
mod tests;
