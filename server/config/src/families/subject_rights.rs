//! The rights of subjects as seen by the transaction, for rules across several entities.

use quiver_database::{Connection, statement};
use quiver_types::{Rights, Triple};
use serde_json::{Map, Value};

use crate::family::{Caller, EntityChange};
use crate::json::time_of;
use crate::problem::{Problem, ProblemKind, Result};

/// The built-in role `admin`.
pub const ADMIN_ROLE_ID: &str = "00000000-0000-7000-8000-000000000001";

const BINDINGS: &str = "rbac/bindings";
const GROUPS: &str = "rbac/groups";

/// Parses the permissions in a body.
pub(crate) fn triples(body: &Map<String, Value>, field: &str) -> Vec<Triple> {
    let items = body.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|t| Triple::of_json(t).ok()).collect()
}

/// Refuses rights that the caller lacks.
pub(super) fn only_own(caller: &Caller, given: &[Triple]) -> Result<()> {
    match given.iter().find(|t| !caller.rights.covers(t)) {
        Some(lacking) => Err(Problem::forbidden(&lacking.to_string())),
        None => Ok(()),
    }
}

/// Refuses an account under the id of one of the other kind: groups name their members by the id alone, so it would have the
/// rights of both.
async fn id_is_its_own(db: &mut Connection, others: &str, id: &str) -> Result<()> {
    if body(db, others, id).await?.is_some() {
        let text = "there is an account with this id";
        return Err(Problem::new(ProblemKind::Precondition, "VERSION_CONFLICT", text));
    }
    Ok(())
}

/// Parses `rbac/users/<id>`, the owner of a key.
pub(super) fn owner_of(owner: &str) -> Result<(&'static str, &str)> {
    let kinds = [("rbac/users/", "user"), ("rbac/service-accounts/", "serviceAccount")];
    let found = kinds.iter().find_map(|(prefix, kind)| owner.strip_prefix(prefix).map(|id| (*kind, id)));
    found.ok_or_else(|| Problem::internal(format!("a key without owner: `{owner}`")))
}

/// All bindings.
async fn bindings(db: &mut Connection) -> Result<Vec<Map<String, Value>>> {
    let rows = statement("SELECT body FROM entity WHERE family = ?").bind(BINDINGS).fetch_all(db).await?;
    rows.iter().map(|row| serde_json::from_str(&row.try_get::<String>(0)?).map_err(Problem::internal)).collect()
}

/// Ids of the entities of a family that name one.
async fn naming(db: &mut Connection, family: &str, (to_family, to_id): (&str, &str)) -> Result<Vec<String>> {
    let sql = "SELECT id FROM entity_link WHERE to_family = ? AND to_id = ? AND family = ? ORDER BY id";
    let rows = statement(sql).bind(to_family).bind(to_id).bind(family).fetch_all(db).await?;
    rows.iter().map(|row| row.try_get(0).map_err(Problem::from)).collect()
}

async fn body(db: &mut Connection, family: &str, id: &str) -> Result<Option<Map<String, Value>>> {
    let sql = "SELECT body FROM entity WHERE family = ? AND id = ?";
    let row = statement(sql).bind(family).bind(id).fetch_optional(db).await?;
    let Some(row) = row else { return Ok(None) };
    serde_json::from_str(&row.try_get::<String>(0)?).map(Some).map_err(Problem::internal)
}

/// The rights that a binding grants.
pub(super) async fn given_by(db: &mut Connection, binding: &Map<String, Value>) -> Result<Rights> {
    let id = binding.get("roleId").and_then(Value::as_str).unwrap_or_default();
    let role = body(db, "rbac/roles", id).await?.unwrap_or_default();
    let services = binding.get("services").and_then(Value::as_array);
    let services = services.map(|s| s.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>());
    Ok(Rights::narrowed(&triples(&role, "permissions"), services.as_deref()))
}

fn is_over(binding: &Map<String, Value>, now_ms: i64) -> bool {
    binding.get("expiresAt").and_then(Value::as_str).and_then(time_of).is_some_and(|end| end <= now_ms)
}

fn subject(binding: &Map<String, Value>) -> (&str, &str) {
    let part = |key| binding.get("subject").and_then(|s| s.get(key)).and_then(Value::as_str).unwrap_or_default();
    (part("type"), part("id"))
}

/// The rights of a subject, including those through groups.
pub(super) async fn rights_of(db: &mut Connection, now_ms: i64, kind: &str, id: &str) -> Result<Rights> {
    let family = match kind {
        "user" => "rbac/users",
        "serviceAccount" => "rbac/service-accounts",
        _ => GROUPS,
    };
    // Found by their names: a change of many users asks this for each, and there may be as many bindings.
    let mut of = naming(&mut *db, BINDINGS, (family, id)).await?;
    for group in naming(&mut *db, GROUPS, (family, id)).await? {
        of.extend(naming(&mut *db, BINDINGS, (GROUPS, &group)).await?);
    }
    let mut held = Vec::new();
    for id in of {
        let binding = body(&mut *db, BINDINGS, &id).await?.unwrap_or_default();
        if !is_over(&binding, now_ms) {
            held.extend(given_by(&mut *db, &binding).await?.triples().iter().cloned());
        }
    }
    Ok(held.into_iter().collect())
}

