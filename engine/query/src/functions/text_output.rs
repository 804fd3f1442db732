//! Casts to text in PostgreSQL's form: times, intervals, floating-point numbers, lists, rows and maps (times as in
//! DuckDB, except for names of months); arrow's form differs. The rule [`crate::relational::text_casts`] puts these
//! functions into casts.

use std::fmt::{self, Display, LowerExp, Write as _};
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array as _, ArrayRef, AsArray, ListArray, PrimitiveArray, StringViewArray, StringViewBuilder, StructArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use chrono::{DateTime, Offset as _, TimeZone as _};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::decimals::{is_open_numeric, needed_digits};
use super::{intervals, maps};
use crate::error::from_datafusion;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOutputFunction {
    signature: Signature,
}

/// Gives the function, of one argument that [`is_printed`].
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(TextOutputFunction { signature: Signature::any(1, Volatility::Immutable) })
}

/// Whether values of a type have a form of their own.
pub(crate) fn is_printed(kind: &DataType) -> bool {
    match kind {
        DataType::Timestamp(..)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Interval(IntervalUnit::MonthDayNano)
        | DataType::Float32
        | DataType::Float64 => true,
        DataType::List(item) => is_item(item.data_type()),
        DataType::Struct(parts) => {
            let mut kinds = parts.iter().map(|part| part.data_type());
            kinds.all(|kind| is_item(kind) || *kind == DataType::Null)
        }
        kind => maps::are_texts(kind) || is_open_numeric(kind),
    }
}

/// Whether values of a type are shown within lists and rows.
fn is_item(kind: &DataType) -> bool {
    let is_plain = kind.is_numeric() || kind.is_string();
    is_plain || matches!(kind, DataType::Boolean | DataType::Date32) || is_printed(kind)
}

impl ScalarUDFImpl for TextOutputFunction {
    fn name(&self) -> &'static str {
        "printed"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [value] = args.arg_fields else { return internal_err!("one value is printed") };
        Ok(Arc::new(Field::new(self.name(), DataType::Utf8View, value.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one value is printed") };
        let values = value.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(texts(&values)?))
    }
}

/// Texts of intervals, and of what lies between two times, as a cast gives them.
///
/// # Errors
/// Internal: they are of another type.
pub fn interval_texts(values: &ArrayRef) -> quiver_types::Result<ArrayRef> {
    let intervals = match values.data_type() {
        DataType::Duration(_) => intervals::spread_out(values),
        _ => cast(values, &DataType::Interval(IntervalUnit::MonthDayNano)).map_err(Into::into),
    };
    intervals.and_then(|intervals| texts(&intervals)).map_err(from_datafusion)
}

/// Texts of values that have a form of their own.
pub(super) fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    let mut out = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    match values.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            for interval in values.as_primitive::<IntervalMonthDayNanoType>() {
                text.clear();
                let Some(interval) = interval else {
                    out.append_null();
                    continue;
                };
                push_interval(interval, &mut text)?;
                out.append_value(&text);
            }
        }
        DataType::Timestamp(unit, zone) => {
            let per_second = match unit {
                TimeUnit::Second => 1,
                TimeUnit::Millisecond => 1_000,
                TimeUnit::Microsecond => 1_000_000,
                TimeUnit::Nanosecond => 1_000_000_000,
            };
            let zone = zone.as_deref().map(str::parse::<Tz>).transpose()?;
            let numbers = cast(values, &DataType::Int64)?;
            for number in numbers.as_primitive::<Int64Type>() {
                text.clear();
                let Some(number) = number else {
                    out.append_null();
                    continue;
                };
                let fraction = number.rem_euclid(per_second) * (1_000_000_000 / per_second);
                let utc = DateTime::from_timestamp(number.div_euclid(per_second), fraction as u32);
                let Some(utc) = utc else { return exec_err!("a time is too far away to be shown") };
                push_time(utc, zone, &mut text)?;
                out.append_value(&text);
            }
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let clocks = cast(&cast(values, &DataType::Time64(TimeUnit::Nanosecond))?, &DataType::Int64)?;
            for ns in clocks.as_primitive::<Int64Type>() {
                text.clear();
                let Some(ns) = ns else {
                    out.append_null();
                    continue;
                };
                push_clock(ns.unsigned_abs(), &mut text)?;
                out.append_value(&text);
            }
        }
        DataType::Float32 => return numbers(values.as_primitive::<Float32Type>()),
        DataType::Float64 => return numbers(values.as_primitive::<Float64Type>()),
        DataType::List(_) => return lists(values.as_list()),
        DataType::Struct(_) => return rows(values.as_struct()),
        DataType::Map(..) => return maps::texts(values.as_map()),
        kind if is_open_numeric(kind) => return numerics(values),
        other => return internal_err!("`{other}` has no form of its own"),
    }
    Ok(Arc::new(out.finish()))
}

