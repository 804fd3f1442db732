//! The united series of the parts that a question concerns, with a small cache.
//!
//! Parts are immutable, so the result of a set of parts for given selectors and access never changes. It is computed
//! for all of time and then narrowed to the question's range: so a dashboard that keeps asking for "the last hour"
//! finds its series already resolved. The cache does not hold a `Part`, so it keeps no files alive.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use quiver_types::read_stats::add;
use quiver_types::series::LabelColumn;
use quiver_types::{Access, Matcher, MillisRange, ReadStats, Result, SeriesId, SeriesTable};

use super::dictionary::CodedColumn;
use super::matcher_resolution::{PARTS_OPENED_AT_ONCE, SelectorQuery};
use super::selection::PartRows;
use super::union::{SeriesList, unite};
use crate::error::leave_out;
use crate::part::{ChosenSeries, Part, PartId};
use crate::threads::leave_callers_thread;

/// Rows and series numbers of a part; both ascending.
type PartNumbers = (Arc<Vec<u32>>, Arc<Vec<u32>>);

/// The union of the series of some parts.
#[derive(Debug)]
pub(crate) struct UnitedSeries {
    pub(crate) ids: Arc<Vec<SeriesId>>,
    pub(crate) table: Arc<SeriesTable>,
    parts: Vec<PartNumbers>,
}

/// Selected series of a part.
struct PartList<'a> {
    part: &'a Part,
    numbers: &'a [u32],
    ids: &'a [SeriesId],
}

#[async_trait]
impl SeriesList for PartList<'_> {
    fn ids(&self) -> &[SeriesId] {
        self.ids
    }

    async fn columns(
        &self,
        places: Option<&[u32]>,
        names: Option<&[String]>,
        stats: &ReadStats,
    ) -> Result<Vec<CodedColumn>> {
        let some: Vec<u32>;
        let numbers = match places {
            None => self.numbers,
            Some(places) => {
                some = places.iter().map(|&i| self.numbers[i as usize]).collect();
                &some
            }
        };
        let labels = self.part.labels(numbers, names, stats).await?;
        let coded = labels.into_iter().map(|l| CodedColumn::sorted(l.name, &l.values, l.codes));
        Ok(coded.filter(|column| !column.is_absent()).collect())
    }
}

impl UnitedSeries {
    /// Approximate memory; texts are mostly shared with others and counted as pointers.
    fn bytes(&self) -> usize {
        let columns = self.table.columns().map(|(_, c)| 4 * c.codes.len() + 16 * c.values.len());
        16 * self.ids.len() + columns.sum::<usize>() + self.parts.iter().map(|p| 8 * p.0.len() + 64).sum::<usize>()
    }

    async fn of(opened: &[SelectedPart], names: Option<&[String]>, stats: &ReadStats) -> Result<Self> {
        let lists: Vec<PartList<'_>> =
            opened.iter().map(|o| PartList { part: &o.part, numbers: &o.numbers, ids: &o.ids }).collect();
        let lists: Vec<_> = lists.iter().map(|list| list as &dyn SeriesList).collect();
        let union = unite(&lists, names, stats).await?;
        let numbers = opened.iter().map(|opened| Arc::clone(&opened.numbers));
        let rows = union.rows.into_iter().map(Arc::new);
        Ok(Self { ids: union.ids, table: union.table, parts: rows.zip(numbers).collect() })
    }
}

/// A part with its selected series.
struct SelectedPart {
    part: Arc<Part>,
    numbers: Arc<Vec<u32>>,
    /// Identities of these series; empty if a [`UnitedSeries`] has them.
    ids: Vec<SeriesId>,
    series: Arc<ChosenSeries>,
}