/// Says whether a binding gives somebody who can sign in `{admin, *, *}` without a time limit.
async fn makes_an_admin(db: &mut Connection, binding: &Map<String, Value>) -> Result<bool> {
    // A binding with an end would leave no administrator one day.
    let ends = binding.get("expiresAt").is_some_and(|end| !end.is_null());
    if ends || !given_by(&mut *db, binding).await?.covers(&Triple::admin()) {
        return Ok(false);
    }
    let members = match subject(binding) {
        ("user" | "serviceAccount", id) => vec![id.to_owned()],
        ("group", id) => {
            let group = body(&mut *db, GROUPS, id).await?.unwrap_or_default();
            let members = group.get("members").and_then(Value::as_array);
            members.into_iter().flatten().filter_map(|m| m.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    };
    let enabled = |body: &Map<String, Value>| body.get("enabled").and_then(Value::as_bool).unwrap_or(false);
    for id in members {
        for family in ["rbac/users", "rbac/service-accounts"] {
            if body(&mut *db, family, &id).await?.is_some_and(|b| enabled(&b)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Refuses a change after which nobody who can sign in has `{admin, *, *}` without a time limit.
pub(super) async fn an_admin_stays(db: &mut Connection, caller: &Caller) -> Result<()> {
    // During the first start there is no administrator yet.
    if caller.subject == Caller::SETUP {
        return Ok(());
    }
    // Nearly always somebody has the built-in role; only where nobody has it all bindings are looked through.
    for id in naming(&mut *db, BINDINGS, ("rbac/roles", ADMIN_ROLE_ID)).await? {
        let binding = body(&mut *db, BINDINGS, &id).await?.unwrap_or_default();
        if makes_an_admin(&mut *db, &binding).await? {
            return Ok(());
        }
    }
    for binding in bindings(&mut *db).await? {
        if makes_an_admin(&mut *db, &binding).await? {
            return Ok(());
        }
    }
    let text = "this would leave nobody who holds {admin, *, *}";
    Err(Problem::new(ProblemKind::Forbidden, "LAST_ADMIN", text))
}

/// Checks the change of an account, which is a subject of some kind; `others` is the family of the other kind. Whoever
/// changes an account must have all its rights, since a new password or secret gives access to them, and at least one
/// administrator must remain.
pub(super) async fn account_changes(change: EntityChange<'_>, kind: &str, others: &str) -> Result<()> {
    let EntityChange { db, caller, now_ms, before, after } = change;
    let Some(account) = before else {
        return match after {
            Some(new) => id_is_its_own(db, others, &new.id).await,
            None => Ok(()),
        };
    };
    // Also for one's own account: an API key with fewer rights than its owner must not become its owner.
    let held = rights_of(db, now_ms, kind, &account.id).await?;
    only_own(caller, held.triples())?;
    an_admin_stays(db, caller).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    fn triple(text: &str) -> Triple {
        Triple::of_json(&json!(text)).expect("a triple")
    }

    #[test]
    fn permissions_that_are_none_give_nothing() {
        let body =
            map(json!({"permissions": ["{view, logs, cart}", 5, "{view, logs}", "nonsense", null, "{admin, *, *}"]}));
        let found: Vec<String> = triples(&body, "permissions").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["{view, logs, cart}", "{admin, *, *}"]);
        for none in [json!({}), json!({"permissions": null}), json!({"permissions": "{admin, *, *}"})] {
            assert!(triples(&map(none.clone()), "permissions").is_empty(), "{none}");
        }
    }

    #[test]
    fn what_is_given_is_had() {
        let caller = Caller { rights: [triple("{edit, logs, cart*}")].into_iter().collect(), ..Caller::system() };
        assert!(only_own(&caller, &[]).is_ok());
        assert!(only_own(&caller, &[triple("{view, logs, cart-eu}"), triple("{edit, logs, cart*}")]).is_ok());
        for more in ["{admin, logs, cart}", "{view, logs, *}", "{view, alerting, cart}", "{admin, *, *}"] {
            let refused = only_own(&caller, &[triple("{view, logs, cart}"), triple(more)]).unwrap_err();
            assert_eq!((refused.code, &refused.more["required"]), ("FORBIDDEN", &json!(more)));
        }
        assert!(only_own(&Caller::system(), &[triple("{admin, *, *}")]).is_ok());
    }

    #[test]
    fn owners_of_keys() {
        assert_eq!(owner_of("rbac/users/a/b").unwrap(), ("user", "a/b"));
        assert_eq!(owner_of("rbac/service-accounts/x").unwrap(), ("serviceAccount", "x"));
        for other in ["", "rbac/users", "users/a", "rbac/groups/a", "/rbac/users/a"] {
            assert_eq!(owner_of(other).unwrap_err().kind, ProblemKind::Internal, "{other}");
        }
    }

    #[test]
    fn bindings_that_are_over() {
        let check = |ends: Value, expected: bool| {
            assert_eq!(is_over(&map(json!({"expiresAt": ends})), 1_000), expected, "{ends}");
        };
        check(json!(null), false);
        check(json!("1970-01-01T00:00:01.001Z"), false);
        // It is over at its end, in whatever zone that is written.
        check(json!("1970-01-01T00:00:01Z"), true);
        check(json!("1970-01-01T01:00:01+01:00"), true);
        check(json!("1969-12-31T00:00:00Z"), true);
        check(json!("never"), false);
        assert!(!is_over(&Map::new(), i64::MAX));
        assert_eq!(subject(&map(json!({"subject": {"type": "user", "id": "a"}}))), ("user", "a"));
        assert_eq!(subject(&map(json!({"subject": {"type": 5}}))), ("", ""));
        assert_eq!(subject(&Map::new()), ("", ""));
    }
}
