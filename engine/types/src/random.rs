//! Random bytes and encryption as traits, passed in like the clock: tests can make them predictable, and keys stay in
//! one place.

use std::fmt;

/// Gives random bytes that nobody can guess.
pub trait Random: Send + Sync + fmt::Debug {
    /// Overwrites all of `bytes`.
    fn fill(&self, bytes: &mut [u8]);
}

/// Gives so many random bytes.
pub fn random_bytes<const N: usize>(random: &dyn Random) -> [u8; N] {
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    bytes
}

/// Encrypts what rests in the database and must not be read there.
pub trait Vault: Send + Sync + fmt::Debug {
    /// Encrypts; `place` is authenticated with it, so that sealed bytes cannot be moved elsewhere.
    fn seal(&self, place: &str, plain: &[u8]) -> Vec<u8>;

    /// Decrypts; none when it was sealed with another key, for another place, or changed.
    fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>>;
}
