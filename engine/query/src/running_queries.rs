//! The list of running queries: what each asks, who asked, which phase it is in, and a way to end it.
//!
//! A query is listed from [`QueryEngine::begin`](crate::QueryEngine::begin) (at the latest when it runs) until its last
//! context is dropped, which is when its response is complete. Then an observer is told how long each phase took.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use quiver_types::{Error, ErrorKind, MemoryPressure, ReadStats};
use tokio_util::sync::CancellationToken;

use crate::pool::QueryPool;

/// Most bytes of a query's text that are kept.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Error message of a query whose caller lost a right while it ran.
pub const WITHDRAWN: &str = "query was canceled: a right with which it began was taken away";

/// Error message of the query that held the most memory when the process exceeded its limit.
const GREEDY: &str = "query was ended: it held the most when the process had more memory than its limit allows \
                      (setting `memory.limit`)";

/// The same if all other queries together held as much: it may succeed when it runs alone.
const CROWDED: &str = "query was ended: it held more than each other one when the process had more memory than its limit \
                       allows (setting `memory.limit`); ask again later";

/// A query that holds less is never ended for a lack of memory: it is not the cause.
const GREEDY_BYTES: usize = 1 << 20;

/// The id of the next query, unique within the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What lists, logs and metrics show of a query.
#[derive(Debug, Clone, Default)]
pub struct QueryInfo {
    /// Language or kind of query, out of a closed set.
    pub language: &'static str,
    /// Text of the query, cut to [`TEXT_BYTES_MAX`].
    pub text: String,
    /// The time range that it asks for, if that is not part of the text.
    pub times: String,
    /// Id of the request.
    pub request_id: String,
    /// Path of the request.
    pub path: String,
    /// Name of the caller; empty without access control.
    pub caller: String,
    /// Network address of the client.
    pub peer: Option<SocketAddr>,
    /// Whether it runs until the client disconnects (live tail), so that its duration means nothing.
    pub standing: bool,
    /// Tells whether the caller still has the rights that the query began with; `None`: they cannot be withdrawn.
    pub permit: Option<Arc<dyn Permit>>,
}

/// How a query was answered; each field is set once.
#[derive(Debug, Default)]
pub struct AnswerSource {
    /// Analytics models that it uses.
    pub models: OnceLock<String>,
    /// Rollups that it was answered from.
    pub rollups: OnceLock<String>,
    /// Whether the result cache had the answer: `hit`, `partial` or `miss`.
    pub kept: OnceLock<&'static str>,
}

/// The rights of a caller, watched while a query runs.
pub trait Permit: fmt::Debug + Send + Sync + 'static {
    /// Says whether the caller still has all of them. Called often, so it must be fast and must not block.
    fn holds(&self) -> bool;
}

impl QueryInfo {
    /// Sets the text, cut to [`TEXT_BYTES_MAX`] at a character boundary.
    #[must_use]
    pub fn with_text(mut self, text: &str) -> Self {
        text[..text.floor_char_boundary(TEXT_BYTES_MAX)].clone_into(&mut self.text);
        self
    }
}

/// The phases of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It waits in the queue, or for an equal query whose result it will share.
    Queue,
    /// It is parsed, its labels are looked up, its plan is made.
    Plan,
    /// Its plan runs.
    Execute,
    /// Its response is encoded.
    Encode,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Self; 4] = [Self::Queue, Self::Plan, Self::Execute, Self::Encode];

    /// Gives its name in metrics, logs and lists of queries.
    pub fn word(self) -> &'static str {
        ["queue", "plan", "execute", "encode"][self as usize]
    }
}

