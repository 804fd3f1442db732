//! PostgreSQL's functions of bytes (`bytea`). Those for lengths, parts and positions have the names of text
//! functions, which they call for other arguments.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BinaryArray, BinaryViewArray, Int32Array, Int64Array, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use memchr::memmem;

/// What a function computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BytesOperation {
    Length,
    Bits,
    Part,
    Place,
    /// Removes bytes of a set from one or both ends.
    Trimmed {
        begin: bool,
        end: bool,
    },
    Byte,
    WithByte,
    Bit,
    WithBit,
    BitCount,
    OfText,
    Text,
    Escaped,
    Unescaped,
}

/// Functions that texts have as well.
const SHARED: [(&str, BytesOperation); 8] = [
    ("character_length", BytesOperation::Length),
    ("octet_length", BytesOperation::Length),
    ("bit_length", BytesOperation::Bits),
    ("substr", BytesOperation::Part),
    ("strpos", BytesOperation::Place),
    ("btrim", BytesOperation::Trimmed { begin: true, end: true }),
    ("ltrim", BytesOperation::Trimmed { begin: true, end: false }),
    ("rtrim", BytesOperation::Trimmed { begin: false, end: true }),
];

/// Functions of bytes only. `encode` and `decode` call the last two for the format `escape`.
const OWN: [(&str, BytesOperation); 9] = [
    ("get_byte", BytesOperation::Byte),
    ("set_byte", BytesOperation::WithByte),
    ("get_bit", BytesOperation::Bit),
    ("set_bit", BytesOperation::WithBit),
    ("bit_count", BytesOperation::BitCount),
    ("convert_to", BytesOperation::OfText),
    ("convert_from", BytesOperation::Text),
    ("bytes_escaped", BytesOperation::Escaped),
    ("bytes_unescaped", BytesOperation::Unescaped),
];

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arg {
    Bytes,
    Number,
    Text,
}

