//! Executions shared by requests: a request that equals one whose execution is running waits for that one, and a
//! later one takes its result as long as the data behind it has not changed (`olap-api.md` 7).
//!
//! An execution is cancelled when its last waiter leaves. If a client was told to ask again it goes on, and is
//! cancelled when no client does so in time.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quiver_olap::model::catalog::Catalog;
use quiver_olap::query::CacheMode;
use quiver_olap::query::request::Request;
use quiver_olap::{Basis, OlapError, OlapResult};
use quiver_query::QueryReservation;
use quiver_query::tables::DomainAccess;
use quiver_types::{Access, Domain, Error, ErrorKind};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long an execution goes on after a client was last told to ask again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);
/// How long a cancelled execution may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of results in the cache, and the largest size of one, including its key.
const KEPT_BYTES_ALL: usize = 16 << 20;
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A result.
#[derive(Debug)]
pub(super) struct Ready {
    /// The response as JSON, shared by all who wait for it.
    pub(super) value: Arc<Value>,
    /// Its approximate size.
    pub(super) bytes: usize,
    /// The state of the data that it was made from; `None`: the data may change unnoticed, so it is never valid
    /// later.
    pub(super) basis: Option<Arc<Basis>>,
    /// Its share of the query's memory, until nobody waits for it any more; `None` for cached results, which have a
    /// limit of their own.
    pub(super) _memory: Option<QueryReservation>,
}

type Answer = Option<Result<Arc<Ready>, OlapError>>;

/// A cached result.
struct Older {
    value: Arc<Value>,
    basis: Option<Arc<Basis>>,
    bytes: usize,
    made: Instant,
}

/// An execution that was not started yet.
pub(super) struct Work {
    /// Cancels the execution, once nobody waits for it.
    pub(super) cancel: CancellationToken,
    /// Computes the result.
    pub(super) run: Pin<Box<dyn Future<Output = OlapResult<Ready>> + Send>>,
}

/// The outcome for one request.
pub(super) enum Outcome {
    /// A result, either new or cached.
    Done(Arc<Ready>),
    /// It is not ready; how long the execution has been running.
    Wait(Duration),
}

/// What an execution is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Its caller waits for the result.
    Answer,
    /// Nobody waits: it goes on to renew what is cached.
    Refresh,
}

/// A running execution.
struct Execution {
    /// Tells executions of the same key apart: a waiter of the previous one may leave after the next has begun.
    number: u64,
    began: Instant,
    answer: watch::Receiver<Answer>,
    cancel: CancellationToken,
    waiters: usize,
    /// When a client was last told to ask again.
    promised: Option<Instant>,
    /// How many clients were told to ask again and have not yet. The result is kept for them only: a later request
    /// must see the data of its own time.
    owed: usize,
}

#[derive(Default)]
struct Inner {
    running: HashMap<String, Execution>,
    kept: HashMap<String, Older>,
    /// Number of executions begun so far.
    begun: u64,
}

impl Inner {
    /// The execution of a key, if it is still the one with this number.
    fn execution(&mut self, key: &str, number: u64) -> Option<&mut Execution> {
        self.running.get_mut(key).filter(|execution| execution.number == number)
    }

    /// Removes an execution, so that the next request begins a new one.
    fn remove(&mut self, key: &str, number: u64) {
        if self.execution(key, number).is_some() {
            self.running.remove(key);
        }
    }
}

/// All executions of analytics queries.
#[derive(Clone, Default)]
pub struct SharedExecutions(Arc<Mutex<Inner>>);

impl std::fmt::Debug for SharedExecutions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedExecutions").field("running", &self.0.lock().running.len()).finish_non_exhaustive()
    }
}

/// What makes two requests the same: query, rights and models; for callers with row filters of their own, also the
/// caller.
pub(super) fn key(request: &Request, is_multi: bool, access: &DomainAccess, caller: &str, catalog: &Catalog) -> String {
    let queries: Vec<Value> = request.queries.iter().map(quiver_olap::query::Query::to_json).collect();
    let of = |access: Access| (access.patterns(), access.segment().to_owned());
    let rights: Vec<_> = Domain::ALL.iter().map(|(domain, ..)| of(access.get(*domain))).collect();
    let models = catalog.version;
    // Rollups do not change the rows, but a request without them must be computed from raw data.
    let raw: Vec<bool> = request.queries.iter().map(|query| !query.rollups).collect();
    // A single range to compare, or a list of one query, is the same query as a plain one, but has another response.
    let kind = request.query_type.word();
    format!("{kind} {is_multi} {models} {rights:?} {caller:?} {raw:?} {}", Value::from(queries))
}

