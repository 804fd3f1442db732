//! `count_uniq(a, b) [limit N]`: distinct combinations, except the one of empty values only.

use std::fmt::Write;
use std::ops::Range;

use arrow::array::{Array, FixedSizeBinaryArray};
use datafusion::common::Result;
use quiver_types::logs::ID_BYTES;

use super::args::{Args, Column};
use super::grouped::GroupState;
use super::key_set::KeyCount;
use super::state_bytes::{Reader, put_bytes};
use crate::kernels::columns::Texts;

/// Combinations of a group.
#[derive(Debug, Default)]
pub(super) struct CountUniq {
    keys: KeyCount,
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

/// The one column, if it holds identifiers.
#[inline]
fn ids<'a>(args: &'a Args<'_>) -> Option<&'a FixedSizeBinaryArray> {
    match args.columns.as_slice() {
        [Column::Field { text, .. }] => match text.texts() {
            Texts::Id(array) => Some(array),
            _ => None,
        },
        _ => None,
    }
}

/// The number that the digits of an identifier are.
#[inline]
fn number(id: &[u8]) -> u128 {
    id.try_into().map_or(0, u128::from_be_bytes)
}

impl GroupState for CountUniq {
    type Config = u64;

    // Its text is short.
    const COPIES: usize = 2;

    fn add(&mut self, limit: &u64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        if self.keys.len() as u64 >= *limit {
            return 0;
        }
        if let Some(ids) = ids(args) {
            return if ids.is_null(row) { 0 } else { self.keys.insert_id(number(ids.value(row))) };
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

    fn add_run(&mut self, limit: &u64, args: &Args<'_>, rows: Range<usize>, buffer: &mut String) -> usize {
        let Some(ids) = ids(args) else { return rows.map(|row| self.add(limit, args, row, buffer)).sum() };
        let all = ids.value_data()[rows.start * ID_BYTES..rows.end * ID_BYTES].chunks_exact(ID_BYTES);
        let (mut grown, mut left) = (0, limit.saturating_sub(self.keys.len() as u64));
        for (row, id) in rows.zip(all) {
            if left == 0 {
                break;
            }
            if ids.is_valid(row) {
                let more = self.keys.insert_id(number(id));
                grown += more;
                left -= u64::from(more > 0);
            }
        }
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.keys.encode(out);
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        self.keys.merge(from, *limit)
    }

    fn finish(self, _: &u64, out: &mut String) {
        write!(out, "{}", self.keys.len()).expect("writing to a text cannot fail");
    }
}
