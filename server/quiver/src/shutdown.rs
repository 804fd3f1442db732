//! How the server is told to stop, and how it exits where a graceful stop is impossible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use quiver_types::{Error, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::systemd;

/// How long a start that is told to stop may take to end gracefully. Ending it hard loses nothing, since what was
/// acknowledged is in the WAL.
const START_ENDS_WITHIN: Duration = Duration::from_secs(5);
/// A signal this soon after the first is the same request: who sends one to a process and to its group (`timeout`, what
/// starts a server in a terminal) sends it twice.
const SAME_REQUEST: Duration = Duration::from_millis(500);
/// Exit code after a panic of the main thread, the same as Rust's.
const PANIC_CODE: i32 = 101;

/// Stops when a signal asks for it, from this call on. `serves` says whether the start is over.
///
/// # Errors
/// Internal: the signal handlers cannot be installed.
pub fn on_signal(stop: CancellationToken, serves: Arc<AtomicBool>) -> Result<()> {
    let listen = |kind| signal(kind).map_err(|e| Error::internal("cannot listen for signals").with_source(e));
    let signals = [listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?];
    tokio::spawn(follow(signals, stop, serves));
    Ok(())
}

/// Lets a write beyond the size that the process may write to a file (`ulimit -f`, `LimitFSIZE=`) fail as one on a full disk
/// does: by itself, its signal ends the process.
///
/// # Errors
/// Internal: the signal handler cannot be installed.
pub fn survive_file_limits() -> Result<()> {
    let beyond = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The handler stays when nobody listens any more.
    signal(beyond).map(drop).map_err(|e| Error::internal("cannot listen for signals").with_source(e))
}

async fn follow([mut term, mut int]: [Signal; 2], stop: CancellationToken, serves: Arc<AtomicBool>) {
    let first = asked(&mut term, &mut int).await;
    let at = Instant::now();
    systemd::notify(systemd::State::Stopping);
    stop.cancel();
    if !serves.load(Relaxed) {
        tokio::select! {
            again = asked_again(&mut term, &mut int, at) => leave(again),
            () = tokio::time::sleep(START_ENDS_WITHIN) => {}
        }
        // The main thread hangs in the start, perhaps while it holds the lock of the log, so nothing is logged.
        if !serves.load(Relaxed) {
            leave(first);
        }
    }
    // The second signal ends the server at once. Acknowledged data is in the WAL.
    let again = asked_again(&mut term, &mut int, at).await;
    tracing::warn!("asked to stop a second time: leaving at once");
    leave(again);
}

async fn asked(term: &mut Signal, int: &mut Signal) -> SignalKind {
    tokio::select! {
        _ = term.recv() => SignalKind::terminate(),
        _ = int.recv() => SignalKind::interrupt(),
    }
}

async fn asked_again(term: &mut Signal, int: &mut Signal, first: Instant) -> SignalKind {
    loop {
        let signal = asked(term, int).await;
        if first.elapsed() >= SAME_REQUEST {
            return signal;
        }
    }
}

fn leave(signal: SignalKind) -> ! {
    std::process::exit(128 + signal.as_raw_value());
}

/// Makes a panic of this thread, which starts and stops the server, end the process. Unwinding would wait for threads
/// that were never told to end, and signals would no longer be handled.
pub fn with_panics_of_this_thread() {
    let (before, this) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        if std::thread::current().id() == this {
            std::process::exit(PANIC_CODE);
        }
    }));
}
