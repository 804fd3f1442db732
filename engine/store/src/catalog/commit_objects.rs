//! Commit objects: the changes of each commit as JSON in the object store, for other readers and for rebuilding the
//! catalog. They are generated from the catalog when they are due; the format is described in
//! `docs/formats/catalog.md`.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sqlx::{Row, Sqlite, Transaction};
use uuid::Uuid;

use super::{Catalog, Db, parse_uuid};
use crate::error::{Context, ErrorKind, Result};
use crate::layout::{STORE_FORMAT, check_format};
use crate::part::{PartId, PartMeta};

/// Commit 0 and every one divisible by this list all live parts, not only the changes.
pub const FULL_LIST_EVERY: u64 = 256;

/// A parsed commit object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitObject {
    /// Version of the formats in the store.
    pub format: u32,
    /// The installation that wrote it.
    pub installation: Uuid,
    /// Number of the commit.
    pub commit: u64,
    /// Epoch of the process that wrote it; `None` if it was written by a build from before epochs.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// When it was committed, Unix milliseconds.
    pub committed_ms: i64,
    /// Whether `added` lists all live parts (and `writers` all floors), so that earlier objects are not needed.
    pub full: bool,
    /// New parts; in a full list, all live parts.
    pub added: Vec<PartMeta>,
    /// Parts removed by this commit.
    pub removed: Vec<PartId>,
    /// Floors that changed; in a full list, all of them.
    pub writers: Vec<WriterFloor>,
}

/// A writer, with its first generation that is not in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterFloor {
    /// The process that wrote the generations.
    pub writer: Uuid,
    /// Number of its first generation that is not in parts; from there on, generations are in the WAL.
    pub floor: u64,
}

impl CommitObject {
    /// Parses an object's body.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`] if it has a newer format, [`crate::ErrorKind::Internal`] if it is damaged.
    pub fn parse(key: &str, body: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let format: Format = serde_json::from_slice(body).internal(format!("commit object `{key}` is damaged"))?;
        check_format(format.format, "the store")?;
        serde_json::from_slice(body).internal(format!("commit object `{key}` is damaged"))
    }

    /// Tells whether a body is no whole object: it arrived damaged, and does not say who wrote it.
    pub fn is_damaged(key: &str, body: &[u8]) -> bool {
        Self::parse(key, body).is_err_and(|error| error.kind() == ErrorKind::Internal)
    }
}

/// The next object to write.
#[derive(Debug)]
pub enum NextObject {
    /// None: all objects are in the store.
    None,
    /// The next object must wait for parts that are not in the store yet.
    Waiting {
        /// Number of the commit.
        commit: u64,
        /// Number of parts it waits for.
        parts: u64,
    },
    /// An object that can be written.
    Ready(ReadyObject),
}

/// A commit object that can be written. Its content depends only on the commit, not on the process that writes it.
#[derive(Debug)]
pub struct ReadyObject {
    /// Number of its commit.
    pub commit: u64,
    installation: Uuid,
    content: String,
}

impl ReadyObject {
    /// The object's body, as a process with this epoch writes it; `None` gives the form from before epochs.
    pub fn body(&self, epoch: Option<u64>) -> String {
        let Self { commit, installation, content } = self;
        let epoch = epoch.map_or_else(String::new, |n| format!("\"epoch\":{n},"));
        format!(
            "{{\"format\":{STORE_FORMAT},\"installation\":\"{installation}\",\"commit\":{commit},{epoch}{content}}}\n"
        )
    }

    /// Tells whether a body found in the store is this object, whichever process wrote it.
    pub fn is(&self, found: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Epoch {
            epoch: Option<u64>,
        }
        serde_json::from_slice::<Epoch>(found).is_ok_and(|e| self.body(e.epoch).as_bytes() == found)
    }
}

