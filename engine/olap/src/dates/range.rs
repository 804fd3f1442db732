//! Ranges of wall time, single dates and times, and their instants.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use chrono_tz::Tz;

use super::zone::{Edge, naive, of_naive, utc_ns, wall_ns, write_wall};
use super::{DAY_NS, MILLI_NS, cut};

/// A range of wall time; the end is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WallRange {
    /// The start, in nanoseconds since 1970 on a clock without a zone.
    pub start_ns: i64,
    /// The end, excluded.
    pub end_ns: i64,
}

impl WallRange {
    /// A range of whole milliseconds that includes both ends.
    pub fn of_ends(first_ns: i64, last_ns: i64) -> Self {
        Self { start_ns: first_ns, end_ns: last_ns.saturating_add(MILLI_NS) }
    }

    /// Both ends as queries write them; the second is the last millisecond in the range.
    pub fn written(&self) -> [String; 2] {
        [write_wall(self.start_ns), write_wall(self.end_ns.saturating_sub(MILLI_NS))]
    }

    /// The instants of start and end (excluded).
    pub fn instants(&self, tz: Tz) -> (i64, i64) {
        (utc_ns(tz, self.start_ns, Edge::Start), utc_ns(tz, self.end_ns, Edge::End))
    }
}

/// A date, or a date with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A whole day.
    Day(NaiveDate),
    /// A millisecond, in wall time.
    Time(NaiveDateTime),
}

impl Point {
    /// Parses `2026-03-31`, `2026-03-31T21:00`, `…:00.000`, with or without a zone.
    pub fn parse(text: &str, tz: Tz) -> Option<Self> {
        let text = text.trim();
        if text.len() < 10 || !text.is_char_boundary(10) || !text.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (date, rest) = text.split_at(10);
        let day: NaiveDate = date.parse().ok()?;
        if rest.is_empty() {
            return Some(Self::Day(day));
        }
        let time = rest.strip_prefix(['T', 't', ' '])?;
        let zoned = |zone: &str| DateTime::parse_from_rfc3339(&format!("{date}T{time}{zone}")).ok();
        if let Some(instant) = zoned("") {
            let wall = wall_ns(tz, instant.timestamp_nanos_opt()?);
            return Some(Self::Time(naive(wall)));
        }
        let time = if time.len() == 5 { format!("{time}:00") } else { time.to_owned() };
        format!("{date}T{time}").parse().ok().map(Self::Time)
    }

    /// The range that it covers.
    pub fn range(self) -> WallRange {
        match self {
            Self::Day(day) => {
                let start_ns = of_naive(day.and_hms_opt(0, 0, 0).unwrap_or_default());
                WallRange { start_ns, end_ns: start_ns.saturating_add(DAY_NS) }
            }
            Self::Time(time) => {
                let at = cut(of_naive(time), MILLI_NS);
                WallRange::of_ends(at, at)
            }
        }
    }
}
