//! `QueryEngine`: sessions, one memory pool with spilling, and a runtime of its own for CPU work.
//!
//! PromQL, LogsQL and traces build the `LogicalPlan` that they want, so their session has no optimizer rules (planning
//! a small query must stay below 0.2 ms, `architecture` 8); `relational` is the session with rules.

mod anew;
mod execute;
mod lists;
mod relational;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::DefaultPhysicalPlanner;
use datafusion::prelude::SessionConfig;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_types::cancellation::Watch;
use quiver_types::{Error, ErrorKind, MemoryPressure, Result, RunShared};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop::unconstrained;
use tracing::Instrument;

use crate::admission::{Admission, Claim};
use crate::context::{QueryContext, QueryReservation};
use crate::current_query::{WatchedFuture, hand_on};
use crate::error::{from_datafusion, to_datafusion};
use crate::failpoint;
use crate::functions::{PlanOptions, Room, planning};
use crate::lookup_limits::QueryGate;
use crate::pool::{QueryPool, SharedPool};
use crate::query_counters::{Gauge, OutcomeCounter, QueryUse};
use crate::relational::batch_bytes::merged_rows;
use crate::repeated_work::{Run, Work};
use crate::running_queries::{Phase, QueryRegistry};
use crate::short_work::{Start, of_panic};
use crate::slow_readers::{AnswerDelivery, Beside};
use crate::spill::{SpillRoom, one_batch_per_file, sorted_within};
use crate::underway_memory::AllUnderway;

/// How long cancelled work may take to finish its current batch before the caller stops waiting for it.
const CANCEL_WITHIN: Duration = Duration::from_millis(100);
/// How often a query that waits for memory checks again.
const PRESSURE_WAIT_STEP: Duration = Duration::from_millis(10);
/// How long a new query waits for memory if no other one runs: what a query held is returned to the system within half of
/// this time after its end.
const PRESSURE_WAIT_ALONE: Duration = Duration::from_secs(1);
/// How many times a query whose run was refused memory checks whether the run has released its memory.
const GIVEN_BACK_STEPS: u32 = 100;

/// Stack size of a thread. Large, because planning and running recurse once per level of a plan, and plans nest as
/// deeply as queries do. The system commits memory only for the depth that is reached.
const STACK_BYTES: usize = 32 << 20;
/// How much less than intake a query thread gets of a busy processor: about a fifth. A write needs a processor for a
/// moment only, several times, and would otherwise wait each time until a query has had its turn.
const NICENESS: i32 = 1;

/// How long an idle thread for blocking work is kept. Long, because the system may be unable to start another one
/// later: with an existing thread work waits its turn, without any it would fail.
pub const THREAD_KEEP_ALIVE: Duration = Duration::from_hours(1);

/// Values in transit between plan nodes may take this fraction (1/n) of the queries' memory in addition to it, but are
/// always allowed `UNDERWAY_MIN` bytes.
const UNDERWAY_PART: usize = 4;
const UNDERWAY_MIN: usize = 8 << 20;

/// What the engine may use.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Memory of all queries together, in bytes.
    pub memory_bytes: usize,
    /// Folder for the spill files of operators that run out of memory.
    pub spill_dir: PathBuf,
    /// Most bytes of all spill files.
    pub spill_bytes: u64,
    /// Threads of the CPU runtime, and partitions of a plan.
    pub threads: usize,
    /// Most queries that run at once; others queue, and the wait counts towards their time limit.
    pub concurrent_max: usize,
    /// Most queries that wait to run, for a place or for memory; others are refused at once.
    pub waiting_max: usize,
    /// Whether the process is short of memory: then queries get no more of it.
    pub pressure: Arc<MemoryPressure>,
}

impl EngineSettings {
    /// Gives the settings of a small engine, as tests need it: one thread, one query at a time, few spilled bytes.
    pub fn small(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            spill_dir: std::env::temp_dir(),
            spill_bytes: 1 << 20,
            threads: 1,
            concurrent_max: 1,
            waiting_max: 1000,
            pressure: Arc::default(),
        }
    }
}

/// Serializes plans and deserializes them for another engine, which then runs them (tests of contract P6). Implemented
/// by crate `codec`; a trait, so that a product without that feature does not link it.
pub trait ThroughCodec: fmt::Debug + Send + Sync {
    /// Gives the plan, made with `session`, as the other engine deserializes it.
    ///
    /// # Errors
    /// Internal: some part of it cannot be serialized; the error names it.
    fn pass(&self, plan: &Arc<dyn ExecutionPlan>, session: &SessionState) -> Result<Arc<dyn ExecutionPlan>>;

