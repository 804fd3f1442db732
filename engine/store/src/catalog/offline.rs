//! Queries of the offline commands: replacing the catalog after a rebuild, and the keys that a check must expect.

use sqlx::Row;
use uuid::Uuid;

use super::commit::{Change, insert_part};
use super::{Catalog, Db, FULL_LIST_EVERY, WriterFloor, parse_meta};
use crate::error::{Context, Result};
use crate::layout::STORE_FORMAT;
use crate::part::{PartId, PartMeta};

/// The content of a catalog as found by a rebuild.
#[derive(Debug)]
pub struct Rebuilt {
    /// The installation that the objects belong to.
    pub installation: Uuid,
    /// Commits whose objects are in the store, ascending, with the time of each.
    pub commits: Vec<(u64, i64)>,
    /// Live parts: the commit that added it, the part, whether files of it are in the spool.
    pub live: Vec<(u64, PartMeta, bool)>,
    /// Removed parts whose files may still exist.
    pub removed: Vec<Removal>,
    /// Parts that no commit object lists yet; the next commit adds them.
    pub adopted: Vec<PartMeta>,
    /// The floor of each writer: its first generation that is not in parts.
    pub floors: Vec<WriterFloor>,
}

/// A part that a commit removed.
#[derive(Debug, Clone)]
pub struct Removal {
    /// Number of the commit that removed it.
    pub commit: u64,
    /// The part as it was while it was live.
    pub part: PartMeta,
    /// Whether files of it are in the spool.
    pub spooled: bool,
    /// Whether it was dropped, not replaced.
    pub dropped: bool,
}

