//! Column values as JSON, in PostgreSQL's form: numbers keep their digits, times are ISO 8601, lists and maps become
//! arrays and objects, and a value that already is JSON stays as it was written.

use std::borrow::Cow;
use std::fmt::{Display, LowerExp, Write as _};
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray, BooleanArray, Float32Array, Float64Array, ListArray, MapArray, StringViewArray,
    StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Float64Type, IntervalUnit};
use datafusion::error::Result;
use quiver_types::text::push_json_text;
use quiver_types::write_hex;

use super::decimals::is_open_numeric;
use super::intervals::spread_out;
use super::json::{field as json_field, is_json, is_json_list, parts, unquoted, whole};
use super::row_builder::OutputMemory;
use super::text_output::texts;
use super::text_views::text_views;

/// Levels of a document that is put into another form: each is a call within a call.
const DEPTH_MAX: usize = 100;
/// Bytes that a plain value, and what parts it from others, takes at most.
const ROOM: usize = 32;
/// Bytes of a member that is sorted among others.
const MEMBER: usize = 48;
/// Longest exponent that is written out.
const EXPONENT_MAX: u64 = 400;

/// The values of a column.
pub(super) enum Values {
    /// NULL in each row.
    Null,
    Bool(BooleanArray),
    Single(Float32Array),
    Double(Float64Array),
    /// Numbers, as they are printed.
    Plain(StringViewArray),
    Text(StringViewArray),
    Json(StringViewArray),
    List(ListArray, Box<Values>),
    /// With the names of its members in quotes.
    Object(StructArray, Vec<(String, Values)>),
    Map(MapArray, Box<Values>, Box<Values>),
}

