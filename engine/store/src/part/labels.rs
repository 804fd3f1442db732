//! Reads labels of selected series of a part: only the pages that hold them, and only the labels that are requested.
//!
//! The most common labels have columns of their own in `.series`. Other labels are read from the map of all labels if
//! few series are selected, else from the index.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Int32Type;
use hashbrown::HashMap;
use quiver_types::label::{METRIC_NAME, push_pair};
use quiver_types::{LabelSet, ReadStats, read_stats};

use super::FileMeta;
use super::byte_ranges::{Purpose, Selection};
use super::file::keys;
use super::footer::{Footer, damaged};
use super::index::LabelIndex;
use super::label_pairs::PairTable;
use super::reader::Part;
use super::series::page::PAGE_SERIES;
use crate::error::Result;

/// How many series have their labels decoded at once.
const SERIES_AT_ONCE: usize = 64 * 1024;
/// Rows with a smaller gap than this are read as one run: skipping costs more than a few rows.
const GAP_ROWS: u64 = 32;
/// With fewer series than this the map is always read instead of the index.
const FROM_MAP: usize = 1024;
/// Estimated memory of a distinct value besides its text.
const VALUE_BYTES: usize = 56;
/// Estimated memory of a label from the map besides its texts and codes.
const LABEL_BYTES: usize = 384;

/// One label of selected series: its distinct values, unordered, the first one empty (label absent), and for each
/// series the index of its value.
#[derive(Debug)]
pub(crate) struct LabelTexts {
    pub(crate) name: Arc<str>,
    pub(crate) values: Vec<Arc<str>>,
    pub(crate) codes: Vec<u32>,
}

/// Collects the values of one label.
#[derive(Debug)]
struct Coder {
    name: Arc<str>,
    values: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    codes: Vec<u32>,
    text_bytes: usize,
}

impl Coder {
    fn new(name: &str) -> Self {
        let empty: Arc<str> = Arc::from("");
        Self {
            name: Arc::from(name),
            values: vec![Arc::clone(&empty)],
            numbers: HashMap::from_iter([(empty, 0)]),
            codes: Vec::new(),
            text_bytes: 0,
        }
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.values.len() as u32;
        let text: Arc<str> = Arc::from(text);
        self.text_bytes += text.len() + VALUE_BYTES;
        self.values.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// Appends selected rows of a string column; most are equal to the previous row.
    fn add_texts(&mut self, column: &ArrayRef, rows: &[usize]) -> Option<()> {
        let column = column.as_string_opt::<i32>()?;
        let mut last = 0;
        for &row in rows {
            let text = column.value(row);
            if *self.values[last as usize] != *text {
                last = self.number(text);
            }
            self.codes.push(last);
        }
        Some(())
    }

    /// Appends selected rows of a dictionary-encoded column; each dictionary entry is looked up at most once.
    fn add_coded(&mut self, column: &ArrayRef, rows: &[usize]) -> Option<()> {
        let coded = column.as_dictionary_opt::<Int32Type>()?;
        let values = coded.values().as_string_opt::<i32>()?;
        let mut numbers = vec![u32::MAX; values.len()];
        for &row in rows {
            let Some(key) = coded.key(row) else {
                self.codes.push(0);
                continue;
            };
            if numbers[key] == u32::MAX {
                numbers[key] = self.number(values.value(key));
            }
            self.codes.push(numbers[key]);
        }
        Some(())
    }

    fn finish(self) -> LabelTexts {
        LabelTexts { name: self.name, values: self.values, codes: self.codes }
    }
}

/// Row ranges that cover the ascending numbers, including gaps that are too small to be worth skipping.
fn runs(numbers: &[u32]) -> Vec<Range<u64>> {
    let mut out: Vec<Range<u64>> = Vec::new();
    for number in numbers.iter().map(|&n| u64::from(n)) {
        match out.last_mut() {
            Some(last) if number <= last.end + GAP_ROWS => last.end = number + 1,
            _ => out.push(number..number + 1),
        }
    }
    out
}

/// For batches that were read for some runs, tells which rows of each batch are the selected ones.
struct Walk<'a> {
    runs: &'a [Range<u64>],
    run: usize,
    at: u64,
    numbers: &'a [u32],
    next: usize,
}

