//! The trace that the shim writes: a head of 32 bytes (`struct head`), two paths, data; one after the other.

use std::ops::Range;
use std::path::Path;

/// Inode number, as the trace names nodes; used again after a file is gone.
pub type Inode = u64;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The folder that is watched.
    Root(Inode),
    /// A file that was not there.
    Create(String, Inode),
    /// Bytes of a file from some place on; the bytes lie in [`Trace::bytes`].
    Write(Inode, u64, Range<usize>),
    /// A new length.
    Truncate(Inode, u64),
    /// A sync began; its token.
    SyncBegin(Inode, u64),
    /// It ended well.
    SyncEnd(u64),
    /// A sync failed: what was not synced before never will be.
    SyncFailed(Inode),
    /// Another name.
    Rename(String, String),
    /// A file's name is gone.
    Unlink(String),
    /// A folder that was not there.
    Mkdir(String, Inode),
    /// A folder is gone.
    Rmdir(String),
    /// A second name of a file.
    Link(String, String),
}

/// Changes in their order, each with the place after it.
#[derive(Debug)]
pub struct Trace {
    /// The trace as it was written.
    pub bytes: Vec<u8>,
    /// Changes, and where each ends.
    pub changes: Vec<(Change, u64)>,
}

const HEAD_BYTES: usize = 32;

impl Trace {
    /// Reads a trace; paths become relative to `root`, which is the empty one.
    pub(super) fn parse(bytes: Vec<u8>, root: &Path) -> Self {
        let mut changes = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let head = &bytes[at..at + HEAD_BYTES];
            let short = |i: usize| u32::from_le_bytes(head[i * 4..][..4].try_into().expect("4 bytes"));
            let long = |i: usize| u64::from_le_bytes(head[16 + i * 8..][..8].try_into().expect("8 bytes"));
            let (op, path, other, data) = (short(0), short(1) as usize, short(2) as usize, short(3) as usize);
            let (node, place) = (long(0), long(1));
            let text = |range: Range<usize>| {
                let path = Path::new(std::str::from_utf8(&bytes[range]).expect("paths are UTF-8"));
                path.strip_prefix(root).expect("below the root").to_str().expect("UTF-8").to_owned()
            };
            let first = at + HEAD_BYTES;
            let (second, third) = (first + path, first + path + other);
            let end = third + data;
            let change = match op {
                1 => Change::Root(node),
                2 => Change::Create(text(first..second), node),
                3 => Change::Write(node, place, third..end),
                4 => Change::Truncate(node, place),
                5 => Change::SyncBegin(node, place),
                6 => Change::SyncEnd(place),
                7 => Change::SyncFailed(node),
                8 => Change::Rename(text(first..second), text(second..third)),
                9 => Change::Unlink(text(first..second)),
                10 => Change::Mkdir(text(first..second), node),
                11 => Change::Rmdir(text(first..second)),
                12 => Change::Link(text(first..second), text(second..third)),
                other => panic!("a change of kind {other} at {at}"),
            };
            changes.push((change, end as u64));
            at = end;
        }
        Self { bytes, changes }
    }
}
