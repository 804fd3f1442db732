//! Deals with the rest of a request body when the response is ready before all of it was read; mostly that is a
//! refusal.
//!
//! HTTP/2 would reset the stream without an error (RFC 9113, 8.1), but some clients lose the response then: curl 7.88
//! reports a broken stream if it finds both in one read, and waits forever if it finds the response alone before it
//! has sent its body. So data that a client sends without being asked is read and dropped first.
//!
//! In HTTP/1 no other request can follow an unread rest, and the connection must end. A client that sends its body
//! right after the head, and its next request after the response, would find the connection closed. So a small rest
//! is read and dropped here, too; otherwise the response says that it ends the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

/// A slot to which a lent body is returned if it was not read to its end.
#[derive(Debug)]
pub(super) struct BodySlot<B>(Arc<Mutex<Option<B>>>);

impl<B: Body> BodySlot<B> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    pub(super) fn lend(&self, body: B) -> LentBody<B> {
        LentBody { body: Some(body), back: Arc::clone(&self.0) }
    }

    /// Takes the body that was returned so far; `None` while it is still being read.
    pub(super) fn take(self) -> Option<B> {
        self.0.lock().take()
    }
}

/// A body that is returned when its reader drops it.
pub(super) struct LentBody<B: Body> {
    /// `Some` until it is dropped.
    body: Option<B>,
    back: Arc<Mutex<Option<B>>>,
}

impl<B: Body> Drop for LentBody<B> {
    fn drop(&mut self) {
        *self.back.lock() = self.body.take();
    }
}

impl<B: Body + Unpin> Body for LentBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_none() {
            // It has ended, even if it cannot tell that by itself.
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

/// Reads and drops the rest of a body that the client sends without being asked, if its stated length is at most
/// `unasked_max`. Returns whether all of it arrived in time.
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
    // If it did not arrive by then, the response goes out with a reset, or as the last one of the connection.
    tokio::time::timeout(within, end).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_hours(1);

    /// Sends frames of ten bytes, then ends or goes silent.
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
        let rest = BodySlot::new();
        let mut lent = rest.lend(THREE);
        assert!(lent.frame().await.is_some());
        drop(lent);
        assert_eq!(rest.take().map(|body| body.left), Some(2));
        let rest = BodySlot::new();
        let lent = rest.lend(THREE);
        assert!(rest.take().is_none(), "it is being read");
        drop(lent);
        // This one does not know where it ends.
        let rest = BodySlot::new();
        let mut lent = rest.lend(Tens { stated: false, ..THREE });
        while lent.frame().await.is_some() {}
        drop(lent);
        assert!(rest.take().is_none(), "it was read to its end");
    }

    /// Reads off a body of which thirty bytes may arrive; returns how many frames are left of it.
    async fn left(body: Tens, within: Duration) -> Option<usize> {
        let rest = BodySlot::new();
        see_off(rest.lend(body), 30, within).await;
        rest.take().map(|body| body.left)
    }

    #[tokio::test]
    async fn what_comes_unasked_is_taken() {
        // The test would wait an hour if the end were not noticed.
        assert_eq!(left(THREE, LONG).await, None);
        // A rest that is too large, or of unknown length, is not read.
        assert_eq!(left(Tens { left: 4, ..THREE }, LONG).await, Some(4));
        assert_eq!(left(Tens { stated: false, ..THREE }, LONG).await, Some(3));
        // A rest that does not arrive is given up.
        assert_eq!(left(Tens { ends: false, ..THREE }, SHORT).await, Some(0));
    }
}
