//! Replay: the segments found at start become the generations that they were, sealed.
//!
//! Here are the segments as files: which generation each belongs to, and which are deleted or moved aside. `generation` reads
//! what is in them.

mod generation;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use quiver_types::Millis;
use quiver_types::time::day_of;
use tracing::{info, warn};

use crate::error::{Error, Result, io_error};
use crate::memtable::{Generation, GenerationId};
use crate::metrics::METRICS;
use crate::registry::Registry;
use crate::wal::disk::WalDisk;
use crate::wal::segment::{self, SegmentHeader};
use generation::GenerationReplay;

/// A generation restored from the WAL.
#[derive(Debug)]
pub(crate) struct ReplayedGeneration {
    pub(crate) generation: Arc<Generation>,
    /// Its segments, in order.
    pub(crate) files: Vec<PathBuf>,
    /// Whether something in them was unreadable.
    pub(crate) damaged: bool,
    /// Number of damaged records.
    pub(crate) corrupt: u64,
}

/// Folder, in the directory of the WAL, for damaged segments.
pub(crate) const QUARANTINE: &str = "quarantine";

/// Replays all segments of a directory. Those of generations for which `flushed` returns true are deleted.
///
/// # Errors
/// Invalid: a segment or record has a newer version. Internal: the disk cannot be read.
pub(crate) fn replay(
    disk: &dyn WalDisk,
    dir: &Path,
    registry: &Arc<Registry>,
    flushed: &dyn Fn(GenerationId) -> bool,
) -> Result<Vec<ReplayedGeneration>> {
    let generations = find(disk, dir)?;
    // Only a metric, so errors are ignored.
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let left = generations.iter().filter(|(id, _)| !flushed(**id)).flat_map(|(_, files)| files.values());
    METRICS.wal_replay.set(left.map(bytes).sum());
    let mut out = Vec::new();
    for (id, files) in generations {
        if flushed(id) {
            for path in files.values() {
                // Whoever gave it another name may want to keep it.
                if segment::parse_file_name(path).is_some() {
                    discard(disk, path);
                } else {
                    quarantine(disk, path);
                }
            }
            continue;
        }
        let started = Instant::now();
        for path in files.values() {
            sync_again(disk, path);
        }
        let mut replay = GenerationReplay::begin(disk, id, &files, registry)?;
        let bytes = replay.run(disk, &files)?;
        let GenerationReplay { generation, damaged, torn, corrupt, .. } = replay;
        info!(
            generation = %id, bytes, samples = generation.samples(), log_rows = generation.log_rows(), corrupt, torn,
            ms = started.elapsed().as_millis() as u64, "replayed a generation of the WAL"
        );
        generation.seal();
        let files: Vec<PathBuf> = files.into_values().collect();
        if generation.is_empty() {
            for path in &files {
                if damaged {
                    quarantine(disk, path);
                } else {
                    discard(disk, path);
                }
            }
        } else {
            out.push(ReplayedGeneration { generation: Arc::new(generation), files, damaged, corrupt });
        }
    }
    Ok(out)
}

/// Finds the segments of a directory, by generation and index.
///
/// An intact header says which segment a file is, whatever its name: a copy under another name, or a segment of a flushed
/// generation, would be stored twice.
fn find(disk: &dyn WalDisk, dir: &Path) -> Result<BTreeMap<GenerationId, BTreeMap<u32, PathBuf>>> {
    let mut generations: BTreeMap<GenerationId, BTreeMap<u32, PathBuf>> = BTreeMap::new();
    let mut misnamed = Vec::new();
    for path in disk.list(dir).map_err(|e| io_error(format!("cannot list `{}`", dir.display()), e))? {
        let named = segment::parse_file_name(&path);
        if named.is_none() && !segment::is_called_one(&path) {
            warn!(path = %path.display(), "a file in the WAL's folder that is none of ours");
            continue;
        }
        let head = disk.read_head(&path, segment::HEADER_BYTES);
        let header = SegmentHeader::decode(head.as_deref().unwrap_or_default(), &path);
        match (header, named) {
            (Ok(Some(header)), named) if named != Some((header.generation, header.segment)) => {
                misnamed.push((header, path));
            }
            // Errors in a header are reported where the segment is read.
            (_, Some((generation, number))) => {
                generations.entry(generation).or_default().insert(number, path);
            }
            (Err(newer), None) => return Err(newer),
            (Ok(_), None) => {
                head.map_err(|e| unreadable(&path, e))?;
                warn!(path = %path.display(), "a file in the WAL's folder that is no segment, though it is called so");
            }
        }
    }
    for (SegmentHeader { generation, segment, .. }, path) in misnamed {
        match generations.entry(generation).or_default().entry(segment) {
            Entry::Vacant(place) => {
                warn!(path = %path.display(), %generation, segment, "a WAL segment has the name of another one");
                place.insert(path);
            }
            Entry::Occupied(_) => {
                warn!(path = %path.display(), %generation, segment, "a copy of a WAL segment is not read");
                quarantine(disk, &path);
            }
        }
    }
    Ok(generations)
}

/// Syncs a segment that an earlier process wrote and may have died before syncing: from now on queries show its rows,
/// and a repeated request with its key gets its response.
fn sync_again(disk: &dyn WalDisk, path: &Path) {
    if let Err(error) = disk.sync(path) {
        // Its generation will soon be flushed to a part, which is synced separately.
        METRICS.wal_failures.inc();
        warn!(path = %path.display(), %error, "cannot sync a WAL segment that is replayed");
    }
}

/// Deletes a segment that is no longer needed; if this fails, the next start does it.
pub(crate) fn discard(disk: &dyn WalDisk, path: &Path) {
    if let Err(error) = disk.remove(path) {
        warn!(path = %path.display(), %error, "cannot delete a WAL segment");
    }
}

/// Moves a segment that is damaged, or a copy, aside, for manual inspection.
pub(crate) fn quarantine(disk: &dyn WalDisk, path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return };
    let mut to = dir.join(QUARANTINE).join(name);
    // Copies have any names, and what was kept once is not written over.
    let mut others = 0;
    while disk.read_head(&to, 1).is_ok() {
        others += 1;
        to.set_file_name(format!("{}.{others}", name.to_string_lossy()));
    }
    match disk.rename(path, &to) {
        Ok(()) => warn!(path = %to.display(), "kept a WAL segment aside"),
        Err(error) => warn!(path = %path.display(), %error, "cannot move a WAL segment aside"),
    }
}

/// Collects the distinct days of some times. A request has few, so a list suffices.
pub(crate) fn note_days(ts: impl Iterator<Item = Millis>, days: &mut Vec<i32>) {
    let mut last = None;
    for t in ts {
        let day = day_of(t);
        if last != Some(day) {
            last = Some(day);
            if let Err(at) = days.binary_search(&day) {
                days.insert(at, day);
            }
        }
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let text = format!(
        "cannot read WAL segment `{}`; let the server read it, or move it away to start without what it holds",
        path.display()
    );
    io_error(text, error)
}
