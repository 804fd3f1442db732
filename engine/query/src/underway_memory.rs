//! Values that one plan node has produced and the next has not yet taken.
//!
//! The memory pool does not count them: a sort fills its share of the pool before it spills, and its input must not
//! fail for that. Instead, nodes that produce values ask here for room. The more is in transit, the less they get, so
//! their batches stay small. The total of all queries is bounded, too.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use quiver_types::{Error, ErrorKind, Result};

/// Most bytes under way in a query, and in all of an engine that says nothing else.
const BYTES_MAX: usize = 128 << 20;
/// Least and most room that a node is given.
const ROOM_MIN: usize = 64 << 10;
const ROOM_MAX: usize = 4 << 20;
/// A node gets this part of what is left.
const ROOM_PART: usize = 8;

/// The bytes of all queries of an engine.
#[derive(Debug)]
pub(crate) struct AllUnderway {
    bytes: AtomicUsize,
    max: usize,
}

impl AllUnderway {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), max: max.min(BYTES_MAX) })
    }

    fn left(&self) -> usize {
        self.max.saturating_sub(self.bytes.load(Relaxed))
    }
}

/// The bytes of one query, an extension of its session's settings.
#[derive(Debug, Default)]
pub struct Underway {
    bytes: AtomicUsize,
    all: OnceLock<Arc<AllUnderway>>,
}

/// Bytes that are counted until it is dropped.
#[derive(Debug)]
pub struct Held {
    query: Arc<Underway>,
    bytes: usize,
}

impl Underway {
    /// Makes the query one of an engine's; the first engine counts.
    pub(crate) fn bind(&self, all: &Arc<AllUnderway>) {
        self.all.get_or_init(|| Arc::clone(all));
    }

    fn left(&self) -> usize {
        let own = BYTES_MAX.saturating_sub(self.bytes.load(Relaxed));
        self.all.get().map_or(own, |all| all.left().min(own))
    }

    /// How many bytes a node should make before it gives them on.
    pub fn room(&self) -> usize {
        (self.left() / ROOM_PART).clamp(ROOM_MIN, ROOM_MAX)
    }

    /// Counts bytes that a node made.
    ///
    /// # Errors
    /// `LimitExceeded`: there are too many; each node makes at least one row, however long. `Unavailable`: there would not
    /// be without other queries.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held> {
        let left = self.left();
        let held = Held { query: Arc::clone(self), bytes };
        let own = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        if let Some(all) = self.all.get() {
            all.bytes.fetch_add(bytes, Relaxed);
        }
        if bytes > left.max(ROOM_MIN) {
            let max = self.all.get().map_or(BYTES_MAX, |all| all.max);
            if own <= max {
                let text =
                    "the values that pipes of other queries make leave no room for those of this one: ask again later";
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
            let text = format!("the values that pipes make come to more than {} MiB at once", max >> 20);
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.query.bytes.fetch_sub(self.bytes, Relaxed);
        if let Some(all) = self.query.all.get() {
            all.bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_under_way_the_less_is_made_at_once() {
        let query = Arc::new(Underway::default());
        assert_eq!(query.room(), ROOM_MAX);
        let most = query.hold(BYTES_MAX - (8 << 20)).unwrap();
        assert_eq!(query.room(), 1 << 20);
        let rest = query.hold(8 << 20).unwrap();
        assert_eq!(query.room(), ROOM_MIN);
        assert_eq!(query.hold(ROOM_MIN + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
        drop((most, rest));
        assert_eq!(query.room(), ROOM_MAX);
        assert_eq!(query.bytes.load(Relaxed), 0);
    }

    #[test]
    fn queries_share_what_their_engine_has() {
        let all = AllUnderway::new(32 << 20);
        let (one, other) = (Arc::new(Underway::default()), Arc::new(Underway::default()));
        one.bind(&all);
        other.bind(&all);
        let held = one.hold(24 << 20).unwrap();
        assert_eq!(other.room(), 1 << 20);
        assert_eq!(other.hold(9 << 20).unwrap_err().kind(), ErrorKind::Unavailable, "alone it would have it");
        assert_eq!(other.hold(33 << 20).unwrap_err().kind(), ErrorKind::LimitExceeded);
        drop(held);
        assert_eq!((other.room(), all.left()), (ROOM_MAX, 32 << 20));
    }
}
