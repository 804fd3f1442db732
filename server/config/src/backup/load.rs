//! Restores a backup file into an empty database, all or nothing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use quiver_database::{Argument, Database, Holds, Schema, Table, WriteTransaction, statement};
use quiver_types::Vault;
use ring::digest::{Context, SHA256};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{END_PLACE, End, FORMAT, Head, KEY_PLACE, TableHead};
use crate::migrations::{MIGRATION, migrate_within};
use crate::problem::{Problem, ProblemKind, Result};
use crate::tables::{SEALED, SECRETS};

/// Longest line: an audit row contains an entity twice.
const LINE_BYTES_MAX: u64 = 128 << 20;
/// Lines that are read ahead, and kilobytes of them: a few bytes of a file that others could write to may be a line of
/// any length.
const LINES_AHEAD: usize = 64;
const KIB_AHEAD: usize = 8 * 1024;
/// Most values and bytes in one INSERT statement.
const VALUES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 1 << 20;
/// The key under which a database records from which backup it was restored.
const FROM: &str = "restored";

/// A backup file, and what is needed to read it.
#[derive(Debug)]
pub struct BackupFile<'a> {
    /// The path.
    pub path: &'a Path,
    /// Its name; a backup that was restored before, without changes since, is not restored again.
    pub name: &'a str,
    /// The key that its secrets are encrypted with. Without it they are left out (signing keys, stored responses of
    /// idempotent requests, secrets within entities), and changes of the file cannot be detected.
    pub vault: Option<&'a dyn Vault>,
}

/// The result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// The number of rows.
    pub rows: u64,
    /// Whether they were restored before: an interrupted restore is resumed.
    pub was_there: bool,
}

impl BackupFile<'_> {
    /// Restores all rows into an empty database.
    ///
    /// # Errors
    /// `DUPLICATE`: the database is not empty. `INVALID_VALUE`: another key, a damaged or modified file, or one of a
    /// newer build. `STORE_BUSY`, `INTERNAL`.
    pub fn load<'a>(
        &'a self,
        base: &'a Database,
        schemas: &'a [&'static Schema],
        now_ms: i64,
    ) -> BoxFuture<'a, Result<RestoreOutcome>> {
        Box::pin(async move {
            let mut lines = Lines::open(self.path.to_owned());
            let head: Head = lines.next("its head").await?;
            self.check(&head, schemas)?;
            let mut tx = base.begin().await?;
            if let Some(rows) = self.is_there(&mut tx, &head, schemas).await? {
                return Ok(RestoreOutcome { rows, was_there: true });
            }
            for schema in schemas {
                let done = head.steps.get(schema.part).copied().unwrap_or(0);
                let steps = usize::try_from(done).ok().and_then(|done| schema.steps.get(..done));
                let steps = steps.ok_or_else(|| newer(&format!("its tables `{}` have version {done}", schema.part)))?;
                migrate_within(&mut tx, schema.part, steps, now_ms).await?;
            }
            let rows = self.take_rows(&mut tx, &mut lines, schemas).await?;
            // Migrates to the current build; a repeated restore then finds all tables.
            for schema in schemas {
                migrate_within(&mut tx, schema.part, schema.steps, now_ms).await?;
            }
            let sql = "INSERT INTO migration (part, number, name, applied_ms) VALUES (?, 1, ?, ?)";
            statement(sql).bind(FROM).bind(self.name).bind(now_ms).execute(&mut tx).await?;
            tx.commit().await?;
            Ok(RestoreOutcome { rows, was_there: false })
        })
    }

    /// Checks whether this build and this key can read it.
    fn check(&self, head: &Head, schemas: &[&Schema]) -> Result<()> {
        if head.quiver_configuration != FORMAT {
            return Err(newer(&format!("its format is {}", head.quiver_configuration)));
        }
        if let Some(part) = head.steps.keys().find(|part| schemas.iter().all(|schema| schema.part != *part)) {
            return Err(newer(&format!("it has tables `{part}`")));
        }
        let Some(vault) = self.vault else { return Ok(()) };
        if opened(vault, KEY_PLACE, &head.key).as_deref() == Some(head.saved_ms.to_string().as_bytes()) {
            return Ok(());
        }
        Err(refused(
            "the master key is another one than that under which the secrets of this configuration are encrypted",
        ))
    }

    /// Refuses a database with other contents than this backup; returns the number of rows if it was restored
    /// already.
    async fn is_there(&self, tx: &mut WriteTransaction, head: &Head, schemas: &[&Schema]) -> Result<Option<u64>> {
        tx.apply(MIGRATION).await?;
        let rows = statement("SELECT part, name FROM migration").fetch_all(&mut *tx).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut from = String::new();
        for row in &rows {
            if row.try_get::<String>(0)? == FROM {
                from = row.try_get(1)?;
            }
        }
        let conflict = || {
            let text = "there is a configuration already; restore into an empty database";
            Problem::new(ProblemKind::Conflict, "DUPLICATE", text)
        };
        if from != self.name {
            return Err(conflict());
        }
        let last: i64 = statement("SELECT number FROM audit_end").fetch_one(&mut *tx).await?.try_get(0)?;
        if last != head.audit {
            return Err(conflict());
        }
        let mut count = 0;
        for table in schemas.iter().flat_map(|schema| schema.tables) {
            let rows = statement(format!("SELECT count(*) FROM {}", table.name)).fetch_one(&mut *tx).await;
            count += rows?.try_get::<i64>(0)?.unsigned_abs();
        }
        Ok(Some(count))
    }

    async fn take_rows(
        &self,
        tx: &mut WriteTransaction,
        lines: &mut Lines,
        schemas: &[&'static Schema],
    ) -> Result<u64> {
        let (mut read, mut kept, mut batch) = (0, 0, None::<Batch>);
        loop {
            let line: Value = lines.next("its end").await?;
            match line {
                Value::Array(values) => {
                    read += 1;
                    let Some(batch) = &mut batch else { return Err(damaged("a row belongs to no table")) };
                    if batch.table.sealed && self.vault.is_none() {
                        continue;
                    }
                    kept += 1;
                    batch.take(values, self.vault.is_some())?;
                    if batch.is_full() {
                        batch.write(tx).await?;
                    }
                }
                Value::Object(map) if map.contains_key("table") => {
                    if let Some(last) = &mut batch {
                        last.write(tx).await?;
                    }
                    let next = Batch::begin(map, schemas)?;
                    // The backup includes the rows that migrations insert into new tables.
                    next.table.clear(tx).await?;
                    batch = Some(next);
                }
                other => {
                    if let Some(last) = &mut batch {
                        last.write(tx).await?;
                    }
                    let sum = lines.sum.clone().finish();
                    let end: End = serde_json::from_value(other).map_err(|e| damaged(&e.to_string()))?;
                    let proven = |vault| opened(vault, END_PLACE, &end.seal).as_deref() == Some(sum.as_ref());
                    if end.rows != read || !self.vault.is_none_or(proven) {
                        return Err(damaged("its end does not fit: it is cut, or was changed"));
                    }
                    return Ok(kept);
                }
            }
        }
    }
}

