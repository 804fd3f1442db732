//! Repeats the work of a query that was refused memory only because of other queries. As long as nothing of the answer
//! has been sent, its client need not learn of the refusal: the work is thrown away, waits until there is room for it
//! beside the others ([`crate::admission`]), and runs again, with the same deadline, and cancellable as before.
//!
//! Plans are data and hold no state, so they can run as often as needed. An answer never mixes the rows of two runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::future::BoxFuture;
use quiver_types::{Error, ErrorKind, Result};

use crate::context::QueryContext;
use crate::error::is_crowded_out;

/// How often work is repeated. Small queries run beside a repetition, so even that may be refused.
const AGAIN_MAX: u32 = 3;

/// Whether a part of the answer was sent; from then on the work must not be repeated.
#[derive(Debug, Clone, Default)]
pub struct AnswerStarted(Arc<AtomicBool>);

impl AnswerStarted {
    /// To be called before anything is sent.
    pub fn set(&self) {
        self.0.store(true, Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// One run of the work.
pub(crate) type Run = BoxFuture<'static, Result<()>>;

/// The work of one run of a query.
pub(crate) struct Work {
    make: Box<dyn FnMut() -> Option<Run> + Send>,
    /// `None`: the work is never repeated.
    sent: Option<AnswerStarted>,
    is_to_repeat: Arc<AtomicBool>,
    refusals: u32,
    /// The error of the last refused run.
    refused: Option<Error>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("refusals", &self.refusals).field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl Work {
    /// Work that is never repeated.
    pub(crate) fn once(work: Run) -> Self {
        let mut work = Some(work);
        Self::new(Box::new(move || work.take()), None)
    }

    /// Work that is repeated when it is refused memory, as long as nothing was `sent`.
    pub(crate) fn anew(sent: &AnswerStarted, mut make: impl FnMut() -> Run + Send + 'static) -> Self {
        Self::new(Box::new(move || Some(make())), Some(sent.clone()))
    }

    fn new(make: Box<dyn FnMut() -> Option<Run> + Send>, sent: Option<AnswerStarted>) -> Self {
        Self { make, sent, is_to_repeat: Arc::default(), refusals: 0, refused: None }
    }

    /// Makes the work for the next run.
    ///
    /// # Errors
    /// Internal: the work can run only once, and did.
    pub(crate) fn begin(&mut self) -> Result<Run> {
        (self.make)().ok_or_else(|| Error::internal("work was to be done twice"))
    }

    /// How often the work has been refused memory so far.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// The rule that decides, after a run, whether the work is repeated.
    pub(crate) fn verdict(&self) -> Verdict {
        let sent = self.sent.clone().filter(|_| self.refusals < AGAIN_MAX);
        Verdict { sent, is_to_repeat: Arc::clone(&self.is_to_repeat) }
    }

    /// Whether the work is to be repeated after this outcome; if so, counts the refusal.
    pub(crate) fn repeats(&mut self, outcome: &Result<()>) -> bool {
        let is_to_repeat = self.is_to_repeat.swap(false, Relaxed);
        // The caller may have given up on the run, which then has another outcome.
        let Some(refused) = outcome.as_ref().err().filter(|error| is_to_repeat && is_crowded_out(error)) else {
            return false;
        };
        self.refusals += 1;
        self.refused = Some(refused.clone());
        true
    }

    /// The error of work that could not begin. If its time was over before it could be repeated, the earlier refusal is
    /// reported, which tells the client to try again.
    pub(crate) fn not_begun(&mut self, error: Error) -> Error {
        if error.kind == ErrorKind::Timeout { self.refused.take().unwrap_or(error) } else { error }
    }
}

/// Decides whether work is repeated.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// `None`: the work is not repeated whatever its outcome.
    sent: Option<AnswerStarted>,
    is_to_repeat: Arc<AtomicBool>,
}

impl Verdict {
    /// Whether the work is to be repeated after this outcome.
    pub(crate) fn of(&self, outcome: &Result<()>, ctx: &QueryContext) -> bool {
        let (Err(error), Some(sent)) = (outcome, &self.sent) else { return false };
        let repeats = is_crowded_out(error) && !sent.is_set() && ctx.may_run_again();
        self.is_to_repeat.store(repeats, Relaxed);
        repeats
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use futures::FutureExt as _;
    use quiver_types::Access;
    use quiver_types::read_stats::add;

    use super::*;
    use crate::error::CROWDED;
    use crate::{EngineSettings, Limits, QueryEngine, QueryInfo, QueryReservation};

    fn refused() -> Error {
        Error::new(ErrorKind::Unavailable, format!("{CROWDED}: ask again later"))
    }

    fn context() -> QueryContext {
        QueryContext::new(Access::full(), Limits::default())
    }

    fn failing(error: Error) -> impl FnMut() -> Run {
        move || std::future::ready(Err(error.clone())).boxed()
    }

    #[test]
    fn only_refusals_due_to_others_are_met_anew() {
        let repeats = |work: &mut Work, error: Error, ctx: &QueryContext| {
            let outcome = Err(error);
            let told = work.verdict().of(&outcome, ctx);
            assert_eq!(work.repeats(&outcome), told);
            told
        };
        let (sent, ctx) = (AnswerStarted::default(), context());
        let mut work = Work::anew(&sent, failing(refused()));
        assert!(!repeats(&mut work, Error::new(ErrorKind::LimitExceeded, "too much for any"), &ctx));
        assert!(!repeats(&mut work, Error::new(ErrorKind::Unavailable, "the store stops"), &ctx));
        for _ in 0..AGAIN_MAX {
            assert!(repeats(&mut work, refused(), &ctx));
        }
        assert!(!repeats(&mut work, refused(), &ctx), "there is an end to it");
        assert_eq!(work.not_begun(Error::new(ErrorKind::Timeout, "in the queue")).kind, ErrorKind::Unavailable);
        let mut work = Work::anew(&sent, failing(refused()));
        let much = context();
        add(&much.stats.samples, much.limits.samples_max / 2 + 1);
        assert!(!repeats(&mut work, refused(), &much), "it would be over its limit");
        sent.set();
        assert!(!repeats(&mut work, refused(), &ctx), "its client has a part of the answer");
        let mut once = Work::once(std::future::ready(Ok(())).boxed());
        assert!(!repeats(&mut once, refused(), &ctx));
        assert!(once.begin().is_ok() && once.begin().is_err());
    }

    #[test]
    fn an_outcome_of_another_kind_is_not_met_anew() {
        let mut work = Work::anew(&AnswerStarted::default(), failing(refused()));
        assert!(work.verdict().of(&Err(refused()), &context()));
        assert!(!work.repeats(&Err(Error::new(ErrorKind::Timeout, "left behind"))));
        assert!(!work.repeats(&Err(refused())) && work.refusals() == 0, "that was said of another time");
    }

    /// Memory of a query, and how much it takes of it while it runs.
    fn rows(engine: &QueryEngine, text: &str) -> (QueryContext, Arc<QueryReservation>) {
        let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
        let ctx = QueryContext::asked(Access::full(), limits, QueryInfo::default().with_text(text));
        let rows = Arc::new(engine.collected("rows", &ctx));
        (ctx, rows)
    }

    /// Breaks if the second query is refused, or runs again while the first one still holds its memory.
    #[tokio::test]
    async fn who_is_refused_what_others_hold_is_answered_after_them() {
        let settings = EngineSettings { threads: 2, concurrent_max: 4, ..EngineSettings::small(1 << 20) };
        let engine = QueryEngine::new(&settings).unwrap();
        let (first, held) = rows(&engine, "first");
        let (go_on, goes_on) = tokio::sync::oneshot::channel::<()>();
        let (own, large) = (Arc::clone(&engine), Arc::clone(&held));
        let holds = tokio::spawn(async move {
            let work = async move {
                large.add(500 << 10)?;
                let _ = goes_on.await;
                drop(large.part(500 << 10));
                Ok::<_, Error>(())
            };
            own.run(&first, work).await
        });
        while engine.memory_reserved() < 500 << 10 {
            tokio::task::yield_now().await;
        }
        let times = Arc::new(AtomicU32::new(0));
        let (second, own) = rows(&engine, "second");
        let counted = Arc::clone(&times);
        let make = move || {
            let (own, counted) = (Arc::clone(&own), Arc::clone(&counted));
            async move {
                counted.fetch_add(1, Relaxed);
                own.add(500 << 10)?;
                drop(own.part(500 << 10));
                Ok::<_, Error>("answer")
            }
        };
        let (other, query) = (Arc::clone(&engine), Arc::clone(second.query()));
        let answered = tokio::spawn(async move { other.run_anew(&second, &AnswerStarted::default(), make).await });
        let waits = || engine.used().waiting.load(Relaxed) == 1 && times.load(Relaxed) == 1;
        while !waits() && !answered.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!answered.is_finished(), "it waits until the first one has ended");
        go_on.send(()).unwrap();
        assert_eq!(answered.await.unwrap().unwrap(), "answer");
        holds.await.unwrap().unwrap();
        let used = engine.used();
        let counted = (times.load(Relaxed), used.started.load(Relaxed), used.failed.load(Relaxed), query.failure());
        assert_eq!(counted, (2, 2, 0, None), "it is one query, which did not fail");
    }

    #[tokio::test]
    async fn who_waits_to_come_again_can_be_cancelled_and_its_own_want_is_its_own() {
        let settings = EngineSettings { threads: 2, concurrent_max: 4, ..EngineSettings::small(1 << 20) };
        let engine = QueryEngine::new(&settings).unwrap();
        let asks = |ctx: QueryContext, own: Arc<QueryReservation>, bytes: usize| {
            let engine = Arc::clone(&engine);
            let make = move || {
                let own = Arc::clone(&own);
                async move { own.add(bytes) }
            };
            tokio::spawn(async move { engine.run_anew(&ctx, &AnswerStarted::default(), make).await })
        };
        let (alone, own) = rows(&engine, "too large");
        let error = asks(alone, own, 2 << 20).await.unwrap().unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
        let (first, held) = rows(&engine, "first");
        held.add(500 << 10).unwrap();
        let own = Arc::clone(&engine);
        let holds = tokio::spawn(async move { own.run(&first, std::future::pending::<Result<()>>()).await });
        while engine.used().running.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let (second, own) = rows(&engine, "second");
        let cancel = second.cancel.clone();
        let refused = asks(second, own, 500 << 10);
        while engine.used().waiting.load(Relaxed) == 0 && !refused.is_finished() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
        assert_eq!(refused.await.unwrap().unwrap_err().kind, ErrorKind::Cancelled);
        holds.abort();
    }
}
