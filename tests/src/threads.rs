//! Simulates a system that cannot create threads: a shim in C refuses to create any for as long as a test says.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::server::Options;
use crate::shim;

static SHIM: LazyLock<PathBuf> = LazyLock::new(|| shim::compiled("threads.c"));

/// The page that test and shim share: whether threads are refused, from byte 4 on how often that was so, from byte 8 on
/// how many were made.
#[derive(Debug)]
pub struct Threads {
    folder: tempfile::TempDir,
    control: File,
}

impl Threads {
    /// There are enough.
    #[allow(clippy::new_without_default, reason = "it makes files")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = &mut File::options();
        let control = options.read(true).write(true).create(true).truncate(true).open(folder.path().join("control"));
        let control = control.expect("a file");
        control.set_len(4096).expect("writable");
        Self { folder, control }
    }

    /// Adds what lets a server depend on this.
    #[must_use]
    pub fn options(&self, options: Options) -> Options {
        let control = self.folder.path().join("control");
        options.env("LD_PRELOAD", SHIM.display()).env("QUIVER_THREADS_CONTROL", control.display())
    }

    /// From now on none is made.
    pub fn refuse(&self) {
        self.control.write_all_at(&[1], 0).expect("writable");
    }

    /// Gives how many were made.
    pub fn made(&self) -> u32 {
        self.count(8)
    }

    /// From now on there are enough again; gives how often one was refused.
    pub fn allow(&self) -> u32 {
        self.control.write_all_at(&[0], 0).expect("writable");
        self.count(4)
    }

    fn count(&self, at: u64) -> u32 {
        let mut count = [0; 4];
        self.control.read_exact_at(&mut count, at).expect("readable");
        u32::from_le_bytes(count)
    }
}
