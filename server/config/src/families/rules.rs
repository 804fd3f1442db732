//! Rules and their groups (`config-api` 2.1 and 2.2). Whether an expression parses is asked of the languages by the
//! service (`Checks`).

use futures::future::BoxFuture;
use quiver_database::{Connection, statement};
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::body::text;
use super::names;
use crate::entity::{DraftContent, Entity, find};
use crate::family::{ChangeContext, Family, Rows};
use crate::fields::{Field, FieldKind, duration_ms};
use crate::problem::{FieldError, Problem, Result};
use crate::sort_text::place_behind;

/// Shortest evaluation interval.
const INTERVAL_MIN_MS: u64 = 1000;
const NAME: FieldKind = FieldKind::Text { min: 1, max: 200 };
const LANGUAGES: &[&str] = &["promql", "logsql", "olap"];
/// The sealed member with the rights that a rule runs with: those of its last editor.
pub const RUN_AS: &str = "runAs";
/// The sealed member with the last editor.
pub const RUN_BY: &str = "runBy";

/// Fields shown with a rule that belong to its group.
const OF_GROUP: [&str; 2] = ["interval", "limit"];

/// Alerting and recording rules, each in one group of [`RULE_GROUPS`].
pub const RULES: Family = Family {
    name: names::RULES,
    path: "/rulesapi/rules",
    domain: Domain::Alerting,
    write: Right::Edit,
    has_name: false,
    has_enabled: true,
    fields: &[
        Field::open("namespace", FieldKind::Text { min: 1, max: 100 }, "\"default\""),
        Field::required("group", NAME),
        Field::open("position", FieldKind::Int { min: 0, max: 100_000 }, "null"),
        Field::open("alert", NAME, "null"),
        Field::open("record", NAME, "null"),
        Field::read_only("name", NAME, "null"),
        Field::required("expr", FieldKind::Prose { max: 65_536 }),
        Field::open("language", FieldKind::Word(LANGUAGES), "\"promql\""),
        Field::open("for", FieldKind::Duration, "\"0s\""),
        Field::open("keep_firing_for", FieldKind::Duration, "\"0s\""),
        Field::open("annotations", FieldKind::Labels, "{}"),
        Field::open("severity", FieldKind::Text { min: 1, max: 100 }, "null"),
        Field::open("service", FieldKind::Text { min: 1, max: 200 }, "null"),
        Field::open("runbook_url", FieldKind::Text { min: 1, max: 2000 }, "null"),
    ],
    unique: &[],
    rules: |body, errors| {
        namespace(body, errors);
        no_dots(body, "group", errors);
        let url = text(body, "runbook_url");
        if !url.is_empty() && !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            errors.push(FieldError::new("/runbook_url", "PATTERN", "must be an address: http:// or https://"));
        }
    },
    service: |body| text(body, "service").to_owned(),
    rows: Rows::Service,
    natural: &[("namespace", false), ("group", false), ("position", false)],
    prepare: Some(prepare),
    derived: &OF_GROUP,
    ..Family::BASE
};

/// Groups whose settings differ from the defaults; a group exists as soon as a rule names it.
pub const RULE_GROUPS: Family = Family {
    name: names::RULE_GROUPS,
    path: "/rulesapi/groups",
    domain: Domain::Alerting,
    write: Right::Edit,
    own_paths: true,
    fields: &[
        Field::open("namespace", FieldKind::Text { min: 1, max: 100 }, "\"default\""),
        Field::open("interval", FieldKind::Duration, "null"),
        Field::open("query_offset", FieldKind::Duration, "\"0s\""),
        Field::open("eval_offset", FieldKind::Offset, "null"),
        Field::open("limit", FieldKind::Int { min: 0, max: 1_000_000 }, "0"),
        Field::open("concurrency", FieldKind::Int { min: 1, max: 16 }, "1"),
        Field::open("type", FieldKind::Word(&["prometheus", "vlogs", "olap"]), "\"prometheus\""),
        Field::open("params", FieldKind::Json, "null"),
        Field::open("headers", FieldKind::Json, "null"),
        Field::open("notifier_headers", FieldKind::Json, "null"),
        Field::open("debug", FieldKind::Bool, "null"),
        Field::open("eval_alignment", FieldKind::Bool, "null"),
    ],
    unique: &[&["namespace", "name"]],
    rules: |body, errors| {
        namespace(body, errors);
        no_dots(body, "name", errors);
        if duration_ms(text(body, "interval")).is_some_and(|ms| ms < INTERVAL_MIN_MS) {
            errors.push(FieldError::new("/interval", "OUT_OF_RANGE", "must be 1s or longer"));
        }
    },
    derived: &["rules", "ruleCount", "lastEvaluation", "evaluationTime", "missedIterations"],
    ..Family::BASE
};

