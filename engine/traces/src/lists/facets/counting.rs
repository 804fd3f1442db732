//! Counts values by key, in bounded memory. When there are too many, the less frequent half is dropped; frequent values
//! remain, or return, whenever they occur (`common_values`).

use std::f64::consts::LN_2;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use foldhash::quality::FixedState as EvenState;
use hashbrown::HashMap;

use crate::common_values::{middle_of, stays};

/// Maximum number of values counted per key. A value of more than one span in 2,500 is not missed.
pub(super) const VALUES_MAX: usize = 5_000;
/// Maximum number of keys counted.
const KEYS_MAX: usize = 2_000;

/// Estimated memory of a key, and of a value, besides its text.
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 112;

/// Spans that have a value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// Number of them since it is counted.
    pub(super) spans: u64,
    /// Those of them that failed.
    pub(super) errors: u64,
    /// How many there were before, at most.
    before: u64,
    /// Number of the last one, from 1 on.
    last: u64,
}

impl Seen {
    /// Counts a span with this number, once.
    fn add(&mut self, failed: bool, span: u64) {
        if self.last != span {
            self.last = span;
            self.spans += 1;
            self.errors += u64::from(failed);
        }
    }

    fn at_most(&self) -> u64 {
        self.spans + self.before
    }
}

/// The values of a key.
#[derive(Debug, Default)]
pub(super) struct KeyCounts {
    pub(super) values: HashMap<String, Seen, FixedState>,
    /// What is not among the values has at most so many spans.
    floor: u64,
    /// A sketch of all values, once some have been dropped.
    distinct: Option<DistinctValues>,
    /// Number of its values in all spans since it is counted, and of those before, at most.
    seen: u64,
    before: u64,
    /// Bytes of the texts of the values, and most values at once.
    texts: usize,
    peak: usize,
}

impl KeyCounts {
    fn add(&mut self, value: &str, failed: bool, span: u64) {
        self.seen += 1;
        if let Some(seen) = self.values.get_mut(value) {
            seen.add(failed, span);
            return;
        }
        if self.values.len() >= VALUES_MAX {
            self.halve();
        }
        if let Some(distinct) = &mut self.distinct {
            distinct.add(value);
        }
        let mut seen = Seen { before: self.floor, ..Seen::default() };
        seen.add(failed, span);
        self.texts += value.len();
        self.values.insert(value.to_owned(), seen);
        self.peak = self.peak.max(self.values.len());
    }

    fn halve(&mut self) {
        let distinct = self.distinct.get_or_insert_with(DistinctValues::new);
        self.values.keys().for_each(|value| distinct.add(value));
        let (floor, mut ties) = middle_of(self.values.values().map(Seen::at_most).collect());
        self.floor = floor;
        self.values.retain(|value, seen| {
            let stays = stays(seen.at_most(), floor, &mut ties);
            self.texts -= if stays { 0 } else { value.len() };
            stays
        });
    }

    fn at_most(&self) -> u64 {
        self.seen + self.before
    }

    fn bytes(&self) -> usize {
        self.texts + self.peak * VALUE_BYTES + self.distinct.as_ref().map_or(0, |_| REGISTERS)
    }

    /// Number of different values; an estimate if some were dropped.
    pub(super) fn cardinality(&self) -> usize {
        let there = self.values.len();
        self.distinct.as_ref().map_or(there, |distinct| distinct.estimate().max(there))
    }

    /// Whether the counts, or the number of values, may be too small.
    pub(super) fn is_approximate(&self) -> bool {
        self.before > 0 || self.distinct.is_some()
    }
}

/// Counts of all keys.
#[derive(Debug, Default)]
pub(super) struct FacetCounts {
    pub(super) keys: HashMap<String, KeyCounts, FixedState>,
    /// Number of spans so far.
    pub(super) spans: u64,
    /// What is not among the keys has at most so many values in all spans.
    floor: u64,
    /// Bytes that are held, and those of them that were asked for.
    held: usize,
    asked: usize,
}

impl FacetCounts {
    /// Begins the next span.
    pub(super) fn begin_span(&mut self) {
        self.spans += 1;
    }

    /// Counts a value of the span; the same one of the same key counts once.
    pub(super) fn count(&mut self, key: &str, value: &str, failed: bool) {
        if !self.keys.contains_key(key) {
            if self.keys.len() >= KEYS_MAX {
                self.halve();
            }
            self.held += key.len() + KEY_BYTES;
            self.keys.insert(key.to_owned(), KeyCounts { before: self.floor, ..KeyCounts::default() });
        }
        let counts = self.keys.get_mut(key).expect("it was put there above");
        let before = counts.bytes();
        counts.add(value, failed, self.spans);
        self.held = self.held + counts.bytes() - before;
    }

