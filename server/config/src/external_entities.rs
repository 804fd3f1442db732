//! Entities that another part of the server stores: they look like all others, and their history and audit rows are
//! kept here. These rows are written after the change, not in one transaction with it.

use futures::future::BoxFuture;
use quiver_database::statement;
use serde_json::{Map, Value};

use crate::change::{Draft, ReadOnlyPolicy, System, Work};
use crate::config::Config;
use crate::entity::Entity;
use crate::family::{Caller, Family};
use crate::migrations;
use crate::problem::{Problem, Result};

/// An entity that another part of the server stores.
#[derive(Debug, Clone, Default)]
pub struct ExternalEntity {
    /// Its id, made by whoever keeps it.
    pub id: String,
    /// +1 per change.
    pub version: i64,
    /// When it was made and changed last, Unix milliseconds.
    pub times_ms: (i64, i64),
    /// Who made it, and who changed it last.
    pub by: (String, String),
    /// Fields as readers see them.
    pub body: Map<String, Value>,
}

impl From<ExternalEntity> for Entity {
    fn from(from: ExternalEntity) -> Self {
        Self {
            id: from.id,
            owner: String::new(),
            version: from.version,
            created_ms: from.times_ms.0,
            updated_ms: from.times_ms.1,
            created_by: from.by.0,
            updated_by: from.by.1,
            managed_by: "api".to_owned(),
            body: from.body,
            sealed: Map::new(),
        }
    }
}

impl Config {
    /// Reads the fields of a body by the rules of its family.
    ///
    /// # Errors
    /// `VALIDATION_FAILED`.
    pub fn read_outside(
        &self,
        family: &'static Family,
        before: Option<&Entity>,
        body: Map<String, Value>,
        reading: ReadOnlyPolicy,
    ) -> Result<Map<String, Value>> {
        Ok(Draft { family, before, reading }.read(body, System::default())?.body)
    }

    /// Notes a change: a version and an audit row.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn note_outside<'a>(
        &'a self,
        family: &'static Family,
        caller: &'a Caller,
        action: &'static str,
        (before, after): (Option<&'a Entity>, &'a Entity),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut tx = migrations::begin(&self.pool).await?;
            let now_ms = self.clock.now_ms();
            let mut work =
                Work { config: self, db: &mut tx, caller, now_ms, reading: ReadOnlyPolicy::Strict, named: None };
            work.remember_once(family, after, action).await?;
            work.note(family, action, before, Some(after)).await?;
            // No revision: nothing that the service makes of its configuration hangs on it.
            tx.commit().await?;
            Ok(())
        })
    }

    /// Notes that a change was refused.
    pub fn refused_outside<'a>(
        &'a self,
        family: &'static Family,
        caller: &'a Caller,
        action: &'static str,
        id: Option<&'a str>,
        problem: &'a mut Problem,
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.audit_refused(family, caller, action, id, problem))
    }

    /// The fields that an entity had.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`; `NOT_FOUND` where there is no such version.
    pub fn version_outside<'a>(
        &'a self,
        family: &'a Family,
        id: &'a str,
        version: i64,
    ) -> BoxFuture<'a, Result<Map<String, Value>>> {
        Box::pin(async move {
            let sql = "SELECT body FROM entity_version WHERE family = ? AND id = ? AND version = ?";
            let row = statement(sql).bind(family.name).bind(id).bind(version).fetch_optional(&self.pool).await?;
            let row = row.ok_or_else(|| Problem::not_found(id))?;
            serde_json::from_str(&row.try_get::<String>(0)?).map_err(Problem::internal)
        })
    }
}

impl Work<'_> {
    /// Keeps a version, unless it is kept already.
    async fn remember_once(&mut self, family: &Family, entity: &Entity, action: &str) -> Result<()> {
        let sql = "DELETE FROM entity_version WHERE family = ? AND id = ? AND version = ?";
        let row = statement(sql).bind(family.name).bind(&entity.id).bind(entity.version);
        row.execute(&mut *self.db).await?;
        let body = serde_json::to_string(&entity.body).map_err(Problem::internal)?;
        self.remember(family, entity, action, &body).await
    }
}
