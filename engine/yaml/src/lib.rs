//! YAML that people write, as a tree in which each node knows its place in the file.
//!
//! `tree_builder` builds the tree from the parser's events, with our rules: duplicate keys and foreign tags are errors, anchors
//! and merge keys are expanded, sizes are limited. `fields` reads a mapping into typed values and reports fields that
//! were never asked for, `writer` produces text. `problem` describes an error and its place.
//!
//! Rule files, alerting policies, models of analytics and configuration in YAML are all read by this crate.

mod fields;
mod indents;
pub mod problem;
mod tree_builder;
mod writer;

use serde_json::Value as Json;

use crate::problem::{Code, Place, Problem};

pub use fields::{Fields, texts};
pub use tree_builder::{COPIED_BYTES_MAX, DEPTH_MAX, NODES_MAX, read, read_first};
pub use writer::write;

/// A value of a document, with what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where the value begins in the text.
    pub place: Place,
    /// What it is.
    pub kind: NodeKind,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// Nothing: empty, `~`, `null`.
    Null,
    /// A scalar as written, unquoted. `plain`: without quotes, so that it may stand for a number or a truth value.
    Scalar {
        /// The text without quotes, with escapes and folded lines resolved.
        text: String,
        /// Whether it stands without quotes, so that it may be a number or a truth value.
        plain: bool,
        /// How the text lies in the file.
        layout: ScalarLayout,
    },
    /// A sequence, in the order of the text.
    List(Vec<Node>),
    /// A mapping, in the order of the text; keys are texts.
    Map(Vec<(Key, Node)>),
}

/// How the text of a scalar lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarLayout {
    /// As it is, from the place on.
    Bare,
    /// As it is, behind a quote.
    Quoted,
    /// A block whose lines are those of the file; its place is where the first line that is not empty begins.
    Block,
    /// Folded, or with escapes.
    Other,
}

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The text without quotes.
    pub text: String,
    /// Whether it stands without quotes.
    pub plain: bool,
    /// Where it stands.
    pub place: Place,
}

impl Key {
    /// Says whether it is a text, and neither a number nor a truth value.
    pub fn is_text(&self) -> bool {
        let kind = NodeKind::Scalar { text: self.text.clone(), plain: self.plain, layout: ScalarLayout::Other };
        let node = Node { place: self.place, kind };
        node.truth().is_none() && node.number().is_none()
    }
}

impl Node {
    /// Says whether it is nothing.
    pub fn is_null(&self) -> bool {
        self.kind == NodeKind::Null
    }

