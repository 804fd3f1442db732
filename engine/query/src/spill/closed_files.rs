//! Spill files that are open only while somebody writes or reads them. Those that DataFusion makes have a file descriptor as
//! long as they are there, and an exchange has as many of them as batches wait in it ([`super::one_batch_per_file`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::{SpillFile, SpillWriter};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio_util::io::ReaderStream;

/// Bytes that are read at once.
const READ_BYTES: usize = 128 << 10;

/// How the names of such files end.
const ENDING: &str = "rows";

/// A file without a descriptor, which goes when it is dropped.
#[derive(Debug)]
struct ClosedFile {
    path: PathBuf,
    /// Has the folder.
    _disk: Arc<DiskManager>,
}

/// Takes the file out of one that a disk made. One that is no file of the system stays as it is.
///
/// # Errors
/// Those of the disk.
pub(super) fn closed(made: Arc<dyn SpillFile>, disk: &Arc<DiskManager>) -> io::Result<Arc<dyn SpillFile>> {
    let Some(path) = made.path() else { return Ok(made) };
    // What was made removes the name that it knows.
    let own = path.with_extension(ENDING);
    std::fs::rename(path, &own)?;
    Ok(Arc::new(ClosedFile { path: own, _disk: Arc::clone(disk) }))
}

impl Drop for ClosedFile {
    fn drop(&mut self) {
        // The folder goes with the engine, or is cleared when the next one starts.
        _ = std::fs::remove_file(&self.path);
    }
}

impl SpillFile for ClosedFile {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size(&self) -> Option<u64> {
        std::fs::metadata(&self.path).ok().map(|about| about.len())
    }

    fn read_stream(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let path = self.path.clone();
        let opened = stream::once(async move { tokio::fs::File::open(path).await });
        let pieces = opened.map_ok(|file| ReaderStream::with_capacity(file, READ_BYTES)).try_flatten();
        Ok(pieces.map_err(DataFusionError::from).boxed())
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Appended(OpenOptions::new().append(true).open(&self.path)?)))
    }
}

/// A file that is written at its end.
struct Appended(File);

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SpillWriter for Appended {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};

    use super::*;

    /// How many descriptors of the process lead into a folder.
    fn open_in(folder: &Path) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter(|one| std::fs::read_link(one.path()).is_ok_and(|to| to.starts_with(folder))).count()
    }

    #[tokio::test]
    async fn files_are_open_only_while_they_are_used() {
        let dir = std::env::temp_dir().join(format!("quiver-closed-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![dir.clone()]));
        let disk = Arc::new(disk.build().unwrap());
        let files: Vec<_> = (0..20).map(|_| closed(disk.create_tmp_file("a test").unwrap(), &disk).unwrap()).collect();
        for (n, file) in files.iter().enumerate() {
            let mut writer = file.open_writer().unwrap();
            writer.write_all(&vec![n as u8; 1 << 18]).unwrap();
            assert_eq!(open_in(&dir), 1);
            // What was written can be read before the end is.
            assert_eq!(file.size(), Some(1 << 18));
            writer.write_all(b"end").unwrap();
            writer.finish().unwrap();
        }
        assert_eq!(open_in(&dir), 0);
        for (n, file) in files.iter().enumerate() {
            let pieces: Vec<Bytes> = file.read_stream().unwrap().try_collect().await.unwrap();
            let expected = [vec![n as u8; 1 << 18], b"end".to_vec()].concat();
            let read: Vec<u8> = pieces.into_iter().flatten().collect();
            assert!(read == expected, "file {n}");
        }
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path().unwrap().to_owned()).collect();
        assert!(paths.iter().all(|path| path.exists()));
        drop(files);
        assert!(paths.iter().all(|path| !path.exists()));
        drop(disk);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
