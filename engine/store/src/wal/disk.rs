//! The only interface of the WAL to the disk, so that tests can make any call fail, tear or block.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::layout::create_dir_synced;

/// Extension of segments.
pub(crate) const EXTENSION: &str = "wal";

/// A file that is being written.
pub trait WalFile: Send + fmt::Debug {
    /// Appends all bytes.
    ///
    /// # Errors
    /// The I/O error; any prefix of the bytes may have been written. Not found: the file has no name any more, so it is gone
    /// with the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// The I/O error; nothing appended since the last success is certain to be durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file operations of the WAL.
pub trait WalDisk: Send + Sync + fmt::Debug {
    /// Creates a file that must not exist yet.
    ///
    /// # Errors
    /// What the disk says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WalFile>>;

    /// Makes creations, removals and renames in a folder durable.
    ///
    /// # Errors
    /// What the disk says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Lists the files of a folder, in no order.
    ///
    /// # Errors
    /// What the disk says; something has the extension of a segment and is no file.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// What the disk says.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Reads the first bytes of a file, fewer when it is shorter.
    ///
    /// # Errors
    /// What the disk says.
    fn read_head(&self, path: &Path, bytes: usize) -> io::Result<Vec<u8>>;

    /// Truncates a file durably.
    ///
    /// # Errors
    /// What the disk says.
    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Deletes a file.
    ///
    /// # Errors
    /// What the disk says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Syncs an existing file, whichever process wrote it.
    ///
    /// # Errors
    /// What the disk says.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Moves a file durably, creating the target folder if needed.
    ///
    /// # Errors
    /// What the disk says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Free disk space in bytes that this process may use.
    ///
    /// # Errors
    /// What the disk says.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// A segment ends at `wal.segment`, with a request of at most 2 GiB: what is larger is none of ours.
const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The machine's disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

#[derive(Debug)]
struct LocalFile {
    file: File,
    /// Whether the file system reports link counts; some report 0 for every file.
    has_names: bool,
}

impl WalFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        if self.has_names && self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was deleted while it was written to"));
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl WalDisk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WalFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let has_names = file.metadata()?.nlink() > 0;
        Ok(Box::new(LocalFile { file, has_names }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            // Follows links: a segment may lie on another disk.
            let found = fs::metadata(&path);
            if found.as_ref().is_ok_and(fs::Metadata::is_file) {
                files.push(path);
            } else if path.extension().is_some_and(|e| e == EXTENSION) {
                let what = match found {
                    // It went while the folder was read.
                    Err(_) if fs::symlink_metadata(&path).is_err() => continue,
                    Ok(found) if found.is_dir() => "a directory".to_owned(),
                    Ok(_) => "no regular file".to_owned(),
                    Err(e) => format!("a link that leads nowhere ({e})"),
                };
                let text = format!(
                    "`{}`, in the place of a WAL segment, is {what}; put the segment back, or move this away to start \
                     without what the segment held",
                    path.display()
                );
                return Err(io::Error::other(text));
            }
        }
        Ok(files)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        quiver_files::read(path, SEGMENT_BYTES_MAX)
    }

    fn read_head(&self, path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
        let mut head = Vec::with_capacity(bytes);
        quiver_files::open(path)?.take(bytes as u64).read_to_end(&mut head)?;
        Ok(head)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        quiver_files::open(path)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(dir) = to.parent() {
            create_dir_synced(dir).map_err(io::Error::other)?;
        }
        fs::rename(from, to)?;
        // Sync the new name first: better to have the file twice than not at all.
        [to, from].iter().filter_map(|path| path.parent()).try_for_each(|dir| self.sync_dir(dir))
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(dir)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_once_and_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wal");
        let mut file = LocalDisk.create(&path).unwrap();
        assert_eq!(LocalDisk.create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for text in ["one ", "", "two"] {
            file.append(text.as_bytes()).unwrap();
        }
        file.sync().unwrap();
        LocalDisk.sync(&path).unwrap();
        assert_eq!(LocalDisk.read(&path).unwrap(), b"one two");
        for (bytes, head) in [(0, ""), (3, "one"), (7, "one two"), (64, "one two")] {
            assert_eq!(LocalDisk.read_head(&path, bytes).unwrap(), head.as_bytes());
        }
        LocalDisk.truncate(&path, 3).unwrap();
        assert_eq!(LocalDisk.read(&path).unwrap(), b"one");
        LocalDisk.remove(&path).unwrap();
        assert_eq!(file.append(b"lost").unwrap_err().kind(), io::ErrorKind::NotFound, "nobody finds it again");
        let missing = |outcome: io::Result<()>| outcome.unwrap_err().kind() == io::ErrorKind::NotFound;
        assert!(missing(LocalDisk.remove(&path)) && missing(LocalDisk.truncate(&path, 0)));
        assert!(missing(LocalDisk.sync(&path)) && missing(LocalDisk.read(&path).map(drop)));
        assert!(missing(LocalDisk.read_head(&path, 1).map(drop)), "it is not made by being looked at");
    }

    #[test]
    fn folders_are_no_segments() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("quarantine")).unwrap();
        fs::write(dir.path().join("quarantine/old.wal"), "").unwrap();
        assert!(LocalDisk.list(dir.path()).unwrap().is_empty());
        fs::write(dir.path().join("a.wal"), "").unwrap();
        assert_eq!(LocalDisk.list(dir.path()).unwrap(), [dir.path().join("a.wal")]);
        std::os::unix::fs::symlink(dir.path().join("a.wal"), dir.path().join("b.wal")).unwrap();
        assert_eq!(LocalDisk.list(dir.path()).unwrap().len(), 2, "a link is followed");
        assert!(LocalDisk.list(&dir.path().join("nothing")).is_err());
        assert!(LocalDisk.free_bytes(dir.path()).unwrap() > 0);
        assert!(LocalDisk.free_bytes(&dir.path().join("nothing")).is_err());
    }

    /// Breaks if a missing segment is skipped without a warning, with all its writes.
    #[test]
    fn what_stands_in_the_place_of_a_segment_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wal");
        let told = || LocalDisk.list(dir.path()).unwrap_err().to_string();
        fs::create_dir(&path).unwrap();
        let text = told();
        assert!(text.contains("a.wal`") && text.contains("is a directory; put the segment back"), "{text}");
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(dir.path().join("nothing"), &path).unwrap();
        let text = told();
        assert!(text.contains("is a link that leads nowhere"), "{text}");
        fs::remove_file(&path).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let text = told();
        assert!(text.contains("is no regular file"), "{text}");
    }

    #[test]
    fn a_file_moves_into_a_folder_that_is_made_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.wal"), dir.path().join("quarantine/a.wal"));
        for text in ["first", "second"] {
            fs::write(&from, text).unwrap();
            LocalDisk.rename(&from, &to).unwrap();
            assert!(!from.exists());
            assert_eq!(fs::read_to_string(&to).unwrap(), text);
        }
        assert!(LocalDisk.rename(&from, &to).is_err(), "there is nothing to move");
        assert_eq!(fs::read_to_string(&to).unwrap(), "second");
        LocalDisk.sync_dir(dir.path()).unwrap();
        assert!(LocalDisk.sync_dir(&from).is_err());
    }
}
