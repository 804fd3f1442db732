//! Converts OTLP/JSON to the protobuf bytes of the same message, so that one decoder reads both. It is driven by the
//! tables of `schema`, with the rules of the OTLP specification: keys in lowerCamelCase only, trace and span ids in
//! hex, enums as numbers (names are accepted, too), integers as strings or numbers and refused where their field cannot
//! hold them, unknown keys ignored, `null` like an absent field. Lengths of messages have a fixed width and are filled in
//! at their end.

mod integer;
#[cfg(test)]
mod tests;

use quiver_types::hex_bytes;
use quiver_types::text::from_base64;

use crate::decode_memory;
use crate::error::{Error, Result};
use crate::json::{Json, Next, Scalar};
use crate::otlp::schema::{Field, Message, ValueKind};
use crate::wire::{BYTES, FIXED32, FIXED64, VARINT, put_bytes, put_varint, tag};
use integer::Width;

/// Deepest nesting of objects and lists.
const DEPTH_MAX: usize = 64;
/// Bytes of a length that is filled in later: a varint of 5 bytes holds 35 bits.
const LENGTH_BYTES: usize = 5;
/// Most bytes of a tag: the fields of all messages have numbers below 2048.
const TAG_BYTES_MAX: usize = 2;
/// Most bytes of a number, as a varint.
const NUMBER_BYTES_MAX: usize = 10;

/// Converts an OTLP/JSON document to the bytes of a message.
///
/// # Errors
///
/// Invalid: not JSON, or a value of the wrong type. TooLarge: longer than `limit_bytes` as protobuf.
pub fn to_protobuf(body: &[u8], message: &'static Message, limit_bytes: usize) -> Result<Vec<u8>> {
    let mut t = Transcoder { json: Json::new(body)?, out: Vec::new(), limit_bytes, depth: 0 };
    t.reserve((body.len() / 2).min(limit_bytes))?;
    if t.json.next()? != Next::Object {
        return Err(t.json.error("expected an object"));
    }
    t.message(message)?;
    t.json.end()?;
    Ok(t.out)
}

struct Transcoder<'a> {
    json: Json<'a>,
    out: Vec<u8>,
    limit_bytes: usize,
    depth: usize,
}

