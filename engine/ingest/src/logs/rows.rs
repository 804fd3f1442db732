//! Rows under construction: values go straight into the batch, one field after the other; at the end of a row its time,
//! message, stream and service are settled and the row is kept or taken back.

mod judge;
mod marks;

use std::sync::Arc;

use quiver_types::LogsBatch;
use quiver_types::label::push_pair;
use quiver_types::logs::{RecordMarks, without_colors};

use super::json::RawText;
use super::names::{MSG_NAME, NONE, Names};
use super::options::{Defaults, FieldOptions};
use super::report::{Dropped, Report};
use super::tables::{Services, Streams};
use super::time::{Stamp, parse, parse_or_date};
use super::{LogsContext, LogsLimits, labels};
use crate::decoding;
use crate::error::{Error, Result};
use crate::sender::Gate;

/// Rows after which a batch is full, whatever its bytes.
const BATCH_ROWS_MAX: usize = 65_536;
/// The name of a field that was replaced or taken out.
const DEAD: u32 = u32::MAX;

/// A field of the row that is being built.
#[derive(Debug, Clone, Copy)]
struct RowField {
    name: u32,
    end: u32,
}

/// Builds rows of one request into batches.
#[derive(Debug)]
pub struct Rows {
    pub(crate) names: Names,
    options: Arc<FieldOptions>,
    dates: bool,
    limits: LogsLimits,
    now_ns: i64,
    future_max_ns: i64,
    batch: LogsBatch,
    /// Counts batches and rows, so that what belongs to an earlier one is seen to.
    batch_number: u32,
    row_number: u32,
    full: Vec<LogsBatch>,
    held_bytes: usize,
    /// What became of rows.
    pub report: Report,
    streams: Streams,
    services: Services,
    /// Labels of the stream where the format gives them.
    fixed_stream: Option<(Vec<u8>, Option<u32>)>,
    row: Vec<RowField>,
    /// Places of fields that later ones replaced, with their names.
    replaced: Vec<(u32, u32)>,
    row_start: usize,
    live: usize,
    name_bytes: usize,
    /// Whether the values of the row have gaps.
    gaps: bool,
    fault: Option<Dropped>,
    time: Option<Result<Stamp, Dropped>>,
    later_time: Option<(u16, u32)>,
    msg: Option<(u16, u32)>,
    stream_text: Vec<u8>,
    scratch: Vec<u8>,
    slots: Vec<(u32, u32)>,
    /// Whose rows are taken; none: all.
    gate: Option<Gate>,
}

impl Rows {
    pub(crate) fn new(ctx: &LogsContext, defaults: Defaults) -> Self {
        let slots = ctx.options.stream.as_ref().map_or(0, Vec::len);
        let mut rows = Self {
            names: Names::new(Arc::clone(&ctx.options), defaults),
            options: Arc::clone(&ctx.options),
            dates: defaults.dates,
            limits: ctx.limits,
            now_ns: ctx.now_ns,
            future_max_ns: ctx.future_max_ns,
            batch: LogsBatch::default(),
            batch_number: 0,
            row_number: 1,
            full: Vec::new(),
            held_bytes: 0,
            report: Report::default(),
            streams: Streams::default(),
            services: Services::default(),
            fixed_stream: None,
            row: Vec::with_capacity(64),
            replaced: Vec::new(),
            row_start: 0,
            live: 0,
            name_bytes: 0,
            gaps: false,
            fault: None,
            time: None,
            later_time: None,
            msg: None,
            stream_text: Vec::new(),
            scratch: Vec::new(),
            slots: vec![(0, 0); slots],
            gate: ctx.sender.clone().map(Gate::new),
        };
        rows.begin_batch();
        rows
    }

    fn begin_batch(&mut self) {
        self.batch_number += 1;
        self.streams.clear();
        self.services.clear();
        self.row_start = 0;
        if let Some((_, number)) = &mut self.fixed_stream {
            *number = None;
        }
    }

