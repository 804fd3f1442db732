//! What the segments of one generation hold, put back into memory.
//!
//! One segment is in memory at a time. A write is applied if all its records are valid, and once per sequence number. A
//! torn tail is truncated. Other damage is counted and skipped, along with rows that refer to a damaged definition, and
//! its segment is moved aside once the generation is flushed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::buffer::Buffer;
use arrow::compute::filter_record_batch;
use quiver_types::tables::history::TableRows;
use quiver_types::tables::logs::millis_of;
use quiver_types::{LabelSet, SpansBatch};
use roaring::RoaringBitmap;
use tracing::{info, warn};

use super::{note_days, unreadable};
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::log_streams::LiveStream;
use crate::memtable::logs::LogRows;
use crate::memtable::spans::starts;
use crate::memtable::{Generation, GenerationId, SampleRows};
use crate::metrics::METRICS;
use crate::registry::{AttachOutcome, Registry};
use crate::wal::codec::{self, BadBody, Definition, RecordKind};
use crate::wal::disk::WalDisk;
use crate::wal::record::{self, Header, SegmentEntry};
use crate::wal::segment::{self, SegmentHeader};

/// Damage may leave gaps in slot numbers, but a slot this far beyond all others cannot be valid.
const SLOT_GAP_MAX: usize = 1 << 24;

/// Data records of one write, until its last one is read.
#[derive(Debug)]
struct PendingWrite {
    seq: u64,
    records: Vec<(RecordKind, RecordBatch)>,
    broken: bool,
}

/// A generation while its segments are read.
#[derive(Debug)]
pub(super) struct GenerationReplay {
    pub(super) generation: Generation,
    headers: BTreeMap<u32, Option<SegmentHeader>>,
    /// Slot of each series number in the WAL.
    slots: Vec<u32>,
    /// Slot of each stream number in the WAL.
    log_slots: Vec<u32>,
    /// Whether all numbers equal their slots, so that columns can be used unchanged.
    same: bool,
    applied: RoaringBitmap,
    pending: Option<PendingWrite>,
    pub(super) damaged: bool,
    pub(super) corrupt: u64,
    pub(super) torn: u64,
}

impl GenerationReplay {
    /// Makes the generation that the segments belong to, empty, with the first sequence number that they tell.
    ///
    /// # Errors
    /// Invalid: a segment has a newer version. Internal: the disk cannot be read.
    pub(super) fn begin(
        disk: &dyn WalDisk,
        id: GenerationId,
        files: &BTreeMap<u32, PathBuf>,
        registry: &Arc<Registry>,
    ) -> Result<Self> {
        let mut headers = BTreeMap::new();
        for (&number, path) in files {
            let head = disk.read_head(path, segment::HEADER_BYTES).map_err(|e| unreadable(path, e))?;
            let header = SegmentHeader::decode(&head, path)?;
            headers.insert(number, header.filter(|h| (h.generation, h.segment) == (id, number)));
        }
        let mut base = headers.values().flatten().map(|h| h.base_seq).next();
        if base.is_none() {
            for path in files.values() {
                let bytes = disk.read(path).map_err(|e| unreadable(path, e))?;
                let first = record::next_good(&bytes, segment::HEADER_BYTES - 8);
                base = first.and_then(|at| match record::read(&bytes, at) {
                    SegmentEntry::Record(header, _) => Some(header.seq),
                    _ => None,
                });
                if base.is_some() {
                    break;
                }
            }
        }
        Ok(Self {
            generation: Generation::new(id, base.unwrap_or(0), Arc::clone(registry)),
            headers,
            slots: Vec::new(),
            log_slots: Vec::new(),
            same: true,
            applied: RoaringBitmap::new(),
            pending: None,
            damaged: false,
            corrupt: 0,
            torn: 0,
        })
    }

