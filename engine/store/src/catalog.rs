//! The catalog: which parts exist, in SQLite. Every change of what exists is one transaction with the next commit
//! number, and leaves an outbox row that becomes a commit object in the store (`docs/formats/catalog.md`).
//!
//! Registering pending keys, noting that an upload arrived, and forgetting what the cleaner deleted are transactions
//! too, but no commits: they change nothing that another reader could see.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_database::{CHECKED_BYTES_MAX, Damage, OpenedFile, TABLES, damage, fault_of_file, is_ours, page_cache};
use quiver_types::Clock;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection, Row, Sqlite, Transaction};
use uuid::Uuid;

use crate::error::{Context, Error, ErrorKind, Result};
use crate::layout::{STORE_FORMAT, check_format};
use crate::part::{PartId, PartMeta};

mod cleanup;
mod commit;
mod commit_objects;
mod idempotency;
mod offline;

pub use cleanup::RemovedPart;
pub use commit::{Change, Floor};
pub use commit_objects::{CommitObject, FULL_LIST_EVERY, NextObject, ReadyObject, WriterFloor};
pub use offline::{Rebuilt, Removal};

/// Migrations in order; their numbers are their positions from 1.
const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_catalog", include_str!("../../../schemas/catalog/0001_catalog.sql")),
    ("0002_answered_request", include_str!("../../../schemas/catalog/0002_answered_request.sql")),
    ("0003_dropped_part", include_str!("../../../schemas/catalog/0003_dropped_part.sql")),
];

/// The catalog. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Catalog {
    pool: SqlitePool,
    file: Arc<OpenedFile>,
    clock: Arc<dyn Clock>,
    /// For tests: number of commits that succeed but are reported as failed.
    #[cfg(test)]
    pub(crate) lose_answers: Arc<std::sync::atomic::AtomicU64>,
}

/// A transaction that holds the database's write lock.
type WriteTransaction = Transaction<'static, Sqlite>;

/// Gives a database error its kind: Unavailable for busy and full, which may pass, else Internal.
fn db_error(what: &str, error: sqlx::Error) -> Error {
    let passing = match &error {
        // SQLITE_BUSY 5, SQLITE_LOCKED 6, SQLITE_FULL 13, in the low byte of the extended code.
        sqlx::Error::Database(e) => {
            e.code().and_then(|c| c.parse::<u32>().ok()).is_some_and(|c| [5, 6, 13].contains(&(c & 0xff)))
        }
        sqlx::Error::PoolTimedOut => true,
        _ => false,
    };
    let kind = if passing { ErrorKind::Unavailable } else { ErrorKind::Internal };
    Error::new(kind, format!("the catalog cannot {what}")).with_source(error)
}

/// Moves the content of SQLite's log into the database file and syncs it. A connection that replaces one after a disk
/// error, and a process that follows a killed one, read from that log what may never have been synced. A commit that
/// builds on it could be lost with it.
async fn empty_log(connection: &mut SqliteConnection) -> std::result::Result<(), sqlx::Error> {
    let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
    let (busy, frames, moved): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    // A concurrent reader prevents the log from being truncated, but its content is in the database file.
    if busy == 0 || frames == moved {
        return Ok(());
    }
    Err(sqlx::Error::Protocol("another program reads the database, so its log cannot be emptied; end it".to_owned()))
}

trait Db<T> {
    fn db(self, what: &str) -> Result<T>;
}

impl<T> Db<T> for std::result::Result<T, sqlx::Error> {
    fn db(self, what: &str) -> Result<T> {
        self.map_err(|e| db_error(what, e))
    }
}

/// Says of a file which it is, what is wrong with it, and what to do.
fn unusable(path: &Path, damage: &Damage) -> Error {
    let instead = "move it and `quiver.db-wal` away, then `quiver catalog rebuild` makes it anew from the store";
    Error::invalid(format!("`{}`, the catalog, {}", path.display(), damage.advice(instead)))
}

fn parse_uuid(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).internal(format!("the catalog holds `{text}` where an id should be"))
}

fn parse_meta(text: &str) -> Result<PartMeta> {
    serde_json::from_str(text).internal("the catalog holds a part that this build cannot read")
}

