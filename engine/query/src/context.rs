//! The context of a query: what its caller may see, how long it may take, how much it may read and hold.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{EmptyRecordBatchStream, ExecutionPlan};
use quiver_types::read_stats::get;
use quiver_types::{Access, Error, ErrorKind, ReadStats, Result};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::current_query::make_room;
use crate::error::from_datafusion;
use crate::lookup_limits::QueryGate;
use crate::plan_recorder::{Plan, PlanRecorder};
use crate::running_queries::{Query, QueryInfo};
use crate::underway_memory::Underway;
use crate::{explain, failpoint};

/// Limits of one query (`metrics-api` section 2, `identity-and-access` section 7).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Longest time it may take, including the wait in the queue.
    pub timeout: Duration,
    /// Most samples that it may load.
    pub samples_max: u64,
    /// Most series that all its selectors together may match.
    pub series_max: u64,
    /// Most bytes that it may read from the store.
    pub bytes_max: u64,
    /// Most rows (series of a matrix, elements of a vector) in its result.
    pub rows_max: u64,
    /// Most bytes that it may reserve in the memory pool; it gets less if other queries hold much.
    pub memory_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(2),
            samples_max: 50_000_000,
            series_max: 2_000_000,
            bytes_max: 10 << 30,
            rows_max: 1_000_000,
            memory_max: 1 << 30,
        }
    }
}

/// The context of one query. There is no way to run a plan without it.
#[derive(Debug, Clone)]
pub struct QueryContext {
    /// What the caller may see.
    pub access: Access,
    /// When the query must be done.
    pub deadline: Instant,
    /// Cancelled when the client disconnects, the server stops, or an operator ends the query.
    pub cancel: CancellationToken,
    /// Limits of the query.
    pub limits: Limits,
    /// Counters of what it has read so far.
    pub stats: Arc<ReadStats>,
    waited_nanos: Arc<AtomicU64>,
    /// Where `stats` checks memory and time of the query; set by its first run.
    pub(crate) gate: Arc<OnceLock<Arc<QueryGate>>>,
    /// The query as the list of running queries shows it; also holds its memory pool, which all its plans share.
    query: Arc<Query>,
    /// Whether each plan is run twice, for tests; set by [`Self::rehearsed`].
    pub(crate) rehearse: bool,
    /// Where its plans are recorded if they are to be explained.
    explaining: Option<Arc<PlanRecorder>>,
    /// Whether planning needs the rows, so that plans run even under a plain `explain`; set by [`Self::planning`].
    needed: bool,
    /// Memory of values that one plan node has produced and the next has not yet taken.
    pub(crate) underway: Arc<Underway>,
    /// Reservations of collected data that is held for as long as the context.
    kept: Arc<Mutex<Vec<QueryReservation>>>,
}

/// A reservation in the query's memory that grows as data is collected outside of plans; given back when it is dropped.
#[derive(Debug)]
pub struct QueryReservation(pub(crate) MemoryReservation);

impl QueryReservation {
    /// Counts bytes that are allocated already; never fails, so that the pool may be exceeded.
    pub fn hold(&self, bytes: usize) {
        self.0.grow(bytes);
    }

    /// Reserves bytes before they are allocated.
    ///
    /// # Errors
    /// LimitExceeded: the query may not have as many.
    pub fn add(&self, bytes: usize) -> Result<()> {
        self.0.try_grow(bytes).map_err(from_datafusion)
    }

    /// Takes out the part for data that is kept longer than the rest; as much as there is, if it is less than `bytes`.
    #[must_use]
    pub fn part(&self, bytes: usize) -> Self {
        Self(self.0.split(bytes.min(self.0.size())))
    }
}

/// Reservations that a response holds until it is dropped.
#[derive(Debug, Default)]
pub struct QueryMemory(pub Vec<MemoryReservation>);

/// Hides the counters from the caller if the access hides rows from him: they would tell about hidden rows, too.
fn hide_from(access: &Access, stats: &ReadStats) {
    if !access.is_full() {
        stats.hide();
    }
}

impl QueryContext {
    /// Makes a context whose deadline is `limits.timeout` from now.
    pub fn new(access: Access, limits: Limits) -> Self {
        Self::asked(access, limits, QueryInfo::default())
    }

    /// Like [`Self::new`], with what the list of running queries shows of it.
    pub fn asked(access: Access, limits: Limits, asked: QueryInfo) -> Self {
        let query = Query::new(asked);
        hide_from(&access, &query.stats);
        Self {
            access,
            deadline: Instant::now() + limits.timeout,
            cancel: query.stop.child_token(),
            limits,
            stats: Arc::clone(&query.stats),
            waited_nanos: Arc::default(),
            gate: Arc::default(),
            rehearse: false,
            explaining: None,
            needed: false,
            query: Arc::new(query),
            underway: Arc::default(),
            kept: Arc::default(),
        }
    }

