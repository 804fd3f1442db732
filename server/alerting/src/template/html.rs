//! Escaping by the place in a page, as Go's `html/template` does it, for the HTML of e-mails.
//!
//! The texts of the template move a small machine through the page; a value is escaped for the place where it is
//! printed: text, attribute, URL, script, style. What no place can hold becomes `ZgotmplZ`, Go's mark for it.

use super::escape::{html_escape, html_unescape};
use super::value::{Safe, Value};
use std::fmt::Write as _;

/// Where in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// Within `<!-- -->`, which is left out, as Go does.
    Comment,
    /// Behind `<name`, between attributes.
    Tag,
    AttrName,
    AfterName,
    BeforeValue,
    /// Within a value, up to its quote; a space: unquoted.
    AttrValue(char),
    /// Within an element whose text is no markup.
    Raw(Raw),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raw {
    Script,
    Style,
    Title,
    Textarea,
}

impl Raw {
    fn end(self) -> &'static str {
        match self {
            Self::Script => "</script",
            Self::Style => "</style",
            Self::Title => "</title",
            Self::Textarea => "</textarea",
        }
    }
}

/// What an attribute holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Holds {
    #[default]
    Plain,
    Url,
    Script,
    Style,
}

/// How far a URL is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum UrlPart {
    #[default]
    Start,
    Path,
    Query,
}

/// Where in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Script {
    #[default]
    Code,
    /// Behind a `/`, which may begin a comment.
    Slash,
    /// Within a text, up to its quote.
    Text(char),
    /// Behind a backslash in a text.
    Escape(char),
    LineComment,
    Comment,
    /// Behind a `*`, which may end a comment.
    Star,
}

impl Script {
    fn next(self, c: char) -> Self {
        match (self, c) {
            (Self::Code | Self::Slash, '"' | '\'' | '`') => Self::Text(c),
            (Self::Slash, '/') => Self::LineComment,
            (Self::Slash, '*') => Self::Comment,
            (Self::Code, '/') => Self::Slash,
            (Self::Text(quote), '\\') => Self::Escape(quote),
            (Self::Text(quote), c) if c == quote => Self::Code,
            // Only texts in back quotes have several lines.
            (Self::Code | Self::Slash, _) | (Self::Text('"' | '\'') | Self::LineComment, '\n') | (Self::Star, '/') => {
                Self::Code
            }
            (Self::Escape(quote), _) => Self::Text(quote),
            (Self::Comment | Self::Star, '*') => Self::Star,
            (Self::Star, _) => Self::Comment,
            (same @ (Self::Text(_) | Self::LineComment | Self::Comment), _) => same,
        }
    }
}

/// The place in a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    state: State,
    element: String,
    attribute: String,
    holds: Holds,
    url: UrlPart,
    script: Script,
}

const URL_ATTRIBUTES: [&str; 15] = [
    "action",
    "archive",
    "background",
    "cite",
    "classid",
    "codebase",
    "data",
    "formaction",
    "href",
    "icon",
    "longdesc",
    "manifest",
    "poster",
    "profile",
    "src",
];

