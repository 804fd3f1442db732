//! Restores former versions of entities.

use quiver_database::statement;
use serde_json::{Map, Value};

use super::entity_change::Written;
use super::{ChangeOutcome, ReadOnlyPolicy, System, Work};
use crate::access::follows_others;
use crate::entity::Entity;
use crate::entity_place::Place;
use crate::families::{RESOURCES, forget_key};
use crate::family::Family;
use crate::fields::Mode;
use crate::problem::{Problem, ProblemKind, Result};

impl Work<'_> {
    pub(super) async fn restore(
        &mut self,
        place: &Place,
        id: String,
        version: i64,
        before: Option<Entity>,
        system: System,
    ) -> Result<ChangeOutcome> {
        let sql = "SELECT body FROM entity_version WHERE family = ? AND id = ? AND version = ? AND owner = ?";
        let row = statement(sql).bind(place.family.name).bind(&id).bind(version).bind(&place.owner);
        let row = row.fetch_optional(&mut *self.db).await?;
        let is_there = before.is_some();
        let lacking = || {
            if is_there {
                Problem::new(ProblemKind::NotFound, "NOT_FOUND", format!("version {version} is not kept"))
            } else {
                Problem::not_found(&id)
            }
        };
        let row = row.ok_or_else(lacking)?;
        let mut body: Map<String, Value> =
            serde_json::from_str(&row.try_get::<String>(0)?).map_err(Problem::internal)?;
        // Report an entity that the history would hide as missing: an error about its service would name that.
        if !place.family.shows(self.caller, &body, None) && !before.as_ref().is_some_and(follows_others) {
            return Err(lacking());
        }
        if place.family.name == RESOURCES.name {
            forget_key(self.db, &mut body).await?;
        }
        // Read-only fields are restored as well.
        let kept = place.family.fields.iter().filter(|f| f.mode == Mode::ReadOnly);
        let kept = kept.filter_map(|f| body.get(f.name).map(|v| (f.name.to_owned(), v.clone())));
        let made = if before.is_none() { self.made(place.family, &id, version).await? } else { None };
        let system = System { body: kept.chain(system.body.clone()).collect(), made, ..system };
        let strict = std::mem::replace(&mut self.reading, ReadOnlyPolicy::Lenient);
        let id = before.is_none().then_some(id);
        let done = self.put(place, id, before, Written { body, system, action: "RESTORE" }).await;
        self.reading = strict;
        done
    }

    /// When and by whom the entity with this version was created; `None` if that is not stored any more.
    async fn made(&mut self, family: &Family, id: &str, version: i64) -> Result<Option<(i64, String)>> {
        let sql = "SELECT at_ms, by_whom FROM entity_version WHERE family = ? AND id = ? AND version <= ? \
            AND action = 'CREATE' ORDER BY version DESC LIMIT 1";
        let row = statement(sql).bind(family.name).bind(id).bind(version).fetch_optional(&mut *self.db).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some((row.try_get(0)?, row.try_get(1)?)))
    }
}
