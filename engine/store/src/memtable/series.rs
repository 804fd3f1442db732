//! The data that a generation holds of one series, in order of arrival.
//!
//! A float sample takes 20 bytes: time, value, and the sequence number of its write relative to the first of the
//! generation, so that readers can stop at their snapshot. Samples of long series are stored in chunks: otherwise
//! series that are written in parallel would all move to larger vectors at once, and need their memory twice. Start
//! times, histograms and exemplars cost nothing if there are none.

use quiver_types::{Histogram, LabelSet, Millis, MillisRange};

use crate::series_run::{FloatRun, HistRun, RunExemplar, normalize_exemplars};

/// Maximum samples of a chunk.
const CHUNK: usize = 128;

/// A float sample, packed to 20 bytes; fields are read by copying.
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

/// Data that few series have.
#[derive(Debug, Default)]
struct Extra {
    /// Full chunks, with the samples before those in `SeriesData::samples`; none is empty.
    full: Vec<Box<[Sample]>>,
    /// One entry per sample, or empty.
    start_ts: Vec<Millis>,
    histograms: Vec<LiveHistogram>,
    exemplars: Vec<LiveExemplar>,
}

/// What happened to a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    /// It is stored.
    Stored,
    /// Ignored, because it equals the last sample.
    Repeated,
    /// It is stored, but there is another value at the same time.
    Conflicting,
}

/// The data of one series in a generation.
#[derive(Debug)]
pub(crate) struct SeriesData {
    /// The newest samples; earlier ones are in `extra.full`.
    samples: Vec<Sample>,
    extra: Option<Box<Extra>>,
    /// Whether sample times are strictly ascending, so that nothing needs sorting.
    ordered: bool,
    /// Whether there are start times. Kept here because writers would otherwise have to access `extra`, elsewhere in
    /// memory.
    with_starts: bool,
}

impl Default for SeriesData {
    fn default() -> Self {
        Self { samples: Vec::new(), extra: None, ordered: true, with_starts: false }
    }
}

/// Grows by half instead of doubling: the vectors of a generation are short, and half-empty ones would waste memory.
fn grow<T>(list: &mut Vec<T>, least: usize) -> usize {
    if list.len() < list.capacity() {
        return 0;
    }
    let old = list.capacity();
    list.reserve_exact((old / 2).max(least));
    (list.capacity() - old) * size_of::<T>()
}

/// The samples of a series in order of arrival, chunk by chunk.
#[derive(Debug, Clone, Copy)]
struct ArrivalSamples<'a> {
    full: &'a [Box<[Sample]>],
    newest: &'a [Sample],
}

impl<'a> ArrivalSamples<'a> {
    fn len(self) -> usize {
        self.full.iter().map(|chunk| chunk.len()).sum::<usize>() + self.newest.len()
    }

    /// The first sample; `None` only if there are no samples, as for [`ArrivalSamples::last`].
    fn first(self) -> Option<&'a Sample> {
        self.full.first().map_or(self.newest, |chunk| &**chunk).first()
    }

    fn last(self) -> Option<&'a Sample> {
        self.newest.last().or_else(|| self.full.last()?.last())
    }

    /// The chunks, each with the number of samples before it. Skips leading chunks whose last sample fulfils `before`,
    /// which must hold for a prefix of the samples.
    fn chunks_from(self, before: impl Fn(&Sample) -> bool) -> impl Iterator<Item = (usize, &'a [Sample])> {
        let first = self.full.partition_point(|chunk| chunk.last().is_some_and(&before));
        let (left_out, full) = self.full.split_at(first);
        let mut at = left_out.iter().map(|chunk| chunk.len()).sum::<usize>();
        full.iter().map(|chunk| &**chunk).chain([self.newest]).map(move |chunk| {
            at += chunk.len();
            (at - chunk.len(), chunk)
        })
    }

    fn samples(self) -> impl Iterator<Item = &'a Sample> {
        self.full.iter().flat_map(|chunk| chunk.iter()).chain(self.newest)
    }
}