/// A request that waits. When the last one is dropped the execution is cancelled.
struct Waiter<'a> {
    waiting: &'a SharedExecutions,
    key: &'a str,
    number: u64,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut inner = self.waiting.0.lock();
        let Some(execution) = inner.execution(self.key, self.number) else { return };
        execution.waiters -= 1;
        if execution.waiters > 0 || execution.owed > 0 {
            return;
        }
        if execution.answer.borrow().is_some() {
            inner.remove(self.key, self.number);
        } else if execution.promised.is_none() {
            execution.cancel.cancel();
            inner.remove(self.key, self.number);
        }
    }
}

impl SharedExecutions {
    /// Gets a result: a cached one if it is still valid according to `holds`; otherwise joins the running execution,
    /// or begins one.
    pub(super) async fn ask(
        &self,
        key: String,
        work: Work,
        mode: CacheMode,
        wait: Duration,
        holds: impl Fn(&Basis) -> bool,
    ) -> OlapResult<Outcome> {
        let older = || self.0.lock().kept.get(&key).map(|older| Arc::clone(&older.value));
        if mode != CacheMode::NoCache {
            let kept = self.0.lock().kept.get(&key).map(|older| (Arc::clone(&older.value), older.basis.clone()));
            if let Some((value, Some(basis))) = kept
                && holds(&basis)
            {
                return Ok(Outcome::Done(Arc::new(Ready { value, bytes: 0, basis: None, _memory: None })));
            }
        }
        if mode == CacheMode::StaleWhileRevalidate
            && let Some(value) = older()
        {
            let _ = self.join(&key, work, mode, Need::Refresh);
            return Ok(Outcome::Done(slow(&value)));
        }
        let (mut answer, began, number) = self.join(&key, work, mode, Need::Answer);
        let waiter = Waiter { waiting: self, key: &key, number };
        let ready = tokio::time::timeout(wait, answer.wait_for(Option::is_some)).await;
        if let Ok(found) = ready {
            let found = found.map(|a| a.clone()).ok().flatten();
            drop(waiter);
            let gone = || Err(Error::internal("the execution of a query was lost").into());
            return found.unwrap_or_else(gone).map(Outcome::Done);
        }
        if let Some(execution) = self.0.lock().execution(&key, number) {
            execution.promised = Some(Instant::now());
            execution.owed += 1;
        }
        drop(waiter);
        match older().filter(|_| mode == CacheMode::StaleIfSlow) {
            Some(value) => Ok(Outcome::Done(slow(&value))),
            None => Ok(Outcome::Wait(began.elapsed())),
        }
    }

    /// Joins the execution of a key, or begins it.
    fn join(&self, key: &str, work: Work, mode: CacheMode, need: Need) -> (watch::Receiver<Answer>, Instant, u64) {
        let mut inner = self.0.lock();
        if let Some(execution) = inner.running.get_mut(key) {
            if need == Need::Answer {
                execution.waiters += 1;
                // Which client was told to ask again is not known, so any that comes is taken for one of them.
                execution.owed = execution.owed.saturating_sub(1);
            }
            execution.promised = execution.promised.map(|_| Instant::now());
            return (execution.answer.clone(), execution.began, execution.number);
        }
        let (sender, answer) = watch::channel(None);
        inner.begun += 1;
        let number = inner.begun;
        let execution = Execution {
            number,
            began: Instant::now(),
            answer: answer.clone(),
            cancel: work.cancel.clone(),
            waiters: usize::from(need == Need::Answer),
            promised: (need == Need::Refresh).then(Instant::now),
            owed: 0,
        };
        let began = execution.began;
        inner.running.insert(key.to_owned(), execution);
        drop(inner);
        let (this, key) = (self.clone(), key.to_owned());
        tokio::spawn(async move { this.execute(&key, number, work, sender, mode).await });
        (answer, began, number)
    }

    async fn execute(&self, key: &str, number: u64, work: Work, sender: watch::Sender<Answer>, mode: CacheMode) {
        let Work { cancel, mut run } = work;
        let mut look = tokio::time::interval(Duration::from_secs(1));
        let outcome = loop {
            tokio::select! {
                outcome = &mut run => break outcome,
                () = cancel.cancelled() => {
                    // If the last waiter left, it removed the execution, and nobody needs the result. If an operator
                    // cancelled it, it is still there: waiters get the error, and the next request begins anew.
                    if self.0.lock().execution(key, number).is_none() {
                        return;
                    }
                    self.0.lock().remove(key, number);
                    let gone = |_| Err(Error::new(ErrorKind::Cancelled, "query was canceled").into());
                    break tokio::time::timeout(ENDS_WITHIN, &mut run).await.unwrap_or_else(gone);
                }
                _ = look.tick() => if self.is_forgotten(key, number) {
                    cancel.cancel();
                    self.0.lock().remove(key, number);
                    return;
                },
            }
        };
        let outcome = outcome.map(Arc::new);
        let kept = outcome.as_ref().ok().filter(|_| mode != CacheMode::NoCache).cloned();
        let small = kept.filter(|ready| ready.bytes + key.len() <= KEPT_BYTES_MAX);
        if self.is_over(key, number, small.as_deref(), sender, outcome) {
            return;
        }
        while !self.is_forgotten(key, number) {
            look.tick().await;
        }
        self.0.lock().remove(key, number);
    }