impl<'a> Walk<'a> {
    fn new(runs: &'a [Range<u64>], numbers: &'a [u32]) -> Self {
        Self { runs, run: 0, at: runs.first().map_or(0, |r| r.start), numbers, next: 0 }
    }

    /// Indexes of the selected rows within the next batch.
    fn pick(&mut self, rows: usize) -> Vec<usize> {
        let mut out = Vec::with_capacity(rows.min(self.numbers.len() - self.next));
        let mut passed = 0;
        while passed < rows && self.run < self.runs.len() {
            let end = self.runs[self.run].end.min(self.at + (rows - passed) as u64);
            while let Some(&number) = self.numbers.get(self.next).filter(|&&n| u64::from(n) < end) {
                out.push(passed + (u64::from(number) - self.at) as usize);
                self.next += 1;
            }
            passed += (end - self.at) as usize;
            self.at = end;
            if end == self.runs[self.run].end {
                self.run += 1;
                self.at = self.runs.get(self.run).map_or(end, |r| r.start);
            }
        }
        out
    }
}

/// Where each requested label is read from.
struct Sources<'a> {
    /// Labels with columns of their own, with their column names.
    columns: Vec<(&'a str, String)>,
    /// Labels from the map; if empty, the map is not read.
    map: Vec<&'a str>,
    /// Labels from the index.
    index: Vec<&'a str>,
}

