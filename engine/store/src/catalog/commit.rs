//! Commits: added parts, removed parts and WAL floors, in one transaction with the next commit number; and the pending
//! keys that a job registers before it writes anything.

use std::sync::Arc;
use std::time::Instant;

use sqlx::Row;
use uuid::Uuid;

use super::{Catalog, Db, FULL_LIST_EVERY, WriteTransaction, WriterFloor};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::failpoint;
use crate::idempotency::AnsweredRequest;
use crate::metrics::METRICS;
use crate::part::{PartId, PartMeta, PartOrigin, Place};

/// The changes of a commit.
#[derive(Debug, Default, Clone)]
pub struct Change {
    /// The flush, compaction or retention run that commits; its pending keys are removed.
    pub job: Option<Uuid>,
    /// New parts, live from this commit on.
    pub added: Vec<PartMeta>,
    /// Parts to remove; all must be live, otherwise the commit fails.
    pub removed: Vec<PartId>,
    /// Floors to raise.
    pub floors: Vec<Floor>,
    /// Requests with an idempotency key, from the generations below the floors.
    pub answered: Vec<Arc<AnsweredRequest>>,
}

/// A generation that is in parts from a commit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// The process that wrote the generation.
    pub writer: Uuid,
    /// Its number; the writer's floor becomes the next one.
    pub generation: u64,
}

impl Catalog {
    /// Registers keys that a job is going to write.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the database refuses, or a key exists already.
    pub async fn add_pending(&self, job: Uuid, keys: &[String]) -> Result<()> {
        let mut tx = self.begin("register keys").await?;
        for key in keys {
            sqlx::query("INSERT INTO pending (key, job) VALUES (?, ?)")
                .bind(key)
                .bind(job.to_string())
                .execute(&mut *tx)
                .await
                .db("register keys")?;
        }
        tx.commit().await.db("register keys")
    }

    /// Commits a change and returns its number. A job can commit only once: if an earlier attempt succeeded and only
    /// its response was lost, returns the number of that one.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a part to remove is not live, a pending key is missing or stale, or the floor is
    /// already higher; then nothing changes.
    pub async fn commit(&self, change: &Change) -> Result<u64> {
        let started = Instant::now();
        let done = self.try_commit(change).await;
        METRICS.catalog_commit_time.add_time(started.elapsed());
        match &done {
            Ok(_) => METRICS.catalog_commits.inc(),
            Err(e) if e.kind() == ErrorKind::Conflict => METRICS.catalog_conflicts.inc(),
            Err(_) => {}
        }
        done
    }

