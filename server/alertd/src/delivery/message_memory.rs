//! Limits the memory of messages that are rendered or being sent: per receiver, and in total.
//!
//! A message is rendered for each attempt and dropped after it. If the memory is in use, delivery waits until its flush
//! times out. Such a flush counts as failed, and its group is sent again with the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::metrics::AlertMetrics;

/// Part of the room that messages to one receiver get: one that does not answer leaves the rest to others. A single
/// message may be larger.
const PARTS: usize = 4;

/// The room of all messages.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    held: Mutex<Held>,
    freed: Notify,
    metrics: Arc<AlertMetrics>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// The same by receiver, of those that have some.
    of: HashMap<String, usize>,
}

/// Room for one message; dropped, it is there for others.
#[derive(Debug)]
pub(super) struct Place {
    room: Arc<Room>,
    receiver: String,
    bytes: usize,
}

impl Room {
    pub(super) fn new(bytes_max: usize, metrics: Arc<AlertMetrics>) -> Arc<Self> {
        Arc::new(Self { bytes_max, held: Mutex::default(), freed: Notify::new(), metrics })
    }

    /// Bytes of the messages that are under way now.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.lock().bytes
    }

    /// Takes room for a message to a receiver; waits for as long as there is none. What is larger than all of it has it
    /// alone. Whoever finds room does not queue behind those that wait: a large message that waits until receivers which do
    /// not answer are given up must not hold up the alerts of all others, and is told again if it finds none in time.
    pub(super) async fn take(self: &Arc<Self>, receiver: &str, bytes: usize) -> Place {
        let bytes = bytes.min(self.bytes_max);
        let mut has_waited = false;
        loop {
            // Begun before it is looked, so that nothing is missed that is freed in between.
            let freed = self.freed.notified();
            if self.grow(receiver, bytes) {
                return Place { room: Arc::clone(self), receiver: receiver.to_owned(), bytes };
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.metrics.message_waits.fetch_add(1, Relaxed);
                tracing::debug!(receiver, bytes, "a message waits for room");
            }
            freed.await;
        }
    }

    fn grow(&self, receiver: &str, bytes: usize) -> bool {
        let mut held = self.held.lock();
        let of = held.of.get(receiver).copied().unwrap_or(0);
        let fits_receiver = of == 0 || of + bytes <= self.bytes_max / PARTS;
        if !fits_receiver || held.bytes + bytes > self.bytes_max {
            return false;
        }
        held.bytes += bytes;
        if bytes > 0 {
            *held.of.entry(receiver.to_owned()).or_default() += bytes;
        }
        self.metrics.message_bytes.store(held.bytes as u64, Relaxed);
        true
    }

    fn give_back(&self, receiver: &str, bytes: usize) {
        let mut held = self.held.lock();
        held.bytes -= bytes;
        let left = held.of.get(receiver).map_or(0, |of| of - bytes);
        if left == 0 {
            held.of.remove(receiver);
        } else {
            held.of.insert(receiver.to_owned(), left);
        }
        self.metrics.message_bytes.store(held.bytes as u64, Relaxed);
        drop(held);
        self.freed.notify_waiters();
    }
}

impl Place {
    /// Counts a message as it turned out. False: there is no room for more than was taken.
    pub(super) fn fits(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.room.bytes_max);
        if bytes > self.bytes && !self.room.grow(&self.receiver, bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            self.room.give_back(&self.receiver, self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.give_back(&self.receiver, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn room() -> Arc<Room> {
        Room::new(1000, Arc::default())
    }

    #[tokio::test]
    async fn who_finds_no_room_waits_until_there_is_some() {
        let room = room();
        let first = room.take("a", 800).await;
        let mut second = std::pin::pin!(room.take("b", 300));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!((room.held_bytes(), room.metrics.message_waits.load(Relaxed)), (800, 1));
        drop(first);
        let second = second.await;
        assert_eq!((room.held_bytes(), room.metrics.message_bytes.load(Relaxed)), (300, 300));
        drop(second);
        assert_eq!(room.held_bytes(), 0);
        assert!(room.held.lock().of.is_empty(), "receivers that have nothing are not known");
    }

    #[tokio::test]
    async fn one_receiver_leaves_room_for_others() {
        let room = room();
        let _first = room.take("a", 200).await;
        assert!(room.take("a", 100).now_or_never().is_none(), "a quarter is for one of them");
        let _second = room.take("a", 50).now_or_never().expect("as much as that");
        let _other = room.take("b", 600).now_or_never().expect("a single one may be larger");
    }

    #[tokio::test]
    async fn what_is_larger_than_all_has_it_alone() {
        let room = room();
        let large = room.take("a", 5000).await;
        assert_eq!(room.held_bytes(), 1000);
        assert!(room.take("b", 1).now_or_never().is_none());
        drop(large);
        assert!(room.take("b", 1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn messages_count_as_they_turn_out() {
        let room = room();
        let mut place = room.take("a", 100).await;
        assert!(place.fits(40) && room.held_bytes() == 40);
        assert!(place.fits(240) && room.held_bytes() == 240);
        assert!(!place.fits(260) && room.held_bytes() == 240);
        drop(place);
        assert_eq!(room.held_bytes(), 0);
    }
}
