//! Caches of what queries need of parts: footers with page indexes, pages of series and labels, and hot blocks of
//! remote files. One budget in bytes bounds them all, and the least recently used entries are evicted. Each cache has a
//! guaranteed share and may borrow what others do not use, so a server that is only asked for metrics keeps no memory
//! idle for logs.

use std::sync::Arc;

use arrow::array::StringArray;
use bytes::Bytes;
use hashbrown::HashSet;
use roaring::RoaringBitmap;

use crate::decoded_cache::DecodedCache;
use crate::lru::{CacheStats, Lru, Room};
use crate::part::logs::{ColumnIndex, KeptPiece, PartLogs, StreamPiece};
use crate::part::spans::{SpanIndex, TraceFilter};
use crate::part::{Footer, MemoryIndex, PartId, SeriesPage};
use crate::sample_blocks::SampleBlocks;

/// What is cached of the series of a part: the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    /// A page of series, by number.
    Page(u32),
    /// Values of a label, by the first row of their page.
    Values(u64),
    /// The series of one (label, value), by row.
    Postings(u64),
    /// The index of a part without one on disk.
    Index,
}

/// What is cached under a [`Piece`] of the same kind: the value.
#[derive(Debug, Clone)]
pub(crate) enum CachedPiece {
    /// A page of series.
    Page(Arc<SeriesPage>),
    /// Values of a page of a label.
    Values(StringArray),
    /// Numbers of the series that have a value.
    Postings(Arc<RoaringBitmap>),
    /// The index of a part, made in memory.
    Index(Arc<MemoryIndex>),
}

/// The caches of a store.
#[derive(Debug)]
pub struct Caches {
    /// Footers with page indexes, by part and kind of file.
    pub footers: Lru<(PartId, u8), Arc<Footer>>,
    /// Pages of series and of the index of their labels.
    pub(crate) series: Lru<(PartId, Piece), CachedPiece>,
    /// Positions of traces in parts of spans.
    pub(crate) span_indexes: Lru<PartId, Arc<SpanIndex>>,
    /// Bloom filters of trace ids.
    pub(crate) traces: Lru<PartId, Arc<TraceFilter>>,
    /// Checked blocks of remote files, by part, kind of file and number of the block.
    pub blocks: Lru<(PartId, u8, u32), Bytes>,
    /// Metadata of parts of logs: columns, row groups, streams.
    pub(crate) logs: Lru<PartId, Arc<PartLogs>>,
    /// Streams of parts of logs, as far as they were read.
    pub(crate) streams: Lru<(PartId, StreamPiece), KeptPiece>,
    /// Word filters of parts of logs, by column.
    pub(crate) words: Lru<(PartId, String), Arc<ColumnIndex>>,
    /// Decoded columns of logs.
    pub(crate) decoded: DecodedCache,
    /// Decoded samples of metrics.
    pub(crate) samples: SampleBlocks,
}

impl Caches {
    /// Splits a budget over a local disk, whose blocks the system keeps: half of it goes to what is decoded.
    pub fn local(bytes_max: u64) -> Self {
        Self::with_blocks(bytes_max, 0)
    }

    /// Splits a budget over a remote store: half of it goes to what is decoded, and half of the rest to hot blocks.
    pub fn remote(bytes_max: u64) -> Self {
        Self::with_blocks(bytes_max, (bytes_max - bytes_max / 2) / 2)
    }

    fn with_blocks(bytes_max: u64, blocks: u64) -> Self {
        let decoded = bytes_max / 2;
        let logs = (bytes_max - decoded - blocks) / 2;
        let rest = bytes_max - decoded - blocks - logs;
        let room = Room::new(bytes_max);
        Self {
            footers: Lru::within(&room, rest / 4, 4),
            series: Lru::within(&room, rest / 2, 4),
            span_indexes: Lru::within(&room, rest / 4, 1),
            blocks: Lru::within(&room, blocks, 8),
            logs: Lru::within(&room, logs / 8, 2),
            // Columns of blocks, pages of labels: many of some 20 kB, and the codes of a label.
            streams: Lru::within(&room, logs / 2, 4),
            traces: Lru::within(&room, logs / 8, 1),
            words: Lru::within(&room, logs / 4, 1),
            decoded: DecodedCache::within(&room, decoded / 2),
            samples: SampleBlocks::within(&room, decoded / 2),
        }
    }

