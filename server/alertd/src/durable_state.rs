//! What must survive a restart, as JSON by kind and key in a separate SQLite file, so that it never waits for the
//! catalog or the configuration.
//!
//! One task writes. What is queued while it writes becomes one transaction, so that a burst of alerts costs few syncs.
//! Changes of one key take effect in the order in which they were queued. What cannot be written is refused where somebody
//! waits for it, and otherwise tried again: memory has gone on, and the next start must find what it knew.

mod unwritten;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_database::{Damage, OpenedFile, damage, fault_of_file, is_passing, page_cache, with_writable};
use quiver_types::{Error, ErrorKind, LogPace, Result};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Connection as _, Row as _};
use tokio::sync::{mpsc, oneshot};

use unwritten::UnwrittenChanges;

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// An alert of the router; key: canonical labels.
    Alert,
    /// A silence; key: its id.
    Silence,
    /// A row of the notification log; key: group key, receiver, integration, index.
    Told,
    /// Next flush of a group; key: the group's key.
    Timer,
    /// Alerts of a rule; key: group and identity of the rule.
    Rule,
    /// A policy that was live; key: its number.
    Revision,
    /// The server itself.
    Service,
}

impl RowKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Silence => "silence",
            Self::Told => "told",
            Self::Timer => "timer",
            Self::Rule => "rule",
            Self::Revision => "revision",
            Self::Service => "service",
        }
    }
}

/// A change of one row; without a value the row is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of the row.
    pub kind: RowKind,
    /// Key of the row within its kind, which defines the format.
    pub key: Vec<u8>,
    /// The new value, JSON.
    pub value: Option<String>,
}

impl Change {
    /// Makes a change that sets a row.
    pub fn set(kind: RowKind, key: impl Into<Vec<u8>>, value: &serde_json::Value) -> Self {
        Self { kind, key: key.into(), value: Some(value.to_string()) }
    }

    /// Makes a change that removes a row.
    pub fn remove(kind: RowKind, key: impl Into<Vec<u8>>) -> Self {
        Self { kind, key: key.into(), value: None }
    }
}

#[derive(Debug)]
struct Batch {
    changes: Vec<Change>,
    /// Whether they are tried again, although somebody waits for them.
    again: bool,
    done: oneshot::Sender<Result<()>>,
}

/// The SQLite database with the state of alerting that survives restarts.
#[derive(Debug)]
pub struct StateDatabase {
    pool: SqlitePool,
    writer: mpsc::UnboundedSender<Batch>,
    failing: Arc<Mutex<Option<WriteFailure>>>,
}

/// Since when no change could be written, and why the last one could not.
#[derive(Debug)]
struct WriteFailure {
    since: Instant,
    why: String,
}

/// Tells when changes are durable.
#[derive(Debug)]
pub struct PendingWrite(oneshot::Receiver<Result<()>>);

impl PendingWrite {
    /// Waits until the changes are durable.
    ///
    /// # Errors
    /// Unavailable: they are not.
    pub async fn durable(self) -> Result<()> {
        self.0.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the server is stopping")))
    }
}

/// Most batches of one transaction.
const BATCHES_MAX: usize = 1024;
/// How long what could not be written waits.
const AGAIN: Duration = if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(5) };
/// How long writes must fail before operators are told.
const TOLD_AFTER: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(30) };
/// Each rule that is evaluated may find the disk full.
static PACE: LogPace = LogPace::new();
/// How long a connection waits for another one, or for a stalled disk.
const BUSY: Duration = Duration::from_secs(30);

/// Values stand apart from the index: within it, each look-up reads those that it passes as a whole, and that of a rule with
/// many alerts has megabytes.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS kept (kind TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, \
    PRIMARY KEY (kind, key)) STRICT";
/// Makes such a table of one that earlier builds made.
const MOVE: [&str; 4] = [
    "ALTER TABLE kept RENAME TO kept_before",
    CREATE,
    "INSERT INTO kept (kind, key, value) SELECT kind, key, value FROM kept_before",
    "DROP TABLE kept_before",
];

