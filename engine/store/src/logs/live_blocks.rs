//! Blocks of live rows: a batch of a generation as it arrived. Values stay in place; a column is built from them on
//! demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, BooleanBufferBuilder, Int64Array, MapArray};
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use hashbrown::HashMap;
use quiver_types::logs::{StreamId, ValueMatcher};
use quiver_types::{Access, ReadStats};

use super::block::{Block, STEP_ROWS};
use super::column::{Column, Values};
use super::output::MapWriter;
use super::stream_selection::{Postings, StreamTest, StreamTestCache, ValueStreams, VisitText, VisitValue};
use super::stream_values::{StreamValue, StreamValues};
use crate::error::Result;
use crate::memtable::log_streams::{LiveStream, StreamIndex, StreamList, runs_of};
use crate::memtable::logs::LogChunk;
use crate::part::logs::{KIND_SERVICE, StreamSet, StreamSetBuilder};

/// With fewer rows than one in this many slots, distinct slots are found with a hash map instead of an array.
const FEW_SLOTS: usize = 8;

/// The streams of a generation, shared by its batches.
#[derive(Debug)]
pub(crate) struct LiveStreams {
    streams: StreamList,
    index: Arc<StreamIndex>,
    /// The streams whose rows the caller may see; `None` means all.
    allowed: Option<StreamSet>,
    chosen: StreamTestCache,
    stats: Arc<ReadStats>,
}

impl LiveStreams {
    pub(crate) fn new(streams: StreamList, index: Arc<StreamIndex>, access: &Access, stats: &Arc<ReadStats>) -> Self {
        let allowed = (!access.is_full()).then(|| {
            index.extend(&streams);
            let mut set = StreamSetBuilder::new(streams.len());
            index.each_service(None, &mut |service, slots| {
                if access.allows(service) {
                    runs_of(slots).for_each(|run| set.add(run));
                }
            });
            set.finish()
        });
        Self { streams, index, allowed, chosen: StreamTestCache::default(), stats: Arc::clone(stats) }
    }

    /// The streams that pass a condition.
    pub(crate) async fn set(&self, test: StreamTest<'_>) -> Result<Arc<StreamSet>> {
        self.index.extend(&self.streams);
        self.chosen.of(test, self, &self.stats).await
    }

    /// Tells whether the caller may see the rows of a slot.
    pub(crate) fn allows(&self, slot: u32) -> bool {
        self.allowed.as_ref().is_none_or(|set| set.contains(slot))
    }

    /// The stream of a slot.
    pub(crate) fn stream(&self, slot: u32) -> &Arc<LiveStream> {
        &self.streams[slot as usize]
    }
}

#[async_trait]
impl Postings for LiveStreams {
    async fn streams(&self) -> Result<usize> {
        Ok(self.streams.len())
    }

    async fn each_value(&self, kind: u8, label: &str, only: Option<&str>, visit: &mut VisitValue<'_>) -> Result<()> {
        let each = &mut |value: &str, slots: &[u32]| visit(value, ValueStreams::Live(slots));
        if kind == KIND_SERVICE {
            self.index.each_service(only, each);
        } else {
            self.index.each_value(label, only, each);
        }
        Ok(())
    }

    async fn with_id(&self, id: StreamId) -> Result<Vec<u32>> {
        Ok(self.index.with_id(id))
    }

    async fn each_text(&self, value: &StreamValue, visit: &mut VisitText<'_>) -> Result<()> {
        for (stream, slot) in self.streams.from(0).zip(0..) {
            visit(slot, &value.of(stream));
        }
        Ok(())
    }
}

/// The rows of a live batch that a snapshot sees.
#[derive(Debug, Clone)]
pub(crate) struct LiveBlock {
    pub(crate) chunk: Arc<LogChunk>,
    pub(crate) rows: usize,
    pub(crate) streams: Arc<LiveStreams>,
}

