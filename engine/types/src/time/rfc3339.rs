//! RFC 3339 times in text columns, with the variations that senders write. The parser accepts every form that any of its
//! callers accepts, and reports which form it was, so that a stricter caller can refuse it. Request parameters are parsed
//! by `chrono`, which accepts exactly what the RFC allows.

use super::calendar::{date_of, days_of, days_of_month};

const SECOND_NS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// A time as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339 {
    /// Seconds from 1970-01-01 to the date and time of day, whatever the zone is. A leap second is the first of the next
    /// minute.
    pub local_seconds: i64,
    /// `T`, `t` or a blank.
    pub separator: u8,
    /// Hour, 24 included.
    pub hour: u32,
    /// Second, 60 included.
    pub second: u32,
    /// `.` or `,` where there is a fraction.
    pub point: Option<u8>,
    /// Digits of the fraction.
    pub digits: usize,
    /// The fraction in nanoseconds; further digits are cut.
    pub nanos: u32,
    /// The zone as it is written; [`Zone::seconds`] gives the offset.
    pub zone: Zone,
}

/// A zone as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// No zone is written.
    Unsaid,
    /// `Z`
    Upper,
    /// `z`
    Lower,
    /// `+01:00`, in seconds; 24 hours included.
    Colon(i64),
    /// `+0100`, in seconds likewise.
    Plain(i64),
}

impl Zone {
    fn read(text: &[u8]) -> Option<Self> {
        let offset = |sign: u8, hours: Option<u32>, minutes: Option<u32>| {
            let (hours, minutes) = (hours.filter(|h| *h <= 24)?, minutes.filter(|m| *m <= 59)?);
            let seconds = i64::from(hours * 3600 + minutes * 60);
            Some(if sign == b'-' { -seconds } else { seconds })
        };
        match *text {
            [] => Some(Self::Unsaid),
            [b'Z'] => Some(Self::Upper),
            [b'z'] => Some(Self::Lower),
            [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => offset(sign, two(h0, h1), two(m0, m1)).map(Self::Colon),
            [sign @ (b'+' | b'-'), h0, h1, m0, m1] => offset(sign, two(h0, h1), two(m0, m1)).map(Self::Plain),
            _ => None,
        }
    }

    /// Gives the seconds east of UTC; none where no zone is said.
    pub fn seconds(self) -> i64 {
        match self {
            Self::Unsaid | Self::Upper | Self::Lower => 0,
            Self::Colon(seconds) | Self::Plain(seconds) => seconds,
        }
    }
}

impl Rfc3339 {
    /// Reads `2025-03-10T09:46:41.5+01:00` and the looser forms that the fields tell of; `None`: it is no such time.
    pub fn read(text: &[u8]) -> Option<Self> {
        let days = date(text)?;
        let [separator @ (b'T' | b't' | b' '), h0, h1, b':', m0, m1, b':', s0, s1, ref rest @ ..] = text[DATE_LEN..]
        else {
            return None;
        };
        let (hour, minute, second) = (two(h0, h1)?, two(m0, m1)?, two(s0, s1)?);
        if hour > 24 || minute > 59 || second > 60 {
            return None;
        }
        let (mut point, mut digits, mut nanos, mut zone) = (None, 0, 0, rest);
        if let [mark @ (b'.' | b','), fraction @ ..] = rest {
            digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            let told = digits.min(9);
            nanos = fraction[..told].iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
            nanos *= 10u32.pow(9 - told as u32);
            point = Some(*mark);
            zone = &fraction[digits..];
        }
        let local_seconds = days * DAY_SECONDS + i64::from(hour * 3600 + minute * 60 + second);
        let zone = Zone::read(zone)?;
        Some(Self { local_seconds, separator, hour, second, point, digits, nanos, zone })
    }

    /// Gives Unix nanoseconds; of the years 0 to 9999 not all fit in 64 bits.
    pub fn unix_nanos(&self) -> i128 {
        i128::from(self.local_seconds - self.zone.seconds()) * i128::from(SECOND_NS) + i128::from(self.nanos)
    }
}

/// Length of `2025-03-10`.
const DATE_LEN: usize = 10;

/// Reads `2025-03-10` at the beginning of a text; gives days since 1970.
pub fn date(text: &[u8]) -> Option<i64> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, ..] = *text else { return None };
    let year = i64::from(two(y0, y1)?) * 100 + i64::from(two(y2, y3)?);
    let (month, day) = (two(m0, m1)?, two(d0, d1)?);
    let is_date = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    is_date.then(|| days_of(year, month, day))
}

#[inline]
fn two(high: u8, low: u8) -> Option<u32> {
    let (high, low) = (high.wrapping_sub(b'0'), low.wrapping_sub(b'0'));
    (high < 10 && low < 10).then(|| u32::from(high) * 10 + u32::from(low))
}

/// Appends Unix nanoseconds in UTC with `Z`. Digits of the fraction: as many as said (9 at most), or none at the end that
/// are zero.
pub fn write(nanos: i64, digits: Option<u8>, out: &mut String) {
    let (seconds, fraction) = (nanos.div_euclid(SECOND_NS), nanos.rem_euclid(SECOND_NS));
    let (year, month, day) = date_of(seconds.div_euclid(DAY_SECONDS));
    let second = seconds.rem_euclid(DAY_SECONDS) as u32;
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    put(&mut text[..4], year as u32);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], second / 3600);
    put(&mut text[14..16], second / 60 % 60);
    put(&mut text[17..19], second % 60);
    put(&mut text[20..29], fraction as u32);
    let digits =
        digits.map_or_else(|| 9 - text[20..29].iter().rev().take_while(|digit| **digit == b'0').count(), usize::from);
    let end = if digits == 0 { 19 } else { 20 + digits };
    text[end] = b'Z';
    out.push_str(std::str::from_utf8(&text[..=end]).unwrap_or_default());
}

