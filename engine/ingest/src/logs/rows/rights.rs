//! Checks whether the sender may write a row.

use super::super::names::NONE;
use super::super::row_counts::DropReason;
use super::{RowField, Rows};
use crate::sender_rights::Verdict;

impl Rows {
    /// Whether the sender may write the row; sets its missing service if the sender may write only one.
    pub(super) fn judge(&mut self) -> Result<(), DropReason> {
        let Some(gate) = &mut self.gate else { return Ok(()) };
        let (mut best, mut place, mut start) = (NONE, 0..0, self.row_start);
        for field in &self.row {
            let rank = self.names.list[field.name as usize].service;
            if rank < best {
                (best, place) = (rank, start..field.end as usize);
            }
            start = field.end as usize;
        }
        // Decoders write valid UTF-8.
        let service = std::str::from_utf8(&self.batch.values[place]).unwrap_or("");
        match gate.judge(service) {
            Verdict::Take => Ok(()),
            Verdict::Refuse => {
                self.report.first_forbidden.get_or_insert_with(|| gate.first_refused().to_owned());
                Err(DropReason::Service)
            }
            Verdict::Name if self.live >= self.limits.fields_max => Err(DropReason::TooManyFields),
            Verdict::Name => {
                let (name, service) = gate.named();
                let number = self.names.find(name);
                self.batch.values.extend_from_slice(service.as_bytes());
                self.row.push(RowField { name: number, end: self.batch.values.len() as u32 });
                self.live += 1;
                Ok(())
            }
        }
    }
}