    /// Sends the result to the waiters and caches it. Returns whether no client is still expected to ask again for
    /// it.
    fn is_over(
        &self,
        key: &str,
        number: u64,
        kept: Option<&Ready>,
        sender: watch::Sender<Answer>,
        outcome: Result<Arc<Ready>, OlapError>,
    ) -> bool {
        let mut inner = self.0.lock();
        if let Some(ready) = kept {
            let bytes = ready.bytes + key.len();
            inner.kept.remove(key);
            while inner.kept.values().map(|older| older.bytes).sum::<usize>() + bytes > KEPT_BYTES_ALL
                && let Some(oldest) = inner.kept.iter().min_by_key(|(_, older)| older.made).map(|(k, _)| k.clone())
            {
                inner.kept.remove(&oldest);
            }
            let (value, basis) = (Arc::clone(&ready.value), ready.basis.clone());
            let older = Older { value, basis, bytes, made: Instant::now() };
            inner.kept.insert(key.to_owned(), older);
        }
        let _ = sender.send(Some(outcome));
        let over = inner.execution(key, number).is_none_or(|e| e.owed == 0);
        if over {
            inner.remove(key, number);
        }
        over
    }

    /// Whether nobody waits, and nobody asked again in time.
    fn is_forgotten(&self, key: &str, number: u64) -> bool {
        let mut inner = self.0.lock();
        inner
            .execution(key, number)
            .is_none_or(|e| e.waiters == 0 && e.promised.is_none_or(|at| at.elapsed() > FORGOTTEN_AFTER))
    }
}

