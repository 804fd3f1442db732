//! Spans: OTLP (protobuf and JSON), Zipkin v2, and the internal JSON `trace/1`, all to a [`SpansBatch`].
//!
//! A body is refused as a whole only when it cannot be read; a span that breaks a rule is refused by itself and counted
//! with its reason, and what is too long is cut and counted (`traces-api` 6.2).

mod any_value;
pub mod internal;
pub mod otlp;
pub mod response;
pub(crate) mod schema;
#[cfg(test)]
pub(crate) mod tests;
pub mod zipkin;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use quiver_types::spans::{ContextFields, SpanId, SpansBatch, SpansBuilder, TraceId, TruncationKind, parse_hex};
use quiver_types::{Access, SpansBatch as Batch};

use crate::content_encoding::{self, Encoding, Room};
use crate::decode_memory;
use crate::error::{Error, Result};

/// Largest span as it comes over the wire.
pub const SPAN_BYTES_MAX: usize = 1 << 20;
/// Most bytes of resources and scopes of a request when each span has its own: that is how they are stored.
const REPEATED_BYTES_MAX: usize = 1 << 30;

/// A format that holds spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceFormat {
    /// `ExportTraceServiceRequest` as protobuf.
    Otlp,
    /// The same in OTLP/JSON.
    OtlpJson,
    /// Zipkin v2, a JSON list.
    Zipkin,
    /// The same as protobuf.
    ZipkinProto,
    /// The internal JSON, `trace/1`.
    Internal,
}

impl TraceFormat {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Otlp, Self::OtlpJson, Self::Zipkin, Self::ZipkinProto, Self::Internal];

    /// Gives its name for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Otlp => "otlp",
            Self::OtlpJson => "otlp_json",
            Self::Zipkin => "zipkin",
            Self::ZipkinProto => "zipkin_proto",
            Self::Internal => "trace1",
        }
    }
}

/// What a decoder knows besides the body.
#[derive(Debug, Clone)]
pub struct TraceContext<'a> {
    /// Largest body after decompression.
    pub body_bytes_max: usize,
    /// Largest batch in memory.
    pub batch_bytes_max: usize,
    /// Time of the request, Unix nanoseconds.
    pub now_ns: i64,
    /// Spans that start before this are refused.
    pub earliest_ns: i64,
    /// Spans that start after this are refused.
    pub latest_ns: i64,
    /// Services that the sender may write.
    pub access: &'a Access,
}

/// Why a span was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpanReason {
    /// Not 16 bytes, or zero.
    TraceId,
    /// Not 8 bytes, or zero.
    SpanId,
    /// Not 8 bytes; zeros say that there is no parent.
    ParentId,
    /// It does not start.
    NoStart,
    /// Older than what is kept.
    TooOld,
    /// Too far in the future.
    TooNew,
    /// The sender may not write this service.
    Service,
    /// It has more than [`SPAN_BYTES_MAX`] bytes.
    TooLarge,
    /// A text that is none.
    InvalidUtf8,
}

impl SpanReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::TraceId,
        Self::SpanId,
        Self::ParentId,
        Self::NoStart,
        Self::TooOld,
        Self::TooNew,
        Self::Service,
        Self::TooLarge,
        Self::InvalidUtf8,
    ];

    /// Gives the words for senders.
    pub fn text(self) -> &'static str {
        match self {
            Self::TraceId => "invalid trace id",
            Self::SpanId => "invalid span id",
            Self::ParentId => "invalid parent span id",
            Self::NoStart => "no start time",
            Self::TooOld => "start is older than what is kept",
            Self::TooNew => "start is in the future",
            Self::Service => "no right to write this service",
            Self::TooLarge => "larger than 1 MiB",
            Self::InvalidUtf8 => "text is not UTF-8",
        }
    }

    /// Gives the word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::TraceId => "trace_id",
            Self::SpanId => "span_id",
            Self::ParentId => "parent_id",
            Self::NoStart => "no_start",
            Self::TooOld => "too_old",
            Self::TooNew => "too_new",
            Self::Service => "service",
            Self::TooLarge => "too_large",
            Self::InvalidUtf8 => "utf8",
        }
    }
}

