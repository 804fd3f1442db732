//! Rolls back fields of the current row: of an object that stays JSON after all, or of an invalid line.

use super::super::row_counts::DropReason;
use super::super::time::Stamp;
use super::Rows;

/// A state of the row that can be restored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    fields: usize,
    replaced: usize,
    live: usize,
    name_bytes: usize,
    fault: Option<DropReason>,
    time: Option<Result<Stamp, DropReason>>,
    later_time: Option<(u16, u32)>,
    msg: Option<(u16, u32)>,
}

impl Rows {
    /// The current state of the row.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            fields: self.row.len(),
            replaced: self.replaced.len(),
            live: self.live,
            name_bytes: self.name_bytes,
            fault: self.fault,
            time: self.time,
            later_time: self.later_time,
            msg: self.msg,
        }
    }

    /// Removes the fields since a mark, and restores those that they replaced.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        let Self { row, replaced, names, row_number, .. } = self;
        row.truncate(mark.fields);
        for (place, number) in replaced.drain(mark.replaced..) {
            if let Some(field) = row.get_mut(place as usize) {
                field.name = number;
                let name = &mut names.list[number as usize];
                (name.row, name.place) = (*row_number, place);
            }
        }
        (self.live, self.name_bytes) = (mark.live, mark.name_bytes);
        (self.fault, self.time) = (mark.fault, mark.time);
        (self.later_time, self.msg) = (mark.later_time, mark.msg);
        let start = self.value_start();
        self.batch.values.truncate(start);
    }
}
