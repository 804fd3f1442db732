//! The options of globals and integrations as tables: each field has a name and a shape, which says what values it
//! accepts.

pub mod http;

use std::collections::BTreeMap;

use quiver_types::time::duration;
use quiver_yaml::problem::{Code, Problem, Problems};
use quiver_yaml::{Fields, Node, NodeKind, pointer};

use crate::template::{MESSAGE_FUNCTIONS, Templates};

/// What a field takes.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A text; where it is a template it is parsed when it is used.
    Text,
    /// A text that is not shown.
    Secret,
    /// An address over HTTP.
    Url,
    /// An address that is not shown.
    SecretUrl,
    /// An address that may be a template, and is not shown.
    TemplateUrl,
    /// Address of a proxy.
    ProxyUrl,
    /// An address as `host:port`, without a scheme.
    HostPort,
    /// True or false.
    Truth,
    /// A whole number.
    Integer,
    /// A whole number from 0.
    Count,
    /// A duration as Prometheus writes them.
    Duration,
    /// A duration as Go writes them.
    GoDuration,
    /// One of some words.
    Word(&'static [&'static str]),
    /// Texts by name.
    TextMap,
    /// A list of texts.
    Texts,
    /// Lists of texts by name, none of which is shown.
    SecretLists,
    /// A value of any type, kept as JSON.
    Any,
    /// Options of their own.
    Object(&'static Schema),
    /// A list of such.
    Objects(&'static Schema),
    /// Such by name.
    ObjectMap(&'static Schema),
    /// A text, or options of which this one is the text.
    TextOr(&'static str, &'static Schema),
}

/// A field of an object: its key, and what may stand there.
#[derive(Debug, Clone, Copy)]
pub struct FieldDef {
    /// Its key in YAML.
    pub name: &'static str,
    /// Which values it accepts.
    pub shape: Shape,
    /// Its default, written as in YAML; empty: it has none.
    pub default: &'static str,
}

/// A table of fields, and what must hold between them.
#[derive(Debug)]
pub struct Schema {
    /// The fields that may be there, others are refused.
    pub fields: &'static [FieldDef],
    /// Says what is wrong with the whole.
    pub check: fn(&Options) -> Result<(), String>,
}

/// Makes a field without default.
pub(crate) const fn field(name: &'static str, shape: Shape) -> FieldDef {
    FieldDef { name, shape, default: "" }
}

/// Makes a text with a default.
pub(crate) const fn text(name: &'static str, default: &'static str) -> FieldDef {
    FieldDef { name, shape: Shape::Text, default }
}

/// Says that nothing is wrong.
#[expect(clippy::unnecessary_wraps, reason = "one of the checks of integrations, which share a signature")]
pub(crate) fn sound(_: &Options) -> Result<(), String> {
    Ok(())
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// Text, word, address.
    Text(String),
    /// `true` or `false`.
    Truth(bool),
    /// A whole number, whatever its unit is.
    Integer(i64),
    /// A duration in nanoseconds.
    Duration(i64),
    /// Texts by name.
    TextMap(BTreeMap<String, String>),
    /// List of texts.
    Texts(Vec<String>),
    /// A value of any type, as JSON.
    Any(serde_json::Value),
    /// Options of an object, like `http_config`.
    Object(Options),
    /// List of options.
    Objects(Vec<Options>),
    /// Options by name.
    ObjectMap(BTreeMap<String, Options>),
}

/// Bytes that an entry of a list or mapping takes besides its texts.
const ENTRY_BYTES: usize = 64;

impl OptionValue {
    /// The approximate memory of its texts, in bytes.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Truth(_) | Self::Integer(_) | Self::Duration(_) => 0,
            Self::TextMap(map) => map.iter().map(|(name, text)| ENTRY_BYTES + name.len() + text.len()).sum(),
            Self::Texts(texts) => texts.iter().map(|text| ENTRY_BYTES + text.len()).sum(),
            Self::Any(value) => value.to_string().len(),
            Self::Object(options) => options.text_bytes(),
            Self::Objects(list) => list.iter().map(|options| ENTRY_BYTES + options.text_bytes()).sum(),
            Self::ObjectMap(map) => {
                map.iter().map(|(name, options)| ENTRY_BYTES + name.len() + options.text_bytes()).sum()
            }
        }
    }
}

