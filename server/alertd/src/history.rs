//! Records of what alerting did: state changes of alerts, actions of users, evaluations, notifications. The caller
//! provides the place where they are stored.
//!
//! Nothing waits for it: records are queued, and one task passes them on in batches. If the store does not accept them
//! they wait, up to a limit; lost records are counted.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_alerting::labels::{fingerprint, fingerprint_text};
use quiver_types::{LabelSet, Millis, Result};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A rule, as records name it; all empty: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleRef {
    /// Id of a stored rule; empty: it stands in a file.
    pub id: String,
    /// Name of the alert or metric.
    pub name: String,
    /// File or namespace of its group.
    pub namespace: String,
    /// Name of its group.
    pub group: String,
}

/// An alert changed its state.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When that was.
    pub at: Millis,
    /// Labels as receivers are told them.
    pub labels: LabelSet,
    /// Annotations by name, made by templates already.
    pub annotations: Vec<(String, String)>,
    /// `inactive`, `pending`, `firing`.
    pub from: &'static str,
    /// `inactive`, `pending`, `firing`, or `resolved`.
    pub to: &'static str,
    /// Since when it fires; of one that does not: since when the expression has it.
    pub starts_at: Millis,
    /// When it ended.
    pub ends_at: Option<Millis>,
    /// The value of the expression.
    pub value: Option<f64>,
    /// `rule`, or `intake` where others posted it.
    pub source: &'static str,
    /// Whose alert it is.
    pub rule: RuleRef,
    /// Address of a page about what made the alert, as its sender gives it.
    pub generator_url: String,
}

impl Event {
    /// Names the firing period that the change belongs to; empty where it belongs to none.
    pub fn episode(&self) -> String {
        if self.from == "firing" || self.to == "firing" { episode(&self.labels, self.starts_at) } else { String::new() }
    }
}

/// Names a firing period of an alert.
pub fn episode(labels: &LabelSet, starts_at: Millis) -> String {
    format!("{}-{starts_at}", fingerprint_text(fingerprint(labels)))
}

/// Somebody did something to an alert, or the service began or ceased to hold it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When that was.
    pub at: Millis,
    /// The alert; none: no alert was there.
    pub labels: LabelSet,
    /// Since when it fires; 0 without an alert.
    pub starts_at: Millis,
    /// `silence` or `unsilence`; `inhibit` or `uninhibit`.
    pub action: &'static str,
    /// Who; empty: the service itself.
    pub actor: String,
    /// Id of the silence by which that was done; empty: it was done by none.
    pub subject: String,
    /// Why, in words of who did it.
    pub comment: Arc<str>,
    /// Services that the silence names, where it is about no others.
    pub services: Vec<String>,
}

/// A rule was evaluated, or left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// When it was due.
    pub scheduled_at: Millis,
    /// When the evaluation of its group began.
    pub started_at: Millis,
    /// Which rule it was.
    pub rule: RuleRef,
    /// Its labels, which name its service.
    pub labels: Vec<(String, String)>,
    /// Its language: `promql`, `logsql` or `olap`.
    pub language: &'static str,
    /// `ok`, `error` or `missed`.
    pub outcome: &'static str,
    /// Why it failed.
    pub error: String,
    /// How long it took.
    pub took: Duration,
    /// Elements of its result.
    pub results: usize,
    /// Bytes that its queries read, where they were counted.
    pub scanned_bytes: Option<u64>,
}

/// One attempt to tell one integration.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// When it began.
    pub at: Millis,
    /// The same for all attempts of a message.
    pub id: String,
    /// Name of the receiver.
    pub receiver: String,
    /// Kind of the integration.
    pub integration: &'static str,
    /// Its place among those of its kind.
    pub index: usize,
    /// Key of the group.
    pub group_key: String,
    /// Why it is told, like `repeat interval elapsed`.
    pub reason: String,
    /// Which try of the same message it was, from 1.
    pub attempt: u32,
    /// Class and text of the error; `None`: it was taken.
    pub failure: Option<(&'static str, String)>,
    /// Status of the answer; 0: none.
    pub status: u16,
    /// `firing` or `resolved`.
    pub alert_status: &'static str,
    /// How long it took.
    pub took: Duration,
    /// The earliest start among its alerts.
    pub first_alert_at: Millis,
    /// Labels of its alerts.
    pub alerts: Vec<LabelSet>,
}

/// A record of the history, named by the table that it goes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A row of `alert_events`: an alert changed its state.
    Event(Event),
    /// A row of `alert_actions`: somebody did something.
    Action(Action),
    /// A row of `rule_evaluations`: a rule was evaluated or left out.
    Evaluation(Evaluation),
    /// A row of `notifications`: a receiver was called.
    Attempt(Attempt),
}

/// Bytes of a record besides its texts.
const OWN_BYTES: usize = 400;
/// Bytes of an annotation besides its texts.
const TEXT_BYTES: usize = 48;

