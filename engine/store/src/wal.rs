//! The write-ahead log: an acknowledged write is kept here, synced, until it is in a part (`docs/formats/wal.md`).
//!
//! Each segment file belongs to one generation; its records have checksums, and their bodies are Arrow IPC messages.
//! One thread writes (`writer`); [`replay`] turns the segments found at the start back into the generations that they
//! were.

pub(crate) mod codec;
pub mod disk;
pub(crate) mod folder;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod segment;
