//! `regexp_replace(text, pattern, replacement, from, which, flags)`: replaces the match number `which` (0: all) from
//! position `from` on. DataFusion's function has neither argument, so `quiver_sql` calls this one instead.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringBuilder, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use super::regex_functions::{Numbers, letter, of_postgres, references};
use super::regex_matches::{CompiledRegex, compiled, texts};
use super::result_memory::{BYTES_MAX, Room};
use super::row_builder::OutputMemory;
use crate::error::to_datafusion;

/// What the function is called by whoever reads an error.
const NAME: &str = "regexp_replace";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Replaced {
    room: Room,
    signature: Signature,
}

pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Replaced { room: room.clone(), signature }))
}

impl ScalarUDFImpl for Replaced {
    fn name(&self) -> &'static str {
        "regexp_replace_from"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if !(4..=6).contains(&types.len()) {
            return plan_err!("No function matches `{NAME}` of {} arguments", types.len());
        }
        let kind = |(at, kind): (usize, &DataType)| match kind {
            kind if matches!(at, 3 | 4) && (kind.is_integer() || kind.is_null()) => Ok(DataType::Int64),
            kind if !matches!(at, 3 | 4) && (kind.is_string() || kind.is_null()) => Ok(DataType::Utf8View),
            other => plan_err!("No function matches: argument {} of `{NAME}` is no `{other}`", at + 1),
        };
        types.iter().enumerate().map(kind).collect()
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [within, patterns, to, others @ ..] = args.args.as_slice() else {
            return exec_err!("`{NAME}` takes a text, a pattern and a replacement");
        };
        let asked = RowArguments {
            within: texts(within, rows)?,
            patterns: texts(patterns, rows)?,
            to: texts(to, rows)?,
            from: Numbers::new(others.first(), rows, 1)?,
            which: Numbers::new(others.get(1), rows, 1)?,
            flags: others.get(2).map(|flags| texts(flags, rows)).transpose()?,
        };
        Ok(ColumnarValue::Array(asked.texts(rows, &mut OutputMemory::new(NAME, &self.room))?))
    }
}

struct RowArguments {
    within: StringViewArray,
    patterns: StringViewArray,
    to: StringViewArray,
    from: Numbers,
    /// 0: all places.
    which: Numbers,
    flags: Option<StringViewArray>,
}

impl RowArguments {
    fn texts(&self, rows: usize, making: &mut OutputMemory<'_>) -> Result<ArrayRef> {
        let (mut out, mut text, mut last) = (StringBuilder::new(), String::new(), None);
        for row in 0..rows {
            let flags = self.flags.as_ref();
            let are_there = [Some(&self.within), Some(&self.patterns), Some(&self.to), flags];
            let (true, Some(from), Some(which)) = (
                are_there.into_iter().flatten().all(|array| array.is_valid(row)),
                self.from.get(row),
                self.which.get(row),
            ) else {
                out.append_null();
                continue;
            };
            let (Ok(from), Ok(which)) = (usize::try_from(from.saturating_sub(1)), usize::try_from(which)) else {
                return exec_err!("`{NAME}` counts letters from 1, and places from 0, which are all of them");
            };
            let pattern = compiled(&mut last, self.patterns.value(row), flags.map_or("", |flags| flags.value(row)))?;
            text.clear();
            let replacement = Replacement { to: self.to.value(row), from, which };
            replaced(pattern, self.within.value(row), replacement, making, &mut text)?;
            pattern.regex.outcome().map_err(to_datafusion)?;
            out.append_value(&text);
        }
        Ok(Arc::new(out.finish()))
    }
}

/// What stands for a place that a pattern finds.
#[derive(Debug, Clone, Copy)]
struct Replacement<'r> {
    to: &'r str,
    /// How many letters are passed over before the first place.
    from: usize,
    /// Which place it stands for, from 1; 0: all of them.
    which: usize,
}

