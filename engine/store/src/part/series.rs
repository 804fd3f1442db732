//! The series table of a part: the `.series` file decoded once, labels as codes into sorted distinct values.
//!
//! Selectors are answered on values, not on series: each distinct value is judged once, equality by binary search.
//! Series order begins with the metric name, so a matcher on it leaves a few runs of neighbours; within these the
//! other matchers look at codes, and without it they start from the postings of the values.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, TimestampMillisecondType, UInt64Type};
use hashbrown::HashMap;
use quiver_types::label::{METRIC_NAME, push_pair};
use quiver_types::{Access, LabelSet, MatchOp, Matcher, Millis, MillisRange, ReadStats, SeriesId};

use super::FileMeta;
use super::fetch::Purpose;
use super::file::keys;
use super::footer::damaged;
use super::postings::Postings;
use super::reader::Part;
use crate::error::Result;
use crate::sample_blocks::block_starts;

/// Rows of a series in one of the sibling files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesRows {
    /// Number of the series in the part.
    pub series: u32,
    /// First row in the file.
    pub first: u64,
    /// Number of rows.
    pub rows: u64,
}

/// Codes of a label, one per series, in the narrowest type that holds them; 0 = the series lacks the label.
#[derive(Debug)]
pub enum LabelCodes {
    /// Up to 255 values.
    Narrow(Vec<u8>),
    /// Up to 65,535 values.
    Middle(Vec<u16>),
    /// More.
    Wide(Vec<u32>),
}

impl LabelCodes {
    fn of(codes: Vec<u32>, values: usize) -> Self {
        match values {
            0..=0x100 => Self::Narrow(codes.into_iter().map(|c| c as u8).collect()),
            0x101..=0x1_0000 => Self::Middle(codes.into_iter().map(|c| c as u16).collect()),
            _ => Self::Wide(codes),
        }
    }

    /// Gives the code of a series.
    #[inline]
    pub fn get(&self, series: u32) -> u32 {
        match self {
            Self::Narrow(c) => u32::from(c[series as usize]),
            Self::Middle(c) => u32::from(c[series as usize]),
            Self::Wide(c) => c[series as usize],
        }
    }

    /// Gives the codes of some series.
    pub fn gather(&self, series: &[u32]) -> Vec<u32> {
        match self {
            Self::Narrow(c) => series.iter().map(|&s| u32::from(c[s as usize])).collect(),
            Self::Middle(c) => series.iter().map(|&s| u32::from(c[s as usize])).collect(),
            Self::Wide(c) => series.iter().map(|&s| c[s as usize]).collect(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Narrow(c) => c.len(),
            Self::Middle(c) => 2 * c.len(),
            Self::Wide(c) => 4 * c.len(),
        }
    }

    fn extend_matching(&self, rows: Range<u32>, allowed: &[bool], out: &mut Vec<u32>) {
        fn extend<T: Copy + Into<u32>>(codes: &[T], first: u32, allowed: &[bool], out: &mut Vec<u32>) {
            out.extend(codes.iter().zip(first..).filter(|(c, _)| allowed[(**c).into() as usize]).map(|(_, row)| row));
        }
        let range = rows.start as usize..rows.end as usize;
        match self {
            Self::Narrow(c) => extend(&c[range], rows.start, allowed, out),
            Self::Middle(c) => extend(&c[range], rows.start, allowed, out),
            Self::Wide(c) => extend(&c[range], rows.start, allowed, out),
        }
    }
}

/// One label of all series of a part.
#[derive(Debug)]
pub struct PartLabel {
    /// Its name.
    pub name: Arc<str>,
    /// Distinct values, sorted; entry 0 is the empty text (label absent).
    pub values: Arc<Vec<Arc<str>>>,
    /// Index into `values` per series.
    pub codes: LabelCodes,
    postings: OnceLock<Postings>,
}

impl PartLabel {
    fn new(name: &str, values: Vec<Arc<str>>, codes: Vec<u32>) -> Self {
        // Values come in the order of their first use; sorted ones can be searched.
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| values[a as usize].cmp(&values[b as usize]));
        let mut rank = vec![0u32; values.len()];
        for (new, &old) in order.iter().enumerate() {
            rank[old as usize] = new as u32;
        }
        let codes = LabelCodes::of(codes.into_iter().map(|c| rank[c as usize]).collect(), values.len());
        let values = order.iter().map(|&o| Arc::clone(&values[o as usize])).collect();
        Self { name: Arc::from(name), values: Arc::new(values), codes, postings: OnceLock::new() }
    }