fn unusable(e: sqlx::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the database of alerts cannot be used").with_source(e)
}

/// Says of a file what is wrong with it, and what to do.
fn damaged(path: &Path, damage: &Damage) -> Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let instead = format!(
        "put back a copy, or move it and `{name}-wal` away to begin without silences and as if no alert had been sent"
    );
    Error::invalid(format!("`{}`, the database of alerts, {}", path.display(), damage.advice(&instead)))
}

impl StateDatabase {
    /// Like [`Self::open_within`], with as much memory as its pages may take.
    ///
    /// # Errors
    /// As [`Self::open_within`].
    pub fn open(path: &Path) -> BoxFuture<'_, Result<Arc<Self>>> {
        Self::open_within(path, u64::MAX)
    }

    /// Opens (creates) the database, in a process that may have so many bytes of memory.
    ///
    /// # Errors
    /// Invalid: the file is none that can be used; the text says why, and what to do. Unavailable: it cannot be used now.
    pub fn open_within(path: &Path, memory_bytes: u64) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            if let Some(damage) = damage(path) {
                return Err(damaged(path, &damage));
            }
            Self::open_file(path, memory_bytes).await.map_err(|error| match fault_of_file(&error) {
                Some(damage) => damaged(path, &damage).with_source(error),
                None => unusable(error),
            })
        })
    }

    async fn open_file(path: &Path, memory_bytes: u64) -> sqlx::Result<Arc<Self>> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            // Connections are opened later, too: where the file was taken away, another one is no database of ours.
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("cache_size", page_cache(memory_bytes))
            .busy_timeout(BUSY);
        SqliteConnection::connect_with(&options.clone().create_if_missing(true)).await?.close().await?;
        let file = OpenedFile::at(path).await?;
        let pool = SqlitePoolOptions::new().max_connections(2).acquire_timeout(BUSY);
        let pool = with_writable(pool, path, BUSY).connect_with(options).await?;
        create(&pool).await?;
        let (writer, batches) = mpsc::unbounded_channel();
        let failing = Arc::<Mutex<Option<WriteFailure>>>::default();
        tokio::spawn(write_all(pool.clone(), file, batches, Arc::clone(&failing)));
        Ok(Arc::new(Self { pool, writer, failing }))
    }

    /// Reads all rows of a kind.
    ///
    /// # Errors
    /// Unavailable: the database cannot be read.
    pub async fn load(&self, kind: RowKind) -> Result<Vec<(Vec<u8>, serde_json::Value)>> {
        let query = sqlx::query("SELECT key, value FROM kept WHERE kind = ? ORDER BY key").bind(kind.as_str());
        let rows = query.fetch_all(&self.pool).await.map_err(unusable)?;
        let read = |row: sqlx::sqlite::SqliteRow| {
            let (key, value): (Vec<u8>, String) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            serde_json::from_str(&value).ok().map(|value| (key, value))
        };
        let count = rows.len();
        let out: Vec<_> = rows.into_iter().filter_map(read).collect();
        if out.len() < count {
            tracing::error!(kind = kind.as_str(), rows = count - out.len(), "rows of alerting cannot be read");
        }
        Ok(out)
    }

    /// A message for operators: changes have not been written for a while.
    pub fn note(&self) -> Option<String> {
        let failing = self.failing.lock();
        let WriteFailure { since, why } = failing.as_ref().filter(|failing| failing.since.elapsed() >= TOLD_AFTER)?;
        Some(format!("the state of alerting could not be written for {} s: {why}", since.elapsed().as_secs()))
    }

    /// Queues changes; they are made in this order, atomically.
    pub fn put(&self, changes: Vec<Change>) -> PendingWrite {
        self.queue(changes, false)
    }

    /// As [`Self::put`], of what has happened: changes that cannot be made now are made later, although the caller is told.
    pub fn put_surely(&self, changes: Vec<Change>) -> PendingWrite {
        self.queue(changes, true)
    }

    fn queue(&self, changes: Vec<Change>, again: bool) -> PendingWrite {
        let (done, writing) = oneshot::channel();
        // If the writer has ended, `done` is dropped, which the waiter notices.
        let _ = self.writer.send(Batch { changes, again, done });
        PendingWrite(writing)
    }
}

