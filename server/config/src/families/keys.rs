//! API keys of a user or a service account.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right, Rights, Triple};
use serde_json::{Map, Value};

use super::subject_rights;
use crate::family::{EntityChange, Family, KeyBounds, no_builtin, no_links, no_rules, no_service};
use crate::fields::{Field, FieldKind};
use crate::json::time_of;
use crate::problem::{Problem, Result};

/// Longest lifetime of a key: two years.
const LIFE_MS_MAX: i64 = 2 * 366 * 86_400_000;

/// API keys, each of one user or service account, whose id the path names as owner.
pub const KEYS: Family = Family {
    name: "rbac/keys",
    path: "/platform-api/rbac/{owner}/keys",
    domain: Domain::Rbac,
    write: Right::Admin,
    title: "name",
    has_name: true,
    has_enabled: false,
    fields: &[
        Field::open("expiresAt", FieldKind::Time, "null"),
        Field::open("permissions", FieldKind::Triples { max: 1000 }, "null"),
        Field::open("allowedCidrs", FieldKind::Networks { max: 100 }, "[]"),
        Field::read_only("keyId", FieldKind::Text { min: 12, max: 12 }, "null"),
        Field::read_only("lastUsedAt", FieldKind::Time, "null"),
    ],
    unique: &[&["name"]],
    owners: &["rbac/users", "rbac/service-accounts"],
    links: no_links,
    rules: no_rules,
    hook: Some(hook),
    service: no_service,
    builtin: no_builtin,
    ..Family::BASE
};

fn expiry(body: &Map<String, Value>) -> Option<i64> {
    body.get("expiresAt").and_then(Value::as_str).and_then(time_of)
}

/// A caller authenticated by a key cannot make one that is valid for longer, or from other networks.
fn keep_within(own: &KeyBounds, body: &Map<String, Value>) -> Result<()> {
    if let Some(end) = own.expires_ms
        && expiry(body).is_none_or(|expires| expires > end)
    {
        let text = "must not be later than the end of the key that asks";
        return Err(Problem::field("/expiresAt", "OUT_OF_RANGE", text));
    }
    let networks = body.get("allowedCidrs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_own = |network: &Value| network.as_str().is_some_and(|n| own.networks.iter().any(|o| o == n));
    if !own.networks.is_empty() && (networks.is_empty() || !networks.iter().all(is_own)) {
        let text = "must be among those of the key that asks";
        return Err(Problem::field("/allowedCidrs", "INVALID_VALUE", text));
    }
    Ok(())
}

/// What a key may do as long as its owner holds it: what it is limited to, else all of it.
fn given(key: &Map<String, Value>, held: &Rights) -> Vec<Triple> {
    // Also for one's own keys: a key with fewer rights must not create one with more.
    let all = key.get("permissions").is_none_or(Value::is_null);
    if all { held.triples().to_vec() } else { subject_rights::triples(key, "permissions") }
}

/// A key has at most the rights of its owner, whoever creates it, and no more than its creator. A caller authenticated by a
/// key leaves those alone that may do more: whoever found one could end all others of its owner.
fn hook(EntityChange { db, caller, now_ms, before, after }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        if let (Some(old), Some(_)) = (before, &caller.key) {
            let (kind, id) = subject_rights::owner_of(&old.owner)?;
            let held = subject_rights::rights_of(db, now_ms, kind, id).await?;
            subject_rights::only_own(caller, &given(&old.body, &held))?;
        }
        let Some(key) = after else { return Ok(()) };
        let changed = before.is_none_or(|b| b.body.get("expiresAt") != key.body.get("expiresAt"));
        let in_time = |expires: &i64| *expires > now_ms && *expires <= now_ms.saturating_add(LIFE_MS_MAX);
        if changed && expiry(&key.body).is_some_and(|expires| !in_time(&expires)) {
            let text = "must lie in the future, at most two years away";
            return Err(Problem::field("/expiresAt", "OUT_OF_RANGE", text));
        }
        caller.key.as_ref().map_or(Ok(()), |own| keep_within(own, &key.body))?;
        let (kind, id) = subject_rights::owner_of(&key.owner)?;
        let held = subject_rights::rights_of(db, now_ms, kind, id).await?;
        subject_rights::only_own(caller, &given(&key.body, &held))?;
        let asked = subject_rights::triples(&key.body, "permissions");
        if let Some((n, triple)) = asked.iter().enumerate().find(|(_, t)| !held.covers(t)) {
            let text = format!("the key's owner does not hold {triple}");
            return Err(Problem::field(format!("/permissions/{n}"), "INVALID_VALUE", text));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A key created with another key has at least its restrictions.
    #[test]
    fn keys_of_keys_are_bounded_by_them() {
        let check = |own: (Option<i64>, &[&str]), body: Value, refused: Option<&str>| {
            let networks = own.1.iter().map(|network| (*network).to_owned()).collect();
            let bounds = KeyBounds { expires_ms: own.0, networks };
            let told = keep_within(&bounds, body.as_object().expect("an object"));
            let field = told.err().map(|problem| problem.errors[0].field.clone());
            assert_eq!(field.as_deref(), refused, "{own:?} {body}");
        };

        let end = time_of("2027-01-01T00:00:00Z");
        check((None, &[]), json!({}), None);
        check((None, &[]), json!({"expiresAt": null, "allowedCidrs": []}), None);
        check((end, &[]), json!({"expiresAt": "2027-01-01T00:00:00Z"}), None);
        check((end, &[]), json!({"expiresAt": "2026-12-31T23:59:59.999Z"}), None);
        check((end, &[]), json!({"expiresAt": "2027-01-01T01:00:00+01:00"}), None);
        check((end, &[]), json!({"expiresAt": "2027-01-01T00:00:00.001Z"}), Some("/expiresAt"));
        // A key without an end would be valid for longer.
        check((end, &[]), json!({"expiresAt": null}), Some("/expiresAt"));
        check((end, &[]), json!({}), Some("/expiresAt"));
        let networks: &[&str] = &["10.0.0.0/8", "::1"];
        check((None, networks), json!({"allowedCidrs": ["10.0.0.0/8"]}), None);
        check((None, networks), json!({"allowedCidrs": ["::1", "10.0.0.0/8"]}), None);
        check((None, networks), json!({"allowedCidrs": ["10.0.0.0/8", "192.0.2.0/24"]}), Some("/allowedCidrs"));
        // An empty list of networks means any network.
        check((None, networks), json!({"allowedCidrs": []}), Some("/allowedCidrs"));
        check((None, networks), json!({}), Some("/allowedCidrs"));
    }
}
