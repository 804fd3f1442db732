//! The content of a backup: one JSON object per backup, `_backup/<name>.json`, beside the files of the parts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quiver_types::Millis;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::keys::{self, backup_of};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::layout::{check_format, parse_part_key};
use crate::object::Storage;
use crate::part::{PartId, PartMeta};

/// The content of a backup. The object is written last; without it there is no backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the formats in the store.
    pub format: u32,
    /// The installation that was backed up.
    pub installation: Uuid,
    /// The commit whose live parts it contains.
    pub commit: u64,
    /// When it was made, Unix milliseconds.
    pub made_ms: Millis,
    /// The time that retention went by, which is not that of a clock that had jumped, Unix milliseconds. Older builds did
    /// not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_ms: Option<Millis>,
    /// Version of the build that made it.
    pub version: String,
    /// The parts of the backup, all live at that commit.
    pub parts: Vec<PartMeta>,
    /// Ids of live parts that it lacks, because they were damaged. Older builds did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<BTreeSet<PartId>>,
    /// Their files by key, with the CRC32C of each whole file.
    pub files: BTreeMap<String, u32>,
    /// Attached files, by the name of their owner. Builds that do not know an owner ignore its files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attached: BTreeMap<String, AttachedFile>,
}

/// An attached file of a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Its key in the backup's store.
    pub key: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// CRC32C of the whole file.
    pub crc: u32,
}

