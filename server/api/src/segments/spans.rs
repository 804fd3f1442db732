//! A condition as the filter of a scan of spans.

use std::sync::Arc;

use quiver_types::condition::{Condition, FieldName, Operand, Test, Visitor};
use quiver_types::spans::{AttributeTest, KIND_NAMES, Place, SpanFilter, TextTest};
use quiver_types::{Error, Result};
use regex::Regex;

/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// Makes a filter of a condition.
///
/// # Errors
/// Invalid: a range of texts, which scans of spans do not know.
pub(crate) fn filter_of(condition: &Condition) -> Result<SpanFilter> {
    condition.visit(&mut Filters)
}

struct Filters;

fn pattern(text: &str) -> TextTest {
    // It is made of a pattern that was compiled, or of a text that was escaped.
    Regex::new(text).map_or(TextTest::Is(text.to_owned()), |regex| TextTest::Regex(Arc::new(regex)))
}

/// What is asked of a text; none where it is a range.
fn texts(test: &Test) -> Option<Vec<TextTest>> {
    let fold = |folded: bool| if folded { "(?i)" } else { "" };
    Some(match test {
        Test::In(any, false) | Test::NotIn(any, false) => any.iter().map(|o| TextTest::Is(o.text.clone())).collect(),
        Test::In(any, true) | Test::NotIn(any, true) => {
            any.iter().map(|o| pattern(&format!("(?i)^(?:{})$", regex::escape(&o.text)))).collect()
        }
        Test::Contains(part, false) => vec![TextTest::Contains(part.clone())],
        Test::Starts(part, false) => vec![TextTest::Prefix(part.clone())],
        Test::Contains(part, true) => vec![pattern(&format!("(?i){}", regex::escape(part)))],
        Test::Starts(part, true) => vec![pattern(&format!("(?i)^(?:{})", regex::escape(part)))],
        Test::Ends(part, folded) => vec![pattern(&format!("{}(?:{})$", fold(*folded), regex::escape(part)))],
        Test::Glob(glob) => vec![TextTest::Regex(Arc::new(glob.regex().clone()))],
        Test::Regex(regex) => vec![TextTest::Regex(Arc::new(regex.clone()))],
        Test::Exists(_) | Test::Within(..) => return None,
    })
}

fn any_of(parts: Vec<SpanFilter>) -> SpanFilter {
    if parts.is_empty() { SpanFilter::None } else { SpanFilter::Or(parts) }
}

fn not(part: SpanFilter) -> SpanFilter {
    SpanFilter::Not(Box::new(part))
}

/// The least and the greatest number of a range.
fn bounds(low: Option<&(Operand, bool)>, high: Option<&(Operand, bool)>) -> Result<(f64, f64)> {
    let number = |(operand, _): &(Operand, bool)| {
        let why =
            || Error::invalid(format!("a segment's range of spans must be of numbers; `{}` is none", operand.text));
        operand.number.ok_or_else(why)
    };
    let min = low.map(|b| number(b).map(|n| if b.1 { n } else { n.next_up() })).transpose()?;
    let max = high.map(|b| number(b).map(|n| if b.1 { n } else { n.next_down() })).transpose()?;
    Ok((min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY)))
}

/// A test of an attribute at one place, as if it were there.
fn attribute(place: Place, key: &str, test: &Test) -> Result<SpanFilter> {
    let of = |test| SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test };
    Ok(match test {
        Test::Exists(_) => of(AttributeTest::Exists),
        Test::Within(low, high) => {
            let (min, max) = bounds(low.as_ref(), high.as_ref())?;
            of(AttributeTest::Number(min, max))
        }
        Test::In(any, false) | Test::NotIn(any, false) => {
            any_of(any.iter().map(|o| of(AttributeTest::Equals(o.text.clone(), o.number))).collect())
        }
        other => any_of(texts(other).unwrap_or_default().into_iter().map(|t| of(AttributeTest::Text(t))).collect()),
    })
}

/// A test of a text that every span has.
fn own(test: &Test, of: impl Fn(TextTest) -> SpanFilter) -> Result<SpanFilter> {
    match texts(test) {
        Some(texts) => Ok(any_of(texts.into_iter().map(of).collect())),
        None if matches!(test, Test::Exists(_)) => Ok(SpanFilter::All),
        None => Err(Error::invalid("a segment cannot ask for a range of names")),
    }
}

