//! OTLP attribute values as they are stored: plain ones as they are, lists and maps as OTLP/JSON.

use std::fmt::Write;
use std::ops::Range;

use quiver_types::spans::Value;

use super::SpanReason;
use crate::otlp::any_value::{OtlpValue, key_value, read};
use crate::wire::{DEPTH_MAX, Reader, WireError};

/// Most attributes of a message that are read: a thousand are kept, and an entry of two bytes takes fifty here.
const ENTRIES_MAX: usize = 16 << 10;
/// Bytes of a list or map, as JSON, beyond which the rest of it is not read: values are cut far below.
const JSON_BYTES_MAX: usize = 64 << 10;
/// Bytes of all of them, more than any span has.
const JSON_TOTAL_MAX: usize = 16 << 20;

/// Why attributes cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The body is no message.
    Wire(WireError),
    /// The span around them is refused.
    Refused(SpanReason),
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| Fault::Refused(SpanReason::InvalidUtf8))
}

/// A value; lists and maps are a range of [`Scratch::json`].
#[derive(Debug, Clone)]
enum Raw<'a> {
    Plain(Value<'a>),
    Json(Range<usize>),
}

/// Attributes of one message, while they are read.
#[derive(Debug, Default)]
pub(super) struct Scratch<'a> {
    entries: Vec<(&'a str, Raw<'a>)>,
    json: String,
    /// Entries that found no room.
    left_out: u64,
    /// By place the key that stood there last: most messages have the same keys in the same order.
    keys: Vec<&'a str>,
    /// A list to be reused for its memory.
    spare: Vec<(&'static str, Value<'static>)>,
}

impl<'a> Scratch<'a> {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.json.clear();
        self.left_out = 0;
    }

    /// How many entries found no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Reads a `KeyValue`.
    pub(super) fn push(&mut self, message: &'a [u8]) -> Result<(), Fault> {
        let (key, value) = key_value(message)?;
        if self.entries.len() >= ENTRIES_MAX || self.json.len() > JSON_TOTAL_MAX {
            self.left_out += 1;
            return Ok(());
        }
        let raw = match read(value)? {
            OtlpValue::Empty => Raw::Plain(Value::Text("")),
            OtlpValue::Text(bytes) => Raw::Plain(Value::Text(text(bytes)?)),
            OtlpValue::Bool(v) => Raw::Plain(Value::Bool(v)),
            OtlpValue::Int(v) => Raw::Plain(Value::Int(v)),
            OtlpValue::Double(v) => Raw::Plain(Value::Double(v)),
            OtlpValue::Bytes(bytes) => Raw::Plain(Value::Bytes(bytes)),
            nested @ (OtlpValue::List(_) | OtlpValue::Map(_)) => {
                let start = self.json.len();
                push_json(nested, &mut self.json, start + JSON_BYTES_MAX, 0)?;
                Raw::Json(start..self.json.len())
            }
        };
        let key = self.key(key)?;
        self.entries.push((key, raw));
        Ok(())
    }

    /// Reads the key of the next entry.
    fn key(&mut self, bytes: &'a [u8]) -> Result<&'a str, Fault> {
        let place = self.entries.len();
        match self.keys.get_mut(place) {
            Some(known) if known.as_bytes() == bytes => {}
            Some(known) => *known = text(bytes)?,
            None => self.keys.resize(place + 1, text(bytes)?),
        }
        Ok(self.keys[place])
    }

    /// Hands out what was read.
    pub(super) fn with_list<R>(&mut self, f: impl FnOnce(&mut Vec<(&str, Value<'_>)>) -> R) -> R {
        let value = |raw: &Raw<'a>| match raw {
            Raw::Plain(value) => *value,
            Raw::Json(range) => Value::Json(&self.json[range.clone()]),
        };
        let mut list = emptied(std::mem::take(&mut self.spare));
        list.extend(self.entries.iter().map(|(key, raw)| (*key, value(raw))));
        let out = f(&mut list);
        self.spare = emptied(list);
        out
    }
}

/// Gives the memory of a list to another. (Collecting into the type that is there takes over its memory.)
fn emptied<'b>(mut list: Vec<(&str, Value<'_>)>) -> Vec<(&'b str, Value<'b>)> {
    list.clear();
    list.into_iter().map(|_| ("", Value::Bool(false))).collect()
}

