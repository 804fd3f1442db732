//! Conditions of `config-api` 1.6 as filters of a scan of spans: those of searches, and segments.

use std::sync::Arc;

use quiver_types::condition::{Case, Condition, FieldName, Operand, Test, Visitor};
use quiver_types::matcher::{Patterns, WatchedRegex};
use quiver_types::spans::{AttributeTest, KIND_NAMES, Place, SpanFilter, TextTest};
use quiver_types::{Error, Result};
use regex::Regex;

/// Nanoseconds of a millisecond.
const MS: f64 = 1e6;

/// Makes a filter of a condition.
///
/// # Errors
/// Invalid: a range of texts, which scans of spans do not know. LimitExceeded: texts that match in any case are too large
/// as patterns.
pub fn filter_of(condition: &Condition) -> Result<SpanFilter> {
    condition.visit(&mut Filters::default())
}

#[derive(Default)]
struct Filters {
    /// Those that are made of texts; those of the condition itself were counted when it was read.
    patterns: Patterns,
}

impl Filters {
    fn count(&mut self, test: &Test) -> Result<()> {
        match test {
            Test::In(any, Case::Insensitive) | Test::NotIn(any, Case::Insensitive) => {
                any.iter().try_for_each(|o| self.patterns.count(&whole(&o.text)))
            }
            Test::Contains(part, Case::Insensitive)
            | Test::Starts(part, Case::Insensitive)
            | Test::Ends(part, Case::Insensitive) => self.patterns.count(&whole(part)),
            _ => Ok(()),
        }
    }
}

/// The pattern of a whole text in any case.
fn whole(text: &str) -> String {
    format!("(?i)^(?:{})$", regex::escape(text))
}

fn pattern(text: &str) -> TextTest {
    // It is made of a pattern that was compiled, or of a text that was escaped.
    Regex::new(text).map_or(TextTest::Is(text.to_owned()), |regex| TextTest::Regex(Arc::new(WatchedRegex::new(regex))))
}

/// The text of such a pattern says all of it.
fn compiled(regex: &WatchedRegex) -> TextTest {
    TextTest::Regex(Arc::new(regex.clone()))
}

/// What is asked of a text; none where it is a range.
fn texts(test: &Test) -> Option<Vec<TextTest>> {
    Some(match test {
        Test::In(any, case) | Test::NotIn(any, case) => {
            let test = |o: &Operand| match case {
                Case::Sensitive => TextTest::Is(o.text.clone()),
                Case::Insensitive => pattern(&whole(&o.text)),
            };
            any.iter().map(test).collect()
        }
        Test::Contains(part, Case::Sensitive) => vec![TextTest::Contains(part.clone())],
        Test::Starts(part, Case::Sensitive) => vec![TextTest::Prefix(part.clone())],
        Test::Contains(part, Case::Insensitive) => vec![pattern(&format!("(?i){}", regex::escape(part)))],
        Test::Starts(part, Case::Insensitive) => vec![pattern(&format!("(?i)^(?:{})", regex::escape(part)))],
        Test::Ends(part, case) => vec![pattern(&format!("{}(?:{})$", case.flag(), regex::escape(part)))],
        Test::Glob(glob) => vec![compiled(glob.regex())],
        Test::Regex(regex) => vec![compiled(regex)],
        Test::Exists(_) | Test::Within(..) => return None,
    })
}

fn any_of(parts: Vec<SpanFilter>) -> SpanFilter {
    if parts.is_empty() { SpanFilter::None } else { SpanFilter::Or(parts) }
}

fn not(part: SpanFilter) -> SpanFilter {
    SpanFilter::Not(Box::new(part))
}

fn number(operand: &Operand) -> Result<f64> {
    let why = || Error::invalid(format!("a range of spans is of numbers; `{}` is none", operand.text));
    operand.number.ok_or_else(why)
}

