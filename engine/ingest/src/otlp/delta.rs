//! Converts delta temporality to cumulative: holds the sums of all delta series that are being sent. The caller keeps
//! it between requests behind a mutex. A restart of the service begins new sums, which looks like a counter reset.
//! Entries and bytes are bounded: when it is full, series without data for an hour are removed, and new ones are
//! refused if that does not help.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::{Histogram, Millis, SeriesId};

use crate::histogram;
use crate::rejection::Reason;

/// The accumulated value of a delta series.
#[derive(Debug, Clone, PartialEq)]
pub enum Sum {
    /// A sum of numbers.
    Number(f64),
    /// A histogram with explicit bounds.
    Classic(ClassicSum),
    /// An exponential histogram.
    Native(Histogram),
}

/// A histogram with explicit bounds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClassicSum {
    /// Upper bounds, without +Inf.
    pub bounds: Vec<f64>,
    /// Counts per bucket, one more than bounds; or empty.
    pub counts: Vec<f64>,
    /// Number of observations, in all buckets together.
    pub count: f64,
    /// Sum of observations, if given.
    pub sum: Option<f64>,
}

impl Sum {
    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Classic(c) => 8 * (c.bounds.capacity() + c.counts.capacity()),
            Self::Native(h) => h.memory_bytes(),
        }
    }

    /// Adds a delta; `false` if its bounds differ, so that a new sum must begin. `excess` is by how much a sum of numbers
    /// is too large.
    fn add(&mut self, delta: &Self, excess: &mut f64) -> bool {
        match (self, delta) {
            (Self::Number(sum), Self::Number(delta)) => {
                // Kahan summation: without it, deltas that are small compared with the sum would be lost to rounding.
                let part = delta - *excess;
                let total = *sum + part;
                *excess = if total.is_finite() { (total - *sum) - part } else { 0.0 };
                *sum = total;
                true
            }
            (Self::Classic(sum), Self::Classic(delta)) => {
                let same_shape = sum.bounds == delta.bounds
                    && sum.counts.len() == delta.counts.len()
                    && sum.sum.is_some() == delta.sum.is_some();
                if same_shape {
                    sum.counts.iter_mut().zip(&delta.counts).for_each(|(s, d)| *s += d);
                    sum.count += delta.count;
                    sum.sum = sum.sum.zip(delta.sum).map(|(s, d)| s + d);
                }
                same_shape
            }
            (Self::Native(sum), Self::Native(delta)) => histogram::add(sum, delta),
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Entry {
    /// Start of the first delta in ns; 0 if not given.
    start_ns: u64,
    /// Time of the last delta in ns.
    last_ns: u64,
    heard_ms: Millis,
    sum: Sum,
    /// By how much a sum of numbers is too large because of rounding.
    excess: f64,
}

const ENTRY_BYTES: usize = size_of::<(SeriesId, Entry)>() + 8;

/// The sums of all delta series.
#[derive(Debug)]
pub struct DeltaState {
    series: HashMap<SeriesId, Entry, FixedState>,
    bytes: usize,
    bytes_max: usize,
    idle_ms: Millis,
    /// No cleanup before this time, since a full table must not be scanned for each refused point.
    next_sweep_ms: Millis,
}

impl Default for DeltaState {
    fn default() -> Self {
        Self::new(256 << 20, 3_600_000)
    }
}

impl DeltaState {
    /// An empty table of at most `bytes_max` (a number takes about 200 bytes). If it is full, series without data for
    /// `idle_ms` are removed.
    pub fn new(bytes_max: usize, idle_ms: Millis) -> Self {
        Self { series: HashMap::default(), bytes: 0, bytes_max, idle_ms, next_sweep_ms: Millis::MIN }
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Approximate bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a delta for the period (`start_ns`, `time_ns`]; returns the sum and the start of its first delta, in ns.
    /// A delta with the time of the last one is a repetition and changes nothing, so senders may retry their last
    /// request.
    ///
    /// # Errors
    ///
    /// [`Reason::LateDelta`]: older than the last one. [`Reason::DeltaLimit`]: a new series, and no space.
    pub fn add(
        &mut self,
        id: SeriesId,
        start_ns: u64,
        time_ns: u64,
        now_ms: Millis,
        delta: Sum,
    ) -> Result<(&Sum, u64), Reason> {
        if !self.series.contains_key(&id) {
            let bytes = ENTRY_BYTES + delta.bytes();
            self.make_room(bytes, now_ms)?;
            self.bytes += bytes;
            let entry = Entry { start_ns, last_ns: time_ns, heard_ms: now_ms, sum: delta, excess: 0.0 };
            let entry = self.series.entry(id).insert(entry).into_mut();
            return Ok((&entry.sum, entry.start_ns));
        }
        let entry = self.series.get_mut(&id).expect("found above");
        entry.heard_ms = now_ms;
        if time_ns < entry.last_ns {
            return Err(Reason::LateDelta);
        }
        if time_ns > entry.last_ns {
            entry.last_ns = time_ns;
            let before = entry.sum.bytes();
            if !entry.sum.add(&delta, &mut entry.excess) {
                entry.sum = delta;
                entry.start_ns = start_ns;
                entry.excess = 0.0;
            }
            self.bytes = self.bytes + entry.sum.bytes() - before;
        }
        Ok((&entry.sum, entry.start_ns))
    }

    fn make_room(&mut self, bytes: usize, now_ms: Millis) -> Result<(), Reason> {
        if self.bytes + bytes > self.bytes_max && now_ms >= self.next_sweep_ms {
            self.next_sweep_ms = now_ms + self.idle_ms.min(10_000);
            let oldest_ms = now_ms - self.idle_ms;
            let freed = &mut self.bytes;
            self.series.retain(|_, entry| {
                let keep = entry.heard_ms >= oldest_ms;
                *freed -= if keep { 0 } else { ENTRY_BYTES + entry.sum.bytes() };
                keep
            });
        }
        if self.bytes + bytes > self.bytes_max { Err(Reason::DeltaLimit) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut state = DeltaState::default();
        let mut add =
            |id, start, time, v| state.add(SeriesId(id), start, time, 0, Sum::Number(v)).map(|(s, t)| (s.clone(), t));
        assert_eq!(add(1, 10, 20, 5.0), Ok((Sum::Number(5.0), 10)));
        assert_eq!(add(1, 20, 30, 2.0), Ok((Sum::Number(7.0), 10)));
        assert_eq!(add(2, 20, 30, 1.0), Ok((Sum::Number(1.0), 20)));
        assert_eq!(add(1, 20, 30, 2.0), Ok((Sum::Number(7.0), 10)), "a repeat");
        assert_eq!(add(1, 10, 20, 5.0), Err(Reason::LateDelta));
        let classic = |bounds: &[f64], counts: &[f64]| {
            Sum::Classic(ClassicSum { bounds: bounds.into(), counts: counts.into(), count: 1.0, sum: Some(2.0) })
        };
        let mut add = |time, sum| state.add(SeriesId(3), time - 1, time, 0, sum).map(|(s, t)| (s.clone(), t)).unwrap();
        add(10, classic(&[1.0], &[1.0, 2.0]));
        let (Sum::Classic(sum), 9) = add(11, classic(&[1.0], &[1.0, 0.0])) else { panic!("a classic sum") };
        assert_eq!((sum.counts, sum.count, sum.sum), (vec![2.0, 2.0], 2.0, Some(4.0)));
        assert_eq!(
            add(12, classic(&[2.0], &[1.0, 0.0])),
            (classic(&[2.0], &[1.0, 0.0]), 11),
            "other bounds start anew"
        );
    }

    #[test]
    fn small_deltas_of_large_sums() {
        let sum = |deltas: &[f64]| {
            let mut state = DeltaState::default();
            let mut sum = 0.0;
            for (time, delta) in (1..).zip(deltas) {
                let added = state.add(SeriesId(1), time - 1, time, 0, Sum::Number(*delta)).map(|(sum, _)| sum.clone());
                let Ok(Sum::Number(number)) = added else { panic!("{added:?}") };
                sum = number;
            }
            sum
        };
        let large = 2f64.powi(53);
        assert_eq!(sum(&[large, 1.0, 1.0, 1.0, 1.0]), large + 4.0);
        assert_eq!(sum(&[0.1; 10]), 1.0);
        assert_eq!(sum(&[1.0, f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(sum(&[1.0, f64::NAN, 1.0]).is_nan());
    }

    #[test]
    fn bounds() {
        let mut state = DeltaState::new(10 * ENTRY_BYTES, 1000);
        let mut add = |id, now| state.add(SeriesId(id), 0, 1, now, Sum::Number(1.0)).map(drop);
        for id in 0..10 {
            assert_eq!(add(id, id as i64), Ok(()));
        }
        assert_eq!(add(10, 500), Err(Reason::DeltaLimit));
        assert_eq!(add(3, 500), Ok(()), "known series go on");
        assert_eq!(add(10, 1004), Err(Reason::DeltaLimit), "swept a moment ago");
        assert_eq!(add(10, 1505), Ok(()));
        assert_eq!(state.len(), 1);
        assert_eq!(state.bytes(), ENTRY_BYTES);
    }
}
