//! Conditions over fields of spans, log records and samples (`config-api` 1.6): one compiled form for ingest, queries and
//! test endpoints.
//!
//! A condition is JSON: `{"all": […]}`, `{"any": […]}`, `{"not": …}`, or a leaf `{"field", "op", "value", "caseSensitive"}`.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::matcher::{Patterns, held_bytes};

mod case;
mod glob;
mod leaf;
mod prefilter;
mod shared_tests;
mod template;
pub(crate) mod value_matcher;
mod variables;

pub use case::Case;
pub use glob::{Glob, glob_of_services};
use leaf::Leaf;
pub use prefilter::{RequiredText, Screens};
pub use shared_tests::{SharedCondition, SharedTests};
pub use template::NameTemplate;
pub use value_matcher::ConditionMatcher;
pub use variables::bind;

/// Deepest level of a condition; the outermost one is on level 1.
const DEPTH_MAX: usize = 5;
/// Most comparisons in a condition.
const LEAVES_MAX: usize = 50;
/// Longest name of a field, in bytes.
const FIELD_BYTES_MAX: usize = 256;
/// Most that the regular expressions of a condition take together, compiled, in bytes.
const PATTERNS_BYTES_MAX: usize = 4 << 20;

/// What is wrong with a condition, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    /// JSON Pointer within the condition.
    pub pointer: String,
    /// The stable word of `config-api` 1.5.
    pub code: &'static str,
    /// What is wrong, in words for people.
    pub message: String,
}

impl ConditionError {
    pub(crate) fn new(pointer: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into() }
    }
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.message)
    }
}

/// The name of a field, read once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldName {
    /// A field that every row of a signal has: `span.name`, `service.name`, `_msg` …
    Intrinsic(&'static str),
    /// The key of `resource.<key>`: an attribute of the row's resource.
    Resource(String),
    /// The key of `attributes.<key>`: an attribute of the row itself.
    Attribute(String),
    /// Anything else: looked up in the row's own attributes, then in those of its resource.
    Bare(String),
}

/// The fields that every row of a signal has.
pub const INTRINSIC: [&str; 7] =
    ["span.name", "span.kind", "span.status", "span.durationMs", "service.name", "_msg", "severity"];

impl FieldName {
    /// Reads a name: one of [`INTRINSIC`], `resource.<key>`, `attributes.<key>`, or a key alone.
    pub fn parse(text: &str) -> Self {
        if let Some(known) = INTRINSIC.iter().find(|name| **name == text) {
            return Self::Intrinsic(known);
        }
        match text.split_once('.') {
            Some(("resource", key)) if !key.is_empty() => Self::Resource(key.to_owned()),
            Some(("attributes", key)) if !key.is_empty() => Self::Attribute(key.to_owned()),
            _ => Self::Bare(text.to_owned()),
        }
    }
}

impl fmt::Display for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Intrinsic(name) => f.write_str(name),
            Self::Resource(key) => write!(f, "resource.{key}"),
            Self::Attribute(key) => write!(f, "attributes.{key}"),
            Self::Bare(key) => f.write_str(key),
        }
    }
}

/// A row on which conditions are evaluated.
pub trait Fields {
    /// Gives the text of a field; none where the row does not have it.
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>>;
}

/// What named parts of patterns held, in the order in which they were met.
pub type Captures = Vec<(String, String)>;

#[derive(Debug, Clone)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Leaf(Box<Leaf>),
}

/// A compiled condition.
#[derive(Debug, Clone)]
pub struct Condition(Node);

struct Reader {
    leaves: usize,
    patterns: Patterns,
    errors: Vec<ConditionError>,
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// All that is wrong with it, each with its place.
    pub fn parse(value: &Value) -> Result<Self, Vec<ConditionError>> {
        let patterns = Patterns::within("a condition", PATTERNS_BYTES_MAX);
        let mut reader = Reader { leaves: 0, patterns, errors: Vec::new() };
        let node = reader.node(value, "", 1);
        match node {
            Some(node) if reader.errors.is_empty() => Ok(Self(node)),
            _ => Err(reader.errors),
        }
    }

