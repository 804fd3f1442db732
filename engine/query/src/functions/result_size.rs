//! The size in bytes of a function's result, computed from its arguments before the result is made.

use std::sync::Arc;

use arrow::array::{Array, AsArray, GenericListArray, Int64Array, OffsetSizeTrait, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;

use super::regex_functions;
use super::result_memory::BYTES_MAX;

/// Bytes of an item of a list.
const ITEM_BYTES: i128 = 8;
/// Bytes of a text of a list beside the text.
const VIEW_BYTES: i128 = 17;
/// Letters that a letter of a pattern of times stands for, at most (`%c`, `%+`).
const TIME_LETTERS: i128 = 18;
/// Letters that are compared in the time that a byte of the bound is worth.
const COMPARED_PER_BYTE: i128 = 32;
/// Bytes of what comparing keeps, per letter.
const COMPARED_BYTES: i128 = 16;
/// Bytes of what an item is compared as, beside its own, for all lists of a batch at once.
const ROW_BYTES: i128 = 32;
/// Bytes of an item in a set of those that were seen, for one list after the other. Sets double what they have.
const SEEN_BYTES: i128 = 128;
const DAY_MICROS: i128 = 86_400_000_000;

/// How the size of a function's result is computed from its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// `repeat(text, n)`: n times the text.
    Times,
    /// `lpad(text, n)`: n characters.
    Length,
    /// `array_resize(list, n, item)`: n items of the size of the third argument.
    Resized,
    /// `array_repeat(item, n)`: n times the item.
    Items,
    /// `generate_series(from, to)`: the integers or times between two.
    Series,
    /// `replace(text, from, to)`: the bytes that the text gains.
    Replaced,
    /// `regexp_replace`: as `Replaced`, for the matches of a pattern.
    Matched,
    /// `concat(a, b, …)`: all arguments.
    Joined,
    /// `concat_ws(separator, a, b, …)`: all arguments, with the first between them.
    Separated,
    /// `encode(bytes, …)`: this many bytes for each byte of the first argument.
    Wider(i128),
    /// `string_to_array(text, separator)`: the parts of the text, as items.
    Pieces,
    /// `array_to_string(list, separator)`: the items as text, with the separator between them.
    Spelled,
    /// `array_replace(list, from, to)`: the list with some of its items replaced.
    Exchanged,
    /// `regexp_match(text, pattern)`: what each group of the pattern matches.
    Groups,
    /// `to_char(time, pattern)`: the longest text that the pattern can give.
    Formatted,
    /// `levenshtein(a, b)`: not the result but the work, each character of one text against each of the other.
    Compared,
    /// `array_intersect(a, b)`: what is kept while items are looked up, which is not part of the result.
    Sets,
    /// `regexp_count` and the like: the result is no larger than the arguments. It is charged once it exists, without
    /// the buffers that it shares with them.
    Alike,
}

/// Whole numbers of an argument; none: it holds others.
fn numbers(value: &ColumnarValue, rows: usize) -> Result<Option<Int64Array>> {
    if !value.data_type().is_integer() {
        return Ok(None);
    }
    let numbers = cast(&value.to_array(rows)?, &DataType::Int64)?;
    Ok(Some(numbers.as_primitive::<Int64Type>().clone()))
}

/// Texts of an argument; none: it holds others.
fn texts(value: &ColumnarValue, rows: usize) -> Result<Option<StringViewArray>> {
    if let ColumnarValue::Scalar(scalar) = value
        && let Some(text) = scalar.try_as_str()
    {
        // Views of one text; an array of another form would have it once per row.
        let shared = ScalarValue::Utf8View(text.map(str::to_owned)).to_array_of_size(rows)?;
        return Ok(Some(shared.as_string_view().clone()));
    }
    if !value.data_type().is_string() {
        return Ok(None);
    }
    let texts = cast(&value.to_array(rows)?, &DataType::Utf8View)?;
    Ok(Some(texts.as_string_view().clone()))
}

/// Bytes of each row of an argument.
fn widths(value: &ColumnarValue, rows: usize) -> Result<Vec<i128>> {
    if let ColumnarValue::Scalar(scalar) = value
        && let Some(text) = scalar.try_as_str()
    {
        return Ok(vec![text.map_or(0, |text| text.len() as i128); rows]);
    }
    widths_of(value.to_array(rows)?.as_ref())
}

