//! The Prometheus envelope and its numbers (`metrics-api` section 1).
//!
//! Numbers are written directly to the response's bytes in the shortest decimal form, without an exponent between
//! 1e-6 and 1e21, as Go's `strconv.FormatFloat(v, 'f' or 'e', -1, 64)` in Prometheus' `MarshalFloat`.

use std::ops::Range;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header;
use quiver_query::QueryContext;
use quiver_types::text::{EXACT_INTEGERS_MAX, push_json_text};
use quiver_types::{Error, ErrorKind, Histogram};

use crate::encode::json::json_body;
use crate::error::{log, public_text, status_of, with_retry_after};

/// The members besides `data`.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    /// Reasons why the result may be wrong or incomplete (`warnings`).
    pub(crate) warnings: Vec<String>,
    /// Hints that the query may not mean what its author thinks; the result is right (`infos`).
    pub(crate) infos: Vec<String>,
}

impl Envelope {
    /// Lists the damaged files that the result lacks.
    pub(crate) fn lacking(ctx: &QueryContext) -> Self {
        Self { warnings: ctx.stats.left_out.texts(), ..Self::default() }
    }
}

/// Most texts of each kind; one more tells how many others there are.
const ANNOTATIONS_MAX: usize = 10;

/// Makes a success response with encoded `data`.
pub(crate) fn success(envelope: &Envelope, data: &[u8]) -> Response {
    let mut out = Vec::with_capacity(data.len() + 64);
    out.extend_from_slice(br#"{"status":"success","data":"#);
    out.extend_from_slice(data);
    finish_success(out, envelope)
}

/// Begins a success response; the caller appends `data`, then [`finish_success`] closes it.
pub(crate) fn begin_success() -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(br#"{"status":"success","data":"#);
    out
}

/// Closes a success answer.
pub(crate) fn finish_success(mut out: Vec<u8>, envelope: &Envelope) -> Response {
    close_success(&mut out, envelope);
    json_body(Body::from(out))
}

/// Appends the members after `data`.
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
            push_json_text(text, &mut part);
        }
        if texts.len() > ANNOTATIONS_MAX {
            part.push(',');
            let more = texts.len() - ANNOTATIONS_MAX;
            push_json_text(&format!("{more} more {kind} annotations omitted"), &mut part);
        }
        part.push(']');
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'}');
}

/// The `errorType` of an error.
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

/// Makes an error response, and logs the error.
pub(crate) fn error_response(error: &Error, route: &str) -> Response {
    log(error, route);
    let mut out = format!("{{\"status\":\"error\",\"errorType\":\"{}\",\"error\":", error_type(error.kind));
    push_json_text(public_text(error), &mut out);
    if error.kind == ErrorKind::Forbidden {
        out.push_str(",\"code\":\"FORBIDDEN\"");
    }
    out.push('}');
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    with_retry_after((status_of(error.kind), content_type, Body::from(out)).into_response())
}

/// Appends a time in milliseconds as seconds, without trailing zeros.
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

/// The notation of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// Samples: with an exponent below 1e-6 and from 1e21.
    Sample,
    /// Scalars: never an exponent.
    Plain,
    /// Exposition text, as Go's format `g`: with an exponent below 1e-4 and from 1e6.
    General,
}

/// The range that `zmij` writes without an exponent. Non-integers in it are written the same in all notations.
const WRITTEN_OUT: Range<f64> = 1e-5..WHOLE_MAX;
/// All integers below this are exact doubles.
const WHOLE_MAX: f64 = EXACT_INTEGERS_MAX as f64;

/// Appends a number without quotes.
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
    // Not with `fract`, which is a library call.
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

/// Splits a shortest decimal form into digits, without leading and trailing zeros, and the position of the point.
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

