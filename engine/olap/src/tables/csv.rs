//! CSV files by RFC 4180, in which `\N` is NULL; column types are in a separate file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder, Int16Builder,
    Int32Builder, Int64Builder, RecordBatch, StringBuilder, TimestampNanosecondBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use chrono::{DateTime, NaiveDate, NaiveDateTime};

/// The text for NULL.
const NULL: &str = "\\N";

/// Reads a table of at most so many bytes, and its column types.
pub(super) fn read(path: &Path, name: &str, bytes_max: u64) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let types = path.with_file_name(format!("{name}.types.json"));
    let types = if types.exists() {
        let failed = |e: &dyn std::fmt::Display| format!(" (types in `{name}.types.json`): {e}");
        let text = quiver_files::read_text(&types, quiver_files::TEXT_BYTES_MAX).map_err(|e| failed(&e))?;
        serde_json::from_str::<BTreeMap<String, String>>(&text).map_err(|e| failed(&e))?
    } else {
        BTreeMap::new()
    };
    let bytes = quiver_files::read(path, bytes_max).map_err(|e| format!(": cannot be read: {e}"))?;
    let text = String::from_utf8(bytes).map_err(|e| format!(": no UTF-8 at byte {}", e.utf8_error().valid_up_to()))?;
    parse(text.trim_start_matches('\u{feff}'), &types)
}

/// Parses the text of a table.
fn parse(text: &str, types: &BTreeMap<String, String>) -> Result<(SchemaRef, Vec<RecordBatch>), String> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| format!(":1: {e}"))?.clone();
    let names: Vec<&str> = header.iter().collect();
    if let Some(name) = types.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(format!(":1: column `{name}` has a type, but is not there"));
    }
    let mut columns = Vec::new();
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return Err(format!(":1: there are two columns `{name}`"));
        }
        let ty = types.get(*name).map_or("text", String::as_str);
        let column = Column::new(ty).ok_or_else(|| format!(":1: column `{name}` has unknown type `{ty}`"))?;
        columns.push(column);
    }
    for record in reader.records() {
        let record = record.map_err(|e| format!(":{}: {e}", e.position().map_or(0, csv::Position::line)))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != names.len() {
            return Err(format!(":{line}: it has {} fields, not {}", record.len(), names.len()));
        }
        for ((field, column), name) in record.iter().zip(&mut columns).zip(&names) {
            column.push(field).ok_or_else(|| {
                let ty = types.get(*name).map_or("text", String::as_str);
                format!(":{line}: column `{name}`: `{field}` is no {ty}")
            })?;
        }
    }
    let arrays: Vec<ArrayRef> = columns.into_iter().map(Column::finish).collect();
    let fields: Vec<Field> =
        names.iter().zip(&arrays).map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(|e| format!(": {e}"))?;
    let rows = batch.num_rows();
    let cut = |start: usize| batch.slice(start, super::BATCH_ROWS.min(rows - start));
    Ok((schema, (0..rows).step_by(super::BATCH_ROWS).map(cut).collect()))
}

/// A builder of a column.
enum Column {
    Text(StringBuilder),
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    /// With precision and scale.
    Numeric(Decimal128Builder, u8, u32),
    Date(Date32Builder),
    Timestamp(TimestampNanosecondBuilder, bool),
}

impl Column {
    /// A builder for a PostgreSQL type; `None` if it is not supported.
    fn new(ty: &str) -> Option<Self> {
        Some(match ty.trim() {
            "text" | "jsonb" => Self::Text(StringBuilder::new()),
            "bool" => Self::Bool(BooleanBuilder::new()),
            "int2" => Self::Int2(Int16Builder::new()),
            "int4" => Self::Int4(Int32Builder::new()),
            "int8" => Self::Int8(Int64Builder::new()),
            "float4" => Self::Float4(Float32Builder::new()),
            "float8" => Self::Float8(Float64Builder::new()),
            "date" => Self::Date(Date32Builder::new()),
            "timestamp" | "timestamptz" => {
                let zoned = ty.trim() == "timestamptz";
                let builder = TimestampNanosecondBuilder::new();
                Self::Timestamp(if zoned { builder.with_timezone("UTC") } else { builder }, zoned)
            }
            other => {
                let inner = other.strip_prefix("numeric")?.trim().strip_prefix('(')?.strip_suffix(')')?;
                let (precision, scale) = inner.split_once(',').unwrap_or((inner, "0"));
                let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
                let fits = (1..=38).contains(&precision) && scale >= 0 && scale as u8 <= precision;
                let builder = Decimal128Builder::new().with_data_type(DataType::Decimal128(precision, scale));
                fits.then_some(Self::Numeric(builder, precision, scale as u32))?
            }
        })
    }

