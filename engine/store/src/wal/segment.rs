//! A segment: a file of at most 64 MiB (more if a single write is larger) with records of one generation.
//!
//! Its header has writer, generation, index within the generation, and how many bytes of the previous segment are
//! valid. The file name repeats the first three, for humans and in case the header is damaged.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::memtable::GenerationId;
use crate::wal::disk::{EXTENSION, WalDisk, WalFile};

pub(crate) const HEADER_BYTES: usize = 64;
/// Newest format version that this build supports.
pub(crate) const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"QUIVRWAL";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The generation whose records it holds.
    pub(crate) generation: GenerationId,
    /// Index within the generation, from 0.
    pub(crate) segment: u32,
    /// First sequence number of the generation.
    pub(crate) base_seq: u64,
    /// Valid bytes of the previous segment; what follows there was rewritten in this segment, or its write was answered
    /// with an error.
    pub(crate) previous_bytes: u64,
}

impl SegmentHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.segment.to_le_bytes());
        out[16..32].copy_from_slice(self.generation.writer.as_bytes());
        out[32..40].copy_from_slice(&self.generation.number.to_le_bytes());
        out[40..48].copy_from_slice(&self.base_seq.to_le_bytes());
        out[48..56].copy_from_slice(&self.previous_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header: `None` if it is damaged.
    ///
    /// # Errors
    /// Invalid: the format is newer than this build supports.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Option<Self>> {
        let Some(head) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        if head[..8] != MAGIC || crc32c::crc32c(&head[..60]) != short(60) {
            return Ok(None);
        }
        let version = short(8);
        if version > FORMAT {
            let text = format!(
                "WAL segment `{}` has format version {version}, this build knows versions up to {FORMAT}; start a build \
                 that knows version {version}",
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let writer = Uuid::from_bytes(head[16..32].try_into().expect("16 bytes"));
        Ok(Some(Self {
            generation: GenerationId { writer, number: long(32) },
            segment: short(12),
            base_seq: long(40),
            previous_bytes: long(48),
        }))
    }
}

/// Gives the file name of a segment.
pub(crate) fn file_name(generation: GenerationId, segment: u32) -> String {
    format!("{}-{:08}-{segment:06}.{EXTENSION}", generation.writer, generation.number)
}

/// Parses generation and segment from a file name.
pub(crate) fn parse_file_name(path: &Path) -> Option<(GenerationId, u32)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let (rest, segment) = stem.rsplit_once('-')?;
    let (writer, number) = rest.rsplit_once('-')?;
    let generation = GenerationId { writer: Uuid::try_parse(writer).ok()?, number: number.parse().ok()? };
    Some((generation, segment.parse().ok()?))
}

/// Gives the generation whose records a file holds: its header says so, whatever its name; the name says so where the
/// header is damaged. `None`: it is no segment.
pub(crate) fn generation_of(disk: &dyn WalDisk, path: &Path) -> Option<GenerationId> {
    let named = parse_file_name(path).map(|(generation, _)| generation);
    if named.is_none() && !is_called_one(path) {
        return None;
    }
    // One that cannot be read, or is of a newer format, has its name.
    let head = disk.read_head(path, HEADER_BYTES).unwrap_or_default();
    let header = SegmentHeader::decode(&head, path).ok().flatten();
    header.map(|header| header.generation).or(named)
}

