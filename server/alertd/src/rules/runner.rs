//! The task that evaluates one group at its interval.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use quiver_alerting::dispatch::Alert;
use quiver_alerting::rules::{Group, Health};
use quiver_types::{Clock, Millis};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::alert::to_router;
use super::group::{Engines, GroupContext, GroupView, RuleSettings, Source};
use super::records::Names;
use super::rule_state::{StoredDigests, StoredRuleStates};
use crate::background::REST;
use crate::failpoint;
use crate::history::Record;
use crate::metrics::AlertMetrics;
use crate::router::{LEAP_MS, Router};

/// What a group is told.
#[derive(Debug)]
pub(super) enum Command {
    /// It is another one now.
    Change(Box<Source>),
    /// It is gone.
    End,
}

/// Everything that a group needs to run.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) settings: Arc<RuleSettings>,
    pub(super) engines: Arc<dyn Engines>,
    pub(super) router: Arc<Router>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<AlertMetrics>,
    pub(super) places: Arc<Semaphore>,
    pub(super) memory: Arc<StoredRuleStates>,
    pub(super) view: Arc<ArcSwap<GroupView>>,
    /// By whom its queries have their rights.
    pub(super) editors: Vec<String>,
    /// Ids of its rules, where they are stored.
    pub(super) ids: Vec<String>,
}

/// Least time of a query, where the interval is short.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Where in time a group is.
#[derive(Debug)]
struct Times {
    /// The cycle that was evaluated or left out last.
    last: Millis,
    wall: Millis,
    passed: Duration,
}

