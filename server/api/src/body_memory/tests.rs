//! Budgets of bodies: how they are shared, how much of a body is read, and which large body is served next.

use axum::body::Body;
use futures::FutureExt as _;
use http::{HeaderMap, HeaderValue, header};

use super::reading::PACKED;
use super::*;
use crate::serve::minimum_rate::TooSlow;
use crate::serve::small_chunks::TooManyChunks;

/// The form `query=1`, compressed by gzip.
const GZIP: [u8; 27] =
    [31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 43, 44, 77, 45, 170, 180, 53, 4, 0, 226, 19, 110, 124, 7, 0, 0, 0];

#[test]
fn batches_share_what_there_is() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let (first, second) = (budget.decoding(), budget.decoding());
    let half = (1 << 20) + SMALL_BATCH_BYTES;
    assert!(first.hold(half) && second.hold(half));
    assert!(!first.hold(half + UNIT), "two megabytes are all there is for large ones");
    drop(second);
    // One that is alone may have more than there is.
    assert!(first.hold(1 << 30));
    assert!(!budget.decoding().hold(SMALL_BATCH_BYTES + 1));
    // Small ones have room beside it, and are counted from their first byte.
    let mut small = Vec::new();
    loop {
        let room = budget.decoding();
        if !room.hold(SMALL_BATCH_BYTES) {
            break;
        }
        small.push(room);
    }
    assert_eq!(small.len(), (1 << 20) / SMALL_BATCH_BYTES - 1);
    assert!(!budget.decoding().hold(1));
    drop((first, small));
    assert!(budget.decoding().hold(2 << 20));
}

#[tokio::test]
async fn what_is_large_waits_while_the_process_is_short_of_memory() {
    let pressure = Arc::new(MemoryPressure::default());
    let budget = BodyBudget::new(1 << 20, 1 << 20).under(&pressure);
    pressure.tell(true);
    let quarter = SMALL_BATCH_BYTES + (2 << 20) / FREE_PART;
    let batch = budget.decoding();
    assert!(batch.hold(quarter), "so much is always left");
    assert!(!batch.hold(quarter + UNIT));
    let other = budget.decoding();
    assert!(other.hold(SMALL_BATCH_BYTES), "small ones have room");
    assert!(!other.hold(SMALL_BATCH_BYTES + UNIT));
    assert!(batch.hold(SMALL_BATCH_BYTES), "it gives back what it has too much");
    let mut body = budget.share();
    assert!(!body.try_hold(1 << 20));
    let held = body.hold(1 << 20);
    tokio::pin!(held);
    assert!(held.as_mut().now_or_never().is_none());
    pressure.tell(false);
    held.await.expect("there is room again");
    assert!(batch.hold(2 << 20));
}

#[tokio::test]
async fn bodies_may_be_packed() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let read = async |encoding: &'static str, body: &[u8], bytes_max: usize| {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(encoding))]);
        let read = read_unpacked(&budget, &headers, Body::from(body.to_vec()), bytes_max).await;
        read.map_err(|error| error.kind)
    };
    assert_eq!(read("gzip", &GZIP, 100).await.unwrap(), "query=1");
    assert_eq!(read("identity", b"query=1", 100).await.unwrap(), "query=1");
    assert_eq!(read("br", b"", 100).await.unwrap(), "");
    assert_eq!(read("br", b"query=1", 100).await.unwrap_err(), ErrorKind::Unsupported);
    assert_eq!(read("gzip", b"query=1", 100).await.unwrap_err(), ErrorKind::Invalid);
    assert_eq!(budget.small.available_permits(), BodyBudget::new(1 << 20, 1 << 20).small.available_permits());
    let many = codec_bomb();
    assert_eq!(read("zstd", &many, 1000).await.unwrap_err(), ErrorKind::TooLarge);
}

/// A million zeros as one block of zstd that says "so many of this".
fn codec_bomb() -> Vec<u8> {
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let block = |last: u32| ((128 << 10) << 3 | 1 << 1 | last).to_le_bytes();
    let blocks = (0..8).flat_map(|n| [&block(u32::from(n == 7))[..3], &[0]].concat());
    frame.into_iter().chain(blocks).collect()
}

