//! `field_min(f, g)`, `field_max(f, g)`: the value of g in the row with the least (greatest) f.

use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::GroupState;
use super::min_max::{Extreme, Side};
use super::row_extreme::offer_first;
use super::state_bytes::{Reader, put_text};
use crate::kernels::values::rank;

/// The best value of f, and g beside it.
#[derive(Debug, Default)]
pub(super) struct FieldExtreme {
    best: Extreme,
    value: String,
}

impl FieldExtreme {
    fn bytes(&self) -> usize {
        self.best.bytes() + self.value.capacity()
    }
}

impl GroupState for FieldExtreme {
    type Config = Side;

    fn add(&mut self, side: &Side, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let before = self.bytes();
        if offer_first(&mut self.best, *side, args, row, buffer) {
            self.value.clear();
            match args.columns.get(1) {
                Some(Column::Field { text, .. }) => self.value.push_str(text.text(row, buffer)),
                Some(Column::Rest(rest)) => rest.each(row, &mut |_: &str, value: &str| {
                    value.clone_into(&mut self.value);
                }),
                None => {}
            }
        }
        self.bytes().saturating_sub(before)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if !self.best.text().is_empty() {
            put_text(out, self.best.text());
            put_text(out, &self.value);
        }
    }

    fn merge(&mut self, side: &Side, from: &mut Reader<'_>) -> Result<usize> {
        let before = self.bytes();
        if !from.is_empty() {
            let (best, value) = (from.text()?, from.text()?);
            if self.best.offer(*side, rank(best), best) {
                value.clone_into(&mut self.value);
            }
        }
        Ok(self.bytes().saturating_sub(before))
    }

    fn finish(self, _: &Side, out: &mut String) {
        out.push_str(&self.value);
    }
}
