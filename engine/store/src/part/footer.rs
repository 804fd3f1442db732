//! The footer of a file with its page indexes: read in one request, verified, parsed once and cached.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;

use quiver_types::tables;

use super::checksum::{BLOCK_BYTES, decode_sums};
use super::directory::Directory;
use super::file::keys;
use super::spans::MINUTES;
use super::{FileMeta, PART_FORMAT};
use crate::error::{Error, ErrorKind, Result};

/// A parsed footer with the checksums of the file's blocks, and which blocks have been verified.
pub struct Footer {
    metadata: Arc<ParquetMetaData>,
    arrow: OnceLock<ArrowReaderMetadata>,
    all_coded: OnceLock<ArrowReaderMetadata>,
    viewed: OnceLock<ArrowReaderMetadata>,
    directory: OnceLock<Option<Arc<Directory>>>,
    minutes: OnceLock<Arc<[(i64, u64)]>>,
    sums: Vec<u32>,
    good: Box<[AtomicU64]>,
    data_end: u64,
    /// First row of each row group, followed by the total number of rows.
    group_starts: Vec<u64>,
    pages: u64,
}

impl fmt::Debug for Footer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Footer").field("rows", &self.rows()).field("data_end", &self.data_end).finish_non_exhaustive()
    }
}

/// Schema for reading the `.rows` of log parts: strings as views, dictionaries unchanged.
fn read_schema(written: &Schema) -> Schema {
    let fields = written.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => Arc::new(Field::new(field.name(), DataType::Utf8View, field.is_nullable())),
        _ => Arc::clone(field),
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The type of dictionary-encoded strings.
fn coded() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

impl Footer {
    /// Verifies and parses the tail of a file.
    pub(super) fn parse(file: &FileMeta, tail: &Bytes) -> Result<Self> {
        if tail.len() as u64 != file.tail_len || crc32c::crc32c(tail) != file.tail_crc {
            return Err(damaged(&file.key, "the checksum of its footer is wrong"));
        }
        let parse_error = |e| damaged(&file.key, "its footer cannot be read").with_source(e);
        let mut reader = ParquetMetaDataReader::new()
            .with_column_index_policy(PageIndexPolicy::Optional)
            .with_offset_index_policy(PageIndexPolicy::Required);
        reader.try_parse_sized(tail, file.bytes).map_err(parse_error)?;
        let metadata = Arc::new(reader.finish().map_err(parse_error)?);
        let data_end = file.bytes - file.tail_len;
        let footer_value = |key: &str| key_value(&metadata, key);
        let version = footer_value(keys::FORMAT).and_then(|v| v.parse::<u32>().ok());
        if version.is_none_or(|v| v > PART_FORMAT) {
            let version = footer_value(keys::FORMAT).unwrap_or("none");
            return Err(Error::internal(format!(
                "file `{}` has format `{version}`, newer than this build knows",
                file.key
            )));
        }
        let sums = footer_value(keys::CRC).and_then(|text| decode_sums(text, data_end));
        let sums = sums.ok_or_else(|| damaged(&file.key, "its checksums cannot be read"))?;
        if row_groups_end(&metadata).is_none_or(|end| end > data_end) {
            return Err(damaged(&file.key, "its columns are not where its footer says"));
        }
        let mut group_starts = vec![0u64];
        for group in metadata.row_groups() {
            group_starts.push(group_starts[group_starts.len() - 1] + group.num_rows() as u64);
        }
        let pages =
            metadata.offset_index().into_iter().flatten().flatten().map(|c| c.page_locations().len() as u64).sum();
        let good = (0..sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (arrow, all_coded, viewed) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (directory, minutes) = (OnceLock::new(), OnceLock::new());
        Ok(Self { metadata, arrow, all_coded, viewed, directory, minutes, sums, good, data_end, group_starts, pages })
    }

    /// The Parquet metadata with page indexes.
    pub fn metadata(&self) -> &Arc<ParquetMetaData> {
        &self.metadata
    }

    /// Metadata for the Arrow reader.
    pub(super) fn arrow(&self, file: &FileMeta) -> Result<&ArrowReaderMetadata> {
        if let Some(arrow) = self.arrow.get() {
            return Ok(arrow);
        }
        let read = |options| {
            ArrowReaderMetadata::try_new(Arc::clone(&self.metadata), options)
                .map_err(|e| damaged(&file.key, "its schema cannot be read").with_source(e))
        };
        let mut arrow = read(ArrowReaderOptions::new())?;
        if self.value(keys::TABLE) == Some(tables::logs::TABLE.name) && file.kind == "rows" {
            let schema = read_schema(arrow.schema());
            arrow = read(ArrowReaderOptions::new().with_schema(Arc::new(schema)))?;
        }
        Ok(self.arrow.get_or_init(|| arrow))
    }

    /// Metadata for the Arrow reader that reads all strings as dictionaries.
    pub(super) fn all_coded(&self, file: &FileMeta) -> Result<&ArrowReaderMetadata> {
        self.texts_as(file, &self.all_coded, |_| Some(coded()))
    }

    /// Metadata for the Arrow reader that reads all strings as views.
    pub(super) fn viewed(&self, file: &FileMeta) -> Result<&ArrowReaderMetadata> {
        self.texts_as(file, &self.viewed, |_| Some(DataType::Utf8View))
    }

    fn texts_as<'f>(
        &'f self,
        file: &FileMeta,
        kept: &'f OnceLock<ArrowReaderMetadata>,
        kind: impl Fn(&Field) -> Option<DataType>,
    ) -> Result<&'f ArrowReaderMetadata> {
        if let Some(known) = kept.get() {
            return Ok(known);
        }
        let fields = self.arrow(file)?.schema().fields().iter().map(|field| match field.data_type() {
            DataType::Utf8 => match kind(field) {
                Some(kind) => Arc::new(Field::new(field.name(), kind, field.is_nullable())),
                None => Arc::clone(field),
            },
            _ => Arc::clone(field),
        });
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        let read = ArrowReaderMetadata::try_new(Arc::clone(&self.metadata), options)
            .map_err(|e| damaged(&file.key, "its schema cannot be read").with_source(e))?;
        Ok(kept.get_or_init(|| read))
    }

    /// Offset of the end of the row groups.
    pub(super) fn data_end(&self) -> u64 {
        self.data_end
    }

    /// Number of data pages of all columns.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn rows(&self) -> u64 {
        self.group_starts[self.group_starts.len() - 1]
    }

    /// First row of each row group, followed by the total number of rows.
    pub(crate) fn group_starts(&self) -> &[u64] {
        &self.group_starts
    }

    /// Locations of the pages of a column in a row group.
    pub(crate) fn page_locations(&self, group: usize, column: usize) -> &[PageLocation] {
        let index = self.metadata.offset_index().and_then(|i| i.get(group)).and_then(|g| g.get(column));
        index.map_or(&[], |c| c.page_locations())
    }

    /// Adds to `bytes` where the dictionary of a column of a row group lies in the file, and the pages that hold `rows`,
    /// which count from the group's first row, ascending and disjoint. Returns the number of these pages.
    pub(super) fn add_pages(
        &self,
        group: usize,
        column: usize,
        rows: impl Iterator<Item = Range<u64>>,
        bytes: &mut Vec<Range<u64>>,
    ) -> u64 {
        let (chunk_start, _) = self.metadata.row_group(group).column(column).byte_range();
        let locations = self.page_locations(group, column);
        if let Some(first) = locations.first().filter(|page| page.offset as u64 > chunk_start) {
            bytes.push(chunk_start..first.offset as u64);
        }
        let (mut next, mut pages) = (0, 0);
        for range in rows {
            let begins = locations.partition_point(|page| page.first_row_index as u64 <= range.start);
            for (at, page) in locations.iter().enumerate().skip(begins.saturating_sub(1).max(next)) {
                if page.first_row_index as u64 >= range.end {
                    break;
                }
                bytes.push(page.offset as u64..page.offset as u64 + page.compressed_page_size as u64);
                next = at + 1;
                pages += 1;
            }
        }
        pages
    }

    /// Index of the first leaf column with this root name.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        let columns = self.metadata.file_metadata().schema_descr().columns();
        columns.iter().position(|c| c.path().parts().first().is_some_and(|p| p == name))
    }

    /// Says whether at least one in `part` bytes of a column of a row group is its dictionary, which is read for any row.
    pub(crate) fn has_large_dictionary(&self, group: usize, column: usize, part: u64) -> bool {
        let (start, length) = self.metadata.row_group(group).column(column).byte_range();
        let pages = self.page_locations(group, column);
        pages.first().is_some_and(|page| (page.offset as u64).saturating_sub(start).saturating_mul(part) >= length)
    }

    /// Value of a footer key.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        key_value(&self.metadata, key)
    }

    /// The directory of labels in an `.index` of metrics; `None` if the footer has none.
    pub(super) fn directory(&self, file: &FileMeta) -> Result<Option<&Arc<Directory>>> {
        if let Some(directory) = self.directory.get() {
            return Ok(directory.as_ref());
        }
        let read = |text| {
            Directory::parse(text, self.rows()).ok_or_else(|| damaged(&file.key, "its rows of labels cannot be read"))
        };
        let directory = self.value(keys::LABEL_ROWS).map(read).transpose()?.map(Arc::new);
        Ok(self.directory.get_or_init(|| directory).as_ref())
    }

    /// Each minute with its first row, ascending; only in the `.rows` of spans.
    pub(super) fn minutes(&self, file: &FileMeta) -> Result<&Arc<[(i64, u64)]>> {
        if let Some(minutes) = self.minutes.get() {
            return Ok(minutes);
        }
        let minutes = self.value(MINUTES).and_then(|text| serde_json::from_str::<Vec<(i64, u64)>>(text).ok());
        let minutes = minutes.ok_or_else(|| damaged(&file.key, "its minutes cannot be read"))?;
        Ok(self.minutes.get_or_init(|| minutes.into()))
    }

    /// Estimates the decoded size in bytes of some rows of columns, from the sizes of their pages.
    pub(super) fn decoded_bytes(&self, columns: &[usize], rows: &[Range<u64>]) -> usize {
        let mut sum = 0;
        for (group, bounds) in self.group_starts.windows(2).enumerate() {
            for &column in columns {
                let chunk = self.metadata.row_group(group).column(column);
                let locations = self.page_locations(group, column);
                let ratio = chunk.uncompressed_size() as f64 / (chunk.compressed_size() as f64).max(1.0);
                let mut next = 0;
                for r in rows {
                    let (start, end) = (r.start.max(bounds[0]), r.end.min(bounds[1]));
                    if start >= end {
                        continue;
                    }
                    let (start, end) = (start - bounds[0], end - bounds[0]);
                    let first = locations.partition_point(|p| p.first_row_index as u64 <= start).saturating_sub(1);
                    let end = locations.partition_point(|p| (p.first_row_index as u64) < end);
                    for page in &locations[first.max(next).min(end)..end] {
                        sum += (f64::from(page.compressed_page_size) * ratio) as usize;
                    }
                    next = next.max(end);
                }
            }
        }
        sum
    }

    /// Estimates the bytes of some rows in all columns, once each row has its own copy of each value: in pages, a text of a
    /// dictionary stands once, however many rows have it.
    pub(super) fn whole_bytes(&self, rows: &Range<u64>) -> u64 {
        let mut sum = 0.0;
        for (group, bounds) in self.group_starts.windows(2).enumerate() {
            let (start, end) = (rows.start.max(bounds[0]), rows.end.min(bounds[1]));
            if start >= end {
                continue;
            }
            let (start, end, len) = (start - bounds[0], end - bounds[0], bounds[1] - bounds[0]);
            for (column, chunk) in self.metadata.row_group(group).columns().iter().enumerate() {
                let pages = self.page_locations(group, column);
                let texts = self.page_texts(group, column);
                let ratio = chunk.uncompressed_size() as f64 / (chunk.compressed_size() as f64).max(1.0);
                let from = pages.partition_point(|page| page.first_row_index as u64 <= start).saturating_sub(1);
                for (at, page) in pages.iter().enumerate().skip(from) {
                    let first = page.first_row_index as u64;
                    if first >= end {
                        break;
                    }
                    let next = pages.get(at + 1).map_or(len, |next| next.first_row_index as u64);
                    let here = next.min(end).saturating_sub(first.max(start));
                    let text = texts.and_then(|texts| texts.get(at)).map_or(0.0, |bytes| *bytes as f64);
                    let of_page = text.max(f64::from(page.compressed_page_size) * ratio);
                    sum += of_page * here as f64 / next.saturating_sub(first).max(1) as f64;
                }
            }
        }
        sum as u64
    }

    /// Bytes of the texts in each page of a column, where the file tells.
    fn page_texts(&self, group: usize, column: usize) -> Option<&Vec<i64>> {
        self.metadata.offset_index()?.get(group)?.get(column)?.unencoded_byte_array_data_bytes()
    }

    /// Tells whether a block has been verified.
    pub(super) fn is_good(&self, block: u64) -> bool {
        self.good[(block / 64) as usize].load(Relaxed) & (1 << (block % 64)) != 0
    }

    /// Verifies the bytes of a block against its checksum, and remembers the block as verified.
    pub(super) fn check_block(&self, file: &FileMeta, block: u64, bytes: &[u8]) -> Result<()> {
        if crc32c::crc32c(bytes) != self.sums[block as usize] {
            return Err(damaged(
                &file.key,
                &format!("the checksum of its bytes from {} is wrong", block * BLOCK_BYTES),
            ));
        }
        self.good[(block / 64) as usize].fetch_or(1 << (block % 64), Relaxed);
        Ok(())
    }

    /// Approximate size in memory, for the cache.
    pub(super) fn memory_bytes(&self) -> u64 {
        // Names are counted twice: in the footer's text and as parsed.
        let directory = self.value(keys::LABEL_ROWS).map_or(0, |text| 3 * text.len());
        let minutes = self.value(MINUTES).map_or(0, str::len);
        let own = directory + minutes + self.sums.len() * 5 + self.group_starts.len() * 8 + 512;
        (self.metadata.memory_size() + own) as u64
    }
}