    /// Reads the segments in order and cuts a torn tail; gives the bytes that were read.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub(super) fn run(&mut self, disk: &dyn WalDisk, files: &BTreeMap<u32, PathBuf>) -> Result<u64> {
        let (mut total, mut next) = (0, 0);
        for (&number, path) in files {
            // A damaged name may contain any number, so the missing segments are only counted, not visited.
            if number > next {
                let (generation, until) = (self.generation.id(), number - 1);
                self.found_damage(u64::from(number - next));
                warn!(%generation, from = next, until, "segments of the WAL are missing");
            }
            next = number.saturating_add(1);
            let bytes = disk.read(path).map_err(|e| unreadable(path, e))?;
            total += bytes.len() as u64;
            METRICS.wal_replayed_bytes.add(bytes.len() as u64);
            let after = number.checked_add(1).and_then(|after| *self.headers.get(&after)?);
            let promised = after.map(|h| h.previous_bytes as usize);
            if bytes.len() < segment::HEADER_BYTES && promised.is_none_or(|p| p == 0) {
                // As a start leaves it that is ended at once; or it was emptied, and nothing says what it held.
                let bytes = bytes.len();
                warn!(path = %path.display(), bytes, "a WAL segment is empty: what it may have held is lost");
            }
            if self.headers[&number].is_none()
                && (bytes.len() >= segment::HEADER_BYTES || promised.is_some_and(|p| p > 0))
            {
                // The file name has the same information as the header, so the records are still readable.
                self.found_damage(1);
                warn!(path = %path.display(), "the header of a WAL segment is damaged");
            }
            let cut = self.segment(bytes, promised, path)?;
            if let Some(cut) = cut {
                METRICS.wal_torn_tails.inc();
                info!(path = %path.display(), from = cut, "the torn tail of a WAL segment is cut: no whole write follows");
                if let Err(error) = disk.truncate(path, cut as u64) {
                    warn!(path = %path.display(), %error, "cannot cut the torn tail of a WAL segment");
                }
            }
            crate::failpoint::hit("replay.after-segment");
        }
        Ok(total)
    }

    fn found_damage(&mut self, records: u64) {
        self.damaged = true;
        self.corrupt += records;
        METRICS.wal_corrupt_records.add(records);
    }

    /// Reads one segment; returns the position to truncate at if its tail is torn. `promised` is the valid length
    /// according to the next segment: nothing may be missing up to there, and what follows is ignored.
    fn segment(&mut self, bytes: Vec<u8>, promised: Option<usize>, path: &Path) -> Result<Option<usize>> {
        let end = promised.map_or(bytes.len(), |p| p.min(bytes.len()));
        if promised.is_some_and(|p| p > bytes.len()) {
            self.found_damage(1);
        }
        let buffer = Buffer::from_vec(bytes);
        let bytes = &buffer.as_slice()[..end];
        self.pending = None;
        let mut at = segment::HEADER_BYTES;
        while at < end {
            match record::read(bytes, at) {
                SegmentEntry::Record(header, next) => {
                    self.record(
                        header,
                        &buffer.slice_with_length(at + record::HEADER_BYTES, next - at - record::HEADER_BYTES),
                        path,
                    )?;
                    at = next;
                }
                found => {
                    let next = record::next_good(bytes, at);
                    if next.is_none() && found == SegmentEntry::Torn && promised.is_none() {
                        self.torn += 1;
                        return Ok(Some(at));
                    }
                    let to = next.unwrap_or(end);
                    warn!(path = %path.display(), from = at, to, "damage in a WAL segment");
                    self.found_damage(record::count_damaged(bytes, at, to));
                    at = to;
                }
            }
        }
        Ok(None)
    }

    fn record(&mut self, header: Header, body: &Buffer, path: &Path) -> Result<()> {
        let kind = RecordKind::of(header.table, header.kind).filter(|k| header.version <= k.table().version).ok_or_else(|| {
            let text = format!(
                "WAL segment `{}` holds records of table {} version {} kind {}, which this build does not know; start a \
                 newer build",
                path.display(),
                header.table,
                header.version,
                header.kind
            );
            Error::new(ErrorKind::Invalid, text)
        })?;
        let decoded = codec::decode(kind, header.version, header.flags, body);
        if kind.defines() {
            let read = decoded.and_then(|batch| codec::read_definitions(&batch));
            let defined = read
                .and_then(|d| if kind == RecordKind::LogStreams { self.define_streams(&d) } else { self.define(&d) });
            if let Err(error) = defined {
                warn!(path = %path.display(), %error, "definitions that cannot be read");
                self.found_damage(1);
            }
            return Ok(());
        }
        let relative = header.seq.checked_sub(self.generation.base_seq()).and_then(|r| u32::try_from(r).ok());
        if relative.is_some_and(|r| self.applied.contains(r)) {
            return Ok(());
        }
        if header.index == 0 {
            self.pending = Some(PendingWrite { seq: header.seq, records: Vec::new(), broken: relative.is_none() });
        }
        let Some(pending) = self.pending.as_mut().filter(|p| p.seq == header.seq) else {
            // An earlier record of the write is damaged; a write is applied completely or not at all.
            self.lost_rows(decoded.map_or(0, |b| b.num_rows()));
            return Ok(());
        };
        match decoded {
            Ok(batch) if pending.records.len() == usize::from(header.index) => pending.records.push((kind, batch)),
            Ok(_) => pending.broken = true,
            Err(error) => {
                pending.broken = true;
                warn!(path = %path.display(), %error, "a record that cannot be read");
                self.found_damage(1);
            }
        }
        if header.flags & record::LAST != 0
            && let Some(write) = self.pending.take()
        {
            let rows = write.records.iter().map(|(_, b)| b.num_rows()).sum();
            if write.broken {
                self.lost_rows(rows);
            } else if let Err(error) = self.apply(&write) {
                warn!(path = %path.display(), %error, "a write that cannot be read");
                self.found_damage(1);
                self.lost_rows(rows);
            } else if let Some(relative) = relative {
                self.applied.insert(relative);
            }
        }
        Ok(())
    }

    fn lost_rows(&mut self, rows: usize) {
        self.damaged = true;
        METRICS.wal_quarantined_rows.add(rows as u64);
    }

    fn define(&mut self, definitions: &[Definition]) -> Result<(), BadBody> {
        let far = self.slots.len() + SLOT_GAP_MAX;
        if definitions.iter().any(|d| d.slot as usize > far) {
            return Err(codec::bad("a series number far ahead of all others"));
        }
        let new: Vec<&Definition> =
            definitions.iter().filter(|d| self.slots.get(d.slot as usize).is_none_or(|&s| s == u32::MAX)).collect();
        let mut attached = Vec::with_capacity(new.len());
        let registry = Arc::clone(self.generation.registry());
        let series = new.iter().map(|d| (d.id, &*d.labels));
        let first_slot = self.generation.series() as u32;
        registry.attach(self.generation.ordinal(), first_slot, series, usize::MAX, |a| attached.push(a));
        for (definition, attached) in new.iter().zip(attached) {
            let slot = match attached {
                AttachOutcome::New(number) => self.generation.define(number, &definition.service),
                AttachOutcome::Known(slot) => slot,
                AttachOutcome::Refused | AttachOutcome::Barred => continue,
            };
            let at = definition.slot as usize;
            if self.slots.len() <= at {
                self.slots.resize(at + 1, u32::MAX);
            }
            self.slots[at] = slot;
            self.same &= slot == definition.slot;
        }
        Ok(())
    }

    fn define_streams(&mut self, definitions: &[Definition]) -> Result<(), BadBody> {
        for d in definitions {
            let at = d.slot as usize;
            if at > self.log_slots.len() + SLOT_GAP_MAX {
                return Err(codec::bad("a stream number far ahead of all others"));
            }
            if self.log_slots.len() <= at {
                self.log_slots.resize(at + 1, u32::MAX);
            }
            if self.log_slots[at] == u32::MAX {
                let (labels, service) = (LabelSet::from_canonical(&d.labels), d.service.as_str().into());
                self.log_slots[at] = self.generation.define_log_stream(&LiveStream { id: d.id, labels, service }).0;
            }
        }
        Ok(())
    }

    /// Reads log rows, dropping those with an unknown stream.
    fn read_logs(&mut self, batch: &RecordBatch, names: &StringArray) -> Result<LogRows, BadBody> {
        let mut rows = codec::read_log_rows(batch, names)?;
        let slot = |number: u32| self.log_slots.get(number as usize).copied().unwrap_or(u32::MAX);
        let keep: Vec<bool> = rows.slots.iter().map(|&n| slot(n) != u32::MAX).collect();
        let lost = keep.iter().filter(|&&k| !k).count();
        if lost > 0 {
            let batch = filter_record_batch(batch, &keep.into()).map_err(|e| codec::bad(e.to_string()))?;
            rows = codec::read_log_rows(&batch, names)?;
        }
        rows.slots = rows.slots.iter().map(|&n| slot(n)).collect::<Vec<_>>().into();
        if lost > 0 {
            self.lost_rows(lost);
        }
        Ok(rows)
    }

    fn slot(&self, number: u32) -> Option<u32> {
        self.slots.get(number as usize).copied().filter(|&s| s != u32::MAX)
    }

    /// Decodes all records of a write before the first is inserted.
    fn apply(&mut self, write: &PendingWrite) -> Result<(), BadBody> {
        let (mut samples, mut histograms, mut exemplars, mut metadata) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut names, mut logs) = (None, Vec::new());
        let (mut contexts, mut spans) = (None, Vec::new());
        let (mut request, mut rows) = (None, Vec::new());
        for (kind, batch) in &write.records {
            match kind {
                RecordKind::Samples => samples.push(codec::read_samples(batch)?),
                RecordKind::Histograms => histograms.extend(codec::read_histograms(batch)?),
                RecordKind::Exemplars => exemplars.extend(codec::read_exemplars(batch)?),
                RecordKind::Metadata => metadata.extend(codec::read_metadata(batch)?),
                RecordKind::LogNames => names = Some(codec::read_log_names(batch)?),
                RecordKind::LogRows => {
                    let names = names.as_ref().ok_or_else(|| codec::bad("log rows without names"))?;
                    logs.push(self.read_logs(batch, names)?);
                }
                RecordKind::LogRequest => request = Some(codec::read_log_request(batch)?),
                RecordKind::SpanContexts => contexts = Some(batch.clone()),
                RecordKind::SpanRows => {
                    let contexts = contexts.clone().ok_or_else(|| codec::bad("spans without contexts"))?;
                    let batch = SpansBatch { spans: batch.clone(), contexts };
                    if !batch.is_sound() {
                        return Err(codec::bad("a span without a context"));
                    }
                    spans.push(batch);
                }
                RecordKind::Rows(_) => rows.push(TableRows { table: kind.table(), rows: batch.clone() }),
                // `record` has applied these as they came.
                RecordKind::Definitions | RecordKind::LogStreams => {}
            }
        }
        // Nothing fails from here on: a write comes back whole or not at all.
        let seq = write.seq;
        let mut days = Vec::new();
        for columns in &samples {
            self.insert_samples(seq, columns, &mut days);
        }
        // Series whose definition was damaged have no slot.
        let before = histograms.len() + exemplars.len();
        histograms.retain_mut(|row| self.slot(row.slot).map(|slot| row.slot = slot).is_some());
        exemplars.retain_mut(|row| self.slot(row.0).map(|slot| row.0 = slot).is_some());
        let missing = before - histograms.len() - exemplars.len();
        if missing > 0 {
            self.lost_rows(missing);
        }
        note_days(histograms.iter().map(|h| h.ts), &mut days);
        note_days(exemplars.iter().map(|e| e.1.ts), &mut days);
        self.generation.touch_days(&days);
        if !histograms.is_empty() {
            self.generation.insert_histograms(seq, histograms);
        }
        if !exemplars.is_empty() {
            self.generation.insert_exemplars(seq, exemplars);
        }
        if !metadata.is_empty() {
            self.generation.insert_metadata(seq, metadata);
        }
        for rows in rows {
            self.generation.insert_rows(seq, rows);
        }
        for batch in spans {
            let mut days = Vec::new();
            note_days(starts(&batch).iter().map(|&t| millis_of(t)), &mut days);
            self.generation.touch_days(&days);
            self.generation.insert_spans(seq, batch);
        }
        // None are left if all streams of a batch are unknown.
        for rows in logs.into_iter().filter(|r| r.len() > 0) {
            let mut days = Vec::new();
            note_days(rows.time.iter().map(|&t| millis_of(t)), &mut days);
            self.generation.touch_days(&days);
            self.generation.insert_logs(seq, rows, &days);
        }
        if let Some(request) = request {
            self.generation.insert_request(seq, Arc::new(request));
        }
        Ok(())
    }

    fn insert_samples(&mut self, seq: u64, columns: &codec::SampleColumns, days: &mut Vec<i32>) {
        let start_ts = columns.start_ts.as_ref().map_or(&[][..], |s| s.values());
        let numbers = columns.slots.values();
        if self.same && numbers.iter().all(|&n| (n as usize) < self.slots.len()) {
            let rows =
                SampleRows { slots: numbers, ts: columns.ts.values(), values: columns.values.values(), start_ts };
            note_days(rows.ts.iter().copied(), days);
            self.generation.insert_samples(seq, rows);
            return;
        }
        let (mut slots, mut ts, mut values, mut starts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (i, &number) in numbers.iter().enumerate() {
            let Some(slot) = self.slot(number) else { continue };
            slots.push(slot);
            ts.push(columns.ts.value(i));
            values.push(columns.values.value(i));
            starts.extend(start_ts.get(i));
        }
        if slots.len() < numbers.len() {
            self.lost_rows(numbers.len() - slots.len());
        }
        if !slots.is_empty() {
            note_days(ts.iter().copied(), days);
            let rows = SampleRows { slots: &slots, ts: &ts, values: &values, start_ts: &starts };
            self.generation.insert_samples(seq, rows);
        }
    }
}
