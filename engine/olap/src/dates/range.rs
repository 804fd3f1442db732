//! Ranges of local time, single dates and times, and their instants.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use chrono_tz::Tz;

use super::zone::{Edge, naive, of_naive, utc_ns, wall_ns, write_wall};
use super::{DAY_NS, MILLI_NS, cut};

/// A range of wall time: from its first nanosecond to before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WallRange {
    /// First wall time, in nanoseconds since 1970 as a clock without a zone counts them.
    pub start_ns: i64,
    /// The wall time behind the last one.
    pub end_ns: i64,
}

impl WallRange {
    /// Makes the range of whole milliseconds that both ends belong to.
    pub fn of_ends(first_ns: i64, last_ns: i64) -> Self {
        Self { start_ns: first_ns, end_ns: last_ns.saturating_add(MILLI_NS) }
    }

    /// Gives both ends as queries show them; the last is the last millisecond within.
    pub fn written(&self) -> [String; 2] {
        [write_wall(self.start_ns), write_wall(self.end_ns.saturating_sub(MILLI_NS))]
    }

    /// Gives the instants: from the first to before the second.
    pub fn instants(&self, tz: Tz) -> (i64, i64) {
        (utc_ns(tz, self.start_ns, Edge::Start), utc_ns(tz, self.end_ns, Edge::End))
    }
}

/// A point that is written as a date or as a date with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A whole day.
    Day(NaiveDate),
    /// A millisecond, in wall time.
    Time(NaiveDateTime),
}

impl Point {
    /// Reads `2026-03-31`, `2026-03-31T21:00`, `…:00.000`, with a zone or without.
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

    /// The range that it stands for.
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
