//! Memory of responses that are encoded as a whole: what slow clients have not yet read stays within one budget.
//!
//! A response that does not fit waits for others to be sent, and then is replaced by 503. Those that wait are in memory,
//! too, so they have as much room as those that are sent, and no more. Readers that are slow give way to them (`serve`).
//! Responses that are streamed hold little and are not counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::StatusCode;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::plain;
use crate::response_pressure::{Demand, HeldResources};

/// What is counted in one.
const UNIT: u64 = 1024;
/// Answers up to this are not counted: a connection holds as much anyway.
const SMALL_BYTES: u64 = 64 * 1024;
/// How long a response waits for others: somewhat longer than a slow reader is given.
const WAIT: Duration = Duration::from_secs(15);

/// The bytes of all whole answers.
#[derive(Debug, Clone)]
pub struct AnswerBudget {
    /// Room of those that are sent.
    places: Arc<Semaphore>,
    /// Room of those that wait.
    queue: Arc<Semaphore>,
    /// Units of each.
    units: u32,
    demand: Arc<Demand>,
}

impl AnswerBudget {
    /// Makes a budget of so many bytes: half of them for answers that are sent, half for those that wait for it.
    pub fn new(bytes: u64) -> Self {
        let units = (bytes / 2).div_ceil(UNIT).clamp(1, u64::from(u32::MAX / 2)) as u32;
        let room = || Arc::new(Semaphore::new(units as usize));
        Self { places: room(), queue: room(), units, demand: Arc::default() }
    }

    /// Counts an answer until it is sent; one that is alone may have any length.
    pub(crate) async fn count(&self, response: Response) -> Response {
        self.count_within(response, WAIT).await
    }

    async fn count_within(&self, response: Response, wait: Duration) -> Response {
        let Some(bytes) = response.body().size_hint().exact().filter(|n| *n > SMALL_BYTES) else { return response };
        let units = bytes.div_ceil(UNIT).min(u64::from(self.units)) as u32;
        let place = match Arc::clone(&self.places).try_acquire_many_owned(units) {
            Ok(place) => Some(place),
            Err(_) => self.wait(units, wait).await,
        };
        let Some(place) = place else {
            self.demand.refuse();
            let text = "the memory for answers is used up by those that are read slowly, try again later";
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        let mut counted = response.map(|body| Body::new(PermitBody { body, _place: place }));
        HeldResources::add(&mut counted, Arc::clone(&self.demand) as _);
        counted
    }

    /// Waits for room; `None`: there is none in time, or too many wait already.
    async fn wait(&self, units: u32, most: Duration) -> Option<OwnedSemaphorePermit> {
        let _queued = self.queue.try_acquire_many(units).ok()?;
        let _waiting = self.demand.wait();
        tokio::time::timeout(most, Arc::clone(&self.places).acquire_many_owned(units)).await.ok()?.ok()
    }
}

/// An answer with its place.
struct PermitBody {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for PermitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![7; bytes]))
    }

    impl AnswerBudget {
        /// The status of an answer that does not wait, and the answer.
        async fn at_once(&self, bytes: usize) -> (StatusCode, Response) {
            let response = self.count_within(answer(bytes), Duration::ZERO).await;
            (response.status(), response)
        }
    }

    #[tokio::test]
    async fn answers_share_what_there_is() {
        let budget = AnswerBudget::new(2 << 20);
        let (status, first) = budget.at_once(700 * 1024).await;
        assert_eq!(status, StatusCode::OK);
        let (status, refused) = budget.at_once(700 * 1024).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(budget.at_once(10_000).await.0, StatusCode::OK, "small ones are not counted");
        drop(first);
        assert_eq!(budget.at_once(5 << 20).await.0, StatusCode::OK, "one that is alone");
    }

    #[tokio::test]
    async fn answers_wait_for_others_and_tell_their_readers() {
        let budget = AnswerBudget::new(2 << 20);
        let mut first = budget.count(answer(700 * 1024)).await;
        let held = HeldResources::take(&mut first);
        assert!(!held[0].is_needed(0), "nobody waits");
        let mut second = pin!(budget.count(answer(700 * 1024)));
        assert!(futures::poll!(second.as_mut()).is_pending());
        assert!(held[0].is_needed(0));
        // Those that wait are in memory, so they may not be many.
        assert_eq!(budget.count(answer(700 * 1024)).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        let second = second.await;
        assert_eq!(second.status(), StatusCode::OK);
        assert!(!held[0].is_needed(1), "all that wait have what they want");
        assert_eq!(budget.queue.available_permits(), 1024);
    }

    #[tokio::test]
    async fn an_answer_holds_its_place_until_it_is_sent() {
        use http_body_util::BodyExt as _;

        let budget = AnswerBudget::new(400 * 1024);
        // What is counted begins above what a connection holds anyway.
        let small = budget.at_once(SMALL_BYTES as usize).await;
        assert_eq!((small.0, budget.places.available_permits()), (StatusCode::OK, 200));
        let (_, first) = budget.at_once(SMALL_BYTES as usize + 1).await;
        assert_eq!(budget.places.available_permits(), 200 - 65, "a part of a unit is one");
        assert_eq!(hyper::body::Body::size_hint(first.body()).exact(), Some(SMALL_BYTES + 1));
        let body = first.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!((body.len() as u64, budget.places.available_permits()), (SMALL_BYTES + 1, 200));
        // A reader who leaves gives it back, too.
        let (_, second) = budget.at_once(100 * 1024).await;
        assert_eq!(budget.places.available_permits(), 100);
        assert_eq!(budget.at_once(101 * 1024).await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(budget.at_once(100 * 1024).await.0, StatusCode::OK);
        drop(second);
        assert_eq!(budget.places.available_permits(), 200);
    }

    #[tokio::test]
    async fn answers_of_no_known_length_are_not_counted() {
        let budget = AnswerBudget::new(0);
        assert_eq!(budget.places.available_permits(), 1, "a budget of nothing has a place");
        let pieces = futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; 1 << 20]))]);
        let mut streamed = budget.count(Response::new(Body::from_stream(pieces))).await;
        assert_eq!((streamed.status(), budget.places.available_permits()), (StatusCode::OK, 1));
        assert!(HeldResources::take(&mut streamed).is_empty());
        let alone = budget.at_once(1 << 20).await;
        assert_eq!((alone.0, budget.places.available_permits()), (StatusCode::OK, 0));
    }
}
