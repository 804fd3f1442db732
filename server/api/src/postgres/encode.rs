//! Encodes rows for PostgreSQL clients: each value as text, or in PostgreSQL's binary format if the client asked for
//! it.
//!
//! PostgreSQL's times have microseconds, so finer ones are truncated. Maps and structs are encoded as JSON.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray as _, BinaryViewArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, RecordBatch, StringViewArray, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Schema, TimeUnit,
};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use bytes::{BufMut as _, Bytes, BytesMut};
use pgwire::messages::Message as _;
use pgwire::messages::data::{FieldDescription, RowDescription};
use quiver_query::functions::{is_open_numeric, needed_digits};
use quiver_sql::{field_oid, output_name, pg_type, type_oid};
use quiver_types::{Error, Result};

use self::values::{push_date, push_interval, push_numeric, push_stamp, push_time};
use super::command::Form;
use super::error::Fault;
use super::params::{EPOCH_DAYS, EPOCH_US};

mod values;

/// Whether each column, or each parameter, is in binary format.
///
/// # Errors
/// Their number is another, or a code is neither 0 (text) nor 1 (binary).
pub(super) fn forms(asked: &[i16], columns: usize) -> Result<Vec<bool>, Fault> {
    let is_binary = |form: &i16| match form {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::new("22023", format!("unsupported format code: {other}"))),
    };
    match asked {
        [] => Ok(vec![false; columns]),
        // As in PostgreSQL, the format code is ignored if there are no columns.
        [_] if columns == 0 => Ok(Vec::new()),
        [all] => Ok(vec![is_binary(all)?; columns]),
        each if each.len() == columns => each.iter().map(is_binary).collect(),
        each => Err(Fault::new("08P01", format!("{} forms for {columns} columns", each.len()))),
    }
}

/// Writes names and types of columns (`RowDescription`).
///
/// # Errors
/// More columns than the protocol can count.
pub(super) fn describe(schema: &Schema, forms: &[bool], out: &mut BytesMut) -> Result<(), Fault> {
    let fields = schema.fields().iter().zip(forms).map(|(field, binary)| {
        let oid = field_oid(field);
        let len = pg_type(oid).map_or(-1, |known| known.len);
        // A NUL would end the name.
        let name = output_name(field).replace('\0', "\u{fffd}");
        FieldDescription::new(name, 0, 0, oid, len, -1, i16::from(*binary))
    });
    let fields: Vec<_> = fields.collect();
    if i16::try_from(fields.len()).is_err() {
        return Err(Fault::new("54011", "an answer has at most 32767 columns"));
    }
    let too_large = |_| Fault::new("54000", "names of columns are too long");
    RowDescription::new(fields).encode(out).map_err(too_large)
}

fn failed(error: ArrowError) -> Error {
    Error::internal("cannot write rows").with_source(error)
}

/// The Arrow type that values are converted to before they are written.
fn written(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        // Decimals are written digit by digit.
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Utf8
        | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::BinaryView,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, values) => written(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) if is_list(data_type) => {
            DataType::List(FieldRef::new(Field::new("item", written(item.data_type()), true)))
        }
        other => other.clone(),
    }
}

/// Whether clients get a type as an array, and not as JSON.
fn is_list(data_type: &DataType) -> bool {
    type_oid(data_type) != 114
}

