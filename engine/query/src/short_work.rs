//! Short work runs on the caller's thread: handing it to another thread and waking up again when it is done takes
//! longer than many look-ups in memory.
//!
//! The future of the work is polled once there. If that does not complete it, it is moved to the CPU runtime. So work
//! that is about to wait, read files or process many rows calls [`give_way`] first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_types::{Error, ErrorKind, Result, failpoint};
use tokio::runtime::Handle;

/// Where the work of a query begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// On the caller's thread, until it waits or gives way for the first time.
    Near,
    /// On the CPU runtime.
    Away,
}

impl Start {
    /// Polls the work once if it may begin here; `None`: it is not done and must be spawned on the CPU runtime. What it
    /// starts beside itself, as the partitions of a plan, runs there from the beginning. A panic becomes an error, as it
    /// does there.
    pub(crate) async fn poll_near(self, work: &mut BoxFuture<'static, Result<()>>, cpu: &Handle) -> Option<Result<()>> {
        // An armed fail point may block its thread, which real work never does here.
        if self == Self::Away || failpoint::is_armed() {
            return None;
        }
        std::future::poll_fn(|cx| {
            let _within = cpu.enter();
            let polled = catch_unwind(AssertUnwindSafe(|| work.poll_unpin(cx)));
            Poll::Ready(match polled {
                Ok(Poll::Ready(answer)) => Some(answer),
                Ok(Poll::Pending) => None,
                Err(panic) => {
                    let text = panic.downcast_ref::<&str>().copied();
                    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
                    Some(Err(of_panic(text.unwrap_or_default())))
                }
            })
        })
        .await
    }
}

/// To be called before work that may take long: if the query began on its caller's thread, it continues on the CPU
/// runtime.
pub async fn give_way() {
    tokio::task::yield_now().await;
}

/// Message of the error that a panic becomes.
const FAULT: &str = "the query met a fault of ours; the log has it";

/// What Arrow panics with if the texts or lists of a batch take more than offsets of 32 bits can express. Joins copy a
/// long text once per row before anything counts it.
const OVERFLOW: &str = "offset overflow";

/// The error that a panic becomes, by what it says.
pub(crate) fn of_panic(text: &str) -> Error {
    if text.contains(OVERFLOW) {
        let text = "texts or lists in a batch of rows take more than 2 GiB: make them shorter, or join fewer rows";
        return Error::new(ErrorKind::LimitExceeded, text);
    }
    Error::internal(FAULT)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use quiver_types::{Access, ErrorKind};

    use crate::{EngineSettings, Limits, QueryContext, QueryEngine};

    #[tokio::test]
    async fn short_work_stays_on_the_thread_until_it_gives_way() {
        let engine = QueryEngine::new(&EngineSettings::small(1 << 20)).unwrap();
        let context = || QueryContext::new(Access::full(), Limits::default());
        let here = thread::current().id();
        let at = || async { Ok(thread::current().id()) };
        assert_eq!(engine.run_short_anew(&context(), at).await.unwrap(), here);
        assert_ne!(engine.run(&context(), at()).await.unwrap(), here, "others go to the engine at once");
        let starts = || async { Ok(tokio::spawn(async { thread::current().name().map(str::to_owned) })) };
        let started = engine.run_short_anew(&context(), starts).await.unwrap().await.unwrap();
        assert_eq!(started.as_deref(), Some("quiver-query"), "what it starts beside itself is the engine's");
        let gives_way = || async {
            let began = thread::current().id();
            tokio::task::yield_now().await;
            Ok((began, thread::current().id()))
        };
        let (began, ended) = engine.run_short_anew(&context(), gives_way).await.unwrap();
        assert!(began == here && ended != here);
        let ctx = context();
        let cancel = ctx.cancel.clone();
        let stopped = engine.run_short_anew(&ctx, move || {
            let cancel = cancel.clone();
            async move {
                cancel.cancel();
                std::future::pending::<()>().await;
                Ok(())
            }
        });
        assert_eq!(stopped.await.unwrap_err().kind, ErrorKind::Cancelled);
        let fault = engine.run_short_anew(&context(), || async { panic!("boom") as quiver_types::Result<()> }).await;
        assert_eq!(fault.unwrap_err().kind, ErrorKind::Internal);
        assert!(engine.run_short_anew(&context(), at).await.is_ok(), "the place is free again");
        // Arrow has no error for it.
        let too_long = || async { panic!("offset overflow") as quiver_types::Result<()> };
        for refused in [engine.run_short_anew(&context(), too_long).await, engine.run(&context(), too_long()).await] {
            assert_eq!(refused.unwrap_err().kind, ErrorKind::LimitExceeded);
        }
    }
}
