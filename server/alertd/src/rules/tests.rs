use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use quiver_alerting::rules::{
    AlertState, Element, ElementValue, Expressions, Health, Language, ParsedExpr, Reads, RuleSample, read,
};
use quiver_types::{LabelSet, Millis, SystemClock};
use quiver_yaml::problem::Place;

use super::*;
use crate::delivery::{ProxyEnvironment, Sender};
use crate::egress::Egress;
use crate::history::{Event, HistoryStore, Record};
use crate::router::{AlertFilter, AlertStateFilter, PolicySources, RouterSettings};

#[derive(Debug)]
struct AnyText;

impl Expressions for AnyText {
    fn parse(&self, _: Language, expr: &str) -> std::result::Result<ParsedExpr, (Place, String)> {
        Ok(ParsedExpr { canonical: expr.to_owned() })
    }
}

/// Says whether expressions have an alert.
#[derive(Debug, Default)]
struct Answers {
    hit: AtomicBool,
    /// Whether the next cycle meets a fault of ours.
    is_faulty: AtomicBool,
}

/// Answers by the text of an expression.
#[derive(Debug)]
struct Answering {
    hit: bool,
    timeout: Duration,
}

impl Engine for Answering {
    fn query(&self, _: usize, _: Language, expr: &str, _: Millis) -> std::result::Result<Vec<Element>, String> {
        match expr {
            "hang" => {
                std::thread::sleep(self.timeout);
                Err("timed out".to_owned())
            }
            "panic" => panic!("a fault"),
            "err" => Err("no".to_owned()),
            _ if self.hit => {
                let labels = LabelSet::from_pairs([("i", "1")]);
                Ok(vec![Element { labels, value: ElementValue::Float(1.0) }])
            }
            _ => Ok(Vec::new()),
        }
    }

    fn write(&self, _: &[RuleSample]) -> std::result::Result<(), String> {
        Ok(())
    }

    fn reads(&self, _: Language, _: &str) -> Reads {
        Reads::Series(Vec::new())
    }
}

impl Engines for Answers {
    fn engine(&self, asker: &GroupContext) -> Arc<dyn Engine + Send + Sync> {
        assert!(!self.is_faulty.swap(false, SeqCst), "a fault");
        Arc::new(Answering { hit: self.hit.load(SeqCst), timeout: asker.timeout })
    }
}

/// A clock that tests let leap; what passes is real.
#[derive(Debug, Default)]
struct Leaping(AtomicI64);

impl Clock for Leaping {
    fn now_ms(&self) -> i64 {
        SystemClock.now_ms() + self.0.load(SeqCst)
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }
}

async fn open(dir: &std::path::Path, engines: &Arc<Answers>) -> Arc<Rules> {
    open_over(dir, engines, Arc::new(SystemClock)).await
}

async fn open_over(dir: &std::path::Path, engines: &Arc<Answers>, clock: Arc<dyn Clock>) -> Arc<Rules> {
    let kept = StateDatabase::open(&dir.join("alerts.db")).await.unwrap();
    let metrics = Arc::<AlertMetrics>::default();
    let router = RouterSettings {
        external_url: "http://q".to_owned(),
        files_dir: None,
        alerts_max: 100,
        alert_bytes_max: 1 << 20,
        service_labels: vec!["service".to_owned()],
    };
    let sender = Sender::new(
        Egress::default(),
        ProxyEnvironment::default(),
        1 << 20,
        Arc::new(SystemClock),
        Arc::clone(&metrics),
    );
    let opened = Router::open(
        router,
        PolicySources::default(),
        Arc::clone(&kept),
        sender,
        Arc::clone(&clock),
        Arc::clone(&metrics),
    );
    let settings = RuleSettings {
        interval_ms: 100,
        resend_delay_ms: 60_000,
        error_hold_ms: 3_600_000,
        concurrent_max: 4,
        setting: EvaluationSettings {
            external_labels: [("dc".to_owned(), "x".to_owned())].into(),
            ..EvaluationSettings::default()
        },
    };
    let engines: Arc<dyn Engines> = Arc::<Answers>::clone(engines);
    Rules::open(settings, engines, opened.await.unwrap(), kept, clock, metrics).await.unwrap()
}

