//! A growing column of texts or bytes.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, StringArray};
use arrow::buffer::{Buffer, OffsetBuffer};

/// About as many as one span may add.
const SPAN_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// A zero before the first.
    pub(super) ends: Vec<i32>,
    pub(super) bytes: Vec<u8>,
}

impl Bytes {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    pub(super) fn end(&mut self) {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        self.ends.push(self.bytes.len() as i32);
    }

    /// Bytes that stand in memory twice while it moves to a larger place, if that may be soon.
    pub(super) fn moving_bytes(&self) -> usize {
        let is_near = self.bytes.capacity() - self.bytes.len() < SPAN_BYTES;
        if is_near { self.bytes.len() } else { 0 }
    }

    fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
        if ends.is_empty() { OffsetBuffer::new_empty() } else { OffsetBuffer::new(ends.into()) }
    }

    pub(super) fn text(self) -> ArrayRef {
        // Everything that is pushed as text came as `&str`.
        Arc::new(StringArray::new(Self::offsets(self.ends), Buffer::from_vec(self.bytes), None))
    }

    pub(super) fn binary(mut self) -> ArrayRef {
        if self.bytes.capacity() > self.bytes.len() + self.bytes.len() / 8 {
            self.bytes.shrink_to_fit();
        }
        Arc::new(BinaryArray::new(Self::offsets(self.ends), Buffer::from_vec(self.bytes), None))
    }
}
