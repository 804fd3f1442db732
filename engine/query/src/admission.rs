//! Decides when a query may begin. A query that began without enough memory beside the others would be refused in the
//! middle of its work: the work is lost, and its client learns of it late. So each query claims the memory that it will
//! probably need, and waits in order until that fits beside the claims of the running ones.
//!
//! The estimate is what the same text needed before (numbers in it are ignored). For a text not seen lately it is the
//! average of queries in its language. Queries that need little never wait here, and a query that would run alone
//! begins whatever it needs.
//!
//! An average says nothing about a large query that many clients send for the first time at the same moment. So only
//! some queries with unknown texts begin at once; the others wait until these have ended, or have run long enough to
//! show what they need.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quiver_types::{Error, ErrorKind, Result};
use tokio::sync::Notify;

use crate::pool::QueryPool;
use crate::running_queries::QueryInfo;

/// Up to this fraction (1/n) of the memory is little: the pool grants as much regardless of shares.
const LITTLE_PART: usize = 64;
/// No query claims more than this fraction (1/n), so that those that take little find room beside each.
const CLAIM_PART: usize = 2;
/// Beside the largest claim there must be room for this fraction (1/n) of it: a query may hold twice what is free.
const FREE_PART: usize = 2;
/// Texts whose memory is remembered; one that meets another in its slot takes its place.
const TEXTS: usize = 1024;
/// What a text is known to take falls by this fraction (1/n) of the difference with each run that takes less: the same
/// text may ask for another time range.
const TEXT_FALLS_BY: usize = 4;
/// Each query changes the average of its language by this fraction (1/n) of the difference.
const LANGUAGE_MOVES_BY: usize = 8;
/// A query whose text was not seen lately may turn out to take so many bytes.
const NEW_BYTES: usize = 16 << 20;
/// At least so many of them begin at once.
const NEW_MIN: usize = 4;
/// How long such a query works until what it holds tells what it takes.
const NEW_FOR: Duration = Duration::from_millis(250);

/// What queries took, in bytes.
#[derive(Debug)]
struct Experience {
    /// Hash of a text, and what it took.
    texts: Vec<(u64, usize)>,
    languages: BTreeMap<&'static str, usize>,
}

impl Default for Experience {
    fn default() -> Self {
        Self { texts: vec![(0, 0); TEXTS], languages: BTreeMap::new() }
    }
}

/// What queries are known by.
#[derive(Debug, Clone, Copy)]
struct Kind {
    language: &'static str,
    /// Hash of language and text, without numbers: times of a request, and constants; `None`: it has no text of its own.
    text: Option<u64>,
    /// Whether it is asked again and again for little, which says nothing about others of its language.
    is_standing: bool,
}

impl Kind {
    fn of(asked: &QueryInfo) -> Self {
        let mut hasher = DefaultHasher::new();
        asked.language.hash(&mut hasher);
        for part in asked.text.as_bytes().split(u8::is_ascii_digit).filter(|part| !part.is_empty()) {
            part.hash(&mut hasher);
        }
        // 0 is an empty slot.
        let text = (!asked.text.is_empty()).then(|| hasher.finish().max(1));
        Self { language: asked.language, text, is_standing: asked.standing }
    }
}

impl Kind {
    /// Whether nothing is known of its text. What is asked again and again is asked for little.
    fn is_new(self, experience: &Experience) -> bool {
        !self.is_standing && self.text.is_some_and(|text| experience.texts[Experience::slot(text)].0 != text)
    }
}

impl Experience {
    fn slot(text: u64) -> usize {
        (text % TEXTS as u64) as usize
    }

    /// What a query will probably take.
    fn expected(&self, kind: Kind) -> usize {
        let known = kind.text.and_then(|text| {
            let (of, bytes) = self.texts[Self::slot(text)];
            (of == text).then_some(bytes)
        });
        known.unwrap_or_else(|| self.languages.get(kind.language).copied().unwrap_or(0))
    }

    /// Records a lower bound of what a query takes: the rest of its work may take more.
    fn took_some(&mut self, kind: Kind, bytes: usize) {
        let Some(key) = kind.text else { return };
        let slot = &mut self.texts[Self::slot(key)];
        let before = if slot.0 == key { slot.1 } else { 0 };
        *slot = (key, bytes.max(before));
    }

    /// Records what a query took in total.
    fn took(&mut self, kind: Kind, bytes: usize) {
        if !kind.is_standing {
            let average = self.languages.entry(kind.language).or_default();
            *average = *average - *average / LANGUAGE_MOVES_BY + bytes / LANGUAGE_MOVES_BY;
        }
        let Some(key) = kind.text else { return };
        let slot = &mut self.texts[Self::slot(key)];
        let before = if slot.0 == key { slot.1 } else { 0 };
        *slot = (key, bytes.max(before - before.saturating_sub(bytes) / TEXT_FALLS_BY));
    }
}

