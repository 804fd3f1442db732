//! Receivers, silences and the audit log as table rows.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use quiver_alertd::Alertd;
use quiver_alerting::matchers::Matchers;
use quiver_config::families::{RECEIVERS, ROUTES};
use quiver_config::json::text;
use quiver_config::json::time_of;
use quiver_config::{AuditQuery, Config, Entity};
use quiver_query::tables::config_tables::{
    ListedAudit, ListedReceiver, ListedSilence, audit_rows, receiver_rows, silence_rows,
};
use quiver_types::query_configuration::ReserveFn;
use quiver_types::{MatchOp, Result};
use serde_json::{Map, Value};

use super::unavailable;

/// Nanoseconds in a millisecond.
const MS: i64 = 1_000_000;
/// Rows per page of the audit log.
const PAGE: &str = "1000";

/// Makes a single batch, after its memory was counted.
fn held(rows: RecordBatch, hold: &ReserveFn<'_>) -> Result<Vec<RecordBatch>> {
    hold(rows.get_array_memory_size())?;
    Ok(vec![rows])
}

/// The integration kinds of a receiver, such as `email,webhook`.
fn types(receiver: &Entity) -> String {
    let filled = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    let kinds = receiver.body.iter().filter(|(_, value)| filled(value));
    let mut kinds: Vec<&str> = kinds.filter_map(|(key, _)| key.strip_suffix("_configs")).collect();
    kinds.sort_unstable();
    kinds.join(",")
}

fn receiver<'a>(entity: &'a Entity, uses: &HashMap<&str, i64>) -> ListedReceiver<'a> {
    let name = text(&entity.body, "name");
    ListedReceiver {
        id: &entity.id,
        name,
        types: types(entity),
        routes: uses.get(name).copied().unwrap_or_default(),
        managed_by: &entity.managed_by,
        updated_ms: entity.updated_ms(),
    }
}

/// All receivers.
///
/// # Errors
/// Unavailable: the database is unreachable; those of `hold`.
pub(super) async fn receivers(config: &Config, hold: &ReserveFn<'_>) -> Result<Vec<RecordBatch>> {
    let receivers = config.all(&RECEIVERS).await.map_err(unavailable)?;
    let routes = config.all(&ROUTES).await.map_err(unavailable)?;
    let mut uses: HashMap<&str, i64> = HashMap::new();
    for route in &routes {
        *uses.entry(text(&route.body, "receiver")).or_default() += 1;
    }
    let rows: Vec<_> = receivers.iter().map(|entity| receiver(entity, &uses)).collect();
    held(receiver_rows(&rows)?, hold)
}

/// The service that matchers select. The first non-empty service label of an alert names its service, so a matcher on
/// a later label counts only if others require the labels before it to be empty.
fn service<'m>(names: &[String], matchers: &'m Matchers) -> &'m str {
    let equal = |name: &str| matchers.iter().find(|m| m.op == MatchOp::Equal && m.name == name);
    for name in names {
        match equal(name) {
            Some(matcher) if matcher.value.is_empty() => {}
            Some(matcher) => return &matcher.value,
            None => return "",
        }
    }
    ""
}

/// The value that a matcher with `=` requires of a service label.
fn named<'m>(names: &[String], matchers: &'m Matchers) -> &'m str {
    let named = |name: &String| {
        matchers
            .iter()
            .find(|m| m.op == MatchOp::Equal && m.name == *name && !m.value.is_empty())
            .map(|m| m.value.as_str())
    };
    names.iter().find_map(named).unwrap_or_default()
}

/// All silences that are stored.
///
/// # Errors
/// Those of `hold`.
pub(super) fn silences(alertd: &Alertd, hold: &ReserveFn<'_>) -> Result<Vec<RecordBatch>> {
    let now = alertd.router.now();
    let all = alertd.router.silences();
    let rows: Vec<_> = all
        .iter()
        .map(|silence| ListedSilence {
            id: &silence.id,
            state: silence.state(now).as_str(),
            created_by: &silence.created_by,
            comment: &silence.comment,
            service: service(alertd.router.service_labels(), &silence.matchers),
            named_service: named(alertd.router.service_labels(), &silence.matchers),
            starts_ms: silence.starts_at / MS,
            ends_ms: silence.ends_at / MS,
            updated_ms: silence.updated_at / MS,
        })
        .collect();
    held(silence_rows(&rows)?, hold)
}

fn audited(row: &Map<String, Value>) -> ListedAudit<'_> {
    ListedAudit {
        id: text(row, "id"),
        at_ms: row.get("at").and_then(Value::as_str).and_then(time_of),
        actor: text(row, "actor"),
        actor_type: text(row, "actorType"),
        ip: text(row, "ip"),
        action: text(row, "action"),
        family: text(row, "family"),
        entity_id: text(row, "entityId"),
        entity_name: text(row, "entityName"),
        outcome: text(row, "outcome"),
        code: text(row, "code"),
    }
}