impl Part {
    /// Names of all labels in the part, ascending.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn label_names(&self, stats: &ReadStats) -> Result<Vec<String>> {
        let (file, footer) = self.series_footer(stats).await?;
        names(file, &footer)
    }

    async fn series_footer(&self, stats: &ReadStats) -> Result<(&FileMeta, Arc<Footer>)> {
        let file = self.meta.file("series");
        let file = file.ok_or_else(|| damaged(&self.meta.id.to_string(), "the part has no series file"))?;
        Ok((file, self.footer(file, stats).await?))
    }

    /// The first of some series whose rows have about so many bytes; at least one.
    pub(super) async fn series_within(&self, numbers: Range<u32>, bytes: u64, stats: &ReadStats) -> Result<Range<u32>> {
        let (_, footer) = self.series_footer(stats).await?;
        let Range { start, mut end } = numbers;
        while end - start > 1 && footer.whole_bytes(&(u64::from(start)..u64::from(end))) > bytes {
            end = start + (end - start) / 2;
        }
        Ok(start..end)
    }

    /// Reads labels of some series: those in `wanted`, or all if `None`. `numbers` must be ascending. The result may
    /// include labels that none of the series has.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub(crate) async fn labels(
        &self,
        numbers: &[u32],
        wanted: Option<&[String]>,
        stats: &ReadStats,
    ) -> Result<Vec<LabelTexts>> {
        let (file, footer) = self.series_footer(stats).await?;
        let all = names(file, &footer)?;
        let names_bytes: usize = all.iter().map(|name| 2 * size_of::<String>() + name.len()).sum();
        stats.take(names_bytes)?;
        let names: Vec<&str> = match wanted {
            None => all.iter().map(String::as_str).collect(),
            Some(wanted) => wanted
                .iter()
                .map(String::as_str)
                .filter(|w| all.binary_search_by(|n| n.as_str().cmp(w)).is_ok())
                .collect(),
        };
        let mut sources = Sources::of(&names, &footer, wanted.is_none() || numbers.len() <= FROM_MAP);
        if !sources.index.is_empty() {
            let index = self.label_index(stats).await?;
            let values = |name: &&str| index.rows(name).map_or(0, |rows| rows.end - rows.start);
            // The index is read value by value, the map series by series.
            if sources.index.iter().map(values).sum::<u64>() > numbers.len() as u64 {
                sources = Sources::of(&names, &footer, true);
            }
        }
        let mut coders: Vec<Coder> = sources.columns.iter().map(|(name, _)| Coder::new(name)).collect();
        let mut columns: Vec<&str> = sources.columns.iter().map(|(_, column)| column.as_str()).collect();
        if !sources.map.is_empty() {
            columns.push("labels");
        }
        let series = numbers.len();
        let mut rest = MapCoders { wanted: wanted.map(|_| &sources.map[..]), coders: HashMap::default(), series };
        if !columns.is_empty() {
            let mut done = 0;
            // In pieces, so that only one of them stands in memory decoded, beside the codes that remain of the others.
            for numbers in numbers.chunks(SERIES_AT_ONCE) {
                let runs = runs(numbers);
                let leaves: Vec<usize> = columns.iter().filter_map(|name| footer.column(name)).collect();
                let bytes = 2 * footer.decoded_bytes(&leaves, &runs);
                stats.take(bytes + coders.len() * size_of_val(numbers))?;
                stats.check()?;
                let pages = numbers.chunk_by(|a, b| a / PAGE_SERIES == b / PAGE_SERIES);
                read_stats::add(&stats.index_pages_read, pages.count() as u64);
                let batches = self
                    .read_batches(file, &footer, Selection::of(&runs, 8192).only(&columns), Purpose::Query, stats)
                    .await?;
                let mut walk = Walk::new(&runs, numbers);
                for batch in &batches {
                    let rows = walk.pick(batch.num_rows());
                    let bad = || damaged(&file.key, "its columns are not those of series");
                    for (coder, (_, column)) in coders.iter_mut().zip(&sources.columns) {
                        let column = batch.column_by_name(column).ok_or_else(bad)?;
                        let text = coder.name.as_ref() == METRIC_NAME;
                        let added = if text { coder.add_texts(column, &rows) } else { coder.add_coded(column, &rows) };
                        added.ok_or_else(bad)?;
                    }
                    if !sources.map.is_empty() {
                        rest.add(batch, &rows, done, stats)?.ok_or_else(bad)?;
                    }
                    done += rows.len();
                }
                drop(batches);
                stats.give_back(bytes);
                // What the piece added to the dictionaries stays.
                let texts =
                    coders.iter_mut().chain(rest.coders.values_mut()).map(|c| std::mem::take(&mut c.text_bytes)).sum();
                stats.take(texts)?;
            }
            rest.coders.values_mut().for_each(|coder| coder.codes.resize(series, 0));
        }
        let mut out: Vec<LabelTexts> = coders.into_iter().chain(rest.coders.into_values()).map(Coder::finish).collect();
        if !sources.index.is_empty() {
            let index = self.label_index(stats).await?;
            for name in sources.index {
                out.push(from_index(&index, name, numbers, stats).await?);
            }
        }
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        stats.give_back(names_bytes);
        Ok(out)
    }

    /// Reads the label sets of a range of series.
    pub(super) async fn label_sets(
        &self,
        numbers: Range<u32>,
        purpose: Purpose,
        stats: &ReadStats,
    ) -> Result<Vec<LabelSet>> {
        let (file, footer) = self.series_footer(stats).await?;
        let rows = u64::from(numbers.start)..u64::from(numbers.end);
        let batches = self.read_batches(
            file,
            &footer,
            Selection::of(std::slice::from_ref(&rows), 4096).only(&["labels"]),
            purpose,
            stats,
        );
        let mut out = Vec::with_capacity(numbers.len());
        let mut bytes = Vec::with_capacity(512);
        for batch in batches.await? {
            let read = each_set(&batch, |pairs| {
                bytes.clear();
                pairs.for_each(|(name, value)| push_pair(&mut bytes, name, value));
                out.push(LabelSet::from_canonical(&bytes));
            });
            read.ok_or_else(|| damaged(&file.key, "its columns are not those of series"))?;
        }
        Ok(out)
    }

    /// The label set of one series.
    ///
    /// # Errors
    /// As [`Part::series_pages`].
    pub async fn label_set(&self, series: u32, stats: &ReadStats) -> Result<LabelSet> {
        let sets = self.label_sets(series..series + 1, Purpose::Query, stats).await?;
        sets.into_iter().next().ok_or_else(|| damaged(&self.meta.id.to_string(), "it is shorter than it was written"))
    }

    /// Reads all labels of all series, to build an index in memory.
    pub(super) async fn read_pairs(&self, stats: &ReadStats) -> Result<PairTable> {
        let (file, footer) = self.series_footer(stats).await?;
        let mut table = PairTable::default();
        let mut start = 0;
        while start < footer.rows() {
            let rows = start..(start + SERIES_AT_ONCE as u64).min(footer.rows());
            start = rows.end;
            let before = table.memory_bytes();
            stats.check()?;
            let ranges = std::slice::from_ref(&rows);
            let batches = self
                .read_batches(file, &footer, Selection::of(ranges, 8192).only(&["labels"]), Purpose::Query, stats)
                .await?;
            for batch in &batches {
                let read = each_set(batch, |pairs| table.push(pairs));
                read.ok_or_else(|| damaged(&file.key, "its columns are not those of series"))?;
            }
            // Twice the size, for the table and for the index made from it.
            stats.take(2 * (table.memory_bytes() - before))?;
        }
        Ok(table)
    }
}

