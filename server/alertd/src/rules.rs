//! Running rules: a task per group evaluates it when it is due, and hands its alerts to the router.
//!
//! Groups are spread over their interval by a hash of their names. A limited number are evaluated at once, each on a
//! thread of its own; its queries are cancelled when its interval ends, so a group that hangs only delays itself. The
//! state of alerts is stored when it changes, and the time of the server every few seconds.

mod alert;
mod cycle;
mod group;
mod records;
mod rule_state;
mod runner;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_alerting::rules::{Engine, EvaluationSettings, Group};
use quiver_types::{Clock, Result};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::durable_state::{Change, RowKind, StateDatabase};
use crate::metrics::AlertMetrics;
use crate::origin::ConfigOrigin;
use crate::router::Router;
use records::Names;
use rule_state::StoredRuleStates;
use runner::{Command, Runner};

pub use group::{Engines, GroupContext, GroupView, RuleSettings, Source};

/// Names a group: file, name.
pub type GroupId = (String, String);

#[derive(Debug)]
struct Slot {
    source: Source,
    view: Arc<ArcSwap<GroupView>>,
    commands: mpsc::UnboundedSender<Command>,
    /// What the runner will listen to, until it runs.
    inbox: Option<mpsc::UnboundedReceiver<Command>>,
}

/// All groups of files and of the stored configuration, each evaluated by a task of its own.
#[derive(Debug)]
pub struct Rules {
    settings: Arc<RuleSettings>,
    engines: Arc<dyn Engines>,
    router: Arc<Router>,
    kept: Arc<StateDatabase>,
    clock: Arc<dyn Clock>,
    metrics: Arc<AlertMetrics>,
    places: Arc<Semaphore>,
    memory: Arc<StoredRuleStates>,
    slots: Mutex<BTreeMap<GroupId, Slot>>,
    /// Groups of files and stored ones, as they were given last.
    given: Mutex<[Vec<Source>; 2]>,
    stop: Mutex<Option<CancellationToken>>,
}

/// How often the time of the service is kept.
const HEARTBEAT: Duration = Duration::from_secs(2);

impl Rules {
    /// Opens rules without any group, with what was kept of their states.
    ///
    /// # Errors
    /// Unavailable: the database cannot be used.
    pub async fn open(
        settings: RuleSettings,
        engines: Arc<dyn Engines>,
        router: Arc<Router>,
        kept: Arc<StateDatabase>,
        clock: Arc<dyn Clock>,
        metrics: Arc<AlertMetrics>,
    ) -> Result<Arc<Self>> {
        let memory = Arc::new(StoredRuleStates::load(Arc::clone(&kept)).await?);
        Ok(Arc::new(Self {
            places: Arc::new(Semaphore::new(settings.concurrent_max.max(1))),
            settings: Arc::new(settings),
            engines,
            router,
            kept,
            clock,
            metrics,
            memory,
            slots: Mutex::default(),
            given: Mutex::default(),
            stop: Mutex::new(None),
        }))
    }

    /// Begins to evaluate, until `stop`.
    pub(crate) fn start(self: &Arc<Self>, stop: &CancellationToken) {
        let mut slots = self.slots.lock();
        // Before anything is evaluated: what fires now may stand under the key of what is forgotten here.
        self.end_gone(&slots);
        *self.stop.lock() = Some(stop.clone());
        slots.values_mut().for_each(|slot| self.run(slot));
        drop(slots);
        let (rules, until) = (Arc::clone(self), stop.clone());
        let beat = move || -> BoxFuture<'static, ()> { Box::pin(Arc::clone(&rules).beat(until.clone())) };
        self.metrics.background.spawn("heartbeat of rules", stop, beat);
    }

    /// Ends in the history what fired before the start and no rule goes on with.
    fn end_gone(&self, slots: &BTreeMap<GroupId, Slot>) {
        let at = self.clock.now_ms();
        let mut records = Vec::new();
        for gone in self.memory.gone() {
            // A stored rule has its id still, whatever its expression is now.
            let sources = slots.get(&(gone.file.clone(), gone.group.clone())).map(|slot| &slot.source);
            let mut rules = sources.into_iter().flat_map(|source| source.group.rules.iter().zip(&source.ids));
            let id = rules.find(|(rule, _)| rule.name == gone.name).map(|(_, id)| id.clone()).unwrap_or_default();
            let external_url = self.router.external_url();
            let names = Names { file: "", ids: &[], setting: &self.settings.setting, external_url };
            records.extend(names.gone_before(gone, id, at));
        }
        self.metrics.history.note(records);
    }