/// A query that may run: what it is expected to take, and what it does hold.
#[derive(Debug)]
struct Claimed {
    expected: usize,
    pool: Arc<QueryPool>,
    /// How many of its runs there are: the others need no room of their own, and must not wait for it.
    runs: usize,
    kind: Kind,
    /// When it began, if nothing was known of its text then.
    new_since: Option<Instant>,
}

impl Claimed {
    /// Whether it still has to show what it takes.
    fn is_new(&self) -> bool {
        self.new_since.is_some_and(|began| began.elapsed() < NEW_FOR)
    }
}

#[derive(Debug, Default)]
struct State {
    /// By the addresses of pools, each of which belongs to one query.
    claims: BTreeMap<usize, Claimed>,
    experience: Experience,
}

impl State {
    /// What a query will probably take: also what one of its text, that still runs, took so far.
    fn expected(&self, kind: Kind) -> usize {
        let same = self.claims.values().filter(|claimed| kind.text.is_some() && claimed.kind.text == kind.text);
        let held = same.map(|claimed| claimed.pool.wanted()).max().unwrap_or(0);
        held.max(self.experience.expected(kind))
    }
}

/// Decides which queries may begin.
#[derive(Debug)]
pub(crate) struct Admission {
    size: usize,
    waiting_max: u64,
    waiting: AtomicU64,
    state: Mutex<State>,
    /// Held by the first in the line.
    turn: tokio::sync::Mutex<()>,
    /// Tells the first in the line that a claim is gone.
    gone: Notify,
}

/// A query that waits for room or for a place, as long as this lives.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Admission>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// Records at the end of a query what it took, to estimate others like it.
#[derive(Debug)]
pub(crate) struct Lesson {
    admission: Arc<Admission>,
    pool: Arc<QueryPool>,
    kind: Kind,
}

impl Lesson {
    /// Called once, when a query ends that was not broken off. `ran`: plans of it ran; otherwise only its text was parsed.
    pub(crate) fn learn(&self, ran: bool) {
        let (mut state, wanted) = (self.admission.state.lock(), self.pool.wanted());
        if ran {
            state.experience.took(self.kind, wanted);
        } else {
            state.experience.took_some(self.kind, wanted);
        }
    }
}

/// The claim of a running query. Dropping it releases the claim, and records what the query took if that is more than was
/// known.
#[derive(Debug)]
pub(crate) struct Claim {
    admission: Arc<Admission>,
    query: usize,
    kind: Kind,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claimed = {
            let mut state = self.admission.state.lock();
            let Some(claimed) = state.claims.get_mut(&self.query) else { return };
            claimed.runs -= 1;
            if claimed.runs > 0 {
                return;
            }
            let claimed = state.claims.remove(&self.query);
            // A run that reads the text of a statement takes little, which says nothing of those that follow.
            if let Some(wanted) = claimed.as_ref().map(|c| c.pool.wanted()).filter(|w| *w > self.admission.little()) {
                state.experience.took_some(self.kind, wanted);
            }
            claimed
        };
        // This may be the last owner of the pool, which must not be dropped under the lock.
        drop(claimed);
        self.admission.gone.notify_one();
    }
}

impl Admission {
    /// Makes one for queries that share `size` bytes. At most `waiting_max` of them wait at once.
    pub(crate) fn new(size: usize, waiting_max: usize) -> Arc<Self> {
        let (waiting, state, turn, gone) = Default::default();
        Arc::new(Self { size, waiting_max: waiting_max as u64, waiting, state, turn, gone })
    }

    fn little(&self) -> usize {
        self.size / LITTLE_PART
    }

    /// Joins those that wait. A query that `has_begun`, of which this is another run, is not sent away.
    ///
    /// # Errors
    /// Unavailable: too many wait already.
    pub(crate) fn wait(self: &Arc<Self>, has_begun: bool) -> Result<Waiting> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(Arc::clone(self));
        if before >= self.waiting_max && !has_begun {
            let text = format!("{before} queries wait already (setting `query.waiting_max`): ask again later");
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        Ok(waiting)
    }

    /// Waits until there is room for a query beside those that run, in the order of calls.
    pub(crate) async fn room(self: &Arc<Self>, asked: &QueryInfo, pool: &Arc<QueryPool>) -> Claim {
        let kind = Kind::of(asked);
        if let Some(claim) = self.claim_passing(kind, pool) {
            return claim;
        }
        self.in_line(|| self.claim(kind, pool)).await
    }

