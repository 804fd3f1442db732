//! Doubles as decimals: `v == vi / 10^k` bit for bit, with one k per series and part.
//!
//! Telemetry is mostly integers and short decimals; as integers they delta-pack well. What is no short decimal (also
//! -0, NaN, infinities, stale markers) stays a double.

/// Powers of ten up to the largest k; all exact.
pub const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

const INTEGER_MAX: f64 = 9_007_199_254_740_992.0; // 2^53
/// Up to here different numerators give different doubles, so a value has only one.
const UNIQUE_MAX: f64 = 4_503_599_627_370_496.0; // 2^52
/// Values looked at before one k is tried on all.
const PROBES: usize = 24;
/// Digits by which probed values may differ in length before it is asked whether the long ones are worth it.
const NEAR: usize = 4;
/// Differences that Parquet packs with one width (a miniblock).
const PACKED: usize = 32;

/// Gives the numerator of a value for a power of ten, if there is one below 2^53.
#[inline]
fn numerator(v: f64, power: f64) -> Option<i64> {
    let scaled = v * power;
    if !(scaled.abs() < INTEGER_MAX) {
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
    // Up here the product may be off by one.
    let other = if quotient < v { whole + 1 } else { whole - 1 };
    (other.unsigned_abs() < 1 << 53 && (other as f64 / power).to_bits() == v.to_bits()).then_some(other)
}

/// Gives the smallest and the largest k for which a value has a numerator; between them all have one, because
/// `vi * 10` is exact as long as it is below 2^53.
fn exponents(v: f64) -> Option<(usize, usize)> {
    let size = v.abs();
    if !(size < INTEGER_MAX) || (size == 0.0 && v.is_sign_negative()) {
        return None;
    }
    if size == 0.0 {
        return Some((0, 15));
    }
    // How many of the powers keep the numerator below 2^52.
    let usable = POWERS.partition_point(|p| size * p < UNIQUE_MAX);
    if let Some(largest) = usable.checked_sub(1)
        && let Some(mut whole) = numerator(v, POWERS[largest]).filter(|&n| n != 0)
    {
        let above = largest < 15 && whole.unsigned_abs() * 10 < 1 << 53;
        let mut smallest = largest;
        while smallest > 0 && whole % 10 == 0 {
            whole /= 10;
            smallest -= 1;
        }
        return Some((smallest, largest + usize::from(above)));
    }
    let power = POWERS.get(usable)?;
    numerator(v, *power).map(|_| (usable, usable))
}

/// The values of one series, decomposed; reused from series to series.
#[derive(Debug, Default)]
pub struct Decimals {
    /// The one k of the series.
    pub exponent: u8,
    /// Numerators; where a value stays a double, the one before is repeated.
    pub numerators: Vec<i64>,
    /// Positions of the values that stay doubles, ascending.
    pub doubles: Vec<u32>,
}

impl Decimals {
    /// Decomposes the values of a series with the k that takes least room ([`cost`]), the smallest of such.
    /// `before` is the numerator repeated when the first value stays a double.
    pub fn decompose(&mut self, values: &[f64], before: i64) {
        let step = values.len().div_ceil(PROBES).max(1);
        let probes = values.iter().step_by(step).filter(|&&v| v != 0.0);
        let probed = probes.filter_map(|&v| exponents(v)).map(|(smallest, _)| smallest);
        let (least, most) = probed.fold((15, 0), |(least, most), k| (k.min(least), k.max(most)));
        self.encode(values, most, before);
        // The guess is the best one if it leaves only values that have no numerator anywhere, and if no long value made
        // the others long: a smaller k would lose the probed value that asked for this one, to save a few digits of the
        // others. (No probe had a numerator: 0 is the smallest anyway.)
        let near = most <= least + NEAR;
        if near && self.doubles.iter().all(|&i| exponents(values[i as usize]).is_none()) {
            return;
        }
        let best = self.cheapest(values, before);
        if best != usize::from(self.exponent) {
            self.encode(values, best, before);
        }
    }

    /// Gives the k that takes least room, the smallest of such. Only those are tried that leave fewer doubles than each
    /// smaller one.
    fn cheapest(&mut self, values: &[f64], before: i64) -> usize {
        let mut change = [0i64; 17];
        for (smallest, largest) in values.iter().filter_map(|&v| exponents(v)) {
            change[smallest] += 1;
            change[largest + 1] -= 1;
        }
        let (mut best, mut least, mut covered, mut most) = (0, f64::INFINITY, 0, 0);
        for (k, change) in change[..16].iter().enumerate() {
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

    /// Bits that the values take, about: numerators packed by their differences, doubles whole.
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

    fn encode(&mut self, values: &[f64], exponent: usize, before: i64) {
        self.exponent = exponent as u8;
        self.numerators.clear();
        self.doubles.clear();
        let power = POWERS[exponent];
        let mut last = before;
        for (i, &v) in values.iter().enumerate() {
            match numerator(v, power) {
                // 0 stands for +0 only: the comparison of bits above has kept -0 out.
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

    fn check(values: &[f64], exponent: u8, doubles: &[u32]) {
        let mut d = Decimals::default();
        d.decompose(values, 77);
        assert_eq!((d.exponent, &d.doubles[..]), (exponent, doubles), "{values:?}");
    }

    #[test]
    fn picks_the_cheapest_exponent() {
        check(&[1.0, 2.0, 3.0], 0, &[]);
        check(&[0.1, 2.0, 0.35], 2, &[]);
        check(&[f64::NAN, -0.0, f64::INFINITY, 5.0], 0, &[0, 1, 2]);
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

    fn naive(values: &[f64]) -> (usize, usize) {
        let fits = |v: f64, p: f64| {
            let near = (v * p) as i64;
            (near - 3..=near + 3).any(|n| n.unsigned_abs() < 1 << 53 && (n as f64 / p).to_bits() == v.to_bits())
        };
        let lost = |k: usize| values.iter().filter(|&&v| !((v * POWERS[k]).abs() < 1e17 && fits(v, POWERS[k]))).count();
        (0..16).map(|k| (lost(k), k)).min().map(|(lost, k)| (k, lost)).unwrap()
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (any::<i32>(), 0..8usize).prop_map(|(n, k)| f64::from(n) / POWERS[k]),
            2 => (any::<i64>(), 0..16usize).prop_map(|(n, k)| (n >> 10) as f64 / POWERS[k]),
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
                    let back = d.numerators[i] as f64 / POWERS[usize::from(d.exponent)];
                    prop_assert_eq!(back.to_bits(), v.to_bits());
                }
                last = d.numerators[i];
            }
            // Of those with the fewest doubles the smallest, or one that takes less room.
            let (naive, lost) = naive(&values);
            if (usize::from(d.exponent), d.doubles.len()) != (naive, lost) {
                let chosen = (d.cost(77), usize::from(d.exponent));
                d.encode(&values, naive, 77);
                prop_assert_eq!(d.doubles.len(), lost);
                prop_assert!(chosen < (d.cost(77), naive), "{:?} {}", chosen, d.cost(77));
            }
        }
    }
}
