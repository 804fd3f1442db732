//! Label sets as texts: the form of answers, by which lists of them are ordered.

/// Appends a text of JSON.
pub fn json_text(out: &mut String, text: &str) {
    use std::fmt::Write;
    out.push('"');
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain..i]);
        plain = i + 1;
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Gives a label set as a JSON object.
pub fn labels_json<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::with_capacity(128);
    push_labels(&mut out, labels);
    out
}

/// Appends a label set as a JSON object.
pub(super) fn push_labels<'a>(out: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push('{');
    for (i, (name, value)) in labels.enumerate() {
        if i > 0 {
            out.push(',');
        }
        json_text(out, name);
        out.push(':');
        json_text(out, value);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_json() {
        assert_eq!(labels_json([("a", "x\"y\n"), ("b", "\u{1}\\")].into_iter()), r#"{"a":"x\"y\n","b":"\u0001\\"}"#);
        assert_eq!(labels_json(std::iter::empty()), "{}");
    }
}
