//! Alert groups, ordered by the time of their next flush. There may be as many groups as alerts, so due groups must be
//! found without visiting all of them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use quiver_types::LabelSet;

use super::Alert;
use crate::labels::compare_alerts;
use crate::routes::{Route, RouteOptions, TakenRoutes};

const MS: i64 = 1_000_000;

/// A group: alerts with equal group labels on one route.
#[derive(Debug, Clone)]
struct Group {
    id: u64,
    labels: LabelSet,
    key: String,
    alerts: BTreeMap<LabelSetKey, Alert>,
    next_flush: i64,
    /// When the running flush fell due; the next one waits until it ends.
    running: Option<i64>,
}

impl Group {
    /// When it is told next. While a flush runs, when that fell due, as it may never end.
    fn timer(&self) -> i64 {
        self.running.unwrap_or(self.next_flush)
    }
}

/// A label set in the order of its canonical bytes, which its copies share: an alert is in a group of each route.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelSetKey(LabelSet);

impl Ord for LabelSetKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.canonical().cmp(other.0.canonical())
    }
}

impl PartialOrd for LabelSetKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<[u8]> for LabelSetKey {
    fn borrow(&self) -> &[u8] {
        self.0.canonical()
    }
}

/// Where a group stands: index of its route, its labels.
type Place = (usize, LabelSetKey);

/// Changed timers by the keys of their groups; `None`: the group is gone.
pub type Timers = BTreeMap<String, Option<i64>>;

/// A flush that fell due: the current alerts of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// The group's unique number.
    pub group: u64,
    /// Index of the route.
    pub route: usize,
    /// Key of the group.
    pub key: String,
    /// The labels of `group_by` that its alerts share.
    pub labels: LabelSet,
    /// Options of the route.
    pub options: RouteOptions,
    /// Its alerts in the order of messages.
    pub alerts: Vec<Alert>,
    /// When it fell due; the states of alerts are those at this time.
    pub at: i64,
}

/// How a flush ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushOutcome {
    /// Every integration was notified, unless there was nothing new for it.
    Succeeded,
    /// Some integration could not be notified.
    Failed,
}

/// All groups of a routing tree.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    route: Route,
    /// The routes that its alerts take: a tree may have many that are asked for each alert.
    taken: TakenRoutes,
    /// Alerts that are firing, or whose end was not reported everywhere.
    alerts: BTreeMap<LabelSetKey, Alert>,
    /// Their memory in bytes.
    alert_bytes: usize,
    groups: BTreeMap<Place, Group>,
    groups_made: u64,
    /// Where groups stand, by their numbers.
    places: HashMap<u64, Place>,
    /// Next flushes of groups without a running one, with the numbers of the groups.
    due: BTreeSet<(i64, u64)>,
    /// Timers that changed since they were taken.
    changed: Timers,
}

/// A group for lists.
#[derive(Debug, Clone, Copy)]
pub struct GroupView<'a> {
    /// Index of the route.
    pub route: usize,
    /// Key of the group.
    pub key: &'a str,
    /// The labels of `group_by` that its alerts share.
    pub labels: &'a LabelSet,
    alerts: &'a BTreeMap<LabelSetKey, Alert>,
}

impl<'a> GroupView<'a> {
    /// Its alerts, ordered by labels.
    pub fn alerts(&self) -> impl Iterator<Item = &'a Alert> + use<'a> {
        self.alerts.values()
    }
}

impl Dispatcher {
    /// Makes one without alerts.
    pub fn new(route: Route) -> Self {
        Self {
            route,
            taken: TakenRoutes::new(),
            alerts: BTreeMap::new(),
            alert_bytes: 0,
            groups: BTreeMap::new(),
            groups_made: 0,
            places: HashMap::new(),
            due: BTreeSet::new(),
            changed: Timers::new(),
        }
    }