fn body_of(chunks: Vec<Bytes>) -> Body {
    Body::from_stream(futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
}

#[tokio::test]
async fn bodies_share_what_there_is() {
    let budget = BodyBudget::new(1 << 20, 128 * 1024);
    let read = async |bytes: usize| {
        let pieces = vec![Bytes::from(vec![7; bytes / 4]); 4];
        read_body(&budget, &HeaderMap::new(), body_of(pieces), 1 << 20).await
    };
    let first = read(1 << 20).await.expect("alone it has room");
    assert_eq!(first.len(), 1 << 20);
    // What is over its small share fills most of the budget.
    let error = read(512 * 1024).await.expect_err("there is no room for another");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(read(4096).await.is_ok(), "there is for a small one");
    drop(first);
    assert!(read(1 << 20).await.is_ok(), "all was given back");
    let error = read(2 << 20).await.expect_err("too large");
    assert_eq!(error.kind, ErrorKind::TooLarge);
    assert!(read(1 << 20).await.is_ok(), "what was refused holds nothing");
}

#[tokio::test]
async fn who_is_slow_gives_way_to_who_waits() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let begun = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![7; 1 << 20]))]);
    let stalled = Body::from_stream(begun.chain(futures::stream::pending()));
    let (own, headers) = (budget.clone(), HeaderMap::new());
    let stalled = tokio::spawn(async move { read_body(&own, &headers, stalled, 2 << 20).await });
    tokio::time::sleep(SLOW.1 + WAIT / 2).await;
    assert!(!stalled.is_finished(), "nobody waits");
    let headers = HeaderMap::new();
    let other = read_body(&budget, &headers, body_of(vec![Bytes::from(vec![7; 1 << 20])]), 1 << 20);
    assert_eq!(other.await.expect("it gets the room").len(), 1 << 20);
    let error = stalled.await.expect("ends").expect_err("it is told");
    assert_eq!(crate::error::status_of(error.kind), http::StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn who_is_too_slow_is_told() {
    let slow = futures::stream::iter([Err::<Bytes, _>(TooSlow)]);
    let error = read_body(&BodyBudget::new(1, 1), &HeaderMap::new(), Body::from_stream(slow), 1).await;
    assert_eq!(error.expect_err("too slow").kind, ErrorKind::SenderTimeout);
}

#[tokio::test]
async fn who_sends_small_chunks_is_told() {
    let small = futures::stream::iter([Err::<Bytes, _>(TooManyChunks)]);
    let error = read_body(&BodyBudget::new(1, 1), &HeaderMap::new(), Body::from_stream(small), 1).await;
    let error = error.expect_err("too many");
    assert_eq!((error.kind, error.message.contains("too many chunks")), (ErrorKind::Invalid, true));
}

#[test]
fn heads_share_what_there_is() {
    let budget = BodyBudget::of_heads(0);
    let half = HEAD_UNITS_MIN / 2;
    let large = 16 * UNIT + SMALL_HEAD_BYTES;
    let mut held = Vec::new();
    loop {
        let mut share = budget.share();
        if !share.try_hold(large) {
            break;
        }
        held.push(share);
    }
    assert_eq!(held.len(), half / 16, "as many as fit");
    let mut other = budget.share();
    assert!(other.try_hold(SMALL_HEAD_BYTES), "a small one has room beside large ones");
    assert!(!other.try_hold(large), "another large one has none");
    drop(held);
    assert!(other.try_hold(large), "all was given back");
    assert!(other.try_hold(0), "nothing always fits");
    assert_eq!(budget.small.available_permits() + budget.large.available_permits(), 2 * half);
}

#[tokio::test]
async fn small_ones_have_room_beside_large_ones() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let mut large = budget.share();
    large.hold(1 << 20).await.expect("alone");
    let mut other = budget.share();
    assert!(!other.try_hold(1 << 20), "large ones are full");
    other.hold(SMALL_BYTES).await.expect("a small one has room");
    // One that waits gets what another gives back.
    let waiting = tokio::spawn(async move { other.hold(512 * 1024).await.map(|()| other) });
    // It has its turn on this thread, and waits.
    tokio::task::yield_now().await;
    large.hold(UNIT).await.expect("less than before");
    assert!(waiting.await.expect("ends").is_ok());
}

/// Breaks if a body is cut, or put together in another order than it came.
#[tokio::test]
async fn bodies_are_whole_however_they_come() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let whole: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
    for piece in [7, 1024, 4096, whole.len()] {
        for stated in [None, Some("10000"), Some("5"), Some("no number")] {
            let headers: HeaderMap =
                stated.map(|text| (header::CONTENT_LENGTH, HeaderValue::from_static(text))).into_iter().collect();
            let chunks = whole.chunks(piece).map(Bytes::copy_from_slice).collect();
            let read = read_body(&budget, &headers, body_of(chunks), whole.len()).await.unwrap();
            assert_eq!(read, whole, "in pieces of {piece}, {stated:?} stated");
        }
    }
    let empty = read_body(&budget, &HeaderMap::new(), body_of(vec![Bytes::new(), Bytes::new()]), 0).await;
    assert_eq!(empty.unwrap().len(), 0);
    assert_eq!(budget.small.available_permits(), (1 << 20) / UNIT / 4, "all was given back");
}