/// One query, shared by all its contexts.
pub struct Query {
    /// Number, unique within the process.
    pub id: u64,
    /// What was asked, by whom and in which language.
    pub asked: QueryInfo,
    /// When it began.
    pub began: Instant,
    /// The same by the wall clock: `now()` of all its parts.
    pub(crate) moment: DateTime<Utc>,
    /// Counters of what it has read so far.
    pub stats: Arc<ReadStats>,
    /// How it was answered.
    pub served: AnswerSource,
    /// Ends the query with all its runs: by an operator, a withdrawn right, or lack of memory.
    pub(crate) stop: CancellationToken,
    /// Whether it was ended by a withdrawn right.
    withdrawn: AtomicBool,
    /// Set if it was ended for lack of memory: the error to report.
    greedy: OnceLock<(ErrorKind, &'static str)>,
    pub(crate) memory: OnceLock<Arc<QueryPool>>,
    /// Called when the query ends without having been broken off; the argument says whether any of its plans ran.
    pub(crate) at_end: OnceLock<Box<dyn Fn(bool) + Send + Sync>>,
    /// CPU time of its work so far.
    pub(crate) cpu_nanos: Arc<AtomicU64>,
    /// Whether one of its runs has begun.
    begun: AtomicBool,
    /// Number of plans made for it.
    plans: AtomicU64,
    phase: AtomicU8,
    /// When it entered the current phase, in nanoseconds since `began`.
    entered: AtomicU64,
    nanos: [AtomicU64; Phase::ALL.len()],
    failed: OnceLock<ErrorKind>,
    listed: OnceLock<Arc<QueryRegistry>>,
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("id", &self.id).field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Query {
    pub(crate) fn new(asked: QueryInfo) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            asked,
            began: Instant::now(),
            moment: Utc::now(),
            stats: Arc::default(),
            served: AnswerSource::default(),
            stop: CancellationToken::new(),
            withdrawn: AtomicBool::new(false),
            greedy: OnceLock::new(),
            memory: OnceLock::new(),
            at_end: OnceLock::new(),
            cpu_nanos: Arc::default(),
            begun: AtomicBool::new(false),
            plans: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Plan as u8),
            entered: AtomicU64::new(0),
            nanos: Default::default(),
            failed: OnceLock::new(),
            listed: OnceLock::new(),
        }
    }

    /// Notes that a run of it begins.
    pub(crate) fn begins(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Says whether a run of it has begun, perhaps ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    pub(crate) fn count_plan(&self) {
        self.plans.fetch_add(1, Relaxed);
    }

    /// Number of plans made for it so far.
    pub fn plans(&self) -> u64 {
        self.plans.load(Relaxed)
    }

    /// Enters a phase; the time since the last change counts for the phase that it leaves.
    pub fn enter(&self, phase: Phase) {
        let now = self.began.elapsed().as_nanos() as u64;
        let left = self.phase.swap(phase as u8, Relaxed);
        let spent = now.saturating_sub(self.entered.swap(now, Relaxed));
        self.nanos[usize::from(left)].fetch_add(spent, Relaxed);
    }

    /// Adds time to a phase that ran in parallel to the current one.
    pub fn spent(&self, phase: Phase, time: Duration) {
        self.nanos[phase as usize].fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Relaxed))]
    }

    /// Time in a phase that it has left, or was counted beside others.
    pub fn time_in(&self, phase: Phase) -> Duration {
        Duration::from_nanos(self.nanos[phase as usize].load(Relaxed))
    }

    /// CPU time that planning it and running its plans took on the threads of the engine so far. Reading files, and
    /// making the answer's text where that is done elsewhere, are not in it.
    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_nanos.load(Relaxed))
    }

    /// Bytes that it holds of the memory for queries, and the most that it ever held.
    pub fn memory(&self) -> (usize, usize) {
        self.memory.get().map_or((0, 0), |pool| pool.used_and_peak())
    }

    /// Notes that some of its work failed; the first failure counts.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        let _ = self.failed.set(kind);
    }

    /// How its work failed; none: it did not.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.failed.get().copied()
    }

    /// Says whether an operator has ended it, or a right that was taken away.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until [`Self::is_stopped`].
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// The error of a query that was ended before it was done.
    pub(crate) fn cancelled(&self, phase: &str) -> Error {
        if self.withdrawn.load(Relaxed) {
            return Error::new(ErrorKind::Cancelled, WITHDRAWN);
        }
        if let Some((kind, text)) = self.greedy.get() {
            return Error::new(*kind, *text);
        }
        if self.is_stopped() {
            return Error::new(ErrorKind::Cancelled, "query was canceled by an operator");
        }
        Error::new(ErrorKind::Cancelled, format!("query was canceled in {phase}"))
    }
}

