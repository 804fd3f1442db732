//! Writes the rows of an entity: the entity, its indexed values, and its versions.

use quiver_database::statement;
use serde_json::{Map, Value};

use super::Work;
use crate::entity::Entity;
use crate::failpoint;
use crate::family::Family;
use crate::problem::{Problem, Result};
use crate::values::keep_values;

/// Most versions that are stored per entity.
const VERSIONS_KEPT: i64 = 100;

impl Work<'_> {
    /// Writes the row of an entity and that of its version.
    pub(super) async fn store(
        &mut self,
        family: &Family,
        before: Option<&Entity>,
        entity: &Entity,
        action: &str,
    ) -> Result<()> {
        let text = |map: &Map<String, Value>| serde_json::to_string(map).map_err(Problem::internal);
        let (body, sealed) = (text(&entity.body)?, text(&entity.sealed)?);
        let sql = "INSERT INTO entity (family, id, owner, version, created_ms, updated_ms, created_by, updated_by, \
            managed_by, body, sealed, sort_text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
            ON CONFLICT (family, id) DO UPDATE SET version = excluded.version, updated_ms = excluded.updated_ms, \
            updated_by = excluded.updated_by, managed_by = excluded.managed_by, body = excluded.body, \
            sealed = excluded.sealed, sort_text = excluded.sort_text";
        let row = statement(sql).bind(family.name).bind(&entity.id).bind(&entity.owner).bind(entity.version);
        let row = row.bind(entity.created_ms).bind(entity.updated_ms).bind(&entity.created_by).bind(&entity.updated_by);
        let row = row.bind(&entity.managed_by).bind(&body).bind(sealed).bind(family.sort_text(&entity.body));
        row.execute(&mut *self.db).await?;
        keep_values(self.db, family, before, Some(entity)).await?;
        self.remember(family, entity, action, &body).await?;
        failpoint::hit("config.after-entity");
        Ok(())
    }

    pub(crate) async fn remember(&mut self, family: &Family, entity: &Entity, action: &str, body: &str) -> Result<()> {
        let sql = "INSERT INTO entity_version (family, id, version, at_ms, by_whom, action, owner, body) \
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let row = statement(sql).bind(family.name).bind(&entity.id).bind(entity.version).bind(self.now_ms);
        let row = row.bind(&self.caller.name).bind(action).bind(&entity.owner).bind(body);
        row.execute(&mut *self.db).await?;
        let last = entity.version - VERSIONS_KEPT;
        if last > 0 {
            let sql = "DELETE FROM entity_version WHERE family = ? AND id = ? AND version <= ?";
            statement(sql).bind(family.name).bind(&entity.id).bind(last).execute(&mut *self.db).await?;
        }
        Ok(())
    }

    /// Deletes the rows of an entity; its versions are kept.
    pub(super) async fn remove(&mut self, family: &Family, entity: &Entity) -> Result<()> {
        for table in ["entity", "entity_key", "entity_link"] {
            let sql = format!("DELETE FROM {table} WHERE family = ? AND id = ?");
            let row = statement(sql).bind(family.name).bind(&entity.id);
            row.execute(&mut *self.db).await?;
        }
        keep_values(self.db, family, Some(entity), None).await?;
        let sql = "UPDATE entity_count SET number = number - 1 WHERE family = ?";
        statement(sql).bind(family.name).execute(&mut *self.db).await?;
        let body = serde_json::to_string(&entity.body).map_err(Problem::internal)?;
        let gone = Entity { version: entity.version + 1, ..entity.clone() };
        self.remember(family, &gone, "DELETE", &body).await
    }
}
