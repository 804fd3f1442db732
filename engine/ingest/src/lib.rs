//! Turns what senders post into batches: bytes → [`quiver_types::MetricsBatch`] or [`quiver_types::LogsBatch`], once,
//! straight from the wire.
//!
//! [`formats::FORMATS`] is the registry: the router, limits and metrics of the endpoints follow from it. A format either
//! gives a [`Decoded`] (the batch, and what was left out with the reason) or an [`Error`] (nothing of the body counts).
//! Nothing here waits, does I/O or panics on any input; memory stays within [`Limits`].

pub mod codec;
mod context;
pub mod decoded;
mod decoding;
pub mod detect;
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
pub mod reason;
pub mod rules;
mod sender;
pub mod traces;
pub mod wire;

pub use codec::Encoding;
pub use context::{Context, Limits};
pub use decoded::{Decoded, Rejected};
pub use decoding::{DecodeRoom, within};
pub use error::{Error, Result};
pub use exposition::ExpositionDecoder;
pub use formats::Format;
pub use otlp::{DeltaState, OtlpOptions};
pub use reason::Reason;
pub use sender::Sender;
