//! Settings of alerting (`config-api` 2.3): whether changes of rules and of the policy take effect at once or wait
//! for a deploy.

use futures::future::BoxFuture;
use quiver_types::{Domain, Right};
use serde_json::json;

use crate::area::{Area, acts_by_itself};
use crate::family::{EntityChange, Family};
use crate::fields::{Field, FieldKind};
use crate::problem::Result;

/// The id of the only entity.
pub const SETTINGS_ID: &str = "00000000-0000-7000-8000-000000000404";

/// One member per area.
const AREAS: &[Field] =
    &[Field::open("rules", FieldKind::Bool, "true"), Field::open("policy", FieldKind::Bool, "true")];

/// Settings of alerting: a single entity that always exists.
pub const ALERTING_SETTINGS: Family = Family {
    name: "settings",
    path: "/rulesapi/settings",
    domain: Domain::Alerting,
    write: Right::Edit,
    has_name: false,
    title: "description",
    own_paths: true,
    fields: &[Field::open("autoDeploy", FieldKind::Object(AREAS), "{\"rules\": true, \"policy\": true}")],
    unique: &[],
    builtin: || vec![(SETTINGS_ID, json!({}))],
    builtin_open: true,
    hook: Some(keep_what_runs),
    ..Family::BASE
};

/// When changes begin to wait for a deploy, the present state counts as deployed; when they no longer wait, all take
/// effect.
fn keep_what_runs(EntityChange { db, before, after, .. }: EntityChange<'_>) -> BoxFuture<'_, Result<()>> {
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
