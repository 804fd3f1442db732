//! A single comparison of a field.

use std::cmp::Ordering;

use memchr::memmem;
use serde_json::{Map, Value};

use super::prefilter::PART_BYTES_MAX;
use super::{Captures, Case, ConditionError, FIELD_BYTES_MAX, FieldName, Fields, Glob, RequiredText};
use crate::matcher::{WatchedRegex, builder, reason};
use crate::text::is_same_number;

/// Maximum length of a pattern in bytes.
const PATTERN_BYTES_MAX: usize = 1024;
/// Maximum length of a text to compare with, in characters.
const TEXT_CHARS_MAX: usize = 4096;
/// Maximum number of values of `in`.
const VALUES_MAX: usize = 1000;

/// The names of comparisons.
const OPS: [&str; 14] = [
    "eq",
    "ne",
    "in",
    "contains",
    "startsWith",
    "endsWith",
    "glob",
    "regex",
    "exists",
    "gt",
    "ge",
    "lt",
    "le",
    "between",
];

/// A value to compare with: a text, and the number it represents.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    /// The text: for a number or boolean as it is printed, for a variable `$name`.
    pub text: String,
    /// Its number, if it represents one.
    pub number: Option<f64>,
}

/// A test of a field.
#[derive(Debug, Clone)]
pub enum Test {
    /// Equals one of these.
    In(Vec<Operand>, Case),
    /// Equals none of these.
    NotIn(Vec<Operand>, Case),
    /// Contains a text.
    Contains(String, Case),
    /// Starts with a text.
    Starts(String, Case),
    /// Ends with a text.
    Ends(String, Case),
    /// Matches a path pattern as a whole.
    Glob(Glob),
    /// Contains a match of a regular expression.
    Regex(WatchedRegex),
    /// Exists, or does not exist.
    Exists(bool),
    /// Lies between these bounds; `true` if a bound is inclusive.
    Within(Option<(Operand, bool)>, Option<(Operand, bool)>),
}

impl Test {
    /// Its regular expression; none where it compares texts.
    pub(super) fn pattern(&self) -> Option<&WatchedRegex> {
        match self {
            Self::Glob(glob) => Some(glob.regex()),
            Self::Regex(regex) => Some(regex),
            _ => None,
        }
    }
}

/// A field with its test.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) field: FieldName,
    pub(super) test: Test,
    /// How texts are compared; for patterns this is part of the pattern.
    case: Case,
    /// Searcher for `contains`, built once.
    finder: Option<memmem::Finder<'static>>,
}

type CheckResult<T> = Result<T, (&'static str, String)>;

fn operand(value: &Value) -> CheckResult<Operand> {
    let (text, number) = match value {
        Value::String(text) => (text.clone(), text.parse().ok().filter(|n: &f64| n.is_finite())),
        Value::Number(number) => (number.to_string(), number.as_f64()),
        Value::Bool(truth) => (truth.to_string(), None),
        _ => return Err(("INVALID_TYPE", "must be a text, a number, true or false".to_owned())),
    };
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err(("TOO_LONG", format!("must have at most {TEXT_CHARS_MAX} characters")));
    }
    Ok(Operand { text, number })
}

fn bound(value: &Value) -> CheckResult<Operand> {
    match value {
        Value::String(_) | Value::Number(_) => operand(value),
        _ => Err(("INVALID_TYPE", "must be a number or a text".to_owned())),
    }
}

fn text(value: &Value) -> CheckResult<String> {
    match value {
        Value::String(text) if text.chars().count() <= TEXT_CHARS_MAX => Ok(text.clone()),
        Value::String(_) => Err(("TOO_LONG", format!("must have at most {TEXT_CHARS_MAX} characters"))),
        _ => Err(("INVALID_TYPE", "must be a text".to_owned())),
    }
}

/// Compiles a pattern that includes all its flags.
pub(super) fn compiled(text: &str) -> Result<WatchedRegex, regex::Error> {
    builder(text).build().map(WatchedRegex::new)
}