impl Drop for Query {
    fn drop(&mut self) {
        // A query that was broken off says nothing about what it would have taken.
        if let Some(at_end) = self.at_end.get().filter(|_| self.failure().is_none()) {
            at_end(self.plans() > 0);
        }
        let Some(running) = self.listed.get() else { return };
        running.queries.lock().remove(&self.id);
        self.enter(self.phase());
        if let Some(observer) = running.observer.get() {
            observer.ended(self);
        }
    }
}

/// An observer of ended queries.
pub trait Observer: Send + Sync + 'static {
    /// A query has ended. Called on any thread, so it must be quick and must not wait.
    fn ended(&self, query: &Query);
}

/// The running queries of an engine.
#[derive(Default)]
pub struct QueryRegistry {
    queries: Mutex<BTreeMap<u64, Weak<Query>>>,
    observer: OnceLock<Arc<dyn Observer>>,
}

impl fmt::Debug for QueryRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRegistry").field("queries", &self.queries.lock().len()).finish_non_exhaustive()
    }
}

impl QueryRegistry {
    /// Adds a query, unless it is listed already.
    pub(crate) fn begin(self: &Arc<Self>, query: &Arc<Query>) {
        if query.listed.set(Arc::clone(self)).is_ok() {
            self.queries.lock().insert(query.id, Arc::downgrade(query));
        }
    }

    /// Sets the observer of ended queries; only the first call counts.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Gives the running queries, the oldest first.
    pub fn list(&self) -> Vec<Arc<Query>> {
        // Dropping the last `Arc` of a query locks the list to remove it, so none may be dropped while we hold the
        // lock.
        let queries = self.queries.lock();
        queries.values().filter_map(Weak::upgrade).collect()
    }

    /// Ends a query and gives it; `None`: no query with this id is running.
    pub fn cancel(&self, id: u64) -> Option<Arc<Query>> {
        let query = self.queries.lock().get(&id).and_then(Weak::upgrade)?;
        query.stop.cancel();
        Some(query)
    }

    /// Makes a list that ends the largest query when the process exceeds its memory limit: some operators use more
    /// memory than they reserve, and most likely it is that query.
    pub(crate) fn relieving(pressure: &MemoryPressure) -> Arc<Self> {
        let running = Arc::<Self>::default();
        let queries = Arc::downgrade(&running);
        pressure.relieved_by(move || {
            if let Some(running) = queries.upgrade() {
                running.end_largest();
            }
        });
        running
    }

    fn end_largest(&self) {
        // Includes what its functions produced, which may be most of it.
        let held = |query: &Arc<Query>| query.memory.get().map_or(0, |pool| pool.held());
        let going: Vec<Arc<Query>> = self.list().into_iter().filter(|query| !query.is_stopped()).collect();
        let all: usize = going.iter().map(held).sum();
        let Some(query) = going.into_iter().max_by_key(held) else { return };
        let most = held(&query);
        if most < GREEDY_BYTES {
            return;
        }
        let text = "the process is above `memory.limit`: ending the largest query";
        tracing::warn!(id = query.id, held = most, all, "{text}");
        let crowded = all.saturating_sub(most) >= most;
        let said = if crowded { (ErrorKind::Unavailable, CROWDED) } else { (ErrorKind::LimitExceeded, GREEDY) };
        let _ = query.greedy.set(said);
        query.stop.cancel();
    }

