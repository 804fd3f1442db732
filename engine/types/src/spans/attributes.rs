//! Attributes in one run of bytes: sorted by key, each with the type that it came with.
//!
//! Entry: length of the key (varint), key, type (one letter), value. Values: `s` text and `j` JSON with a varint length,
//! `x` bytes likewise, `i` and `d` 8 bytes little endian, `b` one byte. `j` holds a list or a map as OTLP/JSON
//! (`{"arrayValue":…}`, `{"kvlistValue":…}`), so that the types inside of it last too.

use std::fmt::Write;

use crate::text::{EXACT_INTEGERS_MAX, from_base64, is_exact, is_same_number, push_base64, push_double};

/// The value of an attribute, of the types that OTLP has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A text (`s`).
    Text(&'a str),
    /// An integer (`i`).
    Int(i64),
    /// A double (`d`).
    Double(f64),
    /// A truth value (`b`).
    Bool(bool),
    /// Bytes (`x`), shown as base64.
    Bytes(&'a [u8]),
    /// A list or a map in OTLP/JSON (`j`).
    Json(&'a str),
}

/// An attribute: key and value.
pub type Attribute<'a> = (&'a str, Value<'a>);

impl<'a> Value<'a> {
    /// Gives the value as a number, where it is one that a double holds exactly (or a finite double).
    pub fn metric(self) -> Option<f64> {
        match self {
            Self::Int(v) if v.unsigned_abs() < EXACT_INTEGERS_MAX => Some(v as f64),
            Self::Double(v) if v.is_finite() => Some(v),
            _ => None,
        }
    }

    /// Gives the value as a number, a text that is one included.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Int(v) => Some(v as f64),
            Self::Double(v) => Some(v),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Says whether it is a number that a text stands for as well. Whole numbers that no double holds exactly compare by
    /// their digits: as doubles they equal others, and ids are such numbers.
    pub(super) fn is_number(self, text: &str, number: f64) -> bool {
        if self.number() != Some(number) {
            return false;
        }
        match self {
            Self::Int(_) | Self::Text(_) if !is_exact(number) => is_same_number(&self.text(), text, number),
            _ => true,
        }
    }

    /// Appends the value as text: numbers as short as they read back, lists and maps as compact JSON, bytes as base64.
    pub fn push_text(self, out: &mut String) {
        // A `String` takes whatever is written.
        let _ = match self {
            Self::Text(text) => out.write_str(text),
            Self::Int(v) => write!(out, "{v}"),
            Self::Double(v) => {
                push_double(v, out);
                Ok(())
            }
            Self::Bool(v) => out.write_str(if v { "true" } else { "false" }),
            Self::Bytes(bytes) => {
                push_base64(bytes, out);
                Ok(())
            }
            Self::Json(json) => out.write_str(&json_text(json)),
        };
    }

    /// Gives the value as text.
    pub fn text(self) -> std::borrow::Cow<'a, str> {
        match self {
            Self::Text(text) => text.into(),
            other => {
                let mut out = String::new();
                other.push_text(&mut out);
                out.into()
            }
        }
    }

    /// Gives the letter of its type.
    pub fn letter(self) -> u8 {
        match self {
            Self::Text(_) => b's',
            Self::Int(_) => b'i',
            Self::Double(_) => b'd',
            Self::Bool(_) => b'b',
            Self::Bytes(_) => b'x',
            Self::Json(_) => b'j',
        }
    }
}

/// Appends a value as text with its type before it: `i:5`. It reads back exactly.
pub fn push_typed_text(value: Value<'_>, out: &mut String) {
    out.push(char::from(value.letter()));
    out.push(':');
    match value {
        Value::Double(v) => {
            let _ = write!(out, "{v:?}");
        }
        Value::Json(json) => out.push_str(json),
        other => other.push_text(out),
    }
}

/// Appends an attribute whose value is text with its type before it; what is none counts as plain text.
pub fn push_typed(key: &str, typed: &str, out: &mut AttributeWriter) {
    let (letter, text) = typed.split_once(':').unwrap_or(("s", typed));
    match letter {
        "i" => {
            if let Ok(v) = text.parse() {
                return out.push(key, Value::Int(v));
            }
        }
        "d" => {
            if let Ok(v) = text.parse() {
                return out.push(key, Value::Double(v));
            }
        }
        "b" => return out.push(key, Value::Bool(text == "true")),
        "x" => {
            if let Some(bytes) = from_base64(text) {
                return out.push(key, Value::Bytes(&bytes));
            }
        }
        "j" => return out.push(key, Value::Json(text)),
        _ => {}
    }
    out.push(key, Value::Text(text));
}

/// Turns the OTLP/JSON of a list or a map into plain compact JSON (`[1,"a"]`, `{"k":true}`), keys of maps in order.
pub fn json_text(otlp: &str) -> String {
    let mut out = String::with_capacity(otlp.len() / 2);
    match serde_json::from_str::<serde_json::Value>(otlp) {
        Ok(value) => push_plain(&value, &mut out),
        Err(_) => out.push_str(otlp),
    }
    out
}

fn push_plain(any: &serde_json::Value, out: &mut String) {
    let Some((kind, value)) = any.as_object().and_then(|o| o.iter().next()) else {
        out.push_str("null");
        return;
    };
    let items = || value.get("values").and_then(|v| v.as_array()).map_or(&[][..], Vec::as_slice);
    match kind.as_str() {
        "arrayValue" => {
            out.push('[');
            for (i, item) in items().iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                push_plain(item, out);
            }
            out.push(']');
        }
        "kvlistValue" => {
            let mut entries: Vec<(&str, &serde_json::Value)> = Vec::new();
            for item in items() {
                let key = item.get("key").and_then(|k| k.as_str()).unwrap_or_default();
                entries.retain(|(known, _)| *known != key);
                entries.push((key, item.get("value").unwrap_or(&serde_json::Value::Null)));
            }
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&serde_json::Value::from(key).to_string());
                out.push(':');
                push_plain(value, out);
            }
            out.push('}');
        }
        "intValue" => match value.as_str() {
            Some(digits) => out.push_str(digits),
            // Some senders write it as a number.
            None => out.push_str(&value.to_string()),
        },
        "doubleValue" => match value.as_f64() {
            Some(v) => push_double(v, out),
            // NaN and infinities are texts there, and JSON has no numbers for them.
            None => out.push_str(&value.to_string()),
        },
        _ => out.push_str(&value.to_string()),
    }
}

