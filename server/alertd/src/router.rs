//! The router: receives alerts, flushes groups when they are due, has integrations notified, and records that.
//!
//! One lock holds the state of dispatch; nothing is awaited while it is held. Changes are queued for `durable_state`
//! under the lock, so that they are stored in the order in which they happened.

mod alert_quota;
mod flush;
mod history;
mod intake;
mod listings;
mod records;
mod silencing;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_alerting::dispatch::{Alert, Dispatcher, NotificationLog};
use quiver_alerting::receivers::Integration;
use quiver_alerting::routes::{Route, TakenRoutes};
use quiver_alerting::silences::Silences;
use quiver_types::{Clock, Error, ErrorKind, LabelSet, Result};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

pub use intake::{AlertForm, PostedAlerts, date_time, nanoseconds, posted};
pub use listings::{AlertFilter, AlertRow, AlertState, AlertStateFilter, GroupPiece, GroupRow, RouteMatch};
pub(crate) use records::{label_set, labels, texts};
pub use silencing::{SilenceDone, SilenceError, SilenceOp};

use crate::delivery::{Failure, Files, Message, Sender};
use crate::durable_state::{Change, PendingWrite, RowKind, StateDatabase};
use crate::metrics::AlertMetrics;
use crate::origin::ConfigOrigin;
use crate::policy::Policy;
use alert_quota::{QuotaExceeded, QuotaLimits, Reporter, Shares};

/// Settings of the router.
#[derive(Debug, Clone)]
pub struct RouterSettings {
    /// URL of this server for people; `externalURL` in notifications.
    pub external_url: String,
    /// The directory in which secret files (`…_file`) must lie.
    pub files_dir: Option<PathBuf>,
    /// Most alerts known at once; more are refused.
    pub alerts_max: usize,
    /// Estimated most memory of alerts posted by others; alerts of our own rules may take twice as much.
    pub alert_bytes_max: usize,
    /// Labels that name the service of an alert; the first non-empty one counts.
    pub service_labels: Vec<String>,
}

/// The state of dispatch.
#[derive(Debug)]
struct State {
    dispatcher: Dispatcher,
    silences: Silences,
    log: NotificationLog,
    /// Firing alerts posted by others, by their labels, with the time since when.
    posted: BTreeMap<Vec<u8>, (Alert, i64)>,
    /// None of them ends before this time.
    posted_until: i64,
    /// Alerts found inhibited at the last notification, with the time since when they fire.
    inhibited: BTreeMap<Vec<u8>, i64>,
    /// What the alerts take.
    shares: Shares,
    /// The clocks by which everything here counts.
    clocks: Clocks,
}

/// The wall clock and the one that nobody sets, read together.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall_ms: i64,
    passed: Duration,
}

impl Clocks {
    fn read(clock: &dyn Clock) -> Self {
        Self { wall_ms: clock.now_ms(), passed: clock.elapsed() }
    }

    /// Gives the milliseconds by which the wall clock was set since `former`.
    fn leap_since(self, former: Self) -> i64 {
        let spent = self.passed.saturating_sub(former.passed).as_millis();
        (self.wall_ms - former.wall_ms).saturating_sub(i64::try_from(spent).unwrap_or(i64::MAX))
    }
}

/// The policies by their origin.
#[derive(Debug, Default)]
pub struct PolicySources {
    /// The policy of a file, which takes precedence.
    pub file: Option<Policy>,
    /// The policy of the stored configuration.
    pub stored: Option<Policy>,
}

impl PolicySources {
    /// The policy in effect; without any, nobody is notified.
    fn live(&self) -> Policy {
        self.file.as_ref().or(self.stored.as_ref()).cloned().unwrap_or_else(Policy::empty)
    }
}

/// Receives alerts, groups them by the policy, and notifies receivers when it is time.
#[derive(Debug)]
pub struct Router {
    settings: RouterSettings,
    files: Files,
    policy: ArcSwap<Policy>,
    /// The policies of all origins.
    given: Mutex<PolicySources>,
    /// Whether there is one of a file.
    is_of_file: AtomicBool,
    state: Mutex<State>,
    kept: Arc<StateDatabase>,
    sender: Sender,
    clock: Arc<dyn Clock>,
    metrics: Arc<AlertMetrics>,
    wake: Notify,
    /// Places for flushes, by the names of receivers.
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Identifies this server in notifications, so that it recognizes its own when they come back.
    instance: String,
}

