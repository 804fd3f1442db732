//! The fail points of configuration: between the rows of one change. See [`quiver_types::failpoint`].

/// All fail points of this crate, for the tests that walk them.
pub const NAMES: &[&str] = &[
    // The entity and its version are written, then what it alone may have, then what it names.
    "config.after-entity",
    "config.after-keys",
    "config.after-links",
    // Of several that go along with one, some are gone.
    "config.in-cascade",
    "config.before-audit",
    "config.after-audit",
    "config.before-commit",
    "config.after-commit",
];

/// Passes a fail point.
#[inline]
pub(crate) fn hit(name: &'static str) {
    quiver_types::failpoint::hit(name, NAMES);
}
