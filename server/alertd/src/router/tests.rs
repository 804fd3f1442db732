use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use futures::future::BoxFuture;
use quiver_alerting::dispatch::{Entry, LogKey};
use quiver_alerting::matchers::{Matchers, read};
use quiver_alerting::silences::Silence;
use quiver_types::{ChangeMode, LabelSet, Network};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::*;
use crate::delivery::ProxyEnvironment;
use crate::egress::Egress;
use crate::history::{Action, HistoryStore, Record};

mod silences;

/// A clock that tests move.
#[derive(Debug, Default)]
pub(crate) struct TestClock(pub(crate) AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(SeqCst)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now_ms().unsigned_abs())
    }
}

async fn open(dir: &std::path::Path, policy: &str, clock: &Arc<TestClock>) -> Arc<Router> {
    open_for(3, dir, policy, clock).await
}

async fn open_for(alerts_max: usize, dir: &std::path::Path, policy: &str, clock: &Arc<TestClock>) -> Arc<Router> {
    let kept = StateDatabase::open(&dir.join("alerts.db")).await.unwrap();
    let allow = vec![Network::parse("127.0.0.0/8").unwrap()];
    let egress = Egress { allow, ..Egress::default() };
    let (metrics, real) = (Arc::<AlertMetrics>::default(), Arc::new(quiver_types::SystemClock));
    let sender = Sender::new(egress, ProxyEnvironment::default(), 1 << 20, real, Arc::clone(&metrics));
    let settings = RouterSettings {
        external_url: "http://q".to_owned(),
        files_dir: None,
        alerts_max,
        alert_bytes_max: 1 << 20,
        service_labels: vec!["service".to_owned()],
    };
    let policy = Policy::load(policy, &|_| Ok(Vec::new())).unwrap();
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(clock);
    Router::open(settings, PolicySources { file: Some(policy), stored: None }, kept, sender, clock, metrics)
        .await
        .unwrap()
}

fn alert(name: &str, starts_s: i64, ends_s: i64) -> Alert {
    Alert {
        labels: LabelSet::from_pairs([("alertname", name)]),
        annotations: Arc::default(),
        starts_at: starts_s * 1000 * MS,
        ends_at: ends_s * 1000 * MS,
        is_timeout: false,
        updated_at: starts_s * 1000 * MS,
        generator_url: Arc::default(),
    }
}

fn everything() -> AlertStateFilter {
    AlertStateFilter { active: true, silenced: true, inhibited: true, muted: true }
}

impl Router {
    /// All alerts at once.
    pub(crate) fn alerts(&self, asked: &AlertFilter<'_>) -> Vec<AlertRow> {
        let mut out = Vec::new();
        self.each_alert(asked, &mut |row| {
            out.push(row);
            Ok(())
        })
        .unwrap();
        out
    }

    fn groups(&self, asked: &AlertFilter<'_>) -> Vec<(GroupRow, Vec<AlertRow>)> {
        let mut out: Vec<(GroupRow, Vec<AlertRow>)> = Vec::new();
        self.each_group(asked, &mut |piece| {
            match piece {
                GroupPiece::Group(group) => out.push((group, Vec::new())),
                GroupPiece::Alert(row) => out.last_mut().unwrap().1.push(row),
            }
            Ok(())
        })
        .unwrap();
        out
    }
}

/// What is asked for where nothing is left out.
pub(crate) fn asked(shown: AlertStateFilter) -> AlertFilter<'static> {
    AlertFilter { shown, labels: &|_| true, sees: &|_| true, receiver: &|_| true, go_on: &|| Ok(()) }
}

fn names(router: &Router, shown: AlertStateFilter) -> Vec<String> {
    let asked = asked(shown);
    let mut out: Vec<String> = router
        .alerts(&asked)
        .iter()
        .map(|r| format!("{} {}", r.alert.labels.get("alertname"), r.state.as_str()))
        .collect();
    out.sort();
    out
}

