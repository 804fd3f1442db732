//! A common interface to the decoders of line formats.

use quiver_ingest::Error as IngestError;
use quiver_ingest::logs::bulk::Bulk;
use quiver_ingest::logs::{Journal, JsonLines, Report};
use quiver_types::LogsBatch;

/// A decoder of a line format.
pub(super) trait LineDecoder: Send + 'static {
    /// Decodes a piece of the body.
    fn feed(&mut self, data: &[u8]) -> Result<(), IngestError>;
    /// Decodes the last line, which may have no line end.
    fn finish(&mut self) -> Result<(), IngestError>;
    /// Takes the batches that are full.
    fn take_full(&mut self) -> Vec<LogsBatch>;
    /// Takes all batches, full or not.
    fn take_all(&mut self) -> Vec<LogsBatch>;
    /// Counts of the rows so far.
    fn report(&self) -> &Report;
    /// Bytes of memory, besides batches, that stay in use until the end.
    fn kept_bytes(&self) -> usize;
    /// Bytes of rows in batches that are not full.
    fn open_bytes(&self) -> usize;
    /// Bytes that the request adds to each row, about.
    fn added_bytes(&self) -> usize;
    /// Whether the format is all-or-nothing: no row may be stored before the whole body is read.
    const HOLDS: bool;
}

impl LineDecoder for JsonLines {
    fn feed(&mut self, data: &[u8]) -> Result<(), IngestError> {
        JsonLines::feed(self, data);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), IngestError> {
        JsonLines::finish(self);
        Ok(())
    }

    fn take_full(&mut self) -> Vec<LogsBatch> {
        self.rows.take_full()
    }

    fn take_all(&mut self) -> Vec<LogsBatch> {
        self.rows.take_all()
    }

    fn report(&self) -> &Report {
        &self.rows.report
    }

    fn kept_bytes(&self) -> usize {
        0
    }

    fn open_bytes(&self) -> usize {
        self.rows.open_bytes()
    }

    fn added_bytes(&self) -> usize {
        self.rows.added_bytes()
    }

    const HOLDS: bool = false;
}

impl LineDecoder for Bulk {
    fn feed(&mut self, data: &[u8]) -> Result<(), IngestError> {
        Bulk::feed(self, data)
    }

    fn finish(&mut self) -> Result<(), IngestError> {
        Bulk::finish(self)
    }

    fn take_full(&mut self) -> Vec<LogsBatch> {
        Bulk::take_full(self)
    }

    fn take_all(&mut self) -> Vec<LogsBatch> {
        Bulk::take_all(self)
    }

    fn report(&self) -> &Report {
        Bulk::report(self)
    }

    fn kept_bytes(&self) -> usize {
        Bulk::kept_bytes(self)
    }

    fn open_bytes(&self) -> usize {
        Bulk::open_bytes(self)
    }

    fn added_bytes(&self) -> usize {
        Bulk::added_bytes(self)
    }

    const HOLDS: bool = true;
}

impl LineDecoder for Journal {
    fn feed(&mut self, data: &[u8]) -> Result<(), IngestError> {
        Journal::feed(self, data)
    }

    fn finish(&mut self) -> Result<(), IngestError> {
        Journal::finish(self)
    }

    fn take_full(&mut self) -> Vec<LogsBatch> {
        self.rows.take_full()
    }

    fn take_all(&mut self) -> Vec<LogsBatch> {
        self.rows.take_all()
    }

    fn report(&self) -> &Report {
        &self.rows.report
    }

    fn kept_bytes(&self) -> usize {
        Journal::kept_bytes(self)
    }

    fn open_bytes(&self) -> usize {
        self.rows.open_bytes()
    }

    fn added_bytes(&self) -> usize {
        self.rows.added_bytes()
    }

    const HOLDS: bool = false;
}
