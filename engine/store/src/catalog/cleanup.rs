//! Queries of the cleaner: removed parts whose files may be deleted, pending keys of jobs that no longer run, spool
//! files of parts that are in the store, writers without references. Rows are deleted after their files.

use std::collections::HashSet;

use sqlx::Row;
use uuid::Uuid;

use super::{Catalog, Db, parse_meta, parse_uuid};
use crate::error::Result;
use crate::part::{PartId, PartMeta};

/// A part that a commit removed, whose files may still exist.
#[derive(Debug)]
pub struct RemovedPart {
    /// The part as the catalog described it while it was live.
    pub meta: PartMeta,
    /// Whether files of it may be in the spool.
    pub spooled: bool,
    /// Whether it was dropped, not replaced: its rows are gone.
    pub dropped: bool,
}

impl Catalog {
    /// Removed parts for which the commit object of the removal is in the store.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn removed_parts(&self) -> Result<Vec<RemovedPart>> {
        let sql = "SELECT meta, spooled, dropped FROM part WHERE removed IS NOT NULL \
            AND removed < (SELECT coalesce(min(number), 9223372036854775807) FROM outbox) ORDER BY removed, id";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.db("be read")?;
        let part = |row: &sqlx::sqlite::SqliteRow| {
            let meta = parse_meta(row.try_get(0).db("be read")?)?;
            let (spooled, dropped): (i64, i64) = (row.try_get(1).db("be read")?, row.try_get(2).db("be read")?);
            Ok(RemovedPart { meta, spooled: spooled != 0, dropped: dropped != 0 })
        };
        rows.iter().map(part).collect()
    }

    /// Number of removed parts whose files may still exist.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn removed_count(&self) -> Result<u64> {
        let sql = "SELECT count(*) FROM part WHERE removed IS NOT NULL";
        let row = sqlx::query(sql).fetch_one(&self.pool).await.db("be read")?;
        Ok(row.try_get::<i64, _>(0).db("be read")? as u64)
    }

    /// Removes the rows of parts whose files were deleted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn forget_parts(&self, ids: &[PartId]) -> Result<()> {
        let mut tx = self.begin("forget parts").await?;
        for id in ids {
            let sql = "DELETE FROM part WHERE id = ? AND removed IS NOT NULL";
            sqlx::query(sql).bind(id.to_string()).execute(&mut *tx).await.db("forget parts")?;
        }
        tx.commit().await.db("forget parts")
    }

    /// Live parts that are in the store and still have files in the spool.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn spool_leftovers(&self) -> Result<Vec<PartMeta>> {
        let sql = "SELECT meta FROM part WHERE spooled = 1 AND place = 'store' AND removed IS NULL";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| parse_meta(r.try_get(0).db("be read")?)).collect()
    }

    /// Records that a part has no files in the spool any more.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn spool_cleared(&self, id: PartId) -> Result<()> {
        let sql = "UPDATE part SET spooled = 0 WHERE id = ?";
        sqlx::query(sql).bind(id.to_string()).execute(&self.pool).await.db("note a deletion")?;
        Ok(())
    }

    /// Marks the pending keys of jobs that do not run as stale, so that no commit can use them. Returns all stale keys;
    /// their files may then be deleted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn doom_pending(&self, runs: impl Fn(Uuid) -> bool) -> Result<Vec<String>> {
        let mut tx = self.begin("give up keys").await?;
        let jobs = sqlx::query("SELECT DISTINCT job FROM pending WHERE stale = 0");
        for row in jobs.fetch_all(&mut *tx).await.db("give up keys")? {
            let job: String = row.try_get(0).db("give up keys")?;
            if !runs(parse_uuid(&job)?) {
                let sql = "UPDATE pending SET stale = 1 WHERE job = ?";
                sqlx::query(sql).bind(job).execute(&mut *tx).await.db("give up keys")?;
            }
        }
        let rows = sqlx::query("SELECT key FROM pending WHERE stale = 1 ORDER BY key");
        let rows = rows.fetch_all(&mut *tx).await.db("give up keys")?;
        let keys = rows.iter().map(|r| r.try_get(0).db("give up keys")).collect::<Result<_>>()?;
        tx.commit().await.db("give up keys")?;
        Ok(keys)
    }

    /// Removes stale keys whose files were deleted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn forget_pending(&self, keys: &[String]) -> Result<()> {
        let mut tx = self.begin("forget keys").await?;
        for key in keys {
            let sql = "DELETE FROM pending WHERE key = ? AND stale = 1";
            sqlx::query(sql).bind(key).execute(&mut *tx).await.db("forget keys")?;
        }
        tx.commit().await.db("forget keys")
    }

    /// All pending keys.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn pending_keys(&self) -> Result<Vec<String>> {
        let rows = sqlx::query("SELECT key FROM pending ORDER BY key").fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| r.try_get(0).db("be read")).collect()
    }

    /// Removes writers that have neither a WAL nor parts. `keep` has those with a WAL, and our own.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn forget_writers(&self, keep: &HashSet<Uuid>) -> Result<()> {
        let sql = "SELECT id FROM writer WHERE NOT EXISTS (SELECT 1 FROM part WHERE part.writer = writer.id) \
            AND NOT EXISTS (SELECT 1 FROM outbox)";
        for row in sqlx::query(sql).fetch_all(&self.pool).await.db("be read")? {
            let id: String = row.try_get(0).db("be read")?;
            if !keep.contains(&parse_uuid(&id)?) {
                sqlx::query("DELETE FROM writer WHERE id = ?")
                    .bind(id)
                    .execute(&self.pool)
                    .await
                    .db("forget writers")?;
            }
        }
        Ok(())
    }
}