/// Breaks where a long report is taken as a whole, and all others wait until the routes of each alert are found.
#[tokio::test]
async fn others_have_their_turn_during_a_long_report() {
    let dir = tempfile::tempdir().unwrap();
    let routes = "{matchers: ['x!=\"\"']},".repeat(1000);
    let policy = format!("route: {{receiver: a, routes: [{routes}]}}\nreceivers: [{{name: a}}]\n");
    let router = open_for(300, dir.path(), &policy, &Arc::new(TestClock(AtomicI64::new(1000)))).await;
    let alerts: Vec<Alert> = (0..300).map(|n| alert(&format!("A{n}"), 0, 1000)).collect();
    let taking = Arc::clone(&router);
    let reporting = tokio::spawn(async move { taking.insert_posted(alerts).await });
    let mut seen = std::collections::BTreeSet::new();
    while !reporting.is_finished() {
        seen.insert(router.live().len());
        tokio::task::yield_now().await;
    }
    reporting.await.unwrap().unwrap();
    assert_eq!(router.live().len(), 300);
    assert!(seen.iter().any(|count| (1..300).contains(count)), "{seen:?}");
}

const POLICY: &str = "route: {receiver: a, group_by: [alertname], group_wait: 10s}\nreceivers: [{name: a}]\n\
    inhibit_rules: [{source_matchers: ['alertname=\"A\"'], target_matchers: ['alertname=\"B\"']}]\n";

#[tokio::test]
async fn what_is_taken_outlives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    router.insert(vec![alert("A", 1000, 2000), alert("B", 1000, 2000), alert("C", 1000, 2000)]).await.unwrap();
    let told = router.insert(vec![alert("D", 1000, 2000)]).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    let silence = Silence {
        id: String::new(),
        matchers: Matchers::new(read("alertname=C").unwrap().matchers),
        starts_at: 0,
        ends_at: 3_000_000 * MS,
        created_by: "me".to_owned(),
        ..Silence::default()
    };
    let set = SilenceOp::Set { silence: Box::new(silence), id: None, expected: None };
    let id = router.change_silences(vec![set], "me", ChangeMode::Apply).await.unwrap().remove(0).after.id;
    let expected = ["A active", "B suppressed", "C suppressed"];
    assert_eq!(names(&router, everything()), expected);
    assert_eq!(names(&router, AlertStateFilter { silenced: false, ..everything() }), expected[..2]);
    assert_eq!(names(&router, AlertStateFilter { inhibited: false, active: false, ..everything() }), expected[2..]);
    router.keep_timers();
    let name = router.instance().to_owned();
    // Nothing is closed: as after a kill.
    router.kept.put(Vec::new()).durable().await.unwrap();
    clock.0.store(1_005_000, SeqCst);
    let again = open(dir.path(), POLICY, &clock).await;
    assert_eq!(
        (names(&again, everything()).as_slice(), again.instance()),
        (expected.map(str::to_owned).as_slice(), &*name)
    );
    let due: Vec<i64> = again.state.lock().dispatcher.timers().map(|t| t.1 / MS / 1000).collect();
    assert_eq!(due, [1010; 3], "timers go on as they were");
    let expire = |id: &str| vec![SilenceOp::Expire { id: id.to_owned(), expected: None }];
    again.change_silences(expire(&id), "me", ChangeMode::Apply).await.unwrap();
    assert!(matches!(
        again.change_silences(expire("none"), "me", ChangeMode::Apply).await,
        Err((0, SilenceError::NotFound))
    ));
    assert_eq!(names(&again, everything())[2], "C active");
}

#[tokio::test]
async fn alerts_take_no_more_memory_than_they_may() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    let large = |name: &str, kib: usize| {
        let text = "x".repeat(kib << 10);
        Alert { annotations: Arc::new(BTreeMap::from([("text".to_owned(), text)])), ..alert(name, 1000, 2000) }
    };
    router.insert_posted(vec![large("A", 200)]).await.unwrap();
    let told = router.insert_posted(vec![large("B", 200)]).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable);
    router.insert_posted(vec![large("A", 200)]).await.expect("it is no more than before");
    assert!(router.insert_posted(vec![large("A", 300)]).await.is_err(), "it grows");
    router.insert_posted(vec![large("B", 10)]).await.expect("there is room for a small one");
    router.insert(vec![large("C", 200)]).await.expect("rules have more");
    assert_eq!(router.state.lock().dispatcher.alert_count(), 3);
}

