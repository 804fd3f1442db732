//! Wrappers of DataFusion's regular expression functions. DataFusion compiles and keeps the expressions of all rows of
//! a batch; here, where each row has its own, all of them together are limited, like those of a query in the other
//! languages. A call of DataFusion cannot be cancelled, so it gets a few rows at a time; strings that are long for
//! their pattern are matched here instead ([`rows`]), where matching stops with the query.

mod replacement;
mod rows;

use std::sync::Arc;

use arrow::array::{Array, AsArray as _};
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use quiver_types::cancellation;
use quiver_types::matcher::{Patterns, affordable, builder, compiled_bytes, few_groups, finds_empty, looks_around};

use self::rows::{COUNT, INSTR, LIKE, MATCH, REPLACE};
use super::result_memory::Room;
use crate::error::to_datafusion;
use crate::relational::patterns::{Texts, ended, is_plain};

pub(super) use replacement::{of_postgres, written};
pub(super) use rows::{Numbers, added, letter, references};

/// Their names; the pattern is the second argument.
const NAMES: [&str; 5] = [LIKE, MATCH, REPLACE, COUNT, INSTR];

/// Groups of a pattern, at most, that nobody counts.
const GROUPS_FREE: usize = 16;
/// Texts of a batch up to which it is called as a whole, where patterns are plain.
const BYTES_AT_ONCE: usize = 16 << 10;
/// Bytes of texts, times those of the compiled pattern, that are given to it at once: some tenths of a second where each byte
/// meets all of a pattern.
const COST_AT_ONCE: usize = 1 << 31;
/// What plain patterns that differ from row to row are taken for, compiled.
const COMPILED: usize = 32 << 10;
/// The same for each byte of a text in which one place is looked for after the other: each time it may be seen to its end.
const COMPILED_PER_BYTE: usize = 8;

/// Rows that are called at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    /// Behind the last of them.
    end: usize,
    /// Whether each is too long for a call that nothing ends, or has a pattern that looks around or finds empty texts, or whose
    /// groups the function leaves out where they take no part, or is searched from a later letter on.
    is_long: bool,
}

/// Refuses a call that would keep too many patterns, or too many groups, or would take long to compile one.
///
/// # Errors
/// LimitExceeded.
pub(super) fn few(name: &str, args: &[ColumnarValue]) -> Result<()> {
    if !NAMES.contains(&name) {
        return Ok(());
    }
    let patterns = match args {
        [_, ColumnarValue::Array(patterns), ..] => patterns,
        [_, ColumnarValue::Scalar(pattern), ..] => {
            let pattern = pattern.try_as_str().flatten().unwrap_or_default();
            affordable(pattern).map_err(to_datafusion)?;
            return if looks_around(pattern) { Ok(()) } else { grouped(pattern) };
        }
        _ => return Ok(()),
    };
    let patterns = cast(patterns, &DataType::Utf8View)?;
    let Some(patterns) = patterns.as_string_view_opt() else { return Ok(()) };
    let mut all = Patterns::default();
    let mut last = None;
    for pattern in patterns.iter().flatten() {
        if last != Some(pattern) {
            affordable(pattern).map_err(to_datafusion)?;
            if !looks_around(pattern) {
                all.count(pattern).map_err(to_datafusion)?;
                grouped(pattern)?;
            }
            last = Some(pattern);
        }
    }
    Ok(())
}

fn grouped(pattern: &str) -> Result<()> {
    if pattern.bytes().filter(|byte| *byte == b'(').count() <= GROUPS_FREE {
        return Ok(());
    }
    // What is none the function itself refuses.
    builder(pattern).build().map_or(Ok(()), |regex| few_groups(&regex).map_err(to_datafusion))
}

/// Whether groups of a pattern may take no part in what is found, by its looks: they, or what they stand in, may be left
/// out. DataFusion's `regexp_match` gives others in their places.
fn may_lack(name: &str, pattern: &str) -> bool {
    name == MATCH && pattern.contains('(') && [")?", ")*", "){0", "|"].into_iter().any(|sign| pattern.contains(sign))
}

/// Whether a pattern may find empty texts where these count: right behind another place DataFusion's functions see none.
fn counts_empty(name: &str, pattern: &str) -> bool {
    matches!(name, REPLACE | COUNT | INSTR) && finds_empty(pattern)
}

/// Whether a call may begin at a later letter, where DataFusion's functions see a text of its own.
fn begins_later(name: &str, args: &[ColumnarValue]) -> bool {
    let is_first = |from: &ColumnarValue| match from {
        ColumnarValue::Scalar(from) => from.is_null() || matches!(from, ScalarValue::Int64(Some(1))),
        ColumnarValue::Array(_) => false,
    };
    matches!(name, COUNT | INSTR) && args.get(2).is_some_and(|from| !is_first(from))
}

/// Calls a function, over long texts some rows at a time, or step by step.
///
/// # Errors
/// Those of the function; what is no pattern; the query has ended.
pub(super) fn invoke(inner: &ScalarUDF, args: ScalarFunctionArgs, room: &Room) -> Result<ColumnarValue> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let slices = slices(inner.name(), &args.args, if is_constant { 1 } else { args.number_rows })?;
    if let [] | [Slice { is_long: false, .. }] = slices.as_slice() {
        return inner.inner().invoke_with_args(args);
    }
    let (mut from, mut made, mut bytes) = (0, Vec::with_capacity(slices.len()), 0);
    for Slice { end, is_long } in slices {
        if !cancellation::goes_on(COST_AT_ONCE) {
            return ended();
        }
        let rows = end - from;
        let slice = |value: &ColumnarValue| match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
            constant @ ColumnarValue::Scalar(_) => constant.clone(),
        };
        let values: Vec<ColumnarValue> = args.args.iter().map(slice).collect();
        let array = if is_long {
            cast(&rows::call(inner.name(), &values, rows)?, args.return_field.data_type())?
        } else {
            let slice = ScalarFunctionArgs { args: values, number_rows: rows, ..args.clone() };
            inner.inner().invoke_with_args(slice)?.into_array(rows)?
        };
        bytes += array.get_buffer_memory_size();
        made.push(array);
        from = end;
    }
    if let [array] = made.as_slice() {
        return Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(array, 0)?)
        } else {
            ColumnarValue::Array(Arc::clone(array))
        });
    }
    // They are there twice while they are put together.
    let _copy = room.take(bytes)?;
    let made: Vec<&dyn Array> = made.iter().map(|array| &**array).collect();
    Ok(ColumnarValue::Array(concat(&made)?))
}