impl Catalog {
    /// Like [`Self::open_within`], with as much memory as its pages may take.
    ///
    /// # Errors
    /// As [`Self::open_within`].
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_within(path, clock, u64::MAX).await
    }

    /// Opens (creates, migrates) the database, in a process that may have so many bytes of memory.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a newer build made it or the file is none that can be used, [`ErrorKind::Internal`]
    /// when it cannot be opened.
    pub async fn open_within(path: &Path, clock: Arc<dyn Clock>, memory_bytes: u64) -> Result<Self> {
        if let Some(damage) = damage(path) {
            return Err(unusable(path, &damage));
        }
        Self::open_file(path, clock, memory_bytes).await.map_err(|error| {
            let cause = error.source.as_deref().and_then(|cause| cause.downcast_ref::<sqlx::Error>());
            match cause.and_then(fault_of_file) {
                Some(damage) => unusable(path, &damage).with_source(error),
                None => error,
            }
        })
    }

    async fn open_file(path: &Path, clock: Arc<dyn Clock>, memory_bytes: u64) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            // A connection is opened later, too: where the file was taken away, another one is no catalog of ours.
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .pragma("cache_size", page_cache(memory_bytes))
            .busy_timeout(Duration::from_secs(10));
        // Alone, so that its error is told, and at once: a pool tries until its time is up, and says no more than that.
        let mut first =
            SqliteConnection::connect_with(&options.clone().create_if_missing(true)).await.db("be opened")?;
        let emptied = empty_log(&mut first).await;
        emptied.and(first.close().await).db("be opened")?;
        let file = OpenedFile::at(path).await.internal("the catalog cannot be opened")?;
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            // SQLite itself ends a transaction at an I/O error or a full disk. The connection still counts as within a
            // transaction and cannot begin another one, so it is replaced.
            .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
            .after_connect(|connection, _| Box::pin(empty_log(connection)))
            .connect_with(options)
            .await
            .db("be opened")?;
        let catalog = Self {
            pool,
            file: Arc::new(file),
            clock,
            #[cfg(test)]
            lose_answers: Arc::default(),
        };
        let ready = match catalog.check(path).await {
            Ok(()) => catalog.migrate(path).await,
            Err(error) => Err(error),
        };
        if ready.is_err() {
            // Nobody has the file open when it is moved away.
            catalog.close().await;
        }
        ready.map(|()| catalog)
    }

    /// Checks that the file is whole, and that its tables are those of a catalog, if it has any.
    async fn check(&self, path: &Path) -> Result<()> {
        if std::fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_BYTES_MAX) {
            let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(&self.pool).await.db("be read")?;
            let outcome: String = row.try_get(0).db("be read")?;
            if outcome != "ok" {
                let outcome = outcome.split_whitespace().collect::<Vec<_>>().join(" ");
                return Err(unusable(path, &Damage::lost(format!("is damaged ({outcome})"))));
            }
        }
        let row = sqlx::query(TABLES).fetch_one(&self.pool).await.db("be read")?;
        let number = |at: usize| row.try_get::<i64, _>(at).db("be read");
        let is_ours = is_ours([number(0)?, number(1)?, number(2)?], false);
        if is_ours { Ok(()) } else { Err(unusable(path, &Damage::lost("holds tables of something else"))) }
    }

    async fn migrate(&self, path: &Path) -> Result<()> {
        let create = "CREATE TABLE IF NOT EXISTS migration \
            (number INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_ms INTEGER NOT NULL) STRICT";
        sqlx::query(create).execute(&self.pool).await.db("be migrated")?;
        let done: i64 = sqlx::query("SELECT coalesce(max(number), 0) FROM migration")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0))
            .db("be migrated")?;
        let known = MIGRATIONS.len() as i64;
        if done > known {
            let text = format!(
                "`{}`, the catalog, has version {done}, this build knows up to {known}; start a newer build",
                path.display()
            );
            return Err(Error::invalid(text));
        }
        for (i, (name, sql)) in MIGRATIONS.iter().enumerate().skip(done as usize) {
            let mut tx = self.begin("be migrated").await?;
            sqlx::raw_sql(*sql).execute(&mut *tx).await.db("be migrated")?;
            sqlx::query("INSERT INTO migration (number, name, applied_ms) VALUES (?, ?, ?)")
                .bind(i as i64 + 1)
                .bind(*name)
                .bind(self.clock.now_ms())
                .execute(&mut *tx)
                .await
                .db("be migrated")?;
            tx.commit().await.db("be migrated")?;
        }
        Ok(())
    }

    async fn begin(&self, what: &str) -> Result<WriteTransaction> {
        self.file.check().await.unavailable(format!("the catalog cannot {what}"))?;
        self.pool.begin_with("BEGIN IMMEDIATE").await.db(what)
    }

    /// Gives the installation that this catalog belongs to; `None`: the catalog is new.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the store's format is newer than this build.
    pub async fn installation(&self) -> Result<Option<Uuid>> {
        let row = sqlx::query("SELECT id, format FROM installation").fetch_optional(&self.pool).await.db("be read")?;
        let Some(row) = row else { return Ok(None) };
        check_format(row.try_get::<u32, _>(1).db("be read")?, "the catalog")?;
        parse_uuid(row.try_get(0).db("be read")?).map(Some)
    }

    /// Makes this the catalog of a new installation, with commit 0.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database refuses.
    pub async fn install(&self, id: Uuid) -> Result<()> {
        let mut tx = self.begin("be set up").await?;
        sqlx::query("INSERT INTO installation (only_row, id, format, created_ms) VALUES (1, ?, ?, ?)")
            .bind(id.to_string())
            .bind(STORE_FORMAT)
            .bind(self.clock.now_ms())
            .execute(&mut *tx)
            .await
            .db("be set up")?;
        self.number_commit(&mut tx, None).await?;
        tx.commit().await.db("be set up")
    }

    /// Gives the number of the last commit.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn last_commit(&self) -> Result<u64> {
        let sql = "SELECT coalesce(max(number), 0) FROM \"commit\"";
        let row = sqlx::query(sql).fetch_one(&self.pool).await.db("be read")?;
        Ok(row.try_get::<i64, _>(0).db("be read")? as u64)
    }

    /// Gives the time of the last commit, Unix milliseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn last_committed_ms(&self) -> Result<Option<i64>> {
        let sql = "SELECT committed_ms FROM \"commit\" ORDER BY number DESC LIMIT 1";
        let row = sqlx::query(sql).fetch_optional(&self.pool).await.db("be read")?;
        row.map(|r| r.try_get(0).db("be read")).transpose()
    }

    /// Gives all live parts, and the number of the last commit.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn live_parts(&self) -> Result<(u64, Vec<PartMeta>)> {
        let commit = self.last_commit().await?;
        let rows = sqlx::query("SELECT meta FROM part WHERE removed IS NULL ORDER BY added, id");
        let rows = rows.fetch_all(&self.pool).await.db("be read")?;
        let parts = rows.iter().map(|r| parse_meta(r.try_get(0).db("be read")?));
        Ok((commit, parts.collect::<Result<_>>()?))
    }

    /// Gives the parts that wait for their upload, oldest commit first.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn spooled_parts(&self) -> Result<Vec<PartMeta>> {
        let sql = "SELECT meta FROM part WHERE spooled = 1 AND place = 'spool' AND removed IS NULL ORDER BY added, id";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(|r| parse_meta(r.try_get(0).db("be read")?)).collect()
    }

    /// Gives each writer's floor: its first generation that is not in parts.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn floors(&self) -> Result<Vec<WriterFloor>> {
        let rows = sqlx::query("SELECT id, floor FROM writer ORDER BY id").fetch_all(&self.pool).await.db("be read")?;
        let floor = |row: &sqlx::sqlite::SqliteRow| {
            let writer = parse_uuid(row.try_get(0).db("be read")?)?;
            Ok(WriterFloor { writer, floor: row.try_get::<i64, _>(1).db("be read")? as u64 })
        };
        rows.iter().map(floor).collect()
    }

    /// Says whether a part is live.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database cannot be read.
    pub async fn is_live(&self, id: PartId) -> Result<bool> {
        let sql = "SELECT 1 FROM part WHERE id = ? AND removed IS NULL";
        let row = sqlx::query(sql).bind(id.to_string()).fetch_optional(&self.pool).await.db("be read")?;
        Ok(row.is_some())
    }

    /// Moves the database's log into its file, so that the directory takes the least space.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the database refuses.
    pub async fn checkpoint(&self) -> Result<()> {
        let mut connection = self.pool.acquire().await.db("be written")?;
        empty_log(&mut connection).await.db("be written")
    }

    /// Its connections, for tests that occupy them.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> &SqlitePool {
        &self.pool
    }

    /// Closes the database, after waiting for running statements.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

#[cfg(test)]
mod tests;