    /// For tests: has each plan run twice before the run that answers, once as a whole and once partition by partition.
    /// This proves that plans keep no state (contract P4).
    #[must_use]
    pub fn rehearsed(self, rehearse: bool) -> Self {
        Self { rehearse, ..self }
    }

    /// Makes a context for another run of the same query, with a new deadline and new counters.
    #[must_use]
    pub fn another_run(&self) -> Self {
        let stats = Arc::<ReadStats>::default();
        if self.stats.is_hidden() {
            stats.hide();
        }
        Self {
            deadline: Instant::now() + self.limits.timeout,
            cancel: self.query.stop.child_token(),
            stats,
            waited_nanos: Arc::default(),
            gate: Arc::default(),
            underway: Arc::default(),
            kept: Arc::default(),
            ..self.clone()
        }
    }

    /// Like [`Self::another_run`], for a run over another domain, in which the caller may see other services.
    #[must_use]
    pub fn another_run_as(&self, access: Access) -> Self {
        let run = self.another_run();
        hide_from(&access, &run.stats);
        Self { access, ..run }
    }

    /// The query as the list of running queries shows it.
    pub fn query(&self) -> &Arc<Query> {
        &self.query
    }

    /// Awaits `work`, unless the query is cancelled first; `phase` is named by the error.
    ///
    /// # Errors
    /// Those of the work; Cancelled.
    pub async fn or_cancelled<T, E: From<Error>>(
        &self,
        phase: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        tokio::select! {
            done = work => done,
            () = self.cancel.cancelled() => Err(self.query.cancelled(phase).into()),
        }
    }

    /// Keeps a reservation until the context and all its clones are dropped: for data that outlives the work that made
    /// it.
    pub fn keep(&self, memory: QueryReservation) {
        self.kept.lock().expect("nothing fails while it is locked").push(memory);
    }

