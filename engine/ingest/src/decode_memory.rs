//! Memory for decoded bodies. A few bytes on the wire can expand to many (a resource that each row repeats, a symbol
//! that each series names), and each request may have a batch of the largest size. So the caller provides the memory
//! budget, and decoders draw on it as their batches grow.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Bytes that are reserved at a time; small, since many requests are.
const STEP: usize = 16 << 10;

/// Where decoders take memory from.
pub trait DecodeRoom: Send + Sync {
    /// Changes what is held to `bytes` in total; `false`: there is no room for that at the moment.
    fn hold(&self, bytes: usize) -> bool;

    /// Holds `bytes` in total before a batch is begun. Waits for other batches if necessary, and holds nothing while it
    /// waits. Returns how many bytes are held: 0 if the caller may not wait, `None` if others did not release enough in
    /// time.
    fn hold_ahead(&self, _bytes: usize) -> Option<usize> {
        Some(0)
    }
}

/// A room, and the size up to which a batch may grow before more is reserved.
struct BatchMemory {
    room: Arc<dyn DecodeRoom>,
    held: usize,
    /// Bytes of the batch, and those beside it.
    batch: usize,
    beside: usize,
}

impl BatchMemory {
    fn hold(&mut self, batch: usize, beside: usize) -> Result<()> {
        if batch + beside > self.held {
            let wanted = (batch + beside).next_multiple_of(STEP);
            if !self.room.hold(wanted) {
                return Err(Error::NoRoom);
            }
            self.held = wanted;
        }
        (self.batch, self.beside) = (batch, beside);
        Ok(())
    }
}

thread_local! {
    static CURRENT: RefCell<Option<BatchMemory>> = const { RefCell::new(None) };
}

/// Restores the previous room on drop, also if a decoder panics.
struct Before(Option<BatchMemory>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Runs a decoder on this thread, with its memory from a room.
pub fn within<T>(room: Arc<dyn DecodeRoom>, decode: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(Some(BatchMemory { room, held: 0, batch: 0, beside: 0 })));
    decode()
}

/// Changes the memory held for the current batch to `bytes` in total.
///
/// # Errors
/// NoRoom.
pub(crate) fn hold(bytes: usize) -> Result<()> {
    CURRENT.with_borrow_mut(|current| {
        let Some(current) = current.as_mut() else { return Ok(()) };
        current.hold(bytes.max(current.batch), current.beside)
    })
}

/// Holds memory for a batch of at least `bytes` before its body is unpacked, if it may wait for that. A batch that waits
/// later would keep the unpacked body and half a batch in memory, in addition to everything that it waits for.
///
/// # Errors
/// NoRoom.
pub(crate) fn hold_ahead(bytes: usize) -> Result<()> {
    CURRENT.with_borrow_mut(|current| {
        let Some(current) = current.as_mut().filter(|current| current.held == 0) else { return Ok(()) };
        current.held = current.room.hold_ahead(bytes.next_multiple_of(STEP)).ok_or(Error::NoRoom)?;
        current.batch = current.held.min(bytes);
        Ok(())
    })
}

/// Holds so many bytes more, for what a body is turned into before there is a batch, until all of it is decoded.
///
/// # Errors
/// NoRoom.
pub(crate) fn hold_beside(bytes: usize) -> Result<()> {
    CURRENT.with_borrow_mut(|current| {
        let Some(current) = current.as_mut() else { return Ok(()) };
        current.hold(current.batch, current.beside + bytes)
    })
}

/// Gives back so many bytes of those; what the body is turned into next has their memory.
pub(crate) fn give_back_beside(bytes: usize) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current.as_mut() {
            current.beside = current.beside.saturating_sub(bytes);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A room in which a decoder may wait for memory.
    struct Waiting(Few);

    impl DecodeRoom for Waiting {
        fn hold(&self, bytes: usize) -> bool {
            self.0.hold(bytes)
        }

        fn hold_ahead(&self, bytes: usize) -> Option<usize> {
            self.0.hold(bytes).then_some(bytes)
        }
    }

    #[test]
    fn memory_is_held_ahead_where_that_waits() {
        let few = Arc::new(Few(4 * STEP, AtomicUsize::new(0)));
        within(Arc::clone(&few) as Arc<dyn DecodeRoom>, || {
            assert!(hold_ahead(9 * STEP).is_ok());
            assert_eq!(few.1.load(Ordering::Relaxed), 0, "it would be refused at once, and may need less");
            assert!(hold(1).is_ok());
            assert_eq!(few.1.load(Ordering::Relaxed), STEP);
        });
        let room = Arc::new(Waiting(Few(4 * STEP, AtomicUsize::new(0))));
        let asked = || room.0.1.load(Ordering::Relaxed);
        within(Arc::clone(&room) as Arc<dyn DecodeRoom>, || {
            assert!(hold_ahead(2 * STEP - 1).is_ok());
            assert_eq!(asked(), 2 * STEP);
            assert!(hold(STEP).is_ok());
            assert_eq!(asked(), 2 * STEP, "it is held already");
            assert!(hold(3 * STEP).is_ok());
            assert_eq!(asked(), 3 * STEP);
        });
        within(room, || assert!(matches!(hold_ahead(5 * STEP), Err(Error::NoRoom))));
        assert!(hold_ahead(1 << 30).is_ok(), "nobody says where from");
    }

    /// So many bytes, and how many were asked for last.
    struct Few(usize, AtomicUsize);

    impl DecodeRoom for Few {
        fn hold(&self, bytes: usize) -> bool {
            self.1.store(bytes, Ordering::Relaxed);
            bytes <= self.0
        }
    }

    #[test]
    fn what_grows_asks() {
        assert!(hold(1 << 30).is_ok(), "nobody says where from");
        let room = Arc::new(Few(3 * STEP, AtomicUsize::new(0)));
        let asked = || room.1.load(Ordering::Relaxed);
        within(Arc::clone(&room) as Arc<dyn DecodeRoom>, || {
            assert!(hold(1).is_ok());
            assert_eq!(asked(), STEP, "the first byte counts");
            assert!(hold(STEP).is_ok());
            assert_eq!(asked(), STEP, "it is held already");
            assert!(hold(STEP + 1).is_ok());
            assert_eq!(asked(), 2 * STEP);
            assert!(hold(3 * STEP).is_ok());
            assert!(matches!(hold(3 * STEP + 1), Err(Error::NoRoom)));
        });
        assert!(hold(1 << 30).is_ok());
    }

    #[test]
    fn what_stands_beside_a_batch_counts() {
        let room = Arc::new(Few(4 * STEP, AtomicUsize::new(0)));
        let asked = || room.1.load(Ordering::Relaxed);
        within(Arc::clone(&room) as Arc<dyn DecodeRoom>, || {
            assert!(hold_beside(2 * STEP).is_ok());
            assert!(hold(STEP).is_ok());
            assert_eq!(asked(), 3 * STEP, "both are there at once");
            assert!(matches!(hold_beside(2 * STEP), Err(Error::NoRoom)));
            assert!(hold(2 * STEP).is_ok(), "what was refused is not there");
            assert!(matches!(hold(2 * STEP + 1), Err(Error::NoRoom)));
            give_back_beside(STEP);
            assert!(hold(3 * STEP).is_ok(), "what was given back is there for others");
            assert!(matches!(hold(3 * STEP + 1), Err(Error::NoRoom)));
        });
        assert!(hold_beside(1 << 30).is_ok(), "nobody says where from");
    }
}