fn pattern(value: &Value, case: Case) -> CheckResult<WatchedRegex> {
    let text = text(value)?;
    if text.len() > PATTERN_BYTES_MAX {
        return Err(("INVALID_REGEX", format!("must have at most {PATTERN_BYTES_MAX} bytes")));
    }
    // The flag is part of the pattern's text, so that queries that get only the text know that case is ignored.
    let text = format!("{}{text}", case.flag());
    compiled(&text).map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => ("INVALID_REGEX", "is too large when it is compiled".to_owned()),
        other => ("INVALID_REGEX", reason(&other.to_string()).to_owned()),
    })
}

fn list(value: &Value) -> CheckResult<&[Value]> {
    match value {
        Value::Array(items) if items.len() > VALUES_MAX => {
            Err(("LIMIT_EXCEEDED", format!("must have at most {VALUES_MAX} entries")))
        }
        Value::Array(items) => Ok(items),
        _ => Err(("INVALID_TYPE", "must be a list".to_owned())),
    }
}

fn test(op: &str, value: &Value, case: Case) -> CheckResult<Test> {
    Ok(match op {
        "eq" => Test::In(vec![operand(value)?], case),
        "ne" => Test::NotIn(vec![operand(value)?], case),
        "in" => Test::In(list(value)?.iter().map(operand).collect::<CheckResult<_>>()?, case),
        "contains" => Test::Contains(text(value)?, case),
        "startsWith" => Test::Starts(text(value)?, case),
        "endsWith" => Test::Ends(text(value)?, case),
        "glob" => Test::Glob(Glob::parse(&text(value)?, case).map_err(|why| ("PATTERN", why))?),
        "regex" => Test::Regex(pattern(value, case)?),
        "exists" => Test::Exists(value.as_bool().ok_or(("INVALID_TYPE", "must be true or false".to_owned()))?),
        "gt" => Test::Within(Some((bound(value)?, false)), None),
        "ge" => Test::Within(Some((bound(value)?, true)), None),
        "lt" => Test::Within(None, Some((bound(value)?, false))),
        "le" => Test::Within(None, Some((bound(value)?, true))),
        _ => {
            let [low, high] = list(value)? else {
                return Err(("INVALID_VALUE", "must be a list of two: the least and the greatest".to_owned()));
            };
            let (low, high) = (bound(low)?, bound(high)?);
            let reversed = match (low.number, high.number) {
                (Some(low), Some(high)) => low > high,
                // The values of variables are known only when they are bound.
                (None, None) => low.text > high.text && !low.is_variable() && !high.is_variable(),
                _ => false,
            };
            if reversed {
                return Err((
                    "INVALID_VALUE",
                    "must be the least and then the greatest: nothing lies between".to_owned(),
                ));
            }
            Test::Within(Some((low, true)), Some((high, true)))
        }
    })
}

/// Refuses a text for a field that is always a number, as it could never match.
fn fits(field: &FieldName, test: &Test) -> CheckResult<()> {
    if *field != FieldName::Intrinsic("span.durationMs") {
        return Ok(());
    }
    let known = |operand: &Operand| operand.number.is_some() || operand.is_variable();
    let fits = match test {
        Test::In(operands, _) | Test::NotIn(operands, _) => operands.iter().all(known),
        Test::Within(low, high) => [low, high].into_iter().flatten().all(|(operand, _)| known(operand)),
        _ => true,
    };
    if fits { Ok(()) } else { Err(("INVALID_TYPE", "must be a number: the field is one".to_owned())) }
}

/// Kinds and statuses of spans are words that other systems write in upper case (`SERVER`, `ERROR`): a word in upper
/// case also matches the lower-case one.
fn with_lower_case(field: &FieldName, test: Test) -> Test {
    let FieldName::Intrinsic("span.kind" | "span.status") = field else { return test };
    let both = |operands: Vec<Operand>| {
        let lower = operands.iter().filter(|one| !one.is_variable()).map(|one| one.text.to_ascii_lowercase());
        let lower: Vec<String> = lower.filter(|text| operands.iter().all(|one| one.text != *text)).collect();
        let lower = lower.into_iter().map(|text| Operand { text, number: None });
        operands.into_iter().chain(lower).collect()
    };
    match test {
        Test::In(any, case @ Case::Sensitive) => Test::In(both(any), case),
        Test::NotIn(none, case @ Case::Sensitive) => Test::NotIn(both(none), case),
        other => other,
    }
}

