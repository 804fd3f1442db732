//! Memory of responses that are encoded as a whole: what slow clients have not yet read stays within one budget. A
//! response that does not fit is replaced by 503. Responses that are streamed hold little and are not counted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::StatusCode;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::plain;

/// What is counted in one.
const UNIT: u64 = 1024;
/// Answers up to this are not counted: a connection holds as much anyway.
const SMALL_BYTES: u64 = 64 * 1024;

/// The bytes of all whole answers.
#[derive(Debug, Clone)]
pub struct AnswerBudget {
    places: Arc<Semaphore>,
    units: u64,
}

impl AnswerBudget {
    /// Makes a budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let units = bytes.div_ceil(UNIT).clamp(1, Semaphore::MAX_PERMITS as u64);
        Self { places: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Counts an answer until it is sent; one that is alone may have any length.
    pub(crate) fn count(&self, response: Response) -> Response {
        let Some(bytes) = response.body().size_hint().exact().filter(|n| *n > SMALL_BYTES) else { return response };
        let units = bytes.div_ceil(UNIT).min(self.units) as u32;
        let Ok(place) = Arc::clone(&self.places).try_acquire_many_owned(units) else {
            let text = "the memory for answers is used up by those that are read slowly, try again later";
            return plain(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        response.map(|body| Body::new(Counted { body, _place: place }))
    }
}

/// An answer with its place.
struct Counted {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for Counted {
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
    use super::*;

    #[test]
    fn answers_share_what_there_is() {
        let budget = AnswerBudget::new(1 << 20);
        let answer = |bytes: usize| budget.count(Response::new(Body::from(vec![7; bytes])));
        let first = answer(700 * 1024);
        assert_eq!(first.status(), StatusCode::OK);
        let refused = answer(700 * 1024);
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(answer(10_000).status(), StatusCode::OK, "small ones are not counted");
        drop(first);
        assert_eq!(answer(5 << 20).status(), StatusCode::OK, "one that is alone");
    }

    #[tokio::test]
    async fn an_answer_holds_its_place_until_it_is_sent() {
        use http_body_util::BodyExt as _;

        let budget = AnswerBudget::new(200 * 1024);
        let answer = |bytes: usize| budget.count(Response::new(Body::from(vec![7; bytes])));
        // What is counted begins above what a connection holds anyway.
        assert_eq!((answer(SMALL_BYTES as usize).status(), budget.places.available_permits()), (StatusCode::OK, 200));
        let first = answer(SMALL_BYTES as usize + 1);
        assert_eq!(budget.places.available_permits(), 200 - 65, "a part of a unit is one");
        assert_eq!(hyper::body::Body::size_hint(first.body()).exact(), Some(SMALL_BYTES + 1));
        let body = first.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!((body.len() as u64, budget.places.available_permits()), (SMALL_BYTES + 1, 200));
        // A reader who leaves gives it back, too.
        let second = answer(100 * 1024);
        assert_eq!(budget.places.available_permits(), 100);
        assert_eq!(answer(101 * 1024).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer(100 * 1024).status(), StatusCode::OK);
        drop(second);
        assert_eq!(budget.places.available_permits(), 200);
    }

    #[test]
    fn answers_of_no_known_length_are_not_counted() {
        let budget = AnswerBudget::new(0);
        assert_eq!(budget.places.available_permits(), 1, "a budget of nothing has a place");
        let pieces = futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(vec![7; 1 << 20]))]);
        let streamed = budget.count(Response::new(Body::from_stream(pieces)));
        assert_eq!((streamed.status(), budget.places.available_permits()), (StatusCode::OK, 1));
        let alone = budget.count(Response::new(Body::from(vec![7; 1 << 20])));
        assert_eq!((alone.status(), budget.places.available_permits()), (StatusCode::OK, 0));
    }
}
