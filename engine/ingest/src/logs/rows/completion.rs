//! The end of a row: determines its time and message, adds fields of the request, and removes those that are not
//! stored.

use std::sync::Arc;

use quiver_types::logs::without_colors;

use super::super::names::{MSG_NAME, NONE, Name};
use super::super::row_counts::DropReason;
use super::super::time::{Stamp, parse, parse_or_date};
use super::{DEAD, RowField, Rows};

impl Rows {
    /// Determines time and message, and removes what is not stored.
    #[inline]
    pub(super) fn complete(&mut self, given: Stamp) -> Result<i64, DropReason> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.batch.values.len() - self.row_start + self.name_bytes > self.limits.row_bytes_max {
            return Err(DropReason::LargeRow);
        }
        let mut stamp = self.time.unwrap_or(Ok(given))?;
        if let (None, Some((_, place))) = (self.time, self.later_time)
            && self.role_of(place, |name| name.time)
            && let Some(text) = self.text_of(place)
        {
            stamp = if self.dates { parse_or_date(text) } else { parse(text) }.ok_or(DropReason::BadTime)?;
            self.kill(place);
        }
        let time = match stamp {
            Stamp::Arrival => {
                self.batch.arrival = Some(self.now_ns);
                self.now_ns
            }
            Stamp::At(time) if time <= self.future_max_ns => time,
            Stamp::At(_) | Stamp::After => return Err(DropReason::TooNew),
            Stamp::Before => return Err(DropReason::TooOld),
        };
        let chosen = self.msg.filter(|(_, place)| self.role_of(*place, |name| name.msg));
        if let Some((_, place)) = chosen {
            if self.row[place as usize].name != MSG_NAME {
                if let Some(old) = self.row.iter().position(|f| f.name == MSG_NAME) {
                    self.kill(old as u32);
                }
                self.row[place as usize].name = MSG_NAME;
            }
            // The message, too, is dropped by the name that it has in the end.
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

    /// Whether a field is still there and has a role.
    fn role_of(&self, place: u32, role: impl Fn(&Name) -> u16) -> bool {
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

    /// Adds the fields that the request sets for all rows.
    pub(super) fn add_extra(&mut self) {
        if self.options.extra.is_empty() {
            return;
        }
        let options = Arc::clone(&self.options);
        for (name, value) in &options.extra {
            let number = self.names.find(name);
            if let Some(old) = self.place_of(number) {
                self.kill(old);
            }
            self.batch.values.extend_from_slice(value.as_bytes());
            self.name_bytes += name.len();
            self.row.push(RowField { name: number, end: self.batch.values.len() as u32 });
            self.live += 1;
        }
        if self.live > self.limits.fields_max {
            self.fault = Some(DropReason::TooManyFields);
        }
        if self.batch.values.len() - self.row_start + self.name_bytes > self.limits.row_bytes_max {
            self.fault = Some(DropReason::LargeRow);
        }
    }

    /// The index of a field in the row. A field that became the message is found at its original index.
    fn place_of(&self, number: u32) -> Option<u32> {
        if number == MSG_NAME {
            return self.row.iter().position(|f| f.name == number).map(|place| place as u32);
        }
        let name = &self.names.list[number as usize];
        let stands = |place: u32| self.row.get(place as usize).is_some_and(|f| f.name == number);
        (name.row == self.row_number && stands(name.place)).then_some(name.place)
    }

    pub(super) fn add_default_message(&mut self) {
        let text = &self.options.default_msg;
        if text.is_empty() || self.row.iter().any(|f| f.name == MSG_NAME) {
            return;
        }
        self.batch.values.extend_from_slice(text.as_bytes());
        self.row.push(RowField { name: MSG_NAME, end: self.batch.values.len() as u32 });
        self.live += 1;
    }

    /// Removes the values of dropped fields, and escape sequences.
    pub(super) fn close_gaps(&mut self) {
        self.scratch.clear();
        let (mut start, mut kept) = (self.row_start, self.row_start as u32);
        for field in &mut self.row {
            let end = field.end as usize;
            if field.name != DEAD {
                let value = &self.batch.values[start..end];
                let colored = self.names.list[field.name as usize].colored;
                if colored {
                    // Decoders write valid UTF-8.
                    let text = std::str::from_utf8(value).unwrap_or("");
                    without_colors(text).for_each(|piece| self.scratch.extend_from_slice(piece.as_bytes()));
                } else {
                    self.scratch.extend_from_slice(value);
                }
                let end = (self.row_start + self.scratch.len()) as u32;
                // A value that consists only of escape sequences is empty.
                field.name = if colored && end == kept { DEAD } else { field.name };
                (field.end, kept) = (end, end);
            }
            start = end;
        }
        self.row.retain(|f| f.name != DEAD);
        self.batch.values.truncate(self.row_start);
        self.batch.values.extend_from_slice(&self.scratch);
    }
}