const MS: i64 = 1_000_000;
/// Timeout of the test of a receiver.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often old state is removed.
const FORGET_EVERY: Duration = Duration::from_mins(1);
/// How often timers are stored.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// If the clock differs by more milliseconds than this from the elapsed time, it has jumped.
pub(crate) const LEAP_MS: i64 = 10_000;
/// Routes may be asked so often without a pause, for all alerts of a report together.
const CHECKS_AT_ONCE: usize = 100_000;
/// Most alerts that are taken without a pause.
const ALERTS_AT_ONCE: usize = 1000;
/// How often the routes of alerts are looked for that came meanwhile.
const SEARCHES_MAX: usize = 4;
/// Longest rest between flushes.
const REST_MAX: Duration = Duration::from_secs(1);
/// Longest sleep of the loop, so that a clock jump is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// How many alerts of a report find no room, and why.
#[derive(Debug, Default)]
struct RefusedAlerts {
    count: usize,
    too_large: usize,
}

/// Of so many alerts the routes are found in no long time.
fn alerts_at_once(route: &Route) -> usize {
    (CHECKS_AT_ONCE / route.count()).clamp(1, ALERTS_AT_ONCE)
}

impl Router {
    /// Opens the router with its stored state.
    ///
    /// # Errors
    /// Unavailable: the database cannot be used.
    pub async fn open(
        settings: RouterSettings,
        given: PolicySources,
        kept: Arc<StateDatabase>,
        sender: Sender,
        clock: Arc<dyn Clock>,
        metrics: Arc<AlertMetrics>,
    ) -> Result<Arc<Self>> {
        let now = clock.now_ms().saturating_mul(MS);
        let policy = given.live();
        let mut state = State {
            dispatcher: Dispatcher::new(policy.config.routes()),
            silences: Silences::default(),
            log: NotificationLog::default(),
            posted: BTreeMap::new(),
            posted_until: i64::MIN,
            inhibited: BTreeMap::new(),
            shares: Shares::default(),
            clocks: Clocks::read(&*clock),
        };
        for (_, value) in kept.load(RowKind::Alert).await? {
            if let Some(alert) = records::read_alert(&value) {
                state.read_row(&alert, &value);
                let (known, groups_bytes) = state.dispatcher.insert(alert, now);
                let reporter = if value["posted"].is_i64() { Reporter::Others } else { Reporter::OurRules };
                state.shares.note(&known, groups_bytes, reporter);
            }
        }
        let timers = kept.load(RowKind::Timer).await?.into_iter();
        let timers: BTreeMap<String, i64> =
            timers.filter_map(|(key, at)| String::from_utf8(key).ok().zip(at.as_i64())).collect();
        state.dispatcher.restore_timers(&timers, now);
        for (_, value) in kept.load(RowKind::Silence).await? {
            if let Some(silence) = records::read_silence(&value) {
                state.silences.load(silence);
            }
        }
        for (key, value) in kept.load(RowKind::Told).await? {
            if let Some((key, mut entry)) = records::read_log_entry(&key, &value) {
                // Of a clock that was set back while the server was down: it would not be repeated for as long.
                entry.at = entry.at.min(now);
                state.log.set(key, entry);
            }
        }
        metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        let instance = instance(&kept).await?;
        Ok(Arc::new(Self {
            files: Files::below(settings.files_dir.clone()),
            settings,
            policy: ArcSwap::from_pointee(policy),
            is_of_file: AtomicBool::new(given.file.is_some()),
            given: Mutex::new(given),
            state: Mutex::new(state),
            kept,
            sender,
            clock,
            metrics,
            wake: Notify::new(),
            places: Mutex::default(),
            instance,
        }))
    }

    /// The time, in nanoseconds.
    pub fn now(&self) -> i64 {
        self.clock.now_ms().saturating_mul(MS)
    }

