//! Granularities: buckets of wall time (`olap-api.md` 3.3).

use chrono::{Datelike as _, Months, NaiveDate, NaiveDateTime};

use super::zone::{naive, of_naive};
use super::{DAY_NS, SECOND_NS};

/// A length of time in months and nanoseconds, either of which may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    /// Calendar months; includes years and quarters.
    pub months: i32,
    /// Nanoseconds of fixed length; includes weeks and days of 24 hours each.
    pub nanos: i64,
}

impl Interval {
    /// Parses `7 day`, `1 year 3 months`, `-1 day`.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no interval; write it as `5 minutes` or `1 year 3 months`");
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() || words.len() % 2 == 1 {
            return Err(bad());
        }
        let mut out = Self::default();
        for pair in words.chunks(2) {
            let count: i64 = pair[0].parse().map_err(|_| bad())?;
            let one = Self::unit(pair[1]).ok_or_else(bad)?;
            let months = i64::from(one.months).checked_mul(count).and_then(|m| i32::try_from(m).ok());
            let nanos = one.nanos.checked_mul(count);
            out.months = months.and_then(|m| out.months.checked_add(m)).ok_or_else(bad)?;
            out.nanos = nanos.and_then(|n| out.nanos.checked_add(n)).ok_or_else(bad)?;
        }
        Ok(out)
    }

    /// One unit, in the singular or plural; `None` if the word is no unit.
    pub fn unit(word: &str) -> Option<Self> {
        let lower = word.to_ascii_lowercase();
        let months = |months| Some(Self { months, nanos: 0 });
        let seconds = |s: i64| Some(Self { months: 0, nanos: s * SECOND_NS });
        match lower.strip_suffix('s').unwrap_or(&lower) {
            "second" => seconds(1),
            "minute" => seconds(60),
            "hour" => seconds(3_600),
            "day" => seconds(86_400),
            "week" => seconds(7 * 86_400),
            "month" => months(1),
            "quarter" => months(3),
            "year" => months(12),
            _ => None,
        }
    }

    /// The negated interval.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { months: self.months.saturating_neg(), nanos: self.nanos.saturating_neg() }
    }

    /// The interval multiplied by `count`.
    #[must_use]
    pub fn times(self, count: i64) -> Self {
        let most = i64::from(i32::MAX);
        let months = i64::from(self.months).saturating_mul(count).clamp(-most, most) as i32;
        Self { months, nanos: self.nanos.saturating_mul(count) }
    }

    /// Adds the interval to a wall time; a day that the month lacks becomes its last day.
    pub fn add_to(self, wall_ns: i64) -> i64 {
        let moved = if self.months == 0 {
            wall_ns
        } else {
            let time = naive(wall_ns);
            let months = Months::new(self.months.unsigned_abs());
            let there = if self.months > 0 { time.checked_add_months(months) } else { time.checked_sub_months(months) };
            there.map_or(if self.months > 0 { i64::MAX } else { i64::MIN }, of_naive)
        };
        moved.saturating_add(self.nanos)
    }

    /// Whether it can be the length of buckets: positive, and either in months or in nanoseconds.
    pub fn makes_buckets(self) -> bool {
        self.months >= 0 && self.nanos >= 0 && (self.months > 0) != (self.nanos > 0)
    }

    /// Whether its length is zero.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// Buckets of one length that continue from an origin in both directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granularity {
    /// Its name in queries.
    pub name: String,
    /// Its title for people.
    pub title: String,
    /// The length as written.
    pub interval: String,
    /// The origin as written.
    pub origin: Option<String>,
    /// The offset as written.
    pub offset: Option<String>,
    /// Assigns times to buckets.
    pub buckets: Buckets,
}

/// Assigns wall times to buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets {
    /// Length: either months or nanoseconds.
    pub length: Interval,
    /// A boundary between buckets, in wall time.
    pub origin_ns: i64,
}

/// Granularities that every time dimension has, coarsest last.
pub const STANDARD: [&str; 8] = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];

/// The first Monday of Unix time.
const MONDAY_NS: i64 = 4 * DAY_NS;

