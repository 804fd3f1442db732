//! Whether the connections of a pool to a file of SQLite can write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::Access;
use rustix::io::Errno;
use sqlx::sqlite::{SqliteConnection, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Error};

/// `SQLITE_READONLY`, in the low byte of the extended code.
const READ_ONLY: u32 = 8;
/// A statement that begins to write, and changes nothing in a file without `auto_vacuum`. `BEGIN IMMEDIATE` would not do:
/// on a read-only connection it only reads.
const WRITES_NOTHING: &str = "PRAGMA incremental_vacuum(1)";

/// Lets a pool keep only connections that can write to the file. If SQLite cannot open the file or its log for writing at
/// that moment (no descriptor is left), it opens them read-only, and the connection would refuse all writes for as long
/// as it lives. A file that is itself read-only stays readable until it may be written again. `busy` is how long a
/// connection waits for another writer.
pub fn with_writable(pool: SqlitePoolOptions, path: &Path, busy: Duration) -> SqlitePoolOptions {
    let fresh = Arc::new(WriteCheck { path: path.to_owned(), busy, reads_only: AtomicBool::new(false) });
    let idle = Arc::clone(&fresh);
    pool.after_connect(move |connection, _| {
        let check = Arc::clone(&fresh);
        Box::pin(async move { check.admit(connection).await })
    })
    .before_acquire(move |connection, _| {
        let check = Arc::clone(&idle);
        Box::pin(async move { Ok(check.is_usable(connection).await) })
    })
}

struct WriteCheck {
    path: PathBuf,
    busy: Duration,
    /// Whether a connection was admitted that can only read.
    reads_only: AtomicBool,
}

impl WriteCheck {
    /// Refuses a read-only connection to a file that may be written.
    async fn admit(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        // This check must not wait for another writer.
        sqlx::raw_sql("PRAGMA busy_timeout = 0").execute(&mut *connection).await?;
        match sqlx::raw_sql(WRITES_NOTHING).execute(&mut *connection).await {
            Err(error) if is_read_only(&error) => {
                if may_be_written(&self.path) {
                    return Err(error);
                }
                self.reads_only.store(true, Ordering::Relaxed);
            }
            // It can write; or another connection is writing; or the next statement will report what is wrong.
            _ => {}
        }
        let restored = AssertSqlSafe(format!("PRAGMA busy_timeout = {}", self.busy.as_millis()));
        sqlx::raw_sql(restored).execute(&mut *connection).await.map(drop)
    }

    /// Whether a used connection can be used again. After a disk error SQLite ends a transaction by itself, and the
    /// connection cannot begin another one.
    async fn is_usable(&self, connection: &mut SqliteConnection) -> bool {
        !connection.is_in_transaction()
            && (!self.reads_only.load(Ordering::Relaxed) || self.admit(connection).await.is_ok())
    }
}

/// Whether a file, and the files that SQLite keeps beside it, may be written: another user may own some of them. Does not
/// open the file, since closing it again would release SQLite's locks.
fn may_be_written(path: &Path) -> bool {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let denied = rustix::fs::access(&name, Access::WRITE_OK).err();
        denied.is_none_or(|errno| errno == Errno::NOENT)
    };
    rustix::fs::access(path, Access::WRITE_OK).is_ok() && beside("-wal") && beside("-shm")
}

fn is_read_only(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code()?.parse::<u32>().ok());
    code.is_some_and(|code| code & 0xff == READ_ONLY)
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
    use sqlx::{ConnectOptions as _, Row as _};

    use super::*;

    const BUSY: Duration = Duration::from_secs(7);

    async fn waits(connection: &mut SqliteConnection) -> i64 {
        sqlx::query("PRAGMA busy_timeout").fetch_one(connection).await.unwrap().try_get(0).unwrap()
    }

    /// Breaks if alerting and configuration refuse changes for good after file descriptors were short for a moment.
    #[tokio::test]
    async fn a_connection_that_only_reads_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let check = WriteCheck { path: path.clone(), busy: BUSY, reads_only: AtomicBool::new(false) };
        let options =
            SqliteConnectOptions::new().filename(&path).journal_mode(SqliteJournalMode::Wal).busy_timeout(BUSY);
        let mut first = options.clone().create_if_missing(true).connect().await.unwrap();
        check.admit(&mut first).await.unwrap();
        assert_eq!(waits(&mut first).await, 7_000);
        sqlx::raw_sql("CREATE TABLE t (n INTEGER)").execute(&mut first).await.unwrap();
        let mut reader = SqliteConnectOptions::new().filename(&path).read_only(true).connect().await.unwrap();
        let refused = check.admit(&mut reader).await.unwrap_err();
        assert!(is_read_only(&refused), "{refused}");
        // A connection that finds another writer is admitted without waiting for it.
        sqlx::raw_sql("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").execute(&mut first).await.unwrap();
        let mut second = options.connect().await.unwrap();
        check.admit(&mut second).await.unwrap();
        assert_eq!(waits(&mut second).await, 7_000);
        sqlx::raw_sql("COMMIT").execute(&mut first).await.unwrap();
        assert!(check.is_usable(&mut first).await);
        sqlx::raw_sql("INSERT INTO t VALUES (2)").execute(&mut second).await.unwrap();
        for connection in [first, second, reader] {
            connection.close().await.unwrap();
        }
    }

    /// Breaks if a disk that was mounted read-only for a while takes no changes until a restart.
    #[tokio::test]
    async fn what_can_only_be_read_is_read_until_it_may_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, looked_at) = (dir.path().join("a.db"), dir.path().join("may be written"));
        SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .connect()
            .await
            .unwrap()
            .close()
            .await
            .unwrap();
        let options = SqliteConnectOptions::new().filename(&path).read_only(true);
        let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(3));
        let pool = with_writable(pool, &looked_at, BUSY).connect_with(options).await.unwrap();
        for _ in 0..2 {
            let mut reader = pool.acquire().await.unwrap();
            assert_eq!(waits(&mut reader).await, 7_000);
        }
        std::fs::write(&looked_at, "").unwrap();
        let refused = pool.acquire().await.unwrap_err();
        assert!(matches!(refused, Error::PoolTimedOut), "{refused}");
        pool.close().await;
    }

    /// A log that another user made is told of the file at once, as it was; nobody waits for it to become ours.
    #[test]
    fn what_lies_beside_a_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        assert!(!may_be_written(&path), "there is none");
        std::fs::write(&path, "").unwrap();
        assert!(may_be_written(&path));
        for suffix in ["-wal", "-shm"] {
            let beside = dir.path().join(format!("a.db{suffix}"));
            // Not even root may write to what leads nowhere.
            std::os::unix::fs::symlink(&beside, &beside).unwrap();
            assert!(!may_be_written(&path), "{suffix}");
            std::fs::remove_file(&beside).unwrap();
            std::fs::write(&beside, "").unwrap();
            assert!(may_be_written(&path), "{suffix}");
        }
    }
}
