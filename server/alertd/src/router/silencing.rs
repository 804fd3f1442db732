//! Sets, expires and lists silences. A change is durable before the caller gets a response.

use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_alerting::silences::{SetError, Silence, SilenceState, Silences};
use quiver_types::{ChangeMode, Error};
use tokio::task::spawn_blocking;

use super::{Router, records};
use crate::durable_state::{Change, PendingWrite, RowKind};

/// Why a silence was not set.
#[derive(Debug)]
pub enum SilenceError {
    /// There is none with this id.
    NotFound,
    /// There is one with this id.
    Exists,
    /// It is not as it was expected; as it is.
    Stale(Box<Silence>),
    /// It cannot be one.
    Invalid(String),
    /// It cannot be stored.
    Failed(Error),
}

/// A change of a silence.
#[derive(Debug, Clone)]
pub enum SilenceOp {
    /// Adds one, or changes the one with its id.
    Set {
        /// As it is to be; without an id it is a new one.
        silence: Box<Silence>,
        /// The id of a new one; none: one is made.
        id: Option<String>,
        /// Versions of which the present one must be.
        expected: Option<Vec<i64>>,
    },
    /// Ends one now; it stays as an expired one.
    Expire {
        /// Id of the silence.
        id: String,
        /// Versions of which the present one must be.
        expected: Option<Vec<i64>>,
    },
}

/// What a change did.
#[derive(Debug, Clone)]
pub struct SilenceDone {
    /// What was there under its id.
    pub before: Option<Silence>,
    /// What is there now.
    pub after: Silence,
    /// The one that ended so that this one begins, as it was and as it is: it could not be changed in place.
    pub ended: Option<(Silence, Silence)>,
}

impl SilenceDone {
    /// Says whether anything differs.
    pub fn changed(&self) -> bool {
        self.before.as_ref().is_none_or(|before| before.version != self.after.version)
    }
}

/// Most silences that are kept, expired ones included.
const SILENCES_MAX: usize = 20_000;
/// What they may take together, patterns included: they are held for days, and no query's memory counts them.
const SILENCES_BYTES_MAX: usize = 64 << 20;

/// Changes that are made under one lock, where each is made by itself.
const AT_ONCE: usize = 100;

/// A change, and what its silence takes: patterns are compiled to be measured, which the lock must not wait for.
type SizedSilenceOp = (SilenceOp, usize);

/// Measures changes on a thread that may be busy.
async fn measured(ops: Vec<SilenceOp>) -> Result<Vec<SizedSilenceOp>, SilenceError> {
    let bytes = |op: &SilenceOp| match op {
        SilenceOp::Set { silence, .. } => silence.bytes(),
        SilenceOp::Expire { .. } => 0,
    };
    let one = move |op| {
        let bytes = bytes(&op);
        (op, bytes)
    };
    let work = spawn_blocking(move || ops.into_iter().map(one).collect::<Vec<SizedSilenceOp>>());
    work.await.map_err(|e| SilenceError::Failed(Error::internal("silences were not measured").with_source(e)))
}

/// Silences by their ids: as they were before changes that are not durable yet, and as they are.
type Made = BTreeMap<String, (Option<Silence>, Option<Silence>)>;

/// Changes of silences that can be taken back.
struct Trial<'a> {
    silences: &'a mut Silences,
    /// What all may take.
    bytes_max: usize,
    now: i64,
    actor: &'a str,
    /// What was there, in the order in which it was changed.
    former: Vec<(String, Option<Silence>)>,
}

