//! The id of a series.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The identity of a series: XXH3-128 over the canonical bytes of its label set (`docs/formats/part.md`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct SeriesId(pub u128);

impl SeriesId {
    /// Hashes the canonical bytes of a label set.
    pub fn of(canonical: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(canonical))
    }

    /// Gives the 16 bytes as stored: big endian.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads the 16 bytes as stored.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Debug for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
