//! The parts of a string that a regular expression matches, or that lie between matches, as lists that statements
//! unnest.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListBuilder, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, internal_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use quiver_types::cancellation;
use quiver_types::matcher::{WatchedRegex, affordable, builder, few_groups, looks_around};

use super::regex_functions::{Numbers, letter};
use super::result_memory::Room;
use super::row_builder::OutputMemory;
use crate::error::to_datafusion;
use crate::postgres_regex::Options;

/// Bytes of an item of a list beside its text.
const ITEM: usize = 8;

/// Which parts of a text are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RegexOperation {
    /// The parts between matches.
    Between,
    /// The groups of each match, or the whole match if the pattern has no groups.
    Groups,
    /// One match, by its number.
    Place,
    /// The first group of the first match, or the whole match if the pattern has no groups.
    First,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Pieces {
    name: &'static str,
    asked: RegexOperation,
    room: Room,
    signature: Signature,
}

pub(super) fn functions(room: &Room) -> impl Iterator<Item = Arc<ScalarUDF>> {
    let named = [
        ("regexp_split_to_array", RegexOperation::Between),
        ("regexp_groups", RegexOperation::Groups),
        ("regexp_substr", RegexOperation::Place),
    ];
    named.into_iter().map(|(name, asked)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Pieces { name, asked, room: room.clone(), signature }))
    })
}

/// Gives the function for a single piece. It is only used in rewritten calls, not by name.
pub(super) fn first(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Pieces { name: "substring", asked: RegexOperation::First, room: room.clone(), signature }))
}

/// A pattern that was read.
pub(super) struct CompiledRegex {
    pattern: String,
    flags: String,
    pub(super) regex: WatchedRegex,
    is_global: bool,
}

impl CompiledRegex {
    fn new(pattern: &str, flags: &str) -> Result<Self> {
        let options = Options::of(flags).map_err(to_datafusion)?;
        let is_global = options.is_global();
        // Whatever runs the pattern knows its text alone.
        let text = options.written(pattern).map_err(to_datafusion)?;
        affordable(&text).map_err(to_datafusion)?;
        if looks_around(&text) {
            let regex = WatchedRegex::looking(&text).map_err(to_datafusion)?;
            return Ok(Self { pattern: pattern.to_owned(), flags: flags.to_owned(), regex, is_global });
        }
        match builder(&text).build() {
            Ok(regex) => {
                few_groups(&regex).map_err(to_datafusion)?;
                let regex = WatchedRegex::new(regex);
                Ok(Self { pattern: pattern.to_owned(), flags: flags.to_owned(), regex, is_global })
            }
            Err(error) => plan_err!("`{pattern}` is no regular expression: {error}"),
        }
    }
}

/// The compiled pattern of a row. Neighbouring rows mostly have the same pattern, so the last one is kept.
///
/// # Errors
/// What is no pattern, or no flag, or takes too much.
pub(super) fn compiled<'c>(
    last: &'c mut Option<CompiledRegex>,
    pattern: &str,
    flags: &str,
) -> Result<&'c CompiledRegex> {
    if !last.as_ref().is_some_and(|known| known.pattern == pattern && known.flags == flags) {
        *last = Some(CompiledRegex::new(pattern, flags)?);
    }
    last.as_ref().ok_or_else(|| internal_datafusion_err!("a pattern was read"))
}

/// Texts of an argument.
///
/// # Errors
/// It has others.
pub(super) fn texts(value: &ColumnarValue, rows: usize) -> Result<StringViewArray> {
    let array = cast(&value.to_array(rows)?, &DataType::Utf8View)?;
    if let Some(texts) = array.as_string_view_opt() {
        Ok(texts.clone())
    } else {
        exec_err!("a regular expression is searched for in texts")
    }
}

