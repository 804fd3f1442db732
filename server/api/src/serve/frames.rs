//! Frames of an HTTP/2 connection as they arrive (RFC 9113, 4), tracked for the memory that they take: the parser
//! buffers a frame until it is complete, and a header block until its end. Both count against a budget that all
//! connections share.
//!
//! Complete data frames that were not read yet are bounded by the window of the connection, which counts while
//! requests with bodies are under way ([`Unread`]).

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::request_head::HeadRefusal;
use crate::body_memory::{BodyBudget, Share};

/// Bytes of a frame header: length, type, flags and stream.
const HEAD: usize = 9;
/// Frame types that carry headers: HEADERS, `PUSH_PROMISE`, CONTINUATION.
const OF_HEADERS: [u8; 3] = [1, 5, 9];
const END_HEADERS: u8 = 4;

/// Sent to a client when there is no memory for its frames: an empty SETTINGS frame, then GOAWAY with
/// `ENHANCE_YOUR_CALM`.
pub(super) const NO_ROOM: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];

/// Tracks the frames of a connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes of the client's preface that have not arrived yet.
    preface: usize,
    /// The header of the current frame, as far as it has arrived.
    head: [u8; HEAD],
    head_len: usize,
    /// Payload bytes of the current frame that are still missing, and those that have arrived.
    left: usize,
    came: usize,
    /// Bytes of the unfinished header block in frames before the current one.
    block: usize,
    share: Share,
}

impl Frames {
    pub(super) fn new(preface: usize, share: Share) -> Self {
        Self { preface, head: [0; HEAD], head_len: 0, left: 0, came: 0, block: 0, share }
    }

    /// Tracks bytes that have arrived.
    ///
    /// # Errors
    /// `NoRoom`: the budget has no memory for what the parser has to buffer.
    pub(super) fn read(&mut self, mut came: &[u8]) -> Result<(), HeadRefusal> {
        let skipped = came.len().min(self.preface);
        self.preface -= skipped;
        came = &came[skipped..];
        while !came.is_empty() {
            if self.head_len < HEAD {
                let (now, rest) = came.split_at(came.len().min(HEAD - self.head_len));
                self.head[self.head_len..][..now.len()].copy_from_slice(now);
                self.head_len += now.len();
                came = rest;
                if self.head_len < HEAD {
                    break;
                }
                let [high, middle, low, ..] = self.head;
                (self.left, self.came) = (u32::from_be_bytes([0, high, middle, low]) as usize, 0);
            }
            let now = came.len().min(self.left);
            (self.left, self.came, came) = (self.left - now, self.came + now, &came[now..]);
            if self.left == 0 {
                self.end();
            }
        }
        if self.share.try_hold(self.head_len + self.came + self.block) { Ok(()) } else { Err(HeadRefusal::NoRoom) }
    }

    /// Ends the current frame: all of it has arrived.
    fn end(&mut self) {
        let [_, _, _, kind, flags, ..] = self.head;
        if OF_HEADERS.contains(&kind) {
            self.block = if flags & END_HEADERS == 0 { self.block + self.came } else { 0 };
        }
        (self.head_len, self.came) = (0, 0);
    }
}

/// Memory for what a connection may have received and not read yet: its window, held once however many requests are
/// under way.
#[derive(Debug)]
pub(super) struct Unread {
    budget: BodyBudget,
    window_bytes: usize,
    held: Mutex<Weak<Share>>,
}

impl Unread {
    pub(super) fn new(budget: BodyBudget, window_bytes: usize) -> Self {
        Self { budget, window_bytes, held: Mutex::default() }
    }

    /// Most bytes that may arrive before any of them is read.
    pub(super) fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Holds the memory of the window until all that share it drop it. Waits a moment if the budget is used up;
    /// `None` if it still is after that.
    pub(super) async fn hold(&self) -> Option<Arc<Share>> {
        if let Some(held) = self.held.lock().upgrade() {
            return Some(held);
        }
        let mut share = self.budget.share();
        share.hold(self.window_bytes).await.ok()?;
        let share = Arc::new(share);
        let mut held = self.held.lock();
        // Another request of the connection may have done the same meanwhile; then this share is given back.
        if let Some(held) = held.upgrade() {
            return Some(held);
        }
        *held = Arc::downgrade(&share);
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, len: usize) -> Vec<u8> {
        let [_, high, middle, low] = (len as u32).to_be_bytes();
        let mut out = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        out.resize(HEAD + len, b'x');
        out
    }

    fn held(frames: &Frames) -> usize {
        frames.share.held_bytes()
    }

    #[test]
    fn what_is_not_whole_is_held() {
        for piece in [1, 2, 8, 9, 10, 1000, 100_000] {
            let mut frames = Frames::new(24, BodyBudget::of_windows(1 << 20, 0).share());
            let mut feed = |came: &[u8]| {
                for part in came.chunks(piece) {
                    frames.read(part).expect("there is room");
                }
                held(&frames)
            };
            assert_eq!(feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, "in pieces of {piece}");
            assert_eq!(feed(&[frame(4, 0, 0), frame(6, 0, 8)].concat()), 0);
            // Complete data frames count in the window, not here.
            assert_eq!(feed(&frame(0, 0, 16_000)), 0);
            let data = frame(0, 0, 16_000);
            assert_eq!(feed(&data[..10_000]), 10 << 10);
            assert_eq!(feed(&data[10_000..]), 0);
            // A header block continues in further frames until one of them has END_HEADERS.
            assert_eq!(feed(&frame(1, 0, 4000)), 4 << 10);
            assert_eq!(feed(&frame(9, 0, 4000)), 8 << 10);
            assert_eq!(feed(&frame(9, END_HEADERS, 4000)), 0);
        }
    }

    #[test]
    fn blocks_without_an_end_share_what_there_is() {
        let budget = BodyBudget::of_windows(1 << 20, 0);
        let mut all = Vec::new();
        loop {
            let mut frames = Frames::new(0, budget.share());
            match frames.read(&frame(1, 0, 15_000)) {
                Ok(()) => all.push(frames),
                Err(why) => {
                    assert_eq!(why, HeadRefusal::NoRoom);
                    break;
                }
            }
            assert!(all.len() < 1000, "nothing is counted");
        }
        assert!(all.len() >= 30, "{} of 68 blocks", all.len());
        all.clear();
        assert_eq!(Frames::new(0, budget.share()).read(&frame(1, 0, 15_000)), Ok(()));
    }

    #[tokio::test]
    async fn a_window_is_held_once_a_connection() {
        let budget = BodyBudget::of_windows(1 << 20, 0);
        let of = |_| Unread::new(budget.clone(), 1 << 20);
        let [one, other] = [0, 1].map(of);
        let first = one.hold().await.expect("there is room");
        let second = one.hold().await.expect("it is the same");
        assert!(Arc::ptr_eq(&first, &second));
        assert!(other.hold().await.is_none(), "the first has it");
        drop(first);
        assert!(other.hold().await.is_none(), "the second still has it");
        drop(second);
        assert!(other.hold().await.is_some());
    }
}
