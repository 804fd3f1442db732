//! Caches decoded columns of row groups. A column of which many rows are requested is kept from its second use on, with
//! texts as dictionary-encoded views, so that grouping and comparing handle each text once. Of numbers and identifiers
//! single pages are kept, too, for searches that find few rows in them. Lists and maps are read every time.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use quiver_types::ReadStats;

use super::GROUP_ROWS;
use super::pages::PAGE_ROWS;
use super::reader::{SpanRead, Texts};
use super::rows::SpanRows;
use super::text_columns::{coded, gathered};
use crate::error::{Context, Error, Result};
use crate::part::reader::Part;

/// A group is decoded completely if at least one in this many of its rows is wanted,
const WHOLE_PART: u64 = 64;
/// or if rows of at least one in this many of its pages are: a page is decompressed as a whole even for one row. So is the
/// dictionary of a column, which counts for itself: it may be at least one in this many of its bytes.
const WHOLE_PAGES_PART: u64 = 4;
/// Rows in more pages than this are not read from kept pages of a column.
const PAGES_MAX: u64 = 4;
/// The wanted rows count as lying in all pages if at most one page in this many is not needed; then the whole column is
/// read anyway.
const ALL_PAGES: u64 = 8;

/// Number and rows of a page.
type NumberedPage = (u32, Range<u64>);

/// Rows of one row group, in ascending ranges.
#[derive(Debug, Clone)]
pub(crate) struct GroupRows {
    pub(crate) group: usize,
    /// All rows of the group.
    bounds: Range<u64>,
    groups: usize,
    pub(crate) rows: Vec<Range<u64>>,
}

impl GroupRows {
    /// The same group with other rows.
    pub(crate) fn with(&self, rows: Vec<Range<u64>>) -> Self {
        Self { rows, ..self.clone() }
    }

    fn count(&self) -> u64 {
        self.rows.iter().map(|r| r.end - r.start).sum()
    }

    fn all(&self) -> u64 {
        self.bounds.end - self.bounds.start
    }

    /// Tells whether enough rows are wanted for decoding the whole group.
    fn are_many(&self) -> bool {
        self.count() * WHOLE_PART >= self.all() || self.pages() * WHOLE_PAGES_PART >= self.all().div_ceil(PAGE_ROWS)
    }

    /// Tells whether the rows lie in all (or nearly all) pages of the group.
    fn take_all(&self) -> bool {
        let all = self.all().div_ceil(PAGE_ROWS);
        self.pages() >= all - all / ALL_PAGES
    }

    /// Number of pages the rows lie in.
    fn pages(&self) -> u64 {
        let (mut pages, mut last) = (0, None);
        for range in &self.rows {
            let [first, end] = [range.start, range.end - 1].map(|row| (row - self.bounds.start) / PAGE_ROWS);
            pages += end + 1 - first - u64::from(last == Some(first));
            last = Some(end);
        }
        pages
    }

    /// The pages the rows lie in, each with all of its rows, ascending; and of each row, in which of these it is, and where.
    fn in_pages(&self) -> (Vec<NumberedPage>, Vec<(usize, usize)>) {
        let mut pages: Vec<NumberedPage> = Vec::new();
        let mut places = Vec::with_capacity(self.count() as usize);
        for row in self.rows.iter().cloned().flatten() {
            if pages.last().is_none_or(|(_, page)| page.end <= row) {
                let number = (row - self.bounds.start) / PAGE_ROWS;
                let start = self.bounds.start + number * PAGE_ROWS;
                pages.push((number as u32, start..(start + PAGE_ROWS).min(self.bounds.end)));
            }
            places.extend(pages.last().map(|(_, page)| (pages.len() - 1, (row - page.start) as usize)));
        }
        (pages, places)
    }

