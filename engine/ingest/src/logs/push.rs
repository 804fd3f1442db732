//! Push of a log aggregator (Loki): streams of entries, as JSON or as protobuf in snappy. A body of another shape
//! fails as a whole.

use std::borrow::Cow;

use quiver_types::logs::RecordMarks;

use super::json::{Cursor, JsonFault};
use super::names::{MSG_NAME, ROOT};
use super::options::Defaults;
use super::rows::Rows;
use super::time::{Stamp, unix};
use super::{DecodedLogs, LogsContext, labels, lossy};
use crate::error::{Error, Result};
use crate::wire::{BYTES, Reader, VARINT, pair, tag};

/// Labels of a stream, ready to be added to each of its rows.
#[derive(Debug, Default)]
struct Labels {
    pairs: Vec<(String, String)>,
    canonical: Vec<u8>,
    names: Vec<u32>,
    generation: u32,
}

impl Labels {
    /// Takes new pairs; of equal names the last one counts.
    fn set(&mut self, rows: &mut Rows, pairs: Vec<(String, String)>) {
        self.pairs = pairs;
        let labels = self.pairs.iter().filter_map(|(name, value)| Some((rows.label(name)?, value)));
        labels::canonical(labels.collect(), &mut self.canonical);
        if !rows.names_stream_fields() {
            rows.set_stream(&self.canonical);
        }
        self.generation = 0;
    }

    fn add(&mut self, rows: &mut Rows) {
        if self.generation != rows.names.generation {
            self.names.clear();
            self.names.extend(self.pairs.iter().map(|(name, _)| rows.field_name(name)));
            self.generation = rows.names.generation;
        }
        for (name, (_, value)) in self.names.iter().zip(&self.pairs) {
            rows.add_plain(*name, value);
        }
    }
}

/// Adds the line of an entry: its fields when it is an object, else the message.
fn add_line(rows: &mut Rows, line: &str) {
    if !rows.keeps_messages() && line.trim_ascii_start().starts_with('{') {
        let (mark, mut json) = (rows.mark(), Cursor::new(line));
        if rows.object(&mut json).is_ok() && json.at_end() {
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
    let text = lossy(body);
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
    // The labels may stand behind the values: those are read once the labels are known.
    let (mut labels, mut waiting, mut seen) = (None, None, false);
    json.expect(b'{', "expected a stream")?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        match &*json_key(json)? {
            "stream" => {
                let pairs = json_texts(json, "labels must be an object of texts")?;
                labels.get_or_insert_with(Labels::default).set(rows, pairs);
            }
            "values" if seen => return Err(json.fault("`values` stands twice").into()),
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
            let mut none = Labels::default();
            none.set(rows, Vec::new());
            none
        });
        json_entries(rows, &mut values, &mut labels)?;
    }
    Ok(())
}

fn json_entries(rows: &mut Rows, json: &mut Cursor<'_>, labels: &mut Labels) -> Result<()> {
    json.expect(b'[', "expected a list of entries")?;
    let mut first = true;
    while json.next_item(first, b']')? {
        first = false;
        json_entry(rows, json, labels)?;
        rows.check_memory()?;
    }
    Ok(())
}

fn json_entry(rows: &mut Rows, json: &mut Cursor<'_>, labels: &mut Labels) -> Result<()> {
    const SHAPE: &str = "an entry is a list of time, line and, if there is some, metadata";
    json.expect(b'[', SHAPE)?;
    let time = json.string("the time of an entry must be a text")?.text();
    let time = if time.is_empty() { Some(Stamp::Arrival) } else { unix(&time) };
    let time = time.ok_or_else(|| json.fault("the time of an entry cannot be read"))?;
    json.expect(b',', SHAPE)?;
    let line = json.string("the line of an entry must be a text")?.text();
    labels.add(rows);
    if json.take(b',') {
        const METADATA: &str = "metadata must be an object of texts";
        json.expect(b'{', METADATA)?;
        let mut last = 0;
        while json.next_key(last == 0)? {
            last = rows.key(json, ROOT, last)?;
            let text = json.string(METADATA)?;
            rows.add_plain_text(rows.names.name_of(last), text);
        }
    }
    json.expect(b']', SHAPE)?;
    add_line(rows, &line);
    // Why a row is dropped stands in the report; the request goes on.
    let _ = rows.end(time, RecordMarks::default());
    Ok(())
}

/// Reads an object of texts.
fn json_texts(json: &mut Cursor<'_>, what: &'static str) -> Result<Vec<(String, String)>, JsonFault> {
    let mut pairs = Vec::new();
    json.expect(b'{', what)?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        let key = json_key(json)?.into_owned();
        pairs.push((key, json.string(what)?.text().into_owned()));
    }
    Ok(pairs)
}

/// Decodes a protobuf body, decompressed.
///
/// # Errors
/// Invalid: not this message, or labels that cannot be read. TooLarge: the rows take too much memory.
pub fn decode_protobuf(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    const STREAMS: u32 = tag(1, BYTES);
    let mut rows = Rows::new(ctx, Defaults::RECORDS);
    let mut labels = Labels::default();
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            STREAMS => protobuf_stream(&mut rows, r.bytes()?, &mut labels)?,
            other => r.skip(other, &[1])?,
        }
    }
    Ok(DecodedLogs::of(rows))
}

fn protobuf_stream(rows: &mut Rows, message: &[u8], labels: &mut Labels) -> Result<()> {
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
    let pairs = labels::parse(&text)
        .ok_or_else(|| Error::Format(format!("labels `{}` cannot be read", crate::codec::cut(&text))))?;
    labels.set(rows, pairs.into_iter().map(|(n, v)| (n.to_owned(), v)).collect());
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

fn protobuf_entry(rows: &mut Rows, message: &[u8], labels: &mut Labels) -> Result<()> {
    const TIME: u32 = tag(1, BYTES);
    const LINE: u32 = tag(2, BYTES);
    const METADATA: u32 = tag(3, BYTES);
    let (mut time, mut line): (&[u8], &[u8]) = (b"", b"");
    labels.add(rows);
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

/// Reads a `Timestamp`: seconds and nanoseconds; 0 is the time of arrival.
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