/// Says whether a file has the extension of segments.
pub(crate) fn is_called_one(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Segment {
    file: Box<dyn WalFile>,
    path: PathBuf,
    /// Bytes appended so far.
    bytes: u64,
    /// Valid bytes: those synced, or at level `os` those written.
    good_bytes: u64,
    dir_synced: bool,
}

impl Segment {
    /// Creates the file and writes its header; [`Segment::sync`] makes both durable, including the directory entry.
    pub(crate) fn create(disk: &dyn WalDisk, dir: &Path, header: &SegmentHeader) -> io::Result<Self> {
        let path = dir.join(file_name(header.generation, header.segment));
        let file = disk.create(&path)?;
        let mut segment = Self { file, path, bytes: 0, good_bytes: 0, dir_synced: false };
        segment.append(&header.encode())?;
        Ok(segment)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn sync(&mut self, disk: &dyn WalDisk) -> io::Result<()> {
        self.file.sync()?;
        if !self.dir_synced {
            disk.sync_dir(self.path.parent().unwrap_or(Path::new(".")))?;
            self.dir_synced = true;
        }
        Ok(())
    }

    /// Marks everything appended so far as valid.
    pub(crate) fn accept(&mut self) {
        self.good_bytes = self.bytes;
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn good_bytes(&self) -> u64 {
        self.good_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let generation = GenerationId { writer: Uuid::from_u128(0x0190_7a5c), number: 3 };
        SegmentHeader { generation, segment: 2, base_seq: 99, previous_bytes: 4096 }
    }

    #[test]
    fn header_round_trip_and_damage() {
        let bytes = header().encode();
        let path = Path::new("x.wal");
        assert_eq!(SegmentHeader::decode(&bytes, path).unwrap(), Some(header()));
        for at in 0..bytes.len() {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert_eq!(SegmentHeader::decode(&bad, path).unwrap(), None, "byte {at}");
            assert_eq!(SegmentHeader::decode(&bytes[..at], path).unwrap(), None);
        }
    }

    #[test]
    fn newer_formats_are_refused() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let error = SegmentHeader::decode(&bytes, Path::new("x.wal")).unwrap_err();
        assert!(error.message.contains("`x.wal` has format version 2"), "{error}");
    }

    #[test]
    fn names() {
        let h = header();
        let name = file_name(h.generation, h.segment);
        assert_eq!(parse_file_name(Path::new("/a").join(&name).as_path()), Some((h.generation, 2)));
        for bad in ["", "x", "x.wal", "1-2-3.wal", "00000000-0000-0000-0000-000000000000-1.wal"] {
            assert_eq!(parse_file_name(Path::new(bad)), None, "{bad}");
        }
    }

    /// Breaks if a file is taken for a segment by its name alone.
    #[test]
    fn the_generation_is_that_of_the_header() {
        use crate::wal::disk::LocalDisk;

        let dir = tempfile::tempdir().unwrap();
        let own = header().generation;
        let other = GenerationId { number: own.number + 1, ..own };
        let whole = header().encode().to_vec();
        let damaged = [&whole[..20], &[0xff; 44]].concat();
        for (name, bytes, expected) in [
            (file_name(own, 2), &whole, Some(own)),
            (file_name(other, 2), &whole, Some(own)),
            ("saved.wal".to_owned(), &whole, Some(own)),
            ("saved.wal.bak".to_owned(), &whole, None),
            (file_name(other, 2), &damaged, Some(other)),
            ("notes.wal".to_owned(), &b"notes".to_vec(), None),
        ] {
            let path = dir.path().join(&name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(generation_of(&LocalDisk, &path), expected, "{name}");
        }
        assert_eq!(generation_of(&LocalDisk, &dir.path().join(file_name(own, 9))), Some(own), "it cannot be read");
    }

    #[test]
    fn names_sort_as_the_segments_follow() {
        let of = |number, segment| file_name(GenerationId { writer: Uuid::from_u128(1), number }, segment);
        assert_eq!(of(3, 2), "00000000-0000-0000-0000-000000000001-00000003-000002.wal");
        let names = [of(1, 0), of(1, 9), of(1, 10), of(9, 999_999), of(10, 0), of(99_999_999, 0)];
        assert!(names.is_sorted());
        // Larger numbers are read all the same.
        for (number, segment) in [(u64::MAX, u32::MAX), (100_000_000, 1_000_000), (0, 0)] {
            let expected = (GenerationId { writer: Uuid::from_u128(1), number }, segment);
            assert_eq!(parse_file_name(Path::new(&of(number, segment))), Some(expected));
        }
        let good = of(3, 2);
        for bad in [
            good.replace(".wal", ""),
            good.replace(".wal", ".tmp"),
            good.replace(".wal", ".wal.tmp"),
            good.replace("-000002", ""),
            good.replace("-000002", "-99999999999"),
            good.replace("-00000003", "-x"),
            good.replacen('0', "g", 1),
        ] {
            assert_eq!(parse_file_name(Path::new(&bad)), None, "{bad}");
        }
    }

    #[test]
    fn bytes_count_once_they_are_accepted() {
        use crate::wal::disk::LocalDisk;

        let dir = tempfile::tempdir().unwrap();
        let mut segment = Segment::create(&LocalDisk, dir.path(), &header()).unwrap();
        assert_eq!((segment.bytes(), segment.good_bytes()), (HEADER_BYTES as u64, 0));
        segment.append(b"12345678").unwrap();
        segment.sync(&LocalDisk).unwrap();
        assert_eq!((segment.bytes(), segment.good_bytes()), (72, 0), "synced is not yet accepted");
        segment.accept();
        segment.append(b"1234").unwrap();
        segment.append(b"").unwrap();
        assert_eq!((segment.bytes(), segment.good_bytes()), (76, 72));
        let bytes = std::fs::read(segment.path()).unwrap();
        assert_eq!((bytes.len(), &bytes[HEADER_BYTES..]), (76, &b"123456781234"[..]));
        assert_eq!(SegmentHeader::decode(&bytes, segment.path()).unwrap(), Some(header()));
        assert_eq!(parse_file_name(segment.path()), Some((header().generation, 2)));
        let again = Segment::create(&LocalDisk, dir.path(), &header()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "what was written is never written over");
    }
}
