//! A row group of a part as a block: columns are read on demand, and only for rows that still matter.

mod load;
mod overflow;
mod ranges;
mod streams;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, BooleanBufferBuilder, MapArray, StringViewArray};
use arrow::buffer::BooleanBuffer;
use async_trait::async_trait;
use quiver_types::logs::{LogFilter, OBSERVED_TIME, SEVERITY_NUMBER, TIME, ValueMatcher};
use quiver_types::{ReadStats, Result};

use super::block::{Block, COMPUTED, STEP_ROWS, column, given_by_stream, values};
use super::column::{Column, Runs, Values};
use super::open_part::OpenedLogPart;
use super::output::MapWriter;
use super::pruning;
use super::stream_selection::StreamTest;
use super::stream_values::StreamValue;
use crate::memtable::log_streams::LiveStream;
use crate::part::logs::{ColumnKind, PartLogs, page_times};
use crate::part::{Part, Purpose};
use overflow::{chosen, entries, field_of};

/// Columns up to this size are kept while a row group is read in windows.
const NARROW_BYTES: usize = 128 * 1024;

/// A row group that a scan may read.
#[derive(Debug, Clone)]
pub(super) struct Group {
    opened: Arc<OpenedLogPart>,
    group: usize,
}

impl Group {
    pub(super) fn new(opened: Arc<OpenedLogPart>, group: usize) -> Self {
        Self { opened, group }
    }

    /// First and last time.
    pub(super) fn range(&self) -> (i64, i64) {
        self.opened.logs.group_ranges[self.group]
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        let rows = self.opened.logs.group_rows(self.group);
        (rows.end - rows.start) as usize
    }

    /// Opens the row group; nothing is read yet.
    pub(super) fn open(&self) -> GroupBlock {
        GroupBlock {
            group: self.group,
            rows: self.opened.logs.group_rows(self.group),
            opened: Arc::clone(&self.opened),
            loaded: HashMap::new(),
            overflow: None,
            stats: ReadStats::default(),
            bytes: 0,
            purpose: Purpose::Query,
            sweep: None,
            narrowed: None,
        }
    }
}

/// A row group that is being read.
#[derive(Debug)]
pub(super) struct GroupBlock {
    opened: Arc<OpenedLogPart>,
    group: usize,
    rows: Range<u64>,
    loaded: HashMap<String, Column>,
    overflow: Option<(MapArray, Runs)>,
    stats: ReadStats,
    bytes: usize,
    /// A background job bypasses the caches.
    purpose: Purpose,
    /// If it is read in windows: the columns and pages for which the cache has already been asked.
    sweep: Option<HashSet<(String, Option<u32>)>>,
    /// The rows that all windows together request.
    narrowed: Option<BooleanBuffer>,
}

impl GroupBlock {
    /// Opens a row group for a background job.
    pub(super) fn for_job(part: Arc<Part>, logs: Arc<PartLogs>, group: usize) -> Self {
        let opened = OpenedLogPart { part, logs, allowed: None, slots: None, words: HashMap::new() };
        Self { purpose: Purpose::Job, ..Group { opened: Arc::new(opened), group }.open() }
    }

    /// Frees everything that was read.
    pub(super) fn forget(&mut self) {
        self.loaded.clear();
        self.overflow = None;
        self.bytes = 0;
    }

    /// The streams in a range of rows, each with the end of its rows relative to the range.
    pub(super) fn streams_within(&self, range: &Range<usize>) -> Vec<(Arc<LiveStream>, usize)> {
        let here = self.streams().filter(|(_, _, rows)| rows.start < range.end && range.start < rows.end);
        here.map(|(_, s, rows)| (Arc::clone(&s.stream), rows.end.min(range.end) - range.start)).collect()
    }

    fn len(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }
}

#[async_trait]
impl Block for GroupBlock {
    fn len(&self) -> usize {
        self.len()
    }