impl Leaf {
    pub(super) fn parse(map: &Map<String, Value>, at: &str) -> Result<Self, Vec<ConditionError>> {
        let mut errors = Vec::new();
        let mut put = |key: &str, code: &'static str, message: String| {
            errors.push(ConditionError::new(format!("{at}/{key}"), code, message));
        };
        for key in map.keys().filter(|k| !matches!(k.as_str(), "field" | "op" | "value" | "caseSensitive")) {
            put(&key.replace('~', "~0").replace('/', "~1"), "UNKNOWN_FIELD", "there is no such field".to_owned());
        }
        let field = match map.get("field") {
            None | Some(Value::Null) => Err(("REQUIRED", "is required".to_owned())),
            Some(Value::String(text)) if text.trim().is_empty() => Err(("REQUIRED", "is required".to_owned())),
            Some(Value::String(text)) if text.len() > FIELD_BYTES_MAX => {
                Err(("TOO_LONG", format!("must have at most {FIELD_BYTES_MAX} bytes")))
            }
            Some(Value::String(text)) => Ok(FieldName::parse(text)),
            Some(_) => Err(("INVALID_TYPE", "must be a text".to_owned())),
        };
        if let Err((code, message)) = &field {
            put("field", code, message.clone());
        }
        let case = match map.get("caseSensitive") {
            None | Some(Value::Null | Value::Bool(true)) => Case::Sensitive,
            Some(Value::Bool(false)) => Case::Insensitive,
            Some(_) => {
                put("caseSensitive", "INVALID_TYPE", "must be true or false".to_owned());
                Case::Sensitive
            }
        };
        let op = match map.get("op") {
            None | Some(Value::Null) => Err(("REQUIRED", "is required".to_owned())),
            Some(Value::String(op)) if OPS.contains(&op.as_str()) => Ok(op.as_str()),
            Some(Value::String(_)) => Err(("INVALID_VALUE", format!("must be one of {}", OPS.join(", ")))),
            Some(_) => Err(("INVALID_TYPE", "must be a text".to_owned())),
        };
        let test = match &op {
            Err((code, message)) => {
                put("op", code, message.clone());
                None
            }
            Ok(op) => {
                let there = &Value::Bool(true);
                let value = map.get("value").filter(|v| !v.is_null());
                let value = value.or((*op == "exists").then_some(there));
                let test = value.ok_or(("REQUIRED", "is required".to_owned())).and_then(|v| test(op, v, case));
                let test = test.and_then(|test| match &field {
                    Ok(field) => fits(field, &test).map(|()| with_lower_case(field, test)),
                    Err(_) => Ok(test),
                });
                test.map_err(|(code, message)| put("value", code, message)).ok()
            }
        };
        match (field, test) {
            (Ok(field), Some(test)) if errors.is_empty() => {
                let finder = match &test {
                    Test::Contains(part, Case::Sensitive) => Some(memmem::Finder::new(part).into_owned()),
                    _ => None,
                };
                Ok(Self { field, test, case, finder })
            }
            _ => Err(errors),
        }
    }

    /// A key that distinguishes it from other tests; equal keys mean the same test.
    pub(super) fn key(&self) -> String {
        format!("{:?} {:?} {:?}", self.field, self.case, self.test)
    }

    /// Names of its captures.
    pub(super) fn captured(&self) -> Vec<&str> {
        match &self.test {
            Test::Regex(regex) => regex.regex().capture_names().flatten().collect(),
            Test::Glob(glob) => glob.names().collect(),
            _ => Vec::new(),
        }
    }

    /// Estimated cost; cheap tests are evaluated first if the order does not matter.
    pub(super) fn cost(&self) -> u32 {
        match &self.test {
            Test::Exists(_) => 0,
            Test::In(..) | Test::NotIn(..) | Test::Starts(..) | Test::Ends(..) | Test::Within(..) => 1,
            Test::Contains(..) => 2,
            Test::Glob(_) => 3,
            Test::Regex(_) => 4,
        }
    }

    /// What a text must contain to pass, if known; a missing field then fails.
    pub(super) fn sought(&self) -> Option<RequiredText> {
        match &self.test {
            Test::Contains(part, Case::Sensitive)
            | Test::Starts(part, Case::Sensitive)
            | Test::Ends(part, Case::Sensitive) => RequiredText::part(part),
            // Numbers also match other spellings.
            Test::In(any, Case::Sensitive) if any.iter().all(|one| one.number.is_none()) => {
                Some(RequiredText::Wholes(any.iter().map(|one| one.text.clone()).collect()))
            }
            Test::Glob(glob) => RequiredText::by_pattern(glob.regex().as_str(), self.case),
            Test::Regex(regex) => RequiredText::by_pattern(regex.as_str(), self.case),
            _ => None,
        }
    }

    /// Whether every text with that content passes.
    pub(super) fn is_told(&self) -> bool {
        match &self.test {
            Test::Contains(part, Case::Sensitive) => part.len() <= PART_BYTES_MAX,
            Test::In(_, Case::Sensitive) => true,
            _ => false,
        }
    }

    /// Tells whether the text of the field (`None` if it is missing) passes.
    pub(super) fn passes(&self, found: Option<&str>) -> bool {
        match (found, &self.finder) {
            (None, _) => self.test.holds_without(),
            (Some(found), Some(finder)) => finder.find(found.as_bytes()).is_some(),
            (Some(found), None) => self.test.holds(found),
        }
    }

    pub(super) fn holds(&self, row: &dyn Fields, captures: &mut Option<&mut Captures>) -> bool {
        let Some(found) = row.get(&self.field) else { return self.test.holds_without() };
        match (&self.test, captures) {
            (Test::Regex(regex), Some(into)) => {
                // Most texts do not match; find that out without allocating captures.
                if !regex.is_match(&found) {
                    return false;
                }
                let mut places = regex.group_places();
                if regex.regex().captures_len() == 1 || !regex.find(&found, 0, &mut places) {
                    return true;
                }
                for (group, name) in regex.regex().capture_names().enumerate() {
                    if let (Some(name), Some((from, to))) = (name, places.get(group)) {
                        into.push((name.to_owned(), found[from..to].to_owned()));
                    }
                }
                true
            }
            (Test::Glob(glob), Some(into)) => glob.captures(&found, into),
            _ => self.passes(Some(&found)),
        }
    }
}

