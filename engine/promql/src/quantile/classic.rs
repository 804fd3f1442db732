//! Quantile and fraction of a classic histogram: cumulative counts by upper bound.

use std::fmt;

use quiver_types::go_format::{float_text, general};

/// Relative differences between neighbouring counts up to this are taken for rounding.
const TOLERANCE: f64 = 1e-12;

/// A bucket: observations up to `upper_bound`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassicBucket {
    /// The number in `le`.
    pub upper_bound: f64,
    /// Observations up to the bound: those of lower buckets included.
    pub count: f64,
}

/// Where counts fell from bucket to bucket and were lifted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fix {
    /// Lowest bound with a lifted count.
    pub min_bucket: f64,
    /// Highest bound with a lifted count.
    pub max_bucket: f64,
    /// Most that a count was lifted by.
    pub max_diff: f64,
}

/// All fixes of one metric in a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForcedMonotonicity {
    /// Number of fixed histograms.
    pub samples: u64,
    /// First step at which counts fell, Unix milliseconds.
    pub min_ts: i64,
    /// Last step at which counts fell, Unix milliseconds.
    pub max_ts: i64,
    /// Lowest bound with a lifted count.
    pub min_bucket: f64,
    /// Highest bound with a lifted count.
    pub max_bucket: f64,
    /// Most that a count was lifted by.
    pub max_diff: f64,
}

impl ForcedMonotonicity {
    /// Starts with one fix at a step.
    pub fn new(fix: Fix, ts: i64) -> Self {
        let Fix { min_bucket, max_bucket, max_diff } = fix;
        Self { samples: 1, min_ts: ts, max_ts: ts, min_bucket, max_bucket, max_diff }
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &Self) {
        self.samples += other.samples;
        self.min_ts = self.min_ts.min(other.min_ts);
        self.max_ts = self.max_ts.max(other.max_ts);
        self.min_bucket = self.min_bucket.min(other.min_bucket);
        self.max_bucket = self.max_bucket.max(other.max_bucket);
        self.max_diff = self.max_diff.max(other.max_diff);
    }
}

/// Written as Prometheus tells of it.
impl fmt::Display for ForcedMonotonicity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: i64| {
            let time = chrono::DateTime::from_timestamp(ms / 1000, 0).unwrap_or_default();
            time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
        };
        write!(
            f,
            "from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            float_text(self.min_bucket),
            float_text(self.max_bucket),
            general(self.max_diff, Some(2), false),
            self.samples,
            time(self.min_ts),
            time(self.max_ts),
        )
    }
}

/// Gives the quantile, and the fix when counts fell. The buckets are sorted, joined and fixed in place; they may come
/// in any order. NaN without a bucket for +Inf, without observations, or with fewer than two buckets.
pub fn bucket_quantile(q: f64, buckets: &mut Vec<ClassicBucket>) -> (f64, Option<Fix>) {
    if q.is_nan() || buckets.is_empty() {
        return (f64::NAN, None);
    }
    if q < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if q > 1.0 {
        return (f64::INFINITY, None);
    }
    if !sort_and_join(buckets) {
        return (f64::NAN, None);
    }
    let fix = force_monotonic(buckets);
    let last = buckets.len() - 1;
    let observations = buckets[last].count;
    if last == 0 || observations == 0.0 {
        return (f64::NAN, fix);
    }
    let mut rank = q * observations;
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "`b.count < rank` says something else of counts that are NaN")]
    let found = buckets[..last].partition_point(|b| !(b.count >= rank));
    if found == last {
        return (buckets[last - 1].upper_bound, fix);
    }
    let ClassicBucket { upper_bound: end, mut count } = buckets[found];
    if found == 0 && end <= 0.0 {
        return (end, fix);
    }
    let mut start = 0.0;
    if found > 0 {
        start = buckets[found - 1].upper_bound;
        count -= buckets[found - 1].count;
        rank -= buckets[found - 1].count;
    }
    (start + (end - start) * (rank / count), fix)
}

