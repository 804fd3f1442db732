//! Tells the engine's threads for which query they currently work. So even work within a single value can check whether
//! to go on ([`quiver_types::cancellation`]), and CPU time is attributed to the query. The future of a stopped query never
//! completes: its result would be worthless, and its caller has noticed the stop by itself.
//!
//! Work that lasts long without waiting for anything keeps its thread from other queries, of which there are few. Where it
//! asks whether it goes on, another thread takes over what waits for its own ([`make_room`]).

use std::any::Any;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_types::cancellation::Watch;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long work keeps a thread for itself.
const ALONE_MAX: Duration = Duration::from_millis(50);
/// How long it then leaves the thread to another one that is to take over what waits.
const TAKE_OVER: Duration = Duration::from_millis(1);

thread_local! {
    /// Since when this thread does work that keeps it from others; none: it does none.
    static ALONE_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Work of a query.
pub(crate) struct WatchedFuture<T> {
    work: BoxFuture<'static, T>,
    watch: Watch,
}

impl<T> WatchedFuture<T> {
    pub(crate) fn new(watch: Watch, work: BoxFuture<'static, T>) -> Self {
        Self { work, watch }
    }
}

/// What `now()` is for the query of this thread: the time at which it began, the same in all its parts and subqueries. In
/// work for no query it is the time now.
pub fn statement_time() -> DateTime<Utc> {
    Watch::current().and_then(|watch| watch.gate().moment()).unwrap_or_else(Utc::now)
}

/// CPU time that this thread has spent.
fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Does work of a query on this thread, and tells the query what it took.
fn counted<T>(watch: &Watch, work: impl FnOnce() -> T) -> T {
    let before = thread_cpu();
    let done = work();
    watch.gate().spent(thread_cpu().saturating_sub(before));
    done
}

/// Work that begins on this thread, and since when the thread did other work before.
struct Alone(Option<Instant>);

impl Alone {
    fn begin() -> Self {
        Self(ALONE_SINCE.replace(Some(Instant::now())))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        ALONE_SINCE.set(self.0);
    }
}

/// To be called now and then by work that may be long: lets what else waits for this thread run on another one, if the work
/// has kept it for long.
pub(crate) fn make_room() {
    if ALONE_SINCE.get().is_none_or(|since| since.elapsed() < ALONE_MAX) {
        return;
    }
    if Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) {
        // The runtime moves its queue to another thread, and takes it back if that has not begun when this ends. If the queue
        // is away already, nothing is moved.
        block_in_place(|| std::thread::sleep(TAKE_OVER));
    }
    ALONE_SINCE.set(Some(Instant::now()));
}

impl<T> Future for WatchedFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if this.watch.is_stopped() {
            return Poll::Pending;
        }
        let _alone = Alone::begin();
        let polled = counted(&this.watch, || this.watch.over(|| this.work.poll_unpin(cx)));
        // The result of stopped work may be based on skipped values, so it must not be returned.
        if this.watch.is_stopped() { Poll::Pending } else { polled }
    }
}

/// Passes the query that a thread works for on to the tasks that DataFusion spawns from it.
struct HandOn;

