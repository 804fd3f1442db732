//! Reads a few rows with nearly all columns, as needed to show traces, from decoded pages that are cached from their
//! second use on. Taking a few rows out of the file costs about as much as decoding their pages, column by column, and
//! a trace that was requested once is often requested again. Lists and maps are read every time.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::tables::spans::{ATTRIBUTE_PREFIX, RESOURCE_PREFIX};
use quiver_types::{ReadStats, read_stats};

use super::reader::{SpanRead, Texts};
use super::rows::SpanRows;
use super::text_columns::{SharedTexts, coded_like, gathered};
use crate::decoded_cache::ROWS_BYTES_MAX;
use crate::error::{Context, Error, Result};
use crate::part::footer::Footer;
use crate::part::reader::Part;

/// Rows per cached page, the same as in the file.
pub(super) const PAGE_ROWS: u64 = 2048;
/// Rows in more pages than this are not read from cached pages.
const PAGES_MAX: usize = 16;
/// With fewer columns than this no page is cached.
const COLUMNS_MIN: usize = 16;

/// The wanted rows of one page of a row group.
#[derive(Debug, PartialEq)]
struct PageRows {
    group: usize,
    /// Number of the page within its group.
    page: u32,
    /// All rows of the page.
    all: Range<u64>,
    /// The wanted rows, ascending.
    rows: Vec<Range<u64>>,
}

/// The row group of a row, the number of its page there, and the rows of that page.
fn page_at(starts: &[u64], row: u64) -> Option<(usize, u64, Range<u64>)> {
    let group = starts.partition_point(|start| *start <= row).checked_sub(1)?;
    let (first, end) = (*starts.get(group)?, *starts.get(group + 1)?);
    let page = (row - first) / PAGE_ROWS;
    Some((group, page, first + page * PAGE_ROWS..(first + (page + 1) * PAGE_ROWS).min(end)))
}

/// Tells whether rows lie in more than [`PAGES_MAX`] pages, or outside the file. Goes from page to page, so that it is
/// cheap for any number of rows.
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

/// Groups rows by page; `None` if they lie in too many. `starts` has the first row of each row group and the total
/// number of rows.
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
    /// Positions of the wanted rows within the page.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().flat_map(move |r| (r.start - self.all.start) as usize..(r.end - self.all.start) as usize)
    }
}

