//! Contexts within a style sheet, and the escaping of values in them.

use std::fmt::Write as _;

use super::urls::{REFUSED, UrlPart, has_safe_scheme};

/// How much of the word `url` stands before a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// No word.
    None,
    /// So many of its letters.
    Begun(usize),
    /// All of it, and perhaps white space.
    Url,
    /// Another word.
    Other,
}

/// A comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comment {
    /// To the end of the line.
    Line,
    /// To its mark.
    Block,
}

/// The context within a style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Code(Word),
    /// After a `/`, which may begin a comment.
    Slash,
    /// Within a string, with its closing quote.
    Text(char),
    /// After a backslash in a string.
    Escape(char),
    /// After `url(`.
    BeforeUrl,
    /// Within an address, with the character that ends it.
    Url(char),
    /// After a backslash in an address.
    UrlEscape(char),
    LineComment,
    Comment,
    /// After a `*`, which may end a comment.
    Star,
}

impl Default for Style {
    fn default() -> Self {
        Self::Code(Word::None)
    }
}

impl Word {
    fn next(self, c: char) -> Self {
        const URL: [char; 3] = ['u', 'r', 'l'];
        let at = match self {
            Self::None => 0,
            Self::Begun(count) => count,
            Self::Url if c.is_ascii_whitespace() => return Self::Url,
            Self::Url | Self::Other => URL.len(),
        };
        let in_word = c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || !c.is_ascii();
        if !in_word {
            return Self::None;
        }
        match URL.get(at) {
            Some(letter) if c.eq_ignore_ascii_case(letter) => match at + 1 {
                3 => Self::Url,
                count => Self::Begun(count),
            },
            _ => Self::Other,
        }
    }
}

impl Style {
    /// Advances over a character.
    fn next(self, c: char) -> Self {
        match (self, c) {
            (Self::Slash, '/') => Self::LineComment,
            (Self::Slash, '*') => Self::Comment,
            (Self::Code(_), '/') => Self::Slash,
            (Self::Code(_) | Self::Slash, '"' | '\'') => Self::Text(c),
            (Self::Code(Word::Url), '(') => Self::BeforeUrl,
            (Self::Code(word), _) => Self::Code(word.next(c)),
            (Self::Slash, _) => Self::Code(Word::None.next(c)),
            (Self::BeforeUrl, '"' | '\'') => Self::Url(c),
            (Self::BeforeUrl, ')') | (Self::LineComment, '\n') | (Self::Star, '/') => Self::default(),
            (Self::BeforeUrl, c) if c.is_ascii_whitespace() => Self::BeforeUrl,
            (Self::BeforeUrl, _) => Self::Url(')'),
            (Self::Text(quote), '\\') => Self::Escape(quote),
            (Self::Url(end), '\\') => Self::UrlEscape(end),
            (Self::Text(end) | Self::Url(end), c) if c == end => Self::default(),
            (Self::Url(')'), c) if c.is_ascii_whitespace() => Self::default(),
            (Self::Escape(quote), _) => Self::Text(quote),
            (Self::UrlEscape(end), _) => Self::Url(end),
            (Self::Comment | Self::Star, '*') => Self::Star,
            (Self::Star, _) => Self::Comment,
            (same @ (Self::Text(_) | Self::Url(_) | Self::LineComment | Self::Comment), _) => same,
        }
    }

    /// Whether it is within a string, which may be an address, or within an address.
    fn is_within(self) -> bool {
        matches!(self, Self::Text(_) | Self::Escape(_) | Self::Url(_) | Self::UrlEscape(_))
    }

    /// The comment that it is within.
    pub(super) fn comment(self) -> Option<Comment> {
        match self {
            Self::LineComment => Some(Comment::Line),
            Self::Comment | Self::Star => Some(Comment::Block),
            _ => None,
        }
    }

    /// Advances over a character of the template, and `part` with it.
    pub(super) fn follow(&mut self, part: &mut UrlPart, c: char) {
        let before = *self;
        *self = before.next(c);
        if self.is_within() {
            // A quote begins an address, without quotes its first character does.
            let is_quote = !before.is_within() && *self != Self::Url(')');
            let from = if before.is_within() { *part } else { UrlPart::default() };
            *part = if is_quote { from } else { from.next(c) };
        }
    }

    /// Escapes a value; `is_safe`: it is marked as a URL that needs no escaping.
    pub(super) fn value(&mut self, part: &mut UrlPart, shown: &str, is_safe: bool) -> String {
        match self {
            Self::Code(_) | Self::Slash => {
                *self = Self::default();
                harmless(shown)
            }
            Self::LineComment | Self::Comment | Self::Star => String::new(),
            Self::Text(_) | Self::Escape(_) => match part {
                UrlPart::Query => part.written(shown, is_safe),
                UrlPart::Start if !is_safe && !has_safe_scheme(shown) => format!("#{REFUSED}"),
                UrlPart::Start | UrlPart::Path => text(shown),
            },
            Self::BeforeUrl => {
                (*self, *part) = (Self::Url(')'), UrlPart::default());
                part.written(shown, is_safe)
            }
            Self::Url(_) | Self::UrlEscape(_) => part.written(shown, is_safe),
        }
    }
}