    /// Gives the value of a series; the empty text when it lacks the label.
    pub fn value(&self, series: u32) -> &Arc<str> {
        &self.values[self.codes.get(series) as usize]
    }

    /// Gives the code of a value.
    pub fn code_of(&self, value: &str) -> Option<u32> {
        self.values.binary_search_by(|v| (**v).cmp(value)).ok().map(|c| c as u32)
    }

    fn postings(&self, series: usize) -> &Postings {
        self.postings.get_or_init(|| Postings::of((0..series as u32).map(|s| self.codes.get(s)), self.values.len()))
    }
}

/// Which codes of a label a matcher likes.
enum Liked {
    All,
    None,
    One(u32),
    Some(Vec<bool>),
}

impl Liked {
    fn of(label: &PartLabel, matcher: &Matcher) -> Self {
        if matcher.op == MatchOp::Equal {
            return label.code_of(&matcher.value).map_or(Self::None, Self::One);
        }
        let liked: Vec<bool> = if matcher.op == MatchOp::NotEqual {
            let code = label.code_of(&matcher.value);
            (0..label.values.len() as u32).map(|c| Some(c) != code).collect()
        } else {
            label.values.iter().map(|v| matcher.matches(v)).collect()
        };
        match liked.iter().filter(|&&l| l).count() {
            0 => Self::None,
            n if n == liked.len() => Self::All,
            _ => Self::Some(liked),
        }
    }
}

/// The series of a part.
#[derive(Debug)]
pub struct PartSeries {
    ids: Vec<SeriesId>,
    labels: Vec<PartLabel>,
    services: Vec<Arc<str>>,
    service_codes: Vec<u32>,
    /// Where the rows of each series begin in samples, histograms and exemplars, and where the last ones end; empty
    /// when the part has no such file.
    starts: [Vec<u64>; 3],
    min_ts: Vec<Millis>,
    max_ts: Vec<Millis>,
    /// First series of each metric code, then the number of series.
    metric_starts: Vec<u32>,
    /// First series of each block of decoded samples, then the number of series.
    blocks: OnceLock<Vec<u32>>,
}

impl PartSeries {
    pub(super) async fn read(part: &Part, purpose: Purpose, stats: &ReadStats) -> Result<Self> {
        let Some(file) = part.meta.file("series") else {
            return Err(damaged(&part.meta.id.to_string(), "the part has no series file"));
        };
        let footer = part.footer(file, stats).await?;
        let names = footer.value(keys::LABELS).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
        let names = names.ok_or_else(|| damaged(&file.key, "its label names cannot be read"))?;
        let own: Vec<String> =
            names.iter().map(|n| format!("label.{n}")).filter(|c| footer.column(c).is_some()).collect();
        let mut columns = vec!["series_id", "metric", "service", "min_time", "max_time"];
        columns.extend(SIBLINGS.iter().flatten());
        columns.extend(own.iter().map(String::as_str));
        // The map is needed only for labels without a column of their own.
        let covered = |n: &String| n == METRIC_NAME || own.binary_search(&format!("label.{n}")).is_ok();
        let rest: Vec<&str> = names.iter().filter(|n| !covered(n)).map(String::as_str).collect();
        if !rest.is_empty() {
            columns.push("labels");
        }
        let all = 0..footer.rows();
        let rows = std::slice::from_ref(&all);
        let batches = part.read_batches(file, &footer, rows, Some(&columns), 1 << 20, purpose, stats).await?;
        let mut decoder = Decoder::default();
        for batch in &batches {
            decoder.add(batch, &own, &rest).ok_or_else(|| damaged(&file.key, "its columns are not those of series"))?;
        }
        decoder.finish(file, part)
    }

    /// Number of series.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Says whether there is none; no part is so.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Hash of a series' labels.
    pub fn id(&self, series: u32) -> SeriesId {
        self.ids[series as usize]
    }

    /// Hashes of all series, in series order.
    pub fn ids(&self) -> &[SeriesId] {
        &self.ids
    }

    /// Labels in name order; `__name__` is one of them.
    pub fn label_columns(&self) -> &[PartLabel] {
        &self.labels
    }

    /// Finds a label.
    pub fn label(&self, name: &str) -> Option<&PartLabel> {
        self.labels.binary_search_by(|l| (*l.name).cmp(name)).ok().map(|i| &self.labels[i])
    }

    /// Gives the label set of a series.
    pub fn labels(&self, series: u32) -> LabelSet {
        let mut bytes = Vec::with_capacity(256);
        for label in &self.labels {
            let code = label.codes.get(series);
            if code != 0 {
                push_pair(&mut bytes, &label.name, &label.values[code as usize]);
            }
        }
        LabelSet::from_canonical(&bytes)
    }

