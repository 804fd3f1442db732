//! `pg_size_pretty(bytes)`: a number of bytes with a readable unit, in PostgreSQL's form; `pg_size_bytes(text)` reads
//! such a text.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray, Int64Builder, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// Units behind that of single bytes.
const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
/// Bytes from which on there is a unit.
const BYTES: u64 = 10 << 10;

#[derive(Debug, PartialEq, Eq, Hash)]
struct SizePretty {
    signature: Signature,
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let pretty = ScalarUDF::from(SizePretty { signature: Signature::user_defined(Volatility::Immutable) });
    let bytes = ScalarUDF::from(SizeBytes { signature: Signature::string(1, Volatility::Immutable) });
    [pretty, bytes].into_iter().map(Arc::new)
}

/// Writes a size in the first unit in which it is below 10240, rounded; in the last one it may be any.
fn push_size(size: i64, out: &mut String) {
    out.clear();
    if size.unsigned_abs() < BYTES {
        // Writing to a text does not fail.
        let _ = write!(out, "{size} bytes");
        return;
    }
    // Halves of the unit, of which the last one rounds.
    let mut halves = size / 512;
    for (at, unit) in UNITS.iter().enumerate() {
        if halves.unsigned_abs() < 2 * BYTES - 1 || at + 1 == UNITS.len() {
            let _ = write!(out, "{} {unit}", halves.midpoint(halves.signum()));
            return;
        }
        halves /= 1024;
    }
}

impl ScalarUDFImpl for SizePretty {
    fn name(&self) -> &'static str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if kind.is_numeric() || kind.is_null() => Ok(vec![DataType::Int64]),
            _ => plan_err!("`pg_size_pretty` takes a number of bytes"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [sizes] = args.args.as_slice() else { return exec_err!("`pg_size_pretty` takes a number of bytes") };
        let sizes = sizes.to_array(args.number_rows)?;
        let Some(sizes) = sizes.as_primitive_opt::<Int64Type>() else {
            return exec_err!("`pg_size_pretty` takes a whole number");
        };
        let mut out = StringViewBuilder::with_capacity(sizes.len());
        let mut text = String::new();
        for size in sizes {
            match size {
                Some(size) => {
                    push_size(size, &mut text);
                    out.append_value(&text);
                }
                None => out.append_null(),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SizeBytes {
    signature: Signature,
}

/// The bytes that a size says: a number and a unit; without one it is bytes.
fn bytes_of(size: &str) -> Option<i64> {
    let size = size.trim();
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    let mut end = size.bytes().position(|byte| !is_digit(byte) && !matches!(byte, b'+' | b'-')).unwrap_or(size.len());
    // An exponent has digits; else the letter begins a unit.
    if let Some(power) = size.get(end..).and_then(|rest| rest.strip_prefix(['e', 'E'])) {
        let digits = power.strip_prefix(['+', '-']).unwrap_or(power);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length > 0 {
            end = size.len() - digits.len() + length;
        }
    }
    let (number, unit) = size.split_at_checked(end)?;
    let unit = unit.trim_start();
    let unit = match UNITS.iter().position(|known| known.eq_ignore_ascii_case(unit)) {
        Some(at) => 1_i64 << (10 * (at + 1)),
        None if unit.is_empty() || unit.eq_ignore_ascii_case("bytes") || unit.eq_ignore_ascii_case("B") => 1,
        None => return None,
    };
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(unit);
    }
    // What is left has a fraction or an exponent; `inf` and the like do not begin with a digit.
    let bytes = (number.parse::<f64>().ok()? * unit as f64).round();
    // The double of the largest number is one above it.
    (bytes >= i64::MIN as f64 && bytes < i64::MAX as f64).then_some(bytes as i64)
}

impl ScalarUDFImpl for SizeBytes {
    fn name(&self) -> &'static str {
        "pg_size_bytes"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [sizes] = args.args.as_slice() else { return exec_err!("`pg_size_bytes` takes a text") };
        let sizes = cast(&sizes.to_array(args.number_rows)?, &DataType::Utf8View)?;
        let mut out = Int64Builder::with_capacity(sizes.len());
        for size in sizes.as_string_view() {
            match size.map(|size| (size, bytes_of(size))) {
                Some((size, None)) => {
                    return exec_err!(
                        "invalid size: \"{size}\"; write a number and `bytes`, `kB`, `MB`, `GB`, `TB` or `PB`"
                    );
                }
                Some((_, bytes)) => out.append_option(bytes),
                None => out.append_null(),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array};

    use super::super::testing::{call, column, draws, named, shown, texts};
    use super::*;

    #[test]
    fn sizes_say_bytes() {
        for (size, expected) in [
            ("10 GB", Some(10 << 30)),
            ("1.5kB", Some(1536)),
            (" 2e2 mb ", Some(200 << 20)),
            ("1e-1kb", Some(102)),
            ("-1 TB", Some(-(1 << 40))),
            ("12", Some(12)),
            (".5 bytes", Some(1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("8191 PB", Some(8191 << 50)),
            ("8192 PB", None),
            ("1e30", None),
            ("5 XB", None),
            ("5 EB", None),
            ("five MB", None),
            ("1-2", None),
            ("", None),
            ("MB", None),
        ] {
            assert_eq!(bytes_of(size), expected, "{size}");
        }
    }

    #[test]
    fn sizes_have_units() {
        let mut text = String::new();
        for (size, expected) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (-10_240, "-10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (123_456_789, "118 MB"),
            (1 << 50, "1024 TB"),
            (i64::MAX, "8192 PB"),
        ] {
            push_size(size, &mut text);
            assert_eq!(text, expected, "{size}");
        }
    }

    /// What is written says the size again, to half of its unit.
    #[test]
    fn written_sizes_read_back() {
        let (mut draw, mut text) = (draws(171), String::new());
        for _ in 0..2_000 {
            let size = (draw(1 << 30) as i64 + 1) << draw(32) >> draw(16);
            for size in [size, -size] {
                push_size(size, &mut text);
                let (_, unit) = text.split_once(' ').unwrap();
                let unit = UNITS.iter().position(|known| *known == unit).map_or(1, |at| 1_i64 << (10 * (at + 1)));
                let said = bytes_of(&text).unwrap();
                assert!(2 * (said - size).abs() <= if unit == 1 { 0 } else { unit }, "{size}: {text}");
            }
        }
        push_size(i64::MIN, &mut text);
        assert_eq!(text, "-8192 PB");
    }

    #[test]
    fn columns_have_sizes() {
        let some = |text: &str| Some(text.to_owned());
        let pretty = named(functions(), "pg_size_pretty");
        let found = call(&pretty, &[column(Int64Array::from(vec![Some(1 << 20), None, Some(-5)]))], 3).unwrap();
        assert_eq!(shown(&found), [some("1024 kB"), None, some("-5 bytes")]);
        let found = call(&pretty, &[column(Float64Array::from(vec![20_480.7]))], 1).unwrap();
        assert_eq!(shown(&found), [some("20 kB")]);
        assert!(pretty.coerce_types(&[DataType::Utf8]).is_err() && pretty.coerce_types(&[]).is_err());
        let bytes = named(functions(), "pg_size_bytes");
        let found = call(&bytes, &[texts(&[Some("1 kB"), None, Some("-2")])], 3).unwrap();
        assert_eq!(shown(&found), [some("1024"), None, some("-2")]);
        let refused = call(&bytes, &[texts(&[Some("1 kB"), Some("5 EB")])], 2).unwrap_err().to_string();
        assert!(refused.contains("invalid size: \"5 EB\"; write a number and `bytes`"), "{refused}");
    }
}
