//! Dates of the proleptic Gregorian calendar as days since 1970-01-01, and the names of its months and weekdays. `chrono`
//! ends at the year 262142, and its dates cost more than the sums here, which run for every value of a column.

/// English names of the months, January first.
pub const MONTH_NAMES: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// English names of the days of a week, Sunday first.
pub const WEEKDAY_NAMES: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Days of an era of 400 years.
const ERA_DAYS: i64 = 146_097;

/// From the first day of an era, 1 March of the year 0, to 1970-01-01.
const SHIFT_DAYS: i64 = 719_468;

/// Gives the days from 1970-01-01 to a date. Years begin in March, so that the day that not every year has comes last.
pub fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day) - 1;
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - SHIFT_DAYS
}

/// Gives year, month and day of a number of days from 1970-01-01.
pub fn date_of(days: i64) -> (i64, u32, u32) {
    let days = days + SHIFT_DAYS;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month as u32, day as u32)
}

/// Says whether a year has 366 days.
pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Gives the number of days of a month.
pub fn days_of_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(is_leap(year)),
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use chrono::{Datelike, Duration, NaiveDate};

    use super::*;

    #[test]
    fn names_are_in_the_order_of_chrono() {
        let first = NaiveDate::from_ymd_opt(2024, 1, 1).expect("a date");
        for date in (0..366).map(|days| first + Duration::days(days)) {
            let names =
                (WEEKDAY_NAMES[date.weekday().num_days_from_sunday() as usize], MONTH_NAMES[date.month0() as usize]);
            assert_eq!(date.format("%A %B").to_string(), format!("{} {}", names.0, names.1), "{date}");
        }
    }

    #[test]
    fn as_chrono_counts() {
        let first = NaiveDate::from_ymd_opt(1970, 1, 1).expect("a date");
        // Over three eras, by a step that meets each day of the year.
        for days in (-400_000..800_000).step_by(61) {
            let date = first + Duration::days(days);
            assert_eq!(date_of(days), (i64::from(date.year()), date.month(), date.day()), "{days}");
            assert_eq!(days_of(i64::from(date.year()), date.month(), date.day()), days, "{date}");
            assert_eq!(is_leap(i64::from(date.year())), date.leap_year(), "{date}");
        }
        for (year, days) in [(1900, 28), (2000, 29), (2023, 28), (2024, 29)] {
            assert_eq!(days_of_month(year, 2), days, "{year}");
        }
        let lengths: u32 = (1..=12).map(|month| days_of_month(2023, month)).sum();
        assert_eq!(lengths, 365);
    }

    #[test]
    fn dates_far_from_now_come_back() {
        for days in
            [-4_000_000_000_000_i64, -719_469, -719_468, -719_162, -1, 0, 59, 11_016, 2_932_896, 4_000_000_000_000]
        {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), days, "{year}-{month}-{day}");
            assert!((1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day), "{days}");
            let (_, next, first) = date_of(days + 1);
            assert_eq!(next == month, day < days_of_month(year, month), "{days}");
            assert!(next == month || first == 1, "{days}");
        }
        assert_eq!((date_of(-719_468), date_of(11_016)), ((0, 3, 1), (2000, 2, 29)));
        assert_eq!([0, -4, -100, -400, 1900, 2400].map(is_leap), [true, true, false, true, false, true]);
    }
}
