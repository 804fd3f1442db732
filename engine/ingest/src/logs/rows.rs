//! Rows under construction: values go straight into the batch, one field after the other; at the end of a row its time,
//! message, stream and service are settled and the row is kept or taken back.

mod batches;
mod judge;
mod marks;
mod settle;

use std::sync::Arc;

use quiver_types::LogsBatch;
use quiver_types::logs::RecordMarks;

use super::json::RawText;
use super::names::{MSG_NAME, NONE, Names};
use super::options::{Defaults, FieldOptions};
use super::report::{Dropped, Report};
use super::tables::{Services, Streams};
use super::time::{Stamp, parse, parse_or_date};
use super::{LogsContext, LogsLimits};
use crate::sender::Gate;

/// What a field that rows share counts for beside its value, less than what is kept of it.
const SHARED_FIELD_BYTES: usize = 4;
/// The name of a field that was replaced or taken out.
const DEAD: u32 = u32::MAX;

/// A field of the row that is being built.
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
    /// Bytes of fields that rows share, as often as these were added to one.
    shared: usize,
    fault: Option<Dropped>,
    time: Option<Result<Stamp, Dropped>>,
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

    /// Gives the number of a name that is no key of JSON; one that is too long is cut. Names of a row that is lost are not
    /// worth keeping.
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
        // It may have brought names.
        self.bound_batch();
    }

    /// Leaves the row at hand out.
    pub(crate) fn lose(&mut self, why: Dropped) {
        self.fault.get_or_insert(why);
    }

    /// Counts fields that rows share, for each row anew: two bytes can be a row that has thousands.
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

    /// Says whether the row is lost already: what follows need not be read in detail. It is if it has brought more names than
    /// there should be, with values or without.
    pub(crate) fn is_lost(&mut self) -> bool {
        if self.names.is_overfull() {
            self.lose(Dropped::TooManyFields);
        }
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
        self.bound_batch();
        outcome
    }
}