    /// Gives the service of a series; empty = none.
    pub fn service(&self, series: u32) -> &Arc<str> {
        &self.services[self.service_codes[series as usize] as usize]
    }

    /// Rows of a series in `.samples`.
    pub fn samples(&self, series: u32) -> SeriesRows {
        self.rows(0, series)
    }

    /// Rows of a series in `.histograms`.
    pub fn hists(&self, series: u32) -> SeriesRows {
        self.rows(1, series)
    }

    /// Rows of a series in `.exemplars`.
    pub fn exemplars(&self, series: u32) -> SeriesRows {
        self.rows(2, series)
    }

    fn rows(&self, sibling: usize, series: u32) -> SeriesRows {
        let starts = &self.starts[sibling];
        let first = starts.get(series as usize).copied().unwrap_or(0);
        let end = starts.get(series as usize + 1).copied().unwrap_or(0);
        SeriesRows { series, first, rows: end - first }
    }

    /// Gives the block of decoded samples (see `sample_blocks`) that holds a series: its number and its series.
    pub(crate) fn block(&self, series: u32) -> (u32, Range<u32>) {
        let starts = self.blocks.get_or_init(|| block_starts((0..self.len() as u32).map(|s| self.samples(s).rows)));
        let block = starts.partition_point(|&start| start <= series) - 1;
        (block as u32, starts[block]..starts[block + 1])
    }

    /// First and last time of a series.
    pub fn range(&self, series: u32) -> MillisRange {
        MillisRange::new(self.min_ts[series as usize], self.max_ts[series as usize])
    }

    /// Gives the numbers of the series that all matchers like, that the caller may see, and that have anything in the
    /// range; ascending, which is series order.
    pub fn matching(&self, matchers: &[Matcher], access: &Access, range: MillisRange) -> Vec<u32> {
        let Some(ranges) = self.metric_ranges(matchers) else { return Vec::new() };
        let mut filters = Vec::with_capacity(matchers.len());
        for matcher in matchers.iter().filter(|m| m.name != METRIC_NAME) {
            match self.label(&matcher.name) {
                None if matcher.matches_empty() => {}
                None => return Vec::new(),
                Some(label) => match Liked::of(label, matcher) {
                    Liked::None => return Vec::new(),
                    Liked::All => {}
                    liked => filters.push((label, liked)),
                },
            }
        }
        // Equality first: it leaves the least to the others.
        filters.sort_by_key(|(_, liked)| !matches!(liked, Liked::One(_)));
        let mut filters = filters.into_iter();
        let mut out = match filters.next() {
            Some((label, liked)) => self.first_filter(label, &liked, &ranges),
            None => ranges.into_iter().flatten().collect(),
        };
        for (label, liked) in filters {
            match liked {
                Liked::One(code) => out.retain(|&s| label.codes.get(s) == code),
                Liked::Some(liked) => out.retain(|&s| liked[label.codes.get(s) as usize]),
                Liked::All | Liked::None => {}
            }
        }
        if !access.is_full() {
            let allowed: Vec<bool> = self.services.iter().map(|s| access.allows(s)).collect();
            out.retain(|&s| allowed[self.service_codes[s as usize] as usize]);
        }
        out.retain(|&s| self.range(s).overlaps(&range));
        out
    }

    /// Runs of series whose metric the matchers like; `None` when there is none.
    fn metric_ranges(&self, matchers: &[Matcher]) -> Option<Vec<Range<u32>>> {
        let mut on_metric = matchers.iter().filter(|m| m.name == METRIC_NAME).peekable();
        if on_metric.peek().is_none() {
            return Some(vec![0..self.len() as u32]);
        }
        let starts = &self.metric_starts;
        let metrics = starts.len() - 1;
        let mut liked: Option<Vec<bool>> = None;
        for matcher in on_metric {
            let Some(label) = self.label(METRIC_NAME) else {
                if matcher.matches_empty() {
                    continue;
                }
                return None;
            };
            let now = match Liked::of(label, matcher) {
                Liked::None => return None,
                Liked::All => continue,
                Liked::One(code) => (0..metrics as u32).map(|c| c == code).collect(),
                Liked::Some(now) => now,
            };
            liked = Some(match liked {
                None => now,
                Some(before) => before.iter().zip(now).map(|(a, b)| *a && b).collect(),
            });
        }
        let Some(liked) = liked else { return Some(vec![0..self.len() as u32]) };
        let mut out: Vec<Range<u32>> = Vec::new();
        for code in (0..metrics).filter(|&c| liked[c] && starts[c] < starts[c + 1]) {
            match out.last_mut() {
                Some(last) if last.end == starts[code] => last.end = starts[code + 1],
                _ => out.push(starts[code]..starts[code + 1]),
            }
        }
        (!out.is_empty()).then_some(out)
    }

