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
        serde_json::from_slice(&body).internal(damaged())
    }

    /// Writes it, which makes the backup.
    pub(super) async fn write(&self, place: &Storage, name: &str) -> Result<()> {
        let json = serde_json::to_vec(self).internal("cannot write a manifest as JSON")?;
        place.put(&key_of(name), Bytes::from(json)).await
    }
}