    fn halve(&mut self) {
        let (floor, mut ties) = middle_of(self.keys.values().map(KeyCounts::at_most).collect());
        self.floor = floor;
        self.keys.retain(|key, counts| {
            let stays = stays(counts.at_most(), floor, &mut ties);
            self.held -= if stays { 0 } else { key.len() + KEY_BYTES + counts.bytes() };
            stays
        });
    }

    /// Number of spans that have a value, as far as they are known.
    pub(super) fn spans_with(&self, key: &str, value: &str) -> u64 {
        self.keys.get(key).and_then(|counts| counts.values.get(value)).map_or(0, |seen| seen.spans)
    }

    /// Number of values of all keys.
    pub(super) fn values(&self) -> usize {
        self.keys.values().map(|counts| counts.values.len()).sum()
    }

    /// Bytes by which the counts have outgrown what was asked for; they count as asked for from now on.
    pub(super) fn grown(&mut self) -> usize {
        let more = self.held.saturating_sub(self.asked);
        self.asked += more;
        more
    }
}

/// Bits of a hash that choose a register, and the number of registers, a byte each: the error is about 1.6 %.
const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Largest value of a register.
const RANK_MAX: usize = 64 - INDEX_BITS as usize;

/// How many different values there are (`HyperLogLog`): in each register the longest run of zeros of those hashes that fall
/// to it, plus one.
#[derive(Debug)]
struct DistinctValues(Vec<u8>);

impl DistinctValues {
    fn new() -> Self {
        Self(vec![0; REGISTERS])
    }

    fn add(&mut self, value: &str) {
        let hash = EvenState::default().hash_one(value);
        let register = &mut self.0[(hash >> (64 - INDEX_BITS)) as usize];
        let rank = ((hash << INDEX_BITS).leading_zeros() as usize + 1).min(RANK_MAX);
        *register = (*register).max(rank as u8);
    }

    /// Ertl's estimate, which has no bias for few values ("New cardinality estimation algorithms", algorithm 6).
    fn estimate(&self) -> usize {
        let mut with_rank = [0u32; RANK_MAX + 1];
        for rank in &self.0 {
            with_rank[usize::from(*rank)] += 1;
        }
        let all = REGISTERS as f64;
        let sum = with_rank[1..].iter().rev().fold(0.0, |sum, count| 0.5 * (sum + f64::from(*count)));
        let empty = f64::from(with_rank[0]) / all;
        (all * all / (2.0 * LN_2 * (sum + all * unseen(empty)))).round() as usize
    }
}

