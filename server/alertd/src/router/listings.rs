//! Lists current alerts and groups for the API. Which of them are muted is computed without the lock and in small
//! batches: with very many alerts and silences it takes long, and routing must go on meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quiver_alerting::dispatch::{Alert, AlertMuter, GroupView, SilenceIndex, are_templates};
use quiver_alerting::inhibition::Inhibitor;
use quiver_alerting::labels::{compare, compare_alerts, fingerprint};
use quiver_alerting::routes::{Route, RouteOptions};
use quiver_types::{LabelSet, Result};

use super::{Router, State};
use crate::policy::Policy;

/// State of an alert as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertState {
    /// Receivers are told of it.
    Active,
    /// They are not.
    Suppressed,
}

impl AlertState {
    /// Gives the word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Suppressed => "suppressed",
        }
    }
}

/// An alert with all that is known of it.
#[derive(Debug, Clone)]
pub struct AlertRow {
    /// The alert as the router last heard of it.
    pub alert: Alert,
    /// Receivers of the routes that it takes.
    pub receivers: Vec<String>,
    /// Whether receivers are told of it now.
    pub state: AlertState,
    /// Ids of silences that cover it.
    pub silenced_by: Vec<Arc<str>>,
    /// Fingerprints of alerts that mute it.
    pub inhibited_by: Vec<u64>,
    /// Intervals that mute its route; in groups only.
    pub muted_by: Vec<String>,
}

/// A group.
#[derive(Debug, Clone)]
pub struct GroupRow {
    /// Labels of the group.
    pub labels: LabelSet,
    /// Labels of the route, rendered over all alerts of the group that the caller may see.
    pub route_labels: BTreeMap<String, String>,
    /// Name of the receiver that is told.
    pub receiver: String,
}

/// A piece of a list of groups.
#[derive(Debug, Clone)]
pub enum GroupPiece {
    /// A group begins.
    Group(GroupRow),
    /// An alert of it, in the order of messages.
    Alert(AlertRow),
}

/// Which alerts are asked for by what mutes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the filters of Alertmanager's API")]
pub struct AlertStateFilter {
    /// Those that nothing mutes.
    pub active: bool,
    /// Those that a silence covers.
    pub silenced: bool,
    /// Those that are muted by an alert that fires.
    pub inhibited: bool,
    /// Those whose route is muted.
    pub muted: bool,
}

impl AlertStateFilter {
    /// Says whether an alert is asked for. That its route is muted makes it none that something else mutes.
    fn wants(self, silenced: impl FnOnce() -> bool, inhibited: impl FnOnce() -> bool) -> bool {
        if self.active && self.silenced && self.inhibited {
            return true;
        }
        let (silenced, inhibited) = (silenced(), inhibited());
        (self.active || silenced || inhibited) && (self.silenced || !silenced) && (self.inhibited || !inhibited)
    }
}

/// Which alerts are asked for.
pub struct AlertFilter<'a> {
    /// Whether those that are muted in one way or another are asked for.
    pub shown: AlertStateFilter,
    /// Says of the labels of an alert whether it is asked for.
    pub labels: &'a dyn Fn(&LabelSet) -> bool,
    /// Whether the caller may see an alert with these labels, requested or not.
    pub sees: &'a dyn Fn(&LabelSet) -> bool,
    /// Says of the name of a receiver whether its alerts are asked for.
    pub receiver: &'a dyn Fn(&str) -> bool,
    /// Asked before each alert: an error ends the list.
    pub go_on: &'a dyn Fn() -> Result<()>,
}

impl std::fmt::Debug for AlertFilter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlertFilter").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// What is looked at while alerts and silences change.
#[derive(Debug)]
pub(super) struct AlertSnapshot {
    pub(super) policy: Arc<Policy>,
    at: i64,
    live: Vec<LabelSet>,
    silences: Vec<Arc<quiver_alerting::silences::Silence>>,
}

impl AlertSnapshot {
    /// Takes it from the state under whose lock the policy was read.
    pub(super) fn of(state: &State, policy: Arc<Policy>, at: i64) -> Self {
        Self { policy, at, live: state.dispatcher.live(at), silences: state.silences.active(at) }
    }

    /// Takes it for groups that are told: other alerts count only where they inhibit.
    pub(super) fn of_flush(state: &State, policy: Arc<Policy>, at: i64) -> Self {
        let inhibits = !policy.config.inhibit_rules.is_empty();
        let live = if inhibits { state.dispatcher.live(at) } else { Vec::new() };
        Self { policy, at, live, silences: state.silences.active(at) }
    }