impl Catalog {
    /// The next commit object that the store lacks. It must wait for the parts it lists, except for damaged ones, which
    /// cannot be uploaded: it lists them anyway, so that it is known what is missing.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn next_object(&self, damaged: &HashSet<PartId>) -> Result<NextObject> {
        let mut tx = self.pool.begin().await.db("be read")?;
        let sql = "SELECT o.number, o.writers, c.committed_ms, \
            (SELECT count(*) FROM part WHERE spooled = 1 AND added <= o.number AND place = 'spool' AND removed IS NULL \
            AND id NOT IN (SELECT value FROM json_each(?))), \
            (SELECT id FROM installation) FROM outbox o JOIN \"commit\" c ON c.number = o.number \
            ORDER BY o.number LIMIT 1";
        let damaged: Vec<String> = damaged.iter().map(PartId::to_string).collect();
        let damaged = serde_json::to_string(&damaged).internal("cannot write ids as JSON")?;
        let Some(row) = sqlx::query(sql).bind(damaged).fetch_optional(&mut *tx).await.db("be read")? else {
            return Ok(NextObject::None);
        };
        let commit = row.try_get::<i64, _>(0).db("be read")? as u64;
        let parts = row.try_get::<i64, _>(3).db("be read")? as u64;
        if parts > 0 {
            return Ok(NextObject::Waiting { commit, parts });
        }
        let full = commit.is_multiple_of(FULL_LIST_EVERY);
        let added = texts(&mut tx, if full { LIVE_AT } else { ADDED_AT }, commit).await?;
        let removed = texts(&mut tx, REMOVED_AT, commit).await?;
        let removed: Vec<_> = removed.iter().map(|id| format!("\"{id}\"")).collect();
        let installation = parse_uuid(row.try_get(4).db("be read")?)?;
        let (committed_ms, writers): (i64, String) = (row.try_get(2).db("be read")?, row.try_get(1).db("be read")?);
        let content = format!(
            "\"committed_ms\":{committed_ms},\"full\":{full},\n\"added\":[{}],\n\"removed\":[{}],\n\"writers\":{writers}",
            added.join(",\n"),
            removed.join(","),
        );
        Ok(NextObject::Ready(ReadyObject { commit, installation, content }))
    }

    /// Records that a commit's object is in the store.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn object_written(&self, commit: u64) -> Result<()> {
        let sql = "DELETE FROM outbox WHERE number = ?";
        sqlx::query(sql).bind(commit as i64).execute(&self.pool).await.db("note an object")?;
        Ok(())
    }

    /// The first commit whose object the store lacks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn first_unwritten(&self) -> Result<Option<u64>> {
        let row = sqlx::query("SELECT min(number) FROM outbox").fetch_one(&self.pool).await.db("be read")?;
        Ok(row.try_get::<Option<i64>, _>(0).db("be read")?.map(|n| n as u64))
    }

    /// Number of objects that the store lacks.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn outbox_depth(&self) -> Result<u64> {
        let row = sqlx::query("SELECT count(*) FROM outbox").fetch_one(&self.pool).await.db("be read")?;
        Ok(row.try_get::<i64, _>(0).db("be read")? as u64)
    }

    /// The commits whose objects are older than the last two full lists in the store.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn outdated_objects(&self) -> Result<Vec<u64>> {
        let sql = "SELECT number FROM \"commit\" WHERE number < \
            (SELECT coalesce(min(o.number), (SELECT max(number) + 1 FROM \"commit\")) - 1 FROM outbox o) / ?1 * ?1 - ?1 \
            ORDER BY number";
        let rows = sqlx::query(sql).bind(FULL_LIST_EVERY as i64).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| Ok(r.try_get::<i64, _>(0).db("be read")? as u64)).collect()
    }

    /// Removes commits whose objects were deleted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn forget_commits(&self, before: u64) -> Result<()> {
        let sql = "DELETE FROM \"commit\" WHERE number < ?";
        sqlx::query(sql).bind(before as i64).execute(&self.pool).await.db("forget commits")?;
        Ok(())
    }
}

// Rows of removed parts stay until the object of the removing commit is written, so these queries see all they need.
const LIVE_AT: &str =
    "SELECT meta FROM part WHERE added <= ?1 AND (removed IS NULL OR removed > ?1) ORDER BY added, id";
const ADDED_AT: &str = "SELECT meta FROM part WHERE added = ?1 ORDER BY id";
const REMOVED_AT: &str = "SELECT id FROM part WHERE removed = ?1 ORDER BY id";

async fn texts(tx: &mut Transaction<'static, Sqlite>, sql: &'static str, commit: u64) -> Result<Vec<String>> {
    let rows = sqlx::query(sql).bind(commit as i64).fetch_all(&mut **tx).await.db("be read")?;
    rows.iter().map(|r| r.try_get(0).db("be read")).collect()
}
