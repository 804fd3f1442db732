//! A row group of a part as a block: columns are read when they are asked for, of the rows that still matter.

mod overflow;
mod ranges;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanBufferBuilder, Int64Array, MapArray, StringViewArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::UInt8Type;
use async_trait::async_trait;
use quiver_types::logs::{LogFilter, OBSERVED_TIME, SEVERITY_NUMBER, TIME, ValueMatcher};
use quiver_types::stats::add;
use quiver_types::tables::logs as table;
use quiver_types::{ReadStats, Result};

use super::block::{Block, COMPUTED, STEP_ROWS, StreamValue, column, given_by_stream, values};
use super::choose::StreamTest;
use super::column::{Column, Runs, Values};
use super::output::MapWriter;
use super::parts::{Opened, streams_of};
use super::prune;
use super::slots::{OfStreams, StreamRun};
use crate::decoded::PAGE_BYTES_MAX;
use crate::error::Error;
use crate::memtable::logs::LiveStream;
use crate::part::Part;
use crate::part::logs::{ColumnKind, PartLogs, PartStream, page_times};
use overflow::{chosen, entries, field_of};
use ranges::{covers, runs};

/// Columns up to this are kept while windows of a row group are read.
const NARROW_BYTES: usize = 128 * 1024;
/// Rows that lie in more pages of a row group are not looked for in kept ones.
const PAGES_MAX: usize = 32;
/// Rows that are more than one of so many take as long to read as all of them.
const MOST_ROWS: usize = 4;
/// The same of pages.
const MOST_PAGES: usize = 2;
/// All pages of a column are those but one of so many.
const ALL_PAGES: usize = 8;
/// Memory of a decoded value, at least: codes take less in a file.
const VALUE_BYTES: u64 = 4;

/// A row group.
#[derive(Debug, Clone)]
pub(super) struct Group {
    opened: Arc<Opened>,
    group: usize,
}

impl Group {
    pub(super) fn new(opened: Arc<Opened>, group: usize) -> Self {
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

    /// Opens it; nothing is read yet.
    pub(super) fn open(&self) -> GroupBlock {
        GroupBlock {
            group: self.group,
            rows: self.opened.logs.group_rows(self.group),
            opened: Arc::clone(&self.opened),
            loaded: HashMap::new(),
            overflow: None,
            stats: ReadStats::default(),
            bytes: 0,
            job: false,
            sweep: None,
            narrowed: None,
        }
    }
}

/// What may be kept.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// A page of a column.
    Page(u32),
    /// A column that is read as a whole anyway.
    Column,
    /// A column of which more is read for that.
    More,
}

/// A row group that is being read.
#[derive(Debug)]
pub(super) struct GroupBlock {
    opened: Arc<Opened>,
    group: usize,
    rows: Range<u64>,
    loaded: HashMap<String, Column>,
    overflow: Option<(MapArray, Runs)>,
    stats: ReadStats,
    bytes: usize,
    /// A background job reads it once: no cache is asked or filled.
    job: bool,
    /// It is read window by window: columns, and pages of columns, for which the cache was asked.
    sweep: Option<HashSet<(String, Option<u32>)>>,
    /// The rows that all windows together ask for.
    narrowed: Option<BooleanBuffer>,
}

impl GroupBlock {
    /// Opens a row group for a background job.
    pub(super) fn for_job(part: Arc<Part>, logs: Arc<PartLogs>, group: usize) -> Self {
        let opened = Opened { part, logs, allowed: None, slots: None, words: HashMap::new() };
        Self { job: true, ..Group { opened: Arc::new(opened), group }.open() }
    }

    /// Forgets what was read.
    pub(super) fn forget(&mut self) {
        self.loaded.clear();
        self.overflow = None;
        self.bytes = 0;
    }

    /// Streams of a range of rows with the end of their rows in it.
    pub(super) fn streams_within(&self, range: &Range<usize>) -> Vec<(Arc<LiveStream>, usize)> {
        let here = self.streams().filter(|(_, _, rows)| rows.start < range.end && range.start < rows.end);
        here.map(|(_, s, rows)| (Arc::clone(&s.stream), rows.end.min(range.end) - range.start)).collect()
    }

    fn len(&self) -> usize {
        (self.rows.end - self.rows.start) as usize
    }

    /// Streams of the group with their rows in it, where they are known.
    fn streams(&self) -> impl Iterator<Item = (usize, &PartStream, Range<usize>)> {
        let all = self.opened.logs.streams.as_deref().unwrap_or_default();
        streams_of(all, &self.rows).map(move |n| {
            let rows = all[n].rows.start.max(self.rows.start)..all[n].rows.end.min(self.rows.end);
            (n, &all[n], (rows.start - self.rows.start) as usize..(rows.end - self.rows.start) as usize)
        })
    }

