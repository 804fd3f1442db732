//! A few rows with nearly all columns, as whoever shows traces reads them: out of pages that are kept decoded from their
//! second use on. To take a few rows out of the file costs about as much as to decode the pages that they lie in, column by
//! column, and traces that were asked for once are asked for again. Lists and maps are read each time.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::{ReadStats, stats};

use super::read::Texts;
use super::rows::SpanRows;
use super::texts::{coded, gathered};
use crate::decoded::ROWS_BYTES_MAX;
use crate::error::{Context, Error, Result};
use crate::part::fetch::Purpose;
use crate::part::footer::Footer;
use crate::part::reader::Part;

/// Rows of a kept page.
const PAGE_ROWS: u64 = 2048;
/// Rows that lie in more pages are not looked for in kept ones.
const PAGES_MAX: usize = 16;
/// For fewer columns no page is kept.
const COLUMNS_MIN: usize = 16;

/// Rows of one page of a row group.
#[derive(Debug, PartialEq)]
struct PageRows {
    group: usize,
    /// Number of the page in its group.
    page: u32,
    /// All rows of the page.
    all: Range<u64>,
    /// Those that are wanted, ascending.
    rows: Vec<Range<u64>>,
}

/// The row group of a row, the number of its page there, and all rows of that.
fn page_at(starts: &[u64], row: u64) -> Option<(usize, u64, Range<u64>)> {
    let group = starts.partition_point(|start| *start <= row).checked_sub(1)?;
    let (first, end) = (*starts.get(group)?, *starts.get(group + 1)?);
    let page = (row - first) / PAGE_ROWS;
    Some((group, page, first + page * PAGE_ROWS..(first + (page + 1) * PAGE_ROWS).min(end)))
}

/// Says whether rows lie in more pages than are looked for, or in none: goes from page to page, however many rows each has.
fn are_too_many(starts: &[u64], rows: &[Range<u64>]) -> bool {
    let (mut left, mut from) = (rows, 0);
    for _ in 0..=PAGES_MAX {
        left = &left[left.partition_point(|range| range.end <= from)..];
        let Some(next) = left.first() else { return false };
        let Some((_, _, all)) = page_at(starts, next.start.max(from)) else { return true };
        from = all.end;
    }
    true
}

/// Divides rows by the pages that they lie in; `None` when these are too many. `starts` are the first rows of the row
/// groups and the number of all rows.
fn pages_of(starts: &[u64], rows: &[Range<u64>]) -> Option<Vec<PageRows>> {
    if are_too_many(starts, rows) {
        return None;
    }
    let mut out: Vec<PageRows> = Vec::new();
    for range in rows {
        let mut from = range.start;
        while from < range.end {
            let (group, page, all) = page_at(starts, from)?;
            let here = from..range.end.min(all.end);
            from = here.end;
            if out.last().is_none_or(|last| last.all != all) {
                out.push(PageRows { group, page: page as u32, all, rows: Vec::new() });
            }
            if let Some(last) = out.last_mut() {
                last.rows.push(here);
            }
        }
    }
    Some(out)
}

impl PageRows {
    /// Where the wanted rows stand in the page.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().flat_map(move |r| (r.start - self.all.start) as usize..(r.end - self.all.start) as usize)
    }
}