    /// The whole group, with a flag for each row that tells whether it is wanted.
    pub(crate) fn widened(&self) -> (Self, Vec<bool>) {
        let mut wanted = vec![false; self.all() as usize];
        for range in &self.rows {
            let [start, end] = [range.start, range.end].map(|row| (row - self.bounds.start) as usize);
            wanted[start..end].fill(true);
        }
        (self.with(std::iter::once(self.bounds.clone()).collect()), wanted)
    }

    /// The wanted values of a column of the whole group. `places` caches their positions for the next column.
    fn pick(&self, column: &ArrayRef, places: &mut Option<UInt32Array>) -> Result<ArrayRef> {
        let within = |r: &Range<u64>| (r.start - self.bounds.start)..(r.end - self.bounds.start);
        if let [one] = self.rows.as_slice() {
            let range = within(one);
            return Ok(column.slice(range.start as usize, (range.end - range.start) as usize));
        }
        let places = places.get_or_insert_with(|| {
            let mut places: Vec<u32> = Vec::with_capacity(self.count() as usize);
            for range in self.rows.iter().map(within) {
                // After filtering, rows are often isolated.
                if range.end - range.start == 1 {
                    places.push(range.start as u32);
                } else {
                    places.extend(range.start as u32..range.end as u32);
                }
            }
            places.into()
        });
        take(column, &*places, None).internal("cannot pick rows of a column of spans")
    }
}