impl SelectedPart {
    /// Looks up the matching series in the index of a part, for all of time.
    async fn find(part: Arc<Part>, question: &SelectorQuery<'_>, stats: &ReadStats) -> Result<Self> {
        let mut numbers = question.of_part(&part, stats).await?;
        let pages = part.series_pages(&numbers, stats).await?;
        question.keep_allowed(&pages, &mut numbers);
        stats.take(numbers.len() * size_of::<SeriesId>())?;
        let mut ids = Vec::with_capacity(numbers.len());
        let mut rest = &numbers[..];
        for page in &pages {
            let (here, after) = rest.split_at(rest.partition_point(|&n| n < page.numbers().end));
            ids.extend(here.iter().map(|&number| page.id(number)));
            rest = after;
        }
        let series = Arc::new(ChosenSeries::new(&pages, &numbers, stats)?);
        Ok(Self { part, numbers: Arc::new(numbers), ids, series })
    }

    /// Opens a part whose matching series are known from the cache.
    async fn of_cached(part: Arc<Part>, numbers: Arc<Vec<u32>>, stats: &ReadStats) -> Result<Self> {
        let pages = part.series_pages(&numbers, stats).await?;
        let series = Arc::new(ChosenSeries::new(&pages, &numbers, stats)?);
        Ok(Self { part, numbers, ids: Vec::new(), series })
    }
}

/// The series of a [`UnitedSeries`] that may have samples in a range, and where they are.
pub(crate) struct NarrowedSeries {
    pub(crate) ids: Arc<Vec<SeriesId>>,
    pub(crate) table: Arc<SeriesTable>,
    pub(crate) parts: Vec<PartRows>,
}

#[async_trait]
impl SeriesList for NarrowedSeries {
    fn ids(&self) -> &[SeriesId] {
        &self.ids
    }

    async fn columns(
        &self,
        places: Option<&[u32]>,
        names: Option<&[String]>,
        stats: &ReadStats,
    ) -> Result<Vec<CodedColumn>> {
        let rows = places.map_or(self.table.len(), <[u32]>::len);
        stats.take(rows * self.table.names().len() * size_of::<u32>())?;
        let table = places.map_or_else(|| Arc::clone(&self.table), |places| Arc::new(compact(&self.table, places)));
        let wanted = |name: &str| names.is_none_or(|names| names.iter().any(|n| n == name));
        let coded = |(name, column): (&Arc<str>, &LabelColumn)| CodedColumn {
            name: Arc::clone(name),
            values: Arc::clone(&column.values),
            codes: column.codes.to_vec(),
        };
        Ok(table.columns().filter(|(name, _)| wanted(name)).map(coded).collect())
    }

    fn table(&self) -> Option<(Arc<Vec<SeriesId>>, Arc<SeriesTable>)> {
        Some((Arc::clone(&self.ids), Arc::clone(&self.table)))
    }
}

/// Keeps some rows of a table, and only the labels and values that these rows have.
fn compact(table: &SeriesTable, rows: &[u32]) -> SeriesTable {
    let columns = table.columns().map(|(name, column)| {
        let codes = rows.iter().map(|&row| column.codes[row as usize]).collect();
        CodedColumn { name: Arc::clone(name), values: Arc::clone(&column.values), codes }.compact()
    });
    let columns = columns.filter(|c| !c.is_absent());
    let columns = columns.map(|c| (c.name, LabelColumn { values: c.values, codes: Arc::new(c.codes) }));
    SeriesTable::new(rows.len(), columns.collect())
}