impl Granularity {
    /// A granularity that every time dimension has; `None` if the name is none of these.
    pub fn standard(name: &str) -> Option<Self> {
        let name = STANDARD.iter().find(|n| **n == name)?;
        let length = Interval::unit(name)?;
        let origin_ns = if *name == "week" { MONDAY_NS } else { 0 };
        Some(Self {
            name: (*name).to_owned(),
            title: (*name).to_owned(),
            interval: format!("1 {name}"),
            origin: None,
            offset: None,
            buckets: Buckets { length, origin_ns },
        })
    }

    /// A granularity of a model.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub fn custom(
        name: &str,
        title: Option<&str>,
        interval: &str,
        origin: Option<&str>,
        offset: Option<&str>,
    ) -> Result<Self, String> {
        let length = Interval::parse(interval)?;
        if !length.makes_buckets() {
            return Err(format!(
                "`{interval}` must be either months and years or shorter units, and more than nothing"
            ));
        }
        let origin_ns =
            match (origin, offset) {
                (Some(_), Some(_)) => return Err("`origin` and `offset` exclude each other".to_owned()),
                (Some(origin), None) => of_naive(parse_origin(origin)?),
                (None, offset) => {
                    let shift = offset.map(Interval::parse).transpose()?.unwrap_or_default();
                    shift.add_to(aligned(length).ok_or_else(|| {
                        format!("`{interval}` does not divide the next unit evenly: give it an `origin`")
                    })?)
                }
            };
        Ok(Self {
            name: name.to_owned(),
            title: title.map_or_else(|| crate::member_titles::of_name(name), str::to_owned),
            interval: interval.to_owned(),
            origin: origin.map(str::to_owned),
            offset: offset.map(str::to_owned),
            buckets: Buckets { length, origin_ns },
        })
    }
}

fn parse_origin(text: &str) -> Result<NaiveDateTime, String> {
    let date = |t: &str| t.parse::<NaiveDate>().ok().and_then(|d| d.and_hms_opt(0, 0, 0));
    let year = |t: &str| t.parse().ok().filter(|_| t.len() == 4).and_then(|y| NaiveDate::from_ymd_opt(y, 1, 1));
    let month = |t: &str| format!("{t}-01").parse::<NaiveDate>().ok();
    let midnight = |d: NaiveDate| d.and_hms_opt(0, 0, 0);
    let spaced = text.replace(' ', "T");
    date(text)
        .or_else(|| spaced.parse().ok())
        .or_else(|| format!("{spaced}:00").parse().ok())
        .or_else(|| month(text).and_then(midnight))
        .or_else(|| year(text).and_then(midnight))
        .ok_or_else(|| format!("`{text}` is no origin; write it as `2026-03-23`"))
}

/// A boundary of buckets that need no origin, because they divide a year or a day evenly.
fn aligned(length: Interval) -> Option<i64> {
    if length.months > 0 {
        return (12 % length.months == 0 || length.months % 12 == 0).then(|| {
            // Buckets of several years begin in years that are multiples of the length.
            let years = (length.months / 12).max(1);
            let first = 1970 - 1970 % years;
            of_naive(NaiveDate::from_ymd_opt(first, 1, 1).and_then(|d| d.and_hms_opt(0, 0, 0)).unwrap_or_default())
        });
    }
    match length.nanos {
        n if n == 7 * DAY_NS => Some(MONDAY_NS),
        n if n == DAY_NS => Some(0),
        n => {
            let larger = [60, 3_600, 86_400].map(|s| s * SECOND_NS);
            // 90 minutes divide the day, but no hour. Whole hours must divide the day, whole minutes the hour,
            // anything else the minute.
            let unit = if n % (3_600 * SECOND_NS) == 0 { 2 } else { usize::from(n % (60 * SECOND_NS) == 0) };
            (larger[unit] % n == 0).then_some(0)
        }
    }
}

