//! Entry points for work that is repeated if other queries held its memory ([`crate::repeated_work`]).

use std::sync::Arc;

use quiver_types::Result;

use super::{AnswerSlot, QueryEngine, into_slot};
use crate::context::QueryContext;
use crate::repeated_work::{AnswerStarted, Work};
use crate::short_work::Start;

impl QueryEngine {
    /// Like [`Self::run`], for work that only reads. If other queries hold the memory that it needs, and nothing of its answer
    /// was `sent` yet, it is repeated when there is room for it.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_anew<T, F>(
        &self,
        ctx: &QueryContext,
        sent: &AnswerStarted,
        mut make: impl FnMut() -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let work = |slot: AnswerSlot<T>| Work::anew(sent, move || into_slot(make(), Arc::clone(&slot)));
        self.run_from(Start::Away, ctx, work).await
    }

    /// Like [`Self::run_anew`], but begins on the caller's thread each time, which saves two thread switches for short work.
    /// Work that turns out to be long (reads files or many rows, waits) must call [`give_way`](crate::give_way) first, which
    /// moves it to the CPU runtime. Nothing of the answer is sent before the work is done.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn run_short_anew<T, F>(
        &self,
        ctx: &QueryContext,
        mut make: impl FnMut() -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let work =
            |slot: AnswerSlot<T>| Work::anew(&AnswerStarted::default(), move || into_slot(make(), Arc::clone(&slot)));
        self.run_from(Start::Near, ctx, work).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::thread;

    use quiver_types::{Access, Error, ErrorKind};

    use super::*;
    use crate::error::CROWDED;
    use crate::{EngineSettings, Limits};

    /// Breaks if short work returns the refusal, or leaves its caller's thread.
    #[tokio::test]
    async fn short_work_is_done_anew_on_the_thread_of_its_caller() {
        let engine = QueryEngine::new(&EngineSettings::small(1 << 20)).unwrap();
        let times = Arc::new(AtomicU32::new(0));
        let refused_first = |kind: ErrorKind, text: &'static str| {
            times.store(0, Relaxed);
            let times = Arc::clone(&times);
            move || {
                let first = times.fetch_add(1, Relaxed) == 0;
                let refused = Error::new(kind, text);
                async move { if first { Err(refused) } else { Ok(thread::current().id()) } }
            }
        };
        let context = || QueryContext::new(Access::full(), Limits::default());
        let crowded = refused_first(ErrorKind::Unavailable, CROWDED);
        assert_eq!(engine.run_short_anew(&context(), crowded).await.unwrap(), thread::current().id());
        assert_eq!(times.load(Relaxed), 2);
        let alone = refused_first(ErrorKind::LimitExceeded, "too much for any");
        assert_eq!(engine.run_short_anew(&context(), alone).await.unwrap_err().kind, ErrorKind::LimitExceeded);
        assert_eq!(times.load(Relaxed), 1);
    }
}