    /// The other engine.
    fn engine(&self) -> &Arc<QueryEngine>;
}

/// Plans and runs queries of all languages, within one memory pool and on threads of its own.
pub struct QueryEngine {
    state: SessionState,
    pub(crate) relational: SessionState,
    /// Options that functions of `relational` are planned with.
    pub(crate) planning: PlanOptions,
    pub(crate) lists: SessionState,
    pub(crate) small_lists: SessionState,
    pub(crate) planner: DefaultPhysicalPlanner,
    runtime_env: Arc<RuntimeEnv>,
    pub(crate) memory: Arc<SharedPool>,
    spill: Arc<SpillRoom>,
    /// Shut down in the background on drop, since a runtime must not be dropped within another one.
    cpu: Option<Runtime>,
    places: Arc<Semaphore>,
    admission: Arc<Admission>,
    pub(crate) used: Arc<QueryUse>,
    running: Arc<QueryRegistry>,
    underway: Arc<AllUnderway>,
    pub(crate) through: OnceLock<Arc<dyn ThroughCodec>>,
}

impl fmt::Debug for QueryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryEngine").field("memory", &self.memory).field("used", &self.used).finish_non_exhaustive()
    }
}

impl Drop for QueryEngine {
    fn drop(&mut self) {
        if let Some(cpu) = self.cpu.take() {
            cpu.shutdown_background();
        }
    }
}

impl QueryEngine {
    /// Starts the engine.
    ///
    /// # Errors
    /// Internal: the runtime or the spill directory cannot be made.
    pub fn new(settings: &EngineSettings) -> Result<Arc<Self>> {
        Self::with_functions(settings, Vec::new())
    }

