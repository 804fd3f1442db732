//! `uniq_values(a) [limit N]`: a sorted JSON array of the distinct values that are not empty.

use datafusion::common::Result;

use super::args::Args;
use super::grouped::GroupState;
use super::key_set::KeySet;
use super::state_bytes::Reader;
use crate::kernels::values::{Rank, compare_ranked, rank};
use crate::row_functions::unpack_words::push_array;

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
        self.keys.encode(out);
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        self.keys.merge(from, limit.saturating_add(1))
    }

    fn finish(self, limit: &u64, out: &mut String) {
        // What went in was text.
        let mut all: Vec<(Rank, String)> = Vec::with_capacity(self.keys.len());
        self.keys.each(|key| all.extend(std::str::from_utf8(key).ok().map(|v| (rank(v), v.to_owned()))));
        all.sort_unstable_by(|a, b| compare_ranked((a.0, &a.1), (b.0, &b.1)).then_with(|| a.1.cmp(&b.1)));
        all.truncate(usize::try_from(*limit).unwrap_or(usize::MAX));
        push_array(all.iter().map(|(_, value)| value.as_str()), out);
    }
}