    /// Appends a field; `None` if it is no value of the type.
    fn push(&mut self, field: &str) -> Option<()> {
        let null = field == NULL || (field.is_empty() && !matches!(self, Self::Text(_)));
        macro_rules! number {
            ($builder:expr) => {
                if null { $builder.append_null() } else { $builder.append_value(field.trim().parse().ok()?) }
            };
        }
        match self {
            Self::Text(b) if null => b.append_null(),
            Self::Text(b) => b.append_value(field),
            Self::Bool(b) if null => b.append_null(),
            Self::Bool(b) => b.append_value(match field {
                "true" | "t" => true,
                "false" | "f" => false,
                _ => return None,
            }),
            Self::Int2(b) => number!(b),
            Self::Int4(b) => number!(b),
            Self::Int8(b) => number!(b),
            Self::Float4(b) => number!(b),
            Self::Float8(b) => number!(b),
            Self::Numeric(b, ..) if null => b.append_null(),
            Self::Numeric(b, precision, scale) => b.append_value(decimal(field.trim(), *precision, *scale)?),
            Self::Date(b) if null => b.append_null(),
            Self::Date(b) => {
                let day: NaiveDate = field.parse().ok()?;
                b.append_value((day - NaiveDate::default()).num_days() as i32);
            }
            Self::Timestamp(b, _) if null => b.append_null(),
            Self::Timestamp(b, zoned) => b.append_value(instant(field, *zoned)?),
        }
        Some(())
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut b) => Arc::new(b.finish()),
            Self::Bool(mut b) => Arc::new(b.finish()),
            Self::Int2(mut b) => Arc::new(b.finish()),
            Self::Int4(mut b) => Arc::new(b.finish()),
            Self::Int8(mut b) => Arc::new(b.finish()),
            Self::Float4(mut b) => Arc::new(b.finish()),
            Self::Float8(mut b) => Arc::new(b.finish()),
            Self::Numeric(mut b, ..) => Arc::new(b.finish()),
            Self::Date(mut b) => Arc::new(b.finish()),
            Self::Timestamp(mut b, _) => Arc::new(b.finish()),
        }
    }
}

/// The digits of a decimal at a scale; `None` if it has more decimals, or exceeds the precision.
fn decimal(text: &str, precision: u8, scale: u32) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fits = fraction.len() <= scale as usize && (!whole.is_empty() || !fraction.is_empty());
    let all = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if !fits || !all(whole) || !all(fraction) {
        return None;
    }
    let padded = format!("0{whole}{fraction:0<width$}", width = scale as usize);
    let value = padded.parse().ok().filter(|value: &i128| *value < 10_i128.pow(u32::from(precision)))?;
    Some(if negative { -value } else { value })
}

/// The nanoseconds of a time; without a zone it is in UTC.
fn instant(text: &str, zoned: bool) -> Option<i64> {
    let spaced = text.replacen(' ', "T", 1);
    if let Ok(time) = DateTime::parse_from_rfc3339(&spaced) {
        return zoned.then(|| time.timestamp_nanos_opt()).flatten();
    }
    let time = spaced.parse::<NaiveDateTime>().ok();
    let time = time.or_else(|| spaced.parse::<NaiveDate>().ok().map(NaiveDateTime::from));
    time?.and_utc().timestamp_nanos_opt()
}