impl Trial<'_> {
    fn present(&self, id: &str, expected: Option<&Vec<i64>>) -> Result<Silence, SilenceError> {
        let present = self.silences.get(id).cloned().ok_or(SilenceError::NotFound)?;
        match expected {
            Some(versions) if !versions.contains(&present.version) => Err(SilenceError::Stale(Box::new(present))),
            _ => Ok(present),
        }
    }

    fn make(&mut self, (op, bytes): SizedSilenceOp) -> Result<SilenceDone, SilenceError> {
        match op {
            SilenceOp::Expire { id, expected } => {
                let before = self.present(&id, expected.as_ref())?;
                self.former.push((id.clone(), Some(before.clone())));
                self.silences.expire(&id, self.now);
                let mut after = self.silences.get(&id).cloned().ok_or(SilenceError::NotFound)?;
                if after.version != before.version {
                    self.actor.clone_into(&mut after.updated_by);
                    self.silences.load(after.clone());
                }
                Ok(SilenceDone { before: Some(before), after, ended: None })
            }
            SilenceOp::Set { mut silence, id, expected } => {
                self.actor.clone_into(&mut silence.updated_by);
                let new_id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
                let former = match silence.id.as_str() {
                    "" if self.silences.get(&new_id).is_some() => return Err(SilenceError::Exists),
                    "" if self.silences.count() >= SILENCES_MAX => {
                        return Err(SilenceError::Invalid(format!("there are {SILENCES_MAX} silences already")));
                    }
                    "" => None,
                    id => Some(self.present(id, expected.as_ref())?),
                };
                // One that is changed may stay beside what it becomes.
                if self.silences.bytes() + bytes > self.bytes_max {
                    let text = format!("all silences together would take more than {} bytes", self.bytes_max);
                    return Err(SilenceError::Invalid(text));
                }
                self.former.extend(former.iter().map(|s| (s.id.clone(), Some(s.clone()))));
                self.former.push((new_id.clone(), None));
                let id = self.silences.set(*silence, bytes, new_id, self.now).map_err(|e| match e {
                    SetError::NotFound => SilenceError::NotFound,
                    SetError::Invalid(text) => SilenceError::Invalid(text),
                })?;
                let after = self.silences.get(&id).cloned().ok_or(SilenceError::NotFound)?;
                match former {
                    Some(before) if before.id == id => Ok(SilenceDone { before: Some(before), after, ended: None }),
                    Some(before) => {
                        let ended = self.silences.get(&before.id).cloned().ok_or(SilenceError::NotFound)?;
                        Ok(SilenceDone { before: None, after, ended: Some((before, ended)) })
                    }
                    None => Ok(SilenceDone { before: None, after, ended: None }),
                }
            }
        }
    }

    /// What each changed silence was, and what became of it.
    fn made(&self) -> Made {
        let mut all = Made::new();
        for (id, former) in &self.former {
            let after = || self.silences.get(id).cloned();
            all.entry(id.clone()).or_insert_with(|| (former.clone(), after()));
        }
        all
    }

    fn take_back(self) {
        for (id, former) in self.former.into_iter().rev() {
            match former {
                Some(silence) => self.silences.load(silence),
                None => self.silences.remove(&id),
            }
        }
    }
}

impl Router {
    /// As much as posted alerts may take, where that is less.
    fn silence_bytes_max(&self) -> usize {
        SILENCES_BYTES_MAX.min(self.settings.alert_bytes_max)
    }

    /// Changes silences, all or none, for somebody; comes back when that is durable. A dry run changes nothing.
    ///
    /// # Errors
    /// The number of the first change that cannot be, and why.
    pub async fn change_silences(
        &self,
        ops: Vec<SilenceOp>,
        actor: &str,
        mode: ChangeMode,
    ) -> Result<Vec<SilenceDone>, (usize, SilenceError)> {
        let ops = measured(ops).await.map_err(|error| (0, error))?;
        let now = self.now();
        let (all, made, writing) = {
            let bytes_max = self.silence_bytes_max();
            let mut state = self.state.lock();
            let mut trial = Trial { silences: &mut state.silences, bytes_max, now, actor, former: Vec::new() };
            let mut all = Vec::with_capacity(ops.len());
            for (n, op) in ops.into_iter().enumerate() {
                match trial.make(op) {
                    Ok(done) => all.push(done),
                    Err(error) => {
                        trial.take_back();
                        return Err((n, error));
                    }
                }
            }
            if mode.is_dry_run() {
                trial.take_back();
                return Ok(all);
            }
            let made = trial.made();
            let writing = self.keep(&made);
            (all, made, writing)
        };
        self.durable(made, writing).await.map_err(|error| (0, error))?;
        self.note_changed(all.iter(), actor, now);
        Ok(all)
    }

