//! Parses the ranges of queries: pairs, single dates, phrases (`olap-api.md` 3.1).

use chrono_tz::Tz;

use super::phrase;
use super::range::{Point, WallRange};

/// Parses a pair of dates or times; the range includes both.
///
/// # Errors
///
/// The reason, as text.
pub fn of_pair(from: &str, to: &str, tz: Tz) -> Result<WallRange, String> {
    let point = |text: &str| {
        Point::parse(text, tz).ok_or_else(|| format!("`{text}` is no date; a pair takes dates such as `2026-03-31`"))
    };
    Ok(WallRange { start_ns: point(from)?.range().start_ns, end_ns: point(to)?.range().end_ns })
}

/// Parses a date or a phrase; `now_ns` is the current instant. A time of day is truncated to its day.
///
/// # Errors
///
/// The reason, as text.
pub fn of_text(text: &str, tz: Tz, now_ns: i64) -> Result<WallRange, String> {
    match Point::parse(text, tz) {
        Some(day @ Point::Day(_)) => Ok(day.range()),
        _ => phrase::parse(text, tz, now_ns),
    }
}

/// Parses a list of one or two texts.
///
/// # Errors
///
/// The reason, as text.
pub fn of_list(texts: &[&str], tz: Tz, now_ns: i64) -> Result<WallRange, String> {
    match texts {
        // Both ends are this text, so a time is not truncated to its day.
        [one] => Point::parse(one, tz).map_or_else(|| phrase::parse(one, tz, now_ns), |point| Ok(point.range())),
        [from, to] => of_pair(from, to, tz),
        _ => Err(format!("a date range has one or two ends, not {}", texts.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DAY_NS, SECOND_NS};
    use super::*;

    #[test]
    fn pairs_and_points() {
        let check = |texts: &[&str], expected: [&str; 2]| {
            assert_eq!(of_list(texts, Tz::Europe__Berlin, 0).unwrap().written(), expected, "{texts:?}");
        };
        check(&["2026-03-01", "2026-03-31"], ["2026-03-01T00:00:00.000", "2026-03-31T23:59:59.999"]);
        check(&["2026-03-31"], ["2026-03-31T00:00:00.000", "2026-03-31T23:59:59.999"]);
        let instants = ["2026-03-31T21:00:00.000", "2026-04-01T01:00:00"];
        check(&instants, ["2026-03-31T21:00:00.000", "2026-04-01T01:00:00.000"]);
        check(&["2026-03-31T21:00:00Z", "2026-03-31 23:30"], ["2026-03-31T23:00:00.000", "2026-03-31T23:30:00.000"]);
        for bad in [&["2026-02-30", "2026-03-01"][..], &["last week", "2026-03-01"], &[], &["a", "b", "c"]] {
            assert!(of_list(bad, Tz::UTC, 0).is_err(), "{bad:?}");
        }
    }

    /// Guards against wrap-around when times are truncated to units: a range in the distant past became one in the
    /// future.
    #[test]
    fn before_the_first_nanosecond() {
        for text in ["1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43.145", "0001-01-01T00:00", "1677-09-20"] {
            let range = of_list(&[text], Tz::UTC, 0).unwrap();
            assert!(range.start_ns == i64::MIN && range.end_ns <= i64::MIN + DAY_NS, "{text}: {range:?}");
            let range = of_list(&[text, "2262-04-12"], Tz::Asia__Kolkata, 0).unwrap();
            assert_eq!((range.start_ns, range.end_ns), (i64::MIN, i64::MAX), "{text}");
        }
        for phrase in
            ["from 1677-09-21 to 2262-04-11", "from 0001-01-01t00:00 to 9999-12-31", "jan 1 1600 - jan 1 2400"]
        {
            let range = of_text(phrase, Tz::UTC, 0).unwrap();
            assert!(range.start_ns == i64::MIN && range.end_ns > i64::MAX - DAY_NS, "{phrase}: {range:?}");
        }
    }

    #[test]
    fn instants_of_a_short_day() {
        let range = of_pair("2026-03-29", "2026-03-29", Tz::Europe__Berlin).unwrap();
        let (start, end) = range.instants(Tz::Europe__Berlin);
        assert_eq!(end - start, 23 * 3_600 * SECOND_NS);
    }
}