/// Rows that are called at once, one slice after the other; none: all of them are.
fn slices(name: &str, args: &[ColumnarValue], rows: usize) -> Result<Vec<Slice>> {
    let [texts, patterns, ..] = args else { return Ok(Vec::new()) };
    if !NAMES.contains(&name) {
        return Ok(Vec::new());
    }
    let is_constant = matches!(patterns, ColumnarValue::Scalar(_));
    let (texts, patterns) = (Texts::new(texts)?, Texts::new(patterns)?);
    let length = |row: usize| texts.get(row).map_or(0, str::len);
    let begins_later = begins_later(name, args);
    let is_own = |pattern: &str| may_lack(name, pattern) || counts_empty(name, pattern);
    let is_short = |pattern: &str| is_plain(pattern) && !begins_later && !is_own(pattern);
    if (0..rows).map(length).sum::<usize>() <= BYTES_AT_ONCE && patterns.each().flatten().all(is_short) {
        return Ok(Vec::new());
    }
    let (mut slices, mut cost) = (Vec::<Slice>::new(), 0_usize);
    let mut last = None;
    for row in 0..rows {
        let pattern = patterns.get(row).unwrap_or_default();
        let (compiled, looks) = match last {
            Some((known, compiled, looks)) if known == pattern => (compiled, looks),
            // Nobody else runs it.
            _ if begins_later || looks_around(pattern) || is_own(pattern) => (COMPILED, true),
            _ if is_constant || !is_plain(pattern) => (compiled_bytes(pattern), false),
            _ => (COMPILED, false),
        };
        last = Some((pattern, compiled, looks));
        let bytes = length(row);
        let each = if matches!(name, LIKE | MATCH) { 0 } else { bytes.saturating_mul(COMPILED_PER_BYTE) };
        let own = bytes.saturating_mul(compiled.max(each));
        let is_long = looks || own > COST_AT_ONCE;
        let total = cost.saturating_add(own);
        match slices.last_mut() {
            Some(slice) if slice.is_long == is_long && (is_long || total <= COST_AT_ONCE) => {
                (slice.end, cost) = (row + 1, total);
            }
            _ => {
                slices.push(Slice { end: row + 1, is_long });
                cost = own;
            }
        }
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn patterns_of_rows_are_bounded_together() {
        let args = |pattern: fn(usize) -> String| {
            let patterns: ArrayRef = Arc::new(StringArray::from((0..500).map(pattern).collect::<Vec<_>>()));
            [ColumnarValue::Scalar(ScalarValue::from("a")), ColumnarValue::Array(patterns)]
        };
        assert!(few("regexp_count", &args(|n| format!("a+{n}"))).is_ok());
        assert!(few("regexp_count", &args(|_| r"\w{15}".to_owned())).is_ok());
        let costly = args(|n| format!(r"\w{{15}}{n}"));
        assert!(few("regexp_replace", &costly).expect_err("some megabytes").to_string().contains("take more than"));
        assert!(few("replace", &costly).is_ok());
    }

    #[test]
    fn long_texts_are_called_some_rows_at_a_time_or_step_by_step() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(20_000); 100]));
        let slices = |name: &str, pattern: &str| {
            let pattern = ColumnarValue::Scalar(ScalarValue::from(pattern));
            slices(name, &[ColumnarValue::Array(Arc::clone(&texts)), pattern], 100).unwrap()
        };
        let all_long = [Slice { end: 100, is_long: true }];
        assert!(slices(MATCH, "a").iter().all(|slice| !slice.is_long));
        let several = slices(MATCH, "(a{20}b?){10}");
        assert!(several.len() > 2 && several.iter().all(|slice| !slice.is_long), "{several:?}");
        assert!(several.is_sorted_by_key(|slice| slice.end) && several.last().is_some_and(|last| last.end == 100));
        assert_eq!(slices(LIKE, "(?:a{50}b?){400}"), all_long);
        assert_eq!(slices(COUNT, "a"), all_long, "it may look at all of a text from each place on");
        assert!(slices("replace", "(a{20}b?){10}").is_empty());
        let args = [ColumnarValue::Array(texts), ColumnarValue::Scalar(ScalarValue::from("(.*)".repeat(1000)))];
        let refused = few(MATCH, &args).expect_err("too many groups");
        assert!(refused.to_string().contains("groups"), "{refused}");
    }

    #[test]
    fn few_bytes_are_long_for_a_large_pattern() {
        let args = |text: &str| {
            [
                ColumnarValue::Scalar(ScalarValue::from(text)),
                ColumnarValue::Scalar(ScalarValue::from("(?:a{50}b?){400}")),
            ]
        };
        assert_eq!(slices(LIKE, &args("a"), 1).unwrap(), [Slice { end: 1, is_long: false }]);
        assert_eq!(slices(LIKE, &args(&"a".repeat(10_000)), 1).unwrap(), [Slice { end: 1, is_long: true }]);
    }
}
