//! Attribute values as fields: scalars as text, maps flattened with dots, lists as compact JSON.

use std::fmt::Write;

use quiver_types::text::{push_base64, push_double, push_json_text};

pub(super) use crate::otlp::any_value::key_value;

use super::super::names::MSG_NAME;
use super::super::row_counts::DropReason;
use super::super::rows::Rows;
use super::super::{NAME_BYTES_MAX, lossy};
use crate::error::Result;
use crate::otlp::any_value::{OtlpValue, read};
use crate::wire::{DEPTH_MAX, Reader, WireError};

/// The most fields of a map that are kept. A row has at most a thousand, and an entry of two bytes takes fifty here.
const FIELDS_MAX: usize = 16 << 10;
/// The most bytes of a list or map as text, beyond which the rest is not read: a row has at most half of that.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// How often what is read may be read again, before no map within it is split any more: one whose names become too long is
/// read a second time, and a third time if the same holds of the map that it stands in.
const AGAIN_MAX: usize = 3;

/// Flattened names and values; the memory is reused.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pairs: Vec<(String, String)>,
    text: String,
    /// Bytes of the values.
    bytes: usize,
    /// Why a row with these fields is dropped.
    fault: Option<DropReason>,
    /// Bytes of the member of the row that is read, and of what was read again of it.
    member_bytes: usize,
    again_bytes: usize,
}

/// How much there was at a place to go back to.
#[derive(Debug, Clone, Copy)]
struct FieldsMark {
    pairs: usize,
    bytes: usize,
    fault: Option<DropReason>,
}

impl Fields {
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        (self.bytes, self.fault) = (0, None);
    }

    /// Why a row with these fields is dropped, if they exceed what any row may have.
    pub(super) fn fault(&self) -> Option<DropReason> {
        self.fault
    }

    fn push(&mut self, name: String, text: String) {
        if self.pairs.len() == FIELDS_MAX {
            self.fault = Some(DropReason::TooManyFields);
        } else if self.bytes > TEXT_BYTES_MAX {
            self.fault = Some(DropReason::LargeRow);
        } else {
            self.bytes += text.len();
            self.pairs.push((name, text));
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = (String, String)> + '_ {
        self.pairs.drain(..)
    }

    /// Adds the fields of a value under a name.
    pub(super) fn flatten(&mut self, prefix: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let key = lossy(key);
        let name = if prefix.is_empty() { key.into_owned() } else { format!("{prefix}.{key}") };
        self.begin_member(value);
        self.value(name, read(value)?, 0, true)?;
        Ok(())
    }

    fn begin_member(&mut self, value: &[u8]) {
        (self.member_bytes, self.again_bytes) = (value.len(), 0);
    }

    fn mark(&self) -> FieldsMark {
        FieldsMark { pairs: self.pairs.len(), bytes: self.bytes, fault: self.fault }
    }

    fn take_back(&mut self, mark: FieldsMark) {
        self.pairs.truncate(mark.pairs);
        (self.bytes, self.fault) = (mark.bytes, mark.fault);
    }

    /// Returns whether the map that it stands in may be split: `false` if too much was read again, and it is no member of
    /// the row itself.
    fn value(&mut self, name: String, value: OtlpValue<'_>, depth: usize, is_member: bool) -> Result<bool, WireError> {
        let OtlpValue::Map(message) = value else {
            let mut text = String::new();
            push_text(value, &mut text)?;
            self.push(name, text);
            return Ok(true);
        };
        let mark = self.mark();
        if !self.members(&name, message, depth)? {
            // A nested name would be too long, so the map stays JSON.
            self.take_back(mark);
            // Each level above may find the same.
            if !is_member && self.again_bytes > AGAIN_MAX * self.member_bytes {
                return Ok(false);
            }
            let mut text = String::new();
            push_json(value, &mut text, depth)?;
            self.push(name, text);
            self.again_bytes += message.len();
        }
        Ok(true)
    }

    /// Returns whether the map may be split: all its names are short enough.
    fn members(&mut self, prefix: &str, message: &[u8], depth: usize) -> Result<bool, WireError> {
        if depth > DEPTH_MAX {
            return Err(WireError::TooDeep);
        }
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                0x0a => {
                    let (key, value) = key_value(r.bytes()?)?;
                    let key = lossy(key);
                    let name = if prefix.is_empty() { key.into_owned() } else { format!("{prefix}.{key}") };
                    if !prefix.is_empty() && name.len() > NAME_BYTES_MAX {
                        return Ok(false);
                    }
                    let is_member = prefix.is_empty();
                    if is_member {
                        self.begin_member(value);
                    }
                    if !self.value(name, read(value)?, depth + 1, is_member)? {
                        return Ok(false);
                    }
                }
                other => r.skip(other, &[1])?,
            }
        }
        Ok(true)
    }
}

