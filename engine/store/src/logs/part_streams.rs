//! The streams of a part with very many of them, as a scan sees them: selected through posting lists, matched to rows
//! by where their blocks start, and read only if one of their values is needed.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanBufferBuilder, FixedSizeBinaryArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::UInt64Type;
use async_trait::async_trait;
use hashbrown::HashMap;
use quiver_types::logs::{LogFilter, StreamId, stream_text};
use quiver_types::{LabelSet, ReadStats, Result};
use tokio::sync::OnceCell;

use super::stream_selection::{Postings, StreamTest, StreamTestCache, ValueStreams, VisitText, VisitValue};
use super::stream_values::{StreamValue, StreamValues};
use crate::error::Error;
use crate::part::Part;
use crate::part::logs::{StreamBlocks, StreamColumns, StreamSet};

/// Up to this many streams have their labels read directly; for more, the values are taken from the posting lists.
const FEW_STREAMS: usize = 64;
/// Blocks that are read at once if all are needed.
const BLOCKS_AT_ONCE: usize = 64;

/// The streams of a part that are read only as far as they are needed.
#[derive(Debug)]
pub(crate) struct PartSlots {
    part: Arc<Part>,
    stats: Arc<ReadStats>,
    blocks: OnceCell<Arc<StreamBlocks>>,
    chosen: StreamTestCache,
}

/// A stream and a number of its rows.
pub(crate) type StreamRun = (u32, u32);

/// First rows of streams, for the blocks that were requested.
struct Starts {
    blocks: Arc<StreamBlocks>,
    wanted: Vec<u32>,
    rows: Vec<ScalarBuffer<u64>>,
}

impl Starts {
    /// The first row of a stream; beyond the last stream, the total number of rows.
    fn row(&self, stream: u32) -> u64 {
        let block = self.blocks.of_stream(stream);
        let own = self.blocks.streams_of(block);
        if stream >= self.blocks.streams() || stream == own.start {
            return self.blocks.first_row(if stream == own.start { block } else { u32::MAX });
        }
        let known = self.wanted.binary_search(&block).ok().map(|at| self.rows[at][(stream - own.start) as usize]);
        known.unwrap_or_else(|| self.blocks.first_row(block))
    }

    /// The stream of a row. The block of the row must be among the requested ones.
    fn stream_of(&self, row: u64) -> u32 {
        let block = self.blocks.of_row(row);
        let first = self.blocks.streams_of(block).start;
        match self.wanted.binary_search(&block) {
            Ok(at) => first + self.rows[at].partition_point(|&start| start <= row).saturating_sub(1) as u32,
            Err(_) => first,
        }
    }
}

fn other_types() -> Error {
    Error::internal("streams of a part have columns of other types")
}

/// Provides the labels of a stream.
type LabelsOf<'l> = &'l dyn Fn() -> Result<LabelSet>;

impl PartSlots {
    pub(crate) fn new(part: Arc<Part>, stats: Arc<ReadStats>) -> Self {
        Self { part, stats, blocks: OnceCell::new(), chosen: StreamTestCache::default() }
    }

    async fn blocks(&self) -> Result<&Arc<StreamBlocks>> {
        self.blocks.get_or_try_init(|| self.part.stream_blocks(&self.stats)).await
    }

    /// The streams that pass a condition.
    pub(crate) async fn set(&self, test: StreamTest<'_>) -> Result<Arc<StreamSet>> {
        self.chosen.of(test, self, &self.stats).await
    }

    /// The only streams whose rows may match a filter; `None` if the filter does not restrict them.
    pub(crate) async fn may_match(
        &self,
        filter: &LogFilter,
        of_stream: &(dyn Fn(&str) -> Option<StreamValue> + Sync),
    ) -> Result<Option<Arc<StreamSet>>> {
        self.chosen.may_match(filter, of_stream, self, &self.stats).await
    }