    fn first_filter(&self, label: &PartLabel, liked: &Liked, ranges: &[Range<u32>]) -> Vec<u32> {
        let everything = ranges.iter().map(|r| r.end - r.start).sum::<u32>() as usize == self.len();
        let mut allowed = match liked {
            Liked::Some(liked) => liked.clone(),
            _ => vec![false; label.values.len()],
        };
        if let Liked::One(code) = liked {
            allowed[*code as usize] = true;
        }
        if everything && self.len() >= 4096 && !allowed[0] {
            let postings = label.postings(self.len());
            let codes: Vec<usize> = (0..allowed.len()).filter(|&c| allowed[c]).collect();
            if codes.iter().map(|&c| postings.rows(c).len()).sum::<usize>() <= self.len() / 8 {
                let mut out: Vec<u32> = codes.iter().flat_map(|&c| postings.rows(c)).copied().collect();
                if codes.len() > 1 {
                    out.sort_unstable();
                }
                return out;
            }
        }
        let mut out = Vec::new();
        for range in ranges {
            label.codes.extend_matching(range.clone(), &allowed, &mut out);
        }
        out
    }

    /// Bytes in memory, for the cache; with the postings that may be built later.
    pub fn memory_bytes(&self) -> u64 {
        let label = |l: &PartLabel| {
            let values: usize = l.values.iter().map(|v| v.len() + 32).sum();
            values + l.codes.bytes() + 4 * (self.len() + l.values.len())
        };
        let fixed = self.ids.len() * (16 + 4 + 16) + self.starts.iter().map(|s| 8 * s.len()).sum::<usize>();
        (self.labels.iter().map(label).sum::<usize>() + fixed + 1024) as u64
    }
}

/// Columns with first row and number of rows in each sibling.
const SIBLINGS: [[&str; 2]; 3] =
    [["samples_first", "samples_rows"], ["histograms_first", "histograms_rows"], ["exemplars_first", "exemplars_rows"]];

/// Distinct texts in the order of their first use; number 0 is the empty one.
#[derive(Debug)]
struct Column {
    values: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32, foldhash::fast::RandomState>,
    codes: Vec<u32>,
}

impl Default for Column {
    fn default() -> Self {
        let empty: Arc<str> = Arc::from("");
        Self { values: vec![Arc::clone(&empty)], numbers: HashMap::from_iter([(empty, 0)]), codes: Vec::new() }
    }
}

impl Column {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.values.len() as u32;
        let text: Arc<str> = Arc::from(text);
        self.values.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// Appends a column of texts; most are like the one before.
    fn add_texts(&mut self, column: &ArrayRef) -> Option<()> {
        let mut last = 0;
        for text in column.as_string_opt::<i32>()? {
            let text = text.unwrap_or("");
            if *self.values[last as usize] != *text {
                last = self.number(text);
            }
            self.codes.push(last);
        }
        Some(())
    }

    /// Appends a dictionary-coded column: each entry of the dictionary is looked up once.
    fn add_coded(&mut self, column: &ArrayRef) -> Option<()> {
        let coded = column.as_dictionary_opt::<Int32Type>()?;
        let values = coded.values().as_string_opt::<i32>()?;
        let numbers: Vec<u32> = values.iter().map(|v| self.number(v.unwrap_or(""))).collect();
        self.codes.extend(coded.keys().iter().map(|k| k.map_or(0, |k| numbers[k as usize])));
        Some(())
    }
}

/// Builds the table out of batches.
#[derive(Debug, Default)]
struct Decoder {
    ids: Vec<SeriesId>,
    metric: Column,
    own: Vec<Column>,
    rest: Vec<Column>,
    names: Vec<String>,
    service: Column,
    starts: [Vec<u64>; 3],
    min_ts: Vec<Millis>,
    max_ts: Vec<Millis>,
}

