//! The segments of the open generation: a group of records goes to the end of one, whole or not at all.
//!
//! A failed write or sync closes the segment, and the group is written anew to the next one.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quiver_types::{Error, ErrorKind, Result};
use tracing::{debug, error, warn};

use super::Committer;
use crate::failpoint;
use crate::metrics::METRICS;
use crate::settings::WalLevel;
use crate::wal::segment::{Segment, SegmentHeader, file_name};

/// How often the free space of the disk is looked at.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);

/// The segments of the open generation.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) segment: Option<Segment>,
    paths: Vec<PathBuf>,
    next_segment: u32,
    previous_bytes: u64,
    pub(super) buffer: Vec<u8>,
    /// Level `os`: whether something was written since the last sync.
    pub(super) unsynced: bool,
    /// Level `os`: whether something acknowledged lies in a segment that was given up before it was synced.
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
    /// Begins anew for the next generation; gives the segments of this one.
    pub(super) fn take_paths(&mut self) -> Vec<PathBuf> {
        let paths = std::mem::take(&mut self.paths);
        let buffer = std::mem::take(&mut self.buffer);
        *self = Self { buffer, space_checked: self.space_checked, ..Self::default() };
        paths
    }
}

impl Committer {
    /// Writes what the buffer holds.
    pub(super) fn write_group(&mut self) -> Result<()> {
        self.check_space()?;
        let started = Instant::now();
        let mut result = self.try_write();
        if let Err(error) = &result {
            warn!(%error, generation = %self.generation.id(), "cannot write the WAL; trying a new segment");
            self.give_up_segment();
            result = self.try_write();
        }
        METRICS.wal_commit_time.add_time(started.elapsed());
        match result {
            Ok(()) => {
                METRICS.wal_commits.inc();
                METRICS.wal_written_bytes.add(self.log.buffer.len() as u64);
                Ok(())
            }
            Err(error) => {
                error!(%error, generation = %self.generation.id(), "cannot write the WAL; writes are refused");
                self.give_up_segment();
                let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
                let text = if full { "disk is full" } else { "write-ahead log cannot be written" };
                Err(Error::new(ErrorKind::Unavailable, text).with_source(error))
            }
        }
    }

    fn check_space(&mut self) -> Result<()> {
        if self.log.space_checked.is_some_and(|at| at.elapsed() < SPACE_INTERVAL) {
            return Ok(());
        }
        match self.disk.free_bytes(&self.dir) {
            Ok(free) if free < self.settings.disk_reserve_bytes => {
                self.log.space_checked = None;
                let text = format!("disk is nearly full: {free} bytes are free");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Ok(_) => {
                self.log.space_checked = Some(Instant::now());
                Ok(())
            }
            // The write itself will tell.
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
        let path = self.dir.join(file_name(header.generation, header.segment));
        match Segment::create(&*self.disk, &self.dir, &header) {
            Ok(segment) => {
                self.log.paths.push(path);
                self.log.next_segment += 1;
                self.log.segment = Some(segment);
                METRICS.wal_segments.inc();
                failpoint::hit("wal.after-create");
                Ok(())
            }
            Err(error) => {
                // Whatever was created must not stand in the way of the next attempt.
                if let Err(error) = self.disk.remove(&path) {
                    debug!(%error, "nothing to remove of a segment that could not be created");
                }
                Err(error)
            }
        }
    }

    /// Ends a full segment, whose content counts.
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

    /// Gives up the segment after a failure: what counts of it stays, the rest is cut if the disk lets us, and is
    /// ignored by replay in any case.
    fn give_up_segment(&mut self) {
        let Some(segment) = self.log.segment.take() else { return };
        METRICS.wal_failures.inc();
        let (path, good_bytes) = (segment.path().to_owned(), segment.good_bytes());
        drop(segment);
        if good_bytes == 0 && self.disk.remove(&path).is_ok() {
            // As if it had never been: the next one takes its number and follows the same predecessor.
            self.log.paths.pop();
            self.log.next_segment -= 1;
            return;
        }
        // Level `os`: no later sync reaches what was written to this file, so a part has to make it durable.
        self.log.doubtful |= std::mem::take(&mut self.log.unsynced);
        self.log.previous_bytes = good_bytes;
        if let Err(error) = self.disk.truncate(&path, good_bytes) {
            debug!(%error, path = %path.display(), "cannot cut a segment that was given up");
        }
    }
}