    async fn allowed(&mut self) -> Result<BooleanBuffer> {
        Ok(match (&self.opened.allowed, &self.opened.slots) {
            (None, _) => BooleanBuffer::new_set(self.len()),
            (Some(allowed), Some(slots)) => slots.rows_of(allowed, &self.rows).await?,
            (Some(allowed), None) => self.rows_of(|number, _| allowed.contains(number as u32)),
        })
    }

    async fn candidates(&mut self, filter: &LogFilter, rows: BooleanBuffer) -> Result<BooleanBuffer> {
        let OpenedLogPart { logs, words, .. } = &*self.opened;
        let group = pruning::Group { logs, words, number: self.group, rows: self.rows.clone() };
        let streams = match &self.opened.slots {
            None => self.rows_of(|_, s| pruning::stream_may_match(filter, &s.stream, s.range)),
            Some(slots) => match slots.may_match(filter, &|name| self.opened.any_of_stream(name)).await? {
                None => rows.clone(),
                Some(set) => slots.rows_of(&set, &self.rows).await?,
            },
        };
        Ok(group.candidates(filter, &(&rows & &streams)))
    }

    async fn in_time(&mut self, ranges: &[(i64, i64)], rows: &BooleanBuffer) -> Result<BooleanBuffer> {
        let mut inside = BooleanBufferBuilder::new(rows.len());
        let mut open = BooleanBufferBuilder::new(rows.len());
        let pages = page_times(&self.opened.logs.footer, self.group);
        if pages.is_empty() {
            open.append_n(rows.len(), true);
            inside.append_n(rows.len(), false);
        }
        for (at, &(first, (min, max))) in pages.iter().enumerate() {
            let end = pages.get(at + 1).map_or(rows.len(), |next| next.0 as usize);
            let whole = ranges.iter().any(|r| r.0 <= min && max <= r.1);
            let touched = ranges.iter().any(|r| r.0 <= max && min <= r.1);
            inside.append_n(end - first as usize, whole);
            open.append_n(end - first as usize, touched && !whole);
        }
        let (inside, open) = (rows & &inside.finish(), rows & &open.finish());
        if open.set_slices().next().is_none() {
            return Ok(inside);
        }
        let times = self.times(&open).await?;
        let Values::Time(array, _) = &times.values else { return Ok(inside) };
        let found = times.select(&open, |at| {
            let time = array.value(at);
            ranges.iter().any(|r| r.0 <= time && time <= r.1)
        });
        Ok(&inside | &found)
    }

    async fn times(&mut self, rows: &BooleanBuffer) -> Result<Column> {
        self.load(TIME, None, rows).await
    }

    async fn severity(&mut self, rows: &BooleanBuffer) -> Result<Column> {
        if self.opened.logs.has.severity { self.load(SEVERITY_NUMBER, None, rows).await } else { Ok(Column::missing()) }
    }

    async fn observed(&mut self, rows: &BooleanBuffer) -> Result<Column> {
        if self.opened.logs.has.observed { self.load(OBSERVED_TIME, None, rows).await } else { Ok(Column::missing()) }
    }

    async fn in_streams(&mut self, rows: &BooleanBuffer, test: StreamTest<'_>) -> Result<BooleanBuffer> {
        Ok(match &self.opened.slots {
            Some(slots) => rows & &slots.rows_of(&*slots.set(test).await?, &self.rows).await?,
            None => rows & &self.rows_of(|_, s| test.passes(&s.stream)),
        })
    }

    async fn of_streams(&mut self, value: &StreamValue, rows: &BooleanBuffer) -> Result<Values> {
        let runs = self.runs(rows).await?;
        let streams: Vec<u32> = runs.iter().map(|run| run.0).collect();
        let mut places: Vec<u32> = Vec::with_capacity(rows.count_set_bits());
        for (place, run) in (0..).zip(&runs) {
            places.resize(places.len() + run.1 as usize, place);
        }
        Ok(self.values_of(value, &streams).await?.of_rows(places.into_iter()))
    }