/// End offset of the last column; `None` if the footer contains a negative or overflowing offset.
pub(super) fn row_groups_end(metadata: &ParquetMetaData) -> Option<u64> {
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let mut ends = columns.map(|c| {
        let start = c.dictionary_page_offset().unwrap_or_else(|| c.data_page_offset());
        u64::try_from(start).ok()?.checked_add(u64::try_from(c.compressed_size()).ok()?)
    });
    ends.try_fold(0, |max, end| Some(max.max(end?)))
}

/// Value of a footer key.
pub(super) fn key_value<'a>(metadata: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|kv| kv.key == key)?.value.as_deref()
}

/// The error for a file whose content is not what was written.
pub(super) fn damaged(key: &str, what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("file `{key}` is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use quiver_types::text::to_base64;

    use super::*;

    /// A file of a hundred numbers with some keys in its footer: its description, its tail, and what comes before that.
    fn written(keys: &[(&str, &str)]) -> (FileMeta, Bytes, Bytes) {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let pairs = keys.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned()));
        let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs.collect())).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let bytes = Bytes::from(writer.into_inner().unwrap());
        let end = row_groups_end(SerializedFileReader::new(bytes.clone()).unwrap().metadata()).unwrap() as usize;
        let tail = bytes.slice(end..);
        let meta = FileMeta {
            kind: "rows".to_owned(),
            key: "t/file".to_owned(),
            bytes: bytes.len() as u64,
            rows: 100,
            tail_len: tail.len() as u64,
            tail_crc: crc32c::crc32c(&tail),
        };
        (meta, tail, bytes.slice(..end))
    }

    /// The checksums of a file, as they stand in its footer.
    fn sums() -> String {
        to_base64(&crc32c::crc32c(&written(&[]).2).to_le_bytes())
    }

    fn parsed(more: &[(&str, &str)]) -> (FileMeta, Footer, Bytes) {
        let sums = sums();
        let (meta, tail, data) = written(&[&[(keys::FORMAT, "1"), (keys::CRC, sums.as_str())][..], more].concat());
        let footer = Footer::parse(&meta, &tail).unwrap();
        (meta, footer, data)
    }

    #[test]
    fn footers_are_refused_for_a_reason() {
        let sums = sums();
        let two = to_base64(&[0; 8]);
        let newer = |version: &str| format!("file `t/file` has format `{version}`, newer than this build knows");
        let unread = || "file `t/file` is damaged: its checksums cannot be read".to_owned();
        let cases: [(&[(&str, &str)], String); 7] = [
            (&[], newer("none")),
            (&[(keys::FORMAT, "2"), (keys::CRC, &sums)], newer("2")),
            (&[(keys::FORMAT, "one"), (keys::CRC, &sums)], newer("one")),
            (&[(keys::FORMAT, "-1"), (keys::CRC, &sums)], newer("-1")),
            (&[(keys::FORMAT, "1")], unread()),
            (&[(keys::FORMAT, "1"), (keys::CRC, "?")], unread()),
            // Those of a file of two blocks.
            (&[(keys::FORMAT, "1"), (keys::CRC, &two)], unread()),
        ];
        for (keys, expected) in cases {
            let (meta, tail, _) = written(keys);
            assert_eq!(Footer::parse(&meta, &tail).unwrap_err().message, expected, "{keys:?}");
        }
    }

    #[test]
    fn a_tail_is_checked_before_it_is_read() {
        let (meta, tail, _) = written(&[(keys::FORMAT, "1"), (keys::CRC, &sums())]);
        let check = |meta: &FileMeta, tail: &[u8], expected: &str| {
            let error = Footer::parse(meta, &Bytes::copy_from_slice(tail)).unwrap_err();
            assert_eq!(error.message, format!("file `t/file` is damaged: {expected}"));
            assert_eq!(error.kind(), ErrorKind::Damaged);
        };
        let wrong = "the checksum of its footer is wrong";
        check(&meta, &tail[1..], wrong);
        check(&meta, &[&tail[..], b"\0"].concat(), wrong);
        let mut flipped = tail.to_vec();
        flipped[tail.len() / 2] ^= 1;
        check(&meta, &flipped, wrong);
        let other = b"no footer at all";
        let of_other = FileMeta { tail_len: 16, tail_crc: crc32c::crc32c(other), ..meta.clone() };
        check(&of_other, other, "its footer cannot be read");
        assert!(Footer::parse(&meta, &tail).is_ok());
    }

    #[test]
    fn blocks_are_remembered_once_they_were_good() {
        let (meta, footer, data) = parsed(&[]);
        assert_eq!((footer.data_end(), footer.rows(), footer.group_starts()), (data.len() as u64, 100, &[0, 100][..]));
        assert!(!footer.is_good(0));
        let mut bad = data.to_vec();
        bad[7] ^= 4;
        let error = footer.check_block(&meta, 0, &bad).unwrap_err();
        assert_eq!(error.message, "file `t/file` is damaged: the checksum of its bytes from 0 is wrong");
        assert!(!footer.is_good(0));
        footer.check_block(&meta, 0, &data).unwrap();
        assert!(footer.is_good(0));
    }

    #[test]
    fn what_a_footer_tells_is_read_when_it_is_asked_for() {
        let (meta, footer, _) = parsed(&[]);
        assert_eq!((footer.column("n"), footer.column("m"), footer.value("other")), (Some(0), None, None));
        assert!(footer.directory(&meta).unwrap().is_none(), "it is no index");
        let error = footer.minutes(&meta).unwrap_err();
        assert_eq!(error.message, "file `t/file` is damaged: its minutes cannot be read");

        let more = [(keys::LABEL_ROWS, r#"[["a",0,60],["b",60,40]]"#), (MINUTES, "[[-5,0],[7,30]]")];
        let (meta, footer, _) = parsed(&more);
        assert!(footer.directory(&meta).unwrap().is_some());
        assert_eq!(footer.minutes(&meta).unwrap()[..], [(-5, 0), (7, 30)]);
        assert!(footer.memory_bytes() > parsed(&[]).1.memory_bytes(), "both count in the cache");

        // Rows of which the file has none.
        let (meta, footer, _) = parsed(&[(keys::LABEL_ROWS, r#"[["a",0,101]]"#)]);
        let error = footer.directory(&meta).unwrap_err();
        assert_eq!(error.message, "file `t/file` is damaged: its rows of labels cannot be read");
    }

    #[test]
    fn a_dictionary_is_large_beside_its_codes() {
        // A hundred numbers of eight bytes, and as many codes of seven bits.
        let (_, footer, _) = parsed(&[]);
        assert_eq!([1, 2, 4].map(|part| footer.has_large_dictionary(0, 0, part)), [false, true, true]);
    }

    #[test]
    fn decoded_bytes_count_each_page_once() {
        let (_, footer, _) = parsed(&[]);
        let bytes = |rows: &[Range<u64>]| footer.decoded_bytes(&[0], rows);
        assert_eq!(footer.pages(), 1);
        let page = bytes(&[0..100]);
        assert!(page > 0);
        for rows in [&[0..1][..], &[99..100], &[0..1, 50..51], &[0..40, 40..100], &[60..500]] {
            assert_eq!(bytes(rows), page, "{rows:?}");
        }
        for rows in [&[][..], &[100..200], &[5..5]] {
            assert_eq!(bytes(rows), 0, "{rows:?}");
        }
        assert_eq!(footer.decoded_bytes(&[], &[0..100]), 0);
        assert_eq!(footer.decoded_bytes(&[0, 0], &[0..100]), 2 * page);
    }
}
