//! Configuration in backups of a stopped server: what `quiver backup` saves and `quiver restore` restores.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use quiver_api::configuration_backup::{NAME, SavedConfiguration, schemas};
use quiver_auth::{MasterVault, OsRandom};
use quiver_config::{BackupFile, RestoreOutcome};
use quiver_store::backup::{Attach, Detach};
use quiver_types::{Clock, Error, Result, SystemClock, Vault};

use crate::identity::{fault, master_key, open_config, open_database};
use crate::process_info::VERSION;
use crate::settings::Settings;

/// Saves the configuration of a stopped server.
#[derive(Debug)]
pub struct StoppedServer<'a>(
    /// The settings of the server.
    pub &'a Settings,
);

#[async_trait]
impl Attach for StoppedServer<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn write(&self, to: &Path) -> Result<()> {
        // Safe to open, since the store is locked: no server uses the same file.
        let config = open_config(self.0, &(Arc::new(SystemClock) as Arc<dyn Clock>)).await?;
        SavedConfiguration { config, version: VERSION }.write(to).await
    }
}

/// Restores a configuration from a backup.
#[derive(Debug)]
pub struct ConfigurationRestore<'a> {
    settings: &'a Settings,
    without_secrets: bool,
    done: Mutex<Option<RestoreOutcome>>,
}

impl<'a> ConfigurationRestore<'a> {
    /// Restores into the database in the settings. `without_secrets`: values encrypted with the master key are left
    /// out.
    pub fn new(settings: &'a Settings, without_secrets: bool) -> Self {
        Self { settings, without_secrets, done: Mutex::default() }
    }

    fn vault(&self) -> Result<Option<MasterVault>> {
        if self.without_secrets {
            return Ok(None);
        }
        let file = master_key(self.settings);
        let found = MasterVault::of_file(&file, Arc::new(OsRandom))?;
        let lacks = || {
            Error::invalid(format!(
                "the secrets of the configuration are encrypted under the master key of the server that was saved, and \
                 there is none at `{}`: copy it there or name it (`auth.master_key_file`); if it is lost, give \
                 --without-secrets, and for telemetry alone --without-configuration",
                file.display()
            ))
        };
        found.ok_or_else(lacks).map(Some)
    }
}

impl fmt::Display for ConfigurationRestore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = *self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match done {
            None => f.write_str("the backup holds no configuration: an earlier build made it"),
            Some(RestoreOutcome { rows, was_there: true }) => write!(f, "configuration: {rows} rows are there already"),
            Some(RestoreOutcome { rows, .. }) if self.without_secrets => {
                write!(f, "configuration: {rows} rows, without what is encrypted under the master key")
            }
            Some(RestoreOutcome { rows, .. }) => write!(f, "configuration: {rows} rows"),
        }
    }
}

#[async_trait]
impl Detach for ConfigurationRestore<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn read(&self, from: &Path, backup: &str) -> Result<()> {
        let vault = self.vault()?;
        let base = open_database(self.settings).await?;
        let saved = BackupFile { path: from, name: backup, vault: vault.as_ref().map(|vault| vault as &dyn Vault) };
        let loaded = saved.load(&base, &schemas(), SystemClock.now_ms()).await.map_err(fault);
        base.close().await;
        *self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(loaded?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_config::migrate;
    use quiver_database::{Database, Holds, statement};

    use super::*;

    /// Tables that are not restored: sessions end, failed logins are forgotten, and migrations and the check text of the
    /// master key are written anew.
    const LEFT_OUT: [&str; 4] = ["failure", "migration", "session", "vault_check"];

    #[tokio::test]
    async fn every_table_and_column_is_saved() {
        let dir = tempfile::tempdir().unwrap();
        let base = Database::sqlite(&dir.path().join("config.db")).await.unwrap();
        for schema in schemas() {
            migrate(&base, schema.part, schema.steps, 0).await.unwrap();
        }
        let sql = "SELECT t.name, c.name, c.type FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
            WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'";
        let text = |row: &quiver_database::Row, at| row.try_get::<String>(at).unwrap();
        let rows = statement(sql).fetch_all(&base).await.unwrap();
        let there: BTreeSet<String> = rows
            .iter()
            .map(|row| format!("{}.{} {}", text(row, 0), text(row, 1), text(row, 2)))
            .filter(|column| LEFT_OUT.iter().all(|table| !column.starts_with(&format!("{table}."))))
            .collect();
        let word = |holds| match holds {
            Holds::Number => "INTEGER",
            Holds::Text => "TEXT",
            Holds::Bytes => "BLOB",
        };
        let saved: BTreeSet<String> = schemas()
            .iter()
            .flat_map(|schema| schema.tables)
            .flat_map(|table| table.columns.iter().map(move |(name, holds)| (table.name, *name, *holds)))
            .map(|(table, name, holds)| format!("{table}.{name} {}", word(holds)))
            .collect();
        assert_eq!(there, saved);
    }

    fn settings(flags: &[(&'static str, &str)]) -> Settings {
        let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        crate::settings::LoadedSettings::load(None, std::iter::empty(), &flags).unwrap().settings
    }

    #[test]
    fn what_came_back_is_told() {
        let settings = settings(&[]);
        let loaded = |rows, was_there| Some(RestoreOutcome { rows, was_there });
        for (without_secrets, done, expected) in [
            (false, None, "the backup holds no configuration: an earlier build made it"),
            (false, loaded(5, false), "configuration: 5 rows"),
            (false, loaded(5, true), "configuration: 5 rows are there already"),
            (true, loaded(5, true), "configuration: 5 rows are there already"),
            (true, loaded(0, false), "configuration: 0 rows, without what is encrypted under the master key"),
        ] {
            let returning = ConfigurationRestore::new(&settings, without_secrets);
            *returning.done.lock().unwrap() = done;
            assert_eq!(returning.to_string(), expected);
        }
    }

    /// A missing key is never created: a new one could not decrypt anything in the backup.
    #[test]
    fn the_master_key_is_that_of_the_saved_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key").display().to_string();
        let settings = settings(&[("auth.master_key_file", &path)]);
        let told = ConfigurationRestore::new(&settings, false).vault().unwrap_err();
        assert!(told.message.contains(&path) && told.message.contains("--without-secrets"), "{told}");
        assert!(!Path::new(&path).exists());
        assert!(ConfigurationRestore::new(&settings, true).vault().unwrap().is_none());
        drop(MasterVault::open_file(Path::new(&path), Arc::new(OsRandom)).unwrap());
        assert!(ConfigurationRestore::new(&settings, false).vault().unwrap().is_some());
        assert!(ConfigurationRestore::new(&settings, true).vault().unwrap().is_none());
    }
}
