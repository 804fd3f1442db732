//! Settings of the intake of logs.

use std::sync::Arc;

use quiver_ingest::logs::{LogsLimits, SERVICE_FIELDS};

/// Settings of log ingestion.
#[derive(Debug, Clone)]
pub struct LogsSettings {
    /// Limits of rows and requests.
    pub limits: LogsLimits,
    /// Fields that may hold the service of a row.
    pub service_fields: Arc<[String]>,
    /// How far in the future the time of a row may be, in nanoseconds; `None`: any.
    pub accept_future_ns: Option<i64>,
    /// The message of rows that have none; empty: they have no message.
    pub default_message: Arc<str>,
}

impl Default for LogsSettings {
    fn default() -> Self {
        Self {
            limits: LogsLimits::default(),
            service_fields: SERVICE_FIELDS.map(str::to_owned).into(),
            accept_future_ns: Some(2 * 86_400_000_000_000),
            default_message: Arc::default(),
        }
    }
}
