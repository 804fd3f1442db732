//! Writes `.streams`: the streams of a part by number. If there are many, they are written in blocks that can be read
//! separately.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, FixedSizeBinaryBuilder, MapArray, RecordBatch, StringArray, StringBuilder,
    TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use parquet::basic::Compression;
use quiver_types::tables::{columns, logs as table};
use serde::{Deserialize, Serialize};

use super::super::file::{ColumnEncodings, Draft, PartFile, codec, column, properties};
use super::super::{FileMeta, PartCompression};
use crate::error::{Context, Error, Result};
use crate::memtable::log_streams::LiveStream;

/// Streams per block. Parts with at most one block are read at once; parts with more also have `.labels`.
pub(super) const BLOCK_STREAMS: usize = 1024;
/// The size limit of a page is so high that a block always is one page, however long its labels are.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Largest dictionary of a column if streams are in blocks.
const DICTIONARY_BYTES: usize = 32 * 1024;
/// Footer key of [`Blocks`].
pub(super) const BLOCKS_KEY: &str = "quiver.blocks";

/// Where the blocks of streams start.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Blocks {
    /// Streams per block; the last one may have fewer.
    pub(super) streams: u32,
    /// First row in `.rows` of each block.
    pub(super) first_rows: Vec<u64>,
}

/// The streams of a part, by number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    list: Vec<Arc<LiveStream>>,
    first: Vec<u64>,
    rows: Vec<u64>,
    range: Vec<(i64, i64)>,
}

impl Streams {
    /// Registers rows of a stream and returns its number. The rows of a stream must come consecutively.
    pub(super) fn add(&mut self, stream: &Arc<LiveStream>, first_row: u64, times: &[i64]) -> u32 {
        if self.list.last().is_none_or(|last| **last != **stream) {
            self.list.push(Arc::clone(stream));
            self.first.push(first_row);
            self.rows.push(0);
            self.range.push((i64::MAX, i64::MIN));
        }
        let at = self.list.len() - 1;
        self.rows[at] += times.len() as u64;
        if let (Some(&first), Some(&last)) = (times.first(), times.last()) {
            self.range[at] = (self.range[at].0.min(first), self.range[at].1.max(last));
        }
        at as u32
    }

    /// All streams, by number.
    pub(super) fn all(&self) -> &[Arc<LiveStream>] {
        &self.list
    }

    /// Writes the file.
    pub(super) fn write(&self, draft: &mut Draft, range: (i64, i64)) -> Result<FileMeta> {
        let mut ids = FixedSizeBinaryBuilder::with_capacity(self.list.len(), 16);
        let (mut names, mut values) = (StringBuilder::new(), StringBuilder::new());
        let mut offsets = vec![0i32];
        for stream in &self.list {
            ids.append_value(stream.id.to_bytes()).internal("an id is not 16 bytes")?;
            for (name, value) in stream.labels.iter() {
                names.append_value(name);
                values.append_value(value);
            }
            offsets.push(names.len() as i32);
        }
        let labels = map_of(offsets, names, values)?;
        let times = |get: fn(&(i64, i64)) -> i64| -> ArrayRef {
            Arc::new(TimestampNanosecondArray::from_iter_values(self.range.iter().map(get)).with_timezone("UTC"))
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(0..self.list.len() as u32)),
            Arc::new(ids.finish()),
            Arc::new(labels),
            Arc::new(StringArray::from_iter_values(self.list.iter().map(|s| &*s.service))),
            Arc::new(UInt64Array::from(self.first.clone())),
            Arc::new(UInt64Array::from(self.rows.clone())),
            times(|r| r.0),
            times(|r| r.1),
        ];
        let batch = RecordBatch::try_new(table::streams(), columns).internal("cannot build a batch of streams")?;
        let in_blocks = self.list.len() > BLOCK_STREAMS;
        // The first query to a part opens every column of a few kilobytes, and zstd contexts would cost more than they
        // save.
        let compression = if in_blocks { draft.spec.compression } else { PartCompression::Fresh };
        let mut p = properties()
            .set_compression(codec(compression))
            .set_column_dictionary_enabled(column(&["stream_id"]), false)
            .delta(&["stream"])
            .delta(&["first_row"])
            .delta(&["rows"])
            .delta(&["min_time"])
            .delta(&["max_time"]);
        if in_blocks {
            p = p
                .set_data_page_row_count_limit(BLOCK_STREAMS)
                .set_write_batch_size(BLOCK_STREAMS)
                .set_data_page_size_limit(PAGE_BYTES_MAX)
                // Reading one block also reads the dictionary, so keep it small.
                .set_dictionary_page_size_limit(DICTIONARY_BYTES)
                .set_column_compression(column(&["stream_id"]), Compression::UNCOMPRESSED);
        }
        let mut file = PartFile::create(draft, "streams", table::streams(), p.build())?;
        file.write(&batch)?;
        if in_blocks {
            let first_rows = self.first.iter().step_by(BLOCK_STREAMS).copied().collect();
            let blocks = Blocks { streams: BLOCK_STREAMS as u32, first_rows };
            file.put(BLOCKS_KEY, serde_json::to_string(&blocks).internal("cannot write the blocks of streams")?);
        }
        file.finish(&draft.spec, range, &["stream"])
    }
}

fn map_of(offsets: Vec<i32>, mut names: StringBuilder, mut values: StringBuilder) -> Result<MapArray> {
    let what = "cannot build a column of labels";
    let DataType::Map(field, sorted) = columns::map() else { return Err(Error::internal(what)) };
    let DataType::Struct(fields) = field.data_type().clone() else { return Err(Error::internal(what)) };
    let pairs: Vec<ArrayRef> = vec![Arc::new(names.finish()), Arc::new(values.finish())];
    let entries = arrow::array::StructArray::try_new(fields, pairs, None).internal(what)?;
    MapArray::try_new(field, OffsetBuffer::new(offsets.into()), entries, None, sorted).internal(what)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use quiver_types::LabelSet;
    use uuid::Uuid;

    use super::super::super::{PartOrigin, PartSpec, Place};
    use super::*;

    /// Says whether columns of a compacted part with so many streams are packed with zstd.
    fn has_zstd(streams: usize) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let spec = PartSpec {
            table: "logs".to_owned(),
            day: 20_000,
            level: 1,
            id: Uuid::now_v7(),
            origin: PartOrigin::Flushed {
                writer: Uuid::nil(),
                generation: 7,
                flush_id: Uuid::max(),
                output: 0,
                outputs: 1,
            },
            place: Place::Store,
            window: 0,
            compression: PartCompression::Compacted,
        };
        let mut all = Streams::default();
        for i in 0..streams {
            let pod = format!("pod-{i:05}");
            let labels = LabelSet::from_pairs([("pod", pod.as_str())]);
            all.add(&Arc::new(LiveStream { id: labels.id(), labels, service: "web".into() }), i as u64, &[1]);
        }
        let mut draft = Draft::new(dir.path(), spec);
        let file = all.write(&mut draft, (1, 1)).unwrap();
        let reader = SerializedFileReader::new(File::open(dir.path().join(file.key)).unwrap()).unwrap();
        let columns = reader.metadata().row_group(0).columns();
        columns.iter().any(|c| matches!(c.compression(), Compression::ZSTD(_)))
    }

    #[test]
    fn few_streams_are_opened_without_zstd() {
        assert!(!has_zstd(3));
        assert!(!has_zstd(BLOCK_STREAMS));
        assert!(has_zstd(BLOCK_STREAMS + 1));
    }
}