impl Values {
    /// Looks at a column.
    ///
    /// # Errors
    /// Its values cannot be shown.
    pub(super) fn of(array: &ArrayRef, field: &Field) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Dictionary(_, values) => return Self::of(&cast(array, values)?, field),
            DataType::Boolean => Self::Bool(array.as_boolean().clone()),
            DataType::Float16 => return Self::of(&cast(array, &DataType::Float32)?, field),
            DataType::Float32 => Self::Single(array.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Self::Double(array.as_primitive::<Float64Type>().clone()),
            kind if is_open_numeric(kind) => Self::Plain(text_views(&texts(array)?)?),
            kind if kind.is_numeric() => Self::Plain(text_views(array)?),
            kind if kind.is_string() && is_json(field) => Self::Json(text_views(array)?),
            DataType::Timestamp(_, zone) => {
                let has_zone = zone.is_some();
                let shown = text_views(&texts(array)?)?;
                Self::Text(shown.iter().map(|text| text.map(|text| iso(text, has_zone))).collect())
            }
            DataType::Duration(_) => Self::Text(text_views(&texts(&spread_out(array)?)?)?),
            DataType::Interval(_) => {
                let intervals = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
                Self::Text(text_views(&texts(&intervals)?)?)
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                let bytes = cast(array, &DataType::BinaryView)?;
                Self::Text(bytes.as_binary_view().iter().map(|bytes| bytes.map(literal_of)).collect())
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let lists = cast(array, &DataType::List(Arc::clone(item)))?;
                let lists = lists.as_list::<i32>();
                let items = if is_json_list(field) {
                    Self::of(lists.values(), &json_field(item.name(), item.data_type().clone()))?
                } else {
                    Self::of(lists.values(), item)?
                };
                Self::List(lists.clone(), Box::new(items))
            }
            DataType::Struct(fields) => {
                let object = array.as_struct();
                let members = fields.iter().zip(object.columns());
                let member = |(field, column): (&Arc<Field>, &ArrayRef)| -> Result<(String, Self)> {
                    Ok((quoted(field.name()), Self::of(column, field)?))
                };
                Self::Object(object.clone(), members.map(member).collect::<Result<_>>()?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let (keys, values) = (Self::Text(text_views(map.keys())?), Self::of(map.values(), field)?);
                Self::Map(map.clone(), Box::new(keys), Box::new(values))
            }
            _ => Self::Text(text_views(array)?),
        })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(values) => values.is_null(row),
            Self::Single(values) => values.is_null(row),
            Self::Double(values) => values.is_null(row),
            Self::Plain(values) | Self::Text(values) | Self::Json(values) => values.is_null(row),
            Self::List(values, _) => values.is_null(row),
            Self::Object(values, _) => values.is_null(row),
            Self::Map(values, ..) => values.is_null(row),
        }
    }

    /// Writes a value.
    ///
    /// # Errors
    /// It becomes too long.
    pub(super) fn push(&self, row: usize, out: &mut String, making: &mut OutputMemory<'_>) -> Result<()> {
        making.add(ROOM)?;
        if self.is_null(row) {
            out.push_str("null");
            return Ok(());
        }
        match self {
            Self::Null => {}
            Self::Bool(values) => out.push_str(if values.value(row) { "true" } else { "false" }),
            Self::Single(values) => push_float(values.value(row), out)?,
            Self::Double(values) => push_float(values.value(row), out)?,
            Self::Plain(values) => out.push_str(values.value(row)),
            Self::Text(values) => push_text(values.value(row), out, making)?,
            Self::Json(values) => {
                // An invalid document would break the one around it, so it is written as `null`.
                let piece = whole(values.value(row)).unwrap_or("null");
                making.add(piece.len())?;
                out.push_str(piece);
            }
            Self::List(lists, items) => {
                let ends = lists.value_offsets();
                out.push('[');
                for (at, item) in (ends[row]..ends[row + 1]).enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    items.push(item as usize, out, making)?;
                }
                out.push(']');
            }
            Self::Object(_, members) => {
                out.push('{');
                for (at, (name, values)) in members.iter().enumerate() {
                    making.add(name.len())?;
                    let comma = if at > 0 { "," } else { "" };
                    write!(out, "{comma}{name}:")?;
                    values.push(row, out, making)?;
                }
                out.push('}');
            }
            Self::Map(map, keys, values) => {
                let ends = map.value_offsets();
                out.push('{');
                for (at, entry) in (ends[row]..ends[row + 1]).enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    keys.push(entry as usize, out, making)?;
                    out.push(':');
                    values.push(entry as usize, out, making)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

/// A time as ISO 8601 has it.
fn iso(text: &str, has_zone: bool) -> String {
    let mut out = text.replacen(' ', "T", 1);
    // `+02` is `+02:00`.
    if has_zone && out.len() > 3 && matches!(out.as_bytes()[out.len() - 3], b'+' | b'-') {
        out.push_str(":00");
    }
    out
}

/// Bytes as a literal of their type has them.
fn literal_of(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("\\x");
    write_hex(bytes, &mut out);
    out
}

/// A text in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_json_text(text, &mut out);
    out
}

/// Writes a text in quotes.
///
/// # Errors
/// It becomes too long.
pub(super) fn push_text(text: &str, out: &mut String, making: &mut OutputMemory<'_>) -> Result<()> {
    let is_escaped = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    making.add(text.len() + 5 * text.as_bytes().iter().filter(|byte| is_escaped(byte)).count())?;
    push_json_text(text, out);
    Ok(())
}

/// Writes the shortest digits that give a number back; those that JSON does not have are texts.
fn push_float<F: Display + LowerExp + Copy + Into<f64>>(value: F, out: &mut String) -> Result<()> {
    let size: f64 = value.into();
    if size.is_nan() {
        out.push_str("\"NaN\"");
    } else if size.is_infinite() {
        out.push_str(if size > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    } else if size != 0.0 && !(1e-4..1e15).contains(&size.abs()) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        write!(out, "{digits}e{sign}{exponent:0>2}")?;
    } else {
        write!(out, "{value}")?;
    }
    Ok(())
}

/// How numbers of a document are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// With the digits that they have.
    AsTheyAre,
    /// All of one size alike.
    BySize,
}

/// Writes a document as `jsonb` has it: members sorted, the last of one name alone, a blank behind each colon and comma,
/// numbers without exponents; false: it is none, or nests too deeply.
///
/// # Errors
/// It becomes too long.
pub(super) fn push_normal(piece: &str, depth: usize, out: &mut String, making: &mut OutputMemory<'_>) -> Result<bool> {
    push_with(Numbers::AsTheyAre, piece, depth, out, making)
}

