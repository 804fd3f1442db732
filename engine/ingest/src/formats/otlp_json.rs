//! OTLP metrics as JSON: turned into the protobuf form and decoded there.

use super::format::{ContentType, Format};
use super::otlp_metrics;
use crate::content_encoding::Encoding;
use crate::context::Context;
use crate::decoded::DecodedMetrics;
use crate::error::Result;
use crate::otlp::{json, request_reader, schema};

/// OTLP metrics in JSON.
pub const FORMAT: Format = Format {
    name: "otlp_metrics_json",
    paths: otlp_metrics::PATHS,
    content_types: &[ContentType { media: "application/json", proto: None }],
    is_default: false,
    encodings: &[Encoding::Gzip, Encoding::Zstd, Encoding::Deflate],
    default_encoding: Encoding::Identity,
    decode,
};

/// Decodes an `ExportMetricsServiceRequest` in OTLP/JSON.
///
/// # Errors
/// Invalid: not JSON, or not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &Context<'_>) -> Result<DecodedMetrics> {
    let message = json::to_protobuf(body, &schema::METRICS_REQUEST, ctx.limits.body_bytes_max)?;
    request_reader::decode(&message, ctx)
}
