//! The frame of a WAL record: header, checksum, and how the next valid record is found after a damaged one.
//!
//! The layout is described in `docs/formats/wal.md`. All numbers are little-endian; records start at multiples of 8.

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 32;
/// First bytes of each record, used to find records after damage.
pub(crate) const MAGIC: [u8; 4] = *b"QvR1";
/// Flag: the last record of its write.
pub(crate) const LAST: u16 = 1;
/// Flag: the body has the optional column of its kind (samples: `start_ts`).
pub(crate) const OPTIONAL: u16 = 2;
/// Flag: the body has the second optional column of its kind, too; never without [`OPTIONAL`].
pub(crate) const OPTIONAL_2: u16 = 4;

/// The header fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Sequence number of the write that it belongs to.
    pub(crate) seq: u64,
    pub(crate) table: u16,
    /// Version of the table's schema.
    pub(crate) version: u16,
    /// Kind of record within the table.
    pub(crate) kind: u16,
    /// [`LAST`], [`OPTIONAL`], [`OPTIONAL_2`].
    pub(crate) flags: u16,
    /// Index among the data records of its write; definitions do not count.
    pub(crate) index: u16,
}

/// Starts a record at the end of `out`; append the body, then call [`finish`].
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    debug_assert!(out.len().is_multiple_of(8), "records are aligned");
    let at = out.len();
    out.resize(at + HEADER_BYTES, 0);
    at
}

/// Finishes the record that started at `at`: fills in header and checksum.
pub(crate) fn finish(out: &mut [u8], at: usize, header: Header) {
    let record = &mut out[at..];
    let (head, body) = record.split_at_mut(HEADER_BYTES);
    debug_assert!(body.len().is_multiple_of(8), "bodies are padded");
    head[0..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&header.seq.to_le_bytes());
    for (i, v) in [header.table, header.version, header.kind, header.flags, header.index].iter().enumerate() {
        head[16 + 2 * i..18 + 2 * i].copy_from_slice(&v.to_le_bytes());
    }
    let check = head_check(head);
    head[26..28].copy_from_slice(&check.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), body);
    head[28..32].copy_from_slice(&crc.to_le_bytes());
}

/// A checksum of the header alone, so that the length can be trusted even if the body is damaged.
fn head_check(head: &[u8]) -> u16 {
    crc32c::crc32c(&head[..26]) as u16
}

/// What is at a position of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentEntry {
    /// A valid record; its body ends at `end`.
    Record(Header, usize),
    /// A record that runs past the end of the file, or zeros: the result of an incomplete write.
    Torn,
    /// A complete record with a valid header and a wrong checksum; it ends there.
    Damaged(usize),
    /// No valid header.
    Unknown,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Examines position `at`, which must be less than the segment's length.
pub(crate) fn read(segment: &[u8], at: usize) -> SegmentEntry {
    let Some(head) = segment.get(at..at + HEADER_BYTES) else { return SegmentEntry::Torn };
    if head[..4] != MAGIC || u16::from_le_bytes(number(head, 26)) != head_check(head) {
        return if head.iter().all(|&b| b == 0) { SegmentEntry::Torn } else { SegmentEntry::Unknown };
    }
    let length = u32::from_le_bytes(number(head, 4)) as usize;
    let end = at + HEADER_BYTES + length;
    let Some(body) = segment.get(at + HEADER_BYTES..end) else { return SegmentEntry::Torn };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), body);
    if crc != u32::from_le_bytes(number(head, 28)) || !length.is_multiple_of(8) {
        return SegmentEntry::Damaged(end);
    }
    let short = |at| u16::from_le_bytes(number(head, at));
    let header = Header {
        seq: u64::from_le_bytes(number(head, 8)),
        table: short(16),
        version: short(18),
        kind: short(20),
        flags: short(22),
        index: short(24),
    };
    SegmentEntry::Record(header, end)
}

/// Number of records in a damaged stretch, as far as headers tell; at least one.
pub(crate) fn count_damaged(segment: &[u8], from: usize, to: usize) -> u64 {
    let (mut at, mut count) = (from, 0);
    while at < to {
        count += 1;
        match read(segment, at) {
            SegmentEntry::Damaged(end) if end <= to => at = end,
            _ => break,
        }
    }
    count
}

