//! Evaluates filters on the rows of a block exactly: cheap conditions first, each only on rows that are still
//! undecided. Matching of column values is in `quiver_types::logs`.

use std::time::{Duration, Instant};

use arrow::array::{Array, BooleanBufferBuilder, Int64Array, UInt32Array};
use arrow::buffer::BooleanBuffer;
use futures::future::BoxFuture;
use quiver_types::logs::{
    ChosenRows, FieldPattern, IfPresent, LogFilter, RowMatcher, SubstringSearch, TextMatch, TypedValues, ValueMatcher,
    match_coded, match_typed,
};

use super::block::{Block, column, of_stream};
use super::column::{Column, Values, dictionary};
use super::stream_selection::StreamTest;
use super::typed_text;
use crate::error::Result;
use crate::part::logs::ColumnKind;

/// Number of values that are matched between two checks for cancellation: at most, and if matching is slow.
const SLICE_ROWS: usize = 4096;
const SLICE_ROWS_MIN: usize = 16;
/// Intended time between two checks.
const SLICE_TIME: Duration = Duration::from_millis(4);
/// Number of filters of one block that are evaluated between two checks.
const FILTERS_AT_ONCE: usize = 16;

/// Those of the rows that match.
pub(crate) fn eval<'a>(
    block: &'a mut dyn Block,
    filter: &'a LogFilter,
    rows: BooleanBuffer,
) -> BoxFuture<'a, Result<BooleanBuffer>> {
    Box::pin(async move {
        if none(&rows) {
            return Ok(rows);
        }
        match filter {
            LogFilter::All => Ok(rows),
            LogFilter::None => Ok(BooleanBuffer::new_unset(rows.len())),
            LogFilter::And(all) => {
                let mut left = rows;
                for (i, filter) in by_cost(all).into_iter().enumerate() {
                    left = eval(&mut *block, filter, left).await?;
                    give_way(i).await;
                }
                Ok(left)
            }
            LogFilter::Or(any) => {
                let mut found = BooleanBuffer::new_unset(rows.len());
                let mut open = rows;
                for (i, filter) in by_cost(any).into_iter().enumerate() {
                    let more = eval(&mut *block, filter, open.clone()).await?;
                    if !none(&more) {
                        open = &open & &!&more;
                        found = &found | &more;
                    }
                    give_way(i).await;
                }
                Ok(found)
            }
            LogFilter::Not(one) => {
                let matching = eval(block, one, rows.clone()).await?;
                Ok(&rows & &!&matching)
            }
            LogFilter::Value { field: FieldPattern::Name(name), matcher } => {
                if let Some(value) = of_stream(block, name) {
                    return block.in_streams(&rows, StreamTest::Value(&value, &**matcher)).await;
                }
                let column = column(block, name, &rows).await?;
                Ok(matching_slices(&column, &**matcher, rows).await)
            }
            LogFilter::Value { field: FieldPattern::Prefix(prefix), matcher } => {
                any_field(block, prefix, &**matcher, rows).await
            }
            LogFilter::Row { fields, matcher } => by_row(block, fields, &**matcher, &rows).await,
            LogFilter::Time(ranges) => block.in_time(ranges, &rows).await,
            LogFilter::TimeOf(predicate) => {
                let times = block.times(&rows).await?;
                let Values::Time(array, _) = &times.values else { return Ok(rows) };
                Ok(times.select(&rows, |at| predicate.matches(array.value(at))))
            }
            LogFilter::Stream(selector) => block.in_streams(&rows, StreamTest::Selector(selector)).await,
            LogFilter::StreamIds(ids) => block.in_streams(&rows, StreamTest::Ids(ids)).await,
        }
    })
}

/// Filters sorted by cost, cheapest first.
fn by_cost(filters: &[LogFilter]) -> Vec<&LogFilter> {
    let mut order: Vec<&LogFilter> = filters.iter().collect();
    order.sort_by_cached_key(|filter| cost(filter));
    order
}

