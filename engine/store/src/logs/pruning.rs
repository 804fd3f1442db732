//! Rules things out before values are read: parts by time and names, streams by labels, pages by time, minimum and
//! maximum, and words. The result is always "may match"; when in doubt, yes.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
use quiver_types::logs::{FieldPattern, LogFilter, MatchHints, OBSERVED_TIME, SEVERITY_NUMBER, ValueMatcher};
use quiver_types::tables::logs::SERVICE;

use super::block::COMPUTED;
use super::stream_selection::selects;
use crate::memtable::log_streams::LiveStream;
use crate::part::PartMeta;
use crate::part::bloom;
use crate::part::logs::{ColumnIndex, ColumnKind, PartLogs, page_numbers, page_times};

/// With more filters than this next to each other, they are not used to rule out pages: the checks would take longer
/// than they save.
const FILTERS_MAX: usize = 256;

/// Tells whether a part may contain matching rows, according to the catalog.
pub(super) fn part_may_match(filter: &LogFilter, meta: &PartMeta, range: (i64, i64)) -> bool {
    match filter {
        LogFilter::None => false,
        LogFilter::And(all) => all.iter().all(|f| part_may_match(f, meta, range)),
        LogFilter::Or(any) => any.iter().any(|f| part_may_match(f, meta, range)),
        LogFilter::Time(ranges) => ranges.iter().any(|r| r.0 <= range.1 && range.0 <= r.1),
        LogFilter::Value { field, .. } if names_computed(field) => true,
        LogFilter::Value { field: FieldPattern::Name(name), matcher } => {
            meta.names.may_contain(name) || matcher.matches("")
        }
        LogFilter::Value { field: FieldPattern::Prefix(prefix), .. } => {
            meta.names.list().is_none_or(|names| names.iter().any(|n| n.starts_with(prefix.as_str())))
        }
        _ => true,
    }
}

/// Tells whether a pattern covers columns that are computed.
fn names_computed(field: &FieldPattern) -> bool {
    match field {
        FieldPattern::Name(name) => {
            COMPUTED.contains(&name.as_str()) || [SEVERITY_NUMBER, OBSERVED_TIME, SERVICE].contains(&name.as_str())
        }
        FieldPattern::Prefix(_) => false,
    }
}

/// Tells whether rows of a stream may match.
pub(super) fn stream_may_match(filter: &LogFilter, stream: &LiveStream, range: (i64, i64)) -> bool {
    match filter {
        LogFilter::None => false,
        LogFilter::And(all) => all.iter().all(|f| stream_may_match(f, stream, range)),
        LogFilter::Or(any) => any.iter().any(|f| stream_may_match(f, stream, range)),
        LogFilter::Time(ranges) => ranges.iter().any(|r| r.0 <= range.1 && range.0 <= r.1),
        LogFilter::Stream(selector) => selects(selector, stream),
        LogFilter::StreamIds(ids) => ids.contains(&stream.id),
        _ => true,
    }
}

/// Names of the fields that the filter searches words in.
pub(super) fn fields_with_words(filter: &LogFilter) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    collect(filter, &mut out);
    out
}

fn collect(filter: &LogFilter, out: &mut BTreeSet<String>) {
    match filter {
        LogFilter::And(some) | LogFilter::Or(some) => some.iter().for_each(|f| collect(f, out)),
        LogFilter::Value { field: FieldPattern::Name(name), matcher } if has_words(&matcher.hints()) => {
            out.insert(name.clone());
        }
        _ => {}
    }
}

fn has_words(hints: &MatchHints) -> bool {
    !hints.words.is_empty() && hints.words.iter().all(|list| !list.is_empty())
}

/// A row group with its metadata.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) logs: &'a PartLogs,
    pub(super) words: &'a HashMap<String, Arc<ColumnIndex>>,
    pub(super) number: usize,
    /// Its rows within the part.
    pub(super) rows: Range<u64>,
}

impl Group<'_> {
    /// Those of the rows that may match.
    pub(super) fn candidates(&self, filter: &LogFilter, rows: &BooleanBuffer) -> BooleanBuffer {
        let none = || BooleanBuffer::new_unset(rows.len());
        match filter {
            LogFilter::None => none(),
            LogFilter::And(all) => all.iter().take(FILTERS_MAX).fold(rows.clone(), |left, f| self.candidates(f, &left)),
            LogFilter::Or(any) if any.len() > FILTERS_MAX => rows.clone(),
            LogFilter::Or(any) => any.iter().fold(none(), |found, f| &found | &self.candidates(f, rows)),
            LogFilter::Time(ranges) => {
                let pages = page_times(&self.logs.footer, self.number);
                let may = |(min, max): (i64, i64)| ranges.iter().any(|r| r.0 <= max && min <= r.1);
                Self::by_page(rows, pages.iter().map(|p| (p.0, may(p.1))))
            }
            LogFilter::Value { field: FieldPattern::Name(name), matcher } => self.by_value(name, &**matcher, rows),
            _ => rows.clone(),
        }
    }

    fn by_value(&self, name: &str, matcher: &dyn ValueMatcher, rows: &BooleanBuffer) -> BooleanBuffer {
        let Some(at) = self.logs.columns.find(name) else { return rows.clone() };
        if matcher.matches("") {
            return rows.clone();
        }
        let hints = matcher.hints();
        let kind = self.logs.columns.columns[at].kind;
        match kind {
            ColumnKind::Text | ColumnKind::Coded | ColumnKind::Hex(_) => match self.words.get(name) {
                Some(index) if has_words(&hints) => self.by_words(index, &hints.words, rows),
                _ => rows.clone(),
            },
            _ => {
                let range = hints.number.filter(|_| hints.number_decides).map(|r| vec![(r.min, r.max)]);
                let exact = hints.exact.map(|texts| {
                    let numbers = texts.iter().filter_map(|t| super::evaluation::number_of(kind, t));
                    numbers.map(|n| (n, n)).collect::<Vec<_>>()
                });
                let Some(wanted) = range.or(exact) else { return rows.clone() };
                let pages = page_numbers(&self.logs.footer, self.number, name);
                let may =
                    |p: Option<(f64, f64)>| p.is_some_and(|(min, max)| wanted.iter().any(|w| w.0 <= max && min <= w.1));
                Self::by_page(rows, pages.iter().map(|p| (p.0, may(p.1))))
            }
        }
    }

    fn by_words(&self, index: &ColumnIndex, lists: &[Vec<String>], rows: &BooleanBuffer) -> BooleanBuffer {
        let lists: Vec<Vec<u64>> = lists.iter().map(|l| l.iter().map(|w| bloom::hash(w)).collect()).collect();
        let first = index.filters.partition_point(|f| f.0 + f.1 <= self.rows.start);
        let here = index.filters[first..].iter().take_while(|f| f.0 < self.rows.end);
        let pages = here.map(|(start, _, filter)| {
            let holds = lists.iter().any(|list| list.iter().all(|&h| bloom::may_hold(filter, h)));
            (start.saturating_sub(self.rows.start) as u32, holds)
        });
        Self::by_page(rows, pages)
    }

    /// Keeps the rows of pages that may match; pages are given by first row. Without pages, keeps all rows.
    fn by_page(rows: &BooleanBuffer, pages: impl Iterator<Item = (u32, bool)>) -> BooleanBuffer {
        let mut bits = BooleanBufferBuilder::new(rows.len());
        let mut last = true;
        for (first, may) in pages {
            let first = (first as usize).min(rows.len());
            bits.append_n(first - bits.len(), last);
            last = may;
        }
        bits.append_n(rows.len() - bits.len(), last);
        rows & &bits.finish()
    }
}
