//! `histogram(a)`: hits per range of values, 18 ranges per decade from 1e-9 to 1e18, as VictoriaMetrics' histograms
//! have them. Negative values are left out.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

use datafusion::common::Result;

use super::args::Args;
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_u64};
use crate::kernels::values::{compare, number};

const DECADE_MIN: i32 = -9;
const DECADES: usize = 27;
const PER_DECADE: usize = 18;
const RANGES: usize = DECADES * PER_DECADE;

/// Texts of the ranges: below all, the ranges, above all.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let factor = 10_f64.powf(1.0 / PER_DECADE as f64);
    let mut value = 1e-9;
    let mut start = exponent_text(value);
    let mut names = vec![format!("0...{start}")];
    for _ in 0..RANGES {
        value *= factor;
        let end = exponent_text(value);
        names.push(format!("{start}...{end}"));
        start = end;
    }
    names.push(format!("{}...+Inf", exponent_text(1e18)));
    names
});

/// Writes a bound of a range: `1.136e+03`.
fn exponent_text(value: f64) -> String {
    let text = format!("{value:.3e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// The number of a value's range in [`NAMES`].
fn range_of(value: f64) -> usize {
    let place = (value.log10() - f64::from(DECADE_MIN)) * PER_DECADE as f64;
    if place < 0.0 {
        0
    } else if place >= RANGES as f64 {
        RANGES + 1
    } else {
        let whole = place as usize;
        // A bound belongs to the range below it.
        if place == whole as f64 && whole > 0 { whole } else { whole + 1 }
    }
}

/// Hits of a group.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    hits: BTreeMap<usize, u64>,
}

impl GroupState for Histogram {
    type Config = ();

    fn add(&mut self, (): &(), args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let before = self.hits.len();
        args.each(row, buffer, |_, value| {
            if let Some(n) = number(value).filter(|n| *n >= 0.0) {
                *self.hits.entry(range_of(n)).or_default() += 1;
            }
        });
        (self.hits.len() - before) * 32
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for (range, hits) in &self.hits {
            put_u64(out, *range as u64);
            put_u64(out, *hits);
        }
    }

    fn merge(&mut self, (): &(), from: &mut Reader<'_>) -> Result<usize> {
        let before = self.hits.len();
        while !from.is_empty() {
            let range = (from.u64()? as usize).min(RANGES + 1);
            *self.hits.entry(range).or_default() += from.u64()?;
        }
        Ok((self.hits.len() - before) * 32)
    }

    fn finish(self, (): &(), out: &mut String) {
        let mut all: Vec<(&str, u64)> = self.hits.iter().map(|(range, hits)| (NAMES[*range].as_str(), *hits)).collect();
        all.sort_by(|a, b| compare(a.0, b.0));
        out.push('[');
        for (i, (range, hits)) in all.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(out, "{comma}{{\"vmrange\":\"{range}\",\"hits\":{hits}}}").expect("writing to a text cannot fail");
        }
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let check = |value: f64, want: &str| assert_eq!(NAMES[range_of(value)], want, "{value}");
        check(0.0, "0...1.000e-09");
        check(1.0, "8.799e-01...1.000e+00");
        check(2.0, "1.896e+00...2.154e+00");
        check(3.05, "2.783e+00...3.162e+00");
        check(65_536.0, "5.995e+04...6.813e+04");
        check(1_048_576.0, "1.000e+06...1.136e+06");
        check(1e18, "1.000e+18...+Inf");
        check(f64::INFINITY, "1.000e+18...+Inf");
    }

    #[test]
    fn names_follow_each_other() {
        assert_eq!(
            (NAMES.len(), NAMES[0].as_str(), NAMES[RANGES + 1].as_str()),
            (RANGES + 2, "0...1.000e-09", "1.000e+18...+Inf")
        );
        for pair in NAMES[..=RANGES].windows(2) {
            let (before, next) = (pair[0].split_once("...").expect("two"), pair[1].split_once("...").expect("two"));
            assert_eq!(before.1, next.0);
        }
        for (value, want) in
            [(1e-300, 0), (9e-10, 0), (1.01e-9, 1), (0.99e18, RANGES), (1.01e18, RANGES + 1), (f64::MAX, RANGES + 1)]
        {
            assert_eq!(range_of(value), want, "{value}");
        }
        for (value, want) in [(1136.0, "1.136e+03"), (1e-9, "1.000e-09"), (2.5e100, "2.500e+100"), (0.0, "0.000e+00")] {
            assert_eq!(exponent_text(value), want);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_value_is_in_its_range(exponent in -8.99..17.99_f64) {
            let value = 10_f64.powf(exponent);
            let (from, to) = NAMES[range_of(value)].split_once("...").expect("two");
            let (from, to): (f64, f64) = (from.parse().unwrap(), to.parse().unwrap());
            // As far as four digits say.
            proptest::prop_assert!(from * 0.999 <= value && value <= to * 1.001, "{value} in {from}...{to}");
        }
    }
}