    async fn beat(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => {}
            }
            let now = self.clock.now_ms();
            drop(self.kept.put(vec![Change::set(RowKind::Service, rule_state::HEARTBEAT_KEY, &now.into())]));
        }
    }

    /// Makes a group; it runs if the rules do.
    fn slot(&self, source: Source) -> Slot {
        let mut group = Group::new(source.group.clone(), self.settings.interval_ms);
        self.memory.restore(&source.file, &mut group, self.clock.now_ms());
        // Groups that come later begin anew: what others write under the same names is theirs.
        if self.memory.is_new() && self.stop.lock().is_none() {
            group.adopt();
        }
        let view = Arc::new(ArcSwap::from_pointee(GroupView {
            file: source.file.clone(),
            group,
            rights: source.rights.clone().into(),
            last_evaluation: None,
            evaluation_time: Duration::ZERO,
            missed: 0,
        }));
        let (commands, inbox) = mpsc::unbounded_channel();
        let mut slot = Slot { source, view, commands, inbox: Some(inbox) };
        self.run(&mut slot);
        slot
    }

    /// Lets a group run, if the rules do.
    fn run(&self, slot: &mut Slot) {
        let Some(stop) = self.stop.lock().clone() else { return };
        let Some(inbox) = slot.inbox.take() else { return };
        let runner = Runner {
            settings: Arc::clone(&self.settings),
            engines: Arc::clone(&self.engines),
            router: Arc::clone(&self.router),
            clock: Arc::clone(&self.clock),
            metrics: Arc::clone(&self.metrics),
            places: Arc::clone(&self.places),
            memory: Arc::clone(&self.memory),
            view: Arc::clone(&slot.view),
            editors: slot.source.editors.clone(),
            ids: slot.source.ids.clone(),
        };
        tokio::spawn(runner.run(inbox, stop));
    }

    /// Takes all groups of an origin: those that are the same go on, changed ones keep the alerts of equal rules, others
    /// end. Of two groups with the same name the one of a file runs.
    pub fn set(&self, origin: ConfigOrigin, sources: Vec<Source>) {
        let mut given = self.given.lock();
        given[origin as usize] = sources;
        let mut all = given[ConfigOrigin::Files as usize].clone();
        for source in &given[ConfigOrigin::Stored as usize] {
            let (file, group) = (&source.file, &source.group.name);
            if all.iter().any(|other| other.file == *file && other.group.name == *group) {
                tracing::warn!(
                    file,
                    group,
                    "a stored group of rules has the name of one of a file, which runs in its place"
                );
            } else {
                all.push(source.clone());
            }
        }
        // Under its lock, so that of two changes the later one stays.
        self.run_all(all);
    }

    fn run_all(&self, sources: Vec<Source>) {
        let mut slots = self.slots.lock();
        let mut former = std::mem::take(&mut *slots);
        for source in sources {
            let id = (source.file.clone(), source.group.name.clone());
            let slot = match former.remove(&id) {
                None => self.slot(source),
                Some(slot) if slot.source == source => slot,
                Some(mut slot) => {
                    // A runner that is gone ended with the server.
                    let _ = slot.commands.send(Command::Change(Box::new(source.clone())));
                    slot.source = source;
                    slot
                }
            };
            slots.insert(id, slot);
        }
        for slot in former.into_values() {
            let _ = slot.commands.send(Command::End);
        }
    }

    /// Finds a group by its file and name.
    pub fn view(&self, file: &str, name: &str) -> Option<Arc<GroupView>> {
        self.slots.lock().get(&(file.to_owned(), name.to_owned())).map(|slot| slot.view.load_full())
    }

    /// Gives all groups by file and name.
    pub fn views(&self) -> Vec<Arc<GroupView>> {
        self.slots.lock().values().map(|slot| slot.view.load_full()).collect()
    }

    /// Makes an engine for a group that does not run.
    pub fn engine(&self, asker: &GroupContext) -> Arc<dyn Engine + Send + Sync> {
        self.engines.engine(asker)
    }

    /// Labels that are added to alerts when they are sent.
    pub fn setting(&self) -> &EvaluationSettings {
        &self.settings.setting
    }
}

#[cfg(test)]
mod tests;
