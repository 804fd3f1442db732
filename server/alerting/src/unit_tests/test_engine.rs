//! The engine on which unit tests of rules run.

use crate::rules::{Engine, Room};

/// An engine for tests; starts empty.
pub trait Bench: Engine {
    /// Says whether labels or values are beyond what is stored; nothing by default.
    ///
    /// # Errors
    /// The text of the error.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// Memory for what rules hold; by default without a bound.
    fn room(&self) -> Room {
        Room::default()
    }

    /// Most bytes that the outcome of a test may take; by default any number. Each expectation is told with all alerts or
    /// samples that came, which may be very many.
    fn told_bytes_max(&self) -> usize {
        usize::MAX
    }
}