impl Decoder {
    /// Adds a batch; `None` when it has other columns.
    fn add(&mut self, batch: &RecordBatch, own: &[String], rest: &[&str]) -> Option<()> {
        if self.names.is_empty() {
            self.names =
                own.iter().map(|n| n["label.".len()..].to_owned()).chain(rest.iter().map(|&n| n.to_owned())).collect();
            self.own = own.iter().map(|_| Column::default()).collect();
            self.rest = rest.iter().map(|_| Column::default()).collect();
        }
        let rows_before = self.ids.len();
        let ids = batch.column_by_name("series_id")?.as_fixed_size_binary_opt()?;
        for i in 0..ids.len() {
            self.ids.push(SeriesId::from_bytes(ids.value(i).try_into().ok()?));
        }
        self.metric.add_texts(batch.column_by_name("metric")?)?;
        self.service.add_texts(batch.column_by_name("service")?)?;
        for (column, name) in self.own.iter_mut().zip(own) {
            column.add_coded(batch.column_by_name(name)?)?;
        }
        if !rest.is_empty() {
            self.add_rest(batch, rest, rows_before)?;
        }
        let times = |name: &str| {
            Some(batch.column_by_name(name)?.as_primitive_opt::<TimestampMillisecondType>()?.values().to_vec())
        };
        self.min_ts.extend(times("min_time")?);
        self.max_ts.extend(times("max_time")?);
        for (starts, [first, rows]) in self.starts.iter_mut().zip(SIBLINGS) {
            let firsts = batch.column_by_name(first)?.as_primitive_opt::<UInt64Type>()?.values();
            let rows = batch.column_by_name(rows)?.as_primitive_opt::<UInt64Type>()?.values();
            for (&first, &rows) in firsts.iter().zip(rows) {
                // Each series begins where the one before ends.
                if *starts.last().unwrap_or(&0) != first {
                    return None;
                }
                if starts.is_empty() {
                    starts.push(0);
                }
                starts.push(first.checked_add(rows)?);
            }
        }
        Some(())
    }

    /// Picks the labels without a column of their own out of the map.
    fn add_rest(&mut self, batch: &RecordBatch, rest: &[&str], rows_before: usize) -> Option<()> {
        let map = batch.column_by_name("labels")?.as_map_opt()?;
        let (names, values) = (map.keys().as_string_opt::<i32>()?, map.values().as_string_opt::<i32>()?);
        for (row, bounds) in map.offsets().windows(2).enumerate() {
            for i in bounds[0] as usize..bounds[1] as usize {
                if let Ok(at) = rest.binary_search(&names.value(i)) {
                    let column = &mut self.rest[at];
                    let number = column.number(values.value(i));
                    column.codes.resize(rows_before + row, 0);
                    column.codes.push(number);
                }
            }
        }
        let rows = rows_before + batch.num_rows();
        self.rest.iter_mut().for_each(|c| c.codes.resize(rows, 0));
        Some(())
    }

    fn finish(self, file: &FileMeta, part: &Part) -> Result<PartSeries> {
        let series = self.ids.len();
        let mut labels: Vec<PartLabel> =
            self.names.iter().zip(self.own.into_iter().chain(self.rest)).map(label).collect();
        let has_metric = self.metric.values.len() > 1;
        let metric = label((&METRIC_NAME.to_owned(), self.metric));
        let metrics = metric.values.len();
        let mut metric_starts = vec![0u32; metrics + 1];
        let mut before = 0;
        for s in 0..series as u32 {
            let code = metric.codes.get(s);
            if code < before {
                return Err(damaged(&file.key, "its series are not in series order"));
            }
            before = code;
            metric_starts[code as usize + 1] = s + 1;
        }
        // A code without series (the empty one) begins and ends where the next begins.
        for code in 1..=metrics {
            metric_starts[code] = metric_starts[code].max(metric_starts[code - 1]);
        }
        if has_metric {
            labels.push(metric);
        }
        labels.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let rows = |starts: &Vec<u64>| starts.last().copied().unwrap_or(0);
        for (kind, starts) in ["samples", "histograms", "exemplars"].iter().zip(&self.starts) {
            if part.meta.file(kind).map_or(0, |f| f.rows) != rows(starts) {
                return Err(damaged(&file.key, "its rows are not those of its siblings"));
            }
        }
        let mut starts = self.starts;
        for starts in &mut starts {
            if starts.last() == Some(&0) {
                *starts = Vec::new();
            }
        }
        Ok(PartSeries {
            ids: self.ids,
            labels,
            services: self.service.values,
            service_codes: self.service.codes,
            starts,
            min_ts: self.min_ts,
            max_ts: self.max_ts,
            metric_starts,
            blocks: OnceLock::new(),
        })
    }
}

fn label((name, column): (&String, Column)) -> PartLabel {
    PartLabel::new(name, column.values, column.codes)
}
