//! Pushes of a log aggregator (Loki): streams of entries, as JSON or as snappy-compressed protobuf. A body of another
//! form fails as a whole.

use std::borrow::Cow;

use quiver_types::logs::RecordMarks;

use super::json::{Cursor, JsonFault};
use super::names::{MSG_NAME, ROOT};
use super::options::Defaults;
use super::rows::Rows;
use super::shared_fields::SharedFields;
use super::time::{Stamp, unix};
use super::{DecodedLogs, LogsContext, labels, lossy, lossy_body};
use crate::error::{Error, Result};
use crate::wire::{BYTES, Reader, VARINT, pair, tag};

/// Adds the line of an entry: its fields if it is a JSON object, else as message.
fn add_line(rows: &mut Rows, line: &str) {
    if !rows.keeps_messages() && line.trim_ascii_start().starts_with('{') {
        let (mark, mut json) = (rows.mark(), Cursor::new(line));
        if rows.message_object(&mut json).is_ok() && json.at_end() {
            return;
        }
        rows.take_back(mark);
    }
    rows.add_plain(MSG_NAME, line);
}

/// Decodes a JSON body.
///
/// # Errors
/// Invalid: another shape. TooLarge: the rows take too much memory.
pub fn decode_json(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    let text = lossy_body(body)?;
    let mut json = Cursor::new(&text);
    let mut rows = Rows::new(ctx, Defaults::RECORDS);
    let mut seen = false;
    json.expect(b'{', "expected an object")?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        if json_key(&mut json)? != "streams" {
            json.skip()?;
            continue;
        }
        seen = true;
        json.expect(b'[', "expected a list of streams")?;
        let mut first = true;
        while json.next_item(first, b']')? {
            first = false;
            json_stream(&mut rows, &mut json)?;
        }
    }
    if !json.at_end() {
        return Err(json.fault("unexpected text after the document").into());
    }
    if !seen {
        return Err(json.fault("`streams` is missing").into());
    }
    Ok(DecodedLogs::of(rows))
}

fn json_key<'a>(json: &mut Cursor<'a>) -> Result<Cow<'a, str>, JsonFault> {
    let key = json.text_rest()?.text();
    json.expect(b':', "expected `:`")?;
    Ok(key)
}

fn json_stream(rows: &mut Rows, json: &mut Cursor<'_>) -> Result<()> {
    // The labels may follow the values, which are then read once the labels are known.
    let (mut labels, mut waiting, mut seen) = (None, None, false);
    json.expect(b'{', "expected a stream")?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        match &*json_key(json)? {
            "stream" => {
                let labels = labels.get_or_insert_with(SharedFields::default);
                json_labels(json, labels)?;
                labels.set_stream(rows);
            }
            "values" if seen => return Err(json.fault("`values` is given more than once").into()),
            "values" => {
                seen = true;
                if let Some(labels) = &mut labels {
                    json_entries(rows, json, labels)?;
                } else {
                    waiting = Some(*json);
                    json.skip()?;
                }
            }
            _ => json.skip()?,
        }
    }
    if !seen {
        return Err(json.fault("`values` is missing").into());
    }
    if let Some(mut values) = waiting {
        let mut labels = labels.unwrap_or_else(|| {
            let none = SharedFields::default();
            none.set_stream(rows);
            none
        });
        json_entries(rows, &mut values, &mut labels)?;
    }
    Ok(())
}

fn json_entries(rows: &mut Rows, json: &mut Cursor<'_>, labels: &mut SharedFields) -> Result<()> {
    json.expect(b'[', "expected a list of entries")?;
    let mut first = true;
    while json.next_item(first, b']')? {
        first = false;
        json_entry(rows, json, labels)?;
        rows.check_memory()?;
    }
    Ok(())
}

