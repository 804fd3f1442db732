//! OTLP metrics as protobuf, message `opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest`.

use super::format::{ContentType, Format};
use crate::content_encoding::Encoding;
use crate::context::Context;
use crate::decoded::DecodedMetrics;
use crate::error::Result;
use crate::otlp::request_reader;

/// Paths of both encodings: Prometheus' path, the product's insert path, and OTLP's own.
pub const PATHS: &[&str] = &["/metrics-api/api/v1/otlp/v1/metrics", "/insert/opentelemetry/v1/metrics", "/v1/metrics"];

/// OTLP metrics in protobuf.
pub const FORMAT: Format = Format {
    name: "otlp_metrics",
    paths: PATHS,
    content_types: &[
        ContentType { media: "application/x-protobuf", proto: None },
        ContentType { media: "application/protobuf", proto: None },
    ],
    is_default: false,
    encodings: &[Encoding::Gzip, Encoding::Zstd, Encoding::Deflate],
    default_encoding: Encoding::Identity,
    decode,
};

/// Decodes an `ExportMetricsServiceRequest`.
///
/// # Errors
/// Invalid: not this message. TooLarge: more than the limits allow.
pub fn decode(body: &[u8], ctx: &Context<'_>) -> Result<DecodedMetrics> {
    request_reader::decode(body, ctx)
}