/// Attributes as stored: see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Takes bytes that an [`AttributeWriter`] wrote.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Collects attributes; of equal keys the last wins.
    pub fn of<'a>(attributes: impl IntoIterator<Item = Attribute<'a>>) -> Self {
        let mut all: Vec<Attribute<'a>> = attributes.into_iter().collect();
        all.sort_by_key(|(key, _)| *key);
        let mut writer = AttributeWriter::default();
        for (i, (key, value)) in all.iter().enumerate() {
            if all.get(i + 1).is_none_or(|next| next.0 != *key) {
                writer.push(key, *value);
            }
        }
        Self(writer.0)
    }

    /// Gives the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the attributes in order of their keys.
    pub fn iter(&self) -> Iter<'_> {
        Self::read(&self.0)
    }

    /// Finds an attribute.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.iter().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// Gives a text attribute that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Reads attributes from bytes without taking them.
    pub fn read(bytes: &[u8]) -> Iter<'_> {
        Iter(RawIter(bytes))
    }

    /// The same, for those who look at few of the texts.
    pub fn raw(bytes: &[u8]) -> RawIter<'_> {
        RawIter(bytes)
    }

    /// Gives both together; of equal keys that of `later` wins.
    #[must_use]
    pub fn united(&self, later: &Self) -> Self {
        if later.is_empty() || self == later {
            return self.clone();
        }
        Self::of(self.iter().chain(later.iter()))
    }
}

