//! Singular JSONPath queries (RFC 9535 section 2.3.5.1): `$` followed by names and indexes, which select at most one
//! node.
//!
//! A text is parsed once for all queries of a rule, and only the selected nodes are kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

/// Maximum number of names and indexes in a query.
const STEPS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Name(String),
    Index(i64),
}

/// A compiled query.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Parses a query.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text.strip_prefix('$').ok_or("must begin with `$`")?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let offset = text.len() - rest.len();
            let wrong =
                |what: &str| format!("{what} at offset {offset}; a query here leads to one node: `$.a['b'][0]`");
            let (step, behind) = if let Some(inner) = rest.strip_prefix('[') {
                bracket(inner).ok_or_else(|| wrong("unexpected text"))?
            } else if let Some(inner) = rest.strip_prefix('.') {
                let end = inner.find(['.', '[']).unwrap_or(inner.len());
                let name = &inner[..end];
                let first = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_' || !c.is_ascii());
                let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_' || !c.is_ascii());
                if !first || !plain {
                    return Err(wrong("no name"));
                }
                (Step::Name(name.to_owned()), &inner[end..])
            } else {
                return Err(wrong("unexpected text"));
            };
            steps.push(step);
            if steps.len() > STEPS_MAX {
                return Err(format!("has more than {STEPS_MAX} steps"));
            }
            rest = behind;
        }
        Ok(Self(steps))
    }
}

/// The node that the steps select.
fn node<'v>(steps: &[Step], value: &'v Value) -> Option<&'v Value> {
    steps.iter().try_fold(value, |at, step| match (step, at) {
        (Step::Name(name), Value::Object(map)) => map.get(name),
        (Step::Index(n), Value::Array(items)) => {
            let n = if *n < 0 { *n + items.len() as i64 } else { *n };
            items.get(usize::try_from(n).ok()?)
        }
        _ => None,
    })
}

/// For each query, the node it selects in a text. `None` if the text is not JSON.
pub(super) fn nodes<'p>(text: &str, paths: Vec<&'p JsonPath>) -> Option<Vec<(&'p JsonPath, Option<Value>)>> {
    let mut found = vec![None; paths.len()];
    let steps: Vec<(usize, &[Step])> = paths.iter().map(|path| path.0.as_slice()).enumerate().collect();
    let mut reader = serde_json::Deserializer::from_str(text);
    Seek { paths: &steps, found: &mut found }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(paths.into_iter().zip(found).collect())
}

/// Queries by number, each with the remaining steps from a node.
type Paths<'p> = Vec<(usize, &'p [Step])>;

/// The queries that continue through a child node, from there on.
fn below<'p>(paths: &[(usize, &'p [Step])], through: impl Fn(&Step) -> bool) -> Paths<'p> {
    let on = |&(n, steps): &(usize, &'p [Step])| match steps {
        [first, rest @ ..] if through(first) => Some((n, rest)),
        _ => None,
    };
    paths.iter().filter_map(on).collect()
}

/// Parses a node for the queries that pass through it; without any, only checks that it is JSON.
struct Seek<'s, 'p> {
    paths: &'s [(usize, &'p [Step])],
    found: &'s mut [Option<Value>],
}

impl<'de> DeserializeSeed<'de> for Seek<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        // Negative indexes count from the end, so the whole list must be read first.
        let is_whole = |steps: &[Step]| match steps {
            [] => true,
            [Step::Index(n), ..] => *n < 0,
            [Step::Name(_), ..] => false,
        };
        if !self.paths.iter().any(|(_, steps)| is_whole(steps)) {
            return reader.deserialize_any(self);
        }
        let value = Value::deserialize(reader)?;
        for (n, steps) in self.paths {
            self.found[*n] = node(steps, &value).cloned();
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Seek<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { paths, found } = self;
        for at in 0.. {
            let through = below(paths, |step| *step == Step::Index(at));
            if items.next_element_seed(Seek { paths: &through, found: &mut *found })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self { paths, found } = self;
        while let Some(through) = entries.next_key_seed(Key(paths))? {
            // If a name occurs twice, the last one wins.
            for (n, _) in &through {
                found[*n] = None;
            }
            entries.next_value_seed(Seek { paths: &through, found: &mut *found })?;
        }
        Ok(())
    }
}

/// A name within an object, read for the queries that pass through it.
struct Key<'s, 'p>(&'s [(usize, &'p [Step])]);

impl<'de, 'p> DeserializeSeed<'de> for Key<'_, 'p> {
    type Value = Paths<'p>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Paths<'p>, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'p> Visitor<'_> for Key<'_, 'p> {
    type Value = Paths<'p>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Paths<'p>, E> {
        Ok(below(self.0, |step| matches!(step, Step::Name(known) if known == name)))
    }
}

