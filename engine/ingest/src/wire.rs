//! Reads the protobuf wire format, without copying and without recursion: a reader over a slice gives tags and values,
//! and whoever knows the message drives it. The small writer serves answers and the OTLP/JSON path.
//!
//! Unknown fields are skipped. A known field with another wire type, a group, field number 0 and a length past the end
//! are errors.

/// Messages nested deeper than this are refused (only OTLP attribute values nest without bound).
pub const DEPTH_MAX: usize = 32;

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field or its length goes past the end.
    #[error("message is cut short")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("number is longer than 64 bits")]
    LongVarint,
    /// A field number of 0, or above 2^29.
    #[error("bad field number")]
    BadField,
    /// A wire type that does not exist, or a group.
    #[error("bad wire type")]
    BadWireType,
    /// A known field with another wire type than its own.
    #[error("field has the wrong type")]
    WrongType,
    /// Deeper than [`DEPTH_MAX`].
    #[error("message is nested too deeply")]
    TooDeep,
}

type Result<T, E = WireError> = std::result::Result<T, E>;

/// Wire type of varints.
pub const VARINT: u32 = 0;
/// Wire type of 8-byte values.
pub const FIXED64: u32 = 1;
/// Wire type of bytes, text, messages and packed lists.
pub const BYTES: u32 = 2;
/// Wire type of 4-byte values.
pub const FIXED32: u32 = 5;

/// Gives what stands before a value: number of its field, and how it is encoded.
pub const fn tag(field: u32, wire_type: u32) -> u32 {
    field << 3 | wire_type
}

/// A reader over one message.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Says whether all is read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes that are left.
    #[inline]
    pub fn rest_len(&self) -> usize {
        self.rest.len()
    }

    /// Reads a tag.
    ///
    /// # Errors
    /// The body ends within the tag, or the tag is none.
    #[inline]
    pub fn tag(&mut self) -> Result<u32> {
        let raw = self.varint()?;
        if raw >> 32 != 0 || raw >> 3 == 0 {
            return Err(WireError::BadField);
        }
        Ok(raw as u32)
    }

    /// Reads a varint.
    ///
    /// # Errors
    /// The body ends within it, or it is longer than ten bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if i == 9 && byte > 1 {
                return Err(WireError::LongVarint);
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireError::Truncated } else { WireError::LongVarint })
    }

    /// Reads 8 bytes.
    ///
    /// # Errors
    /// The body ends before.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads 4 bytes.
    ///
    /// # Errors
    /// The body ends before.
    #[inline]
    pub fn fixed32(&mut self) -> Result<u32> {
        let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    /// Reads a double.
    ///
    /// # Errors
    /// The body ends before.
    #[inline]
    pub fn double(&mut self) -> Result<f64> {
        self.fixed64().map(f64::from_bits)
    }

    /// Reads a length and as many bytes.
    ///
    /// # Errors
    /// The length is none, or more than is left.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        let (bytes, rest) =
            usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len)).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Skips the value of a field that the caller does not read. A tag whose number is in `known` came with a wire type
    /// that is not the field's: an error.
    ///
    /// # Errors
    /// A known field of another wire type, or a value that cannot be skipped.
    #[inline]
    pub fn skip(&mut self, tag: u32, known: &[u32]) -> Result<()> {
        if known.contains(&(tag >> 3)) {
            return Err(WireError::WrongType);
        }
        self.skip_value(tag & 7)
    }

    /// Skips a value of a wire type.
    ///
    /// # Errors
    /// The body ends within it, or the wire type is none that is in use.
    pub fn skip_value(&mut self, wire_type: u32) -> Result<()> {
        match wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            BYTES => self.bytes().map(drop),
            FIXED32 => {
                let (_, rest) = self.rest.split_first_chunk::<4>().ok_or(WireError::Truncated)?;
                self.rest = rest;
                Ok(())
            }
            _ => Err(WireError::BadWireType),
        }
    }
}

