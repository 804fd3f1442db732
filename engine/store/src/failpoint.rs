//! The fail points of the store: between the steps of flush, upload, commit, compaction, retention, cleaner and replay
//! (promises D2, D4, D7). See [`quiver_types::failpoint`].

/// All fail points of the store, for the tests that walk them. [`hit`] refuses others (in debug builds).
pub const NAMES: &[&str] = &[
    "open.after-installation",
    "open.after-identity",
    "open.before-epoch",
    "open.after-epoch",
    "replay.begin",
    "replay.after-segment",
    "replay.end",
    "wal.after-create",
    "wal.before-write",
    "wal.after-write",
    "wal.after-sync",
    "wal.after-insert",
    "wal.before-seal",
    "wal.after-seal",
    "wal.before-retire",
    "wal.after-retire",
    "flush.before-pending",
    "flush.after-pending",
    "flush.after-part",
    "flush.before-commit",
    "flush.after-commit",
    "flush.after-swap",
    "flush.after-retire",
    "commit.begin",
    "commit.after-insert",
    "commit.before-end",
    "commit.after-end",
    "outbox.before-put",
    "outbox.after-put",
    "outbox.after-forget",
    "outbox.before-prune",
    "outbox.after-prune-object",
    "outbox.after-prune",
    "object.after-temporary",
    "object.after-rename",
    "upload.before-file",
    "upload.after-file",
    "upload.before-placed",
    "upload.after-placed",
    "upload.after-swap",
    "spool.before-delete",
    "spool.after-delete",
    "spool.after-forget",
    "compact.before-pending",
    "compact.after-pending",
    "compact.in-merge",
    "compact.after-part",
    "compact.before-commit",
    "compact.after-commit",
    "compact.after-swap",
    "retention.before-commit",
    "retention.after-commit",
    "retention.after-swap",
    "cleaner.before-doom",
    "cleaner.after-doom",
    "cleaner.after-doomed-delete",
    "cleaner.after-doomed-forget",
    "cleaner.before-delete",
    "cleaner.in-delete",
    "cleaner.after-delete",
    "cleaner.after-forget",
    "backup.after-snapshot",
    "backup.before-attached",
    "backup.after-attached",
    "backup.before-file",
    "backup.before-manifest",
    "backup.after-manifest",
    "restore.after-attached",
    "restore.before-file",
    "restore.after-files",
    "restore.after-identity",
    "close.after-seal",
];

/// Passes a fail point.
#[inline]
pub fn hit(name: &'static str) {
    quiver_types::failpoint::hit(name, NAMES);
}

/// Passes a fail point at which the step can fail, too.
///
/// # Errors
/// [`crate::ErrorKind::Internal`] when it is armed so.
#[inline]
pub fn check(name: &'static str) -> crate::Result<()> {
    quiver_types::failpoint::check(name, NAMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, name) in NAMES.iter().enumerate() {
            assert!(!NAMES[i + 1..].contains(name), "{name}");
        }
    }
}
