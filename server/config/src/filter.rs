//! The filter of a list: the grammar of RFC 7644 section 3.4.2.2, and its evaluation on an entity.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::fields::FieldKind;
use crate::json::{time_of, time_text};
use crate::problem::{Problem, Result, shown};

/// Deepest nesting of parentheses and `not`.
const DEPTH_MAX: usize = 10;
/// Most comparisons of one filter.
const TERMS_MAX: usize = 50;
/// Longest text of a filter, in bytes.
const BYTES_MAX: usize = 16 << 10;

/// A filter of a list, parsed: comparisons of fields with constants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    /// Not null, `""`, `[]` or `{}`.
    Present(String),
    Compare(String, Op, Value),
    In(String, Vec<Value>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Ne,
    Contains,
    Starts,
    Ends,
    Gt,
    Ge,
    Lt,
    Le,
}

/// What the values of a field are, as far as a comparison needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Text,
    Number,
    Bool,
    Time,
}

impl Class {
    /// That of a kind of fields; none: a list, a map or anything.
    pub(crate) fn of(kind: FieldKind) -> Option<Self> {
        match kind {
            FieldKind::Text { .. }
            | FieldKind::Login { .. }
            | FieldKind::Prose { .. }
            | FieldKind::Id
            | FieldKind::Word(_)
            | FieldKind::Slug
            | FieldKind::Duration
            | FieldKind::Offset => Some(Self::Text),
            FieldKind::Int { .. } | FieldKind::Number { .. } => Some(Self::Number),
            FieldKind::Bool => Some(Self::Bool),
            FieldKind::Time => Some(Self::Time),
            _ => None,
        }
    }

    /// Puts a value into the form in which entities show it, so that texts compare as times do.
    fn fitted(self, value: &Value) -> Result<Value, &'static str> {
        match (self, value) {
            (_, Value::Null)
            | (Self::Text, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Bool, Value::Bool(_)) => Ok(value.clone()),
            (Self::Time, _) => match value.as_str().and_then(time_of) {
                Some(ms) => Ok(Value::String(time_text(ms))),
                None => Err("a time like \"2026-01-31T12:00:00Z\""),
            },
            (Self::Text, _) => Err("a text in quotes"),
            (Self::Number, _) => Err("a number"),
            (Self::Bool, _) => Err("true or false"),
        }
    }
}

const OPS: [(&str, Op); 9] = [
    ("eq", Op::Eq),
    ("ne", Op::Ne),
    ("co", Op::Contains),
    ("sw", Op::Starts),
    ("ew", Op::Ends),
    ("gt", Op::Gt),
    ("ge", Op::Ge),
    ("lt", Op::Lt),
    ("le", Op::Le),
];

/// Gives what stands at a dotted path. Keys of maps may hold dots themselves, so the rest of a path is tried as one key first.
pub(crate) fn at<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = map.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    at(map.get(first)?.as_object()?, rest)
}

/// Gives what a comparison looks at: what stands at a path, or, where it leads through lists of objects, what stands there
/// in each of them (RFC 7644: of several values one must fit).
fn found<'a>(entity: &'a Map<String, Value>, path: &str) -> Cow<'a, Value> {
    if let Some(value) = at(entity, path) {
        return Cow::Borrowed(value);
    }
    let mut all = Vec::new();
    through(entity, path, &mut all);
    if all.is_empty() { Cow::Owned(Value::Null) } else { Cow::Owned(all.into_iter().cloned().collect()) }
}

fn through<'a>(map: &'a Map<String, Value>, path: &str, into: &mut Vec<&'a Value>) {
    let Some((first, rest)) = path.split_once('.') else { return };
    match map.get(first) {
        Some(Value::Object(inner)) => through(inner, rest, into),
        Some(Value::Array(items)) => {
            for item in items.iter().filter_map(Value::as_object) {
                match at(item, rest) {
                    Some(value) => into.push(value),
                    None => through(item, rest, into),
                }
            }
        }
        _ => {}
    }
}

fn is_present(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}

