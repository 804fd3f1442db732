//! Writes the rows of an entity: the entity, its indexed values, what its patterns weigh, and its versions.

use quiver_database::statement;
use serde_json::{Map, Value};

use super::Work;
use crate::entity::{Entity, all_of};
use crate::failpoint;
use crate::family::Family;
use crate::problem::{Problem, Result};
use crate::value_index::keep_values;

/// Most versions that are stored per entity.
const VERSIONS_KEPT: i64 = 100;
/// What the regular expressions of all entities of a family may take in memory, in bytes.
const PATTERNS_BYTES_MAX: i64 = 128 << 20;

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
        self.weigh_patterns(family, before, Some(entity)).await?;
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
        self.weigh_patterns(family, Some(entity), None).await?;
        let body = serde_json::to_string(&entity.body).map_err(Problem::internal)?;
        let gone = Entity { version: entity.version + 1, ..entity.clone() };
        self.remember(family, &gone, "DELETE", &body).await
    }

    /// Notes what the regular expressions of a family take once an entity is written. Refuses what is too much for all
    /// together: they stay compiled, and no query's memory counts them.
    async fn weigh_patterns(&mut self, family: &Family, before: Option<&Entity>, after: Option<&Entity>) -> Result<()> {
        let Some(bytes_of) = family.patterns_bytes else { return Ok(()) };
        let bytes = |entity: &Entity| i64::try_from(bytes_of(&entity.body)).unwrap_or(i64::MAX);
        let more = after.map_or(0, bytes) - before.map_or(0, bytes);
        let sql = "UPDATE pattern_bytes SET number = number + ? WHERE family = ? RETURNING number";
        let row = statement(sql).bind(more).bind(family.name).fetch_optional(&mut *self.db).await?;
        let all: i64 = if let Some(row) = row {
            row.try_get(0)?
        } else {
            // The first of this build: those of earlier ones were not noted.
            let all = all_of(self.db, family.name).await?.iter().map(bytes).fold(0, i64::saturating_add);
            let sql = "INSERT INTO pattern_bytes (family, number) VALUES (?, ?) \
                ON CONFLICT (family) DO UPDATE SET number = excluded.number";
            statement(sql).bind(family.name).bind(all).execute(&mut *self.db).await?;
            all
        };
        if more > 0 && all > PATTERNS_BYTES_MAX {
            let text = format!(
                "the regular expressions of all of these would take more than {PATTERNS_BYTES_MAX} bytes of memory"
            );
            return Err(Problem::field("", "LIMIT_EXCEEDED", text));
        }
        Ok(())
    }
}
