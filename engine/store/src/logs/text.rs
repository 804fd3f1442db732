//! Texts of typed values: times, addresses, hex digits. Reading takes only what writing gives back exactly.

pub(crate) use quiver_types::logs::{read_float, read_int, write_float, write_int};
pub(crate) use quiver_types::{is_hex, push_hex, read_hex, write_hex};

/// Writes a time as RFC 3339 in UTC. Digits after the second: as many as said, or none at the end that are zero.
pub(crate) fn write_time(nanos: i64, digits: Option<u8>, out: &mut String) {
    let (seconds, fraction) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    pad(year as u64, 4, out);
    for (mark, value) in [('-', month), ('-', day)] {
        out.push(mark);
        pad(value, 2, out);
    }
    for (mark, value) in [('T', second / 3600), (':', second / 60 % 60), (':', second % 60)] {
        out.push(mark);
        pad(value as u64, 2, out);
    }
    let digits = digits.unwrap_or_else(|| {
        let (mut n, mut rest) = (9, fraction);
        while n > 0 && rest % 10 == 0 {
            rest /= 10;
            n -= 1;
        }
        n
    });
    if digits > 0 {
        out.push('.');
        let mut value = fraction;
        for _ in digits..9 {
            value /= 10;
        }
        pad(value as u64, digits as usize, out);
    }
    out.push('Z');
}

fn pad(value: u64, digits: usize, out: &mut String) {
    let mut buffer = [b'0'; 20];
    let (mut at, mut rest) = (20, value);
    while rest > 0 || 20 - at < digits {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push_str(std::str::from_utf8(&buffer[at..]).unwrap_or_default());
}

/// Year, month, day of days since 1970 (proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as u64, day as u64)
}

/// Days since 1970 of a date.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Reads `yyyy-mm-ddThh:mm:ss[.f…]Z` with 0, 3, 6 or 9 digits: nanoseconds and number of digits. Only what
/// [`write_time`] writes again.
pub(crate) fn read_time(text: &str) -> Option<(i64, u8)> {
    let b = text.as_bytes();
    if b.len() < 20 || b[4] != b'-' || b[7] != b'-' || b[10] != b'T' || b[13] != b':' || b[16] != b':' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = &b[range];
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0i64, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let (fraction, digits) = match b.len() {
        20 => (0, 0),
        n @ (24 | 27 | 30) if b[19] == b'.' => {
            let digits = n - 21;
            (number(20..n - 1)? * 10i64.pow(9 - digits as u32), digits as u8)
        }
        _ => return None,
    };
    if b[b.len() - 1] != b'Z' || hour > 23 || minute > 59 || second > 59 || !(1..=12).contains(&month) {
        return None;
    }
    let days = days_of(year, month, day);
    if civil(days) != (year, month as u64, day as u64) {
        return None;
    }
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    // The earliest time is not at a whole second.
    let nanos = i64::try_from(i128::from(seconds) * 1_000_000_000 + i128::from(fraction)).ok()?;
    Some((nanos, digits))
}

/// Reads a time that is written without zeros at the end.
pub(crate) fn read_time_short(text: &str) -> Option<i64> {
    let digits = text.len().checked_sub(21).filter(|d| (1..=9).contains(d));
    let Some(digits) = digits else { return read_time(text).map(|(nanos, _)| nanos) };
    let padded = format!("{}{}Z", text.strip_suffix('Z')?, "0".repeat(9 - digits));
    let (nanos, _) = read_time(&padded)?;
    let mut back = String::with_capacity(30);
    write_time(nanos, None, &mut back);
    (back == text).then_some(nanos)
}

/// Writes an address.
pub(crate) fn write_ipv4(address: u32, out: &mut String) {
    for (i, byte) in address.to_be_bytes().into_iter().enumerate() {
        if i > 0 {
            out.push('.');
        }
        if byte >= 100 {
            out.push(char::from(b'0' + byte / 100));
        }
        if byte >= 10 {
            out.push(char::from(b'0' + byte / 10 % 10));
        }
        out.push(char::from(b'0' + byte % 10));
    }
}

