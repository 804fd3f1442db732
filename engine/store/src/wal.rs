//! The write-ahead log: what is acknowledged stands here, synced, until it is in a part (`docs/formats/wal.md`).
//!
//! Segment files of one generation each; records with checksums whose bodies are Arrow IPC messages. One thread
//! writes (`writer`); [`replay`] turns segments found at start into the generations that they were.

pub(crate) mod codec;
pub mod disk;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod segment;
