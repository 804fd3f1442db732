//! A body that is read at its pace.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::pace::{Pace, TooSlow};
use super::watch::Watch;
use crate::bodies::Share;

/// A body of a sender that has to keep up its pace.
pub(super) struct Paced<B: Body> {
    inner: B,
    pace: Pace,
    /// Since when the reader waits, and the end of its patience.
    waiting: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Told when the body is not read to its end.
    watch: Arc<Watch>,
    slow: bool,
    ended: bool,
    /// What may have come of it and is not read yet.
    _window: Option<Arc<Share>>,
}

impl<B: Body> Paced<B> {
    pub(super) fn new(inner: B, pace: Pace, watch: Arc<Watch>, window: Option<Arc<Share>>) -> Self {
        Self { inner, pace, waiting: None, sleep: None, watch, slow: false, ended: false, _window: window }
    }

    /// Says whether patience is at its end; if not, the task is woken when it is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let due = since + self.pace.left();
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(Duration::MAX)));
        if due < sleep.deadline() || sleep.is_elapsed() {
            sleep.as_mut().reset(due);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if due <= Instant::now() {
                return true;
            }
            sleep.as_mut().reset(due);
        }
        false
    }
}

impl<B: Body> Drop for Paced<B> {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.watch.body_left();
        }
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.slow {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.ended |= frame.is_none();
                let waited = self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
                let bytes = frame.as_ref().and_then(|f| f.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
                self.pace.got(bytes, waited);
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                if self.poll_patience(cx) {
                    self.slow = true;
                    return Poll::Ready(Some(Err(TooSlow.into())));
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
