//! Batches of rows: complete rows are added to a batch with their stream and service until it is full.

use std::sync::Arc;

use quiver_types::LogsBatch;
use quiver_types::label::push_pair;
use quiver_types::logs::{FIELD_BYTES, RecordMarks};

use super::super::labels;
use super::super::names::NONE;
use super::Rows;
use crate::decode_memory;
use crate::error::{Error, Result};

/// A batch is full at this number of rows, whatever its bytes.
const BATCH_ROWS_MAX: usize = 65_536;

impl Rows {
    pub(super) fn begin_batch(&mut self) {
        self.batch_number += 1;
        self.streams.clear();
        self.services.clear();
        self.row_start = 0;
        if let Some((_, number)) = &mut self.fixed_stream {
            *number = None;
        }
    }

    /// Adds the row to the batch.
    #[inline]
    pub(super) fn commit(&mut self, time: i64, marks: RecordMarks) {
        let mut service = (NONE, 0, 0);
        self.slots.fill((0, 0));
        let mut start = self.row_start as u32;
        for field in &self.row {
            let name = &mut self.names.list[field.name as usize];
            if name.batch != self.batch_number {
                name.batch = self.batch_number;
                name.in_batch = self.batch.names.len() as u32;
                self.batch.names.push(Arc::clone(&name.text));
            }
            self.batch.field_names.push(name.in_batch);
            self.batch.value_ends.push(field.end);
            if name.stream != NONE {
                self.slots[usize::from(name.stream)] = (start, field.end);
            }
            if name.service < service.0 {
                service = (name.service, start, field.end);
            }
            start = field.end;
        }
        let service = &self.batch.values[service.1 as usize..service.2 as usize];
        let service = self.services.find(service, &mut self.batch.services);
        let stream = self.stream();
        self.batch.end_row(time, stream, service, marks);
    }

    /// The number of the row's stream.
    fn stream(&mut self) -> u32 {
        self.scratch.clear();
        if let Some(names) = &self.options.stream {
            for (name, (start, end)) in names.iter().zip(&self.slots) {
                if start < end {
                    // Decoders write valid UTF-8.
                    let value = std::str::from_utf8(&self.batch.values[*start as usize..*end as usize]).unwrap_or("");
                    push_pair(&mut self.scratch, name, value);
                }
            }
        } else if let Some((labels, number)) = &mut self.fixed_stream {
            if let Some(number) = number {
                return *number;
            }
            let found = self.streams.find(labels, &mut self.batch);
            *number = Some(found);
            return found;
        } else if !self.stream_text.is_empty() {
            let text = std::str::from_utf8(&self.stream_text).unwrap_or("");
            if let Some(mut pairs) = labels::parse(text) {
                pairs.retain(|(name, _)| self.options.keeps_label(name));
                labels::canonical(pairs, &mut self.scratch);
            }
        }
        self.streams.find(&self.scratch, &mut self.batch)
    }

    /// Ends the batch if it is full, or has too many names. Only to be called between rows.
    #[inline]
    pub(crate) fn bound_batch(&mut self) {
        let field_bytes = self.batch.value_ends.len() * FIELD_BYTES;
        let is_full = self.row_start.max(field_bytes) > self.limits.batch_bytes || self.batch.len() >= BATCH_ROWS_MAX;
        if is_full || self.names.is_full() {
            let next = room_of(&self.batch);
            self.finish_batch();
            self.batch = next;
        }
    }

    fn finish_batch(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.held_bytes += batch.memory_bytes();
            self.full.push(batch);
        }
        self.batch = LogsBatch::default();
        self.begin_batch();
        self.names.bound();
        self.report.cut_names += std::mem::take(&mut self.names.cut);
    }

    /// Takes the batches that are full; the one that is being filled stays.
    pub fn take_full(&mut self) -> Vec<LogsBatch> {
        self.held_bytes = 0;
        std::mem::take(&mut self.full)
    }

    /// Takes all batches; the last one may be small.
    pub fn take_all(&mut self) -> Vec<LogsBatch> {
        self.finish_batch();
        self.take_full()
    }

    /// Approximate bytes of the rows that are not in a full batch, and of all names.
    pub fn open_bytes(&self) -> usize {
        self.batch.memory_bytes() + self.names.bytes()
    }

    /// Bytes that the request adds to each row, about, however short its record is.
    pub fn added_bytes(&self) -> usize {
        let extra: usize = self.options.extra.iter().map(|(_, value)| value.len() + FIELD_BYTES).sum();
        extra + self.options.default_msg.len()
    }

    /// Whether there are rows that are not in a full batch.
    pub fn has_rows(&self) -> bool {
        !self.batch.is_empty() || !self.full.is_empty()
    }

    /// Checks the request's memory limit: a few bytes of input can become many.
    pub(crate) fn check_memory(&self) -> Result<()> {
        let limit_bytes = self.limits.total_bytes_max;
        let bytes = self.held_bytes + self.batch.memory_bytes();
        // Dropped rows, and fields without a value, are as cheap to send.
        if bytes.max(self.shared) > limit_bytes {
            return Err(Error::TooLarge { what: "body, its rows written out,", limit_bytes });
        }
        decode_memory::hold(bytes + self.names.bytes())
    }
}

/// An empty batch with the capacity that another uses, since the next rows are likely to be similar.
fn room_of(batch: &LogsBatch) -> LogsBatch {
    let fields = batch.field_names.len() + batch.field_names.len() / 16;
    let rows = batch.len() + batch.len() / 16;
    LogsBatch {
        time: Vec::with_capacity(rows),
        row_streams: Vec::with_capacity(rows),
        row_services: Vec::with_capacity(rows),
        field_ends: Vec::with_capacity(rows),
        field_names: Vec::with_capacity(fields),
        value_ends: Vec::with_capacity(fields),
        values: Vec::with_capacity(batch.values.len() + batch.values.len() / 16),
        ..LogsBatch::default()
    }
}