    /// Changes silences, each by itself, for somebody; gives for each, in order, what came of it, when that is durable.
    ///
    /// # Errors
    /// They cannot be stored.
    pub async fn change_each(
        &self,
        ops: Vec<SilenceOp>,
        actor: &str,
        mode: ChangeMode,
    ) -> Result<Vec<Result<SilenceDone, SilenceError>>, SilenceError> {
        let ops = measured(ops).await?;
        let (mut all, mut ops) = (Vec::with_capacity(ops.len()), ops.into_iter());
        loop {
            let some: Vec<SizedSilenceOp> = ops.by_ref().take(AT_ONCE).collect();
            if some.is_empty() {
                return Ok(all);
            }
            let now = self.now();
            let (made, writing) = {
                let bytes_max = self.silence_bytes_max();
                let mut state = self.state.lock();
                let mut trial = Trial { silences: &mut state.silences, bytes_max, now, actor, former: Vec::new() };
                let made: Vec<_> = some.into_iter().map(|op| trial.make(op)).collect();
                if mode.is_dry_run() {
                    trial.take_back();
                    (made, None)
                } else {
                    let changed = trial.made();
                    let writing = self.keep(&changed);
                    (made, Some((changed, writing)))
                }
            };
            match writing {
                Some((changed, writing)) => self.durable(changed, writing).await?,
                None => tokio::task::yield_now().await,
            }
            if !mode.is_dry_run() {
                self.note_changed(made.iter().flatten(), actor, now);
            }
            all.extend(made);
        }
    }

    /// Hands on what was changed, to be kept.
    fn keep(&self, made: &Made) -> PendingWrite {
        let kept = made.values().filter_map(|(_, after)| after.as_ref());
        self.kept.put(kept.map(|s| Change::set(RowKind::Silence, s.id.as_bytes(), &records::silence(s))).collect())
    }

    /// Waits until changes are durable. If they cannot be, they are taken back: who was told that there is no silence relies
    /// on being notified.
    async fn durable(&self, made: Made, writing: PendingWrite) -> Result<(), SilenceError> {
        let Err(error) = writing.durable().await else { return Ok(()) };
        let mut state = self.state.lock();
        for (id, (former, after)) in made {
            // Somebody may have changed it once more.
            if state.silences.get(&id) != after.as_ref() {
                continue;
            }
            match former {
                Some(silence) => state.silences.load(silence),
                None => state.silences.remove(&id),
            }
        }
        Err(SilenceError::Failed(error))
    }

    /// Notes changes in the history.
    fn note_changed<'d>(&self, all: impl Iterator<Item = &'d SilenceDone>, actor: &str, now: i64) {
        let noted = |done: &'d SilenceDone| match done.after.state(now) {
            SilenceState::Expired => (&done.after, "unsilence", actor.to_owned()),
            _ => (&done.after, "silence", done.after.created_by.clone()),
        };
        let noted: Vec<_> = all.filter(|done| done.changed()).map(noted).collect();
        self.note_silences(&noted);
    }

    /// Finds a silence.
    pub fn silence(&self, id: &str) -> Option<Silence> {
        self.state.lock().silences.get(id).cloned()
    }

    /// Gives all silences in the order of lists.
    pub fn silences(&self) -> Vec<Arc<Silence>> {
        let now = self.now();
        self.state.lock().silences.listed(now).into_iter().cloned().collect()
    }
}