/// Reads the signed form of sint32 and sint64.
#[inline]
pub fn zigzag(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

/// Reads a list of varints that came packed (`BYTES`) or as a single element (`VARINT`).
///
/// # Errors
/// Another wire type, or the body ends within the list.
pub fn varints(reader: &mut Reader<'_>, wire_type: u32, mut each: impl FnMut(u64)) -> Result<()> {
    match wire_type {
        VARINT => each(reader.varint()?),
        BYTES => {
            let mut packed = Reader::new(reader.bytes()?);
            while !packed.is_empty() {
                each(packed.varint()?);
            }
        }
        _ => return Err(WireError::WrongType),
    }
    Ok(())
}

/// Reads a list of 8-byte values that came packed (`BYTES`) or as a single element (`FIXED64`).
///
/// # Errors
/// Another wire type, or a list that does not end with a whole value.
pub fn fixed64s(reader: &mut Reader<'_>, wire_type: u32, mut each: impl FnMut(u64)) -> Result<()> {
    match wire_type {
        FIXED64 => each(reader.fixed64()?),
        BYTES => {
            let packed = reader.bytes()?;
            let (values, rest) = packed.as_chunks::<8>();
            if !rest.is_empty() {
                return Err(WireError::Truncated);
            }
            for v in values {
                each(u64::from_le_bytes(*v));
            }
        }
        _ => return Err(WireError::WrongType),
    }
    Ok(())
}

/// Appends a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field of bytes.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends what stands before the bytes of a field.
pub fn put_head(out: &mut Vec<u8>, field: u32, len: usize) {
    put_varint(out, u64::from(tag(field, BYTES)));
    put_varint(out, len as u64);
}

/// Calls a function with each value of a field of bytes; fields beside it are skipped, those in `known` only if they
/// have the right wire type.
pub(crate) fn each<'a, E: From<WireError>>(
    message: &'a [u8],
    field: u32,
    known: &[u32],
    mut f: impl FnMut(&'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let wanted = tag(field, BYTES);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            tag if tag == wanted => f(r.bytes()?)?,
            tag if known.contains(&(tag >> 3)) => return Err(WireError::WrongType.into()),
            tag => r.skip_value(tag & 7)?,
        }
    }
    Ok(())
}

