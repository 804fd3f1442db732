//! Checksums of a file: one CRC32C per 64 KiB of the row groups (from the start of the file to the end of the last row
//! group), stored in the footer as `quiver.crc`; and one over everything after them, the tail, stored outside the file.

use std::fs::File;
use std::io::{self, Write};

use quiver_types::text::{from_base64, to_base64};

/// Length of a checked block; the last one of a file is shorter.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// The file that a Parquet writer writes to; computes the checksums of what passes through.
#[derive(Debug)]
pub(super) struct SummedFile {
    file: File,
    written: u64,
    block: u32,
    sums: Vec<u32>,
    tail: Option<Tail>,
}

/// Length and CRC32C of what follows the last row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) len: u64,
    pub(super) crc: u32,
}

impl SummedFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, written: 0, block: 0, sums: Vec::new(), tail: None }
    }

    /// Marks the end of the row groups: everything written from now on is the tail. Returns the value of `quiver.crc`.
    pub(super) fn begin_tail(&mut self) -> String {
        if !self.written.is_multiple_of(BLOCK_BYTES) {
            self.sums.push(self.block);
        }
        self.tail = Some(Tail { len: 0, crc: 0 });
        encode_sums(&self.sums)
    }

    pub(super) fn tail(&self) -> Option<Tail> {
        self.tail
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        if let Some(tail) = &mut self.tail {
            tail.crc = crc32c::crc32c_append(tail.crc, bytes);
            tail.len += bytes.len() as u64;
            self.written += bytes.len() as u64;
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = BLOCK_BYTES - self.written % BLOCK_BYTES;
            let (now, later) = rest.split_at(rest.len().min(room as usize));
            self.block = crc32c::crc32c_append(self.block, now);
            self.written += now.len() as u64;
            if self.written.is_multiple_of(BLOCK_BYTES) {
                self.sums.push(std::mem::take(&mut self.block));
            }
            rest = later;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Encodes checksums for the footer: little-endian, then base64.
fn encode_sums(sums: &[u32]) -> String {
    to_base64(&sums.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<_>>())
}

/// Decodes the checksums of row groups that end at `data_end`; `None` if the text is malformed or their number is
/// wrong.
pub(super) fn decode_sums(text: &str, data_end: u64) -> Option<Vec<u32>> {
    let bytes = from_base64(text)?;
    let (sums, rest) = bytes.as_chunks::<4>();
    let complete = rest.is_empty() && sums.len() as u64 == data_end.div_ceil(BLOCK_BYTES);
    complete.then(|| sums.iter().map(|s| u32::from_le_bytes(*s)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_per_block_and_tail() {
        let check = |len: usize| {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let mut file = SummedFile::new(tempfile::tempfile().unwrap());
            for piece in data.chunks(10_007) {
                file.write_all(piece).unwrap();
            }
            let text = file.begin_tail();
            file.write_all(b"tail").unwrap();
            assert_eq!(file.tail(), Some(Tail { len: 4, crc: crc32c::crc32c(b"tail") }));
            assert_eq!(file.written(), len as u64 + 4);
            let sums: Vec<u32> = data.chunks(BLOCK_BYTES as usize).map(crc32c::crc32c).collect();
            assert_eq!(decode_sums(&text, len as u64), Some(sums));
            assert_eq!(decode_sums(&text, len as u64 + BLOCK_BYTES), None);
        };
        for len in [0, 1, 65_535, 65_536, 65_537, 200_000] {
            check(len);
        }
    }
    #[test]
    fn sums_are_those_of_a_file_of_that_length() {
        let text = encode_sums(&[1, 0x0102_0304, u32::MAX]);
        let end = |blocks: u64| blocks * BLOCK_BYTES;
        for data_end in [end(2) + 1, end(3) - 1, end(3)] {
            assert_eq!(decode_sums(&text, data_end), Some(vec![1, 0x0102_0304, u32::MAX]), "{data_end}");
        }
        for data_end in [0, 1, end(2), end(3) + 1, u64::MAX] {
            assert_eq!(decode_sums(&text, data_end), None, "{data_end}");
        }
        assert_eq!(decode_sums("", 0), Some(Vec::new()));
        // Five bytes, and what is no base64.
        assert_eq!(decode_sums(&to_base64(&[0; 5]), 1), None);
        assert_eq!(decode_sums("AAAA?AA=", 1), None);
    }
}