/// Yields after every few filters, so that the query can be cancelled.
async fn give_way(filter: usize) {
    if filter % FILTERS_AT_ONCE == FILTERS_AT_ONCE - 1 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn none(rows: &BooleanBuffer) -> bool {
    rows.set_slices().next().is_none()
}

/// Estimated cost of a condition; only the order matters.
fn cost(filter: &LogFilter) -> u32 {
    match filter {
        LogFilter::None => 0,
        LogFilter::Stream(_) | LogFilter::StreamIds(_) => 1,
        LogFilter::Time(_) => 2,
        LogFilter::TimeOf(_) => 20,
        LogFilter::Value { field: FieldPattern::Name(name), matcher } => {
            let hints = matcher.hints();
            let text = if hints.exact.is_some() || hints.number_decides {
                10
            } else if !hints.words.is_empty() || hints.substring.is_some() {
                40
            } else {
                60
            };
            // Messages are long and mostly distinct.
            text + if name == quiver_types::logs::MSG { 100 } else { 0 }
        }
        LogFilter::Value { .. } => 1000,
        LogFilter::Row { fields, .. } => 80 * fields.len() as u32,
        LogFilter::All => u32::MAX,
        LogFilter::Not(one) => cost(one).saturating_add(1),
        LogFilter::And(some) | LogFilter::Or(some) => some.iter().map(cost).fold(5, u32::saturating_add),
    }
}

/// Like [`matching`], in slices of rows if every value must be matched separately. The cost of a slice depends only on
/// its own rows, because a block may have very many slices.
async fn matching_slices(column: &Column, matcher: &dyn ValueMatcher, rows: BooleanBuffer) -> BooleanBuffer {
    let hints = matcher.hints();
    let array = match &column.values {
        Values::Text(array) if !hints.present => array,
        _ => return matching(column, matcher, &rows),
    };
    let texts = TextMatch::new(array, matcher);
    if texts.looks_at_views_alone() {
        return column.select(&rows, |at| texts.matches(at));
    }
    // If most rows are of interest, a required substring is searched for in many texts at once.
    let required = hints.substring.as_deref().filter(|_| rows.count_set_bits() * 2 >= array.len());
    let mut holding = required.filter(|_| !matcher.matches("")).and_then(|text| SubstringSearch::new(array, text));
    let mut found = BooleanBufferBuilder::new(rows.len());
    found.append_n(rows.len(), false);
    let (mut start, mut len) = (0, SLICE_ROWS / 16);
    while start < rows.len() {
        let end = rows.len().min(start + len);
        let (began, mut any) = (Instant::now(), false);
        column.for_each_within(&rows, start..end, |row, at| {
            any = true;
            if holding.as_mut().is_none_or(|holding| holding.may_hold(at)) && texts.matches(at) {
                found.set_bit(row, true);
            }
        });
        if any {
            len = if began.elapsed() > SLICE_TIME { len / 4 } else { len * 2 };
            len = len.clamp(SLICE_ROWS_MIN, SLICE_ROWS);
            tokio::task::yield_now().await;
        }
        start = end;
    }
    found.finish()
}

/// Clears all rows outside a range.
pub(super) fn within(rows: &BooleanBuffer, start: usize, end: usize) -> BooleanBuffer {
    if start == 0 && end == rows.len() {
        return rows.clone();
    }
    let mut bits = BooleanBufferBuilder::new(rows.len());
    bits.append_n(start, false);
    bits.append_buffer(&rows.slice(start, end - start));
    bits.append_n(rows.len() - end, false);
    bits.finish()
}

/// Those of the rows that have a matching value.
fn matching(column: &Column, matcher: &dyn ValueMatcher, rows: &BooleanBuffer) -> BooleanBuffer {
    if matcher.hints().present {
        return column.present(rows);
    }
    let asked = UndecidedRows { column, rows };
    match &column.values {
        Values::Missing => whole(rows, matcher.matches("")),
        Values::Constant(value) => whole(rows, matcher.matches(value)),
        Values::Text(array) => {
            let texts = TextMatch::new(array, matcher);
            column.select(rows, |at| texts.matches(at))
        }
        Values::Coded(array) => match dictionary(array) {
            Some(texts) => match_coded(array.keys(), texts, matcher, &asked),
            None => whole(rows, matcher.matches("")),
        },
        Values::Int(array) => match_typed(array, matcher, &asked),
        Values::Float(array) => match_typed(array, matcher, &asked),
        Values::Hex(array) => match_typed(array, matcher, &asked),
        Values::Ipv4(array) => match_typed(&Addresses(array), matcher, &asked),
        Values::Time(array, digits) => match_typed(&Times(array, *digits), matcher, &asked),
    }
}

fn whole(rows: &BooleanBuffer, matches: bool) -> BooleanBuffer {
    if matches { rows.clone() } else { BooleanBuffer::new_unset(rows.len()) }
}

/// The undecided rows of a block, as values of a column.
struct UndecidedRows<'a> {
    column: &'a Column,
    rows: &'a BooleanBuffer,
}