impl Arg {
    /// The type to which arguments of another type are cast.
    fn of(self, kind: &DataType) -> Option<DataType> {
        let fits = kind.is_null()
            || match self {
                Self::Bytes => kind.is_binary() || kind.is_string(),
                Self::Number => kind.is_integer(),
                Self::Text => kind.is_string(),
            };
        fits.then_some(match self {
            Self::Bytes => DataType::BinaryView,
            Self::Number => DataType::Int64,
            Self::Text => DataType::Utf8View,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfBytes {
    name: &'static str,
    kind: BytesOperation,
    /// The text function of that name.
    texts: Option<Arc<ScalarUDF>>,
    signature: Signature,
}

/// Adds the functions to a session.
///
/// # Errors
/// Those of the registry.
pub(super) fn register(state: &mut SessionState) -> Result<()> {
    let function = |name, kind, texts| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(OfBytes { name, kind, texts, signature }))
    };
    for (name, kind) in SHARED {
        let texts = state.scalar_functions().get(name).map(Arc::clone);
        if texts.is_none() {
            return internal_err!("there is no function `{name}`");
        }
        state.register_udf(function(name, kind, texts))?;
    }
    for (name, kind) in OWN {
        state.register_udf(function(name, kind, None))?;
    }
    Ok(())
}

impl BytesOperation {
    /// The types of its arguments, and how many are required.
    fn takes(self) -> (&'static [Arg], usize) {
        match self {
            Self::Length | Self::Bits | Self::BitCount | Self::Escaped => (&[Arg::Bytes], 1),
            Self::Part => (&[Arg::Bytes, Arg::Number, Arg::Number], 2),
            Self::Place | Self::Trimmed { .. } => (&[Arg::Bytes, Arg::Bytes], 2),
            Self::Byte | Self::Bit => (&[Arg::Bytes, Arg::Number], 2),
            Self::WithByte | Self::WithBit => (&[Arg::Bytes, Arg::Number, Arg::Number], 3),
            Self::OfText => (&[Arg::Text, Arg::Text], 2),
            Self::Text => (&[Arg::Bytes, Arg::Text], 2),
            Self::Unescaped => (&[Arg::Text], 1),
        }
    }

    fn gives(self) -> DataType {
        match self {
            Self::Length | Self::Bits | Self::Place | Self::Byte | Self::Bit => DataType::Int32,
            Self::BitCount => DataType::Int64,
            Self::Part | Self::Trimmed { .. } | Self::WithByte | Self::WithBit | Self::OfText | Self::Unescaped => {
                DataType::Binary
            }
            Self::Text | Self::Escaped => DataType::Utf8View,
        }
    }

    fn of(self, args: &Args) -> Result<ArrayRef> {
        Ok(match self {
            Self::Length => args.numbers(|row| number(args.bytes(0, row).len()))?,
            Self::Bits => args.numbers(|row| number(args.bytes(0, row).len().saturating_mul(8)))?,
            Self::Place => args.numbers(|row| number(place(args.bytes(0, row), args.bytes(1, row))))?,
            Self::Byte => args.numbers(|row| {
                let bytes = args.bytes(0, row);
                let at = within(args.number(1, row), bytes.len())?;
                Ok(i32::from(bytes[at]))
            })?,
            Self::Bit => args.numbers(|row| {
                let bytes = args.bytes(0, row);
                let at = within(args.number(1, row), bytes.len().saturating_mul(8))?;
                Ok(i32::from(bytes[at / 8] >> (at % 8) & 1))
            })?,
            Self::BitCount => {
                let ones = |byte: &u8| i64::from(byte.count_ones());
                let counts: Int64Array = args.rows(|row| Ok(args.bytes(0, row).iter().map(ones).sum::<i64>()))?;
                Arc::new(counts) as ArrayRef
            }
            Self::Part => args.slices(|row| {
                let count = if args.count() > 2 { Some(args.number(2, row)) } else { None };
                part(args.bytes(0, row), args.number(1, row), count)
            })?,
            Self::Trimmed { begin, end } => {
                args.slices(|row| Ok(trimmed(args.bytes(0, row), args.bytes(1, row), begin, end)))?
            }
            Self::WithByte => args.binaries(|row| {
                let mut bytes = args.bytes(0, row).to_vec();
                let at = within(args.number(1, row), bytes.len())?;
                // The byte is the low bits of the number.
                bytes[at] = args.number(2, row).to_le_bytes()[0];
                Ok(bytes)
            })?,
            Self::WithBit => args.binaries(|row| {
                let mut bytes = args.bytes(0, row).to_vec();
                let at = within(args.number(1, row), bytes.len().saturating_mul(8))?;
                let bit = 1_u8 << (at % 8);
                match args.number(2, row) {
                    0 => bytes[at / 8] &= !bit,
                    1 => bytes[at / 8] |= bit,
                    other => return exec_err!("new bit must be 0 or 1, not {other}"),
                }
                Ok(bytes)
            })?,
            Self::OfText => args.binaries(|row| encoded(args.text(0, row), args.text(1, row)))?,
            Self::Unescaped => args.binaries(|row| unescaped(args.text(0, row)))?,
            Self::Text => args.texts(|row| decoded(args.bytes(0, row), args.text(1, row)))?,
            Self::Escaped => args.texts(|row| Ok(escaped(args.bytes(0, row))))?,
        })
    }
}

/// Arguments as columns of equal length.
struct Args(Vec<ArrayRef>);

impl Args {
    fn new(kind: BytesOperation, args: &[ColumnarValue]) -> Result<Self> {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let types = kind.takes().0.iter().map(|arg| arg.of(&DataType::Null));
        let given = |(array, kind): (&ArrayRef, Option<DataType>)| -> Result<ArrayRef> {
            let Some(kind) = kind else { return internal_err!("an argument has a type") };
            Ok(cast(array, &kind)?)
        };
        arrays.iter().zip(types).map(given).collect::<Result<Vec<_>>>().map(Self)
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, at: usize, row: usize) -> &[u8] {
        let array: &BinaryViewArray = self.0[at].as_binary_view();
        array.value(row)
    }

    fn number(&self, at: usize, row: usize) -> i64 {
        self.0[at].as_primitive::<Int64Type>().value(row)
    }

    fn text(&self, at: usize, row: usize) -> &str {
        self.0[at].as_string_view().value(row)
    }

    /// Computes each row; NULL if an argument is.
    fn rows<T, A: FromIterator<Option<T>>>(&self, give: impl Fn(usize) -> Result<T>) -> Result<A> {
        let rows = self.0.first().map_or(0, Array::len);
        let is_known = |row: usize| self.0.iter().all(|array| array.is_valid(row));
        (0..rows).map(|row| is_known(row).then(|| give(row)).transpose()).collect()
    }

    fn numbers(&self, give: impl Fn(usize) -> Result<i32>) -> Result<ArrayRef> {
        let array: Int32Array = self.rows(give)?;
        Ok(Arc::new(array))
    }

    /// Slices of the arguments' bytes.
    fn slices<'a>(&'a self, give: impl Fn(usize) -> Result<&'a [u8]>) -> Result<ArrayRef> {
        let array: BinaryArray = self.rows(give)?;
        Ok(Arc::new(array))
    }

    fn binaries(&self, give: impl Fn(usize) -> Result<Vec<u8>>) -> Result<ArrayRef> {
        let array: BinaryArray = self.rows(give)?;
        Ok(Arc::new(array))
    }

    fn texts(&self, give: impl Fn(usize) -> Result<String>) -> Result<ArrayRef> {
        let array: StringViewArray = self.rows(give)?;
        Ok(Arc::new(array))
    }
}

fn number(count: usize) -> Result<i32> {
    i32::try_from(count).map_err(|_| DataFusionError::Execution(format!("{count} is out of range for type integer")))
}

/// The position of bytes within others, from 1; 0 if they do not occur.
fn place(bytes: &[u8], part: &[u8]) -> usize {
    memmem::find(bytes, part).map_or(0, |at| at + 1)
}

/// A zero-based index, if it is in range.
fn within(at: i64, count: usize) -> Result<usize> {
    match usize::try_from(at) {
        Ok(at) if at < count => Ok(at),
        _ => exec_err!("index {at} out of valid range, 0..{}", count as i64 - 1),
    }
}

/// The bytes from a one-based position on, at most `count` of them.
fn part(bytes: &[u8], from: i64, count: Option<i64>) -> Result<&[u8]> {
    let at = |place: i64| usize::try_from(place.saturating_sub(1)).unwrap_or(0).min(bytes.len());
    let end = match count {
        Some(count) if count < 0 => return exec_err!("negative substring length not allowed"),
        Some(count) => at(from.saturating_add(count)),
        None => bytes.len(),
    };
    Ok(bytes.get(at(from)..end).unwrap_or_default())
}

fn trimmed<'b>(mut bytes: &'b [u8], set: &[u8], begin: bool, end: bool) -> &'b [u8] {
    while begin
        && let [first, rest @ ..] = bytes
        && set.contains(first)
    {
        bytes = rest;
    }
    while end
        && let [rest @ .., last] = bytes
        && set.contains(last)
    {
        bytes = rest;
    }
    bytes
}

