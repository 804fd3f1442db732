//! Blocks of live rows: a batch of a generation as it came. Values stay where they are; a column is made of them when it
//! is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, BooleanBufferBuilder, Int64Array, MapArray};
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use quiver_types::Access;
use quiver_types::logs::ValueMatcher;

use super::block::{Block, STEP_ROWS};
use super::column::{Column, Values};
use super::output::MapWriter;
use crate::error::Result;
use crate::memtable::logs::{LiveStream, LogChunk};

/// Batches of one generation share their streams.
#[derive(Debug)]
pub(crate) struct LiveStreams {
    streams: Vec<Arc<LiveStream>>,
    /// By slot: whether the caller may see its rows.
    allowed: Vec<bool>,
    all_allowed: bool,
}

impl LiveStreams {
    pub(crate) fn new(streams: Vec<Arc<LiveStream>>, access: &Access) -> Self {
        let allowed: Vec<bool> = streams.iter().map(|s| access.allows(&s.service)).collect();
        let all_allowed = allowed.iter().all(|&a| a);
        Self { streams, allowed, all_allowed }
    }
}

/// Rows of a live batch that a snapshot sees.
#[derive(Debug, Clone)]
pub(crate) struct LiveBlock {
    pub(crate) chunk: Arc<LogChunk>,
    pub(crate) rows: usize,
    pub(crate) streams: Arc<LiveStreams>,
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

    fn allowed(&self) -> BooleanBuffer {
        let all = BooleanBuffer::new_set(self.rows);
        if self.streams.all_allowed {
            return all;
        }
        bits(&all, |row| self.streams.allowed[self.chunk.rows.slots[row] as usize])
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

    fn in_streams(&self, rows: &BooleanBuffer, passes: &mut (dyn FnMut(&LiveStream) -> bool + Send)) -> BooleanBuffer {
        // 0: not asked yet.
        let mut known = vec![0u8; self.streams.streams.len()];
        bits(rows, |row| {
            let slot = self.chunk.rows.slots[row] as usize;
            if known[slot] == 0 {
                known[slot] = 1 + u8::from(passes(&self.streams.streams[slot]));
            }
            known[slot] == 2
        })
    }

    fn streams(&self, rows: &BooleanBuffer) -> (Vec<u32>, Vec<Arc<LiveStream>>) {
        let mut codes = vec![u32::MAX; self.streams.streams.len()];
        let mut used = Vec::new();
        let mut keys = Vec::with_capacity(rows.count_set_bits());
        for row in rows.set_indices() {
            let slot = self.chunk.rows.slots[row] as usize;
            if codes[slot] == u32::MAX {
                codes[slot] = used.len() as u32;
                used.push(Arc::clone(&self.streams.streams[slot]));
            }
            keys.push(codes[slot]);
        }
        (keys, used)
    }

    async fn field(&mut self, name: &str, _rows: &BooleanBuffer) -> Result<Column> {
        let rows = &self.chunk.rows;
        Ok(match rows.name(name) {
            Some(name) => Column::whole(Values::Text(rows.column(name, self.rows))),
            None => Column::missing(),
        })
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        // All of them go by `overflow`: one walk over the fields of each row.
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

    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, least: u64) -> Vec<f32> {
        let own = &self.chunk.rows;
        // Without a look at each field: what is wanted of a row is most often most of it.
        if own.values.value_data().len() as u64 <= least || !own.names.iter().flatten().any(wanted) {
            return Vec::new();
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
            fields.iter().for_each(|(name, value)| out.push(name, value));
            out.end_row();
        }
        out.finish()
    }
}
