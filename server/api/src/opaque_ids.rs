//! Random ids in place of consecutive ones: a caller who sees two of his own ids must not learn how many came between.

use std::hash::{BuildHasher, RandomState};

const ROUNDS: u32 = 4;

/// Stands other numbers in the place of 0, 1, 2 …, each once, in an order that nobody outside of the process can foresee.
#[derive(Debug, Default)]
pub(crate) struct IdPermutation(RandomState);

impl IdPermutation {
    /// The number in the place of another.
    pub(crate) fn of(&self, number: u64) -> u64 {
        // Rounds of a Feistel network map numbers to numbers one to one, whatever is mixed in.
        let (mut left, mut right) = ((number >> 32) as u32, number as u32);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.0.hash_one((round, right)) as u32);
        }
        (u64::from(left) << 32) | u64::from(right)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_stand_once_and_far_from_their_neighbours() {
        let scattered = IdPermutation::default();
        let all: Vec<u64> = (0..10_000).map(|n| scattered.of(n)).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        // Whatever neighbours have in common would give away how far numbers lie apart.
        let apart = |f: fn(u64, u64) -> u64| all.windows(2).map(|two| f(two[0], two[1])).collect::<HashSet<u64>>();
        for between in [apart(u64::wrapping_sub), apart(|a, b| a ^ b)] {
            assert!(between.len() > all.len() * 99 / 100, "{}", between.len());
        }
        let other = IdPermutation::default();
        assert_ne!(all, (0..10_000).map(|n| other.of(n)).collect::<Vec<_>>(), "of each process its own");
    }
}