/// The encoding between texts and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Latin1,
}

impl Encoding {
    fn of(name: &str) -> Result<Self> {
        let is = |known: &&str| {
            let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
            letters.map(|letter| letter.to_ascii_lowercase()).eq(known.bytes())
        };
        if ["utf8", "unicode"].iter().any(is) {
            Ok(Self::Utf8)
        } else if ["latin1", "iso88591"].iter().any(is) {
            Ok(Self::Latin1)
        } else {
            exec_err!("there is no encoding `{name}`: `UTF8` or `LATIN1`")
        }
    }
}

fn encoded(text: &str, encoding: &str) -> Result<Vec<u8>> {
    match Encoding::of(encoding)? {
        Encoding::Utf8 => Ok(text.as_bytes().to_vec()),
        Encoding::Latin1 => {
            let byte = |letter: char| u8::try_from(u32::from(letter));
            let bytes = text.chars().map(byte).collect::<std::result::Result<Vec<u8>, _>>();
            bytes.or_else(|_| exec_err!("a letter has no equivalent in encoding `{encoding}`"))
        }
    }
}

fn decoded(bytes: &[u8], encoding: &str) -> Result<String> {
    match Encoding::of(encoding)? {
        Encoding::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
            _ => exec_err!("invalid byte sequence for encoding `{encoding}`"),
        },
        Encoding::Latin1 if bytes.contains(&0) => exec_err!("invalid byte sequence for encoding `{encoding}`"),
        Encoding::Latin1 => Ok(bytes.iter().copied().map(char::from).collect()),
    }
}

