//! A state machine that knows the context at the end of a part of an HTML page.

use super::Page;
use super::script::Script;
use super::style::Style;
use super::urls::UrlPart;

/// The context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Text,
    /// Within `<!-- -->`, which is left out, as in Go.
    Comment,
    /// After `<name`, between attributes.
    Tag,
    AttrName,
    AfterName,
    BeforeValue,
    /// Within a value, with its closing quote; a space: unquoted.
    AttrValue(char),
    /// Within an element whose text is not markup.
    Raw(Raw),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw {
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

/// The kind of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Holds {
    #[default]
    Plain,
    Url,
    Script,
    Style,
}

/// Attributes with URLs, besides those whose names say so.
const URL_ATTRIBUTES: [&str; 17] = [
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
    "usemap",
    "xmlns",
];

impl Page {
    /// Advances over what begins with `c`; returns its length in bytes.
    pub(super) fn step(&mut self, rest: &str, c: char) -> usize {
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
                match raw {
                    Raw::Script => self.script = self.script.next(c),
                    Raw::Style => self.style.follow(&mut self.url, c),
                    Raw::Title | Raw::Textarea => {}
                }
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
        (self.script, self.style) = (Script::Code, Style::default());
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

    /// Begins a value: its kind follows from the attribute's name.
    pub(super) fn begin(&mut self) {
        let whole = self.attribute.as_str();
        let name = match whole.split_once(':') {
            _ if whole.starts_with("data-") => &whole["data-".len()..],
            Some(("xmlns", _)) => "xmlns",
            Some((_, own)) => own,
            None => whole,
        };
        (self.url, self.script, self.style) = (UrlPart::Start, Script::Code, Style::default());
        self.holds = match name {
            "style" => Holds::Style,
            // A page, and no address.
            "srcdoc" => Holds::Plain,
            name if URL_ATTRIBUTES.contains(&name) => Holds::Url,
            name if name.starts_with("on") => Holds::Script,
            name if ["src", "uri", "url"].iter().any(|part| name.contains(part)) => Holds::Url,
            _ => Holds::Plain,
        };
    }

    /// Advances over a character of a value.
    fn in_value(&mut self, c: char) {
        match self.holds {
            Holds::Plain => {}
            Holds::Url => self.url = self.url.next(c),
            Holds::Script => self.script = self.script.next(c),
            Holds::Style => self.style.follow(&mut self.url, c),
        }
    }
}
