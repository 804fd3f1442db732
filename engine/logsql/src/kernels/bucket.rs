//! Buckets of `by (f:step offset d)`.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::kernels::values::{
    parse_duration, parse_float, parse_i64, parse_ipv4, parse_rfc3339, push_duration, push_f64, push_ipv4,
    push_rfc3339, truncate_to_month, truncate_to_year,
};

const DAY_NS: i64 = 86_400_000_000_000;

/// How wide buckets are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// A number; of nanoseconds for times and durations.
    Number(f64),
    /// This many leading bits of an IPv4 address.
    Ipv4Mask(u8),
    /// Weeks, from Monday.
    Week,
    /// Months of the calendar.
    Month,
    /// Years of the calendar.
    Year,
}

/// Buckets. A value goes to `floor((x - offset) / step) * step + offset`; for times the offset is a zone instead, so
/// that `1d offset 2h` begins days at 22:00 UTC. What is no number keeps its own group, sizes with units too.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Bucket {
    step: Step,
    offset: f64,
}

// Bits tell numbers apart, so that buckets can be compared and hashed as parts of plans.
impl PartialEq for Bucket {
    fn eq(&self, other: &Self) -> bool {
        let same_step = match (self.step, other.step) {
            (Step::Number(a), Step::Number(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        same_step && self.offset.to_bits() == other.offset.to_bits()
    }
}

impl Eq for Bucket {}

impl Hash for Bucket {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.step {
            Step::Number(step) => step.to_bits().hash(state),
            Step::Ipv4Mask(bits) => bits.hash(state),
            Step::Week | Step::Month | Step::Year => std::mem::discriminant(&self.step).hash(state),
        }
        self.offset.to_bits().hash(state);
    }
}

impl Bucket {
    /// Buckets of a width; the offset moves where they begin, or is the zone of times.
    pub fn new(step: Step, offset: f64) -> Self {
        Self { step, offset }
    }

    /// The step as a whole number, at least 1.
    fn step_int(&self) -> i64 {
        let step = match self.step {
            Step::Number(step) => step as i64,
            Step::Ipv4Mask(bits) => 1 << (32 - u32::from(bits.min(32))),
            Step::Week => 7 * DAY_NS,
            // Only times have these.
            Step::Month | Step::Year => 1,
        };
        step.max(1)
    }

    /// Gives the beginning of the bucket of a time in Unix nanoseconds.
    pub fn of_time(&self, ns: i64) -> i64 {
        let zone = self.offset as i64;
        let local = ns.saturating_add(zone);
        let start = match self.step {
            Step::Month => truncate_to_month(local),
            Step::Year => truncate_to_year(local),
            // The epoch was a Thursday.
            Step::Week => floor(local, 7 * DAY_NS, 4 * DAY_NS),
            _ => floor(local, self.step_int(), 0),
        };
        start.saturating_sub(zone)
    }

    /// Gives a width, in nanoseconds, that no bucket of times is narrower than.
    pub fn time_width(&self) -> i64 {
        match self.step {
            // These differ in width.
            Step::Month | Step::Year => 1,
            Step::Week => 7 * DAY_NS,
            _ => self.step_int(),
        }
    }

    /// Writes the bucket of a value.
    pub fn push(&self, out: &mut String, value: &str) {
        if !matches!(value.as_bytes().first(), Some(b'0'..=b'9' | b'-')) {
            out.push_str(value);
            return;
        }
        let fractional =
            matches!(self.step, Step::Number(step) if step.fract() != 0.0 && step > 0.0) || self.offset.fract() != 0.0;
        let (step, offset) = (self.step_int(), self.offset as i64);
        if let Some(n) = parse_i64(value).filter(|_| !fractional) {
            // Writing to a text cannot fail.
            let _ = std::fmt::Write::write_fmt(out, format_args!("{}", floor(n, step, offset)));
        } else if let Some(n) = parse_float(value) {
            push_f64(out, self.of_float(n));
        } else if let Some(ns) = parse_rfc3339(value) {
            push_rfc3339(out, self.of_time(ns));
        } else if let Some(address) = parse_ipv4(value) {
            let start = floor(i64::from(address), step, offset).clamp(0, i64::from(u32::MAX));
            push_ipv4(out, start as u32);
        } else if let Some(ns) = parse_duration(value) {
            push_duration(out, floor(ns, step, offset));
        } else {
            out.push_str(value);
        }
    }

    /// The bucket of a number that is not whole. It is counted in the last digit of the step that is not 0, so that
    /// buckets of 0.1 begin at 0.3 and not at 0.30000000000000004. Below zero the count is cut towards zero, as the
    /// reference does it.
    fn of_float(&self, n: f64) -> f64 {
        let step = match self.step {
            Step::Number(step) if step > 0.0 => step,
            _ => self.step_int() as f64,
        };
        let mut scale = 1.0;
        while (step * scale).fract() != 0.0 && scale < 1e15 {
            scale *= 10.0;
        }
        // A digit before the point has a unit of its own: the inverse of a power of ten is no exact float.
        let mut unit = 1.0;
        while step * scale / unit % 10.0 == 0.0 {
            unit *= 10.0;
        }
        let units = ((n - self.offset) * scale / unit).floor();
        let start = (units - units % (step * scale / unit).round()) * unit / scale + self.offset;
        // Minus zero is no name for a bucket.
        start + 0.0
    }
}

fn floor(n: i64, step: i64, offset: i64) -> i64 {
    // Most often no more bits are needed.
    let near = n.checked_sub(offset).and_then(|from| from.checked_sub(from.rem_euclid(step))?.checked_add(offset));
    if let Some(start) = near {
        return start;
    }
    let from = i128::from(n) - i128::from(offset);
    let start = from - from.rem_euclid(i128::from(step)) + i128::from(offset);
    start.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_of_values() {
        let check = |step: Step, offset: f64, value: &str, want: &str| {
            let mut out = String::new();
            Bucket::new(step, offset).push(&mut out, value);
            assert_eq!(out, want, "{value} by {step:?} offset {offset}");
        };
        let n = Step::Number;
        for (value, step, offset, want) in [
            ("0", 100.0, 0.0, "0"),
            ("99", 100.0, 0.0, "0"),
            ("-1", 100.0, 0.0, "-100"),
            ("-100", 100.0, 0.0, "-100"),
            ("1", 100.0, 10.0, "-90"),
            ("0", 100.0, 30.0, "-70"),
            ("130", 100.0, 30.0, "130"),
            ("130", 100.0, 30.3, "30.3"),
            ("130.4", 100.0, 30.3, "130.3"),
            ("-1.3", 0.1, 0.0, "-1.3"),
            ("-1.25", 0.1, 0.0, "-1.3"),
            ("-0.01", 0.1, 0.05, "-0.05"),
            ("0.35", 0.1, 0.0, "0.3"),
            ("-5.5", 10.0, 0.0, "-10"),
            ("-5.5", 20.0, 0.0, "0"),
            ("27.5", 20.0, 0.0, "20"),
            ("-1.3", 0.5, 0.0, "-1"),
            ("-1.3", 2.0, 0.0, "-2"),
            ("-7.5", 1000.0, 0.0, "-1000"),
            ("7", 2.5, 0.0, "5"),
            ("123456789.123456789", 1e7, 0.0, "120000000"),
            ("-123456789.5", 1e7, 0.0, "-130000000"),
            ("0.5", 10.0, 0.0, "0"),
            ("foo", 10.0, 0.0, "foo"),
            ("", 10.0, 0.0, ""),
            ("12KB", 10.0, 0.0, "12KB"),
            ("5", 0.0, 0.0, "5"),
            ("1.5s", 1e9, 0.0, "1s"),
            ("150ms", 1e8, 0.0, "100ms"),
            ("45µs", 1e8, 0.0, "0"),
        ] {
            check(n(step), offset, value, want);
        }
        check(Step::Ipv4Mask(24), 0.0, "1.2.3.255", "1.2.3.0");
        check(Step::Ipv4Mask(0), 0.0, "1.2.3.255", "0.0.0.0");
        check(Step::Ipv4Mask(32), 0.0, "1.2.3.255", "1.2.3.255");
        let hour = 3600e9;
        for (value, step, offset, want) in [
            ("2025-01-20T10:20:30.12345Z", n(1e7), 0.0, "2025-01-20T10:20:30.12Z"),
            ("2025-01-20T10:20:30.12345Z", n(600e9), 0.0, "2025-01-20T10:20:00Z"),
            ("2025-01-21T10:20:30.12345Z", Step::Week, 0.0, "2025-01-20T00:00:00Z"),
            ("2025-03-20T10:20:30.12345Z", Step::Month, 0.0, "2025-03-01T00:00:00Z"),
            ("2025-01-31T23:20:30+04:00", Step::Month, 0.0, "2025-01-01T00:00:00Z"),
            ("2025-01-31T23:20:30Z", Step::Month, 4.0 * hour, "2025-01-31T20:00:00Z"),
            ("2024-12-31T23:20:30Z", Step::Year, -4.0 * hour, "2024-01-01T04:00:00Z"),
            ("1970-01-01T00:00:00Z", Step::Week, 0.0, "1969-12-29T00:00:00Z"),
            ("1970-01-01T00:00:00Z", Step::Week, 96.0 * hour, "1970-01-01T00:00:00Z"),
            ("2024-04-01T00:20:30Z", n(24.0 * hour), 2.0 * hour, "2024-03-31T22:00:00Z"),
            ("2024-04-02T22:20:30Z", n(24.0 * hour), 2.0 * hour, "2024-04-02T22:00:00Z"),
        ] {
            check(step, offset, value, want);
        }
        check(n(1e18), 9e18, "-9223372036854775808", "-9223372036854775808");
    }

    #[test]
    fn buckets_at_the_ends_of_time() {
        for (n, step, offset, want) in [
            (7, 5, 0, 5),
            (-7, 5, 0, -10),
            (7, 5, 4, 4),
            (i64::MIN, 7, 0, i64::MIN),
            (i64::MIN + 7, 7, 0, i64::MIN + 1),
            (i64::MAX, 7, -1, i64::MAX - 1),
            (i64::MIN, 10, i64::MAX, i64::MIN),
        ] {
            assert_eq!(floor(n, step, offset), want, "{n} by {step} from {offset}");
        }
    }

    #[test]
    fn values_of_other_kinds() {
        let check = |step: Step, offset: f64, value: &str, want: &str| {
            let mut out = String::new();
            Bucket::new(step, offset).push(&mut out, value);
            assert_eq!(out, want, "{value} by {step:?} offset {offset}");
        };
        let n = Step::Number;
        check(Step::Ipv4Mask(24), 0.0, "1000", "768");
        check(Step::Ipv4Mask(8), 0.0, "255.255.255.255", "255.0.0.0");
        check(n(256.0), 0.0, "1.2.3.4", "1.2.3.0");
        check(n(1e9), 5e8, "0.0.0.1", "0.0.0.0");
        check(n(1e9), 0.0, "-1.5s", "-2s");
        check(n(18_000e9), 0.0, "1d", "20h");
        for same in ["12abc", "007", "1.2.3", "-", "-x", "0x1f", "1e5", "2025-01-20"] {
            check(n(10.0), 0.0, same, same);
        }
        check(n(10.0), 0.0, "9223372036854775807", "9223372036854775800");
        check(n(10.0), 0.0, "18446744073709551615", "18446744073709552000");
        // An invalid step leaves values unchanged.
        for step in [0.0, -5.0, f64::NAN] {
            check(n(step), 0.0, "-7", "-7");
        }
    }

    #[test]
    fn buckets_are_parts_of_plans() {
        let all = [
            Bucket::new(Step::Number(0.0), 0.0),
            Bucket::new(Step::Number(-0.0), 0.0),
            Bucket::new(Step::Number(0.0), -0.0),
            Bucket::new(Step::Number(f64::NAN), 0.0),
            Bucket::new(Step::Ipv4Mask(24), 0.0),
            Bucket::new(Step::Ipv4Mask(25), 0.0),
            Bucket::new(Step::Week, 0.0),
            Bucket::new(Step::Month, 0.0),
            Bucket::new(Step::Year, 0.0),
        ];
        let known: std::collections::HashSet<Bucket> = all.into_iter().chain(all).collect();
        assert_eq!(known.len(), all.len());
    }

    proptest! {
        #[test]
        fn a_time_is_in_its_bucket(
            ns in -4_000_000_000_000_000_000_i64..4_000_000_000_000_000_000,
            step in 1..400_i64 * DAY_NS,
            zone in -DAY_NS..DAY_NS,
        ) {
            use quiver_types::time::calendar::date_of;
            let of = |step: Step| {
                let bucket = Bucket::new(step, zone as f64);
                (bucket.of_time(ns), bucket.time_width())
            };
            // As far as doubles are exact.
            let step = step as f64 as i64;
            let (start, width) = of(Step::Number(step as f64));
            prop_assert!(start <= ns && ns - start < step && (start + zone).rem_euclid(step) == 0);
            prop_assert_eq!(width, step);
            let (week, width) = of(Step::Week);
            prop_assert!(week <= ns && ns - week < width);
            // Mondays: the epoch was a Thursday.
            prop_assert_eq!((week + zone).rem_euclid(width), 4 * DAY_NS);
            let date = |ns: i64| date_of((ns + zone).div_euclid(DAY_NS));
            let midnight = |ns: i64| (ns + zone).rem_euclid(DAY_NS) == 0;
            let (month, year) = (of(Step::Month).0, of(Step::Year).0);
            prop_assert!(month <= ns && midnight(month) && year <= month && midnight(year));
            prop_assert_eq!(date(month), (date(ns).0, date(ns).1, 1));
            prop_assert_eq!(date(year), (date(ns).0, 1, 1));
        }

        #[test]
        fn a_number_is_in_its_bucket(n in any::<i32>(), step in 1..100_000_i64, offset in -100_000..100_000_i64) {
            let mut out = String::new();
            Bucket::new(Step::Number(step as f64), offset as f64).push(&mut out, &n.to_string());
            let start: i64 = out.parse().unwrap();
            let n = i64::from(n);
            prop_assert!(start <= n && n - start < step && (start - offset) % step == 0, "{} of {}", out, n);
            // A decimal above zero, where steps begin at zero.
            let (n, mut whole) = (n.abs(), String::new());
            Bucket::new(Step::Number(step as f64), 0.0).push(&mut whole, &format!("{n}.25"));
            prop_assert_eq!(whole, (n / step * step).to_string());
        }
    }
}