    async fn by_streams(&mut self, values: &[StreamValue], rows: &BooleanBuffer) -> Result<(Vec<Values>, Vec<u64>)> {
        let runs = self.runs(rows).await?;
        let streams: Vec<u32> = runs.iter().map(|run| run.0).collect();
        let mut columns = Vec::with_capacity(values.len());
        for value in values {
            columns.push(self.values_of(value, &streams).await?.into_values());
        }
        Ok((columns, runs.into_iter().map(|run| u64::from(run.1)).collect()))
    }

    fn reads_instead(&self, value: &StreamValue) -> bool {
        matches!(value, StreamValue::Label(_)) && self.opened.slots.is_some() && !self.opened.logs.long_streams
    }

    fn of_stream(&self, name: &str) -> Option<StreamValue> {
        self.opened.of_stream(name)
    }

    async fn field(&mut self, name: &str, rows: &BooleanBuffer) -> Result<Column> {
        let opened = Arc::clone(&self.opened);
        if let Some(at) = opened.logs.columns.find(name) {
            let digits = match opened.logs.columns.columns[at].kind {
                ColumnKind::Time(digits) => Some(digits),
                _ => None,
            };
            return self.load(name, digits, rows).await;
        }
        match self.of_stream(name) {
            Some(StreamValue::Same(value)) if value.is_empty() => return Ok(Column::missing()),
            Some(StreamValue::Same(value)) => return Ok(Column::constant(value)),
            _ => {}
        }
        Ok(match self.map(rows).await? {
            Some((map, at)) => Column { values: Values::Text(field_of(&map, name)), at },
            None => Column::missing(),
        })
    }

    fn names(&self, prefix: &str) -> Vec<String> {
        let columns = &self.opened.logs.columns;
        let all = columns.columns.iter().map(|c| &c.name).chain(columns.constants.keys());
        all.filter(|n| n.starts_with(prefix) && !COMPUTED.contains(&n.as_str())).cloned().collect()
    }

    async fn overflow(
        &mut self,
        prefix: &str,
        matcher: &dyn ValueMatcher,
        rows: &BooleanBuffer,
    ) -> Result<BooleanBuffer> {
        let Some((map, at)) = self.map(rows).await? else { return Ok(BooleanBuffer::new_unset(rows.len())) };
        let column = Column { values: Values::Missing, at };
        Ok(column.select(rows, |at| {
            entries(&map, at).any(|(name, value)| name.starts_with(prefix) && matcher.matches(value))
        }))
    }

    async fn prefetch(&mut self, name: &str, rows: &BooleanBuffer) -> Result<()> {
        if given_by_stream(self, name).is_some() {
            return Ok(());
        }
        column(self, name, rows).await.map(drop)
    }

