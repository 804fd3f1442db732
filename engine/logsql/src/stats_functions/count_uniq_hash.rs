//! `count_uniq_hash(a, b) [limit N]`: distinct 64-bit hashes of combinations.

use std::fmt::Write;

use datafusion::common::Result;
use hashbrown::HashTable;
use xxhash_rust::xxh64::xxh64;

use super::args::Args;
use super::count_uniq::combination;
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_u64};

/// Hashes of a group.
#[derive(Debug, Default)]
pub(super) struct CountUniqHash {
    hashes: HashTable<u64>,
    key: Vec<u8>,
}

impl CountUniqHash {
    fn insert(&mut self, hash: u64) -> usize {
        if self.hashes.find(hash, |h| *h == hash).is_some() {
            return 0;
        }
        self.hashes.insert_unique(hash, hash, |h| *h);
        2 * size_of::<u64>()
    }
}

impl GroupState for CountUniqHash {
    type Config = u64;

    // Its text is short.
    const COPIES: usize = 2;

    fn add(&mut self, limit: &u64, args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        if self.hashes.len() as u64 >= *limit {
            return 0;
        }
        let mut key = std::mem::take(&mut self.key);
        let grown = if combination(args, row, buffer, &mut key) { self.insert(xxh64(&key, 0)) } else { 0 };
        self.key = key;
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.hashes.iter().for_each(|hash| put_u64(out, *hash));
    }

    fn merge(&mut self, limit: &u64, from: &mut Reader<'_>) -> Result<usize> {
        let mut grown = 0;
        while !from.is_empty() && (self.hashes.len() as u64) < *limit {
            grown += self.insert(from.u64()?);
        }
        Ok(grown)
    }

    fn finish(self, _: &u64, out: &mut String) {
        write!(out, "{}", self.hashes.len()).expect("writing to a text cannot fail");
    }
}
