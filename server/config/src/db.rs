//! The database of configuration and accounts: one SQLite file beside the catalog, so that neither waits for the other.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, Row, Sqlite, Transaction};

use crate::problem::{Problem, Result};

/// Connections: one writes, the others read beside it.
const CONNECTIONS: u32 = 4;
/// How long a writer waits for another one.
const BUSY: Duration = Duration::from_secs(5);

/// Migrations in order; their numbers are their positions from 1.
const MIGRATIONS: &[(&str, &str)] = &[("0001_entities", include_str!("../../../schemas/entities/0001_entities.sql"))];

/// A transaction that holds the database's write lock.
pub(crate) type Writing = Transaction<'static, Sqlite>;

/// Opens (creates) the database.
///
/// # Errors
/// `STORE_BUSY`, `INTERNAL`.
pub async fn open_pool(path: &Path) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY);
    let pool = SqlitePoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(BUSY)
        // SQLite ends a transaction by itself at an error of the disk; such a connection takes no further one.
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
        .connect_with(options)
        .await?;
    Ok(pool)
}

/// Brings the tables of a part of the server up to date; each part counts its own steps.
///
/// # Errors
/// `INTERNAL` when a newer build made them.
pub async fn migrate(pool: &SqlitePool, part: &str, steps: &[(&str, &'static str)], now_ms: i64) -> Result<()> {
    let create = "CREATE TABLE IF NOT EXISTS migration (part TEXT NOT NULL, number INTEGER NOT NULL, \
        name TEXT NOT NULL, applied_ms INTEGER NOT NULL, PRIMARY KEY (part, number)) STRICT";
    sqlx::query(create).execute(pool).await?;
    let mut tx = begin(pool).await?;
    let done = sqlx::query("SELECT coalesce(max(number), 0) FROM migration WHERE part = ?").bind(part);
    let done: i64 = done.fetch_one(&mut *tx).await?.try_get(0)?;
    if done > steps.len() as i64 {
        let text = format!("tables `{part}` have version {done}, this build knows up to {}", steps.len());
        return Err(Problem::internal(text));
    }
    for (i, (name, sql)) in steps.iter().enumerate().skip(done as usize) {
        sqlx::raw_sql(*sql).execute(&mut *tx).await?;
        let insert = "INSERT INTO migration (part, number, name, applied_ms) VALUES (?, ?, ?, ?)";
        sqlx::query(insert).bind(part).bind(i as i64 + 1).bind(*name).bind(now_ms).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Brings the tables of this crate up to date.
pub(crate) async fn migrate_own(pool: &SqlitePool, now_ms: i64) -> Result<()> {
    migrate(pool, "entities", MIGRATIONS, now_ms).await
}

/// Begins to write.
pub(crate) async fn begin(pool: &SqlitePool) -> Result<Writing> {
    Ok(pool.begin_with("BEGIN IMMEDIATE").await?)
}