#[tokio::test]
async fn bodies_are_too_large_by_what_they_state_or_hold() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let read = async |stated: Option<&'static str>, bytes: usize, bytes_max: usize| {
        let headers: HeaderMap =
            stated.map(|text| (header::CONTENT_LENGTH, HeaderValue::from_static(text))).into_iter().collect();
        let chunks = vec![Bytes::from(vec![7; bytes])];
        let read = read_body(&budget, &headers, body_of(chunks), bytes_max).await;
        read.map(|body| body.len()).map_err(|error| (error.kind, error.message))
    };
    let too_large = Err((ErrorKind::TooLarge, "body is larger than 100 bytes".to_owned()));
    assert_eq!(read(None, 100, 100).await, Ok(100));
    assert_eq!(read(Some("100"), 100, 100).await, Ok(100));
    assert_eq!(read(None, 101, 100).await, too_large);
    assert_eq!(read(Some("101"), 1, 100).await, too_large, "what is promised is not waited for");
    assert_eq!(read(Some("1"), 101, 100).await, too_large);
    assert_eq!(read(Some("101"), 0, 100).await, too_large);
}

/// Breaks if a body is waited for that nobody would read, or if its client is asked to send it.
#[test]
fn bodies_that_their_heads_refuse_are_not_waited_for() {
    let read = |stated: &'static str, expect: Option<&'static str>| {
        let fields = [(header::CONTENT_LENGTH, Some(stated)), (header::EXPECT, expect)];
        let headers: HeaderMap =
            fields.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::from_static(text?)))).collect();
        let silent = Body::from_stream(futures::stream::pending::<std::io::Result<Bytes>>());
        let read = read_body(&BodyBudget::new(1, 1), &headers, silent, 100).now_or_never();
        read.map(|body| body.map(|bytes| bytes.len()).map_err(|error| error.kind))
    };
    let too_large = Some(Err(ErrorKind::TooLarge));
    assert_eq!(read("99999999999999", None), too_large);
    assert_eq!(read("99999999999999", Some("100-continue")), too_large);
    assert_eq!(read("101", Some("100-continue")), too_large);
    // This client gets to see the answer once it has sent all.
    assert_eq!(read("101", None), None);
    assert_eq!(read("100", Some("100-continue")), None);
}

#[tokio::test]
async fn bodies_that_break_off_are_told_apart() {
    let read = async |error: Box<dyn std::error::Error + Send + Sync>| {
        let begun = [Ok(Bytes::from_static(b"a")), Err(error)];
        let body = Body::from_stream(futures::stream::iter(begun));
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        read_body(&budget, &HeaderMap::new(), body, 100).await.map_err(|error| (error.kind, error.message))
    };
    let early = Err((ErrorKind::Invalid, "the body ended early".to_owned()));
    assert_eq!(read(std::io::Error::other("reset").into()).await, early);
    assert_eq!(read("anything".into()).await, early);
    let slow = Err((ErrorKind::SenderTimeout, "the body came too slowly".to_owned()));
    assert_eq!(read(TooSlow.into()).await, slow);
    // Whatever wraps it.
    assert_eq!(read(axum::Error::new(axum::Error::new(TooSlow)).into()).await, slow);
}