impl Record {
    /// Its approximate memory in bytes. Of a comment that many share each counts a part only.
    fn bytes(&self) -> usize {
        let texts = match self {
            Self::Event(event) => {
                let texts = event.annotations.iter().map(|(name, value)| name.len() + value.len() + TEXT_BYTES);
                event.labels.canonical().len() + event.generator_url.len() + texts.sum::<usize>()
            }
            Self::Action(action) => action.labels.canonical().len(),
            Self::Evaluation(evaluation) => evaluation.error.len(),
            Self::Attempt(attempt) => {
                attempt.alerts.iter().map(|labels| size_of::<LabelSet>() + labels.canonical().len()).sum()
            }
        };
        OWN_BYTES + texts
    }
}

/// Stores records of the history.
pub trait HistoryStore: Send + Sync + fmt::Debug {
    /// Stores records, all or none.
    fn write(&self, records: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>>;
}

/// Most records that wait.
const WAITING_MAX: usize = 100_000;
/// Most bytes of records that wait, unless the process may have little memory: an event has the annotations of its alert.
const WAITING_BYTES_MAX: usize = 96 << 20;
/// Most records that are handed over at once.
const BATCH_MAX: usize = 20_000;
/// How long records come together.
const GATHER: Duration = Duration::from_millis(200);
/// How often records are handed over that were not taken.
const TRIES: u32 = 30;

/// Takes records without waiting and hands them to the store; past a bound they are lost and counted.
#[derive(Debug)]
pub struct History {
    queue: mpsc::UnboundedSender<Vec<Record>>,
    /// Until it runs.
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Vec<Record>>>>,
    waiting: AtomicUsize,
    waiting_bytes: AtomicUsize,
    waiting_bytes_max: AtomicUsize,
    lost: AtomicU64,
}

impl Default for History {
    fn default() -> Self {
        let (queue, inbox) = mpsc::unbounded_channel();
        Self {
            queue,
            inbox: Mutex::new(Some(inbox)),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicUsize::new(0),
            waiting_bytes_max: AtomicUsize::new(WAITING_BYTES_MAX),
            lost: AtomicU64::new(0),
        }
    }
}

impl History {
    /// Has records wait in no more than so many bytes.
    pub(crate) fn limit_bytes(&self, bytes_max: usize) {
        self.waiting_bytes_max.store(bytes_max.min(WAITING_BYTES_MAX), Relaxed);
    }

    /// Notes records; they are lost, and counted, where too many wait already.
    pub fn note(&self, mut records: Vec<Record>) {
        let all = records.len();
        if self.waiting.load(Relaxed).saturating_add(all) > WAITING_MAX {
            self.lost.fetch_add(all as u64, Relaxed);
            return;
        }
        let room = self.waiting_bytes_max.load(Relaxed).saturating_sub(self.waiting_bytes.load(Relaxed));
        let mut bytes = 0;
        let fit = records.iter().map(Record::bytes).take_while(|more| {
            let fits = bytes + more <= room;
            bytes += if fits { *more } else { 0 };
            fits
        });
        let count = fit.count();
        records.truncate(count);
        self.lost.fetch_add((all - count) as u64, Relaxed);
        if records.is_empty() {
            return;
        }
        self.waiting.fetch_add(count, Relaxed);
        self.waiting_bytes.fetch_add(bytes, Relaxed);
        if self.queue.send(records).is_err() {
            self.lost.fetch_add(count as u64, Relaxed);
        }
    }

    /// Gives the number of records that nobody took.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Begins to hand records over; what has been noted by `stop` is handed over before the task ends.
    pub fn start(self: &Arc<Self>, store: Arc<dyn HistoryStore>, stop: &CancellationToken) {
        let Some(inbox) = self.inbox.lock().take() else { return };
        tokio::spawn(Arc::clone(self).run(inbox, store, stop.clone()));
    }

    async fn run(
        self: Arc<Self>,
        mut inbox: mpsc::UnboundedReceiver<Vec<Record>>,
        store: Arc<dyn HistoryStore>,
        stop: CancellationToken,
    ) {
        loop {
            let first = tokio::select! {
                first = inbox.recv() => first,
                () = stop.cancelled() => inbox.try_recv().ok(),
            };
            let Some(mut batch) = first else { return };
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = stop.cancelled() => {}
            }
            while batch.len() < BATCH_MAX
                && let Ok(more) = inbox.try_recv()
            {
                batch.extend(more);
            }
            let (count, bytes) = (batch.len(), batch.iter().map(Record::bytes).sum::<usize>());
            // A fault of the store loses a batch, not all that come after it.
            let handed = AssertUnwindSafe(hand_over(&*store, Arc::new(batch), &stop)).catch_unwind();
            if !handed.await.unwrap_or(false) {
                self.lost.fetch_add(count as u64, Relaxed);
            }
            self.waiting.fetch_sub(count, Relaxed);
            self.waiting_bytes.fetch_sub(bytes, Relaxed);
        }
    }
}