/// Compares as the API orders values: null first, then false, true, numbers, texts by code points.
pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    let class = |v: &Value| match v {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or(0.0).total_cmp(&y.as_f64().unwrap_or(0.0)),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => a.to_string().cmp(&b.to_string()),
        _ => class(a).cmp(&class(b)),
    }
}

impl Filter {
    /// Says whether an entity passes.
    pub(crate) fn allows(&self, entity: &Map<String, Value>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|f| f.allows(entity)),
            Self::Any(any) => any.iter().any(|f| f.allows(entity)),
            Self::Not(inner) => !inner.allows(entity),
            Self::Present(path) => match found(entity, path) {
                Cow::Borrowed(value) => is_present(value),
                Cow::Owned(Value::Array(all)) => all.iter().any(is_present),
                Cow::Owned(_) => false,
            },
            Self::Compare(path, op, value) => compare(&found(entity, path), *op, value),
            Self::In(path, values) => {
                let found = found(entity, path);
                values.iter().any(|value| compare(&found, Op::Eq, value))
            }
        }
    }

    /// Checks the values that fields are compared with, and puts times into the form in which entities show them. What no
    /// field can be equal to is a mistake, and would find nothing in silence.
    ///
    /// # Errors
    /// `INVALID_PARAMETER`.
    pub(crate) fn fit(&mut self, class: &dyn Fn(&str) -> Option<Class>) -> Result<()> {
        let wrong =
            |path: &str, what: &str| Problem::parameter(format!("`{}` must be compared with {what}", shown(path)));
        match self {
            Self::All(list) | Self::Any(list) => list.iter_mut().try_for_each(|f| f.fit(class)),
            Self::Not(inner) => inner.fit(class),
            // A part of a text may be any text.
            Self::Present(_) | Self::Compare(_, Op::Contains | Op::Starts | Op::Ends, _) => Ok(()),
            Self::Compare(path, _, value) => {
                let Some(class) = class(path) else { return Ok(()) };
                *value = class.fitted(value).map_err(|what| wrong(path, what))?;
                Ok(())
            }
            Self::In(path, values) => {
                let Some(class) = class(path) else { return Ok(()) };
                for value in values {
                    *value = class.fitted(value).map_err(|what| wrong(path, what))?;
                }
                Ok(())
            }
        }
    }

    /// The texts of which a field has one wherever this allows an entity; none: it may have others.
    pub(crate) fn only(&self, path: &str) -> Option<Vec<&str>> {
        match self {
            Self::All(list) => list.iter().find_map(|f| f.only(path)),
            Self::Any(list) => list.iter().map(|f| f.only(path)).collect::<Option<Vec<_>>>().map(|all| all.concat()),
            Self::Compare(own, Op::Eq, value) if own == path => value.as_str().map(|text| vec![text]),
            Self::In(own, values) if own == path => values.iter().map(Value::as_str).collect(),
            _ => None,
        }
    }

    /// All paths that it names.
    pub(crate) fn paths<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Self::All(list) | Self::Any(list) => list.iter().for_each(|f| f.paths(into)),
            Self::Not(inner) => inner.paths(into),
            Self::Present(path) | Self::Compare(path, ..) | Self::In(path, _) => into.push(path),
        }
    }
}

/// A list holds what one of its entries is equal to, contains, and so on.
fn compare(found: &Value, op: Op, value: &Value) -> bool {
    if let Value::Array(items) = found {
        return match op {
            Op::Ne => !items.iter().any(|item| compare(item, Op::Eq, value)),
            _ => items.iter().any(|item| compare(item, op, value)),
        };
    }
    let texts = || Some((found.as_str()?, value.as_str()?));
    let same_class = matches!(
        (found, value),
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) | (Value::Bool(_), Value::Bool(_))
    );
    match op {
        Op::Eq => order(found, value) == Ordering::Equal,
        Op::Ne => order(found, value) != Ordering::Equal,
        Op::Contains => texts().is_some_and(|(a, b)| a.contains(b)),
        Op::Starts => texts().is_some_and(|(a, b)| a.starts_with(b)),
        Op::Ends => texts().is_some_and(|(a, b)| a.ends_with(b)),
        Op::Gt => same_class && order(found, value) == Ordering::Greater,
        Op::Ge => same_class && order(found, value) != Ordering::Less,
        Op::Lt => same_class && order(found, value) == Ordering::Less,
        Op::Le => same_class && order(found, value) != Ordering::Greater,
    }
}

