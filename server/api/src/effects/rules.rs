//! Configured rules as table rows.

use arrow::array::RecordBatch;
use quiver_config::families::RULES;
use quiver_config::{Config, Entity};
use quiver_query::tables::rules::{ConfiguredRule, rule_rows};
use quiver_types::Result;

fn rule(entity: &Entity) -> ConfiguredRule<'_> {
    ConfiguredRule {
        id: &entity.id,
        alert: entity.text("alert"),
        record: entity.text("record"),
        namespace: entity.text("namespace"),
        group: entity.text("group"),
        language: entity.text("language"),
        expr: entity.text("expr"),
        severity: entity.text("severity"),
        service: entity.text("service"),
        enabled: super::is_enabled(&entity.body),
        managed_by: &entity.managed_by,
        updated_ms: entity.updated_ms(),
    }
}

/// All rows.
///
/// # Errors
/// Unavailable: the database is unreachable.
pub(super) async fn rows(config: &Config) -> Result<RecordBatch> {
    let entities = config.all(&RULES).await.map_err(super::unavailable)?;
    rule_rows(&entities.iter().map(rule).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_have_what_is_said_of_them() {
        let entity = Entity::for_tests(
            "r1",
            json!({
                "alert": "Down", "namespace": "n", "group": "g", "language": "promql", "expr": "up == 0",
                "severity": "page", "service": null, "enabled": true, "record": 5,
            }),
        );
        let shown = rule(&entity);
        assert_eq!((shown.id, shown.alert, shown.record), ("r1", "Down", ""));
        assert_eq!((shown.namespace, shown.group, shown.language, shown.expr), ("n", "g", "promql", "up == 0"));
        assert_eq!((shown.severity, shown.service, shown.enabled, shown.managed_by), ("page", "", true, "api"));
        // Only `true` enables a rule.
        for body in [json!({}), json!({"enabled": false}), json!({"enabled": null}), json!({"enabled": "true"})] {
            let entity = Entity::for_tests("r", body.clone());
            assert!(!rule(&entity).enabled, "{body}");
        }
    }
}
