//! What one series of a generation holds, in arrival order.
//!
//! A float sample takes 20 bytes in one vector: time, value, and the sequence number of its write relative to the
//! generation's first, so that a reader cuts at its snapshot. Start times, histograms and exemplars cost nothing
//! where there are none.

use quiver_types::{Histogram, LabelSet, Millis, MillisRange};

use crate::run::{FloatRun, HistRun, RunExemplar, normalize_exemplars};

/// A float sample. Packed to 20 bytes; fields are read by copy.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(crate) struct Sample {
    ts: Millis,
    value: f64,
    seq: u32,
}

#[derive(Debug)]
struct LiveHistogram {
    ts: Millis,
    start_ts: Millis,
    seq: u32,
    histogram: Histogram,
}

#[derive(Debug)]
struct LiveExemplar {
    seq: u32,
    exemplar: RunExemplar,
}

/// What few series have.
#[derive(Debug, Default)]
struct Extra {
    /// Parallel to the samples, or empty.
    start_ts: Vec<Millis>,
    histograms: Vec<LiveHistogram>,
    exemplars: Vec<LiveExemplar>,
}

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is stored.
    Stored,
    /// The last sample is the same.
    Repeated,
    /// It is stored beside another value at the same time.
    Conflicting,
}

/// One series.
#[derive(Debug)]
pub(crate) struct SeriesData {
    samples: Vec<Sample>,
    extra: Option<Box<Extra>>,
    /// Whether the times of the samples ascend strictly, so that nothing needs sorting.
    ordered: bool,
}

impl Default for SeriesData {
    fn default() -> Self {
        Self { samples: Vec::new(), extra: None, ordered: true }
    }
}

/// Grows by half instead of doubling: a generation's vectors stay short, and half-empty ones would fill the budget.
fn grow<T>(list: &mut Vec<T>, least: usize) -> usize {
    if list.len() < list.capacity() {
        return 0;
    }
    let old = list.capacity();
    list.reserve_exact((old / 2).max(least));
    (list.capacity() - old) * size_of::<T>()
}

impl SeriesData {
    /// Adds a float sample; `grown` counts bytes of new memory.
    pub(crate) fn push(&mut self, ts: Millis, value: f64, start_ts: Millis, seq: u32, grown: &mut usize) -> Pushed {
        let mut pushed = Pushed::Stored;
        if let Some(last) = self.samples.last() {
            let (last_ts, last_value) = (last.ts, last.value);
            if ts <= last_ts {
                if ts == last_ts {
                    if value.to_bits() == last_value.to_bits() && self.last_start() == start_ts {
                        return Pushed::Repeated;
                    }
                    if value.to_bits() != last_value.to_bits() {
                        pushed = Pushed::Conflicting;
                    }
                }
                self.ordered = false;
            }
        }
        if start_ts != 0 || self.extra.as_ref().is_some_and(|e| !e.start_ts.is_empty()) {
            let samples = self.samples.len();
            let starts = &mut self.extra(grown).start_ts;
            starts.resize(samples, 0);
            *grown += grow(starts, 4);
            starts.push(start_ts);
        }
        *grown += grow(&mut self.samples, 4);
        self.samples.push(Sample { ts, value, seq });
        pushed
    }

    fn last_start(&self) -> Millis {
        self.extra.as_ref().and_then(|e| e.start_ts.last().copied()).unwrap_or(0)
    }

    fn extra(&mut self, grown: &mut usize) -> &mut Extra {
        self.extra.get_or_insert_with(|| {
            *grown += size_of::<Extra>();
            Box::default()
        })
    }

    /// Adds a histogram.
    pub(crate) fn push_histogram(
        &mut self,
        ts: Millis,
        start_ts: Millis,
        histogram: Histogram,
        seq: u32,
        grown: &mut usize,
    ) {
        *grown += histogram.memory_bytes() - size_of::<Histogram>();
        let list = &mut self.extra(grown).histograms;
        let room = grow(list, 2);
        list.push(LiveHistogram { ts, start_ts, seq, histogram });
        *grown += room;
    }