impl Buckets {
    /// The start of the bucket that contains a wall time.
    pub fn floor(&self, wall_ns: i64) -> i64 {
        if self.length.months == 0 {
            let past = wall_ns.saturating_sub(self.origin_ns).rem_euclid(self.length.nanos);
            return wall_ns.saturating_sub(past);
        }
        self.border(self.steps(wall_ns))
    }

    /// The start of the bucket after the one that starts at a boundary.
    pub fn next(&self, border_ns: i64) -> i64 {
        if self.length.months == 0 {
            return border_ns.saturating_add(self.length.nanos);
        }
        let (time, origin) = (naive(border_ns), naive(self.origin_ns));
        let months = (time.year() - origin.year()) * 12 + time.month0() as i32 - origin.month0() as i32;
        self.border(i64::from(months.div_euclid(self.length.months)) + 1)
    }

    /// The index of the bucket that contains a wall time, counted from the origin.
    pub fn steps(&self, wall_ns: i64) -> i64 {
        if self.length.months == 0 {
            return wall_ns.saturating_sub(self.origin_ns).div_euclid(self.length.nanos);
        }
        let (time, origin) = (naive(wall_ns), naive(self.origin_ns));
        let index = |t: &NaiveDateTime| t.year() * 12 + t.month0() as i32;
        let mut steps = i64::from((index(&time) - index(&origin)).div_euclid(self.length.months));
        // The boundary of a month may lie after the time within that month; with clipped ends of months one more step
        // is possible.
        while self.border(steps) > wall_ns {
            steps -= 1;
        }
        // Boundaries beyond the range of nanoseconds are all equal, so no step goes past the last time.
        while self.border(steps + 1) <= wall_ns && self.border(steps + 1) < i64::MAX {
            steps += 1;
        }
        steps
    }

    /// The boundary a number of buckets after the origin.
    fn border(&self, steps: i64) -> i64 {
        self.length.times(steps).add_to(self.origin_ns)
    }

    /// The approximate length of a bucket, to order granularities.
    pub fn about_ns(&self) -> i64 {
        self.length.nanos.saturating_add(i64::from(self.length.months) * 30 * DAY_NS)
    }
}

