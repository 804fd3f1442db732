//! Responses to OTLP senders: `ExportMetricsServiceResponse` with partial success, and `google.rpc.Status` for
//! errors, as protobuf and as JSON.

use crate::decoded::DecodedMetrics;
use crate::wire::{put_bytes, put_varint};

/// The refused part of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartialSuccess {
    /// Data points that were not stored.
    pub rejected: u64,
    /// The reasons; empty if nothing was refused.
    pub message: String,
}

impl PartialSuccess {
    /// Summarizes what a decoder refused. Exemplars and metadata are not points, and not mentioned.
    pub fn of(decoded: &DecodedMetrics) -> Self {
        let counts = |reason: crate::Reason| !reason.is_silent();
        Self { rejected: decoded.rejected_count(counts), message: decoded.rejected_text(counts).unwrap_or_default() }
    }

    /// Encodes the response as protobuf.
    pub fn to_protobuf(&self) -> Vec<u8> {
        let mut inner = Vec::new();
        if self.rejected > 0 {
            inner.push(0x08);
            put_varint(&mut inner, self.rejected);
        }
        if !self.message.is_empty() {
            put_bytes(&mut inner, 2, self.message.as_bytes());
        }
        let mut out = Vec::new();
        if !inner.is_empty() {
            put_bytes(&mut out, 1, &inner);
        }
        out
    }

    /// Encodes the response as JSON.
    pub fn to_json(&self) -> String {
        if *self == Self::default() {
            return "{}".to_owned();
        }
        let partial = serde_json::json!({
            "partialSuccess": { "rejectedDataPoints": self.rejected.to_string(), "errorMessage": self.message }
        });
        partial.to_string()
    }
}

/// Encodes a `google.rpc.Status` as protobuf; `code` is a gRPC code.
pub fn status_to_protobuf(code: u32, message: &str) -> Vec<u8> {
    let mut out = vec![0x08];
    put_varint(&mut out, u64::from(code));
    put_bytes(&mut out, 2, message.as_bytes());
    out
}

/// Encodes a `google.rpc.Status` as JSON.
pub fn status_to_json(code: u32, message: &str) -> String {
    serde_json::json!({ "code": code, "message": message }).to_string()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
    use prost::Message;

    use super::*;

    #[test]
    fn responses() {
        let none = PartialSuccess::default();
        assert_eq!((none.to_protobuf().len(), none.to_json().as_str()), (0, "{}"));
        let some = PartialSuccess { rejected: 300, message: "time is \"zero\"".into() };
        let read = ExportMetricsServiceResponse::decode(&some.to_protobuf()[..]).unwrap().partial_success.unwrap();
        assert_eq!((read.rejected_data_points, read.error_message), (300, some.message.clone()));
        let json: serde_json::Value = serde_json::from_str(&some.to_json()).unwrap();
        assert_eq!(json["partialSuccess"]["rejectedDataPoints"], "300");
        assert_eq!(json["partialSuccess"]["errorMessage"], "time is \"zero\"");
        assert_eq!(status_to_protobuf(3, "x"), [0x08, 3, 0x12, 1, b'x']);
        assert_eq!(status_to_json(3, "x"), r#"{"code":3,"message":"x"}"#);
    }
}
