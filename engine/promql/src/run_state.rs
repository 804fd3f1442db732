//! What the nodes of one running query share: its context, the annotations so far, the values held so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use parking_lot::Mutex;
use quiver_query::{Pace, PlanRun, QueryContext, QueryMemory, Rules, SharedState};
use quiver_types::read_stats::get;
use quiver_types::{Error, ErrorKind, RunShared};

use crate::annotation::Annotations;
use crate::sample_stats::{SampleStats, Tallies};

/// The text of Prometheus for a query that would hold too many samples.
pub(crate) const TOO_MANY_SAMPLES: &str = "query processing would load too many samples into memory in query execution";

/// An upper bound on the samples in windows that a query can process per second, beyond what machines achieve.
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

    /// Gives the rules of the query's plans: none, since their nodes are written as they are to run, and share this.
    pub(crate) fn rules(self: &Arc<Self>) -> Rules {
        Rules::Shared(Arc::clone(self) as _)
    }

    fn for_another_run(&self) -> Self {
        let other = Self::new(self.ctx.clone(), self.tallies.as_ref().map(Tallies::for_another_run));
        other.histograms.store(self.met_histograms(), Relaxed);
        other
    }

    /// Gives the samples per step, if they were counted. The peak is what the limit of samples applies to: the larger
    /// of the values that operators held and the samples that scans loaded.
    pub(crate) fn sample_stats(&self) -> Option<SampleStats> {
        let peak = self.values.load(Relaxed).max(get(&self.ctx.stats.samples));
        self.tallies.as_ref().map(|t| t.finish(peak))
    }

    /// Notes that a selector may give native histograms.
    pub(crate) fn meet_histograms(&self) {
        self.histograms.store(true, Relaxed);
    }

    /// Says whether a selector may give native histograms.
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

    /// Keeps a reservation for as long as the query or its result lives.
    pub(crate) fn keep(&self, memory: MemoryReservation) {
        self.memory.lock().push(memory);
    }

    /// Moves the kept reservations to the result.
    pub(crate) fn take_memory(&self) -> QueryMemory {
        QueryMemory(std::mem::take(&mut *self.memory.lock()))
    }

    /// Checks limits within the work on one batch.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Counts samples in windows before they are processed. A query that cannot finish in time is refused as soon as
    /// that is clear, not when its time is over.
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

    /// Counts values before they are processed, and checks limits now and then.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub(crate) fn did(&self, values: usize) -> Result<()> {
        self.pace.did(values).map_err(quiver_query::to_datafusion)
    }

    /// Counts new values of a step matrix, and checks limits, deadline and cancellation. Called for each batch of a
    /// leaf.
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

impl SharedState for RunState {
    /// A rehearsal gets a state of its own, so that it does not affect the query.
    fn of_run(self: Arc<Self>, run: PlanRun) -> RunShared {
        RunShared::with(match run {
            PlanRun::Answer => self,
            PlanRun::Rehearsal => Arc::new(self.for_another_run()),
        })
    }
}

#[cfg(test)]
mod tests {
    use quiver_query::{Limits, from_datafusion};
    use quiver_types::Access;

    use super::*;
    use crate::annotation::Level;
    use crate::ast::PosRange;

    fn state(limits: Limits) -> RunState {
        RunState::new(QueryContext::new(Access::full(), limits), None)
    }

    fn fault(outcome: Result<()>) -> Option<(ErrorKind, String)> {
        outcome.err().map(|error| {
            let error = from_datafusion(error);
            (error.kind, error.message)
        })
    }

    #[test]
    fn values_and_visits_have_their_limits() {
        let run =
            state(Limits { samples_max: 10, timeout: std::time::Duration::from_millis(90_900), ..Limits::default() });
        assert_eq!((fault(run.hold(4)), fault(run.hold(6)), fault(run.hold(0))), (None, None, None));
        let too_many = Some((ErrorKind::LimitExceeded, TOO_MANY_SAMPLES.to_owned()));
        assert_eq!((fault(run.hold(1)), fault(run.hold(0))), (too_many.clone(), too_many));
        assert_eq!((fault(run.visit(179_999_999_999)), fault(run.visit(1))), (None, None));
        let text = "query looks at 180000000007 samples in its windows, more than the 180000000000 that its time limit of 90 s \
                    allows; try a shorter range or a longer step";
        assert_eq!(fault(run.visit(7)), Some((ErrorKind::LimitExceeded, text.to_owned())));
        let all = state(Limits::default());
        assert_eq!(fault(all.visit(u64::MAX)).map(|(kind, _)| kind), Some(ErrorKind::LimitExceeded));
    }

    #[test]
    fn who_is_gone_is_told_at_the_next_batch() {
        let run = state(Limits::default());
        run.ctx.cancel.cancel();
        let gone = Some((ErrorKind::Cancelled, "query was canceled in query execution".to_owned()));
        assert_eq!((fault(run.did(1)), fault(run.hold(0))), (None, gone));
    }

    #[test]
    fn a_rehearsal_tells_the_query_nothing() {
        let run = Arc::new(state(Limits::default()));
        run.meet_histograms();
        let answer: Arc<RunState> = Arc::clone(&run).of_run(PlanRun::Answer).of_query().expect("a query");
        let rehearsal: Arc<RunState> = Arc::clone(&run).of_run(PlanRun::Rehearsal).of_query().expect("a query");
        assert!(Arc::ptr_eq(&answer, &run) && !Arc::ptr_eq(&rehearsal, &run));
        let mut annotations = Annotations::default();
        annotations.warn(PosRange::default(), "x");
        rehearsal.annotate(annotations.clone());
        assert!(run.annotations().is_empty() && rehearsal.met_histograms());
        answer.annotate(annotations.clone());
        answer.annotate(annotations);
        answer.annotate(Annotations::default());
        assert_eq!(run.annotations().texts(Level::Warning, ""), ["PromQL warning: x (1:1)"]);
        assert!(run.sample_stats().is_none(), "nobody asked for counts");
        assert!(run.take_memory().0.is_empty());
    }
}
