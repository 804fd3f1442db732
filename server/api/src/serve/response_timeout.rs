//! Time limits for responses that the connection's own limits do not catch.
//!
//! Over HTTP/2 a client may leave one response unread while its connection goes on. Such a response ends after a while:
//! its query keeps its memory until the rows are sent, so a single client could otherwise keep everybody else out. A
//! response that holds what others need (`response_pressure`) also ends if it is read slowly, over HTTP/1 together with
//! its connection.

use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::deadlines::UnderWay;
use super::minimum_rate::Pace;
use crate::body_memory::Share;
use crate::response_pressure::ContendedResource;

/// Bytes that are handed over at once: they are buffered until the client reads them, and count nowhere then.
const PIECE_BYTES: usize = 32 << 10;
/// The same for a client that is slow: it is seen sooner that it takes something.
const SLOW_PIECE_BYTES: usize = 8 << 10;
/// When so many responses are listed, those that were sent leave the list.
const LISTED_MAX: usize = 512;
/// How often is looked, in a part of the time that a client has.
const LOOKS: u32 = 4;
/// How often is looked where others may need what a response holds.
const LOOK: Duration = Duration::from_secs(1);
/// What becomes of a response that was given up, if it is read after all.
const GIVEN_UP: &str = "nothing of the response was read for too long, or it was read too slowly while others waited";

/// The responses of a connection.
#[derive(Debug)]
pub(super) struct ConnectionResponses {
    /// How long a client may take nothing of a response; `None`: that is told by the connection (HTTP/1), which then ends
    /// with a response that is given up.
    patience: Option<Duration>,
    /// How fast a client must read what others need.
    pace: Pace,
    listed: Mutex<BodyRegistry>,
    begun: Notify,
}

#[derive(Debug, Default)]
struct BodyRegistry {
    bodies: Vec<Weak<Mutex<Held>>>,
    /// Whether one of them holds what others may need.
    watched: bool,
}

impl ConnectionResponses {
    pub(super) fn new(patience: Option<Duration>, pace: Pace) -> Self {
        Self { patience, pace, listed: Mutex::default(), begun: Notify::new() }
    }

    /// Says whether a response that holds these must be sent by this; others only keep their requests under way.
    pub(super) fn is_for(&self, held: &[Arc<dyn ContendedResource>]) -> bool {
        self.patience.is_some() || !held.is_empty()
    }

    /// Begins to send a body that holds these. Its request counts as under way, and its head as held, until it is sent or
    /// given up.
    pub(super) fn begin(
        &self,
        body: Body,
        under_way: UnderWay,
        head: Share,
        needed: Vec<Arc<dyn ContendedResource>>,
    ) -> Body {
        let watched = !needed.is_empty();
        let behind = Behind::new(body, under_way, head, needed);
        let held = Arc::new(Mutex::new(Held::new(behind, self.pace, self.patience.is_some())));
        let mut listed = self.listed.lock();
        if listed.bodies.len() >= LISTED_MAX {
            listed.bodies.retain(|body| body.strong_count() > 0);
        }
        let is_news = listed.bodies.is_empty() || watched && !listed.watched;
        listed.watched |= watched;
        listed.bodies.push(Arc::downgrade(&held));
        drop(listed);
        if is_news {
            self.begun.notify_one();
        }
        Body::new(TimedBody(held))
    }

    /// Gives up what the client does not take, for as long as this is polled. Ends when the connection must.
    pub(super) async fn guard(&self) {
        let mut looked = Instant::now();
        loop {
            let Some(pause) = self.pause() else {
                self.begun.notified().await;
                looked = Instant::now();
                continue;
            };
            tokio::select! {
                () = sleep_until(looked + pause) => {
                    looked = Instant::now();
                    if self.give_up() && self.patience.is_none() {
                        return;
                    }
                }
                () = self.begun.notified() => {}
            }
        }
    }

    /// How long to wait before the next look; `None`: there is nothing to look at.
    fn pause(&self) -> Option<Duration> {
        let listed = self.listed.lock();
        let pause = self.patience.map_or(LOOK, |patience| patience / LOOKS);
        let pause = if listed.watched { pause.min(LOOK) } else { pause };
        Some(pause).filter(|_| !listed.bodies.is_empty())
    }

