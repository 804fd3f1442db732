//! OTLP logs: resources, scopes and records are read in place. JSON is converted to protobuf first.
//!
//! A row has the attributes of its resource (which also make up the stream), name, version and attributes of the
//! scope, body, attributes, ids and severity.

mod value;

use quiver_types::logs::RecordMarks;
use quiver_types::push_hex;

use super::options::Defaults;
use super::rows::Rows;
use super::shared_fields::SharedFields;
use super::time::Stamp;
use super::{DecodedLogs, LogsContext, lossy, lossy_body};
use crate::error::Result;
use crate::otlp::json::to_protobuf;
use crate::otlp::schema::LOGS_REQUEST;
use crate::wire::{BYTES, FIXED32, FIXED64, Reader, VARINT, tag};
use value::{Fields, key_value};

/// Names of severities by number, 1 to 24.
const SEVERITIES: [&str; 25] = [
    "Unspecified",
    "Trace",
    "Trace2",
    "Trace3",
    "Trace4",
    "Debug",
    "Debug2",
    "Debug3",
    "Debug4",
    "Info",
    "Info2",
    "Info3",
    "Info4",
    "Warn",
    "Warn2",
    "Warn3",
    "Warn4",
    "Error",
    "Error2",
    "Error3",
    "Error4",
    "Fatal",
    "Fatal2",
    "Fatal3",
    "Fatal4",
];

/// Decodes an `ExportLogsServiceRequest` in OTLP/JSON. Bytes that are no UTF-8 become the replacement character, as in
/// protobuf.
///
/// # Errors
/// Invalid: not JSON, or not this message. TooLarge: the rows take too much memory.
pub fn decode_json(body: &[u8], body_bytes_max: usize, ctx: &LogsContext) -> Result<DecodedLogs> {
    decode(&to_protobuf(lossy_body(body)?.as_bytes(), &LOGS_REQUEST, body_bytes_max)?, ctx)
}

/// Decodes an `ExportLogsServiceRequest`.
///
/// # Errors
/// Invalid: not this message. TooLarge: the rows take too much memory.
pub fn decode(body: &[u8], ctx: &LogsContext) -> Result<DecodedLogs> {
    const RESOURCE_LOGS: u32 = tag(1, BYTES);
    let mut walk =
        Walk { rows: Rows::new(ctx, Defaults::RECORDS), common: SharedFields::default(), scratch: Fields::default() };
    let mut r = Reader::new(body);
    while !r.is_empty() {
        match r.tag()? {
            RESOURCE_LOGS => walk.resource(r.bytes()?)?,
            other => r.skip(other, &[1])?,
        }
    }
    Ok(DecodedLogs::of(walk.rows))
}

struct Walk {
    rows: Rows,
    /// Fields that all records of a scope have in common.
    common: SharedFields,
    scratch: Fields,
}

