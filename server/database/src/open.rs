//! Opens a database, hands out its connections, and runs write transactions: one at a time, across all servers.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Error, Executor};

use crate::connection::{Base, Connection, Database, PooledConnection, WriteTransaction};
use crate::dialect::schema;
use crate::sqlite_file::{OpenedFile, is_empty};
use crate::statement::{in_time, statement};
use crate::writable::with_writable;

/// Connections to SQLite: one writes, the others read beside it.
const SQLITE_CONNECTIONS: u32 = 4;
/// The part (1/n) of the memory of a process that each connection to SQLite may fill with pages, and its bounds in KiB: a
/// page of a list takes 1,000 entities from anywhere in a family, each from a page of its own. 2 MiB, which SQLite keeps by
/// itself, has every list read the file again.
const CACHE_PART: u64 = 256;
const CACHE_KIB: (u64, u64) = (1 << 10, 8 << 10);
/// Connections to PostgreSQL of one server.
const POSTGRES_CONNECTIONS: u32 = 8;
/// How long a writer of PostgreSQL waits for another one, and whoever asks for a connection to it.
const BUSY: Duration = Duration::from_secs(5);
/// The same of a file: nobody else has it, so what one waits for is the disk, which may stand still while it writes back
/// what others left. A start would not come about for that.
const FILE_BUSY: Duration = Duration::from_secs(30);
/// The advisory lock of whoever writes.
const WRITE_LOCK: i64 = 0x7175_6976_6572;
/// What each connection to PostgreSQL begins with: nobody waits for ever, and nobody is waited for for ever.
const SETTINGS: &str = "SET lock_timeout = '5s'; SET statement_timeout = '15s'; \
    SET idle_in_transaction_session_timeout = '60s'; SET client_min_messages = 'warning'";

/// A snapshot is read for as long as its copy takes to be written. The first look is its moment.
const UNHURRIED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '10min'; \
    SELECT 1";

/// The value of `PRAGMA cache_size` for connections of a process that may have so many bytes of memory.
pub fn page_cache(memory_bytes: u64) -> String {
    format!("-{}", (memory_bytes / CACHE_PART / 1024).clamp(CACHE_KIB.0, CACHE_KIB.1))
}

/// Says whether an error passes by itself: the database is busy, full, or gone for a while.
pub fn is_passing(error: &Error) -> bool {
    let Error::Database(e) = error else {
        return matches!(
            error,
            Error::PoolTimedOut | Error::PoolClosed | Error::Io(_) | Error::WorkerCrashed | Error::BeginFailed
        );
    };
    let Some(code) = e.code() else { return false };
    if e.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        // Connection and resources, stops by an operator, time-outs, locks, a standby that takes no writes.
        let classes = ["08", "53", "57", "40"];
        return classes.iter().any(|class| code.starts_with(class)) || ["55P03", "25006", "25P03"].contains(&&*code);
    }
    // SQLITE_BUSY 5, SQLITE_LOCKED 6, SQLITE_FULL 13, SQLITE_CANTOPEN 14 (no file descriptor is left, or the file is not
    // where it was), in the low byte of the extended code.
    code.parse::<u32>().is_ok_and(|c| [5, 6, 13, 14].contains(&(c & 0xff)))
}

/// Makes a file that its owner alone may read, where there is none: hashes of passwords are in it. Files that SQLite makes
/// beside it get its mode. Says whether it made one.
async fn make_private(path: &Path) -> bool {
    // Why it cannot be opened SQLite says.
    tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).await.is_ok()
}

