//! What a scan knows about a part that it reads: columns and streams, and which of them the caller may see.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use quiver_types::logs::LogRequest;
use quiver_types::read_stats::add;
use quiver_types::{ReadStats, Result};

use super::part_streams::PartSlots;
use super::stream_values::{StreamValue, with_computed};
use crate::part::Part;
use crate::part::logs::{ColumnIndex, PartLogs, PartStream, StreamSet};

#[derive(Debug)]
pub(super) struct OpenedLogPart {
    pub(super) part: Arc<Part>,
    pub(super) logs: Arc<PartLogs>,
    /// The streams whose rows the caller may see; `None` means all.
    pub(super) allowed: Option<StreamSet>,
    /// Access to the streams of a part that has very many of them.
    pub(super) slots: Option<PartSlots>,
    /// Word filters of the columns that the filter searches words in.
    pub(super) words: HashMap<String, Arc<ColumnIndex>>,
}

impl OpenedLogPart {
    /// How a field depends on a row's stream; `None` if it does not, or if that is unknown.
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

    /// Like `of_stream`, also for names that are not fields.
    pub(super) fn any_of_stream(&self, name: &str) -> Option<StreamValue> {
        with_computed(name, |name| self.of_stream(name))
    }

    /// The only streams whose rows may be returned; `None` means all.
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

/// The range of streams that have rows in a range.
pub(super) fn streams_of(streams: &[PartStream], rows: &Range<u64>) -> Range<usize> {
    let first = streams.partition_point(|s| s.rows.end <= rows.start);
    let len = streams[first..].partition_point(|s| s.rows.start < rows.end);
    first..first + len
}