    /// The name of this installation.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// URL of this server for people.
    pub fn external_url(&self) -> &str {
        &self.settings.external_url
    }

    /// Labels that name the service of an alert.
    pub fn service_labels(&self) -> &[String] {
        &self.settings.service_labels
    }

    /// The policy in effect.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Says whether the policy comes from a file, so that the stored one is not in effect.
    pub fn is_policy_of_file(&self) -> bool {
        self.is_of_file.load(Relaxed)
    }

    /// Sets the policy of an origin. Groups of unchanged routes continue, others are rebuilt. It takes long where there are many
    /// alerts and routes.
    pub fn set_policy(&self, origin: ConfigOrigin, policy: Option<Policy>) {
        let mut given = self.given.lock();
        match origin {
            ConfigOrigin::Files => given.file = policy,
            ConfigOrigin::Stored => given.stored = policy,
        }
        self.is_of_file.store(given.file.is_some(), Relaxed);
        let live = given.live();
        if !self.policy.load().is_like(&live) {
            self.go_on_with(live);
        }
    }

    fn go_on_with(&self, policy: Policy) {
        let route = policy.config.routes();
        let taken = self.taken_routes(&route);
        let mut state = self.state.lock();
        self.heed_leap(&mut state);
        self.give_up_beyond(&route, &taken, &mut state);
        state.dispatcher.reload(route, taken, self.now());
        self.policy.store(Arc::new(policy));
        drop(state);
        self.wake.notify_one();
    }

    /// Finds which routes the alerts take, but for few of them, while routing goes on. Ends early when the groups at these
    /// routes take more than alerts may have: some alerts are given up then, and nobody counts what is found here.
    fn taken_routes(&self, route: &Route) -> TakenRoutes {
        let (mut taken, mut groups_bytes) = (TakenRoutes::new(), 0);
        for _ in 0..SEARCHES_MAX {
            let new: Vec<LabelSet> = {
                let state = self.state.lock();
                let known = state.dispatcher.alerts().map(|alert| &alert.labels);
                known.filter(|labels| !taken.contains_key(*labels)).cloned().collect()
            };
            if new.len() <= alerts_at_once(route) {
                break;
            }
            for labels in new {
                let numbers = route.numbers(&labels);
                groups_bytes += Route::groups_bytes(&route.by_numbers(&numbers), &labels);
                if groups_bytes > self.settings.alert_bytes_max {
                    return taken;
                }
                taken.insert(labels, numbers);
            }
        }
        taken
    }

    /// Gives alerts up whose groups would take more than alerts may have, as if they came only now. Who reports them again is
    /// told so.
    fn give_up_beyond(&self, route: &Route, taken: &TakenRoutes, state: &mut State) {
        let State { dispatcher, shares, .. } = state;
        let groups_bytes_of = |labels: &LabelSet| Route::groups_bytes(&route.matching_known(labels, taken), labels);
        let gone = shares.count_anew(dispatcher.alerts(), groups_bytes_of, self.quota_limits());
        if gone.is_empty() {
            return;
        }
        tracing::warn!(alerts = gone.len(), "by a new policy alerts take more memory than they may: some are given up");
        dispatcher.give_up(&gone);
        state.drop_notes(&gone);
        for labels in &gone {
            state.posted.remove(labels.canonical());
        }
        self.metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        let changes = gone.iter().map(|labels| Change::remove(RowKind::Alert, labels.canonical()));
        drop(self.kept.put(changes.collect()));
    }

    fn quota_limits(&self) -> QuotaLimits {
        QuotaLimits { count: self.settings.alerts_max, bytes: self.settings.alert_bytes_max }
    }

