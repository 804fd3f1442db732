//! Converts between instants and wall time, across missing and repeated hours.

use chrono::{DateTime, Datelike as _, MappedLocalTime, NaiveDateTime, Offset as _, TimeZone as _, Timelike as _};
use chrono_tz::Tz;

use super::SECOND_NS;

/// The offset is constant within aligned periods of this length: since 1972 clocks change only on quarter hours.
const PIECE_S: i64 = 900;
/// Before this instant (1972-01-01) offsets may change at any second, and are looked up individually.
const EVEN_FROM_S: i64 = 63_072_000;

/// The end of a range that a wall time is, which decides for wall times that are missing or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The first instant that is not before the wall time.
    Start,
    /// The instant after the last one whose wall time is before it. If the time is repeated, this is its second
    /// occurrence; but a time at which the repeated hour itself begins ends the hour before it only once.
    End,
}

/// The offset from UTC in seconds at an instant in seconds.
pub fn offset_s(tz: Tz, utc_s: i64) -> i64 {
    DateTime::from_timestamp(utc_s, 0)
        .map_or(0, |t| i64::from(tz.offset_from_utc_datetime(&t.naive_utc()).fix().local_minus_utc()))
}

/// Converts instants to wall time and caches the last offset, since neighbouring rows mostly share it.
#[derive(Debug, Clone)]
pub struct Walls {
    tz: Tz,
    piece: i64,
    offset_ns: i64,
}

impl Walls {
    /// Converts to wall time of a zone.
    pub fn new(tz: Tz) -> Self {
        Self { tz, piece: i64::MIN, offset_ns: 0 }
    }

    /// The wall time of an instant.
    #[inline]
    pub fn wall_ns(&mut self, utc_ns: i64) -> i64 {
        if self.tz == Tz::UTC {
            return utc_ns;
        }
        let utc_s = utc_ns.div_euclid(SECOND_NS);
        if utc_s < EVEN_FROM_S {
            return utc_ns.saturating_add(offset_s(self.tz, utc_s) * SECOND_NS);
        }
        let piece = utc_s.div_euclid(PIECE_S);
        if piece != self.piece {
            self.piece = piece;
            self.offset_ns = offset_s(self.tz, utc_s) * SECOND_NS;
        }
        utc_ns.saturating_add(self.offset_ns)
    }
}

/// The wall time of an instant.
pub fn wall_ns(tz: Tz, utc_ns: i64) -> i64 {
    Walls::new(tz).wall_ns(utc_ns)
}

/// The instant of a wall time.
pub fn utc_ns(tz: Tz, wall_ns: i64, edge: Edge) -> i64 {
    if edge == Edge::Start {
        return instant(tz, wall_ns, edge);
    }
    // The last nanosecond before the end decides which occurrence of the hour ends.
    let last = wall_ns.saturating_sub(1);
    instant(tz, last, edge).saturating_add(i64::from(!is_missing(tz, last)))
}

/// Whether clocks skip a wall time.
fn is_missing(tz: Tz, wall_ns: i64) -> bool {
    let wall = DateTime::from_timestamp(wall_ns.div_euclid(SECOND_NS), 0).map(|t| t.naive_utc());
    wall.is_some_and(|wall| matches!(tz.offset_from_local_datetime(&wall), MappedLocalTime::None))
}

/// The instant of a wall time: the first or last occurrence of a repeated one, the clock change for a missing one.
fn instant(tz: Tz, wall_ns: i64, edge: Edge) -> i64 {
    let wall_s = wall_ns.div_euclid(SECOND_NS);
    let Some(wall) = DateTime::from_timestamp(wall_s, 0).map(|t| t.naive_utc()) else { return wall_ns };
    let at = |offset: i64| wall_ns.saturating_sub(offset * SECOND_NS);
    match tz.offset_from_local_datetime(&wall) {
        MappedLocalTime::Single(offset) => at(i64::from(offset.fix().local_minus_utc())),
        MappedLocalTime::Ambiguous(a, b) => {
            let (a, b) = (at(i64::from(a.fix().local_minus_utc())), at(i64::from(b.fix().local_minus_utc())));
            if edge == Edge::Start { a.min(b) } else { a.max(b) }
        }
        MappedLocalTime::None => change(tz, wall_s) * SECOND_NS,
    }
}

/// The instant in seconds at which clocks skip a wall time.
fn change(tz: Tz, wall_s: i64) -> i64 {
    let (mut before, mut after) = (wall_s - 86_400 * 2, wall_s + 86_400 * 2);
    // Some zones change twice within days; this finds the change that skips `wall_s`.
    while after - before > 1 {
        let middle = before + (after - before) / 2;
        if middle + offset_s(tz, middle) >= wall_s {
            after = middle;
        } else {
            before = middle;
        }
    }
    after
}

