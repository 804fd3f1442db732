//! `values(a) [limit N]`: a JSON array of all values, of named fields also the empty ones.

use datafusion::common::Result;

use super::args::Args;
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_text};
use crate::row_functions::unpack_words::push_array;

/// Values of a group: texts with their lengths.
#[derive(Debug, Default)]
pub(super) struct Values {
    bytes: Vec<u8>,
    count: u64,
}

impl GroupState for Values {
    type Config = u64;

    fn add(&mut self, limit: &u64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let before = self.bytes.len();
        args.each(row, buffer, |_, value| {
            if self.count < *limit {
                put_text(&mut self.bytes, value);
                self.count += 1;
            }
        });
        self.bytes.len() - before
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes);
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        let before = self.bytes.len();
        while !from.is_empty() && self.count < *limit {
            put_text(&mut self.bytes, from.text()?);
            self.count += 1;
        }
        Ok(self.bytes.len() - before)
    }

    fn finish(self, _: &u64, out: &mut String) {
        let mut reader = Reader(&self.bytes);
        push_array(std::iter::from_fn(|| (!reader.is_empty()).then(|| reader.text().ok()).flatten()), out);
    }
}