    /// Like [`Self::new`], with functions of the crates above, which SQL and analytics may then call.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_functions(settings: &EngineSettings, functions: Vec<Arc<ScalarUDF>>) -> Result<Arc<Self>> {
        hand_on();
        let threads = settings.threads.max(1);
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(settings.memory_bytes));
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![settings.spill_dir.clone()]))
            .with_max_temp_directory_size(u64::MAX);
        let runtime_env = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(&pool))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(from_datafusion)?;
        let spill = SpillRoom::new(Arc::clone(&runtime_env.disk_manager), settings.spill_bytes);
        let config = SessionConfig::new().with_target_partitions(threads).with_collect_statistics(false);
        let config = sorted_within(one_batch_per_file(config), settings.memory_bytes / threads.max(1));
        let memory = SharedPool::new(pool, settings.memory_bytes, Arc::clone(&settings.pressure));
        let rows = merged_rows(runtime_env.memory_pool.as_ref());
        let room = Room::new(Arc::new(QueryPool::of_nobody(&memory)));
        let relational = crate::relational::session(config.clone(), Arc::clone(&runtime_env), functions, &room);
        let small_lists = crate::list_session::small_session(config.clone(), Arc::clone(&runtime_env));
        let lists = crate::list_session::session(config.clone(), Arc::clone(&runtime_env));
        let state = SessionStateBuilder::new()
            .with_config(config.with_batch_size(rows))
            .with_runtime_env(Arc::clone(&runtime_env))
            .with_analyzer_rules(vec![])
            .with_optimizer_rules(vec![])
            .with_physical_optimizer_rules(vec![])
            .build();
        let cpu = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("quiver-query")
            .thread_keep_alive(THREAD_KEEP_ALIVE)
            .thread_stack_size(STACK_BYTES)
            // On Linux the niceness of "this process" is that of the calling thread. Refused: it works all the same.
            .on_thread_start(|| _ = rustix::process::setpriority_process(None, NICENESS))
            .enable_all()
            .build()
            .map_err(|e| Error::internal("cannot start the query threads").with_source(e))?;
        Ok(Arc::new(Self {
            state,
            planning: planning(&relational, room),
            relational,
            lists,
            small_lists,
            planner: crate::relational::planner(),
            runtime_env,
            memory,
            spill,
            cpu: Some(cpu),
            places: Arc::new(Semaphore::new(settings.concurrent_max.max(1))),
            admission: Admission::new(settings.memory_bytes, settings.waiting_max),
            used: Arc::default(),
            running: QueryRegistry::relieving(&settings.pressure),
            underway: AllUnderway::new((settings.memory_bytes / UNDERWAY_PART).max(UNDERWAY_MIN)),
            through: OnceLock::new(),
        }))
    }

    /// Runs the work of one query on the CPU runtime, once fewer than `concurrent_max` others run, within its deadline.
    ///
    /// Dropping the returned future (the client disconnected) cancels the work. A panic becomes an Internal error.
    ///
    /// # Errors
    /// Those of the work; Timeout, Cancelled.
    pub async fn run<T, F>(&self, ctx: &QueryContext, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.run_from(Start::Away, ctx, |slot| Work::once(into_slot(work, slot))).await
    }

    /// Runs work whose answer goes into a slot, so that the code that runs queries has no type parameters and is compiled
    /// once, in this crate.
    async fn run_from<T: Send + 'static>(
        &self,
        start: Start,
        ctx: &QueryContext,
        work: impl FnOnce(AnswerSlot<T>) -> Work,
    ) -> Result<T> {
        let answer = AnswerSlot::default();
        let work = work(Arc::clone(&answer));
        self.run_to_end(start, ctx, work).await?;
        let value = answer.lock().take();
        value.ok_or_else(|| Error::internal("a query ended without an answer"))
    }

    fn run_to_end<'a>(&'a self, start: Start, ctx: &'a QueryContext, mut work: Work) -> BoxFuture<'a, Result<()>> {
        let run = async move {
            let _cancel_on_drop = ctx.cancel.clone().drop_guard();
            self.gate(ctx).begin(&ctx.cancel);
            self.running.begin(ctx.query());
            let held = self.share(ctx).held();
            let mut outcome = self.run_listed(start, ctx, &mut work, held).await;
            while work.repeats(&outcome) {
                tracing::debug!(id = ctx.query().id, "other queries held its memory: the work is done anew");
                outcome = self.run_listed(start, ctx, &mut work, held).await;
            }
            ctx.query().enter(Phase::Encode);
            // If an operator of the server ended the query, say so, whatever noticed the cancellation first.
            outcome.map_err(|e| match e.kind {
                ErrorKind::Cancelled if ctx.query().is_stopped() => ctx.query().cancelled("query execution"),
                _ => e,
            })
        };
        run.boxed()
    }

    /// Waits until a query may run: first for memory, then for a place. After refusals, it first waits until the query holds
    /// hardly more than the `held` bytes that it had before its run.
    async fn admitted(&self, ctx: &QueryContext, refusals: u32, held: usize) -> Result<(Claim, OwnedSemaphorePermit)> {
        let line = self.admission.wait(ctx.query().has_begun())?;
        let waiting = Gauge::up(&self.used, |u| &u.waiting);
        let deadline = tokio::time::Instant::from_std(ctx.deadline);
        let queue = "expression evaluation queue";
        let (asked, share) = (&ctx.query().asked, self.share(ctx));
        let placed = async {
            // Memory first: a query that waits for memory must not occupy a place that small queries could use.
            let placed = async {
                let claim = if refusals == 0 {
                    self.admission.room(asked, share).await
                } else {
                    wait_for_release(share, held).await;
                    self.admission.room_again(asked, share, refusals).await
                };
                (claim, Arc::clone(&self.places).acquire_owned().await)
            };
            let timed_out = |_| Error::new(ErrorKind::Timeout, format!("query timed out in {queue}"));
            let (claim, place) = tokio::time::timeout_at(deadline, placed).await.map_err(timed_out)?;
            self.pressure_gone(deadline).await?;
            let place = place.map_err(|_| Error::new(ErrorKind::Unavailable, "the engine stops"))?;
            Ok::<_, Error>((claim, place))
        };
        let place = ctx.or_cancelled(queue, placed).await?;
        drop((waiting, line));
        let lesson = self.admission.lesson(asked, share);
        ctx.query().at_end.get_or_init(|| Box::new(move |ran| lesson.learn(ran)));
        Ok(place)
    }

    async fn run_listed(&self, start: Start, ctx: &QueryContext, work: &mut Work, held: usize) -> Result<()> {
        ctx.query().enter(Phase::Queue);
        let refusals = work.refusals();
        let begin = if refusals == 0 { OutcomeCounter::begin } else { OutcomeCounter::again };
        let mut ending = begin(&self.used, ctx.query());
        let (came, before) = (Instant::now(), if refusals == 0 { Duration::ZERO } else { ctx.waited() });
        let place = self.admitted(ctx, refusals, held).await.map_err(|e| work.not_begun(e));
        let place = place.inspect_err(|e| ending.end(Some(e.kind)))?;
        ctx.query().begins();
        ctx.query().enter(Phase::Plan);
        ctx.set_waited(before + came.elapsed());
        let (cancel, used, inner, verdict) = (ctx.cancel.clone(), Arc::clone(&self.used), ctx.clone(), work.verdict());
        let work = WatchedFuture::new(Watch::new(self.gate(ctx)), work.begin()?);
        let deadline = tokio::time::Instant::from_std(ctx.deadline);
        // The timer is created here, on the caller's runtime: on ours, registering it would wake an idle thread for
        // every query. `unconstrained`, since it is polled only after the work, which may have used up the task's
        // budget.
        let expired = unconstrained(tokio::time::sleep_until(deadline));
        let evaluated = async move {
            let _place = place;
            let _running = Gauge::up(&used, |u| &u.running);
            let began = Instant::now();
            failpoint::hit("query.begin");
            let asked = inner.check("query preparation");
            let answer = tokio::select! {
                // Polled in this order, so that work that completes at once never registers the timer.
                biased;
                answer = async { asked?; work.await } => answer,
                () = cancel.cancelled() => Err(inner.query().cancelled("query execution")),
                () = expired => {
                    Err(Error::new(ErrorKind::Timeout, "query timed out in expression evaluation"))
                }
            };
            used.micros.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
            if verdict.of(&answer, &inner) {
                ending.goes_on();
            } else {
                ending.end(answer.as_ref().err().map(|e| e.kind));
            }
            answer
        };
        self.evaluate(start, ctx, evaluated.in_current_span().boxed()).await
    }

    /// Evaluates a query here or on the CPU runtime. Work that does not yield cannot notice its deadline or cancellation
    /// before its next batch: the caller is answered without waiting for that.
    async fn evaluate(&self, start: Start, ctx: &QueryContext, mut evaluated: Run) -> Result<()> {
        let cpu = self.cpu.as_ref().expect("lives as long as the engine").handle();
        if let Some(answer) = start.poll_near(&mut evaluated, cpu).await {
            return answer;
        }
        let mut task = AbortOnDrop(cpu.spawn(evaluated));
        let late = tokio::time::Instant::from_std(ctx.deadline) + Duration::from_millis(500);
        let left_behind = async {
            tokio::select! {
                () = tokio::time::sleep_until(late) => {
                    Error::new(ErrorKind::Timeout, "query timed out in expression evaluation")
                }
                () = async { ctx.cancel.cancelled().await; tokio::time::sleep(CANCEL_WITHIN).await } => {
                    ctx.query().cancelled("query execution")
                }
            }
        };
        tokio::select! {
            ended = &mut task.0 => match ended {
                Ok(answer) => answer,
                Err(e) if e.is_cancelled() => Err(ctx.query().cancelled("query execution")),
                Err(e) => Err(of_panic(&e.to_string()).with_source(e)),
            },
            error = left_behind => Err(error),
        }
    }

    /// Waits until the client of a query reads rows of its result.
    ///
    /// # Errors
    /// Unavailable: it has not read for long, and other queries need what this one holds.
    pub async fn taken<T>(&self, ctx: &QueryContext, reader: impl Future<Output = T>) -> Result<T> {
        Beside::new(ctx.query(), &self.used, &self.memory).taken(reader).await
    }

    /// Observes a query whose answer is being sent, on behalf of the sender.
    pub fn answered(&self, ctx: &QueryContext) -> AnswerDelivery {
        AnswerDelivery::new(ctx.query(), self.share(ctx), &self.used, &self.memory)
    }

    /// Waits while the process is short of memory, as long as other queries run or have just ended, since they free some.
    async fn pressure_gone(&self, deadline: tokio::time::Instant) -> Result<()> {
        let mut alone_until = tokio::time::Instant::now() + PRESSURE_WAIT_ALONE;
        while self.memory.pressure.is_short() {
            let now = tokio::time::Instant::now();
            if now >= deadline {
                let text = "query timed out in the queue: the process is at its memory limit";
                return Err(Error::new(ErrorKind::Timeout, text));
            }
            if self.used.running.load(Relaxed) > 0 {
                alone_until = now + PRESSURE_WAIT_ALONE;
            } else if now >= alone_until {
                // What fills the process is no query: this one takes what little there is, or says so.
                break;
            }
            tokio::time::sleep(PRESSURE_WAIT_STEP).await;
        }
        Ok(())
    }

    /// Makes the context of one run of a plan: memory, state that its nodes share, counters. It has no functions: plans
    /// hold the ones that they call, and copying the whole registry takes longer than many queries.
    pub(crate) fn task(&self, ctx: &QueryContext, shared: RunShared) -> Arc<TaskContext> {
        let (config, runtime) = self.bound(ctx, shared);
        Self::task_in(config, runtime)
    }

    /// The context of one run with these settings and this environment.
    pub(crate) fn task_in(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
        // `TaskContext::default()` would first build an environment and settings only to throw them away.
        let (scalars, higher, aggregates, windows) = Default::default();
        let id = "DEFAULT".to_owned();
        Arc::new(TaskContext::new(None, id, config, scalars, higher, aggregates, windows, runtime))
    }

    /// Makes the settings and the environment of one run.
    pub(crate) fn bound(&self, ctx: &QueryContext, shared: RunShared) -> (SessionConfig, Arc<RuntimeEnv>) {
        let own = self.runs();
        let disk_manager = own.spill.files(own.share(ctx));
        let runtime = RuntimeEnv { memory_pool: own.memory(ctx), disk_manager, ..(*own.runtime_env).clone() };
        ctx.underway.bind(&own.underway);
        let config = own.state.config().clone().with_extension(Arc::clone(&ctx.underway));
        let config = config.with_extension(Arc::new(shared)).with_extension(Arc::clone(&ctx.stats));
        (config, Arc::new(runtime))
    }

    fn share<'c>(&self, ctx: &'c QueryContext) -> &'c Arc<QueryPool> {
        let share = || Arc::new(QueryPool::new(Arc::clone(&self.memory), ctx.limits.memory_max as usize));
        ctx.query().memory.get_or_init(share)
    }

    fn memory(&self, ctx: &QueryContext) -> Arc<dyn MemoryPool> {
        Arc::clone(self.share(ctx)) as Arc<dyn MemoryPool>
    }

    fn gate(&self, ctx: &QueryContext) -> Arc<QueryGate> {
        let gate = ctx.gate.get_or_init(|| {
            let values = self.share(ctx).of_values();
            let gate = Arc::new(QueryGate::new(self.reservation("look-up", ctx), values, ctx.query(), ctx.deadline));
            ctx.stats.set_gate(Arc::clone(&gate) as _);
            gate
        });
        Arc::clone(gate)
    }

    /// Makes an empty reservation in the query's share of memory, for data held outside of plans.
    pub fn reservation(&self, name: &str, ctx: &QueryContext) -> MemoryReservation {
        MemoryConsumer::new(name).register(&self.memory(ctx))
    }

    /// Like [`Self::reservation`], for data that grows as it is collected.
    pub fn collected(&self, name: &str, ctx: &QueryContext) -> QueryReservation {
        QueryReservation(self.reservation(name, ctx))
    }

    /// Adds a query to the list of running ones before it runs, so that time spent parsing or waiting shows too.
    pub fn begin(&self, ctx: &QueryContext) {
        self.running.begin(ctx.query());
    }

    /// The list of running queries.
    pub fn running(&self) -> &QueryRegistry {
        &self.running
    }

    /// Counters of what all queries have used.
    pub fn used(&self) -> &QueryUse {
        &self.used
    }

    /// Bytes of the pool that running queries and cached results hold.
    pub fn memory_reserved(&self) -> usize {
        self.memory.pool.reserved()
    }

    /// Has every plan from now on serialized and run by another engine.
    ///
    /// # Errors
    /// Internal: a codec has been set already.
    pub fn send_through(&self, codec: Arc<dyn ThroughCodec>) -> Result<()> {
        self.through.set(codec).map_err(|_| Error::internal("plans of an engine go through one codec"))
    }

    /// Gives the plan that will run: itself, or what a codec makes of it.
    pub(crate) fn passed(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        session: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self.through.get() {
            Some(codec) => codec.pass(&plan, session),
            None => Ok(plan),
        }
    }

    /// The engine whose session and pools plans run with: this one, or the one behind the codec.
    pub(crate) fn runs(&self) -> &Self {
        self.through.get().map_or(self, |codec| &**codec.engine())
    }

    /// Checks limits, for operators that can only return DataFusion's errors.
    ///
    /// # Errors
    /// See [`QueryContext::check`].
    pub fn check(ctx: &QueryContext) -> datafusion::error::Result<()> {
        ctx.check("query execution").map_err(to_datafusion)
    }
}

/// Where a run puts its answer, so that all runs have the same type.
type AnswerSlot<T> = Arc<Mutex<Option<T>>>;

/// Wraps work so that it puts its answer into a slot.
fn into_slot<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static, slot: AnswerSlot<T>) -> Run {
    let work = async move {
        let value = work.await?;
        *slot.lock() = Some(value);
        Ok(())
    };
    work.boxed()
}

/// Waits for a while until a query holds hardly more than before its run, whose tasks end on their own. The wait is short
/// because results of look-ups stay in memory.
async fn wait_for_release(pool: &QueryPool, held: usize) {
    for _ in 0..GIVEN_BACK_STEPS {
        if pool.held() <= held + pool.small() {
            return;
        }
        tokio::time::sleep(PRESSURE_WAIT_STEP).await;
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
