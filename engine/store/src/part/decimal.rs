//! Stores doubles as decimals: `v == vi / 10^k` bit for bit, with one exponent k per series and part.
//!
//! Telemetry is mostly integers and short decimals, and as integers they pack well by their differences. Values that
//! are not short decimals (also -0, NaN, infinities and stale markers) stay doubles. Byte counts of memory and disks
//! are often multiples of a thousand: a negative k saves ten bits on each of them.

use quiver_types::text::EXACT_INTEGERS_MAX;

/// Smallest k. 10^-3 to 10^-1 are not exact as doubles, but the nearest doubles are so close (2^-54 of the value) that
/// every division still yields the intended integer. Smaller exponents would break readers of other systems: in some
/// libraries 10^-4 and 10^-5 are not the nearest doubles.
const LEAST: i32 = -3;
/// Largest k. All powers from 10^0 to this one are exact as doubles.
const MOST: i32 = 15;
/// Number of possible exponents.
const EXPONENTS: usize = (MOST - LEAST + 1) as usize;
/// Powers of ten by k, starting at [`LEAST`]; exact from 10^0 on.
const POWERS: [f64; EXPONENTS] =
    [1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The power of ten that belongs to an exponent; `None` if it is out of range.
pub(super) fn power(exponent: i32) -> Option<f64> {
    usize::try_from(exponent.checked_sub(LEAST)?).ok().and_then(|at| POWERS.get(at)).copied()
}

/// Index of k in a table.
fn at(exponent: i32) -> usize {
    (exponent - LEAST) as usize
}

const INTEGER_MAX: f64 = EXACT_INTEGERS_MAX as f64;
/// Below this, different numerators give different doubles, so a value has at most one numerator.
const UNIQUE_MAX: f64 = 4_503_599_627_370_496.0; // 2^52
/// How many values are sampled to guess the k that is then tried on all of them.
const PROBES: usize = 24;
/// If the sampled values differ by more decimal digits than this, other exponents are tried as well.
const NEAR: i32 = 4;
/// Number of differences that Parquet packs with one bit width (a miniblock).
const PACKED: usize = 32;

/// The numerator of a value for a power of ten, if there is one; value and numerator must be below 2^53.
#[inline]
fn numerator(v: f64, power: f64) -> Option<i64> {
    let scaled = v * power;
    if !(scaled.abs() < INTEGER_MAX && v.abs() < INTEGER_MAX) {
        return None;
    }
    let whole = (scaled + 0.5f64.copysign(scaled)) as i64;
    let quotient = whole as f64 / power;
    if quotient.to_bits() == v.to_bits() {
        return Some(whole);
    }
    if whole.unsigned_abs() < 1 << 50 {
        return None;
    }
    // At this size the product may be off by one.
    let other = if quotient < v { whole + 1 } else { whole - 1 };
    (other.unsigned_abs() < 1 << 53 && (other as f64 / power).to_bits() == v.to_bits()).then_some(other)
}

/// The smallest and the largest k for which a value has a numerator. Every k between them works too, because `vi * 10`
/// is exact as long as it is below 2^53.
fn exponents(v: f64) -> Option<(i32, i32)> {
    let size = v.abs();
    if size.is_nan() || size >= INTEGER_MAX || (size == 0.0 && v.is_sign_negative()) {
        return None;
    }
    if size == 0.0 {
        return Some((LEAST, MOST));
    }
    // The first power, if any, that makes the numerator 2^52 or more.
    let above = LEAST + POWERS.partition_point(|p| size * p < UNIQUE_MAX) as i32;
    let largest = above - 1;
    if let Some(mut whole) = numerator(v, POWERS[at(largest)]).filter(|&n| n != 0) {
        let one_more = largest < MOST && whole.unsigned_abs() * 10 < 1 << 53;
        let mut smallest = largest;
        while smallest > LEAST && whole % 10 == 0 {
            whole /= 10;
            smallest -= 1;
        }
        return Some((smallest, largest + i32::from(one_more)));
    }
    let power = *POWERS.get(at(above))?;
    numerator(v, power).map(|_| (above, above))
}

/// The decomposed values of one series; the buffers are reused for the next series.
#[derive(Debug, Default)]
pub(super) struct Decimals {
    /// The exponent of the series.
    pub(super) exponent: i8,
    /// Numerators; where a value stays a double, the previous one is repeated.
    pub(super) numerators: Vec<i64>,
    /// Indexes of the values that stay doubles, ascending.
    pub(super) doubles: Vec<u32>,
}

impl Decimals {
    /// Decomposes the values of a series with the k that takes the least space (see [`cost`]); of equal ones, the
    /// smallest. `before` is the numerator to repeat if the first value stays a double.
    pub(super) fn decompose(&mut self, values: &[f64], before: i64) {
        let step = values.len().div_ceil(PROBES).max(1);
        let probes = values.iter().step_by(step).filter(|&&v| v != 0.0);
        let probed = probes.filter_map(|&v| exponents(v)).map(|(smallest, _)| smallest);
        let (least, most) = probed.fold((MOST, LEAST), |(least, most), k| (k.min(least), k.max(most)));
        // Without samples any k will do: there is nothing to divide.
        let most = if most < least { 0 } else { most };
        self.encode(values, most, before);
        // The guess is optimal if all values that stayed doubles have no numerator for any k, and if no long value made
        // the others long: a smaller k would lose the sampled value that required this one, to save a few digits of the
        // others. (Trailing zeros of some integers do not matter.)
        let near = most <= least.max(0) + NEAR;
        if near && self.doubles.iter().all(|&i| exponents(values[i as usize]).is_none()) {
            return;
        }
        let best = self.cheapest(values, before);
        if best != i32::from(self.exponent) {
            self.encode(values, best, before);
        }
    }

    /// Finds the k that takes the least space; of equal ones, the smallest. Tries only exponents that leave fewer
    /// doubles than every smaller one.
    fn cheapest(&mut self, values: &[f64], before: i64) -> i32 {
        let mut change = [0i64; EXPONENTS + 1];
        for (smallest, largest) in values.iter().filter_map(|&v| exponents(v)) {
            change[at(smallest)] += 1;
            change[at(largest) + 1] -= 1;
        }
        let (mut best, mut least, mut covered, mut most) = (0, f64::INFINITY, 0, 0);
        for (k, change) in (LEAST..=MOST).zip(&change) {
            covered += change;
            if covered <= most {
                continue;
            }
            most = covered;
            self.encode(values, k, before);
            let cost = self.cost(before);
            if cost < least {
                (best, least) = (k, cost);
            }
        }
        best
    }

    /// Estimated size in bits: numerators as packed differences, doubles in full.
    fn cost(&self, before: i64) -> f64 {
        let mut last = before;
        let packed: u64 = self
            .numerators
            .chunks(PACKED)
            .map(|block| {
                let differences = block.iter().map(|&n| n.wrapping_sub(std::mem::replace(&mut last, n)));
                let (low, high) = differences.fold((i64::MAX, i64::MIN), |(low, high), d| (d.min(low), d.max(high)));
                u64::from(64 - high.wrapping_sub(low).leading_zeros()) * block.len() as u64
            })
            .sum();
        packed as f64 + 64.0 * self.doubles.len() as f64
    }

    fn encode(&mut self, values: &[f64], exponent: i32, before: i64) {
        self.exponent = exponent as i8;
        self.numerators.clear();
        self.doubles.clear();
        let power = POWERS[at(exponent)];
        let mut last = before;
        for (i, &v) in values.iter().enumerate() {
            match numerator(v, power) {
                // A numerator of 0 means +0: the bitwise comparison above has excluded -0.
                Some(n) => last = n,
                None => self.doubles.push(i as u32),
            }
            self.numerators.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[f64], exponent: i8, doubles: &[u32]) {
        let mut d = Decimals::default();
        d.decompose(values, 77);
        assert_eq!((d.exponent, &d.doubles[..]), (exponent, doubles), "{values:?}");
    }

    #[test]
    fn picks_the_cheapest_exponent() {
        check(&[1.0, 2.0, 3.0], 0, &[]);
        check(&[0.1, 2.0, 0.35], 2, &[]);
        check(&[f64::NAN, -0.0, f64::INFINITY, 5.0], 0, &[0, 1, 2]);
        check(&[f64::NAN, 0.0], 0, &[0]);
        // Thousands, of which some are tens of thousands.
        check(&[4096e3, -1024e3, 0.0, 25e4], -3, &[]);
        check(&[4096e3, 1020.0, 0.0], -1, &[]);
        check(&[9_007_199_254_740_000.0, 2e3], -3, &[]);
        check(&[9_007_199_254_741_000.0, 3e15], -3, &[0]);
        check(&[], 0, &[]);
        check(&[0.005, 0.1, 1e10], 3, &[]);
        check(&[9_007_199_254_740_991.0, 1.0], 0, &[]);
        check(&[9_007_199_254_740_992.0, 1.0], 0, &[0]);
        // One value needs k = 3, but two others have no numerator there.
        check(&[900_719_925_474_099.0, 800_719_925_474_099.0, 0.001, 0.5], 1, &[2]);
        check(&[1.0 / 3.0; 4], 0, &[0, 1, 2, 3]);
        // One long value does not make all others long; many do.
        let mut load: Vec<f64> = (0..100).map(|i| f64::from(i % 7) / 10.0).collect();
        load[50] = 4.800_000_000_000_001;
        check(&load, 1, &[50]);
        let long: Vec<f64> = (0..100).map(|i| f64::from(1_000_000 + i * i * 977 % 100_003) / 1e9).collect();
        check(&[&[0.5][..], &long].concat(), 9, &[]);
    }

    fn naive(values: &[f64]) -> (i32, usize) {
        let fits = |v: f64, p: f64| {
            let near = (v * p) as i64;
            (near - 3..=near + 3).any(|n| n.unsigned_abs() < 1 << 53 && (n as f64 / p).to_bits() == v.to_bits())
        };
        let lost = |k: i32| {
            let p = POWERS[at(k)];
            values.iter().filter(|&&v| !((v * p).abs() < 1e17 && v.abs() < INTEGER_MAX && fits(v, p))).count()
        };
        (LEAST..=MOST).map(|k| (lost(k), k)).min().map(|(lost, k)| (k, lost)).unwrap()
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (any::<i32>(), LEAST..8).prop_map(|(n, k)| f64::from(n) / POWERS[at(k)]),
            2 => (any::<i64>(), LEAST..=MOST).prop_map(|(n, k)| (n >> 10) as f64 / POWERS[at(k)]),
            1 => any::<u64>().prop_map(f64::from_bits),
            1 => any::<i64>().prop_map(|n| n as f64),
            1 => prop_oneof![Just(-0.0), Just(0.0), Just(f64::NAN), Just(f64::NEG_INFINITY), Just(quiver_types::stale_nan()), Just(f64::MIN_POSITIVE)],
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn exact_and_cheap(values in prop::collection::vec(value(), 0..60)) {
            let mut d = Decimals::default();
            d.decompose(&values, 77);
            let mut doubles = d.doubles.iter().peekable();
            let mut last = 77;
            for (i, v) in values.iter().enumerate() {
                if doubles.next_if(|&&x| x as usize == i).is_some() {
                    prop_assert_eq!(d.numerators[i], last);
                } else {
                    let back = d.numerators[i] as f64 / power(i32::from(d.exponent)).unwrap();
                    prop_assert_eq!(back.to_bits(), v.to_bits());
                }
                last = d.numerators[i];
            }
            // Of those with the fewest doubles the smallest, or one that takes no more room.
            let (naive, lost) = naive(&values);
            if (i32::from(d.exponent), d.doubles.len()) != (naive, lost) {
                let (chosen, cost) = (d.exponent, d.cost(77));
                d.encode(&values, naive, 77);
                prop_assert_eq!(d.doubles.len(), lost);
                prop_assert!(cost <= d.cost(77), "{} {} {}", chosen, cost, d.cost(77));
            }
        }
    }
    #[test]
    fn powers_are_those_that_files_may_name() {
        assert_eq!([-3, -1, 0, 2, 15].map(power), [Some(1e-3), Some(1e-1), Some(1.0), Some(1e2), Some(1e15)]);
        assert_eq!([-4, 16, i32::MIN, i32::MAX].map(power), [None; 4]);
    }

    #[test]
    fn values_have_numerators_between_two_exponents() {
        let check = |v: f64, expected: Option<(i32, i32)>| {
            assert_eq!(exponents(v), expected, "{v:?}");
            if v != 0.0 {
                assert_eq!(exponents(-v), expected, "{:?}", -v);
            }
        };
        check(0.0, Some((LEAST, MOST)));
        check(-0.0, None);
        for none in [f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0, 1.0 / 3.0, f64::MIN_POSITIVE] {
            check(none, None);
        }
        check(1500.0, Some((-2, 12)));
        check(0.25, Some((2, MOST)));
        check(1e-15, Some((15, 15)));
        check(9_007_199_254_740_991.0, Some((0, 0)));
        check(7e15, Some((-3, 0)));
    }

    #[test]
    fn doubles_repeat_the_numerator_before_them() {
        let mut d = Decimals::default();
        d.decompose(&[f64::NAN, 1.5, -0.0, f64::INFINITY, 2.5, f64::NAN], 77);
        assert_eq!((d.exponent, &d.numerators[..]), (1, &[77, 15, 15, 15, 25, 25][..]));
        assert_eq!(d.doubles, [0, 2, 3, 5]);
        // Nothing of the series before is left.
        d.decompose(&[3.0], 25);
        assert_eq!((d.exponent, &d.numerators[..], d.doubles.len()), (0, &[3][..], 0));
    }
}