fn push_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// Appends an `AnyValue` as OTLP/JSON; of items that would begin behind `end` none.
fn push_json(any: OtlpValue<'_>, out: &mut String, end: usize, depth: usize) -> Result<(), Fault> {
    if depth > DEPTH_MAX {
        return Err(WireError::TooDeep.into());
    }
    // A `String` takes whatever is written.
    let _ = match any {
        OtlpValue::Empty => write!(out, "{{}}"),
        OtlpValue::Text(bytes) => {
            out.push_str("{\"stringValue\":");
            push_text(text(bytes)?, out);
            write!(out, "}}")
        }
        OtlpValue::Bool(v) => write!(out, "{{\"boolValue\":{v}}}"),
        OtlpValue::Int(v) => write!(out, "{{\"intValue\":\"{v}\"}}"),
        OtlpValue::Double(v) if v.is_finite() => {
            write!(out, "{{\"doubleValue\":{}}}", serde_json::Value::from(v))
        }
        OtlpValue::Double(v) => {
            let name = if v.is_nan() {
                "NaN"
            } else if v > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            write!(out, "{{\"doubleValue\":\"{name}\"}}")
        }
        OtlpValue::Bytes(bytes) => write!(out, "{{\"bytesValue\":\"{}\"}}", Value::Bytes(bytes).text()),
        OtlpValue::List(message) => {
            out.push_str("{\"arrayValue\":{");
            push_items(message, out, end, |item, out| push_json(read(item)?, out, end, depth + 1))?;
            write!(out, "}}}}")
        }
        OtlpValue::Map(message) => {
            out.push_str("{\"kvlistValue\":{");
            push_items(message, out, end, |item, out| {
                let (key, value) = key_value(item)?;
                out.push_str("{\"key\":");
                push_text(text(key)?, out);
                out.push_str(",\"value\":");
                push_json(read(value)?, out, end, depth + 1)?;
                out.push('}');
                Ok(())
            })?;
            write!(out, "}}}}")
        }
    };
    Ok(())
}

/// Appends `"values":[…]`, nothing when there are none.
fn push_items(
    message: &[u8],
    out: &mut String,
    end: usize,
    mut item: impl FnMut(&[u8], &mut String) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut first = true;
    let mut r = Reader::new(message);
    while !r.is_empty() && out.len() <= end {
        match r.tag()? {
            0x0a => {
                out.push_str(if first { "\"values\":[" } else { "," });
                first = false;
                item(r.bytes()?, out)?;
            }
            other => r.skip(other, &[1])?,
        }
    }
    if !first {
        out.push(']');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_bytes;

    #[test]
    fn long_lists_end_early() {
        // Items of two bytes, which are three as JSON, as the value of a key.
        let mut list = Vec::new();
        put_bytes(&mut list, 5, &[0x0a_u8, 0].repeat(500_000));
        let mut pair = Vec::new();
        put_bytes(&mut pair, 1, b"k");
        put_bytes(&mut pair, 2, &list);
        let mut scratch = Scratch::default();
        scratch.push(&pair).unwrap();
        assert!((JSON_BYTES_MAX..JSON_BYTES_MAX + 100).contains(&scratch.json.len()), "{}", scratch.json.len());
        assert!(serde_json::from_str::<serde_json::Value>(&scratch.json).is_ok());
        for _ in 0..ENTRIES_MAX + 4 {
            scratch.push(&[]).unwrap();
        }
        assert_eq!((scratch.entries.len(), scratch.left_out()), (ENTRIES_MAX, 5));
        scratch.clear();
        assert_eq!(scratch.left_out(), 0);
    }
}
