//! Generations for tests, built without a WAL.

use std::sync::Arc;

use quiver_types::{LabelSet, MetricsBatch};
use uuid::Uuid;

use super::{Generation, GenerationId, SampleRows};
use crate::registry::Registry;
use crate::settings::{StoreSettings, WriteSettings};
use crate::wal::replay::note_days;
use crate::writer::staging::{Batch, StageContext, Stager};

/// A series: labels, and samples as time and value.
pub(crate) type TestSeries<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

/// Makes a batch of float samples.
pub(crate) fn batch(series: &[TestSeries<'_>]) -> MetricsBatch {
    let mut batch = MetricsBatch::default();
    for (labels, samples) in series {
        let labels = LabelSet::from_pairs(labels.iter().copied());
        let at = batch.push_series(labels.canonical());
        samples.iter().for_each(|&(ts, value)| batch.push_sample(at, ts, value, 0));
    }
    batch
}

/// Builds an open generation with the given batches; the first has sequence number `base_seq`, the others follow.
pub(crate) fn generation(
    registry: &Arc<Registry>,
    number: u64,
    base_seq: u64,
    batches: &[MetricsBatch],
) -> Arc<Generation> {
    let id = GenerationId { writer: Uuid::from_u128(7), number };
    let generation = Generation::new(id, base_seq, Arc::clone(registry));
    let mut stager = Stager::default();
    let settings: WriteSettings = StoreSettings::default().write();
    for (n, batch) in batches.iter().enumerate() {
        let ctx = StageContext {
            generation: &generation,
            service_labels: &settings.service_labels,
            registry_bytes_max: usize::MAX,
            new_series_per_hour: 0,
            metadata_bytes_max: usize::MAX,
            hint_bytes_max: usize::MAX,
            now: 0,
        };
        let staged = stager.stage(ctx, base_seq + n as u64, Batch::Metrics(batch.clone()), &mut Vec::new());
        let mut days = Vec::new();
        note_days(batch.ts.iter().copied(), &mut days);
        note_days(batch.histograms.iter().map(|h| h.ts), &mut days);
        note_days(batch.exemplars.iter().map(|e| e.ts), &mut days);
        generation.touch_days(&days);
        if let Some(c) = &staged.samples {
            let start_ts = c.start_ts.as_ref().map_or(&[][..], |s| s.values());
            let rows = SampleRows { slots: c.slots.values(), ts: c.ts.values(), values: c.values.values(), start_ts };
            generation.insert_samples(staged.seq, rows);
        }
        generation.insert_histograms(staged.seq, staged.histograms);
        generation.insert_exemplars(staged.seq, staged.exemplars);
        generation.insert_metadata(staged.seq, staged.metadata);
    }
    Arc::new(generation)
}