    /// The range of streams that may have rows in a range.
    pub(crate) async fn streams_within(&self, rows: &Range<u64>) -> Result<Range<u32>> {
        let blocks = self.blocks().await?;
        let last = blocks.of_row(rows.end.saturating_sub(1).max(rows.start));
        Ok(blocks.streams_of(blocks.of_row(rows.start)).start..blocks.streams_of(last).end)
    }

    async fn starts(&self, wanted: Vec<u32>) -> Result<Starts> {
        let blocks = Arc::clone(self.blocks().await?);
        let read = self.part.stream_columns(&blocks, &wanted, StreamColumns::Starts, &self.stats).await?;
        let column = |batch: &RecordBatch| {
            batch.column(0).as_primitive_opt::<UInt64Type>().map(|a| a.values().clone()).ok_or_else(other_types)
        };
        let rows = read.iter().map(column).collect::<Result<Vec<_>>>()?;
        Ok(Starts { blocks, wanted, rows })
    }

    /// Selects the rows of a range whose streams are in a set.
    pub(crate) async fn rows_of(&self, set: &StreamSet, rows: &Range<u64>) -> Result<BooleanBuffer> {
        let len = (rows.end - rows.start) as usize;
        let within = self.streams_within(rows).await?;
        let runs: Vec<Range<u32>> = set.runs_in(&within).collect();
        if runs.is_empty() {
            return Ok(BooleanBuffer::new_unset(len));
        }
        if runs == [within] {
            return Ok(BooleanBuffer::new_set(len));
        }
        let blocks = self.blocks().await?;
        // If a run starts or ends at a block boundary, its row is known without reading the block.
        let inside =
            |stream: &u32| *stream < blocks.streams() && blocks.streams_of(blocks.of_stream(*stream)).start != *stream;
        let ends = runs.iter().flat_map(|run| [run.start, run.end]);
        let mut wanted: Vec<u32> = ends.filter(inside).map(|stream| blocks.of_stream(stream)).collect();
        wanted.dedup();
        let starts = self.starts(wanted).await?;
        let mut bits = BooleanBufferBuilder::new(len);
        for run in runs {
            let first = starts.row(run.start).clamp(rows.start, rows.end) - rows.start;
            let end = starts.row(run.end).clamp(rows.start, rows.end) - rows.start;
            bits.append_n((first as usize).saturating_sub(bits.len()), false);
            bits.append_n((end as usize).saturating_sub(bits.len()), true);
        }
        bits.append_n(len - bits.len(), false);
        Ok(bits.finish())
    }

    /// The streams of the selected rows, counted from row `first`, with the number of rows of each.
    pub(crate) async fn runs(&self, first: u64, rows: &BooleanBuffer) -> Result<Vec<StreamRun>> {
        let blocks = self.blocks().await?;
        let mut wanted: Vec<u32> = Vec::new();
        for (start, end) in rows.set_slices() {
            let own = blocks.of_row(first + start as u64)..=blocks.of_row(first + end as u64 - 1);
            wanted.extend(own.filter(|block| wanted.last().is_none_or(|last| last < block)).collect::<Vec<_>>());
        }
        let starts = self.starts(wanted).await?;
        let mut out: Vec<StreamRun> = Vec::new();
        // The current stream, and where its rows end.
        let mut open: Option<(u32, u64)> = None;
        for (start, end) in rows.set_slices() {
            let (mut at, end) = (first + start as u64, first + end as u64);
            while at < end {
                let (stream, last) = match open {
                    Some((stream, last)) if at < last => (stream, last),
                    Some((stream, last)) if at == last => (stream + 1, starts.row(stream + 2)),
                    _ => {
                        let stream = starts.stream_of(at);
                        (stream, starts.row(stream + 1))
                    }
                };
                // Always advance, so that a corrupt file cannot cause an endless loop.
                let upto = last.min(end).max(at + 1);
                match out.last_mut() {
                    Some((own, rows)) if *own == stream => *rows += (upto - at) as u32,
                    _ => out.push((stream, (upto - at) as u32)),
                }
                open = Some((stream, last.max(at + 1)));
                at = upto;
            }
        }
        Ok(out)
    }

