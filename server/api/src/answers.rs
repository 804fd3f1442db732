//! Memory of answers that are made as a whole: what slow readers have not taken yet stays within one budget. An answer
//! that finds no room is dropped for 503; those that are made while they are sent hold little and are not counted.

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
}
