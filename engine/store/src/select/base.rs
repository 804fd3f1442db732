//! The series of the parts of a question, united, and a small cache of them.
//!
//! Parts are immutable, so what a set of parts answers to (selectors, access) never changes. It is resolved for all of
//! time and cut to the question's range afterwards: a dashboard that asks for "the last hour" again and again finds
//! its series resolved. The cache holds no `Part`, so it keeps no file alive.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use quiver_types::series::LabelColumn;
use quiver_types::stats::add;
use quiver_types::{Access, Matcher, MillisRange, ReadStats, Result, SeriesId, SeriesTable};

use super::dictionary::CodedColumn;
use super::handle::PartRows;
use super::resolve::{PARTS_OPENED_AT_ONCE, Question};
use super::union::{SeriesList, unite};
use crate::error::leave_out;
use crate::part::{Part, PartId, PartSeries};

/// United series of some parts.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) ids: Arc<Vec<SeriesId>>,
    pub(crate) table: Arc<SeriesTable>,
    /// Per part: rows and series numbers, both ascending.
    parts: Vec<(Arc<Vec<u32>>, Arc<Vec<u32>>)>,
}

/// Series of a part.
struct PartList<'a> {
    series: &'a PartSeries,
    numbers: &'a [u32],
}

impl SeriesList for PartList<'_> {
    fn len(&self) -> usize {
        self.numbers.len()
    }

    fn id(&self, i: usize) -> SeriesId {
        self.series.id(self.numbers[i])
    }

    fn columns(&self, places: Option<&[u32]>, stats: &ReadStats) -> Result<Vec<CodedColumn>> {
        match places {
            None => part_columns(self.series, self.numbers, stats),
            Some(places) => {
                let numbers: Vec<u32> = places.iter().map(|&i| self.numbers[i as usize]).collect();
                part_columns(self.series, &numbers, stats)
            }
        }
    }
}

/// Codes the labels of some series of a part.
fn part_columns(series: &PartSeries, numbers: &[u32], stats: &ReadStats) -> Result<Vec<CodedColumn>> {
    let bytes = size_of_val(numbers);
    let mut out = Vec::new();
    for label in series.label_columns() {
        stats.take(bytes)?;
        stats.check()?;
        let (name, values) = (Arc::clone(&label.name), Arc::clone(&label.values));
        let coded = CodedColumn { name, values, codes: label.codes.gather(numbers) };
        if coded.is_absent() {
            stats.give_back(bytes);
        } else {
            out.push(coded.compact());
        }
    }
    Ok(out)
}

impl Base {
    /// Bytes that it holds; texts are shared with others mostly and counted by their pointers.
    fn bytes(&self) -> usize {
        let columns = self.table.columns().map(|(_, c)| 4 * c.codes.len() + 16 * c.values.len());
        16 * self.ids.len() + columns.sum::<usize>() + self.parts.iter().map(|p| 8 * p.0.len() + 64).sum::<usize>()
    }

    fn of(parts: &[(Arc<PartSeries>, Vec<u32>)], stats: &ReadStats) -> Result<Self> {
        let lists: Vec<_> = parts.iter().map(|(series, numbers)| PartList { series, numbers }).collect();
        let union = unite(&lists.iter().map(|list| list as &dyn SeriesList).collect::<Vec<_>>(), stats)?;
        let numbers = parts.iter().map(|(_, numbers)| Arc::new(numbers.clone()));
        let rows = union.rows.into_iter().map(Arc::new);
        Ok(Self { ids: union.ids, table: union.table, parts: rows.zip(numbers).collect() })
    }
}

/// The series of a [`Base`] that may have samples in a range, and where they are.
pub(crate) struct Narrowed {
    pub(crate) ids: Arc<Vec<SeriesId>>,
    pub(crate) table: Arc<SeriesTable>,
    pub(crate) parts: Vec<PartRows>,
}

impl SeriesList for Narrowed {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn id(&self, i: usize) -> SeriesId {
        self.ids[i]
    }

    fn columns(&self, places: Option<&[u32]>, stats: &ReadStats) -> Result<Vec<CodedColumn>> {
        let rows = places.map_or(self.table.len(), <[u32]>::len);
        stats.take(rows * self.table.names().len() * size_of::<u32>())?;
        let table = places.map_or_else(|| Arc::clone(&self.table), |places| Arc::new(compact(&self.table, places)));
        let coded = |(name, column): (&Arc<str>, &LabelColumn)| CodedColumn {
            name: Arc::clone(name),
            values: Arc::clone(&column.values),
            codes: column.codes.to_vec(),
        };
        Ok(table.columns().map(coded).collect())
    }

    fn table(&self) -> Option<(Arc<Vec<SeriesId>>, Arc<SeriesTable>)> {
        Some((Arc::clone(&self.ids), Arc::clone(&self.table)))
    }
}

/// Keeps some rows of a table, and of labels and values those that they have.
fn compact(table: &SeriesTable, rows: &[u32]) -> SeriesTable {
    let columns = table.columns().map(|(name, column)| {
        let codes = rows.iter().map(|&row| column.codes[row as usize]).collect();
        CodedColumn { name: Arc::clone(name), values: Arc::clone(&column.values), codes }.compact()
    });
    let columns = columns.filter(|c| !c.is_absent());
    let columns = columns.map(|c| (c.name, LabelColumn { values: c.values, codes: Arc::new(c.codes) }));
    SeriesTable::new(rows.len(), columns.collect())
}