fn put(out: &mut [u8], mut value: u32) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Rfc3339> {
        Rfc3339::read(text.as_bytes())
    }

    #[test]
    fn forms() {
        let check = |text: &str, seconds: i64, nanos: u32, zone: Zone| {
            let found = read(text).unwrap_or_else(|| panic!("{text}"));
            let unix = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            assert_eq!((found.unix_nanos(), found.zone), (unix, zone), "{text}");
        };
        check("2025-03-10T09:46:41Z", 1_741_600_001, 0, Zone::Upper);
        check("2025-03-10t09:46:41z", 1_741_600_001, 0, Zone::Lower);
        check("2025-03-10 09:46:41.5", 1_741_600_001, 500_000_000, Zone::Unsaid);
        check("2025-03-10T10:46:41,1234567899+01:00", 1_741_600_001, 123_456_789, Zone::Colon(3600));
        check("2025-03-10T04:16:41-0530", 1_741_600_001, 0, Zone::Plain(-19_800));
        check("2025-03-10T24:00:00Z", 1_741_651_200, 0, Zone::Upper);
        check("2016-12-31T23:59:60Z", 1_483_228_800, 0, Zone::Upper);
        check("0000-01-01T00:00:00Z", -62_167_219_200, 0, Zone::Upper);
        check("9999-12-31T23:59:59Z", 253_402_300_799, 0, Zone::Upper);
        for bad in [
            "",
            "2025-03-10",
            "2025-03-10T09:46",
            "2025-13-10T09:46:41Z",
            "2025-02-29T09:46:41Z",
            "2025-03-00T09:46:41Z",
            "2025-03-10x09:46:41Z",
            "2025-03-10T25:46:41Z",
            "2025-03-10T09:60:41Z",
            "2025-03-10T09:46:61Z",
            "2025-03-10T09:46:41.Z",
            "2025-03-10T09:46:41Zx",
            "2025-03-10T09:46:41+1:00",
            "2025-03-10T09:46:41+25:00",
            "2025-03-10T09:46:41+01:60",
            "2025-03-10T09:46:41+01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!((date(b"1970-01-02 and more"), date(b"1970-1-2")), (Some(1), None));
    }

    #[test]
    fn written_and_read() {
        let check = |nanos: i64, digits: Option<u8>, text: &str| {
            let mut out = String::new();
            write(nanos, digits, &mut out);
            assert_eq!(out, text);
            let found = read(&out).expect("a time");
            assert_eq!((found.separator, found.zone), (b'T', Zone::Upper));
            if digits.is_none_or(|digits| nanos % 10i64.pow(9 - u32::from(digits)) == 0) {
                assert_eq!(found.unix_nanos(), i128::from(nanos));
            }
        };
        check(0, None, "1970-01-01T00:00:00Z");
        check(0, Some(3), "1970-01-01T00:00:00.000Z");
        check(-1, None, "1969-12-31T23:59:59.999999999Z");
        check(-1, Some(3), "1969-12-31T23:59:59.999Z");
        check(-1, Some(0), "1969-12-31T23:59:59Z");
        check(1_741_600_001_500_000_000, None, "2025-03-10T09:46:41.5Z");
        check(1_741_600_001_500_000_000, Some(6), "2025-03-10T09:46:41.500000Z");
        check(i64::MAX, None, "2262-04-11T23:47:16.854775807Z");
        check(i64::MIN, Some(9), "1677-09-21T00:12:43.145224192Z");
    }

    /// Any time is read back from what is written of it, in any zone.
    #[test]
    fn random_times_in_random_zones() {
        let mut random = 5_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random.rotate_left(32)
        };
        for _ in 0..2000 {
            let nanos = next() as i64;
            let mut text = String::new();
            write(nanos, None, &mut text);
            assert_eq!(read(&text).map(|time| time.unix_nanos()), Some(i128::from(nanos)), "{text}");
            let minutes = (next() % 1441) as i64;
            let zone = format!("{}{:02}:{:02}", if minutes % 2 == 0 { '+' } else { '-' }, minutes / 60, minutes % 60);
            let offset = 60 * if minutes % 2 == 0 { minutes } else { -minutes };
            let elsewhere = text.replace('Z', &zone);
            let found = read(&elsewhere).unwrap_or_else(|| panic!("{elsewhere}"));
            assert_eq!(found.unix_nanos(), i128::from(nanos) - i128::from(offset) * 1_000_000_000, "{elsewhere}");
            assert_eq!(read(&elsewhere.replacen(':', ";", 1)), None);
        }
    }

    #[test]
    fn how_a_time_was_written_is_told() {
        let time = read("2024-02-29t23:59:60,50+24:00").expect("a time");
        assert_eq!((time.separator, time.hour, time.second), (b't', 23, 60));
        assert_eq!((time.point, time.digits, time.nanos), (Some(b','), 2, 500_000_000));
        assert_eq!((time.zone, time.zone.seconds()), (Zone::Colon(86_400), 86_400));
        // It is the first second of March, where it was written.
        assert_eq!(time.local_seconds, days_of(2024, 3, 1) * DAY_SECONDS);
        let plain = read("2024-02-29 00:00:00").expect("a time");
        assert_eq!((plain.point, plain.digits, plain.zone.seconds()), (None, 0, 0));
        let long = read("2024-02-29T00:00:00.12345678912345678901234567890Z").expect("a time");
        assert_eq!((long.digits, long.nanos), (29, 123_456_789));
        for text in
            ["2024-02-29T00:00:00.Z", "2024-02-29T00:00:00+24:01x", "２024-02-29T00:00:00Z", "2024-02-30T00:00:00Z"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
