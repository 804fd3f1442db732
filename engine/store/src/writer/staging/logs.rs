//! Converts a batch of logs to rows of a generation and records of the WAL: definitions of new streams, then names of
//! fields and rows, then the request if it has an idempotency key.

use crate::idempotency::AnsweredRequest;
use crate::memtable::Generation;
use crate::memtable::logs::{LogRows, PreparedLogs};
use crate::wal::codec::{Definition, RecordKind};
use crate::wal::record;

use super::{ENTRIES_KEEP, RecordWriter};

/// Converts batches of logs to rows and records.
#[derive(Debug, Default)]
pub(super) struct LogStager {
    /// Streams of the open generation whose definition has not been written successfully yet.
    unlogged: Vec<Definition>,
    /// How many of them are in the records of the current group.
    encoded: usize,
}

impl LogStager {
    /// Starts a group; definitions of failed groups are written again first.
    pub(super) fn begin_group(&mut self) {
        self.encoded = 0;
    }

    /// Ends a group whose records are durable.
    pub(super) fn logged(&mut self) {
        self.unlogged.drain(..self.encoded);
        self.unlogged.shrink_to(ENTRIES_KEEP);
        self.encoded = 0;
    }

    /// Starts over for the next generation.
    pub(super) fn new_generation(&mut self) {
        self.unlogged.clear();
        self.unlogged.shrink_to(ENTRIES_KEEP);
        self.encoded = 0;
    }

    /// Stages rows, and the request if it has an idempotency key, and writes their records. `None` if there are no rows.
    pub(super) fn stage(
        &mut self,
        generation: &Generation,
        prepared: PreparedLogs,
        request: Option<&AnsweredRequest>,
        records: &mut RecordWriter<'_>,
    ) -> Option<LogRows> {
        let last = if request.is_none() { record::LAST } else { 0 };
        let rows = (prepared.rows.len() > 0).then(|| self.stage_rows(generation, prepared, last, records));
        if let Some(request) = request {
            let (kind, index) = (RecordKind::LogRequest, if rows.is_some() { 2 } else { 0 });
            records.write(kind, index, record::LAST, |encoder, out| encoder.log_request(request, out));
        }
        rows
    }

    /// As `stage`, of the rows; `last` is the flag of their last record.
    fn stage_rows(
        &mut self,
        generation: &Generation,
        prepared: PreparedLogs,
        last: u16,
        records: &mut RecordWriter<'_>,
    ) -> LogRows {
        let PreparedLogs { mut rows, pairs, .. } = prepared;
        let mut slots = Vec::with_capacity(pairs.len());
        for stream in &pairs {
            let (slot, new) = generation.define_log_stream(stream);
            if new {
                let (labels, service) = (stream.labels.canonical().to_vec(), stream.service.to_string());
                self.unlogged.push(Definition { slot, id: stream.id, labels, service });
            }
            slots.push(slot);
        }
        if slots.iter().enumerate().any(|(at, &slot)| at != slot as usize) {
            rows.slots = rows.slots.iter().map(|&pair| slots[pair as usize]).collect::<Vec<_>>().into();
        }
        if self.encoded < self.unlogged.len() {
            let (kind, definitions) = (RecordKind::LogStreams, &self.unlogged[self.encoded..]);
            records.write(kind, 0, 0, |encoder, out| encoder.definitions(kind, definitions, out));
            self.encoded = self.unlogged.len();
        }
        records.write(RecordKind::LogNames, 0, 0, |encoder, out| encoder.log_names(&rows, out));
        let flags = last | rows.flags();
        records.write(RecordKind::LogRows, 1, flags, |encoder, out| encoder.log_rows(&rows, out));
        rows
    }
}
