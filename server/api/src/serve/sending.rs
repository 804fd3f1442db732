//! Responses on their way over HTTP/2. A client may leave one unread while its connection goes on, so the connection
//! tells nothing of it. What stands behind such a response is given up after a while: a query keeps its memory until
//! its rows are sent, and a single client could keep everybody else out for ever.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::watch::UnderWay;
use crate::bodies::Share;

/// Bytes that are handed over at once: they are buffered until the client reads them, and count nowhere then.
const PIECE_BYTES: usize = 32 << 10;
/// When so many responses are listed, those that were sent leave the list.
const LISTED_MAX: usize = 512;
/// How often is looked, in a part of the time that a client has.
const LOOKS: u32 = 4;
/// What becomes of a response that was given up, if it is read after all.
const GIVEN_UP: &str = "nothing of the response was read for too long";

/// The responses of a connection.
#[derive(Debug)]
pub(super) struct Sending {
    /// How long a client may take nothing of a response.
    patience: Duration,
    bodies: Mutex<Vec<Weak<Mutex<Held>>>>,
    begun: Notify,
}

impl Sending {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, bodies: Mutex::default(), begun: Notify::new() }
    }

    /// Begins to send a body. Its request counts as under way, and its head as held, until it is sent or given up.
    pub(super) fn begin(&self, body: Body, under_way: UnderWay, head: Share) -> Body {
        let behind = Some((body, under_way, head));
        let held = Arc::new(Mutex::new(Held { behind, rest: Bytes::new(), untaken: Some(Instant::now()) }));
        let mut bodies = self.bodies.lock();
        if bodies.len() >= LISTED_MAX {
            bodies.retain(|body| body.strong_count() > 0);
        }
        bodies.push(Arc::downgrade(&held));
        drop(bodies);
        self.begun.notify_one();
        Body::new(Sent(held))
    }

    /// Gives up what the client does not take, for as long as this is polled.
    pub(super) async fn guard(&self) {
        loop {
            self.begun.notified().await;
            while !self.bodies.lock().is_empty() {
                tokio::time::sleep(self.patience / LOOKS).await;
                self.give_up();
            }
        }
    }

    fn give_up(&self) {
        let mut bodies = self.bodies.lock();
        bodies.retain(|body| body.strong_count() > 0);
        let all: Vec<_> = bodies.iter().filter_map(Weak::upgrade).collect();
        drop(bodies);
        for held in all {
            // One that is locked is being read.
            let given_up = held.try_lock().and_then(|mut held| held.give_up(self.patience));
            drop(given_up);
        }
    }
}

/// A response that is being sent.
#[derive(Debug)]
struct Held {
    /// What it is made of; `None` once it was given up.
    behind: Option<(Body, UnderWay, Share)>,
    /// What was made and is not handed over yet.
    rest: Bytes,
    /// Since when the client has taken nothing; `None`: it waits for us.
    untaken: Option<Instant>,
}

impl Held {
    /// Takes out what stands behind it, if the client has taken nothing for so long.
    fn give_up(&mut self, patience: Duration) -> Option<(Body, UnderWay, Share)> {
        self.untaken.filter(|since| since.elapsed() >= patience)?;
        self.rest = Bytes::new();
        self.behind.take()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Some((body, ..)) = &mut self.behind else {
                return Poll::Ready(Some(Err(axum::Error::new(GIVEN_UP))));
            };
            self.untaken = None;
            let frame = ready!(Pin::new(body).poll_frame(cx));
            self.untaken = Some(Instant::now());
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                // Trailers.
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        self.untaken = Some(Instant::now());
        let len = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(len)))))
    }
}

/// The body of a response, as hyper reads it.
struct Sent(Arc<Mutex<Held>>);

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.lock().poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        let held = self.0.lock();
        held.rest.is_empty() && held.behind.as_ref().is_some_and(|(body, ..)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.0.lock();
        match &held.behind {
            Some((body, ..)) if held.rest.is_empty() => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::bodies::BodyBudget;
    use crate::serve::ServeSettings;
    use crate::serve::watch::Watch;

    fn begin(sending: &Sending, body: Body) -> Body {
        let watch = Watch::new(&ServeSettings::default(), Instant::now());
        sending.begin(body, watch.begin(), BodyBudget::of_heads(0).share())
    }

    /// A body without an end, and what lives as long as it does.
    fn endless() -> (Body, Weak<()>) {
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        let piece = move || {
            let _ = &alive;
            Ok::<_, Infallible>(Bytes::from_static(b"row\n"))
        };
        (Body::from_stream(futures::stream::repeat_with(piece)), life)
    }

    #[tokio::test]
    async fn bodies_come_whole_and_in_pieces() {
        let sending = Sending::new(Duration::from_mins(1));
        let text: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let mut body = begin(&sending, Body::from(text.clone()));
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PIECE_BYTES);
            read.extend_from_slice(&data);
        }
        assert!(read == text, "{} bytes", read.len());
        assert!(begin(&sending, Body::empty()).is_end_stream());
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        let told = http_body_util::Full::new(Bytes::from_static(b"x"));
        let told = told.with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        let read = begin(&sending, Body::new(told)).collect().await.unwrap();
        assert_eq!(read.trailers(), Some(&trailers));
        assert_eq!(read.to_bytes(), "x");
    }

    #[tokio::test]
    async fn what_nobody_takes_is_given_up() {
        let sending = Sending::new(Duration::ZERO);
        let ((unread, never), (begun, once)) = (endless(), endless());
        let (unread, mut begun) = (begin(&sending, unread), begin(&sending, begun));
        assert_eq!(begun.frame().await.unwrap().unwrap().into_data().unwrap(), "row\n");
        assert!(never.strong_count() + once.strong_count() == 2);
        sending.give_up();
        assert!(never.strong_count() + once.strong_count() == 0, "they hold nothing any longer");
        for mut body in [unread, begun] {
            assert!(!body.is_end_stream());
            assert!(body.frame().await.unwrap().is_err(), "they are not whole");
        }
    }

    #[tokio::test]
    async fn who_reads_and_who_waits_for_us_goes_on() {
        let sending = Sending::new(Duration::from_mins(1));
        let mut read = begin(&sending, endless().0);
        assert!(read.frame().await.unwrap().is_ok());
        sending.give_up();
        assert!(read.frame().await.unwrap().is_ok());
        let sending = Sending::new(Duration::ZERO);
        let quiet = futures::stream::pending::<Result<Bytes, Infallible>>();
        let mut quiet = begin(&sending, Body::from_stream(quiet));
        let mut waits = std::pin::pin!(quiet.frame());
        assert!(futures::poll!(waits.as_mut()).is_pending());
        sending.give_up();
        assert!(futures::poll!(waits.as_mut()).is_pending(), "there was nothing to take");
    }
}