/// Adds an attribute to the row.
pub(super) fn add(rows: &mut Rows, scratch: &mut Fields, key: &[u8], value: &[u8]) -> Result<()> {
    match read(value)? {
        OtlpValue::Text(text) => {
            let name = rows.field_name(&lossy(key));
            rows.add(name, &lossy(text));
        }
        OtlpValue::Map(_) => {
            scratch.flatten("", key, value)?;
            add_all(rows, scratch);
        }
        other => {
            scratch.text.clear();
            push_text(other, &mut scratch.text)?;
            let name = rows.field_name(&lossy(key));
            rows.add(name, &scratch.text);
        }
    }
    Ok(())
}

/// Adds the body: the message, or fields if it is a map.
pub(super) fn add_body(rows: &mut Rows, scratch: &mut Fields, value: &[u8]) -> Result<()> {
    match read(value)? {
        OtlpValue::Text(text) => rows.add(MSG_NAME, &lossy(text)),
        OtlpValue::Map(message) => {
            scratch.members("", message, 0)?;
            add_all(rows, scratch);
        }
        other => {
            scratch.text.clear();
            push_text(other, &mut scratch.text)?;
            rows.add(MSG_NAME, &scratch.text);
        }
    }
    Ok(())
}

fn add_all(rows: &mut Rows, scratch: &mut Fields) {
    if let Some(why) = scratch.fault() {
        rows.lose(why);
    }
    for (name, text) in scratch.drain() {
        let name = rows.field_name(&name);
        rows.add(name, &text);
    }
    scratch.clear();
}

fn push_text(value: OtlpValue<'_>, out: &mut String) -> Result<(), WireError> {
    match value {
        OtlpValue::Empty => {}
        OtlpValue::Text(text) => out.push_str(&lossy(text)),
        OtlpValue::Double(v) => push_double(v, out),
        OtlpValue::Bytes(bytes) => push_base64(bytes, out),
        other => push_json(other, out, 0)?,
    }
    Ok(())
}

fn push_json(value: OtlpValue<'_>, out: &mut String, depth: usize) -> Result<(), WireError> {
    if depth > DEPTH_MAX {
        return Err(WireError::TooDeep);
    }
    let (message, open, close) = match value {
        OtlpValue::Text(text) => {
            push_json_text(&lossy(text), out);
            return Ok(());
        }
        OtlpValue::Bool(v) => {
            out.push_str(if v { "true" } else { "false" });
            return Ok(());
        }
        OtlpValue::Int(v) => {
            let _ = write!(out, "{v}");
            return Ok(());
        }
        OtlpValue::Double(v) if v.is_finite() => {
            push_double(v, out);
            return Ok(());
        }
        // JSON cannot express numbers that are not finite.
        OtlpValue::Empty | OtlpValue::Double(_) => {
            out.push_str("null");
            return Ok(());
        }
        OtlpValue::Bytes(bytes) => {
            out.push('"');
            push_base64(bytes, out);
            out.push('"');
            return Ok(());
        }
        OtlpValue::List(message) => (message, '[', ']'),
        OtlpValue::Map(message) => (message, '{', '}'),
    };
    out.push(open);
    let mut first = true;
    let mut r = Reader::new(message);
    while !r.is_empty() && out.len() <= TEXT_BYTES_MAX {
        match r.tag()? {
            0x0a => {
                if !first {
                    out.push(',');
                }
                first = false;
                let mut item = r.bytes()?;
                if open == '{' {
                    let (key, value) = key_value(item)?;
                    push_json_text(&lossy(key), out);
                    out.push(':');
                    item = value;
                }
                push_json(read(item)?, out, depth + 1)?;
            }
            other => r.skip(other, &[1])?,
        }
    }
    out.push(close);
    Ok(())
}