    /// Calls with all that mutes.
    pub(super) fn muting<T>(&self, call: impl FnOnce(&AlertMuter<'_>) -> T) -> T {
        let config = &self.policy.config;
        let (inhibitor, silences) =
            (Inhibitor::new(&config.inhibit_rules, &self.live), SilenceIndex::new(&self.silences));
        call(&AlertMuter { inhibitor: &inhibitor, silences: &silences, intervals: &config.time_intervals })
    }
}

fn row(muting: &AlertMuter<'_>, alert: Alert, receivers: Vec<String>, muted_by: &[String]) -> AlertRow {
    let silenced_by = muting.silences.by(&alert.labels);
    let inhibited_by: Vec<u64> = muting.inhibitor.inhibited_by(&alert.labels).into_iter().collect();
    let is_muted = !silenced_by.is_empty() || !inhibited_by.is_empty() || !muted_by.is_empty();
    let state = if is_muted { AlertState::Suppressed } else { AlertState::Active };
    AlertRow { alert, receivers, state, silenced_by, inhibited_by, muted_by: muted_by.to_vec() }
}

impl AlertFilter<'_> {
    /// Says whether an alert is asked for by its labels and what mutes it.
    fn wants(&self, muting: &AlertMuter<'_>, labels: &LabelSet) -> bool {
        let (silenced, inhibited) =
            (|| muting.silences.covers(labels), || muting.inhibitor.inhibited_by(labels).is_some());
        (self.labels)(labels) && self.shown.wants(silenced, inhibited)
    }
}

/// Alerts that are looked up at once: each may have 64 KiB.
const AT_ONCE: usize = 64;

/// Gives the receivers of the routes that labels take, one for each route.
pub(crate) fn receivers(route: &Route, labels: &LabelSet) -> Vec<String> {
    route.matching(labels).into_iter().map(|route| route.options.receiver.clone()).collect()
}

/// A group of which alerts are asked for.
struct Group<'a> {
    labels: LabelSet,
    options: &'a RouteOptions,
    muted_by: Vec<String>,
    alerts: Vec<LabelSet>,
    /// Where labels of its route are templates: what these are rendered over.
    seen: Vec<LabelSet>,
}

impl Router {
    /// Takes what mutes now, and something else of the same moment.
    fn seen<T>(&self, also: impl FnOnce(&State, i64) -> T) -> (AlertSnapshot, T) {
        let state = self.state.lock();
        let (policy, now) = (self.policy(), self.now());
        (AlertSnapshot::of(&state, policy, now), also(&state, now))
    }

    /// Gives what is known of some alerts that have not ended.
    fn known(&self, labels: &[&LabelSet], now: i64) -> Vec<Alert> {
        let state = self.state.lock();
        let known = labels.iter().filter_map(|labels| state.dispatcher.alert(labels));
        known.filter(|a| !a.is_resolved(now)).cloned().collect()
    }

    /// Gives the labels of the alerts that have not ended.
    pub fn live(&self) -> Vec<LabelSet> {
        let now = self.now();
        self.state.lock().dispatcher.live(now)
    }

