//! Reads WAL segments as specified in `docs/formats/wal.md`, without the store's code, so that tests can damage them at
//! known positions.

use std::path::{Path, PathBuf};

const SEGMENT_MAGIC: &[u8] = b"QUIVRWAL";
const RECORD_MAGIC: &[u8] = b"QvR1";
const SEGMENT_HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 32;

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// First byte of its header.
    pub(crate) start: usize,
    /// After its last byte.
    pub(crate) end: usize,
    /// Sequence number of its write.
    pub(crate) seq: u64,
    /// Kind: 0 definitions, 1 samples.
    pub(crate) kind: u16,
}

/// A segment with the records in it.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// All of it.
    pub(crate) bytes: Vec<u8>,
    /// Its records.
    pub(crate) records: Vec<Record>,
}

/// Reads the newest segment of a data directory: the last one of the last generation of the last writer.
pub(crate) fn newest_segment(data: &Path) -> SegmentFile {
    let entries = std::fs::read_dir(data.join("wal")).expect("a WAL");
    let paths = entries.map(|e| e.expect("readable").path()).filter(|p| p.extension().is_some_and(|e| e == "wal"));
    // Writers are ordered by time, and all numbers are padded.
    let path = paths.max().expect("a segment");
    let bytes = std::fs::read(&path).expect("readable");
    assert_eq!(&bytes[..8], SEGMENT_MAGIC);
    let mut records = Vec::new();
    let mut start = SEGMENT_HEADER_BYTES;
    while start < bytes.len() {
        let head = &bytes[start..start + RECORD_HEADER_BYTES];
        assert_eq!(&head[..4], RECORD_MAGIC, "a record at {start}");
        let length = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
        let seq = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
        let kind = u16::from_le_bytes(head[20..22].try_into().expect("2 bytes"));
        let end = start + RECORD_HEADER_BYTES + length;
        records.push(Record { start, end, seq, kind });
        start = end;
    }
    SegmentFile { path, bytes, records }
}

/// Copies a data directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