/// Gives the share of observations between two values; buckets are sorted and joined in place.
pub fn bucket_fraction(lower: f64, upper: f64, buckets: &mut Vec<ClassicBucket>) -> f64 {
    if buckets.is_empty() || !sort_and_join(buckets) {
        return f64::NAN;
    }
    let count = buckets[buckets.len() - 1].count;
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let mut ranks = [None, None];
    // Zero is taken for the lower end unless the first bucket reaches below it.
    let mut start = if buckets[0].upper_bound <= 0.0 { f64::NEG_INFINITY } else { 0.0 };
    let mut below = 0.0;
    for b in buckets.iter() {
        let end = b.upper_bound;
        for (rank, v) in ranks.iter_mut().zip([lower, upper]) {
            if rank.is_some() {
                continue;
            }
            if start >= v {
                *rank = Some(below);
            } else if end > v {
                // Nothing is known about where observations are in a bucket without a lower end.
                let within = below + (b.count - below) * (v - start) / (end - start);
                *rank = Some(if start == f64::NEG_INFINITY { b.count } else { within });
            }
        }
        below = b.count;
        start = end;
    }
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a rank that is NaN stays one")]
    let [lower, upper] = ranks.map(|rank| rank.filter(|&r| !(r > count)).unwrap_or(count));
    (upper - lower) / count
}

/// Sorts by bound and adds up buckets with the same one; says whether the last bound is +Inf.
fn sort_and_join(buckets: &mut Vec<ClassicBucket>) -> bool {
    buckets.sort_by(|a, b| a.upper_bound.partial_cmp(&b.upper_bound).unwrap_or(std::cmp::Ordering::Equal));
    if buckets.last().is_none_or(|b| b.upper_bound != f64::INFINITY) {
        return false;
    }
    buckets.dedup_by(|b, kept| {
        let same = b.upper_bound == kept.upper_bound;
        if same {
            kept.count += b.count;
        }
        same
    });
    true
}

/// Lifts counts that are below the one before; differences within rounding go both ways and are not reported.
fn force_monotonic(buckets: &mut [ClassicBucket]) -> Option<Fix> {
    let mut fix: Option<Fix> = None;
    let mut previous = buckets[0].count;
    for b in &mut buckets[1..] {
        let current = b.count;
        if current == previous {
            continue;
        }
        if almost_equal(previous, current) {
            b.count = previous;
        } else if current < previous {
            b.count = previous;
            let bound = b.upper_bound;
            let fix = fix.get_or_insert(Fix { min_bucket: bound, max_bucket: bound, max_diff: 0.0 });
            fix.min_bucket = fix.min_bucket.min(bound);
            fix.max_bucket = fix.max_bucket.max(bound);
            fix.max_diff = fix.max_diff.max(previous - current);
        } else {
            previous = current;
        }
    }
    fix
}