    /// A value for each of some streams, which must be ascending.
    pub(crate) async fn values(&self, value: &StreamValue, streams: &[u32]) -> Result<StreamValues> {
        match value {
            StreamValue::Id => self.ids(streams).await,
            StreamValue::Label(name) if streams.len() > FEW_STREAMS => {
                let codes = self.part.label_codes(self.blocks().await?, name, &self.stats).await?;
                let (mut of, mut texts) = (HashMap::new(), Vec::new());
                let keys = streams.iter().map(|&stream| {
                    let code = codes.of_stream.get(stream as usize).copied().unwrap_or(0);
                    *of.entry(code).or_insert_with(|| {
                        texts.push(codes.values[code as usize].to_string());
                        texts.len() as u32 - 1
                    })
                });
                let keys = keys.collect();
                Ok(StreamValues::Coded(keys, texts))
            }
            StreamValue::Same(value) => Ok(StreamValues::Coded(vec![0; streams.len()], vec![value.to_string()])),
            _ => {
                let (mut keys, mut texts): (Vec<u32>, Vec<String>) = (Vec::with_capacity(streams.len()), Vec::new());
                let each = &mut |_: u32, text: &str| {
                    if texts.last().is_none_or(|last| last != text) {
                        texts.push(text.to_owned());
                    }
                    keys.push(texts.len() as u32 - 1);
                };
                self.texts(value, streams, each).await?;
                Ok(StreamValues::Coded(keys, texts))
            }
        }
    }

    async fn ids(&self, streams: &[u32]) -> Result<StreamValues> {
        let mut bytes = Vec::with_capacity(streams.len() * 16);
        self.in_blocks(StreamColumns::Ids, streams, &mut |batch, at, _| {
            let ids = batch.column(0).as_fixed_size_binary_opt().filter(|ids| ids.value_length() == 16);
            bytes.extend_from_slice(ids.ok_or_else(other_types)?.value(at));
            Ok(())
        })
        .await?;
        Ok(StreamValues::Ids(FixedSizeBinaryArray::new(16, bytes.into(), None)))
    }

