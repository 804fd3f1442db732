//! Work that begins on the thread of its caller: to wake another thread for it, and to be woken by that one, takes longer
//! than many a look-up in what is in memory.
//!
//! It is polled there once. What it has not come to the end of by then goes on on the threads of the engine: whoever
//! waits, reads files or has much before him gives way first (`tokio::task::yield_now`), and so is moved.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quiver_types::{Error, Result, failpoint};

/// Where the work of a query begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// On the thread of its caller, up to where it waits or gives way for the first time.
    Near,
    /// On the threads of the engine.
    Away,
}

impl Start {
    /// Does what can be done here of work; none: it goes on away from here. A panic is an error, as it is there.
    pub(crate) async fn done<T>(self, work: &mut BoxFuture<'static, Result<T>>) -> Option<Result<T>> {
        // A fail point may hold the thread that passes it, as no work does that gives way in time.
        if self == Self::Away || failpoint::is_armed() {
            return None;
        }
        std::future::poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| work.poll_unpin(cx)));
            Poll::Ready(match polled {
                Ok(Poll::Ready(answer)) => Some(answer),
                Ok(Poll::Pending) => None,
                Err(_) => Some(Err(Error::internal(FAULT))),
            })
        })
        .await
    }
}

/// Gives way before work that may be long, so that what began on the thread of its caller goes on on one of the engine.
pub async fn give_way() {
    tokio::task::yield_now().await;
}

/// What is said of a panic.
pub(crate) const FAULT: &str = "the query met a fault of ours; the log has it";

#[cfg(test)]
mod tests {
    use std::thread;

    use quiver_types::{Access, ErrorKind};

    use crate::{EngineSettings, Limits, QueryContext, QueryEngine};

    #[tokio::test]
    async fn short_work_stays_on_the_thread_until_it_gives_way() {
        let settings = EngineSettings {
            memory_bytes: 1 << 20,
            spill_dir: std::env::temp_dir(),
            spill_bytes: 1 << 20,
            threads: 1,
            concurrent_max: 1,
            pressure: std::sync::Arc::default(),
        };
        let engine = QueryEngine::new(&settings).unwrap();
        let context = || QueryContext::new(Access::full(), Limits::default());
        let here = thread::current().id();
        let at = || async { Ok(thread::current().id()) };
        assert_eq!(engine.run_short(&context(), at()).await.unwrap(), here);
        assert_ne!(engine.run(&context(), at()).await.unwrap(), here, "others go to the engine at once");
        let gives_way = async move {
            let began = thread::current().id();
            tokio::task::yield_now().await;
            Ok((began, thread::current().id()))
        };
        let (began, ended) = engine.run_short(&context(), gives_way).await.unwrap();
        assert!(began == here && ended != here);
        let ctx = context();
        let cancel = ctx.cancel.clone();
        let stopped = engine.run_short(&ctx, async move {
            cancel.cancel();
            std::future::pending::<()>().await;
            Ok(())
        });
        assert_eq!(stopped.await.unwrap_err().kind, ErrorKind::Cancelled);
        let fault = engine.run_short(&context(), async { panic!("boom") as quiver_types::Result<()> }).await;
        assert_eq!(fault.unwrap_err().kind, ErrorKind::Internal);
        assert!(engine.run_short(&context(), at()).await.is_ok(), "the place is free again");
    }
}