impl Page {
    /// Moves through a text of the template; gives what of it is written.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let before = self.state;
            let taken = self.step(rest, c);
            if c == '<' && is_bare(before, self.state, rest) {
                // It begins no tag.
                out.push_str("&lt;");
            } else if self.state != State::Comment && !rest.starts_with("-->") && !rest.starts_with("<!--") {
                out.push_str(&rest[..taken]);
            }
            rest = &rest[taken..];
        }
        out
    }

    fn step(&mut self, rest: &str, c: char) -> usize {
        let one = c.len_utf8();
        match self.state {
            State::Text if rest.starts_with("<!--") => {
                self.state = State::Comment;
                4
            }
            State::Comment => {
                if rest.starts_with("-->") {
                    self.state = State::Text;
                    return 3;
                }
                one
            }
            State::Text if c == '<' => self.open(rest),
            State::Text => one,
            State::Raw(raw) => {
                let end = rest.get(..raw.end().len()).is_some_and(|head| head.eq_ignore_ascii_case(raw.end()));
                if end {
                    self.state = State::Tag;
                    self.element.clear();
                    return raw.end().len();
                }
                self.script = self.script.next(c);
                one
            }
            State::Tag | State::AttrName | State::AfterName => {
                self.in_tag(c);
                one
            }
            State::BeforeValue => {
                self.begin_value(c);
                one
            }
            State::AttrValue(quote) => {
                let ends = if quote == ' ' { c.is_ascii_whitespace() || c == '>' } else { c == quote };
                if ends {
                    self.state = State::Tag;
                    if c == '>' {
                        self.close();
                    }
                } else {
                    self.in_value(c);
                }
                one
            }
        }
    }

    fn open(&mut self, rest: &str) -> usize {
        let body = rest[1..].strip_prefix('/').unwrap_or(&rest[1..]);
        let length = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != ':').unwrap_or(body.len());
        if !body.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return 1;
        }
        let closes = rest[1..].starts_with('/');
        self.element = if closes { String::new() } else { body[..length].to_ascii_lowercase() };
        self.attribute.clear();
        self.state = State::Tag;
        1 + usize::from(closes) + length
    }

    fn in_tag(&mut self, c: char) {
        match c {
            '>' => self.close(),
            '=' if self.state != State::Tag => self.state = State::BeforeValue,
            c if c.is_ascii_whitespace() || c == '/' => {
                self.state = if self.state == State::Tag { State::Tag } else { State::AfterName };
            }
            c => {
                if self.state != State::AttrName {
                    self.attribute.clear();
                }
                self.state = State::AttrName;
                self.attribute.extend(c.to_lowercase());
            }
        }
    }

    fn close(&mut self) {
        self.script = Script::Code;
        self.state = match self.element.as_str() {
            "script" => State::Raw(Raw::Script),
            "style" => State::Raw(Raw::Style),
            "title" => State::Raw(Raw::Title),
            "textarea" => State::Raw(Raw::Textarea),
            _ => State::Text,
        };
    }

    fn begin_value(&mut self, c: char) {
        if c.is_ascii_whitespace() {
            return;
        }
        self.begin();
        match c {
            '"' | '\'' => self.state = State::AttrValue(c),
            '>' => {
                self.state = State::Tag;
                self.close();
            }
            c => {
                self.state = State::AttrValue(' ');
                self.in_value(c);
            }
        }
    }

    /// Begins a value: what the attribute holds follows from its name.
    fn begin(&mut self) {
        let name = self.attribute.strip_prefix("data-").unwrap_or(&self.attribute);
        let name = name.rsplit(':').next().unwrap_or(name);
        (self.url, self.script) = (UrlPart::Start, Script::Code);
        self.holds =
            if URL_ATTRIBUTES.contains(&name) || name.contains("src") || name.contains("uri") || name.contains("url") {
                Holds::Url
            } else if name.starts_with("on") {
                Holds::Script
            } else if name == "style" {
                Holds::Style
            } else {
                Holds::Plain
            };
    }

    fn in_value(&mut self, c: char) {
        self.script = self.script.next(c);
        if self.holds == Holds::Url {
            self.url = match (self.url, c) {
                (_, '?' | '#') => UrlPart::Query,
                (UrlPart::Start, c) if c.is_ascii_whitespace() => UrlPart::Start,
                (UrlPart::Start, _) => UrlPart::Path,
                (part, _) => part,
            };
        }
    }

    /// Gives a value as it is written here, and moves on.
    pub(super) fn value(&mut self, value: &Value) -> String {
        let shown = match value {
            Value::Nil => String::new(),
            value => value.printed(),
        };
        match self.state {
            State::Text => match value {
                Value::Safe(Safe::Html, text) => text.to_string(),
                _ => page_escape(&shown),
            },
            State::Raw(Raw::Title | Raw::Textarea) => page_escape(&shown),
            State::Raw(Raw::Script) => self.script_part(value, &shown),
            State::Raw(Raw::Style) => style_value(&shown),
            State::Comment => String::new(),
            State::Tag | State::AttrName | State::AfterName => {
                if shown.chars().all(|c| c.is_ascii_alphanumeric()) && !shown.starts_with("on") {
                    self.state = State::AttrName;
                    self.attribute += &shown.to_ascii_lowercase();
                    shown
                } else {
                    "ZgotmplZ".to_owned()
                }
            }
            State::BeforeValue => {
                self.begin();
                self.state = State::AttrValue(' ');
                self.attribute_value(value, &shown, true)
            }
            State::AttrValue(quote) => self.attribute_value(value, &shown, quote == ' '),
        }
    }

    /// Gives a value that went through an escaper of Go's own (`html`, `urlquery`) last, and moves on: that one takes the
    /// place of the one like it that the place asks for, so nothing is escaped twice.
    pub(super) fn escaped(&mut self, escaper: &str, value: &Value) -> String {
        let shown = value.printed();
        match (escaper, self.state) {
            ("html", State::Text | State::Raw(Raw::Title | Raw::Textarea)) => shown,
            ("html", State::AttrValue('"' | '\'')) if self.holds == Holds::Plain => shown,
            // The escaper moves behind those of the attribute.
            ("html", State::AttrValue('"' | '\'')) => self.value(&Value::text(html_unescape(&shown))),
            ("urlquery", State::AttrValue(quote)) if self.holds == Holds::Url => {
                shown.chars().for_each(|c| self.in_value(c));
                let escaped = page_escape(&shown);
                if quote == ' ' { unquoted_escape(&escaped) } else { escaped }
            }
            _ => self.value(value),
        }
    }

    /// Gives a value as it is written at this place of a script, and moves on.
    fn script_part(&mut self, value: &Value, shown: &str) -> String {
        match self.script {
            Script::Text(quote) | Script::Escape(quote) => script_text(shown, quote),
            Script::LineComment | Script::Comment | Script::Star => String::new(),
            Script::Code | Script::Slash => {
                self.script = Script::Code;
                script_value(value, shown)
            }
        }
    }

    fn attribute_value(&mut self, value: &Value, shown: &str, unquoted: bool) -> String {
        let inner = match self.holds {
            // Markup in an attribute would show its tags; Go takes them out.
            Holds::Plain => match value {
                Value::Safe(Safe::Html, text) => strip_tags(text),
                _ => shown.to_owned(),
            },
            Holds::Script => self.script_part(value, shown),
            Holds::Style => style_value(shown),
            Holds::Url => {
                let safe = matches!(value, Value::Safe(Safe::Url, _));
                let url = match self.url {
                    UrlPart::Query if !safe => percent(shown, false),
                    UrlPart::Start if !safe && !has_safe_scheme(shown) => "#ZgotmplZ".to_owned(),
                    _ => percent(shown, true),
                };
                shown.chars().for_each(|c| self.in_value(c));
                url
            }
        };
        let escaped = page_escape(&inner);
        if unquoted { unquoted_escape(&escaped) } else { escaped }
    }
}

