//! The engine on which unit tests of rules run.

use crate::rules::Engine;

/// An engine for tests; starts empty.
pub trait Bench: Engine {
    /// Says whether labels or values are beyond what is stored; nothing by default.
    ///
    /// # Errors
    /// The text of the error.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
}