    /// Says whether a row fulfils it.
    pub fn matches(&self, row: &dyn Fields) -> bool {
        self.0.holds(row, &mut None)
    }

    /// Says whether a row fulfils it, and adds what its patterns captured.
    pub fn captures(&self, row: &dyn Fields, into: &mut Captures) -> bool {
        let before = into.len();
        let mut kept = Some(into);
        let holds = self.0.holds(row, &mut kept);
        if let (false, Some(into)) = (holds, kept) {
            into.truncate(before);
        }
        holds
    }

    /// Names of what its patterns may capture.
    pub fn captured(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.0.leaves(&mut |leaf| found.extend(leaf.captured()));
        found
    }

    /// What its regular expressions take in memory for as long as it is kept, in bytes, more or less: each is compiled
    /// once more to be measured.
    pub fn held_bytes(&self) -> usize {
        let mut bytes = 0;
        self.0.leaves(&mut |leaf| bytes += leaf.test.pattern().map_or(0, |regex| held_bytes(regex.as_str())));
        bytes
    }

    /// Gives the field of each test; one that several tests look at is there several times.
    pub fn fields(&self) -> Vec<&FieldName> {
        let mut found = Vec::new();
        self.0.leaves(&mut |leaf| found.push(&leaf.field));
        found
    }

    /// Walks the condition from the top: how others write it in a language of their own.
    pub fn visit<T>(&self, visitor: &mut dyn Visitor<T>) -> T {
        self.0.visit(visitor)
    }
}

/// What makes something else of a condition: the filter of a scan, a matcher.
pub trait Visitor<T> {
    /// All must hold.
    fn all(&mut self, parts: Vec<T>) -> T;
    /// One must hold.
    fn any(&mut self, parts: Vec<T>) -> T;
    /// It must not hold.
    fn not(&mut self, part: T) -> T;
    /// A test of a field.
    fn test(&mut self, field: &FieldName, test: &Test) -> T;
}

pub use leaf::{Operand, Test};

impl Node {
    fn holds(&self, row: &dyn Fields, captures: &mut Option<&mut Captures>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(row, captures)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(row, captures)),
            // What is not there captures nothing.
            Self::Not(part) => !part.holds(row, &mut None),
            Self::Leaf(leaf) => leaf.holds(row, captures),
        }
    }

    fn leaves<'a>(&'a self, each: &mut dyn FnMut(&'a Leaf)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.leaves(each)),
            Self::Not(part) => part.leaves(each),
            Self::Leaf(leaf) => each(leaf),
        }
    }

    fn visit<T>(&self, visitor: &mut dyn Visitor<T>) -> T {
        match self {
            Self::All(parts) => {
                let parts = parts.iter().map(|part| part.visit(visitor)).collect();
                visitor.all(parts)
            }
            Self::Any(parts) => {
                let parts = parts.iter().map(|part| part.visit(visitor)).collect();
                visitor.any(parts)
            }
            Self::Not(part) => {
                let part = part.visit(visitor);
                visitor.not(part)
            }
            Self::Leaf(leaf) => visitor.test(&leaf.field, &leaf.test),
        }
    }
}

impl Reader {
    fn error<T>(&mut self, pointer: &str, code: &'static str, message: impl Into<String>) -> Option<T> {
        self.errors.push(ConditionError::new(pointer, code, message));
        None
    }