impl Part {
    /// Splits rows by row group; `rows` must be ascending and disjoint.
    pub(crate) async fn span_row_groups(&self, rows: &[Range<u64>], stats: &ReadStats) -> Result<Vec<GroupRows>> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        let starts = footer.group_starts();
        let groups = starts.len().saturating_sub(1);
        let within = |(group, bounds): (usize, &[u64])| {
            let cut = |r: &Range<u64>| r.start.max(bounds[0])..r.end.min(bounds[1]);
            let rows: Vec<_> = rows.iter().map(cut).filter(|r| r.start < r.end).collect();
            GroupRows { group, bounds: bounds[0]..bounds[1], groups, rows }
        };
        Ok(starts.windows(2).enumerate().map(within).filter(|group| !group.rows.is_empty()).collect())
    }

    /// Tells whether testing all rows of a group is faster than picking the wanted ones: if its columns are cached,
    /// picking most of the rows takes longer than also testing the others.
    pub(crate) fn span_rows_are_whole(&self, rows: &GroupRows, columns: &[&str]) -> bool {
        let is_kept = |name: &&str| self.decoded().array(self.meta.id, rows.group, name).is_some();
        let are_most = rows.rows.len() > 1 && rows.count() * 2 >= rows.all();
        are_most && !columns.is_empty() && columns.iter().all(is_kept)
    }

    /// Reads columns of rows of a group; texts are dictionary-encoded.
    pub(crate) async fn span_rows_kept(
        &self,
        rows: &GroupRows,
        columns: &[&str],
        schema: &SchemaRef,
        stats: &ReadStats,
    ) -> Result<SpanRows> {
        if columns.is_empty() {
            return SpanRows::counted(rows.count());
        }
        let (cache, part, group) = (self.decoded(), self.meta.id, rows.group);
        let is_flat = |name: &str| schema.field_with_name(name).is_ok_and(|f| !f.data_type().is_nested());
        let (much, all) = (rows.are_many(), rows.take_all());
        let wants = |name| if all { cache.wants(part, group, name) } else { cache.wants_more(part, group, name) };
        let known = |name: &&str| is_flat(name).then(|| cache.array(part, group, name)).flatten();
        let known: Vec<Option<ArrayRef>> = columns.iter().map(known).collect();
        let footer = if much || known.iter().all(Option::is_some) {
            None
        } else {
            let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
            Some(self.footer(file, stats).await?)
        };
        let has_large_dictionary = |name: &str| {
            let column = footer.as_ref().and_then(|footer| Some((footer, footer.column(name)?)));
            column.is_some_and(|(footer, column)| footer.has_large_dictionary(group, column, WHOLE_PAGES_PART))
        };
        let mut found: Vec<Option<ArrayRef>> = Vec::with_capacity(columns.len());
        let (mut whole, mut some) = (Vec::new(), Vec::new());
        let mut places = None;
        for (name, known) in columns.iter().zip(known) {
            match known {
                None if is_flat(name) && (much || has_large_dictionary(name)) && wants(name) => whole.push(*name),
                None => some.push(*name),
                Some(_) => {}
            }
            found.push(known.map(|array| rows.pick(&array, &mut places)).transpose()?);
        }
        let (fixed, others) = some.into_iter().partition(|name| rows.pages() <= PAGES_MAX && is_fixed(schema, name));
        let mut some: Vec<&str> = others;
        match self.span_pages_kept(rows, &fixed, stats).await? {
            Some(arrays) => {
                for (name, array) in fixed.iter().zip(arrays) {
                    let place = columns.iter().position(|known| known == name).and_then(|at| found.get_mut(at));
                    *place.ok_or_else(|| Error::internal("a column that nobody asked for"))? = Some(array);
                }
            }
            None => some.extend(fixed),
        }
        for (names, ranges, is_whole) in
            [(&whole, std::slice::from_ref(&rows.bounds), true), (&some, rows.rows.as_slice(), false)]
        {
            if names.is_empty() {
                continue;
            }
            let read = SpanRows::concat(
                &self.span_rows_as(ranges, names, SpanRead::of_query(Texts::AllCoded(GROUP_ROWS)), stats).await?,
            )?;
            for name in names {
                let column = read.0.column_by_name(name);
                let column = column.ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}`")))?;
                let is_text = matches!(column.data_type(), DataType::Dictionary(..));
                let column = if is_text { coded(column)? } else { Arc::clone(column) };
                let at = columns.iter().position(|known| known == name);
                let place = at.and_then(|at| found.get_mut(at));
                let place = place.ok_or_else(|| Error::internal("a column that nobody asked for"))?;
                if is_whole {
                    cache.insert_array(part, group, name, &column, rows.groups);
                }
                *place = Some(if is_whole { rows.pick(&column, &mut places)? } else { column });
            }
        }
        let arrays: Vec<ArrayRef> = found.into_iter().flatten().collect();
        let fields =
            columns.iter().zip(&arrays).map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, arrays).map(SpanRows).internal("cannot read columns of spans")
    }
}

impl Part {
    /// Reads columns of numbers or identifiers, of rows in few pages, from pages that are kept, or are from their second use
    /// on; `None` if not all of them are.
    async fn span_pages_kept(
        &self,
        rows: &GroupRows,
        columns: &[&str],
        stats: &ReadStats,
    ) -> Result<Option<Vec<ArrayRef>>> {
        if columns.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let (cache, part, group) = (self.decoded(), self.meta.id, rows.group);
        let (pages, places) = rows.in_pages();
        // Of each column, its pages.
        let mut kept: Vec<Vec<Option<ArrayRef>>> = Vec::with_capacity(columns.len());
        for name in columns {
            kept.push(pages.iter().map(|(page, _)| cache.page_array(part, group, name, *page)).collect());
        }
        let lacks = |at: &usize| kept.iter().any(|of_column| of_column[*at].is_none());
        let missing: Vec<usize> = (0..pages.len()).filter(lacks).collect();
        let wanted =
            |at: &usize| columns.iter().filter(|name| cache.wants_more_page(part, group, name, pages[*at].0)).count();
        if missing.iter().map(wanted).sum::<usize>() < missing.len() * columns.len() {
            return Ok(None);
        }
        let ranges: Vec<Range<u64>> = missing.iter().map(|at| pages[*at].1.clone()).collect();
        // A batch has as many rows as a page; the last page of a group may be shorter, and ends the read.
        let texts = Texts::AllCoded(PAGE_ROWS as usize);
        let read = match ranges.as_slice() {
            [] => Vec::new(),
            ranges => self.span_rows_as(ranges, columns, SpanRead::of_query(texts), stats).await?,
        };
        if !read.iter().map(|page| page.len() as u64).eq(ranges.iter().map(|r| r.end - r.start)) {
            return Err(Error::internal("pages of spans do not come as they lie in the file"));
        }
        for (at, page) in missing.iter().zip(&read) {
            for (name, of_column) in columns.iter().zip(&mut kept) {
                let column = page.0.column_by_name(name);
                let column = column.ok_or_else(|| Error::internal(format!("a part of spans lacks `{name}`")))?;
                cache.insert_page_array(part, group, name, pages[*at].0, column);
                of_column[*at] = Some(Arc::clone(column));
            }
        }
        let arrays = kept.iter().map(|of_column| gathered(&of_column.iter().flatten().collect::<Vec<_>>(), &places));
        arrays.collect::<Result<Vec<_>>>().map(Some)
    }
}

/// Says whether a column has values of one width, so that a page of it is small and needs no dictionary.
fn is_fixed(schema: &Schema, name: &str) -> bool {
    let field = schema.field_with_name(name);
    field.is_ok_and(|f| f.data_type().is_primitive() || matches!(f.data_type(), DataType::FixedSizeBinary(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(rows: &[Range<u64>]) -> GroupRows {
        GroupRows { group: 1, bounds: 100_000..165_536, groups: 2, rows: rows.to_vec() }
    }

    #[test]
    fn rows_are_many_by_their_number_or_by_their_pages() {
        let check = |rows: &[Range<u64>], expected: bool| assert_eq!(group(rows).are_many(), expected, "{rows:?}");
        check(&[100_000..101_023, 120_000..120_001], true);
        check(&[100_000..101_022, 120_000..120_001], false);
        // Eight of 32 pages, be it that a range goes over the end of one.
        let each = |pages: u64| (0..pages).map(|page| 100_000 + page * PAGE_ROWS + 7).map(|row| row..row + 2);
        check(&each(8).collect::<Vec<_>>(), true);
        check(&each(7).collect::<Vec<_>>(), false);
        let end = 100_000 + 7 * PAGE_ROWS;
        check(&each(7).chain(std::iter::once(end - 1..end + 1)).collect::<Vec<_>>(), true);
        let twice = each(7).flat_map(|r| [r.clone(), r.end + 5..r.end + 6]);
        check(&twice.collect::<Vec<_>>(), false);
        // All of 32 pages but four.
        let take_all = |pages: u64| group(&each(pages).collect::<Vec<_>>()).take_all();
        assert_eq!([27, 28, 32].map(take_all), [false, true, true]);
    }

    #[test]
    fn rows_lie_in_pages_of_their_group() {
        let rows = group(&[100_003..100_005, 102_047..102_049, 165_535..165_536]);
        let (pages, places) = rows.in_pages();
        assert_eq!(pages, [(0, 100_000..102_048), (1, 102_048..104_096), (31, 163_488..165_536)]);
        assert_eq!(places, [(0, 3), (0, 4), (0, 2047), (1, 0), (2, 2047)]);
        // The last page of a group may be a part of one.
        let short = GroupRows { bounds: 100_000..103_000, ..group(std::slice::from_ref(&(102_999..103_000))) };
        assert_eq!(short.in_pages(), (vec![(1, 102_048..103_000)], vec![(0, 951)]));
    }

    #[test]
    fn a_group_knows_which_of_all_its_rows_are_wanted() {
        let (all, wanted) = group(&[100_001..100_003, 165_535..165_536]).widened();
        assert_eq!((all.count(), all.rows.len(), wanted.len()), (65_536, 1, 65_536));
        let at: Vec<usize> = (0..wanted.len()).filter(|&row| wanted[row]).collect();
        assert_eq!(at, [1, 2, 65_535]);
    }
}
