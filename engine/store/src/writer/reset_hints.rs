//! Sets counter reset hints of incoming histograms, by comparing each with the previous sample of its series.
//!
//! The last sample of each series with histograms is remembered during its generation and the next one. If it has been
//! forgotten, only the hint is missing; results stay correct. Samples that go back in time get no hint (`series_run` removes
//! hints that are no longer valid).

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::{Histogram, MetricsBatch, Millis, ResetHint, SeriesId};

/// The last sample of a series.
#[derive(Debug)]
struct Tail {
    ts: Millis,
    /// `None` if it is a float.
    histogram: Option<Histogram>,
    generation: u64,
}

/// Remembers the last sample of each series with histograms.
#[derive(Debug, Default)]
pub(crate) struct HintTracker {
    tails: HashMap<SeriesId, Tail, FixedState>,
    bytes: usize,
    generation: u64,
}

/// A relevant sample of a series: its time, and the index of the batch's histogram (`None` for a float).
type Event = (Millis, Option<usize>);

impl HintTracker {
    /// Forgets all samples.
    pub(crate) fn clear(&mut self) {
        self.tails.clear();
        self.bytes = 0;
    }

    /// Forgets series that had no samples in the last generation.
    pub(crate) fn new_generation(&mut self) {
        let generation = self.generation;
        self.tails.retain(|_, t| t.generation == generation);
        self.bytes = self.tails.values().map(Tail::bytes).sum();
        self.generation += 1;
    }

    /// Sets the hints of the batch's histograms. What is remembered takes no more than `bytes_max`.
    pub(crate) fn apply(&mut self, batch: &mut MetricsBatch, bytes_max: usize) {
        if batch.histograms.is_empty() && self.tails.is_empty() {
            return;
        }
        for (series, events) in self.events(batch) {
            self.walk(batch.series[series as usize].id, &events, &mut batch.histograms);
        }
        if self.bytes > bytes_max {
            self.clear();
            self.tails.shrink_to_fit();
        }
    }

    /// By series, the samples of those that have histograms now or had them before, sorted by time.
    fn events(&self, batch: &MetricsBatch) -> HashMap<u32, Vec<Event>, FixedState> {
        let mut events: HashMap<u32, Vec<Event>, FixedState> = HashMap::default();
        for (at, h) in batch.histograms.iter().enumerate() {
            events.entry(h.series).or_default().push((h.ts, Some(at)));
        }
        let concerned: Vec<bool> = (batch.series.iter().enumerate())
            .map(|(i, s)| events.contains_key(&(i as u32)) || self.tails.contains_key(&s.id))
            .collect();
        if concerned.contains(&true) {
            for (&series, &ts) in batch.sample_series.iter().zip(&batch.ts) {
                if concerned[series as usize] {
                    events.entry(series).or_default().push((ts, None));
                }
            }
        }
        events.values_mut().for_each(|list| list.sort_by_key(|e| e.0));
        events
    }

    fn walk(&mut self, id: SeriesId, events: &[Event], histograms: &mut [quiver_types::metrics::HistogramSample]) {
        let mut tail = self.tails.remove(&id);
        self.bytes -= tail.as_ref().map_or(0, Tail::bytes);
        for &(ts, histogram) in events {
            let late = tail.as_ref().is_some_and(|t| ts <= t.ts);
            if let Some(at) = histogram {
                let h = &mut histograms[at].histogram;
                let previous = tail.as_ref().filter(|_| !late).and_then(|t| t.histogram.as_ref());
                h.reset_hint = h.stored_hint(previous);
                debug_assert!(h.reset_hint != ResetHint::Reset, "never stored");
            }
            if !late {
                let histogram = histogram.map(|at| histograms[at].histogram.clone());
                tail = Some(Tail { ts, histogram, generation: self.generation });
            }
        }
        if let Some(tail) = tail {
            self.bytes += tail.bytes();
            self.tails.insert(id, tail);
        }
    }
}

