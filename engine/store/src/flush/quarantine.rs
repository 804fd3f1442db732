//! Generations that cannot be flushed are set aside, so that later ones can proceed, and are retried with growing
//! pauses.
//!
//! Their rows stay visible. Their WAL is moved to its own folder (`wal/held`) and replayed at each start. Their
//! writer's floor moves past them, so each is committed as the only generation of a writer made for it.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use super::{Failure, FlushState, Retire, failed, flush};
use crate::core::Core;
use crate::memtable::{Generation, GenerationId};
use crate::metrics::METRICS;

/// No more than this many are set aside: with more failures, the cause is not the generation itself.
const HELD_MAX: usize = 8;
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(10);

/// The id under which a generation that was set aside is committed.
pub(crate) fn held_id(id: GenerationId) -> GenerationId {
    let mut bytes = id.writer.as_bytes().to_vec();
    bytes.extend_from_slice(&id.number.to_be_bytes());
    GenerationId { writer: Uuid::from_u128(xxh3_128(&bytes)), number: 1 }
}

/// The generations that were set aside.
pub(super) struct SetAsideGenerations {
    all: Vec<HeldGeneration>,
    flushing: Arc<FlushState>,
}

struct HeldGeneration {
    generation: Arc<Generation>,
    next: Instant,
    pause: Duration,
}

impl SetAsideGenerations {
    pub(super) fn new(found: Vec<Arc<Generation>>, flushing: Arc<FlushState>) -> Self {
        let mut aside = Self { all: Vec::new(), flushing };
        for generation in found {
            aside.add(generation, "so it was found at the start".into());
        }
        aside
    }

    /// Tells whether another generation may be set aside.
    pub(super) fn takes_more(&self) -> bool {
        self.all.len() < HELD_MAX
    }

    pub(super) fn add(&mut self, generation: Arc<Generation>, why: String) {
        tracing::error!(generation = %generation.id(), why, "set a generation aside that cannot be flushed");
        generation.set_aside();
        self.flushing.aside.lock().insert(generation.id(), why);
        self.all.push(HeldGeneration { generation, next: Instant::now() + FIRST, pause: FIRST });
        METRICS.flush_held.set(self.all.len() as u64);
    }

    /// Waits until a generation is due for a retry.
    pub(super) async fn due(&self) {
        match self.all.iter().map(|held| held.next).min() {
            Some(next) => tokio::time::sleep_until(next).await,
            None => pending().await,
        }
    }

    /// Retries the generation that is due first.
    pub(super) async fn retry(&mut self, core: &Arc<Core>, retire: &dyn Retire) {
        let Some(at) = (0..self.all.len()).min_by_key(|&at| self.all[at].next) else { return };
        let held = &mut self.all[at];
        let id = held.generation.id();
        match flush(core, &held.generation, held_id(id)).await {
            Ok(()) => {
                self.all.swap_remove(at);
                self.flushing.aside.lock().remove(&id);
                METRICS.flush_held.set(self.all.len() as u64);
                tracing::info!(generation = %id, "flushed a generation that was set aside");
                retire.retire(id);
                core.wake.upload.notify_one();
                core.wake.outbox.notify_one();
            }
            Err(Failure { error, .. }) => {
                held.pause = (held.pause * 2).min(LONGEST);
                held.next = Instant::now() + held.pause;
                let why = failed(core, &held.generation, &error).await;
                // Flushing still works for other generations.
                core.flush_health.succeeded();
                self.flushing.aside.lock().insert(id, why);
            }
        }
        core.progress.bump();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn writes_know_what_was_set_aside() {
        let id = GenerationId { writer: Uuid::now_v7(), number: 1 };
        let generation = Arc::new(Generation::new(id, 1, Arc::new(Registry::default())));
        let aside = SetAsideGenerations::new(vec![Arc::clone(&generation)], Arc::default());
        assert!(generation.is_aside() && aside.takes_more());
    }
}
