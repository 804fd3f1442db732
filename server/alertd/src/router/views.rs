//! Alerts and groups as they are now, for who asks.

use std::collections::{BTreeMap, HashMap};

use quiver_alerting::dispatch::{Alert, Muting};
use quiver_alerting::inhibit::Inhibitor;
use quiver_alerting::labels::{compare, compare_alerts, fingerprint};
use quiver_alerting::routes::{Route, RouteOptions};
use quiver_types::LabelSet;

use super::Router;

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
    pub silenced_by: Vec<String>,
    /// Fingerprints of alerts that mute it.
    pub inhibited_by: Vec<u64>,
    /// Intervals that mute its route; in groups only.
    pub muted_by: Vec<String>,
}

/// A group with its alerts.
#[derive(Debug, Clone)]
pub struct GroupRow {
    /// Labels of the group.
    pub labels: LabelSet,
    /// Labels of the route.
    pub route_labels: BTreeMap<String, String>,
    /// Name of the receiver that is told.
    pub receiver: String,
    /// Its alerts, in the order of messages.
    pub alerts: Vec<AlertRow>,
}

/// Which alerts are asked for by what mutes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "the filters of Alertmanager's API")]
pub struct Shown {
    /// Those that nothing mutes.
    pub active: bool,
    /// Those that a silence covers.
    pub silenced: bool,
    /// Those that are muted by an alert that fires.
    pub inhibited: bool,
    /// Those whose route is muted.
    pub muted: bool,
}

impl Shown {
    /// Says whether an alert is asked for. That its route is muted makes it none that something else mutes.
    fn wants(self, row: &AlertRow) -> bool {
        let (silenced, inhibited) = (!row.silenced_by.is_empty(), !row.inhibited_by.is_empty());
        (self.active || silenced || inhibited) && (self.silenced || !silenced) && (self.inhibited || !inhibited)
    }
}

/// Which alerts are asked for.
pub struct Asked<'a> {
    /// Whether those that are muted in one way or another are asked for.
    pub shown: Shown,
    /// Says of the labels of an alert whether it is asked for.
    pub labels: &'a dyn Fn(&LabelSet) -> bool,
    /// Says of the name of a receiver whether its alerts are asked for.
    pub receiver: &'a dyn Fn(&str) -> bool,
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("shown", &self.shown).finish_non_exhaustive()
    }
}

fn row(muting: &Muting<'_>, alert: &Alert, receivers: Vec<String>, muted_by: &[String], now: i64) -> AlertRow {
    let silenced_by: Vec<String> =
        muting.silences.silenced_by(&alert.labels, now).into_iter().map(str::to_owned).collect();
    let inhibited_by: Vec<u64> = muting.inhibitor.inhibited_by(&alert.labels).into_iter().collect();
    let is_muted = !silenced_by.is_empty() || !inhibited_by.is_empty() || !muted_by.is_empty();
    let state = if is_muted { AlertState::Suppressed } else { AlertState::Active };
    AlertRow { alert: alert.clone(), receivers, state, silenced_by, inhibited_by, muted_by: muted_by.to_vec() }
}

/// Gives the receivers of the routes that labels take, one for each route.
pub(crate) fn receivers(route: &Route, labels: &LabelSet) -> Vec<String> {
    route.matching(labels).into_iter().map(|route| route.options.receiver.clone()).collect()
}

impl Router {
    /// Calls with all that mutes now.
    pub(crate) fn with_muting<T>(&self, call: impl FnOnce(&Muting<'_>, &super::Dispatcher, i64) -> T) -> T {
        let (policy, now) = (self.policy(), self.now());
        let state = self.state.lock();
        let firing = state.dispatcher.alerts().filter(|a| !a.is_resolved(now)).map(|a| &a.labels);
        let inhibitor = Inhibitor::new(&policy.config.inhibit_rules, firing);
        let intervals = &policy.config.time_intervals;
        let muting = Muting { inhibitor: &inhibitor, silences: &state.silences, intervals };
        call(&muting, &state.dispatcher, now)
    }

    /// Gives the alerts that have not ended, by fingerprint.
    pub fn alerts(&self, asked: &Asked<'_>) -> Vec<AlertRow> {
        let mut out = self.with_muting(|muting, dispatcher, now| {
            let live = dispatcher.alerts().filter(|a| !a.is_resolved(now) && (asked.labels)(&a.labels));
            let rows = live.map(|a| row(muting, a, receivers(dispatcher.route(), &a.labels), &[], now));
            let wanted =
                |row: &AlertRow| asked.shown.wants(row) && row.receivers.iter().any(|name| (asked.receiver)(name));
            rows.filter(wanted).collect::<Vec<_>>()
        });
        out.sort_by_cached_key(|row| fingerprint(&row.alert.labels));
        out
    }

    /// Gives the groups with alerts that have not ended, by labels and receiver. Receivers of an alert are those of the
    /// groups asked for that hold it.
    pub fn groups(&self, asked: &Asked<'_>) -> Vec<GroupRow> {
        let mut out = self.with_muting(|muting, dispatcher, now| {
            let mut options = BTreeMap::new();
            dispatcher.route().walk(&mut |route| {
                options.insert(route.idx, &route.options);
            });
            let mut out: Vec<GroupRow> = Vec::new();
            let mut held: HashMap<u64, Vec<String>> = HashMap::new();
            for group in dispatcher.groups() {
                let Some(options) = options.get(&group.route).filter(|o| (asked.receiver)(&o.receiver)) else {
                    continue;
                };
                let muted_by = muting.muted_by(options, now);
                let live = group.alerts().filter(|a| !a.is_resolved(now) && (asked.labels)(&a.labels));
                let rows = live.map(|a| row(muting, a, Vec::new(), &muted_by, now));
                let mut alerts: Vec<AlertRow> = rows.filter(|row| asked.shown.wants(row)).collect();
                for row in &alerts {
                    held.entry(fingerprint(&row.alert.labels)).or_default().push(options.receiver.clone());
                }
                if alerts.is_empty() || (!asked.shown.muted && !muted_by.is_empty()) {
                    continue;
                }
                alerts.sort_by(|a, b| compare_alerts(&a.alert.labels, &b.alert.labels));
                let (labels, route_labels) = (group.labels.clone(), options.labels.clone());
                out.push(GroupRow { labels, route_labels, receiver: options.receiver.clone(), alerts });
            }
            for names in held.values_mut() {
                names.sort();
            }
            for group in &mut out {
                for row in &mut group.alerts {
                    row.receivers = held.get(&fingerprint(&row.alert.labels)).cloned().unwrap_or_default();
                }
            }
            out
        });
        out.sort_by(|a, b| compare(&a.labels, &b.labels).then_with(|| a.receiver.cmp(&b.receiver)));
        out
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
        self.with_muting(|muting, dispatcher, _| {
            let mut paths = BTreeMap::new();
            let ids = self.policy().route_ids.clone();
            places(dispatcher.route(), &ids, (&[], "root".to_owned()), &mut paths);
            let silenced: Vec<String> =
                muting.silences.silenced_by(labels, at).into_iter().map(str::to_owned).collect();
            let inhibited: Vec<u64> = muting.inhibitor.inhibited_by(labels).into_iter().collect();
            let matching = dispatcher.route().matching(labels).into_iter();
            let found = matching.map(|route| RouteMatch {
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