impl SeriesData {
    /// Adds a float sample; adds the bytes of newly allocated memory to `grown`.
    pub(crate) fn push(
        &mut self,
        ts: Millis,
        value: f64,
        start_ts: Millis,
        seq: u32,
        grown: &mut usize,
    ) -> PushOutcome {
        let mut pushed = PushOutcome::Stored;
        if let Some(last) = self.samples.last() {
            let (last_ts, last_value) = (last.ts, last.value);
            if ts <= last_ts {
                if ts == last_ts {
                    if value.to_bits() == last_value.to_bits() && self.last_start() == start_ts {
                        return PushOutcome::Repeated;
                    }
                    if value.to_bits() != last_value.to_bits() {
                        pushed = PushOutcome::Conflicting;
                    }
                }
                self.ordered = false;
            }
        }
        if start_ts != 0 || self.with_starts {
            let before = if self.with_starts { 0 } else { self.arrived().len() };
            self.with_starts = true;
            let starts = &mut self.extra(grown).start_ts;
            if before > 0 {
                *grown += before * size_of::<Millis>();
                starts.resize(before, 0);
            }
            *grown += grow(starts, 4);
            starts.push(start_ts);
        }
        if self.samples.len() == self.samples.capacity() {
            *grown += self.make_room();
        }
        self.samples.push(Sample { ts, value, seq });
        pushed
    }

    /// Makes room for more samples if the vector is full; returns the bytes of newly allocated memory. A short series
    /// moves to a larger vector, a long one starts the next chunk. The second chunk is half as long, so that memory
    /// grows by half there, too.
    fn make_room(&mut self) -> usize {
        let (held, first) = (self.samples.len(), self.arrived().full.is_empty());
        if first && held < CHUNK {
            let before = self.samples.capacity();
            self.samples.reserve_exact((held / 2).max(4).min(CHUNK - held));
            return (self.samples.capacity() - before) * size_of::<Sample>();
        }
        let next = Vec::with_capacity(if first { CHUNK / 2 } else { CHUNK });
        let mut grown = next.capacity() * size_of::<Sample>();
        let chunk = std::mem::replace(&mut self.samples, next).into_boxed_slice();
        let full = &mut self.extra(&mut grown).full;
        grown += grow(full, 4);
        full.push(chunk);
        grown
    }

    fn arrived(&self) -> ArrivalSamples<'_> {
        ArrivalSamples { full: self.extra.as_ref().map_or(&[][..], |e| &e.full), newest: &self.samples }
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

    /// Tells whether a reader may find something in the range, with sequence numbers up to `cut`.
    pub(crate) fn visible(&self, cut: u32, range: MillisRange) -> bool {
        let floats = match (self.arrived().first(), self.arrived().last()) {
            (Some(first), Some(last)) => {
                first.seq <= cut && (!self.ordered || (first.ts <= range.max && last.ts >= range.min))
            }
            _ => false,
        };
        floats || self.has_extra_rows(range, cut)
    }

    /// Says whether there are histograms.
    pub(crate) fn has_histograms(&self) -> bool {
        self.extra.as_ref().is_some_and(|e| !e.histograms.is_empty())
    }

    /// Appends the samples in the range, up to sequence number `cut`, to a run: ascending, one per time.
    pub(crate) fn append_floats(&self, range: MillisRange, cut: u32, out: &mut FloatRun) {
        let samples = self.arrived();
        let starts = self.extra.as_ref().map_or(&[][..], |e| &e.start_ts);
        if self.ordered {
            for (at, chunk) in samples.chunks_from(|last| last.ts < range.min) {
                let first = chunk.partition_point(|s| s.ts < range.min);
                let end = first + chunk[first..].partition_point(|s| s.ts <= range.max && s.seq <= cut);
                append_ordered(&chunk[first..end], starts.get(at + first..at + end).unwrap_or(&[]), out);
                if end < chunk.len() {
                    return;
                }
            }
            return;
        }
        let visible = || samples.samples().enumerate().take_while(|(_, s)| s.seq <= cut);
        let wanted = || visible().filter(|(_, s)| range.contains(s.ts));
        // A series may have millions of samples: nothing grows, and sorting takes no room beside them. Which of several at
        // one time stays does not depend on their order.
        let mut rows = Vec::with_capacity(wanted().count());
        rows.extend(wanted().map(|(i, s)| (s.ts, s.value, starts.get(i).copied().unwrap_or(0))));
        rows.sort_unstable_by_key(|&(ts, ..): &(Millis, f64, Millis)| ts);
        out.reserve(rows.len());
        let mut rows = rows.into_iter();
        // The last time in the run may be that of another series.
        if let Some((ts, value, start_ts)) = rows.next() {
            out.push(ts, value, start_ts);
        }
        rows.for_each(|(ts, value, start_ts)| out.push_newest(ts, value, start_ts));
    }

