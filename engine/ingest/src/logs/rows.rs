//! Builds rows: values are written directly into the batch, one field after another. At the end of a row its time,
//! message, stream and service are determined, and the row is kept or rolled back.

mod batches;
mod completion;
mod rights;
mod rollback;

use std::sync::Arc;

use quiver_types::LogsBatch;
use quiver_types::logs::RecordMarks;

use super::json::RawText;
use super::names::{MSG_NAME, NONE, Names};
use super::options::{Defaults, FieldOptions};
use super::row_counts::{DropReason, Report};
use super::stream_numbers::{Services, Streams};
use super::time::{Stamp, parse, parse_or_date};
use super::{LogsContext, LogsLimits};
use crate::sender_rights::Gate;

/// Bytes that a shared field counts in addition to its value, less than it takes in memory.
const SHARED_FIELD_BYTES: usize = 4;
/// The name of a field that was replaced or removed.
const DEAD: u32 = u32::MAX;

/// A field of the current row.
#[derive(Debug, Clone, Copy)]
struct RowField {
    name: u32,
    end: u32,
}

/// How much of a JSON object was read more than once.
#[derive(Debug, Default)]
pub(crate) struct ReadAgain {
    /// Where it begins.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
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
    /// Numbers of the current batch and row, which tell whether a name's marks belong to an earlier one.
    batch_number: u32,
    row_number: u32,
    full: Vec<LogsBatch>,
    held_bytes: usize,
    /// Counts of stored and dropped rows.
    pub report: Report,
    streams: Streams,
    services: Services,
    /// Labels of the stream, if the format gives them.
    fixed_stream: Option<(Vec<u8>, Option<u32>)>,
    row: Vec<RowField>,
    /// Indexes of fields that later ones replaced, with their names.
    replaced: Vec<(u32, u32)>,
    row_start: usize,
    live: usize,
    name_bytes: usize,
    /// Whether values of the row have been replaced or must be stripped, so that gaps must be closed.
    gaps: bool,
    /// Bytes of shared fields, counted for each row that they were added to.
    shared: usize,
    fault: Option<DropReason>,
    time: Option<Result<Stamp, DropReason>>,
    later_time: Option<(u16, u32)>,
    msg: Option<(u16, u32)>,
    stream_text: Vec<u8>,
    scratch: Vec<u8>,
    slots: Vec<(u32, u32)>,
    pub(crate) again: ReadAgain,
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
            shared: 0,
            fault: None,
            time: None,
            later_time: None,
            msg: None,
            stream_text: Vec::new(),
            scratch: Vec::new(),
            slots: vec![(0, 0); slots],
            again: ReadAgain::default(),
            gate: ctx.sender.clone().map(Gate::new),
        };
        rows.begin_batch();
        rows
    }

    /// Sets the stream labels of the following rows, unless a parameter names the stream fields.
    pub(crate) fn set_stream(&mut self, canonical: &[u8]) {
        let (bytes, number) = self.fixed_stream.get_or_insert_default();
        bytes.clear();
        bytes.extend_from_slice(canonical);
        *number = None;
    }

    /// Whether a parameter names the stream fields.
    pub(crate) fn names_stream_fields(&self) -> bool {
        self.options.stream.is_some()
    }

    /// The name under which a stream label is stored; `None` if it is dropped, or the request sets the field to
    /// another value.
    pub(crate) fn label(&mut self, name: &str) -> Option<Arc<str>> {
        let number = self.field_name(name);
        let name = &self.names.list[number as usize].text;
        self.options.keeps_label(name).then(|| Arc::clone(name))
    }

    /// Whether messages that are JSON objects are not parsed.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.options.keep_messages
    }

    /// The number of a name that is no JSON key. It is cut if it is too long. Names of a row that will be dropped are
    /// not stored.
    pub(crate) fn field_name(&mut self, text: &str) -> u32 {
        if self.is_lost() {
            return MSG_NAME;
        }
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

    /// Adds a field whose value `write` appends, as UTF-8.
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

    /// Adds a field that is neither the time nor the message, whatever its name.
    #[inline]
    pub(crate) fn add_plain(&mut self, name: u32, value: &str) {
        self.batch.values.extend_from_slice(value.as_bytes());
        self.close(name, false);
    }

    /// Like [`Self::add_plain`] for a string of a document.
    #[inline]
    pub(crate) fn add_plain_text(&mut self, name: u32, value: RawText<'_>) {
        value.append(&mut self.batch.values);
        self.close(name, false);
    }

    fn value_start(&self) -> usize {
        self.row.last().map_or(self.row_start, |f| f.end as usize)
    }

    /// Makes a field of the bytes that were appended behind the last field.
    fn close(&mut self, number: u32, with_roles: bool) {
        let start = self.value_start();
        let end = self.batch.values.len();
        let name = &mut self.names.list[number as usize];
        if self.fault.is_some() || end - self.row_start > self.limits.row_bytes_max {
            self.fault.get_or_insert(DropReason::LargeRow);
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
        // Escape sequences are removed with the gaps, once it is known which field is the message.
        self.gaps |= name.may_be_colored && memchr::memchr(0x1b, &self.batch.values[start..]).is_some();
        name.row = self.row_number;
        name.place = self.row.len() as u32;
        self.name_bytes += name.text.len();
        self.row.push(RowField { name: number, end: end as u32 });
        self.live += 1;
        if self.live > self.limits.fields_max {
            self.fault = Some(DropReason::TooManyFields);
        }
    }

    /// Handles names with a special meaning; returns whether nothing more is to be done.
    #[cold]
    fn close_special(&mut self, number: u32, with_roles: bool, start: usize) -> bool {
        let name = &self.names.list[number as usize];
        let is_empty = self.batch.values.len() == start;
        if with_roles && name.time == 0 {
            // Decoders write valid UTF-8; anything else is no time.
            let text = std::str::from_utf8(&self.batch.values[start..]).unwrap_or("?");
            let read = || if self.dates { parse_or_date(text) } else { parse(text) }.ok_or(DropReason::BadTime);
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
        if name.is_stream && !name.ignored {
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

    /// Discards the current row.
    pub(crate) fn abandon(&mut self) {
        self.batch.values.truncate(self.row_start);
        self.reset_row();
        // It may have added names.
        self.bound_batch();
    }

    /// Marks the current row as dropped.
    pub(crate) fn lose(&mut self, why: DropReason) {
        self.fault.get_or_insert(why);
    }

    /// Counts shared fields for each row anew: two bytes of input can be a row with thousands of them.
    pub(crate) fn spend(&mut self, fields: usize, value_bytes: usize) {
        self.shared = self.shared.saturating_add(fields * SHARED_FIELD_BYTES + value_bytes);
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

    /// Whether the row will be dropped, so that the rest of it need not be parsed in detail. That is also so if it
    /// has brought too many names.
    pub(crate) fn is_lost(&mut self) -> bool {
        if self.names.is_overfull() {
            self.lose(DropReason::TooManyFields);
        }
        self.fault.is_some()
    }

    /// Ends the row. `given` is the time that the format gives apart from fields.
    ///
    /// # Errors
    ///
    /// Why the row is dropped; it has been counted.
    pub(crate) fn end(&mut self, given: Stamp, marks: RecordMarks) -> Result<(), DropReason> {
        let mut completed = self.complete(given);
        // What the request adds to all rows makes one of a record that has nothing of its own.
        if completed.is_ok() && (self.live > 0 || !self.options.extra.is_empty()) {
            self.add_extra();
            if self.gaps {
                self.close_gaps();
            }
            self.add_default_message();
            // Values that consist only of escape sequences are empty.
            self.live = self.row.len();
            if let Some(fault) = self.fault {
                completed = Err(fault);
            }
        }
        let outcome = match completed {
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
        self.bound_batch();
        outcome
    }
}
