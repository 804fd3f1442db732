//! The log intake of a monitoring SaaS (Datadog v2 logs): a list of objects, or one.

use quiver_types::logs::RecordMarks;

use super::json::{Cursor, JsonFault};
use super::names::ROOT;
use super::options::Defaults;
use super::rows::Rows;
use super::time::Stamp;
use super::{DecodedLogs, LogsContext, lossy_body};
use crate::error::Result;

/// The value of tags that have none.
const NO_VALUE: &str = "no_label_value";

/// What the URL and the head of a request say for records that lack it.
#[derive(Debug, Clone, Default)]
pub struct UrlFields {
    /// Tags, as in a record.
    pub ddtags: Option<String>,
    /// `ddsource`, `hostname`, `service` with their values.
    pub fields: Vec<(&'static str, String)>,
    /// Unix nanoseconds of records without a time; none: they have that of their arrival.
    pub time_ns: Option<i64>,
}

/// Decodes a body.
///
/// # Errors
/// Invalid: not JSON, or neither an object nor a list of objects. TooLarge: the rows take too much memory.
pub fn decode(body: &[u8], url: &UrlFields, ctx: &LogsContext) -> Result<DecodedLogs> {
    let text = lossy_body(body)?;
    let mut json = Cursor::new(&text);
    let mut rows = Rows::new(ctx, Defaults::SAAS);
    if json.peek() == b'{' {
        record(&mut rows, &mut json, url)?;
    } else {
        json.expect(b'[', "expected a list or an object")?;
        let mut first = true;
        while json.next_item(first, b']')? {
            first = false;
            record(&mut rows, &mut json, url)?;
            rows.check_memory()?;
        }
    }
    if !json.at_end() {
        return Err(json.fault("unexpected text after the document").into());
    }
    Ok(DecodedLogs::of(rows))
}

fn record(rows: &mut Rows, json: &mut Cursor<'_>, url: &UrlFields) -> Result<()> {
    json.expect(b'{', "expected an object")?;
    let (mut last, mut tags) = (0, false);
    let mut lacks = vec![true; url.fields.len()];
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        if rows.is_lost() {
            // The record will be dropped, and it may have millions of names, so these are not stored.
            json.text_rest()?;
            json.expect(b':', "expected `:`")?;
            json.peek();
            json.skip()?;
            continue;
        }
        last = rows.key(json, ROOT, last)?;
        let next = json.peek();
        let key = rows.names.key_text(last);
        let (is_tags, is_message) = (key == "ddtags", key == "message");
        if let Some(i) = url.fields.iter().position(|(name, _)| *name == key) {
            lacks[i] = matches!(json.rest(), [b'n', ..] | [b'"', b'"', ..]);
        }
        match next {
            b'"' if is_tags => {
                let text = json.string("expected a text")?.text();
                tags = true;
                add_tags(rows, &text);
            }
            b'{' if is_message => message(rows, json, last)?,
            _ => rows.first_level_member(json, last)?,
        }
    }
    if !tags && let Some(text) = &url.ddtags {
        let tags = add_tags(rows, text);
        rows.spend(tags, 0);
    }
    for ((name, value), _) in url.fields.iter().zip(lacks).filter(|(_, lacks)| *lacks) {
        let name = rows.names.find(name);
        rows.add(name, value);
    }
    let time = url.time_ns.map_or(Stamp::Arrival, Stamp::At);
    let why = rows.end(time, RecordMarks::default()).err();
    if let (Some(why), None) = (why, &rows.report.first_fault) {
        rows.report.first_fault = Some(format!("{} before offset {}", why.text(), json.pos));
    }
    Ok(())
}

/// Reads a message that is an object: its own `message` is used, together with `status` and the texts of `lambda`
/// that senders add beside it. Without a `message` the object stays JSON.
fn message(rows: &mut Rows, json: &mut Cursor<'_>, key: u32) -> Result<(), JsonFault> {
    let name = rows.names.name_of(key);
    let start = json.pos;
    let (mut found, mut status, mut lambda) = (None, None, None);
    json.expect(b'{', "expected an object")?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        let inner = json.text_rest()?.text();
        json.expect(b':', "expected `:`")?;
        json.peek();
        match &*inner {
            "message" => found = Some(json.pos),
            "status" => status = Some(json.pos),
            // Some senders misspell it.
            "lambda" | "lamdba" => lambda = Some(json.pos),
            _ => {}
        }
        json.skip()?;
    }
    let end = json.pos;
    if found.is_some() {
        add_status_and_lambda(rows, json, status, lambda)?;
    }
    json.pos = found.unwrap_or(start);
    match json.peek() {
        b'{' | b'[' => rows.add_with(name, |out| json.compact(out))?,
        _ => rows.first_level_member(json, key)?,
    }
    json.pos = end;
    Ok(())
}

/// Adds the fields beside the `message` of a message, which are at these positions.
fn add_status_and_lambda(
    rows: &mut Rows,
    json: &mut Cursor<'_>,
    status: Option<usize>,
    lambda: Option<usize>,
) -> Result<(), JsonFault> {
    if let Some(at) = status {
        json.pos = at;
        if json.peek() == b'"' {
            let text = json.string("expected a text")?.text();
            let name = rows.field_name("status");
            rows.add(name, &text);
        }
    }
    let Some(at) = lambda else { return Ok(()) };
    json.pos = at;
    if json.peek() != b'{' {
        return Ok(());
    }
    json.expect(b'{', "expected an object")?;
    let mut first = true;
    while json.next_key(first)? {
        first = false;
        let key = json.text_rest()?.text();
        json.expect(b':', "expected `:`")?;
        if json.peek() == b'"' {
            let text = json.string("expected a text")?.text();
            let name = rows.field_name(&key);
            rows.add(name, &text);
        } else {
            json.skip()?;
        }
    }
    Ok(())
}

/// Adds the tags of a text; returns how many there are.
fn add_tags(rows: &mut Rows, text: &str) -> usize {
    let mut count = 0;
    for tag in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        let (name, value) = tag.split_once(':').unwrap_or((tag, NO_VALUE));
        if name.is_empty() {
            continue;
        }
        let name = rows.field_name(name);
        rows.add(name, value);
        count += 1;
    }
    count
}
