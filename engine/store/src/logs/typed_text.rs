//! Converts typed values (times, addresses, hex digits) to and from text. Parsing accepts only text that formatting
//! restores exactly.

pub(crate) use quiver_types::logs::{read_float, read_int, write_float, write_int};
pub(crate) use quiver_types::time::rfc3339::write as write_time;
use quiver_types::time::rfc3339::{Rfc3339, Zone};
pub(crate) use quiver_types::{is_hex, push_hex, read_hex, write_hex};

/// Parses a time in the format of [`write_time`], if the number of its fractional digits is accepted.
fn as_written(text: &str, takes: impl Fn(usize) -> bool) -> Option<(i64, u8)> {
    let time = Rfc3339::read(text.as_bytes())?;
    let is_plain = time.separator == b'T' && time.point != Some(b',') && time.zone == Zone::Upper;
    if !is_plain || time.hour > 23 || time.second > 59 || !takes(time.digits) {
        return None;
    }
    Some((i64::try_from(time.unix_nanos()).ok()?, time.digits as u8))
}

/// Parses `yyyy-mm-ddThh:mm:ss[.f…]Z` with 0, 3, 6 or 9 fractional digits: returns nanoseconds and the number of
/// digits. Accepts only what [`write_time`] restores.
pub(crate) fn read_time(text: &str) -> Option<(i64, u8)> {
    as_written(text, |digits| matches!(digits, 0 | 3 | 6 | 9))
}

/// Parses a time without trailing zeros.
pub(crate) fn read_time_short(text: &str) -> Option<i64> {
    let is_short = |digits| digits == 0 || (digits <= 9 && !text.ends_with("0Z"));
    as_written(text, is_short).map(|(nanos, _)| nanos)
}

/// Writes an IPv4 address.
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

/// Parses an IPv4 address without leading zeros.
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
