//! The blocks of a scan: live batches and row groups of parts, handed out one by one. A part is opened when the first of
//! its row groups is wanted.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use quiver_types::logs::LogRequest;
use quiver_types::{Access, ReadStats, Result};

use super::block::Block;
use super::group::Group;
use super::live::{LiveBlock, LiveStreams};
use super::parts::{PartScan, Pruned};
use crate::error::leave_out;
use crate::snapshot::Snapshot;

/// A block that can be opened.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    Live(LiveBlock),
    Group(Group),
}

impl Handle {
    /// First and last time, at least.
    pub(super) fn range(&self) -> (i64, i64) {
        match self {
            Self::Live(block) => block.chunk.range,
            Self::Group(group) => group.range(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Live(block) => block.rows,
            Self::Group(group) => group.len(),
        }
    }

    /// Opens it.
    pub(super) fn open(&self) -> Box<dyn Block> {
        match self {
            Self::Live(block) => Box::new(block.clone()),
            Self::Group(group) => Box::new(group.open()),
        }
    }
}

/// All blocks of a scan.
#[derive(Debug)]
pub(super) struct Blocks {
    live: Vec<LiveBlock>,
    parts: Vec<Arc<PartScan>>,
    pub(super) pruned: Pruned,
    pub(super) generations: usize,
    pub(super) stats: Arc<ReadStats>,
}

impl Blocks {
    pub(super) fn new(snapshot: &Snapshot, access: &Access, request: &Arc<LogRequest>, stats: &Arc<ReadStats>) -> Self {
        let range = request.filter.time_bounds();
        let (mut live, mut generations) = (Vec::new(), 0);
        for generation in &snapshot.visible.generations {
            let view = generation.log_view(range, snapshot.seq);
            generations += usize::from(!view.chunks.is_empty());
            let streams = Arc::new(LiveStreams::new(view.streams, view.index, access, stats));
            let block = |(chunk, rows)| LiveBlock { chunk, rows, streams: Arc::clone(&streams) };
            live.extend(view.chunks.into_iter().map(block));
        }
        let (parts, pruned) = super::parts::choose(snapshot, access, request, stats);
        Self { live, parts, pruned, generations, stats: Arc::clone(stats) }
    }

    /// Rows of all blocks, before anything is filtered.
    pub(super) fn rows(&self) -> u64 {
        self.live.iter().map(|b| b.rows as u64).sum::<u64>() + self.parts.iter().map(|p| p.part.meta.rows).sum::<u64>()
    }

    /// Number of parts to be read.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Gives a queue over all of them.
    pub(super) fn queue(self: &Arc<Self>) -> Queue {
        Queue {
            blocks: Arc::clone(self),
            ready: Mutex::new(self.live.iter().cloned().map(Handle::Live).collect()),
            parts: tokio::sync::Mutex::new(self.parts.iter().cloned().collect()),
        }
    }

    /// Live blocks, and parts with the time that they cover.
    pub(super) fn by_time(&self) -> (Vec<Handle>, Vec<Arc<PartScan>>) {
        (self.live.iter().cloned().map(Handle::Live).collect(), self.parts.clone())
    }
}

/// Parts that are opened at once where each takes several answers of a remote store.
const REMOTE_PARTS: usize = 8;

/// How many parts are opened together. Those of a local disk come one by one: who stops early has opened no more.
pub(super) fn at_once(part: &PartScan) -> usize {
    if part.part.is_remote() { REMOTE_PARTS } else { 1 }
}

/// Opens parts together.
pub(super) async fn open(parts: impl Iterator<Item = Arc<PartScan>>, stats: &Arc<ReadStats>) -> Result<Vec<Handle>> {
    let open = |part: Arc<PartScan>| async move { part.groups(stats).await };
    let mut out = Vec::new();
    for groups in futures::future::join_all(parts.map(open)).await {
        match groups {
            Ok(groups) => out.extend(groups.into_iter().map(Handle::Group)),
            Err(e) => leave_out(stats, e)?,
        }
    }
    Ok(out)
}

/// Hands blocks out to partitions.
#[derive(Debug)]
pub(super) struct Queue {
    blocks: Arc<Blocks>,
    ready: Mutex<VecDeque<Handle>>,
    parts: tokio::sync::Mutex<VecDeque<Arc<PartScan>>>,
}

impl Queue {
    /// Gives the next block; `None` when all are out.
    pub(super) async fn next(&self) -> Result<Option<Handle>> {
        loop {
            if let Some(handle) = self.ready.lock().pop_front() {
                return Ok(Some(handle));
            }
            let mut parts = self.parts.lock().await;
            // Another partition may have opened a part meanwhile.
            if !self.ready.lock().is_empty() {
                continue;
            }
            let Some(first) = parts.front() else { return Ok(None) };
            let count = at_once(first).min(parts.len());
            let opened = open(parts.drain(..count), &self.blocks.stats).await?;
            self.ready.lock().extend(opened);
        }
    }
}
