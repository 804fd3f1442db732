//! The result of a backup.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The result of a backup.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BackupReport {
    /// Name of the backup, for `quiver restore --at`.
    pub name: String,
    /// Number of the catalog commit that it contains.
    pub commit: u64,
    /// Number of parts in the backup.
    pub parts: usize,
    /// Bytes of all parts in the backup.
    pub bytes: u64,
    /// Number of files that were copied; the others existed from an earlier backup.
    pub copied_files: usize,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Parts that are damaged and so not in the backup, with the reason.
    pub damaged: Vec<String>,
    /// Number of files of older backups that were deleted.
    pub deleted_files: usize,
    /// Attached files: name and size in bytes.
    #[serde(default)]
    pub attached: BTreeMap<String, u64>,
}

impl fmt::Display for BackupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, commit, parts, bytes, copied_files, copied_bytes, damaged, deleted_files, attached } = self;
        crate::consistency_check::list(f, "parts are damaged and NOT in the backup", damaged)?;
        write!(
            f,
            "backup `{name}` of commit {commit}: {parts} parts, {bytes} bytes; copied {copied_files} files, \
             {copied_bytes} bytes; deleted {deleted_files} files of older backups"
        )?;
        attached.iter().try_for_each(|(name, bytes)| write!(f, "; {name}: {bytes} bytes"))
    }
}