/// A namespace occurs in paths, and in labels between separators.
fn namespace(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !text(body, "namespace").chars().all(plain) {
        let why = "must be of letters, digits and `_`, `-`, `.`";
        errors.push(FieldError::new("/namespace", "PATTERN", why));
    }
    no_dots(body, "namespace", errors);
}

/// Refuses `.` and `..`: a group is addressed by namespace and name, and clients remove such path segments, even
/// written as `%2E`, so the group could be neither read nor deleted.
fn no_dots(body: &Map<String, Value>, field: &str, errors: &mut Vec<FieldError>) {
    if matches!(text(body, field), "." | "..") {
        let why = "must not be `.` or `..`: it stands in paths, which clients shorten by these";
        errors.push(FieldError::new(format!("/{field}"), "PATTERN", why));
    }
}

/// Sets the name of a rule, places a new one after the others of its group, and records the rights that it runs with.
/// An existing rule without a position in the body keeps its own, since the position determines the order of
/// evaluation.
fn prepare<'a>(
    db: &'a mut Connection,
    making: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        same_as_group(db, making, draft).await?;
        let body = &mut draft.body;
        let name = [text(body, "alert"), text(body, "record")].concat();
        body.insert("name".to_owned(), json!(name));
        if body.get("position").is_none_or(Value::is_null) {
            let beside = |e: &Entity| ["namespace", "group"].iter().all(|key| text(&e.body, key) == text(body, key));
            let position = |e: &Entity| e.body.get("position").and_then(Value::as_i64);
            let own = making.before.filter(|e| beside(e)).and_then(position);
            let place = match own {
                Some(own) => own,
                None => place_behind(db, &RULES, making, &[text(body, "namespace"), text(body, "group")]).await?,
            };
            body.insert("position".to_owned(), json!(place));
        }
        let rights: Vec<Value> = making.caller.rights.triples().iter().map(quiver_types::Triple::to_json).collect();
        draft.sealed.insert(RUN_AS.to_owned(), json!(rights));
        // Writing a rule back unchanged, with the same rights, does not make the caller its editor.
        let as_it_is = |e: &&Entity| e.body == draft.body && e.sealed.get(RUN_AS) == draft.sealed.get(RUN_AS);
        let editor = match making.before.filter(as_it_is) {
            Some(before) => before.sealed.get(RUN_BY).cloned(),
            None => Some(json!(making.caller.subject)),
        };
        draft.sealed.extend(editor.map(|editor| (RUN_BY.to_owned(), editor)));
        Ok(())
    })
}

