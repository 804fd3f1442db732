//! Entities: reading and listing.

use std::collections::BinaryHeap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use quiver_database::{Database, Statement, statement};
use quiver_types::{Clock, Random, Vault};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use crate::answered::forget_lost;
use crate::change::{Checks, NoChecks, Sealer, next_revision};
use crate::db;
use crate::entity::{Entity, diff, find};
use crate::families::FAMILIES;
use crate::family::{Caller, Family, Rows};
use crate::held::Lists;
use crate::json::time_text;
use crate::narrowed::{Narrowed, Share};
use crate::place::{Place, is_listed, is_visible};
use crate::problem::{Problem, Result};
use crate::query::{ListQuery, Page};

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

/// An entry of a page, greatest last, so that a heap gives up the last one first.
pub(crate) struct Ranked {
    pub(crate) query: Arc<ListQuery>,
    pub(crate) keys: Vec<Value>,
    pub(crate) id: String,
    pub(crate) entity: Map<String, Value>,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.query.order((&self.keys, &self.id), (&other.keys, &other.id))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

impl Config {
    /// Opens the tables of configuration, and puts in what is built in.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn open(
        pool: Database,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        vault: Arc<dyn Vault>,
        sealer: Arc<dyn Sealer>,
    ) -> Result<Self> {
        db::migrate_own(&pool, clock.now_ms()).await?;
        forget_lost(&pool).await?;
        let (number, noted) = numbers(&pool).await?;
        let revision = Arc::new(watch::Sender::new(number));
        let config = Self {
            pool,
            clock,
            random,
            vault,
            sealer,
            checks: Arc::new(NoChecks),
            revision,
            noted: Arc::new(AtomicU64::new(noted)),
            lists: Arc::default(),
            lost_ms: Arc::default(),
            jobs: Arc::default(),
            last_id: Arc::default(),
        };
        config.fill_sort_texts().await?;
        config.fill_values().await?;
        config.put_builtin().await?;
        Ok(config)
    }

    /// With rules of families that only the service knows.
    #[must_use]
    pub fn with_checks(self, checks: Arc<dyn Checks>) -> Self {
        Self { checks, ..self }
    }

    async fn put_builtin(&self) -> Result<()> {
        let mut tx = db::begin(&self.pool).await?;
        let mut changed = false;
        for family in FAMILIES {
            for (id, body) in (family.builtin)() {
                changed |= self.put_one_builtin(&mut tx, family, id, body).await?;
            }
        }
        // Servers that run over this database already are told; in a new one there is nothing else yet that they know.
        let told = changed && self.revision() > 0;
        let revision = if told { Some(next_revision(&mut tx).await?) } else { None };
        tx.commit().await?;
        self.tell(revision);
        Ok(())
    }

    /// Whether other servers change the same configuration: then [`Self::look`] is to be called now and then.
    pub fn is_shared(&self) -> bool {
        self.pool.is_shared()
    }

    /// Looks what other servers have changed, and tells who watches; notes whether the database can be reached.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn look(&self) -> Result<()> {
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
    pub async fn find(&self, family: &Family, id: &str) -> Result<Option<Entity>> {
        let mut connection = self.pool.acquire().await?;
        find(&mut connection, family.name, id).await
    }