/// Reads a filter.
///
/// # Errors
/// `INVALID_PARAMETER`, with the place in the text.
pub(crate) fn parse(text: &str) -> Result<Filter> {
    if text.len() > BYTES_MAX {
        return Err(Problem::parameter(format!("`filter` has more than {BYTES_MAX} bytes")));
    }
    let mut parser = Parser { text, at: 0, terms: 0 };
    let filter = parser.any(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(parser.error("`and`, `or` or the end"));
    }
    Ok(filter)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    terms: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    fn error(&self, expected: &str) -> Problem {
        let found = shown(self.rest().split(' ').next().unwrap_or_default());
        let found = if found.is_empty() { "the end".to_owned() } else { format!("`{found}`") };
        Problem::parameter(format!("`filter` has {found} at offset {}; expected {expected}", self.at))
    }

    fn eat(&mut self, sign: char) -> bool {
        self.space();
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len_utf8() } else { 0 };
        found
    }

    /// Takes a word, and what follows of a path.
    fn word(&mut self) -> &'a str {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || "()\",".contains(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Takes a keyword if it stands here.
    fn keyword(&mut self, keyword: &str) -> bool {
        let before = self.at;
        if self.word().eq_ignore_ascii_case(keyword) {
            return true;
        }
        self.at = before;
        false
    }

    fn any(&mut self, depth: usize) -> Result<Filter> {
        let mut list = vec![self.all(depth)?];
        while self.keyword("or") {
            list.push(self.all(depth)?);
        }
        Ok(if list.len() == 1 { list.remove(0) } else { Filter::Any(list) })
    }

    fn all(&mut self, depth: usize) -> Result<Filter> {
        let mut list = vec![self.one(depth)?];
        while self.keyword("and") {
            list.push(self.one(depth)?);
        }
        Ok(if list.len() == 1 { list.remove(0) } else { Filter::All(list) })
    }

    fn one(&mut self, depth: usize) -> Result<Filter> {
        if depth > DEPTH_MAX {
            return Err(Problem::parameter(format!("`filter` is nested deeper than {DEPTH_MAX}")));
        }
        if self.keyword("not") {
            return Ok(Filter::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.eat('(') {
            let inner = self.any(depth + 1)?;
            return if self.eat(')') { Ok(inner) } else { Err(self.error("`)`")) };
        }
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(Problem::parameter(format!("`filter` has more than {TERMS_MAX} comparisons")));
        }
        self.term()
    }

    fn term(&mut self) -> Result<Filter> {
        let path = self.word().to_owned();
        if path.is_empty() {
            return Err(self.error("a field"));
        }
        self.space();
        let before = self.at;
        let op = self.word().to_ascii_lowercase();
        if op == "pr" {
            return Ok(Filter::Present(path));
        }
        if op == "in" {
            return self.list(path);
        }
        let Some((_, op)) = OPS.iter().find(|(word, _)| *word == op) else {
            self.at = before;
            return Err(self.error("eq, ne, co, sw, ew, gt, ge, lt, le, in or pr"));
        };
        let value = self.value()?;
        Ok(Filter::Compare(path, *op, value))
    }

    fn list(&mut self, path: String) -> Result<Filter> {
        if !self.eat('(') {
            return Err(self.error("`(`"));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            if self.eat(')') {
                return Ok(Filter::In(path, values));
            }
            if !self.eat(',') {
                return Err(self.error("`,` or `)`"));
            }
        }
    }

    fn value(&mut self) -> Result<Value> {
        self.space();
        let before = self.at;
        let value = if self.rest().starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<Value>();
            let value = values.next().and_then(Result::ok);
            self.at += values.byte_offset();
            value
        } else {
            serde_json::from_str(self.word()).ok().filter(|v: &Value| !v.is_array() && !v.is_object())
        };
        value.ok_or_else(|| {
            self.at = before;
            self.error("a text in quotes, a number, true, false or null")
        })
    }
}

#[cfg(test)]
mod tests;