    /// Waits in the same line until there is room for what the refused query wanted. After the first refusal, it may run
    /// beside others; after the second, only beside queries that take little, and until its claim is released no other large
    /// query begins.
    pub(crate) async fn room_again(self: &Arc<Self>, asked: &QueryInfo, pool: &Arc<QueryPool>, refusals: u32) -> Claim {
        let kind = Kind::of(asked);
        self.in_line(|| self.claim_all(kind, pool, refusals > 1)).await
    }

    /// The record to make when the query ends.
    pub(crate) fn lesson(self: &Arc<Self>, asked: &QueryInfo, pool: &Arc<QueryPool>) -> Lesson {
        Lesson { admission: Arc::clone(self), pool: Arc::clone(pool), kind: Kind::of(asked) }
    }

    async fn in_line(&self, claim: impl Fn() -> Option<Claim>) -> Claim {
        let _turn = self.turn.lock().await;
        loop {
            // `Notify` keeps a permit, so a claim that is released between this check and the wait is not missed.
            if let Some(claim) = claim() {
                return claim;
            }
            // Queries also make room by having run long enough to show what they need, which notifies nobody.
            let _ = tokio::time::timeout(NEW_FOR, self.gone.notified()).await;
        }
    }

    /// Whether a query with an unknown text must wait until others like it have shown what they need.
    fn is_one_too_many(&self, state: &State, kind: Kind) -> bool {
        let most = (self.size / 2 / NEW_BYTES).max(NEW_MIN);
        kind.is_new(&state.experience) && state.claims.values().filter(|claimed| claimed.is_new()).count() >= most
    }

    /// Claims for a query that takes little, or of which another run is under way: these overtake waiting queries.
    fn claim_passing(self: &Arc<Self>, kind: Kind, pool: &Arc<QueryPool>) -> Option<Claim> {
        let mut state = self.state.lock();
        let expected = state.expected(kind);
        let is_little = expected <= self.little() && !self.is_one_too_many(&state, kind);
        let passes = is_little || state.claims.contains_key(&address(pool));
        passes.then(|| self.enter(&mut state, expected, kind, pool))
    }

    /// Claims if there is room; `None` if there is none now.
    fn claim(self: &Arc<Self>, kind: Kind, pool: &Arc<QueryPool>) -> Option<Claim> {
        let mut state = self.state.lock();
        // Asked anew each time: an equal query may have ended meanwhile.
        if self.is_one_too_many(&state, kind) {
            return None;
        }
        let expected = state.expected(kind).min(self.size / CLAIM_PART);
        let others = || self.large(&state).map(|(_, bytes)| bytes);
        let largest = others().max().unwrap_or(0).max(expected);
        let fits = others().sum::<usize>() + expected + largest / FREE_PART <= self.size;
        let begins = fits || others().next().is_none();
        begins.then(|| self.enter(&mut state, expected, kind, pool))
    }

    /// Claims the whole memory, so that no other large query begins. `None` if the running ones leave too little for what
    /// this query wanted or, if it must run `alone`, as long as another large one runs.
    fn claim_all(self: &Arc<Self>, kind: Kind, pool: &Arc<QueryPool>, alone: bool) -> Option<Claim> {
        let mut state = self.state.lock();
        // Standing queries run until their client leaves, so nobody waits for them.
        let ending = || self.large(&state).filter(|(claimed, _)| !claimed.kind.is_standing).map(|(_, bytes)| bytes);
        let wanted = pool.wanted().min(self.size);
        let fits = !alone && ending().sum::<usize>() + wanted + wanted / FREE_PART <= self.size;
        let begins = fits || state.claims.contains_key(&address(pool)) || ending().next().is_none();
        begins.then(|| self.enter(&mut state, self.size, kind, pool))
    }

    /// The running queries that need more than a little, with the bytes that each claims or holds, whichever is more.
    fn large<'s>(&self, state: &'s State) -> impl Iterator<Item = (&'s Claimed, usize)> + use<'s> {
        let little = self.little();
        let held = state.claims.values().map(|claimed| (claimed, claimed.expected.max(claimed.pool.held())));
        held.filter(move |(_, bytes)| *bytes > little)
    }

    fn enter(self: &Arc<Self>, state: &mut State, expected: usize, kind: Kind, pool: &Arc<QueryPool>) -> Claim {
        let query = address(pool);
        let new_since = kind.is_new(&state.experience).then(Instant::now);
        let first = || Claimed { expected, pool: Arc::clone(pool), runs: 0, kind, new_since };
        state.claims.entry(query).or_insert_with(first).runs += 1;
        Claim { admission: Arc::clone(self), query, kind }
    }
}

/// Identifies the query of a pool, as long as it is there.
fn address(pool: &Arc<QueryPool>) -> usize {
    Arc::as_ptr(pool).addr()
}

#[cfg(test)]
mod tests;