    /// Gives the word for what it is.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Scalar { .. } => "a scalar",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a mapping",
        }
    }

    /// Finds the value of a key.
    pub fn get(&self, name: &str) -> Option<&Node> {
        match &self.kind {
            NodeKind::Map(pairs) => pairs.iter().find(|(key, _)| key.text == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Gives the text of a scalar; nothing is the empty text, as everywhere in Go's YAML.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Null => Some(""),
            NodeKind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Gives the truth value that a plain scalar stands for; YAML 1.1's words count, as in Go.
    pub fn truth(&self) -> Option<bool> {
        match &self.kind {
            NodeKind::Scalar { text, plain: true, .. } => match text.as_str() {
                "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => Some(true),
                "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Gives the whole number that a plain scalar stands for: decimal, `0x`, `0o` or `0` alone, `0b`, with `_` between
    /// digits.
    pub fn integer(&self) -> Option<i128> {
        match &self.kind {
            NodeKind::Scalar { text, plain: true, .. } => integer(text),
            _ => None,
        }
    }

    /// Gives the number that a plain scalar stands for.
    pub fn number(&self) -> Option<f64> {
        let NodeKind::Scalar { text, plain: true, .. } = &self.kind else { return None };
        if let Some(whole) = integer(text) {
            return Some(whole as f64);
        }
        match text.as_str() {
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
            // What begins with no part of a number is a text, in Go, too.
            text if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => None,
            // The words of Rust for infinities and no number are texts in YAML.
            text if text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) => None,
            text => text.replace('_', "").parse().ok(),
        }
    }

    /// Gives the whole number that a field of such takes a plain scalar for: as in Go, a number with a fraction loses it.
    pub fn whole(&self) -> Option<i64> {
        match self.integer() {
            Some(whole) => i64::try_from(whole).ok(),
            None => self.number().filter(|n| n.abs() < i64::MAX as f64).map(|n| n as i64),
        }
    }

    /// Gives it as JSON.
    pub fn to_json(&self) -> Json {
        match &self.kind {
            NodeKind::Null => Json::Null,
            NodeKind::Scalar { text, .. } => {
                if let Some(truth) = self.truth() {
                    return Json::Bool(truth);
                }
                if let Some(whole) = self.integer() {
                    if let Ok(int) = i64::try_from(whole) {
                        return int.into();
                    }
                    if let Ok(uint) = u64::try_from(whole) {
                        return uint.into();
                    }
                }
                self.number()
                    .and_then(serde_json::Number::from_f64)
                    .map_or_else(|| Json::String(text.clone()), Json::Number)
            }
            NodeKind::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            NodeKind::Map(pairs) => {
                Json::Object(pairs.iter().map(|(key, value)| (key.text.clone(), value.to_json())).collect())
            }
        }
    }

    /// Makes a problem about it.
    pub fn problem(&self, path: &str, code: Code, message: impl Into<String>) -> Problem {
        Problem { place: self.place, path: path.to_owned(), code, message: message.into() }
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let digits = digits.replace('_', "");
    let radix = |rest: &str, radix| i128::from_str_radix(rest, radix).ok().filter(|_| !rest.starts_with(['+', '-']));
    let value = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => radix(&digits[2..], 16)?,
        [b'0', b'o' | b'O', ..] => radix(&digits[2..], 8)?,
        [b'0', b'b' | b'B', ..] => radix(&digits[2..], 2)?,
        [b'0', _, ..] => radix(&digits[1..], 8)?,
        _ => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// Writes a part of a JSON pointer.
pub fn pointer(path: &str, part: impl std::fmt::Display) -> String {
    format!("{path}/{}", part.to_string().replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars() {
        let one = |text: &str| read(text).expect(text).remove(0);
        let check = |text: &str, expected: Option<f64>| assert_eq!(one(text).number(), expected, "{text}");
        check("12", Some(12.0));
        check("-0x1f", Some(-31.0));
        check("1_000", Some(1000.0));
        check("1e3", Some(1000.0));
        check("012", Some(10.0));
        check("-0_12", Some(-10.0));
        check("0128", Some(128.0));
        check("0X1F", Some(31.0));
        check("0O17", Some(15.0));
        check("0", Some(0.0));
        check("_1", None);
        check("e5", None);
        check(".inf", Some(f64::INFINITY));
        check("inf", None);
        check("'12'", None);
        check("1m", None);
        assert_eq!(["7", "1.0", "1.5", "1e2"].map(|text| one(text).whole()), [7, 1, 1, 100].map(Some));
        assert_eq!(["'7'", "1m", ".nan", "1e30"].map(|text| one(text).whole()), [None; 4]);
        assert_eq!(one("yes").truth(), Some(true));
        assert_eq!(one("'yes'").truth(), None);
        assert_eq!(one("18446744073709551615").integer(), Some(u64::MAX.into()));
        assert_eq!(one("~").text(), Some(""));
        assert!(one("null").is_null() && !one("'null'").is_null());
    }

    #[test]
    fn whole_numbers() {
        let one = |text: &str| read(text).expect(text).remove(0);
        for (text, expected) in [
            ("0b101", Some(5)),
            ("-0b11", Some(-3)),
            ("+7", Some(7)),
            ("1__0", Some(10)),
            ("-9223372036854775809", Some(-9_223_372_036_854_775_809)),
            ("0b", None),
            ("0x", None),
            ("0x-1", None),
            ("0b12", None),
            ("--1", None),
            ("+", None),
            ("1.0", None),
            ("170141183460469231731687303715884105728", None),
        ] {
            assert_eq!(one(text).integer(), expected, "{text}");
        }
        assert_eq!(one("-9223372036854775808").whole(), Some(i64::MIN));
        assert_eq!(one("9223372036854775808").whole(), None);
        assert_eq!(["-1.9", "1.9", "-0.5"].map(|text| one(text).whole()), [-1, 1, 0].map(Some));
        // Beyond all whole numbers there are still numbers.
        assert_eq!(one("170141183460469231731687303715884105728").number(), Some(2_f64.powi(127)));
        assert_eq!(
            ["+.5", "1_0.5", "-", ".", "1e"].map(|text| one(text).number()),
            [Some(0.5), Some(10.5), None, None, None]
        );
    }

    #[test]
    fn values_as_json() {
        let check = |text: &str, expected: Json| assert_eq!(read(text).expect(text)[0].to_json(), expected, "{text}");
        check("~", Json::Null);
        check("[a, 'no', no, On]", json!(["a", "no", false, true]));
        check("{a: {}, b: [], 'c': ''}", json!({"a": {}, "b": [], "c": ""}));
        check("[0x10, 010, '010', 1.50, -0]", json!([16, 8, "010", 1.5, 0]));
        check("[9223372036854775807, 9223372036854775808]", json!([i64::MAX, 1_u64 << 63]));
        check("18446744073709551616", json!(2_f64.powi(64)));
        check("-9223372036854775809", json!(-(2_f64.powi(63))));
        // JSON has no words for these.
        check("[.nan, -.inf, 1e400]", json!([".nan", "-.inf", "1e400"]));
        check("2024-01-01", json!("2024-01-01"));
    }

    #[test]
    fn keys_that_are_texts() {
        let root = read("{a: 1, 1: 1, '2': 1, yes: 1, 'no': 1, 1.5: 1, 1m: 1}").expect("valid").remove(0);
        let NodeKind::Map(pairs) = &root.kind else { panic!("{root:?}") };
        let texts: Vec<&str> =
            pairs.iter().filter(|(key, _)| key.is_text()).map(|(key, _)| key.text.as_str()).collect();
        assert_eq!(texts, ["a", "2", "no", "1m"]);
    }

    #[test]
    fn pointers_escape_what_parts_them() {
        assert_eq!(pointer("", "a/b~c"), "/a~1b~0c");
        assert_eq!(pointer("/x", 3), "/x/3");
        assert_eq!(pointer(&pointer("", "~1"), ""), "/~01/");
    }
}