impl LiveBlock {
    /// The distinct slots of some rows, and for each row the index of its slot among them.
    fn slots(&self, rows: &BooleanBuffer) -> (Vec<u32>, Vec<u32>) {
        let count = rows.count_set_bits();
        let mut used = Vec::new();
        let mut places = Vec::with_capacity(count);
        let own = rows.set_indices().map(|row| self.chunk.rows.slots[row]);
        if count * FEW_SLOTS < self.streams.streams.len() {
            let mut known: HashMap<u32, u32, foldhash::fast::FixedState> = HashMap::default();
            places.extend(own.map(|slot| {
                *known.entry(slot).or_insert_with(|| {
                    used.push(slot);
                    used.len() as u32 - 1
                })
            }));
        } else {
            let mut known = vec![u32::MAX; self.streams.streams.len()];
            places.extend(own.map(|slot| {
                let place = &mut known[slot as usize];
                if *place == u32::MAX {
                    *place = used.len() as u32;
                    used.push(slot);
                }
                *place
            }));
        }
        (places, used)
    }
}

fn bits(rows: &BooleanBuffer, mut passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
    let mut bits = BooleanBufferBuilder::new(rows.len());
    bits.append_n(rows.len(), false);
    rows.set_indices().filter(|&row| passes(row)).for_each(|row| bits.set_bit(row, true));
    bits.finish()
}

#[async_trait]
impl Block for LiveBlock {
    fn len(&self) -> usize {
        self.rows
    }

    async fn allowed(&mut self) -> Result<BooleanBuffer> {
        let all = BooleanBuffer::new_set(self.rows);
        Ok(match self.streams.allowed {
            None => all,
            Some(_) => bits(&all, |row| self.streams.allows(self.chunk.rows.slots[row])),
        })
    }

    async fn in_time(&mut self, ranges: &[(i64, i64)], rows: &BooleanBuffer) -> Result<BooleanBuffer> {
        let (min, max) = self.chunk.range;
        if ranges.iter().any(|r| r.0 <= min && max <= r.1) {
            return Ok(rows.clone());
        }
        let time = &self.chunk.rows.time;
        Ok(bits(rows, |row| ranges.iter().any(|r| r.0 <= time[row] && time[row] <= r.1)))
    }

    async fn times(&mut self, _rows: &BooleanBuffer) -> Result<Column> {
        let time = Int64Array::new(self.chunk.rows.time.slice(0, self.rows), None);
        Ok(Column::whole(Values::Time(time, None)))
    }

    async fn severity(&mut self, _rows: &BooleanBuffer) -> Result<Column> {
        let Some(severity) = &self.chunk.rows.severity else { return Ok(Column::missing()) };
        let numbers = severity[..self.rows].iter().map(|&s| (s > 0).then_some(i64::from(s)));
        Ok(Column::whole(Values::Int(numbers.collect())))
    }

    async fn observed(&mut self, _rows: &BooleanBuffer) -> Result<Column> {
        let Some(observed) = &self.chunk.rows.observed else { return Ok(Column::missing()) };
        let times = observed[..self.rows].iter().map(|&o| (o != 0).then_some(o));
        Ok(Column::whole(Values::Time(times.collect(), None)))
    }

    async fn in_streams(&mut self, rows: &BooleanBuffer, test: StreamTest<'_>) -> Result<BooleanBuffer> {
        let set = self.streams.set(test).await?;
        Ok(bits(rows, |row| set.contains(self.chunk.rows.slots[row])))
    }

    async fn of_streams(&mut self, value: &StreamValue, rows: &BooleanBuffer) -> Result<Values> {
        let (places, slots) = self.slots(rows);
        let streams = slots.iter().map(|&slot| &**self.streams.stream(slot));
        Ok(StreamValues::of(value, streams).of_rows(places.into_iter()))
    }

    async fn by_streams(&mut self, values: &[StreamValue], rows: &BooleanBuffer) -> Result<(Vec<Values>, Vec<u64>)> {
        let (places, slots) = self.slots(rows);
        let mut counts = vec![0; slots.len()];
        for place in places {
            counts[place as usize] += 1;
        }
        let of = |value: &StreamValue| {
            StreamValues::of(value, slots.iter().map(|&slot| &**self.streams.stream(slot))).into_values()
        };
        Ok((values.iter().map(of).collect(), counts))
    }

