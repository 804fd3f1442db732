//! A small store for tests of the read side: parts and generations built by hand, without WAL or catalog.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::scan_table;
use quiver_types::source::SeriesSource;
use quiver_types::{
    Access, Histogram, LabelSet, Matcher, Millis, MillisRange, ReadStats, RunShared, SampleRequest, SelectedSeries,
    SeriesSelector, SeriesSnapshot,
};
use tempfile::TempDir;
use uuid::Uuid;

use super::matcher_resolution::SelectorQuery;
use super::{Selection, StoreSnapshot, StoreSource};
use crate::cache::Caches;
use crate::io::{LocalIo, PartIo};
use crate::memtable::{Generation, GenerationId, HistogramRow, SampleRows};
use crate::part::{Part, PartCompression, PartOrigin, PartSpec, PartWriter, Place};
use crate::registry::{AttachOutcome, Registry};
use crate::series_run::{RunExemplar, SeriesRun};
use crate::snapshot::{SnapshotPublisher, Visible};

/// A data point of a series at one time.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Float(f64, Millis),
    Hist(Box<Histogram>, Millis),
    Exemplar(f64),
}

pub(crate) fn service_labels() -> Vec<String> {
    ["service_name", "service", "job"].map(str::to_owned).to_vec()
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> LabelSet {
    LabelSet::from_pairs(pairs.iter().copied())
}

pub(crate) struct World {
    dir: TempDir,
    registry: Arc<Registry>,
    io: Arc<dyn PartIo>,
    caches: Arc<Caches>,
    pub(crate) visible: Visible,
    slots: Vec<BTreeMap<LabelSetKey, u32>>,
    pub(crate) seq: u64,
}

type LabelSetKey = Vec<u8>;

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let io: Arc<dyn PartIo> = Arc::new(LocalIo::new(dir.path(), dir.path()));
        Self {
            dir,
            registry: Arc::default(),
            io,
            caches: Arc::new(Caches::local(64 << 20)),
            visible: Visible::default(),
            slots: Vec::new(),
            seq: 0,
        }
    }

    /// Adds a part; all times must be of day 0.
    pub(crate) fn add_part(&mut self, items: &[(LabelSet, Millis, Item)]) {
        let mut runs: Vec<SeriesRun> = Vec::new();
        for (labels, ts, item) in items {
            let at = runs.iter().position(|run| run.labels == *labels).unwrap_or_else(|| {
                runs.push(SeriesRun::new(labels.clone(), Arc::from(labels.service(&service_labels()))));
                runs.len() - 1
            });
            let run = &mut runs[at];
            match item {
                Item::Float(value, start) => run.samples.push(*ts, *value, *start),
                Item::Hist(hist, start) => run.hists.push(*ts, (**hist).clone(), *start),
                Item::Exemplar(value) => run.exemplars.push(exemplar(*ts, *value)),
            }
        }
        runs.iter_mut().for_each(SeriesRun::normalize);
        self.add_runs(runs);
    }

    pub(crate) fn add_runs(&mut self, mut runs: Vec<SeriesRun>) {
        runs.sort_by(|a, b| a.labels.cmp_series(&b.labels));
        let spec = PartSpec {
            table: "metrics".to_owned(),
            day: 0,
            level: 0,
            id: Uuid::now_v7(),
            origin: PartOrigin::Flushed {
                writer: Uuid::nil(),
                generation: 0,
                flush_id: Uuid::now_v7(),
                output: 0,
                outputs: 1,
            },
            place: Place::Store,
            window: 0,
            compression: PartCompression::Fresh,
        };
        let mut writer = PartWriter::metrics(self.dir.path(), spec);
        for run in &runs {
            writer.push(run).expect("a series");
        }
        let meta = writer.finish().expect("a part");
        let mut parts = self.visible.parts.to_vec();
        parts.push(Arc::new(Part::new(meta, Arc::clone(&self.io), Arc::clone(&self.caches))));
        Visible::sort_parts(&mut parts);
        self.visible.parts = Arc::new(parts);
    }

    /// Turns the parts into parts from before indexes were stored on disk.
    pub(crate) fn forget_indexes(&mut self) {
        let old = |part: &Arc<Part>| {
            let mut meta = part.meta.clone();
            meta.files.retain(|file| file.kind != "index");
            Arc::new(Part::new(meta, Arc::clone(&self.io), Arc::new(Caches::local(64 << 20))))
        };
        self.visible.parts = Arc::new(self.visible.parts.iter().map(old).collect());
    }

    /// Drops everything from the caches.
    pub(crate) fn cold(&self) {
        let parts: Vec<_> = self.visible.parts.iter().map(|part| part.meta.id).collect();
        self.caches.forget(&parts);
    }

    pub(crate) fn add_generation(&mut self) -> usize {
        let number = self.visible.generations.len() as u64 + 1;
        let id = GenerationId { writer: Uuid::nil(), number };
        self.visible.generations.push(Arc::new(Generation::new(id, self.seq, Arc::clone(&self.registry))));
        self.slots.push(BTreeMap::new());
        number as usize - 1
    }

    /// Inserts into a generation, each item as a separate write; returns the number of the last write.
    pub(crate) fn insert(&mut self, generation: usize, items: &[(LabelSet, Millis, Item)]) -> u64 {
        for (labels, ts, item) in items {
            self.seq += 1;
            let slot = self.slot(generation, labels);
            let generation = &self.visible.generations[generation];
            generation.touch_days(&[0]);
            match item {
                Item::Float(value, start) => {
                    let (slots, ts, values, start_ts) = (&[slot][..], &[*ts][..], &[*value][..], &[*start][..]);
                    generation.insert_samples(self.seq, SampleRows { slots, ts, values, start_ts });
                }
                Item::Hist(hist, start) => {
                    let row = HistogramRow { slot, ts: *ts, start_ts: *start, histogram: (**hist).clone() };
                    generation.insert_histograms(self.seq, vec![row]);
                }
                Item::Exemplar(value) => generation.insert_exemplars(self.seq, vec![(slot, exemplar(*ts, *value))]),
            }
        }
        self.seq
    }

    fn slot(&mut self, generation: usize, labels: &LabelSet) -> u32 {
        if let Some(&slot) = self.slots[generation].get(labels.canonical()) {
            return slot;
        }
        let live = &self.visible.generations[generation];
        let slot = live.series() as u32;
        let series = std::iter::once((labels.id(), labels.canonical()));
        self.registry.attach(live.ordinal(), slot, series, usize::MAX, |attached| {
            let AttachOutcome::New(number) = attached else { panic!("not known to this generation") };
            assert_eq!(live.define(number, labels.service(&service_labels())), slot);
        });
        self.slots[generation].insert(labels.canonical().to_vec(), slot);
        slot
    }

    pub(crate) fn source(&self, seq: u64) -> StoreSource {
        StoreSource::new(Arc::new(SnapshotPublisher::new(self.visible.clone(), seq)), 1 << 20)
    }

    pub(crate) fn snapshot(&self) -> Arc<dyn SeriesSnapshot> {
        self.source(self.seq).snapshot()
    }

    /// Finds where the samples are that matchers select, with full access.
    pub(crate) async fn selection(&self, matchers: Vec<Matcher>, range: MillisRange) -> Selection {
        let StoreSource { shared, caches } = self.source(self.seq);
        let snapshot = StoreSnapshot { snapshot: shared.snapshot(), shared, caches };
        let (access, selectors, stats) = (Access::full(), [matchers], ReadStats::default());
        let question = SelectorQuery { access: &access, selectors: &selectors, range, labels: None };
        snapshot.resolve(&question, &stats).await.expect("selects").1
    }
}

fn exemplar(ts: Millis, value: f64) -> RunExemplar {
    RunExemplar { ts, value, labels: labels(&[("trace_id", "t")]) }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// Selects with full access and expects no error.
pub(crate) async fn select(
    snapshot: &dyn SeriesSnapshot,
    matchers: Vec<Matcher>,
    range: MillisRange,
    stats: &ReadStats,
) -> SelectedSeries {
    let selector = SeriesSelector { matchers, range, labels: None };
    snapshot.select(&Access::full(), &selector, stats).await.expect("selects")
}

/// Plans and runs a scan.
pub(crate) async fn scan(
    selected: &SelectedSeries,
    request: SampleRequest,
    partitions: usize,
    stats: &Arc<ReadStats>,
) -> (Arc<dyn ExecutionPlan>, Vec<arrow::array::RecordBatch>) {
    let config = SessionConfig::new().with_target_partitions(partitions);
    let config = config.with_extension(Arc::new(RunShared::default())).with_extension(Arc::clone(stats));
    let session = SessionContext::new_with_config(config);
    let table = scan_table(selected.samples_table(request, stats));
    let plan = table.scan(&session.state(), None, &[], None).await.expect("a plan");
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await.expect("batches");
    (plan, batches)
}
