//! `median(a)`, `quantile(phi, a)`: nearest rank, exact up to 65 536 values of a group, beyond over a sample of half as
//! many at least. Fields that are named count with their empty values too.
//!
//! Of a large group one value of each block of values that follow each other is kept, which one is left to chance. When the
//! sample is full, it keeps half of itself and blocks become twice as long: most values cost no more than being counted, and
//! samples of several parts are joined by halving those of the shorter blocks.

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::Array;
use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::{Bytes, GroupState};
use super::min_max::{Extreme, Side};
use super::sample::{Random, Sample};
use super::state_bytes::{Reader, put_u64};
use crate::kernels::columns::{Texts, Value};
use crate::kernels::values::rank;

/// Values that are kept at most; half of them at least, where there are more. Numbers take 512 KiB then. Of 10 000 values the
/// 99th percentile of durations, which have a long tail, is off by 5 % now and then.
const SAMPLE_MAX: usize = 1 << 16;
/// Blocks have at most two to the power of this values.
const LEVEL_MAX: u32 = 63;

/// A sample of a group's values, or the least or greatest of them.
#[derive(Debug, Default)]
pub(super) struct Quantile {
    /// Values to pass over before the next one that is kept.
    skip: u64,
    /// How many follow that one in its block.
    after: u64,
    /// One of two to the power of this values is kept.
    level: u32,
    random: Random,
    sample: Sample,
    end: Extreme,
    bytes: Bytes,
}

impl Quantile {
    /// Looks at values that follow each other. `keep` adds one that is kept to the sample.
    #[inline]
    fn take(&mut self, mut values: Range<usize>, mut keep: impl FnMut(&mut Sample, usize)) {
        loop {
            let left = values.len() as u64;
            if self.skip >= left {
                self.skip -= left;
                return;
            }
            values.start += self.skip as usize;
            // As long as all are kept, until there are too many.
            let most = if self.level == 0 { SAMPLE_MAX + 1 - self.sample.len() } else { 1 };
            let kept = values.start..values.end.min(values.start + most);
            values.start = kept.end;
            kept.for_each(|value| keep(&mut self.sample, value));
            let after = self.after;
            if self.sample.len() > SAMPLE_MAX {
                self.halve();
            }
            self.begin_block(after);
        }
    }

    /// Begins a block behind so many values: chooses which of its values is kept.
    #[inline]
    fn begin_block(&mut self, behind: u64) {
        let last = (1 << self.level) - 1;
        let chosen = if last == 0 { 0 } else { self.random.draw() & last };
        self.skip = behind + chosen;
        self.after = last - chosen;
    }

    fn halve(&mut self) {
        self.sample.halve(&mut self.random);
        self.level = (self.level + 1).min(LEVEL_MAX);
    }

    /// Adds another sample; of both together each value keeps the same chance.
    fn join(&mut self, mut other: Sample, level: u32, random: &Random) {
        // Otherwise the same choices would be made once more.
        self.random.0 = self.random.0.rotate_left(32) ^ random.0;
        while self.level < level {
            self.halve();
        }
        for _ in level..self.level {
            other.halve(&mut self.random);
        }
        self.sample.append(&other);
        while self.sample.len() > SAMPLE_MAX {
            self.halve();
        }
        // The values of blocks that end here had their chance.
        self.begin_block(0);
    }

    fn grown(&mut self) -> usize {
        self.bytes.set(self.sample.bytes() + self.end.bytes())
    }
}

/// Which end of the order is asked for, if one is: it need not be in the sample.
fn end(phi: f64) -> Option<Side> {
    if phi <= 0.0 {
        Some(Ordering::Less)
    } else if phi >= 1.0 {
        Some(Ordering::Greater)
    } else {
        None
    }
}

impl GroupState for Quantile {
    type Config = f64;

    fn add(&mut self, phi: &f64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        self.add_run(phi, args, row..row + 1, buffer)
    }

