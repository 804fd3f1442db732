//! Context-dependent escaping of HTML for e-mails, as in Go's `html/template`.
//!
//! A state machine (`context`) follows the text of the template through the page, and each value is escaped for the
//! context in which it is printed: text, attribute, URL, script, style. A value that is not allowed in its context
//! becomes `ZgotmplZ`, as in Go.

mod context;
mod script;
mod style;
mod urls;

use std::fmt::Write as _;

use context::{Holds, Raw, State};
use script::{Script, script_text, script_value};
use style::{Comment, Style};
use urls::{REFUSED, UrlPart};

use super::escape::{html_escape, html_unescape};
use super::value::{Safe, Value};

/// The current context in a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    state: State,
    element: String,
    attribute: String,
    holds: Holds,
    url: UrlPart,
    script: Script,
    style: Style,
}

impl Page {
    /// Advances over a text of the template; returns what is written of it.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (before, comment) = (self.state, self.comment());
            let taken = self.step(rest, c);
            match (comment, self.comment()) {
                // The `/` that has begun it.
                (None, Some(_)) => drop(out.pop()),
                (Some(_), Some(_)) => {}
                (Some(Comment::Block), None) if c == '/' => out.push(' '),
                // It does not begin a tag.
                _ if c == '<' && is_bare(before, self.state, rest) => out.push_str("&lt;"),
                _ if before == State::Comment || self.state == State::Comment => {}
                _ => out.push_str(&rest[..taken]),
            }
            rest = &rest[taken..];
        }
        if self.comment() == Some(Comment::Block) {
            out.push(' ');
        }
        out
    }

    /// The comment of a style that it is within; such comments are left out, as in Go. Those of scripts stay: what begins
    /// one may be the end of a regular expression.
    fn comment(&self) -> Option<Comment> {
        if self.state == State::Raw(Raw::Style) { self.style.comment() } else { None }
    }

    /// Escapes a value for the current context, and advances over it.
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
            State::Raw(Raw::Title | Raw::Textarea) => match value {
                Value::Safe(Safe::Html, text) => mark_escape(text),
                _ => page_escape(&shown),
            },
            State::Raw(Raw::Script) => self.script_part(value, &shown),
            State::Raw(Raw::Style) => self.style_part(value, &shown),
            State::Comment => String::new(),
            State::Tag | State::AttrName | State::AfterName => {
                if shown.chars().all(|c| c.is_ascii_alphanumeric()) && !shown.starts_with("on") {
                    self.state = State::AttrName;
                    self.attribute += &shown.to_ascii_lowercase();
                    shown
                } else {
                    REFUSED.to_owned()
                }
            }
            State::BeforeValue => {
                self.begin();
                self.state = State::AttrValue(' ');
                self.attribute_value(value, &shown, ' ')
            }
            State::AttrValue(quote) => self.attribute_value(value, &shown, quote),
        }
    }

    /// Handles a value whose last function was one of Go's own escapers (`html`, `urlquery`), and advances over it.
    /// That function replaces the equivalent escaper of the context, so that nothing is escaped twice.
    pub(super) fn escaped(&mut self, escaper: &str, value: &Value) -> String {
        let shown = value.printed();
        match (escaper, self.state) {
            ("html", State::Text | State::Raw(Raw::Title | Raw::Textarea)) => shown,
            ("html", State::AttrValue('"' | '\'')) if self.holds == Holds::Plain => shown,
            // The function is applied after the escapers of the attribute.
            ("html", State::AttrValue('"' | '\'')) => self.value(&Value::text(html_unescape(&shown))),
            ("urlquery", State::AttrValue(quote)) if self.holds == Holds::Url => {
                let escaped = page_escape(&shown);
                if quote == ' ' { unquoted_escape(&escaped) } else { escaped }
            }
            _ => self.value(value),
        }
    }

    /// Escapes a value within a script, and advances over it.
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

    /// Escapes a value within a style sheet.
    fn style_part(&mut self, value: &Value, shown: &str) -> String {
        self.style.value(&mut self.url, shown, matches!(value, Value::Safe(Safe::Url, _)))
    }

    /// Escapes a value for an attribute; `quote` is a blank where it has none.
    fn attribute_value(&mut self, value: &Value, shown: &str, quote: char) -> String {
        let escaped = match self.holds {
            // In an attribute the tags of HTML would be visible, so Go removes them.
            Holds::Plain => match value {
                Value::Safe(Safe::Html, text) => mark_escape(&strip_tags(text)),
                _ => page_escape(shown),
            },
            Holds::Script => page_escape(&self.script_part(value, shown)),
            Holds::Style => page_escape(&self.style_part(value, shown)),
            // In which part of a URL it is follows from the text of the template alone.
            Holds::Url => page_escape(&self.url.written(shown, matches!(value, Value::Safe(Safe::Url, _)))),
        };
        match quote {
            // The attribute would take what stands behind it.
            ' ' if escaped.is_empty() => REFUSED.to_owned(),
            ' ' => unquoted_escape(&escaped),
            _ => escaped,
        }
    }
}

/// Whether a `<` is plain text, which opens nothing.
fn is_bare(before: State, after: State, rest: &str) -> bool {
    let text = matches!(before, State::Text | State::Raw(Raw::Title | Raw::Textarea));
    let doctype = rest.get(..9).is_some_and(|head| head.eq_ignore_ascii_case("<!doctype"));
    text && before == after && !doctype
}

/// Escapes a text for a page; unlike the function `html`, Go escapes `+` as well.
fn page_escape(text: &str) -> String {
    html_escape(text).replace('+', "&#43;")
}

/// Escapes the marks of HTML, but not what is escaped in it already.
fn mark_escape(html: &str) -> String {
    html.split('&').map(page_escape).collect::<Vec<_>>().join("&")
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

#[cfg(test)]
mod tests {
    use super::super::{Functions, MESSAGE_FUNCTIONS, Options, Templates};
    use super::*;

    pub(super) fn check(template: &str, value: Value, expected: &str) {
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

    /// Only comments are removed, not what looks like their marks in another context.
    #[test]
    fn marks_of_comments() {
        let kept = |template: &str| check(template, Value::Nil, template);
        kept("a --> b");
        kept("<p title='<!-- x -->'>");
        kept("<script>while (i --> 0) {}</script>");
        kept("<style><!-- p {} --></style>");
        check("a<!-- b --> --> c", Value::Nil, "a --> c");
    }

    /// HTML is not escaped twice, and nothing is no value without quotes.
    #[test]
    fn html_within_attributes() {
        check("<p title='{{. | safeHtml}}'>", Value::text("<b>a &lt; 'b'</b>"), "<p title='a &lt; &#39;b&#39;'>");
        check("<title>{{. | safeHtml}}</title>", Value::text("<b>&amp;"), "<title>&lt;b&gt;&amp;</title>");
        check("<p class={{.}} id='{{.}}'>", Value::text(""), "<p class=ZgotmplZ id=''>");
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

    /// Text, attributes and scripts each escape values in their own way.
    #[test]
    fn places_of_attributes() {
        let check = |template: &str, value: &str, expected: &str| check(template, Value::text(value), expected);
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
}