/// The same with numbers as told.
///
/// # Errors
/// It becomes too long.
pub(super) fn push_with(
    numbers: Numbers,
    piece: &str,
    depth: usize,
    out: &mut String,
    making: &mut OutputMemory<'_>,
) -> Result<bool> {
    if depth > DEPTH_MAX {
        return Ok(false);
    }
    making.add(ROOM)?;
    match piece.as_bytes().first() {
        Some(b'"') => match unquoted(piece) {
            Some(text) => push_text(&text, out, making)?,
            None => return Ok(false),
        },
        Some(b'[') => {
            let mut items = Vec::new();
            // Counted one by one: there may be one for every two bytes of a document.
            let failed = parts(piece, |_, item| {
                let counted = making.add(MEMBER);
                items.push(item);
                counted.err()
            });
            failed.map_or(Ok(()), Err)?;
            out.push('[');
            for (at, item) in items.into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                if !push_with(numbers, item, depth + 1, out, making)? {
                    return Ok(false);
                }
            }
            out.push(']');
        }
        Some(b'{') => {
            let mut members: Vec<(Cow<'_, str>, &str)> = Vec::new();
            let failed = parts(piece, |name, value| {
                let counted = making.add(MEMBER);
                members.extend(name.and_then(unquoted).map(|name| (name, value)));
                counted.err()
            });
            failed.map_or(Ok(()), Err)?;
            // Of one name the last comes first, and stays.
            members.reverse();
            members.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
            members.dedup_by(|later, kept| later.0 == kept.0);
            out.push('{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                push_text(&name, out, making)?;
                out.push_str(": ");
                if !push_with(numbers, value, depth + 1, out, making)? {
                    return Ok(false);
                }
            }
            out.push('}');
        }
        _ => {
            let written = match numbers {
                Numbers::AsTheyAre => plain(piece),
                Numbers::BySize => sized(piece),
            };
            making.add(written.len())?;
            out.push_str(&written);
        }
    }
    Ok(true)
}

/// A number without its exponent, and zero without a sign; words as they are.
fn plain(piece: &str) -> Cow<'_, str> {
    let (sign, digits) = piece.strip_prefix('-').map_or(("", piece), |digits| ("-", digits));
    if !digits.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Cow::Borrowed(piece);
    }
    let (digits, exponent) = digits.split_once(['e', 'E']).map_or((digits, Some(0)), |(digits, exponent)| {
        (digits, exponent.parse::<i64>().ok().filter(|exponent| exponent.unsigned_abs() <= EXPONENT_MAX))
    });
    // Longer ones stay as they are written.
    let Some(exponent) = exponent else { return Cow::Borrowed(piece) };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // Where the point is among all digits.
    let (all, point) = (format!("{whole}{fraction}"), whole.len() as i64 + exponent);
    let (whole, fraction) = match usize::try_from(point) {
        // A width of `format!` has 16 bits, and a number may have more digits.
        Ok(point) if point >= all.len() => (format!("{all}{}", "0".repeat(point - all.len())), String::new()),
        Ok(point) => (all[..point].to_owned(), all[point..].to_owned()),
        Err(_) => (String::new(), format!("{}{all}", "0".repeat(point.unsigned_abs() as usize))),
    };
    let whole = whole.trim_start_matches('0');
    let is_zero = whole.is_empty() && fraction.bytes().all(|digit| digit == b'0');
    let (sign, whole) = (if is_zero { "" } else { sign }, if whole.is_empty() { "0" } else { whole });
    Cow::Owned(if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") })
}