fn names(file: &FileMeta, footer: &Footer) -> Result<Vec<String>> {
    let names = footer.value(keys::LABELS).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
    names.ok_or_else(|| damaged(&file.key, "its label names cannot be read"))
}

impl<'a> Sources<'a> {
    fn of(names: &[&'a str], footer: &Footer, map: bool) -> Self {
        let column = |name: &str| if name == METRIC_NAME { "metric".to_owned() } else { format!("label.{name}") };
        let (own, rest): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| footer.column(&column(name)).is_some());
        if rest.is_empty() || !map {
            let columns = own.into_iter().map(|name| (name, column(name))).collect();
            return Self { columns, map: Vec::new(), index: rest };
        }
        // All labels are in the map, so one source is enough.
        Self { columns: Vec::new(), map: names.to_vec(), index: Vec::new() }
    }
}

/// Calls `show` with the label set of each row of a batch.
fn each_set(
    batch: &RecordBatch,
    mut show: impl for<'t> FnMut(&mut dyn Iterator<Item = (&'t str, &'t str)>),
) -> Option<()> {
    let map = batch.column_by_name("labels")?.as_map_opt()?;
    let (names, values) = (map.keys().as_string_opt::<i32>()?, map.values().as_string_opt::<i32>()?);
    for bounds in map.offsets().windows(2) {
        show(&mut (bounds[0] as usize..bounds[1] as usize).map(|i| (names.value(i), values.value(i))));
    }
    Some(())
}

/// The labels that are read from the map column.
struct MapCoders<'w> {
    /// Sorted; `None` means all.
    wanted: Option<&'w [&'w str]>,
    /// By name.
    coders: HashMap<String, Coder, foldhash::fast::RandomState>,
    /// Number of series that are read in all.
    series: usize,
}

impl MapCoders<'_> {
    /// Picks labels of selected rows; `done` rows were handled in earlier batches. Each label takes a code for every series,
    /// even where it is absent, so its memory is reserved when it first appears: there may be as many names as series.
    ///
    /// # Errors
    /// Those of the memory gate. `Ok(None)` if the columns are not those of `.series`.
    fn add(&mut self, batch: &RecordBatch, rows: &[usize], done: usize, stats: &ReadStats) -> Result<Option<()>> {
        let Self { wanted, coders, series } = self;
        let Some(map) = batch.column_by_name("labels").and_then(AsArray::as_map_opt) else { return Ok(None) };
        let texts = (map.keys().as_string_opt::<i32>(), map.values().as_string_opt::<i32>());
        let (Some(names), Some(values)) = texts else { return Ok(None) };
        let offsets = map.offsets();
        for (n, &row) in rows.iter().enumerate() {
            for i in offsets[row] as usize..offsets[row + 1] as usize {
                let name = names.value(i);
                if wanted.is_some_and(|wanted| !wanted.contains(&name)) {
                    continue;
                }
                if !coders.contains_key(name) {
                    stats.take(LABEL_BYTES + 2 * name.len() + *series * size_of::<u32>())?;
                    stats.check()?;
                    let mut coder = Coder::new(name);
                    coder.codes.reserve_exact(*series);
                    coders.insert(name.to_owned(), coder);
                }
                let Some(coder) = coders.get_mut(name) else { return Ok(None) };
                let number = coder.number(values.value(i));
                coder.codes.resize(done + n, 0);
                coder.codes.push(number);
            }
        }
        Ok(Some(()))
    }
}