    /// Ends the queries whose callers have lost a right since they began; gives their number.
    pub fn withdraw(&self) -> usize {
        let lost = |query: &Arc<Query>| query.asked.permit.as_ref().is_some_and(|permit| !permit.holds());
        let ended: Vec<Arc<Query>> = self.list().into_iter().filter(|q| !q.is_stopped() && lost(q)).collect();
        for query in &ended {
            query.withdrawn.store(true, Relaxed);
            query.stop.cancel();
        }
        ended.len()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};

    use super::*;
    use crate::pool::SharedPool;

    #[derive(Default)]
    struct Seen(Mutex<Vec<(u64, Duration)>>);

    impl Observer for Seen {
        fn ended(&self, query: &Query) {
            let all = Phase::ALL.iter().map(|phase| query.time_in(*phase)).sum();
            self.0.lock().push((query.id, all));
        }
    }

    #[test]
    fn listed_from_its_beginning_to_its_end() {
        let (running, seen) = (Arc::<QueryRegistry>::default(), Arc::<Seen>::default());
        running.observe(Arc::clone(&seen) as Arc<dyn Observer>);
        let query = Arc::new(Query::new(QueryInfo::default().with_text("up")));
        assert!(running.list().is_empty());
        running.begin(&query);
        running.begin(&query);
        query.enter(Phase::Execute);
        let listed = running.list();
        assert_eq!((listed.len(), listed[0].id, listed[0].phase()), (1, query.id, Phase::Execute));
        drop(listed);
        assert!(running.cancel(query.id).is_some_and(|q| q.is_stopped()));
        assert!(running.cancel(query.id + 1_000_000).is_none());
        assert!(query.cancelled("x").message.contains("operator"));
        let (id, began) = (query.id, query.began);
        drop(query);
        assert!(running.list().is_empty());
        let ended = seen.0.lock();
        assert_eq!((ended.len(), ended[0].0), (1, id));
        assert!(ended[0].1 <= began.elapsed());
    }

    #[test]
    fn the_largest_ends_and_may_come_again_where_the_others_hold_as_much() {
        let pool = Arc::new(UnboundedMemoryPool::default());
        let shared = SharedPool::new(pool, usize::MAX, Arc::default());
        let running = Arc::<QueryRegistry>::default();
        let holding = |bytes: usize| {
            let (query, pool) =
                (Arc::new(Query::new(QueryInfo::default())), QueryPool::new(Arc::clone(&shared), usize::MAX));
            let pool = Arc::clone(query.memory.get_or_init(|| Arc::new(pool))) as Arc<dyn MemoryPool>;
            let memory = MemoryConsumer::new("held").register(&pool);
            memory.grow(bytes);
            running.begin(&query);
            (query, memory)
        };
        let end_largest = || {
            running.end_largest();
            running.end_largest();
        };
        let all = [3, 2, 2, 0].map(|times| holding(times * GREEDY_BYTES));
        end_largest();
        let said = |n: usize| all[n].0.is_stopped().then(|| all[n].0.cancelled("x").kind);
        assert_eq!([0, 1, 2, 3].map(said), [Some(ErrorKind::Unavailable), None, Some(ErrorKind::Unavailable), None]);
        end_largest();
        assert_eq!([1, 3].map(said), [Some(ErrorKind::LimitExceeded), None], "nobody else is left");
    }

    #[test]
    fn what_functions_made_for_a_query_is_its_own() {
        let shared = SharedPool::new(Arc::new(UnboundedMemoryPool::default()), usize::MAX, Arc::default());
        let running = Arc::<QueryRegistry>::default();
        let held: Vec<_> = [2, 3]
            .into_iter()
            .map(|times| {
                let query = Arc::new(Query::new(QueryInfo::default()));
                let rows = query.memory.get_or_init(|| Arc::new(QueryPool::new(Arc::clone(&shared), usize::MAX)));
                let values = Arc::new(rows.of_values()) as Arc<dyn MemoryPool>;
                let memory = MemoryConsumer::new("values of functions").register(&values);
                memory.grow(times * GREEDY_BYTES);
                running.begin(&query);
                (query, memory)
            })
            .collect();
        running.end_largest();
        assert_eq!([0, 1].map(|n: usize| held[n].0.is_stopped()), [false, true]);
    }