#[tokio::test]
async fn ended_alerts_leave() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    router.insert(vec![alert("A", 1000, 1005)]).await.unwrap();
    clock.0.store(1_011_000, SeqCst);
    router.flush_due();
    while router.state.lock().dispatcher.alert_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    router.kept.put(Vec::new()).durable().await.unwrap();
    assert!(router.kept.load(RowKind::Alert).await.unwrap().is_empty());
    // A new policy groups anew.
    router.insert(vec![alert("A", 1011, 2000)]).await.unwrap();
    let other = Policy::load("route: {receiver: b}\nreceivers: [{name: b}]", &|_| Ok(Vec::new())).unwrap();
    router.set_policy(ConfigOrigin::Stored, Some(other.clone()));
    assert!(router.is_policy_of_file() && router.policy().config.receiver("a").is_some(), "the file goes before it");
    router.set_policy(ConfigOrigin::Files, Some(other));
    let asked = AlertFilter { receiver: &|name| name == "b", ..asked(everything()) };
    let groups = router.groups(&asked);
    assert_eq!((groups.len(), groups[0].0.receiver.as_str(), groups[0].1.len()), (1, "b", 1));
    assert_eq!(router.alerts(&AlertFilter { receiver: &|name| name == "a", ..asked }).len(), 0);
}

/// What was noted, in order.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<Record>>);