/// Writes a text with a replacement in the place of what is found.
fn replaced(
    pattern: &CompiledRegex,
    text: &str,
    Replacement { to, from, which }: Replacement<'_>,
    making: &mut OutputMemory<'_>,
    out: &mut String,
) -> Result<()> {
    making.add(text.len())?;
    let regex = &pattern.regex;
    let (to, references) = (of_postgres(to), references(to));
    let (mut at, mut seen, mut outcome) = (0, 0, Ok(()));
    if let Some(from) = letter(text, from).filter(|_| regex.may_match(text)) {
        let mut places = if to.contains('$') { regex.group_places() } else { regex.match_places() };
        regex.each_from(text, from, &mut places, |places| {
            let Some((start, end)) = places.get(0) else { return false };
            seen += 1;
            if which > 0 && seen != which {
                return true;
            }
            out.push_str(&text[at..start]);
            at = end;
            let before = out.len();
            let most = (end - start) as i128 * references + to.len() as i128;
            // What is too much by itself is not made.
            outcome = if most > BYTES_MAX {
                making.add(usize::try_from(most).unwrap_or(usize::MAX))
            } else {
                regex.expand(text, places, &to, out);
                making.add(out.len() - before)
            };
            outcome.is_ok() && which == 0
        });
    }
    outcome?;
    out.push_str(&text[at..]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;

    use super::super::testing::{call, one, room, shown, text, texts as column};
    use super::*;

    fn number(number: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::from(number))
    }

    #[test]
    fn places_are_counted_from_a_letter_on() {
        let check = |within: &str, pattern: &str, to: &str, others: &[ColumnarValue], expected: &str| {
            let args = [&[text(within), text(pattern), text(to)][..], others].concat();
            assert_eq!(one(&function(&room()), &args).unwrap().as_deref(), Some(expected), "{args:?}");
        };
        check("aXbXc", "X", "-", &[number(3)], "aXb-c");
        check("aXbXc", "X", "-", &[number(1), number(2)], "aXb-c");
        check("aXbXc", "X", "-", &[number(1), number(3)], "aXbXc");
        check("aXbxc", "X", "-", &[number(2), number(0), text("i")], "a-b-c");
        // What lies before is seen.
        check("aaa", "^a", "x", &[number(2)], "aaa");
        check("aaa", "^a", "x", &[number(1)], "xaa");
        check("ä1b2", "(?<=[a-zä])[0-9]", "#", &[number(2), number(0)], "ä#b#");
        check("a1b2", "([a-z])([0-9])", r"\2\1$1", &[number(1), number(2)], "a12b$1");
        check("abc", "b*", "X", &[number(1), number(0)], "XaXXcX");
        check("abc", "x*$", "!", &[number(4)], "abc!");
        check("abc", ".*", "!", &[number(5)], "abc");
    }

    #[test]
    fn rows_have_places_of_their_own() {
        let within = column(&[Some("aab"), None, Some("aab"), Some("aab")]);
        let patterns = column(&[Some("a"), Some("a"), Some("b"), None]);
        let found = call(&function(&room()), &[within, patterns, text("-"), number(2), number(1)], 4).unwrap();
        assert_eq!(shown(&found), [Some("a-b".to_owned()), None, Some("aa-".to_owned()), None]);
        let null = ColumnarValue::Scalar(ScalarValue::Int64(None));
        assert_eq!(one(&function(&room()), &[text("a"), text("a"), text("b"), null]).unwrap(), None);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        let refused = |others: &[ColumnarValue], said: &str| {
            let args = [&[text("a"), text("a"), text("b")][..], others].concat();
            let refused = call(&function(&room()), &args, 1).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        };
        refused(&[number(0)], "counts letters from 1");
        refused(&[number(i64::MIN)], "counts letters from 1");
        refused(&[number(1), number(-1)], "counts letters from 1");
        refused(&[number(1), number(1), text("y")], "`y` is no flag");
        refused(&[text("1")], "No function matches: argument 4");
        refused(&[], "No function matches `regexp_replace` of 3 arguments");
    }

    #[test]
    fn what_is_made_is_bounded() {
        let (within, to) = ("a".repeat(1 << 10), "b".repeat(1 << 17));
        let args = [text(&within), text("a"), text(&to), number(1), number(0)];
        let refused = one(&function(&room()), &args).unwrap_err().to_string();
        assert!(refused.contains("`regexp_replace` would give more than"), "{refused}");
    }
}
