//! Ends a generation: because of its size or age, or because its WAL may not be durable.

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tracing::{error, info, warn};

use super::{Committer, TICK};
use crate::failpoint;
use crate::memtable::{Generation, GenerationId};
use crate::metrics::METRICS;
use crate::snapshot::Visible;

/// Segments of sealed generations, until they are retired.
pub(crate) type SegmentFiles = Mutex<HashMap<GenerationId, Files>>;

/// The segments of a generation.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) paths: Vec<PathBuf>,
    /// Whether they are damaged, and so are moved aside instead of deleted.
    pub(crate) damaged: bool,
}

impl Committer {
    /// Periodic work: seals by size and age, and syncs at level `os`.
    pub(super) fn tick(&mut self) {
        let aged = self.opened.is_some_and(|at| at.elapsed() >= self.settings.generation_age);
        if aged || self.log.doubtful || self.generation.bytes() as u64 >= self.settings.generation_bytes {
            self.seal();
        }
        if self.log.unsynced && self.log.synced_at.elapsed() >= TICK {
            self.sync_written();
        }
    }

    /// At level `os`: after a failed sync, written records may be lost in a power failure. They are in memory, so the
    /// generation is flushed to a part at once.
    fn sync_written(&mut self) {
        if let Err(error) = self.sync_segment() {
            error!(%error, generation = %self.generation.id(), "cannot sync the WAL; flushing what it holds");
            METRICS.wal_failures.inc();
            self.log.unsynced = false;
            self.log.segment = None;
            self.seal();
        }
    }

    /// Ends the open generation and starts the next one; `None` if it is empty.
    pub(super) fn seal(&mut self) -> Option<Arc<Generation>> {
        if self.generation.is_empty() {
            return None;
        }
        failpoint::hit("wal.before-seal");
        if let Err(error) = self.close_segment() {
            // The generation will be flushed to a part, which is synced separately.
            warn!(%error, generation = %self.generation.id(), "cannot sync the last segment of a generation");
            METRICS.wal_failures.inc();
        }
        let paths = self.log.take_paths();
        self.files.lock().insert(self.generation.id(), Files { paths, damaged: false });
        self.stager.new_generation();
        self.opened = None;
        let id = GenerationId { number: self.generation.number + 1, ..self.generation.id() };
        let next = Arc::new(Generation::new(id, self.next_seq, Arc::clone(&self.registry)));
        let sealed = std::mem::replace(&mut self.generation, Arc::clone(&next));
        sealed.seal();
        // Published before its first row is inserted.
        self.shared.update(|visible| {
            let mut generations = visible.generations.clone();
            generations.push(Arc::clone(&next));
            Visible { generations, ..visible.clone() }
        });
        METRICS.generations_sealed.inc();
        info!(generation = %sealed.id(), samples = sealed.samples(), log_rows = sealed.log_rows(), bytes = sealed.bytes(), "sealed a generation");
        failpoint::hit("wal.after-seal");
        if self.on_sealed.send(Arc::clone(&sealed)).is_err() {
            warn!(generation = %sealed.id(), "nobody flushes any more; the generation stays in the WAL");
        }
        Some(sealed)
    }

    /// Makes everything durable.
    pub(super) fn end(&mut self) {
        if self.log.unsynced
            && let Err(error) = self.sync_segment()
        {
            error!(%error, "cannot sync the WAL at the end");
        }
        self.log.segment = None;
    }
}
