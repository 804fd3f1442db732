//! Queries that wait for their clients to read the result. Such a query keeps its place and its memory, but not for long
//! while other queries need them: a few clients that stop reading would otherwise block all others until their time
//! limits.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use quiver_types::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::pool::{QueryPool, SharedPool};
use crate::query_counters::QueryUse;
use crate::running_queries::{Phase, Query};

/// How long a client may read nothing while other queries need what its query holds.
const STALLED_MAX: Duration = Duration::from_secs(10);
/// How often to check whether other queries need it.
const LOOK: Duration = Duration::from_millis(500);
/// Other queries must be found waiting for a place by this many checks in a row, since a short wait is common.
const CROWDED_LOOKS: u32 = 4;
/// A query that holds less than this fraction (1/n) of the memory pool does not block others.
const MUCH_PART: usize = 64;

/// A query whose rows are being read, and what it needs to know of the queries beside it.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    query: Arc<Query>,
    used: Arc<QueryUse>,
    memory: Arc<SharedPool>,
}

impl Beside {
    pub(crate) fn new(query: &Arc<Query>, used: &Arc<QueryUse>, memory: &Arc<SharedPool>) -> Self {
        Self { query: Arc::clone(query), used: Arc::clone(used), memory: Arc::clone(memory) }
    }

    /// Waits until the client reads rows.
    ///
    /// # Errors
    /// Unavailable: it has not read for long, and other queries need what this one holds.
    pub(crate) async fn taken<T>(&self, reader: impl Future<Output = T>) -> Result<T> {
        self.taken_within(reader, STALLED_MAX, LOOK).await
    }

    async fn taken_within<T>(
        &self,
        reader: impl Future<Output = T>,
        stalled_max: Duration,
        look: Duration,
    ) -> Result<T> {
        let mut reader = pin!(reader);
        let (began, refused, mut crowded) = (Instant::now(), self.memory.refused(), 0);
        loop {
            if let Ok(taken) = timeout(look, reader.as_mut()).await {
                return Ok(taken);
            }
            crowded = if self.used.waiting.load(Relaxed) == 0 { 0 } else { crowded + 1 };
            let is_needed = crowded >= CROWDED_LOOKS || (self.memory.refused() != refused && self.holds_much());
            if is_needed && began.elapsed() >= stalled_max {
                let text = format!("no rows were taken for {} s, and other queries wait", stalled_max.as_secs());
                return Err(Error::new(ErrorKind::Unavailable, text));
            }
        }
    }

    fn holds_much(&self) -> bool {
        self.query.memory().0 > self.memory.size / MUCH_PART
    }
}

/// Observes a query whose answer is being sent. Refers to the query weakly, so that it does not prolong how long its
/// memory is held.
#[derive(Debug)]
pub struct AnswerDelivery {
    query: Weak<Query>,
    held: Weak<QueryPool>,
    used: Arc<QueryUse>,
    memory: Arc<SharedPool>,
}

impl AnswerDelivery {
    pub(crate) fn new(
        query: &Arc<Query>,
        held: &Arc<QueryPool>,
        used: &Arc<QueryUse>,
        memory: &Arc<SharedPool>,
    ) -> Self {
        let (query, held) = (Arc::downgrade(query), Arc::downgrade(held));
        Self { query, held, used: Arc::clone(used), memory: Arc::clone(memory) }
    }

    /// How often queries have been refused memory so far because others held it.
    pub fn refusals(&self) -> u64 {
        self.memory.refused()
    }

    /// Says whether it blocks others: they wait for a place while it has one, or it holds much memory and there have been
    /// more than this many refusals.
    pub fn keeps_out(&self, refusals: u64) -> bool {
        // One that has all of its rows has given its place back.
        let has_place = self.query.upgrade().is_some_and(|query| query.phase() != Phase::Encode);
        let holds_much =
            || self.held.upgrade().is_some_and(|pool| pool.used_and_peak().0 > self.memory.size / MUCH_PART);
        has_place && self.used.waiting.load(Relaxed) > 0 || self.memory.refused() != refusals && holds_much()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};