/// Spans that were refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSpans {
    /// Why they were refused.
    pub reason: SpanReason,
    /// How many spans were refused for this reason.
    pub count: u64,
    /// The first of them, as it can be named.
    pub first: String,
}

/// What a body gave.
#[derive(Debug, Default)]
pub struct DecodedSpans {
    /// Spans to store.
    pub batch: Batch,
    /// Spans that were refused, by reason.
    pub refused: Vec<RefusedSpans>,
    /// What of the spans was cut, and how often.
    pub cuts: Vec<(TruncationKind, u64)>,
}

impl DecodedSpans {
    /// Counts the spans that were refused.
    pub fn refused_count(&self) -> u64 {
        self.refused.iter().map(|r| r.count).sum()
    }

    /// Counts the spans that are not the sender's to write.
    pub fn forbidden(&self) -> u64 {
        self.refused.iter().filter(|r| r.reason == SpanReason::Service).map(|r| r.count).sum()
    }

    /// The service of the first of them.
    pub fn first_forbidden(&self) -> Option<&str> {
        self.refused.iter().find(|r| r.reason == SpanReason::Service).map(|r| &*r.first)
    }

    /// Says what was refused and cut; empty when all is well.
    pub fn text(&self) -> String {
        let spans = |n: u64| if n == 1 { "1 span".to_owned() } else { format!("{n} spans") };
        let refused = self.refused.iter().map(|r| {
            let first = if r.first.is_empty() { String::new() } else { format!(" (first: {})", r.first) };
            format!("{}: {}{first}", spans(r.count), r.reason.text())
        });
        let cuts = self.cuts.iter().map(|(cut, n)| format!("{n} {} cut", cut.text()));
        refused.chain(cuts).collect::<Vec<_>>().join("; ")
    }
}

/// Collects spans and refusals.
#[derive(Debug)]
pub(crate) struct Sink<'c> {
    pub(crate) builder: SpansBuilder,
    pub(crate) ctx: &'c TraceContext<'c>,
    refused: Vec<RefusedSpans>,
    /// Hashes of the ids of the spans before.
    seen: HashSet<u64, FixedState>,
    /// Spans whose ids came before.
    repeats: i64,
    /// Bytes of resources and scopes that were looked at, once for each scope.
    shared_bytes: usize,
}

/// Most by which a report counts as later than its body: the clock counts milliseconds.
const REPEATS_MAX: i64 = 999_999;

impl<'c> Sink<'c> {
    /// Takes the spans of a body.
    pub(crate) fn new(ctx: &'c TraceContext<'c>, body: &[u8]) -> Self {
        let builder = SpansBuilder::for_request(body.len().min(ctx.batch_bytes_max));
        Self { builder, ctx, refused: Vec::new(), seen: HashSet::default(), repeats: 0, shared_bytes: 0 }
    }

    /// Leaves the span at hand out.
    pub(crate) fn refuse(&mut self, reason: SpanReason, name: impl FnOnce() -> String) {
        self.builder.abandon();
        if let Some(known) = self.refused.iter_mut().find(|r| r.reason == reason) {
            known.count += 1;
        } else {
            let first = name().chars().take(120).collect();
            self.refused.push(RefusedSpans { reason, count: 1, first });
        }
    }

    /// Gives the service under which spans of a service are kept: a missing one is that of the sender, if it has one only.
    pub(crate) fn service<'s>(&'s self, named: &'s str) -> Result<&'s str, SpanReason> {
        let access = self.ctx.access;
        let only = access.only_service().filter(|_| named.is_empty());
        Some(only.unwrap_or(named)).filter(|service| access.allows(service)).ok_or(SpanReason::Service)
    }

    /// Checks when a span starts.
    pub(crate) fn check_start(&self, start: u64) -> Result<i64, SpanReason> {
        match i64::try_from(start) {
            Ok(0) => Err(SpanReason::NoStart),
            Ok(start) if start < self.ctx.earliest_ns => Err(SpanReason::TooOld),
            Ok(start) if start <= self.ctx.latest_ns => Ok(start),
            _ => Err(SpanReason::TooNew),
        }
    }

