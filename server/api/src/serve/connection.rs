//! One connection: detects which version of HTTP the client speaks, then drives the connection until it ends, a time
//! limit expires, or the server stops.
//!
//! Hyper's own header timeout also runs between requests, so it would double as the keep-alive timeout. Here `deadlines`
//! keeps the two apart.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::deadlines::{UnderWay, Verdict, Watch, Watchdog};
use super::frames::{Frames, Unread};
use super::minimum_rate::Pace;
use super::paced_body::PacedBody;
use super::request_head::{Heads, join_codings, refusal, weight};
use super::response_timeout::ConnectionResponses;
use super::slashes::join_slashes;
use super::socket::{Socket, TOO_LATE};
use super::stream::{ConnectionStart, NO_TLS, Stream, Transport};
use super::tls::Tls;
use super::unread_body::{BodySlot, see_off};
use super::{ServeSettings, refuse};
use crate::body_memory::{BodyBudget, Share, on_connection};
use crate::error::plain;
use crate::middleware::security_headers::guard;
use crate::response_pressure::HeldResources;

/// The connection preface with which a client of HTTP/2 begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most header fields in the head of a request.
const HEADERS_MAX: usize = 100;
/// Most concurrent streams (requests) of an HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Bytes of a response that are buffered per HTTP/2 stream until the client reads them: 8 MiB for all streams of a
/// connection.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
/// How often an HTTP/2 client is pinged, and how long it may take to reply.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// How long a client may take to close its connection, or to send the rest of a request that has been answered
/// already.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Most bytes of an unread HTTP/1 body that are read and dropped so that the connection can be used again.
const LEFT_MAX: usize = 64 << 10;

/// Tokens that end connections from outside.
#[derive(Debug, Clone)]
pub(super) struct ShutdownTokens {
    /// Accept no further requests; those under way may finish.
    pub(super) stop: CancellationToken,
    /// Abort the requests under way, too.
    pub(super) cut: CancellationToken,
}

/// What all connections of a listener share.
#[derive(Debug, Clone)]
pub(super) struct ListenerContext {
    pub(super) router: Router,
    pub(super) settings: Arc<ServeSettings>,
    pub(super) tls: Option<Arc<Tls>>,
}

/// Serves a connection until it ends. Boxed, so that all that it does is compiled in this crate alone.
pub(super) fn run(
    stream: TcpStream,
    peer: SocketAddr,
    with: ListenerContext,
    ends: ShutdownTokens,
) -> BoxFuture<'static, ()> {
    Box::pin(serve(stream, peer, with, ends))
}

