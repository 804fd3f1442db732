//! Times: RFC 3339 and its shorter forms (a year, a month, … each the whole unit), Unix times by magnitude.

use chrono::{Days, Months, NaiveDate};

/// First and last nanosecond of what a time names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    /// The first nanosecond that the text can mean.
    pub(crate) start: i64,
    /// The last nanosecond that the text can mean.
    pub(crate) end: i64,
}

const SECOND: i64 = 1_000_000_000;

/// Reads `2025`, `2025-03`, `2025-03-10`, `…T05`, `…T05:30`, `…T05:30:15`, `….123`, each with a zone or without (UTC).
pub(crate) fn parse_span(text: &str) -> Option<TimeSpan> {
    let (local, zone_ns) = split_zone(text)?;
    let (date, clock) = match local.split_once('T') {
        Some((date, clock)) => (date, Some(clock)),
        None => (local, None),
    };
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = optional(parts.next(), 2).ok()?;
    let day = optional(parts.next(), 2).ok()?;
    if parts.next().is_some() || (clock.is_some() && day.is_none()) {
        return None;
    }
    let first = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month.unwrap_or(1), day.unwrap_or(1))?;
    let midnight = |date: NaiveDate| date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_nanos_opt();
    let Some(clock) = clock else {
        let next = match (month, day) {
            (None, _) => first.checked_add_months(Months::new(12))?,
            (_, None) => first.checked_add_months(Months::new(1))?,
            _ => first.checked_add_days(Days::new(1))?,
        };
        return shifted(midnight(first)?, midnight(next)? - 1, zone_ns);
    };
    let (from, width) = parse_clock(clock)?;
    let start = midnight(first)?.checked_add(from)?;
    shifted(start, start.checked_add(width - 1)?, zone_ns)
}

fn shifted(start: i64, end: i64, zone_ns: i64) -> Option<TimeSpan> {
    Some(TimeSpan { start: start.checked_sub(zone_ns)?, end: end.checked_sub(zone_ns)? })
}

/// Reads `05`, `05:30`, `05:30:15`, `05:30:15.123`: nanoseconds of the day and width of the unit.
fn parse_clock(clock: &str) -> Option<(i64, i64)> {
    let mut parts = clock.splitn(3, ':');
    let hour = i64::from(digits(parts.next()?, 2)?);
    let minute = optional(parts.next(), 2).ok()?;
    let seconds = parts.next();
    let (second, fraction) = match seconds.map(|s| s.split_once('.').unwrap_or((s, ""))) {
        None => (None, ""),
        Some((second, fraction)) => (Some(digits(second, 2)?), fraction),
    };
    if hour > 23 || minute.is_some_and(|m| m > 59) || second.is_some_and(|s| s > 59) {
        return None;
    }
    if seconds.is_some_and(|s| s.ends_with('.')) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Digits behind the nanoseconds are cut off, as where rows are taken: a picosecond is in its nanosecond.
    let kept = &fraction[..fraction.len().min(9)];
    let fraction_ns = match kept.len() {
        0 => 0,
        n => kept.parse::<i64>().ok()? * 10i64.pow(9 - n as u32),
    };
    let at = (hour * 3600 + i64::from(minute.unwrap_or(0)) * 60 + i64::from(second.unwrap_or(0))) * SECOND;
    let width = match (minute, second, fraction.len()) {
        (None, ..) => 3600 * SECOND,
        (_, None, _) => 60 * SECOND,
        (_, _, 0) => SECOND,
        (_, _, 3) => 1_000_000,
        _ => 1,
    };
    Some((at + fraction_ns, width))
}

/// Cuts `Z` or `±hh:mm` off; without a zone the time is UTC.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(local) = text.strip_suffix('Z') {
        return Some((local, 0));
    }
    let Some(at) = text.len().checked_sub(6).filter(|&at| text.is_char_boundary(at)) else {
        return Some((text, 0));
    };
    let (local, zone) = text.split_at(at);
    if !zone.starts_with(['+', '-']) || zone.as_bytes()[3] != b':' {
        return Some((text, 0));
    }
    let minutes = i64::from(digits(&zone[1..3], 2)?) * 60 + i64::from(digits(&zone[4..], 2)?);
    let ns = minutes * 60 * SECOND;
    Some((local, if zone.starts_with('-') { -ns } else { ns }))
}