fn almost_equal(a: f64, b: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    fn buckets(list: &[(f64, f64)]) -> Vec<ClassicBucket> {
        list.iter().map(|&(upper_bound, count)| ClassicBucket { upper_bound, count }).collect()
    }

    fn check(q: f64, list: &[(f64, f64)], expected: f64) {
        let (got, _) = bucket_quantile(q, &mut buckets(list));
        assert!(got == expected || (got.is_nan() && expected.is_nan()), "{q} {list:?}: {got}");
    }

    #[test]
    fn what_was_lifted_is_told_with_bounds_and_times() {
        let fix = Fix { min_bucket: 0.5, max_bucket: f64::INFINITY, max_diff: 1234.0 };
        let mut all = ForcedMonotonicity::new(fix, 1_700_000_000_999);
        all.merge(&ForcedMonotonicity::new(Fix { max_diff: 0.0626, ..fix }, -1000));
        let text = "from buckets 0.5 to +Inf, with a max diff of 1.2e+03, over 2 samples from 1969-12-31T23:59:59Z to \
                    2023-11-14T22:13:20Z";
        assert_eq!(all.to_string(), text);
        let one = ForcedMonotonicity::new(Fix { max_diff: 0.0626, ..fix }, 0).to_string();
        assert!(one.contains("a max diff of 0.063, over 1 samples"), "{one}");
        assert!(one.ends_with("from 1970-01-01T00:00:00Z to 1970-01-01T00:00:00Z"), "{one}");
    }

    #[test]
    fn quantiles() {
        let list = [(0.1, 1.0), (INF, 4.0), (0.2, 3.0)];
        check(0.0, &list, 0.0);
        check(0.25, &list, 0.1);
        check(0.5, &list, 0.150_000_000_000_000_02);
        check(1.0, &list, 0.2);
        check(-1.0, &list, -INF);
        check(2.0, &list, INF);
        check(f64::NAN, &list, f64::NAN);
        check(0.5, &[(0.1, 1.0), (0.2, 3.0)], f64::NAN);
        check(0.5, &[(INF, 3.0)], f64::NAN);
        check(0.5, &[(1.0, 0.0), (INF, 0.0)], f64::NAN);
        check(0.1, &[(-1.0, 2.0), (INF, 4.0)], -1.0);
        check(0.5, &[(1.0, 1.0), (1.0, 1.0), (INF, 2.0)], 0.5);
    }

    #[test]
    fn falling_counts_are_lifted() {
        let mut list = buckets(&[(1.0, 10.0), (2.0, 5.0), (3.0, 8.0), (INF, 20.0)]);
        let (_, fix) = bucket_quantile(0.5, &mut list);
        assert_eq!(fix, Some(Fix { min_bucket: 2.0, max_bucket: 3.0, max_diff: 5.0 }));
        let (_, fix) = bucket_quantile(0.5, &mut buckets(&[(1.0, 1e13), (2.0, 1e13 - 1.0), (INF, 2e13)]));
        assert_eq!(fix, None);
    }

    #[test]
    fn fractions() {
        let check = |lower, upper, expected: f64| {
            let got = bucket_fraction(lower, upper, &mut buckets(&[(1.0, 2.0), (3.0, 6.0), (INF, 8.0)]));
            assert!((got - expected).abs() < 1e-12, "{lower} {upper}: {got}");
        };
        check(-INF, INF, 1.0);
        check(0.0, 1.0, 0.25);
        check(0.5, 2.0, 0.375);
        check(2.0, 2.0, 0.0);
        check(3.0, 100.0, 0.0);
        check(3.0, INF, 0.25);
        assert!(bucket_fraction(0.0, 1.0, &mut buckets(&[(1.0, 2.0)])).is_nan());
        assert!(bucket_fraction(f64::NAN, 1.0, &mut buckets(&[(INF, 2.0)])).is_nan());
    }

    #[test]
    fn between_the_ends_of_a_bucket() {
        let list = [(1.0, 2.0), (2.0, 4.0), (INF, 4.0)];
        for (q, expected) in [(0.25, 0.5), (0.5, 1.0), (0.75, 1.5), (1.0, 2.0)] {
            check(q, &list, expected);
        }
        // The first bucket begins at zero unless it ends there or below.
        let negative = [(-2.0, 1.0), (-1.0, 3.0), (INF, 4.0)];
        for (q, expected) in [(0.1, -2.0), (0.25, -2.0), (0.5, -1.5), (0.75, -1.0), (0.9, -1.0)] {
            check(q, &negative, expected);
        }
        check(0.5, &[(0.0, 2.0), (4.0, 4.0), (INF, 4.0)], 0.0);
        // Of what lies beyond the last bound only that is known.
        check(0.5, &[(1.0, 0.0), (INF, 4.0)], 1.0);
        check(0.99, &[(-1.0, 0.0), (INF, 4.0)], -1.0);
        check(0.5, &[], f64::NAN);
        check(0.5, &[(1.0, 1.0), (f64::NEG_INFINITY, 1.0)], f64::NAN);
    }

    #[test]
    fn neither_order_nor_doubles_matter() {
        let list = [(1.0, 2.0), (1.0, 1.0), (2.0, 6.0), (INF, 5.0), (INF, 5.0)];
        let joined = [(1.0, 3.0), (2.0, 6.0), (INF, 10.0)];
        for turn in 0..list.len() {
            let mut turned = list;
            turned.rotate_left(turn);
            for q in [0.0, 0.1, 0.3, 0.5, 0.6] {
                let (expected, _) = bucket_quantile(q, &mut buckets(&joined));
                check(q, &turned, expected);
            }
            let mut sorted = buckets(&turned);
            assert_eq!(bucket_fraction(0.5, 1.5, &mut sorted), bucket_fraction(0.5, 1.5, &mut buckets(&joined)));
            assert_eq!(sorted, buckets(&joined));
        }
    }

    #[test]
    fn fixes_say_where_and_how_far() {
        let mut list = buckets(&[(1.0, 10.0), (2.0, 9.0), (3.0, 8.0), (4.0, 10.0), (5.0, 12.0), (INF, 11.5)]);
        let (_, fix) = bucket_quantile(0.5, &mut list);
        assert_eq!(fix, Some(Fix { min_bucket: 2.0, max_bucket: INF, max_diff: 2.0 }));
        let counts: Vec<f64> = list.iter().map(|b| b.count).collect();
        assert_eq!(counts, [10.0, 10.0, 10.0, 10.0, 12.0, 12.0]);
        // What was lifted once stays so.
        assert_eq!(bucket_quantile(0.5, &mut list).1, None);
        // Rounding goes both ways without a word, also where nothing is known.
        let mut list = buckets(&[(1.0, 1e13), (2.0, 1e13 + 1.0), (INF, 1e13 - 1.0)]);
        assert_eq!(bucket_quantile(2.0, &mut list.clone()).1, None, "nobody looked");
        assert_eq!(bucket_quantile(0.5, &mut list).1, None);
        assert!(list.iter().all(|b| b.count == 1e13));
        let mut all = ForcedMonotonicity::new(Fix { min_bucket: 2.0, max_bucket: 3.0, max_diff: 1.0 }, 50);
        all.merge(&ForcedMonotonicity::new(Fix { min_bucket: 1.0, max_bucket: 2.5, max_diff: 7.0 }, 20));
        all.merge(&ForcedMonotonicity::new(Fix { min_bucket: 9.0, max_bucket: INF, max_diff: 0.5 }, 90));
        let expected =
            ForcedMonotonicity { samples: 3, min_ts: 20, max_ts: 90, min_bucket: 1.0, max_bucket: INF, max_diff: 7.0 };
        assert_eq!(all, expected);
    }

    #[test]
    fn fractions_below_zero() {
        let share = |lower, upper| bucket_fraction(lower, upper, &mut buckets(&[(-1.0, 2.0), (1.0, 4.0), (INF, 4.0)]));
        assert_eq!(share(-INF, -1.0), 0.5);
        assert_eq!(share(-1.0, 0.0), 0.25);
        assert_eq!(share(-INF, 0.0), 0.75);
        assert_eq!(share(1.0, INF), 0.0);
        assert_eq!(share(1.0, 1.0), 0.0);
        assert_eq!(share(2.0, -2.0), 0.0);
        // Nothing is known of where observations are in a bucket that has no lower end.
        assert_eq!(share(-5.0, -1.0), 0.0);
        assert_eq!(share(-5.0, 1.0), 0.5);
        assert!(bucket_fraction(0.0, 1.0, &mut buckets(&[(1.0, 0.0), (INF, 0.0)])).is_nan());
        assert!(bucket_fraction(0.0, f64::NAN, &mut buckets(&[(1.0, 2.0), (INF, 2.0)])).is_nan());
        assert!(bucket_fraction(0.0, 1.0, &mut vec![]).is_nan());
    }
}
