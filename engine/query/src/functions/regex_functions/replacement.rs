//! Replacement texts of `regexp_replace` in PostgreSQL's syntax: `\1` to `\9` are groups, `\&` is the whole match, `\\`
//! a backslash, anything else is literal. In DataFusion's, `$` also begins a reference, and `\10` is one.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;

use super::super::result_memory::Room;
use super::rows::REPLACE;

/// How many times as long a replacement can become: `\0` is written `\${}0`.
const LONGER: usize = 3;

/// Puts the replacements among the arguments of a call as DataFusion's function reads them, with the memory that these take
/// as long as the call goes on.
///
/// # Errors
/// The pool does not have it.
pub(crate) fn written(name: &str, args: &mut [ColumnarValue], room: &Room) -> Result<Option<MemoryReservation>> {
    if name != REPLACE {
        return Ok(None);
    }
    let Some(to) = args.get_mut(2) else { return Ok(None) };
    match to {
        ColumnarValue::Scalar(value) => {
            let Some(text) = value.try_as_str().flatten().filter(|text| is_special(text)) else { return Ok(None) };
            let memory = room.take(text.len() * LONGER)?;
            let text = of_postgres(text).into_owned();
            *value = ScalarValue::Utf8View(Some(text)).cast_to(&value.data_type())?;
            Ok(Some(memory))
        }
        ColumnarValue::Array(array) => {
            let texts = cast(array, &DataType::Utf8View)?;
            let Some(texts) = texts.as_string_view_opt() else { return Ok(None) };
            if !texts.iter().flatten().any(is_special) {
                return Ok(None);
            }
            let memory = room.take(texts.iter().flatten().map(str::len).sum::<usize>() * LONGER)?;
            let made: StringViewArray = texts.iter().map(|text| text.map(of_postgres)).collect();
            let made: ArrayRef = Arc::new(made);
            *array = cast(&made, array.data_type())?;
            Ok(Some(memory))
        }
    }
}

fn is_special(text: &str) -> bool {
    text.contains(['$', '\\'])
}

/// One replacement as it is read by DataFusion's function, and by a pattern that expands it.
pub(crate) fn of_postgres(text: &str) -> Cow<'_, str> {
    if !is_special(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '$' => out.push_str("$$"),
            '\\' => match letters.peek().copied() {
                Some(group @ '1'..='9') => {
                    letters.next();
                    out.extend(['$', '{', group, '}']);
                }
                Some('&') => {
                    letters.next();
                    out.push_str("${0}");
                }
                next => {
                    out.push('\\');
                    if next == Some('\\') {
                        letters.next();
                    }
                    // A group without a name holds nothing, and keeps the digit from being one.
                    if letters.peek().is_some_and(char::is_ascii_digit) {
                        out.push_str("${}");
                    }
                }
            },
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;

    use super::*;

    #[test]
    fn backslashes_refer_and_dollars_do_not() {
        for (text, expected) in [
            ("", ""),
            ("abc", "abc"),
            ("$1", "$$1"),
            ("${name}", "$${name}"),
            (r"<\1\2>", "<${1}${2}>"),
            (r"\10", "${1}0"),
            (r"\&\&", "${0}${0}"),
            (r"\\", r"\"),
            (r"\\1", r"\${}1"),
            (r"\\\1", r"\${1}"),
            (r"\0", r"\${}0"),
            (r"\\\\9", r"\\${}9"),
            (r"\n\é", r"\n\é"),
            ("a\\", "a\\"),
        ] {
            assert_eq!(of_postgres(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_keep_their_types() {
        let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("$1"), None, Some(r"\1")]));
        let scalar = |text: &str| ColumnarValue::Scalar(ScalarValue::from(text));
        let mut args = [scalar("a"), scalar("$"), ColumnarValue::Array(Arc::clone(&texts))];
        assert!(written("regexp_replace", &mut args, &room).unwrap().is_some());
        let expected: ArrayRef = Arc::new(StringArray::from(vec![Some("$$1"), None, Some("${1}")]));
        assert!(matches!(&args[2], ColumnarValue::Array(made) if *made == expected), "{args:?}");
        assert!(matches!(&args[1], ColumnarValue::Scalar(ScalarValue::Utf8(Some(pattern))) if pattern == "$"));
        args[2] = scalar("$$");
        assert!(written("regexp_replace", &mut args, &room).unwrap().is_some());
        assert!(matches!(&args[2], ColumnarValue::Scalar(ScalarValue::Utf8(Some(made))) if made == "$$$$"));
        // Other functions have something else there.
        args[2] = scalar("$");
        assert!(written("regexp_count", &mut args, &room).unwrap().is_none());
        assert!(matches!(&args[2], ColumnarValue::Scalar(ScalarValue::Utf8(Some(flags))) if flags == "$"));
    }
}