    /// Sets the rows of the streams that pass.
    fn rows_of(&self, mut passes: impl FnMut(usize, &PartStream) -> bool) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(self.len());
        for (number, stream, rows) in self.streams() {
            bits.append_n(rows.len(), passes(number, stream));
        }
        bits.finish()
    }

    /// Streams of rows, each with the number of them.
    async fn runs(&self, rows: &BooleanBuffer) -> Result<Vec<StreamRun>> {
        if let Some(slots) = &self.opened.slots {
            return slots.runs(self.rows.start, rows).await;
        }
        let count = |own: &Range<usize>| rows.slice(own.start, own.len()).count_set_bits() as u32;
        let all = self.streams().map(|(number, _, own)| (number as u32, count(&own)));
        Ok(all.filter(|(_, count)| *count > 0).collect())
    }

    /// A value of some streams.
    async fn values_of(&self, value: &StreamValue, streams: &[u32]) -> Result<OfStreams> {
        if let Some(slots) = &self.opened.slots {
            return slots.values(value, streams).await;
        }
        let all = self.opened.logs.streams.as_deref().unwrap_or_default();
        Ok(OfStreams::of(value, streams.iter().map(|&number| &*all[number as usize].stream)))
    }

    /// Reads an array of the file, of the rows that are set or more.
    async fn read(&mut self, name: &str, rows: &BooleanBuffer) -> Result<(ArrayRef, Runs)> {
        let runs = runs(rows);
        let whole = 0..self.len() as u32;
        let wanted = runs.as_deref().unwrap_or(std::slice::from_ref(&whole));
        let Opened { part, logs, .. } = &*self.opened;
        let array = part.read_log_column(logs, self.group, name, wanted, !self.job, &self.stats).await?;
        self.bytes += array.get_array_memory_size();
        Ok((array, runs.map(Arc::new)))
    }

    async fn load(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Column> {
        if let Some(known) = self.loaded.get(name)
            && covers(known.at.as_ref(), rows)
        {
            return Ok(known.clone());
        }
        let column = self.load_new(name, digits, rows).await?;
        self.loaded.insert(name.to_owned(), column.clone());
        Ok(column)
    }

    async fn load_new(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Column> {
        let opened = Arc::clone(&self.opened);
        let cache = opened.part.decoded();
        if !self.job
            && let Some(values) = cache.get(opened.part.meta.id, self.group, name)
        {
            add(&self.stats.cache_hits, 1);
            return Ok(Column::whole(values));
        }
        let most = self.takes_most(name, rows);
        if !(self.job || most)
            && let Some(column) = self.load_pages(name, digits, rows).await?
        {
            return Ok(column);
        }
        // None is read as a whole for a cache that has no room for it.
        let bytes = opened.logs.column_bytes(self.group, name).max(rows.len() as u64 * VALUE_BYTES);
        let has_room = cache.has_room(bytes, opened.logs.groups());
        let admitted = !self.job && most && has_room && {
            let column = if self.takes_all(name, rows) { Kept::Column } else { Kept::More };
            self.admits(name, column)
        };
        let all = BooleanBuffer::new_set(rows.len());
        let (array, at) = self.read(name, if admitted { &all } else { rows }).await?;
        let values = values_of(name, &array, digits)?;
        if admitted && at.is_none() {
            cache.insert(opened.part.meta.id, self.group, name, &values, opened.logs.groups());
        }
        Ok(Column { values, at })
    }

    /// Says whether reading some rows of a column takes about as long as reading all of them. Where the group is read by
    /// windows, the rows of all windows count.
    fn takes_most(&self, name: &str, rows: &BooleanBuffer) -> bool {
        let logs = &self.opened.logs;
        let rows = self.narrowed.as_ref().filter(|_| self.sweep.is_some()).unwrap_or(rows);
        let pages = logs.pages(self.group, name) / MOST_PAGES;
        rows.count_set_bits() * MOST_ROWS >= rows.len() || logs.pages_of(self.group, name, rows, pages).is_none()
    }

    /// Says whether a column is read as a whole for some rows anyway, but for one page in so many.
    fn takes_all(&self, name: &str, rows: &BooleanBuffer) -> bool {
        let logs = &self.opened.logs;
        let rows = self.narrowed.as_ref().filter(|_| self.sweep.is_some()).unwrap_or(rows);
        let pages = logs.pages(self.group, name);
        logs.pages_of(self.group, name, rows, pages - pages.div_ceil(ALL_PAGES)).is_none()
    }

    /// Says whether a column that is about to be read should be kept, or a page of it; notes its use. What windows ask
    /// for one after the other is one use.
    fn admits(&mut self, name: &str, kept: Kept) -> bool {
        let (cache, part) = (self.opened.part.decoded(), self.opened.part.meta.id);
        let page = if let Kept::Page(page) = kept { Some(page) } else { None };
        let is_new = self.sweep.as_mut().is_none_or(|asked| asked.insert((name.to_owned(), page)));
        is_new
            && match kept {
                Kept::Page(page) => cache.wants_page(part, self.group, name, page),
                Kept::Column => cache.wants(part, self.group, name),
                Kept::More => cache.wants_more(part, self.group, name),
            }
    }

    /// A few rows of a column out of pages that are kept decoded; `None` while they are not. Pages are decompressed whole
    /// for a single row of them, which is what looking up few rows costs.
    async fn load_pages(&mut self, name: &str, digits: Option<u8>, rows: &BooleanBuffer) -> Result<Option<Column>> {
        let opened = Arc::clone(&self.opened);
        let (part, cache) = (opened.part.meta.id, opened.part.decoded());
        // Pages that are too large would not be kept.
        let fit =
            opened.logs.column_bytes(self.group, name) <= opened.logs.pages(self.group, name) as u64 * PAGE_BYTES_MAX;
        let pages = opened.logs.pages_of(self.group, name, rows, PAGES_MAX);
        let Some(pages) = pages.filter(|pages| fit && !pages.is_empty()) else { return Ok(None) };
        let mut found: Vec<_> = pages.iter().map(|p| cache.page(part, self.group, name, p.0)).collect();
        let (mut missing, mut wanted) = (Vec::new(), true);
        for ((page, range), _) in pages.iter().zip(&found).filter(|(_, known)| known.is_none()) {
            wanted &= self.admits(name, Kept::Page(*page));
            missing.push(range.start as u32..range.end as u32);
        }
        if !wanted {
            return Ok(None);
        }
        add(&self.stats.cache_hits, (pages.len() - missing.len()) as u64);
        if !missing.is_empty() {
            // All at once: what is done once for each read costs more than a page.
            let array =
                opened.part.read_log_column(&opened.logs, self.group, name, &missing, true, &self.stats).await?;
            let (read, mut next) = (values_of(name, &array, digits)?, 0);
            for ((page, range), known) in pages.iter().zip(&mut found).filter(|(_, known)| known.is_none()) {
                let own = read.cut(next..next + range.len())?;
                next += range.len();
                cache.insert_page(part, self.group, name, *page, &own);
                *known = Some(own);
            }
        }
        let mut chosen = Vec::with_capacity(pages.len());
        for ((_, range), values) in pages.into_iter().zip(found.into_iter().flatten()) {
            let rows = rows.slice(range.start, range.len());
            chosen.push((Column::whole(values).gather(&rows)?, rows.count_set_bits()));
        }
        let values = Values::concat(&chosen)?;
        self.bytes += values.memory_bytes();
        Ok(Some(Column::of_set(values, rows)))
    }

    /// The overflow map of some rows.
    async fn map(&mut self, rows: &BooleanBuffer) -> Result<Option<(MapArray, Runs)>> {
        if !self.opened.logs.has.overflow {
            return Ok(None);
        }
        if let Some((map, at)) = &self.overflow
            && covers(at.as_ref(), rows)
        {
            return Ok(Some((map.clone(), at.clone())));
        }
        let (array, at) = self.read(table::FIELDS, rows).await?;
        let map = array.as_map_opt().ok_or_else(|| Error::internal("the overflow map is none"))?.clone();
        self.overflow = Some((map.clone(), at.clone()));
        Ok(Some((map, at)))
    }
}

/// Takes an array of a column out of a file.
fn values_of(name: &str, array: &ArrayRef, digits: Option<u8>) -> Result<Values> {
    if name != SEVERITY_NUMBER {
        return Values::of(array, digits);
    }
    let numbers = array.as_primitive_opt::<UInt8Type>();
    let numbers = numbers.ok_or_else(|| Error::internal("severities are of another type"))?;
    Ok(Values::Int(numbers.iter().map(|n| n.map(i64::from)).collect::<Int64Array>()))
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
        let Opened { logs, words, .. } = &*self.opened;
        let group = prune::Group { logs, words, number: self.group, rows: self.rows.clone() };
        let streams = match &self.opened.slots {
            None => self.rows_of(|_, s| prune::stream_may_match(filter, &s.stream, s.range)),
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
        let mut own: Vec<(&str, StringViewArray)> = Vec::new();
        for plan in opened.logs.columns.columns.iter().filter(|c| !without.contains(&c.name.as_str())) {
            let values = values(self, &plan.name, rows).await?;
            own.push((&plan.name, values.to_text(count)));
        }
        for (name, value) in opened.logs.columns.constants.iter().filter(|(n, _)| !without.contains(&n.as_str())) {
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
                overflow.iter().flat_map(|m| entries(m, row)).filter(|(n, _)| !without.contains(n)).peekable();
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
