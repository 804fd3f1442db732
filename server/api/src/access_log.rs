//! The access log: one line for each request when it ends, however it ends.
//!
//! It holds the path, but neither parameters nor bodies, since queries and data may be secret.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::Method;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::request_context::RequestInfo;

/// Status of a request whose client left before there was an answer: the word of nginx.
const CLIENT_LEFT: u16 = 499;
/// Longest path that is logged.
const PATH_BYTES_MAX: usize = 1024;

/// A request that will be logged.
#[derive(Debug)]
pub(crate) struct Entry {
    began: Instant,
    info: RequestInfo,
    pub(crate) caller: String,
    method: Method,
    path: String,
    route: Option<MatchedPath>,
    status: u16,
    bytes_in: Arc<AtomicU64>,
    bytes_out: u64,
    /// Whether the answer came to its end.
    whole: bool,
    /// How long it is, where that is known.
    expected: Option<u64>,
}

impl Entry {
    /// Begins to count what comes in.
    pub(crate) fn begin(info: &RequestInfo, request: Request) -> (Self, Request) {
        let path = request.uri().path();
        let entry = Self {
            began: Instant::now(),
            info: info.clone(),
            caller: String::new(),
            method: request.method().clone(),
            path: path[..path.floor_char_boundary(PATH_BYTES_MAX)].to_owned(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            status: CLIENT_LEFT,
            bytes_in: Arc::default(),
            bytes_out: 0,
            whole: false,
            expected: None,
        };
        let bytes = Arc::clone(&entry.bytes_in);
        (entry, request.map(|body| Body::new(CountingBody { body, bytes })))
    }

    /// Goes on to count what goes out; the line is written when the answer is sent or its client is gone.
    pub(crate) fn follow(mut self, response: Response) -> Response {
        self.status = response.status().as_u16();
        response.map(|body| {
            self.whole = body.is_end_stream();
            self.expected = body.size_hint().exact();
            Body::new(LoggedBody { body, entry: self })
        })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        tracing::info!(
            target: "quiver::access",
            method = %self.method,
            path = %self.path,
            route = self.route.as_ref().map_or("", MatchedPath::as_str),
            status = self.status,
            // A body with a stated length is not polled for its end.
            whole = self.whole || self.expected == Some(self.bytes_out),
            bytes_in = self.bytes_in.load(Relaxed),
            bytes_out = self.bytes_out,
            duration_ms = self.began.elapsed().as_micros() as f64 / 1e3,
            request_id = self.info.id(),
            trace_id = self.info.trace(),
            peer = self.info.peer.map(tracing::field::display),
            caller = self.caller,
            "request"
        );
    }
}

/// A body on its way in.
struct CountingBody {
    body: Body,
    bytes: Arc<AtomicU64>,
}

impl HttpBody for CountingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.bytes.fetch_add(frame.data_ref().map_or(0, Bytes::len) as u64, Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body on its way out.
struct LoggedBody {
    body: Body,
    entry: Entry,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.entry.bytes_out += frame.data_ref().map_or(0, Bytes::len) as u64;
                self.entry.whole = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.entry.whole = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
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
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn bodies_are_counted_as_they_come() {
        let bytes = Arc::<AtomicU64>::default();
        let counted = CountingBody { body: Body::from("twelve bytes"), bytes: Arc::clone(&bytes) };
        // What is known of a body before it comes is handed on.
        assert_eq!((counted.size_hint().exact(), counted.is_end_stream()), (Some(12), false));
        assert_eq!(bytes.load(Relaxed), 0);
        assert_eq!(Body::new(counted).collect().await.unwrap().to_bytes(), "twelve bytes");
        assert_eq!(bytes.load(Relaxed), 12);
    }

    fn begun(path: &str, body: Body) -> (Entry, Request) {
        let info = RequestInfo::of(&crate::request_context::RequestIds::default(), &http::Request::new(Body::empty()));
        Entry::begin(&info, http::Request::post(path).body(body).unwrap())
    }

    /// What is logged is the path alone, and of a long one the beginning.
    #[tokio::test]
    async fn requests_begin_without_an_answer() {
        let (entry, request) = begun("/a/b?secret=1", Body::from("12345"));
        assert_eq!((entry.status, entry.path.as_str(), entry.method.as_str()), (CLIENT_LEFT, "/a/b", "POST"));
        assert!(!entry.whole && entry.bytes_out == 0 && entry.expected.is_none());
        assert_eq!(request.into_body().collect().await.unwrap().to_bytes(), "12345");
        assert_eq!(entry.bytes_in.load(Relaxed), 5);
        let long = format!("/{}", "x".repeat(3000));
        assert_eq!(begun(&long, Body::empty()).0.path, long[..PATH_BYTES_MAX]);
    }

    #[tokio::test]
    async fn answers_are_followed_to_their_end() {
        let piece = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let broken = || Err(std::io::Error::other("it breaks"));
        for (pieces, bytes, whole) in [
            (vec![], 0, true),
            (vec![piece("ab"), piece("c")], 3, true),
            (vec![piece("ab"), broken()], 2, false),
            (vec![broken()], 0, false),
        ] {
            let (entry, _) = begun("/", Body::empty());
            let mut followed = LoggedBody { body: Body::from_stream(futures::stream::iter(pieces)), entry };
            while let Some(Ok(_)) = followed.frame().await {
                assert!(!followed.entry.whole, "more may come");
            }
            assert_eq!((followed.entry.bytes_out, followed.entry.whole), (bytes, whole));
        }
        // A client that leaves before the end did not get the whole answer.
        let (entry, _) = begun("/", Body::empty());
        let pieces = vec![piece("ab"), piece("c")];
        let mut followed = LoggedBody { body: Body::from_stream(futures::stream::iter(pieces)), entry };
        assert!(followed.frame().await.is_some());
        assert_eq!((followed.entry.bytes_out, followed.entry.whole), (2, false));
    }

    /// Of what has a length the end is not asked for: what is left to send is known.
    #[tokio::test]
    async fn lengths_are_handed_on() {
        let (entry, _) = begun("/", Body::empty());
        let response = entry.follow(Response::new(Body::from("abc")));
        let body = response.into_body();
        assert_eq!((HttpBody::size_hint(&body).exact(), HttpBody::is_end_stream(&body)), (Some(3), false));
        let (entry, _) = begun("/", Body::empty());
        let none = entry.follow(Response::new(Body::empty())).into_body();
        assert_eq!((HttpBody::size_hint(&none).exact(), HttpBody::is_end_stream(&none)), (Some(0), true));
    }
}
