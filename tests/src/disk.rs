//! Faulty disks for real processes: a shim in C (`disk/shim.c`) stands between a server and its data directory. It
//! writes down every change ([`trace`]), from which [`model`] makes the directory as a power cut would have left it, and
//! it fails calls on demand ([`Faults`]).
//!
//! A shim below the process sees what a trait within it would not: SQLite's files, and code that goes its own way. The
//! binary under test is the real one, and its hot path pays nothing. What the shim does not see (a raw system call, a
//! shared mapping) shows as a difference between [`model::Disk::now`] and the folder, which the tests compare.

pub mod model;
pub mod trace;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::server::{Options, Server};
use crate::shim;

/// The compiled shim, made once per test process.
static SHIM: LazyLock<PathBuf> = LazyLock::new(|| shim::compiled("disk/shim.c"));

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `write` and its like, and cuts of files.
    Write,
    /// `fsync`, `fdatasync`; what was not synced before is lost, whatever a later sync says.
    Sync,
    /// `rename`.
    Rename,
    /// `read`, `pread`.
    Read,
    /// New files and folders.
    Create,
    /// Removals.
    Remove,
}

/// Files that calls can fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Segments of the write-ahead log.
    Wal,
    /// SQLite's files.
    Catalog,
    /// Parts and objects, in the store and in the spool.
    Store,
}

impl Area {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Wal, Self::Catalog, Self::Store];
}

/// Errno of an I/O error.
pub const EIO: i32 = 5;

const COUNTS_AT: u64 = 32;
const AREAS: u64 = 4;
const BUSY_AT: u64 = COUNTS_AT + 6 * AREAS * 8;
const CONTROL_BYTES: u64 = BUSY_AT + 8;

/// The page that test and shim share; `struct control` of the shim.
#[derive(Debug)]
pub struct Faults(File);

impl Faults {
    /// Lets `count` calls on some files fail, after `before` of them that succeed, counted from now.
    pub fn arm(&self, call: Call, area: Area, before: i64, count: i64) {
        self.0.write_all_at(&[0; 4], 0).expect("writable");
        let mut rest = Vec::with_capacity(28);
        rest.extend((call as u32).to_le_bytes());
        rest.extend(EIO.to_le_bytes());
        rest.extend(0u32.to_le_bytes());
        rest.extend(before.to_le_bytes());
        rest.extend(count.to_le_bytes());
        self.0.write_all_at(&rest, 4).expect("writable");
        self.0.write_all_at(&(1u32 << area as u32).to_le_bytes(), 0).expect("writable");
    }

    /// Ends all faults; gives how many calls failed.
    pub fn heal(&self) -> u32 {
        self.0.write_all_at(&[0; 4], 0).expect("writable");
        let mut fired = [0; 4];
        self.0.read_exact_at(&mut fired, 12).expect("readable");
        u32::from_le_bytes(fired)
    }

    /// Gives how often a call was made so far.
    pub fn calls(&self, call: Call, area: Area) -> u64 {
        let mut count = [0; 8];
        let at = COUNTS_AT + (call as u64 * AREAS + area as u64) * 8;
        self.0.read_exact_at(&mut count, at).expect("readable");
        u64::from_le_bytes(count)
    }
}

/// Watches the data directory of server processes, one after the other.
#[derive(Debug)]
pub struct Watch {
    folder: tempfile::TempDir,
    root: PathBuf,
    /// What fails.
    pub faults: Faults,
}

impl Watch {
    /// Begins with an empty folder `root`.
    pub fn new(root: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let options = &mut File::options();
        let control = options.read(true).write(true).create(true).truncate(true).open(folder.path().join("control"));
        let control = control.expect("a file");
        control.set_len(CONTROL_BYTES).expect("writable");
        Self { folder, root: root.to_owned(), faults: Faults(control) }
    }

    fn trace_path(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// Adds what lets a server run over the shim; with `traced`, its changes are written down.
    #[must_use]
    pub fn options(&self, options: Options, traced: bool) -> Options {
        let options = options
            .env("LD_PRELOAD", SHIM.display())
            .env("QUIVER_DISK_ROOT", self.root.display())
            .env("QUIVER_DISK_CONTROL", self.folder.path().join("control").display());
        if traced { options.env("QUIVER_DISK_TRACE", self.trace_path().display()) } else { options }
    }

    /// Kills a server that runs over the shim. It is held still first, and killed unless one of its threads is between a
    /// change and its line in the trace: a death there is one of the shim, not of a server.
    pub fn kill(&self, server: &mut Server) {
        while server.runs() {
            server.hold();
            let mut busy = [0; 8];
            self.faults.0.read_exact_at(&mut busy, BUSY_AT).expect("readable");
            if busy == [0; 8] {
                server.signal("KILL");
                server.ended();
            } else {
                server.signal("CONT");
            }
        }
    }

    /// Gives the length of the trace: whatever was done before this call stands before that place.
    pub fn place(&self) -> u64 {
        std::fs::metadata(self.trace_path()).map_or(0, |m| m.len())
    }

    /// Reads the trace of processes that have ended.
    pub fn trace(&self) -> trace::Trace {
        trace::Trace::parse(std::fs::read(self.trace_path()).expect("a trace"), &self.root)
    }
}