impl HistoryStore for Noted {
    fn write(&self, records: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>> {
        self.0.lock().extend(records.iter().cloned());
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn what_others_hold_back_is_noted_when_a_group_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    let held = |router: &Router| router.state.lock().inhibited.values().copied().collect::<Vec<_>>();
    router.insert(vec![alert("A", 1000, 1350)]).await.unwrap();
    router.insert_posted(vec![alert("B", 1000, 9000)]).await.unwrap();
    clock.0.store(1_011_000, SeqCst);
    router.flush_due();
    let since = 1_000_000 * MS;
    assert_eq!(held(&router), [since]);
    // It is kept, and another report takes nothing of that.
    router.insert_posted(vec![alert("B", 1005, 9000)]).await.unwrap();
    let opened = open(dir.path(), POLICY, &clock).await;
    assert_eq!(held(&opened), [since]);
    // Nothing holds it back any more. A group is judged again once its flush is over.
    clock.0.store(1_400_000, SeqCst);
    while !held(&router).is_empty() {
        router.flush_due();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (noted, stop) = (Arc::<Noted>::default(), CancellationToken::new());
    router.metrics.history.start(Arc::<Noted>::clone(&noted), &stop);
    stop.cancel();
    let expected = [("inhibit", since / MS), ("uninhibit", since / MS)];
    let actions = || -> Vec<(&'static str, i64)> {
        let of_b = |action: &Action| action.labels.get("alertname") == "B" && action.actor.is_empty();
        let action = |record: &Record| match record {
            Record::Action(action) if of_b(action) => Some((action.action, action.starts_at)),
            Record::Action(_) | Record::Event(_) | Record::Evaluation(_) | Record::Attempt(_) => None,
        };
        noted.0.lock().iter().filter_map(action).collect()
    };
    while actions().len() < expected.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(actions(), expected);
    // An alert that is gone is forgotten.
    router.insert_posted(vec![alert("A", 1400, 9000)]).await.unwrap();
    while held(&router).is_empty() {
        clock.0.fetch_add(300_000, SeqCst);
        router.flush_due();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clock.0.store(9_100_000, SeqCst);
    while router.state.lock().dispatcher.alert_count() > 0 {
        clock.0.fetch_add(300_000, SeqCst);
        router.flush_due();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(held(&router).is_empty());
}

/// Breaks where a stop in order has a receiver get a message twice.
#[tokio::test]
async fn a_stop_waits_for_messages_that_are_being_sent() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock(AtomicI64::new(1_000_000))));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let policy = format!(
        "route: {{receiver: a, group_wait: 10s}}\nreceivers: [{{name: a, webhook_configs: [{{url: 'http://{}/'}}]}}]\n",
        socket.local_addr().unwrap()
    );
    let router = open(dir.path(), &policy, &clock).await;
    router.insert(vec![alert("A", 1000, 2000)]).await.unwrap();
    clock.0.store(1_011_000, SeqCst);
    router.flush_due();
    let (mut peer, _) = socket.accept().await.unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.trim_end().ends_with('}') {
        let n = peer.read(&mut buffer).await.unwrap();
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    let settled = tokio::spawn({
        let router = Arc::clone(&router);
        async move { router.settle().await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!settled.is_finished(), "the message is on its way");
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
    settled.await.unwrap();
    let again = open(dir.path(), &policy, &clock).await;
    assert_eq!(again.state.lock().log.entries().count(), 1, "it is known that the receiver was told");
}

#[tokio::test]
async fn receivers_are_those_of_the_groups_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let policy = "route: {receiver: a, routes: [{matchers: [alertname=A], continue: true}, {matchers: [alertname=A], \
        receiver: b, continue: true}, {matchers: [alertname=A], mute_time_intervals: [always]}]}\n\
        receivers: [{name: a}, {name: b}]\ntime_intervals: [{name: always, time_intervals: [{}]}]\n";
    let router = open(dir.path(), policy, &clock).await;
    router.insert(vec![alert("A", 1000, 2000)]).await.unwrap();
    let all = asked(everything());
    assert_eq!(router.alerts(&all)[0].receivers, ["a", "b", "a"]);
    let groups = |asked: &AlertFilter<'_>| -> Vec<Vec<String>> {
        router.groups(asked).into_iter().flat_map(|group| group.1).map(|row| row.receivers).collect()
    };
    assert_eq!(groups(&all), [["a", "a", "b"], ["a", "a", "b"], ["a", "a", "b"]]);
    assert_eq!(groups(&AlertFilter { receiver: &|name| name == "b", ..all }), [["b"]]);
    let all = asked(AlertStateFilter { muted: false, ..everything() });
    assert_eq!(groups(&all).len(), 2);
    // A muted route is nothing that silences or inhibits.
    assert!(groups(&AlertFilter { shown: AlertStateFilter { active: false, ..everything() }, ..all }).is_empty());
}

/// Labels of routes are rendered over the whole group, muted or not, asked for or not, as far as it may be seen.
#[tokio::test]
async fn groups_show_labels_of_their_routes_rendered() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let policy = "route: {receiver: a, labels: {plain: x, names: '{{ range .Alerts }}{{ .Labels.alertname }}{{ end }}', \
        wrong: '{{ .Nothing }}'}}\nreceivers: [{name: a}]\n";
    let router = open(dir.path(), policy, &clock).await;
    router.insert(vec![alert("B", 1000, 2000), alert("A", 1000, 2000)]).await.unwrap();
    let shown = |asked: &AlertFilter<'_>| -> Vec<(String, String)> {
        let groups = router.groups(asked);
        assert_eq!(groups.len(), 1);
        groups[0].0.route_labels.clone().into_iter().collect()
    };
    let expected = |names: &str| {
        [("names", names), ("plain", "x")].map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec()
    };
    let all = asked(everything());
    assert_eq!(shown(&all), expected("AB"));
    let is_a = |labels: &LabelSet| labels.get("alertname") == "A";
    assert_eq!(shown(&AlertFilter { labels: &is_a, ..asked(everything()) }), expected("AB"));
    assert_eq!(shown(&AlertFilter { labels: &is_a, sees: &is_a, ..asked(everything()) }), expected("A"));
}

/// A receiver that does not answer keeps its own groups waiting, and those of no other.
#[tokio::test]
async fn each_receiver_has_its_places() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let policy = "route: {receiver: a, group_by: [...], routes: [{matchers: [alertname=B], receiver: b}]}\n\
        receivers: [{name: a}, {name: b}]\n";
    let router = open(dir.path(), policy, &clock).await;
    router.insert(vec![alert("A", 1000, 1005), alert("B", 1000, 1005)]).await.unwrap();
    let places = router.places_of("a");
    let all = u32::try_from(places.available_permits()).unwrap();
    let held = places.acquire_many_owned(all).await.unwrap();
    clock.0.store(1_040_000, SeqCst);
    router.flush_due();
    let known = || router.state.lock().dispatcher.alert_count();
    while known() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(router.state.lock().dispatcher.alert(&alert("A", 0, 0).labels).is_some(), "it waits");
    drop(held);
    while known() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Alerts come in while others are listed, and a list ends when nobody waits for it.
#[tokio::test]
async fn lists_give_way() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    router.insert(vec![alert("A", 1000, 2000), alert("B", 1000, 2000)]).await.unwrap();
    let all = asked(everything());
    let mut told = 0;
    let is_free = |told: &mut i32| {
        *told += 1;
        assert!(router.state.try_lock().is_some());
        Ok(())
    };
    router.each_alert(&all, &mut |_| is_free(&mut told)).unwrap();
    router.each_group(&all, &mut |_| is_free(&mut told)).unwrap();
    assert_eq!(told, 6, "two alerts, and two groups of one each");
    let gone = AlertFilter { go_on: &|| Err(Error::new(ErrorKind::Cancelled, "gone")), ..all };
    assert_eq!(router.each_alert(&gone, &mut |_| Ok(())).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(router.each_group(&gone, &mut |_| Ok(())).unwrap_err().kind(), ErrorKind::Cancelled);
}

/// Alerts of others end without a word. They are looked at only when one may have ended, and each end is noted.
#[tokio::test]
async fn alerts_of_others_end_when_their_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    let posted = |router: &Router| {
        let state = router.state.lock();
        (state.posted.len(), state.posted_until / MS / 1000)
    };
    router.insert_posted(vec![alert("A", 1000, 1060), alert("B", 1000, 1030)]).await.unwrap();
    router.note_ended();
    assert_eq!(posted(&router), (2, 1030));
    router.insert_posted(vec![alert("B", 1000, 1090)]).await.unwrap();
    for (now_s, expected) in
        [(1029, (2, 1030)), (1031, (2, 1060)), (1060, (1, 1090)), (1090, (0, i64::MAX / MS / 1000))]
    {
        clock.0.store(now_s * 1000, SeqCst);
        router.note_ended();
        assert_eq!(posted(&router), expected, "{now_s}");
    }
    router.insert_posted(vec![alert("C", 1090, 1100)]).await.unwrap();
    assert_eq!(posted(&router), (1, 1100));
    let opened = open(dir.path(), POLICY, &clock).await;
    opened.note_ended();
    assert_eq!(posted(&opened), (1, 1100), "those that were kept are looked at once");
}

