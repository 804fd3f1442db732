//! Parses patterns into syntax trees. Single characters, classes and anchors are parsed by the crate that reads all other
//! patterns.

use std::sync::Arc;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, HirKind};

use super::node::{Letters, Node};
use crate::{Error, ErrorKind, Result};

/// How deeply groups nest.
const DEPTH_MAX: usize = 100;
/// How often a part may be repeated that is written out.
const TIMES_MAX: usize = 10_000;

/// A pattern that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) node: Node,
    /// Names of its groups.
    pub(super) names: Vec<Option<String>>,
}

/// Reads a pattern.
///
/// # Errors
/// Invalid: it is none. LimitExceeded: it nests too deeply.
pub(super) fn read(pattern: &str) -> Result<Read> {
    let mut reader = Reader { text: pattern, at: 0, names: Vec::new(), around: 0, depth: 0, flags: Flags::default() };
    let node = reader.either()?;
    if reader.at < pattern.len() {
        return Err(reader.wrong("a bracket closes that nothing opens"));
    }
    Ok(Read { node, names: reader.names })
}

/// The byte behind a class that begins at one.
pub(super) fn behind_class(pattern: &str, from: usize) -> usize {
    let bytes = pattern.as_bytes();
    let (mut at, mut depth) = (from, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' if depth > 0 && bytes.get(at + 1) == Some(&b':') => {
                at = pattern[at..].find(":]").map_or(bytes.len(), |end| at + end + 1);
            }
            b'[' => {
                depth += 1;
                at += usize::from(bytes.get(at + 1) == Some(&b'^'));
                // At the beginning `]` is an ordinary character.
                at += usize::from(bytes.get(at + 1) == Some(&b']'));
            }
            b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// How what follows is read.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of patterns, each on or off")]
struct Flags {
    folds: bool,
    dot_is_all: bool,
    by_line: bool,
    is_spaced: bool,
    is_lazy: bool,
}

struct Reader<'p> {
    text: &'p str,
    at: usize,
    names: Vec<Option<String>>,
    /// How many look arounds are open: groups in them are none.
    around: usize,
    depth: usize,
    flags: Flags,
}