/// Finds the next valid record after damage at `from`.
pub(crate) fn next_good(segment: &[u8], from: usize) -> Option<usize> {
    let first = (from + 1).next_multiple_of(8);
    (first..segment.len())
        .step_by(8)
        .filter(|&at| segment[at..].starts_with(&MAGIC))
        .find(|&at| matches!(read(segment, at), SegmentEntry::Record(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let at = begin(&mut out);
        out.extend_from_slice(body);
        finish(&mut out, at, Header { seq, table: 1, version: 2, kind: 3, flags: LAST, index: 4 });
        out
    }

    #[test]
    fn round_trip() {
        let bytes = record(7, b"12345678");
        let header = Header { seq: 7, table: 1, version: 2, kind: 3, flags: LAST, index: 4 };
        assert_eq!(read(&bytes, 0), SegmentEntry::Record(header, bytes.len()));
    }

    #[test]
    fn every_flip_and_cut_is_seen() {
        let bytes = record(7, b"12345678abcdefgh");
        for at in 0..bytes.len() {
            assert_eq!(read(&bytes[..at], 0), SegmentEntry::Torn);
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let expected = if at < 28 { SegmentEntry::Unknown } else { SegmentEntry::Damaged(bytes.len()) };
                assert_eq!(read(&bad, 0), expected, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn finds_the_next_good_one() {
        let mut bytes = record(1, &[1; 64]);
        let second = bytes.len();
        bytes.extend(record(2, &[2; 64]));
        let third = bytes.len();
        bytes.extend(record(3, &[3; 64]));
        bytes[second + 40] ^= 1;
        assert_eq!(read(&bytes, second), SegmentEntry::Damaged(third));
        assert_eq!(next_good(&bytes, 0), Some(third));
        assert_eq!(next_good(&bytes, third), None);
        bytes[4 + 32] ^= 1;
        assert_eq!(count_damaged(&bytes, 0, third), 2);
    }

    #[test]
    fn headers_come_back_with_their_greatest_numbers() {
        let header = Header { seq: u64::MAX, table: u16::MAX, version: 0, kind: 7, flags: OPTIONAL_2, index: u16::MAX };
        let mut out = vec![0; 64];
        let at = begin(&mut out);
        finish(&mut out, at, header);
        assert_eq!((at, out.len()), (64, 64 + HEADER_BYTES), "without a body");
        assert_eq!(read(&out, at), SegmentEntry::Record(header, out.len()));
    }

    #[test]
    fn zeros_and_rests_are_torn() {
        let zeros = vec![0; 200];
        for at in [0, 8, 160, 168, 192, 199] {
            assert_eq!(read(&zeros, at), SegmentEntry::Torn, "at {at}");
        }
        let mut noise = zeros.clone();
        noise[31] = 1;
        assert_eq!((read(&noise, 0), read(&noise, 32)), (SegmentEntry::Unknown, SegmentEntry::Torn));
        // A good header whose body is not all there.
        let whole = record(7, &[5; 64]);
        for end in [HEADER_BYTES, HEADER_BYTES + 1, whole.len() - 1] {
            assert_eq!(read(&whole[..end], 0), SegmentEntry::Torn, "{end} bytes");
        }
    }

    /// What looks like the beginning of a record may stand in a text.
    #[test]
    fn the_magic_alone_makes_no_record() {
        let body: Vec<u8> = MAGIC.repeat(40);
        let mut bytes = record(1, &body);
        let second = bytes.len();
        bytes.extend(record(2, &body));
        bytes[HEADER_BYTES + 3] ^= 1;
        assert_eq!(read(&bytes, 0), SegmentEntry::Damaged(second));
        assert_eq!(next_good(&bytes, 0), Some(second));
        assert_eq!(next_good(&bytes, second), None);
        assert_eq!(next_good(&bytes, bytes.len()), None);
        assert_eq!(next_good(&[], 0), None);
        // Records begin at multiples of 8 alone.
        let mut shifted = vec![0; 4];
        shifted.extend(record(1, &[1; 8]));
        assert_eq!(next_good(&shifted, 0), None);
    }

    #[test]
    fn damage_counts_the_records_that_headers_tell() {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for seq in 0..4 {
            starts.push(bytes.len());
            bytes.extend(record(seq, &[9; 24]));
        }
        let end = bytes.len();
        // The bodies of the first three.
        starts[..3].iter().for_each(|at| bytes[at + HEADER_BYTES] ^= 1);
        assert_eq!(count_damaged(&bytes, starts[0], starts[3]), 3);
        assert_eq!(count_damaged(&bytes, starts[1], starts[3]), 2);
        assert_eq!(count_damaged(&bytes, starts[0], starts[1] + 8), 2, "a stretch that ends within one");
        assert_eq!(count_damaged(&bytes, starts[0], starts[0]), 0);
        // After an unreadable header the number of records is unknown.
        bytes[starts[1]] ^= 1;
        assert_eq!(count_damaged(&bytes, starts[0], starts[3]), 2);
        assert_eq!(count_damaged(&bytes, starts[3], end), 1, "at least one");
        assert_eq!(next_good(&bytes, starts[0]), Some(starts[3]));
    }
}