/// A wall time as a date and time.
pub fn naive(wall_ns: i64) -> NaiveDateTime {
    DateTime::from_timestamp_nanos(wall_ns).naive_utc()
}

/// The wall time of a date and time, clamped to the range of nanoseconds.
pub fn of_naive(time: NaiveDateTime) -> i64 {
    let far = if time.and_utc().timestamp() < 0 { i64::MIN } else { i64::MAX };
    time.and_utc().timestamp_nanos_opt().unwrap_or(far)
}

/// Formats a wall time as in results: `2026-03-31T13:45:27.123`.
pub fn write_wall(wall_ns: i64) -> String {
    let time = naive(wall_ns);
    let mut out = String::with_capacity("2026-03-31T13:45:27.123".len());
    // Formatted by hand: results contain thousands, and chrono parses its pattern each time. Years have four digits
    // within the range of nanoseconds.
    push_digits(&mut out, time.year().unsigned_abs(), 4);
    let parts =
        [('-', time.month()), ('-', time.day()), ('T', time.hour()), (':', time.minute()), (':', time.second())];
    for (mark, number) in parts {
        out.push(mark);
        push_digits(&mut out, number, 2);
    }
    out.push('.');
    push_digits(&mut out, time.nanosecond() / 1_000_000, 3);
    out
}

fn push_digits(out: &mut String, number: u32, digits: u32) {
    out.extend((0..digits).rev().map(|at| char::from(b'0' + (number / 10_u32.pow(at) % 10) as u8)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(text: &str) -> i64 {
        of_naive(text.parse().unwrap())
    }

    #[test]
    fn wall_times_are_written_as_chrono_writes_them() {
        for ns in [i64::MIN, -1, 0, 1, 1_774_964_727_123_456_789, 1_774_964_727_099_999_999, i64::MAX] {
            assert_eq!(write_wall(ns), naive(ns).format("%Y-%m-%dT%H:%M:%S%.3f").to_string());
        }
    }

    #[test]
    fn missing_and_repeated_hours() {
        let tz = Tz::Europe__Berlin;
        let check = |text: &str, edge, expected: &str| {
            assert_eq!(write_wall(utc_ns(tz, wall(text), edge)), expected, "{text} {edge:?}");
        };
        check("2026-01-01T00:00:00", Edge::Start, "2025-12-31T23:00:00.000");
        check("2026-03-29T02:30:00", Edge::Start, "2026-03-29T01:00:00.000");
        check("2026-03-29T02:30:00", Edge::End, "2026-03-29T01:00:00.000");
        check("2026-10-25T02:30:00", Edge::Start, "2026-10-25T00:30:00.000");
        check("2026-10-25T02:30:00", Edge::End, "2026-10-25T01:30:00.000");
        check("2026-10-25T02:00:00", Edge::Start, "2026-10-25T00:00:00.000");
        check("2026-10-25T02:00:00", Edge::End, "2026-10-25T00:00:00.000");
        check("2026-10-25T03:00:00", Edge::End, "2026-10-25T02:00:00.000");
        check("2026-03-29T02:00:00", Edge::End, "2026-03-29T01:00:00.000");
        check("2026-03-29T03:00:00", Edge::End, "2026-03-29T01:00:00.000");
    }

    #[test]
    fn a_day_without_midnight() {
        let start = utc_ns(Tz::Africa__Cairo, wall("2025-04-25T00:00:00"), Edge::Start);
        assert_eq!(write_wall(wall_ns(Tz::Africa__Cairo, start)), "2025-04-25T01:00:00.000");
    }

    #[test]
    fn rows_in_any_order() {
        let mut walls = Walls::new(Tz::America__New_York);
        for hours in [0_i64, 5_000, 1, 9_000, 9_001, -400_000] {
            let utc = 1_770_000_000 * SECOND_NS + hours * 3_600 * SECOND_NS;
            assert_eq!(walls.wall_ns(utc), wall_ns(Tz::America__New_York, utc));
        }
    }

    /// In all zones, across all clock changes of two years: an instant is recovered from its wall time, unless that
    /// is repeated.
    #[test]
    fn there_and_back_in_all_zones() {
        let from = wall("2025-01-01T00:00:00") / SECOND_NS;
        for tz in chrono_tz::TZ_VARIANTS {
            let mut offset = offset_s(tz, from);
            let mut walls = Walls::new(tz);
            for piece in 0..(2 * 365 * 96) {
                let utc = from + piece * PIECE_S;
                let now = offset_s(tz, utc);
                if now != offset || piece % 4_000 == 0 {
                    for near in [utc - 1, utc, utc + 1] {
                        let wall = walls.wall_ns(near * SECOND_NS);
                        let ends = [utc_ns(tz, wall, Edge::Start), utc_ns(tz, wall + 1, Edge::End) - 1];
                        assert!(ends.contains(&(near * SECOND_NS)), "{tz} {near}");
                    }
                    offset = now;
                }
            }
        }
    }
}