/// PostgreSQL's escape format: zeros and bytes that are not ASCII become three octal digits.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            1..=0x7f => text.push(char::from(byte)),
            _ => {
                let digit = |shift: u32| char::from(b'0' + (byte >> shift & 7));
                text.extend(['\\', digit(6), digit(3), digit(0)]);
            }
        }
    }
    text
}

fn unescaped(text: &str) -> Result<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    loop {
        rest = match rest {
            [] => return Ok(bytes),
            [b'\\', b'\\', rest @ ..] => {
                bytes.push(b'\\');
                rest
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            [b'\\', ..] => {
                return exec_err!("invalid input syntax for type bytea: `\\` stands before `\\` or three octal digits");
            }
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

impl OfBytes {
    /// The text function, if the first argument is no bytes.
    fn texts(&self, first: Option<&DataType>) -> Option<&Arc<ScalarUDF>> {
        self.texts.as_ref().filter(|_| !first.is_some_and(DataType::is_binary))
    }
}

impl ScalarUDFImpl for OfBytes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        match &self.texts {
            Some(texts) => texts.aliases(),
            None => &[],
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(texts) = self.texts(types.first()) {
            let field = |kind: &DataType| Arc::new(Field::new("argument", kind.clone(), true));
            let fields: Vec<FieldRef> = types.iter().map(field).collect();
            let given = fields_with_udf(&fields, &**texts)?;
            return Ok(given.iter().map(|field| field.data_type().clone()).collect());
        }
        let (takes, least) = self.kind.takes();
        if types.len() < least || types.len() > takes.len() {
            return plan_err!("No function matches `{}` of {} arguments: it takes {least}", self.name, types.len());
        }
        let given = |(at, (kind, arg)): (usize, (&DataType, &Arg))| {
            let Some(given) = arg.of(kind) else {
                return plan_err!("No function matches: argument {} of `{}` is no `{kind}`", at + 1, self.name);
            };
            Ok(given)
        };
        types.iter().zip(takes).enumerate().map(given).collect()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.texts(types.first()) {
            Some(texts) => texts.inner().return_type(types),
            None => Ok(self.kind.gives()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match self.texts(args.arg_fields.first().map(|field| field.data_type())) {
            Some(texts) => texts.inner().return_field_from_args(args),
            None => Ok(Arc::new(Field::new(self.name, self.kind.gives(), true))),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.texts.as_ref().and_then(|texts| texts.documentation())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(texts) = self.texts(args.args.first().map(ColumnarValue::data_type).as_ref()) {
            return texts.invoke_with_args(args);
        }
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let found = self.kind.of(&Args::new(self.kind, &args.args)?)?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
        } else {
            ColumnarValue::Array(found)
        })
    }
}

#[cfg(test)]
mod tests;
