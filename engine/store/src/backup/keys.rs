//! Names of backups, and the keys of their objects: the manifest of each, and attached files beside it.

use std::collections::{BTreeMap, BTreeSet};

use quiver_types::Millis;
use quiver_types::time::utc_text;

/// Folder of the manifests.
const FOLDER: &str = "_backup";

/// Name of a backup, given that of the newest one at its place. Names sort in the order in which backups were made, since
/// the last of them count as the newest. They begin with the commit; but a server that was set back to an older state of
/// its disk commits the same numbers again, and a clock may go back, so they never begin with a lower number than the last.
pub(super) fn next_name(commit: u64, made_ms: Millis, last: Option<&str>) -> String {
    let name = |number: u64| format!("{number:012}-{}", utc_text(made_ms));
    let number = |last: &str| last.split_once('-')?.0.parse::<u64>().ok()?.checked_add(1);
    let own = name(commit);
    match last.filter(|last| *last >= own.as_str()).and_then(number) {
        Some(next) => name(next.max(commit)),
        None => own,
    }
}

/// Key of a backup's manifest.
pub(super) fn of_manifest(name: &str) -> String {
    format!("{FOLDER}/{name}.json")
}

/// Finds the names of backups among objects.
pub(super) fn manifests(objects: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let name = |key: &String| Some(key.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".json")?.to_owned());
    objects.keys().filter_map(name).collect()
}

/// Key of an attached file: beside the manifest, with a different name.
pub(super) fn of_attached(backup: &str, name: &str) -> String {
    format!("{FOLDER}/{backup}.{name}")
}

/// The backup that an attached file belongs to; `None` for other keys.
pub(super) fn backup_of(key: &str) -> Option<&str> {
    let name = key.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let (backup, kind) = name.rsplit_once('.')?;
    (kind != "json" && !kind.contains('/')).then_some(backup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_told_from_manifests() {
        let key = of_attached("000000000007-2026-01-01T00:00:00.000Z", "configuration");
        assert_eq!(key, "_backup/000000000007-2026-01-01T00:00:00.000Z.configuration");
        assert_eq!(backup_of(&key), Some("000000000007-2026-01-01T00:00:00.000Z"));
        for other in ["_backup/x.json", "_quiver.json", "metrics/a.parquet", "_backup/x", "_backup/a.b/c"] {
            assert_eq!(backup_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_sort_by_commit_then_by_time() {
        let name = |commit, made_ms| next_name(commit, made_ms, None);
        assert_eq!(name(7, 1_767_323_045_000), "000000000007-20260102T030405Z");
        assert!([name(1, 9_000), name(2, 1_000), name(2, 2_000), name(10, 0)].is_sorted());
        let keys = ["_backup/a.json", "_backup/b.json", "_backup/a.configuration", "_backups/c.json", "metrics/d.json"];
        let objects = keys.iter().map(|key| ((*key).to_owned(), 1)).collect();
        assert_eq!(manifests(&objects).into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// Breaks if the backup that was just made counts as an old one.
    #[test]
    fn the_last_name_is_that_of_the_last_backup() {
        let mut last: Option<String> = None;
        // Commits and times: on, the same again, a clock that went back, a state of long ago, on from there.
        for (commit, made_ms, number) in
            [(7, 5_000, 7), (9, 6_000, 9), (9, 6_000, 10), (9, 1_000, 11), (3, 9_000, 12), (4, 9_000, 13), (20, 0, 20)]
        {
            let next = next_name(commit, made_ms, last.as_deref());
            assert!(last.is_none_or(|last| last < next) && next.starts_with(&format!("{number:012}-")), "{next}");
            last = Some(next);
        }
        // Of a file that is no backup nothing is learned.
        assert_eq!(next_name(5, 0, Some("notes")), next_name(5, 0, None));
    }
}
