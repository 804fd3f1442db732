//! The operations that the contract gives to all families.

/// An operation of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
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