/// The least and the greatest number of a range.
fn bounds(low: Option<&(Operand, bool)>, high: Option<&(Operand, bool)>) -> Result<(f64, f64)> {
    let min = low.map(|b| number(&b.0).map(|n| if b.1 { n } else { n.next_up() })).transpose()?;
    let max = high.map(|b| number(&b.0).map(|n| if b.1 { n } else { n.next_down() })).transpose()?;
    Ok((min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY)))
}

/// Milliseconds in nanoseconds, and whether these are whole: a decimal that a double only comes near to is meant itself.
fn nanos(ms: f64) -> (f64, bool) {
    let (ns, whole) = (ms * MS, (ms * MS).round());
    let is_whole = (ns - whole).abs() <= whole.abs() * 2.0 * f64::EPSILON;
    (if is_whole { whole } else { ns }, is_whole)
}

/// The least and the greatest duration of a range, both included.
fn durations(low: Option<&(Operand, bool)>, high: Option<&(Operand, bool)>) -> Result<(i64, i64)> {
    let mut range = (i64::MIN, i64::MAX);
    if let Some((operand, itself)) = low {
        let (ns, is_whole) = nanos(number(operand)?);
        range.0 = if is_whole && !itself { (ns as i64).saturating_add(1) } else { ns.ceil() as i64 };
    }
    if let Some((operand, itself)) = high {
        let (ns, is_whole) = nanos(number(operand)?);
        range.1 = if is_whole && !itself { (ns as i64).saturating_sub(1) } else { ns.floor() as i64 };
    }
    Ok(range)
}

/// A test of an attribute at one place, as if it were there.
fn attribute(place: Place, key: &str, test: &Test) -> Result<SpanFilter> {
    let of = |test| SpanFilter::Attribute { place: Some(place), key: key.to_owned(), test };
    let of_texts = || -> Vec<SpanFilter> {
        texts(test).unwrap_or_default().into_iter().map(|t| of(AttributeTest::Text(t))).collect()
    };
    Ok(match test {
        Test::Exists(_) => of(AttributeTest::Exists),
        Test::Within(low, high) => {
            let (min, max) = bounds(low.as_ref(), high.as_ref())?;
            of(AttributeTest::Number(min, max))
        }
        Test::In(any, Case::Sensitive) | Test::NotIn(any, Case::Sensitive) => {
            let equals = any.iter().map(|o| AttributeTest::Equals(o.text.clone(), o.number));
            if any.is_empty() { SpanFilter::None } else { of(AttributeTest::any_of(equals)) }
        }
        Test::In(any, Case::Insensitive) | Test::NotIn(any, Case::Insensitive) => {
            let mut parts = of_texts();
            let numbers = any.iter().filter(|o| o.number.is_some());
            parts.extend(numbers.map(|o| of(AttributeTest::Equals(o.text.clone(), o.number))));
            any_of(parts)
        }
        _ => any_of(of_texts()),
    })
}

/// A test of a text that every span has.
fn own(test: &Test, of: impl Fn(TextTest) -> SpanFilter) -> Result<SpanFilter> {
    match texts(test) {
        Some(texts) => Ok(any_of(texts.into_iter().map(of).collect())),
        None if matches!(test, Test::Exists(_)) => Ok(SpanFilter::All),
        None => Err(Error::invalid("names of spans and services have no range")),
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
        self.count(test)?;
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
                    let (min, max) = durations(low.as_ref(), high.as_ref())?;
                    SpanFilter::Duration(min, max)
                }
                Test::In(any, _) | Test::NotIn(any, _) => {
                    let whole = any.iter().filter_map(|o| o.number).map(nanos).filter(|(_, is_whole)| *is_whole);
                    any_of(whole.map(|(ns, _)| SpanFilter::Duration(ns as i64, ns as i64)).collect())
                }
                _ => return Err(Error::invalid("durations are asked for by numbers")),
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
        Test::NotIn(none, case) => Test::In(none.clone(), *case).holds(word),
        Test::Exists(_) => true,
        other => other.holds(word),
    }
}

#[cfg(test)]
mod tests;
