use datafusion::execution::memory_pool::FairSpillPool;
use quiver_types::ErrorKind;

use super::*;
use crate::error::from_datafusion;

const SIZE: usize = 6400;

/// A cache of results that drops the last one first.
struct Results(Mutex<Vec<MemoryReservation>>);

impl Keeper for Results {
    fn let_go(&self) -> bool {
        self.0.lock().pop().is_some()
    }
}

fn shared() -> Arc<SharedPool> {
    SharedPool::new(Arc::new(FairSpillPool::new(SIZE)), SIZE, Arc::default())
}

/// The pool of a query that may hold so many bytes.
fn query(shared: &Arc<SharedPool>, max: usize) -> MemoryReservation {
    let pool: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(Arc::clone(shared), max));
    MemoryConsumer::new("query").register(&pool)
}

/// The outcome of growing by so many bytes.
fn refused(memory: &MemoryReservation, bytes: usize) -> ErrorKind {
    from_datafusion(memory.try_grow(bytes).unwrap_err()).kind
}

#[test]
fn there_is_always_something_left() {
    let shared = shared();
    let mut held = Vec::new();
    for n in 1..=3 {
        let memory = query(&shared, SIZE);
        while memory.try_grow(10).is_ok() {}
        if n == 1 {
            assert!((4200..=4300).contains(&memory.size()), "{}", memory.size());
        }
        assert!(memory.size() >= 100, "query {n} gets {}", memory.size());
        held.push(memory);
    }
    drop(held);
    assert_eq!((shared.pool.reserved(), shared.lent.load(Relaxed)), (0, 0));
    let memory = query(&shared, 1000);
    assert!(memory.try_grow(1000).is_ok() && memory.try_grow(1).is_err());
}

#[test]
fn little_is_lent_while_the_process_is_short_of_memory() {
    let shared = shared();
    let memory = query(&shared, SIZE);
    shared.pressure.tell(true);
    assert!(memory.try_grow(100).is_ok());
    assert_eq!(refused(&memory, 1), ErrorKind::Unavailable, "it is no query that fills the process");
    assert_eq!(refused(&memory, SIZE), ErrorKind::LimitExceeded, "more than one alone may have");
    let other = query(&shared, SIZE);
    other.grow(2000);
    assert_eq!(refused(&memory, 1), ErrorKind::Unavailable, "another one holds more");
    assert_eq!(refused(&other, 1), ErrorKind::LimitExceeded, "it is the largest");
    shared.pressure.tell(false);
    assert!(memory.try_grow(1).is_ok());
}

#[test]
fn who_would_get_it_alone_may_come_again() {
    let shared = shared();
    let (one, other) = (query(&shared, SIZE), query(&shared, SIZE));
    assert_eq!(refused(&one, 5000), ErrorKind::LimitExceeded, "more than one alone may have");
    other.grow(4000);
    assert_eq!(refused(&one, 2000), ErrorKind::Unavailable, "more than its share, less than one alone may have");
    assert_eq!(refused(&one, 5000), ErrorKind::LimitExceeded);
    assert_eq!(refused(&query(&shared, 1000), 2000), ErrorKind::LimitExceeded, "more than the limit of a query");
    // What others hold beside queries does not go when they end.
    other.free();
    let kept = MemoryConsumer::new("kept").register(&shared.pool);
    kept.grow(4000);
    assert_eq!(refused(&one, 2000), ErrorKind::LimitExceeded);
    other.grow(10);
    assert_eq!(refused(&one, 2000), ErrorKind::LimitExceeded);
    kept.free();
}

/// Breaks if a query waits in vain for another one that holds little and itself waits for room.
#[test]
fn a_little_of_others_takes_nothing_from_a_query() {
    let shared = shared();
    let filled = |memory: &MemoryReservation| {
        while memory.try_grow(10).is_ok() {}
        memory.size()
    };
    let (one, other) = (query(&shared, SIZE), query(&shared, SIZE));
    let alone = filled(&one);
    assert_eq!(refused(&one, 10), ErrorKind::LimitExceeded);
    one.free();
    other.grow(SIZE / SMALL_PART);
    assert_eq!(filled(&one), alone);
    assert_eq!(refused(&one, 10), ErrorKind::LimitExceeded, "it would get no more alone");
    one.free();
    other.grow(SIZE / SMALL_PART);
    assert!(filled(&one) < alone);
    assert_eq!(refused(&one, 10), ErrorKind::Unavailable, "it would get more alone");
}

#[test]
fn results_that_are_kept_go_where_a_query_fits_by_that() {
    let shared = shared();
    let pool: Arc<dyn MemoryPool> = Arc::new(KeptPool(Arc::clone(&shared)));
    let result = |bytes: usize| {
        let memory = MemoryConsumer::new("kept").register(&pool);
        memory.grow(bytes);
        memory
    };
    let results = Arc::new(Results(Mutex::new((0..3).map(|_| result(1000)).collect())));
    shared.keepers.lock().push(Arc::downgrade(&results) as Weak<dyn Keeper>);
    let one = query(&shared, SIZE);
    assert_eq!(refused(&one, 5000), ErrorKind::LimitExceeded, "more than one alone may have");
    assert_eq!(pool.reserved(), 3000, "it does not fit without them either");
    assert!(one.try_grow(3000).is_ok());
    assert_eq!(pool.reserved(), 1000, "as many go as it takes");
    let other = query(&shared, SIZE);
    assert_eq!(refused(&other, 3000), ErrorKind::Unavailable, "others hold the rest");
    one.free();
    assert!(other.try_grow(4000).is_ok());
    assert_eq!((pool.reserved(), shared.pool.reserved()), (0, 4000));
}