/// Compares with a bound: numerically if the bound is a number, as scans do, which have no order of texts; otherwise by
/// code points.
fn order(found: &str, bound: &Operand) -> Option<Ordering> {
    match bound.number {
        Some(number) => found.parse::<f64>().ok()?.partial_cmp(&number),
        None => Some(found.cmp(bound.text.as_str())),
    }
}

impl Operand {
    /// Tells whether it is a variable, to be replaced when the condition is used.
    fn is_variable(&self) -> bool {
        self.text.strip_prefix('$').is_some_and(|name| !name.is_empty() && !name.starts_with('$'))
    }

    fn is(&self, found: &str, case: Case) -> bool {
        if case.folded(found) == case.folded(&self.text) {
            return true;
        }
        // `250` and `250.0` are the same number.
        let is = |n: f64| found.parse::<f64>().is_ok_and(|own| own == n) && is_same_number(found, &self.text, n);
        self.number.is_some_and(is)
    }
}

impl Test {
    /// Tells whether a missing field passes.
    pub fn holds_without(&self) -> bool {
        matches!(self, Self::NotIn(..) | Self::Exists(false))
    }

    /// Tells whether the text of a field passes.
    pub fn holds(&self, found: &str) -> bool {
        match self {
            Self::In(any, case) => any.iter().any(|one| one.is(found, *case)),
            Self::NotIn(none, case) => !none.iter().any(|one| one.is(found, *case)),
            Self::Contains(part, case) => case.folded(found).contains(&*case.folded(part)),
            Self::Starts(part, case) => case.folded(found).starts_with(&*case.folded(part)),
            Self::Ends(part, case) => case.folded(found).ends_with(&*case.folded(part)),
            Self::Glob(glob) => glob.matches(found),
            Self::Regex(regex) => regex.is_match(found),
            Self::Exists(there) => *there,
            Self::Within(low, high) => {
                let lies = |bound: &(Operand, bool), beside: Ordering| {
                    order(found, &bound.0).is_some_and(|order| order == beside || bound.1 && order == Ordering::Equal)
                };
                low.as_ref().is_none_or(|low| lies(low, Ordering::Greater))
                    && high.as_ref().is_none_or(|high| lies(high, Ordering::Less))
            }
        }
    }
}

#[cfg(test)]
mod tests;