/// Values of fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    values: BTreeMap<&'static str, OptionValue>,
    /// Names of fields that were written, be it as their default.
    given: Vec<&'static str>,
}

impl Options {
    /// The approximate memory of its texts, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        self.values.values().map(OptionValue::text_bytes).sum()
    }

    /// Gives a text; the empty one where there is none.
    pub fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(OptionValue::Text(text)) => text,
            _ => "",
        }
    }

    /// Says whether a text stands there.
    pub fn has(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// Says whether a field was written, or inherited.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(&name)
    }

    /// Gives a truth value.
    pub fn truth(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some(OptionValue::Truth(true)))
    }

    /// Gives a whole number, 0 where there is none.
    pub fn integer(&self, name: &str) -> i64 {
        match self.values.get(name) {
            Some(OptionValue::Integer(value)) => *value,
            _ => 0,
        }
    }

    /// Gives a duration in nanoseconds.
    pub fn duration_ns(&self, name: &str) -> Option<i64> {
        match self.values.get(name) {
            Some(OptionValue::Duration(value)) => Some(*value),
            _ => None,
        }
    }

    /// Gives options within.
    pub fn object(&self, name: &str) -> Option<&Self> {
        match self.values.get(name) {
            Some(OptionValue::Object(options)) => Some(options),
            _ => None,
        }
    }

    /// Gives a list of options within.
    pub fn objects(&self, name: &str) -> &[Self] {
        match self.values.get(name) {
            Some(OptionValue::Objects(items)) => items,
            _ => &[],
        }
    }

    /// Gives texts by name.
    pub fn text_map(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        match self.values.get(name) {
            Some(OptionValue::TextMap(map)) => Some(map),
            _ => None,
        }
    }

    /// Names a field of which only the mark of a secret is known: the secret itself is not stored any more.
    pub fn masked(&self) -> Option<&'static str> {
        let is_mark = |text: &String| text == SECRET;
        self.values.iter().find_map(|(name, value)| match value {
            OptionValue::Text(text) => is_mark(text).then_some(*name),
            OptionValue::TextMap(map) => map.values().any(is_mark).then_some(*name),
            OptionValue::Texts(texts) => texts.iter().any(is_mark).then_some(*name),
            OptionValue::Any(value) => is_masked(value).then_some(*name),
            OptionValue::Object(options) => options.masked(),
            OptionValue::Objects(all) => all.iter().find_map(Self::masked),
            OptionValue::ObjectMap(map) => map.values().find_map(Self::masked),
            OptionValue::Truth(_) | OptionValue::Integer(_) | OptionValue::Duration(_) => None,
        })
    }

    /// Gives any value.
    pub fn value(&self, name: &str) -> Option<&OptionValue> {
        self.values.get(name)
    }

    /// Sets a value.
    pub fn set(&mut self, name: &'static str, value: OptionValue) {
        self.values.insert(name, value);
        if !self.given.contains(&name) {
            self.given.push(name);
        }
    }

    /// Takes a text from elsewhere where there is none.
    pub(crate) fn inherit(&mut self, name: &'static str, from: &Self, other: &str) {
        if !self.has(name) && from.has(other) {
            self.set(name, OptionValue::Text(from.text(other).to_owned()));
        }
    }

    /// Takes any value from elsewhere where there is none.
    pub(crate) fn inherit_value(&mut self, name: &'static str, from: &Self, other: &str) {
        if !self.values.contains_key(name)
            && let Some(value) = from.values.get(other)
        {
            self.set(name, value.clone());
        }
    }

    /// Refuses more than one of some texts.
    pub(crate) fn at_most_one(&self, names: &[&str]) -> Result<(), String> {
        if names.iter().filter(|name| self.has(name)).count() > 1 {
            return Err(format!("at most one of {} must be configured", names.join(" & ")));
        }
        Ok(())
    }

    /// Refuses none or more than one of two texts.
    pub(crate) fn exactly_one(&self, names: &[&str]) -> Result<(), String> {
        if !names.iter().any(|name| self.has(name)) {
            return Err(format!("one of {} must be configured", names.join(" or ")));
        }
        self.at_most_one(names)
    }
}

