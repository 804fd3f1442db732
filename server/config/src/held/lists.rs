//! Lists whose texts are kept, and how often the others were asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::column::Column;

/// How often a list is asked at one state of the configuration before its texts are kept: to read them takes as long as some
/// of its pages.
const ASKED_MIN: u32 = if cfg!(test) { 2 } else { 3 };
/// What stands for more of it than is kept: it is not tried again.
pub(super) const TOO_MUCH: u32 = u32::MAX;
/// Bytes of all that is kept.
pub(super) const BYTES_MAX: usize = 32 << 20;
/// Lists that are counted, and lists that are kept: one without entities takes next to no bytes.
const LISTS_MAX: usize = 64;

/// Where an entity stands in the bytes: its value in the order of the list, its id, and its texts.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) value: usize,
    pub(super) id: usize,
    pub(super) texts: usize,
    pub(super) end: usize,
}

/// The entities of a place in the order of a list, with their texts.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) bytes: String,
    pub(super) rows: Vec<Row>,
}

impl Held {
    pub(super) fn push(&mut self, value: &str, id: &str, texts: &str) {
        let start = self.bytes.len();
        self.bytes.extend([value, id, texts]);
        let (id, texts) = (start + value.len(), start + value.len() + id.len());
        self.rows.push(Row { value: start, id, texts, end: self.bytes.len() });
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<Row>()
    }

    pub(super) fn text(&self, from: usize, to: usize) -> &str {
        &self.bytes[from..to]
    }
}

/// Which texts, and in which order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) family: &'static str,
    pub(super) owner: String,
    pub(super) column: Column,
    pub(super) descending: bool,
    pub(super) field: Option<String>,
}

/// What is kept, each with the number of the change that it was read behind.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) lists: Vec<(Key, u64, Arc<Held>)>,
    /// How often lists were asked behind a change.
    pub(super) asked: HashMap<Key, (u64, u32)>,
}

impl Kept {
    pub(super) fn find(&self, key: &Key, change: u64) -> Option<Arc<Held>> {
        let found = self.lists.iter().find(|(known, at, _)| known == key && *at == change);
        found.map(|(.., held)| Arc::clone(held))
    }

    /// Counts that a list is asked, and says whether its texts are worth being kept.
    pub(super) fn ask(&mut self, key: &Key, change: u64) -> bool {
        if self.asked.len() >= LISTS_MAX && !self.asked.contains_key(key) {
            self.asked.clear();
        }
        let (at, times) = self.asked.entry(key.clone()).or_insert((change, 0));
        if *at != change {
            (*at, *times) = (change, 0);
        }
        *times = times.saturating_add(1);
        *times >= ASKED_MIN && *times != TOO_MUCH
    }

    /// Keeps a list; what is of another state goes, and what has been kept longest where all of it is too much.
    pub(super) fn put(&mut self, key: Key, change: u64, held: Arc<Held>) {
        self.lists.retain(|(known, at, _)| *at == change && *known != key);
        self.lists.push((key, change, held));
        let bytes = |lists: &[(Key, u64, Arc<Held>)]| lists.iter().map(|(.., held)| held.size()).sum::<usize>();
        while self.lists.len() > LISTS_MAX || bytes(&self.lists) > BYTES_MAX {
            self.lists.remove(0);
        }
    }
}

/// The texts that are kept of lists.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: Mutex<Kept>,
    /// One list is read at a time; others come from the database meanwhile.
    pub(super) reading: tokio::sync::Mutex<()>,
}

impl Lists {
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept().lists.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::RESOURCES;

    fn put(kept: &mut Kept, field: usize, change: u64, bytes: usize) {
        let field = Some(format!("attributes.{field}"));
        let key = Key { family: RESOURCES.name, owner: String::new(), column: Column::Id, descending: false, field };
        let mut held = Held::default();
        if bytes > 0 {
            held.push("", "", &"x".repeat(bytes));
        }
        kept.put(key.clone(), change, Arc::new(held));
        let is_kept = kept.find(&key, change).is_some();
        assert_eq!(is_kept, bytes < BYTES_MAX, "{bytes}");
    }

    /// Breaks where lists of nothing are kept without end, or those of another state.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        for field in 0..2 * LISTS_MAX {
            put(&mut kept, field, 1, 0);
        }
        assert_eq!(kept.lists.len(), LISTS_MAX);
        for field in 0..3 {
            put(&mut kept, field, 1, BYTES_MAX / 2);
        }
        assert_eq!(kept.lists.len(), 1);
        put(&mut kept, 3, 1, BYTES_MAX);
        assert!(kept.lists.is_empty());
        put(&mut kept, 4, 1, 1);
        put(&mut kept, 5, 2, 1);
        assert_eq!(kept.lists.len(), 1);
    }
}
