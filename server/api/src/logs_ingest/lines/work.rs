//! One decoding step: takes pieces of a body, returns batches of rows. Runs on the blocking thread.

use bytes::Bytes;
use quiver_ingest::content_encoding::Inflate;
use quiver_types::{LogsBatch, Result};
use xxhash_rust::xxh3::Xxh3;

use crate::body_memory::Share;
use crate::logs_ingest::decoders::LineDecoder;
use crate::logs_ingest::request::ours;

/// State that is passed back and forth between the task that reads the body and the thread that decodes.
pub(super) struct Work<D> {
    pub(super) decoder: D,
    pub(super) inflate: Inflate,
    /// Memory for encodings that can only be decompressed as a whole.
    pub(super) room: Share,
    pub(super) buffer: Vec<u8>,
    /// Hash of the body, if the request has an `Idempotency-Key`.
    pub(super) hash: Option<Box<Xxh3>>,
}

/// The result of one turn of decoding.
pub(super) struct Turn {
    pub(super) batches: Vec<LogsBatch>,
    /// Whether there is more to decode without another piece. An error means that the body is broken.
    pub(super) more: Result<bool>,
}

impl<D: LineDecoder> Work<D> {
    pub(super) fn turn(&mut self, pieces: Vec<Bytes>, ended: bool) -> Turn {
        let mut batches = Vec::new();
        let more = self.decode(pieces, ended, &mut batches);
        Turn { batches, more }
    }

    fn decode(&mut self, pieces: Vec<Bytes>, ended: bool, batches: &mut Vec<LogsBatch>) -> Result<bool> {
        for piece in pieces {
            self.inflate.push(piece).map_err(ours)?;
        }
        if ended {
            self.inflate.end(&mut |bytes| self.room.try_hold(bytes)).map_err(ours)?;
        }
        while let Some(len) = self.inflate.read(&mut self.buffer).map_err(ours)? {
            if len == 0 {
                self.decoder.finish().map_err(ours)?;
                batches.extend(self.decoder.take_all());
                break;
            }
            if let Some(hash) = &mut self.hash {
                hash.update(&self.buffer[..len]);
            }
            self.decoder.feed(&self.buffer[..len]).map_err(ours)?;
            let full = self.decoder.take_full();
            if !full.is_empty() {
                batches.extend(full);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