async fn serve(stream: TcpStream, peer: SocketAddr, with: ListenerContext, ends: ShutdownTokens) {
    // The block keeps the future small: a future has room for what was moved out of a variable until its scope ends.
    let (connection, watch, sending) = {
        let ListenerContext { router, settings, tls } = with;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
        }
        let began = Instant::now();
        let until = began + settings.header_timeout;
        let mut stream = tokio::select! {
            stream = begin(stream, peer, (tls.as_deref(), &settings.heads), until) => match stream {
                Some(stream) => stream,
                None => return,
            },
            () = ends.stop.cancelled() => return,
        };
        let transport = stream.transport();
        let first = tokio::select! {
            first = version(&mut stream, until) => first,
            () = ends.stop.cancelled() => return,
        };
        let (is_http2, before) = match first {
            Ok(Some(first)) => first,
            Ok(None) => {
                stream.say(TOO_LATE);
                return;
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "connection ended before it began");
                return;
            }
        };
        let watch = Watch::new(&settings, began);
        let heads = Heads::new(settings.head_bytes_max, settings.heads.share());
        let twice = heads.twice();
        let frames = is_http2.then(|| Frames::new(PREFACE.len(), settings.windows.share()));
        let io = TokioIo::new(Socket::new(stream, before, heads, Arc::clone(&watch)).with_frames(frames));
        let pace = Pace::new(settings.body_rate_min, settings.body_grace);
        let (heads, plain_max) = (settings.heads.clone(), settings.head_bytes_max / 2);
        let unread = is_http2.then(|| Arc::new(Unread::new(settings.windows.clone(), settings.window_bytes as usize)));
        // The connection of HTTP/1 tells by itself that nothing is read.
        let sending = Arc::new(ConnectionResponses::new(is_http2.then_some(settings.send_timeout), pace));
        let serving = ConnectionService {
            router,
            peer,
            transport,
            watch: Arc::clone(&watch),
            twice,
            pace,
            heads,
            unread,
            sending: Arc::clone(&sending),
            plain_max,
        };
        // Boxed: otherwise the connection would hold the space of this future even while it has no request.
        let service = service_fn(move |request| Box::pin(serving.clone().answer(request)));
        let connection = if is_http2 {
            watch.is_http2();
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
            builder.max_header_list_size(settings.head_bytes_max.try_into().unwrap_or(u32::MAX));
            // Data that has not been read yet is buffered by the connection, so the window is small where there is
            // little memory.
            builder.initial_stream_window_size(settings.window_bytes);
            builder.initial_connection_window_size(settings.window_bytes);
            builder.max_send_buf_size(SEND_BUFFER_BYTES);
            builder.keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
            Version::Two(Box::pin(builder.serve_connection(io, service)))
        } else {
            let mut builder = http1::Builder::new();
            builder.header_read_timeout(None).max_headers(HEADERS_MAX).max_header_size(settings.head_bytes_max);
            Version::One(Box::pin(builder.serve_connection(io, service)))
        };
        (connection, watch, sending)
    };
    let judges = Judges { peer, watch: &watch, sending: &sending, ends: &ends };
    match connection {
        Version::One(connection) => drive(connection, http1::Connection::graceful_shutdown, judges).await,
        Version::Two(connection) => drive(connection, http2::Connection::graceful_shutdown, judges).await,
    }
}

/// Who may end a connection before its client does.
struct Judges<'a> {
    peer: SocketAddr,
    /// What the connection is doing, and for how long it may.
    watch: &'a Arc<Watch>,
    /// Responses that are not read while others need what they hold.
    sending: &'a ConnectionResponses,
    ends: &'a ShutdownTokens,
}

/// A connection, by the version of HTTP that its client speaks.
enum Version<One, Two> {
    One(Pin<Box<One>>),
    Two(Pin<Box<Two>>),
}

/// Begins a connection, with TLS if it is configured. `None` if it failed, timed out, or was refused.
async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    (tls, heads): (Option<&Tls>, &BodyBudget),
    until: Instant,
) -> Option<Stream> {
    match timeout_at(until, Stream::begin(stream, tls, heads)).await {
        Ok(Ok(ConnectionStart::Well(stream))) => Some(stream),
        Ok(Ok(ConnectionStart::Plaintext(stream))) => {
            tracing::debug!(%peer, "a client without TLS");
            let _ = timeout_at(until, refuse(stream, NO_TLS)).await;
            None
        }
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "no TLS came about");
            None
        }
        Err(_) => {
            tracing::debug!(%peer, "no TLS came about in time");
            None
        }
    }
}

/// Reads until it is clear whether the client speaks HTTP/2. Returns that and the bytes read so far; `None` if it was
/// not clear in time.
async fn version(stream: &mut (impl AsyncRead + Unpin), until: Instant) -> std::io::Result<Option<(bool, Bytes)>> {
    let (mut first, mut len) = ([0; PREFACE.len()], 0);
    loop {
        match timeout_at(until, stream.read(&mut first[len..])).await {
            Err(_) => return Ok(None),
            Ok(read) => match read? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => len += n,
            },
        }
        let is_preface = PREFACE.starts_with(&first[..len]);
        if !is_preface || len == PREFACE.len() {
            return Ok(Some((is_preface, Bytes::copy_from_slice(&first[..len]))));
        }
    }
}

