//! The decoders of the line formats, as who streams a body drives them.

use quiver_ingest::Error as IngestError;
use quiver_ingest::logs::bulk::Bulk;
use quiver_ingest::logs::{JsonLines, Report};
use quiver_types::LogsBatch;

/// A decoder of lines.
pub(super) trait LineDecoder: Send + 'static {
    /// Reads a piece.
    fn feed(&mut self, data: &[u8]) -> Result<(), IngestError>;
    /// Reads the last line.
    fn finish(&mut self) -> Result<(), IngestError>;
    /// Takes full batches.
    fn take_full(&mut self) -> Vec<LogsBatch>;
    /// Takes all batches.
    fn take_all(&mut self) -> Vec<LogsBatch>;
    /// What became of the rows.
    fn report(&self) -> &Report;
    /// Bytes that are kept until the end, besides batches.
    fn kept_bytes(&self) -> usize;
    /// Bytes of rows that no full batch holds.
    fn open_bytes(&self) -> usize;
    /// Whether nothing may be stored before the whole is read.
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

    const HOLDS: bool = true;
}
