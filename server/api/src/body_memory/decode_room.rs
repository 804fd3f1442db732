//! Memory used while a body is decoded, besides the body itself. Decoders request it piece by piece. One that runs on its
//! own thread waits until others release some.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use quiver_ingest::DecodeRoom;
use tokio::runtime::Handle;

use super::large_body_queue::TURN_WAIT;
use super::{SHORT_STEP, Share};

/// Memory used while a body is decoded, besides the body: its decompressed form, or the batch of its rows.
#[derive(Debug)]
pub(crate) struct DecodeShare {
    share: Share,
    /// Who keeps the time while a thread of its own waits; threads that serve sockets do not.
    runtime: Option<Handle>,
    /// When waiting ends, once it has begun.
    pub(super) until: Option<Instant>,
}

impl DecodeShare {
    /// Begins with what the share holds; who waits may do so only on a thread of its own, within a runtime.
    pub(super) fn new(share: Share, own_thread: bool) -> Self {
        Self { share, runtime: own_thread.then(Handle::current), until: None }
    }

    /// Holds so many bytes in all; waits for others to give some back if it may, but not for long in all.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        if self.share.try_hold(bytes) {
            return true;
        }
        self.share.budget.refused.refuse();
        let Some(runtime) = &self.runtime else { return false };
        let threads = Arc::clone(&self.share.budget.threads);
        let Ok(_waits) = threads.try_acquire() else { return false };
        let (_stuck, gives_up) = self.share.wait_among_others(bytes);
        if gives_up {
            // Another may have ended since this one found no room, and was counted no more.
            return self.share.try_hold(bytes);
        }
        let until = *self.until.get_or_insert_with(|| Instant::now() + TURN_WAIT);
        let left = until.saturating_duration_since(Instant::now());
        runtime.block_on(self.share.hold_within(bytes, left)).is_ok()
    }

    /// Waits, on a blocking thread, until so many bytes in total are free, and then holds all of them. It takes no part of
    /// them earlier, as a queue would: a batch that is already being built would find nothing left for its rest.
    fn hold_at_once(&mut self, bytes: usize) -> bool {
        if self.share.try_hold(bytes) {
            return true;
        }
        self.share.budget.refused.refuse();
        let Some(runtime) = self.runtime.clone() else { return false };
        let threads = Arc::clone(&self.share.budget.threads);
        let Ok(_waits) = threads.try_acquire() else { return false };
        let until = *self.until.get_or_insert_with(|| Instant::now() + TURN_WAIT);
        let given_back = Arc::clone(&self.share.budget.given_back);
        let share = &mut self.share;
        runtime.block_on(async {
            loop {
                // Start listening before checking, so that no change between the two is missed.
                let change = given_back.notified();
                if share.try_hold(bytes) {
                    return true;
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                // There is no notification for free memory of the process, so it is checked in short steps.
                let step = if share.must_wait(share.wanted(bytes).1) { SHORT_STEP.min(left) } else { left };
                let _ = tokio::time::timeout(step, change).await;
            }
        })
    }

    /// Ends waiting; what it holds stays held.
    pub(super) fn into_share(self) -> Share {
        self.share
    }

    /// The same for a decoder, which tells through a shared reference what it needs.
    pub(super) fn into_decode_room(self) -> Arc<dyn DecodeRoom> {
        Arc::new(DecodeReservation(Mutex::new(self)))
    }
}

/// What the batch of one request holds, until it is dropped.
struct DecodeReservation(Mutex<DecodeShare>);

impl DecodeRoom for DecodeReservation {
    fn hold(&self, bytes: usize) -> bool {
        self.0.lock().hold(bytes)
    }

    fn hold_ahead(&self, bytes: usize) -> Option<usize> {
        let mut share = self.0.lock();
        if share.runtime.is_none() {
            return Some(0);
        }
        share.hold_at_once(bytes).then_some(bytes)
    }
}
