//! Limits the memory that rules keep between evaluations. Templates can produce long texts for each of very many results;
//! a rule that asks for too much fails before it takes memory from others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use quiver_types::LabelSet;

/// Bytes that an alert or a series takes besides its texts.
const OWN_BYTES: usize = 400;
/// Bytes that an annotation takes besides its texts.
const TEXT_BYTES: usize = 64;
/// Copies of the labels of an alert: of itself and of its two series, each with a key.
const ALERT_COPIES: usize = 6;
/// Copies of the labels of a series.
const SERIES_COPIES: usize = 2;

/// Bytes of an alert with its series, without its annotations.
pub(super) fn of_alert(labels: &LabelSet) -> usize {
    OWN_BYTES + ALERT_COPIES * labels.canonical().len()
}

/// Bytes of annotations.
pub(super) fn of_texts(annotations: &BTreeMap<String, String>) -> usize {
    annotations.iter().map(|(name, value)| of_text(name, value)).sum()
}

/// Bytes of one of them.
pub(super) fn of_text(name: &str, value: &str) -> usize {
    name.len() + value.len() + TEXT_BYTES
}

/// Bytes of a series that a recording rule writes.
pub(super) fn of_series(labels: &LabelSet) -> usize {
    OWN_BYTES / 2 + SERIES_COPIES * labels.canonical().len()
}

#[derive(Debug)]
struct MemoryBound {
    used: AtomicUsize,
    bytes_max: usize,
}

/// What all rules may hold together; by default without a bound.
#[derive(Debug, Clone, Default)]
pub struct Room(Option<Arc<MemoryBound>>);

/// It is no part of what a rule is, only of where it runs.
impl PartialEq for Room {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Room {}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Some(Arc::new(MemoryBound { used: AtomicUsize::new(0), bytes_max })))
    }

    /// Begins to hold something in place of what a rule holds now.
    pub(super) fn instead_of(&self, former: &MemoryHandle) -> Share {
        let credit = former.0.as_ref().map_or(0, |share| share.bytes);
        Share { room: self.clone(), bytes: 0, credit }
    }
}

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    room: Room,
    bytes: usize,
    /// Bytes of what it replaces, which is still there.
    credit: usize,
}

impl Share {
    /// Holds more.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), String> {
        let Some(bound) = &self.room.0 else { return Ok(()) };
        let used = bound.used.fetch_add(bytes, Relaxed) + bytes;
        if used.saturating_sub(self.credit.min(self.bytes + bytes)) <= bound.bytes_max {
            self.bytes += bytes;
            return Ok(());
        }
        bound.used.fetch_sub(bytes, Relaxed);
        let most = bound.bytes_max >> 20;
        Err(format!("its labels and annotations take too much memory: all rules may hold {most} MiB (`memory.limit`)"))
    }

    /// Releases so many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let Some(bound) = &self.room.0 else { return };
        let bytes = bytes.min(self.bytes);
        bound.used.fetch_sub(bytes, Relaxed);
        self.bytes -= bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(bound) = &self.room.0 {
            bound.used.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// What a rule holds, also in copies of it.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryHandle(Option<Arc<Share>>);

impl PartialEq for MemoryHandle {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl From<Share> for MemoryHandle {
    fn from(share: Share) -> Self {
        Self(Some(Arc::new(share)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(room: &Room) -> usize {
        room.0.as_ref().map_or(0, |bound| bound.used.load(Relaxed))
    }

    #[test]
    fn what_is_held_is_given_back() {
        let room = Room::new(100);
        let mut first = room.instead_of(&MemoryHandle::default());
        assert_eq!((first.grow(60), used(&room)), (Ok(()), 60));
        let mut second = room.instead_of(&MemoryHandle::default());
        assert!(second.grow(50).is_err_and(|e| e.contains("too much memory")));
        assert_eq!((used(&room), second.grow(40)), (60, Ok(())), "what was refused is not held");
        second.shrink(30);
        assert_eq!((used(&room), second.grow(30)), (70, Ok(())), "what is gone is not held");
        drop(second);
        assert_eq!(used(&room), 60);
        // Copies of a rule hold nothing more, and what replaces something may be as large.
        let held = MemoryHandle::from(first);
        let copy = held.clone();
        let mut third = room.instead_of(&held);
        assert_eq!((third.grow(60), third.grow(40).is_ok(), used(&room)), (Ok(()), true, 160));
        assert!(third.grow(1).is_err());
        drop((held, third));
        assert_eq!(used(&room), 60, "a copy holds it");
        drop(copy);
        assert_eq!(used(&room), 0);
        assert_eq!(Room::default().instead_of(&MemoryHandle::default()).grow(usize::MAX), Ok(()));
    }
}