/// A clock that was set while nothing else passes.
#[derive(Debug, Default)]
struct Leaping(AtomicI64);

impl Clock for Leaping {
    fn now_ms(&self) -> i64 {
        self.0.load(SeqCst)
    }

    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }
}

/// Of a clock that is set by 40 days what is entered first notices: what is new does not move with what was there.
#[tokio::test]
async fn new_alerts_do_not_leap() {
    const DAYS_MS: i64 = 40 * 86_400_000;
    let key = |name: &str| LogKey {
        group_key: name.to_owned(),
        receiver: "a".to_owned(),
        integration: "webhook".to_owned(),
        idx: 0,
    };
    for leap in [DAYS_MS, -DAYS_MS] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(Leaping(AtomicI64::new(2 * DAYS_MS)));
        let mut router = Arc::into_inner(open(dir.path(), POLICY, &Arc::default()).await).unwrap();
        router.clock = Arc::<Leaping>::clone(&clock);
        router.state.lock().clocks = Clocks::read(&*clock);
        let start_s = 2 * DAYS_MS / 1000;
        router.insert(vec![alert("A", start_s, start_s + 600)]).await.unwrap();
        router.state.lock().log.set(key("A"), Entry { at: start_s * 1000 * MS, ..Entry::default() });
        clock.0.fetch_add(leap, SeqCst);
        let leapt_s = start_s + leap / 1000;
        router.insert(vec![alert("B", leapt_s, leapt_s + 600)]).await.unwrap();
        {
            let state = router.state.lock();
            let due: Vec<i64> = state.dispatcher.timers().map(|(_, at)| at / MS / 1000 - leapt_s).collect();
            assert_eq!(due, [10, 10], "both are told as soon as if no clock had been set");
            let ends: Vec<i64> = state.dispatcher.alerts().map(|a| a.ends_at / MS / 1000 - leapt_s).collect();
            assert_eq!(ends, [600, 600]);
            assert_eq!(state.log.get(&key("A")).map(|e| e.at), Some(leapt_s * 1000 * MS), "it is not told again");
        }
        router.forget();
        assert!(router.state.lock().log.get(&key("A")).is_some(), "its end is still to be told");
        let kept = router.kept.load(RowKind::Told).await.unwrap();
        assert_eq!(kept.len(), 1, "it is kept as it is now");
        assert_eq!(kept[0].1["at"].as_i64(), Some(leapt_s * 1000 * MS));
    }
}

