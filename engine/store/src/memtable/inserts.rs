//! What the WAL thread inserts into a generation.

use std::sync::atomic::Ordering::{Relaxed, Release};

use quiver_types::metrics::MetricMetadata;
use quiver_types::tables::history::TableRows;
use quiver_types::{Millis, SpansBatch};

use super::{Generation, HistogramRow, MetadataRow, Repeats, SampleRows, place};
use crate::memtable::log_streams::LiveStream;
use crate::memtable::logs::LogRows;
use crate::memtable::series::PushOutcome;
use crate::series_run::RunExemplar;

impl Generation {
    /// Registers the days of rows that are about to be inserted.
    pub(crate) fn touch_days(&self, days: &[i32]) {
        if self.days_with(days) > self.days.read().len() {
            self.days.write().extend(days);
        }
    }

    /// Inserts float samples; their slots must be defined.
    pub(crate) fn insert_samples(&self, seq: u64, rows: SampleRows<'_>) -> Repeats {
        let seq = self.relative(seq);
        let mut repeats = Repeats::default();
        let mut grown = 0;
        let (mut shard_at, mut shard) = (usize::MAX, None);
        for (i, &slot) in rows.slots.iter().enumerate() {
            let (at, item) = place(slot);
            if at != shard_at {
                drop(shard.take());
                (shard_at, shard) = (at, Some(self.shards[at].write()));
            }
            let data = &mut shard.as_mut().expect("just taken")[item];
            let start_ts = if rows.start_ts.is_empty() { 0 } else { rows.start_ts[i] };
            match data.push(rows.ts[i], rows.values[i], start_ts, seq, &mut grown) {
                PushOutcome::Stored => {}
                PushOutcome::Repeated => repeats.duplicates += 1,
                PushOutcome::Conflicting => repeats.conflicts += 1,
            }
        }
        drop(shard);
        self.samples.fetch_add(rows.ts.len() as u64 - repeats.duplicates, Relaxed);
        self.widen(rows.ts.iter().copied(), rows.ts.len());
        self.account(grown);
        repeats
    }

    /// Inserts the native histograms of a write; each contains its slot.
    pub(crate) fn insert_histograms(&self, seq: u64, rows: Vec<HistogramRow>) {
        let seq = self.relative(seq);
        let mut grown = 0;
        self.widen(rows.iter().map(|r| r.ts), rows.len());
        self.samples.fetch_add(rows.len() as u64, Relaxed);
        for row in rows {
            let (shard, at) = place(row.slot);
            let mut shard = self.shards[shard].write();
            shard[at].push_histogram(row.ts, row.start_ts, row.histogram, seq, &mut grown);
        }
        self.account(grown);
    }

    /// Inserts the exemplars of a write, each with its slot.
    pub(crate) fn insert_exemplars(&self, seq: u64, rows: Vec<(u32, RunExemplar)>) {
        let seq = self.relative(seq);
        let mut grown = 0;
        self.widen(rows.iter().map(|r| r.1.ts), rows.len());
        for (slot, exemplar) in rows {
            let (shard, at) = place(slot);
            self.shards[shard].write()[at].push_exemplar(exemplar, seq, &mut grown);
        }
        self.account(grown);
    }

    /// Inserts type, help and unit of metrics, each with its time and service.
    pub(crate) fn insert_metadata(&self, seq: u64, rows: Vec<(Millis, MetricMetadata, String)>) {
        let seq = self.relative(seq);
        self.rows.fetch_add(rows.len() as u64, Release);
        let rows = rows.into_iter().map(|(ts, metadata, service)| MetadataRow { seq, ts, metadata, service });
        let mut bytes = 0;
        self.metadata.write().extend(rows.inspect(|row| bytes += row.memory_bytes()));
        self.account(bytes);
    }

    /// Inserts the spans of a write as one chunk.
    pub(crate) fn insert_spans(&self, seq: u64, batch: SpansBatch) {
        let seq = self.relative(seq);
        self.rows.fetch_add(batch.len() as u64, Release);
        self.span_rows.fetch_add(batch.len() as u64, Relaxed);
        self.account(self.spans.insert(batch, seq));
    }

    /// Inserts rows of a table without series.
    pub(crate) fn insert_rows(&self, seq: u64, rows: TableRows) {
        let seq = self.relative(seq);
        self.rows.fetch_add(rows.rows.num_rows() as u64, Release);
        self.account(self.table_rows.insert(rows, seq));
    }

    /// Inserts log rows; their slots must be defined.
    pub(crate) fn insert_logs(&self, seq: u64, rows: LogRows, days: &[i32]) {
        let seq = self.relative(seq);
        self.rows.fetch_add(rows.len() as u64, Release);
        self.log_rows.fetch_add(rows.len() as u64, Relaxed);
        let (grown, freed) = self.logs.insert(rows, seq, days);
        self.account(grown);
        self.bytes.fetch_sub(freed, Relaxed);
        self.registry.sub_generation_bytes(freed);
    }

    /// The slot of a log stream with its service; `true` if it is new.
    pub(crate) fn define_log_stream(&self, stream: &LiveStream) -> (u32, bool) {
        let (slot, new) = self.logs.slot(stream);
        if new {
            self.account(stream.labels.canonical().len() + stream.service.len() + 160);
        }
        (slot, new)
    }
}
