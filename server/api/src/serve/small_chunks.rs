//! A bound on the number of pieces that a body comes in. Each piece costs work of its own however small it is, and a
//! sender of HTTP/1 may cut a body into pieces of one byte. (For HTTP/2 the library has a bound of its own.)

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Bytes that a piece should have on average: less than the shortest line that is worth a piece of its own.
const BYTES_PER_CHUNK: u64 = 16;
/// Chunks that any body may have beyond that.
const CHUNKS_FREE: u64 = 32 * 1024;
/// Further chunks for each second that its sender was waited for, so that a stream of short lines may go on for hours.
const CHUNKS_PER_SECOND: u64 = 1000;

/// The error for a body in too many small chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooManyChunks;

impl fmt::Display for TooManyChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body comes in too many chunks of less than {BYTES_PER_CHUNK} bytes; send larger ones")
    }
}

impl Error for TooManyChunks {}

/// Counts the pieces of a body.
#[derive(Debug, Default)]
pub(super) struct ChunkCount {
    chunks: u64,
    bytes: u64,
    waited: Duration,
}

impl ChunkCount {
    /// Counts a chunk of so many bytes, for which the server waited this long.
    ///
    /// # Errors
    /// The body has had too many chunks for its length.
    pub(super) fn add(&mut self, bytes: usize, waited: Duration) -> Result<(), TooManyChunks> {
        self.chunks += 1;
        self.bytes += bytes as u64;
        self.waited += waited;
        let earned = self.bytes / BYTES_PER_CHUNK + self.waited.as_secs() * CHUNKS_PER_SECOND;
        if self.chunks <= CHUNKS_FREE + earned { Ok(()) } else { Err(TooManyChunks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pieces of so many bytes come before the count refuses one, of a million.
    fn passed(bytes: usize, waited: Duration) -> u64 {
        let mut count = ChunkCount::default();
        (0..1_000_000).take_while(|_| count.add(bytes, waited).is_ok()).count() as u64
    }

    #[test]
    fn pieces_are_paid_for_by_bytes_and_time() {
        assert_eq!(passed(0, Duration::ZERO), CHUNKS_FREE);
        assert_eq!(passed(1, Duration::ZERO), CHUNKS_FREE * 16 / 15);
        assert_eq!(passed(16, Duration::ZERO), 1_000_000);
        assert_eq!(passed(1, Duration::from_millis(1)), 1_000_000);
        // Large pieces earn credit for small ones that follow.
        let mut count = ChunkCount::default();
        count.add(1 << 20, Duration::ZERO).expect("it is the first");
        assert!((0..CHUNKS_FREE + 60_000).all(|_| count.add(1, Duration::ZERO).is_ok()));
    }
}
