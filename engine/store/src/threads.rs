//! Low-priority threads, and work that they hand to the runtime.
//!
//! A thread inherits the niceness of the thread that starts it, and without privileges cannot lower it again. The
//! runtime starts a thread for blocking work from the thread that asks for it, and keeps it for an hour. If a
//! low-priority thread asked, flushes and whatever else runs on the new thread would yield to queries from then on.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// How much less than others a thread that gives way gets of a busy processor: about a tenth.
const NICENESS: i32 = 10;
/// How long a thread works before it looks whether it rests.
const WORK: Duration = Duration::from_millis(5);
/// How many times as long as it has worked a thread rests on a busy machine.
const RESTS: u32 = 19;
/// The longest rest, after which the thread sees whether the store closes.
const REST_MAX: Duration = Duration::from_millis(200);

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
    static PACE: Cell<Option<Pace>> = const { Cell::new(None) };
}

/// What a thread that rests had been given when it last looked.
#[derive(Debug, Clone, Copy)]
struct Pace {
    looked: Instant,
    had: SchedulerTimes,
}

/// How long the kernel let a thread run, and let it wait for a processor.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SchedulerTimes {
    ran: Duration,
    waited: Duration,
}

impl SchedulerTimes {
    /// Of the calling thread; `None` where the system does not say.
    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut times = text.split_whitespace().map(|ns| ns.parse().ok().map(Duration::from_nanos));
        Some(Self { ran: times.next()??, waited: times.next()?? })
    }

    /// How long to rest after this work: not at all if the thread had a processor half of the time that it wanted one.
    fn rest(self) -> Duration {
        if self.waited <= self.ran { Duration::ZERO } else { (self.ran * RESTS).min(REST_MAX) }
    }
}

/// To be called before files are read or much is looked through: a query that began on its caller's thread, as it may be short, goes
/// on on a thread of the engine.
pub(crate) async fn leave_callers_thread() {
    tokio::task::yield_now().await;
}

/// Lets the calling thread give way to others.
pub(crate) fn give_way() {
    // On Linux the niceness of "this process" is that of the calling thread. Refused: it works all the same.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    GIVES_WAY.set(true);
}

/// Says whether the calling thread rests in [`rest_if_busy`] from now on.
pub(crate) fn rest_from_now(rests: bool) {
    let pace = || Some(Pace { looked: Instant::now(), had: SchedulerTimes::now()? });
    PACE.set(rests.then(pace).flatten());
}

/// Rests if others want the processors. A low priority alone does not suffice: whenever queries and writes wait for
/// each other for a moment, the thread takes a tenth of the machine.
///
/// To be called between small pieces of work; blocks the thread.
pub(crate) fn rest_if_busy() {
    let Some(pace) = PACE.get().filter(|pace| pace.looked.elapsed() >= WORK) else { return };
    let Some(now) = SchedulerTimes::now() else { return };
    let since = SchedulerTimes {
        ran: now.ran.saturating_sub(pace.had.ran),
        waited: now.waited.saturating_sub(pace.had.waited),
    };
    let rest = since.rest();
    if !rest.is_zero() {
        std::thread::sleep(rest);
    }
    // Waking up on a busy machine takes a wait, which says nothing of the work to come.
    PACE.set(Some(Pace { looked: Instant::now(), had: SchedulerTimes::now().unwrap_or(now) }));
}

/// Does blocking work on a thread of the runtime, which no thread that gives way has started.
///
/// # Errors
/// The work panicked.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    let done = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&done);
    on_thread(Box::new(move || {
        let value = work();
        *slot.lock() = Some(value);
    }))
    .await?;
    let value = done.lock().take();
    Ok(value.expect("work that ended without a panic has a value"))
}

/// Tasks are compiled once for all that is done.
async fn on_thread(work: Box<dyn FnOnce() + Send>) -> Result<(), JoinError> {
    if GIVES_WAY.get() { tokio::spawn(async { spawn_blocking(work).await }).await? } else { spawn_blocking(work).await }
}

/// Does what others wait for, as a transaction of the catalog, with the priority of the runtime's own threads. A panic is the
/// caller's.
pub(crate) async fn at_once<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and with it all that waits here.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    fn niceness() -> i32 {
        getpriority_process(None).expect("that of this thread")
    }

    #[test]
    fn the_runtime_does_not_give_way() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let own = niceness();
        let handle = runtime.handle().clone();
        let seen = std::thread::spawn(move || {
            give_way();
            let blocking = handle.block_on(blocking(niceness)).expect("it ran");
            (niceness(), blocking, handle.block_on(at_once(async { niceness() })))
        });
        assert_eq!(seen.join().expect("it ran"), (NICENESS, own, own));
    }

    #[test]
    fn a_thread_rests_if_it_waits_for_a_processor() {
        let ms = Duration::from_millis;
        let rest = |ran, waited| SchedulerTimes { ran: ms(ran), waited: ms(waited) }.rest();
        assert_eq!([rest(5, 0), rest(5, 5)], [ms(0); 2]);
        assert_eq!([rest(1, 2), rest(5, 40), rest(50, 51)], [ms(19), ms(95), ms(200)]);
        let parsed = SchedulerTimes::parse("5000000 7000000 3\n");
        assert_eq!(parsed, Some(SchedulerTimes { ran: ms(5), waited: ms(7) }));
        assert_eq!([SchedulerTimes::parse(""), SchedulerTimes::parse("5"), SchedulerTimes::parse("a b c")], [None; 3]);
        // What the kernel counted so far: of a thread that has just begun, nothing.
        assert_eq!(SchedulerTimes::now().is_some(), std::path::Path::new("/proc/thread-self/schedstat").exists());
    }

    #[test]
    fn panics_are_the_callers() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let fails = || runtime.block_on(at_once(async { panic!("it fails") }));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).expect_err("it fails");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it fails"));
    }
}
