//! Responses to OTLP senders of spans: `ExportTraceServiceResponse` with partial success.

use super::DecodedSpans;
use crate::otlp::response::PartialSuccess;

/// The partial success that is reported to the sender of a decoded body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TracePartial {
    /// Spans that were not stored.
    pub rejected: u64,
    /// Why, and what was cut; empty when all is well.
    pub message: String,
    /// Whether nothing was stored.
    pub all: bool,
    /// Those of them that are not the sender's to write.
    pub forbidden: u64,
    /// The service of the first of these.
    pub first_forbidden: Option<String>,
}

impl TracePartial {
    /// Sums up what a decoder refused and cut.
    pub fn of(decoded: &DecodedSpans) -> Self {
        Self {
            rejected: decoded.refused_count(),
            message: decoded.text(),
            all: decoded.batch.is_empty(),
            forbidden: decoded.forbidden(),
            first_forbidden: decoded.first_forbidden().map(str::to_owned),
        }
    }

    /// Encodes the response as protobuf.
    pub fn to_protobuf(&self) -> Vec<u8> {
        PartialSuccess { rejected: self.rejected, message: self.message.clone() }.to_protobuf()
    }

    /// Encodes the response as JSON.
    pub fn to_json(&self) -> String {
        if self.rejected == 0 && self.message.is_empty() {
            return "{}".to_owned();
        }
        let message = serde_json::Value::from(self.message.as_str());
        format!("{{\"partialSuccess\":{{\"rejectedSpans\":\"{}\",\"errorMessage\":{message}}}}}", self.rejected)
    }
}
