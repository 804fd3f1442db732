//! Converts OTLP metrics to series. Both encodings arrive here as protobuf bytes (`json` converts JSON to them) and are
//! read in place: resource → scope → metric → point.
//!
//! The rules are those of Prometheus' OTLP receiver with the strategy `UnderscoreEscapingWithSuffixes`, with two
//! differences. Delta temporality is converted to cumulative here (`delta`). And attributes that identify a resource
//! become labels of its series (`resource`), since many senders name no service.

pub(crate) mod any_value;
mod convert;
pub mod delta;
mod fixed_labels;
pub mod json;
mod labels;
pub mod names;
mod points;
pub(crate) mod request_reader;
mod resource;
pub mod response;
pub mod schema;

pub use delta::DeltaState;
pub use resource::PromotedAttributes;

use crate::error::Error;
use crate::rejection::Reason;
use crate::wire::WireError;

/// What becomes of delta temporality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaMode {
    /// Added up per series, so that `rate` works; a restart is a counter reset.
    #[default]
    Accumulate,
    /// Stored as sent, with its start time.
    Raw,
}

/// How OTLP metrics become series.
#[derive(Debug, Clone, Default)]
pub struct OtlpOptions {
    /// What becomes of delta temporality.
    pub delta: DeltaMode,
    /// Whether histograms with explicit bounds become native ones with custom buckets, instead of classic series.
    pub native_custom_buckets: bool,
    /// Whether series get the labels `otel_scope_name`, `otel_scope_version`, `otel_scope_schema_url` and
    /// `otel_scope_<attribute>`.
    pub scope_labels: bool,
    /// Resource attributes that become labels of each series, besides `target_info`.
    pub promoted: PromotedAttributes,
}

/// Why a point goes no further: it alone is refused, or the whole body is.
#[derive(Debug)]
pub(crate) enum Fault {
    Refused(Reason),
    Fatal(Error),
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Self::Fatal(Error::Protobuf(error))
    }
}

#[cfg(test)]
pub(crate) mod tests;