/// The same of an array.
pub(crate) fn widths_of(array: &dyn Array) -> Result<Vec<i128>> {
    let rows = array.len();
    if array.data_type().is_string() {
        let texts = cast(array, &DataType::Utf8View)?;
        return Ok(texts.as_string_view().iter().map(|text| text.map_or(0, |text| text.len() as i128)).collect());
    }
    let Some(list) = array.as_list_opt::<i32>() else {
        let each = bytes_of(array)? / (rows.max(1) as i128);
        return Ok(vec![each.max(ITEM_BYTES); rows]);
    };
    let mut ends = vec![0];
    let mut end = 0;
    for width in widths_of(list.values().as_ref())? {
        end += width;
        ends.push(end);
    }
    let offsets = list.value_offsets();
    Ok(offsets.windows(2).map(|of| ITEM_BYTES + ends[of[1] as usize] - ends[of[0] as usize]).collect())
}

/// Bytes of an argument in all rows.
fn total(value: &ColumnarValue, rows: usize) -> Result<i128> {
    match value {
        ColumnarValue::Array(array) => bytes_of(array.as_ref()),
        ColumnarValue::Scalar(scalar) => Ok(rows as i128
            * match scalar.try_as_str() {
                Some(text) => text.map_or(0, str::len) as i128,
                None => bytes_of(scalar.to_array()?.as_ref())?,
            }),
    }
}

/// Bytes that views stand for: their lower half word is a length.
fn lengths(views: &[u128]) -> i128 {
    views.iter().map(|view| i128::from(*view as u32)).sum()
}

/// Bytes of the values of an array.
pub(crate) fn bytes_of(array: &dyn Array) -> Result<i128> {
    if let Some(texts) = array.as_string_view_opt() {
        return Ok(lengths(texts.views()));
    }
    if let Some(bytes) = array.as_binary_view_opt() {
        return Ok(lengths(bytes.views()));
    }
    if let Some(list) = array.as_list_opt::<i32>() {
        let (from, to) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
        return bytes_of(list.values().slice(from as usize, (to - from) as usize).as_ref());
    }
    if let Some(map) = array.as_map_opt() {
        let (from, to) = (map.value_offsets()[0], map.value_offsets()[map.len()]);
        return bytes_of(&map.entries().slice(from as usize, (to - from) as usize));
    }
    if let Some(parts) = array.as_struct_opt() {
        return parts.columns().iter().map(|part| bytes_of(part.as_ref())).sum();
    }
    Ok(array.to_data().get_slice_memory_size()? as i128)
}

/// Items of lists of any depth.
fn items(array: &dyn Array) -> i128 {
    let Some(list) = array.as_list_opt::<i32>() else { return array.len() as i128 };
    let (from, to) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
    items(list.values().slice(from as usize, (to - from) as usize).as_ref())
}

/// A text as a list of what stands between others in it.
fn pieces(text: &ColumnarValue, between: &ColumnarValue, rows: usize) -> Result<i128> {
    let whole = total(text, rows)?;
    let most = whole * (VIEW_BYTES + 1);
    if most <= BYTES_MAX {
        return Ok(most);
    }
    let (Some(within), Some(between)) = (texts(text, rows)?, texts(between, rows)?) else { return Ok(most) };
    let count = within.iter().zip(between.iter()).map(|(text, between)| match (text, between) {
        (Some(text), Some("")) => text.len().min(1),
        (Some(text), Some(between)) => text.matches(between).count() + 1,
        // Letter by letter.
        (Some(text), None) => text.len(),
        (None, _) => 0,
    });
    Ok(whole + count.sum::<usize>() as i128 * VIEW_BYTES)
}

/// Bytes that are kept to look up the items of an argument's lists.
fn looked_up(value: &ColumnarValue, rows: usize) -> Result<i128> {
    let (lists, times) = match value {
        ColumnarValue::Array(array) => (Arc::clone(array), 1),
        ColumnarValue::Scalar(scalar) => (scalar.to_array()?, rows as i128),
    };
    let (all, longest) = match (lists.as_list_opt::<i32>(), lists.as_list_opt::<i64>()) {
        (Some(lists), _) => item_counts(lists),
        (_, Some(lists)) => item_counts(lists),
        _ => (lists.len() as i128, 1),
    };
    Ok(total(value, rows)? + all * times * ROW_BYTES + longest * SEEN_BYTES)
}

/// Items of all lists, and of the longest.
fn item_counts<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> (i128, i128) {
    let counts = lists.value_offsets().windows(2).map(|of| (of[1].as_usize() - of[0].as_usize()) as i128);
    counts.fold((0, 0), |(all, longest), count| (all + count, longest.max(count)))
}