async fn hand_over(store: &dyn HistoryStore, batch: Arc<Vec<Record>>, stop: &CancellationToken) -> bool {
    for attempt in 1..=TRIES {
        let Err(error) = store.write(Arc::clone(&batch)).await else { return true };
        tracing::warn!(%error, records = batch.len(), attempt, "history of alerting is not stored yet");
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = stop.cancelled() => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Taken(Mutex<Vec<usize>>);

    impl HistoryStore for Taken {
        fn write(&self, records: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>> {
            self.0.lock().push(records.len());
            Box::pin(async { Ok(()) })
        }
    }

    fn action() -> Record {
        Record::Action(Action {
            at: 1,
            labels: LabelSet::default(),
            starts_at: 0,
            action: "silence",
            actor: "me".to_owned(),
            subject: String::new(),
            comment: Arc::default(),
            services: Vec::new(),
        })
    }

    #[tokio::test]
    async fn records_come_together_and_the_last_are_not_lost() {
        let (history, taken, stop) = (Arc::<History>::default(), Arc::<Taken>::default(), CancellationToken::new());
        (0..3).for_each(|_| history.note(vec![action()]));
        stop.cancel();
        let store: Arc<dyn HistoryStore> = Arc::clone(&taken) as _;
        history.start(store, &stop);
        while history.waiting.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(taken.0.lock().iter().sum::<usize>(), 3);
        assert_eq!(history.lost(), 0);
    }

    #[test]
    fn what_waits_is_bounded() {
        let history = History::default();
        history.note(vec![action(); WAITING_MAX]);
        history.note(vec![action(); 2]);
        assert_eq!(history.lost(), 2);
    }

    /// 100,000 events may have 64 KiB of annotations each. What fits waits.
    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes() {
        let (history, taken, stop) = (Arc::<History>::default(), Arc::<Taken>::default(), CancellationToken::new());
        let event = Record::Event(Event {
            at: 9,
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: vec![("text".to_owned(), "x".repeat(1 << 20))],
            from: "inactive",
            to: "firing",
            starts_at: 9,
            ends_at: None,
            value: None,
            source: "rule",
            rule: RuleRef::default(),
            generator_url: String::new(),
        });
        history.note(vec![event.clone(); 60]);
        history.note(vec![event.clone(); 60]);
        assert_eq!((history.waiting.load(Relaxed), history.lost()), (95, 25));
        stop.cancel();
        let store: Arc<dyn HistoryStore> = Arc::clone(&taken) as _;
        history.start(store, &stop);
        while history.waiting_bytes.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(taken.0.lock().iter().sum::<usize>(), 95);
        // A process that may have little memory keeps less.
        let small = History::default();
        small.limit_bytes(8 << 20);
        small.note(vec![event; 60]);
        assert_eq!((small.waiting.load(Relaxed), small.lost()), (7, 53));
    }

    #[test]
    fn changes_that_belong_to_a_firing_period() {
        let event = |from, to, starts_at| Event {
            at: 9,
            labels: LabelSet::from_pairs([("a", "1")]),
            annotations: Vec::new(),
            from,
            to,
            starts_at,
            ends_at: None,
            value: None,
            source: "rule",
            rule: RuleRef::default(),
            generator_url: String::new(),
        };
        let id = fingerprint_text(fingerprint(&LabelSet::from_pairs([("a", "1")])));
        for (from, to, expected) in [
            ("inactive", "pending", String::new()),
            ("pending", "inactive", String::new()),
            ("pending", "firing", format!("{id}-5")),
            ("inactive", "firing", format!("{id}-5")),
            ("firing", "resolved", format!("{id}-5")),
            ("firing", "pending", format!("{id}-5")),
        ] {
            assert_eq!(event(from, to, 5).episode(), expected, "{from} {to}");
        }
        let other = LabelSet::from_pairs([("a", "2")]);
        assert_ne!(episode(&other, 5), format!("{id}-5"));
    }

    /// A store that takes nothing.
    #[derive(Debug)]
    struct Full;

    impl HistoryStore for Full {
        fn write(&self, _: Arc<Vec<Record>>) -> BoxFuture<'_, Result<()>> {
            Box::pin(async { Err(quiver_types::Error::internal("full")) })
        }
    }

    /// Who stops the service does not wait for a store that takes nothing; what is lost is counted.
    #[tokio::test]
    async fn what_nobody_takes_is_lost_at_the_end() {
        let (history, stop) = (Arc::<History>::default(), CancellationToken::new());
        history.note(Vec::new());
        assert_eq!(history.waiting.load(Relaxed), 0);
        history.note(vec![action(); 3]);
        history.note(vec![action(); 2]);
        stop.cancel();
        history.start(Arc::new(Full), &stop);
        // It runs once.
        history.start(Arc::new(Full), &stop);
        while history.waiting.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(history.lost(), 5);
    }
}
