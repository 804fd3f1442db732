//! The service's own log.

use tracing_subscriber::EnvFilter;

use crate::settings::Log;

/// Starts the log on standard error; `RUST_LOG` overrides the setting.
///
/// # Errors
/// A filter that cannot be read, or a log that runs already.
pub fn start(settings: &Log) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(text)?,
        _ => EnvFilter::try_new(&settings.filter)?,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if settings.format == "json" { builder.json().try_init() } else { builder.with_ansi(false).try_init() }
}
