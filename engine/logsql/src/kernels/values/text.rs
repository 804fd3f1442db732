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
    out.push('"');
    let mut from = 0;
    for (i, b) in text.bytes().enumerate() {
        let escape = match b {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            8 => "\\b",
            12 => "\\f",
            b'<' => "\\u003c",
            b'\'' => "\\u0027",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[from..i]);
        from = i + 1;
        if escape.is_empty() {
            let _ = write!(out, "\\u{b:04x}");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[from..]);
    out.push('"');
}