/// Reads a label of some series from the index.
async fn from_index(index: &LabelIndex<'_>, name: &str, numbers: &[u32], stats: &ReadStats) -> Result<LabelTexts> {
    let mut out = LabelTexts { name: Arc::from(name), values: vec![Arc::from("")], codes: Vec::new() };
    let Some(rows) = index.rows(name) else {
        out.codes = vec![0; numbers.len()];
        return Ok(out);
    };
    stats.take(size_of_val(numbers))?;
    out.codes = vec![0; numbers.len()];
    let all: Vec<u64> = rows.clone().collect();
    let mut chosen: Vec<(u64, u32)> = Vec::new();
    let codes = &mut out.codes;
    let mut next = 1;
    index
        .each(&all, stats, &mut |row, series| {
            let mut any = false;
            let mut mark = |at: usize| {
                codes[at] = next;
                any = true;
            };
            if (series.len() as usize) < numbers.len() / 8 {
                series.iter().filter_map(|n| numbers.binary_search(&n).ok()).for_each(&mut mark);
            } else {
                let both = numbers.iter().enumerate().filter(|(_, n)| series.contains(**n));
                both.map(|(at, _)| at).for_each(&mut mark);
            }
            if any {
                chosen.push((row, next));
                next += 1;
            }
        })
        .await?;
    let mut wanted = chosen.iter();
    let mut at = wanted.next();
    let mut values = Vec::with_capacity(chosen.len());
    let mut bytes = 0;
    index
        .values(std::slice::from_ref(&rows), stats, &mut |row, value| {
            if at.is_some_and(|&(chosen, _)| chosen == row) {
                values.push(Arc::from(value));
                bytes += value.len() + VALUE_BYTES;
                at = wanted.next();
            }
        })
        .await?;
    stats.take(bytes)?;
    out.values.extend(values);
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use arrow::array::{Int32DictionaryArray, StringArray};

    use super::*;

    #[test]
    fn rows_are_picked_out_of_runs() {
        let numbers = [3u32, 4, 20, 100, 101, 500];
        let runs = runs(&numbers);
        assert_eq!(runs, [3..21, 100..102, 500..501]);
        let rows: Vec<u64> = runs.iter().cloned().flatten().collect();
        for size in 1..30 {
            let mut walk = Walk::new(&runs, &numbers);
            let mut found = Vec::new();
            for (n, batch) in rows.chunks(size).enumerate() {
                found.extend(walk.pick(batch.len()).into_iter().map(|at| rows[n * size + at] as u32));
            }
            assert_eq!(found, numbers, "{size}");
        }
    }
    #[test]
    fn runs_go_over_small_gaps() {
        let check = |numbers: &[u32], expected: &[Range<u64>]| assert_eq!(runs(numbers), expected, "{numbers:?}");
        check(&[], &[]);
        let most = GAP_ROWS as u32 + 1;
        check(&[0, most], &[0..u64::from(most) + 1]);
        check(&[0, most + 1], &[0..1, u64::from(most) + 1..u64::from(most) + 2]);
        check(&[u32::MAX - 1, u32::MAX], &[u64::from(u32::MAX) - 1..u64::from(u32::MAX) + 1]);
    }

    #[test]
    fn values_are_coded_as_they_come() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "", "b", "never", "a"]));
        let mut coder = Coder::new("l");
        coder.add_texts(&texts, &[0, 1, 1, 2]).unwrap();
        coder.add_texts(&texts, &[5, 3]).unwrap();
        assert_eq!(coder.codes, [1, 2, 2, 0, 2, 1]);
        assert_eq!(coder.values.iter().map(|v| &**v).collect::<Vec<_>>(), ["", "b", "a"]);
        assert_eq!(coder.text_bytes, 2 + 2 * VALUE_BYTES, "what nobody picked costs nothing");
        let coded: Int32DictionaryArray =
            [Some("c"), None, Some("a"), Some("never"), Some("c"), Some("")].into_iter().collect();
        let coded: ArrayRef = Arc::new(coded);
        coder.add_coded(&coded, &[0, 1, 2, 4, 5]).unwrap();
        assert_eq!(coder.codes[6..], [3, 0, 2, 3, 0]);
        assert!(coder.add_coded(&texts, &[0]).is_none() && coder.add_texts(&coded, &[0]).is_none());
        let found = coder.finish();
        assert_eq!((&*found.name, found.values.len(), found.codes.len()), ("l", 4, 11));
    }
}
