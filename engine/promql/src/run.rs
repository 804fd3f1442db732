//! What the nodes of one running query share: its context, the annotations so far, the values held so far.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use quiver_query::{QueryContext, QueryMemory};
use quiver_types::stats::get;
use quiver_types::{Error, ErrorKind};

use crate::annotation::Annotations;
use crate::tally::{SampleStats, Tallies};

/// The text of Prometheus for a query that would hold too many samples.
pub(crate) const TOO_MANY_SAMPLES: &str = "query processing would load too many samples into memory in query execution";

/// State of one query.
#[derive(Debug)]
pub(crate) struct RunState {
    /// Access, limits, deadline, counters.
    pub(crate) ctx: QueryContext,
    annotations: Mutex<Annotations>,
    values: AtomicU64,
    /// Samples per step, when the query asks for them.
    pub(crate) tallies: Option<Tallies>,
    memory: Mutex<Vec<MemoryReservation>>,
    histograms: AtomicBool,
}

impl RunState {
    /// Starts a query.
    pub(crate) fn new(ctx: QueryContext, tallies: Option<Tallies>) -> Self {
        let (annotations, values, histograms) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        Self { ctx, annotations, values, tallies, memory: Mutex::default(), histograms }
    }

    /// Gives the samples per step, if they were counted. The peak is what the limit of samples was held against: the
    /// values that operators held, or the samples that scans loaded.
    pub(crate) fn sample_stats(&self) -> Option<SampleStats> {
        let peak = self.values.load(Relaxed).max(get(&self.ctx.stats.samples));
        self.tallies.as_ref().map(|t| t.finish(peak))
    }

    /// Notes that a selector may give native histograms.
    pub(crate) fn meet_histograms(&self) {
        self.histograms.store(true, Relaxed);
    }

    /// Says whether one did.
    pub(crate) fn met_histograms(&self) -> bool {
        self.histograms.load(Relaxed)
    }

    /// Takes over annotations.
    pub(crate) fn annotate(&self, annotations: Annotations) {
        if !annotations.is_empty() {
            self.annotations.lock().merge(annotations);
        }
    }

    /// Gives the annotations so far.
    pub(crate) fn annotations(&self) -> Annotations {
        self.annotations.lock().clone()
    }

    /// Keeps a reservation for as long as the query, or its answer, lives.
    pub(crate) fn keep(&self, memory: MemoryReservation) {
        self.memory.lock().push(memory);
    }

    /// Hands what is kept over to the answer.
    pub(crate) fn take_memory(&self) -> QueryMemory {
        QueryMemory(std::mem::take(&mut *self.memory.lock()))
    }

    /// Counts values of a step matrix that came into being, and checks limits, deadline and cancellation. Called for
    /// each batch that a leaf makes.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub(crate) fn hold(&self, values: usize) -> Result<()> {
        let held = self.values.fetch_add(values as u64, Relaxed) + values as u64;
        if held > self.ctx.limits.samples_max {
            let error = Error::new(ErrorKind::LimitExceeded, TOO_MANY_SAMPLES);
            return Err(quiver_query::to_datafusion(error));
        }
        self.ctx.check("query execution").map_err(quiver_query::to_datafusion)
    }
}