/// Breaks if bodies that come at the same time each get a piece of the memory, and none of them all that it needs.
#[tokio::test]
async fn large_bodies_take_turns() {
    const BYTES: usize = 1 << 20;
    let budget = BodyBudget::new(BYTES, BYTES);
    let read = |head: Option<(&'static str, &'static str)>, frame: [u8; 5]| {
        // Each piece comes when all the others had one.
        let pieces = futures::stream::iter(0..16).then(move |n| async move {
            tokio::task::yield_now().await;
            let mut piece = vec![7; BYTES / 16];
            if n == 0 {
                piece[..5].copy_from_slice(&frame);
            }
            Ok::<_, std::io::Error>(Bytes::from(piece))
        });
        let (budget, body) = (budget.clone(), Body::from_stream(pieces));
        let field = |(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value));
        let headers: HeaderMap = head.map(field).into_iter().collect();
        async move { read_body(&budget, &headers, body, BYTES).await.map(|body| body.len()).map_err(|e| e.kind) }
    };
    let length = (BYTES as u32 - 5).to_be_bytes();
    let frame = [0, length[0], length[1], length[2], length[3]];
    let heads = [None, Some(("content-length", "1048576")), Some(("content-type", "application/grpc"))];
    for head in heads {
        let done = futures::future::join_all((0..4).map(|_| read(head, frame))).await;
        assert_eq!(done, [Ok(BYTES); 4], "{head:?}");
    }
    // On one connection of HTTP/2 they would keep each other's windows.
    let done = on_connection(true, futures::future::join_all((0..4).map(|_| read(heads[1], frame)))).await;
    assert_eq!(done[0], Ok(BYTES));
    assert_eq!(done[1..], [Err(ErrorKind::Unavailable); 3]);
    assert_eq!(budget.large.available_permits(), budget.largest, "all was given back");
}

/// Breaks if a body that is there keeps others from their turn for as long as somebody works on it.
#[tokio::test]
async fn bodies_that_are_there_let_others_in() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let read = async || {
        let pieces = vec![Bytes::from(vec![7; 64 * 1024]); 4];
        read_body(&budget, &HeaderMap::new(), body_of(pieces), 1 << 20).await
    };
    let first = read().await.expect("alone it has room");
    let second = read().await.expect("there is room for another, and nobody else comes");
    assert_eq!((first.len(), second.len()), (256 * 1024, 256 * 1024));
}

/// A packed body is as large as what it is unpacked to.
#[test]
fn lengths_are_those_of_what_is_unpacked() {
    let units = |name: &'static str, value: &'static str| {
        let headers = HeaderMap::from_iter([(header::HeaderName::from_static(name), HeaderValue::from_static(value))]);
        let mut length = Length::of(&headers, None, 3 * UNIT);
        length.read_frame(&headers, &[0, 0, 0, 8, 0, 7]);
        (length.stated, length.unpacked_units(UNIT))
    };
    assert_eq!(units("content-encoding", "gzip"), (None, PACKED));
    assert_eq!(units("grpc-encoding", "snappy"), (None, PACKED));
    assert_eq!(units("content-encoding", "Identity"), (None, 1));
    assert_eq!(units("content-encoding", ""), (None, 1));
    assert_eq!(units("content-type", "application/grpc+proto"), (Some(2 * UNIT), 1));
}

/// Breaks if what a large body becomes is refused although others are done in a moment.
#[tokio::test]
async fn who_has_a_thread_of_its_own_waits() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let (first, hasty) = (budget.decoding(), budget.decoding());
    assert!(first.hold(2 << 20));
    assert!(!hasty.hold(2 << 20), "it may not wait");
    let own = budget.clone();
    let patient = tokio::task::spawn_blocking(move || own.decoding_on(true).hold(2 << 20));
    let waits = budget.decoded.as_deref().expect("a budget of batches").waiting.subscribe();
    let _ = waits.clone().wait_for(|waiting| *waiting > 0).await.expect("the budget is there");
    drop((first, hasty));
    assert!(patient.await.expect("ends"));
    // Nobody is waited for without an end.
    let first = budget.decoding();
    assert!(first.hold(2 << 20));
    let own = budget.clone();
    assert!(!tokio::task::spawn_blocking(move || own.decoding_on(true).hold(2 << 20)).await.expect("ends"));
}

/// Breaks if several wait with what they hold, each for what the others hold, until none of them gets anything.
#[tokio::test]
async fn of_those_that_wait_for_each_other_the_last_gives_up() {
    let budget = BodyBudget::new(1 << 20, 2 << 20);
    let decoded = Arc::clone(budget.decoded.as_ref().expect("it has one"));
    let half = SMALL_BATCH_BYTES + (1 << 20);
    let [first, second] = [(); 2].map(|()| budget.decoding_on(true));
    assert!(first.hold(half) && second.hold(half));
    assert_eq!((decoded.holders.load(SeqCst), decoded.large.available_permits()), (2, 0));
    let waits = tokio::task::spawn_blocking(move || first.hold(half + (1 << 19)));
    let waiting = decoded.waiting.subscribe();
    let _ = waiting.clone().wait_for(|waiting| *waiting > 0).await.expect("the budget is there");
    let refused = tokio::task::spawn_blocking(move || second.hold(half + (1 << 19))).await;
    assert!(!refused.expect("it ends"), "and what it held is given back");
    assert!(waits.await.expect("it ends"), "who waited goes on");
    assert_eq!((decoded.holders.load(SeqCst), decoded.stuck.load(SeqCst)), (0, 0));
    assert_eq!(decoded.large.available_permits(), decoded.largest);
}