impl Schema {
    /// Makes options that hold the defaults.
    pub fn defaults(&self) -> Options {
        let mut out = Options::default();
        for field in self.fields.iter().filter(|f| !f.default.is_empty()) {
            let value = match field.shape {
                Shape::Truth => OptionValue::Truth(field.default == "true"),
                Shape::Duration => OptionValue::Duration(duration::parse(field.default).unwrap_or(0) * 1_000_000),
                Shape::GoDuration => OptionValue::Duration(duration::parse_go(field.default).unwrap_or(0)),
                _ => OptionValue::Text(field.default.to_owned()),
            };
            out.values.insert(field.name, value);
        }
        out
    }

    /// Gives options as JSON, as they are written.
    pub(crate) fn json(&self, node: &Node) -> serde_json::Value {
        let NodeKind::Map(pairs) = &node.kind else { return node.to_json() };
        let shape = |name: &str| self.fields.iter().find(|f| f.name == name).map_or(Shape::Any, |f| f.shape);
        let each = pairs.iter().map(|(key, value)| (key.text.clone(), shaped(value, shape(&key.text))));
        serde_json::Value::Object(each.collect())
    }

    /// Reads options over the defaults, and checks the whole.
    pub fn read(&'static self, node: &Node, path: &str, problems: &mut Problems) -> Options {
        let mut out = self.defaults();
        let Some(mut fields) = Fields::new(node, path, problems) else { return out };
        let before = problems.len();
        for field in self.fields {
            let Some(node) = fields.some(field.name) else { continue };
            let path = fields.path_of(field.name);
            match read_value(field.shape, node, &path, problems) {
                Ok(value) => out.set(field.name, value),
                Err(problem) => problems.push(problem),
            }
        }
        fields.finish(problems);
        // What follows from a field that could not be read says nothing new.
        if problems.len() == before
            && let Err(e) = (self.check)(&out)
        {
            problems.push(node.problem(path, Code::InvalidValue, e));
        }
        out
    }
}

fn is_masked(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => text == SECRET,
        serde_json::Value::Array(items) => items.iter().any(is_masked),
        serde_json::Value::Object(members) => members.values().any(is_masked),
        _ => false,
    }
}

