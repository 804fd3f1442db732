//! Matchers of silences in the object form of Alertmanager's API.

use quiver_alerting::matchers::matcher_among;
use quiver_alerting::silences::Silence;
use quiver_types::matcher::Patterns;
use quiver_types::{Error, MatchOp, Matcher, Result};
use serde_json::{Value, json};

/// Converts the matchers of a silence to Alertmanager's form.
pub(crate) fn matchers_shown(silence: &Silence) -> Vec<Value> {
    silence
        .matchers
        .iter()
        .map(|m| {
            let (is_equal, is_regex) = match m.op {
                MatchOp::Equal => (true, false),
                MatchOp::NotEqual => (false, false),
                MatchOp::Regex => (true, true),
                MatchOp::NotRegex => (false, true),
            };
            json!({"name": m.name, "value": m.value, "isRegex": is_regex, "isEqual": is_equal})
        })
        .collect()
}

/// Parses a matcher, one of several whose patterns are bounded together.
///
/// # Errors
/// Invalid: a member is missing or has the wrong type, or the matcher is not valid, or all patterns are too large.
pub(crate) fn read_matcher(value: &Value, patterns: &mut Patterns) -> Result<Matcher> {
    let text =
        |name: &str| value[name].as_str().ok_or_else(|| Error::invalid(format!("matchers.{name} in body is required")));
    let truth = |name: &str, default: Option<bool>| {
        let given = if value[name].is_null() { default } else { value[name].as_bool() };
        given.ok_or_else(|| Error::invalid(format!("matchers.{name} in body must be true or false")))
    };
    let op = match (truth("isEqual", Some(true))?, truth("isRegex", None)?) {
        (true, false) => MatchOp::Equal,
        (false, false) => MatchOp::NotEqual,
        (true, true) => MatchOp::Regex,
        (false, true) => MatchOp::NotRegex,
    };
    matcher_among(text("name")?, op, text("value")?, patterns).map_err(|e| Error::invalid(e.to_string()))
}