/// Breaks if two that begin to wait at once both find themselves to be the last.
#[test]
fn each_that_waits_has_a_number_of_its_own() {
    let count = Arc::default();
    let [(first, one), (_second, two)] = [(); 2].map(|()| Counted::begin(&count));
    drop(first);
    let (_third, again) = Counted::begin(&count);
    assert_eq!((one, two, again, count.load(SeqCst)), (1, 2, 2, 2));
}

#[test]
fn who_finds_no_room_to_decode_is_counted() {
    let (budget, most) = (BodyBudget::new(1 << 20, 1 << 20), 2 << 20);
    let (held, needed) = (budget.decoding(), budget.decoding_needed());
    assert!(held.hold(most) && !needed.is_needed(0));
    assert!(!budget.decoding().hold(most) && needed.is_needed(0));
}

/// Breaks if all threads wait for memory of bodies that wait for a thread.
#[tokio::test]
async fn few_threads_wait() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let held = budget.decoding();
    assert!(held.hold(2 << 20));
    let threads = Arc::clone(&budget.decoded.as_ref().expect("a budget of its own").threads);
    let others = threads.try_acquire_many(THREADS_MAX as u32).expect("nobody waits");
    let own = budget.clone();
    let refused = tokio::task::spawn_blocking(move || {
        let mut beside = DecodeShare::new(own.decoded_share(), true);
        (beside.hold(2 << 20), beside.until)
    });
    assert_eq!(refused.await.expect("ends"), (false, None), "it did not wait");
    drop(others);
    let own = budget.clone();
    let patient = tokio::task::spawn_blocking(move || own.decoding_on(true).hold(2 << 20));
    drop(held);
    assert!(patient.await.expect("ends"));
    assert_eq!(threads.available_permits(), THREADS_MAX, "who waited gives his place back");
}

/// Breaks if a body that waits for its memory already holds a part, which others may need to finish.
#[tokio::test]
async fn who_waits_ahead_holds_nothing_meanwhile() {
    let budget = BodyBudget::new(1 << 20, 1 << 20);
    let threads = Arc::clone(&budget.decoded.as_ref().expect("a budget of its own").threads);
    let first = budget.decoding_on(true);
    let most = (2 << 20) + SMALL_BATCH_BYTES;
    assert!(first.hold(most / 2));
    assert_eq!(budget.decoding().hold_ahead(most), Some(0), "who may not wait holds what it comes to need");
    let own = budget.clone();
    let patient = tokio::task::spawn_blocking(move || own.decoding_on(true).hold_ahead(most));
    while threads.available_permits() == THREADS_MAX {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(first.hold(most), "all that is left is there for it");
    drop(first);
    assert_eq!(patient.await.expect("ends"), Some(most));
    assert_eq!(threads.available_permits(), THREADS_MAX);
}

/// Breaks if packed bodies that wait for each other to be unpacked all fail when their time is over.
#[tokio::test]
async fn of_packed_bodies_that_wait_for_each_other_the_last_gives_up() {
    let budget = BodyBudget::new(4 << 20, 4 << 20);
    let read = async || {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let pieces = vec![Bytes::from(vec![7; 64 * 1024]); 2];
        read_body(&budget, &headers, body_of(pieces), 1 << 20).await.expect("there is room")
    };
    let bodies = [read().await, read().await];
    let [mut first, mut second] = [(); 2].map(|()| budget.share_beside(true));
    let of_units = |units: usize| SMALL_BYTES + units * UNIT;
    assert!(first.hold(of_units(1900)) && second.hold(of_units(1900)));
    assert_eq!(budget.holders.load(SeqCst), 2, "each counts once with its body");
    let waits = tokio::task::spawn_blocking(move || first.hold(of_units(2500)));
    let waiting = budget.waiting.subscribe();
    let _ = waiting.clone().wait_for(|waiting| *waiting > 0).await.expect("the budget is there");
    let refused = tokio::task::spawn_blocking(move || second.hold(of_units(2500))).await;
    assert!(!refused.expect("it ends"), "and what it held is given back");
    assert!(waits.await.expect("it ends"), "who waited goes on");
    drop(bodies);
    assert_eq!(budget.large.available_permits(), budget.largest);
}