async fn create(pool: &SqlitePool) -> sqlx::Result<()> {
    let there = sqlx::query_scalar("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'kept'");
    let there: Option<String> = there.fetch_optional(pool).await?;
    if there.is_none_or(|sql| !sql.contains("WITHOUT ROWID")) {
        return sqlx::query(CREATE).execute(pool).await.map(drop);
    }
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for sql in MOVE {
        sqlx::query(sql).execute(&mut *tx).await?;
    }
    tx.commit().await
}

async fn write_all(
    pool: SqlitePool,
    file: OpenedFile,
    mut batches: mpsc::UnboundedReceiver<Batch>,
    failing: Arc<Mutex<Option<WriteFailure>>>,
) {
    let mut unwritten = UnwrittenChanges::default();
    let mut is_open = true;
    while is_open {
        let mut taken = Vec::new();
        tokio::select! {
            first = batches.recv() => {
                is_open = first.is_some();
                taken.extend(first);
            }
            () = tokio::time::sleep(AGAIN), if !unwritten.is_empty() => {}
        }
        while taken.len() < BATCHES_MAX
            && let Ok(next) = batches.try_recv()
        {
            taken.push(next);
        }
        if taken.is_empty() && unwritten.is_empty() {
            continue;
        }
        let outcome = write_with(&pool, &file, &taken, &mut unwritten).await;
        match &outcome {
            Ok(()) => *failing.lock() = None,
            Err(e) => {
                let mut failing = failing.lock();
                let failure = failing.get_or_insert_with(|| WriteFailure { since: Instant::now(), why: String::new() });
                failure.why = e.to_string();
                if let Some(left_out) = PACE.turn(&failure.why) {
                    tracing::error!(error = %e, left_out, "state of alerting is not written");
                }
            }
        }
        for batch in taken {
            let Err(e) = &outcome else {
                // The caller may not be waiting for the outcome.
                let _ = batch.done.send(Ok(()));
                continue;
            };
            if batch.again || batch.done.is_closed() {
                unwritten.add(batch.changes);
            }
            let source = std::io::Error::other(e.to_string());
            let refused = Error::new(ErrorKind::Unavailable, "alerts cannot be stored now").with_source(source);
            let _ = batch.done.send(Err(refused));
        }
    }
}

/// Writes what waits and what is new, in this order. Where that cannot be, the new is written alone: what waits may be at
/// fault.
async fn write_with(
    pool: &SqlitePool,
    file: &OpenedFile,
    batches: &[Batch],
    unwritten: &mut UnwrittenChanges,
) -> sqlx::Result<()> {
    let new: Vec<&Change> = batches.iter().flat_map(|batch| &batch.changes).collect();
    let all: Vec<&Change> = unwritten.changes().chain(new.iter().copied()).collect();
    let Err(error) = write(pool, file, &all).await else {
        unwritten.clear();
        return Ok(());
    };
    if new.is_empty() || unwritten.is_empty() || is_passing(&error) {
        return Err(error);
    }
    write(pool, file, &new).await?;
    unwritten.forget(&new);
    Ok(())
}