/// The wanted rows of columns of pages of one part below each other, texts as they are. Column by column over all pages: a
/// trace has a few rows in each, and there are some sixty columns.
fn pick(pages: &[(&PageRows, RecordBatch)], columns: &[&str]) -> Result<SpanRows> {
    let places: Vec<(usize, usize)> =
        pages.iter().enumerate().flat_map(|(n, (page, _))| page.places().map(move |row| (n, row))).collect();
    let first = pages.first().map_or(&[][..], |(_, page)| &page.schema_ref().fields()[..]);
    let at: HashMap<&str, usize, FixedState> = first.iter().zip(0..).map(|(f, at)| (f.name().as_str(), at)).collect();
    let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
    for name in columns {
        let lacks = || Error::internal(format!("a part of spans lacks `{name}`"));
        let at = *at.get(name).ok_or_else(lacks)?;
        let of_page = |(_, page): &(&PageRows, RecordBatch)| {
            let column = page.columns().get(at).filter(|_| page.schema_ref().field(at).name() == name);
            column.map(Arc::clone).ok_or_else(lacks)
        };
        let picked = gathered(&pages.iter().map(of_page).collect::<Result<Vec<ArrayRef>>>()?, &places)?;
        fields.push(Field::new(*name, picked.data_type().clone(), true));
        arrays.push(picked);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map(SpanRows)
        .internal("cannot pick rows of pages of spans")
}

impl Part {
    /// Reads a few rows out of kept pages; `None` when not all of these are there or worth keeping, and nothing was read
    /// then. `rows` ascending and disjoint, `schema` of the file.
    pub(crate) async fn span_rows_paged(
        &self,
        rows: &[Range<u64>],
        columns: &[&str],
        schema: &SchemaRef,
        stats: &ReadStats,
    ) -> Result<Option<SpanRows>> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        let footer = self.footer(file, stats).await?;
        let Some(pages) = pages_of(footer.group_starts(), rows) else { return Ok(None) };
        let (cache, part) = (self.decoded(), self.meta.id);
        let mut wanted = !pages.is_empty();
        let mut kept = Vec::with_capacity(pages.len());
        for page in &pages {
            let known = cache.rows(part, page.group, page.page);
            wanted &= match &known {
                Some(known) => known.num_rows() > 0,
                None => {
                    columns.len() >= COLUMNS_MIN
                        && cache.wants_rows(part, page.group, page.page)
                        && is_small(&footer, &flat_columns(schema), &page.all)
                }
            };
            kept.push(known);
        }
        if !wanted {
            return Ok(None);
        }
        let known = columns.iter().filter_map(|name| Some((*name, schema.field_with_name(name).ok()?)));
        let (nested, flat): (Vec<_>, Vec<_>) = known.partition(|(_, field)| field.data_type().is_nested());
        let [nested, flat] = [nested, flat].map(|list| list.into_iter().map(|(name, _)| name).collect::<Vec<&str>>());
        if flat.is_empty() {
            return Ok(None);
        }
        let whole = flat_columns(schema);
        let mut found = Vec::with_capacity(pages.len());
        for (page, known) in pages.iter().zip(kept) {
            let all = if let Some(known) = known {
                stats::add(&stats.cache_hits, 1);
                known
            } else {
                let read = self.span_page(&page.all, &whole, stats).await?;
                cache.insert_rows(part, page.group, page.page, &read);
                read
            };
            found.push((page, all));
        }
        let found = pick(&found, &flat)?;
        if nested.is_empty() {
            return Ok(Some(found));
        }
        let others = SpanRows::concat(&self.span_rows(rows, &nested, false, stats).await?)?;
        found.beside(&others).map(Some)
    }

    /// Decodes a page, texts by codes: a text that all rows have is held once.
    async fn span_page(&self, rows: &Range<u64>, columns: &[&str], stats: &ReadStats) -> Result<RecordBatch> {
        let rows = std::slice::from_ref(rows);
        let read = self.span_rows_as(rows, columns, Purpose::Query, Texts::AllCoded(false), stats).await?;
        let read = SpanRows::concat(&read)?.0;
        let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
        for (field, column) in read.schema_ref().fields().iter().zip(read.columns()) {
            let is_text = matches!(column.data_type(), DataType::Dictionary(..));
            let array: ArrayRef = if is_text { coded(column)? } else { Arc::clone(column) };
            fields.push(Field::new(field.name(), array.data_type().clone(), true));
            arrays.push(array);
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).internal("cannot read a page of spans")
    }
}

