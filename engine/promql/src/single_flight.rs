//! Equal queries that arrive at the same time: one is evaluated, the others wait and share its outcome (promise L6).
//!
//! No query sees less than it would have seen alone: an outcome is shared only with queries that arrived when nothing
//! had been written that it does not include. So while writes go on, a burst of equal queries takes two evaluations:
//! one for the first, and one for all that arrived while it ran.

use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use quiver_query::{Limits, QueryContext};
use quiver_types::{Access, Error, ErrorKind, Result, Version};
use tokio::sync::MutexGuard;
use tokio::time::{Instant, timeout_at};

use crate::error::PromqlError;
use crate::plan::QueryTimes;
use crate::query::evaluation::EvaluationResult;

/// Queries with equal keys share an outcome. The text is part of it, since annotations refer to places in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FlightKey {
    query: String,
    times: QueryTimes,
    lookback_ms: i64,
    access: Access,
    limits: Limits,
}

/// The queries that are being evaluated.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<FlightKey, Weak<Flight>, RandomState>>);

/// What equal queries share for as long as one of them runs.
#[derive(Debug, Default)]
pub(crate) struct Flight(tokio::sync::Mutex<Option<SharedOutcome>>);

/// The outcome of the last evaluation, and the version of the source just before it.
#[derive(Debug)]
struct SharedOutcome {
    version: Version,
    outcome: Result<EvaluationResult, PromqlError>,
}

/// What a query gets after its wait.
pub(crate) enum FlightResult<'a> {
    /// The outcome of an equal query, evaluated while it waited.
    Outcome(Box<Result<EvaluationResult, PromqlError>>),
    /// It must be evaluated; equal ones wait for it.
    First(First<'a>),
}

/// The permission to evaluate, which must be ended by [`Self::end`].
pub(crate) struct First<'a>(MutexGuard<'a, Option<SharedOutcome>>);

impl Flights {
    /// Gives the flight of a query, which equal ones share.
    pub(crate) fn of(&self, query: &str, times: QueryTimes, lookback_ms: i64, ctx: &QueryContext) -> Arc<Flight> {
        // The timeout does not affect the result, so it is not compared.
        let limits = Limits { timeout: Duration::ZERO, ..ctx.limits.clone() };
        let key = FlightKey { query: query.to_owned(), times, lookback_ms, access: ctx.access.clone(), limits };
        let mut all = self.0.lock();
        if let Some(flight) = all.get(&key).and_then(Weak::upgrade) {
            return flight;
        }
        all.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::new(Flight::default());
        all.insert(key, Arc::downgrade(&flight));
        flight
    }
}

impl Flight {
    /// Waits while an equal query is evaluated. `seen` is the version of the source when the caller arrived.
    ///
    /// # Errors
    /// Timeout.
    pub(crate) async fn wait(&self, seen: Version, deadline: std::time::Instant) -> Result<FlightResult<'_>> {
        let given = timeout_at(Instant::from_std(deadline), self.0.lock())
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, "query timed out in expression evaluation queue"))?;
        let told = |g: &&SharedOutcome| g.version.written >= seen.written && g.version.dropped >= seen.dropped;
        Ok(match given.as_ref().filter(told) {
            Some(given) => FlightResult::Outcome(Box::new(given.outcome.clone())),
            None => FlightResult::First(First(given)),
        })
    }
}

impl First<'_> {
    /// Passes the outcome to those that wait; `version` is that of the source before the evaluation. A failure that
    /// concerns only this query (timeout, client gone, no memory) is not shared, and the next one evaluates.
    pub(crate) fn end(mut self, version: Version, outcome: &Result<EvaluationResult, PromqlError>) {
        let common = match outcome {
            Ok(_) => true,
            Err(e) => matches!(e.kind(), ErrorKind::Invalid | ErrorKind::Execution | ErrorKind::LimitExceeded),
        };
        if common {
            *self.0 = Some(SharedOutcome { version, outcome: outcome.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> QueryContext {
        QueryContext::new(Access::full(), Limits::default())
    }

    fn version(written: u64) -> Version {
        Version { written, dropped: 0 }
    }

    fn of(flights: &Flights, query: &str, end_ms: i64) -> Arc<Flight> {
        flights.of(query, QueryTimes { start_ms: 0, end_ms, step_ms: 1 }, 5, &context())
    }

    async fn first(flight: &Flight, seen: u64) -> Option<First<'_>> {
        match flight.wait(version(seen), context().deadline).await.expect("in time") {
            FlightResult::First(first) => Some(first),
            FlightResult::Outcome(_) => None,
        }
    }

    fn failed(kind: ErrorKind) -> Result<EvaluationResult, PromqlError> {
        Err(Error::new(kind, "no").into())
    }

    #[tokio::test]
    async fn one_goes_first_and_the_next_when_it_is_gone() {
        let flights = Flights::default();
        let (flight, same, other) = (of(&flights, "a", 9), of(&flights, "a", 9), of(&flights, "a", 8));
        assert!(Arc::ptr_eq(&flight, &same) && !Arc::ptr_eq(&flight, &other));
        let held = first(&flight, 1).await.expect("nobody is before it");
        let second = tokio::spawn(async move { first(&same, 1).await.is_some() });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it waits");
        // The first is cancelled: the second takes its place.
        drop(held);
        assert!(second.await.expect("no panic"));
        first(&flight, 1).await.expect("no outcome yet").end(version(1), &failed(ErrorKind::Timeout));
        first(&flight, 1).await.expect("what failed for one only").end(version(1), &failed(ErrorKind::Execution));
        assert!(first(&flight, 1).await.is_none(), "it was evaluated");
    }

    #[tokio::test]
    async fn nobody_gets_less_than_was_there_when_he_came() {
        let flights = Flights::default();
        let flight = of(&flights, "a", 9);
        first(&flight, 3).await.expect("nobody is before it").end(version(3), &failed(ErrorKind::Execution));
        assert!(first(&flight, 3).await.is_none());
        first(&flight, 4).await.expect("it came after a write").end(version(6), &failed(ErrorKind::Execution));
        assert!(first(&flight, 5).await.is_none(), "the second evaluation knows of it");
        drop(flight);
        assert!(first(&of(&flights, "a", 9), 3).await.is_some(), "who comes later looks anew");
    }

    #[tokio::test]
    async fn waiting_ends_with_the_time() {
        let flight = Flight::default();
        let _held = first(&flight, 1).await.expect("nobody is before it");
        let late = flight.wait(version(1), std::time::Instant::now()).await;
        assert_eq!(late.err().map(|e| e.kind), Some(ErrorKind::Timeout));
    }
}
