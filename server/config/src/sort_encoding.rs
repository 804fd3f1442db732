//! Encodes values as texts that sort as the API sorts the values: the content of the index of `value_index`.

use std::iter::once;

use serde_json::Value;

/// Characters that are kept of a value: PostgreSQL's rows of indexes have 2,700 bytes.
pub(crate) const CHARS_MAX: usize = 500;

/// A value as a text that orders as the API orders values, of so many characters.
pub(crate) fn encoded_to(value: &Value, chars: usize) -> String {
    match value {
        Value::Null => "0".to_owned(),
        Value::Bool(on) => format!("1{}", u8::from(*on)),
        Value::Number(number) => {
            let bits = number.as_f64().unwrap_or(0.0).to_bits();
            // As IEEE 754 orders them: negative ones the other way round, and before the others.
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            format!("2{ordered:016x}")
        }
        Value::String(text) => once('3').chain(text.chars().take(chars)).collect(),
        Value::Array(_) | Value::Object(_) => "4".to_owned(),
    }
}

/// The same of a field.
pub(crate) fn encoded(value: &Value) -> String {
    encoded_to(value, CHARS_MAX)
}

/// The least text behind all that begin with one.
pub(crate) fn behind(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            text.push(next);
            return text;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::order;

    #[test]
    fn texts_order_as_values_do() {
        let values = json!([
            null,
            false,
            true,
            -1e300,
            -2,
            -1.5,
            -0.0,
            0,
            1,
            1.5,
            9,
            10,
            9_007_199_254_740_992_i64,
            "",
            " ",
            "10",
            "9",
            "a",
            "a b",
            "ab",
            "é",
            "\u{d7ff}",
            "\u{e000}",
            "\u{fffd}",
            "\u{1f600}",
        ]);
        let values = values.as_array().expect("a list");
        for (a, b) in values.iter().flat_map(|a| values.iter().map(move |b| (a, b))) {
            assert_eq!(encoded(a).cmp(&encoded(b)), order(a, b), "{a} {b}");
        }
        assert_eq!(encoded(&json!(5)), encoded(&json!(5.0)));
        for (prefix, least) in [("3", "4"), ("3a", "3b"), ("3\u{d7ff}", "3\u{e000}"), ("3a\u{10ffff}", "3b")] {
            assert_eq!(behind(prefix), least, "{prefix:?}");
        }
    }
}
