//! The fail points of the token service: around what it writes. See [`quiver_types::failpoint`].

/// All fail points of this crate, for the tests that walk them.
pub const NAMES: &[&str] = &[
    "auth.before-session",
    "auth.after-session",
    "auth.after-refresh",
    "auth.after-end",
    // The next key signs, and the old ones are good as before.
    "auth.in-rotation",
    "auth.after-rotation",
];

/// Passes a fail point.
#[inline]
pub(crate) fn hit(name: &'static str) {
    quiver_types::failpoint::hit(name, NAMES);
}
