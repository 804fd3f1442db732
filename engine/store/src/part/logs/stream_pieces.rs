//! What the cache keeps of the streams of a part with many streams: where blocks start, and the pieces that were read.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::super::footer::Footer;
use super::super::label_rows::LabelDirectory;

/// Cache key of a piece of a part's streams.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StreamPiece {
    /// Where blocks start.
    Blocks,
    /// The directory of `.labels`: which rows belong to which label.
    Directory,
    /// Columns of a block.
    Block(StreamColumns, u32),
    /// Rows of `.labels`, from this row to the end of its page.
    Page(u64),
    /// The value of a label in each stream.
    Codes(Arc<str>),
}

/// The cached value for a [`StreamPiece`].
#[derive(Debug, Clone)]
pub(crate) enum KeptPiece {
    Blocks(Arc<StreamBlocks>),
    Directory(Arc<LabelDirectory>),
    Rows(RecordBatch),
    Codes(Arc<LabelCodes>),
}

/// Groups of columns of `.streams` that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamColumns {
    /// First row of each stream.
    Starts,
    /// Identifiers of streams.
    Ids,
    /// Labels of streams.
    Labels,
    /// Services of streams.
    Services,
    /// First and last time of each stream.
    Times,
}

impl StreamColumns {
    pub(super) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Starts => &["first_row"],
            Self::Ids => &["stream_id"],
            Self::Labels => &["labels"],
            Self::Services => &["service"],
            Self::Times => &["min_time", "max_time"],
        }
    }
}

/// The value of a label for each stream of a part.
#[derive(Debug)]
pub(crate) struct LabelCodes {
    /// Code of each stream's value; 0 means that it has none.
    pub(crate) of_stream: Vec<u32>,
    /// Values by code; the first one is empty.
    pub(crate) values: Vec<Box<str>>,
}

impl LabelCodes {
    pub(super) fn memory_bytes(&self) -> u64 {
        self.values.iter().map(|v| v.len() as u64 + 16).sum::<u64>() + self.of_stream.len() as u64 * 4
    }
}

/// Where the blocks of a part's streams start.
#[derive(Debug)]
pub(crate) struct StreamBlocks {
    pub(super) footer: Arc<Footer>,
    /// Streams per block.
    pub(super) size: u32,
    /// First row in `.rows` of each block, followed by the total number of rows.
    pub(super) first_rows: Vec<u64>,
    pub(super) streams: u32,
}

impl StreamBlocks {
    pub(crate) fn streams(&self) -> u32 {
        self.streams
    }

    /// The block that holds a row.
    pub(crate) fn of_row(&self, row: u64) -> u32 {
        (self.first_rows.partition_point(|&first| first <= row).saturating_sub(1)) as u32
    }

    /// The block that holds a stream.
    pub(crate) fn of_stream(&self, stream: u32) -> u32 {
        stream / self.size
    }

    /// The streams of a block.
    pub(crate) fn streams_of(&self, block: u32) -> Range<u32> {
        let first = block.saturating_mul(self.size).min(self.streams);
        first..first.saturating_add(self.size).min(self.streams)
    }

    /// The first row of a block; beyond the last block, the total number of rows.
    pub(crate) fn first_row(&self, block: u32) -> u64 {
        let last = self.first_rows.len() - 1;
        self.first_rows[(block as usize).min(last)]
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.first_rows.len() as u64 * 8 + 64
    }
}
