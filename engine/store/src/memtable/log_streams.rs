//! The log streams of a generation by slot, and an index of their labels. The index is built by readers when they need
//! it; writers only append streams and never wait for it.

use std::ops::{Index, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use quiver_types::{LabelSet, SeriesId};
use smallvec::SmallVec;

/// Streams per shared chunk; copying the list costs one pointer per chunk.
const CHUNK: usize = 1024;
/// Estimated memory of an index entry besides its text.
const ENTRY_BYTES: usize = 96;

/// A log stream together with its service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveStream {
    /// The hash of its labels.
    pub(crate) id: SeriesId,
    /// Its labels, as shown in `_stream`.
    pub(crate) labels: LabelSet,
    /// Service of its rows; empty if there is none.
    pub(crate) service: Arc<str>,
}

impl LiveStream {
    /// The sort key of streams.
    pub(crate) fn key(&self) -> (&[u8], &str) {
        (self.labels.canonical(), &self.service)
    }
}

/// Streams by slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamList {
    chunks: Vec<Arc<Vec<Arc<LiveStream>>>>,
    len: usize,
}

impl StreamList {
    /// Number of streams.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The streams from a slot on.
    pub(crate) fn from(&self, slot: usize) -> impl Iterator<Item = &Arc<LiveStream>> {
        let first = self.chunks.get(slot / CHUNK..).unwrap_or_default();
        first.iter().flat_map(|chunk| chunk.iter()).skip(slot % CHUNK)
    }

    /// Appends a stream; its slot is the number of streams before it.
    pub(super) fn push(&mut self, stream: Arc<LiveStream>) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::new()));
        }
        if let Some(last) = self.chunks.last_mut() {
            // A snapshot may share the last chunk; then it is copied.
            Arc::make_mut(last).push(stream);
            self.len += 1;
        }
    }
}

impl Index<usize> for StreamList {
    type Output = Arc<LiveStream>;

    fn index(&self, slot: usize) -> &Arc<LiveStream> {
        &self.chunks[slot / CHUNK][slot % CHUNK]
    }
}

/// Slots by label value, service and identifier.
#[derive(Debug, Default)]
pub(crate) struct StreamIndex {
    inner: RwLock<StreamLabelIndex>,
    /// Bytes by which the index has grown since the last [`Self::take_grown`].
    grown: AtomicUsize,
}

type Values = HashMap<Box<str>, Vec<u32>, FixedState>;

#[derive(Debug, Default)]
struct StreamLabelIndex {
    /// Number of streams indexed so far.
    streams: usize,
    labels: HashMap<Box<str>, Values, FixedState>,
    services: Values,
    ids: HashMap<SeriesId, SmallVec<[u32; 1]>, FixedState>,
}

/// Adds a slot to a value; returns the bytes this took.
fn add(values: &mut Values, value: &str, slot: u32) -> usize {
    if let Some(slots) = values.get_mut(value) {
        slots.push(slot);
        return 2 * size_of::<u32>();
    }
    values.insert(value.into(), vec![slot]);
    value.len() + ENTRY_BYTES
}

impl StreamIndex {
    /// Indexes the streams that are not in the index yet.
    pub(crate) fn extend(&self, streams: &StreamList) {
        if self.inner.read().streams >= streams.len() {
            return;
        }
        let mut inner = self.inner.write();
        let StreamLabelIndex { streams: known, labels, services, ids } = &mut *inner;
        let mut grown = 0;
        for stream in streams.from(*known) {
            let slot = *known as u32;
            for (name, value) in stream.labels.iter() {
                grown += if let Some(values) = labels.get_mut(name) {
                    add(values, value, slot)
                } else {
                    let own = add(labels.entry(name.into()).or_default(), value, slot);
                    own + name.len() + ENTRY_BYTES
                };
            }
            grown += add(services, &stream.service, slot) + ENTRY_BYTES / 2;
            ids.entry(stream.id).or_default().push(slot);
            *known += 1;
        }
        self.grown.fetch_add(grown, Relaxed);
    }

    /// Bytes by which the index has grown since the last call.
    pub(crate) fn take_grown(&self) -> usize {
        self.grown.swap(0, Relaxed)
    }

    /// Calls a function for each value of a label (with `only`, for that one) with the slots that have it.
    pub(crate) fn each_value(&self, label: &str, only: Option<&str>, visit: &mut dyn FnMut(&str, &[u32])) {
        if let Some(values) = self.inner.read().labels.get(label) {
            each(values, only, visit);
        }
    }

    /// Like `each_value`, for services.
    pub(crate) fn each_service(&self, only: Option<&str>, visit: &mut dyn FnMut(&str, &[u32])) {
        each(&self.inner.read().services, only, visit);
    }

    /// The slots with an identifier.
    pub(crate) fn with_id(&self, id: SeriesId) -> Vec<u32> {
        self.inner.read().ids.get(&id).map(|slots| slots.to_vec()).unwrap_or_default()
    }
}

fn each(values: &Values, only: Option<&str>, visit: &mut dyn FnMut(&str, &[u32])) {
    match only {
        Some(value) => {
            if let Some(slots) = values.get(value) {
                visit(value, slots);
            }
        }
        None => values.iter().for_each(|(value, slots)| visit(value, slots)),
    }
}

/// Splits ascending slots into runs.
pub(crate) fn runs_of(slots: &[u32]) -> impl Iterator<Item = Range<u32>> {
    slots.chunk_by(|a, b| a + 1 == *b).filter_map(|run| Some(*run.first()?..*run.last()? + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_their_index_grow() {
        let (mut list, index) = (StreamList::default(), StreamIndex::default());
        let mut snapshots = Vec::new();
        for i in 0..3000u32 {
            let (app, pod) = (format!("app{}", i % 3), format!("pod{i}"));
            let labels = LabelSet::from_pairs([("app", &*app), ("pod", &*pod)]);
            list.push(Arc::new(LiveStream { id: labels.id(), labels, service: app.into() }));
            if i % 700 == 0 {
                snapshots.push(list.clone());
                index.extend(&list);
            }
        }
        assert_eq!(snapshots.iter().map(StreamList::len).collect::<Vec<_>>(), [1, 701, 1401, 2101, 2801]);
        index.extend(&list);
        assert!(index.take_grown() > 3000 * ENTRY_BYTES && index.take_grown() == 0);
        assert_eq!((list.len(), list.from(1500).count(), list.from(3000).count()), (3000, 1500, 0));
        assert_eq!(list[2047].labels.get("pod"), "pod2047");
        let mut found = Vec::new();
        index.each_value("pod", Some("pod2047"), &mut |_, slots| found.extend_from_slice(slots));
        index.each_service(Some("app1"), &mut |_, slots| found.push(slots.len() as u32));
        index.each_value("nothing", None, &mut |_, _| panic!("there is no such label"));
        assert_eq!(found, [2047, 1000]);
        assert_eq!(index.with_id(list[9].id), [9]);
        assert_eq!(runs_of(&[1, 2, 3, 7, 9, 10]).collect::<Vec<_>>(), [1..4, 7..8, 9..11]);
    }
}
