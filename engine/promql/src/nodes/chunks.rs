//! Encodes the samples of each series as chunks: a few bytes per sample, instead of sixteen in lists, so that there is
//! less to sort.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Int64Array, LargeBinaryBuilder, ListArray, StructArray, UInt8Array, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema, SchemaRef, UInt8Type, UInt32Type};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use serde::{Deserialize, Serialize};

use super::driver::{Worker, drive_after};
use super::operator_encoding::{self, Form};
use super::samples::{SampleBatch, SampleBuffers};
use super::{Batches, Env, Spread, StepOperator};
use crate::run_state::RunState;
use crate::stored_samples::chunks::{Chunk, Encoding, chunks};

/// Column with the places, by which results are sorted.
pub(crate) const PLACE: &str = "row";

/// Series per batch; their chunks are in memory together.
const SERIES_MAX: usize = 256;

/// Takes samples; returns one row for each series that has any.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SampleChunks {
    /// Place in the result of each series of the scan.
    pub(crate) places: Vec<u32>,
}

/// The schema: place, and a list of chunks.
fn chunks_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(PLACE, DataType::UInt32, false),
        Field::new("chunks", DataType::List(item()), false),
    ]))
}

fn item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(chunk_fields()), false))
}

fn chunk_fields() -> Fields {
    Fields::from(vec![
        Field::new("min", DataType::Int64, false),
        Field::new("max", DataType::Int64, false),
        Field::new("encoding", DataType::UInt8, false),
        // The data of many series may exceed 32-bit offsets.
        Field::new("data", DataType::LargeBinary, false),
    ])
}

impl StepOperator for SampleChunks {
    fn name(&self) -> &'static str {
        "SampleChunks"
    }

    fn detail(&self) -> String {
        format!("series={}", self.places.len())
    }

    fn schema(&self) -> SchemaRef {
        chunks_schema()
    }

    fn spread(&self) -> Spread {
        Spread::Each
    }

    fn written(&self) -> Result<Vec<u8>> {
        operator_encoding::body(self)
    }

    fn open(self: Arc<Self>, mut inputs: Vec<SendableRecordBatchStream>, env: Env) -> Batches {
        let input = inputs.swap_remove(0);
        drive_after(input, async move {
            let memory = env.reserve("chunks", 0)?;
            Ok(ChunksWorker { chunks: self, buffers: SampleBuffers::default(), memory, run: env.run })
        })
    }
}

impl Form for SampleChunks {
    const KIND: &'static str = "SampleChunks";
}

struct ChunksWorker {
    chunks: Arc<SampleChunks>,
    buffers: SampleBuffers,
    /// Memory of the rows that were returned last.
    memory: MemoryReservation,
    run: Arc<RunState>,
}

impl Worker for ChunksWorker {
    fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        self.run.hold(0)?;
        let batch = SampleBatch::new(&batch)?;
        let (mut rows, mut held) = (Rows::default(), 0);
        for idx in 0..batch.len() {
            let samples = batch.series(idx, &mut self.buffers)?;
            self.run.did(1 + samples.ts.len() + samples.hists.len())?;
            chunks(&samples, |chunk| {
                // Builders grow by doubling.
                held += 2 * (chunk.data.len() + size_of::<Chunk>());
                rows.push(&chunk);
            });
            rows.end(self.chunks.places[batch.row(idx) as usize]);
            self.memory.try_resize(held)?;
        }
        if rows.places.is_empty() { Ok(vec![]) } else { rows.finish().map(|batch| vec![batch]) }
    }

    fn rows_max(&self) -> usize {
        SERIES_MAX
    }
}

/// The columns of a batch.
#[derive(Default)]
struct Rows {
    places: Vec<u32>,
    lengths: Vec<usize>,
    min: Vec<i64>,
    max: Vec<i64>,
    encodings: Vec<u8>,
    data: LargeBinaryBuilder,
    /// Number of chunks before the current series.
    before: usize,
}

