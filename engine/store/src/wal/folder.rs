//! The folder of the segments, as this process found it. Another folder may come to stand in its place: a disk is unmounted,
//! or the data directory is moved and made anew. What is written there is not found again once the right one is back.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A folder that is held open, so that another folder under the same path is noticed.
#[derive(Debug)]
pub(crate) struct WalFolder {
    path: PathBuf,
    opened: File,
}

impl WalFolder {
    /// Opens the folder that has this name now.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), opened: File::open(path)? })
    }

    /// Its name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Looks whether the folder still has its name.
    ///
    /// # Errors
    /// No folder, or another one, has this path now; the text says which, and what to do.
    pub(crate) fn check(&self) -> io::Result<()> {
        let identity = |folder: Metadata| (folder.dev(), folder.ino());
        let own = self.opened.metadata().map(identity)?;
        let found = fs::metadata(&self.path).map(identity);
        if found.as_ref().is_ok_and(|found| *found == own) {
            return Ok(());
        }
        let what =
            found.map_or_else(|e| format!("is gone ({e})"), |_| "is another folder than the one in use".to_owned());
        let text =
            format!("`{}` {what}; put it back, or restart the server to go on with what is there", self.path.display());
        Err(io::Error::other(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_known_by_itself_and_not_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("wal"), dir.path().join("away"));
        assert!(WalFolder::open(&path).is_err());
        fs::create_dir(&path).unwrap();
        let folder = WalFolder::open(&path).unwrap();
        assert_eq!(folder.path(), path);
        folder.check().unwrap();
        fs::rename(&path, &away).unwrap();
        let text = folder.check().unwrap_err().to_string();
        assert!(text.contains("wal` is gone (") && text.contains("; put it back"), "{text}");
        fs::create_dir(&path).unwrap();
        let text = folder.check().unwrap_err().to_string();
        assert!(text.contains("wal` is another folder than the one in use; put it back"), "{text}");
        fs::remove_dir(&path).unwrap();
        // A link to the folder counts as the folder.
        std::os::unix::fs::symlink(&away, &path).unwrap();
        folder.check().unwrap();
    }
}
