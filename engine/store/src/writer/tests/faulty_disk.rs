//! A disk that fails on demand.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::wal::disk::{LocalDisk, WalDisk, WalFile};

/// Calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Create,
    Append,
    Sync,
    SyncDir,
    Rename,
}

#[derive(Debug, Default)]
struct Plan {
    /// Every failing call counts one down; an append writes half of its bytes before it fails.
    failures: Vec<(Call, u32, u32, io::ErrorKind)>,
    free_bytes: Option<u64>,
    calls: Vec<Call>,
}

/// The machine's disk, with a plan of failures.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultyDisk {
    plan: Arc<Mutex<Plan>>,
}

impl FaultyDisk {
    /// Lets the calls `after + 1 ..= after + count` of a kind fail, counted from now.
    pub(super) fn fail(&self, call: Call, after: u32, count: u32, error: io::ErrorKind) {
        self.plan.lock().failures.push((call, after, count, error));
    }

    /// Ends all failures.
    pub(super) fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.failures.clear();
        plan.free_bytes = None;
    }

    pub(super) fn set_free_bytes(&self, bytes: u64) {
        self.plan.lock().free_bytes = Some(bytes);
    }

    /// Number of calls so far.
    pub(super) fn calls(&self, call: Call) -> u32 {
        self.plan.lock().calls.iter().filter(|&&c| c == call).count() as u32
    }

    fn pass(&self, call: Call) -> io::Result<()> {
        let mut plan = self.plan.lock();
        plan.calls.push(call);
        for (kind, after, count, error) in &mut plan.failures {
            if *kind != call {
                continue;
            }
            if *after > 0 {
                *after -= 1;
            } else if *count > 0 {
                *count -= 1;
                return Err((*error).into());
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn WalFile>,
    disk: FaultyDisk,
}

impl WalFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.disk.pass(Call::Append) {
            self.file.append(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.pass(Call::Sync)?;
        self.file.sync()
    }
}

impl WalDisk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WalFile>> {
        self.pass(Call::Create)?;
        Ok(Box::new(FaultyFile { file: LocalDisk.create(path)?, disk: self.clone() }))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.pass(Call::SyncDir)?;
        LocalDisk.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        LocalDisk.list(dir)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        LocalDisk.read(path)
    }

    fn read_head(&self, path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
        LocalDisk.read_head(path, bytes)
    }

    fn truncate(&self, _: &Path, _: u64) -> io::Result<()> {
        // The worst case: what was given up stays in the file.
        Err(io::Error::other("no cut"))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        LocalDisk.remove(path)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalDisk.sync(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // The worst case: it has moved when it fails.
        LocalDisk.rename(from, to)?;
        self.pass(Call::Rename)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let planned = self.plan.lock().free_bytes;
        planned.map_or_else(|| LocalDisk.free_bytes(dir), Ok)
    }
}