/// The longest text of an argument.
fn longest(value: &ColumnarValue, rows: usize) -> Result<i128> {
    match value {
        ColumnarValue::Scalar(_) => total(value, 1),
        ColumnarValue::Array(_) => Ok(widths(value, rows)?.into_iter().max().unwrap_or(0)),
    }
}

/// A list with a text put beside or in the place of each of its items, where there is one.
fn per_item(list: &ColumnarValue, texts: &[ColumnarValue], rows: usize) -> Result<i128> {
    let count = match list {
        ColumnarValue::Array(array) => items(array.as_ref()),
        ColumnarValue::Scalar(scalar) => items(scalar.to_array()?.as_ref()) * rows as i128,
    };
    let mut width = 0;
    for text in texts {
        width += longest(text, rows)?;
    }
    // Numbers become longer as texts than they are.
    Ok(total(list, rows)? * 3 + count * width)
}

/// Moments from one to another, with an interval between each two.
fn moments(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [from, to, step] = args else { return Ok(0) };
    if !to.data_type().is_temporal() || !step.data_type().is_temporal() {
        return Ok(0);
    }
    let micros = |value: &ColumnarValue| -> Result<Int64Array> {
        let times = cast(&value.to_array(rows)?, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        Ok(cast(&times, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
    };
    let (from, to) = (micros(from)?, micros(to)?);
    let steps = cast(&step.to_array(rows)?, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let steps = steps.as_primitive::<IntervalMonthDayNanoType>();
    let mut items = 0;
    for at in (0..rows).filter(|at| from.is_valid(*at) && to.is_valid(*at) && steps.is_valid(*at)) {
        let step = steps.value(at);
        if step == IntervalMonthDayNano::ZERO {
            return exec_err!("step size cannot equal zero");
        }
        let days = i128::from(step.months) * 28 + i128::from(step.days);
        let step = (days * DAY_MICROS + i128::from(step.nanoseconds) / 1000).abs().max(1);
        items += (i128::from(to.value(at)) - i128::from(from.value(at))).abs() / step;
    }
    Ok(items * ITEM_BYTES)
}

/// Bytes that texts have more than before when one is put for another in them.
fn added(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [within, from, to] = args else { return Ok(0) };
    let (Some(within), Some(from), Some(to)) = (texts(within, rows)?, texts(from, rows)?, texts(to, rows)?) else {
        return Ok(0);
    };
    let sum = |places: fn(&str, &str) -> usize| -> i128 {
        let rows = within.iter().zip(from.iter()).zip(to.iter());
        rows.map(|((text, from), to)| match (text, from, to) {
            (Some(text), Some(from), Some(to)) => {
                places(text, from) as i128 * to.len().saturating_sub(from.len()) as i128
            }
            _ => 0,
        })
        .sum()
    };
    // Looking for the places costs as much as the call itself, and hardly any comes near.
    let most = sum(|text, from| text.len() / from.len().max(1) + 1);
    Ok(if most <= BYTES_MAX { most } else { sum(|text, from| text.matches(from).count()) })
}

/// Bytes that texts have more than before when something is put for what patterns find.
fn added_by_patterns(args: &[ColumnarValue], rows: usize) -> Result<i128> {
    let [within, _, to, options @ ..] = args else { return Ok(0) };
    let (Some(within), Some(to)) = (texts(within, rows)?, texts(to, rows)?) else { return Ok(0) };
    let options = options.first().map(|options| texts(options, rows)).transpose()?.flatten();
    let options = |at: usize| options.as_ref().filter(|all| all.is_valid(at)).map_or("", |all| all.value(at));
    let most: i128 = (0..rows)
        .filter(|at| within.is_valid(*at) && to.is_valid(*at))
        .map(|at| {
            let (width, to) = (within.value(at).len() as i128, to.value(at));
            let places = if options(at).contains('g') { width + 1 } else { 1 };
            places * to.len() as i128 + width * regex_functions::references(to)
        })
        .sum();
    if most <= BYTES_MAX { Ok(most) } else { regex_functions::added(args, rows) }
}

impl Growth {
    /// Bytes that the result has.
    pub(super) fn bytes(self, args: &[ColumnarValue], rows: usize) -> Result<i128> {
        let all = |args: &[ColumnarValue]| args.iter().map(|arg| total(arg, rows)).sum::<Result<i128>>();
        Ok(match (self, args) {
            (Self::Series, [first, ..]) if first.data_type().is_temporal() => moments(args, rows)?,
            (Self::Replaced, _) => added(args, rows)?,
            (Self::Matched, _) => added_by_patterns(args, rows)?,
            (Self::Joined, _) => all(args)?,
            (Self::Sets, _) => args.iter().map(|arg| looked_up(arg, rows)).sum::<Result<i128>>()?,
            (Self::Separated, [separator, texts @ ..]) => all(texts)? + total(separator, rows)? * texts.len() as i128,
            (Self::Wider(times), [first, ..]) => total(first, rows)? * times,
            (Self::Pieces, [text, between, ..]) => pieces(text, between, rows)?,
            (Self::Spelled, [list, between @ ..]) => per_item(list, between, rows)?,
            (Self::Exchanged, [list, _, to, ..]) => per_item(list, std::slice::from_ref(to), rows)?,
            (Self::Formatted, [_, pattern, ..]) => total(pattern, rows)? * TIME_LETTERS,
            (Self::Groups, [text, pattern, ..]) => {
                let groups = texts(pattern, rows)?.map_or(0, |patterns| {
                    let groups = |pattern: &str| pattern.bytes().filter(|b| *b == b'(').count();
                    patterns.iter().flatten().map(groups).max().unwrap_or(0)
                });
                total(text, rows)? * (groups.max(1) as i128)
            }
            (Self::Compared, [left, right, ..]) => {
                let (left, right) = (widths(left, rows)?, widths(right, rows)?);
                let letters: i128 = left.iter().zip(&right).map(|(left, right)| left * right).sum();
                let longest = left.into_iter().chain(right).max().unwrap_or(0);
                letters / COMPARED_PER_BYTE + longest * COMPARED_BYTES
            }
            _ => self.counted(args, rows)?,
        })
    }

    /// Bytes of these that a batch has already, or that are no part of a result: a long column is no fault of the function.
    pub(super) fn input_bytes(self, args: &[ColumnarValue], rows: usize) -> Result<i128> {
        if self == Self::Sets {
            return self.bytes(args, rows);
        }
        if !matches!(self, Self::Joined | Self::Separated | Self::Wider(_) | Self::Pieces | Self::Spelled) {
            return Ok(0);
        }
        let mut most = 0;
        for arg in args.iter().filter(|arg| matches!(arg, ColumnarValue::Array(_))) {
            most = most.max(total(arg, rows)?);
        }
        Ok(most)
    }

    /// The same as [`Self::bytes`] where a number among the arguments says how many.
    fn counted(self, args: &[ColumnarValue], rows: usize) -> Result<i128> {
        let [first, second, ..] = args else {
            // `range(n)` begins at 0.
            let stops = args.first().filter(|_| self == Self::Series).map(|stop| numbers(stop, rows));
            let stops = stops.transpose()?.flatten();
            let items = |stops: Int64Array| stops.iter().flatten().map(|n| i128::from(n.max(0))).sum::<i128>();
            return Ok(stops.map_or(0, items) * ITEM_BYTES);
        };
        let Some(counts) = numbers(second, rows)? else { return Ok(0) };
        let count = |at: usize| if counts.is_null(at) { 0 } else { i128::from(counts.value(at)) };
        Ok(match self {
            Self::Times | Self::Items => {
                let widths = widths(first, rows)?;
                (0..rows).map(|at| count(at).max(0) * widths[at]).sum::<i128>()
            }
            Self::Length => (0..rows).map(|at| count(at).max(0)).sum::<i128>(),
            Self::Resized => {
                let widths = args.get(2).map(|item| widths(item, rows)).transpose()?;
                let width = |at: usize| widths.as_ref().map_or(ITEM_BYTES, |widths| widths[at].max(ITEM_BYTES));
                (0..rows).map(|at| count(at).max(0) * width(at)).sum::<i128>()
            }
            Self::Series => {
                let Some(starts) = numbers(first, rows)? else { return Ok(0) };
                let steps = args.get(2).map(|step| numbers(step, rows)).transpose()?.flatten();
                let items = |at: usize| {
                    if starts.is_null(at) || counts.is_null(at) {
                        return 0;
                    }
                    let step = steps.as_ref().map_or(1, |steps| i128::from(steps.value(at)));
                    let span = count(at) - i128::from(starts.value(at));
                    if step == 0 { 0 } else { (span / step).max(0) }
                };
                (0..rows).map(|at| items(at) * ITEM_BYTES).sum::<i128>()
            }
            // Above, or without the arguments that they need.
            _ => 0,
        })
    }
}

#[cfg(test)]
mod tests;