/// Drives a connection until it ends or is ended; `leave` tells it to take no further request.
async fn drive<C, E>(mut connection: Pin<Box<C>>, leave: impl Fn(Pin<&mut C>), judges: Judges<'_>)
where
    C: Future<Output = Result<(), E>>,
    E: Display,
{
    let Judges { peer, watch, sending, ends } = judges;
    let mut watchdog = Watchdog::new(Arc::clone(watch));
    let mut stop = pin!(ends.stop.cancelled());
    let mut taken = pin!(sending.guard());
    let mut stopping = false;
    let verdict = loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "connection ended");
                }
                return;
            }
            verdict = &mut watchdog => break verdict,
            () = &mut taken => return,
            () = &mut stop, if !stopping => {
                stopping = true;
                leave(connection.as_mut());
            }
            () = ends.cut.cancelled() => return,
        }
    };
    tracing::debug!(%peer, ?verdict, "connection is closed");
    match verdict {
        Verdict::Stuck | Verdict::Gone => return,
        // The socket sends the 408 when hyper asks it for more bytes.
        Verdict::NoHead => watch.expire(),
        Verdict::Idle => leave(connection.as_mut()),
    }
    let _ = tokio::time::timeout(LEAVE_WITHIN, connection).await;
}

/// What each request of a connection needs to be answered.
#[derive(Clone)]
struct ConnectionService {
    router: Router,
    /// The address of the client; admission of `/admin` depends on it.
    peer: SocketAddr,
    transport: Transport,
    watch: Arc<Watch>,
    /// Number of the first request, counted from 0, that states the length of its body more than once.
    twice: Arc<AtomicU64>,
    pace: Pace,
    heads: BodyBudget,
    /// The budget of data that was received and not read yet. `None` for HTTP/1, whose bodies are only read on
    /// demand.
    unread: Option<Arc<Unread>>,
    /// The responses on their way: all of HTTP/2; of HTTP/1 those that hold what others may need.
    sending: Arc<ConnectionResponses>,
    /// Most bytes of a head, without its `Authorization` field.
    plain_max: usize,
}

