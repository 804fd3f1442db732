//! Reads bodies piece by piece. Each piece is charged to the budget before it is kept, and decompressed if necessary. A
//! body that is refused is still read for a while, so that its client gets to see the response.

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http::{HeaderMap, header};
use quiver_ingest::{Encoding, content_encoding};
use quiver_types::{Error, ErrorKind, Result};

use super::{BodyBudget, Share, UNIT};
use crate::serve::minimum_rate::TooSlow;
use crate::serve::small_chunks::TooManyChunks;

/// How many times as long a packed body is taken to be when it is unpacked.
pub(super) const PACKED: usize = 8;
/// How much of a body that is not wanted is read, so that the client gets to see the answer.
const DRAIN_BYTES_MAX: usize = 64 << 20;

/// What is known of a body's length.
pub(super) struct Length {
    pub(super) stated: Option<usize>,
    pub(super) bytes_max: usize,
    /// How many times as long it is when it is unpacked, about.
    growth: usize,
}

impl Length {
    pub(super) fn of(headers: &HeaderMap, stated: Option<usize>, bytes_max: usize) -> Self {
        let mut encodings = ["content-encoding", "grpc-encoding"].into_iter().filter_map(|name| headers.get(name));
        let is_packed = encodings.any(|name| !name.is_empty() && !name.as_bytes().eq_ignore_ascii_case(b"identity"));
        Self { stated, bytes_max, growth: if is_packed { PACKED } else { 1 } }
    }

    /// A call of gRPC states the length of its message in front of it.
    pub(super) fn read_frame(&mut self, headers: &HeaderMap, first: &[u8]) {
        let is_grpc = headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/grpc"));
        if let ([_, a, b, c, d, ..], true, None) = (first, is_grpc, self.stated) {
            self.stated = Some((u32::from_be_bytes([*a, *b, *c, *d]) as usize).min(self.bytes_max));
        }
    }

    pub(super) fn unpacked_units(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.growth).div_ceil(UNIT)
    }
}

/// Why a body broke off.
pub(crate) fn broken(error: &axum::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<TooSlow>() {
            return Error::new(ErrorKind::SenderTimeout, TooSlow.to_string());
        }
        if error.is::<TooManyChunks>() {
            return Error::invalid(TooManyChunks.to_string());
        }
        cause = error.source();
    }
    Error::invalid("the body ended early")
}

/// Bytes with their share.
struct Held {
    bytes: Bytes,
    /// Given back when the bytes go.
    _share: Share,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body up to a limit, which the stated length is checked against first. The bytes hold their share of the budget.
pub(crate) async fn read_body(budget: &BodyBudget, headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes> {
    let stated = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    let too_large = || Error::new(ErrorKind::TooLarge, format!("body is larger than {bytes_max} bytes"));
    let excess = stated.map_or(0, |n| n.saturating_sub(bytes_max));
    // So much would not be read to its end, and who asks before it sends anything needs no more than the answer.
    if excess > DRAIN_BYTES_MAX || excess > 0 && headers.contains_key(header::EXPECT) {
        return Err(too_large());
    }
    let mut length = Length::of(headers, stated, bytes_max);
    let mut refused = (excess > 0).then(too_large);
    let mut share = budget.share();
    let mut chunks = body.into_data_stream();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut seen = 0;
    while let Some(chunk) = share.next(&mut chunks).await? {
        if seen == 0 {
            length.read_frame(headers, &chunk);
        }
        seen += chunk.len();
        if seen > bytes_max + DRAIN_BYTES_MAX {
            break;
        }
        if refused.is_none() && seen > bytes_max {
            refused = Some(too_large());
        }
        if refused.is_none() {
            refused = share.take_turn(seen, &length).await.err();
        }
        if refused.is_none() {
            // When its memory grows, what is there is moved, and for a moment stands in both places.
            let moved = if whole.capacity() - whole.len() < chunk.len() { whole.len() } else { 0 };
            refused = share.hold(seen + moved).await.err();
        }
        if refused.is_some() {
            // Most clients read the answer only after they have sent everything: what is not wanted is read and dropped.
            (first, whole, share) = (Bytes::new(), BytesMut::new(), budget.share());
            continue;
        }
        if first.is_empty() && whole.is_empty() {
            first = chunk;
            continue;
        }
        if whole.is_empty() {
            // Pages that nothing was written to are no memory yet.
            whole.reserve(length.stated.unwrap_or(seen).max(seen));
        }
        whole.extend_from_slice(&std::mem::take(&mut first));
        whole.extend_from_slice(&chunk);
    }
    match refused {
        Some(error) => Err(error),
        None if seen == 0 => Ok(first),
        None => {
            // Less than before, or as much.
            share.try_hold(seen);
            // It may be held for long, and needs no more but for its unpacked form.
            share.turn.keep(if length.growth > 1 { length.unpacked_units(seen) } else { 0 });
            if length.growth > 1 {
                share.leave_holders();
            }
            let bytes = if whole.is_empty() { first } else { whole.freeze() };
            Ok(Bytes::from_owner(Held { bytes, _share: share }))
        }
    }
}

/// Reads a body that may be packed (`Content-Encoding`) up to a limit, which holds for what is in it, too.
///
/// # Errors
/// As [`read_body`]; Unsupported: packed in a way that nobody knows; Invalid: it cannot be unpacked.
pub(crate) async fn read_unpacked(
    budget: &BodyBudget,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes> {
    let body = read_body(budget, headers, body, bytes_max).await?;
    let named = headers.get(header::CONTENT_ENCODING).filter(|_| !body.is_empty());
    let encoding = Encoding::from_header(named.map(|v| v.to_str().unwrap_or("?")))?;
    unpacked(budget, encoding, body, bytes_max).await
}

/// Unpacks what was read, up to a limit.
///
/// # Errors
/// TooLarge, Unavailable: there is no room; Invalid: it cannot be unpacked.
pub(crate) async fn unpacked(budget: &BodyBudget, encoding: Encoding, body: Bytes, bytes_max: usize) -> Result<Bytes> {
    if encoding == Encoding::Identity {
        return Ok(body);
    }
    let mut beside = budget.share_beside(true);
    let unpack = move || {
        let unpacked = content_encoding::decompress(encoding, &body, bytes_max, &mut |bytes| beside.hold(bytes));
        unpacked.map(|bytes| Held { bytes: Bytes::from(bytes.into_owned()), _share: beside.into_share() })
    };
    let unpacked = tokio::task::spawn_blocking(unpack).await;
    let unpacked = unpacked.map_err(|e| Error::internal("unpacking met a fault of ours").with_source(e))?;
    Ok(Bytes::from_owner(unpacked?))
}
