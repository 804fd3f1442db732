//! What is held of a list while its page is made: as many entities as the page may have, and not many bytes more. A page
//! of large entities ends early, and its cursor leads to the others.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::query::ListQuery;

/// Most bytes of the entities of a page, unless it has only one.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;

/// About the memory of a value, without the value itself.
pub(crate) fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| size_of::<Value>() + bytes_of(item)).sum(),
        Value::Object(map) => map_bytes(map),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// The same of an entity as it is shown.
pub(crate) fn map_bytes(map: &Map<String, Value>) -> usize {
    map.iter().map(|(key, value)| size_of::<(String, Value)>() + key.len() + bytes_of(value)).sum()
}

/// An entity with its id.
type Row = (String, Map<String, Value>);

/// The first entities of a list in their order: a page, and one more if there is a next page.
#[derive(Default)]
pub(crate) struct PageBuffer {
    rows: Vec<Row>,
    bytes: usize,
}

impl PageBuffer {
    pub(crate) fn push(&mut self, id: String, entity: Map<String, Value>) {
        self.bytes += map_bytes(&entity);
        self.rows.push((id, entity));
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing that follows is on the page; `wanted`: the most entities of a page, and one more.
    pub(crate) fn is_full(&self, wanted: usize) -> bool {
        self.rows.len() >= wanted || self.rows.len() > 1 && self.bytes > PAGE_BYTES_MAX
    }

    /// All entities.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// The entities of a page of at most `limit`, and whether there are more.
    pub(crate) fn into_page(mut self, limit: usize) -> (Vec<Row>, bool) {
        let mut bytes = 0;
        let fits = |(_, entity): &&Row| {
            bytes += map_bytes(entity);
            bytes <= PAGE_BYTES_MAX
        };
        let fitting = self.rows.iter().take(limit).take_while(fits).count().max(1);
        let more = self.rows.len() > fitting;
        self.rows.truncate(fitting);
        (self.rows, more)
    }
}

/// An entry of a list, greatest last, so that a heap gives up the last one first.
struct RankedEntry {
    query: Arc<ListQuery>,
    keys: Vec<Value>,
    id: String,
    entity: Map<String, Value>,
    bytes: usize,
}

impl Ord for RankedEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.query.order((&self.keys, &self.id), (&other.keys, &other.id))
    }
}

impl PartialOrd for RankedEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedEntry {}

/// The first of entities that come in any order, as many as belong behind those that are kept already.
pub(crate) struct FirstEntities {
    query: Arc<ListQuery>,
    heap: BinaryHeap<RankedEntry>,
    wanted: usize,
    bytes: usize,
    bytes_max: usize,
    /// The first one that was left out: whatever is behind it is left out as well.
    end: Option<(Vec<Value>, String)>,
}

impl FirstEntities {
    /// `wanted`: the most entities of a page, and one more.
    pub(crate) fn behind(kept: &PageBuffer, query: &Arc<ListQuery>, wanted: usize) -> Self {
        Self {
            query: Arc::clone(query),
            heap: BinaryHeap::new(),
            wanted: wanted.saturating_sub(kept.len()),
            bytes: 0,
            bytes_max: PAGE_BYTES_MAX.saturating_sub(kept.bytes),
            end: None,
        }
    }

    pub(crate) fn take(&mut self, keys: Vec<Value>, id: String, entity: Map<String, Value>) {
        if let Some((last, last_id)) = &self.end
            && self.query.order((&keys, &id), (last, last_id)).is_ge()
        {
            return;
        }
        let bytes = map_bytes(&entity);
        self.bytes += bytes;
        self.heap.push(RankedEntry { query: Arc::clone(&self.query), keys, id, entity, bytes });
        while self.is_too_much() {
            let Some(left) = self.heap.pop() else { return };
            self.bytes -= left.bytes;
            self.end = Some((left.keys, left.id));
        }
    }

