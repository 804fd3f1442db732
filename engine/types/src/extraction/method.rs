//! How values are extracted from a text.

use std::borrow::Cow;
use std::iter;

use serde_json::{Map, Value};

use super::json_path::{JsonPath, nodes};
use crate::condition::{Captures, Case, ConditionError, FieldName, Fields, NameTemplate, RequiredText};
use crate::matcher::{Places, WatchedRegex, builder, held_bytes, reason};

/// Maximum length of an expression in bytes.
const EXPRESSION_BYTES_MAX: usize = 1024;
/// Default for the maximum depth to which JSON is flattened.
const DEPTH: u64 = 8;
/// Maximum number of columns in a rule, and of URL parameters that are read.
const COLUMNS_MAX: usize = 200;

/// Parts of a URL.
const PARTS: [&str; 6] = ["scheme", "host", "port", "path", "query", "fragment"];

/// A compiled method.
#[derive(Debug, Clone)]
pub(super) enum Method {
    Regex(WatchedRegex),
    JsonPath,
    Json(usize),
    Logfmt,
    Delimited(String, Vec<String>),
    /// Literal texts, each with the placeholder that follows it.
    Pattern(Vec<(String, String)>),
    UrlPart,
    Constant(String),
    Template(NameTemplate),
}

/// How a target refers to an extracted value.
#[derive(Debug, Clone)]
pub(super) enum From {
    Nothing,
    Name(String),
    /// A group of the regular expression.
    Group(usize),
    Path(JsonPath),
}

impl From {
    fn name(&self) -> Option<&str> {
        if let Self::Name(name) = self { Some(name) } else { None }
    }

    fn path(&self) -> Option<&JsonPath> {
        if let Self::Path(path) = self { Some(path) } else { None }
    }
}