impl ChosenRows for UndecidedRows<'_> {
    fn select(&self, passes: impl FnMut(usize) -> bool) -> BooleanBuffer {
        self.column.select(self.rows, passes)
    }
}

struct Addresses<'a>(&'a UInt32Array);

impl TypedValues for Addresses<'_> {
    type Key = u32;

    fn is_missing(&self, at: usize) -> bool {
        self.0.is_null(at)
    }

    fn number(&self, at: usize) -> f64 {
        f64::from(self.0.value(at))
    }

    fn write(&self, at: usize, out: &mut String) {
        typed_text::write_ipv4(self.0.value(at), out);
    }

    fn read(&self, text: &str) -> Option<u32> {
        typed_text::read_ipv4(text)
    }

    fn key(&self, at: usize) -> u32 {
        self.0.value(at)
    }

    fn is(&self, at: usize, key: &u32) -> bool {
        self.0.value(at) == *key
    }
}

/// Times with this number of fractional digits (`None`: without trailing zeros).
struct Times<'a>(&'a Int64Array, Option<u8>);

impl TypedValues for Times<'_> {
    type Key = i64;

    fn is_missing(&self, at: usize) -> bool {
        self.0.is_null(at)
    }

    fn number(&self, at: usize) -> f64 {
        self.0.value(at) as f64
    }

    fn write(&self, at: usize, out: &mut String) {
        typed_text::write_time(self.0.value(at), self.1, out);
    }

    fn read(&self, text: &str) -> Option<i64> {
        match self.1 {
            Some(digits) => typed_text::read_time(text).filter(|(_, own)| *own == digits).map(|(nanos, _)| nanos),
            None => typed_text::read_time_short(text),
        }
    }

    fn key(&self, at: usize) -> i64 {
        self.0.value(at)
    }

    fn is(&self, at: usize, key: &i64) -> bool {
        self.0.value(at) == *key
    }
}

/// The number that represents a text as a typed value of a kind.
pub(super) fn number_of(kind: ColumnKind, text: &str) -> Option<f64> {
    match kind {
        ColumnKind::Int => typed_text::read_int(text).map(|v| v as f64),
        ColumnKind::Float => typed_text::read_float(text, &mut String::new()),
        ColumnKind::Ipv4 => typed_text::read_ipv4(text).map(f64::from),
        ColumnKind::Time(_) => typed_text::read_time(text).map(|t| t.0 as f64),
        ColumnKind::Text | ColumnKind::Coded | ColumnKind::Hex(_) => None,
    }
}

/// The rows in which any field with a prefix matches. Times and streams are not fields here, as they would match any
/// number.
async fn any_field(
    block: &mut dyn Block,
    prefix: &str,
    matcher: &dyn ValueMatcher,
    rows: BooleanBuffer,
) -> Result<BooleanBuffer> {
    let mut found = BooleanBuffer::new_unset(rows.len());
    let mut open = rows;
    for name in block.names(prefix) {
        if none(&open) {
            return Ok(found);
        }
        let column = column(block, &name, &open).await?;
        let more = matching_slices(&column, &IfPresent(matcher), open.clone()).await;
        open = &open & &!&more;
        found = &found | &more;
    }
    if none(&open) {
        return Ok(found);
    }
    for start in (0..open.len()).step_by(SLICE_ROWS) {
        let slice = within(&open, start, open.len().min(start + SLICE_ROWS));
        if !none(&slice) {
            found = &found | &block.overflow(prefix, matcher, &slice).await?;
            tokio::task::yield_now().await;
        }
    }
    Ok(found)
}

async fn by_row(
    block: &mut dyn Block,
    fields: &[String],
    matcher: &dyn RowMatcher,
    rows: &BooleanBuffer,
) -> Result<BooleanBuffer> {
    let mut columns = Vec::with_capacity(fields.len());
    for name in fields {
        columns.push(column(block, name, rows).await?.gather(rows)?);
    }
    let mut buffers = vec![String::new(); fields.len()];
    let mut bits = BooleanBufferBuilder::new(rows.len());
    bits.append_n(rows.len(), false);
    for (i, row) in rows.set_indices().enumerate() {
        let values: Vec<&str> = columns.iter().zip(&mut buffers).map(|(c, b)| c.text(i, b)).collect();
        bits.set_bit(row, matcher.matches(&values));
        if i % SLICE_ROWS == SLICE_ROWS - 1 {
            tokio::task::yield_now().await;
        }
    }
    Ok(bits.finish())
}
