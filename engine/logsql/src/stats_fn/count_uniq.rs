//! `count_uniq(a, b) [limit N]`: distinct combinations, except the one of empty values only.

use std::fmt::Write;

use datafusion::common::Result;

use super::args::{Args, Column};
use super::blob::{Reader, put_bytes};
use super::grouped::GroupState;
use super::key_set::KeySet;

/// Combinations of a group.
#[derive(Debug, Default)]
pub(super) struct CountUniq {
    keys: KeySet,
    /// The combination of the row before; often the next one is the same.
    last: Vec<u8>,
}

/// Writes the combination of a row; false when all of it is empty. One field is its text; more go with their lengths.
pub(super) fn combination(args: &Args<'_>, row: usize, buffer: &mut String, key: &mut Vec<u8>) -> bool {
    key.clear();
    if let [Column::Field { text, .. }] = args.columns.as_slice() {
        key.extend_from_slice(text.text(row, buffer).as_bytes());
        return !key.is_empty();
    }
    let mut any = false;
    args.each(row, buffer, |_, value| {
        any |= !value.is_empty();
        put_bytes(key, value.as_bytes());
    });
    any
}

impl GroupState for CountUniq {
    type Config = u64;

    fn add(&mut self, limit: &u64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        if self.keys.len() as u64 >= *limit {
            return 0;
        }
        let mut key = std::mem::take(&mut self.last);
        let grown = if let [Column::Field { text, .. }] = args.columns.as_slice() {
            let value = text.text(row, buffer).as_bytes();
            if value.is_empty() || (value == key.as_slice() && self.keys.len() > 0) {
                0
            } else {
                key.clear();
                key.extend_from_slice(value);
                self.keys.insert(&key)
            }
        } else if combination(args, row, buffer, &mut key) {
            self.keys.insert(&key)
        } else {
            0
        };
        self.last = key;
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.keys.each(|key| put_bytes(out, key));
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        let mut grown = 0;
        while !from.is_empty() && (self.keys.len() as u64) < *limit {
            grown += self.keys.insert(from.bytes()?);
        }
        Ok(grown)
    }

    fn finish(self, _: &u64, out: &mut String) {
        write!(out, "{}", self.keys.len()).expect("writing to a text cannot fail");
    }
}