fn sources(text: &str) -> Vec<Source> {
    let file = read(text, &AnyText).unwrap_or_else(|e| panic!("{e}"));
    file.groups.into_iter().map(|group| Source::of_file("f.yml", group)).collect()
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        // A machine that compiles beside it lets a test wait for minutes.
        assert!(began.elapsed() < Duration::from_mins(5), "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn state(rules: &Rules, group: &str) -> Option<AlertState> {
    rules.views().iter().find(|v| v.group.model.name == group).map(|v| v.group.rules[0].state())
}

fn sent(rules: &Rules) -> Vec<String> {
    let shown = AlertStateFilter { active: true, silenced: true, inhibited: true, muted: true };
    let asked = AlertFilter { shown, labels: &|_| true, sees: &|_| true, receiver: &|_| true, go_on: &|| Ok(()) };
    rules.router.alerts(&asked).iter().map(|r| quiver_alerting::labels::show(&r.alert.labels)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_reach_the_router_and_outlive_a_restart() {
    let (dir, began) = (tempfile::tempdir().unwrap(), std::time::Instant::now());
    let engines = Arc::<Answers>::default();
    engines.hit.store(true, SeqCst);
    let text = "groups: [{name: g, rules: [{alert: A, expr: x}]}, {name: p, rules: [{alert: P, expr: x, for: 1h}]}]";
    let rules = open(dir.path(), &engines).await;
    let stop = CancellationToken::new();
    rules.set(ConfigOrigin::Files, sources(text));
    rules.start(&stop);
    until("sent", || sent(&rules).len() == 1).await;
    assert_eq!(sent(&rules), ["{alertname=\"A\", dc=\"x\", i=\"1\"}"]);
    until("pending", || state(&rules, "p") == Some(AlertState::Pending)).await;
    let since = |rules: &Rules| -> Vec<Millis> {
        rules.views().iter().flat_map(|v| v.group.rules[0].alerts().map(|a| a.active_at).collect::<Vec<_>>()).collect()
    };
    let before = since(&rules);
    stop.cancel();
    tokio::time::sleep(Duration::from_millis(150)).await;
    rules.kept.put(Vec::new()).durable().await.unwrap();
    // Down and up again: alerts are there before anything is evaluated.
    let again = open(dir.path(), &engines).await;
    again.set(ConfigOrigin::Files, sources(text));
    assert_eq!(state(&again, "g"), Some(AlertState::Firing));
    let after = since(&again);
    assert_eq!(before[0], after[0], "what fires goes on");
    let most = began.elapsed().as_millis() as i64;
    assert!((0..=most).contains(&(after[1] - before[1])), "the time down does not count: {before:?} {after:?}, {most}");
    // What fires no more resolves, at the second evaluation after the start.
    engines.hit.store(false, SeqCst);
    again.start(&CancellationToken::new());
    until("resolved", || sent(&again).is_empty()).await;
    until("forgotten", || state(&again, "p") == Some(AlertState::Inactive)).await;
}

/// F7: whatever way the clock leaps, nothing fires for it, ends by it, or is told as new.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_leaps_neither_fires_nor_forgets() {
    let dir = tempfile::tempdir().unwrap();
    let engines = Arc::<Answers>::default();
    engines.hit.store(true, SeqCst);
    let clock = Arc::new(Leaping::default());
    let rules = open_over(dir.path(), &engines, Arc::<Leaping>::clone(&clock)).await;
    let stop = CancellationToken::new();
    let text = "groups: [{name: g, rules: [{alert: A, expr: x}]}, {name: p, rules: [{alert: P, expr: x, for: 1h}]}]";
    rules.set(ConfigOrigin::Files, sources(text));
    rules.router.start(&stop);
    rules.start(&stop);
    until("firing", || sent(&rules).len() == 1).await;
    until("pending", || state(&rules, "p") == Some(AlertState::Pending)).await;
    let hour = 3_600_000;
    for leap_ms in [2 * hour, -3 * hour, 26 * hour, -25 * hour] {
        clock.0.fetch_add(leap_ms, SeqCst);
        let now = clock.now_ms();
        let view = |name: &str| rules.views().into_iter().find(|v| v.group.model.name == name).unwrap();
        let seen = |name: &str| view(name).last_evaluation.is_some_and(|at| (at - now).abs() < 60_000);
        until("both were evaluated after the leap", || seen("g") && seen("p")).await;
        assert_eq!(state(&rules, "g"), Some(AlertState::Firing), "{leap_ms}");
        assert_eq!(state(&rules, "p"), Some(AlertState::Pending), "{leap_ms}");
        let since = view("p").group.rules[0].alerts().next().unwrap().active_at;
        // Less than any leap, more than any machine stands still.
        assert!((0..hour).contains(&(clock.now_ms() - since)), "pending since {since}, after a leap of {leap_ms}");
        until("the alert fires at the router", || sent(&rules).len() == 1).await;
        let missed: u64 = rules.views().iter().map(|v| v.missed).sum();
        // Those of the least leap would be 72,000.
        assert!(missed < 10_000, "{missed} cycles count as missed after a leap of {leap_ms}");
    }
    stop.cancel();
}

/// Breaks where a fault outside of the evaluation ends a group for good, while the server looks well.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_on_after_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    let engines = Arc::<Answers>::default();
    engines.hit.store(true, SeqCst);
    engines.is_faulty.store(true, SeqCst);
    let rules = open(dir.path(), &engines).await;
    rules.set(ConfigOrigin::Files, sources("groups: [{name: g, rules: [{alert: A, expr: x}]}]"));
    let stop = CancellationToken::new();
    rules.start(&stop);
    until("sent", || sent(&rules).len() == 1).await;
    assert_eq!(rules.metrics.background.notes(), ["faults of ours in the evaluation of rules: 1; see the log"]);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_harms_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let engines = Arc::<Answers>::default();
    engines.hit.store(true, SeqCst);
    let rules = open(dir.path(), &engines).await;
    rules.start(&CancellationToken::new());
    let bad = "groups: [{name: h, rules: [{alert: H, expr: hang}]}, {name: c, rules: [{alert: C, expr: panic}]}, \
        {name: e, rules: [{alert: E, expr: err}, {alert: F, expr: x}]}, {name: g, rules: [{alert: A, expr: x}]}]";
    rules.set(ConfigOrigin::Files, sources(bad));
    let view = |name: &str| rules.views().into_iter().find(|v| v.group.model.name == name).unwrap();
    until("the hanging one has missed", || view("h").missed >= 8).await;
    until("others go on", || state(&rules, "g") == Some(AlertState::Firing)).await;
    until("the panic is told", || matches!(view("c").group.rules[0].health, Health::Err(_))).await;
    until("the error is told", || matches!(&view("e").group.rules[0].health, Health::Err(e) if e == "no")).await;
    until("the rule behind it goes on", || view("e").group.rules[1].health == Health::Ok).await;
    // Where the machine stands still all of them miss some.
    let (mut last, mut between) = ((view("h").missed, view("g").missed), view("g").missed);
    for _ in 0..4 {
        if between <= 3 {
            break;
        }
        until("the hanging one has missed more", || view("h").missed >= last.0 + 8).await;
        between = view("g").missed - last.1;
        last = (view("h").missed, view("g").missed);
    }
    assert!(between <= 3, "{between} cycles were missed beside one that hangs");
    // A group that goes ends its alerts; one that changes keeps those of equal rules.
    let since = view("g").group.rules[0].alerts().next().unwrap().active_at;
    rules.set(
        ConfigOrigin::Files,
        sources("groups: [{name: g, rules: [{alert: B, expr: y}, {alert: A, expr: x, annotations: {s: t}}]}]"),
    );
    until("changed", || view("g").group.rules.len() == 2 && view("g").group.rules[0].health == Health::Ok).await;
    assert_eq!(view("g").group.rules[1].alerts().next().unwrap().active_at, since);
    rules.set(ConfigOrigin::Files, Vec::new());
    until("resolved", || sent(&rules).is_empty()).await;
    let mut out = String::new();
    rules.metrics.write(&mut out);
    assert!(!out.contains("quiver_rule_missed_iterations_total 0"), "{out}");
}

/// Rules that need nothing of each other run at once, as many as their group lets and as there are places for.
#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_group_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let rules = open(dir.path(), &Arc::<Answers>::default()).await;
    rules.start(&CancellationToken::new());
    // Each takes a second.
    let three = "{alert: A, expr: hang}, {alert: B, expr: hang}, {record: c, expr: hang}";
    let set = |concurrency: usize| {
        let text = format!("groups: [{{name: g{concurrency}, concurrency: {concurrency}, rules: [{three}]}}]");
        rules.set(ConfigOrigin::Files, sources(&text));
    };
    let view = |name: &str| rules.views().into_iter().find(|v| v.group.model.name == name).unwrap();
    set(3);
    until("a cycle of three at once", || {
        let view = view("g3");
        view.last_evaluation.is_some() && view.evaluation_time < Duration::from_millis(2500)
    })
    .await;
    assert!(view("g3").group.rules.iter().all(|r| r.health == Health::Err("timed out".to_owned())));
    set(1);
    until("a cycle", || view("g1").last_evaluation.is_some()).await;
    assert!(view("g1").evaluation_time >= Duration::from_secs(3), "{:?}", view("g1").evaluation_time);
}