impl Catalog {
    /// Replaces the content of the catalog with that of a rebuild, in one transaction. Other tables of the database
    /// stay.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn replace(&self, rebuilt: &Rebuilt) -> Result<()> {
        let now = quiver_types::Clock::now_ms(&*self.clock);
        let mut tx = self.begin("be rebuilt").await?;
        let clear = "DELETE FROM part; DELETE FROM \"commit\"; DELETE FROM outbox; DELETE FROM writer; \
            DELETE FROM installation;";
        sqlx::raw_sql(clear).execute(&mut *tx).await.db("be rebuilt")?;
        sqlx::query("INSERT INTO installation (only_row, id, format, created_ms) VALUES (1, ?, ?, ?)")
            .bind(rebuilt.installation.to_string())
            .bind(STORE_FORMAT)
            .bind(now)
            .execute(&mut *tx)
            .await
            .db("be rebuilt")?;
        for &(commit, committed_ms) in &rebuilt.commits {
            let sql = "INSERT INTO \"commit\" (number, committed_ms) VALUES (?, ?)";
            sqlx::query(sql).bind(commit as i64).bind(committed_ms).execute(&mut *tx).await.db("be rebuilt")?;
        }
        for floor in &rebuilt.floors {
            sqlx::query("INSERT INTO writer (id, floor, heartbeat_ms) VALUES (?, ?, ?)")
                .bind(floor.writer.to_string())
                .bind(floor.floor as i64)
                .bind(now)
                .execute(&mut *tx)
                .await
                .db("be rebuilt")?;
        }
        let spooled = async |tx: &mut super::WriteTransaction, part: &PartMeta| -> Result<()> {
            let sql = "UPDATE part SET spooled = 1 WHERE id = ?";
            sqlx::query(sql).bind(part.id.to_string()).execute(&mut **tx).await.db("be rebuilt")?;
            Ok(())
        };
        for (added, part, in_spool) in &rebuilt.live {
            insert_part(&mut tx, *added, part).await?;
            if *in_spool {
                spooled(&mut tx, part).await?;
            }
        }
        for removal in &rebuilt.removed {
            insert_part(&mut tx, 0, &removal.part).await?;
            let sql = "UPDATE part SET removed = ?, dropped = ?, spooled = ? WHERE id = ?";
            let removed = sqlx::query(sql).bind(removal.commit as i64).bind(removal.dropped).bind(removal.spooled);
            removed.bind(removal.part.id.to_string()).execute(&mut *tx).await.db("be rebuilt")?;
        }
        // Adopting parts has moved the floors; the next commit lists all of them.
        if !rebuilt.adopted.is_empty() || rebuilt.commits.is_empty() {
            let number = self.number_commit(&mut tx, None).await?;
            for part in &rebuilt.adopted {
                insert_part(&mut tx, number, part).await?;
                for file in &part.files {
                    let sql = "DELETE FROM pending WHERE key = ?";
                    sqlx::query(sql).bind(&file.key).execute(&mut *tx).await.db("be rebuilt")?;
                }
            }
            let json = serde_json::to_string(&rebuilt.floors).internal("cannot write floors as JSON")?;
            let sql = "UPDATE outbox SET writers = ? WHERE number = ?";
            sqlx::query(sql).bind(json).bind(number as i64).execute(&mut *tx).await.db("be rebuilt")?;
        }
        tx.commit().await.db("be rebuilt")
    }

    /// Removed parts that were dropped, not replaced.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn dropped_parts(&self) -> Result<Vec<PartMeta>> {
        let sql = "SELECT meta FROM part WHERE removed IS NOT NULL AND dropped = 1 ORDER BY removed, id";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| parse_meta(r.try_get(0).db("be read")?)).collect()
    }

    /// Makes removed parts live again with a commit that adds them.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database refuses.
    pub async fn undrop(&self, ids: &[PartId]) -> Result<()> {
        let what = "bring parts back";
        let mut tx = self.begin(what).await?;
        let number = self.number_commit(&mut tx, None).await?;
        for id in ids {
            let sql = "UPDATE part SET removed = NULL, dropped = 0, added = ? WHERE id = ? AND removed IS NOT NULL";
            sqlx::query(sql).bind(number as i64).bind(id.to_string()).execute(&mut *tx).await.db(what)?;
        }
        self.fill_outbox(&mut tx, number, &Change::default()).await?;
        tx.commit().await.db(what)
    }

    /// Keys that the catalog knows besides those of live parts: pending ones, and those of removed parts.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn doomed_keys(&self) -> Result<Vec<String>> {
        let mut keys = self.pending_keys().await?;
        let rows = sqlx::query("SELECT meta FROM part WHERE removed IS NOT NULL");
        for row in rows.fetch_all(&self.pool).await.db("be read")? {
            keys.extend(parse_meta(row.try_get(0).db("be read")?)?.files.into_iter().map(|f| f.key));
        }
        Ok(keys)
    }

    /// The commits whose objects must be in the store: from the last but one full list on.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn written_commits(&self) -> Result<Vec<u64>> {
        let sql = "SELECT number FROM \"commit\" WHERE number < \
            (SELECT coalesce(min(number), 9223372036854775807) FROM outbox) ORDER BY number";
        let numbers = self.numbers(sql).await?;
        let keep =
            numbers.last().map_or(0, |last| (last / FULL_LIST_EVERY * FULL_LIST_EVERY).saturating_sub(FULL_LIST_EVERY));
        Ok(numbers.into_iter().filter(|&n| n >= keep).collect())
    }

    /// The other commits in the catalog: not written yet, or outdated and about to be deleted.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] when the database cannot be read.
    pub async fn unwritten_commits(&self) -> Result<Vec<u64>> {
        let written = self.written_commits().await?;
        let all = self.numbers("SELECT number FROM \"commit\" ORDER BY number").await?;
        Ok(all.into_iter().filter(|n| written.binary_search(n).is_err()).collect())
    }

    async fn numbers(&self, sql: &'static str) -> Result<Vec<u64>> {
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| Ok(r.try_get::<i64, _>(0).db("be read")? as u64)).collect()
    }
}
