//! The two encodings of OTLP over HTTP, protobuf and JSON. A response has the encoding of its request.

use quiver_ingest::otlp::response::{status_to_json, status_to_protobuf};
use quiver_types::Error;

use crate::error::{grpc_code_of, public_text};

/// A form of OTLP over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtlpForm {
    Protobuf,
    Json,
}

impl OtlpForm {
    /// The content type of an answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// Encodes an error as the `google.rpc.Status` that OTLP asks for in failures.
    pub(crate) fn status(self, error: &Error) -> Vec<u8> {
        let (code, message) = (grpc_code_of(error.kind) as u32, public_text(error));
        match self {
            Self::Protobuf => status_to_protobuf(code, message),
            Self::Json => status_to_json(code, message).into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses() {
        for (kind, code) in [
            (ErrorKind::Invalid, 3),
            (ErrorKind::Unauthenticated, 16),
            (ErrorKind::Forbidden, 7),
            (ErrorKind::NotFound, 5),
        ] {
            let error = Error::new(kind, "why");
            let written = OtlpForm::Protobuf.status(&error);
            assert_eq!(written, [0x08, code, 0x12, 3, b'w', b'h', b'y'], "{kind:?}");
            let written: serde_json::Value = serde_json::from_slice(&OtlpForm::Json.status(&error)).expect("JSON");
            assert_eq!(written, json!({"code": code, "message": "why"}), "{kind:?}");
        }
    }
}