    /// Calls with each alert that has not ended, by fingerprint. It may take long where there are many silences that want no
    /// label to be equal to something.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_alert(&self, asked: &AlertFilter<'_>, each: &mut dyn FnMut(AlertRow) -> Result<()>) -> Result<()> {
        let (seen, ()) = self.seen(|_, _| ());
        let routes = seen.policy.config.routes();
        seen.muting(|muting| {
            let mut live: Vec<&LabelSet> = Vec::new();
            for labels in &seen.live {
                (asked.go_on)()?;
                if asked.wants(muting, labels) {
                    live.push(labels);
                }
            }
            live.sort_by_cached_key(|labels| fingerprint(labels));
            for some in live.chunks(AT_ONCE) {
                for alert in self.known(some, seen.at) {
                    (asked.go_on)()?;
                    let receivers = receivers(&routes, &alert.labels);
                    if receivers.iter().any(|name| (asked.receiver)(name)) {
                        each(row(muting, alert, receivers, &[]))?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Calls with the groups that have alerts which have not ended, by labels and receiver, and behind each with these.
    /// Receivers of an alert are those of the groups asked for that hold it.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each_group(&self, asked: &AlertFilter<'_>, each: &mut dyn FnMut(GroupPiece) -> Result<()>) -> Result<()> {
        let (seen, groups) = self.seen(|state, now| {
            let live = |g: GroupView<'_>| {
                let live = g.alerts().filter(|a| !a.is_resolved(now)).map(|a| a.labels.clone());
                (g.route, g.labels.clone(), live.collect::<Vec<LabelSet>>())
            };
            state.dispatcher.groups().map(live).collect::<Vec<_>>()
        });
        let routes = seen.policy.config.routes();
        let mut options = BTreeMap::new();
        routes.walk(&mut |route| {
            options.insert(route.idx, &route.options);
        });
        seen.muting(|muting| {
            let mut shown: Vec<Group<'_>> = Vec::new();
            let mut held: HashMap<LabelSet, Vec<&str>> = HashMap::new();
            for (route, labels, live) in groups {
                let Some(options) = options.get(&route).copied().filter(|o| (asked.receiver)(&o.receiver)) else {
                    continue;
                };
                let muted_by = muting.muted_by(options, seen.at);
                let renders = are_templates(&options.labels);
                let mut group = Group { labels, options, muted_by, alerts: Vec::new(), seen: Vec::new() };
                for labels in live {
                    (asked.go_on)()?;
                    if renders && (asked.sees)(&labels) {
                        group.seen.push(labels.clone());
                    }
                    if asked.wants(muting, &labels) {
                        held.entry(labels.clone()).or_default().push(&options.receiver);
                        group.alerts.push(labels);
                    }
                }
                if !group.alerts.is_empty() && (asked.shown.muted || group.muted_by.is_empty()) {
                    group.alerts.sort_by(compare_alerts);
                    group.seen.sort_by(compare_alerts);
                    shown.push(group);
                }
            }
            for names in held.values_mut() {
                names.sort_unstable();
            }
            shown.sort_by(|a, b| {
                compare(&a.labels, &b.labels).then_with(|| a.options.receiver.cmp(&b.options.receiver))
            });
            shown.iter().try_for_each(|group| self.tell_group(group, (&seen, muting), &held, asked, each))
        })
    }

    fn tell_group(
        &self,
        group: &Group<'_>,
        (snapshot, muting): (&AlertSnapshot, &AlertMuter<'_>),
        held: &HashMap<LabelSet, Vec<&str>>,
        asked: &AlertFilter<'_>,
        each: &mut dyn FnMut(GroupPiece) -> Result<()>,
    ) -> Result<()> {
        let at = snapshot.at;
        let mut over = Vec::with_capacity(group.seen.len());
        for some in group.seen.iter().collect::<Vec<_>>().chunks(AT_ONCE) {
            (asked.go_on)()?;
            over.extend(self.known(some, at));
        }
        let route_labels = self.route_labels(&snapshot.policy, group.options, (&group.labels, &over), at);
        let receiver = group.options.receiver.clone();
        each(GroupPiece::Group(GroupRow { labels: group.labels.clone(), route_labels, receiver }))?;
        let alerts: Vec<&LabelSet> = group.alerts.iter().collect();
        for some in alerts.chunks(AT_ONCE) {
            for alert in self.known(some, at) {
                (asked.go_on)()?;
                let names = held.get(&alert.labels).into_iter().flatten().map(|name| (*name).to_owned()).collect();
                each(GroupPiece::Alert(row(muting, alert, names, &group.muted_by)))?;
            }
        }
        Ok(())
    }
}

/// A route that an alert would take.
#[derive(Debug, Clone)]
pub struct RouteMatch {
    /// Places from the root on: `root`, `root/0`, `root/0/2`.
    pub path: Vec<String>,
    /// Key of the group that it would be in.
    pub group_key: String,
    /// Options of the route.
    pub options: RouteOptions,
    /// Intervals that mute it at the time.
    pub muted: Vec<String>,
    /// Fingerprints of alerts that mute it.
    pub inhibited_by: Vec<u64>,
    /// Ids of silences over the time.
    pub silenced_by: Vec<String>,
}

/// Finds the places of routes by their numbers: ids from the root on, or where they stand when they have none.
fn places(route: &Route, ids: &[String], (above, own): (&[String], String), out: &mut BTreeMap<usize, Vec<String>>) {
    let id = ids.get(route.idx).cloned().unwrap_or_else(|| own.clone());
    let path = [above, &[id]].concat();
    for (i, child) in route.routes.iter().enumerate() {
        places(child, ids, (&path, format!("{own}/{i}")), out);
    }
    out.insert(route.idx, path);
}

impl Router {
    /// Says which routes labels would take, and what would mute them at a time.
    pub fn test_route(&self, labels: &LabelSet, at: i64) -> Vec<RouteMatch> {
        let (seen, silenced) = self.seen(|state, _| {
            state.silences.silenced_by(labels, at).into_iter().map(str::to_owned).collect::<Vec<String>>()
        });
        let routes = seen.policy.config.routes();
        seen.muting(|muting| {
            let mut paths = BTreeMap::new();
            places(&routes, &seen.policy.route_ids, (&[], "root".to_owned()), &mut paths);
            let inhibited: Vec<u64> = muting.inhibitor.inhibited_by(labels).into_iter().collect();
            let found = routes.matching(labels).into_iter().map(|route| RouteMatch {
                path: paths.get(&route.idx).cloned().unwrap_or_default(),
                group_key: route.group_key(&route.group_labels(labels)),
                options: route.options.clone(),
                muted: muting.muted_by(&route.options, at),
                inhibited_by: inhibited.clone(),
                silenced_by: silenced.clone(),
            });
            found.collect()
        })
    }
}