fn read_value(shape: Shape, node: &Node, path: &str, problems: &mut Problems) -> Result<OptionValue, Problem> {
    let wrong = |wanted: &str| {
        let shown = node.text().map_or_else(|| node.kind_name().to_owned(), |text| format!("`{text}`"));
        node.problem(path, Code::InvalidType, format!("wanted {wanted}, got {shown}"))
    };
    let text = || node.text().map(str::to_owned).ok_or_else(|| wrong("a text"));
    let invalid = |e: String| node.problem(path, Code::InvalidValue, e);
    Ok(match shape {
        Shape::Text | Shape::Secret => OptionValue::Text(text()?),
        Shape::Url => OptionValue::Text(text().and_then(|t| check_url(&t).map(|()| t).map_err(invalid))?),
        Shape::SecretUrl => {
            let text = text()?;
            if text != SECRET {
                // The address itself is not told.
                check_url(&text).map_err(invalid)?;
            }
            OptionValue::Text(text)
        }
        Shape::TemplateUrl => {
            OptionValue::Text(text().and_then(|t| check_template_url(&t).map(|()| t).map_err(invalid))?)
        }
        Shape::ProxyUrl => {
            let text = text()?;
            if text.contains(|c: char| c.is_control() || c == ' ') || text.starts_with(':') {
                return Err(invalid("invalid proxy URL".to_owned()));
            }
            OptionValue::Text(text)
        }
        Shape::HostPort => OptionValue::Text(text().and_then(|t| check_host_port(&t).map(|()| t).map_err(invalid))?),
        Shape::Truth => OptionValue::Truth(node.truth().ok_or_else(|| wrong("true or false"))?),
        Shape::Integer => OptionValue::Integer(node.whole().ok_or_else(|| wrong("a whole number"))?),
        Shape::Count => {
            let value = node.whole().filter(|i| *i >= 0);
            OptionValue::Integer(value.ok_or_else(|| wrong("a whole number from 0"))?)
        }
        Shape::Duration => {
            let ms = duration::parse(&text()?).map_err(|e| node.problem(path, Code::InvalidDuration, e))?;
            OptionValue::Duration(ms.saturating_mul(1_000_000))
        }
        Shape::GoDuration => {
            if let Some(nanos) = node.integer() {
                OptionValue::Duration(i64::try_from(nanos).map_err(|_| wrong("a duration"))?)
            } else {
                let nanos = duration::parse_go(&text()?).map_err(|e| node.problem(path, Code::InvalidDuration, e))?;
                OptionValue::Duration(nanos)
            }
        }
        Shape::Word(words) => {
            let text = text()?;
            if !words.contains(&text.as_str()) {
                return Err(invalid(format!("`{text}` is none of {}", words.join(", "))));
            }
            OptionValue::Text(text)
        }
        Shape::TextMap => OptionValue::TextMap(text_map(node, path, problems).ok_or_else(|| wrong("a mapping"))?),
        Shape::Texts => match &node.kind {
            NodeKind::List(items) => {
                let read = |(i, item): (usize, &Node)| match item.text() {
                    Some(text) => Ok(text.to_owned()),
                    None => Err(item.problem(&pointer(path, i), Code::InvalidType, "wanted a text")),
                };
                OptionValue::Texts(items.iter().enumerate().map(read).collect::<Result<_, _>>()?)
            }
            _ => return Err(wrong("a list")),
        },
        Shape::SecretLists => OptionValue::Any(text_lists(node, path, &wrong("a mapping"))?),
        Shape::Any => OptionValue::Any(node.to_json()),
        Shape::Object(schema) => OptionValue::Object(schema.read(node, path, problems)),
        Shape::Objects(schema) => match &node.kind {
            NodeKind::List(items) => {
                let read = |(i, item): (usize, &Node)| schema.read(item, &pointer(path, i), problems);
                OptionValue::Objects(items.iter().enumerate().map(read).collect())
            }
            _ => return Err(wrong("a list")),
        },
        Shape::ObjectMap(schema) => match &node.kind {
            NodeKind::Map(pairs) => {
                let read = |(key, value): &(quiver_yaml::Key, Node)| {
                    (key.text.clone(), schema.read(value, &pointer(path, &key.text), problems))
                };
                OptionValue::ObjectMap(pairs.iter().map(read).collect())
            }
            _ => return Err(wrong("a mapping")),
        },
        Shape::TextOr(name, schema) => match node.text() {
            Some(text) => {
                let mut options = schema.defaults();
                options.set(name, OptionValue::Text(text.to_owned()));
                OptionValue::Object(options)
            }
            None => OptionValue::Object(schema.read(node, path, problems)),
        },
    })
}

/// What stands for a secret where it is shown.
pub const SECRET: &str = "<secret>";

fn text_map(node: &Node, path: &str, problems: &mut Problems) -> Option<BTreeMap<String, String>> {
    let NodeKind::Map(pairs) = &node.kind else { return None };
    let mut out = BTreeMap::new();
    for (key, value) in pairs {
        match value.text() {
            Some(text) => drop(out.insert(key.text.clone(), text.to_owned())),
            None => problems.push(value.problem(&pointer(path, &key.text), Code::InvalidType, "wanted a text")),
        }
    }
    Some(out)
}

/// Gives lists of texts by name as JSON; whatever else it is, is `wrong`.
fn text_lists(node: &Node, path: &str, wrong: &Problem) -> Result<serde_json::Value, Problem> {
    let NodeKind::Map(pairs) = &node.kind else { return Err(wrong.clone()) };
    for (key, value) in pairs {
        let at = pointer(path, &key.text);
        let NodeKind::List(items) = &value.kind else {
            return Err(value.problem(&at, Code::InvalidType, "wanted a list"));
        };
        if let Some((i, item)) = items.iter().enumerate().find(|(_, item)| item.text().is_none()) {
            return Err(item.problem(&pointer(&at, i), Code::InvalidType, "wanted a text"));
        }
    }
    Ok(texts(node))
}

