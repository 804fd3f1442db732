//! Posting rows, sorted by label and value, in a file of their own: written so that a reader finds one value by reading
//! one page, with a directory that tells which rows belong to which label.
//!
//! The directory is the footer key `quiver.label_rows`: `[[kind, label, first row, rows], …]`. Each table defines what
//! its kinds and payloads mean.

use std::ops::Range;

use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::WriterPropertiesBuilder;
use serde::{Deserialize, Serialize};

use super::file::{ColumnEncodings, PartFile, column};
use super::footer::Footer;
use crate::error::{Context, Result};

/// Rows per page.
pub(super) const LABEL_PAGE_ROWS: usize = 1024;
/// Size limit of a page; pages with long payloads have fewer rows.
const LABEL_PAGE_BYTES: usize = 64 * 1024;
/// The page size is checked once per this many rows.
const LABEL_STEP_ROWS: usize = 16;
/// Footer key of the directory.
const LABEL_ROWS_KEY: &str = "quiver.label_rows";

/// Sets page sizes and encodings so that one value is found in one page. `value` is the column that is sorted within a
/// label, `payload` the column with its data.
pub(super) fn label_pages(builder: WriterPropertiesBuilder, value: &str, payload: &str) -> WriterPropertiesBuilder {
    builder
        .set_data_page_row_count_limit(LABEL_PAGE_ROWS)
        .set_write_batch_size(LABEL_STEP_ROWS)
        .set_data_page_size_limit(LABEL_PAGE_BYTES)
        .set_column_dictionary_enabled(column(&[value]), false)
        .set_column_encoding(column(&[value]), parquet::basic::Encoding::DELTA_BYTE_ARRAY)
        .set_column_dictionary_enabled(column(&[payload]), false)
        .page_statistics(&[value])
}

/// The rows of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenRows", into = "WrittenRows")]
struct LabelRows {
    kind: u8,
    label: String,
    first: u64,
    rows: u64,
}

/// The form in footers: kind, label, first row and number of rows.
type WrittenRows = (u8, String, u64, u64);

impl From<WrittenRows> for LabelRows {
    fn from((kind, label, first, rows): WrittenRows) -> Self {
        Self { kind, label, first, rows }
    }
}

impl From<LabelRows> for WrittenRows {
    fn from(LabelRows { kind, label, first, rows }: LabelRows) -> Self {
        (kind, label, first, rows)
    }
}

/// Which rows are of which label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelDirectory(Vec<LabelRows>);

impl LabelDirectory {
    /// Appends the rows of a label. Kinds and labels must come in order.
    pub(super) fn push(&mut self, kind: u8, label: &str, rows: u64) {
        let first = self.0.last().map_or(0, |last| last.first + last.rows);
        self.0.push(LabelRows { kind, label: label.to_owned(), first, rows });
    }

    /// Adds the directory to the footer of a file.
    pub(super) fn put(&self, file: &mut PartFile) -> Result<()> {
        file.put(LABEL_ROWS_KEY, serde_json::to_string(&self.0).internal("cannot write a directory of labels")?);
        Ok(())
    }

    /// Reads the directory from a footer; `None` if it is missing, malformed, or does not cover the file's rows.
    pub(super) fn read(footer: &Footer) -> Option<Self> {
        let rows: Vec<LabelRows> = serde_json::from_str(footer.value(LABEL_ROWS_KEY)?).ok()?;
        let mut next = 0;
        let follows = rows.iter().all(|r| std::mem::replace(&mut next, r.first.saturating_add(r.rows)) == r.first);
        let sorted = rows.is_sorted_by(|a, b| (a.kind, &a.label) < (b.kind, &b.label));
        (follows && sorted && next == footer.rows()).then_some(Self(rows))
    }

    /// The rows of a label; empty if there are none.
    pub(crate) fn rows(&self, kind: u8, label: &str) -> Range<u64> {
        match self.0.binary_search_by(|r| (r.kind, r.label.as_str()).cmp(&(kind, label))) {
            Ok(at) => self.0[at].first..self.0[at].first + self.0[at].rows,
            Err(_) => 0..0,
        }
    }

    /// Approximate size in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.iter().map(|r| r.label.len() as u64 + 56).sum()
    }
}

/// Splits rows at the page boundaries of a column.
pub(super) fn pages_of(footer: &Footer, column: &str, rows: &Range<u64>) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    each_page(footer, column, rows, |_, _, page| out.push(page));
    out
}

/// Like `pages_of`, but only the pages that may hold a value.
pub(super) fn pages_with(footer: &Footer, column: &str, rows: &Range<u64>, value: &str) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    let Some(at) = footer.column(column) else { return out };
    each_page(footer, column, rows, |group, page, range| {
        let index = footer.metadata().column_index().and_then(|i| i.get(group)).and_then(|g| g.get(at));
        // Bounds of long strings are truncated in the statistics: a maximum is rounded up, a minimum is a prefix. So
        // they are still bounds.
        let may = match index {
            Some(ColumnIndexMetaData::BYTE_ARRAY(index)) => match (index.min_value(page), index.max_value(page)) {
                (Some(min), Some(max)) => min <= value.as_bytes() && value.as_bytes() <= max,
                _ => true,
            },
            _ => true,
        };
        if may {
            out.push(range);
        }
    });
    out
}

/// Calls `visit` for each page of a column that holds some of the rows, with the row group, the page's index and those
/// rows.
fn each_page(footer: &Footer, column: &str, rows: &Range<u64>, mut visit: impl FnMut(usize, usize, Range<u64>)) {
    let Some(at) = footer.column(column) else { return };
    for (group, bounds) in footer.group_starts().windows(2).enumerate() {
        if bounds[1] <= rows.start || rows.end <= bounds[0] {
            continue;
        }
        let pages = footer.page_locations(group, at);
        let first = pages.partition_point(|p| bounds[0] + p.first_row_index as u64 <= rows.start).saturating_sub(1);
        for (page, location) in pages.iter().enumerate().skip(first) {
            let start = bounds[0] + location.first_row_index as u64;
            if start >= rows.end {
                break;
            }
            let end = pages.get(page + 1).map_or(bounds[1], |next| bounds[0] + next.first_row_index as u64);
            let range = start.max(rows.start)..end.min(rows.end);
            if !range.is_empty() {
                visit(group, page, range);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_labels() {
        let mut directory = LabelDirectory::default();
        directory.push(0, "app", 3);
        directory.push(0, "pod", 2000);
        directory.push(1, "", 2);
        let rows = [(0, "app"), (0, "pod"), (1, ""), (0, ""), (1, "app")].map(|(kind, l)| directory.rows(kind, l));
        assert_eq!(rows, [0..3, 3..2003, 2003..2005, 0..0, 0..0]);
        let written = serde_json::to_string(&directory.0).unwrap();
        assert_eq!(written, r#"[[0,"app",0,3],[0,"pod",3,2000],[1,"",2003,2]]"#);
        assert_eq!(serde_json::from_str::<Vec<LabelRows>>(&written).unwrap(), directory.0);
    }
}