impl Runner {
    /// Evaluates the group when it is due, until it ends or `stop`.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>, stop: CancellationToken) {
        // Pending alerts were moved by the time down: from now on they are kept so, or the next restart would move them by
        // too little.
        let restored = self.view.load();
        let now = self.clock.now_ms();
        let mut kept = self.memory.keep(&restored.file, &restored.group, &StoredDigests::new(), now);
        drop(restored);
        let mut times = Times {
            last: self.view.load().group.due_at(self.clock.now_ms()),
            wall: self.clock.now_ms(),
            passed: self.clock.elapsed(),
        };
        loop {
            let interval = self.view.load().group.interval_ms.max(1);
            let left = times.last.saturating_add(interval).saturating_sub(self.clock.now_ms());
            // The clock may have leapt back since the last evaluation looked at it, by any time.
            let wait = Duration::from_millis(left.clamp(0, interval).unsigned_abs());
            tokio::select! {
                () = stop.cancelled() => return,
                command = inbox.recv() => match command {
                    Some(Command::Change(source)) => {
                        self.change(*source, &mut times, &mut kept);
                        self.end_disabled_rules(&mut kept).await;
                    }
                    Some(Command::End) | None => {
                        self.end(&mut kept).await;
                        return;
                    }
                },
                () = tokio::time::sleep(wait) => self.due_or_fault(&mut times, &mut kept, &stop).await,
            }
        }
    }

    fn change(&mut self, source: Source, times: &mut Times, kept: &mut StoredDigests) {
        let former = GroupView::clone(&self.view.load());
        let mut group = Group::new(source.group, self.settings.interval_ms);
        let same_beat = (group.interval_ms, group.model.eval_offset_ms)
            == (former.group.interval_ms, former.group.model.eval_offset_ms);
        let now = self.clock.now_ms();
        // Receivers are told nothing: what the rules say now goes on under the same labels, or ends at its `endsAt`.
        let gone = group.take_over(former.group);
        self.metrics.history.note(self.names(&former.file).gone(&group, &gone, now));
        *kept = self.memory.keep(&former.file, &group, kept, now);
        (self.editors, self.ids) = (source.editors, source.ids);
        if !same_beat {
            times.last = group.due_at(now);
        }
        self.view.store(Arc::new(GroupView { group, rights: source.rights.into(), ..former }));
    }

    /// Evaluates if the time has come. A fault of ours ends a cycle, not the group.
    async fn due_or_fault(&self, times: &mut Times, kept: &mut StoredDigests, stop: &CancellationToken) {
        if AssertUnwindSafe(self.due(times, kept, stop)).catch_unwind().await.is_ok() {
            return;
        }
        {
            let view = self.view.load();
            let group = view.group.model.name.as_str();
            tracing::error!(file = view.file, group, "a rule group met a fault of ours, and goes on");
        }
        self.metrics.background.failed("evaluation of rules");
        // What fails before the cycle counts would fail again at once.
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(REST) => {}
        }
    }

    /// Evaluates if the time has come.
    async fn due(&self, times: &mut Times, kept: &mut StoredDigests, stop: &CancellationToken) {
        self.heed_leaps(times);
        let interval = self.view.load().group.interval_ms.max(1);
        if self.clock.now_ms() < times.last.saturating_add(interval) {
            return;
        }
        let place = tokio::select! {
            () = stop.cancelled() => return,
            place = Arc::clone(&self.places).acquire_owned() => place,
        };
        let Ok(_place) = place else { return };
        let now = self.clock.now_ms();
        let at = self.view.load().group.due_at(now);
        let missed = ((at - times.last) / interval - 1).max(0).unsigned_abs();
        times.last = at;
        self.metrics.missed.fetch_add(missed, Relaxed);
        self.metrics.start_delay.observe(Duration::from_millis((now - at).max(0).unsigned_abs()));
        self.evaluate(at, missed, kept, false).await;
    }

    /// Moves alerts with the clock where it has leapt.
    fn heed_leaps(&self, times: &mut Times) {
        let (wall, passed) = (self.clock.now_ms(), self.clock.elapsed());
        let spent = i64::try_from(passed.saturating_sub(times.passed).as_millis()).unwrap_or(i64::MAX);
        let leap = (wall - times.wall).saturating_sub(spent);
        (times.wall, times.passed) = (wall, passed);
        if leap.abs() <= LEAP_MS {
            return;
        }
        let mut view = GroupView::clone(&self.view.load());
        view.group.shift(leap);
        times.last = view.group.due_at(wall).min(times.last.saturating_add(leap));
        // No cycle was left out while the clock leapt.
        times.last = times.last.max(view.group.due_at(wall) - view.group.interval_ms.max(1));
        self.view.store(Arc::new(view));
    }

    async fn evaluate(&self, at: Millis, missed: u64, kept: &mut StoredDigests, ending: bool) {
        let former = self.view.load_full();
        let (before, started_at) = (&former.group, self.clock.now_ms());
        let fresh = || {
            let mut group = before.clone();
            if ending {
                group.rules.iter_mut().for_each(|status| status.rule.enabled = false);
            }
            group
        };
        let asker = self.asker(&former);
        let began = Instant::now();
        let group = self.cycle(fresh(), at, &asker).await.unwrap_or_else(|| {
            let told = Health::Err("a fault of ours, see the log".to_owned());
            let mut group = fresh();
            group.rules.iter_mut().for_each(|status| status.health = told.clone());
            group
        });
        failpoint::hit("rules.after-evaluation");
        let view = GroupView {
            file: former.file.clone(),
            group,
            rights: Arc::clone(&former.rights),
            last_evaluation: Some(at),
            evaluation_time: began.elapsed(),
            missed: former.missed + missed,
        };
        let failed = view.group.rules.iter().filter(|r| r.rule.enabled && matches!(r.health, Health::Err(_))).count();
        self.metrics.rule_failures.fetch_add(failed as u64, Relaxed);
        self.metrics.evaluations.fetch_add(1, Relaxed);
        self.metrics.group_time.observe(view.evaluation_time);
        let evaluations = self.names(&view.file).evaluations(&view.group, (at, started_at), missed);
        self.hand_on(view, before, evaluations, (at, kept)).await;
    }

    /// Ends at once what rules left that were disabled.
    async fn end_disabled_rules(&self, kept: &mut StoredDigests) {
        let former = self.view.load_full();
        if !former.group.has_left() {
            return;
        }
        let engine = self.engines.engine(&self.asker(&former));
        let (at, mut group) = (self.clock.now_ms(), former.group.clone());
        let ended = tokio::task::spawn_blocking(move || {
            group.end_disabled_rules(at, &*engine);
            group
        });
        match ended.await {
            Ok(group) => {
                let view = GroupView { group, ..GroupView::clone(&former) };
                self.hand_on(view, &former.group, Vec::new(), (at, kept)).await;
            }
            // The next cycle does it.
            Err(error) => tracing::error!(%error, file = former.file, "a rule group met a fault of ours"),
        }
    }

    fn asker(&self, view: &GroupView) -> GroupContext {
        let interval = Duration::from_millis(view.group.interval_ms.max(0).unsigned_abs());
        GroupContext {
            file: view.file.clone(),
            group: view.group.model.name.clone(),
            interval,
            timeout: interval.max(TIMEOUT_MIN),
            rights: view.rights.to_vec(),
            editors: self.editors.clone(),
            extra_labels: view.group.model.extra_labels(),
        }
    }

    fn names<'a>(&'a self, file: &'a str) -> Names<'a> {
        Names { file, ids: &self.ids, setting: &self.settings.setting, external_url: self.router.external_url() }
    }

    /// Tells the router, the history and what is kept how a group is now.
    async fn hand_on(
        &self,
        mut view: GroupView,
        before: &Group,
        evaluations: Vec<Record>,
        (at, kept): (Millis, &mut StoredDigests),
    ) {
        let sent = view.group.send(at, self.settings.resend_delay_ms, self.settings.error_hold_ms);
        let now = self.router.now();
        let alerts: Vec<Alert> = sent
            .iter()
            .filter_map(|s| {
                let rule = &view.group.rules.get(s.rule)?.rule;
                Some(to_router(&s.alert, &rule.expr, &self.settings.setting, self.router.external_url(), now))
            })
            .collect();
        let mut records = self.names(&view.file).events(before, &view.group, at);
        records.extend(evaluations);
        self.metrics.history.note(records);
        *kept = self.memory.keep(&view.file, &view.group, kept, at);
        let view = Arc::new(view);
        self.view.store(Arc::clone(&view));
        if let Err(error) = self.router.insert(alerts).await {
            // They come again with the next beat.
            let group = &view.group.model.name;
            tracing::warn!(%error, file = view.file, group, "alerts of rules are not stored");
        }
        failpoint::hit("rules.after-alerts");
    }

    /// Ends what the group left: series get staleness marks, alerts resolve.
    async fn end(&self, kept: &mut StoredDigests) {
        self.evaluate(self.clock.now_ms(), 0, kept, true).await;
    }
}
