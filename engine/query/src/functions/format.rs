//! `format('%s of %I', …)`: a text with values in it, as they are, as names or as literals of a statement.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::quoting::{quote_ident, quote_literal};
use super::result_memory::Room;
use super::row_builder::OutputMemory;
use super::text_output::{is_printed, texts};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    room: Room,
    signature: Signature,
}

/// Gives the function, of a pattern and any number of values.
pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Format { room: room.clone(), signature }))
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &'static str {
        "format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.is_empty() {
            return plan_err!("`format` takes a pattern");
        }
        let written = |kind: &DataType| match kind {
            // Lists and rows are written here, as a cast would.
            nested if nested.is_nested() && is_printed(nested) => Ok(nested.clone()),
            nested if nested.is_nested() => plan_err!("`format` writes texts and numbers, not `{nested}`"),
            _ => Ok(DataType::Utf8View),
        };
        types.iter().map(written).collect()
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut columns: Vec<StringViewArray> = Vec::with_capacity(args.args.len());
        for value in &args.args {
            let values = value.to_array(args.number_rows)?;
            let is_nested = values.data_type().is_nested();
            let written = if is_nested { texts(&values)? } else { cast(&values, &DataType::Utf8View)? };
            let Some(written) = written.as_string_view_opt() else { return exec_err!("`format` writes texts") };
            columns.push(written.clone());
        }
        let [patterns, values @ ..] = columns.as_slice() else { return exec_err!("`format` takes a pattern") };
        let mut making = OutputMemory::new("format", &self.room);
        let (mut out, mut text) = (StringBuilder::new(), String::new());
        for row in 0..args.number_rows {
            if patterns.is_null(row) {
                out.append_null();
                continue;
            }
            text.clear();
            let value = |at: usize| {
                let column = values.get(at).filter(|column| column.is_valid(row));
                column.map(|column| column.value(row))
            };
            write(patterns.value(row), values.len(), value, &mut text, &mut making)?;
            out.append_value(&text);
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

/// A number at the beginning of a text, and what is behind it.
fn number(text: &str) -> (Option<usize>, &str) {
    let (digits, behind) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    (digits.parse().ok(), behind)
}

/// A number at the beginning of a text that a `$` follows, and what is behind both.
fn place_of(text: &str) -> (Option<usize>, &str) {
    match number(text) {
        (Some(place), after) if after.starts_with('$') => (Some(place), after.get(1..).unwrap_or_default()),
        _ => (None, text),
    }
}

/// The index of the value at a place from 1, or else of the next one, which that behind it follows then.
fn index(place: Option<usize>, next: &mut usize, count: usize) -> Result<usize> {
    let Some(at) = place.map_or(Some(*next), |place| place.checked_sub(1)) else {
        return exec_err!("`format` counts its values from 1");
    };
    *next = at + 1;
    if at < count { Ok(at) } else { exec_err!("`format` has no value number {next}") }
}

/// How wide a value is written at least, and whether it stands to the left.
fn width_of(text: Option<&str>) -> Result<(usize, bool)> {
    let Some(text) = text else { return Ok((0, false)) };
    let Ok(width) = text.trim().parse::<i32>() else {
        return exec_err!("`format` takes a whole number as a width, not `{text}`");
    };
    Ok((width.unsigned_abs() as usize, width < 0))
}

/// Writes a pattern with its values, of which `value` gives one by its place from 0; none: NULL.
fn write<'v>(
    pattern: &str,
    count: usize,
    value_at: impl Fn(usize) -> Option<&'v str>,
    out: &mut String,
    making: &mut OutputMemory<'_>,
) -> Result<()> {
    let (mut rest, mut next) = (pattern, 0);
    while let Some((before, behind)) = rest.split_once('%') {
        making.add(before.len() + 1)?;
        out.push_str(before);
        if let Some(behind) = behind.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let (place, behind) = place_of(behind);
        let (is_left, behind) = behind.strip_prefix('-').map_or((false, behind), |behind| (true, behind));
        // The width of `%*s` is a value, too, and stands before the one that is written.
        let (width, turns, behind) = if let Some(behind) = behind.strip_prefix('*') {
            let (place, behind) = place_of(behind);
            let (width, turns) = width_of(value_at(index(place, &mut next, count)?))?;
            (width, turns, behind)
        } else {
            let (width, behind) = number(behind);
            (width.unwrap_or(0), false, behind)
        };
        let is_left = is_left || turns;
        let mut letters = behind.chars();
        let kind = letters.next();
        rest = letters.as_str();
        let at = index(place, &mut next, count)?;
        let value = value_at(at);
        // Quotes within a text are written twice.
        making.add(2 * value.map_or(0, str::len) + 4)?;
        let text: Cow<'_, str> = match (kind, value) {
            (Some('s'), value) => Cow::Borrowed(value.unwrap_or_default()),
            (Some('L'), None) => Cow::Borrowed("NULL"),
            (Some('L'), value) => Cow::Owned(quote_literal(&[value]).unwrap_or_default()),
            (Some('I'), Some(_)) => Cow::Owned(quote_ident(&[value]).unwrap_or_default()),
            (Some('I'), None) => return exec_err!("`format` writes no NULL as a name"),
            _ => {
                return exec_err!(
                    "`format` knows `%s`, `%I`, `%L` and `%%`, with a place and a width before the letter"
                );
            }
        };
        let blanks = width.saturating_sub(text.chars().count());
        making.add(blanks)?;
        if is_left {
            out.push_str(&text);
        }
        out.extend(std::iter::repeat_n(' ', blanks));
        if !is_left {
            out.push_str(&text);
        }
    }
    making.add(rest.len())?;
    out.push_str(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    fn formatted(pattern: &str, values: &[Option<&str>]) -> Result<String> {
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let mut out = String::new();
        write(
            pattern,
            values.len(),
            |at| values.get(at).copied().flatten(),
            &mut out,
            &mut OutputMemory::new("format", &room),
        )?;
        Ok(out)
    }

    #[tokio::test]
    async fn lists_are_written_as_a_cast_writes_them() {
        let of = "(values (make_array(1.5, null), make_array('a b', 'c')), (null, make_array('d'))) as t(x, y)";
        let whole = format!("select format('%s %1$L %I', x, y) from {of} where x is not null");
        assert_eq!(crate::testing::answered(&whole).await.unwrap(), [r#"{1.5,NULL} '{1.5,NULL}' "{""a b"",c}""#]);
        let none = format!("select format('%s|%L|%s', x, x, y) from {of} where x is null");
        assert_eq!(crate::testing::answered(&none).await.unwrap(), ["|NULL|{d}"]);
        let nested = "select format('%s', make_array(make_array(1, 2), make_array(3, 4)))";
        assert_eq!(crate::testing::answered(nested).await.unwrap(), ["{{1,2},{3,4}}"]);
    }

    #[test]
    fn values_stand_in_their_places() {
        let check = |pattern: &str, values: &[Option<&str>], expected: &str| {
            assert_eq!(formatted(pattern, values).unwrap(), expected, "{pattern}");
        };
        check("%I.%I", &[Some("order"), Some("time_of")], "\"order\".time_of");
        check("%s is %I and %L %%", &[Some("a"), Some("B c"), Some("d'e")], "a is \"B c\" and 'd''e' %");
        check("%2$s %1$s %s", &[Some("a"), Some("b")], "b a b");
        check("|%5s|%-5s|", &[Some("a"), Some("b")], "|    a|b    |");
        check("%s%L", &[None, None], "NULL");
        check("%*s|%-*s|", &[Some("3"), Some("a"), Some("3"), Some("b")], "  a|b  |");
        check("%*s|%*s|", &[Some("-3"), Some("a"), None, Some("b")], "a  |b|");
        check("%1$*2$s|%2$-*1$s|", &[Some("2"), Some("3")], "  2|3 |");
        for wrong in ["%s", "%1$", "%0$s", "%d", "%"] {
            assert!(formatted(wrong, &[]).is_err(), "{wrong}");
        }
        assert!(formatted("%I", &[None]).is_err());
        assert!(formatted("%*s", &[Some("x"), Some("a")]).is_err());
        assert!(formatted("%*s", &[Some("1")]).is_err());
        let error = formatted("%99999999999s", &[Some("a")]).unwrap_err();
        assert!(error.to_string().contains("would give more than"), "{error}");
    }
}
