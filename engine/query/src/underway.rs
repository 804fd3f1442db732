//! Values that nodes of a query made and that are on their way to the next ones.
//!
//! The memory pool does not count them: a sort fills its share of the pool before it spills, and what flows into it must
//! not fail for that. Nodes that make values ask for room, get less of it the more is under way, and so stay small.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use quiver_types::{Error, ErrorKind, Result};

/// Most bytes under way in a query.
const BYTES_MAX: usize = 128 << 20;
/// Least and most room that a node is given.
const ROOM_MIN: usize = 64 << 10;
const ROOM_MAX: usize = 4 << 20;
/// A node gets this part of what is left.
const ROOM_PART: usize = 8;

/// The bytes of one query, an extension of its session's settings.
#[derive(Debug, Default)]
pub struct Underway(AtomicUsize);

/// Bytes that are counted until it is dropped.
#[derive(Debug)]
pub struct Held {
    all: Arc<Underway>,
    bytes: usize,
}

impl Underway {
    /// How many bytes a node should make before it gives them on.
    pub fn room(&self) -> usize {
        (BYTES_MAX.saturating_sub(self.0.load(Relaxed)) / ROOM_PART).clamp(ROOM_MIN, ROOM_MAX)
    }

    /// Counts bytes that a node made.
    ///
    /// # Errors
    /// `LimitExceeded`: there are too many; each node makes at least one row, however long.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held> {
        let held = Held { all: Arc::clone(self), bytes };
        if self.0.fetch_add(bytes, Relaxed) + bytes > BYTES_MAX {
            let text = format!("the values that pipes make come to more than {} MiB at once", BYTES_MAX >> 20);
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_under_way_the_less_is_made_at_once() {
        let all = Arc::new(Underway::default());
        assert_eq!(all.room(), ROOM_MAX);
        let most = all.hold(BYTES_MAX - (8 << 20)).unwrap();
        assert_eq!(all.room(), 1 << 20);
        let rest = all.hold(8 << 20).unwrap();
        assert_eq!(all.room(), ROOM_MIN);
        assert_eq!(all.hold(1).unwrap_err().kind(), ErrorKind::LimitExceeded);
        drop((most, rest));
        assert_eq!(all.room(), ROOM_MAX);
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
