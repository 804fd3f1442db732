//! The fail points of queries in any language: tests make a query slow there. See [`quiver_types::failpoint`].

/// All fail points of this crate.
pub const NAMES: &[&str] = &[
    // A query has its place and begins.
    "query.begin",
    // Somebody asks whether a query may go on.
    "query.check",
];

/// Passes a fail point.
#[inline]
pub fn hit(name: &'static str) {
    quiver_types::failpoint::hit(name, NAMES);
}