    async fn prefetch_rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        for plan in opened.logs.columns.columns.iter().filter(|c| !without.contains(&c.name.as_str())) {
            self.prefetch(&plan.name, rows).await?;
        }
        self.map(rows).await.map(drop)
    }

    async fn field_counts(&mut self, rows: &BooleanBuffer, out: &mut BTreeMap<String, u64>) -> Result<()> {
        let opened = Arc::clone(&self.opened);
        let (logs, count) = (&opened.logs, rows.count_set_bits() as u64);
        let mut add = |name: &str, n: u64| {
            if n > 0 {
                *out.entry(name.to_owned()).or_default() += n;
            }
        };
        for plan in &logs.columns.columns {
            if let (true, Some(told)) = (count == rows.len() as u64, plan.in_groups.get(self.group)) {
                add(&plan.name, *told);
                continue;
            }
            let column = column(self, &plan.name, rows).await?;
            let mut found = 0;
            column.for_each(rows, |_, at| found += u64::from(!column.values.is_null(at)));
            add(&plan.name, found);
        }
        logs.columns.constants.keys().for_each(|name| add(name, count));
        if let Some((map, at)) = self.map(rows).await? {
            let mut of_names: HashMap<&str, u64> = HashMap::new();
            let column = Column { values: Values::Missing, at };
            column.for_each(rows, |_, at| {
                entries(&map, at).for_each(|(name, _)| *of_names.entry(name).or_default() += 1);
            });
            for (name, n) in of_names {
                add(name, n);
            }
        }
        Ok(())
    }

    async fn each_overflow(
        &mut self,
        rows: &BooleanBuffer,
        visit: &mut (dyn for<'a> FnMut(&'a str, &'a str) + Send),
    ) -> Result<()> {
        if let Some((map, at)) = self.map(rows).await? {
            let column = Column { values: Values::Missing, at };
            column.for_each(rows, |_, at| entries(&map, at).for_each(|(name, value)| visit(name, value)));
        }
        Ok(())
    }

    fn wanted_bytes(&self, wanted: &dyn Fn(&str) -> bool) -> u64 {
        self.opened.logs.wanted_bytes(self.group, wanted)
    }

    fn row_bytes(&self, wanted: &dyn Fn(&str) -> bool, rows: &BooleanBuffer) -> Vec<f32> {
        self.opened.logs.row_bytes(self.group, STEP_ROWS, wanted, rows)
    }

    fn sweep(&mut self) -> bool {
        self.sweep = Some(HashSet::new());
        true
    }

    fn narrow(&mut self, rows: &BooleanBuffer) {
        self.narrowed = Some(rows.clone());
    }

    fn is_read(&self) -> bool {
        true
    }

    fn forget_wide(&mut self) {
        self.loaded.retain(|_, column| column.values.memory_bytes() <= NARROW_BYTES);
        if self.overflow.as_ref().is_some_and(|(map, _)| map.get_array_memory_size() > NARROW_BYTES) {
            self.overflow = None;
        }
        let map = self.overflow.as_ref().map_or(0, |(map, _)| map.get_array_memory_size());
        self.bytes = map + self.loaded.values().map(|column| column.values.memory_bytes()).sum::<usize>();
    }

    fn take_stats(&mut self) -> ReadStats {
        std::mem::take(&mut self.stats)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    async fn rest(&mut self, without: &[&str], rows: &BooleanBuffer) -> Result<MapArray> {
        let opened = Arc::clone(&self.opened);
        let count = rows.count_set_bits();
        // A query may name a thousand fields, and each entry of each row is looked up among them.
        let without: HashSet<&str, foldhash::fast::RandomState> = without.iter().copied().collect();
        let mut own: Vec<(&str, StringViewArray)> = Vec::new();
        for plan in opened.logs.columns.columns.iter().filter(|c| !without.contains(c.name.as_str())) {
            let values = values(self, &plan.name, rows).await?;
            own.push((&plan.name, values.to_text(count)));
        }
        for (name, value) in opened.logs.columns.constants.iter().filter(|(n, _)| !without.contains(n.as_str())) {
            own.push((name, Values::Constant(value.as_str().into()).to_text(count)));
        }
        own.sort_unstable_by_key(|o| o.0);
        let overflow = match self.map(rows).await? {
            Some((map, at)) => Some(chosen(&map, at.as_ref(), rows)?),
            None => None,
        };
        let mut out = MapWriter::new(count);
        for row in 0..count {
            let mut more =
                overflow.iter().flat_map(|m| entries(m, row)).filter(|(n, _)| !without.contains(*n)).peekable();
            for (name, values) in own.iter().filter(|(_, values)| !values.is_null(row)) {
                while let Some((name, value)) = more.next_if(|(n, _)| n < name) {
                    out.push(name, value);
                }
                out.push(name, values.value(row));
            }
            more.for_each(|(name, value)| out.push(name, value));
            out.end_row();
        }
        out.finish()
    }
}
