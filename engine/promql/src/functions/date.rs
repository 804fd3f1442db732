//! Calendar functions of Unix times, in UTC.

use quiver_types::time::calendar::{date_of, days_of_month, is_leap};

use super::definition::{FunctionDef, Kernel, VECTOR};
use super::elementwise::ElementwiseKernel;
use crate::ast::ValueType;

const fn date(name: &'static str, f: fn(i64) -> f64, doc: &'static str) -> FunctionDef {
    FunctionDef::new(name, VECTOR, ValueType::Vector, Kernel::Elementwise(ElementwiseKernel::Date(f)), doc)
        .variadic(1)
        .with_step_time()
}

pub(super) const MINUTE: FunctionDef = date("minute", |t| (second_of_day(t) / 60 % 60) as f64, "The minute, 0 to 59.");
pub(super) const HOUR: FunctionDef = date("hour", |t| (second_of_day(t) / 3600) as f64, "The hour, 0 to 23.");
pub(super) const DAY_OF_WEEK: FunctionDef =
    date("day_of_week", |t| (day(t) + 4).rem_euclid(7) as f64, "The day of the week, 0 (Sunday) to 6.");
pub(super) const DAY_OF_MONTH: FunctionDef =
    date("day_of_month", |t| f64::from(date_of(day(t)).2), "The day of the month, from 1.");
pub(super) const DAY_OF_YEAR: FunctionDef = date("day_of_year", day_of_year, "The day of the year, from 1.");
pub(super) const DAYS_IN_MONTH: FunctionDef = date("days_in_month", days_in_month, "The number of days of the month.");
pub(super) const MONTH: FunctionDef = date("month", |t| f64::from(date_of(day(t)).1), "The month, 1 to 12.");
pub(super) const YEAR: FunctionDef = date("year", |t| date_of(day(t)).0 as f64, "The year.");

/// The first second in Prometheus' calendar: 1 March of the year -292277022400. It counts from there in 64 unsigned
/// bits, so earlier times (NaN and infinities are the earliest of all) wrap around to 2^64 seconds later.
const FIRST: i128 = (-730_692_556 * 146_097 - 719_468) * 86_400;

fn seconds(t: i64) -> i128 {
    let t = i128::from(t);
    if t < FIRST { t + (1 << 64) } else { t }
}

fn day(t: i64) -> i64 {
    seconds(t).div_euclid(86_400) as i64
}

fn second_of_day(t: i64) -> i64 {
    seconds(t).rem_euclid(86_400) as i64
}

fn days_in_month(t: i64) -> f64 {
    let (year, month, _) = date_of(day(t));
    f64::from(days_of_month(year, month))
}

fn day_of_year(t: i64) -> f64 {
    const BEFORE: [u32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let (year, month, day) = date_of(day(t));
    let leap = u32::from(month > 2 && is_leap(year));
    f64::from(BEFORE[month as usize - 1] + day + leap)
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, Timelike};
    use proptest::prelude::*;

    use super::*;

    fn value(def: FunctionDef, t: i64) -> f64 {
        match def.kernel {
            Kernel::Elementwise(ElementwiseKernel::Date(f)) => f(t),
            _ => unreachable!("all functions of this file are dates"),
        }
    }

    /// As Prometheus answers for NaN.
    #[test]
    fn what_is_no_time_wraps_around() {
        let found = [YEAR, MONTH, DAY_OF_MONTH, HOUR, MINUTE, DAY_OF_WEEK].map(|def| value(def, i64::MIN));
        assert_eq!(found, [292_277_026_596.0, 12.0, 4.0, 15.0, 30.0, 0.0]);
    }

    proptest! {
        #[test]
        fn agrees_with_chrono(t in -60_000_000_000_i64..253_000_000_000) {
            let c = chrono::DateTime::from_timestamp(t, 0).unwrap();
            prop_assert_eq!(value(YEAR, t), f64::from(c.year()));
            prop_assert_eq!(value(MONTH, t), f64::from(c.month()));
            prop_assert_eq!(value(DAY_OF_MONTH, t), f64::from(c.day()));
            prop_assert_eq!(value(DAY_OF_YEAR, t), f64::from(c.ordinal()));
            prop_assert_eq!(value(DAY_OF_WEEK, t), f64::from(c.weekday().num_days_from_sunday()));
            prop_assert_eq!(value(HOUR, t), f64::from(c.hour()));
            prop_assert_eq!(value(MINUTE, t), f64::from(c.minute()));
            prop_assert_eq!(value(DAYS_IN_MONTH, t), f64::from(c.num_days_in_month()));
        }
    }
}
