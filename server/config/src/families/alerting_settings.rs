//! Settings of alerting (`config-api` 2.3): whether changes of rules and of the policy act by themselves.

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::{Domain, Right};
use serde_json::json;

use crate::area::{Area, acts_by_itself};
use crate::entity::Entity;
use crate::family::{Caller, Family};
use crate::fields::{Field, Kind};
use crate::problem::Result;

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