/// Reads an address without leading zeros.
pub(crate) fn read_ipv4(text: &str) -> Option<u32> {
    if !(7..=15).contains(&text.len()) {
        return None;
    }
    let (mut address, mut parts) = (0u32, 0);
    for part in text.split('.') {
        let b = part.as_bytes();
        if b.is_empty() || b.len() > 3 || (b.len() > 1 && b[0] == b'0') || !b.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let value = b.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'));
        if value > 255 || parts == 4 {
            return None;
        }
        address = address << 8 | value;
        parts += 1;
    }
    (parts == 4).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |nanos: i64, digits: u8, text: &str| {
            assert_eq!(read_time(text), Some((nanos, digits)), "{text}");
            let mut out = String::new();
            write_time(nanos, Some(digits), &mut out);
            assert_eq!(out, text);
        };
        check(0, 0, "1970-01-01T00:00:00Z");
        check(-1, 9, "1969-12-31T23:59:59.999999999Z");
        check(1_741_600_001_500_000_000, 3, "2025-03-10T09:46:41.500Z");
        check(951_782_400_000_000_000, 6, "2000-02-29T00:00:00.000000Z");
        check(i64::MAX, 9, "2262-04-11T23:47:16.854775807Z");
        check(i64::MIN, 9, "1677-09-21T00:12:43.145224192Z");
        for bad in
            ["2025-02-30T00:00:00Z", "2025-03-10T09:46:41.5Z", "2025-03-10T24:00:00Z", "2025-03-10T09:46:41z", ""]
        {
            assert_eq!(read_time(bad), None, "{bad}");
        }
        let short = "2025-03-10T09:46:41.5Z";
        let mut out = String::new();
        write_time(1_741_600_001_500_000_000, None, &mut out);
        assert_eq!((&*out, read_time_short(short)), (short, Some(1_741_600_001_500_000_000)));
        assert_eq!(read_time_short("2025-03-10T09:46:41.50Z"), None);
        assert_eq!(read_time_short("2025-03-10T09:46:41Z"), Some(1_741_600_001_000_000_000));
    }

    #[test]
    fn numbers_addresses_and_digits() {
        let mut buffer = String::new();
        for good in ["0", "-1", "12", "9223372036854775807", "-9223372036854775808"] {
            let mut out = String::new();
            write_int(read_int(good).expect(good), &mut out);
            assert_eq!(out, good);
        }
        for bad in ["", "-", "00", "-0", "01", "1.0", "+1", "9223372036854775808", "1e3", " 1"] {
            assert_eq!(read_int(bad), None, "{bad}");
        }
        for good in ["0.5", "-0.25", "123.456", "1", "-0"] {
            assert_eq!(read_float(good, &mut buffer).map(|f| f.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "2.50", ".5", "5.", "1e3", "NaN", "inf", "1-2", "0.1000000000000000055511151231257827"] {
            assert_eq!(read_float(bad, &mut buffer), None, "{bad}");
        }
        for good in ["0.0.0.0", "255.255.255.255", "10.20.30.4", "9.99.100.105"] {
            let mut out = String::new();
            write_ipv4(read_ipv4(good).expect(good), &mut out);
            assert_eq!(out, good);
        }
        for bad in ["1.2.3", "1.2.3.4.5", "01.2.3.4", "256.1.1.1", "1..2.3", "1.2.3.4 "] {
            assert_eq!(read_ipv4(bad), None, "{bad}");
        }
        let mut bytes = Vec::new();
        assert!(read_hex("00ff1a", &mut bytes) && bytes == [0, 255, 26]);
        assert!(!read_hex("0", &mut bytes) && !read_hex("0F", &mut bytes) && bytes.len() == 3);
    }
}