    /// How long it waited in the queue.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Relaxed))
    }

    /// Notes how long it waited.
    pub(crate) fn set_waited(&self, waited: Duration) {
        self.waited_nanos.store(waited.as_nanos() as u64, Relaxed);
    }

    /// Says whether its plans may run once more: it may read as much again as so far, and nobody records the plans.
    pub(crate) fn may_run_again(&self) -> bool {
        let Limits { samples_max, series_max, bytes_max, .. } = self.limits;
        [(&self.stats.samples, samples_max), (&self.stats.series, series_max), (&self.stats.bytes_read, bytes_max)]
            .into_iter()
            .all(|(counter, max)| get(counter) <= max / 2)
            && self.explaining.is_none()
    }

    /// Checks cancellation, deadline and limits. Cheap enough to be called between batches.
    ///
    /// # Errors
    /// Cancelled, Timeout, LimitExceeded (for samples with the text of Prometheus).
    pub fn check(&self, phase: &str) -> Result<()> {
        failpoint::hit("query.check");
        make_room();
        if self.cancel.is_cancelled() {
            return Err(self.query.cancelled(phase));
        }
        if Instant::now() >= self.deadline {
            return Err(Error::new(ErrorKind::Timeout, format!("query timed out in {phase}")));
        }
        if get(&self.stats.samples) > self.limits.samples_max {
            let text = "query processing would load too many samples into memory in query execution";
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        for (counter, name, max, what) in [
            (&self.stats.series, "series", self.limits.series_max, "series"),
            (&self.stats.bytes_read, "bytes_read", self.limits.bytes_max, "bytes"),
        ] {
            if get(counter) > max {
                let text = if self.stats.tells(name) {
                    format!("query reads {} {what}, more than the limit of {max}", get(counter))
                } else {
                    format!("query reads more {what} than the limit of {max}")
                };
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
        }
        Ok(())
    }
}

/// Queries that are explained.
impl QueryContext {
    /// Makes a context that records its plans in `explaining`. A plain `explain` does not run them.
    #[must_use]
    pub fn explaining(mut self, explaining: Option<Arc<PlanRecorder>>) -> Self {
        self.explaining = explaining;
        self
    }

    /// Makes a context for plans whose rows are needed to make other plans: these run even under a plain `explain`,
    /// which shows them, too.
    #[must_use]
    pub fn planning(&self) -> Self {
        let mut ctx = self.clone();
        ctx.needed = true;
        ctx
    }

    /// Says whether plans are only shown and not run, so that they give no rows.
    pub fn is_only_planned(&self) -> bool {
        self.explaining.as_ref().is_some_and(|explaining| !explaining.analyzes() && !self.needed)
    }

    /// Counts a plan, logs its digest, and records it if the query is explained. Gives an empty stream if the plan is
    /// not to run.
    pub(crate) fn planned(
        &self,
        logical: &LogicalPlan,
        physical: &Arc<dyn ExecutionPlan>,
    ) -> Option<SendableRecordBatchStream> {
        self.query().count_plan();
        if tracing::enabled!(target: "quiver::plan", tracing::Level::DEBUG) {
            let digest = explain::digest(physical);
            tracing::debug!(target: "quiver::plan", query = self.query().id, digest, "a plan runs");
        }
        let explaining = self.explaining.as_ref()?;
        let ran = !self.is_only_planned();
        let (logical, physical_kept) = (logical.clone(), Arc::clone(physical));
        explaining.add(Plan { logical, physical: physical_kept, ran, stats: Arc::clone(&self.stats) });
        let schema: SchemaRef = physical.schema();
        (!ran).then(|| Box::pin(EmptyRecordBatchStream::new(schema)) as SendableRecordBatchStream)
    }

    /// Adds the plans that ran first because planning needed their rows, as children of the plan that is shown.
    pub(crate) fn put_children(&self, shown: &mut Value) {
        let children = self.explaining.as_ref().map(|explaining| explaining.needed()).unwrap_or_default();
        if !children.is_empty() {
            shown["children"] = children.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::read_stats::add;

    use super::*;

    #[test]
    fn limits() {
        let ctx = QueryContext::new(Access::full(), Limits { samples_max: 10, ..Limits::default() });
        assert!(ctx.check("x").is_ok());
        add(&ctx.stats.samples, 11);
        assert_eq!(ctx.check("x").unwrap_err().kind, ErrorKind::LimitExceeded);
        // The number of bytes would reveal something about hidden rows, too.
        for (access, text) in [
            (Access::full(), "query reads 11 bytes, more than the limit of 10"),
            (Access::services(["cart"]), "query reads more bytes than the limit of 10"),
        ] {
            let narrow = QueryContext::new(access, Limits { bytes_max: 10, ..Limits::default() });
            add(&narrow.stats.bytes_read, 11);
            assert_eq!(narrow.check("x").unwrap_err().message, text);
        }
        ctx.cancel.cancel();
        assert_eq!(ctx.check("query execution").unwrap_err().message, "query was canceled in query execution");
    }

    #[test]
    fn what_ends_a_query_comes_before_its_limits() {
        let limits = Limits { series_max: 2, timeout: Duration::ZERO, ..Limits::default() };
        let late = QueryContext::new(Access::full(), limits.clone());
        add(&late.stats.series, 3);
        let error = late.check("query execution").unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Timeout, "query timed out in query execution"));
        late.cancel.cancel();
        assert_eq!(late.check("x").unwrap_err().kind, ErrorKind::Cancelled);
        let wide = QueryContext::new(Access::full(), Limits { timeout: Duration::from_mins(1), ..limits });
        add(&wide.stats.series, 2);
        assert!(wide.check("x").is_ok(), "as many as are allowed");
        add(&wide.stats.series, 1);
        let error = wide.check("x").unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::LimitExceeded, "query reads 3 series, more than the limit of 2")
        );
    }

    #[test]
    fn another_run_counts_anew_and_is_ended_with_the_query() {
        let limits = Limits { samples_max: 10, ..Limits::default() };
        let first = QueryContext::new(Access::services(["cart"]), limits);
        add(&first.stats.samples, 11);
        first.set_waited(Duration::from_millis(5));
        assert!(first.check("x").is_err() && first.stats.is_hidden());
        let again = first.another_run();
        assert!(again.check("x").is_ok() && again.stats.is_hidden(), "rows are hidden from it as before");
        assert_eq!((again.waited(), first.waited()), (Duration::ZERO, Duration::from_millis(5)));
        assert_eq!(again.query().id, first.query().id);
        again.cancel.cancel();
        assert!(!first.cancel.is_cancelled(), "a run ends by itself");
        let all = first.another_run_as(Access::full());
        assert!(all.access.is_full() && all.stats.is_hidden(), "what was hidden stays so");
        let full = QueryContext::new(Access::full(), Limits::default());
        assert!(!full.stats.is_hidden() && full.another_run_as(Access::services(["cart"])).stats.is_hidden());
        first.query().stop.cancel();
        assert!(first.cancel.is_cancelled() && all.cancel.is_cancelled());
        assert!(first.check("x").unwrap_err().message.contains("operator"));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_query() {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let done = ctx.or_cancelled("x", async { Ok::<_, Error>(5) }).await;
        assert_eq!(done.unwrap(), 5);
        let failed = ctx.or_cancelled("x", async { Err::<(), _>(Error::invalid("no")) }).await;
        assert_eq!(failed.unwrap_err().kind, ErrorKind::Invalid);
        ctx.cancel.cancel();
        let error = ctx.or_cancelled("a look-up", std::future::pending::<Result<()>>()).await.unwrap_err();
        assert_eq!(error.message, "query was canceled in a look-up");
    }
}