/// The audit log, newest rows first, read page by page; with `own` only the rows of that caller.
///
/// # Errors
/// Unavailable: the database is unreachable; those of `hold`.
pub(super) async fn audit(config: &Config, own: Option<&str>, hold: &ReserveFn<'_>) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut asked = vec![("limit".to_owned(), PAGE.to_owned())];
        asked.extend(own.map(|own| ("actorId".to_owned(), own.to_owned())));
        asked.extend(cursor.take().map(|cursor| ("cursor".to_owned(), cursor)));
        let page = config.audit_rows(&AuditQuery::parse(&asked).map_err(unavailable)?).await.map_err(unavailable)?;
        batches.extend(held(audit_rows(&page.items.iter().map(audited).collect::<Vec<_>>())?, hold)?);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(batches),
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::MatchOp::{Equal, NotEqual, Regex};
    use quiver_types::Matcher;
    use serde_json::json;

    use super::*;

    #[test]
    fn services_of_silences() {
        let names = ["service".to_owned(), "job".to_owned()];
        let of = |pairs: &[(&str, MatchOp, &str)]| {
            let matchers = pairs.iter().map(|(name, op, value)| Matcher::new(*name, *op, *value).unwrap());
            let matchers = Matchers::new(matchers.collect());
            service(&names, &matchers).to_owned()
        };
        assert_eq!(of(&[("service", Equal, "shop")]), "shop");
        assert_eq!(of(&[("service", Regex, "shop")]), "");
        assert_eq!(of(&[("job", Equal, "shop")]), "", "its service may be any");
        let job = Matchers::new(vec![Matcher::equal("job", "shop")]);
        assert_eq!(named(&names, &job), "shop");
        assert_eq!(of(&[("service", Equal, ""), ("job", Equal, "shop")]), "shop");
    }

    #[test]
    fn kinds_of_receivers() {
        for (body, expected) in [
            (json!({}), ""),
            (json!({"name": "ops"}), ""),
            (json!({"webhook_configs": [{}], "email_configs": [{}, {}]}), "email,webhook"),
            (json!({"webhook_configs": [], "email_configs": null, "slack_configs": {}}), ""),
            (json!({"configs": [1], "_configs": [1], "labels": [1]}), ""),
        ] {
            assert_eq!(types(&Entity::for_tests("r", body.clone())), expected, "{body}");
        }
    }

    #[test]
    fn receivers_count_the_routes_that_name_them() {
        let uses: HashMap<&str, i64> = [("ops", 3), ("", 9)].into();
        let of = |body: Value| {
            let entity = Entity::for_tests("r1", body);
            let row = receiver(&entity, &uses);
            (row.id.to_owned(), row.name.to_owned(), row.routes, row.managed_by.to_owned(), row.updated_ms)
        };
        let row = |name: &str, routes: i64| ("r1".to_owned(), name.to_owned(), routes, "api".to_owned(), 0);
        assert_eq!(of(json!({"name": "ops"})), row("ops", 3));
        assert_eq!(of(json!({"name": "mail"})), row("mail", 0));
    }

    #[test]
    fn silences_name_a_service_in_several_ways() {
        let names = ["service".to_owned(), "job".to_owned()];
        let of = |pairs: &[(&str, MatchOp, &str)]| {
            let matchers = pairs.iter().map(|(name, op, value)| Matcher::new(*name, *op, *value).unwrap());
            let matchers = Matchers::new(matchers.collect());
            (service(&names, &matchers).to_owned(), named(&names, &matchers).to_owned())
        };
        let both = |service: &str, named: &str| (service.to_owned(), named.to_owned());
        assert_eq!(of(&[]), both("", ""));
        assert_eq!(of(&[("a", Equal, "b")]), both("", ""));
        assert_eq!(of(&[("service", Equal, "a"), ("job", Equal, "b")]), both("a", "a"));
        assert_eq!(of(&[("service", Equal, ""), ("job", Equal, "")]), both("", ""));
        assert_eq!(of(&[("service", NotEqual, "a"), ("job", Equal, "b")]), both("", "b"));
        assert_eq!(of(&[("service", Regex, "a"), ("job", Regex, "b")]), both("", ""));
        assert_eq!(named(&[], &Matchers::new(vec![Matcher::equal("service", "a")])), "");
    }

    #[test]
    fn rows_of_the_audit_log() {
        let row = json!({
            "id": "7", "at": "1970-01-01T00:00:01.500Z", "actor": "ann", "actorType": "user", "ip": null,
            "action": "create", "family": "rules", "entityId": "r", "entityName": 5, "outcome": "ok", "other": "x",
        });
        let row = row.as_object().expect("an object");
        let shown = audited(row);
        assert_eq!((shown.id, shown.at_ms, shown.actor, shown.actor_type), ("7", Some(1500), "ann", "user"));
        assert_eq!((shown.ip, shown.action, shown.family), ("", "create", "rules"));
        assert_eq!((shown.entity_id, shown.entity_name, shown.outcome, shown.code), ("r", "", "ok", ""));
        let bare = Map::new();
        assert_eq!((audited(&bare).at_ms, audited(&bare).id), (None, ""));
    }
}
