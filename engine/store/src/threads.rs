//! Low-priority threads, and work that they hand to the runtime.
//!
//! A thread inherits the niceness of the thread that starts it, and without privileges cannot lower it again. The
//! runtime starts a thread for blocking work from the thread that asks for it, and keeps it for an hour. If a
//! low-priority thread asked, flushes and whatever else runs on the new thread would yield to queries from then on.

use std::cell::Cell;

use tokio::task::{JoinError, spawn_blocking};

/// How much less than others a thread that gives way gets of a busy processor.
const NICENESS: i32 = 10;

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Lets the calling thread give way to others.
pub(crate) fn give_way() {
    // On Linux the niceness of "this process" is that of the calling thread. Refused: it works all the same.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    GIVES_WAY.set(true);
}

/// Does blocking work on a thread of the runtime, which no thread that gives way has started.
///
/// # Errors
/// The work panicked.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
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
    fn panics_are_the_callers() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let fails = || runtime.block_on(at_once(async { panic!("it fails") }));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).expect_err("it fails");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it fails"));
    }
}
