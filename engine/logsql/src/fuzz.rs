//! Fuzz targets: they must terminate without a panic on any bytes.

use crate::kernels::filters::{PatternMatch, PatternPlace, Regexp};
use crate::kernels::values::{
    compare, numeric, parse_ipv6, parse_unix, push_duration, push_f64, push_rfc3339, push_sort_key,
};
use crate::row_functions::{self, Extract, Fields, Format, SyslogContext};
use quiver_types::logs::ValueMatcher;

/// The tokens of a query, without quotes.
///
/// # Errors
/// Invalid: a quote without its end, an escape that is none.
pub fn tokens(query: &str) -> crate::Result<Vec<String>> {
    let mut found: Vec<String> =
        crate::lexer::tokens(query)?.into_iter().map(|token| token.text.into_owned()).collect();
    // The last one marks the end.
    found.pop();
    Ok(found)
}

/// Reading, comparing and writing of values.
pub fn values(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let half = text.floor_char_boundary(text.len() / 2);
    let (a, b) = text.split_at(half);
    let order = compare(a, b);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    push_sort_key(&mut x, a);
    push_sort_key(&mut y, b);
    assert_eq!(x.cmp(&y), order, "keys order as values: {a:?} {b:?}");
    let mut out = String::new();
    push_f64(&mut out, numeric(&text).unwrap_or(0.0));
    let ns = parse_unix(&text).unwrap_or_else(|| parse_ipv6(&text).unwrap_or(0) as i64);
    push_rfc3339(&mut out, ns);
    push_duration(&mut out, ns);
}

/// Patterns, templates and expressions, applied to what is left of the bytes.
pub fn patterns(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (pattern, value) = text.split_once('\n').unwrap_or((&text, &text));
    let mut fields = Fields::default();
    if let Ok(extract) = Extract::new(pattern) {
        extract.apply(value, &mut fields);
    }
    let mut out = String::new();
    if let Ok(format) = Format::new(pattern) {
        format.apply(|_| value.into(), &mut out);
    }
    for place in [PatternPlace::Any, PatternPlace::Full, PatternPlace::Prefix, PatternPlace::Suffix] {
        let filter = PatternMatch::new(place, pattern);
        if filter.matches(value) {
            let hints = filter.hints();
            assert!(hints.substring.is_none_or(|s| value.contains(&s)), "a hint loses a match");
        }
    }
    if let Ok(filter) = Regexp::new(pattern)
        && filter.matches(value)
    {
        let hints = filter.hints();
        assert!(hints.substring.is_none_or(|s| value.contains(&s)), "a hint loses a match");
        assert!(hints.starts.is_none_or(|s| value.starts_with(&s)), "a hint loses a match");
    }
}

/// Everything that takes values apart.
pub fn unpackers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut fields = Fields::default();
    row_functions::unpack_json(&text, &[], &mut fields);
    row_functions::unpack_logfmt(&text, &mut fields);
    row_functions::unpack_syslog(&text, SyslogContext { now_ns: 1_700_000_000_000_000_000, zone_ns: 0 }, &mut fields);
    row_functions::unroll(&[&text]);
    let mut out = String::new();
    row_functions::collapse_nums(&text, true, &mut out);
    row_functions::decolorize(&text, &mut out);
    row_functions::unpack_words(&text, true, &mut out);
    row_functions::split(&text, " ", &mut out);
    row_functions::json_array_concat(&text, ",", &mut out);
    let mut json = String::new();
    row_functions::pack_json(fields.iter(), &mut json);
    let mut again = Fields::default();
    assert!(row_functions::unpack_json(&json, &[], &mut again), "what is packed can be unpacked: {json:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn targets_hold(data in prop::collection::vec(any::<u8>(), 0..60), text in "[-0-9a-f:.TZ \"\\\\<>\\[\\]{}=,|*+\n]{0,40}") {
            for data in [data.as_slice(), text.as_bytes()] {
                values(data);
                patterns(data);
                unpackers(data);
            }
        }
    }
}