    fn add_run(&mut self, phi: &f64, args: &Args<'_>, rows: Range<usize>, buffer: &mut String) -> usize {
        let end = end(*phi);
        for column in &args.columns {
            match (column, end) {
                (Column::Field { text, named, .. }, Some(side)) => {
                    for row in rows.clone().filter(|row| *named || !text.is_empty(*row)) {
                        let value = text.text(row, buffer);
                        self.end.offer(side, text.rank(row, value), value);
                    }
                }
                (Column::Field { text, named: true, .. }, None) => match text.texts() {
                    Texts::Int(array) => self.take(rows.clone(), |sample, row| {
                        sample.push(if array.is_valid(row) { Value::Int(array.value(row)) } else { Value::Empty });
                    }),
                    texts => self.take(rows.clone(), |sample, row| sample.push(texts.value(row, buffer))),
                },
                (Column::Field { text, .. }, None) => {
                    for row in rows.clone().filter(|row| !text.is_empty(*row)) {
                        self.take(row..row + 1, |sample, row| sample.push(text.texts().value(row, buffer)));
                    }
                }
                (Column::Rest(rest), end) => {
                    for row in rows.clone() {
                        rest.each(row, &mut |_: &str, value: &str| match end {
                            Some(side) => _ = self.end.offer(side, rank(value), value),
                            None if value.is_empty() => self.take(0..1, |sample, _| sample.push(Value::Empty)),
                            None => self.take(0..1, |sample, _| sample.push(Value::Text(value))),
                        });
                    }
                }
            }
        }
        self.grown()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, u64::from(self.level));
        put_u64(out, self.random.0);
        self.sample.encode(out);
        self.end.encode(out);
    }

    fn merge(&mut self, phi: &f64, from: &mut Reader<'_>) -> Result<usize> {
        let level = from.u64()?.min(u64::from(LEVEL_MAX)) as u32;
        let random = Random(from.u64()?);
        let sample = Sample::read(from)?;
        match end(*phi) {
            Some(side) => _ = self.end.merge(&side, from)?,
            None => self.join(sample, level, &random),
        }
        Ok(self.grown())
    }

    fn finish(self, phi: &f64, out: &mut String) {
        if end(*phi).is_some() {
            out.push_str(self.end.text());
            return;
        }
        let count = self.sample.len();
        if let Some(last) = count.checked_sub(1) {
            self.sample.write_nth(((phi * count as f64) as usize).min(last), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of whole numbers, in pieces of so many values.
    fn sample(range: Range<usize>, piece: usize) -> Quantile {
        let mut own = Quantile::default();
        for from in range.clone().step_by(piece) {
            let values = from..range.end.min(from + piece);
            own.take(values, |sample, value| sample.push(Value::Int(value as i64)));
        }
        own
    }

    /// The values that are kept.
    fn kept(own: &Quantile) -> Vec<u8> {
        let mut bytes = Vec::new();
        own.sample.encode(&mut bytes);
        bytes
    }

    /// How many of the values of a sample are below a bound.
    fn below(own: &Quantile, bound: i64) -> usize {
        let (mut out, all) = (String::new(), kept(own));
        let (mut low, mut high) = (0, own.sample.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            out.clear();
            Sample::read(&mut Reader(&all)).expect("whole").write_nth(middle, &mut out);
            if out.parse::<i64>().expect("a number") < bound { low = middle + 1 } else { high = middle }
        }
        low
    }

    #[test]
    fn all_values_are_kept_while_there_is_room() {
        let full = sample(0..SAMPLE_MAX, SAMPLE_MAX);
        assert_eq!((full.sample.len(), full.level), (SAMPLE_MAX, 0));
        let more = sample(0..SAMPLE_MAX + 1, SAMPLE_MAX);
        assert!((SAMPLE_MAX / 2..=SAMPLE_MAX / 2 + 1).contains(&more.sample.len()) && more.level == 1);
    }

    /// Of each tenth of the values the sample has a tenth, and what it has does not depend on the pieces in which they came.
    #[test]
    fn samples_are_of_all_values_alike() {
        let count = 37 * SAMPLE_MAX;
        let whole = sample(0..count, count);
        for piece in [1, 7, 4096] {
            assert!(kept(&sample(0..count, piece)) == kept(&whole), "in pieces of {piece}");
        }
        let all = whole.sample.len();
        assert!((SAMPLE_MAX / 2..=SAMPLE_MAX).contains(&all), "{all}");
        assert!(all.abs_diff(count >> whole.level) <= 2, "one of each block");
        for tenth in 1..10 {
            let found = below(&whole, (tenth * count / 10) as i64);
            assert!(found.abs_diff(all * tenth / 10) < 100, "{found} of {all} below {tenth} tenths");
        }
    }

    /// Of ten times as many values as are kept each part has its share, and all are kept that there is room for.
    #[test]
    fn samples_are_joined_by_their_shares() {
        let joined = |few: Range<usize>, more: Range<usize>| {
            let (mut few, more) = (sample(few, SAMPLE_MAX), sample(more, SAMPLE_MAX));
            let mut bytes = Vec::new();
            more.encode(&mut bytes);
            few.merge(&0.5, &mut Reader(&bytes)).expect("whole");
            few
        };
        for (few, more) in
            [(0..SAMPLE_MAX, SAMPLE_MAX..10 * SAMPLE_MAX), (0..9 * SAMPLE_MAX, 9 * SAMPLE_MAX..10 * SAMPLE_MAX)]
        {
            let own = joined(few.clone(), more);
            let (count, level) = (own.sample.len(), own.level);
            assert!((SAMPLE_MAX / 2..=SAMPLE_MAX).contains(&count), "{count}");
            assert!(count.abs_diff((10 * SAMPLE_MAX) >> level) <= 2, "{count} at {level}");
            let share = below(&own, few.end as i64);
            assert!(share.abs_diff(few.end >> level) <= 2, "{share} at {level}");
        }
        let together = joined(0..10, 10..SAMPLE_MAX);
        assert_eq!((together.sample.len(), together.level), (SAMPLE_MAX, 0));
        assert_eq!(below(&together, 10), 10);
        // What follows is taken as seldom as what was joined.
        let mut own = joined(0..SAMPLE_MAX, SAMPLE_MAX..6 * SAMPLE_MAX);
        let (before, level) = (own.sample.len(), own.level);
        own.take(0..SAMPLE_MAX, |sample, _| sample.push(Value::Int(0)));
        assert!((own.sample.len() - before).abs_diff(SAMPLE_MAX >> level) <= 1 && own.level == level);
    }

    #[test]
    fn a_number_takes_eight_bytes() {
        let mut own = sample(0..5000, 100);
        assert_eq!(own.grown(), 5000 * 8);
        let mut other = Quantile::default();
        let mut bytes = Vec::new();
        own.encode(&mut bytes);
        assert!(bytes.len() < 5000 * 8 + 100);
        assert_eq!(other.merge(&0.9, &mut Reader(&bytes)).expect("whole"), 5000 * 8);
    }
}