/// Parses what follows `[`: a quoted name, or an index.
fn bracket(text: &str) -> Option<(Step, &str)> {
    let quote = text.chars().next()?;
    if quote != '\'' && quote != '"' {
        let (number, behind) = text.split_once(']')?;
        // Rust's parser would also accept a plus sign and leading zeros.
        let plain = number == "0" || !number.trim_start_matches('-').starts_with(['0', '+']);
        return Some((Step::Index(number.parse().ok().filter(|_| plain)?), behind));
    }
    let (mut name, mut chars) = (String::new(), text[1..].char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                same @ ('\\' | '/' | '\'' | '"') => same,
                _ => return None,
            }),
            c if c == quote => return Some((Step::Name(name), text[1 + at + 1..].strip_prefix(']')?)),
            c => name.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The nodes that queries lead to together are those to which each leads in the whole document.
    fn check(text: &str, paths: &[&str]) -> Vec<Option<Value>> {
        let paths: Vec<JsonPath> = paths.iter().map(|path| JsonPath::parse(path).unwrap()).collect();
        let found = nodes(text, paths.iter().collect());
        let found: Option<Vec<Option<Value>>> = found.map(|all| all.into_iter().map(|(_, value)| value).collect());
        let whole = serde_json::from_str::<Value>(text).ok();
        let expected: Option<Vec<Option<Value>>> =
            whole.map(|whole| paths.iter().map(|path| node(&path.0, &whole).cloned()).collect());
        assert_eq!(found, expected, "{text} {paths:?}");
        found.unwrap_or_default()
    }

    #[test]
    fn queries() {
        let value = json!({"a": {"b c": [1, {"d": 2}]}, "é": 3, "it's": 4});
        let one = |path: &str, expected: Option<Value>| {
            assert_eq!(check(&value.to_string(), &[path]), [expected], "{path}");
        };
        one("$.a['b c'][1].d", Some(json!(2)));
        one("$['a'][\"b c\"][-2]", Some(json!(1)));
        one("$.é", Some(json!(3)));
        one("$['it\\'s']", Some(json!(4)));
        one("$.a.x", None);
        one("$[0]", None);
        one("$", Some(value.clone()));
        for wrong in ["", "a", "$.", "$..a", "$[*]", "$.*", "$[1:2]", "$[?@.a]", "$['a'", "$.1", "$[01]", "$[-0]"] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn many_queries_read_a_text_once() {
        let all = ["$", "$.a", "$.a.b", "$.a.b[0]", "$.a.b[-1]", "$.a.b[1].c", "$.a.b[7]", "$.a.x", "$.d", "$['d']"];
        let texts = [
            r#"{"a": {"b": [1, {"c": "x"}, [2.5, -3, true]], "x": null}, "d": "\u00e9\n"}"#,
            // The last one of a name counts, with all that is in it.
            r#"{"a": {"b": [1, {"c": 2}]}, "d": 1, "a": {"b": [], "x": 7}}"#,
            r#"{"a": {"b": [1]}, "a": 5}"#,
            r#"[{"a": 1}]"#,
            "7",
            // All of this is no JSON, be it asked for or not.
            r#"{"a": {"b": [1]}} x"#,
            r#"{"a": {"b": [1]}, "d": 01}"#,
            r#"{"a": {"b": [1]}, "e": "\ud800"}"#,
            r#"{"a": {"b": [1]}, "e": 1e999}"#,
            r#"{"a": {"b": [1]}, e: 1}"#,
            "",
        ];
        let deep = format!("{{\"a\": 1, \"e\": {}1{}}}", "[".repeat(200), "]".repeat(200));
        for text in texts.into_iter().chain([deep.as_str()]) {
            check(text, &all[1..]);
            check(text, &all);
            check(text, &[]);
            for one in all {
                check(text, &[one]);
            }
        }
    }

    #[test]
    fn names_in_brackets() {
        let value = json!({"a\nb": 1, "\"": 2, "it's": 3, "x]y": 4, "": 5, "\\": 6, "a/b": 7, "é": [8, [9]]});
        for (path, expected) in [
            ("$['a\\nb']", Some(1)),
            ("$[\"\\\"\"]", Some(2)),
            ("$[\"it's\"]", Some(3)),
            ("$['x]y']", Some(4)),
            ("$['']", Some(5)),
            ("$['\\\\']", Some(6)),
            ("$['a\\/b']", Some(7)),
            ("$['é'][0]", Some(8)),
            ("$.é[1][-1]", Some(9)),
            ("$.é[2]", None),
            ("$.é[-3]", None),
            ("$['é']['0']", None),
            ("$['é'][9223372036854775807]", None),
            ("$['é'][-9223372036854775808]", None),
        ] {
            assert_eq!(check(&value.to_string(), &[path]), [expected.map(Value::from)], "{path}");
        }
        for wrong in [
            "$['a",
            "$['a'",
            "$['a'x]",
            "$['\\x']",
            "$[]",
            "$[1",
            "$[--1]",
            "$[+1]",
            "$[1.0]",
            "$[00]",
            "$[9223372036854775808]",
            "$a",
            "$ .a",
            "$.a b",
            "$.a-b",
            "$.",
            "$.a.",
            "@.a",
        ] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_query_says_where() {
        let told = |text: &str| JsonPath::parse(text).err().unwrap_or_default();
        assert_eq!(told("a.b"), "must begin with `$`");
        assert!(told("$.a[*].b").starts_with("unexpected text at offset 3; a query here leads to one node"));
        assert!(told("$.a..b").starts_with("no name at offset 3;"), "{}", told("$.a..b"));
        assert_eq!(told(&format!("${}", "[0]".repeat(STEPS_MAX))), "");
        assert_eq!(told(&format!("${}", "[0]".repeat(STEPS_MAX + 1))), "has more than 64 steps");
    }
}
