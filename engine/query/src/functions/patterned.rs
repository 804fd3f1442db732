//! Functions that keep the regular expressions of all rows of a batch: those of rows with patterns of their own are
//! bounded together, as those of one query of other languages are. Nothing ends a call of DataFusion's, so long texts go
//! through it some rows at a time, and one that is too long for its pattern is refused.

use arrow::array::{Array, AsArray as _, StringViewArray};
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use quiver_types::matcher::{Patterns, REGEX_BYTES_MAX, builder, compiled_bytes, few_groups};
use quiver_types::{Error, ErrorKind, watch};

use super::held::Room;
use crate::error::to_datafusion;

/// Their names; the pattern is the second argument.
const NAMES: [&str; 5] = ["regexp_like", "regexp_match", "regexp_replace", "regexp_count", "regexp_instr"];

/// Groups of a pattern, at most, that nobody counts.
const GROUPS_FREE: usize = 16;
/// Texts of a batch up to which it is called as a whole.
const BYTES_AT_ONCE: usize = 64 << 10;
/// Bytes of texts, times those of the compiled pattern, that are given to it at once: some tenths of a second where each byte
/// meets all of a pattern.
const COST_AT_ONCE: usize = 1 << 31;
/// The same of one text, if it is longer than a few lines. It is more: most patterns meet few of their states at a byte.
const COST_MAX: usize = 1 << 35;
const TEXT_FREE: usize = 1 << 10;
/// What patterns that differ from row to row are taken for, compiled.
const COMPILED: usize = 32 << 10;

/// Refuses a call that would keep too many patterns, or too many groups.
///
/// # Errors
/// LimitExceeded.
pub(super) fn few(name: &str, args: &[ColumnarValue]) -> Result<()> {
    if !NAMES.contains(&name) {
        return Ok(());
    }
    let patterns = match args {
        [_, ColumnarValue::Array(patterns), ..] => patterns,
        [_, ColumnarValue::Scalar(pattern), ..] => return grouped(pattern.try_as_str().flatten().unwrap_or_default()),
        _ => return Ok(()),
    };
    let patterns = cast(patterns, &DataType::Utf8View)?;
    let Some(patterns) = patterns.as_string_view_opt() else { return Ok(()) };
    let mut all = Patterns::default();
    let mut last = None;
    for pattern in patterns.iter().flatten() {
        if last != Some(pattern) {
            all.count(pattern).map_err(to_datafusion)?;
            grouped(pattern)?;
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

/// Calls a function, over long texts some rows at a time.
///
/// # Errors
/// LimitExceeded: a text is too long for its pattern. Those of the function.
pub(super) fn invoke(inner: &ScalarUDF, args: ScalarFunctionArgs, room: &Room) -> Result<ColumnarValue> {
    let ends = slices(inner.name(), &args.args)?;
    if ends.len() < 2 {
        return inner.inner().invoke_with_args(args);
    }
    let (mut from, mut made, mut bytes) = (0, Vec::with_capacity(ends.len()), 0);
    for to in ends {
        if !watch::goes_on(COST_AT_ONCE) {
            return exec_err!("the query has ended");
        }
        let rows = to - from;
        let slice = |value: &ColumnarValue| match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
            constant @ ColumnarValue::Scalar(_) => constant.clone(),
        };
        let values = args.args.iter().map(slice).collect();
        let slice = ScalarFunctionArgs { args: values, number_rows: rows, ..args.clone() };
        let array = inner.inner().invoke_with_args(slice)?.into_array(rows)?;
        bytes += array.get_buffer_memory_size();
        made.push(array);
        from = to;
    }
    // They are there twice while they are put together.
    let _copy = room.take(bytes)?;
    let made: Vec<&dyn Array> = made.iter().map(|array| &**array).collect();
    Ok(ColumnarValue::Array(concat(&made)?))
}

/// Where slices of rows end that are called at once; none: all of them are.
fn slices(name: &str, args: &[ColumnarValue]) -> Result<Vec<usize>> {
    let [ColumnarValue::Array(texts), pattern, ..] = args else { return Ok(Vec::new()) };
    if !NAMES.contains(&name) || texts.is_empty() {
        return Ok(Vec::new());
    }
    let texts = cast(texts, &DataType::Utf8View)?;
    let Some(texts) = texts.as_string_view_opt() else { return Ok(Vec::new()) };
    let length = |texts: &StringViewArray, row: usize| if texts.is_valid(row) { texts.value(row).len() } else { 0 };
    if (0..texts.len()).map(|row| length(texts, row)).sum::<usize>() <= BYTES_AT_ONCE {
        return Ok(Vec::new());
    }
    let compiled = match pattern {
        ColumnarValue::Array(_) => COMPILED,
        ColumnarValue::Scalar(pattern) => {
            let pattern = pattern.try_as_str().flatten().unwrap_or_default();
            let compiled = compiled_bytes(pattern);
            // What is none the function itself refuses.
            if compiled >= REGEX_BYTES_MAX && builder(pattern).build().is_err() {
                return Ok(Vec::new());
            }
            compiled
        }
    };
    let (mut ends, mut cost) = (Vec::new(), 0_usize);
    for row in 0..texts.len() {
        let bytes = length(texts, row);
        let own = bytes.saturating_mul(compiled);
        if bytes > TEXT_FREE && own > COST_MAX {
            let text = format!("a text of {bytes} bytes is too long for a regular expression of that size");
            return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
        }
        if cost > 0 && cost.saturating_add(own) > COST_AT_ONCE {
            ends.push(row);
            cost = 0;
        }
        cost = cost.saturating_add(own);
    }
    ends.push(texts.len());
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};
    use datafusion::common::ScalarValue;

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
    fn long_texts_are_called_some_rows_at_a_time() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(100_000); 10]));
        let args = |pattern: &str| {
            [ColumnarValue::Array(Arc::clone(&texts)), ColumnarValue::Scalar(ScalarValue::from(pattern))]
        };
        assert_eq!(slices("regexp_count", &args("a")).unwrap(), [10]);
        let ends = slices("regexp_count", &args("(a{20}b?){10}")).unwrap();
        assert!(ends.len() > 2 && ends.is_sorted() && ends.last() == Some(&10), "{ends:?}");
        assert!(slices("regexp_count", &args("(")).unwrap().is_empty());
        assert!(slices("replace", &args("(a{20}b?){10}")).unwrap().is_empty());
        let refused = slices("regexp_count", &args("(?:a{50}b?){400}")).expect_err("too much for one text");
        assert!(refused.to_string().contains("too long"), "{refused}");
        let refused = few("regexp_match", &args(&"(.*)".repeat(1000))).expect_err("too many groups");
        assert!(refused.to_string().contains("groups"), "{refused}");
    }
}