impl ConnectionService {
    async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let under_way = self.watch.begin();
        let (mut head, body) = request.into_parts();
        let (is_head, waits) = (head.method == Method::HEAD, head.headers.contains_key(header::EXPECT));
        let mut share = self.heads.share();
        let windowed = self.unread.as_ref().filter(|_| !body.is_end_stream());
        let window = match windowed {
            Some(unread) => unread.hold().await.map(Some),
            None => Some(None),
        };
        let no_window =
            || plain(StatusCode::SERVICE_UNAVAILABLE, "the memory for bodies of requests is used up, try again later");
        let refused =
            if window.is_none() { Some(no_window()) } else { self.refusal(&head, &mut share, under_way.nth()) };
        let (mut response, rest) = if let Some(mut refused) = refused {
            guard(refused.headers_mut(), self.transport.encrypted, false);
            if head.version < http::Version::HTTP_2 {
                refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            (refused, window.is_some().then_some(body))
        } else {
            join_codings(&mut head.headers);
            join_slashes(&mut head.uri);
            head.extensions.insert(ConnectInfo::<SocketAddr>(self.peer));
            head.extensions.insert(self.transport);
            let rest = BodySlot::new();
            let body = if body.is_end_stream() {
                Body::empty()
            } else {
                Body::new(PacedBody::new(rest.lend(body), self.pace, self.watch, window.flatten()))
            };
            let is_shared = head.version >= http::Version::HTTP_2;
            let answer = self.router.oneshot(Request::from_parts(head, body));
            let Ok(response) = on_connection(is_shared, answer).await;
            (response, rest.take())
        };
        if let Some(rest) = rest.filter(|rest| !rest.is_end_stream()) {
            Self::leave_off(rest, self.unread, waits, &under_way, &mut response).await;
        }
        // For HEAD the router drops the body and states a length of 0. The length of a streamed response is unknown,
        // so no length is stated.
        if is_head && response.headers().get(header::CONTENT_LENGTH).is_some_and(|n| n.as_bytes() == b"0") {
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        let held = HeldResources::take(&mut response);
        Ok(response.map(|body| {
            if self.sending.is_for(&held) {
                self.sending.begin(body, under_way, share, held)
            } else {
                Body::new(TrackedBody { body, _under_way: under_way, _head: share })
            }
        }))
    }

    /// Deals with the unread rest of a body whose response is ready: reads it away if it is small, or else makes the
    /// response the last one. `waits`: the client sends the body only when asked to (`Expect: 100-continue`).
    async fn leave_off(
        rest: Incoming,
        unread: Option<Arc<Unread>>,
        waits: bool,
        under_way: &UnderWay,
        response: &mut Response,
    ) {
        if let Some(unread) = unread {
            // If there is no memory for the rest, it is not read.
            if !waits && let Some(_window) = unread.hold().await {
                see_off(rest, unread.window_bytes(), LEAVE_WITHIN).await;
            }
            return;
        }
        // A client that was too slow already gets no more time.
        let is_last = waits
            || response.status() == StatusCode::REQUEST_TIMEOUT
            || response.headers().contains_key(header::CONNECTION)
            || !see_off(rest, LEFT_MAX, LEAVE_WITHIN).await;
        if is_last {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else {
            under_way.body_came();
        }
    }

    /// The response to a request that must be refused; `None` if it may proceed, and then the memory of its head is
    /// in `share`.
    fn refusal(&self, head: &Parts, share: &mut Share, nth: u64) -> Option<Response> {
        let (held, without_token) = weight(head);
        if without_token > self.plain_max {
            let text = format!("the head has more than {} bytes beside its token", self.plain_max);
            return Some(plain(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text));
        }
        if !share.try_hold(held) {
            let text = "the memory for heads of requests is used up, try again later";
            return Some(plain(StatusCode::SERVICE_UNAVAILABLE, text));
        }
        refusal(head, nth >= self.twice.load(Relaxed))
    }
}

/// The body of a response over HTTP/1. Its request counts as under way until this is dropped.
struct TrackedBody {
    body: Body,
    _under_way: UnderWay,
    /// Memory of the request's head, which handlers may still read while they stream.
    _head: Share,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Detects the version of a client that sends these pieces and then leaves.
    async fn said(pieces: [&'static [u8]; 2]) -> std::io::Result<Option<(bool, Bytes)>> {
        version(&mut pieces[0].chain(pieces[1]), Instant::now() + Duration::from_mins(10)).await
    }

    #[tokio::test]
    async fn clients_tell_their_version_by_what_they_say_first() {
        let (begin, rest) = PREFACE.split_at(7);
        for pieces in [[PREFACE, b""], [begin, rest]] {
            let (is_http2, first) = said(pieces).await.unwrap().unwrap();
            assert!(is_http2 && first == PREFACE, "{first:?}");
        }
        // As soon as it cannot be HTTP/2 no more is read, and the bytes so far are the beginning of a head.
        for (pieces, expected) in [
            ([&b"GET / HTTP/1.1\r\n"[..], &b"host: a\r\n"[..]], &b"GET / HTTP/1.1\r\n"[..]),
            ([&b"P"[..], &b"OST / HTTP/1.1\r\n"[..]], &b"POST / HTTP/1.1\r\n"[..]),
            ([&b"PRI * HTTP/1.1\r\n\r\n"[..], &b""[..]], &b"PRI * HTTP/1.1\r\n\r\n"[..]),
        ] {
            let (is_http2, first) = said(pieces).await.unwrap().unwrap();
            assert!(!is_http2 && first == expected, "{first:?}");
        }
    }

    #[tokio::test]
    async fn clients_that_say_nothing_are_let_go() {
        for pieces in [[&b""[..], &b""[..]], [&b"PRI"[..], &b" *"[..]]] {
            assert_eq!(said(pieces).await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        }
        // A client that is connected and silent is waited for until the deadline, which is over here.
        let (_client, mut server) = tokio::io::duplex(64);
        assert!(version(&mut server, Instant::now()).await.unwrap().is_none());
    }
}