/// Keeps the series that may have samples in the range. Parts that are `None` in `opened` could not be read.
fn narrow(
    base: &UnitedSeries,
    opened: Vec<Option<SelectedPart>>,
    range: MillisRange,
    stats: &ReadStats,
) -> Result<NarrowedSeries> {
    let mut out = Vec::with_capacity(opened.len());
    for (opened, (rows, numbers)) in opened.into_iter().zip(&base.parts) {
        let Some(SelectedPart { part, series, .. }) = opened else { continue };
        let (mut rows, mut numbers) = (Arc::clone(rows), Arc::clone(numbers));
        let own = part.meta.range();
        if own.min < range.min || range.max < own.max {
            let inside = |&(_, &number): &(&u32, &u32)| series.range(number).overlaps(&range);
            let kept: (Vec<u32>, Vec<u32>) = rows.iter().zip(&*numbers).filter(inside).unzip();
            (rows, numbers) = (Arc::new(kept.0), Arc::new(kept.1));
        }
        if !rows.is_empty() {
            out.push(PartRows { part, series, rows, numbers });
        }
    }
    let mut has_samples = vec![false; base.ids.len()];
    out.iter().flat_map(|part| &*part.rows).for_each(|&row| has_samples[row as usize] = true);
    if has_samples.iter().all(|&kept| kept) {
        return Ok(NarrowedSeries { ids: Arc::clone(&base.ids), table: Arc::clone(&base.table), parts: out });
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
    Ok(NarrowedSeries { ids, table: Arc::new(compact(&base.table, &kept)), parts: out })
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    selectors: Vec<Vec<Matcher>>,
    access: Access,
    labels: Option<Arc<[String]>>,
    parts: Vec<PartId>,
}

#[derive(Debug, Default)]
struct Entries {
    /// Entries, least recently used first.
    list: VecDeque<(Key, Arc<UnitedSeries>, usize)>,
    bytes: usize,
}

/// A cache of united series, limited in bytes.
#[derive(Debug)]
pub(crate) struct BaseCache {
    entries: Mutex<Entries>,
    bytes_max: usize,
}

/// Series that are narrowed to a range on the thread of the caller of a query.
const SHORT_SERIES: usize = 1 << 14;
/// Maximum number of entries; lookup is a linear search.
const ENTRIES_MAX: usize = 256;

impl BaseCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), bytes_max }
    }

    fn get(&self, key: &Key) -> Option<Arc<UnitedSeries>> {
        let mut entries = self.entries.lock();
        let at = entries.list.iter().rposition(|entry| entry.0 == *key)?;
        let entry = entries.list.remove(at)?;
        let base = Arc::clone(&entry.1);
        entries.list.push_back(entry);
        Some(base)
    }

    fn put(&self, key: Key, base: &Arc<UnitedSeries>) {
        let bytes = base.bytes() + 256;
        // A single entry must not evict all others.
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
        question: &SelectorQuery<'_>,
        parts: Vec<Arc<Part>>,
        stats: &ReadStats,
    ) -> Result<NarrowedSeries> {
        let mut key = Key {
            selectors: question.selectors.to_vec(),
            access: question.access.clone(),
            labels: question.labels.cloned(),
            parts: parts.iter().map(|part| part.meta.id).collect(),
        };
        if let Some(base) = self.get(&key) {
            add(&stats.cache_hits, 1);
            if base.ids.len() > SHORT_SERIES {
                leave_callers_thread().await;
            }
            let again = |(part, numbers): (Arc<Part>, Arc<Vec<u32>>)| async move {
                if numbers.is_empty() {
                    return Ok(None);
                }
                or_left_out(SelectedPart::of_cached(part, numbers, stats).await, stats)
            };
            let numbers: Vec<Arc<Vec<u32>>> = base.parts.iter().map(|part| Arc::clone(&part.1)).collect();
            let chosen = parts.into_iter().zip(numbers);
            let opened = futures::stream::iter(chosen).map(again).buffered(PARTS_OPENED_AT_ONCE);
            return narrow(&base, opened.try_collect().await?, question.range, stats);
        }
        leave_callers_thread().await;
        let find = |part: Arc<Part>| async move { or_left_out(SelectedPart::find(part, question, stats).await, stats) };
        let found = futures::stream::iter(parts).map(find).buffered(PARTS_OPENED_AT_ONCE);
        let mut opened: Vec<SelectedPart> =
            found.try_filter_map(|opened| std::future::ready(Ok(opened))).try_collect().await?;
        // The key must not include parts that could not be read.
        key.parts = opened.iter().map(|opened| opened.part.meta.id).collect();
        let base = Arc::new(UnitedSeries::of(&opened, question.labels.map(|names| &**names), stats).await?);
        for opened in &mut opened {
            opened.ids = Vec::new();
        }
        self.put(key, &base);
        narrow(&base, opened.into_iter().map(Some).collect(), question.range, stats)
    }
}

