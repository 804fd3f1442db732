//! Puts filters to the rows of a block: exactly, cheap conditions first, each only to rows that are still undecided.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use arrow::array::{Array, BooleanBufferBuilder, StringViewArray};
use arrow::buffer::BooleanBuffer;
use futures::future::BoxFuture;
use quiver_types::Matcher;
use quiver_types::logs::{FieldPattern, LogFilter, MatchHints, RowMatcher, StreamSelector, ValueMatcher};

use super::block::{Block, column, of_stream};
use super::choose::StreamTest;
use super::column::{Column, Values, dictionary};
use crate::error::Result;
use crate::memtable::logs::LiveStream;
use crate::part::logs::ColumnKind;

/// Values that are matched one by one before whoever ends the query gets a word in: at most, and where that takes long.
const SLICE_ROWS: usize = 4096;
const SLICE_ROWS_MIN: usize = 16;
/// How long that should take.
const SLICE_TIME: Duration = Duration::from_millis(4);
/// Filters of one block that are evaluated before that.
const FILTERS_AT_ONCE: usize = 16;
/// From so many values on they are looked up and not compared one by one.
const MANY_KEYS: usize = 16;

/// Says which of some rows match.
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

/// Filters, cheap ones first.
fn by_cost(filters: &[LogFilter]) -> Vec<&LogFilter> {
    let mut order: Vec<&LogFilter> = filters.iter().collect();
    order.sort_by_cached_key(|filter| cost(filter));
    order
}

/// Lets whoever ends the query get a word in, after every few filters of very many.
async fn give_way(filter: usize) {
    if filter % FILTERS_AT_ONCE == FILTERS_AT_ONCE - 1 {
        tokio::task::yield_now().await;
    }
}

pub(super) fn none(rows: &BooleanBuffer) -> bool {
    rows.set_slices().next().is_none()
}

/// Says whether a stream has the labels that a selector asks for. No group: no condition.
pub(crate) fn selects(selector: &StreamSelector, stream: &LiveStream) -> bool {
    let all = |group: &Vec<Matcher>| group.iter().all(|m| m.matches(stream.labels.get(&m.name)));
    selector.groups.is_empty() || selector.groups.iter().any(all)
}

/// What a condition costs, roughly; only the order counts.
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
            // Messages are long and all different.
            text + if name == quiver_types::logs::MSG { 100 } else { 0 }
        }
        LogFilter::Value { .. } => 1000,
        LogFilter::Row { fields, .. } => 80 * fields.len() as u32,
        LogFilter::All => u32::MAX,
        LogFilter::Not(one) => cost(one).saturating_add(1),
        LogFilter::And(some) | LogFilter::Or(some) => some.iter().map(cost).fold(5, u32::saturating_add),
    }
}

