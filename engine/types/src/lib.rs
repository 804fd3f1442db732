//! The vocabulary that all other crates share: labels, matchers, time, series tables, histograms, batches, table
//! definitions, access and errors.
//!
//! Invariant: no I/O, no DataFusion, no tokio. The traits through which languages read the indexes of the store
//! (`source`) and the engine scans it (`scan`) are defined here too, so that neither side depends on the other.

pub mod access;
mod brief;
pub mod cancellation;
mod change_mode;
pub mod condition;
pub mod detection;
pub mod encoding;
pub mod error;
pub mod extraction;
pub mod failpoint;
pub mod go_format;
mod hex;
pub mod histogram;
pub mod id;
pub mod label;
pub mod log_pace;
pub mod logs;
pub mod matcher;
pub mod memory_pressure;
pub mod metrics;
pub mod missing_files;
pub mod nesting;
pub mod network;
pub mod pins;
pub mod query_configuration;
pub mod random;
pub mod read_stats;
pub mod rights;
mod run_shared;
pub mod scan;
pub mod series;
mod services;
pub mod source;
pub mod spans;
pub mod suggestions;
pub mod tables;
pub mod text;
pub mod time;

pub use access::{Access, AccessSegment, SegmentRows};
pub use brief::{brief, brief_text};
pub use change_mode::ChangeMode;
pub use error::{Error, ErrorKind, Result};
pub use hex::{hex, hex_bytes, is_hex, parse_hex, push_hex, read_hex, write_hex};
pub use histogram::{Histogram, ResetHint, Span};
pub use id::SeriesId;
pub use label::LabelSet;
pub use log_pace::LogPace;
pub use logs::LogsBatch;
pub use matcher::{MatchOp, Matcher};
pub use memory_pressure::MemoryPressure;
pub use metrics::MetricsBatch;
pub use network::Network;
pub use pins::Pins;
pub use random::{Random, Vault, random_bytes};
pub use read_stats::ReadStats;
pub use rights::{Domain, Right, Rights, Triple};
pub use run_shared::RunShared;
pub use series::SeriesTable;
pub use services::Services;
pub use source::{
    SampleRequest, SelectedSamples, SelectedSeries, SeriesSelector, SeriesSnapshot, SeriesSource, Version,
};
pub use spans::SpansBatch;
pub use time::{Clock, Millis, MillisRange, SystemClock};

/// The bits of the NaN that Prometheus uses as stale marker (`model/value/value.go: StaleNaN`).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Says whether a sample value is the stale marker. Compares bits, since an ordinary NaN is a valid value.
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// Gives the stale marker.
pub fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}