    async fn try_commit(&self, change: &Change) -> Result<u64> {
        let mut tx = self.begin("commit").await?;
        failpoint::hit("commit.begin");
        if let Some(job) = change.job {
            let sql = "SELECT number FROM \"commit\" WHERE job = ?";
            let row = sqlx::query(sql).bind(job.to_string()).fetch_optional(&mut *tx).await.db("commit")?;
            if let Some(row) = row {
                return Ok(row.try_get::<i64, _>(0).db("commit")? as u64);
            }
        }
        let number = self.number_commit(&mut tx, change.job).await?;
        self.insert_parts(&mut tx, number, change).await?;
        failpoint::hit("commit.after-insert");
        remove_parts(&mut tx, number, change).await?;
        for floor in &change.floors {
            self.move_floor(&mut tx, *floor).await?;
        }
        if !change.answered.is_empty() {
            self.insert_answered(&mut tx, &change.answered).await?;
        }
        self.fill_outbox(&mut tx, number, change).await?;
        failpoint::hit("commit.before-end");
        tx.commit().await.db("commit")?;
        failpoint::hit("commit.after-end");
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering::Relaxed;
            if self.lose_answers.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
                return Err(Error::new(ErrorKind::Internal, "the answer of a commit was lost"));
            }
        }
        Ok(number)
    }

    /// Takes the next commit number, with an outbox row that has no content yet.
    pub(super) async fn number_commit(&self, tx: &mut WriteTransaction, job: Option<Uuid>) -> Result<u64> {
        let sql = "INSERT INTO \"commit\" (number, job, committed_ms) \
            VALUES ((SELECT coalesce(max(number) + 1, 0) FROM \"commit\"), ?, ?) RETURNING number";
        let row = sqlx::query(sql)
            .bind(job.map(|j| j.to_string()))
            .bind(self.clock.now_ms())
            .fetch_one(&mut **tx)
            .await
            .db("commit")?;
        let number: i64 = row.try_get(0).db("commit")?;
        sqlx::query("INSERT INTO outbox (number, writers) VALUES (?, '[]')")
            .bind(number)
            .execute(&mut **tx)
            .await
            .db("commit")?;
        Ok(number as u64)
    }

    async fn insert_parts(&self, tx: &mut WriteTransaction, number: u64, change: &Change) -> Result<()> {
        if let Some(job) = change.job {
            let job = job.to_string();
            for file in change.added.iter().flat_map(|p| &p.files) {
                let sql = "DELETE FROM pending WHERE key = ? AND job = ? AND stale = 0";
                let taken = sqlx::query(sql).bind(&file.key).bind(&job).execute(&mut **tx).await.db("commit")?;
                if taken.rows_affected() != 1 {
                    let text = format!("`{}` is not pending for this job any more", file.key);
                    return Err(Error::new(ErrorKind::Conflict, text));
                }
            }
            // Keys that were registered but not needed (if there are no histograms, for example).
            let sql = "DELETE FROM pending WHERE job = ? AND stale = 0";
            sqlx::query(sql).bind(&job).execute(&mut **tx).await.db("commit")?;
        }
        for part in &change.added {
            insert_part(tx, number, part).await?;
        }
        Ok(())
    }

    async fn move_floor(&self, tx: &mut WriteTransaction, floor: Floor) -> Result<()> {
        let sql = "INSERT INTO writer (id, floor, heartbeat_ms) VALUES (?1, ?2, ?3) \
            ON CONFLICT (id) DO UPDATE SET floor = ?2, heartbeat_ms = ?3 WHERE floor < ?2";
        let moved = sqlx::query(sql)
            .bind(floor.writer.to_string())
            .bind(floor.generation as i64 + 1)
            .bind(self.clock.now_ms())
            .execute(&mut **tx)
            .await
            .db("commit")?;
        if moved.rows_affected() == 1 {
            return Ok(());
        }
        let text = format!("generation {} of writer `{}` is committed already", floor.generation, floor.writer);
        Err(Error::new(ErrorKind::Conflict, text))
    }

    pub(super) async fn fill_outbox(&self, tx: &mut WriteTransaction, number: u64, change: &Change) -> Result<()> {
        let told: Vec<WriterFloor> = if number.is_multiple_of(FULL_LIST_EVERY) {
            let rows =
                sqlx::query("SELECT id, floor FROM writer ORDER BY id").fetch_all(&mut **tx).await.db("commit")?;
            let floor = |row: &sqlx::sqlite::SqliteRow| {
                let writer = super::parse_uuid(row.try_get(0).db("commit")?)?;
                Ok(WriterFloor { writer, floor: row.try_get::<i64, _>(1).db("commit")? as u64 })
            };
            rows.iter().map(floor).collect::<Result<_>>()?
        } else {
            change.floors.iter().map(|f| WriterFloor { writer: f.writer, floor: f.generation + 1 }).collect()
        };
        let json = serde_json::to_string(&told).internal("cannot write floors as JSON")?;
        sqlx::query("UPDATE outbox SET writers = ? WHERE number = ?")
            .bind(json)
            .bind(number as i64)
            .execute(&mut **tx)
            .await
            .db("commit")?;
        Ok(())
    }

    /// Records that parts have been uploaded, so that they are read from the store from now on. Returns those that are
    /// still live, as they are now.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the database refuses.
    pub async fn placed(&self, parts: &[PartMeta]) -> Result<Vec<PartMeta>> {
        let mut tx = self.begin("note an upload").await?;
        let mut placed = Vec::with_capacity(parts.len());
        for part in parts {
            let part = PartMeta { place: Place::Store, ..part.clone() };
            let json = serde_json::to_string(&part).internal("cannot write a part as JSON")?;
            let sql = "UPDATE part SET place = 'store', meta = ? WHERE id = ? AND place = 'spool'";
            let done = sqlx::query(sql).bind(json).bind(part.id.to_string()).execute(&mut *tx).await;
            if done.db("note an upload")?.rows_affected() == 1 {
                placed.push(part);
            }
        }
        tx.commit().await.db("note an upload")?;
        Ok(placed)
    }
}

pub(super) async fn insert_part(tx: &mut WriteTransaction, number: u64, part: &PartMeta) -> Result<()> {
    let json = serde_json::to_string(part).internal("cannot write a part as JSON")?;
    let (place, spooled) = match part.place {
        Place::Spool => ("spool", 1),
        Place::Store => ("store", 0),
    };
    let writer = match &part.origin {
        PartOrigin::Flushed { writer, .. } => Some(writer.to_string()),
        PartOrigin::Compacted { .. } => None,
    };
    let sql = "INSERT INTO part (id, tbl, day, level, place, spooled, min_ts, max_ts, rows, bytes, writer, added, meta) \
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    sqlx::query(sql)
        .bind(part.id.to_string())
        .bind(&part.table)
        .bind(part.day)
        .bind(part.level)
        .bind(place)
        .bind(spooled)
        .bind(part.min_ts)
        .bind(part.max_ts)
        .bind(part.rows as i64)
        .bind(part.bytes as i64)
        .bind(writer)
        .bind(number as i64)
        .bind(json)
        .execute(&mut **tx)
        .await
        .db("commit")?;
    Ok(())
}

async fn remove_parts(tx: &mut WriteTransaction, number: u64, change: &Change) -> Result<()> {
    let dropped = change.added.is_empty();
    for id in &change.removed {
        // A part in the spool must not be removed: the commit object that adds it would wait for its upload forever.
        let sql = "UPDATE part SET removed = ?, dropped = ? WHERE id = ? AND removed IS NULL AND place = 'store'";
        let removal = sqlx::query(sql).bind(number as i64).bind(dropped).bind(id.to_string());
        let done = removal.execute(&mut **tx).await.db("commit")?;
        if done.rows_affected() != 1 {
            return Err(Error::new(ErrorKind::Conflict, format!("part `{id}` is not live any more")));
        }
    }
    Ok(())
}