    /// Looks at all responses; says whether one was given up.
    fn give_up(&self) -> bool {
        let mut listed = self.listed.lock();
        listed.bodies.retain(|body| body.strong_count() > 0);
        listed.watched &= !listed.bodies.is_empty();
        let all: Vec<_> = listed.bodies.iter().filter_map(Weak::upgrade).collect();
        drop(listed);
        let mut is_some = false;
        for body in &all {
            // One that is locked is being read.
            let given_up = body.try_lock().and_then(|mut held| held.give_up(self.patience));
            is_some |= given_up.is_some();
            drop(given_up);
        }
        is_some
    }
}

/// What stands behind a response.
#[derive(Debug)]
struct Behind {
    body: Body,
    under_way: UnderWay,
    _head: Share,
    /// What it holds, and how often that was refused to others when the client was last seen to be fast enough.
    needed: Vec<(Arc<dyn ContendedResource>, u64)>,
}

impl Behind {
    fn new(body: Body, under_way: UnderWay, head: Share, needed: Vec<Arc<dyn ContendedResource>>) -> Self {
        let mut behind =
            Self { body, under_way, _head: head, needed: needed.into_iter().map(|held| (held, 0)).collect() };
        behind.forget();
        behind
    }

    /// Forgets who was refused something so far.
    fn forget(&mut self) {
        for (held, refused) in &mut self.needed {
            *refused = held.refused();
        }
    }

    fn is_needed(&self) -> bool {
        self.needed.iter().any(|(held, refused)| held.is_needed(*refused))
    }
}

/// A response that is being sent.
#[derive(Debug)]
struct Held {
    /// What it is made of; `None` once it was given up.
    behind: Option<Behind>,
    /// What was made and is not handed over yet.
    rest: Bytes,
    /// Whether that is part of something longer.
    is_part: bool,
    /// Since when the client has taken nothing; `None`: it waits for us.
    untaken: Option<Instant>,
    reading: ReadProgress,
    /// Whether the connection has others beside it, so that what it sends does not tell what is taken of this one.
    is_one_of_many: bool,
}

/// How fast the client of a response is.
#[derive(Debug)]
struct ReadProgress {
    pace: Pace,
    /// All the time that it may be slow.
    grace: Duration,
    is_slow: bool,
    /// Bytes that it has taken, those handed over last that it may not have taken, and those taken at the last look.
    taken: u64,
    last: u64,
    seen: u64,
    /// For how long it has been waited for since the last look, up to a moment.
    waited: Duration,
    until: Instant,
}

impl ReadProgress {
    fn new(pace: Pace, now: Instant, seen: u64) -> Self {
        let (is_slow, taken, last, waited) = Default::default();
        Self { pace, grace: pace.left(), is_slow, taken, last, seen, waited, until: now }
    }

    /// Counts the time up to now; the client has taken nothing since a moment, or waits for us.
    fn wait(&mut self, untaken: Option<Instant>, now: Instant) {
        if let Some(since) = untaken {
            self.waited += now.saturating_duration_since(since.max(self.until));
        }
        self.until = now;
    }

    /// Judges the client by what it has taken since the last look.
    fn look(&mut self, taken: u64) {
        let bytes = taken.saturating_sub(self.seen);
        self.pace.got(bytes.try_into().unwrap_or(usize::MAX), take(&mut self.waited));
        self.seen = taken;
        self.is_slow = self.pace.left() < self.grace;
    }
}

impl Held {
    fn new(behind: Behind, pace: Pace, is_one_of_many: bool) -> Self {
        let now = Instant::now();
        let seen = if is_one_of_many { 0 } else { behind.under_way.sent_bytes() };
        let reading = ReadProgress::new(pace, now, seen);
        let (behind, untaken) = (Some(behind), Some(now));
        Self { behind, rest: Bytes::new(), is_part: false, untaken, reading, is_one_of_many }
    }

    /// Bytes that the client has taken so far.
    fn taken(&self) -> u64 {
        match &self.behind {
            Some(behind) if !self.is_one_of_many => behind.under_way.sent_bytes(),
            _ => self.reading.taken,
        }
    }

