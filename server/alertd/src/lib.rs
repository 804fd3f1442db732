//! Alerting as it runs: carries out what `quiver-alerting` decides, with a clock, a database and the network.
//!
//! `rules` evaluates groups when they are due and hands alerts to the `router`, which also receives alerts posted by
//! others; the router groups, mutes and flushes them according to the `policy`, and `delivery` notifies receivers.
//! `durable_state` stores what must survive a restart: alerts, silences, timers, the notification log, states of rules.
//! `background` keeps tasks running; `egress` decides where calls may go; `history` passes records of events to whoever stores them.
//!
//! Invariants: no query language and no store (the engine of rules is passed in through a trait), and nothing is sent
//! except through `egress`.

pub mod background;
pub mod delivery;
pub mod durable_state;
pub mod egress;
pub mod failpoint;
pub mod history;
pub mod metrics;
pub mod origin;
pub mod policy;
pub mod revisions;
pub mod router;
pub mod rules;

use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use quiver_types::{Clock, Result};
use tokio_util::sync::CancellationToken;

use crate::delivery::{ProxyEnvironment, Sender};
use crate::durable_state::StateDatabase;
use crate::egress::Egress;
use crate::history::HistoryStore;
use crate::metrics::AlertMetrics;
use crate::revisions::Revisions;
use crate::router::{PolicySources, Router, RouterSettings};
use crate::rules::{Engines, RuleSettings, Rules};

/// How alerting runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How rules are evaluated.
    pub rules: RuleSettings,
    /// How alerts are grouped and told.
    pub router: RouterSettings,
    /// Where calls may go.
    pub egress: Egress,
    /// Proxies that the environment names.
    pub proxies: ProxyEnvironment,
    /// What the process may have in memory, in bytes.
    pub memory_bytes: u64,
}

/// The parts (1/n) of the memory of a process that records of the history which wait, and previous policies, may take.
const HISTORY_PART: u64 = 32;
const REVISIONS_PART: u64 = 16;

/// Alerting of a server.
#[derive(Debug)]
pub struct Alertd {
    /// Rules and their states.
    pub rules: Arc<Rules>,
    /// Alerts and who is told of them.
    pub router: Arc<Router>,
    /// Policies that were live.
    pub revisions: Revisions,
    /// What `/metrics` shows of alerting.
    pub metrics: Arc<AlertMetrics>,
}

impl Alertd {
    /// Opens what was kept in `file`; nothing runs before [`Self::start`].
    ///
    /// # Errors
    /// The database cannot be used; the HTTP client cannot be made.
    pub fn open(
        file: &Path,
        settings: Settings,
        given: PolicySources,
        engines: Arc<dyn Engines>,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            let kept = StateDatabase::open_within(file, settings.memory_bytes).await?;
            let metrics = Arc::new(AlertMetrics::of_all(delivery::names(), &delivery::REASONS));
            metrics.history.limit_bytes((settings.memory_bytes / HISTORY_PART) as usize);
            let (egress, proxies) = (settings.egress, settings.proxies);
            // As much as for the alerts that others post.
            let room_bytes = settings.router.alert_bytes_max;
            let sender = Sender::new(egress, proxies, room_bytes, Arc::clone(&clock), Arc::clone(&metrics));
            let router = Router::open(
                settings.router,
                given,
                Arc::clone(&kept),
                sender,
                Arc::clone(&clock),
                Arc::clone(&metrics),
            )
            .await?;
            let revisions =
                Revisions::load(Arc::clone(&kept), (settings.memory_bytes / REVISIONS_PART) as usize).await?;
            let rules =
                Rules::open(settings.rules, engines, Arc::clone(&router), kept, clock, Arc::clone(&metrics)).await?;
            Ok(Arc::new(Self { rules, router, revisions, metrics }))
        })
    }

    /// Waits, after `stop`, for messages that are being sent, and until what must survive a restart is written.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.router.settle())
    }

    /// Messages for operators about what they should act on.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.metrics.background.notes();
        notes.extend(self.router.unwritten_note());
        notes
    }

    /// Begins to evaluate rules, to tell receivers and to hand records to `history`, until `stop`.
    pub fn start(&self, history: Arc<dyn HistoryStore>, stop: &CancellationToken) {
        self.metrics.history.start(history, stop);
        self.rules.start(stop);
        self.router.start(stop);
    }
}
