//! Escaping as Go's `html`, `js` and `urlquery` do it.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::text::is_printable;

/// Escapes a text for HTML.
pub fn html_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

/// Undoes [`html_escape`]; no other entities are known.
pub(super) fn html_unescape(text: &str) -> String {
    let marks = [("&#34;", "\""), ("&#39;", "'"), ("&lt;", "<"), ("&gt;", ">")];
    let text = marks.iter().fold(text.to_owned(), |text, (mark, c)| text.replace(mark, c));
    // The last, as it stands in the others.
    text.replace("&amp;", "&")
}

/// Escapes a text for a string of JavaScript.
pub(super) fn js_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => {
                out.push('\\');
                out.push(c);
            }
            '<' | '>' | '&' | '=' => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c if c < ' ' || !c.is_ascii() && !is_printable(c) => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// What Go's `url.QueryEscape` escapes, besides blanks.
const OF_QUERIES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// Escapes a text for the query of a URL, as Go's `url.QueryEscape` does.
pub fn query_escape(text: &str) -> String {
    utf8_percent_encode(text, OF_QUERIES).to_string().replace(' ', "+")
}

/// What Go's `url.PathEscape` escapes.
const OF_PATHS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b':')
    .remove(b'=')
    .remove(b'@');

/// Escapes a text for a segment of a URL's path, as Go's `url.PathEscape` does.
pub(super) fn path_escape(text: &str) -> String {
    utf8_percent_encode(text, OF_PATHS).to_string()
}

/// Undoes [`query_escape`].
///
/// # Errors
/// A `%` without two hex digits behind it, or bytes that are no text.
pub(super) fn query_unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('%') {
        let digits = bytes.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let rest = String::from_utf8_lossy(&bytes[at..(at + 3).min(bytes.len())]);
            return Err(format!("invalid URL escape {}", crate::text::quote(&rest)));
        }
    }
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().map(String::from).map_err(|_| "not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped() {
        assert_eq!(html_escape("<a href=\"x\">'&"), "&lt;a href=&#34;x&#34;&gt;&#39;&amp;");
        for t in ["<a href=\"x\">'&amp;lt;", "&#34;"] {
            assert_eq!(html_unescape(&html_escape(t)), t);
        }
        assert_eq!(js_escape("'<é\n"), "\\'\\u003Cé\\u000A");
        assert_eq!(js_escape("a b\u{2028}\u{feff}"), "a b\\u2028\\uFEFF");
        assert_eq!(query_escape("a b&ü/~"), "a+b%26%C3%BC%2F~");
        assert_eq!(query_unescape("a+b%26%C3%BC").as_deref(), Ok("a b&ü"));
        assert!(query_unescape("%zz").is_err() && query_unescape("%e").is_err());
    }

    #[test]
    fn urls_and_back() {
        for (text, expected) in [
            ("", ""),
            ("abcXYZ019-_.~", "abcXYZ019-_.~"),
            ("a b", "a+b"),
            ("a+b", "a%2Bb"),
            ("a%b", "a%25b"),
            ("/?#&=:;,@$", "%2F%3F%23%26%3D%3A%3B%2C%40%24"),
            ("*()!'\"", "%2A%28%29%21%27%22"),
            ("é🙂", "%C3%A9%F0%9F%99%82"),
            ("\n\0", "%0A%00"),
        ] {
            assert_eq!(query_escape(text), expected, "{text}");
            assert_eq!(query_unescape(expected).as_deref(), Ok(text), "{expected}");
        }
        assert_eq!(query_unescape("%c3%A9%2f").as_deref(), Ok("é/"), "digits of either case");
        for (text, expected) in [
            ("%", "invalid URL escape \"%\""),
            ("a%4", "invalid URL escape \"%4\""),
            ("%4g!", "invalid URL escape \"%4g\""),
            ("%+1", "invalid URL escape \"%+1\""),
            ("%ff", "not UTF-8"),
        ] {
            assert_eq!(query_unescape(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn paths() {
        for (text, expected) in [
            ("a b/c", "a%20b%2Fc"),
            ("$&+:=@-_.~", "$&+:=@-_.~"),
            (";,?#%*'", "%3B%2C%3F%23%25%2A%27"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(path_escape(text), expected, "{text}");
        }
    }

    #[test]
    fn pages_and_scripts() {
        for (text, html, js) in [
            ("a b", "a b", "a b"),
            ("\0", "\u{fffd}", "\\u0000"),
            ("<&>", "&lt;&amp;&gt;", "\\u003C\\u0026\\u003E"),
            ("\"'`", "&#34;&#39;`", "\\\"\\'`"),
            ("a=b\\c", "a=b\\c", "a\\u003Db\\\\c"),
            ("\r\n\t", "\r\n\t", "\\u000D\\u000A\\u0009"),
            ("é🙂", "é🙂", "é🙂"),
            ("&amp;", "&amp;amp;", "\\u0026amp;"),
        ] {
            assert_eq!((html_escape(text).as_str(), js_escape(text).as_str()), (html, js), "{text:?}");
        }
    }
}
