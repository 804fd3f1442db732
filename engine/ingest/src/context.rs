//! What decoders of metrics need besides the body: limits of the request, and how OTLP metrics become series.

use std::sync::{Arc, Mutex};

use quiver_types::Millis;

use crate::otlp::OtlpOptions;
use crate::otlp::delta::DeltaState;
use crate::sender_rights::Sender;

/// Bounds of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body after decompression.
    pub body_bytes_max: usize,
    /// Largest decoded batch in memory; a few bytes on the wire can expand to many.
    pub batch_bytes_max: usize,
    /// Most bytes of label sets that are remembered of all requests.
    pub known_labels_bytes_max: usize,
    /// OTLP points before this time are rejected here, since the store would count their samples and not the points.
    pub earliest_ms: Millis,
    /// OTLP points after this time are rejected in the same way.
    pub latest_ms: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 << 20,
            batch_bytes_max: 128 << 20,
            known_labels_bytes_max: 64 << 20,
            earliest_ms: Millis::MIN,
            latest_ms: Millis::MAX,
        }
    }
}

/// What a decoder needs besides the body.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Bounds of the request.
    pub limits: Limits,
    /// How OTLP metrics become series.
    pub otlp: &'a OtlpOptions,
    /// Sums of OTLP delta series; locked only by requests that hold delta points.
    pub delta: &'a Mutex<DeltaState>,
    /// The time of the request.
    pub now_ms: Millis,
    /// Limits whose series are accepted; `None`: all.
    pub sender: Option<&'a Arc<Sender>>,
}