    /// Drops the entries of parts that no longer exist, which makes room for others.
    pub fn forget(&self, parts: &[PartId]) {
        if parts.is_empty() {
            return;
        }
        for part in parts {
            self.logs.remove(part);
            self.span_indexes.remove(part);
            self.traces.remove(part);
            for kind in 0..=u8::try_from(crate::part::KINDS.len()).unwrap_or(u8::MAX) {
                self.footers.remove(&(*part, kind));
            }
        }
        let gone: HashSet<PartId> = parts.iter().copied().collect();
        self.series.retain(|(part, _)| !gone.contains(part));
        self.blocks.retain(|(part, ..)| !gone.contains(part));
        self.words.retain(|(part, _)| !gone.contains(part));
        self.streams.retain(|(part, _)| !gone.contains(part));
        self.decoded.forget(&gone);
        self.samples.forget(&gone);
    }

    /// Gives the counters of each cache with its name.
    pub fn stats(&self) -> [(&'static str, CacheStats); 9] {
        [
            ("footers", self.footers.stats()),
            ("series", self.series.stats()),
            ("blocks", self.blocks.stats()),
            ("logs", self.logs.stats()),
            ("streams", self.streams.stats()),
            ("traces", self.traces.stats()),
            ("words", self.words.stats()),
            ("samples", self.samples.stats()),
            ("decoded", self.decoded.stats()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_gone_leave_nothing() {
        let (gone, other) = (PartId::from_u128(1), PartId::from_u128(2));
        let caches = Caches::remote(64 << 20);
        let values = |text: &str| CachedPiece::Values(StringArray::from(vec![text]));
        for part in [gone, other] {
            caches.series.insert((part, Piece::Values(0)), values("a"), 10);
            caches.series.insert((part, Piece::Page(3)), values("b"), 10);
            caches.series.insert((part, Piece::Postings(0)), CachedPiece::Postings(Arc::default()), 10);
            for block in 0..5 {
                caches.blocks.insert((part, 1, block), Bytes::from_static(b"block"), 5);
            }
        }
        caches.forget(&[]);
        assert_eq!((caches.series.stats().entries, caches.blocks.stats().entries), (6, 10));
        caches.forget(&[gone, PartId::from_u128(9)]);
        assert_eq!((caches.series.stats().entries, caches.blocks.stats().entries), (3, 5));
        assert!(caches.series.get(&(gone, Piece::Page(3))).is_none());
        assert!(matches!(caches.series.get(&(other, Piece::Values(0))), Some(CachedPiece::Values(_))));
        assert_eq!(caches.blocks.get(&(other, 1, 4)).as_deref(), Some(&b"block"[..]));
        caches.forget(&[other]);
        let left: u64 = caches.stats().iter().map(|(_, stats)| stats.entries + stats.bytes).sum();
        assert_eq!(left, 0);
    }

    /// A local disk is kept by the system: no share of the budget is set aside for its blocks.
    #[test]
    fn blocks_are_kept_of_remote_files_alone() {
        for (caches, kept) in [(Caches::local(1 << 20), 0), (Caches::remote(1 << 20), 1)] {
            caches.blocks.insert((PartId::nil(), 0, 0), Bytes::from_static(b"x"), 1);
            assert_eq!(caches.blocks.stats().entries, kept);
        }
        let none = Caches::remote(0);
        none.words.insert((PartId::nil(), "a".to_owned()), Arc::new(ColumnIndex { filters: Vec::new() }), 1);
        assert_eq!(none.stats().iter().map(|(_, stats)| stats.entries).sum::<u64>(), 0);
    }
}