/// Concatenates the wanted rows of pages of one part. It goes column by column over all pages, because a trace has a
/// few rows in each and there are some sixty columns. Most of them are attributes of few services; those without a
/// value in these rows are left out, which means the same for an attribute, and nobody looks at them row by row.
fn pick(pages: &[(&PageRows, Arc<RecordBatch>)], columns: &[&str]) -> Result<SpanRows> {
    let places: Vec<(usize, usize)> =
        pages.iter().enumerate().flat_map(|(n, (page, _))| page.places().map(move |row| (n, row))).collect();
    let first = pages.first().map_or(&[][..], |(_, page)| &page.schema_ref().fields()[..]);
    let at: HashMap<&str, usize, FixedState> = first.iter().zip(0..).map(|(f, at)| (f.name().as_str(), at)).collect();
    let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
    let mut of_pages: Vec<&ArrayRef> = Vec::with_capacity(pages.len());
    for name in columns {
        let lacks = || Error::internal(format!("a part of spans lacks `{name}`"));
        let at = *at.get(name).ok_or_else(lacks)?;
        of_pages.clear();
        for (_, page) in pages {
            let column = page.columns().get(at).filter(|_| page.schema_ref().field(at).name() == name);
            of_pages.push(column.ok_or_else(lacks)?);
        }
        let is_attribute = name.starts_with(ATTRIBUTE_PREFIX) || name.starts_with(RESOURCE_PREFIX);
        if is_attribute && of_pages.iter().all(|column| column.null_count() == column.len()) {
            continue;
        }
        let picked = gathered(&of_pages, &places)?;
        if is_attribute && picked.null_count() == picked.len() {
            continue;
        }
        fields.push(Field::new(*name, picked.data_type().clone(), true));
        arrays.push(picked);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
        .map(SpanRows)
        .internal("cannot pick rows of pages of spans")
}

impl Part {
    /// Reads a few rows from cached pages; `None` if not all of them are cached or worth caching, and then nothing has
    /// been read. `rows` must be ascending and disjoint; `schema` is that of the file.
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
        let whole = flat_columns(schema);
        let mut leaves = None;
        let mut wanted = !pages.is_empty();
        let mut kept = Vec::with_capacity(pages.len());
        for page in &pages {
            let known = cache.rows(part, page.group, page.page);
            wanted &= match &known {
                Some(known) => known.num_rows() > 0,
                None => {
                    columns.len() >= COLUMNS_MIN
                        && cache.wants_rows(part, page.group, page.page)
                        && is_small(&footer, leaves.get_or_insert_with(|| leaves_of(&footer, &whole)), &page.all)
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
        let missing: Vec<&PageRows> =
            pages.iter().zip(&kept).filter(|(_, known)| known.is_none()).map(|(page, _)| page).collect();
        read_stats::add(&stats.cache_hits, (pages.len() - missing.len()) as u64);
        let mut read = Vec::with_capacity(missing.len());
        let groups: Vec<&[&PageRows]> = missing.chunk_by(|a, b| a.group == b.group).collect();
        for of_group in groups {
            read.extend(self.span_pages(of_group, &whole, stats).await?);
        }
        for (page, rows) in missing.iter().zip(&read) {
            cache.insert_rows(part, page.group, page.page, rows);
        }
        let mut read = read.into_iter();
        let found = pages.iter().zip(kept).filter_map(|(page, known)| Some((page, known.or_else(|| read.next())?)));
        let found = pick(&found.collect::<Vec<_>>(), &flat)?;
        if nested.is_empty() {
            return Ok(Some(found));
        }
        let others = SpanRows::concat(&self.span_rows(rows, &nested, stats).await?)?;
        found.beside(&others).map(Some)
    }

    /// Decodes pages of one row group, with texts dictionary-encoded. All pages share the texts of a column, and a text
    /// in all rows is held once. All pages are decoded in one read, because each read starts with the dictionaries of
    /// all columns.
    async fn span_pages(
        &self,
        pages: &[&PageRows],
        columns: &[&str],
        stats: &ReadStats,
    ) -> Result<Vec<Arc<RecordBatch>>> {
        let rows: Vec<Range<u64>> = pages.iter().map(|page| page.all.clone()).collect();
        // A batch has as many rows as a page; the last page of a group may be shorter, and ends the read.
        let texts = Texts::AllCoded(PAGE_ROWS as usize);
        let read = self.span_rows_as(&rows, columns, SpanRead::of_query(texts), stats).await?;
        if !read.iter().map(|page| page.len() as u64).eq(rows.iter().map(|r| r.end - r.start)) {
            return Err(Error::internal("pages of spans do not come as they lie in the file"));
        }
        let mut shared: Vec<SharedTexts> = vec![None; columns.len()];
        read.iter().map(|page| kept_page(&page.0, &mut shared).map(Arc::new)).collect()
    }
}

/// Converts a page for the cache. `shared` has the texts of each column of the previous page.
fn kept_page(page: &RecordBatch, shared: &mut [SharedTexts]) -> Result<RecordBatch> {
    let arrays = page.columns().iter().zip(shared).map(|(column, before)| coded_like(column, before));
    let arrays = arrays.collect::<Result<Vec<ArrayRef>>>()?;
    let fields = page.schema_ref().fields().iter().zip(&arrays);
    let fields: Vec<Field> =
        fields.map(|(field, array)| Field::new(field.name(), array.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).internal("cannot read a page of spans")
}

/// The columns of a file that are not lists or maps.
fn flat_columns(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().filter(|f| !f.data_type().is_nested()).map(|f| f.name().as_str()).collect()
}

/// Indexes of columns in a file.
fn leaves_of(footer: &Footer, columns: &[&str]) -> Vec<usize> {
    columns.iter().filter_map(|name| footer.column(name)).collect()
}

/// Tells whether a page with some columns is small enough for the cache, estimated from sizes in the file.
fn is_small(footer: &Footer, leaves: &[usize], rows: &Range<u64>) -> bool {
    footer.decoded_bytes(leaves, std::slice::from_ref(rows)) as u64 <= ROWS_BYTES_MAX
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use arrow::array::{AsArray, FixedSizeBinaryArray, Int32DictionaryArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int32Type, Int64Type};

    use super::super::text_columns::{coded, plain};
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
            let columns = columns.map(|(name, array)| (name, array, true));
            Arc::new(RecordBatch::try_from_iter_with_nullable(columns).unwrap())
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

    /// Breaks if attributes without a value in the pages are made for each row, or if pages copy texts they share.
    #[test]
    fn pages_of_one_read_share_their_texts() {
        let texts: Int32DictionaryArray = [Some("x"), Some("y"), None, Some("z")].into_iter().collect();
        let none: Int32DictionaryArray = [None::<&str>; 4].into_iter().collect();
        let columns: [(&str, ArrayRef); 5] = [
            ("name", Arc::new(texts.clone())),
            ("attributes.t", Arc::new(texts)),
            ("attributes.none", Arc::new(none.clone())),
            ("resource.n", Arc::new(Int64Array::new_null(4))),
            ("none", Arc::new(none)),
        ];
        let read = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).unwrap();
        let mut shared: Vec<SharedTexts> = vec![None; 5];
        let a = kept_page(&read.slice(0, 2), &mut shared).unwrap();
        let b = kept_page(&read.slice(2, 2), &mut shared).unwrap();
        let views = |batch: &RecordBatch| Arc::clone(batch["name"].as_dictionary::<Int32Type>().values());
        assert!(Arc::ptr_eq(&views(&a), &views(&b)));
        let rows = |all, row: Range<u64>| PageRows { group: 0, page: 0, all, rows: std::iter::once(row).collect() };
        let (of_a, of_b) = (rows(0..2, 0..1), rows(2..4, 2..4));
        let pages = [(&of_a, Arc::new(a)), (&of_b, Arc::new(b))];
        let found = pick(&pages, &["name", "attributes.t", "attributes.none", "resource.n", "none"]).unwrap().0;
        let left: Vec<&str> = found.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(left, ["name", "attributes.t", "none"]);
        assert!(Arc::ptr_eq(&views(&found), &views(&pages[0].1)), "codes of the same texts");
        for name in ["name", "attributes.t"] {
            let texts = plain(&found[name]);
            assert_eq!(texts.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), None, Some("z")]);
        }
        // Values in other rows of the page do not count.
        let valueless = rows(2..4, 2..3);
        let found = pick(&[(&valueless, Arc::clone(&pages[1].1))], &["name", "attributes.t", "resource.n"]).unwrap().0;
        assert_eq!((found.num_columns(), found.num_rows(), found["name"].null_count()), (1, 1, 1));
        // Of attributes alone that nobody has there is still a row for each span.
        assert_eq!(pick(&pages, &["attributes.none"]).unwrap().len(), 3);
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