/// Keeps only what is harmless in a style sheet.
fn harmless(shown: &str) -> String {
    let is_harmful = |c: char| "\0\"'()/;@[\\]`{}<>".contains(c);
    let word: String = shown.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let word = word.to_ascii_lowercase();
    if shown.contains(is_harmful) || shown.contains("--") || word.contains("expression") || word.contains("mozbinding")
    {
        REFUSED.to_owned()
    } else {
        shown.to_owned()
    }
}

/// Escapes a text for a string.
fn text(shown: &str) -> String {
    let mut out = String::with_capacity(shown.len());
    let mut chars = shown.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            out.push_str("\\\\");
        } else if "\0\t\n\x0c\r\"&'()+/:;<>{}".contains(c) {
            let _ = write!(out, "\\{:x}", c as u32);
            // A blank ends the number where it would go on; it is no part of the text.
            if chars.peek().is_none_or(|next| next.is_ascii_hexdigit() || next.is_ascii_whitespace()) {
                out.push(' ');
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::value::Value;
    use super::super::tests::check;

    fn shown(template: &str, value: &str, expected: &str) {
        check(template, Value::text(value), expected);
    }

    #[test]
    fn values() {
        let check = |style: &str, expected: &str| {
            shown("<p style='{{.}}'>", style, &format!("<p style='{expected}'>"));
        };
        check("color: red", "color: red");
        check("width: 10px+2%", "width: 10px&#43;2%");
        check("\u{e9}-1", "\u{e9}-1");
        for style in ["-moz-binding: x", "a--b", "Expr ession", "url x)", "a;b", "/**", "a\\b", "\"a", "@a", "{"] {
            check(style, "ZgotmplZ");
        }
    }

    #[test]
    fn addresses() {
        let url = "http://h/a b?c=d&e";
        shown(
            "<p style=\"background: url('{{.}}/x.png')\">",
            url,
            "<p style=\"background: url('http://h/a%20b?c=d&amp;e/x.png')\">",
        );
        shown("<p style='x: url( {{.}}/x.png)'>", url, "<p style='x: url( http://h/a%20b?c=d&amp;e/x.png)'>");
        shown(
            "<style>p { x: url( \"/x?{{.}}\" ); y: {{.}} }</style>",
            url,
            "<style>p { x: url( \"/x?http%3a%2f%2fh%2fa%20b%3fc%3dd%26e\" ); y: ZgotmplZ }</style>",
        );
        shown("<style>p { x: URL ({{.}}) }</style>", "a b/c", "<style>p { x: URL (a%20b/c) }</style>");
        shown("<p style='x: url({{.}})'>", "javascript:1", "<p style='x: url(#ZgotmplZ)'>");
        shown("<p style='x: curl({{.}})'>", "x; y", "<p style='x: curl(ZgotmplZ)'>");
        shown("<p style='x: url(a) {{.}} / {{.}}'>", "a,b", "<p style='x: url(a) a,b / a,b'>");
    }

    #[test]
    fn strings() {
        shown("<p style=\"x: '{{.}}', x\">", "j<&>", "<p style=\"x: 'j\\3c\\26\\3e ', x\">");
        shown(
            "<p style=\"x: '{{.}}b'; y: {{.}}\">",
            "it's (1) a",
            "<p style=\"x: 'it\\27s \\28 1\\29  ab'; y: ZgotmplZ\">",
        );
        shown("<p style='x: \"{{.}}\"'>", "a:b", "<p style='x: \"#ZgotmplZ\"'>");
        shown("<p style='x: \"x{{.}}?{{.}}\"'>", "a/b", "<p style='x: \"xa\\2f b?a%2fb\"'>");
        shown("<p style='x: \"\\\"{{.}}\"; y: {{.}}'>", "a", "<p style='x: \"\\\"a\"; y: a'>");
        shown("<p style='x: url(\"?\") \"{{.}}\"'>", "a/", "<p style='x: url(\"?\") \"a\\2f \"'>");
    }

    #[test]
    fn comments() {
        shown(
            "<style>/* {{.}} ' */ p { x: {{.}} } // it's {{.}}\nq { x: {{.}} }</style>",
            "red",
            "<style>   p { x: red } \nq { x: red }</style>",
        );
        shown("<style>/* {{.}} */a{}/*b*/c{} // d\ne{}</style>", "x", "<style>  a{} c{} \ne{}</style>");
        shown("<style>p { x: url(//h/a) } /* \"\n*/</style>{{.}}", "x", "<style>p { x: url(//h/a) }  </style>x");
        shown("<p style='/* a */ color: {{.}}'>", "x", "<p style='/* a */ color: x'>");
    }
}