    /// Reads all entities of a family, for those who keep a picture of it.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn all(&self, family: &Family) -> Result<Vec<Entity>> {
        let sql = format!("SELECT {} FROM entity WHERE family = ? ORDER BY id", Entity::COLUMNS);
        let rows = statement(sql).bind(family.name).fetch_all(&self.pool).await?;
        rows.iter().map(Entity::read).collect()
    }

    /// Reads them one after the other, for those who keep little of each.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn each(&self, family: &Family, mut take: impl FnMut(Entity) + Send) -> Result<()> {
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
    pub async fn get(&self, place: &Place, id: &str, caller: &Caller) -> Result<Entity> {
        let found = self.find(place.family, id).await?;
        found.filter(|e| is_visible(place, e, caller)).ok_or_else(|| Problem::not_found(id))
    }

    /// Lists entities that the caller may see. Memory is bounded by the page, not by the family; so are the entities that
    /// are read, where an index has the first field of the order or what the filter looks for. What remains for the whole
    /// family are filters and orders by what no index has: parts of objects, free texts.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn list(&self, place: &Place, query: &ListQuery, caller: &Caller) -> Result<Page> {
        let beside = self.beside(place.family).await?;
        let (few, values) = if let Some(found) = query.looked_up(place.family) {
            found
        } else {
            if let Some(page) = self.page_held(place, query, caller, &beside).await? {
                return Ok(page);
            }
            let asked = self.asked(place, query.filter.as_ref()).await?;
            let narrowed = Narrowed::of(query.filter.as_ref(), query.contains.as_deref(), place, caller, &asked);
            let share = match &narrowed {
                Some(narrowed) => self.share(narrowed, query.only_field()).await?,
                None => Share::Many,
            };
            let left = if let Share::Few(few) = share {
                Some(few)
            } else {
                let known = narrowed.as_ref();
                let page = match (share, known) {
                    (Share::Part, Some(within)) => self.page_within(place, query, caller, &beside, within).await?,
                    _ => self.page_by_index(place, query, caller, &beside, known).await?,
                };
                if let Some(page) = page {
                    return Ok(page);
                }
                if let Some(page) = self.page_by_groups(place, query, caller, &beside, known).await? {
                    return Ok(page);
                }
                narrowed
            };
            left.as_ref().map(Narrowed::condition).unwrap_or_default()
        };
        let sql = format!("SELECT {} FROM entity WHERE family = ? AND owner = ?{few}", Entity::COLUMNS);
        let select = statement(sql).bind(place.family.name).bind(&place.owner);
        let mut rows = values.into_iter().fold(select, Statement::bind).fetch(&self.pool);
        let query = Arc::new(query.clone());
        let mut kept: BinaryHeap<Ranked> = BinaryHeap::new();
        let mut total = 0;
        while let Some(row) = rows.try_next().await? {
            let mut entity = Entity::read(&row)?;
            if !is_listed(place, &entity, caller) {
                continue;
            }
            let mut map = entity.take_shown();
            beside.add(&entity, &mut map);
            if !query.wants(place.family, &map) {
                continue;
            }
            total += 1;
            let keys = query.keys(&map);
            if query.is_behind(&keys, &entity.id) {
                kept.push(Ranked { query: Arc::clone(&query), keys, id: entity.id, entity: map });
            }
            // One more than the page tells that there is a next one.
            if kept.len() > query.limit + 1 {
                kept.pop();
            }
        }
        let mut sorted = kept.into_sorted_vec();
        let more = sorted.len() > query.limit;
        sorted.truncate(query.limit);
        let next_cursor = sorted.last().filter(|_| more).map(|last| query.cursor(&last.keys, &last.id));
        let items = sorted.into_iter().map(|ranked| query.cut(ranked.entity)).collect();
        Ok(Page { items, next_cursor, total: query.count.then_some(total) })
    }

    /// Reads some entities of a family in one go, whoever asks; those that are not there are left out.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn find_all(&self, family: &Family, ids: &[String]) -> Result<Vec<Entity>> {
        let mut connection = self.pool.acquire().await?;
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            found.extend(find(&mut connection, family.name, id).await?);
        }
        Ok(found)
    }

    /// The versions of an entity, newest first, with what each changed.
    ///
    /// # Errors
    /// `NOT_FOUND` when it never was, or the caller may not see it.
    pub async fn history(&self, place: &Place, id: &str, caller: &Caller) -> Result<Value> {
        let sql = "SELECT version, at_ms, by_whom, action, owner, body FROM entity_version \
            WHERE family = ? AND id = ? ORDER BY version";
        let rows = statement(sql).bind(place.family.name).bind(id).fetch_all(&self.pool).await?;
        let mut before = Map::new();
        let mut items = Vec::with_capacity(rows.len());
        // Where services follow from other entities, what is there now tells who may see what was.
        let present = self.find(place.family, id).await?.is_some_and(|e| is_visible(place, &e, caller));
        for row in &rows {
            let body: String = row.try_get(5)?;
            let body: Map<String, Value> = serde_json::from_str(&body).map_err(Problem::internal)?;
            let follows = (place.family.service)(&body).is_empty() && place.family.rows != Rows::Private;
            if row.try_get::<String>(4)? != place.owner
                || !(place.family.shows(caller, &body, None) || follows && present)
            {
                return Err(Problem::not_found(id));
            }
            items.push(json!({
                "version": row.try_get::<i64>(0)?,
                "at": time_text(row.try_get(1)?),
                "by": row.try_get::<String>(2)?,
                "action": row.try_get::<String>(3)?,
                "diff": diff(&before, &body),
            }));
            before = body;
        }
        if items.is_empty() {
            return Err(Problem::not_found(id));
        }
        items.reverse();
        Ok(json!({"items": items}))
    }
}

/// The numbers of the last change, and of the last note on resources.
async fn numbers(pool: &Database) -> Result<(u64, u64)> {
    let row = statement("SELECT number, seen FROM revision").fetch_one(pool).await?;
    Ok((row.try_get::<i64>(0)? as u64, row.try_get::<i64>(1)? as u64))
}
