use std::pin::pin;
use std::sync::LazyLock;

use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use futures::FutureExt as _;
use tokio::runtime::{Builder, EnterGuard, Runtime};

use super::*;
use crate::error::from_datafusion;
use crate::pool::SharedPool;

const SIZE: usize = 6400;

fn asked(text: &str) -> QueryInfo {
    QueryInfo { language: "sql", ..QueryInfo::default() }.with_text(text)
}

/// A runtime with a timer, for queries that wait.
fn clock() -> EnterGuard<'static> {
    static CLOCK: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
    CLOCK.enter()
}

/// A pool, with the admission of queries that use it.
struct House {
    shared: Arc<SharedPool>,
    admission: Arc<Admission>,
}

impl House {
    fn new(waiting_max: usize) -> Self {
        let shared = SharedPool::new(Arc::new(FairSpillPool::new(SIZE)), SIZE, Arc::default());
        Self { shared, admission: Admission::new(SIZE, waiting_max) }
    }

    /// The memory of a query, and a reservation in it.
    fn query(&self) -> (Arc<QueryPool>, MemoryReservation) {
        let pool = Arc::new(QueryPool::new(Arc::clone(&self.shared), SIZE));
        let memory = MemoryConsumer::new("rows").register(&(Arc::clone(&pool) as Arc<dyn MemoryPool>));
        (pool, memory)
    }

    /// Begins a query now; `None`: it waits.
    fn begin(&self, text: &str) -> Option<(Claim, MemoryReservation)> {
        let (pool, memory) = self.query();
        self.admission.room(&asked(text), &pool).now_or_never().map(|claim| (claim, memory))
    }

    /// Runs a query that takes so many bytes, to its end.
    fn take(&self, text: &str, bytes: usize) {
        let (pool, memory) = self.query();
        drop(self.admission.room(&asked(text), &pool).now_or_never().expect("room"));
        let _claim = self.admission.room(&asked(text), &pool).now_or_never().expect("room");
        memory.grow(bytes);
        self.admission.lesson(&asked(text), &pool).learn(true);
    }
}

#[test]
fn who_would_be_refused_later_waits() {
    let _time = clock();
    let house = House::new(10);
    house.take("large", 2000);
    let first = house.begin("large").expect("room for one");
    let second = house.begin("large").expect("room for two");
    assert!(house.begin("large").is_none(), "the third would be refused what the others hold");
    // Admitted queries get all the memory that they claimed.
    for (_, memory) in [&first, &second] {
        memory.try_grow(2000).expect("as before");
    }
    drop(first);
    assert!(house.begin("large").is_some());
}

/// Breaks if the run that parses a statement counts as a query that needs little: of 20 equal statements sent at once,
/// all were parsed first and then began together.
#[test]
fn runs_that_take_little_do_not_hide_what_the_query_takes() {
    let _time = clock();
    let house = House::new(10);
    house.take("large", 3000);
    let expected = || house.admission.state.lock().experience.expected(Kind::of(&asked("large")));
    for _ in 0..20 {
        drop(house.begin("large").expect("it is alone"));
    }
    assert_eq!(expected(), 3000);
    house.take("large", 1000);
    assert_eq!(expected(), 2500, "all of it took less");
    // A text that was only parsed so far still counts as unknown.
    drop(house.begin("new").expect("it is alone"));
    assert!(Kind::of(&asked("new")).is_new(&house.admission.state.lock().experience));
    drop(house.begin("new").map(|(claim, memory)| {
        memory.grow(2000);
        (claim, memory)
    }));
    assert!(!Kind::of(&asked("new")).is_new(&house.admission.state.lock().experience));
}

#[test]
fn who_was_refused_what_others_held_begins_alone() {
    let _time = clock();
    let house = House::new(10);
    house.take("large", 1000);
    house.take("little", 10);
    let again = |(pool, _): &(Arc<QueryPool>, MemoryReservation), refusals: u32| {
        house.admission.room_again(&asked("refused"), pool, refusals).now_or_never()
    };
    let alone = |query: &(Arc<QueryPool>, MemoryReservation)| again(query, 2);
    let refused = house.query();
    refused.1.grow(2000);
    refused.1.shrink(2000);
    let large = house.begin("large").expect("room");
    drop(again(&refused, 1).expect("room for what it wanted, and half as much"));
    assert!(alone(&refused).is_none(), "it would be refused once more");
    refused.1.grow(4000);
    refused.1.shrink(4000);
    assert!(again(&refused, 1).is_none(), "the other one takes what it needs");
    drop(large);
    let tail = QueryInfo { standing: true, ..asked("tail") };
    let (tailed, rows) = house.query();
    let _tail = house.admission.room(&tail, &tailed).now_or_never().expect("room");
    rows.grow(1000);
    let _little = house.begin("little").expect("room");
    let first = alone(&refused).expect("those that take little do not matter");
    let second = alone(&refused).expect("another run of the same");
    assert!(house.begin("large").is_none() && alone(&house.query()).is_none(), "it is to stay alone");
    assert!(house.begin("little").is_some());
    drop((first, second));
    rows.free();
    assert!(house.begin("large").is_some());
}

#[test]
fn numbers_make_no_other_query() {
    let hash = |text: &str| Kind::of(&asked(text)).text;
    assert_eq!(hash("/traces?start=1700000000&end=1700003600"), hash("/traces?start=0&end=99"));
    assert_ne!(hash("rate(x[5m])"), hash("rate(x[30d])"));
    assert_ne!(hash("a"), Kind::of(&QueryInfo { language: "promql", ..asked("a") }).text);
    assert_eq!(hash(""), None);
}

