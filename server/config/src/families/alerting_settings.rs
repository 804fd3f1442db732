//! Settings of alerting (`config-api` 2.3): whether changes of rules and of the policy act by themselves.

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::{Value, json};

use crate::document::Entity;
use crate::family::{Caller, Family};
use crate::fields::{Field, Kind};
use crate::problem::Result;
use crate::staged::{Area, acts_by_itself};

/// The one entity of these settings.
pub const SETTINGS_ID: &str = "00000000-0000-7000-8000-000000000404";

/// An area by its own name.
const AREAS: &[Field] = &[Field::open("rules", Kind::Bool, "true"), Field::open("policy", Kind::Bool, "true")];

/// Settings of alerting: one entity, that is always there.
pub const ALERTING_SETTINGS: Family = Family {
    name: "settings",
    path: "/rulesapi/settings",
    domain: Domain::Alerting,
    write: Right::Edit,
    has_name: false,
    title: "description",
    own_paths: true,
    fields: &[Field::open("autoDeploy", Kind::Object(AREAS), "{\"rules\": true, \"policy\": true}")],
    unique: &[],
    builtin: || vec![(SETTINGS_ID, json!({}))],
    builtin_open: true,
    hook: Some(keep_what_runs),
    ..Family::BASE
};

/// Where changes are to wait from now on, what is there is what was deployed; where they act again, all of them do.
fn keep_what_runs<'a>(
    db: &'a mut Connection,
    _: &'a Caller,
    _: i64,
    before: Option<&'a Entity>,
    after: Option<&'a Entity>,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for area in Area::ALL {
            match (acts_by_itself(before, area), acts_by_itself(after, area)) {
                (true, false) => area.keep(db).await?,
                (false, true) => area.forget(db).await?,
                _ => {}
            }
        }
        Ok(())
    })
}

/// What an entity of these settings says of an area; what it does not say is true.
pub(crate) fn says(body: &serde_json::Map<String, Value>, area: &str) -> bool {
    body.get("autoDeploy").and_then(|areas| areas.get(area)) != Some(&Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing waits because a setting is not there.
    #[test]
    fn what_is_not_said_is_true() {
        for (body, rules, policy) in [
            (json!({}), true, true),
            (json!({"autoDeploy": null}), true, true),
            (json!({"autoDeploy": {}}), true, true),
            (json!({"autoDeploy": {"rules": null, "policy": "false"}}), true, true),
            (json!({"autoDeploy": {"rules": false}}), false, true),
            (json!({"autoDeploy": {"rules": true, "policy": false}}), true, false),
        ] {
            let body = body.as_object().expect("an object");
            assert_eq!((says(body, "rules"), says(body, "policy")), (rules, policy), "{body:?}");
        }
    }
}