/// Gives texts as JSON, within lists and mappings too: what looks like a number is a text all the same.
pub(crate) fn texts(node: &Node) -> serde_json::Value {
    use serde_json::Value as Json;
    match &node.kind {
        NodeKind::Null => Json::Null,
        NodeKind::Scalar { text, .. } => Json::String(text.clone()),
        NodeKind::List(items) => Json::Array(items.iter().map(texts).collect()),
        NodeKind::Map(pairs) => {
            Json::Object(pairs.iter().map(|(key, value)| (key.text.clone(), texts(value))).collect())
        }
    }
}

/// Gives a value as JSON by what its field takes, so that `012` and `yes` stay texts where texts are wanted.
fn shaped(node: &Node, shape: Shape) -> serde_json::Value {
    match (shape, &node.kind) {
        (Shape::Truth | Shape::Integer | Shape::Count | Shape::Any, _) => node.to_json(),
        // Nanoseconds.
        (Shape::GoDuration, _) if node.integer().is_some() => node.to_json(),
        (Shape::Object(schema) | Shape::TextOr(_, schema), NodeKind::Map(_)) => schema.json(node),
        (Shape::Objects(schema), NodeKind::List(items)) => items.iter().map(|item| schema.json(item)).collect(),
        (Shape::ObjectMap(schema), NodeKind::Map(pairs)) => {
            serde_json::Value::Object(pairs.iter().map(|(key, v)| (key.text.clone(), schema.json(v))).collect())
        }
        _ => texts(node),
    }
}

/// Checks an address as Alertmanager does.
pub(crate) fn check_url(text: &str) -> Result<(), String> {
    if text.contains(char::is_control) {
        return Err("invalid control character in URL".to_owned());
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => {
            (scheme, rest)
        }
        Some((before, _)) if !before.contains('/') && !before.is_empty() => {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
        _ => ("", text),
    };
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "http" && scheme != "https" {
        return Err(format!("unsupported scheme {} for URL", crate::text::quote(&scheme)));
    }
    let Some(rest) = rest.strip_prefix("//") else { return Err("missing host for URL".to_owned()) };
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.is_empty() {
        return Err("missing host for URL".to_owned());
    }
    if host.contains(|c: char| " <>\"\\^`{|}".contains(c)) {
        return Err("invalid character in host name".to_owned());
    }
    let port = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("missing ']' in host")?.1,
        None => host.find(':').map_or("", |i| &host[i..]),
    };
    let is_port = port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    if !port.is_empty() && !is_port {
        return Err(format!("invalid port {} after host", crate::text::quote(port)));
    }
    let path = rest.split(['?', '#']).next().unwrap_or("");
    let bytes = path.as_bytes();
    let escape_is_bad = |i: usize| bytes.get(i + 1..i + 3).is_none_or(|d| !d.iter().all(u8::is_ascii_hexdigit));
    if bytes.iter().enumerate().any(|(i, b)| *b == b'%' && escape_is_bad(i)) {
        return Err("invalid URL escape".to_owned());
    }
    Ok(())
}

/// Says whether a text is a template, which then must parse.
pub(crate) fn is_template(text: &str) -> Result<bool, String> {
    if !text.contains("{{") {
        return Ok(false);
    }
    Templates::new(MESSAGE_FUNCTIONS).add("", text).map(|()| true).map_err(|e| e.to_string())
}

fn check_template_url(text: &str) -> Result<(), String> {
    if text.is_empty() || text == SECRET || is_template(text).map_err(|e| format!("invalid template syntax: {e}"))? {
        return Ok(());
    }
    check_url(text).map_err(|e| format!("invalid URL: {e}"))
}

fn check_host_port(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    match crate::template::split_host_port(text) {
        None => Err(format!("address {text}: missing port in address")),
        Some((_, "")) => Err(format!("address {}: port cannot be empty", crate::text::quote(text))),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
