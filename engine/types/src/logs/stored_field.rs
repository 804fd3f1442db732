//! A field of many rows in the form that a store holds it: text, dictionary-encoded, numbers or identifiers. Grouping,
//! counting and summing then need not parse text. The text of a value can always be restored exactly.
//!
//! In a batch it is a struct with a child for each form, of which only the one in use has values.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int64Array, StringViewArray,
    StringViewBuilder, StructArray, new_null_array,
};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Int64Type, UInt32Type};

use crate::hex::write_hex;
use crate::tables::logs::dictionary;

/// Bytes of an identifier, which is 32 lower-case hex digits as text.
pub const ID_BYTES: usize = 16;

/// Values of a field; nulls are missing.
#[derive(Debug, Clone)]
pub enum StoredField {
    /// No row has a value.
    Missing,
    /// Text of each row (`Utf8View`).
    Text(StringViewArray),
    /// Text by code (`Dictionary(UInt32, Utf8)`).
    Coded(DictionaryArray<UInt32Type>),
    /// Integers, in decimal notation.
    Int(Int64Array),
    /// Numbers in decimal notation without an exponent, with the fewest digits that identify them.
    Float(Float64Array),
    /// Identifiers of [`ID_BYTES`] bytes.
    Id(FixedSizeBinaryArray),
}

static FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    vec![
        field("text", DataType::Utf8View),
        field("coded", dictionary()),
        field("int", DataType::Int64),
        field("float", DataType::Float64),
        field("id", DataType::FixedSizeBinary(ID_BYTES as i32)),
    ]
    .into()
});

/// Typical maximum rows of a batch with many columns, and with few.
const BATCH_ROWS: usize = 16 * 1024;
const NARROW_BATCH_ROWS: usize = 64 * 1024;

/// Children for the forms that are not in use, shared by all batches. A batch is accounted with their whole memory, so
/// short batches have shorter ones.
static UNUSED: LazyLock<Vec<ArrayRef>> = LazyLock::new(|| unused(BATCH_ROWS));
static UNUSED_NARROW: LazyLock<Vec<ArrayRef>> = LazyLock::new(|| unused(NARROW_BATCH_ROWS));

fn unused(rows: usize) -> Vec<ArrayRef> {
    FIELDS.iter().map(|field| new_null_array(field.data_type(), rows)).collect()
}

impl StoredField {
    /// The type of such a column.
    pub fn data_type() -> DataType {
        DataType::Struct(FIELDS.clone())
    }

    /// As a column with this number of rows.
    pub fn into_array(self, rows: usize) -> ArrayRef {
        let own: Option<(usize, ArrayRef)> = match self {
            Self::Missing => None,
            Self::Text(a) => Some((0, Arc::new(a))),
            Self::Coded(a) => Some((1, Arc::new(a))),
            Self::Int(a) => Some((2, Arc::new(a))),
            Self::Float(a) => Some((3, Arc::new(a))),
            Self::Id(a) => Some((4, Arc::new(a))),
        };
        let shared =
            if rows <= BATCH_ROWS { Some(&UNUSED) } else { (rows <= NARROW_BATCH_ROWS).then_some(&UNUSED_NARROW) };
        let child = |(at, field): (usize, &Arc<Field>)| match (&own, shared) {
            (Some((used, array)), _) if *used == at => Arc::clone(array),
            (_, Some(unused)) => unused[at].slice(0, rows),
            (_, None) => new_null_array(field.data_type(), rows),
        };
        let children = FIELDS.iter().enumerate().map(child).collect();
        Arc::new(StructArray::new(FIELDS.clone(), children, None))
    }

    /// Reads a column; `None` if it does not have this type. A column that combines several forms becomes text.
    pub fn of(array: &dyn Array) -> Option<Self> {
        let columns = array.as_struct_opt().filter(|s| s.fields() == &*FIELDS)?;
        let form = |at: usize| {
            let child = columns.column(at);
            match at {
                0 => Self::Text(child.as_string_view().clone()),
                1 => Self::Coded(child.as_dictionary().clone()),
                2 => Self::Int(child.as_primitive::<Int64Type>().clone()),
                3 => Self::Float(child.as_primitive::<Float64Type>().clone()),
                _ => Self::Id(child.as_fixed_size_binary().clone()),
            }
        };
        let used = (0..columns.num_columns()).filter(|&at| columns.column(at).null_count() < columns.len());
        let forms: Vec<Self> = used.map(form).collect();
        if forms.len() > 1 {
            let mut builder = StringViewBuilder::with_capacity(columns.len());
            let mut buffer = String::new();
            for row in 0..columns.len() {
                builder.append_option(forms.iter().find_map(|form| form.text(row, &mut buffer).map(str::to_owned)));
            }
            return Some(Self::Text(builder.finish()));
        }
        Some(forms.into_iter().next().unwrap_or(Self::Missing))
    }

    /// The text of a row; the text of numbers and identifiers is written to the buffer.
    pub fn text<'a>(&'a self, row: usize, buffer: &'a mut String) -> Option<&'a str> {
        buffer.clear();
        match self {
            Self::Text(a) if a.is_valid(row) => return Some(a.value(row)),
            Self::Coded(a) if a.is_valid(row) => {
                let texts = a.values().as_string_opt::<i32>()?;
                return Some(texts.value(a.keys().value(row) as usize));
            }
            Self::Int(a) if a.is_valid(row) => write_int(a.value(row), buffer),
            Self::Float(a) if a.is_valid(row) => write_float(a.value(row), buffer),
            Self::Id(a) if a.is_valid(row) => write_hex(a.value(row), buffer),
            _ => return None,
        }
        Some(buffer)
    }
}