impl Database {
    /// Like [`Self::sqlite_within`], with memory for all pages that are worth it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn sqlite(path: &Path) -> BoxFuture<'_, Result<Self, Error>> {
        Self::sqlite_within(path, u64::MAX)
    }

    /// Opens (creates) a file of SQLite, in a process that may have so many bytes of memory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn sqlite_within(path: &Path, memory_bytes: u64) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let is_new = make_private(path).await;
            let options = SqliteConnectOptions::new()
                .filename(path)
                // Connections are opened later, too: where the file was taken away, another one is no database of ours.
                .create_if_missing(false)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .foreign_keys(true)
                .pragma("cache_size", page_cache(memory_bytes))
                .busy_timeout(FILE_BUSY);
            let pool = SqlitePoolOptions::new().max_connections(SQLITE_CONNECTIONS).acquire_timeout(FILE_BUSY);
            let pool = with_writable(pool, path, FILE_BUSY).connect_with(options).await;
            if pool.is_err() && is_new && is_empty(path) {
                // An empty file that was left here would be taken for one that lost what it held.
                let _ = tokio::fs::remove_file(path).await;
            }
            let pool = pool?;
            Ok(Self(Base::Sqlite(pool, Arc::new(OpenedFile::at(path).await?))))
        })
    }

    /// Connects to PostgreSQL, as `postgres://user:password@host:port/database?sslmode=…` says.
    ///
    /// # Errors
    /// When the URL is none, or nobody answers.
    pub fn postgres(url: &str) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let options = PgConnectOptions::from_str(url)?.application_name("quiver");
            let pool = PgPoolOptions::new()
                .max_connections(POSTGRES_CONNECTIONS)
                .acquire_timeout(BUSY)
                .after_connect(|connection, _| {
                    Box::pin(async move { connection.execute(sqlx::raw_sql(SETTINGS)).await.map(|_| ()) })
                })
                .connect_with(options)
                .await?;
            Ok(Self(Base::Postgres(pool)))
        })
    }

    /// A new database for a test: a file, or one of the PostgreSQL that is given.
    ///
    /// # Errors
    /// When it cannot be made.
    #[doc(hidden)]
    pub async fn for_tests(path: &Path, postgres: Option<String>) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some(url) = postgres else { return Self::sqlite(path).await };
        let base = Self::postgres(&url).await?;
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        statement(format!("CREATE DATABASE {name}")).execute(&base).await?;
        base.close().await;
        Self::postgres(&url.replacen("/postgres?", &format!("/{name}?"), 1)).await
    }

    /// Whether other servers may write, too.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Base::Postgres(_))
    }

    /// Takes a connection to read by.
    ///
    /// # Errors
    /// When none is free in time.
    pub fn acquire(&self) -> BoxFuture<'_, Result<Connection, Error>> {
        Box::pin(async move {
            let held = match &self.0 {
                Base::Sqlite(pool, _) => PooledConnection::Sqlite(pool.acquire().await?),
                Base::Postgres(pool) => PooledConnection::Postgres(pool.acquire().await?),
            };
            Ok(Connection(held))
        })
    }

    /// Begins to read what is there at one moment, however long that takes and whatever is written meanwhile.
    ///
    /// # Errors
    /// When no connection is free in time, or nobody answers.
    pub fn snapshot(&self) -> BoxFuture<'_, Result<Connection, Error>> {
        Box::pin(async move {
            match &self.0 {
                Base::Sqlite(pool, _) => {
                    let mut connection =
                        Connection(PooledConnection::SqliteWithin(pool.begin_with("BEGIN DEFERRED").await?));
                    // Its moment is that of the first look.
                    statement("SELECT count(*) FROM sqlite_schema").fetch_one(&mut connection).await?;
                    Ok(connection)
                }
                Base::Postgres(pool) => {
                    let mut begun = in_time(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")).await?;
                    in_time(begun.execute(sqlx::raw_sql(UNHURRIED))).await?;
                    Ok(Connection(PooledConnection::PostgresWithin(begun)))
                }
            }
        })
    }

    /// Begins to write. There is one writer at a time, so that what it reads holds until it is done.
    ///
    /// # Errors
    /// When another one writes for too long, nobody answers, or the file is not where it was.
    pub fn begin(&self) -> BoxFuture<'_, Result<WriteTransaction, Error>> {
        Box::pin(async move {
            match &self.0 {
                Base::Sqlite(pool, file) => {
                    file.check().await?;
                    Ok(WriteTransaction(Connection(PooledConnection::SqliteWithin(
                        pool.begin_with("BEGIN IMMEDIATE").await?,
                    ))))
                }
                Base::Postgres(pool) => {
                    // Each statement sees what was committed before it, so what follows the lock sees the last writer's work.
                    let begun = in_time(pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED")).await?;
                    let mut writing = WriteTransaction(Connection(PooledConnection::PostgresWithin(begun)));
                    statement("SELECT pg_advisory_xact_lock(?)").bind(WRITE_LOCK).execute(&mut writing).await?;
                    Ok(writing)
                }
            }
        })
    }

    /// Closes all connections.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.0 {
                Base::Sqlite(pool, _) => pool.close().await,
                Base::Postgres(pool) => pool.close().await,
            }
        })
    }
}

impl WriteTransaction {
    /// Keeps what was written.
    ///
    /// # Errors
    /// When it cannot be kept; or, of a connection that was lost, when nobody knows.
    pub fn commit(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            match self.0.0 {
                PooledConnection::SqliteWithin(transaction) => transaction.commit().await,
                PooledConnection::PostgresWithin(transaction) => in_time(transaction.commit()).await,
                PooledConnection::Sqlite(_) | PooledConnection::Postgres(_) => Ok(()),
            }
        })
    }

    /// Forgets what was written.
    ///
    /// # Errors
    /// When the connection is lost, which forgets it, too.
    pub fn rollback(self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            match self.0.0 {
                PooledConnection::SqliteWithin(transaction) => transaction.rollback().await,
                PooledConnection::PostgresWithin(transaction) => in_time(transaction.rollback()).await,
                PooledConnection::Sqlite(_) | PooledConnection::Postgres(_) => Ok(()),
            }
        })
    }

    /// Marks where it is, to take back alone what follows.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn mark(&mut self) -> Result<(), Error> {
        statement("SAVEPOINT marked").execute(self).await.map(|_| ())
    }

    /// Takes back what was written since the mark, and goes on. Also after a statement that failed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn take_back(&mut self) -> Result<(), Error> {
        statement("ROLLBACK TO SAVEPOINT marked").execute(&mut *self).await?;
        self.keep_marked().await
    }

    /// Lets what was written since the mark stand.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn keep_marked(&mut self) -> Result<(), Error> {
        statement("RELEASE SAVEPOINT marked").execute(self).await.map(|_| ())
    }

    /// Runs statements that make tables, written for SQLite.
    ///
    /// # Errors
    /// Those of the database.
    pub fn apply(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match &mut self.0.0 {
                PooledConnection::SqliteWithin(one) => one.execute(sqlx::raw_sql(sql)).await.map(|_| ()),
                PooledConnection::PostgresWithin(one) => {
                    let sql = schema(sql);
                    one.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.map(|_| ())
                }
                PooledConnection::Sqlite(_) | PooledConnection::Postgres(_) => Ok(()),
            }
        })
    }
}