    /// Adds an exemplar.
    pub(crate) fn push_exemplar(&mut self, exemplar: RunExemplar, seq: u32, grown: &mut usize) {
        *grown += exemplar.labels.canonical().len() + 16;
        let list = &mut self.extra(grown).exemplars;
        let room = grow(list, 2);
        list.push(LiveExemplar { seq, exemplar });
        *grown += room;
    }

    /// Says whether a reader that stops after `cut` may find something in the range.
    pub(crate) fn visible(&self, cut: u32, range: MillisRange) -> bool {
        let floats = match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => {
                first.seq <= cut && (!self.ordered || (first.ts <= range.max && last.ts >= range.min))
            }
            _ => false,
        };
        floats
            || self.extra.as_ref().is_some_and(|e| {
                e.histograms.iter().any(|h| h.seq <= cut && range.contains(h.ts))
                    || e.exemplars.iter().any(|x| x.seq <= cut && range.contains(x.exemplar.ts))
            })
    }

    /// Says whether there are histograms.
    pub(crate) fn has_histograms(&self) -> bool {
        self.extra.as_ref().is_some_and(|e| !e.histograms.is_empty())
    }

    /// Adds the samples in the range, up to `cut`, to a run: ascending, one per time.
    pub(crate) fn append_floats(&self, range: MillisRange, cut: u32, out: &mut FloatRun) {
        let known = match self.samples.last() {
            None => return,
            Some(last) if last.seq <= cut => self.samples.len(),
            Some(_) => self.samples.partition_point(|s| s.seq <= cut),
        };
        let samples = &self.samples[..known];
        let starts = self.extra.as_ref().map_or(&[][..], |e| &e.start_ts);
        if self.ordered {
            let first = samples.partition_point(|s| s.ts < range.min);
            let end = first + samples[first..].partition_point(|s| s.ts <= range.max);
            out.ts.extend(samples[first..end].iter().map(|s| s.ts));
            out.values.extend(samples[first..end].iter().map(|s| s.value));
            if let Some(starts) = starts.get(first..end).filter(|s| s.iter().any(|&t| t != 0)) {
                out.start_ts.resize(out.ts.len() - starts.len(), 0);
                out.start_ts.extend_from_slice(starts);
            } else if !out.start_ts.is_empty() {
                out.start_ts.resize(out.ts.len(), 0);
            }
            return;
        }
        let mut rows: Vec<(Millis, f64, Millis)> = (samples.iter().enumerate())
            .map(|(i, s)| (s.ts, s.value, starts.get(i).copied().unwrap_or(0)))
            .filter(|(ts, ..)| range.contains(*ts))
            .collect();
        rows.sort_by_key(|(ts, ..)| *ts);
        // A run of its own, so that equal times are judged within this series alone.
        let mut run = FloatRun::default();
        for (ts, value, start_ts) in rows {
            run.push_newest(ts, value, start_ts);
        }
        out.append(&run);
    }

    /// Gives the histograms in the range, up to `cut`: ascending, one per time.
    pub(crate) fn copy_hists(&self, range: MillisRange, cut: u32) -> HistRun {
        let mut run = HistRun::default();
        for h in self.extra.iter().flat_map(|e| &e.histograms) {
            if h.seq <= cut && range.contains(h.ts) {
                run.push(h.ts, h.histogram.clone(), h.start_ts);
            }
        }
        run.normalize();
        run
    }

    /// Gives the exemplars in the range, up to `cut`, by time.
    pub(crate) fn copy_exemplars(&self, range: MillisRange, cut: u32) -> Vec<RunExemplar> {
        let all = self.extra.iter().flat_map(|e| &e.exemplars);
        let mut list: Vec<_> =
            all.filter(|x| x.seq <= cut && range.contains(x.exemplar.ts)).map(|x| x.exemplar.clone()).collect();
        normalize_exemplars(&mut list);
        list
    }

    /// Calls back with the time of each row, runs of one day as its first time alone where the order allows.
    pub(crate) fn for_days(&self, mut day: impl FnMut(i32)) {
        use quiver_types::time::{DAY_MS, day_of};
        if self.ordered {
            let mut at = 0;
            while let Some(sample) = self.samples.get(at) {
                let this = day_of(sample.ts);
                day(this);
                let end = (i64::from(this) + 1) * DAY_MS;
                if self.samples.last().is_some_and(|s| s.ts < end) {
                    break;
                }
                at += self.samples[at..].partition_point(|s| s.ts < end);
            }
        } else {
            self.samples.iter().for_each(|s| day(day_of(s.ts)));
        }
        if let Some(extra) = &self.extra {
            extra.histograms.iter().for_each(|h| day(day_of(h.ts)));
            extra.exemplars.iter().for_each(|x| day(day_of(x.exemplar.ts)));
        }
    }
}

