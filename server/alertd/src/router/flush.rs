//! Flushes due groups: filters out muted alerts, and notifies each integration of the receiver of what has changed since
//! its last notification.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use quiver_alerting::dispatch::{Alert, Decision, Flush, FlushOutcome, LogKey, MessageData};
use quiver_alerting::receivers::Integration;
use quiver_alerting::routes::RouteOptions;
use quiver_types::{LabelSet, LogPace};
use tokio::sync::Semaphore;

use super::listings::AlertSnapshot;
use super::{Router, records};
use crate::delivery::Message;
use crate::durable_state::{Change, RowKind};
use crate::failpoint;
use crate::policy::Policy;

/// Least time that all attempts of a flush have.
const BUDGET_MIN: Duration = Duration::from_secs(10);
/// Flushes to one receiver at once: each has a connection, or some, and there may be as many groups as alerts.
const FLUSHES_MAX: usize = 64;

/// Of integrations that are not told: a receiver that is gone fails for each group, and again until it is back.
static UNTOLD: LogPace = LogPace::new();

/// What the integrations of a receiver are told of.
struct News<'a> {
    policy: &'a Policy,
    flush: &'a Flush,
    /// Its alerts that nothing mutes.
    alerts: &'a [Alert],
    /// Labels of the route, once somebody is told.
    route_labels: OnceLock<BTreeMap<String, String>>,
}

/// How often it is looked, at the end, whether messages are still being sent; so many times in a row none may be.
const LOOK: Duration = Duration::from_millis(50);
const QUIET_LOOKS: u32 = 3;

impl Router {
    /// Waits, once no flush begins any more, for messages that are being sent now, and until what was noted of them lasts: one
    /// that arrived and is not noted is sent again after the restart. Those of receivers that do not answer wait for the next
    /// start.
    pub(crate) async fn settle(&self) {
        let mut quiet = 0;
        while quiet < QUIET_LOOKS && self.metrics.queue.load(Relaxed) > 0 {
            tokio::time::sleep(LOOK).await;
            quiet = if self.metrics.sending.load(Relaxed) > 0 { 0 } else { quiet + 1 };
        }
        // What was queued before is written with it, or has failed.
        let _ = self.kept.put(Vec::new()).durable().await;
    }

    /// Begins the flushes that are due. What mutes is found without the lock, so that alerts come in meanwhile.
    pub(super) fn flush_due(self: &Arc<Self>) {
        let (seen, flushes) = {
            let mut state = self.state.lock();
            self.heed_leap(&mut state);
            let (policy, now) = (self.policy(), self.now());
            let flushes = state.dispatcher.take_due(now);
            if flushes.is_empty() {
                return;
            }
            (AlertSnapshot::of_flush(&state, policy, now), flushes)
        };
        seen.muting(|muting| {
            for flush in flushes {
                let passed = muting.pass(&flush);
                let mut state = self.state.lock();
                let changes = state.note_inhibited(&flush, &passed, &self.metrics.history);
                if !changes.is_empty() {
                    drop(self.kept.put(changes));
                }
                drop(state);
                let (router, policy) = (Arc::clone(self), Arc::clone(&seen.policy));
                tokio::spawn(router.flush(policy, flush, passed.alerts));
            }
        });
    }

    /// The places for flushes to a receiver. Each receiver has its own: one that does not answer keeps no other waiting.
    pub(super) fn places_of(&self, receiver: &str) -> Arc<Semaphore> {
        let mut places = self.places.lock();
        if let Some(there) = places.get(receiver) {
            return Arc::clone(there);
        }
        // Those of receivers that are gone are held by nobody.
        places.retain(|_, there| Arc::strong_count(there) > 1);
        let made = Arc::new(Semaphore::new(FLUSHES_MAX));
        places.insert(receiver.to_owned(), Arc::clone(&made));
        made
    }

    /// Renders the labels of a route over the alerts of a group, whatever mutes them.
    pub(super) fn route_labels(
        &self,
        policy: &Policy,
        options: &RouteOptions,
        (group_labels, alerts): (&LabelSet, &[Alert]),
        at: i64,
    ) -> BTreeMap<String, String> {
        let (receiver, external_url) = (options.receiver.as_str(), self.settings.external_url.as_str());
        let route_labels = &options.labels;
        let data = MessageData { receiver, alerts, group_labels, route_labels, reason: "", external_url, now_ns: at };
        data.route_texts(&policy.templates, &mut |label, error| {
            tracing::warn!(receiver, label, error, "a label of a route is left out, as its template fails");
        })
    }

