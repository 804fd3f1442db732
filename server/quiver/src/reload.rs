//! Reloads settings while the server runs (SIGHUP, `POST /admin/reload`): those that can change do, all at once;
//! changes of others are reported. If anything is invalid, nothing changes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use quiver_alertd::Alertd;
use quiver_alertd::origin::ConfigOrigin;
use quiver_api::Tls;
use quiver_api::live_settings::{LiveSettings, ReloadOutcome};
use quiver_types::{Error, Result};

use crate::alerting;
use crate::settings::{LoadedSettings, is_live};
use crate::telemetry::LogFilter;
use crate::wiring::live_settings;

/// Reloads settings and applies them.
pub struct SettingsReloader {
    load: Box<dyn Fn() -> Result<LoadedSettings> + Send + Sync>,
    live: Arc<ArcSwap<LiveSettings>>,
    filter: LogFilter,
    tls: Option<Arc<Tls>>,
    alertd: Arc<Alertd>,
    /// Allows one reload at a time.
    turn: Mutex<()>,
}

impl std::fmt::Debug for SettingsReloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SettingsReloader").finish_non_exhaustive()
    }
}

impl SettingsReloader {
    /// Makes it of the function that loads settings, and of what they are applied to: requests, the log, certificates.
    pub fn new(
        load: impl Fn() -> Result<LoadedSettings> + Send + Sync + 'static,
        live: Arc<ArcSwap<LiveSettings>>,
        filter: LogFilter,
        (tls, alertd): (Option<Arc<Tls>>, Arc<Alertd>),
    ) -> Self {
        Self { load: Box::new(load), live, filter, tls, alertd, turn: Mutex::new(()) }
    }

    /// Reads all settings, compares them with the current ones, and applies what has changed.
    ///
    /// # Errors
    /// Invalid: the message names what is invalid, and nothing has changed.
    pub fn reload(&self) -> Result<ReloadOutcome> {
        let _turn = self.turn.lock();
        let refused = |e: Error| {
            tracing::error!("settings were not read anew, the old ones stay: {e}");
            e
        };
        let settings = (self.load)().map_err(refused)?.settings;
        let old = self.live.load_full();
        let mut new = live_settings(&settings, old.query_limits.memory_max).map_err(refused)?;
        let filter = self.filter.read(&settings.log.filter).map_err(refused)?;
        // The content of files may have changed even if their names have not.
        let rules = alerting::read_rules(&settings).map_err(refused)?;
        let policy = alerting::read_policy(&settings).map_err(refused)?;
        let mut done = ReloadOutcome::default();
        // The last step that can fail, since it takes effect at once.
        if let Some(tls) = &self.tls
            && tls.reload().map_err(refused)?
        {
            done.applied.push("tls".to_owned());
        }
        for ((section, key, value), (.., was)) in new.listed.iter_mut().zip(&old.listed) {
            if *value == *was {
                continue;
            }
            let name = format!("{section}.{key}");
            if is_live(section, key) {
                done.applied.push(name);
            } else {
                // A setting that needs a restart is listed with its old value, which is still in effect.
                value.clone_from(was);
                done.needs_restart.push(name);
            }
        }
        if new.admin_token != old.admin_token && !done.applied.iter().any(|name| name == "http.admin_token_file") {
            done.applied.push("http.admin_token_file".to_owned());
        }
        self.live.store(Arc::new(new));
        self.filter.set(filter);
        self.alertd.rules.set(ConfigOrigin::Files, rules);
        self.alertd.router.set_policy(ConfigOrigin::Files, policy);
        tracing::info!(applied = ?done.applied, "settings were read anew");
        if !done.needs_restart.is_empty() {
            tracing::warn!(settings = ?done.needs_restart, "these settings changed, but need a restart");
        }
        Ok(done)
    }
}