/// A copy of the response marked as out of date (`slowQuery`).
fn slow(value: &Value) -> Arc<Ready> {
    let mut value = value.clone();
    value["slowQuery"] = true.into();
    Arc::new(Ready { value: Arc::new(value), bytes: 0, basis: None, _memory: None })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn work(runs: &Arc<AtomicUsize>, millis: u64) -> Work {
        let runs = Arc::clone(runs);
        let run = async move {
            let run = runs.fetch_add(1, SeqCst) + 1;
            tokio::time::sleep(Duration::from_millis(millis)).await;
            let value = Arc::new(serde_json::json!({"run": run, "slowQuery": false}));
            Ok(Ready { value, bytes: 64, basis: None, _memory: None })
        };
        Work { cancel: CancellationToken::new(), run: Box::pin(run) }
    }

    /// Ends when it is let, however long that takes.
    fn gated(runs: &Arc<AtomicUsize>, gate: &CancellationToken) -> Work {
        let (Work { cancel, run }, gate) = (work(runs, 0), gate.clone());
        let run = async move {
            gate.cancelled().await;
            run.await
        };
        Work { cancel, run: Box::pin(run) }
    }

    async fn ask(waiting: &SharedExecutions, work: Work, mode: CacheMode, wait_ms: u64) -> Option<Value> {
        match waiting.ask("k".to_owned(), work, mode, Duration::from_millis(wait_ms), |_| false).await.unwrap() {
            Outcome::Done(ready) => Some((*ready.value).clone()),
            Outcome::Wait(_) => None,
        }
    }

    #[tokio::test]
    async fn equal_requests_share_one_execution() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let mode = CacheMode::MustRevalidate;
        let (a, b) =
            tokio::join!(ask(&waiting, work(&runs, 50), mode, 60_000), ask(&waiting, work(&runs, 50), mode, 60_000));
        assert_eq!((a, runs.load(SeqCst)), (b, 1));
    }

    #[tokio::test]
    async fn come_again_and_get_the_same_execution() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let (mode, gate) = (CacheMode::NoCache, CancellationToken::new());
        assert_eq!(ask(&waiting, gated(&runs, &gate), mode, 10).await, None);
        gate.cancel();
        let answer = ask(&waiting, work(&runs, 0), mode, 60_000).await.unwrap();
        assert_eq!((answer["run"].as_u64(), runs.load(SeqCst)), (Some(1), 1));
    }

    /// A finished result is for those who were told to ask again; other requests begin a new execution.
    #[tokio::test]
    async fn what_was_come_for_is_not_given_again() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let (mode, gate) = (CacheMode::MustRevalidate, CancellationToken::new());
        let ask_gated = || ask(&waiting, gated(&runs, &gate), mode, 1);
        assert_eq!(tokio::join!(ask_gated(), ask_gated()), (None, None));
        gate.cancel();
        let mut answer = waiting.0.lock().running["k"].answer.clone();
        answer.wait_for(Option::is_some).await.unwrap();
        for run in [1, 1, 2, 3] {
            let answer = ask(&waiting, work(&runs, 0), mode, 60_000).await.unwrap();
            assert_eq!(answer["run"].as_u64(), Some(run));
        }
    }

    #[tokio::test]
    async fn older_results_where_they_are_taken() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        ask(&waiting, work(&runs, 0), CacheMode::StaleIfSlow, 60_000).await.unwrap();
        let gate = CancellationToken::new();
        let older = ask(&waiting, gated(&runs, &gate), CacheMode::StaleIfSlow, 10).await.unwrap();
        assert_eq!((older["run"].as_u64(), older["slowQuery"].as_bool()), (Some(1), Some(true)));
        assert_eq!(
            ask(&waiting, gated(&runs, &gate), CacheMode::MustRevalidate, 10).await,
            None,
            "it waits for the fresh one"
        );
    }

    #[tokio::test]
    async fn an_answer_serves_while_what_it_rests_on_holds() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let resting = |runs: &Arc<AtomicUsize>| {
            let Work { cancel, run } = work(runs, 0);
            let run = async move { run.await.map(|ready| Ready { basis: Some(Arc::default()), ..ready }) };
            Work { cancel, run: Box::pin(run) }
        };
        let ask = async |mode, holds: bool| {
            let outcome = waiting.ask("k".to_owned(), resting(&runs), mode, Duration::from_mins(1), |_| holds).await;
            let Ok(Outcome::Done(ready)) = outcome else { panic!("it is done") };
            (ready.value["run"].as_u64().unwrap(), ready.value["slowQuery"].as_bool().unwrap())
        };
        assert_eq!(ask(CacheMode::StaleIfSlow, true).await, (1, false));
        assert_eq!(ask(CacheMode::StaleIfSlow, true).await, (1, false));
        assert_eq!(ask(CacheMode::MustRevalidate, true).await, (1, false), "it is as fresh as one can be");
        assert_eq!(ask(CacheMode::NoCache, true).await.0, 2);
        assert_eq!(ask(CacheMode::StaleIfSlow, true).await.0, 1, "what was not to be written was not");
        assert_eq!(ask(CacheMode::StaleIfSlow, false).await.0, 3, "something was written");
    }

    #[tokio::test]
    async fn who_leaves_late_ends_no_later_execution() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let (mut answer, _, number) = waiting.join("k", work(&runs, 0), CacheMode::NoCache, Need::Answer);
        let late = Waiter { waiting: &waiting, key: "k", number };
        answer.wait_for(Option::is_some).await.unwrap();
        // The result is there, and the next request begins an execution before this waiter has left.
        let next = ask(&waiting, work(&runs, 50), CacheMode::NoCache, 60_000);
        let (next, ()) = tokio::join!(next, async { drop(late) });
        assert_eq!(next.unwrap()["run"].as_u64(), Some(2));
    }

    #[tokio::test]
    async fn what_an_operator_ends_begins_anew() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let ended = work(&runs, 60_000);
        let cancel = ended.cancel.clone();
        assert_eq!(ask(&waiting, ended, CacheMode::NoCache, 10).await, None, "somebody is to come again");
        let waits = waiting.ask("k".to_owned(), work(&runs, 0), CacheMode::NoCache, Duration::from_mins(1), |_| false);
        let (told, ()) = tokio::join!(waits, async { cancel.cancel() });
        assert!(matches!(&told, Err(OlapError::Engine(error)) if error.kind == ErrorKind::Cancelled));
        let anew = ask(&waiting, work(&runs, 0), CacheMode::NoCache, 60_000).await.unwrap();
        assert_eq!(anew["run"].as_u64(), Some(2));
    }

    #[tokio::test]
    async fn who_goes_away_ends_it() {
        let (waiting, runs) = (SharedExecutions::default(), Arc::default());
        let work = work(&runs, 60_000);
        let cancel = work.cancel.clone();
        let asked = waiting.ask("k".to_owned(), work, CacheMode::NoCache, Duration::from_mins(1), |_| false);
        assert!(tokio::time::timeout(Duration::from_millis(20), asked).await.is_err());
        assert!(cancel.is_cancelled());
    }
}