/// Keeps the changes of alerts that the history is told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<Event>>);

impl HistoryStore for Told {
    fn write(&self, records: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>> {
        let events = records.iter().filter_map(|r| if let Record::Event(e) = r { Some(e.clone()) } else { None });
        self.0.lock().extend(events);
        Box::pin(async { Ok(()) })
    }
}

impl Told {
    /// Gives the firing periods: alert, and whether it has begun and ended.
    fn periods(&self) -> BTreeMap<String, (String, bool, bool)> {
        let mut out = BTreeMap::new();
        for event in self.0.lock().iter().filter(|e| !e.episode().is_empty()) {
            let name = event.labels.get("alertname").to_owned();
            let period = out.entry(event.episode()).or_insert((name, false, false));
            period.1 |= event.to == "firing";
            period.2 |= event.from == "firing" && event.ends_at.is_some();
        }
        out
    }

    /// Waits until so many periods of an alert have a beginning and an end.
    async fn until_ended(&self, alert: &str, count: usize) {
        let whole = |(name, begun, ended): &(String, bool, bool)| name == alert && *begun && *ended;
        until(&format!("{count} periods of {alert}"), || self.periods().values().filter(|p| whole(p)).count() == count)
            .await;
    }
}

/// Whatever becomes of a rule, each firing period has an end.
#[tokio::test(flavor = "multi_thread")]
async fn what_fired_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let engines = Arc::<Answers>::default();
    engines.hit.store(true, SeqCst);
    let (told, stop) = (Arc::<Told>::default(), CancellationToken::new());
    let clock = Arc::new(Leaping::default());
    let rules = open_over(dir.path(), &engines, Arc::<Leaping>::clone(&clock)).await;
    rules.metrics.history.start(Arc::<Told>::clone(&told), &stop);
    rules.start(&stop);
    let set = |rules: &Rules, list: &str| {
        rules.set(ConfigOrigin::Files, sources(&format!("groups: [{{name: g, rules: [{list}]}}]")));
    };
    let fires = |rules: &Rules| state(rules, "g") == Some(AlertState::Firing);
    set(&rules, "{alert: A, expr: x}, {alert: B, expr: x}");
    until("firing", || fires(&rules)).await;
    // Its expression is another one, and the other rule is gone.
    set(&rules, "{alert: A, expr: y}");
    told.until_ended("A", 1).await;
    told.until_ended("B", 1).await;
    // The clock leaps, then its `for` is raised.
    until("firing", || fires(&rules)).await;
    clock.0.fetch_add(7_200_000, SeqCst);
    let leapt = clock.now_ms();
    until("a cycle after the leap", || {
        rules.views().iter().all(|v| v.last_evaluation.is_some_and(|at| (at - leapt).abs() < 600_000))
    })
    .await;
    set(&rules, "{alert: A, expr: y, for: 1d}");
    told.until_ended("A", 2).await;
    set(&rules, "{alert: A, expr: y}");
    until("firing", || fires(&rules)).await;
    // A disabled rule does not wait for its cycle.
    let mut disabled = sources("groups: [{name: g, rules: [{alert: A, expr: y}]}]");
    disabled[0].group.rules[0].enabled = false;
    rules.set(ConfigOrigin::Files, disabled);
    told.until_ended("A", 3).await;
    // Edited while down.
    set(&rules, "{alert: A, expr: y}");
    until("firing", || fires(&rules)).await;
    until("begun", || told.periods().values().filter(|p| p.0 == "A").count() == 4).await;
    stop.cancel();
    tokio::time::sleep(Duration::from_millis(300)).await;
    rules.kept.put(Vec::new()).durable().await.unwrap();
    let again = open_over(dir.path(), &engines, clock).await;
    set(&again, "{alert: A, expr: z}");
    let stop = CancellationToken::new();
    again.metrics.history.start(Arc::<Told>::clone(&told), &stop);
    again.start(&stop);
    told.until_ended("A", 4).await;
    assert!(told.periods().values().all(|p| p.1), "{:?}", told.periods());
}
