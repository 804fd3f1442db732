//! Where rules and the policy come from.

/// Where groups of rules and policies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// Files that the settings name.
    Files,
    /// The stored configuration.
    Stored,
}