impl<'a> Transcoder<'a> {
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.json.error("nested too deeply")) } else { Ok(()) }
    }

    /// Makes room for so many bytes more, within the size limit; memory is reserved first, of the old place and of the
    /// new one while what is there is moved.
    fn reserve(&mut self, more: usize) -> Result<()> {
        let (needed, capacity) = (self.out.len() + more, self.out.capacity());
        if needed > self.limit_bytes {
            return Err(Error::TooLarge { what: "body as protobuf", limit_bytes: self.limit_bytes });
        }
        if needed > capacity {
            let grown = needed.max(2 * capacity).min(self.limit_bytes);
            decode_memory::hold_beside(grown)?;
            self.out.reserve_exact(grown - self.out.len());
            decode_memory::give_back_beside(capacity);
        }
        Ok(())
    }

    /// Writes the fields of an object.
    fn message(&mut self, message: &'static Message) -> Result<()> {
        self.deeper()?;
        self.json.enter(b'{')?;
        let mut first = true;
        while let Some(key) = self.json.key(first)? {
            first = false;
            match message.fields.iter().find(|f| f.name == key) {
                Some(field) => self.field(field)?,
                None => self.json.skip()?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<()> {
        let next = self.json.next()?;
        if !field.repeated {
            return self.value(field, next);
        }
        if next != Next::List {
            return match self.json.scalar() {
                Ok(Scalar::Null) => Ok(()),
                _ => Err(self.wrong(field, "expected a list")),
            };
        }
        self.deeper()?;
        self.json.enter(b'[')?;
        // Numbers are written as one packed field, without a tag per element.
        let packed = matches!(field.kind, ValueKind::Fixed64 | ValueKind::Uint64 | ValueKind::Double);
        let length_at = if packed { Some(self.begin(field.number)?) } else { None };
        let mut first = true;
        while self.json.item(first, b']')? {
            first = false;
            let next = self.json.next()?;
            if packed {
                let scalar = self.scalar(field, next)?;
                let value = match field.kind {
                    ValueKind::Double => self.double(field, &scalar)?.to_bits(),
                    _ => self.integer(field, &scalar)?,
                };
                self.reserve(NUMBER_BYTES_MAX)?;
                match field.kind {
                    ValueKind::Uint64 => put_varint(&mut self.out, value),
                    _ => self.out.extend_from_slice(&value.to_le_bytes()),
                }
            } else {
                self.value(field, next)?;
            }
        }
        if let Some(at) = length_at {
            self.end(at);
        }
        self.depth -= 1;
        Ok(())
    }

    /// Begins a length-delimited field; returns the offset of its length.
    fn begin(&mut self, number: u32) -> Result<usize> {
        self.reserve(TAG_BYTES_MAX + LENGTH_BYTES)?;
        put_varint(&mut self.out, u64::from(tag(number, BYTES)));
        self.out.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0]);
        Ok(self.out.len() - LENGTH_BYTES)
    }

    fn end(&mut self, at: usize) {
        let len = self.out.len() - at - LENGTH_BYTES;
        for (i, byte) in self.out[at..at + LENGTH_BYTES].iter_mut().enumerate() {
            *byte |= (len >> (7 * i)) as u8 & 0x7f;
        }
    }

    /// Says what is wrong with the value of a field.
    fn wrong(&self, field: &Field, what: &'static str) -> Error {
        Error::JsonField { offset: self.json.position(), field: field.name, what }
    }

    fn scalar(&mut self, field: &Field, next: Next) -> Result<Scalar<'a>> {
        match next {
            Next::Scalar => self.json.scalar(),
            _ => Err(self.wrong(field, "expected a number, a text or a boolean")),
        }
    }

    fn inner_message(&mut self, field: &Field, message: &'static Message, next: Next) -> Result<()> {
        if next == Next::Object {
            let at = self.begin(field.number)?;
            self.message(message)?;
            self.end(at);
            return Ok(());
        }
        match self.json.scalar() {
            Ok(Scalar::Null) if !field.repeated => Ok(()),
            _ => Err(self.wrong(field, "expected an object")),
        }
    }

    fn value(&mut self, field: &'static Field, next: Next) -> Result<()> {
        if let ValueKind::Message(message) = field.kind {
            return self.inner_message(field, message, next);
        }
        let scalar = self.scalar(field, next)?;
        if scalar == Scalar::Null {
            return Ok(());
        }
        let number = field.number;
        match field.kind {
            ValueKind::Message(_) => {}
            ValueKind::Text => {
                let text = self.text(field, &scalar)?;
                self.bytes(number, text.as_bytes())?;
            }
            ValueKind::Hex | ValueKind::Base64 => {
                let text = self.text(field, &scalar)?;
                let is_hex = matches!(field.kind, ValueKind::Hex);
                let bytes = if is_hex { hex_bytes(text) } else { from_base64(text) };
                let bytes = bytes.ok_or_else(|| self.wrong(field, "text is not hex, or not base64"))?;
                self.bytes(number, &bytes)?;
            }
            ValueKind::Id => {
                let text = self.text(field, &scalar)?;
                self.bytes(number, &hex_bytes(text).unwrap_or_else(|| vec![0]))?;
            }
            ValueKind::Bool => {
                let Scalar::Bool(value) = scalar else { return Err(self.wrong(field, "expected a boolean")) };
                self.varint(number, u64::from(value))?;
            }
            ValueKind::Uint32 | ValueKind::Uint64 | ValueKind::Int64 => {
                let value = self.integer(field, &scalar)?;
                self.varint(number, value)?;
            }
            ValueKind::Sint32 => {
                let value = self.integer(field, &scalar)? as i64;
                self.varint(number, ((value << 1) ^ (value >> 63)) as u64)?;
            }
            ValueKind::Enum(names) => {
                let named = match &scalar {
                    Scalar::Text(text) => names.iter().position(|name| name == text).map(|i| i as u64),
                    _ => None,
                };
                let value = named.map_or_else(|| self.integer(field, &scalar), Ok)?;
                self.varint(number, value)?;
            }
            ValueKind::Fixed64 | ValueKind::Sfixed64 => {
                let value = self.integer(field, &scalar)?;
                self.fixed64(number, value)?;
            }
            ValueKind::Fixed32 => {
                let value = self.integer(field, &scalar)?;
                self.reserve(TAG_BYTES_MAX + size_of::<u32>())?;
                put_varint(&mut self.out, u64::from(tag(number, FIXED32)));
                self.out.extend_from_slice(&(value as u32).to_le_bytes());
            }
            ValueKind::Double => {
                let value = self.double(field, &scalar)?;
                self.fixed64(number, value.to_bits())?;
            }
        }
        Ok(())
    }

    fn varint(&mut self, number: u32, value: u64) -> Result<()> {
        self.reserve(TAG_BYTES_MAX + NUMBER_BYTES_MAX)?;
        put_varint(&mut self.out, u64::from(tag(number, VARINT)));
        put_varint(&mut self.out, value);
        Ok(())
    }

    fn fixed64(&mut self, number: u32, value: u64) -> Result<()> {
        self.reserve(TAG_BYTES_MAX + NUMBER_BYTES_MAX)?;
        put_varint(&mut self.out, u64::from(tag(number, FIXED64)));
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) -> Result<()> {
        self.reserve(TAG_BYTES_MAX + NUMBER_BYTES_MAX + bytes.len())?;
        put_bytes(&mut self.out, number, bytes);
        Ok(())
    }

    fn text<'s>(&self, field: &Field, scalar: &'s Scalar<'_>) -> Result<&'s str> {
        let Scalar::Text(text) = scalar else { return Err(self.wrong(field, "expected a text")) };
        Ok(text)
    }

    /// Reads an integer of a field from a number or a string, as its 64 bits.
    fn integer(&self, field: &Field, scalar: &Scalar<'_>) -> Result<u64> {
        let text: &str = match scalar {
            Scalar::Number(text) => text,
            Scalar::Text(text) => text,
            _ => return Err(self.wrong(field, "expected an integer")),
        };
        let width = match field.kind {
            ValueKind::Uint32 | ValueKind::Fixed32 => Width::Unsigned32,
            ValueKind::Sint32 | ValueKind::Enum(_) => Width::Signed32,
            ValueKind::Int64 | ValueKind::Sfixed64 => Width::Signed64,
            _ => Width::Unsigned64,
        };
        integer::read(text, width).map_err(|what| self.wrong(field, what))
    }

    fn double(&self, field: &Field, scalar: &Scalar<'_>) -> Result<f64> {
        let text: &str = match scalar {
            Scalar::Number(text) => text,
            Scalar::Text(text) => text,
            _ => return Err(self.wrong(field, "expected a number")),
        };
        let special = match text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        let finite = || text.parse::<f64>().ok().filter(|v| v.is_finite());
        special.or_else(finite).ok_or_else(|| self.wrong(field, "expected a number"))
    }
}