    /// Runs one flush to its end, whatever happens in it.
    async fn flush(self: Arc<Self>, policy: Arc<Policy>, flush: Flush, alerts: Vec<Alert>) {
        self.metrics.queue.fetch_add(1, Relaxed);
        let flush = Arc::new(flush);
        // A separate task, so that a panic ends the flush, too: otherwise the group would never be notified again.
        let telling = tokio::spawn(Arc::clone(&self).tell_all(policy, Arc::clone(&flush), alerts));
        let outcome = telling.await.unwrap_or_else(|error| {
            tracing::error!(%error, receiver = flush.options.receiver, "a flush met a fault of ours");
            FlushOutcome::Failed
        });
        self.metrics.queue.fetch_sub(1, Relaxed);
        let mut state = self.state.lock();
        let gone = state.dispatcher.end_flush(&flush, outcome);
        if !gone.is_empty() {
            let changes = gone.iter().map(|labels| Change::remove(RowKind::Alert, labels.canonical())).collect();
            drop(self.kept.put(changes));
            state.drop_notes(&gone);
        }
        self.metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        drop(state);
        self.wake.notify_one();
    }

    /// Notifies all integrations of a receiver at once.
    async fn tell_all(self: Arc<Self>, policy: Arc<Policy>, flush: Arc<Flush>, alerts: Vec<Alert>) -> FlushOutcome {
        // Nobody closes them.
        let _place = self.places_of(&flush.options.receiver).acquire_owned().await;
        let receiver = policy.config.receiver(&flush.options.receiver);
        let integrations = receiver.map_or(&[][..], |r| &r.integrations);
        let news = News { policy: &policy, flush: &flush, alerts: &alerts, route_labels: OnceLock::new() };
        let told = integrations.iter().map(|integration| self.tell(&news, integration));
        let is_told = join_all(told).await.into_iter().all(|well| well);
        if is_told { FlushOutcome::Succeeded } else { FlushOutcome::Failed }
    }

    /// Tells one integration, if there is anything to tell; says whether all went well.
    async fn tell(&self, news: &News<'_>, integration: &Integration) -> bool {
        let News { policy, flush, alerts, route_labels } = news;
        let key = LogKey {
            group_key: flush.key.clone(),
            receiver: flush.options.receiver.clone(),
            integration: integration.kind.name.to_owned(),
            idx: integration.idx,
        };
        let (resolved, repeat) = (integration.send_resolved(), flush.options.repeat_interval_ms);
        let decision = self.state.lock().log.decide(&key, alerts, resolved, repeat, flush.at);
        let Some(Decision { reason, alerts, mut entry }) = decision else { return true };
        if !alerts.is_empty() {
            let rendered =
                || self.route_labels(policy, &flush.options, (&flush.labels, flush.alerts.as_slice()), flush.at);
            let message = Message {
                receiver: key.receiver.clone(),
                group_key: flush.key.clone(),
                group_labels: flush.labels.clone(),
                route_labels: route_labels.get_or_init(rendered).clone(),
                reason: reason.as_str().to_owned(),
                alerts,
                now: flush.at,
                external_url: self.settings.external_url.clone(),
                instance: self.instance.clone(),
                templates: policy.templates.clone(),
                said: entry.said.clone(),
            };
            let interval = Duration::from_millis(flush.options.group_interval_ms.max(0).unsigned_abs());
            let budget = interval.max(BUDGET_MIN);
            failpoint::hit("alerts.before-message");
            match self.sender.tell(&message, integration, &self.files, budget).await {
                Ok(taken) => entry.said.extend(taken.said),
                Err(failure) => {
                    let (receiver, kind) = (&key.receiver, integration.kind.name);
                    if let Some(left_out) = UNTOLD.turn(&format!("{receiver} {kind} {}", key.idx)) {
                        let idx = key.idx;
                        tracing::warn!(receiver, kind, idx, left_out, error = %failure, "a receiver was not told");
                    }
                    return false;
                }
            }
            failpoint::hit("alerts.after-message");
        }
        let change = Change::set(RowKind::Told, records::log_entry_key(&key), &records::log_entry(&entry));
        let writing = {
            let mut state = self.state.lock();
            state.log.set(key, entry);
            self.kept.put_surely(vec![change])
        };
        // A row that is not written before a restart repeats a message; that is logged where it happens.
        let _ = writing.durable().await;
        failpoint::hit("alerts.after-log");
        true
    }
}