    /// Whether the last one is not needed. One that does not fit on the page is: it tells that there is a next page.
    fn is_too_much(&self) -> bool {
        let last = self.heap.peek().map_or(0, |last| last.bytes);
        self.heap.len() > self.wanted || self.heap.len() > 2 && self.bytes - last > self.bytes_max
    }

    /// Adds them to those that are kept.
    pub(crate) fn add_to(self, kept: &mut PageBuffer) {
        for one in self.heap.into_sorted_vec() {
            kept.push(one.id, one.entity);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::families::GROUPS;

    fn entity(name: usize, bytes: usize) -> Map<String, Value> {
        let Value::Object(map) = json!({"name": format!("{name:04}"), "text": "x".repeat(bytes)}) else {
            panic!("an object")
        };
        map
    }

    #[test]
    fn sizes_hold_all_texts() {
        let value = json!({"a": "x".repeat(100), "b": [{"c": "y".repeat(50)}, null, 7], "d": {}});
        assert!((150..1000).contains(&bytes_of(&value)), "{}", bytes_of(&value));
        assert_eq!(bytes_of(&json!(null)), 0);
    }

    /// Whatever the sizes of entities and the order in which they come, pages have all of them, each once, in order.
    #[test]
    fn pages_end_early_and_leave_nothing_out() {
        /// A sixteenth of a page.
        const PART: usize = PAGE_BYTES_MAX / 16;
        let query = Arc::new(ListQuery::parse(&GROUPS, &[], &[]).expect("a query"));
        for (sizes, limit, expected) in [
            (vec![10; 5], 2, vec![2, 2, 1]),
            (vec![10; 4], 2, vec![2, 2]),
            (vec![5 * PART; 7], 100, vec![3, 3, 1]),
            (vec![5 * PART; 6], 100, vec![3, 3]),
            (vec![20 * PART; 3], 100, vec![1, 1, 1]),
            (vec![20 * PART, 10, 10, 20 * PART, 10], 100, vec![1, 2, 1, 1]),
            (vec![10, 10, 17 * PART, 10, 10], 100, vec![2, 1, 2]),
            (vec![7 * PART, 7 * PART, 7 * PART, 10, 10, 10], 100, vec![2, 4]),
        ] {
            for step in [1, 2, 3] {
                let (mut from, mut pages) = (0, Vec::new());
                loop {
                    let mut kept = PageBuffer::default();
                    let mut first = FirstEntities::behind(&kept, &query, limit + 1);
                    // Backwards, forwards, and crosswise.
                    let mut order: Vec<usize> = (from..sizes.len()).collect();
                    match step {
                        1 => order.reverse(),
                        2 => {}
                        _ => order.sort_by_key(|n| n * 7 % 5),
                    }
                    for n in order {
                        let entity = entity(n, sizes[n]);
                        first.take(query.keys(&entity), n.to_string(), entity);
                        assert!(first.bytes <= PAGE_BYTES_MAX + 40 * PART, "{} bytes are held", first.bytes);
                    }
                    first.add_to(&mut kept);
                    let (page, more) = kept.into_page(limit);
                    let names: Vec<String> = page.iter().map(|(id, _)| id.clone()).collect();
                    let due: Vec<String> = (from..from + page.len()).map(|n| n.to_string()).collect();
                    assert_eq!(names, due, "{expected:?} {step}");
                    from += page.len();
                    pages.push(page.len());
                    if !more {
                        break;
                    }
                }
                assert_eq!((from, &pages), (sizes.len(), &expected), "{step}");
            }
        }
    }

    #[test]
    fn a_page_is_full_with_what_tells_of_the_next() {
        let mut kept = PageBuffer::default();
        kept.push("0".to_owned(), entity(0, PAGE_BYTES_MAX));
        assert!(!kept.is_full(100), "a page has one, and nobody knows of a next");
        kept.push("1".to_owned(), entity(1, 10));
        assert!(kept.is_full(100));
        let (page, more) = kept.into_page(99);
        assert_eq!((page.len(), more), (1, true));
        let (page, more) = PageBuffer::default().into_page(1);
        assert_eq!((page.len(), more), (0, false));
    }
}
