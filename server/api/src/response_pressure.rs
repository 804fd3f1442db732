//! Knows what responses hold until they are sent, and whether others are waiting for it. If so, `serve` ends responses
//! that are read slowly. Handlers and `router` say in the extensions of a response which [`ContendedResource`] it holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::response::Response;
use quiver_query::AnswerDelivery;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// A resource that responses hold until they are sent, such as memory or the place of a query.
pub(crate) trait ContendedResource: fmt::Debug + Send + Sync {
    /// How many requests have been refused it so far.
    fn refused(&self) -> u64;

    /// Whether a request waits for it, or was refused since the number of refusals was `refused`.
    fn is_needed(&self, refused: u64) -> bool;
}

/// Counts the requests that wait for a resource, or were refused it.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    waiting: AtomicU64,
    refused: AtomicU64,
}

/// A waiting request; it is counted until this is dropped.
pub(crate) struct DemandWaiter<'a>(&'a Demand);

impl Demand {
    /// Counts a waiting request until the returned guard is dropped.
    pub(crate) fn wait(&self) -> DemandWaiter<'_> {
        self.waiting.fetch_add(1, Relaxed);
        DemandWaiter(self)
    }

    /// Counts a refused request.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}

impl Drop for DemandWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl ContendedResource for Demand {
    fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn is_needed(&self, refused: u64) -> bool {
        self.waiting.load(Relaxed) > 0 || self.refused() != refused
    }
}

impl ContendedResource for AnswerDelivery {
    fn refused(&self) -> u64 {
        self.refusals()
    }

    fn is_needed(&self, refused: u64) -> bool {
        self.keeps_out(refused)
    }
}

/// What a response holds. It travels in the extensions of the response.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldResources(Vec<Arc<dyn ContendedResource>>);

impl HeldResources {
    /// Notes that a response holds something.
    pub(crate) fn add(response: &mut Response, held: Arc<dyn ContendedResource>) {
        response.extensions_mut().get_or_insert_default::<Self>().0.push(held);
    }

    /// Takes out what is noted of a response.
    pub(crate) fn take(response: &mut Response) -> Vec<Arc<dyn ContendedResource>> {
        response.extensions_mut().remove::<Self>().unwrap_or_default().0
    }
}

/// Places that responses keep until they are sent. Readers who are slow give them up to those who want one.
#[derive(Debug)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    most: usize,
    demand: Arc<Demand>,
}

impl Room {
    /// Makes room for so many, and for one at least.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(most)), most, demand: Arc::default() }
    }

    /// How many there are.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes a place; `None`: all are taken.
    pub(crate) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() {
            self.demand.refuse();
        }
        place
    }

    /// Takes a place, if need be once another one is given back.
    ///
    /// # Errors
    /// Nobody closes it, so none.
    pub(crate) async fn take(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.demand.wait();
        Arc::clone(&self.places).acquire_owned().await
    }

    /// Notes that a response keeps a place.
    pub(crate) fn kept_by(&self, response: &mut Response) {
        HeldResources::add(response, Arc::clone(&self.demand) as _);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn who_waits_or_was_refused_needs_it() {
        let demand = Demand::default();
        let before = demand.refused();
        assert!(!demand.is_needed(before));
        let waiting = demand.wait();
        assert!(demand.is_needed(before));
        drop(waiting);
        assert!(!demand.is_needed(before), "nobody waits any longer");
        demand.refuse();
        assert!(demand.is_needed(before));
        assert!(!demand.is_needed(demand.refused()), "not since");
    }

    #[test]
    fn responses_tell_once_what_they_hold() {
        let mut response = Response::default();
        assert!(HeldResources::take(&mut response).is_empty());
        for _ in 0..2 {
            HeldResources::add(&mut response, Arc::<Demand>::default());
        }
        assert_eq!(HeldResources::take(&mut response).len(), 2);
        assert!(HeldResources::take(&mut response).is_empty());
    }

    #[tokio::test]
    async fn who_wants_a_place_is_seen_by_those_who_have_one() {
        let room = Room::new(0);
        assert_eq!(room.most(), 1, "there is one at least");
        let place = room.try_take().expect("a place");
        let mut response = Response::default();
        room.kept_by(&mut response);
        let held = HeldResources::take(&mut response).remove(0);
        assert!(!held.is_needed(0));
        assert!(room.try_take().is_none() && held.is_needed(0) && !held.is_needed(1));
        let mut next = pin!(room.take());
        assert!(futures::poll!(next.as_mut()).is_pending() && held.is_needed(1));
        drop(place);
        assert!(next.await.is_ok() && !held.is_needed(1));
    }
}