    /// Sets the labels of the stream of the rows that follow, where no parameter names stream fields.
    pub(crate) fn set_stream(&mut self, canonical: &[u8]) {
        let (bytes, number) = self.fixed_stream.get_or_insert_default();
        bytes.clear();
        bytes.extend_from_slice(canonical);
        *number = None;
    }

    /// Says whether parameters name the stream fields.
    pub(crate) fn names_stream_fields(&self) -> bool {
        self.options.stream.is_some()
    }

    /// Gives the name under which a label of the stream is kept; `None`: it is not, or the request gives the field
    /// another value.
    pub(crate) fn label(&mut self, name: &str) -> Option<Arc<str>> {
        let number = self.field_name(name);
        let name = &self.names.list[number as usize];
        let is_replaced = self.options.extra.iter().any(|(extra, _)| **extra == *name.text);
        (!name.ignored && !name.reserved && !is_replaced).then(|| Arc::clone(&name.text))
    }

    /// Says whether messages that are JSON are left as they are.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.options.keep_messages
    }

    /// Gives the number of a name that is no key of JSON; one that is too long is cut.
    pub(crate) fn field_name(&mut self, text: &str) -> u32 {
        let max = super::NAME_BYTES_MAX;
        if text.len() > max {
            self.names.cut += 1;
            return self.names.find(&text[..text.floor_char_boundary(max)]);
        }
        self.names.find(text)
    }

    /// Adds a field.
    #[inline]
    pub(crate) fn add(&mut self, name: u32, value: &str) {
        self.batch.values.extend_from_slice(value.as_bytes());
        self.close(name, true);
    }

    /// Adds a field whose value is written by `write`; must write UTF-8.
    #[inline]
    pub(crate) fn add_with<E>(
        &mut self,
        name: u32,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        write(&mut self.batch.values)?;
        self.close(name, true);
        Ok(())
    }

    /// Adds a field that is neither the time nor the message by its name.
    #[inline]
    pub(crate) fn add_plain(&mut self, name: u32, value: &str) {
        self.batch.values.extend_from_slice(value.as_bytes());
        self.close(name, false);
    }

    /// Likewise, from a text of a document.
    #[inline]
    pub(crate) fn add_plain_text(&mut self, name: u32, value: RawText<'_>) {
        value.append(&mut self.batch.values);
        self.close(name, false);
    }

    fn value_start(&self) -> usize {
        self.row.last().map_or(self.row_start, |f| f.end as usize)
    }

    /// Takes what was written behind the last field as the value of a field.
    fn close(&mut self, number: u32, with_roles: bool) {
        let start = self.value_start();
        let end = self.batch.values.len();
        let name = &mut self.names.list[number as usize];
        if self.fault.is_some() || end - self.row_start > self.limits.row_bytes_max {
            self.fault.get_or_insert(Dropped::LargeRow);
            self.batch.values.truncate(start);
            return;
        }
        let place = name.place as usize;
        if name.row == self.row_number && self.row.get(place).is_some_and(|f| f.name == number) {
            // Of equal names the last one counts.
            self.row[place].name = DEAD;
            self.replaced.push((place as u32, number));
            self.gaps = true;
            self.live -= 1;
        }
        if name.special && self.close_special(number, with_roles, start) {
            self.batch.values.truncate(start);
            return;
        }
        if end == start {
            return;
        }
        let name = &mut self.names.list[number as usize];
        // Sequences are taken out with the gaps, when it is known which field is the message.
        self.gaps |= name.may_be_colored && memchr::memchr(0x1b, &self.batch.values[start..]).is_some();
        name.row = self.row_number;
        name.place = self.row.len() as u32;
        self.name_bytes += name.text.len();
        self.row.push(RowField { name: number, end: end as u32 });
        self.live += 1;
        if self.live > self.limits.fields_max {
            self.fault = Some(Dropped::TooManyFields);
        }
    }

    /// Sees to names with a meaning of their own; says whether the field is done with.
    #[cold]
    fn close_special(&mut self, number: u32, with_roles: bool, start: usize) -> bool {
        let name = &self.names.list[number as usize];
        let is_empty = self.batch.values.len() == start;
        if with_roles && name.time == 0 {
            // Values are UTF-8 by contract; one that is not reads as no time.
            let text = std::str::from_utf8(&self.batch.values[start..]).unwrap_or("?");
            let read = || if self.dates { parse_or_date(text) } else { parse(text) }.ok_or(Dropped::BadTime);
            self.time = (!is_empty).then(read);
            return true;
        }
        if is_empty {
            return true;
        }
        let place = self.row.len() as u32;
        if with_roles && name.time != NONE {
            if self.later_time.is_none_or(|(best, _)| name.time <= best) {
                self.later_time = Some((name.time, place));
            }
            self.gaps |= name.ignored || name.reserved;
            return false;
        }
        if name.is_stream {
            self.stream_text.clear();
            self.stream_text.extend_from_slice(&self.batch.values[start..]);
        }
        if name.reserved {
            return true;
        }
        if with_roles && name.msg != NONE {
            if self.msg.is_none_or(|(best, _)| name.msg <= best) {
                self.msg = Some((name.msg, place));
            }
            self.gaps |= name.ignored;
            return false;
        }
        name.ignored
    }

    /// Forgets the row that is being built.
    pub(crate) fn abandon(&mut self) {
        self.batch.values.truncate(self.row_start);
        self.reset_row();
    }

    fn reset_row(&mut self) {
        self.row.clear();
        self.replaced.clear();
        self.row_number = self.row_number.wrapping_add(1);
        self.live = 0;
        self.name_bytes = 0;
        self.gaps = false;
        self.fault = None;
        self.time = None;
        self.later_time = None;
        self.msg = None;
        self.stream_text.clear();
    }

    /// Says whether the row is lost already: what follows need not be read in detail.
    pub(crate) fn is_lost(&self) -> bool {
        self.fault.is_some()
    }

    /// Ends the row. `given` is the time that the format has outside of fields.
    ///
    /// # Errors
    /// Why the row is not kept; it is counted.
    pub(crate) fn end(&mut self, given: Stamp, marks: RecordMarks) -> Result<(), Dropped> {
        let mut settled = self.settle(given);
        if settled.is_ok() && self.live > 0 {
            self.add_extra();
            if self.gaps {
                self.close_gaps();
            }
            self.add_default_message();
            // Values of nothing but color are none.
            self.live = self.row.len();
            if let Some(fault) = self.fault {
                settled = Err(fault);
            }
        }
        let outcome = match settled {
            Ok(time) if self.live > 0 => {
                let allowed = self.judge();
                if allowed.is_ok() {
                    self.commit(time, marks);
                    self.report.rows += 1;
                }
                allowed
            }
            Ok(_) => {
                self.report.empty += 1;
                self.batch.values.truncate(self.row_start);
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = outcome {
            self.report.drop_row(fault);
            self.batch.values.truncate(self.row_start);
        }
        self.reset_row();
        self.row_start = self.batch.values.len();
        if self.row_start > self.limits.batch_bytes || self.batch.len() >= BATCH_ROWS_MAX || self.names.is_full() {
            let next = room_of(&self.batch);
            self.finish_batch();
            self.batch = next;
        }
        outcome
    }

    /// Finds time and message, and takes out what is not stored.
    fn settle(&mut self, given: Stamp) -> Result<i64, Dropped> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.batch.values.len() - self.row_start + self.name_bytes > self.limits.row_bytes_max {
            return Err(Dropped::LargeRow);
        }
        let mut stamp = self.time.unwrap_or(Ok(given))?;
        if let (None, Some((_, place))) = (self.time, self.later_time)
            && self.role_of(place, |name| name.time)
            && let Some(text) = self.text_of(place)
        {
            stamp = if self.dates { parse_or_date(text) } else { parse(text) }.ok_or(Dropped::BadTime)?;
            self.kill(place);
        }
        let time = match stamp {
            Stamp::Arrival => self.now_ns,
            Stamp::At(time) if time <= self.future_max_ns => time,
            Stamp::At(_) | Stamp::After => return Err(Dropped::TooNew),
            Stamp::Before => return Err(Dropped::TooOld),
        };
        let chosen = self.msg.filter(|(_, place)| self.role_of(*place, |name| name.msg));
        if let Some((_, place)) = chosen {
            if self.row[place as usize].name != MSG_NAME {
                if let Some(old) = self.row.iter().position(|f| f.name == MSG_NAME) {
                    self.kill(old as u32);
                }
                self.row[place as usize].name = MSG_NAME;
            }
            // The message, too, goes by the name that it has in the end.
            if self.names.list[MSG_NAME as usize].ignored {
                self.kill(place);
            }
        }
        if self.gaps {
            // Fields that were kept because they might have been the message or the time.
            for i in 0..self.row.len() {
                let is_message = chosen.is_some_and(|(_, place)| place as usize == i);
                let name = self.names.list.get(self.row[i].name as usize).filter(|_| !is_message);
                if name.is_some_and(|name| name.ignored || name.reserved) {
                    self.kill(i as u32);
                }
            }
        }
        Ok(time)
    }

    /// Says whether a field still stands at a place and has a role.
    fn role_of(&self, place: u32, role: impl Fn(&super::names::Name) -> u16) -> bool {
        let name = self.row.get(place as usize).and_then(|f| self.names.list.get(f.name as usize));
        name.is_some_and(|name| role(name) != NONE)
    }

    fn text_of(&self, place: u32) -> Option<&str> {
        let field = self.row.get(place as usize).filter(|f| f.name != DEAD)?;
        let start = if place == 0 { self.row_start } else { self.row[place as usize - 1].end as usize };
        std::str::from_utf8(&self.batch.values[start..field.end as usize]).ok()
    }

    fn kill(&mut self, place: u32) {
        self.row[place as usize].name = DEAD;
        self.gaps = true;
        self.live -= 1;
    }

    fn add_extra(&mut self) {
        if self.options.extra.is_empty() {
            return;
        }
        let options = Arc::clone(&self.options);
        for (name, value) in &options.extra {
            if let Some(old) =
                self.row.iter().position(|f| f.name != DEAD && *self.names.list[f.name as usize].text == **name)
            {
                self.kill(old as u32);
            }
            let number = self.names.find(name);
            self.batch.values.extend_from_slice(value.as_bytes());
            self.name_bytes += name.len();
            self.row.push(RowField { name: number, end: self.batch.values.len() as u32 });
            self.live += 1;
        }
        if self.live > self.limits.fields_max {
            self.fault = Some(Dropped::TooManyFields);
        }
        if self.batch.values.len() - self.row_start + self.name_bytes > self.limits.row_bytes_max {
            self.fault = Some(Dropped::LargeRow);
        }
    }

    fn add_default_message(&mut self) {
        let text = &self.options.default_msg;
        if text.is_empty() || self.row.iter().any(|f| f.name == MSG_NAME) {
            return;
        }
        self.batch.values.extend_from_slice(text.as_bytes());
        self.row.push(RowField { name: MSG_NAME, end: self.batch.values.len() as u32 });
        self.live += 1;
    }

    /// Writes the row into the batch.
    fn commit(&mut self, time: i64, marks: RecordMarks) {
        let mut service = (NONE, 0, 0);
        self.slots.fill((0, 0));
        let mut start = self.row_start as u32;
        for field in &self.row {
            let name = &mut self.names.list[field.name as usize];
            if name.batch != self.batch_number {
                name.batch = self.batch_number;
                name.in_batch = self.batch.names.len() as u32;
                self.batch.names.push(Arc::clone(&name.text));
            }
            self.batch.field_names.push(name.in_batch);
            self.batch.value_ends.push(field.end);
            if name.stream != NONE {
                self.slots[usize::from(name.stream)] = (start, field.end);
            }
            if name.service < service.0 {
                service = (name.service, start, field.end);
            }
            start = field.end;
        }
        let service = &self.batch.values[service.1 as usize..service.2 as usize];
        let service = self.services.find(service, &mut self.batch.services);
        let stream = self.stream();
        self.batch.end_row(time, stream, service, marks);
    }

    fn close_gaps(&mut self) {
        self.scratch.clear();
        let (mut start, mut kept) = (self.row_start, self.row_start as u32);
        for field in &mut self.row {
            let end = field.end as usize;
            if field.name != DEAD {
                let value = &self.batch.values[start..end];
                let colored = self.names.list[field.name as usize].colored;
                if colored {
                    // Values are UTF-8: decoders write nothing else.
                    let text = std::str::from_utf8(value).unwrap_or("");
                    without_colors(text).for_each(|piece| self.scratch.extend_from_slice(piece.as_bytes()));
                } else {
                    self.scratch.extend_from_slice(value);
                }
                let end = (self.row_start + self.scratch.len()) as u32;
                // A value of nothing but sequences is none.
                field.name = if colored && end == kept { DEAD } else { field.name };
                (field.end, kept) = (end, end);
            }
            start = end;
        }
        self.row.retain(|f| f.name != DEAD);
        self.batch.values.truncate(self.row_start);
        self.batch.values.extend_from_slice(&self.scratch);
    }

    /// Gives the number of the row's stream.
    fn stream(&mut self) -> u32 {
        self.scratch.clear();
        if let Some(names) = &self.options.stream {
            for (name, (start, end)) in names.iter().zip(&self.slots) {
                if start < end {
                    // Values are UTF-8: decoders write nothing else.
                    let value = std::str::from_utf8(&self.batch.values[*start as usize..*end as usize]).unwrap_or("");
                    push_pair(&mut self.scratch, name, value);
                }
            }
        } else if let Some((labels, number)) = &mut self.fixed_stream {
            if let Some(number) = number {
                return *number;
            }
            let found = self.streams.find(labels, &mut self.batch);
            *number = Some(found);
            return found;
        } else if !self.stream_text.is_empty() {
            let text = std::str::from_utf8(&self.stream_text).unwrap_or("");
            if let Some(pairs) = labels::parse(text) {
                labels::canonical(pairs, &mut self.scratch);
            }
        }
        self.streams.find(&self.scratch, &mut self.batch)
    }

    fn finish_batch(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.held_bytes += batch_bytes(&batch);
            self.full.push(batch);
        }
        self.batch = LogsBatch::default();
        self.begin_batch();
        self.names.bound();
        self.report.cut_names += std::mem::take(&mut self.names.cut);
    }

    /// Takes the batches that are full.
    pub fn take_full(&mut self) -> Vec<LogsBatch> {
        self.held_bytes = 0;
        std::mem::take(&mut self.full)
    }

    /// Takes all batches; the last one may be small.
    pub fn take_all(&mut self) -> Vec<LogsBatch> {
        self.finish_batch();
        self.take_full()
    }

    /// Says whether there are rows that no full batch holds.
    pub fn has_rows(&self) -> bool {
        !self.batch.is_empty() || !self.full.is_empty()
    }

    /// Holds the request to its limit of memory: a few bytes on the wire can stand for many.
    pub(crate) fn check_memory(&self) -> Result<()> {
        let limit_bytes = self.limits.total_bytes_max;
        let bytes = self.held_bytes + self.batch.values.len();
        if bytes > limit_bytes {
            return Err(Error::TooLarge { what: "body, its rows written out,", limit_bytes });
        }
        decoding::hold(bytes)
    }
}

/// Makes a batch with room for as much as another holds: what comes next is likely to be alike.
fn room_of(batch: &LogsBatch) -> LogsBatch {
    let fields = batch.field_names.len() + batch.field_names.len() / 16;
    let rows = batch.len() + batch.len() / 16;
    LogsBatch {
        time: Vec::with_capacity(rows),
        row_streams: Vec::with_capacity(rows),
        row_services: Vec::with_capacity(rows),
        field_ends: Vec::with_capacity(rows),
        field_names: Vec::with_capacity(fields),
        value_ends: Vec::with_capacity(fields),
        values: Vec::with_capacity(batch.values.len() + batch.values.len() / 16),
        ..LogsBatch::default()
    }
}

/// Bytes that a batch takes in memory, about.
pub(crate) fn batch_bytes(batch: &LogsBatch) -> usize {
    batch.values.len() + 8 * batch.value_ends.len() + 20 * batch.len() + batch.stream_bytes.len()
}