fn json_entry(rows: &mut Rows, json: &mut Cursor<'_>, labels: &mut SharedFields) -> Result<()> {
    const SHAPE: &str = "an entry is a list of time, line and, if there is some, metadata";
    json.expect(b'[', SHAPE)?;
    let time = json.string("the time of an entry must be a text")?.text();
    let time = if time.is_empty() { Some(Stamp::Arrival) } else { unix(&time) };
    // A number beyond 64 bits is no time that is too old or too new, but a mistake of the sender.
    let time = time.filter(|time| !matches!(time, Stamp::Before | Stamp::After));
    let time = time.ok_or_else(|| json.fault("the time of an entry cannot be read"))?;
    json.expect(b',', SHAPE)?;
    let line = json.string("the line of an entry must be a text")?.text();
    labels.add_plain(rows);
    if json.take(b',') {
        const METADATA: &str = "metadata must be an object of texts";
        json.expect(b'{', METADATA)?;
        let (mut last, mut first) = (0, true);
        while json.next_key(first)? {
            first = false;
            if rows.is_lost() {
                json_key(json)?;
                json.string(METADATA)?;
                continue;
            }
            last = rows.key(json, ROOT, last)?;
            let text = json.string(METADATA)?;
            rows.add_plain_text(rows.names.name_of(last), text);
        }
    }
    json.expect(b']', SHAPE)?;
    add_line(rows, &line);
    // The report counts why a row is dropped; the request continues.
    let _ = rows.end(time, RecordMarks::default());
    Ok(())
}

/// Reads an object of texts as the labels.
fn json_labels(json: &mut Cursor<'_>, labels: &mut SharedFields) -> Result<(), JsonFault> {
    const SHAPE: &str = "labels must be an object of texts";
    labels.clear();
    json.expect(b'{', SHAPE)?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        let key = json_key(json)?.into_owned();
        labels.push(key, json.string(SHAPE)?.text().into_owned());
    }
    Ok(())
}

/// Decodes a protobuf body, decompressed.
///
/// # Errors
/// Invalid: not this message, or labels that cannot be read. TooLarge: the rows take too much memory.
pub fn decode_protobuf(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    const STREAMS: u32 = tag(1, BYTES);
    let mut rows = Rows::new(ctx, Defaults::RECORDS);
    let mut labels = SharedFields::default();
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            STREAMS => protobuf_stream(&mut rows, r.bytes()?, &mut labels)?,
            other => r.skip(other, &[1])?,
        }
    }
    Ok(DecodedLogs::of(rows))
}

fn protobuf_stream(rows: &mut Rows, message: &[u8], labels: &mut SharedFields) -> Result<()> {
    const LABELS: u32 = tag(1, BYTES);
    const ENTRIES: u32 = tag(2, BYTES);
    let mut text: &[u8] = b"{}";
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            LABELS => text = r.bytes()?,
            ENTRIES => {
                r.bytes()?;
            }
            other => r.skip(other, &[1, 2])?,
        }
    }
    let text = lossy(text);
    labels.clear();
    labels::each(&text, |name, value| labels.push(name.to_owned(), value))
        .ok_or_else(|| Error::Format(format!("labels `{}` cannot be read", crate::content_encoding::cut(&text))))?;
    labels.set_stream(rows);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            ENTRIES => {
                protobuf_entry(rows, r.bytes()?, labels)?;
                rows.check_memory()?;
            }
            other => r.skip_value(other & 7)?,
        }
    }
    Ok(())
}

fn protobuf_entry(rows: &mut Rows, message: &[u8], labels: &mut SharedFields) -> Result<()> {
    const TIME: u32 = tag(1, BYTES);
    const LINE: u32 = tag(2, BYTES);
    const METADATA: u32 = tag(3, BYTES);
    let (mut time, mut line): (&[u8], &[u8]) = (b"", b"");
    labels.add_plain(rows);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            TIME => time = r.bytes()?,
            LINE => line = r.bytes()?,
            METADATA => {
                let (name, value) = pair(r.bytes()?)?;
                let name = rows.field_name(&lossy(name));
                rows.add_plain(name, &lossy(value));
            }
            other => r.skip(other, &[1, 2, 3])?,
        }
    }
    let time = timestamp(time)?;
    add_line(rows, &lossy(line));
    let _ = rows.end(time, RecordMarks::default());
    Ok(())
}

/// Reads a `Timestamp` of seconds and nanoseconds; 0 means the time of arrival.
fn timestamp(message: &[u8]) -> Result<Stamp> {
    const SECONDS: u32 = tag(1, VARINT);
    const NANOS: u32 = tag(2, VARINT);
    let (mut seconds, mut nanos) = (0i64, 0i64);
    let mut r = Reader::new(message);
    while !r.is_empty() {
        match r.tag()? {
            SECONDS => seconds = r.varint()? as i64,
            NANOS => nanos = i64::from(r.varint()? as i32),
            other => r.skip(other, &[1, 2])?,
        }
    }
    Ok(match i128::from(seconds) * 1_000_000_000 + i128::from(nanos) {
        0 => Stamp::Arrival,
        nanos => Stamp::of(nanos),
    })
}