impl Visitor<Result<SpanFilter>> for Filters {
    fn all(&mut self, parts: Vec<Result<SpanFilter>>) -> Result<SpanFilter> {
        parts.into_iter().collect::<Result<_>>().map(SpanFilter::And)
    }

    fn any(&mut self, parts: Vec<Result<SpanFilter>>) -> Result<SpanFilter> {
        parts.into_iter().collect::<Result<_>>().map(SpanFilter::Or)
    }

    fn not(&mut self, part: Result<SpanFilter>) -> Result<SpanFilter> {
        part.map(not)
    }

    fn test(&mut self, field: &FieldName, test: &Test) -> Result<SpanFilter> {
        let positive = match field {
            FieldName::Intrinsic("span.name") => own(test, SpanFilter::Name)?,
            FieldName::Intrinsic("service.name") => own(test, SpanFilter::Service)?,
            FieldName::Intrinsic("span.kind") => {
                let kinds = (0_u8..).zip(KIND_NAMES).filter(|(_, name)| !name.is_empty() && fits(test, name));
                SpanFilter::Kinds(kinds.map(|(kind, _)| kind).collect())
            }
            FieldName::Intrinsic("span.status") => {
                let words = (0_u8..).zip(["unset", "ok", "error"]).filter(|(_, word)| fits(test, word));
                any_of(words.map(|(status, _)| SpanFilter::Status(status)).collect())
            }
            FieldName::Intrinsic("span.durationMs") => match test {
                Test::Exists(_) => SpanFilter::All,
                Test::Within(low, high) => {
                    let (min, max) = bounds(low.as_ref(), high.as_ref())?;
                    SpanFilter::Duration((min * MS).ceil() as i64, (max * MS).floor() as i64)
                }
                Test::In(any, _) | Test::NotIn(any, _) => {
                    let ns = any.iter().filter_map(|o| o.number).map(|n| (n * MS).round() as i64);
                    any_of(ns.map(|ns| SpanFilter::Duration(ns, ns)).collect())
                }
                _ => return Err(Error::invalid("a segment asks for durations by numbers")),
            },
            FieldName::Intrinsic(other) => attribute(Place::Span, other, test)?,
            FieldName::Attribute(key) => attribute(Place::Span, key, test)?,
            FieldName::Resource(key) => attribute(Place::Resource, key, test)?,
            FieldName::Bare(key) => {
                // The span's own attribute hides that of its resource.
                let there = attribute(Place::Span, key, &Test::Exists(true))?;
                let below = not(there).and(attribute(Place::Resource, key, test)?);
                SpanFilter::Or(vec![attribute(Place::Span, key, test)?, below])
            }
        };
        Ok(if matches!(test, Test::NotIn(..) | Test::Exists(false)) { not(positive) } else { positive })
    }
}

/// Says whether a word passes, before it is turned around.
fn fits(test: &Test, word: &str) -> bool {
    match test {
        Test::NotIn(none, folded) => Test::In(none.clone(), *folded).holds(word),
        Test::Exists(_) => true,
        other => other.holds(word),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters() {
        let check = |condition: serde_json::Value, expected: &str| {
            let filter = filter_of(&Condition::parse(&condition).unwrap()).unwrap();
            assert_eq!(format!("{filter:?}"), expected, "{condition}");
        };
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        check(leaf("service.name", "eq", json!("cart")), r#"Or([Service(Is("cart"))])"#);
        check(leaf("span.kind", "ne", json!("server")), "Not(Kinds([2]))");
        check(leaf("span.status", "in", json!(["ok", "error"])), "Or([Status(1), Status(2)])");
        check(leaf("span.durationMs", "between", json!([1, 2])), "Duration(1000000, 2000000)");
        check(
            leaf("attributes.a", "exists", json!(false)),
            r#"Not(Attribute { place: Some(Span), key: "a", test: Exists })"#,
        );
        let text_range = Condition::parse(&leaf("attributes.a", "gt", json!("x"))).unwrap();
        assert!(filter_of(&text_range).is_err());
    }
}
