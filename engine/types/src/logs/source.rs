//! How LogsQL reaches the store: snapshots, streams, and what a scan is asked for.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::logs::{LogFilter, StreamSelector};
use crate::{Access, LabelSet, ReadStats, Result, SeriesId};

/// Identifier of a stream: the hash of its labels. 32 lower-case hex digits outside.
pub type StreamId = SeriesId;

/// A stream that a snapshot holds.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Identifier.
    pub id: StreamId,
    /// Labels.
    pub labels: LabelSet,
}

/// Gives snapshots.
pub trait LogSource: Send + Sync + fmt::Debug {
    /// Pins what is visible now. All scans of one query read from one snapshot.
    fn snapshot(&self) -> Arc<dyn LogSnapshot>;
}

/// What was visible at one moment. The scan itself is a `TableProvider` (`quiver_store::logs_table`).
#[async_trait]
pub trait LogSnapshot: Send + Sync + fmt::Debug {
    /// Gives the streams that may have rows within a closed range of Unix nanoseconds and that a selector takes.
    async fn streams(
        &self,
        access: &Access,
        selector: &StreamSelector,
        range: (i64, i64),
        stats: &ReadStats,
    ) -> Result<Vec<StreamInfo>>;

    /// For the store, which gets its own snapshot back.
    fn as_any(&self) -> &(dyn Any + Send + Sync);
}

/// A column that a scan is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogColumn {
    /// Name of the field; `_time`, `_stream` and `_stream_id` too.
    pub name: String,
    /// Give it dictionary-coded (`Dictionary(UInt32, Utf8)`), for grouping; else `Utf8View`. Not for `_time`.
    pub dictionary: bool,
}

/// The order in which a scan gives rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LogOrder {
    /// Any.
    #[default]
    Any,
    /// Newest first (equal times in any order), in one partition; reading stops when the reader does.
    NewestFirst,
    /// Oldest first, likewise.
    OldestFirst,
}

/// What a scan is asked for. Its schema: the columns in this order, all nullable but `_time`; `_time` is
/// `Timestamp(Nanosecond, UTC)`; a missing field is null, never empty. With `rest`, a last column
/// [`crate::logs::REST`] (`Map<Utf8, Utf8>`, entries in name order, never null) holds all other fields of the row, but
/// neither `_time` nor `_stream` nor `_stream_id`.
#[derive(Debug, Clone)]
pub struct LogRequest {
    /// Which rows.
    pub filter: LogFilter,
    /// Columns.
    pub columns: Vec<LogColumn>,
    /// Whether all other fields are wanted.
    pub rest: bool,
    /// Order.
    pub order: LogOrder,
}
