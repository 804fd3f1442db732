//! Limits the expansion of a decompressor. A body that expands too much is refused as soon as it does, long before a
//! limit on its total size; the first few MiB are always allowed.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Output bytes per input byte that are allowed in the long run. Logs of a repeated line reach about 150 in gzip.
const RATIO_MAX: u64 = 200;
/// Output bytes that are allowed beyond that at any time.
const FREE_BYTES: u64 = 2 << 20;

/// Compares output with input.
#[derive(Debug)]
pub(super) struct Ratio {
    taken: Arc<AtomicU64>,
    /// Of `taken`, what is already in `left`.
    seen: u64,
    /// Bytes that may still be given. It never grows beyond the free ones, so that a body does not earn a bomb at its end.
    left: u64,
}

/// Why reading ended: so many bytes would have been in order.
#[derive(Debug)]
struct TooMuch(u64);

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gives more than {} bytes", self.0)
    }
}

impl Error for TooMuch {}

/// How many bytes would have been in order, if that is why reading ended.
pub(super) fn limit_of(error: &io::Error) -> Option<usize> {
    Some(error.get_ref()?.downcast_ref::<TooMuch>()?.0 as usize)
}

impl Ratio {
    /// Begins to count the bytes of a body.
    pub(super) fn of<R>(body: R) -> (Self, CountingReader<R>) {
        let taken = Arc::new(AtomicU64::new(0));
        (Self { taken: Arc::clone(&taken), seen: 0, left: FREE_BYTES }, CountingReader { inner: body, taken })
    }

    fn count_output(&mut self, bytes: usize) -> io::Result<()> {
        let taken = self.taken.load(Relaxed);
        let earned = (taken - self.seen).saturating_mul(RATIO_MAX);
        self.seen = taken;
        // What was just given counts against what it was made of before the rest is capped.
        let left = (self.left + earned).checked_sub(bytes as u64);
        let too_much = || io::Error::new(io::ErrorKind::InvalidData, TooMuch(taken * RATIO_MAX + FREE_BYTES));
        self.left = left.ok_or_else(too_much)?.min(FREE_BYTES);
        Ok(())
    }
}

/// An input that counts the bytes read.
#[derive(Debug)]
pub(super) struct CountingReader<R> {
    inner: R,
    taken: Arc<AtomicU64>,
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.taken.fetch_add(len as u64, Relaxed);
        self.inner.consume(len);
    }
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        self.taken.fetch_add(len as u64, Relaxed);
        Ok(len)
    }
}

/// A decompressor that fails when it expands too much.
pub(super) struct Guard<R> {
    inner: R,
    ratio: Ratio,
}

impl<R> Guard<R> {
    pub(super) fn new(inner: R, ratio: Ratio) -> Self {
        Self { inner, ratio }
    }
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(out)?;
        self.ratio.count_output(len)?;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(parts: &[(usize, u8)]) -> Vec<u8> {
        let mut gzip = Vec::new();
        for (i, (len, byte)) in parts.iter().enumerate() {
            let mut encoder = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::default());
            let noise = |n: usize| (n as u64 ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let data: Vec<u8> = match byte {
                0 => vec![0; *len],
                _ => (0..len / 8).flat_map(noise).collect(),
            };
            io::Write::write_all(&mut encoder, &data).expect("memory");
            encoder.finish().expect("memory");
        }
        gzip
    }

    fn read(packed: &[u8]) -> Result<usize, Option<usize>> {
        let (ratio, body) = Ratio::of(packed);
        let mut guard = Guard::new(flate2::bufread::MultiGzDecoder::new(body), ratio);
        let mut out = Vec::new();
        guard.read_to_end(&mut out).map_err(|e| limit_of(&e))
    }

    #[test]
    fn bombs_behind_any_prefix() {
        assert_eq!(read(&body(&[(2 << 20, 0)])), Ok(2 << 20), "a little may be anything");
        assert!(matches!(read(&body(&[(32 << 20, 0)])), Err(Some(_))));
        // Earlier input earns no allowance.
        assert!(matches!(read(&body(&[(4 << 20, 1), (32 << 20, 0)])), Err(Some(_))));
        let mixed: Vec<_> = (0..40).map(|i| (1 << 20, i % 2)).collect();
        assert_eq!(read(&body(&mixed)), Ok(40 << 20), "it is usual as a whole");
    }
}
