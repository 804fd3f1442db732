//! Converts conditions to alternative lists of series matchers, which label indexes evaluate.

use quiver_types::condition::{Case, Condition, FieldName, Operand, Test, Visitor};
use quiver_types::matcher::Patterns;
use quiver_types::{Error, MatchOp, Matcher, Result};

/// Most alternatives, since each is looked up separately.
const LISTS_MAX: usize = 64;

/// Most that its patterns take, compiled, in bytes: those of a condition, and what is made of its texts.
const PATTERNS_BYTES_MAX: usize = 10 << 20;

/// Alternatives, of which one must match.
type Lists = Vec<Vec<Matcher>>;

/// Converts a condition. `service.name` stands for the first non-empty service label of a series.
///
/// # Errors
/// Invalid: something that labels cannot be tested for (ranges, fields of spans and log rows), or too many
/// combinations. LimitExceeded: its patterns are too large together.
pub(crate) fn lists_of(condition: &Condition, service_labels: &[String]) -> Result<Lists> {
    let mut writer = Writer { service_labels, patterns: Patterns::within("a segment", PATTERNS_BYTES_MAX) };
    condition.visit(&mut writer).map(|sides| sides.yes)
}

/// Combines two conditions: series that match both.
pub(super) fn product(a: &Lists, b: &Lists) -> Result<Lists> {
    if a.len() * b.len() > LISTS_MAX {
        let text = format!("a segment's condition on labels has more than {LISTS_MAX} combinations of alternatives");
        return Err(Error::invalid(text));
    }
    Ok(a.iter().flat_map(|x| b.iter().map(move |y| [&x[..], y].concat())).collect())
}

fn union(all: impl Iterator<Item = Lists>) -> Lists {
    all.flatten().collect()
}

/// A condition and its negation, since matchers cannot negate a combination of several labels.
struct Sides {
    yes: Lists,
    no: Lists,
}

struct Writer<'a> {
    service_labels: &'a [String],
    patterns: Patterns,
}

/// A regular expression for a test on the whole value of a label.
fn pattern(test: &Test) -> Result<String> {
    let escaped = |case: &Case, text: &str| format!("{}{}", case.flag(), regex::escape(text));
    // `250` and `250.0` are the same number.
    let number = |o: &Operand| match o.number {
        Some(n) if n.fract() == 0.0 && n.abs() < 1e15 => {
            format!("|{}0*{}(?:\\.0*)?", if n < 0.0 { "-" } else { "" }, n.abs())
        }
        Some(_) => format!("|{}0*", regex::escape(&o.text)),
        None => String::new(),
    };
    Ok(match test {
        Test::In(any, case) | Test::NotIn(any, case) => {
            any.iter().map(|o| format!("(?:{}{})", escaped(case, &o.text), number(o))).collect::<Vec<_>>().join("|")
        }
        Test::Contains(part, case) => format!(".*(?:{}).*", escaped(case, part)),
        Test::Starts(part, case) => format!("(?:{}).*", escaped(case, part)),
        Test::Ends(part, case) => format!(".*(?:{})", escaped(case, part)),
        Test::Glob(glob) => format!(".*(?:{}).*", glob.regex().as_str()),
        Test::Regex(regex) => format!(".*(?:{}).*", regex.as_str()),
        Test::Exists(_) => ".+".to_owned(),
        Test::Within(..) => return Err(Error::invalid("a segment cannot ask for a range of a metric's label")),
    })
}

/// A label under its own name, and under the one in which only letters, digits and `_` are allowed.
fn names(key: &str) -> Vec<String> {
    let plain: String = key.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if plain == key { vec![plain] } else { vec![key.to_owned(), plain] }
}

impl Writer<'_> {
    /// Converts a test of the first existing one of some labels, ignoring that the test may be negated.
    fn sides(&mut self, test: &Test, labels: &[String]) -> Result<Sides> {
        let mut matcher = |label: &str, op, value: &str| self.patterns.matcher(label, op, value);
        let mut sides = Sides { yes: Vec::new(), no: Vec::new() };
        let mut before = Vec::new();
        for label in labels {
            let there = matcher(label, MatchOp::NotEqual, "")?;
            let (yes, no) = match test {
                Test::In(any, Case::Sensitive) | Test::NotIn(any, Case::Sensitive)
                    if any.len() == 1 && any[0].number.is_none() =>
                {
                    let one = any[0].text.as_str();
                    (matcher(label, MatchOp::Equal, one)?, matcher(label, MatchOp::NotEqual, one)?)
                }
                other => {
                    let pattern = pattern(other)?;
                    (matcher(label, MatchOp::Regex, &pattern)?, matcher(label, MatchOp::NotRegex, &pattern)?)
                }
            };
            let list = |last: Matcher| [&before[..], &[there.clone(), last]].concat();
            sides.yes.push(list(yes));
            sides.no.push(list(no));
            before.push(Matcher::equal(label, ""));
        }
        // A missing label does not pass the test.
        sides.no.push(before);
        Ok(sides)
    }
}