/// What a method found in a text.
pub(super) enum MethodMatch<'a> {
    Nothing,
    Named(Vec<(Cow<'a, str>, Cow<'a, str>)>),
    /// The text, and the positions of the groups.
    Groups(&'a str, &'a Places),
    /// Parts of a URL, and its query string.
    Address(Vec<(&'static str, &'a str)>, &'a str),
    /// The nodes selected by the queries in a document.
    Nodes(Vec<(&'a JsonPath, Option<Value>)>),
    Whole(Cow<'a, str>),
}

type Errors = Vec<ConditionError>;

fn regex(text: &str, case: Case) -> Result<WatchedRegex, ConditionError> {
    let wrong = |why: String| ConditionError::new("/expression", "INVALID_REGEX", why);
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(wrong(format!("must have at most {EXPRESSION_BYTES_MAX} bytes")));
    }
    // Its watchdog is built from the text, so the flag must be part of it.
    let whole = format!("{}{text}", case.flag());
    let regex = builder(&whole).build().map_err(|e| wrong(reason(&e.to_string()).to_owned()))?;
    if regex.capture_names().flatten().next().is_none() {
        return Err(ConditionError::new("/expression", "INVALID_VALUE", "must have a named group"));
    }
    Ok(WatchedRegex::new(regex))
}

/// Parses `<ip> - <user> [` into literal texts, each with the placeholder after it.
fn pattern(text: &str) -> Result<Vec<(String, String)>, ConditionError> {
    let wrong = |why: &str| ConditionError::new("/expression", "INVALID_EXPR", why);
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('<') {
        let (name, behind) = rest[at + 1..].split_once('>').ok_or_else(|| wrong("`<` is not closed"))?;
        if at == 0 && !pieces.is_empty() {
            return Err(wrong("text must stand between two placeholders"));
        }
        pieces.push((rest[..at].to_owned(), name.to_owned()));
        rest = behind;
    }
    if pieces.iter().all(|(_, name)| name.is_empty() || name == "_") {
        return Err(wrong("must have a placeholder: `<name>`"));
    }
    // No placeholder follows the last text.
    pieces.push((rest.to_owned(), String::new()));
    Ok(pieces)
}

fn delimited(options: &Map<String, Value>, errors: &mut Errors) -> Option<Method> {
    let mut put = |at: &str, code, why: &str| errors.push(ConditionError::new(format!("/options/{at}"), code, why));
    let delimiter = match options.get("delimiter") {
        Some(Value::String(text)) if !text.is_empty() && text.len() <= 16 => Some(text.clone()),
        Some(Value::String(_)) => {
            put("delimiter", "OUT_OF_RANGE", "must have 1 to 16 bytes");
            None
        }
        None => {
            put("delimiter", "REQUIRED", "is required");
            None
        }
        Some(_) => {
            put("delimiter", "INVALID_TYPE", "must be a text");
            None
        }
    };
    let columns = match options.get("columns") {
        Some(Value::Array(items)) if (1..=COLUMNS_MAX).contains(&items.len()) => {
            let names: Option<Vec<String>> = items.iter().map(|v| v.as_str().map(str::to_owned)).collect();
            if names.is_none() {
                put("columns", "INVALID_TYPE", "must be a list of texts");
            }
            names
        }
        Some(Value::Array(_)) => {
            put("columns", "OUT_OF_RANGE", "must hold 1 to 200 names");
            None
        }
        None => {
            put("columns", "REQUIRED", "is required");
            None
        }
        Some(_) => {
            put("columns", "INVALID_TYPE", "must be a list of texts");
            None
        }
    };
    Some(Method::Delimited(delimiter?, columns?))
}

impl Method {
    /// What its regular expression takes in memory, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        if let Self::Regex(regex) = self { held_bytes(regex.as_str()) } else { 0 }
    }

    pub(super) fn parse(word: &str, expression: Option<&str>, options: &Map<String, Value>) -> Result<Self, Errors> {
        let mut errors = Vec::new();
        let known: &[&str] = match word {
            "delimited" => &["delimiter", "columns"],
            "regex" => &["caseSensitive"],
            "json" => &["maxDepth"],
            _ => &[],
        };
        for key in options.keys().filter(|key| !known.contains(&key.as_str())) {
            let at = format!("/options/{}", key.replace('~', "~0").replace('/', "~1"));
            errors.push(ConditionError::new(at, "UNKNOWN_FIELD", format!("`{word}` has no such option")));
        }
        let takes = matches!(word, "regex" | "pattern" | "template" | "constant");
        let expression = expression.filter(|text| !text.is_empty());
        if takes && expression.is_none() {
            errors.push(ConditionError::new("/expression", "REQUIRED", "is required for this method"));
        }
        if !takes && expression.is_some() {
            errors.push(ConditionError::new("/expression", "UNSUPPORTED", format!("does not go with `{word}`")));
        }
        let text = expression.unwrap_or_default();
        let method = match word {
            "regex" => {
                let case = match options.get("caseSensitive") {
                    None | Some(Value::Bool(true)) => Ok(Case::Sensitive),
                    Some(Value::Bool(false)) => Ok(Case::Insensitive),
                    Some(_) => {
                        Err(ConditionError::new("/options/caseSensitive", "INVALID_TYPE", "must be true or false"))
                    }
                };
                case.and_then(|case| regex(text, case)).map(Self::Regex)
            }
            "jsonPath" => Ok(Self::JsonPath),
            "json" => match options.get("maxDepth").map(|depth| depth.as_i64().ok_or(depth)) {
                None => Ok(Self::Json(DEPTH as usize)),
                Some(Ok(depth @ 1..=32)) => Ok(Self::Json(depth as usize)),
                Some(Ok(_)) => Err(ConditionError::new("/options/maxDepth", "OUT_OF_RANGE", "must be 1 to 32")),
                Some(Err(_)) => Err(ConditionError::new("/options/maxDepth", "INVALID_TYPE", "must be a whole number")),
            },
            "logfmt" => Ok(Self::Logfmt),
            "delimited" => match delimited(options, &mut errors) {
                Some(method) => Ok(method),
                None => return Err(errors),
            },
            "pattern" => pattern(text).map(Self::Pattern),
            "urlPart" => Ok(Self::UrlPart),
            "constant" => Ok(Self::Constant(text.to_owned())),
            "template" => NameTemplate::parse(text)
                .map(Self::Template)
                .map_err(|why| ConditionError::new("/expression", "INVALID_TEMPLATE", why)),
            _ => Err(ConditionError::new("/method", "INVALID_VALUE", "there is no such method")),
        };
        match method {
            Ok(method) if errors.is_empty() => Ok(method),
            Ok(_) => Err(errors),
            // A missing expression is reported only once.
            Err(_) if takes && expression.is_none() => Err(errors),
            Err(error) => {
                errors.push(error);
                Err(errors)
            }
        }
    }

    pub(super) fn reads_source(&self) -> bool {
        !matches!(self, Self::Constant(_) | Self::Template(_))
    }

    /// Parses a target's reference to a value.
    pub(super) fn from(&self, text: Option<&str>) -> Result<From, (&'static str, String)> {
        let name = match (self, text.filter(|t| !t.is_empty())) {
            (Self::Constant(_) | Self::Template(_), None) => return Ok(From::Nothing),
            (Self::Constant(_) | Self::Template(_), Some(_)) => {
                return Err(("UNSUPPORTED", "does not go with this method".to_owned()));
            }
            (_, None) => return Err(("REQUIRED", "is required".to_owned())),
            (_, Some(name)) => name,
        };
        let known = |known: &[&str], what: &str| {
            if known.contains(&name) {
                Ok(From::Name(name.to_owned()))
            } else {
                Err(("INVALID_VALUE", format!("there is no {what} `{name}`")))
            }
        };
        match self {
            Self::JsonPath => JsonPath::parse(name).map(From::Path).map_err(|why| ("INVALID_EXPR", why)),
            Self::Regex(regex) => match regex.regex().capture_names().position(|group| group == Some(name)) {
                Some(group) => Ok(From::Group(group)),
                None => Err(("INVALID_VALUE", format!("there is no group `{name}`"))),
            },
            Self::Delimited(_, columns) => {
                known(&columns.iter().map(String::as_str).filter(|c| *c != "_").collect::<Vec<_>>(), "column")
            }
            Self::Pattern(pieces) => {
                let names = pieces.iter().map(|(_, n)| n.as_str()).filter(|n| !n.is_empty() && *n != "_");
                known(&names.collect::<Vec<_>>(), "placeholder")
            }
            Self::UrlPart if name.strip_prefix("query.").is_some_and(|key| !key.is_empty()) => {
                Ok(From::Name(name.to_owned()))
            }
            Self::UrlPart => known(&PARTS, "part of an address"),
            _ => Ok(From::Name(name.to_owned())),
        }
    }

    /// The fields that it reads besides the source.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldName> {
        let template = if let Self::Template(template) = self { Some(template) } else { None };
        template.into_iter().flat_map(NameTemplate::fields)
    }

    /// What the source must contain for [`Self::run`] to find something, if known.
    pub(super) fn sought(&self, case: Case) -> Option<RequiredText> {
        match self {
            Self::Regex(regex) => RequiredText::by_pattern(regex.as_str(), case),
            // All texts between placeholders must occur; the longest is the most selective.
            Self::Pattern(pieces) => {
                RequiredText::part(pieces.iter().map(|(piece, _)| piece.as_str()).max_by_key(|piece| piece.len())?)
            }
            _ => None,
        }
    }

    /// Tells whether [`Self::run`] would find something.
    pub(super) fn finds(&self, source: &str, places: &mut Option<Places>, row: &dyn Fields) -> bool {
        match self {
            Self::Regex(regex) => regex.is_match(source),
            Self::Constant(_) | Self::Template(_) => true,
            Self::JsonPath | Self::Json(_) => is_tree(source) && nodes(source, Vec::new()).is_some(),
            Self::Logfmt | Self::Delimited(..) | Self::Pattern(_) | Self::UrlPart => {
                self.run(source, iter::empty(), places, row).matched()
            }
        }
    }

    /// Extracts what targets refer to (`wanted`) from a text; `places` is a buffer of this method.
    pub(super) fn run<'a>(
        &'a self,
        source: &'a str,
        wanted: impl Iterator<Item = &'a From> + Clone,
        places: &'a mut Option<Places>,
        row: &dyn Fields,
    ) -> MethodMatch<'a> {
        match self {
            Self::Regex(regex) => {
                let places = places.get_or_insert_with(|| regex.group_places());
                if regex.find(source, 0, places) { MethodMatch::Groups(source, places) } else { MethodMatch::Nothing }
            }
            Self::JsonPath if is_tree(source) => {
                nodes(source, wanted.filter_map(From::path).collect()).map_or(MethodMatch::Nothing, MethodMatch::Nodes)
            }
            Self::JsonPath => MethodMatch::Nothing,
            Self::Json(depth) => tree(source).map_or(MethodMatch::Nothing, |value| {
                let mut flat = Vec::new();
                flatten(&value, &mut String::new(), *depth, &mut |name, value| {
                    if wanted.clone().any(|from| from.name() == Some(name)) {
                        flat.push((Cow::Owned(name.to_owned()), Cow::Owned(plain(value).into_owned())));
                    }
                });
                MethodMatch::Named(flat)
            }),
            Self::Logfmt => MethodMatch::of(logfmt(source)),
            Self::Delimited(delimiter, columns) => {
                let cells = source.split(delimiter.as_str()).map(|cell| Cow::Borrowed(cell.trim()));
                let named = columns.iter().zip(cells).filter(|(name, _)| *name != "_");
                MethodMatch::of(named.map(|(name, cell)| (Cow::Borrowed(name.as_str()), cell)).collect())
            }
            Self::Pattern(pieces) => between(source, pieces),
            Self::UrlPart => parts_of(source),
            Self::Constant(text) => MethodMatch::Whole(Cow::Borrowed(text)),
            Self::Template(template) => MethodMatch::Whole(Cow::Owned(template.render(row, &Captures::new()))),
        }
    }
}