/// Turns an error into `None` if the query may continue without the part.
fn or_left_out(opened: Result<SelectedPart>, stats: &ReadStats) -> Result<Option<SelectedPart>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(e) => leave_out(stats, e).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::MatchOp;

    use super::*;

    fn column(name: &str, values: &[&str], codes: &[u32]) -> (Arc<str>, LabelColumn) {
        let values = Arc::new(values.iter().map(|value| Arc::from(*value)).collect());
        (Arc::from(name), LabelColumn { values, codes: Arc::new(codes.to_vec()) })
    }

    fn table() -> SeriesTable {
        let columns = vec![
            column("a", &["", "1", "2", "3"], &[1, 3, 0, 3]),
            column("b", &["", "x"], &[0, 1, 0, 0]),
            column("c", &["", "y", "z"], &[1, 2, 1, 1]),
        ];
        SeriesTable::new(4, columns)
    }

    #[test]
    fn a_table_keeps_what_its_rows_have() {
        let check = |rows: &[u32], names: &[&str]| {
            let (all, some) = (table(), compact(&table(), rows));
            assert_eq!(some.names().iter().map(|name| &**name).collect::<Vec<_>>(), names, "{rows:?}");
            assert_eq!(some.len(), rows.len());
            for (at, &row) in rows.iter().enumerate() {
                assert!(some.labels(at).eq(all.labels(row as usize)), "row {row}");
            }
            for (name, column) in some.columns() {
                assert!(column.values.is_sorted() && column.values[0].is_empty());
                let used = (1..column.values.len() as u32).all(|code| column.codes.contains(&code));
                assert!(used, "{name} has values that nobody has");
            }
        };
        check(&[0, 1, 2, 3], &["a", "b", "c"]);
        check(&[0, 2], &["a", "c"]);
        check(&[1], &["a", "b", "c"]);
        check(&[2], &["c"]);
        check(&[], &[]);
    }

    fn key(n: u32) -> Key {
        let selectors = vec![vec![Matcher::new("n", MatchOp::Equal, n.to_string()).unwrap()]];
        Key { selectors, access: Access::full(), labels: None, parts: Vec::new() }
    }

    fn base() -> Arc<UnitedSeries> {
        Arc::new(UnitedSeries { ids: Arc::default(), table: Arc::new(table()), parts: Vec::new() })
    }

    #[test]
    fn the_least_recently_used_goes() {
        // Four of them fit, and five do not.
        let bytes = base().bytes() + 256;
        let cache = BaseCache::new(4 * bytes);
        (0..4).for_each(|n| cache.put(key(n), &base()));
        assert!(cache.get(&key(0)).is_some(), "now it is the last");
        cache.put(key(4), &base());
        let held = |cache: &BaseCache| (0..6).filter(|n| cache.get(&key(*n)).is_some()).collect::<Vec<_>>();
        assert_eq!(held(&cache), [0, 2, 3, 4]);
        // What is there already is neither put twice nor counted twice.
        cache.put(key(3), &base());
        assert_eq!((held(&cache), cache.entries.lock().bytes), (vec![0, 2, 3, 4], 4 * bytes));
        let small = BaseCache::new(4 * bytes - 1);
        small.put(key(0), &base());
        assert!(small.get(&key(0)).is_none(), "more than a quarter of all");
        let many = BaseCache::new(usize::MAX);
        (0..=ENTRIES_MAX as u32).for_each(|n| many.put(key(n), &base()));
        assert_eq!(many.entries.lock().list.len(), ENTRIES_MAX);
        assert!(many.get(&key(0)).is_none() && many.get(&key(1)).is_some());
    }

    #[test]
    fn an_answer_is_for_its_question_alone() {
        let cache = BaseCache::new(1 << 20);
        cache.put(key(1), &base());
        let others = [
            Key { access: Access::services(["web"]), ..key(1) },
            Key { labels: Some(Arc::from(["a".to_owned()])), ..key(1) },
            Key { parts: vec![PartId::nil()], ..key(1) },
            Key { selectors: Vec::new(), ..key(1) },
            key(2),
        ];
        assert!(others.iter().all(|other| cache.get(other).is_none()));
        assert!(cache.get(&key(1)).is_some());
    }
}