async fn write(pool: &SqlitePool, file: &OpenedFile, changes: &[&Change]) -> sqlx::Result<()> {
    file.check().await?;
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    for change in changes {
        let kind = change.kind.as_str();
        if let Some(value) = &change.value {
            let sql = "INSERT INTO kept (kind, key, value) VALUES (?, ?, ?) \
                ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value";
            sqlx::query(sql).bind(kind).bind(&change.key).bind(value).execute(&mut *tx).await?;
        } else {
            let sql = "DELETE FROM kept WHERE kind = ? AND key = ?";
            sqlx::query(sql).bind(kind).bind(&change.key).execute(&mut *tx).await?;
        }
    }
    tx.commit().await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn rows_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let kept = StateDatabase::open(&file).await.unwrap();
        let set = |key: &str, n: i64| Change::set(RowKind::Alert, key, &json!({"n": n}));
        let all = kept.put(vec![set("a", 1), set("b", 2)]);
        // In the order in which they were handed in, though nobody waits for the first ones.
        drop(kept.put(vec![set("a", 3), Change::remove(RowKind::Alert, "b")]));
        all.durable().await.unwrap();
        kept.put(vec![set("c", 4), Change::set(RowKind::Silence, "a", &json!(1))]).durable().await.unwrap();
        drop(kept);
        let kept = StateDatabase::open(&file).await.unwrap();
        let rows = kept.load(RowKind::Alert).await.unwrap();
        assert_eq!(rows, [(b"a".to_vec(), json!({"n": 3})), (b"c".to_vec(), json!({"n": 4}))]);
        assert_eq!(kept.load(RowKind::Silence).await.unwrap().len(), 1);
        assert!(kept.load(RowKind::Told).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn pages_are_kept_within_the_memory_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let kept = StateDatabase::open_within(&dir.path().join("alerts.db"), 256 << 20).await.unwrap();
        let cache: i64 = sqlx::query_scalar("PRAGMA cache_size").fetch_one(&kept.pool).await.unwrap();
        assert_eq!(cache, -1024);
    }

    /// Breaks if silences and sent notifications are written to a deleted file, which the next start cannot find.
    #[tokio::test]
    async fn a_file_that_was_taken_away_takes_no_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (file, aside) = (dir.path().join("alerts.db"), dir.path().join("aside.db"));
        let kept = StateDatabase::open(&file).await.unwrap();
        let set = async |n: i64| kept.put(vec![Change::set(RowKind::Silence, "a", &json!(n))]).durable().await;
        set(1).await.unwrap();
        let refused = async |what: &str| {
            let error = set(2).await.unwrap_err();
            let source = error.source.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(error.kind == ErrorKind::Unavailable && source.contains(what), "{error}: {source}");
        };
        std::fs::rename(&file, &aside).unwrap();
        refused("alerts.db` is gone").await;
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        refused("is another file than the one in use").await;
        std::fs::rename(&aside, &file).unwrap();
        set(3).await.unwrap();
        assert_eq!(kept.load(RowKind::Silence).await.unwrap(), [(b"a".to_vec(), json!(3))]);
    }

    /// Breaks where a full disk has the next start know less than this process did, or where nobody is told.
    #[tokio::test]
    async fn what_nobody_waits_for_is_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let kept = StateDatabase::open(&dir.path().join("alerts.db")).await.unwrap();
        let set = |key: &str, n: i64| Change::set(RowKind::Told, key, &json!(n));
        kept.put(vec![set("gone", 1)]).durable().await.unwrap();
        let full = "CREATE TRIGGER full BEFORE INSERT ON kept BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
        sqlx::query(full).execute(&kept.pool).await.unwrap();
        drop(kept.put(vec![set("a", 1), set("b", 1), Change::remove(RowKind::Told, "gone")]));
        kept.put_surely(vec![set("sent", 1)]).durable().await.unwrap_err();
        drop(kept.put(vec![set("a", 2)]));
        kept.put(vec![set("refused", 3)]).durable().await.unwrap_err();
        let note = kept.note().unwrap();
        assert!(note.starts_with("the state of alerting could not be written for ") && note.contains("full"), "{note}");
        // What can be written is, though what waits cannot, and is newer than that.
        kept.put(vec![Change::remove(RowKind::Told, "b")]).durable().await.unwrap();
        sqlx::query("DROP TRIGGER full").execute(&kept.pool).await.unwrap();
        let began = Instant::now();
        let expected = [(b"a".to_vec(), json!(2)), (b"sent".to_vec(), json!(1))];
        while kept.load(RowKind::Told).await.unwrap() != expected {
            assert!(began.elapsed() < Duration::from_mins(5), "{:?}", kept.load(RowKind::Told).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kept.put(Vec::new()).durable().await.unwrap();
        assert_eq!(kept.note(), None);
    }

    #[tokio::test]
    async fn files_that_are_no_database_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let check = async |what: &str| {
            let error = StateDatabase::open(&file).await.unwrap_err();
            let expected = format!("`{}`, the database of alerts, {what}; ", file.display());
            assert!(error.message.starts_with(&expected), "{error}");
            assert!(error.message.contains("move it and `alerts.db-wal` away"), "{error}");
            assert_eq!(error.kind, ErrorKind::Invalid);
        };
        let text = b"not a database, but a text that somebody saved under its name, longer than a header of a database";
        std::fs::write(&file, text).unwrap();
        check("is no SQLite database").await;
        // The header is right, and all else is not.
        std::fs::write(&file, [&b"SQLite format 3\0"[..], &[0xff; 8000]].concat()).unwrap();
        let error = StateDatabase::open(&file).await.unwrap_err();
        assert!(error.message.starts_with(&format!("`{}`, the database of alerts, is ", file.display())), "{error}");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        check("is a directory").await;
    }

    /// Values must not stand in the index, also where an earlier build put them: with one of 50 MB there each write of
    /// another row took 60 ms.
    #[tokio::test]
    async fn values_stand_apart_from_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let before = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&file).create_if_missing(true));
        let before = before.await.unwrap();
        let create = "CREATE TABLE kept (kind TEXT NOT NULL, key BLOB NOT NULL, value TEXT NOT NULL, \
            PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID";
        sqlx::query(create).execute(&before).await.unwrap();
        sqlx::query("INSERT INTO kept VALUES ('rule', x'61', '[1]')").execute(&before).await.unwrap();
        before.close().await;
        for _ in 0..2 {
            let kept = StateDatabase::open(&file).await.unwrap();
            assert_eq!(kept.load(RowKind::Rule).await.unwrap(), [(b"a".to_vec(), json!([1]))]);
            let tables = sqlx::query_scalar("SELECT sql FROM sqlite_master WHERE type = 'table'");
            let tables: Vec<String> = tables.fetch_all(&kept.pool).await.unwrap();
            assert!(tables.len() == 1 && !tables[0].contains("WITHOUT ROWID"), "{tables:?}");
            kept.put(vec![Change::set(RowKind::Rule, "a", &json!([1]))]).durable().await.unwrap();
        }
    }

    #[tokio::test]
    async fn rows_are_told_apart_by_kind_and_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let kept = StateDatabase::open(&file).await.unwrap();
        let keys = [vec![0xff, 0], vec![], vec![0], vec![0, 0], b"a'b".to_vec()];
        let set = |kind, key: &Vec<u8>, value| Change::set(kind, key.clone(), &value);
        let mut changes: Vec<Change> = keys.iter().map(|key| set(RowKind::Timer, key, json!(key.len()))).collect();
        changes.extend([set(RowKind::Rule, &keys[0], json!(null)), Change::remove(RowKind::Told, "never there")]);
        // Within one batch the last change of a row counts, too.
        changes.extend([
            Change::remove(RowKind::Timer, keys[2].clone()),
            set(RowKind::Timer, &keys[2], json!({"ä": [1.5]})),
        ]);
        kept.put(changes).durable().await.unwrap();
        let rows = kept.load(RowKind::Timer).await.unwrap();
        let expected = [
            (vec![], json!(0)),
            (vec![0], json!({"ä": [1.5]})),
            (vec![0, 0], json!(2)),
            (b"a'b".to_vec(), json!(3)),
            (vec![0xff, 0], json!(2)),
        ];
        assert_eq!(rows, expected, "in the order of their bytes");
        assert_eq!(kept.load(RowKind::Rule).await.unwrap(), [(vec![0xff, 0], json!(null))]);
        kept.put(Vec::new()).durable().await.unwrap();
        // A row that cannot be read costs no other one.
        let broken = "UPDATE kept SET value = '{' WHERE kind = 'timer' AND value = '0'";
        sqlx::query(broken).execute(&kept.pool).await.unwrap();
        assert_eq!(kept.load(RowKind::Timer).await.unwrap(), expected[1..]);
    }
}
