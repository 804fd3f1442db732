//! Writes one Parquet file of a part: footer keys, checksums, fsync. The file is deleted again unless the part is
//! finished.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::checksum::SummedFile;
use super::row_groups::{ColumnCopy, GroupWriter};
use super::{FileMeta, PART_FORMAT, PartCompression, PartMeta, PartOrigin, PartSpec, part_key};
use crate::error::{Context, Result, io_error};
use crate::layout::{create_dir_synced, sync_dir};

/// Rows per page of samples.
pub(crate) const PAGE_ROWS: usize = 8192;

/// Names of the footer keys.
pub(super) mod keys {
    pub(crate) const FORMAT: &str = "quiver.format";
    pub(crate) const TABLE: &str = "quiver.table";
    pub(crate) const PART: &str = "quiver.part";
    pub(crate) const LEVEL: &str = "quiver.level";
    pub(crate) const ORIGIN: &str = "quiver.origin";
    pub(crate) const MIN_TIME: &str = "quiver.min_time";
    pub(crate) const MAX_TIME: &str = "quiver.max_time";
    pub(crate) const ROWS: &str = "quiver.rows";
    pub(crate) const SORT_KEY: &str = "quiver.sort_key";
    pub(crate) const CRC: &str = "quiver.crc";
    pub(crate) const LABELS: &str = "quiver.labels";
    pub(crate) const LABEL_ROWS: &str = "quiver.label_rows";
    pub(crate) const META: &str = "quiver.meta";
    pub(crate) const META_CRC: &str = "quiver.meta_crc";
}

/// A part being written: where, as what, and its files so far, which are deleted on drop unless the part is finished.
#[derive(Debug)]
pub(super) struct Draft {
    root: PathBuf,
    pub(super) spec: PartSpec,
    files: Vec<PathBuf>,
}

impl Draft {
    /// Begins a part; its files will be `root/<key>`.
    pub(super) fn new(root: &Path, spec: PartSpec) -> Self {
        Self { root: root.to_owned(), spec, files: Vec::new() }
    }

    /// Marks the part as finished, so that its files stay.
    pub(super) fn keep(&mut self) {
        self.files.clear();
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        for path in &self.files {
            // The catalog lists these keys as pending, so a file that cannot be deleted now is deleted by a later run.
            if let Err(error) = std::fs::remove_file(path) {
                tracing::debug!(path = %path.display(), %error, "cannot delete the file of an unfinished part");
            }
        }
    }
}

/// A file being written.
pub(super) struct PartFile {
    writer: GroupWriter,
    path: PathBuf,
    kind: &'static str,
    key: String,
    rows: u64,
}

impl PartFile {
    /// Creates a file of a part, with its directories.
    pub(super) fn create(
        draft: &mut Draft,
        kind: &'static str,
        schema: SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self> {
        Self::create_as(draft, kind, &schema, &schema, properties)
    }

    /// Like `create`, with a separate Arrow schema for the footer (with dictionary types where columns are written as
    /// plain text).
    pub(super) fn create_as(
        draft: &mut Draft,
        kind: &'static str,
        schema: &SchemaRef,
        shown: &SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self> {
        let Draft { root, spec, .. } = &*draft;
        let key = part_key(&spec.table, spec.day, spec.id, kind);
        let path = root.join(&key);
        let failed = |e| io_error(format!("cannot create `{key}`"), e);
        create_dir_synced(path.parent().unwrap_or(root))?;
        let file = File::options().write(true).create_new(true).open(&path).map_err(failed)?;
        draft.files.push(path.clone());
        let mut writer = GroupWriter::create(SummedFile::new(file), Arc::clone(schema), properties)
            .internal(format!("cannot begin `{key}`"))?;
        writer.put(KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), encode_arrow_schema(shown)));
        Ok(Self { writer, path, kind, key, rows: 0 })
    }