    async fn field(&mut self, name: &str, _rows: &BooleanBuffer) -> Result<Column> {
        let rows = &self.chunk.rows;
        Ok(match rows.name(name) {
            Some(name) => Column::whole(Values::Text(rows.column(name, self.rows))),
            None => Column::missing(),
        })
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        // Live rows have no columns; `overflow` handles all fields in one pass over each row.
        let _ = prefix;
        Vec::new()
    }

    async fn overflow(
        &mut self,
        prefix: &str,
        matcher: &dyn ValueMatcher,
        rows: &BooleanBuffer,
    ) -> Result<BooleanBuffer> {
        let own = &self.chunk.rows;
        let wanted: Vec<bool> = own.names.iter().map(|n| n.is_some_and(|n| n.starts_with(prefix))).collect();
        if !wanted.contains(&true) {
            return Ok(BooleanBuffer::new_unset(rows.len()));
        }
        let field = |f: usize| wanted[own.field_names[f] as usize] && matcher.matches(own.values.value(f));
        Ok(bits(rows, |row| own.fields(row).any(field)))
    }

    fn wanted_bytes(&self, wanted: &dyn Fn(&str) -> bool) -> u64 {
        let own = &self.chunk.rows;
        // Estimated without checking each field: mostly, most of a row is wanted.
        if own.names.iter().flatten().any(wanted) { own.values.value_data().len() as u64 } else { 0 }
    }

    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, rows: &BooleanBuffer) -> Vec<f32> {
        let own = &self.chunk.rows;
        if !own.names.iter().flatten().any(wanted) {
            return vec![0.0; rows.len().div_ceil(STEP_ROWS)];
        }
        let texts = own.values.value_offsets();
        let start = |row: usize| texts[own.offsets[row] as usize];
        let step = |from: usize| {
            let to = self.rows.min(from + STEP_ROWS);
            (start(to) - start(from)) as f32 / (to - from) as f32
        };
        (0..self.rows).step_by(STEP_ROWS).map(step).collect()
    }

    async fn field_counts(&mut self, rows: &BooleanBuffer, out: &mut BTreeMap<String, u64>) -> Result<()> {
        let own = &self.chunk.rows;
        let mut counts = vec![0u64; Array::len(&own.names)];
        for row in rows.set_indices() {
            own.fields(row).for_each(|f| counts[own.field_names[f] as usize] += 1);
        }
        for (name, count) in own.names.iter().zip(counts).filter(|(_, count)| *count > 0) {
            *out.entry(name.unwrap_or_default().to_owned()).or_default() += count;
        }
        Ok(())
    }

    async fn each_overflow(
        &mut self,
        rows: &BooleanBuffer,
        visit: &mut (dyn for<'a> FnMut(&'a str, &'a str) + Send),
    ) -> Result<()> {
        let own = &self.chunk.rows;
        let names: Vec<&str> = own.names.iter().map(Option::unwrap_or_default).collect();
        for row in rows.set_indices() {
            own.fields(row).for_each(|f| visit(names[own.field_names[f] as usize], own.values.value(f)));
        }
        Ok(())
    }

    async fn rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<MapArray> {
        let own = &self.chunk.rows;
        let names: Vec<&str> = own.names.iter().map(Option::unwrap_or_default).collect();
        let wanted: Vec<bool> = names.iter().map(|n| !without.contains(n)).collect();
        let mut out = MapWriter::new(rows.count_set_bits());
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for row in rows.set_indices() {
            fields.clear();
            let all = own.fields(row).filter(|&f| wanted[own.field_names[f] as usize]);
            fields.extend(all.map(|f| (names[own.field_names[f] as usize], own.values.value(f))));
            fields.sort_unstable_by_key(|f| f.0);
            for (name, value) in &fields {
                out.push(name, value);
            }
            out.end_row();
        }
        out.finish()
    }
}
