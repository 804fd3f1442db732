//! The server's own log.

use std::fmt;
use std::sync::Arc;

use quiver_types::{Error, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::settings::Log;
use crate::terminal::complain;

/// The log filter of commands.
const OF_COMMANDS: &str = "warn,quiver_store::steps=info";

/// Replaces the filter of the log.
#[derive(Clone)]
pub struct LogFilter(Arc<dyn Fn(EnvFilter) + Send + Sync>);

impl fmt::Debug for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogFilter")
    }
}

/// Parses a filter; the environment variable takes precedence.
fn filter_of(setting: &str) -> Result<EnvFilter> {
    let (name, text) = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => ("RUST_LOG", text),
        _ => ("log.filter", setting.to_owned()),
    };
    EnvFilter::try_new(&text).map_err(|e| Error::invalid(format!("`{name}` is `{text}`: {e}")))
}

/// Checks the filter.
///
/// # Errors
/// Invalid: it cannot be parsed.
pub fn check(settings: &Log) -> Result<()> {
    filter_of(&settings.filter).map(|_| ())
}

impl LogFilter {
    /// Parses a filter in the settings.
    ///
    /// # Errors
    /// Invalid: it cannot be parsed.
    pub fn read(&self, setting: &str) -> Result<EnvFilter> {
        filter_of(setting)
    }

    /// Puts a filter into force.
    pub fn set(&self, filter: EnvFilter) {
        (self.0)(filter);
    }
}

/// Starts the log of a command that works on a stopped store: warnings, and the progress of long work. Without a log the
/// command works all the same.
pub fn start_for_command() {
    let settings = Log { filter: OF_COMMANDS.to_owned(), format: "text".to_owned(), access: false };
    if let Err(error) = start(&settings) {
        complain(error);
    }
}

/// Starts logging to standard error; `RUST_LOG` overrides the setting. Lines that cannot be written are lost.
///
/// # Errors
/// A filter that cannot be parsed, or a log that was started already.
pub fn start(settings: &Log) -> Result<LogFilter> {
    // Told that a line could not be written, it would tell so on standard error, and panic where that is what failed: on
    // a full disk, or when whoever read it has ended.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter_of(&settings.filter)?)
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let begun = |e: TryInitError| Error::internal(format!("the log runs already: {e}"));
    macro_rules! begin {
        ($builder:expr) => {{
            let builder = $builder.with_filter_reloading();
            let handle = builder.reload_handle();
            builder.finish().try_init().map_err(begun)?;
            LogFilter(Arc::new(move |filter| {
                if let Err(error) = handle.reload(filter) {
                    tracing::error!(%error, "the log keeps its filter");
                }
            }))
        }};
    }
    Ok(if settings.format == "json" { begin!(builder.json()) } else { begin!(builder.with_ansi(false)) })
}