    /// Says whether there is something in the range, up to sequence number `cut`.
    pub(crate) fn has_rows(&self, range: MillisRange, cut: u32) -> bool {
        let has_floats = || self.arrived().samples().any(|s| s.seq <= cut && range.contains(s.ts));
        has_floats() || self.has_extra_rows(range, cut)
    }

    fn has_extra_rows(&self, range: MillisRange, cut: u32) -> bool {
        self.extra.as_ref().is_some_and(|e| {
            e.histograms.iter().any(|h| h.seq <= cut && range.contains(h.ts))
                || e.exemplars.iter().any(|x| x.seq <= cut && range.contains(x.exemplar.ts))
        })
    }

    /// The histograms in the range, up to sequence number `cut`: ascending, one per time.
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

    /// The exemplars in the range, up to sequence number `cut`, by time.
    pub(crate) fn copy_exemplars(&self, range: MillisRange, cut: u32) -> Vec<RunExemplar> {
        let all = self.extra.iter().flat_map(|e| &e.exemplars);
        let mut list: Vec<_> =
            all.filter(|x| x.seq <= cut && range.contains(x.exemplar.ts)).map(|x| x.exemplar.clone()).collect();
        normalize_exemplars(&mut list);
        list
    }

    /// Calls a function with the day of each row; if samples are ordered, only once per run of a day.
    pub(crate) fn for_days(&self, mut day: impl FnMut(i32)) {
        use quiver_types::time::{DAY_MS, day_of};
        let samples = self.arrived();
        if self.ordered {
            let mut known_to = i64::MIN;
            for (_, chunk) in samples.chunks_from(|_| false) {
                if samples.last().is_some_and(|s| s.ts < known_to) {
                    break;
                }
                let mut at = chunk.partition_point(|s| s.ts < known_to);
                while let Some(sample) = chunk.get(at) {
                    let this = day_of(sample.ts);
                    day(this);
                    known_to = (i64::from(this) + 1) * DAY_MS;
                    at += chunk[at..].partition_point(|s| s.ts < known_to);
                }
            }
        } else {
            for sample in samples.samples() {
                day(day_of(sample.ts));
            }
        }
        if let Some(extra) = &self.extra {
            extra.histograms.iter().for_each(|h| day(day_of(h.ts)));
            extra.exemplars.iter().for_each(|x| day(day_of(x.exemplar.ts)));
        }
    }
}

/// Appends ascending samples to a run, with start times if they have any.
fn append_ordered(samples: &[Sample], starts: &[Millis], out: &mut FloatRun) {
    out.ts.extend(samples.iter().map(|s| s.ts));
    out.values.extend(samples.iter().map(|s| s.value));
    if starts.iter().any(|&t| t != 0) {
        out.start_ts.resize(out.ts.len() - starts.len(), 0);
        out.start_ts.extend_from_slice(starts);
    } else if !out.start_ts.is_empty() {
        out.start_ts.resize(out.ts.len(), 0);
    }
}