/// The fields of a rule that come from its group.
pub(crate) fn of_group(group: Option<&Map<String, Value>>, interval: &str) -> [(&'static str, Value); 2] {
    let own = |field: &str| group.and_then(|g| g.get(field)).filter(|v| !v.is_null()).cloned();
    [
        (OF_GROUP[0], own("interval").unwrap_or_else(|| json!(interval))),
        (OF_GROUP[1], own("limit").unwrap_or_else(|| json!(0))),
    ]
}

/// The group of a rule, found by its unique fields.
async fn group_of(db: &mut Connection, body: &Map<String, Value>) -> Result<Option<Entity>> {
    let sql = "SELECT id FROM entity_key WHERE family = ? AND owner = ? AND fields = ? AND value = ?";
    let named = json!([text(body, "namespace"), text(body, "group")]).to_string();
    let row = statement(sql).bind(RULE_GROUPS.name).bind("").bind("namespace,name").bind(named);
    let Some(row) = row.fetch_optional(&mut *db).await? else { return Ok(None) };
    find(db, RULE_GROUPS.name, &row.try_get::<String>(0)?).await
}

/// The group's fields in a rule must equal those of the group; they can only be changed there.
async fn same_as_group(db: &mut Connection, making: &ChangeContext<'_>, draft: &DraftContent) -> Result<()> {
    if draft.said.is_empty() {
        return Ok(());
    }
    let group = group_of(db, &draft.body).await?;
    let present = of_group(group.as_ref().map(|e| &e.body), making.group_interval);
    let differs = |(field, value): &&(&str, Value)| draft.said.get(*field).is_some_and(|said| said != value);
    let errors: Vec<FieldError> = present
        .iter()
        .filter(differs)
        .map(|(field, _)| FieldError::new(format!("/{field}"), "READ_ONLY_FIELD", "is changed at the group"))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(family: &Family, body: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        (family.rules)(body.as_object().expect("an object"), &mut errors);
        errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect()
    }

    #[test]
    fn namespaces_stand_in_paths() {
        for family in [&RULES, &RULE_GROUPS] {
            for fine in ["default", "a", "A-1_b.c", "...", ".a", ""] {
                assert!(wrong(family, &json!({ "namespace": fine })).is_empty(), "{fine}");
            }
            for bad in ["a b", "a/b", "ä", "a:b", "a\u{0}", "%20", "a\n", ".", ".."] {
                assert_eq!(wrong(family, &json!({ "namespace": bad })), ["/namespace PATTERN"], "{bad}");
            }
        }
    }

    #[test]
    fn names_of_groups_are_no_steps_of_a_path() {
        for (family, field) in [(&RULES, "group"), (&RULE_GROUPS, "name")] {
            for fine in ["a", "...", ".a", "a/..", " ."] {
                assert!(wrong(family, &json!({ field: fine })).is_empty(), "{fine}");
            }
            for bad in [".", ".."] {
                assert_eq!(wrong(family, &json!({ field: bad })), [format!("/{field} PATTERN")], "{bad}");
            }
        }
    }

    #[test]
    fn runbooks_are_addresses() {
        for fine in ["http://h", "https://h/a?b#c", ""] {
            assert!(wrong(&RULES, &json!({ "runbook_url": fine })).is_empty(), "{fine}");
        }
        assert!(wrong(&RULES, &json!({"runbook_url": null})).is_empty());
        for bad in ["h", "/runbook", "ftp://h", "javascript:alert(1)", " https://h", "HTTP://h"] {
            assert_eq!(wrong(&RULES, &json!({ "runbook_url": bad })), ["/runbook_url PATTERN"], "{bad}");
        }
        let both = json!({"namespace": "a b", "runbook_url": "h"});
        assert_eq!(wrong(&RULES, &both), ["/namespace PATTERN", "/runbook_url PATTERN"]);
    }

    #[test]
    fn groups_are_evaluated_once_a_second_at_most() {
        for (interval, expected) in [
            (json!("1s"), false),
            (json!("1000ms"), false),
            (json!("1m"), false),
            (json!(null), false),
            (json!("999ms"), true),
            (json!("0s"), true),
        ] {
            let found = wrong(&RULE_GROUPS, &json!({ "interval": interval }));
            let expected: &[&str] = if expected { &["/interval OUT_OF_RANGE"] } else { &[] };
            assert_eq!(found, expected, "{interval}");
        }
    }

    #[test]
    fn rules_are_of_the_service_that_they_name() {
        let service = |body: Value| (RULES.service)(body.as_object().expect("an object"));
        assert_eq!(service(json!({"service": "cart"})), "cart");
        assert_eq!(service(json!({})), "");
        assert_eq!(service(json!({"service": null})), "");
        // Labels of the rule do not decide about rights.
        assert_eq!(service(json!({"labels": {"service": "cart"}})), "");
    }
}