/// The values of a column.
enum Values<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int2(&'a Int16Array),
    Int4(&'a Int32Array),
    Int8(&'a Int64Array),
    Float4(&'a Float32Array),
    Float8(&'a Float64Array),
    Text(&'a StringViewArray),
    /// With whether the decimals are those that each value needs, and no number of them.
    Numeric(&'a StringViewArray, bool),
    Bytes(&'a BinaryViewArray),
    Date(&'a Date32Array),
    Time(&'a Time64MicrosecondArray),
    Stamp(&'a TimestampMicrosecondArray, Option<Tz>),
    Interval(&'a IntervalMonthDayNanoArray),
    /// A list, with the type of its items; for nested lists, that of the innermost items.
    List(&'a ListArray, Box<Values<'a>>, u32),
    Json(NullableEncoder<'a>),
}

impl<'a> Values<'a> {
    fn of(field: &'a FieldRef, array: &'a dyn Array, options: &'a EncoderOptions) -> Result<Self> {
        let is_number = type_oid(field.data_type()) == 1700;
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int16 => Self::Int2(array.as_primitive()),
            DataType::Int32 => Self::Int4(array.as_primitive()),
            DataType::Int64 => Self::Int8(array.as_primitive()),
            DataType::Float32 => Self::Float4(array.as_primitive()),
            DataType::Float64 => Self::Float8(array.as_primitive()),
            DataType::Utf8View if is_number => {
                Self::Numeric(array.as_string_view(), is_open_numeric(field.data_type()))
            }
            DataType::Utf8View => Self::Text(array.as_string_view()),
            DataType::BinaryView => Self::Bytes(array.as_binary_view()),
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Time64(_) => Self::Time(array.as_primitive()),
            DataType::Timestamp(_, zone) => {
                let zone = zone.as_deref().map(str::parse).transpose().map_err(failed)?;
                Self::Stamp(array.as_primitive(), zone)
            }
            DataType::Interval(_) => Self::Interval(array.as_primitive()),
            DataType::List(_) if is_list(field.data_type()) => {
                let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
                    field.data_type()
                else {
                    return Err(Error::internal("a list has items of no type"));
                };
                let list: &ListArray = array.as_list();
                let values = Self::of(item, &**list.values(), options)?;
                let plain = match &values {
                    Self::List(.., plain) => *plain,
                    _ => type_oid(item.data_type()),
                };
                Self::List(list, Box::new(values), plain)
            }
            _ => Self::Json(make_encoder(field, array, options).map_err(failed)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(a) => a.is_null(row),
            Self::Int2(a) => a.is_null(row),
            Self::Int4(a) => a.is_null(row),
            Self::Int8(a) => a.is_null(row),
            Self::Float4(a) => a.is_null(row),
            Self::Float8(a) => a.is_null(row),
            Self::Text(a) | Self::Numeric(a, _) => a.is_null(row),
            Self::Bytes(a) => a.is_null(row),
            Self::Date(a) => a.is_null(row),
            Self::Time(a) => a.is_null(row),
            Self::Stamp(a, _) => a.is_null(row),
            Self::Interval(a) => a.is_null(row),
            Self::List(a, ..) => a.is_null(row),
            Self::Json(encoder) => encoder.is_null(row),
        }
    }

    /// Writes a value preceded by its length.
    fn push_sized(&mut self, row: usize, binary: bool, out: &mut BytesMut) -> Result<()> {
        if self.is_null(row) {
            out.put_i32(-1);
            return Ok(());
        }
        let at = out.len();
        out.put_i32(0);
        if binary {
            self.push_binary(row, out)?;
        } else {
            self.push_text(row, out)?;
        }
        let too_long = |_| Error::internal("a value is too long for the protocol");
        let len = i32::try_from(out.len() - at - 4).map_err(too_long)?;
        out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        Ok(())
    }

    fn push_binary(&mut self, row: usize, out: &mut BytesMut) -> Result<()> {
        match self {
            Self::Bool(a) => out.put_u8(a.value(row).into()),
            Self::Int2(a) => out.put_i16(a.value(row)),
            Self::Int4(a) => out.put_i32(a.value(row)),
            Self::Int8(a) => out.put_i64(a.value(row)),
            Self::Float4(a) => out.put_f32(a.value(row)),
            Self::Float8(a) => out.put_f64(a.value(row)),
            Self::Numeric(a, is_open) => push_numeric(digits(a.value(row), *is_open), out)?,
            Self::Bytes(a) => out.put_slice(a.value(row)),
            Self::Date(a) => out.put_i32(a.value(row).saturating_sub(EPOCH_DAYS)),
            Self::Time(a) => out.put_i64(a.value(row)),
            Self::Stamp(a, _) => out.put_i64(a.value(row).saturating_sub(EPOCH_US)),
            Self::Interval(a) => {
                let value = a.value(row);
                out.put_i64(value.nanoseconds / 1000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
            Self::List(..) => self.push_list(row, out)?,
            Self::Text(_) | Self::Json(_) | Self::Null => self.push_text(row, out)?,
        }
        Ok(())
    }

    /// Records the lengths of lists on each level. Returns whether all lists of a level have the same length, as
    /// PostgreSQL's arrays require.
    fn measure(&self, row: usize, level: usize, lengths: &mut Vec<usize>) -> bool {
        let Self::List(list, items, _) = self else { return true };
        let mut rows = bounds(list, row);
        match lengths.get(level) {
            None => lengths.push(rows.len()),
            Some(length) if *length == rows.len() => {}
            Some(_) => return false,
        }
        !matches!(**items, Self::List(..)) || rows.all(|at| !items.is_null(at) && items.measure(at, level + 1, lengths))
    }

    /// The innermost items of rows of lists, and their range.
    fn plain(&mut self, rows: Range<usize>) -> (&mut Self, Range<usize>) {
        match self {
            Self::List(list, items, _) => {
                let ends = list.value_offsets();
                items.plain(ends[rows.start] as usize..ends[rows.end] as usize)
            }
            plain => (plain, rows),
        }
    }

    fn push_list(&mut self, row: usize, out: &mut BytesMut) -> Result<()> {
        let mut lengths = Vec::new();
        if !self.measure(row, 0, &mut lengths) {
            return Err(Error::invalid("lists in a list have several lengths, which an array has not: ask for text"));
        }
        let Self::List(.., oid) = self else { return Err(Error::internal("a list is none")) };
        let oid = *oid;
        let (items, rows) = self.plain(row..row + 1);
        let has_null = rows.clone().any(|at| items.is_null(at));
        // An array without items has no dimensions.
        lengths.retain(|_| !rows.is_empty());
        out.put_i32(lengths.len() as i32);
        out.put_i32(has_null.into());
        out.put_u32(oid);
        for length in lengths {
            out.put_i32(length as i32);
            out.put_i32(1);
        }
        for at in rows {
            items.push_sized(at, true, out)?;
        }
        Ok(())
    }

    fn push_text(&mut self, row: usize, out: &mut BytesMut) -> Result<()> {
        match self {
            Self::Null => {}
            Self::Bool(a) => out.put_u8(if a.value(row) { b't' } else { b'f' }),
            Self::Int2(a) => push(out, a.value(row)),
            Self::Int4(a) => push(out, a.value(row)),
            Self::Int8(a) => push(out, a.value(row)),
            Self::Float4(a) => values::push_float(a.value(row), values::FLOAT4_PLAIN, out),
            Self::Float8(a) => values::push_float(a.value(row), values::FLOAT8_PLAIN, out),
            Self::Text(a) => out.put_slice(a.value(row).as_bytes()),
            Self::Numeric(a, is_open) => out.put_slice(digits(a.value(row), *is_open).as_bytes()),
            Self::Bytes(a) => {
                out.put_slice(b"\\x");
                out.put_slice(quiver_types::hex(a.value(row)).as_bytes());
            }
            Self::Date(a) => push_date(a.value(row), out),
            Self::Time(a) => push_time(a.value(row), out),
            Self::Stamp(a, zone) => push_stamp(a.value(row), *zone, out),
            Self::Interval(a) => push_interval(a.value(row), out),
            Self::Json(encoder) => {
                let mut json = Vec::new();
                encoder.encode(row, &mut json);
                out.put_slice(&json);
            }
            Self::List(list, items, _) => {
                out.put_u8(b'{');
                let (rows, mut scratch) = (bounds(list, row), BytesMut::new());
                let first = rows.start;
                for at in rows {
                    if at > first {
                        out.put_u8(b',');
                    }
                    if items.is_null(at) {
                        out.put_slice(b"NULL");
                        continue;
                    }
                    // A nested list is written without quotes.
                    if matches!(**items, Self::List(..)) {
                        items.push_text(at, out)?;
                        continue;
                    }
                    scratch.clear();
                    items.push_text(at, &mut scratch)?;
                    values::push_item(&scratch, out);
                }
                out.put_u8(b'}');
            }
        }
        Ok(())
    }
}

/// The digits of a decimal that clients get.
fn digits(written: &str, is_open: bool) -> &str {
    if is_open { needed_digits(written) } else { written }
}

/// The range of a list's items.
fn bounds(list: &ListArray, row: usize) -> Range<usize> {
    let ends = list.value_offsets();
    ends[row] as usize..ends[row + 1] as usize
}

fn push(out: &mut BytesMut, value: impl std::fmt::Display) {
    // Writing to a growing buffer never fails.
    let _ = std::fmt::Write::write_fmt(out, format_args!("{value}"));
}

/// PostgreSQL shows the difference of two times in days; Arrow has it as a plain number.
fn in_days(intervals: &ArrayRef) -> ArrayRef {
    const DAY_NS: i64 = 86_400_000_000_000;
    let days: IntervalMonthDayNanoArray = intervals.as_primitive::<IntervalMonthDayNanoType>().unary(|interval| {
        IntervalMonthDayNano::new(0, (interval.nanoseconds / DAY_NS) as i32, interval.nanoseconds % DAY_NS)
    });
    Arc::new(days)
}

/// Converts the columns of a batch to the types that values are written from.
fn normal(batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let schema = batch.schema();
    let normal = |(field, column): (&FieldRef, &ArrayRef)| -> Result<ArrayRef> {
        let wanted = written(field.data_type());
        if column.data_type() == &wanted {
            return Ok(ArrayRef::clone(column));
        }
        let changed = cast(column, &wanted).map_err(failed)?;
        Ok(if matches!(column.data_type(), DataType::Duration(_)) { in_days(&changed) } else { changed })
    };
    schema.fields().iter().zip(batch.columns()).map(normal).collect()
}

/// Begins a message whose length is not known yet.
fn begin(kind: u8, out: &mut BytesMut) -> usize {
    let at = out.len();
    out.put_u8(kind);
    out.put_i32(0);
    at
}

/// Writes the length of a message that was begun.
fn end(at: usize, out: &mut BytesMut) -> Result<()> {
    let too_long = |_| Error::internal("a row is too long for the protocol");
    let len = i32::try_from(out.len() - at - 1).map_err(too_long)?;
    out[at + 1..at + 5].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Ends a message, or takes it back where it could not be written: the error that follows it would be read as its rest.
fn ended(at: usize, written: Result<()>, out: &mut BytesMut) -> Result<()> {
    let ended = written.and_then(|()| end(at, out));
    if ended.is_err() {
        out.truncate(at);
    }
    ended
}

/// What the first piece of `COPY` data in binary form begins with: a signature, no flags, and no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What ends `COPY` data in binary form.
const COPY_TRAILER: i16 = -1;

/// Announces `COPY` data, and writes the header line if there is one.
///
/// # Errors
/// More columns than the protocol can count.
pub(super) fn lines_follow(schema: &Schema, form: &Form, out: &mut BytesMut) -> Result<(), Fault> {
    let fields = schema.fields();
    let Ok(count) = i16::try_from(fields.len()) else {
        return Err(Fault::new("54011", "an answer has at most 32767 columns"));
    };
    let too_large = |_| Fault::new("54000", "names of columns are too long");
    let at = begin(b'H', out);
    out.put_u8(form.is_binary().into());
    out.put_i16(count);
    fields.iter().for_each(|_| out.put_i16(form.is_binary().into()));
    end(at, out).map_err(too_large)?;
    if form.has_header {
        let at = begin(b'd', out);
        for (nth, field) in fields.iter().enumerate() {
            if nth > 0 {
                out.put_u8(form.delimiter);
            }
            form.push(Some(output_name(field).as_bytes()), fields.len() == 1, out);
        }
        out.put_u8(b'\n');
        end(at, out).map_err(too_large)?;
    }
    Ok(())
}

/// Writes rows as `COPY` data in binary form. `are_first`: they come behind the header, and in one message with it, for
/// clients expect a row in each.
///
/// # Errors
/// Lists of lists that are no array; otherwise internal: only by a bug.
pub(super) fn copied(batch: &RecordBatch, are_first: bool, out: &mut BytesMut) -> Result<()> {
    let (schema, arrays) = (batch.schema(), normal(batch)?);
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let columns = schema.fields().iter().zip(&arrays);
    let mut columns =
        columns.map(|(field, array)| Values::of(field, &**array, &options)).collect::<Result<Vec<_>>>()?;
    for row in 0..batch.num_rows() {
        let at = begin(b'd', out);
        if are_first && row == 0 {
            out.put_slice(COPY_HEADER);
        }
        out.put_i16(columns.len() as i16);
        let written = columns.iter_mut().try_for_each(|column| column.push_sized(row, true, out));
        ended(at, written, out)?;
    }
    Ok(())
}

/// Ends `COPY` data in binary form. `has_rows`: some were written before.
///
/// # Errors
/// None: the message is short.
pub(super) fn copied_all(has_rows: bool, out: &mut BytesMut) -> Result<()> {
    let at = begin(b'd', out);
    if !has_rows {
        out.put_slice(COPY_HEADER);
    }
    out.put_i16(COPY_TRAILER);
    end(at, out)
}

/// Writes rows as `COPY` lines.
///
/// # Errors
/// Internal: only by a bug.
pub(super) fn lines(batch: &RecordBatch, form: &Form, out: &mut BytesMut) -> Result<()> {
    let (schema, arrays) = (batch.schema(), normal(batch)?);
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let columns = schema.fields().iter().zip(&arrays);
    let mut columns =
        columns.map(|(field, array)| Values::of(field, &**array, &options)).collect::<Result<Vec<_>>>()?;
    let (is_alone, mut value) = (columns.len() == 1, BytesMut::new());
    for row in 0..batch.num_rows() {
        let at = begin(b'd', out);
        for (nth, column) in columns.iter_mut().enumerate() {
            if nth > 0 {
                out.put_u8(form.delimiter);
            }
            if column.is_null(row) {
                form.push(None, is_alone, out);
                continue;
            }
            value.clear();
            column.push_text(row, &mut value)?;
            form.push(Some(&value), is_alone, out);
        }
        out.put_u8(b'\n');
        end(at, out)?;
    }
    Ok(())
}

/// The values of the first row as texts; `None`: NULL.
///
/// # Errors
/// Internal: only by a bug.
pub(super) fn texts(batch: &RecordBatch) -> Result<Vec<Option<Bytes>>> {
    let (schema, arrays) = (batch.schema(), normal(batch)?);
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let columns = schema.fields().iter().zip(&arrays);
    let text = |(field, array): (&FieldRef, &ArrayRef)| -> Result<Option<Bytes>> {
        let mut values = Values::of(field, &**array, &options)?;
        if values.is_null(0) {
            return Ok(None);
        }
        let mut text = BytesMut::new();
        values.push_text(0, &mut text)?;
        Ok(Some(text.freeze()))
    };
    columns.map(text).collect()
}

/// Writes rows as `DataRow` messages.
///
/// # Errors
/// Internal: only by a bug.
pub(super) fn rows(batch: &RecordBatch, forms: &[bool], out: &mut BytesMut) -> Result<()> {
    let (schema, arrays) = (batch.schema(), normal(batch)?);
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let columns = schema.fields().iter().zip(&arrays);
    let mut columns =
        columns.map(|(field, array)| Values::of(field, &**array, &options)).collect::<Result<Vec<_>>>()?;
    for row in 0..batch.num_rows() {
        let at = begin(b'D', out);
        out.put_i16(columns.len() as i16);
        let mut cells = columns.iter_mut().zip(forms);
        let written = cells.try_for_each(|(column, binary)| column.push_sized(row, *binary, out));
        ended(at, written, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