/// The same as [`matching`], in slices of the rows where every value is asked for itself. A slice costs what its own rows
/// do: blocks have very many of them.
async fn matching_slices(column: &Column, matcher: &dyn ValueMatcher, rows: BooleanBuffer) -> BooleanBuffer {
    let array = match &column.values {
        Values::Text(array) if !matcher.hints().present => array,
        _ => return matching(column, matcher, &rows),
    };
    let texts = TextMatch::of(array, matcher);
    let mut found = BooleanBufferBuilder::new(rows.len());
    found.append_n(rows.len(), false);
    let (mut start, mut len) = (0, SLICE_ROWS / 16);
    while start < rows.len() {
        let end = rows.len().min(start + len);
        let (began, mut any) = (Instant::now(), false);
        column.for_each_within(&rows, start..end, |row, at| {
            any = true;
            if texts.matches(at) {
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

/// Bytes of a text that its view holds, whatever its length.
const VIEW_PREFIX: usize = 4;

/// A matcher of the texts of a column.
struct TextMatch<'a> {
    array: &'a StringViewArray,
    matcher: &'a dyn ValueMatcher,
    /// Whether a missing value matches, where there are any.
    missing: Option<bool>,
    /// Which of the first bytes of a value must be what: the view tells without a look at the text, which is far away.
    prefix: (u32, u32),
}

impl<'a> TextMatch<'a> {
    fn of(array: &'a StringViewArray, matcher: &'a dyn ValueMatcher) -> Self {
        let missing = array.nulls().filter(|n| n.null_count() > 0).map(|_| matcher.matches(""));
        let (mut mask, mut begin) = ([0; VIEW_PREFIX], [0; VIEW_PREFIX]);
        let starts = matcher.hints().starts.unwrap_or_default();
        for (i, byte) in starts.bytes().take(VIEW_PREFIX).enumerate() {
            (mask[i], begin[i]) = (u8::MAX, byte);
        }
        Self { array, matcher, missing, prefix: (u32::from_le_bytes(mask), u32::from_le_bytes(begin)) }
    }

    #[inline]
    fn matches(&self, at: usize) -> bool {
        match self.missing {
            Some(missing) if self.array.is_null(at) => missing,
            _ => {
                let begin = (self.array.views()[at] >> 32) as u32;
                begin & self.prefix.0 == self.prefix.1 && self.matcher.matches(self.array.value(at))
            }
        }
    }
}

/// Clears all rows outside of a range.
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

/// Says which rows have a value that matches.
fn matching(column: &Column, matcher: &dyn ValueMatcher, rows: &BooleanBuffer) -> BooleanBuffer {
    if matcher.hints().present {
        return column.present(rows);
    }
    let missing = || matcher.matches("");
    match &column.values {
        Values::Missing => whole(rows, missing()),
        Values::Constant(value) => whole(rows, matcher.matches(value)),
        Values::Text(array) => {
            let texts = TextMatch::of(array, matcher);
            column.select(rows, |at| texts.matches(at))
        }
        Values::Coded(array) => {
            let Some(texts) = dictionary(array) else { return whole(rows, missing()) };
            let empty = array.keys().nulls().filter(|n| n.null_count() > 0).map(|_| missing());
            // 0: not asked yet.
            let mut known = vec![0u8; texts.len()];
            let keys = array.keys();
            column.select(rows, |at| match empty {
                Some(empty) if keys.is_null(at) => empty,
                _ => {
                    let code = keys.value(at) as usize;
                    if known[code] == 0 {
                        known[code] = 1 + u8::from(matcher.matches(texts.value(code)));
                    }
                    known[code] == 2
                }
            })
        }
        values => typed(column, values, matcher, rows),
    }
}

fn whole(rows: &BooleanBuffer, matches: bool) -> BooleanBuffer {
    if matches { rows.clone() } else { BooleanBuffer::new_unset(rows.len()) }
}

/// Typed values: by number where that decides, by their text else.
fn typed(column: &Column, values: &Values, matcher: &dyn ValueMatcher, rows: &BooleanBuffer) -> BooleanBuffer {
    let MatchHints { exact, number, number_decides, .. } = matcher.hints();
    let missing = matcher.matches("");
    let is_number = !matches!(values, Values::Hex(_));
    if let Some(range) = number.filter(|_| number_decides && is_number) {
        return column.select(rows, |at| {
            if values.is_null(at) {
                return missing;
            }
            values.number(at).is_some_and(|v| range.min <= v && v <= range.max)
        });
    }
    if let Some(texts) = exact {
        let wanted: Vec<Key> =
            texts.iter().filter(|t| matcher.matches(t)).filter_map(|t| Key::read(values, t)).collect();
        if wanted.len() >= MANY_KEYS {
            let wanted: HashSet<Key> = wanted.into_iter().collect();
            return column.select(rows, |at| {
                if values.is_null(at) { missing } else { Key::of(values, at).is_some_and(|key| wanted.contains(&key)) }
            });
        }
        return column.select(rows, |at| {
            if values.is_null(at) { missing } else { wanted.iter().any(|key| key.equals(values, at)) }
        });
    }
    let mut buffer = String::new();
    let mut known: HashMap<i64, bool> = HashMap::new();
    column.select(rows, |at| {
        if values.is_null(at) {
            return missing;
        }
        if is_number && let Some(range) = number {
            let outside = values.number(at).is_none_or(|v| v < range.min || range.max < v);
            if outside {
                return false;
            }
        }
        match values {
            // Codes, ports, sizes: few values, each many times.
            Values::Int(array) if known.len() < 4096 => {
                let value = array.value(at);
                *known.entry(value).or_insert_with(|| matcher.matches(values.text(at, &mut buffer)))
            }
            _ => matcher.matches(values.text(at, &mut buffer)),
        }
    })
}

/// A text as a value of a type, to be compared without writing values.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    Float(u64),
    Ipv4(u32),
    Time(i64),
    Hex(Vec<u8>),
}

/// The number of a text of a kind of typed values.
pub(super) fn number_of(kind: ColumnKind, text: &str) -> Option<f64> {
    use super::text;
    match kind {
        ColumnKind::Int => text::read_int(text).map(|v| v as f64),
        ColumnKind::Float => text::read_float(text, &mut String::new()),
        ColumnKind::Ipv4 => text::read_ipv4(text).map(f64::from),
        ColumnKind::Time(_) => text::read_time(text).map(|t| t.0 as f64),
        ColumnKind::Text | ColumnKind::Coded | ColumnKind::Hex(_) => None,
    }
}

impl Key {
    /// `None`: no value of this type has the text.
    fn read(values: &Values, text: &str) -> Option<Self> {
        use super::text;
        match values {
            Values::Int(_) => text::read_int(text).map(Self::Int),
            Values::Float(_) => text::read_float(text, &mut String::new()).map(|f| Self::Float(f.to_bits())),
            Values::Ipv4(_) => text::read_ipv4(text).map(Self::Ipv4),
            Values::Time(_, Some(digits)) => {
                text::read_time(text).filter(|(_, d)| d == digits).map(|(nanos, _)| Self::Time(nanos))
            }
            Values::Time(_, None) => {
                let nanos = text::read_time_short(text)?;
                Some(Self::Time(nanos))
            }
            Values::Hex(_) => {
                let mut bytes = Vec::new();
                text::read_hex(text, &mut bytes).then_some(Self::Hex(bytes))
            }
            _ => None,
        }
    }

    /// The value of a row.
    fn of(values: &Values, at: usize) -> Option<Self> {
        Some(match values {
            Values::Int(a) => Self::Int(a.value(at)),
            Values::Float(a) => Self::Float(a.value(at).to_bits()),
            Values::Ipv4(a) => Self::Ipv4(a.value(at)),
            Values::Time(a, _) => Self::Time(a.value(at)),
            Values::Hex(a) => Self::Hex(a.value(at).to_vec()),
            _ => return None,
        })
    }

    fn equals(&self, values: &Values, at: usize) -> bool {
        match (self, values) {
            (Self::Int(v), Values::Int(a)) => a.value(at) == *v,
            (Self::Float(v), Values::Float(a)) => a.value(at).to_bits() == *v,
            (Self::Ipv4(v), Values::Ipv4(a)) => a.value(at) == *v,
            (Self::Time(v), Values::Time(a, _)) => a.value(at) == *v,
            (Self::Hex(v), Values::Hex(a)) => a.value(at) == &v[..],
            _ => false,
        }
    }
}

/// Rows of which any field with a prefix matches; times and streams are no fields here, as they would match any number.
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
        let more = matching_slices(&column, &Present(matcher), open.clone()).await;
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

/// A matcher that is never asked about missing fields.
#[derive(Debug)]
struct Present<'a>(&'a dyn ValueMatcher);

impl ValueMatcher for Present<'_> {
    fn matches(&self, value: &str) -> bool {
        !value.is_empty() && self.0.matches(value)
    }

    fn hints(&self) -> MatchHints {
        self.0.hints()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
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
