//! The rows of a row group by stream; each stream has its rows in one run.

use std::ops::Range;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use quiver_types::Result;

use super::GroupBlock;
use crate::logs::open_part::streams_of;
use crate::logs::part_streams::StreamRun;
use crate::logs::stream_values::{StreamValue, StreamValues};
use crate::part::logs::PartStream;

impl GroupBlock {
    /// The streams in the group with their rows, if the part's streams are in memory.
    pub(super) fn streams(&self) -> impl Iterator<Item = (usize, &PartStream, Range<usize>)> {
        let all = self.opened.logs.streams.as_deref().unwrap_or_default();
        streams_of(all, &self.rows).map(move |n| {
            let rows = all[n].rows.start.max(self.rows.start)..all[n].rows.end.min(self.rows.end);
            (n, &all[n], (rows.start - self.rows.start) as usize..(rows.end - self.rows.start) as usize)
        })
    }

    /// Selects the rows of the streams that pass a test.
    pub(super) fn rows_of(&self, mut passes: impl FnMut(usize, &PartStream) -> bool) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(self.len());
        for (number, stream, rows) in self.streams() {
            bits.append_n(rows.len(), passes(number, stream));
        }
        bits.finish()
    }

    /// The streams of rows, each with its number of rows.
    pub(super) async fn runs(&self, rows: &BooleanBuffer) -> Result<Vec<StreamRun>> {
        if let Some(slots) = &self.opened.slots {
            return slots.runs(self.rows.start, rows).await;
        }
        let count = |own: &Range<usize>| rows.slice(own.start, own.len()).count_set_bits() as u32;
        let all = self.streams().map(|(number, _, own)| (number as u32, count(&own)));
        Ok(all.filter(|(_, count)| *count > 0).collect())
    }

    /// A value for each of some streams.
    pub(super) async fn values_of(&self, value: &StreamValue, streams: &[u32]) -> Result<StreamValues> {
        if let Some(slots) = &self.opened.slots {
            return slots.values(value, streams).await;
        }
        let all = self.opened.logs.streams.as_deref().unwrap_or_default();
        Ok(StreamValues::of(value, streams.iter().map(|&number| &*all[number as usize].stream)))
    }
}