impl<'a> IntoIterator for &'a Attributes {
    type Item = Attribute<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Appends attributes with others in the place of those of the same keys: none takes one away. The others come in order
/// of their keys, each key once.
pub fn push_replaced(bytes: &[u8], others: &[(&str, Option<Value<'_>>)], out: &mut Vec<u8>) {
    let mut others = others.iter().peekable();
    let mut left = RawIter(bytes);
    loop {
        let before = left.0;
        let Some(attribute) = left.next() else { break };
        while let Some((key, value)) = others.next_if(|(key, _)| key.as_bytes() < attribute.key) {
            if let Some(value) = value {
                push_attribute(out, key, *value);
            }
        }
        if others.peek().is_none_or(|(key, _)| key.as_bytes() != attribute.key) {
            out.extend_from_slice(&before[..before.len() - left.0.len()]);
        }
    }
    for (key, value) in others {
        if let Some(value) = value {
            push_attribute(out, key, *value);
        }
    }
}

/// Walks over attributes. Bytes that are none of ours end it.
#[derive(Debug, Clone)]
pub struct Iter<'a>(RawIter<'a>);

#[inline]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    match *bytes {
        [byte, rest @ ..] if *byte < 0x80 => {
            *bytes = rest;
            Some(u64::from(*byte))
        }
        _ => take_long_varint(bytes),
    }
}

fn take_long_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[inline]
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_varint(bytes)?;
    let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
    *bytes = rest;
    Some(taken)
}

pub(crate) fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(bytes)?).ok()
}

pub(crate) fn take_8(bytes: &mut &[u8]) -> Option<[u8; 8]> {
    let (taken, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(*taken)
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// An attribute whose texts nobody looked at yet.
#[derive(Debug, Clone, Copy)]
pub struct RawAttribute<'a> {
    /// Bytes of the key.
    pub key: &'a [u8],
    /// Letter of the type.
    pub letter: u8,
    value: &'a [u8],
}

impl<'a> RawAttribute<'a> {
    /// Gives the bytes of the value: those of a text, 8 of a number, one of a boolean.
    pub fn bytes(self) -> &'a [u8] {
        self.value
    }

    /// Reads the value; `None` for bytes that are none of ours.
    pub fn value(self) -> Option<Value<'a>> {
        let text = || std::str::from_utf8(self.value).ok();
        let eight = || <[u8; 8]>::try_from(self.value).ok();
        Some(match self.letter {
            b's' => Value::Text(text()?),
            b'j' => Value::Json(text()?),
            b'x' => Value::Bytes(self.value),
            b'i' => Value::Int(i64::from_le_bytes(eight()?)),
            b'd' => Value::Double(f64::from_le_bytes(eight()?)),
            b'b' => Value::Bool(*self.value.first()? != 0),
            _ => return None,
        })
    }
}

/// Walks over attributes without a look at their texts.
#[derive(Debug, Clone)]
pub struct RawIter<'a>(&'a [u8]);

impl<'a> Iterator for RawIter<'a> {
    type Item = RawAttribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawAttribute<'a>> {
        let bytes = &mut self.0;
        if bytes.is_empty() {
            return None;
        }
        let key = take_bytes(bytes)?;
        let (&letter, rest) = bytes.split_first()?;
        *bytes = rest;
        let value = match letter {
            b's' | b'j' | b'x' => take_bytes(bytes)?,
            b'i' | b'd' => {
                let (taken, rest) = bytes.split_at_checked(8)?;
                *bytes = rest;
                taken
            }
            b'b' => {
                let (taken, rest) = bytes.split_at_checked(1)?;
                *bytes = rest;
                taken
            }
            _ => return None,
        };
        Some(RawAttribute { key, letter, value })
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let raw = self.0.next()?;
        Some((std::str::from_utf8(raw.key).ok()?, raw.value()?))
    }
}

/// Writes attributes, which must come in order of their keys, each key once.
#[derive(Debug, Default, Clone)]
pub struct AttributeWriter(Vec<u8>);

impl AttributeWriter {
    /// Appends an attribute; its key must be greater than the last one.
    pub fn push(&mut self, key: &str, value: Value<'_>) {
        push_attribute(&mut self.0, key, value);
    }

    /// Gives what was written.
    pub fn finish(self) -> Attributes {
        Attributes(self.0)
    }

    /// Gives the bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes the bytes: one run, or several where they were written one behind the other.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Begins anew, in the memory that is there.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

pub(crate) fn push_attribute(out: &mut Vec<u8>, key: &str, value: Value<'_>) {
    put_bytes(out, key.as_bytes());
    out.push(value.letter());
    match value {
        Value::Text(text) | Value::Json(text) => put_bytes(out, text.as_bytes()),
        Value::Bytes(bytes) => put_bytes(out, bytes),
        Value::Int(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Double(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(v)),
    }
}

#[cfg(test)]
mod tests;
