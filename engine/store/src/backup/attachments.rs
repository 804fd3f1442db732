//! Files attached to a backup: files of other components, whose content the store does not know.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::copy::{checksum, fetch};
use super::keys;
use super::manifest::{AttachedFile, Manifest};
use super::report::BackupReport;
use crate::error::{Context, Error, ErrorKind, Result, io_error};
use crate::failpoint;
use crate::object::{Storage, Tail};

/// Size of the tail that is compared to verify an upload.
const TAIL_BYTES: u64 = 64 << 10;

/// A component that attaches a file to backups.
#[async_trait]
pub trait Attach: Send + Sync {
    /// Name of the file; a single word.
    fn name(&self) -> &'static str;

    /// Writes a consistent copy of the file's content at one moment after the call, without blocking whoever changes it
    /// meanwhile.
    ///
    /// # Errors
    /// Any; then the backup fails.
    async fn write(&self, to: &Path) -> Result<()>;
}

/// A component that receives its file when a backup is restored.
#[async_trait]
pub trait Detach: Send + Sync {
    /// Name of the file.
    fn name(&self) -> &'static str;

    /// Restores the file of a backup, completely or not at all, before parts are copied. If an earlier, interrupted
    /// restore has done it already, nothing happens.
    ///
    /// # Errors
    /// Any; then nothing is restored.
    async fn read(&self, from: &Path, backup: &str) -> Result<()>;
}

/// Has a component write its file, and copies that to the backup location.
pub(super) async fn attach(
    by: &dyn Attach,
    (to, stage): (&Storage, &Path),
    report: &mut BackupReport,
    manifest: &mut Manifest,
) -> Result<()> {
    let name = by.name();
    let cannot = |e| io_error(format!("cannot write below `{}`", stage.display()), e);
    tokio::fs::create_dir_all(stage).await.map_err(cannot)?;
    let path = stage.join(name);
    by.write(&path).await?;
    let bytes = tokio::fs::metadata(&path).await.map_err(cannot)?.len();
    let crc = checksum(path.clone()).await?;
    let tail = tail(path.clone(), bytes).await?;
    let key = keys::of_attached(&report.name, name);
    failpoint::hit("backup.before-attached");
    let sent = to.put_file(&key, &path, bytes, tail).await;
    sent.map_err(|e| Error::new(ErrorKind::Unavailable, "the backup cannot be written").with_source(e))?;
    let _ = tokio::fs::remove_file(&path).await;
    failpoint::hit("backup.after-attached");
    report.attached.insert(name.to_owned(), bytes);
    manifest.attached.insert(name.to_owned(), AttachedFile { key, bytes, crc });
    Ok(())
}

/// The last bytes of a file, to verify its upload.
async fn tail(path: PathBuf, length: u64) -> Result<Tail> {
    let bytes = length.min(TAIL_BYTES);
    let read = move || {
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(length - bytes))?;
        let mut last = Vec::new();
        file.read_to_end(&mut last)?;
        Ok::<u32, std::io::Error>(crc32c::crc32c(&last))
    };
    let crc = tokio::task::spawn_blocking(read).await.internal("the disk's thread stopped")?;
    Ok(Tail { bytes, crc: crc.map_err(|e| io_error("cannot read a file", e))? })
}

/// Passes the file of a backup to its component; returns whether the backup has one.
pub(super) async fn detach(
    by: &dyn Detach,
    (from, stage): (&Storage, &Path),
    backup: &str,
    manifest: &Manifest,
) -> Result<bool> {
    let Some(file) = manifest.attached.get(by.name()) else { return Ok(false) };
    let path = stage.join(by.name());
    fetch(from, &file.key, file.bytes, &path).await?;
    if checksum(path.clone()).await? != file.crc {
        let text =
            format!("file `{}` of the backup is damaged: it has another checksum than when it was made", file.key);
        return Err(Error::internal(text));
    }
    by.read(&path, backup).await?;
    let _ = tokio::fs::remove_file(&path).await;
    failpoint::hit("restore.after-attached");
    Ok(true)
}
