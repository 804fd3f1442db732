//! Columns that depend on the configuration: what a row means by the rules in force (`config-api` 6). Their names
//! begin with `config@` and contain the conditions and rules as hexadecimal JSON, so a plan with such a column needs
//! no other data. They are computed when stored rows are converted, with the same compiled rules as at ingest.

use std::sync::Arc;

use quiver_types::condition::Condition;
use quiver_types::detection::DetectionRule;
use quiver_types::query_configuration::QueryConfiguration;
use quiver_types::{Error, Result};
use serde_json::Value;

use super::cells::CellKind;

const PREFIX: &str = "config@";
/// The longest name of such a column, in bytes.
const NAME_BYTES_MAX: usize = 1 << 20;

/// What such a column computes.
#[derive(Debug, Clone)]
pub(super) enum Says {
    /// The Apdex threshold in milliseconds.
    ApdexT(Arc<QueryConfiguration>),
    /// 1 if errors count as frustrated however fast they are, else 0.
    ErrorsFrustrate(Arc<QueryConfiguration>),
    /// The id of the key transaction that the span starts.
    Key(Arc<QueryConfiguration>),
    /// 1 if a condition holds, else 0.
    When(Arc<Condition>),
    /// The name that a detection rule gives.
    Name(Arc<DetectionRule>),
    /// The id of the first detection rule that decides.
    First(Arc<[DetectionRule]>),
}

impl Says {
    /// The configuration that the value depends on; `None` if the column's name says all.
    pub(super) fn configured(&self) -> Option<&Arc<QueryConfiguration>> {
        match self {
            Self::ApdexT(configured) | Self::ErrorsFrustrate(configured) | Self::Key(configured) => Some(configured),
            Self::When(_) | Self::Name(_) | Self::First(_) => None,
        }
    }
}

/// The name of the column that tells whether a condition holds.
pub fn when(condition: &Value) -> String {
    format!("{PREFIX}when:{}", hex(condition))
}

/// The name of the column with the name that a detection rule gives. `rule` includes its id; for `owner` see
/// [`DetectionRule::of_json`].
pub fn name_by(rule: &Value, owner: &str) -> String {
    format!("{PREFIX}name.{owner}:{}", hex(rule))
}

/// The name of the column with the id of the first rule that decides.
pub fn first_of(rules: &[Value], owner: &str) -> String {
    format!("{PREFIX}first.{owner}:{}", hex(&Value::Array(rules.to_vec())))
}

fn hex(value: &Value) -> String {
    quiver_types::hex(value.to_string().as_bytes())
}

fn unhex(text: &str) -> Option<Value> {
    serde_json::from_slice(&quiver_types::hex_bytes(text)?).ok()
}

/// Whether a name is one of such a column.
pub(super) fn is_configured(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.strip_prefix(PREFIX).is_some_and(|rest| {
            let word = rest.split([':', '.']).next().unwrap_or_default();
            ["apdex_t", "errors_frustrate", "key", "when", "name", "first"].contains(&word)
        })
}

/// The kind of values in such a column; `None` if the name is none of such a column.
pub(super) fn kind_of(name: &str) -> Option<CellKind> {
    is_configured(name).then(|| match &name[PREFIX.len()..] {
        "apdex_t" => CellKind::Float,
        rest if rest == "errors_frustrate" || rest.starts_with("when") => CellKind::Int,
        _ => CellKind::Text,
    })
}

/// Parses the name of such a column.
///
/// # Errors
///
/// Invalid: the name contains no valid condition or rule.
pub(super) fn read(name: &str, configured: &Arc<QueryConfiguration>) -> Result<Says> {
    let wrong = || Error::invalid("what stands in the name of a column is no condition or rule");
    let rest = name.strip_prefix(PREFIX).ok_or_else(wrong)?;
    let (word, text) = rest.split_once(':').unwrap_or((rest, ""));
    let (word, owner) = word.split_once('.').unwrap_or((word, "service"));
    let rule = |value: &Value| {
        let body = value.as_object().ok_or_else(wrong)?;
        let id = body.get("id").and_then(Value::as_str).unwrap_or_default();
        DetectionRule::of_json(id, body, owner).map_err(|_| wrong())
    };
    Ok(match word {
        "apdex_t" => Says::ApdexT(Arc::clone(configured)),
        "errors_frustrate" => Says::ErrorsFrustrate(Arc::clone(configured)),
        "key" => Says::Key(Arc::clone(configured)),
        "when" => {
            let value = unhex(text).ok_or_else(wrong)?;
            Says::When(Arc::new(Condition::parse(&value).map_err(|_| wrong())?))
        }
        "name" => Says::Name(Arc::new(rule(&unhex(text).ok_or_else(wrong)?)?)),
        "first" => {
            let value = unhex(text).ok_or_else(wrong)?;
            let rules = value.as_array().ok_or_else(wrong)?.iter().map(rule).collect::<Result<Vec<_>>>()?;
            Says::First(rules.into())
        }
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_hold_what_they_say() {
        let configured = Arc::<QueryConfiguration>::default();
        let condition = json!({"field": "a.\"b", "op": "eq", "value": "ü"});
        assert!(matches!(read(&when(&condition), &configured), Ok(Says::When(_))));
        let rule = json!({"id": "r", "name": "n", "service": "*", "condition": condition});
        match read(&first_of(std::slice::from_ref(&rule), "service"), &configured) {
            Ok(Says::First(rules)) => assert_eq!(rules[0].id, "r"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(&name_by(&rule, "application"), &configured), Ok(Says::Name(_))));
        assert_eq!(kind_of("config@apdex_t"), Some(CellKind::Float));
        assert_eq!(kind_of(&when(&condition)), Some(CellKind::Int));
        assert_eq!((kind_of("config@other"), kind_of("@http.route")), (None, None));
        for wrong in
            ["config@when:zz", "config@when:", "config@name.service:7b7d", "config@when:7b7d", "config@first:7b"]
        {
            assert!(read(wrong, &configured).is_err(), "{wrong}");
        }
    }
}
