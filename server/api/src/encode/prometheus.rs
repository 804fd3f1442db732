//! The Prometheus envelope and its numbers (`metrics-api` section 1).
//!
//! Numbers are written straight into the answer's bytes: shortest decimal form, plain notation between 1e-6 and 1e21,
//! as Go's `strconv.FormatFloat(v, 'f' or 'e', -1, 64)` in Prometheus' `MarshalFloat`.

use std::ops::Range;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header;
use quiver_query::QueryContext;
pub(crate) use quiver_query::index::json_text;
use quiver_types::{Error, ErrorKind, Histogram};

use crate::error::{log, public_text, status_of, with_retry_after};

/// What stands around `data`.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// Warnings.
    pub(crate) warnings: Vec<String>,
    /// Infos.
    pub(crate) infos: Vec<String>,
}

impl Envelope {
    /// Names the files that a query went on without.
    pub(crate) fn lacking(ctx: &QueryContext) -> Self {
        Self { warnings: ctx.stats.left_out.texts(), ..Self::default() }
    }
}

/// Most texts of a kind; one more says how many there are besides.
const ANNOTATIONS_MAX: usize = 10;

/// Makes a success answer around encoded `data`.
pub(crate) fn success(envelope: &Envelope, data: &[u8]) -> Response {
    let mut out = Vec::with_capacity(data.len() + 64);
    out.extend_from_slice(br#"{"status":"success","data":"#);
    out.extend_from_slice(data);
    finish_success(out, envelope)
}

/// Begins a success answer; `data` is appended by the caller, then [`finish_success`] closes it.
pub(crate) fn begin_success() -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(br#"{"status":"success","data":"#);
    out
}

/// Closes a success answer.
pub(crate) fn finish_success(mut out: Vec<u8>, envelope: &Envelope) -> Response {
    close_success(&mut out, envelope);
    json_response(Body::from(out))
}

/// Makes a success answer of its body.
pub(crate) fn json_response(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Appends what stands after `data`.
pub(crate) fn close_success(out: &mut Vec<u8>, envelope: &Envelope) {
    for (name, kind, texts) in [("warnings", "warning", &envelope.warnings), ("infos", "info", &envelope.infos)] {
        if texts.is_empty() {
            continue;
        }
        let mut part = format!(",\"{name}\":[");
        for (i, text) in texts.iter().take(ANNOTATIONS_MAX).enumerate() {
            if i > 0 {
                part.push(',');
            }
            json_text(&mut part, text);
        }
        if texts.len() > ANNOTATIONS_MAX {
            part.push(',');
            let more = texts.len() - ANNOTATIONS_MAX;
            json_text(&mut part, &format!("{more} more {kind} annotations omitted"));
        }
        part.push(']');
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'}');
}

/// Gives the `errorType` of a kind.
fn error_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Execution | ErrorKind::LimitExceeded => "execution",
        ErrorKind::NotFound => "not_found",
        ErrorKind::Timeout | ErrorKind::SenderTimeout => "timeout",
        ErrorKind::Cancelled => "canceled",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Damaged | ErrorKind::Internal => "internal",
        ErrorKind::Unsupported => "not_acceptable",
        ErrorKind::Unauthenticated => "unauthorized",
        ErrorKind::Forbidden => "forbidden",
        ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::TooLarge => "bad_data",
    }
}

/// Makes an error answer, and logs it.
pub(crate) fn error_response(error: &Error, route: &str) -> Response {
    log(error, route);
    let mut out = format!("{{\"status\":\"error\",\"errorType\":\"{}\",\"error\":", error_type(error.kind));
    json_text(&mut out, public_text(error));
    if error.kind == ErrorKind::Forbidden {
        out.push_str(",\"code\":\"FORBIDDEN\"");
    }
    out.push('}');
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    with_retry_after((status_of(error.kind), content_type, Body::from(out)).into_response())
}