/// Reads a message of a name and a value, as labels are.
#[inline]
pub(crate) fn pair(message: &[u8]) -> Result<(&[u8], &[u8])> {
    let (mut name, mut value): (&[u8], &[u8]) = (b"", b"");
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            0x0a => name = r.bytes()?,
            0x12 => value = r.bytes()?,
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_bounds() {
        let check = |bytes: &[u8], expected| assert_eq!(Reader::new(bytes).varint(), expected, "{bytes:x?}");
        check(&[0], Ok(0));
        check(&[0x7f], Ok(127));
        check(&[0x80, 1], Ok(128));
        check(&[0x80, 0x80, 0x00], Ok(0));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], Ok(u64::MAX));
        check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], Err(WireError::LongVarint));
        check(&[0x80; 11], Err(WireError::LongVarint));
        check(&[0x80; 9], Err(WireError::Truncated));
        check(&[], Err(WireError::Truncated));
        for v in [0, 1, 127, 128, 16383, 16384, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            check(&out, Ok(v));
        }
    }

    #[test]
    fn values_and_lists() {
        assert_eq!(Reader::new(&[3, 1, 2]).bytes(), Err(WireError::Truncated));
        assert_eq!(Reader::new(&[2, 1, 2]).bytes(), Ok(&[1u8, 2][..]));
        assert_eq!(Reader::new(&[0; 7]).fixed64(), Err(WireError::Truncated));
        assert_eq!(Reader::new(&[0]).tag(), Err(WireError::BadField));
        assert_eq!([0, 1, 2, 3].map(zigzag), [0, -1, 1, -2]);
        assert_eq!(zigzag(u64::MAX), i64::MIN);
        let mut got = vec![];
        varints(&mut Reader::new(&[3, 1, 0x80, 1]), BYTES, |v| got.push(v)).unwrap();
        varints(&mut Reader::new(&[7]), VARINT, |v| got.push(v)).unwrap();
        assert_eq!(got, [1, 128, 7]);
        assert_eq!(varints(&mut Reader::new(&[7]), FIXED64, |_| ()), Err(WireError::WrongType));
        assert_eq!(fixed64s(&mut Reader::new(&[7, 0, 0, 0, 0, 0, 0, 0]), BYTES, |_| ()), Err(WireError::Truncated));
        assert_eq!(Reader::new(&[]).skip_value(3), Err(WireError::BadWireType));
        assert_eq!(Reader::new(&[]).skip(tag(1, 0), &[1]), Err(WireError::WrongType));
    }

    #[test]
    fn tags_and_types() {
        let check = |bytes: &[u8], expected| assert_eq!(Reader::new(bytes).tag(), expected, "{bytes:x?}");
        check(&[0x08], Ok(tag(1, VARINT)));
        check(&[0xfa, 0xff, 0xff, 0xff, 0x0f], Ok(tag((1 << 29) - 1, BYTES)));
        check(&[0x07], Err(WireError::BadField));
        check(&[0x80, 0x80, 0x80, 0x80, 0x10], Err(WireError::BadField));
        check(&[0x88], Err(WireError::Truncated));
        for unknown in [3, 4, 6, 7] {
            assert_eq!(Reader::new(&[0; 16]).skip_value(unknown), Err(WireError::BadWireType), "{unknown}");
        }
        for (wire_type, len) in [(VARINT, 1), (FIXED64, 8), (BYTES, 1), (FIXED32, 4)] {
            let mut reader = Reader::new(&[0; 16]);
            reader.skip_value(wire_type).unwrap();
            assert_eq!(reader.rest_len(), 16 - len, "{wire_type}");
            assert_eq!(
                Reader::new(&[0; 16][..len - 1]).skip_value(wire_type),
                Err(WireError::Truncated),
                "{wire_type}"
            );
        }
        let nan = f64::from_bits(0x7ff8_dead_beef_0001);
        assert_eq!(Reader::new(&nan.to_bits().to_le_bytes()).double().map(f64::to_bits), Ok(nan.to_bits()));
        assert_eq!(Reader::new(&[1, 2, 3, 4, 5]).fixed32(), Ok(0x0403_0201));
        // A length that no address space has.
        let mut long = Vec::new();
        put_varint(&mut long, u64::MAX);
        assert_eq!(Reader::new(&long).bytes(), Err(WireError::Truncated));
    }

    #[test]
    fn pairs_of_name_and_value() {
        let check = |message: &[u8], name: &[u8], value: &[u8]| {
            assert_eq!(pair(message), Ok((name, value)), "{message:x?}");
        };
        check(&[], b"", b"");
        check(&[0x12, 1, b'v', 0x0a, 1, b'n'], b"n", b"v");
        check(&[0x0a, 1, b'n', 0x0a, 1, b'm'], b"m", b"");
        check(&[0x0a, 1, b'n', 0x18, 5, 0x22, 1, 0], b"n", b"");
        assert_eq!(pair(&[0x08, 1]), Err(WireError::WrongType));
        assert_eq!(pair(&[0x0a, 2, b'n']), Err(WireError::Truncated));
    }

    /// Fields of all kinds beside the wanted one are skipped; of a message that is cut no more is found than it holds.
    #[test]
    fn wanted_fields_are_found() {
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        let mut rng = StdRng::seed_from_u64(2);
        for _ in 0..100 {
            let (mut message, mut expected) = (Vec::new(), Vec::new());
            for _ in 0..rng.random_range(0..10) {
                let field = rng.random_range(1..6_u32);
                let bytes = vec![rng.random::<u8>(); rng.random_range(0..200)];
                let kind = [VARINT, FIXED64, BYTES, FIXED32][rng.random_range(0..4)];
                if field == 2 || kind == BYTES {
                    put_bytes(&mut message, field, &bytes);
                    expected.extend((field == 2).then_some(bytes));
                    continue;
                }
                put_varint(&mut message, u64::from(tag(field, kind)));
                match kind {
                    VARINT => put_varint(&mut message, rng.random()),
                    FIXED64 => message.extend(rng.random::<u64>().to_le_bytes()),
                    _ => message.extend(rng.random::<u32>().to_le_bytes()),
                }
            }
            let mut found = Vec::new();
            let push = |bytes: &[u8]| {
                found.push(bytes.to_vec());
                Ok::<_, WireError>(())
            };
            each(&message, 2, &[2], push).unwrap();
            assert_eq!(found, expected, "{message:x?}");
            for len in 0..message.len() {
                let mut count = 0;
                let outcome = each(&message[..len], 2, &[2], |bytes: &[u8]| {
                    assert_eq!(bytes, expected[count]);
                    count += 1;
                    Ok::<_, WireError>(())
                });
                assert!(
                    matches!(outcome, Ok(()) | Err(WireError::Truncated)),
                    "{outcome:?} of {message:x?} cut at {len}"
                );
            }
        }
    }
}