    fn node(&mut self, value: &Value, at: &str, depth: usize) -> Option<Node> {
        if depth > DEPTH_MAX {
            return self.error(at, "LIMIT_EXCEEDED", format!("is nested deeper than {DEPTH_MAX}"));
        }
        let Value::Object(map) = value else {
            return self.error(at, "INVALID_TYPE", "must be an object with `all`, `any`, `not`, or `field` and `op`");
        };
        let word = ["all", "any", "not"].into_iter().find(|word| map.contains_key(*word));
        let Some(word) = word else { return self.leaf(map, at) };
        if let Some(other) = map.keys().find(|key| *key != word) {
            let other = other.replace('~', "~0").replace('/', "~1");
            return self.error(&format!("{at}/{other}"), "UNKNOWN_FIELD", format!("does not go with `{word}`"));
        }
        let (inner, below) = (&map[word], format!("{at}/{word}"));
        if word == "not" {
            return self.node(inner, &below, depth + 1).map(|part| Node::Not(Box::new(part)));
        }
        let Value::Array(items) = inner else {
            return self.error(&below, "INVALID_TYPE", "must be a list of conditions");
        };
        if items.is_empty() {
            return self.error(&below, "REQUIRED", "must hold at least one condition");
        }
        // Anything beyond the limit is ignored.
        let parts = items.iter().take(LEAVES_MAX + 1).enumerate();
        let parts: Vec<_> = parts.map(|(n, item)| self.node(item, &format!("{below}/{n}"), depth + 1)).collect();
        let parts: Vec<Node> = parts.into_iter().collect::<Option<_>>()?;
        Some(if word == "all" { Node::All(parts) } else { Node::Any(parts) })
    }

