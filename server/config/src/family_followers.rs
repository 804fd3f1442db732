//! Pictures of families that follow their changes: who keeps one reads only what has changed since.

use std::collections::{BTreeMap, HashMap};

use quiver_database::statement;

use crate::config::Config;
use crate::entity::Entity;
use crate::family::Family;
use crate::problem::Result;

/// Versions of entities that are read at once.
const PAGE: usize = if cfg!(test) { 3 } else { 5_000 };
/// Where more have changed, all are read, one after the other: each by itself would take longer.
const FEW: usize = if cfg!(test) { 2 } else { 1_000 };

/// The version of an entity, and when it was made: a restore may count versions anew.
type Stamp = (i64, i64);

/// What is kept of each entity of a family, by its id.
#[derive(Debug)]
pub struct FamilyCache<T>(BTreeMap<String, (Stamp, T)>);

impl<T> Default for FamilyCache<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> FamilyCache<T> {
    /// What is kept of an entity.
    pub fn get(&self, id: &str) -> Option<&T> {
        self.0.get(id).map(|(_, kept)| kept)
    }

    /// What is kept of all, by their ids.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(_, kept)| kept)
    }

    /// Keeps something of an entity, in the place of what was kept of it before.
    pub fn keep(&mut self, entity: Entity, make: impl Fn(Entity) -> T) {
        let (id, stamp) = (entity.id.clone(), (entity.version, entity.updated_ms));
        self.0.insert(id, (stamp, make(entity)));
    }
}

impl Config {
    /// Brings what is kept of a family up to date, and says whether something has changed.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`; then a part may be up to date.
    pub async fn follow<T: Send>(
        &self,
        family: &Family,
        followed: &mut FamilyCache<T>,
        make: impl Fn(Entity) -> T + Send + Sync,
    ) -> Result<bool> {
        let now = self.stamps(family).await?;
        let before = followed.0.len();
        followed.0.retain(|id, (stamp, _)| now.get(id) == Some(stamp));
        let gone = before - followed.0.len();
        let changed: Vec<String> = now.into_keys().filter(|id| !followed.0.contains_key(id)).collect();
        if changed.len() > FEW {
            self.for_each(family, |entity| followed.keep(entity, &make)).await?;
        } else {
            for entity in self.find_all(family, &changed).await? {
                followed.keep(entity, &make);
            }
        }
        Ok(gone > 0 || !changed.is_empty())
    }

    /// The versions of all entities of a family.
    async fn stamps(&self, family: &Family) -> Result<HashMap<String, Stamp>> {
        let (mut all, mut behind) = (HashMap::new(), String::new());
        let sql =
            format!("SELECT id, version, updated_ms FROM entity WHERE family = ? AND id > ? ORDER BY id LIMIT {PAGE}");
        loop {
            let select = statement(sql.clone()).bind(family.name).bind(behind.as_str());
            let rows = select.fetch_packed("id, version, updated_ms", &self.pool).await?;
            for row in &rows {
                behind = row.try_get(0)?;
                all.insert(behind.clone(), (row.try_get(1)?, row.try_get(2)?));
            }
            if rows.len() < PAGE {
                return Ok(all);
            }
        }
    }
}
