//! Converts a batch of logs to rows of a generation and records of the WAL: definitions of new streams, then names of
//! fields and rows, then the request if it has an idempotency key.

use crate::idempotency::AnsweredRequest;
use crate::memtable::Generation;
use crate::memtable::logs::{LogRows, PreparedLogs};
use crate::wal::codec::{Definition, Encoder, RecordKind};
use crate::wal::record;

use super::header;

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
        self.encoded = 0;
    }

    /// Starts over for the next generation.
    pub(super) fn new_generation(&mut self) {
        self.unlogged.clear();
        self.encoded = 0;
    }

    /// Stages rows, and the request if it has an idempotency key, under a sequence number; appends their records to
    /// `out`. `None` if there are no rows.
    pub(super) fn stage(
        &mut self,
        generation: &Generation,
        seq: u64,
        prepared: PreparedLogs,
        request: Option<&AnsweredRequest>,
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
    ) -> Option<LogRows> {
        let rows = (prepared.rows.len() > 0).then(|| self.stage_rows(generation, seq, prepared, request, encoder, out));
        if let Some(request) = request {
            let at = record::begin(out);
            encoder.log_request(request, out);
            let index = if rows.is_some() { 2 } else { 0 };
            record::finish(out, at, header(RecordKind::LogRequest, seq, index, record::LAST));
        }
        rows
    }

    fn stage_rows(
        &mut self,
        generation: &Generation,
        seq: u64,
        prepared: PreparedLogs,
        request: Option<&AnsweredRequest>,
        encoder: &mut Encoder,
        out: &mut Vec<u8>,
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
            let at = record::begin(out);
            encoder.definitions(RecordKind::LogStreams, &self.unlogged[self.encoded..], out);
            self.encoded = self.unlogged.len();
            record::finish(out, at, header(RecordKind::LogStreams, seq, 0, 0));
        }
        let at = record::begin(out);
        encoder.log_names(&rows, out);
        record::finish(out, at, header(RecordKind::LogNames, seq, 0, 0));
        let at = record::begin(out);
        encoder.log_rows(&rows, out);
        let last = if request.is_none() { record::LAST } else { 0 };
        let flags = last | rows.flags();
        record::finish(out, at, header(RecordKind::LogRows, seq, 1, flags));
        rows
    }
}