fn numbers<T>(values: &PrimitiveArray<T>) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Display + LowerExp + Into<f64>,
{
    let mut out = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for value in values {
        text.clear();
        let Some(value) = value else {
            out.append_null();
            continue;
        };
        push_number(value, &mut text)?;
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// `numeric` without digits.
fn numerics(values: &ArrayRef) -> Result<ArrayRef> {
    let digits = cast(values, &DataType::Utf8View)?;
    let Some(digits) = digits.as_string_view_opt() else { return internal_err!("texts are none") };
    Ok(Arc::new(digits.iter().map(|digits| digits.map(needed_digits)).collect::<StringViewArray>()))
}

/// The shortest digits that give the number back; very large and small ones with an exponent.
fn push_number<F: Display + LowerExp + Copy + Into<f64>>(value: F, out: &mut String) -> fmt::Result {
    let number: f64 = value.into();
    let size = number.abs();
    if size.is_infinite() {
        out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
        Ok(())
    } else if size > 0.0 && !(1e-4..1e15).contains(&size) {
        // The exponent has a sign, and two digits at least.
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        write!(out, "{digits}e{sign}{exponent:0>2}")
    } else {
        write!(out, "{value}")
    }
}

/// Lists as `{1,"a b",NULL}`, those in lists within.
fn lists(values: &ListArray) -> Result<ArrayRef> {
    let is_nested = matches!(values.values().data_type(), DataType::List(_));
    let items = item_texts(values.values())?;
    let Some(items) = items.as_string_view_opt() else { return internal_err!("texts are none") };
    let mut out = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for (row, ends) in values.value_offsets().windows(2).enumerate() {
        if values.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        text.push('{');
        for at in ends[0] as usize..ends[1] as usize {
            if at > ends[0] as usize {
                text.push(',');
            }
            match items.is_valid(at).then(|| items.value(at)) {
                None => text.push_str("NULL"),
                Some(item) if is_nested || !is_quoted(item) => text.push_str(item),
                Some(item) => {
                    text.push('"');
                    for letter in item.chars() {
                        if matches!(letter, '"' | '\\') {
                            text.push('\\');
                        }
                        text.push(letter);
                    }
                    text.push('"');
                }
            }
        }
        text.push('}');
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// Whether a text would be read as something else without quotes.
fn is_quoted(item: &str) -> bool {
    let is_special = |letter: char| matches!(letter, '{' | '}' | ',' | '"' | '\\') || letter.is_ascii_whitespace();
    item.is_empty() || item.eq_ignore_ascii_case("null") || item.contains(is_special)
}

/// Rows as `(1,"a b",)`, in which nothing stands for NULL.
fn rows(values: &StructArray) -> Result<ArrayRef> {
    let parts = values.columns().iter().map(item_texts).collect::<Result<Vec<_>>>()?;
    let Some(parts) = parts.iter().map(|part| part.as_string_view_opt()).collect::<Option<Vec<_>>>() else {
        return internal_err!("texts are none");
    };
    let mut out = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        text.push('(');
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if part.is_valid(row) {
                push_part(part.value(row), &mut text);
            }
        }
        text.push(')');
        out.append_value(&text);
    }
    Ok(Arc::new(out.finish()))
}

/// A part of a row, in quotes where it would be read as something else.
fn push_part(part: &str, out: &mut String) {
    let is_special =
        |letter: char| matches!(letter, '(' | ')' | ',' | '"' | '\\' | '\x0b') || letter.is_ascii_whitespace();
    if !part.is_empty() && !part.contains(is_special) {
        out.push_str(part);
        return;
    }
    out.push('"');
    for letter in part.chars() {
        if matches!(letter, '"' | '\\') {
            out.push(letter);
        }
        out.push(letter);
    }
    out.push('"');
}

/// Texts of the items of lists, or of the parts of rows.
fn item_texts(items: &ArrayRef) -> Result<ArrayRef> {
    match items.data_type() {
        kind if is_printed(kind) => texts(items),
        DataType::Null => Ok(new_null_array(&DataType::Utf8View, items.len())),
        DataType::Boolean => {
            let texts = items.as_boolean().iter().map(|item| item.map(|item| if item { "t" } else { "f" }));
            Ok(Arc::new(texts.collect::<StringViewArray>()))
        }
        _ => Ok(cast(items, &DataType::Utf8View)?),
    }
}

/// What is behind a second, without zeros at the end.
fn push_fraction(ns: u64, out: &mut String) -> fmt::Result {
    if ns > 0 {
        write!(out, ".{ns:09}")?;
        out.truncate(out.trim_end_matches('0').len());
    }
    Ok(())
}

fn push_time(utc: DateTime<chrono::Utc>, zone: Option<Tz>, out: &mut String) -> fmt::Result {
    let offset = zone.map(|zone| zone.offset_from_utc_datetime(&utc.naive_utc()).fix());
    let shown = match offset {
        Some(offset) => utc.with_timezone(&offset).naive_local(),
        None => utc.naive_utc(),
    };
    write!(out, "{}", shown.format("%Y-%m-%d %H:%M:%S"))?;
    push_fraction(u64::from(utc.timestamp_subsec_nanos()), out)?;
    if let Some(offset) = offset {
        let seconds = offset.local_minus_utc();
        let sign = if seconds < 0 { '-' } else { '+' };
        write!(out, "{sign}{:02}", seconds.abs() / 3_600)?;
        if seconds.abs() % 3_600 > 0 {
            write!(out, ":{:02}", seconds.abs() / 60 % 60)?;
        }
    }
    Ok(())
}

fn push_interval(interval: IntervalMonthDayNano, out: &mut String) -> fmt::Result {
    let parts = [
        (interval.months / 12, "year", "years"),
        (interval.months % 12, "mon", "mons"),
        (interval.days, "day", "days"),
    ];
    // Behind a part below zero others have their sign.
    let mut is_below = false;
    for (count, one, more) in parts.into_iter().filter(|(count, ..)| *count != 0) {
        let space = if out.is_empty() { "" } else { " " };
        let sign = if is_below && count > 0 { "+" } else { "" };
        write!(out, "{space}{sign}{count} {}", if count == 1 { one } else { more })?;
        is_below = count < 0;
    }
    let ns = interval.nanoseconds.unsigned_abs();
    if ns > 0 || out.is_empty() {
        let space = if out.is_empty() { "" } else { " " };
        let sign = match (interval.nanoseconds < 0, is_below) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        write!(out, "{space}{sign}")?;
        push_clock(ns, out)?;
    }
    Ok(())
}

/// Hours, minutes and seconds, with as much of a fraction as there is.
fn push_clock(ns: u64, out: &mut String) -> fmt::Result {
    let seconds = ns / SECOND_NS;
    write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)?;
    push_fraction(ns % SECOND_NS, out)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanBuilder, DurationMillisecondArray, Float32Array, Float64Array, Int64Builder, IntervalMonthDayNanoArray,
        ListBuilder, StringBuilder, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampMillisecondArray,
        TimestampNanosecondArray, TimestampSecondArray,
    };

    use super::super::testing::draws;
    use super::*;

    fn check(values: impl arrow::array::Array + 'static, expected: &[Option<&str>]) {
        let values: ArrayRef = Arc::new(values);
        let texts = texts(&values).unwrap();
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn times_and_intervals_look_as_in_postgresql() {
        check(
            TimestampNanosecondArray::from(vec![Some(1_704_067_200_250_000_000), None, Some(-1)]),
            &[Some("2024-01-01 00:00:00.25"), None, Some("1969-12-31 23:59:59.999999999")],
        );
        let moment = || TimestampMillisecondArray::from(vec![1_704_067_200_000]);
        check(moment().with_timezone("UTC"), &[Some("2024-01-01 00:00:00+00")]);
        check(moment().with_timezone("Asia/Kolkata"), &[Some("2024-01-01 05:30:00+05:30")]);
        check(moment().with_timezone("-03:00"), &[Some("2023-12-31 21:00:00-03")]);
        let interval = |months, days, ns| Some(IntervalMonthDayNano::new(months, days, ns));
        check(
            IntervalMonthDayNanoArray::from(vec![
                interval(14, 1, 7_384_500_000_000),
                interval(0, 0, 0),
                interval(0, -1, -5_400_000_000_000),
                interval(1, 2, 0),
                interval(-1, 1, 7_200_000_000_000),
                interval(0, -1, 7_200_000_000_000),
                None,
            ]),
            &[
                Some("1 year 2 mons 1 day 02:03:04.5"),
                Some("00:00:00"),
                Some("-1 days -01:30:00"),
                Some("1 mon 2 days"),
                Some("-1 mons +1 day 02:00:00"),
                Some("-1 days +02:00:00"),
                None,
            ],
        );
    }

    #[test]
    fn numbers_and_lists_look_as_in_postgresql() {
        check(
            Float64Array::from(vec![100.0, 1.5, 1e15, 1e20, 1e-5, -0.25, f64::NAN, f64::NEG_INFINITY, 0.0]),
            &["100", "1.5", "1e+15", "1e+20", "1e-05", "-0.25", "NaN", "-Infinity", "0"].map(Some),
        );
        check(Float32Array::from(vec![Some(0.1), None]), &[Some("0.1"), None]);
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None, Some(-3)]),
            None,
            Some(vec![]),
        ]);
        check(lists, &[Some("{1,NULL,-3}"), None, Some("{}")]);
        let mut texts = ListBuilder::new(StringBuilder::new());
        texts.append_value(["a b", "c", "", "null", "q\"\\"].map(Some));
        check(texts.finish(), &[Some("{\"a b\",c,\"\",\"null\",\"q\\\"\\\\\"}")]);
        let mut flags = ListBuilder::new(BooleanBuilder::new());
        flags.append_value([Some(true), Some(false), None]);
        check(flags.finish(), &[Some("{t,f,NULL}")]);
        let item = |kind| DataType::List(Arc::new(Field::new("item", kind, true)));
        assert!(is_printed(&item(item(DataType::Int32))) && !is_printed(&item(DataType::Binary)));
    }

    #[test]
    fn rows_look_as_in_postgresql() {
        let texts = StringViewArray::from(vec![Some("a b"), Some("c\"d\\"), None, Some("")]);
        let numbers = Float64Array::from(vec![Some(1.5), None, Some(-2.0), Some(0.0)]);
        let flags = arrow::array::BooleanArray::from(vec![Some(true), Some(false), None, None]);
        let nothing = arrow::array::NullArray::new(4);
        let parts: [(&str, ArrayRef); 4] =
            [("a", Arc::new(texts)), ("b", Arc::new(numbers)), ("c", Arc::new(flags)), ("d", Arc::new(nothing))];
        let parts = parts.map(|(name, part)| (Arc::new(Field::new(name, part.data_type().clone(), true)), part));
        let rows = StructArray::from(parts.to_vec());
        assert!(is_printed(rows.data_type()));
        let expected = ["(\"a b\",1.5,t,)", "(\"c\"\"d\\\\\",,f,)", "(,-2,,)", "(\"\",0,,)"];
        check(rows.clone(), &expected.map(Some));
        // A row within another one, and one that is not there.
        let kind = Field::new("row", rows.data_type().clone(), true);
        let absent = arrow::buffer::NullBuffer::from(vec![true, true, false, true]);
        let rows = StructArray::new(rows.fields().clone(), rows.columns().to_vec(), Some(absent));
        let outer = StructArray::from(vec![(Arc::new(kind), Arc::new(rows.clone()) as ArrayRef)]);
        let within =
            ["(\"(\"\"a b\"\",1.5,t,)\")", "(\"(\"\"c\"\"\"\"d\\\\\\\\\"\",,f,)\")", "()", "(\"(\"\"\"\",0,,)\")"];
        check(outer, &within.map(Some));
        check(rows.slice(2, 1), &[None]);
        let bytes = Field::new("a", DataType::Binary, true);
        assert!(!is_printed(&DataType::Struct(vec![bytes].into())));
    }

    #[test]
    fn lengths_between_times_are_intervals() {
        let lengths: ArrayRef = Arc::new(DurationMillisecondArray::from(vec![Some(90_000_500), None]));
        let texts = interval_texts(&lengths).unwrap();
        assert_eq!(texts.as_string_view().iter().collect::<Vec<_>>(), [Some("1 day 01:00:00.5"), None]);
    }

    #[test]
    fn times_of_all_units_are_shown() {
        let clocks = Time64MicrosecondArray::from(vec![Some(47_655_500_000), Some(86_399_000_100), Some(0), None]);
        check(clocks, &[Some("13:14:15.5"), Some("23:59:59.0001"), Some("00:00:00"), None]);
        check(TimestampSecondArray::from(vec![-1, 0]), &["1969-12-31 23:59:59", "1970-01-01 00:00:00"].map(Some));
        check(
            TimestampMicrosecondArray::from(vec![-1, 10]),
            &["1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.00001"].map(Some),
        );
        // Clocks that are put forward, and zones with an offset of a fraction of an hour.
        let zoned = TimestampSecondArray::from(vec![1_711_846_799, 1_711_846_800]).with_timezone("Europe/Berlin");
        check(zoned, &["2024-03-31 01:59:59+01", "2024-03-31 03:00:00+02"].map(Some));
        check(TimestampSecondArray::from(vec![0]).with_timezone("-03:30"), &[Some("1969-12-31 20:30:00-03:30")]);
        let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![i64::MAX]));
        assert!(texts(&far).unwrap_err().to_string().contains("a time is too far away to be shown"));
        let nowhere: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0]).with_timezone("Nowhere/None"));
        assert!(texts(&nowhere).is_err());
    }

    #[test]
    fn the_longest_intervals_are_shown() {
        let least = IntervalMonthDayNano::new(i32::MIN, i32::MIN, i64::MIN);
        let most = IntervalMonthDayNano::new(i32::MAX, i32::MAX, i64::MAX);
        check(
            IntervalMonthDayNanoArray::from(vec![least, most, IntervalMonthDayNano::new(0, 0, -1)]),
            &[
                "-178956970 years -8 mons -2147483648 days -2562047:47:16.854775808",
                "178956970 years 7 mons 2147483647 days 2562047:47:16.854775807",
                "-00:00:00.000000001",
            ]
            .map(Some),
        );
    }

    /// Digits of a number give it back, to its last bit.
    #[test]
    fn numbers_read_back() {
        let mut draw = draws(151);
        for _ in 0..5_000 {
            let bits = (draw(1 << 31) as u64) << 33 ^ (draw(1 << 31) as u64) << 8 ^ draw(1 << 20) as u64;
            let (double, single) = (f64::from_bits(bits), f32::from_bits(bits as u32));
            let (mut of_double, mut of_single) = (String::new(), String::new());
            push_number(double, &mut of_double).unwrap();
            push_number(single, &mut of_single).unwrap();
            if double.is_finite() {
                assert_eq!(of_double.parse::<f64>().unwrap().to_bits(), bits, "{of_double}");
            }
            if single.is_finite() {
                assert_eq!(of_single.parse::<f32>().unwrap().to_bits(), bits as u32, "{of_single}");
            }
        }
        for (number, expected) in
            [(1e-4, "0.0001"), (9.9e-5, "9.9e-05"), (-1e100, "-1e+100"), (5e-324, "5e-324"), (-0.0, "-0")]
        {
            let mut text = String::new();
            push_number(number, &mut text).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn lists_within_lists_are_shown() {
        let mut lists = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
        lists.values().append_value([Some(1), None]);
        lists.values().append(true);
        lists.values().append(false);
        lists.append(true);
        lists.append(true);
        lists.append(false);
        let lists = lists.finish();
        check(lists.clone(), &[Some("{{1,NULL},{},NULL}"), Some("{}"), None]);
        check(lists.slice(1, 2), &[Some("{}"), None]);
        let binary: ArrayRef = Arc::new(arrow::array::BinaryArray::from(vec![b"a".as_slice()]));
        assert!(texts(&binary).unwrap_err().to_string().contains("`Binary` has no form of its own"));
    }
}
