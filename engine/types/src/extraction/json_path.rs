//! Singular queries of JSONPath (RFC 9535 section 2.3.5.1): `$`, then names and indexes, which lead to one node at most.

use serde_json::Value;

/// Most steps.
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
    /// Reads a query.
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

    /// Gives the node that it leads to.
    pub(super) fn get<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |at, step| match (step, at) {
            (Step::Name(name), Value::Object(map)) => map.get(name),
            (Step::Index(n), Value::Array(items)) => {
                let n = if *n < 0 { *n + items.len() as i64 } else { *n };
                items.get(usize::try_from(n).ok()?)
            }
            _ => None,
        })
    }
}

/// Reads what stands behind `[`: a name in quotes, or an index.
fn bracket(text: &str) -> Option<(Step, &str)> {
    let quote = text.chars().next()?;
    if quote != '\'' && quote != '"' {
        let (number, behind) = text.split_once(']')?;
        let plain = number == "0" || !number.trim_start_matches('-').starts_with('0');
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

    #[test]
    fn queries() {
        let value = json!({"a": {"b c": [1, {"d": 2}]}, "é": 3, "it's": 4});
        let check = |path: &str, expected: Option<Value>| {
            assert_eq!(JsonPath::parse(path).unwrap().get(&value).cloned(), expected, "{path}");
        };
        check("$.a['b c'][1].d", Some(json!(2)));
        check("$['a'][\"b c\"][-2]", Some(json!(1)));
        check("$.é", Some(json!(3)));
        check("$['it\\'s']", Some(json!(4)));
        check("$.a.x", None);
        check("$[0]", None);
        check("$", Some(value.clone()));
        for wrong in ["", "a", "$.", "$..a", "$[*]", "$.*", "$[1:2]", "$[?@.a]", "$['a'", "$.1", "$[01]", "$[-0]"] {
            assert!(JsonPath::parse(wrong).is_err(), "{wrong}");
        }
    }
}
