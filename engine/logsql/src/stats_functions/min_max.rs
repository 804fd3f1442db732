//! `min(...)`, `max(...)`: by the order of values; the text as it was. The least of all is the empty text, which rows
//! have that lack a field asked for by name.

use std::cmp::Ordering;

use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_text};
use crate::kernels::values::{Rank, compare_ranked, rank};

/// Which end of the order is looked for: the least (`Less`) or the greatest (`Greater`).
pub(super) type Side = Ordering;

/// The best value so far.
#[derive(Debug, Default)]
pub(super) struct Extreme {
    best: Option<(Rank, String)>,
}

impl Extreme {
    /// Takes a value if it is better; says so.
    pub(super) fn offer(&mut self, side: Side, rank: Rank, value: &str) -> bool {
        match &mut self.best {
            None => self.best = Some((rank, value.to_owned())),
            Some((own, text)) => {
                if compare_ranked((rank, value), (*own, text)) != side {
                    return false;
                }
                *own = rank;
                text.clear();
                text.push_str(value);
            }
        }
        true
    }

    /// The best value, or nothing.
    pub(super) fn text(&self) -> &str {
        self.best.as_ref().map_or("", |(_, text)| text)
    }

    /// Bytes that the text takes: as many as the longest one did so far.
    pub(super) fn bytes(&self) -> usize {
        self.best.as_ref().map_or(0, |(_, text)| text.capacity())
    }
}

impl GroupState for Extreme {
    type Config = Side;

    fn add(&mut self, side: &Side, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let before = self.bytes();
        for column in &args.columns {
            match column {
                Column::Field { text, named, .. } => {
                    let value = text.text(row, buffer);
                    if *named || !value.is_empty() {
                        self.offer(*side, text.rank(row, value), value);
                    }
                }
                Column::Rest(rest) => rest.each(row, &mut |_: &str, value: &str| {
                    if !value.is_empty() {
                        self.offer(*side, rank(value), value);
                    }
                }),
            }
        }
        self.bytes().saturating_sub(before)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some((_, text)) = &self.best {
            put_text(out, text);
        }
    }

    fn merge(&mut self, side: &Side, from: &mut Reader<'_>) -> Result<usize> {
        let before = self.bytes();
        if !from.is_empty() {
            let value = from.text()?;
            self.offer(*side, rank(value), value);
        }
        Ok(self.bytes().saturating_sub(before))
    }

    fn finish(self, _: &Side, out: &mut String) {
        out.push_str(self.text());
    }
}