/// A number as its digits from the first to the last that is none of zero, and where the point is among these: however it is
/// written, it is the same text. Words as they are, and exponents that are longer than any number of ours.
fn sized(piece: &str) -> Cow<'_, str> {
    let (sign, number) = piece.strip_prefix('-').map_or(("", piece), |digits| ("-", digits));
    if !number.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Cow::Borrowed(piece);
    }
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let led = all.trim_start_matches('0');
    let kept = led.trim_end_matches('0');
    if kept.is_empty() {
        return Cow::Borrowed("0");
    }
    let point = (whole.len() + led.len()) as i128 - all.len() as i128;
    let Some(point) = exponent.parse::<i128>().ok().and_then(|exponent| exponent.checked_add(point)) else {
        return Cow::Borrowed(piece);
    };
    Cow::Owned(format!("{sign}{kept}e{point}"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, Date32Array, Decimal128Array, DictionaryArray, DurationSecondArray, Int64Array, NullArray,
        TimestampNanosecondArray, UInt64Array,
    };
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Int32Type, Int64Type};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};

    use super::super::testing::draws;
    use super::*;
    use crate::functions::result_memory::Room;

    fn room() -> Room {
        Room::new(Arc::new(UnboundedMemoryPool::default()))
    }

    fn check(array: ArrayRef, expected: &str) {
        let (room, mut out) = (room(), String::new());
        let mut making = OutputMemory::new("f", &room);
        let values = Values::of(&array, &Field::new("a", array.data_type().clone(), true)).unwrap();
        for row in 0..array.len() {
            values.push(row, &mut out, &mut making).unwrap();
            out.push(' ');
        }
        assert_eq!(out.trim_end(), expected);
    }

    #[test]
    fn values_are_written_as_in_postgresql() {
        check(Arc::new(Int64Array::from(vec![Some(1), None])), "1 null");
        let floats = vec![1.0, 0.5, 1e20, -2.5e-7, f64::NAN, f64::NEG_INFINITY];
        check(Arc::new(Float64Array::from(floats)), "1 0.5 1e+20 -2.5e-07 \"NaN\" \"-Infinity\"");
        check(Arc::new(StringViewArray::from(vec!["a\"b\n"])), r#""a\"b\n""#);
        let times = TimestampNanosecondArray::from(vec![1_500_000_000]);
        check(Arc::new(times.clone()), "\"1970-01-01T00:00:01.5\"");
        check(Arc::new(times.with_timezone("+02:00")), "\"1970-01-01T02:00:01.5+02:00\"");
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        check(Arc::new(lists), "[1,null] null []");
    }

    /// Breaks if the parts of a document are collected before they are counted.
    #[test]
    fn parts_of_documents_count_one_by_one() {
        for document in
            [format!("[{}1]", "1,".repeat(2_000_000)), format!("{{{}\"b\":1}}", "\"a\":1,".repeat(2_000_000))]
        {
            let room = Room::new(Arc::new(GreedyMemoryPool::new(4 << 20)));
            let refused =
                push_normal(&document, 0, &mut String::new(), &mut OutputMemory::new("f", &room)).unwrap_err();
            assert!(refused.to_string().contains("values of functions"), "{refused}");
        }
    }

    #[test]
    fn documents_have_a_normal_form() {
        let check = |piece: &str, expected: Option<&str>| {
            let (room, mut out) = (room(), String::new());
            let is_one = push_normal(piece, 0, &mut out, &mut OutputMemory::new("f", &room)).unwrap();
            assert_eq!(is_one.then_some(out.as_str()), expected, "{piece}");
        };
        check(
            r#"{"bb":1,"a":[1,{"y" :null}],"c":"\u0041","bb":1.50}"#,
            Some(r#"{"a": [1, {"y": null}], "c": "A", "bb": 1.50}"#),
        );
        check("[]", Some("[]"));
        check("{}", Some("{}"));
        check("[1E2,-0,-0.0,1.5e-3,12.50e1,1e0,-7,true,0.10]", Some("[100, 0, 0.0, 0.0015, 125.0, 1, -7, true, 0.10]"));
        // More digits than a width of `format!` may be.
        let long = "7".repeat(70_000);
        check(&long, Some(&long));
        check(&format!("-{long}e2"), Some(&format!("-{long}00")));
        check(&format!("0.{long}"), Some(&format!("0.{long}")));
        for beyond in ["1e999999", "1e-401", "1e-9223372036854775808", "1e9223372036854775808"] {
            check(beyond, Some(beyond));
        }
        check(&format!("{}{}", "[".repeat(200), "]".repeat(200)), None);
    }

    #[test]
    fn numbers_of_one_size_are_alike() {
        let check = |left: &str, right: &str, expected: bool| {
            let (left, right) = (sized(left), sized(right));
            assert_eq!(left == right, expected, "{left} {right}");
        };
        check("1E2", "100.00", true);
        check("-0", "0.0", true);
        check("1.50", "15e-1", true);
        check("1.5", "-1.5", false);
        check("0.1", "0.01", false);
        check("0e5", "0", true);
        check("0.10", "1e-01", true);
        check("10", "1", false);
        // Also those whose digits are not written out.
        check("1e401", "10E+400", true);
        check("-0.001e405", "-1e402", true);
        check("1e401", "1e402", false);
        check("1e-9223372036854775808", "10e-9223372036854775809", true);
        check("0e99999999999999999999999999999999999999999", "0", true);
        check("true", "true", true);
    }

    #[test]
    fn values_of_all_types_are_written() {
        check(Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])), "true null false");
        check(Arc::new(NullArray::new(2)), "null null");
        check(Arc::new(Float32Array::from(vec![0.1, 1e10, f32::INFINITY])), "0.1 10000000000 \"Infinity\"");
        check(
            Arc::new(Float64Array::from(vec![-0.0, 1e15, 999_999_999_999_999.0, 0.0001])),
            "-0 1e+15 999999999999999 0.0001",
        );
        let decimals = Decimal128Array::from(vec![Some(150), None]).with_precision_and_scale(10, 2).unwrap();
        check(Arc::new(decimals), "1.50 null");
        check(Arc::new(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
        check(Arc::new(BinaryArray::from(vec![b"\x00\xffA".as_slice()])), "\"\\\\x00ff41\"");
        check(Arc::new(Date32Array::from(vec![0, 19_782])), "\"1970-01-01\" \"2024-02-29\"");
        let lengths = DurationSecondArray::from(vec![Some(90_000), None]);
        check(Arc::new(lengths), "\"1 day 01:00:00\" null");
        let coded: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
        check(Arc::new(coded), "\"a\" null \"a\"");
        // Control characters are escaped by their numbers; letters beyond ASCII are not escaped.
        check(Arc::new(StringViewArray::from(vec!["\u{1}\u{7f}ä\u{1f980}"])), "\"\\u0001\u{7f}ä\u{1f980}\"");
    }

    #[test]
    fn records_lists_and_maps_are_written() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        let b: ArrayRef = Arc::new(StringViewArray::from(vec![Some("x"), Some("y"), None]));
        let fields = vec![Field::new("a\"", DataType::Int64, true), Field::new("b", DataType::Utf8View, true)];
        let nulls = NullBuffer::from(vec![true, true, false]);
        let records = StructArray::new(fields.into(), vec![a, b], Some(nulls));
        let expected = [r#"{"a\"":1,"b":"x"}"#, r#"{"a\"":null,"b":"y"}"#, "null"];
        check(Arc::new(records.clone()), &expected.join(" "));
        // A part of a column is that part.
        check(Arc::new(records.slice(1, 1)), expected[1]);
        let mut maps = crate::tables::TextMaps::default();
        maps.push("k", "1");
        maps.push("l", "");
        maps.end();
        maps.end();
        maps.push("m\n", "\"");
        maps.end();
        let maps = maps.finish().unwrap();
        let found = [r#"{"k":"1","l":""}"#, "{}", r#"{"m\n":"\""}"#];
        check(Arc::new(maps.clone()), &found.join(" "));
        check(Arc::new(maps.slice(2, 1)), found[2]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(2), None])]);
        check(Arc::new(lists.slice(1, 1)), "[2,null]");
    }

    /// Whatever exponent and zeros a number has, in the normal form it has none and is of the same size.
    #[test]
    fn numbers_keep_their_size() {
        let mut draw = draws(51);
        for _ in 0..500 {
            let sign = ["", "-"][draw(2)];
            let (whole, fraction) = (draw(1_000), draw(1_000));
            let power = draw(13) as i32 - 6;
            let number = format!("{sign}{whole}.{fraction:03}e{power}");
            let form = plain(&number).into_owned();
            assert!(!form.contains('e') && !form.starts_with('.') && !form.ends_with('.'), "{number}: {form}");
            assert_eq!(form.parse::<f64>().unwrap(), number.parse::<f64>().unwrap(), "{number}");
            assert_eq!(sized(&form), sized(&number), "{number}");
            let is_zero = whole == 0 && fraction == 0;
            assert_eq!(form.starts_with('-'), sign == "-" && !is_zero, "{number}: {form}");
            // One more of the last digit is another size.
            let other = format!("{sign}{whole}.{fraction:03}1e{power}");
            assert_ne!(sized(&other), sized(&number), "{number}");
        }
    }
}
