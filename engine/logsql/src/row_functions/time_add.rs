//! `time_add d [at f]`.

use crate::kernels::values::{parse_rfc3339, push_rfc3339};

/// Writes an RFC 3339 time moved by nanoseconds; what is no time stays as it is.
pub fn time_add(value: &str, shift_ns: i64, out: &mut String) {
    match parse_rfc3339(value).and_then(|ns| ns.checked_add(shift_ns)) {
        Some(ns) => push_rfc3339(out, ns),
        None => out.push_str(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |value: &str, want: &str| {
            let mut out = String::new();
            time_add(value, 3_600_000_000_000, &mut out);
            assert_eq!(out, want);
        };
        check("2025-03-10T00:35:32.123Z", "2025-03-10T01:35:32.123Z");
        check("foo", "foo");
        check("", "");
    }

    #[test]
    fn times_at_their_ends() {
        const HOUR: i64 = 3_600_000_000_000;
        let check = |value: &str, shift_ns: i64, want: &str| {
            let mut out = String::new();
            time_add(value, shift_ns, &mut out);
            assert_eq!(out, want, "{value} by {shift_ns}");
        };
        check("2025-03-10T00:35:32+02:00", HOUR, "2025-03-09T23:35:32Z");
        check("2024-02-28T23:30:00Z", HOUR, "2024-02-29T00:30:00Z");
        check("2024-12-31 23:00:00", HOUR, "2025-01-01T00:00:00Z");
        check("1970-01-01T00:00:00Z", -1, "1969-12-31T23:59:59.999999999Z");
        // What no longer fits stays as it is, and what is no time.
        check("2262-04-11T23:00:00Z", HOUR, "2262-04-11T23:00:00Z");
        check("1677-09-21T01:00:00Z", -HOUR, "1677-09-21T01:00:00Z");
        check("2024-02-30T00:00:00Z", HOUR, "2024-02-30T00:00:00Z");
        check("1741600001", HOUR, "1741600001");
    }
}