#[test]
fn who_was_crowded_out_claims_twice_what_it_asked_for() {
    let _time = clock();
    let house = House::new(10);
    let (_one, memory) = house.begin("one").expect("nothing is known of it");
    memory.grow(4000);
    {
        let (_other, refused) = house.begin("other").expect("nothing is known of it");
        let error = from_datafusion(refused.try_grow(2500).unwrap_err().context("a step"));
        assert_eq!(error.kind, ErrorKind::Unavailable);
    }
    assert!(house.begin("other").is_none(), "it waits now");
    let expected = house.admission.state.lock().experience.expected(Kind::of(&asked("other")));
    assert_eq!(expected, 5000);
}

#[test]
fn little_passes_those_that_wait() {
    let _time = clock();
    let house = House::new(10);
    house.take("large", 4000);
    house.take("little", SIZE / LITTLE_PART);
    let _large = house.begin("large").expect("it is alone");
    assert!(house.begin("large").is_none());
    assert!(house.begin("little").is_some());
    let other = QueryInfo { language: "promql", ..asked("of which nothing is known") };
    let (pool, _memory) = house.query();
    assert!(house.admission.room(&other, &pool).now_or_never().is_some());
}

#[tokio::test]
async fn of_texts_that_were_never_seen_some_begin_at_once() {
    let house = House::new(10);
    house.take("known", 10);
    let names: [&str; NEW_MIN] = ["a", "b", "c", "d"];
    let mut first: Vec<_> = names.iter().map(|text| house.begin(text).expect("room")).collect();
    assert!(house.begin("e").is_none(), "these may take all that there is");
    let standing = QueryInfo { standing: true, ..asked("e") };
    assert!(house.admission.room(&standing, &house.query().0).now_or_never().is_some());
    drop(house.begin("known").expect("it is known to take little"));
    drop(first.pop());
    drop(house.begin("e").expect("one ended"));
    // A running query of the same text holds this much, so another one waits until as much is free.
    first[0].1.grow(SIZE / 2);
    assert!(house.begin("a").is_none());
    first.push(house.begin("f").expect("room"));
    // After a while running queries have shown what they take, so another one begins although none has ended.
    let (pool, _memory) = house.query();
    let _claim = house.admission.room(&asked("g"), &pool).await;
    assert_eq!(house.admission.state.lock().claims.len(), NEW_MIN + 1);
}

#[test]
fn alone_it_begins_whatever_it_takes() {
    let house = House::new(10);
    house.take("huge", 100 * SIZE);
    house.take("little", 10);
    let _little = house.begin("little").expect("room");
    assert!(house.begin("huge").is_some());
}

#[test]
fn no_query_waits_for_itself() {
    let _time = clock();
    let house = House::new(10);
    house.take("large", 4000);
    let (pool, memory) = house.query();
    let run = || house.admission.room(&asked("large"), &pool).now_or_never();
    let first = run().expect("it is alone");
    let second = run().expect("its claim is there already");
    memory.grow(2000);
    drop(first);
    assert!(house.begin("large").is_none(), "the other run goes on");
    drop(second);
    assert!(house.begin("large").is_some());
}

#[tokio::test]
async fn the_line_keeps_its_order_and_who_leaves_it_stops_nobody() {
    let house = House::new(10);
    house.take("large", 3200);
    house.take("middle", 1000);
    let large = house.begin("large").expect("it is alone");
    let pools = [(); 3].map(|()| house.query().0);
    let texts = ["large", "large", "middle"].map(asked);
    let mut first = Box::pin(house.admission.room(&texts[0], &pools[0]));
    let mut second = Box::pin(house.admission.room(&texts[1], &pools[1]));
    let mut third = pin!(house.admission.room(&texts[2], &pools[2]));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none(), "it would fit, but others came before");
    drop(first);
    assert!(third.as_mut().now_or_never().is_none());
    drop(large);
    let second = second.await;
    let third = third.await;
    drop((second, third));
    assert!(house.admission.state.lock().claims.is_empty());
}

#[test]
fn who_finds_a_long_line_is_sent_away_unless_it_has_begun() {
    let house = House::new(2);
    let line = [house.admission.wait(false), house.admission.wait(false)];
    assert!(line.iter().all(Result::is_ok));
    let error = house.admission.wait(false).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("`query.waiting_max`"), "{error}");
    assert!(house.admission.wait(true).is_ok(), "another run of one that has begun");
    drop(line);
    assert!(house.admission.wait(false).is_ok());
}

#[test]
fn what_a_text_takes_is_forgotten_slowly_and_learned_at_once() {
    let mut experience = Experience::default();
    let expected = |experience: &Experience| experience.expected(Kind::of(&asked("x")));
    experience.took(Kind::of(&asked("x")), 800);
    assert_eq!(expected(&experience), 800);
    experience.took(Kind::of(&asked("x")), 400);
    assert_eq!(expected(&experience), 700);
    experience.took(Kind::of(&asked("x")), 900);
    assert_eq!(expected(&experience), 900);
    for _ in 0..100 {
        experience.took(Kind::of(&asked("")), 80);
    }
    let average = experience.expected(Kind::of(&asked("y")));
    assert!((60..=100).contains(&average), "{average}");
    let tail = QueryInfo { standing: true, ..asked("tail") };
    for _ in 0..100 {
        experience.took(Kind::of(&tail), 0);
    }
    assert_eq!(experience.expected(Kind::of(&asked("y"))), average, "tails say nothing of others");
    assert_eq!(experience.expected(Kind::of(&QueryInfo::default())), 0, "nothing is known of the language");
}
