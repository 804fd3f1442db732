//! Taking fields of the row at hand back: of an object that stays JSON after all, of a line that is none.

use super::super::report::Dropped;
use super::super::time::Stamp;
use super::Rows;

/// How far a row was, so that it can be taken back to there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    fields: usize,
    replaced: usize,
    live: usize,
    name_bytes: usize,
    fault: Option<Dropped>,
    time: Option<Result<Stamp, Dropped>>,
    later_time: Option<(u16, u32)>,
    msg: Option<(u16, u32)>,
}

impl Rows {
    /// A mark to which the row can be taken back.
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

    /// Takes the fields since a mark back. Fields from before it that they replaced stand again.
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
