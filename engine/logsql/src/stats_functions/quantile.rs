//! `median(a)`, `quantile(phi, a)`: nearest rank, exact up to 10 000 values of a group, beyond over a random sample of
//! that many. Fields that are named count with their empty values too.

use std::cmp::Ordering;

use datafusion::common::Result;
use quiver_types::logs::{write_float, write_int};

use super::args::{Args, Column};
use super::grouped::{Bytes, GroupState};
use super::min_max::Extreme;
use super::state_bytes::{Reader, put_text, put_u64};
use crate::kernels::columns::Value;
use crate::kernels::values::{Rank, compare_ranked, rank, rank_of_float, rank_of_int};

/// Values that are kept.
const SAMPLE_MAX: usize = 10_000;

/// A value that is kept.
#[derive(Debug, Clone, PartialEq)]
enum Kept {
    Empty,
    Int(i64),
    Float(f64),
    Text(Box<str>),
}

impl Kept {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Empty => Self::Empty,
            Value::Int(value) => Self::Int(value),
            Value::Float(value) => Self::Float(value),
            Value::Text(text) => Self::Text(text.into()),
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Empty => rank(""),
            Self::Int(value) => rank_of_int(*value),
            Self::Float(value) => rank_of_float(*value),
            Self::Text(text) => rank(text),
        }
    }

    /// The text that ranks among texts.
    fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Empty => {}
            Self::Int(value) => write_int(*value, out),
            Self::Float(value) => write_float(*value, out),
            Self::Text(text) => out.push_str(text),
        }
    }

    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        self.text().len() + size_of::<Self>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => out.push(0),
            Self::Int(value) => {
                out.push(1);
                put_u64(out, *value as u64);
            }
            Self::Float(value) => {
                out.push(2);
                put_u64(out, value.to_bits());
            }
            Self::Text(text) => {
                out.push(3);
                put_text(out, text);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        Ok(match from.byte()? {
            0 => Self::Empty,
            1 => Self::Int(from.u64()? as i64),
            2 => Self::Float(f64::from_bits(from.u64()?)),
            _ => Self::Text(from.text()?.into()),
        })
    }
}

/// A sample of a group's values, with their least and greatest.
#[derive(Debug, Default)]
pub(super) struct Quantile {
    sample: Vec<Kept>,
    bytes: Bytes,
    count: u64,
    min: Extreme,
    max: Extreme,
    random: u64,
}

impl Quantile {
    /// SplitMix64, below a bound. The same rows give the same sample.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * u128::from(bound)) >> 64) as u64
    }

    /// Adds a value, which is read only if it is kept.
    fn insert<'a>(&mut self, value: impl FnOnce() -> Value<'a>) -> usize {
        self.count += 1;
        if self.sample.len() < SAMPLE_MAX {
            let kept = Kept::of(value());
            let grown = self.bytes.set(self.bytes.now() + kept.bytes());
            self.sample.push(kept);
            return grown;
        }
        let place = self.below(self.count) as usize;
        if place >= SAMPLE_MAX {
            return 0;
        }
        let kept = Kept::of(value());
        let grown = self.bytes.set(self.bytes.now() - self.sample[place].bytes() + kept.bytes());
        self.sample[place] = kept;
        grown
    }

    /// The least and the greatest need not be in the sample; they are kept when they are asked for.
    fn bound(&mut self, phi: f64, value: &str) {
        if is_end(phi) {
            let rank = rank(value);
            self.min.offer(Ordering::Less, rank, value);
            self.max.offer(Ordering::Greater, rank, value);
        }
    }

    /// Adds another sample; of both together each value keeps the same chance. Gives the bytes by which the own has grown.
    fn join(&mut self, mut other: Vec<Kept>, count: u64) -> usize {
        let total = self.count + count;
        if self.sample.len() + other.len() > SAMPLE_MAX {
            let share = SAMPLE_MAX as f64 * (self.count as f64 / total as f64);
            let own = (share.round() as usize).clamp(SAMPLE_MAX.saturating_sub(other.len()), self.sample.len());
            let mut sample = std::mem::take(&mut self.sample);
            self.thin(&mut sample, own);
            self.thin(&mut other, SAMPLE_MAX - own);
            self.sample = sample;
        }
        self.sample.append(&mut other);
        self.count = total;
        self.bytes.set(self.sample.iter().map(Kept::bytes).sum())
    }

    /// Keeps `keep` values of a sample, each with the same chance.
    fn thin(&mut self, sample: &mut Vec<Kept>, keep: usize) {
        let keep = keep.min(sample.len());
        for place in 0..keep {
            let from = place + self.below((sample.len() - place) as u64) as usize;
            sample.swap(place, from);
        }
        sample.truncate(keep);
    }
}