    /// Sends one test notification: a single attempt, which is not recorded.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn try_message(&self, message: &Message, integration: &Integration) -> Result<Option<u16>, Failure> {
        let attempt = self.sender.attempt(message, integration, &self.files);
        let late = |_| Failure::lasting(format!("no answer within {}s", TEST_TIMEOUT.as_secs()));
        tokio::time::timeout(TEST_TIMEOUT, attempt).await.map_err(late)?.map(|taken| taken.status)
    }

    /// Adds alerts; returns when they are durable.
    ///
    /// # Errors
    /// Unavailable: there are too many alerts, or they cannot be stored.
    pub async fn insert(&self, alerts: Vec<Alert>) -> Result<()> {
        self.take(alerts, Reporter::OurRules).await
    }

    /// As [`Self::insert`], for alerts posted by others; their changes are also recorded in the history.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub async fn insert_posted(&self, alerts: Vec<Alert>) -> Result<()> {
        self.take(alerts, Reporter::Others).await
    }

    async fn take(&self, alerts: Vec<Alert>, reporter: Reporter) -> Result<()> {
        if alerts.is_empty() {
            return Ok(());
        }
        let (mut alerts, mut refused, mut writing) = (alerts.into_iter(), RefusedAlerts::default(), Vec::new());
        loop {
            writing.push(self.take_some(&mut alerts, reporter, &mut refused));
            self.wake.notify_one();
            if alerts.as_slice().is_empty() {
                break;
            }
            // Whoever waits for the lock gets it, and this thread does something else.
            tokio::task::yield_now().await;
        }
        for some in writing {
            some.durable().await?;
        }
        if refused.count > 0 {
            let (count, max) = (refused.count, self.settings.alerts_max);
            let text = format!("{count} alerts are refused: {max} are known already (`alerting.alerts_max`)");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        if refused.too_large > 0 {
            let count = refused.too_large;
            let text = format!("{count} alerts are refused: others take all the memory that alerts may have");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(())
    }

    /// Takes as many alerts as need no long time.
    fn take_some(
        &self,
        alerts: &mut std::vec::IntoIter<Alert>,
        reporter: Reporter,
        refused: &mut RefusedAlerts,
    ) -> PendingWrite {
        let most = self.quota_limits();
        let mut state = self.state.lock();
        self.heed_leap(&mut state);
        let now = self.now();
        let mut changes = Vec::new();
        for alert in alerts.by_ref().take(alerts_at_once(state.dispatcher.route())) {
            // Routes are looked for once for each alert, and what its groups take is known as long as it is.
            let taken = state.dispatcher.taken(&alert.labels);
            let known = state.shares.groups_bytes_of(&alert.labels);
            let groups_bytes = known
                .unwrap_or_else(|| Route::groups_bytes(&state.dispatcher.route().by_numbers(&taken), &alert.labels));
            match state.shares.has_room(&alert, groups_bytes, reporter, most) {
                Ok(()) => {}
                Err(QuotaExceeded::Bytes) => {
                    refused.too_large += 1;
                    continue;
                }
                Err(QuotaExceeded::Count) => {
                    refused.count += 1;
                    continue;
                }
            }
            let (known, groups_bytes) = state.dispatcher.insert_at(alert, taken, now);
            state.shares.note(&known, groups_bytes, reporter);
            if reporter == Reporter::Others {
                state.note_posted(&known, now, &self.metrics.history);
            } else if state.posted.contains_key(known.labels.canonical()) {
                state.posted_until = state.posted_until.min(known.ends_at);
            }
            changes.push(Change::set(RowKind::Alert, known.labels.canonical(), &state.row(&known)));
        }
        self.metrics.received.fetch_add(changes.len() as u64, Relaxed);
        self.metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        self.kept.put(changes)
    }

    /// A message for operators: what must survive a restart is not written.
    pub(crate) fn unwritten_note(&self) -> Option<String> {
        self.kept.note()
    }

    /// Flushes groups as they fall due, until `stop`.
    pub(crate) fn start(self: &Arc<Self>, stop: &CancellationToken) {
        let (router, until) = (Arc::clone(self), stop.clone());
        let run = move || -> BoxFuture<'static, ()> { Box::pin(Arc::clone(&router).run(until.clone())) };
        self.metrics.background.spawn("sending of alerts", stop, run);
        let (router, until) = (Arc::clone(self), stop.clone());
        let keep = move || -> BoxFuture<'static, ()> { Box::pin(Arc::clone(&router).keep_house(until.clone())) };
        self.metrics.background.spawn("housekeeping of alerts", stop, keep);
    }

    async fn run(self: Arc<Self>, stop: CancellationToken) {
        let next_due = || {
            let mut state = self.state.lock();
            self.heed_leap(&mut state);
            state.dispatcher.next_due()
        };
        loop {
            if next_due().is_some_and(|at| at <= self.now()) {
                let (router, began) = (Arc::clone(&self), tokio::time::Instant::now());
                if let Err(error) = tokio::task::spawn_blocking(move || router.flush_due()).await {
                    tracing::error!(%error, "groups that were due were not told");
                }
                // What mutes is found anew each time: of many groups those that fall due meanwhile are judged together.
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(began.elapsed().min(REST_MAX)) => {}
                }
            }
            let next = next_due();
            let wait = next
                .map_or(SLEEP_MAX, |at| Duration::from_nanos((at - self.now()).max(MS).unsigned_abs()).min(SLEEP_MAX));
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Moves what lies ahead with the wall clock where that was set. Whoever enters something by the new time calls it
    /// before, or that would move, too.
    fn heed_leap(&self, state: &mut State) {
        let clocks = Clocks::read(&*self.clock);
        let leap = clocks.leap_since(std::mem::replace(&mut state.clocks, clocks));
        if leap.unsigned_abs() <= LEAP_MS.unsigned_abs() {
            return;
        }
        tracing::warn!(leap_ms = leap, "the clock has leapt: alerts and timers move with it");
        let by = leap.saturating_mul(MS);
        state.dispatcher.shift(clocks.wall_ms.saturating_sub(leap).saturating_mul(MS), by);
        state.log.shift(by);
        state.posted_until = i64::MIN;
        let told = state.log.entries();
        let told = told
            .map(|(key, entry)| Change::set(RowKind::Told, records::log_entry_key(key), &records::log_entry(entry)));
        let alerts = state.dispatcher.alerts();
        let alerts = alerts.map(|alert| Change::set(RowKind::Alert, alert.labels.canonical(), &state.row(alert)));
        drop(self.kept.put(told.chain(alerts).collect()));
    }

    /// Stores timers, and removes old state.
    async fn keep_house(self: Arc<Self>, stop: CancellationToken) {
        let mut every = tokio::time::interval(KEEP_EVERY);
        let mut forgotten = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => {}
            }
            self.keep_timers();
            self.note_ended();
            if forgotten.elapsed() >= FORGET_EVERY {
                forgotten = tokio::time::Instant::now();
                self.forget();
            }
        }
    }

    fn keep_timers(&self) {
        let mut state = self.state.lock();
        let changes: Vec<Change> = state
            .dispatcher
            .take_changed()
            .into_iter()
            .map(|(key, at)| match at {
                Some(at) => Change::set(RowKind::Timer, key, &at.into()),
                None => Change::remove(RowKind::Timer, key),
            })
            .collect();
        if !changes.is_empty() {
            drop(self.kept.put(changes));
        }
    }

    fn forget(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        let silences = state.silences.forget(now);
        let told = state.log.forget(now);
        let mut changes: Vec<Change> =
            silences.iter().map(|id| Change::remove(RowKind::Silence, id.as_bytes())).collect();
        changes.extend(told.iter().map(|key| Change::remove(RowKind::Told, records::log_entry_key(key))));
        let gone = state.dispatcher.forget(now);
        changes.extend(gone.iter().map(|labels| Change::remove(RowKind::Alert, labels.canonical())));
        state.drop_notes(&gone);
        self.metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        if !changes.is_empty() {
            drop(self.kept.put(changes));
        }
    }
}

/// Gives the name of this installation, generated once.
async fn instance(kept: &StateDatabase) -> Result<String> {
    const KEY: &[u8] = b"instance";
    let there = kept.load(RowKind::Service).await?.into_iter().find(|(key, _)| key == KEY);
    if let Some(id) = there.and_then(|(_, value)| value.as_str().map(str::to_owned)) {
        return Ok(id);
    }
    let id = uuid::Uuid::now_v7().to_string();
    kept.put(vec![Change::set(RowKind::Service, KEY, &id.as_str().into())]).durable().await?;
    Ok(id)
}

#[cfg(test)]
mod tests;
