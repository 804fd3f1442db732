//! Segments of generations that cannot be flushed: they move to a folder of their own, one by one, and a start completes what
//! a crash interrupted.

use std::path::{Path, PathBuf};

use hashbrown::HashSet;
use quiver_types::Result;

use crate::error::io_error;
use crate::memtable::GenerationId;
use crate::wal::disk::WalDisk;
use crate::wal::segment;

/// Folder within the WAL's for generations that cannot be flushed and were set aside.
pub(super) const HELD: &str = "held";

/// Moves a segment to the folder of those that were set aside, unless it is there, and updates its path.
pub(super) fn hold(disk: &dyn WalDisk, path: &mut PathBuf, held_dir: &Path) -> Result<()> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let to = held_dir.join(name);
    if *path == to {
        return Ok(());
    }
    match disk.rename(path, &to) {
        // An earlier attempt moved it but failed to sync the folder; the caller does that now.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && disk.read_head(&to, 1).is_ok() => {}
        moved => moved.map_err(|e| io_error(format!("cannot move `{}`", path.display()), e))?,
    }
    *path = to;
    Ok(())
}

/// Completes the moves of generations that were being set aside when the process ended: moves their remaining segments.
pub(super) fn finish_moves(disk: &dyn WalDisk, dir: &Path, held_dir: &Path) -> Result<()> {
    let list = |dir: &Path| disk.list(dir).map_err(|e| io_error(format!("cannot list `{}`", dir.display()), e));
    let of = |path: &Path| segment::generation_of(disk, path);
    let held: HashSet<GenerationId> = list(held_dir)?.iter().filter_map(|path| of(path)).collect();
    if held.is_empty() {
        return Ok(());
    }
    for mut path in list(dir)? {
        if of(&path).is_some_and(|id| held.contains(&id)) {
            hold(disk, &mut path, held_dir)?;
        }
    }
    disk.sync_dir(held_dir).map_err(|e| io_error("cannot sync the folder of held segments", e))
}
