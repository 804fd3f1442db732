//! What a scan knows of a part of logs that it reads: its columns and streams, and which of these the caller may see.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quiver_types::logs::LogRequest;
use quiver_types::stats::add;
use quiver_types::{ReadStats, Result};

use super::slots::PartSlots;
use super::stream_values::{StreamValue, with_computed};
use crate::part::Part;
use crate::part::logs::{ColumnIndex, PartLogs, PartStream, StreamSet};

/// What a scan knows of a part that it reads.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) part: Arc<Part>,
    pub(super) logs: Arc<PartLogs>,
    /// The streams whose rows the caller may see; `None`: all of them.
    pub(super) allowed: Option<StreamSet>,
    /// Of a part that has very many streams: these.
    pub(super) slots: Option<PartSlots>,
    /// Filters of words of columns that the filter has words for.
    pub(super) words: HashMap<String, Arc<ColumnIndex>>,
}

impl Opened {
    /// How a field follows from the stream of a row; `None`: it does not, or that is not known.
    pub(super) fn of_stream(&self, name: &str) -> Option<StreamValue> {
        let Self { logs, part, .. } = self;
        if let Some(at) = logs.columns.find(name) {
            return logs.columns.columns[at].of_stream.then(|| StreamValue::Label(name.to_owned()));
        }
        match logs.columns.constants.get(name) {
            Some(value) => Some(StreamValue::Same(value.as_str().into())),
            None if !logs.has.overflow || !part.meta.names.may_contain(name) => Some(StreamValue::Same("".into())),
            None => None,
        }
    }

    /// The same of names that are no fields, too.
    pub(super) fn any_of_stream(&self, name: &str) -> Option<StreamValue> {
        with_computed(name, |name| self.of_stream(name))
    }

    /// Streams of which alone rows may be given; `None`: all of them may.
    pub(super) async fn wanted(
        &self,
        slots: &PartSlots,
        request: &LogRequest,
        stats: &ReadStats,
    ) -> Result<Option<StreamSet>> {
        let chosen = slots.may_match(&request.filter, &|name| self.any_of_stream(name)).await?;
        if let (Some(chosen), None) = (&chosen, &self.allowed) {
            add(&stats.streams, self.part.meta.series);
            add(&stats.streams_chosen, chosen.count());
        }
        Ok(match (&self.allowed, chosen) {
            (Some(allowed), Some(chosen)) => Some(allowed.and(&chosen)),
            (None, Some(chosen)) => Some(StreamSet::clone(&chosen)),
            (allowed, None) => allowed.clone(),
        })
    }
}

/// Numbers of the streams that have rows in a range.
pub(super) fn streams_of(streams: &[PartStream], rows: &Range<u64>) -> Range<usize> {
    let first = streams.partition_point(|s| s.rows.end <= rows.start);
    let len = streams[first..].partition_point(|s| s.rows.start < rows.end);
    first..first + len
}
