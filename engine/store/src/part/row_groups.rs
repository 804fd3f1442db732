//! Writes the row groups of a file: encoded from batches, or copied column by column from another file.

use std::io;
use std::sync::Arc;

use arrow::array::{RecordBatch, new_null_array};
use arrow::datatypes::SchemaRef;
use bytes::{Buf, Bytes};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

use super::checksum::SummedFile;

/// An encoded column of a row group of another file.
#[derive(Debug)]
pub(super) struct ColumnCopy {
    /// Offset of the first byte in the other file.
    pub(super) start: u64,
    /// The encoded bytes.
    pub(super) bytes: Bytes,
    /// Metadata of the column; its offsets refer to the other file.
    pub(super) close: ColumnCloseResult,
}

/// The bytes of a column, addressed by offsets of the file they come from.
struct At<'b>(u64, &'b Bytes);

impl Length for At<'_> {
    fn len(&self) -> u64 {
        self.0 + self.1.len() as u64
    }
}

impl ChunkReader for At<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let from = start.checked_sub(self.0).filter(|from| *from <= self.1.len() as u64);
        let from = from.ok_or_else(|| ParquetError::General(format!("byte {start} is not of this column")))?;
        Ok(self.1.slice(from as usize..).reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let rest = self.get_read(start)?.into_inner();
        let missing = || ParquetError::General(format!("{length} bytes at {start} are not of this column"));
        if length <= rest.len() { Ok(rest.slice(..length)) } else { Err(missing()) }
    }
}

/// The row group that is being encoded.
struct OpenRowGroup {
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
}

/// Writes row groups and the footer.
pub(super) struct GroupWriter {
    file: SerializedFileWriter<SummedFile>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    rows_max: usize,
    open: Option<OpenRowGroup>,
}

impl GroupWriter {
    /// Starts a file.
    pub(super) fn create(file: SummedFile, schema: SchemaRef, properties: WriterProperties) -> Result<Self> {
        let descriptor = ArrowSchemaConverter::new().with_coerce_types(properties.coerce_types()).convert(&schema)?;
        let rows_max = properties.max_row_group_row_count().unwrap_or(usize::MAX);
        let file = SerializedFileWriter::new(file, descriptor.root_schema_ptr(), Arc::new(properties))?;
        let factory = ArrowRowGroupWriterFactory::new(&file, Arc::clone(&schema));
        Ok(Self { file, factory, schema, rows_max, open: None })
    }

    /// The leaf columns of the file.
    pub(super) fn leaves(&self) -> &[ColumnDescPtr] {
        self.file.schema_descr().columns()
    }

    /// Bytes of the open row group that are in memory: it is written when it ends.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.iter().flat_map(|open| &open.columns).map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    /// Adds a key to the footer.
    pub(super) fn put(&mut self, value: KeyValue) {
        self.file.append_key_value_metadata(value);
    }

    /// Appends rows; a full row group is ended and the next one started.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            let open = match &mut self.open {
                Some(open) => open,
                none => {
                    let columns = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
                    none.insert(OpenRowGroup { columns, rows: 0 })
                }
            };
            let rows = (batch.num_rows() - from).min(self.rows_max - open.rows);
            encode(&self.schema, &mut open.columns, &batch.slice(from, rows))?;
            open.rows += rows;
            from += rows;
            if open.rows >= self.rows_max {
                self.end_group()?;
            }
        }
        Ok(())
    }

    /// Ends the open row group, if there is one.
    pub(super) fn end_group(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut group = self.file.next_row_group()?;
        for column in open.columns {
            column.close()?.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok(())
    }

    /// Appends a row group of encoded columns, one for each leaf; `None` stands for a column of nulls.
    pub(super) fn append(&mut self, rows: usize, columns: Vec<Option<ColumnCopy>>) -> Result<()> {
        self.end_group()?;
        // Creates writers for all columns, but uses only those of the null columns.
        let empty = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
        let leaves = self.leaves().to_vec();
        let mut group = self.file.next_row_group()?;
        for ((copy, mut nulls), leaf) in columns.into_iter().zip(empty).zip(leaves) {
            if let Some(copy) = copy {
                group.append_column(&At(copy.start, &copy.bytes), copy.close)?;
                continue;
            }
            let root = leaf.path().parts().first().map_or("", String::as_str);
            let field = self.schema.field_with_name(root)?;
            for leaf in compute_leaves(field, &new_null_array(field.data_type(), rows))? {
                nulls.write(&leaf)?;
            }
            nulls.close()?.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok(())
    }

    /// Flushes buffered bytes.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes the footer.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_group()?;
        self.file.finish().map(drop)
    }

    pub(super) fn inner(&self) -> &SummedFile {
        self.file.inner()
    }

    pub(super) fn inner_mut(&mut self) -> &mut SummedFile {
        self.file.inner_mut()
    }
}