    /// The routing tree.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// All known alerts.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values()
    }

    /// Finds an alert by its labels.
    pub fn alert(&self, labels: &LabelSet) -> Option<&Alert> {
        self.alerts.get(labels.canonical())
    }

    /// Gives the labels of the alerts that have not ended.
    pub fn live(&self, now: i64) -> Vec<LabelSet> {
        self.alerts.values().filter(|a| !a.is_resolved(now)).map(|a| a.labels.clone()).collect()
    }

    /// Gives how many alerts are known.
    pub fn alert_count(&self) -> usize {
        self.alerts.len()
    }

    /// Their approximate memory in bytes.
    pub fn alert_bytes(&self) -> usize {
        self.alert_bytes
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = GroupView<'_>> {
        self.groups.iter().map(|((route, _), g)| GroupView {
            route: *route,
            key: &g.key,
            labels: &g.labels,
            alerts: &g.alerts,
        })
    }

    /// Adds a report of an alert; returns its merged state, and what its groups take ([`Route::groups_bytes`]).
    pub fn insert(&mut self, alert: Alert, now: i64) -> (Alert, usize) {
        let taken = self.taken(&alert.labels);
        self.insert_at(alert, taken, now)
    }

    /// Gives the numbers of the routes that labels take.
    pub fn taken(&self, labels: &LabelSet) -> Box<[usize]> {
        self.taken.get(labels).cloned().unwrap_or_else(|| self.route.numbers(labels))
    }

    /// As [`Self::insert`], at the routes that its labels take ([`Self::taken`]).
    pub fn insert_at(&mut self, alert: Alert, taken: Box<[usize]>, now: i64) -> (Alert, usize) {
        let key = LabelSetKey(alert.labels.clone());
        let alert = match self.alerts.get(&key).filter(|old| alert.overlaps(old) || old.overlaps(&alert)) {
            Some(old) => old.merge(&alert, now),
            None => alert,
        };
        self.alert_bytes += alert.bytes();
        if let Some(old) = self.alerts.insert(key, alert.clone()) {
            self.alert_bytes -= old.bytes();
        }
        self.taken.insert(alert.labels.clone(), taken);
        let bytes = self.place(&alert, now, &|_| true);
        (alert, bytes)
    }

    /// Puts an alert into its groups at the routes that are wanted; returns what its groups at all routes take.
    fn place(&mut self, alert: &Alert, now: i64, wanted: &dyn Fn(usize) -> bool) -> usize {
        let mut found = Vec::new();
        let taken = self.route.matching_known(&alert.labels, &self.taken);
        let bytes = Route::groups_bytes(&taken, &alert.labels);
        for route in taken.into_iter().filter(|r| wanted(r.idx)) {
            let labels = route.group_labels(&alert.labels);
            let wait = route.options.group_wait_ms.saturating_mul(MS);
            found.push((route.idx, route.group_key(&labels), labels, wait));
        }
        for (route, key, labels, wait) in found {
            let place = (route, LabelSetKey(labels.clone()));
            let group = self.groups.entry(place).or_insert_with_key(|place| {
                // An alert that has waited in another group need not wait again.
                let waited = alert.starts_at.saturating_add(wait) < now;
                let next_flush = if waited { now } else { now.saturating_add(wait) };
                self.groups_made += 1;
                let id = self.groups_made;
                self.places.insert(id, place.clone());
                self.due.insert((next_flush, id));
                self.changed.insert(key.clone(), Some(next_flush));
                Group { id, labels, key, alerts: BTreeMap::new(), next_flush, running: None }
            });
            group.alerts.insert(LabelSetKey(alert.labels.clone()), alert.clone());
        }
        bytes
    }

    /// When the next flush is due; that of a group whose flush is running is due after its end.
    pub fn next_due(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the flushes that are due, the longest due first, and restarts the timers of their groups. Each must be
    /// ended by [`Self::done`].
    pub fn take_due(&mut self, now: i64) -> Vec<Flush> {
        if self.next_due().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let mut routes = BTreeMap::new();
        self.route.walk(&mut |route| {
            routes.insert(route.idx, &route.options);
        });
        let later = self.due.split_off(&(now.saturating_add(1), 0));
        let mut out = Vec::new();
        for (_, id) in std::mem::replace(&mut self.due, later) {
            let Some(place) = self.places.get(&id) else { continue };
            let (Some(group), Some(options)) = (self.groups.get_mut(place), routes.get(&place.0)) else { continue };
            group.running = Some(group.next_flush);
            group.next_flush = now.saturating_add(options.group_interval_ms.max(1).saturating_mul(MS));
            let mut alerts: Vec<Alert> = group.alerts.values().cloned().collect();
            alerts.sort_by(|a, b| compare_alerts(&a.labels, &b.labels));
            out.push(Flush {
                group: id,
                route: place.0,
                key: group.key.clone(),
                labels: group.labels.clone(),
                options: (*options).clone(),
                alerts,
                at: now,
            });
        }
        out
    }

    /// Ends a flush. If it succeeded, alerts that had been resolved leave the group, unless they were reported again.
    /// Returns the label sets that are not known any more.
    pub fn end_flush(&mut self, flush: &Flush, outcome: FlushOutcome) -> Vec<LabelSet> {
        // The routing tree may have been replaced meanwhile, and the group moved or ended.
        if let Some(place) = self.places.get(&flush.group).cloned()
            && let Some(group) = self.groups.get_mut(&place)
        {
            group.running = None;
            if outcome == FlushOutcome::Succeeded {
                for alert in flush.alerts.iter().filter(|a| a.is_resolved(flush.at)) {
                    let key = alert.labels.canonical();
                    if group.alerts.get(key) == Some(alert) {
                        group.alerts.remove(key);
                    }
                }
            }
            if group.alerts.is_empty() {
                self.places.remove(&flush.group);
                self.changed.extend(self.groups.remove(&place).map(|gone| (gone.key, None)));
            } else {
                self.due.insert((group.next_flush, group.id));
                self.changed.insert(group.key.clone(), Some(group.next_flush));
            }
        }
        let ended = flush.alerts.iter().filter(|a| a.is_resolved(flush.at)).map(|a| &a.labels);
        let gone: Vec<LabelSet> = ended.filter(|labels| self.is_over(labels, flush.at)).cloned().collect();
        for labels in &gone {
            self.remove(labels);
        }
        gone
    }

    /// Removes resolved alerts that are in no group; returns their labels.
    pub fn forget(&mut self, now: i64) -> Vec<LabelSet> {
        let gone: Vec<LabelSet> =
            self.alerts.values().map(|a| &a.labels).filter(|labels| self.is_over(labels, now)).cloned().collect();
        for labels in &gone {
            self.remove(labels);
        }
        gone
    }

    fn remove(&mut self, labels: &LabelSet) {
        self.taken.remove(labels);
        if let Some(gone) = self.alerts.remove(labels.canonical()) {
            self.alert_bytes -= gone.bytes();
        }
    }

    /// Forgets alerts as if nobody had reported them: they leave their groups, and the groups end that have no others.
    pub fn give_up(&mut self, given_up: &[LabelSet]) {
        for labels in given_up {
            let taken = self.route.matching_known(labels, &self.taken).into_iter();
            let places: Vec<Place> = taken.map(|r| (r.idx, LabelSetKey(r.group_labels(labels)))).collect();
            for place in places {
                let Some(group) = self.groups.get_mut(&place) else { continue };
                group.alerts.remove(labels.canonical());
                // One whose flush is running ends with that.
                if group.alerts.is_empty() && group.running.is_none() {
                    self.places.remove(&group.id);
                    self.due.remove(&(group.next_flush, group.id));
                    self.changed.extend(self.groups.remove(&place).map(|gone| (gone.key, None)));
                }
            }
            self.remove(labels);
        }
    }

    /// Whether an alert is resolved and in no group.
    fn is_over(&self, labels: &LabelSet, now: i64) -> bool {
        let key = labels.canonical();
        self.alerts.get(key).is_some_and(|a| a.is_resolved(now))
            && !self.route.matching_known(labels, &self.taken).iter().any(|route| self.is_held_by(route, labels))
    }

    /// Says whether the group of an alert at a route holds it.
    fn is_held_by(&self, route: &Route, labels: &LabelSet) -> bool {
        let place = (route.idx, LabelSetKey(route.group_labels(labels)));
        self.groups.get(&place).is_some_and(|g| g.alerts.contains_key(labels.canonical()))
    }

    /// Shifts future times by a clock jump: ends of alerts, and timers.
    pub fn shift(&mut self, now: i64, by: i64) {
        let move_alert = |alert: &mut Alert| {
            if !alert.is_resolved(now) {
                alert.ends_at = alert.ends_at.saturating_add(by);
            }
        };
        self.alerts.values_mut().for_each(move_alert);
        for group in self.groups.values_mut() {
            group.alerts.values_mut().for_each(move_alert);
            group.next_flush = group.next_flush.saturating_add(by);
            group.running = group.running.map(|at| at.saturating_add(by));
            self.changed.insert(group.key.clone(), Some(group.timer()));
        }
        self.index();
    }

    /// Finds places and times of all groups anew.
    fn index(&mut self) {
        self.places = self.groups.iter().map(|(place, group)| (group.id, place.clone())).collect();
        let waiting = self.groups.values().filter(|group| group.running.is_none());
        self.due = waiting.map(|group| (group.next_flush, group.id)).collect();
    }

    /// Replaces the routing tree. Routes with equal key, receiver and options keep their groups and timers, and among
    /// several equal ones by their order; all other groups are made anew. `taken` has the routes of it that alerts take, as far
    /// as they were found before.
    pub fn reload(&mut self, route: Route, taken: TakenRoutes, now: i64) {
        type Identity<'a> = (&'a str, &'a RouteOptions);
        fn identities(route: &Route) -> Vec<(usize, Identity<'_>)> {
            let mut out: Vec<(usize, Identity<'_>)> = Vec::new();
            route.walk(&mut |r| out.push((r.idx, (&r.key, &r.options))));
            out
        }
        let mut former: HashMap<Identity<'_>, VecDeque<usize>> = HashMap::new();
        for (idx, identity) in identities(&self.route) {
            former.entry(identity).or_default().push_back(idx);
        }
        let mut kept = BTreeMap::new();
        for (idx, identity) in identities(&route) {
            kept.extend(former.get_mut(&identity).and_then(VecDeque::pop_front).map(|old| (old, idx)));
        }
        for ((old, labels), group) in std::mem::take(&mut self.groups) {
            if let Some(new) = kept.get(&old) {
                self.groups.insert((*new, labels), group);
            } else {
                self.changed.insert(group.key, None);
            }
        }
        self.index();
        self.route = route;
        self.taken = taken;
        self.taken.retain(|labels, _| self.alerts.contains_key(labels.canonical()));
        let settled: BTreeSet<usize> = kept.into_values().collect();
        let alerts: Vec<Alert> = self.alerts.values().cloned().collect();
        for alert in alerts {
            let numbers = self.taken(&alert.labels);
            self.taken.insert(alert.labels.clone(), numbers);
            // What a route that was kept does not hold may come to it now, as another route took it before.
            let missing: BTreeSet<usize> = self
                .route
                .matching_known(&alert.labels, &self.taken)
                .into_iter()
                .filter(|r| {
                    !settled.contains(&r.idx) || (!alert.is_resolved(now) && !self.is_held_by(r, &alert.labels))
                })
                .map(|r| r.idx)
                .collect();
            self.place(&alert, now, &|idx| missing.contains(&idx));
        }
    }

    /// Sets the times of groups' next flushes, by their keys, as they were before a restart; what fell due meanwhile runs at
    /// once. None waits for longer than its route lets it: the clock may have been set back.
    pub fn restore_timers(&mut self, timers: &BTreeMap<String, i64>, now: i64) {
        let mut waits = BTreeMap::new();
        self.route.walk(&mut |route| {
            let options = &route.options;
            waits.insert(route.idx, options.group_wait_ms.max(options.group_interval_ms).saturating_mul(MS));
        });
        self.changed = timers.keys().map(|key| (key.clone(), None)).collect();
        for ((route, _), group) in &mut self.groups {
            let known = timers.get(&group.key);
            if let Some(next_flush) = known {
                let wait = waits.get(route).copied().unwrap_or_default();
                group.next_flush = (*next_flush).min(now.saturating_add(wait));
            }
            if known == Some(&group.next_flush) {
                self.changed.remove(&group.key);
            } else {
                self.changed.insert(group.key.clone(), Some(group.next_flush));
            }
        }
        self.index();
    }

    /// Key and next flush of each group. For a running flush the time when it fell due, as it may never end.
    pub fn timers(&self) -> impl Iterator<Item = (&str, i64)> {
        self.groups.values().map(|group| (group.key.as_str(), group.timer()))
    }

    /// Takes the timers that changed since they were taken last.
    pub fn take_changed(&mut self) -> Timers {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests;
