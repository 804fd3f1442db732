//! Cells: the intermediate state of one series at one step, from which its number is computed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quiver_types::spans::{Span, TraceId};

use super::ast::{Aggregate, MetricFunction};
use super::fields::Field;
use super::memory::{NODE, TEXT_BYTES};
use super::series::SECOND_NS;
use super::value::FieldValue;
use crate::engine::{Reader, TraceError};

/// What a group takes beside its labels: its place among all, and the first node of its cells.
const GROUP_BYTES: usize = 128 + NODE * (size_of::<Cell>() + 8);
/// What a cell takes beside that: nodes are half full at worst.
const CELL_BYTES: usize = 2 * (size_of::<Cell>() + 8);
/// What the first count of a power of two takes, and each that follows.
const BUCKET_BYTES: (usize, usize) = (16 * NODE + 16, 40);

/// What is known of the spans of one series and step.
#[derive(Debug, Default)]
pub(super) struct Cell {
    /// How many spans it counts,
    pub(super) count: u64,
    /// and how many these stand for.
    pub(super) weight: f64,
    /// So many spans may have had the value of the cell before it was counted, at most.
    pub(super) before: u64,
    sum: f64,
    least: f64,
    most: f64,
    /// How many spans have a value of a power of two that it does not pass.
    pub(super) buckets: BTreeMap<u64, f64>,
    /// The first span, for exemplars: its trace, its start in Unix nanoseconds, its value.
    pub(super) first: Option<(TraceId, i64, f64)>,
}

/// Cells by the values of labels and start of the step.
pub(super) type Groups = BTreeMap<Vec<FieldValue>, BTreeMap<i64, Cell>>;

/// What a group takes with so many cells.
pub(super) fn group_bytes(labels: &[FieldValue], cells: usize) -> usize {
    let labels: usize = labels.iter().map(|value| TEXT_BYTES + value.held_bytes()).sum();
    GROUP_BYTES + labels + cells * CELL_BYTES
}

impl Cell {
    /// Counts a span that has no value of its own.
    pub(super) fn note(&mut self, span: &Span, weight: f64) {
        self.first.get_or_insert((span.trace_id, span.start, 0.0));
        self.count += 1;
        self.weight += weight;
    }

    /// Counts a value of a span that stands for so many.
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        let is_first = self.count == 0;
        self.least = if is_first { value } else { self.least.min(value) };
        self.most = if is_first { value } else { self.most.max(value) };
        self.count += 1;
        self.weight += weight;
        self.sum += value * weight;
    }

    /// Counts a value of its power of two; smaller ones than 2 have none. Says what that takes in memory.
    pub(super) fn count_value(&mut self, value: f64, weight: f64) -> usize {
        let Some(bound) = bucket(value) else { return 0 };
        let before = self.buckets.len();
        *self.buckets.entry(bound).or_default() += weight;
        match (before, self.buckets.len()) {
            (0, _) => BUCKET_BYTES.0,
            (before, after) if before < after => BUCKET_BYTES.1,
            _ => 0,
        }
    }

    /// What a function gives of it.
    pub(super) fn number(&self, function: &MetricFunction) -> f64 {
        let MetricFunction::Of(aggregate, field) = function else { return self.weight };
        let number = match aggregate {
            Aggregate::Count => return self.weight,
            Aggregate::Avg => self.sum / self.weight,
            Aggregate::Min => self.least,
            Aggregate::Max => self.most,
            Aggregate::Sum => self.sum,
        };
        number / unit(field)
    }
}

/// The power of two that a value does not pass; none below 2.
pub(super) fn bucket(value: f64) -> Option<u64> {
    if value < 2.0 { None } else { (value.ceil() as u64).checked_next_power_of_two() }
}

/// Durations are given in seconds.
pub(super) fn unit(field: &Field) -> f64 {
    if matches!(field, Field::Intrinsic(i) if i.is_duration()) { SECOND_NS } else { 1.0 }
}

/// Gives a quantile of counted values: those of one power of two count as spread evenly over their logarithms.
pub(super) fn quantile(buckets: &BTreeMap<u64, f64>, q: f64) -> f64 {
    let count: f64 = buckets.values().sum();
    let wanted = (q * count).ceil().max(1.0);
    let (mut seen, mut below) = (0.0, None);
    for (&bound, &n) in buckets {
        if seen + n == wanted {
            return bound as f64;
        }
        if seen + n > wanted {
            let high = (bound as f64).log2();
            let low = below.map_or(high - 1.0, |below: u64| (below as f64).log2());
            return (low + (high - low) * ((wanted - seen) / n)).exp2();
        }
        seen += n;
        below = Some(bound);
    }
    // With weights such as 2.5, `wanted` may be rounded up beyond the sum of all of them.
    below.map_or(0.0, |last| last as f64)
}