fn opened(vault: &dyn Vault, place: &str, text: &str) -> Option<Vec<u8>> {
    vault.open(place, &BASE64_STANDARD.decode(text).ok()?)
}

fn refused(text: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::Invalid, "INVALID_VALUE", text)
}

fn newer(what: &str) -> Problem {
    refused(format!("a newer build wrote this configuration: {what}"))
}

fn damaged(why: &str) -> Problem {
    refused(format!("the copy of the configuration is damaged: {why}"))
}

/// Rows of a table that are not inserted yet.
struct Batch {
    table: &'static Table,
    columns: Vec<&'static (&'static str, Holds)>,
    rows: Vec<Vec<Argument>>,
    bytes: usize,
}

impl Batch {
    fn begin(head: Map<String, Value>, schemas: &[&'static Schema]) -> Result<Self> {
        let head: TableHead = serde_json::from_value(Value::Object(head)).map_err(|e| damaged(&e.to_string()))?;
        let unknown = |what: &str| newer(&format!("it has `{}`", crate::problem::shown(what)));
        let mut tables = schemas.iter().flat_map(|schema| schema.tables);
        let table = tables.find(|table| table.name == head.table).ok_or_else(|| unknown(&head.table))?;
        let column = |name: &String| table.column(name).ok_or_else(|| unknown(name));
        let columns = head.columns.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Self { table, columns, rows: Vec::new(), bytes: 0 })
    }

