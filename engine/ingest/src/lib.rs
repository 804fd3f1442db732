//! Decodes what senders post: bytes → [`quiver_types::MetricsBatch`], [`quiver_types::LogsBatch`] or
//! [`quiver_types::SpansBatch`], straight from the wire format and only once.
//!
//! [`formats::FORMATS`] is the registry of metrics formats: router, limits and metrics of the endpoints are derived
//! from it. A decoder gives either a [`DecodedMetrics`] (the batch, and what was rejected with the reason) or an [`Error`],
//! and then nothing of the body is stored. Nothing here waits, does I/O or panics on any input; memory stays within
//! [`Limits`].

pub mod content_encoding;
mod context;
mod decode_memory;
pub mod decoded;
pub mod error;
pub mod exposition;
pub mod formats;
pub mod fuzz;
mod histogram;
mod json;
mod label_cache;
pub mod labels;
pub mod logs;
pub mod otlp;
pub mod rejection;
pub mod rules;
mod sender_rights;
pub mod traces;
pub mod transaction_detection;
pub mod wire;

pub use content_encoding::Encoding;
pub use context::{Context, Limits};
pub use decode_memory::{DecodeRoom, within};
pub use decoded::{DecodedMetrics, RejectedItems};
pub use error::{Error, Result};
pub use exposition::ExpositionDecoder;
pub use formats::Format;
pub use otlp::{DeltaState, OtlpOptions};
pub use rejection::Reason;
pub use sender_rights::Sender;