/// Gives the columns of a file that hold no lists and maps.
fn flat_columns(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().filter(|f| !f.data_type().is_nested()).map(|f| f.name().as_str()).collect()
}

/// Says whether a page with some columns is small enough to be kept, by the sizes in the file.
fn is_small(footer: &Footer, columns: &[&str], rows: &Range<u64>) -> bool {
    let leaves: Vec<usize> = columns.iter().filter_map(|name| footer.column(name)).collect();
    footer.decoded_bytes(&leaves, std::slice::from_ref(rows)) as u64 <= ROWS_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, FixedSizeBinaryArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn rows_of_pages_come_below_each_other() {
        let page = |texts: &[Option<&str>], first: i64| {
            let count = texts.len() as i64;
            let texts: ArrayRef = Arc::new(texts.iter().copied().collect::<StringArray>());
            let none: ArrayRef = Arc::new(StringArray::new_null(texts.len()));
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + count));
            let ids = (first..first + count).map(i64::to_be_bytes);
            let ids: ArrayRef = Arc::new(FixedSizeBinaryArray::try_from_iter(ids).unwrap());
            let columns = [("n", numbers), ("t", coded(&texts).unwrap()), ("none", coded(&none).unwrap()), ("id", ids)];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap()
        };
        let rows = |all, rows: &[Range<u64>]| PageRows { group: 0, page: 0, all, rows: rows.to_vec() };
        let (a, b) = (rows(10..14, &[10..11, 12..14]), rows(14..16, std::slice::from_ref(&(15..16))));
        let pages = [(&a, page(&[Some("x"), Some("y"), None, Some("z")], 0)), (&b, page(&[Some("z"), Some("x")], 4))];
        let found = pick(&pages, &["t", "id", "n", "none"]).unwrap().0;
        assert_eq!(found["n"].as_primitive::<Int64Type>().values()[..], [0, 2, 3, 5]);
        let texts: Vec<Option<&str>> = found["t"].as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("x"), None, Some("z"), Some("x")]);
        assert_eq!(found["id"].as_fixed_size_binary().value(3), 5i64.to_be_bytes());
        assert_eq!((found["none"].data_type(), found["none"].null_count()), (&DataType::Utf8, 4));
        assert!(pick(&pages, &["other"]).is_err());
    }

    #[test]
    fn rows_are_divided_by_pages_of_their_groups() {
        let page = |group, page, all, rows: &[Range<u64>]| PageRows { group, page, all, rows: rows.to_vec() };
        // The second group begins in the middle of what would be a page of the first.
        let starts = [0, 3000, 6000];
        assert_eq!(
            pages_of(&starts, &[5..7, 9..10, 2047..2050, 2999..3001]),
            Some(vec![
                page(0, 0, 0..2048, &[5..7, 9..10, 2047..2048]),
                page(0, 1, 2048..3000, &[2048..2050, 2999..3000]),
                page(1, 0, 3000..5048, &[3000..3001]),
            ])
        );
        assert_eq!(pages_of(&starts, &[]), Some(Vec::new()));
        assert_eq!(pages_of(&starts, &[5999..6001]), None, "more rows than there are");
        let many = PAGES_MAX as u64 * PAGE_ROWS;
        assert_eq!(pages_of(&[0, 2 * many], std::slice::from_ref(&(0..many))).map(|p| p.len()), Some(PAGES_MAX));
        assert_eq!(pages_of(&[0, 2 * many], std::slice::from_ref(&(0..many + 1))), None);
        let alone = |pages: u64| (0..pages).map(|page| page * PAGE_ROWS + 7..page * PAGE_ROWS + 8).collect::<Vec<_>>();
        let found = |pages: u64| pages_of(&[0, 4 * many], &alone(pages)).map(|p| p.len());
        assert_eq!((found(PAGES_MAX as u64), found(PAGES_MAX as u64 + 1)), (Some(PAGES_MAX), None));
    }
}
