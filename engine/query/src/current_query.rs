//! Tells the engine's threads for which query they currently work. So even work within a single value can check whether
//! to go on ([`quiver_types::cancellation`]), and CPU time is attributed to the query. The future of a stopped query never
//! completes: its result would be worthless, and its caller has noticed the stop by itself.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_types::cancellation::Watch;
use rustix::time::{ClockId, clock_gettime};

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

impl<T> Future for WatchedFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if this.watch.is_stopped() {
            return Poll::Pending;
        }
        let polled = counted(&this.watch, || this.watch.over(|| this.work.poll_unpin(cx)));
        // What it would say was perhaps made of values that nobody looked at.
        if this.watch.is_stopped() { Poll::Pending } else { polled }
    }
}

/// Hands on for whom a thread works to the tasks that DataFusion starts meanwhile.
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
    use quiver_types::{Error, ErrorKind, Result, cancellation};

    use super::*;

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
}