/// Makes an exemplar of its parts.
pub(crate) fn exemplar(ts: Millis, value: f64, canonical: &[u8]) -> RunExemplar {
    RunExemplar { ts, value, labels: LabelSet::from_canonical(canonical) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(rows: &[(i64, f64, i64)]) -> SeriesData {
        let mut data = SeriesData::default();
        for (seq, (ts, value, start)) in rows.iter().enumerate() {
            data.push(*ts, *value, *start, seq as u32, &mut 0);
        }
        data
    }

    #[test]
    fn a_sample_takes_20_bytes() {
        assert_eq!((size_of::<Sample>(), size_of::<SeriesData>()), (20, 40));
    }

    #[test]
    fn copies_cut_by_time_and_write() {
        let check = |rows: &[(i64, f64, i64)], range: (i64, i64), cut, ts: &[i64], values: &[f64], starts: &[i64]| {
            let mut run = FloatRun::default();
            data(rows).append_floats(MillisRange::new(range.0, range.1), cut, &mut run);
            assert_eq!((&*run.ts, &*run.values, &*run.start_ts), (ts, values, starts));
        };
        let all = (i64::MIN, i64::MAX);
        let ordered = [(1, 1.0, 0), (2, 2.0, 0), (4, 4.0, 0)];
        check(&ordered, all, 9, &[1, 2, 4], &[1.0, 2.0, 4.0], &[]);
        check(&ordered, all, 1, &[1, 2], &[1.0, 2.0], &[]);
        check(&ordered, (2, 3), 9, &[2], &[2.0], &[]);
        check(&ordered, (5, 9), 9, &[], &[], &[]);
        check(&[], all, 9, &[], &[], &[]);
        let late = [(4, 4.0, 0), (1, 1.0, 0), (4, 5.0, 0), (2, 2.0, 0)];
        check(&late, all, 9, &[1, 2, 4], &[1.0, 2.0, 5.0], &[]);
        check(&late, all, 1, &[1, 4], &[1.0, 4.0], &[]);
        check(&late, (2, 3), 9, &[2], &[2.0], &[]);
        check(&[(1, 1.0, 0), (2, 2.0, 7)], all, 9, &[1, 2], &[1.0, 2.0], &[0, 7]);
        check(&[(1, 1.0, 7), (2, 2.0, 0)], (2, 2), 9, &[2], &[2.0], &[]);
        check(&[(2, 1.0, 7), (2, 1.0, 9)], all, 9, &[2], &[1.0], &[9]);
    }

    #[test]
    fn repeats_and_conflicts() {
        let mut d = data(&[(1, 1.0, 0)]);
        let mut push = |ts, value: f64, start| d.push(ts, value, start, 1, &mut 0);
        assert_eq!(push(1, 1.0, 0), Pushed::Repeated);
        assert_eq!(push(1, -0.0, 0), Pushed::Conflicting);
        assert_eq!(push(1, -0.0, 5), Pushed::Stored);
        assert_eq!(push(2, f64::NAN, 0), Pushed::Stored);
        assert_eq!(push(2, quiver_types::stale_nan(), 0), Pushed::Conflicting);
        assert_eq!(d.samples.len(), 5);
    }

    #[test]
    fn days_of_a_series() {
        use quiver_types::time::DAY_MS;
        let check = |ts: &[i64], expected: &[i32]| {
            let rows: Vec<_> = ts.iter().map(|&t| (t, 0.0, 0)).collect();
            let mut days = std::collections::BTreeSet::new();
            data(&rows).for_days(|d| {
                days.insert(d);
            });
            assert_eq!(days.into_iter().collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[1, 2, DAY_MS - 1], &[0]);
        check(&[-1, 0, 5 * DAY_MS, 5 * DAY_MS + 1], &[-1, 0, 5]);
        check(&[5 * DAY_MS, 0, 7], &[0, 5]);
    }
}