impl JoinSetTracer for HandOn {
    fn trace_future(&self, work: BoxFuture<'static, Box<dyn Any + Send>>) -> BoxFuture<'static, Box<dyn Any + Send>> {
        match Watch::current() {
            Some(watch) => WatchedFuture::new(watch, work).boxed(),
            None => work,
        }
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>,
    ) -> Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> {
        match Watch::current() {
            Some(watch) => Box::new(move || counted(&watch, work)),
            None => work,
        }
    }
}

/// Begins to hand on, once for all engines of the process.
pub(crate) fn hand_on() {
    // The only tracer of the process is this one: a second engine finds it in place.
    let _ = set_join_set_tracer(&HandOn);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    use datafusion::common::runtime::SpawnedTask;
    use quiver_types::read_stats::Gate;
    use quiver_types::{Access, Error, ErrorKind, Result, cancellation};

    use super::*;
    use crate::{EngineSettings, Limits, QueryContext, QueryEngine};

    #[derive(Debug, Default)]
    struct Ended(AtomicBool, AtomicU64);

    impl Gate for Ended {
        fn take(&self, _: usize) -> Result<()> {
            Ok(())
        }

        fn give_back(&self, _: usize) {}

        fn spent(&self, cpu: Duration) {
            self.1.fetch_add(cpu.as_nanos() as u64, Relaxed);
        }

        fn check(&self) -> Result<()> {
            if self.0.load(Relaxed) { Err(Error::new(ErrorKind::Cancelled, "it ended")) } else { Ok(()) }
        }
    }

    #[tokio::test]
    async fn tasks_of_a_query_are_told_to_stop_and_say_nothing() {
        hand_on();
        let gate = Arc::new(Ended::default());
        let watch = Watch::new(Arc::clone(&gate) as _);
        let work = || async { SpawnedTask::spawn(async { cancellation::goes_on(usize::MAX) }).await.ok() };
        assert_eq!(WatchedFuture::new(watch.clone(), work().boxed()).await, Some(true));
        gate.0.store(true, Relaxed);
        let stopped = WatchedFuture::new(watch.clone(), work().boxed());
        let waited = tokio::time::timeout(Duration::from_millis(50), stopped).await;
        assert!(waited.is_err() && watch.is_stopped());
        assert_eq!(work().await, Some(true), "nobody watches");
    }

    #[tokio::test]
    async fn runs_of_a_query_have_one_time() {
        let engine = QueryEngine::new(&EngineSettings { concurrent_max: 2, ..EngineSettings::small(1 << 20) }).unwrap();
        let context = || QueryContext::new(Access::full(), Limits::default());
        let (first, later) = (context(), context());
        let told = async |ctx: QueryContext| {
            let work = async {
                let spawned = SpawnedTask::spawn(async { statement_time() }).await;
                Ok((statement_time(), spawned.expect("it ends")))
            };
            engine.run(&ctx, work).await.unwrap()
        };
        let (once, again) = (told(first.clone()).await, told(first.another_run()).await);
        assert_eq!(once, (first.query().moment, first.query().moment));
        assert_eq!(once, again);
        assert_eq!(told(later.clone()).await.0, later.query().moment);
    }

    /// Uses up CPU time, by the clock that counts it.
    fn burn(cpu: Duration) {
        let end = thread_cpu() + cpu;
        while thread_cpu() < end {}
    }

    #[tokio::test]
    async fn cpu_time_is_told_of_a_query_and_of_all_its_tasks() {
        hand_on();
        let gate = Arc::new(Ended::default());
        let (some, told) = (Duration::from_millis(2), || Duration::from_nanos(gate.1.load(Relaxed)));
        let work = async move {
            burn(some);
            SpawnedTask::spawn(async move { burn(some) }).await.expect("it ends");
            SpawnedTask::spawn_blocking(move || burn(some)).await.expect("it ends");
        };
        WatchedFuture::new(Watch::new(Arc::clone(&gate) as _), work.boxed()).await;
        assert!(told() >= 3 * some, "{:?}", told());
    }
    #[tokio::test]
    async fn others_run_while_the_work_of_one_is_long() {
        let engine = QueryEngine::new(&EngineSettings { concurrent_max: 2, ..EngineSettings::small(1 << 20) }).unwrap();
        let context = || {
            let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
            QueryContext::new(Access::full(), limits)
        };
        let [long_context, short_context] = [context(), context()];
        let [begun, ended] = [(); 2].map(|()| Arc::new(AtomicBool::default()));
        let (tells, waits) = (Arc::clone(&begun), Arc::clone(&ended));
        // It ends only after the other, for which the engine has no second thread.
        let long = engine.run(&long_context, async move {
            tells.store(true, Relaxed);
            while !waits.load(Relaxed) && cancellation::goes_on(usize::MAX) {}
            Ok(())
        });
        let short = async {
            while !begun.load(Relaxed) {
                tokio::task::yield_now().await;
            }
            let ends = async move {
                ended.store(true, Relaxed);
                Ok(())
            };
            engine.run(&short_context, ends).await
        };
        let (long, short) = tokio::join!(long, short);
        assert!(long.is_ok() && short.is_ok(), "{long:?}, {short:?}");
    }

    #[test]
    fn work_outside_of_queries_keeps_its_thread() {
        make_room();
        let _alone = Alone(ALONE_SINCE.replace(Instant::now().checked_sub(2 * ALONE_MAX)));
        // There is no runtime here, and one of a single thread has nothing to move.
        make_room();
        ALONE_SINCE.set(Instant::now().checked_sub(2 * ALONE_MAX));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { make_room() });
        assert!(ALONE_SINCE.get().is_some_and(|since| since.elapsed() < ALONE_MAX), "it counts anew");
    }
}