impl<'p> Reader<'p> {
    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("`{}` is no regular expression: {what}", self.text))
    }

    fn rest(&self) -> &'p str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_there = self.rest().starts_with(sign);
        if is_there {
            self.at += sign.len();
        }
        is_there
    }

    /// What stands before a sign, which is taken as well.
    fn until(&mut self, sign: char) -> Result<&'p str> {
        let rest = self.rest();
        let Some((before, _)) = rest.split_once(sign) else {
            return Err(self.wrong(&format!("`{sign}` is missing")));
        };
        self.at += before.len() + sign.len_utf8();
        Ok(before)
    }

    /// Passes over blanks and comments where they are none of the pattern.
    fn skip(&mut self) {
        while self.flags.is_spaced
            && let Some(letter) = self.peek()
        {
            if letter == '#' {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if letter.is_whitespace() {
                self.at += letter.len_utf8();
            } else {
                return;
            }
        }
    }

    fn either(&mut self) -> Result<Node> {
        let mut arms = vec![self.sequence()?];
        while self.takes("|") {
            arms.push(self.sequence()?);
        }
        Ok(if arms.len() == 1 { arms.remove(0) } else { Node::Either(arms) })
    }

    fn sequence(&mut self) -> Result<Node> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            if matches!(self.peek(), None | Some('|' | ')')) {
                return Ok(Node::Concat(parts));
            }
            let part = self.part()?;
            parts.push(self.repeated(part)?);
        }
    }

    fn part(&mut self) -> Result<Node> {
        let Some(letter) = self.peek() else { return Ok(Node::Concat(Vec::new())) };
        let from = self.at;
        match letter {
            '(' => {
                self.at += 1;
                self.bracket()
            }
            '\\' => self.escape(),
            '*' | '+' | '?' => Err(self.wrong("nothing is repeated")),
            '[' => {
                self.at = behind_class(self.text, from);
                self.one(self.text.get(from..self.at).unwrap_or_default())
            }
            '.' | '^' | '$' => {
                self.at += 1;
                self.one(self.text.get(from..self.at).unwrap_or_default())
            }
            other => {
                self.at += other.len_utf8();
                self.one(&regex_syntax::escape(other.encode_utf8(&mut [0; 4])))
            }
        }
    }

    /// What stands for a letter or a place.
    fn one(&self, text: &str) -> Result<Node> {
        let flags = self.flags;
        let mut parser = ParserBuilder::new();
        parser.case_insensitive(flags.folds).dot_matches_new_line(flags.dot_is_all);
        parser.multi_line(flags.by_line).ignore_whitespace(flags.is_spaced);
        let read = parser.build().parse(text).map_err(|e| self.wrong(&e.to_string()))?;
        Ok(match read.kind() {
            HirKind::Class(Class::Unicode(class)) => {
                Node::Letters(Letters(class.iter().map(|range| (range.start(), range.end())).collect()))
            }
            HirKind::Class(Class::Bytes(class)) => {
                let ranges = class.iter().map(|range| (char::from(range.start()), char::from(range.end())));
                Node::Letters(Letters(ranges.collect()))
            }
            HirKind::Literal(literal) => {
                let letters = std::str::from_utf8(&literal.0).map_err(|_| self.wrong("it is of bytes"))?;
                let mut letters: Vec<Node> =
                    letters.chars().map(|c| Node::Letters(Letters(Arc::from([(c, c)])))).collect();
                if letters.len() == 1 { letters.remove(0) } else { Node::Concat(letters) }
            }
            HirKind::Look(look) => Node::Look(*look),
            HirKind::Empty => Node::Concat(Vec::new()),
            _ => return Err(self.wrong(&format!("`{text}` is no letter"))),
        })
    }

    fn escape(&mut self) -> Result<Node> {
        let from = self.at;
        self.at += 1;
        let Some(letter) = self.peek() else { return Err(self.wrong("it ends with a backslash")) };
        self.at += letter.len_utf8();
        match letter {
            '1'..='9' => return self.back(letter),
            'p' | 'P' | 'x' | 'u' | 'U' if self.peek() == Some('{') => {
                self.until('}')?;
            }
            'p' | 'P' => self.at += self.peek().map_or(0, char::len_utf8),
            'x' | 'u' | 'U' => {
                let digits = match letter {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let is_digit = |letter: &char| letter.is_ascii_hexdigit();
                self.at += self.rest().chars().take(digits).take_while(is_digit).count();
            }
            'b' if self.rest().starts_with("{start") || self.rest().starts_with("{end") => {
                self.until('}')?;
            }
            _ => {}
        }
        self.one(self.text.get(from..self.at).unwrap_or_default())
    }

    /// A reference to a group that stands before it.
    fn back(&mut self, first: char) -> Result<Node> {
        let number = |group: usize, digit: char| Some(group * 10 + digit.to_digit(10)? as usize);
        let mut group = number(0, first).unwrap_or_default();
        while let Some(longer) = self.peek().and_then(|digit| number(group, digit))
            && longer <= self.names.len()
        {
            group = longer;
            self.at += 1;
        }
        if group > self.names.len() {
            return Err(self.wrong(&format!("there is no group {group} before `\\{group}`")));
        }
        Ok(Node::Back { group, folds: self.flags.folds })
    }

    /// What stands in brackets.
    fn bracket(&mut self) -> Result<Node> {
        for (sign, is_ahead, is_negated) in
            [("?=", true, false), ("?!", true, true), ("?<=", false, false), ("?<!", false, true)]
        {
            if self.takes(sign) {
                self.around += 1;
                let node = Box::new(self.inner()?);
                self.around -= 1;
                return Ok(Node::Around { is_ahead, is_negated, node });
            }
        }
        if self.takes("?:") {
            return self.inner();
        }
        if self.takes("?#") {
            self.until(')')?;
            return Ok(Node::Concat(Vec::new()));
        }
        if self.takes("?P<") || self.takes("?<") {
            let name = self.until('>')?;
            return self.group(Some(name.to_owned()));
        }
        if self.takes("?") {
            return self.with_flags();
        }
        self.group(None)
    }

    fn group(&mut self, name: Option<String>) -> Result<Node> {
        if self.around > 0 {
            return self.inner();
        }
        self.names.push(name);
        let group = self.names.len();
        Ok(Node::Group(group, Box::new(self.inner()?)))
    }

    /// What is in a bracket up to its end; flags within it end with it.
    fn inner(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let text = format!("groups of a regular expression nest more than {DEPTH_MAX} deep");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let flags = self.flags;
        let node = self.either()?;
        (self.flags, self.depth) = (flags, self.depth - 1);
        if self.takes(")") { Ok(node) } else { Err(self.wrong("`)` is missing")) }
    }

    /// `(?i)`, and `(?i:…)`.
    fn with_flags(&mut self) -> Result<Node> {
        let before = self.flags;
        let mut is_set = true;
        while let Some(letter) = self.peek() {
            self.at += letter.len_utf8();
            match letter {
                '-' => is_set = false,
                'i' => self.flags.folds = is_set,
                's' => self.flags.dot_is_all = is_set,
                'm' => self.flags.by_line = is_set,
                'x' => self.flags.is_spaced = is_set,
                'U' => self.flags.is_lazy = is_set,
                'u' if is_set => {}
                ')' => return Ok(Node::Concat(Vec::new())),
                ':' => {
                    let node = self.inner()?;
                    self.flags = before;
                    return Ok(node);
                }
                other => return Err(self.wrong(&format!("`{other}` is no flag"))),
            }
        }
        Err(self.wrong("`)` is missing"))
    }

    /// A part, and how often it comes.
    fn repeated(&mut self, node: Node) -> Result<Node> {
        let Some((min, max)) = self.quantifier()? else { return Ok(node) };
        let is_lazy = self.takes("?") != self.flags.is_lazy;
        // Each would be one level more.
        if self.quantifier()?.is_some() {
            return Err(self.wrong("what is repeated is repeated once more"));
        }
        Ok(Node::Repeat { node: Box::new(node), min, max, is_lazy })
    }

    /// `*`, `+`, `?`, or times in brackets.
    fn quantifier(&mut self) -> Result<Option<(usize, Option<usize>)>> {
        self.skip();
        let times = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.times(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(times))
    }

    /// `{2}`, `{2,}` or `{2,5}`; none: it is a letter.
    fn times(&mut self) -> Result<Option<(usize, Option<usize>)>> {
        let Some((inner, _)) = self.rest().get(1..).and_then(|rest| rest.split_once('}')) else { return Ok(None) };
        let (min, max) = inner
            .split_once(',')
            .map_or((inner, Some(inner)), |(min, max)| (min, Some(max).filter(|max| !max.trim().is_empty())));
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let Some(min) = number(min) else { return Ok(None) };
        let max = match max {
            None => None,
            Some(max) => match number(max) {
                None => return Ok(None),
                known => known,
            },
        };
        if max.is_some_and(|max| max < min) || min.max(max.unwrap_or(0)) > TIMES_MAX {
            return Err(self.wrong(&format!("`{{{inner}}}` is no number of times")));
        }
        self.at += inner.len() + 2;
        Ok(Some((min, max)))
    }
}