impl Tail {
    fn bytes(&self) -> usize {
        size_of::<(SeriesId, Self)>() + self.histogram.as_ref().map_or(0, Histogram::memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use ResetHint::{Gauge, NotReset, Unknown};
    use quiver_types::metrics::HistogramSample;
    use quiver_types::{LabelSet, Span};

    use super::*;

    const BYTES_MAX: usize = 4000;

    fn histogram(count: f64, reset_hint: ResetHint) -> Histogram {
        let spans = vec![Span { offset: 0, length: 1 }];
        Histogram { count, positive_spans: spans, positive: vec![count], reset_hint, ..Histogram::default() }
    }

    /// One series: histograms as (time, count, hint), and times of floats; gives the hints.
    fn apply(tracker: &mut HintTracker, histograms: &[(Millis, f64, ResetHint)], floats: &[Millis]) -> Vec<ResetHint> {
        let mut batch = MetricsBatch::default();
        let series = batch.push_series(LabelSet::from_pairs([("__name__", "h")]).canonical());
        for &ts in floats {
            batch.push_sample(series, ts, 1.0, 0);
        }
        batch.histograms.extend(histograms.iter().map(|&(ts, count, hint)| HistogramSample {
            series,
            ts,
            start_ts: 0,
            histogram: histogram(count, hint),
        }));
        tracker.apply(&mut batch, BYTES_MAX);
        batch.histograms.iter().map(|h| h.histogram.reset_hint).collect()
    }

    #[test]
    fn hints_cross_batches() {
        let mut tracker = HintTracker::default();
        let mut check = |histograms: &[_], floats: &[Millis], expected: &[ResetHint]| {
            assert_eq!(apply(&mut tracker, histograms, floats), expected, "{histograms:?} {floats:?}");
        };
        check(&[(10, 1.0, Unknown), (20, 2.0, Unknown)], &[], &[Unknown, NotReset]);
        check(&[(30, 2.0, Unknown)], &[], &[NotReset]);
        check(&[(25, 2.0, NotReset)], &[], &[Unknown]);
        check(&[(40, 1.0, NotReset)], &[], &[Unknown]);
        check(&[(50, 3.0, Unknown), (60, 4.0, Unknown)], &[55], &[NotReset, Unknown]);
        check(&[], &[65], &[]);
        check(&[(70, 5.0, Unknown), (80, 5.0, Gauge), (90, 6.0, Unknown)], &[], &[Unknown, Gauge, Unknown]);
    }

    #[test]
    fn series_without_histograms_are_not_remembered() {
        let mut tracker = HintTracker::default();
        apply(&mut tracker, &[], &[1, 2, 3]);
        assert!(tracker.tails.is_empty());
    }

    /// Breaks where a small server remembers as much as a large one.
    #[test]
    fn what_is_remembered_stays_within_its_memory() {
        let mut tracker = HintTracker::default();
        for n in 0..100 {
            let mut batch = MetricsBatch::default();
            let name = n.to_string();
            let series = batch.push_series(LabelSet::from_pairs([("__name__", name.as_str())]).canonical());
            let histogram = histogram(1.0, Unknown);
            batch.histograms.push(HistogramSample { series, ts: 10, start_ts: 0, histogram });
            tracker.apply(&mut batch, BYTES_MAX);
            assert!(tracker.bytes <= BYTES_MAX, "{n}: {}", tracker.bytes);
        }
        assert!(tracker.tails.len() < 100);
    }

    #[test]
    fn idle_series_are_forgotten() {
        let mut tracker = HintTracker::default();
        apply(&mut tracker, &[(10, 1.0, Unknown)], &[]);
        tracker.new_generation();
        assert_eq!(apply(&mut tracker, &[(20, 1.0, Unknown)], &[]), [NotReset]);
        tracker.new_generation();
        tracker.new_generation();
        assert!(tracker.tails.is_empty() && tracker.bytes == 0);
    }
}