/// Appends a time in milliseconds as seconds without trailing zeros.
pub(crate) fn write_time(out: &mut Vec<u8>, ms: i64) {
    if ms < 0 {
        out.push(b'-');
    }
    let ms = ms.unsigned_abs();
    write_integer(out, ms / 1000);
    let fraction = (ms % 1000) as u16;
    if fraction > 0 {
        let digits = [b'0' + (fraction / 100) as u8, b'0' + (fraction / 10 % 10) as u8, b'0' + (fraction % 10) as u8];
        let len = 3 - digits.iter().rev().take_while(|d| **d == b'0').count();
        out.push(b'.');
        out.extend_from_slice(&digits[..len]);
    }
}

fn write_integer(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// Samples: an exponent below 1e-6 and from 1e21.
    Sample,
    /// Scalars: never an exponent.
    Plain,
    /// Exposition text, as Go's format `g` has it: an exponent below 1e-4 and from 1e6.
    General,
}

/// Numbers that `zmij` writes without an exponent. Those of them that are not whole it writes as all notations do.
const WRITTEN_OUT: Range<f64> = 1e-5..WHOLE_MAX;
/// Each whole number below this is a double.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Appends a number, without quotes.
pub(crate) fn write_value(out: &mut Vec<u8>, v: f64, notation: Notation) {
    if v.is_nan() {
        return out.extend_from_slice(b"NaN");
    }
    if v.is_infinite() {
        return out.extend_from_slice(if v > 0.0 { b"+Inf" } else { b"-Inf" });
    }
    if v.is_sign_negative() {
        out.push(b'-');
    }
    let v = v.abs();
    let whole_max = if notation == Notation::General { 1e6 } else { WHOLE_MAX };
    // Not by `fract`, which is a call into a library.
    let whole = v as u64;
    if v < whole_max && whole as f64 == v {
        return write_integer(out, whole);
    }
    let exponent = match notation {
        Notation::Sample => !(1e-6..1e21).contains(&v),
        Notation::Plain => false,
        Notation::General => !(1e-4..1e6).contains(&v),
    };
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(v);
    if !exponent && WRITTEN_OUT.contains(&v) {
        return out.extend_from_slice(text.as_bytes());
    }
    let (digits, point) = decimal(text);
    let digits = &digits.0[..digits.1];
    if exponent {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        let exponent = point - 1;
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.unsigned_abs() < 10 {
            out.push(b'0');
        }
        return write_integer(out, u64::from(exponent.unsigned_abs()));
    }
    if point <= 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + point.unsigned_abs() as usize, b'0');
        out.extend_from_slice(digits);
    } else if point as usize >= digits.len() {
        out.extend_from_slice(digits);
        out.resize(out.len() + point as usize - digits.len(), b'0');
    } else {
        let (whole, fraction) = digits.split_at(point as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

/// Splits a shortest decimal form into digits without leading and trailing zeros, and the place of the point.
fn decimal(text: &str) -> (([u8; 32], usize), i32) {
    let mut digits = [0u8; 32];
    let (mut len, mut point, mut in_fraction) = (0, 0_i32, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'.' => in_fraction = true,
            b'e' | b'E' => {
                point += text[at + 1..].parse::<i32>().unwrap_or(0);
                break;
            }
            _ => {
                point += i32::from(!in_fraction);
                if len == 0 && byte == b'0' {
                    point -= 1;
                } else if len < digits.len() {
                    digits[len] = byte;
                    len += 1;
                }
            }
        }
    }
    while len > 1 && digits[len - 1] == b'0' {
        len -= 1;
    }
    ((digits, len.max(1)), point)
}

/// Appends a number in quotes.
pub(crate) fn write_quoted(out: &mut Vec<u8>, v: f64, notation: Notation) {
    out.push(b'"');
    write_value(out, v, notation);
    out.push(b'"');
}

/// Appends a histogram from its buckets in ascending order: (kind of bounds, lower, upper, count).
pub(crate) fn write_histogram(out: &mut Vec<u8>, h: &Histogram, buckets: &[(u8, f64, f64, f64)]) {
    out.extend_from_slice(br#"{"count":"#);
    write_quoted(out, h.count, Notation::Sample);
    out.extend_from_slice(br#","sum":"#);
    write_quoted(out, h.sum, Notation::Sample);
    for (i, (bounds, lower, upper, count)) in buckets.iter().filter(|b| b.3 != 0.0).enumerate() {
        out.extend_from_slice(if i == 0 { br#","buckets":[["#.as_slice() } else { b",[" });
        write_integer(out, u64::from(*bounds));
        for v in [lower, upper, count] {
            out.push(b',');
            write_quoted(out, *v, Notation::Sample);
        }
        out.push(b']');
    }
    if buckets.iter().any(|b| b.3 != 0.0) {
        out.push(b']');
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |v: f64, sample: &str, plain: &str| {
            for (notation, expected) in [(Notation::Sample, sample), (Notation::Plain, plain)] {
                let mut out = Vec::new();
                write_value(&mut out, v, notation);
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{v:?}");
            }
        };
        check(0.0, "0", "0");
        check(-0.0, "-0", "-0");
        check(1.0, "1", "1");
        check(-1.5, "-1.5", "-1.5");
        check(0.1, "0.1", "0.1");
        check(1e-6, "0.000001", "0.000001");
        check(1e-7, "1e-07", "0.0000001");
        check(1.25e-10, "1.25e-10", "0.000000000125");
        check(1e20, "100000000000000000000", "100000000000000000000");
        check(1e21, "1e+21", "1000000000000000000000");
        check(1.5e300, "1.5e+300", &format!("15{}", "0".repeat(299)));
        check(123_456.789, "123456.789", "123456.789");
        check(9_007_199_254_740_993.0, "9007199254740992", "9007199254740992");
        check(f64::NAN, "NaN", "NaN");
        check(f64::NEG_INFINITY, "-Inf", "-Inf");
        check(f64::MIN_POSITIVE, "2.2250738585072014e-308", &format!("0.{}22250738585072014", "0".repeat(307)));
    }

    #[test]
    fn numbers_at_the_ends_of_what_is_written_out() {
        let ends = [1e-6, 1e-5, 1e-4, 1e5, 1e6, 4.5e15, WHOLE_MAX, 1e16, 1e17, 1e21];
        let near = ends.into_iter().flat_map(|end: f64| [end.next_down(), end, end.next_up()]);
        let some = (0..20_000_u64).map(|n| f64::from_bits(0x3e80_0000_0000_0000 + n * 21_617_278_211_379));
        for v in near.chain(some).flat_map(|v| [v, -v]) {
            for notation in [Notation::Sample, Notation::Plain, Notation::General] {
                let mut out = Vec::new();
                write_value(&mut out, v, notation);
                let text = String::from_utf8(out).unwrap();
                assert_eq!(text.parse::<f64>().unwrap().to_bits(), v.to_bits(), "{text}");
                let size = v.abs();
                let exponent = match notation {
                    Notation::Sample => !(1e-6..1e21).contains(&size),
                    Notation::Plain => false,
                    Notation::General => !(1e-4..1e6).contains(&size),
                };
                assert_eq!(text.contains('e'), exponent, "{text}");
                // As long as Rust's own form, which goes to the other side where two are as short and as near.
                assert!(exponent || text.len() == format!("{v}").len(), "{text}");
            }
        }
    }

    #[test]
    fn exposition_numbers() {
        let check = |v: f64, expected: &str| {
            let mut out = Vec::new();
            write_value(&mut out, v, Notation::General);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{v:?}");
        };
        check(0.0, "0");
        check(-123_456.5, "-123456.5");
        check(999_999.0, "999999");
        check(1_234_567.25, "1.23456725e+06");
        check(1e6, "1e+06");
        check(0.0001, "0.0001");
        check(0.000_099, "9.9e-05");
    }

    #[test]
    fn times() {
        let check = |ms: i64, expected: &str| {
            let mut out = Vec::new();
            write_time(&mut out, ms);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(1_435_781_451_781, "1435781451.781");
        check(1_435_781_451_000, "1435781451");
        check(-1, "-0.001");
        check(1_100, "1.1");
        check(1_010, "1.01");
        check(0, "0");
    }

    #[test]
    fn text() {
        let mut out = String::new();
        json_text(&mut out, "a\"\\\n\u{1}é");
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
