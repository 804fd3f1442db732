//! Makes the task of one partition of a scan from DataFusion's `TaskContext`: memory, counters, and what the run's
//! partitions share.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use quiver_types::scan::{PlannedScan, ScanCounters, ScanMemory, ScanTask};
use quiver_types::{ReadStats, Result, RunShared};

use crate::error::from_datafusion;

/// Tells apart the nodes that read one scan within a run: a recursion makes them anew for each of its rounds, and what the
/// partitions of a scan share is used up by each.
#[derive(Debug)]
pub(super) struct Round;

/// What a task has of the node whose scan it reads.
pub(super) struct OfNode<'a> {
    pub(super) scan: &'a dyn PlannedScan,
    pub(super) round: &'a Arc<Round>,
    pub(super) metrics: &'a ExecutionPlanMetricsSet,
}

/// Makes the task of a partition. Outside of an engine, what the scan counts is discarded.
pub(super) fn task_of(
    node: &OfNode<'_>,
    baseline: &BaselineMetrics,
    partition: usize,
    context: &TaskContext,
) -> ScanTask {
    let scan = node.scan;
    let memory = MemoryConsumer::new(scan.name()).register(context.memory_pool());
    let counter = |name: &'static str| (name, MetricBuilder::new(node.metrics).counter(name, partition));
    let own = scan.counters().into_iter().map(counter).collect();
    let config = context.session_config();
    ScanTask {
        memory: Arc::new(ScanReservation(memory)),
        counters: Arc::new(Counters { compute: baseline.elapsed_compute().clone(), own }),
        stats: config.get_extension::<ReadStats>().unwrap_or_default(),
        shared: config.get_extension::<RunShared>().map(|run| run.of_node(node.round, RunShared::default)),
    }
}

/// A reservation in the query's pool.
#[derive(Debug)]
struct ScanReservation(MemoryReservation);

impl ScanMemory for ScanReservation {
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.0.try_grow(bytes).map_err(from_datafusion)
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        self.0.try_resize(bytes).map_err(from_datafusion)
    }

    fn free(&self) {
        self.0.free();
    }
}

/// Metrics of the node.
#[derive(Debug)]
struct Counters {
    compute: Time,
    own: Vec<(&'static str, Count)>,
}

impl ScanCounters for Counters {
    fn worked(&self, time: Duration) {
        self.compute.add_duration(time);
    }

    fn add(&self, counted: &[(&'static str, u64)]) {
        for (name, n) in counted.iter().filter(|(_, n)| *n > 0) {
            if let Some((_, counter)) = self.own.iter().find(|(own, _)| own == name) {
                counter.add(*n as usize);
            }
        }
    }
}