    /// Takes out what stands behind it, if the client has taken nothing for so long, or is slow and others need it.
    fn give_up(&mut self, patience: Option<Duration>) -> Option<Behind> {
        let now = Instant::now();
        self.reading.wait(self.untaken, now);
        let taken = self.taken();
        self.reading.look(taken);
        let (is_slow, is_over) = (self.reading.is_slow, self.reading.pace.left().is_zero());
        let behind = self.behind.as_mut()?;
        if !is_slow {
            behind.forget();
        }
        let since = self.untaken?;
        let is_stuck = patience.is_some_and(|patience| now.saturating_duration_since(since) >= patience);
        if !(is_stuck || is_over && behind.is_needed()) {
            return None;
        }
        tracing::debug!(is_stuck, "a response that is not read is given up");
        self.rest = Bytes::new();
        self.behind.take()
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.reading.wait(self.untaken, Instant::now());
        self.reading.taken += take(&mut self.reading.last);
        if self.rest.is_empty() {
            let Some(behind) = &mut self.behind else {
                return Poll::Ready(Some(Err(axum::Error::new(GIVEN_UP))));
            };
            self.untaken = None;
            let frame = ready!(Pin::new(&mut behind.body).poll_frame(cx));
            self.untaken = Some(Instant::now());
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => (self.is_part, self.rest) = (data.len() > PIECE_BYTES, data),
                // Trailers.
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        self.untaken = Some(Instant::now());
        let most = if self.reading.is_slow { SLOW_PIECE_BYTES } else { PIECE_BYTES };
        let piece = self.rest.split_to(self.rest.len().min(most));
        self.reading.last = piece.len() as u64;
        // A part of something longer would keep all of it, for as long as the connection buffers that part.
        Poll::Ready(Some(Ok(Frame::data(if self.is_part { Bytes::copy_from_slice(&piece) } else { piece }))))
    }
}

/// The body of a response, as hyper reads it.
struct TimedBody(Arc<Mutex<Held>>);

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.lock().poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        let held = self.0.lock();
        held.rest.is_empty() && held.behind.as_ref().is_some_and(|behind| behind.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.0.lock();
        match &held.behind {
            Some(behind) if held.rest.is_empty() => behind.body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::body_memory::BodyBudget;
    use crate::response_pressure::Demand;
    use crate::serve::ServeSettings;
    use crate::serve::deadlines::Watch;

    /// A connection of HTTP/2 whose clients may take nothing for so long, and must be fast enough at once.
    fn over_http2(patience: Duration) -> ConnectionResponses {
        ConnectionResponses::new(Some(patience), Pace::new(1024, Duration::ZERO))
    }

    fn begin(sending: &ConnectionResponses, body: Body) -> Body {
        begin_with(sending, body, Vec::new(), &Watch::new(&ServeSettings::default(), Instant::now()))
    }

    fn begin_with(
        sending: &ConnectionResponses,
        body: Body,
        needed: Vec<Arc<dyn ContendedResource>>,
        watch: &Arc<Watch>,
    ) -> Body {
        sending.begin(body, watch.begin(), BodyBudget::of_heads(0).share(), needed)
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
        let sending = over_http2(Duration::from_mins(1));
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
        let sending = over_http2(Duration::ZERO);
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
        let sending = over_http2(Duration::from_mins(1));
        let mut read = begin(&sending, endless().0);
        assert!(read.frame().await.unwrap().is_ok());
        sending.give_up();
        assert!(read.frame().await.unwrap().is_ok());
        let sending = over_http2(Duration::ZERO);
        let quiet = futures::stream::pending::<Result<Bytes, Infallible>>();
        let mut quiet = begin(&sending, Body::from_stream(quiet));
        let mut waits = std::pin::pin!(quiet.frame());
        assert!(futures::poll!(waits.as_mut()).is_pending());
        sending.give_up();
        assert!(futures::poll!(waits.as_mut()).is_pending(), "there was nothing to take");
    }

    const MINUTE: Duration = Duration::from_mins(1);

    /// Would fail if a part of a long answer kept all of it in memory until the client takes that part.
    #[tokio::test]
    async fn parts_do_not_keep_the_whole() {
        let whole = Arc::new(vec![7; 3 * PIECE_BYTES]);
        let life = Arc::downgrade(&whole);
        let long = Bytes::from_owner(Whole(whole));
        let mut body = begin(&over_http2(MINUTE), Body::from(long));
        let mut taken = Vec::new();
        for _ in 0..3 {
            assert_eq!(life.strong_count(), 1);
            taken.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert!(body.is_end_stream());
        assert_eq!((life.strong_count(), taken.concat().len()), (0, 3 * PIECE_BYTES));
    }

    struct Whole(Arc<Vec<u8>>);

    impl AsRef<[u8]> for Whole {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    /// Those who are slow without anybody waiting go on; so do those who hold nothing that others need.
    #[tokio::test]
    async fn slow_readers_give_way_to_those_who_wait() {
        for patience in [Some(MINUTE), None] {
            let watch = Watch::new(&ServeSettings::default(), Instant::now());
            let sending = ConnectionResponses::new(patience, Pace::new(1 << 40, Duration::ZERO));
            let demand = Arc::new(Demand::default());
            let (held, life) = endless();
            let mut slow = begin_with(&sending, held, vec![Arc::clone(&demand) as _], &watch);
            let mut other = begin_with(&sending, endless().0, vec![Arc::<Demand>::default() as _], &watch);
            for body in [&mut slow, &mut other] {
                assert!(body.frame().await.unwrap().is_ok());
            }
            assert!(!sending.give_up(), "nobody waits");
            let waiting = demand.wait();
            assert!(sending.give_up());
            drop(waiting);
            assert_eq!(life.strong_count(), 0, "it holds nothing any longer");
            assert!(slow.frame().await.unwrap().is_err(), "it is not whole");
            assert!(other.frame().await.unwrap().is_ok());
            assert!(!sending.give_up());
        }
    }

    #[tokio::test]
    async fn readers_that_are_fast_enough_keep_what_others_need() {
        let watch = Watch::new(&ServeSettings::default(), Instant::now());
        let demand = Arc::new(Demand::default());
        demand.refuse();
        let _waiting = demand.wait();
        let needed = || vec![Arc::clone(&demand) as Arc<dyn ContendedResource>];
        // Over HTTP/2 by what was taken of the response itself, with a minute to begin.
        let sending = ConnectionResponses::new(Some(MINUTE), Pace::new(1, MINUTE));
        let mut body = begin_with(&sending, endless().0, needed(), &watch);
        assert!(body.frame().await.unwrap().is_ok());
        assert!(!sending.give_up());
        assert!(body.frame().await.unwrap().is_ok());
        // Over HTTP/1 by what the connection has sent.
        let sending = ConnectionResponses::new(None, Pace::new(1, MINUTE));
        let mut body = begin_with(&sending, endless().0, needed(), &watch);
        assert!(body.frame().await.unwrap().is_ok());
        watch.wrote(1 << 20);
        assert!(!sending.give_up());
        assert!(body.frame().await.unwrap().is_ok());
    }

    #[test]
    fn bytes_earn_the_time_of_a_reader() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut reading = ReadProgress::new(Pace::new(1024, Duration::from_secs(10)), began, 100);
        // Six seconds that it was waited for, in two parts; bytes that were sent before do not count.
        reading.wait(Some(began), at(2));
        reading.wait(None, at(5));
        reading.wait(Some(at(4)), at(9));
        reading.look(100);
        assert_eq!((reading.pace.left(), reading.is_slow), (Duration::from_secs(4), true));
        reading.look(100 + 3 * 1024);
        assert_eq!(reading.pace.left(), Duration::from_secs(7));
        reading.wait(Some(at(9)), at(10));
        reading.look(1 << 20);
        assert_eq!((reading.pace.left(), reading.is_slow), (Duration::from_secs(10), false));
        reading.wait(Some(at(10)), at(60));
        reading.look(1 << 20);
        assert!(reading.pace.left().is_zero() && reading.is_slow);
    }

    /// Would fail if the guard of a connection slept on while there is something to look at, or went on after a response
    /// of HTTP/1 was given up.
    #[tokio::test]
    async fn a_connection_ends_with_what_is_given_up() {
        let sending = ConnectionResponses::new(None, Pace::new(1 << 40, Duration::ZERO));
        let watch = Watch::new(&ServeSettings::default(), Instant::now());
        let demand = Arc::new(Demand::default());
        let _waiting = demand.wait();
        let body = begin_with(&sending, endless().0, vec![Arc::clone(&demand) as _], &watch);
        sending.guard().await;
        drop(body);
    }
}
