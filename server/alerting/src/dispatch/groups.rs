//! Alert groups, each with the time of its next flush.

use std::collections::BTreeMap;

use quiver_types::LabelSet;

use super::Alert;
use crate::labels::compare_alerts;
use crate::routes::{Route, RouteOptions};

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

/// Canonical bytes of a label set.
type LabelSetKey = Vec<u8>;

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

/// All groups of a routing tree.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    route: Route,
    /// Alerts that are firing, or whose end was not reported everywhere.
    alerts: BTreeMap<LabelSetKey, Alert>,
    /// Their memory in bytes.
    alert_bytes: usize,
    groups: BTreeMap<(usize, LabelSetKey), Group>,
    groups_made: u64,
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
        Self { route, alerts: BTreeMap::new(), alert_bytes: 0, groups: BTreeMap::new(), groups_made: 0 }
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

    /// Adds a report of an alert; returns its merged state.
    pub fn insert(&mut self, alert: Alert, now: i64) -> Alert {
        let key = alert.labels.canonical().to_vec();
        let alert = match self.alerts.get(&key).filter(|old| alert.overlaps(old) || old.overlaps(&alert)) {
            Some(old) => old.merge(&alert, now),
            None => alert,
        };
        self.alert_bytes += alert.bytes();
        if let Some(old) = self.alerts.insert(key, alert.clone()) {
            self.alert_bytes -= old.bytes();
        }
        self.place(&alert, now, &|_| true);
        alert
    }

    fn place(&mut self, alert: &Alert, now: i64, wanted: &dyn Fn(usize) -> bool) {
        let mut found = Vec::new();
        for route in self.route.matching(&alert.labels).into_iter().filter(|r| wanted(r.idx)) {
            let labels = route.group_labels(&alert.labels);
            let wait = route.options.group_wait_ms.saturating_mul(MS);
            found.push((route.idx, route.group_key(&labels), labels, wait));
        }
        for (route, key, labels, wait) in found {
            let group = self.groups.entry((route, labels.canonical().to_vec())).or_insert_with(|| {
                // An alert that has waited in another group need not wait again.
                let waited = alert.starts_at.saturating_add(wait) < now;
                let next_flush = if waited { now } else { now.saturating_add(wait) };
                self.groups_made += 1;
                Group { id: self.groups_made, labels, key, alerts: BTreeMap::new(), next_flush, running: None }
            });
            group.alerts.insert(alert.labels.canonical().to_vec(), alert.clone());
        }
    }

    /// When the next flush is due; that of a group whose flush is running is due after its end.
    pub fn next_due(&self) -> Option<i64> {
        self.groups.values().filter(|g| g.running.is_none()).map(|g| g.next_flush).min()
    }

    /// Returns the flushes that are due and restarts the timers of their groups. Each must be ended by
    /// [`Self::done`].
    pub fn take_due(&mut self, now: i64) -> Vec<Flush> {
        let mut routes = BTreeMap::new();
        self.route.walk(&mut |route| {
            routes.insert(route.idx, &route.options);
        });
        let mut out = Vec::new();
        let due = |g: &Group| g.next_flush <= now && g.running.is_none();
        for ((route, _), group) in self.groups.iter_mut().filter(|(_, g)| due(g)) {
            let Some(options) = routes.get(route) else { continue };
            group.running = Some(group.next_flush);
            group.next_flush = now.saturating_add(options.group_interval_ms.max(1).saturating_mul(MS));
            let mut alerts: Vec<Alert> = group.alerts.values().cloned().collect();
            alerts.sort_by(|a, b| compare_alerts(&a.labels, &b.labels));
            out.push(Flush {
                group: group.id,
                route: *route,
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
    pub fn done(&mut self, flush: &Flush, well: bool) -> Vec<LabelSet> {
        // The routing tree may have been replaced meanwhile, and the group moved.
        let place = (flush.route, flush.labels.canonical().to_vec());
        let here = self.groups.get(&place).filter(|g| g.id == flush.group).map(|_| place);
        let found = here.or_else(|| self.groups.iter().find(|(_, g)| g.id == flush.group).map(|(id, _)| id.clone()));
        if let Some(id) = found
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.running = None;
            if well {
                for alert in flush.alerts.iter().filter(|a| a.is_resolved(flush.at)) {
                    let key = alert.labels.canonical();
                    if group.alerts.get(key) == Some(alert) {
                        group.alerts.remove(key);
                    }
                }
            }
            if group.alerts.is_empty() {
                self.groups.remove(&id);
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
        if let Some(gone) = self.alerts.remove(labels.canonical()) {
            self.alert_bytes -= gone.bytes();
        }
    }

    /// Whether an alert is resolved and in no group.
    fn is_over(&self, labels: &LabelSet, now: i64) -> bool {
        let key = labels.canonical();
        self.alerts.get(key).is_some_and(|a| a.is_resolved(now))
            && !self.route.matching(labels).iter().any(|route| self.is_held_by(route, labels))
    }

    /// Says whether the group of an alert at a route holds it.
    fn is_held_by(&self, route: &Route, labels: &LabelSet) -> bool {
        let place = (route.idx, route.group_labels(labels).canonical().to_vec());
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
        }
    }

    /// Replaces the routing tree. Routes with equal key, receiver and options keep their groups and timers, and among
    /// several equal ones by their order; all other groups are made anew.
    pub fn reload(&mut self, route: Route, now: i64) {
        type Identity<'a> = (&'a str, &'a RouteOptions);
        fn identities(route: &Route) -> Vec<(usize, Identity<'_>)> {
            let mut out: Vec<(usize, Identity<'_>)> = Vec::new();
            route.walk(&mut |r| out.push((r.idx, (&r.key, &r.options))));
            out
        }
        let mut former = identities(&self.route);
        let mut kept = BTreeMap::new();
        for (idx, identity) in identities(&route) {
            if let Some(at) = former.iter().position(|(_, other)| *other == identity) {
                kept.insert(former.remove(at).0, idx);
            }
        }
        let groups = std::mem::take(&mut self.groups);
        let moved = |((old, labels), group)| kept.get(&old).map(|new| ((*new, labels), group));
        self.groups = groups.into_iter().filter_map(moved).collect();
        self.route = route;
        let settled: std::collections::BTreeSet<usize> = kept.into_values().collect();
        let alerts: Vec<Alert> = self.alerts.values().cloned().collect();
        for alert in alerts {
            // What a route that was kept does not hold may come to it now, as another route took it before.
            let missing: Vec<usize> = self
                .route
                .matching(&alert.labels)
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
    /// once.
    pub fn restore_timers(&mut self, timers: &BTreeMap<String, i64>) {
        for group in self.groups.values_mut() {
            if let Some(next_flush) = timers.get(&group.key) {
                group.next_flush = *next_flush;
            }
        }
    }

    /// Key and next flush of each group. For a running flush the time when it fell due, as it may never end.
    pub fn timers(&self) -> impl Iterator<Item = (&str, i64)> {
        self.groups.values().map(|g| (g.key.as_str(), g.running.unwrap_or(g.next_flush)))
    }
}

#[cfg(test)]
mod tests {
    use quiver_yaml as yaml;
    use quiver_yaml::problem::Problems;

    use super::*;
    use crate::routes::RouteConfig;

    const S: i64 = 1_000_000_000;

    fn route(text: &str) -> Route {
        let node = yaml::read(text).expect(text).remove(0);
        Route::new(&RouteConfig::read(&node, "", &mut Vec::new(), &mut Problems::default()))
    }

    fn alert(pairs: &[(&str, &str)], starts: i64, ends: i64, updated: i64) -> Alert {
        Alert {
            labels: LabelSet::from_pairs(pairs.iter().copied()),
            annotations: BTreeMap::new(),
            starts_at: starts * S,
            ends_at: ends * S,
            is_timeout: true,
            updated_at: updated * S,
            generator_url: String::new(),
        }
    }

    fn due(d: &mut Dispatcher, now: i64) -> Vec<(String, usize)> {
        let flushes = d.take_due(now * S);
        for f in &flushes {
            drop(d.done(f, true));
        }
        flushes.into_iter().map(|f| (f.key, f.alerts.len())).collect()
    }

    #[test]
    fn timers() {
        let mut d = Dispatcher::new(route("{receiver: r, group_by: [j], group_wait: 30s, group_interval: 1m}"));
        d.insert(alert(&[("j", "1"), ("i", "1")], 0, 1000, 0), 0);
        d.insert(alert(&[("j", "1"), ("i", "2")], 0, 50, 10), 10 * S);
        assert_eq!(d.next_due(), Some(30 * S));
        assert_eq!(due(&mut d, 29), []);
        assert_eq!(due(&mut d, 30), [("{}:{j=\"1\"}".to_owned(), 2)]);
        assert_eq!(d.next_due(), Some(90 * S));
        // The second is resolved: that is sent once, then it leaves the group.
        assert_eq!(due(&mut d, 90)[0].1, 2);
        assert_eq!(due(&mut d, 150)[0].1, 1);
        // An alert that has been firing for long is sent at once.
        d.insert(alert(&[("j", "2")], 0, 1000, 160), 160 * S);
        assert_eq!(d.next_due(), Some(160 * S));
        // A group without alerts ends.
        d.insert(alert(&[("j", "1"), ("i", "1")], 0, 170, 170), 170 * S);
        assert_eq!(due(&mut d, 210).len(), 2);
        assert_eq!(d.timers().map(|t| t.0).collect::<Vec<_>>(), ["{}:{j=\"2\"}"]);
        assert_eq!(d.alerts().count(), 1);
    }

    #[test]
    fn failed_flushes_keep_ended_alerts() {
        let mut d = Dispatcher::new(route("{receiver: r, group_interval: 1m}"));
        d.insert(alert(&[("a", "1")], 0, 40, 0), 0);
        let flush = d.take_due(60 * S).remove(0);
        d.done(&flush, false);
        assert_eq!(due(&mut d, 120)[0].1, 1);
        assert_eq!(d.next_due(), None);
    }

    #[test]
    fn a_running_flush_holds_its_group() {
        let mut d = Dispatcher::new(route("{receiver: r, group_wait: 10s, group_interval: 1m}"));
        d.insert(alert(&[("a", "1")], 0, 5, 0), 0);
        let flush = d.take_due(10 * S).remove(0);
        assert_eq!((d.next_due(), d.timers().next().map(|t| t.1)), (None, Some(10 * S)));
        assert!(d.take_due(100 * S).is_empty());
        // The routes change meanwhile: the group is still found at its new index.
        d.reload(route("{receiver: q, routes: [{receiver: r, group_wait: 10s}]}"), 20 * S);
        assert_eq!(d.done(&flush, true).len(), 0, "the new tree has not told its end");
        let mut d = Dispatcher::new(route("{receiver: r, group_wait: 10s}"));
        d.insert(alert(&[("a", "1")], 0, 5, 0), 0);
        let flush = d.take_due(10 * S).remove(0);
        assert_eq!(d.done(&flush, true), [LabelSet::from_pairs([("a", "1")])]);
        assert_eq!((d.alert_count(), d.groups().count()), (0, 0));
        assert_eq!(d.alert_bytes(), 0, "what they took is given back");
    }

    #[test]
    fn a_clock_that_leaps_ends_nothing() {
        let mut d = Dispatcher::new(route("{receiver: r, group_wait: 30s}"));
        d.insert(alert(&[("a", "1")], 0, 60, 0), 0);
        d.shift(10 * S, 3600 * S);
        assert_eq!(d.next_due(), Some(3630 * S));
        assert_eq!(d.alert(&LabelSet::from_pairs([("a", "1")])).map(|a| a.ends_at), Some(3660 * S));
    }

    #[test]
    fn reports_merge() {
        let old = alert(&[("a", "1")], 10, 100, 10);
        let young = alert(&[("a", "1")], 20, 80, 20);
        assert_eq!(old.merge(&young, 30 * S).starts_at, 10 * S);
        assert_eq!(old.merge(&young, 30 * S).ends_at, 80 * S);
        let given = Alert { is_timeout: false, ..old.clone() };
        assert_eq!(given.merge(&young, 30 * S).ends_at, 100 * S);
        let ended = alert(&[("a", "1")], 20, 25, 26);
        assert_eq!(given.merge(&ended, 30 * S).ends_at, 25 * S);
    }

    #[test]
    fn reload_keeps_equal_routes() {
        let text = |wait: &str| {
            format!(
                "{{receiver: r, routes: [{{receiver: a, matchers: ['k=a'], group_wait: {wait}}}, {{receiver: b, matchers: ['k=b']}}]}}"
            )
        };
        let mut d = Dispatcher::new(route(&text("10s")));
        d.insert(alert(&[("k", "a")], 0, 1000, 0), 0);
        d.insert(alert(&[("k", "b")], 0, 1000, 0), 0);
        d.reload(route(&text("20s")), 5 * S);
        let mut timers: Vec<(String, i64)> = d.timers().map(|(k, t)| (k.to_owned(), t / S)).collect();
        timers.sort();
        assert_eq!(timers, [("{}/{k=\"a\"}:{}".to_owned(), 25), ("{}/{k=\"b\"}:{}".to_owned(), 30)]);
    }

    /// An alert is in a group of each matching route, and each sends it at its own time.
    #[test]
    fn groups_of_several_routes() {
        let mut d = Dispatcher::new(route(
            "{receiver: r, group_by: [j], routes: [{matchers: ['s=page'], receiver: a, group_wait: 5s, continue: true}, \
            {receiver: b, group_by: [...], group_wait: 20s}]}",
        ));
        d.insert(alert(&[("s", "page"), ("j", "1"), ("i", "1")], 0, 1000, 0), 0);
        d.insert(alert(&[("s", "page"), ("j", "1"), ("i", "2")], 0, 1000, 0), 0);
        d.insert(alert(&[("j", "1")], 0, 1000, 0), 0);
        let mut keys: Vec<&str> = d.groups().map(|g| g.key).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "{}/{s=\"page\"}:{j=\"1\"}",
                "{}/{}:{i=\"1\", j=\"1\", s=\"page\"}",
                "{}/{}:{i=\"2\", j=\"1\", s=\"page\"}",
                "{}/{}:{j=\"1\"}",
            ]
        );
        assert_eq!((d.alert_count(), d.groups().map(|g| g.alerts().count()).sum::<usize>()), (3, 5));
        assert_eq!(due(&mut d, 4), []);
        assert_eq!(due(&mut d, 5), [("{}/{s=\"page\"}:{j=\"1\"}".to_owned(), 2)]);
        assert_eq!(due(&mut d, 20).len(), 3);
        // The group that was flushed first is due first.
        assert_eq!(d.next_due(), Some(305 * S));
    }

    /// Alerts are identified by their label set alone.
    #[test]
    fn alerts_are_their_labels() {
        let mut d = Dispatcher::new(route("{receiver: r}"));
        d.insert(Alert { generator_url: "u".into(), ..alert(&[("a", "1"), ("b", "2")], 0, 100, 1) }, S);
        d.insert(alert(&[("b", "2"), ("a", "1")], 0, 200, 2), 2 * S);
        assert_eq!((d.alert_count(), d.alerts().next().map(|a| a.ends_at)), (1, Some(200 * S)));
        d.insert(alert(&[("a", "1")], 0, 100, 1), S);
        d.insert(alert(&[("a", "12")], 0, 100, 1), S);
        assert_eq!(d.alert_count(), 3);
        let known = d.alert(&LabelSet::from_pairs([("a", "1")])).expect("known");
        let one = known.bytes();
        assert!(d.alert_bytes() >= 3 * one, "each counts");
        assert_eq!(d.groups().count(), 1, "without labels to group by there is one group");
    }

    /// An alert that fires again before its end was sent begins anew, and its end is not sent.
    #[test]
    fn fires_again() {
        let mut d = Dispatcher::new(route("{receiver: r, group_wait: 30s, group_interval: 1m}"));
        let labels = LabelSet::from_pairs([("a", "1")]);
        d.insert(alert(&[("a", "1")], 0, 10, 0), 0);
        d.insert(alert(&[("a", "1")], 20, 1000, 20), 20 * S);
        assert_eq!(d.alert(&labels).map(|a| a.starts_at), Some(20 * S), "the two do not overlap");
        let flush = d.take_due(30 * S).remove(0);
        assert!(!flush.alerts[0].is_resolved(flush.at));
        // Resolved during a flush: that is sent with the next one, whether or not this one succeeds.
        d.insert(alert(&[("a", "1")], 20, 35, 35), 35 * S);
        assert!(d.done(&flush, true).is_empty());
        let next = d.take_due(90 * S).remove(0);
        assert!(next.alerts[0].is_resolved(next.at));
        assert_eq!(d.done(&next, true), [labels]);
        assert_eq!((d.next_due(), d.alert_count()), (None, 0));
    }

    #[test]
    fn overlapping_reports() {
        let at = |from: i64, to: i64| alert(&[("a", "1")], from, to, from);
        for (one, other, expected) in [
            ((0, 10), (5, 20), true),
            ((5, 20), (0, 10), true),
            ((0, 10), (0, 10), true),
            ((0, 100), (10, 20), false),
            ((10, 20), (0, 100), true),
            ((0, 10), (10, 20), false),
            ((0, 10), (20, 30), false),
            ((20, 30), (0, 10), false),
        ] {
            assert_eq!(at(one.0, one.1).overlaps(&at(other.0, other.1)), expected, "{one:?} {other:?}");
        }
    }

    /// Timers survive a restart; one that fell due meanwhile runs at once.
    #[test]
    fn restored_timers() {
        let mut d = Dispatcher::new(route("{receiver: r, group_by: [j], group_wait: 30s}"));
        d.insert(alert(&[("j", "1")], 95, 1000, 100), 100 * S);
        d.insert(alert(&[("j", "2")], 95, 1000, 100), 100 * S);
        d.restore_timers(&[("{}:{j=\"1\"}".to_owned(), 90 * S), ("{}:{j=\"3\"}".to_owned(), 0)].into());
        assert_eq!(due(&mut d, 100), [("{}:{j=\"1\"}".to_owned(), 1)]);
        assert_eq!(d.next_due(), Some(130 * S));
    }

    /// As many groups as alerts: whoever looks for the group of each among all of them is at it for minutes.
    #[test]
    fn many_groups_are_kept_and_restored() {
        const MANY: usize = 10_000;
        let mut d = Dispatcher::new(route("{receiver: r, group_by: [...], group_wait: 30s}"));
        for n in 0..MANY {
            d.insert(alert(&[("i", &n.to_string())], 0, 1000, 0), 0);
        }
        let timers: BTreeMap<String, i64> = d.timers().map(|(key, at)| (key.to_owned(), at + S)).collect();
        d.reload(route("{receiver: r, group_by: [...], group_wait: 30s, routes: [{matchers: [i=x], receiver: q}]}"), S);
        d.restore_timers(&timers);
        assert_eq!((d.next_due(), d.groups().count()), (Some(31 * S), MANY));
    }

    #[test]
    fn forgotten_once_nobody_holds_them() {
        let mut d = Dispatcher::new(route("{receiver: r, group_wait: 10s}"));
        d.insert(alert(&[("a", "1")], 0, 5, 0), 0);
        assert!(d.forget(100 * S).is_empty(), "its end is still to be told");
        assert_eq!(due(&mut d, 10).len(), 1);
        assert!(d.forget(100 * S).is_empty(), "it went with its group");
        assert_eq!((d.alert_count(), d.alert_bytes()), (0, 0));
    }
}
