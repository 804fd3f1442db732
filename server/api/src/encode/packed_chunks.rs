//! Chunks of many series as remote read sends them, packed until their reader takes them: a list of chunks per series
//! would take hundreds of bytes where a series has few samples.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::execution::memory_pool::MemoryReservation;
use quiver_ingest::wire::{put_bytes, put_head, put_varint};
use quiver_promql::stored_samples::chunks::Chunk;
use quiver_query::from_datafusion;
use quiver_types::{Result, SeriesTable};

use super::protobuf::{put_message, put_uint};
use super::remote_read::put_labels;

/// Approximate size of a frame in bytes.
const FRAME_BYTES: usize = 1 << 20;
/// Most bytes that a chunk has in a message besides its data.
const CHUNK_HEAD_BYTES: usize = 40;
/// Size of the first block that the chunks of many series share, and of the largest one.
const BLOCK_BYTES: (usize, usize) = (16 << 10, 1 << 20);
/// What takes more than this part (1/n) of a block has one of its own.
const SHARED_PART: usize = 4;

/// The chunks of one frame, which are of one series, and where they are.
#[derive(Debug, Clone, Copy)]
struct ChunkFrame {
    /// Number of the query in its request.
    query: u32,
    /// Row of the series in the table of the query.
    row: u32,
    block: u32,
    from: u32,
    to: u32,
}

/// Chunks as they are in messages, and the memory that they take.
#[derive(Debug)]
pub(crate) struct PackedChunks {
    parts: Vec<ChunkFrame>,
    /// None ever grows.
    blocks: Vec<Vec<u8>>,
    /// The block that is shared, and the size of the next one.
    open: Option<usize>,
    size: usize,
    memory: MemoryReservation,
}

impl PackedChunks {
    /// Begins with nothing; what is added counts in this memory before it is taken.
    pub(crate) fn new(memory: MemoryReservation) -> Self {
        Self { parts: Vec::new(), blocks: Vec::new(), open: None, size: BLOCK_BYTES.0, memory }
    }

    /// Adds the chunks of a series, a row of the table of a query.
    ///
    /// # Errors
    /// LimitExceeded, Unavailable: there is no memory for them.
    pub(crate) fn push(&mut self, query: u32, row: u32, mut chunks: &[Chunk]) -> Result<()> {
        while !chunks.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < chunks.len() && bytes < FRAME_BYTES {
                bytes += chunks[count].data.len() + CHUNK_HEAD_BYTES;
                count += 1;
            }
            let (now, rest) = chunks.split_at(count);
            self.put(query, row, now, bytes)?;
            chunks = rest;
        }
        Ok(())
    }

    fn put(&mut self, query: u32, row: u32, chunks: &[Chunk], bytes_max: usize) -> Result<()> {
        let block = self.block_of(bytes_max)?;
        // Lists grow by doubling.
        self.memory.try_grow(2 * size_of::<ChunkFrame>()).map_err(from_datafusion)?;
        let out = &mut self.blocks[block];
        let from = out.len() as u32;
        for chunk in chunks {
            put_chunk(out, chunk);
        }
        self.parts.push(ChunkFrame { query, row, block: block as u32, from, to: out.len() as u32 });
        Ok(())
    }

    /// Finds a block with room for so many bytes, or makes one.
    fn block_of(&mut self, bytes: usize) -> Result<usize> {
        let has_room = |block: &Vec<u8>| block.capacity() - block.len() >= bytes;
        if let Some(open) = self.open.filter(|open| has_room(&self.blocks[*open])) {
            return Ok(open);
        }
        let is_shared = bytes <= self.size / SHARED_PART;
        let size = if is_shared { self.size } else { bytes };
        self.memory.try_grow(size + 2 * size_of::<Vec<u8>>()).map_err(from_datafusion)?;
        self.blocks.push(Vec::with_capacity(size));
        self.size = (2 * self.size).min(BLOCK_BYTES.1);
        let block = self.blocks.len() - 1;
        if is_shared {
            self.open = Some(block);
        }
        Ok(block)
    }

    /// Makes the frames, with the tables of series of all queries: messages `prometheus.ChunkedReadResponse`, each with
    /// one series, as clients expect. Each is made when it is asked for.
    pub(crate) fn frames(self, tables: Vec<Arc<SeriesTable>>) -> impl Iterator<Item = Bytes> + Send {
        let mut next = 0;
        std::iter::from_fn(move || {
            let _held = &self.memory;
            let part = self.parts.get(next)?;
            next += 1;
            let chunks = &self.blocks[part.block as usize][part.from as usize..part.to as usize];
            let table = tables.get(part.query as usize)?;
            Some(frame(table.labels(part.row as usize), chunks, part.query))
        })
    }
}

/// Appends a chunk to a series.
fn put_chunk(out: &mut Vec<u8>, chunk: &Chunk) {
    put_message(out, 2, |message| {
        put_uint(message, 1, chunk.min_ms as u64);
        put_uint(message, 2, chunk.max_ms as u64);
        put_uint(message, 3, chunk.encoding as u64);
        put_bytes(message, 4, &chunk.data);
    });
}

