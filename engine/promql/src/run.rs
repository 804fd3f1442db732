//! What the nodes of one running query share: its context, the annotations so far, the values held so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use quiver_query::{Pace, PlanRun, QueryContext, QueryMemory};
use quiver_types::stats::get;
use quiver_types::{Error, ErrorKind, RunShared};

use crate::annotation::Annotations;
use crate::tally::{SampleStats, Tallies};

/// The text of Prometheus for a query that would hold too many samples.
pub(crate) const TOO_MANY_SAMPLES: &str = "query processing would load too many samples into memory in query execution";

/// Samples in windows that a query looks at in a second at the very most: more than machines do.
const VISITS_PER_SECOND: u64 = 2_000_000_000;

/// State of one query.
#[derive(Debug)]
pub(crate) struct RunState {
    /// Access, limits, deadline, counters.
    pub(crate) ctx: QueryContext,
    pace: Pace,
    annotations: Mutex<Annotations>,
    values: AtomicU64,
    visits: AtomicU64,
    /// Samples per step, when the query asks for them.
    pub(crate) tallies: Option<Tallies>,
    memory: Mutex<Vec<MemoryReservation>>,
    histograms: AtomicBool,
}

impl RunState {
    /// Starts a query.
    pub(crate) fn new(ctx: QueryContext, tallies: Option<Tallies>) -> Self {
        let (annotations, values, histograms) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        let pace = Pace::new(&ctx, "query execution");
        Self {
            ctx,
            pace,
            annotations,
            values,
            visits: AtomicU64::new(0),
            tallies,
            memory: Mutex::default(),
            histograms,
        }
    }

    /// What nodes find while a plan runs: the query, and each other. Of a run whose rows nobody gets the query hears
    /// nothing.
    pub(crate) fn shared(self: &Arc<Self>, which: PlanRun) -> RunShared {
        RunShared::with(match which {
            PlanRun::Answer => Arc::clone(self),
            PlanRun::Rehearsal => Arc::new(self.beside()),
        })
    }

    fn beside(&self) -> Self {
        let beside = Self::new(self.ctx.clone(), self.tallies.as_ref().map(Tallies::beside));
        beside.histograms.store(self.met_histograms(), Relaxed);
        beside
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

    /// What hears of work within a batch.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Says that so many samples are about to be looked at in windows. A query that cannot come to its end within its time
    /// is refused when that is clear, not when the time is over.
    ///
    /// # Errors
    /// LimitExceeded.
    pub(crate) fn visit(&self, samples: u64) -> Result<()> {
        let visited = self.visits.fetch_add(samples, Relaxed).saturating_add(samples);
        let seconds = self.ctx.limits.timeout.as_secs().max(1);
        let most = seconds.saturating_mul(VISITS_PER_SECOND);
        if visited <= most {
            return Ok(());
        }
        let text = format!(
            "query looks at {visited} samples in its windows, more than the {most} that its time limit of {seconds} s \
             allows; try a shorter range or a longer step"
        );
        Err(quiver_query::to_datafusion(Error::new(ErrorKind::LimitExceeded, text)))
    }

    /// Says that so many values are about to be looked at, within one batch or over all that a node holds.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub(crate) fn did(&self, values: usize) -> Result<()> {
        self.pace.did(values).map_err(quiver_query::to_datafusion)
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
