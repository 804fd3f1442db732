//! How results are written: numbers as their shortest decimal text without an exponent, texts in JSON.

use std::fmt::Write;

/// Writes a number: shortest digits that read back, no exponent, `NaN`, `+Inf`, `-Inf`.
pub fn push_f64(out: &mut String, value: f64) {
    // Writing to a text cannot fail.
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value == value.trunc() && value.abs() < 9e15 && (value != 0.0 || value.is_sign_positive()) {
        let _ = write!(out, "{}", value as i64);
    } else {
        let _ = write!(out, "{value}");
    }
}

/// Gives the text of [`push_f64`].
pub fn float_text(value: f64) -> String {
    let mut out = String::new();
    push_f64(&mut out, value);
    out
}

/// Writes a text as JSON with quotes. As in the reference `<` and `'` are escaped, so that the answer can stand in a
/// page.
pub fn push_json_string(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut left = text;
    while let Some(at) = first_escaped(left.as_bytes()) {
        let (plain, rest) = left.split_at(at);
        let (escaped, rest) = rest.split_at(1);
        out.push_str(plain);
        match escaped.as_bytes()[0] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            b'<' => out.push_str("\\u003c"),
            b'\'' => out.push_str("\\u0027"),
            // Writing to a text cannot fail.
            other => _ = write!(out, "\\u{other:04x}"),
        }
        left = rest;
    }
    out.push_str(left);
    out.push('"');
}

/// Bytes that are looked at together: most texts have nothing to escape.
const BYTES_AT_ONCE: usize = 16;

/// The place of the first byte that JSON does not take as it is.
fn first_escaped(bytes: &[u8]) -> Option<usize> {
    // As numbers, which are compared many at once.
    let escaped = |b: u8| {
        let signs = u8::from(b == b'"') | u8::from(b == b'\\') | u8::from(b == b'<') | u8::from(b == b'\'');
        signs | u8::from(b < 0x20)
    };
    let has_none = |chunk: &&[u8; BYTES_AT_ONCE]| chunk.iter().fold(0, |any, &b| any | escaped(b)) == 0;
    let plain = bytes.as_chunks().0.iter().take_while(has_none).count() * BYTES_AT_ONCE;
    bytes[plain..].iter().position(|&b| escaped(b) > 0).map(|at| plain + at)
}