    #[derive(Debug, Default)]
    struct Lent(AtomicBool);

    impl Permit for Lent {
        fn holds(&self) -> bool {
            !self.0.load(Relaxed)
        }
    }

    #[test]
    fn what_is_begun_with_a_right_ends_with_it() {
        let (running, lent) = (Arc::<QueryRegistry>::default(), Arc::<Lent>::default());
        let permit = Some(Arc::clone(&lent) as Arc<dyn Permit>);
        let (held, free) = (Query::new(QueryInfo { permit, ..QueryInfo::default() }), Query::new(QueryInfo::default()));
        let (held, free) = (Arc::new(held), Arc::new(free));
        running.begin(&held);
        running.begin(&free);
        assert_eq!((running.withdraw(), held.is_stopped()), (0, false));
        lent.0.store(true, Relaxed);
        assert_eq!((running.withdraw(), running.withdraw()), (1, 0), "once");
        assert!(held.is_stopped() && !free.is_stopped());
        let error = held.cancelled("x");
        assert_eq!((error.kind, &*error.message), (ErrorKind::Cancelled, WITHDRAWN));
    }

    #[test]
    fn only_what_ran_to_its_end_tells_what_it_took() {
        for (plans, failure, tells) in [
            (1, None, Some(true)),
            (2, None, Some(true)),
            (0, None, Some(false)),
            (1, Some(ErrorKind::Unavailable), None),
            (1, Some(ErrorKind::Cancelled), None),
        ] {
            let (query, told) = (Query::new(QueryInfo::default()), Arc::<OnceLock<bool>>::default());
            let seen = Arc::clone(&told);
            query.at_end.get_or_init(|| Box::new(move |ran| _ = seen.set(ran)));
            for _ in 0..plans {
                query.count_plan();
            }
            if let Some(kind) = failure {
                query.fail(kind);
            }
            drop(query);
            assert_eq!(told.get().copied(), tells, "{plans} plans, {failure:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, bytes) in [
            (String::new(), 0),
            ("x".repeat(TEXT_BYTES_MAX), TEXT_BYTES_MAX),
            ("x".repeat(TEXT_BYTES_MAX + 1), TEXT_BYTES_MAX),
            ("é".repeat(TEXT_BYTES_MAX), TEXT_BYTES_MAX),
            // The last character would be cut in two.
            (format!("x{}", "é".repeat(TEXT_BYTES_MAX)), TEXT_BYTES_MAX - 1),
        ] {
            let asked = QueryInfo::default().with_text(&text);
            assert_eq!(asked.text.len(), bytes);
            assert!(text.starts_with(&asked.text));
        }
    }

    #[test]
    fn the_first_failure_counts() {
        let query = Query::new(QueryInfo::default());
        assert_eq!((query.failure(), query.plans(), query.memory()), (None, 0, (0, 0)));
        query.fail(ErrorKind::Timeout);
        query.fail(ErrorKind::Internal);
        query.count_plan();
        query.count_plan();
        assert_eq!((query.failure(), query.plans()), (Some(ErrorKind::Timeout), 2));
        query.spent(Phase::Queue, Duration::from_secs(3));
        query.spent(Phase::Queue, Duration::from_millis(500));
        assert_eq!(query.time_in(Phase::Queue), Duration::from_millis(3_500));
        let words: Vec<&str> = Phase::ALL.iter().map(|phase| phase.word()).collect();
        assert_eq!(words, ["queue", "plan", "execute", "encode"]);
        assert_eq!(query.phase(), Phase::Plan, "it is planned first");
    }
}
