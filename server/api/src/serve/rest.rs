//! What is left of a request whose answer is made before all of its body was read: mostly a refusal.
//!
//! In HTTP/2 the stream is reset then, without an error (RFC 9113, 8.1). Some clients lose the answer: curl 7.88 speaks
//! of a broken stream when it finds both in one read, and waits for ever when it finds the answer alone before it has
//! sent its body. So what a client sends unasked is waited for.
//!
//! In HTTP/1 no other request can come behind what is left, and the connection ends: a client that sends its body behind its
//! head, and the next request behind the answer, finds it closed. So what is small is waited for here, too, and of anything
//! else the answer says that it ends the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// Where a body that was lent comes back to, if it was not read to its end.
#[derive(Debug)]
pub(super) struct Rest<B>(Arc<Mutex<Option<B>>>);

impl<B: Body> Rest<B> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    pub(super) fn lend(&self, body: B) -> Lent<B> {
        Lent { body: Some(body), back: Arc::clone(&self.0) }
    }

    /// What came back by now; of a body that is still being read: nothing.
    pub(super) fn take(self) -> Option<B> {
        self.0.lock().take()
    }
}

/// A body that comes back when its reader is gone.
pub(super) struct Lent<B: Body> {
    /// There until it is dropped.
    body: Option<B>,
    back: Arc<Mutex<Option<B>>>,
}

impl<B: Body> Drop for Lent<B> {
    fn drop(&mut self) {
        *self.back.lock() = self.body.take();
    }
}

impl<B: Body + Unpin> Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            // Nothing of it is left, whether or not it knows that by itself.
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

/// Takes the rest of a body that comes unasked: no more than so many bytes, as its client stated. One that does not
/// come in time stays with its client. Says whether it came.
pub(super) async fn see_off<B: Body + Unpin>(mut body: B, unasked_max: usize, within: Duration) -> bool {
    if body.size_hint().exact().is_none_or(|bytes| bytes > unasked_max as u64) {
        return false;
    }
    let end = async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => break false,
                None => break true,
            }
        }
    };
    // Whoever has not sent it by then gets the answer with a reset, or as the last one.
    tokio::time::timeout(within, end).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_hours(1);

    /// Frames of ten bytes, then an end, or nothing any more.
    struct Tens {
        left: usize,
        ends: bool,
        stated: bool,
    }

    impl Body for Tens {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left > 0 {
                self.left -= 1;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"0123456789")))));
            }
            if self.ends { Poll::Ready(None) } else { Poll::Pending }
        }

        fn size_hint(&self) -> SizeHint {
            if self.stated { SizeHint::with_exact(self.left as u64 * 10) } else { SizeHint::default() }
        }
    }

    const THREE: Tens = Tens { left: 3, ends: true, stated: true };

    #[tokio::test]
    async fn what_was_not_read_comes_back() {
        let rest = Rest::new();
        let mut lent = rest.lend(THREE);
        assert!(lent.frame().await.is_some());
        drop(lent);
        assert_eq!(rest.take().map(|body| body.left), Some(2));
        let rest = Rest::new();
        let lent = rest.lend(THREE);
        assert!(rest.take().is_none(), "it is being read");
        drop(lent);
        // One that does not know where it ends.
        let rest = Rest::new();
        let mut lent = rest.lend(Tens { stated: false, ..THREE });
        while lent.frame().await.is_some() {}
        drop(lent);
        assert!(rest.take().is_none(), "it was read to its end");
    }

    /// Frames that are left of a body that was seen off, where thirty bytes may come unasked.
    async fn left(body: Tens, within: Duration) -> Option<usize> {
        let rest = Rest::new();
        see_off(rest.lend(body), 30, within).await;
        rest.take().map(|body| body.left)
    }

    #[tokio::test]
    async fn what_comes_unasked_is_taken() {
        // It would be waited for for an hour if its end were not seen.
        assert_eq!(left(THREE, LONG).await, None);
        // More than may come, and who knows how much, is left where it is.
        assert_eq!(left(Tens { left: 4, ..THREE }, LONG).await, Some(4));
        assert_eq!(left(Tens { stated: false, ..THREE }, LONG).await, Some(3));
        // One that does not come is left, too.
        assert_eq!(left(Tens { ends: false, ..THREE }, SHORT).await, Some(0));
    }
}
