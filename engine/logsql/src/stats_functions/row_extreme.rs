//! `row_min(f, ..)`, `row_max(f, ..)`: the row with the least (greatest) f as a JSON object; the first argument is f.

use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::GroupState;
use super::min_max::{Extreme, Side};
use super::row_any::push_object;
use super::state_bytes::{Reader, put_text};
use crate::kernels::values::rank;

/// The best value of f, and its row.
#[derive(Debug, Default)]
pub(super) struct RowExtreme {
    best: Extreme,
    object: String,
}

impl RowExtreme {
    fn bytes(&self) -> usize {
        self.best.bytes() + self.object.capacity()
    }
}

/// Takes the value of the first argument; says whether it is the best so far.
pub(super) fn offer_first(best: &mut Extreme, side: Side, args: &Args<'_>, row: usize, buffer: &mut String) -> bool {
    match args.columns.first() {
        Some(Column::Field { text, .. }) => {
            let value = text.text(row, buffer);
            !value.is_empty() && best.offer(side, text.rank(row, value), value)
        }
        Some(Column::Rest(rest)) => {
            let mut taken = false;
            rest.each(row, &mut |_: &str, value: &str| {
                taken |= !value.is_empty() && best.offer(side, rank(value), value);
            });
            taken
        }
        None => false,
    }
}

impl GroupState for RowExtreme {
    type Config = Side;

    fn add(&mut self, side: &Side, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let before = self.bytes();
        if offer_first(&mut self.best, *side, args, row, buffer) {
            self.object.clear();
            push_object(&args.columns[1..], row, buffer, false, &mut self.object);
        }
        self.bytes().saturating_sub(before)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if !self.object.is_empty() {
            put_text(out, self.best.text());
            put_text(out, &self.object);
        }
    }

    fn merge(&mut self, side: &Side, from: &mut Reader<'_>) -> Result<usize> {
        let before = self.bytes();
        if !from.is_empty() {
            let (value, object) = (from.text()?, from.text()?);
            if self.best.offer(*side, rank(value), value) {
                object.clone_into(&mut self.object);
            }
        }
        Ok(self.bytes().saturating_sub(before))
    }

    fn finish(self, _: &Side, out: &mut String) {
        out.push_str(if self.object.is_empty() { "{}" } else { &self.object });
    }
}
