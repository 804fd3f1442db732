//! `hash(f) as r`: XXH64 of the value, its lower 53 bits, so that the number survives as a double.

use xxhash_rust::xxh64::xxh64;

/// Gives the hash of a value, below 2^53.
pub fn hash(value: &str) -> u64 {
    xxh64(value.as_bytes(), 0) & ((1 << 53) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        assert_eq!(hash("abcde"), 957_726_378_018_795);
        assert_eq!(hash("abc"), 7_930_733_036_767_641);
        assert_eq!(hash(""), 1_929_880_503_118_233);
    }
}