/// The Arrow type of a column, for messages about schemas.
#[cfg(test)]
fn arrow_type(ty: &str) -> Option<DataType> {
    Column::new(ty).map(|c| c.finish().data_type().clone())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;

    use super::*;

    fn types(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, ty)| ((*name).to_owned(), (*ty).to_owned())).collect()
    }

    #[test]
    fn values_and_nulls() {
        let text = "a,b,c,d\n\"x, \"\"y\"\"\",1,2.5,2026-03-31T00:00:00.001Z\n,,,\n\\N,\\N,\\N,\\N\n";
        let (_, batches) = parse(text, &types(&[("b", "int4"), ("c", "numeric(8,2)"), ("d", "timestamptz")])).unwrap();
        let shown = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        assert!(shown.contains("| x, \"y\" | 1 | 2.50 | 2026-03-31T00:00:00.001Z |"), "{shown}");
        let nulls: Vec<usize> = batches[0].columns().iter().map(|c| c.null_count()).collect();
        assert_eq!(nulls, [1, 2, 2, 2], "an empty text is a text");
    }

    #[test]
    fn refused_with_place() {
        let check = |text: &str, list: &[(&str, &str)], expected: &str| {
            let error = parse(text, &types(list)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("a,b\n1,2\n1,x\n", &[("b", "int4")], ":3: column `b`: `x` is no int4");
        check("a,b\n1\n", &[], ":2: it has 1 fields, not 2");
        check("a\n1\n", &[("z", "int4")], "column `z` has a type");
        check("a\n1\n", &[("a", "money")], "unknown type `money`");
        check("a\n1.234\n", &[("a", "numeric(8,2)")], ":2: column `a`");
        check("a\nyes\n", &[("a", "bool")], ":2: column `a`");
        assert_eq!(arrow_type("timestamp"), Some(DataType::Timestamp(TimeUnit::Nanosecond, None)));
    }
    /// Values with more digits than their type must be refused, as by PostgreSQL.
    #[test]
    fn decimals_have_their_digits() {
        for (text, precision, scale, expected) in [
            ("1", 5, 2, Some(100)),
            ("-1.5", 5, 2, Some(-150)),
            (".5", 5, 2, Some(50)),
            ("5.", 5, 2, Some(500)),
            ("0001.00", 5, 2, Some(100)),
            ("-0", 5, 2, Some(0)),
            ("999.99", 5, 2, Some(99_999)),
            ("1000", 5, 2, None),
            ("-1000.00", 5, 2, None),
            ("1.234", 5, 2, None),
            ("1.230", 5, 2, None),
            ("1.2.3", 5, 3, None),
            ("", 5, 2, None),
            (".", 5, 2, None),
            ("-", 5, 2, None),
            ("+1", 5, 2, None),
            ("--1", 5, 2, None),
            ("1e3", 5, 2, None),
            ("12", 2, 0, Some(12)),
            ("100", 2, 0, None),
            ("99999999999999999999999999999999999999", 38, 0, Some(10_i128.pow(38) - 1)),
            ("100000000000000000000000000000000000000", 38, 0, None),
            ("1000000000000000000000000000000000000000000000000", 38, 0, None),
        ] {
            assert_eq!(decimal(text, precision, scale), expected, "{text} as numeric({precision},{scale})");
        }
    }

    #[test]
    fn types_of_columns() {
        for (ty, expected) in [
            (" int4 ", Some(DataType::Int32)),
            ("jsonb", Some(DataType::Utf8)),
            ("timestamptz", Some(DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())))),
            ("numeric(8)", Some(DataType::Decimal128(8, 0))),
            ("numeric ( 8 , 2 )", Some(DataType::Decimal128(8, 2))),
            ("numeric(38,38)", Some(DataType::Decimal128(38, 38))),
            ("numeric", None),
            ("numeric(8", None),
            ("numeric(0)", None),
            ("numeric(39,2)", None),
            ("numeric(5,6)", None),
            ("numeric(5,-1)", None),
            ("numeric(999)", None),
            ("INT4", None),
            ("", None),
        ] {
            assert_eq!(arrow_type(ty), expected, "{ty}");
        }
    }

    /// Times must not be read in another zone, and those out of the range of nanoseconds must be refused.
    #[test]
    fn times_with_zones_and_without() {
        const DAY: i64 = 1_774_915_200_000_000_000;
        const HOUR: i64 = 3_600_000_000_000;
        for (text, zoned, expected) in [
            ("2026-03-31", false, Some(DAY)),
            ("2026-03-31", true, Some(DAY)),
            ("2026-03-31 10:00:00", false, Some(DAY + 10 * HOUR)),
            ("2026-03-31T10:00:00.000000001", true, Some(DAY + 10 * HOUR + 1)),
            ("2026-03-31T10:00:00Z", true, Some(DAY + 10 * HOUR)),
            ("2026-03-31 10:00:00+02:00", true, Some(DAY + 8 * HOUR)),
            ("2026-03-31T10:00:00Z", false, None),
            ("2026-02-29", false, None),
            ("2026-03-31 25:00:00", false, None),
            ("1600-01-01", false, None),
            ("9999-12-31T00:00:00Z", true, None),
            ("now", true, None),
        ] {
            assert_eq!(instant(text, zoned), expected, "{text} {zoned}");
        }
    }

    #[test]
    fn lines_and_batches() {
        let error = |text: &str, list: &[(&str, &str)]| parse(text, &types(list)).unwrap_err();
        // A text may span several lines, each of which counts.
        assert_eq!(error("a,b\n\"x\ny\",1\n2,z\n", &[("b", "int4")]), ":4: column `b`: `z` is no int4");
        assert_eq!(error("a,b,a\n", &[]), ":1: there are two columns `a`");
        assert_eq!(error("a\n40000\n", &[("a", "int2")]), ":2: column `a`: `40000` is no int2");
        assert_eq!(error("a\n1000\n", &[("a", "numeric(5,2)")]), ":2: column `a`: `1000` is no numeric(5,2)");
        assert!(parse("", &types(&[])).is_err());
        let (schema, none) = parse("a,b\n", &types(&[("b", "date")])).unwrap();
        assert_eq!((schema.field(1).data_type(), none.len()), (&DataType::Date32, 0));
        let text = format!("a\r\n{}", "7\r\n".repeat(super::super::BATCH_ROWS + 1));
        let (_, batches) = parse(&text, &types(&[("a", "int8")])).unwrap();
        let rows: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [super::super::BATCH_ROWS, 1]);
    }
}