#[tokio::test]
async fn routes_are_tried() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let policy = "route: {receiver: a, routes: [{matchers: [x=1], continue: true}, {matchers: [y=1], receiver: b, \
        group_by: [y], routes: [{matchers: [z=1], mute_time_intervals: [always]}]}]}\n\
        receivers: [{name: a}, {name: b}]\ntime_intervals: [{name: always, time_intervals: [{}]}]\n";
    let router = open(dir.path(), policy, &clock).await;
    let tried = |pairs: &[(&str, &str)]| -> Vec<(String, String, usize)> {
        let found = router.test_route(&LabelSet::from_pairs(pairs.iter().copied()), router.now());
        found.into_iter().map(|m| (m.path.join(" "), m.options.receiver, m.muted.len())).collect()
    };
    let one = |path: &str, receiver: &str, muted| (path.to_owned(), receiver.to_owned(), muted);
    assert_eq!(tried(&[]), [one("root", "a", 0)]);
    assert_eq!(tried(&[("x", "1"), ("y", "1")]), [one("root root/0", "a", 0), one("root root/1", "b", 0)]);
    assert_eq!(tried(&[("y", "1"), ("z", "1")]), [one("root root/1 root/1/0", "b", 1)]);
}

/// Breaks where a policy puts alerts that are known into more groups than there is memory for.
#[tokio::test]
async fn a_policy_of_many_routes_keeps_what_there_is_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(1_000_000)));
    let router = open(dir.path(), POLICY, &clock).await;
    router.insert_posted(vec![alert("A", 1000, 2000), alert("B", 1000, 2000), alert("C", 1000, 2000)]).await.unwrap();
    let routes = vec!["{continue: true, matchers: ['alertname!=\"C\"']}"; 1500].join(", ");
    let policy = format!("route: {{receiver: a, routes: [{routes}]}}\nreceivers: [{{name: a}}]\n");
    let policy = Policy::load(&policy, &|_| Ok(Vec::new())).unwrap();
    router.set_policy(ConfigOrigin::Files, Some(policy));
    let names = || {
        let state = router.state.lock();
        let names = state.dispatcher.alerts().map(|alert| alert.labels.get("alertname").to_owned());
        (names.collect::<Vec<_>>(), state.dispatcher.groups().count(), state.posted.len())
    };
    // One of the two finds room in all of its groups, and the one in few groups stays.
    assert_eq!(names(), (vec!["A".to_owned(), "C".to_owned()], 1501, 2));
    assert!(router.insert_posted(vec![alert("B", 1000, 2000)]).await.is_err(), "there is no room for another");
    router.kept.put(Vec::new()).durable().await.unwrap();
    assert_eq!(router.kept.load(RowKind::Alert).await.unwrap().len(), 2);
    let few = Policy::load(POLICY, &|_| Ok(Vec::new())).unwrap();
    router.set_policy(ConfigOrigin::Files, Some(few));
    router.insert_posted(vec![alert("B", 1000, 2000)]).await.expect("groups that are gone take nothing");
    assert_eq!(names().1, 3);
}

/// Breaks if the routes of all alerts are collected before anybody counts them: 100,000 alerts may take 1,000 routes each.
#[tokio::test]
async fn routes_are_collected_as_far_as_groups_have_room() {
    let dir = tempfile::tempdir().unwrap();
    let router = open_for(300, dir.path(), POLICY, &Arc::new(TestClock(AtomicI64::new(1000)))).await;
    router.insert_posted((0..300).map(|n| alert(&format!("A{n}"), 0, 1000)).collect()).await.unwrap();
    let collected = |routes: usize| {
        let routes = vec!["{continue: true, matchers: ['x=\"\"']}"; routes].join(", ");
        let policy = format!("route: {{receiver: a, routes: [{routes}]}}\nreceivers: [{{name: a}}]\n");
        let policy = Policy::load(&policy, &|_| Ok(Vec::new())).unwrap();
        router.taken_routes(&policy.config.routes()).len()
    };
    // Groups of one alert at 1,000 routes take half of what there is.
    assert!((1..5).contains(&collected(1000)), "{}", collected(1000));
    // Few alerts are looked for later, and so are all where that takes no time.
    assert_eq!((collected(500) < 10, collected(1)), (true, 0));
}
