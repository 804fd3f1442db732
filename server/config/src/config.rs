//! The configuration as all modules of this crate share it: its database, its dependencies, its caches.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Connection, Database, statement};
use quiver_types::{Clock, Random, Vault, random_bytes};
use tokio::sync::{Notify, watch};

use crate::entity::{Entity, find};
use crate::entity_place::{Place, is_visible};
use crate::failpoint;
use crate::family::{Caller, Family};
use crate::problem::{Problem, Result};
use crate::server_checks::{Checks, Sealer};
use crate::text_cache::lists::Lists;

/// The part (1/n) of the memory of a process that each kind of what is held between requests may take.
const MEMORY_PART: u64 = 32;

/// Stored configuration: lists, reads and changes entities of all families, with rights, history and audit.
#[derive(Clone)]
pub struct Config {
    pub(crate) pool: Database,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) vault: Arc<dyn Vault>,
    pub(crate) sealer: Arc<dyn Sealer>,
    pub(crate) checks: Arc<dyn Checks>,
    pub(crate) revision: Arc<watch::Sender<u64>>,
    /// How often it was noted when resources were seen.
    pub(crate) noted: Arc<AtomicU64>,
    /// Texts that are kept of lists.
    pub(crate) lists: Arc<Lists>,
    /// What the process may have in memory.
    pub(crate) memory_bytes: u64,
    /// Since when the database is out of reach, Unix milliseconds; 0: it is not.
    pub(crate) lost_ms: Arc<AtomicI64>,
    pub(crate) jobs: Arc<Notify>,
    /// The id that was made last.
    pub(crate) last_id: Arc<Mutex<u128>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("revision", &*self.revision.borrow()).finish_non_exhaustive()
    }
}

impl Config {
    /// With rules of families that only the service knows.
    #[must_use]
    pub fn with_checks(self, checks: Arc<dyn Checks>) -> Self {
        Self { checks, ..self }
    }

    /// In a process that may have so many bytes of memory.
    #[must_use]
    pub fn within(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    /// What is held in memory between requests, each kind of it, in bytes: at most so much.
    pub(crate) fn share_of_memory(&self, bytes_max: usize) -> usize {
        bytes_max.min((self.memory_bytes / MEMORY_PART) as usize)
    }

    /// Whether other servers change the same configuration: then [`Self::synchronize`] is to be called now and then.
    pub fn is_shared(&self) -> bool {
        self.pool.is_shared()
    }

    /// Reads what other servers have changed, and tells who watches; notes whether the database can be reached.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn synchronize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match numbers(&self.pool).await {
                Ok((number, noted)) => {
                    self.lost_ms.store(0, Ordering::Relaxed);
                    self.noted.fetch_max(noted, Ordering::Relaxed);
                    self.tell(Some(number));
                    Ok(())
                }
                Err(problem) => {
                    let now_ms = self.clock.now_ms();
                    let _ = self.lost_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
                    Err(problem)
                }
            }
        })
    }

    /// For how long the database has been out of reach.
    pub fn lost_for_ms(&self) -> i64 {
        match self.lost_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => (self.clock.now_ms() - since).max(1),
        }
    }

    /// The number of the last change.
    pub fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// What differs with each change, and with what is noted of resources: for who keeps pictures of these.
    pub fn state(&self) -> (u64, u64) {
        (self.revision(), self.noted.load(Ordering::Relaxed))
    }

    /// Tells of each change.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Reads an entity, whoever asks; what nobody reads included.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn find<'a>(&'a self, family: &'a Family, id: &'a str) -> BoxFuture<'a, Result<Option<Entity>>> {
        Box::pin(async move {
            let mut connection = self.pool.acquire().await?;
            find(&mut connection, family.name, id).await
        })
    }

    /// Reads all entities of a family, for those who keep a picture of it.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn all<'a>(&'a self, family: &'a Family) -> BoxFuture<'a, Result<Vec<Entity>>> {
        Box::pin(async move {
            let sql = format!("SELECT {} FROM entity WHERE family = ? ORDER BY id", Entity::COLUMNS);
            let rows = statement(sql).bind(family.name).fetch_all(&self.pool).await?;
            rows.iter().map(Entity::read).collect()
        })
    }

    /// Reads them one after the other, for those who keep little of each.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn for_each(&self, family: &Family, mut take: impl FnMut(Entity) + Send) -> Result<()> {
        let sql = format!("SELECT {} FROM entity WHERE family = ? ORDER BY id", Entity::COLUMNS);
        let mut rows = statement(sql).bind(family.name).fetch(&self.pool);
        while let Some(row) = rows.try_next().await? {
            take(Entity::read(&row)?);
        }
        Ok(())
    }

    /// Reads an entity that the caller may see.
    ///
    /// # Errors
    /// `NOT_FOUND` also for those that it may not see.
    pub fn get<'a>(&'a self, place: &'a Place, id: &'a str, caller: &'a Caller) -> BoxFuture<'a, Result<Entity>> {
        Box::pin(async move {
            let found = self.find(place.family, id).await?;
            found.filter(|e| is_visible(place, e, caller)).ok_or_else(|| Problem::not_found(id))
        })
    }

    /// Reads some entities of a family in one go, whoever asks; those that are not there are left out.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn find_all<'a>(&'a self, family: &'a Family, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Entity>>> {
        Box::pin(async move {
            let mut connection = self.pool.acquire().await?;
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                found.extend(find(&mut connection, family.name, id).await?);
            }
            Ok(found)
        })
    }

    /// Tells who watches that something changed.
    pub(crate) fn tell(&self, revision: Option<u64>) {
        if let Some(number) = revision {
            failpoint::hit("config.after-commit");
            // Another server's change may have been seen first.
            self.revision.send_if_modified(|known| {
                let newer = number > *known;
                *known = number.max(*known);
                newer
            });
        }
    }

    /// Makes an id: UUIDv7 of our clock and random source. Those of one millisecond go up, so that what is made together
    /// keeps its order in lists, and in a policy.
    pub fn new_id(&self) -> String {
        /// The bits behind version and variant.
        const COUNTED: u128 = (1 << 62) - 1;
        let random = random_bytes::<10>(&*self.random);
        let builder = uuid::Builder::from_unix_timestamp_millis(self.clock.now_ms() as u64, &random);
        let made = builder.into_uuid().as_u128();
        let mut last = self.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, same_time) = (*last + 1, made >> 80 == *last >> 80);
        *last = if same_time && made <= *last && next & COUNTED != 0 { next } else { made };
        uuid::Uuid::from_u128(*last).to_string()
    }
}

/// The numbers of the last change, and of the last note on resources.
pub(crate) async fn numbers(pool: &Database) -> Result<(u64, u64)> {
    let row = statement("SELECT number, seen FROM revision").fetch_one(pool).await?;
    Ok((row.try_get::<i64>(0)? as u64, row.try_get::<i64>(1)? as u64))
}

/// Counts a change.
pub(crate) async fn next_revision(db: &mut Connection) -> Result<u64> {
    let sql = "UPDATE revision SET number = number + 1 RETURNING number";
    let number: i64 = statement(sql).fetch_one(db).await?.try_get(0)?;
    failpoint::hit("config.before-commit");
    Ok(number as u64)
}
