//! The random source of the machine.

use quiver_types::Random;
use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // Without random bytes nothing that is made here would be secret: better no answer than a weak one.
        SystemRandom::new().fill(bytes).expect("the system gives random bytes");
    }
}
