//! A request body with a minimum rate, and a bound on the pieces that it comes in.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::deadlines::Watch;
use super::minimum_rate::{Pace, TooSlow};
use super::small_chunks::ChunkCount;
use crate::body_memory::Share;

/// A body whose sender must keep up the minimum rate.
pub(super) struct PacedBody<B: Body> {
    inner: B,
    pace: Pace,
    /// Since when the reader has been waiting, and when it gives up.
    waiting: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Told if the body is dropped before its end.
    watch: Arc<Watch>,
    slow: bool,
    ended: bool,
    /// Only for bodies without a stated length: with one, each small piece costs its sender a packet.
    chunks: Option<ChunkCount>,
    /// Memory of what may have arrived and is not read yet.
    _window: Option<Arc<Share>>,
}

impl<B: Body> PacedBody<B> {
    pub(super) fn new(inner: B, pace: Pace, watch: Arc<Watch>, window: Option<Arc<Share>>) -> Self {
        let chunks = inner.size_hint().exact().is_none().then(ChunkCount::default);
        Self { inner, pace, waiting: None, sleep: None, watch, slow: false, ended: false, chunks, _window: window }
    }

    /// Returns whether the time is up; if not, the task is woken when it will be.
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

impl<B: Body> Drop for PacedBody<B> {
    fn drop(&mut self) {
        if !self.ended && !self.inner.is_end_stream() {
            self.watch.body_left();
        }
    }
}

impl<B> Body for PacedBody<B>
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
                if let (Some(Ok(_)), Some(chunks)) = (&frame, &mut self.chunks)
                    && let Err(e) = chunks.add(bytes, waited)
                {
                    return Poll::Ready(Some(Err(e.into())));
                }
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