impl<'a> MethodMatch<'a> {
    fn of(named: Vec<(Cow<'a, str>, Cow<'a, str>)>) -> Self {
        if named.is_empty() { Self::Nothing } else { Self::Named(named) }
    }

    pub(super) fn matched(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// The text that a target refers to.
    pub(super) fn get(&self, from: &From) -> Option<Cow<'_, str>> {
        match (self, from) {
            (Self::Whole(text), _) => Some(Cow::Borrowed(text)),
            (Self::Named(all), From::Name(name)) => {
                all.iter().find(|(known, _)| known == name).map(|(_, value)| Cow::Borrowed(&**value))
            }
            (Self::Groups(text, places), From::Group(group)) => {
                places.get(*group).map(|(from, to)| Cow::Borrowed(&text[from..to]))
            }
            (Self::Address(parts, query), From::Name(name)) => {
                let found = match name.strip_prefix("query.") {
                    Some(key) => pairs(query).find(|(known, _)| *known == key),
                    None => parts.iter().find(|(known, _)| *known == name).copied(),
                };
                found.map(|(_, value)| Cow::Borrowed(value))
            }
            (Self::Nodes(all), From::Path(path)) => {
                let found = all.iter().find(|(known, _)| *known == path).and_then(|(_, node)| node.as_ref());
                found.filter(|node| !node.is_null()).map(plain)
            }
            _ => None,
        }
    }
}

fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Whether a text, if it is JSON, is an object or a list.
fn is_tree(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Parses JSON, if the text is an object or a list.
fn tree(text: &str) -> Option<Value> {
    is_tree(text).then(|| serde_json::from_str(text).ok()).flatten()
}

/// Flattens a value: calls a function for each leaf with its path; `name` is the path of the value.
fn flatten(value: &Value, name: &mut String, depth: usize, take: &mut dyn FnMut(&str, &Value)) {
    match value {
        Value::Object(map) if depth > 0 && !map.is_empty() => {
            let end = name.len();
            for (key, inner) in map {
                if end > 0 {
                    name.push('.');
                }
                name.push_str(key);
                flatten(inner, name, depth - 1, take);
                name.truncate(end);
            }
        }
        Value::Null => {}
        other => take(name, other),
    }
}

fn logfmt(text: &str) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let (mut found, mut rest) = (Vec::new(), text.trim_start());
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        let Some(value) = behind.strip_prefix('=') else {
            rest = behind.trim_start();
            continue;
        };
        if value.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
            if let Some(Ok(text)) = values.next() {
                rest = value[values.byte_offset()..].trim_start();
                found.push((Cow::Borrowed(key), Cow::Owned(text)));
                continue;
            }
        }
        let end = value.find(char::is_whitespace).unwrap_or(value.len());
        found.push((Cow::Borrowed(key), Cow::Borrowed(&value[..end])));
        rest = value[end..].trim_start();
    }
    found.retain(|(key, _)| !key.is_empty());
    found
}

/// Finds the texts one after the other; what lies between them belongs to the placeholders.
fn between<'a>(text: &'a str, pieces: &'a [(String, String)]) -> MethodMatch<'a> {
    let Some((first, _)) = pieces.first() else { return MethodMatch::Nothing };
    let Some(at) = text.find(first.as_str()) else { return MethodMatch::Nothing };
    let (mut rest, mut found) = (&text[at + first.len()..], Vec::new());
    for pair in pieces.windows(2) {
        let (name, next) = (&pair[0].1, &pair[1].0);
        let end = if next.is_empty() { Some(rest.len()) } else { rest.find(next.as_str()) };
        let Some(end) = end else { return MethodMatch::Nothing };
        if !name.is_empty() && name != "_" {
            found.push((Cow::Borrowed(name.as_str()), Cow::Borrowed(&rest[..end])));
        }
        rest = &rest[(end + next.len()).min(rest.len())..];
    }
    MethodMatch::of(found)
}

/// Splits a URL; a plain path has neither scheme nor host.
fn parts_of<'a>(text: &'a str) -> MethodMatch<'a> {
    let mut found = Vec::new();
    let mut put = |name: &'static str, value: &'a str| {
        if !value.is_empty() {
            found.push((name, value));
        }
    };
    let (rest, fragment) = text.trim().split_once('#').unwrap_or((text.trim(), ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match rest.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, behind)) => {
            put("scheme", scheme);
            let (authority, path) = behind.find('/').map_or((behind, ""), |at| behind.split_at(at));
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            match host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) {
                Some((host, port)) => {
                    put("host", host);
                    put("port", port);
                }
                None => put("host", host),
            }
            path
        }
        None if rest.starts_with('/') => rest,
        None => return MethodMatch::Nothing,
    };
    put("path", path);
    put("query", query);
    put("fragment", fragment);
    if found.is_empty() { MethodMatch::Nothing } else { MethodMatch::Address(found, query) }
}

/// Whether a text may be the scheme of a URL: a path may contain a URL.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// Keys and values of a URL's query string.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(COLUMNS_MAX);
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests;
