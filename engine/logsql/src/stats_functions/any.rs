//! `any(...)`: a value that is not empty.

use datafusion::common::Result;

use super::args::Args;
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_text};

/// The value that was taken.
#[derive(Debug, Default)]
pub(super) struct AnyValueState {
    value: String,
}

impl GroupState for AnyValueState {
    type Config = ();

    fn add(&mut self, (): &(), args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        if !self.value.is_empty() {
            return 0;
        }
        args.each(row, buffer, |_, value| {
            if self.value.is_empty() {
                self.value.push_str(value);
            }
        });
        self.value.len()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, &self.value);
    }

    fn merge(&mut self, (): &(), from: &mut Reader<'_>) -> Result<usize> {
        let value = from.text()?;
        if !self.value.is_empty() {
            return Ok(0);
        }
        self.value.push_str(value);
        Ok(value.len())
    }

    fn finish(self, (): &(), out: &mut String) {
        out.push_str(&self.value);
    }
}