    use super::*;
    use crate::running_queries::QueryInfo;

    const LONG: Duration = Duration::from_millis(60);
    const SHORT: Duration = Duration::from_millis(5);
    const SIZE: usize = 6400;

    fn beside() -> Beside {
        let query = Arc::new(Query::new(QueryInfo::default()));
        Beside::new(&query, &Arc::default(), &SharedPool::new(Arc::new(FairSpillPool::new(SIZE)), SIZE, Arc::default()))
    }

    /// Memory of a query.
    fn holding(beside: &Beside, query: &Query, bytes: usize) -> MemoryReservation {
        let pool = query.memory.get_or_init(|| Arc::new(QueryPool::new(Arc::clone(&beside.memory), SIZE)));
        let held = MemoryConsumer::new("held").register(&(Arc::clone(pool) as Arc<dyn MemoryPool>));
        held.grow(bytes);
        held
    }

    async fn late() -> i32 {
        tokio::time::sleep(4 * LONG).await;
        7
    }

    #[tokio::test]
    async fn readers_have_time_while_nobody_waits() {
        let beside = beside();
        let _much = holding(&beside, &beside.query, SIZE / 2);
        assert_eq!(beside.taken_within(late(), LONG, SHORT).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn readers_that_take_nothing_give_way_to_those_that_wait() {
        let beside = beside();
        beside.used.waiting.store(1, Relaxed);
        let began = Instant::now();
        let error = beside.taken_within(std::future::pending::<()>(), LONG, SHORT).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(began.elapsed() >= LONG, "they have some time");
        assert_eq!(beside.taken_within(std::future::ready(7), Duration::ZERO, SHORT).await.unwrap(), 7, "not these");
    }

    #[tokio::test]
    async fn readers_that_take_nothing_give_memory_back_that_others_need() {
        let beside = beside();
        let refused = async {
            let other = Query::new(QueryInfo::default());
            let memory = holding(&beside, &other, 0);
            tokio::time::sleep(SHORT).await;
            memory.try_grow(SIZE / 2).unwrap_err();
            std::future::pending::<()>().await;
        };
        let own = holding(&beside, &beside.query, SIZE * 3 / 4);
        let error = beside.taken_within(refused, LONG, SHORT).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        // One that holds little would give others nothing.
        own.shrink(SIZE * 3 / 4);
        let _most = holding(&beside, &Query::new(QueryInfo::default()), SIZE * 3 / 4);
        let refused = async {
            let memory = holding(&beside, &Query::new(QueryInfo::default()), 0);
            memory.try_grow(SIZE / 2).unwrap_err();
            late().await
        };
        assert_eq!(beside.taken_within(refused, LONG, SHORT).await.unwrap(), 7);
    }

    #[test]
    fn answers_keep_out_who_needs_what_they_hold() {
        let beside = beside();
        let own = holding(&beside, &beside.query, 0);
        let pool = beside.query.memory.get().unwrap();
        let answered = AnswerDelivery::new(&beside.query, pool, &beside.used, &beside.memory);
        assert!(!answered.keeps_out(answered.refusals()));
        beside.used.waiting.store(1, Relaxed);
        assert!(answered.keeps_out(answered.refusals()), "it has a place");
        beside.query.enter(Phase::Encode);
        assert!(!answered.keeps_out(answered.refusals()), "not any longer");
        // Another one is refused what this one holds.
        let before = answered.refusals();
        own.grow(SIZE * 3 / 4);
        holding(&beside, &Query::new(QueryInfo::default()), 0).try_grow(SIZE / 2).unwrap_err();
        assert!(answered.keeps_out(before) && !answered.keeps_out(answered.refusals()));
        drop(beside);
        assert!(answered.keeps_out(before), "its memory is there without it");
        own.free();
        assert!(!answered.keeps_out(before), "it holds nothing");
        drop(own);
        assert!(!answered.keeps_out(before), "it is gone");
    }
}