    /// Gives the number of what the spans of a scope share.
    pub(crate) fn context(&mut self, fields: &ContextFields<'_>) -> u32 {
        self.shared_bytes += fields.resource.len() + fields.scope_attributes.len();
        self.builder.context(fields)
    }

    /// Gives when a span was received. Of several reports of one span in a body the last counts as the latest.
    pub(crate) fn received(&mut self, trace_id: &TraceId, span_id: SpanId) -> i64 {
        let hash = FixedState::default().hash_one((trace_id, span_id));
        if self.seen.insert(hash) {
            return self.ctx.now_ns;
        }
        self.repeats = (self.repeats + 1).min(REPEATS_MAX);
        self.ctx.now_ns.saturating_add(self.repeats)
    }

    /// Checks that the batch stays within its limit.
    pub(crate) fn check_size(&self) -> Result<()> {
        let limit_bytes = self.ctx.batch_bytes_max;
        let bytes = self.builder.memory_bytes() + self.seen.capacity() * size_of::<u64>();
        if bytes > limit_bytes {
            return Err(Error::TooLarge { what: "batch of spans", limit_bytes });
        }
        if self.builder.repeated_bytes().max(self.shared_bytes) > REPEATED_BYTES_MAX {
            let what = "batch of spans, each with its resource and scope";
            return Err(Error::TooLarge { what, limit_bytes: REPEATED_BYTES_MAX });
        }
        decode_memory::hold(bytes + self.builder.moving_bytes())
    }

    pub(crate) fn finish(self) -> DecodedSpans {
        let cuts = self.builder.cuts().collect();
        let batch: SpansBatch = self.builder.finish();
        DecodedSpans { batch, refused: self.refused, cuts }
    }
}

/// Turns an `ExportTraceServiceRequest` in OTLP/JSON into protobuf.
///
/// # Errors
/// Invalid: not this message. TooLarge: longer than `limit_bytes`.
pub fn to_protobuf(json: &[u8], limit_bytes: usize) -> Result<Vec<u8>> {
    crate::otlp::json::to_protobuf(json, &schema::TRACES_REQUEST, limit_bytes)
}

/// Reads an id of fixed length; zeros are none.
fn id<const N: usize>(bytes: &[u8], reason: SpanReason) -> Result<[u8; N], SpanReason> {
    <[u8; N]>::try_from(bytes).ok().filter(|id| *id != [0; N]).ok_or(reason)
}

/// Reads an id in hex, shorter ones padded; zeros are none.
fn hex_id<const N: usize>(text: &str, reason: SpanReason) -> Result<[u8; N], SpanReason> {
    parse_hex(text).filter(|id| *id != [0; N]).ok_or(reason)
}

/// Decompresses and decodes a body.
///
/// # Errors
/// Unsupported: an encoding that spans do not come in. TooLarge: a limit. Invalid: a body of another form. Unavailable:
/// there is no room for what it becomes.
pub fn decode(
    format: TraceFormat,
    content_encoding: Option<&str>,
    body: &[u8],
    ctx: &TraceContext<'_>,
    room: &mut Room<'_>,
) -> Result<DecodedSpans> {
    let encoding = Encoding::from_header(content_encoding)?;
    if encoding == Encoding::Snappy {
        return Err(Error::UnsupportedEncoding(encoding.name().to_owned()));
    }
    let body = content_encoding::decompress(encoding, body, ctx.body_bytes_max, room)?;
    match format {
        TraceFormat::Otlp => otlp::decode(&body, ctx),
        TraceFormat::OtlpJson => otlp::decode_json(&body, ctx),
        TraceFormat::Zipkin => zipkin::decode(&body, ctx),
        TraceFormat::ZipkinProto => zipkin::protobuf::decode(&body, ctx),
        TraceFormat::Internal => internal::decode(&body, ctx),
    }
}