    /// Calls a function for each block of some streams, with their positions in the block.
    async fn in_blocks(
        &self,
        columns: StreamColumns,
        streams: &[u32],
        visit: &mut (dyn FnMut(&RecordBatch, usize, u32) -> Result<()> + Send),
    ) -> Result<()> {
        let blocks = self.blocks().await?;
        let chunks: Vec<&[u32]> = streams.chunk_by(|a, b| blocks.of_stream(*a) == blocks.of_stream(*b)).collect();
        for chunks in chunks.chunks(BLOCKS_AT_ONCE) {
            let wanted: Vec<u32> = chunks.iter().filter_map(|c| c.first()).map(|s| blocks.of_stream(*s)).collect();
            let read = self.part.stream_columns(blocks, &wanted, columns, &self.stats).await?;
            for ((batch, chunk), block) in read.iter().zip(chunks).zip(wanted) {
                let first = blocks.streams_of(block).start;
                for &stream in *chunk {
                    visit(batch, (stream - first) as usize, stream)?;
                }
            }
            self.stats.check()?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Calls a function for each of some streams with the text of a value.
    async fn texts(&self, value: &StreamValue, streams: &[u32], visit: &mut VisitText<'_>) -> Result<()> {
        match value {
            StreamValue::Same(text) => {
                for &stream in streams {
                    visit(stream, text);
                }
                Ok(())
            }
            StreamValue::Id => {
                let mut text = String::new();
                let each = &mut |batch: &RecordBatch, at: usize, stream: u32| {
                    text.clear();
                    let ids = batch.column(0).as_fixed_size_binary_opt().ok_or_else(other_types)?;
                    super::typed_text::write_hex(ids.value(at), &mut text);
                    visit(stream, &text);
                    Ok(())
                };
                self.in_blocks(StreamColumns::Ids, streams, each).await
            }
            StreamValue::Service => {
                let each = &mut |batch: &RecordBatch, at: usize, stream: u32| {
                    let services = batch.column(0).as_string_opt::<i32>().ok_or_else(other_types)?;
                    visit(stream, services.value(at));
                    Ok(())
                };
                self.in_blocks(StreamColumns::Services, streams, each).await
            }
            StreamValue::Text | StreamValue::Label(_) => {
                let each = &mut |batch: &RecordBatch, at: usize, stream: u32| {
                    let labels = labels_at(batch, at)?;
                    match value {
                        StreamValue::Label(name) => visit(stream, labels.get(name)),
                        _ => visit(stream, &stream_text(&labels)),
                    }
                    Ok(())
                };
                self.in_blocks(StreamColumns::Labels, streams, each).await
            }
        }
    }

    /// Labels and identifiers of the streams of a set that may have rows in a time range.
    pub(crate) async fn infos(
        &self,
        set: &StreamSet,
        range: (i64, i64),
        visit: &mut (dyn FnMut(StreamId, LabelsOf<'_>) -> Result<()> + Send),
    ) -> Result<()> {
        use arrow::datatypes::TimestampNanosecondType as Nanos;
        let all = self.blocks().await?.streams();
        let mut timely: Vec<u32> = Vec::new();
        let chosen: Vec<u32> = set.runs_in(&(0..all)).flatten().collect();
        let each = &mut |batch: &RecordBatch, at: usize, stream: u32| {
            let time = |i: usize| batch.column(i).as_primitive_opt::<Nanos>().map(|a| a.value(at));
            let (first, last) = time(0).zip(time(1)).ok_or_else(other_types)?;
            if first <= range.1 && range.0 <= last {
                timely.push(stream);
            }
            Ok(())
        };
        self.in_blocks(StreamColumns::Times, &chosen, each).await?;
        let StreamValues::Ids(ids) = self.ids(&timely).await? else { return Err(other_types()) };
        let mut next = 0;
        let each = &mut |batch: &RecordBatch, at: usize, _: u32| {
            let id = ids.value(next).try_into().map_err(|_| other_types())?;
            next += 1;
            visit(StreamId::from_bytes(id), &|| labels_at(batch, at))
        };
        self.in_blocks(StreamColumns::Labels, &timely, each).await
    }
}

fn labels_at(batch: &RecordBatch, at: usize) -> Result<LabelSet> {
    let map = batch.column(0).as_map_opt().ok_or_else(other_types)?;
    let names = map.keys().as_string_opt::<i32>().ok_or_else(other_types)?;
    let values = map.values().as_string_opt::<i32>().ok_or_else(other_types)?;
    let pairs = map.value_offsets()[at] as usize..map.value_offsets()[at + 1] as usize;
    Ok(LabelSet::from_pairs(pairs.map(|p| (names.value(p), values.value(p)))))
}

#[async_trait]
impl Postings for PartSlots {
    async fn streams(&self) -> Result<usize> {
        Ok(self.blocks().await?.streams() as usize)
    }

    async fn each_value(&self, kind: u8, label: &str, only: Option<&str>, visit: &mut VisitValue<'_>) -> Result<()> {
        let each = &mut |value: &str, runs: crate::part::logs::LabelRuns<'_>| visit(value, ValueStreams::Part(runs));
        self.part.each_label_value(kind, label, only, &self.stats, each).await
    }

    async fn with_id(&self, id: StreamId) -> Result<Vec<u32>> {
        self.part.streams_with_id(self.blocks().await?, id, &self.stats).await
    }

    async fn each_text(&self, value: &StreamValue, visit: &mut VisitText<'_>) -> Result<()> {
        let all: Vec<u32> = (0..self.blocks().await?.streams()).collect();
        self.texts(value, &all, visit).await
    }
}
