//! The operations of the contract that all families have.

/// What of a family is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Collection,
    Entity,
    History,
    Restore,
    BulkDelete,
    BulkUpdate,
    Export,
    Import,
    Order,
}
