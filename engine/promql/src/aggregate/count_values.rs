//! `count_values`: for each group and step, how many elements have each value; the value becomes a label.
//!
//! Groups are formed without the label that receives the value. The planner sets it on each output row (and merges rows
//! if `without` removes it again).

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use quiver_types::go_format::float_text;
use quiver_types::{Histogram, Result};

use crate::histogram;

/// The label value for a float: the shortest plain decimal, never with an exponent.
pub fn value_label(v: f64) -> String {
    if v.is_finite() { format!("{v}") } else { float_text(v) }
}

/// Estimated memory of a value besides its counts: key, place in the output, text.
const VALUE_BYTES: usize = 192;

/// Counts per group, value and step.
#[derive(Debug, Default)]
pub struct CountValues {
    steps: usize,
    floats: HashMap<(u32, u64), Vec<f64>>,
    hists: HashMap<(u32, String), Vec<f64>>,
}

/// An output row: group, label value, counts by step (0: no element).
#[derive(Debug, Clone, PartialEq)]
pub struct CountedValue {
    /// Number of the group, from 0.
    pub group: u32,
    /// Text of the counted value, for the label.
    pub value: String,
    /// Counts; a row has no element where the count is 0.
    pub counts: Vec<f64>,
}

impl CountValues {
    /// Creates the state for a number of steps.
    pub fn new(steps: usize) -> Self {
        Self { steps, ..Self::default() }
    }

    /// Counts the elements of a row; `grow` reserves the memory of each new value.
    ///
    /// # Errors
    /// Errors of `grow`, unchanged.
    pub fn fold(
        &mut self,
        group: u32,
        values: &[f64],
        present: &[bool],
        hists: &[(u32, Histogram)],
        mut grow: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let steps = self.steps;
        let counts_bytes = steps * size_of::<f64>();
        for (step, (&v, _)) in values.iter().zip(present).enumerate().filter(|(_, (_, p))| **p) {
            // All NaNs have the same text.
            let bits = if v.is_nan() { f64::NAN.to_bits() } else { v.to_bits() };
            let counts = match self.floats.entry((group, bits)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    grow(counts_bytes + VALUE_BYTES)?;
                    new.insert(vec![0.0; steps])
                }
            };
            counts[step] += 1.0;
        }
        for (step, h) in hists {
            let text = histogram::text(h);
            let counts = match self.hists.entry((group, text)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    grow(counts_bytes + VALUE_BYTES + new.key().1.len())?;
                    new.insert(vec![0.0; steps])
                }
            };
            counts[*step as usize] += 1.0;
        }
        Ok(())
    }

    /// Merges in the counts of other rows.
    pub fn merge(&mut self, other: Self) {
        let steps = self.steps;
        let add = |own: &mut Vec<f64>, others: Vec<f64>| own.iter_mut().zip(others).for_each(|(a, b)| *a += b);
        for (key, counts) in other.floats {
            add(self.floats.entry(key).or_insert_with(|| vec![0.0; steps]), counts);
        }
        for (key, counts) in other.hists {
            add(self.hists.entry(key).or_insert_with(|| vec![0.0; steps]), counts);
        }
    }

    /// The output rows, by group and label value.
    pub fn finish(self) -> Vec<CountedValue> {
        let floats = self.floats.into_iter().map(|((group, bits), counts)| CountedValue {
            group,
            value: value_label(f64::from_bits(bits)),
            counts,
        });
        let hists = self.hists.into_iter().map(|((group, value), counts)| CountedValue { group, value, counts });
        let mut rows: Vec<CountedValue> = floats.chain(hists).collect();
        rows.sort_by(|a, b| (a.group, &a.value).cmp(&(b.group, &b.value)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values() {
        let check = |v: f64, expected: &str| assert_eq!(value_label(v), expected);
        check(6.0, "6");
        check(1e21, "1000000000000000000000");
        check(1.5e-7, "0.00000015");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
        check(-0.0, "-0");
    }

    #[test]
    fn counts_by_step() {
        let (mut a, mut b) = (CountValues::new(2), CountValues::new(2));
        a.fold(0, &[6.0, 7.0], &[true, true], &[], |_| Ok(())).unwrap();
        b.fold(0, &[6.0, 0.0], &[true, false], &[(1, Histogram::default())], |_| Ok(())).unwrap();
        a.merge(b);
        let got: Vec<_> = a.finish().into_iter().map(|r| (r.value, r.counts)).collect();
        let expected = [("6", vec![2.0, 0.0]), ("7", vec![0.0, 1.0]), ("{count:0, sum:0}", vec![0.0, 1.0])];
        assert_eq!(got, expected.map(|(v, c)| (v.to_owned(), c)));
    }

    #[test]
    fn groups_and_values_come_in_order() {
        let mut counts = CountValues::new(2);
        let nans = [f64::NAN, f64::from_bits(f64::NAN.to_bits() | 1), -f64::NAN];
        for nan in nans {
            counts.fold(1, &[nan, 10.0], &[true, true], &[], |_| Ok(())).unwrap();
        }
        counts.fold(1, &[9.0, -0.0], &[true, true], &[], |_| Ok(())).unwrap();
        counts.fold(0, &[9.0, 0.0], &[false, true], &[], |_| Ok(())).unwrap();
        let got: Vec<_> = counts.finish().into_iter().map(|row| (row.group, row.value, row.counts)).collect();
        let expected = [
            (0, "0", [0.0, 1.0]),
            // The order is that of texts.
            (1, "-0", [0.0, 1.0]),
            (1, "10", [0.0, 3.0]),
            (1, "9", [1.0, 0.0]),
            (1, "NaN", [3.0, 0.0]),
        ];
        assert_eq!(got, expected.map(|(group, value, counts)| (group, value.to_owned(), counts.to_vec())));
    }

    #[test]
    fn memory_is_asked_for_once_per_value() {
        let h = Histogram { count: 2.0, ..Histogram::default() };
        let mut asked = Vec::new();
        let mut counts = CountValues::new(3);
        for _ in 0..2 {
            let mut grow = |bytes| {
                asked.push(bytes);
                Ok(())
            };
            counts.fold(0, &[1.0, 1.0, 2.0], &[true; 3], &[], &mut grow).unwrap();
            counts.fold(0, &[0.0; 3], &[false; 3], &[(0, h.clone()), (2, h.clone())], &mut grow).unwrap();
        }
        let of_value = 3 * 8 + VALUE_BYTES;
        assert_eq!(asked, [of_value, of_value, of_value + "{count:2, sum:0}".len()]);
        let refuse = |_| Err(quiver_types::Error::internal("no room"));
        assert_eq!(
            counts.fold(0, &[5.0; 3], &[true; 3], &[], refuse).map_err(|e| e.message),
            Err("no room".to_owned())
        );
        assert!(counts.fold(0, &[1.0; 3], &[true; 3], &[], refuse).is_ok(), "what is known needs none");
        assert!(counts.fold(1, &[1.0; 3], &[true; 3], &[], refuse).is_err(), "in another group it is another");
    }
}