impl Visitor<Result<Sides>> for Writer<'_> {
    fn all(&mut self, parts: Vec<Result<Sides>>) -> Result<Sides> {
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let yes = parts.iter().try_fold(vec![Vec::new()], |all, part| product(&all, &part.yes))?;
        Ok(Sides { yes, no: union(parts.into_iter().map(|part| part.no)) })
    }

    fn any(&mut self, parts: Vec<Result<Sides>>) -> Result<Sides> {
        let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let no = parts.iter().try_fold(vec![Vec::new()], |all, part| product(&all, &part.no))?;
        Ok(Sides { yes: union(parts.into_iter().map(|part| part.yes)), no })
    }

    fn not(&mut self, part: Result<Sides>) -> Result<Sides> {
        part.map(|Sides { yes, no }| Sides { yes: no, no: yes })
    }

    fn test(&mut self, field: &FieldName, test: &Test) -> Result<Sides> {
        let sides = match field {
            FieldName::Intrinsic("service.name") => self.sides(test, self.service_labels)?,
            FieldName::Intrinsic(other) => {
                return Err(Error::invalid(format!("a segment asks metrics for labels; `{other}` is none")));
            }
            FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => {
                self.sides(test, &names(key))?
            }
        };
        let negative = matches!(test, Test::NotIn(..) | Test::Exists(false));
        Ok(if negative { Sides { yes: sides.no, no: sides.yes } } else { sides })
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::condition::Fields;
    use serde_json::json;

    use super::*;

    struct Labels<'a>(&'a [(&'a str, &'a str)]);

    impl Fields for Labels<'_> {
        fn get(&self, name: &FieldName) -> Option<std::borrow::Cow<'_, str>> {
            let label = |name: &str| self.0.iter().find(|(n, v)| *n == name && !v.is_empty()).map(|(_, v)| (*v).into());
            match name {
                FieldName::Intrinsic(_) => label("service_name").or_else(|| label("job")),
                FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => {
                    label(key).or_else(|| label(&key.replace('.', "_")))
                }
            }
        }
    }

    fn matches(lists: &Lists, labels: &[(&str, &str)]) -> bool {
        let value = |name: &str| labels.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| *v);
        lists.iter().any(|list| list.iter().all(|m| m.matches(value(&m.name))))
    }

    #[test]
    fn matchers_say_what_the_condition_says() {
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        let folded = json!({"field": "team", "op": "in", "value": ["A", "b.c"], "caseSensitive": false});
        let leaves = [
            leaf("team", "eq", json!("a")),
            leaf("team", "ne", json!("a")),
            leaf("service.name", "in", json!(["cart", "b"])),
            leaf("service.name", "ne", json!("cart")),
            leaf("resource.k8s.pod", "startsWith", json!("p.")),
            leaf("team", "in", json!([250, "x"])),
            leaf("team", "contains", json!("x")),
            leaf("team", "endsWith", json!("x")),
            leaf("team", "regex", json!("^a|x$")),
            leaf("team", "glob", json!("/a/*")),
            leaf("team", "exists", json!(true)),
            leaf("team", "exists", json!(false)),
            folded,
            json!({"field": "team", "op": "regex", "value": "^b.c$", "caseSensitive": false}),
            json!({"field": "team", "op": "glob", "value": "/A/*", "caseSensitive": false}),
        ];
        let mut conditions: Vec<serde_json::Value> = leaves.to_vec();
        for (a, b) in leaves.iter().zip(leaves.iter().rev()) {
            conditions.push(json!({"all": [a, {"not": b}]}));
            conditions.push(json!({"not": {"any": [a, b]}}));
            conditions.push(json!({"any": [{"not": {"all": [a, b]}}, a]}));
        }
        let rows: &[&[(&str, &str)]] = &[
            &[],
            &[("team", "a")],
            &[("team", "250.0")],
            &[("team", "B.C"), ("job", "cart")],
            &[("team", "ax"), ("service_name", "b"), ("job", "cart")],
            &[("team", "/a/b"), ("k8s_pod", "p.1")],
            &[("k8s.pod", "p.2"), ("team", "x\ny")],
            &[("k8s.pod", "q"), ("k8s_pod", "p.1"), ("service_name", "cart")],
        ];
        let service_labels = ["service_name".to_owned(), "job".to_owned()];
        for condition in conditions {
            let compiled = Condition::parse(&condition).unwrap();
            let lists = lists_of(&compiled, &service_labels).unwrap();
            for row in rows {
                assert_eq!(matches(&lists, row), compiled.matches(&Labels(row)), "{condition} over {row:?}: {lists:?}");
            }
        }
    }

    #[test]
    fn patterns_of_a_segment_are_bounded_together() {
        let lists = |all: Vec<serde_json::Value>| {
            lists_of(&Condition::parse(&json!({ "all": all })).unwrap(), &["job".to_owned()])
        };
        // Each is compiled to 225 KB.
        let large = |n: usize| {
            let values: Vec<String> = (0..4).map(|m| format!("{n:02}{m}{}", "x".repeat(1400))).collect();
            json!({"field": "a", "op": "in", "value": values, "caseSensitive": false})
        };
        assert!(lists(vec![large(0)]).is_ok());
        let refused = lists((0..50).map(large).collect()).unwrap_err();
        let expected = format!("the regular expressions of a segment take more than {PATTERNS_BYTES_MAX} bytes");
        assert!(refused.message.contains(&expected), "{refused}");
    }

    #[test]
    fn what_labels_are_not_asked_is_named() {
        let error = |condition: serde_json::Value| {
            lists_of(&Condition::parse(&condition).unwrap(), &["job".to_owned()]).unwrap_err().message
        };
        assert!(error(json!({"field": "span.name", "op": "eq", "value": "x"})).contains("span.name"));
        assert!(error(json!({"field": "size", "op": "gt", "value": 1})).contains("range"));
        let any = |n: usize| json!({"any": [{"field": format!("a{n}"), "op": "eq", "value": "x"}, {"field": format!("b{n}"), "op": "eq", "value": "x"}]});
        let all: Vec<_> = (0..8).map(any).collect();
        assert!(error(json!({"all": all})).contains("combinations"));
    }

    #[test]
    fn labels_under_the_names_that_senders_give_them() {
        for (key, expected) in [
            ("job", vec!["job"]),
            ("k8s.pod.name", vec!["k8s.pod.name", "k8s_pod_name"]),
            ("a_b", vec!["a_b"]),
            ("a-b c", vec!["a-b c", "a_b_c"]),
            ("größe", vec!["größe", "gr__e"]),
        ] {
            assert_eq!(names(key), expected, "{key}");
        }
    }

    /// In labels a number matches however it is written, and nothing else does.
    #[test]
    fn numbers_as_labels() {
        for (value, yes, no) in [
            (
                json!(250),
                vec!["250", "250.0", "250.", "0250", "250.000"],
                vec!["25", "2500", "250.5", "", "-250", "x250"],
            ),
            (json!(0), vec!["0", "00", "0.0"], vec!["", "1", "10"]),
            (json!(-5), vec!["-5", "-5.0", "-05"], vec!["5", "--5"]),
            (json!(0.5), vec!["0.5", "0.50"], vec!["0", "5", "0x5"]),
            (json!("a.b"), vec!["a.b"], vec!["axb", "a.bc", "A.B"]),
        ] {
            let condition = Condition::parse(&json!({"field": "n", "op": "in", "value": [value, "q"]})).unwrap();
            let lists = lists_of(&condition, &[]).unwrap();
            for (texts, expected) in [(yes, true), (no, false)] {
                for text in texts {
                    assert_eq!(matches(&lists, &[("n", text)]), expected, "{value} as {text}");
                }
            }
        }
    }

    #[test]
    fn alternatives_multiply_up_to_a_bound() {
        let lists = |count: usize| -> Lists { (0..count).map(|n| vec![Matcher::equal("a", n.to_string())]).collect() };
        assert_eq!(product(&lists(8), &lists(8)).unwrap().len(), LISTS_MAX);
        assert_eq!(product(&lists(13), &lists(5)).unwrap_err().kind, quiver_types::ErrorKind::Invalid);
        assert!(product(&lists(0), &lists(1000)).unwrap().is_empty(), "nothing and anything is nothing");
        let (a, b) = (lists(2), vec![vec![Matcher::equal("b", "1"), Matcher::equal("c", "2")]]);
        let both = product(&a, &b).unwrap();
        let shown: Vec<Vec<&str>> = both.iter().map(|list| list.iter().map(|m| m.name.as_str()).collect()).collect();
        assert_eq!(shown, [["a", "b", "c"], ["a", "b", "c"]]);
        assert_eq!(product(&a, &vec![Vec::new()]).unwrap(), a, "a list without matchers is of every series");
    }
}