/// Appends a histogram with its buckets in ascending order: kind of bounds, lower, upper, count.
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
                // Equal in length to Rust's own form, which rounds differently if two candidates are as short and as
                // near.
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
        push_json_text("a\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
    }

    /// The members after `data`.
    fn closed(warnings: &[String], infos: &[String]) -> serde_json::Value {
        let envelope = Envelope { warnings: warnings.to_vec(), infos: infos.to_vec() };
        let mut out = b"{\"data\":1".to_vec();
        close_success(&mut out, &envelope);
        serde_json::from_slice(&out).expect("JSON")
    }

    fn texts_of(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("t{n}")).collect()
    }

    #[test]
    fn annotations_stand_after_the_data() {
        assert_eq!(closed(&[], &[]), serde_json::json!({"data": 1}));
        let quoted = ["a \"b\"\n".to_owned()];
        assert_eq!(closed(&quoted, &[]), serde_json::json!({"data": 1, "warnings": ["a \"b\"\n"]}));
        assert_eq!(closed(&[], &quoted), serde_json::json!({"data": 1, "infos": ["a \"b\"\n"]}));
        let both = closed(&texts_of(1), &texts_of(2));
        assert_eq!(both, serde_json::json!({"data": 1, "warnings": ["t0"], "infos": ["t0", "t1"]}));
    }

    #[test]
    fn many_annotations_are_counted() {
        for (count, more) in [(9, None), (10, None), (11, Some(1)), (1000, Some(990))] {
            let texts = texts_of(count);
            let found = closed(&texts, &texts);
            for (name, kind) in [("warnings", "warning"), ("infos", "info")] {
                let list = found[name].as_array().expect("a list");
                assert_eq!(list.len(), count.min(ANNOTATIONS_MAX) + usize::from(more.is_some()), "{count} {name}");
                assert_eq!(list[0], "t0", "the first of them are told");
                if let Some(more) = more {
                    let text = format!("{more} more {kind} annotations omitted");
                    assert_eq!(list.last().and_then(|text| text.as_str()), Some(text.as_str()));
                }
            }
        }
    }

    async fn body_of(response: Response) -> serde_json::Value {
        use http_body_util::BodyExt as _;

        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        serde_json::from_slice(&bytes).expect("JSON")
    }

    #[tokio::test]
    async fn errors_have_the_types_of_prometheus() {
        for (kind, status, error_type) in [
            (ErrorKind::Invalid, 400, "bad_data"),
            (ErrorKind::Conflict, 409, "bad_data"),
            (ErrorKind::TooLarge, 413, "bad_data"),
            (ErrorKind::Execution, 422, "execution"),
            (ErrorKind::LimitExceeded, 422, "execution"),
            (ErrorKind::Cancelled, 422, "canceled"),
            (ErrorKind::NotFound, 404, "not_found"),
            (ErrorKind::Timeout, 503, "timeout"),
            (ErrorKind::SenderTimeout, 408, "timeout"),
            (ErrorKind::Unavailable, 503, "unavailable"),
            (ErrorKind::Damaged, 500, "internal"),
            (ErrorKind::Internal, 500, "internal"),
            (ErrorKind::Unsupported, 415, "not_acceptable"),
            (ErrorKind::Unauthenticated, 401, "unauthorized"),
            (ErrorKind::Forbidden, 403, "forbidden"),
        ] {
            let response = error_response(&Error::new(kind, "what \"is\" said"), "/x");
            let (found, later) = (response.status().as_u16(), response.headers().contains_key(header::RETRY_AFTER));
            assert_eq!((found, later), (status, status == 503), "{kind:?}");
            let body = body_of(response).await;
            assert_eq!(body["status"], "error", "{kind:?}");
            assert_eq!(body["errorType"], error_type, "{kind:?}");
            assert_eq!(body["error"], "what \"is\" said", "{kind:?}");
            assert_eq!(body.get("data"), None, "{kind:?}");
            assert_eq!(body.get("code").is_some(), kind == ErrorKind::Forbidden, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn answers_stand_around_their_data() {
        let envelope = Envelope::default();
        let whole = body_of(success(&envelope, b"[1,2]")).await;
        assert_eq!(whole, serde_json::json!({"status": "success", "data": [1, 2]}));
        let mut begun = begin_success();
        begun.extend_from_slice(b"{}");
        let warned = Envelope { warnings: texts_of(1), ..Envelope::default() };
        let whole = body_of(finish_success(begun, &warned)).await;
        assert_eq!(whole, serde_json::json!({"status": "success", "data": {}, "warnings": ["t0"]}));
    }

    #[test]
    fn histograms_show_the_buckets_that_hold_something() {
        let check = |buckets: &[(u8, f64, f64, f64)], expected: &str| {
            let h = Histogram { count: 12.0, sum: -0.5, ..Histogram::default() };
            let mut out = Vec::new();
            write_histogram(&mut out, &h, buckets);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{buckets:?}");
        };
        check(&[], r#"{"count":"12","sum":"-0.5"}"#);
        check(&[(0, 0.5, 1.0, 0.0)], r#"{"count":"12","sum":"-0.5"}"#);
        let one = r#"{"count":"12","sum":"-0.5","buckets":[[0,"0.5","1","12"]]}"#;
        check(&[(0, 0.5, 1.0, 12.0)], one);
        check(&[(3, -1.0, 1.0, 0.0), (0, 0.5, 1.0, 12.0), (0, 1.0, 2.0, 0.0)], one);
        let two = r#"{"count":"12","sum":"-0.5","buckets":[[1,"-2","-1","1e-07"],[3,"-Inf","+Inf","NaN"]]}"#;
        check(&[(1, -2.0, -1.0, 1e-7), (3, f64::NEG_INFINITY, f64::INFINITY, f64::NAN)], two);
    }

    #[test]
    fn times_before_the_epoch_and_at_the_ends() {
        let check = |ms: i64, expected: &str| {
            let mut out = Vec::new();
            write_time(&mut out, ms);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(-1_500, "-1.5");
        check(-1_000, "-1");
        check(999, "0.999");
        check(990, "0.99");
        check(900, "0.9");
        check(9, "0.009");
        check(10, "0.01");
        check(i64::MAX, "9223372036854775.807");
        check(i64::MIN, "-9223372036854775.808");
    }
}
