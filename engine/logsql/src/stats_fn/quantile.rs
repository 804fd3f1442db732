//! `median(a)`, `quantile(phi, a)`: nearest rank, exact up to 10 000 values of a group, beyond over a random sample of
//! that many. Fields that are named count with their empty values too.

use std::cmp::Ordering;

use datafusion::common::Result;

use super::args::Args;
use super::blob::{Reader, put_text, put_u64};
use super::grouped::GroupState;
use super::min_max::Extreme;
use crate::kernels::values::{compare_ranked, rank};

/// Values that are kept.
const SAMPLE_MAX: usize = 10_000;

/// A sample of a group's values, with their least and greatest.
#[derive(Debug, Default)]
pub(super) struct Quantile {
    sample: Vec<Box<str>>,
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

    fn insert(&mut self, value: &str) -> usize {
        self.count += 1;
        if self.sample.len() < SAMPLE_MAX {
            self.sample.push(value.into());
            return value.len() + size_of::<Box<str>>();
        }
        let place = self.below(self.count) as usize;
        if place >= SAMPLE_MAX || *self.sample[place] == *value {
            return 0;
        }
        let before = self.sample[place].len();
        self.sample[place] = value.into();
        value.len().saturating_sub(before)
    }

    /// The least and the greatest need not be in the sample; they are kept when they are asked for.
    fn bound(&mut self, phi: f64, value: &str) {
        if is_end(phi) {
            let rank = rank(value);
            self.min.offer(Ordering::Less, rank, value);
            self.max.offer(Ordering::Greater, rank, value);
        }
    }

    /// Adds another sample; of both together each value keeps the same chance.
    fn join(&mut self, mut other: Vec<Box<str>>, count: u64) {
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
    }

    /// Keeps so many at random.
    fn thin(&mut self, sample: &mut Vec<Box<str>>, keep: usize) {
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
        args.each(row, buffer, |_, value| {
            grown += self.insert(value);
            self.bound(*phi, value);
        });
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.count);
        put_text(out, self.min.text());
        put_text(out, self.max.text());
        self.sample.iter().for_each(|value| put_text(out, value));
    }

    fn merge(&mut self, phi: &f64, from: &mut Reader<'_>) -> Result<usize> {
        let count = from.u64()?;
        let (min, max) = (from.text()?, from.text()?);
        if count > 0 {
            self.bound(*phi, min);
            self.bound(*phi, max);
        }
        let mut other: Vec<Box<str>> = Vec::new();
        while !from.is_empty() {
            other.push(from.text()?.into());
        }
        let grown = other.iter().map(|v| v.len() + size_of::<Box<str>>()).sum();
        self.join(other, count);
        Ok(grown)
    }

    fn finish(self, phi: &f64, out: &mut String) {
        if is_end(*phi) {
            out.push_str(if *phi <= 0.0 { self.min.text() } else { self.max.text() });
            return;
        }
        let mut ranked: Vec<_> = self.sample.into_iter().map(|v| (rank(&v), v)).collect();
        ranked.sort_by(|a, b| compare_ranked((a.0, &a.1), (b.0, &b.1)));
        if let Some(last) = ranked.len().checked_sub(1) {
            let index = (phi * ranked.len() as f64) as usize;
            out.push_str(&ranked[index.min(last)].1);
        }
    }
}