/// What the empty registers, which are so large a share of all, add to the sum: `x + x² + 2x⁴ + 4x⁸ + …`.
fn unseen(empty: f64) -> f64 {
    let (mut power, mut factor, mut sum) = (empty, 1.0, empty);
    loop {
        power *= power;
        let next = sum + power * factor;
        if next == sum || !next.is_finite() {
            return next;
        }
        factor += factor;
        sum = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(counts: &FacetCounts, key: &str, value: &str) -> (u64, u64) {
        counts.keys[key].values.get(value).map_or((0, 0), |seen| (seen.spans, seen.errors))
    }

    fn count(counts: &mut FacetCounts, key: &str, value: &str, failed: bool) {
        counts.begin_span();
        counts.count(key, value, failed);
    }

    #[test]
    fn few_values_are_counted_exactly() {
        let mut counts = FacetCounts::default();
        for n in 0..3 * VALUES_MAX {
            count(&mut counts, "a", &(n % VALUES_MAX).to_string(), n < VALUES_MAX);
        }
        let of = &counts.keys["a"];
        assert_eq!((of.values.len(), of.cardinality(), of.is_approximate()), (VALUES_MAX, VALUES_MAX, false));
        assert!(of.values.values().all(|seen| (seen.spans, seen.errors) == (3, 1)));
    }

    /// Breaks if the first values of a key are counted, and no others.
    #[test]
    fn a_common_value_is_found_whenever_it_comes() {
        let mut counts = FacetCounts::default();
        let (spans, common) = (40 * VALUES_MAX, "zz");
        for n in 0..spans {
            count(&mut counts, "early", if n < spans / 20 { common } else { "rest" }, false);
            // Every hundredth span, but only in the last half.
            let late = n >= spans / 2 && n % 100 == 0;
            let value = if late { common.to_owned() } else { n.to_string() };
            counts.count("late", &value, late);
        }
        assert_eq!(seen(&counts, "early", common), ((spans / 20) as u64, 0));
        assert!(!counts.keys["early"].is_approximate());
        let late = &counts.keys["late"];
        let expected = (spans / 200) as u64;
        let (found, errors) = seen(&counts, "late", common);
        assert!(found > expected * 9 / 10 && found <= expected && errors == found, "{found} of {expected}");
        assert!(late.values.iter().all(|(value, seen)| value == common || seen.spans == 1));
        assert!(late.is_approximate() && late.values.len() <= VALUES_MAX);
        // As many as there are, about.
        let (there, told) = (spans - spans / 200 + 1, late.cardinality());
        assert!(told.abs_diff(there) < there / 10, "{told} for {there}");
    }

    #[test]
    fn no_value_that_many_spans_have_is_missed() {
        let mut counts = FacetCounts::default();
        // Hostile: those of a round come once, and go; the common one comes once in each.
        let rounds = 12 * VALUES_MAX / 2;
        for round in 0..rounds {
            count(&mut counts, "k", "common", true);
            for n in 0..20 {
                count(&mut counts, "k", &format!("{round} {n}"), false);
            }
        }
        let (found, errors) = seen(&counts, "k", "common");
        assert_eq!((found, errors), (rounds as u64, rounds as u64), "it was never let go");
    }

    #[test]
    fn keys_are_bounded_and_common_ones_stay() {
        let mut counts = FacetCounts::default();
        for n in 0..3 * KEYS_MAX {
            count(&mut counts, &format!("k{n}"), "v", true);
            counts.count("common", "v", true);
        }
        assert!(counts.keys.len() <= KEYS_MAX);
        assert_eq!(seen(&counts, "common", "v"), (3 * KEYS_MAX as u64, 3 * KEYS_MAX as u64));
        assert!(!counts.keys["common"].is_approximate());
        assert!(counts.keys[&format!("k{}", 3 * KEYS_MAX - 1)].is_approximate(), "it may have been there before");
    }

    /// Breaks if a value counts for each event of a span that has it, and shares exceed 1.
    #[test]
    fn a_span_counts_once() {
        let mut counts = FacetCounts::default();
        for _ in 0..2 {
            counts.begin_span();
            for value in ["x", "y", "x", "x"] {
                counts.count("event.k", value, value == "x");
            }
        }
        assert_eq!((seen(&counts, "event.k", "x"), seen(&counts, "event.k", "y")), ((2, 2), (2, 0)));
        assert_eq!((counts.spans, counts.spans_with("event.k", "x"), counts.spans_with("k", "x")), (2, 2, 0));
    }

    #[test]
    fn memory_is_asked_for_what_is_held() {
        let mut counts = FacetCounts::default();
        count(&mut counts, "key", "value", true);
        let one = 3 + KEY_BYTES + 5 + VALUE_BYTES;
        assert_eq!((counts.grown(), counts.grown()), (one, 0));
        count(&mut counts, "key", "value", false);
        assert_eq!(counts.grown(), 0);
        count(&mut counts, "key", "", false);
        assert_eq!((counts.grown(), counts.keys["key"].values.len()), (VALUE_BYTES, 2));
        // Memory for dropped values is reserved once.
        for n in 0..3 * VALUES_MAX {
            count(&mut counts, "key", &format!("{n:09}"), false);
        }
        let most = KEY_BYTES + 3 + VALUES_MAX * (9 + VALUE_BYTES) + REGISTERS;
        let asked = one + VALUE_BYTES + counts.grown();
        assert!(asked <= most && counts.held <= most, "{asked} of {most}");
        for n in 0..3 * KEYS_MAX {
            count(&mut counts, &format!("{n:09}"), "", false);
        }
        let (key, all) = (KEY_BYTES + 9 + VALUE_BYTES, most + KEYS_MAX * (KEY_BYTES + 9 + VALUE_BYTES));
        assert!(counts.held <= all && counts.held >= counts.keys.len() / 2 * key, "{} of {all}", counts.held);
    }

    #[test]
    fn different_values_are_estimated() {
        for all in [0, 1, 10, 1_000, 5_000, 10_000, 20_000, 300_000] {
            let mut distinct = DistinctValues::new();
            for n in 0..all {
                distinct.add(&format!("user-{n}"));
                distinct.add(&format!("user-{}", n / 2));
            }
            let told = distinct.estimate();
            assert!(told.abs_diff(all) <= all / 15, "{told} for {all}");
        }
    }
}
