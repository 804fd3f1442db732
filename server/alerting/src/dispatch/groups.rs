//! Alerts in groups, each with the time of its next flush.

use std::collections::BTreeMap;

use quiver_types::LabelSet;

use super::Alert;
use crate::labels::compare_alerts;
use crate::routes::{Route, RouteOptions};

const MS: i64 = 1_000_000;

/// A group: alerts of equal group labels at one route.
#[derive(Debug, Clone)]
struct Group {
    labels: LabelSet,
    key: String,
    alerts: BTreeMap<LabelSetKey, Alert>,
    next_flush: i64,
}

/// Canonical bytes of a label set.
type LabelSetKey = Vec<u8>;

/// What falls due: the alerts of a group as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flush {
    /// Number of the route.
    pub route: usize,
    /// Key of the group.
    pub key: String,
    /// Labels of the group.
    pub labels: LabelSet,
    /// Options of the route.
    pub options: RouteOptions,
    /// Its alerts in the order of messages.
    pub alerts: Vec<Alert>,
    /// When it fell due; states of alerts count at this time.
    pub at: i64,
}

/// All groups of a tree of routes.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    route: Route,
    /// Alerts that fire, or whose end is not told everywhere.
    alerts: BTreeMap<LabelSetKey, Alert>,
    groups: BTreeMap<(usize, LabelSetKey), Group>,
}

impl Dispatcher {
    /// Makes an empty one.
    pub fn new(route: Route) -> Self {
        Self { route, alerts: BTreeMap::new(), groups: BTreeMap::new() }
    }

    /// Gives the tree.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Walks the alerts that are known.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values()
    }

    /// Takes a report of an alert in.
    pub fn insert(&mut self, alert: Alert, now: i64) {
        let key = alert.labels.canonical().to_vec();
        let alert = match self.alerts.get(&key).filter(|old| alert.overlaps(old) || old.overlaps(&alert)) {
            Some(old) => old.merge(&alert, now),
            None => alert,
        };
        self.alerts.insert(key, alert.clone());
        self.place(&alert, now, &|_| true);
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
                // An alert that has waited elsewhere need not wait again.
                let waited = alert.starts_at.saturating_add(wait) < now;
                let next_flush = if waited { now } else { now.saturating_add(wait) };
                Group { labels, key, alerts: BTreeMap::new(), next_flush }
            });
            group.alerts.insert(alert.labels.canonical().to_vec(), alert.clone());
        }
    }

    /// Says when the next flush is due.
    pub fn next_due(&self) -> Option<i64> {
        self.groups.values().map(|g| g.next_flush).min()
    }

    /// Gives what is due, and sets the timers of these groups anew.
    pub fn take_due(&mut self, now: i64) -> Vec<Flush> {
        let mut routes = BTreeMap::new();
        self.route.walk(&mut |route| {
            routes.insert(route.idx, &route.options);
        });
        let mut out = Vec::new();
        for ((route, _), group) in self.groups.iter_mut().filter(|(_, g)| g.next_flush <= now) {
            let Some(options) = routes.get(route) else { continue };
            group.next_flush = now.saturating_add(options.group_interval_ms.max(1).saturating_mul(MS));
            let mut alerts: Vec<Alert> = group.alerts.values().cloned().collect();
            alerts.sort_by(|a, b| compare_alerts(&a.labels, &b.labels));
            out.push(Flush {
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

    /// Ends a flush: if all went well, alerts that had ended leave the group, unless they were reported again.
    pub fn done(&mut self, flush: &Flush, well: bool) {
        let id = (flush.route, flush.labels.canonical().to_vec());
        let Some(group) = self.groups.get_mut(&id) else { return };
        if well {
            for alert in flush.alerts.iter().filter(|a| a.is_resolved(flush.at)) {
                let key = alert.labels.canonical().to_vec();
                if group.alerts.get(&key) == Some(alert) {
                    group.alerts.remove(&key);
                }
            }
        }
        if group.alerts.is_empty() {
            self.groups.remove(&id);
        }
        let held: std::collections::BTreeSet<&LabelSetKey> =
            self.groups.values().flat_map(|g| g.alerts.keys()).collect();
        let gone = |key: &LabelSetKey| {
            flush.alerts.iter().any(|a| a.labels.canonical() == key.as_slice()) && !held.contains(key)
        };
        let ended: Vec<LabelSetKey> = self
            .alerts
            .iter()
            .filter(|(key, a)| a.is_resolved(flush.at) && gone(key))
            .map(|(key, _)| key.clone())
            .collect();
        ended.iter().for_each(|key| drop(self.alerts.remove(key)));
    }

    /// Takes another tree. Routes with equal key, receiver and options keep their groups and timers, the n-th of equal ones
    /// those of the n-th; groups of others are made anew.
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
            let in_kept = |idx: usize| {
                self.groups
                    .iter()
                    .any(|((route, _), g)| *route == idx && g.alerts.contains_key(alert.labels.canonical()))
            };
            let missing: Vec<usize> = self
                .route
                .matching(&alert.labels)
                .iter()
                .map(|r| r.idx)
                .filter(|idx| !settled.contains(idx) || (!alert.is_resolved(now) && !in_kept(*idx)))
                .collect();
            self.place(&alert, now, &|idx| missing.contains(&idx));
        }
    }

    /// Sets the time of a group's next flush as it was before a restart; one that fell due meanwhile runs at once.
    pub fn restore_timer(&mut self, key: &str, next_flush: i64) {
        for group in self.groups.values_mut().filter(|g| g.key == key) {
            group.next_flush = next_flush;
        }
    }

    /// Gives key and next flush of each group.
    pub fn timers(&self) -> impl Iterator<Item = (&str, i64)> {
        self.groups.values().map(|g| (g.key.as_str(), g.next_flush))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problems;
    use crate::routes::RouteConfig;
    use crate::yaml;

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
        flushes.iter().for_each(|f| d.done(f, true));
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
        // The second has ended: it is told once, then leaves.
        assert_eq!(due(&mut d, 90)[0].1, 2);
        assert_eq!(due(&mut d, 150)[0].1, 1);
        // What fires for long is told at once.
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
}