impl Rows {
    fn push(&mut self, chunk: &Chunk) {
        self.min.push(chunk.min_ms);
        self.max.push(chunk.max_ms);
        self.encodings.push(chunk.encoding as u8);
        self.data.append_value(&chunk.data);
    }

    /// Ends a series; without chunks it gets no row.
    fn end(&mut self, place: u32) {
        let chunks = self.min.len() - self.before;
        if chunks > 0 {
            self.places.push(place);
            self.lengths.push(chunks);
            self.before = self.min.len();
        }
    }

    fn finish(mut self) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.min)),
            Arc::new(Int64Array::from(self.max)),
            Arc::new(UInt8Array::from(self.encodings)),
            Arc::new(self.data.finish()),
        ];
        let all = Arc::new(StructArray::try_new(chunk_fields(), columns, None)?);
        let lists = ListArray::try_new(item(), OffsetBuffer::from_lengths(self.lengths), all, None)?;
        Ok(RecordBatch::try_new(chunks_schema(), vec![Arc::new(UInt32Array::from(self.places)), Arc::new(lists)])?)
    }
}

/// Calls a function with the place and the chunks of each row of a batch from [`SampleChunks`].
pub(crate) fn each_row(
    batch: &RecordBatch,
    mut visit: impl FnMut(u32, Vec<Chunk>) -> quiver_types::Result<()>,
) -> quiver_types::Result<()> {
    let shape = || quiver_types::Error::internal("a batch that has no chunks");
    let places = batch.column(0).as_primitive_opt::<UInt32Type>().ok_or_else(shape)?;
    let lists = batch.columns().get(1).and_then(|column| column.as_list_opt::<i32>()).ok_or_else(shape)?;
    let all = lists.values().as_struct_opt().ok_or_else(shape)?;
    let [min, max, encodings, data] = all.columns() else { return Err(shape()) };
    let min = min.as_primitive_opt::<Int64Type>().ok_or_else(shape)?;
    let max = max.as_primitive_opt::<Int64Type>().ok_or_else(shape)?;
    let encodings = encodings.as_primitive_opt::<UInt8Type>().ok_or_else(shape)?;
    let data = data.as_binary_opt::<i64>().ok_or_else(shape)?;
    let chunk = |at: usize| -> quiver_types::Result<Chunk> {
        let encoding = Encoding::of(encodings.value(at)).ok_or_else(shape)?;
        Ok(Chunk { min_ms: min.value(at), max_ms: max.value(at), encoding, data: data.value(at).to_vec() })
    };
    for idx in 0..batch.num_rows() {
        let offsets = lists.value_offsets();
        let list = (offsets[idx] as usize..offsets[idx + 1] as usize).map(chunk);
        visit(places.value(idx), list.collect::<quiver_types::Result<Vec<Chunk>>>()?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let chunk = |n: i64, encoding: Encoding| Chunk { min_ms: n, max_ms: n + 5, encoding, data: vec![n as u8; 3] };
        let mut rows = Rows::default();
        rows.push(&chunk(1, Encoding::Xor));
        rows.push(&chunk(7, Encoding::Histogram));
        rows.end(4);
        rows.end(3);
        rows.push(&chunk(9, Encoding::FloatHistogram));
        rows.end(0);
        let batch = rows.finish().unwrap();
        assert_eq!((batch.num_rows(), batch.schema()), (2, chunks_schema()));
        let mut found = Vec::new();
        // Rows that were cut out of a batch point into lists of all of it.
        for batch in [batch.slice(1, 1), batch.slice(0, 1)] {
            each_row(&batch, |place, chunks| {
                found.push((place, chunks.iter().map(|c| (c.min_ms, c.max_ms, c.encoding)).collect::<Vec<_>>()));
                assert!(chunks.iter().all(|c| c.data == [c.min_ms as u8; 3]), "{chunks:?}");
                Ok(())
            })
            .unwrap();
        }
        let first = vec![(1, 6, Encoding::Xor), (7, 12, Encoding::Histogram)];
        assert_eq!(found, [(0, vec![(9, 14, Encoding::FloatHistogram)]), (4, first)]);
    }
}
