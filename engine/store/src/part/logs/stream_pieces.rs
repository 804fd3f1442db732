//! What is kept of the streams of a part where they are many: where their blocks begin, and the pieces that were read.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;

use super::super::footer::Footer;
use super::super::label_rows::LabelDirectory;

/// What is kept of the streams of a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StreamPiece {
    /// Where blocks begin.
    Blocks,
    /// Which rows of `.labels` are of which label.
    Directory,
    /// Columns of a block.
    Block(StreamColumns, u32),
    /// Rows of a page of `.labels` from this one on.
    Page(u64),
    /// The value of a label in each stream.
    Codes(Arc<str>),
}

/// What is kept under a [`StreamPiece`].
#[derive(Debug, Clone)]
pub(crate) enum KeptPiece {
    Blocks(Arc<StreamBlocks>),
    Directory(Arc<LabelDirectory>),
    Rows(RecordBatch),
    Codes(Arc<LabelCodes>),
}

/// Columns of `.streams` that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamColumns {
    /// Where rows begin.
    Starts,
    /// Identifiers of streams.
    Ids,
    /// Labels of streams.
    Labels,
    /// Services of streams.
    Services,
    /// First and last times.
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

/// The value of a label in each stream of a part.
#[derive(Debug)]
pub(crate) struct LabelCodes {
    /// By stream; 0 is none.
    pub(crate) of_stream: Vec<u32>,
    /// By code; the first is empty.
    pub(crate) values: Vec<Box<str>>,
}

impl LabelCodes {
    pub(super) fn memory_bytes(&self) -> u64 {
        self.values.iter().map(|v| v.len() as u64 + 16).sum::<u64>() + self.of_stream.len() as u64 * 4
    }
}

/// Where the blocks of streams of a part begin.
#[derive(Debug)]
pub(crate) struct StreamBlocks {
    pub(super) footer: Arc<Footer>,
    /// Streams of a block.
    pub(super) size: u32,
    /// The first row of each block, then the number of all rows.
    pub(super) first_rows: Vec<u64>,
    pub(super) streams: u32,
}

impl StreamBlocks {
    /// Number of streams.
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

    /// The first row of a block; of the one behind the last the number of all rows.
    pub(crate) fn first_row(&self, block: u32) -> u64 {
        let last = self.first_rows.len() - 1;
        self.first_rows[(block as usize).min(last)]
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.first_rows.len() as u64 * 8 + 64
    }
}