/// Whether each bucket of `outer` consists of whole buckets of `inner`.
pub(crate) fn nests(outer: &Buckets, inner: &Buckets) -> bool {
    if outer == inner {
        return true;
    }
    let (length, months) = (inner.length.nanos, inner.length.months);
    if months > 0 {
        // Boundaries on the first of a month stay on it, by whatever number of months they are shifted.
        let is_multiple = outer.length.months > 0 && outer.length.months % months == 0;
        return is_multiple && inner.origin_ns == 0 && inner.floor(outer.origin_ns) == outer.origin_ns;
    }
    // Boundaries of months are whole days apart.
    let of_days = if outer.length.months > 0 { DAY_NS } else { outer.length.nanos };
    of_days % length == 0 && inner.floor(outer.origin_ns) == outer.origin_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::zone::write_wall;

    fn check(granularity: &Granularity, time: &str, expected: &str, next: &str) {
        let wall = of_naive(time.parse().unwrap());
        let start = granularity.buckets.floor(wall);
        assert_eq!(write_wall(start), format!("{expected}.000"), "{} {time}", granularity.name);
        assert_eq!(write_wall(granularity.buckets.next(start)), format!("{next}.000"), "{} {time}", granularity.name);
        let steps = granularity.buckets.steps(wall);
        assert_eq!(granularity.buckets.border(steps), start, "{} {time}", granularity.name);
        assert_eq!(
            granularity.buckets.border(steps + 1),
            granularity.buckets.next(start),
            "{} {time}",
            granularity.name
        );
    }

    #[test]
    fn standard_ones() {
        let one = |name: &str| Granularity::standard(name).unwrap();
        let at = "2026-03-31T13:45:27";
        check(&one("second"), at, "2026-03-31T13:45:27", "2026-03-31T13:45:28");
        check(&one("minute"), at, "2026-03-31T13:45:00", "2026-03-31T13:46:00");
        check(&one("hour"), at, "2026-03-31T13:00:00", "2026-03-31T14:00:00");
        check(&one("day"), at, "2026-03-31T00:00:00", "2026-04-01T00:00:00");
        check(&one("week"), at, "2026-03-30T00:00:00", "2026-04-06T00:00:00");
        check(&one("week"), "1969-12-31T23:00:00", "1969-12-29T00:00:00", "1970-01-05T00:00:00");
        check(&one("month"), at, "2026-03-01T00:00:00", "2026-04-01T00:00:00");
        check(&one("quarter"), at, "2026-01-01T00:00:00", "2026-04-01T00:00:00");
        check(&one("year"), "1969-03-31T13:45:27", "1969-01-01T00:00:00", "1970-01-01T00:00:00");
    }

    #[test]
    fn the_first_and_the_last_time() {
        for (name, last) in [("month", "2262-04-01"), ("quarter", "2262-04-01"), ("year", "2262-01-01")] {
            let buckets = Granularity::standard(name).unwrap().buckets;
            assert_eq!(write_wall(buckets.floor(i64::MAX)), format!("{last}T00:00:00.000"), "{name}");
            assert_eq!(
                (buckets.next(buckets.floor(i64::MAX)), buckets.floor(i64::MIN)),
                (i64::MAX, i64::MIN),
                "{name}"
            );
        }
    }

    #[test]
    fn custom_ones() {
        let one = |interval: &str, origin: Option<&str>, offset: Option<&str>| {
            Granularity::custom("g", None, interval, origin, offset).unwrap()
        };
        let at = "2026-03-31T13:45:27";
        check(&one("5 minutes", None, None), at, "2026-03-31T13:45:00", "2026-03-31T13:50:00");
        check(&one("2 weeks", Some("2026-03-23"), None), at, "2026-03-23T00:00:00", "2026-04-06T00:00:00");
        check(
            &one("1 year", None, Some("1 month")),
            "2026-01-31T10:00:00",
            "2025-02-01T00:00:00",
            "2026-02-01T00:00:00",
        );
        check(&one("1 week", None, Some("-1 day")), at, "2026-03-29T00:00:00", "2026-04-05T00:00:00");
        check(
            &one("1 month", Some("2026-01-31"), None),
            "2026-02-28T01:00:00",
            "2026-02-28T00:00:00",
            "2026-03-31T00:00:00",
        );
        check(&one("1 year 3 months", Some("2025-01-01"), None), at, "2025-01-01T00:00:00", "2026-04-01T00:00:00");
        check(&one("2 years", None, None), at, "2026-01-01T00:00:00", "2028-01-01T00:00:00");
        let refused =
            |interval: &str| assert!(Granularity::custom("g", None, interval, None, None).is_err(), "{interval}");
        ["5 months", "7 hours", "3 days", "1 month 1 day", "0 days", "fast", "90 minutes"]
            .into_iter()
            .for_each(refused);
    }

    #[test]
    fn buckets_are_made_of_whole_ones() {
        let of = |name: &str| Granularity::standard(name).unwrap().buckets;
        let check = |inner: &str, served: &[&str]| {
            let all = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];
            let found: Vec<&str> = all.into_iter().filter(|outer| nests(&of(outer), &of(inner))).collect();
            assert_eq!(found, served, "{inner}");
        };
        check("hour", &["hour", "day", "week", "month", "quarter", "year"]);
        check("day", &["day", "week", "month", "quarter", "year"]);
        check("week", &["week"]);
        check("month", &["month", "quarter", "year"]);
        check("quarter", &["quarter", "year"]);
        let custom = |interval: &str, origin: Option<&str>, offset: Option<&str>| {
            Granularity::custom("g", None, interval, origin, offset).unwrap().buckets
        };
        assert!(nests(&custom("2 weeks", Some("2026-03-23"), None), &of("week")));
        assert!(!nests(&custom("1 week", None, Some("-1 day")), &of("week")));
        assert!(nests(&custom("1 year", None, Some("1 month")), &of("month")));
        assert!(!nests(&custom("1 month", Some("2026-01-31"), None), &of("month")));
    }
}
