//! `uniq_values(a) [limit N]`: a sorted JSON array of the distinct values that are not empty.

use datafusion::common::Result;

use super::args::Args;
use super::blob::{Reader, put_bytes};
use super::grouped::GroupState;
use super::key_set::KeySet;
use crate::kernels::values::{compare_ranked, rank};
use crate::rowfn::unpack_words::push_array;

/// Values of a group.
#[derive(Debug, Default)]
pub(super) struct UniqValues {
    keys: KeySet,
}

impl GroupState for UniqValues {
    type Config = u64;

    fn add(&mut self, limit: &u64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        let mut grown = 0;
        if self.keys.len() as u64 <= *limit {
            args.each(row, buffer, |_, value| {
                if !value.is_empty() {
                    grown += self.keys.insert(value.as_bytes());
                }
            });
        }
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.keys.iter().for_each(|key| put_bytes(out, key));
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        let mut grown = 0;
        while !from.is_empty() && self.keys.len() as u64 <= *limit {
            grown += self.keys.insert(from.text()?.as_bytes());
        }
        Ok(grown)
    }

    fn finish(self, limit: &u64, out: &mut String) {
        // What went in was text.
        let mut all: Vec<_> =
            self.keys.iter().filter_map(|k| std::str::from_utf8(k).ok()).map(|v| (rank(v), v)).collect();
        all.sort_unstable_by(|a, b| compare_ranked(*a, *b).then_with(|| a.1.cmp(b.1)));
        all.truncate(usize::try_from(*limit).unwrap_or(usize::MAX));
        push_array(all.into_iter().map(|(_, value)| value), out);
    }
}
