//! The local object store: plain files in a directory. A put is durable when it returns: the body is written to a
//! temporary name, synced and renamed, and the directory is synced (`object_store`'s own `LocalFileSystem` never
//! syncs).

use std::collections::BTreeSet;
use std::fs::{DirEntry, File, Metadata};
use std::io::{ErrorKind as Io, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use quiver_files::refuse_irregular;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result, io_error};
use crate::failpoint;
use crate::layout::{CATALOG_PREFIX, EPOCH_PREFIX, create_dir_synced, remove_dir_synced, sync_dir};

/// Suffix of files being written. The rest is the final name, so that a retry after a crash overwrites what the crash
/// left.
const TEMPORARY: &str = ".tmp";
/// Largest object that is read as a whole, such as a full list of parts; files of parts are read by ranges.
const WHOLE_BYTES_MAX: u64 = 1 << 30;
/// What a file system keeps at its top, for root alone: a store, a table in it or a place for backups may be a disk of its own.
const LOST_AND_FOUND: &str = "lost+found";

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
    Ok(optional("read", path, quiver_files::read(path, WHOLE_BYTES_MAX))?.map(Bytes::from))
}

pub(super) fn size(path: &Path) -> Result<Option<u64>> {
    Ok(optional("look up", path, std::fs::metadata(path))?.map(|m| m.len()))
}

pub(super) fn read_range(path: &Path, range: Range<u64>) -> std::io::Result<Bytes> {
    let mut buffer = vec![0; (range.end - range.start) as usize];
    quiver_files::open(path)?.read_exact_at(&mut buffer, range.start)?;
    Ok(buffer.into())
}

