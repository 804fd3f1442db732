//! Helpers for tests of messages.

use quiver_ingest::wire::{BYTES, FIXED64, Reader};

/// Reads the fields of a message: number, bytes, and the integer.
pub(super) fn read(message: &[u8]) -> Vec<(u32, Vec<u8>, u64)> {
    let (mut reader, mut out) = (Reader::new(message), Vec::new());
    while !reader.is_empty() {
        let tag = reader.tag().expect("a tag");
        out.push(match tag & 7 {
            BYTES => (tag >> 3, reader.bytes().expect("bytes").to_vec(), 0),
            FIXED64 => (tag >> 3, Vec::new(), reader.fixed64().expect("8 bytes")),
            _ => (tag >> 3, Vec::new(), reader.varint().expect("a number")),
        });
    }
    out
}