fn digits(text: &str, len: usize) -> Option<u32> {
    (text.len() == len && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Digits that may be absent, but not wrong.
fn optional(text: Option<&str>, len: usize) -> Result<Option<u32>, ()> {
    text.map(|text| digits(text, len).ok_or(())).transpose()
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Datelike, Timelike};
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, start: i64, end: i64) {
        assert_eq!(parse_span(text), Some(TimeSpan { start, end }), "{text}");
    }

    #[test]
    fn spans() {
        check("2023Z", 1_672_531_200_000_000_000, 1_704_067_199_999_999_999);
        check("2023-03-02:00", 1_677_636_000_000_000_000, 1_680_314_399_999_999_999);
        check("2023-02-27T23-02:25", 1_677_547_500_000_000_000, 1_677_551_099_999_999_999);
        check("2023-03-01T00:59:59+01:00", 1_677_628_799_000_000_000, 1_677_628_799_999_999_999);
        check("2024-05-12T00:00:00.555+00:00", 1_715_472_000_555_000_000, 1_715_472_000_555_999_999);
        check("2024-05-31T10:20:30.456789123Z", 1_717_150_830_456_789_123, 1_717_150_830_456_789_123);
        check("2024-05-31T10:20:30.456789123999Z", 1_717_150_830_456_789_123, 1_717_150_830_456_789_123);
        check("2024-05-31T10:20:30.0000000009+00:00", 1_717_150_830_000_000_000, 1_717_150_830_000_000_000);
        // The last second that begins within 64 bits ends beyond them.
        assert_eq!(parse_span("2262-04-11T23:47:16Z"), None);
        for bad in ["fooo-02", "2023-ab", "2023-01-02T04:05:06+12", "2023-13", "", "202", "2023-01-02T25"] {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }

    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;

    #[test]
    fn what_is_named_is_as_long_as_the_calendar_says() {
        let length = |text: &str| parse_span(text).map(|span| span.end - span.start + 1);
        for (text, expected) in [
            ("2023", 365 * DAY),
            ("2024", 366 * DAY),
            ("2000", 366 * DAY),
            ("1900", 365 * DAY),
            ("2024-02", 29 * DAY),
            ("2023-02", 28 * DAY),
            ("2023-12", 31 * DAY),
            ("2023-12-31", DAY),
            ("2024-02-29", DAY),
            ("2024-02-29T23", HOUR),
            ("2024-02-29T23:59", MINUTE),
            ("2024-02-29T23:59:59", SECOND),
            ("2024-02-29T23:59:59.5", 1),
            ("2024-02-29T23:59:59.25", 1),
            ("2024-02-29T23:59:59.250", 1_000_000),
            ("2024-02-29T23:59:59.250000000", 1),
        ] {
            assert_eq!(length(text), Some(expected), "{text}");
            assert_eq!(length(&format!("{text}Z")), Some(expected), "{text}Z");
        }
    }

    #[test]
    fn zones_move_both_ends() {
        let utc = parse_span("2024-03-10T12:00:00").expect("a time");
        for (zone, by) in [
            ("Z", 0),
            ("+00:00", 0),
            ("-00:00", 0),
            ("+05:30", -330 * MINUTE),
            ("-08:00", 8 * HOUR),
            ("+14:00", -14 * HOUR),
        ] {
            let text = format!("2024-03-10T12:00:00{zone}");
            check(&text, utc.start + by, utc.end + by);
        }
        // Of a month and a year, too.
        check("1970-01+01:00", -HOUR, 31 * DAY - HOUR - 1);
        check("1970-01-01-01:00", HOUR, DAY + HOUR - 1);
        check("1970+00:30", -HOUR / 2, 365 * DAY - HOUR / 2 - 1);
        // Before 1970.
        check("1969-12-31T23:59:59", -SECOND, -1);
    }

    #[test]
    fn what_is_no_time() {
        for bad in [
            "2023-2",
            "2023-02-3",
            "2023-02-30",
            "2023-00",
            "2023-01-00",
            "2100-02-29",
            "2023-01-02T",
            "2023-01-02T5",
            "2023-01-02T24",
            "2023-01-02T05:60",
            "2023-01-02T05:06:60",
            "2023-01-02T05:06:",
            "2023-01-02T05:06:07.",
            "2023-01-02T05:06:07.12a",
            "2023-01-02T05:06:07.1234567890a",
            "2023-01-02T05:06:07.12345678é",
            "2023-01-02T05:06:07.-1",
            "2023-01-02T05:06:07:08",
            "2023-01T05",
            "2023T05",
            "2023-01-02t05",
            "2023-01-02 05:06:07",
            "2023-01-02T05:06:07+1:00",
            "2023-01-02T05:06:07+ab:cd",
            "2023-01-02T05:06:07z",
            "2023-01-02-03-04",
            "+2023",
            "２０２３",
            "2023-é1",
            "-é:00é",
            "Z",
            "+00:00",
            "9999",
            "0000",
        ] {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }

    proptest! {
        /// Breaks if a part of a time counts for more or less than it is: each shorter form holds the longer ones.
        #[test]
        fn shorter_forms_hold_longer_ones(seconds in -8_000_000_000_i64..8_000_000_000, ns in 0..SECOND) {
            let time = DateTime::from_timestamp(seconds, u32::try_from(ns).expect("below a second")).expect("a time");
            let date = format!("{:04}-{:02}-{:02}", time.year(), time.month(), time.day());
            let clock = format!("{:02}:{:02}:{:02}.{ns:09}", time.hour(), time.minute(), time.second());
            let at = seconds * SECOND + ns;
            let all = format!("{date}T{clock}");
            prop_assert_eq!(parse_span(&all), Some(TimeSpan { start: at, end: at }), "{}", all);
            let mut inner = TimeSpan { start: at, end: at };
            for length in [19, 16, 13, 10, 7, 4] {
                let text = &all[..length];
                let span = parse_span(text).unwrap_or_else(|| panic!("{text}"));
                prop_assert!(span.start <= inner.start && inner.end <= span.end, "{text}");
                inner = span;
            }
        }
    }

    /// Breaks if the last representable times overflow: a query up to then ended in an internal error.
    #[test]
    fn the_last_moments() {
        check("2262-04-11T23:47:16.854775807Z", i64::MAX, i64::MAX);
        assert_eq!(parse_span("2262-04-11T23:47:16.854775808Z"), None);
        assert_eq!(parse_span("2262-04-11T23:47:17Z"), None);
    }
}
