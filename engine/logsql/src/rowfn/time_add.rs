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
}