/// Appends an integer as text.
pub fn write_int(value: i64, out: &mut String) {
    let mut digits = [0u8; 20];
    let (mut at, mut rest) = (digits.len(), value.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push('-');
    }
    out.extend(digits[at..].iter().map(|&digit| char::from(digit)));
}

/// Appends a number in its shortest form that is read back as the same one.
pub fn write_float(value: f64, out: &mut String) {
    // Writing to a text cannot fail.
    let _ = write!(out, "{value}");
}

/// Reads an integer that is written back as it was.
pub fn read_int(text: &str) -> Option<i64> {
    let b = text.as_bytes();
    let digits = b.strip_prefix(b"-").unwrap_or(b);
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits[0] == b'0' && b.len() > 1 {
        return None;
    }
    text.parse().ok()
}

/// Reads a decimal number that is written back as it was.
pub fn read_float(text: &str, buffer: &mut String) -> Option<f64> {
    let b = text.as_bytes();
    if b.len() > 24 || !b.last()?.is_ascii_digit() || !b.iter().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'-'))
    {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    buffer.clear();
    // Writing to a text cannot fail.
    let _ = write!(buffer, "{value}");
    (value.is_finite() && buffer == text).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_comes_back() {
        let ids = FixedSizeBinaryArray::try_from_iter([[7u8; ID_BYTES], [8; ID_BYTES]].into_iter()).expect("16 bytes");
        let forms = [
            StoredField::Missing,
            StoredField::Text(StringViewArray::from(vec![Some("a"), None])),
            StoredField::Coded(vec![Some("a"), None].into_iter().collect()),
            StoredField::Int(vec![Some(1), None].into()),
            StoredField::Float(vec![None, Some(0.5)].into()),
            StoredField::Id(ids),
        ];
        for form in forms {
            let array = form.clone().into_array(2);
            assert_eq!(array.data_type(), &StoredField::data_type());
            let back = StoredField::of(&array).expect("a stored column");
            assert_eq!(format!("{back:?}"), format!("{form:?}"));
        }
        for rows in [0, BATCH_ROWS, BATCH_ROWS + 1, NARROW_BATCH_ROWS, NARROW_BATCH_ROWS + 1] {
            let numbers = Int64Array::from_iter_values(0..rows as i64);
            let array = StoredField::Int(numbers.clone()).into_array(rows);
            let back = StoredField::of(&array).expect("a stored column");
            assert!(array.len() == rows && (rows == 0 || matches!(back, StoredField::Int(own) if own == numbers)));
        }
        // What is not in use takes no memory of its own, in batches of few columns neither.
        let unused = |rows: i64| {
            let array = StoredField::Int(Int64Array::from_iter_values(0..rows)).into_array(rows as usize);
            array.as_struct().column(0).to_data().buffers()[0].as_ptr()
        };
        assert_eq!((unused(10), unused(60_000)), (unused(BATCH_ROWS as i64), unused(NARROW_BATCH_ROWS as i64)));
        let pieces = [
            StoredField::Int(vec![Some(1), None].into()).into_array(2),
            StoredField::Text(StringViewArray::from(vec![Some("a")])).into_array(1),
        ];
        let both = arrow::compute::concat(&[&pieces[0], &pieces[1]]).expect("of one type");
        let both = StoredField::of(&both).expect("a stored column");
        let mut buffer = String::new();
        let texts: Vec<_> = (0..3).map(|row| both.text(row, &mut buffer).map(str::to_owned)).collect();
        assert_eq!(texts, [Some("1".to_owned()), None, Some("a".to_owned())]);
        let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        assert!(StoredField::of(&other).is_none());
    }

    #[test]
    fn texts() {
        let mut out = String::new();
        for value in [0, 7, -1, 10, i64::MAX, i64::MIN] {
            out.clear();
            write_int(value, &mut out);
            assert_eq!(out, value.to_string());
        }
        out.clear();
        write_float(0.25, &mut out);
        assert_eq!(out, "0.25");
    }

    #[test]
    fn what_is_read_is_written_again() {
        assert_eq!(["-7", "0", "07", "-0", "7.0"].map(read_int), [Some(-7), Some(0), None, None, None]);
        let floats = ["0.5", "-0", "2.50", "1e3"].map(|text| read_float(text, &mut String::new()).map(f64::to_bits));
        assert_eq!(floats, [Some(0.5_f64.to_bits()), Some((-0.0_f64).to_bits()), None, None]);
    }

    #[test]
    fn numbers_at_the_borders_of_their_types() {
        for (text, expected) in [
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("10000000000000000000", None),
            ("", None),
            ("-", None),
            ("+1", None),
            ("1 ", None),
            ("00", None),
            ("-01", None),
            ("١", None),
        ] {
            assert_eq!(read_int(text), expected, "{text}");
        }
        let float = |text: &str| read_float(text, &mut String::from("left from before"));
        for text in ["0", "-1", "0.1", "123456789.125", "1000000000000000000000", "-0.000001"] {
            let mut out = String::new();
            write_float(float(text).unwrap_or(f64::NAN), &mut out);
            assert_eq!(out, text);
        }
        for text in
            ["", "-", ".", "1.", ".5", "+1", "0.10", "00", "1e3", "NaN", "inf", "0.1000000000000000055511151", "1-2"]
        {
            assert_eq!(float(text), None, "{text}");
        }
    }
}
