//! Flushes: groups that are due pass what mutes, and each integration of their receiver is told what it does not know.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::join_all;
use quiver_alerting::dispatch::{Alert, Decision, Flush, LogKey, Muting, Passed};
use quiver_alerting::inhibit::Inhibitor;
use quiver_alerting::receivers::Integration;

use super::{Router, records};
use crate::deliver::Message;
use crate::failpoint;
use crate::kept::{Change, Kind};
use crate::policy::Policy;

/// Least time that all attempts of a flush have.
const BUDGET_MIN: Duration = Duration::from_secs(10);

impl Router {
    /// Begins the flushes that are due.
    pub(super) fn flush_due(self: &Arc<Self>) {
        let policy = self.policy();
        let now = self.now();
        let due: Vec<(Flush, Vec<Alert>)> = {
            let mut state = self.state.lock();
            let flushes = state.dispatcher.take_due(now);
            if flushes.is_empty() {
                return;
            }
            let firing = state.dispatcher.alerts().filter(|a| !a.is_resolved(now)).map(|a| &a.labels);
            let inhibitor = Inhibitor::new(&policy.config.inhibit_rules, firing);
            let intervals = &policy.config.time_intervals;
            let muting = Muting { inhibitor: &inhibitor, silences: &state.silences, intervals };
            let pass = |flush: Flush| {
                let passed = muting.pass(&flush);
                (flush, passed)
            };
            let judged: Vec<(Flush, Passed)> = flushes.into_iter().map(pass).collect();
            let changes = state.note_inhibited(&judged, &self.metrics.history);
            if !changes.is_empty() {
                drop(self.kept.put(changes));
            }
            judged.into_iter().map(|(flush, passed)| (flush, passed.alerts)).collect()
        };
        for (flush, alerts) in due {
            let (router, policy) = (Arc::clone(self), Arc::clone(&policy));
            tokio::spawn(async move { router.flush(&policy, flush, alerts).await });
        }
    }

    /// Runs one flush to its end, whatever happens in it.
    async fn flush(self: Arc<Self>, policy: &Policy, flush: Flush, alerts: Vec<Alert>) {
        self.metrics.queue.fetch_add(1, Relaxed);
        let receiver = policy.config.receiver(&flush.options.receiver);
        let integrations = receiver.map_or(&[][..], |r| &r.integrations);
        let told = integrations.iter().map(|integration| self.tell(policy, &flush, &alerts, integration));
        let well = join_all(told).await.into_iter().all(|well| well);
        self.metrics.queue.fetch_sub(1, Relaxed);
        let mut state = self.state.lock();
        let gone = state.dispatcher.done(&flush, well);
        if !gone.is_empty() {
            let changes = gone.iter().map(|labels| Change::remove(Kind::Alert, labels.canonical())).collect();
            drop(self.kept.put(changes));
            state.drop_notes(&gone);
        }
        self.metrics.alerts.store(state.dispatcher.alert_count() as u64, Relaxed);
        drop(state);
        self.wake.notify_one();
    }

    /// Tells one integration, if there is anything to tell; says whether all went well.
    async fn tell(&self, policy: &Policy, flush: &Flush, alerts: &[Alert], integration: &Integration) -> bool {
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
            let message = Message {
                receiver: key.receiver.clone(),
                group_key: flush.key.clone(),
                group_labels: flush.labels.clone(),
                route_labels: flush.options.labels.clone(),
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
                    tracing::warn!(receiver, kind, idx = key.idx, error = %failure, "a receiver was not told");
                    return false;
                }
            }
            failpoint::hit("alerts.after-message");
        }
        let change = Change::set(Kind::Told, records::told_key(&key), &records::told(&entry));
        let writing = {
            let mut state = self.state.lock();
            state.log.set(key, entry);
            self.kept.put(vec![change])
        };
        // A row that cannot be written repeats a message after a restart; that is logged where it happens.
        let _ = writing.durable().await;
        failpoint::hit("alerts.after-log");
        true
    }
}
