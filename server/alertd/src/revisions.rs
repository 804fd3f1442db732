//! Previous policies, newest last: their text with secrets hidden, and the whole, encrypted by the caller.

use std::sync::Arc;

use parking_lot::Mutex;
use quiver_types::{Millis, Result};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::durable_state::{Change, RowKind, StateDatabase};

/// A policy that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// From 1, without gaps.
    pub number: u64,
    /// When it became live.
    pub at: Millis,
    /// What it says, secrets hidden.
    pub shown: String,
    /// All of it, as the caller sealed it.
    pub sealed: String,
    /// Tells whether another one says the same.
    hash: String,
}

/// Most revisions that are kept; the oldest go first.
const REVISIONS_MAX: usize = 500;
/// Most bytes of their texts, but for the last one, where there is memory for them: they stay in memory, and a policy may
/// have megabytes.
const BYTES_MAX: usize = if cfg!(test) { 100 } else { 64 << 20 };

impl Revision {
    fn bytes(&self) -> usize {
        self.shown.len() + self.sealed.len()
    }
}

/// How many of the oldest ones are too many, where all but the last may take so many bytes.
fn beyond(all: &[Arc<Revision>], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let kept = all.iter().rev().take(REVISIONS_MAX).take_while(|revision| {
        let is_last = bytes == 0;
        bytes += revision.bytes();
        is_last || bytes <= bytes_max
    });
    all.len() - kept.count()
}

/// All revisions that are kept.
#[derive(Debug)]
pub struct Revisions {
    kept: Arc<StateDatabase>,
    bytes_max: usize,
    all: Mutex<Vec<Arc<Revision>>>,
}

fn hash_of(text: &str) -> String {
    quiver_types::hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn read(key: &[u8], value: &Value) -> Option<Revision> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Revision {
        number: u64::from_be_bytes(key.try_into().ok()?),
        at: value["at"].as_i64()?,
        shown: text("shown")?,
        sealed: text("sealed")?,
        hash: text("hash")?,
    })
}

impl Revisions {
    /// Reads what there is; from the next change on it takes no more than so many bytes.
    ///
    /// # Errors
    /// Unavailable: the database cannot be used.
    pub(crate) async fn load(kept: Arc<StateDatabase>, bytes_max: usize) -> Result<Self> {
        let rows = kept.load(RowKind::Revision).await?;
        let all = rows.iter().filter_map(|(key, value)| read(key, value)).map(Arc::new).collect();
        Ok(Self { kept, bytes_max: bytes_max.min(BYTES_MAX), all: Mutex::new(all) })
    }

    /// Notes a policy, unless it is the one before; comes back when it is durable. `seal` is asked for the text that
    /// only its giver can open.
    ///
    /// # Errors
    /// Unavailable: it cannot be stored.
    pub async fn note(&self, at: Millis, shown: &str, whole: &str, seal: impl FnOnce() -> String) -> Result<()> {
        let hash = hash_of(whole);
        let writing = {
            let mut all = self.all.lock();
            if all.last().is_some_and(|last| last.hash == hash) {
                return Ok(());
            }
            let number = all.last().map_or(1, |last| last.number + 1);
            let made = Revision { number, at, shown: shown.to_owned(), sealed: seal(), hash };
            let value = json!({"at": at, "shown": made.shown, "sealed": made.sealed, "hash": made.hash});
            let mut changes = vec![Change::set(RowKind::Revision, number.to_be_bytes(), &value)];
            all.push(Arc::new(made));
            let gone = beyond(&all, self.bytes_max);
            changes.extend(all.drain(..gone).map(|gone| Change::remove(RowKind::Revision, gone.number.to_be_bytes())));
            self.kept.put(changes)
        };
        writing.durable().await
    }

    /// Gives all, newest first.
    pub fn all(&self) -> Vec<Arc<Revision>> {
        self.all.lock().iter().rev().cloned().collect()
    }

    /// Finds the revision of a number; none: it is not kept any more, or never was.
    pub fn get(&self, number: u64) -> Option<Arc<Revision>> {
        self.all.lock().iter().find(|revision| revision.number == number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_change_once_and_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let kept = StateDatabase::open(&file).await.unwrap();
        let revisions = Revisions::load(Arc::clone(&kept), usize::MAX).await.unwrap();
        for (at, whole) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
            revisions.note(at, "shown", whole, || format!("sealed {whole}")).await.unwrap();
        }
        let again = Revisions::load(StateDatabase::open(&file).await.unwrap(), usize::MAX).await.unwrap();
        let found: Vec<(u64, i64)> = again.all().iter().map(|r| (r.number, r.at)).collect();
        assert_eq!(found, [(3, 4), (2, 3), (1, 1)]);
        assert_eq!(again.get(2).map(|r| r.sealed.clone()).as_deref(), Some("sealed b"));
        again.note(5, "shown", "a", String::new).await.unwrap();
        assert_eq!(again.all().len(), 3);
    }

    #[tokio::test]
    async fn the_oldest_make_room_for_large_ones() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alerts.db");
        let revisions = Revisions::load(StateDatabase::open(&file).await.unwrap(), usize::MAX).await.unwrap();
        let numbers = |revisions: &Revisions| revisions.all().iter().map(|r| r.number).collect::<Vec<_>>();
        for (number, bytes) in [(1, 30), (2, 30), (3, 30)] {
            revisions.note(number, &"x".repeat(bytes), &number.to_string(), String::new).await.unwrap();
        }
        assert_eq!(numbers(&revisions), [3, 2, 1]);
        revisions.note(4, &"x".repeat(40), "4", String::new).await.unwrap();
        assert_eq!(numbers(&revisions), [4, 3, 2]);
        revisions.note(5, &"x".repeat(500), "5", String::new).await.unwrap();
        assert_eq!(numbers(&revisions), [5], "the last one stays, however large it is");
        drop(revisions);
        let again = Revisions::load(StateDatabase::open(&file).await.unwrap(), usize::MAX).await.unwrap();
        assert_eq!(numbers(&again), [5]);
        drop(again);
        // With less memory fewer are kept.
        let small = Revisions::load(StateDatabase::open(&file).await.unwrap(), 50).await.unwrap();
        for number in 6..9 {
            small.note(number, &"x".repeat(20), &number.to_string(), String::new).await.unwrap();
        }
        assert_eq!(numbers(&small), [8, 7]);
    }
}
