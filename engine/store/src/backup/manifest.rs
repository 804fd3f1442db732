//! What a backup holds: one JSON object per backup, `_backup/<name>.json`, beside the files of the parts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quiver_types::Millis;
use quiver_types::time::utc_text;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Attached;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::layout::check_format;
use crate::object::Storage;
use crate::part::PartMeta;

/// Folder of the manifests.
pub(super) const FOLDER: &str = "_backup";

/// A backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the formats in the store.
    pub format: u32,
    /// The installation that it is of.
    pub installation: Uuid,
    /// The commit whose live parts these are.
    pub commit: u64,
    /// When it was made, Unix milliseconds.
    pub made_ms: Millis,
    /// Version of the build that made it.
    pub version: String,
    /// The parts.
    pub parts: Vec<PartMeta>,
    /// Their files by key, with the CRC32C of each as a whole.
    pub files: BTreeMap<String, u32>,
    /// Files of others that belong to it, by whom they are of. Builds that do not know of them leave them alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attached: BTreeMap<String, Attached>,
}

/// Names a backup: names sort by commit, then by time.
pub(super) fn name(commit: u64, made_ms: Millis) -> String {
    format!("{commit:012}-{}", utc_text(made_ms))
}

/// Gives the key of a backup's manifest.
pub(super) fn key_of(name: &str) -> String {
    format!("{FOLDER}/{name}.json")
}

/// Finds the names of backups among objects.
pub(super) fn manifests(objects: &BTreeMap<String, u64>) -> BTreeSet<String> {
    let name = |key: &String| Some(key.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".json")?.to_owned());
    objects.keys().filter_map(name).collect()
}

impl Manifest {
    /// Reads one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Invalid`] when a newer build made it, [`ErrorKind::Internal`] when it is
    /// damaged.
    pub(super) async fn read(place: &Storage, name: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let missing = || Error::new(ErrorKind::NotFound, format!("`{}` holds no backup `{name}`", place.url()));
        let body = place.get(&key_of(name)).await?.ok_or_else(missing)?;
        let damaged = || format!("the manifest of backup `{name}` is damaged");
        let format: Format = serde_json::from_slice(&body).internal(damaged())?;
        check_format(format.format, &format!("backup `{name}`"))?;
        let manifest: Self = serde_json::from_slice(&body).internal(damaged())?;
        if let Some(key) = manifest.stray() {
            return Err(Error::new(ErrorKind::Internal, format!("{}: it names the file `{key}`", damaged())));
        }
        Ok(manifest)
    }

    /// A key that leads out of the store: files of a backup are written where their keys say.
    fn stray(&self) -> Option<&str> {
        let of_parts = self.parts.iter().flat_map(|part| &part.files).map(|file| file.key.as_str());
        let attached = self.attached.values().map(|attached| attached.key.as_str());
        of_parts.chain(self.files.keys().map(String::as_str)).chain(attached).find(|key| !is_below(key))
    }

    /// Writes it, which makes the backup.
    pub(super) async fn write(&self, place: &Storage, name: &str) -> Result<()> {
        let json = serde_json::to_vec(self).internal("cannot write a manifest as JSON")?;
        place.put(&key_of(name), Bytes::from(json)).await
    }
}

/// Whether a key is a path downwards.
fn is_below(key: &str) -> bool {
    key.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', '\0']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks where who may write to a bucket of backups chooses which files of the machine a restore writes.
    #[test]
    fn keys_do_not_lead_out_of_the_store() {
        let stray = |key: &str| {
            let manifest = serde_json::json!({
                "format": 1, "installation": Uuid::nil(), "commit": 1, "made_ms": 0, "version": "0", "parts": [],
                "files": { key: 7 },
            });
            serde_json::from_value::<Manifest>(manifest).unwrap().stray().map(str::to_owned)
        };
        for key in ["logs/2026-11-27/a.rows.parquet", "_backup/a.configuration", "a..b/..c"] {
            assert_eq!(stray(key), None, "{key}");
        }
        for key in ["../a", "logs/../../a", "/etc/a", "logs//a", "logs/./a", "logs/..", "", "..\\a"] {
            assert_eq!(stray(key).as_deref(), Some(key));
        }
    }
}