/// Builds an exemplar from its parts.
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
    fn series_in_one_run_stay_apart() {
        let mut run = FloatRun::default();
        data(&[(2, 2.0, 0), (1, 1.0, 0)]).append_floats(MillisRange::new(0, 9), 9, &mut run);
        data(&[(4, 4.0, 3), (2, 7.0, 0), (4, 5.0, 0)]).append_floats(MillisRange::new(0, 9), 9, &mut run);
        assert_eq!((&*run.ts, &*run.values), (&[1, 2, 2, 4][..], &[1.0, 2.0, 7.0, 5.0][..]));
        let long: Vec<_> = (0..1000).rev().map(|i| (i, 0.0, 0)).collect();
        let mut run = FloatRun::default();
        data(&long).append_floats(MillisRange::new(0, 599), 999, &mut run);
        assert_eq!((run.ts.len(), run.ts.capacity(), run.values.capacity()), (600, 600, 600), "room for what there is");
    }

    #[test]
    fn rows_are_found_by_time_and_write() {
        let series = data(&[(1, 1.0, 0), (7, 7.0, 0), (3, 3.0, 0)]);
        for (range, cut, has) in [((2, 5), 9, true), ((2, 5), 1, false), ((4, 6), 9, false), ((0, 9), 0, true)] {
            assert_eq!(series.has_rows(MillisRange::new(range.0, range.1), cut), has, "{range:?} up to {cut}");
        }
        let mut gap = data(&[(1, 1.0, 0), (9, 9.0, 0)]);
        assert!(!gap.has_rows(MillisRange::new(2, 5), 9));
        gap.push_exemplar(exemplar(4, 1.0, b""), 3, &mut 0);
        assert!(gap.has_rows(MillisRange::new(2, 5), 3) && !gap.has_rows(MillisRange::new(2, 5), 2));
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

    /// What a series of some length gives, however its samples lie in memory.
    #[test]
    fn long_series_are_read_across_chunks() {
        let check = |rows: &[(i64, f64, i64)]| {
            let series = data(rows);
            let ends = [0, 1, 63, 64, 127, 128, 129, 191, 192, 193, 319, 320, 321, 500, 999, 1000];
            let bounds = ends.iter().flat_map(|&a| ends.iter().map(move |&b| (a, b)));
            for ((min, max), cut) in bounds.flat_map(|r| [128, 191, 192, 1000].map(|cut| (r, cut))) {
                let range = MillisRange::new(min * 10, max * 10);
                let mut run = FloatRun::default();
                series.append_floats(range, cut, &mut run);
                let mut wanted: Vec<_> = (rows.iter().take(cut as usize + 1)).filter(|r| range.contains(r.0)).collect();
                wanted.sort_by_key(|r| r.0);
                assert_eq!(run.ts, wanted.iter().map(|r| r.0).collect::<Vec<_>>(), "{range:?} up to {cut}");
                assert_eq!(run.values, wanted.iter().map(|r| r.1).collect::<Vec<_>>(), "{range:?} up to {cut}");
                let starts: Vec<i64> = wanted.iter().map(|r| r.2).collect();
                let some = starts.iter().any(|&s| s != 0);
                assert_eq!(run.start_ts, if some { starts } else { Vec::new() }, "{range:?} up to {cut}");
                assert!(wanted.is_empty() || series.visible(cut, range), "{range:?} up to {cut}");
            }
        };
        let rows = |start_from: i64| (0..1000).map(move |i| (i * 10, i as f64, if i < start_from { 0 } else { i }));
        check(&rows(1000).collect::<Vec<_>>());
        check(&rows(150).collect::<Vec<_>>());
        check(&rows(150).map(|(ts, value, start)| ((ts * 7) % 10_000, value, start)).collect::<Vec<_>>());
    }

    /// Series that are written side by side need more memory at the same time: it must be little beside what they hold,
    /// and none of it for samples that move.
    #[test]
    fn long_series_grow_by_chunks() {
        let mut series = SeriesData::default();
        let mut total = 0;
        for i in 0..10_000 {
            let mut grown = 0;
            series.push(i, i as f64, 0, i as u32, &mut grown);
            total += grown;
            assert!(grown <= CHUNK * 20 + size_of::<Extra>() + 80 * size_of::<Box<[Sample]>>(), "{grown} at {i}");
        }
        assert_eq!(series.arrived().len(), 10_000);
        assert!(total < 10_000 * 20 * 21 / 20, "{total}");
        let capacity: usize =
            series.arrived().full.iter().map(|chunk| chunk.len()).sum::<usize>() + series.samples.capacity();
        assert!(total >= capacity * 20, "{total} is less than what {capacity} samples take");
    }

    #[test]
    fn repeats_and_conflicts() {
        let mut d = data(&[(1, 1.0, 0)]);
        let mut push = |ts, value: f64, start| d.push(ts, value, start, 1, &mut 0);
        assert_eq!(push(1, 1.0, 0), PushOutcome::Repeated);
        assert_eq!(push(1, -0.0, 0), PushOutcome::Conflicting);
        assert_eq!(push(1, -0.0, 5), PushOutcome::Stored);
        assert_eq!(push(2, f64::NAN, 0), PushOutcome::Stored);
        assert_eq!(push(2, quiver_types::stale_nan(), 0), PushOutcome::Conflicting);
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
        let minutes = |n: i64| (0..n).map(|i| i * 600_000).collect::<Vec<_>>();
        check(&minutes(144), &[0]);
        check(&minutes(145), &[0, 1]);
        check(&minutes(1000), &[0, 1, 2, 3, 4, 5, 6]);
        check(&minutes(1000).into_iter().rev().collect::<Vec<_>>(), &[0, 1, 2, 3, 4, 5, 6]);
    }
}