/// Tells whether a key is a plain path that does not leave its directory.
fn is_plain(key: &str) -> bool {
    key.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Invalid`] if a newer build wrote it, [`ErrorKind::Internal`] if it is
    /// damaged.
    pub(super) async fn read(place: &Storage, name: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let missing = || Error::new(ErrorKind::NotFound, format!("`{}` holds no backup `{name}`", place.url()));
        let body = place.get(&keys::of_manifest(name)).await?.ok_or_else(missing)?;
        let damaged = || format!("the manifest of backup `{name}` is damaged");
        let format: Format = serde_json::from_slice(&body).internal(damaged())?;
        check_format(format.format, &format!("backup `{name}`"))?;
        let manifest: Self = serde_json::from_slice(&body).internal(damaged())?;
        match manifest.strange_key() {
            Some(key) => Err(Error::internal(format!("{}: it names `{key}`", damaged()))),
            None => Ok(manifest),
        }
    }

    /// Finds a key that no backup would contain: someone who can write to the backup location must not control where a
    /// restore reads and writes.
    fn strange_key(&self) -> Option<&str> {
        let files = self.parts.iter().flat_map(|part| &part.files).map(|file| file.key.as_str());
        let attached = self.attached.values().map(|file| file.key.as_str());
        let is_of_part = |key: &&str| is_plain(key) && parse_part_key(key).is_some();
        let is_attached = |key: &&str| is_plain(key) && backup_of(key).is_some();
        files.filter(|key| !is_of_part(key)).chain(attached.filter(|key| !is_attached(key))).next()
    }

    /// Checks that the files of the manifest exist with the right sizes; with `attached`, that file as well.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] names the first missing file, and says how many are missing.
    pub(super) fn check_files(
        &self,
        objects: &BTreeMap<String, u64>,
        name: &str,
        attached: Option<&str>,
    ) -> Result<()> {
        let of_parts = self.parts.iter().flat_map(|part| &part.files).map(|file| (&file.key, file.bytes));
        let attached = attached.and_then(|by| self.attached.get(by)).map(|file| (&file.key, file.bytes));
        let mut wrong = of_parts.chain(attached).filter(|(key, bytes)| objects.get(*key) != Some(bytes));
        let Some((key, bytes)) = wrong.next() else { return Ok(()) };
        let is = match objects.get(key) {
            None => "is missing".to_owned(),
            Some(now) => format!("is damaged: it has {now} bytes, and {bytes} when it was made"),
        };
        let others = match wrong.count() {
            0 => String::new(),
            n => format!("; {} files of its manifest are not as they were", n + 1),
        };
        Err(Error::internal(format!("file `{key}` of backup `{name}` {is}{others}")))
    }

    /// Writes the manifest, which completes the backup.
    pub(super) async fn write(&self, place: &Storage, name: &str) -> Result<()> {
        let json = serde_json::to_vec(self).internal("cannot write a manifest as JSON")?;
        place.put(&keys::of_manifest(name), Bytes::from(json)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::testing::{manifest_of, part};
    use crate::part::{FileMeta, part_key};
    use crate::settings::StoreSettings;

    const NAME: &str = "000000000007-20260102T030405Z";

    /// A backup of one part, of whose files one has this key, and of a file of somebody else.
    fn backup(key: &str, attached: &str) -> Manifest {
        let id = PartId::from_u128(7);
        let file =
            |key: String| FileMeta { kind: "samples".to_owned(), key, bytes: 1, rows: 1, tail_len: 1, tail_crc: 0 };
        let files = vec![file(part_key("metrics", 0, id, "series")), file(key.to_owned())];
        let attached = AttachedFile { key: attached.to_owned(), bytes: 1, crc: 0 };
        let attached = BTreeMap::from([("configuration".to_owned(), attached)]);
        Manifest { attached, ..manifest_of(vec![part(id, files)]) }
    }

    fn place(dir: &tempfile::TempDir) -> Storage {
        Storage::local(dir.path(), &StoreSettings::default())
    }

    /// Breaks if somebody who can write to the backups can make a restore write anywhere that its user may.
    #[tokio::test]
    async fn keys_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir);
        let id = PartId::from_u128(8);
        let (good, attached) = (part_key("metrics", 0, id, "samples"), keys::of_attached(NAME, "configuration"));
        backup(&good, &attached).write(&place, NAME).await.unwrap();
        let read = Manifest::read(&place, NAME).await.unwrap();
        assert_eq!((read.parts.len(), read.attached.len(), read.commit), (1, 1, 7));
        let strange = [
            format!("../2026-01-02/{id}.samples.parquet"),
            format!("metrics/../{id}.samples.parquet"),
            format!("/2026-01-02/{id}.samples.parquet"),
            format!("metrics/2026-01-02/../../../{id}.samples.parquet"),
            format!("metrics/2026-01-02/{id}.x/../../../../y.parquet"),
            "../../.ssh/authorized_keys".to_owned(),
            "_catalog/000000000001.json".to_owned(),
            "_quiver.json".to_owned(),
            String::new(),
        ];
        for key in &strange {
            backup(key, &attached).write(&place, NAME).await.unwrap();
            let error = Manifest::read(&place, NAME).await.unwrap_err();
            let expected = format!("the manifest of backup `{NAME}` is damaged: it names `{key}`");
            assert_eq!((error.kind(), error.message), (ErrorKind::Internal, expected));
        }
        for key in ["_backup/../../secret.configuration", "/etc/passwd", "../x", "_backup/a/../b.x", "_backup/x.json"] {
            backup(&good, key).write(&place, NAME).await.unwrap();
            assert!(Manifest::read(&place, NAME).await.unwrap_err().message.ends_with(&format!("`{key}`")), "{key}");
        }
    }

    #[tokio::test]
    async fn manifests_that_are_not_there_newer_or_cut_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir);
        let missing = Manifest::read(&place, NAME).await.unwrap_err();
        let text = format!("`{}` holds no backup `{NAME}`", place.url());
        assert_eq!((missing.kind(), missing.message), (ErrorKind::NotFound, text));
        for (body, kind) in [
            ("", ErrorKind::Internal),
            ("{\"format\":", ErrorKind::Internal),
            ("{}", ErrorKind::Internal),
            // A newer one is named as such, whatever else stands in it.
            ("{\"format\":2,\"parts\":{}}", ErrorKind::Invalid),
            ("{\"format\":1}", ErrorKind::Internal),
        ] {
            place.put(&keys::of_manifest(NAME), Bytes::from(body)).await.unwrap();
            let error = Manifest::read(&place, NAME).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{body}: {error}");
            assert!(error.message.contains(&format!("backup `{NAME}`")), "{body}: {error}");
        }
    }

    /// Breaks if a restore meets a file that is not there halfway, and says no more than that it cannot be read.
    #[test]
    fn files_that_are_missing_or_cut_are_named() {
        let id = PartId::from_u128(7);
        let (series, samples) = (part_key("metrics", 0, id, "series"), part_key("metrics", 0, id, "samples"));
        let attached = keys::of_attached(NAME, "configuration");
        let manifest = backup(&samples, &attached);
        let told = |objects: &[(&str, u64)], by: Option<&str>| {
            let objects = objects.iter().map(|(key, bytes)| ((*key).to_owned(), *bytes)).collect();
            manifest.check_files(&objects, NAME, by).err().map(|error| error.message)
        };
        let is = |key: &str, is: &str| Some(format!("file `{key}` of backup `{NAME}` {is}"));
        let parts = [(&*series, 1), (&*samples, 1)];
        assert_eq!(told(&parts, None), None, "nobody asks for the other file");
        assert_eq!(told(&parts, Some("other")), None);
        assert_eq!(told(&parts, Some("configuration")), is(&attached, "is missing"));
        assert_eq!(told(&parts[..1], None), is(&samples, "is missing"));
        let cut = "is damaged: it has 0 bytes, and 1 when it was made";
        assert_eq!(told(&[(&*series, 0), parts[1], (&*attached, 1)], Some("configuration")), is(&series, cut));
        let all = "is missing; 3 files of its manifest are not as they were";
        assert_eq!(told(&[], Some("configuration")), is(&series, all));
    }
}