    /// Appends rows to the open row group.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|e| write_error(&self.key, e))
    }

    /// Bytes of the open row group that are in memory.
    pub(super) fn open_bytes(&self) -> usize {
        self.writer.open_bytes()
    }

    /// Ends the open row group.
    pub(super) fn end_group(&mut self) -> Result<()> {
        self.writer.end_group().map_err(|e| write_error(&self.key, e))
    }

    /// Appends a row group of already encoded columns; see [`GroupWriter::append`].
    pub(super) fn append_group(&mut self, rows: u64, columns: Vec<Option<ColumnCopy>>) -> Result<()> {
        self.rows += rows;
        self.writer.append(rows as usize, columns).map_err(|e| write_error(&self.key, e))
    }

    /// The leaf columns of the file. Encoded columns of another file can be copied here if they have the same leaf.
    pub(super) fn leaves(&self) -> &[parquet::schema::types::ColumnDescPtr] {
        self.writer.leaves()
    }

    /// Adds a key to the footer.
    pub(super) fn put(&mut self, key: &str, value: impl Into<String>) {
        self.writer.put(KeyValue::new(key.to_owned(), value.into()));
    }

    /// Adds the part's description with a checksum of its own: a rebuild of the catalog reads it without knowing the
    /// footer's checksum.
    pub(super) fn put_meta(&mut self, meta: &PartMeta) -> Result<()> {
        let text = serde_json::to_string(meta).internal("cannot write a part's description")?;
        self.put(keys::META_CRC, crc32c::crc32c(text.as_bytes()).to_string());
        self.put(keys::META, text);
        Ok(())
    }

    /// Rows written so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Path on disk.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the footer, and syncs the file and its directory.
    pub(super) fn finish(mut self, spec: &PartSpec, range: (i64, i64), sort_key: &[&str]) -> Result<FileMeta> {
        self.put(keys::FORMAT, PART_FORMAT.to_string());
        self.put(keys::TABLE, spec.table.clone());
        self.put(keys::PART, spec.id.to_string());
        self.put(keys::LEVEL, spec.level.to_string());
        self.put(keys::ORIGIN, origin_text(&spec.origin)?);
        self.put(keys::MIN_TIME, range.0.to_string());
        self.put(keys::MAX_TIME, range.1.to_string());
        self.put(keys::ROWS, self.rows.to_string());
        self.put(keys::SORT_KEY, sort_key.join(","));
        let failed = |e| write_error(&self.key, e);
        self.writer.end_group().map_err(failed)?;
        let io_failed = |e| io_error(format!("cannot write `{}`", self.key), e);
        self.writer.sync().map_err(io_failed)?;
        let sums = self.writer.inner_mut().begin_tail();
        self.put(keys::CRC, sums);
        self.writer.finish().map_err(|e| write_error(&self.key, e))?;
        let inner = self.writer.inner();
        let io_failed = |e| io_error(format!("cannot sync `{}`", self.key), e);
        inner.file().sync_all().map_err(io_failed)?;
        if let Some(directory) = self.path.parent() {
            sync_dir(directory)?;
        }
        let tail = inner.tail().expect("the tail was begun above");
        Ok(FileMeta {
            kind: self.kind.to_owned(),
            bytes: inner.written(),
            rows: self.rows,
            tail_len: tail.len,
            tail_crc: tail.crc,
            key: self.key,
        })
    }
}

/// Converts an error of the Parquet writer; a full disk inside it keeps its kind.
fn write_error(key: &str, error: parquet::errors::ParquetError) -> crate::Error {
    let what = format!("cannot write `{key}`");
    if let parquet::errors::ParquetError::External(source) = &error
        && let Some(io) = source.downcast_ref::<std::io::Error>()
    {
        return io_error(what, std::io::Error::new(io.kind(), error.to_string()));
    }
    crate::Error::internal(what).with_source(error)
}

fn origin_text(origin: &PartOrigin) -> Result<String> {
    serde_json::to_string(origin).internal("cannot write a part's origin")
}

/// Compression of the columns that are not samples.
pub(super) fn codec(compression: PartCompression) -> Compression {
    match compression {
        PartCompression::Fresh => Compression::LZ4_RAW,
        PartCompression::Compacted => Compression::ZSTD(ZstdLevel::try_new(3).expect("3 is a level")),
    }
}

