use std::sync::Arc;

use quiver_yaml as yaml;
use quiver_yaml::problem::Problems;

use super::*;
use crate::matcher_fields::ReadContext;
use crate::routes::RouteConfig;

const S: i64 = 1_000_000_000;

fn route(text: &str) -> Route {
    let node = yaml::read(text).expect(text).remove(0);
    Route::new(&RouteConfig::read(&node, "", &mut ReadContext::default(), &mut Problems::default()))
}

fn alert(pairs: &[(&str, &str)], starts: i64, ends: i64, updated: i64) -> Alert {
    Alert {
        labels: LabelSet::from_pairs(pairs.iter().copied()),
        annotations: Arc::default(),
        starts_at: starts * S,
        ends_at: ends * S,
        is_timeout: true,
        updated_at: updated * S,
        generator_url: Arc::default(),
    }
}

fn due(d: &mut Dispatcher, now: i64) -> Vec<(String, usize)> {
    let flushes = d.take_due(now * S);
    for f in &flushes {
        drop(d.end_flush(f, FlushOutcome::Succeeded));
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

/// Breaks if routes are looked for again, of which a tree may have so many that nothing else gets its turn meanwhile.
#[test]
fn routes_are_looked_for_once() {
    let text = "{receiver: r, group_by: [a], routes: [{matchers: ['a=~\"1\"'], receiver: q}, {receiver: s}]}";
    let mut d = Dispatcher::new(route(text));
    let one = alert(&[("a", "1")], 0, 1000, 0);
    assert_eq!(*d.taken(&one.labels), [0]);
    let keys = |d: &Dispatcher| d.groups().map(|group| (group.route, group.alerts().count())).collect::<Vec<_>>();
    // An alert stays on the given routes until it is forgotten.
    d.insert_at(one.clone(), Box::from([1]), 0);
    d.insert(Alert { updated_at: S, ..one.clone() }, S);
    assert_eq!((keys(&d), d.forget(2000 * S).len()), (vec![(1, 1)], 0));
    let taken = TakenRoutes::from([
        (one.labels.clone(), Box::from([0, 1])),
        (LabelSet::from_pairs([("a", "2")]), Box::from([1])),
    ]);
    d.reload(route(text), taken, 2 * S);
    assert_eq!((keys(&d), &*d.taken(&one.labels)), (vec![(0, 1), (1, 1)], &[0, 1][..]));
    assert_eq!(d.taken.len(), 1, "others are not there");
    d.give_up(std::slice::from_ref(&one.labels));
    assert_eq!((keys(&d), d.alerts().count(), d.taken.len()), (vec![], 0, 0));
    d.insert(one, 3 * S);
    assert_eq!(keys(&d), [(0, 1)]);
}

#[test]
fn failed_flushes_keep_ended_alerts() {
    let mut d = Dispatcher::new(route("{receiver: r, group_interval: 1m}"));
    d.insert(alert(&[("a", "1")], 0, 40, 0), 0);
    let flush = d.take_due(60 * S).remove(0);
    d.end_flush(&flush, FlushOutcome::Failed);
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
    d.reload(route("{receiver: q, routes: [{receiver: r, group_wait: 10s}]}"), TakenRoutes::new(), 20 * S);
    assert_eq!(d.end_flush(&flush, FlushOutcome::Succeeded).len(), 0, "the new tree has not told its end");
    let mut d = Dispatcher::new(route("{receiver: r, group_wait: 10s}"));
    d.insert(alert(&[("a", "1")], 0, 5, 0), 0);
    let flush = d.take_due(10 * S).remove(0);
    assert_eq!(d.end_flush(&flush, FlushOutcome::Succeeded), [LabelSet::from_pairs([("a", "1")])]);
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
    d.reload(route(&text("20s")), TakenRoutes::new(), 5 * S);
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
    assert!(d.end_flush(&flush, FlushOutcome::Succeeded).is_empty());
    let next = d.take_due(90 * S).remove(0);
    assert!(next.alerts[0].is_resolved(next.at));
    assert_eq!(d.end_flush(&next, FlushOutcome::Succeeded), [labels]);
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
    d.restore_timers(&[("{}:{j=\"1\"}".to_owned(), 90 * S), ("{}:{j=\"3\"}".to_owned(), 0)].into(), 100 * S);
    let changed = [("{}:{j=\"2\"}".to_owned(), Some(130 * S)), ("{}:{j=\"3\"}".to_owned(), None)];
    assert_eq!(d.take_changed(), changed.into(), "one was kept as it is, one has no group any more");
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
    d.reload(
        route("{receiver: r, group_by: [...], group_wait: 30s, routes: [{matchers: [i=x], receiver: q}]}"),
        TakenRoutes::new(),
        S,
    );
    d.restore_timers(&timers, S);
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

/// A clock that was set back while the server was down lets no group wait for years.
#[test]
fn restored_timers_wait_no_longer_than_their_route_lets_them() {
    let mut d = Dispatcher::new(route("{receiver: r, group_wait: 30s, group_interval: 5m}"));
    d.insert(alert(&[("a", "1")], 95, 1000, 100), 100 * S);
    d.restore_timers(&[("{}:{}".to_owned(), 4_000_000 * S)].into(), 100 * S);
    assert_eq!(d.next_due(), Some(400 * S));
}

/// What changes is told once: whoever looks at the timers of all groups each second is at it all the time.
#[test]
fn timers_that_change() {
    let mut d = Dispatcher::new(route("{receiver: r, group_by: [j], group_wait: 30s, group_interval: 1m}"));
    let key = |j: &str| format!("{{}}:{{j=\"{j}\"}}");
    d.insert(alert(&[("j", "1")], 0, 1000, 0), 0);
    d.insert(alert(&[("j", "2")], 0, 40, 10), 10 * S);
    assert_eq!(d.take_changed(), [(key("1"), Some(30 * S)), (key("2"), Some(40 * S))].into());
    d.insert(alert(&[("j", "1"), ("i", "2")], 0, 1000, 20), 20 * S);
    assert!(d.take_changed().is_empty(), "an alert more changes no timer");
    let first = d.take_due(30 * S).remove(0);
    assert!(d.take_changed().is_empty(), "a flush that runs may never end");
    d.end_flush(&first, FlushOutcome::Succeeded);
    assert_eq!(d.take_changed(), [(key("1"), Some(90 * S))].into());
    assert_eq!(due(&mut d, 40), [(key("2"), 1)]);
    assert_eq!(d.take_changed(), [(key("2"), None)].into());
    d.shift(50 * S, 1000 * S);
    assert_eq!(d.take_changed(), [(key("1"), Some(1090 * S))].into());
    assert_eq!(d.next_due(), Some(1090 * S));
    d.reload(route("{receiver: q, group_by: [j], group_wait: 30s}"), TakenRoutes::new(), 60 * S);
    assert_eq!(d.take_changed().keys().collect::<Vec<_>>(), [&key("1")]);
    assert_eq!(d.timers().count(), 1);
}

/// Whoever looks at all groups for each that is due is at it for minutes.
#[test]
fn groups_fall_due_one_after_the_other() {
    const MANY: usize = 20_000;
    let mut d = Dispatcher::new(route("{receiver: r, group_by: [...], group_wait: 30s, group_interval: 1000000s}"));
    for n in 0..MANY {
        d.insert(alert(&[("i", &n.to_string())], n as i64, 10_000_000, 0), n as i64 * S);
    }
    for n in 0..MANY {
        let at = n as i64 * S + 30 * S;
        assert_eq!(d.next_due(), Some(at));
        let flushes = d.take_due(at);
        assert_eq!(flushes.len(), 1, "{n}");
        assert!(d.end_flush(&flushes[0], FlushOutcome::Succeeded).is_empty());
    }
    assert_eq!(d.next_due(), Some(1_000_030 * S));
}

/// An alert is in a group of each route that it takes; its texts are there once.
#[test]
fn groups_share_the_texts_of_alerts() {
    let routes = "{receiver: a, routes: [{receiver: b, continue: true}, {receiver: c, continue: true}, {receiver: d}]}";
    let mut d = Dispatcher::new(route(routes));
    let text = Arc::new(BTreeMap::from([("summary".to_owned(), "x".repeat(10_000))]));
    let (_, bytes) = d.insert(Alert { annotations: Arc::clone(&text), ..alert(&[("a", "1")], 0, 100, 1) }, S);
    assert!((3..10_000).contains(&bytes), "{bytes}");
    assert_eq!(d.groups().count(), 3);
    assert!(d.groups().all(|group| group.alerts().all(|alert| Arc::ptr_eq(&alert.annotations, &text))));
}

#[test]
fn alerts_that_are_given_up_leave_their_groups() {
    let mut d = Dispatcher::new(route("{receiver: r, group_by: [j], group_wait: 10s}"));
    d.insert(alert(&[("j", "1"), ("i", "1")], 0, 1000, 0), 0);
    d.insert(alert(&[("j", "1"), ("i", "2")], 0, 1000, 0), 0);
    d.insert(alert(&[("j", "2")], 0, 1000, 0), 0);
    let gone = [&[("j", "1"), ("i", "1")][..], &[("j", "2")][..], &[("j", "3")][..]];
    d.give_up(&gone.map(|pairs| LabelSet::from_pairs(pairs.iter().copied())));
    assert_eq!((d.alert_count(), d.groups().count()), (1, 1));
    let due = d.take_due(20 * S);
    assert_eq!(due.iter().map(|flush| flush.alerts.len()).collect::<Vec<_>>(), [1]);
    // The group of a flush that is running ends with that.
    d.give_up(&[LabelSet::from_pairs([("j", "1"), ("i", "2")])]);
    assert_eq!((d.alert_count(), d.groups().count()), (0, 1));
    d.end_flush(&due[0], FlushOutcome::Succeeded);
    assert_eq!((d.groups().count(), d.next_due(), d.alert_bytes()), (0, None, 0));
}
