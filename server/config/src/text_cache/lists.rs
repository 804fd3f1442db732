//! Cached lists, and how often other lists were requested.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::column::Column;

/// How often a list must be requested at one state of the configuration before it is cached: reading all of it takes
/// as long as some of its pages.
const ASKED_MIN: u32 = if cfg!(test) { 2 } else { 3 };
/// Marks a list that is too large for the cache, so that it is not tried again.
pub(super) const TOO_MUCH: u32 = u32::MAX;
/// Most bytes in the cache, where there is memory for them.
pub(super) const BYTES_MAX: usize = 32 << 20;
/// Most lists that are counted, and most that are cached; an empty list takes almost no bytes, so these limits are
/// needed.
const LISTS_MAX: usize = 64;

/// The position of an entity in the bytes: its sort value, its id, its text.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) value: usize,
    pub(super) id: usize,
    pub(super) texts: usize,
    pub(super) end: usize,
}

/// The entities of a place in the order of a list, as texts.
#[derive(Debug, Default)]
pub(super) struct CachedList {
    pub(super) bytes: String,
    pub(super) rows: Vec<Row>,
}

impl CachedList {
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

/// Identifies a list: its texts and their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) family: &'static str,
    pub(super) owner: String,
    pub(super) column: Column,
    pub(super) descending: bool,
    pub(super) field: Option<String>,
}

/// The cached lists, each with the number of the last change before it was read.
#[derive(Debug, Default)]
pub(super) struct CachedLists {
    pub(super) lists: Vec<(Key, u64, Arc<CachedList>)>,
    /// How often lists were requested since a change.
    pub(super) asked: HashMap<Key, (u64, u32)>,
}

impl CachedLists {
    pub(super) fn find(&self, key: &Key, change: u64) -> Option<Arc<CachedList>> {
        let found = self.lists.iter().find(|(known, at, _)| known == key && *at == change);
        found.map(|(.., held)| Arc::clone(held))
    }

    /// Counts a request for a list. Returns whether it should be cached now.
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

    /// Caches a list. Lists of other states are removed, and the oldest ones if all take more than `bytes_max`.
    pub(super) fn put(&mut self, key: Key, change: u64, held: Arc<CachedList>, bytes_max: usize) {
        self.lists.retain(|(known, at, _)| *at == change && *known != key);
        self.lists.push((key, change, held));
        let bytes = |lists: &[(Key, u64, Arc<CachedList>)]| lists.iter().map(|(.., held)| held.size()).sum::<usize>();
        while self.lists.len() > LISTS_MAX || bytes(&self.lists) > bytes_max {
            self.lists.remove(0);
        }
    }
}

/// The cache of lists.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: Mutex<CachedLists>,
    /// One list is read into the cache at a time; other requests use the database meanwhile.
    pub(super) reading: tokio::sync::Mutex<()>,
}

impl Lists {
    pub(super) fn kept(&self) -> MutexGuard<'_, CachedLists> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of cached lists.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept().lists.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::RESOURCES;

    fn put(kept: &mut CachedLists, field: usize, change: u64, bytes: usize) {
        let field = Some(format!("attributes.{field}"));
        let key = Key { family: RESOURCES.name, owner: String::new(), column: Column::Id, descending: false, field };
        let mut held = CachedList::default();
        if bytes > 0 {
            held.push("", "", &"x".repeat(bytes));
        }
        kept.put(key.clone(), change, Arc::new(held), BYTES_MAX);
        let is_kept = kept.find(&key, change).is_some();
        assert_eq!(is_kept, bytes < BYTES_MAX, "{bytes}");
    }

    /// Would fail if empty lists, or those of another state, were cached without limit.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = CachedLists::default();
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