#[test]
fn what_functions_make_for_a_query_is_its_own() {
    let shared = shared();
    let query = QueryPool::new(Arc::clone(&shared), SIZE);
    let pools = [query.of_values(), query, QueryPool::of_nobody(&shared), QueryPool::new(Arc::clone(&shared), SIZE)];
    let [values, rows, nobodys, other] =
        pools.map(|pool| MemoryConsumer::new("a pool").register(&(Arc::new(pool) as Arc<dyn MemoryPool>)));
    rows.grow(3000);
    assert_eq!(refused(&values, 3000), ErrorKind::LimitExceeded, "what it holds besides is no other query's");
    nobodys.grow(100);
    assert_eq!(refused(&values, 3000), ErrorKind::LimitExceeded);
    rows.free();
    other.grow(3000);
    assert_eq!(refused(&values, 3000), ErrorKind::Unavailable);
    assert_eq!(refused(&nobodys, 3000), ErrorKind::LimitExceeded, "it is not known whose it is");
}

#[test]
fn a_refusal_names_what_takes_most() {
    let shared = shared();
    let pool: Arc<dyn MemoryPool> = Arc::new(QueryPool::new(Arc::clone(&shared), SIZE));
    let [groups, rows] = ["FinalHashAggregateStream[0]", "rows"].map(|name| MemoryConsumer::new(name).register(&pool));
    groups.grow(3000);
    let said = |memory: &MemoryReservation, bytes: usize| {
        from_datafusion(memory.try_grow(bytes).unwrap_err().context("a step")).message
    };
    let grouping = said(&rows, 2000);
    assert!(grouping.ends_with("(setting `memory.limit`): grouping takes most of it"), "{grouping}");
    let answer = said(&rows, 4000);
    assert!(answer.ends_with("the answer takes most of it"), "what is asked for counts: {answer}");
    let nobodys: Arc<dyn MemoryPool> = Arc::new(QueryPool::of_nobody(&shared));
    let bare = said(&MemoryConsumer::new("rows").register(&nobodys), SIZE);
    assert!(bare.ends_with("(setting `memory.limit`)"), "{bare}");
}

#[test]
fn those_that_spill_have_a_part_of_what_one_alone_has() {
    let shared = shared();
    let pools = [(); 2].map(|()| Arc::new(QueryPool::new(Arc::clone(&shared), SIZE)) as Arc<dyn MemoryPool>);
    let sort = |pool: &Arc<dyn MemoryPool>| MemoryConsumer::new("sort").with_can_spill(true).register(pool);
    let (one, _beside, other) = (sort(&pools[0]), sort(&pools[0]), sort(&pools[1]));
    other.grow(100);
    assert!(one.try_grow(2000).is_ok());
    assert_eq!(refused(&one, 1000), ErrorKind::Unavailable, "two sorts alone have a half each");
    assert_eq!(refused(&one, 1500), ErrorKind::LimitExceeded, "more than a half");
    let table = MemoryConsumer::new("table").register(&pools[0]);
    table.grow(600);
    assert_eq!(refused(&one, 1000), ErrorKind::LimitExceeded, "more than a half of what the table leaves");
}

#[test]
fn those_that_spill_leave_room_for_others_of_their_query() {
    let shared = shared();
    let pool = Arc::new(QueryPool::new(Arc::clone(&shared), SIZE)) as Arc<dyn MemoryPool>;
    let sort = || MemoryConsumer::new("sort").with_can_spill(true).register(&pool);
    let filled = |memory: &MemoryReservation| {
        while memory.try_grow(10).is_ok() {}
        memory.size()
    };
    let one = sort();
    assert!(filled(&one) > 4200, "alone it has all of the share");
    one.free();
    let other = sort();
    let merge = MemoryConsumer::new("merge").register(&pool);
    merge.grow(1200);
    // A half of what the merge leaves of the share, and somewhat more.
    assert!((1500..2100).contains(&filled(&one)), "{}", one.size());
    assert!(filled(&other) > 1000, "{}", other.size());
    one.free();
    assert!(filled(&other) > 1500, "{}", other.size());
    assert!(filled(&merge) > 2000, "what cannot spill has the rest");
}

#[test]
fn sorts_leave_room_to_merge_what_they_hold() {
    let shared = shared();
    let pool = Arc::new(QueryPool::new(Arc::clone(&shared), SIZE)) as Arc<dyn MemoryPool>;
    let gather = || MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&pool);
    let merge = || MemoryConsumer::new(format!("{MERGE}[0]")).register(&pool);
    let filled = |memory: &MemoryReservation| {
        while memory.try_grow(10).is_ok() {}
        memory.size()
    };
    let ((one, of_one), (other, of_other)) = ((gather(), merge()), (gather(), merge()));
    // Each gets half of three tenths of the query's share, in whatever order they ask.
    assert!((600..700).contains(&filled(&one)), "{}", one.size());
    assert!((600..700).contains(&filled(&other)), "{}", other.size());
    // What it holds goes over to its merge, of which each piece counts twice, and the other one gathers more meanwhile.
    while one.size() >= 10 {
        one.shrink(10);
        let _ = other.try_grow(10);
        of_one.try_grow(20).expect("room to merge");
    }
    // Merging spilled files takes a third of the share for each sort, and leaves a third for merging their rows.
    for memory in [&one, &other, &of_one] {
        memory.free();
    }
    assert!((1300..1500).contains(&filled(&of_one)), "{}", of_one.size());
    assert!((1300..1500).contains(&filled(&of_other)), "{}", of_other.size());
    let reader = MemoryConsumer::new("SortPreservingMergeExec[0]").register(&pool);
    assert!(filled(&reader) > 1200, "{}", reader.size());
}