/// Properties common to all files; statistics are off until a column asks for them.
pub(super) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_created_by(concat!("quiver ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(false)
}

/// Path of a column; for nested columns all parts of the path.
pub(super) fn column(path: &[&str]) -> ColumnPath {
    ColumnPath::new(path.iter().map(|&p| p.to_owned()).collect())
}

/// Shorthand for encodings that the files have in common.
pub(super) trait ColumnEncodings {
    /// Encodes differences, without a dictionary.
    fn delta(self, path: &[&str]) -> Self;
    /// Encodes doubles with their bytes split into streams, without a dictionary.
    fn split(self, path: &[&str]) -> Self;
    /// Stores minimum, maximum and null count of each page.
    fn page_statistics(self, path: &[&str]) -> Self;
}

impl ColumnEncodings for WriterPropertiesBuilder {
    fn delta(self, path: &[&str]) -> Self {
        self.set_column_dictionary_enabled(column(path), false)
            .set_column_encoding(column(path), Encoding::DELTA_BINARY_PACKED)
    }

    fn split(self, path: &[&str]) -> Self {
        self.set_column_dictionary_enabled(column(path), false)
            .set_column_encoding(column(path), Encoding::BYTE_STREAM_SPLIT)
    }

    fn page_statistics(self, path: &[&str]) -> Self {
        self.set_column_statistics_enabled(column(path), EnabledStatistics::Page)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use parquet::errors::ParquetError;
    use parquet::file::metadata::RowGroupMetaData;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::super::footer::key_value;
    use super::super::tests::spec;
    use super::*;
    use crate::ErrorKind;

    fn numbers() -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..5)) as ArrayRef)]).unwrap()
    }

    fn create(draft: &mut Draft) -> Result<PartFile> {
        PartFile::create(draft, "rows", numbers().schema(), properties().build())
    }

    #[test]
    fn files_go_unless_the_part_is_finished() {
        let (dir, spec) = (tempfile::tempdir().unwrap(), spec(0));
        let mut draft = Draft::new(dir.path(), spec.clone());
        let file = create(&mut draft).unwrap();
        let path = file.path().to_owned();
        assert!(path.exists() && path == dir.path().join(part_key("metrics", spec.day, spec.id, "rows")));
        drop((file, draft));
        assert!(!path.exists());

        let mut draft = Draft::new(dir.path(), spec.clone());
        create(&mut draft).unwrap();
        draft.keep();
        drop(draft);
        assert!(path.exists());

        // What another one wrote is neither written over nor deleted.
        std::fs::write(&path, b"theirs").unwrap();
        let mut draft = Draft::new(dir.path(), spec.clone());
        let error = create(&mut draft).err().unwrap();
        drop(draft);
        let key = part_key("metrics", spec.day, spec.id, "rows");
        assert_eq!((error.kind(), error.message), (ErrorKind::Internal, format!("cannot create `{key}`")));
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    }

    #[test]
    fn a_footer_tells_what_its_file_is() {
        let (dir, spec) = (tempfile::tempdir().unwrap(), spec(1));
        let mut draft = Draft::new(dir.path(), spec.clone());
        let mut file = create(&mut draft).unwrap();
        file.write(&numbers()).unwrap();
        file.end_group().unwrap();
        file.write(&numbers().slice(1, 3)).unwrap();
        file.put("own", "value");
        assert_eq!(file.rows(), 8);
        let path = file.path().to_owned();
        let meta = file.finish(&spec, (-3, 9), &["a", "b"]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((meta.kind.as_str(), meta.bytes, meta.rows), ("rows", bytes.len() as u64, 8));
        let tail = &bytes[bytes.len() - meta.tail_len as usize..];
        assert_eq!(meta.tail_crc, crc32c::crc32c(tail));

        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let metadata = reader.metadata();
        assert_eq!(metadata.row_groups().iter().map(RowGroupMetaData::num_rows).collect::<Vec<_>>(), [5, 3]);
        let part = spec.id.to_string();
        let expected = [
            (keys::FORMAT, "1"),
            (keys::TABLE, "metrics"),
            (keys::PART, part.as_str()),
            (keys::LEVEL, "1"),
            (keys::MIN_TIME, "-3"),
            (keys::MAX_TIME, "9"),
            (keys::ROWS, "8"),
            (keys::SORT_KEY, "a,b"),
            ("own", "value"),
        ];
        for (key, value) in expected {
            assert_eq!(key_value(metadata, key), Some(value), "{key}");
        }
        let origin = key_value(metadata, keys::ORIGIN).unwrap();
        assert_eq!(serde_json::from_str::<PartOrigin>(origin).unwrap(), spec.origin);
        assert_eq!(key_value(metadata, keys::META), None);
    }

    #[test]
    fn a_full_disk_stays_one_within_the_parquet_writer() {
        let check = |error: ParquetError, kind: ErrorKind| {
            let error = write_error("t/k", error);
            assert_eq!((error.kind(), error.message.as_str()), (kind, "cannot write `t/k`"));
            assert!(error.source.is_some());
        };
        let io = |kind: std::io::ErrorKind| ParquetError::External(Box::new(std::io::Error::from(kind)));
        check(io(std::io::ErrorKind::StorageFull), ErrorKind::Unavailable);
        check(io(std::io::ErrorKind::QuotaExceeded), ErrorKind::Unavailable);
        check(io(std::io::ErrorKind::BrokenPipe), ErrorKind::Internal);
        check(ParquetError::General("no".to_owned()), ErrorKind::Internal);
        let other = crate::Error::new(ErrorKind::Unavailable, "of another kind");
        check(ParquetError::External(Box::new(other)), ErrorKind::Internal);
    }
}
