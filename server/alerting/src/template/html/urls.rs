//! Parts of a URL, and the escaping of values in them.

use std::fmt::Write as _;

/// What is written instead of a value that its context does not allow.
pub(super) const REFUSED: &str = "ZgotmplZ";

/// The part of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum UrlPart {
    #[default]
    Start,
    Path,
    Query,
}

impl UrlPart {
    /// Advances over a character.
    pub(super) fn next(self, c: char) -> Self {
        match (self, c) {
            (_, '?' | '#') => Self::Query,
            (Self::Start, c) if c.is_ascii_whitespace() => Self::Start,
            (Self::Start, _) => Self::Path,
            (part, _) => part,
        }
    }

    /// Escapes a value for this part; `safe`: it is marked as a URL that needs no escaping.
    pub(super) fn written(self, shown: &str, safe: bool) -> String {
        match self {
            Self::Query if !safe => percent(shown, Separators::Escaped),
            Self::Start if !safe && !has_safe_scheme(shown) => format!("#{REFUSED}"),
            _ => percent(shown, Separators::Kept),
        }
    }
}

/// Whether a URL is relative, or has a scheme that cannot run code.
pub(super) fn has_safe_scheme(url: &str) -> bool {
    match url.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => {
            ["http", "https", "mailto"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
        }
        _ => true,
    }
}

/// What becomes of characters that separate parts of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separators {
    Kept,
    Escaped,
}

/// Percent-encodes a text.
fn percent(text: &str, separators: Separators) -> String {
    let keep = separators == Separators::Kept;
    let mut out = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        let plain = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
            b'!' | b'#' | b'$' | b'&' | b'*' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' => {
                keep
            }
            b'%' => keep && bytes.get(i + 1..i + 3).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)),
            _ => false,
        };
        if plain {
            out.push(*byte as char);
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::value::Value;
    use super::super::tests::check;

    #[test]
    fn addresses() {
        let check = |template: &str, value: &str, expected: &str| check(template, Value::text(value), expected);
        check("<A HREF='{{.}}'>", "JavaScript:x", "<A HREF='#ZgotmplZ'>");
        check("<a href='{{.}}'>", "/a:b", "<a href='/a:b'>");
        check("<a href=' {{.}}'>", "javascript:x", "<a href=' #ZgotmplZ'>");
        check("<a href='x{{.}}'>", "javascript:x", "<a href='xjavascript:x'>");
        check("<a href='{{.}}?{{.}}#{{.}}'>", "a/b", "<a href='a/b?a%2fb#a%2fb'>");
        check("<a href='{{.}}'>", "mailto:a@b", "<a href='mailto:a@b'>");
        check("<a href='{{.}}'>", "%41%zz", "<a href='%41%25zz'>");
        check("<img data-src='{{.}}'>", "data:x", "<img data-src='#ZgotmplZ'>");
        check("<html xmlns:a='{{.}}'>", "data:x", "<html xmlns:a='#ZgotmplZ'>");
        check("<a xlink:href='{{.}}'>", "a b", "<a xlink:href='a%20b'>");
    }

    /// Which part of a URL a value is in is told by the text before it, and not by other values.
    #[test]
    fn values_behind_values() {
        let check = |template: &str, value: &str, expected: &str| check(template, Value::text(value), expected);
        check("<a href='{{.}}&x={{.}}'>", "/g?a=b c/d", "<a href='/g?a=b%20c/d&x=/g?a=b%20c/d'>");
        check("<a href='{{.}}?x={{.}}'>", "a/b", "<a href='a/b?x=a%2fb'>");
        check("<a href='{{.}}{{.}}'>", "data:x", "<a href='#ZgotmplZ#ZgotmplZ'>");
    }
}