pub(super) fn read_ranges(path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
    let missing = || Error::new(ErrorKind::NotFound, format!("`{}` does not exist", path.display()));
    let file = optional("open", path, quiver_files::open(path))?.ok_or_else(missing)?;
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
        refuse_irregular(temporary)?;
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

/// Copies a file of known length. The target appears under its name only when it is complete and synced.
pub(super) fn copy(from: &Path, path: &Path, length: u64) -> Result<()> {
    let parent = path.parent().ok_or_else(|| Error::internal("an object's key names a file"))?;
    create_dir_synced(parent)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = Path::new(&temporary);
    let write = || {
        refuse_irregular(temporary)?;
        let mut out = File::create(temporary)?;
        let copied = std::io::copy(&mut quiver_files::open(from)?, &mut out)?;
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

/// Creates a file that must not exist yet. If it exists with another content, returns that content.
pub(super) fn create(path: &Path, body: &[u8]) -> Result<Option<Bytes>> {
    let parent = path.parent().ok_or_else(|| Error::internal("an object's key names a file"))?;
    create_dir_synced(parent)?;
    let mut temporary = path.as_os_str().to_owned();
    // Unique, because two processes may do this at once.
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
        // Not found: a process that took over the store has deleted our temporary file.
        Err(e) if e.kind() == Io::AlreadyExists || e.kind() == Io::NotFound && path.exists() => {
            let found = read(path)?.ok_or_else(|| Error::new(ErrorKind::Unavailable, "an object came and went"))?;
            Some(found).filter(|found| found != body)
        }
        Err(e) => return Err(cannot("create", path, e)),
    };
    failpoint::hit("object.after-rename");
    // Also if another process created the file: it may have died before syncing, and the caller relies on what it
    // found.
    sync_dir(parent)?;
    Ok(found)
}

/// Renames a file, failing if the target exists.
fn give_name(temporary: &Path, path: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(temporary, path) {
        // For file systems without hard links.
        Err(e) if matches!(e.kind(), Io::PermissionDenied | Io::Unsupported) => {
            let renamed = renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE);
            renamed.map_err(std::io::Error::from)
        }
        linked => linked,
    }
}

/// Deletes temporary files that a crash left in the folders where objects are only created, never replaced. No other
/// process may be writing there any more.
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

/// Deletes files below a directory, and the day folders that become empty.
pub(crate) fn delete(root: &Path, keys: &[String]) -> Result<()> {
    let mut folders = BTreeSet::new();
    for key in keys {
        let path = root.join(key);
        optional("delete", &path, std::fs::remove_file(&path))?;
        // Also for files that are already gone: whoever deleted them may not have synced, and the caller will forget
        // the keys.
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

/// Lists files below a folder, by their paths from `root`, with their sizes.
pub(crate) fn list(root: &Path, prefix: &str) -> Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut folders = vec![prefix.trim_matches('/').to_owned()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let Some(entries) = optional("list", &path, std::fs::read_dir(&path))? else { continue };
        for entry in entries {
            let entry = entry.map_err(|e| cannot("list", &path, e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_of_disk = name == LOST_AND_FOUND;
            let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let Some(meta) = optional("look up", &entry.path(), what_it_is(&entry))? else { continue };
            if meta.is_dir() {
                if !is_of_disk {
                    folders.push(key);
                }
            } else if !key.ends_with(TEMPORARY) {
                found.push((key, meta.len()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What an entry of a folder is. Links are followed: a table may lie on another disk. Not found: a link that leads nowhere, or
/// to a folder in which it lies itself, which would have no end.
fn what_it_is(entry: &DirEntry) -> std::io::Result<Metadata> {
    if !entry.file_type()?.is_symlink() {
        return entry.metadata();
    }
    let path = entry.path();
    let target = std::fs::canonicalize(&path)?;
    let own = path.parent().map(std::fs::canonicalize).transpose()?;
    if own.is_some_and(|own| own.starts_with(&target)) {
        return Err(Io::NotFound.into());
    }
    std::fs::metadata(target)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn write(root: &Path, key: &str) -> PathBuf {
        let path = root.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, key).unwrap();
        path
    }

    /// Names of the files in a folder, temporary ones too.
    fn files(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_prefix_names_a_folder() {
        let dir = folder();
        for key in ["a/x.json", "a/b/y.json", "ab/z.json", "top", "a/half.tmp", "lost+found/#12"] {
            write(dir.path(), key);
        }
        let check = |prefix: &str, expected: &[&str]| {
            let found = list(dir.path(), prefix).unwrap();
            let expected: Vec<(String, u64)> =
                expected.iter().map(|key| ((*key).to_owned(), key.len() as u64)).collect();
            assert_eq!(found, expected, "{prefix}");
        };
        check("", &["a/b/y.json", "a/x.json", "ab/z.json", "top"]);
        check("a", &["a/b/y.json", "a/x.json"]);
        check("/a/", &["a/b/y.json", "a/x.json"]);
        check("a/b", &["a/b/y.json"]);
        // An object is no folder, and a folder that is not there holds nothing.
        check("top", &[]);
        check("nothing/there", &[]);
        assert!(list(&dir.path().join("no root"), "").unwrap().is_empty());
    }

    /// Breaks if a table that was moved to another disk is not found by a rebuild of the catalog.
    #[test]
    fn links_are_followed() {
        let (dir, away) = (folder(), folder());
        for key in ["day/a.json", "day/lost+found/#1"] {
            write(away.path(), key);
        }
        write(dir.path(), "t/1/b.json");
        for (link, target) in [
            ("logs", away.path().to_owned()),
            ("t/2", away.path().join("day")),
            ("t/1/c.json", away.path().join("day/a.json")),
            ("gone", away.path().join("nothing")),
            ("t/1/up", dir.path().join("t")),
            ("self", dir.path().to_owned()),
        ] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        let size = "day/a.json".len() as u64;
        let expected = ["logs/day/a.json", "t/1/b.json", "t/1/c.json", "t/2/a.json"].map(|key| (key.to_owned(), size));
        assert_eq!(list(dir.path(), "").unwrap(), expected);
        // Of an object that is a link, the link goes.
        delete(dir.path(), &["t/1/c.json".to_owned()]).unwrap();
        assert!(size_of(&away, "day/a.json").is_some() && size_of(&dir, "t/1/c.json").is_none());
    }

    fn size_of(dir: &tempfile::TempDir, key: &str) -> Option<u64> {
        size(&dir.path().join(key)).unwrap()
    }

    #[test]
    fn what_is_not_there_is_none_and_not_an_error() {
        let dir = folder();
        let file = write(dir.path(), "file");
        assert_eq!((read(&file).unwrap().as_deref(), size(&file).unwrap()), (Some(&b"file"[..]), Some(4)));
        for key in ["missing", "missing/too", "file/below"] {
            let path = dir.path().join(key);
            assert_eq!((read(&path).unwrap(), size(&path).unwrap()), (None, None), "{key}");
        }
        // A folder is there, and has no bytes to read.
        assert_eq!(read(dir.path()).unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn ranges_are_read_whole_or_not_at_all() {
        let dir = folder();
        let file = dir.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_ranges(&file, &[8..10, 0..0, 2..5]).unwrap(), [&b"89"[..], b"", b"234"]);
        assert!(read_ranges(&file, &[]).unwrap().is_empty());
        let short = read_ranges(&file, &[0..1, 9..11]).unwrap_err();
        assert_eq!((short.kind(), short.message.contains("cannot read `")), (ErrorKind::Internal, true), "{short}");
        let missing = read_ranges(&dir.path().join("no"), &[0..1, 1..2]).unwrap_err();
        assert_eq!((missing.kind(), missing.message.ends_with("does not exist")), (ErrorKind::NotFound, true));
        assert_eq!(read_range(&file, 3..4).unwrap(), &b"3"[..]);
        assert_eq!(read_range(&file, 3..11).unwrap_err().kind(), Io::UnexpectedEof);
    }

    #[test]
    fn a_body_has_its_name_once_it_is_whole() {
        let dir = folder();
        let path = dir.path().join("a/b.json");
        // What a crash left is replaced.
        write(dir.path(), "a/b.json.tmp");
        put(&path, b"first").unwrap();
        put(&path, b"second").unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap(), files(&dir.path().join("a"))),
            (b"second".to_vec(), vec!["b.json".to_owned()])
        );
        // A folder is in the way: the body that was written goes again.
        std::fs::create_dir_all(dir.path().join("a/taken/by")).unwrap();
        let error = put(&dir.path().join("a/taken"), b"x").unwrap_err();
        assert!(error.message.starts_with("cannot write `"), "{error}");
        assert_eq!(files(&dir.path().join("a")), ["b.json", "taken"]);
        assert!(put(&path.join("below/a/file"), b"x").is_err());
    }

    #[test]
    fn a_copy_of_another_length_is_none() {
        let dir = folder();
        let (from, to) = (write(dir.path(), "from"), dir.path().join("new/to"));
        let error = copy(&from, &to, 5).unwrap_err();
        assert!(crate::error::chain(&error).ends_with("has 4 bytes, not 5"), "{error}");
        assert_eq!(files(&dir.path().join("new")), [""; 0]);
        assert!(copy(&dir.path().join("missing"), &to, 4).is_err());
        assert_eq!(files(&dir.path().join("new")), [""; 0]);
        copy(&from, &to, 4).unwrap();
        assert_eq!(
            (std::fs::read(&to).unwrap(), files(&dir.path().join("new"))),
            (b"from".to_vec(), vec!["to".to_owned()])
        );
    }

    /// Breaks where somebody is waited for at the other end of a pipe.
    #[test]
    fn a_pipe_is_no_object() {
        use rustix::fs::{Mode, mkfifoat};

        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        let pipe = |name: &str| mkfifoat(CWD, at(name), Mode::RUSR | Mode::WUSR).unwrap();
        pipe("pipe");
        for told in [
            crate::error::chain(&read(&at("pipe")).unwrap_err()),
            crate::error::chain(&read_ranges(&at("pipe"), &[]).unwrap_err()),
            crate::error::chain(&create(&at("pipe"), b"x").unwrap_err()),
            crate::error::chain(&copy(&at("pipe"), &at("copy"), 1).unwrap_err()),
            read_range(&at("pipe"), 0..1).unwrap_err().to_string(),
        ] {
            assert!(told.ends_with("it is no regular file"), "{told}");
        }
        pipe("new.tmp");
        assert!(put(&at("new"), b"x").is_err());
        put(&at("new"), b"x").unwrap();
        assert_eq!(files(dir.path()), ["new", "pipe"], "what stood in the way of the temporary file was removed");
    }

    #[test]
    fn an_object_that_is_there_stays_as_it_is() {
        let dir = folder();
        let path = dir.path().join("_epoch/1.json");
        assert_eq!(create(&path, b"mine").unwrap(), None);
        assert_eq!(create(&path, b"mine").unwrap(), None, "made before, the answer was lost");
        assert_eq!(create(&path, b"").unwrap().as_deref(), Some(&b"mine"[..]));
        assert_eq!(create(&path, b"other").unwrap().as_deref(), Some(&b"mine"[..]));
        assert_eq!(files(&dir.path().join("_epoch")), ["1.json"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(create(&dir.path().join("_epoch/2.json"), b"").unwrap(), None, "an empty one is an object, too");
        assert_eq!(create(&dir.path().join("_epoch/2.json"), b"x").unwrap().as_deref(), Some(&b""[..]));
    }

    /// Elsewhere another process may be writing.
    #[test]
    fn temporary_files_are_swept_where_objects_are_created_once() {
        let dir = folder();
        sweep(&dir.path().join("no root")).unwrap();
        for key in ["x.tmp", "_catalog/1.json.9.tmp", "_epoch/2.json.tmp", "metrics/2026-01-02/p.tmp", "_epoch/2.json"]
        {
            write(dir.path(), key);
        }
        sweep(dir.path()).unwrap();
        assert_eq!(
            (files(dir.path()), files(&dir.path().join("_epoch"))),
            (["_catalog", "_epoch", "metrics"].map(str::to_owned).to_vec(), vec!["2.json".to_owned()])
        );
        assert_eq!(files(&dir.path().join("_catalog")), [""; 0]);
        assert_eq!(files(&dir.path().join("metrics/2026-01-02")), ["p.tmp"]);
    }

    #[test]
    fn folders_that_are_emptied_go_but_for_the_root() {
        let dir = folder();
        for key in ["t/1/a", "t/1/b", "t/2/a", "top"] {
            write(dir.path(), key);
        }
        let delete = |keys: &[&str]| delete(dir.path(), &keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>());
        delete(&["t/1/a", "t/2/a", "t/3/never", "top/below", "top"]).unwrap();
        assert_eq!((files(dir.path()), files(&dir.path().join("t"))), (vec!["t".to_owned()], vec!["1".to_owned()]));
        delete(&["t/1/b", "t/1/b"]).unwrap();
        assert_eq!(files(&dir.path().join("t")), [""; 0], "no more than one folder up");
        delete(&[]).unwrap();
        assert!(delete(&["t"]).is_err(), "a folder is no object");
        assert!(dir.path().join("t").is_dir());
    }
}