/// Keeps the series that may have samples in the range.
fn narrow(
    base: &Base,
    parts: &[(Arc<Part>, Arc<PartSeries>)],
    range: MillisRange,
    stats: &ReadStats,
) -> Result<Narrowed> {
    let mut out = Vec::with_capacity(parts.len());
    for ((part, series), (rows, numbers)) in parts.iter().zip(&base.parts) {
        let (mut rows, mut numbers) = (Arc::clone(rows), Arc::clone(numbers));
        let own = part.meta.range();
        if own.min < range.min || range.max < own.max {
            let inside = |&(_, &number): &(&u32, &u32)| series.range(number).overlaps(&range);
            let kept: (Vec<u32>, Vec<u32>) = rows.iter().zip(&*numbers).filter(inside).unzip();
            (rows, numbers) = (Arc::new(kept.0), Arc::new(kept.1));
        }
        if !rows.is_empty() {
            out.push(PartRows { part: Arc::clone(part), series: Arc::clone(series), rows, numbers });
        }
    }
    let mut has_samples = vec![false; base.ids.len()];
    out.iter().flat_map(|part| &*part.rows).for_each(|&row| has_samples[row as usize] = true);
    if has_samples.iter().all(|&kept| kept) {
        return Ok(Narrowed { ids: Arc::clone(&base.ids), table: Arc::clone(&base.table), parts: out });
    }
    let rows = has_samples.iter().filter(|kept| **kept).count();
    stats.take(rows * (base.table.names().len() * size_of::<u32>() + size_of::<SeriesId>()))?;
    stats.check()?;
    let kept: Vec<u32> = (0..base.ids.len() as u32).filter(|&row| has_samples[row as usize]).collect();
    let mut row_of = vec![0u32; base.ids.len()];
    (0..).zip(&kept).for_each(|(new, &old)| row_of[old as usize] = new);
    for part in &mut out {
        part.rows = Arc::new(part.rows.iter().map(|&row| row_of[row as usize]).collect());
    }
    let ids = Arc::new(kept.iter().map(|&row| base.ids[row as usize]).collect());
    Ok(Narrowed { ids, table: Arc::new(compact(&base.table, &kept)), parts: out })
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    selectors: Vec<Vec<Matcher>>,
    access: Access,
    parts: Vec<PartId>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Least recently used first.
    list: VecDeque<(Key, Arc<Base>, usize)>,
    bytes: usize,
}

/// Keeps united series of parts, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct BaseCache {
    entries: Mutex<Entries>,
    bytes_max: usize,
}

/// Most entries; they are searched one by one.
const ENTRIES_MAX: usize = 256;

impl BaseCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    fn get(&self, key: &Key) -> Option<Arc<Base>> {
        let mut entries = self.entries.lock();
        let at = entries.list.iter().rposition(|entry| entry.0 == *key)?;
        let entry = entries.list.remove(at)?;
        let base = Arc::clone(&entry.1);
        entries.list.push_back(entry);
        Some(base)
    }

    fn put(&self, key: Key, base: &Arc<Base>) {
        let bytes = base.bytes() + 256;
        // One answer must not push out all others.
        if bytes > self.bytes_max / 4 {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.list.iter().any(|entry| entry.0 == key) {
            return;
        }
        entries.bytes += bytes;
        entries.list.push_back((key, Arc::clone(base), bytes));
        while entries.bytes > self.bytes_max || entries.list.len() > ENTRIES_MAX {
            let Some((_, _, bytes)) = entries.list.pop_front() else { break };
            entries.bytes -= bytes;
        }
    }

    /// Resolves a question over parts.
    pub(crate) async fn resolve(
        &self,
        question: &Question<'_>,
        parts: Vec<Arc<Part>>,
        stats: &ReadStats,
    ) -> Result<Narrowed> {
        let open = |part: Arc<Part>| async move {
            match part.series(stats).await {
                Ok(series) => Ok(Some((part, series))),
                Err(e) => leave_out(stats, e).map(|()| None),
            }
        };
        let opened = futures::stream::iter(parts).map(open).buffered(PARTS_OPENED_AT_ONCE);
        let opened: Vec<(Arc<Part>, Arc<PartSeries>)> =
            opened.try_filter_map(|opened| std::future::ready(Ok(opened))).try_collect().await?;
        let key = Key {
            selectors: question.selectors.to_vec(),
            access: question.access.clone(),
            parts: opened.iter().map(|(part, _)| part.meta.id).collect(),
        };
        let base = if let Some(base) = self.get(&key) {
            add(&stats.cache_hits, 1);
            base
        } else {
            let forever = Question { range: MillisRange::ALL, ..*question };
            let mut matches = Vec::with_capacity(opened.len());
            for (_, series) in &opened {
                stats.check()?;
                let numbers = forever.of_part(series);
                stats.take(size_of_val(&numbers[..]))?;
                matches.push((Arc::clone(series), numbers));
            }
            let base = Arc::new(Base::of(&matches, stats)?);
            self.put(key, &base);
            base
        };
        narrow(&base, &opened, question.range, stats)
    }
}