    fn take(&mut self, values: Vec<Value>, with_secrets: bool) -> Result<()> {
        if values.len() != self.columns.len() {
            return Err(damaged("a row has other columns than its table"));
        }
        let mut row = Vec::with_capacity(values.len());
        for (value, (name, holds)) in values.into_iter().zip(&self.columns) {
            let wrong = || damaged(&format!("a value of `{}.{name}` is of another type", self.table.name));
            let value = match (holds, value) {
                (_, Value::Null) => Argument::Null(*holds),
                (Holds::Number, Value::Number(number)) => Argument::Number(number.as_i64().ok_or_else(wrong)?),
                (Holds::Text, Value::String(text)) if *name == SEALED && !with_secrets => {
                    Argument::Text(without_secrets(&text)?)
                }
                (Holds::Text, Value::String(text)) => Argument::Text(text),
                (Holds::Bytes, Value::String(text)) => {
                    Argument::Bytes(BASE64_STANDARD.decode(text).map_err(|_| wrong())?)
                }
                _ => return Err(wrong()),
            };
            self.bytes += match &value {
                Argument::Text(text) => text.len(),
                Argument::Bytes(bytes) => bytes.len(),
                Argument::Number(_) | Argument::Null(_) => 8,
            };
            row.push(value);
        }
        self.rows.push(row);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes >= BYTES_AT_ONCE || (self.rows.len() + 1) * self.columns.len() > VALUES_AT_ONCE
    }

    async fn write(&mut self, tx: &mut WriteTransaction) -> Result<()> {
        let names: Vec<&'static str> = self.columns.iter().map(|(name, _)| *name).collect();
        self.bytes = 0;
        Ok(self.table.insert(tx, &names, std::mem::take(&mut self.rows)).await?)
    }
}

/// The sealed members of an entity without the encrypted ones; hashes are kept.
fn without_secrets(sealed: &str) -> Result<String> {
    let mut map: Map<String, Value> = serde_json::from_str(sealed).map_err(|e| damaged(&e.to_string()))?;
    map.remove(SECRETS);
    Ok(Value::Object(map).to_string())
}

/// A line that was read ahead, and its room.
type Ahead = (Vec<u8>, OwnedSemaphorePermit);

/// The lines of the file, which a thread reads ahead.
struct Lines {
    queue: mpsc::Receiver<io::Result<Ahead>>,
    /// Checksum of all lines before the last one.
    sum: Context,
    last: Vec<u8>,
}

impl Lines {
    fn open(path: PathBuf) -> Self {
        let (lines, queue) = mpsc::channel(LINES_AHEAD);
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = read_lines(&path, &lines, &handle) {
                // The receiver may be gone.
                let _ = lines.blocking_send(Err(error));
            }
        });
        Self { queue, sum: Context::new(&SHA256), last: Vec::new() }
    }

    /// The next line; `what` names the missing part in the error if there is none.
    async fn next<T: DeserializeOwned>(&mut self, what: &str) -> Result<T> {
        let line = self.queue.recv().await.ok_or_else(|| damaged(&format!("{what} lacks")))?;
        self.sum.update(&self.last);
        (self.last, _) = line.map_err(|e| damaged(&e.to_string()))?;
        serde_json::from_slice(&self.last).map_err(|e| damaged(&format!("{what} cannot be read: {e}")))
    }
}

fn read_lines(path: &Path, lines: &mpsc::Sender<io::Result<Ahead>>, handle: &Handle) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(KIB_AHEAD));
    let mut reader = BufReader::new(zstd::stream::read::Decoder::new(File::open(path)?)?);
    loop {
        let mut line = Vec::new();
        (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line has no end"));
        }
        // A line that is longer than all of it comes alone.
        let kib = line.len().div_ceil(1024).min(KIB_AHEAD) as u32;
        let taken = handle.block_on(Arc::clone(&room).acquire_many_owned(kib)).map_err(io::Error::other)?;
        if lines.blocking_send(Ok((line, taken))).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_outlive_a_lost_key() {
        let sealed = r#"{"password":"$argon2id$x","secrets":{"/url":"AAAA"}}"#;
        assert_eq!(without_secrets(sealed).unwrap(), r#"{"password":"$argon2id$x"}"#);
    }

    /// A small file that becomes large lines takes little memory before they are wanted, and is read to its end.
    #[tokio::test]
    async fn lines_are_read_ahead_as_far_as_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("saved");
        let line = |bytes: usize| format!("\"{}\"\n", "x".repeat(bytes));
        let text: String = (0..40).map(|_| line(1 << 20)).chain([line(20 << 20), line(1)]).collect();
        std::fs::write(&path, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
        let mut lines = Lines::open(path);
        let mut before = usize::MAX;
        // Until it reads no further.
        while lines.queue.len() != before || before == 0 {
            before = lines.queue.len();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(lines.queue.len() <= KIB_AHEAD / 1024, "{} lines of a megabyte", lines.queue.len());
        for n in 0..42 {
            let bytes = lines.next::<String>("a line").await.unwrap().len();
            assert_eq!(bytes, [1 << 20, 20 << 20, 1][usize::from(n >= 40) + usize::from(n >= 41)]);
        }
        assert!(lines.next::<String>("its end").await.is_err());
    }
}