/// Says whether a `<` is one of a text: it opens nothing there.
fn is_bare(before: State, after: State, rest: &str) -> bool {
    let text = matches!(before, State::Text | State::Raw(Raw::Title | Raw::Textarea));
    let doctype = rest.get(..9).is_some_and(|head| head.eq_ignore_ascii_case("<!doctype"));
    text && before == after && !doctype
}

/// Escapes what stands between the quotes of a script.
fn script_text(text: &str, quote: char) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '/' => out.push_str("\\/"),
            '\\' => out.push_str("\\\\"),
            '\0' | '\x0b' | '"' | '&' | '\'' | '+' | '<' | '>' | '`' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            // Between back quotes they begin code.
            '$' | '{' | '}' if quote == '`' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

/// Escapes a text for a page; unlike the function `html`, Go does so with `+` too.
fn page_escape(text: &str) -> String {
    html_escape(text).replace('+', "&#43;")
}

fn unquoted_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' | '\n' | '\x0b' | '\x0c' | '\r' | ' ' | '=' | '`' | '+' => {
                let _ = write!(out, "&#{};", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

fn strip_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

/// Says whether a URL is relative, or of a scheme that runs nothing.
fn has_safe_scheme(url: &str) -> bool {
    match url.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => {
            ["http", "https", "mailto"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
        }
        _ => true,
    }
}

/// Escapes for a URL; `keep`: what separates its parts stays.
fn percent(text: &str, keep: bool) -> String {
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

/// Writes a value as JavaScript sees it.
fn script_value(value: &Value, shown: &str) -> String {
    let mut json = String::new();
    match value {
        Value::Nil => return "null".to_owned(),
        Value::Time(_) | Value::Duration(_) | Value::Named(..) | Value::Histogram(_) => {
            Value::text(shown).json(&mut json);
        }
        value => value.json(&mut json),
    }
    let number = json.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    if number { format!(" {json} ") } else { json }
}

/// Leaves what can do no harm in a style sheet.
fn style_value(shown: &str) -> String {
    let harmless = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '#' | '%' | ',' | '!');
    let lower = shown.to_ascii_lowercase();
    if shown.chars().all(harmless)
        && !lower.contains("expression")
        && !lower.contains("mozbinding")
        && !shown.contains("--")
    {
        shown.to_owned()
    } else {
        "ZgotmplZ".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Functions, MESSAGE_FUNCTIONS, Options, Templates};
    use super::*;

    fn check(template: &str, value: Value, expected: &str) {
        let functions: Functions = MESSAGE_FUNCTIONS;
        let mut templates = Templates::new(functions);
        templates.add("t", template).expect(template);
        assert_eq!(templates.run_html("t", &value, &Options::default()).as_deref(), Ok(expected), "{template}");
    }

    #[test]
    fn by_place() {
        check("<b>{{.}}</b>", Value::text("<i>\"x\""), "<b>&lt;i&gt;&#34;x&#34;</b>");
        check("<b>{{. | safeHtml}}</b>", Value::text("<i>"), "<b><i></b>");
        check("{{.}}<p title='{{.}}'><p class={{.}}>", Value::text("+1"), "&#43;1<p title='&#43;1'><p class=&#43;1>");
        check("<a href=\"{{.}}\">", Value::text("http://h/a b?x=<y>&z"), "<a href=\"http://h/a%20b?x=%3cy%3e&amp;z\">");
        check("<a href=\"{{.}}\">", Value::text("javascript:alert(1)"), "<a href=\"#ZgotmplZ\">");
        check("<a href=\"/x?q={{.}}\">", Value::text("a&b c"), "<a href=\"/x?q=a%26b%20c\">");
        check("<a href=\"{{. | safeUrl}}\">", Value::text("slack://x"), "<a href=\"slack://x\">");
        check("<p title='{{.}}'>", Value::text("it's"), "<p title='it&#39;s'>");
        check(
            "<script>var a = {{.}};</script>{{.}}",
            Value::text("</script>"),
            "<script>var a = \"\\u003c/script\\u003e\";</script>&lt;/script&gt;",
        );
        check("<p style=\"color: {{.}}\">", Value::text("red"), "<p style=\"color: red\">");
        check("<p style=\"color: {{.}}\">", Value::text("expression(1)"), "<p style=\"color: ZgotmplZ\">");
        check("a<!-- {{.}} -->b", Value::text("x"), "ab");
        check("<p class={{.}}>", Value::text("a b"), "<p class=a&#32;b>");
        check("1 < 2 {{.}}", Value::text("<"), "1 &lt; 2 &lt;");
        check("<!DOCTYPE html><title>1 < {{.}}</title>", Value::text("<"), "<!DOCTYPE html><title>1 &lt; &lt;</title>");
        check("<{{.}}>", Value::text("script"), "&lt;script>");
        check("{{.Foo}}", Value::Nil, "");
    }

    #[test]
    fn within_scripts() {
        let script = |body: &str, value: &str, expected: &str| {
            check(&format!("<script>{body}</script>"), Value::text(value), &format!("<script>{expected}</script>"));
        };
        script("a = \"{{.}}\"", "it's \"b\"", "a = \"it\\u0027s \\u0022b\\u0022\"");
        script("a = '\\'{{.}}' + {{.}}", "x/y", "a = '\\'x\\/y' + \"x/y\"");
        script("a = `{{.}}`, b = '{{.}}'", "${x}", "a = `\\u0024\\u007bx\\u007d`, b = '${x}'");
        script("// it's {{.}}\nb = {{.}}", "x", "// it's \nb = \"x\"");
        script("/* \" */ b = 1 / {{.}}", "x", "/* \" */ b = 1 / \"x\"");
        check("<p onclick=\"f('{{.}}')\">", Value::text("a'b"), "<p onclick=\"f('a\\u0027b')\">");
    }

    #[test]
    fn escaped_once() {
        check("<b>{{. | html}}</b>", Value::text("<i>+"), "<b>&lt;i&gt;+</b>");
        check("{{html .}}", Value::text("<"), "&lt;");
        check("<p title=\"{{. | html}}\">", Value::text("a&\"b\""), "<p title=\"a&amp;&#34;b&#34;\">");
        check("<a href=\"{{. | html}}\">", Value::text("http://h/?a=1&b=2"), "<a href=\"http://h/?a=1&amp;b=2\">");
        check("<a href=\"/x?q={{. | urlquery}}\">", Value::text("a&b c"), "<a href=\"/x?q=a%26b&#43;c\">");
        check("{{. | urlquery}}", Value::text("a b"), "a&#43;b");
    }

    /// Each of a page, an attribute, an address and a script takes a value in a way of its own.
    #[test]
    fn places_of_attributes() {
        let check = |template: &str, value: &str, expected: &str| check(template, Value::text(value), expected);
        check("<A HREF='{{.}}'>", "JavaScript:x", "<A HREF='#ZgotmplZ'>");
        check("<a href='{{.}}'>", "/a:b", "<a href='/a:b'>");
        check("<a href=' {{.}}'>", "javascript:x", "<a href=' #ZgotmplZ'>");
        check("<a href='x{{.}}'>", "javascript:x", "<a href='xjavascript:x'>");
        check("<a href='{{.}}?{{.}}#{{.}}'>", "a/b", "<a href='a/b?a%2fb#a%2fb'>");
        check("<a href='{{.}}'>", "mailto:a@b", "<a href='mailto:a@b'>");
        check("<a href='{{.}}'>", "%41%zz", "<a href='%41%25zz'>");
        check("<img data-src='{{.}}'>", "data:x", "<img data-src='#ZgotmplZ'>");
        check("<p onClick='f({{.}})'>", "a'b", "<p onClick='f(&#34;a&#39;b&#34;)'>");
        check("<p title = {{.}} class=x>{{.}}", "a=b c", "<p title = a&#61;b&#32;c class=x>a=b c");
        check("<p {{.}}='x'>", "title", "<p title='x'>");
        check("<p {{.}}='x'>", "onclick", "<p ZgotmplZ='x'>");
        check("<p title=>{{.}}", "<", "<p title=>&lt;");
        check("<br/>{{.}}</p >{{.}}", "<", "<br/>&lt;</p >&lt;");
        check(
            "<textarea>{{.}}</TEXTAREA ><i>{{.}}",
            "</textarea>",
            "<textarea>&lt;/textarea&gt;</TEXTAREA ><i>&lt;/textarea&gt;",
        );
        check("<style>p { color: {{.}} }</style>", "red; x: y", "<style>p { color: ZgotmplZ }</style>");
        check("<!-- {{.}} > -- -->{{.}}", "-->", "--&gt;");
    }

    #[test]
    fn values_of_scripts() {
        let script = |value: Value, expected: &str| {
            check("<script>x={{.}}</script>", value, &format!("<script>x={expected}</script>"));
        };
        script(Value::Bool(true), "true");
        script(Value::Int(-5), " -5 ");
        script(Value::Float(0.5), " 0.5 ");
        script(Value::text("5"), "\"5\"");
        script(Value::Duration(1_500_000_000), "\"1.5s\"");
        script(Value::texts(["a", "<"]), "[\"a\",\"\\u003c\"]");
    }
}
