//! Configuration in backups: which tables of the database are saved, and the file that a running server adds to its
//! backup.

use std::path::Path;

use async_trait::async_trait;
use quiver_config::{Config, ProblemKind, Schema};
use quiver_store::backup::Attach;
use quiver_types::{Error, ErrorKind, Result};

/// Name of the file in a backup.
pub const NAME: &str = "configuration";

/// The tables that are saved, of all who have some in the database of configuration.
pub fn schemas() -> [&'static Schema; 2] {
    [&quiver_auth::SCHEMA, &quiver_config::SCHEMA]
}

/// The configuration of a server, for its backups.
#[derive(Debug)]
pub struct SavedConfiguration {
    /// Stored configuration, by whose database the backup is made.
    pub config: Config,
    /// Version of this build.
    pub version: &'static str,
}

#[async_trait]
impl Attach for SavedConfiguration {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn write(&self, to: &Path) -> Result<()> {
        let saved = self.config.save(&schemas(), self.version, to).await;
        let rows = saved.map_err(|problem| {
            let passes = problem.kind == ProblemKind::Busy;
            let kind = if passes { ErrorKind::Unavailable } else { ErrorKind::Internal };
            let text = "the configuration cannot be saved, so there is no backup";
            Error::new(kind, text).with_source(std::io::Error::other(problem.cause.unwrap_or(problem.detail)))
        })?;
        tracing::info!(rows, "the configuration is in the backup");
        Ok(())
    }
}
