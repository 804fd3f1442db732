//! Whether a change is applied, or is a dry run.

/// Whether a change is made, or only tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeMode {
    /// It is checked and made.
    Apply,
    /// It is checked and answered as if it were made; nothing changes.
    DryRun,
}

impl ChangeMode {
    /// Says whether nothing is to change.
    pub fn is_dry_run(self) -> bool {
        self == Self::DryRun
    }
}