impl ScalarUDFImpl for Pieces {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let most = match self.asked {
            RegexOperation::Between | RegexOperation::Groups => 3,
            RegexOperation::Place => 6,
            RegexOperation::First => 2,
        };
        if !(2..=most).contains(&types.len()) {
            return plan_err!("`{}` takes a text, a pattern and flags, not {} arguments", self.name, types.len());
        }
        let kind = |(at, kind): (usize, &DataType)| {
            let is_number = self.asked == RegexOperation::Place && matches!(at, 2 | 3 | 5);
            match kind {
                kind if is_number && (kind.is_integer() || kind.is_null()) => Ok(DataType::Int64),
                kind if !is_number && (kind.is_string() || kind.is_null()) => Ok(DataType::Utf8View),
                other => plan_err!("argument {} of `{}` is no `{other}`", at + 1, self.name),
            }
        };
        types.iter().enumerate().map(kind).collect()
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        let list = DataType::new_list(DataType::Utf8, true);
        Ok(match self.asked {
            RegexOperation::Between => list,
            RegexOperation::Groups => DataType::new_list(list, true),
            RegexOperation::Place | RegexOperation::First => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [within, patterns, others @ ..] = args.args.as_slice() else {
            return exec_err!("`{}` takes a text and a pattern", self.name);
        };
        let (within, patterns) = (texts(within, rows)?, texts(patterns, rows)?);
        let array: ArrayRef = match self.asked {
            RegexOperation::Place | RegexOperation::First => self.place(&within, &patterns, others, rows)?,
            asked => {
                let flags = others.first().map(|flags| texts(flags, rows)).transpose()?;
                self.lists(asked == RegexOperation::Groups, &within, &patterns, flags.as_ref())?
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

impl Pieces {
    fn lists(
        &self,
        of_groups: bool,
        within: &StringViewArray,
        patterns: &StringViewArray,
        flags: Option<&StringViewArray>,
    ) -> Result<ArrayRef> {
        let mut making = OutputMemory::new(self.name, &self.room);
        let mut last = None;
        let mut pieces = ListBuilder::new(StringBuilder::new());
        let mut groups = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
        for row in 0..within.len() {
            let has_flags = flags.is_none_or(|flags| flags.is_valid(row));
            if !(within.is_valid(row) && patterns.is_valid(row) && has_flags) {
                pieces.append(false);
                groups.append(false);
                continue;
            }
            let pattern = compiled(&mut last, patterns.value(row), flags.map_or("", |flags| flags.value(row)))?;
            let text = within.value(row);
            if of_groups {
                found(pattern, text, &mut groups, &mut making)?;
            } else {
                between(&pattern.regex, text, &mut pieces, &mut making)?;
            }
            pattern.regex.outcome().map_err(to_datafusion)?;
        }
        Ok(if of_groups { Arc::new(groups.finish()) } else { Arc::new(pieces.finish()) })
    }

    /// `regexp_substr(text, pattern, from, which, flags, group)`, and `substring(text FROM pattern)`.
    fn place(
        &self,
        within: &StringViewArray,
        patterns: &StringViewArray,
        others: &[ColumnarValue],
        rows: usize,
    ) -> Result<ArrayRef> {
        let numbers = |at: usize, other: i64| Numbers::new(others.get(at), rows, other);
        let (from, which, group) = (numbers(0, 1)?, numbers(1, 1)?, numbers(3, 0)?);
        let flags = others.get(2).map(|flags| texts(flags, rows)).transpose()?;
        let mut making = OutputMemory::new(self.name, &self.room);
        let mut last = None;
        let mut out = StringBuilder::new();
        for row in 0..rows {
            let asked = (from.get(row), which.get(row), group.get(row));
            let has_flags = flags.as_ref().is_none_or(|flags| flags.is_valid(row));
            let (Some(from), Some(which), Some(group)) = asked else {
                out.append_null();
                continue;
            };
            if !(within.is_valid(row) && patterns.is_valid(row) && has_flags) {
                out.append_null();
                continue;
            }
            // The least number there is stays below 0.
            let [from, which] = [from, which].map(|number| usize::try_from(number.saturating_sub(1)));
            let (Ok(from), Ok(which), Ok(group)) = (from, which, usize::try_from(group)) else {
                return exec_err!("`{}` counts places from 1, and groups from 0", self.name);
            };
            let flags = flags.as_ref().map_or("", |flags| flags.value(row));
            let pattern = compiled(&mut last, patterns.value(row), flags)?;
            let group = if self.asked == RegexOperation::First {
                usize::from(pattern.regex.regex().captures_len() > 1)
            } else {
                group
            };
            let text = within.value(row);
            let begin = letter(text, from).filter(|_| pattern.regex.may_match(text));
            let piece = begin.and_then(|begin| nth(&pattern.regex, text, begin, which, group));
            pattern.regex.outcome().map_err(to_datafusion)?;
            making.add(piece.map_or(0, str::len))?;
            out.append_option(piece);
        }
        Ok(Arc::new(out.finish()))
    }
}

/// Checks whether the query goes on, after this many bytes were looked at.
fn goes_on(bytes: usize) -> Result<()> {
    if cancellation::goes_on(bytes + 64) { Ok(()) } else { exec_err!("the query has ended") }
}

/// What a group matches in the n-th match from a byte on.
fn nth<'t>(regex: &WatchedRegex, text: &'t str, from: usize, which: usize, group: usize) -> Option<&'t str> {
    let (mut left, mut piece) = (which, None);
    let mut places = if group > 0 { regex.group_places() } else { regex.match_places() };
    regex.each_from(text, from, &mut places, |found| {
        if left == 0 {
            piece = found.get(group).and_then(|(start, end)| text.get(start..end));
            return false;
        }
        left -= 1;
        true
    });
    piece
}

/// The parts between the matches of a pattern. An empty match at an end, or right after another match, divides nothing.
fn between(
    regex: &WatchedRegex,
    text: &str,
    out: &mut ListBuilder<StringBuilder>,
    making: &mut OutputMemory<'_>,
) -> Result<()> {
    let (mut from, mut outcome) = (0, Ok(()));
    if regex.may_match(text) {
        regex.each_from(text, 0, &mut regex.match_places(), |found| {
            let Some((start, end)) = found.get(0) else { return false };
            if start == end && (start == from || start == text.len()) {
                return true;
            }
            let piece = text.get(from..start).unwrap_or_default();
            outcome = goes_on(end - start).and_then(|()| making.add(piece.len() + ITEM));
            out.values().append_value(piece);
            from = end;
            outcome.is_ok()
        });
    }
    outcome?;
    let piece = text.get(from..).unwrap_or_default();
    making.add(piece.len() + ITEM)?;
    out.values().append_value(piece);
    out.append(true);
    Ok(())
}

/// What the groups of a pattern match, in one match or in all of them.
fn found(
    pattern: &CompiledRegex,
    text: &str,
    out: &mut ListBuilder<ListBuilder<StringBuilder>>,
    making: &mut OutputMemory<'_>,
) -> Result<()> {
    let regex = &pattern.regex;
    let groups = regex.regex().captures_len();
    let (first, mut outcome) = (usize::from(groups > 1), Ok(()));
    if regex.may_match(text) {
        regex.each_from(text, 0, &mut regex.group_places(), |found| {
            outcome = goes_on(found.get(0).map_or(0, |(start, end)| end - start)).and_then(|()| {
                for group in first..groups {
                    let piece = found.get(group).and_then(|(start, end)| text.get(start..end));
                    making.add(piece.map_or(0, str::len) + ITEM)?;
                    out.values().values().append_option(piece);
                }
                making.add(ITEM)?;
                out.values().append(true);
                Ok(())
            });
            outcome.is_ok() && pattern.is_global
        });
    }
    outcome?;
    out.append(true);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use datafusion::execution::memory_pool::UnboundedMemoryPool;
    use quiver_types::cancellation::Watch;
    use quiver_types::read_stats::Gate;
    use quiver_types::{Error, ErrorKind};

    use super::super::testing::{call, named, one, text, texts as column};
    use super::*;

    fn room() -> Room {
        Room::new(Arc::new(UnboundedMemoryPool::default()))
    }

    #[test]
    fn texts_are_split_as_in_postgresql() {
        let check = |text: &str, pattern: &str, expected: &[&str]| {
            let (room, mut out) = (room(), ListBuilder::new(StringBuilder::new()));
            let regex = CompiledRegex::new(pattern, "").unwrap().regex;
            between(&regex, text, &mut out, &mut OutputMemory::new("f", &room)).unwrap();
            let list = out.finish().value(0);
            let found: Vec<_> = list.as_string::<i32>().iter().flatten().collect();
            assert_eq!(found, expected, "{text} {pattern}");
        };
        check("a  b c", r"\s+", &["a", "b", "c"]);
        check("abc", "", &["a", "b", "c"]);
        check(",a,", ",", &["", "a", ""]);
        check("", ",", &[""]);
        check("a\nb", "a.", &["", "b"]);
    }

    #[test]
    fn groups_are_found_once_or_everywhere() {
        let check = |flags: &str, pattern: &str, expected: &[&[Option<&str>]]| {
            let (room, mut out) = (room(), ListBuilder::new(ListBuilder::new(StringBuilder::new())));
            let pattern = CompiledRegex::new(pattern, flags).unwrap();
            found(&pattern, "a1B2", &mut out, &mut OutputMemory::new("f", &room)).unwrap();
            let places = out.finish().value(0);
            let found = places.as_list::<i32>().iter().flatten();
            let found: Vec<Vec<Option<String>>> = found
                .map(|groups| groups.as_string::<i32>().iter().map(|group| group.map(str::to_owned)).collect())
                .collect();
            let expected: Vec<Vec<Option<String>>> =
                expected.iter().map(|groups| groups.iter().map(|group| group.map(str::to_owned)).collect()).collect();
            assert_eq!(found, expected);
        };
        check("", "[a-z]([0-9])", &[&[Some("1")]]);
        check("gi", "([a-z])([0-9])", &[&[Some("a"), Some("1")], &[Some("B"), Some("2")]]);
        check("g", "[0-9]", &[&[Some("1")], &[Some("2")]]);
        check("", "(x)?1", &[&[None]]);
        check("", "z", &[]);
        assert!(CompiledRegex::new("a", "y").is_err() && CompiledRegex::new("(", "").is_err());
    }

    #[derive(Debug)]
    struct Ended;

    impl Gate for Ended {
        fn take(&self, _: usize) -> quiver_types::Result<()> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}

        fn check(&self) -> quiver_types::Result<()> {
            Err(Error::new(ErrorKind::Cancelled, "it ended"))
        }
    }

    /// Thousands of states at each of a million letters.
    #[test]
    fn what_takes_long_ends_with_its_query() {
        let (room, text) = (room(), "ab".repeat(1 << 19));
        let pattern = CompiledRegex::new("((a|b){0,50}.){0,50}c", "g").unwrap();
        // A machine may stand still in one of the tries.
        let ends = (0..4).any(|_| {
            let began = Instant::now();
            Watch::new(Arc::new(Ended)).over(|| {
                let mut out = ListBuilder::new(StringBuilder::new());
                let _ = between(&pattern.regex, &text, &mut out, &mut OutputMemory::new("f", &room));
                let mut out = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
                let _ = found(&pattern, &text, &mut out, &mut OutputMemory::new("f", &room));
            });
            began.elapsed() < Duration::from_secs(10)
        });
        assert!(ends, "it goes on");
    }

    #[test]
    fn places_are_counted_in_letters() {
        let room = room();
        let substr = named(functions(&room), "regexp_substr");
        let number = |number: i64| ColumnarValue::Scalar(datafusion::common::ScalarValue::from(number));
        let (within, pattern) = ("ä1b22c333", "([a-zä])([0-9]+)");
        for (others, expected) in [
            (vec![], Some("ä1")),
            (vec![number(2)], Some("b22")),
            (vec![number(1), number(3)], Some("c333")),
            (vec![number(1), number(4)], None),
            (vec![number(1), number(3), text(""), number(2)], Some("333")),
            (vec![number(1), number(1), text("i"), number(1)], Some("ä")),
            (vec![number(10)], None),
            (vec![number(11)], None),
            (vec![number(i64::MAX)], None),
        ] {
            let args = [vec![text(within), text(pattern)], others].concat();
            assert_eq!(one(&substr, &args).unwrap().as_deref(), expected, "{args:?}");
        }
        for others in [
            vec![number(0)],
            vec![number(1), number(0)],
            vec![number(i64::MIN)],
            vec![number(1), number(i64::MIN)],
            vec![number(1), number(1), text(""), number(-1)],
        ] {
            let args = [vec![text(within), text(pattern)], others].concat();
            let refused = one(&substr, &args).unwrap_err().to_string();
            assert!(refused.contains("counts places from 1, and groups from 0"), "{refused}");
        }
        // What lies before the first letter is seen.
        assert_eq!(one(&substr, &[text("aab"), text("^a|b"), number(2)]).unwrap().as_deref(), Some("b"));
        assert_eq!(one(&substr, &[text("aab"), text("(?<=a)a"), number(2)]).unwrap().as_deref(), Some("a"));
        // An empty place is one, too, at the end as well.
        assert_eq!(one(&substr, &[text("ab"), text("x*"), number(3)]).unwrap().as_deref(), Some(""));
    }

    #[test]
    fn rows_have_patterns_and_flags_of_their_own() {
        let room = room();
        let within = column(&[Some("a1A2"), Some("a1A2"), None, Some("a1A2"), Some("a1A2")]);
        let patterns = column(&[Some("a"), Some("a"), Some("a"), None, Some("[0-9]")]);
        let flags = column(&[Some("i"), Some(""), Some(""), Some(""), None]);
        let split = named(functions(&room), "regexp_split_to_array");
        let found = call(&split, &[within.clone(), patterns.clone(), flags.clone()], 5).unwrap();
        let pieces = |row: usize| {
            let list = found.as_list::<i32>();
            let items = list.is_valid(row).then(|| list.value(row));
            items.map(|items| items.as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(pieces(0).unwrap(), ["", "1", "2"]);
        assert_eq!(pieces(1).unwrap(), ["", "1A2"]);
        assert_eq!((pieces(2), pieces(3), pieces(4)), (None, None, None));
        let groups = call(&named(functions(&room), "regexp_groups"), &[within, patterns, flags], 5).unwrap();
        let lists = groups.as_list::<i32>();
        assert_eq!((0..5).map(|row| lists.is_valid(row)).collect::<Vec<_>>(), [true, true, false, false, false]);
        assert_eq!(lists.value(0).len(), 1, "without `g` there is one place");
        for (name, args, said) in [
            ("regexp_groups", vec![text("a"), text("a"), text("gy")], "`y` is no flag of a regular expression"),
            ("regexp_split_to_array", vec![text("a"), text("(")], "`(` is no regular expression"),
            ("regexp_groups", vec![text("a")], "not 1 arguments"),
            ("regexp_split_to_array", vec![text("a"); 4], "not 4 arguments"),
        ] {
            let refused = call(&named(functions(&room), name), &args, 1).unwrap_err().to_string();
            assert!(refused.contains(said), "{name}: {refused}");
        }
        let wrong = [DataType::Utf8, DataType::Utf8, DataType::Utf8];
        let refused = named(functions(&room), "regexp_substr").coerce_types(&wrong).unwrap_err().to_string();
        assert!(refused.contains("argument 3 of `regexp_substr` is no `Utf8`"), "{refused}");
    }
}