impl Reader {
    /// Finds the cell of labels and a step, or makes it.
    pub(super) fn cell<'g>(
        &self,
        groups: &'g mut Groups,
        labels: Vec<FieldValue>,
        at: i64,
    ) -> Result<&'g mut Cell, TraceError> {
        let cells = match groups.entry(labels) {
            Entry::Occupied(cells) => cells.into_mut(),
            Entry::Vacant(place) => {
                self.collect(group_bytes(place.key(), 0))?;
                place.insert(BTreeMap::new())
            }
        };
        match cells.entry(at) {
            Entry::Occupied(cell) => Ok(cell.into_mut()),
            Entry::Vacant(place) => {
                self.collect(CELL_BYTES)?;
                Ok(place.insert(Cell::default()))
            }
        }
    }

    /// Puts a value into a cell, and how many spans it stands for.
    pub(super) fn fill(&self, cell: &mut Cell, (value, weight): (f64, f64), by_power: bool) -> Result<(), TraceError> {
        if !by_power {
            cell.add(value, weight);
            return Ok(());
        }
        match cell.count_value(value, weight) {
            0 => Ok(()),
            taken => self.collect(taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_powers_of_two() {
        let mut cell = Cell::default();
        for value in [1.0, 400.0, 1e6, 23e6, 29e6, 40e6, 75e6, 88_999_001.0, 330e6, 349e6, 480_123_456.0] {
            cell.count_value(value, 1.0);
        }
        let counts: Vec<(u64, u64)> = cell.buckets.iter().map(|(bound, n)| (*bound, *n as u64)).collect();
        let expected = [(512, 1), (1 << 20, 1), (1 << 25, 2), (1 << 26, 1), (1 << 27, 2), (1 << 29, 3)];
        assert_eq!(counts, expected);
        assert_eq!([0.5, 0.99, 0.0].map(|q| quantile(&cell.buckets, q) as u64), [1 << 26, 1 << 29, 512]);
        // The third of ten: half of the way from one power to the other that has a count.
        assert!((quantile(&cell.buckets, 0.3).log2() - 22.5).abs() < 1e-9);
        assert!(quantile(&BTreeMap::new(), 0.5).abs() < 1e-9);
        let parts = BTreeMap::from([(4, 2.0), (8, 0.5)]);
        assert_eq!([0.2, 0.8, 1.0].map(|q| quantile(&parts, q)), [1.5_f64.exp2(), 4.0, 8.0]);
    }

    #[test]
    fn powers_of_two_that_values_do_not_pass() {
        for (value, expected) in [
            (-5.0, None),
            (1.0, None),
            (1.5, None),
            (2.0, Some(2)),
            (2.5, Some(4)),
            (3.0, Some(4)),
            (4.0, Some(4)),
            (4.1, Some(8)),
            (5.0, Some(8)),
            (1025.0, Some(2048)),
            (9_223_372_036_854_775_808.0, Some(1 << 63)),
            (1e19, None),
            (f64::INFINITY, None),
            (f64::NEG_INFINITY, None),
        ] {
            assert_eq!(bucket(value), expected, "{value}");
        }
    }

    /// Breaks if a greater quantile is smaller than a lesser one, or one lies outside of all values.
    #[test]
    fn quantiles_rise_between_the_least_and_the_greatest_value() {
        let mut seed = 5_u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        for round in 0..200 {
            let mut cell = Cell::default();
            let values: Vec<u64> = (0..=below(30))
                .map(|_| {
                    let width = 1 + below(30);
                    2 + below(1 << width)
                })
                .collect();
            for value in &values {
                cell.count_value(*value as f64, 1.0);
            }
            let found: Vec<f64> = (0..=20).map(|q| quantile(&cell.buckets, f64::from(q) / 20.0)).collect();
            assert!(found.is_sorted(), "round {round}: {found:?}");
            let ends = [values.iter().min(), values.iter().max()].map(|of| of.and_then(|v| bucket(*v as f64)).unwrap());
            assert!(found[0] > ends[0] as f64 / 2.0, "round {round}: {found:?} of {values:?}");
            assert_eq!(found[20], ends[1] as f64, "round {round}");
        }
    }
}
