//! Writes a backup file of the configuration.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use quiver_database::{Argument, Connection, Schema, statement};
use ring::digest::{Context, SHA256};
use serde::Serialize;
use serde_json::{Value, json};
use zstd::stream::write::Encoder;

use super::{END_PLACE, End, FORMAT, Head, KEY_PLACE, TableHead};
use crate::config::Config;
use crate::problem::{Problem, Result};

/// Bytes that are collected before they are compressed and written.
const PIECE_BYTES: usize = 256 << 10;
/// The compression level of zstd.
const LEVEL: i32 = 3;

impl Config {
    /// Writes the tables of some schemas to a file that only its owner can read; returns the number of rows. All rows
    /// are of one moment, and writers are not blocked.
    ///
    /// # Errors
    /// `STORE_BUSY`; `INTERNAL`, also if the file cannot be written.
    pub fn save<'a>(&'a self, schemas: &'a [&'a Schema], version: &'a str, to: &'a Path) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let mut snapshot = self.pool.snapshot().await?;
            let saved_ms = self.clock.now_ms();
            let seal = |place: &str, text: &[u8]| BASE64_STANDARD.encode(self.vault.seal(place, text));
            let head = Head {
                quiver_configuration: FORMAT,
                version: version.to_owned(),
                saved_ms,
                steps: steps(&mut snapshot, schemas).await?,
                audit: statement("SELECT number FROM audit_end").fetch_one(&mut snapshot).await?.try_get(0)?,
                key: seal(KEY_PLACE, saved_ms.to_string().as_bytes()),
            };
            let mut out = Lines::create(to.to_owned()).await?;
            out.put(&head).await?;
            let mut count = 0;
            for table in schemas.iter().flat_map(|schema| schema.tables) {
                let columns = table.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
                out.put(&TableHead { table: table.name.to_owned(), columns }).await?;
                let mut rows = statement(table.select()).fetch_on(&mut snapshot);
                while let Some(row) = rows.try_next().await? {
                    let values = table.read(&row)?;
                    out.put(&values.into_iter().map(shown).collect::<Vec<Value>>()).await?;
                    count += 1;
                }
            }
            let sum = out.sum.clone().finish();
            out.put(&End { rows: count, seal: seal(END_PLACE, sum.as_ref()) }).await?;
            out.finish().await?;
            Ok(count)
        })
    }
}

/// The number of applied migration steps per schema; other schemas are ignored.
async fn steps(snapshot: &mut Connection, schemas: &[&Schema]) -> Result<BTreeMap<String, i64>> {
    let rows = statement("SELECT part, max(number) FROM migration GROUP BY part").fetch_all(snapshot).await?;
    let mut found = BTreeMap::new();
    for row in rows {
        let part: String = row.try_get(0)?;
        if schemas.iter().any(|schema| schema.part == part) {
            found.insert(part, row.try_get(1)?);
        }
    }
    Ok(found)
}

fn shown(value: Argument) -> Value {
    match value {
        Argument::Number(number) => json!(number),
        Argument::Text(text) => json!(text),
        Argument::Bytes(bytes) => json!(BASE64_STANDARD.encode(bytes)),
        Argument::Null(_) => Value::Null,
    }
}

/// The file while it is written. Disk access is on blocking threads.
struct Lines {
    piece: Vec<u8>,
    sum: Context,
    out: Option<Encoder<'static, File>>,
    path: PathBuf,
}

impl Lines {
    async fn create(path: PathBuf) -> Result<Self> {
        let shown = path.clone();
        let create = move || {
            let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            Encoder::new(file, LEVEL)
        };
        let out = blocking(&shown, create).await?;
        Ok(Self { piece: Vec::with_capacity(PIECE_BYTES), sum: Context::new(&SHA256), out: Some(out), path: shown })
    }

    async fn put(&mut self, line: &impl Serialize) -> Result<()> {
        let begin = self.piece.len();
        serde_json::to_writer(&mut self.piece, line).map_err(Problem::internal)?;
        self.piece.push(b'\n');
        self.sum.update(&self.piece[begin..]);
        if self.piece.len() >= PIECE_BYTES { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let Some(mut out) = self.out.take() else { return Err(Problem::internal("a file that is written is open")) };
        let write = move || out.write_all(&piece).map(|()| out);
        self.out = Some(blocking(&self.path, write).await?);
        Ok(())
    }

    async fn finish(mut self) -> Result<()> {
        self.write().await?;
        let Some(out) = self.out.take() else { return Ok(()) };
        blocking(&self.path, move || out.finish()?.sync_all()).await
    }
}

/// Runs disk access on a blocking thread.
async fn blocking<T: Send + 'static>(path: &Path, run: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let cannot = |cause: String| Problem {
        detail: format!("the configuration cannot be written to `{}`", path.display()),
        ..Problem::internal(cause)
    };
    tokio::task::spawn_blocking(run).await.map_err(|e| cannot(e.to_string()))?.map_err(|e| cannot(e.to_string()))
}

#[cfg(test)]
mod tests {
    use quiver_database::{Holds, Table};

    use super::*;

    #[test]
    fn values() {
        let all = [
            Argument::Number(-7),
            Argument::Text("a\"b".to_owned()),
            Argument::Bytes(vec![0, 255]),
            Argument::Null(Holds::Bytes),
        ];
        assert_eq!(json!(all.map(shown)), json!([-7, "a\"b", "AP8=", null]));
    }

    #[test]
    fn selects() {
        let table = Table { name: "t", columns: &[("a", Holds::Text), ("b", Holds::Number)], key: "a", sealed: false };
        assert_eq!(table.select(), "SELECT a, b FROM t ORDER BY a");
    }
}