    fn leaf(&mut self, map: &Map<String, Value>, at: &str) -> Option<Node> {
        self.leaves += 1;
        if self.leaves > LEAVES_MAX {
            if self.leaves == LEAVES_MAX + 1 {
                return self.error("", "LIMIT_EXCEEDED", format!("has more than {LEAVES_MAX} comparisons"));
            }
            return None;
        }
        match Leaf::parse(map, at) {
            Ok(leaf) => {
                if let Some(Err(error)) = leaf.test.pattern().map(|regex| self.patterns.count(regex.as_str())) {
                    return self.error(at, "LIMIT_EXCEEDED", error.message);
                }
                Some(Node::Leaf(Box::new(leaf)))
            }
            Err(errors) => {
                self.errors.extend(errors);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A row of plain texts.
    pub(super) struct Row(pub(super) &'static [(&'static str, &'static str)]);

    impl Fields for Row {
        fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
            let name = name.to_string();
            self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| Cow::Borrowed(*value))
        }
    }

    const ROW: Row = Row(&[
        ("http.route", "/cart/42/items"),
        ("http.method", "GET"),
        ("span.durationMs", "250"),
        ("_msg", "User Ann signed in"),
        ("resource.k8s.pod", "cart-1"),
    ]);

    fn check(condition: Value, expected: bool) {
        let compiled = Condition::parse(&condition).unwrap_or_else(|e| panic!("{condition}: {e:?}"));
        assert_eq!(compiled.matches(&ROW), expected, "{condition}");
    }

    #[test]
    fn words_of_spans_as_others_write_them() {
        const SPAN: Row = Row(&[("span.kind", "server"), ("span.status", "error"), ("http.method", "get")]);
        for (field, op, value, expected) in [
            ("span.kind", "eq", json!("SERVER"), true),
            ("span.kind", "eq", json!("server"), true),
            ("span.kind", "in", json!(["CLIENT", "Server"]), true),
            ("span.kind", "ne", json!("SERVER"), false),
            ("span.kind", "eq", json!("CLIENT"), false),
            ("span.status", "eq", json!("ERROR"), true),
            ("http.method", "eq", json!("GET"), false),
        ] {
            let condition = Condition::parse(&json!({"field": field, "op": op, "value": value})).unwrap();
            assert_eq!(condition.matches(&SPAN), expected, "{field} {op} {value}");
        }
    }

    #[test]
    fn operators() {
        let leaf = |field: &str, op: &str, value: Value| json!({"field": field, "op": op, "value": value});
        check(leaf("http.method", "eq", json!("GET")), true);
        check(leaf("http.method", "eq", json!("get")), false);
        check(json!({"field": "http.method", "op": "eq", "value": "get", "caseSensitive": false}), true);
        check(leaf("http.method", "ne", json!("POST")), true);
        check(leaf("http.method", "in", json!(["POST", "GET"])), true);
        check(leaf("http.method", "in", json!(["POST"])), false);
        check(leaf("_msg", "contains", json!("Ann")), true);
        check(leaf("_msg", "startsWith", json!("User")), true);
        check(leaf("_msg", "endsWith", json!("in")), true);
        check(leaf("http.route", "glob", json!("/cart/*/items")), true);
        check(leaf("http.route", "glob", json!("/cart/*")), false);
        check(leaf("http.route", "glob", json!("/cart/**")), true);
        check(leaf("http.route", "regex", json!("/cart/[0-9]+")), true);
        check(json!({"field": "_msg", "op": "regex", "value": "^user", "caseSensitive": false}), true);
        check(leaf("span.durationMs", "gt", json!(200)), true);
        check(leaf("span.durationMs", "gt", json!(1000)), false);
        check(leaf("span.durationMs", "ge", json!(250)), true);
        check(leaf("span.durationMs", "lt", json!(250.5)), true);
        check(leaf("span.durationMs", "le", json!("30")), false);
        check(leaf("span.durationMs", "between", json!([100, 250])), true);
        check(leaf("span.durationMs", "eq", json!(250.0)), true);
        check(leaf("resource.k8s.pod", "exists", json!(true)), true);
        check(json!({"field": "resource.k8s.pod", "op": "exists"}), true);
    }

    /// A field that is not there makes every comparison false but `ne`, `not` and `exists: false`.
    #[test]
    fn missing_fields() {
        for op in ["eq", "contains", "startsWith", "endsWith", "glob", "regex", "gt", "lt"] {
            check(json!({"field": "x", "op": op, "value": "a"}), false);
        }
        check(json!({"field": "x", "op": "ne", "value": "a"}), true);
        check(json!({"field": "x", "op": "exists", "value": false}), true);
        check(json!({"not": {"field": "x", "op": "eq", "value": "a"}}), true);
    }

    #[test]
    fn words() {
        let yes = json!({"field": "http.method", "op": "eq", "value": "GET"});
        let no = json!({"field": "http.method", "op": "eq", "value": "PUT"});
        check(json!({"all": [yes, yes]}), true);
        check(json!({"all": [yes, no]}), false);
        check(json!({"any": [no, yes]}), true);
        check(json!({"not": {"any": [no, no]}}), true);
    }

    #[test]
    fn what_is_captured() {
        let condition = json!({"all": [
            {"field": "http.route", "op": "glob", "value": "/{area}/{id}/items"},
            {"field": "_msg", "op": "regex", "value": "User (?P<who>[A-Za-z]+)"},
        ]});
        let mut captures = Vec::new();
        assert!(Condition::parse(&condition).unwrap().captures(&ROW, &mut captures));
        let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(captures, [text("area", "cart"), text("id", "42"), text("who", "Ann")]);
        let failing = json!({"all": [condition, {"field": "x", "op": "eq", "value": "a"}]});
        let mut captures = Vec::new();
        assert!(!Condition::parse(&failing).unwrap().captures(&ROW, &mut captures));
        assert!(captures.is_empty());
    }

    #[test]
    fn what_is_wrong() {
        let check = |condition: Value, pointer: &str, code: &str| {
            let errors = Condition::parse(&condition).err().unwrap_or_else(|| panic!("{condition} is taken"));
            assert!(errors.iter().any(|e| e.pointer == pointer && e.code == code), "{condition} {errors:?}");
        };
        check(json!(7), "", "INVALID_TYPE");
        check(json!({}), "/field", "REQUIRED");
        check(json!({"field": "a"}), "/op", "REQUIRED");
        check(json!({"field": "a", "op": "is", "value": 1}), "/op", "INVALID_VALUE");
        check(json!({"field": "a", "op": "eq"}), "/value", "REQUIRED");
        check(json!({"field": "a", "op": "eq", "value": {}}), "/value", "INVALID_TYPE");
        check(json!({"field": "a", "op": "in", "value": "x"}), "/value", "INVALID_TYPE");
        check(json!({"field": "a", "op": "regex", "value": "("}), "/value", "INVALID_REGEX");
        check(json!({"field": "a", "op": "regex", "value": "a".repeat(1025)}), "/value", "INVALID_REGEX");
        check(json!({"field": "a", "op": "regex", "value": "(a{1000}){1000}"}), "/value", "INVALID_REGEX");
        check(json!({"field": "a", "op": "between", "value": [1]}), "/value", "INVALID_VALUE");
        check(json!({"field": "a", "op": "between", "value": [2, 1]}), "/value", "INVALID_VALUE");
        check(json!({"field": "a", "op": "between", "value": ["b", "a"]}), "/value", "INVALID_VALUE");
        check(json!({"field": "a", "op": "gt", "value": true}), "/value", "INVALID_TYPE");
        check(json!({"field": "span.durationMs", "op": "gt", "value": "abc"}), "/value", "INVALID_TYPE");
        check(json!({"field": "span.durationMs", "op": "in", "value": [1, "abc"]}), "/value", "INVALID_TYPE");
        check(json!({"field": "span.durationMs", "op": "between", "value": ["a", 5]}), "/value", "INVALID_TYPE");
        check(json!({"field": "a", "op": "eq", "value": 1, "more": 1}), "/more", "UNKNOWN_FIELD");
        check(json!({"all": []}), "/all", "REQUIRED");
        check(json!({"all": [{"field": ""}]}), "/all/0/field", "REQUIRED");
        check(json!({"all": [], "any": []}), "/any", "UNKNOWN_FIELD");
        // Variables are not known yet.
        for value in [json!(["$min", "$max"]), json!([1, 1]), json!(["$from", 5])] {
            let leaf = json!({"field": "span.durationMs", "op": "between", "value": value});
            assert!(Condition::parse(&leaf).is_ok(), "{leaf}");
        }
        let leaf = json!({"field": "a", "op": "eq", "value": 1});
        check(json!({"all": vec![leaf.clone(); 51]}), "", "LIMIT_EXCEEDED");
        let deep = (0..5).fold(leaf, |inner, _| json!({"not": inner}));
        check(deep, "/not/not/not/not/not", "LIMIT_EXCEEDED");
    }

    fn errors(condition: &Value) -> Vec<String> {
        let errors = Condition::parse(condition).err().unwrap_or_default();
        errors.into_iter().map(|error| format!("{} {} {}", error.pointer, error.code, error.message)).collect()
    }

    #[test]
    fn members_beside_a_word_are_pointed_at() {
        let leaf = json!({"field": "a", "op": "exists"});
        let told = errors(&json!({"any": [{"all": [leaf], "a/b~c": 1}]}));
        assert_eq!(told, ["/any/0/a~1b~0c UNKNOWN_FIELD does not go with `all`"]);
        assert_eq!(
            errors(&json!({"not": [leaf]})),
            ["/not INVALID_TYPE must be an object with `all`, `any`, `not`, or `field` and `op`"]
        );
        assert_eq!(errors(&json!({"all": {}})), ["/all INVALID_TYPE must be a list of conditions"]);
        assert_eq!(errors(&json!({"any": []})), ["/any REQUIRED must hold at least one condition"]);
    }

    #[test]
    fn conditions_are_bounded() {
        let leaf = json!({"field": "a", "op": "exists"});
        let within = |levels: usize| (0..levels).fold(leaf.clone(), |inner, _| json!({"not": inner}));
        assert_eq!(errors(&within(DEPTH_MAX - 1)), [""; 0]);
        let told = errors(&within(DEPTH_MAX));
        assert_eq!(told, [format!("{} LIMIT_EXCEEDED is nested deeper than 5", "/not".repeat(DEPTH_MAX))]);
        let many = |count: usize| json!({"all": vec![leaf.clone(); count]});
        assert_eq!(errors(&many(LEAVES_MAX)), [""; 0]);
        for count in [LEAVES_MAX + 1, LEAVES_MAX + 2, 10_000] {
            assert_eq!(errors(&many(count)), [" LIMIT_EXCEEDED has more than 50 comparisons"], "{count}");
        }
        let halves = json!({"any": [many(LEAVES_MAX / 2), many(LEAVES_MAX / 2 + 1)]});
        assert_eq!(errors(&halves), [" LIMIT_EXCEEDED has more than 50 comparisons"], "all of them count");
    }

    #[test]
    fn patterns_of_a_condition_are_bounded_together() {
        let leaf = |n: usize| json!({"field": "a", "op": "regex", "value": format!(r"\w{{15}}{n:04}")});
        let any = |count: usize| json!({"any": (0..count).map(leaf).collect::<Vec<_>>()});
        assert_eq!(errors(&any(3)), [""; 0]);
        let told = errors(&any(LEAVES_MAX));
        let why =
            format!("LIMIT_EXCEEDED the regular expressions of a condition take more than {PATTERNS_BYTES_MAX} bytes");
        assert!(!told.is_empty() && told.iter().all(|told| told.ends_with(&why)), "{told:?}");
        let same = json!({"any": vec![leaf(0); LEAVES_MAX]});
        assert_eq!(errors(&same), [""; 0], "the same one takes no more");
        let bytes = |condition: &Value| Condition::parse(condition).unwrap().held_bytes();
        assert!(bytes(&any(3)) > 300_000 && bytes(&json!({"field": "a", "op": "eq", "value": "x"})) == 0);
        assert!((1..32 << 10).contains(&bytes(&json!({"field": "a", "op": "glob", "value": "/cart/*"}))));
    }

    #[test]
    fn names_of_fields() {
        for (text, expected) in [
            ("span.name", FieldName::Intrinsic("span.name")),
            ("_msg", FieldName::Intrinsic("_msg")),
            ("resource.a.b", FieldName::Resource("a.b".to_owned())),
            ("attributes.span.name", FieldName::Attribute("span.name".to_owned())),
            ("resource.", FieldName::Bare("resource.".to_owned())),
            ("attributes", FieldName::Bare("attributes".to_owned())),
            ("span.Name", FieldName::Bare("span.Name".to_owned())),
            ("http.route", FieldName::Bare("http.route".to_owned())),
        ] {
            let name = FieldName::parse(text);
            assert_eq!((name.to_string().as_str(), &name), (text, &expected));
        }
    }

    #[test]
    fn captures_of_what_does_not_hold_are_taken_back() {
        let glob = |pattern: &str| json!({"field": "http.route", "op": "glob", "value": pattern});
        let run = |condition: Value| {
            let (mut captures, compiled) =
                (vec![("old".to_owned(), "1".to_owned())], Condition::parse(&condition).unwrap());
            let holds = compiled.captures(&ROW, &mut captures);
            (holds, captures.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        };
        let told = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        // The first one that holds is enough, and what is not there captures nothing.
        let any = json!({"any": [glob("/{a}/x"), glob("/{b}/**"), glob("/{c}/{d}/items")]});
        assert_eq!(run(any), (true, told(&["old=1", "b=cart"])));
        assert_eq!(run(json!({"not": glob("/{a}/x")})), (true, told(&["old=1"])));
        assert_eq!(run(json!({"all": [glob("/{a}/**"), glob("/{b}/x")]})), (false, told(&["old=1"])));
        let names = Condition::parse(&json!({"not": glob("/{a}/{b}")})).unwrap();
        assert_eq!(
            (names.captured(), names.fields()),
            (vec!["a", "b"], vec![&FieldName::Bare("http.route".to_owned())])
        );
    }
}