fn encode(schema: &SchemaRef, columns: &mut [ArrowColumnWriter], batch: &RecordBatch) -> Result<()> {
    let mut writers = columns.iter_mut();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        for leaf in compute_leaves(field, array)? {
            let writer = writers.next().ok_or_else(|| ParquetError::General("more columns than writers".to_owned()))?;
            writer.write(&leaf)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
    use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};

    use super::*;

    #[test]
    fn bytes_of_a_column_have_their_place_in_its_file() {
        let bytes = Bytes::from_static(b"hello");
        let at = At(100, &bytes);
        assert_eq!(at.len(), 105);
        let check = |start: u64, length: usize, expected: &[u8]| {
            assert_eq!(at.get_bytes(start, length).unwrap(), expected, "{length} at {start}");
        };
        check(100, 5, b"hello");
        check(101, 3, b"ell");
        check(104, 1, b"o");
        check(105, 0, b"");
        let mut rest = String::new();
        at.get_read(103).unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "lo");
        for (start, length, wrong) in [
            (99, 1, "byte 99 is not of this column"),
            (106, 0, "byte 106 is not of this column"),
            (103, 3, "3 bytes at 103 are not of this column"),
            (0, 105, "byte 0 is not of this column"),
        ] {
            let error = at.get_bytes(start, length).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false), Field::new("t", DataType::Utf8, true)]))
    }

    fn batch(rows: std::ops::Range<i64>) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.clone().map(|n| format!("t{n}"))));
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(rows)), texts]).unwrap()
    }

    fn writer(path: &std::path::Path, group_rows: usize) -> GroupWriter {
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group_rows)).build();
        let file = SummedFile::new(std::fs::File::create(path).unwrap());
        GroupWriter::create(file, schema(), properties).unwrap()
    }

    fn read(path: &std::path::Path) -> ParquetRecordBatchReaderBuilder<std::fs::File> {
        let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Optional);
        ParquetRecordBatchReaderBuilder::try_new_with_options(std::fs::File::open(path).unwrap(), options).unwrap()
    }

    #[test]
    fn full_groups_end_by_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut groups = writer(&path, 10);
        assert_eq!(groups.leaves().iter().map(|leaf| leaf.name()).collect::<Vec<_>>(), ["n", "t"]);
        groups.write(&batch(0..4)).unwrap();
        groups.write(&batch(4..25)).unwrap();
        // Ends the group of five, and then none.
        groups.end_group().unwrap();
        groups.end_group().unwrap();
        groups.write(&batch(0..0)).unwrap();
        groups.write(&batch(25..26)).unwrap();
        groups.finish().unwrap();
        let reader = read(&path);
        let rows: Vec<i64> = reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
        assert_eq!(rows, [10, 10, 5, 1]);
        let read: Vec<i64> = reader
            .build()
            .unwrap()
            .flat_map(|batch| batch.unwrap()["n"].as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(read, (0..26).collect::<Vec<_>>());
    }

    #[test]
    fn columns_are_taken_over_and_others_are_null() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        let mut source = writer(&from, 1000);
        source.write(&batch(7..107)).unwrap();
        source.finish().unwrap();
        let bytes = Bytes::from(std::fs::read(&from).unwrap());
        let metadata = Arc::clone(read(&from).metadata());
        let column = metadata.row_group(0).column(0).clone();
        let (start, len) = column.byte_range();
        let close = ColumnCloseResult {
            bytes_written: len,
            rows_written: 100,
            metadata: column,
            bloom_filter: None,
            column_index: metadata.column_index().map(|groups| groups[0][0].clone()),
            offset_index: metadata.offset_index().map(|groups| groups[0][0].clone()),
        };
        let copy = ColumnCopy { start, bytes: bytes.slice(start as usize..(start + len) as usize), close };
        let mut target = writer(&to, 1000);
        target.write(&batch(0..3)).unwrap();
        target.append(100, vec![Some(copy), None]).unwrap();
        target.write(&batch(3..5)).unwrap();
        target.finish().unwrap();
        let reader = read(&to);
        let rows: Vec<i64> = reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
        assert_eq!(rows, [3, 100, 2]);
        let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
        let all = arrow::compute::concat_batches(&schema(), &batches).unwrap();
        let numbers: Vec<i64> = (0..3).chain(7..107).chain(3..5).collect();
        assert_eq!(all["n"].as_primitive::<Int64Type>().values()[..], numbers[..]);
        let texts = all["t"].as_string::<i32>();
        assert_eq!((texts.null_count(), texts.value(2), texts.value(103)), (100, "t2", "t3"));
    }
}
