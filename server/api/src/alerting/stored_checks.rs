//! Validates stored rules and the stored policy before they are saved.

use std::collections::BTreeSet;

use quiver_config::families::{RULE_GROUPS, RULES};
use quiver_config::json::text;
use quiver_config::{Checks, ComponentEntity, Family, FieldError};
use quiver_types::Millis;
use quiver_types::time::duration;
use serde_json::{Map, Value};

use crate::alerting::stored_rules::{group_of, settings_of};
use crate::alerting::{kept_secrets, stored_policy};

/// Validates rules and groups with the parsers of their languages, and the policy with its parser.
#[derive(Debug, Clone, Copy)]
pub struct AlertingChecks {
    /// The interval of groups that have none.
    pub interval_ms: Millis,
}

impl Checks for AlertingChecks {
    fn check(&self, family: &Family, body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
        let found = if family.name == RULES.name {
            group_of(body).map(drop)
        } else if family.name == RULE_GROUPS.name {
            settings_of(text(body, "name"), body).map(drop)
        } else {
            return;
        };
        let Err(problem) = found else { return };
        errors.extend(
            problem.errors.into_iter().map(|e| FieldError {
                field: e.field.strip_prefix("/rule").map_or(e.field.clone(), str::to_owned),
                ..e
            }),
        );
    }

    fn secrets(&self, family: &Family, body: &Map<String, Value>) -> Vec<String> {
        stored_policy::secrets(family, body)
    }

    fn group_interval(&self) -> String {
        duration::format(self.interval_ms)
    }

    fn whole(&self, parts: &[ComponentEntity], changed: &[String]) -> quiver_config::Result<()> {
        stored_policy::check(parts, changed)
    }

    fn kept_secrets(
        &self,
        before: &[ComponentEntity],
        after: &[ComponentEntity],
        changed: &[String],
        given: &BTreeSet<String>,
    ) -> quiver_config::Result<()> {
        kept_secrets::check(before, after, changed, given)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_checked_by_the_languages() {
        let check = |family: &Family, body: Value| {
            let mut errors = Vec::new();
            AlertingChecks { interval_ms: 60_000 }.check(family, body.as_object().expect("an object"), &mut errors);
            errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(check(&RULES, json!({"group": "g", "alert": "A", "expr": "up == 0", "for": "5m"})), none);
        assert_eq!(check(&RULES, json!({"group": "g", "alert": "A", "expr": "up =="})), ["/expr INVALID_EXPR"]);
        assert_eq!(check(&RULES, json!({"group": "g", "record": "a", "expr": "1", "for": "1m"})).len(), 1);
        assert_eq!(
            check(&RULES, json!({"group": "g", "alert": "A", "expr": "{}", "language": "olap"})),
            ["/expr INVALID_EXPR"]
        );
        assert_eq!(
            check(&RULE_GROUPS, json!({"name": "g", "interval": "1m", "eval_offset": "2m"})),
            ["/eval_offset OUT_OF_RANGE"]
        );
        assert_eq!(check(&RULE_GROUPS, json!({"name": "g", "interval": "1m", "eval_offset": "-10s"})), none);
        assert_eq!(check(&RULE_GROUPS, json!({"name": "g", "limit": 0})), none);
    }
}
