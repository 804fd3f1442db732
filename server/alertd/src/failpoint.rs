//! The fail points of alerting: tests end the process there, or make it slow. See [`quiver_types::failpoint`].

/// All fail points of this crate.
pub const NAMES: &[&str] = &[
    // A receiver is about to be told.
    "alerts.before-message",
    // A receiver took a message, and the log does not say so yet.
    "alerts.after-message",
    // The log says so.
    "alerts.after-log",
    // A group was evaluated, and nobody knows yet.
    "rules.after-evaluation",
    // Its alerts are with the router.
    "rules.after-alerts",
];

/// Passes a fail point.
#[inline]
pub(crate) fn hit(name: &'static str) {
    quiver_types::failpoint::hit(name, NAMES);
}
