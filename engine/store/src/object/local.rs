//! The local store: plain files below a directory. A put lasts when it returns: the body goes to a temporary name, is
//! synced and renamed, and the directory is synced (`object_store`'s own `LocalFileSystem` never syncs).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind as Io, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result, io_error};
use crate::failpoint;
use crate::layout::{CATALOG_PREFIX, EPOCH_PREFIX, create_dir_synced, remove_dir_synced, sync_dir};

/// Ending of files that are being written. The name is otherwise the final one, so that a repeat after a crash
/// replaces what the crash left.
const TEMPORARY: &str = ".tmp";

fn cannot(what: &str, path: &Path, error: std::io::Error) -> Error {
    io_error(format!("cannot {what} `{}`", path.display()), error)
}

fn optional<T>(what: &str, path: &Path, answer: std::io::Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), Io::NotFound | Io::NotADirectory) => Ok(None),
        Err(e) => Err(cannot(what, path, e)),
    }
}

pub(super) fn read(path: &Path) -> Result<Option<Bytes>> {
    Ok(optional("read", path, std::fs::read(path))?.map(Bytes::from))
}

pub(super) fn size(path: &Path) -> Result<Option<u64>> {
    Ok(optional("look up", path, std::fs::metadata(path))?.map(|m| m.len()))
}

pub(super) fn read_range(path: &Path, range: Range<u64>) -> std::io::Result<Bytes> {
    let mut buffer = vec![0; (range.end - range.start) as usize];
    File::open(path)?.read_exact_at(&mut buffer, range.start)?;
    Ok(buffer.into())
}

pub(super) fn read_ranges(path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("`{}` does not exist", path.display()));
    let file = optional("open", path, File::open(path))?.ok_or_else(missing)?;
    let read = |range: &Range<u64>| {
        let mut buffer = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut buffer, range.start).map_err(|e| cannot("read", path, e))?;
        Ok(Bytes::from(buffer))
    };
    ranges.iter().map(read).collect()
}

pub(super) fn put(path: &Path, body: &[u8]) -> Result<()> {
    let parent = path.parent().ok_or_else(|| Error::internal("an object's key names a file"))?;
    create_dir_synced(parent)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(body)?;
        file.sync_all()?;
        failpoint::hit("object.after-temporary");
        std::fs::rename(temporary, path)
    };
    if let Err(e) = write() {
        let _ = std::fs::remove_file(temporary);
        return Err(cannot("write", path, e));
    }
    failpoint::hit("object.after-rename");
    sync_dir(parent)
}

/// Copies a file of a known length; it has its name once it is whole and synced.
pub(super) fn copy(from: &Path, path: &Path, length: u64) -> Result<()> {
    let parent = path.parent().ok_or_else(|| Error::internal("an object's key names a file"))?;
    create_dir_synced(parent)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = Path::new(&temporary);
    let write = || {
        let mut out = File::create(temporary)?;
        let copied = std::io::copy(&mut File::open(from)?, &mut out)?;
        if copied != length {
            return Err(std::io::Error::other(format!("`{}` has {copied} bytes, not {length}", from.display())));
        }
        out.sync_all()?;
        std::fs::rename(temporary, path)
    };
    if let Err(e) = write() {
        let _ = std::fs::remove_file(temporary);
        return Err(cannot("write", path, e));
    }
    sync_dir(parent)
}

/// Writes a file that must not be there yet; gives what is there when it is, and is not this body.
pub(super) fn create(path: &Path, body: &[u8]) -> Result<Option<Bytes>> {
    let parent = path.parent().ok_or_else(|| Error::internal("an object's key names a file"))?;
    create_dir_synced(parent)?;
    let mut temporary = path.as_os_str().to_owned();
    // Two processes may do this at once.
    temporary.push(format!(".{}{TEMPORARY}", Uuid::now_v7()));
    let temporary = Path::new(&temporary);
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(body)?;
        file.sync_all()?;
        failpoint::hit("object.after-temporary");
        give_name(temporary, path)
    };
    let named = write();
    let _ = std::fs::remove_file(temporary);
    let found = match named {
        Ok(()) => None,
        // Who took the store meanwhile has swept our temporary file away.
        Err(e) if e.kind() == Io::AlreadyExists || e.kind() == Io::NotFound && path.exists() => {
            let found = read(path)?.ok_or_else(|| Error::new(ErrorKind::Unavailable, "an object came and went"))?;
            Some(found).filter(|found| found != body)
        }
        Err(e) => return Err(cannot("create", path, e)),
    };
    failpoint::hit("object.after-rename");
    // Of what another process made, too: it may have died before this, and the caller builds upon what it found.
    sync_dir(parent)?;
    Ok(found)
}

/// Gives a file its final name unless there is one of that name.
fn give_name(temporary: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(temporary, path) {
        // A file system without hard links.
        Err(e) if matches!(e.kind(), Io::PermissionDenied | Io::Unsupported) => {
            let renamed = renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE);
            renamed.map_err(std::io::Error::from)
        }
        linked => linked,
    }
}

/// Removes what a crash left between a body and its name, in the folders where objects are created only once. No other
/// process writes there any more.
pub(crate) fn sweep(root: &Path) -> Result<()> {
    for folder in [root.to_owned(), root.join(CATALOG_PREFIX), root.join(EPOCH_PREFIX)] {
        let Some(entries) = optional("list", &folder, std::fs::read_dir(&folder))? else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().ends_with(TEMPORARY) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
    Ok(())
}

/// Deletes files below a directory, and day folders that this empties.
pub(crate) fn delete(root: &Path, keys: &[String]) -> Result<()> {
    let mut folders = BTreeSet::new();
    for key in keys {
        let path = root.join(key);
        optional("delete", &path, std::fs::remove_file(&path))?;
        // Of what is gone already, too: whoever deleted it may not have synced that, and the caller forgets the key.
        if let Some(parent) = path.parent().filter(|parent| parent.is_dir()) {
            folders.insert(parent.to_owned());
        }
    }
    for folder in folders {
        sync_dir(&folder)?;
        if folder != root {
            remove_dir_synced(&folder)?;
        }
    }
    Ok(())
}

pub(super) fn list(root: &Path, prefix: &str) -> Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut folders = vec![prefix.trim_matches('/').to_owned()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let Some(entries) = optional("list", &path, std::fs::read_dir(&path))? else { continue };
        for entry in entries {
            let entry = entry.map_err(|e| cannot("list", &path, e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let Some(meta) = optional("look up", &path, entry.metadata())? else { continue };
            if meta.is_dir() {
                folders.push(key);
            } else if !key.ends_with(TEMPORARY) {
                found.push((key, meta.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}
