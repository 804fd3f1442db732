//! The segments of the open generation. A group of records is appended to one segment, completely or not at all.
//!
//! If a write or sync fails, the segment is closed and the group is written again to the next one.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quiver_types::error::has_no_room;
use quiver_types::{Error, ErrorKind, LogPace, Result};
use tracing::{debug, error, warn};

use super::Committer;
use crate::failpoint;
use crate::metrics::METRICS;
use crate::settings::WalLevel;
use crate::wal::segment::{Segment, SegmentHeader, file_name};

/// How often free disk space is checked.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// Of failures, which may come with every write.
static PACE: LogPace = LogPace::new();

/// The segments of the open generation.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) segment: Option<Segment>,
    paths: Vec<PathBuf>,
    next_segment: u32,
    previous_bytes: u64,
    pub(super) buffer: Vec<u8>,
    /// At level `os`: whether anything was written since the last sync.
    pub(super) unsynced: bool,
    /// Whether acknowledged data is in a segment that was abandoned before it was synced (at level `os`), or was deleted.
    pub(super) doubtful: bool,
    pub(super) synced_at: Instant,
    space_checked: Option<Instant>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            segment: None,
            paths: Vec::new(),
            next_segment: 0,
            previous_bytes: 0,
            buffer: Vec::new(),
            unsynced: false,
            doubtful: false,
            synced_at: Instant::now(),
            space_checked: None,
        }
    }
}

impl Log {
    /// Starts over for the next generation; returns the segments of this one.
    pub(super) fn take_paths(&mut self) -> Vec<PathBuf> {
        let paths = std::mem::take(&mut self.paths);
        let buffer = std::mem::take(&mut self.buffer);
        *self = Self { buffer, space_checked: self.space_checked, ..Self::default() };
        paths
    }
}

impl Committer {
    /// Writes the records in the buffer.
    pub(super) fn write_group(&mut self) -> Result<()> {
        self.check_space()?;
        let started = Instant::now();
        let mut result = self.try_write();
        if let Err(error) = &result {
            if let Some(left_out) = PACE.turn("new segment") {
                let generation = self.generation.id();
                warn!(%error, %generation, left_out, "cannot write the WAL; trying a new segment");
            }
            let is_gone = self.give_up_segment();
            // The records refer to definitions in the segments before.
            if !is_gone {
                result = self.try_write();
            }
        }
        METRICS.wal_commit_time.add_time(started.elapsed());
        match result {
            Ok(()) => {
                self.wal_health.succeeded();
                METRICS.wal_commits.inc();
                METRICS.wal_written_bytes.add(self.log.buffer.len() as u64);
                Ok(())
            }
            Err(error) => {
                if let Some(left_out) = PACE.turn("refused") {
                    let generation = self.generation.id();
                    error!(%error, %generation, left_out, "cannot write the WAL; writes are refused");
                }
                self.give_up_segment();
                let full = has_no_room(error.kind());
                let text = if full { "disk is full" } else { "write-ahead log cannot be written" };
                if full {
                    self.wal_health.has_no_room(text);
                } else {
                    self.wal_health.failed(error.to_string());
                }
                Err(Error::new(ErrorKind::Unavailable, text).with_source(error))
            }
        }
    }

    fn check_space(&mut self) -> Result<()> {
        if self.log.space_checked.is_some_and(|at| at.elapsed() < SPACE_INTERVAL) {
            return Ok(());
        }
        match self.disk.free_bytes(self.folder.path()) {
            Ok(free) if free < self.settings.disk_reserve_bytes => {
                self.log.space_checked = None;
                let text = format!("disk is nearly full: {free} bytes are free");
                self.wal_health.has_no_room(&text);
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Ok(_) => {
                self.log.space_checked = Some(Instant::now());
                Ok(())
            }
            // If there is no space, the write will fail.
            Err(error) => {
                debug!(%error, "cannot ask for the free space");
                Ok(())
            }
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        let wanted = self.log.buffer.len() as u64;
        if self.log.segment.as_ref().is_some_and(|s| s.bytes() + wanted > self.settings.segment_bytes) {
            self.close_segment()?;
        }
        let created = self.log.segment.is_none();
        if created {
            self.create_segment()?;
        }
        failpoint::hit("wal.before-write");
        let Some(segment) = self.log.segment.as_mut() else {
            return Err(io::Error::other("no segment"));
        };
        segment.append(&self.log.buffer)?;
        failpoint::hit("wal.after-write");
        if created || self.settings.level == WalLevel::Sync {
            segment.sync(&*self.disk)?;
            failpoint::hit("wal.after-sync");
        } else {
            self.log.unsynced = true;
        }
        segment.accept();
        Ok(())
    }

    fn create_segment(&mut self) -> io::Result<()> {
        let header = SegmentHeader {
            generation: self.generation.id(),
            segment: self.log.next_segment,
            base_seq: self.generation.base_seq(),
            previous_bytes: self.log.previous_bytes,
        };
        self.folder.check()?;
        let dir = self.folder.path();
        let path = dir.join(file_name(header.generation, header.segment));
        match Segment::create(&*self.disk, dir, &header) {
            Ok(segment) => {
                self.log.paths.push(path);
                self.log.next_segment += 1;
                self.log.segment = Some(segment);
                METRICS.wal_segments.inc();
                failpoint::hit("wal.after-create");
                Ok(())
            }
            Err(error) => {
                // A file that was created must not block the next attempt.
                if let Err(error) = self.disk.remove(&path) {
                    debug!(%error, "nothing to remove of a segment that could not be created");
                }
                Err(error)
            }
        }
    }

    /// Closes a full segment with valid content.
    pub(super) fn close_segment(&mut self) -> io::Result<()> {
        if self.log.unsynced {
            self.sync_segment()?;
        }
        if let Some(segment) = self.log.segment.take() {
            self.log.previous_bytes = segment.good_bytes();
        }
        Ok(())
    }

    pub(super) fn sync_segment(&mut self) -> io::Result<()> {
        if let Some(segment) = self.log.segment.as_mut() {
            segment.sync(&*self.disk)?;
        }
        self.log.unsynced = false;
        self.log.synced_at = Instant::now();
        Ok(())
    }

    /// Abandons the segment after a failure: its valid bytes stay; the rest is truncated if the disk allows, and in any
    /// case ignored by replay. Says whether its valid bytes are gone, because somebody deleted it.
    fn give_up_segment(&mut self) -> bool {
        let Some(segment) = self.log.segment.take() else { return false };
        METRICS.wal_failures.inc();
        let (path, good_bytes) = (segment.path().to_owned(), segment.good_bytes());
        drop(segment);
        if good_bytes == 0 && self.disk.remove(&path).is_ok() {
            // As if it had never existed: the next segment takes its number and has the same predecessor.
            self.log.paths.pop();
            self.log.next_segment -= 1;
            return false;
        }
        // At level `os`, no later sync covers what was written to this file, so it has to be flushed to a part to be
        // durable.
        self.log.doubtful |= std::mem::take(&mut self.log.unsynced);
        self.log.previous_bytes = good_bytes;
        let Err(error) = self.disk.truncate(&path, good_bytes) else { return false };
        debug!(%error, path = %path.display(), "cannot cut a segment that was given up");
        let is_gone = good_bytes > 0 && error.kind() == io::ErrorKind::NotFound;
        // What was acknowledged is in memory only, until it is in a part.
        self.log.doubtful |= is_gone;
        is_gone
    }
}