impl Walk {
    fn resource(&mut self, message: &[u8]) -> Result<()> {
        const RESOURCE: u32 = tag(1, BYTES);
        const SCOPE_LOGS: u32 = tag(2, BYTES);
        self.common.clear();
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                RESOURCE => {
                    let mut r = Reader::new(r.bytes()?);
                    while !r.is_empty() {
                        match r.tag()? {
                            0x0a => self.common_attribute("", r.bytes()?)?,
                            other => r.skip(other, &[1])?,
                        }
                    }
                }
                SCOPE_LOGS => {
                    r.bytes()?;
                }
                other => r.skip(other, &[1, 2])?,
            }
        }
        self.common.set_stream(&mut self.rows);
        let resource = self.common.mark();
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                SCOPE_LOGS => {
                    self.common.take_back(resource);
                    self.scope(r.bytes()?)?;
                }
                other => r.skip_value(other & 7)?,
            }
        }
        Ok(())
    }

    /// Adds an attribute to the fields that all records have in common.
    fn common_attribute(&mut self, prefix: &str, message: &[u8]) -> Result<()> {
        let (key, value) = key_value(message)?;
        self.scratch.clear();
        self.scratch.flatten(prefix, key, value)?;
        if let Some(why) = self.scratch.fault() {
            self.common.lose(why);
        }
        self.scratch.drain().for_each(|(name, text)| self.common.push(name, text));
        Ok(())
    }

    fn scope(&mut self, message: &[u8]) -> Result<()> {
        const SCOPE: u32 = tag(1, BYTES);
        const RECORDS: u32 = tag(2, BYTES);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                SCOPE => {
                    let mut r = Reader::new(r.bytes()?);
                    while !r.is_empty() {
                        match r.tag()? {
                            0x0a => self.common_text("scope.name", r.bytes()?),
                            0x12 => self.common_text("scope.version", r.bytes()?),
                            0x1a => self.common_attribute("scope.attributes", r.bytes()?)?,
                            other => r.skip(other, &[1, 2, 3])?,
                        }
                    }
                }
                RECORDS => {
                    r.bytes()?;
                }
                other => r.skip(other, &[1, 2])?,
            }
        }
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                RECORDS => {
                    self.record(r.bytes()?)?;
                    self.rows.check_memory()?;
                }
                other => r.skip_value(other & 7)?,
            }
        }
        Ok(())
    }

    fn common_text(&mut self, name: &str, text: &[u8]) {
        self.common.push(name.to_owned(), lossy(text).into_owned());
    }

    fn record(&mut self, message: &[u8]) -> Result<()> {
        const TIME: u32 = tag(1, FIXED64);
        const SEVERITY: u32 = tag(2, VARINT);
        const SEVERITY_TEXT: u32 = tag(3, BYTES);
        const BODY: u32 = tag(5, BYTES);
        const ATTRIBUTES: u32 = tag(6, BYTES);
        const DROPPED: u32 = tag(7, VARINT);
        const FLAGS: u32 = tag(8, FIXED32);
        const TRACE_ID: u32 = tag(9, BYTES);
        const SPAN_ID: u32 = tag(10, BYTES);
        const OBSERVED: u32 = tag(11, FIXED64);
        const EVENT: u32 = tag(12, BYTES);
        let (mut time, mut observed, mut severity) = (0, 0, 0);
        let [mut severity_text, mut trace, mut span, mut event, mut body]: [&[u8]; 5] = [&[]; 5];
        let Self { rows, common, scratch } = self;
        common.add(rows);
        let mut r = Reader::new(message);
        while !r.is_empty() {
            match r.tag()? {
                TIME => time = r.fixed64()?,
                OBSERVED => observed = r.fixed64()?,
                SEVERITY => severity = r.varint()?,
                SEVERITY_TEXT => severity_text = r.bytes()?,
                BODY => body = r.bytes()?,
                ATTRIBUTES => {
                    let (key, value) = key_value(r.bytes()?)?;
                    value::add(rows, scratch, key, value)?;
                }
                TRACE_ID => trace = r.bytes()?,
                SPAN_ID => span = r.bytes()?,
                EVENT => event = r.bytes()?,
                DROPPED => {
                    r.varint()?;
                }
                FLAGS => r.skip_value(FIXED32)?,
                other => r.skip(other, &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12])?,
            }
        }
        value::add_body(rows, scratch, body)?;
        for (name, id) in [("trace_id", trace), ("span_id", span)] {
            // An id of zeros is invalid, and means none.
            if id.iter().any(|b| *b != 0) {
                let name = rows.names.find(name);
                let Ok(()) = rows.add_with(name, |out| {
                    push_hex(id, out);
                    Ok::<_, std::convert::Infallible>(())
                });
            }
        }
        let number = usize::try_from(severity).ok().filter(|n| *n < SEVERITIES.len()).unwrap_or(0);
        let text = lossy(severity_text);
        let name = rows.names.find("severity");
        rows.add(name, if text.is_empty() { SEVERITIES[number] } else { &text });
        for (name, text) in [("severity_text", text), ("event_name", lossy(event))] {
            if !text.is_empty() {
                let name = rows.names.find(name);
                rows.add(name, &text);
            }
        }
        let stamp = match if time == 0 { observed } else { time } {
            0 => Stamp::Arrival,
            nanos => Stamp::of(nanos.into()),
        };
        // The report counts why a record is dropped; the others continue.
        let marks = RecordMarks { severity: number as u8, observed: i64::try_from(observed).unwrap_or(0) };
        let _ = rows.end(stamp, marks);
        Ok(())
    }
}