/// Whether the least or the greatest value is asked for.
fn is_end(phi: f64) -> bool {
    phi <= 0.0 || phi >= 1.0
}

impl GroupState for Quantile {
    type Config = f64;

    fn add(&mut self, phi: &f64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let mut grown = 0;
        for column in &args.columns {
            match column {
                Column::Field { text, named, .. } if *named || !text.is_empty(row) => {
                    if is_end(*phi) {
                        self.bound(*phi, text.text(row, buffer));
                    }
                    grown += self.insert(|| text.texts().value(row, buffer));
                }
                Column::Field { .. } => {}
                Column::Rest(rest) => rest.each(row, &mut |_: &str, value: &str| {
                    self.bound(*phi, value);
                    grown += self.insert(|| if value.is_empty() { Value::Empty } else { Value::Text(value) });
                }),
            }
        }
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.count);
        put_text(out, self.min.text());
        put_text(out, self.max.text());
        self.sample.iter().for_each(|value| value.encode(out));
    }

    fn merge(&mut self, phi: &f64, from: &mut Reader<'_>) -> Result<usize> {
        let count = from.u64()?;
        let (min, max) = (from.text()?, from.text()?);
        if count > 0 {
            self.bound(*phi, min);
            self.bound(*phi, max);
        }
        let mut other: Vec<Kept> = Vec::new();
        while !from.is_empty() {
            other.push(Kept::read(from)?);
        }
        Ok(self.join(other, count))
    }

    fn finish(self, phi: &f64, out: &mut String) {
        if is_end(*phi) {
            out.push_str(if *phi <= 0.0 { self.min.text() } else { self.max.text() });
            return;
        }
        let mut ranked: Vec<(Rank, Kept)> = self.sample.into_iter().map(|v| (v.rank(), v)).collect();
        let Some(last) = ranked.len().checked_sub(1) else { return };
        let index = ((phi * ranked.len() as f64) as usize).min(last);
        let order = |a: &(Rank, Kept), b: &(Rank, Kept)| compare_ranked((a.0, a.1.text()), (b.0, b.1.text()));
        let (_, (_, found), _) = ranked.select_nth_unstable_by(index, order);
        found.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_kept_come_back() {
        let all = [
            Kept::of(Value::Empty),
            Kept::of(Value::Int(i64::MIN)),
            Kept::of(Value::Float(-0.5)),
            Kept::of(Value::Text("é")),
            Kept::of(Value::Text("")),
        ];
        let mut bytes = Vec::new();
        for kept in &all {
            kept.encode(&mut bytes);
        }
        let mut reader = Reader(&bytes);
        for (kept, text) in all.iter().zip(["", "-9223372036854775808", "-0.5", "é", ""]) {
            assert_eq!(Kept::read(&mut reader).expect("whole"), *kept);
            let mut out = String::new();
            kept.write(&mut out);
            assert_eq!(out, text);
            let (own, other) = (kept.rank(), rank(text));
            assert_eq!(compare_ranked((own, kept.text()), (other, text)), Ordering::Equal, "{text}");
        }
        assert!(reader.is_empty() && Kept::read(&mut reader).is_err());
    }

    /// Of ten times as many values as are kept each part has its share, and all are kept that there is room for.
    #[test]
    fn samples_are_joined_by_their_shares() {
        let sample = |from: usize, count: usize| {
            let mut own = Quantile::default();
            for value in from..from + count {
                own.insert(|| Value::Int(value as i64));
            }
            own
        };
        let (mut few, more) = (sample(0, SAMPLE_MAX), sample(SAMPLE_MAX, 9 * SAMPLE_MAX));
        few.join(more.sample, more.count);
        assert_eq!((few.sample.len(), few.count), (SAMPLE_MAX, 10 * SAMPLE_MAX as u64));
        let is_own = |kept: &&Kept| matches!(kept, Kept::Int(value) if *value < SAMPLE_MAX as i64);
        assert_eq!(few.sample.iter().filter(is_own).count(), SAMPLE_MAX / 10);
        let mut together = sample(0, 10);
        let own = sample(10, 20);
        together.join(own.sample, own.count);
        assert_eq!(together.sample, (0..30).map(Kept::Int).collect::<Vec<_>>());
        // Where one part is small its values are not thinned out for nothing.
        let (mut large, one) = (sample(0, SAMPLE_MAX - 1), sample(SAMPLE_MAX, 1));
        large.join(one.sample, one.count);
        assert_eq!(large.sample.len(), SAMPLE_MAX);
    }
}
