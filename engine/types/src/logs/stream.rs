//! Streams by their identifiers, and how their labels are written: `{app="nginx",host="h1"}`, values quoted as Go does.

use std::fmt::Write as _;

use crate::{LabelSet, SeriesId};

/// Identifier of a stream: the hash of its labels. 32 lower-case hex digits outside.
pub type StreamId = SeriesId;

/// Writes the labels of a stream.
pub fn stream_text(labels: &LabelSet) -> String {
    let mut out = String::from("{");
    for (i, (name, value)) in labels.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(name);
        out.push('=');
        quote_into(value, &mut out);
    }
    out.push('}');
    out
}

/// Writes a text in double quotes; what cannot be seen is escaped.
pub fn quote_into(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            ' '..='~' => out.push(c),
            _ if !c.is_ascii() && is_printable(c) => out.push(c),
            _ => {
                // Writing to a text cannot fail.
                let _ = match c as u32 {
                    code @ ..0x80 => write!(out, "\\x{code:02x}"),
                    code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
}

/// Letters, marks, numbers, punctuation and symbols.
fn is_printable(c: char) -> bool {
    static PRINTABLE: std::sync::LazyLock<regex::Regex> =
        std::sync::LazyLock::new(|| regex::Regex::new(r"^[\pL\pM\pN\pP\pS]$").expect("a fixed pattern"));
    c.is_alphanumeric() || PRINTABLE.is_match(c.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_in_quotes() {
        let check = |pairs: &[(&str, &str)], text: &str| {
            assert_eq!(stream_text(&LabelSet::from_pairs(pairs.iter().copied())), text);
        };
        check(&[], "{}");
        check(&[("host", "h1"), ("app", "nginx")], r#"{app="nginx",host="h1"}"#);
        check(&[("a", "x\"\\\n\u{7f}é\u{200b}")], r#"{a="x\"\\\n\x7fé\u200b"}"#);
    }
}