/// Length, checksum, and the message.
fn frame<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>, chunks: &[u8], query: u32) -> Bytes {
    let mut head = Vec::new();
    put_labels(&mut head, labels);
    let mut message = Vec::with_capacity(head.len() + chunks.len() + 16);
    put_head(&mut message, 1, head.len() + chunks.len());
    message.extend_from_slice(&head);
    message.extend_from_slice(chunks);
    put_uint(&mut message, 2, u64::from(query));
    let mut out = Vec::with_capacity(message.len() + 14);
    put_varint(&mut out, message.len() as u64);
    out.extend_from_slice(&crc32c::crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
    out.into()
}

#[cfg(test)]
mod tests {
    use quiver_ingest::wire::{BYTES, Reader, tag};
    use quiver_promql::stored_samples::chunks::Encoding;
    use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
    use quiver_types::series::SeriesTableBuilder;
    use quiver_types::{Access, ErrorKind};

    use super::*;

    /// An engine with so much memory, and chunks that count in it.
    fn packed(memory_bytes: usize) -> (Arc<QueryEngine>, PackedChunks) {
        let engine = QueryEngine::new(&EngineSettings::small(memory_bytes)).expect("an engine");
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let chunks = PackedChunks::new(engine.reservation("chunks", &ctx));
        (engine, chunks)
    }

    fn table(names: &[&str]) -> Arc<SeriesTable> {
        let mut table = SeriesTableBuilder::default();
        for name in names {
            table.push([("a", *name)]);
        }
        Arc::new(table.finish())
    }

    fn chunk(n: i64, bytes: usize) -> Chunk {
        Chunk { min_ms: n, max_ms: n, encoding: Encoding::Xor, data: vec![n as u8; bytes] }
    }

    /// Reads a frame: the series, and the number of the query.
    fn read(frame: &[u8]) -> (Vec<u8>, u64) {
        let mut r = Reader::new(frame);
        let len = r.varint().unwrap() as usize;
        let (sum, data) = frame[frame.len() - r.rest_len()..].split_at(4);
        assert_eq!((data.len(), sum), (len, &crc32c::crc32c(data).to_be_bytes()[..]));
        let mut r = Reader::new(data);
        assert_eq!(r.tag().unwrap(), tag(1, BYTES));
        let series = r.bytes().unwrap().to_vec();
        let query = if r.is_empty() { 0 } else { r.tag().and_then(|_| r.varint()).unwrap() };
        (series, query)
    }

    /// The series of one label and these chunks.
    fn series(name: &str, chunks: &[Chunk]) -> Vec<u8> {
        let mut out = Vec::new();
        put_labels(&mut out, [("a", name)].into_iter());
        for chunk in chunks {
            put_chunk(&mut out, chunk);
        }
        out
    }

    #[test]
    fn long_series_are_cut_into_frames() {
        let (_engine, mut packed) = packed(16 << 20);
        let all: Vec<Chunk> = (0..2500).map(|n| chunk(n, 1000)).collect();
        packed.push(0, 0, &all).expect("room");
        packed.push(0, 0, &[]).expect("nothing to add");
        let frames: Vec<Bytes> = packed.frames(vec![table(&["b"])]).collect();
        assert_eq!(frames.len(), 3);
        assert!(frames.iter().all(|frame| frame.len() < FRAME_BYTES + 2000));
        let head = series("b", &[]);
        let rest: Vec<u8> = frames.iter().flat_map(|frame| read(frame).0[head.len()..].to_vec()).collect();
        assert!(rest == series("b", &all)[head.len()..], "no chunk is lost");
    }

    #[test]
    fn frames_have_the_labels_and_the_query_of_their_chunks() {
        let (_engine, mut packed) = packed(16 << 20);
        let negative = Chunk { min_ms: -2, max_ms: 0, encoding: Encoding::FloatHistogram, data: vec![7, 8] };
        // Large ones between small ones: each in a block of its own.
        let all = [(0, 1, vec![negative]), (0, 0, vec![chunk(5, 30_000)]), (1, 0, vec![chunk(1, 3), chunk(2, 70)])];
        for (query, row, chunks) in &all {
            packed.push(*query, *row, chunks).expect("room");
        }
        assert_eq!(packed.blocks.len(), 2, "small ones share one");
        let tables = vec![table(&["x", "y"]), table(&["z"])];
        let found: Vec<_> = packed.frames(tables).map(|frame| read(&frame)).collect();
        let expected = [(0, "y", 0_u64), (1, "x", 0), (2, "z", 1)];
        assert_eq!(found, expected.map(|(n, name, query)| (series(name, &all[n].2), query)));
    }

    #[test]
    fn chunks_count_before_they_are_kept() {
        let (engine, mut packed) = packed(4 << 20);
        let mut count = 0;
        let error = loop {
            match packed.push(0, count, &[chunk(1, 20)]) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        let held: usize = packed.blocks.iter().map(Vec::capacity).sum();
        let lists = packed.parts.capacity() * size_of::<ChunkFrame>() + packed.blocks.capacity() * size_of::<Vec<u8>>();
        assert!(held + lists <= engine.memory_reserved() + 1024, "{held} and {lists}");
        // A list of chunks for each would take several times as much.
        assert!(engine.memory_reserved() / count as usize <= 128, "{count} series");
        drop(packed);
        assert_eq!(engine.memory_reserved(), 0);
    }
}
